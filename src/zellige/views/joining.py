"""`concat` and `stack`: several arrays as one, of which a read touches only those that it hits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.exceptions import AxisError
from numpy.lib.array_utils import normalize_axis_index

from zellige.dtypes.cast import unmasked
from zellige.errors import BroadcastError, ReadOnlyError
from zellige.grid.edges import Edges
from zellige.types import AnyArray, Indices, Shape
from zellige.views.lazyarray import LazyArray, arrays_of, lazy
from zellige.views.sizes import joined
from zellige.views.sources import Source
from zellige.views.transforms import Along, Picked, Transform


def concat(arrays: Iterable[Any], axis: int = 0) -> LazyArray:
    """A view of several arrays one after another along an axis, for reading.

    The arrays may be of zellige, views, of numpy, or anything with `shape`, `dtype` and indexing, and their
    chunks may differ. Numbers of different types are converted as numpy does.

    >>> import zellige
    >>> from zellige.views import concat
    >>> days = [zellige.create_array(data=[[d, d + 1]], chunks=1) for d in range(5)]
    >>> month = concat(days)
    >>> month.shape, month.read_chunk_sizes
    ((5, 2), ((1, 1, 1, 1, 1), (1, 1)))
    >>> month[::-2, 1][...]
    array([5, 3, 1])
    """
    pieces = _views(arrays)
    if not pieces[0].ndim:
        raise ValueError("arrays without axes cannot be concatenated; use stack")
    return _join(pieces, _axis(axis, pieces[0].ndim))


def stack(arrays: Iterable[Any], axis: int = 0) -> LazyArray:
    """A view of several arrays of one shape along a new axis, for reading. Arrays: see `concat`.

    >>> import zellige
    >>> from zellige.views import stack
    >>> a, b = zellige.zeros(3, dtype="int8"), zellige.ones(3, dtype="int8")
    >>> stack([a, b], axis=1)[...]
    array([[0, 1],
           [0, 1],
           [0, 1]], dtype=int8)
    """
    pieces = _views(arrays)
    place = _axis(axis, pieces[0].ndim + 1)
    _check_shapes(pieces, None)
    return _join([piece[(*[slice(None)] * place, None)] for piece in pieces], place)


def _axis(axis: int, ndim: int) -> int:
    try:
        return normalize_axis_index(axis, ndim)
    except OverflowError as error:
        raise AxisError(axis, ndim) from error


def _views(arrays: Iterable[Any]) -> list[LazyArray]:
    if not isinstance(arrays, Iterable):
        raise TypeError(f"arrays must be a list of arrays, found {arrays!r}")
    pieces = []
    for number, array in enumerate(arrays):
        try:
            pieces.append(lazy(array))
        except TypeError as error:
            raise TypeError(f"array {number}: {error}") from error
    if not pieces:
        raise ValueError("there are no arrays to join; give at least one")
    return pieces


def _join(pieces: list[LazyArray], axis: int) -> LazyArray:
    _check_shapes(pieces, axis)
    source = Joined(pieces, axis, _common_type(pieces))
    return LazyArray(source, Transform.whole(source.shape))


def _check_shapes(pieces: Sequence[LazyArray], axis: int | None) -> None:
    """All shapes must be that of the first, but for one axis."""
    expected = tuple(None if k == axis else n for k, n in enumerate(pieces[0].shape))
    for number, piece in enumerate(pieces):
        shape = piece.shape
        if len(shape) != len(expected) or any(n not in (m, None) for m, n in zip(shape, expected, strict=True)):
            text = ", ".join("any" if n is None else str(n) for n in expected)
            raise BroadcastError(f"array {number} has shape {shape}, expected ({text}) as in array 0")


def _common_type(pieces: Sequence[LazyArray]) -> np.dtype[Any]:
    first = pieces[0].dtype
    kinds = dict.fromkeys(piece.dtype for piece in pieces)
    if len(kinds) == 1:
        return first
    try:
        if any(kind.kind in "OSTU" or kind.type is np.void for kind in kinds):
            raise TypeError
        return np.result_type(*kinds)
    except TypeError:
        number = next(k for k, piece in enumerate(pieces) if piece.dtype != first)
        raise TypeError(
            f"array {number} has type {pieces[number].dtype}, which has no common type with {first} of array 0; "
            "convert one of them"
        ) from None


class Joined(Source):
    """Arrays one after another along an axis."""

    __slots__ = ("_pieces", "_axis", "_starts")

    def __init__(self, pieces: Sequence[LazyArray], axis: int, dtype: np.dtype[Any]) -> None:
        self._pieces, self._axis = tuple(pieces), axis
        self._starts = np.array([0, *accumulate(piece.shape[axis] for piece in pieces)], np.int64)
        first = pieces[0].shape
        super().__init__((*first[:axis], int(self._starts[-1]), *first[axis + 1 :]), dtype)

    def arrays(self) -> Iterator[Any]:
        """The arrays that hold the elements, also those of views."""
        return chain.from_iterable(map(arrays_of, self._pieces))

    def __repr__(self) -> str:
        return f"<{len(self._pieces)} arrays along axis {self._axis}>"

    def read(self, at: Transform) -> AnyArray:
        """One array, into which each part is read."""
        out = np.empty(at.shape, self.dtype)
        self.read_into(at, out)
        return out

    def read_into(self, at: Transform, out: AnyArray) -> None:
        """Read from those arrays that are hit."""
        for number, index in self._hits(at):
            part = at.pick(index).moved(self._axis, int(self._starts[number]))
            view = self._pieces[number]._narrowed(part)
            if any(isinstance(item, np.ndarray) for item in index):
                out[index] = unmasked(view.result())
            else:
                view._read_into(out[index])

    def _hits(self, at: Transform) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The arrays that hold elements of a view, and an index of those elements in the view."""
        place = at.places[self._axis]
        if isinstance(place, int):
            yield self._array_of(place), (...,)
        elif isinstance(place, Along):
            for number, part in self._parts(place.at):
                yield number, (*[slice(None)] * place.axis, part, ...)
        else:
            yield from self._groups(place, at.shape)

    def _array_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1  # the last of those that begin here: others are empty

    def _parts(self, at: range) -> Iterator[tuple[int, slice]]:
        """For each array that a range hits: which part of the range."""
        done = 0
        while done < len(at):
            position = at[done]
            number = self._array_of(position)
            last = int(self._starts[number + 1]) - 1 if at.step > 0 else int(self._starts[number])
            end = min(len(at), done + (last - position) // at.step + 1)
            yield number, slice(done, end)
            done = end

    def _groups(self, place: Picked, shape: Shape) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """For each array that positions hit: where in the view."""
        numbers: Indices = self._starts.searchsorted(place.positions.ravel(), "right") - 1
        order = np.argsort(numbers, kind="stable")
        bounds = np.diff(numbers[order]).nonzero()[0] + 1
        if not bounds.size:
            yield int(numbers[0]), (...,)
            return
        for group in np.split(order, bounds):
            index: list[Any] = [slice(None)] * len(shape)
            for axis, where in zip(place.axes, np.unravel_index(group, place.positions.shape), strict=True):
                index[axis] = where
            yield int(numbers[group[0]]), tuple(index)

    def check_writable(self) -> None:
        """Raise: which array an element comes from is not for a write to find out."""
        raise ReadOnlyError("this is a view of several arrays; write to the arrays themselves, or to a copy of it")

    def sizes(self, axis: int) -> Edges:
        """Edges one after another along the axis of joining; on the others, those of the first array."""
        if axis == self._axis:
            return joined(piece._edges(axis) for piece in self._pieces)
        return self._pieces[0]._edges(axis)
