"""Metadata: what `zarr.json` says, as plain values that know nothing of codecs, stores or extents."""

from zellige.metadata.chunks import (
    ChunkKeyEncoding,
    DefaultChunkKeyEncoding,
    V2ChunkKeyEncoding,
    parse_chunk_key_encoding,
)
from zellige.metadata.groups import GroupMetadata
from zellige.metadata.v3 import ArrayV3Metadata

__all__ = [
    "ArrayV3Metadata",
    "GroupMetadata",
    "ChunkKeyEncoding",
    "DefaultChunkKeyEncoding",
    "V2ChunkKeyEncoding",
    "parse_chunk_key_encoding",
]
