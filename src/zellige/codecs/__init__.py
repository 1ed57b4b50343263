"""Codecs: how a chunk becomes bytes. One table from names in documents to classes, loaded on first use.

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
from zellige.errors import MetadataError, UnknownCodecError
from zellige.types import JSON

if TYPE_CHECKING:
    from zellige.codecs.arrays import BytesCodec, TransposeCodec
    from zellige.codecs.blosc import BloscCodec
    from zellige.codecs.crc32c import Crc32cCodec
    from zellige.codecs.gzip import GzipCodec
    from zellige.codecs.sharding import ShardingCodec
    from zellige.codecs.zstd import ZstdCodec

__all__ = [
    "Codec",
    "ArrayArrayCodec",
    "ArrayBytesCodec",
    "BytesBytesCodec",
    "BytesCodec",
    "TransposeCodec",
    "BloscCodec",
    "Crc32cCodec",
    "GzipCodec",
    "ShardingCodec",
    "ZstdCodec",
    "from_json",
    "parse_codec",
    "parse_codecs",
]

_CODECS = {
    "bytes": "zellige.codecs.arrays:BytesCodec",
    "transpose": "zellige.codecs.arrays:TransposeCodec",
    "blosc": "zellige.codecs.blosc:BloscCodec",
    "crc32c": "zellige.codecs.crc32c:Crc32cCodec",
    "sharding_indexed": "zellige.codecs.sharding:ShardingCodec",
    "gzip": "zellige.codecs.gzip:GzipCodec",
    "zstd": "zellige.codecs.zstd:ZstdCodec",
}
_CLASSES = {place.partition(":")[2]: place for place in _CODECS.values()}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return _load(_CLASSES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _load(place: str) -> type[Codec]:
    module, _, name = place.partition(":")
    found: type[Codec] = getattr(import_module(module), name)
    return found


def _find(name: str) -> type[Codec]:
    if name in _CODECS:
        return _load(_CODECS[name])
    from difflib import get_close_matches  # only when there is something to say

    close = get_close_matches(name, _CODECS, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_CODECS)}"
    raise UnknownCodecError(f"codec {name!r} is not known; {hint}", field="name")


def from_json(name: str, configuration: Mapping[str, JSON]) -> Codec:
    """The codec that a document names."""
    return _find(name).from_configuration(configuration)


def from_item(value: JSON) -> Codec:
    """A codec inside the configuration of another: an object, or a bare name."""
    if isinstance(value, str):
        return from_json(value, {})
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise MetadataError(f"a codec must be an object with a name, found {value!r}", field="name")
    if unknown := value.keys() - {"name", "configuration", "must_understand"}:
        raise MetadataError(f"a codec has no {min(unknown)!r}", field=min(unknown))
    configuration = value.get("configuration", {})
    if not isinstance(configuration, dict):
        raise MetadataError(f"configuration must be an object, found {configuration!r}", field="configuration")
    return from_json(value["name"], configuration)


def parse_codec(value: Any) -> Codec:
    """What a user gives for one codec: an object, a name (with its defaults), or JSON."""
    if isinstance(value, Codec):
        return value
    if isinstance(value, str):
        return _find(value)()
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return from_json(value["name"], value.get("configuration", {}))
    raise MetadataError(
        f"{value!r} is not a codec; give a codec object, a name, or {{'name': …, 'configuration': …}}", field="codecs"
    )


def parse_codecs(value: Any) -> list[Codec]:
    """What a user gives for several codecs: None, one codec, or several."""
    if value is None:
        return []
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return [parse_codec(item) for item in value]
    return [parse_codec(value)]
