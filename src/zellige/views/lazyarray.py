"""`LazyArray`: a view that composes selections and reads on demand; `concat` and `stack` of views."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.exceptions import AxisError
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from numpy.lib.mixins import NDArrayOperatorsMixin

from zellige.dtypes.cast import as_values, unmasked
from zellige.errors import BroadcastError, ReadOnlyError
from zellige.grid.edges import Edges, Sizes, as_tuple
from zellige.io.select import FieldNames, Indexer, Selection, split_fields, take_fields
from zellige.types import AnyArray, Indices, Shape
from zellige.views.sources import Place, Source, Transform, cut, joined, one_chunk, source_of


def lazy(array: Any) -> LazyArray:
    """Return a view of all of an array.

    Parameters
    ----------
    array
        An array of zellige, of numpy, or anything with `shape`, `dtype` and indexing.

    Examples
    --------
    >>> import numpy as np
    >>> from zellige.views import lazy
    >>> lazy(np.arange(10))[2:8][::-2][...]
    array([7, 5, 3])
    """
    if isinstance(array, LazyArray):
        return array
    source = source_of(array)
    return LazyArray(source, Transform.whole(source.shape))


def arrays_of(view: LazyArray) -> Iterator[Any]:
    """Yield the arrays that hold a view's elements: its base, or all that were joined."""
    return view._source.arrays()


