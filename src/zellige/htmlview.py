"""Arrays as HTML for notebooks: a table, a picture of the grid, and a ruler for each axis."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from zellige.display.svg import describe_axis, grid_svg, ruler_svg
from zellige.info import human_bytes

if TYPE_CHECKING:
    from zellige.array import Array
    from zellige.measuring import Coverage

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


def array_html(array: Array) -> str:
    """What `repr` says, and pictures; nothing is read."""
    rows = "".join(f"<tr><th scope='row'>{k}</th><td>{escape(_shortened(v))}</td></tr>" for k, v in _facts(array))
    names = array.dimension_names or (None,) * array.ndim
    picture = grid_svg(array.grid, inner=array._inner, names=names)
    rulers = "".join(
        f"<div class='ruler'><div>{escape(name or f'axis {k}')}: {array.shape[k]:,} in {describe_axis(dim)}</div>"
        f"{ruler_svg(dim)}</div>"
        for k, (name, dim) in enumerate(zip(names, array.grid.dimensions, strict=True))
        if array.ndim > 1  # one axis alone is a ruler already
    )
    caption = f"<caption style='text-align:left;font-weight:600'>zellige.Array {escape(array.name)}</caption>"
    return f"{_STYLE}<div class='zellige'><table>{caption}{rows}</table><div>{picture}</div><div>{rulers}</div></div>"


def _shortened(words: str, most: int = 160) -> str:
    """Types and fill values of many fields would fill the page."""
    return words if len(words) <= most else words[: most - 1] + "…"


def _facts(array: Array) -> list[tuple[str, str]]:
    grid = array.grid
    count = grid.get_nchunks()
    kind = ("chunk" if array._inner is None else "shard") + "s" * (count != 1)
    facts = [
        ("Shape", " × ".join(f"{n:,}" for n in array.shape) or "scalar"),
        ("Type", str(array.metadata.data_type.label)),
        ("Size", human_bytes(array.nbytes)),
        ("Grid", f"{array.metadata.chunk_grid.name}, {count:,} {kind}"),
    ]
    if array._inner is not None:
        facts.append(("Inner chunks", " × ".join(f"{n:,}" for n in array._inner)))
    compressors = ", ".join(str(getattr(codec, "name", codec)) for codec in array.compressors) or "none"
    return [*facts, ("Compressors", compressors), ("Fill value", str(array.fill_value)), ("Store", repr(array.store))]


def coverage_svg(array: Array, coverage: Coverage) -> str:
    """The grid with the chunks filled that are stored."""
    stored = np.array(sorted(coverage.stored), np.intp).reshape(len(coverage.stored), array.ndim)
    return grid_svg(array.grid, inner=array._inner, stored=stored, names=array.dimension_names)
