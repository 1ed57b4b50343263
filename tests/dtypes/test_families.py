"""Data types and fill values, exact to the bit in both directions (spec 4.1)."""

from __future__ import annotations

import base64
import json
import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from zellige.dtypes import from_json, from_numpy, parse_dtype
from zellige.errors import MetadataError, UnknownDataTypeError

# name, numpy code, bytes, whether the byte order matters, the usual default as JSON
TABLE = [
    ("bool", "?", 1, False, False),
    ("int8", "i1", 1, False, 0),
    ("int16", "i2", 2, True, 0),
    ("int32", "i4", 4, True, 0),
    ("int64", "i8", 8, True, 0),
    ("uint8", "u1", 1, False, 0),
    ("uint16", "u2", 2, True, 0),
    ("uint32", "u4", 4, True, 0),
    ("uint64", "u8", 8, True, 0),
    ("float16", "f2", 2, True, 0.0),
    ("float32", "f4", 4, True, 0.0),
    ("float64", "f8", 8, True, 0.0),
    ("complex64", "c8", 8, True, [0.0, 0.0]),
    ("complex128", "c16", 16, True, [0.0, 0.0]),
    ("r8", "V1", 1, False, [0]),
    ("r24", "V3", 3, False, [0, 0, 0]),
    ("r128", "V16", 16, False, [0] * 16),
]
INTEGERS = [row[0] for row in TABLE if "int" in row[0]]
# name, bytes, mantissa bits, the pattern of "NaN"
FLOATS = [("float16", 2, 10, 0x7E00), ("float32", 4, 23, 0x7FC00000), ("float64", 8, 52, 0x7FF8000000000000)]
COMPLEX = [("complex64", 4), ("complex128", 8)]


def from_bits(name, *patterns):
    """A 0-d array with these bits, as unsigned integers for each component."""
    dtype = from_json(name).numpy
    size = dtype.itemsize // len(patterns)
    return np.frombuffer(b"".join(p.to_bytes(size, "little") for p in patterns), dtype.newbyteorder("<"))[0, ...]


def bits(fill):
    return fill.astype(fill.dtype.newbyteorder("<")).tobytes().hex()


def through_json(name, fill):
    """A fill value written into a document and read back."""
    dtype = from_json(name)
    return dtype.read_fill(json.loads(json.dumps(dtype.write_fill(fill), allow_nan=False)))


def spelling(pattern, size, mantissa, nan):
    """What the specification writes for a pattern that is not finite."""
    ones = (1 << (8 * size - 1 - mantissa)) - 1
    exponent, fraction = pattern >> mantissa & ones, pattern & ((1 << mantissa) - 1)
    if exponent != ones:
        return None
    if fraction == 0:
        return "-Infinity" if pattern >> (8 * size - 1) else "Infinity"
    return "NaN" if pattern == nan else f"0x{pattern:0{2 * size}x}"


# -- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code", "nbytes", "endian", "default"), TABLE)
def test_table(name, code, nbytes, endian, default):
    dtype = from_json(name)
    assert dtype.name == dtype.to_json() == name
    assert dtype.numpy == np.dtype(code)
    assert dtype.numpy.isnative
    assert dtype.numpy.itemsize == nbytes
    assert dtype.endian is endian
    fill = dtype.cast_fill(None)
    assert fill.shape == ()
    assert bits(fill) == "00" * nbytes
    assert json.dumps(dtype.write_fill(fill)) == json.dumps(default)
    assert bits(dtype.read_fill(default)) == "00" * nbytes
    assert not dtype.read_fill(default).flags.writeable


@pytest.mark.parametrize("row", TABLE)
def test_forms_of_a_dtype_argument(row):
    name, code, *_ = row
    dtype = from_json(name)
    objects = [{"name": name}, {"name": name, "configuration": {}}, {"name": name, "must_understand": True}]
    numpys = [
        np.dtype(code),
        code,
        np.dtype(code).newbyteorder(">"),
        np.dtype(code).newbyteorder("<"),
        dtype.numpy.type,
    ]
    for form in [name, dtype, *objects, *numpys]:
        if form is not np.void:  # which has no size
            assert parse_dtype(form) == dtype
    assert from_numpy(np.dtype(code)) == dtype


@pytest.mark.parametrize(
    ("kind", "name"), [(bool, "bool"), (int, "int64"), (float, "float64"), (complex, "complex128")]
)
def test_python_types(kind, name):
    assert parse_dtype(kind).name == name


