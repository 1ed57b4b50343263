"""What a store is: a map from keys to bytes, with the few promises that arrays rely on.

A store implements five methods, states facts about itself in its `traits`, and has an `identity`:

* `read` returns a value, ranges of it, or only its size. None means "there is no such key" and nothing else; every
  other failure raises.
* `write` is all or nothing: a reader, or the survivor of a crash, sees the old value or the new one. With a condition
  it has exactly one winner.
* `delete` and `list` do what they say.
* `lock` serialises reading, changing and writing one key.

Everything else in `Store` that reads or writes is made of these, once, and not to be overridden. What only some stores
can do is an ability of its own, see `zellige.stores.abilities`.

Keys are relative, `/`-separated and checked by every method, so that nothing leaves the store's root.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from zellige.errors import ConflictError, ReadOnlyError, ShortReadError, StoreKeyError
from zellige.stores.abilities import Folders
from zellige.stores.locks import KeyLock
from zellige.types import TEMPORARY as TEMPORARY
from zellige.types import Buffer, Durability, Encoded, Kept, Old, Span, Splice
from zellige.types import is_key as is_key

T = TypeVar("T")

DOCUMENTS = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})
"""The names of metadata; other keys are chunks."""


def check_key(key: str) -> str:
    """Return a key itself; raise `StoreKeyError` if it could leave the root or is no key at all.

    Parameters
    ----------
    key
        A relative path, with `/` between its segments.

    """
    if not is_key(key):
        raise StoreKeyError(
            f"key {key!r}: a key has no empty, '.' or '..' segment, no outer '/', no NUL, no lone surrogate "
            f"and no segment that starts with {TEMPORARY!r}; use a relative path",
            key=key,
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return a prefix itself; raise `StoreKeyError` if it is none.

    Parameters
    ----------
    prefix
        Empty, or a key followed by `/`.

    """
    if prefix:
        if not prefix.endswith("/"):
            raise StoreKeyError(f"prefix {prefix!r} must be empty or end in '/'", key=prefix)
        check_key(prefix[:-1])
    return prefix


def resolve_span(key: str, start: int, length: int | None, size: int) -> tuple[int, int]:
    """Return a range as (start, length) within a value; `ShortReadError` if it reaches beyond.

    Parameters
    ----------
    key
        The key of the value, for errors.
    start, length
        The range, as in `Store.read`.
    size
        The length of the value.

    """
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


def coalesced(spans: Sequence[Span], gap: int, most: int) -> list[Span]:
    """Coalesce ranges: each result is one request.

    Parameters
    ----------
    spans
        The ranges, in any order; they may overlap.
    gap
        The distance in bytes up to which two ranges are read as one.
    most
        The length up to which requests grow.

    >>> coalesced([(0, 10), (15, 5), (100, 10), (-8, None)], gap=5, most=50)
    [(0, 20), (100, 10), (-8, None)]
    """
    rest = [span for span in spans if span[1] is None]
    found: list[tuple[int, int]] = []  # where each begins and ends
    for start, length in sorted((start, length) for start, length in spans if length is not None):
        begin, end = found[-1] if found else (0, -1)
        both = max(end, start + length)
        if found and start <= end + gap and both - begin <= max(most, end - begin):
            found[-1] = begin, both
        else:
            found.append((start, start + length))
    return [(begin, end - begin) for begin, end in found] + list(dict.fromkeys(rest))


def divided(spans: Sequence[Span], found: Mapping[Span, Buffer]) -> list[Buffer]:
    """Cut ranges out of those that they were coalesced to.

    Parameters
    ----------
    spans
        The ranges that were given to `coalesced`.
    found
        The bytes of each of its results.

    >>> divided([(15, 5), (0, 3), (7, 0)], {(0, 20): b"abcdefghijklmnopqrst"})
    [b'pqrst', b'abc', b'']
    """
    requests = sorted([span for span in found if span[1] is not None])
    begins = [begin for begin, _ in requests]
    parts = []
    for start, length in spans:
        if not length:
            parts.append(found[start, length] if length is None else b"")
            continue
        # The last request that begins no later holds the range: they were coalesced in the order of their starts.
        request = requests[bisect_right(begins, start) - 1]
        at = start - request[0]
        parts.append(found[request][at : at + length])
    return parts


def slices(key: str, whole: Buffer, spans: Sequence[Span]) -> list[Buffer]:
    """Return ranges of a value."""
    found = [resolve_span(key, *span, len(whole)) for span in spans]
    return [whole[start : start + length] for start, length in found]


