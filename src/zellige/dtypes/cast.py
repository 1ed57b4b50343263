"""Casts: the values that a type can hold, users' values as arrays of a type, and stored values read into another type.

A cast must not lose anything: what is read afterwards equals what was given. There is one exception, which everybody
expects: a finite number may be rounded to the nearest number of a float type, and a very small one to zero. It is a
loss if

* a number for integers has a fraction, is NaN or infinite, or lies outside their range; booleans take 0 and 1;
* a finite number becomes infinite, NaN, or the greatest of a type that has neither (`float4_e2m1fn`), or a NaN or an
  infinity becomes something else; the parts of complex numbers are checked one by one;
* a time is no whole number of the type's units, or lies outside their range;
* text or bytes are cut. Zeros at the end of bytes are padding to numpy, and to leave them out is no loss.

`casting="unsafe"` allows losses: values wrap around or are cut, as by numpy's `astype`. Other kinds of values are
refused either way: numpy's assignment would turn numbers into their digits and booleans into seconds after 1970.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from numbers import Number
from typing import Any, Literal

import numpy as np

from zellige.errors import BroadcastError, LossyCastError, MaskedValueError, ReadOnlyError
from zellige.types import AnyArray, Casting, Shape

# -- what a type can hold -------------------------------------------------------------------------


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is a number or a boolean, of numpy or of ml_dtypes."""
    return dtype.kind in "biufc" or dtype.isbuiltin == 2


