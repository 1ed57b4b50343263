"""The `numcodecs.*` codecs: golden bytes, the bytes and values of numcodecs itself, damage, configurations."""

from __future__ import annotations

import bz2
import lzma
import struct
import subprocess
import sys
import tracemalloc
import zlib

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from zellige.codecs import base
from zellige.codecs import numcodecs as ours
from zellige.codecs.base import ArrayArrayCodec, ArrayBytesCodec, ArraySpec, BytesBytesCodec
from zellige.codecs.numcodecs import (
    BZ2,
    CLASSES,
    CRC32,
    CRC32C,
    LZ4,
    LZMA,
    ZFPY,
    Adler32,
    AsType,
    BitRound,
    Blosc,
    Delta,
    FixedScaleOffset,
    Fletcher32,
    GZip,
    JenkinsLookup3,
    PackBits,
    PCodec,
    Quantize,
    Shuffle,
    Zlib,
    Zstd,
)
from zellige.dtypes import parse_dtype
from zellige.errors import CodecError, MetadataError

STEPS = np.repeat(np.arange(8), 32).astype("<i2").tobytes() + b"tail"
LZMA2, LZMA1, LZMA_DELTA = 33, 0x4000000000000001, 3


def spec_of(array, fill=0):
    dtype = parse_dtype(array.dtype)
    return ArraySpec(array.shape, dtype, np.array(fill, dtype.numpy))


def with_id(codec):
    """The codec of numcodecs with the same configuration."""
    return numcodecs.get_codec({"id": codec.name.removeprefix("numcodecs."), **codec.configuration()})


def same_bits(a, b):
    return (a.shape, a.dtype.newbyteorder("=")) == (b.shape, b.dtype.newbyteorder("=")) and bits(a) == bits(b)


def bits(array):
    return array.astype(array.dtype.newbyteorder("=")).tobytes()


# -- golden bytes ---------------------------------------------------------------------------------

ONE_TO_FOUR = bytes([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        (CRC32(), "cdfb3cb601020304"),
        (CRC32("end"), "01020304cdfb3cb6"),
        (Adler32(), "0b00180001020304"),
        (Fletcher32(), "0102030406040805"),
        (CRC32C(), "01020304f48c3029"),
        (CRC32C("start"), "f48c302901020304"),
        (JenkinsLookup3(), "01020304ddcd3f04"),
        (LZ4(), "040000004001020304"),
        (Shuffle(2), "01030204"),
        (Zlib(0), "7801010400fbff010203040018000b"),
    ],
    ids=repr,
)
def test_golden_bytes(codec, stored):
    assert bytes(codec.encode(ONE_TO_FOUR)).hex() == stored
    assert bytes(codec.decode(bytes.fromhex(stored), 4)) == ONE_TO_FOUR


@pytest.mark.parametrize(
    ("codec", "array", "stored"),
    [
        (PackBits(), np.array([c == "1" for c in "1011000011"]), "06b0c0"),
        (Delta("<i2", "|i1"), np.array([[100, 102], [101, 101]], "<i2"), "6402ff00"),
        (FixedScaleOffset(1000, 10, "<f8", "|u1"), np.array([1000, 1000.14, 1000.16, 1001]), "0001020a"),
        (Quantize(1, "<f8", "<f4"), np.array([0.3, 1.0]), "0000a03e0000803f"),
        (AsType("<i2", "<f4"), np.array([1.9, -3.0], "<f4"), "0100fdff"),
        (
            BitRound(3),
            np.array([0, 0.1, 1.2, 12.3, 123.4, 1234.5, np.nan, np.inf, -np.inf], "<f4"),
            "000000000000d03d0000a03f000040410000f0420000a0440000c07f0000807f000080ff",
        ),
    ],
    ids=repr,
)
def test_golden_arrays(codec, array, stored):
    spec = spec_of(array)
    encoded = codec.encode(array, spec)
    after = codec.resolve(spec)
    assert (encoded.shape, encoded.dtype) == (after.shape, after.dtype.numpy)
    assert encoded.tobytes().hex() == stored
    assert codec.decode(encoded, spec).shape == array.shape


# -- bytes to bytes, beside numcodecs -------------------------------------------------------------

# Those whose bytes are the same, whatever the versions of the libraries.
EQUAL = [
    *(Zlib(level) for level in (-1, 0, 1, 9)),
    *(BZ2(level) for level in (1, 9)),
    LZMA(),
    LZMA(check=0, preset=1),
    LZMA(preset=2 | 1 << 31),
    LZMA(format=2),
    LZMA(format=3, filters=[{"id": LZMA2, "preset": 1}]),
    LZMA(format=3, filters=[{"id": LZMA1, "preset": 1, "dict_size": 1 << 16}]),
    LZMA(format=3, filters=[{"id": LZMA_DELTA, "dist": 4}, {"id": LZMA2, "preset": 1}]),
    *(LZ4(acceleration) for acceleration in (-1, 0, 1, 100)),
    *(CRC32(location) for location in ("start", "end")),
    *(Adler32(location) for location in ("start", "end")),
    *(CRC32C(location) for location in ("start", "end")),
    Fletcher32(),
    JenkinsLookup3(),
    JenkinsLookup3(0xDEADBEEF),
    *(Blosc(cname, 5, shuffle, 0, 2) for cname in ("lz4", "zstd", "zlib") for shuffle in (-1, 0, 1, 2)),
]
# numcodecs cannot decode what it encodes: it passes the filters of xz on to a decoder that does not take them.
XZ_FILTERS = LZMA(filters=[{"id": LZMA_DELTA, "dist": 2}, {"id": LZMA2, "preset": 1}])
SHUFFLES = [Shuffle(size) for size in (0, 1, 2, 4, 16)]
FOREIGN = [Zstd(), Zstd(-5), Zstd(19, True), GZip(), GZip(0), GZip(9)]  # other versions of the libraries
BYTES = [*EQUAL, XZ_FILTERS, *SHUFFLES, *FOREIGN]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(EQUAL), st.binary(min_size=1, max_size=120), st.integers(1, 30))
def test_bytes_are_those_of_numcodecs(codec, raw, repeats):
    raw, theirs = raw * repeats, with_id(codec)
    encoded = codec.encode(raw)
    assert bytes(encoded) == bytes(theirs.encode(raw))
    assert bytes(theirs.decode(encoded)) == raw


