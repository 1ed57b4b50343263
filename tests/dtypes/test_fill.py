"""Fill values of types beyond the core, to the bit in both directions (spec 4.2, 4.3)."""

from __future__ import annotations

import base64
import datetime
import json
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_types import NESTED, POINT, SECONDS, SMALL, bits, named, pairs_of, pattern
from zellige.dtypes import from_json, parse_dtype
from zellige.dtypes.fill import fill_bits
from zellige.errors import MetadataError

# -- small floats ---------------------------------------------------------------------------------

each_small = pytest.mark.parametrize(("name", "width", "largest", "infinity", "nan"), SMALL, ids=[r[0] for r in SMALL])


@each_small
def test_every_pattern_of_small_floats(name, width, largest, infinity, nan):
    dtype = from_json(name)
    for code in range(1 << width):
        fill = pattern(name, code)
        number = float(fill)
        written = dtype.write_fill(fill)
        if math.isnan(number):
            assert written == ("NaN" if code == nan else f"0x{code:02x}")
        else:
            assert written == (number if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity")
        assert bits(dtype.read_fill(json.loads(json.dumps(written)))) == code
        assert bits(dtype.read_fill(f"0x{code:02X}".replace("X", "x"))) == code
        assert bits(dtype.cast_fill(fill)) == code


@each_small
def test_words_of_small_floats(name, width, largest, infinity, nan):
    dtype = from_json(name)
    sign = 1 << (width - 1)
    codes = {"NaN": nan, "Infinity": infinity, "+Infinity": infinity}
    codes["-Infinity"] = None if infinity is None else infinity | sign
    for word, code in codes.items():
        if code is None:
            with pytest.raises(MetadataError, match=name):
                dtype.read_fill(word)
        else:
            assert bits(dtype.read_fill(word)) == code
    for value in (math.nan, math.inf):
        if (nan if value != value else infinity) is None:
            with pytest.raises(MetadataError, match=name):
                dtype.cast_fill(value)
        else:
            assert bits(dtype.cast_fill(value)) == (nan if value != value else infinity)


@each_small
def test_small_floats_round_half_to_even(name, width, largest, infinity, nan):
    dtype = from_json(name)
    codes = range(1 << (width - (name != "float8_e8m0fnu")))
    numbers = [(float(pattern(name, code)), code) for code in codes]
    finite = [(number, code) for number, code in numbers if math.isfinite(number)]
    assert finite[-1][0] == largest
    for (low, below), (high, above) in pairwise(finite):
        middle = (Fraction(low) + Fraction(high)) / 2
        even = below if below % 2 == 0 else above
        for value, code in [(middle, even), (middle * Fraction(99, 100), below), (middle * Fraction(101, 100), above)]:
            expected = code if low > 0 or code == even else None  # 1 % of a number near 0 is next to nothing
            if expected is not None:
                assert bits(dtype.read_fill(float(value))) == expected, float(value)
                assert bits(dtype.cast_fill(value)) == expected
    half = (Fraction(finite[-1][0]) - Fraction(finite[-2][0])) / 2
    assert bits(dtype.read_fill(float(largest + half * Fraction(9, 10)))) == finite[-1][1]
    for beyond in (float(largest + half * Fraction(11, 10)), largest * 100, 1e300, 10**300):
        with pytest.raises(MetadataError):
            dtype.cast_fill(beyond)
        if infinity is None:
            with pytest.raises(MetadataError):
                dtype.read_fill(beyond)
        else:
            assert bits(dtype.read_fill(beyond)) == infinity


@settings(deadline=None)
@given(st.integers(0, 2**16 - 1))
def test_patterns_of_bfloat16(code):
    fill = pattern("bfloat16", code)
    dtype = from_json("bfloat16")
    written = dtype.write_fill(fill)
    assert bits(dtype.read_fill(json.loads(json.dumps(written, allow_nan=False)))) == code
    assert bits(dtype.read_fill(f"0x{code:04x}")) == code
    assert (written == "NaN") == (code == 0x7FC0)


@settings(deadline=None)
@given(st.floats(width=64, allow_nan=False, allow_infinity=False, min_value=-3e38, max_value=3e38))
def test_bfloat16_rounds_once(value):
    found = from_json("bfloat16").read_fill(value)
    code, error = bits(found), abs(Fraction(float(found)) - Fraction(value))
    for other in (code - 1, code + 1):
        number = float(pattern("bfloat16", other % 2**16))
        if math.isfinite(number):
            distance = abs(Fraction(number) - Fraction(value))
            assert error < distance or (error == distance and code % 2 == 0)


@pytest.mark.parametrize("value", [Decimal("1.5"), Fraction(3, 2), np.longdouble(1.5), np.array(1.5, object)], ids=repr)
@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "complex_bfloat16", "float32", "complex128"])
def test_any_number_that_fits_is_one(name, value):
    assert complex(from_json(name).cast_fill(value)) == 1.5


