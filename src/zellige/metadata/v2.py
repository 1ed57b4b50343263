"""`.zarray` of Zarr v2, as the same grid, chain and keys that Zarr v3 has (spec: 10).

What a chunk goes through in Zarr v2 is one list: the order of its axes, the filters, the compressor. Here it becomes
a chain of codecs. The last ones that are from bytes to bytes have their own classes; what comes before them is
`bytes`, a codec for elements of any length, or, if nothing else says it, the filters of numcodecs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from zellige.dtypes import DataType
from zellige.dtypes import v2 as types
from zellige.errors import MetadataError, fail
from zellige.grid.grid import ChunkGrid
from zellige.metadata.chunks import RegularChunkGridMetadata, V2ChunkKeyEncoding
from zellige.metadata.groups import ARRAY_V2, ATTRIBUTES_V2, Documents
from zellige.metadata.json import Extension, Fields, as_attributes, as_integer, as_list, as_name, one_of
from zellige.metadata.v3 import ArrayMetadata, as_shape
from zellige.types import JSON, InternalName, Shape

FILTERS = InternalName("zarr2.filters")
DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute in which xarray keeps the names of axes, in this format only."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrayV2Metadata(ArrayMetadata):
    """What the `.zarray` and the `.zattrs` of an array say.

    `codecs` are what the order, the filters and the compressor come to, with the byte order of the elements.
    """

    zarr_format: ClassVar[Literal[2]] = 2
    chunk_grid: RegularChunkGridMetadata
    dtype: JSON
    """As the document has it, with byte orders."""
    compressor: dict[str, JSON] | None = None
    filters: list[dict[str, JSON]] | None = None
    order: Literal["C", "F"] = "C"
    fill_is_null: bool = False
    """Whether the document has no fill value, so that elements which were never written are undefined."""

    @classmethod
    def from_documents(cls, documents: Mapping[str, Mapping[str, JSON]]) -> ArrayV2Metadata:
        """Check parsed documents, given by their names: `.zarray`, and maybe `.zattrs`."""
        fields = Fields(documents.get(ARRAY_V2))
        fields.take("zarr_format", one_of(2))
        shape = fields.take("shape", as_shape)
        filters = fields.take("filters", _filters, None)
        compressor = fields.take("compressor", _compressor, None)
        order = fields.take("order", one_of("C", "F"))
        dtype, fill = fields.take("dtype", _as_it_is), fields.take("fill_value", _as_it_is)
        first = filters[0] if filters else {}
        data_type = types.from_v2(dtype, first.get("id"), first.get("dtype"))
        return cls(
            shape=shape,
            data_type=data_type,
            chunk_grid=RegularChunkGridMetadata(fields.take("chunks", partial(_chunks, rank=len(shape)))),
            chunk_key_encoding=V2ChunkKeyEncoding(fields.take("dimension_separator", one_of(".", "/"), ".")),
            fill_value=types.read_v2_fill(data_type, types.declared(dtype), fill),
            codecs=_chain(dtype, data_type, steps_of(filters, compressor), order, len(shape)),
            dtype=dtype,
            compressor=compressor,
            filters=filters,
            order=order,
            fill_is_null=fill is None,
            attributes=as_attributes(documents.get(ATTRIBUTES_V2)),
            extra=fields.rest(),
        )

    def to_dict(self) -> dict[str, JSON]:
        """Return the document without the attributes."""
        fill = types.write_v2_fill(self.data_type, types.declared(self.dtype), self.fill_value)
        document: dict[str, JSON] = {
            "zarr_format": 2,
            "shape": list(self.shape),
            "chunks": list(self.chunk_grid.chunk_shape),
            "dtype": self.dtype,
            "compressor": self.compressor,
            "fill_value": None if self.fill_is_null else fill,
            "order": self.order,
            "filters": self.filters,
            "dimension_separator": self.chunk_key_encoding.separator,
        }
        return document | self.extra

    def to_documents(self) -> Documents:
        """Return the documents by their names; that of the attributes only if there are any."""
        documents = {ARRAY_V2: self.to_dict()}
        return {**documents, ATTRIBUTES_V2: self.attributes} if self.attributes else documents

    def resized(self, grid: ChunkGrid) -> ArrayV2Metadata:
        """Return the metadata after a resize to this grid."""
        if tuple(axis.declared for axis in grid.axes) != self.chunk_grid.chunk_shape:
            raise MetadataError("Zarr v2 has chunks of one shape only, which does not change", field="chunks")
        return replace(self, shape=grid.shape)

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """The names of the axes as xarray writes them, if the attributes have them."""
        names = self.attributes.get(DIMENSIONS)
        if not isinstance(names, list) or len(names) != len(self.shape):
            return None
        return tuple(names) if all(name is None or isinstance(name, str) for name in names) else None

    @property
    def numcodecs_filters(self) -> tuple[Any, ...]:
        """The filters as objects of numcodecs, as others know them."""
        return _numcodecs(self.filters or [])

    @property
    def numcodecs_compressors(self) -> tuple[Any, ...]:
        """The compressor, if there is one, as an object of numcodecs."""
        return _numcodecs([self.compressor] if self.compressor else [])


def _numcodecs(configs: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    if not configs:
        return ()
    from numcodecs import get_codec

    return tuple(get_codec(dict(config)) for config in configs)


# -- fields ---------------------------------------------------------------------------------------


def _as_it_is(value: JSON, path: str) -> JSON:
    return value


def _chunks(value: JSON, path: str, rank: int) -> Shape:
    if len(as_list(value, path)) != rank:
        fail(path, f"{rank} sizes, one for each dimension", value)
    # Zero is met where the array was empty.
    return tuple(as_integer(n, f"{path}[{axis}]") or 1 for axis, n in enumerate(value))


def _filters(value: JSON, path: str) -> list[dict[str, JSON]] | None:
    """Return the filters; no list and an empty one are the same."""
    items = [] if value is None else as_list(value, path)
    return [_codec(item, f"{path}[{i}]") for i, item in enumerate(items)] or None


def _compressor(value: JSON, path: str) -> dict[str, JSON] | None:
    return None if value is None else _codec(value, path)


LEVELS = {
    "gzip": ("level", 0, 9),
    "zlib": ("level", -1, 9),
    "bz2": ("level", 1, 9),
    "zstd": ("level", -131072, 22),
    "blosc": ("clevel", 0, 9),
}
"""Where codecs say how much they compress, and from where to where it goes."""
_YES_OR_NO = {"YES": True, "NO": False}


def _codec(value: JSON, path: str) -> dict[str, JSON]:
    """Return a codec with valid parameters in place of those that others write, and that only writing depends on.

    >>> _codec({"id": "zstd", "level": 30, "checksum": "NO"}, "compressor")
    {'id': 'zstd', 'level': 22, 'checksum': False}
    """
    name, found = Fields(value, path).take("id", as_name), dict(value)
    if name == "gzip" and found.get("level") == -1:
        found["level"] = 6  # what zlib does for -1
    key, low, high = LEVELS.get(name, ("", 0, 0))
    if type(found.get(key)) is int:
        found[key] = min(max(found[key], low), high)
    if name == "blosc" and isinstance(found.get("shuffle"), bool):
        found["shuffle"] = int(found["shuffle"])
    if name == "zstd" and isinstance(found.get("checksum"), str):  # as GDAL has it
        found["checksum"] = _YES_OR_NO.get(found["checksum"], found["checksum"])
    return found


# -- the chain ------------------------------------------------------------------------------------

_BYTES = {"blosc", "zstd", "gzip", "zlib", "bz2", "lzma", "lz4", "shuffle"}
_BYTES |= {"crc32", "adler32", "crc32c", "fletcher32", "jenkins_lookup3"}
"""From bytes to bytes, with a class of our own: `numcodecs.<id>`."""
_VARIABLE = {"vlen-utf8": "string", "vlen-bytes": "bytes"}
"""Codecs that Zarr v3 has, too, and their data types."""
_OBJECTS = {*_VARIABLE, "vlen-array", "pickle"}
"""Filters for objects only."""
_SHAPED = {"json2", "msgpack2"}
"""They write the shape of the chunk, so that the order of its axes in memory is nothing to them."""
_NUMBERS = {"zfpy", "pcodec"}
"""From numbers in native byte order to bytes, with a class of our own: `numcodecs.<id>`."""
_NATIVE = "little" if np.little_endian else "big"


class Step(NamedTuple):
    """A filter or the compressor."""

    place: str
    id: str
    configuration: dict[str, JSON]

    def to_json(self) -> dict[str, JSON]:
        """Return it as the document has it."""
        return {"id": self.id, **self.configuration}


def steps_of(filters: list[dict[str, JSON]] | None, compressor: dict[str, JSON] | None) -> list[Step]:
    """Return what chunks go through, in this order."""
    items = [(f"filters[{i}]", item) for i, item in enumerate(filters or [])]
    items += [("compressor", compressor)] if compressor else []
    return [Step(place, item["id"], {k: v for k, v in item.items() if k != "id"}) for place, item in items]


def _chain(dtype: JSON, data_type: DataType, steps: list[Step], order: str, rank: int) -> tuple[Extension, ...]:
    split = len(steps)
    while split and steps[split - 1].id in _BYTES:
        split -= 1
    before, after = steps[:split], steps[split:]
    _check_objects(data_type, before)
    turned = order == "F" and rank > 1 and not (before and before[0].id in _SHAPED)
    axes = [Extension("transpose", {"order": list(range(rank))[::-1]})] if turned else []
    # What a chain takes for the size of elements: that of the array's, whatever filters make of them.
    usual = data_type.item_size or 1
    return (*axes, _serializer(dtype, data_type, before), *_bytes_codecs(after, _itemsize(dtype, before), usual))


def _check_objects(data_type: DataType, steps: list[Step]) -> None:
    """Refuse filters for objects that do not come first, or where there are no objects."""
    for i, step in enumerate(steps):
        objects = data_type.numpy.hasobject and i == 0
        if (step.id in _OBJECTS and not objects) or (step.id in _SHAPED and i):
            raise MetadataError(
                f"{step.place}.id: {step.id!r} must be the first of the filters, of an array of objects",
                field=f"{step.place}.id",
            )


def _serializer(dtype: JSON, data_type: DataType, steps: list[Step]) -> Extension:
    """Return the codec from the chunk to bytes: one of ours if it can say the same."""
    declared = types.declared(dtype)
    orders = types.byte_orders(declared)
    if not steps and len(orders) < 2 and not types.has_subarrays(declared):
        return bytes_codec(orders)
    if len(steps) == 1 and data_type.name == _VARIABLE.get(steps[0].id):
        return Extension(steps[0].id, steps[0].configuration)
    if len(steps) == 1 and steps[0].id in _NUMBERS and orders == {_NATIVE}:
        return Extension(f"numcodecs.{steps[0].id}", steps[0].configuration)
    return Extension(FILTERS, {"dtype": dtype, "filters": [step.to_json() for step in steps]})


def bytes_codec(orders: set[Literal["little", "big"]]) -> Extension:
    """Return the codec of elements in this byte order, if they have one."""
    return Extension("bytes", {"endian": next(iter(orders))} if orders else {})


def _bytes_codecs(steps: list[Step], itemsize: int, usual: int) -> list[Extension]:
    """Return codecs from bytes to bytes. numcodecs hands elements to the first one, and bytes to the others."""
    found = []
    for step in steps:
        configuration = step.configuration
        if step.id == "shuffle":
            configuration = {"elementsize": 4, **configuration}  # by default
        if step.id == "blosc" and itemsize != usual:
            configuration = {"typesize": itemsize, **configuration}
        found.append(Extension(f"numcodecs.{step.id}", configuration))
        itemsize = 1
    return found


def _itemsize(dtype: JSON, steps: list[Step]) -> int:
    """Return the size of the elements that the filters make; 1 if they are bytes."""
    size = types.declared(dtype).itemsize
    for step in steps:
        before, _ = types.CONVERSIONS.get(step.id, (None, None))
        if before is not None and step.configuration.get(before) is not None:
            size = types.conversion(step.id, step.configuration, step.place)[1].itemsize
        elif step.id != "bitround":
            size = 1  # also of a filter that lacks its type, which is refused when the codecs are made
    return size
