"""Access to shards in a store, with their indexes remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from zellige.errors import ShortReadError
from zellige.stores import Store
from zellige.types import Buffer, Span

T = TypeVar("T")

_KEEP = 64

Place: TypeAlias = tuple[int, int | None]
"""Where a nested shard lies; (0, None) is the whole value."""


class StaleIndexError(Exception):
    """A shard was written again after its index was remembered."""


class IndexCache:
    """The indexes of the shards read last, each with the tag of the value that it was read from."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, tuple[object, dict[Place, Any]]] = {}

    def tag(self, key: str) -> object:
        """The tag that the indexes of a shard belong to, or None."""
        return self._entries.get(key, (None, None))[0]

    def find(self, key: str, place: Place) -> Any:
        """The index of a shard, or of one that lies at a place within it; None if it is not remembered."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1].get(place)

    def keep(self, key: str, tag: object, place: Place, index: Any) -> None:
        """Remember an index, in place of those of an older value."""
        if tag is None:
            return
        entry = self._entries.pop(key, None)
        if entry is None or entry[0] != tag:
            entry = (tag, {})
        entry[1][place] = index
        self._entries[key] = entry  # last in, last out
        while len(self._entries) > _KEEP:
            self._entries.pop(next(iter(self._entries)), None)

    def drop(self, key: str) -> None:
        """Forget a shard that is about to change."""
        self._entries.pop(key, None)


class ShardReader:
    """The bytes of one value of a store, or of a range of it."""

    __slots__ = ("_store", "_key", "_cache", "_start", "_length")

    def __init__(self, store: Store, key: str, cache: IndexCache, start: int = 0, length: int | None = None) -> None:
        self._store, self._key, self._cache = store, key, cache
        self._start, self._length = start, length

    def whole(self) -> Buffer | None:
        """All of it, or None if there is no such value."""
        if self._length is None:
            # Own bytes, because threads decode them while this one may read something else.
            return self._store.get(self._key)
        found = self.ranges([(0, self._length)])
        return None if found is None else found[0]

    def ranges(self, spans: Sequence[Span]) -> Sequence[Buffer] | None:
        """Some ranges; raises `StaleIndexError` if the value is not the one of the remembered index."""
        found = self._store.get_tagged(self._key, [self._absolute(span) for span in spans])
        if found is None:
            return None
        parts, tag = found
        known = self._cache.tag(self._key)
        if known is not None and tag != known:
            raise StaleIndexError
        return parts

    def index(self, span: Span, parse: Callable[[Buffer], T]) -> T | None:
        """The index, remembered or read."""
        remembered: T | None = self._cache.find(self._key, (self._start, self._length))
        if remembered is not None:
            return remembered
        found = self._store.get_tagged(self._key, [self._absolute(span)])
        if found is None:
            return None
        (raw,), tag = found
        index = parse(raw)
        self._cache.keep(self._key, tag, (self._start, self._length), index)
        return index

    def within(self, start: int, length: int) -> ShardReader:
        """A range of it as a shard of its own."""
        return ShardReader(self._store, self._key, self._cache, self._start + start, length)

    def _absolute(self, span: Span) -> Span:
        """A range of this shard as a range of the value."""
        start, length = span
        if self._length is None:
            return span
        begin = start if start >= 0 else self._length + start
        if begin < 0:
            raise ShortReadError(f"a nested shard of {self._length} bytes is shorter than its index")
        return self._start + begin, self._length - begin if length is None else length
