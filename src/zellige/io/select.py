"""From a user's index to a `Selection`: for each axis a range or an array of positions, or points.

Several axes may be picked together, point by point. With a grid, a selection becomes a plan (`plan.py`).

Work happens in a *work array* that has one axis for each axis of the array (or one for all the points,
then the other axes), in ascending order. What numpy's rules make of that (dropped axes, new axes, n-d
index arrays, negative steps, the place of broadcast axes) is a view of it: `to_result` and `to_work`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from zellige.errors import BoundsCheckError, BroadcastError, FieldNotFoundError, VindexInvalidSelectionError
from zellige.grid.grid import ChunkGrid, DimensionGrid, expand_ellipsis
from zellige.types import AnyArray, Indices, Shape

Axis: TypeAlias = range | Indices
"""What is picked along one axis: an ascending range, or positions in any order."""


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
        """Return numpy's result as a view of the work array."""
        if self.flip is not None:
            work = work[self.flip]
        if self.unfolded is not None:
            work = work.reshape(self.unfolded)
        if self.order is not None:
            work = work.transpose(self.order)
        result = work.reshape(self.result_shape)
        return result[()] if self.scalar else result

    def to_work(self, result: AnyArray) -> AnyArray:
        """Return the inverse of `to_result`: a view if numpy can give one, else a copy."""
        if self.order is not None and self.unfolded is not None:
            result = result.reshape(tuple(self.unfolded[axis] for axis in self.order))
            result = result.transpose(np.argsort(self.order))
        work = result.reshape(self.work_shape)
        return work if self.flip is None else work[self.flip]

    def value_to_work(self, value: AnyArray) -> AnyArray:
        """Return a value broadcast to the selection, by numpy's rules for assignment."""
        while value.ndim > len(self.result_shape) and value.shape[0] == 1:
            value = value[0, ...]  # `value[0]` would make a scalar of the last axis
        if value.shape == self.result_shape:  # as below, but several times as fast
            same = value.view(np.ndarray)
            same.flags.writeable = False  # a third-party codec must not change the caller's values
            return self.to_work(same)
        try:
            return self.to_work(np.broadcast_to(value, self.result_shape))
        except ValueError as error:
            raise BroadcastError(
                f"could not broadcast a value of shape {value.shape} to the selection's shape {self.result_shape}"
            ) from error


# -- numpy's own indexing -------------------------------------------------------------------------


def basic(index: Any, shape: Shape) -> Selection:
    """Select as `array[index]` by numpy's rules: integers, slices, `...`, None, masks and index arrays, mixed."""
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
            try:
                axis = range(*item.indices(extent))
            except TypeError:
                raise _no_slice(item, len(axes)) from None
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

Picked: TypeAlias = Axis | bool | None
"""What one part of an index picks: elements of an axis; None for a new axis; a mask without axes is True or False."""

Item: TypeAlias = tuple[Picked, Label, int]
"""One part of an index: what it picks, its axis if that stays in the result, its place in the index."""

Part: TypeAlias = tuple[Axis, tuple[int, ...]]
"""For one axis of the array: what is picked, and the result's dimensions that come from it."""


def _select_any(items: tuple[Any, ...], shape: Shape) -> Selection:
    parsed = list(parse_items(items, shape))
    shared, labels, order = result_axes(parsed)
    sizes = dict(zip(labels, shared, strict=True))
    parts: list[Part] = []
    for at, axis, _ in parsed:
        if isinstance(at, np.ndarray):
            parts.append(((at if at.shape == shared else np.broadcast_to(at, shared)).ravel(), labels))
        elif isinstance(at, range):
            parts.append((at, () if axis is None else (axis,)))
    if any(at is False for at, _, _ in parsed):
        return _nothing(parts, sizes, order)
    points = tuple(axis for axis, (at, _) in enumerate(parts) if isinstance(at, np.ndarray))
    if not points:  # what the index `True` makes is a new axis, unless index arrays share it
        order = [None if label in labels else label for label in order]
    return _assemble(
        parts,
        sizes,
        order,
        points=points if len(points) > 1 else (),
        scalar=not points and not any(item is Ellipsis for item in items),
    )


def _nothing(parts: Sequence[Part], sizes: dict[int, int], order: Sequence[Label]) -> Selection:
    """Return the selection of no element, in the shape that numpy gives it."""
    sizes |= {axis: len(at) for axis, (at, labels) in enumerate(parts) if labels == (axis,)}
    return Selection(
        axes=tuple(range(0) for _ in parts),
        work_shape=(0,) * max(1, len(parts)),
        result_shape=tuple(1 if label is None else sizes[label] for label in order),
    )