UNKNOWN = ["int15", "float128", "S", "U", "O", "datetime64[x]", "r", "rx", "R8", "r-8", "r 8", "", "r08", "i4,O"]
UNKNOWN += ["r9999999999999999", ",", object, 3, None, np.dtype("V0"), np.dtype(("i4", (2,))), {"name": "int15"}]
UNKNOWN += [np.dtype([("a", "i4", (2,))]), np.dtype([("a", "O")]), [("a", "T")], [], ()]


@pytest.mark.parametrize("value", UNKNOWN, ids=repr)
def test_unknown_types(value):
    with pytest.raises(UnknownDataTypeError) as info:
        parse_dtype(value)
    assert info.value.field == "data_type"
    assert isinstance(info.value, ValueError)


def test_unknown_names_come_with_a_hint():
    with pytest.raises(UnknownDataTypeError, match=r"data_type 'int15'.*did you mean 'int16'\?"):
        from_json("int15")
    with pytest.raises(UnknownDataTypeError, match=r"data_type 'zzz'.*known: bool"):
        from_json("zzz")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("r0", "data_type"),
        ("r7", "data_type"),
        ("r12", "data_type"),
        ("r999999999992", "data_type"),
        ("i2", "data_type"),  # numpy's spellings are for arguments, not for documents
        ("<i2", "data_type"),
        ("INT16", "data_type"),
        (16, "data_type"),
        (None, "data_type"),
        (["int16"], "data_type"),
        ({}, "data_type"),
        ({"name": None}, "data_type"),
        ({"name": ["int16"]}, "data_type"),
        ({"name": "int16", "size": 2}, "data_type"),
        ({"name": "int16", "configuration": {"size": 2}}, "data_type.configuration"),
        ({"name": "int16", "configuration": None}, "data_type.configuration"),
        ({"name": "int16", "configuration": []}, "data_type.configuration"),
        ({"name": "int16", "must_understand": False}, "data_type.must_understand"),
        ({"name": "int16", "must_understand": None}, "data_type.must_understand"),
        ({"name": "int16", "must_understand": 1}, "data_type.must_understand"),
    ],
)
def test_refused_in_documents(value, field):
    with pytest.raises(MetadataError, match="data_type") as info:
        from_json(value)
    assert info.value.field == field


# -- exact to the bit -----------------------------------------------------------------------------


def test_every_pattern_of_16_bits():
    size, mantissa, nan = FLOATS[0][1:]
    dtype = from_json("float16")
    for pattern in range(1 << 16):
        fill = from_bits("float16", pattern)
        written = dtype.write_fill(fill)
        raw = pattern.to_bytes(2, "little")
        finite = struct.unpack("<e", raw)[0]
        assert written == (spelling(pattern, size, mantissa, nan) or finite)
        assert bits(dtype.read_fill(json.loads(json.dumps(written)))) == raw.hex()


@settings(deadline=None)
@given(st.sampled_from(FLOATS[1:]), st.integers(0, 2**64 - 1))
@example(FLOATS[1], 0x7F800001)  # a signalling NaN
@example(FLOATS[1], 0xFFC00000)
@example(FLOATS[1], 0x80000000)  # -0.0
@example(FLOATS[2], 0x7FF0000000000001)
@example(FLOATS[2], 0x8000000000000000)
@example(FLOATS[2], 0x0000000000000001)
def test_patterns_of_32_and_64_bits(row, pattern):
    name, size, mantissa, nan = row
    pattern &= (1 << 8 * size) - 1
    fill = from_bits(name, pattern)
    special = spelling(pattern, size, mantissa, nan)
    written = from_json(name).write_fill(fill)
    assert written == special if special else type(written) is float
    assert bits(through_json(name, fill)) == pattern.to_bytes(size, "little").hex()
    spelt = f"0x{pattern:0{2 * size}x}"
    for text in (spelt, "0x" + spelt[2:].upper()):
        assert bits(from_json(name).read_fill(text)) == pattern.to_bytes(size, "little").hex()


