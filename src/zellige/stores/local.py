"""Values as files below one directory.

A value is read with open, one read and close: no stat and no "does it exist" before it. It is written to
a temporary file beside its place and renamed onto it, so that neither a reader nor a crash sees half of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from weakref import ref

from zellige.errors import UnsafeLinkError
from zellige.scratch import buffer
from zellige.stores import files
from zellige.stores.base import (
    DOCUMENTS,
    MISSING,
    TEMPORARY,
    Joined,
    KeyLock,
    Obstacle,
    Store,
    check_key,
    check_prefix,
    is_key,
)
from zellige.types import Buffer, Durability, Encoded, Span, Splice, Use

if TYPE_CHECKING:
    from zellige.stores.file_locks import FileLock

T = TypeVar("T")

_NOT_A_FILE = frozenset({errno.ESPIPE, errno.ENXIO})  # from a FIFO, and from a socket
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})

_KNOWN = 1 << 16  # directories that are remembered as lying within the root

_ALWAYS = DOCUMENTS | {"__zellige_unfinished", "__zellige_commit"}
"""What always survives a power cut: a chunk can be written again, a lost document loses the array."""


class LocalStore(Store):
    """The files below the directory `root`, which the first write creates.

    `durability` says what chunks survive: "process", a crash of the process, or "power", a power cut as well, for the
    price of an fsync for each file and directory. Documents always survive both. `links` says which symbolic links
    are followed: those that stay below the root, or "anywhere". Removing a prefix removes links, not what they lead
    to. `exclusive` also keeps other processes out, where the file system has locks. `replace` is safe against other
    conditional writes, not against a plain `put` at the same moment.
    """

    in_pieces = True
    near = True
    renames = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        read_only: bool = False,
        durability: Durability = "process",
        links: Literal["inside", "anywhere"] = "inside",
    ) -> None:
        path = os.fspath(root)
        if not isinstance(path, str):
            raise TypeError(f"root must be a str or a path of str, not {path!r}; decode it with os.fsdecode")
        if not path or "\0" in path:
            raise ValueError(f"root {path!r}: a directory has a name, without NUL; use '.' for the current one")
        if durability not in ("process", "power"):
            raise ValueError(f"durability={durability!r} must be 'process' or 'power'")
        if links not in ("inside", "anywhere"):
            raise ValueError(f"links={links!r} must be 'inside' or 'anywhere'")
        self._root = os.path.abspath(path)
        self._base = self._root.rstrip("/") + "/"
        self._real: str | None = None
        self.read_only, self.durability, self._links = read_only, durability, links
        self._inside: set[str] = set()
        """Directories, as prefixes of keys, that were found to lie within the root."""

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return self._root

    @property
    def local_base(self) -> str | None:  # type: ignore[override]
        """The directory, with links resolved; None for a subclass, which may do something on the way."""
        return self.identity[1].rstrip("/") + "/" if type(self) is LocalStore else None

    @property
    def follows_links(self) -> bool:  # type: ignore[override]
        """Whether links to anywhere are followed."""
        return self._links == "anywhere"

    # -- reading ----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """The whole value, or None if there is no such key."""
        return self._with_file(key, files.read)

    def borrow(self, key: str) -> Buffer | None:
        """Like `get`, into this thread's scratch buffer."""
        # The body of `_with_file` once more: this is called for every chunk.
        if not is_key(key):
            check_key(key)
        if key[: key.rfind("/") + 1] not in self._inside:
            self._check_place(key)
        try:
            fd = os.open(self._base + key, files.READ)
        except OSError as exc:
            fd = self._after(exc, key)
            if fd < 0:
                return None
        try:
            try:
                into = buffer("file", files.capacity)
                count = os.preadv(fd, [into], 0)
                return into[:count] if 0 < count < len(into) else files.borrow_all(fd)
            finally:
                os.close(fd)
        except OSError as exc:
            raise self._named(exc, key) from exc

    def borrow_many(self, keys: Sequence[str], into: memoryview | None = None) -> list[Buffer | None]:
        """Several values one after the other in this thread's scratch buffer; see `Store.borrow_many`."""
        self._check_all(keys)
        # With as little as possible between the calls, which let other threads run: each change of threads costs.
        rest = buffer("file", files.capacity) if into is None else into
        found: list[Buffer | None] = []
        for key, path in zip(keys, [self._base + key for key in keys], strict=True):
            try:
                fd = os.open(path, files.READ)
            except OSError as exc:
                fd = self._after(exc, key)
                if fd < 0:
                    found.append(None)
                    continue
            try:
                try:
                    count = os.preadv(fd, [rest], 0)
                    if 0 < count < len(rest):
                        found.append(rest[:count])
                        rest = rest[count:]
                    else:
                        found.append(files.read_all(fd))
                finally:
                    os.close(fd)
            except OSError as exc:
                raise self._named(exc, key) from exc
        return found

    def _check_all(self, keys: Sequence[str]) -> None:
        """Refuse what is no key, and what lies in a directory that a link puts elsewhere."""
        if not is_key("/".join(keys)):  # if all of them are keys that is one, too
            for key in keys:
                check_key(key)
        if not self._inside.issuperset([key[: key.rfind("/") + 1] for key in keys]):
            for key in keys:
                self._check_place(key)

    def read_pieces(self, keys: Sequence[str], sizes: Sequence[int], rooms: Sequence[memoryview], use: Use) -> bool:
        """Read values piece by piece, each from one descriptor; see `Store.read_pieces`."""
        from zellige.stores.pieces import read_pieces  # only for those who read much

        self._check_all(keys)
        return read_pieces(self._base, self._after, self._named, keys, sizes, rooms, use)

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key; see `Store.get_range`."""
        return self._with_file(key, lambda fd: files.read_range(fd, key, start, length))

    def borrow_range(self, key: str, start: int, length: int) -> Buffer | None:
        """Like `get_range`, into this thread's scratch buffer if it is long."""
        read = files.read_range if length < files.LONG else files.borrow_range
        return self._with_file(key, lambda fd: read(fd, key, start, length))

    def get_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes] | None:
        """Several ranges of one value, or None if there is no such key; opens the file once."""
        return self._with_file(key, lambda fd: [files.read_range(fd, key, *span) for span in spans])

    def get_tagged(self, key: str, spans: Sequence[Span]) -> tuple[Sequence[bytes], object] | None:
        """Several ranges with the file's identity and time of change as the tag."""
        return self._with_file(key, lambda fd: ([files.read_range(fd, key, *span) for span in spans], files.tag(fd)))

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The value with its version, both from one descriptor; None if there is no such key."""
        return self._with_file(key, files.read_versioned)

    def size(self, key: str) -> int | None:
        """The value's length in bytes, or None if there is no such key."""
        return self._with_file(key, lambda fd: files.regular(os.fstat(fd)))

    def _with_file(self, key: str, read: Callable[[int], T]) -> T | None:
        """What `read` makes of the file's descriptor, or None if there is no such key."""
        if not is_key(key):
            check_key(key)
        if key[: key.rfind("/") + 1] not in self._inside:
            self._check_place(key)
        try:
            fd = os.open(self._base + key, files.READ)
        except OSError as exc:
            fd = self._after(exc, key)
            if fd < 0:
                return None
        try:
            try:
                return read(fd)
            finally:
                os.close(fd)
        except OSError as exc:
            raise self._named(exc, key) from exc

    # -- staying within the root ------------------------------------------------------------------

    def _after(self, error: OSError, key: str) -> int:
        """After a key could not be opened: a descriptor of what a link leads to, or -1 if it is missing."""
        if error.errno in MISSING:
            return -1
        if error.errno != errno.ELOOP:
            raise self._named(error, key) from error
        target = self._target(key)
        try:
            return os.open(target, files.READ)
        except OSError as exc:
            if exc.errno in MISSING:
                raise self._leads_nowhere(key, target) from exc
            raise self._named(exc, key) from exc

    def _check_folder(self, folder: str) -> None:
        """Refuse a directory, given as a prefix of keys, that a link puts elsewhere or nowhere; remember the others."""
        path = folder.rstrip("/")
        above = path[: path.rfind("/") + 1]
        # In one that was looked at only a link leads elsewhere.
        if path and ((above and above not in self._inside) or os.path.islink(self._base + path)):
            self._check_links(path)
        if len(self._inside) >= _KNOWN:
            self._inside.clear()
        self._inside.add(folder)

    def _check_links(self, path: str) -> None:
        """Refuse a path in which a link leads out of the root, or nowhere: what is below it is not merely missing."""
        target = self._target(path)
        if target == f"{self.identity[1].rstrip('/')}/{path}":
            return  # without a link
        for end in [*(at for at, letter in enumerate(path) if letter == "/"), len(path)]:
            try:
                os.stat(self._base + path[:end])
            except OSError as exc:
                if exc.errno in MISSING and os.path.islink(self._base + path[:end]):
                    raise self._leads_nowhere(path[:end], target) from exc
                return  # opening it says what is wrong

    def _leads_nowhere(self, key: str, target: str) -> UnsafeLinkError:
        return UnsafeLinkError(
            f"key {key!r}: a link in {self!r} leads nowhere, to {target!r}; restore what it leads to, or remove the "
            "link if there is to be nothing",
            key=key,
        )

    def _target(self, key: str) -> str:
        """Where a key really is."""
        path = os.path.realpath(self._base + key)
        if self._links == "inside" and not f"{path}/".startswith(self.identity[1].rstrip("/") + "/"):
            raise UnsafeLinkError(
                f"key {key!r}: a link leads out of {self!r}, to {path!r}; "
                "to follow such links, open LocalStore(…, links='anywhere')",
                key=key,
            )
        return path

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
                    if target not in links and not files.encloses(target, entry.path):
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

    def outer(self) -> Self | None:
        """The directory above, to be read only; None if there is none."""
        above = os.path.dirname(self._root)
        return None if above == self._root else type(self)(above, read_only=True, links=self._links)

    def obstacles(self, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
        """Directories, files that may not be read, links that lead nowhere or out of the root, and what is no file."""
        todo = [check_prefix(prefix)]
        while todo:
            folder = todo.pop()
            within = {entry.name: entry for entry in self._scan(folder)}
            for name in self._names(folder):
                key, entry = folder + name, within.get(name)
                if entry is None:
                    yield key, self._behind(key)
                elif entry.is_dir():
                    yield key, Obstacle.DIRECTORY
                    todo += [] if entry.is_symlink() else [key + "/"]
                elif not entry.is_file():
                    yield key, Obstacle.SPECIAL
                elif not os.access(self._base + key, os.R_OK):
                    yield key, Obstacle.UNREADABLE

    def _behind(self, key: str) -> Obstacle:
        """What a link is that is not followed."""
        if not os.path.exists(self._base + key):
            return Obstacle.NOWHERE
        return Obstacle.OUTER_DIRECTORY if os.path.isdir(self._base + key) else Obstacle.OUTER_FILE

    def _names(self, prefix: str) -> Sequence[str]:
        """All names in a directory but those of temporary files; none if it is gone."""
        try:
            return [name for name in os.listdir(self._base + prefix) if not name.startswith(TEMPORARY)]
        except OSError as exc:
            if exc.errno in MISSING:
                return []
            raise self._named(exc, prefix) from exc

    def _scan(self, prefix: str) -> Sequence[os.DirEntry[str]]:
        """What the directory holds and is within the root; nothing if it is gone. What dead writers left is removed."""
        folder = self._base + prefix
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except OSError as exc:
            if exc.errno in MISSING:
                if prefix:
                    self._check_links(prefix.rstrip("/"))
                return ()
            raise self._named(exc, prefix) from exc
        if prefix not in self._inside:
            self._check_folder(prefix)
        kept = []
        for entry in found:
            if entry.name.startswith(TEMPORARY):
                if not self.read_only:
                    files.clean(folder, entry.name)
            elif not entry.is_symlink() or self._stays(prefix + entry.name):
                kept.append(entry)
        return kept

    def _stays(self, key: str) -> bool:
        """Whether a link leads to something below the root; others are no keys."""
        with suppress(UnsafeLinkError, OSError):  # out of it, in a circle, or nowhere
            os.stat(self._target(key))
            return True
        return False

    def clean(self) -> int:
        """Remove the unfinished files of writers that are dead; returns how many there were.

        Every listing does the same on its way.
        """
        self._check_writable()
        found = ((folder + "/", name) for folder, _, names in os.walk(self._root) for name in names)
        return sum(files.clean(folder, name) for folder, name in found if name.startswith(TEMPORARY))

    # -- writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""
        if self.read_only:
            self._check_writable()
        self._write(key, (value,), files.rename)

    def put_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store a value given in parts, all or nothing, without joining them in memory."""
        self._check_writable()
        self._write(key, parts, files.rename)

    def put_many(self, keys: Sequence[str], values: Sequence[Buffer], stored: MutableSequence[str]) -> None:
        """Store several small values, each all or nothing; see `Store.put_many`."""
        self._check_writable()
        self._check_all(keys)
        top = self.identity[1]
        names = [f"{top}/{key}" for key in keys]
        every = KeyLock.for_many()
        with every:
            if keys and not any(map(self._is_durable, keys)) and every.claims(names):
                try:
                    files.write_many(self._base, keys, values, stored)
                except OSError as exc:
                    raise self._named(exc, keys[len(stored)]) from exc
                return
        super().put_many(keys, values, stored)

    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        self._check_writable()
        try:
            return self._write(key, [value], files.link)
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
        with self.exclusive(key):
            return not os.path.lexists(self._base + key) and self._write(key, [value], files.rename)

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""
        self._check_writable()
        if not self.exists(key):
            return False  # without the directories that the lock would need
        with self.exclusive(key):
            found = self.get_versioned(key)
            return found is not None and found[1] == version and self._write(key, [value], files.rename)

    def _write(self, key: str, parts: Sequence[Buffer], place: files.Place, held: FileLock | None = None) -> bool:
        if not is_key(key):
            check_key(key)
        folder, path = key[: key.rfind("/") + 1], self._base + key
        if folder not in self._inside:
            self._check_folder(folder)
        sync = self._is_durable(key)
        try:
            try:
                done = files.write(self._base + folder, path, parts, place, sync=sync, held=held)
            except FileNotFoundError:
                done = files.in_folder(path, lambda at: files.write(at, path, parts, place, sync=sync))
            if sync:
                files.sync_folders([*files.unsynchronised(self._base + folder), self._base + folder])
        except OSError as exc:
            raise self._named(exc, key) from exc
        return done

    def _is_durable(self, key: str) -> bool:
        return self.durability == "power" or key[key.rfind("/") + 1 :] in _ALWAYS

    def batch(self) -> AbstractContextManager[Joined]:
        """Around many writes of one operation: each directory is made durable once, at the end."""
        return files.batch(self._base) if self.durability == "power" else super().batch()

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none. Its directory stays."""
        self._check_writable()
        check_key(key)
        try:
            self._check_place(key)
            os.unlink(self._base + key)
            if self._is_durable(key):
                files.sync_folders([os.path.dirname(self._base + key)])
        except OSError as exc:
            if exc.errno not in MISSING:
                raise self._named(exc, key) from exc

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove several keys; a directory below the prefix that is a link goes itself, not what it leads to."""
        self._check_writable()
        known, changed = dict[str, bool](), set[str]()
        for key in keys:
            check_key(key)
            folder = key[: key.rfind("/") + 1]
            try:
                self._check_place(key)
                if not files.unlinked(self._base, folder, check_prefix(prefix), known):
                    files.unlink(self._base + key)
            except OSError as exc:
                if exc.errno not in MISSING:
                    raise self._named(exc, key) from exc
            if self._is_durable(key) and not known.get(folder):
                changed.add(self._base + folder)
        files.sync_those_left(changed)

    def detach(self, prefix: str) -> bool:
        """Remove a link to a directory, which stays; False, and nothing done, if it is none."""
        self._check_writable()
        with self._naming(prefix):
            self._check_place(check_prefix(prefix).rstrip("/"))
            return bool(prefix) and files.remove_link(self._base + prefix.rstrip("/"))

    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        """Remove directories that hold nothing; links and the root itself stay."""
        self._check_writable()
        with self._naming(prefix):
            self._check_place(check_prefix(prefix).rstrip("/"))
            files.prune(self._base + prefix, lambda folder: bool(prefix or folder) and owned(folder))

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix, unfinished files and directories as well.

        The root itself stays. A key that somebody writes at the same moment may stay, too.
        """
        self._check_writable()
        top = self._base + check_prefix(prefix)
        with self._naming(prefix):
            self._check_place(prefix.rstrip("/"))
            files.remove_tree(top.rstrip("/") or "/", keep_top=not prefix)
            if self.durability == "power":
                files.sync_folders([os.path.dirname(top.rstrip("/"))])

    def _check_place(self, key: str) -> None:
        """Refuse to change what lies in a directory that a link puts elsewhere."""
        folder = key[: key.rfind("/") + 1]
        if folder not in self._inside:
            self._check_folder(folder)

    def rename_prefix(self, source: str, dest: str) -> bool:
        """Move a directory; False if the file system cannot do that in one step."""
        self._check_writable()
        old, new = self._base + check_prefix(source), self._base + check_prefix(dest)
        try:
            self._check_place(source.rstrip("/"))
            self._check_place(dest.rstrip("/"))
            files.in_folder(new.rstrip("/"), lambda _: os.rename(old, new))
        except OSError as exc:
            if exc.errno not in (errno.EXDEV, errno.ENOTEMPTY, errno.EEXIST):
                raise self._named(exc, source) from exc
            return False
        return True

    # -- locking and views ------------------------------------------------------------------------

    @property
    def identity(self) -> tuple[str, str]:
        """The directory, with links resolved when first asked for."""
        if self._real is None:
            self._real = os.path.realpath(self._root)
        return ("local", self._real)

    def update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> None:
        """Read a value, change it and write it back, so that no other change is lost; see `Store.update`."""
        from zellige.stores.splicing import write_back  # only for those who change parts

        self._alone(key, lambda held: write_back(self, key, change(self.borrow(key)), held))

    def splice(self, key: str, change: Splice) -> None:
        """The same for a change that keeps most of a value, which the system copies; see `Store.splice`."""
        from zellige.stores.splicing import splice_file  # only for those who change shards

        self._alone(key, lambda held: splice_file(self, key, change, held))

    def _alone(self, key: str, action: Callable[[FileLock | None], None]) -> None:
        self._check_writable()
        # The body of `exclusive` once more, without its functions: see `KeyLock`.
        lock = self.exclusive_here(key)
        with lock, self._lock_file(lock, key) as held:
            try:
                action(held)
            finally:
                self._remove(held, key)

    @contextmanager
    def exclusive(self, key: str) -> Iterator[None]:
        """Keep other threads and processes out while reading, changing and writing back one key."""
        lock = self.exclusive_here(key)
        with lock, self._lock_file(lock, key) as held:
            try:
                yield
            finally:
                self._remove(held, key)

    def _lock_file(self, lock: KeyLock, key: str) -> AbstractContextManager[FileLock | None]:
        """The lock against other processes, for who has that of this process; none if this thread has it already."""
        held = None if lock.held is None else lock.held()
        if self.read_only or (held is not None and not held.closed):
            return nullcontext()
        from zellige.stores.file_locks import FileLock  # only for those who change parts of values

        folder = key[: key.rfind("/") + 1]
        if folder not in self._inside:
            self._check_folder(folder)
        try:
            file = FileLock.taken(self._base + folder + files.lock_name(key))
        except OSError as exc:
            raise self._named(exc, key) from exc
        lock.held = ref(file)
        return file

    def _remove(self, held: FileLock | None, key: str) -> None:
        try:
            if held is not None and not held.is_value:
                held.remove()
        except OSError as exc:
            raise self._named(exc, key) from exc

    def exclusive_here(self, key: str) -> KeyLock:
        """Keep other threads of this process out."""
        # The whole path is the name: a store of a directory further up or down may mean the same file.
        return KeyLock(f"{self.identity[1]}/{check_key(key)}")

    def as_read_only(self) -> Self:
        """The same directory through a store that refuses to write."""
        return type(self)(self._root, read_only=True, durability=self.durability, links=self._links)

    def with_durability(self, durability: Durability) -> Self:
        """The same directory through a store whose chunks survive this."""
        return self if durability == self.durability else type(self)(**self.__getstate__() | {"durability": durability})

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self._root, "read_only": self.read_only, "durability": self.durability, "links": self._links}

    def __setstate__(self, state: dict[str, Any]) -> None:
        LocalStore.__init__(self, **state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root!r}{', read_only=True' if self.read_only else ''})"

    @contextmanager
    def _naming(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise self._named(exc, key) from exc

    def _named(self, exc: OSError, key: str) -> OSError:
        """The same error, telling which key it was about; OSError picks the class by the number."""
        reason = "not a regular file" if exc.errno in _NOT_A_FILE else exc.strerror
        if exc.errno == errno.ENOTDIR:
            reason = "a file is where a directory is needed; remove it, or use another place"
        return OSError(exc.errno, f"key {key!r}: {reason}", self._base + key)
