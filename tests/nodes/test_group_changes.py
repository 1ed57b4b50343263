"""Changes of whole hierarchies: moving, creating many nodes, and doing so at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import zellige
from counting_store import WRITES, CountingStore, contents
from documents import document as array_document
from families import FORMATS, below, expected_below, family
from zellige.errors import (
    ContainsArrayError,
    ContainsGroupError,
    MetadataError,
    NodeNotFoundError,
    NotANodeError,
)
from zellige.metadata import GroupMetadata
from zellige.stores import LocalStore, MemoryStore, Store, StorePath


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


@pytest.fixture(params=FORMATS, ids=["v3", "v2"])
def zarr_format(request) -> int:
    return request.param


# -- moving ---------------------------------------------------------------------------------------

MOVES = [("t", "s"), ("a", "z"), ("a/b", "b"), ("a/b/v", "v"), ("t", "a/t"), ("t", "x/y/t"), ("a", "x/a"), ("t", "tt")]
MOVES += [("a/b", "a/c"), ("a/b/v", "a/x/v"), ("empty", "a/b/empty"), ("a", "aa"), ("/a/", "z")]


@pytest.mark.parametrize(("source", "dest"), MOVES)
def test_moving_takes_everything_below_along(store, zarr_format, source, dest):
    root = family(store, zarr_format)
    nodes, attributes, kinds = {}, {}, {}
    for path, node in root.members(None):
        old = source.strip("/")
        new = dest + path[len(old) :] if f"{path}/".startswith(f"{old}/") else path
        nodes[new] = node[...].tolist() if isinstance(node, zellige.Array) else None
        attributes[new] = dict(node.attrs)
        kinds[new] = type(node)
    parts = dest.split("/")
    for depth in range(1, len(parts)):
        nodes.setdefault("/".join(parts[:depth]), None)
        attributes.setdefault("/".join(parts[:depth]), {})
    count = len(contents(store))
    made = len(nodes) - len(kinds)
    root.move(source, dest)
    assert below(root) == nodes
    assert {path: dict(node.attrs) for path, node in root.members(None)} == attributes
    assert len(contents(store)) == count + made  # every key is somewhere, and none is left over
    assert root[dest].path == dest


def test_moving_within_a_group_is_relative_to_it(store):
    root = family(store)
    root["a"].move("b", "x/c")
    assert below(root)["a/x/c/v"] == [[1, 2], [3, 4]]
    assert "a/b" not in root


BAD_MOVES = [
    ("a", "t", ContainsArrayError),
    ("t", "a", ContainsGroupError),
    ("a/b", "a", ContainsGroupError),
    ("a", "a", ValueError),
    ("/a/", "a", ValueError),
    ("a", "a/b", (ValueError, ContainsGroupError)),
    ("a", "a/b/new", ValueError),
    ("t", "t/x", ValueError),
    ("t", "a/u/x", ContainsArrayError),
    ("t", "foreign", NotANodeError),
    ("a", "rubbish", FileExistsError),
    ("absent", "x", NodeNotFoundError),
    ("absent", "t", NodeNotFoundError),
]


@pytest.mark.parametrize(("source", "dest", "kind"), BAD_MOVES)
def test_a_move_that_is_refused_changes_nothing(store, source, dest, kind):
    root = family(store)
    store.put("foreign/notes.txt", b"x")
    store.put("rubbish/zarr.json", b"x")
    before = contents(store)
    with pytest.raises(kind):
        root.move(source, dest)
    assert contents(store) == before


def test_a_move_on_disk_is_a_rename(tmp_path):
    root = family(LocalStore(tmp_path))
    inode = (tmp_path / "a" / "u" / "c" / "0").stat().st_ino
    root.move("a", "x/y")
    assert (tmp_path / "x" / "y" / "u" / "c" / "0").stat().st_ino == inode
    assert not (tmp_path / "a").exists()


def test_a_move_to_a_place_where_only_directories_are_left(tmp_path):
    root = family(LocalStore(tmp_path))
    (tmp_path / "z" / "deep" / "er").mkdir(parents=True)
    root.move("a", "z")
    assert "a" not in root
    assert {path for path, _ in root["z"].members(None)} == {"b", "b/v", "u"}


class Broken(OSError):
    """The store fails."""


def failing_after(count: int, methods: tuple[str, ...]) -> Any:
    left = [count]

    def before(method: str, key: str) -> None:
        if method in methods:
            left[0] -= 1
            if left[0] < 0:
                raise Broken(key)

    return before


@pytest.mark.parametrize("source", ["a", "t"])
def test_a_move_that_fails_half_way_leaves_the_member_whole_at_one_place(source):
    whole = {path: node for path, node in expected_below().items() if f"{path}/".startswith(f"{source}/")}
    for count in range(100):
        inner = MemoryStore()
        family(inner)
        failing = zellige.open_group(CountingStore(inner, failing_after(count, WRITES)))
        try:
            failing.move(source, "x/y")
        except Broken:
            ended = False
        else:
            ended = True
        root = zellige.open_group(inner)
        places = [place for place in (source, "x/y") if place in root]
        found = [{source: None, **{f"{source}/{path}": v for path, v in below(root[place]).items()}} if source == "a"
                 else {source: root[place][...].tolist()} for place in places]  # fmt: skip
        assert whole in found
        assert not ended or places == ["x/y"]
        if ended:
            break
    assert count > 3
    assert ended


def test_a_move_that_failed_can_be_tried_again():
    for count in range(6):
        inner = MemoryStore()
        family(inner)
        with pytest.raises(Broken):
            zellige.open_group(CountingStore(inner, failing_after(count, ("put",)))).move("a", "x/y")
        root = zellige.open_group(inner)
        root.move("a", "x/y")
        assert {path for path, _ in root["x/y"].members(None)} == {"b", "b/v", "u"}
        assert "a" not in root


# -- hierarchies ----------------------------------------------------------------------------------


def meta(shape: Any = 3, **options: Any) -> Any:
    return zellige.create_array(shape=shape, dtype="int8", **options).metadata


@pytest.mark.parametrize("way", ["top-level", "group", "group below"])
def test_a_hierarchy_is_created_with_the_groups_above(store, way):
    nodes = {"a/t": meta(), "a/b/u": meta((2, 2), attributes={"x": 1}), "g": GroupMetadata({"y": 2})}
    if way == "top-level":
        made = dict(zellige.create_hierarchy(store=store, nodes=nodes))
        assert made.pop("") == zellige.open_group(store)
        root = zellige.open_group(store)
    else:
        root = zellige.create_group(store)
        root = root if way == "group" else root.create_group("below/here")
        made = dict(root.create_hierarchy(nodes))
    assert made.keys() == {"a", "a/t", "a/b", "a/b/u", "g"}
    assert dict(root.members(max_depth=None)) == made
    assert root["a/b/u"].attrs["x"] == 1
    assert root["g"].attrs["y"] == 2
    made["a/t"][:] = 5
    assert root["a/t"][...].tolist() == [5, 5, 5]


def test_a_hierarchy_below_a_place_in_a_store(store):
    made = dict(zellige.create_hierarchy(store=StorePath(store, "x/y"), nodes={"/t/": meta()}))
    assert made["t"].path == "x/y/t"
    assert sorted(below(zellige.open_group(store))) == ["x", "x/y", "x/y/t"]


def test_the_root_of_a_hierarchy_can_be_given(store):
    (pair,) = zellige.create_hierarchy(store=store, nodes={"": GroupMetadata({"x": 1})})
    assert pair == ("", zellige.open_group(store))
    assert pair[1].attrs["x"] == 1
    with pytest.raises(ContainsGroupError):
        zellige.create_hierarchy(store=store, nodes={"": GroupMetadata()})


def test_arrays_without_axes_or_elements_are_part_of_a_hierarchy(store):
    made = dict(zellige.create_hierarchy(store=store, nodes={"s": meta(()), "g/e": meta((0, 2))}))
    assert {path: made[path].shape for path in ("s", "g/e")} == {"s": (), "g/e": (0, 2)}


def test_no_hierarchy_is_made_in_the_directory_of_an_array(tmp_path):
    zellige.create_array(tmp_path, shape=3)
    for nodes in ({"": GroupMetadata()}, {"a": meta()}):
        with pytest.raises(ContainsArrayError, match="lies in its directory"):
            zellige.create_hierarchy(store=tmp_path / "below", nodes=nodes)
    assert [found.name for found in tmp_path.iterdir()] == ["zarr.json"]


def test_documents_are_as_good_as_metadata(store):
    nodes = {"t": meta(attributes={"x": 1}).to_dict(), "g": {"zarr_format": 3, "node_type": "group"}}
    zellige.create_hierarchy(store=store, nodes=nodes)
    assert zellige.open(store, path="t").attrs["x"] == 1
    assert isinstance(zellige.open(store, path="g"), zellige.Group)


def test_groups_above_a_hierarchy_are_kept(store):
    root = family(store)
    made = dict(root.create_hierarchy({"a/b/new": meta(), "a/other/new": meta()}))
    assert made.keys() == {"a/b/new", "a/other", "a/other/new"}
    assert below(root).items() >= expected_below().items()
    assert root["a"].attrs["path"] == "a"


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_a_hierarchy_overwrites_only_if_asked_to(store, zarr_format):
    root = family(store, zarr_format)
    group, array = GroupMetadata(zarr_format=zarr_format), root["t"].metadata
    nodes = {"new": group, "a": group, "a/x": array, "t": group}
    before = contents(store)
    with pytest.raises((ContainsGroupError, ContainsArrayError)):
        root.create_hierarchy(nodes)
    assert contents(store) == before
    made = dict(root.create_hierarchy(nodes, overwrite=True))
    assert made.keys() == nodes.keys()
    assert {path: type(node) for path, node in root.members(None)} == {
        "new": zellige.Group,
        "a": zellige.Group,
        "a/x": zellige.Array,
        "t": zellige.Group,
        "empty": zellige.Group,
    }
    assert not root["a/x"][...].any()


def test_a_hierarchy_replaces_an_array_and_its_chunks_by_groups_of_the_same_names(store):
    root = family(store)
    assert store.exists("t/c/0")
    group = GroupMetadata()
    with pytest.raises(ContainsArrayError):
        root.create_hierarchy({"t/c": group}, overwrite=True)  # the array above is not to be replaced
    root.create_hierarchy({"t": group, "t/c": group, "t/c/0": group}, overwrite=True)
    assert {path for path, _ in root["t"].members(None)} == {"c", "c/0"}
    assert set(store.list("t/")) == {"t/zarr.json", "t/c/zarr.json", "t/c/0/zarr.json"}


BAD_HIERARCHIES: dict[str, tuple[dict[Any, Any], Any]] = {
    "an array above": ({"fine": GroupMetadata(), "x": meta(), "x/y": meta()}, ContainsArrayError),
    "an array further above": ({"x": meta(), "x/y/z": GroupMetadata()}, ContainsArrayError),
    "two formats": ({"x": GroupMetadata(), "y": GroupMetadata(zarr_format=2)}, ValueError),
    "another format than the group's": ({"x": GroupMetadata(zarr_format=2)}, ValueError),
    "no metadata": ({"fine": GroupMetadata(), "x": 5}, (TypeError, MetadataError)),
    "None": ({"fine": GroupMetadata(), "x": None}, (TypeError, MetadataError)),
    "a broken document": ({"fine": GroupMetadata(), "x": {"zarr_format": 3}}, MetadataError),
    "an unknown codec": ({"fine": GroupMetadata(), "x": array_document(codecs=[{"name": "rot13"}])}, MetadataError),
    "one path twice": ({"x": GroupMetadata({"a": 1}), "x/": GroupMetadata({"a": 2})}, ValueError),
}


@pytest.mark.parametrize("case", BAD_HIERARCHIES)
def test_a_hierarchy_is_checked_before_the_first_write(store, case):
    nodes, kind = BAD_HIERARCHIES[case]
    root = family(store)
    before = contents(store)
    for overwrite in (False, True):
        with pytest.raises(kind):
            root.create_hierarchy(nodes, overwrite=overwrite)
        assert contents(store) == before


def test_a_hierarchy_that_meets_foreign_keys_is_refused_before_the_first_write(store):
    root = family(store)
    store.put("x/foreign/notes.txt", b"keep me")
    before = contents(store)
    with pytest.raises(NotANodeError, match="x/foreign"):
        root.create_hierarchy({"a": GroupMetadata(), "x/foreign": GroupMetadata()}, overwrite=True)
    assert contents(store) == before


def test_chunks_of_a_lost_array_do_not_appear_in_a_new_one():
    store = MemoryStore()
    root = zellige.create_group(store)
    lost = root.create_array("x", data=[1, 2, 3], compressors=None)
    store.delete(["x/zarr.json"])
    with pytest.raises(NotANodeError):
        root.create_array("x", shape=3, dtype="int64")
    with pytest.raises(NotANodeError):
        root.create_hierarchy({"x": lost.metadata})


# -- many at once ---------------------------------------------------------------------------------


def in_threads(count: int, work: Any) -> list[Any]:
    """What a function gives for 0 … count - 1, each in a thread, all started together."""
    found: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait(30)
        try:
            found[number] = work(number)
        except Exception as error:  # noqa: BLE001  (looked at by the test)
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "many handles"])
def test_attributes_set_by_many_threads_are_all_kept(store, zarr_format, shared):
    group = zellige.create_group(store, path="g", zarr_format=zarr_format)

    def work(number: int) -> None:
        mine = group if shared else zellige.open_group(store, path="g")
        for turn in range(8):
            mine.attrs[f"{number}-{turn}"] = turn

    assert in_threads(8, work) == [None] * 8
    kept = zellige.open_group(store, path="g").attrs.asdict()
    assert kept == {f"{number}-{turn}": turn for number in range(8) for turn in range(8)}


SCRIPT = """
import sys, threading, zellige
root, me = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
{body}
"""


def in_processes(root: Path, body: str, count: int = 2) -> list[str]:
    """What processes print that run the same code at the same time."""
    environment = {**os.environ, "PYTHONPATH": str(Path(zellige.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT.format(body=body), str(root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    running = [subprocess.Popen([*command, str(number)], **pipes) for number in range(count)]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0] * count
    return printed


@pytest.mark.parametrize("zarr_format", FORMATS)
def test_attributes_set_by_many_processes_are_all_kept(tmp_path, zarr_format):
    zellige.create_group(tmp_path, path="g", zarr_format=zarr_format)
    body = """