def result_axes(parsed: Sequence[Item]) -> tuple[Shape, tuple[int, ...], list[Label]]:
    """Return the shape that index arrays share, the labels of its axes, and the result's dimensions in order."""
    shapes = [
        at.shape if isinstance(at, np.ndarray) else (int(at),)
        for at, _, _ in parsed
        if isinstance(at, np.ndarray | bool)
    ]
    if not shapes:
        return (), (), [axis for at, axis, _ in parsed if at is None or axis is not None]
    try:
        shared = shapes[0] if len({*shapes}) == 1 else np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise BoundsCheckError(f"index arrays of shapes {shapes} do not broadcast") from error
    labels = tuple(range(-1, -1 - len(shared), -1))
    return shared, labels, _numpy_order(parsed, labels)


def _numpy_order(parsed: Sequence[Item], labels: tuple[int, ...]) -> list[Label]:
    """Return the result's dimensions. Shared ones stand where the arrays stood, or first if those stood apart."""
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
    """Return a selection from what each axis picks and the order of the result's dimensions."""
    sizes |= {axis: len(at) for axis, (at, labels) in enumerate(parts) if labels == (axis,)}
    work = [parts[points[0]]] if points else []
    work += [part for axis, part in enumerate(parts) if axis not in points]
    unfolded = [label for _, labels in work for label in labels]
    order = tuple(unfolded.index(label) for label in result if label is not None)
    back = [isinstance(at, range) and at.step < 0 for at, _ in work]
    return Selection(
        axes=tuple(ascending(at) if axis not in points else at for axis, (at, _) in enumerate(parts)),
        work_shape=tuple(len(at) for at, _ in work),
        result_shape=tuple(1 if label is None else sizes[label] for label in result),
        points=points,
        flip=tuple(slice(None, None, -1) if b else slice(None) for b in back) if any(back) else None,
        unfolded=tuple(sizes[label] for label in unfolded),
        order=order,
        scalar=scalar and not result,
    )


def ascending(at: Axis) -> Axis:
    """Return a range with a positive step, also in place of consecutive positions; others as they are."""
    if isinstance(at, range):
        return at if at.step > 0 else at[::-1]
    if at.size and at[-1] - at[0] == at.size - 1 and bool((np.diff(at) == 1).all()):
        return range(int(at[0]), int(at[-1]) + 1)
    return at


def parse_items(items: tuple[Any, ...], shape: Shape) -> Iterator[Item]:
    """Yield each part of an index, for every axis that it picks from.

    A new axis picks nothing, an integer or an array has no axis of its own in the result. `True` and `False` are masks
    without axes, which count as index arrays of length 1 and 0.
    """
    items = tuple(_as_item(item) for item in items)
    used = sum(item.ndim if _is_mask(item) else item is not None and item is not Ellipsis for item in items)
    if sum(item is Ellipsis for item in items) > 1:
        raise BoundsCheckError("an index has at most one '...', and here are more")
    if used > len(shape):
        raise BoundsCheckError(f"too many indices: {used} for an array of {len(shape)} dimensions")
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
        elif _is_mask(item) and not item.ndim:
            yield bool(item), None, place
        elif _is_mask(item):
            for positions in _mask_positions(item, shape, axis):
                yield positions, None, place
            axis += item.ndim
        else:
            yield _pick(item, axis, shape[axis]), axis if isinstance(item, slice) else None, place
            axis += 1


def as_items(index: Any) -> tuple[Any, ...]:
    """Return the parts of an index."""
    return tuple(_as_item(item) for item in (index if isinstance(index, tuple) else (index,)))


