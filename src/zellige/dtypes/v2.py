"""Data types as Zarr v2 names them: numpy's own spelling, with a byte order for each number (spec: 10.3).

In memory elements always have the byte order of the machine. What a document declares is a numpy type of the same
shape in other byte orders, for the codecs that read and write bytes.

>>> from_v2(">i2", None)
DataType(name='int16', numpy=dtype('int16'), endian=True, configuration=None, codec='bytes')
>>> declared([["a", "<i4"], ["b", ">f4", [2]]])
dtype([('a', '<i4'), ('b', '>f4', (2,))])
>>> to_v2(np.dtype("M8[10us]"))
'<M8[10us]'
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any, Literal

import numpy as np

from zellige.dtypes import blobs, table
from zellige.dtypes.base import DataType
from zellige.dtypes.fill import FillForm, bad, read_bytes, shown, to_base64, zeros
from zellige.errors import CodecError, MetadataError, PickleCodecDisabledError, UnknownDataTypeError
from zellige.types import JSON, AnyArray

_MAX_BYTES = 2**31 - 1  # of numpy
_MAX_DEPTH = 32
_LAST_CHARACTER = 0x10FFFF

# numpy would also take expressions as "(2,3)i4, f4", so a name is looked at before numpy sees it.
_ONE_BYTE = re.compile(r"[<>|]([biu]1|[SV][1-9][0-9]{0,9})")
_ORDERED = re.compile(r"[<>]([iu][248]|f[248]|c8|c16|U[1-9][0-9]{0,8})")
_TIMES = re.compile(r"[<>][Mm]8\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]")


# -- what a document declares ---------------------------------------------------------------------


def declared(value: JSON) -> np.dtype[Any]:
    """The numpy type that a document declares: a name, or a list of fields; in the byte orders that it declares."""
    return np.dtype(object) if value == "|O" else _declared(value, "dtype", 0)


def _declared(value: JSON, field: str, depth: int) -> np.dtype[Any]:
    if isinstance(value, str):
        return _simple(value, field)
    if not isinstance(value, list) or not value or depth > _MAX_DEPTH:
        expected = f"a type as '<f4', or a list of at least one field, nested at most {_MAX_DEPTH} deep"
        raise UnknownDataTypeError(f"{field} must be {expected}, found {shown(value)}", field=field)
    names: list[str] = []
    parts: list[tuple[str, np.dtype[Any], tuple[int, ...]]] = []
    for i, item in enumerate(value):
        name, part, shape = _field(item, i, f"{field}[{i}]", depth)
        if name in names:
            raise MetadataError(f"{field}[{i}]: there is another field {name!r}", field=f"{field}[{i}]")
        names.append(name)
        parts.append((name, part, shape))
    if sum(part.itemsize * prod(shape) for _, part, shape in parts) > _MAX_BYTES:
        raise MetadataError(f"{field}: the struct is larger than numpy can hold", field=field)
    return np.dtype(parts)


def _simple(value: str, field: str) -> np.dtype[Any]:
    if value == "|O":
        raise MetadataError(f"{field}: a struct cannot hold objects, whose elements have any length", field=field)
    if not any(form.fullmatch(value) for form in (_ONE_BYTE, _ORDERED, _TIMES)):
        hint = "give the byte order, and for times the unit, as in '<i4', '|u1', '|S5', '<U5', '<M8[ns]'"
        raise UnknownDataTypeError(f"{field} {shown(value)} is not a type of Zarr v2; {hint}", field=field)
    number = int("0" + "".join(filter(str.isdigit, value[2:].partition("[")[2] or value[2:])))
    if number * (4 if value[1] == "U" else 1) > _MAX_BYTES:
        raise MetadataError(f"{field} {value!r} is larger than numpy can hold", field=field)
    return np.dtype(value)


def _field(item: JSON, i: int, field: str, depth: int) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    if not isinstance(item, list) or len(item) not in (2, 3) or not isinstance(item[0], str):
        expected = '["name", type] or ["name", type, shape]'
        raise MetadataError(f"{field} must be {expected}, found {shown(item)}", field=field)
    part = _declared(item[1], f"{field}[1]", depth + 1)
    shape = _sub_shape(item[2], part, f"{field}[2]") if len(item) == 3 else ()
    return item[0] or f"f{i}", part, shape  # without a name: padding, which numpy names so


def _sub_shape(value: JSON, part: np.dtype[Any], field: str) -> tuple[int, ...]:
    sizes = isinstance(value, list) and 0 < len(value) <= 32 and all(type(n) is int and n > 0 for n in value)
    if not sizes or part.itemsize * prod(value) > _MAX_BYTES:
        expected = "a list of at least one positive integer, small enough for numpy"
        raise MetadataError(f"{field} must be {expected}, found {shown(value)}", field=field)
    return tuple(value)


_NAMED = re.compile(r"=?([?O]|[biu]1|[iu][248]|f[248]|c8|c16|[SU][1-9][0-9]{0,6})|bool|object|u?int(8|16|32|64)")
_FLOATS = re.compile(r"float(16|32|64)|complex(64|128)")


def filter_type(value: JSON, field: str) -> np.dtype[Any]:
    """The type that the configuration of a filter names; the byte order may be missing, or the name numpy's own."""
    if isinstance(value, str) and (value == "|O" or _NAMED.fullmatch(value) or _FLOATS.fullmatch(value)):
        return np.dtype(value)
    if not isinstance(value, str):
        raise MetadataError(f"{field} must name a type, as '<f4', found {shown(value)}", field=field)
    return _simple(value, field)


