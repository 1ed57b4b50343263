"""What `zarr.core.chunk_grids` has: the chunk grid and its dimensions.

`RegularChunkGrid` and `RectilinearChunkGrid`, which came before the one `ChunkGrid`, are the metadata classes now.
"""

from __future__ import annotations

from typing import Any

from zellige.core.metadata import deprecated
from zellige.grid.grid import ChunkGrid, ChunkSpec, DimensionGrid, FixedDimension, VaryingDimension

__all__ = ["ChunkGrid", "ChunkSpec", "DimensionGrid", "FixedDimension", "VaryingDimension"]


def __getattr__(name: str) -> Any:
    return deprecated(__name__, name)
