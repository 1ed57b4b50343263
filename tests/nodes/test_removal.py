"""Removing, overwriting and moving nodes: stopped at any request it can be repeated, and nothing else is touched."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import CountingStore, contents
from zellige.errors import (
    BrokenNodeWarning,
    ConflictError,
    ContainsArrayError,
    NodeNotFoundError,
    NotANodeError,
    ReadOnlyError,
    UnsafeLinkError,
)
from zellige.metadata import GroupMetadata
from zellige.nodes import hierarchy, remove
from zellige.nodes.node import UNFINISHED
from zellige.stores import LocalStore, MemoryStore, Store, abilities

SHAPE, CHUNKS = (4, 6), (2, 6)
FOREIGN = {"README.txt": b"read me", ".git/HEAD": b"ref", "2024/notes": b"n", "c/notes": b"beside the chunks"}
KEYS = {
    "default /": {"name": "default", "separator": "/"},
    "default .": {"name": "default", "separator": "."},
    "v2 .": {"name": "v2", "separator": "."},
    "v2 /": {"name": "v2", "separator": "/"},
}


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    """The real fsync takes long and shows nothing here."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "x.zarr")


def fill(group: zellige.Group, name: str, **options: Any) -> zellige.Array:
    array = group.create_array(name, shape=SHAPE, chunks=CHUNKS, dtype="int32", attributes={"old": True}, **options)
    array[...] = 5
    return array


def build(store: Store, zarr_format: Any, *, consolidated: bool = False) -> dict[str, bytes]:
    """A hierarchy at `t`, files that are not part of it, and another array beside it; returns those files."""
    root = zellige.create_group(store, zarr_format=zarr_format)
    keys = {} if zarr_format == 2 else {"chunk_key_encoding": KEYS["default ."]}
    fill(root, "t/x", **keys)
    fill(root, "t/y/z")
    fill(root, "beside")
    kept = {f"{path}/{name}": value for path in ("t", "t/x") for name, value in FOREIGN.items()}
    for key, value in kept.items():
        store.put(key, value)
    if consolidated:
        root.consolidate_metadata()
    return kept


def new_array(zarr_format: Any) -> Any:
    return zellige.create_array(
        shape=SHAPE, chunks=CHUNKS, dtype="int16", fill_value=3, zarr_format=zarr_format
    ).metadata


def write_array(root: zellige.Group, name: str) -> None:
    root.create_array(name, shape=SHAPE, chunks=CHUNKS, dtype="int16", fill_value=3, overwrite=True)


def write_hierarchy(root: zellige.Group) -> None:
    form = root.metadata.zarr_format
    nodes = {"t": GroupMetadata(zarr_format=form), "t/x": new_array(form), "t/n/m": new_array(form)}
    root.create_hierarchy(nodes, overwrite=True)


OPERATIONS: dict[str, Callable[[zellige.Group], object]] = {
    "an array over a group": lambda root: write_array(root, "t"),
    "an array over an array": lambda root: write_array(root, "t/x"),
    "a group over a group": lambda root: root.create_group("t", overwrite=True),
    "a group over an array": lambda root: root.create_group("t/x", overwrite=True),
    "a hierarchy": write_hierarchy,
    "deleting a group": lambda root: root.__delitem__("t"),
    "deleting an array": lambda root: root.__delitem__("t/x"),
    "moving a group": lambda root: root.move("t", "m/n"),
    "moving an array": lambda root: root.move("t/x", "t/w"),
}


class Stop(Exception):
    """The process is gone."""


def stopping_at(number: int, *, lasting: bool) -> Callable[[str, str], None]:
    """For `before` of a store: this request fails, and with `lasting` all after it, as if the process were dead."""
    seen = itertools.count()

    def before(_method: str, _key: str) -> None:
        turn = next(seen)
        if turn == number or (lasting and turn > number):
            raise Stop

    return before


