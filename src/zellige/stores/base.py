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
import threading
from _thread import RLock
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from weakref import ref

from zellige.errors import ReadOnlyError, ShortReadError, StoreKeyError
from zellige.types import TEMPORARY as TEMPORARY
from zellige.types import AnyArray, Buffer, Durability, Encoded, Span, Splice, Use
from zellige.types import is_key as is_key

if TYPE_CHECKING:
    from zellige.stores.file_locks import FileLock

# A name that the file system cannot hold is not there either.
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})


class Obstacle(StrEnum):
    """What lies in the place of a key and cannot be read as a value."""

    DIRECTORY = "a directory"
    OUTER_DIRECTORY = "a link to a directory out of the store"
    OUTER_FILE = "a link to a file out of the store"
    NOWHERE = "a link that leads nowhere"
    SPECIAL = "no regular file"
    UNREADABLE = "a file that this process may not read"

    @property
    def is_hidden(self) -> bool:
        """Whether listings leave it out, with all that may be behind it."""
        return self not in (Obstacle.DIRECTORY, Obstacle.UNREADABLE)

    @property
    def remedy(self) -> str:
        """What to do about it where a value belongs."""
        if self in (Obstacle.OUTER_DIRECTORY, Obstacle.OUTER_FILE):
            return "open LocalStore(…, links='anywhere') to follow such links, or put what it leads to in its place"
        return "restore the value, or remove what is there"


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
    in_pieces: bool = False
    """Whether values can be read piece by piece; see `read_pieces`."""
    near: bool = False
    """Whether a small request takes microseconds, so that waiting for several at once gains nothing."""
    concurrency: int | None = None
    """How many requests at once pay, where they are waited for; None where the processor is what limits."""
    gap: int = 8 << 10
    """Ranges of one value that are no further apart are better read as one."""
    optimistic: bool = False
    """Whether `update` keeps nobody out, but writes on condition; deleting on condition is what no such store can."""
    transactional: bool = False
    """Whether what is written is seen by others only as a whole, later: a kill leaves nothing half done."""
    renames: bool = False
    """Whether `rename_prefix` moves keys at once; else it is not asked to move what consolidated metadata names."""

    local_base: str | None = None
    """The directory whose files are the values, up to its last `/`, where nothing else is between keys and files."""
    follows_links: bool = False
    """Whether symbolic links to anywhere are followed below that directory."""
    keeps_decoded: bool = False
    """Whether `decoded` keeps what it gives."""

    # -- reading ----------------------------------------------------------------------------------

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The whole value, or None if there is no such key."""

    def borrow(self, key: str) -> Buffer | None:
        """Like `get`, but the buffer may be overwritten by this thread's next call on any store.

        If the buffer can be written to, the caller may do so.
        """
        return self.get(key)

    def borrow_many(self, keys: Sequence[str], into: memoryview | None = None) -> list[Buffer | None]:
        """Several small values, all valid until this thread's next call on any store.

        A store may put values into `into`. Those that are returned as views of it lie there one after the other, from
        its beginning; all others are elsewhere.
        """
        return [self.get(key) for key in keys]

    def read_pieces(self, keys: Sequence[str], sizes: Sequence[int], rooms: Sequence[memoryview], use: Use) -> bool:
        """Read values of so many bytes piece by piece, in turn: the first piece of each, then the second of each, ….

        Whenever `use` asks its iterator for more, the next piece of the next value is in the value's room, which it
        fills but for the last one; all come in equally many pieces. Those of one value are of one version, also if it
        is replaced meanwhile. False if a value is missing or has another size, which may show late, or if the store
        is not one that reads `in_pieces`.
        """
        for key in keys:
            check_key(key)
        return False

    @abstractmethod
    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key.

        A negative start counts from the end; no length means up to the end. A range that reaches
        beyond the value raises `ShortReadError`.
        """

    def borrow_range(self, key: str, start: int, length: int) -> Buffer | None:
        """Like `get_range`, but the buffer may be overwritten by this thread's next call on any store."""
        return self.get_range(key, start, length)

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

    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        """What `decode` makes of a value, maybe kept from another time with the same `how`; None if it is missing."""
        value = self.borrow(key)
        return None if value is None else decode(value)

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

    def outer(self) -> Store | None:
        """The store that this one lies in: of the directory above, where stores are directories; else None."""
        return None

    def obstacles(self, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
        """What lies below the prefix in the place of keys and cannot be read as a value, with what it is.

        Directories are among it; whether a value belongs where one is, the caller knows. Where prefixes are only the
        beginnings of keys there is nothing of the kind.
        """
        check_prefix(prefix)
        return iter(())

    # -- writing ----------------------------------------------------------------------------------

    @abstractmethod
    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""

    def put_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store a value given in parts, all or nothing."""
        self.put(key, b"".join(parts))

    def put_many(self, keys: Sequence[str], values: Sequence[Buffer], stored: MutableSequence[str]) -> None:
        """Store several small values, each all or nothing, and add the keys to `stored` as that is done.

        A thread that changes one of them by `update` does not store its older copy over it.
        """
        self._check_writable()
        for key, value in zip(keys, values, strict=True):
            with self.exclusive_here(key):
                self.put(key, value)
            stored.append(key)

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
        self._check_writable()
        with self.exclusive(key):
            self.write(key, change(self.borrow(key)))

    def splice(self, key: str, change: Splice) -> None:
        """Like `update`, for a change that keeps most of a value, which then need not be read."""
        from zellige.stores.splicing import of_whole  # only for those who change shards

        self.update(key, of_whole(key, change))

    @abstractmethod
    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""

    @abstractmethod
    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none."""

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove several keys, all of which start with a prefix (empty, or ending in `/`).

        Where prefixes are directories, one further down that is a link goes itself, and not what it leads to.
        """
        for key in keys:
            self.delete(key)

    @abstractmethod
    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix."""

    def detach(self, prefix: str) -> bool:
        """Remove a prefix that is only a link to another, which stays; False, and nothing done, if it is none."""
        self._check_writable()
        return False

    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        """Remove the prefix and those below it that hold nothing, where prefixes are directories that outlive keys.

        Only those that are `owned`, which is told their paths relative to the prefix, without a last `/`.
        """
        self._check_writable()

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

    def with_durability(self, durability: Durability) -> Self:
        """The same data through a store whose writes survive this."""
        if durability == self.durability:
            return self
        raise ValueError(f"durability={durability!r}: the values of {self!r} survive {self.durability!r}, and no other")

    def with_concurrency(self, most: int) -> Self:
        """The same data through a store that is asked for less at once, where it would be more."""
        if self.concurrency is None or self.concurrency <= most:
            return self
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__, concurrency=most)
        return view

    def batch(self) -> AbstractContextManager[Joined]:
        """Around many writes of one operation: what makes them durable may wait until the end.

        Gives a function that turns the work of any thread into a part of the batch.
        """
        return nullcontext(_as_it_is)

    def fork(self) -> Self:
        """The same data as other processes may write to it; what they wrote comes back by `merge`.

        That is the store itself where everybody sees what one writes. In a transaction it is a copy of it, which can be
        pickled and forked again.
        """
        if self.transactional and not self.read_only:
            raise TypeError(f"{self!r} is written by one process; write to another store, or without a cluster")
        return self

    def merge(self, forks: Iterable[Store]) -> None:  # noqa: B027
        """Take over what was written to forks, each of which wrote other keys."""

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


