"""Chunk key encodings (spec 6, seed 003)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zellige
from zellige.errors import MetadataError
from zellige.metadata import DefaultChunkKeyEncoding, V2ChunkKeyEncoding, parse_chunk_key_encoding
from zellige.metadata.chunks import chunk_key_encoding_argument

ENCODINGS = [
    # the document, its key for (1, 23, 45), the key of the only chunk of rank 0
    ({"name": "default", "configuration": {"separator": "/"}}, "c/1/23/45", "c"),
    ({"name": "default", "configuration": {"separator": "."}}, "c.1.23.45", "c"),
    ({"name": "v2", "configuration": {"separator": "."}}, "1.23.45", "0"),
    ({"name": "v2", "configuration": {"separator": "/"}}, "1/23/45", "0"),
]
each_encoding = pytest.mark.parametrize(("document", "key", "scalar"), ENCODINGS)
coordinates = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 11), max_size=5).map(tuple)


@each_encoding
def test_the_examples_of_the_specification(document, key, scalar):
    encoding = parse_chunk_key_encoding(document)
    assert encoding.encode_chunk_key((1, 23, 45)) == key
    assert encoding.decode_chunk_key(key, 3) == (1, 23, 45)
    assert encoding.encode_chunk_key(()) == scalar
    assert encoding.decode_chunk_key(scalar, 0) == ()
    assert encoding.to_dict() == document  # written with the separator, always


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ("default", "c/1/2"),
        ({"name": "default"}, "c/1/2"),
        ({"name": "default", "configuration": {}}, "c/1/2"),
        ({"name": "default", "must_understand": True}, "c/1/2"),
        ("v2", "1.2"),
        ({"name": "v2"}, "1.2"),
        ({"name": "v2", "configuration": {}}, "1.2"),
    ],
)
def test_separators_by_default(document, key):
    assert parse_chunk_key_encoding(document).encode_chunk_key((1, 2)) == key


@settings(deadline=None)
@given(st.sampled_from(ENCODINGS), coordinates)
def test_decoding_is_the_inverse(row, coords):
    encoding = parse_chunk_key_encoding(row[0])
    key = encoding.encode_chunk_key(coords)
    assert encoding.decode_chunk_key(key, len(coords)) == coords
    if coords or encoding.name == "default":
        assert encoding.decode_chunk_key(key, len(coords) + 1) is None
    for rank in range(len(coords)):
        assert encoding.decode_chunk_key(key, rank) is None or (encoding.name, key, rank) == ("v2", "0", 0)


@settings(deadline=None)
@given(st.sampled_from(ENCODINGS), st.text("c01.-/+ ", max_size=8), st.integers(0, 3))
def test_a_key_that_is_understood_is_the_one_that_is_written(row, key, rank):
    encoding = parse_chunk_key_encoding(row[0])
    coords = encoding.decode_chunk_key(key, rank)
    assert coords is None or (len(coords) == rank and encoding.encode_chunk_key(coords) == key)


FOREIGN = ["", "{}01", "{}+1", "{}-1", "{} 1", "{}1 ", "{}1\n", "{}1.0", "{}1_0", "{}0x1", "{}1e0", "{}a", "{}٣", "{}²"]
FOREIGN += [
    "{}",
    "{}1{s}",
    "{}1{s}2",
    "{s}{}1",
    "{}00",
    "{}-0",
    "{}99999999999999999999",
    "zarr.json",
    "C{s}1",
    "cc{s}1",
]


@each_encoding
@pytest.mark.parametrize("form", FOREIGN)
def test_keys_of_something_else(document, key, scalar, form):
    separator = document["configuration"]["separator"]
    prefix = "c" + separator if document["name"] == "default" else ""
    encoding = parse_chunk_key_encoding(document)
    foreign = form.format(prefix, s=separator)
    assert encoding.decode_chunk_key(foreign, 1) is None
    assert encoding.decode_chunk_key(foreign, 0) is None


@each_encoding
def test_keys_of_the_other_encodings(document, key, scalar):
    encoding = parse_chunk_key_encoding(document)
    for other, foreign, _ in ENCODINGS:
        if other != document:
            assert encoding.decode_chunk_key(foreign, 3) is None


def test_the_keys_of_a_scalar():
    assert DefaultChunkKeyEncoding().decode_chunk_key("0", 0) is None
    assert DefaultChunkKeyEncoding().decode_chunk_key("c/0", 0) is None
    assert DefaultChunkKeyEncoding().decode_chunk_key("c/", 0) is None
    assert V2ChunkKeyEncoding().decode_chunk_key("c", 0) is None
    assert V2ChunkKeyEncoding().decode_chunk_key("", 0) is None
    assert V2ChunkKeyEncoding().decode_chunk_key("0", 1) == (0,)  # the same key, by another rank


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "chunk_key_encoding"),
        (5, "chunk_key_encoding"),
        ([], "chunk_key_encoding"),
        ("", "chunk_key_encoding"),
        ("v3", "chunk_key_encoding.name"),
        ("Default", "chunk_key_encoding.name"),
        ({}, "chunk_key_encoding.name"),
        ({"name": None}, "chunk_key_encoding.name"),
        ({"name": "zarrs.default_suffix", "configuration": {"suffix": ".tiff"}}, "chunk_key_encoding.name"),
        ({"name": "default", "separator": "/"}, "chunk_key_encoding.separator"),
        ({"name": "default", "configuration": None}, "chunk_key_encoding.configuration"),
        ({"name": "default", "configuration": "/"}, "chunk_key_encoding.configuration"),
        ({"name": "default", "configuration": {"sep": "/"}}, "chunk_key_encoding.configuration.sep"),
        ({"name": "default", "must_understand": False}, "chunk_key_encoding.must_understand"),
        *(
            ({"name": name, "configuration": {"separator": bad}}, "chunk_key_encoding.configuration.separator")
            for name in ("default", "v2")
            for bad in ("", "-", "//", "./", None, 0, True, ["/"], "\\")
        ),
    ],
)
def test_refused(value, field):
    with pytest.raises(MetadataError, match=field.replace(".", r"\.")) as info:
        parse_chunk_key_encoding(value)
    assert info.value.field == field


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        (None, "c/1/2"),
        ("default", "c/1/2"),
        ("v2", "1.2"),
        ({"name": "v2", "separator": "/"}, "1/2"),
        ({"name": "default", "separator": "."}, "c.1.2"),
        ({"name": "v2", "configuration": {"separator": "/"}}, "1/2"),
        (V2ChunkKeyEncoding("/"), "1/2"),
        (DefaultChunkKeyEncoding("."), "c.1.2"),
    ],
)
def test_what_users_give(argument, key):
    assert chunk_key_encoding_argument(argument).encode_chunk_key((1, 2)) == key
    store = zellige.MemoryStore()
    array = zellige.create_array(store, data=[[0, 0, 0], [0, 0, 5]], chunks=1, chunk_key_encoding=argument)
    assert sorted(store.list()) == sorted([key, "zarr.json"])
    assert zellige.open(store)[1, 2] == 5
    assert array.nchunks_initialized == 1


@pytest.mark.parametrize("argument", ["v3", {"separator": "-", "name": "v2"}, {"separator": "/", "x": 1}, 5])
def test_arguments_that_are_refused(argument):
    with pytest.raises(MetadataError, match="chunk_key_encoding"):
        chunk_key_encoding_argument(argument)
