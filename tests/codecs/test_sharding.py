"""`sharding_indexed`: the golden bytes of spec 12, every layout that spec 7.3 allows, codecs around and inside."""

from __future__ import annotations

import json
import random
import struct
from itertools import product
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import pytest

import zellige
from zellige.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zellige.codecs.chain import CodecChain
from zellige.stores import MemoryStore

EMPTY = 2**64 - 1


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, **({"configuration": configuration} if configuration else {})}


PLAIN, LITTLE, BIG = codec("bytes"), codec("bytes", endian="little"), codec("bytes", endian="big")
CRC = codec("crc32c")
TRANSPOSE = codec("transpose", order=[1, 0])


def sharding(
    chunk_shape: Any, codecs: Any = (PLAIN,), index_codecs: Any = (LITTLE, CRC), **more: Any
) -> dict[str, Any]:
    """The codec as JSON."""
    given = {"chunk_shape": list(chunk_shape), "codecs": list(codecs), "index_codecs": list(index_codecs), **more}
    return codec("sharding_indexed", **given)


def stored(
    chain: list[Any], shape: Any, raw: bytes | None = None, *, chunks: Any = None, dtype: str = "uint8", fill: int = 0
) -> MemoryStore:
    """A store with a document written by hand, and maybe the bytes of the first chunk."""
    store = MemoryStore()
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype,
        "chunk_grid": codec("regular", chunk_shape=list(chunks or shape)),
        "chunk_key_encoding": codec("default", separator="/"),
        "fill_value": fill,
        "codecs": chain,
    }
    store.put("zarr.json", json.dumps(document).encode())
    if raw is not None:
        store.put(key(shape), raw)
    return store


def key(shape: Any) -> str:
    return "/".join(["c", *["0"] * len(shape)])


def elements(shape: Any) -> list[tuple[int, ...]]:
    return list(product(*map(range, shape)))


# -- golden vectors -------------------------------------------------------------------------------


class Vector(NamedTuple):
    """An array in one shard, its codecs, and the hex of that shard."""

    data: np.ndarray
    hex: str
    serializer: dict[str, Any]
    filters: tuple[Any, ...] = ()

    @property
    def raw(self) -> bytes:
        return bytes.fromhex(self.hex)

    def create(self, **options: Any) -> zellige.Array:
        return zellige.create_array(
            MemoryStore(),
            shape=self.data.shape,
            dtype=self.data.dtype,
            chunks=self.data.shape,
            config={"uneven_inner_chunks": True},
            **{"filters": self.filters, "serializer": self.serializer, "compressors": None, **options},
        )

    def found(self, array: zellige.Array) -> bytes | None:
        return array.store.get(key(self.data.shape))


S = np.array([[1, 2, 0, 0], [3, 4, 0, 0], [5, 6, 7, 8], [9, 10, 11, 12]], np.uint8)
ORDER = np.arange(1, 25, dtype=np.uint8).reshape(4, 6)

