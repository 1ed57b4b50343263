"""A hierarchy as a tree for people: lines of text, or nested HTML that opens and closes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple


class _Marks(NamedTuple):
    """What the lines of a tree are drawn with."""

    fork: str
    last: str
    down: str
    gap: str
    more: str


_UNICODE = _Marks("├── ", "└── ", "│   ", "    ", "…")
_ASCII = _Marks("|-- ", "`-- ", "|   ", "    ", "...")


class Member(NamedTuple):
    """A node below the root of a tree."""

    path: str
    label: str = ""
    """What is said of it after its name."""
    is_group: bool = True
    is_broken: bool = False


@dataclass(slots=True)
class _Branch:
    """A node with what is shown of it, and those below."""

    name: str
    label: str = ""
    is_group: bool = True
    broken: bool = False
    below: dict[str, _Branch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tree:
    """A hierarchy to look at; prints as text, and shows as HTML in notebooks."""

    root: _Branch
    hidden: int
    """How many nodes are there beyond those shown."""
    plain: bool = False
    expand: bool | None = None

    @classmethod
    def of(cls, name: str, members: Sequence[Member], *, max_nodes: int, plain: bool, expand: bool | None) -> Tree:
        """The tree of a group.

        Parameters
        ----------
        name
            What stands at the root.
        members
            All that is below, sorted by the names in their paths.
        max_nodes
            How many of them are shown.
        plain
            Whether lines are drawn with ASCII characters.
        expand
            Whether all groups are open in HTML; None opens the first levels.
        """
        root = _Branch(name)
        for member in members[:max_nodes]:
            *above, last = member.path.split("/")
            parent = root
            for part in above:
                parent = parent.below.setdefault(part, _Branch(part))
            parent.below[last] = _Branch(last, member.label, member.is_group, member.is_broken)
        return cls(root, max(0, len(members) - max_nodes), plain, expand)

    def __repr__(self) -> str:
        marks = _ASCII if self.plain else _UNICODE
        lines = [self.root.name, *_lines(self.root, "", marks)]
        if self.hidden:
            lines.append(f"{marks.more} and {self.hidden} more; give max_nodes= to see them")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        more = f"<p>… and {self.hidden} more; give <code>max_nodes=</code> to see them</p>" if self.hidden else ""
        return (
            f'<div class="zellige-tree" style="overflow-wrap:anywhere">{_html(self.root, 0, self.expand)}{more}</div>'
        )


def _lines(branch: _Branch, indent: str, marks: _Marks) -> list[str]:
    lines = []
    for k, child in enumerate(branch.below.values(), 1):
        last = k == len(branch.below)
        text = f"{child.name} {child.label}".rstrip()
        lines.append(f"{indent}{marks.last if last else marks.fork}{text}")
        lines += _lines(child, indent + (marks.gap if last else marks.down), marks)
    return lines


def _html(branch: _Branch, depth: int, expand: bool | None) -> str:
    name = escape(branch.name)
    if not branch.is_group:
        warning = " role='alert'" if branch.broken else ""
        return f"<div{warning} style='margin-left:1.2em'><b>{name}</b> {escape(branch.label)}</div>"
    below = "".join(_html(child, depth + 1, expand) for child in branch.below.values())
    opened = " open" if expand or (expand is None and depth < 2) else ""
    margin = " style='margin-left:1.2em'" if depth else ""
    return f"<details{opened}{margin}><summary><b>{name}</b></summary>{below}</details>"
