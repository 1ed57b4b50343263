"""Pictures of grids, for people: in characters, and as SVG."""

from zellige.display.text import draw_grid, ruler

__all__ = ["draw_grid", "ruler"]
