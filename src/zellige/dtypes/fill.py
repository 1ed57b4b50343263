"""Fill values between JSON and bits, exact in both directions (spec: Data types, `fill_value`).

A fill value is held as a 0-d numpy array, because numpy keeps every bit of one: the sign of a zero and
the payload of a NaN survive. Each group of functions below reads, writes and casts to one JSON form.
"""

from __future__ import annotations

import math
from binascii import Error as Base64Error
from collections.abc import Callable
from reprlib import Repr
from typing import Any, NamedTuple

import numpy as np

from zellige.errors import MetadataError
from zellige.types import JSON, AnyArray

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = 80


def shown(value: Any) -> str:
    """A value for a message; not all of it, if it is long or deep."""
    return _REPR.repr(value)


def zeros(dtype: np.dtype[Any]) -> AnyArray:
    """The usual default."""
    return np.zeros((), dtype)


def boxed(value: Any) -> AnyArray:
    """Any object as a 0-d array that holds it."""
    box = np.empty((), object)
    box[()] = value
    return box


class FillForm(NamedTuple):
    """How the fill values of one family of types look in JSON, and what users may give for them."""

    read: Callable[[JSON, np.dtype[Any]], AnyArray]
    write: Callable[[AnyArray], JSON]
    cast: Callable[[Any, np.dtype[Any]], AnyArray]
    """A user's value, which may be wrong."""
    default: Callable[[np.dtype[Any]], AnyArray] = zeros


def bad(value: Any, dtype: np.dtype[Any], expected: str = "") -> MetadataError:
    """The error for a fill value that is not one of the type."""
    hint = f": expected {expected}" if expected else ""
    return MetadataError(f"fill_value {shown(value)} does not fit {dtype}{hint}", field="fill_value")


# -- numbers --------------------------------------------------------------------------------------