def work(number):
    group = zellige.open_group(root, path="g")
    for turn in range(8):
        group.attrs[f"{me}-{number}-{turn}"] = turn
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    in_processes(tmp_path, body)
    kept = zellige.open_group(tmp_path, path="g").attrs.asdict()
    assert kept == {f"{me}-{number}-{turn}": turn for me in range(2) for number in range(4) for turn in range(8)}


@pytest.mark.parametrize("attributes", [{}, {"x": 1}])
def test_exclusive_creation_has_one_winner(store, zarr_format, attributes):
    for turn in range(5):

        def create(number: int, turn: int = turn) -> zellige.Group:
            return zellige.open_group(
                store, path=f"{turn}/g", mode="w-", zarr_format=zarr_format, attributes={**attributes, "by": number}
            )

        found = in_threads(8, create)
        won = [number for number, result in enumerate(found) if isinstance(result, zellige.Group)]
        assert len(won) == 1
        assert sum(isinstance(result, ContainsGroupError) for result in found) == 7
        assert zellige.open_group(store, path=f"{turn}/g").attrs == {**attributes, "by": won[0]}


def test_exclusive_creation_by_processes_has_one_winner(tmp_path):
    body = """
for turn in range(10):
    try:
        zellige.create_group(root, path=f"{turn}/g", attributes={"by": me})
        print(turn)
    except zellige.errors.ContainsGroupError:
        pass
"""
    printed = [set(map(int, text.split())) for text in in_processes(tmp_path, body)]
    assert printed[0] | printed[1] == set(range(10))
    assert not printed[0] & printed[1]
    for turn in range(10):
        assert zellige.open_group(tmp_path, path=f"{turn}/g").attrs["by"] == str(int(turn in printed[1]))


def test_members_created_by_many_threads_are_all_there(store):
    root = zellige.create_group(store)
    found = in_threads(8, lambda number: root.create_array(f"shared/{number % 2}/{number}", data=[number]))
    assert all(isinstance(made, zellige.Array) for made in found)
    assert {path: array[0] for path, array in root.members(None) if isinstance(array, zellige.Array)} == {
        f"shared/{number % 2}/{number}": number for number in range(8)
    }


def test_require_group_by_many_threads_gives_everybody_the_group(store):
    root = zellige.create_group(store)
    for turn in range(5):
        found = in_threads(8, lambda _, turn=turn: root.require_group(f"{turn}/g"))
        assert all(result == root[f"{turn}/g"] for result in found)
