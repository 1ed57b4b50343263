"""Metadata: what `zarr.json` says, as plain values that know nothing of codecs, stores or extents."""

from zellige.metadata.grids import (
    ChunkGridMetadata,
    RectilinearChunkGridMetadata,
    RegularChunkGridMetadata,
    parse_chunk_grid,
)
from zellige.metadata.groups import GroupMetadata
from zellige.metadata.keys import (
    ChunkKeyEncoding,
    DefaultChunkKeyEncoding,
    V2ChunkKeyEncoding,
    parse_chunk_key_encoding,
)
from zellige.metadata.v3 import ArrayV3Metadata

__all__ = [
    "ArrayV3Metadata",
    "GroupMetadata",
    "ChunkGridMetadata",
    "RegularChunkGridMetadata",
    "RectilinearChunkGridMetadata",
    "parse_chunk_grid",
    "ChunkKeyEncoding",
    "DefaultChunkKeyEncoding",
    "V2ChunkKeyEncoding",
    "parse_chunk_key_encoding",
]
