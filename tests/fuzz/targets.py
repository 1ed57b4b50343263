"""What the fuzzer calls: each target takes any bytes, and raises if a promise is broken.

A document is refused with a `MetadataError`, or comes back the same after it was written again. Bytes are refused
with a `CodecError`, or decode to no more than the limit. Whatever else is raised is a find.
"""

from __future__ import annotations

import json
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))
import hostile_corpus as corpus

import zellige
from zellige import codecs
from zellige.errors import CodecError, CorruptChunkError, MetadataError, StoreKeyError, UnsupportedCodecError
from zellige.metadata.chunks import DefaultChunkKeyEncoding, V2ChunkKeyEncoding
from zellige.metadata.json import write_json
from zellige.stores import MemoryStore
from zellige.stores.base import check_key, is_key

_SMALL = 1 << 16  # bytes of an element that is still read


# -- documents ------------------------------------------------------------------------------------


def _stored(documents: dict[str, Any]) -> MemoryStore:
    return MemoryStore({name: write_json(content) for name, content in documents.items()})


def _check_node(node: zellige.Array | zellige.Group) -> None:
    """What was accepted can be written, and read again as the same."""
    if isinstance(node, zellige.Array) and node.dtype.itemsize > _SMALL:
        return  # to write its fill value takes what one element takes
    again = zellige.open(_stored(node.metadata.to_documents()))
    assert again.metadata == node.metadata
    assert isinstance(repr(node), str)
    if isinstance(node, zellige.Array):
        _check_array(node)


def _check_array(array: zellige.Array) -> None:
    assert array.ndim == len(array.shape) == len(array.grid.dimensions)
    assert array.nchunks >= 0
    if array.size:
        first, last = array[(0,) * array.ndim], array[(-1,) * array.ndim]  # both missing, so both the fill value
        assert first is not None or array.dtype.kind == "O"
        assert type(first) is type(last)


def document(name: str, data: bytes) -> None:
    """A document of this name, alone in a store."""
    try:
        node = zellige.open(MemoryStore({name: data}))
    except MetadataError as error:
        assert isinstance(error.field, str)  # noqa: PT017
        return
    _check_node(node)


def consolidated(name: str, data: bytes) -> None:
    """A document with consolidated metadata: what it lists lies below the group."""
    try:
        group = zellige.open_group(MemoryStore({name: data}), mode="r")
    except (MetadataError, zellige.errors.GroupNotFoundError):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        members = group.members(max_depth=None)
    for path, node in members:
        assert is_key(path)
        assert is_key(node.path)
        _check_node(node)


# -- shards ---------------------------------------------------------------------------------------

_LITTLE, _CRC = {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}
_INNER = ([_LITTLE], [_LITTLE, _CRC], [_LITTLE, {"name": "zstd", "configuration": {"level": 1}}])


def _sharding(shape: list[int], inner: list[Any], location: str, *, checksum: bool) -> dict[str, Any]:
    index = [_LITTLE, _CRC] if checksum else [_LITTLE]
    options = {"chunk_shape": shape, "codecs": inner, "index_codecs": index, "index_location": location}
    return {"name": "sharding_indexed", "configuration": options}


def shard(data: bytes) -> None:
    """The first byte says how the shard is stored, the others are the shard; its checksum may be put right."""
    how, raw = data[0] if data else 0, bytearray(data[1:])
    location, checksum = ("start", "end")[how & 1], bool(how & 2)
    inner = _INNER[(how >> 2) % 3]
    if how & 16:
        inner = [_sharding([1, 3], inner, location, checksum=False)]
    if checksum and how & 32 and len(raw) >= 68:  # or few would get any further
        start = 0 if location == "start" else len(raw) - 68
        raw[start + 64 : start + 68] = struct.pack("<I", google_crc32c.value(bytes(raw[start : start + 64])))
    meta = dict(corpus.arrays()["shard within a shard"]["documents"]["zarr.json"])
    meta["codecs"] = [_sharding([2, 3], inner, location, checksum=checksum)]
    content = {"zarr.json": json.dumps(meta).encode(), "c/0/0": bytes(raw)}
    whole = _read(content, ...)
    array = zellige.open_array(MemoryStore(content))
    for place in ((0, 0), (1, 2), (0, 3), (3, 0), (3, 5), np.s_[1:3, 2:4], np.s_[:, ::2]):
        part = _part(array, place)
        assert whole is None or np.array_equal(part, whole[place])
    changed = dict(content)
    try:
        zellige.open_array(MemoryStore(changed))[1, 1] = 5
    except CorruptChunkError:
        assert changed == content
    else:
        assert zellige.open_array(MemoryStore(changed))[1, 1] == 5


