"""Values that users write, as arrays of a data type; what a type cannot mean is refused.

Numbers follow numpy's rules for assignment. For text, bytes and times those rules would turn anything into
anything: numbers into their digits, booleans into seconds after 1970. Here kinds must match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zellige.errors import LossyCastError
from zellige.types import AnyArray, Casting


def as_values(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    """Anything array-like as an array of a type that is not a plain number."""
    convert = _CONVERT.get(dtype.kind)
    if convert is not None:
        return convert(_as_array(value), dtype)
    array = value if isinstance(value, np.ndarray) else np.asarray(value, dtype)
    return array.astype(dtype, copy=False)


def _as_array(value: Any) -> AnyArray:
    """Arrays as they are; lists as arrays of objects, so that numpy neither pads nor cuts what is in them."""
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        return np.asarray(value)
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    return np.array(value, object)


def _refused(array: AnyArray, dtype: np.dtype[Any], wanted: str) -> TypeError:
    if array.dtype.kind == "O":
        odd = {type(item).__name__ for item in array.flat} - {"str", "bytes"} or {"str", "bytes"}
        found = f"objects of type {', '.join(sorted(odd))}"
    else:
        found = f"values of type {array.dtype}"
    return TypeError(f"an array of {dtype} takes {wanted}, not {found}; convert them first")


def _strings(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    if array.dtype.kind == "O":
        known = all(isinstance(item, str) for item in array.flat)
    elif array.dtype.kind == "T":
        # Arrays with missing values have a type of their own, which would turn them into text.
        known = array.dtype == dtype or not _missing(array).any()
    else:
        known = array.dtype.kind == "U"
    if not known:
        raise _refused(array, dtype, "strings")
    return array.astype(dtype, copy=False)


def _missing(array: AnyArray) -> AnyArray:
    marker = getattr(array.dtype, "na_object", "")
    return np.array([item is marker or item != item for item in array.ravel().tolist()], bool)


_STRING = np.dtypes.StringDType()


def _fixed_text(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    text = array if array.dtype.kind == "U" else _strings(array, _STRING)
    return _fitting(text, dtype, dtype.itemsize // 4, "characters")


def _fixed_bytes(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    if array.dtype.kind == "O" and all(isinstance(item, bytes) for item in array.flat):
        longest = max(map(len, array.flat), default=0)
        array = array.astype(f"S{max(longest, 1)}")
    if array.dtype.kind != "S":
        raise _refused(array, dtype, "bytes")
    return _fitting(array, dtype, dtype.itemsize, "bytes")


def _fitting(array: AnyArray, dtype: np.dtype[Any], most: int, unit: str) -> AnyArray:
    """Elements that are not cut; numpy would cut them without a word."""
    longest = int(np.strings.str_len(array).max(initial=0))
    if longest > most:
        raise ValueError(f"an array of {dtype} holds at most {most} {unit} in each element, found {longest}")
    return array.astype(dtype, copy=False)


def _objects(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Bytes, or any objects at all where the type says so."""
    return array.astype(dtype, copy=False) if dtype.metadata else _blobs(array, dtype)


def _blobs(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    if array.dtype.kind == "S":
        items = array.ravel().tolist()
    elif array.dtype.kind == "V" and array.dtype.type is np.void:
        items = [item.tobytes() for item in array.ravel()]
    elif array.dtype.kind == "O" and all(isinstance(item, bytes | bytearray | memoryview) for item in array.flat):
        items = [bytes(item) for item in array.flat]
    else:
        raise _refused(array, dtype, "bytes")
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = items
    return found


def _times(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    known = dtype.kind + ("iuUT" if dtype.kind == "M" else "iu")
    if array.dtype.kind == "O":  # dates of Python; numpy refuses what is not one, except for these
        known += "O" * (not any(isinstance(item, bool | float) for item in array.flat))
    if array.dtype.kind not in known:
        raise _refused(array, dtype, "dates and times" if dtype.kind == "M" else "spans of time")
    return array.astype(dtype, copy=False)


_CONVERT: dict[str, Callable[[AnyArray, np.dtype[Any]], AnyArray]] = {
    "T": _strings,
    "O": _objects,
    "U": _fixed_text,
    "S": _fixed_bytes,
    "M": _times,
    "m": _times,
}


def boxed(value: Any) -> AnyArray:
    """Any object as a 0-d array that holds it."""
    box = np.empty((), object)
    box[()] = value
    return box


def as_value(value: Any, dtype: np.dtype[Any], casting: Casting = "same_value") -> AnyArray:
    """A value as an array; numbers of another type are converted chunk by chunk as they are written.

    Numbers that the type cannot hold raise `LossyCastError`, unless `casting` is "unsafe".
    """
    if dtype.kind not in "biufc":
        return as_values(value, dtype)
    if not isinstance(value, np.ndarray | np.generic) and not hasattr(value, "__array__"):
        plain = np.asarray(value)
        if plain.dtype.kind not in "biufc":
            return as_values(value, dtype)
        value = plain
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        return as_values(array, dtype)
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"{array.dtype} values do not fit an array of {dtype}; write .real or .imag")
    if casting != "unsafe" and array.dtype != dtype and not np.can_cast(array.dtype, dtype, "safe"):
        _check_fits(array, dtype)
    return array


def _check_fits(array: AnyArray, dtype: np.dtype[Any]) -> None:
    """Raise if a number would become another one. To be rounded is no loss for a float, to become infinite is."""
    if not array.size:
        return
    if dtype.kind in "fc":
        with np.errstate(all="ignore"):
            lost = np.isfinite(array) & ~np.isfinite(array.astype(dtype))
    else:
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if array.dtype.kind in "bui":
            if low <= int(array.min()) and int(array.max()) <= high:
                return
            lost = (array < low) | (array > high)
        else:
            # `high + 1` is a power of two, which a double holds exactly, and a half does not.
            wide = array.astype(np.promote_types(array.dtype, np.float64))
            lost = ~((wide >= low) & (wide < float(high + 1)) & (np.trunc(wide) == wide))
    if lost.any():
        at = tuple(int(k) for k in np.argwhere(lost)[0])
        raise LossyCastError(
            f"{array.dtype} value {array[at]!s} at {at} does not fit an array of {dtype}; "
            "convert the values, or pass casting='unsafe'",
            index=at,
        )
