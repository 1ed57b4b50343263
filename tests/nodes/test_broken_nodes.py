"""Broken documents beside good ones: the good ones stay in reach, and a warning names the broken one."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

import zellige
from counting_store import contents
from documents import BYTES, document, regular
from zellige.errors import BrokenNodeWarning, MetadataError
from zellige.stores import LocalStore, MemoryStore, Store

GROUP = {"zarr_format": 3, "node_type": "group"}
GOOD = json.dumps(document()).encode()


def raw(content: Any) -> bytes:
    return json.dumps(content).encode()


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{'zarr_format': 3}",
    "truncated": GOOD[: len(GOOD) // 2],
    "trailing text": GOOD + b"}",
    "no text": b"\xff\xfe\x00\x01",
    "a list": raw([document()]),
    "null": b"null",
    "a number": b"3",
    "no fields": raw({}),
    "another format": raw(document(zarr_format=4)),
    "a format that is a string": raw(document(zarr_format="3")),
    "no node type": raw({"zarr_format": 3}),
    "an unknown node type": raw({"zarr_format": 3, "node_type": "table"}),
    "a shape of strings": raw(document(shape=["4", "6"])),
    "a negative shape": raw(document(shape=[-4, 6])),
    "a grid of another rank": raw(document(chunk_grid=regular(2))),
    "an unknown grid": raw(document(chunk_grid={"name": "hexagonal", "configuration": {}})),
    "an unknown type": raw(document(data_type="int17")),
    "a fill value that does not fit": raw(document(fill_value=2**40)),
    "an unknown codec": raw(document(codecs=[BYTES, {"name": "rot13"}])),
    "a codec with a wrong configuration": raw(document(codecs=[BYTES, {"name": "gzip", "configuration": {"lvl": 1}}])),
    "codecs in the wrong order": raw(document(codecs=[{"name": "zstd", "configuration": {"level": 1}}, BYTES])),
    "attributes that are a list": raw(document(attributes=[1])),
    "an unknown field": raw(document(extra={"must_understand": True})),
    "deep nesting": b'{"zarr_format": 3, "node_type": "group", "attributes": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a group with attributes that are a list": raw({**GROUP, "attributes": [1]}),
    "a group with an unknown field": raw({**GROUP, "extra": 5}),
    "a group of another format": raw({**GROUP, "zarr_format": 2}),
    "a group twice": b'{"zarr_format": 3, "zarr_format": 3, "node_type": "group"}',
}
BROKEN_V2: dict[str, dict[str, bytes]] = {
    "an array that is no JSON": {".zarray": b"x"},
    "an array without fields": {".zarray": b"{}"},
    "an array of an unknown type": {
        ".zarray": raw({"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "<q9", "compressor": None,
                        "fill_value": 0, "order": "C", "filters": None}),
    },
    "an array with an unknown compressor": {
        ".zarray": raw({"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "<i2", "compressor": {"id": "rot13"},
                        "fill_value": 0, "order": "C", "filters": None}),
    },
    "a group that is no JSON": {".zgroup": b"{"},
    "a group of another format": {".zgroup": raw({"zarr_format": 3})},
    "attributes that are no JSON": {".zgroup": raw({"zarr_format": 2}), ".zattrs": b"{"},
    "attributes that are a list": {".zgroup": raw({"zarr_format": 2}), ".zattrs": b"[1]"},
}  # fmt: skip


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


def beside(store: Store, documents: dict[str, bytes]) -> zellige.Group:
    """A group with good members and one that is broken, here and in a group below."""
    root = zellige.create_group(store)
    for path in ("a-good", "z-good", "sub/a-good", "sub/z-good"):
        root.create_array(path, data=[1, 2])
    for path in ("broken", "sub/broken"):
        for name, content in documents.items():
            store.put(f"{path}/{name}", content)
    return root


def breakages() -> list[Any]:
    cases = [pytest.param({"zarr.json": content}, id=name) for name, content in BROKEN.items()]
    return cases + [pytest.param(documents, id=f"v2: {name}") for name, documents in BROKEN_V2.items()]


breaking = pytest.mark.parametrize("documents", breakages())
DIRECT = ["a-good", "sub", "z-good"]
BELOW = [*DIRECT, "sub/a-good", "sub/z-good"]


@breaking
def test_the_others_are_listed_and_a_warning_names_the_broken_one(documents):
    root = beside(MemoryStore(), documents)
    for listed in (
        lambda: list(root),
        lambda: [name for name, _ in root.members()],
        lambda: [name for name, _ in root.items()],
        lambda: [found.path for found in root.values()],
        lambda: [*root.array_keys(), "sub"],
        lambda: ["a-good", *root.group_keys(), "z-good"],
    ):
        with pytest.warns(BrokenNodeWarning, match="'broken' in group '/'") as caught:
            assert sorted(listed()) == DIRECT
        assert len(caught) == 1


@breaking
def test_a_warning_names_those_further_down_too(documents):
    root = beside(MemoryStore(), documents)
    visited: list[str] = []
    for look in (
        lambda: [path for path, _ in root.members(max_depth=None)],
        lambda: [path for path, _ in root.walk()],
        lambda: visited.clear() or root.visit(visited.append) or visited,
    ):
        with pytest.warns(BrokenNodeWarning) as caught:
            assert sorted(look()) == sorted(BELOW)
        assert sorted(str(warning.message).split("'")[1] for warning in caught) == ["broken", "sub/broken"]
    with pytest.warns(BrokenNodeWarning, match="'broken' in group '/sub'"):
        assert list(root["sub"]) == ["a-good", "z-good"]


@breaking
def test_the_number_of_members_is_the_number_of_those_listed(documents):
    root = beside(MemoryStore(), documents)
    with pytest.warns(BrokenNodeWarning):
        listed = [len(list(root)), len(root.members(max_depth=None))]
    assert [len(root), root.nmembers(max_depth=None)] == listed


@breaking
def test_the_tree_shows_what_cannot_be_read(documents):
    root = beside(MemoryStore(), documents)
    lines = repr(root.tree()).splitlines()
    assert [line.split()[-3] for line in lines if "good" in line] == ["a-good", "a-good", "z-good", "z-good"]
    broken = [line for line in lines if "broken" in line]
    assert len(broken) == 2
    assert all("cannot be read" in line for line in broken)
    assert len(lines) == 8  # also if there is much to say
    assert root.tree()._repr_html_().count("cannot be read") == 2


@breaking
def test_opening_the_broken_one_says_what_is_wrong(documents):
    root = beside(MemoryStore(), documents)
    for look in (
        lambda: root["broken"],
        lambda: root["sub/broken"],
        lambda: root.get("broken", "default"),
        lambda: root.get_array("broken"),
        lambda: root.require_group("broken"),
        lambda: root.require_array("broken", shape=1),
        lambda: zellige.open(root.store, path="broken"),
        lambda: zellige.open(root.store, path="broken", mode="r"),
    ):
        with pytest.raises(MetadataError) as found:
            look()
        assert "broken" in str(found.value)


@breaking
def test_something_broken_is_in_the_way_until_it_is_overwritten(documents):
    root = beside(MemoryStore(), documents)
    before = contents(root.store)
    for create in (root.create_group, lambda name: root.create_array(name, shape=1)):
        with pytest.raises(FileExistsError):
            create("broken")
        assert contents(root.store) == before
    root.create_array("broken", data=[7], overwrite=True)
    assert root["broken"][0] == 7


@breaking
def test_something_broken_is_there(documents):
    # Or else `if name not in group: group.create_group(name)` would fail.
    assert "broken" in beside(MemoryStore(), documents)


@breaking
def test_something_broken_can_be_deleted(documents):
    root = beside(MemoryStore(), documents)
    del root["broken"]
    del root["sub/broken"]
    assert sorted(path for path, _ in root.members(max_depth=None)) == sorted(BELOW)


@breaking
def test_consolidated_metadata_says_the_same_as_the_members(documents):
    root = beside(MemoryStore(), documents)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        root.consolidate_metadata()
        found = zellige.open_consolidated(root.store, check=True)
        assert sorted(path for path, _ in found.members(max_depth=None)) == sorted(BELOW)


def test_a_broken_node_on_disk_hides_no_other(tmp_path):
    root = beside(LocalStore(tmp_path), {"zarr.json": b"x"})
    with pytest.warns(BrokenNodeWarning, match="'broken'"):
        assert sorted(root) == DIRECT


def test_a_directory_in_place_of_a_document_hides_no_other(tmp_path):
    root = beside(LocalStore(tmp_path), {"zarr.json/notes.txt": b"x"})
    with pytest.warns(BrokenNodeWarning, match="'broken'"):
        assert sorted(root) == DIRECT
    assert "broken" in repr(root.tree())


def test_a_broken_group_hides_what_is_below_it_but_not_from_those_who_know_the_path():
    root = beside(MemoryStore(), {"zarr.json": b"x"})
    root.store.put("broken/child/zarr.json", GOOD)
    with pytest.warns(BrokenNodeWarning):
        assert "broken/child" not in dict(root.members(max_depth=None))
    assert root["broken/child"].shape == (4, 6)


# -- in consolidated metadata ---------------------------------------------------------------------

ENTRIES: dict[str, Any] = {
    "a number": 5,
    "a list": [],
    "null": None,
    "no fields": {},
    "no node type": {"zarr_format": 3},
    "a shape of strings": document(shape=["4", "6"]),
    "an unknown codec": document(codecs=[{"name": "rot13"}]),
    "an unknown field": document(extra=1),
    "a group with attributes that are a list": {**GROUP, "attributes": [1]},
}


def consolidated(**entries: Any) -> MemoryStore:
    """A store that holds what its consolidated metadata says, beside what is given."""
    good = {"a-good": document(), "sub": GROUP, "sub/a-good": document(), "z-good": document()}
    block = {"kind": "inline", "must_understand": False, "metadata": {**good, **entries}}
    keys = {f"{path}/zarr.json": raw(content) for path, content in good.items()}
    return MemoryStore({"zarr.json": raw({**GROUP, "consolidated_metadata": block}), **keys})


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_broken_entry_of_consolidated_metadata_hides_no_other(entry):
    root = zellige.open_group(consolidated(broken=ENTRIES[entry], **{"sub/broken": ENTRIES[entry]}))
    with pytest.warns(BrokenNodeWarning, match="'broken'"):
        assert sorted(root) == DIRECT
    with pytest.warns(BrokenNodeWarning) as caught:
        assert sorted(path for path, _ in root.members(None)) == sorted([*DIRECT, "sub/a-good"])
    assert sorted(str(warning.message).split("'")[1] for warning in caught) == ["broken", "sub/broken"]
    with pytest.raises(MetadataError, match="broken"):
        root["broken"]
    assert sum("cannot be read" in line for line in repr(root.tree()).splitlines()) == 2
    assert root["sub/a-good"].shape == (4, 6)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_broken_entry_is_left_alone_when_others_change(entry):
    store = consolidated(broken=ENTRIES[entry])
    root = zellige.open_group(store)
    root.create_group("new")
    root["a-good"].attrs["x"] = 1
    metadata = json.loads(store.get("zarr.json"))["consolidated_metadata"]["metadata"]
    assert metadata["new"] == GROUP
    assert metadata["a-good"]["attributes"] == {"x": 1}
    assert metadata["broken"] == ENTRIES[entry]


BLOCKS: dict[str, Any] = {
    "no metadata": {"kind": "inline", "must_understand": False},
    "metadata that is a list": {"kind": "inline", "must_understand": False, "metadata": []},
    "an entry without a path": {"kind": "inline", "must_understand": False, "metadata": {"": GROUP, "a-good": GROUP}},
}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_broken_block_can_be_ignored_and_written_anew(block):
    store = consolidated()
    store.put("zarr.json", raw({**GROUP, "consolidated_metadata": BLOCKS[block]}))
    with pytest.raises(MetadataError, match="consolidated_metadata"):
        zellige.open_consolidated(store)
    root = zellige.open_group(store, use_consolidated=False)
    assert sorted(root) == DIRECT
    zellige.consolidate_metadata(store)
    assert sorted(zellige.open_consolidated(store, check=True)) == DIRECT


BLOCKS_V2: dict[str, Any] = {
    "no JSON": b"{",
    "another format": raw({"zarr_consolidated_format": 2, "metadata": {}}),
    "no metadata": raw({"zarr_consolidated_format": 1}),
    "metadata that is a list": raw({"zarr_consolidated_format": 1, "metadata": []}),
    "nothing about the group": raw({"zarr_consolidated_format": 1, "metadata": {}}),
}


@pytest.mark.parametrize("block", BLOCKS_V2)
def test_a_broken_zmetadata_can_be_ignored_and_written_anew(block):
    store = MemoryStore()
    zellige.create_group(store, zarr_format=2).create_group("a")
    store.put(".zmetadata", BLOCKS_V2[block])
    with pytest.raises(MetadataError):
        zellige.open_consolidated(store)
    root = zellige.open_group(store, use_consolidated=False)
    assert list(root) == ["a"]
    zellige.consolidate_metadata(store)
    assert list(zellige.open_consolidated(store, check=True)) == ["a"]
