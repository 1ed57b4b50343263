"""Fill values: how metadata spells their bits, and which elements equal them (spec: Data types, `fill_value`).

A fill value is held as a 0-d numpy array, because numpy keeps every bit of one: the sign of a zero and the payload of
a NaN survive. How each family of types reads and writes its own is in the class of the family.
"""

from __future__ import annotations

import math
import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import Any

import numpy as np

from zellige.errors import MetadataError, shown
from zellige.types import JSON, AnyArray


def unfit(value: Any, dtype: np.dtype[Any], reason: str) -> MetadataError:
    """Return the error for a fill value that the type cannot hold, with the reason."""
    return MetadataError(f"fill_value {shown(value)} does not fit {dtype}: {reason}", field="fill_value")


# -- spelling -------------------------------------------------------------------------------------


def is_finite(value: JSON) -> bool:
    """Return whether a JSON value is a number within the reach of floats; 1e400 is read as infinity by `json`."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def hex_bits(text: str, digits: int) -> int | None:
    """Return the bits that "0x" and exactly so many digits spell."""
    return int(text, 16) if re.fullmatch(rf"0x[0-9a-fA-F]{{{digits}}}", text) else None


def read_bytes(value: JSON) -> bytes | None:
    """Return what a list of integers or base64 spells; None if it is neither."""
    if isinstance(value, list) and all(type(b) is int and 0 <= b <= 255 for b in value):
        return bytes(value)
    if not isinstance(value, str):
        return None
    try:
        return a2b_base64(value, strict_mode=True)
    except (Base64Error, ValueError):
        return None


def to_base64(data: bytes) -> str:
    """Return the spelling that others read."""
    return b2a_base64(data, newline=False).decode()


# -- 0-d arrays -----------------------------------------------------------------------------------


def boxed(value: Any) -> AnyArray:
    """Return any object as a 0-d array that holds it."""
    box = np.empty((), object)
    box[()] = value
    return box


def padded(data: bytes, dtype: np.dtype[Any]) -> AnyArray | None:
    """Return an element that begins with these bytes, and has zeros after them; None if they are too many."""
    if len(data) > dtype.itemsize:
        return None
    fill = np.zeros((), dtype)  # which costs nothing until it is touched, however long metadata says it is
    fill.reshape(1).view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
    return fill


# -- comparing ------------------------------------------------------------------------------------


def equals_fill(array: AnyArray, fill: AnyArray) -> bool:
    """Return whether every element has the bits of the fill value: -0.0 is not 0.0, one NaN is not another."""
    if array.dtype.kind == "O":
        wanted = fill.item()
        return all(_same(item, wanted) for item in array.flat)
    if array.dtype.kind in "iuf":
        first, other = array.item(0), fill.item()
        if first != other and (first == first or other == other):  # not both NaN
            return False
    bits, wanted = _bits(array), _bits(fill)
    # One axis: for several, numpy (2.4 and before) takes buffers, and without memory for them it ends the process.
    return bool(bits[(0,) * bits.ndim] == wanted) and bool((bits.reshape(-1) == wanted).all())


def _bits(array: AnyArray) -> AnyArray:
    """Return the same elements as plain bits, which compare exactly; strings do so themselves."""
    size = array.dtype.itemsize
    if array.dtype.hasobject:
        return array
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def _same(item: Any, wanted: Any) -> bool:
    """Return whether two objects are the same in every bit; those of types that are not known here are not."""
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
    """Return what tells one fill value from another of the same type."""
    if not fill.dtype.hasobject:
        return fill.tobytes()
    item = fill.item()
    if isinstance(item, np.ndarray):
        item = item.dtype.str, item.shape, item.tobytes()
    return item if isinstance(item, str | bytes) else repr(item)
