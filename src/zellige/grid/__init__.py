"""Where chunks lie: edges, axes, grids, and what `chunks=` accepts."""
