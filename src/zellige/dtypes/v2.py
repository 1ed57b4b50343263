"""Data types as Zarr v2 names them: numpy's own spelling, with a byte order for each number (spec: 10.3).

In memory elements always have the byte order of the machine. What metadata declares is a numpy type of the same
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np

from zellige.dtypes import table
from zellige.dtypes.base import MOST_BYTES, DataType, check_elements, leaves, read_only
from zellige.dtypes.fill import boxed, read_bytes, to_base64, unfit
from zellige.errors import CodecError, MetadataError, PickleCodecDisabledError, UnknownDataTypeError, fail, shown
from zellige.types import JSON, AnyArray

_MAX_DEPTH = 32

# numpy would also take expressions as "(2,3)i4, f4", so a name is looked at before numpy sees it.
_ONE_BYTE = re.compile(r"[<>|]([biu]1|[SV][1-9][0-9]{0,9})")
_ORDERED = re.compile(r"[<>]([iu][248]|f[248]|c8|c16|U[1-9][0-9]{0,8})")
_TIMES = re.compile(r"[<>][Mm]8\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]")


# -- what metadata declares -----------------------------------------------------------------------


def declared(value: JSON) -> np.dtype[Any]:
    """Return the numpy type that metadata declares, by a name or a list of fields, in the declared byte orders."""
    return np.dtype(object) if value == "|O" else _declared(value, "dtype", 0)


def _declared(value: JSON, field: str, depth: int) -> np.dtype[Any]:
    if isinstance(value, str):
        return _simple(value, field)
    if not isinstance(value, list) or not value or depth > _MAX_DEPTH:
        expected = f"a type as '<f4', or a list of at least one field, nested at most {_MAX_DEPTH} deep"
        raise UnknownDataTypeError(f"{field} must be {expected}, found {shown(value)}", field=field)
    parts: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
    for i, item in enumerate(value):
        name, part, shape = _field(item, i, f"{field}[{i}]", depth)
        if name in parts:
            raise MetadataError(f"{field}[{i}]: there is another field {name!r}", field=f"{field}[{i}]")
        parts[name] = part, shape
    if sum(part.itemsize * prod(shape) for part, shape in parts.values()) > MOST_BYTES:
        raise MetadataError(f"{field}: the struct is larger than numpy can hold", field=field)
    return np.dtype([(name, *part) for name, part in parts.items()])


def _simple(value: str, field: str) -> np.dtype[Any]:
    if value == "|O":
        raise MetadataError(f"{field}: a struct cannot hold objects, whose elements have any length", field=field)
    if not any(form.fullmatch(value) for form in (_ONE_BYTE, _ORDERED, _TIMES)):
        hint = "give the byte order, and for times the unit, as in '<i4', '|u1', '|S5', '<U5', '<M8[ns]'"
        raise UnknownDataTypeError(f"{field} {shown(value)} is not a type of Zarr v2; {hint}", field=field)
    number = int("0" + "".join(filter(str.isdigit, value[2:].partition("[")[2] or value[2:])))
    if number * (4 if value[1] == "U" else 1) > MOST_BYTES:
        raise MetadataError(f"{field} {value!r} is larger than numpy can hold", field=field)
    return np.dtype(value)


def _field(item: JSON, i: int, field: str, depth: int) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    if not isinstance(item, list) or len(item) not in (2, 3) or not isinstance(item[0], str):
        fail(field, '["name", type] or ["name", type, shape]', item)
    part = _declared(item[1], f"{field}[1]", depth + 1)
    shape = _sub_shape(item[2], part, f"{field}[2]") if len(item) == 3 else ()
    return item[0] or f"f{i}", part, shape  # without a name: padding, which numpy names so


def _sub_shape(value: JSON, part: np.dtype[Any], field: str) -> tuple[int, ...]:
    sizes = isinstance(value, list) and 0 < len(value) <= 32 and all(type(n) is int and n > 0 for n in value)
    if not sizes or part.itemsize * prod(value) > MOST_BYTES:
        fail(field, "a list of at least one positive integer, small enough for numpy", value)
    return tuple(value)


_NAMED = re.compile(r"=?([?O]|[biu]1|[iu][248]|f[248]|c8|c16|[SU][1-9][0-9]{0,6})|bool|object|u?int(8|16|32|64)")
_FLOATS = re.compile(r"float(16|32|64)|complex(64|128)")


def filter_type(value: JSON, field: str) -> np.dtype[Any]:
    """Return the type that a filter's configuration names; the byte order may be missing, or the name numpy's own."""
    if isinstance(value, str) and (value == "|O" or _NAMED.fullmatch(value) or _FLOATS.fullmatch(value)):
        return np.dtype(value)
    if not isinstance(value, str):
        fail(field, "the name of a type, as '<f4'", value)
    return _simple(value, field)


CONVERSIONS = {
    "delta": ("dtype", "astype"),
    "fixedscaleoffset": ("dtype", "astype"),
    "quantize": ("dtype", "astype"),
    "astype": ("decode_dtype", "encode_dtype"),
    "categorize": ("dtype", "astype"),
}
"""Filters from arrays to arrays, and where they say the type of the first and, if it is another, of the second."""


def conversion(name: str, configuration: Mapping[str, JSON], field: str) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the types that a filter goes between."""
    before, after = CONVERSIONS[name]
    decoded = filter_type(configuration.get(before), f"{field}.{before}")
    if configuration.get(after) is not None:
        return decoded, filter_type(configuration[after], f"{field}.{after}")
    return decoded, np.dtype(np.uint8) if name == "categorize" else decoded


