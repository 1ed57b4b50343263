"""`overwrite=True`: a node goes with all that is its own and nothing else; stopped anywhere, no half of it reads."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import CountingStore, contents
from zellige.errors import NodeNotFoundError, NotANodeError
from zellige.metadata import GroupMetadata
from zellige.stores import LocalStore, MemoryStore, Store

FOREIGN = {
    "README.txt": b"read me",
    "notes/today": b"remember",
    "c/notes.txt": b"beside the chunks",
    "0.csv": b"1,2",
    ".zarray.bak": b"{}",
    "zarr.json~": b"{}",
    "my zarr.json": b"{}",
    ".hidden": b"",
    "chunk": b"c",
    "1e5": b"1",
    "0.0.0x": b"1",
    "-1": b"1",
    "a.0": b"1",
}
"""Files that somebody put into the directory of a node."""

ARRAYS: dict[str, dict[str, Any]] = {
    "format 3": {"shape": (4, 6), "chunks": (2, 3)},
    "format 3, dots": {
        "shape": (4, 6),
        "chunks": (2, 3),
        "chunk_key_encoding": {"name": "default", "separator": "."},
    },
    "format 3, keys of format 2": {
        "shape": (4, 6),
        "chunks": (2, 3),
        "chunk_key_encoding": {"name": "v2", "separator": "."},
    },
    "format 3, keys of format 2, slashes": {
        "shape": (4, 6),
        "chunks": (2, 3),
        "chunk_key_encoding": {"name": "v2", "separator": "/"},
    },
    "format 3, one axis": {"shape": (4,), "chunks": (2,)},
    "format 3, no axis": {"shape": (), "chunks": ()},
    "format 3, no axis, keys of format 2": {
        "shape": (),
        "chunks": (),
        "chunk_key_encoding": {"name": "v2", "separator": "."},
    },
    "shards": {"shape": (4, 6), "chunks": (1, 3), "shards": (2, 3)},
    "format 2": {"shape": (4, 6), "chunks": (2, 3), "zarr_format": 2},
    "format 2, slashes": {
        "shape": (4, 6),
        "chunks": (2, 3),
        "zarr_format": 2,
        "chunk_key_encoding": {"name": "v2", "separator": "/"},
    },
    "format 2, no axis": {"shape": (), "chunks": (), "zarr_format": 2},
}


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    """The real fsync takes long and shows nothing here."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "x.zarr")


def filled(store: Store, name: str, kind: str, **options: Any) -> zellige.Array:
    array = zellige.create_array(store, name=name, dtype="int32", attributes={"old": True}, **ARRAYS[kind], **options)
    array[...] = 5
    return array


def put_foreign(store: Store, path: str, *, new: str = "") -> dict[str, bytes]:
    prefix = path and path + "/"
    found = {prefix + name: value for name, value in FOREIGN.items()}
    # The chunk of an array without axes, old or new, is where this directory would be.
    if "no axis" in new or f"{prefix}c" in store.list_dir(prefix)[0]:
        del found[f"{prefix}c/notes.txt"]
    for key, value in found.items():
        store.put(key, value)
    return found


def below(store: Store, path: str) -> dict[str, bytes | None]:
    return {key: value for key, value in contents(store).items() if not path or key.startswith(path + "/")}


DOCUMENTS = {"zarr.json", ".zarray", ".zgroup", ".zattrs"}


# -- what goes, and what stays --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize(
    "new", ["format 3", "format 3, one axis", "format 3, no axis", "format 2, slashes", "format 2, no axis"]
)
@pytest.mark.parametrize("foreign", [False, True], ids=["alone", "with other files"])
def test_nothing_of_an_overwritten_array_shows(store, kind, new, foreign):
    filled(store, "g/a", kind)
    kept = put_foreign(store, "g/a", new=new) if foreign else {}
    array = zellige.create_array(store, name="g/a", dtype="int16", fill_value=3, overwrite=True, **ARRAYS[new])
    assert np.array_equal(array[...], np.full(ARRAYS[new]["shape"], 3))
    assert dict(zellige.open_array(store, path="g/a").attrs) == {}
    after = below(store, "g/a")
    assert {key: after.get(key) for key in kept} == kept
    assert {key.removeprefix("g/a/") for key in after if key not in kept} <= DOCUMENTS
    array[...] = 4
    assert np.array_equal(zellige.open_array(store, path="g/a")[...], np.full(ARRAYS[new]["shape"], 4))


