"""Chunks of Zarr v2: the bytes that numcodecs makes by itself are the oracle."""

from __future__ import annotations

import importlib.util
import json

import numcodecs
import numpy as np
import pytest
from numcodecs.compat import ensure_bytes, ensure_ndarray_like

import zellige
from zellige import codecs
from zellige.codecs.chain import CodecChain
from zellige.codecs.v2 import v2_config
from zellige.dtypes.v2 import declared
from zellige.errors import CodecError, MetadataError, UnknownCodecError
from zellige.metadata.v2 import ArrayV2Metadata

HAS_MSGPACK = importlib.util.find_spec("msgpack") is not None


# -- Zarr v2 as zarr-python 2 did it --------------------------------------------------------------


def steps(document):
    return [numcodecs.get_codec(f) for f in [*(document["filters"] or []), document["compressor"]] if f]


def oracle_encode(chunk, document):
    value = np.array(chunk, declared(document["dtype"]), order=document["order"])
    for codec in steps(document):
        value = codec.encode(value)
    return ensure_bytes(value)


def oracle_decode(raw, document):
    value, dtype = raw, declared(document["dtype"])
    for codec in reversed(steps(document)):
        value = codec.decode(value)
    value = ensure_ndarray_like(value)
    if not dtype.hasobject:
        value = value.view(dtype)
    return value.reshape(-1, order="A").reshape(document["chunks"], order=document["order"])


# -- ours -----------------------------------------------------------------------------------------


def document(shape=(3, 4), dtype="<i2", **changes):
    given = {"compressor": None, "fill_value": None, "order": "C", "filters": None, **changes}
    return {"zarr_format": 2, "shape": list(shape), "chunks": list(shape), "dtype": dtype, **given}


def bound(given):
    found = ArrayV2Metadata.from_documents({".zarray": given})
    shape = found.chunk_grid.chunk_shape
    return CodecChain.from_json(found.codecs, found.data_type, found.fill_value, shape).bound[shape]


def refused(given, error=MetadataError):
    with pytest.raises(error) as info:
        bound(given)
    return info.value


def assert_same(found, expected):
    if not found.dtype.hasobject:
        found = found.astype(found.dtype.newbyteorder("="))  # which `bytes` leaves to the copy that follows
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.hasobject:
        assert found.tolist() == expected.tolist()
    else:
        assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


def check(chunk, given, *, same_bytes=True, lossy=False):
    """What we write is what numcodecs writes, and either reads what the other wrote."""
    chain = bound(given)
    chunk = chunk.astype(chain.dtype)
    raw, theirs = bytes(chain.encode(chunk)), oracle_encode(chunk, given)
    if same_bytes:
        assert raw == theirs
    expected = oracle_decode(theirs, given).astype(chain.dtype)
    if not lossy:
        assert_same(expected, chunk)
    assert_same(chain.decode(raw), expected)
    assert_same(chain.decode(theirs), expected)
    assert_same(chain.decode(memoryview(bytearray(theirs))), expected)
    assert_same(oracle_decode(raw, given).astype(chain.dtype), expected)
    return chain, raw


# -- every type -----------------------------------------------------------------------------------

