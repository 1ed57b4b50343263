"""Data types and fill values of Zarr v2: what is read, what is written, what is refused."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from zellige import dtypes
from zellige.dtypes.cast import as_values
from zellige.dtypes.fill import equals_fill, fill_bits
from zellige.dtypes.v2 import (
    as_native,
    byte_orders,
    declared,
    filter_type,
    from_v2,
    has_subarrays,
    read_v2_fill,
    to_v2,
    write_v2_fill,
)
from zellige.errors import CodecError, MetadataError, PickleCodecDisabledError, UnknownDataTypeError

STRUCT = [["a", "<i4"], ["b", ">f8"], ["z", "<f4", [2, 2]], ["p", [["x", "<f4"], ["t", "|b1"]]]]


def packed(*values, dtype):
    return base64.b64encode(np.array(values[0] if len(values) == 1 else values, dtype).tobytes()).decode()


# -- types ----------------------------------------------------------------------------------------

SIMPLE = {
    "|b1": "bool",
    "|i1": "int8",
    "|u1": "uint8",
    **{f"{o}{k}{n}": f"{name}{8 * n}" for o in "<>" for k, name in (("i", "int"), ("u", "uint")) for n in (2, 4, 8)},
    **{f"{o}f{n}": f"float{8 * n}" for o in "<>" for n in (2, 4, 8)},
    **{f"{o}c{n}": f"complex{8 * n}" for o in "<>" for n in (8, 16)},
    "|S4": "null_terminated_bytes",
    "<U3": "fixed_length_utf32",
    ">U3": "fixed_length_utf32",
    "|V5": "raw_bytes",
    "<M8[ns]": "numpy.datetime64",
    ">M8[10s]": "numpy.datetime64",
    "<m8[25us]": "numpy.timedelta64",
}


@pytest.mark.parametrize(("value", "name"), SIMPLE.items())
def test_simple_types(value, name):
    found = from_v2(value, None)
    assert found.name == name
    assert found.numpy == np.dtype(value).newbyteorder("=")
    assert found.numpy.isnative
    assert declared(value).str == np.dtype(value).str
    assert found == dtypes.from_json(found.to_json())  # so that Zarr v3 can say it
    assert to_v2(np.dtype(value)) == value
    assert to_v2(found) == value.replace(">", "<")
    assert to_v2(found, "big") == value.replace("<", ">")


@pytest.mark.parametrize("value", ["<u1", ">i1", "<b1", ">S4", "<V5"])
def test_bytes_may_have_a_byte_order(value):
    assert from_v2(value, None).numpy == np.dtype(value)
    assert byte_orders(declared(value)) == set()


def test_structs_of_one_byte_order_are_those_of_v3():
    for order in "<>":
        value = [["a", f"{order}i4"], ["b", "|b1"], ["p", [["x", f"{order}U3"], ["y", f"{order}M8[s]"]]]]
        found = from_v2(value, None)
        assert found.name == "struct"
        assert found == dtypes.from_json(found.to_json())
        assert len(byte_orders(declared(value))) == 1
        assert to_v2(declared(value)) == value


def test_structs_of_two_byte_orders():
    value = [["a", "<i4"], ["b", ">f8"]]
    assert byte_orders(declared(value)) == {"little", "big"}
    assert from_v2(value, None) == from_v2([["a", "<i4"], ["b", "<f8"]], None)
    assert to_v2(declared(value)) == value


def test_structs_with_arrays_in_them():
    found = from_v2(STRUCT, None)
    assert found.numpy == np.dtype([("a", "i4"), ("b", "f8"), ("z", "f4", (2, 2)), ("p", [("x", "f4"), ("t", "?")])])
    assert has_subarrays(declared(STRUCT))
    assert to_v2(declared(STRUCT)) == STRUCT
    assert to_v2(found) == json.loads(json.dumps(STRUCT).replace(">", "<"))
    with pytest.raises(UnknownDataTypeError, match="Zarr v3 has no data type"):
        found.to_json()
    assert "(2, 2)" in found.label


def test_padding_has_no_name_in_the_document():
    value = [["a", "|u1"], ["", "|V3"], ["b", "<i4"]]
    assert from_v2(value, None).numpy.names == ("a", "f1", "b")


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        ("vlen-utf8", "string"),
        ("categorize", "string"),
        ("vlen-bytes", "bytes"),
        ("json2", "object"),
        ("msgpack2", "object"),
        ("vlen-array", "object"),
    ],
)
def test_objects_are_what_the_first_filter_says(codec, name):
    found = from_v2("|O", codec, "<i4")
    assert found.name == name
    assert to_v2(found) == "|O"
    assert declared("|O") == np.dtype(object)
    if name == "object":
        assert found.label == "object"
        with pytest.raises(UnknownDataTypeError):
            found.to_json()


@pytest.mark.parametrize("codec", [None, "zlib", "delta", "nope"])
def test_objects_need_a_filter_for_objects(codec):
    with pytest.raises(MetadataError, match="what the objects are") as info:
        from_v2("|O", codec)
    assert info.value.field == "filters"


def test_pickles_are_refused():
    with pytest.raises(PickleCodecDisabledError, match="runs code"):
        from_v2("|O", "pickle")


REFUSED = [
    # the path in the error, and values of the field
    ("dtype", [None, 4, True, {}, [], (), "", "i4", "=i4", "|i4", "|f8", "|U3", "<i3", "<f16", "<c4", "float32", "<O"]),
    ("dtype", ["<M8", "<M8[]", "<M8[generic]", "|M8[s]", "<M8[0s]", "<M8[s/2]", "<M8[μs]", "<M4[s]", "<m8[ns]s"]),
    ("dtype", ["|S0", "|S", "<U", "<U0", "|V0", "|S01", "<i4 ", " <i4", "<i4\n", "<i４"]),
    ("dtype", ["|S9999999999", "<U999999999", "|V3000000000", "<M8[2147483648s]"]),
    # What numpy would evaluate.
    ("dtype", ["(2,3)i4", "i4,f4", "<i4, <f4", "(2,3)<i4", "3<i4", "<i4:[2]", "O", "V", "void", "a5"]),
    ("dtype[0]", [["<i4"], [[]], [["a"]], [["a", "<i4", [2], 1]], [[1, "<i4"]], [{"a": "<i4"}], [None], ["ab"]]),
    ("dtype[0][1]", [[["a", "i4"]], [["a", None]], [["a", []]], [["a", "|O"]], [["a", "i4,f4"]], [["a", {"x": 1}]]]),
    ("dtype[0][2]", [[["a", "<i4", v]] for v in (2, None, [], [0], [-1], [2.0], [True], "2", [2**31], [2] * 33)]),
    ("dtype[0][2]", [[["a", "<i4", [2**16, 2**16]]], [["a", "|S2000000000", [2]]]]),
    ("dtype[1]", [[["a", "<i4"], ["a", "<i4"]], [["a", "<i4"], 1]]),
    ("dtype[0][1][0][1]", [[["a", [["b", "<i5"]]]]]),
    ("dtype", [[["a", "|S2000000000"], ["b", "|S2000000000"]]]),
]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in REFUSED for value in values])
def test_refused_types(field, value):
    with pytest.raises(MetadataError) as info:
        from_v2(value, None)
    assert info.value.field == field
    assert field in str(info.value)


def test_structs_nested_without_end_are_refused():
    value = "<i4"
    for _ in range(20_000):
        value = [["a", value]]
    with pytest.raises(MetadataError, match="nested"):
        from_v2(value, None)


@pytest.mark.parametrize("value", ["bfloat16", "int4", "complex_bfloat16", [("x", "int4")], "M8", [("t", "m8")]])
def test_types_that_zarr_v2_does_not_have(value):
    with pytest.raises(UnknownDataTypeError):
        to_v2(value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("float32", "<f4"),
        (">f4", ">f4"),
        (np.dtype(">c8"), ">c8"),
        (int, "<i8"),
        (bool, "|b1"),
        (str, "|O"),
        ("string", "|O"),
        ("bytes", "|O"),
        ("r40", "|V5"),
        ({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 10}}, "<M8[10s]"),
        ([("x", ">i2"), ("y", "f4")], [["x", ">i2"], ["y", "<f4"]]),
        (np.dtype([("x", "u1"), ("y", "<f4")], align=True), [["x", "|u1"], ["y", "<f4"]]),
        ([("x", ">i2", (2,))], [["x", ">i2", [2]]]),
    ],
    ids=str,
)
def test_what_users_give_for_a_type(value, written):
    assert to_v2(value) == written


@pytest.mark.parametrize(
    "value", ["<i4", "i4", "=i4", "int16", "float64", "bool", "?", "|O", "object", "<M8[ns]", "<U5"]
)
def test_types_in_filters(value):
    assert filter_type(value, "x") == np.dtype(value)


REFUSED_IN_FILTERS = ["(2,3)i4", "i4,f4", "", None, 4, "V5", "<i3", ["a"], "U99999999", "f", "int", "longdouble"]
REFUSED_IN_FILTERS += ["|S9999999999", "<U999999999", "<M8[9999999999s]", "<M8"]


@pytest.mark.parametrize("value", REFUSED_IN_FILTERS)
def test_refused_types_in_filters(value):
    with pytest.raises(MetadataError) as info:
        filter_type(value, "filters[0].dtype")
    assert info.value.field == "filters[0].dtype"


# -- fill values ----------------------------------------------------------------------------------

MIXED = [["a", "<i4"], ["b", ">f8"]]
FILLS = [
    # dtype, JSON, the value, what is written for it (the same unless given)
    ("|b1", True, True),
    ("|b1", 0, False, False),
    ("|b1", 1, True, True),
    ("|b1", 1.0, True, True),
    ("|i1", -128, -128),
    (">u8", 2**64 - 1, 2**64 - 1),
    ("<i4", 1.0, 1, 1),
    ("<i4", "-9999", -9999, -9999),
    (">u2", "0.0", 0, 0),
    ("<f4", "0", 0.0, 0.0),
    (">f8", "-1.5e3", -1500.0, -1500.0),
    ("<f8", "-0.0", -0.0, -0.0),
    ("<i4", -0.0, 0, 0),
    ("<f4", 1, 1.0, 1.0),
    ("<f8", -0.0, -0.0),
    (">f8", 1e300, 1e300),
    ("<f2", "NaN", np.nan),
    ("<f4", "Infinity", np.inf),
    (">f4", "-Infinity", -np.inf),
    ("<c8", [1.0, "-Infinity"], complex(1, -np.inf)),
    (">c16", [0.0, -0.0], complex(0, -0.0)),
    ("<M8[ns]", 86400, np.datetime64(86400, "ns")),
    (">m8[10s]", -5, np.timedelta64(-50, "s")),
    ("|S4", "YWI=", b"ab"),
    ("|S4", "YWIAAA==", b"ab", "YWI="),
    ("|S4", "", b""),
    ("|S4", 0, b"", ""),
    ("<U3", "añ", "añ"),
    (">U3", "日本", "日本"),
    (">U3", 0, "", ""),
    ("|V2", "AP8=", np.void(b"\0\xff")),
    ("|V2", 0, np.void(b"\0\0"), "AAA="),
    (MIXED, packed((7, 2.5), dtype=declared(MIXED)), np.array((7, 2.5), "i4,f8")),
    (MIXED, 0, np.array((0, 0), "i4,f8"), "AAAAAAAAAAAAAAAA"),
]


@pytest.mark.parametrize("case", FILLS, ids=lambda case: f"{case[0]} {case[1]}")
def test_fill_values(case):
    dtype, value, expected, *written = case
    found, stored = from_v2(dtype, None), declared(dtype)
    fill = read_v2_fill(found, stored, value)
    assert (fill.shape, fill.dtype) == ((), found.numpy)
    assert fill.tobytes() == np.array(expected).astype(found.numpy).tobytes()
    assert not fill.flags.writeable
    assert json.dumps(write_v2_fill(found, stored, fill)) == json.dumps(written[0] if written else value)


@pytest.mark.parametrize("value", ["NaT", -(2**63)])
@pytest.mark.parametrize("dtype", ["<M8[ns]", ">m8[s]"])
def test_no_time(dtype, value):
    found = from_v2(dtype, None)
    fill = read_v2_fill(found, declared(dtype), value)
    assert np.isnat(fill)
    assert write_v2_fill(found, declared(dtype), fill) == -(2**63)  # as zarr-python writes it


def test_structs_with_arrays_have_fill_values_too():
    found, stored = from_v2(STRUCT, None), declared(STRUCT)
    value = packed((1, 2.0, [[1, 2], [3, 4]], (5, True)), dtype=stored)
    fill = read_v2_fill(found, stored, value)
    assert fill["z"].tolist() == [[1, 2], [3, 4]]
    assert write_v2_fill(found, stored, fill) == value
    assert found.cast_fill((1, 2.0, [[1, 2], [3, 4]], (5, True))) == fill
    assert found.cast_fill(None) == found.zero
    for lossy in ("nonsense", 1e300, (2**40, 2.0, [[1, 2], [3, 4]], (5, True))):
        with pytest.raises(MetadataError):
            found.cast_fill(lossy)
    with pytest.raises(MetadataError):
        found.read_fill(value)


NULLS = [
    *((dtype, None, 0) for dtype in ("|b1", "<i4", ">f8", "<c8")),
    ("|S3", None, b""),
    ("<U3", None, ""),
    ("|V2", None, np.void(b"\0\0")),
    ("|O", "vlen-utf8", ""),
    ("|O", "categorize", ""),
    ("|O", "vlen-bytes", b""),
    ("|O", "json2", None),
]


@pytest.mark.parametrize(("dtype", "codec", "expected"), NULLS)
def test_null_is_nothing(dtype, codec, expected):
    fill = read_v2_fill(from_v2(dtype, codec), declared(dtype), None)
    assert fill.item() == (expected.item() if isinstance(expected, np.void) else expected)


def test_null_is_no_time():
    assert np.isnat(read_v2_fill(from_v2("<M8[s]", None), declared("<M8[s]"), None))
    struct = [["t", "<M8[s]"], ["n", "<i4"]]
    assert np.isnat(read_v2_fill(from_v2(struct, None), declared(struct), None)["t"])


@pytest.mark.parametrize(
    ("codec", "value", "expected", "written"),
    [
        ("vlen-utf8", "añ", "añ", "añ"),
        ("vlen-utf8", 0, "", ""),  # older writers meant nothing by it
        ("categorize", "x", "x", "x"),
        ("vlen-bytes", "YWI=", b"ab", "YWI="),
        ("vlen-bytes", 0, b"", ""),
        ("json2", {"a": [1, None]}, {"a": [1, None]}, {"a": [1, None]}),
        ("json2", 0, 0, 0),
        ("msgpack2", [1, 2], [1, 2], [1, 2]),
    ],
)
def test_fill_values_of_objects(codec, value, expected, written):
    found = from_v2("|O", codec)
    fill = read_v2_fill(found, declared("|O"), value)
    assert fill.shape == ()
    assert fill.item() == expected
    assert write_v2_fill(found, declared("|O"), fill) == written


def test_fill_values_of_objects_from_users():
    found = from_v2("|O", "json2")
    assert found.cast_fill([1, 2]).item() == [1, 2]
    assert found.cast_fill(np.array("a", object)).item() == "a"
    assert found.cast_fill(None).item() is None
    assert found.zero.item() is None
    assert found.read_fill([1]).item() == [1]
    assert found.write_fill(found.cast_fill([1])) == [1]
    with pytest.raises(MetadataError, match="no form in JSON"):
        write_v2_fill(found, declared("|O"), found.cast_fill({1, 2}))


def test_fill_values_of_arrays():
    found, stored = from_v2("|O", "vlen-array", ">i4"), declared("|O")
    for value, expected in ((None, []), (0, []), ([], []), ([1, 2], [1, 2])):
        item = read_v2_fill(found, stored, value).item()
        assert (item.dtype, item.tolist()) == (np.dtype("i4"), expected)
        assert write_v2_fill(found, stored, found.cast_fill(item)) == expected
    assert found.zero.item().shape == (0,)
    for value in (1, "a", [[1]], ["a"], [1, [2]], {}, [2**40]):
        with pytest.raises(MetadataError) as info:
            read_v2_fill(found, stored, value)
        assert info.value.field == "fill_value"
    for dtype in (None, "|O", "i4,f4"):
        with pytest.raises(MetadataError) as info:
            from_v2("|O", "vlen-array", dtype)
        assert info.value.field == "filters[0].dtype"


def test_there_is_one_nan():
    for dtype, bits in (("<f4", "0x7fc00001"), ("<c8", ["0x7f800001", 0.0])):
        found = from_v2(dtype, None)
        written = write_v2_fill(found, declared(dtype), found.read_fill(bits))
        assert written == ("NaN" if dtype == "<f4" else ["NaN", 0.0])


REFUSED_FILLS = [
    ("|b1", [2, -1, 0.5, "true", "", [], {}]),
    ("<i2", [2**15, 1.5, "1.5", "32768", "1e2", "0x1", "", "1 ", "NaN", True, [], {}, 1e400, float("nan"), 10**400]),
    ("|u1", [-1, 256, -1.0]),
    ("<f4", ["0x7fc00000", "nan", "inf", "+Infinity", "", "1e400", "1.0.0", " 1", "1_0", True, [], [1.0], {}]),
    ("<c8", [1.0, [1.0], [1, 2, 3], "NaN", ["0x7fc00000", 0], [[1], 2], [True, 0]]),
    ("<M8[s]", ["1970-01-01", 1.0, 2**63, True, "", "nat", []]),
    ("|S2", ["YWJj", "!", "ab c", "YWI", 1, True, [97], {}]),
    ("<U2", ["abc", 1, True, [], "\ud800"]),
    ("|V2", ["YQ==", "", "YWJj", 1, [0, 255], {}]),
    ([["a", "<i4"]], ["AAAA", "", 1, {"a": 1}, [0, 0, 0, 0]]),
    ([["a", "|b1"]], ["Ag=="]),
    ([["a", "<U1"]], ["/////w=="]),
]


@pytest.mark.parametrize(("dtype", "value"), [(dtype, value) for dtype, values in REFUSED_FILLS for value in values])
def test_refused_fill_values(dtype, value):
    with pytest.raises(MetadataError) as info:
        read_v2_fill(from_v2(dtype, None), declared(dtype), value)
    assert info.value.field == "fill_value"


@pytest.mark.parametrize(
    ("codec", "value"), [("vlen-utf8", 1), ("vlen-utf8", []), ("vlen-bytes", "!"), ("vlen-bytes", [1])]
)
def test_refused_fill_values_of_objects(codec, value):
    with pytest.raises(MetadataError) as info:
        read_v2_fill(from_v2("|O", codec), declared("|O"), value)
    assert info.value.field == "fill_value"


# -- elements -------------------------------------------------------------------------------------


def test_bytes_that_mean_nothing_are_refused():
    for dtype, raw in (("|b1", b"\2"), (">U1", b"\xff" * 4), ([["a", "<i2"], ["z", "|b1", [2]]], b"\0\0\1\2")):
        stored = declared(dtype)
        with pytest.raises(CodecError):
            as_native(np.frombuffer(raw, stored), stored.newbyteorder("="))


def boxed(*items):
    array = np.empty(len(items), object)
    for i, item in enumerate(items):
        array[i] = item
    return array


def fill_of(item):
    return from_v2("|O", "json2").cast_fill(item)


ITEMS = [None, 0, 0.0, -0.0, False, "", b"", "a", [], [1], [True], [[1], {"a": 1}], {}, {"a": [1]}, {"a": [1.0]}]
ITEMS += [np.array([1, 2]), np.array([1.0, 2.0]), np.array([]), (1,)]


def copied(item):
    return item.copy() if hasattr(item, "copy") else item


@pytest.mark.parametrize("k", range(len(ITEMS)))
def test_objects_equal_the_fill_value_only_if_all_of_them_are_the_same(k):
    for j, item in enumerate(ITEMS):
        chunk, fill = boxed(copied(item), copied(item)), fill_of(copied(ITEMS[k]))
        assert equals_fill(chunk, fill) == (j == k)
        assert not equals_fill(boxed(item, ITEMS[k - 1]), fill)
        assert (fill_bits(fill) == fill_bits(fill_of(item))) == (j == k)


def test_objects_that_are_not_known_here_are_never_the_same():
    assert not equals_fill(boxed({1}), fill_of({1}))
    same = {1}
    assert equals_fill(boxed(same), fill_of(same))


def test_any_objects_may_be_written_where_the_type_says_so():
    dtype = from_v2("|O", "json2").numpy
    values = boxed(1, [2], {"a": 3}, None, np.arange(3))
    assert as_values(values, dtype).tolist()[:4] == [1, [2], {"a": 3}, None]
    assert as_values({"a": 1}, dtype).item() == {"a": 1}
    assert as_values([1, "b", None], dtype).tolist() == [1, "b", None]
    with pytest.raises(TypeError, match="takes bytes"):
        as_values(values, dtypes.from_json("bytes").numpy)
