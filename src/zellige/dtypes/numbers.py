"""Numbers: booleans, integers, floats and complex numbers, those of numpy and the small ones of `ml_dtypes`.

ml_dtypes is imported when the first of its types is met. Its own casts round twice on the way from float64, so fill
values of its types are rounded here, exactly and half to even.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from numbers import Rational
from typing import Any, NamedTuple

import numpy as np

from zellige.dtypes.base import DataType, only_keys
from zellige.dtypes.cast import limits
from zellige.dtypes.fill import hex_bits, is_finite
from zellige.errors import UnknownDataTypeError
from zellige.types import JSON, AnyArray


class _Codes(NamedTuple):
    """The bits of a float type as integers; those of positive numbers ascend with the numbers."""

    bits: int
    largest: int
    """The code of the largest finite number."""
    infinity: int | None
    nan: int | None
    """The code that is spelt "NaN" (spec 4.3)."""
    signed: bool = True


_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int2", "int4", "uint2", "uint4")
_FLOATS = {
    "float16": _Codes(16, 0x7BFF, 0x7C00, 0x7E00),
    "float32": _Codes(32, 0x7F7FFFFF, 0x7F800000, 0x7FC00000),
    "float64": _Codes(64, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000),
    "bfloat16": _Codes(16, 0x7F7F, 0x7F80, 0x7FC0),
    "float4_e2m1fn": _Codes(4, 0x07, None, None),
    "float6_e2m3fn": _Codes(6, 0x1F, None, None),
    "float6_e3m2fn": _Codes(6, 0x1F, None, None),
    "float8_e3m4": _Codes(8, 0x6F, 0x70, 0x78),
    "float8_e4m3": _Codes(8, 0x77, 0x78, 0x7C),
    "float8_e4m3b11fnuz": _Codes(8, 0x7F, None, 0x80),
    "float8_e4m3fn": _Codes(8, 0x7E, None, 0x7F),  # not registered, but written by TensorStore
    "float8_e4m3fnuz": _Codes(8, 0x7F, None, 0x80),
    "float8_e5m2": _Codes(8, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": _Codes(8, 0x7F, None, 0x80),
    "float8_e8m0fnu": _Codes(8, 0xFE, None, 0xFF, signed=False),
}
_COMPLEX = {
    "complex64": ("float32", "complex64"),
    "complex128": ("float64", "complex128"),
    "complex_float16": ("float16", "complex32"),
    "complex_bfloat16": ("bfloat16", "bcomplex32"),
}
"""The types of the parts, and the names that numpy and ml_dtypes have for the pair."""
_ALIASES = {"complex_float32": "complex64", "complex_float64": "complex128"}
_BY_NUMPY = {numpy: name for name, (_, numpy) in _COMPLEX.items()}

NAMES = ("bool", *_INTEGERS, *_FLOATS, *_COMPLEX, *(f"complex_{part}" for part in _FLOATS))
"""The names of numbers; of most complex ones there is no numpy type, which their error says."""


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """One of these types by its name."""
    only_keys(name, configuration)
    return _number(_ALIASES.get(name, name))


def from_numpy(dtype: np.dtype[Any]) -> DataType | None:
    """The data type of a number of numpy or ml_dtypes; None for one that Zarr does not have."""
    name = _BY_NUMPY.get(dtype.name, dtype.name)
    return _number(name) if name in NAMES else None


@cache
def _number(name: str) -> DataType:
    if name == "bool":
        return Bool.of(name, np.dtype(bool))
    if name in _INTEGERS:
        return Integer.of(name, _numpy(name, name))
    if name in _FLOATS:
        return Float.of(name, _numpy(name, name))
    if name not in _COMPLEX:
        part = name.removeprefix("complex_")
        raise UnknownDataTypeError(
            f"data_type {name!r}: numpy cannot hold complex numbers of {part}; store the parts as {part} instead"
        )
    part, numpy = _COMPLEX[name]
    return Complex.of(name, _numpy(numpy, name), part=_number(part))


def _numpy(name: str, ours: str) -> np.dtype[Any]:
    """The type of numpy or of ml_dtypes with this name."""
    scalar = getattr(np, name, None)
    if scalar is None:
        try:
            scalar = getattr(import_module("ml_dtypes"), name, None)
        except ImportError as error:
            raise ImportError("small numbers such as bfloat16 need ml_dtypes: pip install 'zellige[ml]'") from error
    if scalar is None:
        raise UnknownDataTypeError(f"data_type {ours!r} needs a newer ml_dtypes: pip install -U ml_dtypes")
    found: np.dtype[Any] = np.dtype(scalar)
    return found


class _Number(DataType):
    """What the families of numbers share."""

    __slots__ = ()

    def _cast(self, value: Any) -> AnyArray | None:
        """A user's number by the rules for elements, but text is what metadata spells."""
        if isinstance(value, str):
            return self._read(value)
        is_text = isinstance(value, bytes | np.ndarray) and np.asarray(value).dtype.kind in "UST"
        return None if is_text else self._nearest(value)

    def _nearest(self, value: Any) -> AnyArray | None:
        return self._element(value, self.numpy)


