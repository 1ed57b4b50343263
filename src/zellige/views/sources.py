"""What views are views of: stored arrays, numpy arrays, and anything else that has a shape and can be indexed.

Each kind reads a transform in one go, and touches only what it must.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from zellige.dtypes.cast import unmasked
from zellige.errors import BoundsCheckError, ReadOnlyError
from zellige.grid.edges import EXPANDED, Edges
from zellige.types import AnyArray, Shape
from zellige.views.sizes import declared
from zellige.views.transforms import Transform

if TYPE_CHECKING:
    from zellige.grid.edges import LazyTuple
    from zellige.grid.grid import ChunkGrid
    from zellige.io.select import FieldNames


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
        """The arrays that hold the elements."""
        yield self.base

    @abstractmethod
    def read(self, at: Transform) -> AnyArray:
        """The elements, in memory that belongs to nobody else."""

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
        """The sizes of the chunks along an axis."""


class _Wrapped(Source):
    """One array."""

    __slots__ = ("_base",)

    def __init__(self, base: Any) -> None:
        super().__init__(tuple(map(operator.index, base.shape)), np.dtype(base.dtype))
        self._base = base

    @property
    def base(self) -> Any:
        """The array itself."""
        return self._base

    def check_writable(self) -> None:
        """Raise, unless the kind of array is known to take what a view writes."""
        raise ReadOnlyError(f"a view of {type(self._base).__name__} is for reading only; write to the array itself")

    def sizes(self, axis: int) -> Edges:
        """The sizes of the chunks along an axis."""
        self._check_shape()
        return declared(self._base, axis, self.shape[axis])

    def _check_shape(self) -> None:
        """Slices would be cut short if the array had become shorter."""
        now = tuple(self._base.shape)
        if now != self.shape and (len(now) != len(self.shape) or any(map(operator.lt, now, self.shape))):
            raise BoundsCheckError(
                f"the array had shape {self.shape} when the view was made, now {now}; make a new view"
            )


@runtime_checkable
class StoredArray(Protocol):
    """What is needed of `zellige.Array`, which is defined above this room."""

    grid: ChunkGrid

    def _read_runs(self, axis: int) -> LazyTuple: ...

    get_basic_selection: Callable[..., Any]
    get_orthogonal_selection: Callable[..., Any]
    set_basic_selection: Callable[..., None]
    set_orthogonal_selection: Callable[..., None]


class Stored(_Wrapped):
    """An array of zellige, which takes every index at once."""

    __slots__ = ()

    _base: StoredArray

    def sizes(self, axis: int) -> Edges:
        """The sizes of the chunks along an axis; of shards, where their inner chunks are too many to list."""
        self._check_shape()
        runs = self._base._read_runs(axis)
        if isinstance(runs, Edges):
            return runs
        return Edges.of(runs) if len(runs) <= EXPANDED else self._base.grid.axes[axis].data_runs

    def read(self, at: Transform) -> AnyArray:
        """One read of the array."""
        self._check_shape()
        if at.is_orthogonal:
            index, order = at.orthogonal_index()
            return at.to_view(self._base.get_orthogonal_selection(index), order)
        index, order = at.index()
        return at.to_view(self._base.get_basic_selection(index), order)

    def read_into(self, at: Transform, out: AnyArray) -> None:
        """One read of the array, straight into its place unless elements repeat."""
        self._check_shape()
        index, order = at.orthogonal_index() if at.is_orthogonal else at.index()
        if any(n > 1 for axis, n in enumerate(at.shape) if axis not in order):
            out[...] = self.read(at)
            return
        get = self._base.get_orthogonal_selection if at.is_orthogonal else self._base.get_basic_selection
        get(index, out=at.to_source(out, order))

    def check_writable(self) -> None:
        """Raise for an array that is opened for reading only."""
        if getattr(self._base, "read_only", False):
            raise ReadOnlyError("the view's array was opened for reading only; open it with mode='r+' to write")

    def write(self, at: Transform, values: AnyArray, fields: FieldNames | None) -> None:
        """One write to the array."""
        self._check_shape()
        if at.is_orthogonal:
            index, order = at.orthogonal_index()
            self._base.set_orthogonal_selection(index, at.to_source(values, order), fields=fields)
        else:
            index, order = at.index()
            self._base.set_basic_selection(index, at.to_source(values, order), fields=fields)


class Memory(_Wrapped):
    """An array of numpy."""

    __slots__ = ()

    def _view(self, at: Transform) -> AnyArray:
        index, order = at.index()
        return at.to_view(self._base[index], order)

    def read(self, at: Transform) -> AnyArray:
        """A copy, even where numpy gives a view."""
        return self._view(at).copy()

    def read_into(self, at: Transform, out: AnyArray) -> None:
        """Copied once."""
        out[...] = unmasked(self._view(at))

    def check_writable(self) -> None:
        """Raise for an array that numpy does not write to."""
        if not self._base.flags.writeable:
            raise ReadOnlyError("the view's numpy array is read-only; write to a copy of it")

    def write(self, at: Transform, values: AnyArray, fields: FieldNames | None) -> None:
        """By numpy."""
        index, order = at.index()
        target = self._base if fields is None else self._base[fields]
        target[index] = at.to_source(values, order)


class Foreign(_Wrapped):
    """Anything else: it is asked for ascending slices only, and the rest is done on what they hold."""

    __slots__ = ()

    def read(self, at: Transform) -> AnyArray:
        """One read of the slices that hold everything."""
        self._check_shape()
        box, inside = at.box()
        return Memory(np.asanyarray(self._base[box])).read(inside)  # with its mask, as netCDF4 gives it


def source_of(array: Any) -> Source:
    """The kind of source that an array is."""
    if isinstance(array, Source):
        return array
    if isinstance(array, StoredArray):
        return Stored(array)
    if isinstance(array, np.ndarray):
        return Memory(array)
    if all(hasattr(array, name) for name in ("shape", "dtype", "__getitem__")):
        return Foreign(array)
    raise TypeError(f"a view needs an array with shape, dtype and indexing, found {type(array).__name__}")
