"""Numbers that numpy has from `ml_dtypes`: `bfloat16`, floats of 4 to 8 bits, integers of 2 and 4 bits.

ml_dtypes is imported when the first of these types is met. Its own casts round twice on the way from
float64, so that fill values are rounded here, exactly and half to even.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from numbers import Complex, Real
from typing import Any, NamedTuple

import numpy as np

from zellige.dtypes import fill as forms
from zellige.dtypes.base import DataType, only_keys
from zellige.dtypes.fill import FillForm, bad
from zellige.dtypes.storage import Storage
from zellige.errors import UnknownDataTypeError
from zellige.types import JSON, AnyArray


class _Float(NamedTuple):
    """The codes of a float type: those of positive numbers ascend with the numbers."""

    bits: int
    largest: int
    """The code of the largest finite number."""
    infinity: int | None
    nan: int | None
    """The code that is spelt "NaN" (spec 4.3)."""
    signed: bool = True


_FLOATS = {
    "bfloat16": _Float(16, 0x7F7F, 0x7F80, 0x7FC0),
    "float4_e2m1fn": _Float(4, 0x07, None, None),
    "float6_e2m3fn": _Float(6, 0x1F, None, None),
    "float6_e3m2fn": _Float(6, 0x1F, None, None),
    "float8_e3m4": _Float(8, 0x6F, 0x70, 0x78),
    "float8_e4m3": _Float(8, 0x77, 0x78, 0x7C),
    "float8_e4m3b11fnuz": _Float(8, 0x7F, None, 0x80),
    "float8_e4m3fn": _Float(8, 0x7E, None, 0x7F),  # not registered, but written by TensorStore
    "float8_e4m3fnuz": _Float(8, 0x7F, None, 0x80),
    "float8_e5m2": _Float(8, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": _Float(8, 0x7F, None, 0x80),
    "float8_e8m0fnu": _Float(8, 0xFE, None, 0xFF, signed=False),
}
_INTEGERS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4}
_COMPLEX = {"complex_float16": "complex32", "complex_bfloat16": "bcomplex32"}
_BY_NUMPY = {numpy: name for name, numpy in _COMPLEX.items()}
_COMPLEX_CARRIER = np.dtype([("real", np.uint16), ("imaginary", np.uint16)])


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """One of these types by its name."""
    only_keys(name, configuration)
    if name.startswith("complex_"):
        return _complex(name)
    return _float(name) if name in _FLOATS else _integer(name)


def from_numpy(dtype: np.dtype[Any]) -> DataType | None:
    """The data type of a type of ml_dtypes; None for one that Zarr does not have."""
    name = _BY_NUMPY.get(dtype.name, dtype.name)
    return from_json(name, {}) if name in _FLOATS or name in _INTEGERS or name in _COMPLEX else None


def _library() -> Any:
    try:
        return import_module("ml_dtypes")
    except ImportError as error:
        raise ImportError("small numbers such as bfloat16 need ml_dtypes: pip install 'zellige[ml]'") from error


def _numpy(name: str, ours: str) -> np.dtype[Any]:
    scalar = getattr(_library(), name, None)
    if scalar is None:
        raise UnknownDataTypeError(
            f"data_type {ours!r} needs a newer ml_dtypes: pip install -U ml_dtypes",
            field="data_type",
        )
    found: np.dtype[Any] = np.dtype(scalar)
    return found


def _masked(bits: int) -> Storage | None:
    return None if bits == 8 else Storage(np.dtype(np.uint8), masks=((0, (1 << bits) - 1),))


@cache
def _float(name: str) -> DataType:
    code = _FLOATS[name]
    storage = Storage(np.dtype(np.uint16)) if code.bits == 16 else _masked(code.bits)
    form = FillForm(partial(_read_float, code), partial(_write_float, code), partial(_cast_float, code))
    return DataType(name, _numpy(name, name), form, endian=code.bits == 16, storage=storage)


@cache
def _integer(name: str) -> DataType:
    return DataType(name, _numpy(name, name), _INTEGER, endian=False, storage=_masked(_INTEGERS[name]))


@cache
def _complex(name: str) -> DataType:
    part = name.removeprefix("complex_")
    if name not in _COMPLEX:
        raise UnknownDataTypeError(
            f"data_type {name!r}: numpy cannot hold complex numbers of {part}; store the parts as {part} instead",
            field="data_type",
        )
    numpy = _numpy(_COMPLEX[name], name)
    read = forms.read_float if part == "float16" else _float(part).form.read
    write = forms.write_float if part == "float16" else _float(part).form.write
    parts = np.dtype(np.float16) if part == "float16" else _float(part).numpy
    form = FillForm(partial(_read_pair, read, parts), partial(_write_pair, write, parts), partial(_cast_pair, parts))
    return DataType(name, numpy, form, endian=True, storage=Storage(_COMPLEX_CARRIER))


# -- fill values: floats --------------------------------------------------------------------------


def _from_code(bits: int, dtype: np.dtype[Any]) -> AnyArray:
    return np.array(bits, f"u{dtype.itemsize}").view(dtype)


def _code(fill: AnyArray) -> int:
    return int(fill.view(f"u{fill.dtype.itemsize}"))


def _read_float(code: _Float, value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    found = None
    if isinstance(value, str):
        found = _read_word(code, value, 2 * dtype.itemsize)
    elif forms.is_finite(value):
        size = _round(code, abs(Fraction(value)), dtype)
        found = code.infinity if size > code.largest else size
        if math.copysign(1, value) < 0:
            found = _negative(code, found)
    if found is None:
        raise bad(value, dtype, _expected(code, dtype))
    return _from_code(found, dtype)


def _read_word(code: _Float, value: str, digits: int) -> int | None:
    if value == "NaN":
        return code.nan
    if value in forms.SPECIAL_FLOATS:
        return _negative(code, code.infinity) if value.startswith("-") else code.infinity
    bits = forms.hex_bits(value, digits)
    return None if bits is None or bits >> code.bits else bits


def _negative(code: _Float, found: int | None) -> int | None:
    """The code of the opposite number; None if there is none."""
    sign = 1 << (code.bits - 1)
    if found is None or not code.signed:
        return None
    # Where the code of -0 is NaN's, there is one zero only.
    return found if found == 0 and code.nan == sign else found | sign


def _expected(code: _Float, dtype: np.dtype[Any]) -> str:
    largest = float(_from_code(code.largest, dtype))
    low = f"-{largest:g}" if code.signed else "above 0"
    words = ['"NaN"'] * (code.nan is not None) + ['"Infinity", "-Infinity"'] * (code.infinity is not None)
    numbers = "a number" if code.infinity is not None else f"a number from {low} to {largest:g}"
    return f'{", ".join([numbers, *words])} or "0x" and {2 * dtype.itemsize} hex digits'


def _round(code: _Float, size: Fraction, dtype: np.dtype[Any]) -> int:
    """The code nearest to a number that is not negative, half to even; beyond `largest` if it is too large."""
    low, high = 0, code.largest
    if size >= 2 * _number(high, dtype):
        return high + 1
    while low < high:  # the largest code whose number is not above
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _number(middle, dtype) <= size else (low, middle - 1)
    below = _number(low, dtype)
    above = 2 * below - _number(low - 1, dtype) if low == code.largest else _number(low + 1, dtype)
    left, right = size - below, above - size
    return low if left < right or (left == right and low % 2 == 0) else low + 1


def _number(bits: int, dtype: np.dtype[Any]) -> Fraction:
    return Fraction(float(_from_code(bits, dtype)))


def _write_float(code: _Float, fill: AnyArray) -> JSON:
    return forms.spell_float(float(fill), _code(fill), code.nan, 2 * fill.dtype.itemsize)


def _cast_float(code: _Float, value: Any, dtype: np.dtype[Any]) -> AnyArray:
    if isinstance(value, str):
        return _read_float(code, value, dtype)
    number = _real(value, dtype)
    if number != number or number in (math.inf, -math.inf):
        word = "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
        return _read_float(code, word, dtype)
    found: int | None = _round(code, abs(Fraction(number)), dtype)
    if found is not None and (found > code.largest or (number == 0 and not code.signed)):
        found = None  # a large number is not meant as infinity, nor zero as the least number
    elif number < 0 or (isinstance(number, float) and math.copysign(1, number) < 0):
        found = _negative(code, found)
    if found is None:
        raise bad(value, dtype, _expected(code, dtype))
    return _from_code(found, dtype)


def _real(value: Any, dtype: np.dtype[Any]) -> Any:
    """A user's value as a number of Python."""
    if isinstance(value, np.ndarray | np.generic):
        known = value.dtype.kind in "biuf" or value.dtype.isbuiltin == 2
        value = value.item() if value.ndim == 0 and known else None
        value = float(value) if value is not None and not isinstance(value, Real) else value
    if not isinstance(value, Real):
        raise bad(value, dtype, "a number")
    return value


