"""`.zarray` and `.zattrs`: what is read, the chain that it comes to, what is written, and what is refused."""

from __future__ import annotations

import copy
import json

import numcodecs
import numpy as np
import pytest

import zellige
from zellige.codecs.chain import CodecChain
from zellige.errors import MetadataError, PickleCodecDisabledError, UnknownCodecError
from zellige.grid.grid import ChunkGrid
from zellige.metadata.chunks import RegularChunkGridMetadata
from zellige.metadata.json import read_json
from zellige.metadata.v2 import FILTERS, ArrayV2Metadata

GOOD = {
    "zarr_format": 2,
    "shape": [4, 6],
    "chunks": [2, 3],
    "dtype": "<i2",
    "compressor": None,
    "fill_value": 7,
    "order": "C",
    "filters": None,
}
MISSING = object()
UTF8, BLOSC = {"id": "vlen-utf8"}, {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
LITTLE, BIG = ("bytes", {"endian": "little"}), ("bytes", {"endian": "big"})


def document(**changes):
    return copy.deepcopy({k: v for k, v in {**GOOD, **changes}.items() if v is not MISSING})


def metadata(attributes=None, **changes):
    documents = {".zarray": document(**changes)}
    return ArrayV2Metadata.from_documents(documents if attributes is None else {**documents, ".zattrs": attributes})


def bound(found):
    shape = found.chunk_grid.chunk_shape
    return CodecChain.from_json(found.codecs, found.data_type, found.fill_value, shape).bound[shape]


# -- reading --------------------------------------------------------------------------------------


def test_what_a_document_says():
    found = metadata({"a": 1})
    assert found.zarr_format == 2
    assert found.shape == (4, 6)
    assert found.data_type.name == "int16"
    assert found.chunk_grid == RegularChunkGridMetadata((2, 3))
    assert found.chunk_key_encoding.encode_chunk_key((1, 2)) == "1.2"
    assert (found.fill_value.shape, found.fill_value.item(), found.fill_is_null) == ((), 7, False)
    assert found.codecs == (LITTLE,)
    assert found.attributes == {"a": 1}
    assert found.dimension_names is None
    assert (found.dtype, found.compressor, found.filters, found.order) == ("<i2", None, None, "C")
    assert found.extra == {}


def test_the_minimal_document_of_zarr_python():
    text = (
        '{"shape":[3],"chunks":[2],"dtype":"<i2","fill_value":0,"order":"C","filters":null,'
        '"dimension_separator":".","compressor":null,"zarr_format":2}'
    )
    found = ArrayV2Metadata.from_documents({".zarray": read_json(text.encode())})
    assert found.to_documents() == {".zarray": json.loads(text)}


def test_a_chunk_in_fortran_order():
    found = metadata(shape=[2, 3], order="F")
    chunk = np.array([[1, 2, 3], [4, 5, 6]], np.int16)
    raw = bytes(bound(found).encode(chunk))
    assert raw.hex() == "010004000200050003000600"
    assert np.array_equal(bound(found).decode(raw), chunk)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, "1.2"),
        ({"dimension_separator": "."}, "1.2"),
        ({"dimension_separator": "/"}, "1/2"),
    ],
)
def test_keys(changes, key):
    found = metadata(**changes)
    assert found.chunk_key_encoding.encode_chunk_key((1, 2)) == key
    assert metadata(shape=[], chunks=[], **changes).chunk_key_encoding.encode_chunk_key(()) == "0"


def test_what_may_be_missing_or_odd():
    bare = metadata(filters=MISSING, compressor=MISSING)
    assert bare == metadata()
    assert metadata(filters=[]) == bare
    assert metadata(filters=[]).filters is None
    assert metadata(shape=[0, 6], chunks=[0, 3]).chunk_grid.chunk_shape == (1, 3)
    assert metadata(fill_value=7.0) == bare
    assert metadata(attributes=None) == bare


