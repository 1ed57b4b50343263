"""What `Array` says about its stored chunks and its values: `coverage` and `stats`."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige.display.progress import Progress, ProgressLike
from zellige.io import select
from zellige.io.plan import plan_for
from zellige.types import AnyArray, Coords, Shape

if TYPE_CHECKING:
    from zellige.nodes.array import Array


@dataclass(frozen=True)
class Coverage:
    """Which chunks of an array are stored."""

    grid_shape: Shape
    stored: frozenset[Coords]
    array: Array | None = field(default=None, repr=False, compare=False)
    """The array that this was said of."""
    inner: Shape | None = field(default=None, repr=False, compare=False)
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
        """For each cell, which part of its chunks is stored: 0 to 1.

        A cell is a chunk, or a box of chunks where the grid has more than `most`.
        """
        steps = _steps(self.grid_shape, most)
        shape = tuple(-(-n // step) for n, step in zip(self.grid_shape, steps, strict=True))
        counts = np.zeros(shape)
        if self.stored:
            places = np.array(sorted(self.stored), np.intp).reshape(len(self.stored), -1) // np.array(steps, np.intp)
            np.add.at(counts, tuple(places.T), 1)
        sizes: AnyArray = np.ones(())
        for n, step in zip(self.grid_shape, steps, strict=True):
            starts = np.arange(0, n, step)
            sizes = np.multiply.outer(sizes, np.minimum(step, n - starts))
        return counts / sizes

    @property
    def map_axes(self) -> tuple[int, ...]:
        """The axes of a map: the two with the most chunks, in their order."""
        axes = sorted(range(len(self.grid_shape)), key=lambda axis: -self.grid_shape[axis])
        return tuple(sorted(axes[:2]))

    def to_text(self, width: int = 72, height: int = 24, marks: str = "·▒█") -> str:
        """A map of two axes, a character for each chunk: none of it stored, a part, or all of it.

        The axes are those with the most chunks, `map_axes`. A part is where several chunks share a character, along
        the other axes or because the map would be too large.

        >>> import zellige
        >>> a = zellige.zeros((6, 8), chunks=([1, 5], 2))
        >>> a[0, :5] = 1
        >>> print(a.coverage().to_text())
        ███·
        ····
        """
        none, part, every = tuple(marks)
        return "\n".join(
            "".join(none if cell == 0 else every if cell == 1 else part for cell in row)
            for row in self._cells(height, width).tolist()
        )

    def _cells(self, *room: int) -> AnyArray:
        """The part of the chunks that is stored, in a table of at most this size."""
        axes = self.map_axes
        lengths = [1] * (2 - len(axes)) + [self.grid_shape[axis] for axis in axes]
        steps = [max(1, -(-n // most)) for n, most in zip(lengths, room, strict=True)]
        places = [[0] * (2 - len(axes)) + [coords[axis] for axis in axes] for coords in self.stored]
        sizes = [np.minimum(step, n - np.arange(0, n, step)) for n, step in zip(lengths, steps, strict=True)]
        counts = np.zeros([len(size) for size in sizes])
        if places:
            np.add.at(counts, tuple((np.array(places) // steps).T), 1)
        others = self.total // max(1, prod(lengths))
        cells: AnyArray = counts / (np.multiply.outer(*sizes) * others)
        return cells

    def to_svg(self) -> str:
        """The grid as a picture, to scale, with the chunks filled that are stored.

        >>> import zellige
        >>> zellige.array([1, 2, 3], chunks=[[1, 2]]).coverage().to_svg()[:4]
        '<svg'
        """
        from zellige.display.svg import grid_svg

        if self.array is None:
            raise ValueError("this says nothing about the sizes of the chunks; ask array.coverage()")
        stored = np.array(sorted(self.stored), np.intp).reshape(len(self.stored), self.array.ndim)
        return grid_svg(self.array.grid, inner=self.inner, stored=stored, names=self.array.dimension_names)

    def __repr__(self) -> str:
        return f"<{len(self.stored):,} of {self.total:,} chunks are stored, {self.fraction:.1%}>"


def _steps(shape: Shape, most: int) -> list[int]:
    """How many chunks go into a cell along each axis, so that there are no more cells than that."""
    steps = [1] * len(shape)
    while prod(-(-n // step) for n, step in zip(shape, steps, strict=True)) > most:
        axis = max(range(len(shape)), key=lambda k: shape[k] / steps[k])
        steps[axis] *= 2
    return steps


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
        """Those of both."""
        means = [(part.mean, part.count - part.nan) for part in (self, other) if part.mean is not None]
        weight = sum(n for _, n in means)
        return Stats(
            self.count + other.count,
            self.nan + other.nan,
            _best(min, self.min, other.min),
            _best(max, self.max, other.max),
            sum(mean * (n / weight) for mean, n in means) if weight else None,
        )


NO_STATS = Stats(0, 0, None, None, None)


def _best(choose: Any, a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else choose(a, b)


def stats_of(values: AnyArray) -> Stats:
    """What the values of an array in memory come to."""
    flat, kind = values.reshape(-1), values.dtype.kind
    count = len(flat)
    if kind in "OV":
        return Stats(count, 0, None, None, None)
    missing = flat != flat if kind in "fcmM" else np.zeros(count, bool)
    real = flat[~missing] if missing.any() else flat
    low, high = _extremes(real)
    return Stats(count, count - len(real), _plain(low), _plain(high), _mean(real))


def _extremes(values: AnyArray) -> tuple[Any, Any]:
    """The least and the greatest; None for none, and for numbers without an order."""
    if not len(values) or values.dtype.kind == "c":
        return None, None
    return (min(values), max(values)) if values.dtype.kind in "UST" else (values.min(), values.max())


def _mean(values: AnyArray) -> float | complex | None:
    kind = values.dtype.kind if len(values) else ""
    if kind and kind in "biuf":
        return float(values.mean(dtype=np.float64))
    return complex(values.mean()) if kind == "c" else None


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
    found = NO_STATS
    for _, part in chunk_stats(array, selection, progress):
        found = found.merged(part)
    return found
