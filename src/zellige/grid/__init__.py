"""Where chunks lie: edges, axes, grids, and what `chunks=` accepts."""

from zellige.grid.axis import DimensionGrid, FixedDimension, VaryingDimension
from zellige.grid.grid import ChunkGrid, ChunkSpec

__all__ = ["ChunkGrid", "ChunkSpec", "DimensionGrid", "FixedDimension", "VaryingDimension"]
