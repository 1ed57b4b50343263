"""Results in an array of the caller, `out=`: what it may be, and values that are read into another type.

The rule of writing applies to reading: a value that the type of `out` cannot hold is refused before anything lands
there, unless `casting` is "unsafe".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zellige.dtypes.conversion import convert
from zellige.dtypes.fitting import is_number
from zellige.errors import BroadcastError, LossyCastError, ReadOnlyError
from zellige.types import AnyArray, Casting, Shape


def check_output(out: Any, shape: Shape, dtype: np.dtype[Any], casting: Casting) -> None:
    """Raise for what values of a shape and a type cannot be read into, whatever they are."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a numpy array of shape {shape}, found {type(out).__name__}")
    if out.shape != shape:
        raise BroadcastError(f"out has shape {out.shape}, the selection has shape {shape}")
    if not out.flags.writeable:
        raise ReadOnlyError(
            f"out is read-only; pass an array that can be written, as np.empty({shape}, {str(dtype)!r})"
        )
    if out.dtype != dtype and out.dtype != object:
        try:
            convert(np.empty(0, dtype), out.dtype, casting)
        except TypeError as error:
            raise TypeError(f"cannot read into out: {error}") from error


def direct_output(out: AnyArray, dtype: np.dtype[Any]) -> AnyArray | None:
    """The memory of an array, if values of a type can be read into it without being looked at; None otherwise."""
    held = out.dtype == dtype or (
        is_number(dtype)
        and dtype.isbuiltin != 2  # ml_dtypes says of types that they hold what they do not
        and out.dtype.isbuiltin != 2
        and np.can_cast(dtype, out.dtype, "safe")
        and out.dtype != object
    )
    return None if not held or isinstance(out, np.ma.MaskedArray) else out.view(np.ndarray)


def fill_output(found: Any, out: AnyArray, casting: Casting) -> None:
    """Put values into an array of any type."""
    values: Any = np.asarray(found)
    if out.dtype not in (values.dtype, object):
        try:
            values = convert(values, out.dtype, casting)
        except LossyCastError as error:
            raise LossyCastError(
                f"cannot read into out: {error.fact}; pass an array of {values.dtype}, or open the array with "
                "config={'casting': 'unsafe'}",
                index=error.index,
                fact=error.fact,
            ) from error
    with np.errstate(all="ignore"):
        out[...] = values
