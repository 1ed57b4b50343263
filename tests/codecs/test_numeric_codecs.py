"""`bitround`, `scale_offset` and `cast_value` against exact arithmetic, one element at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zellige.codecs.base import ArraySpec
from zellige.codecs.bitround import BitroundCodec
from zellige.codecs.cast_value import CastValueCodec, bit_length, cast
from zellige.codecs.scale_offset import ScaleOffsetCodec
from zellige.dtypes import from_json
from zellige.errors import CodecError, MetadataError

INTEGERS = [f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)]
MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
ROUNDINGS = ["nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"]


def dtype_of(name):
    """A numpy type by name; skips if that needs a package which is not there."""
    try:
        return np.dtype(name)
    except TypeError:
        return np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))


def spec_of(name, shape=(), fill=0):
    dtype = from_json(name)
    value = np.zeros((), dtype.numpy)
    if dtype.numpy.type is not np.void:
        value[...] = fill
    return ArraySpec(shape, dtype, value)


def with_type(spec, name, dtype):
    return replace(spec, dtype=replace(spec.dtype, name=name, numpy=np.dtype(dtype)), fill=np.zeros((), dtype))


def limits_of(name):
    if name in INTEGERS:
        return int(np.iinfo(name).min), int(np.iinfo(name).max)
    bits = int(name.lstrip("uint"))
    return (0, (1 << bits) - 1) if name.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)


def assert_same_bits(found, expected):
    kind = f"u{expected.dtype.itemsize}"
    np.testing.assert_array_equal(found.view(kind), expected.view(kind))


@settings(max_examples=200)
@given(
    st.lists(
        st.integers(0, 2**64 - 1) | st.integers(0, 64).flatmap(lambda n: st.sampled_from([2**n - 1, 2**n % 2**64]))
    )
)
def test_bit_length(values):
    np.testing.assert_array_equal(bit_length(np.array(values, np.uint64)), [v.bit_length() for v in values])


# == bitround =====================================================================================


def rounded_pattern(pattern, width, mantissa, keepbits):
    """One float as its bit pattern, rounded half to even in integer arithmetic."""
    dropped = mantissa - keepbits
    exponent = (1 << width - 1) - (1 << mantissa)
    if dropped <= 0 or pattern & exponent == exponent:
        return pattern
    kept, rest = divmod(pattern, 1 << dropped)
    half = 1 << dropped - 1
    return kept + (rest > half or (rest == half and kept % 2 == 1)) << dropped


def rounded_integer(value, low, high, keepbits):
    """The nearest multiple, half to even, of what the highest set bit in two's complement allows."""
    pattern = value - 2 * low if value < 0 else value
    dropped = max(pattern.bit_length() - keepbits, 0)
    kept, rest = divmod(value, 1 << dropped)
    half = Fraction(1 << dropped, 2)
    result = kept + (rest > half or (rest == half and kept % 2 == 1 and rest > 0)) << dropped
    return result if result <= high else high >> dropped << dropped


@pytest.mark.parametrize(
    ("name", "values", "stored"),
    [
        (
            "float32",
            [0, 0.1, 1.2, 12.3, 123.4, 1234.5, math.nan, math.inf, -math.inf],
            "000000000000d03d0000a03f000040410000f0420000a0440000c07f0000807f000080ff",
        ),
        ("uint8", [0, 1, 10, 11, 100, 123, 200, 208, 209, 255], "00010a0c6080c0c0e0e0"),
    ],
)
def test_bitround_golden_bytes(name, values, stored):
    array, codec = np.array(values, name), BitroundCodec(3)
    spec = spec_of(name, array.shape)
    encoded = codec.encode(array, spec)
    assert encoded.tobytes().hex() == stored
    assert codec.decode(encoded, spec) is encoded


