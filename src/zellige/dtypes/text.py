"""Text: `string` of any length, and `fixed_length_utf32`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zellige.dtypes.base import FIELD, DataType, integer, only_keys
from zellige.dtypes.fill import FillForm, bad
from zellige.dtypes.storage import Storage
from zellige.errors import MetadataError, UnknownDataTypeError
from zellige.types import JSON, AnyArray

_MAX_BYTES = 2**31 - 1  # of numpy


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """`string`, or `fixed_length_utf32` with `length_bytes`."""
    if name == "string":
        only_keys(name, configuration)
        return _STRING
    only_keys(name, configuration, "length_bytes")
    length = integer(configuration, "length_bytes", 4, _MAX_BYTES)
    if length % 4:
        raise MetadataError(
            f"{FIELD}.length_bytes must be a multiple of 4, found {length}", field=f"{FIELD}.length_bytes"
        )
    return _fixed(length)


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of numpy's `U<n>` and `StringDType`."""
    if dtype.kind == "T":
        return _STRING
    if not dtype.itemsize:
        raise UnknownDataTypeError(
            f"numpy type {dtype} has no length; say dtype='string' for any length, or e.g. 'U10'", field="data_type"
        )
    return _fixed(dtype.itemsize)


def _fixed(length: int) -> DataType:
    numpy = np.dtype(f"U{length // 4}")
    storage = Storage(numpy, texts=((0, length),))
    return DataType("fixed_length_utf32", numpy, _FIXED, True, {"length_bytes": length}, storage=storage)


def _text(value: Any, dtype: np.dtype[Any]) -> str:
    """A string that can be written as Unicode; half a surrogate pair cannot."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, str):
        raise bad(value, dtype, "a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise bad(value, dtype, "a string of whole characters") from error
    return str(value)


def _read_string(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    return np.array(_text(value, dtype), dtype)


def _read_fixed(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    text = _text(value, dtype).rstrip("\0")
    if len(text) > dtype.itemsize // 4:
        raise bad(value, dtype, f"at most {dtype.itemsize // 4} characters")
    fill = np.zeros((), dtype)  # which costs nothing until it is touched, however long a document says it is
    fill.reshape(1).view(np.uint32)[: len(text)] = np.frombuffer(text.encode("utf-32-le"), "<u4")
    return fill


def _write(fill: AnyArray) -> str:
    return str(fill[()])


_STRING = DataType(
    "string",
    np.dtypes.StringDType(),
    FillForm(_read_string, _write, _read_string),
    endian=False,
    codec="vlen-utf8",
)
_FIXED = FillForm(_read_fixed, _write, _read_fixed)
