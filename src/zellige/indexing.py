"""From a user's index to the chunks that it hits.

An index becomes a `Selection`: for each axis a range or an array of positions, or several axes picked
together point by point. A selection and a grid become a `Plan`: what to copy between each chunk and the
output. Projections are computed for each axis, never for each chunk, and only chunks that are hit appear.

Work happens in a *work array* that has one axis for each axis of the array (or one for all the points,
then the other axes), in ascending order. What numpy's rules make of that (dropped axes, new axes, n-d
index arrays, negative steps, the place of broadcast axes) is a view of it: `to_result` and `to_work`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise, product
from math import prod
from types import EllipsisType
from typing import Any, TypeAlias, overload

import numpy as np

from zellige.errors import BoundsCheckError, BroadcastError, VindexInvalidSelectionError
from zellige.grid import ChunkGrid, DimensionGrid, expand_ellipsis
from zellige.types import AnyArray, Coords, Indices, Shape

Axis: TypeAlias = range | Indices
"""What is picked along one axis: an ascending range, or positions in any order."""

Pick: TypeAlias = slice | Indices

Projection: TypeAlias = tuple[int, int, Pick, Pick, bool]
"""One chunk along one axis: its number and size, where in the chunk, where in the work array, all of it?"""

Request: TypeAlias = tuple[Coords, Shape, tuple[Pick, ...], tuple[Pick | EllipsisType, ...], bool]
"""One chunk: coordinates, codec shape, where in the chunk, where in the work array, all of its data?"""


@dataclass(frozen=True, slots=True)
class Selection:
    """What an index picks, and how the work array turns into numpy's result."""

    axes: tuple[Axis, ...]
    """For each axis of the array; those picked by points have the positions of the points."""
    work_shape: Shape
    result_shape: Shape
    points: tuple[int, ...] = ()
    """The axes that are picked together, point by point; they share the first axis of the work array."""
    flip: tuple[slice, ...] | None = None
    """Axes with a negative step, which the work array holds in ascending order."""
    unfolded: Shape | None = None
    """The work shape with index arrays in their own shape and single indices dropped."""
    order: tuple[int, ...] | None = None
    """Where the axes of `unfolded` go."""
    scalar: bool = False
    """Whether numpy gives a scalar instead of a 0-d array."""

    def to_result(self, work: AnyArray) -> Any:
        """Numpy's result as a view of the work array."""
        if self.flip is not None:
            work = work[self.flip]
        if self.unfolded is not None:
            work = work.reshape(self.unfolded)
        if self.order is not None:
            work = work.transpose(self.order)
        result = work.reshape(self.result_shape)
        return result[()] if self.scalar else result

    def to_work(self, result: AnyArray) -> AnyArray:
        """The inverse of `to_result`: a view if numpy can give one, else a copy."""
        if self.order is not None and self.unfolded is not None:
            result = result.reshape(tuple(self.unfolded[axis] for axis in self.order))
            result = result.transpose(np.argsort(self.order))
        work = result.reshape(self.work_shape)
        return work if self.flip is None else work[self.flip]

    def value_to_work(self, value: AnyArray) -> AnyArray:
        """A value broadcast to the selection, by numpy's rules for assignment."""
        while value.ndim > len(self.result_shape) and value.shape[0] == 1:
            value = value[0]
        try:
            return self.to_work(np.broadcast_to(value, self.result_shape))
        except ValueError as error:
            raise BroadcastError(
                f"could not broadcast a value of shape {value.shape} to the selection's shape {self.result_shape}"
            ) from error


# -- numpy's own indexing -------------------------------------------------------------------------


def select(index: Any, shape: Shape) -> Selection:
    """`array[index]` by numpy's rules: integers, slices, `...`, None, masks and index arrays, mixed."""
    items = index if isinstance(index, tuple) else (index,)
    if len(items) > len(shape):
        return _select_any(items, shape)
    axes: list[Axis] = []
    result: list[int] = []
    for item, extent in zip(items, shape, strict=False):
        kind = type(item)
        if kind is int:
            at = item if item >= 0 else item + extent
            if not 0 <= at < extent:
                raise _out_of_bounds(item, len(axes), extent)
            axes.append(range(at, at + 1))
        elif kind is slice and (item.step is None or item.step == 1):
            axis = range(*item.indices(extent))
            axes.append(axis)
            result.append(len(axis))
        else:  # negative and larger steps, masks, arrays, ...
            return _select_any(items, shape)
    for extent in shape[len(items) :]:
        axes.append(range(extent))
        result.append(extent)
    return Selection(tuple(axes), tuple(map(len, axes)), tuple(result), scalar=not result)


