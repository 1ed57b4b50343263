"""Text and bytes: of any length (`string`, `bytes`), and of one length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from zellige.dtypes.base import FIELD, MOST_BYTES, DataType, integer, only_keys
from zellige.dtypes.fill import boxed, padded, read_bytes, to_base64
from zellige.errors import MetadataError, UnknownDataTypeError, fail
from zellige.types import JSON, AnyArray


def _is_text(value: Any) -> bool:
    """Whether this is a string that can be written as Unicode; half a surrogate pair cannot."""
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
        """The text."""
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
        """The bytes in base64."""
        return to_base64(fill.item())


class Bytes(FixedBytes):
    """Bytes of any length."""

    __slots__ = ()
    codec: ClassVar[str] = "vlen-bytes"

    def _expected(self) -> str:
        return "base64, or a list of integers from 0 to 255"

    def default(self) -> AnyArray:
        """No bytes."""
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
        """The bytes, as the type has them."""
        data = fill.tobytes()
        return list(data) if self.configuration is None else to_base64(data)

    def _cast(self, value: Any) -> AnyArray | None:
        value = value.tobytes() if isinstance(value, np.void) else value
        return self._read(list(value) if isinstance(value, bytes | bytearray | memoryview | tuple) else value)


_STRING = Text.of("string", np.dtypes.StringDType())
_BYTES = Bytes.of("bytes", np.dtype(object))
_FIXED: dict[str, tuple[type[DataType], str, int]] = {
    "fixed_length_utf32": (FixedText, "U", 4),
    "null_terminated_bytes": (FixedBytes, "S", 1),
    "raw_bytes": (RawBytes, "V", 1),
}
"""The types with a length: their classes, numpy's letters for them, and how many bytes it counts as one."""
_BY_NUMPY = {"U": "fixed_length_utf32", "S": "null_terminated_bytes"}


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """One of these types: by its name alone, or with `length_bytes`.

    `variable_length_bytes`, which zarr-python writes, is written back as `bytes`, which it reads as well.
    """
    if name in _FIXED:
        only_keys(name, configuration, "length_bytes")
        unit = _FIXED[name][2]
        length = integer(configuration, "length_bytes", unit, MOST_BYTES)
        if length % unit:
            fail(f"{FIELD}.length_bytes", f"a multiple of {unit}", length)
        return _fixed(name, length)
    only_keys(name, configuration)
    if name in ("bytes", "variable_length_bytes"):
        return _BYTES
    return _STRING if name == "string" else _raw_bits(name)


def from_numpy(dtype: np.dtype[Any]) -> DataType | None:
    """The data type of numpy's `U<n>`, `S<n>`, `V<n>` and `StringDType`; None for one that Zarr does not have."""
    if dtype.kind == "T":
        return _STRING
    if dtype.kind == "V":
        return None if dtype.subdtype is not None or not dtype.itemsize else _raw_bits(f"r{8 * dtype.itemsize}")
    if not dtype.itemsize:
        anyway = "string" if dtype.kind == "U" else "bytes"
        raise UnknownDataTypeError(
            f"numpy type {dtype} has no length; say dtype={anyway!r} for any length, or e.g. '{dtype.kind}10'"
        )
    return _fixed(_BY_NUMPY[dtype.kind], dtype.itemsize)


def _fixed(name: str, length: int) -> DataType:
    family, letter, unit = _FIXED[name]
    return family.of(name, np.dtype(f"{letter}{length // unit}"), {"length_bytes": length})


def _raw_bits(name: str) -> DataType:
    bits = int(name[1:])
    if bits == 0 or bits % 8:
        raise MetadataError(
            f"data_type {name!r}: the number of bits must be a positive multiple of 8", field="data_type"
        )
    if bits > 8 * MOST_BYTES:
        raise MetadataError(f"data_type {name!r}: larger than numpy can hold", field="data_type")
    return RawBytes.of(name, np.dtype(f"V{bits // 8}"))
