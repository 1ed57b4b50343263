"""Arrays as HTML for notebooks: a table, a picture of the grid, and a ruler for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from zellige.display.svg import Grid, describe_axis, grid_svg, ruler_svg

_STYLE = (
    "<style>"
    ".zellige{display:flex;flex-wrap:wrap;gap:1rem 2rem;align-items:flex-start;max-width:100%}"
    ".zellige>*{min-width:0}"
    ".zellige table{border-collapse:collapse;margin:0}"
    ".zellige th,.zellige td{text-align:left;vertical-align:top;padding:.15em .8em .15em 0;background:none;"
    "overflow-wrap:anywhere}"
    ".zellige th{font-weight:600;white-space:nowrap}"
    ".zellige .ruler{margin:.2em 0;overflow-wrap:anywhere}"
    "</style>"
)


def array_html(
    title: str,
    facts: Sequence[tuple[str, str]],
    grid: Grid,
    inner: Sequence[int] | None,
    names: Sequence[str | None] | None,
) -> str:
    """A table of facts about an array, and pictures of its grid.

    Parameters
    ----------
    title
        What is above the table.
    facts
        Labels and values.
    grid
        The grid of the array.
    inner
        The shape of the inner chunks of shards.
    names
        The names of the axes.
    """
    rows = "".join(f"<tr><th scope='row'>{k}</th><td>{escape(_shortened(v))}</td></tr>" for k, v in facts)
    picture = grid_svg(grid, inner=inner, names=names)
    rulers = "".join(
        f"<div class='ruler'><div>{escape(name or f'axis {k}')}: {dim.extent:,} in {describe_axis(dim)}</div>"
        f"{ruler_svg(dim)}</div>"
        for k, (name, dim) in enumerate(zip(names or [None] * len(grid.axes), grid.axes, strict=True))
        if len(grid.axes) > 1  # one axis alone is a ruler already
    )
    caption = f"<caption style='text-align:left;font-weight:600'>{escape(title)}</caption>"
    return f"{_STYLE}<div class='zellige'><table>{caption}{rows}</table><div>{picture}</div><div>{rulers}</div></div>"


def _shortened(words: str, most: int = 160) -> str:
    """Types and fill values of many fields would fill the page."""
    return words if len(words) <= most else words[: most - 1] + "…"