Label: TypeAlias = int | None
"""A dimension of the result: an axis of the array, a shared one of index arrays (negative), or a new one."""

Part: TypeAlias = tuple[Axis, tuple[int, ...]]
"""For one axis of the array: what is picked, and the result's dimensions that come from it."""


def _select_any(items: tuple[Any, ...], shape: Shape) -> Selection:
    parsed = list(_parse_items(items, shape))
    arrays = [at for at, _, _ in parsed if isinstance(at, np.ndarray)]
    try:
        shared = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        raise BoundsCheckError(f"index arrays of shapes {[a.shape for a in arrays]} do not broadcast") from error
    labels = tuple(range(-1, -1 - len(shared), -1))
    parts: list[Part] = []
    for at, axis, _ in parsed:
        if isinstance(at, np.ndarray):
            parts.append((np.broadcast_to(at, shared).ravel(), labels))
        elif at is not None:
            parts.append((at, () if axis is None else (axis,)))
    points = tuple(axis for axis, (at, _) in enumerate(parts) if isinstance(at, np.ndarray))
    sizes = dict(zip(labels, shared, strict=True))
    return _assemble(
        parts,
        sizes,
        _numpy_order(parsed, labels) if arrays else [axis for at, axis, _ in parsed if at is None or axis is not None],
        points=points if len(points) > 1 else (),
        scalar=not arrays and not any(item is Ellipsis for item in items),
    )


def _numpy_order(parsed: list[tuple[Axis | None, Label, int]], labels: tuple[int, ...]) -> list[Label]:
    """The result's dimensions. Shared ones stand where the arrays stood, or first if those stood apart."""
    # Integers count as arrays here, as in numpy.
    advanced = [i for i, (at, axis, _) in enumerate(parsed) if at is not None and axis is None]
    places = {parsed[i][2] for i in advanced}
    together = max(places) - min(places) == len(places) - 1
    result: list[Label] = [] if together else [*labels]
    for i, (at, axis, _) in enumerate(parsed):
        if i == advanced[0] and together:
            result += labels
        elif at is None or axis is not None:
            result.append(axis)
    return result


def _assemble(
    parts: Sequence[Part],
    sizes: dict[int, int],
    result: Sequence[Label],
    *,
    points: tuple[int, ...] = (),
    scalar: bool = False,
) -> Selection:
    """A selection from what each axis picks and the order of the result's dimensions."""
    sizes |= {axis: len(at) for axis, (at, labels) in enumerate(parts) if labels == (axis,)}
    work = [parts[points[0]]] if points else []
    work += [part for axis, part in enumerate(parts) if axis not in points]
    unfolded = [label for _, labels in work for label in labels]
    order = tuple(unfolded.index(label) for label in result if label is not None)
    back = [isinstance(at, range) and at.step < 0 for at, _ in work]
    return Selection(
        axes=tuple(_ascending(at) if axis not in points else at for axis, (at, _) in enumerate(parts)),
        work_shape=tuple(len(at) for at, _ in work),
        result_shape=tuple(1 if label is None else sizes[label] for label in result),
        points=points,
        flip=tuple(slice(None, None, -1) if b else slice(None) for b in back) if any(back) else None,
        unfolded=tuple(sizes[label] for label in unfolded),
        order=order,
        scalar=scalar and not result,
    )


def _ascending(at: Axis) -> Axis:
    """Ranges with positive steps, also in place of arrays of consecutive positions."""
    if isinstance(at, range):
        return at if at.step > 0 else at[::-1]
    if at.size and at[-1] - at[0] == at.size - 1 and bool((np.diff(at) == 1).all()):
        return range(int(at[0]), int(at[-1]) + 1)
    return at


