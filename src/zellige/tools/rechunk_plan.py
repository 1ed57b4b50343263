"""How an array is cut anew in bounded memory: boxes of whole target chunks, each read, held and written at once.

A source chunk that lies in several boxes is decoded once for each of them. Boxes are as large as the memory allows,
and shaped so that this happens as seldom as possible. Where it would still be often, as from rows to columns, the
values go through an intermediate array: boxes of whole source chunks into it, boxes of whole target chunks out of it.
Its chunks are where the two kinds of boxes overlap, so that each is written once and read once; that they have many
sizes is nothing special here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TypeAlias

import numpy as np

from zellige.types import Indices, Shape

Ends: TypeAlias = Indices
"""Where the pieces of an axis end; the last entry is the length of the axis."""

_DIRECT = 3
"""Decoding each source chunk so often takes about as long as an intermediate array, which is written and read once."""


def ends_of(sizes: Sequence[int]) -> Ends:
    """Where pieces of these sizes end."""
    return np.fromiter(accumulate(sizes), np.intp, len(sizes))


@dataclass(frozen=True)
class Boxes:
    """An array cut into boxes: where they end along each axis."""

    ends: tuple[Ends, ...]

    @property
    def shape(self) -> Shape:
        """The number of boxes along each axis."""
        return tuple(map(len, self.ends))

    def __len__(self) -> int:
        return prod(self.shape)

    def __getitem__(self, number: int) -> tuple[slice, ...]:
        """The region of a box; they are counted in C order."""
        place = np.unravel_index(number, self.shape) if self.ends else ()
        return tuple(
            slice(int(ends[k - 1]) if k else 0, int(ends[k])) for ends, k in zip(self.ends, place, strict=True)
        )

    def __iter__(self) -> Iterator[tuple[slice, ...]]:
        return (self[number] for number in range(len(self)))

    @property
    def largest(self) -> int:
        """The elements of the largest box."""
        return prod(int(np.diff(ends, prepend=0).max(initial=0)) for ends in self.ends)

    def pieces(self, other: Boxes) -> int:
        """How often one of these boxes and one of the others overlap."""
        return prod(len(np.union1d(mine, theirs)) for mine, theirs in zip(self.ends, other.ends, strict=True))

    def split_by(self, other: Boxes) -> Boxes:
        """The pieces in which these boxes and the others overlap."""
        return Boxes(tuple(np.union1d(mine, theirs) for mine, theirs in zip(self.ends, other.ends, strict=True)))


def group(pieces: Boxes, other: Boxes, most: int) -> Boxes:
    """Boxes of whole pieces with at most so many elements, where few cut through one of the others.

    A single piece may be larger; then it is a box of its own. All axes are whole at first, and the one is halved whose
    halving costs least, until the boxes fit.
    """
    lengths = [int(ends[-1]) if len(ends) else 0 for ends in pieces.ends]
    boxes = Boxes(tuple(map(_cut, pieces.ends, other.ends, lengths)))
    while boxes.largest > most:
        smaller = []
        for axis, length in enumerate(lengths):
            if len(boxes.ends[axis]) == len(pieces.ends[axis]):
                continue  # every piece is a box of its own
            ends = _cut(pieces.ends[axis], other.ends[axis], length // 2)
            halved = Boxes((*boxes.ends[:axis], ends, *boxes.ends[axis + 1 :]))
            # Of two that cost the same, the first axis: boxes then are long where the values lie side by side.
            smaller.append((halved.pieces(other), axis, halved))
        if not smaller:
            break
        _, axis, boxes = min(smaller, key=lambda found: found[:2])
        lengths[axis] //= 2
    return boxes


def _cut(pieces: Ends, other: Ends, length: int) -> Ends:
    """Where to cut an axis into runs of whole pieces of at most such a length, or of a single piece that is longer.

    A place where the other grid is cut as well is preferred, if the run does not become less than half as long.
    """
    common = np.intersect1d(pieces, other)
    ends: list[int] = []
    start = 0
    while len(pieces) and start < pieces[-1]:
        first = int(np.searchsorted(pieces, start, "right"))
        best = int(pieces[max(first, int(np.searchsorted(pieces, start + length, "right")) - 1)])
        shared = int(common[int(np.searchsorted(common, best, "right")) - 1]) if best >= common[0] else start
        start = shared if 2 * (shared - start) >= best - start else best
        ends.append(start)
    return np.array(ends, np.intp)


@dataclass(frozen=True)
class RechunkPlan:
    """Boxes to be carried from the source to the target, or into an intermediate array and out of it."""

    first: Boxes
    """Boxes of the target; with an intermediate array, boxes of the source that go into it."""
    second: Boxes | None = None
    """Boxes of the target that come out of the intermediate array, if there is one."""

    @property
    def middle(self) -> Boxes | None:
        """The chunks of the intermediate array."""
        return None if self.second is None else self.first.split_by(self.second)

    @property
    def stages(self) -> tuple[Boxes, ...]:
        """The boxes in the order in which they are carried: all of one stage before the next."""
        return (self.first,) if self.second is None else (self.first, self.second)

    @property
    def tasks(self) -> int:
        """How many boxes are to be carried."""
        return sum(map(len, self.stages))

    @property
    def largest(self) -> int:
        """The elements of the largest box."""
        return max(boxes.largest for boxes in self.stages)


def make_plan(source: Boxes, target: Boxes, most: int, *, by_middle: bool = True) -> RechunkPlan:
    """The plan that decodes source chunks seldom, with boxes of at most so many elements.

    `by_middle` says whether there is a place for an intermediate array.
    """
    direct = group(target, source, most)
    if not by_middle or direct.pieces(source) <= _DIRECT * len(source):
        return RechunkPlan(direct)
    into, out = group(source, target, most), group(target, source, most)
    # Small pieces cost more to store than they save: then chunks are rather decoded more often.
    if into.pieces(out) > direct.pieces(source):
        return RechunkPlan(direct)
    return RechunkPlan(into, out)