def has_subarrays(dtype: np.dtype[Any]) -> bool:
    """Return whether a field is an array, at whatever depth."""
    if dtype.subdtype is not None:
        return True
    return any(has_subarrays(dtype[name]) for name in dtype.names or ())


def byte_orders(dtype: np.dtype[Any]) -> set[Literal["little", "big"]]:
    """Return the byte orders of the parts that have one."""
    native: Literal["little", "big"] = "little" if np.little_endian else "big"
    names: dict[str, Literal["little", "big"]] = {"<": "little", ">": "big", "=": native}
    return {names[part.byteorder] for part in leaves(dtype) if part.byteorder in names}


# -- data types that only Zarr v2 has -------------------------------------------------------------


class V2DataType(DataType):
    """A data type that only Zarr v2 has."""

    __slots__ = ()

    def to_json(self) -> JSON:
        """Refuse: Zarr v3 has no name for it."""
        raise UnknownDataTypeError(f"Zarr v3 has no data type for {self.label}")

    @property
    def label(self) -> str:
        """The type for people."""
        return "object" if self.numpy.hasobject else str(self.numpy)


class Objects(V2DataType):
    """Any objects for which JSON has a form."""

    __slots__ = ()
    codec: ClassVar[str] = "zarr2.filters"

    def default(self) -> AnyArray:
        """Return None."""
        return boxed(None)

    def _read(self, value: JSON) -> AnyArray | None:
        return boxed(value)

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return the object in JSON."""
        return self._written(fill.item())

    def _written(self, value: Any) -> JSON:
        try:
            return json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            reason = f"fill_value {shown(value)} has no form in JSON: {error}"
            raise MetadataError(reason, field="fill_value") from error

    def _cast(self, value: Any) -> AnyArray | None:
        return boxed(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)


@dataclass(frozen=True, slots=True, repr=False)
class Arrays(Objects):
    """Objects that are arrays of one axis."""

    items: np.dtype[Any] = field(kw_only=True, compare=False)

    def _expected(self) -> str:
        return f"a list of {self.items}"

    def default(self) -> AnyArray:
        """Return an array without items."""
        return boxed(np.array([], self.items))

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return the items as a list."""
        return self._written(fill.item().tolist())

    def _read(self, value: Any) -> AnyArray | None:
        try:
            found = np.array(value, self.items)
        except (TypeError, ValueError, OverflowError):
            return None
        return boxed(found) if found.ndim == 1 else None

    def _cast(self, value: Any) -> AnyArray | None:
        return self._read(value)


