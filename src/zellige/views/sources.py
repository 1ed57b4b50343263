"""What views are views of, and the algebra of their indices.

A `Transform` says which elements of a source a view has. Each kind of source (stored arrays, numpy arrays, anything
else that has a shape and can be indexed) reads a transform in one go, and touches only what it must.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige.dtypes.cast import unmasked
from zellige.errors import BoundsCheckError, ReadOnlyError
from zellige.grid.axis import FixedDimension, is_size
from zellige.grid.edges import EXPANDED, Edges
from zellige.grid.grid import expand_ellipsis
from zellige.io import select
from zellige.nodes.array import Array, read_runs
from zellige.types import AnyArray, Indices, Shape

if TYPE_CHECKING:
    from zellige.io.select import FieldNames


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where the elements of a view lie along an axis of its source: at one index, along a range, or at positions."""

    axes: tuple[int, ...]
    """The axes of the view that run along it: none for an index, one for a range, one per dimension of positions."""
    at: int | range | Indices


@dataclass(frozen=True, slots=True, eq=False)
class Transform:
    """The shape of a view, and for each axis of its source where the elements lie."""

    shape: Shape
    places: tuple[Place, ...]

    # -- making -----------------------------------------------------------------------------------

    @classmethod
    def whole(cls, shape: Shape) -> Transform:
        """Return the transform of all of a source."""
        return cls(shape, tuple(Place((axis,), range(n)) for axis, n in enumerate(shape)))

    @classmethod
    def of_index(cls, index: Any, shape: Shape) -> Transform:
        """Return what numpy's indexing picks from a source of a shape; IndexError for what it refuses."""
        parsed = list(select.parse_items(index if isinstance(index, tuple) else (index,), shape))
        shared, labels, order = select.result_axes(parsed)
        number = {label: axis for axis, label in enumerate(order) if label is not None}
        lengths = dict(zip(labels, shared, strict=True))
        places: list[Place] = []
        for at, axis, _ in parsed:
            if isinstance(at, np.ndarray):
                # A copy: the index belongs to the caller, who may change it before the view is read.
                places.append(_picked([number[label] for label in labels[len(labels) - at.ndim :]], at.copy()))
            elif isinstance(at, range) and axis is not None:
                places.append(Place((number[axis],), at))
                lengths[axis] = len(at)
            elif isinstance(at, range):
                places.append(Place((), at.start))
        return cls(tuple(1 if label is None else lengths[label] for label in order), tuple(places))

    # -- composing --------------------------------------------------------------------------------

    def pick(self, index: Any) -> Transform:
        """Return a selection of this one, by numpy's rules."""
        return self.compose(Transform.of_index(index, self.shape))

    def pick_orthogonal(self, index: Any) -> Transform:
        """Return a selection of this one, each axis on its own."""
        select.orthogonal(index, self.shape)  # refuses what is not one
        found = self
        items = expand_ellipsis(select.as_items(index), len(self.shape))
        for axis in reversed(range(len(items))):  # from the last one, since integers drop axes
            found = found.pick((*[slice(None)] * axis, items[axis]))
        return found

    def pick_points(self, index: Any) -> Transform:
        """Return a selection of this one, point by point."""
        select.points(index, self.shape)  # refuses what is not one
        return self.pick(index)

    def transpose(self, axes: Sequence[int]) -> Transform:
        """Return the same elements with the view's axes in another order."""
        number = {axis: k for k, axis in enumerate(axes)}
        moved = [Place((number[axis],), range(self.shape[axis])) for axis in range(len(axes))]
        return self.compose(Transform(tuple(self.shape[axis] for axis in axes), tuple(moved)))

    def compose(self, inner: Transform) -> Transform:
        """Return what a transform of the view's elements picks from the source."""
        return Transform(inner.shape, tuple(_substitute(place, inner) for place in self.places))

    def moved(self, axis: int, offset: int) -> Transform:
        """Return the same view of a source whose axis begins at another element."""
        own, at = self.places[axis], self.places[axis].at
        there = range(at.start - offset, at.stop - offset, at.step) if isinstance(at, range) else at - offset
        return Transform(self.shape, (*self.places[:axis], Place(own.axes, there), *self.places[axis + 1 :]))

    # -- as an index of the source ----------------------------------------------------------------

    @property
    def picked(self) -> list[Place]:
        """The axes of the source that are picked by positions."""
        return [place for place in self.places if isinstance(place.at, np.ndarray)]

    @property
    def is_orthogonal(self) -> bool:
        """Whether there are positions, each along an axis of the view of their own."""
        axes = [place.axes for place in self.picked]
        return bool(axes) and all(len(own) == 1 for own in axes) and len(set(axes)) == len(axes)

    def index(self) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Return an index by numpy's rules, and which axis of the view each axis of its result is."""
        shared = sorted({axis for place in self.picked for axis in place.axes})
        picked, along = self.picked, [place for place in self.places if isinstance(place.at, range)]
        items = tuple(_aligned(place, shared) if place in picked else _item(place) for place in self.places)
        kept = [axis for place in along for axis in place.axes]
        if not shared:
            return items if kept else (*items, ...), tuple(kept)  # `...`: an array, where there would be a scalar
        # Shared axes come where the arrays are if these are neighbours, else first. Integers count as arrays.
        advanced = [k for k, place in enumerate(self.places) if place not in along]
        together = advanced[-1] - advanced[0] == len(advanced) - 1
        before = advanced[0] if together else 0
        return items, (*kept[:before], *shared, *kept[before:])

    def orthogonal_index(self) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Do as `index`, with each axis picked on its own."""
        return tuple(map(_item, self.places)), tuple(axis for place in self.places for axis in place.axes)

    def box(self) -> tuple[tuple[slice, ...], Transform]:
        """Return ascending slices of the source that hold everything, and the same view of what they hold."""
        pairs = [_boxed(place) for place in self.places]
        return tuple(part for part, _ in pairs), Transform(self.shape, tuple(place for _, place in pairs))

    # -- between the source's axes and the view's -------------------------------------------------

    def to_view(self, found: AnyArray, order: tuple[int, ...]) -> AnyArray:
        """Return what an index gave, as the view has it: axes in their order, new ones added."""
        found = found.transpose(sorted(range(len(order)), key=order.__getitem__))
        if len(order) < len(self.shape):
            found = found[tuple(slice(None) if axis in order else None for axis in range(len(self.shape)))]
        return found if found.shape == self.shape else np.broadcast_to(found, self.shape).copy()

    def to_source(self, values: AnyArray, order: tuple[int, ...]) -> AnyArray:
        """Return the inverse of `to_view`, as a view of the values: of elements that repeat, the last is taken."""
        kept = values[(*(slice(None) if axis in order else -1 for axis in range(len(self.shape))), ...)]
        ranks = sorted(order)
        return kept.transpose([ranks.index(axis) for axis in order])


def _picked(axes: Sequence[int], positions: Indices) -> Place:
    """Return positions over the axes that they change along; one position alone is fixed."""
    changing = [k for k, n in enumerate(positions.shape) if n != 1]
    if not changing:
        return Place((), int(positions.reshape(())[()]))
    return Place(tuple(axes[k] for k in changing), positions.reshape([positions.shape[k] for k in changing]))


def _substitute(place: Place, inner: Transform) -> Place:
    """Return where elements of a view lie that another transform picks."""
    own, at = [inner.places[axis] for axis in place.axes], place.at
    if isinstance(at, range):
        picked = own[0].at
        if isinstance(picked, np.ndarray):
            return Place(own[0].axes, picked if at == range(at.stop) else at.start + at.step * picked)
        return Place(own[0].axes, at[_item(own[0])])
    if isinstance(at, int):
        return place
    if not any(isinstance(inside.at, np.ndarray) for inside in own):
        return _picked([axis for inside in own for axis in inside.axes], at[tuple(map(_item, own))])
    shared = sorted({axis for inside in own for axis in inside.axes})
    return _picked(shared, at[tuple(_aligned(inside, shared) for inside in own)])


def _aligned(place: Place, shared: Sequence[int]) -> Indices:
    """Return positions that broadcast over some axes of the view."""
    axes, at = place.axes, place.at
    positions: Indices = np.arange(at.start, at.stop, at.step) if isinstance(at, range) else np.asarray(at)
    positions = positions.transpose(sorted(range(len(axes)), key=axes.__getitem__))
    return positions.reshape([positions.shape[sorted(axes).index(k)] if k in axes else 1 for k in shared])


def _item(place: Place) -> Any:
    """Return an integer, a slice or positions, for an index."""
    at = place.at
    if not isinstance(at, range):
        return at
    # A range that goes down to the first element ends before it, where a slice would count from the end.
    return slice(at.start, at.stop if at.stop >= 0 else None, at.step) if at else slice(0, 0)


def _boxed(place: Place) -> tuple[slice, Place]:
    """Return an ascending slice that holds all positions, and the same positions within it."""
    at = place.at
    if not isinstance(at, range):
        low, high = int(np.min(at)), int(np.max(at))
        return slice(low, high + 1), Place(place.axes, at - low)
    up = at if at.step > 0 else at[::-1]
    inside = range(len(up)) if at.step > 0 else range(len(up) - 1, -1, -1)
    return slice(up.start, up[-1] + 1, up.step), Place(place.axes, inside)


class Source(ABC):
    """An array that is read through transforms. Its shape is that of the time when the view was made."""

    __slots__ = ("shape", "dtype")

    shape: Shape
    dtype: np.dtype[Any]

    def __init__(self, shape: Shape, dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype

    @property
    def base(self) -> Any:
        """The array itself."""
        return self

    def arrays(self) -> Iterator[Any]:
        """Yield the arrays that hold the elements."""
        yield self.base

    @abstractmethod
    def read(self, at: Transform) -> AnyArray:
        """Read the elements into fresh memory."""

    def read_into(self, at: Transform, out: AnyArray) -> None:
        """Read into a part of an array."""
        out[...] = unmasked(self.read(at))

    @abstractmethod
    def check_writable(self) -> None:
        """Raise where writing is refused."""

    def write(self, at: Transform, values: AnyArray, fields: FieldNames | None) -> None:
        """Write values of the transform's shape; as it stands here, for sources that are only read."""
        self.check_writable()

    @abstractmethod
    def sizes(self, axis: int) -> Edges:
        """Return the sizes of the chunks along an axis."""


