"""From a selection and a grid to a `Plan`: what to copy between each chunk and the output.

Projections are computed for each axis, never for each chunk, and only chunks that are hit appear.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, chain, islice, pairwise, product, repeat
from math import prod
from types import EllipsisType
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from zellige.grid import Axis as GridAxis
from zellige.grid import ChunkGrid, FixedDimension
from zellige.indexing import Axis as Axis
from zellige.indexing import Selection, ascending
from zellige.types import AnyArray, Coords, Indices, Shape

Pick: TypeAlias = slice | Indices

Projection: TypeAlias = tuple[int, int, Pick, Pick, bool]
"""One chunk along one axis: its number and size, where in the chunk, where in the work array, all of it?"""

Stretch: TypeAlias = tuple[int, int, Pick, slice, bool]
"""The same where elements follow each other in the work array."""

Kinds: TypeAlias = Callable[[Sequence[Projection]], Sequence[object]]
"""Of what kind each chunk along an axis is."""

AxisTable: TypeAlias = tuple["array[int]", tuple[int, ...], npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None]
"""One axis of a table: its rows, the axes of the array that it stands for, listed positions and their places."""

Table: TypeAlias = tuple[AxisTable, ...]

Request: TypeAlias = tuple[Coords, Shape, tuple[Pick, ...], tuple[Pick | EllipsisType, ...], bool]
"""One chunk: coordinates, codec shape, where in the chunk, where in the work array, all of its data?"""


_LONG = 100_000  # chunks along one axis; more are not held at once
_SAMPLE = 1000  # of so many of them the sizes are looked at then
_NEVER = 1 << 62
_FEW = 6  # chunks; rows of fewer were slower than none
_LAYERS = 8  # chunks behind each other that are copied by one call where those side by side have many sizes
_LONG_ROW = 512  # bytes; chunks with longer rows are copied as fast one by one
_LARGE = 3 << 18  # bytes of a chunk from which strips across several are faster
_LONG_ITEM = 4 << 10  # bytes; longer rows are copied as fast element by element
_MUCH = 64 << 10  # bytes for which it pays to look at their rows
_SLICES = {slice}


@dataclass(frozen=True, slots=True)
class Plan:
    """The chunks that a selection hits; requests are made one by one, as they are asked for."""

    projections: tuple[Sequence[Any], ...]
    """For each axis of the work array, one entry for each chunk that is hit."""
    points: Points | None = None
    order: tuple[int, ...] | None = None
    """With points: the axes of the array in the order of the work array, points first."""
    picked: tuple[Sequence[Axis], tuple[int, ...], Sequence[GridAxis]] = ((), (), ())
    """What the plan was made from: what is picked along each axis, the axes that are picked together, the grid."""

    def __len__(self) -> int:
        return prod(map(len, self.projections))

    @property
    def planes(self) -> float:
        """How many positions an array picks along the first axis of a chunk, on average; 0 if it is no array."""
        first = self.projections[0] if self.projections and self.order is None else ()
        if type(first) is not list or type(first[0][2]) is slice:
            return 0
        sizes: list[int] = [pick.size for _, _, pick, _, _ in first]
        return sum(sizes) / len(first)

    @property
    def usual(self) -> float:
        """How many elements a chunk that is hit has, on average."""
        return prod([sum(sizes) / len(sizes) for sizes in map(_sizes, self.projections)])

    @property
    def largest(self) -> int:
        """How many elements the largest chunk that is hit has; of very many, some are looked at."""
        return prod([max(sizes) for sizes in map(_sizes, self.projections)])

    def requests(self, start: int = 0, stop: int | None = None) -> Iterator[Request]:
        """Some of the requests, in C order. The iterator may be shared by threads."""
        return map(self._maker, islice(_product(self.projections), start, stop))

    def request(self, number: int) -> Request:
        """One of the requests, counted in C order."""
        parts: list[Any] = []
        for projection in reversed(self.projections):
            number, at = divmod(number, len(projection))
            parts.insert(0, projection[at])
        return self._maker(tuple(parts))

    @property
    def _maker(self) -> Callable[[tuple[Any, ...]], Request]:
        """Makes a request of one entry for each axis."""
        if self.points is None:
            return _request
        assert self.order is not None
        return partial(_point_request, self.points, sorted(range(len(self.order)), key=self.order.__getitem__))


class Points(NamedTuple):
    """Points in the order of their chunks, of which a request takes a stretch."""

    inside: tuple[Indices, ...]
    """For each axis that they take: where in their chunks."""
    places: Indices | None
    """Where in the work array; None if they are there in the same order."""


class Rows:
    """The requests of a plan in groups: chunks side by side along the last axis, and behind each other along the first.

    Chunks with short rows touch every cache line of the work array far from the last one. A group of them is read
    and decoded together, and copied by few calls: those behind each other are one larger chunk if they follow each
    other in memory, and those side by side that have one size are one array.
    """

    __slots__ = ("_axes", "large")

    def __init__(self, plan: Plan, depth: int, width: int, kinds: Kinds) -> None:
        """How long a box may be along the first and the last axis, unless it is of one chunk; which are kept apart."""
        self.large = not depth
        """Whether chunks are only side by side, because they are large."""
        first, *middle, last = plan.projections
        singles = ([_group([entry]) for entry in axis] for axis in middle)
        behind = [*map(_group, _runs(first, depth, [*zip(kinds(first), _pieces(first), strict=True)]))]
        self._axes = [behind, *singles, [*map(_group, _runs(last, width, kinds(last)))]]

    def __len__(self) -> int:
        return prod(map(len, self._axes))

    def requests(self, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Some of the groups. The iterator may be shared by threads."""
        return map(_row, islice(product(*self._axes), start, stop))


