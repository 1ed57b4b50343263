from __future__ import annotations

import collections
import pickle
import threading

import numpy as np
import pytest
from store_suite import StoreSuite, enter

import zellige
from running import fork
from zellige.stores import MemoryStore


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestMemoryStoreOverAnotherMapping(StoreSuite):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore(collections.UserDict())


def test_a_given_dict_is_used_in_place():
    data = {"a": b"1"}
    store = MemoryStore(data)
    store.put("b", bytearray(b"2"))
    data["c"] = b"3"
    assert data == {"a": b"1", "b": b"2", "c": b"3"}
    assert type(data["b"]) is bytes
    assert store.get("c") == b"3"
    assert store == MemoryStore(data)
    assert store != MemoryStore(dict(data))


def test_an_empty_dict_is_used_in_place():
    data: dict[str, bytes] = {}
    MemoryStore(data).put("a", b"1")
    assert data == {"a": b"1"}


def test_values_of_others_become_bytes():
    data = {"a": bytearray(b"1"), "b": memoryview(b"12345678").cast("I"), "c": np.frombuffer(b"56", "u1")}
    store = MemoryStore(data)
    data["n"] = 5  # by somebody else, later
    assert store.get("a") == b"1"
    assert type(store.get("a")) is bytes
    assert store.size("b") == 8
    assert store.get("c") == b"56"
    with pytest.raises(TypeError):
        store.get("n")


def test_the_version_follows_changes_by_others():
    data = {"k": bytearray(b"one")}
    store = MemoryStore(data)
    version = store.read("k").tag
    data["k"][0] = 0
    assert not store.replace("k", b"two", version)
    data["k"] = b"one"
    assert store.replace("k", b"two", version)


def test_what_is_no_key_is_not_listed():
    store = MemoryStore({"": b"", "/a": b"", "a//b": b"", "a/.zellige-tmp-1": b"", "a/b": b"x"})
    assert list(store.list()) == ["a/b"]
    assert store.list_dir() == ([], ["a/"])


def test_a_pickle_is_a_copy():
    store = MemoryStore({"k": b"x"})
    copy = pickle.loads(pickle.dumps(store))
    copy.put("k", b"y")
    assert store.get("k") == b"x"
    assert copy != store


def test_repr():
    assert repr(MemoryStore({"a": b""})) == "MemoryStore(<dict of 1>)"
    assert repr(MemoryStore(collections.UserDict(), read_only=True)) == "MemoryStore(<UserDict>, read_only=True)"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_write_while_a_thread_of_the_parent_held_the_lock():
    store = MemoryStore({"k": b"x"})
    held, done = threading.Event(), threading.Event()

    def hold():
        with store.lock("k"):
            held.set()
            done.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    held.wait()

    def write():
        enter(store, "k")
        store.put("k", b"y")
        return store.get("k") == b"y"

    assert fork(write)()
    done.set()
    thread.join()
    assert store.get("k") == b"x"


@pytest.mark.parametrize(
    ("data", "words"), [({"t": 1}, "bytes as its values.*'t'"), ({1: b"2"}, "text as its keys.*1")]
)
@pytest.mark.parametrize(
    "use",
    [
        lambda data, _: zellige.copy_store(data, _),
        lambda data, _: zellige.validate(data),
        lambda data, _: zellige.repair(data),
        lambda data, _: zellige.open(data),
        lambda data, _: zellige.save(data, [1, 2]),
        lambda data, _: zellige.MemoryStore(data),
    ],
)
def test_a_dict_that_is_no_store_is_refused_before_anything_is_written(data, words, use, tmp_path):
    before = dict(data)
    with pytest.raises(TypeError, match=words):
        use(data, tmp_path / "new.zarr")
    assert data == before
    assert not (tmp_path / "new.zarr").exists()
