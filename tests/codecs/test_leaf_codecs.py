"""The codecs that have no codecs inside: golden bytes, round trips, configurations, imports."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zellige.codecs import base
from zellige.codecs import blosc as blosc_module
from zellige.codecs import gzip as gzip_module
from zellige.codecs.arrays import BytesCodec, TransposeCodec
from zellige.codecs.base import ArraySpec
from zellige.codecs.blosc import BloscCodec
from zellige.codecs.crc32c import Crc32cCodec
from zellige.codecs.gzip import GzipCodec
from zellige.codecs.zstd import ZstdCodec
from zellige.dtypes import from_json
from zellige.errors import CodecError, MetadataError

A = np.array([[1, 2, 3], [4, 5, -6]], np.int16)
A_BYTES = bytes.fromhex("01000200030004000500faff")
STEPS = np.repeat(np.arange(8), 32).astype("<i2").tobytes()
TYPES = ["bool", "int8", "uint8", "int16", "uint32", "int64", "float16", "float32", "float64", "complex64", "r24"]

COMPRESSORS = [
    *(ZstdCodec(level, checksum) for level in (-131072, -1, 0, 1, 22) for checksum in (False, True)),
    *(GzipCodec(level) for level in range(10)),
    *(BloscCodec(cname) for cname in ("lz4", "lz4hc", "blosclz", "zstd", "zlib")),
    *(
        BloscCodec("lz4", 5, shuffle, typesize)
        for shuffle in ("noshuffle", "shuffle", "bitshuffle")
        for typesize in (1, 2, 17, 300)
    ),
    BloscCodec("zstd", 0),
    BloscCodec("zstd", 9, blocksize=256, typesize=4),
    Crc32cCodec(),
]


def spec_of(name, shape):
    dtype = from_json(name)
    return ArraySpec(shape, dtype, dtype.cast_fill(None))


def bits(array):
    """The elements in native byte order, as bytes: equal bits, also of NaN."""
    return array.astype(array.dtype.newbyteorder("=")).tobytes()


# -- golden bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "endian", "stored"),
    [
        (A, "little", "01000200030004000500faff"),
        (A, "big", "00010002000300040005fffa"),
        (np.array([True, False, True, True, False]), None, "0100010100"),
        (np.array([1 + 2j, complex(-0.0, np.inf)], np.complex64), "little", "0000803f00000040000000800000807f"),
        (np.array([1 + 2j, complex(-0.0, np.inf)], np.complex64), "big", "3f80000040000000800000007f800000"),
        (np.array([1, -2.5, np.nan], np.float16), "little", "003c00c1007e"),
        (np.array(7, np.int32), "little", "07000000"),
        (np.array([3, 9], np.uint8), None, "0309"),
    ],
)
def test_golden_bytes(array, endian, stored):
    codec, spec = BytesCodec(endian), spec_of(array.dtype.name, array.shape)
    assert codec.encode(array, spec).hex() == stored
    decoded = codec.decode(bytes.fromhex(stored), spec)
    assert decoded.shape == array.shape
    assert bits(decoded) == bits(array)


@pytest.mark.parametrize(
    ("array", "order", "stored"),
    [
        (A, (1, 0), "01000400020005000300faff"),
        (np.arange(24, dtype=np.uint8).reshape(2, 3, 4), (2, 0, 1), "0004080c10140105090d111502060a0e121603070b0f1317"),
    ],
)
def test_golden_transpose(array, order, stored):
    transpose, codec, spec = TransposeCodec(order), BytesCodec(), spec_of(array.dtype.name, array.shape)
    inner = transpose.resolve(spec)
    assert codec.encode(transpose.encode(array, spec), inner).hex() == stored
    decoded = transpose.decode(codec.decode(bytes.fromhex(stored), inner), spec)
    np.testing.assert_array_equal(decoded, array)


GOLDEN = {
    "crc32c": (Crc32cCodec(), A_BYTES, "01000200030004000500fafffa453115"),
    "crc32c of 1 2 3 4": (Crc32cCodec(), bytes([1, 2, 3, 4]), "01020304f48c3029"),
    "gzip 0": (
        GzipCodec(0),
        A_BYTES,
        "1f8b0800000000000403" "010c00f3ff01000200030004000500faff" "400914050c000000",
    ),
    "zstd 0": (ZstdCodec(0, False), A_BYTES, "28b52ffd200c610000" "01000200030004000500faff"),
    "zstd 3": (ZstdCodec(3, True), A_BYTES, "28b52ffd240c610000" "01000200030004000500faff" "ada90f4d"),
    "blosc copied": (
        BloscCodec("lz4", 5, "shuffle", 2),
        A_BYTES,
        "020133020c0000000c0000001c000000" "01000200030004000500faff",
    ),
    "blosc split": (
        BloscCodec("lz4", 5, "shuffle", 2),
        STEPS,
        "02012102000200000002000055000000" "14000000" "2e000000"
        "1f0001000c1f0101000c1f0201000c1f0301000c1f0401000c1f0501000c1f0601000c1f07010007500707070707"
        "0b000000" "1f000100e7500000000000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_compressed(case):
    codec, raw, stored = GOLDEN[case]
    assert codec.encode(raw).hex() == stored
    assert bytes(codec.decode(bytes.fromhex(stored), len(raw))) == raw


def test_golden_zstd_frame_without_content_size():
    stored = bytes.fromhex("28b52ffd000021000001020304")
    assert bytes(ZstdCodec().decode(stored, 4)) == bytes([1, 2, 3, 4])
    assert bytes(ZstdCodec().decode(stored, 100)) == bytes([1, 2, 3, 4])


# -- arrays ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.data(), st.sampled_from(TYPES), st.sampled_from(["little", "big"]), st.lists(st.integers(0, 4), max_size=3))
def test_bytes_round_trip_in_any_memory_order(data, name, endian, shape):
    spec, codec = spec_of(name, tuple(shape)), BytesCodec(endian)
    size = codec.encoded_size(spec)
    raw = data.draw(
        st.binary(min_size=size, max_size=size).map(lambda b: bytes(x & 1 for x in b) if name == "bool" else b)
    )
    decoded = codec.decode(raw, spec)
    assert decoded.shape == spec.shape
    native = decoded.astype(spec.dtype.numpy)
    for chunk in (native, native.copy(order="F"), decoded):
        encoded = codec.encode(chunk, spec)
        assert (encoded.format, encoded.ndim, len(encoded)) == ("B", 1, size)
        assert bytes(encoded) == raw


@pytest.mark.parametrize("chunk", [np.arange(6, dtype="<i4").reshape(2, 3), np.arange(8, dtype="<i4")[::4][:1]])
def test_bytes_does_not_copy_what_is_in_order(chunk):
    spec = spec_of("int32", chunk.shape)
    encoded = BytesCodec("little").encode(chunk, spec)
    assert np.shares_memory(np.frombuffer(encoded, np.uint8), chunk)
    assert np.shares_memory(BytesCodec("little").decode(encoded, spec), chunk)


@pytest.mark.parametrize("name", ["int16", "float64", "complex64"])
def test_bytes_needs_a_byte_order_for_types_of_several_bytes(name):
    with pytest.raises(MetadataError) as caught:
        BytesCodec(None).check(spec_of(name, (2,)))
    assert caught.value.field == "configuration.endian"
    BytesCodec("big").check(spec_of(name, (2,)))
    BytesCodec(None).check(spec_of("uint8", (2,)))


def test_bytes_writes_its_byte_order_only_if_it_has_one():
    assert BytesCodec().to_json() == {"name": "bytes", "configuration": {"endian": "little"}}
    assert BytesCodec.from_configuration({}).to_json() == {"name": "bytes", "configuration": {}}


@pytest.mark.parametrize("found", [0, 11, 13])
def test_bytes_of_another_length_raise(found):
    with pytest.raises(CodecError, match=f"12 bytes expected, {found} found"):
        BytesCodec().decode(bytes(found), spec_of("int16", (2, 3)))


def test_bool_bytes_other_than_0_and_1_raise():
    with pytest.raises(CodecError, match="00 or 01"):
        BytesCodec().decode(b"\0\1\2", spec_of("bool", (3,)))


@settings(deadline=None)
@given(st.permutations(range(4)))
def test_transpose_gives_views_that_undo_each_other(order):
    chunk = np.arange(120).reshape(2, 3, 4, 5)
    codec, spec = TransposeCodec(tuple(order)), spec_of("int64", chunk.shape)
    encoded = codec.encode(chunk, spec)
    assert codec.resolve(spec).shape == encoded.shape
    decoded = codec.decode(encoded, spec)
    assert np.shares_memory(decoded, chunk)
    np.testing.assert_array_equal(decoded, chunk)


def test_transpose_refuses_a_chunk_of_another_rank():
    with pytest.raises(MetadataError, match="2 axes, the chunk has 3") as caught:
        TransposeCodec((1, 0)).resolve(spec_of("int8", (1, 2, 3)))
    assert caught.value.field == "configuration.order"


# -- compressors ----------------------------------------------------------------------------------


def assert_round_trip(codec, raw):
    encoded = codec.encode(raw)
    assert len(encoded) <= codec.encoded_bound(len(raw))
    assert codec.encoded_size(len(raw)) in (None, len(encoded))
    assert bytes(codec.decode(encoded, len(raw))) == raw
    assert bytes(codec.decode(memoryview(encoded), len(raw) + 1)) == raw


@settings(deadline=None)
@given(st.sampled_from(COMPRESSORS), st.binary(max_size=200), st.integers(1, 30))
def test_any_bytes_round_trip(codec, raw, repeats):
    assert_round_trip(codec, raw * repeats)


@pytest.mark.parametrize("codec", COMPRESSORS, ids=repr)
def test_nothing_and_much_round_trip(codec):
    assert_round_trip(codec, b"")
    assert_round_trip(codec, np.arange(50_000, dtype="<i4").tobytes())
    assert_round_trip(codec, np.random.default_rng(0).bytes(70_001))


@pytest.mark.parametrize("codec", COMPRESSORS, ids=repr)
def test_a_smaller_limit_raises(codec):
    encoded = codec.encode(A_BYTES)
    for limit in (0, 11):
        with pytest.raises(CodecError):
            codec.decode(encoded, limit)


@pytest.mark.parametrize("codec", [ZstdCodec(), BloscCodec(), GzipCodec(), Crc32cCodec()])
def test_a_codec_twice_in_a_row_does_not_overwrite_its_input(codec):
    raw = np.random.default_rng(0).integers(0, 16, 200_000, np.uint8).tobytes()
    encoded = raw
    for _ in range(3):
        encoded = codec.encode(encoded)
    for _ in range(3):
        encoded = codec.decode(encoded, 201_000)
    assert bytes(encoded) == raw


def test_threads_do_not_share_contexts():
    def work(seed):
        raw = np.random.default_rng(seed).integers(0, 4, 20_000, np.uint8).tobytes()
        for codec in (ZstdCodec(), GzipCodec(1), BloscCodec(typesize=2)):
            for _ in range(5):
                assert_round_trip(codec, raw)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize("level", range(10))
def test_gzip_is_one_plain_member_without_a_time(level):
    encoded = GzipCodec(level).encode(STEPS)
    assert encoded[:8] == bytes.fromhex("1f8b080000000000")
    assert gzip.decompress(encoded) == STEPS
    assert zlib.decompressobj(wbits=31).decompress(encoded) == STEPS


def test_gzip_reads_every_field_of_a_header():
    head = bytes.fromhex("1f8b081e00000000" "00ff" "0200") + b"xx" + b"name\0" + b"comment\0"  # fmt: skip
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    assert GzipCodec().decode(head + GzipCodec(5).encode(A_BYTES)[10:], 12) == A_BYTES


def test_gzip_works_without_isal(monkeypatch):
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    gzip_module._isal.cache_clear()
    try:
        assert gzip_module._isal() is None
        for level in range(10):
            assert_round_trip(GzipCodec(level), STEPS)
    finally:
        gzip_module._isal.cache_clear()


def test_blosc_takes_the_element_size_from_the_chain():
    codec = BloscCodec("lz4").evolve(2)
    assert codec.typesize == 2
    assert codec.encode(STEPS) == bytes.fromhex(GOLDEN["blosc split"][2])
    assert BloscCodec(typesize=8).evolve(2).typesize == 8
    assert ZstdCodec().evolve(2) == ZstdCodec()


def test_blosc_can_choose_how_it_shuffles():
    open_choice = BloscCodec(shuffle=None)
    assert [open_choice.evolve(size).shuffle for size in (1, 2, 8)] == ["bitshuffle", "shuffle", "shuffle"]
    assert BloscCodec(shuffle=None, typesize=4).evolve(1) == BloscCodec(shuffle="bitshuffle", typesize=4)
    assert BloscCodec(shuffle="noshuffle").evolve(1).shuffle == "noshuffle"
    assert open_choice.configuration()["shuffle"] == "bitshuffle"  # of bytes, as long as no array is known
    assert_round_trip(open_choice, STEPS)
    with pytest.raises(MetadataError, match="shuffle"):
        BloscCodec.from_configuration({**BloscCodec().configuration(), "shuffle": None})


def test_blosc_treats_elements_above_255_bytes_as_bytes():
    assert BloscCodec(typesize=255).encode(STEPS)[3] == 255
    assert BloscCodec(typesize=256).encode(STEPS) == BloscCodec(typesize=1).encode(STEPS)
    assert BloscCodec(typesize=2**31 - 1).encode(STEPS) == BloscCodec(typesize=1).encode(STEPS)


def test_blosc_refuses_more_than_a_container_can_hold():
    class Long(bytes):
        def __len__(self):
            return 2**31 - 16

    with pytest.raises(CodecError, match="smaller chunks"):
        BloscCodec().encode(Long())


def test_blosc_says_which_library_is_missing_in_it():
    with pytest.raises(CodecError, match="snappy"):
        BloscCodec("snappy").encode(STEPS)


# -- configurations -------------------------------------------------------------------------------

BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}


def without(key):
    return {k: v for k, v in BLOSC.items() if k != key}


@pytest.mark.parametrize(
    ("kind", "configuration"),
    [
        (TransposeCodec, {"order": [1, 0]}),
        (TransposeCodec, {"order": []}),
        (BytesCodec, {}),
        (BytesCodec, {"endian": "big"}),
        (Crc32cCodec, {}),
        (GzipCodec, {"level": 0}),
        (ZstdCodec, {"level": -131072, "checksum": True}),
        (BloscCodec, BLOSC),
        (BloscCodec, BLOSC | {"typesize": 1000}),
    ],
)
def test_configurations_are_written_as_they_were_read(kind, configuration):
    codec = kind.from_configuration(configuration)
    assert codec.configuration() == configuration
    assert codec == kind.from_configuration(codec.configuration())
    assert hash(codec) == hash(kind.from_configuration(configuration))


def test_configurations_are_written_with_every_value():
    assert ZstdCodec.from_configuration({"level": 3}).configuration() == {"level": 3, "checksum": False}
    read = BloscCodec.from_configuration(without("typesize") | {"shuffle": "noshuffle"})
    assert read.configuration() == BLOSC | {"shuffle": "noshuffle", "typesize": 1}


NOT_ORDERS = [[0, 0], [1, 2], [-1, 0], [0, True], [1.0, 0], "C", None, 0]
NOT_LEVELS = [10, -1, True, 1.0, "1", None]


@pytest.mark.parametrize(
    ("kind", "configuration", "key"),
    [
        *((TransposeCodec, {"order": order}, "order") for order in NOT_ORDERS),
        (TransposeCodec, {}, "order"),
        (TransposeCodec, {"order": [0], "axes": 1}, "axes"),
        *((BytesCodec, {"endian": endian}, "endian") for endian in ("native", None, True, 1, ["little"])),
        (BytesCodec, {"order": "C"}, "order"),
        (Crc32cCodec, {"level": 1}, "level"),
        *((GzipCodec, {"level": level}, "level") for level in NOT_LEVELS),
        (GzipCodec, {}, "level"),
        (GzipCodec, {"level": 1, "mtime": 0}, "mtime"),
        *((ZstdCodec, {"level": level}, "level") for level in (23, -131073, True, 1.0, "1", None)),
        (ZstdCodec, {}, "level"),
        *((ZstdCodec, {"level": 1, "checksum": value}, "checksum") for value in (0, 1, 1.0, "true", None)),
        (ZstdCodec, {"level": 1, "window": 0}, "window"),
        *((BloscCodec, without(key), key) for key in BLOSC),
        *((BloscCodec, BLOSC | {"cname": name}, "cname") for name in ("lzma", "LZ4", None, 1, [])),
        *((BloscCodec, BLOSC | {"clevel": level}, "clevel") for level in NOT_LEVELS),
        *((BloscCodec, BLOSC | {"shuffle": name}, "shuffle") for name in ("auto", None, 1, True)),
        *((BloscCodec, BLOSC | {"typesize": size}, "typesize") for size in (0, -1, True, 2.0, "2", None)),
        *((BloscCodec, BLOSC | {"blocksize": size}, "blocksize") for size in (-1, 2**31, False, 0.0, None)),
        (BloscCodec, BLOSC | {"nthreads": 1}, "nthreads"),
    ],
)  # fmt: skip
def test_bad_configurations_name_the_key(kind, configuration, key):
    with pytest.raises(MetadataError) as caught:
        kind.from_configuration(configuration)
    assert caught.value.field == f"configuration.{key}"


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: TransposeCodec((0, 2)), "order"),
        (lambda: TransposeCodec([1, 1]), "order"),
        (lambda: BytesCodec("middle"), "endian"),
        (lambda: GzipCodec(10), "level"),
        (lambda: GzipCodec(True), "level"),
        (lambda: ZstdCodec(23), "level"),
        (lambda: ZstdCodec(1, 1), "checksum"),
        (lambda: BloscCodec("lzma"), "cname"),
        (lambda: BloscCodec(clevel=10), "clevel"),
        *((lambda value=value: BloscCodec(shuffle=value), "shuffle") for value in (1, 0, False, "")),
        (lambda: BloscCodec(typesize=0), "typesize"),
        (lambda: BloscCodec(blocksize=-1), "blocksize"),
    ],
)
def test_bad_arguments_name_the_key(make, key):
    with pytest.raises(MetadataError) as caught:
        make()
    assert caught.value.field == f"configuration.{key}"


# -- imports --------------------------------------------------------------------------------------


def test_libraries_are_imported_on_first_use():
    modules = ["arrays", "zstd", "gzip", "blosc", "crc32c"]
    program = (
        "import sys, numpy; before = set(sys.modules)\n"
        + "".join(f"import zellige.codecs.{module}\n" for module in modules)
        + "heavy = {'zstandard', 'isal', 'numcodecs', 'google_crc32c', 'zlib'}\n"
        + "sys.exit(str(heavy & (set(sys.modules) - before) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("codec", "module", "package"),
    [
        (ZstdCodec(-77), "zstandard", "zstandard"),
        (Crc32cCodec(), "google_crc32c", "google-crc32c"),
        (BloscCodec(blocksize=64), "numcodecs.blosc", "numcodecs"),
    ],
)
def test_a_missing_library_names_the_remedy(monkeypatch, codec, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    base.library.cache_clear()
    blosc_module._blosc.cache_clear()
    try:
        with pytest.raises(ImportError, match=f"pip install {package}"):
            codec.encode(b"abc")
    finally:
        base.library.cache_clear()
        blosc_module._blosc.cache_clear()
