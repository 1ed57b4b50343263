"""The chunk grid: one concrete arrangement of chunks, regular or rectilinear, bound to an array's shape.

A grid is the product of its dimensions, and each dimension answers every question about its own chunks:
how many, where they begin, how large. A chunk has two sizes: `chunk_size` is what the codecs see,
`data_size` is what the array holds of it. They differ where a chunk reaches over the end of the array.

>>> grid = ChunkGrid.from_sizes((6, 7), [[1, 2, 3], 4])
>>> grid.grid_shape, grid.is_regular
((3, 2), False)
>>> grid[2, 1]
ChunkSpec(slices=(slice(3, 6, None), slice(4, 7, None)), codec_shape=(3, 4))
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol, overload

from zellige.errors import BoundsCheckError, ChunkShapeError, RectilinearChunksError
from zellige.grid.axis import (
    Axis,
    AxisChunks,
    BoundedDimension,
    DimensionGrid,
    FixedDimension,
    VaryingDimension,
    as_axis,
    from_chunks,
    is_size,
    no_chunk,
)
from zellige.grid.edges import EdgeEntries, Edges, Sizes, as_tuple
from zellige.types import Coords, Shape

__all__ = [
    "Axis",
    "AxisChunks",
    "BoundedDimension",
    "ChunkGrid",
    "ChunkSpec",
    "DimensionGrid",
    "FixedDimension",
    "SubGrid",
    "VaryingDimension",
]


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """One chunk.

    Parameters
    ----------
    slices
        The region of the array that it holds.
    codec_shape
        The shape that the codecs see, which is larger where the chunk reaches over the end of the array.

    """

    slices: tuple[slice, ...]
    codec_shape: Shape

    @property
    def shape(self) -> Shape:
        """The shape of the region inside the array."""
        return tuple(s.stop - s.start for s in self.slices)

    @property
    def is_boundary(self) -> bool:
        """Whether the chunk reaches over the end of the array."""
        return self.shape != self.codec_shape


class GridDocument(Protocol):
    """A grid as documents describe it: per axis a size or edges, without extents."""

    @property
    def axes(self) -> tuple[AxisChunks, ...]:
        """How each axis is cut."""


class ArrayDocument(Protocol):
    """The part of an array's metadata that a grid is made from."""

    @property
    def shape(self) -> Shape:
        """The array's shape."""

    @property
    def chunk_grid(self) -> GridDocument:
        """The declared grid."""