VECTORS = {
    "index at the end": Vector(
        S,
        "01020304 0506090a 07080b0c"
        "0000000000000000 0400000000000000  ffffffffffffffff ffffffffffffffff"
        "0400000000000000 0400000000000000  0800000000000000 0400000000000000  33ee612e",
        sharding((2, 2)),
    ),
    "index at the start": Vector(
        S,
        "4400000000000000 0400000000000000  ffffffffffffffff ffffffffffffffff"
        "4800000000000000 0400000000000000  4c00000000000000 0400000000000000  eae97b44"
        "01020304 0506090a 07080b0c",
        sharding((2, 2), index_location="start"),
    ),
    "nested": Vector(
        S,
        "01020304 0000000000000000 0400000000000000 ffffffffffffffff ffffffffffffffff"
        "0506090a 07080b0c 0000000000000000 0400000000000000 0400000000000000 0400000000000000"
        "0000000000000000 2400000000000000 2400000000000000 2800000000000000",
        sharding((2, 4), [sharding((2, 2), index_codecs=[LITTLE])], [LITTLE]),
    ),
    "not dividing": Vector(  # clipped to the shard: 2 x 2, 2 x 1, 1 x 2 and 1 x 1
        np.arange(1, 10, dtype=np.uint8).reshape(3, 3),
        "01020405 0306 0708 09" + "".join(struct.pack("<QQ", *span).hex() for span in ((0, 4), (4, 2), (6, 2), (8, 1))),
        sharding((2, 2), index_codecs=[LITTLE]),
    ),
    "not dividing, nested": Vector(  # 3 and 2 elements, the former in 2 and 1
        np.arange(1, 6, dtype=np.uint8).reshape(1, 5),
        "0102 03"
        + "".join(struct.pack("<QQ", *span).hex() for span in ((0, 2), (2, 1)))
        + "0405"
        + struct.pack("<QQ", 0, 2).hex()
        + "".join(struct.pack("<QQ", *span).hex() for span in ((0, 35), (35, 18))),
        sharding((1, 3), [sharding((1, 2), index_codecs=[LITTLE])], [LITTLE]),
    ),
    "larger than the shard": Vector(
        np.arange(1, 4, dtype=np.uint8).reshape(1, 3),
        "010203" + struct.pack("<QQ", 0, 3).hex(),
        sharding((1, 8), index_codecs=[LITTLE]),
    ),
    "transposed": Vector(
        ORDER,
        "0107020803090d130e140f15040a050b060c101611171218"
        + "".join(struct.pack("<QQ", offset, 6).hex() for offset in (0, 6, 12, 18)),
        sharding((3, 2), index_codecs=[LITTLE]),
        (TRANSPOSE,),
    ),
}
every_vector = pytest.mark.parametrize("vector", VECTORS.values(), ids=list(VECTORS))


@every_vector
def test_golden_bytes_are_written(vector):
    array = vector.create()
    array[...] = vector.data
    assert vector.found(array) == vector.raw


@every_vector
def test_golden_bytes_are_written_in_any_number_of_parts(vector):
    array = vector.create()
    places = elements(vector.data.shape)
    random.Random(7).shuffle(places)
    for place in places:
        array[place] = vector.data[place]
    assert vector.found(array) == vector.raw


@every_vector
def test_golden_bytes_are_read(vector):
    store = stored([*vector.filters, vector.serializer], vector.data.shape, vector.raw)
    array = zellige.open_array(store, mode="r")
    assert np.array_equal(array[...], vector.data)
    for place in elements(vector.data.shape):
        assert zellige.open_array(store)[place] == array[place] == vector.data[place]
    assert np.array_equal(array[1:, ::-2], vector.data[1:, ::-2])


def test_golden_bytes_are_written_by_codec_objects():
    plain, index = (BytesCodec(None),), (BytesCodec(), Crc32cCodec())
    bare = (BytesCodec(),)
    objects = {
        "index at the end": {"serializer": ShardingCodec((2, 2), plain, index)},
        "index at the start": {"serializer": ShardingCodec((2, 2), plain, index, "start")},
        "nested": {"serializer": ShardingCodec((2, 4), (ShardingCodec((2, 2), plain, bare),), bare)},
        "not dividing": {"serializer": ShardingCodec((2, 2), plain, bare)},
        "not dividing, nested": {"serializer": ShardingCodec((1, 3), (ShardingCodec((1, 2), plain, bare),), bare)},
        "larger than the shard": {"serializer": ShardingCodec((1, 8), plain, bare)},
        "transposed": {"serializer": ShardingCodec((3, 2), plain, bare), "filters": [TransposeCodec((1, 0))]},
    }
    assert objects.keys() == VECTORS.keys()
    for name, options in objects.items():
        array = VECTORS[name].create(**options)
        array[...] = VECTORS[name].data
        assert VECTORS[name].found(array) == VECTORS[name].raw, name


def test_golden_bytes_are_written_by_the_shards_argument():
    # The one vector that needs no other options: its index codecs are the recommended ones.
    array = zellige.create_array(data=S, chunks=(2, 2), shards=(4, 4), compressors=None)
    assert array.store.get("c/0/0") == VECTORS["index at the end"].raw


# -- legal layouts that we do not write -----------------------------------------------------------


