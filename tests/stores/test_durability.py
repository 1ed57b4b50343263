"""Durability: what a power cut could still undo when a call has returned, and how often the disk is asked to hurry.

The disk is a model: it knows of every file and directory what is not synchronised yet. It sees the calls of Python, so
that no chunk is written by the kernel here; `test_power_cuts` watches that one.
"""

from __future__ import annotations

import errno
import operator
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from store_suite import enter

import zellige
from running import run_threads
from zellige.io.chunks import Chunks
from zellige.stores import LocalStore, MemoryStore, abilities, files, threads
from zellige.stores.base import TEMPORARY

DOCUMENTS = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"]
BOTH = ["process", "power"]


class Disk:
    """Watches the system calls of this process that write, and can refuse to synchronise."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        """Paths in the order in which they were synchronised; a file by the name that it got."""
        self.events: list[tuple[str, str]] = []
        self.entries: dict[str, set[str]] = {}
        """Names that changed in directories, and would change back."""
        self.loose: set[str] = set()
        """Files in their place whose content could be lost."""
        self.threads: set[int] = set()
        self.refuse: Callable[[str], bool] = lambda _path: False
        self._temporary: set[str] = set()  # synchronised, and not in place yet
        self._guard = threading.Lock()
        self._real = {name: getattr(os, name) for name in ("fsync", "replace", "link", "mkdir", "unlink", "rename")}
        for name in self._real:
            patch.setattr(os, name, getattr(self, "_" + name))

    def reset(self) -> None:
        """Forget what was counted, but not what could be lost."""
        self.synced.clear()
        self.events.clear()
        self.threads.clear()

    def forget(self) -> None:
        """Take all that happened so far as safe."""
        self.reset()
        self.entries.clear()
        self.loose.clear()

    def lost(self, below: str = "/") -> set[str]:
        """What a power cut would undo now, below a directory."""
        with self._guard:
            names = {path for changed in self.entries.values() for path in changed} | self.loose
        return {path for path in names if path.startswith(below)}

    def _fsync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if self.refuse(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        with self._guard:  # the real call would take long and show nothing
            self.threads.add(threading.get_ident())
            if os.path.isdir(path):
                self.entries.pop(path, None)
                self.synced.append(path)
            else:
                self._temporary.add(path)
            self.events.append(("sync", path))

    def _change(self, path: str, event: str) -> None:
        if TEMPORARY not in path:
            folder = os.path.realpath(os.path.dirname(path))  # as a descriptor tells it
            self.entries.setdefault(folder, set()).add(path)
            self.events.append((event, path))

    def _place(self, kind: str, source: str, target: str) -> None:
        with self._guard:
            self._real[kind](source, target)
            known = os.path.join(os.path.realpath(os.path.dirname(source)), os.path.basename(source))
            if known in self._temporary:
                self._temporary.discard(known)
                self.synced.append(target)
                self.loose.discard(target)
            else:
                self.loose.add(target)
            self._change(target, "place")

    def _replace(self, source: str, target: str) -> None:
        self._place("replace", source, target)

    def _link(self, source: str, target: str) -> None:
        self._place("link", source, target)

    def _mkdir(self, path: str, *mode: int) -> None:
        with self._guard:
            self._real["mkdir"](path, *mode)
            self._change(path.rstrip("/"), "make")

    def _unlink(self, path: str) -> None:
        with self._guard:
            self._real["unlink"](path)
            self.loose.discard(path)
            self._change(path, "remove")

    def _rename(self, source: str, target: str) -> None:
        with self._guard:
            self._real["rename"](source, target)
            self._change(source.rstrip("/"), "remove")
            self._change(target.rstrip("/"), "place")


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    with pytest.MonkeyPatch.context() as patch:  # after pytest has made its directory, and until it removes it
        patch.setattr(Chunks, "files", None)
        yield Disk(patch)


@pytest.fixture
def root(tmp_path) -> str:
    return str(tmp_path / "a" / "x.zarr")


@pytest.fixture
def several(monkeypatch):
    """Threads for the smallest work."""
    monkeypatch.setattr(threads, "_SMALL", 1)
    with zellige.config.set({"threading.max_workers": 4}):
        yield


def power(root: str) -> LocalStore:
    return LocalStore(root, durability="power")


WRITES: dict[str, Callable[[LocalStore, str], object]] = {
    "put": lambda s, k: s.put(k, b"new"),
    "put of parts": lambda s, k: s.put(k, [b"n", b"ew"]),
    "create": lambda s, k: s.create(k, b"new"),
    "replace": lambda s, k: s.replace(k, b"new", s.read(k).tag),
    "put in exclusive": lambda s, k: put_exclusive(s, k),
}


def put_exclusive(store: LocalStore, key: str) -> None:
    with store.lock(key):
        store.put(key, b"new")


# -- single values --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", WRITES)
def test_a_chunk_is_not_synchronised_unless_asked_for(disk, root, method):
    store = LocalStore(root)
    assert store.traits.durability == "process"
    if method == "replace":
        store.put("a/c/0", b"old")
    WRITES[method](store, "a/c/0")
    assert store.get("a/c/0") == b"new"
    assert disk.synced == []


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("durability", BOTH)
def test_documents_survive_a_power_cut(disk, root, durability, name, method):
    store = LocalStore(root, durability=durability)
    for key in (f"a/b/{name}", name, f"a/b/{name}"):
        if method == "replace":
            store.put(key, b"old")
        elif method == "create":
            store.delete([key])
        disk.reset()
        WRITES[method](store, key)
        assert store.get(key) == b"new"
        assert disk.lost() == set()
        assert disk.synced.count(f"{root}/{key}") == 1


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("key", ["a/b/c/0", "0", "b/zarr.json"])
def test_values_of_a_careful_store_survive_a_power_cut(disk, root, key, method):
    store = power(root)
    if method == "replace":
        store.put(key, b"old")
    WRITES[method](store, key)
    assert store.get(key) == b"new"
    assert disk.lost() == set()


@pytest.mark.parametrize("method", ["put", "create", "replace"])
def test_the_file_comes_before_its_name_and_the_directory_after(disk, root, method):
    store = LocalStore(root)
    store.put("a/zarr.json", b"old")
    if method == "create":
        store.delete(["a/zarr.json"])
    disk.reset()
    WRITES[method](store, "a/zarr.json")
    (first, temporary), second, third = disk.events
    assert first == "sync"
    assert temporary.startswith(f"{root}/a/{TEMPORARY}")
    assert [second, third] == [("place", f"{root}/a/zarr.json"), ("sync", f"{root}/a")]


def test_a_careful_store_synchronises_each_value_and_its_directory_once(disk, root):
    store = power(root)
    store.put("a/c/0", b"old")
    disk.reset()
    store.put("a/c/1", b"x")
    assert disk.synced == [f"{root}/a/c/1", f"{root}/a/c"]


def test_new_directories_are_synchronised_up_to_the_one_that_was_there(disk, root, tmp_path):
    power(root).put("a/b/c/0", b"x")
    made = [path for event, path in disk.events if event == "make"]
    assert made == [str(tmp_path / "a"), root, f"{root}/a", f"{root}/a/b", f"{root}/a/b/c"]
    assert {os.path.dirname(path) for path in made} <= set(disk.synced)
    assert disk.lost() == set()


@pytest.mark.parametrize("method", ["put", "create", "put in exclusive"])
@pytest.mark.parametrize("key", ["a/c/0", "a/zarr.json"])
def test_a_root_behind_a_link_survives_a_power_cut(disk, tmp_path, method, key):
    os.mkdir(f"{tmp_path}/real")
    os.symlink("real", tmp_path / "link")
    disk.forget()
    WRITES[method](power(f"{tmp_path}/link/x.zarr"), key)
    assert disk.lost() == set()


def test_a_directory_that_cannot_be_opened_is_synchronised_the_next_time(disk, root):
    real = os.open

    def refuse(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, *mode)

    store = power(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="'a/c/0'") as caught:
            store.put("a/c/0", b"x")
    assert caught.value.errno == errno.EMFILE
    store.put("a/c/0", b"x")
    assert disk.lost() == set()


def test_a_directory_that_a_quick_write_made_survives_the_first_careful_one(disk, root):
    LocalStore(root).put("a/c/0", b"x")
    assert disk.synced == []
    power(root).put("a/c/1", b"y")
    assert disk.lost() <= {f"{root}/a/c/0"}  # which was never promised


def test_so_many_directories_are_remembered_and_no_more(disk, root, monkeypatch):
    monkeypatch.setattr(files, "_durable", set())
    monkeypatch.setattr(files, "_REMEMBERED", 8)
    store = power(root)
    for k in range(30):
        store.put(f"c/{k}/0/0", b"x")
        assert disk.lost() == set()
        assert len(files._durable) <= 8 + 5
    assert root not in files._made


@pytest.mark.parametrize("remove", ["delete_prefix", "prune", "rename"])
def test_a_directory_that_is_made_again_survives_a_power_cut(disk, root, remove):
    store = power(root)
    store.put("a/c/0", b"x")
    if remove == "delete_prefix":
        store.delete_prefix("a/")
    elif remove == "prune":
        store.delete(["a/c/0"])
        store.prune("", lambda _: True)
    else:
        store.rename("a/", "b/")
    os.makedirs(f"{root}/a/c")  # as the kernel does, or another process
    disk.forget()
    store.put("a/c/0", b"y")
    assert {f"{root}/a/c", f"{root}/a", root} <= set(disk.synced)


def test_removing_from_a_careful_store_survives_a_power_cut(disk, root):
    store = power(root)
    store.put("a/c/0", b"x")
    store.delete(["a/c/0"])
    assert disk.lost() == set()
    store.delete(["a/c/none"])
    assert disk.lost() == set()


def test_a_create_that_lost_writes_nothing(disk, root):
    store = power(root)
    store.put("k", b"x")
    assert not store.create("k", b"y")
    assert store.get("k") == b"x"
    assert disk.lost() == set()


# -- arrays ---------------------------------------------------------------------------------------

SHAPES = {"one axis": ((24,), (4,)), "two axes": ((12, 6), (4, 2)), "three axes": ((4, 4, 4), (2, 2, 2))}


def array_in(store: LocalStore, shape: tuple[int, ...], chunks: tuple[int, ...], **options: Any) -> zellige.Array:
    return zellige.create_array(store, name="g/a", shape=shape, chunks=chunks, dtype="int32", **options)


def folders_of(root: str) -> set[str]:
    """The directories that hold chunks, or directories of chunks."""
    return {folder for folder, _, _ in os.walk(f"{root}/g/a/c")}


def chunks_of(root: str) -> set[str]:
    return {f"{folder}/{name}" for folder, _, names in os.walk(f"{root}/g/a/c") for name in names}


def assert_once(disk: Disk, root: str) -> None:
    """Each chunk was synchronised once, each directory that changed once, and nothing can be lost."""
    assert disk.lost() == set()
    counts = Counter(disk.synced)
    assert {path for path in counts if path in chunks_of(root)} == chunks_of(root)
    assert {path: count for path, count in counts.items() if count > 1} == {}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_write_of_many_chunks_synchronises_each_file_and_directory_once(disk, root, shape, zarr_format):
    extent, chunks = SHAPES[shape]
    array = array_in(power(root), extent, chunks, zarr_format=zarr_format)
    for value in (5, 6):  # in new directories, and in old ones
        disk.forget()
        array[...] = value
        assert disk.lost() == set()
        assert {path: count for path, count in Counter(disk.synced).items() if count > 1} == {}
        stored = [path for path in disk.synced if os.path.isfile(path)]
        assert len(stored) == np.prod([n // c for n, c in zip(extent, chunks, strict=True)])


NOT_FOR_THE_KERNEL = {"name": "numcodecs.bz2", "configuration": {"level": 1}}


@pytest.mark.parametrize("shape", SHAPES)
def test_threads_synchronise_each_file_and_directory_once(disk, root, shape, several):
    array = array_in(power(root), *SHAPES[shape], compressors=NOT_FOR_THE_KERNEL)
    for value in (5, 6):
        disk.forget()
        array[...] = value
        assert_once(disk, root)


def test_threads_are_used_for_careful_writes(disk, root, several):
    zellige.create_array(power(root), shape=(64,), chunks=(1,), dtype="int32", compressors=NOT_FOR_THE_KERNEL)[...] = 7
    met = threading.Barrier(2)
    real = disk._fsync

    def meet(fd: int) -> None:  # goes on only if two threads are here at once
        if not os.path.isdir(os.readlink(f"/proc/self/fd/{fd}")):
            met.wait(20)
        real(fd)

    array = zellige.open_array(power(root), mode="r+")
    with pytest.MonkeyPatch.context() as patch, zellige.config.set({"threading.max_workers": 2}):
        patch.setattr(os, "fsync", meet)
        disk.reset()
        array[...] = 8
    assert len(disk.threads) == 2
    assert disk.lost() == set()


def test_parts_of_chunks_and_shards_survive_a_power_cut(disk, root):
    for options in ({"chunks": (4, 2)}, {"chunks": (2, 2), "shards": (4, 6)}):
        array = array_in(power(root), (12, 6), **options, overwrite=True)
        array[...] = 5
        disk.forget()
        array[1:11, 1:5] = 6
        assert_once(disk, root)


@pytest.mark.parametrize("shards", [None, (4, 6)])
def test_parts_of_chunks_in_new_directories_survive_a_power_cut(disk, root, shards):
    array = array_in(power(root), (12, 6), (2, 2), shards=shards)
    array[1:11, 1:5] = 5
    assert disk.lost() == set()


def test_small_chunks_in_rows_synchronise_each_file_and_directory_once(disk, root):
    array = array_in(power(root), (4, 64), (4, 2), compressors=None)
    disk.forget()
    array[...] = np.arange(256).reshape(4, 64) + 1
    assert len(chunks_of(root)) == 32
    assert_once(disk, root)


def test_a_copy_of_an_array_synchronises_each_directory_of_chunks_once(disk, root):
    source = zellige.create_array(data=np.arange(24, dtype="int32") + 1, chunks=4)
    disk.reset()
    zellige.from_array(power(root), data=source, name="g/a")
    assert disk.lost() == set()
    assert len(chunks_of(root)) == 6
    counts = Counter(disk.synced)
    assert {path: counts[path] for path in folders_of(root) | chunks_of(root) if counts[path] != 1} == {}


def test_values_that_are_not_stored_survive_a_power_cut(disk, root):
    array = array_in(power(root), (12,), (4,))
    array[...] = 5
    array[...] = 0  # the fill value: the chunks go, and must not come back
    assert chunks_of(root) == set()
    assert disk.lost() == set()


def test_fields_of_structs_survive_a_power_cut(disk, root):
    dtype = np.dtype([("x", "int32"), ("y", "int32")])
    array = zellige.create_array(power(root), name="g/a", shape=(12,), chunks=(4,), dtype=dtype)
    array[...] = np.ones(12, dtype)
    disk.forget()
    array["x"] = np.arange(12)
    assert_once(disk, root)


@pytest.mark.parametrize("durability", BOTH)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_groups_arrays_and_attributes_survive_a_power_cut(disk, root, zarr_format, durability):
    store = LocalStore(root, durability=durability)
    group = zellige.create_group(store, path="g/h", zarr_format=zarr_format)
    assert disk.lost() == set()
    array = group.create_array("i/a", shape=(12,), chunks=(4,), attributes={"x": 1})
    assert disk.lost() == set()
    array.attrs["y"] = 2
    group.attrs["z"] = 3
    assert disk.lost() == set()
    zellige.consolidate_metadata(store)
    assert disk.lost() == set()


def test_an_array_may_be_more_careful_than_its_store(disk, root):
    array = array_in(LocalStore(root), (12, 6), (4, 2), config={"durability": "power"})
    array[...] = 5
    assert disk.lost() == set()
    disk.reset()
    again = zellige.open_array(LocalStore(root), path="g/a", mode="r+", config={"durability": "power"})
    again[...] = 6
    assert_once(disk, root)
    disk.reset()
    zellige.open_array(LocalStore(root), path="g/a", mode="r+")[...] = 7
    assert disk.synced == []


def test_an_array_may_be_quicker_than_its_store(disk, root):
    array = array_in(power(root), (12, 6), (4, 2), config={"durability": "process"})
    disk.reset()
    array[...] = 5
    array[1:3, 1:3] = 6
    assert disk.synced == []
    array.attrs["x"] = 1
    assert disk.synced == [f"{root}/g/a/zarr.json", f"{root}/g/a"]


@pytest.mark.parametrize("durability", BOTH)
def test_the_setting_is_for_all_arrays(disk, root, durability):
    with zellige.config.set({"array.durability": durability}):
        array = array_in(LocalStore(root, durability="process" if durability == "power" else "power"), (12,), (4,))
    disk.reset()
    array[...] = 5
    assert sorted(set(disk.synced) & chunks_of(root)) == (sorted(chunks_of(root)) if durability == "power" else [])


# -- several at once ------------------------------------------------------------------------------


class Somebody:
    """A thread of its own that does one thing after the other, when it is told to."""

    def __init__(self, store: LocalStore) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._batch = abilities.batch(store)
        self._store, self._within = store, operator.call

    def put(self, key: str) -> None:
        self._thread.submit(self._within, self._store.put, key, b"x").result(20)

    def begin(self) -> None:
        self._within = self._thread.submit(self._batch.__enter__).result(20)

    def end(self) -> None:
        """The end of the batch; raises what that raises."""
        self._within = operator.call
        self._thread.submit(self._batch.__exit__, None, None, None).result(20)


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_who_leaves_a_batch_has_lost_nothing(disk, root, first_leaves_first):
    store = power(root)
    for key in ("a/0", "b/0", "c/0"):
        store.put(key, b"x")
    first, second = Somebody(store), Somebody(store)
    first.begin()
    first.put("a/1")
    second.begin()
    second.put("b/1")
    assert disk.lost() >= {f"{root}/a/1", f"{root}/b/1"}  # later, once for all
    if first_leaves_first:
        first.end()
        assert disk.lost(f"{root}/a/") == set()
        second.put("b/2")
        second.put("c/1")
        second.end()
    else:
        second.end()
        assert disk.lost(f"{root}/b/") == set()
        first.put("a/2")
        first.put("c/1")
        first.end()
    assert disk.lost() == set()
    disk.reset()
    first.put("a/3")
    assert disk.synced == [f"{root}/a/3", f"{root}/a"]


def test_a_batch_within_a_batch_lasts_when_it_ends(disk, root):
    store = power(root)
    store.put("a/0", b"x")
    store.put("b/0", b"x")
    outer, inner = abilities.batch(store), abilities.batch(store)
    with outer as within:

        def work() -> None:
            store.put("a/1", b"x")
            with inner as within_too:
                within_too(store.put, "b/1", b"x")
            assert disk.lost(f"{root}/b/") == set()
            store.put("a/2", b"x")

        within(work)
        assert disk.lost() == {f"{root}/a/1", f"{root}/a/2"}
    assert disk.lost() == set()


@pytest.mark.parametrize("key", ["b/zarr.json", "a/zarr.json", "a/k", "new/k"])
def test_a_value_beside_the_batch_of_somebody_else_is_durable_at_once(disk, root, key):
    store = power(root)
    store.put("a/0", b"x")
    store.put("b/0", b"x")
    other = Somebody(store)
    other.begin()
    other.put("a/1")
    store.put(key, b"x")
    assert disk.lost() <= {f"{root}/a/1"}
    other.end()
    assert disk.lost() == set()


def test_a_batch_that_fails_is_over(disk, root):
    store = power(root)
    store.put("a/0", b"x")

    def fail() -> None:
        with abilities.batch(store) as within:
            within(store.put, "a/1", b"x")
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert disk.lost() == set()
    disk.reset()
    store.put("a/2", b"x")
    assert disk.synced == [f"{root}/a/2", f"{root}/a"]


def test_each_of_many_threads_returns_when_its_own_is_durable(disk, root):
    store = power(root)
    arrays = [
        zellige.create_array(store, name=f"{number}", shape=(6, 6), chunks=(2, 3), dtype="int32") for number in range(4)
    ]

    def work(number: int) -> list[set[str]]:
        lost = []
        for turn in range(15):
            arrays[number][...] = turn + 1
            lost.append(disk.lost(f"{root}/{number}/"))
            arrays[number].attrs["turn"] = turn
            lost.append(disk.lost(f"{root}/{number}/"))
            store.put(f"{number}/{turn}/k", b"x")
            lost.append(disk.lost(f"{root}/{number}/"))
        return lost

    assert [lost for found in run_threads(4, work) for lost in found if lost] == []
    assert disk.lost() == set()


# -- what cannot be done --------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["disk", "", None, True, 1, "Power"])
def test_only_known_words_say_what_survives(tmp_path, word):
    with pytest.raises(ValueError, match="'process' or 'power'"):
        LocalStore(tmp_path, durability=word)
    if word is not None:
        with pytest.raises(ValueError, match="'process' or 'power'"):
            zellige.create_array(tmp_path, shape=1, config={"durability": word})
        with pytest.raises(ValueError, match="'process' or 'power'"):
            zellige.config.set({"array.durability": word})
    with pytest.raises(ValueError, match="durability"):
        LocalStore(tmp_path).with_durability(word)
    assert os.listdir(tmp_path) == []


def test_a_store_in_memory_survives_no_power_cut():
    store = MemoryStore()
    assert store.with_durability("process") is store
    with abilities.batch(store) as within:
        within(store.put, "k", b"x")
    with pytest.raises(ValueError, match="'power'"):
        store.with_durability("power")
    with pytest.raises(ValueError, match="'power'"):
        zellige.create_array(store, shape=1, config={"durability": "power"})
    assert list(store.list()) == ["k"]
    zellige.create_array(store, data=[1, 2], config={"durability": "process"})
    with pytest.raises(ValueError, match="'power'"):
        zellige.open_array(store, config={"durability": "power"})


def test_a_store_that_is_as_careful_as_wanted_is_itself(root):
    store = power(root)
    assert store.with_durability("power") is store
    quick = store.with_durability("process")
    assert (quick.traits.durability, quick.root, quick == store) == ("process", root, True)
    assert quick.with_durability("power").traits.durability == "power"
    assert store.traits.durability == "power"


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("what", ["file", "directory"])
@pytest.mark.parametrize("key", ["a/zarr.json", "a/c/0"])
def test_a_value_that_cannot_be_synchronised_is_an_error_and_whole(disk, root, method, what, key):
    store = power(root)
    if method != "create":
        store.put(key, b"old")
    disk.refuse = lambda path: os.path.isdir(path) == (what == "directory")
    with pytest.raises(OSError, match=repr(key)) as caught:
        WRITES[method](store, key)
    disk.refuse = lambda _path: False
    assert caught.value.errno == errno.EIO
    assert caught.value.filename == f"{root}/{key}"
    old = None if method == "create" else b"old"
    assert store.get(key) in ((old,) if what == "file" else (old, b"new"))
    assert [name for _, _, names in os.walk(root) for name in names if TEMPORARY in name] == []
    enter(store, key)
    store.put(key, b"newer")
    assert disk.lost() == set()


@pytest.mark.parametrize("number", range(4))
def test_a_new_directory_that_cannot_be_synchronised_is_an_error(disk, root, tmp_path, number):
    store = power(root)
    seen = []
    disk.refuse = lambda path: seen.append(path) is None and len(seen) == number + 1
    with pytest.raises(OSError, match=r"'a/c/0'") as caught:
        store.put("a/c/0", b"x")
    disk.refuse = lambda _path: False
    assert caught.value.errno == errno.EIO
    assert store.get("a/c/0") in (None, b"x")
    store.put("a/c/0", b"x")
    assert disk.lost() == set()


def test_a_directory_that_cannot_be_synchronised_after_many_chunks_is_an_error(disk, root):
    array = array_in(power(root), (24,), (4,))
    array[...] = 5
    disk.refuse = os.path.isdir
    with pytest.raises(OSError, match=r"g/a/c") as caught:
        array[...] = 6
    disk.refuse = lambda _path: False
    assert caught.value.errno == errno.EIO
    assert array[...].tolist() == [6] * 24
    array[...] = 7
    assert disk.lost() == set()


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_everybody_whose_directory_cannot_be_synchronised_hears_of_it(disk, root, first_leaves_first):
    store = power(root)
    store.put("a/0", b"x")
    store.put("b/0", b"x")
    first, second = Somebody(store), Somebody(store)
    first.begin()
    first.put("a/1")
    second.begin()
    second.put("b/1")
    disk.refuse = lambda path: path == f"{root}/a"
    heard = {}
    for name in ("first", "second") if first_leaves_first else ("second", "first"):
        try:
            (first if name == "first" else second).end()
            heard[name] = False
        except OSError:
            heard[name] = True
    assert heard["first"]
    assert heard["second"] or disk.lost(f"{root}/b/") == set()
    disk.refuse = lambda _path: False
    store.put("a/2", b"x")
    store.put("b/2", b"x")
    assert disk.lost() == set()
