"""The `zfp` codec: golden bytes, what each mode promises, every type, damaged streams, configurations."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from zellige.codecs.base import ArraySpec, library
from zellige.codecs.zfp import ZfpCodec
from zellige.dtypes import from_json
from zellige.errors import CodecError, MetadataError

zfpy = pytest.importorskip("zfpy")

NATIVE = ["int32", "int64", "float32", "float64"]
TYPES = [*NATIVE, "int8", "uint8", "int16", "uint16", "uint32", "uint64", "float16"]
SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=4).filter(lambda shape: np.prod(shape) <= 1500).map(tuple)
LOSSY = [
    ZfpCodec("fixed_rate", rate=10.5),
    ZfpCodec("fixed_precision", precision=19),
    ZfpCodec("fixed_accuracy", tolerance=0.05),
]


def spec_of(name, shape):
    dtype = from_json(name)
    return ArraySpec(shape, dtype, dtype.cast_fill(None))


def spec_like(array):
    return spec_of(array.dtype.name, array.shape)


def round_trip(codec, array):
    spec = spec_like(array)
    codec.check(spec)
    raw = codec.encode(array, spec)
    if (size := codec.encoded_size(spec)) is not None:
        assert len(raw) == size
    decoded = codec.decode(raw, spec)
    assert decoded.shape == array.shape
    assert decoded.dtype == array.dtype
    return decoded


def wave(name, shape):
    """Values that zfp likes, over as much of the range of a type as its lossy modes take."""
    phase = np.linspace(0, 3, int(np.prod(shape))).reshape(shape)
    if name.startswith("float"):
        return (50 + 100 * np.sin(phase)).astype(name)
    return (np.iinfo(name).max // 8 * (1 + np.sin(phase))).astype(name)


# -- golden bytes ---------------------------------------------------------------------------------


def test_golden_bytes():
    array, codec = np.array([1, 2, 3, 4], np.float32), ZfpCodec("reversible")
    raw = codec.encode(array, spec_like(array))
    assert raw.hex() == "0912bc0100000000"
    np.testing.assert_array_equal(codec.decode(raw, spec_like(array)), array)


@pytest.mark.parametrize("codec", [ZfpCodec("reversible"), *LOSSY])
def test_the_stream_is_that_of_zfpy_without_its_header(codec):
    array = wave("float64", (5, 6, 7))
    arguments = {k: v for k, v in codec.configuration().items() if k != "mode"}
    whole = zfpy.compress_numpy(array, **arguments)
    body = codec.encode(array, spec_like(array))
    # The header has 96 bits, and both streams end with a whole word.
    assert whole[12:].startswith(body[: len(whole) - 20])
    np.testing.assert_array_equal(codec.decode(body, spec_like(array)), zfpy.decompress_numpy(whole))


def test_a_single_value_is_an_axis_of_one():
    codec, value = ZfpCodec("reversible"), np.array(7.5, np.float64)
    assert codec.encode(value, spec_like(value)) == codec.encode(value.reshape(1), spec_of("float64", (1,)))
    assert round_trip(codec, value) == value


# -- what the modes promise -----------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from(TYPES), SHAPES)
def test_reversible_keeps_every_bit(data, name, shape):
    array = data.draw(hnp.arrays(name, shape, elements=None))
    if name in ("uint32", "uint64"):
        array >>= 1
    decoded = round_trip(ZfpCodec("reversible"), array)
    kind = f"u{array.dtype.itemsize}"
    if array.dtype.kind == "f" and name != "float16":
        np.testing.assert_array_equal(decoded.view(kind), array.view(kind))
    else:  # float16 passes through float32, which may quiet a NaN
        np.testing.assert_array_equal(decoded, array)


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.sampled_from(["float32", "float64"]), st.sampled_from([0.0, 1e-3, 0.05, 1, 64.0]), st.integers(0, 99))
def test_fixed_accuracy_keeps_within_the_tolerance(shape, name, tolerance, seed):
    array = np.random.default_rng(seed).normal(0, 10, shape).astype(name)
    error = np.abs(round_trip(ZfpCodec("fixed_accuracy", tolerance=tolerance), np.asarray(array)) - array).max()
    assert error <= max(tolerance, 1e-4)


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.sampled_from(TYPES), st.sampled_from([0.1, 1, 2.5, 8, 17.25, 40]))
def test_fixed_rate_has_a_size_that_is_known_before(shape, name, rate):
    """`round_trip` compares the size; low rates are raised to what a float's exponent needs."""
    array = wave(name, shape)
    decoded = round_trip(ZfpCodec("fixed_rate", rate=rate), array)
    if rate == 40 and name not in ("int64", "uint64", "float64"):
        scale = float(np.abs(array.astype(float)).max())
        np.testing.assert_allclose(decoded.astype(float), array.astype(float), rtol=0, atol=scale * 1e-2)