class Bool(_Number):
    """Booleans."""

    __slots__ = ()

    def _expected(self) -> str:
        return "true or false"

    def _read(self, value: JSON) -> AnyArray | None:
        is_bool = type(value) in (bool, int) and value in (0, 1)  # some writers put 0 and 1 there
        return np.array(value, self.numpy) if is_bool else None

    def write_fill(self, fill: AnyArray) -> JSON:
        """True or false."""
        return bool(fill)


class Integer(_Number):
    """Integers."""

    __slots__ = ()

    def _expected(self) -> str:
        low, high = limits(self.numpy)
        return f"an integer from {low} to {high}"

    def _read(self, value: JSON) -> AnyArray | None:
        low, high = limits(self.numpy)
        return np.array(value, self.numpy) if type(value) is int and low <= value <= high else None

    def write_fill(self, fill: AnyArray) -> JSON:
        """The integer."""
        return int(fill)


class Float(_Number):
    """Floats: numbers, "NaN", "Infinity" and "-Infinity", or the bits in hex."""

    __slots__ = ()

    def _expected(self) -> str:
        codes = self._codes
        largest = self._number(codes.largest)
        low = f"-{largest:g}" if codes.signed else "above 0"
        words = ['"NaN"'] * (codes.nan is not None) + ['"Infinity", "-Infinity"'] * (codes.infinity is not None)
        numbers = "a number" if codes.infinity is not None else f"a number from {low} to {largest:g}"
        return f'{", ".join([numbers, *words])} or "0x" and {2 * self.numpy.itemsize} hex digits'

    def _read(self, value: JSON) -> AnyArray | None:
        if isinstance(value, str):
            return self._with_code(self._spelled(value))
        return self._with_code(self._nearest_code(value)) if is_finite(value) else None

    def write_fill(self, fill: AnyArray) -> JSON:
        """A number where JSON has one, else a word, or the bits of an unusual NaN."""
        number = float(fill)
        if math.isfinite(number):
            return number
        if math.isinf(number):
            return "Infinity" if number > 0 else "-Infinity"
        code = int(fill.view(f"u{fill.itemsize}"))
        return "NaN" if code == self._codes.nan else f"0x{code:0{2 * fill.itemsize}x}"

    def _nearest(self, value: Any) -> AnyArray | None:
        if self.numpy.isbuiltin == 1:
            return self._element(value, self.numpy)
        number = value
        if isinstance(value, np.generic) or not isinstance(value, float | Rational):
            element = self._element(value, np.dtype(float))
            if element is None:
                return None
            number = element.item()
        code, is_finite = self._nearest_code(number), number == number and abs(number) != math.inf
        # A large number is not meant as infinity, nor zero as the least number.
        is_lost = is_finite and code is not None and code & ~self._sign > self._codes.largest
        return None if is_lost or (number == 0 and not self._sign) else self._with_code(code)

    @property
    def _codes(self) -> _Codes:
        return _FLOATS[self.name]

    # -- codes ------------------------------------------------------------------------------------

    @property
    def _sign(self) -> int:
        return 1 << (self._codes.bits - 1) if self._codes.signed else 0

    def _with_code(self, code: int | None) -> AnyArray | None:
        """The float with a code; None for none."""
        # Through an integer, so that the value never passes through a float register that might quiet a NaN.
        return None if code is None else np.array(code, f"u{self.numpy.itemsize}").view(self.numpy)

    def _number(self, code: int) -> float:
        return float(np.array(code, f"u{self.numpy.itemsize}").view(self.numpy))

    def _spelled(self, text: str) -> int | None:
        """The code that a word or hex digits spell; None if the type has none."""
        if text in ("Infinity", "+Infinity"):
            return self._codes.infinity
        if text == "-Infinity":
            return self._opposite(self._codes.infinity)
        if text == "NaN":
            return self._codes.nan
        bits = hex_bits(text, 2 * self.numpy.itemsize)
        return None if bits is None or bits >> self._codes.bits else bits

    def _opposite(self, code: int | None) -> int | None:
        """The code of the opposite number; None if there is none."""
        if code is None or not self._sign:
            return None
        # Where the code of -0 is NaN's, there is one zero only.
        return code if code == 0 and self._codes.nan == self._sign else code | self._sign

    def _nearest_code(self, number: Any) -> int | None:
        """The code of the nearest number, half to even; None if the type has none."""
        if self.numpy.isbuiltin == 1:  # numpy rounds once
            with np.errstate(over="ignore"):
                return int(np.array(number, self.numpy).view(f"u{self.numpy.itemsize}"))
        if number != number:
            return self._codes.nan
        size, largest = abs(number), self._codes.largest
        code = bisect_left(range(largest + 1), size, key=self._middle)
        if code <= largest and code % 2 and size == self._middle(code):
            code += 1
        found = code if code <= largest else self._codes.infinity
        is_negative = number < 0 or (number == 0 and math.copysign(1, number) < 0)
        return self._opposite(found) if is_negative else found

    def _middle(self, code: int) -> float:
        """The number half way from one code to the next, which a double holds exactly."""
        number = self._number(code)
        if code < self._codes.largest:
            return (number + self._number(code + 1)) / 2
        return number + (number - self._number(code - 1)) / 2


@dataclass(frozen=True, slots=True, repr=False)
class Complex(_Number):
    """Complex numbers, as pairs of floats."""

    part: DataType = field(kw_only=True, compare=False)

    def _expected(self) -> str:
        return "a pair [real, imaginary]"

    def _read(self, value: JSON) -> AnyArray | None:
        if not isinstance(value, list) or len(value) != 2:
            return None
        return self._joined([self.part.read_fill(number) for number in value])

    def write_fill(self, fill: AnyArray) -> JSON:
        """The pair of both parts."""
        parts = fill.reshape(1).view(self.part.numpy)
        return [self.part.write_fill(parts[0, ...]), self.part.write_fill(parts[1, ...])]

    def _cast(self, value: Any) -> AnyArray | None:
        if not isinstance(value, list | tuple):
            return _Number._cast(self, value)
        is_pair = len(value) == 2 and None not in value
        return self._joined([self.part.cast_fill(number) for number in value]) if is_pair else None

    def _nearest(self, value: Any) -> AnyArray | None:
        element = self._element(value, np.dtype(complex))
        return None if element is None else self._cast((element.item().real, element.item().imag))

    def _joined(self, parts: list[AnyArray]) -> AnyArray:
        return np.stack(parts).view(self.numpy)[0, ...]
