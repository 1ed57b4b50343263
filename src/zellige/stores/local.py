"""Values as files below one directory.

A value is read with open, one read and close: no stat and no "does it exist" before it. It is written to
a temporary file beside its place and renamed onto it, so that neither a reader nor a crash sees half of it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import ClassVar, Self, TypeVar

from zellige.scratch import buffer
from zellige.stores.base import (
    TEMPORARY,
    FileLock,
    KeyLock,
    KeyLocks,
    Store,
    check_key,
    check_prefix,
    digest,
    is_key,
    resolve_span,
)
from zellige.types import Buffer, Span

T = TypeVar("T")

# Without O_NONBLOCK the opening of a FIFO waits for a writer.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

# A name that the file system cannot hold is not there either.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_NOT_A_FILE = frozenset({errno.ESPIPE, errno.ENXIO})  # from a FIFO, and from a socket
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})

_TRIES = 32  # how often a write makes its directory while somebody else removes it
_GUESS = 64 << 10  # `get` reads this much before it asks for the size
_CHECKED = 1 << 20  # a longer range is compared with the size before memory is taken for it
_FAR = 1 << 62  # so is one that starts where no file reaches
_KEPT = 32 << 20  # scratch buffers above this are not kept, so offering them to every read would cost much

_AT_ONCE = 512  # buffers for one call of writev; the system takes at most 1024

_SESSION = os.urandom(6).hex()  # other machines may have a process of the same number
_numbers = count()

_capacity = 1 << 20  # what `borrow` offers to a read: more than any value so far, up to _KEPT


class LocalStore(Store):
    """The files below the directory `root`, which the first write creates.

    Links are followed to read and to list; removing a prefix removes the links, not what they point to.
    `exclusive` also keeps other processes out, where the file system has locks. `replace` is safe against
    other conditional writes, not against a plain `put` at the same moment.
    """

    near: ClassVar[bool] = True

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
        return self._with_file(key, _read)

    def borrow(self, key: str) -> Buffer | None:
        """Like `get`, into this thread's scratch buffer."""
        # The body of `_with_file` once more: this is called for every chunk.
        if not is_key(key):
            check_key(key)
        try:
            fd = os.open(self._base + key, _READ)
        except OSError as exc:
            if exc.errno in _MISSING:
                return None
            raise self._named(exc, key) from exc
        try:
            into = buffer("file", _capacity)
            count = os.preadv(fd, [into], 0)
            return into[:count] if 0 < count < len(into) else _borrow_all(fd)
        except OSError as exc:
            raise self._named(exc, key) from exc
        finally:
            os.close(fd)

    def borrow_many(self, keys: Sequence[str]) -> list[Buffer | None]:
        """Several values one after the other in this thread's scratch buffer."""
        # With as little as possible between the calls, which let other threads run: each change of threads costs.
        base, rest = self._base, buffer("file", _capacity)
        found: list[Buffer | None] = []
        for key in keys:
            if not is_key(key):
                check_key(key)
            try:
                fd = os.open(base + key, _READ)
                try:
                    count = os.preadv(fd, [rest], 0)
                    if 0 < count < len(rest):
                        found.append(rest[:count])
                        rest = rest[count + -count % 64 :]
                    else:
                        found.append(_read_all(fd))
                finally:
                    os.close(fd)
            except OSError as exc:
                if exc.errno not in _MISSING:
                    raise self._named(exc, key) from exc
                found.append(None)
        return found

    def read_pieces(self, key: str, size: int, use: Callable[[Iterator[Buffer]], None]) -> bool:
        """Hand over the value in pieces, all read from one descriptor; see `Store.read_pieces`."""

        def read(fd: int) -> bool:
            use(_pieces(fd, size))
            return True

        return self._with_file(key, read) is not None

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key; see `Store.get_range`."""
        return self._with_file(key, lambda fd: _read_range(fd, key, start, length))

    def get_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes] | None:
        """Several ranges of one value, or None if there is no such key; opens the file once."""
        return self._with_file(key, lambda fd: [_read_range(fd, key, *span) for span in spans])

    def get_tagged(self, key: str, spans: Sequence[Span]) -> tuple[Sequence[bytes], object] | None:
        """Several ranges with the file's identity and time of change as the tag."""
        return self._with_file(key, lambda fd: ([_read_range(fd, key, *span) for span in spans], _tag(fd)))

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The value with its version, both from one descriptor; None if there is no such key."""
        return self._with_file(key, _read_versioned)

    def size(self, key: str) -> int | None:
        """The value's length in bytes, or None if there is no such key."""
        check_key(key)
        try:
            return _regular(os.stat(self._base + key))
        except OSError as exc:
            if exc.errno in _MISSING:
                return None
            raise self._named(exc, key) from exc

    def _with_file(self, key: str, read: Callable[[int], T]) -> T | None:
        """What `read` makes of the file's descriptor, or None if there is no such key."""
        if not is_key(key):
            check_key(key)
        try:
            fd = os.open(self._base + key, _READ)
        except OSError as exc:
            if exc.errno in _MISSING:
                return None
            raise self._named(exc, key) from exc
        try:
            return read(fd)
        except OSError as exc:
            raise self._named(exc, key) from exc
        finally:
            os.close(fd)

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
                    target = os.path.realpath(entry.path) if entry.is_symlink() else ""
                    if target not in links and not _encloses(target, entry.path):
                        todo.append((f"{prefix}{entry.name}/", (*links, target) if target else links))
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
            if exc.errno in _MISSING:
                return ()
            raise self._named(exc, prefix) from exc

    # -- writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""
        if self.read_only:
            self._check_writable()
        self._write(key, (value,), _rename)

    def put_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store a value given in parts, all or nothing, without joining them in memory."""
        self._check_writable()
        self._write(key, parts, _rename)

    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        self._check_writable()
        try:
            return self._write(key, [value], _link)
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
        with self.exclusive(key):
            return not os.path.lexists(self._base + key) and self._write(key, [value], _rename)

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""
        self._check_writable()
        if not self.exists(key):
            return False  # without the directories that the lock would need
        with self.exclusive(key):
            found = self.get_versioned(key)
            return found is not None and found[1] == version and self._write(key, [value], _rename)

    def _write(self, key: str, parts: Sequence[Buffer], place: Callable[[str, str], bool]) -> bool:
        if not is_key(key):
            check_key(key)
        path = self._base + key
        try:
            try:
                return _write(path[: path.rindex("/") + 1], path, parts, place)
            except FileNotFoundError:
                return _in_folder(path, lambda folder: _write(folder, path, parts, place))
        except OSError as exc:
            raise self._named(exc, key) from exc

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none. Its directory stays."""
        self._check_writable()
        check_key(key)
        try:
            os.unlink(self._base + key)
        except OSError as exc:
            if exc.errno not in _MISSING:
                raise self._named(exc, key) from exc

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix, unfinished files and directories as well.

        The root itself stays. A key that somebody writes at the same moment may stay, too.
        """
        self._check_writable()
        top = self._base + check_prefix(prefix)
        try:
            _remove_tree(top.rstrip("/") or "/", keep_top=not prefix)
        except OSError as exc:
            raise self._named(exc, prefix) from exc

    def rename_prefix(self, source: str, dest: str) -> bool:
        """Move a directory; False if the file system cannot do that in one step."""
        self._check_writable()
        old, new = self._base + check_prefix(source), self._base + check_prefix(dest)
        try:
            _in_folder(new.rstrip("/"), lambda _: os.rename(old, new))
        except OSError as exc:
            if exc.errno in (errno.EXDEV, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise self._named(exc, source) from exc
        return True

    # -- locking and views ------------------------------------------------------------------------

    @property
    def identity(self) -> tuple[str, str]:
        """The directory, with links resolved when first asked for."""
        if self._real is None:
            self._real = os.path.realpath(self._root)
        return ("local", self._real)

    @contextmanager
    def exclusive(self, key: str) -> Iterator[None]:
        """Keep other threads and processes out while reading, changing and writing back one key."""
        with self.exclusive_here(key) as depth:
            if depth > 1 or self.read_only:
                yield
                return
            name = f"{TEMPORARY}lock-{digest(os.fsencode(key.rpartition('/')[2]))}"
            try:
                lock = _in_folder(f"{self.identity[1]}/{key}", lambda folder: FileLock(folder + name))
            except OSError as exc:
                raise self._named(exc, key) from exc
            try:
                yield
            finally:
                lock.release()

    def exclusive_here(self, key: str) -> KeyLock:
        """Keep other threads of this process out."""
        # The whole path is the name: a store of a directory further up or down may mean the same file.
        return KeyLock(f"{self.identity[1]}/{check_key(key)}")

    def exclusive_here_many(self, keys: Sequence[str]) -> KeyLocks:
        """`exclusive_here` for several keys at once."""
        base = self.identity[1] + "/"
        return KeyLocks([base + key for key in keys])

    def as_read_only(self) -> Self:
        """The same directory through a store that refuses to write."""
        return type(self)(self._root, read_only=True)

    def __getstate__(self) -> tuple[str, bool]:
        return self._root, self.read_only

    def __setstate__(self, state: tuple[str, bool]) -> None:
        LocalStore.__init__(self, state[0], read_only=state[1])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root!r}{', read_only=True' if self.read_only else ''})"

    def _named(self, exc: OSError, key: str) -> OSError:
        """The same error, telling which key it was about; OSError picks the class by the number."""
        reason = "not a regular file" if exc.errno in _NOT_A_FILE else exc.strerror
        return OSError(exc.errno, f"key {key!r}: {reason}", self._base + key)


# -- reading one file -----------------------------------------------------------------------------


def _regular(info: os.stat_result) -> int:
    """The size of a regular file; other things are not values."""
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    number = errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.ESPIPE
    raise OSError(number, os.strerror(number))


def _read(fd: int) -> bytes:
    value = os.pread(fd, _GUESS, 0)  # a FIFO refuses pread, whatever it holds
    return value if 0 < len(value) < _GUESS else _read_all(fd)


def _read_all(fd: int) -> bytes:
    size = _regular(os.fstat(fd))
    parts: list[bytes] = []
    at = 0
    while part := os.pread(fd, max(size + 1 - at, _GUESS), at):
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _tag(fd: int) -> tuple[int, int, int]:
    info = os.fstat(fd)
    return info.st_ino, info.st_mtime_ns, info.st_size


def _read_versioned(fd: int) -> tuple[bytes, str]:
    info = os.fstat(fd)
    value = _read_all(fd)
    # Two writes within one tick of the clock may give the same inode, so the content has its say as well.
    return value, f"{info.st_ino:x}-{info.st_mtime_ns:x}-{info.st_size:x}-{digest(value)}"


def _borrow_all(fd: int) -> memoryview:
    """The value in a scratch buffer that is large enough; later calls offer as much from the start."""
    global _capacity
    size = _regular(os.fstat(fd))
    while True:
        into = buffer("file", 1 << size.bit_length() if size < _KEPT else size + 1)
        count = 0
        while part := os.preadv(fd, [into[count:]], count):
            count += part
        if count < len(into):
            break
        size = len(into)
    if len(into) <= _KEPT:
        _capacity = max(_capacity, len(into))
    return into[:count]


def _pieces(fd: int, size: int) -> Iterator[Buffer]:
    at, filled = 0, size
    while filled == size:
        into, filled = buffer("file", size), 0
        while filled < size and (count := os.preadv(fd, [into[filled:]], at + filled)):
            filled += count
        if filled:
            yield into[:filled]
        at += filled


def _read_range(fd: int, key: str, start: int, length: int | None) -> bytes:
    begin, count = start, length
    if count is None or not (0 < count <= _CHECKED and 0 <= begin <= _FAR):
        begin, count = resolve_span(key, start, length, _regular(os.fstat(fd)))
    data = os.pread(fd, count, begin)
    while len(data) < count:
        more = os.pread(fd, count - len(data), begin + len(data))
        if not more:
            resolve_span(key, start, length, _regular(os.fstat(fd)))
        data += more
    return data


# -- listing, writing and removing files ----------------------------------------------------------


def _encloses(target: str, path: str) -> bool:
    """Whether a link at this path leads back to where it lies, in a circle."""
    return bool(target) and (os.path.realpath(os.path.dirname(path)) + "/").startswith(target.rstrip("/") + "/")


def _in_folder(path: str, action: Callable[[str], T]) -> T:
    """Do it in the file's directory, made only if missing; again, because somebody may be removing it."""
    folder = path[: path.rindex("/") + 1]
    for _ in range(_TRIES):
        try:
            return action(folder)
        except FileNotFoundError:
            with suppress(FileNotFoundError, FileExistsError):
                os.makedirs(folder, exist_ok=True)
    return action(folder)


