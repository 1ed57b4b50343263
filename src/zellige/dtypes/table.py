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

from zellige.dtypes import numbers
from zellige.dtypes.base import DataType
from zellige.errors import MetadataError, UnknownDataTypeError, fail, hint
from zellige.types import JSON

TYPES: dict[str, str] = {
    **dict.fromkeys(numbers.NAMES, "numbers"),
    "string": "strings",
    "fixed_length_utf32": "strings",
    "bytes": "strings",
    "variable_length_bytes": "strings",
    "null_terminated_bytes": "strings",
    "raw_bytes": "strings",
    "numpy.datetime64": "times",
    "numpy.timedelta64": "times",
    "struct": "structs",
    "structured": "structs",
}
"""The modules of the types' families, imported when one is met: each has a `from_json` and a `from_numpy`."""

_KINDS = {"U": "strings", "T": "strings", "S": "strings", "V": "strings", "M": "times", "m": "times"}
"""The modules for kinds of numpy types; all others are numbers."""

_RAW = re.compile(r"r(0|[1-9][0-9]{0,11})")


def _family(module: str) -> Any:
    return numbers if module == "numbers" else import_module(f"zellige.dtypes.{module}")


def from_json(value: JSON) -> DataType:
    """The data type that metadata names: a string, or an object with a configuration."""
    name, configuration = value, {}
    if isinstance(value, dict):
        name, configuration = value.get("name"), value.get("configuration", {})
        _check_object(value)
    if not isinstance(name, str):
        fail("data_type", "a name or an object with a name", value)
    module = "strings" if _RAW.fullmatch(name) else TYPES.get(name)
    if module is None:
        raise _unknown(name)
    found: DataType = _family(module).from_json(name, configuration)
    return found


def _check_object(value: dict[str, JSON]) -> None:
    if value.get("must_understand", True) is not True:
        raise MetadataError("data_type.must_understand may not be false", field="data_type.must_understand")
    if extra := value.keys() - {"name", "configuration", "must_understand"}:
        raise MetadataError(f"data_type: unknown keys {sorted(extra)}", field="data_type")
    if not isinstance(value.get("configuration", {}), dict):
        fail("data_type.configuration", "an object", value["configuration"])


def _unknown(name: str) -> UnknownDataTypeError:
    return UnknownDataTypeError(f"data_type {name!r} is not known; {hint(name, [*TYPES, 'r<bits>'])}")


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of a numpy type, in native byte order."""
    if dtype.kind == "O":
        raise UnknownDataTypeError(
            "numpy's object type does not say what the objects are; say dtype='string' or dtype='bytes'"
        )
    module = "structs" if dtype.names else _KINDS.get(dtype.kind, "numbers")
    found: DataType | None = _family("numbers" if dtype.isbuiltin == 2 else module).from_numpy(dtype)
    if found is None:
        raise UnknownDataTypeError(f"numpy type {dtype} has no Zarr data type here; known: {', '.join(TYPES)}, r<bits>")
    return found


_PYTHON: dict[Any, str] = {str: "string", bytes: "bytes", "str": "string"}
"""What numpy would take as text and bytes of length 0."""


def parse_dtype(value: Any) -> DataType:
    """The data type of whatever a user gives as `dtype=`: a name, a numpy or Python type, JSON."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, type) and issubclass(value, DataType):  # a class of `zellige.dtype`
        kind: Any = value
        try:
            made: DataType = kind()
            return made
        except TypeError as error:
            raise UnknownDataTypeError(f"dtype={kind.__name__} needs its parameters: {error}") from error
    if isinstance(value, dict) and "names" not in value:  # which numpy takes
        return from_json(value)
    if isinstance(value, str | type):
        value = _PYTHON.get(value, value)
    if isinstance(value, str) and (value in TYPES or _RAW.fullmatch(value)):
        return from_json(value)
    if value is None:
        raise UnknownDataTypeError("dtype is missing; give e.g. dtype='float32'")
    try:
        dtype: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError, SyntaxError) as error:  # numpy evaluates strings with commas
        if isinstance(value, str):
            raise _unknown(value) from error
        raise UnknownDataTypeError(f"dtype={value!r} is not known; give a name such as 'float32'") from error
    return from_numpy(dtype)
