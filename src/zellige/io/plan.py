"""From a selection and a grid to a `Plan`: what to copy between each chunk and the work array.

Projections are computed for each axis, never for each chunk, and only chunks that are hit appear. A plan is read in two
forms: as `Copy` objects, one chunk at a time, and as a table of integers, which the kernel takes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product, repeat
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from zellige.grid.grid import Axis as GridAxis
from zellige.grid.grid import ChunkGrid, FixedDimension
from zellige.io.select import Axis as Axis
from zellige.io.select import Selection, ascending
from zellige.types import AnyArray, Coords, Indices, Shape

Pick: TypeAlias = slice | Indices

Projection: TypeAlias = tuple[int, int, Pick, Pick, bool]
"""One chunk along one axis: its number and size, where in the chunk, where in the work array, all of it?"""

AxisTable: TypeAlias = tuple["array[int]", tuple[int, ...], npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None]
"""One axis of a table: its rows, the axes of the array that it stands for, listed positions and their places."""

Table: TypeAlias = tuple[AxisTable, ...]

_LONG = 100_000  # chunks along one axis; more are not held at once
_SAMPLE = 1000  # of so many of them the sizes are looked at then


class Copy(NamedTuple):
    """What one chunk contributes to a read, or gets from a write."""

    coords: Coords
    shape: Shape
    """The codec shape of the chunk."""
    inside: tuple[Pick, ...]
    """Where in the chunk, its axes in `order`."""
    outside: tuple[Pick | EllipsisType, ...]
    """Where in the work array."""
    whole: bool
    """Whether that is all of the chunk's data, which may end before the chunk does."""
    order: tuple[int, ...] | None = None
    """With points: the axes of the array in the order of the work array, points first."""
    points: int = 0
    """How many axes are picked together, point by point."""

    def of(self, chunk: AnyArray) -> AnyArray:
        """Return what is picked of a chunk."""
        picked: AnyArray = self._in_order(chunk)[self.inside]
        return picked

    def put(self, chunk: AnyArray, values: AnyArray) -> None:
        """Put values where they are picked."""
        self._in_order(chunk)[self.inside] = values

    def _in_order(self, chunk: AnyArray) -> AnyArray:
        return chunk if self.order is None else chunk.transpose(self.order)

    def axes(self) -> tuple[list[Axis], tuple[int, ...]]:
        """Return what is picked along each axis of the chunk, and which axes are picked together: for a plan in it."""
        axes: list[Axis] = [
            range(pick.start, pick.stop, pick.step or 1) if isinstance(pick, slice) else ascending(pick.ravel())
            for pick in self.inside
        ]
        if self.order is None:
            return axes, ()
        placed = dict(zip(self.order, axes, strict=True))
        return [placed[axis] for axis in range(len(self.order))], self.order[: self.points]