def packed(entries: list[tuple[int, int]], codecs: list[Any]) -> bytes:
    """An index by hand."""
    order = ">" if codecs[0] == BIG else "<"
    raw = b"".join(struct.pack(f"{order}QQ", *entry) for entry in entries)
    return raw + struct.pack("<I", google_crc32c.value(raw)) if CRC in codecs else raw


def parsed(raw: bytes, count: int, codecs: list[Any]) -> list[tuple[int, int]]:
    """The entries of an index by hand."""
    assert len(raw) == 16 * count + 4 * (CRC in codecs)
    entries = list(struct.iter_unpack(">QQ" if codecs[0] == BIG else "<QQ", raw[: 16 * count]))
    assert packed(entries, codecs) == raw
    return entries


INDEX_CODECS = {"little": [LITTLE], "big": [BIG], "little crc32c": [LITTLE, CRC], "big crc32c": [BIG, CRC]}
index_codecs = pytest.mark.parametrize("codecs", INDEX_CODECS.values(), ids=list(INDEX_CODECS))
locations = pytest.mark.parametrize("location", ["start", "end"])


def laid_out(
    parts: dict[int, bytes], count: int, codecs: list[Any], location: str, order: list[int], gap: int
) -> bytes:
    """A shard by hand, its inner chunks in this physical order with gaps around them."""
    size = 16 * count + 4 * (CRC in codecs)
    body, entries = b"", [(EMPTY, EMPTY)] * count
    start = size if location == "start" else 0
    for number in order:
        body += b"\xee" * gap
        entries[number] = (start + len(body), len(parts[number]))
        body += parts[number]
    body += b"\xee" * gap
    index = packed(entries, codecs)
    assert len(index) == size
    return index + body if location == "start" else body + index


@index_codecs
@locations
@pytest.mark.parametrize("inner", [[LITTLE], [LITTLE, CRC], [LITTLE, codec("zstd", level=1)]], ids=["-", "crc", "zstd"])
def test_inner_chunks_lie_in_any_order_with_gaps(codecs, location, inner):
    data = np.arange(1, 49, dtype="<i2").reshape(6, 8)
    data[:2, 4:] = 7  # the fill value, so not stored
    tiles = {k: data[r : r + 2, c : c + 4] for k, (r, c) in enumerate(product(range(0, 6, 2), (0, 4)))}
    encode = {1: bytes, 2: Crc32cCodec().encode if CRC in inner else ZstdCodec(1).encode}[len(inner)]
    parts = {k: encode(tile.tobytes()) for k, tile in tiles.items() if k != 1}
    chain = [sharding((2, 4), inner, codecs, index_location=location)]
    for order, gap in (([0, 2, 3, 4, 5], 0), ([5, 3, 0, 4, 2], 0), ([4, 0, 5, 2, 3], 3), ([2, 5, 4, 3, 0], 70_000)):
        raw = laid_out(parts, 6, codecs, location, order, gap)
        array = zellige.open_array(stored(chain, (6, 8), raw, dtype="int16", fill=7))
        assert np.array_equal(array[...], data)
        assert np.array_equal(array[1:5, 2:], data[1:5, 2:])
        assert np.array_equal(array[[5, 0, 3], [7, 0, 2]], data[[5, 0, 3], [7, 0, 2]])
        assert [array[place] for place in elements((6, 8))] == data.ravel().tolist()
        array[2:4, :4] = 9  # a whole inner chunk
        array[5, 7] = -1  # and a part of one
        changed = data.copy()
        changed[2:4, :4], changed[5, 7] = 9, -1
        assert np.array_equal(array[...], changed)


@index_codecs
@locations
def test_an_object_that_is_only_an_index_reads_as_fill(codecs, location):
    raw = packed([(EMPTY, EMPTY)] * 4, codecs)
    chain = [sharding((2, 2), index_codecs=codecs, index_location=location)]
    array = zellige.open_array(stored(chain, (4, 4), raw, fill=5))
    assert np.array_equal(array[...], np.full((4, 4), 5))
    assert array[3, 0] == 5
    array[3, 0] = 1
    expected = np.full((4, 4), 5)
    expected[3, 0] = 1
    assert np.array_equal(array[...], expected)


