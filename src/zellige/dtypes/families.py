"""The families of data types: how each spells its fill values, and what it takes for one (spec: Data types).

Casts of ml_dtypes round twice on the way from float64, so fill values of its types are rounded here, exactly and half
to even.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Rational
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zellige.dtypes.base import DataType, Endian, Storage
from zellige.dtypes.cast import limits
from zellige.dtypes.fill import boxed, hex_bits, is_finite, padded, read_bytes, to_base64, unfit
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray

# -- numbers --------------------------------------------------------------------------------------


class _Codes(NamedTuple):
    """The bits of a float type as integers; those of positive numbers ascend with the numbers."""

    bits: int
    largest: int
    """The code of the largest finite number."""
    infinity: int | None
    nan: int | None
    """The code that is spelt "NaN" (spec 4.3)."""
    signed: bool = True


FLOATS = {
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


class _Number(DataType):
    """What the families of numbers share."""

    __slots__ = ()

    def _cast(self, value: Any) -> AnyArray | None:
        """Read a user's number by the rules for elements, but text as metadata spells it."""
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
        """Return true or false."""
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
        """Return the integer."""
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
        """Return a number where JSON has one, else a word, or the bits of an unusual NaN."""
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
        return FLOATS[self.name]

    # -- codes ------------------------------------------------------------------------------------

    @property
    def _sign(self) -> int:
        return 1 << (self._codes.bits - 1) if self._codes.signed else 0

    def _with_code(self, code: int | None) -> AnyArray | None:
        """Return the float with a code; None for none."""
        # Through an integer, so that the value never passes through a float register that might quiet a NaN.
        return None if code is None else np.array(code, f"u{self.numpy.itemsize}").view(self.numpy)

    def _number(self, code: int) -> float:
        return float(np.array(code, f"u{self.numpy.itemsize}").view(self.numpy))

    def _spelled(self, text: str) -> int | None:
        """Return the code that a word or hex digits spell; None if the type has none."""
        if text in ("Infinity", "+Infinity"):
            return self._codes.infinity
        if text == "-Infinity":
            return self._opposite(self._codes.infinity)
        if text == "NaN":
            return self._codes.nan
        bits = hex_bits(text, 2 * self.numpy.itemsize)
        return None if bits is None or bits >> self._codes.bits else bits

    def _opposite(self, code: int | None) -> int | None:
        """Return the code of the opposite number; None if there is none."""
        if code is None or not self._sign:
            return None
        # Where the code of -0 is NaN's, there is one zero only.
        return code if code == 0 and self._codes.nan == self._sign else code | self._sign

    def _nearest_code(self, number: Any) -> int | None:
        """Return the code of the nearest number, half to even; None if the type has none."""
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
        """Return the number half way from one code to the next, which a double holds exactly."""
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
        """Return the pair of both parts."""
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


# -- text and bytes -------------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    """Return whether this is a string that can be written as Unicode; half a surrogate pair cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Text(DataType):
    """Strings of any length."""

    __slots__ = ()
    codec: ClassVar[str] = "vlen-utf8"

    def _expected(self) -> str:
        return "a string of whole characters"

    def _read(self, value: Any) -> AnyArray | None:
        return np.array(str(value), self.numpy) if _is_text(value) else None

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return the text."""
        return str(fill[()])

    def _cast(self, value: Any) -> AnyArray | None:
        return self._read(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)


class FixedText(Text):
    """Text of at most some characters, in UTF-32, with zeros after those that are shorter."""

    __slots__ = ()
    codec: ClassVar[str] = "bytes"

    def _expected(self) -> str:
        return f"a string of at most {self.numpy.itemsize // 4} whole characters"

    def _read(self, value: Any) -> AnyArray | None:
        if not _is_text(value):
            return None
        data = value.rstrip("\0").encode("utf-32-le" if np.little_endian else "utf-32-be")
        return padded(data, self.numpy)


class FixedBytes(DataType):
    """At most some bytes, where zeros at the end do not count."""

    __slots__ = ()

    def _expected(self) -> str:
        return f"at most {self.numpy.itemsize} bytes, as base64 or a list of integers"

    def _read(self, value: JSON) -> AnyArray | None:
        data = read_bytes(value)
        return None if data is None else padded(data.rstrip(b"\0"), self.numpy)

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return the bytes in base64."""
        return to_base64(fill.item())


class Bytes(FixedBytes):
    """Bytes of any length."""

    __slots__ = ()
    codec: ClassVar[str] = "vlen-bytes"

    def _expected(self) -> str:
        return "base64, or a list of integers from 0 to 255"

    def default(self) -> AnyArray:
        """Return no bytes."""
        return boxed(b"")

    def _read(self, value: JSON) -> AnyArray | None:
        data = read_bytes(value)
        return None if data is None else boxed(data)


