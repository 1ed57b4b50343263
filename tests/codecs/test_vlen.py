"""Elements of any length: golden vectors of spec 12, and bytes that are damaged or hostile."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import zellige
from zellige import codecs
from zellige.codecs.base import ArraySpec
from zellige.codecs.vlen import VLenBytesCodec, VLenUTF8Codec, VLenV2Codec
from zellige.dtypes import from_json
from zellige.dtypes.cast import as_values
from zellige.errors import CodecError, CorruptChunkError, MetadataError


def spec_of(name, shape):
    dtype = from_json(name)
    return ArraySpec(shape, dtype, dtype.cast_fill(None))


def chunk_of(name, items, shape=None):
    return as_values(items, from_json(name).numpy).reshape(shape or (len(items),))


def word(number):
    return struct.pack("<I", number)


GOLDEN = [
    (VLenUTF8Codec(), "string", ["a", "bcd", ""], "0300000001000000610300000062636400000000"),
    (VLenUTF8Codec(), "string", ["é", "日本"], "0200000002000000c3a906000000e697a5e69cac"),
    (VLenBytesCodec(), "bytes", [b"a", b"\0\xff", b""], "0300000001000000610200000000ff00000000"),
    (VLenV2Codec(), "string", ["a", "bcd", ""], "0300000001000000610300000062636400000000"),
    (VLenV2Codec(), "bytes", [b"a", b"\0\xff", b""], "0300000001000000610200000000ff00000000"),
]


@pytest.mark.parametrize(("codec", "name", "items", "hexes"), GOLDEN)
def test_golden_vectors(codec, name, items, hexes):
    chunk, spec = chunk_of(name, items), spec_of(name, (len(items),))
    codec.check(spec)
    assert bytes(codec.encode(chunk, spec)).hex() == hexes
    decoded = codec.decode(bytes.fromhex(hexes), spec)
    assert decoded.dtype == spec.dtype.numpy
    assert decoded.tolist() == items
    assert codec.encoded_size(spec) is None


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8")) | st.just("日" * 99), min_size=1, max_size=12))
def test_strings_come_back(items):
    spec = spec_of("string", (len(items),))
    for buffer in (bytes, bytearray, memoryview):
        raw = buffer(bytes(VLenUTF8Codec().encode(chunk_of("string", items), spec)))
        assert VLenUTF8Codec().decode(raw, spec).tolist() == items
    assert raw == word(len(items)) + b"".join(word(len(i.encode())) + i.encode() for i in items)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=12))
def test_bytes_come_back(items):
    spec = spec_of("bytes", (len(items),))
    raw = bytes(VLenBytesCodec().encode(chunk_of("bytes", items), spec))
    assert raw == word(len(items)) + b"".join(word(len(i)) + i for i in items)
    assert VLenBytesCodec().decode(raw, spec).tolist() == items


@pytest.mark.parametrize("name", ["string", "bytes"])
def test_chunks_of_several_axes_are_stored_in_c_order(name):
    items = ["a", "b", "c", "d", "e", "f"] if name == "string" else [b"a", b"b", b"c", b"d", b"e", b"f"]
    chunk, spec = chunk_of(name, items, (2, 3)), spec_of(name, (2, 3))
    codec = VLenV2Codec()
    assert codec.decode(codec.encode(chunk, spec), spec).tolist() == chunk.tolist()
    assert codec.encode(np.asfortranarray(chunk), spec) == codec.encode(chunk, spec)
    chunk.flags.writeable = False
    other = spec_of(name, (3, 2))
    assert codec.decode(codec.encode(chunk.T, other), other).tolist() == chunk.T.tolist()
    scalar = spec_of(name, ())
    assert codec.decode(codec.encode(chunk[0, 0, ...], scalar), scalar)[()] == items[0]


# -- damage ---------------------------------------------------------------------------------------

GOOD = bytes.fromhex("0300000001000000610300000062636400000000")
DAMAGED = {
    "nothing": b"",
    "half a count": GOOD[:3],
    "only a count": GOOD[:4],
    "too few elements": word(2) + GOOD[4:],
    "too many elements": word(4) + GOOD[4:],
    "more than there could be": word(2**32 - 1) + GOOD[4:],
    "a length too large": GOOD[:9] + word(4) + GOOD[13:],
    "a length far too large": GOOD[:9] + word(2**32 - 1) + GOOD[13:],
    "a length that is negative for others": GOOD[:9] + word(2**31) + GOOD[13:],
    "a length that wraps around": GOOD[:4] + word(2**32 - 4) + GOOD[8:],
    "a length too small": GOOD[:9] + word(2) + GOOD[13:],
    "one byte too much": GOOD + b"\0",
    "junk after the end": GOOD + b"junk",
    "another element": GOOD + word(1) + b"x",
}


@pytest.mark.parametrize("codec", [VLenUTF8Codec(), VLenBytesCodec(), VLenV2Codec()])
@pytest.mark.parametrize("raw", DAMAGED.values(), ids=DAMAGED)
def test_damaged_bytes_are_refused(codec, raw):
    spec = spec_of("bytes" if isinstance(codec, VLenBytesCodec) else "string", (3,))
    with pytest.raises(CodecError, match=codec.name):
        codec.decode(raw, spec)


@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_bytes_cut_off_anywhere_are_refused(cut):
    with pytest.raises(CodecError, match="vlen-utf8"):
        VLenUTF8Codec().decode(GOOD[:cut], spec_of("string", (3,)))


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"])
def test_bytes_that_are_not_utf_8_are_refused(text):
    with pytest.raises(CodecError, match="UTF-8"):
        VLenUTF8Codec().decode(word(1) + word(len(text)) + text, spec_of("string", (1,)))


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 5))
def test_any_bytes_are_refused_or_decoded(raw, count):
    for codec, name in ((VLenUTF8Codec(), "string"), (VLenBytesCodec(), "bytes")):
        try:
            found = codec.decode(raw, spec_of(name, (count + 1,)))
        except CodecError:
            continue
        assert bytes(codec.encode(found, spec_of(name, found.shape))) == raw


def test_no_memory_is_taken_for_what_a_count_says():
    count = 2**31
    spec = spec_of("bytes", (count,))
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="cannot hold the lengths"):
            VLenBytesCodec().decode(word(count) + bytes(1000), spec)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# -- documents and arrays -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vlen-utf8", "vlen-bytes", "zarrs.vlen_v2"])
def test_the_codecs_by_name(name):
    codec = codecs.from_json(name, {})
    assert codec == codecs.parse_codec(name)
    assert codec.to_json() == {"name": name, "configuration": {}}
    with pytest.raises(MetadataError) as info:
        codecs.from_json(name, {"level": 1})
    assert info.value.field == "configuration.level"


UNSUITED = [("vlen-utf8", "bytes"), ("vlen-bytes", "string"), ("vlen-utf8", "int8"), ("zarrs.vlen_v2", "U2")]
UNSUITED += [("bytes", "string"), ("bytes", "bytes"), ("vlen-bytes", "S2"), ("vlen-utf8", "U2")]


@pytest.mark.parametrize(("codec", "dtype"), UNSUITED)
def test_types_that_do_not_suit(codec, dtype):
    with pytest.raises(MetadataError, match="use '") as info:
        zellige.create_array(shape=3, dtype=dtype, serializer=codec)
    assert info.value.field == "codecs[0].name"


@pytest.mark.parametrize("dtype", ["string", "bytes"])
def test_every_compressor_takes_any_length(dtype):
    items = ["a" * 5000, "", "日本"] if dtype == "string" else [b"a" * 5000, b"", b"\0"]
    for compressors in (None, "zstd", "gzip", "blosc", "crc32c", ["gzip", "zstd", "crc32c"], "numcodecs.lz4"):
        array = zellige.create_array(data=items, dtype=dtype, chunks=2, compressors=compressors)
        assert array[:].tolist() == items


def test_a_frame_that_does_not_state_its_size():
    store = zellige.MemoryStore()
    array = zellige.create_array(store, shape=1, dtype="string", chunks=1)
    text = "ab" * 500_000
    raw = word(1) + word(len(text)) + text.encode()
    store.put("c/0", zstandard.ZstdCompressor(write_content_size=False).compress(raw))
    assert array[0] == text


def test_damage_names_the_chunk():
    store = zellige.MemoryStore()
    array = zellige.create_array(store, data=["a", "b", "c"], dtype="string", chunks=2, compressors=None)
    store.put("c/1", GOOD)
    with pytest.raises(CorruptChunkError, match="2 elements expected, 3 found") as info:
        array[:]
    assert info.value.coords == (1,)
    assert array[:2].tolist() == ["a", "b"]
