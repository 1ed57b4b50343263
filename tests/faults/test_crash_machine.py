"""Random histories with deaths in them, side by side with numpy: what is left is always old or new, and whole.

A change of the shape or of the attributes is there wholly or not at all; of a plain write each chunk is old or new.
"""

from __future__ import annotations

import errno
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from crashing_store import LONG, CrashingStore, Killed, counted
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import zellige
from zellige.errors import ConflictError
from zellige.nodes.node import PENDING
from zellige.stores import LocalStore, MemoryStore, Store

SIDE = 10
FILL = -1
PATH = "group/array"

happened: Counter[str] = Counter()
"""How often each operation ended by itself, died or failed, for those who run the long form."""


@pytest.fixture(scope="module", autouse=True)
def _figures() -> Iterator[None]:
    yield
    if LONG:
        print(f"\n{dict(sorted(happened.items()))}")


LAYOUTS: list[dict[str, Any]] = [
    {"chunks": 3},
    {"chunks": 3, "compressors": None},
    {"chunks": 2, "shards": 4},
    {"chunks": 4, "zarr_format": 2},
    {"chunks": 3, "config": {"write_empty_chunks": True}},
]
ends = st.sampled_from([None, None, "death", "death", "death", "error", "error"])


def extents() -> st.SearchStrategy[int]:
    return st.integers(0, SIDE)


