"""How metadata describes chunks: the grid that they form, and their keys in the store (spec: chunk grids, chunk keys).

Grids are plain values without extents; `ChunkGrid.from_metadata` binds them to a shape. There is no
registry: a match on the name is enough, since every known grid is a rectilinear one.

>>> parse_chunk_grid({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [4, [[2, 3], 1]]}})
RectilinearChunkGridMetadata(chunk_shapes=(4, (2, 2, 2, 1)))
>>> DefaultChunkKeyEncoding().encode_chunk_key((1, 23, 45)), V2ChunkKeyEncoding().encode_chunk_key((1, 23, 45))
('c/1/23/45', '1.23.45')
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from zellige.errors import ChunkShapeError, MetadataError, fail
from zellige.grid.edges import Edges, LazyTuple, Sizes, as_tuple, positive_integer
from zellige.grid.grid import AxisChunks, ChunkGrid
from zellige.metadata.json import Fields, as_extension, one_of
from zellige.types import JSON, Coords, Shape

# -- chunk grids ----------------------------------------------------------------------------------

_FIELD = "chunk_grid.configuration"


class _Grid(ABC):
    """A chunk grid as metadata states it: a name and a configuration."""

    __slots__ = ()

    name: ClassVar[str]
    bounded: ClassVar[bool] = False
    """Whether chunks at the border are only as large as the array."""

    @classmethod
    def from_dict(cls, data: JSON) -> Self:
        """Read `{"name": …, "configuration": …}`, what `to_dict` gives (spec: chunk grids).

        Parameters
        ----------
        data
            The object, as it stands in the metadata of an array.

        """
        found, configuration = as_extension(data, "chunk_grid")
        one_of(cls.name)(found, "chunk_grid.name")
        return cls.from_configuration(configuration)

    @classmethod
    @abstractmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Read the configuration alone.

        Parameters
        ----------
        configuration
            The object that `from_dict` finds under `configuration`.

        """


@dataclass(frozen=True, slots=True)
class _OneShape(_Grid):
    """A grid that is declared by one chunk shape."""

    chunk_shape: Shape

    def __post_init__(self) -> None:
        where = f"{_FIELD}.chunk_shape"
        sizes = tuple(_size(n, f"{where}[{axis}]") for axis, n in enumerate(_entries(self.chunk_shape, where)))
        object.__setattr__(self, "chunk_shape", sizes)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Read `chunk_shape`."""
        fields = Fields(configuration, _FIELD)
        sizes = fields.take("chunk_shape", _entries)
        fields.only()
        return cls(sizes)

    def to_dict(self) -> dict[str, JSON]:
        """Return the object for metadata: the name and the configuration."""
        return {"name": self.name, "configuration": {"chunk_shape": list(self.chunk_shape)}}

    @property
    def axes(self) -> tuple[AxisChunks, ...]:
        """How each axis is cut."""
        return self.chunk_shape


@dataclass(frozen=True, slots=True)
class RegularChunkGridMetadata(_OneShape):
    """One chunk shape for all chunks.

    Parameters
    ----------
    chunk_shape
        The size of the chunks along each axis.

    >>> grid = RegularChunkGridMetadata(chunk_shape=(10, 20))
    >>> grid.to_dict()
    {'name': 'regular', 'configuration': {'chunk_shape': [10, 20]}}
    >>> RegularChunkGridMetadata.from_dict(grid.to_dict()) == grid
    True

    """

    name: ClassVar[str] = "regular"


@dataclass(frozen=True, slots=True)
class RegularBoundedChunkGridMetadata(_OneShape):
    """One chunk shape, but chunks at the border are only as large as the array (`zarrs.regular_bounded`)."""

    name: ClassVar[str] = "zarrs.regular_bounded"
    bounded: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, init=False, repr=False)
class RectilinearChunkGridMetadata(_Grid):
    """For each axis one size that repeats, or its edges.

    Parameters
    ----------
    chunk_shapes
        For each axis an integer, or a sequence of edges, in which a pair `[length, count]` stands for a run.

    >>> grid = RectilinearChunkGridMetadata(chunk_shapes=(10, (25, 25, 50)))
    >>> grid.to_dict()["configuration"]
    {'kind': 'inline', 'chunk_shapes': [10, [[25, 2], 50]]}
    >>> RectilinearChunkGridMetadata.from_dict(grid.to_dict()).chunk_shapes
    (10, (25, 25, 50))

    """

    axes: tuple[AxisChunks, ...] = field(init=False)
    """How each axis is cut: a size, or edges as runs."""
    name: ClassVar[str] = "rectilinear"

    def __init__(self, chunk_shapes: Iterable[Any]) -> None:
        where = f"{_FIELD}.chunk_shapes"
        axes = (_axis(entry, f"{where}[{axis}]") for axis, entry in enumerate(_entries(chunk_shapes, where)))
        object.__setattr__(self, "axes", tuple(axes))

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Read `kind` and `chunk_shapes`."""
        fields = Fields(configuration, _FIELD)
        fields.take("kind", one_of("inline"))
        shapes = fields.take("chunk_shapes", _entries)
        fields.only()
        return cls(shapes)

    @property
    def chunk_shapes(self) -> tuple[int | Sizes, ...]:
        """For each axis a size, or a tuple of its edges; more than a million are a sequence that behaves like one."""
        return tuple(chunks if isinstance(chunks, int) else as_tuple(chunks) for chunks in self.axes)

    def to_dict(self) -> dict[str, JSON]:
        """Return the object for metadata: integers where declared so, else runs."""
        shapes = [chunks if isinstance(chunks, int) else chunks.to_rle() for chunks in self.axes]
        return {"name": self.name, "configuration": {"kind": "inline", "chunk_shapes": shapes}}

    def __hash__(self) -> int:
        return hash(tuple(chunks if isinstance(chunks, int) else tuple(chunks.runs) for chunks in self.axes))

    def __repr__(self) -> str:
        return f"RectilinearChunkGridMetadata(chunk_shapes={self.axes!r})"


