"""Grids as pictures: SVG to scale, for notebooks and pages.

Colours come from the text around the picture, so that it reads on dark and on light pages. Lines that would be closer
than a few pixels are left out. Where there are many chunks, lines are found by looking at pixels, not at chunks: a grid
of 10^12 is drawn as quickly as one of a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple, Protocol
from unicodedata import east_asian_width

import numpy as np

from zellige.types import AnyArray

_WIDTH = 360  # pixels of a picture
_CLOSE = 3.0  # pixels; closer lines run into each other
_DENSE = 7.0  # pixels; lines that are closer than this on average are drawn faintly, or they would be a black box
_LETTER = 7.0  # pixels that a digit takes
_ROW = 14  # pixels that a line of text takes
_ACCENT = "#2b8a9e"
_MOST_RATIO = 4.0


class Axis(Protocol):
    """What is drawn of one axis of a grid."""

    @property
    def extent(self) -> int:
        """The number of elements."""

    @property
    def nchunks(self) -> int:
        """The number of chunks."""

    @property
    def data_runs(self) -> Any:
        """The data size of every chunk; `unique()` of them gives each size once."""

    def chunk_offset(self, chunk_ix: int) -> int:
        """Where a chunk begins."""

    def index_to_chunk(self, idx: int) -> int:
        """The chunk that holds an element."""


class Grid(Protocol):
    """What is drawn of a grid."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""

    @property
    def axes(self) -> Sequence[Axis]:
        """Its axes."""


class _Axis(NamedTuple):
    """One axis as it is drawn: its length in pixels, and where chunks end."""

    length: float
    cuts: list[float]
    """Pixels, from 0 to the length."""
    chunks: list[int]
    """The number of the chunk that begins at each cut; as long as `cuts`, the last is the number of chunks."""
    sizes: list[int | None]
    """The size of each piece between cuts, if it is one chunk."""