@pytest.mark.parametrize("name", MANTISSA)
@settings(deadline=None, max_examples=80)
@given(data=st.data(), keepbits=st.integers(1, 60))
def test_bitround_of_floats(name, data, keepbits):
    dtype = dtype_of(name)
    width, mantissa = 8 * dtype.itemsize, MANTISSA[name]
    top = (1 << width - 1) - (1 << mantissa)  # the pattern of infinity
    patterns = data.draw(st.lists(st.integers(0, (1 << width) - 1) | st.integers(top - 9, top + 9), min_size=1))
    array = np.array(patterns, f"u{dtype.itemsize}").view(dtype)
    found = BitroundCodec(keepbits).encode(array, spec_of(name, array.shape)).view(f"u{dtype.itemsize}")
    assert found.tolist() == [rounded_pattern(p, width, mantissa, keepbits) for p in patterns]


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
@pytest.mark.parametrize("keepbits", [1, 5, 10])
def test_bitround_agrees_with_numcodecs(name, keepbits):
    numcodecs = pytest.importorskip("numcodecs")
    array = np.random.default_rng(0).normal(0, 100, 500).astype(name)
    peer = np.frombuffer(numcodecs.BitRound(keepbits).encode(array), name)
    assert_same_bits(BitroundCodec(keepbits).encode(array, spec_of(name, (500,))), peer)


@pytest.mark.parametrize("name", INTEGERS)
@settings(deadline=None, max_examples=80)
@given(data=st.data(), keepbits=st.integers(1, 70))
def test_bitround_of_integers(name, data, keepbits):
    low, high = limits_of(name)
    values = data.draw(st.lists(st.integers(low, high) | st.sampled_from([low, low + 1, high - 1, high]), min_size=1))
    array = np.array(values, name)
    found = BitroundCodec(keepbits).encode(array, spec_of(name, array.shape))
    assert found.dtype == array.dtype
    assert found.tolist() == [rounded_integer(v, low, high, keepbits) for v in values]


@pytest.mark.parametrize("name", INTEGERS)
def test_bitround_keeps_the_sign(name):
    low, high = limits_of(name)
    array = np.array([high, high - 1, low], name)
    for keepbits in range(1, 65):
        found = BitroundCodec(keepbits).encode(array, spec_of(name, array.shape)).tolist()
        assert found[0] > 0
        assert found[1] > 0
        assert found[2] == low


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_bitround_rounds_both_components(name):
    array = np.array([1.2 + 123.4j, complex(math.nan, 1234.5)], name)
    part = f"float{4 * array.dtype.itemsize}"
    found = BitroundCodec(3).encode(array, spec_of(name, (2,)))
    expected = BitroundCodec(3).encode(array.view(part), spec_of(part, (4,)))
    assert_same_bits(found.view(part), expected)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[10us]"])
def test_bitround_takes_times_as_integers(dtype):
    numbers = np.array([0, 123456789, -5, np.iinfo("i8").min])
    spec = with_type(spec_of("int64", (4,)), "numpy.time", dtype)
    found = BitroundCodec(8).encode(numbers.view(dtype), spec)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.view("i8"), BitroundCodec(8).encode(numbers, spec_of("int64", (4,))))
    assert np.isnat(found[3])
    assert BitroundCodec(8).resolve(spec).dtype == spec.dtype


def test_bitround_takes_any_shape_layout_and_byte_order():
    array, spec = np.linspace(0, 9, 24).reshape(4, 6).astype("f4"), spec_of("float32", (4, 6))
    expected = BitroundCodec(4).encode(array, spec)
    for chunk in (np.asfortranarray(array), array.astype(">f4"), np.repeat(array, 2, 1)[:, ::2]):
        np.testing.assert_array_equal(BitroundCodec(4).encode(chunk, spec), expected)
    assert BitroundCodec(4).encode(array[1, 1], spec_of("float32")).shape == ()


def test_bitround_rounds_the_fill_value():
    spec = BitroundCodec(3).resolve(spec_of("float32", (2,), 1.2))
    assert spec.fill == np.float32(1.25)
    assert spec.fill.shape == ()
    assert not spec.fill.flags.writeable


