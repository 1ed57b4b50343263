"""What reading a selection would cost: counted with the plans of reads, without reading a chunk.

Sizes of stored values are asked for, and the indexes of shards are read; nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from zellige.codecs.sharding import BoundShard
from zellige.display.text import human_bytes
from zellige.grid.grid import ChunkGrid
from zellige.io.plan import Copy, Plan, plan_for
from zellige.io.select import Selection
from zellige.io.shard import IndexCache, ShardSource, plan_within
from zellige.stores import threads
from zellige.stores.base import coalesced
from zellige.types import Shape

if TYPE_CHECKING:
    from zellige.nodes.array import Array

_EXACT = 100_000  # chunks; of more, so many are looked at
_SAMPLE = 1000
_POOR = 2.0  # a layout that decodes so many times less is worth a word
_SMALL_CHUNK, _LARGE_CHUNK = 64 << 10, 4 << 20
_MANY_REQUESTS = 1000


@dataclass(frozen=True)
class Explanation:
    """What reading a selection would cost, with nothing remembered from before."""

    elements: int
    """How many elements are asked for."""
    bytes_wanted: int
    """Their size in memory."""
    chunks: int
    """How many stored values are touched: chunks, or shards."""
    missing: int
    """How many of them are not stored; asking for one costs a request all the same."""
    inner_chunks: int
    """How many chunks are decoded: of shards, the inner ones."""
    requests: int
    """How many requests the store gets."""
    bytes_read: int
    """How many bytes it sends."""
    bytes_decoded: int
    """How many bytes of elements the chunks have that are decoded, wanted or not."""
    exact: bool = True
    """Whether every chunk was looked at; of very many, a sample is, and the numbers are estimates."""
    suggestion: str | None = None
    """A layout that would serve this selection better, if there is one."""

    @property
    def amplification(self) -> float:
        """How many times more is decoded than was asked for."""
        return self.bytes_decoded / self.bytes_wanted if self.bytes_wanted else 0.0

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        missing = f", {about}{self.missing:,} of them not stored" if self.missing else ""
        lines = [
            f"wanted   {self.elements:,} elements, {human_bytes(self.bytes_wanted)}",
            f"touched  {self.chunks:,} stored chunk{'s' * (self.chunks != 1)}{missing}",
            f"asked    {about}{self.requests:,} request{'s' * (self.requests != 1)}, {human_bytes(self.bytes_read)}",
            f"decoded  {about}{self.inner_chunks:,} chunk{'s' * (self.inner_chunks != 1)}, "
            f"{human_bytes(self.bytes_decoded)}: {self.amplification:.1f} times what is wanted",
        ]
        return "\n".join([*lines, *([f"better   {self.suggestion}"] if self.suggestion else [])])


def explain(array: Array, selection: Selection, inner: Shape | None) -> Explanation:
    """What reading a selection of an array would cost; `inner` is the shape of inner chunks."""
    plan = plan_for(selection, array.grid)
    count = len(plan)
    looked_at = list(plan.copies() if count <= _EXACT else _sample(plan))
    found = threads.gather(_Costing(array).of, looked_at, array.store)
    share = count / len(looked_at) if looked_at else 0
    missing, chunks, asked, read, decoded = (
        round(share * sum(getattr(cost, name) for cost in found)) for name in _COST
    )
    elements = prod(selection.result_shape)
    wanted = elements * array.dtype.itemsize
    words = _suggestion(array, inner, selection, count, wanted, decoded)
    return Explanation(elements, wanted, count, missing, chunks, asked, read, decoded, count <= _EXACT, words)


def _sample(plan: Plan) -> Iterator[Copy]:
    """Copies at even distances."""
    return map(plan.copy, range(0, len(plan), len(plan) // _SAMPLE))


# -- of one chunk ---------------------------------------------------------------------------------

_COST = ("missing", "inner", "requests", "read", "decoded")


@dataclass
class _Cost:
    """What one stored chunk costs; see `Explanation`."""

    missing: int = 0
    inner: int = 0
    requests: int = 0
    read: int = 0
    decoded: int = 0

    def ask(self, nbytes: int | None) -> None:
        """One request, which finds so many bytes, or nothing."""
        self.requests += 1
        self.read += nbytes or 0
        self.missing = int(nbytes is None)

    def decode(self, count: int, nbytes: int) -> None:
        """So many chunks are decoded, of so many bytes together."""
        self.inner += count
        self.decoded += nbytes


class _Costing:
    """Goes the ways of `zellige.io.read`, and only counts."""

    def __init__(self, array: Array) -> None:
        self.chunks, self.store = array._chunks, array.store

    def of(self, copy: Copy) -> _Cost:
        """The cost of one stored chunk."""
        bound, key, cost = self.chunks.chain.bound[copy.shape], self.chunks.key(copy.coords), _Cost()
        if isinstance(bound.shard, BoundShard):
            source = ShardSource(bound.shard, self.store, key, IndexCache(), self.chunks.merging)
            self._count_inner(source, copy, cost, self.store.size(key))
            return cost
        part = (
            None
            if copy.whole or bound.strides is None
            else bound.part(copy.inside, copy.order, self.store.traits.coalesce_gap)
        )
        size = self.store.size(key)
        for nbytes in [size] if part is None else [None if size is None else length for _, length in part.spans]:
            cost.ask(nbytes)
        if size is not None:
            cost.decode(1, bound.nbytes if part is None else cost.read)
        return cost

    def _count_inner(self, source: ShardSource, copy: Copy, cost: _Cost, size: int | None) -> None:
        """The cost of what a copy picks from a shard of so many bytes; its index is read."""
        shard = source.shard
        plan = plan_within(shard, copy)
        itemsize = shard.spec.dtype.numpy.itemsize
        if len(plan) == prod(shard.counts):
            cost.ask(size)
            if size is not None:
                cost.decode(len(plan), prod(shard.shape) * itemsize)
            return
        spans = source.locate(inner.coords for inner in plan.copies())
        cost.ask(None if spans is None else shard.index.size)
        wanted: list[tuple[int, int]] = []
        for inner, span in zip(plan.copies(), spans or [], strict=spans is not None):
            within = shard.chain.bound[inner.shape].shard
            if span is not None and not inner.whole and isinstance(within, BoundShard):
                self._count_inner(source.within(within, *span), inner, cost, span[1])
            else:
                wanted += [] if span is None else [span]
                cost.decode(1, prod(inner.shape) * itemsize)
        for _, length in coalesced(wanted, *source.merging):
            cost.ask(length)


# -- a better layout ------------------------------------------------------------------------------


def _suggestion(
    array: Array, inner: Shape | None, selection: Selection, count: int, wanted: int, decoded: int
) -> str | None:
    """Words about a layout in which this selection would decode much less, or ask much less often."""
    if not wanted or not array.ndim:
        return None
    shape = _fitting(array, selection)
    plan = plan_for(selection, ChunkGrid.from_sizes(array.shape, shape))
    there = len(plan) * prod(shape) * array.dtype.itemsize
    sizes = ", ".join(map(str, shape))
    if decoded > _POOR * there:
        return f"chunks=({sizes}) would decode {human_bytes(there)} instead of {human_bytes(decoded)}"
    each = prod(inner or array.grid.spec((0,) * array.ndim).codec_shape) * array.dtype.itemsize
    if inner is None and count > _MANY_REQUESTS and each < _SMALL_CHUNK:
        return f"{count:,} small chunks are asked for one by one; shards= keeps many of them in one stored value"
    return None


def _fitting(array: Array, selection: Selection) -> Shape:
    """A chunk shape like the selection: long where it is long, and of a usual size in bytes."""
    spans = [max(1, _span(axis)) for axis in selection.axes]
    most = _LARGE_CHUNK // max(1, array.dtype.itemsize)
    while prod(spans) > most:
        axis = max(range(len(spans)), key=spans.__getitem__)
        spans[axis] = ceil(spans[axis] / 2)
    return tuple(spans)


def _span(axis: Any) -> int:
    """From the first to the last index that is picked."""
    if not len(axis):
        return 0
    return int(max(axis)) - int(min(axis)) + 1 if not isinstance(axis, range) else abs(axis[-1] - axis[0]) + 1
