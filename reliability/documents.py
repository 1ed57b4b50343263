"""What the scenarios store: documents that every library reads alike, written by hand."""

from __future__ import annotations

import json
import os
from typing import Any

BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
GZIP = {"name": "gzip", "configuration": {"level": 9}}
BLOSC = {
    "name": "blosc",
    "configuration": {"typesize": 8, "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0},
}
CRC32C = {"name": "crc32c"}

CHAINS = {
    "raw": [BYTES],
    "zstd": [BYTES, ZSTD],
    "blosc": [BYTES, BLOSC],
    "gzip": [BYTES, GZIP],
    "crc32c": [BYTES, ZSTD, CRC32C],
}


def shard(inner: list[int], chain: str = "zstd") -> list[dict[str, Any]]:
    """The chain of a shard of such inner chunks."""
    configuration = {"chunk_shape": inner, "codecs": CHAINS[chain], "index_codecs": [BYTES, CRC32C]}
    return [{"name": "sharding_indexed", "configuration": {**configuration, "index_location": "end"}}]


def document(
    shape: list[int], chunks: list[int], codecs: list[dict[str, Any]] | None = None, dtype: str = "int64"
) -> dict[str, Any]:
    """The document of an array with a regular grid; its fill value is 0."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": codecs or CHAINS["raw"],
        "attributes": {},
    }


def long_run(count: int) -> dict[str, Any]:
    """The document of an array of `count` chunks of one element, which it says in a few bytes."""
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[[1, count]]]}}
    return {**document([count], [1]), "chunk_grid": grid}


def group(**more: Any) -> dict[str, Any]:
    """The document of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": {}, **more}


def make(path: str, text: dict[str, Any]) -> str:
    """Write a document into a new directory; returns the directory."""
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/zarr.json", "w") as file:
        json.dump(text, file)
    return path


def bomb(size: int) -> bytes:
    """Zeros as a zstd frame of blocks that repeat one byte, packed by zstd once more."""
    import zstandard

    # RFC 8878: magic; content size in 8 bytes, window of 1 MiB; then blocks of 128 KiB, the last one marked.
    most = 1 << 17
    block = (1 << 1 | most << 3).to_bytes(3, "little") + b"\0"
    last = (1 | 1 << 1 | most << 3).to_bytes(3, "little") + b"\0"
    frame = bytes.fromhex("28b52ffd c0 50") + size.to_bytes(8, "little") + block * (size // most - 1) + last
    return zstandard.ZstdCompressor(level=19).compress(frame)
