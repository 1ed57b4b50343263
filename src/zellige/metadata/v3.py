"""`zarr.json` of an array: read strictly, every accepted form; written in the form that all readers accept.

`ArrayMetadata` is what the metadata of an array says in either format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

from zellige import dtypes
from zellige.dtypes import DataType
from zellige.dtypes.base import read_only
from zellige.dtypes.fill import read_bytes
from zellige.errors import MetadataError, fail
from zellige.grid.grid import ChunkGrid
from zellige.metadata.chunks import (
    ChunkGridMetadata,
    ChunkKeyEncoding,
    RectilinearChunkGridMetadata,
    RegularChunkGridMetadata,
    parse_chunk_grid,
    parse_chunk_key_encoding,
    resized_grid,
)
from zellige.metadata.json import (
    Extension,
    Fields,
    as_attributes,
    as_extension,
    as_integer,
    as_list,
    encode,
    one_of,
    read_json,
    without_repeats,
    write_json,
)
from zellige.types import JSON, AnyArray, Shape

__all__ = [
    "DOCUMENT",
    "ArrayV3Metadata",
    "ChunkGridMetadata",
    "RectilinearChunkGridMetadata",
    "RegularChunkGridMetadata",
    "parse_chunk_grid",
]

DOCUMENT = "zarr.json"

_MAX_CODECS = 1000  # far more than anyone needs
_MAX_RANK = 64  # of numpy


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrayMetadata:
    """An array: its shape, elements, chunks and codecs. Codecs are names with configurations here, nothing more.

    `ArrayV3Metadata` and `ArrayV2Metadata` read and write it in their formats.
    """

    zarr_format: ClassVar[Literal[2, 3]]
    shape: Shape
    data_type: DataType
    chunk_grid: ChunkGridMetadata
    chunk_key_encoding: ChunkKeyEncoding
    fill_value: AnyArray
    """0-d, so that every bit of it is kept."""
    codecs: tuple[Extension, ...]
    attributes: dict[str, JSON] = field(default_factory=dict)
    extra: dict[str, JSON] = field(default_factory=dict)
    """Fields that are not known and may be ignored; kept when the metadata is written again."""

    def to_documents(self) -> dict[str, dict[str, JSON]]:
        """Return the documents of the node by their names."""
        raise NotImplementedError

    def with_attributes(self, attributes: dict[str, JSON]) -> Self:
        """Return the same array with other attributes."""
        return replace(self, attributes=attributes)

    def __eq__(self, other: object) -> bool:
        # Through the documents, where a NaN equals itself and -0.0 differs from 0.0 by its text.
        return type(other) is type(self) and encode(self.to_documents()) == encode(other.to_documents())


def as_shape(value: JSON, path: str) -> Shape:
    """Return the lengths of the axes."""
    if len(as_list(value, path)) > _MAX_RANK:
        fail(path, f"at most {_MAX_RANK} dimensions", value)
    return tuple(as_integer(n, f"{path}[{axis}]") for axis, n in enumerate(value))


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrayV3Metadata(ArrayMetadata):
    """What the `zarr.json` of an array says."""

    zarr_format: ClassVar[Literal[3]] = 3
    fill_is_null: ClassVar[Literal[False]] = False
    """Only Zarr v2 has arrays without a fill value."""
    dimension_names: tuple[str | None, ...] | None = None

    @classmethod
    def from_bytes(cls, raw: bytes | memoryview) -> ArrayV3Metadata:
        """Read stored metadata."""
        return cls.from_dict(read_json(raw))

    @classmethod
    def from_documents(cls, documents: Mapping[str, Mapping[str, JSON]]) -> ArrayV3Metadata:
        """Read the documents of a node, given by their names."""
        return cls.from_dict(documents[DOCUMENT])

    @classmethod
    def from_dict(cls, document: Mapping[str, JSON]) -> ArrayV3Metadata:
        """Check a parsed document, field by field."""
        fields = Fields(document)
        fields.take("zarr_format", one_of(3))
        fields.take("node_type", one_of("array"))
        shape = fields.take("shape", as_shape)
        named = fields.take("data_type", without_repeats)
        data_type = dtypes.from_json(named)
        codecs = fields.take("codecs", _codecs)
        fill = fields.take("fill_value", without_repeats)
        if isinstance(named, dict) and named["name"] == "structured":
            codecs, fill_value = _as_struct(codecs, fill, data_type)
        else:
            fill_value = data_type.read_fill(fill)
        fields.take("storage_transformers", _no_transformers, None)
        return cls(
            shape=shape,
            data_type=data_type,
            chunk_grid=fields.take("chunk_grid", partial(_grid, shape=shape)),
            chunk_key_encoding=fields.take("chunk_key_encoding", lambda value, _: parse_chunk_key_encoding(value)),
            fill_value=fill_value,
            codecs=codecs,
            attributes=fields.take("attributes", as_attributes, {}),
            dimension_names=fields.take("dimension_names", partial(_dimension_names, rank=len(shape)), None),
            extra=fields.ignorable(),
        )

    def to_dict(self) -> dict[str, JSON]:
        """Return the document; optional fields that are empty are left out."""
        document: dict[str, JSON] = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.data_type.to_json(),
            "chunk_grid": self.chunk_grid.to_dict(),
            "chunk_key_encoding": self.chunk_key_encoding.to_dict(),
            "fill_value": self.data_type.write_fill(self.fill_value),
            "codecs": [codec.to_json() for codec in self.codecs],
        }
        if self.dimension_names:
            document["dimension_names"] = list(self.dimension_names)
        if self.attributes:
            document["attributes"] = self.attributes
        return document | self.extra

    def to_documents(self) -> dict[str, dict[str, JSON]]:
        """Return the documents of the node by their names."""
        return {DOCUMENT: self.to_dict()}

    def to_bytes(self) -> bytes:
        """Return the document as it is stored."""
        return write_json(self.to_dict())

    def resized(self, grid: ChunkGrid) -> ArrayV3Metadata:
        """Return the metadata after a resize to this grid."""
        return replace(self, shape=grid.shape, chunk_grid=resized_grid(self.chunk_grid, grid))


# -- fields ---------------------------------------------------------------------------------------


def _grid(value: JSON, path: str, shape: Shape) -> ChunkGridMetadata:
    grid = parse_chunk_grid(value)
    path = f"{path}.configuration.{'chunk_shapes' if grid.name == 'rectilinear' else 'chunk_shape'}"
    if len(grid.axes) != len(shape):
        raise MetadataError(f"{path} has {len(grid.axes)} entries for {len(shape)} dimensions", field=path)
    for axis, (chunks, extent) in enumerate(zip(grid.axes, shape, strict=True)):
        if not isinstance(chunks, int) and chunks.total < extent:
            at = f"{path}[{axis}]"
            raise MetadataError(f"{at}: edges sum to {chunks.total}, the shape needs {extent}", field=at)
    return grid


def _codecs(value: JSON, path: str) -> tuple[Extension, ...]:
    if not 0 < len(as_list(without_repeats(value, path), path)) <= _MAX_CODECS:
        fail(path, f"a list of 1 to {_MAX_CODECS} codecs", value)
    return tuple(as_extension(codec, f"{path}[{i}]", ignorable=True) for i, codec in enumerate(value))


def _dimension_names(value: JSON, path: str, rank: int) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    if len(as_list(value, path)) != rank:
        fail(path, f"{rank} names, one for each dimension", value)
    for axis, name in enumerate(value):
        if name is not None and not isinstance(name, str):
            fail(f"{path}[{axis}]", "a string or null", name)
    return tuple(value)


def _no_transformers(value: JSON, path: str) -> None:
    if value is not None and as_list(value, path):
        fail(path, "empty, because none is defined", value)


# -- `structured`: structs as zarr-python wrote them before they had a specification -----------------


def _as_struct(codecs: tuple[Extension, ...], fill: JSON, data_type: Any) -> tuple[tuple[Extension, ...], AnyArray]:
    """Return the codecs and the fill value of an array of `structured`, as of one of `struct`.

    The older type may lack the byte order, which then is little, and its fill value may be base64 of the bytes as
    they are stored.
    """
    codecs, endian = _with_byte_order(codecs)
    raw = read_bytes(fill) if isinstance(fill, str) and endian == "big" else None
    if raw is not None and len(raw) == data_type.numpy.itemsize:
        return codecs, read_only(data_type.unpack(raw, "big"))
    return codecs, data_type.read_fill(fill)


def _with_byte_order(codecs: tuple[Extension, ...]) -> tuple[tuple[Extension, ...], JSON]:
    """Return the same codecs with the byte order of the elements explicit, wherever it is, and that order."""
    found: list[Extension] = []
    endian = None
    for name, configuration in codecs:
        if name in ("bytes", "endian"):
            configuration = configuration or {"endian": "little"}
            endian = configuration.get("endian")
        elif name == "sharding_indexed" and "codecs" in configuration:
            path = f"codecs[{len(found)}].configuration.codecs"
            inner, endian = _with_byte_order(_codecs(configuration["codecs"], path))
            configuration = {**configuration, "codecs": [codec.to_json() for codec in inner]}
        found.append(Extension(name, configuration))
    return tuple(found), endian
