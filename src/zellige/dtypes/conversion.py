"""Values of one type as another, kind by kind; what a type cannot mean is refused.

numpy's rules for assignment turn anything into anything: numbers into their digits, booleans into seconds after 1970,
300 into 44. Here kinds must match, and values must fit (`fitting.py` says when they do), unless `casting` is "unsafe":
then values that do not fit are wrapped around or cut, as numpy does it.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from zellige.dtypes import fitting
from zellige.dtypes.fitting import is_number
from zellige.dtypes.values import unmasked
from zellige.errors import LossyCastError
from zellige.types import AnyArray, Casting, Shape


def convert(value: Any, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    """A value as an array of a type; numbers that numpy can cast stay as they are, once they are checked."""
    value = unmasked(value)
    if is_number(dtype):
        return _numbers(value, dtype, casting)
    if dtype.names is not None:
        return _structs(value, dtype, casting)
    return _CONVERT[dtype.kind](_as_array(value), dtype, casting)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__")


def _as_array(value: Any) -> AnyArray:
    """Arrays as they are; lists as arrays of objects, so that numpy neither pads nor cuts what is in them."""
    if _is_array(value):
        return np.asarray(value)
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    return np.array(value, object)


def _objects_of(items: list[Any], shape: Shape) -> AnyArray:
    found = np.empty(shape, object)
    found.reshape(-1)[:] = items
    return found


def _refused(array: AnyArray, dtype: np.dtype[Any], wanted: str, *usual: str) -> TypeError:
    if array.dtype.kind == "O":
        odd = {type(item).__name__ for item in array.flat} - set(usual) or set(usual)
        found = f"objects of type {', '.join(sorted(odd))}"
    else:
        found = f"values of type {array.dtype}"
    return TypeError(f"an array of {dtype} takes {wanted}, not {found}; convert them first")


# -- numbers --------------------------------------------------------------------------------------


def _numbers(value: Any, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    array = np.asarray(value)
    if not _is_array(value):
        array = fitting.plain_numbers(value, array, dtype)
    if array.dtype.kind in "OUTS":
        array = _number_objects(array.astype(object, copy=False), dtype, casting)
    elif not is_number(array.dtype):
        raise _refused(array, dtype, "numbers")
    if fitting.is_complex(array.dtype) and not fitting.is_complex(dtype):
        raise TypeError(f"{array.dtype} values do not fit an array of {dtype}; write .real or .imag")
    if array.dtype == dtype:
        return array
    array = fitting.native(array)
    if casting != "unsafe":
        fitting.check_numbers(array, dtype)
    if dtype.isbuiltin != 2:
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _number_objects(array: AnyArray, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    """Numbers of Python; text is read as Python reads it, as numpy does."""
    items = [
        _spelt(item, dtype, place, array.shape) if isinstance(item, str | bytes) else item
        for place, item in enumerate(array.ravel().tolist())
    ]
    nothing = () if fitting.is_integer(dtype) else (type(None),)  # NaN to numpy
    if not all(isinstance(item, (Number, np.bool_, *nothing)) for item in items):
        raise _refused(array, dtype, "numbers", "bool", "int", "float", "complex", "str")
    found = _objects_of(items, array.shape)
    if all(isinstance(item, bool | int | float | complex) for item in items):
        plain = fitting.plain_numbers(found, np.array(items).reshape(array.shape), dtype)
        if plain.dtype.kind != "O":
            return plain
    return found.astype(dtype) if casting == "unsafe" else fitting.check_objects(found, dtype)


def _spelt(text: str | bytes, dtype: np.dtype[Any], place: int, shape: Shape) -> Any:
    """The number that text spells."""
    read: Callable[[Any], Any] = int if fitting.is_integer(dtype) else complex if fitting.is_complex(dtype) else float
    try:
        return read(text)
    except (ValueError, TypeError):  # complex reads no bytes
        at = f" at {tuple(int(k) for k in np.unravel_index(place, shape))}" if shape else ""
        raise ValueError(
            f"an array of {dtype} takes numbers, and text only if it spells one that the type has; found {text!r}{at}"
        ) from None


# -- text and bytes -------------------------------------------------------------------------------


def _strings(array: AnyArray, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    if array.dtype.kind == "O":
        known = all(isinstance(item, str) for item in array.flat)
    elif array.dtype.kind == "T":
        # Arrays with missing values have a type of their own, which would turn them into text.
        known = array.dtype == dtype or not _missing(array).any()
    else:
        known = array.dtype.kind == "U"
    if not known:
        raise _refused(array, dtype, "strings", "str")
    return array.astype(dtype, copy=False)


def _missing(array: AnyArray) -> AnyArray:
    marker = getattr(array.dtype, "na_object", "")
    return np.array([item is marker or item != item for item in array.ravel().tolist()], bool)


_STRING = np.dtypes.StringDType()


def _fixed_text(array: AnyArray, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    text = array if array.dtype.kind == "U" else _strings(array, _STRING, casting)
    if casting != "unsafe":
        fitting.check_lengths(array, np.strings.str_len(text), dtype, dtype.itemsize // 4, "characters")
    return text.astype(dtype, copy=False)


def _fixed_bytes(array: AnyArray, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    """Bytes with zeros at their end, which numpy does not tell from padding."""
    if array.dtype.kind == "O" and all(isinstance(item, bytes) for item in array.flat):
        array = array.astype(f"S{max(map(len, array.flat), default=0) or 1}")
    if array.dtype.kind != "S":
        raise _refused(array, dtype, "bytes", "bytes")
    if casting != "unsafe":
        fitting.check_lengths(array, np.strings.str_len(array), dtype, dtype.itemsize, "bytes")
    return array.astype(dtype, copy=False)


def _raw_bytes(array: AnyArray, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    """Bytes of one length, with zeros after those that are shorter."""
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.isbuiltin != 2:
        array = array.view(f"S{array.dtype.itemsize}") if array.dtype.itemsize else array.astype("S1")
    return _fixed_bytes(array, np.dtype(f"S{dtype.itemsize}"), casting).view(dtype)


def _objects(array: AnyArray, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
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
        raise _refused(array, dtype, "bytes", "bytes")
    return _objects_of(items, array.shape)


# -- times ----------------------------------------------------------------------------------------


def _times(array: AnyArray, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    """Times of numpy and Python, dates as text, and integers, which count units."""
    if array.dtype.kind == "O":
        return _time_objects(array, dtype, casting)
    if array.dtype.kind not in dtype.kind + ("iuUT" if dtype.kind == "M" else "iu"):
        raise _no_times(array, dtype)
    if casting != "unsafe" and array.dtype != dtype:
        check = fitting.check_parsed if array.dtype.kind in "UT" else fitting.check_times
        check(array, dtype)
    return array.astype(dtype, copy=False)


def _no_times(array: AnyArray, dtype: np.dtype[Any]) -> TypeError:
    return _refused(array, dtype, "dates and times" if dtype.kind == "M" else "spans of time")


def _time_objects(array: AnyArray, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    items = array.ravel().tolist()
    if any(isinstance(item, bool | float) for item in items):  # numpy itself refuses what else is no time
        raise _no_times(array, dtype)
    counts = np.array([_is_count(item) for item in items], bool).reshape(array.shape)
    if casting != "unsafe":
        low, high = fitting.limits(np.dtype(np.int64))
        outside = [_is_count(item) and not low <= item <= high for item in items]
        fitting.refuse_any(array, np.array(outside, bool), dtype)
        times = array.copy()
        times[counts] = None
        fitting.check_parsed(times, dtype)
    return array.astype(dtype)


def _is_count(item: Any) -> bool:
    return isinstance(item, int | np.integer) and not isinstance(item, np.timedelta64)  # an integer to numpy


# -- structs --------------------------------------------------------------------------------------


def _structs(value: Any, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    """Structs field by field, in their order, as numpy assigns them; other values go into each field."""
    array = np.asarray(value) if _is_array(value) else np.array(value, _loose(dtype))
    if array.dtype.kind == "O":
        array = np.array(array.ravel().tolist(), _loose(dtype)).reshape(array.shape)
    if array.dtype == dtype:
        return array
    names, own = array.dtype.names, dtype.names or ()
    if names is not None and len(names) != len(own):
        raise TypeError(f"structs of {len(names)} fields do not fit an array of {dtype}, which has {len(own)}")
    found = np.zeros(array.shape, dtype)
    for k, name in enumerate(own):
        part = array if names is None else array[names[k]]
        try:
            _set_field(found[name], part, dtype[name].base, casting)
        except LossyCastError as error:
            index, fact = error.index[: array.ndim], f"field {name!r}: {error.fact}"
            raise LossyCastError(f"field {name!r}: {error}", index=index, fact=fact) from error
    return found


def _set_field(field: AnyArray, part: AnyArray, dtype: np.dtype[Any], casting: Casting) -> None:
    """Write values into the memory of a field; one value for each struct goes into all elements of a sub-array."""
    part = part.reshape(part.shape + (1,) * (field.ndim - part.ndim))
    with np.errstate(all="ignore"):
        field[...] = convert(part, dtype, casting).astype(dtype, copy=False)


def _loose(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A struct with the same fields, which takes any objects, so that numpy changes nothing before it is checked."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_loose(base), shape))
    if dtype.names is not None:
        return np.dtype([(name, _loose(dtype[name])) for name in dtype.names])
    return np.dtype(object)


_CONVERT: dict[str, Callable[[AnyArray, np.dtype[Any], Casting], AnyArray]] = {
    "T": _strings,
    "O": _objects,
    "U": _fixed_text,
    "S": _fixed_bytes,
    "V": _raw_bytes,
    "M": _times,
    "m": _times,
}