NUMBERS = ["|b1", "|i1", "|u1", *(f"{o}{t}" for o in "<>" for t in ("i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16"))]
OTHERS = ["<M8[ns]", ">M8[10s]", "<m8[us]", "|S5", "<U3", ">U3", "|V7", "|S300", "<U70"]
STRUCTS = [
    [["a", "<i4"], ["b", "<f8"], ["t", "|b1"]],
    [["a", ">i4"], ["b", ">U3"]],
    [["a", "<i4"], ["b", ">f8"], ["t", "|b1"]],
    [["a", "<i4"], ["z", "<f4", [2, 2]], ["t", "|b1", [3]]],
    [["a", ">i2"], ["p", [["x", "<f4"], ["q", [["y", ">u8"]], [2]]]]],
]
COMPRESSORS = [
    None,
    {"id": "zlib", "level": 1},
    {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    {"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": -1, "blocksize": 0},
    {"id": "blosc", "cname": "blosclz", "clevel": 9, "shuffle": 2, "blocksize": 0},
]


def sample(dtype, shape):
    """Elements of every byte, as far as the type has them."""
    if dtype.names is not None:
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            part, sub = dtype[name].subdtype or (dtype[name], ())
            out[name] = sample(part, (*shape, *sub))
        return out
    count = int(np.prod(shape))
    if dtype.kind in "SU":
        return np.array([str(i)[: max(1, i % 4)] for i in range(count)]).astype(dtype).reshape(shape)
    raw = np.random.default_rng(1).integers(0, 256, count * dtype.itemsize, np.uint8)
    if dtype.kind == "b":
        raw &= 1
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
@pytest.mark.parametrize("dtype", [*NUMBERS, *OTHERS, *STRUCTS], ids=str)
def test_every_type_with_every_order(dtype, compressor):
    for shape, order in [((), "C"), ((40,), "F"), ((5, 7), "C"), ((5, 7), "F"), ((3, 4, 5), "F"), ((1, 6), "F")]:
        chunk = sample(declared(dtype).newbyteorder("="), shape)
        check(chunk, document(shape, dtype, order=order, compressor=compressor))


def test_bools_and_characters_are_checked():
    for dtype, raw in [
        ("|b1", b"\2"),
        (">U1", b"\xff" * 4),
        ([["a", "<i2"], ["b", ">i2"], ["t", "|b1"]], b"\0\0\0\0\2"),
        ([["t", "|b1", [2]]], b"\1\2"),
        ([["u", "<U1", [1]]], b"\0\0\0\1"),
    ]:
        with pytest.raises(CodecError):
            bound(document((1,), dtype)).decode(raw)


@pytest.mark.parametrize("compressor", [{"id": name} for name in ("zstd", "gzip", "bz2", "lzma", "lz4")], ids=str)
def test_every_compressor(compressor):
    chunk = np.arange(1000, dtype="i4").reshape(10, 100) // 3
    same = compressor["id"] not in ("gzip", "zstd")  # other libraries, and the time in headers
    for order in "CF":
        check(chunk, document((10, 100), ">i4", compressor=compressor, order=order), same_bytes=same)
    document_ = document((10, 100), "<i4", filters=[compressor, {"id": "crc32"}], compressor={"id": "zlib"})
    check(chunk, document_, same_bytes=same)


BYTE_FILTERS = [
    {"id": "shuffle"},
    {"id": "shuffle", "elementsize": 2},
    {"id": "crc32"},
    {"id": "crc32", "location": "end"},
    {"id": "adler32"},
    {"id": "crc32c"},
    {"id": "crc32c", "location": "start"},
    {"id": "fletcher32"},
    {"id": "jenkins_lookup3", "initval": 3, "prefix": None},
]


@pytest.mark.parametrize("given", BYTE_FILTERS, ids=str)
def test_every_filter_of_bytes(given):
    chunk = np.arange(60, dtype="i4").reshape(6, 10)
    for order in "CF":
        for compressor in (None, {"id": "blosc"}, {"id": "blosc", "shuffle": -1}):
            check(chunk, document((6, 10), "<i4", filters=[given], order=order, compressor=compressor))
            check(chunk, document((6, 10), ">i4", filters=[given, BYTE_FILTERS[0]], compressor=compressor))


# -- filters of arrays ----------------------------------------------------------------------------

FLOATS = np.linspace(-3, 7, 35).reshape(5, 7)
INTEGERS = np.arange(35).reshape(5, 7) ** 2 // 5
SCALED = {"id": "fixedscaleoffset", "offset": -3, "scale": 25}
FILTERS = [
    # dtype, filters, a chunk, whether something is lost
    ("<i4", [{"id": "delta", "dtype": "<i4"}], INTEGERS, False),
    ("<i4", [{"id": "delta", "dtype": "<i4", "astype": "<i2"}], INTEGERS, False),
    (">i4", [{"id": "delta", "dtype": ">i4", "astype": ">i2"}], INTEGERS, False),
    (">i4", [{"id": "delta", "dtype": "<i4"}], INTEGERS, False),  # nonsense that works
    ("|u1", [{"id": "delta", "dtype": "|u1"}], INTEGERS, False),
    ("<f8", [{"id": "delta", "dtype": "<f8"}], INTEGERS, False),
    ("<M8[ns]", [{"id": "delta", "dtype": "<i8"}], INTEGERS.astype("M8[ns]"), False),
    (">M8[s]", [{"id": "delta", "dtype": ">i8", "astype": "<i4"}], INTEGERS.astype("M8[s]"), False),
    ("<m8[s]", [{"id": "delta", "dtype": "<m8[s]"}], INTEGERS.astype("m8[s]"), False),
    ("<m8[s]", [{"id": "astype", "encode_dtype": "<i4", "decode_dtype": "<m8[s]"}], INTEGERS.astype("m8[s]"), False),
    ("<f4", [{"id": "astype", "encode_dtype": "<f2", "decode_dtype": "<f4"}], FLOATS, True),
    (">f4", [{"id": "astype", "encode_dtype": "|i1", "decode_dtype": ">f4"}], FLOATS, True),
    ("<f8", [SCALED | {"dtype": "<f8", "astype": "|u1"}], FLOATS, True),
    (">f8", [SCALED | {"dtype": ">f8", "astype": ">i2"}], FLOATS, True),
    ("<f8", [{"id": "quantize", "digits": 2, "dtype": "<f8", "astype": "<f4"}], FLOATS, True),
    (">f4", [{"id": "quantize", "digits": 1, "dtype": ">f4"}], FLOATS, True),
    ("<f4", [{"id": "bitround", "keepbits": 3}], FLOATS, True),
    ("<f2", [{"id": "bitround", "keepbits": 10}], FLOATS.astype("f2"), False),
    ("|b1", [{"id": "packbits"}], INTEGERS % 3 == 0, False),
    ("<U4", [{"id": "categorize", "labels": ["a", "bcd", "éé"], "dtype": "<U4", "astype": "|u1"}], None, True),
    (">U4", [{"id": "categorize", "labels": ["a", "bcd", "éé"], "dtype": ">U4", "astype": "<i2"}], None, True),
    # several
    (
        "<f8",
        [SCALED | {"dtype": "<f8", "astype": "<i4"}, {"id": "delta", "dtype": "<i4", "astype": "<i2"}],
        FLOATS,
        True,
    ),
    ("<i4", [{"id": "delta", "dtype": "<i4", "astype": "<i2"}, {"id": "shuffle", "elementsize": 2}], INTEGERS, False),
    ("<i4", [{"id": "shuffle"}, {"id": "delta", "dtype": "|u1"}], INTEGERS, False),
    ("<i4", [{"id": "zlib", "level": 1}, {"id": "delta", "dtype": "|u1"}], INTEGERS, False),
    ("<i4", [{"id": "blosc"}, {"id": "base64"}], INTEGERS, False),
    ("<i4", [{"id": "base64"}, {"id": "crc32"}], INTEGERS, False),
    ("|b1", [{"id": "packbits"}, {"id": "delta", "dtype": "|u1"}], INTEGERS % 3 == 0, False),
    ("<f4", [{"id": "zfpy", "mode": 4, "tolerance": 0.01}], FLOATS, True),
    (
        "<f8",
        [{"id": "quantize", "digits": 1, "dtype": "<f8"}, {"id": "zfpy", "mode": 4, "tolerance": 0.01}],
        FLOATS,
        True,
    ),
    ("<i4", [{"id": "pcodec"}], INTEGERS, False),
    ("<f8", [SCALED | {"dtype": "<f8", "astype": "<i4"}, {"id": "pcodec"}], FLOATS, True),
    ("<i4", [{"id": "json2"}], INTEGERS, False),
    ("<U4", [{"id": "json2"}], None, False),
]
WORDS = np.array(["a", "bcd", "", "éé", "no"] * 7).reshape(5, 7)


@pytest.mark.parametrize("compressor", COMPRESSORS[:4], ids=str)
@pytest.mark.parametrize("case", FILTERS, ids=lambda case: f"{case[0]} {case[1]}")
def test_every_filter_of_arrays(case, compressor):
    dtype, filters, chunk, lossy = case
    chunk = WORDS if chunk is None else chunk
    # numcodecs refuses the first, and mixes up the elements of the others.
    orders = "C" if {"zfpy", "json2", "bitround"} & {f["id"] for f in filters} else "CF"
    for order in orders:
        for part in (chunk, chunk[0]):
            given = document(part.shape, dtype, filters=filters, order=order, compressor=compressor)
            check(part, given, lossy=lossy)


@pytest.mark.parametrize("case", FILTERS, ids=lambda case: f"{case[0]} {case[1]}")
def test_chunks_of_one_element(case):
    dtype, filters, chunk, lossy = case
    chunk = WORDS if chunk is None else chunk
    shape = (1,) if {"zfpy", "base64", "pcodec"} & {f["id"] for f in filters} else ()
    check(np.asarray(chunk[1, 2]).reshape(shape), document(shape, dtype, filters=filters), lossy=lossy)


def test_times_within_structs():
    # numcodecs cannot compress them: they have no buffer.
    dtype = [["a", ">i2"], ["t", "<M8[s]", [2]]]
    chunk = sample(declared(dtype).newbyteorder("="), (5,))
    given = document((5,), dtype, compressor={"id": "blosc"})
    assert_same(bound(given).decode(bytes(bound(given).encode(chunk))), chunk)


def test_elements_may_be_cut_by_a_filter():
    check(INTEGERS[0], document((7,), "<i4", filters=[{"id": "delta", "dtype": "<i2"}], compressor={"id": "blosc"}))


def test_rounded_floats_in_fortran_order():
    # numcodecs writes the elements in C order, whatever the document says; what it reads is right.
    given = document((5, 7), "<f4", filters=[{"id": "bitround", "keepbits": 3}], order="F")
    raw = bytes(bound(given).encode(FLOATS.astype("f4")))
    expected = numcodecs.BitRound(3).encode(FLOATS.astype("f4")).view("f4")
    assert_same(oracle_decode(raw, given), expected)
    assert_same(bound(given).decode(raw), expected)


def test_numbers_that_are_compressed_in_fortran_order():
    # numcodecs cannot write this with zfpy, but reads it.
    chunk = FLOATS.astype("f4")
    given = document((5, 7), "<f4", compressor={"id": "zfpy", "mode": 4, "tolerance": 0.001}, order="F")
    raw = bytes(bound(given).encode(chunk))
    assert_same(bound(given).decode(raw), oracle_decode(raw, given))
    assert np.allclose(bound(given).decode(raw), chunk, atol=0.001)


def test_differences_that_do_not_fit_are_refused():
    given = document((3,), "<i4", filters=[{"id": "delta", "dtype": "<i4", "astype": "|i1"}])
    with pytest.raises(CodecError, match="wider astype"):
        bound(given).encode(np.array([0, 1000, 5], "i4"))


# -- objects --------------------------------------------------------------------------------------


def boxed(*items, shape=None):
    array = np.empty(len(items), object)
    for i, item in enumerate(items):
        array[i] = item
    return array.reshape(array.shape if shape is None else shape)


TEXTS = boxed("a", "", "bcd", "日本", "é", "x" * 300, shape=(2, 3))


@pytest.mark.parametrize("filters", [[], [{"id": "shuffle", "elementsize": 1}], [{"id": "delta", "dtype": "|u1"}]])
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_texts_and_bytes(order, compressor, filters):
    for codec, chunk in (("vlen-utf8", TEXTS), ("vlen-bytes", boxed(*(t.encode() for t in TEXTS.flat), shape=(2, 3)))):
        given = document((2, 3), "|O", filters=[{"id": codec}, *filters], compressor=compressor, order=order)
        check(chunk, given)


@pytest.mark.parametrize("order", ["C", "F"])
def test_categories_of_texts(order):
    labels = {"id": "categorize", "labels": ["a", "bcd", "日本"], "dtype": "|O", "astype": "<u2"}
    given = document((2, 3), "|O", filters=[labels], order=order, compressor={"id": "blosc"})
    chain, raw = check(TEXTS, given, lossy=True)
    assert chain.decode(raw).tolist() == [["a", "", "bcd"], ["日本", "", ""]]
    assert chain.dtype == np.dtypes.StringDType()


ANYTHING = boxed(None, 1, 2.5, "é", [1, 2], [3, 4], {"b": [None], "a": 1}, True, shape=(2, 4))


@pytest.mark.parametrize(
    "codec", ["json2", pytest.param("msgpack2", marks=pytest.mark.skipif(not HAS_MSGPACK, reason="no msgpack"))]
)
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
@pytest.mark.parametrize("shape", [(2, 4), (8,), (2, 2, 2)])
def test_any_objects(shape, compressor, codec):
    chunk = ANYTHING.reshape(shape)
    for order in "CF":
        given = document(shape, "|O", filters=[{"id": codec}], compressor=compressor, order=order)
        chain = bound(given)
        raw = bytes(chain.encode(chunk))
        assert raw == oracle_encode(chunk, given)
        found = chain.decode(raw)
        assert found.tolist() == chunk.tolist()  # numcodecs itself cannot read lists that are equally long
        assert (found.shape, found.dtype) == (shape, np.dtype(object))


def test_the_bytes_of_json():
    chain = bound(document((2,), "|O", filters=[{"id": "json2"}]))
    assert bytes(chain.encode(boxed("a", "b"))) == b'["a","b","|O",[2]]'  # spec 10.3
    assert chain.decode(b' [ "a" , ["|O", [2]] , "|O" , [ 2 ] ] ').tolist() == ["a", ["|O", [2]]]


def test_one_object():
    given = document((), "|O", filters=[{"id": "json2"}])
    for item in ("x", [1, 2], None, {"a": 1}):
        raw = bytes(bound(given).encode(boxed(item, shape=())))
        assert raw == oracle_encode(boxed(item, shape=()), given)
        assert bound(given).decode(raw).item() == item


@pytest.mark.parametrize(
    "options", [{"indent": 2}, {"encoding": "utf-16"}, {"ensure_ascii": False}, {"sort_keys": False}]
)
def test_ways_to_write_json(options):
    given = document((2, 4), "|O", filters=[v2_config(numcodecs.JSON(**options))])
    raw = bytes(bound(given).encode(ANYTHING))
    assert raw == oracle_encode(ANYTHING, given)
    assert bound(given).decode(raw).tolist() == ANYTHING.tolist()


@pytest.mark.parametrize("dtype", ["<i4", ">i4", "<f8", "|u1", "int16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_length(order, dtype):
    native = np.dtype(dtype).newbyteorder("=")
    chunk = boxed(*(np.arange(n).astype(native) for n in (3, 0, 1, 2, 2, 5)), shape=(2, 3))
    given = document(
        (2, 3), "|O", filters=[{"id": "vlen-array", "dtype": dtype}], order=order, compressor={"id": "zlib"}
    )
    chain = bound(given)
    raw = bytes(chain.encode(chunk))
    assert raw == oracle_encode(chunk, given)
    for found, expected in zip(chain.decode(raw).flat, chunk.flat, strict=True):
        assert_same(found, expected)
        assert found.dtype.isnative


def test_arrays_do_not_depend_on_the_bytes_that_they_came_from():
    chain = bound(document((1,), "|O", filters=[{"id": "vlen-array", "dtype": "<i4"}]))
    raw = bytearray(chain.encode(boxed(np.arange(3, dtype="i4"))))
    found = chain.decode(memoryview(raw))
    raw[:] = bytes(len(raw))
    assert found[0].tolist() == [0, 1, 2]


def test_nothing_is_an_empty_array():
    found = ArrayV2Metadata.from_documents(
        {".zarray": document((2,), "|O", filters=[{"id": "vlen-array", "dtype": ">i4"}])}
    )
    assert_same(found.fill_value.item(), np.array([], "i4"))
    chain = bound(document((2,), "|O", filters=[{"id": "vlen-array", "dtype": "<i4"}]))
    assert [item.tolist() for item in chain.decode(bytes(chain.encode(boxed(None, [1]))))] == [[], [1]]


def test_arrays_longer_than_readers_take_are_not_written():
    """With a compressor nobody could read them."""
    chain = bound(document((1,), "|O", filters=[{"id": "vlen-array", "dtype": "<i4"}], compressor={"id": "zlib"}))
    with (
        zellige.config.set({"codecs.max_variable_chunk_bytes": 100}),
        pytest.raises(CodecError, match="use smaller chunks, or raise the setting"),
    ):
        chain.encode(boxed(np.arange(30, dtype="i4")))


@pytest.mark.parametrize(
    ("filters", "chunk"),
    [
        ([{"id": "json2"}], boxed({1}, 2)),
        ([{"id": "json2"}], boxed(np.arange(3), 2)),
        ([{"id": "vlen-array", "dtype": "<i4"}], boxed(np.zeros((2, 2)), None)),
        ([{"id": "vlen-array", "dtype": "<i4"}], boxed("ab", None)),
    ],
)
def test_objects_that_a_filter_cannot_write(filters, chunk):
    with pytest.raises(CodecError, match=filters[0]["id"]):
        bound(document((2,), "|O", filters=filters)).encode(chunk)


@pytest.mark.skipif(HAS_MSGPACK, reason="msgpack is installed")
def test_msgpack_is_missing():
    with pytest.raises(ImportError, match="pip install msgpack"):
        bound(document((2,), "|O", filters=[{"id": "msgpack2"}]))
    with pytest.raises(ImportError, match="pip install msgpack"):
        v2_config("msgpack2")


# -- damage ---------------------------------------------------------------------------------------

DAMAGED = [
    # what the document says, and bytes that are not a chunk of it
    ({"filters": [{"id": "delta", "dtype": "<i2"}]}, [b"", b"\0" * 3, b"\0" * 5, b"\0" * 6]),
    ({"filters": [{"id": "delta", "dtype": "<i2", "astype": "|i1"}]}, [b"\0", b"\0" * 4]),
    ({"dtype": "|b1", "filters": [{"id": "packbits"}]}, [b"", b"\6", b"\6\0\0", b"\7\0", b"\0\0", b"\xff\0"]),
    ({"dtype": [["a", "<i2"], ["b", ">i2"]]}, [b"", b"\0" * 7, b"\0" * 9]),
    ({"compressor": {"id": "base64"}}, [b"", b"!!!!", b"AAAAAA", b"AAAA", b"AAAAAAAA"]),
    ({"filters": [{"id": "zlib"}, {"id": "delta", "dtype": "|u1"}]}, [b"", b"\0", b"x" * 30]),
    ({"filters": [{"id": "blosc"}, {"id": "base64"}]}, [b"", b"AAAA", b"A" * 40]),
    ({"dtype": "<f8", "filters": [SCALED | {"dtype": "<f8", "astype": "<i4"}, {"id": "zfpy"}]}, [b"", b"\0" * 40]),
    ({"dtype": "<f8", "filters": [SCALED | {"dtype": "<f8", "astype": "<i4"}, {"id": "pcodec"}]}, [b"", b"\0" * 40]),
    (
        {"dtype": "|O", "filters": [{"id": "json2"}]},
        [
            b"",
            b"[]",
            b"{}",
            b"null",
            b'["|O",[2]]',
            b'["a","|O",[2]]',
            b'["a","b","c","|O",[2]]',
            b'["a","b","|O",[3]]',
            b'["a","b","|O",[2,1]]',
            b'["a","b","|O",[]]',
            b'["a","b","<i4",[2]]',
            b'["a","b","|O",2]',
            b'["a","b","|O",[2]',
            b'"a","b","|O",[2]]',
            b'["a","b","|O",[2]]x',
            b'["a","\xff","|O",[2]]',
            b'{"a":["b","|O",[2]]}',
            b"[" * 5000 + b'"|O",[2]]',
            b'["a","b","(2,3)i4",[2]]',
        ],
    ),
    (
        {"dtype": "<i4", "filters": [{"id": "json2"}]},
        [b'["a","b","<i4",[2]]', b'[[1],[2],"<i4",[2]]', b'[1,99999999999,"<i4",[2]]'],
    ),
    (
        {"dtype": "|O", "filters": [{"id": "vlen-array", "dtype": "<i4"}]},
        [
            b"",
            b"\2\0\0\0",
            b"\1\0\0\0" + bytes(8),
            b"\xff\xff\xff\xff" + bytes(8),
            b"\2\0\0\0" + bytes(9),
            b"\2\0\0\0\4\0\0\0" + bytes(4),
            b"\2\0\0\0\3\0\0\0" + bytes(7),
            b"\2\0\0\0\xff\xff\xff\xff" + bytes(4),
        ],
    ),
    (
        {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, {"id": "delta", "dtype": "|u1"}]},
        [b"", b"\1\0\0\0", b"\2" * 30],
    ),
    ({"dtype": "|O", "filters": [{"id": "categorize", "labels": ["a"], "dtype": "|O"}]}, [b"", b"\1", b"\1\1\1"]),
]


@pytest.mark.parametrize(
    ("given", "raw"), [(given, raw) for given, raws in DAMAGED for raw in raws], ids=lambda value: str(value)[:60]
)
def test_damaged_chunks(given, raw):
    chain = bound(document((2,), **given))
    with pytest.raises(CodecError):
        chain.decode(raw)


@pytest.mark.skipif(not HAS_MSGPACK, reason="no msgpack")
def test_damaged_chunks_of_msgpack():
    import msgpack

    chain = bound(document((2,), "|O", filters=[{"id": "msgpack2"}]))
    good = [1, 2, "|O", [2]]
    assert chain.decode(msgpack.packb(good)).tolist() == [1, 2]
    for bad in ([1, "|O", [2]], [1, 2, 3, "|O", [2]], [1, 2, "<i4", [2]], [1, 2, "|O", [3]], {"a": ["|O", [2]]}, []):
        with pytest.raises(CodecError):
            chain.decode(msgpack.packb(bad))
    for raw in (
        b"",
        b"\xc1",
        msgpack.packb(good)[:-1],
        msgpack.packb(good) + b"\0",
        b"\xdd\xff\xff\xff\xff\xa2|O\x91\x02",
    ):
        with pytest.raises(CodecError):
            chain.decode(raw)
    refused(document((), "|O", filters=[{"id": "msgpack2"}]))


def test_a_compressor_among_the_filters_stops_in_time():
    bomb = numcodecs.Delta("u1").encode(np.frombuffer(numcodecs.Zlib(9).encode(bytes(1 << 24)), "u1")).tobytes()
    chain = bound(document((2,), filters=[{"id": "zlib"}, {"id": "delta", "dtype": "|u1"}]))
    with pytest.raises(CodecError, match="longer than the 4 bytes"):
        chain.decode(bomb)


@pytest.mark.parametrize("case", FILTERS, ids=lambda case: f"{case[0]} {case[1]}")
def test_any_damage_is_a_codec_error_or_a_chunk(case):
    dtype, filters, chunk, _ = case
    chunk = WORDS if chunk is None else chunk
    chain = bound(document(chunk.shape, dtype, filters=filters))
    raw = bytes(chain.encode(chunk.astype(chain.dtype)))
    random = np.random.default_rng(7)
    for _ in range(40):
        damaged = bytearray(raw)
        for _ in range(int(random.integers(1, 4))):
            damaged[random.integers(len(raw))] = random.integers(256)
        if random.integers(2):
            del damaged[random.integers(len(raw)) :]
        try:
            found = chain.decode(bytes(damaged))
        except CodecError:
            continue
        assert (found.shape, found.dtype) == (chunk.shape, chain.dtype)


# -- refused documents ----------------------------------------------------------------------------


def test_what_numcodecs_does_not_know():
    for given in ({"filters": [{"id": "nope"}]}, {"compressor": {"id": "nope"}}):
        error = refused(document(**given), UnknownCodecError)
        assert error.field == "codecs[0].configuration.filters[0]"
        assert "'nope'" in str(error)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"filters": [{"id": "delta"}]}, ".dtype"),
        ({"filters": [{"id": "delta", "dtype": None}]}, ".dtype"),
        ({"filters": [{"id": "delta", "dtype": "<U3"}]}, ".dtype"),
        ({"filters": [{"id": "delta", "dtype": "<i2", "x": 1}]}, ""),
        ({"filters": [{"id": "delta", "dtype": "<c16"}], "shape": (3,)}, ".dtype"),
        ({"filters": [{"id": "fixedscaleoffset", "offset": [1], "scale": 1, "dtype": "<i2"}]}, ".offset"),
        ({"filters": [{"id": "fixedscaleoffset", "offset": 1, "scale": 0, "dtype": "<i2"}]}, ".scale"),
        ({"filters": [{"id": "quantize", "digits": "2", "dtype": "<f4"}]}, ".digits"),
        ({"filters": [{"id": "bitround", "keepbits": -1}]}, ".keepbits"),
        ({"filters": [{"id": "astype", "decode_dtype": "<i2", "encode_dtype": "|O"}]}, ".encode_dtype"),
        ({"filters": [{"id": "astype", "decode_dtype": "|O", "encode_dtype": "<i2"}]}, ".decode_dtype"),
        ({"filters": [{"id": "astype", "decode_dtype": "<i2"}]}, ""),
        ({"filters": [{"id": "packbits", "x": 1}]}, ".x"),
        ({"filters": [{"id": "categorize", "labels": ["a"], "dtype": "|O"}]}, ".dtype"),
        ({"dtype": "|O", "filters": [{"id": "categorize", "labels": ["a"], "dtype": "<U3"}]}, ".dtype"),
        ({"dtype": "|O", "filters": [{"id": "categorize", "labels": 5, "dtype": "|O"}]}, ""),
        ({"dtype": "|O", "filters": [{"id": "categorize", "labels": ["a"], "dtype": "|O", "astype": "|O"}]}, ".astype"),
        ({"dtype": "|O", "filters": [{"id": "json2", "encoding": "zip"}]}, ".encoding"),
        ({"dtype": "|O", "filters": [{"id": "json2", "indent": 10**9}]}, ".indent"),
        ({"dtype": "|O", "filters": [{"id": "json2", "x": 1}]}, ""),
    ],
)
def test_refused_configurations(given, field):
    assert refused(document(**given)).field == f"codecs[0].configuration.filters[0]{field}"


