"""A hierarchy and a dict side by side through random histories: whatever is done, both hold the same."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import strategies as ours
import zellige
from zellige.metadata import GroupMetadata
from zellige.stores import LocalStore, MemoryStore, Store
from zellige.stores.base import (
    ABSENT,
    KeyLock,
    Listing,
    Missing,
    Tag,
    Traits,
    Value,
    check_key,
    check_prefix,
    joined,
)
from zellige.types import Encoded, Span


class RecordStore(Store):
    """An append-only list of records, of which the last counts: like a zip file, without directories."""

    def __init__(self, records: list[tuple[str, bytes | None]] | None = None, *, read_only: bool = False) -> None:
        self.records = [] if records is None else records
        self.traits = Traits(read_only=read_only)

    def _last(self, key: str) -> int | None:
        """The place of the record that counts; None if there is no such key."""
        check_key(key)
        places = (place for place in reversed(range(len(self.records))) if self.records[place][0] == key)
        place = next(places, None)
        return None if place is None or self.records[place][1] is None else place

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        place = self._last(key)
        return None if place is None else Value.cut(key, self.records[place][1] or b"", spans, str(place))

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        self.check_writable()
        with self._writing():
            place = self._last(key)
            if if_tag is not None and if_tag != (ABSENT if place is None else str(place)):
                return False
            self.records.append((key, joined(value)))
            return True

    def delete(self, keys: Sequence[str]) -> None:
        self.check_writable()
        for key in keys:
            with self._writing():
                if self._last(key) is not None:
                    self.records.append((key, None))

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        check_prefix(prefix)
        keys = [key for key, value in dict(self.records).items() if value is not None and key.startswith(prefix)]
        return Listing(keys) if recursive else Listing.one_level(prefix, keys)

    def _writing(self) -> KeyLock:
        return KeyLock(("writing", self.identity))

    @property
    def identity(self) -> Hashable:
        return ("records", id(self.records))

    def __repr__(self) -> str:
        return f"RecordStore(<{len(self.records)} records>)"


# -- the model ------------------------------------------------------------------------------------


@dataclass
class Model:
    """What a node should be: a group, or an array with these values."""

    attributes: dict[str, Any] = field(default_factory=dict)
    values: np.ndarray | None = None

    @property
    def is_group(self) -> bool:
        return self.values is None


NAMES = ["a", "b", "c", "ab", "a.b", "é"]  # `c` is also how the keys of chunks begin
names = st.sampled_from(NAMES)
attribute_values = st.integers(-5, 5) | st.sampled_from(["x", [1, None], {"y": 0.5}])
attributes = st.dictionaries(st.sampled_from("pq"), attribute_values, max_size=2)


def is_below(path: str, top: str) -> bool:
    """Whether a path is another one or lies below it."""
    return not top or path == top or path.startswith(top + "/")


class GroupMachine(RuleBasedStateMachine):
    """Rules act on both; the invariants compare them."""

    zarr_format = 3

    def make_store(self) -> Store:
        return MemoryStore()

    @initialize(given=attributes, consolidated=st.booleans())
    def create(self, given, consolidated):
        self.root = zellige.create_group(self.make_store(), zarr_format=self.zarr_format, attributes=given)
        self.model: dict[str, Model] = {"": Model(given), "a": Model(), "a/b": Model({"p": 1}), "b": Model()}
        self.root.create_group("a/b", attributes={"p": 1})
        self.root.create_group("b")
        for path in ("a/b/c", "c"):
            self.model[path] = Model({}, np.arange(5, dtype="int16"))
            self.root.create_array(path, data=np.arange(5, dtype="int16"), chunks=2)
        self.count = 0
        self.consolidated = False
        if consolidated:
            self.consolidate()

    # -- picking ----------------------------------------------------------------------------------

    def some(self, data: Any, *, groups: bool = True, arrays: bool = True, root: bool = False) -> str | None:
        """The path of some node, or None if there is none of that kind."""
        found = [
            path
            for path, node in self.model.items()
            if (groups if node.is_group else arrays) and (path or root)
        ]  # fmt: skip
        return data.draw(st.sampled_from(sorted(found))) if found else None

    def handle(self, data: Any, path: str) -> Any:
        """A node reached in one of the ways that are promised to be the same."""
        if not path:
            return self.root
        parts = path.split("/")
        cut = data.draw(st.integers(0, len(parts) - 1))
        above = self.root["/".join(parts[:cut])] if cut else self.root
        return above["/".join(parts[cut:])]

    def place(self, data: Any) -> tuple[str, str, str]:
        """A group, a path below it, and both together."""
        group = self.some(data, arrays=False, root=True)
        assert group is not None
        below = "/".join(data.draw(st.lists(names, min_size=1, max_size=2)))
        return group, below, f"{group}/{below}".lstrip("/")

    def blocked(self, path: str) -> bool:
        """Whether an array is above this path."""
        return any(not node.is_group and is_below(path, top) and path != top for top, node in self.model.items())

    def put(self, path: str, node: Model) -> None:
        """A new node in the model, in place of everything there, with the groups above it."""
        self.drop(path)
        parts = path.split("/")
        for depth in range(1, len(parts)):
            self.model.setdefault("/".join(parts[:depth]), Model())
        self.model[path] = node

    def drop(self, path: str) -> None:
        self.model = {found: node for found, node in self.model.items() if not is_below(found, path)}

    def fresh(self, data: Any) -> np.ndarray:
        self.count += 1
        shape = data.draw(st.sampled_from([(), (3,), (5,), (2, 3), (0,)]))
        return ours.counted(shape, "int16", start=10 * self.count) * data.draw(st.booleans())

    # -- creating ---------------------------------------------------------------------------------

    def create_node(self, path: str, make: Any, new: Model, *, overwrite: bool) -> None:
        """Do what creates a node, and check that it is refused exactly if something is in the way."""
        if self.blocked(path) or (path in self.model and not overwrite):
            with pytest.raises(FileExistsError):
                make()
        else:
            made = make()
            assert made is None or made.path == path
            self.put(path, new)

    @rule(data=st.data(), given=attributes, overwrite=st.booleans())
    def create_group(self, data, given, overwrite):
        group, below, path = self.place(data)
        parent = self.handle(data, group)
        make = lambda: parent.create_group(below, attributes=given, overwrite=overwrite)  # noqa: E731
        self.create_node(path, make, Model(given), overwrite=overwrite)

    @rule(data=st.data(), given=attributes, overwrite=st.booleans())
    def create_array(self, data, given, overwrite):
        group, below, path = self.place(data)
        parent, values = self.handle(data, group), self.fresh(data)
        options = {"attributes": given, "overwrite": overwrite, "chunks": 2}
        make = lambda: parent.create_array(below, data=values, **options)  # noqa: E731
        self.create_node(path, make, Model(given, values), overwrite=overwrite)

    @rule(data=st.data())
    def assign(self, data):
        group, below, path = self.place(data)
        parent, values = self.handle(data, group), self.fresh(data)
        there = self.model.get(path)
        make = lambda: parent.__setitem__(below, values)  # noqa: E731
        self.create_node(path, make, Model({}, values), overwrite=there is not None and not there.is_group)

    @rule(data=st.data())
    def require_group(self, data):
        group, below, path = self.place(data)
        parent = self.handle(data, group)
        there = self.model.get(path)
        if there is not None and there.is_group:
            assert parent.require_group(below) == self.root[path]
        else:
            self.create_node(path, lambda: parent.require_group(below), Model(), overwrite=False)

    @rule(data=st.data(), given=attributes, overwrite=st.booleans())
    def create_hierarchy(self, data, given, overwrite):
        group, below, path = self.place(data)
        parent, metadata = self.handle(data, group), GroupMetadata(given, zarr_format=self.zarr_format)
        paths = [path, f"{path}/{data.draw(names)}"]
        nodes = {below: metadata, below + paths[1][len(path) :]: metadata}
        refused = self.blocked(path) or (not overwrite and any(found in self.model for found in paths))
        if refused:
            with pytest.raises(FileExistsError):
                parent.create_hierarchy(nodes, overwrite=overwrite)
            return
        made = dict(parent.create_hierarchy(nodes, overwrite=overwrite))
        assert nodes.keys() <= made.keys()
        for found in paths:
            self.put(found, Model(given))

    # -- deleting and moving ----------------------------------------------------------------------

    @rule(data=st.data())
    def delete(self, data):
        path = self.some(data)
        if path is None:
            return
        parts = path.split("/")
        cut = data.draw(st.integers(0, len(parts) - 1))
        del self.handle(data, "/".join(parts[:cut]))["/".join(parts[cut:])]
        self.drop(path)

    @rule(data=st.data())
    def delete_what_is_not_there(self, data):
        group, below, path = self.place(data)
        if path not in self.model:
            with pytest.raises(KeyError):
                del self.handle(data, group)[below]

    @rule(data=st.data())
    def move(self, data):
        source = self.some(data)
        if source is None:
            return
        _, _, dest = self.place(data)
        # Through any group above both.
        common = [top for top in self.model if is_below(source, top) and is_below(dest, top)]
        top = data.draw(st.sampled_from(sorted(top for top in common if top not in (source, dest))))
        group = self.handle(data, top)
        old, new = (path[len(top) :].lstrip("/") for path in (source, dest))
        if is_below(dest, source) or dest in self.model or self.blocked(dest):
            with pytest.raises((ValueError, FileExistsError)):
                group.move(old, new)
            return
        group.move(old, new)
        moved = {dest + path[len(source) :]: node for path, node in self.model.items() if is_below(path, source)}
        self.drop(source)
        for path, node in moved.items():
            self.put(path, node)

    # -- attributes and values --------------------------------------------------------------------

    @rule(data=st.data(), given=attributes)
    def set_attributes(self, data, given):
        path = self.some(data, root=True)
        self.handle(data, path).attrs.update(given)
        self.model[path].attributes = {**self.model[path].attributes, **given}

    @rule(data=st.data(), key=st.sampled_from("pq"))
    def delete_attribute(self, data, key):
        path = self.some(data, root=True)
        node = self.handle(data, path)
        kept = dict(self.model[path].attributes)
        if kept.pop(key, None) is None:
            with pytest.raises(KeyError):
                del node.attrs[key]
        else:
            del node.attrs[key]
        self.model[path].attributes = kept

    @rule(data=st.data())
    def write(self, data):
        path = self.some(data, groups=False)
        if path is not None:
            self.count += 1
            self.handle(data, path)[...] = self.count
            self.model[path].values = np.full_like(self.model[path].values, self.count)

    @rule(data=st.data())
    def resize(self, data):
        path = self.some(data, groups=False)
        if path is None:
            return
        old = self.model[path].values
        shape = tuple(data.draw(st.integers(0, 6)) for _ in old.shape)
        self.handle(data, path).resize(shape)
        common = tuple(slice(min(a, b)) for a, b in zip(old.shape, shape, strict=True))
        self.model[path].values = np.zeros(shape, old.dtype)
        self.model[path].values[common] = old[common]

    @rule(data=st.data())
    def append(self, data):
        path = self.some(data, groups=False)
        if path is None or self.model[path].values.ndim != 1 or self.model[path].values.size > 8:
            return
        self.handle(data, path).append([1, 2, 3])
        self.model[path].values = np.append(self.model[path].values, np.array([1, 2, 3], "int16"))

    # -- everything else that must not matter -----------------------------------------------------

    @rule()
    def consolidate_again(self):
        self.consolidate()

    def consolidate(self):
        self.root = self.root.consolidate_metadata()
        self.consolidated = True

    @rule(use=st.sampled_from([None, False]))
    def reopen(self, use):
        self.root = zellige.open_group(self.root.store, mode="r+", use_consolidated=use)

    @rule()
    def pickle(self):
        self.root = pickle.loads(pickle.dumps(self.root))

    @rule()
    def refresh(self):
        self.root.refresh()

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def the_hierarchy_is_the_same(self):
        found = dict(self.root.members(max_depth=None))
        assert found.keys() == self.model.keys() - {""}
        for path, node in [*found.items(), ("", self.root)]:
            model = self.model[path]
            assert isinstance(node, zellige.Group) == model.is_group
            assert (node.path, node.attrs.asdict()) == (path, model.attributes)
            if model.values is not None:
                assert node[...].dtype == model.values.dtype
                assert np.array_equal(node[...], model.values)

    @invariant()
    def a_new_handle_sees_the_same(self):
        again = zellige.open_group(self.root.store, mode="r")
        assert dict(again.members(max_depth=None)).keys() == self.model.keys() - {""}
        assert len(again) == sum("/" not in path for path in self.model) - 1

    @invariant()
    def the_consolidated_metadata_is_not_behind(self):
        if self.consolidated:
            zellige.open_consolidated(self.root.store, check=True)

    @invariant()
    def no_key_is_left_over(self):
        documents = {3: ["zarr.json"], 2: [".zgroup", ".zarray", ".zattrs", ".zmetadata"]}[self.zarr_format]
        keys = set(self.root.store.list())
        allowed = {f"{path}/{name}".lstrip("/") for path in self.model for name in documents}
        for path, model in self.model.items():
            if model.values is not None:
                chunks = self.root[path].iter_chunks()
                allowed |= {chunk.key for chunk in chunks if model.values[chunk.slices].any()}
        assert keys <= allowed
        if self.zarr_format == 3:
            assert keys == allowed


class OldGroupMachine(GroupMachine):
    """The same in the older format."""

    zarr_format = 2


class LocalGroupMachine(GroupMachine):
    """The same on disk."""

    def make_store(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return LocalStore(self.folder.name)

    @invariant()
    def no_temporary_file_is_left_over(self):
        files = [name for _, folders, found in os.walk(self.folder.name) for name in [*folders, *found]]
        assert not [name for name in files if name.startswith(".zellige")]

    @precondition(lambda self: not self.consolidated)
    @rule()
    def by_a_store_that_begins_further_up(self):
        outer, name = os.path.split(self.folder.name)
        again = zellige.open_group(LocalStore(outer), path=name, mode="r")
        assert again.attrs == self.root.attrs

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


class RecordGroupMachine(GroupMachine):
    """The same where there are no directories, and nothing is ever removed from the medium."""

    def make_store(self) -> Store:
        return RecordStore()


SETTINGS = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    stateful_step_count=20,
    phases=set(Phase) - {Phase.explain},  # which takes minutes to explain a failure
)


def runs(share: int) -> settings:
    return settings(SETTINGS, max_examples=max(8, ours.EXAMPLES // share))


TestGroupsInMemory = GroupMachine.TestCase
TestGroupsInMemory.settings = runs(60)
TestOldGroupsInMemory = OldGroupMachine.TestCase
TestOldGroupsInMemory.settings = runs(120)
TestGroupsOnDisk = LocalGroupMachine.TestCase
TestGroupsOnDisk.settings = runs(120)
TestGroupsInRecords = RecordGroupMachine.TestCase
TestGroupsInRecords.settings = runs(120)
