"""Damaged, hostile and unusual bytes: every codec raises `CodecError` or gives the right length."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from zellige.codecs import blosc as blosc_module
from zellige.codecs import gzip as gzip_module
from zellige.codecs.blosc import BloscCodec
from zellige.codecs.crc32c import Crc32cCodec
from zellige.codecs.gzip import GzipCodec
from zellige.codecs.zstd import ZstdCodec
from zellige.errors import CodecError

RAW = np.repeat(np.arange(8), 32).astype("<i2").tobytes() + b"tail"


def unsized(raw, checksum=True):
    """A zstd frame that does not state the size of its content, as streaming writers make them."""
    return zstandard.ZstdCompressor(level=3, write_checksum=checksum, write_content_size=False).compress(raw)


def skippable(content, number=0):
    return struct.pack("<II", 0x184D2A50 + number, len(content)) + content


CHECKED = {
    "zstd": (ZstdCodec(), ZstdCodec(3).encode(RAW)),
    "zstd without size": (ZstdCodec(), unsized(RAW)),
    "zstd frames": (ZstdCodec(), ZstdCodec().encode(RAW[:99]) + skippable(b"xyz") + unsized(RAW[99:])),
    "gzip 0": (GzipCodec(), GzipCodec(0).encode(RAW)),
    "gzip 1": (GzipCodec(), GzipCodec(1).encode(RAW)),
    "gzip 6": (GzipCodec(), GzipCodec(6).encode(RAW)),
    "gzip members": (GzipCodec(), GzipCodec(6).encode(RAW[:99]) + GzipCodec(1).encode(RAW[99:])),
    "crc32c": (Crc32cCodec(), Crc32cCodec().encode(RAW)),
}
UNCHECKED = {
    "zstd no checksum": (ZstdCodec(), ZstdCodec(3, False).encode(RAW)),
    "zstd no size, no checksum": (ZstdCodec(), unsized(RAW, False)),
    "blosc copied": (BloscCodec(), BloscCodec(clevel=0).encode(RAW)),
    **{
        f"blosc {cname} {shuffle}": (BloscCodec(), BloscCodec(cname, 5, shuffle, 2, 256).encode(RAW))
        for cname in ("lz4", "blosclz", "zstd", "zlib")
        for shuffle in ("noshuffle", "shuffle", "bitshuffle")
    },
}
CASES = CHECKED | UNCHECKED


def outcome(codec, raw):
    """The content, or None if the codec refuses; any other exception is a failure."""
    try:
        found = bytes(codec.decode(raw, len(RAW)))
    except CodecError:
        return None
    assert len(found) <= len(RAW)
    return found if len(found) == len(RAW) else None  # a chain expects so many, and refuses fewer


def flipped(encoded):
    """`encoded` with every single bit flipped, and with every single byte inverted."""
    for position in range(len(encoded)):
        for mask in (*(1 << bit for bit in range(8)), 0xFF):
            damaged = bytearray(encoded)
            damaged[position] ^= mask
            yield bytes(damaged)


# -- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_whole_bytes_decode(case):
    codec, encoded = CASES[case]
    assert outcome(codec, encoded) == RAW
    assert outcome(codec, bytearray(encoded)) == RAW
    assert outcome(codec, memoryview(b"x" + encoded)[1:]) == RAW


@pytest.mark.parametrize("case", CASES)
def test_every_truncation_raises(case):
    codec, encoded = CASES[case]
    for length in range(len(encoded)):
        assert outcome(codec, encoded[:length]) is None, length


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("junk", [b"\0", b"x", b"junk" * 9, bytes(40)])
def test_trailing_bytes_raise(case, junk):
    codec, encoded = CASES[case]
    assert outcome(codec, encoded + junk) is None


@pytest.mark.parametrize("case", CHECKED)
def test_no_flip_gives_other_content_where_there_is_a_checksum(case):
    codec, encoded = CHECKED[case]
    # Some header bits, such as the time of a gzip member, do not touch the content.
    assert {outcome(codec, damaged) for damaged in flipped(encoded)} <= {None, RAW}


@pytest.mark.parametrize("case", UNCHECKED)
def test_every_flip_raises_or_gives_the_right_length(case):
    codec, encoded = UNCHECKED[case]
    outcomes = [outcome(codec, damaged) for damaged in flipped(encoded)]
    assert None in outcomes


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("gzip")])
def test_the_laws_hold_for_zlib_too(case, monkeypatch):
    monkeypatch.setattr(gzip_module, "_isal", lambda: None)
    test_whole_bytes_decode(case)
    test_every_truncation_raises(case)
    test_trailing_bytes_raise(case, b"junk")
    test_no_flip_gives_other_content_where_there_is_a_checksum(case)


@settings(deadline=None)
@given(st.sampled_from([ZstdCodec(), GzipCodec(), BloscCodec(), Crc32cCodec()]), st.binary(max_size=64))
def test_arbitrary_bytes_never_do_anything_else_than_raise(codec, raw):
    assert outcome(codec, raw) is None


@settings(deadline=None)
@given(st.sampled_from(list(CASES)), st.data())
def test_a_random_splice_raises_or_gives_the_right_length(case, data):
    codec, encoded = CASES[case]
    start = data.draw(st.integers(0, len(encoded)))
    stop = data.draw(st.integers(start, len(encoded)))
    outcome(codec, encoded[:start] + data.draw(st.binary(max_size=12)) + encoded[stop:])


# -- bounded output -------------------------------------------------------------------------------


def zeros():
    return bytes(64 << 20)


def gzip_bomb():
    return zlib.compress(zeros(), 6, wbits=31)


@pytest.mark.parametrize(
    ("codec", "make"),
    [
        (ZstdCodec(), lambda: ZstdCodec().encode(zeros())),
        (ZstdCodec(), lambda: unsized(zeros())),
        (ZstdCodec(), lambda: ZstdCodec().encode(b"small") + unsized(zeros())),
        (GzipCodec(), gzip_bomb),
        (GzipCodec(), lambda: GzipCodec().encode(b"small") + gzip_bomb()),
        (BloscCodec(), lambda: BloscCodec("zstd", 9, "noshuffle", 1, 1 << 24).encode(zeros())),
    ],
)
def test_a_bomb_raises_before_it_takes_memory(codec, make):
    bomb = make()
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            codec.decode(bomb, 1024)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("codec", [ZstdCodec(), GzipCodec(), BloscCodec(), Crc32cCodec()])
def test_the_limit_itself_is_allowed(codec):
    encoded = codec.encode(RAW)
    assert bytes(codec.decode(encoded, len(RAW))) == RAW
    with pytest.raises(CodecError):
        codec.decode(encoded, len(RAW) - 1)


# -- several frames and members -------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=6), st.data())
def test_frames_and_members_are_read_one_after_the_other(parts, data):
    whole = b"".join(parts)
    zstd = b"".join(data.draw(st.sampled_from([ZstdCodec().encode, unsized]))(part) for part in parts)
    gzip = b"".join(GzipCodec(data.draw(st.integers(0, 9))).encode(part) for part in parts)
    for codec, encoded in ((ZstdCodec(), zstd), (GzipCodec(), gzip)):
        assert bytes(codec.decode(encoded, len(whole))) == whole


def test_a_large_second_member_is_read_in_pieces():
    raw = np.random.default_rng(0).integers(0, 50, 300_000, np.uint8).tobytes()
    encoded = GzipCodec(1).encode(b"first") + GzipCodec(6).encode(raw) + GzipCodec(0).encode(b"last")
    assert GzipCodec().decode(encoded, 300_009) == b"first" + raw + b"last"


def test_a_large_frame_without_size_fills_the_buffer_exactly():
    raw = np.random.default_rng(0).integers(0, 50, 3_000_000, np.uint8).tobytes()
    encoded = unsized(raw)
    assert bytes(ZstdCodec().decode(encoded, len(raw))) == raw
    with pytest.raises(CodecError, match="checksum"):
        ZstdCodec().decode(encoded[:-1] + bytes([encoded[-1] ^ 1]), len(raw))


@pytest.mark.parametrize("number", [0, 15])
def test_skippable_frames_are_skipped(number):
    frame, skipped = ZstdCodec().encode(RAW), skippable(b"anything", number)
    for encoded in (skipped + frame, frame + skipped, skipped + frame + skipped + skipped):
        assert outcome(ZstdCodec(), encoded) == RAW
    assert bytes(ZstdCodec().decode(skipped, 10)) == b""
    assert outcome(ZstdCodec(), frame + skipped[:-1]) is None


# -- hand-made headers ----------------------------------------------------------------------------


def raw_frame(header):
    """A zstd frame with one raw block `abc`."""
    return bytes.fromhex("28b52ffd") + header + bytes.fromhex("190000") + b"abc"


@pytest.mark.parametrize(
    "header",
    [
        bytes([0x20, 3]),
        bytes([0x00, 17 << 3]),  # a window of 128 MiB
        bytes([0x80, 20 << 3, 3, 0, 0, 0]),  # a larger window does not matter where the size is known
        bytes([0xE0]) + struct.pack("<Q", 3),
    ],
    ids=bytes.hex,
)
def test_zstd_headers_that_are_read(header):
    assert bytes(ZstdCodec().decode(raw_frame(header), 3)) == b"abc"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (bytes([0x00, 17 << 3 | 1]), "window"),
        (bytes([0x21, 1, 3]), "dictionary"),
        (bytes([0x20, 2]), "damaged"),
        (bytes([0x20, 4]), "at most 3 bytes expected, 4 stated"),
        (bytes([0xE0]) + struct.pack("<Q", 2**64 - 1), "stated"),
        (bytes([0x60, 0, 0]), "256 stated"),
    ],
)
def test_zstd_headers_that_are_refused(header, message):
    with pytest.raises(CodecError, match=message):
        ZstdCodec().decode(raw_frame(header), 3)


def container(flags=0x20, typesize=2, nbytes=512, blocksize=256, starts=(24, 284), sizes=(128, 124, 256), version=2):
    """A blosc container of raw streams: a split block of 256 bytes, then whatever `starts` says."""
    body = struct.pack(f"<{len(starts)}i", *starts)
    body += b"".join(struct.pack("<i", size) + bytes(max(size, 0)) for size in sizes)
    return struct.pack("<BBBBIII", version, 1, flags, typesize, nbytes, blocksize, 16 + len(body)) + body


def test_blosc_container_of_raw_streams_is_read():
    split = container(starts=(24, 288), sizes=(128, 128, 128, 128))
    assert bytes(BloscCodec().decode(split, 512)) == bytes(512)
    whole = container(flags=0x30, starts=(24, 284), sizes=(256, 256))
    assert bytes(BloscCodec().decode(whole, 512)) == bytes(512)
    # Before there was a flag, large elements and small blocks were not split either.
    for typesize, blocksize in ((4, 256), (32, 8192)):
        old = container(0x20, typesize, blocksize, blocksize, starts=(20,), sizes=(blocksize,))
        assert bytes(BloscCodec().decode(old, blocksize)) == bytes(blocksize)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 1},
        {"version": 3},
        {"flags": 0x38},
        {"flags": 0xB0},
        {"flags": 0x32},
        {"typesize": 0},
        {"blocksize": 0},
        {"blocksize": 1024},
        {"blocksize": 1},
        {"nbytes": 2**31},
        {"nbytes": 0},
        {"starts": (24, -1)},
        {"starts": (16, 284)},
        {"starts": (24, 541)},
        {"starts": (24, 2**31 - 1)},
        {"sizes": (256, -1)},
        {"sizes": (-(2**31), 256)},
        {"flags": 0x20, "typesize": 2, "blocksize": 511},
    ],
    ids=repr,
)
def test_blosc_containers_that_lie_about_their_parts_never_reach_the_library(changes, monkeypatch):
    monkeypatch.delattr(blosc_module, "_decompress")
    raw = container(**{"flags": 0x30, "sizes": (256, 256)} | changes)
    with pytest.raises(CodecError):
        BloscCodec().decode(raw, 2**31)


def test_blosc_streams_that_reach_beyond_the_container_never_reach_the_library(monkeypatch):
    monkeypatch.delattr(blosc_module, "_decompress")
    raw = container(starts=(24, 288), sizes=(128, 128, 128, 128))
    for position in (24, 156, 288, 420):  # where the sizes of the streams are
        for size in (540, 2**31 - 1, 2**31, 2**32 - 1):
            with pytest.raises(CodecError, match="block"):
                BloscCodec().decode(raw[:position] + struct.pack("<I", size) + raw[position + 4 :], 512)