@index_codecs
@locations
@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
def test_the_index_says_where_inner_chunks_are(codecs, location, parts):
    array = zellige.create_array(
        shape=(4, 4),
        dtype="uint8",
        chunks=(4, 4),
        serializer=sharding((2, 2), index_codecs=codecs, index_location=location),
        compressors=None,
    )
    for rows in [np.s_[:1], np.s_[1:3], np.s_[3:]] if parts else [...]:
        array[rows] = S[rows]
    raw = array.store.get("c/0/0")
    size = 64 + 4 * (CRC in codecs)
    start = size if location == "start" else 0
    index = raw[:size] if location == "start" else raw[-size:]
    entries = parsed(index, 4, codecs)
    assert entries == [(start, 4), (EMPTY, EMPTY), (start + 4, 4), (start + 8, 4)]
    for (offset, length), (r, c) in zip(entries, product((0, 2), (0, 2)), strict=True):
        if offset != EMPTY:
            assert raw[offset : offset + length] == S[r : r + 2, c : c + 2].tobytes()


def test_inner_chunks_are_whole_where_the_shard_reaches_over_the_end():
    store = MemoryStore()
    array = zellige.create_array(
        store,
        data=np.arange(1, 6, dtype=np.uint8),
        chunks=(2,),
        shards=(8,),
        compressors=None,
        fill_value=9,
    )
    entries = parsed(store.get("c/0")[-68:], 4, [LITTLE, CRC])
    assert entries == [(0, 2), (2, 2), (4, 2), (EMPTY, EMPTY)]
    assert store.get("c/0")[:6] == bytes([1, 2, 3, 4, 5, 9])
    assert array[...].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("codecs", [[LITTLE], [LITTLE, CRC], [codec("transpose", order=[1, 0]), LITTLE]], ids=len)
def test_index_codecs_are_a_whole_chain(codecs):
    # A transposed index: all offsets, then all lengths.
    array = zellige.create_array(
        shape=4, dtype="uint8", chunks=4, serializer=sharding((2,), index_codecs=codecs), compressors=None
    )
    array[...] = [1, 2, 3, 4]
    numbers = (0, 2, 2, 2)
    assert array.store.get("c/0")[:36] == bytes([1, 2, 3, 4]) + struct.pack("<4Q", *numbers)
    assert zellige.open_array(array.store)[2] == 3
    if codecs[0]["name"] == "transpose":
        array[:2] = 0
        assert array.store.get("c/0") == bytes([3, 4]) + struct.pack("<4Q", EMPTY, 0, EMPTY, 2)


# -- empty inner chunks ---------------------------------------------------------------------------


def make(shape: Any, inner: Any, *, keep: bool = False, **options: Any) -> zellige.Array:
    """An array of one shard without compression."""
    given = {"serializer": sharding(inner, index_codecs=[LITTLE]), "compressors": None, "dtype": "uint8", **options}
    return zellige.create_array(shape=shape, chunks=shape, config={"write_empty_chunks": keep}, **given)


def lengths(array: zellige.Array, count: int) -> list[int]:
    raw = array.store.get(key(array.shape))
    assert raw is not None
    return [length for _, length in parsed(raw[-16 * count :], count, [LITTLE])]


def test_empty_inner_chunks_are_not_stored():
    array = make((8,), (2,))
    array[...] = [0, 0, 1, 0, 0, 0, 0, 2]
    assert lengths(array, 4) == [EMPTY, 2, EMPTY, 2]
    array[2:4] = 0
    assert lengths(array, 4) == [EMPTY, EMPTY, EMPTY, 2]
    assert array[...].tolist() == [0, 0, 0, 0, 0, 0, 0, 2]


def test_a_shard_of_empty_inner_chunks_is_not_stored():
    array = make((8,), (2,), fill_value=3)
    array[...] = 3
    assert list(array.store.list()) == ["zarr.json"]
    array[5] = 4
    assert lengths(array, 4) == [EMPTY, EMPTY, 2, EMPTY]
    array[5] = 3
    assert list(array.store.list()) == ["zarr.json"]
    array[...] = 1
    array[...] = 3
    assert list(array.store.list()) == ["zarr.json"]