def _read_bool(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    """Also 0 and 1, which some writers put there."""
    if type(value) is int and value in (0, 1):
        value = bool(value)
    if not isinstance(value, bool):
        raise bad(value, dtype, "true or false")
    return np.array(value, dtype)


def _read_int(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    limits = np.iinfo(dtype)
    if type(value) is not int or not limits.min <= value <= limits.max:
        raise bad(value, dtype, f"an integer from {limits.min} to {limits.max}")
    return np.array(value, dtype)


SPECIAL_FLOATS = {"Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}


def read_float(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    """A number, a word for one that is not finite, or the bits in hex."""
    digits = 2 * dtype.itemsize
    if isinstance(value, str):
        if value in SPECIAL_FLOATS:
            return np.array(SPECIAL_FLOATS[value], dtype)
        if value == "NaN":
            return _from_bits(_quiet_nan(dtype), dtype)
        if (bits := hex_bits(value, digits)) is not None:
            return _from_bits(bits, dtype)
    elif is_finite(value):
        with np.errstate(over="ignore"):
            return np.array(value, dtype)
    raise bad(value, dtype, f'a number, "NaN", "Infinity", "-Infinity" or "0x" and {digits} hex digits')


def is_finite(value: JSON) -> bool:
    """Whether a JSON value is a number within the reach of floats; 1e400 is read as infinity by `json`."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def hex_bits(text: str, digits: int) -> int | None:
    """The bits that "0x" and exactly so many digits spell."""
    if text.startswith("0x") and len(text) == 2 + digits and all(c in "0123456789abcdefABCDEF" for c in text[2:]):
        return int(text, 16)
    return None


def _quiet_nan(dtype: np.dtype[Any]) -> int:
    """The one NaN that is spelt "NaN": sign 0, all exponent bits, the top mantissa bit."""
    mantissa = np.finfo(dtype).nmant
    exponent = 8 * dtype.itemsize - 1 - mantissa
    return ((1 << (exponent + 1)) - 1) << (mantissa - 1)


def _from_bits(bits: int, dtype: np.dtype[Any]) -> AnyArray:
    # Through bytes, so that the value never passes through a float register that might quiet a NaN.
    return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype.newbyteorder("<")).astype(dtype)[0, ...]


def write_float(fill: AnyArray) -> JSON:
    """A number where JSON has one, else a word, or the bits of an unusual NaN."""
    dtype = fill.dtype.newbyteorder("<")
    bits = int.from_bytes(fill.astype(dtype).tobytes(), "little")
    return spell_float(float(fill), bits, _quiet_nan(dtype), 2 * dtype.itemsize)


def spell_float(number: float, bits: int, nan: int | None, digits: int) -> JSON:
    """The JSON form of a float with these bits."""
    if math.isfinite(number):
        return number
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return "NaN" if bits == nan else f"0x{bits:0{digits}x}"


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type of one component of a complex type."""
    return np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")


def _read_complex(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    if not isinstance(value, list) or len(value) != 2:
        raise bad(value, dtype, "a pair [real, imaginary]")
    parts = np.empty(2, _part(dtype))
    for i, component in enumerate(value):
        parts[i, ...] = read_float(component, parts.dtype)
    return parts.view(dtype)[0, ...]


def _write_complex(fill: AnyArray) -> JSON:
    parts = fill.reshape(1).view(_part(fill.dtype))
    return [write_float(parts[0, ...]), write_float(parts[1, ...])]


def _cast_number(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    if isinstance(value, str | list | tuple):  # the spellings of documents
        return _READ[dtype.kind](list(value) if isinstance(value, tuple) else value, dtype)
    source = np.asarray(value)
    if source.dtype.kind not in ("biufcO" if dtype.kind == "c" else "biufO"):
        raise bad(value, dtype)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            fill = np.asarray(value, dtype) if source.dtype == object else source.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise MetadataError(f"fill_value {shown(value)} does not fit {dtype}: {error}", field="fill_value") from error
    if not (_same_infinities(fill, source) if dtype.kind in "fc" else (fill == source).all()):
        raise bad(value, dtype)
    return fill


def _same_infinities(fill: AnyArray, source: AnyArray) -> bool:
    """Whether no finite number became infinite: floats may round, but not that far."""
    if source.dtype == object:  # which Python has converted, and complained if it could not
        return True
    pairs = ((fill.real, source.real), (fill.imag, source.imag))
    return all(np.array_equal(np.isinf(a), np.isinf(b)) for a, b in pairs)


_READ = {"b": _read_bool, "i": _read_int, "u": _read_int, "f": read_float, "c": _read_complex}

BOOL = FillForm(_read_bool, bool, _cast_number)
INT = FillForm(_read_int, int, _cast_number)
FLOAT = FillForm(read_float, write_float, _cast_number)
COMPLEX = FillForm(_read_complex, _write_complex, _cast_number)


# -- bytes ----------------------------------------------------------------------------------------


def read_bytes(value: JSON) -> bytes | None:
    """What a list of integers or base64 spells; None if it is neither."""
    if isinstance(value, str):
        return _from_base64(value)
    if isinstance(value, list) and all(type(b) is int and 0 <= b <= 255 for b in value):
        return bytes(value)
    return None


def _from_base64(text: str) -> bytes | None:
    from base64 import b64decode

    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None


def to_base64(data: bytes) -> str:
    """The spelling that others read."""
    from base64 import b64encode

    return b64encode(data).decode()


def _read_raw(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    data = read_bytes(value)
    if data is None or len(data) != dtype.itemsize:
        raise bad(value, dtype, f"a list of {dtype.itemsize} integers from 0 to 255, or their base64")
    return np.frombuffer(data, dtype)[0, ...]


def _cast_raw(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    if isinstance(value, np.void):
        value = value.tobytes()
    if isinstance(value, bytes | bytearray | memoryview):
        value = list(bytes(value))
    return _read_raw(list(value) if isinstance(value, tuple) else value, dtype)


RAW = FillForm(_read_raw, lambda fill: list(fill.tobytes()), _cast_raw)
RAW_BASE64 = FillForm(_read_raw, lambda fill: to_base64(fill.tobytes()), _cast_raw)


# -- comparing ------------------------------------------------------------------------------------


def equals_fill(array: AnyArray, fill: AnyArray) -> bool:
    """Whether every element has the bits of the fill value: -0.0 is not 0.0, one NaN is not another."""
    if array.dtype.kind == "O":
        wanted = fill.item()
        return all(_same(item, wanted) for item in array.flat)
    if array.dtype.kind in "iuf":
        first, other = array.item(0), fill.item()
        if first != other and (first == first or other == other):  # not both NaN
            return False
    bits, wanted = _bits(array), _bits(fill)
    return bool(bits[(0,) * bits.ndim] == wanted) and bool((bits == wanted).all())


def _bits(array: AnyArray) -> AnyArray:
    """The same elements as plain bits, which compare exactly; strings do so themselves."""
    size = array.dtype.itemsize
    if array.dtype.hasobject:
        return array
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def _same(item: Any, wanted: Any) -> bool:
    """Whether two objects are the same in every bit; those of types that are not known here are not."""
    if item is wanted:
        return True
    if type(item) is not type(wanted):
        return False
    if isinstance(item, np.ndarray):
        if item.dtype != wanted.dtype or item.shape != wanted.shape or item.dtype.hasobject:
            return False
        return bool(item.tobytes() == wanted.tobytes())
    if isinstance(item, list | tuple):
        return len(item) == len(wanted) and all(map(_same, item, wanted))
    if isinstance(item, dict):
        return list(item) == list(wanted) and all(map(_same, item.values(), wanted.values()))
    if isinstance(item, float):
        return bool(item.hex() == wanted.hex())
    return isinstance(item, str | bytes | int) and bool(item == wanted)


def fill_bits(fill: AnyArray) -> bytes | str:
    """What tells one fill value from another of the same type."""
    if not fill.dtype.hasobject:
        return fill.tobytes()
    item = fill.item()
    if isinstance(item, np.ndarray):
        item = item.dtype.str, item.shape, item.tobytes()
    return item if isinstance(item, str | bytes) else repr(item)
