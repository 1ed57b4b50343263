"""Groups: how they come to be, what they hold, and how they are looked at."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import contents
from families import FAMILY, FORMATS, below, expected_below, family, strict
from zellige.errors import (
    ConflictError,
    ContainsArrayError,
    ContainsGroupError,
    GroupNotFoundError,
    MetadataError,
    NodeNotFoundError,
    NotANodeError,
    ReadOnlyError,
)
from zellige.metadata import GroupMetadata
from zellige.stores import LocalStore, MemoryStore, Store, StorePath

MAIN = {3: "zarr.json", 2: ".zgroup"}


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


@pytest.fixture(params=FORMATS, ids=["v3", "v2"])
def zarr_format(request) -> int:
    return request.param


# -- modes ----------------------------------------------------------------------------------------

GROUP_V2 = b'{"zarr_format": 2}'
ARRAY_V2 = json.dumps(
    {
        "zarr_format": 2,
        "shape": [2],
        "chunks": [2],
        "dtype": "<i2",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
).encode()


def put_group(store: Store) -> None:
    zellige.create_group(store, path="place", attributes={"there": 1}).create_array("child", data=[1, 2])


def put_group_v2(store: Store) -> None:
    store.put("place/.zgroup", GROUP_V2)
    store.put("place/.zattrs", b'{"there": 1}')


THERE = {
    "nothing": lambda store: None,
    "array": lambda store: zellige.create_array(store, name="place", data=[1, 2, 3, 4], chunks=2),
    "group": put_group,
    "v2 group": put_group_v2,
    "v2 array": lambda store: store.put("place/.zarray", ARRAY_V2),
    "foreign": lambda store: store.put("place/notes.txt", b"keep me"),
    "rubbish": lambda store: store.put("place/zarr.json", b"not a document"),
    "v2 rubbish": lambda store: store.put("place/.zgroup", b"not a document"),
}

OPENED, CREATED = "opened", "created"
MISSING, ARRAY, GROUP = GroupNotFoundError, ContainsArrayError, ContainsGroupError

# What each mode of `open_group` does. Rubbish is in the way, whatever it was meant to be.
MODES: dict[str, dict[str, Any]] = {
    "nothing": {"r": MISSING, "r+": MISSING, "a": CREATED, "w": CREATED, "w-": CREATED},
    "array": {"r": MISSING, "r+": MISSING, "a": ARRAY, "w": CREATED, "w-": ARRAY},
    "group": {"r": OPENED, "r+": OPENED, "a": OPENED, "w": CREATED, "w-": GROUP},
    "v2 group": {"r": OPENED, "r+": OPENED, "a": OPENED, "w": CREATED, "w-": GROUP},
    "v2 array": {"r": MISSING, "r+": MISSING, "a": ARRAY, "w": CREATED, "w-": ARRAY},
    "foreign": {"r": MISSING, "r+": MISSING, "a": CREATED, "w": NotANodeError, "w-": CREATED},
    "rubbish": {"r": MetadataError, "r+": MetadataError, "a": MetadataError, "w": CREATED, "w-": FileExistsError},
    "v2 rubbish": {"r": MetadataError, "r+": MetadataError, "a": MetadataError, "w": CREATED, "w-": FileExistsError},
}

WAYS = {
    "open_group": lambda store, mode: zellige.open_group(store, path="/place/", mode=mode, attributes={"new": 1}),
    "open": lambda store, mode: zellige.open(store, path="/place/", mode=mode, attributes={"new": 1}),
    "group": lambda store, mode: zellige.group(store, path="/place/", overwrite=mode == "w", attributes={"new": 1}),
    "create_group": lambda store, mode: zellige.create_group(
        store, path="/place/", overwrite=mode == "w", attributes={"new": 1}
    ),
}
CASES = [(way, there, mode) for way in ("open_group", "open") for there in MODES for mode in MODES[there]]
CASES += [("group", there, mode) for there in MODES for mode in ("a", "w")]
CASES += [("create_group", there, mode) for there in MODES for mode in ("w-", "w")]


@pytest.mark.parametrize(("way", "there", "mode"), CASES)
def test_every_mode_against_everything(store, way, there, mode):
    THERE[there](store)
    before = contents(store)
    expected = MODES[there][mode]
    if way == "open" and there.endswith("array") and mode in ("r", "r+", "a"):
        assert isinstance(WAYS[way](store, mode), zellige.Array)
        assert contents(store) == before
        return
    if isinstance(expected, type):
        with pytest.raises(NodeNotFoundError if way == "open" and expected is MISSING else expected):
            WAYS[way](store, mode)
        assert contents(store) == before
        return
    group = WAYS[way](store, mode)
    assert isinstance(group, zellige.Group)
    assert (group.path, group.name, group.basename) == ("place", "/place", "place")
    assert group.read_only == (mode == "r")
    assert dict(group.attrs) == ({"there": 1} if expected == OPENED else {"new": 1})
    if expected == OPENED:
        assert contents(store) == before
    else:
        kept = {"place/notes.txt"} if there == "foreign" else set()
        assert set(contents(store)) == {"zarr.json", "place/zarr.json"} | kept


def test_the_default_mode_opens_or_creates_and_reads_a_store_that_is_read_only(store):
    zellige.open_group(store).attrs["kept"] = 1
    assert zellige.open_group(store).attrs["kept"] == 1
    for opener in (zellige.open, zellige.open_group):
        assert opener(store.as_read_only()).read_only
        with pytest.raises(NodeNotFoundError):
            opener(store.as_read_only(), path="absent")
        with pytest.raises(ValueError, match="mode"):
            opener(store, mode="x")
    assert set(contents(store)) == {"zarr.json"}


def test_reading_modes_leave_no_directory_behind(tmp_path):
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            zellige.open_group(tmp_path / "absent", mode=mode)
        with pytest.raises(FileNotFoundError):
            zellige.open_consolidated(tmp_path / "absent", mode=mode)
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_is_asked_for_is_the_only_one_seen(store):
    zellige.create_group(store, path="new", zarr_format=3)
    zellige.create_group(store, path="old", zarr_format=2)
    assert zellige.open_group(store, path="new", mode="r", zarr_format=3).metadata.zarr_format == 3
    assert zellige.open_group(store, path="old", mode="r", zarr_format=2).metadata.zarr_format == 2
    for path, other in (("new", 2), ("old", 3)):
        with pytest.raises(GroupNotFoundError):
            zellige.open_group(store, path=path, mode="r", zarr_format=other)
        with pytest.raises(ContainsGroupError):
            zellige.open_group(store, path=path, mode="a", zarr_format=other)
        with pytest.raises(ValueError, match="zarr_format"):
            zellige.create_group(store, path="other", zarr_format=4)


def test_where_both_formats_are_there_the_newer_wins_and_the_older_can_be_asked_for(store):
    store.put("zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {"v": 3}}')
    store.put(".zgroup", GROUP_V2)
    store.put(".zattrs", b'{"v": 2}')
    assert zellige.open_group(store).attrs["v"] == 3
    assert zellige.open_group(store, zarr_format=2).attrs["v"] == 2
    assert zellige.open_group(store, zarr_format=3).attrs["v"] == 3


def test_members_have_the_format_of_their_group(store, zarr_format):
    root = zellige.create_group(store, zarr_format=zarr_format)
    root.create_group("a/b")
    root.create_array("a/t", shape=2, dtype="int8")
    assert {found.metadata.zarr_format for _, found in root.members(max_depth=None)} == {zarr_format}
    assert {key for key in contents(store) if key.endswith((".zgroup", "zarr.json"))} == {
        {3: "a/b/zarr.json", 2: "a/b/.zgroup"}[zarr_format],
        *(f"{path}{MAIN[zarr_format]}" for path in ("", "a/")),
        *(["a/t/zarr.json"] if zarr_format == 3 else []),
    }


def test_a_new_group_writes_the_least_that_the_format_asks_for(store, zarr_format):
    zellige.create_group(store, path="a/b", zarr_format=zarr_format, attributes={"x": [1, None]})
    found = {key: strict(raw) for key, raw in contents(store).items()}
    if zarr_format == 3:
        bare = {"zarr_format": 3, "node_type": "group"}
        assert found == {
            "zarr.json": bare,
            "a/zarr.json": bare,
            "a/b/zarr.json": {**bare, "attributes": {"x": [1, None]}},
        }
    else:
        bare = {"zarr_format": 2}
        assert found == {
            ".zgroup": bare,
            "a/.zgroup": bare,
            "a/b/.zgroup": bare,
            "a/b/.zattrs": {"x": [1, None]},
        }


def test_the_family_is_as_it_was_made(store, zarr_format):
    family(store, zarr_format)
    root = zellige.open_group(store, mode="r")
    assert below(root) == expected_below()
    assert {path: dict(node.attrs) for path, node in root.members(None)} == {path: {"path": path} for path in FAMILY}


# -- finding --------------------------------------------------------------------------------------


def test_members_are_found_by_name_and_by_path(store):
    root = family(store)
    assert root["a/b/v"] == root["a"]["b"]["v"] == root["a"]["b/v"] == root["/a/b/v/"]
    assert root["a/b/v"].name == "/a/b/v"
    assert isinstance(root["a/b"], zellige.Group)
    assert isinstance(root["a/u"], zellige.Array)
    assert root["a"]["u"][...].tolist() == [5, 6, 7]


@pytest.mark.parametrize("name", ["absent", "a/absent", "absent/b", "t/c", "t/0", "a/b/v/zarr.json", "", "/", "A"])
def test_what_is_not_there_is_a_key_error(store, name):
    root = family(store)
    for kind in (KeyError, FileNotFoundError, NodeNotFoundError):
        with pytest.raises(kind, match=f"'{name}'"):
            root[name]
    for method in (root.get_array, root.get_group, root.__delitem__):
        with pytest.raises(NodeNotFoundError):
            method(name)
    with pytest.raises(NodeNotFoundError):
        root.move(name, "elsewhere")
    assert root.get(name) is None
    assert root.get(name, "default") == "default"
    assert name not in root
    assert below(root) == expected_below()


def test_an_array_and_a_group_can_be_demanded():
    root = family()
    assert root.get_array("a/u") == root["a/u"]
    assert root.get_group("a") == root["a"]
    with pytest.raises(ContainsGroupError, match="'a'"):
        root.get_array("a")
    with pytest.raises(ContainsArrayError, match="'t'"):
        root.get_group("t")


def test_membership_follows_paths_and_refuses_nothing(store):
    root = family(store)
    for path in FAMILY:
        assert path in root
    for path in ("absent", "a/absent", "t/c/0", "b", "zarr.json", "", 5, None, b"a", ("a",)):
        assert path not in root
    assert "b" in root["a"]
    assert "a" not in root["a"]


@pytest.mark.parametrize("name", ["..", ".", "a/../t", "nul\0", "\ud800", "x" * 10_000])
def test_a_name_that_no_store_can_hold_is_not_there(store, name):
    root = family(store)
    assert name not in root
    assert root.get(name) is None
    with pytest.raises(KeyError):
        root[name]


@pytest.mark.parametrize("name", [5, None, b"a", ("a", "b"), 1.5, Path("a")])
def test_names_are_strings(name):
    root = family()
    for method in (root.__getitem__, root.get, root.get_array, root.get_group, root.__delitem__):
        with pytest.raises(TypeError, match="name"):
            method(name)


def test_nodes_below_a_missing_group_open_by_path_and_are_not_listed(store):
    root = family(store)
    store.delete(["a/zarr.json"])
    assert "a" not in root
    assert root["a/u"][...].tolist() == [5, 6, 7]
    assert sorted(root) == ["empty", "t"]
    assert sorted(below(root)) == ["empty", "t"]
    root.create_group("a/new")  # which makes the group above again
    assert sorted(below(root)) == sorted([*FAMILY, "a/new"])


def test_foreign_keys_and_directories_are_no_members(store):
    root = family(store)
    store.put("notes.txt", b"x")
    store.put("folder/notes.txt", b"x")
    store.put("a/folder/deep/notes.txt", b"x")
    assert below(root) == expected_below()
    assert "notes.txt" not in root
    assert "folder" not in root


# -- listing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 2, 3, None])
def test_members_reach_down_to_a_depth(store, depth):
    root = family(store)
    wanted = {path for path in FAMILY if depth is None or path.count("/") <= depth}
    found = root.members(max_depth=depth)
    assert len(found) == len(wanted)
    assert {path for path, _ in found} == wanted
    assert all(node == root[path] for path, node in found)
    assert root.nmembers(max_depth=depth) == len(wanted)


def test_members_of_a_group_further_down_have_paths_relative_to_it(store):
    root = family(store)
    assert {path for path, _ in root["a"].members(max_depth=None)} == {"b", "b/v", "u"}
    assert {path for path, _ in root["a/b"].members()} == {"v"}
    assert root["empty"].members(max_depth=None) == ()


@pytest.mark.parametrize("depth", [-1, -5])
def test_a_negative_depth_is_refused(depth):
    for method in (family().members, family().nmembers):
        with pytest.raises(ValueError, match="max_depth"):
            method(max_depth=depth)


def test_a_group_is_a_dict_of_its_direct_members(store):
    root = family(store)
    names = list(root)
    assert sorted(names) == ["a", "empty", "t"]
    assert list(root.keys()) == names
    assert list(root.values()) == [root[name] for name in names]
    assert list(root.items()) == [(name, root[name]) for name in names] == list(root.members())
    assert len(root) == len(names)
    assert dict(root.items()).keys() == set(names)
    assert len(root["empty"]) == 0
    assert bool(root["empty"])  # an empty group is a group
    assert list(root["empty"]) == []


def test_arrays_and_groups_share_the_members(store):
    root = family(store)["a"]
    assert dict(root.arrays()) == {"u": root["u"]}
    assert dict(root.groups()) == {"b": root["b"]}
    assert list(root.array_keys()) == ["u"]
    assert list(root.array_values()) == [root["u"]]
    assert list(root.group_keys()) == ["b"]
    assert list(root.group_values()) == [root["b"]]


def test_walking_meets_every_node_once_and_parents_first(store):
    root = family(store)
    paths = [path for path, _ in root.walk()]
    assert sorted(paths) == sorted(FAMILY)
    for place, path in enumerate(paths):
        assert "/" not in path or path.rpartition("/")[0] in paths[:place]
    visited: list[str] = []
    assert root.visit(visited.append) is None
    assert visited == paths
    items: list[tuple[str, Any]] = []
    assert root.visititems(lambda *item: items.append(item)) is None
    assert items == list(root.walk())


def test_visiting_ends_with_the_first_answer():
    root = family()
    seen: list[str] = []

    def look(path: str) -> str | None:
        seen.append(path)
        return "found" if path == "a/u" else None

    assert root.visit(look) == "found"
    assert seen[-1] == "a/u"
    assert len(seen) < len(FAMILY)
    assert root.visititems(lambda path, node: node.attrs["path"] if node == root["t"] else None) == "t"
    assert root.visit(lambda path: 0 if path == "t" else None) == 0  # any answer but None


# -- creating members -----------------------------------------------------------------------------


def test_groups_between_are_created_and_those_there_are_kept(store):
    root = zellige.create_group(store)
    root.create_group("a", attributes={"kept": True})
    deep = root.create_group("a/b/c", attributes={"deep": 1})
    assert (deep.path, dict(deep.attrs)) == ("a/b/c", {"deep": 1})
    assert dict(root["a"].attrs) == {"kept": True}
    assert dict(root["a/b"].attrs) == {}
    assert root["a"].create_array("x/y", data=[1]).path == "a/x/y"
    assert sorted(below(root)) == ["a", "a/b", "a/b/c", "a/x", "a/x/y"]


def test_what_is_there_is_kept_unless_overwriting_is_asked_for(store):
    root = family(store)
    before = contents(store)
    for name, kind in (("a", ContainsGroupError), ("t", ContainsArrayError), ("a/u", ContainsArrayError)):
        with pytest.raises(kind, match="overwrite=True"):
            root.create_group(name)
        with pytest.raises(kind, match="overwrite=True"):
            root.create_array(name, shape=1)
    assert contents(store) == before
    root.create_group("t", overwrite=True)
    root.create_array("a", data=[1], overwrite=True)
    assert below(root) == {"a": [1], "empty": None, "t": None}
    assert set(contents(store)) == {"zarr.json", "empty/zarr.json", "t/zarr.json", "a/zarr.json", "a/c/0"}


def test_require_group_finds_or_creates(store):
    root = family(store)
    assert root.require_group("a/b") == root["a/b"]
    assert root.require_group("new/deep").path == "new/deep"
    assert root.require_groups("a", "empty", "x/y", "x") == (root["a"], root["empty"], root["x/y"], root["x"])
    assert root.require_groups() == ()
    with pytest.raises(ContainsArrayError, match="'t'"):
        root.require_group("t")
    root.require_group("a", overwrite=True)
    assert list(root["a"]) == []
    assert dict(root["a"].attrs) == {}
    root.require_group("t", overwrite=True)
    assert isinstance(root["t"], zellige.Group)


REQUIRED: list[tuple[dict[str, Any], bool]] = [
    ({"shape": 3}, True),
    ({"shape": (3,)}, True),
    ({"shape": [np.int64(3)]}, True),
    ({"shape": 3, "dtype": "int32", "exact": True}, True),
    ({"shape": 3, "dtype": "int64"}, True),
    ({"shape": 3, "dtype": np.float64}, True),
    ({"shape": 3, "dtype": "int64", "exact": True}, False),
    ({"shape": 3, "dtype": "int8"}, False),
    ({"shape": 3, "dtype": "float32"}, False),
    ({"shape": 4}, False),
    ({"shape": (3, 1)}, False),
    ({"shape": ()}, False),
]


@pytest.mark.parametrize(("options", "fits"), REQUIRED, ids=repr)
def test_require_array_wants_the_shape_and_a_type_that_can_be_cast_to(options, fits):
    root = family()
    before = contents(root.store)
    for method in (root.require_array, root.require_dataset):
        if fits:
            assert method("a/u", **options) == root["a/u"]
        else:
            with pytest.raises(TypeError, match="/a/u"):
                method("a/u", **options)
    assert contents(root.store) == before


def test_require_array_creates_what_is_not_there(store):
    root = family(store)
    made = root.require_array("x/y", shape=(4, 2), dtype="int8", chunks=[[1, 3], 2], fill_value=3)
    assert made.write_chunk_sizes == ((1, 3), (2,))
    assert root["x/y"][...].tolist() == [[3, 3]] * 4
    with pytest.raises(ContainsGroupError, match="'a'"):
        root.require_array("a", shape=3)


SHAPED = {"shape": (2, 3), "dtype": "int16", "chunks": (1, 2)}
SOURCE = np.arange(6, dtype="int16").reshape(2, 3)
MAKERS = {
    "create_array": (lambda g: g.create_array("x", **SHAPED, fill_value=4), np.full((2, 3), 4, "int16")),
    "create": (lambda g: g.create("x", data=SOURCE), SOURCE),
    "create_dataset": (lambda g: g.create_dataset("x", data=SOURCE, chunks=(1, 2)), SOURCE),
    "array": (lambda g: g.array("x", SOURCE, chunks=2), SOURCE),
    "zeros": (lambda g: g.zeros(name="x", **SHAPED), np.zeros((2, 3), "int16")),
    "ones": (lambda g: g.ones(name="x", **SHAPED), np.ones((2, 3), "int16")),
    "empty": (lambda g: g.empty(name="x", **SHAPED), np.zeros((2, 3), "int16")),
    "full": (lambda g: g.full(name="x", fill_value=9, **SHAPED), np.full((2, 3), 9, "int16")),
    "zeros_like": (lambda g: g.zeros_like(name="x", data=SOURCE), np.zeros_like(SOURCE)),
    "ones_like": (lambda g: g.ones_like(name="x", data=SOURCE), np.ones_like(SOURCE)),
    "empty_like": (lambda g: g.empty_like(name="x", data=SOURCE), np.zeros_like(SOURCE)),
    "full_like": (lambda g: g.full_like(name="x", data=SOURCE, fill_value=7), np.full_like(SOURCE, 7)),
    "defaults": (lambda g: g.zeros(name="x", shape=3), np.zeros(3)),
}


@pytest.mark.parametrize("how", MAKERS)
def test_every_way_to_make_an_array(how, zarr_format):
    make, expected = MAKERS[how]
    group = zellige.create_group(zarr_format=zarr_format).create_group("g")
    made = make(group)
    assert made.path == "g/x"
    assert made.metadata.zarr_format == zarr_format
    assert group["x"] == made
    assert group["x"].dtype == expected.dtype
    assert np.array_equal(group["x"][...], expected)


def test_arrays_like_others_keep_their_chunks():
    root = zellige.create_group()
    source = root.create_array("s", shape=(5, 2), dtype="int8", chunks=[[1, 4], 2], attributes={"only": "here"})
    for name, make in {"z": root.zeros_like, "o": root.ones_like, "e": root.empty_like, "f": root.full_like}.items():
        made = make(name=name, data=source)
        assert (made.shape, made.dtype) == (source.shape, source.dtype)
        assert made.write_chunk_sizes == ((1, 4), (2,))
        assert dict(made.attrs) == {}


def test_assigning_stores_anything_array_like_in_place_of_an_array(store):
    root = family(store)
    root["x/y"] = [[1, 2], [3, 4]]
    assert root["x/y"][...].tolist() == [[1, 2], [3, 4]]
    root["t"] = np.arange(4, dtype="uint8")
    assert (root["t"].dtype, root["t"][...].tolist(), dict(root["t"].attrs)) == (np.dtype("uint8"), [0, 1, 2, 3], {})
    root["scalar"] = 5
    assert root["scalar"].shape == ()
    assert root["scalar"][()] == 5
    root["copy"] = root["a/b/v"]
    assert root["copy"][...].tolist() == [[1, 2], [3, 4]]
    assert root["copy"].path == "copy"
    with pytest.raises(ContainsGroupError):
        root["a"] = [1]


BAD_VALUES = {
    "None": lambda root: None,
    "a dict": lambda root: {"a": 1},
    "a group": lambda root: root["a"],
    "ragged": lambda root: [[1], [2, 3]],
    "objects": lambda root: np.array([object()]),
    "itself": lambda root: root["t"],
}


@pytest.mark.parametrize("value", BAD_VALUES)
def test_assigning_what_is_no_array_changes_nothing(store, value):
    root = family(store)
    before = contents(store)
    for name in ("t",) if value == "itself" else ("new", "t"):
        with pytest.raises((TypeError, ValueError)):
            root[name] = BAD_VALUES[value](root)
        assert contents(store) == before


BELOW_ARRAYS = {
    "create_group": lambda g, path: g.create_group(path),
    "overwriting create_group": lambda g, path: g.create_group(path, overwrite=True),
    "require_group": lambda g, path: g.require_group(path),
    "create_array": lambda g, path: g.create_array(path, shape=1),
    "overwriting create_array": lambda g, path: g.create_array(path, shape=1, overwrite=True),
    "require_array": lambda g, path: g.require_array(path, shape=1),
    "setitem": lambda g, path: g.__setitem__(path, [1]),
    "zeros": lambda g, path: g.zeros(name=path, shape=1),
    "move": lambda g, path: g.move("empty", path),
    "create_hierarchy": lambda g, path: g.create_hierarchy({"fine": GroupMetadata(), path: GroupMetadata()}),
    "overwriting create_hierarchy": lambda g, path: g.create_hierarchy(
        {"empty": GroupMetadata(), path: GroupMetadata()}, overwrite=True
    ),
    "top-level group": lambda g, path: zellige.create_group(g.store, path=path),
    "top-level array": lambda g, path: zellige.create_array(g.store, name=path, shape=1),
    "top-level hierarchy": lambda g, path: zellige.create_hierarchy(
        store=g.store, nodes={"fine": GroupMetadata(), path: GroupMetadata()}
    ),
}


@pytest.mark.parametrize("way", BELOW_ARRAYS)
def test_nothing_comes_to_be_below_an_array(store, way):
    root = family(store)
    before = contents(store)
    for path in ("t/x", "a/u/x/y", "a/b/v/c/0"):
        with pytest.raises(ContainsArrayError, match="is an array"):
            BELOW_ARRAYS[way](root, path)
        assert contents(store) == before


@pytest.mark.parametrize("way", BELOW_ARRAYS)
def test_nothing_comes_to_be_below_an_array_of_the_older_format(way):
    root = family()
    root.store.put("old/.zarray", ARRAY_V2)
    before = contents(root.store)
    with pytest.raises(ContainsArrayError, match="is an array"):
        BELOW_ARRAYS[way](root, "old/x")
    assert contents(root.store) == before


def test_a_new_group_has_no_attributes_of_something_that_was_there_before():
    store = MemoryStore({"g/.zattrs": b'{"old": 1}'})  # what is left of a group that was removed by half
    group = zellige.create_group(store, path="g", zarr_format=2)
    assert dict(group.attrs) == dict(zellige.open_group(store, path="g").attrs)


# -- deleting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*FAMILY, "/a/"])
def test_deleting_removes_the_node_with_all_below_and_nothing_beside(store, zarr_format, path):
    root = family(store, zarr_format)
    for beside in ("aa", "a.b", "a/bb", "tt"):
        root.create_group(beside)
    place = path.strip("/")
    rest = {key: raw for key, raw in contents(store).items() if not key.startswith(place + "/")}
    del root[path]
    assert contents(store) == rest
    assert place not in root
    with pytest.raises(KeyError):
        del root[path]
    root.create_group(place)  # the name is free again
    assert isinstance(root[place], zellige.Group)


def test_a_handle_of_a_deleted_group_writes_no_attributes(store, zarr_format):
    root = family(store, zarr_format)
    lost = root["a"]
    del root["a"]
    before = contents(store)
    with pytest.raises(ConflictError, match="/a"):
        lost.attrs["x"] = 1
    assert contents(store) == before


# -- handles --------------------------------------------------------------------------------------


def test_a_pickled_group_is_the_same_group(tmp_path, zarr_format):
    root = family(tmp_path / "root", zarr_format)
    for group in (root, root["a"], zellige.open_group(tmp_path / "root", mode="r")["a/b"]):
        copy = pickle.loads(pickle.dumps(group))
        assert copy == group
        assert (copy.path, copy.read_only, copy.attrs) == (group.path, group.read_only, group.attrs)
        assert below(copy) == below(group)
    copy = pickle.loads(pickle.dumps(root))
    copy["a"].attrs["new"] = 1
    assert root["a"].attrs["new"] == 1


def test_groups_are_equal_if_they_are_the_same_place_and_say_the_same(tmp_path):
    root = family(tmp_path / "root")
    again = zellige.open_group(tmp_path / "root")
    assert root == again
    assert root["a"] == again["a"]
    assert root["a"] != root["a/b"]
    assert root != family(tmp_path / "other")
    assert family() != family()
    assert root["a"] != root["t"]
    assert root != "root"
    again.attrs["x"] = 1
    assert root != again
    root.refresh()
    assert root == again
    with pytest.raises(TypeError, match="unhashable"):
        hash(root)


def test_info_tells_what_a_group_is_and_holds(store, zarr_format):
    root = family(store, zarr_format)
    assert root["a"].info["Name"] == "/a"
    assert root.info["Zarr format"] == str(zarr_format)
    assert root["a"].info["Attributes"] == "1"
    assert root.info["Consolidated"] == "False"
    complete = root.info_complete()
    assert (complete["Members"], complete["Arrays"], complete["Groups"]) == ("6", "3", "3")
    assert "/a" in repr(root["a"].info)
    assert "/a" in repr(root["a"])
    with pytest.raises(KeyError):
        root.info["Members"]


def test_the_store_path_is_the_place_of_the_group(store):
    root = family(store)
    assert root["a/b"].store_path == StorePath(store, "a/b")
    assert (root["a"].store_path / "u" / "zarr.json").exists()
    assert root.store_path.path == ""
    assert zellige.open_group(root["a"].store_path, path="b") == root["a/b"]


CHANGES = {
    "create_group": lambda g: g.create_group("new"),
    "overwrite": lambda g: g.create_group("a", overwrite=True),
    "create_array": lambda g: g.create_array("new", shape=1),
    "require_group": lambda g: g.require_group("new"),
    "require_array": lambda g: g.require_array("new", shape=1),
    "create_hierarchy": lambda g: g.create_hierarchy({"new": GroupMetadata()}),
    "zeros": lambda g: g.zeros(name="new", shape=1),
    "setitem": lambda g: g.__setitem__("new", [1]),
    "set an array": lambda g: g.__setitem__("t", [1]),
    "delitem": lambda g: g.__delitem__("a"),
    "move": lambda g: g.move("a", "b"),
    "attrs": lambda g: g.attrs.__setitem__("x", 1),
    "update_attributes": lambda g: g.update_attributes({"x": 1}),
    "consolidate": lambda g: g.consolidate_metadata(),
    "attrs of a member": lambda g: g["a"].attrs.__setitem__("x", 1),
    "values of a member": lambda g: g["t"].__setitem__(0, 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_group_that_is_read_only_stays_as_it_is(store, change):
    family(store)
    before = contents(store)
    for root in (zellige.open_group(store, mode="r"), zellige.open(store.as_read_only())):
        with pytest.raises(ReadOnlyError):
            CHANGES[change](root)
        assert contents(store) == before
        assert root["a"].read_only
        assert root["a"].require_group("b") == root["a/b"]  # what is there can be had


def test_what_is_read_by_mode_r_is_all_read_only(store):
    family(store)
    root = zellige.open_group(store, mode="r")
    assert all(found.read_only for _, found in root.members(None))
    assert not any(found.read_only for _, found in zellige.open_group(store, mode="r+").members(None))


# -- trees ----------------------------------------------------------------------------------------


def test_the_tree_draws_what_is_below(store):
    root = family(store)
    assert repr(root.tree()).splitlines() == [
        "/",
        "├── a",
        "│   ├── b",
        "│   │   └── v (2, 2) int16",
        "│   └── u (3,) int32",
        "├── empty",
        "└── t (2,) float64",
    ]
    assert repr(root["a"].tree(plain=True)).splitlines() == [
        "/a",
        "|-- b",
        "|   `-- v (2, 2) int16",
        "`-- u (3,) int32",
    ]
    assert repr(zellige.tree(store)) == repr(zellige.tree(root)) == repr(root.tree())


def test_the_tree_ends_at_a_level_and_at_a_number_of_nodes():
    root = family()
    assert repr(root.tree(level=1)).splitlines() == ["/", "├── a", "├── empty", "└── t (2,) float64"]
    assert repr(root.tree(level=0)) == "/"
    assert "v (2, 2)" not in repr(root.tree(level=2))
    short = repr(root.tree(max_nodes=2)).splitlines()
    assert len(short) == 4
    assert "4 more" in short[-1]


def test_the_tree_as_html_escapes_names():
    root = zellige.create_group()
    root.create_group("<b>&x")
    root.create_array("<script>", shape=1)
    for html in (root.tree()._repr_html_(), root._repr_html_()):
        assert "<script>" not in html
        assert "&lt;b&gt;&amp;x" in html