def test_the_fill_value_may_be_undefined():
    found = metadata(fill_value=None)
    assert found.fill_is_null
    assert found.fill_value.item() == 0
    assert found.to_documents()[".zarray"]["fill_value"] is None
    assert found != metadata(fill_value=0)


def test_other_fields_are_kept():
    found = metadata(later={"a": [1]}, node_type="array")
    assert found.extra == {"later": {"a": [1]}, "node_type": "array"}
    assert found.resized(ChunkGrid.from_sizes([9, 9], [2, 3])).to_documents()[".zarray"]["later"] == {"a": [1]}


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (["y", "x"], ("y", "x")),
        (["", ""], ("", "")),
        (["y"], None),
        (["y", "x", "z"], None),
        (["y", None], ("y", None)),
        (["y", 1], None),
        ("yx", None),
        (None, None),
        ({"y": 1, "x": 2}, None),
    ],
)
def test_names_of_axes_are_those_of_xarray(value, names):
    assert metadata({"_ARRAY_DIMENSIONS": value}).dimension_names == names


def test_names_of_no_axes():
    assert metadata({"_ARRAY_DIMENSIONS": []}, shape=[], chunks=[]).dimension_names == ()


# -- writing --------------------------------------------------------------------------------------

DOCUMENTS = [
    {},
    {"dtype": ">f8", "fill_value": "NaN", "order": "F", "compressor": BLOSC},
    {"dtype": "|O", "filters": [UTF8], "fill_value": "é", "dimension_separator": "/"},
    {"dtype": [["a", "<i4"], ["b", ">f8"]], "fill_value": "AAAAAAAAAAAAAAAA"},
    {"dtype": [["z", "<f4", [2, 2]]], "fill_value": None},
    {"dtype": "<M8[ns]", "fill_value": -(2**63), "filters": [{"id": "delta", "dtype": "<i8"}]},
    {"dtype": "|O", "filters": [{"id": "json2"}], "fill_value": {"a": [1]}},
    {"dtype": "|S3", "fill_value": "YWI=", "compressor": {"id": "lzma", "filters": [{"id": 33, "preset": 1}]}},
    {"shape": [], "chunks": [], "dtype": "|b1", "fill_value": False},
]


@pytest.mark.parametrize("changes", DOCUMENTS, ids=str)
def test_documents_are_written_as_they_were_read(changes):
    found = metadata({"a": [1, None]}, **changes)
    documents = found.to_documents()
    assert documents == {".zarray": {"dimension_separator": ".", **document(**changes)}, ".zattrs": {"a": [1, None]}}
    assert ArrayV2Metadata.from_documents(documents) == found


def test_empty_attributes_have_no_document():
    assert metadata({}).to_documents().keys() == {".zarray"}
    assert metadata({"a": 1}).with_attributes({}).to_documents().keys() == {".zarray"}
    assert metadata().with_attributes({"a": 1}) == metadata({"a": 1})
    renamed = metadata().with_attributes({"_ARRAY_DIMENSIONS": ["y", "x"]})
    assert renamed.dimension_names == ("y", "x")


def test_resizing():
    found = metadata().resized(ChunkGrid.from_sizes([9, 1], [2, 3]))
    assert found.shape == (9, 1)
    assert found == metadata(shape=[9, 1])
    with pytest.raises(MetadataError) as info:
        metadata().resized(ChunkGrid.from_sizes([4, 6], [[1, 3], 3]))
    assert info.value.field == "chunks"


def test_equal_documents():
    assert metadata() == metadata(dimension_separator=".")
    assert metadata() != metadata({"a": 1})
    assert metadata() != metadata(order="F")
    assert metadata() != GOOD
    floats = {"dtype": "<f4", "fill_value": "NaN"}
    assert metadata(**floats) == metadata(**floats)
    assert metadata({"a": float("nan")}) == metadata({"a": float("nan")})
    assert metadata(dtype="<f4", fill_value=0.0) != metadata(dtype="<f4", fill_value=-0.0)
    with pytest.raises(TypeError):
        hash(metadata())