def digest(value: Buffer) -> str:
    """Return a short name for these bytes, for tags and locks."""
    from hashlib import blake2b

    return blake2b(value, digest_size=12).hexdigest()


def check_keys(keys: Sequence[str]) -> Sequence[str]:
    """Return keys themselves; raise unless all are keys.

    Parameters
    ----------
    keys
        A sequence of keys; a single text raises TypeError.

    """
    if isinstance(keys, str):
        raise TypeError(f"keys is the text {keys!r}; give a list of keys")
    for key in keys:
        check_key(key)
    return keys


def parts_of(value: Encoded) -> Sequence[Buffer]:
    """Return the parts of a value to be written; TypeError for what is not bytes."""
    if isinstance(value, list | tuple):
        return value
    return (value if isinstance(value, bytes | bytearray) else memoryview(value),)  # type: ignore[arg-type]


def joined(value: Encoded) -> bytes:
    """Return a value that is to be written as immutable bytes.

    Parameters
    ----------
    value
        Bytes, or a list of bytes that are one value.

    """
    return value if type(value) is bytes else b"".join(parts_of(value))


# -- what goes in and comes out -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Facts about a store, by which callers choose how to read and write."""

    read_only: bool = False
    """Whether it refuses to write."""
    durability: Durability = "process"
    """What a written value survives: the end of the process, or a power cut as well."""
    concurrency: int | None = None
    """How many requests to keep in flight, where each has a latency; None where the CPU is the limit."""
    coalesce_gap: int = 8 << 10
    """Ranges of one value that are no further apart are better read as one."""
    optimistic: bool = False
    """Whether a change is a conditional write that is retried, instead of a lock. Deletes are then unconditional."""
    transactional: bool = False
    """Whether all writes become visible to others together, later: a killed process leaves nothing half done."""
    local_path: str | None = None
    """The directory, with a last `/`, if each key is the path of a file in it; None for all other stores."""
    follow_links: bool = False
    """Whether symbolic links to anywhere are followed below that directory."""


class Missing(Enum):
    """The condition that there is no such key yet."""

    ABSENT = "absent"


ABSENT = Missing.ABSENT
"""The condition of `Store.write` that there is no such key yet."""

Tag: TypeAlias = Hashable
"""What differs once a value has been written again; compared with `==`."""


class ContentTag:
    """A tag made of a name, and of the content where both tags have it: the name may stay the same."""

    __slots__ = ("name", "content")

    def __init__(self, name: Any, content: Buffer | None) -> None:
        self.name, self.content = name, content

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ContentTag) or self.name != other.name:
            return False
        return self.content is None or other.content is None or self.content == other.content

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{self.name}-{digest(self.content or b'')}"


class Value(NamedTuple):
    """What `Store.read` returns."""

    parts: Sequence[Buffer]
    """The requested ranges, in their order; or the whole value as one part."""
    size: int | None
    """The length of the whole value; None if only ranges were read, and it would take another request."""
    tag: Tag | None
    """For conditional writes, and to recognise the value; None says nothing."""

    @property
    def whole(self) -> bytes:
        """The value if it was read as a whole, or the only requested range."""
        (part,) = self.parts
        return part if type(part) is bytes else bytes(part)

    @classmethod
    def cut(cls, key: str, whole: Buffer, spans: Sequence[Span] | None, tag: Tag | None) -> Self:
        """Return what `Store.read` returns, given a whole value.

        Parameters
        ----------
        key
            The key, for errors.
        whole
            The whole value.
        spans
            The requested ranges; None for the whole value.
        tag
            The tag of the value.

        """
        return cls((whole,) if spans is None else slices(key, whole, spans), len(whole), tag)