def test_a_low_rate_spends_what_the_library_spends():
    """A block of four floats takes 9 bits at least: 1 and the exponent."""
    array, codec = np.array([3, 3, 3, 3] * 8, np.float32), ZfpCodec("fixed_rate", rate=1)
    assert codec.encoded_size(spec_like(array)) == 16  # 8 blocks of 9 bits, in words of 8 bytes
    assert np.isfinite(round_trip(codec, array)).all()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (13,), (5, 6), (3, 1, 9), (2, 3, 4, 5)])
def test_fixed_precision_is_close(name, shape):
    array = wave(name, shape)
    decoded = round_trip(ZfpCodec("fixed_precision", precision=30), array).astype(float)
    scale = float(np.abs(array.astype(float)).max())
    np.testing.assert_allclose(decoded, array.astype(float), rtol=0, atol=scale * 1e-2)


def test_times_are_integers():
    times = np.array(["2020-01-01", "NaT", "1969-12-31"], "M8[s]")
    spec = spec_of("int64", (3,))
    spec = replace(spec, dtype=replace(spec.dtype, name="numpy.datetime64", numpy=times.dtype))
    codec = ZfpCodec("reversible")
    codec.check(spec)
    np.testing.assert_array_equal(codec.decode(codec.encode(times, spec), spec), times)


@pytest.mark.parametrize("name", ["int2", "int4", "uint2", "uint4", "bfloat16"])
def test_types_of_ml_dtypes(name):
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    spec = spec_of("int8", (5, 3))
    spec = replace(spec, dtype=replace(spec.dtype, name=name, numpy=dtype))
    low = -2 if name == "int2" else 0
    array = (np.arange(15).reshape(5, 3) % 4 + low).astype(dtype)
    codec = ZfpCodec("reversible")
    codec.check(spec)
    decoded = codec.decode(codec.encode(array, spec), spec)
    assert decoded.dtype == dtype
    np.testing.assert_array_equal(decoded.astype(float), array.astype(float))


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16"])
def test_narrow_integers_are_promoted_as_the_format_says(name):
    """intN << (31 - N), unsigned ones first minus 2^(N - 1)."""
    limits = np.iinfo(name)
    array = np.array([limits.min, limits.max, limits.min + 1, 5], name)
    middle = 0 if limits.min else 1 << (limits.bits - 1)
    promoted = np.array([(int(x) - middle) << (31 - limits.bits) for x in array], np.int32)
    codec = ZfpCodec("fixed_precision", precision=12)
    assert codec.encode(array, spec_like(array)) == codec.encode(promoted, spec_like(promoted))


def test_any_layout_and_byte_order_is_encoded_alike():
    array, codec = wave("float32", (6, 9)), ZfpCodec("fixed_precision", precision=16)
    spec = spec_like(array)
    stored = codec.encode(array, spec)
    assert codec.encode(np.asfortranarray(array), spec) == stored
    assert codec.encode(array.astype(">f4"), spec) == stored
    assert codec.encode(array[::-1, ::-1][::-1, ::-1], spec) == stored


# -- expert mode ----------------------------------------------------------------------------------