class _Wrapped(Source):
    """One array."""

    __slots__ = ("base",)

    base: Any

    def __init__(self, base: Any) -> None:
        super().__init__(tuple(map(operator.index, base.shape)), np.dtype(base.dtype))
        self.base = base

    def check_writable(self) -> None:
        raise ReadOnlyError(f"a view of {type(self.base).__name__} is for reading only; write to the array itself")

    def sizes(self, axis: int) -> Edges:
        self._check_shape()
        return declared(self.base, axis, self.shape[axis])

    def _check_shape(self) -> None:
        """Raise if the array has become shorter: slices would be cut short."""
        now = tuple(self.base.shape)
        if now != self.shape and (len(now) != len(self.shape) or any(map(operator.lt, now, self.shape))):
            raise BoundsCheckError(
                f"the array had shape {self.shape} when the view was made, now {now}; make a new view"
            )


class _Stored(_Wrapped):
    """An array of zellige, which takes every index at once."""

    __slots__ = ()

    base: Array

    def sizes(self, axis: int) -> Edges:
        """Return the sizes of the chunks along an axis; of shards, where their inner chunks are too many to list."""
        self._check_shape()
        runs = read_runs(self.base, axis)
        if isinstance(runs, Edges):
            return runs
        return Edges.of(runs) if len(runs) <= EXPANDED else self.base.grid.axes[axis].data_runs

    def _index(self, at: Transform) -> tuple[str, tuple[Any, ...], tuple[int, ...]]:
        """Return the kind of selection, its index, and which axis of the view each axis of its result is."""
        self._check_shape()
        return ("orthogonal", *at.orthogonal_index()) if at.is_orthogonal else ("basic", *at.index())

    def read(self, at: Transform) -> AnyArray:
        kind, index, order = self._index(at)
        return at.to_view(getattr(self.base, f"get_{kind}_selection")(index), order)

    def read_into(self, at: Transform, out: AnyArray) -> None:
        """Read the array once, straight into its place unless elements repeat."""
        kind, index, order = self._index(at)
        if any(n > 1 for axis, n in enumerate(at.shape) if axis not in order):
            out[...] = self.read(at)
        else:
            getattr(self.base, f"get_{kind}_selection")(index, out=at.to_source(out, order))

    def check_writable(self) -> None:
        if self.base.read_only:
            raise ReadOnlyError("the view's array was opened for reading only; open it with mode='r+' to write")

    def write(self, at: Transform, values: AnyArray, fields: FieldNames | None) -> None:
        kind, index, order = self._index(at)
        getattr(self.base, f"set_{kind}_selection")(index, at.to_source(values, order), fields=fields)