def _read(content: dict[str, bytes], index: Any) -> Any:
    """What an array gives, or None if it is damaged."""
    before = dict(content)
    found = _part(zellige.open_array(MemoryStore(content)), index)
    assert content == before
    return found


def _part(array: zellige.Array, index: Any) -> Any:
    try:
        return array[index]
    except CorruptChunkError as error:
        assert error.key in str(error)  # noqa: PT017
    except UnsupportedCodecError:
        pass
    return None


# -- codecs ---------------------------------------------------------------------------------------


def codec(items: list[Any], data: bytes) -> None:
    """The first byte picks one of some codecs, the next two are the limit, the others what is to be decoded."""
    head, raw = data[:3].ljust(3, b"\0"), data[3:]
    chosen = codecs.from_item(items[head[0] % len(items)])
    limit = int.from_bytes(head[1:], "little")
    assert isinstance(chosen, codecs.BytesBytesCodec)
    try:
        found = bytes(chosen.decode(raw, limit))
    except CodecError:
        return
    assert len(found) <= limit
    assert bytes(chosen.decode(memoryview(raw), len(found))) == found
    if found:
        try:
            chosen.decode(raw, len(found) - 1)
        except CodecError:
            return
        raise AssertionError("a limit is not kept")


def chunk(names: list[str], data: bytes) -> None:
    """The first byte picks one of some arrays of the corpus, the others are its chunk."""
    name = names[(data[0] if data else 0) % len(names)]
    given = corpus.arrays()[name]
    content = corpus.documents_of(name) | {given["key"]: data[1:]}
    array = zellige.open_array(MemoryStore(content))
    whole = _read(content, ...)
    assert whole is None or (whole.shape, whole.dtype) == (array.shape, array.dtype)
    part = _read(content, (0,) * array.ndim)
    assert whole is None or part is not None or array.dtype.kind == "O"


# -- grids and keys -------------------------------------------------------------------------------


def grid(data: bytes) -> None:
    """JSON with a shape and a grid: every element lies in one chunk, whose key leads back to it."""
    try:
        given = json.loads(data)
        raw = json.dumps({**corpus.good("array v3"), **{key: given[key] for key in _GRID if key in given}}).encode()
    except (ValueError, TypeError, RecursionError):
        return
    try:
        array = zellige.open_array(MemoryStore({"zarr.json": raw}))
    except MetadataError:
        return
    if array.size:
        for seed in range(4):
            _check_place(array, [(len(data) * 7919 * seed + sum(data) * k) % n for k, n in enumerate(array.shape, 1)])


_GRID = ("shape", "chunk_grid", "chunk_key_encoding")


def _check_place(array: zellige.Array, place: list[int]) -> None:
    found = list(array.iter_chunks(tuple(slice(k, k + 1) for k in place)))
    assert len(found) == 1
    encoding = array.metadata.chunk_key_encoding
    assert encoding.decode_chunk_key(found[0].key, array.ndim) == found[0].coords
    assert all(region.start <= k < region.stop for region, k in zip(found[0].slices, place, strict=True))
    assert array[tuple(place)] == 7


def key(data: bytes) -> None:
    """Text as a key of a store, and as the key of a chunk."""
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    parts = text.split("/")
    outside = any(part in ("", ".", "..") or part.startswith(".zellige-tmp-") for part in parts)
    halves = any("\ud800" <= c <= "\udc7f" or "\udd00" <= c <= "\udfff" for c in text)
    wrong = outside or halves or "\0" in text
    try:
        found = check_key(text)
    except StoreKeyError:
        assert wrong
    else:
        assert found == text
        assert not wrong
    for encoding in (kind(separator) for kind in (DefaultChunkKeyEncoding, V2ChunkKeyEncoding) for separator in "./"):
        for rank in range(4):
            coords = encoding.decode_chunk_key(text, rank)
            assert coords is None or (len(coords) == rank and encoding.encode_chunk_key(coords) == text)