ChunkGridMetadata: TypeAlias = RegularChunkGridMetadata | RectilinearChunkGridMetadata | RegularBoundedChunkGridMetadata

_GRIDS: dict[str, type[ChunkGridMetadata]] = {
    "regular": RegularChunkGridMetadata,
    "zarrs.regular_bounded": RegularBoundedChunkGridMetadata,
    "rectilinear": RectilinearChunkGridMetadata,
}


def _entries(value: Any, where: str) -> Any:
    if not isinstance(value, list | tuple | np.ndarray):
        fail(where, "an array", value)
    return value


def _size(value: Any, where: str) -> int:
    try:
        return positive_integer(value, where)
    except ChunkShapeError:
        return fail(where, "an integer >= 1", value)


def _axis(entry: Any, where: str) -> AxisChunks:
    if not isinstance(entry, list | tuple | LazyTuple | np.ndarray) or (
        isinstance(entry, np.ndarray) and not entry.ndim
    ):
        return _size(entry, where)
    if not len(entry):
        fail(where, "a size or a list of at least one edge", entry)
    try:
        return Edges.of(entry)
    except ChunkShapeError as error:
        raise MetadataError(f"{where}: {error}", field=where) from error


def parse_chunk_grid(value: JSON) -> ChunkGridMetadata:
    """Return the grid that metadata declares."""
    name, configuration = as_extension(value, "chunk_grid")
    if name == "rectangular":
        return _parse_rectangular(configuration)
    one_of(*_GRIDS)(name, "chunk_grid.name")
    return _GRIDS[name].from_configuration(configuration)


def _parse_rectangular(configuration: dict[str, JSON]) -> RectilinearChunkGridMetadata:
    """Read the older form of ZEP 3: sizes and lists of edges, without runs. It is written back as rectilinear."""
    fields = Fields(configuration, _FIELD)
    axes = list(fields.take("chunk_shape", _entries))
    fields.only()
    for axis, entry in enumerate(axes):
        at = f"{_FIELD}.chunk_shape[{axis}]"
        if entry == []:
            fail(at, "a size or a list of at least one edge", entry)
        for k, edge in enumerate(entry if isinstance(entry, list) else [entry]):
            _size(edge, f"{at}[{k}]" if isinstance(entry, list) else at)
    return RectilinearChunkGridMetadata(axes)


def grid_document(name: str, axes: tuple[AxisChunks, ...]) -> ChunkGridMetadata:
    """Return the metadata for axes cut this way; a grid by another name than rectilinear has one size for each axis."""
    if name == RectilinearChunkGridMetadata.name:
        return RectilinearChunkGridMetadata(axes)
    return _GRIDS[name](tuple(size for size in axes if isinstance(size, int)))