def test_bitround_changes_no_chunk_in_place():
    array = np.array([1.2, 3.3], np.float32)
    array.flags.writeable = False
    BitroundCodec(3).encode(array, spec_of("float32", (2,)))
    np.testing.assert_array_equal(array, np.array([1.2, 3.3], np.float32))


# == scale_offset =================================================================================


def test_scale_offset_golden_bytes():
    array, codec = np.array([1000, 1001, 1255, 1002], np.uint16), ScaleOffsetCodec(offset=1000)
    spec = spec_of("uint16", (4,), 1000)
    encoded = codec.encode(array, spec)
    assert encoded.astype("<u2").tobytes().hex() == "00000100ff000200"
    np.testing.assert_array_equal(codec.decode(encoded, spec), array)


def scaled(value, offset, scale, low, high):
    steps = [value - offset, (value - offset) * scale]
    return steps[-1] if all(low <= step <= high for step in steps) else None


def unscaled(value, offset, scale, low, high):
    steps = [Fraction(value, scale), Fraction(value, scale) + offset]
    return steps[-1] if all(low <= step <= high and step.denominator == 1 for step in steps) else None


@pytest.mark.parametrize("name", [*INTEGERS, "int4", "uint4", "int2"])
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_scale_offset_of_integers(name, data):
    """Each element by itself, in Python's integers; one that fails makes the chunk fail."""
    low, high = limits_of(name)
    numbers = st.integers(max(low, -9), min(high, 9)) | st.integers(low, high)
    offset, scale = data.draw(numbers), data.draw(numbers.filter(bool))
    values = data.draw(st.lists(numbers, min_size=1, max_size=4))
    codec, spec = ScaleOffsetCodec(offset, scale), spec_of(name, (len(values),))
    array = np.array(values).astype(dtype_of(name)) if name not in INTEGERS else np.array(values, name)
    for work, oracle in ((codec.encode, scaled), (codec.decode, unscaled)):
        expected = [oracle(v, offset, scale, low, high) for v in values]
        if None in expected:
            with pytest.raises(CodecError, match="scale_offset"):
                work(array, spec)
        else:
            found = work(array, spec)
            assert found.dtype == array.dtype
            assert [int(x) for x in found] == expected


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16", "float8_e5m2"])
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_scale_offset_of_floats(name, data):
    """Each step rounded by itself to the type, as Python does with float64, and numpy with one element."""
    scalar = dtype_of(name).type
    numbers = st.floats(-100, 100) | st.floats(width=16, allow_nan=False, allow_infinity=False)
    numbers = numbers.map(lambda x: float(scalar(x))).filter(math.isfinite)
    offset, scale = data.draw(numbers), data.draw(numbers.filter(bool))
    values = np.array(data.draw(st.lists(numbers | st.sampled_from([math.nan, math.inf]), min_size=1, max_size=4)))
    array, codec, spec = values.astype(scalar), ScaleOffsetCodec(offset, scale), spec_of(name, values.shape)
    with np.errstate(all="ignore"):
        forth = [(x - scalar(offset)) * scalar(scale) for x in array]
        back = [x / scalar(scale) + scalar(offset) for x in array]
    for work, expected in ((codec.encode, forth), (codec.decode, back)):
        lost = [math.isfinite(x) and not math.isfinite(y) for x, y in zip(array, expected, strict=True)]
        if any(lost):
            with pytest.raises(CodecError):
                work(array, spec)
        else:
            found = work(array, spec)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found.astype(float), np.array(expected).astype(float))


