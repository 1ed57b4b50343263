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
from typing import Any, Protocol, TypeAlias, TypeGuard, overload, runtime_checkable

import numpy as np

from zellige.errors import BoundsCheckError, ChunkShapeError, RectilinearChunksError
from zellige.runs import Cumulative, EdgeEntries, Edges, positive_integer
from zellige.types import Coords, Indices, Shape

AxisChunks: TypeAlias = int | Edges
"""How one axis is cut: one size that repeats, or a list of edges."""


@runtime_checkable
class DimensionGrid(Protocol):
    """What every kind of dimension answers; callers never ask which kind it is."""

    @property
    def extent(self) -> int:
        """The array's length along this axis."""

    @property
    def nchunks(self) -> int:
        """How many chunks overlap the array."""

    @property
    def ngridcells(self) -> int:
        """How many chunks are declared; more than `nchunks` where edges lie beyond the array."""

    @property
    def unique_edge_lengths(self) -> Iterable[int]:
        """Every chunk size that occurs, once."""

    @property
    def data_sizes(self) -> Edges:
        """The data size of every chunk that overlaps the array."""

    @property
    def chunks(self) -> AxisChunks:
        """How the axis is cut, without its extent."""

    def index_to_chunk(self, idx: int) -> int:
        """The chunk that holds an element; IndexError outside the array."""

    def indices_to_chunks(self, indices: Indices) -> Indices:
        """`index_to_chunk` for an array of elements inside the array."""

    def locate(self, idx: int) -> tuple[int, int, int]:
        """The chunk that holds an element inside the array, where it begins, and its chunk size."""

    def chunk_offset(self, chunk_ix: int) -> int:
        """The first element of a chunk; IndexError if there is no such chunk."""

    def chunk_size(self, chunk_ix: int) -> int:
        """The length that the codecs see."""

    def data_size(self, chunk_ix: int) -> int:
        """The length that lies inside the array."""

    def with_extent(self, new_extent: int) -> DimensionGrid:
        """The same edges for another extent."""

    def resize(self, new_extent: int, chunks: int | EdgeEntries | None = None) -> DimensionGrid:
        """The dimension after a resize; `chunks` says how the new region is cut. Existing edges stay."""