class _Memory(_Wrapped):
    """An array of numpy."""

    __slots__ = ()

    def _view(self, at: Transform) -> AnyArray:
        index, order = at.index()
        return at.to_view(self.base[index], order)

    def read(self, at: Transform) -> AnyArray:
        return self._view(at).copy()  # also where numpy gives a view

    def read_into(self, at: Transform, out: AnyArray) -> None:
        out[...] = unmasked(self._view(at))

    def check_writable(self) -> None:
        if not self.base.flags.writeable:
            raise ReadOnlyError("the view's numpy array is read-only; write to a copy of it")

    def write(self, at: Transform, values: AnyArray, fields: FieldNames | None) -> None:
        index, order = at.index()
        target = self.base if fields is None else self.base[fields]
        target[index] = at.to_source(values, order)


class _Foreign(_Wrapped):
    """Anything else: only ascending slices are read of it, and the rest is done on what they hold."""

    __slots__ = ()

    def read(self, at: Transform) -> AnyArray:
        self._check_shape()
        box, inside = at.box()
        return _Memory(np.asanyarray(self.base[box])).read(inside)  # with its mask, as netCDF4 gives it


def source_of(array: Any) -> Source:
    """Return the kind of source that an array is."""
    if isinstance(array, Source):
        return array
    if isinstance(array, Array):
        return _Stored(array)
    if isinstance(array, np.ndarray):
        return _Memory(array)
    if all(hasattr(array, name) for name in ("shape", "dtype", "__getitem__")):
        return _Foreign(array)
    raise TypeError(f"a view needs an array with shape, dtype and indexing, found {type(array).__name__}")