class CrashMachine(RuleBasedStateMachine):
    """Every rule that changes something may die or fail at one of its calls to the store."""

    def make_store(self) -> Store:
        return MemoryStore()

    @initialize(data=st.data(), layout=st.sampled_from(LAYOUTS), uneven=st.booleans())
    def create(self, data, layout, uneven):
        rank = data.draw(st.integers(1, 2))
        shape = tuple(data.draw(extents()) for _ in range(rank))
        options = dict(layout)
        if uneven and "shards" not in options and options.get("zarr_format") != 2:
            edges = st.lists(st.integers(1, 4), min_size=SIDE, max_size=SIDE)
            options["chunks"] = [data.draw(edges) for _ in shape]
        elif "shards" in options:
            options |= {"chunks": (2,) * rank, "shards": (4,) * rank}
        self.free_edges = "shards" not in options and options.get("zarr_format") != 2
        self.config = options.get("config")
        self.inner = self.make_store()
        zellige.create_array(self.inner, name=PATH, shape=shape, dtype="int32", fill_value=FILL, **options)
        self.model = np.full(shape, FILL, "int32")
        self.attributes: dict[str, Any] = {}
        self.count = 0
        self.pending = False
        """Whether the mark may be there."""
        self.open()

    def open(self) -> None:
        """A new process."""
        self.store = CrashingStore(self.inner)
        self.array = zellige.open_array(self.store, path=PATH, mode="r+", config=self.config)

    def fresh(self, shape: tuple[int, ...]) -> np.ndarray:
        self.count += 1000
        return counted(shape, start=self.count)

    def found(self) -> np.ndarray:
        """What a fresh reader sees."""
        return zellige.open_array(self.inner, path=PATH, mode="r")[...]

    def run(self, data: Any, name: str, act: Callable[[], Any]) -> bool:
        """Do it, perhaps with a death or an error on the way; whether it came to its end."""
        end = data.draw(ends)
        error = OSError(errno.EIO, "broken disk") if end == "error" else None
        self.store.arm(None if end is None else data.draw(st.integers(1, 9)), error, forever=data.draw(st.booleans()))
        try:
            act()
        except Killed:
            happened[f"{name}: death"] += 1
            self.open()
            return False
        except OSError as raised:
            if raised is not error:
                raise
            happened[f"{name}: error"] += 1
            return False
        finally:
            self.store.arm(None)
        happened[f"{name}: end"] += 1
        return True

    def settle(self, new: np.ndarray, *, ended: bool) -> None:
        """After a change that is atomic: the state is the new one, or if it did not end, perhaps the old one."""
        found = self.found()
        if found.shape == new.shape and np.array_equal(found, new):
            self.model = new
        else:
            assert not ended
            assert found.shape == self.model.shape
            assert np.array_equal(found, self.model)
        if ended:
            assert not self.inner.exists(f"{PATH}/{PENDING}")
        self.pending = not ended
        if self.array.shape != found.shape:
            self.array.refresh()  # the error came after the change

    # -- rules ------------------------------------------------------------------------------------

    @rule(data=st.data())
    def write(self, data):
        index = tuple(
            slice(*sorted((data.draw(extents()), data.draw(extents()))), data.draw(st.sampled_from([None, 2])))
            for _ in self.model.shape
        )
        new = self.model.copy()
        shape = new[index].shape
        new[index] = self.fresh(shape) if data.draw(st.integers(0, 3)) else FILL
        if self.run(data, "write", lambda: self.array.__setitem__(index, new[index])):
            assert np.array_equal(self.found(), new)
        found = self.found()
        assert found.shape == new.shape
        for chunk in self.array.iter_chunks():
            part = found[chunk.slices]
            assert np.array_equal(part, new[chunk.slices]) or np.array_equal(part, self.model[chunk.slices])
        self.model = found

    def new_chunks(self, data: Any) -> Any:
        return data.draw(st.sampled_from([None, 1, 2, 5])) if self.free_edges else None

    @rule(data=st.data())
    def append(self, data):
        axis = data.draw(st.integers(0, self.model.ndim - 1))
        length = data.draw(st.integers(0, max(0, SIDE - self.model.shape[axis])))
        more = self.fresh(tuple(length if k == axis else n for k, n in enumerate(self.model.shape)))
        chunks = self.new_chunks(data)
        ended = self.run(data, "append", lambda: self.array.append(more, axis=axis, chunks=chunks))
        self.settle(np.concatenate([self.model, more], axis), ended=ended)

    @rule(data=st.data())
    def resize(self, data):
        shape = tuple(data.draw(extents()) for _ in self.model.shape)
        chunks = [self.new_chunks(data) for _ in shape]
        new = np.full(shape, FILL, "int32")
        common = tuple(slice(min(a, b)) for a, b in zip(shape, self.model.shape, strict=True))
        new[common] = self.model[common]
        ended = self.run(data, "resize", lambda: self.array.resize(shape, chunks=chunks))
        self.settle(new, ended=ended)

    @rule(data=st.data(), key=st.sampled_from("abc"), value=st.integers(0, 9))
    def set_attribute(self, data, key, value):
        new = {**self.attributes, key: value}
        ended = self.run(data, "attribute", lambda: self.array.attrs.__setitem__(key, value))
        found = dict(zellige.open_array(self.inner, path=PATH, mode="r").attrs)
        assert found == new or (not ended and found == self.attributes)
        self.attributes = found
        if not ended:
            self.array.refresh()

    @rule()
    def reopen(self):
        self.open()

    @precondition(lambda self: self.pending)
    @rule()
    def grow_what_is_pending(self):
        """Nothing of what a dead writer left comes to light."""
        shape = tuple(n + 3 for n in self.model.shape)
        self.array.resize(shape)
        new = np.full(shape, FILL, "int32")
        new[tuple(map(slice, self.model.shape))] = self.model
        self.settle(new, ended=True)

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def the_values_are_the_same(self):
        for values in (self.array[...], self.found()):
            assert values.shape == self.model.shape
            assert np.array_equal(values, self.model)

    @invariant()
    def the_attributes_are_the_same(self):
        assert dict(self.array.attrs) == self.attributes

    @invariant()
    def without_the_mark_nothing_lies_beyond_the_end(self):
        prefix = PATH + "/"
        if not self.inner.exists(prefix + PENDING):
            names = {prefix + name for name in ("zarr.json", ".zarray", ".zattrs")}
            assert set(self.inner.list(prefix)) <= names | {chunk.key for chunk in self.array.iter_chunks()}


