"""Codecs: how a chunk becomes bytes. One table from names in metadata to classes, loaded on first use.

>>> from_json("zstd", {"level": 3})
ZstdCodec(level=3, checksum=False)
>>> import zellige
>>> zellige.codecs.ZstdCodec(level=3).to_json()
{'name': 'zstd', 'configuration': {'level': 3, 'checksum': True}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from zellige.codecs.base import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec
from zellige.errors import MetadataError, UnknownCodecError, hint
from zellige.metadata.json import as_extension
from zellige.types import JSON, InternalName

if TYPE_CHECKING:
    from zellige.codecs.arrays import BytesCodec, ReshapeCodec, SqueezeCodec, TransposeCodec
    from zellige.codecs.bitround import BitroundCodec
    from zellige.codecs.blosc import BloscCodec
    from zellige.codecs.cast_value import CastValueCodec
    from zellige.codecs.conditional import ConditionalCodec
    from zellige.codecs.crc32c import Crc32cCodec
    from zellige.codecs.gzip import GzipCodec
    from zellige.codecs.n5_default import N5DefaultCodec
    from zellige.codecs.packbits import PackbitsCodec
    from zellige.codecs.scale_offset import ScaleOffsetCodec
    from zellige.codecs.sharding import ShardingCodec
    from zellige.codecs.vlen import VLenBytesCodec, VLenUTF8Codec, VLenV2Codec
    from zellige.codecs.zfp import ZfpCodec
    from zellige.codecs.zstd import ZstdCodec

__all__ = [
    "Codec",
    "ArrayArrayCodec",
    "ArrayBytesCodec",
    "BytesBytesCodec",
    "BitroundCodec",
    "BloscCodec",
    "BytesCodec",
    "CastValueCodec",
    "ConditionalCodec",
    "Crc32cCodec",
    "GzipCodec",
    "N5DefaultCodec",
    "PackbitsCodec",
    "ReshapeCodec",
    "ScaleOffsetCodec",
    "ShardingCodec",
    "SqueezeCodec",
    "TransposeCodec",
    "VLenBytesCodec",
    "VLenUTF8Codec",
    "VLenV2Codec",
    "ZfpCodec",
    "ZstdCodec",
    "from_item",
    "from_json",
    "parse_codec",
    "parse_codecs",
]

ENTRY_POINTS = "zellige.codecs"
"""Packages add codecs under this group: the name in metadata, and a class derived from one of the kinds."""

_CODECS = {
    "bitround": "zellige.codecs.bitround:BitroundCodec",
    "blosc": "zellige.codecs.blosc:BloscCodec",
    "bytes": "zellige.codecs.arrays:BytesCodec",
    "cast_value": "zellige.codecs.cast_value:CastValueCodec",
    "conditional": "zellige.codecs.conditional:ConditionalCodec",
    "crc32c": "zellige.codecs.crc32c:Crc32cCodec",
    "gzip": "zellige.codecs.gzip:GzipCodec",
    "n5_default": "zellige.codecs.n5_default:N5DefaultCodec",
    "packbits": "zellige.codecs.packbits:PackbitsCodec",
    "reshape": "zellige.codecs.arrays:ReshapeCodec",
    "scale_offset": "zellige.codecs.scale_offset:ScaleOffsetCodec",
    "sharding_indexed": "zellige.codecs.sharding:ShardingCodec",
    "transpose": "zellige.codecs.arrays:TransposeCodec",
    "vlen-bytes": "zellige.codecs.vlen:VLenBytesCodec",
    "vlen-utf8": "zellige.codecs.vlen:VLenUTF8Codec",
    "zarrs.squeeze": "zellige.codecs.arrays:SqueezeCodec",
    "zarrs.vlen_v2": "zellige.codecs.vlen:VLenV2Codec",
    "zfp": "zellige.codecs.zfp:ZfpCodec",
    "zstd": "zellige.codecs.zstd:ZstdCodec",
}
_NAMES = {
    "CastValue": "zellige.codecs.cast_value:CastValueCodec",
    "ScaleOffset": "zellige.codecs.scale_offset:ScaleOffsetCodec",
    "BloscCname": "zellige.codecs.fields:BloscCname",
    "BloscShuffle": "zellige.codecs.fields:BloscShuffle",
    "Endian": "zellige.codecs.fields:Endian",
    "ShardingCodecIndexLocation": "zellige.codecs.fields:ShardingCodecIndexLocation",
    "SubchunkWriteOrder": "zellige.codecs.fields:SubchunkWriteOrder",
}
"""What this module has by name: what scripts written for zarr-python import, and the classes of the codecs."""
_OF_NUMCODECS = """
    Adler32 AsType BitRound Blosc BZ2 CRC32 CRC32C Delta FixedScaleOffset Fletcher32 GZip JenkinsLookup3 LZ4 LZMA
    PackBits PCodec Quantize Shuffle ZFPY Zlib Zstd
