"""One axis of a grid: where its chunks begin, how large they are, and what a resize makes of them.

Each kind answers the same questions, and callers never ask which kind it is.

>>> FixedDimension(10, 25).data_size(2), FixedDimension(10, 25).chunk_size(2)
(5, 10)
>>> BoundedDimension(10, 25).chunk_size(2)
5
>>> VaryingDimension([5, 12, 8], 25).locate(6)
(1, 5, 12)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, Self, TypeAlias, TypeGuard, cast, runtime_checkable

import numpy as np

from zellige.errors import BoundsCheckError, ChunkShapeError
from zellige.grid.edges import EXPANDED, Computed, EdgeEntries, Edges, Sizes, as_tuple, positive_integer
from zellige.types import Indices

AxisChunks: TypeAlias = int | Edges
"""How one axis is cut: one size that repeats, or a list of edges."""


@runtime_checkable
class DimensionGrid(Protocol):
    """What every kind of dimension answers; callers never ask which kind it is.

    A class of yours with these names can be a dimension of a `ChunkGrid`.
    """

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

    def index_to_chunk(self, idx: int) -> int:
        """Return the chunk that holds an element; IndexError outside the array.

        Parameters
        ----------
        idx
            The position of the element along the axis, from 0.

        """

    def indices_to_chunks(self, indices: Indices) -> Indices:
        """Return `index_to_chunk` for an array of elements inside the array.

        Parameters
        ----------
        indices
            The positions of the elements.

        """

    def chunk_offset(self, chunk_ix: int) -> int:
        """Return the first element of a chunk; IndexError if there is no such chunk.

        Parameters
        ----------
        chunk_ix
            The position of the chunk along the axis, from 0.

        """

    def chunk_size(self, chunk_ix: int) -> int:
        """Return the length that the codecs see.

        Parameters
        ----------
        chunk_ix
            The position of the chunk along the axis, from 0.

        """

    def data_size(self, chunk_ix: int) -> int:
        """Return the length that lies inside the array.

        Parameters
        ----------
        chunk_ix
            The position of the chunk along the axis, from 0.

        """

    def with_extent(self, new_extent: int) -> DimensionGrid:
        """Return the same edges for another extent.

        Parameters
        ----------
        new_extent
            The length of the array, which the edges must reach.

        """

    def resize(self, new_extent: int) -> DimensionGrid:
        """Return the dimension after a resize. Existing edges stay.

        Parameters
        ----------
        new_extent
            The length of the array after it.

        """


class Axis(DimensionGrid, Protocol):
    """What plans and metadata need beyond `DimensionGrid`: our own kinds have it, `as_axis` adds it to others."""

    @property
    def data_runs(self) -> Edges:
        """The data size of every chunk that overlaps the array, as runs."""

    @property
    def declared(self) -> AxisChunks:
        """How the axis is cut, without its extent."""

    def locate(self, idx: int) -> tuple[int, int, int]:
        """Return the chunk that holds an element inside the array, where it begins, and its chunk size."""

    def resize(self, new_extent: int, chunks: int | EdgeEntries | None = None) -> DimensionGrid:
        """Return the dimension after a resize; `chunks` says how the new region is cut. Existing edges stay."""


class _Dimension(ABC):
    """What our own kinds share: the answers about a single chunk."""

    __slots__ = ()

    extent: int

    @property
    @abstractmethod
    def data_runs(self) -> Edges: ...

    @abstractmethod
    def _bounds(self, chunk_ix: int) -> tuple[int, int]:
        """Return the first element of a chunk and its chunk size; raises `BoundsCheckError` if there is none."""

    @property
    def data_sizes(self) -> Sizes:
        """The data size of every chunk that overlaps the array; a tuple of up to a million."""
        return as_tuple(self.data_runs)

    def chunk_offset(self, chunk_ix: int) -> int:
        """Return the first element of a chunk."""
        return self._bounds(chunk_ix)[0]

    def chunk_size(self, chunk_ix: int) -> int:
        """Return the length that the codecs see."""
        return self._bounds(chunk_ix)[1]

    def data_size(self, chunk_ix: int) -> int:
        """Return the length that lies inside the array."""
        start, size = self._bounds(chunk_ix)
        return max(0, min(size, self.extent - start))


@dataclass(frozen=True, slots=True)
class FixedDimension(_Dimension):
    """Uniform chunks; the last one may reach over the end, and is still encoded at full size.

    Methods: see `DimensionGrid`.

    Parameters
    ----------
    size
        The length of every chunk.
    extent
        The length of the array along this axis.

    """

    size: int
    extent: int

    def __post_init__(self) -> None:
        if not is_size(self.size) or self.size < 0:
            raise ChunkShapeError(f"chunk size must be an integer >= 0, found {self.size!r}")
        _check_extent(self.extent)

    @property
    def nchunks(self) -> int:
        """How many chunks overlap the array."""
        return -(-self.extent // self.size) if self.size else 0

    ngridcells = nchunks

    @property
    def unique_edge_lengths(self) -> tuple[int, ...]:
        """The one chunk size."""
        return (self.size,)

    @property
    def data_runs(self) -> Edges:
        """The data size of every chunk that overlaps the array, as runs."""
        whole, rest = divmod(self.extent, self.size) if self.size else (0, 0)
        return Edges.of_runs(run for run in ((self.size, whole), (rest, int(rest > 0))) if run[1])

    @property
    def chunks(self) -> int:
        """How the axis is cut: the size that repeats."""
        return self.size

    declared = chunks

    def index_to_chunk(self, idx: int) -> int:
        """Return the chunk that holds an element. Parameters: see `DimensionGrid`."""
        if not 0 <= idx < self.extent or not self.size:
            raise _no_element(idx, self.extent)
        return idx // self.size

    def indices_to_chunks(self, indices: Indices) -> Indices:
        """Return the chunks that hold some elements. Parameters: see `DimensionGrid`."""
        return indices // self.size

    def locate(self, idx: int) -> tuple[int, int, int]:
        """Return the chunk that holds the element `idx`, where it begins, and its size."""
        chunk = idx // self.size
        return chunk, chunk * self.size, self.size

    def _bounds(self, chunk_ix: int) -> tuple[int, int]:
        start = chunk_ix * self.size
        if not 0 <= start < self.extent or not self.size:
            raise no_chunk(chunk_ix, self.nchunks)
        return start, self.size

    def with_extent(self, new_extent: int) -> Self:
        """Return the same size for another extent. Parameters: see `DimensionGrid`."""
        return type(self)(self.size, new_extent)

    def resize(self, new_extent: int, chunks: int | EdgeEntries | None = None) -> DimensionGrid:
        """Return uniform chunks up to `new_extent`, unless `chunks` cuts the new region otherwise."""
        reach = self.nchunks * self.size
        same = is_size(chunks) and chunks == self.size
        if chunks is None or new_extent <= reach or same:
            return self.with_extent(new_extent)
        edges = Edges.of_runs([(self.size, self.nchunks)] if self.nchunks else [])
        return from_chunks(edges.joined(_new_edges(chunks, new_extent - reach).runs), new_extent)


@dataclass(frozen=True, slots=True)
class BoundedDimension(FixedDimension):
    """Uniform chunks, of which the last is encoded only as long as the array is (`zarrs.regular_bounded`)."""

    @property
    def unique_edge_lengths(self) -> tuple[int, ...]:
        """The size and, if it is another, that of the last chunk."""
        rest = self.extent % self.size if self.size else 0
        whole = (self.size,) if self.extent >= self.size or not rest else ()
        return (*whole, rest) if rest else whole

    def _bounds(self, chunk_ix: int) -> tuple[int, int]:
        start, size = FixedDimension._bounds(self, chunk_ix)
        return start, min(size, self.extent - start)

    def locate(self, idx: int) -> tuple[int, int, int]:
        """Return the chunk that holds the element `idx`, where it begins, and its size."""
        chunk = idx // self.size
        start = chunk * self.size
        return chunk, start, min(self.size, self.extent - start)

    def resize(self, new_extent: int, chunks: int | EdgeEntries | None = None) -> BoundedDimension:
        """Refuse another extent, since the last chunks of a stored array would have to be rewritten."""
        if new_extent != self.extent:
            raise ChunkShapeError(
                f"an array with a 'zarrs.regular_bounded' grid keeps its shape, found {new_extent} for an axis of "
                f"{self.extent}: its last chunks are encoded as long as the array is. Copy it to another grid with "
                f"zellige.rechunk(array, target, chunks={self.size}), and resize or append to the copy"
            )
        return self


@dataclass(frozen=True, init=False, repr=False)
class VaryingDimension(_Dimension):
    """Explicit edges, kept as runs. The last chunks may reach over the end, or lie wholly beyond it.

    Methods: see `DimensionGrid`.

    >>> months = VaryingDimension([31, 28, 31], 90)
    >>> months.index_to_chunk(31), months.chunk_offset(2)
    (1, 59)
    >>> VaryingDimension([[1, 10**12]], 10**12).nchunks
    1000000000000

    Parameters
    ----------
    edges
        Lengths and `[length, count]` runs, mixed as you like.
    extent
        The length of the array along this axis; the edges must reach it.

    """

    declared: Edges
    """The edges as runs."""
    extent: int
    nchunks: int
    """How many chunks overlap the array."""

    def __init__(self, edges: EdgeEntries, extent: int) -> None:
        declared = Edges.of(edges)
        if not len(declared):
            raise ChunkShapeError("an axis needs at least one edge")
        if _check_extent(extent) > declared.total:
            raise ChunkShapeError(
                f"edges sum to {declared.total}, the shape needs {extent}; append {extent - declared.total} more"
            )
        nchunks = declared.chunk_of(extent - 1) + 1 if extent else 0
        for name, value in (("declared", declared), ("extent", extent), ("nchunks", nchunks)):
            object.__setattr__(self, name, value)

    @property
    def edges(self) -> Sizes:
        """The declared edges; a tuple of up to a million."""
        return as_tuple(self.declared)

    chunks = edges

    @property
    def cumulative(self) -> Sizes:
        """The running sums of the edges; a tuple of up to a million."""
        edges = self.declared
        return tuple(accumulate(edges)) if len(edges) <= EXPANDED else Computed(edges.end, range(len(edges)))

    @property
    def ngridcells(self) -> int:
        """How many edges are declared."""
        return len(self.declared)

    @property
    def unique_edge_lengths(self) -> Iterable[int]:
        """Every edge length that occurs, once."""
        return self.declared.unique()

    @property
    def data_runs(self) -> Edges:
        """The data size of every chunk that overlaps the array, as runs."""
        return self.declared.clipped(self.extent)

    def index_to_chunk(self, idx: int) -> int:
        """Return the chunk that holds an element. Parameters: see `DimensionGrid`."""
        if not 0 <= idx < self.extent:
            raise _no_element(idx, self.extent)
        return self.declared.chunk_of(idx)

    def indices_to_chunks(self, indices: Indices) -> Indices:
        """Return the chunks that hold some elements. Parameters: see `DimensionGrid`."""
        indices = np.asarray(indices)
        return self.declared.chunks_of(np.atleast_1d(indices)).reshape(indices.shape)

    def locate(self, idx: int) -> tuple[int, int, int]:
        """Return the chunk that holds the element `idx`, where it begins, and its size."""
        return self.declared.locate(idx)

    def _bounds(self, chunk_ix: int) -> tuple[int, int]:
        if not 0 <= chunk_ix < len(self.declared):
            raise no_chunk(chunk_ix, len(self.declared))
        return self.declared.bounds(chunk_ix)

    def with_extent(self, new_extent: int) -> VaryingDimension:
        """Return the same edges for another extent, which they must reach. Parameters: see `DimensionGrid`."""
        return VaryingDimension(self.declared, new_extent)

    def resize(self, new_extent: int, chunks: int | EdgeEntries | None = None) -> VaryingDimension:
        """Keep the edges to shrink to `new_extent`. To grow, use slack, then `chunks`, or repeat the last edge."""
        missing = new_extent - self.declared.total
        if missing <= 0:
            return self.with_extent(new_extent)
        new = _new_edges(self.declared[-1] if chunks is None else chunks, missing)
        return VaryingDimension(self.declared.joined(new.runs), new_extent)

    def __hash__(self) -> int:
        # Edges hash like the tuple that they stand for, which may be far too long.
        return hash((VaryingDimension, self.extent, len(self.declared), self.declared.total))

    def __repr__(self) -> str:
        return f"VaryingDimension(edges={self.declared!r}, extent={self.extent})"


def as_axis(dimension: DimensionGrid) -> Axis:
    """Return a dimension with the answers of `Axis`, which are worked out for a kind that is not ours."""
    if isinstance(dimension, FixedDimension | VaryingDimension):
        return dimension
    return cast("Axis", _Foreign(dimension))  # which has all names of the dimension, too


class _Foreign:
    """A dimension of a class that is not ours, as an `Axis`."""

    def __init__(self, dimension: DimensionGrid) -> None:
        self._dimension = dimension

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dimension, name)

    @property
    def data_runs(self) -> Edges:
        return Edges.of(map(self._dimension.data_size, range(self._dimension.nchunks)))

    @property
    def declared(self) -> Edges:
        return Edges.of(map(self._dimension.chunk_size, range(self._dimension.ngridcells)))

    def locate(self, idx: int) -> tuple[int, int, int]:
        chunk = self._dimension.index_to_chunk(idx)
        return chunk, self._dimension.chunk_offset(chunk), self._dimension.chunk_size(chunk)

    def resize(self, new_extent: int, chunks: int | EdgeEntries | None = None) -> DimensionGrid:
        edges = self.declared
        if chunks is None or new_extent <= edges.total:
            return self._dimension.resize(new_extent)
        return from_chunks(edges.joined(_new_edges(chunks, new_extent - edges.total).runs), new_extent)


def from_chunks(chunks: AxisChunks, extent: int) -> FixedDimension | VaryingDimension:
    """Return a dimension from a size or edges; uniform edges that fit the extent exactly are a size."""
    if isinstance(chunks, int):
        return FixedDimension(chunks, extent)
    dimension = VaryingDimension(chunks, extent)
    if chunks.total == extent and len(chunks.starts) == 2:  # one run
        return FixedDimension(chunks[0], extent)
    return dimension


def _new_edges(chunks: int | EdgeEntries, missing: int) -> Edges:
    """Return the edges that cover `missing` elements beyond the present ones."""
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
    if not is_size(extent) or extent < 0:
        raise ChunkShapeError(f"extent must be an integer >= 0, found {extent!r}")
    return extent


def _no_element(idx: int, extent: int) -> BoundsCheckError:
    return BoundsCheckError(f"index {idx} is out of bounds for an axis of length {extent}")


def no_chunk(chunk_ix: int, count: int) -> BoundsCheckError:
    """Return the error for a chunk outside the grid."""
    return BoundsCheckError(f"chunk {chunk_ix} is out of bounds for an axis of {count} chunks")


def is_size(chunks: object) -> TypeGuard[int]:
    """Return whether this is one chunk size, not edges; booleans are neither."""
    return isinstance(chunks, int | np.integer) and not isinstance(chunks, bool)