def leaves(dtype: np.dtype[Any]) -> Iterator[np.dtype[Any]]:
    """The types without fields that a type is made of."""
    if dtype.subdtype is not None:
        yield from leaves(dtype.subdtype[0])
    elif dtype.names is None:
        yield dtype
    else:
        for name in dtype.names:
            yield from leaves(dtype[name])


def has_subarrays(dtype: np.dtype[Any]) -> bool:
    """Whether a field is an array, at whatever depth."""
    if dtype.subdtype is not None:
        return True
    return any(has_subarrays(dtype[name]) for name in dtype.names or ())


def byte_orders(dtype: np.dtype[Any]) -> set[Literal["little", "big"]]:
    """The byte orders of the parts that have one."""
    native: Literal["little", "big"] = "little" if np.little_endian else "big"
    names: dict[str, Literal["little", "big"]] = {"<": "little", ">": "big", "=": native}
    return {names[part.byteorder] for part in leaves(dtype) if part.byteorder in names}


# -- data types -----------------------------------------------------------------------------------


class V2DataType(DataType):
    """A data type that only Zarr v2 has."""

    __slots__ = ()

    def to_json(self) -> JSON:
        """Refused: Zarr v3 has no name for it."""
        raise UnknownDataTypeError(f"Zarr v3 has no data type for {self.label}", field="data_type")

    @property
    def label(self) -> str:
        """The type for people."""
        return "object" if self.numpy.hasobject else str(self.numpy)


def from_v2(value: JSON, object_codec: str | None, items: JSON = None) -> DataType:
    """The data type of a v2 `dtype`; for objects, the `id` of the first filter says what they are.

    If they are arrays, `items` is the `dtype` of that filter.
    """
    stored = declared(value)
    if stored.hasobject:
        return _of_objects(object_codec) if object_codec != "vlen-array" else _of_arrays(items)
    native = stored.newbyteorder("=")
    if has_subarrays(native):
        return V2DataType("zarr2.struct", native, _STRUCT, bool(byte_orders(native)))
    if native.kind == "V" and native.names is None:
        return blobs.from_json("raw_bytes", {"length_bytes": native.itemsize})  # the name that zarr-python reads
    return table.from_numpy(native)


def _of_objects(codec: str | None) -> DataType:
    if codec in ("vlen-utf8", "categorize"):
        return table.from_json("string")
    if codec == "vlen-bytes":
        return table.from_json("bytes")
    if codec in ("json2", "msgpack2"):
        return _OBJECT
    if codec == "pickle":
        raise PickleCodecDisabledError(
            "filters[0]: the elements are pickles, which are not decoded here, since that runs code in the data",
            field="filters[0].id",
        )
    known = "vlen-utf8, vlen-bytes, vlen-array, json2, msgpack2 or categorize"
    raise MetadataError(
        f"dtype '|O' needs a filter that says what the objects are: first in filters must be {known}, found {codec!r}",
        field="filters",
    )


def _of_arrays(items: JSON) -> DataType:
    dtype = filter_type(items, "filters[0].dtype").newbyteorder("=")
    if dtype.kind == "O":
        raise MetadataError("filters[0].dtype: arrays of objects are not supported", field="filters[0].dtype")
    form = FillForm(
        lambda value, _: _vector([] if _is_zero(value) else value, dtype),
        lambda fill: _write_object(fill.item().tolist()),
        lambda value, _: _vector(value, dtype),
        lambda _: _vector([], dtype),
    )
    return V2DataType("object", _ANY, form, endian=False, codec="zarr2.filters")


