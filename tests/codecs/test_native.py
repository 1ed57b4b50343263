"""The faster builds of zstd and c-blosc: the same bytes, values and errors as by the Python functions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import zstandard

import zellige
from running import run_threads
from zellige.codecs import native
from zellige.codecs.base import BytesBytesCodec
from zellige.codecs.blosc import BloscCodec
from zellige.codecs.zstd import ZstdCodec
from zellige.errors import CodecError, CorruptChunkError

SIZES = [native.LEAST - 2, native.LEAST, 4 * native.LEAST, (1 << 20) + 6]
CODECS = [
    ZstdCodec(),
    ZstdCodec(level=-5, checksum=False),
    ZstdCodec(level=9),
    BloscCodec("lz4", 5, "shuffle", 2),
    BloscCodec("zstd", 1, "bitshuffle", 4, 4096),
    BloscCodec("lz4hc", 9, "bitshuffle", 300),
    BloscCodec("blosclz", 0, "noshuffle", 1),
]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=repr)
linux = pytest.mark.skipif(sys.platform != "linux", reason="on other systems the Python functions may have to do")


def values(nbytes: int) -> bytes:
    return np.random.default_rng(nbytes).integers(0, 9, nbytes, np.uint8).tobytes()


@pytest.fixture(params=["native", "python"])
def way(request, monkeypatch):
    """With the C functions, and as if a build did not show them."""
    if request.param == "python":
        monkeypatch.setattr(native, "zstd", lambda: None)
        monkeypatch.setattr(native, "blosc", lambda: None)
    return request.param


@linux
def test_they_are_here():
    assert native.zstd() is not None
    assert native.blosc() is not None


@every_codec
@pytest.mark.parametrize("nbytes", SIZES)
def test_both_ways_give_the_same_bytes_and_read_each_other(codec, nbytes, monkeypatch):
    value = values(nbytes)
    by_native = bytes(codec.encode(value))
    assert bytes(codec.decode(by_native, nbytes)) == value
    with monkeypatch.context() as patch:
        patch.setattr(native, "zstd", lambda: None)
        patch.setattr(native, "blosc", lambda: None)
        by_python = bytes(codec.encode(value))
        assert bytes(codec.decode(by_native, nbytes)) == value
    assert bytes(codec.decode(by_python, nbytes)) == value
    if isinstance(codec, BloscCodec):  # zstandard may bring another version of zstd
        assert by_native == by_python


@every_codec
@pytest.mark.parametrize("kind", [bytes, bytearray, lambda raw: memoryview(bytearray(raw)), memoryview])
def test_any_buffer_is_taken(codec, kind, way):
    value = values(4 * native.LEAST)
    assert bytes(codec.decode(kind(bytes(codec.encode(kind(value)))), len(value))) == value


def outcome(codec: BytesBytesCodec, raw: bytes, nbytes: int) -> bytes | None:
    out = memoryview(bytearray(nbytes))
    try:
        codec.decode_into(raw, out)
    except CodecError:
        try:
            assert len(codec.decode(raw, nbytes)) < nbytes
        except CodecError:
            pass
        return None
    assert codec.decode(raw, nbytes) == out
    return bytes(out)


@every_codec
def test_damage_is_found(codec, way):
    value = values(SIZES[2])
    raw = bytes(codec.encode(value))
    assert outcome(codec, raw, len(value)) == value
    for bad in (b"", raw[:3], raw[:20], raw[:-1], raw + b"x", raw[: len(raw) // 2], bytes(len(raw))):
        assert outcome(codec, bad, len(value)) is None
    for nbytes in (len(value) - 1, len(value) + 1, native.LEAST):
        assert outcome(codec, raw, nbytes) is None


def test_frames_of_all_kinds_are_one_value(way):
    one, other = values(4 * native.LEAST), values(native.LEAST + 3)
    compressor = zstandard.ZstdCompressor()
    unsized = zstandard.ZstdCompressor(write_content_size=False)
    skipped = bytes.fromhex("502a4d18 03000000 616263")
    good = [
        compressor.compress(one) + compressor.compress(other),
        unsized.compress(one) + compressor.compress(other),
        compressor.compress(one) + unsized.compress(other),
        skipped + compressor.compress(one) + skipped + compressor.compress(other),
        compressor.compress(one + other) + skipped,
        compressor.compress(one + other) + compressor.compress(b""),
    ]
    for raw in good:
        assert outcome(ZstdCodec(), raw, len(one) + len(other)) == one + other
    dictionary = zstandard.ZstdCompressionDict(values(5000), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    needs_more = zstandard.ZstdCompressor(dict_data=dictionary).compress(one)
    for raw in (good[0][:-1], good[0] + b"junk", skipped, needs_more):
        assert outcome(ZstdCodec(), raw, len(one) + len(other)) is None


def test_a_large_size_that_is_only_stated_takes_no_memory(monkeypatch):
    raw = zstandard.ZstdCompressor().compress(bytes(1000))
    bomb = raw[:4] + bytes([0xE0]) + (1 << 40).to_bytes(8, "little") + raw[7:]
    monkeypatch.setattr("zellige.scratch.buffer", None)  # never asked
    with pytest.raises(CodecError):
        ZstdCodec().decode(bomb, 1 << 41)


@pytest.mark.parametrize("damage", [b"", b"(", bytes(100)], ids=["empty", "a byte", "zeros"])
@pytest.mark.parametrize("compressors", [ZstdCodec(), BloscCodec()], ids=["zstd", "blosc"])
def test_a_damaged_chunk_is_named(tmp_path, compressors, damage):
    array = zellige.create_array(tmp_path, data=np.arange(1 << 17), chunks=1 << 16, compressors=compressors)
    array.store.put("c/1", damage)
    with pytest.raises(CorruptChunkError, match="c/1"):
        array[...]


@pytest.mark.parametrize("compressors", [["zstd", "zstd", "zstd"], ["blosc", "blosc"], ["blosc", "zstd", "blosc"]])
def test_the_same_codec_twice_does_not_overwrite_what_it_reads(compressors, tmp_path):
    model = np.random.default_rng(0).integers(0, 99, 1 << 18)
    array = zellige.create_array(tmp_path, data=model, chunks=1 << 16, compressors=compressors)
    assert np.array_equal(array[...], model)


@every_codec
def test_every_thread_has_its_own(codec):
    def work(number: int) -> None:
        value = values(4 * native.LEAST + number)
        for _ in range(20):
            raw: Any = codec.encode(value)
            assert bytes(codec.decode(raw, len(value))) == value

    run_threads(6, work)


@linux
def test_numcodecs_is_not_imported_for_large_chunks(tmp_path):
    code = f"""