def assert_whole(store: Store) -> None:
    """Every array that can be opened is wholly the old one, or wholly the new."""
    for path in ("t", "t/x", "t/y/z", "t/w", "t/n/m", "m/n/x", "m/n/y/z", "beside"):
        try:
            array = zellige.open_array(store, path=path, mode="r")
        except NodeNotFoundError:
            continue
        old = array.dtype == np.dtype("int32")
        assert np.array_equal(array[...], np.full(SHAPE, 5 if old else 3)), f"{path} is half there"
        assert dict(array.attrs) == ({"old": True} if old else {}), f"{path} has the attributes of another"


def moved(key: str, name: str) -> str:
    """Where a file is that lies in a directory which an operation moves."""
    if name == "moving a group":
        return key.replace("t/", "m/n/", 1)
    return key.replace("t/x/", "t/w/", 1) if name == "moving an array" else key


# -- stopped at every request ---------------------------------------------------------------------


@pytest.mark.parametrize(("zarr_format", "lasting"), [(2, True), (3, True), (3, False)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_was_stopped_anywhere_can_be_repeated(name, zarr_format, lasting):
    clean = MemoryStore()
    kept = build(clean, zarr_format)
    before = dict(contents(clean))
    OPERATIONS[name](zellige.open_group(clean, zarr_format=zarr_format))
    wanted = contents(clean)
    assert {moved(key, name): value for key, value in kept.items()}.items() <= wanted.items()
    assert not [key for key in wanted if UNFINISHED in key]
    for number in itertools.count():
        store = CountingStore(MemoryStore(dict(before)))
        root = zellige.open_group(store, zarr_format=zarr_format)
        store.before = stopping_at(number, lasting=lasting)
        stopped = False
        try:
            OPERATIONS[name](root)
        except Stop:
            stopped = True
        store.before = None
        if not stopped:
            break
        assert_whole(store)
        found = contents(store)
        assert all(value in (found.get(key), found.get(moved(key, name))) for key, value in kept.items())
        if contents(store) != wanted:  # the last request may have failed after all was done
            OPERATIONS[name](zellige.open_group(store, zarr_format=zarr_format))
        assert contents(store) == wanted
    assert number >= 9
    assert contents(store) == wanted


@pytest.mark.parametrize("name", ["an array over a group", "deleting a group"])
@pytest.mark.parametrize(
    ("zarr_format", "call"), [(2, "unlink"), (3, "unlink"), (3, "rmdir"), (2, "replace"), (3, "link")]
)
def test_what_the_system_stopped_can_be_repeated(tmp_path, name, zarr_format, call):
    real = getattr(os, call)
    build(LocalStore(tmp_path / "clean"), zarr_format)
    OPERATIONS[name](zellige.open_group(tmp_path / "clean", zarr_format=zarr_format))
    wanted = contents(LocalStore(tmp_path / "clean"))
    for number in itertools.count():
        target = LocalStore(tmp_path / str(number))
        kept = build(target, zarr_format)
        root, seen, stopped = zellige.open_group(target, zarr_format=zarr_format), itertools.count(), False

        def fail(*args: Any, seen=seen, number=number, **options: Any) -> None:
            if next(seen) >= number:
                raise OSError(5, os.strerror(5))
            real(*args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, call, fail)
            try:
                OPERATIONS[name](root)
            except OSError:
                stopped = True
        if not stopped:
            break
        assert_whole(target)
        assert kept.items() <= contents(target).items()
        fresh = zellige.open_group(target, zarr_format=zarr_format)
        if contents(target) != wanted:
            OPERATIONS[name](fresh)
        assert contents(target) == wanted
    assert number < 200


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_consolidated_metadata_is_right_afterwards_and_after_repeating(store, name, zarr_format):
    build(store, zarr_format, consolidated=True)
    before, wanted = dict(contents(store)), None
    for number in (None, 1, 4, 7, 10):
        target = CountingStore(MemoryStore(dict(before)))
        root = zellige.open_consolidated(target, zarr_format=zarr_format)
        if number is not None:
            target.before = stopping_at(number, lasting=True)
            with pytest.raises(Stop):
                OPERATIONS[name](root)
            target.before = None
            root = zellige.open_consolidated(target, zarr_format=zarr_format)
        OPERATIONS[name](root)
        checked = zellige.open_consolidated(target, zarr_format=zarr_format, check=True)
        wanted = wanted or sorted(path for path, _ in checked.members(max_depth=None))
        assert sorted(path for path, _ in checked.members(max_depth=None)) == wanted


def test_a_deleted_array_is_whole_for_those_who_know_it_from_consolidated_metadata():
    clean = MemoryStore()
    build(clean, 3, consolidated=True)
    stopped = 0
    for number in itertools.count():
        store = CountingStore(MemoryStore(dict(contents(clean))))
        root = zellige.open_consolidated(store)
        store.before = stopping_at(number, lasting=True)
        try:
            del root["t/y"]
        except Stop:
            stopped += 1
        else:
            break
        store.before = None
        found = zellige.open_consolidated(store).get("t/y/z")
        assert found is None or np.array_equal(found[...], np.full(SHAPE, 5))
    assert stopped > 10


# -- what a removal that was begun means to others ------------------------------------------------


def half_removed(zarr_format: int = 3, path: str = "t", after: int = 1) -> CountingStore:
    """A store in which a removal was stopped when this number of documents was gone."""
    store = CountingStore()
    build(store, zarr_format)
    seen = itertools.count()

    def before(method: str, _key: str) -> None:
        if method == "delete" and next(seen) >= after:
            raise Stop

    root = zellige.open_group(store)
    store.before = before
    with pytest.raises(Stop):
        del root[path]
    store.before = None
    assert store.exists(f"{path}/{UNFINISHED}")
    return store


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("after", [1, 2, 4, 6])
@pytest.mark.parametrize(
    "make",
    [
        lambda root: root.create_group("t"),
        lambda root: root.create_array("t/x", shape=3),
        lambda root: root.create_array("t/y", shape=3),
        lambda root: root.require_group("t"),
        lambda root: list(root.create_hierarchy({"t": GroupMetadata(zarr_format=root.metadata.zarr_format)})),
    ],
    ids=["group", "member", "member in the place of a group", "require", "hierarchy"],
)
def test_creating_where_a_removal_was_begun_finishes_it(zarr_format, after, make):
    store = half_removed(zarr_format, after=after)
    root = zellige.open_group(store, zarr_format=zarr_format)
    make(root)
    assert isinstance(root["t"], zellige.Group)
    assert [name for name in root["t"] if np.any(np.asarray(root["t"][name][...]) == 5)] == []
    assert not [key for key in store.list("t/") if UNFINISHED in key or key.startswith("t/y/z/c/0")]
    assert store.get("t/x/README.txt") == b"read me"


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_array_in_the_place_of_a_half_removed_one_shows_nothing_of_it(after):
    store = half_removed(path="t/y/z", after=after)
    root = zellige.open_group(store)
    array = root.create_array("t/y/z", shape=SHAPE, chunks=CHUNKS, dtype="int32", fill_value=1)
    assert np.array_equal(array[...], np.full(SHAPE, 1))
    assert not store.exists(f"t/y/z/{UNFINISHED}")


def test_half_removed_nodes_are_no_members():
    store = half_removed()
    root = zellige.open_group(store)
    assert list(root) == ["beside"]
    assert "t" not in root
    assert [path for path, _ in root.members(max_depth=None)] == ["beside"]
    assert "t" not in repr(root.tree()).split()


def test_a_mark_beside_a_node_changes_nothing(store):
    build(store, 3)
    store.put(f"t/x/{UNFINISHED}", b"{}")
    root = zellige.open_group(store)
    assert sorted(root["t"]) == ["x", "y"]
    root["t/x"][...] = 6
    root["t/x"].append(np.ones((1, 6), "int32"))
    assert root["t/x"].shape == (5, 6)
    with pytest.raises(ContainsArrayError):
        root.create_array("t/x", shape=3)
    assert root["t/x"][0, 0] == 6


@pytest.mark.parametrize(
    "mark",
    [
        b"",
        b"no json",
        b"[]",
        b'{"nodes": 3}',
        b'{"nodes": {"x": [[1, 2]]}}',
        b'{"nodes": {"": [["default", {}, true]]}}',
        b'{"nodes": {"../beside": [["default", {}, 2]]}, "source": "beside"}',
        b"\xff",
    ],
)
def test_a_mark_of_somebody_else_lets_nothing_go_that_is_not_the_nodes_own(store, mark):
    kept = build(store, 3)
    store.put(f"t/{UNFINISHED}", mark)
    before = contents(store)
    root = zellige.open_group(store)
    root.create_group("t", overwrite=True)
    after = contents(store)
    assert kept.items() <= after.items()
    assert {key: value for key, value in before.items() if key.startswith("beside/")}.items() <= after.items()
    assert list(root["t"]) == []


def test_a_removal_in_a_removal_is_finished_too():
    store = half_removed(path="t/y/z", after=2)
    root = zellige.open_group(store)
    del root["t"]
    assert sorted(store.list("t/")) == sorted(f"{p}/{n}" for p in ("t", "t/x") for n in FOREIGN)


def test_of_several_creators_after_a_kill_one_wins(tmp_path):
    for turn in range(5):
        target = LocalStore(tmp_path / str(turn))
        for key, value in contents(half_removed(path="t/y/z", after=2)).items():
            target.put(key, value or b"")
        start, won = threading.Barrier(4), []

        def create(number: int, target=target, start=start, won=won) -> None:
            start.wait()
            try:
                zellige.create_array(target, name="t/y/z", data=np.full(SHAPE, number), chunks=CHUNKS)
            except (ContainsArrayError, NotANodeError):
                return
            won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert np.array_equal(zellige.open_array(target, path="t/y/z")[...], np.full(SHAPE, won[0]))


def test_a_copy_of_a_move_that_was_changed_since_is_not_lost():
    store = CountingStore()
    build(store, 3)
    root = zellige.open_group(store)

    def before(method: str, key: str) -> None:
        if method in ("put", "delete") and key.startswith("t/"):
            raise Stop

    store.before = before
    with pytest.raises(Stop):
        root.move("t", "m")
    store.before = None
    assert np.array_equal(root["t/y/z"][...], root["m/y/z"][...])
    root["t/y/z"][0, 0] = 9
    with pytest.raises(ConflictError, match="'y/z/c/0/0' was changed in one of them"):
        root.move("t", "m")
    assert (root["t/y/z"][0, 0], root["m/y/z"][0, 0]) == (9, 5)
    del root["m"]
    root.move("t", "n")
    assert root["n/y/z"][0, 0] == 9
    assert "t" not in root


def test_only_what_is_there_can_be_moved_or_deleted(store):
    build(store, 3)
    root = zellige.open_group(store)
    before = contents(store)
    for action in (lambda: root.move("nothing", "t2"), lambda: root.__delitem__("nothing"), lambda: root.move("", "a")):
        with pytest.raises(NodeNotFoundError):
            action()
    with pytest.raises(ContainsArrayError):
        root.move("t", "beside")
    store.put("files/x", b"x")
    with pytest.raises(NotANodeError):
        root.move("t", "files")
    store.delete(["files/x"])
    assert contents(store) == before


# -- what is a node's own -------------------------------------------------------------------------


@pytest.mark.parametrize("other", KEYS)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("way", ["overwritten", "deleted"])
def test_only_keys_of_its_own_encoding_go(store, keys, other, way):
    root = zellige.create_group(store)
    array = fill(root, "a", chunk_key_encoding=KEYS[keys])
    mine = set(store.list("a/"))
    strange = zellige.create_array(shape=SHAPE, chunks=CHUNKS, chunk_key_encoding=KEYS[other])
    names = {strange.metadata.chunk_key_encoding.encode_chunk_key(c) for c in [(0, 0), (9, 9), (0,), (0, 0, 0)]}
    for name in sorted(names):
        there = set(store.list("a/"))
        above = {f"a/{name[:cut]}" for cut, letter in enumerate(name) if letter == "/"}
        if not above & there and not any(key.startswith(f"a/{name}/") for key in there):
            store.put(f"a/{name}", b"not mine")
    decode = array.metadata.chunk_key_encoding.decode_chunk_key
    kept = {key for key in store.list("a/") if key not in mine and decode(key[2:], 2) is None}
    if way == "deleted":
        del root["a"]
        assert set(store.list("a/")) == kept
    else:
        root.create_group("a", overwrite=True)
        assert set(store.list("a/")) == kept | {"a/zarr.json"}


@pytest.mark.parametrize("name", ["c/0/0", "c/3/1"])
def test_a_file_that_a_new_array_would_read_as_a_chunk_is_refused_before_anything_goes(store, name):
    root = zellige.create_group(store)
    fill(root, "t/x")
    store.put(f"t/{name}", b"not a chunk")
    before = contents(store)
    nodes = {"t": new_array(3)}
    for action in (lambda: write_array(root, "t"), lambda: root.create_hierarchy(nodes, overwrite=True)):
        with pytest.raises(NotANodeError, match="looks like a chunk"):
            action()
        assert contents(store) == before


DAMAGED = {
    "zarr.json": ["c/0/0", "c/12/3", "c.0.0", "c"],
    ".zarray": ["0.0", "0/1", "7"],
}


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"zarr_format": 9}', b"[1]"])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_node_whose_document_is_damaged_is_overwritten_and_deleted(name, damage):
    for way in ("overwritten", "deleted"):
        store = MemoryStore()
        root = zellige.create_group(store)
        for key in (name, *DAMAGED[name]):
            store.put(f"a/{key}", damage if key == name else b"chunk")
        kept = {f"a/{key}": b"mine" for key in ("README.txt", "c/notes", "x/0/0", "0.csv", "c0", "a.0", "-1", "01")}
        for key, value in kept.items():
            store.put(key, value)
        if way == "deleted":
            del root["a"]
            assert {key: store.get(key) for key in store.list("a/")} == kept
        else:
            root.create_group("a", overwrite=True)
            assert {key: store.get(key) for key in store.list("a/") if key != "a/zarr.json"} == kept


def test_documents_of_unknown_kinds_of_data_still_say_how_chunks_are_named(store):
    root = zellige.create_group(store)
    array = fill(root, "a", chunk_key_encoding=KEYS["v2 ."])
    content = {**array.metadata.to_documents()["zarr.json"], "data_type": "from the future", "codecs": ["unknown"]}
    store.put("a/zarr.json", json.dumps(content).encode())
    store.put("a/c/0/0", b"not a chunk")
    with pytest.warns(BrokenNodeWarning):
        assert list(root.members()) == []
    root.create_group("a", overwrite=True)
    assert sorted(store.list("a/")) == ["a/c/0/0", "a/zarr.json"]


def test_names_of_our_own_hold_no_nodes_and_others_with_underscores_do(store):
    root = zellige.create_group(store, path="t")
    root.create_array("__theirs", data=[1, 2])
    store.put("t/__zellige_later/zarr.json", b"{}")
    store.put("t/__zellige_later/c/0", b"")
    assert list(root) == ["__theirs"]
    zellige.create_group(store, path="t", overwrite=True)
    assert sorted(store.list("t/")) == ["t/__zellige_later/c/0", "t/__zellige_later/zarr.json", "t/zarr.json"]
    assert list(root) == []


def test_chunks_beyond_the_end_go_too(store):
    root = zellige.create_group(store)
    fill(root, "a")
    store.put("a/c/9/9", b"left by a killed append")
    store.put("a/__zellige_pending", b"")
    del root["a"]
    assert sorted(store.list("a/")) == []


# -- invalid requests -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"shape": 3, "dtype": "no type"},
        {"shape": 3, "chunks": [[1, 1]]},
        {"shape": -1},
        {"shape": 3, "compressors": "no codec"},
        {"shape": 3, "fill_value": "x", "dtype": "int8"},
        {"shape": 3, "attributes": {"x": object()}},
        {"shape": 3, "zarr_format": 4},
        {"data": np.array([300]), "dtype": "uint8"},
        {"data": np.array([np.nan]), "dtype": "int8"},
        {"data": np.array([1j]), "dtype": "float32"},
    ],
)
def test_what_cannot_be_created_overwrites_nothing(store, options):
    build(store, 3)
    before = contents(store)
    for name in ("t", "t/x"):
        with pytest.raises((ValueError, TypeError)):
            zellige.create_array(store, name=name, overwrite=True, **options)
        assert contents(store) == before


