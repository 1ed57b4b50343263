"""Documents that were met before are not checked again; nothing that a handle changes shows in another."""

from __future__ import annotations

import numpy as np
import pytest

import zellige
from counting_store import CountingStore
from zellige import blueprint
from zellige.metadata import ArrayV3Metadata


@pytest.fixture(autouse=True)
def nothing_known():
    blueprint._known.clear()


def test_the_same_document_is_checked_once(monkeypatch):
    store = zellige.MemoryStore()
    for name in ("a", "b"):
        zellige.create_array(store, name=name, shape=(6,), chunks=[[1, 2, 3]], dtype="int8", attributes={"x": [1]})
    checked = []
    real = ArrayV3Metadata.from_dict.__func__
    monkeypatch.setattr(ArrayV3Metadata, "from_dict", classmethod(lambda cls, d: checked.append(1) or real(cls, d)))
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
    monkeypatch.setattr(blueprint, "_MOST", 3)
    monkeypatch.setattr(blueprint, "_LONGEST", 1000)
    store = zellige.MemoryStore()
    for k in range(5):
        zellige.create_array(store, name=f"{k}", shape=(k,))
        zellige.open_array(store, path=f"{k}")
        assert 1 <= len(blueprint._known) <= 3
    zellige.create_array(store, name="long", shape=(1,), attributes={"text": "x" * 1000})
    before = dict(blueprint._known)
    zellige.open_array(store, path="long")
    assert blueprint._known == before