def _axis(dim: Axis, length: float) -> _Axis:
    """Where the lines of an axis go."""
    extent, count = dim.extent, dim.nchunks
    if not extent:
        return _Axis(length, [0.0, length], [0, 0], [None])
    scale = length / extent
    least = _CLOSE
    if count <= length / _CLOSE:
        starts = [(k, dim.chunk_offset(k)) for k in range(count)]
    else:
        least /= 2  # a chunk begins somewhat before the pixel that is asked for
        steps = int(length / _CLOSE)
        seen = dict.fromkeys(dim.index_to_chunk(k * extent // steps) for k in range(steps))
        starts = [(k, dim.chunk_offset(k)) for k in seen]
    kept: list[tuple[int, int]] = []
    for k, offset in starts:
        if not kept or (offset - kept[-1][1]) * scale >= least:
            kept.append((k, offset))
    numbers = [k for k, _ in kept] + [count]
    ends = [offset for _, offset in kept] + [extent]
    sizes = [b - a if n - m == 1 else None for (a, b), (m, n) in zip(pairwise(ends), pairwise(numbers), strict=True)]
    return _Axis(length, [end * scale for end in ends], numbers, sizes)


# -- words ----------------------------------------------------------------------------------------


def describe_axis(dim: Axis) -> str:
    """The chunks of an axis in a few words.

    >>> from zellige import FixedDimension, VaryingDimension
    >>> describe_axis(FixedDimension(10, 100)), describe_axis(VaryingDimension([31, 28], 59))
    ('10 chunks of 10', '2 chunks of 28 to 31')
    """
    sizes = sorted(set(dim.data_runs.unique()))
    if not sizes:
        return "no chunks"
    size = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return f"{dim.nchunks:,} chunk{'s' * (dim.nchunks != 1)} of {size}"


def _described(grid: Grid) -> str:
    shape = " × ".join(f"{n:,}" for n in grid.shape) or "one value"
    return f"Grid of {shape} elements: " + (" by ".join(map(describe_axis, grid.axes)) or "one chunk")


# -- pictures -------------------------------------------------------------------------------------


def grid_svg(
    grid: Grid,
    *,
    inner: Sequence[int] | None = None,
    stored: AnyArray | None = None,
    names: Sequence[str | None] | None = None,
    width: int = _WIDTH,
    height: int = 260,
) -> str:
    """The last two axes of a grid, to scale; one axis is a row of cells.

    The chunks of shape `inner` in shards are thin lines, and cells are filled by the part of them that is `stored`:
    the coordinates of chunks, one in each row. `names` are those of the axes.
    """
    shape = grid.shape[-2:] if len(grid.shape) > 1 else (1, *grid.shape) if len(grid.shape) else (1, 1)
    labels = [name or "" for name in (names or [None] * len(grid.shape))][-2:]
    rows, columns = _lengths(shape, width, height) if len(grid.shape) > 1 else (28.0, float(width))
    across = _axis(grid.axes[-1], columns) if len(grid.shape) else _Axis(28.0, [0.0, 28.0], [0, 1], [1])
    down = _axis(grid.axes[-2], rows) if len(grid.shape) > 1 else _Axis(28.0, [0.0, 28.0], [0, 1], [None])
    parts = [*_cells(down, across, _shares(stored, down, across, len(grid.shape)))]
    if inner is not None and len(grid.shape):
        parts += _inner_lines(inner[-2:], shape, down, across)
    parts += _lines(down, across)
    beside = _labels(down, lambda _: _ROW - 2)
    right = max((len(text) for _, text in beside), default=0) * _LETTER + 8
    parts += _labels_below(across, down.length)
    parts += [_text(across.length + 5, middle + 4, text, "start") for middle, text in beside]
    foot, edge = down.length + _ROW + 2, across.length + right
    if title := _shortened(" × ".join(label for label in labels if label), max(edge, width)):
        foot, taken = foot + _ROW, _pixels(title)
        edge = max(edge, taken)
        parts.append(_text(max(across.length, taken) / 2, foot - 3, title, "middle"))
    return _svg(edge, foot + 2, parts, _described(grid))


def ruler_svg(dim: Axis) -> str:
    """One axis as a row of cells, with the sizes of the chunks below where there is room."""
    across = _axis(dim, float(_WIDTH))
    down = _Axis(12.0, [0.0, 12.0], [0, 1], [None])
    parts = [*_cells(down, across, None), *_lines(down, across), *_labels_below(across, down.length)]
    return _svg(across.length, down.length + _ROW + 4, parts, describe_axis(dim))


def _lengths(shape: Sequence[int], width: int, height: int) -> tuple[float, float]:
    """How tall and wide two axes are drawn: in proportion, unless one would be a thread."""
    tall, wide = (max(1, n) for n in shape)
    ratio = min(_MOST_RATIO, max(1 / _MOST_RATIO, tall / wide))
    columns = min(width, height / ratio)
    return columns * ratio, columns


def _shares(stored: AnyArray | None, down: _Axis, across: _Axis, ndim: int) -> AnyArray | None:
    """For each cell that is drawn, which part of its chunks is stored, over all other axes."""
    if stored is None:
        return None
    counts = np.zeros((len(down.sizes), len(across.sizes)))
    if len(stored) and ndim:
        column = np.searchsorted(across.chunks[1:], stored[:, -1], "right")
        row = np.searchsorted(down.chunks[1:], stored[:, -2], "right") if ndim > 1 else np.zeros_like(column)
        np.add.at(counts, (row, column), 1)
    elif len(stored):
        counts[...] = 1
    most = np.outer(np.diff(down.chunks), np.diff(across.chunks))
    # Of several chunks behind one another, any that is stored counts.
    return np.minimum(1.0, counts / np.maximum(most, 1))


def _cells(down: _Axis, across: _Axis, shares: AnyArray | None) -> list[str]:
    if shares is None:
        return [_rectangle(0, 0, across.length, down.length, 0.12)]
    cells = [_rectangle(0, 0, across.length, down.length, 0.06)]
    for row, column in zip(*np.nonzero(shares), strict=True):
        left, right = across.cuts[column : column + 2]
        top, bottom = down.cuts[row : row + 2]
        cells.append(_rectangle(left, top, right - left, bottom - top, 0.2 + 0.6 * float(shares[row, column])))
    return cells


def _rectangle(x: float, y: float, width: float, height: float, opacity: float) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{_ACCENT}" fill-opacity="{opacity:.2f}"/>'


def _lines(down: _Axis, across: _Axis) -> list[str]:
    """The borders of chunks, and of the whole."""
    vertical = "".join(f"M{x:.1f} 0V{down.length:.1f}" for x in across.cuts)
    horizontal = "".join(f"M0 {y:.1f}H{across.length:.1f}" for y in down.cuts)
    frame = f"M0 0H{across.length:.1f}V{down.length:.1f}H0Z"
    dense = any(axis.length < _DENSE * len(axis.sizes) for axis in (down, across))
    return [_path(vertical + horizontal, ".3" if dense else ".75"), _path(frame, ".75")]


def _path(path: str, opacity: str, more: str = "") -> str:
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="{opacity}"{more}/>'


def _inner_lines(inner: Sequence[int], shape: Sequence[int], down: _Axis, across: _Axis) -> list[str]:
    """The inner chunks of shards, where there is room for their lines; they begin anew in each shard."""
    steps = [1, *inner] if len(inner) == 1 else list(inner)
    path = ""
    for axis, step, extent in ((across, steps[-1], shape[-1]), (down, steps[-2], shape[-2])):
        gap = axis.length * step / max(1, extent)
        other = down.length if axis is across else across.length
        if gap >= _CLOSE and axis.sizes != [None]:
            for start, end in pairwise(axis.cuts):
                for k in range(1, int((end - start - 0.01) / gap) + 1):
                    at = start + k * gap
                    path += f"M{at:.1f} 0V{other:.1f}" if axis is across else f"M0 {at:.1f}H{other:.1f}"
    return [_path(path, ".25", ' stroke-dasharray="2 2"')]


def _labels_below(axis: _Axis, top: float) -> list[str]:
    """The sizes of chunks below their cells, where they fit."""
    fitting = _labels(axis, lambda text: len(text) * _LETTER + 4)
    return [_text(middle, top + _ROW - 2, text, "middle") for middle, text in fitting]


def _labels(axis: _Axis, room: Callable[[str], float]) -> list[tuple[float, str]]:
    """The sizes of the chunks that have room for them, with the middles of their cells."""
    cells = [
        (a, b, str(size)) for (a, b), size in zip(pairwise(axis.cuts), axis.sizes, strict=True) if size is not None
    ]
    return [((a + b) / 2, text) for a, b, text in cells if b - a >= room(text)]


def _pixels(words: str) -> float:
    """At least as many pixels as words take in any usual font."""
    wide = {"W": 12.0, "F": 12.0}
    return sum(wide.get(east_asian_width(c), 10.5 if c.isupper() else _LETTER) for c in words) + 4


def _shortened(words: str, room: float) -> str:
    """The words, or as many of their letters as there is room for."""
    if _pixels(words) <= room:
        return words
    while words and _pixels(words) + 12 > room:
        words = words[:-1]
    return words + "…"


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(width: float, height: float, parts: Sequence[str], words: str) -> str:
    words = escape(words)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{words}" '
        f'viewBox="-1 -1 {width + 2:.1f} {height + 2:.1f}" width="{width + 2:.0f}" height="{height + 2:.0f}" '
        'style="max-width:100%;height:auto" font-family="system-ui, sans-serif" font-size="11" fill="currentColor">'
    )
    return f"{head}<title>{words}</title>{''.join(parts)}</svg>"


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
    """A table of facts about an array, and pictures of its grid; `inner` and `names` as for `grid_svg`."""
    rows = "".join(f"<tr><th scope='row'>{k}</th><td>{escape(_cut(v))}</td></tr>" for k, v in facts)
    picture = grid_svg(grid, inner=inner, names=names)
    rulers = "".join(
        f"<div class='ruler'><div>{escape(name or f'axis {k}')}: {dim.extent:,} in {describe_axis(dim)}</div>"
        f"{ruler_svg(dim)}</div>"
        for k, (name, dim) in enumerate(zip(names or [None] * len(grid.axes), grid.axes, strict=True))
        if len(grid.axes) > 1  # one axis alone is a ruler already
    )
    caption = f"<caption style='text-align:left;font-weight:600'>{escape(title)}</caption>"
    return f"{_STYLE}<div class='zellige'><table>{caption}{rows}</table><div>{picture}</div><div>{rulers}</div></div>"


def _cut(words: str, most: int = 160) -> str:
    """Types and fill values of many fields would fill the page."""
    return words if len(words) <= most else words[: most - 1] + "…"