def test_read_only_stores_stay_as_they_are(store):
    build(store, 3)
    before, view = contents(store), store.as_read_only()
    for action in (
        lambda: zellige.create_group(view, path="t", overwrite=True),
        lambda: remove.clear(view, "t"),
        lambda: hierarchy.move(view, "t", "m", 3, lambda: None),
        lambda: abilities.delete_below(view, "t/", ["t/x/zarr.json"]),
        lambda: abilities.prune(view, "t/", lambda _: True),
    ):
        with pytest.raises(ReadOnlyError):
            action()
    assert contents(store) == before


# -- on disk --------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("shrunk", [False, True], ids=["full", "with empty directories"])
def test_directories_go_with_what_they_held(tmp_path, keys, shrunk):
    root = zellige.create_group(tmp_path)
    array = fill(root, "g/a", chunk_key_encoding=KEYS[keys])
    if shrunk:
        array.resize((2, 6))
    del root["g/a"]
    assert os.listdir(tmp_path / "g") == ["zarr.json"]
    fill(root, "g/h/a", chunk_key_encoding=KEYS[keys])
    root.create_group("g", overwrite=True)
    assert os.listdir(tmp_path / "g") == ["zarr.json"]
    (tmp_path / "g" / "mine").mkdir()
    del root["g"]
    assert os.listdir(tmp_path / "g") == ["mine"]


