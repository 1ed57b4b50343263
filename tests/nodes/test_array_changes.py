"""Changing an array in place: its attributes, its shape; a refused or failed change leaves the document as it was."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import strategies as ours
import zellige
from counting_store import CountingStore, contents
from zellige.errors import BroadcastError, ChunkShapeError, ConflictError, CorruptChunkError, MetadataError
from zellige.stores import MemoryStore

DOCUMENT = "zarr.json"


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def array(store) -> zellige.Array:
    made = zellige.create_array(store, data=ours.counted((6, 7)), chunks=[[1, 2, 3], 4], dimension_names=["time", "x"])
    store.reset()
    return made


def document(store: Any) -> dict[str, Any]:
    return json.loads(store.get(DOCUMENT))


# -- attributes -----------------------------------------------------------------------------------


def test_attributes_are_a_dict_that_writes_every_change(array, store):
    attrs = array.attrs
    attrs["a"] = 1
    attrs.update({"b": [1, 2]}, c={"d": None})
    assert attrs == {"a": 1, "b": [1, 2], "c": {"d": None}}
    assert document(store)["attributes"] == attrs.asdict()
    del attrs["a"]
    assert attrs.pop("b") == [1, 2]
    assert attrs.setdefault("c", 5) == {"d": None}
    assert attrs.setdefault("e", "é") == "é"
    assert (list(attrs), len(attrs), "c" in attrs, attrs.get("x")) == (["c", "e"], 2, True, None)
    assert attrs.put({"only": True}) is None
    assert array.attrs == zellige.open(store).attrs == {"only": True}
    assert repr(attrs) == "Attributes({'only': True})"
    assert array.update_attributes({"more": 1}) is array
    attrs.clear()
    assert "attributes" not in document(store)
    with pytest.raises(KeyError):
        attrs["x"]


def test_reading_attributes_asks_nothing_and_a_change_asks_twice(array, store):
    array.attrs.update(a=1, b=2)
    assert store.counts() == {"get": 1, "replace": 1}
    store.reset()
    assert array.attrs["a"] == 1
    assert dict(array.attrs) == {"a": 1, "b": 2}
    assert store.calls == []


def test_numpy_values_become_json(array, store):
    values = {
        "int": np.int16(3),
        "float": np.float32(0.5),
        "bool": np.True_,
        "array": np.arange(4).reshape(2, 2),
        "tuple": (1, (2, "x")),
        "nested": {"deep": [np.uint8(1)]},
    }
    array.attrs.update(values)
    expected = {
        "int": 3,
        "float": 0.5,
        "bool": True,
        "array": [[0, 1], [2, 3]],
        "tuple": [1, [2, "x"]],
        "nested": {"deep": [1]},
    }
    assert array.attrs == document(store)["attributes"] == expected
    assert type(array.attrs["bool"]) is bool


@pytest.mark.parametrize("value", [len, {1: 2}, {"a": {1, 2}}, b"x", 1j, [np.datetime64("2020")]], ids=repr)
def test_values_that_are_not_json_are_refused(array, store, value):
    array.attrs["a"] = 1
    before = contents(store)
    with pytest.raises(MetadataError, match="attributes"):
        array.attrs["a"] = value
    with pytest.raises(MetadataError, match="attributes"):
        array.attrs.put({"x": value})
    assert contents(store) == before
    assert array.attrs == {"a": 1}


def test_a_refused_deletion_changes_nothing(array, store):
    before = contents(store)
    with pytest.raises(KeyError):
        del array.attrs["missing"]
    assert contents(store) == before


def test_unknown_fields_of_the_document_are_kept(array, store):
    known = document(store)
    extension = {"must_understand": False, "by": ["somebody"]}
    store.put(DOCUMENT, json.dumps({**known, "x_extension": extension}).encode())
    array.attrs["a"] = 1
    array.resize((7, 7))
    array.append(ours.counted((1, 7)))
    found = document(store)
    assert found.pop("x_extension") == extension
    assert found.keys() - {"attributes"} == known.keys()


# -- the shape ------------------------------------------------------------------------------------


def test_resize_in_every_form(array):
    array.resize((8, 7))
    assert array.write_chunk_sizes == ((1, 2, 3, 2), (4, 3))  # the last edge again
    array.resize((9, 7), chunks={"time": [2]})  # the slack of the last edge suffices
    assert array.write_chunk_sizes[0] == (1, 2, 3, 3)
    array.resize((14, 9), chunks=[[2, 5], None])
    assert array.write_chunk_sizes == ((1, 2, 3, 3, 2, 3), (4, 4, 1))
    array.resize([np.int64(14), 15], chunks={1: 2})
    assert array.write_chunk_sizes[1] == (4, 4, 4, 2, 1)
    array.shape = (2, 3)
    assert array.shape == (2, 3)
    assert array.write_chunk_sizes == ((1, 1), (3,))
    one = zellige.zeros(5, chunks=2)
    one.resize(9)
    assert one.write_chunk_sizes == ((2, 2, 2, 2, 1),)


BAD_RESIZES: list[tuple[type[Exception], Any, dict[str, Any]]] = [
    (ValueError, (5,), {}),
    (ValueError, (5, 6, 7), {}),
    (ValueError, (-1, 7), {}),
    (ValueError, (6.0, 7), {}),
    (ValueError, "ab", {}),
    (ValueError, None, {}),
    (ValueError, 6, {}),
    (ValueError, (2**63, 7), {}),
    (ValueError, (6, 2**63), {}),
    (ChunkShapeError, (20, 7), {"chunks": "auto"}),
    (ChunkShapeError, (20, 7), {"chunks": [5]}),
    (ChunkShapeError, (20, 7), {"chunks": [0, None]}),
    (ChunkShapeError, (20, 7), {"chunks": [-1, None]}),
    (ChunkShapeError, (20, 7), {"chunks": [[5, 5], None]}),
    (ChunkShapeError, (20, 7), {"chunks": [[], None]}),
    (ChunkShapeError, (20, 7), {"chunks": [2.5, None]}),
    (ChunkShapeError, (20, 7), {"chunks": {"y": 5}}),
]


@pytest.mark.parametrize(("kind", "shape", "options"), BAD_RESIZES, ids=repr)
def test_a_refused_resize_changes_nothing(array, store, kind, shape, options):
    before = contents(store)
    with pytest.raises(kind):
        array.resize(shape, **options)
    assert contents(store) == before
    assert array.shape == (6, 7)
    assert array.write_chunk_sizes == ((1, 2, 3), (4, 3))
    assert np.array_equal(array[...], ours.counted((6, 7)))


BAD_APPENDS: list[tuple[type[Exception], Any, dict[str, Any]]] = [
    (BroadcastError, np.zeros((2, 6)), {}),
    (BroadcastError, np.zeros(7), {}),
    (BroadcastError, 5, {}),
    (BroadcastError, np.zeros((2, 7)), {"axis": 1}),
    (IndexError, np.zeros((1, 7)), {"axis": 2}),
    (IndexError, np.zeros((1, 7)), {"axis": -3}),
    (TypeError, np.zeros((1, 7)), {"axis": "time"}),
    (ChunkShapeError, np.zeros((5, 7)), {"chunks": [2, 2]}),
    (ChunkShapeError, np.zeros((5, 7)), {"chunks": 0}),
    (ChunkShapeError, np.zeros((5, 7)), {"chunks": []}),
    (ValueError, [["x"] * 7], {}),
    (ValueError, [[1, 2], [3]], {}),
]


@pytest.mark.parametrize(("kind", "data", "options"), BAD_APPENDS, ids=repr)
def test_a_refused_append_changes_nothing(array, store, kind, data, options):
    before = contents(store)
    with pytest.raises(kind):
        array.append(data, **options)
    assert contents(store) == before
    assert array.shape == (6, 7)


def test_an_axis_is_no_name_and_the_error_says_which_names_there_are(array):
    with pytest.raises(TypeError, match=r"array '/': axis='time' must be an integer from -2 to 1; .*\('time', 'x'\)"):
        array.append(np.zeros((1, 7)), axis="time")


def test_append_returns_the_shape_and_cuts_the_new_region(array):
    assert array.append(np.ones((5, 7)), chunks=[2, 3]) == (11, 7)
    assert array.append(np.ones((11, 3)), axis=-1, chunks=2) == (11, 10)
    assert array.write_chunk_sizes == ((1, 2, 3, 2, 3), (4, 4, 2))
    assert array.append(np.ones((0, 10))) == (11, 10)
    expected = np.ones((11, 10), "int32")
    expected[:6, :7] = ours.counted((6, 7))
    assert np.array_equal(array[...], expected)


def test_append_writes_the_data_before_the_document(array, store):
    array.append(ours.counted((4, 7)))
    writes = [call.key for call in store.calls if call.method in ("put", "replace")]
    assert writes[-1] == DOCUMENT
    assert writes[0] == "__zellige_pending"  # until the document is there
    assert sorted(writes[1:-1]) == ["c/3/0", "c/3/1", "c/4/0", "c/4/1"]
    assert store.keys("delete") == ["__zellige_pending"]


def test_a_failed_append_leaves_the_array_as_it_was(array, store):
    def fail(method: str, key: str) -> None:
        if method == "put" and key == "c/4/1":
            raise OSError("no space left")

    before = store.get(DOCUMENT)
    store.before = fail
    with pytest.raises(OSError, match="no space left"):
        array.append(np.ones((4, 7)))
    store.before = None
    assert store.get(DOCUMENT) == before
    assert array.shape == zellige.open(store).shape == (6, 7)
    assert np.array_equal(array[...], ours.counted((6, 7)))
    array.resize((12, 7))
    assert not array[6:].any()  # nothing of what was written shows
    array.resize((6, 7))
    array.append(2 * np.ones((4, 7)))
    assert (array[6:] == 2).all()


@pytest.mark.parametrize("chunks", [4, [[4, 8]]], ids=["regular", "rectilinear"])
def test_a_failed_append_leaves_no_data_in_the_last_chunk(store, chunks):
    array = zellige.create_array(store, data=np.ones(6), chunks=chunks)

    def fail(method: str, _key: str) -> None:
        if method == "replace":
            raise KeyboardInterrupt

    store.before = fail
    with pytest.raises(KeyboardInterrupt):
        array.append(np.full(5, 7.0))
    store.before = None
    assert array.shape == zellige.open(store).shape == (6,)
    array.resize((11,))
    assert array[...].tolist() == [1] * 6 + [0] * 5


def test_shrinking_and_growing_never_shows_old_data(array):
    array.resize((0, 7))
    array.resize((6, 7))
    assert not array[...].any()
    array[...] = 5
    array.resize((4, 5))
    array.resize((6, 7))
    expected = np.zeros((6, 7))
    expected[:4, :5] = 5
    assert np.array_equal(array[...], expected)


def test_shrinking_leaves_a_damaged_chunk_damaged(store):
    array = zellige.create_array(store, data=np.arange(1, 11), chunks=4)
    store.put("c/0", b"damaged")
    array.resize((2,))
    assert sorted(contents(store)) == ["c/0", DOCUMENT]
    array.resize((10,))
    assert not array[4:].any()
    with pytest.raises(CorruptChunkError):
        array[3]
    array[:4] = 5
    assert array[...].tolist() == [5] * 4 + [0] * 6


def test_a_stale_handle_shrinks_what_is_stored_now(store):
    stale = zellige.create_array(store, shape=(4,), chunks=2, dtype="int8")
    other = zellige.open(store)
    other.resize((20,))
    other[...] = 7
    stale.resize((9,))
    stale.resize((20,))
    assert stale[...].tolist() == [7] * 9 + [0] * 11


@pytest.mark.parametrize("change", ["append", "resize", "attrs"])
def test_a_handle_of_an_array_that_was_replaced_says_so(change):
    store = MemoryStore()
    old = zellige.create_array(store, data=np.arange(4), chunks=2)
    new = zellige.create_array(store, data=np.arange(4.0), chunks=2, compressors=None, overwrite=True)
    before = contents(store)
    actions = {
        "append": lambda: old.append([5]),
        "resize": lambda: old.resize((3,)),
        "attrs": lambda: old.attrs.update(a=1),
    }
    with pytest.raises(ConflictError, match="replaced"):
        actions[change]()
    assert contents(store) == before
    assert np.array_equal(new[...], np.arange(4.0))
    old.refresh()
    actions[change]()
    assert old.dtype == np.float64
