"""What terminals show: grids drawn with characters, to scale, hierarchies as trees, and versions.

>>> from zellige import ChunkGrid
>>> print(draw_grid(ChunkGrid.from_sizes((5, 12), [[1, 4], [3, 6, 3]]), width=25, height=5))
┌─────┬───────────┬─────┐
│     │           │     │ 1
├─────┼───────────┼─────┤
│     │           │     │
│     │           │     │ 4
│     │           │     │
└─────┴───────────┴─────┘
   3        6        3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from typing import NamedTuple

from zellige.display.svg import Axis, Grid


def draw_grid(grid: Grid, width: int = 72, height: int = 12) -> str:
    """The last two axes of a grid as a table of cells in proportion; one axis is drawn as a ruler.

    Axes with more chunks than fit are cut short, with an ellipsis; nothing walks a large grid.
    """
    if not grid.axes:
        return "┌─┐\n└─┘\none chunk of one value"
    if not all(dim.nchunks for dim in grid.axes):
        return f"no chunks: the shape is {grid.shape}"
    if len(grid.axes) == 1:
        return ruler(grid.axes[0], width)
    rows, columns = (_sizes(dim, room) for dim, room in zip(grid.axes[-2:], (height, width // 3), strict=True))
    return _table(rows, columns, width, height)


def ruler(dim: Axis, width: int = 72) -> str:
    """One axis as a row of cells in proportion, with the sizes below.

    >>> from zellige import VaryingDimension
    >>> print(ruler(VaryingDimension([31, 28, 31], 90), width=30))
    ┌─────────┬────────┬─────────┐
    └─────────┴────────┴─────────┘
         31       28        31
    """
    return _table([], _sizes(dim, width // 3), width, 0)


def _sizes(dim: Axis, room: int) -> list[int | None]:
    """The data sizes of the chunks that fit; None stands for the ones left out."""
    sizes = dim.data_runs
    if len(sizes) <= room:
        return list(sizes)
    head = room * 2 // 3
    return [*sizes[:head], None, *sizes[len(sizes) - (room - head - 1) :]]


def _scaled(sizes: Sequence[int | None], width: int) -> list[int]:
    """Where each cell ends, in characters; every cell has at least one character between its lines."""
    known = [size for size in sizes if size is not None]
    gap = max(1, sum(known) // len(known))
    ends = list(accumulate(gap if size is None else size for size in sizes))
    total = ends[-1]
    positions: list[int] = []
    for end in ends:
        least = (positions[-1] if positions else 0) + 2
        positions.append(max(least, round(end * (width - 1) / total)))
    return positions


def _line(ends: Sequence[int], corners: str) -> str:
    left, fill, middle, right = tuple(corners)
    last = ends[-1]
    marks = set(ends)
    return left + "".join(right if k == last else middle if k in marks else fill for k in range(1, last + 1))


def _labels(sizes: Sequence[int | None], ends: Sequence[int]) -> str:
    """The sizes centred below their cells; left out where there is no room."""
    text, start = "", 0
    for size, end in zip(sizes, ends, strict=True):
        label = "…" if size is None else str(size)
        room = end - start
        text += (label if len(label) < room else "·").center(room - 1) + " "
        start = end
    return (" " + text).rstrip()


def _table(rows: list[int | None], columns: list[int | None], width: int, height: int) -> str:
    across = _scaled(columns, width)
    down = _row_heights(rows, height)
    body, lines = _line(across, "│ ││"), [_line(across, "┌─┬┐")]
    for k, (size, tall) in enumerate(zip(rows, down, strict=True)):
        label = "…" if size is None else str(size)
        lines += [f"{body} {label}" if line == tall // 2 else body for line in range(tall)]
        if k < len(rows) - 1:
            lines.append(_line(across, "├─┼┤"))
    lines += [_line(across, "└─┴┘"), _labels(columns, across)]
    return "\n".join(lines)


def _row_heights(rows: Sequence[int | None], height: int) -> list[int]:
    """How many lines each row of chunks takes: in proportion, at least one."""
    known = [size for size in rows if size is not None]
    total = sum(known)
    room = max(len(rows), height - len(rows) + 1)
    return [1 if size is None else max(1, round(size * room / total)) for size in rows]


def human_bytes(nbytes: float) -> str:
    """A number of bytes for people.

    >>> human_bytes(5 * 2**20)
    '5.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} PiB"