@dataclass(frozen=True, slots=True)
class Plan:
    """The chunks that a selection hits; copies are made one by one, on demand."""

    projections: tuple[Sequence[Any], ...]
    """For each axis of the work array, one entry for each chunk that is hit."""
    points: Points | None = None
    """What is picked of the axes that are picked together, whose projection is the first."""
    axes: Sequence[Axis] = ()
    """What is picked along each axis of the array."""
    dims: Sequence[GridAxis] = ()
    """The axes of the grid."""

    def __len__(self) -> int:
        return prod(map(len, self.projections))

    @property
    def largest(self) -> int:
        """How many elements the largest chunk that is hit has; of very many, some are looked at."""
        return prod([max(sizes) for sizes in map(_sizes, self.projections)])

    def copies(self) -> Iterator[Copy]:
        """Return the copies in C order. The iterator may be shared by threads."""
        return map(self._maker, _product(self.projections))

    def copy(self, number: int) -> Copy:
        """Return one of the copies, counted in C order."""
        parts: list[Any] = []
        for projection in reversed(self.projections):
            number, at = divmod(number, len(projection))
            parts.insert(0, projection[at])
        return self._maker(tuple(parts))

    def is_range(self, axis: int) -> bool:
        """Return whether a range of elements is picked along an axis of the work array."""
        is_range = self.points is None and isinstance(self.axes[axis], range)
        return is_range and type(self.projections[axis][0][3]) is slice

    @property
    def separate(self) -> list[tuple[int, Sequence[Projection]]]:
        """The axes of the array that are picked each on its own, with their projections."""
        if self.points is None:
            return [*enumerate(self.projections)]
        return [*zip(self.points.others, self.projections[1:], strict=True)]

    def part(self, axis: int, start: int, stop: int) -> Plan:
        """Return the chunks from one to another along an axis of the work array, which stays the same."""
        some, axes = self.projections[axis][start:stop], self.axes
        if self.is_range(axis):
            first = self.projections[axis][0][3].start
            begin, end = some[0][3].start - first, some[-1][3].stop - first
            axes = (*axes[:axis], axes[axis][begin:end], *axes[axis + 1 :])
        projections = (*self.projections[:axis], some, *self.projections[axis + 1 :])
        return replace(self, projections=projections, axes=axes)

    def boxed(self) -> tuple[tuple[slice, ...], Plan]:
        """Return the box of the work array that a plan of ranges covers, and the same plan for that box alone."""
        box = tuple([slice(axis[0][3].start, axis[-1][3].stop) for axis in self.projections])
        moved = [
            [(*entry[:3], slice(entry[3].start - at.start, entry[3].stop - at.start), entry[4]) for entry in axis]
            for axis, at in zip(self.projections, box, strict=True)
        ]
        return box, replace(self, projections=tuple(moved))

    @property
    def _maker(self) -> Callable[[tuple[Any, ...]], Copy]:
        """The function that makes a copy of one entry for each axis."""
        if self.points is None:
            return _copy
        order = self.points.order
        back = sorted(range(len(order)), key=order.__getitem__)
        return partial(_point_copy, self.points, back)


class Points(NamedTuple):
    """Points in the order of their chunks, of which a copy takes a stretch."""

    inside: tuple[Indices, ...]
    """For each axis that they take: where in their chunks."""
    places: Indices | None
    """Where in the work array; None if they are there in the same order."""
    order: tuple[int, ...]
    """The axes of the array in the order of the work array, those of the points first."""

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that are picked together."""
        return self.order[: len(self.inside)]

    @property
    def others(self) -> tuple[int, ...]:
        """The axes that are picked each on its own."""
        return self.order[len(self.inside) :]


def _sizes(axis: Sequence[Any]) -> list[int]:
    """Return the chunk sizes along an axis, or along several that are picked together; of very many, of some."""
    some = axis if type(axis) is list else axis[:: len(axis) // _SAMPLE + 1]
    sizes = [size for _, size, _, _, _ in some]
    return sizes if type(sizes[0]) is int else [*map(prod, sizes)]


def _product(axes: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield the product in C order. Long axes are never held; all parts are C iterators, which threads may share."""
    if {*map(type, axes)} <= {list}:
        return product(*axes)
    head, *rest = axes
    return chain.from_iterable(map(partial(_prefixed, rest), head))


def _prefixed(rest: Sequence[Sequence[Any]], head: Any) -> Iterator[tuple[Any, ...]]:
    return map(partial(_joined, head), _product(rest))


def _joined(head: Any, tail: tuple[Any, ...]) -> tuple[Any, ...]:
    return (head, *tail)


class Target:
    """The part of a work array that a copy writes: the array itself where numpy gives a view."""

    __slots__ = ("array", "_out", "_outside")

    def __init__(self, out: AnyArray, outside: tuple[Pick | EllipsisType, ...]) -> None:
        self._out, self._outside = out, outside
        self.array: AnyArray = out[outside]

    def write_back(self) -> None:
        """Copy into the work array what could not be written there at once."""
        if any(isinstance(pick, np.ndarray) for pick in self._outside):
            self._out[self._outside] = self.array


def _copy(parts: tuple[Projection, ...]) -> Copy:
    if not parts:
        return Copy((), (), (), (...,), True)  # `...`, because an empty tuple would pick a scalar, not a view
    coords, sizes, inside, outside, whole = zip(*parts, strict=True)
    return Copy(coords, sizes, inside, outside, False not in whole)


