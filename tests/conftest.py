"""For all tests: nobody asks the metadata service of the machine for credentials, nor do the processes they start."""

import gc
import os
import signal

import pytest

os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as under nohup, where no interrupt would come
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def cluster():
    """Three processes of dask; they are what dask computes on only for those who ask for `client`.

    They use a quarter of a CPU when they have nothing to do, so that they end with the tests of a file.
    """
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0") as found,
        distributed.Client(found, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(cluster):
    """The client of three processes, on which dask computes in this test."""
    cluster.wait_for_workers(3)
    with cluster.as_current():
        yield cluster


def pytest_collection_finish() -> None:
    """Tens of thousands of tests are there for good: collecting garbage need not look at them again and again."""
    gc.collect()
    gc.freeze()