def test_empty_inner_chunks_are_stored_when_asked_for():
    array = make((8,), (2,), keep=True)
    array[...] = 0
    assert lengths(array, 4) == [2, 2, 2, 2]
    array[2:4] = 0
    array[5] = 0
    assert lengths(array, 4) == [2, 2, 2, 2]
    assert array.store.get("c/0")[:8] == bytes(8)


def test_a_part_of_a_missing_shard_keeps_what_is_written_when_asked_for():
    array = make((8,), (2,), keep=True)
    array[2] = 0
    assert lengths(array, 4)[1] == 2
    assert array[...].tolist() == [0] * 8


@pytest.mark.parametrize("keep", [False, True])
def test_nested_inner_chunks_follow_the_same_rule(keep):
    nested = sharding((4,), [sharding((2,), index_codecs=[LITTLE])], [LITTLE])
    array = make((12,), (4,), serializer=nested, keep=keep)
    array[...] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6]
    raw = array.store.get("c/0")
    found = []
    for offset, length in parsed(raw[-48:], 3, [LITTLE]):
        inner = b"" if offset == EMPTY else raw[offset : offset + length]
        found.append([size for _, size in parsed(inner[-32:], 2, [LITTLE])] if inner else None)
    assert found == ([[2, 2]] * 3 if keep else [[2, EMPTY], None, [EMPTY, 2]])
    assert array[...].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6]


def test_negative_zeros_and_other_nans_are_not_empty():
    data = np.array([0.0, 0.0, -0.0, 0.0], "float32")
    array = zellige.create_array(data=data, chunks=(2,), shards=(4,), compressors=None)
    assert np.signbit(array[2])
    assert not np.signbit(array[:2]).any()
    other = np.array([0x7FC00001], "<u4").view("<f4")
    array = zellige.create_array(shape=4, dtype="float32", fill_value=np.nan, chunks=2, shards=4, compressors=None)
    array[2:3] = other
    assert array[2:3].tobytes() == other.tobytes()


# -- codecs around and inside ---------------------------------------------------------------------

