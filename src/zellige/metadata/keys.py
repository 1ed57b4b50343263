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

from zellige.metadata.document import as_extension, as_object, fail, only
from zellige.types import JSON, Coords

_FIELD = "chunk_key_encoding"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}").fullmatch


def _check_separator(separator: JSON) -> None:
    if separator not in ("/", "."):
        fail(f"{_FIELD}.configuration.separator", "'/' or '.'", separator)


def _numbers(parts: list[str], rank: int) -> Coords | None:
    return tuple(map(int, parts)) if len(parts) == rank and all(map(_NUMBER, parts)) else None


@dataclass(frozen=True, slots=True)
class DefaultChunkKeyEncoding:
    """`c/1/2`: the prefix keeps chunks apart from documents. Rank 0: `c`."""

    separator: str = "/"
    name: ClassVar[str] = "default"

    def __post_init__(self) -> None:
        _check_separator(self.separator)

    def encode_chunk_key(self, coords: Coords) -> str:
        """The key of a chunk."""
        return self.separator.join(["c", *map(str, coords)])

    def decode_chunk_key(self, key: str, rank: int) -> Coords | None:
        """The chunk that a key belongs to, or None if it is no chunk's key."""
        prefix, *parts = key.split(self.separator)
        return _numbers(parts, rank) if prefix == "c" else None

    def to_dict(self) -> dict[str, JSON]:
        """The object for the document."""
        return {"name": self.name, "configuration": {"separator": self.separator}}


@dataclass(frozen=True, slots=True)
class V2ChunkKeyEncoding:
    """`1.2`: for arrays converted from Zarr v2. Rank 0: `0`."""

    separator: str = "."
    name: ClassVar[str] = "v2"

    def __post_init__(self) -> None:
        _check_separator(self.separator)

    def encode_chunk_key(self, coords: Coords) -> str:
        """The key of a chunk."""
        return self.separator.join(map(str, coords)) or "0"

    def decode_chunk_key(self, key: str, rank: int) -> Coords | None:
        """The chunk that a key belongs to, or None if it is no chunk's key."""
        if rank == 0:
            return () if key == "0" else None
        return _numbers(key.split(self.separator), rank)

    def to_dict(self) -> dict[str, JSON]:
        """The object for the document."""
        return {"name": self.name, "configuration": {"separator": self.separator}}


ChunkKeyEncoding: TypeAlias = DefaultChunkKeyEncoding | V2ChunkKeyEncoding

_ENCODINGS: dict[str, type[ChunkKeyEncoding]] = {
    "default": DefaultChunkKeyEncoding,
    "v2": V2ChunkKeyEncoding,
}


def parse_chunk_key_encoding(value: JSON) -> ChunkKeyEncoding:
    """The encoding that a document declares."""
    name, configuration = as_extension(value, _FIELD, ignorable=False)
    if name not in _ENCODINGS:
        fail(f"{_FIELD}.name", "'default' or 'v2'", name)
    only(configuration, f"{_FIELD}.configuration", "separator")
    return _ENCODINGS[name](**configuration)


def chunk_key_encoding_argument(value: JSON | ChunkKeyEncoding | None) -> ChunkKeyEncoding:
    """What users give as `chunk_key_encoding=`: an object, a name, JSON, or `{"name", "separator"}`."""
    if value is None:
        return DefaultChunkKeyEncoding()
    if isinstance(value, DefaultChunkKeyEncoding | V2ChunkKeyEncoding):
        return value
    if isinstance(value, dict) and "separator" in value:
        short = as_object(value, _FIELD)
        only(short, _FIELD, "name", "separator")
        value = {"name": short.get("name"), "configuration": {"separator": short["separator"]}}
    return parse_chunk_key_encoding(value)
