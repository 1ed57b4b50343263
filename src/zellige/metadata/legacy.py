"""`structured`: structs as zarr-python wrote them before they had a specification; here they become `struct`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zellige.types import JSON


def modern(document: Mapping[str, JSON], data_type: Any) -> Mapping[str, JSON]:
    """A document with a byte order wherever `struct` needs one, and a fill value in the form of `struct`.

    The older type may lack the byte order, which then is little, and its fill value may be base64 of the bytes as
    they are stored.
    """
    named = document["data_type"]
    if not isinstance(named, dict) or named.get("name") != "structured":
        return document
    from zellige.dtypes.fill import read_bytes

    codecs, fill = _with_byte_order(document.get("codecs")), document.get("fill_value")
    raw = read_bytes(fill) if isinstance(fill, str) and _byte_order(codecs) == "big" else None
    if raw is not None and len(raw) == data_type.numpy.itemsize:
        fill = data_type.write_fill(data_type.unpack(raw, "big"))
    return {**document, "codecs": codecs, **({"fill_value": fill} if "fill_value" in document else {})}


def _with_byte_order(codecs: JSON) -> JSON:
    """The same codecs, with the byte order of `bytes` explicit; anything unexpected is left to be refused."""
    return [_complete(codec) for codec in codecs] if isinstance(codecs, list) else codecs


def _complete(codec: JSON) -> JSON:
    name, configuration = _parts(codec)
    if name in ("bytes", "endian") and configuration == {}:
        return {"name": name, "configuration": {"endian": "little"}}
    if name == "sharding_indexed" and "codecs" in configuration:
        inner = _with_byte_order(configuration["codecs"])
        return {**codec, "configuration": {**configuration, "codecs": inner}}
    return codec


def _parts(codec: JSON) -> tuple[Any, dict[str, JSON]]:
    """The name and the configuration of a codec in any form."""
    if not isinstance(codec, dict):
        return codec, {}
    configuration = codec.get("configuration", {})
    return codec.get("name"), configuration if isinstance(configuration, dict) else {"": configuration}


def _byte_order(codecs: JSON) -> JSON:
    """The byte order of the elements, wherever in the chain it stands."""
    for name, configuration in map(_parts, codecs if isinstance(codecs, list) else []):
        if name in ("bytes", "endian"):
            return configuration.get("endian")
        if name == "sharding_indexed":
            return _byte_order(configuration.get("codecs"))
    return None