# -- the chain ------------------------------------------------------------------------------------

DELTA = {"id": "delta", "dtype": "<i2", "astype": "|i1"}
CHAINS = [
    # what the document says, and the names and configurations of the codecs
    ({"dtype": ">i2"}, [BIG]),
    ({"dtype": "|i1"}, [("bytes", {})]),
    ({"dtype": "|S2", "fill_value": ""}, [("bytes", {})]),
    ({"dtype": ">U2", "fill_value": ""}, [BIG]),
    ({"dtype": [["a", ">i2"], ["b", "|u1"]], "fill_value": 0}, [BIG]),
    ({"dtype": [["a", "|i1"], ["b", "|u1"]], "fill_value": 0}, [("bytes", {})]),
    ({"order": "F"}, [("transpose", {"order": [1, 0]}), LITTLE]),
    ({"order": "F", "shape": [4], "chunks": [2]}, [LITTLE]),
    ({"order": "F", "shape": [], "chunks": []}, [LITTLE]),
    ({"order": "F", "shape": [1, 2, 3], "chunks": [1, 2, 3]}, [("transpose", {"order": [2, 1, 0]}), LITTLE]),
    ({"compressor": {"id": "zstd", "level": 3}}, [LITTLE, ("numcodecs.zstd", {"level": 3})]),
    ({"compressor": {"id": "zstd"}}, [LITTLE, ("numcodecs.zstd", {})]),
    ({"compressor": BLOSC}, [LITTLE, ("numcodecs.blosc", {k: BLOSC[k] for k in BLOSC if k != "id"})]),
    (
        {"filters": [{"id": "shuffle"}, {"id": "zlib", "level": 2}, {"id": "crc32"}], "compressor": {"id": "bz2"}},
        [
            LITTLE,
            ("numcodecs.shuffle", {"elementsize": 4}),
            ("numcodecs.zlib", {"level": 2}),
            ("numcodecs.crc32", {}),
            ("numcodecs.bz2", {}),
        ],
    ),
    (
        {"filters": [{"id": "shuffle", "elementsize": 2}], "compressor": {"id": "blosc"}},
        [LITTLE, ("numcodecs.shuffle", {"elementsize": 2}), ("numcodecs.blosc", {"typesize": 1})],
    ),
    (
        {"filters": [DELTA], "compressor": {"id": "blosc"}},
        [(FILTERS, {"dtype": "<i2", "filters": [DELTA]}), ("numcodecs.blosc", {"typesize": 1})],
    ),
    (
        {"filters": [{"id": "shuffle"}, DELTA]},
        [(FILTERS, {"dtype": "<i2", "filters": [{"id": "shuffle"}, DELTA]})],
    ),
    ({"dtype": "|O", "filters": [UTF8], "fill_value": ""}, [("vlen-utf8", {})]),
    ({"dtype": "|O", "filters": [{"id": "vlen-bytes"}], "fill_value": ""}, [("vlen-bytes", {})]),
    (
        {"dtype": "|O", "filters": [UTF8, {"id": "shuffle"}], "compressor": {"id": "gzip"}, "fill_value": ""},
        [("vlen-utf8", {}), ("numcodecs.shuffle", {"elementsize": 4}), ("numcodecs.gzip", {})],
    ),
    (
        {"dtype": [["a", "<i2"], ["b", ">i2"]], "fill_value": 0},
        [(FILTERS, {"dtype": [["a", "<i2"], ["b", ">i2"]], "filters": []})],
    ),
    (
        {"dtype": [["a", "<i2", [2]]], "fill_value": 0},
        [(FILTERS, {"dtype": [["a", "<i2", [2]]], "filters": []})],
    ),
    # The shape that is written is that of the chunk, whatever its order in memory.
    (
        {"dtype": "|O", "filters": [{"id": "json2"}], "order": "F"},
        [(FILTERS, {"dtype": "|O", "filters": [{"id": "json2"}]})],
    ),
    # A compressor that is not one of ours sees the elements.
    ({"compressor": {"id": "base64"}}, [(FILTERS, {"dtype": "<i2", "filters": [{"id": "base64"}]})]),
    ({"dtype": "<f4", "compressor": {"id": "zfpy", "mode": 4}}, [("numcodecs.zfpy", {"mode": 4})]),
    (
        {"filters": [{"id": "pcodec"}], "compressor": {"id": "crc32c"}},
        [("numcodecs.pcodec", {}), ("numcodecs.crc32c", {})],
    ),
]


