"""Whether values keep their meaning as another type: the checks behind `casting="same_value"`.

What is read afterwards equals what was given. There is one exception, which everybody expects: a finite number may be
rounded to the nearest number of a float type, and a very small one to zero. It is a loss if

* a number for integers has a fraction, is NaN or infinite, or lies outside their range; booleans take 0 and 1;
* a finite number becomes infinite, NaN, or the greatest of a type that has neither (`float4_e2m1fn`), or a NaN or an
  infinity becomes something else; the parts of complex numbers are looked at one by one;
* a time is no whole number of the type's units, or lies outside their range;
* text or bytes are cut. Zeros at the end of bytes are padding to numpy, and to leave them out is no loss.

Types that hold every value of another are never checked. Numbers are checked in pieces that stay in the processor's
cache, without a copy of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

import numpy as np

from zellige.errors import LossyCastError
from zellige.types import AnyArray

_PIECE = 1 << 15
"""Elements that are looked at together."""


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether a type is a number or a boolean, of numpy or of ml_dtypes."""
    return dtype.kind in "biufc" or dtype.isbuiltin == 2


def is_complex(dtype: np.dtype[Any]) -> bool:
    """Whether a type is a complex number, of numpy or of ml_dtypes."""
    return dtype.kind == "c" or (dtype.isbuiltin == 2 and "complex" in dtype.name)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a type is an integer or a boolean, of numpy or of ml_dtypes."""
    return dtype.kind in "biu" or (dtype.isbuiltin == 2 and dtype.name.startswith(("int", "uint")))


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.isbuiltin == 2:
        bits = int(dtype.name.lstrip("uint"))
        return (0, 2**bits - 1) if dtype.name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def refuse(array: AnyArray, at: tuple[int, ...], dtype: np.dtype[Any]) -> LossyCastError:
    """The error for the value at a place."""
    value = array[at]
    kind = type(value).__name__ if array.dtype.kind == "O" else array.dtype
    fact = f"{kind} value {str(value)[:80]} at {at} does not fit an array of {dtype}"
    return LossyCastError(f"{fact}; convert the values, or pass casting='unsafe'", index=at, fact=fact)


def refuse_any(array: AnyArray, lost: AnyArray, dtype: np.dtype[Any]) -> None:
    """Raise for the first value that is lost."""
    if lost.any():
        raise refuse(array, _place(array, int(lost.argmax())), dtype)


def _place(array: AnyArray, number: int) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(number, array.shape))


# -- numbers --------------------------------------------------------------------------------------


def native(array: AnyArray) -> AnyArray:
    """Numbers in a type of numpy's own, which holds them all; ml_dtypes has no casts between some of its types."""
    if array.dtype.isbuiltin != 2:
        return array
    wide = np.complex64 if is_complex(array.dtype) else np.int8 if is_integer(array.dtype) else np.float32
    return array.astype(wide)


def check_numbers(array: AnyArray, dtype: np.dtype[Any]) -> None:
    """Raise if one of these numbers, in a type of numpy, is another one as `dtype`."""
    # ml_dtypes says of many of its types that they hold what they do not, as `int8` in `float4_e2m1fn`.
    if not array.size or (dtype.isbuiltin != 2 and np.can_cast(array.dtype, dtype, "safe")):
        return
    if not is_integer(dtype):
        _check_pieces(array, dtype, _lost_as_complex if is_complex(dtype) else _lost_as_float)
    elif not is_integer(array.dtype):
        _check_pieces(array, dtype, _lost_as_integer)
    else:
        low, high = limits(dtype)
        if int(array.min()) < low or int(array.max()) > high:
            refuse_any(array, (array < low) | (array > high), dtype)


def _check_pieces(array: AnyArray, dtype: np.dtype[Any], lost: Callable[[AnyArray, np.dtype[Any]], AnyArray]) -> None:
    with np.errstate(all="ignore"):
        if not any(lost(piece, dtype).any() for piece in _pieces(array, "K")):
            return
        start = 0
        for piece in _pieces(array, "C"):
            found = lost(piece, dtype)
            if found.any():
                raise refuse(array, _place(array, start + int(found.argmax())), dtype)
            start += piece.size


def _pieces(array: AnyArray, order: Literal["C", "K"]) -> Iterator[AnyArray]:
    """All elements in flat pieces, in C order or as they lie in memory, which is faster."""
    if array.size <= _PIECE:
        yield array.ravel(order)
        return
    pieces: Any = np.nditer(array, flags=["external_loop", "buffered"], order=order, buffersize=_PIECE)
    for found in pieces:  # memory that is contiguous comes as one
        yield from (found[k : k + _PIECE] for k in range(0, found.size, _PIECE))


