"""The `n5_default` codec: golden bytes, blocks of other shapes, damage, configurations."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zellige.codecs.arrays import BytesCodec, TransposeCodec
from zellige.codecs.base import ArraySpec
from zellige.codecs.blosc import BloscCodec
from zellige.codecs.crc32c import Crc32cCodec
from zellige.codecs.gzip import GzipCodec
from zellige.codecs.n5_default import N5DefaultCodec
from zellige.codecs.zstd import ZstdCodec
from zellige.dtypes import parse_dtype
from zellige.errors import CodecError, MetadataError

A = np.array([[1, 2, 3], [4, 5, -6]], np.int16)
STORED = "00000002" "00000002" "00000003" "00010004000200050003fffa"  # fmt: skip
TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


def spec_of(shape, dtype="i2", fill=0):
    found = parse_dtype(np.dtype(dtype))
    return ArraySpec(tuple(shape), found, np.array(fill, found.numpy))


def n5(rank, *compressors, endian="big"):
    return N5DefaultCodec((TransposeCodec(tuple(reversed(range(rank)))), BytesCodec(endian), *compressors))


COMPRESSORS = [(), (GzipCodec(5),), (ZstdCodec(0, False),), (BloscCodec("lz4"),), (Crc32cCodec(),)]


# -- golden bytes ---------------------------------------------------------------------------------


def test_golden_bytes():
    codec, spec = n5(2), spec_of((2, 3))
    assert codec.encode(A, spec).hex() == STORED
    np.testing.assert_array_equal(codec.decode(bytes.fromhex(STORED), spec), A)


def test_only_the_block_is_compressed():
    encoded = n5(2, GzipCodec(5)).encode(A, spec_of((2, 3)))
    assert encoded[:12].hex() == STORED[:24]
    assert bytes(GzipCodec(5).decode(encoded[12:], 12)).hex() == STORED[24:]


def test_blosc_inside_shuffles_by_the_element_size():
    codec = n5(2, BloscCodec("lz4")).evolve(spec_of((2, 3)))
    assert codec.encode(A, spec_of((2, 3)))[12 + 3] == 2
    assert codec.configuration()["codecs"][2]["configuration"]["typesize"] == 2


# -- laws -----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.sampled_from(COMPRESSORS),
    st.lists(st.integers(1, 4), max_size=4),
    st.sampled_from(TYPES),
    st.sampled_from("CF"),
    st.sampled_from("<>"),
)
def test_round_trip(compressors, shape, dtype, order, endian):
    chunk = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.dtype(dtype).newbyteorder(endian), order)
    codec, spec = n5(len(shape), *compressors), spec_of(shape, dtype)
    codec.check(spec)
    encoded = codec.encode(chunk, spec)
    assert codec.encoded_size(spec) is None
    decoded = codec.decode(memoryview(encoded), spec)
    assert decoded.shape == tuple(shape)
    np.testing.assert_array_equal(decoded, chunk)


@settings(deadline=None)
@given(st.sampled_from(COMPRESSORS), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=3))
def test_the_header_rules_and_blocks_are_padded_or_cut(compressors, sizes):
    shape, stored = zip(*sizes, strict=True)
    block = np.arange(np.prod(stored), dtype="i4").reshape(stored)
    codec, spec = n5(len(shape), *compressors), spec_of(shape, "i4", -1)
    encoded = codec.encode(block, spec_of(stored, "i4"))
    if block.size > 4 * np.prod(shape):
        with pytest.raises(CodecError, match="stated"):
            codec.decode(encoded, spec)
        return
    wanted = np.full(shape, -1, "i4")
    common = tuple(slice(min(pair)) for pair in sizes)
    wanted[common] = block[common]
    np.testing.assert_array_equal(codec.decode(encoded, spec), wanted)


def test_a_fill_value_of_nan_pads():
    encoded = n5(1).encode(np.ones(2, "f4"), spec_of((2,), "f4"))
    np.testing.assert_array_equal(n5(1).decode(encoded, spec_of((3,), "f4", np.nan)), [1, 1, np.nan])


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressors", COMPRESSORS, ids=repr)
def test_truncations_trailing_bytes_and_flips(compressors):
    codec, spec = n5(2, *compressors), spec_of((2, 3))
    encoded = codec.encode(A, spec)
    for wrong in (*(encoded[:length] for length in range(len(encoded))), encoded + b"\0", encoded + b"junk"):
        with pytest.raises(CodecError):
            codec.decode(wrong, spec)
    for position in range(len(encoded)):
        for mask in (1, 2, 4, 128, 255):
            damaged = bytearray(encoded)
            damaged[position] ^= mask
            try:
                assert codec.decode(bytes(damaged), spec).shape == (2, 3)
            except CodecError:
                pass


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (struct.pack(">HHII", 1, 2, 2, 3), "mode 1"),
        (struct.pack(">HHII", 2, 2, 2, 3), "mode 2"),
        (struct.pack(">HHII", 0, 3, 2, 3), "2 axes expected, 3 stated"),
        (struct.pack(">HHII", 0, 1, 2, 3), "2 axes expected, 1 stated"),
        (struct.pack(">HHII", 0, 2, 2, 4), "16 bytes expected, 12 found"),
        (struct.pack(">HHII", 0, 2, 2**32 - 1, 2**32 - 1), "stated"),
    ],
)
def test_headers_that_are_refused(header, message):
    with pytest.raises(CodecError, match=message):
        n5(2).decode(header + bytes.fromhex(STORED)[12:], spec_of((2, 3)))


@pytest.mark.parametrize("compressor", [GzipCodec(9), ZstdCodec()])
def test_a_bomb_raises_before_it_takes_memory(compressor):
    bomb = compressor.encode(bytes(64 << 20))
    tracemalloc.start()
    try:
        for size in (512, 2048, 64 << 19):
            with pytest.raises(CodecError):
                n5(1, compressor).decode(struct.pack(">HHI", 0, 1, size) + bomb, spec_of((512,)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


# -- what suits the codec -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "spec", "field"),
    [
        (n5(2), spec_of((2, 3), "f2"), "name"),
        (n5(2), spec_of((2, 3), "?"), "name"),
        (n5(2), spec_of((2, 3), "c8"), "name"),
        (n5(2), spec_of((2, 2**32)), "name"),
        (n5(2), spec_of((2,)), "configuration.codecs[0].configuration.order"),
        (n5(2, endian=None), spec_of((2, 3)), "configuration.codecs[1].configuration.endian"),
    ],
)
def test_chunks_that_do_not_suit_the_codec(codec, spec, field):
    with pytest.raises(MetadataError) as caught:
        codec.check(spec)
    assert caught.value.field == field


def test_a_byte_order_may_be_missing_for_bytes():
    codec, spec = n5(1, endian=None), spec_of((3,), "u1")
    codec.check(spec)
    np.testing.assert_array_equal(codec.decode(codec.encode(np.array([1, 2, 3], "u1"), spec), spec), [1, 2, 3])


# -- configurations -------------------------------------------------------------------------------

TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
ZSTD = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}


@pytest.mark.parametrize(
    "codecs", [[TRANSPOSE, BIG], [TRANSPOSE, BIG, ZSTD], [TRANSPOSE, {"name": "bytes", "configuration": {}}]]
)
def test_configurations_are_written_as_they_were_read(codecs):
    codec = N5DefaultCodec.from_configuration({"codecs": codecs})
    assert codec.to_json() == {"name": "n5_default", "configuration": {"codecs": codecs}}
    assert hash(codec) == hash(N5DefaultCodec.from_configuration({"codecs": codecs}))


def transpose(*order):
    return {"name": "transpose", "configuration": {"order": list(order)}}


@pytest.mark.parametrize(
    ("codecs", "field"),
    [
        (None, "codecs"),
        ([], "codecs"),
        ([TRANSPOSE], "codecs"),
        ([TRANSPOSE, BIG, ZSTD, ZSTD], "codecs"),
        ([BIG, TRANSPOSE], "codecs[0].name"),
        ([BIG, ZSTD], "codecs[0].name"),
        ([TRANSPOSE, ZSTD], "codecs[1].name"),
        ([TRANSPOSE, TRANSPOSE, BIG], "codecs[1].name"),
        ([TRANSPOSE, BIG, BIG], "codecs[2].name"),
        ([transpose(0, 1), BIG], "codecs[0].configuration.order"),
        ([transpose(2, 0, 1), BIG], "codecs[0].configuration.order"),
        ([transpose(1, 1), BIG], "codecs[0].configuration.order"),
        ([TRANSPOSE, {"name": "bytes", "configuration": {"endian": "little"}}], "codecs[1].configuration.endian"),
        ([TRANSPOSE, BIG, {"name": "gzip", "configuration": {"level": 10}}], "codecs[2].configuration.level"),
        ([TRANSPOSE, BIG, {"name": "unheard-of"}], "codecs[2].name"),
        ([TRANSPOSE, 5], "codecs[1].name"),
    ],
)
def test_bad_configurations_name_the_key(codecs, field):
    with pytest.raises(MetadataError) as caught:
        N5DefaultCodec.from_configuration({"codecs": codecs})
    assert caught.value.field == f"configuration.{field}"


def test_unknown_keys_and_missing_codecs_are_named():
    for configuration, field in (({}, "codecs"), ({"codecs": [TRANSPOSE, BIG], "mode": 0}, "mode")):
        with pytest.raises(MetadataError) as caught:
            N5DefaultCodec.from_configuration(configuration)
        assert caught.value.field == f"configuration.{field}"