# -- fill values: integers and complex numbers ----------------------------------------------------


def _read_integer(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    limits = _library().iinfo(dtype)
    if type(value) is not int or not limits.min <= value <= limits.max:
        raise bad(value, dtype, f"an integer from {limits.min} to {limits.max}")
    return np.array(value, dtype)


def _cast_integer(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    number = _real(value, dtype)
    whole = int(number) if number == number and abs(number) < 256 else None
    return _read_integer(whole if whole == number else value, dtype)


_INTEGER = FillForm(_read_integer, int, _cast_integer)


def _read_pair(read: Any, part: np.dtype[Any], value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    if not isinstance(value, list) or len(value) != 2:
        raise bad(value, dtype, "a pair [real, imaginary]")
    return np.stack([read(number, part) for number in value]).view(dtype)[0, ...]


def _write_pair(write: Any, part: np.dtype[Any], fill: AnyArray) -> JSON:
    parts = fill.reshape(1).view(part)
    return [write(parts[0, ...]), write(parts[1, ...])]


def _cast_pair(part: np.dtype[Any], value: Any, dtype: np.dtype[Any]) -> AnyArray:
    if isinstance(value, list | tuple):
        pair = list(value)
    else:
        if not isinstance(value, Complex) and not (isinstance(value, np.ndarray | np.generic) and value.ndim == 0):
            raise bad(value, dtype, "a complex number")
        try:
            number = complex(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise bad(value, dtype, "a complex number") from error
        pair = [number.real, number.imag]
    if len(pair) != 2:
        raise bad(value, dtype, "a pair [real, imaginary]")
    form = forms.FLOAT if part.kind == "f" else _float(part.name).form
    return np.stack([form.cast(number, part) for number in pair]).view(dtype)[0, ...]
