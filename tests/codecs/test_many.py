"""Many values decoded at once: what comes out is what each gives by itself, and one that is damaged is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from zellige import codecs
from zellige.codecs.base import BytesBytesCodec
from zellige.codecs.blosc import BloscCodec
from zellige.codecs.conditional import ConditionalCodec
from zellige.codecs.crc32c import Crc32cCodec
from zellige.codecs.gzip import GzipCodec
from zellige.codecs.numcodecs import (
    BZ2,
    CLASSES,
    CRC32,
    CRC32C,
    LZ4,
    LZMA,
    Adler32,
    Blosc,
    Fletcher32,
    GZip,
    JenkinsLookup3,
    Shuffle,
    Zlib,
    Zstd,
)
from zellige.codecs.zstd import ZstdCodec
from zellige.errors import CodecError

CODECS: list[BytesBytesCodec] = [
    ZstdCodec(),
    ZstdCodec(3, False),
    GzipCodec(1),
    BloscCodec(),
    BloscCodec("lz4", 0),
    Crc32cCodec(),
    ConditionalCodec((ZstdCodec(), Crc32cCodec())),
    *(BZ2(), CRC32(), CRC32C(), LZ4(), LZMA(), Adler32(), Blosc(), Fletcher32(), GZip(), JenkinsLookup3()),
    *(Shuffle(2), Zlib(), Zstd()),
]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=repr)

VALUES = [
    np.repeat(np.arange(8), 32).astype("<i2").tobytes(),
    b"ab",
    bytes(300),
    bytes(range(250)),
    np.random.default_rng(0).integers(0, 9, 70_000, np.uint8).tobytes(),
]
SIZES = [len(value) for value in VALUES]


def one(codec, raw, size):
    """What a value gives by itself: its content of this size, or None for an error."""
    try:
        found = bytes(codec.decode(raw, size))
    except CodecError:
        return None
    return found if len(found) == size else None


def many(codec, raws, sizes):
    """What they give together; any exception but `CodecError` is a failure."""
    try:
        found = bytes(codec.decode_many(raws, sizes))
    except CodecError:
        return None
    assert len(found) == sum(sizes)
    return [found[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def check(codec, raws, sizes):
    """Together they give what each gives, and an error if one of them does."""
    expected = [one(codec, raw, size) for raw, size in zip(raws, sizes, strict=True)]
    found = many(codec, raws, sizes)
    assert found == (None if None in expected else expected)
    return found


def unsized(raw, checksum=True):
    """A zstd frame that does not state the size of its content, as streaming writers make them."""
    return zstandard.ZstdCompressor(level=3, write_checksum=checksum, write_content_size=False).compress(raw)


def skippable(content):
    return bytes.fromhex("502a4d18") + len(content).to_bytes(4, "little") + content


# -- larger values, which some codecs hand to their libraries one by one --------------------------

LARGE = [np.random.default_rng(k).integers(0, 9, size, np.uint8).tobytes() for k, size in enumerate((32 << 10, 99_998))]
LARGE += [bytes(40_000), bytes(range(250)) * 500]
LARGE_SIZES = [len(value) for value in LARGE]


@every_codec
def test_many_large_values_are_what_each_is(codec):
    raws = [memoryview(bytearray(codec.encode(value))) for value in LARGE]
    assert check(codec, raws, LARGE_SIZES) == LARGE
    assert check(codec, raws[::-1], LARGE_SIZES[::-1]) == LARGE[::-1]
    for wrong in (-1, +1, +1000):
        for place in range(len(LARGE)):
            assert check(codec, raws, [size + wrong * (k == place) for k, size in enumerate(LARGE_SIZES)]) is None
    assert check(codec, raws, [*LARGE_SIZES[1::-1], *LARGE_SIZES[2:]]) is None


@every_codec
def test_many_large_values_of_which_one_is_damaged(codec):
    good = [bytes(codec.encode(value)) for value in LARGE]
    chosen = np.random.default_rng(1)
    for place in range(len(good)):
        for _ in range(40):
            raw = bytearray(good[place])
            raw[int(chosen.integers(min(len(raw), 64 if chosen.random() < 0.5 else len(raw))))] ^= int(
                chosen.integers(1, 256)
            )
            check(codec, [raw if k == place else other for k, other in enumerate(good)], LARGE_SIZES)
        cut = good[place][: int(chosen.integers(len(good[place])))]
        check(codec, [cut if k == place else other for k, other in enumerate(good)], LARGE_SIZES)


@pytest.mark.parametrize("checksum", [True, False])
def test_large_zstd_values_of_any_frames(checksum):
    codec = ZstdCodec(3, checksum)
    halves = [bytes(codec.encode(LARGE[1][:50_000])), bytes(codec.encode(LARGE[1][50_000:]))]
    raws = [
        unsized(LARGE[0], checksum),
        b"".join([*halves, skippable(b"note")]),
        skippable(b"") + codec.encode(LARGE[2]),
    ]
    assert check(codec, [*raws, bytes(codec.encode(LARGE[3]))], LARGE_SIZES) == LARGE


# -- good values ----------------------------------------------------------------------------------


def test_no_codec_is_left_out():
    found = {getattr(codecs, name) for name in codecs.__all__ if name.endswith("Codec")} | set(CLASSES.values())
    kinds = {kind for kind in found if issubclass(kind, BytesBytesCodec)}
    assert {type(codec) for codec in CODECS} == kinds - {BytesBytesCodec}


@every_codec
@pytest.mark.parametrize(
    "kind", [bytes, bytearray, lambda raw: memoryview(b"x" + raw)[1:]], ids=["bytes", "own", "view"]
)
def test_many_values_are_what_each_is(codec, kind):
    raws = [kind(bytes(codec.encode(value))) for value in VALUES]
    assert check(codec, raws, SIZES) == VALUES
    assert check(codec, raws[::-1], SIZES[::-1]) == VALUES[::-1]


@every_codec
def test_one_value_and_many_equal_ones(codec):
    raw = bytes(codec.encode(VALUES[0]))
    assert check(codec, [raw], SIZES[:1]) == VALUES[:1]
    assert check(codec, [raw] * 300, SIZES[:1] * 300) == VALUES[:1] * 300


@every_codec
def test_a_call_leaves_the_encoded_bytes_as_they_are(codec):
    raws = [bytearray(codec.encode(value)) for value in VALUES]
    before = [bytes(raw) for raw in raws]
    codec.decode_many(raws, SIZES)
    assert raws == before


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(CODECS), st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6))
def test_any_values_come_back(codec, values):
    if isinstance(codec, Shuffle):
        values = [value + value for value in values]  # whole elements
    raws = [bytes(codec.encode(value)) for value in values]
    assert check(codec, raws, [len(value) for value in values]) == values


# -- other values ---------------------------------------------------------------------------------

CHANGES = {
    "cut": lambda raw: raw[:-1],
    "cut in the middle": lambda raw: raw[: len(raw) // 2],
    "empty": lambda _: b"",
    "one byte": lambda raw: raw[:1],
    "a zero at the end": lambda raw: raw + b"\0",
    "junk at the end": lambda raw: raw + b"junk" * 9,
    "twice": lambda raw: raw + raw,
    "zeros": lambda raw: bytes(len(raw)),
}


@every_codec
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_value_is_an_error_or_right_as_it_is_alone(codec, change):
    good = [bytes(codec.encode(value)) for value in VALUES[:4]]
    assert check(codec, good, SIZES[:4]) == VALUES[:4]
    for place in (0, 2, 3):
        raws = [change(raw) if k == place else raw for k, raw in enumerate(good)]
        check(codec, raws, SIZES[:4])


@every_codec
def test_a_value_of_another_size_is_an_error(codec):
    raws = [bytes(codec.encode(value)) for value in VALUES]
    for wrong in (-1, +1, +1000):
        for place in (0, 2, 4):
            sizes = [size + wrong if k == place else size for k, size in enumerate(SIZES)]
            assert check(codec, raws, sizes) is None
    assert check(codec, raws, [SIZES[1], SIZES[0], *SIZES[2:]]) is None  # right together, but not each


@every_codec
def test_there_is_a_size_for_each_value(codec):
    raw = bytes(codec.encode(VALUES[0]))
    for raws, sizes in (([raw, raw], SIZES[:1]), ([raw], [SIZES[0]] * 2)):
        with pytest.raises(ValueError, match=r"argument 2|mismatch"):
            codec.decode_many(raws, sizes)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if not isinstance(codec, ZstdCodec)], ids=repr)
def test_values_without_content(codec):
    raws = [bytes(codec.encode(value)) for value in (b"", VALUES[0], b"")]
    assert check(codec, raws, [0, SIZES[0], 0]) == [b"", VALUES[0], b""]
    assert check(codec, raws[:1], [0]) == [b""]
    assert check(codec, raws[:1], [1]) is None
    assert check(codec, [], []) == []


@pytest.mark.parametrize("values", [[], [b""], [b"", b"x" * 999], [b"x", b"", b""]], ids=len)
def test_zstd_does_not_end_the_process_for_values_without_content(values):
    code = f"""
    from zellige.codecs.zstd import ZstdCodec
    raws = [ZstdCodec().encode(value) for value in {values}]
    found = ZstdCodec().decode_many(raws, [len(value) for value in {values}])
    assert bytes(found) == {b"".join(values)}
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(codecs.__file__).parents[2])}
    result = subprocess.run([sys.executable, "-c", dedent(code)], env=environment, capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


# -- zstd and blosc, which do all at once ---------------------------------------------------------

FRAMES = {
    "without size": unsized(VALUES[0]),
    "without size and checksum": unsized(VALUES[0], False),
    "two frames": ZstdCodec().encode(VALUES[0][:99]) + ZstdCodec().encode(VALUES[0][99:]),
    "two frames, one without size": ZstdCodec().encode(VALUES[0][:99]) + unsized(VALUES[0][99:]),
    "skippable first": skippable(b"xyz") + ZstdCodec().encode(VALUES[0]),
    "skippable last": ZstdCodec().encode(VALUES[0]) + skippable(b"xyz"),
    "an empty frame first": ZstdCodec().encode(b"") + ZstdCodec().encode(VALUES[0]),
}


@pytest.mark.parametrize("raw", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("codec", [ZstdCodec(), Zstd()], ids=["zstd", "numcodecs.zstd"])
def test_frames_of_other_writers_are_read_among_others(codec, raw):
    good = ZstdCodec().encode(VALUES[2])
    sizes = [SIZES[2], SIZES[0], SIZES[2]]
    assert check(codec, [good, raw, good], sizes) == [VALUES[2], VALUES[0], VALUES[2]]
    assert check(codec, [good, raw[:-1], good], sizes) is None
    assert check(codec, [good, raw, good], [SIZES[2], SIZES[0] + 1, SIZES[2]]) is None


@pytest.mark.parametrize("checksum", [True, False])
def test_every_flip_in_a_frame_is_found_or_not_as_it_is_alone(checksum):
    codec, good = ZstdCodec(3, checksum), ZstdCodec().encode(VALUES[1])
    encoded = codec.encode(VALUES[0])
    outcomes = []
    for position in range(len(encoded)):
        for bit in range(8):
            damaged = bytearray(encoded)
            damaged[position] ^= 1 << bit
            outcomes.append(check(codec, [good, bytes(damaged)], [SIZES[1], SIZES[0]]))
    assert None in outcomes
    assert not checksum or all(found in (None, [VALUES[1], VALUES[0]]) for found in outcomes)


def test_a_frame_that_lies_about_its_size_is_an_error():
    good = ZstdCodec().encode(VALUES[1])
    honest = ZstdCodec(3, False).encode(b"x" * 100)
    assert honest[4] == 0x20  # the size is in the next byte
    for stated in (0, 99, 101, 255):
        liar = honest[:5] + bytes([stated]) + honest[6:]
        assert check(ZstdCodec(), [good, liar], [SIZES[1], stated]) is None
        assert check(ZstdCodec(), [good, liar], [SIZES[1], 100]) is None


def test_a_frame_that_states_much_takes_no_memory(monkeypatch):
    monkeypatch.setattr(zstandard, "ZstdDecompressor", None)  # never asked
    bomb = bytes.fromhex("28b52ffde0") + (1 << 40).to_bytes(8, "little") + bytes.fromhex("190000") + b"abc"
    with pytest.raises(CodecError, match="stated"):
        ZstdCodec().decode_many([bomb], [3])


def test_good_frames_are_decoded_in_one_call(monkeypatch):
    def refuse(*_args):
        raise AssertionError("one by one")

    raws = [ZstdCodec().encode(value) for value in VALUES]
    monkeypatch.setattr(ZstdCodec, "decode_into", refuse)
    monkeypatch.setattr(ZstdCodec, "decode", refuse)
    assert many(ZstdCodec(), raws, SIZES) == VALUES


@pytest.mark.parametrize("cname", ["lz4", "blosclz", "zstd", "zlib"])
def test_every_flip_in_a_container_is_found_or_not_as_it_is_alone(cname):
    codec = BloscCodec(cname, 5, "shuffle", 2, 256)
    good, encoded = codec.encode(VALUES[1]), codec.encode(VALUES[0])
    outcomes = []
    for position in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[position] ^= 0xFF
        outcomes.append(many(codec, [good, bytes(damaged)], [SIZES[1], SIZES[0]]))
    assert None in outcomes
    assert all(found is None or [len(part) for part in found] == [SIZES[1], SIZES[0]] for found in outcomes)


# -- encoding --------------------------------------------------------------------------------------

UNEVEN = [70_000, 32_768, 150_002, 6, 0, 40_000]


def content(size):
    """Bytes that compress well, or not at all, as the size says."""
    return os.urandom(size) if size % 4 else (np.arange(size // 2, dtype="<i2") // 7).tobytes()


def encoded(codec, values):
    """What they are encoded to together, and the memory that was given for that."""
    sizes = [*map(len, values)]
    into = memoryview(bytearray(sum(map(codec.room, sizes))))
    flat = memoryview(bytearray(b"".join(values)))
    found = codec.encode_many(flat, sizes, into)
    flat[:] = bytes(len(flat))  # they do not depend on it
    return found


@every_codec
@pytest.mark.parametrize("sizes", [UNEVEN, [40, 1000], [65_536]], ids=["large", "small", "one"])
def test_values_encoded_together_come_back(codec, sizes):
    values = [content(size) for size in sizes]
    found = encoded(codec, values)
    assert [bytes(codec.decode(raw, len(value))) for raw, value in zip(found, values, strict=True)] == values


@every_codec
def test_what_was_encoded_is_not_overwritten_by_the_next(codec):
    found = encoded(codec, [b"a" * 50_000, b"b" * 50_000])
    before = [bytes(raw) for raw in found]
    encoded(codec, [os.urandom(50_000), os.urandom(50_000)])
    codec.encode(os.urandom(50_000))
    assert [bytes(raw) for raw in found] == before


@pytest.mark.parametrize("cname", ["lz4", "lz4hc", "blosclz", "zstd", "zlib"])
@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
@pytest.mark.parametrize("clevel", [0, 5, 9])
def test_containers_made_together_are_those_made_alone(cname, shuffle, clevel):
    for typesize, blocksize in ((2, 0), (8, 4096), (None, 0)):
        codec = BloscCodec(cname, clevel, shuffle, typesize, blocksize)
        values = [content(size) for size in UNEVEN]
        found = encoded(codec, values)
        assert [bytes(raw) for raw in found] == [bytes(codec.encode(value)) for value in values]
        assert many(codec, found, UNEVEN) == values


@pytest.mark.parametrize("codec", [BloscCodec(), ZstdCodec(1, True), ZstdCodec(5)], ids=repr)
def test_many_large_values_need_no_call_for_each(monkeypatch, codec):
    values = [content(65_536) for _ in range(4)]
    expected = [bytes(codec.encode(value)) for value in values]
    monkeypatch.setattr(type(codec), "encode", None)
    assert [bytes(raw) for raw in encoded(codec, values)] == expected