@settings(deadline=None)
@given(st.sampled_from(COMPLEX), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
@example(COMPLEX[0], 0x7FA00000, 0x80000000)
@example(COMPLEX[1], 0xFFF8000000000000, 0x7FF0000000000001)
def test_patterns_of_complex_numbers(row, real, imaginary):
    name, size = row
    mask = (1 << 8 * size) - 1
    fill = from_bits(name, real & mask, imaginary & mask)
    written = from_json(name).write_fill(fill)
    assert isinstance(written, list)
    assert len(written) == 2
    assert bits(through_json(name, fill)) == bits(fill)


@settings(deadline=None)
@given(st.data(), st.sampled_from(INTEGERS))
def test_integers(data, name):
    limits = np.iinfo(name)
    low, high = int(limits.min), int(limits.max)
    value = data.draw(st.integers(low, high) | st.sampled_from([low, high]))
    dtype = from_json(name)
    fill = dtype.read_fill(value)
    assert fill == value
    assert dtype.write_fill(fill) == value
    assert type(dtype.write_fill(fill)) is int
    for beyond in (low - 1, high + 1):
        with pytest.raises(MetadataError, match=f"fill_value.*{name}.*{low} to {high}"):
            dtype.read_fill(beyond)


@pytest.mark.parametrize("value", [True, False])
def test_booleans(value):
    dtype = from_json("bool")
    assert dtype.read_fill(value)[()] is np.bool(value)
    assert dtype.write_fill(dtype.read_fill(value)) is value


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=20))
def test_raw_bits_as_a_list_and_as_base64(data):
    dtype = from_json(f"r{8 * len(data)}")
    for form in (list(data), base64.b64encode(data).decode()):
        assert dtype.read_fill(form).tobytes() == data
    assert dtype.write_fill(dtype.read_fill(list(data))) == list(data)
    assert through_json(dtype.name, dtype.read_fill(list(data))).tobytes() == data


@pytest.mark.parametrize(("name", "size", "mantissa", "nan"), FLOATS)
def test_words_for_floats(name, size, mantissa, nan):
    read = from_json(name).read_fill
    infinity = ((1 << (8 * size - 1 - mantissa)) - 1) << mantissa
    sign = 1 << (8 * size - 1)
    for word, pattern in {
        "NaN": nan,
        "Infinity": infinity,
        "+Infinity": infinity,
        "-Infinity": infinity | sign,
    }.items():
        assert bits(read(word)) == pattern.to_bytes(size, "little").hex()
    assert from_json(name).write_fill(read("+Infinity")) == "Infinity"  # only read, never written


def test_signed_zero_is_kept():
    assert bits(from_json("float32").read_fill(json.loads("-0.0"))) == "00000080"
    assert json.dumps(from_json("float32").write_fill(from_bits("float32", 0x80000000))) == "-0.0"


# -- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "pattern"),
    [
        ("float16", 2049, 0x6800),  # between 2048 and 2050
        ("float16", 2051, 0x6802),  # between 2050 and 2052
        ("float16", 2.0**-25, 0x0000),  # between 0 and the smallest
        ("float16", 3 * 2.0**-25, 0x0002),
        ("float16", 65519, 0x7BFF),  # the largest is 65504
        ("float16", 0.1, 0x2E66),
        ("float32", 16777217, 0x4B800000),
        ("float32", 16777219, 0x4B800002),
        ("float32", 0.1, 0x3DCCCCCD),
        ("float64", 0.1, 0x3FB999999999999A),
        ("float64", 9007199254740993, 0x4340000000000000),
        ("float64", 9007199254740995, 0x4340000000000002),
    ],
)
def test_numbers_round_half_to_even(name, value, pattern):
    assert bits(from_json(name).read_fill(value)) == pattern.to_bytes(np.dtype(name).itemsize, "little").hex()


@settings(deadline=None)
@given(st.sampled_from(FLOATS[:2]), st.floats(allow_nan=False, allow_infinity=False))
@example(FLOATS[0], 2049.0)
@example(FLOATS[1], 16777219.0)
def test_no_other_number_is_nearer(row, value):
    name = row[0]
    assume(abs(value) <= float(np.finfo(name).max))
    found = from_json(name).read_fill(value)[()]
    error = abs(Fraction(value) - Fraction(float(found)))
    for towards in (-np.inf, np.inf):
        with np.errstate(over="ignore"):
            neighbour = np.nextafter(found, np.array(towards, name))
        if math.isfinite(neighbour):
            other = abs(Fraction(value) - Fraction(float(neighbour)))
            assert error < other or (error == other and int(bits(found[...])[:2], 16) % 2 == 0)


# -- refused fill values --------------------------------------------------------------------------