class Row(NamedTuple):
    """Chunks side by side and behind each other, the latter following each other.

    What is asked for each of them is made only where it is needed.
    """

    box: tuple[slice, ...]
    """Their place in the work array."""
    entries: tuple[list[Stretch], ...]
    """For each axis the projections, with places in an array of just that size."""
    numbers: tuple[list[int], ...]
    """For each axis the numbers of the chunks."""
    sizes: tuple[list[int], ...]
    """For each axis the sizes of the chunks."""
    wholes: tuple[bool, ...]
    """For each axis whether all of the chunks are picked whole."""

    @property
    def coords(self) -> list[Coords]:
        """The coordinates of the chunks."""
        return _following(self.numbers)

    @property
    def shape(self) -> Shape:
        """The shape of the first chunk."""
        return tuple([sizes[0] for sizes in self.sizes])

    def keys(self, form: str) -> list[str]:
        """The coordinates of the chunks in a form with a `%d` for each axis, with little to do for each."""
        first, *middle, last = self.numbers
        head, _, tail = form.rpartition("%d")
        between = [only for (only,) in middle]
        heads, end = [head % (ahead, *between) for ahead in first], tail % ()
        return [f"{start}{beside}{end}" for beside in last for start in heads]

    def nbytes(self, itemsize: int) -> list[int]:
        """How many bytes each of the chunks has."""
        first, *middle, last = self.sizes
        row = prod([only for (only,) in middle]) * itemsize
        return [ahead * row * beside for beside in last for ahead in first]

    @property
    def wanted(self) -> list[Request]:
        """The requests for them."""
        return [*map(_request, _following(self.entries))]