class RawBytes(DataType):
    """Exactly some bytes: `r<bits>`, with lists for fill values, and `raw_bytes` of zarr-python, with base64."""

    __slots__ = ()

    def _expected(self) -> str:
        return f"a list of {self.numpy.itemsize} integers from 0 to 255, or their base64"

    def _read(self, value: JSON) -> AnyArray | None:
        data = read_bytes(value)
        return np.frombuffer(data, self.numpy)[0, ...] if data and len(data) == self.numpy.itemsize else None

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return the bytes, as the type has them."""
        data = fill.tobytes()
        return list(data) if self.configuration is None else to_base64(data)

    def _cast(self, value: Any) -> AnyArray | None:
        value = value.tobytes() if isinstance(value, np.void) else value
        return self._read(list(value) if isinstance(value, bytes | bytearray | memoryview | tuple) else value)


# -- times ----------------------------------------------------------------------------------------

_LOW, _HIGH = limits(np.dtype(np.int64))
_NAT = "NaT"


class Time(DataType):
    """Counts of a unit, or of some of them; the least integer stands for no time at all."""

    __slots__ = ()

    def default(self) -> AnyArray:
        """Return "not a time", rather than the year 1970."""
        return np.array(_LOW).view(self.numpy)

    def _expected(self) -> str:
        return (
            f'an integer of 64 bits, "{_NAT}", or {"a date or a time" if self.numpy.kind == "M" else "a span of time"}'
        )

    def _read(self, value: JSON) -> AnyArray | None:
        count = _LOW if value == _NAT else value
        return np.array(count).view(self.numpy) if type(count) is int and _LOW <= count <= _HIGH else None

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return the count, or "NaT"."""
        return _NAT if np.isnat(fill) else int(fill.view(np.int64))

    def _cast(self, value: Any) -> AnyArray | None:
        """Read a user's value by the rules for elements, but spans of time have no text, and no times are bytes."""
        is_text = isinstance(value, str | bytes) and (self.numpy.kind == "m" or value == _NAT or type(value) is bytes)
        return self._read(value) if is_text else self._element(value, self.numpy)


# -- structs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Struct(DataType):
    """Elements with named fields."""

    fields: dict[str, DataType] = field(kw_only=True, compare=False)
    is_legacy: bool = field(kw_only=True, compare=False)
    """Whether metadata says `structured`, as zarr-python did, whose fill value may be base64 of packed bytes."""

    def default(self) -> AnyArray:
        """Return fields with the fill values that they have by themselves."""
        return self._filled({name: member.default() for name, member in self.fields.items()})

    def _expected(self) -> str:
        return f"a value for each of {', '.join(self.fields)}"

    def _read(self, value: JSON) -> AnyArray | None:
        if self.is_legacy and isinstance(value, str):
            data = read_bytes(value)
            return self.unpack(data, "little") if data and len(data) == self.numpy.itemsize else None
        if not isinstance(value, dict):
            return None
        if unknown := [name for name in value if name not in self.fields]:
            raise MetadataError(f"fill_value.{unknown[0]} is not a field", field=f"fill_value.{unknown[0]}")
        for name in self.fields:
            if name not in value:
                raise MetadataError(f"fill_value.{name} is missing; every field needs one", field=f"fill_value.{name}")
        return self._filled({n: _inside(n, member.read_fill, value[n]) for n, member in self.fields.items()})

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return an object with the value of each field."""
        return {name: member.write_fill(fill[name]) for name, member in self.fields.items()}

    def _cast(self, value: Any) -> AnyArray | None:
        """Read a tuple, a dict or a struct with a value for each field; or one value for all of them."""
        if isinstance(value, np.ndarray | np.void) and value.dtype.names is not None and value.ndim == 0:
            value = {name: value[name] for name in value.dtype.names}
        if isinstance(value, tuple | list) and len(value) == len(self.fields):
            value = dict(zip(self.fields, value, strict=True))
        elif isinstance(value, int | float | np.number):
            value = dict.fromkeys(self.fields, value)
        if not isinstance(value, Mapping) or value.keys() != self.fields.keys():
            return None
        return self._filled({n: _inside(n, member.cast_fill, value[n]) for n, member in self.fields.items()})

    def _filled(self, values: Mapping[str, AnyArray]) -> AnyArray:
        fill = np.zeros((), self.numpy)
        for name, value in values.items():
            fill[name] = value
        return fill

    def unpack(self, raw: bytes, endian: Endian) -> AnyArray:
        """Return one element out of its bytes."""
        storage = self.storage or Storage(self.numpy, is_partial=False, is_checked=False)
        try:
            return storage.decode(raw, (), self.numpy, endian).copy()
        except CodecError as error:
            raise unfit(raw, self.numpy, str(error)) from error


def _inside(name: str, make: Callable[[Any], AnyArray], value: Any) -> AnyArray:
    """Return what a field makes of its part of a fill value; errors name the field."""
    try:
        return make(value)
    except MetadataError as error:
        path = error.field.replace("fill_value", f"fill_value.{name}", 1)
        raise MetadataError(f"field {name!r}: {error}", field=path) from error
