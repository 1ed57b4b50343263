"""Bytes: `bytes` of any length, and those of one length that other writers name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zellige.dtypes import fill as forms
from zellige.dtypes.base import DataType, integer, only_keys
from zellige.dtypes.fill import FillForm, bad
from zellige.errors import UnknownDataTypeError
from zellige.types import JSON, AnyArray

_MAX_BYTES = 2**31 - 1  # of numpy


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """`bytes` by either name, `null_terminated_bytes` or `raw_bytes` with `length_bytes`.

    `variable_length_bytes`, which zarr-python writes, is written back as `bytes`, which it reads as well.
    """
    if name in ("bytes", "variable_length_bytes"):
        only_keys(name, configuration)
        return _BYTES
    only_keys(name, configuration, "length_bytes")
    length = integer(configuration, "length_bytes", 1, _MAX_BYTES)
    if name == "raw_bytes":
        return DataType(name, np.dtype(f"V{length}"), forms.RAW_BASE64, False, {"length_bytes": length})
    return _terminated(length)


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of numpy's `S<n>`."""
    if not dtype.itemsize:
        raise UnknownDataTypeError(
            f"numpy type {dtype} has no length; say dtype='bytes' for any length, or e.g. 'S10'", field="data_type"
        )
    return _terminated(dtype.itemsize)


def _terminated(length: int) -> DataType:
    return DataType("null_terminated_bytes", np.dtype(f"S{length}"), _FIXED, False, {"length_bytes": length})


# -- fill values ----------------------------------------------------------------------------------


def _as_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "OS":
        value = value.item()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise bad(value, dtype, "bytes")
    return bytes(value)


def _read(value: JSON, dtype: np.dtype[Any]) -> bytes:
    data = forms.read_bytes(value)
    if data is None:
        raise bad(value, dtype, "base64, or a list of integers from 0 to 255")
    return data


def _boxed(data: bytes) -> AnyArray:
    fill = np.empty((), object)
    fill[()] = data
    return fill


def _padded(data: bytes, dtype: np.dtype[Any]) -> AnyArray:
    data = data.rstrip(b"\0")
    if len(data) > dtype.itemsize:
        raise bad(data, dtype, f"at most {dtype.itemsize} bytes")
    fill = np.zeros((), dtype)  # which costs nothing until it is touched, however long a document says it is
    fill.reshape(1).view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
    return fill


_BYTES = DataType(
    "bytes",
    np.dtype(object),
    FillForm(
        lambda value, dtype: _boxed(_read(value, dtype)),
        lambda fill: forms.to_base64(fill.item()),
        lambda value, dtype: _boxed(_as_bytes(value, dtype)),
        lambda dtype: _boxed(b""),
    ),
    endian=False,
    codec="vlen-bytes",
)
_FIXED = FillForm(
    lambda value, dtype: _padded(_read(value, dtype), dtype),
    lambda fill: forms.to_base64(fill.item()),
    lambda value, dtype: _padded(_as_bytes(value, dtype), dtype),
)
