"""Structs: named fields one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from zellige.dtypes import table
from zellige.dtypes.base import FIELD, MOST_BYTES, DataType, Endian, Storage, only_keys
from zellige.dtypes.fill import read_bytes, unfit
from zellige.errors import CodecError, MetadataError, UnknownDataTypeError, fail, shown
from zellige.types import JSON, AnyArray

Fields: TypeAlias = dict[str, DataType]

_PAIR = {"name", "data_type"}
_AT = f"{FIELD}.fields"


@dataclass(frozen=True, slots=True, repr=False)
class Struct(DataType):
    """Elements with named fields."""

    fields: Fields = field(kw_only=True, compare=False)
    is_legacy: bool = field(kw_only=True, compare=False)
    """Whether metadata says `structured`, as zarr-python did, whose fill value may be base64 of packed bytes."""

    def default(self) -> AnyArray:
        """Fields with the fill values that they have by themselves."""
        return self._filled({name: member.default() for name, member in self.fields.items()})

    def _expected(self) -> str:
        return f"a value for each of {', '.join(self.fields)}"

    def _read(self, value: JSON) -> AnyArray | None:
        if self.is_legacy and isinstance(value, str):
            data = read_bytes(value)
            return self.unpack(data, "little") if data and len(data) == self.numpy.itemsize else None
        if not isinstance(value, dict):
            return None
        if unknown := [name for name in value if name not in self.fields]:
            raise MetadataError(f"fill_value.{unknown[0]} is not a field", field=f"fill_value.{unknown[0]}")
        for name in self.fields:
            if name not in value:
                raise MetadataError(f"fill_value.{name} is missing; every field needs one", field=f"fill_value.{name}")
        return self._filled({n: _inside(n, member.read_fill, value[n]) for n, member in self.fields.items()})

    def write_fill(self, fill: AnyArray) -> JSON:
        """An object with the value of each field."""
        return {name: member.write_fill(fill[name]) for name, member in self.fields.items()}

    def _cast(self, value: Any) -> AnyArray | None:
        """A tuple, a dict or a struct with a value for each field; or one value for all of them."""
        if isinstance(value, np.ndarray | np.void) and value.dtype.names is not None and value.ndim == 0:
            value = {name: value[name] for name in value.dtype.names}
        if isinstance(value, tuple | list) and len(value) == len(self.fields):
            value = dict(zip(self.fields, value, strict=True))
        elif isinstance(value, int | float | np.number):
            value = dict.fromkeys(self.fields, value)
        if not isinstance(value, Mapping) or value.keys() != self.fields.keys():
            return None
        return self._filled({n: _inside(n, member.cast_fill, value[n]) for n, member in self.fields.items()})

    def _filled(self, values: Mapping[str, AnyArray]) -> AnyArray:
        fill = np.zeros((), self.numpy)
        for name, value in values.items():
            fill[name] = value
        return fill

    def unpack(self, raw: bytes, endian: Endian) -> AnyArray:
        """One element out of its bytes."""
        storage = self.storage or Storage(self.numpy, is_partial=False, is_checked=False)
        try:
            return storage.decode(raw, (), self.numpy, endian).copy()
        except CodecError as error:
            raise unfit(raw, self.numpy, str(error)) from error


def _inside(name: str, make: Callable[[Any], AnyArray], value: Any) -> AnyArray:
    """What a field makes of its part of a fill value; errors name the field."""
    try:
        return make(value)
    except MetadataError as error:
        path = error.field.replace("fill_value", f"fill_value.{name}", 1)
        raise MetadataError(f"field {name!r}: {error}", field=path) from error


# -- from metadata and from numpy -----------------------------------------------------------------


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """`struct`, or the older `structured`, whose fields are pairs and whose fill may be base64.

    Both are written as `struct`.
    """
    only_keys(name, configuration, "fields")
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


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of a structured numpy type; padding between fields is left out."""
    fields = {name: table.from_numpy(dtype[name]) for name in dtype.names or ()}
    for name, member in fields.items():
        if member.numpy.hasobject:
            raise UnknownDataTypeError(f"field {name!r} has elements of any length, which a struct cannot hold")
    return _struct(fields)


def _pair(item: JSON, at: str, is_legacy: bool) -> tuple[str, JSON]:
    """The name and the data type of a field."""
    if not is_legacy and isinstance(item, dict) and item.keys() == _PAIR:
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
        found = table.from_json(item)
    except MetadataError as error:
        raise type(error)(f"{at}: {error}", field=f"{at}.{error.field}") from error
    if found.numpy.hasobject:
        reason = f"a struct cannot hold {found.name!r}, whose elements have any length; use a type of fixed length"
        raise MetadataError(f"{at}: {reason}", field=f"{at}.data_type")
    return found


def _struct(fields: Fields, is_legacy: bool = False) -> DataType:
    if sum(member.numpy.itemsize for member in fields.values()) > MOST_BYTES:
        raise MetadataError(f"{_AT}: the struct is larger than numpy can hold", field=_AT)
    numpy = np.dtype([(name, member.numpy) for name, member in fields.items()])
    members = [{"name": name, "data_type": member.to_json()} for name, member in fields.items()]
    return Struct.of("struct", numpy, {"fields": members}, fields=fields, is_legacy=is_legacy)
