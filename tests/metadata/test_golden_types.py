"""Golden vectors of spec 12 for types beyond the core: what is stored, and what is read from those bytes."""

from __future__ import annotations

import base64
import json

import ml_dtypes
import numpy as np
import pytest

import zellige
from data_types import named, pairs_of
from zellige.errors import CorruptChunkError, MetadataError

LITTLE, BIG = named("bytes", endian="little"), named("bytes", endian="big")
PLAIN, UTF8, BYTES = named("bytes"), named("vlen-utf8"), named("vlen-bytes")
POINT = np.dtype([("x", "i2"), ("y", "u1"), ("z", "f4")])
POINTS = np.array([(1, 2, 1.0), (-2, 3, -2.5)], POINT)
DATES = np.array(["1970-01-02", "NaT"], "M8[s]")
BRAIN = np.array([1, 2.5], ml_dtypes.bfloat16)

# dtype, data, the array-to-bytes codec, hex of the chunk
CASES = {
    "vlen-utf8": ("string", ["a", "bcd", ""], UTF8, "0300000001000000610300000062636400000000"),
    "vlen-utf8, not ASCII": ("string", ["é", "日本"], UTF8, "0200000002000000c3a906000000e697a5e69cac"),
    "vlen-bytes": ("bytes", [b"a", b"\0\xff", b""], BYTES, "0300000001000000610200000000ff00000000"),
    "datetime64": (None, DATES, LITTLE, "80510100000000000000000000000080"),
    "datetime64 big": (None, DATES, BIG, "00000000000151808000000000000000"),
    "U2": (None, np.array(["h", "é"], "U2"), LITTLE, "6800000000000000e900000000000000"),
    "U2 big": (None, np.array(["h", "é"], "U2"), BIG, "0000006800000000000000e900000000"),
    "S3": (None, np.array([b"ab", b"c"], "S3"), PLAIN, "616200630000"),
    "struct": (None, POINTS, LITTLE, "0100020000803ffeff03000020c0"),
    "struct big": (None, POINTS, BIG, "0001023f800000fffe03c0200000"),
    "int4": ("int4", [1, -1, -8], PLAIN, "010f08"),
    "bfloat16": (None, BRAIN, LITTLE, "803f2040"),
    "bfloat16 big": (None, BRAIN, BIG, "3f804020"),
    "complex_bfloat16 big": ("complex_bfloat16", [1 + 2.5j], BIG, "3f804020"),
    "float6": ("float6_e2m3fn", [1.0, -7.5], PLAIN, "083f"),
    "float4": ("float4_e2m1fn", [1.0, -6.0], PLAIN, "020f"),
}
each_case = pytest.mark.parametrize(("dtype", "data", "serializer", "hexes"), CASES.values(), ids=CASES)


def create(dtype, data, serializer):
    store = zellige.MemoryStore()
    return zellige.create_array(store, data=data, dtype=dtype, serializer=serializer, compressors=None)


@each_case
def test_stored_bytes(dtype, data, serializer, hexes):
    array = create(dtype, data, serializer)
    assert array.nchunks == 1
    assert array.store.get("c/0").hex() == hexes


@each_case
def test_read_bytes(dtype, data, serializer, hexes):
    array = create(dtype, data, serializer)
    expected = array[...]
    assert expected.tolist() == np.asarray(data).tolist() or dtype is not None
    array.store.put("c/0", bytes.fromhex(hexes))
    again = zellige.open(array.store, mode="r")
    assert again[...].tolist() == expected.tolist()
    assert again[0] == expected[0] or np.isnat(expected[0])


@pytest.mark.parametrize("kept", ["int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float6_e3m2fn"])
def test_bits_above_the_number_are_ignored(kept):
    array = create(kept, [1, 1, 0, 1], PLAIN)
    raw = bytearray(array.store.get("c/0"))
    expected = array[...]
    width = 6 if "6" in kept else int(kept.split("_")[0][-1])
    array.store.put("c/0", bytes(b | (0xFF << width) & 0xFF for b in raw))
    found = array[...]
    assert found.tolist() == expected.tolist()
    assert found.tobytes() == expected.tobytes()  # and gone from memory
    array[0] = found[0]
    assert array.store.get("c/0") == bytes(raw)  # and from what is written


@pytest.mark.parametrize(
    ("dtype", "raw", "message"),
    [
        ("U1", b"\0\0\x11\0", "not a character"),
        ("U1", b"\xff\xff\xff\xff", "not a character"),
        ([("a", "i1"), ("b", "?")], b"\1\2", "a bool must be"),
        ([("a", "i1"), ("t", "U1")], b"\1\0\0\x11\0", "not a character"),
        ([("a", [("b", "?")])], b"\3", "a bool must be"),
        ("M8[s]", b"\0" * 7, "8 bytes expected"),
    ],
    ids=str,
)
def test_bytes_that_are_no_value_of_the_type(dtype, raw, message):
    array = zellige.create_array(shape=1, dtype=dtype, compressors=None)
    array.store.put("c/0", raw)
    with pytest.raises(CorruptChunkError, match=message):
        array[...]