@dataclass(frozen=True, slots=True)
class FixedDimension:
    """Uniform chunks; the last one may reach over the end, and is still encoded at full size."""

    size: int
    extent: int

    def __post_init__(self) -> None:
        if not _is_size(self.size) or self.size < 0:
            raise ChunkShapeError(f"chunk size must be an integer >= 0, found {self.size!r}")
        _check_extent(self.extent)

    @property
    def nchunks(self) -> int:
        """How many chunks overlap the array."""
        return -(-self.extent // self.size) if self.size else 0

    ngridcells = nchunks

    @property
    def unique_edge_lengths(self) -> tuple[int]:
        """The one chunk size."""
        return (self.size,)

    @property
    def data_sizes(self) -> Edges:
        """The data size of every chunk that overlaps the array."""
        whole, rest = divmod(self.extent, self.size) if self.size else (0, 0)
        return Edges.of_runs(run for run in ((self.size, whole), (rest, int(rest > 0))) if run[1])

    @property
    def chunks(self) -> int:
        """The size that repeats."""
        return self.size

    def index_to_chunk(self, idx: int) -> int:
        """The chunk that holds an element."""
        if not 0 <= idx < self.extent or not self.size:
            raise _no_element(idx, self.extent)
        return idx // self.size

    def indices_to_chunks(self, indices: Indices) -> Indices:
        """The chunks that hold some elements."""
        return indices // self.size

    def locate(self, idx: int) -> tuple[int, int, int]:
        """The chunk that holds an element, where it begins, and its size."""
        chunk = idx // self.size
        return chunk, chunk * self.size, self.size

    def chunk_offset(self, chunk_ix: int) -> int:
        """The first element of a chunk."""
        self._check_chunk(chunk_ix)
        return chunk_ix * self.size

    def chunk_size(self, chunk_ix: int) -> int:
        """The length that the codecs see: the same for all."""
        self._check_chunk(chunk_ix)
        return self.size

    def data_size(self, chunk_ix: int) -> int:
        """The length that lies inside the array."""
        self._check_chunk(chunk_ix)
        return max(0, min(self.size, self.extent - chunk_ix * self.size))

    def _check_chunk(self, chunk_ix: int) -> None:
        if not 0 <= chunk_ix * self.size < self.extent or not self.size:
            raise _no_chunk(chunk_ix, self.nchunks)

    def with_extent(self, new_extent: int) -> FixedDimension:
        """The same size for another extent."""
        return FixedDimension(self.size, new_extent)

    def resize(self, new_extent: int, chunks: int | EdgeEntries | None = None) -> DimensionGrid:
        """Uniform chunks stay uniform, unless `chunks` cuts the new region otherwise."""
        reach = self.nchunks * self.size
        same = _is_size(chunks) and chunks == self.size
        if chunks is None or new_extent <= reach or same:
            return self.with_extent(new_extent)
        edges = Edges.of_runs([(self.size, self.nchunks)] if self.nchunks else [])
        return from_chunks(edges + _new_edges(chunks, new_extent - reach), new_extent)


class VaryingDimension:
    """Explicit edges, kept as runs. The last chunks may reach over the end, or lie wholly beyond it.

    `edges` are lengths and `[length, count]` runs, mixed as you like.

    >>> months = VaryingDimension([31, 28, 31], 90)
    >>> months.index_to_chunk(31), months.chunk_offset(2)
    (1, 59)
    >>> VaryingDimension([[1, 10**12]], 10**12).nchunks
    1000000000000
    """

    __slots__ = ("edges", "extent", "nchunks")

    edges: Edges
    extent: int
    nchunks: int

    def __init__(self, edges: EdgeEntries, extent: int) -> None:
        self.edges = Edges.of(edges)
        self.extent = _check_extent(extent)
        if not len(self.edges):
            raise ChunkShapeError("an axis needs at least one edge")
        if extent > self.edges.total:
            raise ChunkShapeError(
                f"edges sum to {self.edges.total}, the shape needs {extent}; append {extent - self.edges.total} more"
            )
        self.nchunks = self.edges.chunk_of(extent - 1) + 1 if extent else 0

    @property
    def cumulative(self) -> Sequence[int]:
        """The running sums of the edges, computed on demand."""
        return Cumulative(self.edges)

    @property
    def ngridcells(self) -> int:
        """How many edges are declared."""
        return len(self.edges)

    @property
    def unique_edge_lengths(self) -> Iterable[int]:
        """Every edge length that occurs, once."""
        return self.edges.unique()

    @property
    def data_sizes(self) -> Edges:
        """The data size of every chunk that overlaps the array."""
        return self.edges.clipped(self.extent)

    @property
    def chunks(self) -> Edges:
        """The edges."""
        return self.edges

    def index_to_chunk(self, idx: int) -> int:
        """The chunk that holds an element."""
        if not 0 <= idx < self.extent:
            raise _no_element(idx, self.extent)
        return self.edges.chunk_of(idx)

    def indices_to_chunks(self, indices: Indices) -> Indices:
        """The chunks that hold some elements."""
        indices = np.asarray(indices)
        return self.edges.chunks_of(np.atleast_1d(indices)).reshape(indices.shape)

    def locate(self, idx: int) -> tuple[int, int, int]:
        """The chunk that holds an element, where it begins, and its size."""
        return self.edges.locate(idx)

    def chunk_offset(self, chunk_ix: int) -> int:
        """The first element of a chunk."""
        self._check_chunk(chunk_ix)
        return self.edges.offset(chunk_ix)

    def chunk_size(self, chunk_ix: int) -> int:
        """The length that the codecs see: the declared edge."""
        self._check_chunk(chunk_ix)
        return self.edges[chunk_ix]

    def data_size(self, chunk_ix: int) -> int:
        """The length that lies inside the array."""
        self._check_chunk(chunk_ix)
        return max(0, min(self.edges[chunk_ix], self.extent - self.edges.offset(chunk_ix)))

    def _check_chunk(self, chunk_ix: int) -> None:
        if not 0 <= chunk_ix < len(self.edges):
            raise _no_chunk(chunk_ix, len(self.edges))

    def with_extent(self, new_extent: int) -> VaryingDimension:
        """The same edges for another extent, which they must reach."""
        return VaryingDimension(self.edges, new_extent)

    def resize(self, new_extent: int, chunks: int | EdgeEntries | None = None) -> VaryingDimension:
        """Shrinking keeps the edges. Growing uses their slack, then `chunks`, or repeats the last edge."""
        missing = new_extent - self.edges.total
        if missing <= 0:
            return self.with_extent(new_extent)
        new = _new_edges(self.edges[-1] if chunks is None else chunks, missing)
        return VaryingDimension(self.edges + new, new_extent)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VaryingDimension):
            return NotImplemented
        return self.extent == other.extent and self.edges == other.edges

    def __hash__(self) -> int:
        return hash((VaryingDimension, self.extent, len(self.edges), self.edges.total))

    def __repr__(self) -> str:
        return f"VaryingDimension(edges={self.edges!r}, extent={self.extent})"

    def __reduce__(self) -> tuple[Any, ...]:
        return VaryingDimension, (self.edges, self.extent)


