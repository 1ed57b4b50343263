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
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from zellige.dtypes import families
from zellige.dtypes.base import MOST_BYTES, DataType
from zellige.errors import MetadataError, UnknownDataTypeError, fail, hint, shown
from zellige.types import JSON

# -- checking configurations ----------------------------------------------------------------------

_FIELD = "data_type.configuration"


def _only_keys(name: str, configuration: Mapping[str, JSON], *known: str) -> None:
    """Refuse keys that the type's schema does not have, and demand those that it has."""
    if unknown := sorted(configuration.keys() - set(known)):
        field, takes = (f"{_FIELD}.{unknown[0]}", ", ".join(known)) if known else (_FIELD, "none")
        raise MetadataError(f"{_FIELD}: {name!r} takes {takes}, found {unknown[0]!r}", field=field)
    for key in known:
        if key not in configuration:
            raise MetadataError(f"{_FIELD}.{key} is missing; {name!r} needs it", field=f"{_FIELD}.{key}")


def _integer(configuration: Mapping[str, JSON], key: str, low: int, high: int) -> int:
    """Return an integer within limits; booleans and floats are not integers."""
    value = configuration[key]
    if type(value) is not int or not low <= value <= high:
        fail(f"{_FIELD}.{key}", f"an integer from {low} to {high}", value)
    return value


# -- numbers --------------------------------------------------------------------------------------

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int2", "int4", "uint2", "uint4")
_COMPLEX = {
    "complex64": ("float32", "complex64"),
    "complex128": ("float64", "complex128"),
    "complex_float16": ("float16", "complex32"),
    "complex_bfloat16": ("bfloat16", "bcomplex32"),
}
"""The types of the parts, and the names that numpy and ml_dtypes have for the pair."""
_ALIASES = {"complex_float32": "complex64", "complex_float64": "complex128"}
_BY_NUMPY = {numpy: name for name, (_, numpy) in _COMPLEX.items()}
_NUMBERS = ("bool", *_INTEGERS, *families.FLOATS, *_COMPLEX, *(f"complex_{part}" for part in families.FLOATS))
"""The names of numbers; of most complex ones there is no numpy type, which their error says."""


def _read_number(name: str, configuration: Mapping[str, JSON]) -> DataType:
    _only_keys(name, configuration)
    return _number(_ALIASES.get(name, name))


@cache
def _number(name: str) -> DataType:
    if name == "bool":
        return families.Bool.of(name, np.dtype(bool))
    if name in _INTEGERS:
        return families.Integer.of(name, _numpy(name, name))
    if name in families.FLOATS:
        return families.Float.of(name, _numpy(name, name))
    if name not in _COMPLEX:
        part = name.removeprefix("complex_")
        raise UnknownDataTypeError(
            f"data_type {name!r}: numpy cannot hold complex numbers of {part}; store the parts as {part} instead"
        )
    part, numpy = _COMPLEX[name]
    return families.Complex.of(name, _numpy(numpy, name), part=_number(part))


def _numpy(name: str, ours: str) -> np.dtype[Any]:
    """Return the type of numpy or of ml_dtypes, which is imported when the first of its types is met."""
    scalar = getattr(np, name, None)
    if scalar is None:
        try:
            scalar = getattr(import_module("ml_dtypes"), name, None)
        except ImportError as error:
            raise ImportError("small numbers such as bfloat16 need ml_dtypes: pip install 'zellige[ml]'") from error
    if scalar is None:
        raise UnknownDataTypeError(f"data_type {ours!r} needs a newer ml_dtypes: pip install -U ml_dtypes")
    found: np.dtype[Any] = np.dtype(scalar)
    return found


# -- text and bytes -------------------------------------------------------------------------------

_STRING = families.Text.of("string", np.dtypes.StringDType())
_BYTES = families.Bytes.of("bytes", np.dtype(object))
_FIXED: dict[str, tuple[type[DataType], str, int]] = {
    "fixed_length_utf32": (families.FixedText, "U", 4),
    "null_terminated_bytes": (families.FixedBytes, "S", 1),
    "raw_bytes": (families.RawBytes, "V", 1),
}
"""The types with a length: their classes, numpy's letters for them, and how many bytes it counts as one."""
_RAW = re.compile(r"r(0|[1-9][0-9]{0,11})")