@pytest.mark.parametrize(("changes", "chain"), CHAINS, ids=[str(changes) for changes, _ in CHAINS])
def test_chains(changes, chain):
    found = metadata(**changes)
    assert [tuple(codec) for codec in found.codecs] == chain
    bound(found)


def test_every_filter_from_bytes_to_bytes_is_known_here():
    from zellige.codecs.base import BytesBytesCodec
    from zellige.codecs.numcodecs import CLASSES
    from zellige.metadata import v2

    ours = {name.removeprefix("numcodecs.") for name, kind in CLASSES.items() if issubclass(kind, BytesBytesCodec)}
    assert ours == v2._BYTES


def test_documents_of_zarr_v3_cannot_name_what_is_internal():
    v3 = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "zarr2.filters", "configuration": {"dtype": "<i2", "filters": []}}],
    }
    with pytest.raises(UnknownCodecError) as info:
        zellige.open(zellige.MemoryStore({"zarr.json": json.dumps(v3).encode()}))
    assert "known: " not in str(info.value) or "zarr2" not in str(info.value).partition("known: ")[2]
    for given in ("zarr2.filters", {"name": "zarr2.filters", "configuration": {"dtype": "<i2", "filters": []}}):
        with pytest.raises(UnknownCodecError):
            zellige.codecs.parse_codec(given)


# -- as others write it ---------------------------------------------------------------------------

TEXT_FILLS = [
    ("<i2", "7", 7),
    ("<i2", "-9999", -9999),
    ("<u2", "0", 0),
    ("|u1", "0.0", 0),
    ("<f4", "0.0", 0.0),
    ("<f8", "-1.5e3", -1500.0),
    ("<f4", "0.1", 0.1),
]


@pytest.mark.parametrize(("dtype", "text", "number"), TEXT_FILLS)
def test_a_fill_value_as_text_is_the_number_and_written_as_one(dtype, text, number):
    found = metadata(dtype=dtype, fill_value=text)
    assert found == metadata(dtype=dtype, fill_value=number)
    assert isinstance(found.to_dict()["fill_value"], type(number))


