"""What zarr-python hands to a codec pipeline, as one selection of an array.

A batch lists chunks: where each is stored, what is picked of it, where that lies in the result. It is the product of
what is picked along each axis, or a list of points by chunks. Both become one index of elements again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from zarr.storage import StorePath

Index = slice | npt.NDArray[np.int64]
Item = tuple[Any, Any, Any, Any, bool]
"""A chunk of a batch: its `StorePath` and `ArraySpec`, what is picked of it, where that lies, whether that is all."""


class Keys(NamedTuple):
    """How the chunks of an array are named."""

    prefix: str
    """What all of their keys begin with, empty or up to a `/`."""
    separator: str
    is_default: bool
    """Whether a `c` follows the prefix: in an encoding `default` with dots, or without axes."""

    def numbers(self, path: str) -> tuple[str, ...]:
        """Return the numbers of a chunk along the axes."""
        return tuple(path[len(self.prefix) :].split(self.separator)[self.is_default :])


@cache
def _forms(ndim: int) -> tuple[re.Pattern[str], ...]:
    """Keys with slashes and keys with dots. What stands before the numbers of the first is a part of the prefix."""
    number = r"(?:0|[1-9]\d*)"
    slashes, dots = "/".join([number] * ndim), r"\.".join([number] * ndim)
    return re.compile(rf"(?P<prefix>(?:.*/)?)(?P<c>){slashes}"), re.compile(rf"(?P<prefix>(?:.*/)?)(?P<c>c\.|){dots}")


def keys_of(path: str, ndim: int) -> Keys | None:
    """Return how chunks are named, from the key of one; None for an encoding that is not known here."""
    if not ndim:
        prefix, slash, name = path.rpartition("/")
        return Keys(prefix + slash, "/", name == "c") if name in ("c", "0") else None
    for form, separator in zip(_forms(ndim), "/.", strict=True):
        if found := form.fullmatch(path):
            return Keys(found["prefix"], separator, bool(found["c"]))
    return None


class Line(NamedTuple):
    """The chunks of a batch along one axis of the array."""

    sizes: dict[int, int]
    """Their sizes, by their numbers in the grid."""
    starts: dict[int, int]
    """Where they begin. Where sizes differ, each chunk between them, of unknown size, counts as one element."""
    extent: int
    """Where the array ends, if the batch tells; else behind its last chunk."""

    @property
    def edges(self) -> int | list[list[int]]:
        """The size of all chunks, or runs of edges, as in the metadata of a rectilinear grid."""
        if len(set(self.sizes.values())) == 1:
            return next(iter(self.sizes.values()))
        runs, end = [], 0
        for number in sorted(self.sizes):
            if number > end:
                runs.append([1, number - end])
            runs.append([self.sizes[number], 1])
            end = number + 1
        return runs


class Selected(NamedTuple):
    """A batch as one selection."""

    keys: Keys
    lines: tuple[Line, ...]
    picks: tuple[Index, ...]
    shape: tuple[int, ...]
    """The shape of what is picked; axes that the result drops have one element."""
    result: tuple[int, ...]
    """The shape of the result."""
    points: bool
    """Whether the index picks point by point."""


def selected(batch: Sequence[Item], drop_axes: tuple[int, ...]) -> Selected | None:
    """Return a batch as one selection; None if it is none that is known here.

    Parameters
    ----------
    batch
        What zarr-python hands over.
    drop_axes
        The axes that the result does not have, among those that are picked by index arrays.
    """
    first, spec, _, outside, _ = batch[0]
    keys = keys_of(first.path, len(spec.shape))
    if keys is None or not all(type(item[0]) is StorePath and item[0].store is first.store for item in batch):
        return None
    if any(not item[0].path.startswith(keys.prefix) for item in batch):
        return None
    numbers = [keys.numbers(item[0].path) for item in batch] if spec.shape else [()] * len(batch)
    find = _product if isinstance(outside, tuple) else _points
    return find(batch, keys, numbers, drop_axes)


def _product(
    batch: Sequence[Item], keys: Keys, numbers: Sequence[tuple[str, ...]], drop_axes: tuple[int, ...]
) -> Selected | None:
    """Return a batch that picks along each axis by itself."""
    axes = [list(dict.fromkeys(column)) for column in zip(*numbers, strict=True)]
    if list(product(*axes)) != numbers:
        return None
    dropped = {axis for axis, pick in enumerate(batch[0][2]) if isinstance(pick, int | np.integer)} | set(drop_axes)
    lines, index, stride = [], [], len(batch)
    shape: list[int] = []
    result: list[int] = []
    for axis, names in enumerate(axes):
        stride //= len(names)
        items = batch[: stride * len(names) : stride]  # one for each chunk along this axis
        here = [item for number, item in enumerate(batch) if number // stride % len(names) == len(names) - 1]
        line = _line(list(map(int, names)), items, axis, any(item[4] for item in here))
        place = None if axis in dropped else len(result)
        picks = [item[2][axis] for item in items]
        places = [slice(0, 1) if place is None else item[3][place] for item in items]
        if not _agree(batch, axis, picks, stride):
            return None
        picked, count = _picked(line, picks, places)
        lines.append(line)
        index.append(picked)
        shape.append(count)
        if place is not None:
            result.append(count)
    return Selected(keys, tuple(lines), tuple(index), tuple(shape), tuple(result), points=False)


def _agree(batch: Sequence[Item], axis: int, picks: Sequence[Any], stride: int) -> bool:
    """Return whether all chunks of one number along an axis pick the same in it."""
    return all(
        item[2][axis] is picks[number // stride % len(picks)]
        or np.array_equal(_positions(item[2][axis]), _positions(picks[number // stride % len(picks)]))
        for number, item in enumerate(batch)
    )


def _line(numbers: Sequence[int], items: Sequence[Item], axis: int, whole: bool) -> Line:
    """Return the chunks of a batch along one axis.

    `whole` tells whether the batch covers all that the array has of a chunk at the end: then the array ends there.
    """
    sizes = {number: item[1].shape[axis] for number, item in zip(numbers, items, strict=True)}
    last = max(sizes)
    if len(set(sizes.values())) == 1:
        starts = {number: number * size for number, size in sizes.items()}
        extent = sizes[last] << last.bit_length()  # few stand-ins serve all batches
    else:
        starts, extent, before = {}, 0, -1
        for number in sorted(sizes):
            starts[number] = extent + number - before - 1
            extent, before = starts[number] + sizes[number], number
    pick = items[numbers.index(last)][2][axis]
    end = pick.stop if isinstance(pick, slice) else sizes[last] if isinstance(pick, np.ndarray) else pick + 1
    if whole and end < sizes[last]:
        extent = starts[last] + int(end)
    return Line(sizes, starts, extent)


def _picked(line: Line, picks: Sequence[Any], places: Sequence[Any]) -> tuple[Index, int]:
    """Return what is picked along an axis, and how much that is: a slice, or positions in the order of the result."""
    total = sum(_count(place) for place in places)
    starts = [line.starts[number] for number in line.sizes]
    if all(type(pick) is slice for pick in picks):
        base, step, done = starts[0] + picks[0].start, picks[0].step or 1, 0
        for start, pick, place in zip(starts, picks, places, strict=True):
            if type(place) is not slice or place.start != done or start + pick.start != base + done * step:
                break
            done = place.stop
        else:
            return slice(base, base + (total - 1) * step + 1, step), total
    found = np.empty(total, np.int64)
    for start, pick, place in zip(starts, picks, places, strict=True):
        found[place if isinstance(place, slice) else np.ravel(place)] = start + _positions(pick)
    return found, total


def _points(
    batch: Sequence[Item], keys: Keys, numbers: Sequence[tuple[str, ...]], drop_axes: tuple[int, ...]
) -> Selected | None:
    """Return a batch that picks point by point."""
    total = sum(_count(item[3]) for item in batch)
    lines, index = [], []
    for axis, column in enumerate(zip(*numbers, strict=True)):
        line = _line(list(map(int, column)), batch, axis, whole=False)
        found = np.empty(total, np.int64)
        for number, item in zip(column, batch, strict=True):
            found[item[3]] = line.starts[int(number)] + item[2][axis]
        lines.append(line)
        index.append(found)
    return Selected(keys, tuple(lines), tuple(index), (total,), (total,), points=True)


def _positions(pick: Any) -> npt.NDArray[np.int64]:
    if isinstance(pick, slice):
        return np.arange(pick.start, pick.stop, pick.step or 1)
    found = np.asarray(pick)
    return found.nonzero()[0] if found.dtype == bool else found.ravel()


def _count(place: Any) -> int:
    return place.stop - place.start if isinstance(place, slice) else np.size(place)