# -- chunk sizes of views -------------------------------------------------------------------------

_MANY = 100_000  # chunks whose elements are counted one by one


def one_chunk(extent: int) -> Edges:
    """Return an axis that is not cut."""
    return Edges.of_runs([(extent, 1)] if extent else [])


def joined(edges: Iterable[Edges]) -> Edges:
    """Return edges one after another."""
    return Edges.of_runs(chain.from_iterable(part.runs for part in edges))


def declared(source: Any, axis: int, extent: int) -> Edges:
    """Return the chunk sizes that a source declares along an axis, in any of the usual forms; else one chunk."""
    chunks = getattr(source, "read_chunk_sizes", None) or getattr(source, "chunks", None)
    if not isinstance(chunks, tuple | list) or len(chunks) != len(source.shape):
        return one_chunk(extent)
    own = chunks[axis]
    if is_size(own):
        return FixedDimension(int(own), extent).data_runs if own > 0 else one_chunk(extent)
    if isinstance(own, Edges):
        return own
    sizes = [int(n) for n in own if n > 0]  # dask has blocks of no length, and of unknown ones
    return Edges.of(sizes) if sum(sizes) == extent else one_chunk(extent)


def cut(edges: Edges, at: range) -> Edges:
    """Return how many elements of each chunk a range picks, without those that it misses, in the range's order.

    >>> cut(Edges.of([10, 20, 30]), range(5, 40))
    (5, 20, 10)
    >>> cut(Edges.of([10, 20, 30]), range(59, -1, -4))
    (8, 5, 2)
    """
    if not at:
        return one_chunk(0)
    if at.step < 0:
        ascending = cut(edges, at[::-1])
        return ascending.part(range(len(ascending))[::-1])
    return _slice(edges, at) if at.step == 1 else _stride(edges, at)


def _slice(edges: Edges, at: range) -> Edges:
    first, last = edges.chunk_of(at.start), edges.chunk_of(at.stop - 1)
    if first == last:
        return one_chunk(len(at))
    head = edges.offset(first) + edges[first] - at.start
    tail = at.stop - edges.offset(last)
    return Edges.of_runs(chain([(head, 1)], edges.part(range(first + 1, last)).runs, [(tail, 1)]))


def _stride(edges: Edges, at: range) -> Edges:
    first, last = edges.chunk_of(at.start), edges.chunk_of(at[-1])
    if last - first > _MANY:  # about the same, without looking at each of them
        return FixedDimension(max(1, edges[first] // at.step), len(at)).data_runs
    inner = edges.part(range(first, last))
    ends = edges.offset(first) + np.cumsum(np.fromiter(inner, np.int64, len(inner)))
    before = -((at.start - ends) // at.step)  # picked elements before the end of each chunk
    counts = np.diff(before, prepend=0, append=len(at))
    return Edges.of(counts[counts > 0])
