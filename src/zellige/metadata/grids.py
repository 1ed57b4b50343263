"""The chunk grid of a document: `regular` and `rectilinear`, with run-length encoded edges.

These are plain values without extents; `ChunkGrid.from_metadata` binds them to a shape. There is no
registry: a match on the name is enough, since every known grid is a rectilinear one.

>>> parse_chunk_grid({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [4, [[2, 3], 1]]}})
RectilinearChunkGridMetadata(chunk_shapes=(4, (2, 2, 2, 1)))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from zellige.errors import ChunkShapeError, MetadataError
from zellige.grid import AxisChunks, ChunkGrid
from zellige.metadata.document import as_extension, as_integer, as_list, fail, only, require
from zellige.runs import Edges
from zellige.types import JSON, Shape

_FIELD = "chunk_grid.configuration"


@dataclass(frozen=True, slots=True)
class RegularChunkGridMetadata:
    """One chunk shape for all chunks."""

    chunk_shape: Shape
    name: ClassVar[str] = "regular"
    bounded: ClassVar[bool] = False

    @classmethod
    def from_dict(cls, configuration: dict[str, JSON]) -> RegularChunkGridMetadata:
        """Read a configuration (spec: regular grids)."""
        only(configuration, _FIELD, "chunk_shape")
        sizes = as_list(require(configuration, "chunk_shape", _FIELD), f"{_FIELD}.chunk_shape")
        return cls(tuple(as_integer(n, f"{_FIELD}.chunk_shape[{i}]", 1) for i, n in enumerate(sizes)))

    def to_dict(self) -> dict[str, JSON]:
        """The object for the document."""
        return {"name": self.name, "configuration": {"chunk_shape": list(self.chunk_shape)}}

    @property
    def axes(self) -> tuple[AxisChunks, ...]:
        """How each axis is cut."""
        return self.chunk_shape


@dataclass(frozen=True, slots=True)
class RectilinearChunkGridMetadata:
    """For each axis one size that repeats, or its edges as runs."""

    chunk_shapes: tuple[AxisChunks, ...]
    name: ClassVar[str] = "rectilinear"
    bounded: ClassVar[bool] = False

    @classmethod
    def from_dict(cls, configuration: dict[str, JSON]) -> RectilinearChunkGridMetadata:
        """Read a configuration (spec: rectilinear chunk grid, `kind` inline)."""
        only(configuration, _FIELD, "kind", "chunk_shapes")
        validate_rectilinear_kind(require(configuration, "kind", _FIELD))
        field = f"{_FIELD}.chunk_shapes"
        shapes = as_list(require(configuration, "chunk_shapes", _FIELD), field)
        return cls(tuple(_parse_axis(entry, f"{field}[{axis}]") for axis, entry in enumerate(shapes)))

    def to_dict(self) -> dict[str, JSON]:
        """The object for the document: integers where declared so, else runs."""
        shapes = [c if isinstance(c, int) else c.to_rle() for c in self.chunk_shapes]
        return {"name": self.name, "configuration": {"kind": "inline", "chunk_shapes": shapes}}

    @property
    def axes(self) -> tuple[AxisChunks, ...]:
        """How each axis is cut."""
        return self.chunk_shapes


@dataclass(frozen=True, slots=True)
class RegularBoundedChunkGridMetadata(RegularChunkGridMetadata):
    """One chunk shape, but chunks at the border are only as large as the array (`zarrs.regular_bounded`)."""

    name: ClassVar[str] = "zarrs.regular_bounded"
    bounded: ClassVar[bool] = True


ChunkGridMetadata: TypeAlias = RegularChunkGridMetadata | RectilinearChunkGridMetadata

_REGULAR: dict[str, type[RegularChunkGridMetadata]] = {
    grid.name: grid for grid in (RegularChunkGridMetadata, RegularBoundedChunkGridMetadata)
}


def validate_rectilinear_kind(kind: JSON) -> None:
    """Only inline edges are defined."""
    if kind != "inline":
        fail(f"{_FIELD}.kind", "'inline'", kind)


def _parse_axis(entry: JSON, field: str) -> AxisChunks:
    if not isinstance(entry, list):
        return as_integer(entry, field, 1)
    if not entry:
        fail(field, "a size or a list of at least one edge", entry)
    try:
        return Edges.of(entry)
    except ChunkShapeError as error:
        raise MetadataError(f"{field}: {error}", field=field) from error


def parse_chunk_grid(value: JSON) -> ChunkGridMetadata:
    """The grid that a document declares."""
    name, configuration = as_extension(value, "chunk_grid", ignorable=False)
    if name in _REGULAR:
        return _REGULAR[name].from_dict(configuration)
    if name == RectilinearChunkGridMetadata.name:
        return RectilinearChunkGridMetadata.from_dict(configuration)
    if name == "rectangular":
        return _parse_rectangular(configuration)
    return fail("chunk_grid.name", f"one of {', '.join(map(repr, _REGULAR))} or 'rectilinear'", name)


def _parse_rectangular(configuration: dict[str, JSON]) -> RectilinearChunkGridMetadata:
    """The older form of ZEP 3: sizes and lists of edges, without runs. It is written back as rectilinear."""
    only(configuration, _FIELD, "chunk_shape")
    field = f"{_FIELD}.chunk_shape"
    axes = as_list(require(configuration, "chunk_shape", _FIELD), field)
    for axis, entry in enumerate(axes):
        for k, edge in enumerate(entry if isinstance(entry, list) else ()):
            as_integer(edge, f"{field}[{axis}][{k}]", 1)
    return RectilinearChunkGridMetadata(tuple(_parse_axis(entry, f"{field}[{a}]") for a, entry in enumerate(axes)))


def grid_document(name: str, axes: tuple[AxisChunks, ...]) -> ChunkGridMetadata:
    """The document for axes cut this way; `name` is regular only if all axes have one size."""
    if name in _REGULAR:
        return _REGULAR[name](tuple(size for size in axes if isinstance(size, int)))
    return RectilinearChunkGridMetadata(axes)


def resized(document: ChunkGridMetadata, grid: ChunkGrid) -> ChunkGridMetadata:
    """The document after a resize: the name is kept, unless a regular grid has become uneven."""
    name = document.name if grid.is_regular else RectilinearChunkGridMetadata.name
    return grid_document(name, tuple(dim.chunks for dim in grid.dimensions))
