"""On a cluster of processes: nothing is lost, on a disk, on S3 or in icechunk; what no worker reaches is refused."""

from __future__ import annotations

import os
import traceback

import dask.array as da
import numpy as np
import pytest
from test_dask import lost_in

import xarray as xr
import zellige
from stores.servers import ENVIRONMENT, s3, s3_process
from xarray_data import daily, opened
from zellige.dask import AlignmentWarning, from_array, store
from zellige.storage import ZipStore
from zellige.xarray import write

__all__ = ["s3", "s3_process"]


def test_misaligned_stores_on_three_processes_lose_nothing_in_20_runs(client, tmp_path):
    assert len(client.scheduler_info()["workers"]) == 3
    assert lost_in(20, tmp_path, align=True) == 0


def test_neither_do_blocks_that_share_chunks(client, tmp_path):
    assert lost_in(10, tmp_path, align=False) == 0


def test_memory_of_this_process_is_refused(client):
    for place in (None, {}, zellige.MemoryStore()):
        with pytest.raises(ValueError, match="memory of this process"):
            store(da.ones(4), place)
    with pytest.raises(ValueError, match="memory of this process"):
        from_array(zellige.array([1, 2]))
    target = zellige.MemoryStore()
    with pytest.raises(ValueError, match="memory of this process"):
        write(daily(end="2021-01-10").chunk(time=5), target)
    assert list(target.list()) == []


def test_a_dataset_is_written_appended_to_and_read(client, tmp_path):
    write(daily(end="2021-02-28").chunk(time=(31, 28)), tmp_path, chunks={"time": "month"})
    with pytest.warns(AlignmentWarning):
        write(daily("2021-03-01", "2021-03-31").chunk(time=10), tmp_path, append_dim="time", chunks={"time": "month"})
    later = write(daily("2021-04-01", "2021-04-30").chunk(time=(30,)), tmp_path, append_dim="time", compute=False)
    assert opened(tmp_path).sizes["time"] == 90
    later.compute()
    found = opened(tmp_path, chunks={})
    assert found["t"].chunksizes["time"] == (31, 28, 31, 30)
    xr.testing.assert_identical(found.compute(), daily(end="2021-04-30"))
    assert np.array_equal(from_array(tmp_path / "t").compute(), found["t"])


# -- places ---------------------------------------------------------------------------------------


def set_environment(names):
    os.environ.update(names)


class Folder:
    """A directory."""

    options = None

    def __init__(self, tmp_path, _client, _s3):
        self.place = str(tmp_path / "x.zarr")

    def commit(self):
        """All see what was written."""


class Bucket(Folder):
    """A place on S3; the workers find credentials in their environment."""

    def __init__(self, _tmp_path, client, s3):
        self.place, self.options = s3.url(), s3.options
        client.run(set_environment, ENVIRONMENT)


class Icechunk(Folder):
    """A session of icechunk, committed and begun anew."""

    def __init__(self, tmp_path, _client=None, _s3=None):
        icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed")
        icechunk.set_logs_filter("error")
        self.repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")))
        self.session = self.repository.writable_session("main")

    @property
    def place(self):
        return self.session.store

    def commit(self):
        self.session.commit("more")
        self.session = self.repository.writable_session("main")


PLACES = pytest.mark.parametrize("kind", [Folder, Bucket, Icechunk])


@PLACES
@pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning")
def test_blocks_of_any_size_are_created_and_put_into_a_region(kind, client, tmp_path, s3):
    there = kind(tmp_path, client, s3)
    options = {"storage_options": there.options}
    x = da.from_array(np.arange(400), chunks=((90, 7, 203, 100),))
    array = store(x, there.place, name="a", chunks=30, **options)
    assert np.array_equal(array[:], np.arange(400))
    there.commit()
    array = zellige.open_array(there.place, path="a", mode="r+", **options)
    assert store(-x[45:371], array, region=[slice(45, 371)]) is array
    there.commit()
    found = zellige.open_array(there.place, path="a", mode="r", **options)
    model = np.arange(400)
    model[45:371] *= -1
    assert np.array_equal(found[:], model)


