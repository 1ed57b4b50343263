"""Values as files below one directory.

A value is read with open, one read and close: no stat and no "does it exist" before it. It is written to
a temporary file beside its place and renamed onto it, so that neither a reader nor a crash sees half of it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import zlib
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from zellige.scratch import buffer
from zellige.stores.base import TEMPORARY, Store, check_key, check_prefix, hold, is_key, resolve_span
from zellige.types import Buffer, Span

# Without O_NONBLOCK the opening of a FIFO waits for a writer.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC

# A name that the file system cannot hold is not there either.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_NOT_A_FILE = frozenset({errno.ESPIPE, errno.ENXIO})  # from a FIFO, and from a socket
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})

_TRIES = 32  # how often a write makes its directory while somebody else removes it
_GUESS = 64 << 10  # `get` reads this much before it asks for the size
_CHECKED = 1 << 20  # a longer range is compared with the size before memory is taken for it
_KEPT = 32 << 20  # scratch buffers above this are not kept, so asking for them up front would cost much

_capacity = 1 << 20  # what `borrow` offers to a read: more than any value so far, up to _KEPT


class LocalStore(Store):
    """The files below the directory `root`, which the first write creates.

    Links are followed to read and to list; removing a prefix removes the links, not what they point to.
    `exclusive` also keeps other processes out, where the file system has locks. `replace` is safe against
    other conditional writes, not against a plain `put` at the same moment.
    """

    def __init__(self, root: str | os.PathLike[str], *, read_only: bool = False) -> None:
        path = os.fspath(root)
        if not isinstance(path, str):
            raise TypeError(f"root must be a str or a path of str, not {path!r}; decode it with os.fsdecode")
        if not path or "\0" in path:
            raise ValueError(f"root {path!r}: a directory has a name, without NUL; use '.' for the current one")
        self._root = os.path.abspath(path)
        self._base = self._root.rstrip("/") + "/"
        self._real: str | None = None
        self.read_only = read_only

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return self._root

    # -- reading ----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """The whole value, or None if there is no such key."""
        if not is_key(key):
            check_key(key)
        try:
            fd = os.open(self._base + key, _READ)
        except OSError as exc:
            return self._no_value(exc, key)
        try:
            value = os.pread(fd, _GUESS, 0)  # a FIFO refuses pread, whatever it holds
            return value if 0 < len(value) < _GUESS else _read_all(fd)
        except OSError as exc:
            raise self._named(exc, key) from exc
        finally:
            os.close(fd)

    def borrow(self, key: str) -> Buffer | None:
        """Like `get`, into this thread's scratch buffer."""
        if not is_key(key):
            check_key(key)
        try:
            fd = os.open(self._base + key, _READ)
        except OSError as exc:
            return self._no_value(exc, key)
        try:
            into = buffer("file", _capacity)
            count = os.preadv(fd, [into], 0)
            return into[:count] if 0 < count < len(into) else _borrow_all(fd)
        except OSError as exc:
            raise self._named(exc, key) from exc
        finally:
            os.close(fd)

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key; see `Store.get_range`."""
        found = self.get_ranges(key, ((start, length),))
        return None if found is None else found[0]

    def get_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes] | None:
        """Several ranges of one value, or None if there is no such key; opens the file once."""
        fd = self._open(key)
        if fd is None:
            return None
        try:
            return [_read_range(fd, key, start, length) for start, length in spans]
        except OSError as exc:
            raise self._named(exc, key) from exc
        finally:
            os.close(fd)

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The value with its version, both from one descriptor; None if there is no such key."""
        fd = self._open(key)
        if fd is None:
            return None
        try:
            value = _read_all(fd)
            info = os.fstat(fd)
        except OSError as exc:
            raise self._named(exc, key) from exc
        finally:
            os.close(fd)
        # Two writes within one tick of the clock may reuse an inode, so the content has its say as well.
        token = f"{info.st_ino:x}-{info.st_mtime_ns:x}-{info.st_size:x}-{zlib.crc32(value):08x}"
        return value, token

    def size(self, key: str) -> int | None:
        """The value's length in bytes, or None if there is no such key."""
        check_key(key)
        try:
            return _regular(os.stat(self._base + key))
        except OSError as exc:
            return self._no_value(exc, key)

    def _open(self, key: str) -> int | None:
        check_key(key)
        try:
            return os.open(self._base + key, _READ)
        except OSError as exc:
            return self._no_value(exc, key)

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[str]:
        """All keys that start with the prefix, in no particular order."""
        return self._walk(check_prefix(prefix))

    def _walk(self, top: str) -> Iterator[str]:
        todo: list[tuple[str, tuple[str, ...]]] = [(top, ())]
        while todo:
            prefix, links = todo.pop()
            for entry in self._scan(prefix):
                if entry.is_dir():
                    seen = links
                    if entry.is_symlink():
                        real = os.path.realpath(entry.path)
                        if real in links or (os.path.realpath(self._base + prefix) + "/").startswith(real + "/"):
                            continue  # a circle
                        seen = (*links, real)
                    todo.append((f"{prefix}{entry.name}/", seen))
                elif entry.is_file():
                    yield prefix + entry.name

    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        """The keys directly below the prefix and the sub-prefixes, both whole and sorted."""
        keys, prefixes = [], []
        for entry in self._scan(check_prefix(prefix)):
            if entry.is_dir():
                prefixes.append(f"{prefix}{entry.name}/")
            elif entry.is_file():
                keys.append(prefix + entry.name)
        return sorted(keys), sorted(prefixes)

    def _scan(self, prefix: str) -> Sequence[os.DirEntry[str]]:
        """What the directory holds, without unfinished files; nothing if it is gone."""
        try:
            with os.scandir(self._base + prefix) as entries:
                return [entry for entry in entries if not entry.name.startswith(TEMPORARY)]
        except OSError as exc:
            return self._no_value(exc, prefix) or ()

    # -- writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""
        self._check_writable()
        self._write(key, value, os.replace)

    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        self._check_writable()
        try:
            self._write(key, value, os.link)
        except FileExistsError:
            return False
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
            with self.exclusive(key):
                if os.path.lexists(self._base + key):
                    return False
                self._write(key, value, os.replace)
        return True