def test_a_filter_cannot_ask_for_memory_by_its_type():
    cast = {"id": "astype", "encode_dtype": "|u1", "decode_dtype": "<U999999"}
    refused(document((3,), "<i2", filters=[cast]))
    refused(document((3,), "<i2", filters=[{"id": "base64"}, cast]))


def test_numbers_to_compress_are_in_native_order():
    for name in ("zfpy", "pcodec"):
        refused(document((3,), ">f4", compressor={"id": name}))


def test_configurations_of_compressors_are_checked():
    for given in ({"id": "zlib", "level": "x"}, {"id": "blosc", "cname": "x"}, {"id": "zstd", "x": 1}):
        assert refused(document(compressor=given)).field.startswith("codecs[1].configuration.")


# -- codecs that others register ------------------------------------------------------------------


class Reversed(numcodecs.abc.Codec):
    """Sees the chunk itself."""

    codec_id = "test-reversed"

    def encode(self, buf):
        assert (buf.dtype, buf.shape) == (np.dtype(">i2"), (3, 4))
        return buf[::-1, ::-1]

    def decode(self, buf, out=None):
        return ensure_ndarray_like(buf).view(">i2").reshape(3, 4)[::-1, ::-1]


class Objects(numcodecs.abc.Codec):
    """Makes objects out of bytes."""

    codec_id = "test-objects"

    def encode(self, buf):
        return buf

    def decode(self, buf, out=None):
        return np.full(3, None, object)


