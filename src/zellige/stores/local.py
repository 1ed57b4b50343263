"""Values as files below one directory.

A value is read with open, stat, one read and close, without a check for existence before. It is written to a temporary
file beside its place and renamed onto it, so that neither a reader nor a crash sees half of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from stat import S_ISLNK
from typing import Any, Literal, NamedTuple, Self, TypeVar
from weakref import ref

from zellige import kernel
from zellige.errors import UnsafeLinkError
from zellige.stores import files
from zellige.stores.abilities import Batches, Folders, Obstacle
from zellige.stores.base import (
    ABSENT,
    DOCUMENTS,
    TEMPORARY,
    Listing,
    Missing,
    Store,
    Tag,
    Traits,
    Value,
    check_key,
    check_keys,
    check_prefix,
    is_key,
    parts_of,
)
from zellige.stores.locks import FileLock, KeyLock
from zellige.types import Durability, Encoded, Kept, Span, Splice

T = TypeVar("T")

_NOT_A_FILE = frozenset({errno.ESPIPE, errno.ENXIO})  # from a FIFO, and from a socket
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})

_ALWAYS = DOCUMENTS | {"__zellige_unfinished", "__zellige_commit"}
"""Keys that always survive a power cut: chunks can be written again, without its metadata an array is lost."""


class LocalStore(Store, Folders, Batches):
    """The files below a directory, which the first write creates.

    Metadata always survives a power cut. `lock` also keeps other processes out, where the file system has locks. A
    conditional write is safe against other conditional writes, not against a plain one at the same moment. Removing a
    prefix removes links, not what they lead to.

    Parameters
    ----------
    root
        The directory, as text or as a path object.
    read_only
        Whether to refuse to write.
    durability
        What chunks survive: "process", a crash of the process, or "power", a power cut as well, at the price of an
        fsync for each file and directory.
    links
        Which symbolic links are followed: those that stay "inside" the root, or those to "anywhere".

    """

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
        # One store is one directory: if a link in the path is changed later, the store stays where it was opened.
        self._real = files.resolved(self._root)
        self._base = self._real.rstrip("/") + "/"
        self._links = links
        self.traits = Traits(
            read_only=read_only,
            durability=durability,
            # The kernel reads and writes these files by itself; a subclass may do something on the way.
            local_path=self._base if type(self) is LocalStore else None,
            follow_links=links == "anywhere",
        )

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return self._root

    # -- reading ----------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read a whole value, or ranges of it, from one descriptor; see `Store.read`."""
        if spans is None and kernel.native is not None:
            if not is_key(key):
                check_key(key)
            found = kernel.native.read_file(self._base + key)
            if found:
                value, inode, mtime = found
                return Value((value,), len(value), files.FileTag((inode, mtime, len(value)), value))
            if found is False:
                return None
        opened: list[int] = []
        try:
            try:
                self._open(key, opened)
                return files.read(opened[0], key, spans) if opened else None
            finally:
                for fd in opened:
                    os.close(fd)
        except OSError as exc:
            raise self._named(exc, key) from exc

    def _open(self, key: str, opened: list[int]) -> None:
        """Append the descriptor of the key's file, or of what a link there leads to; nothing if it is missing.

        `os.open` is called by `extend`, so that no interrupt comes before the descriptor is in the list to be closed.
        """
        if not is_key(key):
            check_key(key)
        self._check_folder(key[: key.rfind("/") + 1])
        path = self._base + key
        try:
            try:
                opened.extend(map(os.open, (path,), (files.READ,)))
                return
            except OSError as exc:
                if exc.errno != errno.ELOOP:
                    raise
            path = self._target(key)
            opened.extend(map(os.open, (path,), (files.READ,)))
        except OSError as exc:
            if exc.errno not in files.MISSING:
                raise
            if path != self._base + key:
                raise self._leads_nowhere(key, path) from exc

    # -- staying within the root ------------------------------------------------------------------

    def _check_folder(self, folder: str) -> None:
        """Refuse a directory, given as a prefix of keys, that a link puts out of the root or nowhere."""
        path = (self._base + folder).encode(errors="surrogateescape")
        if folder and kernel.native is not None and kernel.native.has_no_links(path):
            return
        end = folder.find("/")
        while end >= 0:
            try:
                mode = os.lstat(self._base + folder[:end]).st_mode
            except OSError:  # to be made, or opening it says what is wrong
                return
            if S_ISLNK(mode):
                self._check_links(folder.rstrip("/"))
                return
            end = folder.find("/", end + 1)

    def _check_links(self, path: str) -> None:
        """Refuse a path in which a link leads out of the root, or nowhere: what is below it is not merely missing."""
        target = self._target(path)
        for end in [*(at for at, letter in enumerate(path) if letter == "/"), len(path)]:
            try:
                os.stat(self._base + path[:end])
            except OSError as exc:
                if exc.errno in files.MISSING and os.path.islink(self._base + path[:end]):
                    raise self._leads_nowhere(path[:end], target) from exc
                return  # opening it says what is wrong

    def _leads_nowhere(self, key: str, target: str) -> UnsafeLinkError:
        return UnsafeLinkError(
            f"key {key!r}: a link in {self!r} leads nowhere, to {target!r}; restore what it leads to, or remove the "
            "link if there is to be nothing",
            key=key,
        )

    def _target(self, key: str) -> str:
        """Return where a key really is."""
        path = os.path.realpath(self._base + key)
        if self._links == "inside" and not f"{path}/".startswith(self._base):
            raise UnsafeLinkError(
                f"key {key!r}: a link leads out of {self!r}, to {path!r}; "
                "to follow such links, open LocalStore(…, links='anywhere')",
                key=key,
            )
        return path

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or one level of them."""
        check_prefix(prefix)
        if recursive:
            return Listing(self._walk(prefix))
        keys, prefixes = [], []
        for entry in self._scan(prefix):
            if entry.is_dir():
                prefixes.append(f"{prefix}{entry.name}/")
            elif entry.is_file():
                keys.append(prefix + entry.name)
        return Listing(keys, prefixes)

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

    def _scan(self, prefix: str) -> Sequence[os.DirEntry[str]]:
        """Return what a directory holds within the root."""
        return [e for e in self._entries(prefix) if not e.is_symlink() or self._stays(prefix + e.name)]

    def _entries(self, prefix: str) -> Sequence[os.DirEntry[str]]:
        """Return what a directory holds; nothing if it is gone. What dead writers left is removed."""
        self._check_folder(prefix)
        folder = self._base + prefix
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except OSError as exc:
            if exc.errno in files.MISSING:
                return ()
            raise self._named(exc, prefix) from exc
        if not self.read_only:
            for entry in found:
                if entry.name.startswith(TEMPORARY):
                    files.clean(folder, entry.name)
        return [entry for entry in found if not entry.name.startswith(TEMPORARY)]

    def _stays(self, key: str) -> bool:
        """Whether a link leads to something below the root; others are no keys."""
        with suppress(UnsafeLinkError, OSError):  # out of it, in a circle, or nowhere
            os.stat(self._target(key))
            return True
        return False

    def outer(self) -> Self | None:
        """Return a store of the directory above, to be read only; None if there is none."""
        above = os.path.dirname(self._root)
        return None if above == self._root else type(self)(above, read_only=True, links=self._links)

    def obstacles(self, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
        """Find directories, unreadable and special files, and links that lead nowhere or out of the root."""
        todo = [check_prefix(prefix)]
        while todo:
            folder = todo.pop()
            for entry in self._entries(folder):
                key = folder + entry.name
                if entry.is_symlink() and not self._stays(key):
                    yield key, self._behind(key)
                elif entry.is_dir():
                    yield key, Obstacle.DIRECTORY
                    todo += [] if entry.is_symlink() else [key + "/"]
                elif not entry.is_file():
                    yield key, Obstacle.SPECIAL
                elif not os.access(self._base + key, os.R_OK):
                    yield key, Obstacle.UNREADABLE

    def _behind(self, key: str) -> Obstacle:
        """Return what a link is that is not followed."""
        if not os.path.exists(self._base + key):
            return Obstacle.NOWHERE
        return Obstacle.OUTER_DIRECTORY if os.path.isdir(self._base + key) else Obstacle.OUTER_FILE

    def clean(self) -> int:
        """Remove the unfinished files of writers that are dead, and return how many there were.

        Every listing does the same on its way.
        """
        self.check_writable()
        found = ((folder + "/", name) for folder, _, names in os.walk(self._root) for name in names)
        return sum(files.clean(folder, name) for folder, name in found if name.startswith(TEMPORARY))

    # -- writing ----------------------------------------------------------------------------------

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing, maybe on a condition; see `Store.write`."""
        self.check_writable()
        parts = parts_of(value)
        if if_tag is None:
            return self._write(key, parts, files.rename)
        if if_tag is ABSENT:
            try:
                return self._write(key, parts, files.link)
            except OSError as exc:
                if exc.errno not in _NO_LINKS:
                    raise
            with self.lock(key):
                return not os.path.lexists(self._base + key) and self._write(key, parts, files.rename)
        if not self.exists(key):
            return False  # without the directories that the lock would need
        with self.lock(key):
            found = self.read(key)
            return found is not None and found.tag == if_tag and self._write(key, parts, files.rename)

    def _write(self, key: str, parts: Sequence[files.Part], place: files.Place, held: FileLock | None = None) -> bool:
        if not is_key(key):
            check_key(key)
        folder, path = key[: key.rfind("/") + 1], self._base + key
        self._check_folder(folder)
        sync = self._is_durable(key)
        try:
            try:
                done = files.write(self._base + folder, path, parts, place, sync=sync, held=held)
            except FileNotFoundError:
                done = files.in_folder(self._base, path, lambda at: files.write(at, path, parts, place, sync=sync))
            if sync:
                files.sync_up(self._base, self._base + folder)
        except OSError as exc:
            raise self._named(exc, key) from exc
        return done

    def _splice(self, key: str, change: Splice) -> None:
        lock = self.lock_here(key)
        with lock, self._lock_file(lock, key) as held:
            try:
                self._splice_file(key, change, held)
            finally:
                self._remove(held, key)

    def _splice_file(self, key: str, change: Splice, held: FileLock | None) -> None:
        """Change a value, of which the operating system copies what stays."""
        opened: list[int] = []
        try:
            try:
                self._open(key, opened)
                old = _Opened(self, key, opened[0], files.regular(os.fstat(opened[0]))) if opened else None
            except OSError as exc:
                raise self._named(exc, key) from exc
            parts: Any = change(old)
            if parts is None:
                self.delete([key])
                return
            if old is not None:
                parts = [partial(files.copy_kept, old.fd, part) if isinstance(part, Kept) else part for part in parts]
            usable = held is not None and not held.closed and held.fresh
            self._write(key, parts, files.rename, held if usable else None)
        finally:
            try:
                for fd in opened:
                    os.close(fd)
            except OSError as exc:
                raise self._named(exc, key) from exc

    def _is_durable(self, key: str) -> bool:
        return self.traits.durability == "power" or key[key.rfind("/") + 1 :] in _ALWAYS

    def ability(self, kind: type[T]) -> T | None:
        """Return an ability; without fsync there is nothing to batch."""
        return None if kind is Batches and self.traits.durability != "power" else super().ability(kind)

    def batch(self) -> AbstractContextManager[Callable[..., Any]]:
        """Synchronise the directories of many writes once each, at the end."""
        return files.batch(self._base)

    # -- removing and moving ----------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there. Their directories stay."""
        self.check_writable()
        for key in check_keys(keys):
            with self._naming(key, files.MISSING):
                self._check_folder(key[: key.rfind("/") + 1])
                os.unlink(self._base + key)
                if self._is_durable(key):
                    files.sync_folders([os.path.dirname(self._base + key)])

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove several keys; a directory below the prefix that is a link goes itself, not what it leads to."""
        self.check_writable()
        unlinked, changed = {check_prefix(prefix): False}, set[str]()
        for key in check_keys(keys):
            folder = key[: key.rfind("/") + 1]
            with self._naming(key, files.MISSING):
                self._check_folder(folder)
                if not self._unlink_folder(folder, unlinked):
                    files.unlink(self._base + key)
                    if self._is_durable(key):
                        changed.add(os.path.dirname(self._base + key))
        files.sync_folders([folder for folder in changed if os.path.isdir(folder)])

    def _unlink_folder(self, folder: str, known: dict[str, bool]) -> bool:
        """Remove a directory that is a link, or the link above it, and return whether there was one; `known` caches."""
        if folder not in known:
            above = folder[: folder.rstrip("/").rfind("/") + 1]
            known[folder] = self._unlink_folder(above, known) or files.remove_link((self._base + folder).rstrip("/"))
        return known[folder]

    def detach(self, prefix: str) -> bool:
        """Remove a link to a directory, which stays; False, and nothing done, if it is none."""
        path = self._checked(prefix)
        with self._naming(prefix):
            return bool(prefix) and files.remove_link(path.rstrip("/"))

    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        """Remove directories that hold nothing; links and the root itself stay."""
        path = self._checked(prefix)
        with self._naming(prefix):
            files.prune(path, lambda folder: bool(prefix or folder) and owned(folder))

    def remove_tree(self, prefix: str) -> None:
        """Remove every key that starts with the prefix, unfinished files, and directories except the root.

        A key that is written at the same moment may stay.
        """
        top = self._checked(prefix).rstrip("/") or "/"
        with self._naming(prefix):
            files.remove_tree(top, keep_top=not prefix)
            if self.traits.durability == "power":
                files.sync_folders([os.path.dirname(top)])

    def rename(self, source: str, dest: str) -> bool:
        """Move a directory; False if the file system cannot do that in one step."""
        old, new = self._checked(source), self._checked(dest)
        try:
            files.rename_folder(self._base, old, new)
        except OSError as exc:
            if exc.errno not in (errno.EXDEV, errno.ENOTEMPTY, errno.EEXIST):
                raise self._named(exc, source) from exc
            return False
        return True

    def _checked(self, prefix: str) -> str:
        """Return the path of a prefix that is to be changed; refuse links above it that lead out of the root."""
        self.check_writable()
        path = check_prefix(prefix).rstrip("/")
        self._check_folder(path[: path.rfind("/") + 1])
        return self._base + prefix

    # -- locking and views ------------------------------------------------------------------------

    @property
    def identity(self) -> tuple[str, str]:
        """The directory, with links resolved."""
        return ("local", self._real)

    def name(self, key: str) -> str:
        """Return the whole path: a store of a directory further up or down may mean the same file."""
        return f"{self._real}/{check_key(key)}"

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Keep other threads and processes out while reading, changing and writing back one key."""
        lock = self.lock_here(key)
        with lock, self._lock_file(lock, key) as held:
            try:
                yield
            finally:
                self._remove(held, key)

    def _lock_file(self, lock: KeyLock, key: str) -> AbstractContextManager[FileLock | None]:
        """Return the lock against other processes, for the owner of `lock`; none if this thread holds it already."""
        held = None if lock.held is None else lock.held()
        if self.traits.read_only or (held is not None and not held.closed):
            return nullcontext()
        folder = key[: key.rfind("/") + 1]
        self._check_folder(folder)
        path = self._base + folder + files.lock_name(key)
        try:
            file = files.in_folder(self._base, path, lambda _: FileLock.taken(path))
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

    def with_durability(self, durability: Durability) -> Self:
        """Return the same directory through a store whose chunks survive this."""
        if durability == self.traits.durability:
            return self
        return type(self)(**self.__getstate__() | {"durability": durability})

    def __getstate__(self) -> dict[str, Any]:
        own = self.traits
        return {"root": self._root, "read_only": own.read_only, "durability": own.durability, "links": self._links}

    def __setstate__(self, state: dict[str, Any]) -> None:
        LocalStore.__init__(self, **state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._root!r}{', read_only=True' if self.read_only else ''})"

    @contextmanager
    def _naming(self, key: str, ignored: frozenset[int] = frozenset()) -> Iterator[None]:
        """Name the key in errors of the system, except for those that are ignored."""
        try:
            yield
        except OSError as exc:
            if exc.errno not in ignored:
                raise self._named(exc, key) from exc

    def _named(self, exc: OSError, key: str) -> OSError:
        """Return the same error with the key in its text; OSError picks the class by the number."""
        reason = "not a regular file" if exc.errno in _NOT_A_FILE else exc.strerror
        if exc.errno == errno.ENOTDIR:
            reason = "a file is where a directory is needed; remove it, or use another place"
        return OSError(exc.errno, f"key {key!r}: {reason}", self._base + key)


class _Opened(NamedTuple):
    """A value that is being changed, in an open file; see `Old`."""

    store: LocalStore
    key: str
    fd: int
    size: int

    def read(self, start: int, length: int) -> memoryview:
        try:
            return files.read_fresh(self.fd, self.key, start, length, self.size)
        except OSError as exc:
            raise self.store._named(exc, self.key) from exc