AROUND = {
    "zstd": [codec("zstd", level=1, checksum=True)],
    "crc32c": [CRC],
    "blosc": [codec("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=2, blocksize=0)],
    "zstd twice": [codec("zstd", level=1), codec("zstd", level=3), CRC],
    "gzip": [codec("gzip", level=1)],
    "crc32c gzip": [CRC, codec("gzip", level=1)],
}
INNER = {"plain": [LITTLE], "gzip": [LITTLE, codec("gzip", level=1)], "nested": [sharding((1, 2), [LITTLE])]}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("inner", INNER.values(), ids=list(INNER))
def test_bytes_codecs_after_it(around, inner):
    data = np.arange(48, dtype="int16").reshape(6, 8)
    array = zellige.create_array(
        shape=(6, 8), dtype="int16", chunks=(4, 4), serializer=sharding((2, 2), inner), compressors=AROUND[around]
    )
    assert (array.shards, array.chunks) == ((4, 4), (2, 2))
    array[...] = data
    array[1:5, 3] = data[1:5, 3] = -1
    array[4:, 4:] = data[4:, 4:] = 0
    assert np.array_equal(array[...], data)
    assert np.array_equal(zellige.open_array(array.store)[2:5, 1:7], data[2:5, 1:7])


def test_a_zstd_frame_without_its_size_around_a_shard():
    import zstandard

    frame = zstandard.ZstdCompressor(write_content_size=False).compress(VECTORS["index at the end"].raw)
    chain = [VECTORS["index at the end"].serializer, codec("zstd", level=1)]
    assert np.array_equal(zellige.open_array(stored(chain, (4, 4), frame))[...], S)


def test_a_compressed_shard_with_gaps():
    import zstandard

    index = struct.pack("<4Q", 3000, 2, 5, 2)
    frame = zstandard.ZstdCompressor().compress(bytes([9] * 5 + [3, 4] + [9] * 2993 + [1, 2] + [9] * 99) + index)
    chain = [sharding((2,), index_codecs=[LITTLE]), codec("zstd", level=1)]
    assert zellige.open_array(stored(chain, (4,), frame))[...].tolist() == [1, 2, 3, 4]


INSIDE = {
    "little": [LITTLE],
    "big": [BIG],
    "zstd": [LITTLE, codec("zstd", level=1, checksum=False)],
    "gzip": [BIG, codec("gzip", level=5)],
    "blosc": [LITTLE, codec("blosc", cname="zstd", clevel=1, shuffle="bitshuffle", typesize=2, blocksize=0)],
    "transposed": [codec("transpose", order=[2, 0, 1]), LITTLE, CRC],
    "all": [codec("transpose", order=[1, 2, 0]), BIG, codec("gzip", level=1), codec("zstd", level=1), CRC],
    "nested": [sharding((1, 2, 1), [LITTLE, codec("zstd", level=1)], index_location="start")],
    "transposed nested": [codec("transpose", order=[1, 2, 0]), sharding((1, 2, 2), [BIG])],
    "nested twice": [sharding((2, 4, 1), [codec("transpose", order=[2, 0, 1]), sharding((1, 1, 2), [LITTLE])])],
}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("order", [None, [0, 1, 2], [2, 0, 1], [1, 0, 2]], ids=str)
def test_every_chain_inside_and_transposes_before(inside, order):
    data = np.arange(1, 9 * 10 * 5 + 1, dtype="int16").reshape(9, 10, 5)
    data[:4, 4:8] = 0
    inner, outer = (2, 4, 2), (4, 8, 6)
    turned = inner if order is None else tuple(inner[axis] for axis in order)
    if order not in (None, [0, 1, 2]):  # the inner codecs see the turned shape
        chain = [sharding(tuple(1 for _ in turned), [LITTLE])] if "nested" in inside else INSIDE[inside]
    else:
        chain = INSIDE[inside]
    array = zellige.create_array(
        shape=data.shape,
        dtype="int16",
        chunks=outer,
        filters=None if order is None else [codec("transpose", order=order)],
        serializer=sharding(turned, chain),
        compressors=None,
    )
    assert (array.chunks, array.shards) == (inner, outer)
    array[...] = data
    assert np.array_equal(array[...], data)
    jumps = np.s_[[3, 0, 1, 2], :, [4, 0, 1, 0]]  # to and fro between the inner chunks of one shard
    for index in (np.s_[3:7, 2, ::2], np.s_[8, 9, 4], np.s_[:, 3:5, ::-1], np.s_[[0, 8, 3], :, [4, 0, 0]], jumps):
        assert np.array_equal(zellige.open_array(array.store)[index], data[index])
        array[index] = data[index] = data[index] + 1000
    assert np.array_equal(array[...], data)


def test_rank_0():
    array = zellige.create_array(
        shape=(), dtype="int16", chunks=(), serializer=sharding((), [LITTLE]), compressors=None
    )
    assert array[()] == 0
    array[...] = 5
    index = struct.pack("<QQ", 0, 2)
    assert array.store.get("c") == b"\5\0" + index + struct.pack("<I", google_crc32c.value(index))
    assert array[()] == 5


@pytest.mark.parametrize("transposed", [False, True])
def test_the_work_of_opening_nested_shards_follows_their_depth(transposed, monkeypatch):
    """Not a power of it: each level is asked several times, and must not ask the next one as often."""
    made: list[Any] = []
    real = CodecChain.__init__
    monkeypatch.setattr(CodecChain, "__init__", lambda self, *given: made.append(1) or real(self, *given))
    counts = {}
    for depth in (10, 20):
        chain = [LITTLE]
        for _ in range(depth):
            chain = [*([TRANSPOSE] if transposed else []), sharding((2, 2), chain)]
        store = stored(chain, (2, 2), dtype="int32")
        made.clear()
        assert not zellige.open_array(store)[...].any()
        counts[depth] = len(made)
    assert 0 < counts[20] <= 3 * counts[10]
