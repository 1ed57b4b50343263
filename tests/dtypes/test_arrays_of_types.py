"""Arrays of every data type beyond the core, in every kind of grid; numpy is the oracle."""

from __future__ import annotations

import datetime
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zellige
from zellige.dtypes.cast import as_values
from zellige.errors import BroadcastError, ChunkNotFoundError, MetadataError

STRING = np.dtypes.StringDType()
TEXTS = ["a", "bcd", "", "日本", "a\0b", "x" * 300, "é" * 20, "\U0001f600"]
BLOBS = [b"a", b"\0\xff", b"", b"\0", b"x" * 300, b"trailing\0", b"yz", b"\n"]
NESTED = np.dtype([("p", [("x", "i2"), ("b", ml_dtypes.bfloat16)]), ("t", "U2"), ("q", "?"), ("n", ml_dtypes.int4)])
NUMBERS = [1, -1, 0.5, 0, 2, -0.0, 1.5, -2]


def objects(items):
    found = np.empty(len(items), object)
    found[:] = items
    return found


# eight elements of each type, and the name of the type where numpy's own says another
TYPES = {
    "string": (np.array(TEXTS, STRING), None),
    "bytes": (objects(BLOBS), "bytes"),
    "U3": (np.array(["a", "é", "", "日本", "abc", "x\0y", "\U0001f600", "z"], "U3"), None),
    "S3": (np.array([b"a", b"\xff", b"", b"ab", b"abc", b"x\0y", b"q", b"z"], "S3"), None),
    "r24": (np.array([b"abc", b"\0\0\0", b"\0\0\1", b"xyz"] * 2, "V3"), None),
    "raw_bytes": (
        np.array([b"abc", b"\0\0\0", b"\0\0\1", b"xyz"] * 2, "V3"),
        {"name": "raw_bytes", "configuration": {"length_bytes": 3}},
    ),
    "datetime64[s]": (np.array(["1970-01-02", "NaT", "2020-02-29", "1900"] * 2, "M8[s]"), None),
    "timedelta64[10us]": (np.array([1, -1, "NaT", 2**62] * 2, "m8[10us]"), None),
    "struct": (
        np.array([(k, 2 * k, -k / 2, str(k), k) for k in range(8)], "i2,u1,f4,S2,M8[D]"),
        None,
    ),
    "nested": (np.array([((k, k / 2), f"é{k}", k % 2, k - 4) for k in range(8)], NESTED), None),
    "int4": (np.array([1, -1, -8, 7, 0, 2, 3, -3], ml_dtypes.int4), None),
    "uint2": (np.array([0, 1, 2, 3] * 2, ml_dtypes.uint2), None),
    "float8_e8m0fnu": (np.array([1, 2, 4, 0.5, 8, 2.0**-120, 2.0**100, 16], ml_dtypes.float8_e8m0fnu), None),
}
for _name in ("bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3"):
    TYPES[_name] = (np.array(NUMBERS).astype(getattr(ml_dtypes, _name)), None)
for _name in ("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"):
    TYPES[_name] = (np.array(NUMBERS).astype(getattr(ml_dtypes, _name)), None)
TYPES["complex_float16"] = (np.array([1 + 2j, -1, 0, 1j] * 2).astype(ml_dtypes.complex32), None)
TYPES["complex_bfloat16"] = (np.array([1 + 2j, -1, 0, 1j] * 2).astype(ml_dtypes.bcomplex32), None)

LAYOUTS = {
    "regular": {"chunks": (2, 3)},
    "rectilinear": {"chunks": ([1, 2, 1], [4, 2])},
    "sharded": {"chunks": (1, 2), "shards": (2, 4)},
    "sharded, rectilinear": {"chunks": (1, 2), "shards": ([1, 3], [4, 2])},
    "raw": {"chunks": (3, 4), "compressors": None},
    "transposed": {"chunks": (2, 3), "filters": [{"name": "transpose", "configuration": {"order": [1, 0]}}]},
}
each_type = pytest.mark.parametrize(("data", "dtype"), TYPES.values(), ids=TYPES)
each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def model_of(data):
    """A (4, 6) array out of a row of elements."""
    return data[np.resize(np.arange(len(data)), (4, 6))]


