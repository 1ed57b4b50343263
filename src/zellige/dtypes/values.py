"""Values that users write, as arrays of a data type.

Most are of that type already, and cost nothing. For all others `conversion.py` is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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


def as_values(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    """Anything array-like as an array of a type."""
    return as_value(value, dtype).astype(dtype, copy=False)


def boxed(value: Any) -> AnyArray:
    """Any object as a 0-d array that holds it."""
    box = np.empty((), object)
    box[()] = value
    return box