def _lost_as_integer(piece: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    low, high = limits(dtype)
    wide = piece.astype(np.promote_types(piece.dtype, np.float64), copy=False)
    # `high + 1` is a power of two, which a double holds exactly, and `high` may not be.
    fits: AnyArray = (wide >= low) & (wide < float(high + 1)) & (np.trunc(wide) == wide)
    return ~fits


def _lost_as_float(piece: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    found, end = piece.astype(dtype), _end(dtype)
    if end == math.inf and np.isfinite(found).all():
        return _NONE
    return _lost(piece.astype(np.promote_types(piece.dtype, np.float64), copy=False), found, end)


def _lost_as_complex(piece: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    found = piece.astype(dtype)
    if np.isfinite(found).all():
        return _NONE
    wide = piece.astype(np.promote_types(piece.dtype, np.complex128))
    parts = _lost(wide.view(wide.real.dtype), found.astype(wide.dtype).view(wide.real.dtype), math.inf)
    return parts[0::2] | parts[1::2]


_NONE: AnyArray = np.zeros(0, bool)


def _lost(wide: AnyArray, found: AnyArray, end: float) -> AnyArray:
    """Where floats are not what they were, but for rounding."""
    finite = np.isfinite(wide)
    same = (np.isnan(wide) & np.isnan(found)) | (np.isinf(wide) & (found.astype(wide.dtype) == wide))
    return ~np.where(finite, np.isfinite(found) & (np.abs(wide) < end), same)


@cache
def _end(dtype: np.dtype[Any]) -> float:
    """Where numbers begin that a type takes for its greatest one; infinite if the type has something beyond that."""
    if dtype.isbuiltin != 2 or not np.isfinite(np.array(math.inf).astype(dtype)):
        return math.inf
    codes = np.arange(1 << 8, dtype=np.uint8).view(dtype).astype(np.float64)
    below, greatest = np.unique(codes)[-2:]
    return float(greatest + (greatest - below) / 2)


# -- objects of Python ----------------------------------------------------------------------------


def plain_numbers(value: Any, array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """What numpy made of Python's numbers, unless it rounded integers that an integer type may hold."""
    rounded = array.dtype.kind == "f" and is_integer(dtype) and not (np.abs(array) < 2.0**53).all()
    return np.array(value, object) if rounded else array


def check_objects(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Numbers of Python that numpy has no type for, such as fractions and integers of any length, as `dtype`."""
    if is_integer(dtype):
        low, high = limits(dtype)
        _refuse_items(array, dtype, lambda item: int(item) == item and low <= item <= high)
        whole = np.array([int(item) for item in array.flat], np.uint64 if high >= 2**63 else np.int64)
        return whole.astype(dtype).reshape(array.shape)
    kind = complex if is_complex(dtype) else float
    try:
        wide = array.astype(kind)
    except OverflowError:
        _refuse_items(array, dtype, lambda item: kind(item) is not None)
        raise
    check_numbers(wide, dtype)
    return wide.astype(dtype)


def _refuse_items(array: AnyArray, dtype: np.dtype[Any], fits: Callable[[Any], bool]) -> None:
    """Raise for the first object that does not fit, or cannot be asked: `int` refuses NaN and infinities."""
    for number, item in enumerate(array.flat):
        try:
            good = fits(item)
        except (ValueError, OverflowError):
            good = False
        if not good:
            raise refuse(array, _place(array, number), dtype)


# -- times ----------------------------------------------------------------------------------------


def check_times(array: AnyArray, dtype: np.dtype[Any]) -> None:
    """Raise if one of these times is another one in the units of `dtype`.

    numpy lets those wrap around that do not fit. Back in their own units they are not what they were.
    """
    if array.dtype.kind in "iu":
        low, high = limits(np.dtype(np.int64))
        refuse_any(array, (array < low) | (array > high), dtype)
    else:
        refuse_any(array, _counts(array.astype(dtype), array.dtype) != _counts(array, array.dtype), dtype)


def check_parsed(array: AnyArray, dtype: np.dtype[Any]) -> None:
    """Raise if one of these dates, as text or objects, is another one in the units of `dtype`.

    They are compared in seconds, which all of them fit, and in the finest unit that any of them needs. In that one
    they may wrap around, but both sides alike, by more than a second.
    """
    if array.dtype.kind == "T":
        array = array.astype(object)  # numpy finds no unit for these strings
    found = array.astype(dtype)
    finest = array.astype(f"{dtype.kind}8").dtype
    lost = np.zeros(array.shape, bool)
    for unit in (np.dtype(f"{dtype.kind}8[s]"), finest):
        lost |= _counts(array, unit) != _counts(found, unit)
    refuse_any(array, lost, dtype)


def _counts(array: AnyArray, unit: np.dtype[Any]) -> AnyArray:
    return array.astype(unit.newbyteorder("=")).view(np.int64)


# -- text and bytes -------------------------------------------------------------------------------


def check_lengths(array: AnyArray, lengths: AnyArray, dtype: np.dtype[Any], most: int, unit: str) -> None:
    """Raise if an element is longer than the type."""
    if lengths.max(initial=0) > most:
        at = _place(array, int((lengths > most).argmax()))
        fact = f"an array of {dtype} holds at most {most} {unit} in each element, found {lengths[at]} at {at}"
        raise LossyCastError(f"{fact}; shorten them, or pass casting='unsafe'", index=at, fact=fact)
