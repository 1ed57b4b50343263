"""Access to shards in a store, with their indexes remembered."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from zellige.errors import ShortReadError
from zellige.stores import Store
from zellige.types import Buffer, Span

T = TypeVar("T")

GAP = 64 << 10
"""Parts of a shard no further apart are better read as one, where nobody waits for requests."""
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

    def find(self, key: str, place: Place) -> tuple[object, Any]:
        """The tag and the index of a shard, or of one that lies at a place within it; None if not remembered."""
        tag, indexes = self._entries.get(key, (None, {}))
        return tag, indexes.get(place)

    def keep(self, key: str, tag: object, place: Place, index: Any) -> None:
        """Remember an index, in place of those of an older value."""
        if tag is None:
            return
        with _lock:
            entry = self._entries.pop(key, None)
            if entry is None or entry[0] != tag:
                entry = (tag, {})
            entry[1][place] = index
            self._entries[key] = entry  # last in, last out
            if len(self._entries) > _KEEP:
                del self._entries[next(iter(self._entries))]

    def drop(self, key: str) -> None:
        """Forget a shard that is about to change."""
        with _lock:
            self._entries.pop(key, None)


_lock = threading.Lock()  # one for all, held for a moment


def _forget_lock() -> None:
    """In a forked child: the thread that held it does not exist here."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


class ShardReader:
    """The bytes of one value of a store, or of a range of it.

    Once it has given an index, all that it reads is of the same value, or it raises `StaleIndexError`. It keeps
    the tag for that itself, because other threads may put a newer index into the cache, or drop it.
    """

    __slots__ = ("_store", "_key", "_cache", "merging", "_start", "_length", "_tag", "_fresh")

    def __init__(
        self,
        store: Store,
        key: str,
        cache: IndexCache,
        merging: tuple[int, int] = (GAP, 16 << 20),
        start: int = 0,
        length: int | None = None,
        tag: object = None,
    ) -> None:
        self._store, self._key, self._cache, self.merging = store, key, cache, merging
        self._start, self._length, self._tag = start, length, tag
        self._fresh = False
        """Whether the index was read just now."""

    def whole(self) -> Buffer | None:
        """All of it, or None if there is no such value."""
        if self._length is None:
            # Other threads may decode from it too; this one asks for nothing else until they are done.
            return self._store.borrow(self._key)
        found = self.ranges([(0, self._length)])
        return None if found is None else found[0]

    def ranges(self, spans: Sequence[Span]) -> Sequence[Buffer] | None:
        """Some ranges, or None if there is no such value; none at all to see that a remembered index still holds."""
        if not spans and self._fresh:
            return []
        found = self._tagged([self._absolute(span) for span in spans])
        return None if found is None else found[0]

    def index(self, span: Span, parse: Callable[[Buffer], T]) -> T | None:
        """The index, remembered or read."""
        place = self._start, self._length
        tag, remembered = self._cache.find(self._key, place)
        if remembered is not None and (self._tag is None or self._tag == tag):
            self._tag = tag
            index: T = remembered
            return index
        found = self._tagged([self._absolute(span)])
        if found is None:
            return None
        (raw,), self._tag = found
        self._fresh = True
        index = parse(raw)
        self._cache.keep(self._key, self._tag, place, index)
        return index

    def within(self, start: int, length: int) -> ShardReader:
        """A range of it as a shard of its own."""
        return ShardReader(self._store, self._key, self._cache, self.merging, self._start + start, length, self._tag)

    def _tagged(self, spans: Sequence[Span]) -> tuple[Sequence[Buffer], object] | None:
        """Some ranges of the value with its tag, which is that of the index if there is one already."""
        try:
            found = self._store.get_tagged(self._key, spans)
        except ShortReadError as error:
            if self._tag is None or self._is_same():
                raise
            raise StaleIndexError from error  # the index is of a longer value, which is there no more
        if found is not None and self._tag is not None and found[1] != self._tag:
            raise StaleIndexError
        return found

    def _is_same(self) -> bool:
        """Whether the value is still the one of the index."""
        found = self._store.get_tagged(self._key, [])
        return found is not None and found[1] == self._tag

    def _absolute(self, span: Span) -> Span:
        """A range of this shard as a range of the value."""
        start, length = span
        if self._length is None:
            return span
        begin = start if start >= 0 else self._length + start
        count = self._length - begin if length is None else length
        if begin < 0 or begin + count > self._length:
            raise ShortReadError(f"bytes {begin} to {begin + count} are not in a nested shard of {self._length} bytes")
        return self._start + begin, count
