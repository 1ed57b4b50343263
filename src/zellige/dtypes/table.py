"""The table of data types; a new type is a new row (spec: Data types).

>>> from_json("int16").numpy
dtype('int16')
>>> from_numpy(np.dtype("complex64")).name
'complex64'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zellige.dtypes import fill as forms
from zellige.errors import MetadataError, UnknownDataTypeError
from zellige.types import JSON, AnyArray


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type as documents name it and as numpy holds it in memory."""

    name: str
    numpy: np.dtype[Any]
    form: forms.FillForm
    endian: bool
    """Whether elements have components of more than one byte, so that the byte order matters."""

    def to_json(self) -> JSON:
        """The form for documents: parameterless types are plain strings, which every reader knows."""
        return self.name

    def read_fill(self, value: JSON) -> AnyArray:
        """A JSON fill value as a 0-d array, to the bit."""
        fill = self.form.read(value, self.numpy)
        fill.flags.writeable = False
        return fill

    def write_fill(self, fill: AnyArray) -> JSON:
        """The JSON form of a fill value."""
        return self.form.write(fill)

    def cast_fill(self, value: Any) -> AnyArray:
        """A user's fill value as a 0-d array; refuses a value that the type cannot hold."""
        if value is None:
            fill = np.zeros((), self.numpy)
        elif isinstance(value, np.ndarray | np.generic) and value.dtype == self.numpy:
            fill = np.array(value, self.numpy)
        elif self.numpy.kind == "V":
            fill = self._cast_raw(value)
        else:
            fill = self._cast_number(value)
        if fill.ndim:
            raise MetadataError(f"fill_value must be one value, not an array of shape {fill.shape}", field="fill_value")
        fill.flags.writeable = False
        return fill

    def _cast_raw(self, value: Any) -> AnyArray:
        if isinstance(value, np.void):
            value = value.tobytes()
        if isinstance(value, bytes | bytearray | memoryview):
            value = list(bytes(value))
        return self.form.read(list(value) if isinstance(value, tuple) else value, self.numpy)

    def _cast_number(self, value: Any) -> AnyArray:
        if isinstance(value, str | list | tuple):  # the spellings of documents
            return self.form.read(list(value) if isinstance(value, tuple) else value, self.numpy)
        source = np.asarray(value)
        if source.dtype.kind not in ("biufcO" if self.numpy.kind == "c" else "biufO"):
            raise MetadataError(f"fill_value {value!r} does not fit {self.name}", field="fill_value")
        try:
            with np.errstate(invalid="ignore", over="ignore"):
                fill = np.asarray(value, self.numpy) if source.dtype == object else source.astype(self.numpy)
        except (TypeError, ValueError, OverflowError) as error:
            raise MetadataError(
                f"fill_value {value!r} does not fit {self.name}: {error}", field="fill_value"
            ) from error
        if not (_same_infinities(fill, source) if self.numpy.kind in "fc" else (fill == source).all()):
            raise MetadataError(f"fill_value {value!r} does not fit {self.name}", field="fill_value")
        return fill


def _same_infinities(fill: AnyArray, source: AnyArray) -> bool:
    """Whether no finite number became infinite: floats may round, but not that far."""
    if source.dtype == object:  # which Python has converted, and complained if it could not
        return True
    pairs = ((fill.real, source.real), (fill.imag, source.imag))
    return all(np.array_equal(np.isinf(a), np.isinf(b)) for a, b in pairs)


def _row(name: str, form: forms.FillForm, *, endian: bool = True) -> DataType:
    return DataType(name, np.dtype(name), form, endian)


_ROWS = [
    _row("bool", forms.BOOL, endian=False),
    _row("int8", forms.INT, endian=False),
    _row("int16", forms.INT),
    _row("int32", forms.INT),
    _row("int64", forms.INT),
    _row("uint8", forms.INT, endian=False),
    _row("uint16", forms.INT),
    _row("uint32", forms.INT),
    _row("uint64", forms.INT),
    _row("float16", forms.FLOAT),
    _row("float32", forms.FLOAT),
    _row("float64", forms.FLOAT),
    _row("complex64", forms.COMPLEX),
    _row("complex128", forms.COMPLEX),
]
TYPES: dict[str, DataType] = {row.name: row for row in _ROWS}


def _raw_bits(match: re.Match[str]) -> DataType:
    bits = int(match[1])
    if bits == 0 or bits % 8:
        raise MetadataError(
            f"data_type {match[0]!r}: the number of bits must be a positive multiple of 8", field="data_type"
        )
    if bits > 8 * (2**31 - 1):
        raise MetadataError(f"data_type {match[0]!r}: larger than numpy can hold", field="data_type")
    return DataType(match[0], np.dtype(f"V{bits // 8}"), forms.RAW, endian=False)


# Families of types whose name holds a number.
_PATTERNS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], DataType]]] = [
    (re.compile(r"r(0|[1-9][0-9]{0,11})"), _raw_bits),
]


def from_json(value: JSON) -> DataType:
    """The data type that a document names: a string, or an object without configuration."""
    name = value
    if isinstance(value, dict):
        name = value.get("name")
        if value.get("must_understand", True) is not True:
            raise MetadataError("data_type.must_understand may not be false", field="data_type.must_understand")
        if extra := value.keys() - {"name", "configuration", "must_understand"}:
            raise MetadataError(f"data_type: unknown keys {sorted(extra)}", field="data_type")
        if value.get("configuration", {}) != {}:
            raise MetadataError(f"data_type.configuration: {name!r} takes none", field="data_type.configuration")
    if not isinstance(name, str):
        raise MetadataError(f"data_type must be a name or an object with a name, not {value!r}", field="data_type")
    if name in TYPES:
        return TYPES[name]
    for pattern, make in _PATTERNS:
        if match := pattern.fullmatch(name):
            return make(match)
    raise _unknown(name)


def _unknown(name: str) -> UnknownDataTypeError:
    from difflib import get_close_matches  # only when there is something to say

    close = get_close_matches(name, TYPES, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(TYPES)}, r<bits>"
    return UnknownDataTypeError(f"data_type {name!r} is not known; {hint}", field="data_type")


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of a numpy type, in native byte order."""
    dtype = dtype.newbyteorder("=")
    for row in TYPES.values():
        if row.numpy == dtype:
            return row
    if dtype.kind == "V" and dtype.fields is None and dtype.subdtype is None and dtype.itemsize:
        return from_json(f"r{8 * dtype.itemsize}")
    raise UnknownDataTypeError(
        f"numpy type {dtype} has no Zarr data type here; known: {', '.join(TYPES)}, r<bits>", field="data_type"
    )


def parse_dtype(value: npt.DTypeLike | DataType | JSON) -> DataType:
    """The data type of whatever a user gives as `dtype=`: a name, a numpy or Python type, JSON."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, dict) or (isinstance(value, str) and any(p.fullmatch(value) for p, _ in _PATTERNS)):
        return from_json(value)
    if value is None:
        raise UnknownDataTypeError("dtype is missing; give e.g. dtype='float32'", field="data_type")
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError, SyntaxError) as error:  # numpy evaluates strings with commas
        raise (
            _unknown(value) if isinstance(value, str) else UnknownDataTypeError(str(error), field="data_type")
        ) from error
    return from_numpy(dtype)
