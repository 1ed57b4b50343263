"""What `zarr.experimental` has: the chunk grid, which is a stable part of zellige."""

from zellige.grid.grid import ChunkGrid, ChunkSpec

__all__ = ["ChunkGrid", "ChunkSpec"]