@pytest.mark.parametrize("name", ["reports/2024", "reports/2024/01", "d/0", "d/c/0", "d/c"])
@pytest.mark.parametrize("old", ["array", "group"])
def test_names_like_those_of_chunks_stay_where_no_array_is(store, old, name):
    if old == "group":
        zellige.create_group(store, path="g/a")
    filled(store, "g/a" if old == "array" else "g/a/x", "format 3")
    store.put(f"g/a/{name}", b"not a chunk")
    zellige.create_group(store, path="g/a", overwrite=True)
    assert store.get(f"g/a/{name}") == b"not a chunk"


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nothing_of_an_array_shows_in_a_group_in_its_place(store, kind, zarr_format):
    filled(store, "g/a", kind)
    kept = put_foreign(store, "g/a")
    group = zellige.create_group(store, path="g/a", overwrite=True, zarr_format=zarr_format)
    assert list(group) == []
    assert dict(zellige.open_group(store, path="g/a").attrs) == {}
    after = below(store, "g/a")
    assert {key: after.get(key) for key in kept} == kept
    assert {key.removeprefix("g/a/") for key in after if key not in kept} <= DOCUMENTS


def hierarchy(store: Store, zarr_format: int, top: str) -> dict[str, bytes]:
    """A group with groups and arrays below it, and other files everywhere; returns those."""
    group = zellige.create_group(store, path=top, zarr_format=zarr_format, attributes={"old": True})
    same = "format 2" if zarr_format == 2 else "format 3"
    kept = put_foreign(store, top)
    for path in ("x", "y/x", "y/deep/est", "7/8"):
        name = f"{top}/{path}" if top else path
        filled(store, name, same)
        store.put(f"{name}/README.txt", b"read me")
        kept[f"{name}/README.txt"] = b"read me"
    group.create_group("empty", attributes={"old": True})
    return kept


@pytest.mark.parametrize("top", ["", "g"])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("new", ["array", "group"])
def test_all_nodes_below_an_overwritten_group_go(store, zarr_format, new, top):
    kept = hierarchy(store, zarr_format, top)
    if new == "array":
        zellige.create_array(store, name=top, shape=(4, 6), chunks=(2, 3), zarr_format=zarr_format, overwrite=True)
    else:
        zellige.create_group(store, path=top, zarr_format=zarr_format, overwrite=True)
    after = contents(store)
    assert {key: after.get(key) for key in kept} == kept
    own = {key for key in after if key not in kept}
    assert {key.removeprefix(top and top + "/") for key in own} <= DOCUMENTS | (
        {"zarr.json", ".zgroup"} if top else set()
    )
    root = zellige.open(store, mode="r")
    if isinstance(root, zellige.Group):
        assert [path for path, _ in root.members(max_depth=None)] == ([top] if top else [])


@pytest.mark.parametrize("name", ["line\nbreak", "with space", "ünïcødé", "c", "0", "1.2"])
def test_nodes_of_any_name_below_an_overwritten_group_go(store, name):
    group = zellige.create_group(store, path="g")
    filled(store, f"g/{name}/x", "format 3")
    store.put("g/README.txt", b"read me")
    assert list(group) == [name]
    group = zellige.create_group(store, path="g", overwrite=True)
    assert sorted(store.list("g/")) == ["g/README.txt", "g/zarr.json"]
    assert list(group) == []


def test_all_ways_to_overwrite_keep_other_files(store):
    ways: dict[str, Callable[[], object]] = {
        "create_array": lambda: zellige.create_array(store, name="g/a", shape=1, overwrite=True),
        "create_group": lambda: zellige.create_group(store, path="g/a", overwrite=True),
        "mode w, array": lambda: zellige.open_array(store, path="g/a", mode="w", shape=1),
        "mode w, group": lambda: zellige.open_group(store, path="g/a", mode="w"),
        "zeros": lambda: zellige.zeros(1, store=store, path="g/a", overwrite=True),
        "from_array": lambda: zellige.from_array(store, data=np.arange(3), name="g/a", overwrite=True),
        "save_array": lambda: zellige.save_array(store, np.arange(3), path="g/a"),
        "group.create_array": lambda: root.create_array("g/a", shape=1, overwrite=True),
        "group.create_group": lambda: root.create_group("g/a", overwrite=True),
        "group.require_group": lambda: root.require_group("g/a", overwrite=True),
        "create_hierarchy": lambda: list(
            zellige.create_hierarchy(store=store, nodes={"g/a": GroupMetadata()}, overwrite=True)
        ),
        "group.create_hierarchy": lambda: list(root.create_hierarchy({"g/a": GroupMetadata()}, overwrite=True)),
    }
    root = zellige.create_group(store)
    lost = {}
    for name, way in ways.items():
        store.delete_prefix("g/")
        filled(store, "g/a", "format 3")
        kept = put_foreign(store, "g/a")
        way()
        after = contents(store)
        lost[name] = sorted(key for key in kept if after.get(key) != kept[key])
        assert not [
            key for key in after if key not in kept and "g/a/c" in key and name not in ("from_array", "save_array")
        ]
    assert {name: keys for name, keys in lost.items() if keys} == {}


