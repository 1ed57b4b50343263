"""On a cluster of processes: nothing is lost, and what is in the memory of one process is refused."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import zellige
from test_dask import lost_in
from xarray_data import daily, opened
from zellige.dask import AlignmentWarning, from_array, store
from zellige.xarray import write


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as found,
    ):
        yield found


def test_misaligned_stores_on_three_processes_lose_nothing_in_50_runs(client, tmp_path):
    assert len(client.scheduler_info()["workers"]) == 3
    assert lost_in(50, tmp_path, align=True) == 0


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
