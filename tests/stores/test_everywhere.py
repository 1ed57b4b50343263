"""Arrays and groups on every store, opened as users open it: by a URL, a path, or an object of another library."""

from __future__ import annotations

import inspect
import os
import re
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import fsspec
import numpy as np
import obstore.store
import pandas as pd
import pytest
import zarr.storage
from node_laws import MODEL, RECTILINEAR, check_arrays, check_groups

import xarray as xr
import zellige
import zellige.dask
import zellige.xarray
from xarray_data import opened
from zellige.errors import ZelligeWarning
from zellige.storage import LatencyStore, LoggingStore, PrefixStore, Store, WrapperStore, ZipStore
from zellige.stores import resolve
from zellige.stores.abilities import Batches, DecodedChunks, Folders, Forks
from zellige.stores.zip import Draft


@dataclass
class Place:
    """What a user passes as `store`, with its options, and which arrays it cannot hold."""

    given: Any
    options: dict[str, Any] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    """Kinds of arrays, as `node_laws` names them."""

    def node(self, mode: str = "r+", **more: Any) -> Any:
        """What is opened there."""
        return zellige.open(self.given, mode=mode, **self.options, **more)


def icechunk_place() -> Place:
    icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed")
    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    # icechunk 1 has no rectilinear grids; neither holds Zarr format 2.
    old = int(icechunk.__version__.split(".")[0]) < 2
    return Place(session.store, without=frozenset({"v2"} | (RECTILINEAR if old else set())))


PLACES: dict[str, Callable[[Any], Place]] = {
    "dict": lambda _: Place({}),
    "memory URL": lambda _: Place(f"memory://{uuid.uuid4()}"),
    "path": lambda request: Place(str(request.getfixturevalue("tmp_path") / "x.zarr")),
    "file URL": lambda request: Place(f"file://{request.getfixturevalue('tmp_path')}/x.zarr"),
    "zip": lambda request: Place(str(request.getfixturevalue("tmp_path") / "x.zip")),
    "obstore memory": lambda _: Place(obstore.store.MemoryStore()),
    "obstore local": lambda request: Place(
        obstore.store.LocalStore(request.getfixturevalue("tmp_path") / "x", mkdir=True)
    ),
    "s3": lambda request: Place((s3 := request.getfixturevalue("s3")).url(), {"storage_options": s3.options}),
    "fsspec URL": lambda _: Place(f"fsspec+memory://{uuid.uuid4()}"),
    "fsspec file system": lambda _: Place(
        fsspec.filesystem("dir", path=f"/{uuid.uuid4()}", fs=fsspec.filesystem("memory"))
    ),
    "fsspec mapper": lambda _: Place(fsspec.get_mapper(f"memory://{uuid.uuid4()}")),
    "zarr-python memory": lambda _: Place(zarr.storage.MemoryStore()),
    "zarr-python local": lambda request: Place(zarr.storage.LocalStore(request.getfixturevalue("tmp_path") / "x")),
    "icechunk": lambda _: icechunk_place(),
}


@pytest.fixture(params=PLACES)
def place(request) -> Place:
    return PLACES[request.param](request)


# -- nodes ------------------------------------------------------------------------------------------


def test_arrays_and_groups_come_back(place):
    without = set(place.without)
    with zellige.open_group(place.given, mode="a", **place.options) as root:
        check_arrays(root.store, without=without)
        check_groups(root.store)
    found = place.node("r").store
    assert found.read_only
    check_arrays(found, written=True, without=without)
    check_groups(found, written=True)