def same(found, expected):
    """Equal to the bit, in the same type."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if found.dtype.hasobject:
        return found.tolist() == expected.tolist()
    return found.tobytes() == expected.tobytes()


# -- the life of an array -------------------------------------------------------------------------


@each_layout
@each_type
def test_write_and_read(data, dtype, layout):
    model = model_of(data)
    array = zellige.create_array(data=model, dtype=dtype, **layout)
    assert array.dtype == model.dtype
    assert same(array[...], model)
    again = zellige.open(array.store, mode="r")
    for index in (np.s_[1:3, 2:5], np.s_[::2, ::-1], np.s_[3], np.s_[..., 1], np.s_[[0, 3, 0], [5, 1, 5]], np.s_[-1:]):
        assert same(again[index], model[index]), index
    assert same(again.oindex[[2, 0], [1, 5]], model[np.ix_([2, 0], [1, 5])])
    assert type(again[2, 4]) is type(model[2, 4])
    assert same(again[2:3, 4], model[2:3, 4])


@each_layout
@each_type
def test_write_parts(data, dtype, layout):
    model = model_of(data)
    array = zellige.create_array(shape=model.shape, dtype=dtype or model.dtype, **layout)
    expected = np.full(model.shape, array.fill_value, model.dtype)
    assert same(array[...], expected)  # nothing is stored
    for index in (np.s_[1:3, 2:5], np.s_[::2, ::3], np.s_[3, 3], np.s_[[0, 2], [1, 1]], np.s_[:, -1]):
        expected[index] = model[index]
        array[index] = model[index]
        assert same(array[...], expected), index


@each_layout
@each_type
def test_fill_values_are_not_stored(data, dtype, layout):
    fill = data[1] if data.dtype.kind != "V" or data.dtype.isbuiltin == 2 else data[1, ...]
    array = zellige.create_array(shape=(4, 6), dtype=dtype or data.dtype, fill_value=fill, **layout)
    array[...] = fill
    assert array.nchunks_initialized == 0
    assert same(array[...], np.full((4, 6), data[1], data.dtype))
    array[0, 0] = data[0]
    assert array._chunks.count(array.grid) == 1
    array[0, 0] = fill
    assert array.nchunks_initialized == 0
    strict = array.with_config({"read_missing_chunks": False})
    with pytest.raises(ChunkNotFoundError):
        strict[...]
    kept = array.with_config({"write_empty_chunks": True})
    kept[...] = fill
    assert kept.nchunks_initialized == kept.nchunks
    assert same(strict[...], array[...])


@each_layout
@each_type
def test_resize_and_append(data, dtype, layout):
    model = model_of(data)
    array = zellige.create_array(data=model, dtype=dtype, **layout)
    array.append(model[:2])
    assert same(array[...], np.concatenate([model, model[:2]]))
    array.resize((3, 3))
    array.resize((5, 6))
    expected = np.full((5, 6), array.fill_value, model.dtype)
    expected[:3, :3] = model[:3, :3]
    assert same(array[...], expected)


@each_type
def test_copies_and_pickles(data, dtype):
    model = model_of(data)
    array = zellige.create_array(data=model, dtype=dtype, chunks=([1, 3], 2), fill_value=data[5, ...])
    for copy in (
        pickle.loads(pickle.dumps(array)),
        zellige.from_array(data=array),
        zellige.from_array(data=array, chunks=3),
        zellige.open(array.store),
    ):
        assert copy.metadata.data_type == array.metadata.data_type
        assert same(copy[...], model)
        assert same(np.array(copy.metadata.fill_value), np.array(array.metadata.fill_value))
    empty = zellige.zeros_like(array)
    assert same(empty[...], np.full((4, 6), array.metadata.data_type.zero, model.dtype))
    array.attrs["note"] = 1  # rewrites the document
    array.refresh()
    assert same(zellige.open(array.store)[...], model)
    assert same(np.array(list(array), model.dtype).reshape(model.shape), model)


@pytest.mark.parametrize("endian", ["little", "big"])
@each_type
def test_both_byte_orders(data, dtype, endian):
    array = zellige.create_array(shape=8, dtype=dtype or data.dtype)
    if not array.metadata.data_type.endian:
        return
    codec = {"name": "bytes", "configuration": {"endian": endian}}
    for compressors in (None, "zstd"):
        array = zellige.create_array(data=data, dtype=dtype, serializer=codec, compressors=compressors, chunks=3)
        assert same(array[...], data)
        assert same(array[4], data[4])
        assert same(array[1:7:2], data[1:7:2])
        array[2:5] = data[:3]
        assert same(array[...], np.concatenate([data[:2], data[:3], data[5:]]))
    with pytest.raises(MetadataError, match="needs a byte order"):
        zellige.create_array(data=data, dtype=dtype, serializer={"name": "bytes", "configuration": {}})


@each_type
def test_an_array_without_axes(data, dtype):
    array = zellige.create_array(shape=(), dtype=dtype or data.dtype)
    array[...] = data[3, ...] if data.dtype.kind == "O" else data[3]
    assert same(array[...], data[3, ...])
    assert same(zellige.open(array.store)[()], data[3])


@each_type
def test_into_an_array_that_is_there(data, dtype):
    model = model_of(data)
    array = zellige.create_array(data=model, dtype=dtype, chunks=(2, 3))
    out = np.empty((2, 3), model.dtype)
    assert array.get_basic_selection(np.s_[1:3, ::2], out=out) is out
    assert same(out, model[1:3, ::2])


@each_type
def test_what_is_shown(data, dtype):
    array = zellige.create_array(data=data, dtype=dtype)
    assert array.metadata.data_type.label in repr(array)
    assert str(array.fill_value) in repr(array.info)


# -- strings of any length ------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_strings_are_what_numpy_makes_of_them(data):
    texts = st.text(st.characters(codec="utf-8"), max_size=30)
    items = data.draw(st.lists(texts, min_size=1, max_size=12))
    model = np.array(items, STRING)
    edges = data.draw(st.lists(st.integers(1, 5), min_size=1).filter(lambda e: sum(e) >= len(items)))
    array = zellige.create_array(data=model, chunks=[edges], compressors=data.draw(st.sampled_from([None, "zstd"])))
    assert array[:].tolist() == items
    start, step = data.draw(st.integers(0, len(items))), data.draw(st.integers(1, 3))
    value = data.draw(texts)
    model[start::step] = value
    array[start::step] = value
    assert array[:].tolist() == model.tolist()


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("string", "abc", ["abc"] * 3),
        ("string", np.str_("abc"), ["abc"] * 3),
        ("string", ["a", "b\0", ""], ["a", "b\0", ""]),
        ("string", np.array(["a", "bc", ""]), ["a", "bc", ""]),
        ("string", objects(["a", "bc", ""]), ["a", "bc", ""]),
        ("string", np.array(["a", "b", "c"], np.dtypes.StringDType(na_object=None)), ["a", "b", "c"]),
        ("bytes", b"ab\0", [b"ab\0"] * 3),
        ("bytes", bytearray(b"ab"), [b"ab"] * 3),
        ("bytes", memoryview(b"ab"), [b"ab"] * 3),
        ("bytes", [b"a\0", b"", b"\0"], [b"a\0", b"", b"\0"]),
        ("bytes", np.array([b"a", b"bc", b""]), [b"a", b"bc", b""]),
        ("bytes", np.array([b"a\0", b"bc", b"\0\0"], "V2"), [b"a\0", b"bc", b"\0\0"]),
        ("U2", np.array(["a", "bc", ""], STRING), ["a", "bc", ""]),
        ("U2", np.array(["a", "bc", ""], "U9"), ["a", "bc", ""]),
        ("U2", ["a", "bc", ""], ["a", "bc", ""]),
        ("S2", [b"a", b"bc", b""], [b"a", b"bc", b""]),
        ("M8[s]", datetime.datetime(1970, 1, 1, 0, 0, 5), [np.datetime64(5, "s")] * 3),
        ("M8[D]", [datetime.date(1970, 1, 2)] * 3, [np.datetime64(1, "D")] * 3),
        ("M8[D]", "1970-01-02", [np.datetime64(1, "D")] * 3),
        ("M8[D]", ["1970-01-02"] * 3, [np.datetime64(1, "D")] * 3),
        ("M8[s]", np.array([1, 2, 3], "M8[m]"), np.array([60, 120, 180], "M8[s]").tolist()),
        ("M8[s]", np.array([1, 2, 3]), np.array([1, 2, 3], "M8[s]").tolist()),
        ("m8[s]", datetime.timedelta(minutes=1), [np.timedelta64(60, "s")] * 3),
        ("m8[s]", [1, 2, 3], np.array([1, 2, 3], "m8[s]").tolist()),
        ("i2,f4", [(1, 2), (3, 4), (5, 6)], [(1, 2.0), (3, 4.0), (5, 6.0)]),
        ("i2,f4", (1, 2.5), [(1, 2.5)] * 3),
        ("i2,f4", np.array([(1, 2)] * 3, "f8,f8"), [(1, 2.0)] * 3),
        ("i2,f4", 7, [(7, 7.0)] * 3),
        ("bfloat16", np.array([1.5, 2.5, -1.0]), [1.5, 2.5, -1.0]),
        ("bfloat16", [1, 2, 3], [1, 2, 3]),
        ("int4", np.array([1, -8, 7]), [1, -8, 7]),
        ("float32", np.array([1.5, 2.5, 3], ml_dtypes.bfloat16), [1.5, 2.5, 3.0]),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_values_that_are_converted(dtype, value, expected):
    array = zellige.create_array(shape=3, dtype=dtype, chunks=2)
    array[:] = value
    assert same(array[:], np.array(expected, array.dtype) if dtype != "bytes" else objects(expected))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("string", 5),
        ("string", [1, 2, 3]),
        ("string", np.arange(3)),
        ("string", b"abc"),
        ("string", ["a", None, "c"]),
        ("string", np.array([b"a", b"b", b"c"])),
        ("string", np.array(["a", None, "c"], np.dtypes.StringDType(na_object=None))),
        ("string", np.array(["a", np.nan, "c"], np.dtypes.StringDType(na_object=np.nan))),
        ("string", np.array([1, 2, 3], "M8[s]")),
        ("bytes", "abc"),
        ("bytes", ["a", "b", "c"]),
        ("bytes", [b"a", None, b"c"]),
        ("bytes", 5),
        ("bytes", np.arange(3)),
        ("bytes", np.ones(3, ml_dtypes.bfloat16)),
        ("bytes", np.array([("a", b"b")] * 3, "O,O")),  # whose memory holds addresses
        ("U2", ["abc", "a", "b"]),
        ("U2", np.array(["abc", "a", "b"])),
        ("U2", 5),
        ("U2", b"a"),
        ("S2", [b"abc", b"a", b"b"]),
        ("S2", "ab"),
        ("S2", 5),
        ("M8[s]", 1.5),
        ("M8[s]", True),
        ("M8[s]", [1.5, 2.5, 3.5]),
        ("M8[s]", np.array([1.0, 2.0, 3.0])),
        ("M8[s]", np.array([1, 2, 3], "m8[s]")),
        ("M8[s]", "yesterday"),
        ("m8[s]", np.array([1, 2, 3], "M8[s]")),
        ("m8[s]", datetime.date(1970, 1, 1)),
        ("i2,f4", "ab"),
        ("i2,f4", (1, 2, 3)),
        ("i2,f4", {"f0": 1}),
        ("bfloat16", "one"),
        ("int4", ["a", "b", "c"]),
    ],
    ids=str,
)
def test_values_that_are_refused_before_anything_is_written(dtype, value):
    array = zellige.create_array(shape=3, dtype=dtype, chunks=1)
    with pytest.raises((TypeError, ValueError)):
        array[:] = value
    with pytest.raises((TypeError, ValueError)):
        array.append(value if np.ndim(value) else [value])
    assert list(array.store.list("")) == ["zarr.json"]
    assert array.shape == (3,)


def test_creation_refuses_data_before_anything_is_written():
    store = zellige.MemoryStore()
    for data, dtype in (([1, 2], "string"), (np.arange(3), "bytes"), (["abc"], "U2"), ([1.5], "M8[s]")):
        with pytest.raises((TypeError, ValueError)):
            zellige.create_array(store, data=data, dtype=dtype)
        with pytest.raises((TypeError, ValueError)):
            zellige.save(store, data, dtype=dtype)
    with pytest.raises(MetadataError, match="say dtype='string'"):
        zellige.create_array(store, data=objects(["a"]))
    assert list(store.list("")) == []


def test_shapes_are_checked_as_ever():
    array = zellige.create_array(shape=3, dtype="string")
    with pytest.raises(BroadcastError):
        array[:] = ["a", "b"]


def test_data_without_a_type_of_its_own():
    assert zellige.array(["a", "bc"]).metadata.data_type.name == "fixed_length_utf32"
    assert zellige.array(["a", "bc"], dtype=str)[:].tolist() == ["a", "bc"]
    assert zellige.array([b"a\0", b""], dtype=bytes)[:].tolist() == [b"a\0", b""]
    assert zellige.array([(1, 2.5), (3, 4.5)], dtype="i2,f4").shape == (2,)
    assert zellige.array([[1.5, 2.5]], dtype="bfloat16").dtype == ml_dtypes.bfloat16


def test_defaults_by_type():
    assert zellige.zeros(2, dtype="M8[s]")[0] == np.datetime64(0, "s")
    assert np.isnat(zellige.empty(2, dtype="M8[s]")[0])
    assert zellige.zeros(2, dtype="string")[0] == ""
    assert zellige.ones(2, dtype="i2,f4")[0].item() == (1, 1.0)
    assert zellige.full(2, "x", dtype="string")[:].tolist() == ["x", "x"]
    assert zellige.full_like(zellige.array(["a"], dtype=str), fill_value="y")[0] == "y"


@pytest.mark.parametrize("dtype", ["string", "bytes"])
def test_arrays_larger_than_scratch_and_alignment(dtype):
    texts = [f"{k}é" * (k % 7) for k in range(20_000)]
    items = texts if dtype == "string" else [text.encode() for text in texts]
    array = zellige.create_array(data=items, dtype=dtype, chunks=[[9_000, 11_000]])
    assert array[:].tolist() == items
    array[5:-5:3] = items[:6664]
    items[5:-5:3] = items[:6664]
    assert array[:].tolist() == items


def test_blosc_does_not_shuffle_what_has_no_size():
    assert zellige.create_array(shape=3, dtype="string", compressors="blosc").compressors[0].typesize == 1
    assert zellige.create_array(shape=3, dtype="M8[s]", compressors="blosc").compressors[0].typesize == 8


def test_one_value_by_another_name():
    values = as_values(zellige.array(["a", "b"], dtype=str), STRING)
    assert values.tolist() == ["a", "b"]