class CLibrary:
    """The C library inside zfpy, which can read and write expert mode without a header."""

    def __init__(self):
        self.lib = ctypes.CDLL(zfpy.__file__)
        if not hasattr(self.lib, "zfp_stream_set_params"):
            pytest.skip("this build of zfpy hides the C library")
        for name in ("zfp_field_1d", "zfp_field_2d", "zfp_field_3d", "zfp_field_4d", "zfp_stream_open", "stream_open"):
            getattr(self.lib, name).restype = ctypes.c_void_p

    def run(self, verb, array, stored, parameters):
        """Compress from `array` to `stored`, or the reverse; the number of bytes on the stored side."""
        lib, sizes = self.lib, [ctypes.c_size_t(n) for n in reversed(array.shape)]
        number = {"int32": 1, "int64": 2, "float32": 3, "float64": 4}[array.dtype.name]
        make_field = getattr(lib, f"zfp_field_{array.ndim}d")
        field = ctypes.c_void_p(make_field(ctypes.c_void_p(array.ctypes.data), number, *sizes))
        bits = ctypes.c_void_p(lib.stream_open(ctypes.c_void_p(stored.ctypes.data), ctypes.c_size_t(stored.size)))
        stream = ctypes.c_void_p(lib.zfp_stream_open(bits))
        assert lib.zfp_stream_set_params(stream, *parameters)
        run = getattr(lib, verb)
        run.restype = ctypes.c_size_t
        size = run(stream, field)
        lib.zfp_stream_close(stream)
        lib.stream_close(bits)
        lib.zfp_field_free(field)
        return size

    def encode(self, array, parameters):
        stored = np.zeros(64 * array.nbytes + 10**5, np.uint8)
        return stored[: self.run("zfp_compress", array, stored, parameters)].tobytes()

    def decode(self, raw, name, shape, parameters):
        values = np.empty(shape, name)
        assert self.run("zfp_decompress", values, np.frombuffer(raw + bytes(10**4), np.uint8), parameters) == len(raw)
        return values


def expert(minbits, maxbits, maxprec, minexp):
    return ZfpCodec("expert", minbits=minbits, maxbits=maxbits, maxprec=maxprec, minexp=minexp)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("shape", [(1,), (23,), (5, 6), (3, 4, 9), (5, 3, 4, 5)])
@pytest.mark.parametrize(
    "parameters",
    [
        (1, 13, 19, -2),
        (1, 100, 64, -1),
        (40, 90, 20, -1074),
        (0, 16658, 20, -3),
        (64, 20000, 33, 0),
        (1, 150, 64, -1080),
    ],
)
def test_expert_mode_agrees_with_the_c_library(name, shape, parameters):
    array, codec, oracle = wave(name, shape), expert(*parameters), CLibrary()
    spec = spec_like(array)
    codec.check(spec)
    raw = oracle.encode(array, parameters)
    np.testing.assert_array_equal(codec.decode(raw, spec), oracle.decode(raw, name, shape, parameters))
    try:
        written = codec.encode(array, spec)
    except CodecError:  # which the next test is about
        return
    assert written == raw


def test_zfpy_cannot_write_every_expert_mode():
    with pytest.raises(CodecError, match="zfpy cannot write expert mode"):
        expert(1, 13, 19, -2).encode(np.ones(4, np.float32), spec_of("float32", (4,)))


@pytest.mark.parametrize(
    ("parameters", "other"),
    [
        ((1, 16658, 64, -1075), ZfpCodec("reversible")),
        ((0, 2**32 - 1, 64, -5000), ZfpCodec("reversible")),
        ((168, 168, 64, -1074), ZfpCodec("fixed_rate", rate=10.5)),
        ((1, 16658, 19, -1074), ZfpCodec("fixed_precision", precision=19)),
        ((1, 16658, 64, -5), ZfpCodec("fixed_accuracy", tolerance=0.05)),
    ],
)
def test_expert_mode_writes_what_another_mode_can_say(parameters, other):
    array, codec, oracle = wave("float32", (9, 11)), expert(*parameters), CLibrary()
    spec = spec_like(array)
    raw = codec.encode(array, spec)
    assert raw == other.encode(array, spec) == oracle.encode(array, parameters)
    np.testing.assert_array_equal(codec.decode(raw, spec), other.decode(raw, spec))