# -- all of them, with where they begin -----------------------------------------------------------


def _item(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


_BLOSC = _item("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=2, blocksize=0)
_CODECS = {
    "zstd": ([_item("zstd", level=1)], ["zstd"]),
    "gzip": ([_item("gzip", level=1)], ["gzip"]),
    "blosc": ([_BLOSC], ["blosc", "blosc in blocks"]),
    "zlib": ([_item("numcodecs.zlib")], ["zlib"]),
    "bz2": ([_item("numcodecs.bz2")], ["bz2"]),
    "lzma": ([_item("numcodecs.lzma"), _item("numcodecs.lzma", format=2)], ["lzma", "lzma alone"]),
    "lz4": ([_item("numcodecs.lz4")], ["lz4"]),
    "checksums": (
        ["crc32c", *(f"numcodecs.{name}" for name in ("crc32", "adler32", "fletcher32", "jenkins_lookup3"))],
        ["crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3"],
    ),
    "conditional": ([_item("conditional", codecs=[_item("zstd", level=1), "crc32c"])], ["conditional"]),
}
_CHUNKS = {
    "zfp": ["zfpy", "zfp"],
    "pcodec": ["pcodec"],
    "vlen": ["vlen-utf8", "vlen-bytes", "v2 vlen-array"],
    "n5": ["n5"],
    "bits and chains": ["packbits", "bool", "shuffle", "gzip twice", "zstd and crc32c", "v2 packbits", "v2 unicode"],
    "objects": ["v2 json2", "v2 msgpack2", "v2 categorize", "v2 zlib and delta"],
}
_DOCUMENTS = {
    "array v3": partial(document, "zarr.json"),
    "array v2": partial(document, ".zarray"),
    "group v3": partial(consolidated, "zarr.json"),
    "group v2": partial(consolidated, ".zmetadata"),
}

TARGETS: dict[str, Callable[[bytes], None]] = {
    **{f"document {name}": target for name, target in _DOCUMENTS.items()},
    "shard": shard,
    **{f"codec {name}": partial(codec, items) for name, (items, _) in _CODECS.items()},
    **{f"chunk {name}": partial(chunk, names) for name, names in _CHUNKS.items()},
    "grid": grid,
    "key": key,
}


def seeds(target: str) -> Iterator[bytes]:
    """Where the fuzzer begins: the corpus, but for what is only long."""
    kind, _, name = target.partition(" ")
    if kind == "document":
        kinds = {name, name.replace("group", "consolidated")}
        yield from (case.raw for case in corpus.documents() if case.what in kinds and "pieces" not in case.given)
    elif kind == "codec":
        for number, array in enumerate(_CODECS[name][1]):
            limit = struct.pack("<BH", number if len(_CODECS[name][0]) > 1 else 0, 4096 if "blocks" in array else 128)
            yield from (limit + case.raw for case in corpus.chunks() if case.array == array)
    elif kind == "chunk":
        for number, array in enumerate(_CHUNKS[name]):
            yield from (bytes([number]) + case.raw for case in corpus.chunks() if case.array == array)
    elif kind == "shard":
        for how, array in _SHARDS.items():
            yield from (bytes([how]) + case.raw for case in corpus.chunks() if case.array == array)
    elif kind == "grid":
        for case in corpus.documents():
            change = case.given.get("change", {})
            if case.what == "array v3" and change.keys() & {"chunk_grid", "chunk_key_encoding"}:
                yield json.dumps(change).encode()
    else:
        listed = corpus.keys()
        texts = [*listed["refused"].values(), *listed["accepted"].values(), "c/0/1", "c.2.3", "0.1", "c"]
        yield from (text.encode("utf-8", "surrogatepass") for text in texts)


_SHARDS = {
    2: "shard with its index at the start",
    34: "shard with its index at the start",
    3: "shard with its index at the end",
    35: "shard with its index at the end",
    8: "shard without a checksum, its index at the start",
    9: "shard without a checksum, its index at the end",
}
