from __future__ import annotations

import pickle

import pytest

from zellige.errors import ReadOnlyError, StoreKeyError
from zellige.stores import LocalStore, MemoryStore, Store
from zellige.stores.resolve import StorePath


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path) -> Store:
    return LocalStore(tmp_path / "s") if request.param == "local" else MemoryStore()


@pytest.mark.parametrize("path", ["a/b", "/a/b", "a/b/", "//a//b//", "\\a\\b"])
def test_a_path_has_no_outer_slashes(store, path):
    place = StorePath(store, path)
    assert place.path == "a/b"
    assert place.store is store
    assert StorePath(store, "a") / "b" == StorePath(store) / "a/b" == StorePath(store, "a") / "/b/" == place


@pytest.mark.parametrize("path", ["..", "a/..", "../a", "a/../b", ".", "a\0b", "a\\..\\b", ".zellige-tmp-x"])
def test_what_is_no_key_is_refused(store, path):
    with pytest.raises(StoreKeyError):
        StorePath(store, path)
    with pytest.raises(StoreKeyError):
        StorePath(store, "x") / path


def test_names_and_parents(store):
    place = StorePath(store, "a/b/c")
    assert place.name == "c"
    assert place.parent == StorePath(store, "a/b")
    assert place.parent.parent.parent == StorePath(store)
    assert StorePath(store).parent == StorePath(store)
    assert StorePath(store).name == StorePath(store).path == ""


def test_a_value_is_set_and_got_and_deleted(store):
    place = StorePath(store, "a/b")
    assert not place.exists()
    assert place.get() is None
    place.delete()
    place.set(bytearray(b"value"))
    assert place.exists()
    assert place.get() == store.get("a/b") == b"value"
    place.delete()
    assert not place.exists()
    assert store.get("a/b") is None


def test_a_place_with_keys_below_it_has_no_value(store):
    store.put("a/b/c", b"x")
    for path in ("", "a", "a/b"):
        assert not StorePath(store, path).exists()
        assert StorePath(store, path).get() is None
        assert not StorePath(store, path).is_empty()
    for path in ("a/b/c", "a/b/d", "b", "a/bb"):
        assert StorePath(store, path).is_empty()
    store.delete(["a/b/c"])
    assert StorePath(store).is_empty()


def test_the_root_holds_no_value(store):
    with pytest.raises(StoreKeyError):
        StorePath(store).set(b"x")
    with pytest.raises(StoreKeyError):
        StorePath(store).delete()


def test_equal_places_are_of_one_store_and_path(store, tmp_path):
    place = StorePath(store, "a")
    assert place == StorePath(store, "/a/")
    assert hash(place) == hash(StorePath(store, "/a/"))
    assert len({place, StorePath(store, "a"), StorePath(store, "b")}) == 2
    assert place != StorePath(store, "b")
    assert place != StorePath(MemoryStore(), "a")
    assert place != StorePath(store.as_read_only(), "a")
    assert place != "a"
    assert place != tmp_path / "a"


def test_a_place_does_not_change(store):
    place = StorePath(store, "a")
    for name in ("store", "path", "name", "parent", "other"):
        with pytest.raises(AttributeError):
            setattr(place, name, "b")


def test_a_place_of_a_store_that_refuses_to_write(store):
    assert not StorePath(store).read_only
    place = StorePath(store.as_read_only(), "a")
    assert place.read_only
    with pytest.raises(ReadOnlyError):
        place.set(b"x")


def test_the_text_of_a_place(tmp_path):
    local, memory = LocalStore(tmp_path), MemoryStore()
    assert str(StorePath(local, "a/b")) == f"{tmp_path}/a/b"
    assert str(StorePath(local)) == str(tmp_path)
    assert str(StorePath(LocalStore("/"), "a")) == "/a"
    assert str(StorePath(LocalStore("/"))) == "/"
    root = str(StorePath(memory))
    assert root.startswith("memory://")
    assert str(StorePath(memory, "a/b")) == f"{root}/a/b"
    assert root != str(StorePath(MemoryStore()))
    assert repr(StorePath(local, "a")) == f"StorePath({local!r}, 'a')"


def test_a_store_of_another_kind_is_named_by_itself(tmp_path, monkeypatch):
    class Near(LocalStore):
        pass

    class Far(Store):
        def __repr__(self) -> str:
            return "Far(7)"

    monkeypatch.setattr(Far, "__abstractmethods__", frozenset())
    assert str(StorePath(Near(tmp_path), "a")) == f"{tmp_path}/a"
    assert str(StorePath(Far(), "a")) == "Far(7)/a"


def test_pickling(tmp_path):
    place = StorePath(LocalStore(tmp_path), "a/b")
    assert pickle.loads(pickle.dumps(place)) == place


def test_what_cannot_be_added_to_a_path(store):
    with pytest.raises(TypeError):
        StorePath(store, "a") / 5