def test_bfloat16_does_not_round_twice():
    # Just above the middle of 1 and 1 + 2**-7, which float32 rounds to the middle.
    assert bits(from_json("bfloat16").read_fill(1 + 2.0**-8 + 2.0**-40)) == 0x3F81
    assert bits(from_json("bfloat16").read_fill(2**60 + 2**52 + 1)) == 0x5D81


def test_zero_where_there_is_none():
    dtype = from_json("float8_e8m0fnu")
    assert bits(dtype.read_fill(0.0)) == 0  # as TensorStore writes the least number
    for value in (0, -1.0, -0.0):
        with pytest.raises(MetadataError):
            dtype.cast_fill(value)
    with pytest.raises(MetadataError):
        dtype.read_fill(-1.0)


def test_one_zero_where_minus_zero_would_be_nan():
    assert bits(from_json("float8_e5m2fnuz").read_fill(-0.0)) == 0
    assert bits(from_json("float8_e5m2").read_fill(-0.0)) == 0x80
    assert bits(from_json("bfloat16").cast_fill(-0.0)) == 0x8000


# -- other fill values ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "low", "high"), [("int2", -2, 1), ("uint2", 0, 3), ("int4", -8, 7), ("uint4", 0, 15)])
def test_small_integers(name, low, high):
    dtype = from_json(name)
    for value in range(low, high + 1):
        assert dtype.write_fill(dtype.read_fill(value)) == value
        assert int(dtype.cast_fill(float(value))) == value
        assert bits(dtype.cast_fill(np.int64(value))) == value % (1 << int(name[-1]))
    for value in (low - 1, high + 1, True, 1.0, "1", None):
        with pytest.raises(MetadataError, match=f"{low} to {high}"):
            dtype.read_fill(value)
    for value in (low - 1, high + 1, 0.5, math.nan, math.inf, "1", 1j, [1]):
        with pytest.raises(MetadataError):
            dtype.cast_fill(value)


@pytest.mark.parametrize("name", ["complex_float16", "complex_bfloat16"])
def test_small_complex_numbers(name):
    dtype = from_json(name)
    for value in ([1.5, -2.0], [-0.0, "Infinity"], ["NaN", "0x7fff"], ["-Infinity", "0xffff"]):
        fill = dtype.read_fill(value)
        assert json.dumps(dtype.write_fill(fill)) == json.dumps(value)
    assert complex(dtype.cast_fill(1.5 - 2j)) == 1.5 - 2j
    assert complex(dtype.cast_fill((1, 2))) == 1 + 2j
    for value in (None, 1.0, [1], [1, 2, 3], [1, None], "NaN"):
        with pytest.raises(MetadataError):
            dtype.read_fill(value)
    for value in ("x", [1], b"x", 1e300):
        with pytest.raises(MetadataError):
            dtype.cast_fill(value)


@settings(deadline=None)
@given(st.text())
def test_strings(text):
    dtype = from_json("string")
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(MetadataError):
            dtype.read_fill(text)
        return
    assert dtype.write_fill(dtype.read_fill(json.loads(json.dumps(text)))) == text
    assert dtype.write_fill(dtype.cast_fill(text)) == text


