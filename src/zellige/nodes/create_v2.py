"""What `create_array` does for Zarr format 2: the same arguments as a `.zarray` document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zellige.codecs import from_json, parse_codecs
from zellige.codecs.v2 import v2_config
from zellige.dtypes import DataType
from zellige.dtypes.v2 import declared as declared_type
from zellige.dtypes.v2 import from_v2, to_v2, write_v2_fill
from zellige.errors import ChunkShapeError, MetadataError, UnknownDataTypeError
from zellige.metadata.keys import V2ChunkKeyEncoding, chunk_key_encoding_argument
from zellige.metadata.v2 import LEVELS, ArrayV2Metadata
from zellige.types import JSON, NOT_GIVEN, Shape

_DEFAULT = {"id": "zstd", "level": 1}  # without the checksum, which not every reader of this format knows
_NAMES = "_ARRAY_DIMENSIONS"  # as xarray names axes in this format


def metadata_v2(
    data_type: DataType, grid: tuple[str, Any, Shape | None], codecs: Any, *, declared: Any, order: str, **common: Any
) -> ArrayV2Metadata:
    """The metadata of a new array; raises for what the format cannot say."""
    dtype = to_v2(data_type if isinstance(declared, DataType) else declared)
    attributes = dict(common["attributes"])
    if common["dimension_names"] is not None:
        attributes[_NAMES] = list(common["dimension_names"])
    document: dict[str, JSON] = {
        "zarr_format": 2,
        "shape": list(common["shape"]),
        "chunks": _chunks(*grid),
        "dtype": dtype,
        "compressor": _compressor(codecs.compressors),
        "fill_value": _fill(data_type, dtype, common["fill_value"]),
        "order": order,
        "filters": _filters(data_type, codecs) or None,
        "dimension_separator": _separator(common["chunk_key_encoding"]),
    }
    if codecs.serializer is not None and codecs.serializer != "auto":
        raise MetadataError("Zarr format 2 has no serializers; leave serializer= out", field="serializer")
    return ArrayV2Metadata.from_documents({".zarray": document, ".zattrs": attributes})


def _fill(data_type: DataType, dtype: JSON, given: Any) -> JSON:
    """The fill value as JSON; None stays null, which says that there is none."""
    if given is None:
        return None
    return write_v2_fill(data_type, declared_type(dtype), data_type.cast_fill(None if given is NOT_GIVEN else given))


def object_type(filters: Any) -> DataType:
    """The data type of arrays of Python objects, which is what the first of the filters makes of them."""
    chosen = _as_list(filters)
    if not chosen:
        raise UnknownDataTypeError(
            "dtype=object does not say what the objects are; say dtype='string' or dtype='bytes', or give "
            "object_codec=, such as numcodecs.JSON()",
            field="data_type",
        )
    first = v2_config(chosen[0])
    return from_v2("|O", first["id"], first.get("dtype"))


def _as_list(given: Any) -> list[Any]:
    """What a user gives for several codecs: nothing, one codec, or several."""
    if given is None or (isinstance(given, str) and given == "auto"):
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _chunks(name: str, axes: Sequence[Any], inner: Shape | None) -> list[int]:
    if inner is not None:
        raise ValueError("Zarr format 2 has no shards; leave shards= out, or use zarr_format=3")
    if name != "regular":
        raise ChunkShapeError("Zarr format 2 has chunks of one shape only; use zarr_format=3 for others", axis=None)
    return list(axes)


def _compressor(given: Any) -> JSON:
    if isinstance(given, str) and given == "auto":
        return _DEFAULT
    found = _as_list(given)
    if len(found) > 1:
        raise MetadataError("Zarr format 2 takes one compressor; give the others as filters", field="compressor")
    return _checked(found[0]) if found else None


def _checked(given: Any) -> dict[str, JSON]:
    """The configuration of a codec that a user gives; other than in documents, nothing of it is mended."""
    found = v2_config(given)
    if found["id"] in LEVELS:
        from_json(f"numcodecs.{found['id']}", {key: value for key, value in found.items() if key != "id"})
    return found


def _filters(data_type: DataType, codecs: Any) -> list[JSON]:
    found = [_checked(codec) for codec in _as_list(codecs.filters)]
    if data_type.codec != "bytes" and not found:
        found = [v2_config(codec) for codec in parse_codecs(data_type.codec)]
    return [*found, {"id": "crc32c"}] if codecs.checksum else found


def _separator(given: Any) -> str:
    if given is None:
        return "."
    encoding = chunk_key_encoding_argument(given)
    if not isinstance(encoding, V2ChunkKeyEncoding):
        raise MetadataError(
            "Zarr format 2 has chunk keys of its own; give chunk_key_encoding={'name': 'v2', 'separator': …}",
            field="chunk_key_encoding",
        )
    return encoding.separator