@pytest.mark.parametrize("name", ["int16", "uint8", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_scale_offset_comes_back(name, shape):
    codec, spec = ScaleOffsetCodec(2, 3), spec_of(name, shape, 5)
    array = (np.arange(math.prod(shape)).reshape(shape) + 2).astype(name)
    encoded = codec.encode(array, spec)
    stored = encoded.astype(encoded.dtype.newbyteorder(">"))
    stored.flags.writeable = False
    decoded = codec.decode(stored, spec)
    assert (decoded.shape, decoded.dtype) == (shape, spec.dtype.numpy)
    np.testing.assert_array_equal(decoded, array)


def test_scale_offset_sends_the_fill_value_through():
    spec = ScaleOffsetCodec(-10, 0.1).resolve(spec_of("float64", (3,), 90))
    assert spec.fill == 10
    assert spec.fill.shape == ()
    assert np.isnan(ScaleOffsetCodec(-10, 0.1).resolve(spec_of("float64", (3,), math.nan)).fill)
    with pytest.raises(MetadataError, match="fill value 0 cannot be encoded") as caught:
        ScaleOffsetCodec(1000).resolve(spec_of("uint16", (3,), 0))
    assert caught.value.field == "configuration"


def test_scale_offset_reads_numbers_like_fill_values():
    spec = spec_of("float32", (1,))
    hexadecimal = ScaleOffsetCodec("0x3f800000", "0x40000000")
    assert hexadecimal.encode(np.array([3], np.float32), spec) == 4
    assert ScaleOffsetCodec(2**53 + 1).encode(np.array([2**53 + 2]), spec_of("int64", (1,))) == 1


# == cast_value ===================================================================================

# name: significant bits, exponent of the smallest number, greatest number, has infinities, has NaN (spec: 4.3)
FLOATS = {
    "float16": (11, -24, Fraction(65504), True, True),
    "bfloat16": (8, -133, (2 - Fraction(1, 2**7)) * 2**127, True, True),
    "float32": (24, -149, (2 - Fraction(1, 2**23)) * 2**127, True, True),
    "float64": (53, -1074, (2 - Fraction(1, 2**52)) * 2**1023, True, True),
    "float8_e3m4": (5, -6, Fraction(31, 2), True, True),
    "float8_e4m3": (4, -9, Fraction(240), True, True),
    "float8_e4m3fnuz": (4, -10, Fraction(240), False, True),
    "float8_e5m2": (3, -16, Fraction(57344), True, True),
    "float6_e2m3fn": (4, -3, Fraction(15, 2), False, False),
    "float4_e2m1fn": (2, -1, Fraction(6), False, False),
}
CORE = [*INTEGERS, "float16", "float32", "float64"]
NUMBERS = [*INTEGERS, "int4", "uint2", *FLOATS] if find_spec("ml_dtypes") else CORE


def to_whole(value, rounding):
    """A fraction as an integer."""
    floor, rest = value.numerator // value.denominator, value - value.numerator // value.denominator
    if rounding == "towards-negative" or rest == 0:
        return floor
    if rounding == "towards-positive" or rest > Fraction(1, 2):
        return floor + (rounding != "towards-zero" or value < 0)
    if rounding == "towards-zero":
        return floor + (value < 0)
    if rest == Fraction(1, 2):
        return floor + (floor % 2 == 1 if rounding == "nearest-even" else value > 0)
    return floor


def cast_by_hand(value, name, rounding, out_of_range):
    """One number by the words of the format: an integer, a fraction, an infinity, NaN, or None for an error."""
    integral = name not in FLOATS
    if not math.isfinite(value):
        if integral or not FLOATS[name][4 if math.isnan(value) else 3]:
            return None
        return value
    value = Fraction(value)
    if integral:
        (low, high), result = limits_of(name), to_whole(value, rounding)
        if low <= result <= high:
            return result
        if out_of_range == "wrap":
            return (result - low) % (high - low + 1) + low
        return None if out_of_range is None else min(max(result, low), high)
    precision, least, most, infinite, _ = FLOATS[name]
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length() + 1 if value else least
    while value and Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** max(exponent - precision + 1, least)
    result = to_whole(value / step, rounding) * step
    if abs(result) <= most:
        return result
    if out_of_range != "clamp":
        return None
    return math.copysign(math.inf if infinite else float(most), value)


@st.composite
def castings(draw):
    source, target = draw(st.sampled_from(NUMBERS)), draw(st.sampled_from(NUMBERS))
    dtype = dtype_of(source)
    bits = 8 * dtype.itemsize if source in INTEGERS or source in FLOATS else int(source.lstrip("uint"))
    patterns = st.integers(0, (1 << bits) - 1)
    most = FLOATS[target][2] if target in FLOATS else limits_of(target)[1] + 1
    near = st.builds(
        lambda sign, n, d: sign * (most + Fraction(n, d)),
        st.sampled_from([1, -1, 0]),
        st.integers(-9, 9),
        st.sampled_from([1, 2, 4]),
    )
    if source in FLOATS:
        numbers = near.filter(lambda x: abs(x) <= FLOATS[source][2]).map(float) | st.sampled_from(
            [math.nan, math.inf, -0.0]
        )
    else:
        low, high = limits_of(source)
        numbers = near.map(int).filter(lambda x: low <= x <= high) | st.integers(0, 64).map(lambda n: min(2**n, high))
    with np.errstate(all="ignore"):
        direct = np.array(draw(st.lists(numbers, max_size=4)), None if source in FLOATS else object)
        values = [
            np.array(draw(st.lists(patterns, min_size=1, max_size=4)), f"u{dtype.itemsize}").view(dtype),
            direct.astype(np.float64 if source in FLOATS else np.int64 if source != "uint64" else np.uint64).astype(
                dtype
            ),
        ]
    modes = [None, "clamp"] if target in FLOATS else [None, "clamp", "wrap"]
    return np.concatenate(values), source, target, draw(st.sampled_from(ROUNDINGS)), draw(st.sampled_from(modes))


def number(x, name):
    """A numpy number as a Python number, exactly."""
    return float(x) if name in FLOATS else int(x)


@settings(deadline=None, max_examples=500)
@given(castings())
@example((np.array([2**63 - 1, -(2**63), 2**53 + 1]), "int64", "float64", "towards-zero", None))
@example((np.array([2**64 - 1, 2**53 + 1], np.uint64), "uint64", "float64", "nearest-away", None))
@example((np.array([2**64 - 1, 2**64 - 2**39], np.uint64), "uint64", "float32", "nearest-even", None))
@example((np.array([0.49999999999999994, -0.49999999999999994]), "float64", "int8", "nearest-away", None))
@example((np.array([2.0**64, -1.0, -(2.0**63), 1e300]), "float64", "uint64", "nearest-even", "wrap"))
@example(
    (np.array([3.4028235677973366e38, -1e-46, 1e-320, -1e-320]), "float64", "float32", "towards-positive", "clamp")
)
def test_cast_agrees_with_fractions(case):
    values, source, target, rounding, out_of_range = case
    expected = [cast_by_hand(number(x, source), target, rounding, out_of_range) for x in values]
    if None in expected:
        with pytest.raises(CodecError, match="cast to"):
            cast(values, dtype_of(target), rounding, out_of_range)
        return
    found = cast(values, dtype_of(target), rounding, out_of_range)
    assert found.dtype == dtype_of(target)
    for x, result, wanted in zip(values, found, expected, strict=True):
        result = number(result, target)
        assert result == wanted or (math.isnan(result) and math.isnan(wanted))
        if target in FLOATS and source in FLOATS and target != "float8_e4m3fnuz" and result == 0:
            assert math.copysign(1, result) == math.copysign(1, float(x))  # the sign of a zero stays


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("nearest-even", [2, 2, -2, -2]),
        ("towards-zero", [1, 2, -1, -2]),
        ("towards-positive", [2, 3, -1, -2]),
        ("towards-negative", [1, 2, -2, -3]),
        ("nearest-away", [2, 3, -2, -3]),
    ],
)
def test_the_five_roundings(rounding, expected):
    array = np.array([1.5, 2.5, -1.5, -2.5], np.float32)
    assert CastValueCodec("int8", rounding).encode(array, spec_of("float32", (4,))).tolist() == expected