def to_v2(value: Any, endian: Literal["little", "big"] | None = None) -> JSON:
    """The `dtype` for a document, of a data type or of whatever users give for one.

    Without `endian` a numpy type keeps its byte orders, and all else is little-endian.
    """
    ordered = _as_numpy(value)
    if ordered is None or not has_subarrays(ordered):
        found = table.parse_dtype(value)
        if found.numpy.kind in "OT":
            return "|O"
        if ordered is None or ordered.newbyteorder("=") != found.numpy:
            ordered = found.numpy.newbyteorder("little")
    return _spelled(ordered.newbyteorder(endian) if endian else ordered)


def _as_numpy(value: Any) -> np.dtype[Any] | None:
    """What a user gives as numpy has it, with its byte order."""
    if isinstance(value, DataType | dict):
        return None
    try:
        found: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError, SyntaxError):  # a name that is not numpy's
        return None
    return found


def _spelled(dtype: np.dtype[Any]) -> JSON:
    if dtype.names is not None:
        return [[name, *_spelled_field(dtype[name])] for name in dtype.names]
    try:
        return _simple("" if dtype.isbuiltin == 2 else dtype.str, "dtype").str
    except MetadataError as error:
        hint = "times need a unit" if dtype.kind in "mM" else "use zarr_format=3"
        raise UnknownDataTypeError(f"Zarr v2 has no dtype for {dtype}; {hint}", field="dtype") from error


def _spelled_field(dtype: np.dtype[Any]) -> list[JSON]:
    if dtype.subdtype is None:
        return [_spelled(dtype)]
    part, shape = dtype.subdtype
    return [_spelled(part), list(shape)]


# -- elements -------------------------------------------------------------------------------------