def test_expert_blocks_of_one_size_have_a_known_size():
    array, codec = wave("float64", (9, 11)), expert(300, 300, 20, -4)
    assert codec.encoded_size(spec_like(array)) == len(CLibrary().encode(array, (300, 300, 20, -4)))


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(9,), (9, 3), (5, 5, 5), (5, 5, 5, 5)])
@pytest.mark.parametrize("rate", [0.01, 1, 2.5, 30])
def test_fixed_rate_agrees_with_the_c_library(name, shape, rate):
    """Which counts the bits of a block by the rank of the chunk, and has a least number for floats."""
    array, codec = wave(name, shape), ZfpCodec("fixed_rate", rate=rate)
    bits = max(int(rate * 4 ** len(shape) + 0.5), 9 if name == "float32" else 12)
    parameters = (bits, bits, 64, -1074)
    raw = codec.encode(array, spec_like(array))
    assert raw == CLibrary().encode(array, parameters)
    np.testing.assert_array_equal(codec.decode(raw, spec_like(array)), CLibrary().decode(raw, name, shape, parameters))


# -- values that lossy modes would spoil ----------------------------------------------------------


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_lossy_modes_refuse_values_that_are_not_finite(codec, value):
    array = np.array([1, 2, value, 4], np.float64)
    with pytest.raises(CodecError, match="reversible"):
        codec.encode(array, spec_like(array))


def test_lossy_modes_refuse_integers_that_overflow():
    codec = ZfpCodec("fixed_precision", precision=16)
    for name in ("int32", "int64"):
        most = 1 << (np.iinfo(name).bits - 2)
        round_trip(codec, np.array([most, -most], name))
        for value in (most + 1, -most - 1):
            with pytest.raises(CodecError, match="reversible"):
                codec.encode(np.array([value], name), spec_of(name, (1,)))


@pytest.mark.parametrize(("name", "most"), [("uint32", 2**31 - 1), ("uint64", 2**63 - 1)])
def test_wide_unsigned_integers_must_fit_the_signed_type(name, most):
    codec = ZfpCodec("reversible")
    np.testing.assert_array_equal(round_trip(codec, np.array([0, most], name)), np.array([0, most], name))
    with pytest.raises(CodecError, match="too large"):
        codec.encode(np.array([most + 1], name), spec_of(name, (1,)))


# -- damaged streams ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [ZfpCodec("reversible"), *LOSSY])
@pytest.mark.parametrize("shape", [(40,), (7, 9), (4, 5, 6)])
def test_every_truncation_raises_or_loses_nothing(codec, shape):
    """A part of the last word may hold no bit of the stream."""
    array = np.random.default_rng(1).normal(size=shape)
    spec = spec_like(array)
    raw = codec.encode(array, spec)
    for length in range(len(raw)):
        try:
            decoded = codec.decode(raw[:length], spec)
        except CodecError:
            continue
        assert length > len(raw) - 8
        np.testing.assert_array_equal(decoded, codec.decode(raw, spec))


@pytest.mark.parametrize("codec", [ZfpCodec("reversible"), *LOSSY, expert(1, 3000, 64, -1)])
@given(raw=st.binary(max_size=400))
@settings(deadline=None, max_examples=40)
def test_any_bytes_raise_or_give_a_chunk(codec, raw):
    spec = spec_of("float64", (5, 6))
    try:
        assert codec.decode(raw, spec).shape == (5, 6)
    except CodecError:
        pass


def test_more_bytes_than_any_stream_has_raise():
    array, codec = np.ones(4, np.float32), ZfpCodec("reversible")
    with pytest.raises(CodecError, match="at most 24 bytes expected, 32 found"):
        codec.decode(codec.encode(array, spec_like(array)) + bytes(24), spec_like(array))


def test_a_fixed_rate_stream_of_another_size_raises():
    array, codec = np.ones(64, np.float32), ZfpCodec("fixed_rate", rate=8)
    raw = codec.encode(array, spec_like(array))
    for damaged in (raw[:-8], raw + bytes(8), b""):
        with pytest.raises(CodecError, match="64 bytes expected"):
            codec.decode(damaged, spec_like(array))