@dataclass(frozen=True, slots=True)
class Listing:
    """What `Store.list` returns; iterating over it gives the keys.

    >>> list(Listing(["a/b", "a/c"]))
    ['a/b', 'a/c']
    """

    keys: Iterable[str]
    """All keys that start with the prefix, or those directly below it; in no particular order."""
    prefixes: Iterable[str] = ()
    """The prefixes directly below, each ending in `/`; none where all keys are listed."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    @classmethod
    def one_level(cls, prefix: str, keys: Iterable[str]) -> Self:
        """Return one level of a listing.

        Parameters
        ----------
        prefix
            Empty, or a key followed by `/`.
        keys
            All keys that start with the prefix.

        """
        ends = {key: key.find("/", len(prefix)) + 1 for key in keys}
        return cls([key for key, end in ends.items() if not end], {key[:end] for key, end in ends.items() if end})


_AT_ONCE = 1000  # keys for one call of `delete`


class Store(ABC):
    """A map from keys to bytes; see the module's text for the promises, and `docs/stores.md` for how to write one.

    A subclass implements `read`, `write`, `delete`, `list` and `identity`, and sets its `traits`; `lock` if it can keep
    out more than the threads of this process. The other methods that read and write are made of these, and not to be
    overridden.

    The parameters mean the same in all methods:

    key, keys
        Relative paths, with `/` between their segments; `StoreKeyError` for anything else.
    prefix
        Empty, or a key followed by `/`.
    value
        Bytes, or a list of bytes that are stored one after the other as one value.
    spans
        Ranges as (start, length): a negative start counts from the end, a length of None means up to the end.
    tag, if_tag
        The tag of a value that was read, or `ABSENT` for no value: the condition of a write.
    durability
        What a written value survives: a crash of the "process", or of "power" as well.
    """

    traits: Traits = Traits()

    # -- what a store implements ------------------------------------------------------------------

    @abstractmethod
    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read a whole value, or exactly these ranges of it; None if there is no such key.

        All ranges are of one version, if the value has a tag. A range beyond the value raises `ShortReadError`. No
        ranges (`()`) give the size and the tag alone.
        """

    @abstractmethod
    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing; False, and nothing changed, if a condition does not hold.

        The condition is that the value still has this tag, or with `ABSENT` that there is none.
        """

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""

    @abstractmethod
    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or with `recursive=False` one level: keys and sub-prefixes.

        A sub-prefix may outlive its last key, where prefixes are directories.
        """

    def lock(self, key: str) -> AbstractContextManager[object]:
        """Return the lock to hold while reading, changing and writing back one key; a thread may enter it again."""
        return self.lock_here(key)

    @property
    @abstractmethod
    def identity(self) -> Hashable:
        """Equal for two stores of one process exactly when they hold the same data."""

    def name(self, key: str) -> Hashable:
        """Return a name that is the same in all stores of this process in which the key means the same value."""
        return self.identity, check_key(key)

    def ability(self, kind: type[T]) -> T | None:
        """Return an ability; None if this store does not have it. `kind`: its class in `zellige.stores.abilities`."""
        return self if isinstance(self, kind) else None

    # -- reading ----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """Return a whole value, or None if there is no such key."""
        found = self.read(key)
        return None if found is None else found.whole

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Return `length` bytes from `start` on, exactly, or None if there is no such key; see `read`."""
        found = self.read(key, [(start, length)])
        return None if found is None else found.whole

    def size(self, key: str) -> int | None:
        """Return the value's length in bytes, or None if there is no such key."""
        found = self.read(key, ())
        return None if found is None else found.size

    def exists(self, key: str) -> bool:
        """Whether there is such a key."""
        return self.read(key, ()) is not None

    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        """Return the keys and the sub-prefixes directly below the prefix, both whole and sorted."""
        found = self.list(prefix, recursive=False)
        return sorted(found.keys), sorted(found.prefixes)

    # -- writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: Encoded) -> None:
        """Store the value, all or nothing."""
        self.write(key, value)

    def create(self, key: str, value: Encoded) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        return self.write(key, value, ABSENT)

    def replace(self, key: str, value: Encoded, tag: Tag | None) -> bool:
        """Store the value if the key still has this tag; False, and nothing changed, if not."""
        if tag is None:
            raise ValueError(
                f"key {key!r} in {self!r}: a tag of None says nothing; read the whole value to get its tag"
            )
        return self.write(key, value, tag)

    def update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> None:
        """Read a value, change it and write it back, so that no other change is lost.

        `change` gets the value, or None if there is no such key, and returns the new one, or None to remove it. It is
        called again if another change came first.
        """

        def changed(old: Old | None) -> Sequence[Buffer] | None:
            new = change(None if old is None else old.read(0, old.size))
            return None if new is None else parts_of(new)

        self.splice(key, changed)

    def splice(self, key: str, change: Splice) -> None:
        """Update a value by a change that keeps most of it, which then need not be read.

        `change` gets the old value, with its `size` and `read(start, length)`, or None, and returns the new one in
        parts: bytes, and `Kept` ranges of the old value; or None to remove it. It may be called again.
        """
        if self.traits.read_only:
            self.check_writable()
        self._splice(key, change)

    def _splice(self, key: str, change: Splice) -> None:
        # Where changes are optimistic, a lock still saves the threads of this process retries.
        with self.lock(key):
            retried(self, [key], lambda: self._try_splice(key, change))

    def _try_splice(self, key: str, change: Splice) -> None:
        found = self.read(key)
        # Read-only, because they may be the bytes that the store keeps.
        old = None if found is None else WholeValue(key, memoryview(found.parts[0]).toreadonly())
        parts = change(old)
        if parts is None:
            self.delete([key])  # there is no deleting on condition
            return
        value = [old.read(part.start, part.length) if old and isinstance(part, Kept) else part for part in parts]
        new: Any = value[0] if len(value) == 1 else value
        if not self.traits.optimistic:
            self.write(key, new)
        elif not (self.create(key, new) if found is None else self.replace(key, new, found.tag)):
            raise ChangedError

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix."""
        self.check_writable()
        folders = self.ability(Folders)
        if folders is not None:
            folders.remove_tree(prefix)
            return
        keys = iter(self.list(prefix))
        while some := list(islice(keys, _AT_ONCE)):
            self.delete(some)

    # -- locks and views --------------------------------------------------------------------------

    @property
    def read_only(self) -> bool:
        """Whether the store refuses to write."""
        return self.traits.read_only

    def check_writable(self) -> None:
        """Raise if the store refuses to write."""
        if self.traits.read_only:
            raise ReadOnlyError(f"{self!r} is read-only; open it for writing, e.g. with mode='r+'")

    def lock_here(self, key: str) -> KeyLock:
        """Return a lock among the threads of this process only: for writing without reading first."""
        return KeyLock(self.name(key))

    def _writing(self, key: str) -> KeyLock:
        """Keep writes of a key apart in this process; not by `lock`: a write does not wait for a read-modify-write."""
        return KeyLock(("writing", self.identity, key))

    def as_read_only(self) -> Self:
        """Return the same data through a store that refuses to write."""
        return self._view(read_only=True)

    def with_durability(self, durability: Durability) -> Self:
        """Return the same data through a store whose writes survive a crash of the "process", or of "power" as well."""
        now = self.traits.durability
        if durability == now:
            return self
        raise ValueError(f"durability={durability!r}: {self!r} supports durability={now!r} only")

    def with_concurrency(self, most: int) -> Self:
        """Return the same data through a store that gets at `most` so many requests at once."""
        now = self.traits.concurrency
        return self if now is None or now <= most else self._view(concurrency=most)

    def _view(self, **traits: Any) -> Self:
        """Return the same store with other traits; it shares all else."""
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__, traits=replace(self.traits, **traits))
        return view

    def close(self) -> None:  # noqa: B027
        """Release what the store holds; local and memory stores hold nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Store):
            return NotImplemented
        return self.identity == other.identity and self.read_only == other.read_only

    def __hash__(self) -> int:
        return hash((self.identity, self.read_only))


