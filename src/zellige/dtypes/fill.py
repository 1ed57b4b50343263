"""Fill values between JSON and bits, exact in both directions (spec: Data types, `fill_value`).

A fill value is held as a 0-d numpy array, because numpy keeps every bit of one: the sign of a zero and
the payload of a NaN survive. Each pair of functions below reads and writes one JSON form.
"""

from __future__ import annotations

import math
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zellige.errors import MetadataError
from zellige.types import JSON, AnyArray


class FillForm(NamedTuple):
    """How the fill values of one family of types look in JSON."""

    read: Callable[[JSON, np.dtype[Any]], AnyArray]
    write: Callable[[AnyArray], JSON]


def _bad(value: JSON, dtype: np.dtype[Any], expected: str) -> MetadataError:
    return MetadataError(f"fill_value {value!r} does not fit {dtype.name}: expected {expected}", field="fill_value")


def _read_bool(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    if not isinstance(value, bool):
        raise _bad(value, dtype, "true or false")
    return np.array(value, dtype)


def _read_int(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    limits = np.iinfo(dtype)
    if type(value) is not int or not limits.min <= value <= limits.max:
        raise _bad(value, dtype, f"an integer from {limits.min} to {limits.max}")
    return np.array(value, dtype)


_SPECIAL_FLOATS = {"Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}


def _read_float(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    digits = 2 * dtype.itemsize
    if isinstance(value, str):
        if value in _SPECIAL_FLOATS:
            return np.array(_SPECIAL_FLOATS[value], dtype)
        if value == "NaN":
            return _from_bits(_quiet_nan(dtype), dtype)
        if value.startswith("0x") and len(value) == 2 + digits and _is_hex(value[2:]):
            return _from_bits(int(value, 16), dtype)
    elif _is_finite(value):
        with np.errstate(over="ignore"):
            return np.array(value, dtype)
    raise _bad(value, dtype, f'a number, "NaN", "Infinity", "-Infinity" or "0x" and {digits} hex digits')


def _is_finite(value: JSON) -> bool:
    """Whether a JSON value is a number within the reach of floats; 1e400 is read as infinity by `json`."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _is_hex(text: str) -> bool:
    return all(c in "0123456789abcdefABCDEF" for c in text)


def _quiet_nan(dtype: np.dtype[Any]) -> int:
    """The one NaN that is spelt "NaN": sign 0, all exponent bits, the top mantissa bit."""
    mantissa = np.finfo(dtype).nmant
    exponent = 8 * dtype.itemsize - 1 - mantissa
    return ((1 << (exponent + 1)) - 1) << (mantissa - 1)


def _from_bits(bits: int, dtype: np.dtype[Any]) -> AnyArray:
    # Through bytes, so that the value never passes through a float register that might quiet a NaN.
    return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype.newbyteorder("<")).astype(dtype)[0, ...]


def _write_float(fill: AnyArray) -> JSON:
    dtype = fill.dtype.newbyteorder("<")
    number = float(fill)
    if math.isfinite(number):
        return number
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    bits = int.from_bytes(fill.astype(dtype).tobytes(), "little")
    return "NaN" if bits == _quiet_nan(dtype) else f"0x{bits:0{2 * dtype.itemsize}x}"


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type of one component of a complex type."""
    return np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")


def _read_complex(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    if not isinstance(value, list) or len(value) != 2:
        raise _bad(value, dtype, "a pair [real, imaginary]")
    parts = np.empty(2, _part(dtype))
    for i, component in enumerate(value):
        parts[i, ...] = _read_float(component, parts.dtype)
    return parts.view(dtype)[0, ...]


def _write_complex(fill: AnyArray) -> JSON:
    parts = fill.reshape(1).view(_part(fill.dtype))
    return [_write_float(parts[0, ...]), _write_float(parts[1, ...])]


def _read_raw(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    expected = f"a list of {dtype.itemsize} integers from 0 to 255, or their base64"
    if isinstance(value, str):
        data = _from_base64(value)
    elif isinstance(value, list) and all(type(b) is int and 0 <= b <= 255 for b in value):
        data = bytes(value)
    else:
        data = None
    if data is None or len(data) != dtype.itemsize:
        raise _bad(value, dtype, expected)
    return np.frombuffer(data, dtype)[0, ...]


def _from_base64(text: str) -> bytes | None:
    from base64 import b64decode

    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None


BOOL = FillForm(_read_bool, bool)
INT = FillForm(_read_int, int)
FLOAT = FillForm(_read_float, _write_float)
COMPLEX = FillForm(_read_complex, _write_complex)
RAW = FillForm(_read_raw, lambda fill: list(fill.tobytes()))


def equals_fill(array: AnyArray, fill: AnyArray) -> bool:
    """Whether every element has the bits of the fill value: -0.0 is not 0.0, one NaN is not another."""
    bits, wanted = _bits(array), _bits(fill)
    first = bits[(0,) * bits.ndim]
    return bool(first == wanted) and bool((bits == wanted).all())


def rows_of_fill(rows: AnyArray, fill: AnyArray) -> AnyArray:
    """`equals_fill` for each item along the first axis of a C-contiguous array."""
    bits, wanted = _bits(rows.reshape(len(rows), -1)), _bits(fill)
    same: AnyArray = bits[:, 0] == wanted
    maybe = np.flatnonzero(same)
    same[maybe] = (bits[maybe] == wanted).all(axis=1)
    return same


def _bits(array: AnyArray) -> AnyArray:
    """The same elements as plain bits, which compare exactly."""
    size = array.dtype.itemsize
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")
