"""What a store is: a map from keys to bytes, with the few promises that arrays rely on.

* A put is all or nothing: a reader, or the survivor of a crash, sees the old value or the new one.
* `None` means "there is no such key" and nothing else; every other failure raises.
* `create` and `replace` are conditional writes with exactly one winner.
* `exclusive` serialises read-modify-write of one key.

Keys are relative, `/`-separated and checked by every method, so that nothing leaves the store's root.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, ClassVar, Self, TypeAlias

from zellige.errors import ReadOnlyError, ShortReadError, StoreKeyError
from zellige.types import Buffer, Durability, Encoded, Span

TEMPORARY = ".zellige-tmp-"
"""How the names of unfinished files begin; no segment of a key does."""

# Not in a key: `/` inside a segment, NUL, and surrogates that no file name can hold. The others, DC80 to
# DCFF, are how Python spells the bytes of a file name that is not UTF-8.
_NO = r"/\0\ud800-\udc7f\udd00-\udfff"
# One segment: not empty, not `.`, not `..`, not temporary. Possessive, so that no key takes long to refuse.
_SEGMENT = rf"(?:[^.{_NO}]|(?!\.{{1,2}}(?:/|\Z)|{re.escape(TEMPORARY)})\.)[^{_NO}]*+"

is_key = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*+").fullmatch
"""Whether a string is a key; stores test this inline, because they do it for every chunk."""


# A name that the file system cannot hold is not there either.
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})


DOCUMENTS = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})
"""The names of the keys that are no chunks."""


def check_key(key: str) -> str:
    """The key itself; raises `StoreKeyError` if it could leave the root or is no key at all."""
    if not is_key(key):
        raise StoreKeyError(
            f"key {key!r}: a key has no empty, '.' or '..' segment, no outer '/', no NUL, no lone surrogate "
            f"and no segment that starts with {TEMPORARY!r}; use a relative path",
            key=key,
        )
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself: empty, or a valid key followed by `/`."""
    if prefix:
        if not prefix.endswith("/"):
            raise StoreKeyError(f"prefix {prefix!r} must be empty or end in '/'", key=prefix)
        check_key(prefix[:-1])
    return prefix


def resolve_span(key: str, start: int, length: int | None, size: int) -> tuple[int, int]:
    """The range as (start, length) within a value of `size` bytes; `ShortReadError` if it reaches beyond."""
    if length is not None and length < 0:
        raise ValueError(f"key {key!r}: a range cannot have the length {length}; use None for up to the end")
    begin = size + start if start < 0 else start
    count = size - begin if length is None else length
    if begin < 0 or count < 0 or begin + count > size:
        asked = f"{start}, to the end" if length is None else f"{start}, length {length}"
        raise ShortReadError(
            f"key {key!r}: the range (start {asked}) reaches beyond the value, which has {size} bytes",
            key=key,
            start=start,
            length=length,
            size=size,
        )
    return begin, count


def digest(value: bytes) -> str:
    """A short name for these bytes, for versions and locks."""
    from hashlib import blake2b

    return blake2b(value, digest_size=12).hexdigest()


Work: TypeAlias = Callable[[Any], None]
Joined: TypeAlias = Callable[[Work], Work]


def _as_it_is(work: Work) -> Work:
    return work