@pytest.fixture
def registered():
    for kind in (Reversed, Objects):
        numcodecs.register_codec(kind)
    yield
    for kind in (Reversed, Objects):
        del numcodecs.registry.codec_registry[kind.codec_id]


@pytest.mark.usefixtures("registered")
def test_codecs_that_others_register():
    chunk = np.arange(12, dtype="i2").reshape(3, 4)
    for place in ({"compressor": {"id": "test-reversed"}}, {"filters": [{"id": "test-reversed"}]}):
        _, raw = check(chunk, document((3, 4), ">i2", **place))
        assert raw == chunk[::-1, ::-1].astype(">i2").tobytes()
    chain = bound(document((3,), "<i8", compressor={"id": "test-objects"}))
    with pytest.raises(CodecError):  # never seen as numbers
        chain.decode(bytes(24))


# -- what users give ------------------------------------------------------------------------------

CONFIGS = [
    (numcodecs.Zlib(3), {"id": "zlib", "level": 3}),
    (numcodecs.Zstd(level=3), {"id": "zstd", "level": 3}),
    (numcodecs.Delta("<i4", "<i2"), {"id": "delta", "dtype": "<i4", "astype": "<i2"}),
    ({"id": "x", "y": [1]}, {"id": "x", "y": [1]}),
    ({"id": "zstd", "level": 1, "checksum": True}, {"id": "zstd", "level": 1, "checksum": True}),
    ({"id": "zstd", "level": 1, "checksum": False}, {"id": "zstd", "level": 1}),
    (codecs.ZstdCodec(level=5, checksum=False), {"id": "zstd", "level": 5}),
    (codecs.ZstdCodec(level=5), {"id": "zstd", "level": 5, "checksum": True}),
    (codecs.GzipCodec(level=2), {"id": "gzip", "level": 2}),
    (
        codecs.BloscCodec("lz4", 3, "bitshuffle", 4),
        {"id": "blosc", "cname": "lz4", "clevel": 3, "shuffle": 2, "blocksize": 0},
    ),
    (codecs.Crc32cCodec(), {"id": "crc32c"}),
    (codecs.VLenUTF8Codec(), {"id": "vlen-utf8"}),
    (codecs.VLenBytesCodec(), {"id": "vlen-bytes"}),
    (codecs.from_json("numcodecs.lz4", {}), {"id": "lz4", "acceleration": 1}),
    ({"name": "numcodecs.bz2", "configuration": {"level": 2}}, {"id": "bz2", "level": 2}),
    ("zstd", {"id": "zstd", "level": 1}),
    ("zlib", {"id": "zlib", "level": 1}),
    ("numcodecs.zlib", {"id": "zlib", "level": 1}),
    ("blosc", {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1, "blocksize": 0}),
    ("vlen-utf8", {"id": "vlen-utf8"}),
    ("packbits", {"id": "packbits"}),
    ("base64", {"id": "base64"}),
]


@pytest.mark.parametrize(("value", "config"), CONFIGS, ids=[str(config) for _, config in CONFIGS])
def test_configurations_from_users(value, config):
    assert v2_config(value) == config


def test_objects_of_numcodecs_have_a_form_in_json():
    given = numcodecs.JSON()
    assert numcodecs.get_codec(json.loads(json.dumps(v2_config(given)))) == given


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (5, MetadataError),
        (None, MetadataError),
        (numcodecs.Zstd, MetadataError),
        ({"level": 1}, MetadataError),
        ({"id": 5}, MetadataError),
        ({"id": "x", "y": {1}}, MetadataError),
        ("nope", UnknownCodecError),
        ("sharding_indexed", UnknownCodecError),
        ("delta", MetadataError),
        ("categorize", MetadataError),
        (codecs.TransposeCodec((1, 0)), MetadataError),
        (codecs.BytesCodec(), MetadataError),
        (codecs.from_json("numcodecs.astype", {"encode_dtype": "<i2"}), MetadataError),
        (codecs.from_json("numcodecs.quantize", {"digits": 2}), MetadataError),
    ],
    ids=str,
)
def test_what_zarr_v2_does_not_know(value, error):
    with pytest.raises(error):
        v2_config(value)