class KeyLock(RLock):  # type: ignore[misc]  # final for the stubs, not for Python
    """The lock of a name within this process: one object for all who use it, and a thread may enter it again.

    `with` enters and leaves it in C, so that no interrupt comes between the end of a block and freeing the lock, as it
    may at the beginning of a function.
    """

    __slots__ = ("name", "held", "passing", "over")

    name: Hashable
    held: ref[FileLock] | None
    """The lock against other processes that the owner of this one has, too."""
    passing: bool
    """Whether this is one `for_many`."""
    over: bool
    """Whether somebody who waited for such a one has got it: then its names are free."""

    def __new__(cls, name: Hashable) -> Self:
        """The lock that is in use under this name, or a new one; it lasts as long as somebody uses it."""
        while True:
            with _guard:
                found = _in_use(name)
                if found is None:
                    found = cls._make(name, passing=False)
                    found._register([name])
            if not found.passing:
                return found  # type: ignore[return-value]
            with found:
                found.over = True  # who had it has left it, and others who wait may keep it alive
            del found

    @classmethod
    def _make(cls, name: Hashable, *, passing: bool) -> Self:
        lock: Any = super().__new__(cls)
        lock.name, lock.held, lock.passing, lock.over = name, None, passing, False
        return lock  # type: ignore[no-any-return]

    @classmethod
    def for_many(cls) -> Self:
        """A lock for the names that it `claims`, quicker than one for each."""
        return cls._make(None, passing=True)

    def claims(self, names: Sequence[Hashable]) -> bool:
        """Take names that nobody uses; False if somebody uses one of them. Called by who has entered this lock.

        Who has it waits for nobody, and nobody else gets it: they wait until it is free, and then take their own.
        """
        with _guard:
            free = _locks.keys().isdisjoint(names) or all(_in_use(name) is None for name in names)
            if free:
                self._register(names)
            return free

    def _register(self, names: Sequence[Hashable]) -> None:
        """Make this the lock of names without one; under the guard."""
        if len(_locks) + len(names) > _MANY:
            _sweep()
        _locks.update(dict.fromkeys(names, ref(self)))


def _in_use(name: Hashable) -> KeyLock | None:
    """The lock that somebody uses under a name; under the guard."""
    known = _locks.get(name)
    found = None if known is None else known()
    return None if found is None or found.over else found


# Without callbacks that would remove what is not used any more: an interrupt that comes within one is lost.
_locks: dict[Hashable, ref[KeyLock]] = {}
_guard = threading.Lock()
_MANY = 256


def _sweep() -> None:
    """Forget the names that nobody uses; under the guard."""
    for name in [name for name, lock in _locks.items() if lock() is None]:
        del _locks[name]


def _forget_locks() -> None:
    """In a forked child: the threads that held these locks do not exist here and would never release them."""
    global _guard
    _guard = threading.Lock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