def test_links_fifos_and_empty_directories_stay(tmp_path):
    root = tmp_path / "x.zarr"
    (tmp_path / "outside").write_bytes(b"outside")
    filled(LocalStore(root), "a", "format 3")
    os.symlink("../../outside", root / "a" / "out")
    os.symlink("nowhere", root / "a" / "dangling")
    os.mkfifo(root / "a" / "fifo")
    os.mkdir(root / "a" / "mine")
    zellige.create_array(root, name="a", shape=(4, 6), chunks=(2, 3), overwrite=True)
    assert sorted(set(os.listdir(root / "a")) - {"c"}) == ["dangling", "fifo", "mine", "out", "zarr.json"]
    assert os.readlink(root / "a" / "out") == "../../outside"
    assert (tmp_path / "outside").read_bytes() == b"outside"


@pytest.mark.parametrize("foreign", [False, True], ids=["alone", "with other files"])
def test_the_chunks_of_another_array_behind_a_link_stay(tmp_path, foreign):
    root = tmp_path / "x.zarr"
    filled(LocalStore(root), "a", "format 3")
    other = filled(LocalStore(root), "b", "format 3")
    os.symlink("../b/c", root / "a" / "c2")
    os.rename(root / "a" / "c", tmp_path / "c")
    os.rename(root / "a" / "c2", root / "a" / "c")
    if foreign:
        (root / "a" / "README.txt").write_bytes(b"read me")
    zellige.create_array(root, name="a", dtype="int32", fill_value=3, overwrite=True, **ARRAYS["format 3"])
    assert np.array_equal(other[...], np.full((4, 6), 5))


# -- what is refused ------------------------------------------------------------------------------

STRANGE = {
    "a file": ["notes.txt"],
    "a directory of files": ["photos/1.jpg", "photos/2.jpg"],
    "chunks without a document": ["c/0/0", "c/0/1"],
    "chunks of format 2 without a document": ["0.0", "0.1"],
    "attributes alone": [".zattrs"],
    "consolidated metadata alone": [".zmetadata"],
    "nodes below": ["x/zarr.json"],
    "nodes of format 2 below": ["x/.zarray", "x/0.0"],
    "names like documents": ["zarr.json.bak", ".zarray2"],
}


@pytest.mark.parametrize("content", STRANGE)
@pytest.mark.parametrize("path", ["", "d", "g/d"])
@pytest.mark.parametrize("new", ["array", "group"])
def test_what_is_no_node_is_not_overwritten(store, content, path, new):
    if path:
        zellige.create_group(store, path="g")
    for name in STRANGE[content]:
        store.put(f"{path}/{name}" if path else name, b"{}")
    before = contents(store)
    make = {
        "array": lambda: zellige.create_array(store, name=path, shape=(4, 6), chunks=(2, 3), overwrite=True),
        "group": lambda: zellige.create_group(store, path=path, overwrite=True),
    }
    with pytest.raises(NotANodeError, match="only nodes are overwritten"):
        make[new]()
    assert contents(store) == before


def test_a_directory_of_somebody_else_is_not_overwritten(tmp_path):
    home = tmp_path / "home"
    (home / "photos").mkdir(parents=True)
    with pytest.raises(NotANodeError):
        zellige.create_array(home, shape=1, overwrite=True)
    (home / "letter.txt").write_text("dear")
    for action in (
        lambda: zellige.create_group(home, overwrite=True),
        lambda: zellige.open_group(home, mode="w"),
        lambda: zellige.save(home, np.arange(3)),
    ):
        with pytest.raises(NotANodeError):
            action()
    assert sorted(os.listdir(home)) == ["letter.txt", "photos"]


def test_an_empty_place_is_simply_used(store):
    zellige.create_array(store, name="g/a", data=[1, 2], overwrite=True)
    assert zellige.open_array(store, path="g/a")[...].tolist() == [1, 2]


# -- stopped in the middle ------------------------------------------------------------------------


class Stop(Exception):
    """The power is gone."""


