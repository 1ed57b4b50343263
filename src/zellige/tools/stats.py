"""What `Array` says about its stored chunks and values: `coverage`, `stats`, and what a read costs: `explain`."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige.codecs.sharding import BoundShard
from zellige.display.progress import Progress, ProgressLike
from zellige.display.text import human_bytes
from zellige.errors import CodecError, ShortReadError
from zellige.grid.grid import ChunkGrid
from zellige.io import select
from zellige.io.plan import Copy, plan_for
from zellige.io.select import Selection
from zellige.io.shard import IndexCache, ShardSource, plan_within
from zellige.stores import threads
from zellige.stores.base import coalesced
from zellige.types import AnyArray, Coords, Shape

if TYPE_CHECKING:
    from zellige.nodes.array import Array


@dataclass(frozen=True)
class Coverage:
    """Which chunks of an array are stored."""

    grid_shape: Shape
    stored: frozenset[Coords]
    array: Array = field(compare=False)
    inner: Shape | None = field(compare=False)
    """The shape of the inner chunks, if its chunks are shards."""

    @property
    def total(self) -> int:
        """How many chunks the grid has."""
        return prod(self.grid_shape)

    @property
    def fraction(self) -> float:
        """The part of the chunks that is stored; 1 for a grid without any."""
        return len(self.stored) / self.total if self.total else 1.0

    def to_array(self, most: int = 1 << 24) -> AnyArray:
        """Return which part of the chunks of each cell is stored: 0 to 1.

        Parameters
        ----------
        most
            The most cells. A cell is one chunk, or a box of chunks where the grid has more than that.
        """
        shape, steps = self.grid_shape, [1] * len(self.grid_shape)
        while prod(-(-n // step) for n, step in zip(shape, steps, strict=True)) > most:
            steps[max(range(len(shape)), key=lambda axis: shape[axis] / steps[axis])] *= 2
        return self._shares(range(len(shape)), steps)

    def _shares(self, axes: Sequence[int], steps: Sequence[int]) -> AnyArray:
        """For each cell of so many chunks along some axes, which part of its chunks is stored, over all other axes."""
        lengths = [self.grid_shape[axis] for axis in axes]
        sizes = [np.minimum(step, n - np.arange(0, n, step)) for n, step in zip(lengths, steps, strict=True)]
        counts = np.zeros([len(size) for size in sizes])
        if self.stored:
            places = np.array([[coords[axis] for axis in axes] for coords in self.stored], np.intp)
            np.add.at(counts, tuple((places // np.array(steps, np.intp)).T), 1)
        counts /= max(1, self.total // max(1, prod(lengths)))
        for axis, size in enumerate(sizes):
            counts /= size.reshape(-1, *[1] * (len(sizes) - axis - 1))
        return counts

    @property
    def map_axes(self) -> tuple[int, ...]:
        """The axes of a map: the two with the most chunks, in their order."""
        axes = sorted(range(len(self.grid_shape)), key=lambda axis: -self.grid_shape[axis])
        return tuple(sorted(axes[:2]))

    def to_text(self, width: int = 72, height: int = 24, marks: str = "·▒█") -> str:
        """Return a map of two axes, those with the most chunks (`map_axes`), with a character for each chunk.

        Several chunks share a character along the other axes, and where the map would be too large.

        Parameters
        ----------
        width, height
            The most characters in a line, and the most lines.
        marks
            Three characters: for cells of which nothing, a part, or all is stored.

        >>> import zellige
        >>> a = zellige.zeros((6, 8), chunks=([1, 5], 2))
        >>> a[0, :5] = 1
        >>> print(a.coverage().to_text())
        ███·
        ····
        """
        none, part, every = tuple(marks)
        axes = self.map_axes
        room = (height, width)[2 - len(axes) :]
        steps = [max(1, -(-self.grid_shape[axis] // most)) for axis, most in zip(axes, room, strict=True)]
        cells = np.atleast_2d(self._shares(axes, steps)).tolist()
        return "\n".join("".join(none if cell == 0 else every if cell == 1 else part for cell in row) for row in cells)

    def to_svg(self) -> str:
        """Return a picture of the grid, to scale, with the stored chunks filled.

        >>> import zellige
        >>> zellige.array([1, 2, 3], chunks=[[1, 2]]).coverage().to_svg()[:4]
        '<svg'
        """
        from zellige.display.svg import grid_svg

        stored = np.array(sorted(self.stored), np.intp).reshape(len(self.stored), self.array.ndim)
        return grid_svg(self.array.grid, inner=self.inner, stored=stored, names=self.array.dimension_names)

    def __repr__(self) -> str:
        return f"<{len(self.stored):,} of {self.total:,} chunks are stored, {self.fraction:.1%}>"


@dataclass(frozen=True)
class Stats:
    """What the values of a selection come to. NaN is counted, and left out of the others."""

    count: int
    nan: int
    min: Any
    """None if there is no value, or if the values have no order."""
    max: Any
    mean: float | complex | None
    """None if there is no value, or if the values are no numbers."""

    def merged(self, other: Stats) -> Stats:
        """Return the statistics of the values of both.

        Parameters
        ----------
        other
            The statistics of other values.
        """
        means = [(part.mean, part.count - part.nan) for part in (self, other) if part.mean is not None]
        weight = sum(n for _, n in means)
        return Stats(
            self.count + other.count,
            self.nan + other.nan,
            _best(min, self.min, other.min),
            _best(max, self.max, other.max),
            sum(mean * (n / weight) for mean, n in means) if weight else None,
        )


def _best(choose: Any, a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else choose(a, b)


def stats_of(values: AnyArray) -> Stats:
    """What the values of an array in memory come to."""
    flat, kind = values.reshape(-1), values.dtype.kind
    real, low, high = flat, None, None
    mean: float | complex | None = None
    if kind in "fcmM" and (missing := flat != flat).any():
        real = flat[~missing]
    if len(real) and kind in "UST":
        low, high = min(real), max(real)
    elif len(real) and kind not in "OVc":
        low, high = real.min(), real.max()
    if len(real) and kind in "biuf":
        mean = float(real.mean(dtype=np.float64))
    elif len(real) and kind == "c":
        mean = complex(real.mean())
    return Stats(len(flat), len(flat) - len(real), _plain(low), _plain(high), mean)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) and value.dtype.kind not in "mM" else value


# -- of arrays ------------------------------------------------------------------------------------


def coverage(array: Array, inner: Shape | None) -> Coverage:
    """Which chunks of an array are stored; `inner` is the shape of inner chunks."""
    shape = array.grid.grid_shape
    inside = (coords for coords, _ in array._chunks.stored(array.ndim) if all(map(operator.lt, coords, shape)))
    return Coverage(shape, frozenset(inside), array, inner)


def chunk_stats(array: Array, selection: Any, progress: ProgressLike) -> Iterator[tuple[Coords, Stats]]:
    """What the values of a selection come to, chunk by chunk."""
    plan = plan_for(select.basic(selection, array.shape), array.grid)
    with Progress(progress, len(plan), "measured", "chunks") as report:
        for copy in plan.copies():
            chunk: AnyArray = np.asarray(array[array.grid.spec(copy.coords).slices])
            yield copy.coords, stats_of(copy.of(chunk))
            report.advance(str(copy.coords))


def stats(array: Array, selection: Any, progress: ProgressLike) -> Stats:
    """What the values of a selection come to."""
    parts = (part for _, part in chunk_stats(array, selection, progress))
    return reduce(Stats.merged, parts, Stats(0, 0, None, None, None))


_EXACT = 100_000  # chunks; of more, so many are looked at
_SAMPLE = 1000
_POOR = 2.0  # a layout that decodes so many times less is worth a word
_SMALL_CHUNK, _LARGE_CHUNK = 64 << 10, 4 << 20
_MANY_REQUESTS = 1000


@dataclass(frozen=True)
class Explanation:
    """What reading a selection would cost, with nothing remembered from before."""

    elements: int
    """How many elements the selection has."""
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
        """How many times more is decoded than is wanted."""
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
    looked_at = list(plan.copies() if count <= _EXACT else map(plan.copy, range(0, count, count // _SAMPLE)))
    found: Counter[str] = Counter()
    for cost in threads.gather(partial(_cost, array), looked_at, array.store):
        found.update(cost)
    share = count / len(looked_at) if looked_at else 0
    costs = {name: round(share * found[name]) for name in _COSTS}
    elements = prod(selection.result_shape)
    wanted = elements * array.dtype.itemsize
    words = _suggestion(array, inner, selection, count, wanted, costs["bytes_decoded"])
    return Explanation(elements, wanted, count, **costs, exact=count <= _EXACT, suggestion=words)


_COSTS = ("missing", "inner_chunks", "requests", "bytes_read", "bytes_decoded")
"""Fields of `Explanation` that are sums over the stored chunks."""


def _cost(array: Array, copy: Copy) -> Counter[str]:
    """What one stored chunk costs; goes the ways of `zellige.io.read`, and only counts."""
    chunks, store = array._chunks, array.store
    bound, key = chunks.chain.bound[copy.shape], chunks.key(copy.coords)
    cost: Counter[str] = Counter()
    size = store.size(key)
    if isinstance(bound.shard, BoundShard):
        source = ShardSource(bound.shard, store, key, IndexCache(), chunks.merging)
        try:
            _count_inner(source, copy, cost, size)
        except (CodecError, ShortReadError) as error:
            raise chunks.corrupt(error, copy.coords) from error
        return cost
    part = None
    if not copy.whole and bound.strides is not None:
        part = bound.part(copy.inside, copy.order, store.traits.coalesce_gap)
    for nbytes in [size] if part is None else [None if size is None else length for _, length in part.spans]:
        _ask(cost, nbytes)
    if size is not None:
        cost.update(inner_chunks=1, bytes_decoded=bound.nbytes if part is None else cost["bytes_read"])
    return cost


def _count_inner(source: ShardSource, copy: Copy, cost: Counter[str], size: int | None) -> None:
    """Add what a copy picks from a shard of so many bytes; its index is read."""
    shard = source.shard
    plan = plan_within(shard, copy)
    itemsize = shard.spec.dtype.numpy.itemsize
    if len(plan) == prod(shard.counts):
        _ask(cost, size)
        if size is not None:
            cost.update(inner_chunks=len(plan), bytes_decoded=prod(shard.shape) * itemsize)
        return
    spans = source.locate(inner.coords for inner in plan.copies())
    _ask(cost, None if spans is None else shard.index.size)
    wanted: list[tuple[int, int]] = []
    for inner, span in zip(plan.copies(), spans or [], strict=spans is not None):
        within = shard.chain.bound[inner.shape].shard
        if span is not None and not inner.whole and isinstance(within, BoundShard):
            _count_inner(source.within(within, *span), inner, cost, span[1])
        else:
            wanted += [] if span is None else [span]
            cost.update(inner_chunks=1, bytes_decoded=prod(inner.shape) * itemsize)
    for _, length in coalesced(wanted, *source.merging):
        _ask(cost, length)


def _ask(cost: Counter[str], nbytes: int | None) -> None:
    """Add a request, which finds so many bytes, or nothing."""
    cost.update(requests=1, bytes_read=nbytes or 0)
    cost["missing"] = int(nbytes is None)


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
    spans = [1 + (axis[-1] - axis[0] if isinstance(axis, range) else int(np.ptp(axis))) for axis in selection.axes]
    most = _LARGE_CHUNK // max(1, array.dtype.itemsize)
    while prod(spans) > most:
        axis = max(range(len(spans)), key=spans.__getitem__)
        spans[axis] = ceil(spans[axis] / 2)
    return tuple(spans)
