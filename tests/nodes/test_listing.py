"""Members that are listed are those opened by their paths, whatever they are and however they were found."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import zellige
from counting_store import CountingStore
from documents import document
from zellige.errors import BrokenNodeWarning, CompatibilityWarning, MetadataError
from zellige.metadata import ArrayV3Metadata
from zellige.nodes import node
from zellige.nodes.node import UNFINISHED
from zellige.stores import LocalStore, MemoryStore, Store

V3 = ["a", "b", "c", "sub/d", "sub/deeper/e"]
V2 = ["old", "sub/old", "folder/f"]
GROUPS = ["sub", "sub/deeper", "folder"]
ALL = sorted(V3 + V2 + GROUPS)
DOCUMENTS = ["zarr.json", ".zarray", ".zgroup", ".zattrs"]


@pytest.fixture(autouse=True)
def nothing_known():
    node._known.clear()


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


def fill(store: Store) -> Store:
    """Arrays of both formats, some of them alike but for their attributes, in groups of both formats."""
    zellige.create_group(store, attributes={"title": "root"})
    zellige.create_group(store, path="sub", attributes={"title": "sub"})
    zellige.create_group(store, path="sub/deeper")
    zellige.create_group(store, path="folder", zarr_format=2, attributes={"title": "folder"})
    for number, path in enumerate(V3):
        attributes = {"number": [number]} if number else {}
        array = zellige.create_array(
            store, name=path, shape=(4,), chunks=[[1, 3]], dtype="int16", attributes=attributes
        )
        array[...] = number
    for number, path in enumerate(V2):
        attributes = {"old number": [number]}
        array = zellige.create_array(store, name=path, shape=(4,), dtype="int16", zarr_format=2, attributes=attributes)
        array[...] = -number
    node._known.clear()
    return store


def said(found: zellige.Array | zellige.Group) -> tuple[Any, ...]:
    """All that a node says about itself."""
    values = found[...].tolist() if isinstance(found, zellige.Array) else None
    return (
        type(found),
        found.path,
        found.name,
        found.store,
        found.read_only,
        found.attrs.asdict(),
        found.metadata,
        values,
    )


def listings(root: zellige.Group) -> Iterator[dict[str, Any]]:
    """All ways to list everything below."""
    yield dict(root.members(max_depth=None))
    yield dict(root.walk())
    visited: dict[str, Any] = {}
    root.visititems(visited.__setitem__)
    yield visited


def open_plain(store: Store) -> zellige.Group:
    return zellige.open_group(store)


def open_without(store: Store) -> zellige.Group:
    consolidate(store)
    return zellige.open_group(store, use_consolidated=False)


def consolidate(store: Store) -> None:
    with pytest.warns(BrokenNodeWarning, match="has Zarr format 2"), pytest.warns(CompatibilityWarning):
        zellige.consolidate_metadata(store)


@pytest.mark.parametrize("opener", [open_plain, open_without], ids=["plain", "without consolidated"])
def test_members_are_those_opened_by_path(store, opener):
    root = opener(fill(store))
    by_path = {path: said(zellige.open(store, path=path)) for path in ALL}
    for _ in range(2):  # the second time, all documents are known
        for listed in listings(root):
            assert sorted(listed) == ALL
            for path, found in listed.items():
                assert said(found) == by_path[path] == said(root[path])


def test_members_from_consolidated_metadata_are_those_opened_by_path(store):
    consolidate(fill(store))
    root = zellige.open_group(store, use_consolidated=True)
    for listed in listings(root):
        assert sorted(listed) == sorted([*V3, "sub", "sub/deeper"])
        for path, found in listed.items():
            assert said(found) == said(zellige.open(store, path=path)) == said(root[path])


@pytest.mark.parametrize("path", ["sub", "folder"])
def test_members_of_a_group_further_down_are_those_opened_by_path(store, path):
    below = [found for found in ALL if found.startswith(f"{path}/")]
    group = zellige.open_group(fill(store), path=path)
    listed = dict(group.members(max_depth=None))
    assert [f"{path}/{name}" for name in sorted(listed)] == below
    for found in listed.values():
        assert said(found) == said(zellige.open(store, path=found.path))


def test_arrays_and_groups_by_themselves_are_the_same(store):
    root = zellige.open_group(fill(store))
    assert {name: said(found) for name, found in root.arrays()} == {p: said(root[p]) for p in ["a", "b", "c", "old"]}
    assert {name: said(found) for name, found in root.groups()} == {p: said(root[p]) for p in ["folder", "sub"]}
    assert [said(found) for found in root.values()] == [said(root[path]) for path in root]


def test_broken_members_are_named_and_the_others_are_as_before(store):
    root = zellige.open_group(fill(store))
    broken = {
        "broken": {"zarr.json": document(codecs=[])},
        "sub/broken": {"zarr.json": document(attributes=[1])},
        "worse": {".zarray": {"zarr_format": 2}},
        "empty": {"zarr.json": {}},
    }
    for path, documents in broken.items():
        for name, content in documents.items():
            store.put(f"{path}/{name}", json.dumps(content).encode())
    before = {path: said(zellige.open(store, path=path)) for path in ALL}
    for _ in range(2):
        with pytest.warns(BrokenNodeWarning) as caught:
            listed = dict(root.members(max_depth=None))
        assert {path: said(found) for path, found in listed.items()} == before
        assert sorted(str(warning.message).split("'")[1] for warning in caught) == sorted(broken)
        for warning in caught:
            path = str(warning.message).split("'")[1]
            with pytest.raises(MetadataError) as found:
                root[path]
            assert str(found.value) in str(warning.message)


def test_what_one_handle_changes_in_place_shows_in_no_other():
    root = zellige.open_group(fill(MemoryStore()))
    for found in dict(root.members(max_depth=None)).values():
        for value in found.attrs.asdict().values():
            if isinstance(value, list):
                value.append("mine")
    again = dict(root.members(max_depth=None))
    assert [again[path].attrs.asdict() for path in ("b", "sub/d")] == [{"number": [1]}, {"number": [3]}]
    assert again["old"].attrs.asdict() == {"old number": [0]}


@pytest.mark.parametrize("keep", [True, False])
def test_listed_arrays_follow_the_settings_of_the_process(keep):
    root = zellige.open_group(fill(MemoryStore()))
    with zellige.config.set({"array.write_empty_chunks": not keep}):
        dict(root.members(max_depth=None))
    with zellige.config.set({"array.write_empty_chunks": keep, "array.order": "F"}):
        for path, array in root.members(max_depth=None):
            if isinstance(array, zellige.Array):
                assert array.config == zellige.open_array(root.store, path=path).config
                assert array.config.write_empty_chunks is keep


def test_listed_arrays_still_follow_consolidated_metadata_that_is_not_used(store):
    root = open_without(fill(store))
    listed = dict(root.members(max_depth=None))
    for path in V3:
        listed[path].attrs["changed"] = path
    consolidated = zellige.open_group(store, use_consolidated=True)
    assert [consolidated[path].attrs["changed"] for path in V3] == V3


def test_listed_members_of_a_group_that_is_read_only_are_read_only(store):
    root = zellige.open_group(fill(store), mode="r")
    assert {found.read_only for _, found in root.members(max_depth=None)} == {True}


# -- counted --------------------------------------------------------------------------------------


def listed_by(store: Store, depth: int | None = None) -> CountingStore:
    """The store with what a listing asks of it."""
    counting = CountingStore(store)
    root = zellige.open_group(counting, use_consolidated=False)
    counting.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenNodeWarning)
        root.members(max_depth=depth)
    return counting


def test_a_listing_gets_each_document_once():
    hierarchy = fill(MemoryStore())
    asked = listed_by(hierarchy).keys("get")
    documents = {key for key in hierarchy.list() if key.rpartition("/")[2] in DOCUMENTS} - {"zarr.json"}
    assert {key for key in asked if hierarchy.exists(key)} == documents
    assert len(asked) == len(set(asked))
    assert not [key for key in asked for path in V3 if key.startswith(f"{path}/.")]  # nothing older is looked for


def test_a_listing_asks_for_each_document_of_a_member_of_the_older_format_once():
    hierarchy = MemoryStore()
    zellige.create_group(hierarchy)
    zellige.create_array(hierarchy, name="old", shape=3, zarr_format=2)
    hierarchy.put("folder/note", b"no node")
    folder, old = (
        (f"folder/{name}" for name in (".zarray", ".zgroup", UNFINISHED)),
        (f"old/{name}" for name in (".zarray", ".zattrs")),
    )
    assert sorted(listed_by(hierarchy).keys("get")) == [*folder, "folder/zarr.json", *old, "old/zarr.json"]


@pytest.mark.parametrize("depth", [0, 1, None])
def test_a_listing_of_known_documents_asks_for_as_much(depth):
    hierarchy = fill(MemoryStore())
    first, second = listed_by(hierarchy, depth), listed_by(hierarchy, depth)
    assert sorted(first.keys()) == sorted(second.keys())
    assert set(first.counts()) <= {"get", "list_dir", "size"}


def test_arrays_alike_but_for_their_attributes_are_checked_once_by_a_listing(monkeypatch):
    checked = []
    real = ArrayV3Metadata.from_dict.__func__
    monkeypatch.setattr(ArrayV3Metadata, "from_dict", classmethod(lambda cls, d: checked.append(1) or real(cls, d)))
    root = zellige.open_group(fill(MemoryStore()))
    checked.clear()
    assert len(root.members(max_depth=None)) == len(ALL)
    assert len(root.members(max_depth=None)) == len(ALL)
    assert len(checked) == 1


def test_a_store_for_which_nobody_waits_is_asked_by_the_calling_thread():
    inner = MemoryStore()
    zellige.create_group(inner)
    for number in range(50):
        zellige.create_array(inner, name=f"{number}", shape=3)
    store = CountingStore(inner)
    with zellige.config.set({"threading.max_workers": 4}):
        assert len(zellige.open_group(store).members()) == 50
    assert {call.thread for call in store.calls} == {threading.get_ident()}