def test_a_member_that_is_a_link_goes_and_what_it_leads_to_stays(tmp_path):
    root = zellige.create_group(tmp_path)
    other = fill(root, "other/x")
    for way in (
        lambda: root.__delitem__("g/link"),
        lambda: root.create_group("g/link", overwrite=True),
        lambda: root.create_group("g", overwrite=True),
        lambda: root.__delitem__("g"),
    ):
        root.require_group("g")
        os.symlink("../other", tmp_path / "g" / "link")
        assert "x" in root["g/link"]
        way()
        assert not os.path.islink(tmp_path / "g" / "link")
        assert np.array_equal(other[...], np.full(SHAPE, 5))
        assert sorted(os.listdir(tmp_path / "other")) == ["x", "zarr.json"]
        if "g" in root:
            del root["g"]


def test_nothing_is_removed_through_links_that_lead_out(tmp_path):
    outside = tmp_path / "outside"
    theirs = fill(zellige.create_group(outside), "x")
    root = zellige.create_group(tmp_path / "x.zarr")
    fill(root, "g/a")
    os.symlink(outside, tmp_path / "x.zarr" / "g" / "out")
    os.symlink(outside / "x" / "c", tmp_path / "x.zarr" / "g" / "a" / "d")
    before = contents(LocalStore(outside))
    root.create_group("g", overwrite=True)
    assert os.path.islink(tmp_path / "x.zarr" / "g" / "out")
    with pytest.raises(UnsafeLinkError):
        root.create_group("g/out", overwrite=True)
    del root["g"]
    assert contents(LocalStore(outside)) == before
    assert np.array_equal(theirs[...], np.full(SHAPE, 5))