class LazyArray(NDArrayOperatorsMixin):
    """A view of an array by selections of selections, which reads nothing when it is indexed.

    Indexing is numpy's, with `oindex` and `vindex` for the other ways, and gives another view. `view[...]`
    with the three dots alone, `view.result()` and `np.asarray(view)` read: one read of the source, of only
    the chunks that are hit. `view[index] = value` writes to the source at once. Arithmetic reads, and gives
    numpy arrays. The view's shape stays when the source grows.

    >>> import zellige
    >>> from zellige.views import lazy
    >>> a = zellige.create_array(data=range(100), chunks=[[50, 20, 30]])
    >>> view = lazy(a)[10:90][::-20]
    >>> view
    <zellige.LazyArray (4,) int64 of <zellige.Array / (100,) int64, rectilinear chunks [50, 20, 30]>>
    >>> view[...]
    array([89, 69, 49, 29])
    >>> view[1:3] = 0
    >>> view + 1
    array([90,  1,  1, 30])
    """

    __slots__ = ("_source", "_at", "_fields", "dtype")

    dtype: np.dtype[Any]
    """The type of the elements in memory."""

    def __init__(self, source: Source, at: Transform, fields: tuple[FieldNames, ...] = ()) -> None:
        self._source, self._at, self._fields = source, at, fields
        self.dtype = source.dtype
        for names in fields:
            self.dtype = np.empty(0, self.dtype)[names].dtype

    # -- what it is -------------------------------------------------------------------------------

    @property
    def base(self) -> Any:
        """The array that this is a view of."""
        return self._source.base

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        return self._at.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._at.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self._at.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements in memory."""
        return self.size * self.dtype.itemsize

    @property
    def lazy(self) -> LazyArray:
        """The view itself."""
        return self

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d view")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<zellige.LazyArray {self.shape} {self.dtype} of {self._source.base!r}>"

    # -- its chunks -------------------------------------------------------------------------------

    @property
    def read_chunk_sizes(self) -> tuple[Sizes, ...]:
        """The sizes along each axis of the smallest chunks that can be read alone, as dask writes chunks.

        An axis that a slice picks has the parts of the source's chunks that lie in it; one that positions
        pick, and a new one, is one chunk.

        >>> import zellige
        >>> from zellige.views import lazy
        >>> a = zellige.zeros((100, 6), chunks=[[50, 20, 30], 4])
        >>> lazy(a)[10:90, None, ::-2].read_chunk_sizes
        ((40, 20, 20), (1,), (1, 2))
        """
        return tuple(as_tuple(self._edges(axis)) if n else (0,) for axis, n in enumerate(self.shape))

    @property
    def chunks(self) -> tuple[Sizes, ...]:
        """`read_chunk_sizes`, by the name that dask asks for."""
        return self.read_chunk_sizes

    def _edges(self, axis: int) -> Edges:
        """Return the chunk sizes along one axis; none for an empty one."""
        for number, place in enumerate(self._at.places):
            if isinstance(place.at, range) and place.axes == (axis,):
                return cut(self._source.sizes(number), place.at)
        return one_chunk(self.shape[axis])

    # -- composing --------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        if index is Ellipsis:
            return self.result()
        return self._pick(index)

    def _pick(self, index: Any, pick: Callable[[Transform, Any], Transform] = Transform.pick) -> LazyArray:
        fields = self._fields
        if self.dtype.names is not None:
            index, names = split_fields(index, self.dtype, None)
            if names is not None:
                outer = fields[:-1] if fields and not isinstance(fields[-1], str) else fields
                fields = (*outer, names)
        return LazyArray(self._source, pick(self._at, index), fields)

    @property
    def oindex(self) -> Indexer:
        """Orthogonal indexing: each axis is picked on its own."""
        return self._indexer(Transform.pick_orthogonal)

    @property
    def vindex(self) -> Indexer:
        """Pointwise indexing: one integer array for each axis, or a mask."""
        return self._indexer(Transform.pick_points)

    def _indexer(self, pick: Callable[[Transform, Any], Transform]) -> Indexer:
        return Indexer(lambda i: self._pick(i, pick), lambda i, value: self._pick(i, pick)._write(value))

    @property
    def T(self) -> LazyArray:  # noqa: N802
        """The view with its axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> LazyArray:
        """Return the view with its axes in another order.

        Parameters
        ----------
        axes
            The axes in their new order, one by one or as a tuple; reversed by default.
        """
        given = axes[0] if len(axes) == 1 else axes or None
        order = tuple(reversed(range(self.ndim))) if given is None else normalize_axis_tuple(given, self.ndim)
        if len(order) != self.ndim:
            raise ValueError(f"transpose takes {self.ndim} axes, one for each, found {len(order)}")
        return LazyArray(self._source, self._at.transpose(order), self._fields)

    def __iter__(self) -> Iterator[LazyArray]:
        """Yield the rows along the first axis, as views."""
        if not self.shape:
            raise TypeError("iteration over a 0-d view")
        return (self._pick(row) for row in range(self.shape[0]))

    # -- reading ----------------------------------------------------------------------------------

    def result(self) -> AnyArray:
        """Read the elements into a numpy array; one read of the source."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        found = self._source.read(self._at)
        for names in self._fields:
            found = take_fields(found, names)
        return found

    def _read_into(self, out: AnyArray) -> None:
        """Read into an array of the same shape, which numpy could assign the elements to."""
        if self._fields or out.dtype != self.dtype or not self.size:
            out[...] = self.result()
        else:
            self._source.read_into(self._at, out)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ValueError("a view of an array in a store cannot be turned into a numpy array without a copy")
        found = self.result()
        return found if dtype is None else found.astype(dtype, copy=False)

    def astype(self, dtype: npt.DTypeLike, copy: bool = True) -> AnyArray:
        """Return the elements as a numpy array of another type; dask asks its arrays for this.

        Parameters
        ----------
        dtype
            The type.
        copy
            Without a meaning, since what is read is always new.
        """
        return self.result().astype(dtype, copy=False)  # the result is always fresh

    def _one(self, error: type[Exception]) -> Any:
        if self.size != 1:
            raise error(f"only a view of one element is a single value, this one has {self.size}; index it first")
        return self.result().reshape(())[()]

    def item(self) -> Any:
        """Return the only element, as Python has it."""
        found = self._one(ValueError)
        return found.item() if isinstance(found, np.generic) else found

    def __bool__(self) -> bool:
        return bool(self._one(ValueError))

    def __int__(self) -> int:
        return int(self._one(TypeError))

    def __float__(self) -> float:
        return float(self._one(TypeError))

    def __complex__(self) -> complex:
        return complex(self._one(TypeError))

    def __index__(self) -> int:
        return operator.index(self._one(TypeError))

    def __contains__(self, item: Any) -> bool:
        return item in self.result()

    # -- writing ----------------------------------------------------------------------------------

    def __setitem__(self, index: Any, value: Any) -> None:
        self._pick(index)._write(value)

    def _write(self, value: Any) -> None:
        self._source.check_writable()
        if len(self._fields) > 1:
            raise ValueError(
                f"field {self._fields[-1]!r} lies inside field {self._fields[0]!r}; read that one, change it, "
                "and write it as a whole"
            )
        value = unmasked(value) if hasattr(value, "__array__") else as_values(value, self.dtype)
        values = Selection((), self.shape, self.shape).value_to_work(value)
        if values.size:
            self._source.write(self._at, values, self._fields[0] if self._fields else None)

    # -- arithmetic -------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Do as numpy with what the views hold; a view as `out` is written to, as `view += 1` does."""
        if method == "at":
            return NotImplemented
        out = options.get("out", ())
        options = {name: _read(option) for name, option in options.items()}
        if out:
            options["out"] = tuple(map(_read, out))
        found = getattr(ufunc, method)(*map(_read, inputs), **options)
        if not out:
            return found
        several = found if isinstance(found, tuple) else (found,)
        given = tuple(_written(target, array) for target, array in zip(out, several, strict=True))
        return given if isinstance(found, tuple) else given[0]

    # numpy compares structs by `==` and not by a ufunc.
    def __eq__(self, other: object) -> Any:
        return self.result() == _read(other)

    def __ne__(self, other: object) -> Any:
        return self.result() != _read(other)