class WholeValue(NamedTuple):
    """A value that is being changed, in memory; see `Old`."""

    key: str
    raw: memoryview

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.raw)

    def read(self, start: int, length: int) -> Buffer:
        """Return a range of it."""
        (part,) = slices(self.key, self.raw, [(start, length)])
        return part


# -- conflicts ------------------------------------------------------------------------------------

_TRIES = 64
_FIRST, _LONGEST = 0.005, 1.0  # seconds before the second attempt, and before late ones: at random, up to these


class ChangedError(Exception):
    """Another writer changed a value while it was in use."""


def retried(store: Store, keys: Sequence[str], attempt: Callable[[], T], *, writing: bool = True) -> T:
    """Return what an attempt returns; repeat it, after a pause, while it raises `ChangedError`.

    Parameters
    ----------
    store
        The store that others change.
    keys
        What they change there, for the `ConflictError` that ends too many attempts.
    attempt
        What to do.
    writing
        Whether an attempt is to write something; then the error says that nothing was written.

    """
    for number in range(_TRIES):
        if number:
            _pause(min(_LONGEST, _FIRST * 2**number))
        try:
            return attempt()
        except ChangedError:
            continue
    names = f"key {keys[0]!r}" if len(keys) == 1 else f"keys {list(keys)}"
    outcome = "; nothing was written" if writing else " while it was read"
    raise ConflictError(f"{names} in {store!r} kept changing, {_TRIES} times{outcome}, try again", key=keys[0])


def _pause(longest: float) -> None:
    import random  # loaded at the first conflict
    import time

    time.sleep(random.uniform(0, longest))