def test_links_to_single_chunks_go_and_the_files_stay(tmp_path):
    root = zellige.create_group(tmp_path)
    fill(root, "a")
    other = fill(root, "b")
    os.unlink(tmp_path / "a/c/0/0")
    os.symlink("../../../b/c/0/0", tmp_path / "a/c/0/0")
    write_array(root, "a")
    assert np.array_equal(root["a"][...], np.full(SHAPE, 3))
    assert np.array_equal(other[...], np.full(SHAPE, 5))


# -- what it costs --------------------------------------------------------------------------------


def test_an_empty_place_costs_a_listing():
    store = CountingStore()
    root = zellige.create_group(store)
    store.reset()
    root.create_array("a", shape=3, overwrite=True)
    assert store.counts() == {"get": 1, "list_dir": 1, "create": 1}
    store.reset()
    root.create_array("b", shape=3)
    assert store.counts() == {"get": 4, "list": 1, "create": 1}
    store.reset()
    root.create_group("c")
    assert store.counts() == {"get": 5, "create": 1}


def test_overwriting_costs_one_request_for_each_key_and_a_few():
    store = CountingStore()
    root = zellige.create_group(store)
    root.create_array("a", data=np.arange(1, 201), chunks=1)
    store.reset()
    write_array(root, "a")
    documents = 3  # that of the array, a mark that may be there, and a change of the group above
    assert store.counts() == {
        "get": 1 + documents,
        "list_dir": 1,
        "list": 1,
        "put": 1,
        "delete": 200 + 2,
        "create": 1,
    }
    assert store.nbytes("get") < 2000