@PLACES
@pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning")
def test_a_dataset_is_written_appended_to_and_changed(kind, client, tmp_path, s3):
    there = kind(tmp_path, client, s3)
    options = {"storage_options": there.options}
    write(daily(end="2021-01-25").chunk(time=10), there.place, consolidated=False, **options)
    there.commit()
    more = daily("2021-01-26", "2021-03-05").chunk(time=(7, 19, 13))
    write(more, there.place, append_dim="time", consolidated=False, **options)
    there.commit()
    expected = daily(end="2021-03-05")
    xr.testing.assert_identical(opened(there.place, **options), expected)
    part = (expected.isel(time=slice(4, 47)) * -1).chunk(time=9)
    write(part, there.place, region="auto", **options)
    there.commit()
    expected.t[4:47] *= -1
    expected["mean"][4:47] *= -1
    found = opened(there.place, **options)
    xr.testing.assert_identical(found, expected)
    assert zellige.open_array(there.place, path="t", mode="r", **options).chunks == (10, 3)


def test_a_worker_that_cannot_open_the_array_says_why(client, tmp_path):
    array = zellige.create_array(tmp_path, shape=40, chunks=10, dtype="i8")
    later = store(da.arange(40, chunks=10), array, compute=False)
    (tmp_path / "zarr.json").unlink()
    with pytest.raises(zellige.errors.ArrayNotFoundError):
        later.compute()


# -- transactions ---------------------------------------------------------------------------------


def test_a_session_that_cannot_be_forked_or_merged_is_refused_and_unchanged(client, tmp_path):
    there = Icechunk(tmp_path)
    x = da.arange(40, chunks=7)
    with pytest.raises(ValueError, match=r"compute=False.*transaction"):
        store(x, there.place, name="a", compute=False)
    with pytest.raises(ValueError, match=r"align=False.*one chunk"):
        store(x, there.place, name="a", chunks=10, align=False)
    with pytest.raises(ZeroDivisionError):
        store(x.map_blocks(lambda block: 1 // 0, dtype=int), there.place, name="a", chunks=7)
    assert not there.session.has_uncommitted_changes
    zellige.create_array(there.place, name="a", shape=40, chunks=10, dtype="i8")
    with pytest.raises(ValueError, match="uncommitted changes"):
        store(x, zellige.open_array(there.place, path="a"))


def test_what_was_planned_in_this_process_is_not_lost_in_others(cluster, tmp_path):
    there = Icechunk(tmp_path)
    later = store(da.arange(40, chunks=10), there.place, name="a", compute=False)
    with cluster.as_current(), pytest.raises(TypeError) as caught:
        later.compute()
    assert "transaction of this process" in "".join(traceback.format_exception(caught.value))
    later.compute()
    assert np.array_equal(zellige.open_array(there.place, path="a")[:], np.arange(40))


def test_an_archive_is_written_by_one_process(client, tmp_path):
    with (
        ZipStore(tmp_path / "a.zip", mode="w") as archive,
        pytest.raises(TypeError, match="written by one process"),
    ):
        store(da.arange(40, chunks=10), archive)
    for place in (tmp_path / "b.zip", str(tmp_path / "b.zip")):
        with pytest.raises(TypeError, match="written by one process; write to another store, or without a cluster"):
            store(da.arange(40, chunks=10), place)
    assert [found.name for found in tmp_path.iterdir()] == ["a.zip"]


# -- progress -------------------------------------------------------------------------------------


def test_a_bar_shows_what_the_cluster_has_done(client, tmp_path, capsys):
    write(daily(end="2021-01-25").chunk(time=10), tmp_path / "a", progress=True)
    store(da.arange(40, chunks=10), tmp_path / "b", progress=True)
    assert capsys.readouterr().out.count("100% Completed") >= 2
