"""Structs: named fields one after the other, and how an index names fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from zellige.dtypes import table
from zellige.dtypes.base import FIELD, DataType, only_keys
from zellige.dtypes.fill import FillForm, bad, read_bytes, shown
from zellige.dtypes.storage import Endian, Storage
from zellige.errors import CodecError, FieldNotFoundError, MetadataError, UnknownDataTypeError
from zellige.types import JSON, AnyArray

Fields: TypeAlias = tuple[tuple[str, DataType], ...]
FieldNames: TypeAlias = str | list[str]
"""One field, or a struct of several."""

_PAIR = {"name", "data_type"}
_MAX_BYTES = 2**31 - 1  # of numpy


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """`struct`, or the older `structured`, whose fields are pairs and whose fill may be base64.

    Both are written as `struct`.
    """
    only_keys(name, configuration, "fields")
    given = configuration["fields"]
    if not isinstance(given, list) or not given:
        raise MetadataError(f"{FIELD}.fields must be a list of at least one field, found {shown(given)}", field=_at())
    pairs = [_pair(item, i, as_object=name == "struct") for i, item in enumerate(given)]
    _check_names([field for field, _ in pairs])
    try:
        fields = tuple([(field, _field_type(item, i)) for i, (field, item) in enumerate(pairs)])
    except RecursionError as error:
        raise MetadataError(f"{_at()}: structs are nested too deeply", field=_at()) from error
    return _make(fields, legacy=name == "structured")


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of a structured numpy type; padding between fields is left out."""
    assert dtype.names is not None
    fields = []
    for name in dtype.names:
        field = table.from_numpy(dtype[name])
        if field.numpy.hasobject:
            raise UnknownDataTypeError(
                f"field {name!r} has elements of any length, which a struct cannot hold", field="data_type"
            )
        fields.append((name, field))
    return _make(tuple(fields))


def _at(i: int | None = None, key: str = "") -> str:
    return f"{FIELD}.fields" + ("" if i is None else f"[{i}]{key}")


def _pair(item: JSON, i: int, *, as_object: bool) -> tuple[str, JSON]:
    if as_object and isinstance(item, dict) and item.keys() == _PAIR:
        name, data_type = item["name"], item["data_type"]
    elif not as_object and isinstance(item, list | tuple) and len(item) == 2:
        name, data_type = item
    else:
        form = '{"name": …, "data_type": …}' if as_object else '["name", data_type]'
        raise MetadataError(f"{_at(i)} must be {form}, found {shown(item)}", field=_at(i))
    if not isinstance(name, str) or not name:
        raise MetadataError(f"{_at(i)}: the name must be a string that is not empty, found {shown(name)}", field=_at(i))
    return name, data_type


def _check_names(names: list[str]) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise MetadataError(f"{_at(i)}: there is another field {name!r}", field=_at(i))
        seen.add(name)


def _field_type(item: JSON, i: int) -> DataType:
    try:
        found = table.from_json(item)
    except MetadataError as error:
        raise type(error)(f"{_at(i)}: {error}", field=f"{_at(i)}.{error.field}") from error
    if found.numpy.hasobject:
        raise MetadataError(
            f"{_at(i)}: a struct cannot hold {found.name!r}, whose elements have any length; "
            "use a type of fixed length",
            field=_at(i, ".data_type"),
        )
    return found


def _make(fields: Fields, *, legacy: bool = False) -> DataType:
    if sum(field.numpy.itemsize for _, field in fields) > _MAX_BYTES:
        raise MetadataError(f"{_at()}: the struct is larger than numpy can hold", field=_at())
    numpy = np.dtype([(name, field.numpy) for name, field in fields])
    form = FillForm(
        partial(_read_legacy if legacy else _read, fields),
        partial(_write, fields),
        partial(_cast, fields),
        partial(_default, fields),
    )
    document = {"fields": [{"name": name, "data_type": field.to_json()} for name, field in fields]}
    endian = any(field.endian for _, field in fields)
    return DataType("struct", numpy, form, endian, document, storage=_storage(fields, numpy))


def _storage(fields: Fields, numpy: np.dtype[Any]) -> Storage | None:
    """What is special about any field, at its place in the struct; None if numpy's memory is all there is."""
    assert numpy.fields is not None
    places = [numpy.fields[name][1] for name, _ in fields]
    parts = [field.storage or Storage(field.numpy) for _, field in fields]
    bools = [at for (_, field), at in zip(fields, places, strict=True) if field.numpy.kind == "b"]
    bools += [at + place for part, at in zip(parts, places, strict=True) for place in part.bools]
    texts = [(at + place, size) for part, at in zip(parts, places, strict=True) for place, size in part.texts]
    carrier = np.dtype([(name, part.carrier) for (name, _), part in zip(fields, parts, strict=True)])
    masks = [(at + place, bits) for part, at in zip(parts, places, strict=True) for place, bits in part.masks]
    if carrier == numpy and not (masks or bools or texts):
        return None
    return Storage(carrier, tuple(masks), tuple(bools), tuple(texts))


# -- fill values ----------------------------------------------------------------------------------