import sys, numpy, zellige
for codec in ("zstd", "blosc"):
    model = numpy.arange(1 << 18)
    array = zellige.create_array({str(tmp_path)!r} + "/" + codec, data=model, chunks=1 << 17, compressors=codec)
    assert (array[...] == model).all()
assert "numcodecs" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@linux
def test_the_settings_of_the_package_stay_those_of_its_other_users():
    code = """
import blosc, numpy, zellige
def settings():
    found = blosc.set_nthreads(3), blosc.set_releasegil(False), blosc.get_blocksize()
    blosc.set_nthreads(found[0])
    return found
before = settings()
blosc.set_blocksize(4096)
value = numpy.arange(1 << 16)
array = zellige.create_array({}, data=value, compressors="blosc")
assert (array[...] == value).all()
assert array.store.get("c/0")[8:12] != (4096).to_bytes(4, "little")  # the size of blocks in the container
blosc.set_blocksize(0)
assert settings() == before, (before, settings())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("missing", ["package", "file in memory", "loading"])
def test_without_the_package_or_a_copy_of_it_numcodecs_does_the_work(missing, monkeypatch):
    def refuse(*_: object) -> None:
        raise {"file in memory": OSError, "loading": ImportError}[missing]

    if missing == "package":
        monkeypatch.setattr(native, "find_spec", lambda _: None)
    elif missing == "loading":
        monkeypatch.setattr(native, "module_from_spec", refuse)
    else:
        monkeypatch.setattr("os.memfd_create", refuse, raising=False)
    native.blosc.cache_clear()
    try:
        assert native.blosc() is None
        value = values(native.LEAST)
        assert bytes(BloscCodec().decode(BloscCodec().encode(value), len(value))) == value
    finally:
        native.blosc.cache_clear()
