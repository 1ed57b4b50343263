"""The steps of `nodes/resize.py`: what happens to an append when others change the array between them."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import obstore.store
import pytest

import zellige
from zellige.errors import ConflictError
from zellige.nodes import lease, node, resize
from zellige.stores import MemoryStore, Store
from zellige.stores.object import ObjectStore
from zellige.stores.wrappers import LoggingStore

OLD = np.arange(1, 8)
MORE = np.arange(100, 106)


@pytest.fixture(params=["memory", "object"])
def store(request) -> Store:
    """One whose lock keeps others out, and one that knows conditions only."""
    return MemoryStore() if request.param == "memory" else ObjectStore(obstore.store.MemoryStore())


@pytest.fixture(params=[3, 2])
def array(store, request) -> zellige.Array:
    return zellige.create_array(store, data=OLD, chunks=3, zarr_format=request.param)


def after_writing(monkeypatch: pytest.MonkeyPatch, act: Any) -> list[int]:
    """Do something as soon as the data of an append is written; returns a list that grows with each write."""
    writes: list[int] = []
    write = resize.write

    def write_and_act(*args: Any, **options: Any) -> None:
        write(*args, **options)
        writes.append(1)
        act()

    monkeypatch.setattr(resize, "write", write_and_act)
    return writes


def test_attributes_that_change_while_data_is_written_are_kept_and_data_is_written_once(array, store, monkeypatch):
    def set_one() -> None:
        zellige.open_array(store, mode="r+").attrs["unit"] = "K"

    writes = after_writing(monkeypatch, set_one)
    assert array.append(MORE) == (13,)
    assert len(writes) == 1
    found = zellige.open_array(store, mode="r")
    assert found.attrs.asdict() == {"unit": "K"}
    assert found[...].tolist() == [*OLD, *MORE]
    assert not store.exists(node.PENDING)


@pytest.mark.parametrize("length", [4, 20])
def test_a_shape_that_a_program_without_leases_changes_is_an_error_and_stays(array, store, monkeypatch, length):
    name = node.document_names(array.metadata)[0]

    def resize_otherwise() -> None:
        store.put(name, json.dumps({**json.loads(store.get(name)), "shape": [length]}).encode())

    after_writing(monkeypatch, resize_otherwise)
    with pytest.raises(ConflictError, match="resized meanwhile"):
        array.append(MORE)
    assert array.shape == zellige.open_array(store, mode="r").shape == (length,)
    assert not store.exists(node.PENDING)
    array.resize((30,))
    assert array[length:].tolist() == [0] * (30 - length)


def test_an_append_whose_answer_was_lost_is_done_once(array, store, monkeypatch):
    """Clients repeat a request that was not answered, and are told that its condition does not hold."""
    replace, lost = type(store).replace, []

    def unanswered(self: Store, key: str, value: bytes, version: str) -> bool:
        done = replace(self, key, value, version)
        if key.endswith(("zarr.json", ".zarray")) and not lost:
            lost.append(key)
            return False
        return done

    monkeypatch.setattr(type(store), "replace", unanswered)
    assert array.append(MORE) == (13,)
    assert lost
    assert array[...].tolist() == zellige.open_array(store, mode="r")[...].tolist() == [*OLD, *MORE]


def test_one_who_was_taken_for_dead_shows_nothing():
    """Another writer has removed what lies beyond the end, and has not touched the metadata."""
    store = ObjectStore(obstore.store.MemoryStore())
    array = zellige.create_array(store, data=OLD, chunks=3)
    other = lease.dump(
        "",
        lease.Owner("1.2.elsewhere", "far-away", "0123", time.time()),
        {},
    )

    with pytest.MonkeyPatch.context() as patch, zellige.config.set({"lease.timeout": 0}):

        def taken_over() -> None:
            store.put(node.PENDING, other)
            store.delete(["c/3"])

        after_writing(patch, taken_over)
        with pytest.raises(ConflictError, match="taken over"):
            array.append(MORE)
    assert zellige.open_array(store, mode="r")[...].tolist() == OLD.tolist()
    assert store.get(node.PENDING) == other


def test_a_handle_that_is_behind_removes_nothing_that_others_appended(array, store):
    behind = zellige.open_array(store, mode="r+")
    array.append(MORE)
    store.put(node.PENDING, b"{}")  # as a killed writer leaves it
    with resize.shape_lease(behind) as held:
        assert held.grid == array.grid
        held.recover()
    assert zellige.open_array(store, mode="r")[...].tolist() == [*OLD, *MORE]
    assert not store.exists(node.PENDING)


def test_what_is_refused_is_refused_before_anything_is_written(array, store):
    before = {key: store.get(key) for key in store.list()}
    refused = [lambda: array.append([[1]]), lambda: array.append([1], axis=1), lambda: array.resize((-1,))]
    if array.metadata.zarr_format == 2:
        refused += [lambda: array.append(MORE, chunks=[6]), lambda: array.resize((20,), chunks=[[11]])]
    for change in refused:
        with pytest.raises((ValueError, IndexError)):
            change()
        assert {key: store.get(key) for key in store.list()} == before


def test_an_append_takes_no_more_requests_than_its_steps():
    """Lease, metadata, chunks, commit, release."""
    requests: list[str] = []
    store = LoggingStore(ObjectStore(obstore.store.MemoryStore()), lambda line: requests.append(line.split(":")[0]))
    array = zellige.create_array(store, data=OLD[:6], chunks=3)
    requests.clear()
    array.append(MORE)
    requests[2:4] = sorted(requests[2:4])  # chunks are written at once
    lease, chunks = f"{node.PENDING!r}", ["write 'c/2'", "write 'c/3'"]
    assert requests == [
        *(f"write {lease}", "read 'zarr.json'", *chunks),
        *("write 'zarr.json'", f"read {lease}", f"delete [{lease}]"),
    ]
