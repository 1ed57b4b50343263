"""Names and keys that try to leave the store, through every way in; nothing outside of the root is ever touched."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import hostile_corpus as corpus
import numpy as np
import pytest

import zellige
from zellige.errors import MetadataError, NodeNameError, NodeNotFoundError, StoreKeyError, UnsafeLinkError
from zellige.storage import StorePath
from zellige.stores import LocalStore, MemoryStore, Store, abilities

GROUP = json.dumps({"zarr_format": 3, "node_type": "group"}).encode()
ARRAY = zellige.zeros((4,), chunks=(2,), dtype="int16").metadata

KEYS, GOOD_KEYS, NAMES = (corpus.keys()[kind] for kind in ("refused", "accepted", "names"))
LONG_NAMES = {"256 letters": "x" * 256, "a thousand letters": "x" * 1000, "500 parts": "/".join("x" * 500)}


# -- a root with a canary tree around it ----------------------------------------------------------


def snapshot(top: Path) -> dict[str, Any]:
    """Every file and directory with all that changes when it is touched."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            content = Path(path).read_bytes() if os.path.isfile(path) else os.path.islink(path) and os.readlink(path)
            # The time of a directory changes with what is made or removed in it, even for a moment.
            found[path] = (info.st_ino, info.st_mode, info.st_mtime_ns, content)
    return found


class Cage:
    """A store whose root lies between things that must not be touched."""

    def __init__(self, top: Path) -> None:
        self.top, self.root = top, top / "deep" / "root"
        self.root.mkdir(parents=True)
        for place in (top, top / "deep"):
            (place / "zarr.json").write_bytes(GROUP)
            (place / "x").mkdir()
            (place / "x" / "zarr.json").write_text(json.dumps(ARRAY.to_dict()))
            (place / "x" / "c").mkdir()
            (place / "x" / "c" / "0").write_bytes(bytes(4))
            (place / "outside").write_bytes(b"canary")
        (top / "deep" / "rootx").write_bytes(b"a name that begins as the root does")
        self.store = LocalStore(self.root)
        root = zellige.create_group(self.store)
        root.create_group("a")
        root.create_array("b", data=np.arange(4), chunks=(2,))
        self.before, self.inside = self._outside(), snapshot(self.root)

    def _outside(self) -> dict[str, Any]:
        own = str(self.root)
        return {
            path: state
            for path, state in snapshot(self.top).items()
            if path != own and path[: len(own) + 1] != own + "/"
        }

    def check(self, *, unchanged: bool = True) -> None:
        assert self._outside() == self.before
        if unchanged:
            assert snapshot(self.root) == self.inside

    @property
    def group(self) -> zellige.Group:
        return zellige.open_group(self.store)


@pytest.fixture(scope="module")
def cage(tmp_path_factory: pytest.TempPathFactory) -> Cage:
    """For what must not change it."""
    return Cage(tmp_path_factory.mktemp("cage"))


@pytest.fixture
def fresh_cage(tmp_path: Path) -> Cage:
    return Cage(tmp_path)


def test_the_canary_sings(fresh_cage):
    (fresh_cage.top / "deep" / "x" / "c" / "0").write_bytes(bytes(4))
    with pytest.raises(AssertionError):
        fresh_cage.check()


def check_refused(action: Any, place: Any, name: str, title: str) -> None:
    """An action with a name fails because of the name."""
    try:
        action(place, name)
    except (StoreKeyError, NodeNameError, NodeNotFoundError):
        return
    pytest.fail(f"{title} is taken: {name!r}")


# -- keys of stores -------------------------------------------------------------------------------


def folders(store: Store) -> abilities.Folders:
    """The directories of a store; where there are none, no prefix is taken."""
    found = store.ability(abilities.Folders)
    if found is None:
        raise StoreKeyError("no directories", key="")
    return found


