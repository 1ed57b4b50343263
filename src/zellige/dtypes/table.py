"""The table of data types; a new type is a new row (spec: Data types).

>>> from_json("int16").numpy
dtype('int16')
>>> from_numpy(np.dtype("complex64")).name
'complex64'
>>> from_json({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}).numpy
dtype('<M8[s]')
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import numpy as np

from zellige.dtypes import fill as forms
from zellige.dtypes.base import DataType, only_keys
from zellige.errors import MetadataError, UnknownDataTypeError, hint
from zellige.types import JSON


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
TYPES |= {"complex_float32": TYPES["complex64"], "complex_float64": TYPES["complex128"]}

_SMALL_FLOATS = ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"]
_SMALL_FLOATS += ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16"]

FAMILIES: dict[str, str] = {
    "string": "text",
    "fixed_length_utf32": "text",
    "bytes": "blobs",
    "variable_length_bytes": "blobs",
    "null_terminated_bytes": "blobs",
    "raw_bytes": "blobs",
    "numpy.datetime64": "times",
    "numpy.timedelta64": "times",
    "struct": "structs",
    "structured": "structs",
    **dict.fromkeys(["int2", "int4", "uint2", "uint4", *_SMALL_FLOATS], "small"),
    **dict.fromkeys([f"complex_{part}" for part in ["float16", *_SMALL_FLOATS]], "small"),
}
"""Types in modules of their own, imported when one is met: each has a `from_json` and a `from_numpy`."""

_KINDS = {"U": "text", "T": "text", "S": "blobs", "M": "times", "m": "times"}
"""The modules for kinds of numpy types."""

_RAW = re.compile(r"r(0|[1-9][0-9]{0,11})")


def _family(module: str) -> Any:
    return import_module(f"zellige.dtypes.{module}")


def _raw_bits(name: str, bits: int) -> DataType:
    if bits == 0 or bits % 8:
        raise MetadataError(
            f"data_type {name!r}: the number of bits must be a positive multiple of 8", field="data_type"
        )
    if bits > 8 * (2**31 - 1):
        raise MetadataError(f"data_type {name!r}: larger than numpy can hold", field="data_type")
    return DataType(name, np.dtype(f"V{bits // 8}"), forms.RAW, endian=False)


def from_json(value: JSON) -> DataType:
    """The data type that a document names: a string, or an object with a configuration."""
    name, configuration = value, {}
    if isinstance(value, dict):
        name, configuration = value.get("name"), value.get("configuration", {})
        _check_object(value)
    if not isinstance(name, str):
        raise MetadataError(
            f"data_type must be a name or an object with a name, not {forms.shown(value)}", field="data_type"
        )
    if name in FAMILIES:
        found: DataType = _family(FAMILIES[name]).from_json(name, configuration)
        return found
    row = TYPES.get(name)
    raw = None if row is not None else _RAW.fullmatch(name)
    if row is None and raw is None:
        raise _unknown(name)
    only_keys(name, configuration)
    return _raw_bits(name, int(raw[1])) if raw is not None else TYPES[name]


def _check_object(value: dict[str, JSON]) -> None:
    if value.get("must_understand", True) is not True:
        raise MetadataError("data_type.must_understand may not be false", field="data_type.must_understand")
    if extra := value.keys() - {"name", "configuration", "must_understand"}:
        raise MetadataError(f"data_type: unknown keys {sorted(extra)}", field="data_type")
    if not isinstance(value.get("configuration", {}), dict):
        raise MetadataError("data_type.configuration must be an object", field="data_type.configuration")


def _unknown(name: str) -> UnknownDataTypeError:
    known = [*TYPES, *FAMILIES, "r<bits>"]
    return UnknownDataTypeError(f"data_type {name!r} is not known; {hint(name, known)}", field="data_type")


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of a numpy type, in native byte order."""
    found: DataType | None = None
    if dtype.kind in _KINDS:
        found = _family(_KINDS[dtype.kind]).from_numpy(dtype)
    elif dtype.isbuiltin == 2:
        found = _family("small").from_numpy(dtype)
    elif dtype.kind == "V" and dtype.names:
        found = _family("structs").from_numpy(dtype)
    elif dtype.kind == "V" and dtype.subdtype is None and dtype.itemsize:
        found = from_json(f"r{8 * dtype.itemsize}")
    elif dtype.kind == "O":
        raise UnknownDataTypeError(
            "numpy's object type does not say what the objects are; say dtype='string' or dtype='bytes'",
            field="data_type",
        )
    else:
        native = dtype.newbyteorder("=")
        found = next((row for row in _ROWS if row.numpy == native), None)
    if found is None:
        raise UnknownDataTypeError(
            f"numpy type {dtype} has no Zarr data type here; known: {', '.join([*TYPES, *FAMILIES])}, r<bits>",
            field="data_type",
        )
    return found


_PYTHON: dict[Any, str] = {str: "string", bytes: "bytes", "str": "string"}
"""What numpy would take as text and bytes of length 0."""


def parse_dtype(value: Any) -> DataType:
    """The data type of whatever a user gives as `dtype=`: a name, a numpy or Python type, JSON."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, type) and issubclass(value, DataType):  # a class of `zellige.dtype`
        try:
            return value()  # type: ignore[call-arg]
        except TypeError as error:
            raise UnknownDataTypeError(
                f"dtype={value.__name__} needs its parameters: {error}", field="data_type"
            ) from error
    if isinstance(value, dict) and "names" not in value:  # which numpy takes
        return from_json(value)
    if isinstance(value, str | type):
        value = _PYTHON.get(value, value)
    if isinstance(value, str) and (value in FAMILIES or value in TYPES or _RAW.fullmatch(value)):
        return from_json(value)
    if value is None:
        raise UnknownDataTypeError("dtype is missing; give e.g. dtype='float32'", field="data_type")
    try:
        dtype: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError, SyntaxError) as error:  # numpy evaluates strings with commas
        raise (
            _unknown(value) if isinstance(value, str) else UnknownDataTypeError(str(error), field="data_type")
        ) from error
    return from_numpy(dtype)