class SubarrayStruct(V2DataType):
    """Structs with fields that are arrays."""

    __slots__ = ()

    def _expected(self) -> str:
        return "base64, as Zarr v2 has it"

    def _read(self, value: JSON) -> AnyArray | None:
        return None

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return the bytes of the element in base64."""
        return to_base64(fill.tobytes())


# The metadata tells arrays of any objects from those of bytes.
_ANY = np.dtype(object, metadata={"zellige": "object"})


# -- data types by their v2 names -----------------------------------------------------------------


def from_v2(value: JSON, object_codec: str | None, items: JSON = None) -> DataType:
    """Return the data type of a v2 `dtype`; for objects, the `id` of the first filter says what they are.

    If they are arrays, `items` is the `dtype` of that filter.
    """
    stored = declared(value)
    if stored.hasobject:
        return _of_objects(object_codec, items)
    native = stored.newbyteorder("=")
    if has_subarrays(native):
        return SubarrayStruct("zarr2.struct", native, endian=bool(byte_orders(native)))
    if native.kind == "V" and native.names is None:  # by the name that zarr-python reads
        return table.from_json({"name": "raw_bytes", "configuration": {"length_bytes": native.itemsize}})
    return table.from_numpy(native)


def _of_objects(codec: str | None, items: JSON) -> DataType:
    if codec in ("vlen-utf8", "categorize"):
        return table.from_json("string")
    if codec == "vlen-bytes":
        return table.from_json("bytes")
    if codec in ("json2", "msgpack2"):
        return Objects("object", _ANY)
    if codec == "vlen-array":
        dtype = filter_type(items, "filters[0].dtype").newbyteorder("=")
        if dtype.kind == "O":
            raise MetadataError("filters[0].dtype: arrays of objects are not supported", field="filters[0].dtype")
        return Arrays("object", _ANY, items=dtype)
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


def to_v2(value: Any, endian: Literal["little", "big"] | None = None) -> JSON:
    """Return the `dtype` for metadata, of a data type or of whatever users give for one.

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
    """Return what a user gives as numpy has it, with its byte order."""
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
    """Return elements of a declared type in native byte order; `CodecError` for bytes that mean nothing."""
    check_elements(elements)
    return elements.astype(dtype, copy=False)


# -- fill values ----------------------------------------------------------------------------------

_INTEGER = re.compile(r"([+-]?[0-9]{1,20})(\.0*)?")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
"""Numbers as text, as older versions of N5-Zarr and bioformats2raw wrote them."""
_WORDS = ("NaN", "Infinity", "-Infinity")


def read_v2_fill(data_type: DataType, declared: np.dtype[Any], value: JSON) -> AnyArray:
    """Return a JSON fill value as a 0-d array; null stands for zero, for nothing, or for no time at all."""
    if value is None:
        return read_only(data_type.default())
    if data_type.numpy.kind == "V":
        return read_only(_read_packed(value, data_type.numpy, declared))
    return data_type.read_fill(_as_in_v3(value, data_type))


def write_v2_fill(data_type: DataType, declared: np.dtype[Any], fill: AnyArray) -> JSON:
    """Return the JSON form of a fill value; there is only one NaN."""
    kind = data_type.numpy.kind
    if kind == "V":
        return to_base64(fill.astype(declared).tobytes())
    if kind in "mM":
        return int(fill.view(np.int64))  # as zarr-python does, also for NaT
    written = data_type.write_fill(fill)
    if kind == "c":
        return [_without_bits(part) for part in written]
    return _without_bits(written) if kind == "f" else written


def _without_bits(value: JSON) -> JSON:
    return "NaN" if isinstance(value, str) and value.startswith("0x") else value


def _is_zero(value: JSON) -> bool:
    """Return whether this is the number 0, which older writers put where text and bytes belong."""
    return type(value) in (int, float) and value == 0


def _as_in_v3(value: JSON, data_type: DataType) -> JSON:
    """Return the same fill value as Zarr v3 spells it; what neither format has is left to be refused."""
    kind, is_bytes = data_type.numpy.kind, data_type.numpy.kind == "S" or data_type.name == "bytes"
    if isinstance(data_type, Arrays):
        return [] if _is_zero(value) else value
    if (kind in "UT" or is_bytes) and _is_zero(value):
        return ""
    if is_bytes and isinstance(value, list):
        raise unfit(value, data_type.numpy, "expected base64")
    if kind == "b" and type(value) is float and value in (0, 1):
        return bool(value)
    if kind in "iu" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind in "iu" and isinstance(value, str) and (match := _INTEGER.fullmatch(value)):
        return int(match[1])
    return _float_as_in_v3(value, data_type.numpy) if kind in "fc" else value


def _float_as_in_v3(value: JSON, dtype: np.dtype[Any]) -> JSON:
    """Return a number also for text with one, but no bits in hex, which came later."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):  # a bare token, which Python's json reads
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, str) and part not in _WORDS:
            raise unfit(value, dtype, 'expected a number, "NaN", "Infinity" or "-Infinity"')
    return value


def _read_packed(value: JSON, dtype: np.dtype[Any], declared: np.dtype[Any]) -> AnyArray:
    """Return the bytes of one element as they are stored."""
    if _is_zero(value):
        return np.zeros((), dtype)
    data = read_bytes(value) if isinstance(value, str) else None
    if data is None or len(data) != declared.itemsize:
        raise unfit(value, dtype, f"expected base64 of {declared.itemsize} bytes")
    try:
        return as_native(np.ndarray((), declared, data), dtype).copy()
    except CodecError as error:
        raise unfit(value, dtype, str(error)) from error
