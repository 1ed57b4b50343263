"""`rechunk`, `copy` and `convert`, killed anywhere: nothing looks finished that is not, and the same call finishes it.

Each operation dies at its first change of the store, its second, and so on. What is left is looked at by a reader who
knows nothing of marks: wherever there is the document of an array, all values of it are those of the source (or, where
an array is replaced, of the old one). Then the same call is made again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import obstore.store
import pytest
from crashing_store import LONG, CrashingStore, Killed, counted

import zellige
from zellige.errors import BrokenNodeWarning, ConflictError, ContainsArrayError, NodeNotFoundError, UnfinishedWarning
from zellige.nodes.node import UNFINISHED
from zellige.storage import ObjectStore
from zellige.stores import LocalStore, MemoryStore, Store

VALUES = counted((6, 8))
OLD = -counted((5, 8))
DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")


class Job(NamedTuple):
    """An operation on a store, and the arrays that it makes there."""

    run: Callable[[Store, Path], Any]
    made: dict[str, np.ndarray]
    prepare: Callable[[Store], Any] = lambda store: None
    old: Mapping[str, np.ndarray] = MappingProxyType({})
    top: str = ""
    """The path of what is made, which is a node only when all of it is there."""


def tree(store: Store | None = None, zarr_format: Any = 3) -> zellige.Group:
    """A hierarchy with arrays of several layouts."""
    root = zellige.create_group(store, zarr_format=zarr_format, attributes={"title": "a tree"})
    root.create_array("a", data=VALUES, chunks=(2, 8), attributes={"unit": "K"})
    root.create_array("sub/b", data=VALUES[0], chunks=(3,) if zarr_format == 2 else [[1, 5, 2]])
    root.create_array("sub/deep/c", data=VALUES, chunks=(6, 4))
    return root


TREE = {"a": VALUES, "sub/b": VALUES[0], "sub/deep/c": VALUES}


def below(top: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{top}/{name}" if name else top: values for name, values in arrays.items()}


def numbers(folder: Path) -> Path:
    path = folder / "numbers.npz"
    if not path.exists():
        np.savez(path, a=VALUES, b=VALUES[0], c=VALUES.astype("float64"))
    return path


def hdf5(folder: Path) -> Path:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    path = folder / "tree.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            file.attrs["title"] = "a tree"
            file.create_dataset("a", data=VALUES, chunks=(2, 8))
            file.create_dataset("sub/b", data=VALUES[0])
            file.create_dataset("sub/deep/c", data=VALUES, chunks=(6, 4))
    return path


def source(chunks: Any = (1, 8)) -> zellige.Array:
    return zellige.create_array(
        SOURCES, name=f"source{chunks}".replace("/", ""), data=VALUES, chunks=chunks, overwrite=True
    )


SOURCES = MemoryStore()
V3 = tree(MemoryStore())
V2 = tree(MemoryStore(), zarr_format=2)


def put_old(store: Store) -> None:
    zellige.create_array(store, name="g/x", data=OLD, chunks=(2, 3))


def put_group(store: Store) -> None:
    zellige.create_group(store, path="g").create_array("there", data=OLD)


ROWS = source()
JOBS = {
    "rechunk": Job(lambda s, _: zellige.rechunk(ROWS, s, chunks=(4, 3)), {"": VALUES}),
    "rechunk below": Job(lambda s, _: zellige.rechunk(ROWS, s, name="g/x", chunks=(4, 3)), {"g/x": VALUES}, top="g/x"),
    "rechunk by an intermediate array": Job(
        lambda s, _: zellige.rechunk(ROWS, s, chunks=(6, 1), max_memory=420), {"": VALUES}
    ),
    "rechunk into shards": Job(
        lambda s, _: zellige.rechunk(ROWS, s, chunks=(2, 2), shards=(6, 4), zarr_format=3), {"": VALUES}
    ),
    "rechunk over another": Job(
        lambda s, _: zellige.rechunk(ROWS, s, name="g/x", chunks=(4, 3), overwrite=True),
        {"g/x": VALUES},
        put_old,
        {"g/x": OLD},
        "g/x",
    ),
    "copy an array": Job(lambda s, _: zellige.copy(V3["a"], s, "g/x"), {"g/x": VALUES}, top="g/x"),
    "copy a group": Job(lambda s, _: zellige.copy(V3, s, "g"), below("g", TREE), top="g"),
    "copy a group of format 2": Job(lambda s, _: zellige.copy(V2, s, "g"), below("g", TREE), top="g"),
    "copy a group into one that is there": Job(
        lambda s, _: zellige.copy(V3, s, "g"), below("g", {**TREE, "there": OLD}), put_group, {"g/there": OLD}
    ),
    "copy and encode anew": Job(lambda s, _: zellige.copy(V3["a"], s, "g/x", chunks=3), {"g/x": VALUES}, top="g/x"),
    "copy over another": Job(
        lambda s, _: zellige.copy(V3["a"], s, "g/x", if_exists="replace"), {"g/x": VALUES}, put_old, {"g/x": OLD}, "g/x"
    ),
    "copy_all": Job(lambda s, _: zellige.copy_all(V3, zellige.storage.StorePath(s, "g")), below("g", TREE), top="g"),
    "copy_all into a group": Job(
        lambda s, _: zellige.copy_all(V3, zellige.storage.StorePath(s, "g")),
        below("g", {**TREE, "there": OLD}),
        put_group,
        {"g/there": OLD},
    ),
    "copy_store": Job(lambda s, _: zellige.copy_store(V3.store, s, dest_path="g"), below("g", TREE), top="g"),
    "copy_store of format 2": Job(lambda s, _: zellige.copy_store(V2.store, s), TREE),
    "copy_store over another": Job(
        lambda s, _: zellige.copy_store(V3.store, s, "a", "g/x", if_exists="replace"),
        {"g/x": VALUES},
        lambda s: zellige.create_array(s, name="g/x", data=-VALUES, chunks=(2, 8)),
        {"g/x": -VALUES},
        "g/x",
    ),
    "copy_store over one of another rank": Job(
        lambda s, _: zellige.copy_store(V3.store, s, "a", "g/x", if_exists="replace"),
        {"g/x": VALUES},
        lambda s: zellige.create_array(s, name="g/x", data=OLD.ravel(), chunks=1),
        {"g/x": OLD.ravel()},
        "g/x",
    ),
    "store of dask": Job(lambda s, _: dask_store(s, "g/x"), {"g/x": VALUES}, top="g/x"),
    "store of dask over another": Job(
        lambda s, _: dask_store(s, "g/x", overwrite=True), {"g/x": VALUES}, put_old, {"g/x": OLD}, "g/x"
    ),
    "store by create_array": Job(lambda s, _: create_lazily(s, "g/x"), {"g/x": VALUES}, top="g/x"),
    "convert .npz": Job(
        lambda s, folder: zellige.convert(numbers(folder), s, name="g", chunks=2),
        {"g/a": VALUES, "g/b": VALUES[0], "g/c": VALUES.astype("float64")},
        top="g",
    ),
    "convert HDF5": Job(lambda s, folder: zellige.convert(hdf5(folder), s), TREE),
    "convert HDF5 over another": Job(
        lambda s, folder: zellige.convert(hdf5(folder), s, name="g/x", overwrite=True),
        below("g/x", TREE),
        put_old,
        {"g/x": OLD},
        "g/x",
    ),
    "convert format 2": Job(lambda s, _: zellige.convert(V2.store, s, name="g"), below("g", TREE), top="g"),
    "convert format 2 over another": Job(
        lambda s, _: zellige.convert(V2.store, s, path="a", name="g/x", overwrite=True),
        {"g/x": VALUES},
        put_old,
        {"g/x": OLD},
        "g/x",
    ),
}


@contextmanager
def or_it_is_whole(store: Store, name: str) -> Iterator[None]:
    """What died after its last document is refused: the data of the call may be other data."""
    try:
        yield
    except ContainsArrayError:
        assert np.array_equal(zellige.load(store, path=name), VALUES)


def dask_store(store: Store, name: str, **options: Any) -> None:
    import dask.array as da

    import dask
    from zellige.dask import store as store_blocks

    with dask.config.set(scheduler="synchronous"), or_it_is_whole(store, name):
        store_blocks(da.from_array(VALUES, chunks=(2, 8)), store, name=name, **options)


def create_lazily(store: Store, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch, or_it_is_whole(store, name):
        patch.setattr(zellige.nodes.create, "_AT_ONCE", 0)
        zellige.create_array(store, name=name, data=V3["a"], chunks=(3, 4))


def deaths(job: Job, folder: Path, place: str = "memory") -> Iterator[tuple[int, Any]]:
    """What is left when the operation dies at its first change, its second, and so on."""
    for number in count(1):
        inner = PLACES[place](folder / f"{number}.zarr")
        job.prepare(inner)
        try:
            job.run(CrashingStore(inner, at=number), folder)
        except Killed:
            yield number, inner
        else:
            assert number > 3, "the operation changed nothing"
            return


PLACES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "local": LocalStore,
    "objects": lambda _: ObjectStore(obstore.store.MemoryStore()),
}


def arrays_in(store: Store) -> Iterator[tuple[str, np.ndarray]]:
    """Every array whose document is there, as a program reads it that knows nothing of marks."""
    for key in sorted(store.list()):
        path, _, name = key.rpartition("/")
        if name in ("zarr.json", ".zarray") and "__" not in path:
            node = zellige.open(store, path=path, mode="r")
            if isinstance(node, zellige.Array):
                yield path, node[...]


def check_whole(store: Store, job: Job, number: int) -> None:
    """Nothing is there by half."""
    found = dict(arrays_in(store))
    for path, values in found.items():
        wanted = [arrays[path] for arrays in (job.made, job.old) if path in arrays]
        assert any(np.array_equal(values, one) for one in wanted), f"death {number} left half of '/{path}'"
    is_old = bool(job.old) and all(np.array_equal(found.get(path), values) for path, values in job.old.items())
    is_there = any(f"{job.top}/{name}".lstrip("/") in set(store.list()) for name in DOCUMENTS)
    assert is_old or not is_there or found.keys() == job.made.keys(), f"death {number} left a group without its members"


@pytest.mark.parametrize("place", PLACES if LONG else ["memory"])
@pytest.mark.parametrize("name", JOBS)
def test_killed_anywhere_nothing_looks_finished_and_the_same_call_finishes_it(name, place, tmp_path):
    job = JOBS[name]
    for number, store in deaths(job, tmp_path, place):
        check_whole(store, job, number)
        job.run(store, tmp_path)
        check_done(store, job)


def check_done(store: Store, job: Job) -> None:
    """All of it is there, and nothing else."""
    found = dict(arrays_in(store))
    assert found.keys() == job.made.keys()
    for path, values in job.made.items():
        np.testing.assert_array_equal(found[path], values)
    assert not [key for key in store.list() if "__zellige" in key], "a mark is there for good"
    top = "" if any(store.exists(name) for name in DOCUMENTS) else job.top  # copy_store makes no groups above
    assert zellige.validate(store, top, deep=True).ok


@pytest.mark.parametrize("name", JOBS)
def test_killed_twice_and_twice_and_again_it_is_finished_in_the_end(name, tmp_path):
    job = JOBS[name]
    for number, store in deaths(job, tmp_path):
        for second in count(1 + number % 3, 2):
            try:
                job.run(CrashingStore(store, at=second), tmp_path)
                break
            except Killed:
                check_whole(store, job, number)
        check_done(store, job)


def unfinished(store: Store, job: Job) -> list[str]:
    """The paths of marks that have no node beside them."""
    paths = [key[: -len(UNFINISHED)].rstrip("/") for key in store.list() if key.endswith(UNFINISHED)]
    return [path for path in paths if not any(store.exists(f"{path}/{name}".lstrip("/")) for name in DOCUMENTS)]


LOOKS = [
    lambda place: zellige.open(place, mode="r"),
    lambda place: zellige.open_array(place, mode="r+"),
    lambda place: zellige.open_group(place, mode="r"),
    lambda place: zellige.copy(place, {}, "x"),
    lambda place: zellige.migrate(place),
    lambda place: zellige.diff(place, place),
]


@pytest.mark.parametrize("name", JOBS)
def test_what_is_unfinished_says_so_wherever_one_looks(name, tmp_path):
    job, seen = JOBS[name], 0
    verb = name.split()[0].split("_")[0]
    for _, store in deaths(job, tmp_path):
        for path in unfinished(store, job):
            if b'"work"' not in (store.get(f"{path}/{UNFINISHED}".lstrip("/")) or b""):
                continue  # that of a removal
            seen += 1
            place = zellige.storage.StorePath(store, path)
            for look in LOOKS:
                with pytest.raises(NodeNotFoundError, match=f"unfinished {verb} .*run the same {verb} again"):
                    look(place)
            report = zellige.validate(store, path, deep=True)
            assert not report.ok
            assert f"unfinished {verb}" in next(one.message for one in report.findings if one.kind == "leftover")
            assert not [one for one in report.findings if one.kind == "stray"]
            assert [done for done, _ in zellige.repair(store, path).actions] == ["left"]
            if path and store.exists("zarr.json"):  # copy_store makes no groups above
                root = zellige.open_group(store, mode="r")
                assert f"unfinished {verb}" in repr(root.tree())
                assert path in root.info_complete()["Unfinished"].split(", ")
                with pytest.warns(BrokenNodeWarning, match=f"unfinished {verb}"):
                    assert path not in dict(root.members(max_depth=None))
                assert path not in root
    assert seen > 2


@pytest.mark.parametrize("name", JOBS)
def test_another_call_is_refused_or_starts_anew_and_nothing_is_mixed(name, tmp_path):
    job = JOBS[name]
    for _, store in deaths(job, tmp_path):
        for path in unfinished(store, job):
            made = b'"work"' in (store.get(f"{path}/{UNFINISHED}".lstrip("/")) or b"")
            before = {key: store.get(key) for key in store.list()}
            others = [
                lambda store, path=path, **given: zellige.create_array(
                    store, name=path, shape=(6, 8), chunks=3, **given
                ),
                lambda store, path=path, **given: zellige.create_group(store, path=path, **given),
                lambda store, path=path, **given: zellige.rechunk(V3["sub/b"], store, name=path, chunks=5, **given),
                lambda store, path=path, **given: zellige.convert(V2.store, store, path="sub/b", name=path, **given),
            ]
            for other in others:
                if made:
                    with pytest.raises(ConflictError, match="unfinished"):
                        other(store)
                    assert {key: store.get(key) for key in store.list()} == before, "something was changed by a refusal"
                anew = MemoryStore(dict(before))
                other(anew, overwrite=True)
                node = zellige.open(anew, path=path, mode="r")
                if isinstance(node, zellige.Group):
                    assert list(node) == []
                else:
                    assert np.array_equal(node[...], VALUES[0] if node.ndim == 1 else np.zeros((6, 8)))
                assert not [key for key in anew.list(path and path + "/") if "__zellige" in key]
                assert zellige.validate(anew, path).ok
            if path and made:
                with pytest.raises(ConflictError, match="unfinished"):
                    zellige.create_array(store, name=f"{path}/inside", shape=3)
                root = zellige.open_group(MemoryStore(dict(before)))
                del root[path]
                assert not [key for key in root.store.list() if key.startswith(f"{path}/")]
            cleaned = MemoryStore(dict(before))
            zellige.vacuum(cleaned, path, unfinished=True)
            assert not [key for key in cleaned.list() if key.startswith(path and path + "/")]
            job.run(cleaned, tmp_path)
            check_done(cleaned, job)


def test_a_convert_that_was_stopped_says_that_its_source_has_changed(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6))
    store = MemoryStore()
    with pytest.raises(Killed):
        zellige.convert(tmp_path / "a.npy", CrashingStore(store, at=4), chunks=2)
    np.save(tmp_path / "a.npy", np.arange(8) + 1)
    with pytest.raises(ConflictError, match=r"a\.npy .*has changed since.*overwrite=True.*vacuum\(…, unfinished=True"):
        zellige.convert(tmp_path / "a.npy", store, chunks=2)
    with pytest.raises(ConflictError, match="run the same convert again"):  # another source
        zellige.convert(V2.store, store, path="a")
    zellige.convert(tmp_path / "a.npy", store, chunks=2, overwrite=True)
    assert zellige.load(store).tolist() == list(range(1, 9))


@pytest.mark.parametrize("if_exists", ["raise", "replace", "skip"])
def test_a_copy_store_that_was_stopped_copies_the_source_as_it_is_now(if_exists):
    for number in count(1):
        source, there = MemoryStore(), MemoryStore()
        root = zellige.open_group(source)
        for name in ("a", "b", "gone"):
            root.create_array(name, data=np.full(8, 1), chunks=2)
        try:
            zellige.copy_store(source, CrashingStore(there, at=number))
        except Killed:
            pass
        else:
            break
        del root["gone"]
        root["a"][2:6] = 0
        source.delete(["a/c/1"])
        root.create_array("b", data=np.full((4, 4), 2), chunks=2, overwrite=True)
        zellige.copy_store(source, there, if_exists="raise" if number == 1 else if_exists)
        left = {key: there.get(key) for key in there.list()}
        assert left == {key: source.get(key) for key in source.list()}, number
    assert number > 10


# -- filling an array that is there ---------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_that_was_being_filled_says_so_when_it_is_opened(zarr_format):
    options = {"shape": VALUES.shape, "chunks": (4, 3), "dtype": VALUES.dtype, "zarr_format": zarr_format}
    job = Job(
        lambda store, _: zellige.rechunk(ROWS, zellige.open_array(store, path="g/x")),
        {"g/x": VALUES},
        lambda store: zellige.create_array(store, name="g/x", attributes={"unit": "K"}, **options),
    )
    warned = 0
    for _, store in deaths(job, Path()):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            array = zellige.open_array(store, path="g/x", mode="r")
        complete, empty = np.array_equal(array[...], VALUES), not array[...].any()
        assert [one.category for one in said] == ([UnfinishedWarning] if said else [])
        assert said or complete or empty, "some values are there, and nothing says that others are not"
        if said:
            warned += 1
            assert "run the same rechunk again" in str(said[0].message)
            assert said[0].filename == __file__
            assert "rechunk" in array.info["Unfinished"]
            assert not zellige.validate(store).ok
            assert [done for done, _ in zellige.vacuum(store, unfinished=True).actions] == ["left"]
            with pytest.warns(UnfinishedWarning):
                zellige.open_group(store, mode="r")["g/x"]
            with pytest.warns(UnfinishedWarning):
                assert [name for name, _ in zellige.open_group(store, mode="r").members(max_depth=None)] == ["g", "g/x"]
            with pytest.raises(ConflictError, match="another rechunk"):
                zellige.rechunk(V3["a"], writable(store))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnfinishedWarning)
            job.run(store, Path())
        check_done(store, job)
        found = zellige.open_array(store, path="g/x", mode="r")
        assert found.attrs == {"unit": "K"}
        assert list(found.metadata.extra) == []
    assert warned > 3


def test_zarr_python_does_not_open_an_array_that_is_being_filled():
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    store = MemoryStore()
    zellige.create_array(store, shape=VALUES.shape, chunks=(4, 3), dtype=VALUES.dtype)
    target = zellige.open_array(store)
    with pytest.raises(Killed):
        zellige.rechunk(ROWS, zellige.Array(CrashingStore(store, at=4), "", target.metadata, target.config))
    theirs = zarr.storage.MemoryStore(
        {key: zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(store.get(key)) for key in store.list()}
    )
    with pytest.raises(Exception, match="zellige_unfinished"):
        zarr.open_array(theirs, mode="r")


def writable(store: Store) -> zellige.Array:
    with pytest.warns(UnfinishedWarning):
        return zellige.open_array(store, path="g/x")


# -- processes that are killed --------------------------------------------------------------------

KILLS = 40 if LONG else 3
MANY = counted((60, 40))


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """The same values as files of several formats, in many chunks."""
    folder = tmp_path_factory.mktemp("sources")
    root = zellige.create_group(folder / "v3.zarr")
    root.create_array("a", data=MANY, chunks=(1, 40))
    root.create_array("sub/b", data=MANY, chunks=(60, 1))
    old = zellige.create_group(folder / "v2.zarr", zarr_format=2)
    old.create_array("a", data=MANY, chunks=(1, 40))
    old.create_array("sub/b", data=MANY, chunks=(60, 1))
    np.savez(folder / "many.npz", a=MANY, **{"sub/b": MANY})
    return folder


BOTH = {"a": MANY, "sub/b": MANY}
COMMANDS = {
    "rechunk": (["rechunk", "{from}/v3.zarr/a", "{to}", "--chunks", "20,2", "--memory", "30000"], {"": MANY}, ""),
    "rechunk to a path": (
        ["rechunk", "{from}/v3.zarr/a", "{to}", "--to", "g/x", "--chunks", "2,20"],
        {"g/x": MANY},
        "g/x",
    ),
    "copy": (["copy", "{from}/v3.zarr", "{to}"], BOTH, ""),
    "copy to a path": (["copy", "{from}/v3.zarr", "{to}", "--to", "g"], below("g", BOTH), "g"),
    "convert a file": (["convert", "{from}/many.npz", "{to}", "--chunks", "3"], BOTH, ""),
    "convert format 2": (["convert", "{from}/v2.zarr", "{to}"], BOTH, ""),
}


def count_files(folder: Path) -> int:
    return sum(len(names) for *_, names in os.walk(folder))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_killed_is_finished_by_the_same_command(name, sources, tmp_path):
    given, made, top = COMMANDS[name]
    chance = random.Random(f"{name} {KILLS}")
    for number in range(KILLS):
        target = tmp_path / f"{number}.zarr"
        argv = [part.format(**{"from": sources, "to": target}) for part in given]
        command = [sys.executable, "-m", "zellige", *argv, "-q"]
        wanted = chance.randrange(1, 130)
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while count_files(target) < wanted and running.poll() is None:
            time.sleep(0.0005)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        job = Job(lambda *_: None, made, top=top)
        check_whole(LocalStore(target), job, number)
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        # A command that had ended before it was killed is refused, because its target is there.
        done = running.returncode == 0 or "already" in again.stderr
        assert (again.returncode, again.stderr) == (0, "") or done, again.stderr
        check_done(LocalStore(target), job)