# -- configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [ZfpCodec("reversible"), *LOSSY, expert(1, 13, 19, -2)])
def test_configurations_come_back(codec):
    assert ZfpCodec.from_configuration(codec.configuration()) == codec
    assert codec.to_json() == {"name": "zfp", "configuration": codec.configuration()}


@pytest.mark.parametrize(
    ("configuration", "field"),
    [
        ({}, "mode"),
        ({"mode": "lossless"}, "mode"),
        ({"mode": 2}, "mode"),
        ({"mode": "reversible", "rate": 8}, "rate"),
        ({"mode": "reversible", "write_header": True}, "write_header"),
        ({"mode": "fixed_rate"}, "rate"),
        ({"mode": "fixed_rate", "rate": 0}, "rate"),
        ({"mode": "fixed_rate", "rate": "8"}, "rate"),
        ({"mode": "fixed_rate", "rate": True}, "rate"),
        ({"mode": "fixed_rate", "rate": 1e9}, "rate"),
        ({"mode": "fixed_precision", "precision": -1}, "precision"),
        ({"mode": "fixed_precision", "precision": 1.5}, "precision"),
        ({"mode": "fixed_precision", "rate": 1.5}, "rate"),
        ({"mode": "fixed_accuracy", "tolerance": -1}, "tolerance"),
        ({"mode": "fixed_accuracy", "tolerance": None}, "tolerance"),
        ({"mode": "fixed_accuracy", "tolerance": float("nan")}, "tolerance"),
        ({"mode": "fixed_accuracy", "tolerance": 10**400}, "tolerance"),
        ({"mode": "expert", "minbits": 1, "maxbits": 9, "maxprec": 9}, "minexp"),
        ({"mode": "expert", "minbits": 10, "maxbits": 9, "maxprec": 9, "minexp": 0}, "minbits"),
        ({"mode": "expert", "minbits": 1, "maxbits": 9, "maxprec": 65, "minexp": 0}, "maxprec"),
        ({"mode": "expert", "minbits": 1, "maxbits": 9, "maxprec": 0, "minexp": 0}, "maxprec"),
        ({"mode": "expert", "minbits": -1, "maxbits": 9, "maxprec": 1, "minexp": 0}, "minbits"),
    ],
)
def test_bad_configurations_name_their_field(configuration, field):
    with pytest.raises(MetadataError) as caught:
        ZfpCodec.from_configuration(configuration)
    assert caught.value.field == f"configuration.{field}"


@pytest.mark.parametrize(
    ("codec", "name", "shape", "field"),
    [
        (ZfpCodec("reversible"), "bool", (4,), "configuration"),
        (ZfpCodec("reversible"), "complex64", (4,), "configuration"),
        (ZfpCodec("reversible"), "r16", (4,), "configuration"),
        (ZfpCodec("reversible"), "float32", (1, 1, 1, 1, 1), "configuration"),
        (ZfpCodec("reversible"), "float32", (4, 0), "configuration"),
        (ZfpCodec("fixed_accuracy", tolerance=1), "int32", (4,), "configuration.mode"),
        (expert(1, 8, 19, -2), "float32", (4,), "configuration.maxbits"),
        (expert(1, 99, 19, -2), "float32", (1, 1, 1, 4097), "configuration.mode"),
    ],
)
def test_chunks_that_do_not_suit_are_refused(codec, name, shape, field):
    with pytest.raises(MetadataError) as caught:
        codec.check(spec_of(name, shape))
    assert caught.value.field == field


def test_without_zfpy_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "zfpy", None)
    library.cache_clear()
    try:
        with pytest.raises(ImportError, match=r"pip install 'zellige\[zfp\]'"):
            ZfpCodec("reversible").encode(np.ones(4), spec_of("float64", (4,)))
    finally:
        library.cache_clear()


def test_importing_the_codecs_imports_no_optional_package():
    code = (
        "import sys, zellige.codecs.scale_offset, zellige.codecs.bitround\n"
        "from zellige.codecs import cast_value, packbits, zfp\n"
        "assert not {'zfpy', 'ml_dtypes'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