@settings(deadline=None)
@given(st.text(max_size=6))
def test_text_of_one_length(text):
    dtype = from_json(named("fixed_length_utf32", length_bytes=16))
    try:
        text.encode()
        fits = len(text.rstrip("\0")) <= 4
    except UnicodeEncodeError:
        fits = False
    if fits:
        fill = dtype.read_fill(text)
        assert fill == np.array(text, "U4")
        assert dtype.write_fill(fill) == text.rstrip("\0")
    else:
        with pytest.raises(MetadataError):
            dtype.read_fill(text)


@settings(deadline=None)
@given(st.binary(max_size=6))
def test_bytes(data):
    for form in (list(data), base64.b64encode(data).decode()):
        assert from_json("bytes").read_fill(form).item() == data
        fixed = from_json(named("null_terminated_bytes", length_bytes=4))
        if len(data.rstrip(b"\0")) <= 4:
            assert fixed.read_fill(form).item() == data.rstrip(b"\0")
            assert fixed.write_fill(fixed.read_fill(form)) == base64.b64encode(data.rstrip(b"\0")).decode()
        else:
            with pytest.raises(MetadataError):
                fixed.read_fill(form)
    assert from_json("bytes").write_fill(from_json("bytes").cast_fill(data)) == base64.b64encode(data).decode()


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_times(value):
    for document in (SECONDS, named("numpy.timedelta64", unit="as", scale_factor=3)):
        dtype = from_json(document)
        fill = dtype.read_fill(value)
        assert bits(fill) == value % 2**64
        assert dtype.write_fill(fill) == ("NaT" if value == -(2**63) else value)
    assert np.isnat(from_json(SECONDS).read_fill("NaT"))


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("M8[s]", "1970-01-02", 86400),
        ("M8[s]", np.datetime64("1970-01-01T00:01", "m"), 60),
        ("M8[D]", datetime.date(1970, 1, 3), 2),
        ("M8[ms]", datetime.datetime(1970, 1, 1, 0, 0, 1), 1000),
        ("M8[10us]", np.array(30, "M8[us]"), 3),
        ("M8[ns]", 7, 7),
        ("M8[s]", "NaT", -(2**63)),
        ("m8[s]", datetime.timedelta(minutes=1), 60),
        ("m8[h]", np.timedelta64(2, "D"), 48),
        ("m8[h]", np.timedelta64("NaT", "h"), -(2**63)),
    ],
    ids=str,
)
def test_times_that_users_give(unit, value, expected):
    assert int(parse_dtype(unit).cast_fill(value).view(np.int64)) == expected


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        ("M8[D]", "1970-01-01T12"),
        ("M8[10s]", np.datetime64(5, "s")),
        ("M8[s]", "yesterday"),
        ("M8[s]", 1.5),
        ("M8[s]", True),
        ("M8[s]", np.timedelta64(1, "s")),
        ("M8[s]", 2**63),
        ("m8[s]", datetime.date(1970, 1, 1)),
        ("m8[s]", "1"),
        ("M8[s]", np.zeros(2, "M8[s]")),
    ],
    ids=str,
)
def test_times_that_are_refused(unit, value):
    with pytest.raises(MetadataError) as info:
        parse_dtype(unit).cast_fill(value)
    assert info.value.field == "fill_value"


# -- fill values of structs -----------------------------------------------------------------------


def test_the_fill_value_of_a_struct_is_exact():
    value = {"x": -2, "y": 255, "z": "0x7fc00001"}
    dtype = from_json(POINT)
    fill = dtype.read_fill(value)
    assert fill.tobytes().hex() == "feffff0100c07f"
    assert dtype.write_fill(fill) == value
    nested = {"p": {"x": 1, "b": "0xffff"}, "t": "é", "n": -8}
    dtype = from_json(NESTED)
    assert dtype.write_fill(dtype.read_fill(nested)) == nested


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"x": 1, "y": 2}, "fill_value.z"),
        ({"x": 1, "y": 2, "z": 0.0, "w": 0}, "fill_value.w"),
        ({"x": 1, "y": 256, "z": 0.0}, "fill_value.y"),
        ({"x": 1, "y": 2, "z": "0x00"}, "fill_value.z"),
        ([1, 2, 3], "fill_value"),
        ("AQACAACAPw==", "fill_value"),  # base64 is of the older type
        (None, "fill_value"),
    ],
)
def test_fill_values_of_structs_that_are_refused(value, field):
    with pytest.raises(MetadataError) as info:
        from_json(POINT).read_fill(value)
    assert info.value.field == field