def test_a_hierarchy_is_changed_checked_and_consolidated(place):
    with zellige.open_group(place.given, mode="w", **place.options) as root:
        for name, options in (("t", {"chunks": (5, 7)}), ("s", {"chunks": (2, 3), "shards": (10, 12)})):
            root.create_array(f"a/{name}", data=MODEL, **options).attrs["unit"] = "K"
        root["a/t"].append(MODEL[:3])
        root["a/s"].resize((11, 31))
        root.create_array("gone", data=MODEL)
        del root["gone"]
        zellige.consolidate_metadata(root.store)
    report = zellige.validate(place.given, deep=True, **place.options)
    assert report.ok, str(report)
    found = zellige.open_consolidated(place.given, mode="r", **place.options)
    assert [name for name, _ in found.members(max_depth=None)] == ["a", "a/s", "a/t"]
    assert np.array_equal(found["a/t"][...], np.concatenate([MODEL, MODEL[:3]]))
    assert np.array_equal(found["a/s"][...], MODEL[:11])
    assert found["a/s"].attrs["unit"] == "K"


def test_values_are_copied_here_and_back_and_cut_anew(place, tmp_path):
    regular = {"chunks": (5, 7)}
    cut = regular if "rectilinear" in place.without else {"chunks": [[3, 10, 10], [30, 1]]}
    here = zellige.open_group(tmp_path / "here.zarr", mode="w")
    here.create_array("a/t", data=MODEL, attributes={"unit": "K"}, **cut)
    with zellige.open_group(place.given, mode="w", **place.options) as root:
        assert zellige.copy_all(here, root)[:2] == (2, 0)
        anew = zellige.rechunk(root["a/t"], root.store, chunks=(4, 31), name="a/anew")
        assert np.array_equal(anew[...], MODEL)
    back = zellige.open_group(tmp_path / "back.zarr", mode="w")
    source = place.node("r")
    zellige.copy_all(source, back)
    assert not zellige.diff(here["a/t"], back["a/t"])
    assert back["a/anew"].chunks == (4, 31)
    assert np.array_equal(back["a/anew"][...], MODEL)


def test_what_is_saved_is_there(place):
    zellige.save(place.given, MODEL, path="one", **place.options)
    zellige.save(place.given, MODEL[0], named=MODEL[1], path="more", **place.options)
    assert np.array_equal(zellige.load(place.given, path="one", **place.options), MODEL)
    found = zellige.load(place.given, path="more", **place.options)
    assert {name: values.tolist() for name, values in found.items()} == {
        "arr_0": MODEL[0].tolist(),
        "named": MODEL[1].tolist(),
    }


def days(start: str, count: int) -> xr.Dataset:
    time = pd.date_range(start, periods=count)
    return xr.Dataset(
        {"t": (("time", "x"), np.full((count, 2), float(count))), "n": ("time", np.arange(count))}, {"time": time}
    )


@pytest.mark.parametrize("group", [None, "a/b"])
def test_a_dataset_is_created_appended_to_and_added_to(place, group):
    def write(ds: Any, **options: Any) -> Any:
        return ds.zellige.write(place.given, group=group, **options, **place.options)

    def read() -> xr.Dataset:
        return opened(place.given, group=group, **place.options).load()

    cut = {} if "rectilinear" in place.without else {"chunks": {"time": "month"}}
    first, second = days("2021-01-01", 40), days("2021-02-10", 30)
    write(first, **cut)
    write(second, append_dim="time")
    whole = xr.concat([first, second], "time")
    xr.testing.assert_identical(read(), whole)
    before = read()
    with pytest.raises(ValueError, match="would be left shorter"):
        write(second.drop_vars("n"), append_dim="time")
    broken = days("2021-03-12", 4)
    broken["t"] = broken.t.chunk().map_blocks(lambda _: 1 / 0, template=broken.t.chunk())
    with pytest.raises(ZeroDivisionError):
        write(broken, append_dim="time")
    xr.testing.assert_identical(read(), before)
    write(whole[["n"]].rename(n="m").drop_vars("time"), mode="a")
    xr.testing.assert_identical(read(), whole.assign(m=whole.n))
    write(days("2021-03-12", 4).assign(m=("time", [1, 2, 3, 4])), append_dim="time")
    assert read().m.values[-4:].tolist() == [1, 2, 3, 4]
    report = zellige.validate(place.given, deep=True, **place.options)
    assert report.ok, str(report)