REFUSED = {
    "bool": [2, -1, "0", "true", None, [], 0.0, 1.0, "NaN"],
    "int8": [None, True, 1.0, 1e2, "1", [], {}, -129, 128, 10**400, "NaN", [1]],
    "uint64": [-1, 2**64, False, 0.0, "0x00", None],
    "float16": [None, True, "", "nan", "inf", "1.0", [], {}, "0x7e0", "0x07e00", "7e00", "0x7e0g", "0x7e_0", "0x 7e0"],
    "float32": ["0x7fc0000", "0x7fc000000", "0X7fc00000", "0x+7fc0000", "Inf", "infinity", "++Infinity", [1.0], "-NaN"],
    "float64": ["0x7ff8", "0x7fc00000", "0x" + "0" * 17, False, 10**400, -(10**400), math.inf, math.nan, "1e3"],
    "complex64": [
        None,
        0,
        1.5,
        "NaN",
        [],
        [1],
        [1, 2, 3],
        [1, True],
        [1, None],
        [1, "0x00"],
        {"re": 1},
        [1, [2]],
        "ab",
    ],
    "complex128": [[0, "0x7fc00000"], [10**400, 0], [math.nan, 0], [0, "nan"]],
    "r16": [
        None,
        0,
        [],
        [1],
        [1, 2, 3],
        [1, 256],
        [1, -1],
        [1, 2.0],
        [1, True],
        ["1", 2],
        "",
        "AQ==",
        "AQID",
        "AQ I",
        "é",
    ],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_refused_fill_values(name, value):
    with pytest.raises(MetadataError, match="fill_value") as info:
        from_json(name).read_fill(value)
    assert info.value.field == "fill_value"


# -- what users give ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("int8", 5, 5),
        ("int8", 5.0, 5),
        ("int8", True, 1),
        ("int8", np.int64(-128), -128),
        ("uint8", np.array(255), 255),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int64", -(2**63), -(2**63)),
        ("bool", 1, True),
        ("bool", np.bool(False), False),
        ("float16", 2049, 2048.0),
        ("float32", 0.1, float(np.float32(0.1))),
        ("float64", Fraction(1, 4), 0.25),
        ("float32", ml_dtypes.bfloat16(1.5), 1.5),
        ("int8", ml_dtypes.int4(3), 3),
        ("float64", "-Infinity", -math.inf),
        ("float32", math.inf, math.inf),
        ("float32", np.float64(-math.inf), -math.inf),
        ("complex64", 1.5, 1.5),
        ("complex64", 1 + 2j, 1 + 2j),
        ("complex64", (1, "Infinity"), complex(1, math.inf)),
        ("complex128", [1, 2], 1 + 2j),
        ("r24", b"abc", b"abc"),
        ("r24", bytearray(b"abc"), b"abc"),
        ("r24", np.void(b"abc"), b"abc"),
        ("r24", [97, 98, 99], b"abc"),
        ("r24", "YWJj", b"abc"),
    ],
)
def test_values_that_a_type_can_hold(name, value, expected):
    fill = from_json(name).cast_fill(value)
    assert fill.shape == ()
    assert fill.dtype == from_json(name).numpy
    assert (fill.tobytes() if name[0] == "r" else fill[()]) == expected
    assert not fill.flags.writeable


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", "complex128"])
def test_nan_and_its_payload(name):
    assert np.isnan(from_json(name).cast_fill(math.nan))
    size = np.dtype(name).itemsize
    ours = from_json(name).cast_fill(np.frombuffer(b"\xff" * size, name)[0])
    assert bits(ours) == "ff" * size


LOSSY = [
    ("uint8", 300),
    ("uint8", -1),
    ("int8", 128),
    ("int8", 1.5),
    ("int64", math.nan),
    ("int8", math.nan),
    ("uint16", math.inf),
    ("int64", 2.0**63),
    ("int64", 2**63),
    ("uint64", 2.0**64),
    ("uint64", -1),
    ("int64", np.uint64(2**64 - 1)),
    ("uint64", np.int64(-1)),
    ("int32", 10**400),
    ("float64", 10**400),
    ("bool", 2),
    ("bool", 0.5),
    ("bool", math.nan),
    ("int8", 1 + 2j),
    ("float64", 1 + 2j),
    ("float64", 1 + 0j),
    ("float64", np.array("5")),
    ("float64", np.datetime64("2020-01-01")),
    ("float32", np.complex64(2j)),
    ("float16", 65520),
    ("float16", 1e6),
    ("float16", 2**64),
    ("complex64", [1e300, 0]),
    ("float32", 1e39),
    ("float32", np.float64(-1e300)),
    ("complex64", 1e39),
    ("complex64", complex(0, -1e39)),
    ("int8", "5"),
    ("int8", b"5"),
    ("int8", [1, 2]),
    ("int8", np.array([1])),
    ("float64", np.array([[1.0]])),
    ("float64", {}),
    ("float64", "one"),
    ("float32", "0x7ff8000000000000"),
    ("complex64", (1, 2, 3)),
    ("r24", b"ab"),
    ("r24", b"abcd"),
    ("r24", [1, 2]),
    ("r24", [1, 2, 256]),
    ("r64", 5),
    ("r64", 5.0),
    ("r24", "YWI="),
]


@pytest.mark.parametrize(("name", "value"), LOSSY, ids=[f"{name} {str(value)[:20]}" for name, value in LOSSY])
def test_values_that_a_type_cannot_hold(name, value):
    with pytest.raises(MetadataError, match="fill_value") as info:
        from_json(name).cast_fill(value)
    assert info.value.field == "fill_value"