class Store(ABC):
    """A map from keys to bytes; see the module's text for the promises."""

    read_only: bool = False
    durability: Durability = "process"
    """What a written value survives: the end of the process, or a power cut as well."""
    near: bool = False
    """Whether a small request takes microseconds, so that waiting for several at once gains nothing."""
    concurrency: int | None = None
    """How many requests at once pay, where they are waited for; None where the processor is what limits."""
    gap: int = 8 << 10
    """Ranges of one value that are no further apart are better read as one."""
    optimistic: ClassVar[bool] = False
    """Whether `update` keeps nobody out, but writes on condition; deleting on condition is what no such store can."""
    transactional: bool = False
    """Whether what is written is seen by others only as a whole, later: a kill leaves nothing half done."""

    # -- reading ----------------------------------------------------------------------------------

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The whole value, or None if there is no such key."""

    def borrow(self, key: str) -> Buffer | None:
        """Like `get`, but the buffer may be overwritten by this thread's next call on any store.

        If the buffer can be written to, the caller may do so.
        """
        return self.get(key)

    def borrow_many(self, keys: Sequence[str]) -> list[Buffer | None]:
        """Several small values, all valid until this thread's next call on any store."""
        return [self.get(key) for key in keys]

    def read_pieces(self, key: str, size: int, use: Callable[[Iterator[Buffer]], None]) -> bool:
        """Hand over the value in pieces of so many bytes, the last one maybe shorter; False if there is no such key.

        All are of one value, also if it is replaced meanwhile. Each is valid until the next is asked for.
        """
        value = self.borrow(key)
        if value is None:
            return False
        view = memoryview(value)
        use(view[start : start + size] for start in range(0, len(view), size))
        return True

    @abstractmethod
    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key.

        A negative start counts from the end; no length means up to the end. A range that reaches
        beyond the value raises `ShortReadError`.
        """

    def get_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes] | None:
        """Several ranges of one value, or None if there is no such key."""
        if not spans:
            return [] if self.exists(key) else None
        found = []
        for start, length in spans:
            part = self.get_range(key, start, length)
            if part is None:
                return None
            found.append(part)
        return found

    def get_tagged(self, key: str, spans: Sequence[Span]) -> tuple[Sequence[bytes], object] | None:
        """Several ranges with a tag that differs once the value has been written again.

        A tag of None says nothing: then nothing may be remembered about the value.
        """
        found = self.get_ranges(key, spans)
        return None if found is None else (found, None)

    @abstractmethod
    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The value with the version that `replace` wants, or None if there is no such key."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """The value's length in bytes, or None if there is no such key."""

    def exists(self, key: str) -> bool:
        """Whether there is such a key."""
        return self.size(key) is not None

    # -- listing ----------------------------------------------------------------------------------

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[str]:
        """All keys that start with the prefix (empty, or ending in `/`), in no particular order."""

    @abstractmethod
    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        """The keys directly below the prefix and the sub-prefixes (ending in `/`), both whole and sorted.

        A sub-prefix may outlive its last key, where prefixes are directories.
        """

    # -- writing ----------------------------------------------------------------------------------

    @abstractmethod
    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""

    def put_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store a value given in parts, all or nothing."""
        self.put(key, b"".join(parts))

    def write(self, key: str, value: Encoded | None) -> None:
        """Store a value, maybe in parts; None removes it."""
        if value is None:
            self.delete(key)
        elif isinstance(value, bytes | bytearray | memoryview):
            self.put(key, value)
        else:
            self.put_parts(key, value)

    def update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> None:
        """Read a value, change it and write it back, so that no other change is lost.

        `change` gets the value, or None if there is no such key, and gives the new one, or None to remove it. It may
        be called again if somebody else was quicker.
        """
        with self.exclusive(key):
            self.write(key, change(self.borrow(key)))

    @abstractmethod
    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""

    @abstractmethod
    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix."""

    def rename_prefix(self, source: str, dest: str) -> bool:
        """Move all keys below a prefix to another that has none, at once; False, and nothing done, if it cannot."""
        self._check_writable()
        return False

    # -- locking and views ------------------------------------------------------------------------

    @property
    @abstractmethod
    def identity(self) -> Hashable:
        """Equal for two stores of one process exactly when they hold the same data."""

    def exclusive(self, key: str) -> AbstractContextManager[object]:
        """Hold this while reading, changing and writing back one key; a thread may enter it again."""
        return self.exclusive_here(key)

    def exclusive_here(self, key: str) -> KeyLock:
        """Like `exclusive`, but only among the threads of this process: for writing without reading first."""
        return KeyLock((self.identity, check_key(key)))

    def exclusive_here_many(self, keys: Sequence[str]) -> KeyLocks:
        """`exclusive_here` for several keys at once."""
        return KeyLocks([self.exclusive_here(key).name for key in keys])

    def with_durability(self, durability: Durability) -> Self:
        """The same data through a store whose writes survive this."""
        if durability == self.durability:
            return self
        raise ValueError(f"durability={durability!r}: the values of {self!r} survive {self.durability!r}, and no other")

    def batch(self) -> AbstractContextManager[Joined]:
        """Around many writes of one operation: what makes them durable may wait until the end.

        Gives a function that turns the work of any thread into a part of the batch.
        """
        return nullcontext(_as_it_is)

    @abstractmethod
    def as_read_only(self) -> Self:
        """The same data through a store that refuses to write."""

    def close(self) -> None:  # noqa: B027
        """Release what the store holds; local and memory stores hold nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} is read-only; open it for writing, e.g. with mode='r+'")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Store):
            return NotImplemented
        return self.identity == other.identity and self.read_only == other.read_only

    def __hash__(self) -> int:
        return hash((self.identity, self.read_only))


# -- locks ----------------------------------------------------------------------------------------


class _Lock:
    """A lock of one name, with the number of those that hold it or wait for it, and how often it is held."""

    __slots__ = ("lock", "users", "depth")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users = 0
        self.depth = 0


_locks: dict[Hashable, _Lock] = {}  # kept only while somebody uses them
_guard = threading.Lock()


def _join(name: Hashable) -> _Lock:
    """Become a user of the lock of a name; under the guard."""
    found = _locks.get(name)
    if found is None:
        found = _locks[name] = _Lock()
    found.users += 1
    return found


def _leave(name: Hashable, lock: _Lock) -> None:
    """Use it no more; under the guard."""
    lock.users -= 1
    # After a fork the name may belong to another lock, or to none.
    if not lock.users and _locks.get(name) is lock:
        del _locks[name]


class KeyLock:
    """A lock within this process; entering gives 1, or more when this thread holds that name already."""

    __slots__ = ("name", "mine")

    def __init__(self, name: Hashable) -> None:
        self.name = name

    def __enter__(self) -> int:
        with _guard:
            self.mine = mine = _join(self.name)
        try:
            mine.lock.acquire()
        except BaseException:
            self._leave()
            raise
        mine.depth += 1
        return mine.depth

    def __exit__(self, *exc: object) -> None:
        self.mine.depth -= 1
        self.mine.lock.release()
        self._leave()

    def _leave(self) -> None:
        with _guard:
            _leave(self.name, self.mine)


class KeyLocks:
    """`KeyLock` for several names, entered in their order, so that no two wait for each other forever."""

    __slots__ = ("_names", "_entries")

    def __init__(self, names: Iterable[Any]) -> None:
        self._names = sorted(set(names))
        self._entries: list[_Lock] = []

    def __enter__(self) -> None:
        with _guard:
            self._entries = [_join(name) for name in self._names]
        held = 0
        try:
            for entry in self._entries:
                entry.lock.acquire()
                entry.depth += 1
                held += 1
        except BaseException:
            self._leave(held)
            raise

    def __exit__(self, *exc: object) -> None:
        self._leave(len(self._entries))

    def _leave(self, held: int) -> None:
        for entry in self._entries[:held]:
            entry.depth -= 1
            entry.lock.release()
        with _guard:
            for name, entry in zip(self._names, self._entries, strict=True):
                _leave(name, entry)


_LOCK_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class FileLock:
    """A file locked against other processes, there only while somebody holds the lock or waits for it.

    The system frees the lock when the process dies. A file system without locks is no error: there only
    the threads of one process are kept apart, by `KeyLock`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        try:
            while not self._acquire():
                self._free()
        except BaseException:
            self._free()
            raise

    def _acquire(self) -> bool:
        _file_locks.add(self)
        self.fd = os.open(self.path, _LOCK_FLAGS | os.O_CREAT, 0o666)
        _flock(self.fd, lock=True)
        try:
            # Whoever held it before has removed the file, and the next one may have made a new one.
            return os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Free the lock and remove the file; in a forked child nothing, because the parent holds it."""
        try:
            # Somebody may have removed the file, and then the one of this name is another.
            if self.fd >= 0 and os.fstat(self.fd).st_nlink:
                with suppress(FileNotFoundError):
                    os.unlink(self.path)
        finally:
            self._free()

    def _free(self) -> None:
        _file_locks.discard(self)
        fd, self.fd = self.fd, -1
        if fd >= 0:
            # Closing alone does not free the lock while a forked process has a copy of the descriptor.
            try:
                _flock(fd, lock=False)
            finally:
                os.close(fd)


_file_locks: set[FileLock] = set()


def remove_free_lock(path: str) -> bool:
    """Remove the file of a lock that nobody holds; those who wait for it make another."""
    import fcntl

    try:
        fd = os.open(path, _LOCK_FLAGS)
    except OSError as exc:
        if exc.errno == errno.ELOOP:  # a link, which is no lock of anybody's
            with suppress(OSError):
                os.unlink(path)
                return True
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            return False
        os.unlink(path)  # while it is held, as `FileLock.release` does
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _flock(fd: int, *, lock: bool) -> None:
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX if lock else fcntl.LOCK_UN)
    except OSError as exc:
        if exc.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
            raise


def _forget_locks() -> None:
    """In a forked child: the threads that held these locks do not exist here and would never release them."""
    global _guard
    _guard = threading.Lock()
    _locks.clear()
    for held in _file_locks:
        if held.fd >= 0:
            os.close(held.fd)
            held.fd = -1
    _file_locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
