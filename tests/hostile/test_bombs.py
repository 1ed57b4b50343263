"""Values that unpack to a gibibyte, wherever they may lie, and numbers in documents that ask for memory."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import struct
import zlib
from functools import cache
from typing import Any, NamedTuple

import bombs
import google_crc32c
import numcodecs.blosc
import numcodecs.lz4
import numpy as np
import pytest
import zstandard
from memory import BOUND, LONG, MiB, bounded, peak_of

import zellige
from zellige.errors import CorruptChunkError, MetadataError
from zellige.stores import LocalStore, MemoryStore

LZMA2 = [{"id": 33, "preset": 1}]


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


class Bomb(NamedTuple):
    """A value that unpacks to a gibibyte, the codec that would do so, and how its library packs other bytes."""

    codec: dict[str, Any]
    make: Any
    pack: Any
    v2: dict[str, Any] | None = None


def deflated(raw: bytes) -> bytes:
    return zlib.compress(raw, 6, 31)


def xz(raw: bytes) -> bytes:
    return lzma.compress(raw, check=lzma.CHECK_NONE, preset=1)


def blosc(raw: bytes) -> bytes:
    return numcodecs.blosc.compress(raw, b"zstd", 5, 0, 0, typesize=1)


ZSTD = zstandard.ZstdCompressor().compress
BLOSC = {"cname": "zstd", "clevel": 5, "blocksize": 0}
CODECS = {
    "zstd": Bomb(codec("zstd", level=1, checksum=False), bombs.zstd, ZSTD, {"id": "zstd", "level": 1}),
    "zstd without a size": Bomb(codec("zstd", level=1), lambda: bombs.zstd(sized=False), ZSTD),
    "zstd after a frame": Bomb(codec("zstd", level=1), lambda: ZSTD(b"a") + bombs.zstd(sized=False), ZSTD),
    "gzip": Bomb(codec("gzip", level=1), bombs.gzip, deflated, {"id": "gzip", "level": 1}),
    "gzip after a member": Bomb(codec("gzip", level=1), lambda: deflated(b"a") + bombs.gzip(), deflated),
    "blosc": Bomb(
        codec("blosc", **BLOSC, shuffle="noshuffle"), bombs.blosc, blosc, {"id": "blosc", **BLOSC, "shuffle": 0}
    ),
    "blosc that lies": Bomb(codec("blosc", **BLOSC, shuffle="noshuffle"), lambda: bombs.blosc(MiB), blosc),
    "numcodecs.zstd": Bomb(codec("numcodecs.zstd", level=1), bombs.zstd, ZSTD),
    "numcodecs.gzip": Bomb(codec("numcodecs.gzip", level=1), bombs.gzip, deflated),
    "numcodecs.blosc": Bomb(codec("numcodecs.blosc", **BLOSC, shuffle=0), bombs.blosc, blosc),
    "numcodecs.zlib": Bomb(codec("numcodecs.zlib", level=1), bombs.zlib_stream, zlib.compress, {"id": "zlib"}),
    "numcodecs.bz2": Bomb(codec("numcodecs.bz2", level=1), bombs.bz2, bz2.compress, {"id": "bz2", "level": 1}),
    "numcodecs.lzma": Bomb(codec("numcodecs.lzma", format=1), bombs.xz, xz, {"id": "lzma", "format": 1}),
    "numcodecs.lzma without a header": Bomb(
        codec("numcodecs.lzma", format=3, filters=LZMA2),
        bombs.lzma_raw,
        lambda raw: lzma.compress(raw, lzma.FORMAT_RAW, filters=LZMA2),
    ),
    "numcodecs.lz4": Bomb(
        codec("numcodecs.lz4", acceleration=1),
        bombs.lz4,
        lambda raw: numcodecs.lz4.compress(np.frombuffer(raw, np.uint8), 1),
        {"id": "lz4"},
    ),
    "numcodecs.lz4 that lies": Bomb(
        codec("numcodecs.lz4", acceleration=1),
        lambda: struct.pack("<I", MiB) + bombs.lz4()[4:],
        lambda raw: numcodecs.lz4.compress(np.frombuffer(raw, np.uint8), 1),
    ),
    "conditional": Bomb(
        codec("conditional", codecs=[codec("zstd", level=1)]),
        lambda: b"\1" + bombs.zstd(sized=False),
        lambda raw: b"\1" + ZSTD(raw),
    ),
}
every_codec = pytest.mark.parametrize("name", CODECS)


def document(codecs: list[Any], length: int = MiB, chunk: int | None = None, dtype: str = "uint8") -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length],
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk or length]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 7,
        "codecs": codecs,
    }


def array_of(codecs: list[Any], value: bytes, **options: Any) -> zellige.Array:
    content = {"zarr.json": json.dumps(document(codecs, **options)).encode(), "c/0": value}
    return zellige.open_array(MemoryStore(content))


def check_refused(array: zellige.Array, key: str = "c/0") -> None:
    """Whatever is read of it raises, in little memory, and so does a change of a part."""
    before = array.store.get(key)
    for action in (lambda: array[...], lambda: array[0], lambda: array[::1000], lambda: array.__setitem__(0, 1)):
        with bounded(), pytest.raises(CorruptChunkError) as caught:
            action()
        assert (caught.value.coords, caught.value.key) == ((0,), key)
    assert array.store.get(key) == before


# -- as a chunk, in a shard, and within another ---------------------------------------------------


@every_codec
def test_a_chunk_that_unpacks_to_a_gibibyte_is_refused(name):
    bomb = CODECS[name]
    value = bomb.make()
    assert len(value) < 5 * MiB
    check_refused(array_of(["bytes", bomb.codec], value))


@every_codec
def test_a_small_chunk_that_unpacks_to_a_gibibyte_is_refused(name):
    check_refused(array_of(["bytes", CODECS[name].codec], CODECS[name].make(), length=1000))


@pytest.mark.parametrize("name", [name for name, bomb in CODECS.items() if bomb.v2 is not None])
def test_a_chunk_of_zarr_v2_that_unpacks_to_a_gibibyte_is_refused(name):
    meta = {"zarr_format": 2, "shape": [MiB], "chunks": [MiB], "dtype": "|u1", "compressor": CODECS[name].v2}
    meta |= {"fill_value": 7, "order": "C", "filters": None}
    content = {".zarray": json.dumps(meta).encode(), "0": CODECS[name].make()}
    check_refused(zellige.open_array(MemoryStore(content)), "0")
    # The same among the filters, where numcodecs itself would unpack all of it.
    meta |= {"compressor": None, "filters": [CODECS[name].v2, {"id": "base64"}]}
    content = {".zarray": json.dumps(meta).encode(), "0": base64.b64encode(CODECS[name].make())}
    check_refused(zellige.open_array(MemoryStore(content)), "0")


def shard(parts: list[bytes]) -> bytes:
    index, at = b"", 0
    for part in parts:
        index += struct.pack("<QQ", at, len(part))
        at += len(part)
    return b"".join(parts) + index + struct.pack("<I", google_crc32c.value(index))


@every_codec
@pytest.mark.parametrize("inner", [1000, MiB])
def test_an_inner_chunk_that_unpacks_to_a_gibibyte_is_refused(name, inner):
    bomb = CODECS[name]
    little = codec("bytes", endian="little")
    options = {"chunk_shape": [inner], "codecs": ["bytes", bomb.codec], "index_codecs": [little, {"name": "crc32c"}]}
    sound = bomb.pack(bytes(range(250)) * (inner // 250) + bytes(inner % 250))
    array = array_of([codec("sharding_indexed", **options)], shard([bomb.make(), sound]), length=2 * inner)
    for action in (lambda: array[...], lambda: array[0], lambda: array[:inner], lambda: array.__setitem__(0, 1)):
        with bounded(), pytest.raises(CorruptChunkError) as caught:
            action()
        assert caught.value.inner == (0,)
    assert array[inner + 3] == 3  # the other one is none of its business


@every_codec
def test_a_codec_twice_in_a_chain_is_bounded_twice(name):
    bomb = CODECS[name]
    # As long as the chunk may be after the first of them, so that it is the second that has to stop.
    length = max(MiB, len(bomb.make()))
    value = bomb.pack(bomb.make())
    array = array_of(["bytes", bomb.codec, bomb.codec], value, length=length)
    for action in (lambda: array[0], lambda: array[::1000]):
        with bounded(BOUND + 2 * length), pytest.raises(CorruptChunkError):
            action()
    check_refused(array_of(["bytes", bomb.codec, bomb.codec], bomb.pack(bomb.make()), length=1000))


@every_codec
@pytest.mark.parametrize("outer", ["zstd", "gzip", "numcodecs.lzma"] if LONG else ["gzip"])
def test_a_bomb_within_a_bomb_is_not_unpacked(name, outer):
    bomb, around = CODECS[name], CODECS[outer]
    check_refused(array_of(["bytes", bomb.codec, around.codec], around.make()))
    check_refused(array_of(["bytes", bomb.codec, around.codec], around.pack(bomb.make())))


@every_codec
def test_a_right_checksum_makes_a_bomb_no_better(name):
    value = CODECS[name].make()
    value += struct.pack("<I", google_crc32c.value(value))
    check_refused(array_of(["bytes", CODECS[name].codec, {"name": "crc32c"}], value))


def test_a_stream_that_asks_for_a_large_dictionary_does_not_get_it_filled():
    check_lazily = array_of(["bytes", CODECS["numcodecs.lzma"].codec], bombs.xz(0x1E), length=1000)  # 128 MiB
    with bounded(counted=False), pytest.raises(CorruptChunkError):
        check_lazily[0]
    with bounded(), pytest.raises(CorruptChunkError, match="limit"):
        array_of(["bytes", CODECS["numcodecs.lzma"].codec], bombs.xz(0x1F), length=1000)[0]


def test_compressors_of_numbers_do_not_believe_headers():
    pytest.importorskip("zfpy", reason="zfpy is missing: pip install zfpy")
    pytest.importorskip("pcodec", reason="pcodec is missing: pip install 'zellige[pcodec]'")
    for name, value in {"numcodecs.zfpy": bombs.zfpy(), "numcodecs.pcodec": bombs.pcodec()}.items():
        assert len(value) < MiB
        for length in (1000, MiB // 8):
            check_refused(array_of([codec(name)], value, length=length, dtype="float64"))


def test_a_long_stream_without_a_header_is_no_bomb():
    pytest.importorskip("zfpy", reason="zfpy is missing: pip install zfpy")
    check_refused(array_of([codec("zfp", mode="reversible")], bytes(4 * MiB), length=1000, dtype="float64"))


# -- elements of any length -----------------------------------------------------------------------

VARIABLE = {"string": "vlen-utf8", "bytes": "vlen-bytes"}
FOUR = struct.pack("<I", 4)
"""How a chunk of four elements begins."""


def four_of(dtype: str, chain: list[Any], value: bytes) -> zellige.Array:
    """An array of four elements of any length, and the value of its one chunk."""
    given = document([VARIABLE[dtype], *chain], length=4, dtype=dtype) | {"fill_value": ""}
    return zellige.open_array(MemoryStore({"zarr.json": json.dumps(given).encode(), "c/0": value}))


@cache
def in_blocks(name: str) -> bytes:
    """A bomb; that of blosc in blocks as its library makes them, since larger ones are not looked at by themselves."""
    return blosc(bytes(32 * MiB)) if name.endswith("blosc") else CODECS[name].make()


def check_elements_refused(array: zellige.Array) -> None:
    for action in (lambda: array[...], lambda: array[0]):
        with bounded(), pytest.raises(CorruptChunkError):
            action()


@every_codec
@pytest.mark.parametrize("dtype", VARIABLE)
def test_a_bomb_in_place_of_a_few_strings_is_refused(dtype, name):
    check_elements_refused(four_of(dtype, [CODECS[name].codec], in_blocks(name)))


@every_codec
def test_the_lengths_of_strings_say_when_to_stop(name):
    pack = CODECS[name].pack
    few = b"".join(struct.pack("<I", len(item)) + item for item in (b"", b"a", b"bc", b""))
    check_elements_refused(four_of("bytes", [CODECS[name].codec], pack(FOUR + few + bytes(24 * MiB))))
    assert four_of("bytes", [CODECS[name].codec], pack(FOUR + few))[...].tolist() == [b"", b"a", b"bc", b""]


@every_codec
def test_a_bomb_around_compressed_strings_is_refused(name):
    for outer in ("gzip", "zstd without a size", "numcodecs.lz4"):
        chain = [CODECS[name].codec, CODECS[outer].codec]
        check_elements_refused(four_of("string", chain, CODECS[outer].make()))
        check_elements_refused(four_of("string", chain, CODECS[outer].pack(in_blocks(name))))
    checksum = [CODECS[name].codec, {"name": "crc32c"}]
    value = in_blocks(name)
    value += struct.pack("<I", google_crc32c.value(value))
    check_elements_refused(four_of("string", checksum, value))


@every_codec
def test_strings_that_are_really_long_are_read(name):
    long = bytes(5 * MiB) if name == "numcodecs.bz2" else bytes(range(251)) * 20_000  # which bz2 sorts for long
    items = [b"", long, b"a", long[:10]]
    raw = FOUR + b"".join(struct.pack("<I", len(item)) + item for item in items)
    assert four_of("bytes", [CODECS[name].codec], CODECS[name].pack(raw))[...].tolist() == items


def test_long_strings_are_read_through_several_codecs():
    chain = [CODECS["numcodecs.lz4"].codec, CODECS["zstd"].codec, codec("numcodecs.shuffle", elementsize=1), "crc32c"]
    array = zellige.create_array({}, shape=4, dtype="string", chunks=4, compressors=chain)
    items = ["", "a" * 6 * MiB, "b", ""]
    array[...] = items
    assert array[...].tolist() == items


def test_a_setting_bounds_strings_that_are_written_and_read():
    items = ["", "a" * 6 * MiB, "b", ""]
    array = zellige.create_array({}, shape=4, dtype="string", chunks=4)
    array[...] = items
    assert array[...].tolist() == items
    with zellige.config.set({"codecs.max_variable_chunk_bytes": 5 * MiB}):
        with bounded(), pytest.raises(CorruptChunkError, match="max_variable_chunk_bytes"):
            array[0]
        with pytest.raises(zellige.errors.CodecError, match="max_variable_chunk_bytes"):
            array[...] = items
    assert array[...].tolist() == items


V2_OBJECTS = {
    "vlen-utf8": {"id": "vlen-utf8"},
    "vlen-array": {"id": "vlen-array", "dtype": "<i4"},
    "json2": {"id": "json2"},
    "msgpack2": {"id": "msgpack2"},
}


@pytest.mark.parametrize("name", [name for name, bomb in CODECS.items() if bomb.v2 is not None])
@pytest.mark.parametrize("objects", V2_OBJECTS)
def test_a_bomb_in_place_of_objects_of_zarr_v2_is_refused(objects, name):
    if objects == "msgpack2":
        pytest.importorskip("msgpack", reason="msgpack is missing: pip install msgpack")
    meta = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|O", "fill_value": None, "order": "C"}
    for chain in (
        {"filters": [V2_OBJECTS[objects]], "compressor": CODECS[name].v2},
        {"filters": [V2_OBJECTS[objects], CODECS[name].v2, {"id": "base64"}], "compressor": None},
    ):
        value = in_blocks(name)
        content = {".zarray": json.dumps(meta | chain).encode(), "0": base64.b64encode(value)}
        if chain["compressor"]:
            content["0"] = value
        check_elements_refused(zellige.open_array(MemoryStore(content)))


@pytest.mark.parametrize("name", [name for name, bomb in CODECS.items() if bomb.v2 is not None])
def test_a_bomb_after_a_compressor_among_filters_is_refused(name):
    meta = {"zarr_format": 2, "shape": [1000], "chunks": [1000], "dtype": "|u1", "fill_value": 7, "order": "C"}
    meta |= {"compressor": None, "filters": [{"id": "zlib"}, CODECS[name].v2, {"id": "base64"}]}
    content = {".zarray": json.dumps(meta).encode(), "0": base64.b64encode(CODECS[name].make())}
    check_refused(zellige.open_array(MemoryStore(content)), "0")


def test_a_bomb_around_a_shard_of_strings_is_refused():
    little = codec("bytes", endian="little")
    options = {"chunk_shape": [1], "codecs": ["vlen-utf8"], "index_codecs": [little, {"name": "crc32c"}]}
    for name in ("zstd", "gzip"):
        given = document([codec("sharding_indexed", **options), CODECS[name].codec], length=4, dtype="string")
        with zellige.config.set({"codecs.max_variable_chunk_bytes": MiB}):
            content = {"zarr.json": json.dumps(given | {"fill_value": ""}).encode(), "c/0": CODECS[name].make()}
            check_elements_refused(zellige.open_array(MemoryStore(content)))


# -- stated sizes ---------------------------------------------------------------------------------

STATED = {
    "zstd": lambda size: bytes.fromhex("28b52ffde0") + struct.pack("<Q", size) + bytes.fromhex("590000") + bytes(11),
    "numcodecs.lz4": lambda size: struct.pack("<I", min(size, 2**32 - 1)) + bytes.fromhex("50") + bytes(5),
    "blosc": lambda size: (
        struct.pack("<BBBBIII", 2, 1, 0x90, 1, min(size, 2**31 - 17), min(size, 2**31 - 17), 40)
        + struct.pack("<ii", 20, 16)
        + bytes(16)
    ),
}


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize("size", [2**20, 2**31 - 17, 2**31, 2**32 - 1, 2**62, 2**63 - 1])
def test_a_size_that_the_bytes_cannot_hold_is_not_believed(name, size):
    array = array_of(["bytes", CODECS[name].codec], STATED[name](size), length=size)

    def read() -> None:
        with pytest.raises(CorruptChunkError):
            array[0]

    assert peak_of(read).counted < 3 * MiB  # blosc takes two blocks of the mebibyte that 40 bytes may hold


def test_files_are_no_other_matter(tmp_path):
    for name, bomb in CODECS.items() if LONG else [("gzip", CODECS["gzip"]), ("zstd", CODECS["zstd"])]:
        store = LocalStore(tmp_path / name)
        store.put("zarr.json", json.dumps(document(["bytes", bomb.codec])).encode())
        store.put("c/0", bomb.make())
        check_refused(zellige.open_array(store))


@pytest.mark.skipif(not LONG, reason="ZELLIGE_LONG=1 is not set: every bomb is unpacked to its end, a gibibyte each")
def test_the_bombs_are_honest():
    def total(decoder: Any, value: bytes, step: int = MiB) -> int:
        size = len(decoder.decompress(value, step))
        while not decoder.eof:
            rest = getattr(decoder, "unconsumed_tail", b"")
            size += len(decoder.decompress(rest, step))
        return size

    assert total(zlib.decompressobj(31), bombs.gzip()) == bombs.GiB
    assert total(zlib.decompressobj(15), bombs.zlib_stream()) == bombs.GiB
    assert total(bz2.BZ2Decompressor(), bombs.bz2()) == bombs.GiB
    assert total(lzma.LZMADecompressor(), bombs.xz()) == bombs.GiB
    assert total(lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=LZMA2), bombs.lzma_raw()) == bombs.GiB
    assert gzip.decompress(deflated(b"a")) == b"a"
    for sized in (True, False):
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(bombs.zstd(sized))
        assert sum(map(len, iter(lambda: reader.read(MiB), b""))) == bombs.GiB  # noqa: B023
    assert len(numcodecs.blosc.decompress(bombs.blosc())) == bombs.GiB
    assert len(numcodecs.lz4.decompress(np.frombuffer(bombs.lz4(), np.uint8))) == bombs.GiB
    import zfpy
    from pcodec import standalone

    assert zfpy.decompress_numpy(bombs.zfpy()).nbytes == bombs.GiB
    assert standalone.simple_decompress(bombs.pcodec()).nbytes == bombs.GiB


# -- numbers in documents -------------------------------------------------------------------------

HUGE = {
    "10**12 elements": {"length": 10**12},
    "10**12 elements of an array of 10**18": {"length": 10**18, "chunk": 10**12},
    "2**62 elements": {"length": 2**62},
    "2**63 - 1 elements": {"length": 2**63 - 1},
    "10**12 elements of an array of 5": {"length": 5, "chunk": 10**12},
}
CHAINS = {
    "plain": [],
    **{name: [CODECS[name].codec] for name in ("zstd", "gzip", "blosc", "numcodecs.zlib", "numcodecs.bz2")},
    "numcodecs.lzma": [codec("numcodecs.lzma", format=1)],
    "numcodecs.lz4": [codec("numcodecs.lz4", acceleration=1)],
    "crc32c": [{"name": "crc32c"}],
    "zstd and crc32c": [codec("zstd", level=1), {"name": "crc32c"}],
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("size", HUGE)
def test_a_cell_of_a_huge_chunk_that_is_missing_takes_no_memory(size, chain):
    content = {"zarr.json": json.dumps(document(["bytes", *CHAINS[chain]], **HUGE[size])).encode()}
    zellige.open_array(MemoryStore(dict(content)))[0]  # what is imported is not counted

    def read() -> None:
        array = zellige.open_array(MemoryStore(dict(content), read_only=True))
        assert array[0] == array[-1] == array[2] == 7
        assert array[1:4].tolist() == [7, 7, 7]
        assert array.oindex[[0, 3]].tolist() == [7, 7]

    peak = peak_of(read)
    assert peak.counted < MiB
    assert peak.resident < 4 * MiB


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("size", HUGE)
def test_a_small_value_in_place_of_a_huge_chunk_is_refused(size, chain):
    value = b"small value"
    for step in CHAINS[chain]:
        pack = next((bomb.pack for bomb in CODECS.values() if bomb.codec["name"] == step["name"]), None)
        value = value + struct.pack("<I", google_crc32c.value(value)) if pack is None else pack(value)
    array = array_of(["bytes", *CHAINS[chain]], value, **HUGE[size])
    for place in (4, -1) if HUGE[size]["length"] > 5 else (4,):
        if chain == "plain" and place == 4:
            continue  # which is there
        if place == -1 and array.nchunks > 1:
            continue  # in another chunk
        with bounded(), pytest.raises(CorruptChunkError):
            array[place]


@pytest.mark.parametrize("size", HUGE)
def test_a_frame_that_promises_a_huge_chunk_takes_no_memory(size):
    stated = HUGE[size].get("chunk", HUGE[size]["length"])
    frame = bytes.fromhex("28b52ffde0") + struct.pack("<Q", stated) + bytes.fromhex("590000") + b"small value"
    array = array_of(["bytes", codec("zstd", level=1)], frame, **HUGE[size])
    with bounded(), pytest.raises(CorruptChunkError):
        array[0]


RUNS = {
    "10**18 chunks of 1": {"shape": [10**18], "chunk_shapes": [[[1, 10**18]]]},
    "three axes of 10**18": {"shape": [10**18] * 3, "chunk_shapes": [[[1, 10**18]]] * 3},
    "2**63 - 1 chunks": {"shape": [2**63 - 1], "chunk_shapes": [[[1, 2**63 - 1]]]},
    "10**8 chunks and one more": {"shape": [10**8 + 5], "chunk_shapes": [[[1, 10**8], 5]]},
}


@pytest.mark.parametrize("case", RUNS)
def test_opening_long_runs_takes_less_than_a_mebibyte(case):
    shape, runs = RUNS[case]["shape"], RUNS[case]["chunk_shapes"]
    given = document(["bytes"])
    given["shape"] = shape
    given["chunk_grid"] = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": runs}}
    raw = json.dumps(given)
    assert len(raw) < 1000
    zellige.open_array(MemoryStore({"zarr.json": raw.replace("18", "17").encode()}))  # what is imported is not counted

    def use() -> None:
        array = zellige.open_array(MemoryStore({"zarr.json": raw.encode()}))
        middle = tuple(n // 2 for n in array.shape)
        assert array[middle] == 7
        assert array[(-1,) * array.ndim] == 7
        assert len(repr(array)) < 1000
        assert next(array.iter_chunks(tuple(slice(k, k + 1) for k in middle))).coords == middle

    peak = peak_of(use)
    assert peak.counted < MiB
    assert peak.resident < 4 * MiB


def test_an_index_of_a_shard_larger_than_memory_is_never_read():
    little = codec("bytes", endian="little")
    options = {"chunk_shape": [1], "codecs": ["bytes"], "index_codecs": [little, {"name": "crc32c"}]}
    for value in (b"", bytes(1000), b"\xff" * 4096):
        array = array_of([codec("sharding_indexed", **options)], value, length=2**40)
        with bounded(), pytest.raises(CorruptChunkError):
            array[0]
    deep: dict[str, Any] = codec("sharding_indexed", **options)
    for power in range(4, 40, 4):
        deep = codec("sharding_indexed", **{**options, "chunk_shape": [2**power], "codecs": [deep]})
    with bounded():
        array = array_of([deep], bytes(1000), length=2**40)
        with pytest.raises(CorruptChunkError):
            array[0]


def test_shards_within_shards_cost_what_their_document_costs():
    little = codec("bytes", endian="little")
    nested: Any = little
    for _ in range(40):
        nested = codec("sharding_indexed", chunk_shape=[4], codecs=[nested], index_codecs=[little, {"name": "crc32c"}])
    with bounded():
        try:
            array = array_of([nested], b"", length=4)
        except MetadataError as error:
            assert error.field.startswith("codecs")  # noqa: PT017
            return
        with pytest.raises(CorruptChunkError):
            array[0]