def _parse_items(items: tuple[Any, ...], shape: Shape) -> Iterator[tuple[Axis | None, Label, int]]:
    """Each part of an index as (what it picks, its axis if that stays in the result, its place in the index).

    A new axis picks nothing, an integer or an array has no axis of its own in the result.
    """
    items = tuple(_as_item(item) for item in items)
    used = sum(item.ndim if _is_mask(item) else item is not None and item is not Ellipsis for item in items)
    if used > len(shape) or sum(item is Ellipsis for item in items) > 1:
        raise BoundsCheckError(
            f"too many indices: {used} for an array of {len(shape)} dimensions, with at most one '...'"
        )
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    axis = 0
    for place, item in enumerate(items):
        if item is None:
            yield None, None, place
        elif item is Ellipsis:
            for k in range(axis, axis + len(shape) - used):
                yield range(shape[k]), k, place
            axis += len(shape) - used
        elif _is_mask(item):
            for positions in _mask_positions(item, shape, axis):
                yield positions, None, place
            axis += item.ndim
        else:
            yield _pick(item, axis, shape[axis]), axis if isinstance(item, slice) else None, place
            axis += 1


def _as_items(index: Any) -> tuple[Any, ...]:
    return tuple(_as_item(item) for item in (index if isinstance(index, tuple) else (index,)))


