"""`LazyArray`: a view that composes selections and reads when it is told to."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.mixins import NDArrayOperatorsMixin

from zellige.dtypes.cast import as_values, unmasked
from zellige.grid.edges import Edges, Sizes, as_tuple
from zellige.io.select import FieldNames, Indexer, Selection, split_fields
from zellige.types import AnyArray, Shape
from zellige.views.sizes import cut, one_chunk
from zellige.views.sources import Source, source_of
from zellige.views.transforms import Along, Transform


def lazy(array: Any) -> LazyArray:
    """A view of all of an array: of zellige, of numpy, or anything with `shape`, `dtype` and indexing.

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
    """The arrays that hold a view's elements: its base, or all that were joined."""
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
        """The sizes along each axis of the smallest pieces that can be read alone, as dask writes chunks.

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
        """The chunk sizes along one axis; none for an empty one."""
        for number, place in enumerate(self._at.places):
            if isinstance(place, Along) and place.axis == axis:
                return cut(self._source.sizes(number), place.at)
        return one_chunk(self.shape[axis])

    # -- composing --------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        if index is Ellipsis:
            return self.result()
        return self._pick(index)

    def _pick(self, index: Any) -> LazyArray:
        return self._compose(index, Transform.pick)

    def _compose(self, index: Any, pick: Callable[[Transform, Any], Transform]) -> LazyArray:
        fields = self._fields
        if self.dtype.names is not None:
            index, names = split_fields(index, self.dtype, None)
            if names is not None:
                outer = fields[:-1] if fields and not isinstance(fields[-1], str) else fields
                fields = (*outer, names)
        return LazyArray(self._source, pick(self._at, index), fields)

    def _narrowed(self, inner: Transform) -> LazyArray:
        """The elements of this view that a transform picks."""
        return LazyArray(self._source, self._at.compose(inner), self._fields)

    @property
    def oindex(self) -> Indexer:
        """Orthogonal indexing: each axis is picked on its own."""
        pick = Transform.pick_orthogonal
        return Indexer(lambda i: self._compose(i, pick), lambda i, value: self._compose(i, pick)._write(value))

    @property
    def vindex(self) -> Indexer:
        """Pointwise indexing: one integer array for each axis, or a mask."""
        pick = Transform.pick_points
        return Indexer(lambda i: self._compose(i, pick), lambda i, value: self._compose(i, pick)._write(value))

    @property
    def T(self) -> LazyArray:  # noqa: N802
        """The view with its axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> LazyArray:
        """The view with its axes in another order; reversed by default."""
        given = axes[0] if len(axes) == 1 else axes or None
        order = tuple(reversed(range(self.ndim))) if given is None else normalize_axis_tuple(given, self.ndim)
        if len(order) != self.ndim:
            raise ValueError(f"transpose takes {self.ndim} axes, one for each, found {len(order)}")
        return LazyArray(self._source, self._at.transpose(order), self._fields)

    def __iter__(self) -> Iterator[LazyArray]:
        """The rows along the first axis, as views."""
        if not self.shape:
            raise TypeError("iteration over a 0-d view")
        return (self._pick(row) for row in range(self.shape[0]))

    # -- reading ----------------------------------------------------------------------------------

    def result(self) -> AnyArray:
        """The elements as a numpy array; one read of the source."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        return self._of_fields(self._source.read(self._at))

    def _of_fields(self, found: AnyArray) -> AnyArray:
        for names in self._fields:
            found = found[names]
            if isinstance(names, str):
                found = found.copy(order="K")  # without the memory of the other fields
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
        """The elements as a numpy array of another type; dask asks its arrays for this."""
        return self.result().astype(dtype, copy=False)  # what was read is nobody else's

    def _one(self, error: type[Exception]) -> Any:
        if self.size != 1:
            raise error(f"only a view of one element is a single value, this one has {self.size}; index it first")
        return self.result().reshape(())[()]

    def item(self) -> Any:
        """The only element, as Python has it."""
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
        """Numpy's result for what the views hold; a view as `out` is written to, as `view += 1` does."""
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

    __hash__ = None  # type: ignore[assignment]


def _read(value: Any) -> Any:
    return value.result() if isinstance(value, LazyArray) else value


def _written(target: Any, array: Any) -> Any:
    if not isinstance(target, LazyArray):
        return array
    target._pick(...)._write(array)
    return target
