"""Data types by the names that zarr-python has for them, for `dtype=` and for `isinstance`.

>>> Int16(), Int16() == parse_dtype("int16")
(DataType(name='int16', numpy=dtype('int16'), endian=True, configuration=None, codec='bytes'), True)
>>> isinstance(parse_dtype("int16"), Int16), isinstance(parse_dtype("int16"), Int32)
(True, False)

A class stands for itself where it needs no parameters: `dtype=Int16` is `dtype=Int16()`. Further types, such as
bfloat16, are known by their names in metadata: `dtype="bfloat16"`.
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
    """Return the data type of whatever can be given as `dtype=`; the same for both formats.

    >>> parse_dtype("<u2").name, parse_dtype(Bool).name, parse_dtype([("x", "i4")]).name
    ('uint16', 'bool', 'struct')

    Parameters
    ----------
    dtype_spec
        A name, a numpy or Python type, a class of this module, a data type, or JSON as in metadata.
    zarr_format
        Accepted and checked, and no more.

    """
    if zarr_format not in (2, 3):
        raise ValueError(f"zarr_format must be 2 or 3, found {zarr_format!r}")
    return dtype_spec() if isinstance(dtype_spec, _Kind) else dtypes.parse_dtype(dtype_spec)


# -- what the classes share -----------------------------------------------------------------------


_KINDS: dict[str, type] = {}


class _Kind(type):
    """A class whose instances are the `DataType`s of its name, wherever they come from."""

    name: str

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, DataType):
            return False
        return cls.name == ("raw_bytes" if instance.name.removeprefix("r").isdigit() else instance.name)

    @property
    def dtype(cls) -> np.dtype[Any]:
        """Where numpy looks for the type, when the class itself is given for one."""
        found: DataType = cls()
        return found.numpy


class _Named(DataType, metaclass=_Kind):
    """A class for a name in metadata."""

    def __init_subclass__(cls, name: str = "") -> None:
        if name:
            cls.name = name
            _KINDS[name] = cls


class _Plain(_Named):
    """A type without parameters."""

    def __new__(cls) -> Any:
        return from_json(cls.name)


class _Number(_Named):
    """Numbers of more than one byte."""

    def __new__(cls, *, endianness: Endianness = "little") -> Any:
        return _make(cls.name, endianness)


class _Time(_Named):
    """Times of a unit, or of some of them."""

    def __new__(cls, unit: str = "generic", scale_factor: int = 1, *, endianness: Endianness = "little") -> Any:
        return _make(cls.name, endianness, unit=unit, scale_factor=index(scale_factor))


class _Bytes(_Named):
    """Bytes of one length."""

    def __new__(cls, length: int) -> Any:
        return _make(cls.name, length_bytes=index(length))


def _make(name: str, endianness: Endianness = "little", **configuration: Any) -> DataType:
    if endianness not in ("little", "big"):
        raise ValueError(f"endianness must be 'little' or 'big', found {endianness!r}")
    return from_json({"name": name, "configuration": configuration})


# -- numbers --------------------------------------------------------------------------------------


class Bool(_Plain, name="bool"):
    """True or False."""


class Int8(_Plain, name="int8"):
    """Integers of 8 bits."""


class Int16(_Number, name="int16"):
    """Integers of 16 bits."""


class Int32(_Number, name="int32"):
    """Integers of 32 bits."""


class Int64(_Number, name="int64"):
    """Integers of 64 bits."""


class UInt8(_Plain, name="uint8"):
    """Integers of 8 bits, without a sign."""


class UInt16(_Number, name="uint16"):
    """Integers of 16 bits, without a sign."""


class UInt32(_Number, name="uint32"):
    """Integers of 32 bits, without a sign."""


class UInt64(_Number, name="uint64"):
    """Integers of 64 bits, without a sign."""


class Float16(_Number, name="float16"):
    """Floats of 16 bits."""


class Float32(_Number, name="float32"):
    """Floats of 32 bits."""


class Float64(_Number, name="float64"):
    """Floats of 64 bits."""


class Complex64(_Number, name="complex64"):
    """Pairs of floats of 32 bits."""


class Complex128(_Number, name="complex128"):
    """Pairs of floats of 64 bits."""


# -- times ----------------------------------------------------------------------------------------


class DateTime64(_Time, name="numpy.datetime64"):
    """Points in time, counted in a unit of numpy or in some of them.

    >>> DateTime64("s").numpy, DateTime64(unit="us", scale_factor=10).numpy
    (dtype('<M8[s]'), dtype('<M8[10us]'))

    Parameters
    ----------
    unit
        The unit as numpy names it, from "Y" to "as", or "generic" for none.
    scale_factor
        How many units make one step.
    endianness
        Accepted and checked, and no more.

    """


class TimeDelta64(_Time, name="numpy.timedelta64"):
    """Spans of time. Parameters: see `DateTime64`."""


# -- text and bytes -------------------------------------------------------------------------------


class VariableLengthUTF8(_Plain, name="string"):
    """Text of any length."""


class FixedLengthUTF32(_Named, name="fixed_length_utf32"):
    """Text of at most `length` characters.

    >>> FixedLengthUTF32(length=10).numpy
    dtype('<U10')

    Parameters
    ----------
    length
        The most characters of an element.
    endianness
        Accepted and checked, and no more.

    """

    def __new__(cls, length: int, *, endianness: Endianness = "little") -> Any:
        """Return the type of this length."""
        return _make(cls.name, endianness, length_bytes=4 * index(length))


class VariableLengthBytes(_Plain, name="bytes"):
    """Bytes of any length."""


class NullTerminatedBytes(_Bytes, name="null_terminated_bytes"):
    """At most `length` bytes, where zeros at the end do not count.

    >>> NullTerminatedBytes(length=10).numpy
    dtype('S10')

    Parameters
    ----------
    length
        The most bytes of an element.

    """


class RawBytes(_Bytes, name="raw_bytes"):
    """Exactly `length` bytes. Named as zarr-python reads it; `r<bits>` of the specification is one, too.

    >>> RawBytes(length=4).numpy, isinstance(parse_dtype("r32"), RawBytes)
    (dtype('V4'), True)

    Parameters
    ----------
    length
        The bytes of an element.

    """


# -- structs --------------------------------------------------------------------------------------


class Struct(_Named, name="struct"):
    """Named fields, each with a type; given as pairs or as a mapping.

    >>> Struct(fields=[("x", Float32()), ("n", "int16")]).numpy
    dtype([('x', '<f4'), ('n', '<i2')])

    Parameters
    ----------
    fields
        The name and the data type of each field, as pairs or as a mapping.

    """

    def __new__(cls, fields: Iterable[tuple[str, Any]] | Mapping[str, Any]) -> Any:
        """Return the type of these fields."""
        pairs = fields.items() if isinstance(fields, Mapping) else fields
        members = [{"name": name, "data_type": parse_dtype(member).to_json()} for name, member in pairs]
        return _make(cls.name, fields=members)


Structured = Struct

data_type_registry: Mapping[str, type] = MappingProxyType(
    {**_KINDS, "variable_length_bytes": VariableLengthBytes, "structured": Structured}
)
"""The classes by the names in metadata; read-only."""
