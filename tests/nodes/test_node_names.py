"""Names of nodes: what the format forbids is refused everywhere, and whatever is there already can be opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from counting_store import contents
from zellige.errors import NodeNameError, StoreKeyError
from zellige.metadata import GroupMetadata
from zellige.stores import LocalStore, MemoryStore, Store

GROUP = json.dumps({"zarr_format": 3, "node_type": "group"}).encode()
SOURCE = zellige.zeros(2, dtype="int8")


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


# -- names that the format forbids ----------------------------------------------------------------

FORBIDDEN = {
    "one dot": ".",
    "two dots": "..",
    "three dots": "...",
    "dots within": "a/../b",
    "dots at the end": "a/.",
    "dots above": "../a",
    "zellige's own": "__zellige_x",
    "zellige's own within": "a/__zellige/c",
    "an empty part": "a//b",
    "a document": "zarr.json",
    "a document within": "a/zarr.json/b",
    "NUL": "nul\0",
    "NUL within": "a/n\0l/b",
    "long": "x" * 10_000,
    "long within": f"a/{'x' * 10_000}",
    "long in bytes": "é" * 200,
    "a high surrogate": "\ud800",
    "a low surrogate": "a/\udfff",
    "a byte that is no character": "\udc80",
}
OUTER = {"nothing": "", "a slash": "/", "absolute": "/abs", "a trailing slash": "a/", "two slashes": "//a"}
BACKSLASH = "p\\q"
NO_STRINGS = [5, 0, 1.5, True, b"a", b"", ("a",), ["a"], Path("a")]

IN_GROUP: dict[str, Any] = {
    "create_group": lambda g, name: g.create_group(name),
    "overwriting create_group": lambda g, name: g.create_group(name, overwrite=True),
    "require_group": lambda g, name: g.require_group(name),
    "overwriting require_group": lambda g, name: g.require_group(name, overwrite=True),
    "require_groups": lambda g, name: g.require_groups(name),
    "create_array": lambda g, name: g.create_array(name, shape=1),
    "overwriting create_array": lambda g, name: g.create_array(name, shape=1, overwrite=True),
    "create": lambda g, name: g.create(name, data=[1]),
    "create_dataset": lambda g, name: g.create_dataset(name, data=[1]),
    "require_array": lambda g, name: g.require_array(name, shape=1),
    "require_dataset": lambda g, name: g.require_dataset(name, shape=1),
    "array": lambda g, name: g.array(name, [1]),
    "zeros": lambda g, name: g.zeros(name=name, shape=1),
    "ones": lambda g, name: g.ones(name=name, shape=1),
    "empty": lambda g, name: g.empty(name=name, shape=1),
    "full": lambda g, name: g.full(name=name, shape=1, fill_value=1),
    "zeros_like": lambda g, name: g.zeros_like(name=name, data=SOURCE),
    "ones_like": lambda g, name: g.ones_like(name=name, data=SOURCE),
    "empty_like": lambda g, name: g.empty_like(name=name, data=SOURCE),
    "full_like": lambda g, name: g.full_like(name=name, data=SOURCE, fill_value=1),
    "setitem": lambda g, name: g.__setitem__(name, [1]),
    "create_hierarchy": lambda g, name: g.create_hierarchy({"fine": GroupMetadata(), name: GroupMetadata()}),
    "overwriting create_hierarchy": lambda g, name: g.create_hierarchy({name: GroupMetadata()}, overwrite=True),
    "move": lambda g, name: g.move("child", name),
}

AT_THE_TOP: dict[str, Any] = {
    "create_group": lambda store, name: zellige.create_group(store, path=name),
    "overwriting create_group": lambda store, name: zellige.create_group(store, path=name, overwrite=True),
    "overwriting group": lambda store, name: zellige.group(store, path=name, overwrite=True),
    "open_group w": lambda store, name: zellige.open_group(store, path=name, mode="w"),
    "open_group w-": lambda store, name: zellige.open_group(store, path=name, mode="w-"),
    "open w": lambda store, name: zellige.open(store, path=name, mode="w"),
    "create_array": lambda store, name: zellige.create_array(store, name=name, shape=1),
    "create": lambda store, name: zellige.create(1, store=store, path=name),
    "zeros": lambda store, name: zellige.zeros(1, store=store, path=name),
    "zeros_like": lambda store, name: zellige.zeros_like(SOURCE, store=store, path=name),
    "array": lambda store, name: zellige.array([1], store=store, path=name),
    "from_array": lambda store, name: zellige.from_array(store, data=[1], name=name),
    "open_array w": lambda store, name: zellige.open_array(store, path=name, mode="w", shape=1),
    "save_array": lambda store, name: zellige.save_array(store, [1], path=name),
    "create_hierarchy": lambda store, name: zellige.create_hierarchy(store=store, nodes={name: GroupMetadata()}),
}
"""The functions that only create. Those that open first are tolerant: `OPENING`."""

OPENING: dict[str, Any] = {
    "open": lambda store, name: zellige.open(store, path=name),
    "open_group": lambda store, name: zellige.open_group(store, path=name),
    "open_array": lambda store, name: zellige.open_array(store, path=name, shape=1),
    "group": lambda store, name: zellige.group(store, path=name),
    "save_group": lambda store, name: zellige.save_group(store, [1], path=name),
}


def misbehaving(ways: dict[str, Any], subject: Any, name: Any, kind: Any) -> dict[str, str]:
    """The ways that take a name which they should refuse with this error, or that change the store on the way."""
    found = {}
    for way, make in ways.items():
        target = subject()
        store = getattr(target, "store", target)
        before = contents(store)
        try:
            make(target, name)
        except kind as error:
            if contents(store) != before:
                found[way] = "wrote something"
            elif len(str(error)) > 600:  # however long the name
                found[way] = "said too much"
        except Exception as error:  # noqa: BLE001  (shown by the test)
            found[way] = f"raised {type(error).__name__}"
        else:
            found[way] = "accepted it"
    return found


def group_with_a_child() -> zellige.Group:
    group = zellige.create_group().create_group("g")
    group.create_array("child", data=[1, 2])
    return group


def store_with_a_group() -> MemoryStore:
    return MemoryStore({"g/zarr.json": GROUP})


def for_keys(ways: dict[str, Any], name: Any) -> dict[str, Any]:
    """Without those that take a dict, if it cannot have this key."""
    return {way: make for way, make in ways.items() if "hierarchy" not in way or not isinstance(name, list)}


@pytest.mark.parametrize("name", [*FORBIDDEN, *OUTER])
def test_a_group_refuses_forbidden_names_and_stays_as_it_is(name):
    assert misbehaving(IN_GROUP, group_with_a_child, {**FORBIDDEN, **OUTER}[name], NodeNameError) == {}


@pytest.mark.parametrize("name", NO_STRINGS, ids=repr)
def test_a_group_wants_names_that_are_strings(name):
    assert misbehaving(for_keys(IN_GROUP, name), group_with_a_child, name, TypeError) == {}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_top_level_functions_refuse_forbidden_names_and_write_nothing(name):
    assert misbehaving(AT_THE_TOP, store_with_a_group, FORBIDDEN[name], NodeNameError) == {}


@pytest.mark.parametrize("name", [name for name in FORBIDDEN if name != "an empty part"])
def test_functions_that_open_or_create_refuse_forbidden_names_and_write_nothing(name):
    assert misbehaving(OPENING, store_with_a_group, FORBIDDEN[name], (NodeNameError, StoreKeyError)) == {}


@pytest.mark.parametrize("name", NO_STRINGS, ids=repr)
def test_top_level_functions_want_paths_that_are_strings(name):
    ways = for_keys({**AT_THE_TOP, **OPENING}, name)
    assert misbehaving(ways, store_with_a_group, name, TypeError) == {}


@pytest.mark.parametrize("name", ["/a/b", "a/b/", "/a/b/", "//a/b//", "a/b"])
def test_top_level_functions_tolerate_outer_slashes(name):
    for make in [*AT_THE_TOP.values(), *OPENING.values()]:
        store = MemoryStore()
        make(store, name)
        assert {"zarr.json", "a/zarr.json", "a/b/zarr.json"} <= set(contents(store))
        assert zellige.open(store, path=name, mode="r").path == "a/b"
        assert zellige.open_group(store)["a/b"].name == "/a/b"


@pytest.mark.parametrize("name", FORBIDDEN)
def test_arrays_saved_by_keyword_have_names_too(name):
    store = MemoryStore()
    with pytest.raises(NodeNameError):
        zellige.save_group(store, **{FORBIDDEN[name]: [1]})
    assert set(contents(store)) <= {"zarr.json"}


def test_a_bad_name_is_a_fact_of_the_error():
    with pytest.raises(NodeNameError, match="'__zellige_b'") as found:
        zellige.create_group().create_group("a/__zellige_b/c")
    assert found.value.name == "__zellige_b"


def test_a_path_that_the_file_system_cannot_hold_leaves_no_groups_behind(tmp_path):
    store = LocalStore(tmp_path / "root")
    zellige.create_group(store)
    before = contents(store)
    long = "/".join(["x" * 250] * 40)
    for create in (
        zellige.open_group(store).create_group,
        lambda path: zellige.create_array(store, name=path, shape=1),
    ):
        with pytest.raises((NodeNameError, OSError)):
            create(long)
        assert contents(store) == before


# -- names that are fine --------------------------------------------------------------------------

FINE = [
    "a b",
    " ",
    "é",
    "数/列",
    "%41",
    "100%",
    "-",
    "_",
    "_x",
    "..x",
    "x..",
    ".hidden",
    "C:",
    "a:b",
    "c",
    "c/0",
    "0",
    "1.0",
]
FINE += ["*", "?", "a\nb", "<x>", "'", '"', "x" * 255, "é" * 127, ".zgroup", "ZARR.JSON", "zarr.json.x", "attributes"]


@pytest.mark.parametrize("name", FINE)
def test_odd_names_are_fine(store, name):
    root = zellige.create_group(store)
    root.create_group("g").create_array(name, data=[5])
    assert root["g"][name][0] == 5
    assert name in root["g"]
    assert zellige.open(store, path=f"g/{name}", mode="r")[0] == 5
    assert name in {path for path, _ in root["g"].members(max_depth=None)}
    assert name.split("/")[0] in list(root["g"])
    root.consolidate_metadata()
    assert zellige.open_consolidated(store, check=True)[f"g/{name}"][0] == 5
    root["g"].move(name, "moved")
    assert list(root["g"].array_keys()) == ["moved"]


letters = st.sampled_from("ab./\\_ é\0\ud800\udc80:~") | st.characters()
some_names = st.text(letters, max_size=6) | st.sampled_from(
    ["zarr.json", "__a", "__zellige", "a\\b", "\\", "a/\\b", "..\\a"]
)


@ours.examples(0.05)
@given(name=some_names, way=st.sampled_from(["create_group", "create_array", "setitem", "require_group", "move"]))
def test_a_name_is_refused_or_it_is_the_name_of_the_node(name, way):
    group = zellige.create_group().create_group("g")
    group.create_array("child-that-moves", data=[1])
    before = contents(group.store)
    make = IN_GROUP[way] if way != "move" else lambda g, dest: g.move("child-that-moves", dest)
    try:
        make(group, name)
    except NodeNameError:
        assert contents(group.store) == before
        return
    assert name in group
    made = group[name].path.removeprefix("g/")
    assert made in (name, name.replace("\\", "/"))
    listed = {path for path, _ in group.members(max_depth=None)}
    assert made in listed
    assert all(group[path].path == f"g/{path}" for path in listed)


def test_a_backslash_means_the_same_to_every_method():
    meanings = {}
    for way in set(IN_GROUP) - {"move", "create_hierarchy"}:
        group = zellige.create_group()
        try:
            IN_GROUP[way](group, BACKSLASH)
        except NodeNameError:
            assert contents(group.store).keys() == {"zarr.json"}
            meanings[way] = "refused"
        else:
            meanings[way] = f"{group.get(BACKSLASH) is not None}, {[path for path, _ in group.members(max_depth=None)]}"
    assert len(set(meanings.values())) == 1, meanings
    assert meanings["create_group"].startswith(("refused", "True"))


# -- nodes that others have put there -------------------------------------------------------------

FOUND = ["...", "....", "__x", "__x__", "__zellige_x", "a b", "é", "\udc80", "x" * 200, ".zgroup", "c", "0", "~", "-"]


@pytest.mark.parametrize("name", FOUND)
def test_a_node_of_any_name_can_be_opened_and_removed(store, name):
    store.put("zarr.json", GROUP)
    store.put(f"{name}/zarr.json", GROUP)
    store.put(f"{name}/sub/zarr.json", GROUP)
    root = zellige.open_group(store)
    assert zellige.open_group(store, path=name, mode="r").path == name
    assert name in root
    assert root[name].path == name
    assert root[f"{name}/sub"].path == f"{name}/sub"
    root[name].attrs["x"] = 1
    assert root[name].attrs["x"] == 1
    listed = list(root)
    assert listed == ([] if name.startswith("__zellige") else [name])  # where our own marks and scratch are
    assert [root[found] for found in listed] == list(root.values())
    del root[name]
    assert contents(store).keys() == {"zarr.json"}


@pytest.mark.parametrize("name", [*FOUND, BACKSLASH, "a\\", "\\"])
def test_what_is_listed_can_be_opened_by_its_name(store, name):
    store.put("zarr.json", GROUP)
    store.put(f"{name}/zarr.json", GROUP)
    root = zellige.open_group(store)
    assert [root.get(found) for found in root] == list(root.values())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_name_that_begins_with_underscores_is_one_like_others(store, zarr_format):
    # As anndata 0.7 stores the categories of a column.
    root = zellige.create_group(store, zarr_format=zarr_format)
    obs = root.create_group("obs")
    obs.create_array("cell_type", data=[0, 1, 0])
    obs.create_array("__categories/cell_type", data=[7, 8])
    members = ["__categories", "__categories/cell_type", "cell_type"]
    assert sorted(path for path, _ in obs.members(max_depth=None)) == members
    assert "__categories" in repr(root.tree())
    assert zellige.validate(store).ok
    assert zellige.vacuum(store, dry_run=False).actions == ()

    other = zellige.create_group(zarr_format=zarr_format)
    copied = zellige.copy(obs, other)
    assert copied.left_out == ()
    assert other["obs/__categories/cell_type"][:].tolist() == [7, 8]
    assert not zellige.diff(obs, other["obs"])
    zellige.copy(obs["__categories"], other, name="__more")
    assert other["__more/cell_type"][:].tolist() == [7, 8]

    held = zellige.consolidate_metadata(store)
    assert {f"obs/{path}" for path in members} < held.metadata.consolidated.keys()
    held["obs/__categories/cell_type"].attrs["a"] = 1
    zellige.open_consolidated(store, check=True)
    if zarr_format == 2:
        assert zellige.migrate(store, dry_run=False).failed == {}
        assert zellige.migrate(store, remove_v2=True, dry_run=False).failed == {}
        root = zellige.open_group(store, zarr_format=3)
        assert root["obs/__categories/cell_type"][:].tolist() == [7, 8]
    root.move("obs/__categories", "obs/__moved")
    del root["obs/__moved/cell_type"]
    assert list(root["obs/__moved"]) == []
    del root["obs"]
    assert not [key for key in contents(store) if "obs/" in key]


def test_a_node_with_a_bad_name_can_be_given_a_good_one(store):
    store.put("zarr.json", GROUP)
    store.put(".../zarr.json", GROUP)
    root = zellige.open_group(store)
    root.move("...", "good")
    assert list(root) == ["good"]


def test_a_node_named_like_a_document_can_be_opened_where_a_store_can_hold_it():
    root = zellige.open_group(MemoryStore({"zarr.json": GROUP, "zarr.json/zarr.json": GROUP}))
    assert list(root) == ["zarr.json"]
    assert root["zarr.json"].path == "zarr.json"