def test_the_examples_of_the_format():
    spec = spec_of("float64", (1,))
    value = np.array([128.0])
    with pytest.raises(CodecError, match=r"128\.0 is out of range"):
        CastValueCodec("int8").encode(value, spec)
    assert CastValueCodec("int8", out_of_range="clamp").encode(value, spec) == 127
    assert CastValueCodec("int8", out_of_range="wrap").encode(value, spec) == -128
    wrap = CastValueCodec("int16", out_of_range="wrap")
    numbers = np.array([32768, 32769, -32769])
    assert wrap.encode(numbers, spec_of("int64", (3,))).tolist() == [-32768, -32767, 32767]
    assert wrap.encode(numbers.astype(float), spec_of("float64", (3,))).tolist() == [-32768, -32767, 32767]


NAN_TO_ZERO = {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}


def test_golden_scale_offset_then_cast_value():
    array = np.array([0, 100, math.nan])
    chain, specs = (
        [ScaleOffsetCodec(-10, 0.1), CastValueCodec("uint8", scalar_map=NAN_TO_ZERO)],
        [spec_of("float64", (3,))],
    )
    encoded = array
    for codec in chain:
        specs.append(codec.resolve(specs[-1]))
        encoded = codec.encode(encoded, specs[-2])
    assert encoded.tobytes().hex() == "010b00"
    assert (specs[-1].dtype.name, specs[-1].fill) == ("uint8", 1)
    for codec, spec in zip(reversed(chain), reversed(specs[:-1]), strict=True):
        encoded = codec.decode(encoded, spec)
    np.testing.assert_array_equal(encoded, array)