@dataclass(frozen=True)
class ChunkGrid:
    """The arrangement of an array's chunks: a collection of `ChunkSpec` with a position each.

    >>> grid = ChunkGrid.from_sizes((59, 4), ([31, 28], 4))
    >>> grid.grid_shape, grid[1, 0].slices
    ((2, 1), (slice(31, 59, None), slice(0, 4, None)))

    Parameters
    ----------
    dimensions
        The axes: `FixedDimension`, `VaryingDimension`, or other classes with the names of `DimensionGrid`.

    """

    dimensions: tuple[DimensionGrid, ...]

    @classmethod
    def from_sizes(cls, array_shape: Sequence[int], chunk_sizes: Sequence[int | EdgeEntries]) -> ChunkGrid:
        """Return a grid from one size, or one list of edges, per axis.

        Parameters
        ----------
        array_shape
            The shape of the array.
        chunk_sizes
            For each axis a size that repeats, or edges: lengths and `[length, count]` runs.

        """
        if len(array_shape) != len(chunk_sizes):
            raise ChunkShapeError(
                f"{len(chunk_sizes)} chunk sizes for {len(array_shape)} dimensions; give one entry for each axis"
            )
        pairs = zip(chunk_sizes, array_shape, strict=True)
        return cls(tuple(from_chunks(_axis_chunks(c), operator.index(n)) for c, n in pairs))

    @classmethod
    def from_metadata(cls, metadata: ArrayDocument) -> ChunkGrid:
        """Return the grid that an array's metadata declares, edges kept as they are declared there.

        Parameters
        ----------
        metadata
            What has the `shape` and the `chunk_grid` of an array, such as its `metadata`.

        """
        fixed = BoundedDimension if getattr(metadata.chunk_grid, "bounded", False) else FixedDimension
        pairs = zip(metadata.chunk_grid.axes, metadata.shape, strict=True)
        return cls(tuple(fixed(c, n) if isinstance(c, int) else VaryingDimension(c, n) for c, n in pairs))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.dimensions)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The dimensions as plans and documents see them."""
        return tuple(map(as_axis, self.dimensions))

    @cached_property
    def shape(self) -> Shape:
        """The shape of the array."""
        return tuple(dim.extent for dim in self.dimensions)

    @cached_property
    def grid_shape(self) -> Shape:
        """The number of chunks along each axis."""
        return tuple(dim.nchunks for dim in self.dimensions)

    @cached_property
    def is_regular(self) -> bool:
        """Whether all chunks have one shape."""
        return all(isinstance(dim, FixedDimension) for dim in self.dimensions)

    @property
    def chunk_shape(self) -> Shape:
        """The shape of every chunk of a regular grid; raises for a rectilinear one."""
        if not self.is_regular:
            raise RectilinearChunksError(
                "the chunks of a rectilinear grid have no common shape; use chunk_sizes, or read_chunk_sizes and "
                "write_chunk_sizes of the array"
            )
        return tuple(axis.declared for axis in self.axes if isinstance(axis.declared, int))

    @property
    def chunk_sizes(self) -> tuple[Sizes, ...]:
        """The data sizes along each axis, as dask writes chunks.

        Tuples of integers; an axis of more than a million chunks has a `LazyTuple`, which behaves like one.
        """
        return tuple(as_tuple(axis.data_runs) for axis in self.axes)

    def get_nchunks(self) -> int:
        """Return the number of chunks that overlap the array."""
        return prod(self.grid_shape)

    __len__ = get_nchunks

    def __bool__(self) -> bool:
        return all(self.grid_shape)  # len() fails beyond 2**63

    def update_shape(
        self, new_shape: Sequence[int], chunks: Sequence[int | EdgeEntries | None] | None = None
    ) -> ChunkGrid:
        """Return the grid after a resize.

        Parameters
        ----------
        new_shape
            The shape of the array after it.
        chunks
            For each axis how its new region is cut: a size, edges, or None for more of the same.

        """
        if len(new_shape) != self.ndim:
            raise ChunkShapeError(f"the new shape {tuple(new_shape)} has another rank than {self.shape}")
        new = chunks if chunks is not None else [None] * self.ndim
        return ChunkGrid(tuple(axis.resize(n, c) for axis, n, c in zip(self.axes, new_shape, new, strict=True)))

    def all_chunk_coords(
        self, *, origin: Sequence[int] | None = None, selection_shape: Sequence[int] | None = None
    ) -> Iterator[Coords]:
        """Return the coordinates of all chunks in C order, or of a box of chunks.

        Parameters
        ----------
        origin
            The first chunk of the box; that of the grid if left out.
        selection_shape
            How many chunks the box has along each axis; all from `origin` on if left out.

        """
        first = origin if origin is not None else (0,) * self.ndim
        last = self.grid_shape if selection_shape is None else map(operator.add, first, selection_shape)
        return _walk(tuple(range(*bounds) for bounds in zip(first, last, strict=True)))

    def spec(self, coords: Coords) -> ChunkSpec:
        """Return the chunk at these coordinates; IndexError outside the grid.

        Parameters
        ----------
        coords
            The position of the chunk in the grid, one number for each axis.

        """
        slices, sizes = [], []
        for dim, k in zip(self.dimensions, coords, strict=True):
            if not 0 <= k < dim.nchunks:
                raise no_chunk(k, dim.nchunks)
            start = dim.chunk_offset(k)
            slices.append(slice(start, start + dim.data_size(k)))
            sizes.append(dim.chunk_size(k))
        return ChunkSpec(tuple(slices), tuple(sizes))

    @overload
    def __getitem__(self, coords: int | tuple[int, ...]) -> ChunkSpec | None: ...
    @overload
    def __getitem__(self, coords: Any) -> SubGrid | ChunkSpec | None: ...
    def __getitem__(self, coords: Any) -> SubGrid | ChunkSpec | None:
        """Return a chunk, or None outside the grid; with slices, or fewer coordinates, a view of the grid."""
        found: SubGrid | ChunkSpec | None = SubGrid(self, tuple(map(range, self.grid_shape)))[coords]
        return found

    def to_text(self, width: int = 72, height: int = 12) -> str:
        """Draw the last two axes with characters, to scale; one axis is a ruler.

        >>> print(ChunkGrid.from_sizes((90,), [[31, 28, 31]]).to_text(width=30))
        ┌─────────┬────────┬─────────┐
        └─────────┴────────┴─────────┘
             31       28        31

        Parameters
        ----------
        width, height
            The most characters of a line, and the most lines.

        """
        from zellige.display.text import draw_grid

        return draw_grid(self, width, height)

    def to_svg(self, *, width: int = 360, height: int = 260) -> str:
        """Draw the last two axes as SVG, to scale, with the sizes of the chunks.

        >>> picture = ChunkGrid.from_sizes((5, 12), [[1, 4], [3, 6, 3]]).to_svg()
        >>> picture[:4], "2 chunks of 1 to 4 by 3 chunks of 3 to 6" in picture
        ('<svg', True)

        Parameters
        ----------
        width, height
            The size of the picture in pixels.

        """
        from zellige.display.svg import grid_svg

        return grid_svg(self, width=width, height=height)

    def __iter__(self) -> Iterator[ChunkSpec]:
        return map(self.spec, self.all_chunk_coords())


@dataclass(frozen=True, slots=True)
class SubGrid:
    """A view of some rows of chunks: `grid[0, :]`, `grid[1:3, ::2]`. Positions count within the view."""

    grid: ChunkGrid
    ranges: tuple[range, ...]

    @property
    def grid_shape(self) -> Shape:
        """The number of chunks along each axis; an axis picked by a number has one."""
        return tuple(map(len, self.ranges))

    def all_chunk_coords(self) -> Iterator[Coords]:
        """Return the coordinates in the whole grid of the chunks in the view."""
        return _walk(self.ranges)

    def __len__(self) -> int:
        return prod(self.grid_shape)

    def __bool__(self) -> bool:
        return all(self.ranges)

    def __iter__(self) -> Iterator[ChunkSpec]:
        return map(self.grid.spec, self.all_chunk_coords())

    def __getitem__(self, coords: Any) -> Any:
        items = _expand(coords, len(self.ranges))
        items += (slice(None),) * (len(self.ranges) - len(items))
        if not any(isinstance(item, slice) for item in items):
            inside = all(0 <= k < len(r) for k, r in zip(items, self.ranges, strict=True))
            return self.grid.spec(tuple(r[k] for k, r in zip(items, self.ranges, strict=True))) if inside else None
        return SubGrid(self.grid, tuple(_narrow(r, item) for r, item in zip(self.ranges, items, strict=True)))


def _narrow(axis: range, item: int | slice) -> range:
    if isinstance(item, slice):
        return axis[item]
    if not 0 <= item < len(axis):
        raise no_chunk(item, len(axis))
    return axis[item : item + 1]


def expand_ellipsis(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Return the items with one `...` replaced by as many full slices as there is room for."""
    for at, item in enumerate(items):
        if item is Ellipsis:
            return (*items[:at], *[slice(None)] * (ndim - len(items) + 1), *items[at + 1 :])
    return items


def _expand(coords: Any, ndim: int) -> tuple[Any, ...]:
    """Return the coordinates as a tuple of integers and slices, without an ellipsis."""
    items = expand_ellipsis(coords if isinstance(coords, tuple) else (coords,), ndim)
    if len(items) > ndim:
        raise BoundsCheckError(f"{len(items)} coordinates for a grid of {ndim} dimensions")
    return tuple(item if isinstance(item, slice) else operator.index(item) for item in items)


def _axis_chunks(chunks: int | EdgeEntries) -> AxisChunks:
    if is_size(chunks):
        return operator.index(chunks)
    if not isinstance(chunks, Iterable):
        raise ChunkShapeError(f"{chunks!r} is neither a chunk size nor a list of edges")
    return Edges.of(chunks)


def _walk(axes: tuple[range, ...]) -> Iterator[Coords]:
    """Yield the product of the axes in C order, without holding any of them."""
    if not axes:
        yield ()
        return
    for head in _walk(axes[:-1]):
        for k in axes[-1]:
            yield (*head, k)
