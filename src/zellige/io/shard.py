"""Shards: one stored value that is the source of many chunks.

`ShardSource` says where inner chunks lie, with indexes remembered, and fetches their bytes; `replaced` says how a shard
looks after some of them have changed. Planning, decoding and copying are the same code as for plain chunks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from zellige.codecs.sharding import BoundShard, ShardIndex
from zellige.errors import ShortReadError
from zellige.io.plan import Copy, Plan, plan_axes
from zellige.stores import Store
from zellige.stores.base import ChangedError, Value, coalesced, divided
from zellige.types import AnyArray, Buffer, Coords, Kept, Old, Part, Span

GAP = 64 << 10
"""Parts of a shard no further apart are better read as one, where requests do not wait."""
_KEEP = 64

Place: TypeAlias = tuple[int, int | None]
"""Where a nested shard lies; (0, None) is the whole value."""


class IndexCache(dict[str, tuple[object, dict[Place, ShardIndex]]]):
    """The indexes of the shards read last, by their keys, each with the tag of the value that it was read from."""

    __slots__ = ()

    def find(self, key: str, place: Place) -> tuple[object, ShardIndex | None]:
        """Return the tag and the index of a shard, or of one that lies at a place within it; None if not remembered."""
        tag, indexes = self.get(key, (None, {}))
        return tag, indexes.get(place)

    def keep(self, key: str, tag: object, place: Place, index: ShardIndex) -> None:
        """Remember an index, in place of those of an older value."""
        if tag is None:
            return
        with _lock:
            entry = self.pop(key, None)
            if entry is None or entry[0] != tag:
                entry = (tag, {})
            entry[1][place] = index
            self[key] = entry  # last in, last out
            if len(self) > _KEEP:
                del self[next(iter(self))]

    def clear(self) -> None:
        """Forget all shards, some of which have changed."""
        with _lock:
            super().clear()

    def drop(self, key: str) -> None:
        """Forget a shard that is about to change."""
        with _lock:
            self.pop(key, None)


_lock = threading.Lock()  # one for all, held for a moment


def _forget_lock() -> None:
    """Make a new lock in a forked child: the thread that held it does not exist here."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


