"""What zarr-python hands to a codec pipeline, as one selection of an array.

A batch lists chunks: where each is stored, what is picked of it, where that lies in the result. It is the product of
what is picked along each axis, or a list of points by chunks. Both become one index of elements again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import prod
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
    ndim: int

    def coords(self, path: str) -> tuple[int, ...] | None:
        """Return the coordinates of a chunk; None for a key of another array."""
        if not path.startswith(self.prefix):
            return None
        if not self.ndim:
            return ()
        numbers = path[len(self.prefix) :].split(self.separator)[self.is_default :]
        return tuple(map(int, numbers)) if len(numbers) == self.ndim else None


@cache
def _forms(ndim: int) -> tuple[re.Pattern[str], ...]:
    """Keys with slashes and keys with dots. What stands before the numbers of the first is a part of the prefix."""
    if not ndim:
        return (re.compile(r"(?P<prefix>(?:.*/)?)(?P<c>c|0)"),)
    number = r"(?:0|[1-9]\d*)"
    slashes, dots = "/".join([number] * ndim), r"\.".join([number] * ndim)
    return re.compile(rf"(?P<prefix>(?:.*/)?)(?P<c>){slashes}"), re.compile(rf"(?P<prefix>(?:.*/)?)(?P<c>c\.|){dots}")


def keys_of(path: str, ndim: int) -> Keys | None:
    """Return how chunks are named, from the key of one; None for an encoding that is not known here."""
    for form, separator in zip(_forms(ndim), "/.", strict=False):
        if found := form.fullmatch(path):
            return Keys(found["prefix"], separator, found["c"].startswith("c"), ndim)
    return None


class Line(NamedTuple):
    """The chunks of a batch along one axis of the array."""

    sizes: dict[int, int]
    """Their sizes, by their numbers in the grid."""
    starts: dict[int, int]
    """Where they begin. Chunks between them that the batch does not touch count as one element each, if sizes differ."""
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
    index: tuple[Index, ...]
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
    first, spec, inside, outside, _ = batch[0]
    ndim = len(spec.shape)
    keys = keys_of(first.path, ndim)
    if keys is None:
        return None
    coords = []
    for stored, *_ in batch:
        at = keys.coords(stored.path) if type(stored) is StorePath and stored.store is first.store else None
        if at is None:
            return None
        coords.append(at)
    lines = tuple([_line(batch, coords, axis) for axis in range(ndim)])
    if not isinstance(outside, tuple):
        return _points(batch, coords, keys, lines)
    dropped = {axis for axis, pick in enumerate(inside) if _is_integer(pick)} | set(drop_axes)
    places = iter(range(ndim))
    where = [None if axis in dropped else next(places) for axis in range(ndim)]
    picked = [_picked(batch, coords, lines[axis], axis, where[axis]) for axis in range(ndim)]
    if any(found is None for found in picked) or prod(len(line.sizes) for line in lines) != len(set(coords)):
        return None
    if len(set(coords)) != len(batch):
        return None
    index, shape = zip(*picked, strict=True) if picked else ((), ())
    result = tuple([n for n, at in zip(shape, where, strict=True) if at is not None])
    return Selected(keys, lines, index, shape, result, points=False)


def _line(batch: Sequence[Item], coords: Sequence[tuple[int, ...]], axis: int) -> Line:
    """Return the chunks of a batch along one axis."""
    sizes: dict[int, int] = {}
    ends: dict[int, int] = {}
    for at, (_, spec, inside, _, whole) in zip(coords, batch, strict=True):
        number = at[axis]
        if number not in sizes:
            sizes[number] = spec.shape[axis]
        if whole:
            pick = inside[axis]
            ends[number] = pick.stop if isinstance(pick, slice) else pick + 1
    starts, last, end = {}, max(sizes), 0
    if len(set(sizes.values())) == 1:
        size = sizes[last]
        starts = {number: number * size for number in sizes}
        extent = size << last.bit_length()  # few stand-ins serve all batches
    else:
        before = -1
        for number in sorted(sizes):
            starts[number] = end + number - before - 1
            end, before = starts[number] + sizes[number], number
        extent = end
    if last in ends and ends[last] < sizes[last]:
        extent = starts[last] + ends[last]
    return Line(sizes, starts, extent)


def _picked(
    batch: Sequence[Item], coords: Sequence[tuple[int, ...]], line: Line, axis: int, where: int | None
) -> tuple[Index, int] | None:
    """Return what is picked along an axis, and how much that is; None if chunks of one number differ in it.

    `where` is the axis of the result; None for one that it drops.
    """
    entries: dict[int, tuple[Any, Any]] = {}
    for at, (_, _, inside, outside, _) in zip(coords, batch, strict=True):
        entry = inside[axis], None if where is None else outside[where]
        known = entries.setdefault(at[axis], entry)
        if known is not entry and not (_same(known[0], entry[0]) and _same(known[1], entry[1])):
            return None
    if where is None:
        ((number, (pick, _)),) = entries.items()
        at = line.starts[number] + int(np.asarray(pick).item())
        return slice(at, at + 1), 1
    total = sum(_count(place) for _, place in entries.values())
    return _stride(line, entries, total) or (_listed(line, entries, total), total)


def _stride(line: Line, entries: dict[int, tuple[Any, Any]], total: int) -> tuple[slice, int] | None:
    """Return slices that continue each other as one; None if they are no such."""
    base, step, done = None, 1, 0
    for number, (pick, place) in entries.items():
        if not isinstance(pick, slice) or not isinstance(place, slice) or place.start != done:
            return None
        start = line.starts[number] + pick.start
        if base is None:
            base, step = start, pick.step or 1
        elif start != base + done * step or ((pick.step or 1) != step and place.stop - place.start > 1):
            return None
        done = place.stop
    assert base is not None
    return slice(base, base + (total - 1) * step + 1, step), total


def _listed(line: Line, entries: dict[int, tuple[Any, Any]], total: int) -> npt.NDArray[np.int64]:
    """Return the positions of all elements that are picked along an axis, in the order of the result."""
    found = np.empty(total, np.int64)
    for number, (pick, place) in entries.items():
        found[place if isinstance(place, slice) else np.ravel(place)] = line.starts[number] + _positions(pick)
    return found


def _points(
    batch: Sequence[Item], coords: Sequence[tuple[int, ...]], keys: Keys, lines: tuple[Line, ...]
) -> Selected | None:
    """Return a batch that picks point by point."""
    total = sum(_count(outside) for _, _, _, outside, _ in batch)
    index = [np.empty(total, np.int64) for _ in lines]
    for at, (_, _, inside, outside, _) in zip(coords, batch, strict=True):
        for positions, number, line, pick in zip(index, at, lines, inside, strict=True):
            positions[outside] = line.starts[number] + pick
    return Selected(keys, lines, tuple(index), (total,), (total,), points=True)


def _positions(pick: Any) -> npt.NDArray[np.int64]:
    if isinstance(pick, slice):
        return np.arange(pick.start, pick.stop, pick.step or 1)
    found = np.asarray(pick)
    return found.nonzero()[0] if found.dtype == bool else found.ravel()


def _count(place: Any) -> int:
    return place.stop - place.start if isinstance(place, slice) else np.size(place)


def _same(one: Any, other: Any) -> bool:
    return one is other or (np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other))


def _is_integer(pick: Any) -> bool:
    return isinstance(pick, int | np.integer)