def _point_copy(points: Points, back: Sequence[int], parts: tuple[Any, ...]) -> Copy:
    """Return the copy of a stretch of points; `back` has where each axis of the array is in the work array."""
    (coords, sizes, _, stretch, _), *rest = parts
    inside: tuple[Any, ...] = tuple([axis[stretch] for axis in points.inside])
    outside: tuple[Any, ...] = (stretch if points.places is None else points.places[stretch],)
    if rest:
        others, extents, picks, places, _ = zip(*rest, strict=True)
        coords, sizes, inside, outside = (*coords, *others), (*sizes, *extents), (*inside, *picks), (*outside, *places)
    there, shape = tuple([coords[k] for k in back]), tuple([sizes[k] for k in back])
    return Copy(there, shape, inside, outside, False, points.order, len(points.inside))


def plan_for(selection: Selection, grid: ChunkGrid) -> Plan:
    """Return what to copy between the chunks and the work array."""
    if 0 in selection.work_shape:
        return Plan(([],))  # an array without axes would have one chunk
    return plan_axes(selection.axes, selection.points, grid.axes)


def plan_axes(axes: Sequence[Axis], points: tuple[int, ...], dims: Sequence[GridAxis]) -> Plan:
    """Return a plan for what is picked along each axis; `points` are the axes that are picked together."""
    if points:
        others = [axis for axis in range(len(axes)) if axis not in points]
        lead, inside, places = _project_points([_as_positions(axes[k]) for k in points], [dims[k] for k in points])
        projected = (lead, *(_project(axes[k], dims[k]) for k in others))
        return Plan(projected, Points(inside, places, (*points, *others)), axes, dims)
    projections = tuple(map(_project, axes, dims))
    if [*map(type, axes)].count(range) < len(axes) - 1:
        arrays = [axis for axis, at in zip(projections, axes, strict=True) if not isinstance(at, range)]
        in_order = all(type(place) is slice for axis in arrays for _, _, _, place, _ in axis)
        projections = tuple(_as_mesh(p, axis, len(axes), places=not in_order) for axis, p in enumerate(projections))
    return Plan(projections, None, axes, dims)


# -- tables: plans for the kernel -----------------------------------------------------------------


def table(plan: Plan) -> Table:
    """Return a plan as the kernel takes it: for each axis of the work array a row of integers for each chunk."""
    axes = [_axis_table(axis, [(entry[:2], *entry[2:4]) for entry in projection]) for axis, projection in plan.separate]
    if plan.points is None:
        return tuple(axes)
    lead = [((*coords, *sizes), stretch) for coords, sizes, stretch, _, _ in plan.projections[0]]
    return _points_table(plan.points, lead), *axes


def shard_table(plan: Plan, inner: Shape) -> Table | None:
    """Return `table` of the inner chunks of chunks that are shards; None if they do not divide the shards."""
    for size, dim in zip(inner, plan.dims, strict=True):
        if any(edge % size for edge in dim.unique_edge_lengths):
            return None
    together = () if plan.points is None else plan.points.axes
    fine_dims = [FixedDimension(n, dim.extent) for n, dim in zip(inner, plan.dims, strict=True)]
    fine = plan_axes(plan.axes, together, fine_dims)

    def located(axis: int, number: int) -> tuple[int, int, int, int]:
        """Return the shard that holds an inner chunk, its size, the number of the inner chunk in it, and its size."""
        size = inner[axis]
        shard, start, extent = plan.dims[axis].locate(number * size)
        return shard, extent, number - start // size, size

    axes = []
    for axis, projection in fine.separate:
        first = plan.projections[axis][0][3].start if plan.is_range(axis) else 0
        axes.append(_axis_table(axis, [(located(axis, entry[0]), *entry[2:4]) for entry in projection], first))
    if fine.points is None:
        return tuple(axes)
    lead = []
    for coords, _, stretch, _, _ in fine.projections[0]:
        numbers = zip(*map(located, together, coords), strict=True)
        lead.append((tuple(chain.from_iterable(numbers)), stretch))
    return _points_table(fine.points, sorted(lead, key=lambda entry: entry[0][: len(together)])), *axes


def _points_table(points: Points, entries: Iterable[tuple[tuple[int, ...], slice]]) -> AxisTable:
    """Return rows for axes that are picked together: numbers and sizes of each chunk, its stretch of the points."""
    rows = array("q")
    for numbers, stretch in entries:
        rows.extend((*numbers, stretch.start, 0, stretch.stop - stretch.start, stretch.start))
    places = None if points.places is None else points.places.astype(np.int64, copy=False)
    return rows, points.axes, np.concatenate(points.inside).astype(np.int64, copy=False), places


