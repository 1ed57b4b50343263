"""What groups cost: how many requests a store gets, of which kind, and by how many threads."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

import zellige
from counting_store import WRITES, CountingStore
from documents import document
from zellige.stores import MemoryStore

COUNT = 1000
GROUP = {"zarr_format": 3, "node_type": "group"}
ARRAY_V2 = {
    "zarr_format": 2,
    "shape": [4, 6],
    "chunks": [2, 3],
    "dtype": "<i2",
    "compressor": None,
    "fill_value": 7,
    "order": "C",
    "filters": None,
}


def flat() -> list[str]:
    """The paths of arrays directly below the root."""
    return [f"a{number:03}" for number in range(COUNT)]


def spread() -> list[str]:
    """The paths of as many arrays in ten groups."""
    return [f"g{number % 10}/a{number:03}" for number in range(COUNT)]


def above(paths: list[str]) -> set[str]:
    """The groups above nodes, the root among them."""
    found = {""}
    for path in paths:
        parts = path.split("/")
        found |= {"/".join(parts[:depth]) for depth in range(len(parts))}
    return found


def hierarchy(paths: list[str]) -> MemoryStore:
    """A hierarchy of arrays without chunks."""
    found = {f"{path}/zarr.json".lstrip("/"): json.dumps(GROUP).encode() for path in above(paths)}
    return MemoryStore({**found, **{f"{path}/zarr.json": json.dumps(document()).encode() for path in paths}})


def hierarchy_v2(paths: list[str]) -> MemoryStore:
    found = {f"{path}/.zgroup".lstrip("/"): b'{"zarr_format": 2}' for path in above(paths)}
    return MemoryStore({**found, **{f"{path}/.zarray": json.dumps(ARRAY_V2).encode() for path in paths}})


# -- consolidated ---------------------------------------------------------------------------------


@pytest.mark.parametrize("paths", [flat, spread])
def test_a_consolidated_hierarchy_is_opened_and_listed_by_one_request(paths):
    inner = hierarchy(paths())
    zellige.consolidate_metadata(inner)
    store = CountingStore(inner)
    for opener in (zellige.open_group, zellige.open_consolidated, zellige.open):
        store.reset()
        root = opener(store, mode="r")
        members = dict(root.members(max_depth=None))
        assert set(paths()) <= members.keys()
        assert members[paths()[5]].shape == (4, 6)
        assert root[paths()[7]].shape == (4, 6)
        assert paths()[9] in root
        assert repr(root.tree(max_nodes=2 * COUNT)).count("int16") == COUNT
        assert (store.counts(), store.keys()) == ({"get": 1}, ["zarr.json"])


@pytest.mark.parametrize("paths", [flat, spread])
def test_a_consolidated_hierarchy_of_v2_too_if_its_format_is_known(paths):
    inner = hierarchy_v2(paths())
    zellige.consolidate_metadata(inner, zarr_format=2)
    store = CountingStore(inner)
    root = zellige.open_group(store, mode="r", zarr_format=2)
    assert set(paths()) <= dict(root.members(max_depth=None)).keys()
    assert (store.counts(), store.keys()) == ({"get": 1}, [".zmetadata"])


def test_if_the_format_is_not_known_it_takes_a_few_requests_to_find_out():
    inner = hierarchy_v2(flat())
    zellige.consolidate_metadata(inner, zarr_format=2)
    store = CountingStore(inner)
    root = zellige.open_group(store, mode="r")
    assert len(root.members(max_depth=None)) == COUNT
    assert store.counts().keys() == {"get"}
    assert len(store.calls) <= 3


def test_a_group_reached_through_it_costs_nothing():
    inner = hierarchy(spread())
    zellige.consolidate_metadata(inner)
    store = CountingStore(inner)
    root = zellige.open_group(store)
    store.reset()
    assert len(root["g3"]) == COUNT // 10
    assert len(dict(root["g3"].arrays())) == COUNT // 10
    assert root["g3"]["a003"].attrs == {}
    assert "g4/a004" in root
    assert "absent" not in root
    assert root.get("g3/absent") is None
    assert store.calls == []


def test_without_it_nothing_is_taken_from_it():
    inner = hierarchy(["g/a", "g/b"])
    zellige.consolidate_metadata(inner)
    store = CountingStore(inner)
    root = zellige.open_group(store, use_consolidated=False)
    root.members(max_depth=None)
    assert sorted(store.keys("get")) == ["g/a/zarr.json", "g/b/zarr.json", "g/zarr.json", "zarr.json"]


# -- not consolidated -----------------------------------------------------------------------------


@pytest.mark.parametrize("paths", [flat, spread])
@pytest.mark.parametrize("look", ["tree", "members"])
def test_each_document_is_read_once_and_each_group_listed_once(paths, look):
    store = CountingStore(hierarchy(paths()))
    groups = above(paths())
    root = zellige.open_group(store, mode="r")
    if look == "tree":
        assert repr(root.tree(max_nodes=2 * COUNT)).count("int16") == COUNT
    else:
        assert len(root.members(max_depth=None)) == COUNT + len(groups) - 1
    assert store.counts() == {"get": COUNT + len(groups), "list_dir": len(groups)}
    assert len(set(store.keys("get"))) == COUNT + len(groups)
    assert set(store.keys("list_dir")) == {path and f"{path}/" for path in groups}


def test_the_direct_members_cost_only_their_own_documents():
    store = CountingStore(hierarchy(spread()))
    root = zellige.open_group(store, mode="r")
    store.reset()
    assert len(root) == 10
    assert store.counts() == {"get": 10, "list_dir": 1}
    store.reset()
    assert len(list(root["g1"].array_keys())) == COUNT // 10
    assert store.counts() == {"get": COUNT // 10 + 1, "list_dir": 1}


def test_chunks_of_an_array_are_never_listed():
    store = CountingStore()
    root = zellige.create_group(store)
    root.create_array("a", data=range(50), chunks=1)
    store.reset()
    root.members(max_depth=None)
    root.tree()
    assert set(store.keys()) == {"", "a/zarr.json"}


def meeting(method: str) -> Any:
    """For `before` of a store: the first two requests of a kind wait for each other."""
    barrier, left = threading.Barrier(2), [2]

    def before(name: str, key: str) -> None:
        if name == method and left[0]:
            left[0] -= 1
            barrier.wait(30)

    return before


@pytest.mark.parametrize(
    "look", [lambda root: root.members(), lambda root: root.tree(), len], ids=["members", "tree", "len"]
)
def test_documents_of_many_members_are_read_by_several_threads(look):
    store = CountingStore(hierarchy(flat()[:50]))
    root = zellige.open_group(store)
    store.reset()
    look(root)
    assert {call.thread for call in store.made("get")} == {threading.get_ident()}  # nobody waits for this store
    store.traits = replace(store.traits, concurrency=4)
    store.reset().before = meeting("get")
    look(root)
    assert len({call.thread for call in store.made("get")}) > 1


def test_directories_of_many_groups_are_listed_by_several_threads():
    store = CountingStore(hierarchy([f"g{number}/a" for number in range(50)]))
    store.traits = replace(store.traits, concurrency=4)
    root = zellige.open_group(store)
    groups = dict(root.members())
    store.reset()
    before = meeting("list_dir")
    # The first listing is that of the root alone.
    store.before = lambda method, key: before(method, key) if key else None
    assert len(root.members(max_depth=1)) == 2 * len(groups)
    assert len({call.thread for call in store.made("list_dir")}) > 1


# -- one member -----------------------------------------------------------------------------------


def test_one_member_costs_one_request_wherever_it_is():
    store = CountingStore(hierarchy(["g/h/a", "b"]))
    root = zellige.open_group(store)
    for path in ("b", "g", "g/h", "g/h/a"):
        for look in (root.__getitem__, root.get, root.__contains__):
            store.reset()
            assert look(path)
            assert (store.counts(), store.keys()) == ({"get": 1}, [f"{path}/zarr.json"])


def test_what_is_not_there_is_looked_for_in_both_formats_and_no_more():
    store = CountingStore(hierarchy(["b"]))
    root = zellige.open_group(store)
    store.reset()
    assert "absent" not in root
    assert sorted(store.keys()) == ["absent/.zarray", "absent/.zgroup", "absent/zarr.json"]


def test_opening_a_group_costs_one_request():
    store = CountingStore(hierarchy(["g/a"]))
    for opener in (zellige.open_group, zellige.open):
        for mode in ("r", "r+", "a", None):
            store.reset()
            opener(store, path="g", mode=mode)
            assert (store.counts(), store.keys()) == ({"get": 1}, ["g/zarr.json"])


def test_reading_attributes_costs_nothing():
    inner = MemoryStore()
    made = zellige.create_group(inner, attributes={"x": 1})
    made.create_array("a", shape=3, attributes={"y": [2]})
    store = CountingStore(inner)
    root = zellige.open_group(store)
    array = root["a"]
    store.reset()
    assert (root.attrs["x"], dict(root.attrs), len(root.attrs)) == (1, {"x": 1}, 1)
    assert (array.attrs["y"], "y" in array.attrs, array.attrs.get("z")) == ([2], True, None)
    assert (root.name, root.path, root.read_only, root.info["Attributes"]) == ("/", "", False, "1")
    assert repr(root)
    assert store.calls == []


def test_setting_attributes_writes_once():
    store = CountingStore(hierarchy(["g/a"]))
    root = zellige.open_group(store)
    for node in (root, root["g"], root["g/a"]):
        store.reset()
        node.attrs.update({"x": 1, "y": 2, "z": 3})
        assert len(store.made(*WRITES)) == 1
        assert len(store.calls) <= 3


def test_creating_a_member_looks_at_the_groups_above_and_writes_once():
    store = CountingStore(hierarchy(["g/h/a"]))
    root = zellige.open_group(store)
    for name, make in {"g/h/x": root.create_group, "g/h/y": lambda path: root.create_array(path, shape=3)}.items():
        store.reset()
        make(name)
        assert store.keys(*WRITES) == [f"{name}/zarr.json"]
        assert len(store.calls) < 15


def test_a_big_hierarchy_is_created_without_asking_again_and_again():
    store = CountingStore()
    metadata = zellige.zeros(3, dtype="int8").metadata
    zellige.create_hierarchy(store=store, nodes=dict.fromkeys(spread(), metadata))
    writes = store.keys(*WRITES)
    assert len(writes) == len(set(writes)) == COUNT + 11
    assert len(store.calls) <= 12 * COUNT


# -- replacing and moving -------------------------------------------------------------------------


def members(store: Any, *, consolidated: bool) -> zellige.Group:
    """A group with two arrays, and a log that is empty."""
    root = zellige.create_group(store)
    root.create_array("a", data=[1, 2, 3], chunks=2)
    root.create_array("b", data=[4, 5, 6], chunks=2)
    if consolidated:
        root = root.consolidate_metadata()
    store.reset()
    return root


def test_consolidated_metadata_is_written_twice_for_a_member_that_is_replaced():
    """Once without the old one, before its chunks go, and once with the new one at the end."""
    written = []
    for consolidated in (False, True):
        store = CountingStore()
        members(store, consolidated=consolidated).create_array("a", data=[7, 8], chunks=1, overwrite=True)
        written.append(store.keys(*WRITES))
    plain, held = written
    assert "zarr.json" not in plain
    assert [key for key in held if key != "zarr.json"] == plain
    first, last = [turn for turn, key in enumerate(held) if key == "zarr.json"]
    assert held.index("a/c/0") > first > held.index("a/zarr.json")
    assert last == len(held) - 1


def test_consolidated_metadata_is_written_once_for_what_is_new_or_copied_to_another_place():
    for change in (lambda root: root.create_array("c", data=[1]), lambda root: root.move("a", "c")):
        store = CountingStore()
        change(members(store, consolidated=True))
        assert store.keys(*WRITES).count("zarr.json") == 1


def test_a_rename_writes_nothing_else_without_consolidated_metadata_and_twice_into_it_with_it(tmp_path):
    class Renaming(CountingStore):
        def ability(self, kind: Any) -> Any:
            return self.inner.ability(kind)

    written = []
    for consolidated in (False, True):
        store = Renaming(zellige.LocalStore(tmp_path / f"{consolidated}.zarr"))
        members(store, consolidated=consolidated).move("a", "c")
        written.append(store.keys(*WRITES))
    plain, held = written
    assert plain == []
    assert held == ["a/__zellige_unfinished", "zarr.json", "zarr.json", "c/__zellige_unfinished"]
