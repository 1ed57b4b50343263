"""Data types by the names that zarr-python has for them, for `dtype=` and for `isinstance`.

>>> Int16(), Int16() == parse_dtype("int16")
(DataType(name='int16', numpy=dtype('int16'), endian=True, configuration=None, codec='bytes'), True)
>>> isinstance(parse_dtype("int16"), Int16), isinstance(parse_dtype("int16"), Int32)
(True, False)

A class stands for itself where it needs no parameters: `dtype=Int16` is `dtype=Int16()`. Further types, such as
bfloat16, are known by their names in documents: `dtype="bfloat16"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from zellige import dtypes
from zellige.dtypes import DataType, from_json

ZDType = DataType
Endianness: TypeAlias = Literal["little", "big"]
"""Accepted and checked, and no more: in memory the order is this machine's, in stored bytes the `bytes` codec's."""


def parse_dtype(dtype_spec: Any, *, zarr_format: Literal[2, 3] = 3) -> DataType:
    """The data type of whatever can be given as `dtype=`; the same for both formats.

    >>> parse_dtype("<u2").name, parse_dtype(Bool).name, parse_dtype([("x", "i4")]).name
    ('uint16', 'bool', 'struct')
    """
    if zarr_format not in (2, 3):
        raise ValueError(f"zarr_format must be 2 or 3, found {zarr_format!r}")
    return dtype_spec() if isinstance(dtype_spec, _Kind) else dtypes.parse_dtype(dtype_spec)


# -- what the classes share -----------------------------------------------------------------------


class _Kind(type):
    """A class whose instances are the `DataType`s of its name, wherever they come from."""

    name: str

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, DataType) and _name_of(instance) == cls.name

    @property
    def dtype(cls) -> np.dtype[Any]:
        """Where numpy looks for the type, when the class itself is given for one."""
        found: DataType = cls()
        return found.numpy


def _name_of(found: DataType) -> str:
    return RawBytes.name if found.name.removeprefix("r").isdigit() else found.name


class _Plain(DataType, metaclass=_Kind):
    """A type without parameters."""

    def __new__(cls) -> Any:
        return from_json(cls.name)


class _Number(DataType, metaclass=_Kind):
    """Numbers of more than one byte."""

    def __new__(cls, *, endianness: Endianness = "little") -> Any:
        return _make(cls.name, endianness)


class _Time(DataType, metaclass=_Kind):
    """Times of a unit, or of some of them."""

    def __new__(cls, unit: str = "generic", scale_factor: int = 1, *, endianness: Endianness = "little") -> Any:
        return _make(cls.name, endianness, unit=unit, scale_factor=index(scale_factor))


class _Bytes(DataType, metaclass=_Kind):
    """Bytes of one length."""

    def __new__(cls, length: int) -> Any:
        return _make(cls.name, length_bytes=index(length))


def _make(name: str, endianness: Endianness = "little", **configuration: Any) -> DataType:
    if endianness not in ("little", "big"):
        raise ValueError(f"endianness must be 'little' or 'big', found {endianness!r}")
    return from_json({"name": name, "configuration": configuration})


# -- numbers --------------------------------------------------------------------------------------


class Bool(_Plain):
    """True or False."""

    name = "bool"


class Int8(_Plain):
    """Integers of 8 bits."""

    name = "int8"


class Int16(_Number):
    """Integers of 16 bits."""

    name = "int16"


class Int32(_Number):
    """Integers of 32 bits."""

    name = "int32"


class Int64(_Number):
    """Integers of 64 bits."""

    name = "int64"


class UInt8(_Plain):
    """Integers of 8 bits, without a sign."""

    name = "uint8"


class UInt16(_Number):
    """Integers of 16 bits, without a sign."""

    name = "uint16"


class UInt32(_Number):
    """Integers of 32 bits, without a sign."""

    name = "uint32"


class UInt64(_Number):
    """Integers of 64 bits, without a sign."""

    name = "uint64"


class Float16(_Number):
    """Floats of 16 bits."""

    name = "float16"


class Float32(_Number):
    """Floats of 32 bits."""

    name = "float32"


class Float64(_Number):
    """Floats of 64 bits."""

    name = "float64"


class Complex64(_Number):
    """Pairs of floats of 32 bits."""

    name = "complex64"


class Complex128(_Number):
    """Pairs of floats of 64 bits."""

    name = "complex128"


# -- times ----------------------------------------------------------------------------------------


class DateTime64(_Time):
    """Points in time, counted in a unit of numpy or in some of them.

    >>> DateTime64("s").numpy, DateTime64(unit="us", scale_factor=10).numpy
    (dtype('<M8[s]'), dtype('<M8[10us]'))
    """

    name = "numpy.datetime64"


class TimeDelta64(_Time):
    """Spans of time. Parameters: see `DateTime64`."""

    name = "numpy.timedelta64"


# -- text and bytes -------------------------------------------------------------------------------


class VariableLengthUTF8(_Plain):
    """Text of any length."""

    name = "string"


class FixedLengthUTF32(DataType, metaclass=_Kind):
    """Text of at most `length` characters.

    >>> FixedLengthUTF32(length=10).numpy
    dtype('<U10')
    """

    name = "fixed_length_utf32"

    def __new__(cls, length: int, *, endianness: Endianness = "little") -> Any:
        """The type of this length."""
        return _make(cls.name, endianness, length_bytes=4 * index(length))


class VariableLengthBytes(_Plain):
    """Bytes of any length."""

    name = "bytes"


class NullTerminatedBytes(_Bytes):
    """At most `length` bytes, where zeros at the end do not count.

    >>> NullTerminatedBytes(length=10).numpy
    dtype('S10')
    """

    name = "null_terminated_bytes"


class RawBytes(_Bytes):
    """Exactly `length` bytes. Named as zarr-python reads it; `r<bits>` of the specification is one, too.

    >>> RawBytes(length=4).numpy, isinstance(parse_dtype("r32"), RawBytes)
    (dtype('V4'), True)
    """

    name = "raw_bytes"


# -- structs --------------------------------------------------------------------------------------


class Struct(DataType, metaclass=_Kind):
    """Named fields, each with a type; given as pairs or as a mapping.

    >>> Struct(fields=[("x", Float32()), ("n", "int16")]).numpy
    dtype([('x', '<f4'), ('n', '<i2')])
    """

    name = "struct"

    def __new__(cls, fields: Iterable[tuple[str, Any]] | Mapping[str, Any]) -> Any:
        """The type of these fields."""
        pairs = fields.items() if isinstance(fields, Mapping) else fields
        members = [{"name": name, "data_type": parse_dtype(member).to_json()} for name, member in pairs]
        return _make(cls.name, fields=members)


Structured = Struct

_KINDS: list[_Kind] = [Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64]
_KINDS += [Complex64, Complex128, DateTime64, TimeDelta64, VariableLengthUTF8, FixedLengthUTF32]
_KINDS += [VariableLengthBytes, NullTerminatedBytes, RawBytes, Struct]

data_type_registry: Mapping[str, type] = MappingProxyType(
    {kind.name: kind for kind in _KINDS} | {"variable_length_bytes": VariableLengthBytes, "structured": Structured}
)
"""The classes by the names in documents; read-only."""
