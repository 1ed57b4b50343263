"""What the metadata of an array says, in either format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from zellige.dtypes import DataType
from zellige.errors import fail
from zellige.metadata.grids import ChunkGridMetadata
from zellige.metadata.json import Extension, as_integer, as_list, encode
from zellige.metadata.keys import ChunkKeyEncoding
from zellige.types import JSON, AnyArray, Shape

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
        """The documents of the node by their names."""
        raise NotImplementedError

    def with_attributes(self, attributes: dict[str, JSON]) -> Self:
        """The same array with other attributes."""
        made = object.__new__(type(self))  # in a quarter of the time that `dataclasses.replace` takes
        made.__dict__.update(self.__dict__, attributes=attributes)
        return made

    def __eq__(self, other: object) -> bool:
        # Through the documents, where a NaN equals itself and -0.0 differs from 0.0 by its text.
        return type(other) is type(self) and encode(self.to_documents()) == encode(other.to_documents())


def as_shape(value: JSON, path: str) -> Shape:
    """The lengths of the axes."""
    if len(as_list(value, path)) > _MAX_RANK:
        fail(path, f"at most {_MAX_RANK} dimensions", value)
    return tuple(as_integer(n, f"{path}[{axis}]") for axis, n in enumerate(value))