def trees(zarr_format: int) -> dict[str, Callable[[Store], None]]:
    """What is overwritten at `t`."""
    same = "format 2" if zarr_format == 2 else "format 3"

    def group(store: Store) -> None:
        zellige.create_group(store, path="t", zarr_format=zarr_format)
        filled(store, "t/x", same)
        filled(store, "t/y/z", same)

    def with_foreign(make: Callable[[Store], object]) -> Callable[[Store], None]:
        def both(store: Store) -> None:
            make(store)
            put_foreign(store, "t")

        return both

    array = lambda store: filled(store, "t", same)  # noqa: E731
    return {
        "array": lambda store: (array(store), None)[1],
        "array with other files": with_foreign(array),
        "group": group,
        "group with other files": with_foreign(group),
    }


def assert_no_half(store: Store) -> None:
    """Every array that can be opened is wholly the old one, or wholly the new."""
    for path in ("t", "t/x", "t/y/z"):
        try:
            array = zellige.open_array(store, path=path, mode="r")
        except NodeNotFoundError:
            continue
        found = array[...]
        old = array.dtype == np.dtype("int32")
        assert np.array_equal(found, np.full((4, 6), 5 if old else 3)), f"{path} is half there"
        assert dict(array.attrs) == ({"old": True} if old else {}), f"{path} has the attributes of another"


def overwrite(store: Store, zarr_format: int) -> None:
    zellige.create_array(
        store,
        name="t",
        shape=(4, 6),
        chunks=(2, 3),
        dtype="int16",
        fill_value=3,
        zarr_format=zarr_format,
        overwrite=True,
    )


def assert_usable(store: Store, zarr_format: int) -> None:
    """Overwriting again does what the first time should have done."""
    overwrite(store, zarr_format)
    assert_no_half(store)
    assert zellige.open_array(store, path="t").dtype == np.dtype("int16")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("new_format", [2, 3])
@pytest.mark.parametrize("tree", trees(3))
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_an_overwrite_that_a_store_stops_leaves_no_half_array(zarr_format, new_format, tree, lasting):
    for number in itertools.count():
        seen = itertools.count()

        def before(method: str, _key: str, seen=seen, number=number) -> None:
            if method in ("delete", "delete_prefix", "put", "create", "replace"):
                turn = next(seen)
                if turn == number or (lasting and turn > number):
                    raise Stop

        store = CountingStore(MemoryStore())
        trees(zarr_format)[tree](store)
        store.before = before
        stopped = False
        try:
            overwrite(store, new_format)
        except Stop:
            stopped = True
        store.before = None
        assert_no_half(store)
        assert number < 200
        if not stopped:
            break
        assert_usable(store, new_format)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("tree", trees(3))
@pytest.mark.parametrize("call", ["unlink", "rmdir"])
def test_an_overwrite_that_the_system_stops_leaves_no_half_array(tmp_path, zarr_format, tree, call):
    real = getattr(os, call)
    for number in itertools.count():
        root = tmp_path / str(number)
        trees(zarr_format)[tree](LocalStore(root))
        kept = {key: value for key, value in contents(LocalStore(root)).items() if key.removeprefix("t/") in FOREIGN}
        seen = itertools.count()

        def fail(*args: Any, seen=seen, number=number, **options: Any) -> None:
            if next(seen) >= number:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(*args, **options)

        stopped = False
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, call, fail)
            try:
                overwrite(LocalStore(root), zarr_format)
            except OSError as error:
                assert error.errno == errno.EIO  # noqa: PT017 - it may get through
                stopped = True
        store = LocalStore(root)
        assert_no_half(store)
        assert {key: store.get(key) for key in kept} == kept
        assert number < 200
        if not stopped:
            break
        assert_usable(store, zarr_format)


def test_documents_go_before_chunks():
    store = CountingStore()
    filled(store, "a", "format 3")
    put_foreign(store, "a")
    store.reset()
    zellige.create_array(store, name="a", shape=1, overwrite=True)
    removed = store.keys("delete")
    assert removed.index("a/zarr.json") < min(removed.index(key) for key in removed if key.startswith("a/c/"))


def test_chunks_of_a_lost_array_are_refused(tmp_path: Path):
    """Chunks without a document are neither shown nor removed without a word."""
    store = LocalStore(tmp_path)
    filled(store, "a", "format 3")
    store.delete(["a/zarr.json"])
    for again in (True, False):
        with pytest.raises(NotANodeError):
            zellige.create_array(store, name="a", overwrite=again, **ARRAYS["format 3"])
    assert sorted(store.list("a/")) == ["a/c/0/0", "a/c/0/1", "a/c/1/0", "a/c/1/1"]