def test_characters_that_are_none_are_not_written():
    bad = np.frombuffer(b"\0\0\x11\0", "U1")
    array = zellige.create_array(shape=1, dtype="U1")
    with pytest.raises(zellige.errors.CodecError, match="not a character"):
        array[:] = bad


# -- documents of others --------------------------------------------------------------------------


def document(data_type, fill_value, *codecs, shape=(2,)):
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": named("regular", chunk_shape=list(shape)),
        "chunk_key_encoding": named("default", separator="/"),
        "fill_value": fill_value,
        "codecs": list(codecs),
    }


def stored(found, **chunks):
    store = zellige.MemoryStore()
    store.put("zarr.json", json.dumps(found).encode())
    for key, raw in chunks.items():
        store.put(key.replace("_", "/"), bytes.fromhex(raw))
    return store


OLD = pairs_of(x="int16", y="uint8", z="float32")
FILL = {"x": -2, "y": 3, "z": -2.5}


@pytest.mark.parametrize(
    ("serializer", "fill", "raw", "written"),
    [
        ("bytes", "feff03000020c0", "0100020000803ffeff03000020c0", LITTLE),
        ({"name": "bytes"}, "feff03000020c0", "0100020000803ffeff03000020c0", LITTLE),
        (LITTLE, "feff03000020c0", "0100020000803ffeff03000020c0", LITTLE),
        (BIG, "fffe03c0200000", "0001023f800000fffe03c0200000", BIG),
    ],
    ids=["name", "no byte order", "little", "big"],
)
def test_older_structs_are_read_and_written_as_newer_ones(serializer, fill, raw, written):
    base64_fill = base64.b64encode(bytes.fromhex(fill)).decode()
    store = stored(document(OLD, base64_fill, serializer, shape=(2,)), c_0=raw)
    array = zellige.open(store)
    assert array[...].tolist() == POINTS.tolist()
    assert array.fill_value.item() == (-2, 3, -2.5)
    array.attrs["touched"] = True
    found = json.loads(store.get("zarr.json"))
    assert found["data_type"] == zellige.create_array(data=POINTS).metadata.data_type.to_json()
    assert found["fill_value"] == FILL
    assert found["codecs"] == [written]
    assert zellige.open(store)[...].tolist() == POINTS.tolist()


def test_older_structs_in_shards():
    index = named("bytes", endian="little")
    shard = named("sharding_indexed", chunk_shape=[1], codecs=[{"name": "bytes"}], index_codecs=[index])
    store = stored(document(OLD, "AAAAAAAAAA==", shard))
    array = zellige.open(store)
    array[...] = POINTS
    assert zellige.open(store)[...].tolist() == POINTS.tolist()
    assert json.loads(store.get("zarr.json"))["codecs"][0]["configuration"]["codecs"] == [{"name": "bytes"}]
    array.attrs["touched"] = True
    assert json.loads(store.get("zarr.json"))["codecs"][0]["configuration"]["codecs"] == [LITTLE]


@pytest.mark.parametrize(
    ("data_type", "fill", "codecs", "field"),
    [
        (OLD, "AAAA", ["bytes"], "fill_value"),
        (OLD, "é", [BIG], "fill_value"),
        (OLD, 5, [BIG], "fill_value"),
        (OLD, "AAAAAAAAAA==", [], "codecs"),
        (OLD, "AAAAAAAAAA==", ["zstd"], "codecs[0].configuration.level"),
        (OLD, "AAAAAAAAAA==", [named("bytes", endian="middle")], "codecs[0].configuration.endian"),
        (OLD, "AAAAAAAAAA==", [{"name": "bytes", "configuration": []}], "codecs[0].configuration"),
        (named("struct", fields=[{"name": "x", "data_type": "int16"}]), {"x": 0}, [PLAIN], None),
        ("string", None, [UTF8], "fill_value"),
        ("string", "", [PLAIN], "codecs[0].name"),
        ("int8", 0, [UTF8], "codecs[0].name"),
    ],
    ids=str,
)
def test_documents_that_are_refused(data_type, fill, codecs, field):
    with pytest.raises(MetadataError) as info:
        zellige.open(stored(document(data_type, fill, *codecs)), mode="r")
    assert field is None or info.value.field == field


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (
            '"data_type": {"name": "struct", "configuration": {"fields": [{"name": "a", "name": "b"}]}}',
            "fields[0].name",
        ),
        ('"fill_value": {"x": 1, "x": 2}', "fill_value.x"),
    ],
)
def test_keys_that_are_repeated_are_refused(text, field):
    found = document(named("struct", fields=[{"name": "x", "data_type": "int8"}]), {"x": 0}, PLAIN)
    key = text.split('"')[1]
    raw = json.dumps({name: value for name, value in found.items() if name != key})[:-1] + ", " + text + "}"
    store = zellige.MemoryStore()
    store.put("zarr.json", raw.encode())
    with pytest.raises(MetadataError) as info:
        zellige.open(store, mode="r")
    assert info.value.field.endswith(field)


def test_a_long_text_costs_nothing_until_it_is_read():
    found = document(named("fixed_length_utf32", length_bytes=2**31 - 4), "abc", LITTLE)
    array = zellige.open(stored(found), mode="r")
    assert array.dtype.itemsize == 2**31 - 4
