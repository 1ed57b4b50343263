"""Chunk key encodings: the store key of a chunk, below its array (spec: chunk key encodings).

>>> DefaultChunkKeyEncoding().encode_chunk_key((1, 23, 45))
'c/1/23/45'
>>> V2ChunkKeyEncoding().encode_chunk_key((1, 23, 45))
'1.23.45'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from zellige.metadata.json import Fields, as_extension, one_of
from zellige.types import JSON, Coords

_FIELD = "chunk_key_encoding"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}").fullmatch


def _numbers(parts: list[str], rank: int) -> Coords | None:
    return tuple(map(int, parts)) if len(parts) == rank and all(map(_NUMBER, parts)) else None


class _Separated:
    """A key encoding whose configuration is a separator."""

    __slots__ = ()

    name: ClassVar[str]
    separator: str

    def __post_init__(self) -> None:
        one_of("/", ".")(self.separator, f"{_FIELD}.configuration.separator")

    def to_dict(self) -> dict[str, JSON]:
        """The object for metadata."""
        return {"name": self.name, "configuration": {"separator": self.separator}}


@dataclass(frozen=True, slots=True)
class DefaultChunkKeyEncoding(_Separated):
    """`c/1/2`: the prefix keeps chunks apart from metadata. Rank 0: `c`."""

    separator: str = "/"
    name: ClassVar[str] = "default"

    def encode_chunk_key(self, coords: Coords) -> str:
        """The key of a chunk."""
        return self.separator.join(["c", *map(str, coords)])

    def decode_chunk_key(self, key: str, rank: int) -> Coords | None:
        """The chunk that a key belongs to, or None if it is no chunk's key."""
        prefix, *parts = key.split(self.separator)
        return _numbers(parts, rank) if prefix == "c" else None


@dataclass(frozen=True, slots=True)
class V2ChunkKeyEncoding(_Separated):
    """`1.2`: for arrays converted from Zarr v2. Rank 0: `0`."""

    separator: str = "."
    name: ClassVar[str] = "v2"

    def encode_chunk_key(self, coords: Coords) -> str:
        """The key of a chunk."""
        return self.separator.join(map(str, coords)) or "0"

    def decode_chunk_key(self, key: str, rank: int) -> Coords | None:
        """The chunk that a key belongs to, or None if it is no chunk's key."""
        if rank == 0:
            return () if key == "0" else None
        return _numbers(key.split(self.separator), rank)


ChunkKeyEncoding: TypeAlias = DefaultChunkKeyEncoding | V2ChunkKeyEncoding

_ENCODINGS: dict[str, type[ChunkKeyEncoding]] = {"default": DefaultChunkKeyEncoding, "v2": V2ChunkKeyEncoding}


def parse_chunk_key_encoding(value: JSON) -> ChunkKeyEncoding:
    """The encoding that metadata declares."""
    name, configuration = as_extension(value, _FIELD)
    one_of(*_ENCODINGS)(name, f"{_FIELD}.name")
    Fields(configuration, f"{_FIELD}.configuration").only("separator")
    return _ENCODINGS[name](**configuration)


def chunk_key_encoding_argument(value: JSON | ChunkKeyEncoding | None) -> ChunkKeyEncoding:
    """What users give as `chunk_key_encoding=`: an object, a name, JSON, or `{"name", "separator"}`."""
    if value is None:
        return DefaultChunkKeyEncoding()
    if isinstance(value, DefaultChunkKeyEncoding | V2ChunkKeyEncoding):
        return value
    if isinstance(value, dict) and "separator" in value:
        Fields(value, _FIELD).only("name", "separator")
        value = {"name": value.get("name"), "configuration": {"separator": value["separator"]}}
    return parse_chunk_key_encoding(value)