@settings(deadline=None)
@given(st.sampled_from(SHUFFLES), st.binary(max_size=60))
def test_shuffled_bytes_are_those_of_numcodecs(codec, raw):
    raw *= 16
    assert bytes(codec.encode(raw)) == bytes(with_id(codec).encode(raw))
    assert bytes(codec.decode(codec.encode(raw), len(raw))) == raw


@settings(deadline=None)
@given(st.sampled_from(FOREIGN), st.binary(min_size=1, max_size=120), st.integers(1, 30))
def test_numcodecs_reads_what_we_write_and_the_other_way(codec, raw, repeats):
    raw, theirs = raw * repeats, with_id(codec)
    assert bytes(theirs.decode(codec.encode(raw))) == raw
    assert bytes(codec.decode(bytes(theirs.encode(raw)), len(raw))) == raw


def assert_round_trip(codec, raw):
    encoded = codec.encode(raw)
    assert len(encoded) <= codec.encoded_bound(len(raw))
    assert codec.encoded_size(len(raw)) in (None, len(encoded))
    assert bytes(codec.decode(encoded, len(raw))) == raw
    assert bytes(codec.decode(memoryview(encoded), len(raw) + 10**6)) == raw
    if raw:
        with pytest.raises(CodecError):
            codec.decode(encoded, len(raw) - 1)