_OPTIONAL = ("ml_dtypes", "zfpy", "pcodec", "msgpack", "xarray", "dask")


def print_debug_info() -> None:
    """Print versions of everything that matters when something does not work.

    >>> import zellige
    >>> zellige.print_debug_info()  # doctest: +ELLIPSIS
    platform: ...
    """
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, version

    print(f"platform: {platform.platform()}\npython: {sys.version.split()[0]}")
    for package in ("zellige", "numpy", "numcodecs", "zstandard", "google-crc32c", "isal", *_OPTIONAL):
        try:
            print(f"{package}: {version(package)}")
        except PackageNotFoundError:
            print(f"{package}: not installed")


class _Marks(NamedTuple):
    """What the lines of a tree are drawn with."""

    fork: str
    last: str
    down: str
    gap: str
    more: str


_UNICODE = _Marks("├── ", "└── ", "│   ", "    ", "…")
_ASCII = _Marks("|-- ", "`-- ", "|   ", "    ", "...")


@dataclass(slots=True)
class Member:
    """A node of a tree, with those below it by their names."""

    path: str
    label: str = ""
    """What is said of it after its name."""
    is_group: bool = True
    is_broken: bool = False
    below: dict[str, Member] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tree:
    """A hierarchy to look at; prints as text, and shows as HTML in notebooks."""

    root: Member
    hidden: int
    """How many nodes are there beyond those shown."""
    plain: bool = False
    """Whether lines are drawn with ASCII characters."""
    expand: bool | None = None
    """Whether all groups are open in HTML; None opens the first levels."""

    @classmethod
    def of(cls, name: str, members: Sequence[Member], *, max_nodes: int, plain: bool, expand: bool | None) -> Tree:
        """The tree of a group: what stands at its root, and all members below, sorted by the names in their paths."""
        root = Member(name)
        for member in members[:max_nodes]:
            *above, last = member.path.split("/")
            parent = root
            for part in above:
                parent = parent.below.setdefault(part, Member(part))
            parent.below[last] = member
        return cls(root, max(0, len(members) - max_nodes), plain, expand)

    def __repr__(self) -> str:
        marks = _ASCII if self.plain else _UNICODE
        lines = [self.root.path, *_lines(self.root, "", marks)]
        if self.hidden:
            lines.append(f"{marks.more} and {self.hidden} more; give max_nodes= to see them")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        more = f"<p>… and {self.hidden} more; give <code>max_nodes=</code> to see them</p>" if self.hidden else ""
        shown = _html(self.root.path, self.root, 0, self.expand)
        return f'<div class="zellige-tree" style="overflow-wrap:anywhere">{shown}{more}</div>'


def _lines(member: Member, indent: str, marks: _Marks) -> list[str]:
    lines = []
    for k, (name, child) in enumerate(member.below.items(), 1):
        last = k == len(member.below)
        text = f"{name} {child.label}".rstrip()
        lines.append(f"{indent}{marks.last if last else marks.fork}{text}")
        lines += _lines(child, indent + (marks.gap if last else marks.down), marks)
    return lines


def _html(name: str, member: Member, depth: int, expand: bool | None) -> str:
    name = escape(name)
    if not member.is_group:
        warning = " role='alert'" if member.is_broken else ""
        return f"<div{warning} style='margin-left:1.2em'><b>{name}</b> {escape(member.label)}</div>"
    below = "".join(_html(*child, depth + 1, expand) for child in member.below.items())
    opened = " open" if expand or (expand is None and depth < 2) else ""
    margin = " style='margin-left:1.2em'" if depth else ""
    return f"<details{opened}{margin}><summary><b>{name}</b></summary>{below}</details>"
