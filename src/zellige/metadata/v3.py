"""`zarr.json` of an array: read strictly, every accepted form; written in the form that all readers accept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from zellige import dtypes
from zellige.dtypes import DataType
from zellige.errors import MetadataError
from zellige.grid.grid import ChunkGrid
from zellige.metadata import grids
from zellige.metadata.document import (
    Extension,
    as_attributes,
    as_extension,
    as_integer,
    as_list,
    as_object,
    dump,
    encode,
    fail,
    ignorable,
    parse,
    require,
    with_attributes,
)
from zellige.metadata.grids import (
    ChunkGridMetadata,
    RectilinearChunkGridMetadata,
    RegularChunkGridMetadata,
    parse_chunk_grid,
)
from zellige.metadata.keys import ChunkKeyEncoding, parse_chunk_key_encoding
from zellige.metadata.legacy import modern
from zellige.types import JSON, AnyArray, Shape

__all__ = [
    "DOCUMENT",
    "ArrayV3Metadata",
    "ChunkGridMetadata",
    "RectilinearChunkGridMetadata",
    "RegularChunkGridMetadata",
    "check_header",
    "parse_chunk_grid",
]

DOCUMENT = "zarr.json"

_MAX_RANK = 64  # of numpy
_MAX_CODECS = 1000  # far more than anyone needs

_KNOWN = {
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "storage_transformers",
    "dimension_names",
}


@dataclass(frozen=True, eq=False)
class ArrayV3Metadata:
    """What an array's document says. Codecs are names with configurations here, nothing more."""

    zarr_format: ClassVar[Literal[3]] = 3
    fill_is_null: ClassVar[Literal[False]] = False
    """Only Zarr v2 has arrays without a fill value."""
    shape: Shape
    data_type: DataType
    chunk_grid: ChunkGridMetadata
    chunk_key_encoding: ChunkKeyEncoding
    fill_value: AnyArray
    """0-d, so that every bit of it is kept."""
    codecs: tuple[Extension, ...]
    attributes: dict[str, JSON] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    extra: dict[str, JSON] = field(default_factory=dict)
    """Unknown fields that may be ignored; kept when the document is written again."""

    @classmethod
    def from_bytes(cls, raw: bytes | memoryview) -> ArrayV3Metadata:
        """Read a document."""
        return cls.from_dict(parse(raw))

    @classmethod
    def from_documents(cls, documents: Mapping[str, Mapping[str, JSON]]) -> ArrayV3Metadata:
        """Read the documents of a node, given by their names."""
        return cls.from_dict(documents[DOCUMENT])

    @classmethod
    def from_dict(cls, document: Mapping[str, JSON]) -> ArrayV3Metadata:
        """Check a parsed document, field by field."""
        check_header(as_object(document, ""), "array")
        shape = _shape(require(document, "shape", ""))
        data_type = dtypes.from_json(_without_repeats(require(document, "data_type", ""), "data_type"))
        _without_repeats(document.get("codecs"), "codecs")
        document = modern(document, data_type)
        grid = parse_chunk_grid(require(document, "chunk_grid", ""))
        _check_grid(grid, shape)
        _refuse_transformers(document.get("storage_transformers"))
        return cls(
            shape=shape,
            data_type=data_type,
            chunk_grid=grid,
            chunk_key_encoding=parse_chunk_key_encoding(require(document, "chunk_key_encoding", "")),
            fill_value=data_type.read_fill(_without_repeats(require(document, "fill_value", ""), "fill_value")),
            codecs=_codecs(require(document, "codecs", "")),
            attributes=as_attributes(document.get("attributes")),
            dimension_names=_dimension_names(document.get("dimension_names"), len(shape)),
            extra=ignorable(document, _KNOWN),
        )

    def to_dict(self) -> dict[str, JSON]:
        """The document; optional fields that are empty are left out."""
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
        """The documents of the node by their names."""
        return {DOCUMENT: self.to_dict()}

    def to_bytes(self) -> bytes:
        """The document as it is stored."""
        return dump(self.to_dict())

    def with_attributes(self, attributes: dict[str, JSON]) -> ArrayV3Metadata:
        """The document with other attributes."""
        return with_attributes(self, attributes)

    def resized(self, grid: ChunkGrid) -> ArrayV3Metadata:
        """The document after a resize to this grid."""
        return replace(self, shape=grid.shape, chunk_grid=grids.resized(self.chunk_grid, grid))

    def __eq__(self, other: object) -> bool:
        # Through the document, where a NaN equals itself and -0.0 differs from 0.0 by its text.
        return isinstance(other, ArrayV3Metadata) and encode(self.to_dict()) == encode(other.to_dict())

    __hash__ = None  # type: ignore[assignment]


def check_header(document: Mapping[str, JSON], node_type: str) -> None:
    """The two fields that say what a document is."""
    found = require(document, "zarr_format", "")
    if type(found) is not int or found != 3:
        fail("zarr_format", "3", found)
    if require(document, "node_type", "") != node_type:
        fail("node_type", repr(node_type), document["node_type"])


def _without_repeats(value: JSON, field: str) -> JSON:
    """A value whose objects are checked elsewhere, but not for repeated keys."""
    rest = [(value, field)]
    while rest:  # no recursion, however deep it is nested
        part, path = rest.pop()
        if isinstance(part, dict):
            rest += [(item, f"{path}.{name}") for name, item in as_object(part, path).items()]
        elif isinstance(part, list):
            rest += [(item, f"{path}[{i}]") for i, item in enumerate(part) if isinstance(item, dict | list)]
    return value


def _shape(value: JSON) -> Shape:
    sizes = as_list(value, "shape")
    if len(sizes) > _MAX_RANK:
        fail("shape", f"at most {_MAX_RANK} dimensions", value)
    return tuple(as_integer(n, f"shape[{axis}]", 0) for axis, n in enumerate(sizes))


def _check_grid(grid: ChunkGridMetadata, shape: Shape) -> None:
    field = f"chunk_grid.configuration.{'chunk_shapes' if grid.name == 'rectilinear' else 'chunk_shape'}"
    if len(grid.axes) != len(shape):
        raise MetadataError(f"{field} has {len(grid.axes)} entries for {len(shape)} dimensions", field=field)
    for axis, (chunks, extent) in enumerate(zip(grid.axes, shape, strict=True)):
        if not isinstance(chunks, int) and chunks.total < extent:
            raise MetadataError(
                f"{field}[{axis}]: edges sum to {chunks.total}, the shape needs {extent}", field=f"{field}[{axis}]"
            )


def _codecs(value: JSON) -> tuple[Extension, ...]:
    found = as_list(value, "codecs")
    if not found:
        fail("codecs", "a list of at least one codec", value)
    if len(found) > _MAX_CODECS:
        fail("codecs", f"a list of at most {_MAX_CODECS} codecs", value)
    return tuple(as_extension(codec, f"codecs[{i}]", ignorable=True) for i, codec in enumerate(found))


def _dimension_names(value: JSON, rank: int) -> tuple[str | None, ...] | None:
    if value is None:
        return None
    names = as_list(value, "dimension_names")
    if len(names) != rank:
        fail("dimension_names", f"{rank} names, one for each dimension", value)
    for axis, name in enumerate(names):
        if name is not None and not isinstance(name, str):
            fail(f"dimension_names[{axis}]", "a string or null", name)
    return tuple(names)


def _refuse_transformers(value: JSON) -> None:
    if value is not None and as_list(value, "storage_transformers"):
        fail("storage_transformers", "empty, because none is defined", value)