def test_the_place_in_a_nested_struct_is_named():
    with pytest.raises(MetadataError) as info:
        from_json(NESTED).read_fill({"p": {"x": 1, "b": "x"}, "t": "", "n": 0})
    assert info.value.field == "fill_value.p.b"


def test_older_structs_have_base64():
    dtype = from_json(pairs_of(x="int16", y="uint8", z="float32"))
    fill = dtype.read_fill(base64.b64encode(bytes.fromhex("feffff0100c07f")).decode())
    assert dtype.write_fill(fill) == {"x": -2, "y": 255, "z": "0x7fc00001"}
    assert fill_bits(dtype.read_fill(dtype.write_fill(fill))) == fill_bits(fill)
    for value in ("AQAC", "é", 5):
        with pytest.raises(MetadataError):
            dtype.read_fill(value)


@pytest.mark.parametrize(
    "value",
    [(1, 2, 3.0), {"x": 1, "y": 2, "z": 3}, np.array((1, 2, 3), [("x", "i8"), ("y", "i8"), ("z", "f8")])[()]],
    ids=["tuple", "dict", "struct"],
)
def test_structs_that_users_give(value):
    assert from_json(POINT).cast_fill(value).item() == (1, 2, 3.0)


def test_one_number_for_all_fields():
    assert from_json(POINT).cast_fill(1).item() == (1, 1, 1.0)


@pytest.mark.parametrize("value", [(1, 2), (1, 256, 3.0), {"x": 1}, "x", (1, 2.5, 3.0), b"\0" * 7])
def test_structs_that_are_refused(value):
    with pytest.raises(MetadataError) as info:
        from_json(POINT).cast_fill(value)
    assert info.value.field.startswith("fill_value")


REFUSED = [
    ("string", [None, 5, b"a", ["a"], "\ud800"]),
    ("bytes", [None, 5, "é", [256], {}, ["a"]]),
    (named("fixed_length_utf32", length_bytes=8), [None, 5, "abc", ["a"], "\ud800"]),
    (named("null_terminated_bytes", length_bytes=3), ["AAAB" + "AAAB", None, [1, 2, 3, 4], 5]),
    (named("raw_bytes", length_bytes=3), ["AAA=", "AAAAAA==", [1, 2], None]),
    (SECONDS, [None, True, 1.0, "1970", "nat", 2**63, -(2**63) - 1]),
    ("bfloat16", [None, True, "0x7fc00000", "0x7fc", "nan", 10**400, math.nan, [1]]),
    ("float4_e2m1fn", ["0x10", "0x7", "NaN", 8.0, -8.0, None]),
]


@pytest.mark.parametrize(("document", "value"), [(d, value) for d, values in REFUSED for value in values], ids=str)
def test_refused_fill_values(document, value):
    with pytest.raises(MetadataError) as info:
        from_json(document).read_fill(value)
    assert info.value.field == "fill_value"


CANNOT = [
    ("string", [5, b"a", ["a"], np.array(["a"]), "\ud800"]),
    ("bytes", ["a", 5, [1], np.array([b"a"])]),
    ("U2", ["abc", 5, b"a"]),
    ("S2", [b"abc", "a", 5]),
    ("bfloat16", ["x", 1j, 1e39, [1.0], np.ones(2), np.datetime64("2020"), b"1"]),
]


@pytest.mark.parametrize(("dtype", "value"), [(d, value) for d, values in CANNOT for value in values], ids=repr)
def test_values_that_a_type_cannot_hold(dtype, value):
    with pytest.raises(MetadataError) as info:
        parse_dtype(dtype).cast_fill(value)
    assert info.value.field == "fill_value"