def _axis_table(axis: int, entries: Iterable[tuple[tuple[int, ...], Pick, Pick]], first: int = 0) -> AxisTable:
    """Return rows for one axis: numbers and sizes, then start, step, count and place, from `first` on."""
    rows, positions, places, listed = array("q"), [], [], 0
    for numbers, inside, outside in entries:
        if type(inside) is slice and type(outside) is slice:
            count = outside.stop - outside.start
            rows.extend((*numbers, inside.start, inside.step or 1, count, first + outside.start))
            continue
        at, place = _as_positions(inside), _as_positions(outside)
        rows.extend((*numbers, listed, 0, at.size, 0))
        positions.append(at)
        places.append(place)
        listed += at.size
    if not listed:
        return rows, (axis,), None, None
    return rows, (axis,), np.concatenate(positions), np.concatenate(places)


def _as_positions(pick: Pick | range) -> npt.NDArray[np.int64]:
    if isinstance(pick, np.ndarray):
        return pick.ravel().astype(np.int64, copy=False)
    return np.arange(pick.start, pick.stop, pick.step or 1, dtype=np.int64)


def parts(plan: Plan, most: int, *, shards: bool = False) -> Iterator[Plan]:
    """Yield a plan in parts of at most `most` chunks, for the same work array.

    With `shards`, parts have what `shard_table` needs, and so are cut only along axes of which a range is picked.
    """
    if len(plan) <= most:
        yield plan
        return
    can = [axis for axis in range(len(plan.projections)) if not shards or plan.is_range(axis)]
    axis = max(can, key=lambda k: len(plan.projections[k]), default=0)
    length = len(plan.projections[axis])
    if not can or length == 1:
        yield plan
        return
    step = max(1, most * length // len(plan))
    for start in range(0, length, step):
        yield from parts(plan.part(axis, start, start + step), most, shards=shards)


def _project(at: Axis, dim: GridAxis) -> Sequence[Projection]:
    if not isinstance(at, range):
        return _project_array(at, dim)
    if at.step == 1 and len(at) > _LONG and dim.index_to_chunk(at.stop - 1) - dim.index_to_chunk(at.start) > _LONG:
        return _LongRange(at, dim)
    return _project_range(at, dim)


class _LongRange(Sequence[Projection]):
    """`_project_range` for a range of consecutive elements, one chunk at a time."""

    def __init__(self, at: range, dim: GridAxis) -> None:
        self._at, self._dim = at, dim
        self._first = dim.index_to_chunk(at.start)
        self._count = dim.index_to_chunk(at.stop - 1) + 1 - self._first

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, item: int) -> Projection: ...
    @overload
    def __getitem__(self, item: slice) -> list[Projection]: ...
    def __getitem__(self, item: int | slice) -> Projection | list[Projection]:
        if isinstance(item, slice):
            return [self[k] for k in range(*item.indices(self._count))]
        chunk = self._first + item
        offset = self._dim.chunk_offset(chunk)
        begin = max(self._at.start, offset)
        stop = min(self._at.stop, offset + self._dim.data_size(chunk))
        (found,) = _project_range(range(begin, stop), self._dim)
        moved = slice(begin - self._at.start, stop - self._at.start)
        return (*found[:3], moved, found[4])

    def __iter__(self) -> Iterator[Projection]:
        return map(self.__getitem__, range(self._count))


def _project_range(at: range, dim: GridAxis) -> list[Projection]:
    """Return the chunks that an ascending range hits: a long step passes over those it misses."""
    found: list[Projection] = []
    index, stop, step, done = at.start, at.stop, at.step, 0
    while index < stop:
        chunk, start, size = dim.locate(index)
        end = start + size
        count = (min(end, stop) - 1 - index) // step + 1
        first = index - start
        whole = count == min(end, dim.extent) - start
        # Of one element any step is good; one that passes over the chunk may be longer than numpy takes.
        inside = slice(first, first + (count - 1) * step + 1, step if count > 1 else 1)
        found.append((chunk, size, inside, slice(done, done + count), whole))
        done += count
        index += count * step
    return found


