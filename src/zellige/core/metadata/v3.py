"""What `zarr.core.metadata.v3` has, as far as chunk grids go; the module itself is `zellige.metadata.v3`."""

from __future__ import annotations

from typing import Any

from zellige.core.metadata import deprecated
from zellige.metadata.v3 import (
    ArrayV3Metadata,
    ChunkGridMetadata,
    RectilinearChunkGridMetadata,
    RegularChunkGridMetadata,
    parse_chunk_grid,
)

__all__ = [
    "ArrayV3Metadata",
    "ChunkGridMetadata",
    "RectilinearChunkGridMetadata",
    "RegularChunkGridMetadata",
    "parse_chunk_grid",
]


def __getattr__(name: str) -> Any:
    return deprecated(__name__, name)