def _as_item(item: Any) -> Any:
    """An index part as int, slice, None, Ellipsis or a numpy array of integers or booleans."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, bool | np.bool):
        raise BoundsCheckError(f"{item} alone is not an index; use None for a new axis, or a mask")
    if isinstance(item, int | np.integer):
        return operator.index(item)
    array = np.asarray(item)
    if array.size == 0 and not isinstance(item, np.ndarray):
        array = array.astype(np.intp)  # as numpy reads an empty list
    if array.dtype.kind not in "iub":
        raise BoundsCheckError(
            f"only integers, slices (`:`), `...`, None, masks and integer arrays are indices, found {item!r}"
        )
    if array.ndim == 0:
        return _as_item(array[()])
    return array


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def _mask_positions(mask: AnyArray, shape: Shape, axis: int) -> tuple[Indices, ...]:
    expected = shape[axis : axis + mask.ndim]
    if mask.shape != expected:
        raise BoundsCheckError(f"a mask of shape {mask.shape} does not fit axes {axis}… of shape {expected}")
    return mask.nonzero()


def _pick(item: Any, axis: int, extent: int) -> Axis:
    """What an integer, a slice or an integer array picks along an axis."""
    if isinstance(item, slice):
        return range(*item.indices(extent))
    if isinstance(item, int):
        at = item + extent if item < 0 else item
        if not 0 <= at < extent:
            raise _out_of_bounds(item, axis, extent)
        return range(at, at + 1)
    return _positions(item, axis, extent)


def _positions(array: AnyArray, axis: int, extent: int) -> Indices:
    """Index arrays with negative positions resolved."""
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < -extent or high >= extent:
            raise _out_of_bounds(low if low < -extent else high, axis, extent)
        array = array.astype(np.intp, copy=False)
        if low < 0:
            array = np.where(array < 0, array + extent, array)
    return array.astype(np.intp, copy=False)


def _out_of_bounds(index: int, axis: int, extent: int) -> BoundsCheckError:
    return BoundsCheckError(f"index {index} is out of bounds for axis {axis} with size {extent}")


# -- the other ways to index ----------------------------------------------------------------------


def select_orthogonal(index: Any, shape: Shape) -> Selection:
    """`oindex[...]`: each axis is picked on its own, by an integer, a slice, a mask or a list of positions."""
    items = expand_ellipsis(_as_items(index), len(shape))
    items += (slice(None),) * (len(shape) - len(items))
    if len(items) != len(shape) or any(item is None or item is Ellipsis for item in items):
        raise BoundsCheckError(
            f"oindex takes one entry for each of {len(shape)} axes, without None, and at most one '...'"
        )
    parts: list[Part] = []
    for axis, (item, extent) in enumerate(zip(items, shape, strict=True)):
        if isinstance(item, np.ndarray) and item.ndim != 1:
            raise BoundsCheckError(f"axis {axis}: oindex takes 1-d masks and lists, found shape {item.shape}")
        picked = _mask_positions(item, shape, axis)[0] if _is_mask(item) else _pick(item, axis, extent)
        parts.append((picked, () if isinstance(item, int) else (axis,)))
    return _assemble(parts, {}, [label for _, labels in parts for label in labels], scalar=True)


def select_points(index: Any, shape: Shape) -> Selection:
    """`vindex[...]`: one integer array for each axis, picked point by point, or one mask of the whole shape."""
    items = _as_items(index)
    if len(items) == 1 and _is_mask(items[0]) and items[0].ndim == len(shape):
        return select(items[0], shape)
    if len(items) != len(shape) or not all(
        isinstance(i, int) or (isinstance(i, np.ndarray) and not _is_mask(i)) for i in items
    ):
        raise VindexInvalidSelectionError(
            f"vindex takes an integer array for each of {len(shape)} axes, or one mask of shape {shape}"
        )
    return select(items, shape)


def select_blocks(index: Any, grid: ChunkGrid) -> Selection:
    """`blocks[...]`: integers and slices that count chunks; whole chunks come, and no axis is dropped."""
    items = expand_ellipsis(_as_items(index), grid.ndim)
    if len(items) > grid.ndim:
        raise BoundsCheckError(f"{len(items)} block indices for {grid.ndim} axes")
    pairs = zip(items, grid.dimensions, strict=False)
    return select(tuple(_block_slice(item, dim, axis) for axis, (item, dim) in enumerate(pairs)), grid.shape)


def _block_slice(item: Any, dim: DimensionGrid, axis: int) -> slice:
    """The elements that some chunks hold."""
    if not isinstance(item, int | slice) or (isinstance(item, slice) and item.step not in (None, 1)):
        raise BoundsCheckError(f"axis {axis}: blocks are picked by integers and slices of step 1, found {item!r}")
    blocks = _pick(item, axis, dim.nchunks)
    if not len(blocks):
        return slice(0, 0)
    last = int(blocks[-1])
    return slice(dim.chunk_offset(int(blocks[0])), dim.chunk_offset(last) + dim.data_size(last))


# -- plans ----------------------------------------------------------------------------------------


_LONG = 100_000  # chunks along one axis; more are not held at once


@dataclass(frozen=True, slots=True)
class Plan:
    """The chunks that a selection hits; requests are made one by one, as they are asked for."""

    projections: tuple[Sequence[Any], ...]
    """For each axis of the work array, one entry for each chunk that is hit."""
    order: tuple[int, ...] | None
    """With points: the axes of the array in the order of the work array, points first."""
    npoints: int = 0
    """How many axes the points take."""

    def __len__(self) -> int:
        return prod(map(len, self.projections))

    def requests(self, start: int = 0, stop: int | None = None) -> Iterator[Request]:
        """Some of the requests, in C order. The iterator may be shared by threads."""
        chosen = islice(_product(self.projections), start, stop)
        return map(self._point_request if self.npoints else _request, chosen)

    def _point_request(self, parts: tuple[Any, ...]) -> Request:
        (coords, sizes, inside, positions, _), *rest = parts
        others, extents, picks, places, _ = zip(*rest, strict=True) if rest else ((), (), (), (), ())
        assert self.order is not None
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        all_coords, all_sizes = (*coords, *others), (*sizes, *extents)
        return (
            tuple(all_coords[i] for i in back),
            tuple(all_sizes[i] for i in back),
            (*inside, *picks),
            (positions, *places),
            False,
        )


def _product(axes: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """The product in C order. Long axes are never held; all parts are C iterators, which threads may share."""
    if all(type(axis) is list for axis in axes):
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


def picked_axes(
    inside: Sequence[Pick], order: tuple[int, ...] | None, npoints: int
) -> tuple[list[Axis], tuple[int, ...]]:
    """What a request picks from its chunk, as axes and points for a plan within the chunk."""
    axes: list[Axis] = [
        range(pick.start, pick.stop, pick.step or 1) if isinstance(pick, slice) else _ascending(pick.ravel())
        for pick in inside
    ]
    if order is None:
        return axes, ()
    points = order[:npoints]
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


def _request(parts: tuple[Projection, ...]) -> Request:
    if not parts:
        return (), (), (), (...,), True  # `...`, because an empty tuple would pick a scalar, not a view
    coords, sizes, inside, outside, whole = zip(*parts, strict=True)
    return coords, sizes, inside, outside, False not in whole


def plan(selection: Selection, grid: ChunkGrid) -> Plan:
    """What to copy between the chunks and the work array."""
    return plan_axes(selection.axes, selection.points, grid.dimensions)


def plan_axes(axes: Sequence[Axis], points: tuple[int, ...], dims: Sequence[DimensionGrid]) -> Plan:
    """A plan from what is picked along each axis; `points` are the axes that are picked together."""
    if points:
        others = [axis for axis in range(len(axes)) if axis not in points]
        lead = _project_points([axes[k] for k in points], [dims[k] for k in points])  # type: ignore[misc]
        return Plan((lead, *(_project(axes[k], dims[k]) for k in others)), (*points, *others), len(points))
    projections = tuple(map(_project, axes, dims))
    if sum(not isinstance(at, range) for at in axes) > 1:
        projections = tuple(_as_mesh(p, axis, len(axes)) for axis, p in enumerate(projections))
    return Plan(projections, None)


def _project(at: Axis, dim: DimensionGrid) -> Sequence[Projection]:
    if not isinstance(at, range):
        return _project_array(at, dim)
    if at.step == 1 and len(at) > _LONG and dim.index_to_chunk(at.stop - 1) - dim.index_to_chunk(at.start) > _LONG:
        return _LongRange(at, dim)
    return _project_range(at, dim)


class _LongRange(Sequence[Projection]):
    """`_project_range` for a range of consecutive elements, one chunk at a time."""

    def __init__(self, at: range, dim: DimensionGrid) -> None:
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


def _project_range(at: range, dim: DimensionGrid) -> list[Projection]:
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


def _project_array(at: Indices, dim: DimensionGrid) -> list[Projection]:
    """The chunks that hold some positions; the positions in each keep their order, so the last write wins."""
    found: list[Projection] = []
    for positions in _groups(dim.indices_to_chunks(at)):
        inside = at[positions]
        chunk, start, size = dim.locate(int(inside[0]))
        found.append((chunk, size, inside - start, positions, False))
    return found


def _project_points(at: Sequence[Indices], dims: Sequence[DimensionGrid]) -> list[Any]:
    """Like `_project_array` for axes that are picked together."""
    found = []
    for positions in _groups(_chunk_numbers(at, dims)):
        inside = [axis[positions] for axis in at]
        coords, starts, sizes = zip(*(dim.locate(int(i[0])) for i, dim in zip(inside, dims, strict=True)), strict=True)
        found.append((coords, sizes, [i - start for i, start in zip(inside, starts, strict=True)], positions, False))
    return found


def _chunk_numbers(at: Sequence[Indices], dims: Sequence[DimensionGrid]) -> Indices:
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


def _groups(chunks: Indices) -> Iterator[Pick]:
    """For each chunk that occurs: where its entries are, as a slice if they are already in order."""
    if not chunks.size:
        return
    order = None
    if not bool((chunks[1:] >= chunks[:-1]).all()):
        order = np.argsort(chunks, kind="stable")
        chunks = chunks[order]
    bounds = [0, *((np.diff(chunks).nonzero()[0] + 1).tolist()), chunks.size]
    for start, stop in pairwise(bounds):
        yield slice(start, stop) if order is None else order[start:stop]


def _as_mesh(projections: Iterable[Projection], axis: int, ndim: int) -> list[Projection]:
    """Positions shaped so that several index arrays pick their product, not points (numpy's `ix_`)."""
    shape = (-1, *[1] * (ndim - 1 - axis))

    def open_mesh(pick: Pick) -> Indices:
        return (np.arange(pick.start, pick.stop, pick.step) if isinstance(pick, slice) else pick).reshape(shape)

    return [(chunk, size, open_mesh(i), open_mesh(o), whole) for chunk, size, i, o, whole in projections]