def _read(value: Any) -> Any:
    return value.result() if isinstance(value, LazyArray) else value


def _written(target: Any, array: Any) -> Any:
    if not isinstance(target, LazyArray):
        return array
    target._pick(...)._write(array)
    return target


def concat(arrays: Iterable[Any], axis: int = 0) -> LazyArray:
    """Return a view of several arrays one after another along an axis, for reading.

    Parameters
    ----------
    arrays
        Arrays of zellige, views, arrays of numpy, or anything with `shape`, `dtype` and indexing. Their chunks may
        differ; numbers of different types are converted as numpy does.
    axis
        The axis along which they follow one another; the lengths of the others must be equal.

    Examples
    --------
    >>> import zellige
    >>> from zellige.views import concat
    >>> days = [zellige.create_array(data=[[d, d + 1]], chunks=1) for d in range(5)]
    >>> month = concat(days)
    >>> month.shape, month.read_chunk_sizes
    ((5, 2), ((1, 1, 1, 1, 1), (1, 1)))
    >>> month[::-2, 1][...]
    array([5, 3, 1])
    """
    views = _views(arrays)
    if not views[0].ndim:
        raise ValueError("arrays without axes cannot be concatenated; use stack")
    return _join(views, _axis(axis, views[0].ndim))


def stack(arrays: Iterable[Any], axis: int = 0) -> LazyArray:
    """Return a view of several arrays of one shape along a new axis, for reading.

    Parameters
    ----------
    arrays
        The arrays, as for `concat`.
    axis
        Where the new axis is in the result.

    Examples
    --------
    >>> import zellige
    >>> from zellige.views import stack
    >>> a, b = zellige.zeros(3, dtype="int8"), zellige.ones(3, dtype="int8")
    >>> stack([a, b], axis=1)[...]
    array([[0, 1],
           [0, 1],
           [0, 1]], dtype=int8)
    """
    views = _views(arrays)
    place = _axis(axis, views[0].ndim + 1)
    _check_shapes(views, None)
    return _join([view[(*[slice(None)] * place, None)] for view in views], place)


def _axis(axis: int, ndim: int) -> int:
    try:
        return normalize_axis_index(axis, ndim)
    except OverflowError as error:
        raise AxisError(axis, ndim) from error


def _views(arrays: Iterable[Any]) -> list[LazyArray]:
    if not isinstance(arrays, Iterable):
        raise TypeError(f"arrays must be a list of arrays, found {arrays!r}")
    views = []
    for number, array in enumerate(arrays):
        try:
            views.append(lazy(array))
        except TypeError as error:
            raise TypeError(f"array {number}: {error}") from error
    if not views:
        raise ValueError("there are no arrays to join; give at least one")
    return views


def _join(views: list[LazyArray], axis: int) -> LazyArray:
    _check_shapes(views, axis)
    source = _Joined(views, axis, _common_type(views))
    return LazyArray(source, Transform.whole(source.shape))