def _read(fields: Fields, value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    names = [name for name, _ in fields]
    if not isinstance(value, dict):
        raise bad(value, dtype, f"an object with {', '.join(names)}")
    if unknown := list(value.keys() - set(names)):
        raise MetadataError(f"fill_value.{unknown[0]} is not a field", field=f"fill_value.{unknown[0]}")
    fill = np.zeros((), dtype)
    for name, field in fields:
        if name not in value:
            raise MetadataError(f"fill_value.{name} is missing; every field needs one", field=f"fill_value.{name}")
        fill[name] = _inside(name, field.form.read, value[name], field.numpy)
    return fill


def _read_legacy(fields: Fields, value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    """Also base64 of the packed bytes, little-endian, as zarr-python wrote it."""
    if not isinstance(value, str):
        return _read(fields, value, dtype)
    data = read_bytes(value)
    if data is None or len(data) != dtype.itemsize:
        raise bad(value, dtype, f"base64 of {dtype.itemsize} bytes, or an object")
    return _unpack(_storage(fields, dtype), data, dtype, "little")


def unpack(data_type: DataType, raw: bytes, endian: Endian) -> AnyArray:
    """One element out of its bytes."""
    return _unpack(data_type.storage, raw, data_type.numpy, endian)


def _unpack(storage: Storage | None, raw: bytes, dtype: np.dtype[Any], endian: Endian) -> AnyArray:
    try:
        return (storage or Storage(dtype)).decode(raw, (), dtype, endian).copy()
    except CodecError as error:
        raise MetadataError(f"fill_value does not fit {dtype}: {error}", field="fill_value") from error


def _write(fields: Fields, fill: AnyArray) -> JSON:
    return {name: field.form.write(fill[name]) for name, field in fields}


def _cast(fields: Fields, value: Any, dtype: np.dtype[Any]) -> AnyArray:
    """A tuple, a dict or a struct with a value for each field; or one value for all of them."""
    if isinstance(value, np.ndarray | np.void) and value.dtype.names is not None and value.ndim == 0:
        value = {name: value[name] for name in value.dtype.names}
    if isinstance(value, tuple | list) and len(value) == len(fields):
        value = dict(zip((name for name, _ in fields), value, strict=True))
    elif isinstance(value, int | float | np.number):
        value = dict.fromkeys((name for name, _ in fields), value)
    names = [name for name, _ in fields]
    if not isinstance(value, Mapping) or value.keys() != set(names):
        raise bad(value, dtype, f"a value for each of {', '.join(names)}")
    fill = np.zeros((), dtype)
    for name, field in fields:
        fill[name] = _inside(name, field.cast_fill, value[name])
    return fill


def _inside(name: str, make: Any, *arguments: Any) -> AnyArray:
    """What a field makes of its part of a fill value; errors name the field."""
    try:
        found: AnyArray = make(*arguments)
    except MetadataError as error:
        path = error.field.replace("fill_value", f"fill_value.{name}", 1)
        raise MetadataError(f"field {name!r}: {error}", field=path) from error
    return found


def _default(fields: Fields, dtype: np.dtype[Any]) -> AnyArray:
    fill = np.zeros((), dtype)
    for name, field in fields:
        fill[name] = field.form.default(field.numpy)
    return fill


# -- fields in an index ---------------------------------------------------------------------------


def split_fields(index: Any, dtype: np.dtype[Any], fields: Sequence[str] | str | None) -> tuple[Any, FieldNames | None]:
    """An index without the names of fields, which may stand anywhere in it, and those names.

    >>> split_fields((slice(0, 5), "x"), np.dtype([("x", "i4")]), None)
    ((slice(0, 5, None),), 'x')
    """
    items = index if isinstance(index, tuple) else (index,)
    named = [item for item in items if _names_fields(item)]
    if fields is not None:
        named.append(fields if isinstance(fields, str) else list(fields))
    if not named:
        return index, None
    rest = tuple(item for item in items if not _names_fields(item))
    chosen = named[0] if len(named) == 1 else [name for n in named for name in ([n] if isinstance(n, str) else n)]
    _check_fields(chosen, dtype)
    return index if len(rest) == len(items) else rest or ..., chosen


def _names_fields(item: Any) -> bool:
    return isinstance(item, str) or (isinstance(item, list) and bool(item) and all(isinstance(n, str) for n in item))


def _check_fields(chosen: FieldNames, dtype: np.dtype[Any]) -> None:
    names = [chosen] if isinstance(chosen, str) else chosen
    known = dtype.names or ()
    for i, name in enumerate(names):
        if name not in known:
            raise FieldNotFoundError(
                f"no field of name {name!r}; the fields are {', '.join(map(repr, known))}", fields=known
            )
        if name in names[:i]:
            raise ValueError(f"field {name!r} is named twice")


def take_fields(found: Any, fields: FieldNames) -> Any:
    """Fields of elements that were read; one field by itself, without the memory of the others."""
    part = found[fields]
    return part.copy(order="K") if isinstance(fields, str) and isinstance(part, np.ndarray) else part