def _read_variable(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """Read `string` or `bytes`; `variable_length_bytes`, which zarr-python writes, is written back as `bytes`."""
    _only_keys(name, configuration)
    return _STRING if name == "string" else _BYTES


def _read_fixed(name: str, configuration: Mapping[str, JSON]) -> DataType:
    _only_keys(name, configuration, "length_bytes")
    unit = _FIXED[name][2]
    length = _integer(configuration, "length_bytes", unit, MOST_BYTES)
    if length % unit:
        fail(f"{_FIELD}.length_bytes", f"a multiple of {unit}", length)
    return _fixed(name, length)


def _fixed(name: str, length: int) -> DataType:
    family, letter, unit = _FIXED[name]
    return family.of(name, np.dtype(f"{letter}{length // unit}"), {"length_bytes": length})


def _read_raw_bits(name: str, configuration: Mapping[str, JSON]) -> DataType:
    _only_keys(name, configuration)
    return _raw_bits(int(name[1:]))


def _raw_bits(bits: int) -> DataType:
    name = f"r{bits}"
    if bits == 0 or bits % 8:
        raise MetadataError(
            f"data_type {name!r}: the number of bits must be a positive multiple of 8", field="data_type"
        )
    if bits > 8 * MOST_BYTES:
        raise MetadataError(f"data_type {name!r}: larger than numpy can hold", field="data_type")
    return families.RawBytes.of(name, np.dtype(f"V{bits // 8}"))


def _fixed_of_numpy(dtype: np.dtype[Any]) -> DataType:
    if not dtype.itemsize:
        anyway = "string" if dtype.kind == "U" else "bytes"
        raise UnknownDataTypeError(
            f"numpy type {dtype} has no length; say dtype={anyway!r} for any length, or e.g. '{dtype.kind}10'"
        )
    return _fixed("fixed_length_utf32" if dtype.kind == "U" else "null_terminated_bytes", dtype.itemsize)


# -- times ----------------------------------------------------------------------------------------

_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic")
_MICRO = {"μs": "us", "µs": "us"}  # with the Greek letter and with the sign
_TIMES = {"M": "numpy.datetime64", "m": "numpy.timedelta64"}


def _read_time(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """Read a `unit` and a `scale_factor`, as 10 and `us` for steps of 10 microseconds."""
    _only_keys(name, configuration, "unit", "scale_factor")
    given = configuration["unit"]
    unit = _MICRO.get(given, given) if isinstance(given, str) else None
    if unit not in _UNITS:
        fail(f"{_FIELD}.unit", f"one of {', '.join(_UNITS)}", given)
    return _time("M" if name == _TIMES["M"] else "m", unit, _integer(configuration, "scale_factor", 1, 2**31 - 1))


def _time(kind: str, unit: str, scale: int) -> DataType:
    numpy = np.dtype(f"{kind}8" if unit == "generic" else f"{kind}8[{scale}{unit}]")
    return families.Time.of(_TIMES[kind], numpy, {"unit": unit, "scale_factor": scale})


# -- structs --------------------------------------------------------------------------------------

_AT = f"{_FIELD}.fields"


def _read_struct(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """Read `struct`, or the older `structured`, whose fields are pairs; both are written as `struct`."""
    _only_keys(name, configuration, "fields")
    given = configuration["fields"]
    if not isinstance(given, list) or not given:
        fail(_AT, "a list of at least one field", given)
    is_legacy = name == "structured"
    fields: dict[str, JSON] = {}
    for i, item in enumerate(given):
        key, data_type = _pair(item, f"{_AT}[{i}]", is_legacy)
        if key in fields:
            raise MetadataError(f"{_AT}[{i}]: there is another field {key!r}", field=f"{_AT}[{i}]")
        fields[key] = data_type
    try:
        types = {key: _field_type(item, f"{_AT}[{i}]") for i, (key, item) in enumerate(fields.items())}
    except RecursionError as error:
        raise MetadataError(f"{_AT}: structs are nested too deeply", field=_AT) from error
    return _struct(types, is_legacy)


def _pair(item: JSON, at: str, is_legacy: bool) -> tuple[str, JSON]:
    """Return the name and the data type of a field."""
    if not is_legacy and isinstance(item, dict) and item.keys() == {"name", "data_type"}:
        name, data_type = item["name"], item["data_type"]
    elif is_legacy and isinstance(item, list | tuple) and len(item) == 2:
        name, data_type = item
    else:
        fail(at, '["name", data_type]' if is_legacy else '{"name": …, "data_type": …}', item)
    if not isinstance(name, str) or not name:
        raise MetadataError(f"{at}: the name must be a string that is not empty, found {shown(name)}", field=at)
    return name, data_type


def _field_type(item: JSON, at: str) -> DataType:
    try:
        found = from_json(item)
    except MetadataError as error:
        raise type(error)(f"{at}: {error}", field=f"{at}.{error.field}") from error
    if found.numpy.hasobject:
        reason = f"a struct cannot hold {found.name!r}, whose elements have any length; use a type of fixed length"
        raise MetadataError(f"{at}: {reason}", field=f"{at}.data_type")
    return found


def _struct_of_numpy(dtype: np.dtype[Any]) -> DataType:
    """Return a struct of the same fields; padding between them is left out."""
    fields = {name: from_numpy(dtype[name]) for name in dtype.names or ()}
    for name, member in fields.items():
        if member.numpy.hasobject:
            raise UnknownDataTypeError(f"field {name!r} has elements of any length, which a struct cannot hold")
    return _struct(fields)


def _struct(fields: dict[str, DataType], is_legacy: bool = False) -> DataType:
    if sum(member.numpy.itemsize for member in fields.values()) > MOST_BYTES:
        raise MetadataError(f"{_AT}: the struct is larger than numpy can hold", field=_AT)
    numpy = np.dtype([(name, member.numpy) for name, member in fields.items()])
    members = [{"name": name, "data_type": member.to_json()} for name, member in fields.items()]
    return families.Struct.of("struct", numpy, {"fields": members}, fields=fields, is_legacy=is_legacy)


# -- the table ------------------------------------------------------------------------------------

Reader: TypeAlias = Callable[[str, Mapping[str, JSON]], DataType]

TYPES: dict[str, Reader] = {
    **dict.fromkeys(_NUMBERS, _read_number),
    "string": _read_variable,
    "fixed_length_utf32": _read_fixed,
    "bytes": _read_variable,
    "variable_length_bytes": _read_variable,
    "null_terminated_bytes": _read_fixed,
    "raw_bytes": _read_fixed,
    "numpy.datetime64": _read_time,
    "numpy.timedelta64": _read_time,
    "struct": _read_struct,
    "structured": _read_struct,
}
"""What reads the configuration of each type; `r<bits>` is read by `_read_raw_bits`."""


def from_json(value: JSON) -> DataType:
    """Return the data type that metadata names: a string, or an object with a configuration."""
    name, configuration = value, {}
    if isinstance(value, dict):
        name, configuration = value.get("name"), value.get("configuration", {})
        _check_object(value)
    if not isinstance(name, str):
        fail("data_type", "a name or an object with a name", value)
    reader = _read_raw_bits if _RAW.fullmatch(name) else TYPES.get(name)
    if reader is None:
        raise _unknown(name)
    return reader(name, configuration)


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
    """Return the data type of a numpy type, in native byte order."""
    match None if dtype.isbuiltin == 2 else dtype.kind:  # the kinds of ml_dtypes say nothing
        case "O":
            raise UnknownDataTypeError(
                "numpy's object type does not say what the objects are; say dtype='string' or dtype='bytes'"
            )
        case "U" | "S":
            return _fixed_of_numpy(dtype)
        case "T":
            return _STRING
        case "M" | "m":
            return _time(dtype.kind, *np.datetime_data(dtype))
        case "V" if dtype.names:
            return _struct_of_numpy(dtype)
        case "V" if dtype.itemsize and dtype.subdtype is None:
            return _raw_bits(8 * dtype.itemsize)
    if (name := _BY_NUMPY.get(dtype.name, dtype.name)) in _NUMBERS:
        return _number(name)
    raise UnknownDataTypeError(f"numpy type {dtype} has no Zarr data type here; known: {', '.join(TYPES)}, r<bits>")


_PYTHON: dict[Any, str] = {str: "string", bytes: "bytes", "str": "string"}
"""What numpy would take as text and bytes of length 0."""


def parse_dtype(value: Any) -> DataType:
    """Return the data type of what a user gives as `dtype=`.

    Parameters
    ----------
    value
        A name, a numpy or Python type, a class of `zellige.dtype`, a data type, or JSON as in metadata.

    """
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