REQUESTS = {
    "get": lambda store, key: store.get(key),
    "get_range": lambda store, key: store.get_range(key, 0, 1),
    "read": lambda store, key: store.read(key),
    "read of ranges": lambda store, key: store.read(key, [(0, 1), (2, 1)]),
    "read of no range": lambda store, key: store.read(key, []),
    "size": lambda store, key: store.size(key),
    "exists": lambda store, key: store.exists(key),
    "put": lambda store, key: store.put(key, b"x"),
    "put of parts": lambda store, key: store.put(key, [b"x", b"y"]),
    "create": lambda store, key: store.create(key, b"x"),
    "replace": lambda store, key: store.replace(key, b"x", "1"),
    "delete": lambda store, key: store.delete([key]),
    "delete of several": lambda store, key: store.delete(["b/k", key]),
    "lock": lambda store, key: store.lock(key).__enter__(),
    "lock_here": lambda store, key: store.lock_here(key),
    "delete_below": lambda store, key: abilities.delete_below(store, "", [key]),
}
PREFIXES = {
    "list": lambda store, prefix: list(store.list(prefix)),
    "list_dir": lambda store, prefix: store.list_dir(prefix),
    "delete_prefix": lambda store, prefix: store.delete_prefix(prefix),
    "rename to": lambda store, prefix: folders(store).rename("b/", prefix),
    "rename from": lambda store, prefix: folders(store).rename(prefix, "c/"),
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_no_request_takes_a_key_that_could_leave_the_store(cage, request_):
    for title, key in KEYS.items():
        for store in (cage.store, MemoryStore({"zarr.json": GROUP})):
            with pytest.raises(StoreKeyError) as caught:
                REQUESTS[request_](store, key)
            assert caught.value.key == key, title
        cage.check()


@pytest.mark.parametrize("request_", PREFIXES)
def test_no_request_takes_a_prefix_that_could_leave_the_store(cage, request_):
    # A store in memory renames nothing, whatever the prefix.
    stores = [cage.store] + [MemoryStore({"zarr.json": GROUP})] * ("rename" not in request_)
    for title, key in KEYS.items():
        for store in stores:
            for prefix in sorted({key + "/", key} - {"", "a/"}):
                check_refused(PREFIXES[request_], store, prefix, title)
        cage.check()


def test_keys_that_only_look_wrong_stay_inside(fresh_cage):
    cage = fresh_cage
    for title, key in GOOD_KEYS.items():
        cage.store.put(key, b"value")
        assert cage.store.get(key) == b"value", title
        assert key in list(cage.store.list())
        cage.store.delete([key])
        assert cage.store.get(key) is None
        cage.check(unchanged=False)


def test_a_key_too_long_for_the_disk_is_missing_and_cannot_be_written(fresh_cage):
    cage = fresh_cage
    for key in [*LONG_NAMES.values(), "x" * 5000, "y/" * 3000 + "y"]:
        assert cage.store.get(key) is None
        try:
            cage.store.put(key, b"x")
        except OSError:
            assert cage.store.get(key) is None
        else:
            assert cage.store.get(key) == b"x"
        cage.check(unchanged=False)


# -- names of nodes -------------------------------------------------------------------------------

MAKERS = {
    "create_group": lambda cage, name: zellige.create_group(cage.store, path=name),
    "group.create_group": lambda cage, name: cage.group.create_group(name),
    "group.require_group": lambda cage, name: cage.group.require_group(name),
    "group.create_array": lambda cage, name: cage.group.create_array(name, shape=(4,), dtype="int8"),
    "group.require_array": lambda cage, name: cage.group.require_array(name, shape=(4,), dtype="int8"),
    "group[name] =": lambda cage, name: cage.group.__setitem__(name, np.arange(3)),
    "group.create_array, replacing": lambda cage, name: cage.group.create_array(name, data=[1], overwrite=True),
    "group.create_group, replacing": lambda cage, name: cage.group.create_group(name, overwrite=True),
    "create_array": lambda cage, name: zellige.create_array(cage.store, name=name, shape=(4,), dtype="int8"),
    "create_array, replacing": lambda cage, name: zellige.create_array(
        cage.store, name=name, shape=(4,), dtype="int8", overwrite=True
    ),
    "save_array": lambda cage, name: zellige.save_array(cage.store, np.arange(3), path=name),
    "create_hierarchy": lambda cage, name: list(zellige.create_hierarchy(store=cage.store, nodes={name: ARRAY})),
    "create_hierarchy, replacing": lambda cage, name: list(
        zellige.create_hierarchy(store=cage.store, nodes={name: ARRAY}, overwrite=True)
    ),
    "group.create_hierarchy": lambda cage, name: list(cage.group.create_hierarchy({name: ARRAY})),
    "group.move": lambda cage, name: cage.group.move("b", name),
    "copy": lambda cage, name: zellige.copy(cage.group["b"], cage.group, name=name),
}
AT_THE_ROOT = {"create_group", "create_array", "create_array, replacing", "save_array", "copy"}
AT_THE_ROOT |= {"create_hierarchy", "create_hierarchy, replacing"}
"""Here no name means the root of the store, or the name of what is copied."""


@pytest.mark.parametrize("maker", MAKERS)
def test_no_node_is_made_under_a_name_that_could_leave_the_group(cage, maker):
    for title, name in {**NAMES, **LONG_NAMES}.items():
        if name or maker not in AT_THE_ROOT:
            check_refused(MAKERS[maker], cage, name, title)
            cage.check()


FINDERS = {
    "open": lambda cage, path: zellige.open(cage.store, path=path, mode="r"),
    "open_array": lambda cage, path: zellige.open_array(cage.store, path=path, mode="r"),
    "open_group": lambda cage, path: zellige.open_group(cage.store, path=path, mode="r"),
    "load": lambda cage, path: zellige.load(cage.store, path=path),
    "group[path]": lambda cage, path: cage.group[path],
    "group.get_array": lambda cage, path: cage.group.get_array(path),
    "group.get_group": lambda cage, path: cage.group.get_group(path),
    "del group[path]": lambda cage, path: cage.group.__delitem__(path),
    "group.move": lambda cage, path: cage.group.move(path, "c"),
    "StorePath.get": lambda cage, path: StorePath(cage.store, path).get(),
    "StorePath /": lambda cage, path: (StorePath(cage.store, "a") / path).set(b"x"),
    "a member's StorePath": lambda cage, path: (cage.group["a"].store_path / path).delete(),
}
LEAVING = {name: path for name, path in NAMES.items() if ".." in path.split("/") or "\0" in path or "\ud800" in path}


@pytest.mark.parametrize("finder", FINDERS)
def test_nothing_outside_is_found(cage, finder):
    for title, path in LEAVING.items():
        check_refused(FINDERS[finder], cage, path, title)
        assert path not in cage.group
        assert cage.group.get(path) is None
        cage.check()


# -- names in documents ---------------------------------------------------------------------------

ENTRIES = ["..", "../x", "../../x", "a/../../x", "a/../x", "/../x", "../deep/x", "x\0", "a//x"]


def consolidate(cage: Cage, path: str, name: str) -> str:
    """Give the group of the cage consolidated metadata with an array at such a path; the place in its document."""
    if name == "zarr.json":
        block = {"kind": "inline", "must_understand": False, "metadata": {path: ARRAY.to_dict()}}
        document = {"zarr_format": 3, "node_type": "group", "consolidated_metadata": block}
        place = f"consolidated_metadata.metadata.{path}"
    else:
        cage.store.delete(["zarr.json"])
        cage.store.put(".zgroup", b'{"zarr_format": 2}')
        entries = {".zgroup": {"zarr_format": 2}, f"{path}/.zarray": {"zarr_format": 2}}
        document = {"zarr_consolidated_format": 1, "metadata": entries}
        place = f"metadata.{path}/.zarray"
    cage.store.put(name, json.dumps(document).encode())
    cage.inside, cage.before = snapshot(cage.root), cage._outside()
    return place


@pytest.mark.parametrize("name", ["zarr.json", ".zmetadata"])
@pytest.mark.parametrize("path", ENTRIES)
def test_an_entry_of_consolidated_metadata_leads_nowhere_else(fresh_cage, path, name):
    cage = fresh_cage
    place = consolidate(cage, path, name)
    for options in ({}, {"mode": "r"}, {"use_consolidated": True}):
        with pytest.raises(MetadataError) as caught:
            zellige.open_group(cage.store, **options)
        assert caught.value.field == place
        cage.check()


@pytest.mark.parametrize("name", ["zarr.json", ".zmetadata"])
@pytest.mark.parametrize("path", ENTRIES)
def test_without_its_consolidated_metadata_a_group_has_what_is_stored(fresh_cage, path, name):
    cage = fresh_cage
    consolidate(cage, path, name)
    group = zellige.open_group(cage.store, use_consolidated=False)
    assert all(node.path in ("a", "b") for _, node in group.members(max_depth=None))
    assert path not in group
    target = MemoryStore()
    with suppress(MetadataError):  # a copy looks at all of the document
        zellige.copy_all(group, target)
    assert {key.split("/")[0] for key in target.list()} <= {"zarr.json", ".zgroup", "a", "b"}
    cage.check()


# -- links ----------------------------------------------------------------------------------------


def test_links_that_lead_out_are_refused_through_nodes(fresh_cage):
    cage = fresh_cage
    os.symlink(cage.top / "x", cage.root / "out")
    os.symlink("../../x", cage.root / "relative")
    os.symlink(cage.top / "outside", cage.root / "file")
    cage.before, cage.inside = cage._outside(), snapshot(cage.root)
    for name in ("out", "relative"):
        for action in (
            lambda name=name: zellige.open_array(LocalStore(cage.root), path=name)[...],
            lambda name=name: cage.group[name],
            lambda name=name: cage.group.create_array(name, data=[1], overwrite=True),
            lambda name=name: cage.group.create_group(f"{name}/new"),
            lambda name=name: cage.group.move("b", f"{name}/new"),
        ):
            with pytest.raises(UnsafeLinkError):
                action()
            cage.check()
    with pytest.raises(UnsafeLinkError):
        cage.store.get("file")
    assert sorted(cage.group) == ["a", "b"]
    cage.check()


def test_a_store_is_no_larger_than_its_root(cage):
    stores: list[Store] = [cage.store, cage.store.as_read_only(), LocalStore(str(cage.root) + "/")]
    for store in stores:
        assert sorted(key for key in store.list() if not key.startswith("b/c/")) == [
            "a/zarr.json",
            "b/zarr.json",
            "zarr.json",
        ]
    cage.check()