def _project_array(at: Indices, dim: GridAxis) -> list[Projection]:
    """Return the chunks that hold some positions. These keep their order in each, so that the last write wins."""
    ((numbers, sizes),), (inside,), places, stretches = _groups(dim.indices_to_chunks(at), [at], [dim])
    positions: Sequence[Pick] = stretches if places is None else [places[stretch] for stretch in stretches]
    return [*zip(numbers, sizes, [inside[stretch] for stretch in stretches], positions, repeat(False))]


def _project_points(
    at: Sequence[Indices], dims: Sequence[GridAxis]
) -> tuple[list[Any], tuple[Indices, ...], Indices | None]:
    """Do as `_project_array` for axes that are picked together; also returns where the points are."""
    found, inside, places, stretches = _groups(_chunk_numbers(at, dims), at, dims)
    coords, sizes = (zip(*axes, strict=True) for axes in zip(*found, strict=True))
    return [*zip(coords, sizes, stretches, stretches, repeat(False))], inside, places


def _chunk_numbers(at: Sequence[Indices], dims: Sequence[GridAxis]) -> Indices:
    """Return one number for each point that distinguishes its chunk from others."""
    chunks = [dim.indices_to_chunks(axis) for axis, dim in zip(at, dims, strict=True)]
    sizes = [dim.nchunks for dim in dims]
    if prod(sizes) >= 2**62:  # too large to number: count only the chunks that occur
        chunks = [np.unique(axis, return_inverse=True)[1] for axis in chunks]
        sizes = [int(axis.max()) + 1 if axis.size else 0 for axis in chunks]
    numbers = chunks[0]
    for axis, size in zip(chunks[1:], sizes[1:], strict=True):
        numbers = numbers * size + axis
    return numbers


def _groups(
    chunks: Indices, at: Sequence[Indices], dims: Sequence[GridAxis]
) -> tuple[list[tuple[list[int], list[int]]], tuple[Indices, ...], Indices | None, list[slice]]:
    """Group positions by the chunks that hold them.

    Returns along every axis the numbers and sizes of the chunks that occur; the positions in their chunks, and where
    these were before they were ordered by chunks (None if they were); and the stretch of them that each chunk has.
    """
    if not chunks.size:
        return [([], [])] * len(dims), tuple(at), None, []
    order = None
    if not bool((chunks[1:] >= chunks[:-1]).all()):
        # numpy sorts numbers of 16 bits by counting, ten times as fast as others.
        order = np.argsort(chunks.astype(np.uint16) if int(chunks.max()) < 1 << 16 else chunks, kind="stable")
        chunks, at = chunks[order], [axis[order] for axis in at]
    firsts = (chunks[1:] != chunks[:-1]).nonzero()[0] + 1
    bounds = np.concatenate(([0], firsts, [chunks.size]))
    counts, edges = bounds[1:] - bounds[:-1], bounds.tolist()
    found, inside = [], []
    for axis, dim in zip(at, dims, strict=True):
        numbers, starts, sizes = _located(axis[bounds[:-1]], dim)
        found.append((numbers, sizes))
        inside.append(axis - np.repeat(starts, counts))
    return found, tuple(inside), order, [*map(slice, edges[:-1], edges[1:])]


def _located(at: Indices, dim: GridAxis) -> tuple[list[int], list[int], list[int]]:
    """Return numbers, starts and sizes of the chunks that hold some positions; each chunk is looked up once."""
    numbers: list[int] = dim.indices_to_chunks(at).tolist()
    known = {number: dim.locate(index) for number, index in dict(zip(numbers, at.tolist(), strict=True)).items()}
    return numbers, [known[number][1] for number in numbers], [known[number][2] for number in numbers]


def _as_mesh(projections: Iterable[Projection], axis: int, ndim: int, *, places: bool) -> list[Projection]:
    """Return positions shaped so that several index arrays pick their product, not points (numpy's `ix_`).

    With `places` those in the work array too, which is not needed where all of them are slices.
    """
    shape = (-1, *[1] * (ndim - 1 - axis))

    def open_mesh(pick: Pick) -> Indices:
        return _as_positions(pick).reshape(shape)

    return [
        (chunk, size, open_mesh(inside), open_mesh(place) if places else place, whole)
        for chunk, size, inside, place, whole in projections
    ]