def _as_item(item: Any) -> Any:
    """Return an index part as int, slice, None, Ellipsis or a numpy array of integers or booleans."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        return operator.index(item)
    array = np.asarray(item)
    if array.size == 0 and not isinstance(item, np.ndarray):
        array = array.astype(np.intp)  # as numpy reads an empty list
    if array.dtype.kind not in "iub":
        raise BoundsCheckError(
            f"only integers, slices (`:`), `...`, None, masks and integer arrays are indices, found {item!r}"
        )
    return array if array.ndim or array.dtype.kind == "b" else operator.index(array[()])


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def _mask_positions(mask: AnyArray, shape: Shape, axis: int) -> tuple[Indices, ...]:
    expected = shape[axis : axis + mask.ndim]
    if mask.shape != expected:
        raise BoundsCheckError(f"a mask of shape {mask.shape} does not fit axes {axis}… of shape {expected}")
    return mask.nonzero()


def _pick(item: Any, axis: int, extent: int) -> Axis:
    """Return what an integer, a slice or an integer array picks along an axis."""
    if isinstance(item, slice):
        try:
            return range(*item.indices(extent))
        except TypeError:
            raise _no_slice(item, axis) from None
    if isinstance(item, int):
        at = item + extent if item < 0 else item
        if not 0 <= at < extent:
            raise _out_of_bounds(item, axis, extent)
        return range(at, at + 1)
    return _positions(item, axis, extent)


def _positions(array: AnyArray, axis: int, extent: int) -> Indices:
    """Return an index array with negative positions resolved."""
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < -extent or high >= extent:
            raise _out_of_bounds(low if low < -extent else high, axis, extent)
        array = array.astype(np.intp, copy=False)
        if low < 0:
            array = np.where(array < 0, array + extent, array)
    return array.astype(np.intp, copy=False)


def _no_slice(item: slice, axis: int) -> TypeError:
    return TypeError(
        f"axis {axis}: a slice goes from integer to integer, found {item!r}; positions count from 0, and labels are "
        "looked up by xarray"
    )


def _out_of_bounds(index: int, axis: int, extent: int) -> BoundsCheckError:
    return BoundsCheckError(f"index {index} is out of bounds for axis {axis} with size {extent}")


# -- the other ways to index ----------------------------------------------------------------------


def orthogonal(index: Any, shape: Shape) -> Selection:
    """Select as `oindex[...]`: each axis on its own, by an integer, a slice, a mask or a list of positions."""
    items = expand_ellipsis(as_items(index), len(shape))
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


def points(index: Any, shape: Shape) -> Selection:
    """Select as `vindex[...]`: an integer array for each axis, point by point, or one mask of the whole shape."""
    items = as_items(index)
    if len(items) == 1 and _is_mask(items[0]) and items[0].ndim == len(shape):
        return basic(items[0], shape)
    if len(items) != len(shape) or not all(
        isinstance(i, int) or (isinstance(i, np.ndarray) and not _is_mask(i)) for i in items
    ):
        raise VindexInvalidSelectionError(
            f"vindex takes an integer array for each of {len(shape)} axes, or one mask of shape {shape}"
        )
    return basic(items, shape)


def blocks(index: Any, grid: ChunkGrid) -> Selection:
    """Select as `blocks[...]`: integers and slices count chunks; whole chunks come, and no axis is dropped."""
    items = expand_ellipsis(as_items(index), grid.ndim)
    if len(items) > grid.ndim:
        raise BoundsCheckError(f"{len(items)} block indices for {grid.ndim} axes")
    pairs = zip(items, grid.dimensions, strict=False)
    return basic(tuple(_block_slice(item, dim, axis) for axis, (item, dim) in enumerate(pairs)), grid.shape)


def _block_slice(item: Any, dim: DimensionGrid, axis: int) -> slice:
    """Return the elements that some chunks hold."""
    if not isinstance(item, int | slice) or (isinstance(item, slice) and item.step not in (None, 1)):
        raise BoundsCheckError(f"axis {axis}: blocks are picked by integers and slices of step 1, found {item!r}")
    blocks = _pick(item, axis, dim.nchunks)
    if not len(blocks):
        return slice(0, 0)
    last = int(blocks[-1])
    return slice(dim.chunk_offset(int(blocks[0])), dim.chunk_offset(last) + dim.data_size(last))


# -- fields of structs ----------------------------------------------------------------------------

FieldNames: TypeAlias = str | list[str]
"""One field, or a struct of several."""


def split_fields(index: Any, dtype: np.dtype[Any], fields: Sequence[str] | str | None) -> tuple[Any, FieldNames | None]:
    """Return an index without the names of fields, which may stand anywhere in it, and those names.

    >>> split_fields((slice(0, 5), "x"), np.dtype([("x", "i4")]), None)
    ((slice(0, 5, None),), 'x')
    """
    items = index if isinstance(index, tuple) else (index,)
    named = [item for item in items if _names_fields(item)]
    if fields is not None:
        named.append(fields if isinstance(fields, str) else list(fields))
    if not named:
        return index, None
    rest = tuple(item for item in items if not _names_fields(item))
    chosen = named[0] if len(named) == 1 else [name for n in named for name in ([n] if isinstance(n, str) else n)]
    _check_fields(chosen, dtype)
    return index if len(rest) == len(items) else rest or ..., chosen


def _names_fields(item: Any) -> bool:
    return isinstance(item, str) or (isinstance(item, list) and bool(item) and all(isinstance(n, str) for n in item))


def _check_fields(chosen: FieldNames, dtype: np.dtype[Any]) -> None:
    names = [chosen] if isinstance(chosen, str) else chosen
    known = dtype.names or ()
    for i, name in enumerate(names):
        if name not in known:
            fields = f"the fields are {', '.join(map(repr, known))}" if known else f"elements of type {dtype} have none"
            raise FieldNotFoundError(f"no field of name {name!r}; {fields}", fields=known)
        if name in names[:i]:
            raise ValueError(f"field {name!r} is named twice")


def take_fields(found: Any, fields: FieldNames) -> Any:
    """Return fields of elements that were read; one field by itself, without the memory of the others."""
    part = found[fields]
    return part.copy(order="K") if isinstance(fields, str) and isinstance(part, np.ndarray) else part


# -- square brackets ------------------------------------------------------------------------------


class Indexer:
    """Square brackets for one way of indexing, such as `array.oindex`."""

    __slots__ = ("_get", "_set")

    def __init__(self, get: Callable[[Any], Any], set_: Callable[[Any, Any], None]) -> None:
        self._get, self._set = get, set_

    def __getitem__(self, selection: Any) -> Any:
        return self._get(selection)

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._set(selection, value)