@pytest.mark.parametrize("codec", BYTES, ids=repr)
@pytest.mark.parametrize(
    "raw",
    [b"", bytes(16), STEPS + bytes(12), np.arange(5000, dtype="<i4").tobytes(), np.random.default_rng(0).bytes(7000)],
    ids=len,
)
def test_round_trip(codec, raw):
    assert_round_trip(codec, raw[: len(raw) // 16 * 16])
    assert_round_trip(codec, memoryview(b"x" + raw[: len(raw) // 16 * 16])[1:])


@pytest.mark.parametrize("codec", [Zlib(), BZ2(), LZMA(), LZ4(), Shuffle(2), CRC32(), Fletcher32()], ids=repr)
def test_a_limit_may_be_anything(codec):
    # What a chain passes after a serializer of unknown size, and twice as much for the next step.
    for limit in (2**63 - 1, 2**64):
        assert bytes(codec.decode(codec.encode(STEPS), limit)) == STEPS


def test_shuffle_refuses_a_part_of_an_element():
    for method in (Shuffle(4).encode, lambda raw: Shuffle(4).decode(raw, 100)):
        with pytest.raises(CodecError, match="6 bytes are not a multiple of the 4"):
            method(bytes(6))


def test_the_element_size_is_the_chains_unless_it_is_given():
    assert Shuffle().evolve(2) == Shuffle(2)
    assert Shuffle(8).evolve(2) == Shuffle(8)
    assert Shuffle().encode(ONE_TO_FOUR + ONE_TO_FOUR) == Shuffle(4).encode(ONE_TO_FOUR + ONE_TO_FOUR)
    assert Blosc().evolve(2).encode(STEPS) == Blosc(typesize=2).encode(STEPS)
    assert Blosc(typesize=8).evolve(2).encode(STEPS)[3] == 8
    assert [Blosc(shuffle=-1).evolve(size).core().shuffle for size in (1, 2)] == ["bitshuffle", "shuffle"]
    assert Blosc().evolve(2) == Blosc(), "what is not in the document does not make another codec"
    assert Blosc().evolve(2).configuration() == {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}


@pytest.mark.parametrize(
    "filters", [[{"id": LZMA_DELTA}], [{"id": LZMA2, "lc": 99}], [{"id": LZMA_DELTA, "preset": 1}], [{"id": 4}]]
)
def test_filters_that_lzma_does_not_take_raise(filters):
    for codec in (LZMA(filters=filters), LZMA(format=3, filters=filters)):
        with pytest.raises(CodecError):
            codec.encode(STEPS)
    with pytest.raises(CodecError):
        LZMA(format=3, filters=filters).decode(STEPS, 100)


# -- damage ---------------------------------------------------------------------------------------

CHECKED = {
    "zlib": Zlib(6),
    "bz2": BZ2(),
    "xz": LZMA(preset=1),
    "crc32": CRC32(),
    "adler32": Adler32("end"),
    "crc32c": CRC32C(),
    "fletcher32": Fletcher32(),
    "jenkins": JenkinsLookup3(),
    "gzip": GZip(),
    "zstd": Zstd(3, True),
}
UNCHECKED = {
    "lzma alone": LZMA(format=2),
    "lzma raw": LZMA(format=3, filters=[{"id": LZMA2, "preset": 1}]),
    "lz4": LZ4(),
    "blosc": Blosc("lz4", 5, 1, 0, 2),
}


def outcome(codec, raw):
    """The content, or None if the codec refuses; any other exception is a failure."""
    try:
        found = bytes(codec.decode(raw, len(STEPS)))
    except CodecError:
        return None
    assert len(found) <= len(STEPS)
    return found if len(found) == len(STEPS) else None  # a chain expects so many, and refuses fewer


def flipped(encoded, masks=(1, 2, 4, 8, 16, 32, 64, 128, 255)):
    """`encoded` with every single bit flipped, and with every single byte inverted."""
    for position in range(len(encoded)):
        for mask in masks:
            damaged = bytearray(encoded)
            damaged[position] ^= mask
            yield bytes(damaged)


@pytest.mark.parametrize("case", CHECKED | UNCHECKED)
def test_truncations_and_trailing_bytes_raise(case):
    codec = (CHECKED | UNCHECKED)[case]
    encoded = bytes(codec.encode(STEPS))
    assert outcome(codec, encoded) == STEPS
    assert all(outcome(codec, encoded[:length]) is None for length in range(len(encoded)))
    assert all(outcome(codec, encoded + junk) is None for junk in (b"\0", b"x", bytes(40), encoded))


@pytest.mark.parametrize("case", CHECKED)
def test_no_flip_gives_other_content_where_there_is_a_checksum(case):
    codec = CHECKED[case]
    assert {outcome(codec, damaged) for damaged in flipped(bytes(codec.encode(STEPS)))} <= {None, STEPS}


@pytest.mark.parametrize("case", UNCHECKED)
def test_every_flip_raises_or_gives_the_right_length(case):
    codec = UNCHECKED[case]
    assert None in {outcome(codec, damaged) for damaged in flipped(bytes(codec.encode(STEPS)))}


@settings(deadline=None)
@given(st.sampled_from([*CHECKED.values(), *UNCHECKED.values()]), st.binary(max_size=64))
def test_arbitrary_bytes_never_do_anything_else_than_raise(codec, raw):
    assert outcome(codec, raw) is None


def zeros():
    return bytes(64 << 20)


BOMBS = {
    "zlib": (Zlib(), lambda: zlib.compress(zeros(), 9)),
    "bz2": (BZ2(), lambda: bz2.compress(bytes(16 << 20))),
    "xz": (LZMA(), lambda: lzma.compress(zeros(), preset=1)),
    "alone": (LZMA(format=2), lambda: lzma.compress(zeros(), format=2, preset=1)),
    "lz4": (LZ4(), lambda: numcodecs.LZ4().encode(zeros())),
    "lz4 that lies": (LZ4(), lambda: struct.pack("<I", 2**31 - 1) + b"\x40abcd"),
    "zstd": (Zstd(), lambda: Zstd().encode(zeros())),
    "gzip": (GZip(), lambda: zlib.compress(zeros(), 9, wbits=31)),
    "blosc": (Blosc(), lambda: Blosc("zstd", 9, 0, 1 << 24).encode(zeros())),
}


def peak_of(action):
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_raises_before_it_takes_memory(case):
    codec, make = BOMBS[case]
    bomb = make()
    assert len(bomb) < 300_000
    assert peak_of(lambda: codec.decode(bomb, 1024)) < 4 << 20


def test_an_xz_dictionary_of_gigabytes_is_refused():
    plain = bytearray(lzma.compress(STEPS, check=lzma.CHECK_NONE))
    assert plain[14:17] == b"\x21\x01\x16", "the filter, the length of its properties, a dictionary of 8 MiB"
    plain[16] = 0x28  # 4 GiB
    header = plain[12:20]
    plain[20:24] = struct.pack("<I", zlib.crc32(header))
    with pytest.raises(CodecError, match=r"[Mm]emory"):
        LZMA().decode(bytes(plain), len(STEPS))


# -- arrays to arrays, beside numcodecs -----------------------------------------------------------

INTEGERS = [f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)]
FLOATS = ["f2", "f4", "f8"]


def arrays(dtypes):
    """Chunks of these types, in C or Fortran order, in either byte order."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4)
    chunks = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, shapes))
    return st.builds(layout, chunks, st.sampled_from("CF"), st.sampled_from("<>"))


def layout(chunk, order, endian):
    return np.array(chunk, chunk.dtype.newbyteorder(endian), order=order)


def assert_values_of_numcodecs(codec, chunk):
    """Equal to numcodecs, which is given the flat chunk in native byte order: it takes memory as it is."""
    spec, theirs = spec_of(chunk), with_id(codec)
    flat = np.ascontiguousarray(chunk, spec.dtype.numpy).reshape(-1)
    with np.errstate(all="ignore"):
        wanted = theirs.encode(flat)
        decoded = theirs.decode(wanted)
    after = codec.resolve(spec)
    encoded = codec.encode(chunk, spec)
    assert (encoded.shape, encoded.dtype.newbyteorder("=")) == (after.shape, after.dtype.numpy)
    assert encoded.tobytes() == wanted.tobytes() or bits(encoded.copy("C")) == wanted.tobytes()
    swapped = encoded.astype(encoded.dtype.newbyteorder("S"))
    swapped.flags.writeable = False
    for stored in (encoded, swapped):
        again = codec.decode(stored, spec)
        assert again.shape == chunk.shape
        assert same_bits(again.reshape(-1), decoded.view(spec.dtype.numpy).reshape(-1))


def numbers(kinds):
    return st.sampled_from(kinds).map(np.dtype)


@settings(deadline=None, max_examples=200)
@given(arrays(numbers([*INTEGERS, *FLOATS, "c8"])), st.sampled_from([None, "i8", "u8"]))
def test_delta(chunk, astype):
    if chunk.dtype.kind not in "iu":
        astype = None
    elif chunk.dtype.kind != (astype or "i8")[0]:
        chunk = (chunk % 100).astype(chunk.dtype)  # numcodecs adds numbers of both kinds as floats
        chunk = np.sort(chunk, axis=None)
    assert_values_of_numcodecs(Delta(chunk.dtype.newbyteorder("=").str, astype), chunk)


@settings(deadline=None)
@given(st.lists(st.integers(-128, 127), min_size=1, max_size=20), st.sampled_from(["i2", "i4", "i8", "u2", "u8"]))
def test_delta_in_a_narrow_type(steps, dtype):
    chunk = np.cumsum([min(abs(steps[0]), 127), *steps[1:]]).astype(dtype)
    assert_values_of_numcodecs(Delta(dtype, "i1"), chunk)


@settings(deadline=None)
@given(arrays(numbers(INTEGERS)), st.sampled_from(INTEGERS))
def test_delta_of_integers_is_lossless_or_raises(chunk, astype):
    codec, spec = Delta(chunk.dtype.name, astype), spec_of(chunk)
    assert codec.resolve(spec).dtype.numpy == np.dtype(astype)
    try:
        encoded = codec.encode(chunk, spec)
    except CodecError:
        assert np.dtype(astype).itemsize < chunk.itemsize
    else:
        assert same_bits(codec.decode(encoded, spec), chunk)


@settings(deadline=None, max_examples=200)
@given(arrays(numbers(FLOATS)), st.sampled_from([0, 1000, -0.5]), st.sampled_from([1, 100, 0.1, -3]), st.booleans())
def test_fixedscaleoffset(chunk, offset, scale, single):
    assert_values_of_numcodecs(FixedScaleOffset(offset, scale, chunk.dtype.name, "f4" if single else None), chunk)


@settings(deadline=None)
@given(arrays(numbers(["i2", "u1"])), numbers(FLOATS), st.sampled_from([1, 2, 0.5]), st.sampled_from(["i4", "i8"]))
def test_fixedscaleoffset_into_integers(chunk, dtype, scale, astype):
    chunk = np.clip(chunk, -1000, 1000).astype(dtype)  # what an integer cannot hold becomes anything
    assert_values_of_numcodecs(FixedScaleOffset(-100, scale, dtype.name, astype), chunk)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("astype", ["i1", "u1", "i4", "u4", "i8", "u8"])
def test_fixedscaleoffset_refuses_floats_that_integers_do_not_hold(astype, dtype):
    info, codec = np.iinfo(astype), FixedScaleOffset(0, 1, dtype, astype)
    low, high = np.array([info.min, info.max]).astype(dtype)
    high = high if int(high) <= info.max else np.nextafter(high, high.dtype.type(0))
    fits = np.array([low, high, 0], dtype)
    spec = spec_of(fits)
    assert codec.encode(fits, spec).tolist() == [int(x) for x in fits]
    for beyond in (np.nextafter(low, -np.inf) - 1, (high + 1) * 2, np.inf, np.nan):
        chunk = np.array([0, beyond], dtype)
        with pytest.raises(
            CodecError, match=f"beyond {np.dtype(astype)}, which is {info.min} to {info.max}; give a wide"
        ):
            codec.encode(chunk, spec)
        codec.encode(chunk, spec_of(chunk, beyond))  # the fill value may lie at the border


@settings(deadline=None)
@given(arrays(numbers(["i2", "u4", "i8"])), st.sampled_from([(0, 1), (3, 2), (1.5, 0.5)]))
def test_fixedscaleoffset_of_integers(chunk, parameters):
    chunk = (chunk % 1000).astype(chunk.dtype)
    assert_values_of_numcodecs(FixedScaleOffset(*parameters, chunk.dtype.name), chunk)


@settings(deadline=None, max_examples=200)
@given(arrays(numbers(FLOATS)), st.integers(-8, 8), st.sampled_from([None, "<f4", "<f8"]))
def test_quantize(chunk, digits, astype):
    assert_values_of_numcodecs(Quantize(digits, chunk.dtype.name, astype), chunk)


@pytest.mark.parametrize("digits", [*range(-300, 301, 25), *range(-12, 13)])
def test_quantize_uses_the_scale_of_numcodecs(digits):
    assert_values_of_numcodecs(Quantize(digits, "<f8"), np.array([0.1, 1 / 3, 12345.678, 1e300, 1e-300]))


@settings(deadline=None, max_examples=200)
@given(arrays(numbers([*INTEGERS, "?"])), st.sampled_from([*INTEGERS, *FLOATS, "?", "c8"]))
def test_astype(chunk, encoded):
    if encoded in FLOATS:  # back from infinity or beyond, an integer is anything
        chunk = (chunk % 2).astype(chunk.dtype) if chunk.dtype.kind != "b" else chunk
    if encoded == "c8":
        codec, spec = AsType(encoded, chunk.dtype.name), spec_of(chunk)
        assert codec.resolve(spec).dtype.name == "complex64"
        return
    assert_values_of_numcodecs(AsType(encoded, chunk.dtype.name), chunk)


@settings(deadline=None, max_examples=200)
@given(arrays(numbers(FLOATS)), st.data())
def test_bitround(chunk, data):
    chunk = np.where(np.isnan(chunk), 1, chunk).astype(chunk.dtype)  # which numcodecs can turn into -0.0
    keepbits = data.draw(st.integers(0, np.finfo(chunk.dtype).nmant))
    assert_values_of_numcodecs(BitRound(keepbits), chunk)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bitround_keeps_every_nan(dtype):
    # All mantissa bits set: the carry would run into the sign.
    nan = np.array([-1, 2 ** (8 * int(dtype[1]) - 1) - 1], f"i{dtype[1]}").view(dtype)
    codec, spec = BitRound(2), spec_of(nan)
    assert bits(codec.encode(nan, spec)) == bits(nan)


@settings(deadline=None)
@given(arrays(numbers(["?"])))
def test_packbits(chunk):
    codec, spec = PackBits(), spec_of(chunk)
    encoded = codec.encode(chunk, spec)
    assert (encoded.shape, encoded.dtype) == (codec.resolve(spec).shape, np.uint8)
    assert encoded.tobytes() == numcodecs.PackBits().encode(np.ascontiguousarray(chunk)).tobytes()
    encoded.flags.writeable = False
    assert same_bits(codec.decode(encoded, spec), chunk)


def test_packbits_of_another_padding_raise():
    spec = spec_of(np.zeros(10, bool))
    for padding in (0, 5, 7, 255):
        with pytest.raises(CodecError, match="6 bits of padding"):
            PackBits().decode(np.array([padding, 0, 0], np.uint8), spec)


@pytest.mark.parametrize(
    ("codec", "dtype", "fill", "after"),
    [
        (Delta("<i2", "<i4"), "i2", -7, ("int32", -7)),
        (FixedScaleOffset(1000, 10, "<f8", "|u1"), "f8", 1000.5, ("uint8", 5)),
        (FixedScaleOffset(1000, 10), "f8", 1000.5, ("float64", 5)),
        (Quantize(1, "<f8", "<f4"), "f8", 0.3, ("float32", 0.3125)),
        (Quantize(1), "f4", 0.3, ("float32", 0.3125)),
        (AsType("<i2", "<f4"), "f4", -2.9, ("int16", -2)),
        (AsType("<i2"), ">f4", -2.9, ("int16", -2)),
        (PackBits(), "?", True, ("uint8", 0)),
        (BitRound(1), "f4", 1.3, ("float32", 1.5)),
        (BitRound(23), "f4", 1.3, ("float32", np.float32(1.3))),
    ],
    ids=repr,
)
def test_fill_values_are_encoded_too(codec, dtype, fill, after):
    spec = spec_of(np.zeros((2, 3), dtype), fill)
    found = codec.resolve(spec)
    assert (found.dtype.name, found.fill[()]) == after
    assert found.fill.shape == ()
    assert not found.fill.flags.writeable
    assert found.shape == ((2,) if isinstance(codec, PackBits) else (2, 3))


def test_a_fill_value_that_does_not_fit_is_no_error():
    found = AsType("<i2").resolve(spec_of(np.zeros(3, "f4"), np.nan))
    assert found.dtype.name == "int16"


@pytest.mark.parametrize(
    ("codec", "dtype", "field"),
    [
        (Delta("<i2"), "i4", "configuration.dtype"),
        (Delta("<i2"), "u2", "configuration.dtype"),
        (Delta("<i2"), "?", "name"),
        (Delta("<c8", "<f4"), "c8", "configuration.astype"),
        (FixedScaleOffset(0, 1, "<f4"), "f8", "configuration.dtype"),
        (FixedScaleOffset(1000, 1, "|u1"), "u1", "configuration"),
        (Quantize(1, "<f4"), "f8", "configuration.dtype"),
        (Quantize(1), "i4", "name"),
        (AsType("<i2", "<f4"), "f8", "configuration.decode_dtype"),
        (AsType("<i2"), "c8", "configuration.encode_dtype"),
        (AsType("<i2"), "V3", "name"),
        (PackBits(), "u1", "name"),
        (BitRound(3), "i4", "name"),
        (BitRound(11), "f2", "configuration.keepbits"),
        (BitRound(24), "f4", "configuration.keepbits"),
    ],
    ids=repr,
)
def test_chunks_that_do_not_suit_a_codec(codec, dtype, field):
    with pytest.raises(MetadataError) as caught:
        codec.resolve(ArraySpec((2,), parse_dtype(np.dtype(dtype)), np.zeros((), dtype)))
    assert caught.value.field == field


# -- arrays to bytes ------------------------------------------------------------------------------


def test_zfpy_bytes_are_those_of_numcodecs():
    pytest.importorskip("zfpy", reason="zfpy is missing: pip install zfpy")
    rng = np.random.default_rng(0)
    for codec in (ZFPY(), ZFPY(4, tolerance=0), ZFPY(4, tolerance=1e-3), ZFPY(2, rate=12), ZFPY(3, precision=20)):
        for dtype in ("i4", "i8", "f4", "f8"):
            for shape in ((9,), (5, 6), (3, 4, 5), (2, 3, 4, 5), (1, 1)):
                chunk = (rng.normal(size=shape) * 1000).astype(dtype)
                spec = spec_of(chunk)
                codec.check(spec)
                encoded = codec.encode(chunk, spec)
                assert encoded == with_id(codec).encode(chunk)
                assert encoded == codec.encode(layout(chunk, "F", ">"), spec)
                decoded = codec.decode(memoryview(encoded), spec)
                assert same_bits(decoded, with_id(codec).decode(encoded))
                assert codec != ZFPY() or same_bits(decoded, chunk)


@pytest.mark.parametrize("shape", [(9,), (5, 6), (3, 4, 5), (2, 3, 4, 5)])
def test_zfpy_chunks_of_older_numcodecs_state_a_flat_shape(shape):
    pytest.importorskip("zfpy", reason="zfpy is missing: pip install zfpy")
    chunk = np.random.default_rng(0).normal(size=shape)
    for codec in (ZFPY(), ZFPY(4, tolerance=1e-3), ZFPY(2, rate=16)):
        flat = with_id(codec).encode(chunk.reshape(-1))  # as they gave it to the library
        expected = with_id(codec).decode(flat).reshape(shape)
        assert same_bits(codec.decode(flat, spec_of(chunk)), expected)
        again = codec.encode(codec.decode(flat, spec_of(chunk)), spec_of(chunk))
        assert again == with_id(codec).encode(expected)  # written, it states its own shape


def zfpy_damaged():
    """Streams with every byte of their headers changed in some ways, cut, and filled with ones."""
    codec = ZFPY(4, tolerance=1e-3)
    chunk = np.linspace(0, 1, 30).reshape(5, 6)
    spec = spec_of(chunk)
    encoded = codec.encode(chunk, spec)
    yield from ((spec, damaged) for damaged in flipped(encoded))
    yield from ((spec, encoded[:length]) for length in range(len(encoded)))
    yield from ((spec, encoded[:12] + bytes([byte]) * (len(encoded) - 12)) for byte in (0, 0xAA, 0xFF))
    yield from ((spec, encoded + bytes(n)) for n in (8, 80, 800))


def test_damaged_zfpy_raises_or_gives_the_right_shape():
    pytest.importorskip("zfpy", reason="zfpy is missing: pip install zfpy")
    refused = 0
    for spec, damaged in zfpy_damaged():
        try:
            assert ZFPY().decode(damaged, spec).shape == spec.shape
        except CodecError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("7a667004", "no zfp stream"),
        ("7a667005" "57000040000000", "float64 of shape"),  # 5 by 6
        ("7a667005" "ffffffffffffff", "stated"),
        ("7a667005" "13000000000000" + "00", "blocks of 1 bits"),
    ],
)  # fmt: skip
def test_zfpy_headers_that_never_reach_the_library(stated, message, monkeypatch):
    monkeypatch.setattr("zellige.codecs.numcodecs._zfpy", None)
    raw = bytes.fromhex(stated).ljust(32, b"\0")
    spec = spec_of(np.zeros(2))
    if message == "float64 of shape":
        raw = raw[:10] + b"\x00\x88" + raw[12:]
    with pytest.raises(CodecError, match=message):
        ZFPY().decode(raw, spec)


@pytest.mark.parametrize(
    ("codec", "shape", "dtype", "field"),
    [
        (ZFPY(), (2,), "u4", "name"),
        (ZFPY(), (2,), "f2", "name"),
        (ZFPY(), (), "f4", "name"),
        (ZFPY(), (1,) * 5, "f4", "name"),
        (ZFPY(), (0, 2), "f4", "name"),
        (ZFPY(), (4097, 1, 1, 1), "f4", "name"),
        (ZFPY(2, rate=2), (4,), "f4", "configuration.rate"),
        (ZFPY(2, rate=0.5), (4, 4), "f8", "configuration.rate"),
        (ZFPY(2, rate=0), (4, 4), "i4", "configuration.rate"),
        (PCodec(), (2,), "u1", "name"),
        (PCodec(), (2,), "?", "name"),
        (PCodec(), (2,), "c8", "name"),
    ],
)
def test_chunks_that_do_not_suit_a_serializer(codec, shape, dtype, field):
    with pytest.raises(MetadataError) as caught:
        codec.check(ArraySpec(shape, parse_dtype(np.dtype(dtype)), np.zeros((), dtype)))
    assert caught.value.field == field
    assert codec.encoded_size(spec_of(np.zeros(2))) is None


PCO = [
    PCodec(),
    PCodec(0),
    PCodec(12, mode_spec="classic"),
    PCodec(delta_spec="none", equal_pages_up_to=7),
    PCodec(delta_spec="try_lookback"),
    PCodec(delta_spec="try_consecutive", delta_encoding_order=2),
    PCodec(delta_encoding_order=1, equal_pages_up_to=1),
]


@pytest.mark.filterwarnings("ignore:delta_spec='none' is deprecated")  # by newer numcodecs, in favour of no_op
@pytest.mark.parametrize("codec", PCO, ids=repr)
@pytest.mark.parametrize("dtype", ["u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"])
def test_pcodec_bytes_are_those_of_numcodecs(codec, dtype):
    pcodec = pytest.importorskip("pcodec", reason="pcodec is missing: pip install pcodec")
    chunk = (np.random.default_rng(0).integers(0, 50, (20, 15)) * 0.5).astype(dtype)
    spec = spec_of(chunk)
    codec.check(spec)
    encoded = codec.encode(layout(chunk, "F", ">"), spec)
    decoded = codec.decode(memoryview(encoded), spec)
    assert same_bits(decoded, chunk)
    if hasattr(pcodec.DeltaSpec, "none"):  # numcodecs does not know the names of version 1
        assert encoded == with_id(codec).encode(chunk)
        assert same_bits(with_id(codec).decode(encoded), chunk.reshape(-1))


def test_pcodec_of_several_chunks_and_of_nothing():
    pytest.importorskip("pcodec", reason="pcodec is missing: pip install pcodec")
    for size in (0, 1, 600_000):
        chunk = np.random.default_rng(0).integers(0, 9, size).astype("i4").cumsum(dtype="i4")
        assert same_bits(PCodec(4).decode(PCodec(4).encode(chunk, spec_of(chunk)), spec_of(chunk)), chunk)


@pytest.mark.parametrize("codec", PCO[:6], ids=repr)
def test_damaged_pcodec_raises_or_gives_the_right_shape(codec):
    pytest.importorskip("pcodec", reason="pcodec is missing: pip install pcodec")
    chunk = np.tile(np.random.default_rng(0).integers(0, 2**40, 20), 5)
    spec = spec_of(chunk)
    encoded = codec.encode(chunk, spec)
    for damaged in flipped(encoded, (1, 16, 128, 255)):
        try:
            assert codec.decode(damaged, spec).shape == spec.shape
        except CodecError:
            pass
    for wrong in (*(encoded[:length] for length in range(len(encoded))), encoded + b"\0", encoded + encoded):
        with pytest.raises(CodecError):
            codec.decode(wrong, spec)
    for other in (chunk[:-1], np.append(chunk, 0), chunk.astype("u8"), chunk.astype("i4")):
        with pytest.raises(CodecError):
            codec.decode(encoded, spec_of(other))


def test_pcodec_refuses_a_window_of_gigabytes():
    pytest.importorskip("pcodec", reason="pcodec is missing: pip install pcodec")
    chunk = np.tile(np.random.default_rng(0).integers(0, 2**40, 50), 10)
    encoded = bytearray(PCodec(delta_spec="try_lookback").encode(chunk, spec_of(chunk)))
    version = 3 if encoded[4] == 3 else 2
    meta = {2: 12, 3: 14}[version]  # after the headers and the count of the first chunk
    assert encoded[meta] == 0x20, "classic mode, looking back"
    encoded[meta + 1] |= 31
    with pytest.raises(CodecError, match=r"a window of 2\*\*32 numbers"):
        PCodec().decode(bytes(encoded), spec_of(chunk))


# -- configurations -------------------------------------------------------------------------------

NAMES = (
    "blosc zstd gzip zlib bz2 lzma lz4 shuffle crc32 adler32 crc32c fletcher32 jenkins_lookup3 "
    "delta fixedscaleoffset quantize astype packbits bitround zfpy pcodec"
)


def test_every_name_has_a_class():
    assert {f"numcodecs.{name}" for name in NAMES.split()} == CLASSES.keys()
    assert {kind.__name__ for kind in CLASSES.values()} | {"CLASSES"} == set(ours.__all__)
    assert all(issubclass(kind, ArrayArrayCodec | ArrayBytesCodec | BytesBytesCodec) for kind in CLASSES.values())


CONFIGURATIONS = [
    (Blosc, {"cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}),
    (Blosc, {"cname": "zstd", "clevel": 3, "shuffle": -1, "blocksize": 0, "typesize": 4}),
    (Zstd, {"level": -5, "checksum": True}),
    (GZip, {"level": 9}),
    (Zlib, {"level": -1}),
    (BZ2, {"level": 9}),
    (LZMA, {"format": 1, "check": -1}),
    (LZMA, {"format": 1, "check": 4, "preset": 9}),
    (LZMA, {"format": 3, "check": -1, "filters": [{"id": 33, "preset": 6}]}),
    (LZ4, {"acceleration": 1}),
    (Shuffle, {"elementsize": 8}),
    (Shuffle, {}),
    (CRC32, {"location": "end"}),
    (Adler32, {"location": "start"}),
    (CRC32C, {"location": "start"}),
    (Fletcher32, {}),
    (JenkinsLookup3, {"initval": 5}),
    (Delta, {"dtype": "<i4"}),
    (Delta, {"dtype": "uint16", "astype": "|i1"}),
    (FixedScaleOffset, {"offset": 1000, "scale": 0.5, "dtype": "<f8", "astype": "<i2"}),
    (FixedScaleOffset, {"offset": 1000, "scale": 10}),
    (Quantize, {"digits": 3, "dtype": ">f8"}),
    (AsType, {"encode_dtype": "<f4", "decode_dtype": "<f8"}),
    (AsType, {"encode_dtype": "<f4"}),
    (PackBits, {}),
    (BitRound, {"keepbits": 0}),
    (ZFPY, {"mode": 4, "tolerance": 0.5}),
    (ZFPY, {"mode": 2, "rate": 8}),
    (ZFPY, {"mode": 3, "precision": 16}),
    (PCodec, PCodec().configuration()),
    (PCodec, PCodec(delta_spec="try_consecutive", delta_encoding_order=2).configuration()),
]


@pytest.mark.parametrize(("kind", "configuration"), CONFIGURATIONS, ids=repr)
def test_configurations_are_written_as_they_were_read(kind, configuration):
    codec = kind.from_configuration(configuration)
    assert codec.to_json() == {"name": kind.name, "configuration": configuration}
    again = CLASSES[kind.name].from_configuration(codec.configuration())
    assert (again, hash(again)) == (codec, hash(codec))


REQUIRED = {
    Delta: {"dtype": "<i4"},
    FixedScaleOffset: {"offset": 0, "scale": 1},
    Quantize: {"digits": 1},
    AsType: {"encode_dtype": "<i4"},
    BitRound: {"keepbits": 1},
}


@pytest.mark.parametrize("kind", CLASSES.values())
def test_what_numcodecs_has_a_default_for_may_be_missing(kind):
    found = kind.from_configuration(REQUIRED.get(kind, {}))
    if kind is ZFPY:
        pytest.importorskip("zfpy", reason="zfpy is missing: pip install zfpy")
    if kind not in REQUIRED and kind is not PCodec:
        theirs = numcodecs.get_codec({"id": kind.name.removeprefix("numcodecs.")})
        assert {key: getattr(theirs, key) for key in found.configuration()} == found.configuration()
    for key in REQUIRED.get(kind, {}):
        with pytest.raises(MetadataError) as caught:
            kind.from_configuration({k: v for k, v in REQUIRED[kind].items() if k != key})
        assert caught.value.field == f"configuration.{key}"


def test_zfpy_takes_what_numcodecs_writes_for_v2():
    read = ZFPY.from_configuration(
        {"mode": 4, "compression_kwargs": {"tolerance": 0.1}, "tolerance": 0.1, "rate": -1, "precision": -1}
    )
    assert read == ZFPY(4, tolerance=0.1)


NOT_LEVELS = [10, -2, True, 1.0, "1", None, [1]]
NOT_TYPES = ["", "f16", "O", "S3", "U2", "M8[s]", "V3", "r8", "(2,", "(2,3)i4", "9" * 40 + "i4", "i4,i4", 4, ["i4"]]
NOT_NUMBERS = [None, True, "1", np.inf, np.nan, 10**400]
FSO = {"offset": 0, "scale": 1, "dtype": "<f4"}


@pytest.mark.parametrize(
    ("kind", "configuration", "key"),
    [
        *((kind, {"unknown": 1} | REQUIRED.get(kind, {}), "unknown") for kind in CLASSES.values()),
        *((kind, {"id": 1} | REQUIRED.get(kind, {}), "id") for kind in CLASSES.values()),
        *((kind, {"level": level}, "level") for level in NOT_LEVELS for kind in (GZip, Zlib, BZ2)),
        (BZ2, {"level": 0}, "level"),
        (GZip, {"level": -1}, "level"),
        *((Zstd, {"level": level}, "level") for level in (23, -131073, True, None)),
        *((Zstd, {"checksum": value}, "checksum") for value in (0, 1, "true", None)),
        *((Blosc, {"cname": name}, "cname") for name in ("lzma", 1, None, [])),
        *((Blosc, {"clevel": level}, "clevel") for level in NOT_LEVELS),
        *((Blosc, {"shuffle": shuffle}, "shuffle") for shuffle in ("shuffle", -2, 3, True, 1.0, None)),
        *((Blosc, {"typesize": size}, "typesize") for size in (0, True, "2", 2.0)),
        *((Blosc, {"blocksize": size}, "blocksize") for size in (-1, 2**31, False)),
        *((LZMA, {"format": value}, "format") for value in (0, 4, True, None, "xz")),
        *((LZMA, {"check": value}, "check") for value in (2, True, 1.0, None)),
        (LZMA, {"format": 2, "check": 4}, "check"),
        *((LZMA, {"preset": value}, "preset") for value in (10, -1, True, 1.0, "6", 1 << 32)),
        (LZMA, {"preset": 1, "filters": [{"id": 33}]}, "preset"),
        (LZMA, {"format": 3}, "filters"),
        *(
            (LZMA, {"filters": value}, "filters")
            for value in ([], {}, 33, [33], [{}], [{"id": 1}], [{"id": [1]}], [{"id": 33, "preset": "6"}])
        ),
        (LZMA, {"filters": [{"id": 33, "dict_size": 1 << 28}]}, "filters"),
        (LZMA, {"filters": [{"id": 33, "level": 1}]}, "filters"),
        *((LZ4, {"acceleration": value}, "acceleration") for value in (True, 1.0, None, 2**31)),
        *((Shuffle, {"elementsize": value}, "elementsize") for value in (-1, True, 4.0, "4")),
        *((kind, {"location": value}, "location") for value in ("middle", 1) for kind in (CRC32, Adler32, CRC32C)),
        *((JenkinsLookup3, {"initval": value}, "initval") for value in (-1, 2**32, True, None)),
        (JenkinsLookup3, {"prefix": [1, 2]}, "prefix"),
        *((Delta, {"dtype": value}, "dtype") for value in (*NOT_TYPES, None, "bool")),
        *((Delta, {"dtype": "<i4", "astype": value}, "astype") for value in NOT_TYPES),
        *((FixedScaleOffset, FSO | {key: value}, key) for value in NOT_NUMBERS for key in ("offset", "scale")),
        (FixedScaleOffset, FSO | {"scale": 0}, "scale"),
        *((FixedScaleOffset, FSO | {"dtype": value}, "dtype") for value in NOT_TYPES),
        *((FixedScaleOffset, FSO | {"astype": value}, "astype") for value in NOT_TYPES),
        *((Quantize, {"digits": value}, "digits") for value in (301, -301, True, 1.0, None)),
        *((Quantize, {"digits": 1, "dtype": value}, "dtype") for value in (*NOT_TYPES, "i4")),
        *((Quantize, {"digits": 1, "astype": value}, "astype") for value in (*NOT_TYPES, "i4")),
        *((AsType, {"encode_dtype": value}, "encode_dtype") for value in (*NOT_TYPES, None)),
        *((AsType, {"encode_dtype": "<i4", "decode_dtype": value}, "decode_dtype") for value in NOT_TYPES),
        *((BitRound, {"keepbits": value}, "keepbits") for value in (-1, 53, True, 3.0, None)),
        *((ZFPY, {"mode": value}, "mode") for value in (1, 5, True, "rate", None)),
        *((ZFPY, {key: value}, key) for value in (True, "1", None) for key in ("tolerance", "rate", "precision")),
        (ZFPY, {"mode": 2, "rate": 129}, "rate"),
        (ZFPY, {"tolerance": np.inf}, "tolerance"),
        (ZFPY, {"precision": 1.5}, "precision"),
        (ZFPY, {"compression_kwargs": 1}, "compression_kwargs"),
        *((PCodec, {"level": value}, "level") for value in (13, -1, True, None)),
        *((PCodec, {"mode_spec": value}, "mode_spec") for value in ("none", None, 1)),
        *((PCodec, {"delta_spec": value}, "delta_spec") for value in ("try", None, 1)),
        *((PCodec, {"paging_spec": value}, "paging_spec") for value in ("exact", None)),
        *((PCodec, {"equal_pages_up_to": value}, "equal_pages_up_to") for value in (0, True, None, 2**24 + 1)),
        *((PCodec, {"delta_encoding_order": value}, "delta_encoding_order") for value in (8, -1, True, "1")),
        (PCodec, {"delta_spec": "try_consecutive"}, "delta_encoding_order"),
        (PCodec, {"delta_spec": "none", "delta_encoding_order": 1}, "delta_encoding_order"),
    ],
)  # fmt: skip
def test_bad_configurations_name_the_key(kind, configuration, key):
    with pytest.raises(MetadataError) as caught:
        kind.from_configuration(configuration)
    assert caught.value.field == f"configuration.{key}"


@settings(deadline=None)
@given(st.text(max_size=12) | st.from_regex(r"[<>|=]?[a-zA-Z]{1,9}[0-9]{0,3}", fullmatch=True))
def test_any_text_names_a_type_or_raises(text):
    try:
        assert np.dtype(Delta(text).dtype).kind in "iufc"
    except MetadataError:
        pass


# -- arrays of zarr-python ------------------------------------------------------------------------

VALUES = np.round(np.sin(np.arange(24.0)) * 50).reshape(4, 6)
PEERS = {
    "Blosc": ({"cname": "zstd", "shuffle": 2}, "f4"),
    "LZ4": ({"acceleration": 3}, "f4"),
    "Zstd": ({"level": 3}, "f4"),
    "Zlib": ({}, "f4"),
    "GZip": ({"level": 4}, "f4"),
    "BZ2": ({"level": 5}, "f4"),
    "LZMA": ({"preset": 1}, "f4"),
    "Shuffle": ({}, "f4"),
    "CRC32": ({}, "f4"),
    "CRC32C": ({"location": "start"}, "f4"),
    "Adler32": ({"location": "end"}, "f4"),
    "Fletcher32": ({}, "f4"),
    "JenkinsLookup3": ({"initval": 7}, "f4"),
    "Delta": ({"dtype": "<i2", "astype": "<i4"}, "i2"),
    "FixedScaleOffset": ({"offset": -100, "scale": 2, "astype": "<u2"}, "f4"),
    "Quantize": ({"digits": 2}, "f4"),
    "AsType": ({"encode_dtype": "<i2"}, "f4"),
    "PackBits": ({}, "?"),
    "BitRound": ({"keepbits": 5}, "f4"),
    "ZFPY": ({"mode": 4, "tolerance": 0.01}, "f4"),
    "PCodec": ({"level": 8}, "f4"),
}


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.parametrize("kind", PEERS)
def test_chunks_of_zarr_python_are_read(kind, tmp_path):
    zarr = pytest.importorskip("zarr", reason="the peer zarr-python is missing: pip install 'zarr>=3.1'")
    peers = pytest.importorskip("zarr.codecs.numcodecs")
    if kind in ("ZFPY", "PCodec"):
        pytest.importorskip(kind.lower())
    configuration, dtype = PEERS[kind]
    role = {ArrayArrayCodec: "filters", ArrayBytesCodec: "serializer", BytesBytesCodec: "compressors"}
    ours_kind = getattr(ours, kind)
    place = next(role[base] for base in role if issubclass(ours_kind, base))
    chain = {"filters": None, "compressors": None} | {place: getattr(peers, kind)(**configuration)}
    array = zarr.create_array(tmp_path / "a", shape=(4, 6), chunks=(4, 6), dtype=dtype, **chain)
    array[...] = VALUES.astype(dtype)
    wanted = array[...]
    document = next(item for item in array.metadata.to_dict()["codecs"] if item["name"] == ours_kind.name)
    codec = ours_kind.from_configuration(document["configuration"])
    stored = (tmp_path / "a/c/0/0").read_bytes()
    assert same_bits(read_chunk(codec, stored, spec_of(wanted)), wanted)


def read_chunk(codec, stored, spec):
    """A chunk under a chain of `bytes` little and this codec."""
    if isinstance(codec, ArrayBytesCodec):
        return codec.decode(stored, spec)
    if isinstance(codec, ArrayArrayCodec):
        after = codec.resolve(spec)
        return codec.decode(np.frombuffer(stored, after.dtype.numpy).reshape(after.shape), spec)
    raw = codec.evolve(spec.dtype.numpy.itemsize).decode(stored, 24 * spec.dtype.numpy.itemsize)
    return np.frombuffer(raw, spec.dtype.numpy).reshape(spec.shape)


# -- imports --------------------------------------------------------------------------------------


def test_libraries_are_imported_on_first_use():
    program = (
        "import sys, numpy; before = set(sys.modules)\n"
        "import zellige.codecs.numcodecs, zellige.codecs.n5_default, zellige.codecs.conditional\n"
        "heavy = {'numcodecs', 'zfpy', 'pcodec', 'bz2', 'lzma', '_bz2', '_lzma', 'zlib', 'google_crc32c'}\n"
        "sys.exit(str(heavy & (set(sys.modules) - before) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("use", "module", "package"),
    [
        (lambda: LZ4().encode(b"abc"), "numcodecs.lz4", "numcodecs"),
        (lambda: Fletcher32().encode(b"abc"), "numcodecs.fletcher32", "numcodecs"),
        (lambda: CRC32C().encode(b"abc"), "google_crc32c", "google-crc32c"),
        (lambda: ZFPY().encode(np.zeros(4), spec_of(np.zeros(4))), "zfpy", "zfpy"),
        (lambda: PCodec().encode(np.zeros(4), spec_of(np.zeros(4))), "pcodec.standalone", "pcodec"),
    ],
)
def test_a_missing_library_names_the_remedy(monkeypatch, use, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    base.library.cache_clear()
    try:
        with pytest.raises(ImportError, match=f"pip install {package}"):
            use()
    finally:
        base.library.cache_clear()