def test_a_group_costs_one_listing_and_each_document_below_once():
    store = CountingStore()
    root = zellige.create_group(store)
    for name in "abcd":
        root.create_array(f"g/{name}", data=np.arange(1, 11), chunks=1)
    store.reset()
    del root["g"]
    counts = store.counts()
    assert (counts["list"], counts["delete"], counts["put"]) == (1, 5 + 40 + 1, 1)
    assert len([key for key in store.keys("get") if key.startswith("g/") and key != "g/zarr.json"]) == 4 + 1


# -- stores ---------------------------------------------------------------------------------------


def test_several_keys_are_removed_and_no_others(store):
    for key in ("a/0", "a/1", "b/0", "k"):
        store.put(key, b"x")
    abilities.delete_below(store, "", ["a/0", "b/0", "missing", "missing/too"])
    assert sorted(store.list()) == ["a/1", "k"]
    abilities.delete_below(store, "", [])
    with pytest.raises(zellige.errors.StoreKeyError):
        abilities.delete_below(store, "", ["../k"])
    assert sorted(store.list()) == ["a/1", "k"]


def test_empty_directories_are_removed_only_where_they_are_owned(tmp_path):
    store = LocalStore(tmp_path / "s")
    for name in ("a/b/c", "a/d", "a/e/f"):
        os.makedirs(tmp_path / "s" / name)
    store.put("a/e/k", b"x")
    store.prune("a/", lambda folder: folder != "d")
    assert sorted(os.listdir(tmp_path / "s" / "a")) == ["d", "e"]
    assert os.listdir(tmp_path / "s" / "a" / "e") == ["k"]
    store.delete(["a/e/k"])
    store.prune("", lambda _: True)
    assert os.listdir(tmp_path / "s") == []
    assert store.detach("a/") is False