# -- wrappers ---------------------------------------------------------------------------------------

WRAPPERS: dict[str, Callable[[Store], Store]] = {
    "wrapper": WrapperStore,
    "prefix": lambda inner: PrefixStore(inner, "a/b"),
    "logging": LoggingStore,
    "latency": lambda inner: LatencyStore(inner, 0),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapper_keeps_the_promises_of_the_store_inside(place, wrap):
    inner = resolve(place.given, **place.options)
    store = wrap(inner)
    promised = ("transactional", "optimistic", "durability", "read_only")
    assert {name: getattr(store.traits, name) for name in promised} == {
        name: getattr(inner.traits, name) for name in promised
    }
    for kind in (Folders, Forks, Batches, DecodedChunks):
        assert (store.ability(kind) is None) == (inner.ability(kind) is None)
    root = zellige.create_group(store)
    array = root.create_array("t", data=MODEL, chunks=(5, 7))
    array[3:8, 4:9] = 0  # parts of chunks
    array.resize((11, 20))  # deletes below prefixes
    root.create_array("gone", data=MODEL)
    del root["gone"]  # detaches, deletes and prunes
    expected = MODEL[:11, :20].copy()
    expected[3:8, 4:9] = 0
    top = "a/b/" if isinstance(store, PrefixStore) else ""
    assert np.array_equal(zellige.open_array(inner, path=f"{top}t")[...], expected)
    assert inner.list_dir(top) == ([f"{top}zarr.json"], [f"{top}t/"])
    inner.__exit__(ValueError, None, None)  # a zip file that is not to be


def fail_after(work: Callable[[], object]) -> None:
    work()
    raise RuntimeError("mine")


def test_a_wrapper_around_an_archive_drops_what_came_before_an_exception(tmp_path):
    path = tmp_path / "x.zip"
    with pytest.raises(RuntimeError, match="mine"), WrapperStore(resolve(path)) as store:
        fail_after(lambda: store.put("k", b"1"))
    assert not path.exists()
    with WrapperStore(resolve(path)) as store:
        store.put("k", b"1")
    assert resolve(path, read_only=True).get("k") == b"1"


# -- archives ---------------------------------------------------------------------------------------


def test_an_archive_is_written_when_the_block_of_its_handle_ends(tmp_path):
    path = tmp_path / "x.zip"
    with zellige.open(path, mode="w", shape=4, dtype="i4", chunks=2) as a:
        a[:] = 7
        assert not path.exists()
    assert zellige.load(path).tolist() == [7] * 4
    with pytest.raises(RuntimeError, match="mine"), zellige.open(path, mode="r+") as a:
        fail_after(lambda: a.__setitem__(0, 8))
    assert zellige.load(path).tolist() == [7] * 4


def test_an_archive_that_was_only_read_need_not_be_closed(tmp_path, recwarn):
    path = str(tmp_path / "x.zip")
    zellige.save(path, MODEL)
    a = zellige.open(path)  # which could be written to
    assert np.array_equal(a[...], MODEL)
    del a
    assert [str(found.message) for found in recwarn] == []
    a = zellige.open(path)
    a[0] = 0
    with pytest.warns(ZelligeWarning, match=r"not closed.*with zellige\.open"):
        del a
    assert np.array_equal(zellige.load(path), MODEL)


def _change(place: Any) -> None:
    with zellige.change(place) as change:
        change.create_array("t", data=MODEL, chunks=(5, 7))


JOBS: dict[str, Callable[[str, Any], Any]] = {
    "change": lambda here, place: _change(place),
    "convert": lambda here, place: zellige.convert(f"{here}/t.npy", place, name="t", chunks=(5, 7)),
    "copy": lambda here, place: zellige.copy(f"{here}/t", place, "t"),
    "copy_all": lambda here, place: zellige.copy_all(here, place),
    "copy_store": lambda here, place: zellige.copy_store(f"{here}/t", place, dest_path="t"),
    "rechunk": lambda here, place: zellige.rechunk(f"{here}/t", place, name="t", chunks=(3, 4)),
    "save": lambda here, place: zellige.save(place, MODEL, path="t"),
    "save_array": lambda here, place: zellige.save_array(place, MODEL, path="t"),
    "save_group": lambda here, place: zellige.save_group(place, t=MODEL),
    "dask.store": lambda here, place: zellige.dask.store(da.from_array(MODEL, chunks=(5, 7)), place, name="t"),
    "dask.store later": lambda here, place: zellige.dask.store(
        da.from_array(MODEL, chunks=(5, 7)), place, name="t", compute=False
    ).compute(),
}
"""Functions that do a whole job at a place, each of which puts the model to the path `t`."""

IN_PLACE = {"consolidate_metadata", "migrate", "repair", "vacuum"}
"""Functions that change what is there; see the next tests."""

HANDLES = {"array", "create", "create_array", "create_group", "create_hierarchy", "empty", "empty_like", "from_array"}
HANDLES |= {"full", "full_like", "group", "ones", "ones_like", "open", "open_array", "open_consolidated", "open_group"}
HANDLES |= {"open_like", "zeros", "zeros_like"}
"""Functions that give back an open handle: an archive is complete when its block ends."""

READING = {"diff", "load", "tree", "validate"}


def test_every_function_that_takes_a_place_is_in_one_of_these_lists():
    ways = {name.split(".")[0].split()[0] for name in JOBS} | IN_PLACE | HANDLES | READING
    taking = set()
    for name in zellige.__all__:
        function = getattr(zellige, name)
        if callable(function) and not isinstance(function, type):
            given = inspect.signature(function).parameters
            options = any(one.kind is one.VAR_KEYWORD for one in given.values())
            if options or {"store", "dest", "dst", "source", "grp", "a"} & given.keys():
                taking.add(name)
    assert taking - ways - {"concat", "stack"} == set()


@pytest.fixture
def here(tmp_path) -> str:
    """A group with the model at `t`, and beside it a file of numpy."""
    zellige.save_group(tmp_path / "here.zarr", t=MODEL)
    np.save(tmp_path / "here.zarr" / "t.npy", MODEL)
    return str(tmp_path / "here.zarr")


GIVEN: dict[str, Callable[[Path], Any]] = {"text": str, "path": Path, "URL": Path.as_uri}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("work", JOBS)
def test_a_whole_job_leaves_a_complete_archive(tmp_path, here, work, given):
    place = GIVEN[given](tmp_path / "x.zip")
    found = JOBS[work](here, place)
    assert zipfile.ZipFile(tmp_path / "x.zip").testzip() is None
    assert np.array_equal(zellige.load(tmp_path / "x.zip", path="t"), MODEL)
    if isinstance(found, zellige.Array):
        assert np.array_equal(found[...], MODEL), "the handle that is given back can be read"
        assert found.read_only
    assert sorted(os.listdir(tmp_path)) == ["here.zarr", "x.zip"], "no draft is left"


@pytest.mark.parametrize("work", JOBS)
def test_a_whole_job_keeps_what_is_in_an_archive(tmp_path, here, work):
    zellige.save_group(tmp_path / "x.zip", other=[1, 2, 3])
    JOBS[work](here, tmp_path / "x.zip")
    assert zellige.load(tmp_path / "x.zip", path="other").tolist() == [1, 2, 3]
    assert np.array_equal(zellige.load(tmp_path / "x.zip", path="t"), MODEL)


@pytest.mark.parametrize("work", sorted(JOBS.keys() - {"dask.store later"}))
def test_a_whole_job_that_fails_leaves_an_archive_as_it_was(tmp_path, here, work, monkeypatch):
    zellige.save_group(tmp_path / "x.zip", other=[1, 2, 3])
    before = (tmp_path / "x.zip").read_bytes()
    puts = []

    def fail(*_given):
        puts.append(1)
        raise OSError("no space")

    monkeypatch.setattr(Draft, "add", fail)
    with pytest.raises(OSError, match="no space"):
        JOBS[work](here, tmp_path / "x.zip")
    monkeypatch.undo()
    assert puts
    assert (tmp_path / "x.zip").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["here.zarr", "x.zip"], "no draft is left"


@pytest.mark.parametrize("work", JOBS)
def test_a_store_that_is_given_stays_open(tmp_path, here, work):
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        JOBS[work](here, store)
        zellige.create_array(store, name="more", data=[1, 2, 3])
        assert not (tmp_path / "x.zip").exists()
    assert np.array_equal(zellige.load(tmp_path / "x.zip", path="t"), MODEL)
    assert zellige.load(tmp_path / "x.zip", path="more").tolist() == [1, 2, 3]


@pytest.mark.parametrize("given", GIVEN)
def test_consolidating_an_archive_completes_it(tmp_path, given):
    zellige.save_group(tmp_path / "x.zip", t=MODEL)
    found = zellige.consolidate_metadata(GIVEN[given](tmp_path / "x.zip"))
    assert np.array_equal(found["t"][...], MODEL)
    assert list(zellige.open_consolidated(tmp_path / "x.zip", mode="r")) == ["t"]


def test_a_job_that_is_opened_by_name_is_closed_and_another_one_is_not(tmp_path):
    with zellige.storage.opened(tmp_path / "x.zip", path="t") as place:
        zellige.create_array(place, data=MODEL)
        assert not (tmp_path / "x.zip").exists()
    assert np.array_equal(zellige.load(tmp_path / "x.zip", path="t"), MODEL)
    with pytest.raises(RuntimeError, match="mine"), zellige.storage.opened(tmp_path / "y.zip") as place:
        fail_after(partial(zellige.create_array, place, data=MODEL))
    assert not (tmp_path / "y.zip").exists()
    with ZipStore(tmp_path / "z.zip", mode="w") as store:
        with zellige.storage.opened(store) as place:
            zellige.create_array(place, data=MODEL)
        store.put("more", b"")
    assert ZipStore(tmp_path / "z.zip").get("more") == b""


def test_an_archive_is_mended_and_migrated_in_its_place(tmp_path):
    path = str(tmp_path / "x.zip")
    zellige.save(path, MODEL, zarr_format=2, chunks=(5, 7))
    zellige.migrate(path, dry_run=False)
    assert zellige.open(path, mode="r").metadata.zarr_format == 3
    with resolve(path) as store:
        store.put("9.9", b"beyond the end")
        store.put("0.0", b"nonsense")
    assert len(zellige.vacuum(path).actions) == 1
    assert len(zellige.repair(path, dry_run=False).actions) == 1
    left = {finding.kind for finding in zellige.validate(path, deep=True).findings}
    assert left.isdisjoint({"chunk", "outside"})
    assert (zellige.load(path)[:5, :7] == 0).all()


def test_the_documentation_of_object_stores_is_true(s3):
    page = Path(__file__).parents[2] / "docs/stores.md"
    (block,) = re.findall(r"^```py\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    for name, ours in (("http://127.0.0.1:9000", s3.endpoint), ("s3://bucket/tides.zarr", s3.url())):
        assert name in block
        block = block.replace(name, ours)
    exec(block, {"zellige": zellige, "a": zellige.array(np.arange(59))})


def test_an_archive_on_a_server_is_read(s3, tmp_path):
    zellige.save(tmp_path / "x.zip", MODEL, chunks=(5, 7))
    place = s3.url().removesuffix("/x.zarr")
    resolve(place, storage_options=s3.options).put("x.zip", (tmp_path / "x.zip").read_bytes())
    s3.log()
    a = zellige.open(f"{place}/x.zip", mode="r", storage_options=s3.options)
    assert np.array_equal(a[...], MODEL)
    assert all(asked or method == "HEAD" for method, _, asked in s3.log())  # ranges only
    with pytest.raises(zellige.errors.ReadOnlyError):
        zellige.open(f"{place}/x.zip", mode="r+", storage_options=s3.options)[0] = 1