def from_chunks(chunks: AxisChunks, extent: int) -> FixedDimension | VaryingDimension:
    """A dimension from a size or edges; uniform edges that fit the extent exactly are a size."""
    if isinstance(chunks, int):
        return FixedDimension(chunks, extent)
    dimension = VaryingDimension(chunks, extent)
    if chunks.total == extent and len(chunks.starts) == 2:  # one run
        return FixedDimension(chunks[0], extent)
    return dimension


def _new_edges(chunks: int | EdgeEntries, missing: int) -> Edges:
    """The edges that cover `missing` elements beyond the present ones."""
    if isinstance(chunks, int | np.integer):
        size = positive_integer(chunks, "chunks for the new region")
        return Edges.of_runs([(size, -(-missing // size))])
    edges = Edges.of(chunks)
    if edges.total < missing:
        raise ChunkShapeError(
            f"chunks for the new region sum to {edges.total}, but {missing} elements lie beyond the present edges; "
            f"append {missing - edges.total} more"
        )
    return edges


def _check_extent(extent: int) -> int:
    if not _is_size(extent) or extent < 0:
        raise ChunkShapeError(f"extent must be an integer >= 0, found {extent!r}")
    return extent


def _no_element(idx: int, extent: int) -> BoundsCheckError:
    return BoundsCheckError(f"index {idx} is out of bounds for an axis of length {extent}")


def _no_chunk(chunk_ix: int, count: int) -> BoundsCheckError:
    return BoundsCheckError(f"chunk {chunk_ix} is out of bounds for an axis of {count} chunks")


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """One chunk: the region of the array that it holds, and the shape that the codecs see."""

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
    """The arrangement of an array's chunks: a collection of `ChunkSpec` with a position each."""

    dimensions: tuple[DimensionGrid, ...]

    @classmethod
    def from_sizes(cls, array_shape: Sequence[int], chunk_sizes: Sequence[int | EdgeEntries]) -> ChunkGrid:
        """A grid from one size, or one list of edges, per axis."""
        if len(array_shape) != len(chunk_sizes):
            raise ChunkShapeError(
                f"{len(chunk_sizes)} chunk sizes for {len(array_shape)} dimensions; give one entry for each axis"
            )
        pairs = zip(chunk_sizes, array_shape, strict=True)
        return cls(tuple(from_chunks(_axis_chunks(c), operator.index(n)) for c, n in pairs))

    @classmethod
    def from_metadata(cls, metadata: ArrayDocument) -> ChunkGrid:
        """The grid that an array's document declares, edges kept as they are declared there."""
        pairs = zip(metadata.chunk_grid.axes, metadata.shape, strict=True)
        return cls(tuple(FixedDimension(c, n) if isinstance(c, int) else VaryingDimension(c, n) for c, n in pairs))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.dimensions)

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
        sizes = tuple(dim.chunks for dim in self.dimensions)
        if not self.is_regular:
            raise RectilinearChunksError(
                "the chunks of a rectilinear grid have no common shape; use chunk_sizes, or read_chunk_sizes and "
                "write_chunk_sizes of the array"
            )
        return sizes  # type: ignore[return-value]

    @property
    def chunk_sizes(self) -> tuple[Edges, ...]:
        """The data sizes along each axis, as dask writes chunks; sequences that never expand."""
        return tuple(dim.data_sizes for dim in self.dimensions)

    def get_nchunks(self) -> int:
        """The number of chunks that overlap the array."""
        return prod(self.grid_shape)

    __len__ = get_nchunks

    def __bool__(self) -> bool:
        return all(self.grid_shape)  # len() fails beyond 2**63

    def update_shape(
        self, new_shape: Sequence[int], chunks: Sequence[int | EdgeEntries | None] | None = None
    ) -> ChunkGrid:
        """The grid after a resize; `chunks` says for each axis how its new region is cut."""
        if len(new_shape) != self.ndim:
            raise ChunkShapeError(f"the new shape {tuple(new_shape)} has another rank than {self.shape}")
        new = chunks if chunks is not None else [None] * self.ndim
        return ChunkGrid(tuple(d.resize(n, c) for d, n, c in zip(self.dimensions, new_shape, new, strict=True)))

    def all_chunk_coords(
        self, *, origin: Sequence[int] | None = None, selection_shape: Sequence[int] | None = None
    ) -> Iterator[Coords]:
        """The coordinates of all chunks in C order, or of a box of chunks that begins at `origin`."""
        first = origin if origin is not None else (0,) * self.ndim
        last = self.grid_shape if selection_shape is None else map(operator.add, first, selection_shape)
        return _walk(tuple(range(*bounds) for bounds in zip(first, last, strict=True)))

    def spec(self, coords: Coords) -> ChunkSpec:
        """The chunk at these coordinates; IndexError outside the grid."""
        slices, sizes = [], []
        for dim, k in zip(self.dimensions, coords, strict=True):
            if not 0 <= k < dim.nchunks:
                raise _no_chunk(k, dim.nchunks)
            start = dim.chunk_offset(k)
            slices.append(slice(start, start + dim.data_size(k)))
            sizes.append(dim.chunk_size(k))
        return ChunkSpec(tuple(slices), tuple(sizes))

    @overload
    def __getitem__(self, coords: int | tuple[int, ...]) -> ChunkSpec | None: ...
    @overload
    def __getitem__(self, coords: Any) -> SubGrid | ChunkSpec | None: ...
    def __getitem__(self, coords: Any) -> SubGrid | ChunkSpec | None:
        """A chunk, or None outside the grid; with slices, or fewer coordinates, a view of the grid."""
        items = _expand(coords, self.ndim)
        if len(items) == self.ndim and not any(isinstance(item, slice) for item in items):
            inside = all(0 <= k < n for k, n in zip(items, self.grid_shape, strict=True))
            return self.spec(tuple(map(operator.index, items))) if inside else None
        return SubGrid(self, tuple(range(n) for n in self.grid_shape))[coords]  # type: ignore[no-any-return]

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
        """The coordinates in the whole grid of the chunks in the view."""
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
        raise _no_chunk(item, len(axis))
    return axis[item : item + 1]


def expand_ellipsis(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """The items with one `...` replaced by as many full slices as there is room for."""
    for at, item in enumerate(items):
        if item is Ellipsis:
            return (*items[:at], *[slice(None)] * (ndim - len(items) + 1), *items[at + 1 :])
    return items


def _expand(coords: Any, ndim: int) -> tuple[Any, ...]:
    """The coordinates as a tuple of integers and slices, without an ellipsis."""
    items = expand_ellipsis(coords if isinstance(coords, tuple) else (coords,), ndim)
    if len(items) > ndim:
        raise BoundsCheckError(f"{len(items)} coordinates for a grid of {ndim} dimensions")
    return tuple(item if isinstance(item, slice) else operator.index(item) for item in items)


def _axis_chunks(chunks: int | EdgeEntries) -> AxisChunks:
    if _is_size(chunks):
        return operator.index(chunks)
    if not isinstance(chunks, Iterable):
        raise ChunkShapeError(f"{chunks!r} is neither a chunk size nor a list of edges")
    return Edges.of(chunks)


def _is_size(chunks: object) -> TypeGuard[int]:
    return isinstance(chunks, int | np.integer) and not isinstance(chunks, bool)


def _walk(axes: tuple[range, ...]) -> Iterator[Coords]:
    """The product of the axes in C order, without holding any of them."""
    if not axes:
        yield ()
        return
    for head in _walk(axes[:-1]):
        for k in axes[-1]:
            yield (*head, k)