def _following(axes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The product of one entry of each axis; those that differ only along the first follow each other."""
    first, *middle, last = axes
    between = [only for (only,) in middle]
    return [(ahead, *between, beside) for beside in last for ahead in first]


def coords_of(task: Request | Row) -> list[Coords]:
    """The chunks of a request, or of a row of them."""
    return task.coords if isinstance(task, Row) else [task[0]]


def grouped(
    plan: Plan, itemsize: int, most: int, how: Literal["copy", "decode", "write"], strips: int = 0
) -> Rows | None:
    """The plan in groups of up to `most` bytes; None if few chunks fit into that, or if their rows are long anyway.

    Where sizes differ, that is meant for usual ones: a group of the largest may have twice as many. Chunks that are
    just copied are kept apart from those of which a part is picked, and chunks that are written from those that reach
    beyond the end, too. Larger chunks are grouped side by side only, up to `strips` bytes.
    """
    axes = plan.projections
    if plan.order is not None or len(axes) < 2 or len(axes[-1]) < 2:
        return None
    thickest, *between, widest = longest = [*map(_longest, axes)]
    if _NEVER in longest or not prod(longest) or widest * itemsize > _LONG_ROW:
        return None
    first, *_, last = axes
    extent = last[-1][3].stop
    thick, *usual, wide = [axis[-1][3].stop / len(axis) for axis in axes]
    room = int(most / (max(prod(usual), prod(between) / 2) * itemsize))
    # What is put together in strips afterwards is best as wide as the result.
    to_strips = how == "copy" and thickest * prod(between) <= 2 * thick * prod(usual)
    if room < _FEW * (thick * wide if to_strips else thickest * widest):
        column = thick * prod(usual) * itemsize
        width = int(strips / column) if column * wide >= _LARGE else 0
        return Rows(plan, 0, width, _by_pick) if width >= min(2 * widest, extent) else None
    uneven = len({size for _, size, _, _, _ in last}) > 1
    depth = max(thickest, thick * min(_LAYERS, len(first))) if uneven and not to_strips else thickest
    width = room // (thick if to_strips else depth)
    kinds = {"copy": _by_pick, "decode": _by_nothing, "write": _by_size}[how]
    return Rows(plan, int(depth), int(width), kinds) if width < extent else Rows(plan, room // extent, extent, kinds)


def _sizes(axis: Sequence[Any]) -> list[int]:
    """The sizes of the chunks along an axis, or along several whose positions are points; of very many, of some."""
    some = axis if type(axis) is list else axis[:: len(axis) // _SAMPLE + 1]
    sizes = [size for _, size, _, _, _ in some]
    return sizes if type(sizes[0]) is int else [*map(prod, sizes)]


def _longest(axis: Sequence[Any]) -> int:
    """The most elements that a chunk gives along an axis; very many if there are too many of them, or no slices."""
    if type(axis) is not list or type(axis[0][3]) is not slice:
        return _NEVER
    sizes: list[int] = [place.stop - place.start for _, _, _, place, _ in axis]
    return max(sizes)


def _runs(axis: Sequence[Projection], length: int, kinds: Sequence[object]) -> Iterator[list[Projection]]:
    """Entries along an axis that are of one kind, and together no longer than `length`."""
    run: list[Projection] = []
    for k, entry in enumerate(axis):
        if run and (kinds[k] != kinds[k - 1] or entry[3].stop - run[0][3].start > length):  # type: ignore[union-attr]
            yield run
            run = []
        run.append(entry)
    yield run


def _pieces(axis: Sequence[Projection]) -> Sequence[int]:
    """Numbers that change where what is picked from a chunk does not go on in the next one without a gap."""
    return [0, *accumulate(not _follows(before, entry) for before, entry in pairwise(axis))]


def _follows(before: Projection, entry: Projection) -> bool:
    ahead, then = before[2], entry[2]
    if type(ahead) is not slice or type(then) is not slice or {ahead.step, then.step} - {None, 1}:
        return False
    return bool(ahead.stop == before[1] and then.start == 0)


def _by_pick(axis: Sequence[Projection]) -> Sequence[object]:
    return [whole for _, _, _, _, whole in axis]


def _by_size(axis: Sequence[Projection]) -> Sequence[object]:
    return [place.stop - place.start == size for _, size, _, place, _ in axis]  # type: ignore[union-attr]


def _by_nothing(axis: Sequence[Projection]) -> Sequence[object]:
    return [None] * len(axis)


_Group = tuple[slice, list[Stretch], list[int], list[int], bool]


def _group(entries: list[Projection]) -> _Group:
    """Entries that follow each other, for a `Row`."""
    start, stop = entries[0][3].start, entries[-1][3].stop  # type: ignore[union-attr]
    moved: list[Stretch] = [
        (number, size, inside, slice(place.start - start, place.stop - start), whole)  # type: ignore[union-attr]
        for number, size, inside, place, whole in entries
    ]
    numbers, sizes, _, _, wholes = zip(*moved, strict=True)
    return slice(start, stop), moved, [*numbers], [*sizes], False not in wholes


def _row(groups: tuple[_Group, ...]) -> Row:
    return Row(*zip(*groups, strict=True))


def _product(axes: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """The product in C order. Long axes are never held; all parts are C iterators, which threads may share."""
    if {*map(type, axes)} <= {list}:
        return product(*axes)
    head, *rest = axes
    return chain.from_iterable(map(partial(_prefixed, rest), head))


def _prefixed(rest: Sequence[Sequence[Any]], head: Any) -> Iterator[tuple[Any, ...]]:
    return map(partial(_joined, head), _product(rest))


def _joined(head: Any, tail: tuple[Any, ...]) -> tuple[Any, ...]:
    return (head, *tail)


class Tasks:
    """A list as tasks for threads, like a plan."""

    __slots__ = ("_items",)

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def requests(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Some of the items; the iterator may be shared by threads."""
        return iter(self._items[start:stop])


def picked_axes(inside: Sequence[Pick], plan: Plan) -> tuple[list[Axis], tuple[int, ...]]:
    """What a request of a plan picks from its chunk, as axes and points for a plan within the chunk."""
    axes: list[Axis] = [
        range(pick.start, pick.stop, pick.step or 1) if isinstance(pick, slice) else ascending(pick.ravel())
        for pick in inside
    ]
    order = plan.order
    if order is None or plan.points is None:
        return axes, ()
    points = order[: len(plan.points.inside)]
    placed = dict(zip(order, axes, strict=True))
    for axis in points:  # shared positions stay arrays
        at = placed[axis]
        placed[axis] = np.arange(at.start, at.stop) if isinstance(at, range) else at
    return [placed[axis] for axis in range(len(order))], points


class Target:
    """The part of a work array that a request writes: the array itself where numpy gives a view."""

    __slots__ = ("array", "_out", "_outside")

    def __init__(self, out: AnyArray, outside: tuple[Pick | EllipsisType, ...]) -> None:
        self._out, self._outside = out, outside
        self.array: AnyArray = out[outside]

    def write_back(self) -> None:
        """Copy into the work array what could not be written there at once."""
        if any(isinstance(pick, np.ndarray) for pick in self._outside):
            self._out[self._outside] = self.array


def assign(target: AnyArray, where: tuple[Pick | EllipsisType, ...], values: AnyArray) -> None:
    """`target[where] = values`, where much of it is copied row by row."""
    if {*map(type, where)} == _SLICES and values.nbytes >= _MUCH:
        copy_rows(target[where], values)
    else:
        target[where] = values


def copy_rows(target: AnyArray, source: AnyArray) -> None:
    """Copy an array into another of its shape: each row as one item, which is what numpy copies fastest."""
    size = target.itemsize
    row = target.shape[-1] * size if target.ndim > 1 and not target.dtype.hasobject else 0
    if 0 < row <= _LONG_ITEM and target.strides[-1] == source.strides[-1] == size and target.dtype == source.dtype:
        target, source = target.view(item(row)), source.view(item(row))
    target[...] = source


@cache
def item(nbytes: int) -> np.dtype[np.void]:
    """The type of items of so many bytes that mean nothing; few enough to keep, and slow to make."""
    return np.dtype((np.void, nbytes))


def _request(parts: tuple[Projection, ...]) -> Request:
    if not parts:
        return (), (), (), (...,), True  # `...`, because an empty tuple would pick a scalar, not a view
    coords, sizes, inside, outside, whole = zip(*parts, strict=True)
    return coords, sizes, inside, outside, False not in whole


def _point_request(points: Points, back: Sequence[int], parts: tuple[Any, ...]) -> Request:
    """`back` gives the place of each axis of the array among those of the work array."""
    (coords, sizes, _, stretch, _), *rest = parts
    inside: tuple[Any, ...] = tuple([axis[stretch] for axis in points.inside])
    outside: tuple[Any, ...] = (stretch if points.places is None else points.places[stretch],)
    if rest:
        others, extents, picks, places, _ = zip(*rest, strict=True)
        coords, sizes, inside, outside = (*coords, *others), (*sizes, *extents), (*inside, *picks), (*outside, *places)
    return tuple([coords[k] for k in back]), tuple([sizes[k] for k in back]), inside, outside, False


def plan(selection: Selection, grid: ChunkGrid) -> Plan:
    """What to copy between the chunks and the work array."""
    if 0 in selection.work_shape:
        return Plan(([],))  # an array without axes would have one chunk
    return plan_axes(selection.axes, selection.points, grid.axes)


def plan_axes(axes: Sequence[Axis], points: tuple[int, ...], dims: Sequence[GridAxis]) -> Plan:
    """A plan from what is picked along each axis; `points` are the axes that are picked together."""
    if points:
        others = [axis for axis in range(len(axes)) if axis not in points]
        lead, picked = _project_points([axes[k] for k in points], [dims[k] for k in points])  # type: ignore[misc]
        projected = (lead, *(_project(axes[k], dims[k]) for k in others))
        return Plan(projected, picked, (*points, *others), (axes, points, dims))
    projections = tuple(map(_project, axes, dims))
    if [*map(type, axes)].count(range) < len(axes) - 1:
        arrays = [axis for axis, at in zip(projections, axes, strict=True) if not isinstance(at, range)]
        in_order = all(type(place) is slice for axis in arrays for _, _, _, place, _ in axis)
        projections = tuple(_as_mesh(p, axis, len(axes), places=not in_order) for axis, p in enumerate(projections))
    return Plan(projections, picked=(axes, (), dims))


# -- tables: plans for the kernel -----------------------------------------------------------------


def table(plan: Plan) -> Table:
    """A plan as the kernel takes it: for each axis of the work array a row of integers for each chunk."""
    axes = []
    projections = plan.projections
    if plan.points is not None:
        lead, *projections = projections  # type: ignore[assignment]
        rows = array("q")
        for coords, sizes, stretch, _, _ in lead:
            rows.extend((*coords, *sizes, stretch.start, 0, stretch.stop - stretch.start, stretch.start))
        axes.append(_with_points(rows, plan))
    rest = range(len(projections)) if plan.order is None else plan.order[len(plan.points.inside) :]  # type: ignore[union-attr]
    for axis, projection in zip(rest, projections, strict=True):
        axes.append(_axis_table(axis, [(entry[:2], *entry[2:4]) for entry in projection]))
    return tuple(axes)


def shard_table(plan: Plan, inner: Shape) -> Table | None:
    """The same for chunks that are shards, with a row for each inner chunk; None if those do not divide the shards."""
    picked, together, dims = plan.picked
    for size, dim in zip(inner, dims, strict=True):
        if any(edge % size for edge in dim.unique_edge_lengths):
            return None
    fine = plan_axes(picked, together, [FixedDimension(n, dim.extent) for n, dim in zip(inner, dims, strict=True)])

    def located(axis: int, number: int) -> tuple[int, int, int, int]:
        """The shard that holds an inner chunk, its size, the number of the inner chunk in it, and its size."""
        size = inner[axis]
        shard, start, extent = dims[axis].locate(number * size)
        return shard, extent, number - start // size, size

    axes = []
    projections = fine.projections
    if fine.points is not None:
        lead, *projections = projections  # type: ignore[assignment]
        points = fine.order[: len(fine.points.inside)]  # type: ignore[index]
        entries = [(*zip(*map(located, points, coords), strict=True), stretch) for coords, _, stretch, _, _ in lead]
        rows = array("q")
        for *numbers, stretch in sorted(entries, key=lambda entry: entry[0]):
            rows.extend((*chain.from_iterable(numbers), stretch.start, 0, stretch.stop - stretch.start, stretch.start))
        axes.append(_with_points(rows, fine))
    rest = range(len(projections)) if fine.order is None else fine.order[len(fine.points.inside) :]  # type: ignore[union-attr]
    for axis, projection in zip(rest, projections, strict=True):
        axes.append(_axis_table(axis, [(located(axis, entry[0]), *entry[2:4]) for entry in projection]))
    return tuple(axes)


def _with_points(rows: array[int], plan: Plan) -> AxisTable:
    assert plan.points is not None
    assert plan.order is not None
    inside, places = plan.points
    positions = np.concatenate(inside).astype(np.int64, copy=False)
    return rows, plan.order[: len(inside)], positions, None if places is None else places.astype(np.int64, copy=False)


def _axis_table(axis: int, entries: Iterable[tuple[tuple[int, ...], Pick, Pick]]) -> AxisTable:
    """Rows for what is picked along one axis: numbers and sizes, then start, step, count and place."""
    rows, positions, places, listed = array("q"), [], [], 0
    for numbers, inside, outside in entries:
        if type(inside) is slice and type(outside) is slice:
            count = outside.stop - outside.start
            rows.extend((*numbers, inside.start, inside.step or 1, count, outside.start))
            continue
        at, place = _as_positions(inside), _as_positions(outside)
        rows.extend((*numbers, listed, 0, at.size, 0))
        positions.append(at)
        places.append(place)
        listed += at.size
    if not listed:
        return rows, (axis,), None, None
    return rows, (axis,), np.concatenate(positions), np.concatenate(places)


def _as_positions(pick: Pick) -> npt.NDArray[np.int64]:
    if isinstance(pick, slice):
        return np.arange(pick.start, pick.stop, pick.step or 1, dtype=np.int64)
    return pick.ravel().astype(np.int64, copy=False)


def parts(plan: Plan, out: AnyArray, most: int) -> Iterator[tuple[Plan, AnyArray]]:
    """A plan in parts of about so many chunks, each with its part of the work array; whole if that is not simple."""
    axes, points, dims = plan.picked
    if len(plan) <= most or points or not axes:
        yield plan, out
        return
    longest = max(range(len(axes)), key=lambda k: len(plan.projections[k]))
    at, projection = axes[longest], plan.projections[longest]
    if not isinstance(at, range):
        yield plan, out
        return
    step = max(1, most * len(projection) // len(plan))
    for k in range(0, len(projection), step):
        begin = projection[k][3].start
        end = projection[min(k + step, len(projection)) - 1][3].stop
        some = [*axes[:longest], at[begin:end], *axes[longest + 1 :]]
        yield plan_axes(some, (), dims), out[(slice(None),) * longest + (slice(begin, end),)]


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
    """The chunks that an ascending range hits: a long step passes over those it misses."""
    found: list[Projection] = []
    index, stop, step, done = at.start, at.stop, at.step, 0
    while index < stop:
        chunk, start, size = dim.locate(index)
        end = start + size
        count = (min(end, stop) - 1 - index) // step + 1
        first = index - start
        whole = count == min(end, dim.extent) - start
        inside = slice(first, first + (count - 1) * step + 1, step)
        found.append((chunk, size, inside, slice(done, done + count), whole))
        done += count
        index += count * step
    return found


def _project_array(at: Indices, dim: GridAxis) -> list[Projection]:
    """The chunks that hold some positions; the positions in each keep their order, so the last write wins."""
    ((numbers, sizes),), ((inside,), places), stretches = _groups(dim.indices_to_chunks(at), [at], [dim])
    positions: Sequence[Pick] = stretches if places is None else [places[stretch] for stretch in stretches]
    return [*zip(numbers, sizes, [inside[stretch] for stretch in stretches], positions, repeat(False))]


def _project_points(at: Sequence[Indices], dims: Sequence[GridAxis]) -> tuple[list[Any], Points]:
    """Like `_project_array` for axes that are picked together."""
    found, points, stretches = _groups(_chunk_numbers(at, dims), at, dims)
    coords, sizes = (zip(*axes, strict=True) for axes in zip(*found, strict=True))
    return [*zip(coords, sizes, stretches, stretches, repeat(False))], points


def _chunk_numbers(at: Sequence[Indices], dims: Sequence[GridAxis]) -> Indices:
    """One number for each point that tells its chunk from others."""
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
) -> tuple[list[tuple[list[int], list[int]]], Points, list[slice]]:
    """Positions by the chunks that hold them: along every axis the numbers and sizes of the chunks that occur; the
    positions, ordered by chunks; and the stretch of them that each chunk has.
    """
    if not chunks.size:
        return [([], [])] * len(dims), Points(tuple(at), None), []
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
    return found, Points(tuple(inside), order), [*map(slice, edges[:-1], edges[1:])]


def _located(at: Indices, dim: GridAxis) -> tuple[list[int], list[int], list[int]]:
    """The numbers, starts and sizes of the chunks that hold some positions, looked up once for each chunk."""
    numbers: list[int] = dim.indices_to_chunks(at).tolist()
    known = {number: dim.locate(index) for number, index in dict(zip(numbers, at.tolist(), strict=True)).items()}
    return numbers, [known[number][1] for number in numbers], [known[number][2] for number in numbers]


def _as_mesh(projections: Iterable[Projection], axis: int, ndim: int, *, places: bool) -> list[Projection]:
    """Positions shaped so that several index arrays pick their product, not points (numpy's `ix_`).

    With `places` those in the work array too, which is not needed where all of them are slices.
    """
    shape = (-1, *[1] * (ndim - 1 - axis))

    def open_mesh(pick: Pick) -> Indices:
        return (np.arange(pick.start, pick.stop, pick.step) if isinstance(pick, slice) else pick).reshape(shape)

    return [
        (chunk, size, open_mesh(inside), open_mesh(place) if places else place, whole)
        for chunk, size, inside, place, whole in projections
    ]