@pytest.mark.parametrize(("token", "text"), [("NaN", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity")])
def test_a_fill_value_as_a_bare_token_is_read_and_written_as_text(token, text):
    found = metadata(dtype="<f8", fill_value=json.loads(token))
    assert found == metadata(dtype="<f8", fill_value=text)
    assert found.to_dict()["fill_value"] == text


# The configuration that others write, and the one that means the same and that numcodecs takes.
ONLY_FOR_WRITING = [
    ({"id": "gzip", "level": -1}, {"id": "gzip", "level": 6}),
    ({"id": "gzip", "level": 12}, {"id": "gzip", "level": 9}),
    ({"id": "zlib", "level": 11}, {"id": "zlib", "level": 9}),
    ({"id": "zstd", "level": 3, "checksum": "NO"}, {"id": "zstd", "level": 3, "checksum": False}),
    ({"id": "zstd", "level": 3, "checksum": "YES"}, {"id": "zstd", "level": 3, "checksum": True}),
    ({"id": "zstd", "level": 30}, {"id": "zstd", "level": 22}),
    ({"id": "bz2", "level": 0}, {"id": "bz2", "level": 1}),
    ({**BLOSC, "shuffle": True}, {**BLOSC, "shuffle": 1}),
    ({**BLOSC, "shuffle": False}, {**BLOSC, "shuffle": 0}),
    ({**BLOSC, "clevel": 10}, {**BLOSC, "clevel": 9}),
]


@pytest.mark.parametrize(("given", "valid"), ONLY_FOR_WRITING, ids=[json.dumps(given) for given, _ in ONLY_FOR_WRITING])
@pytest.mark.parametrize("place", ["compressor", "filters"])
def test_parameters_that_decoding_does_not_need_are_read_and_written_as_valid_ones(given, valid, place):
    store, values = zellige.MemoryStore(), np.arange(24, dtype="<i2").reshape(4, 6)
    store.put(".zarray", json.dumps(document(**{place: given if place == "compressor" else [given]})).encode())
    for row, column in np.ndindex(2, 2):
        chunk = np.ascontiguousarray(values[2 * row : 2 * row + 2, 3 * column : 3 * column + 3])
        store.put(f"{row}.{column}", bytes(numcodecs.get_codec(dict(valid)).encode(chunk)))
    array = zellige.open_array(store)
    np.testing.assert_array_equal(array[...], values)
    assert json.loads(store.get(".zarray"))[place] == (given if place == "compressor" else [given])  # only looked at
    array.append(values)
    np.testing.assert_array_equal(zellige.open_array(store)[...], np.concatenate([values, values]))
    assert json.loads(store.get(".zarray"))[place] == (valid if place == "compressor" else [valid])
    # In format 3 the same is strict, so what is migrated must be valid.
    assert zellige.migrate(store, dry_run=False).failed == {}
    np.testing.assert_array_equal(zellige.open_array(store, zarr_format=3)[...], np.concatenate([values, values]))


@pytest.mark.parametrize("given", [given for given, _ in ONLY_FOR_WRITING], ids=json.dumps)
def test_new_arrays_take_valid_parameters_only(given):
    store = zellige.MemoryStore()
    for how in ({"compressors": given}, {"filters": [given]}):
        with pytest.raises(MetadataError, match=given["id"]):
            zellige.create_array(store, shape=4, dtype="<i2", zarr_format=2, **how)
    assert list(store.list()) == []


@pytest.mark.parametrize(
    "given",
    [
        {"id": "gzip", "level": "5"},
        {"id": "gzip", "level": 5.5},
        {"id": "gzip", "level": True},
        {"id": "zstd", "checksum": "perhaps"},
        {"id": "zstd", "checksum": 1},
        {**BLOSC, "shuffle": 7},
        {**BLOSC, "shuffle": "yes"},
        {**BLOSC, "cname": "lz5"},
        {**BLOSC, "clevel": None},
        {"id": "lzma", "format": 9},
    ],
    ids=json.dumps,
)
def test_parameters_that_mean_nothing_are_refused(given):
    store = zellige.MemoryStore()
    store.put(".zarray", json.dumps(document(compressor=given)).encode())
    with pytest.raises(MetadataError, match=given["id"]):
        zellige.open_array(store)


# -- refused --------------------------------------------------------------------------------------

REFUSED = [
    # field in the error -> values of the top-level field, which is its first part
    *((name, [MISSING]) for name in ("zarr_format", "shape", "chunks", "dtype", "fill_value", "order")),
    ("zarr_format", [1, 3, "2", 2.0, True, None]),
    ("shape", [None, 4, "46", {}, [1] * 65]),
    ("shape[1]", [[4, -1], [4, 6.0], [4, True], [4, "6"], [4, None], [4, 2**63], [4, 10**400]]),
    ("chunks", [None, 2, True, [], [2], [2, 3, 1], {}, "23"]),
    ("chunks[0]", [[-1, 3], [2.0, 3], [True, 3], [None, 3], ["2", 3], [2**63, 3], [[2], 3]]),
    ("dtype", [None, "i2", "int16", "|i2", "", [], {}, 5, "i4,f4", "(2,3)i4", "<i4, <f4", "<M8"]),
    ("dtype[0]", [["<i2"], [["a"]], [["a", "<i2", 2, 2]]]),
    ("fill_value", ["7.5", "", 7.5, True, 2**15, "32768", "0x7", "seven", " 7", "7_0", "٧", [7], {}, "NaN"]),
    ("order", [None, "c", "A", "", 0, ["C"], True]),
    ("dimension_separator", [None, "", "-", "//", 0, ["."], {}]),
    ("compressor", ["zlib", [], 5, True, [{"id": "zlib"}]]),
    ("compressor.id", [{}, {"level": 1}, {"id": None}, {"id": ""}, {"id": ["zlib"]}, {"name": "zlib"}]),
    ("filters", ["delta", {}, 5, {"id": "delta"}, True]),
    ("filters[0]", [[None], ["delta"], [[]], [5]]),
    ("filters[1].id", [[{"id": "crc32"}, {}], [{"id": "crc32"}, {"id": 5}]]),
    ("filters[0].id", [[{"id": name}] for name in ("vlen-utf8", "vlen-bytes", "vlen-array", "pickle")]),
    ("filters[1].id", [[DELTA, {"id": name}] for name in ("vlen-utf8", "json2", "msgpack2", "pickle")]),
    ("compressor.id", [{"id": "vlen-utf8"}, {"id": "pickle"}]),
    ("filters[0].astype", [[{**DELTA, "astype": v}] for v in ("i4,f4", "(2,3)i4", 5, [], "nope")]),
    ("filters[0].encode_dtype", [[{"id": "astype", "encode_dtype": "O,O", "decode_dtype": "<i2"}]]),
]
CASES = [(field, value) for field, values in REFUSED for value in values]


@pytest.mark.parametrize(("field", "value"), CASES, ids=[f"{n} {field}" for n, (field, _) in enumerate(CASES)])
def test_refused(field, value):
    top = field.split(".")[0].split("[")[0]
    with pytest.raises(MetadataError) as info:
        metadata(**{top: value})
    assert info.value.field == field
    assert field in str(info.value)


def test_refused_of_objects():
    for filters in (None, [], [{"id": "zlib"}], [DELTA]):
        with pytest.raises(MetadataError) as info:
            metadata(dtype="|O", filters=filters, fill_value="")
        assert info.value.field == "filters"
    for dtype in (MISSING, "|O", "i4,f4"):
        given = {k: v for k, v in {"id": "vlen-array", "dtype": dtype}.items() if v is not MISSING}
        with pytest.raises(MetadataError) as info:
            metadata(dtype="|O", filters=[given], fill_value=None)
        assert info.value.field == "filters[0].dtype"
    with pytest.raises(PickleCodecDisabledError):
        metadata(dtype="|O", filters=[{"id": "pickle"}], fill_value=0)


@pytest.mark.parametrize("documents", [{}, {".zarray": None}, {".zarray": []}, {".zattrs": {}}])
def test_there_must_be_a_document(documents):
    with pytest.raises(MetadataError):
        ArrayV2Metadata.from_documents(documents)


def test_attributes_are_an_object():
    for value in ([], "a", 5):
        with pytest.raises(MetadataError) as info:
            metadata(value)
        assert info.value.field == "attributes"


def test_repeated_keys_are_refused_in_structure_and_tolerated_in_attributes():
    text = json.dumps(GOOD)
    with pytest.raises(MetadataError) as info:
        ArrayV2Metadata.from_documents({".zarray": read_json((text[:-1] + ', "order": "F"}').encode())})
    assert info.value.field == "order"
    twice = text.replace('"compressor": null', '"compressor": {"id": "zlib", "level": 1, "level": 2}')
    with pytest.raises(MetadataError) as info:
        ArrayV2Metadata.from_documents({".zarray": read_json(twice.encode())})
    assert info.value.field == "compressor.level"
    assert metadata(read_json(b'{"b": {"a": 1, "a": 2}}')).attributes == {"b": {"a": 2}}
