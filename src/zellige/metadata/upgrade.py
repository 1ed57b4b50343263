"""From metadata of Zarr v2 to that of Zarr v3 which describes the same chunks (spec: 10.4).

A chunk of Zarr v2 goes through one list: filters and a compressor, each of which takes whatever bytes or elements it
gets for what it likes. A chain of Zarr v3 is stricter: codecs from arrays to arrays, one from an array to bytes, codecs
from bytes to bytes, and every array has the type that the codec before has made. What does not fit is refused.

>>> from zellige.metadata.v2 import ArrayV2Metadata
>>> document = {"zarr_format": 2, "shape": [9], "chunks": [4], "dtype": ">i2", "fill_value": None, "order": "C"}
>>> found = to_v3(ArrayV2Metadata.from_documents({".zarray": document | {"compressor": {"id": "zlib", "level": 1}}}))
>>> [codec.to_json() for codec in found.codecs]  # doctest: +NORMALIZE_WHITESPACE
[{'name': 'bytes', 'configuration': {'endian': 'big'}},
 {'name': 'numcodecs.zlib', 'configuration': {'level': 1}}]
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from zellige.dtypes import v2 as types
from zellige.errors import MetadataError
from zellige.metadata.groups import GroupMetadata
from zellige.metadata.json import Extension
from zellige.metadata.v2 import DIMENSIONS, FILTERS, NUMBERS, ArrayV2Metadata, Step, steps_of
from zellige.metadata.v3 import ArrayV3Metadata
from zellige.types import JSON


class NotConvertibleError(MetadataError):
    """Zarr v3 cannot say what metadata of Zarr v2 says; `field` is the part of it that it cannot."""


@overload
def to_v3(metadata: ArrayV2Metadata) -> ArrayV3Metadata: ...
@overload
def to_v3(metadata: GroupMetadata) -> GroupMetadata: ...
def to_v3(metadata: ArrayV2Metadata | GroupMetadata) -> ArrayV3Metadata | GroupMetadata:
    """The metadata of Zarr v3 for the same node; raises `NotConvertibleError` if there is none.

    The names of axes that xarray keeps among the attributes become `dimension_names`, where it looks for them in
    Zarr v3. Fields that Zarr v2 does not define are left out, and so is the consolidated metadata of a group.

    >>> to_v3(GroupMetadata({"title": "tides"}, zarr_format=2)).to_dict()
    {'zarr_format': 3, 'node_type': 'group', 'attributes': {'title': 'tides'}}
    """
    if isinstance(metadata, GroupMetadata):
        return GroupMetadata(dict(metadata.attributes), 3)
    _check_type(metadata)
    names = metadata.dimension_names
    attributes = {key: value for key, value in metadata.attributes.items() if names is None or key != DIMENSIONS}
    return ArrayV3Metadata(
        shape=metadata.shape,
        data_type=metadata.data_type,
        chunk_grid=metadata.chunk_grid,
        chunk_key_encoding=metadata.chunk_key_encoding,
        fill_value=metadata.fill_value,
        codecs=tuple(_codecs(metadata)),
        attributes=attributes,
        dimension_names=names or None,
    )


def _check_type(metadata: ArrayV2Metadata) -> None:
    if not isinstance(metadata.data_type, types.V2DataType):
        return
    if metadata.data_type.numpy.hasobject:
        codec = metadata.filters[0]["id"] if metadata.filters else None
        raise _refused("dtype", f"of objects Zarr v3 has strings and bytes only, not what {codec!r} is for")
    raise _refused("dtype", "Zarr v3 has no structs with fields that are arrays")


def _refused(place: str, reason: str) -> NotConvertibleError:
    return NotConvertibleError(f"{place}: {reason}", field=place)


# -- the chain ------------------------------------------------------------------------------------


def _codecs(metadata: ArrayV2Metadata) -> list[Extension]:
    """The same chain, by the names that Zarr v3 has for its codecs."""
    found: list[Extension] = []
    itemsize = 1  # of what the next codec from bytes to bytes sees
    for codec in metadata.codecs:
        if codec.name == FILTERS:
            filtered, itemsize = _filtered(metadata, codec.configuration["filters"])
            found += filtered
        elif codec.name == "bytes":
            itemsize = metadata.data_type.numpy.itemsize
            found.append(codec)
        else:
            found.append(_renamed(codec, itemsize))
            itemsize = 1
    return found


def _renamed(codec: Extension, itemsize: int) -> Extension:
    """A codec that has a name in Zarr v3, by that of the specification if it is there."""
    configuration = _given(codec.configuration)
    if codec.name == "numcodecs.blosc":
        return Extension("blosc", _blosc(configuration, itemsize))
    if codec.name == "numcodecs.gzip":
        return Extension("gzip", {"level": 1, **configuration})
    if codec.name == "numcodecs.zstd":
        return Extension("zstd", {"level": 0, "checksum": False, **configuration})
    if codec.name == "numcodecs.crc32c" and configuration.get("location", "end") == "end":
        return Extension("crc32c", {})
    return Extension(codec.name, configuration)


def _given(configuration: dict[str, JSON]) -> dict[str, JSON]:
    """A configuration without the nulls by which numcodecs says that something is not given."""
    return {key: value for key, value in configuration.items() if value is not None}


def _blosc(configuration: dict[str, JSON], itemsize: int) -> dict[str, JSON]:
    options = {"cname": "lz4", "clevel": 5, "shuffle": 1, "typesize": itemsize, "blocksize": 0, **configuration}
    names: dict[JSON, str] = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}
    names[-1] = names[2 if options["typesize"] == 1 else 1]
    shuffle = options["shuffle"]
    if type(shuffle) is not int or shuffle not in names:
        raise _refused("blosc.shuffle", f"must be -1, 0, 1 or 2, found {shuffle!r}")
    return {**options, "shuffle": names[shuffle]}


# -- filters --------------------------------------------------------------------------------------


def _filtered(metadata: ArrayV2Metadata, items: list[dict[str, JSON]]) -> tuple[list[Extension], int]:
    """The codecs for filters that come before those from bytes to bytes, and the size of the elements at last."""
    filters = steps_of(metadata.filters, metadata.compressor)[: len(items)]
    stored = types.declared(metadata.dtype)
    found: list[Extension] = []
    for i, step in enumerate(filters):
        codec = Extension(f"numcodecs.{step.id}", _given(step.configuration))
        if step.id in NUMBERS and i == len(filters) - 1:
            if not stored.isnative:
                raise _refused(step.place, f"{step.id!r} in Zarr v3 knows no byte order, the elements are {stored.str}")
            return [*found, codec], 1
        stored = _after(step, stored, filters[i + 1 :])
        found.append(codec)
    return [*found, _serializer(stored)], stored.itemsize


def _serializer(stored: np.dtype[Any]) -> Extension:
    orders = types.byte_orders(stored)
    if len(orders) > 1:
        raise _refused("dtype", "fields have different byte orders, and Zarr v3 has one for all of them")
    return Extension("bytes", {"endian": next(iter(orders))} if orders else {})


def _after(step: Step, stored: np.dtype[Any], others: list[Step]) -> np.dtype[Any]:
    """The type that a filter makes of elements of another, byte order included."""
    if step.id in types.CONVERSIONS and step.id != "categorize":
        return _converted(step, stored)
    if step.id == "bitround":
        return stored
    if step.id == "packbits":
        if stored.kind != "b":
            raise _refused(step.place, f"'packbits' in Zarr v3 takes bools only, the elements are {stored.str}")
        return np.dtype(np.uint8)
    if others:
        reason = f"{step.id!r} does not make an array, so {others[0].id!r} cannot follow it in Zarr v3"
        raise _refused(step.place, reason)
    raise _refused(step.place, f"Zarr v3 has no codec for {step.id!r}")


def _converted(step: Step, stored: np.dtype[Any]) -> np.dtype[Any]:
    decoded, encoded = types.conversion(step.id, step.configuration, step.place)
    if decoded != stored:
        # numcodecs would look at the bytes as if they were of that type.
        reason = f"{step.id!r} is for {decoded.str}, the elements are {stored.str}, and Zarr v3 does not reinterpret"
        raise _refused(f"{step.place}.{types.CONVERSIONS[step.id][0]}", reason)
    for dtype in (decoded, encoded):
        if dtype.kind not in "biufc":
            raise _refused(step.place, f"{step.id!r} in Zarr v3 is for numbers, not for {dtype.str}")
    if step.id == "delta" and _sums_otherwise(decoded, encoded):
        raise _refused(step.place, f"'delta' in Zarr v3 does not sum {encoded.str} by way of floats to {decoded.str}")
    return encoded


def _sums_otherwise(decoded: np.dtype[Any], encoded: np.dtype[Any]) -> bool:
    """Whether numcodecs sums differences to integers by way of floats, which are rounded and do not wrap around."""
    if decoded.kind not in "iu":
        return False
    return encoded.kind not in "iu" or (encoded.itemsize == 8 and np.result_type(decoded, encoded).kind == "f")