def as_native(elements: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Elements of a declared type in native byte order; raises `CodecError` for bytes that mean nothing."""
    _check(elements)
    return elements.astype(dtype, copy=False)


def _check(elements: AnyArray) -> None:
    """Every bool is 0 or 1, and every character one of Unicode."""
    dtype = elements.dtype
    if dtype.names is not None:
        for name in dtype.names:
            _check(elements[name])
    elif dtype.kind == "b" and elements.view(np.uint8).max(initial=0) > 1:
        raise CodecError("a bool must be stored as 00 or 01")
    elif dtype.kind == "U":
        characters = np.ascontiguousarray(elements).reshape(-1).view(f"{dtype.byteorder}u4")
        if (most := int(characters.max(initial=0))) > _LAST_CHARACTER:
            raise CodecError(f"{most:#x} is not a character of Unicode")


# -- fill values ----------------------------------------------------------------------------------


def read_v2_fill(data_type: DataType, declared: np.dtype[Any], value: JSON) -> AnyArray:
    """A JSON fill value as a 0-d array; null stands for zero, for nothing, or for no time at all."""
    if value is None:
        fill = data_type.form.default(data_type.numpy)
    else:
        fill = _READ.get(_kind(data_type), _read_other)(value, data_type, declared)
    fill.flags.writeable = False
    return fill


def write_v2_fill(data_type: DataType, declared: np.dtype[Any], fill: AnyArray) -> JSON:
    """The JSON form of a fill value; there is only one NaN."""
    kind = _kind(data_type)
    if kind in ("struct", "V"):
        return to_base64(fill.astype(declared).tobytes())
    if kind == "M":
        return int(fill.view(np.int64))  # as zarr-python does, also for NaT
    written = data_type.write_fill(fill)
    if kind == "c":
        return [_without_bits(part) for part in written]
    return _without_bits(written) if kind == "f" else written


def _kind(data_type: DataType) -> str:
    """The family of a type, among those that have a form of their own."""
    if data_type.numpy.hasobject:
        return data_type.name
    kind = data_type.numpy.kind
    return "struct" if data_type.numpy.names is not None else kind.upper() if kind in "mM" else kind


def _without_bits(value: JSON) -> JSON:
    return "NaN" if isinstance(value, str) and value.startswith("0x") else value


def _is_zero(value: JSON) -> bool:
    """Whether this is the number 0, which older writers put where text and bytes belong."""
    return type(value) in (int, float) and value == 0


_INTEGER = re.compile(r"([+-]?[0-9]{1,20})(\.0*)?")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
"""Numbers as text, as older versions of N5-Zarr and bioformats2raw wrote them."""


def _read_other(value: JSON, data_type: DataType, declared: np.dtype[Any]) -> AnyArray:
    """The type's own form; for integers also floats and text: 1.0, "1", "1.0"."""
    if data_type.numpy.kind in "iu":
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        elif isinstance(value, str) and (match := _INTEGER.fullmatch(value)):
            value = int(match[1])
    return data_type.form.read(value, data_type.numpy)


def _read_bool(value: JSON, data_type: DataType, declared: np.dtype[Any]) -> AnyArray:
    """Also 0 and 1."""
    if type(value) in (int, float) and value in (0, 1):
        value = bool(value)
    return data_type.form.read(value, data_type.numpy)


def _read_floats(value: JSON, data_type: DataType, declared: np.dtype[Any]) -> AnyArray:
    """Also text with a number; without the bits in hex, which came later."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = float(value)
    elif isinstance(value, float) and not math.isfinite(value):  # a bare token, which Python's json reads
        value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, str) and part not in ("NaN", "Infinity", "-Infinity"):
            raise bad(value, data_type.numpy, 'a number, "NaN", "Infinity" or "-Infinity"')
    return data_type.form.read(value, data_type.numpy)


def _read_text(value: JSON, data_type: DataType, declared: np.dtype[Any]) -> AnyArray:
    return data_type.form.read("" if _is_zero(value) else value, data_type.numpy)


def _read_base64(value: JSON, data_type: DataType, declared: np.dtype[Any]) -> AnyArray:
    """Text or bytes of any length, or padded with zeros: base64."""
    if isinstance(value, list):
        raise bad(value, data_type.numpy, "base64")
    return data_type.form.read("" if _is_zero(value) else value, data_type.numpy)


def _read_packed(value: JSON, data_type: DataType, declared: np.dtype[Any]) -> AnyArray:
    """The bytes of one element as they are stored."""
    if _is_zero(value):
        return np.zeros((), data_type.numpy)
    data = read_bytes(value) if isinstance(value, str) else None
    if data is None or len(data) != declared.itemsize:
        raise bad(value, data_type.numpy, f"base64 of {declared.itemsize} bytes")
    try:
        return as_native(np.ndarray((), declared, data), data_type.numpy).copy()
    except CodecError as error:
        raise MetadataError(f"fill_value does not fit {data_type.numpy}: {error}", field="fill_value") from error


_READ: dict[str, Callable[[JSON, DataType, np.dtype[Any]], AnyArray]] = {
    "b": _read_bool,
    "f": _read_floats,
    "c": _read_floats,
    "U": _read_text,
    "string": _read_text,
    "S": _read_base64,
    "bytes": _read_base64,
    "V": _read_packed,
    "struct": _read_packed,
}


# -- types that only Zarr v2 has ------------------------------------------------------------------


def _boxed(value: Any) -> AnyArray:
    fill = np.empty((), object)
    fill[()] = value
    return fill


def _vector(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    """An array of one axis as an object."""
    try:
        items = np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise bad(value, dtype, f"a list of {dtype}") from error
    if items.ndim != 1:
        raise bad(value, dtype, f"a list of {dtype}")
    return _boxed(items)


def _cast_object(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    return _boxed(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)


def _write_object(value: Any) -> JSON:
    try:
        written: JSON = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise MetadataError(f"fill_value {shown(value)} has no form in JSON: {error}", field="fill_value") from error
    return written


def _cast_struct(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    try:
        return np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise MetadataError(f"fill_value {shown(value)} does not fit {dtype}: {error}", field="fill_value") from error


def _refuse(expected: str, value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    raise bad(value, dtype, expected)


# The metadata tells arrays of any objects from those of bytes.
_ANY = np.dtype(object, metadata={"zellige": "object"})
_OBJECT = V2DataType(
    "object",
    _ANY,
    FillForm(
        lambda value, dtype: _boxed(value),
        lambda fill: _write_object(fill.item()),
        _cast_object,
        lambda dtype: _boxed(None),
    ),
    endian=False,
    codec="zarr2.filters",
)
_STRUCT = FillForm(
    partial(_refuse, "base64, as Zarr v2 has it"), lambda fill: to_base64(fill.tobytes()), _cast_struct, zeros
)