def is_complex(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is a complex number, of numpy or of ml_dtypes."""
    return dtype.kind == "c" or (dtype.isbuiltin == 2 and "complex" in dtype.name)


def is_integral(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is an integer or a boolean, of numpy or of ml_dtypes."""
    return dtype.kind in "biu" or (dtype.isbuiltin == 2 and dtype.name.startswith(("int", "uint")))


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the greatest integer of a type."""
    if dtype.kind == "b":
        return 0, 1
    bits = int(dtype.name.lstrip("uint"))
    return (0, 2**bits - 1) if dtype.name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _holds_all(dtype: np.dtype[Any], source: np.dtype[Any]) -> bool:
    """Return whether a type of numbers holds all of another one."""
    # ml_dtypes says of many of its types that they hold what they do not, as `int8` in `float4_e2m1fn`.
    return 2 not in (dtype.isbuiltin, source.isbuiltin) and np.can_cast(source, dtype, "safe")


@cache
def _end(dtype: np.dtype[Any]) -> float:
    """Return where numbers begin that a type takes for its greatest one; infinity if it has something beyond."""
    if dtype.isbuiltin != 2 or not np.isfinite(np.array(math.inf).astype(dtype)):
        return math.inf
    codes = np.arange(1 << 8, dtype=np.uint8).view(dtype).astype(np.float64)
    below, greatest = np.unique(codes)[-2:]
    return float(greatest + (greatest - below) / 2)


# -- values into a type ---------------------------------------------------------------------------


def as_value(value: Any, dtype: np.dtype[Any], casting: Casting = "same_value") -> AnyArray:
    """Return a value as an array; numbers that numpy can cast keep their type until they are written, chunk by chunk.

    Values that the type cannot hold raise `LossyCastError`, unless `casting` is "unsafe".
    """
    if type(value) is np.ndarray and value.dtype == dtype and dtype.kind != "O":
        return value
    value, checked = unmasked(value), casting != "unsafe"
    if is_number(dtype):
        return _numbers(value, dtype, checked)
    if dtype.names is not None:
        return _structs(value, dtype, casting)
    return _CONVERT[dtype.kind](_as_array(value), dtype, checked)


def as_values(value: Any, dtype: np.dtype[Any], casting: Casting = "same_value") -> AnyArray:
    """Return anything array-like as an array of a type."""
    with np.errstate(all="ignore"):
        return as_value(value, dtype, casting).astype(dtype, copy=False)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__")


def _as_array(value: Any) -> AnyArray:
    """Return arrays as they are; lists as arrays of objects, of which numpy neither pads nor cuts anything."""
    if _is_array(value):
        return np.asarray(value)
    return np.array(bytes(value) if isinstance(value, bytearray | memoryview) else value, object)


def _objects_of(items: list[Any], shape: Shape) -> AnyArray:
    found = np.empty(shape, object)
    found.reshape(-1)[:] = items
    return found


def _refused(array: AnyArray, dtype: np.dtype[Any], wanted: str, *usual: str) -> TypeError:
    """Return the error for values of another kind; objects of the `usual` types are not named as the cause."""
    if array.dtype.kind == "O":
        odd = {type(item).__name__ for item in array.flat} - set(usual) or set(usual)
        found = f"objects of type {', '.join(sorted(odd))}"
    else:
        found = f"values of type {array.dtype}"
    return TypeError(f"an array of {dtype} takes {wanted}, not {found}; convert them first")


def _place(number: int, shape: Shape) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(number, shape))


def _refuse_first(array: AnyArray, lost: AnyArray, dtype: np.dtype[Any], start: int = 0) -> None:
    """Raise for the first value that is lost; `lost` is about the elements from `start`, in C order."""
    if lost.any():
        at = _place(start + int(lost.argmax()), array.shape)
        kind = type(array[at]).__name__ if array.dtype.kind == "O" else array.dtype
        fact = f"{kind} value {str(array[at])[:80]} at {at} does not fit an array of {dtype}"
        raise LossyCastError(f"{fact}; convert the values, or pass casting='unsafe'", index=at, fact=fact)


# -- numbers --------------------------------------------------------------------------------------

_PIECE = 1 << 15
"""Elements that are checked together, so that they stay in the cache of the processor."""


def _numbers(value: Any, dtype: np.dtype[Any], checked: bool) -> AnyArray:
    array = np.asarray(value)
    if not _is_array(value):
        array = _plain_numbers(value, array, dtype)
    if array.dtype.kind in "OUTS":
        array = _number_objects(array.astype(object, copy=False), dtype, checked)
    elif not is_number(array.dtype):
        raise _refused(array, dtype, "numbers")
    if is_complex(array.dtype) and not is_complex(dtype):
        raise TypeError(f"{array.dtype} values do not fit an array of {dtype}; write .real or .imag")
    if array.dtype == dtype:
        return array
    if array.dtype.isbuiltin == 2:  # ml_dtypes has no casts between some of its types
        wide = np.complex64 if is_complex(array.dtype) else np.int8 if is_integral(array.dtype) else np.float32
        array = array.astype(wide)
    if checked:
        _check_numbers(array, dtype)
    if dtype.isbuiltin != 2:
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _plain_numbers(value: Any, array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Return what numpy made of Python's numbers, unless it rounded integers that an integer type may hold."""
    rounded = array.dtype.kind == "f" and is_integral(dtype) and not (np.abs(array) < 2.0**53).all()
    return np.array(value, object) if rounded else array


def _number_objects(array: AnyArray, dtype: np.dtype[Any], checked: bool) -> AnyArray:
    """Convert numbers of Python; text is read as Python reads it, as numpy does."""
    items = [
        _spelt(item, dtype, place, array.shape) if isinstance(item, str | bytes) else item
        for place, item in enumerate(array.ravel().tolist())
    ]
    nothing = () if is_integral(dtype) else (type(None),)  # NaN to numpy
    if not all(isinstance(item, (Number, np.bool_, *nothing)) for item in items):
        raise _refused(array, dtype, "numbers", "bool", "int", "float", "complex", "str")
    found = _objects_of(items, array.shape)
    if all(isinstance(item, bool | int | float | complex) for item in items):
        plain = _plain_numbers(found, np.array(items).reshape(array.shape), dtype)
        if plain.dtype.kind != "O":
            return plain
    return _other_numbers(found, dtype) if checked else found.astype(dtype)


def _spelt(text: str | bytes, dtype: np.dtype[Any], place: int, shape: Shape) -> Any:
    """Return the number that text spells."""
    read: Callable[[Any], Any] = int if is_integral(dtype) else complex if is_complex(dtype) else float
    try:
        return read(text)
    except (ValueError, TypeError):  # complex reads no bytes
        at = f" at {_place(place, shape)}" if shape else ""
        raise ValueError(
            f"an array of {dtype} takes numbers, and text only if it spells one that the type has; found {text!r}{at}"
        ) from None


def _other_numbers(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Convert numbers of Python that numpy has no type for, such as fractions and integers of any length."""
    integers = is_integral(dtype)
    low, high = limits(dtype) if integers else (0, 0)
    kind: Any = int if integers else complex if is_complex(dtype) else float
    nothing = complex(math.nan, math.nan) if is_complex(dtype) else math.nan  # what numpy makes of None

    def read(item: Any) -> Any:
        """Return the item as a plain number; None if there is none."""
        try:
            number: Any = nothing if item is None else kind(item)
        except (ValueError, OverflowError):  # integers are neither NaN nor infinite, and floats not of any length
            return None
        return None if integers and not (number == item and low <= number <= high) else number

    numbers = [read(item) for item in array.flat]
    _refuse_first(array, np.array([number is None for number in numbers], bool), dtype)
    wide = kind if not integers else np.uint64 if high >= 2**63 else np.int64
    found: AnyArray = np.array(numbers, wide).reshape(array.shape)
    _check_numbers(found, dtype)
    return found.astype(dtype)


def _check_numbers(array: AnyArray, dtype: np.dtype[Any]) -> None:
    """Raise if one of these numbers, in a type of numpy, is another one as `dtype`."""
    if not array.size or _holds_all(dtype, array.dtype):
        return
    if is_integral(dtype) and is_integral(array.dtype):
        low, high = limits(dtype)
        if int(array.min()) < low or int(array.max()) > high:
            _refuse_first(array, (array < low) | (array > high), dtype)
        return
    lost = _lost_as_integer if is_integral(dtype) else _lost_as_float
    with np.errstate(all="ignore"):
        if any(lost(piece, dtype).any() for piece in _pieces(array, "K")):
            start = 0
            for piece in _pieces(array, "C"):
                _refuse_first(array, lost(piece, dtype), dtype, start)
                start += piece.size


def _pieces(array: AnyArray, order: Literal["C", "K"]) -> Iterator[AnyArray]:
    """Yield all elements in flat pieces, in C order or as they lie in memory, which is faster."""
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
        return np.zeros(0, bool)
    wide = piece.astype(np.promote_types(piece.dtype, np.complex128 if is_complex(dtype) else np.float64), copy=False)
    if not is_complex(dtype):
        return _not_rounded(wide, found, end)
    part = wide.real.dtype
    parts = _not_rounded(wide.view(part), found.astype(wide.dtype).view(part), end)
    return parts[0::2] | parts[1::2]


def _not_rounded(wide: AnyArray, found: AnyArray, end: float) -> AnyArray:
    """Return where floats are not what they were, but for rounding."""
    same = (np.isnan(wide) & np.isnan(found)) | (np.isinf(wide) & (found.astype(wide.dtype) == wide))
    return ~np.where(np.isfinite(wide), np.isfinite(found) & (np.abs(wide) < end), same)


# -- text and bytes -------------------------------------------------------------------------------


def _strings(array: AnyArray, dtype: np.dtype[Any], checked: bool) -> AnyArray:
    if array.dtype.kind == "O":
        known = all(isinstance(item, str) for item in array.flat)
    elif array.dtype.kind == "T":
        # Arrays with missing values have a type of their own, which would turn them into text.
        marker = getattr(array.dtype, "na_object", "")
        known = array.dtype == dtype or not any(item is marker or item != item for item in array.ravel().tolist())
    else:
        known = array.dtype.kind == "U"
    if not known:
        raise _refused(array, dtype, "strings", "str")
    return array.astype(dtype, copy=False)


_STRING = np.dtypes.StringDType()


def _fixed_text(array: AnyArray, dtype: np.dtype[Any], checked: bool) -> AnyArray:
    text = array if array.dtype.kind == "U" else _strings(array, _STRING, checked)
    if checked:
        _check_lengths(text, dtype, dtype.itemsize // 4, "characters")
    return text.astype(dtype, copy=False)


def _fixed_bytes(array: AnyArray, dtype: np.dtype[Any], checked: bool) -> AnyArray:
    """Convert bytes with zeros at their end, which numpy does not tell from padding."""
    if array.dtype.kind == "O" and all(isinstance(item, bytes) for item in array.flat):
        array = array.astype(f"S{max(map(len, array.flat), default=0) or 1}")
    if array.dtype.kind != "S":
        raise _refused(array, dtype, "bytes", "bytes")
    if checked:
        _check_lengths(array, dtype, dtype.itemsize, "bytes")
    return array.astype(dtype, copy=False)


def _check_lengths(array: AnyArray, dtype: np.dtype[Any], most: int, unit: str) -> None:
    """Raise if an element is longer than the type."""
    lengths = np.strings.str_len(array)
    if lengths.max(initial=0) > most:
        at = _place(int((lengths > most).argmax()), array.shape)
        fact = f"an array of {dtype} holds at most {most} {unit} in each element, found {lengths[at]} at {at}"
        raise LossyCastError(f"{fact}; shorten them, or pass casting='unsafe'", index=at, fact=fact)


def _raw_bytes(array: AnyArray, dtype: np.dtype[Any], checked: bool) -> AnyArray:
    """Convert bytes to one length, with zeros after those that are shorter."""
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.isbuiltin != 2:
        array = array.view(f"S{array.dtype.itemsize}") if array.dtype.itemsize else array.astype("S1")
    return _fixed_bytes(array, np.dtype(f"S{dtype.itemsize}"), checked).view(dtype)


def _objects(array: AnyArray, dtype: np.dtype[Any], checked: bool) -> AnyArray:
    """Convert bytes, or any objects at all where the type says so."""
    if dtype.metadata:
        return array.astype(dtype, copy=False)
    if array.dtype.kind == "S":
        items = array.ravel().tolist()
    elif array.dtype.type is np.void and not array.dtype.hasobject:
        items = [item.tobytes() for item in array.ravel()]
    elif array.dtype.kind == "O" and all(isinstance(item, bytes | bytearray | memoryview) for item in array.flat):
        items = [bytes(item) for item in array.flat]
    else:
        raise _refused(array, dtype, "bytes", "bytes")
    return _objects_of(items, array.shape)


# -- times ----------------------------------------------------------------------------------------


def _times(array: AnyArray, dtype: np.dtype[Any], checked: bool) -> AnyArray:
    """Convert times of numpy and Python, dates as text, and integers, which count units."""
    kind, items = array.dtype.kind, array.ravel().tolist() if array.dtype.kind == "O" else []
    known = kind in dtype.kind + ("OiuUT" if dtype.kind == "M" else "Oiu")
    if not known or any(isinstance(item, bool | float) for item in items):  # numpy refuses what else is no time
        raise _refused(array, dtype, "dates and times" if dtype.kind == "M" else "spans of time")
    if checked and array.dtype != dtype:
        low, high = limits(np.dtype(np.int64))
        if kind in "iu":
            _refuse_first(array, (array < low) | (array > high), dtype)
            return array.astype(dtype)
        times = array.astype(object) if kind == "T" else array  # numpy finds no unit for these strings
        if items:
            counts = [isinstance(item, int | np.integer) and not isinstance(item, np.timedelta64) for item in items]
            pairs = list(zip(items, counts, strict=True))
            outside = [is_count and not low <= item <= high for item, is_count in pairs]
            _refuse_first(array, np.array(outside, bool), dtype)
            times = _objects_of([None if is_count else item for item, is_count in pairs], array.shape)
        _refuse_first(times, _lost_as_time(times, dtype), dtype)
    return array.astype(dtype, copy=False)


def _lost_as_time(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Return where times, or dates as text, are others in the units of `dtype`: numpy lets what does not fit wrap.

    They are compared in their own unit. Text and objects have none: they are compared in seconds, which all of them
    fit, and in the finest unit that any of them needs. In that one they may wrap around, but both sides alike, by more
    than a second.
    """
    found = array.astype(dtype)
    if array.dtype.kind == dtype.kind:
        units = [array.dtype.newbyteorder("=")]
    else:
        units = [np.dtype(f"{dtype.kind}8[s]"), array.astype(f"{dtype.kind}8").dtype]
    differ = [array.astype(unit).view(np.int64) != found.astype(unit).view(np.int64) for unit in units]
    lost: AnyArray = np.logical_or.reduce(differ)
    return lost


# -- structs --------------------------------------------------------------------------------------


def _structs(value: Any, dtype: np.dtype[Any], casting: Casting) -> AnyArray:
    """Convert structs field by field, in their order, as numpy assigns them; other values go into each field."""
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
        field, part = found[name], array if names is None else array[names[k]]
        part = part.reshape(part.shape + (1,) * (field.ndim - part.ndim))  # one value for all elements of a sub-array
        try:
            field[...] = as_values(part, dtype[name].base, casting)
        except LossyCastError as error:
            index, fact = error.index[: array.ndim], f"field {name!r}: {error.fact}"
            raise LossyCastError(f"field {name!r}: {error}", index=index, fact=fact) from error
    return found


def _loose(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a struct with the same fields that takes any objects: numpy changes nothing before it is checked."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_loose(base), shape))
    if dtype.names is not None:
        return np.dtype([(name, _loose(dtype[name])) for name in dtype.names])
    return np.dtype(object)


_CONVERT: dict[str, Callable[[AnyArray, np.dtype[Any], bool], AnyArray]] = {
    "T": _strings,
    "O": _objects,
    "U": _fixed_text,
    "S": _fixed_bytes,
    "V": _raw_bytes,
    "M": _times,
    "m": _times,
}
"""What converts values to a type of this kind."""


# -- masks ----------------------------------------------------------------------------------------

_REMEDY = "an array cannot store; write x.filled(a.fill_value), or x.data to store what lies under the mask"


def unmasked(value: Any) -> Any:
    """Return anything with `__array__` as a plain array, other values as they are; raise if an element is masked.

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
    masked = _mask(value)
    if masked is not None and masked.any():
        at = _place(int(masked.argmax()), masked.shape)
        raise MaskedValueError(
            f"{int(masked.sum())} of {masked.size} elements are masked, the first at {at}, which {_REMEDY}", index=at
        )
    return np.asarray(value)


def _mask(array: AnyArray) -> AnyArray | None:
    """Return where the elements of an array are masked; None if it has no mask."""
    if type(array) is np.ndarray or "numpy.ma" not in sys.modules or not isinstance(array, np.ma.MaskedArray):
        return None
    return _joined(np.asarray(array.mask), array.ndim)


def _joined(mask: AnyArray, rank: int) -> AnyArray:
    """Return a mask of so many axes; that of structs is set where one of their fields is masked."""
    if mask.dtype.names is not None:
        fields = [_joined(mask[name], rank) for name in mask.dtype.names]
        return np.asarray(np.logical_or.reduce(fields), bool)
    return np.asarray(mask.any(axis=tuple(range(rank, mask.ndim))))


def _holds_masked(items: Sequence[Any]) -> bool:
    """Return whether a masked element is somewhere in nested lists."""
    if not any(issubclass(kind, list | tuple | np.ndarray) for kind in {*map(type, items)}):
        return False
    masks = [_mask(item) for item in items if isinstance(item, np.ndarray)]
    nested = [item for item in items if isinstance(item, list | tuple)]
    return any(mask is not None and mask.any() for mask in masks) or any(map(_holds_masked, nested))


# -- stored values into an array of the caller, `out=` --------------------------------------------


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
            as_value(np.empty(0, dtype), out.dtype, casting)
        except TypeError as error:
            raise TypeError(f"cannot read into out: {error}") from error


def direct_output(out: AnyArray, dtype: np.dtype[Any]) -> AnyArray | None:
    """Return the memory of an array, if values of a type can be read into it unchecked; None otherwise."""
    held = out.dtype == dtype or (is_number(dtype) and out.dtype != object and _holds_all(out.dtype, dtype))
    return None if not held or isinstance(out, np.ma.MaskedArray) else out.view(np.ndarray)


def fill_output(found: Any, out: AnyArray, casting: Casting) -> None:
    """Put values into an array of any type; one that the type cannot hold is refused before anything is changed."""
    values: Any = np.asarray(found)
    if out.dtype not in (values.dtype, object):
        try:
            values = as_value(values, out.dtype, casting)
        except LossyCastError as error:
            raise LossyCastError(
                f"cannot read into out: {error.fact}; pass an array of {values.dtype}, or open the array with "
                "config={'casting': 'unsafe'}",
                index=error.index,
                fact=error.fact,
            ) from error
    with np.errstate(all="ignore"):
        out[...] = values