class LocalCrashMachine(CrashMachine):
    """The same on disk."""

    def make_store(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return LocalStore(self.folder.name)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


class HeldMachine(RuleBasedStateMachine):
    """Members of a group with consolidated metadata come, go, move and are replaced, with deaths on the way.

    What the consolidated metadata names is whole: an array that was at its path, or was to come there. After a call
    that came to its end, consolidated metadata and documents agree about what it was about.
    """

    names = st.sampled_from(["a", "b", "g/a", "g/b"])

    def make_store(self) -> Store:
        return MemoryStore()

    @initialize(zarr_format=st.sampled_from([2, 3]))
    def create_group(self, zarr_format):
        self.inner = self.make_store()
        root = zellige.create_group(self.inner, zarr_format=zarr_format)
        root.create_array("a", data=counted((5,)), chunks=2, fill_value=FILL)
        root.create_group("g")
        root.consolidate_metadata()
        self.possible: dict[str, list[np.ndarray]] = {"a": [counted((5,))]}
        """What may be found at each path, as far as it is known: the last is newest."""
        self.count = 0

    def found(self) -> dict[str, np.ndarray]:
        """What a reader of the consolidated metadata finds."""
        members = zellige.open_consolidated(self.inner, mode="r").members(max_depth=None)
        return {path: found[...] for path, found in members if isinstance(found, zellige.Array)}

    def run(self, data: Any, name: str, act: Callable[[zellige.Group], Any]) -> bool:
        """Do it, perhaps with a death on the way; whether it came to its end."""
        store = CrashingStore(self.inner, data.draw(st.none() | st.integers(1, 15)))
        try:
            act(zellige.open_consolidated(store, mode="r+"))
        except Killed:
            happened[f"held {name}: death"] += 1
            return False
        # What a death left is in the way, or was not named, or is whole at both places of a move and not the same.
        except (FileExistsError, KeyError, ConflictError) as refused:
            happened[f"held {name}: {type(refused).__name__}"] += 1
            return False
        happened[f"held {name}: end"] += 1
        return True

    def settle(self, *names: str) -> None:
        """After a call that came to its end: of the paths that it was about nothing else can come to light."""
        found = self.found()
        plain = zellige.open_group(self.inner, mode="r", use_consolidated=False)
        for name in names:
            assert (name in found) == (name in plain)
            self.possible[name] = [found[name]] if name in found else []

    @rule(data=st.data(), name=names, length=st.integers(1, 6))
    def overwrite(self, data, name, length):
        self.count += 100
        new = counted((length,), start=self.count)
        self.possible.setdefault(name, []).append(new)
        make = {"data": new, "chunks": 3, "fill_value": FILL, "overwrite": True}
        if self.run(data, "overwrite", lambda root: root.create_array(name, **make)):
            assert np.array_equal(self.found()[name], new)
            self.settle(name)

    @rule(data=st.data(), source=names, dest=names)
    def move(self, data, source, dest):
        before = self.found()
        self.possible.setdefault(dest, []).extend(self.possible.get(source, []))
        if source != dest and self.run(data, "move", lambda root: root.move(source, dest)):
            assert source not in self.found()
            assert source not in before or np.array_equal(self.found()[dest], before[source])
            self.settle(source, dest)

    @rule(data=st.data(), name=names)
    def delete(self, data, name):
        if self.run(data, "delete", lambda root: root.__delitem__(name)):
            assert name not in self.found()
            self.settle(name)

    @invariant()
    def what_is_named_is_whole(self):
        for path, values in self.found().items():
            assert any(np.array_equal(values, known) for known in self.possible.get(path, ())), path


class LocalHeldMachine(HeldMachine):
    """The same on disk."""

    def make_store(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return LocalStore(self.folder.name)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TIMES = 20 if LONG else 1
SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=25)

TestCrashesInMemory = CrashMachine.TestCase
TestCrashesInMemory.settings = settings(SETTINGS, max_examples=24 * TIMES)
TestCrashesOnDisk = LocalCrashMachine.TestCase
TestCrashesOnDisk.settings = settings(SETTINGS, max_examples=6 * TIMES)
TestHeldInMemory = HeldMachine.TestCase
TestHeldInMemory.settings = settings(SETTINGS, max_examples=24 * TIMES)
TestHeldOnDisk = LocalHeldMachine.TestCase
TestHeldOnDisk.settings = settings(SETTINGS, max_examples=6 * TIMES)