"""
NUMCODECS = {name.lower().replace("lookup3", "_lookup3"): name for name in _OF_NUMCODECS.split()}
"""The codecs of numcodecs, and their classes."""
_NAMES |= {place.partition(":")[2]: place for place in _CODECS.values()}
_CODECS |= {f"numcodecs.{name}": f"zellige.codecs.numcodecs:{name_}" for name, name_ in NUMCODECS.items()}
_CODECS["endian"] = _CODECS["bytes"]  # its former name, still met
_HOLDERS = {"blosc", "sharding_indexed"}
"""Codecs of zarr-python that hold more than their JSON says."""
_INTERNAL = {"zarr2.filters": "zellige.codecs.v2:FiltersCodec"}
"""Codecs that metadata cannot name: what Zarr v2 says in other ways."""


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _load(_NAMES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _load(place: str) -> type[Codec]:
    module, _, name = place.partition(":")
    found: type[Codec] = getattr(import_module(module), name)
    return found


def find(name: str) -> type[Codec]:
    """Return the class of the codec that metadata calls by a name."""
    if isinstance(name, InternalName):
        return _load(_INTERNAL[name])
    if name in _CODECS:
        return _load(_CODECS[name])
    from importlib.metadata import entry_points  # only for names that are not ours

    others = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if name in others:
        found: type[Codec] = others[name].load()
        return found
    known = sorted([*_CODECS, *others])
    raise UnknownCodecError(f"codec {name!r} is not known; {hint(name, known)}", field="name")


def from_json(name: str, configuration: Mapping[str, JSON]) -> Codec:
    """Return the codec that metadata names.

    Parameters
    ----------
    name
        The name, as `"zstd"`.
    configuration
        Its configuration, with every field that metadata must have.

    """
    return find(name).from_configuration(configuration)


def from_item(value: JSON) -> Codec:
    """Return a codec inside the configuration of another.

    Parameters
    ----------
    value
        An object with a `name` and maybe a `configuration`, or a bare name.

    """
    try:
        name, configuration = as_extension(value, "codec", ignorable=True)
    except MetadataError as error:
        raise MetadataError(str(error), field=error.field.removeprefix("codec").lstrip(".") or "name") from error
    return from_json(name, configuration)


def parse_codec(value: Any) -> Codec:
    """Return the codec that a user gives.

    Parameters
    ----------
    value
        A codec of this package, of zarr-python or of numcodecs; a name, which has its defaults; or JSON, as
        `{"name": …, "configuration": …}` or the `{"id": …}` of numcodecs.

    """
    if isinstance(value, Codec):
        return value
    if hasattr(value, "get_config"):  # an object of numcodecs
        value = value.get_config()
    elif hasattr(value, "to_dict"):  # an object of zarr-python
        value, codec = value.to_dict(), value
        if isinstance(value, Mapping) and value.get("name") in _HOLDERS:
            return _from_zarr_python(codec, value)
    if isinstance(value, Mapping) and "id" in value and "name" not in value:
        config = dict(value)
        codec = from_json(f"numcodecs.{config.pop('id')}", config)
        return codec.core() if hasattr(codec, "core") else codec  # blosc, zstd and gzip are codecs of Zarr itself
    if isinstance(value, str):
        return _with_defaults(value)
    if isinstance(value, Mapping):
        return _from_mapping(dict(value))
    raise MetadataError(
        f"{value!r} is not a codec; give a codec object, a name, or {{'name': …, 'configuration': …}}", field="codecs"
    )


def _from_zarr_python(codec: Any, found: Mapping[str, Any]) -> Codec:
    """Return the codec that an object of zarr-python means, where `to_dict` does not say all of it.

    Of blosc it has placeholders for what depends on the elements, until an array knows them; `_tunable_attrs` names
    these. A shard may hold such.
    """
    given = dict(found["configuration"])
    if found["name"] == "blosc":
        given |= dict.fromkeys(getattr(codec, "_tunable_attrs", ()))
    else:
        given |= {key: parse_codecs(getattr(codec, key)) for key in ("codecs", "index_codecs")}
        given["chunk_shape"] = [*given["chunk_shape"]]
    return _load(_CODECS[found["name"]])(**given)


def _from_mapping(value: dict[str, JSON]) -> Codec:
    """Return the codec of an object as in metadata; an argument may leave out what has a default."""
    try:
        return from_item(value)
    except UnknownCodecError:
        raise
    except MetadataError as error:
        kind = find(value["name"]) if isinstance(value.get("name"), str) else Codec
        try:
            if issubclass(kind, BytesBytesCodec):
                return kind(**value["configuration"])
        except (KeyError, TypeError, MetadataError):
            pass  # the first error says it better
        raise error


def _with_defaults(name: str) -> Codec:
    kind = find(name)
    try:
        return kind()
    except TypeError as error:
        message = f"codec {name!r} needs a configuration: {error}; give {{'name': {name!r}, 'configuration': …}}"
        raise MetadataError(message, field="configuration") from error


def parse_codecs(value: Any) -> list[Codec]:
    """Return the codecs that a user gives.

    Parameters
    ----------
    value
        None, one codec, or several: each as in `parse_codec`.

    """
    if value is None:
        return []
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return [parse_codec(item) for item in value]
    return [parse_codec(value)]