class ShardSource:
    """The inner chunks of one value of a store, or of a range of it.

    Once it has given the places of chunks, all that it reads is of the same value, or it raises `ChangedError`. It
    keeps the tag for that itself, because other threads may put a newer index into the cache, or drop it.
    """

    __slots__ = ("shard", "merging", "_store", "_key", "_cache", "_start", "_length", "_tag", "_fresh")

    def __init__(
        self,
        shard: BoundShard,
        store: Store,
        key: str,
        cache: IndexCache,
        merging: tuple[int, int] = (GAP, 16 << 20),
        start: int = 0,
        length: int | None = None,
        tag: object = None,
    ) -> None:
        self.shard, self._store, self._key, self._cache, self.merging = shard, store, key, cache, merging
        self._start, self._length, self._tag = start, length, tag
        self._fresh = False
        """Whether the index was read just now."""

    def locate(self, coords: Iterable[Coords]) -> list[tuple[int, int] | None] | None:
        """Return offset and length of inner chunks, None for those not stored; None if there is no such shard."""
        index = self._index()
        layout = self.shard.index
        return None if index is None else [index.span(layout.number(at)) for at in coords]

    def _index(self) -> ShardIndex | None:
        """Return the index, remembered or read."""
        place, layout = (self._start, self._length), self.shard.index
        tag, remembered = self._cache.find(self._key, place)
        # It may be from before the array was resized, when the shard had another shape.
        fits = remembered is not None and len(remembered.table) == prod(layout.counts)
        if fits and (self._tag is None or self._tag == tag):
            self._tag = tag
            return remembered
        found = self._read([self._absolute(layout.span)])
        if found is None:
            return None
        self._tag, self._fresh = found.tag, True
        index = layout.parse(found.parts[0])
        self._cache.keep(self._key, self._tag, place, index)
        return index

    def read(self, spans: Sequence[tuple[int, int] | None]) -> list[Buffer | None] | None:
        """Read the bytes at some places, those close together by one request; None if there is no such shard.

        Without any place too, the store is asked: a remembered index may call missing what has been written since.
        """
        wanted = [span for span in spans if span is not None]
        groups = coalesced(wanted, *self.merging)
        if not groups and self._fresh:
            return [None] * len(spans)
        found = self._read([self._absolute(group) for group in groups])
        if found is None:
            return None
        parts = dict(zip(wanted, divided(wanted, dict(zip(groups, found.parts, strict=True))), strict=True))
        return [None if span is None else parts[span] for span in spans]

    def whole(self) -> Buffer | None:
        """Read all of it; None if there is no such shard."""
        found = self._store.read(self._key) if self._length is None else self._read([(self._start, self._length)])
        return None if found is None else found.parts[0]

    def within(self, shard: BoundShard, start: int, length: int) -> ShardSource:
        """Return a range of it as a shard of its own."""
        begin = self._start + start
        return ShardSource(shard, self._store, self._key, self._cache, self.merging, begin, length, self._tag)

    def _read(self, spans: Sequence[Span]) -> Value | None:
        """Read some ranges of the value, which is the one of the index if that was read already."""
        try:
            found = self._store.read(self._key, spans)
        except ShortReadError as error:
            if self._tag is None or self._is_same():
                raise
            raise ChangedError from error  # the index is of a longer value, which is gone
        if found is not None and self._tag is not None and found.tag != self._tag:
            raise ChangedError
        return found

    def _is_same(self) -> bool:
        """Return whether the value is still the one of the index."""
        found = self._store.read(self._key, ())
        return found is not None and found.tag == self._tag

    def _absolute(self, span: Span) -> Span:
        """Return a range of this shard as a range of the value."""
        start, length = span
        if self._length is None:
            return span
        begin = start if start >= 0 else self._length + start
        count = self._length - begin if length is None else length
        if begin < 0 or begin + count > self._length:
            raise ShortReadError(f"bytes {begin} to {begin + count} are not in a nested shard of {self._length} bytes")
        return self._start + begin, count


def plan_within(shard: BoundShard, copy: Copy) -> Plan:
    """Return what a copy picks of a shard, as a plan on the grid of its inner chunks."""
    axes, points = copy.axes()
    return plan_axes([axes[axis] for axis in shard.order], tuple(map(shard.order.index, points)), shard.grid.axes)


def work_within(shard: BoundShard, copy: Copy, work: AnyArray) -> AnyArray:
    """Return the part of a work array that belongs to a copy, its axes in the order of that plan."""
    points = () if copy.order is None else copy.order[: copy.points]
    others = [axis for axis in range(len(shard.order)) if axis not in points]
    lead = (0,) if points else ()
    return work.transpose((*lead, *(len(lead) + others.index(axis) for axis in shard.order if axis not in points)))


def stored_parts(shard: BoundShard, old: Old | None) -> dict[int, Part]:
    """Return where the bytes of each inner chunk of a stored shard are, by its number."""
    if old is None:
        return {}
    start, end = shard.index.place(old.size)
    index = shard.index.parse(old.read(start, shard.index.size), end)
    spans = ((number, index.span(number)) for number in range(prod(shard.counts)))
    return {number: Kept(*span) for number, span in spans if span is not None}


def replaced(shard: BoundShard, parts: Mapping[int, Part], changed: Mapping[int, Buffer | None]) -> list[Part]:
    """Return a shard after some inner chunks have changed, or are gone; the bytes of the others are kept."""
    after: dict[int, Part] = {**parts, **{number: raw for number, raw in changed.items() if raw is not None}}
    for number in [number for number, raw in changed.items() if raw is None]:
        after.pop(number, None)
    return [*_joined(shard.join(after))]


def _joined(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the same parts, where those that are kept and follow each other are one."""
    last: Kept | None = None
    for part in parts:
        if isinstance(part, Kept) and last is not None and part.start == last.start + last.length:
            last = Kept(last.start, last.length + part.length)
            continue
        if last is not None:
            yield last
        last = part if isinstance(part, Kept) else None
        if last is None:
            yield part
    if last is not None:
        yield last