def test_every_nan_is_mapped_and_the_first_match_wins():
    patterns = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32)
    codec = CastValueCodec("uint8", scalar_map={"encode": [["NaN", 7], ["NaN", 8], [1.0, 2], [1.5, 42]]})
    assert codec.encode(patterns, spec_of("float32", (3,))).tolist() == [7, 7, 7]
    assert codec.encode(np.array([1, 1.5, 2], "f4"), spec_of("float32", (3,))).tolist() == [2, 42, 2]


def test_the_map_spares_values_from_the_rules():
    codec = CastValueCodec("int8", scalar_map={"encode": [[1000, -1], ["Infinity", 5], ["+Infinity", 6]]})
    assert codec.encode(np.array([1000, math.inf, 3]), spec_of("float64", (3,))).tolist() == [-1, 5, 3]
    with pytest.raises(CodecError, match="1001"):
        codec.encode(np.array([1000.0, 1001.0]), spec_of("float64", (2,)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("out_of_range", [None, "clamp", "wrap"])
def test_what_is_no_number_has_no_integer(value, out_of_range):
    with pytest.raises(CodecError, match="scalar_map"):
        CastValueCodec("int16", out_of_range=out_of_range).encode(np.array([value]), spec_of("float64", (1,)))


@pytest.mark.parametrize("shape", [(), (4,), (2, 2)])
@pytest.mark.parametrize("scalar_map", [None, {}, {"encode": [[3, 9]], "decode": [[9, 3]]}])
def test_cast_value_comes_back(shape, scalar_map):
    codec, spec = CastValueCodec("int16", scalar_map=scalar_map), spec_of("float64", shape)
    array = np.arange(3, 3 + math.prod(shape), dtype=float).reshape(shape)
    encoded = codec.encode(array.astype(">f8"), spec)
    assert (encoded.shape, encoded.dtype) == (shape, np.dtype("int16"))
    stored = encoded.astype(">i2")
    stored.flags.writeable = False
    decoded = codec.decode(stored, spec)
    assert (decoded.shape, decoded.dtype) == (shape, np.dtype("float64"))
    np.testing.assert_array_equal(decoded, array)


def test_decoding_has_the_same_rules():
    spec = spec_of("int8", (1,))
    with pytest.raises(CodecError):
        CastValueCodec("int16").decode(np.array([300], np.int16), spec)
    assert CastValueCodec("int16", out_of_range="clamp").decode(np.array([300], np.int16), spec) == 127
    with pytest.raises(CodecError, match="out of range"):  # floats do not wrap, though the data type does
        CastValueCodec("uint32", out_of_range="wrap").decode(np.array([10**6], np.uint32), spec_of("float16", (1,)))


@pytest.mark.parametrize(
    ("name", "fill", "codec", "encoded"),
    [
        ("float64", math.nan, CastValueCodec("uint8", scalar_map=NAN_TO_ZERO), 0),
        ("float64", math.nan, CastValueCodec("float16"), math.nan),
        ("float64", -0.0, CastValueCodec("int8"), 0),
        ("int16", -1, CastValueCodec("float32"), -1),
        ("uint8", 200, CastValueCodec("int8", out_of_range="wrap"), -56),
    ],
)
def test_the_fill_value_is_cast(name, fill, codec, encoded):
    if name == "uint8":
        codec = replace(codec, scalar_map={"decode": [[-56, 200]]})
    spec = codec.resolve(spec_of(name, (2,), fill))
    np.testing.assert_array_equal(spec.fill, encoded)
    assert spec.fill.shape == ()
    assert spec.fill.dtype == spec.dtype.numpy == codec.target.numpy
    assert not spec.fill.flags.writeable


@pytest.mark.parametrize(
    ("name", "fill", "codec", "words"),
    [
        ("float64", math.nan, CastValueCodec("uint8"), "cannot be cast"),
        ("float64", 0.5, CastValueCodec("uint8"), "comes back as 0.0"),
        ("float64", 0.1, CastValueCodec("float32"), "comes back as"),
        ("int16", 300, CastValueCodec("uint8", out_of_range="clamp"), "comes back as 255"),
        ("int16", 300, CastValueCodec("uint8"), "cannot be cast"),
        ("float64", math.nan, CastValueCodec("uint8", scalar_map={"encode": [["NaN", 0]]}), "comes back as 0.0"),
    ],
)
def test_a_fill_value_that_does_not_come_back_is_refused(name, fill, codec, words):
    with pytest.raises(MetadataError, match=words) as caught:
        codec.resolve(spec_of(name, (2,), fill))
    assert caught.value.field == "configuration"


# == configurations ===============================================================================


@pytest.mark.parametrize(
    "codec",
    [
        BitroundCodec(10),
        ScaleOffsetCodec(),
        ScaleOffsetCodec(5, 0.1),
        ScaleOffsetCodec("0x3f800000", "0x40000000"),
        CastValueCodec("uint8"),
        CastValueCodec("uint8", "towards-zero", "wrap", {"encode": [["NaN", 0]]}),
        CastValueCodec("float16", "nearest-away", "clamp", {}),
    ],
)
def test_configurations_come_back(codec):
    assert type(codec).from_configuration(codec.configuration()) == codec


def test_configurations_are_explicit():
    assert ScaleOffsetCodec.from_configuration({}).configuration() == {"offset": 0, "scale": 1}
    assert CastValueCodec.from_configuration({"data_type": {"name": "int8"}}).configuration() == {
        "data_type": "int8",
        "rounding": "nearest-even",
    }
    assert CastValueCodec(np.uint8).configuration() == CastValueCodec("uint8").configuration()


@pytest.mark.parametrize(
    ("codec", "configuration", "field"),
    [
        (BitroundCodec, {}, "keepbits"),
        (BitroundCodec, {"keepbits": 0}, "keepbits"),
        (BitroundCodec, {"keepbits": 3.0}, "keepbits"),
        (BitroundCodec, {"keepbits": True}, "keepbits"),
        (BitroundCodec, {"keepbits": 3, "mode": "round"}, "mode"),
        (ScaleOffsetCodec, {"offset": None}, "offset"),
        (ScaleOffsetCodec, {"offset": [1, 0]}, "offset"),
        (ScaleOffsetCodec, {"scale": True}, "scale"),
        (ScaleOffsetCodec, {"offset": 1, "dtype": "f4"}, "dtype"),
        (CastValueCodec, {}, "data_type"),
        (CastValueCodec, {"data_type": None}, "data_type"),
        (CastValueCodec, {"data_type": "int99"}, "data_type"),
        (CastValueCodec, {"data_type": "u1"}, "data_type"),
        (CastValueCodec, {"data_type": "bool"}, "data_type"),
        (CastValueCodec, {"data_type": "complex64"}, "data_type"),
        (CastValueCodec, {"data_type": "r16"}, "data_type"),
        (CastValueCodec, {"data_type": "int8", "rounding": "up"}, "rounding"),
        (CastValueCodec, {"data_type": "int8", "rounding": None}, "rounding"),
        (CastValueCodec, {"data_type": "int8", "out_of_range": "error"}, "out_of_range"),
        (CastValueCodec, {"data_type": "int8", "out_of_range": None}, "out_of_range"),
        (CastValueCodec, {"data_type": "float32", "out_of_range": "wrap"}, "out_of_range"),
        (CastValueCodec, {"data_type": "int8", "scalar_map": None}, "scalar_map"),
        (CastValueCodec, {"data_type": "int8", "scalar_map": []}, "scalar_map"),
        (CastValueCodec, {"data_type": "int8", "scalar_map": {"both": []}}, "scalar_map"),
        (CastValueCodec, {"data_type": "int8", "scalar_map": {"encode": {"NaN": 0}}}, "scalar_map.encode"),
        (CastValueCodec, {"data_type": "int8", "scalar_map": {"decode": [[1, 2, 3]]}}, "scalar_map.decode"),
        (CastValueCodec, {"data_type": "int8", "scale": 1}, "scale"),
    ],
)
def test_bad_configurations_name_their_field(codec, configuration, field):
    with pytest.raises(MetadataError) as caught:
        codec.from_configuration(configuration)
    assert caught.value.field == f"configuration.{field}"


@pytest.mark.parametrize(
    ("codec", "name", "field"),
    [
        (BitroundCodec(3), "bool", "configuration"),
        (BitroundCodec(3), "r16", "configuration"),
        (BitroundCodec(3), "int4", "configuration"),
        (ScaleOffsetCodec(), "bool", "configuration"),
        (ScaleOffsetCodec(), "complex64", "configuration"),
        (ScaleOffsetCodec(scale=0), "float32", "configuration.scale"),
        (ScaleOffsetCodec(scale=0), "int8", "configuration.scale"),
        (ScaleOffsetCodec(scale=1e-50), "float32", "configuration.scale"),
        (ScaleOffsetCodec(scale="NaN"), "float32", "configuration.scale"),
        (ScaleOffsetCodec(scale=1e50), "float32", "configuration.scale"),
        (ScaleOffsetCodec(offset="Infinity"), "float32", "configuration.offset"),
        (ScaleOffsetCodec(offset=math.nan), "float32", "configuration.offset"),
        (ScaleOffsetCodec(offset=0.5), "int8", "configuration.offset"),
        (ScaleOffsetCodec(offset=-1), "uint8", "configuration.offset"),
        (ScaleOffsetCodec(offset=128), "int8", "configuration.offset"),
        (CastValueCodec("int8"), "bool", "configuration"),
        (CastValueCodec("int8"), "complex64", "configuration"),
        (
            CastValueCodec("int8", scalar_map={"encode": [[1, 2], [1, 300]]}),
            "int16",
            "configuration.scalar_map.encode[1]",
        ),
        (CastValueCodec("int8", scalar_map={"decode": [["NaN", 2]]}), "int16", "configuration.scalar_map.decode[0]"),
    ],
)
def test_chunks_that_do_not_suit_are_refused(codec, name, field):
    with pytest.raises(MetadataError) as caught:
        codec.resolve(spec_of(name, (2,)))
    assert caught.value.field == field