def spelled_out(document: ChunkGridMetadata, shape: Shape) -> ChunkGridMetadata:
    """Return the same grid for arrays of this shape, with edges in place of sizes that repeat."""
    if not isinstance(document, RectilinearChunkGridMetadata):
        return document
    pairs = zip(document.axes, shape, strict=True)
    return RectilinearChunkGridMetadata(tuple([[c, max(1, -(-n // c))]] if isinstance(c, int) else c for c, n in pairs))


def resized_grid(document: ChunkGridMetadata, grid: ChunkGrid) -> ChunkGridMetadata:
    """Return the grid after a resize: the name is kept, unless a regular grid has become uneven."""
    name = document.name if grid.is_regular else RectilinearChunkGridMetadata.name
    return grid_document(name, tuple(axis.declared for axis in grid.axes))


# -- chunk keys -------------------------------------------------------------------------------------

_KEYS = "chunk_key_encoding"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}").fullmatch


def _numbers(parts: list[str], rank: int) -> Coords | None:
    return tuple(map(int, parts)) if len(parts) == rank and all(map(_NUMBER, parts)) else None


class _Separated:
    """A key encoding whose configuration is a separator."""

    __slots__ = ()

    name: ClassVar[str]
    separator: str

    def __post_init__(self) -> None:
        one_of("/", ".")(self.separator, f"{_KEYS}.configuration.separator")

    def to_dict(self) -> dict[str, JSON]:
        """Return the object for metadata."""
        return {"name": self.name, "configuration": {"separator": self.separator}}


@dataclass(frozen=True, slots=True)
class DefaultChunkKeyEncoding(_Separated):
    """`c/1/2`: the prefix keeps chunks apart from metadata. Rank 0: `c`."""

    separator: str = "/"
    name: ClassVar[str] = "default"

    def encode_chunk_key(self, coords: Coords) -> str:
        """Return the key of a chunk."""
        return self.separator.join(["c", *map(str, coords)])

    def decode_chunk_key(self, key: str, rank: int) -> Coords | None:
        """Return the chunk that a key belongs to, or None if it is no chunk's key."""
        prefix, *parts = key.split(self.separator)
        return _numbers(parts, rank) if prefix == "c" else None


@dataclass(frozen=True, slots=True)
class V2ChunkKeyEncoding(_Separated):
    """`1.2`: for arrays converted from Zarr v2. Rank 0: `0`."""

    separator: str = "."
    name: ClassVar[str] = "v2"

    def encode_chunk_key(self, coords: Coords) -> str:
        """Return the key of a chunk."""
        return self.separator.join(map(str, coords)) or "0"

    def decode_chunk_key(self, key: str, rank: int) -> Coords | None:
        """Return the chunk that a key belongs to, or None if it is no chunk's key."""
        if rank == 0:
            return () if key == "0" else None
        return _numbers(key.split(self.separator), rank)


ChunkKeyEncoding: TypeAlias = DefaultChunkKeyEncoding | V2ChunkKeyEncoding

_ENCODINGS: dict[str, type[ChunkKeyEncoding]] = {"default": DefaultChunkKeyEncoding, "v2": V2ChunkKeyEncoding}


def parse_chunk_key_encoding(value: JSON) -> ChunkKeyEncoding:
    """Return the encoding that metadata declares."""
    name, configuration = as_extension(value, _KEYS)
    one_of(*_ENCODINGS)(name, f"{_KEYS}.name")
    Fields(configuration, f"{_KEYS}.configuration").only("separator")
    return _ENCODINGS[name](**configuration)


def chunk_key_encoding_argument(value: JSON | ChunkKeyEncoding | None) -> ChunkKeyEncoding:
    """Return what users give as `chunk_key_encoding=`: an object, a name, JSON, or `{"name", "separator"}`."""
    if value is None:
        return DefaultChunkKeyEncoding()
    if isinstance(value, DefaultChunkKeyEncoding | V2ChunkKeyEncoding):
        return value
    if isinstance(value, dict) and "separator" in value:
        Fields(value, _KEYS).only("name", "separator")
        value = {"name": value.get("name"), "configuration": {"separator": value["separator"]}}
    return parse_chunk_key_encoding(value)
