"""Documents that were met before are not checked again; nothing that a handle changes shows in another."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import CountingStore
from documents import BYTES, MISSING, compressed, document, open_document, regular
from zellige.errors import MetadataError
from zellige.metadata import ArrayV3Metadata
from zellige.nodes import node


@pytest.fixture(autouse=True)
def nothing_known():
    node._known.clear()


@pytest.fixture
def checked(monkeypatch) -> list[int]:
    """An entry for every document that is checked."""
    found: list[int] = []
    real = ArrayV3Metadata.from_dict.__func__
    monkeypatch.setattr(ArrayV3Metadata, "from_dict", classmethod(lambda cls, d: found.append(1) or real(cls, d)))
    return found


def test_the_same_document_is_checked_once(checked):
    store = zellige.MemoryStore()
    for name in ("a", "b"):
        zellige.create_array(store, name=name, shape=(6,), chunks=[[1, 2, 3]], dtype="int8", attributes={"x": [1]})
    handles = [zellige.open_array(store, path=path) for path in ("a", "b", "a")]
    assert len(checked) == 1
    assert [handle.path for handle in handles] == ["a", "b", "a"]
    handles[0][:] = 7
    assert handles[2][:].tolist() == [7] * 6
    assert handles[1][:].tolist() == [0] * 6


def test_opening_still_asks_the_store(tmp_path):
    store = CountingStore(zellige.LocalStore(tmp_path))
    array = zellige.create_array(store, shape=(4,), dtype="int8")
    zellige.open_array(store)
    store.reset()
    assert zellige.open_array(store).shape == (4,)
    assert store.counts() == {"get": 1}
    array.resize((9,))
    assert zellige.open_array(store).shape == (9,)


def test_attributes_changed_in_place_stay_with_their_handle():
    store = zellige.MemoryStore()
    zellige.create_array(store, shape=(4,), attributes={"x": [1], "y": {"z": 2}})
    first, second = zellige.open_array(store), zellige.open_array(store)
    first.attrs["x"].append(9)
    first.attrs["y"]["z"] = 9
    third = zellige.open_array(store)
    assert second.attrs.asdict() == third.attrs.asdict() == {"x": [1], "y": {"z": 2}}


def test_handles_that_keep_empty_inner_chunks_are_told_from_others():
    store = zellige.MemoryStore()
    zellige.create_array(store, shape=(8,), chunks=2, shards=4, dtype="int8", compressors=None)
    sizes = {}
    for keep in (False, True, False, True):
        array = zellige.open_array(store, config={"write_empty_chunks": keep})
        array[:] = np.array([1, 0, 0, 0, 0, 0, 0, 0])
        sizes.setdefault(keep, set()).add(sum(store.size(key) for key in store.list("c/")))
    assert all(len(found) == 1 for found in sizes.values())
    assert min(sizes[True]) > max(sizes[False])


def test_only_so_many_documents_are_kept_and_no_long_ones(monkeypatch):
    monkeypatch.setattr(node, "_MOST", 3)
    monkeypatch.setattr(node, "_LONGEST", 1000)
    store = zellige.MemoryStore()
    for k in range(5):
        zellige.create_array(store, name=f"{k}", shape=(k,))
        zellige.open_array(store, path=f"{k}")
        assert 1 <= len(node._known) <= 3
    edges = [*range(1, 300)]
    zellige.create_array(store, name="long", shape=(sum(edges),), chunks=[edges])
    before = dict(node._known)
    assert zellige.open_array(store, path="long").nchunks == len(edges)
    assert node._known == before


# -- documents that differ in their attributes ----------------------------------------------------


ATTRIBUTES = [{"x": [1]}, {"x": [2], "y": {"z": None}}, {}, MISSING, None, {"text": "x" * 20_000}]


def stored(*attributes: Any) -> zellige.MemoryStore:
    """Arrays `0`, `1` and so on, which differ in nothing but the attributes."""
    documents = [document(attributes=given) for given in attributes]
    return zellige.MemoryStore({f"{k}/zarr.json": json.dumps(found).encode() for k, found in enumerate(documents)})


def test_arrays_that_differ_in_their_attributes_are_checked_once(checked):
    store = stored(*ATTRIBUTES)
    for _ in range(2):
        for k, given in enumerate(ATTRIBUTES):
            array = zellige.open_array(store, path=f"{k}")
            assert array.attrs.asdict() == ({} if given in (MISSING, None) else given)
            assert (array.path, array.shape, array.chunks, array.fill_value) == (f"{k}", (4, 6), (2, 3), 7)
    assert len(checked) == 1


def test_they_are_different_arrays():
    store = stored(*ATTRIBUTES)
    arrays = [zellige.open_array(store, path=f"{k}") for k in range(len(ATTRIBUTES))]
    for k, array in enumerate(arrays):
        array[...] = k
    assert [array[...].tolist() for array in arrays] == [[[k] * 6] * 4 for k in range(len(arrays))]
    arrays[0].resize((8, 6))
    assert [array.shape for array in arrays] == [(8, 6), *[(4, 6)] * (len(arrays) - 1)]
    assert zellige.open_array(store, path="0").shape == (8, 6)


def test_what_is_changed_in_the_attributes_of_one_shows_in_no_other():
    store = stored({"x": [1], "y": {"z": 2}}, {"x": [1], "y": {"z": 2}}, {"x": [5]}, {})
    first = [zellige.open_array(store, path=f"{k}") for k in range(4)]
    for array in first[:2]:
        array.attrs["x"].append(9)
        array.attrs["y"]["z"] = 9
    first[3].attrs.asdict()["new"] = 1
    again = [zellige.open_array(store, path=f"{k}") for k in range(4)]
    assert [array.attrs.asdict() for array in again] == [{"x": [1], "y": {"z": 2}}] * 2 + [{"x": [5]}, {}]
    assert first[2].attrs.asdict() == {"x": [5]}
    again[3].attrs["mine"] = True
    assert [dict(zellige.open_array(store, path=path).attrs) for path in "23"] == [{"x": [5]}, {"mine": True}]


def test_those_that_keep_empty_inner_chunks_are_told_from_others_by_similar_documents_too():
    store = zellige.MemoryStore()
    for name in ("a", "b"):
        options = {"chunks": 2, "shards": 4, "dtype": "int8", "compressors": None, "attributes": {"name": name}}
        zellige.create_array(store, name=name, shape=(8,), **options)
    node._known.clear()
    sizes = {}
    for name, keep in (("a", False), ("b", True)):
        array = zellige.open_array(store, path=name, config={"write_empty_chunks": keep})
        array[:] = np.array([1, 0, 0, 0, 0, 0, 0, 0])
        sizes[keep] = sum(store.size(key) for key in store.list(f"{name}/c/"))
    assert sizes[True] > sizes[False]


def outcome(given: dict[str, Any]) -> Any:
    """What comes of opening a document: all that it says, or the error."""
    try:
        array = open_document(given)
    except MetadataError as error:
        return type(error), str(error), error.field
    return array.metadata.to_bytes(), array.dtype, repr(array.fill_value)


BROKEN: dict[str, dict[str, Any]] = {
    "attributes that are a list": {"attributes": [1]},
    "attributes that are text": {"attributes": "x"},
    "attributes that are false": {"attributes": False},
    "attributes that are empty text": {"attributes": ""},
    "a fill value that does not fit": {"fill_value": 2**40},
    "a fill value of text": {"fill_value": "7"},
    "no fill value": {"fill_value": MISSING},
    "an unknown codec": {"codecs": [BYTES, {"name": "rot13"}]},
    "no codecs": {"codecs": []},
    "a negative shape": {"shape": [-4, 6]},
    "a grid of another rank": {"chunk_grid": regular(2)},
    "an unknown field": {"extra": {"must_understand": True}},
    "an unknown type": {"data_type": "int17"},
    "another format": {"zarr_format": 4},
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_refused_in_the_same_words_after_something_similar(changes):
    expected = outcome(document(**changes))
    assert issubclass(expected[0], MetadataError)
    for attributes in ({}, {"x": [1]}):
        assert outcome(document(attributes=attributes))[1] == np.dtype("int16")
        assert outcome(document(**changes)) == expected
        assert outcome(document(**{"attributes": attributes, **changes})) == expected


VARIANTS = {
    "fill_value": [1, True, 1.0, "1", 0, False, 0.0, -0.0, None],
    "shape": [[4, 6], [4.0, 6], [True, 6], [4, 6.0]],
    "zarr_format": [3, 3.0, True, "3"],
    "chunk_grid": [regular(1, 1), regular(1.0, 1), regular(True, 1), regular(1, 1, extra=1)],
    "codecs": [
        compressed("zstd", {"level": level, "checksum": check}) for level in (1, 1.0, True) for check in (0, False)
    ],
    "dimension_names": [["x", "y"], ["y", "x"], [None, "y"], ["None", "y"], None, MISSING],
    "extra": [{"must_understand": False, "x": value} for value in (1, True, 1.0, "1")],
}


@pytest.mark.parametrize("data_type", ["bool", "int16", "float64", "complex64"])
@pytest.mark.parametrize("field", VARIANTS)
def test_values_that_python_calls_equal_are_told_apart(field, data_type):
    fill = {} if field == "fill_value" else {"fill_value": {"bool": False, "complex64": [0, 0]}.get(data_type, 0)}
    given = [document(data_type=data_type, **{**fill, field: value}) for value in VARIANTS[field]]
    if data_type == "complex64" and field == "fill_value":
        given = [{**found, "fill_value": [found["fill_value"], 0]} for found in given]
    if data_type == "bool" and field == "codecs":
        given = [{**found, "codecs": [{"name": "bytes"}, *found["codecs"][1:]]} for found in given]
    fresh = []
    for found in given:
        node._known.clear()
        fresh.append(outcome(found))
    node._known.clear()
    for attributes in ({}, {"x": 1}):
        for found, expected in [*zip(given, fresh, strict=True), *zip(given[::-1], fresh[::-1], strict=True)]:
            assert same_but_attributes(outcome({**found, "attributes": attributes}), expected)


def same_but_attributes(found: Any, expected: Any) -> bool:
    """Whether two outcomes are the same; documents may differ in their attributes."""
    if not isinstance(found[0], bytes) or not isinstance(expected[0], bytes):
        return found == expected
    bare = [json.dumps({**json.loads(raw[0]), "attributes": None}, sort_keys=True) for raw in (found, expected)]
    return bare[0] == bare[1] and found[1:] == expected[1:]
