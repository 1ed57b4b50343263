"""Values that users write, as arrays of a data type.

Most are of that type already, and cost nothing. For all others `conversion.py` is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from zellige.errors import MaskedValueError
from zellige.types import AnyArray, Casting


def as_value(value: Any, dtype: np.dtype[Any], casting: Casting = "same_value") -> AnyArray:
    """A value as an array; numbers of another type are converted chunk by chunk as they are written.

    Values that the type cannot hold raise `LossyCastError`, unless `casting` is "unsafe". To be rounded to the
    nearest number of a float type is no loss, to become infinite is; `fitting.py` has all the rules.
    """
    if type(value) is np.ndarray and value.dtype == dtype and dtype.kind != "O":
        return value
    from zellige.dtypes.conversion import convert

    return convert(value, dtype, casting)


def unmasked(value: Any) -> Any:
    """Anything with `__array__` as a plain array of numpy, other values as they are; raises if an element is masked.

    numpy drops masks when it assigns, and would store what lies under them.
    """
    if isinstance(value, list | tuple):
        if _holds_masked(value):
            raise MaskedValueError(f"a list holds masked elements, which {_REMEDY}")
        return value
    if not isinstance(value, np.ndarray):
        if not hasattr(value, "__array__"):
            return value
        # The arrays of dask drop masks when they are turned into those of numpy.
        value = np.asanyarray(value.compute() if hasattr(value, "__dask_graph__") else value)
    masked = _where_masked(value)
    if masked is not None and masked.any():
        at = tuple(int(k) for k in np.unravel_index(int(masked.argmax()), masked.shape))
        raise MaskedValueError(
            f"{int(masked.sum())} of {masked.size} elements are masked, the first at {at}, which {_REMEDY}", index=at
        )
    return np.asarray(value)


_REMEDY = "an array cannot store; write x.filled(a.fill_value), or x.data to store what lies under the mask"


def _where_masked(array: AnyArray) -> AnyArray | None:
    """Where the elements of an array are masked; None if it has no mask."""
    if type(array) is np.ndarray or "numpy.ma" not in sys.modules or not isinstance(array, np.ma.MaskedArray):
        return None
    return _joined(np.asarray(array.mask), array.ndim)


def _joined(mask: AnyArray, rank: int) -> AnyArray:
    """A mask of so many axes; that of structs is set where one of their fields is masked."""
    if mask.dtype.names is not None:
        fields = [_joined(mask[name], rank) for name in mask.dtype.names]
        return np.asarray(np.logical_or.reduce(fields), bool)
    return np.asarray(mask.any(axis=tuple(range(rank, mask.ndim))))


def _holds_masked(items: Sequence[Any]) -> bool:
    """Whether a masked element is somewhere in nested lists."""
    if not any(issubclass(kind, list | tuple | np.ndarray) for kind in {*map(type, items)}):
        return False
    masks = [_where_masked(item) for item in items if isinstance(item, np.ndarray)]
    nested = [item for item in items if isinstance(item, list | tuple)]
    return any(mask is not None and mask.any() for mask in masks) or any(map(_holds_masked, nested))


def as_values(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    """Anything array-like as an array of a type."""
    return as_value(value, dtype).astype(dtype, copy=False)


def boxed(value: Any) -> AnyArray:
    """Any object as a 0-d array that holds it."""
    box = np.empty((), object)
    box[()] = value
    return box
