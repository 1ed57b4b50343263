"""Pictures of grids, for people."""

from zellige.display.text import draw_grid, ruler

__all__ = ["draw_grid", "ruler"]