def _check_shapes(views: Sequence[LazyArray], axis: int | None) -> None:
    """Raise unless all shapes are that of the first, but for one axis."""
    expected = tuple(None if k == axis else n for k, n in enumerate(views[0].shape))
    for number, view in enumerate(views):
        shape = view.shape
        if len(shape) != len(expected) or any(n not in (m, None) for m, n in zip(shape, expected, strict=True)):
            text = ", ".join("any" if n is None else str(n) for n in expected)
            raise BroadcastError(f"array {number} has shape {shape}, expected ({text}) as in array 0")


def _common_type(views: Sequence[LazyArray]) -> np.dtype[Any]:
    first = views[0].dtype
    kinds = dict.fromkeys(view.dtype for view in views)
    if len(kinds) == 1:
        return first
    try:
        if any(kind.kind in "OSTU" or kind.type is np.void for kind in kinds):
            raise TypeError
        return np.result_type(*kinds)
    except TypeError:
        number = next(k for k, view in enumerate(views) if view.dtype != first)
        raise TypeError(
            f"array {number} has type {views[number].dtype}, which has no common type with {first} of array 0; "
            "convert one of them"
        ) from None


class _Joined(Source):
    """Arrays one after another along an axis."""

    __slots__ = ("_views", "_axis", "_starts")

    def __init__(self, views: Sequence[LazyArray], axis: int, dtype: np.dtype[Any]) -> None:
        self._views, self._axis = tuple(views), axis
        self._starts = np.array([0, *accumulate(view.shape[axis] for view in views)], np.int64)
        first = views[0].shape
        super().__init__((*first[:axis], int(self._starts[-1]), *first[axis + 1 :]), dtype)

    def arrays(self) -> Iterator[Any]:
        return chain.from_iterable(map(arrays_of, self._views))

    def __repr__(self) -> str:
        return f"<{len(self._views)} arrays along axis {self._axis}>"

    def read(self, at: Transform) -> AnyArray:
        out = np.empty(at.shape, self.dtype)
        self.read_into(at, out)
        return out

    def read_into(self, at: Transform, out: AnyArray) -> None:
        for number, index in self._hits(at):
            inner = at.pick(index).moved(self._axis, int(self._starts[number]))
            whole = self._views[number]
            view = LazyArray(whole._source, whole._at.compose(inner), whole._fields)
            if any(isinstance(item, np.ndarray) for item in index):
                out[index] = unmasked(view.result())
            else:
                view._read_into(out[index])

    def _hits(self, at: Transform) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the arrays that hold elements of a view, and an index of those elements in the view."""
        place = at.places[self._axis]
        if not isinstance(place.at, range):
            yield from self._points(place, at.shape)
            return
        span, before, done = place.at, [slice(None)] * place.axes[0], 0
        while done < len(span):
            position = span[done]
            number = bisect_right(self._starts, position) - 1  # the last of those that begin here: others are empty
            last = int(self._starts[number + 1]) - 1 if span.step > 0 else int(self._starts[number])
            end = min(len(span), done + (last - position) // span.step + 1)
            yield number, (*before, slice(done, end), ...)
            done = end

    def _points(self, place: Place, shape: Shape) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield for each array that positions hit where in the view they are."""
        numbers: Indices = self._starts.searchsorted(np.ravel(place.at), "right") - 1
        order = np.argsort(numbers, kind="stable")
        bounds = np.diff(numbers[order]).nonzero()[0] + 1
        if not bounds.size:
            yield int(numbers[0]), (...,)
            return
        for group in np.split(order, bounds):
            index: list[Any] = [slice(None)] * len(shape)
            for axis, where in zip(place.axes, np.unravel_index(group, np.shape(place.at)), strict=True):
                index[axis] = where
            yield int(numbers[group[0]]), tuple(index)

    def check_writable(self) -> None:
        # Which array an element comes from is not for a write to find out.
        raise ReadOnlyError("this is a view of several arrays; write to the arrays themselves, or to a copy of it")

    def sizes(self, axis: int) -> Edges:
        """Return edges one after another along the axis of joining; on the others, those of the first array."""
        if axis == self._axis:
            return joined(view._edges(axis) for view in self._views)
        return self._views[0]._edges(axis)