def _write(folder: str, path: str, parts: Sequence[Buffer], place: Callable[[str, str], bool]) -> bool:
    """Write a temporary file and put it into its place; whatever happens, it does not stay behind."""
    temporary = f"{folder}{TEMPORARY}{os.getpid()}-{_SESSION}-{next(_numbers)}"
    fd = os.open(temporary, _WRITE, 0o666)
    try:
        try:
            if len(parts) == 1:
                _write_one(fd, parts[0])
            else:
                for first in range(0, len(parts), _AT_ONCE):
                    _write_all(fd, parts[first : first + _AT_ONCE])
        finally:
            os.close(fd)
        return place(temporary, path)
    except BaseException:
        _unlink(temporary)
        raise


def _write_one(fd: int, part: Buffer) -> None:
    written = os.write(fd, part)
    while written < len(part):
        written += os.write(fd, memoryview(part)[written:])


def _write_all(fd: int, parts: Sequence[Buffer]) -> None:
    """Write all parts, in one call if the system takes them whole."""
    written = os.writev(fd, parts)
    total = sum(memoryview(part).nbytes for part in parts)
    while written < total:
        written += os.write(fd, memoryview(b"".join(parts))[written:])


def _rename(temporary: str, path: str) -> bool:
    os.replace(temporary, path)
    return True


def _link(temporary: str, path: str) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        _unlink(temporary)
    return True


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _remove_tree(top: str, *, keep_top: bool) -> None:
    if not keep_top and os.path.islink(top) and os.path.isdir(top):
        _unlink(top)
    folders = [top]
    for folder in folders:  # grows on the way
        for path, is_folder in _content(folder):
            if is_folder:
                folders.append(path)
            else:
                _unlink(path)
    for folder in reversed(folders[1:] if keep_top else folders):
        try:
            os.rmdir(folder)
        except OSError as exc:
            # Gone already, a file from the start, or somebody has written into it meanwhile.
            if exc.errno not in _MISSING | _NOT_EMPTY:
                raise


def _content(folder: str) -> list[tuple[str, bool]]:
    """The paths in a directory, and whether each is a directory itself; nothing if it is gone."""
    try:
        with os.scandir(folder) as entries:
            return [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError as exc:
        if exc.errno in _MISSING:
            return []
        raise
