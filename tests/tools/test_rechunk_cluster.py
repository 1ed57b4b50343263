"""Rechunking on a cluster, and onto stores of all kinds: nothing is lost, also when processes are killed."""

from __future__ import annotations

import _thread
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from test_dask_cluster import PLACES, Icechunk, s3, s3_process

import zellige
from zellige.nodes.remove import WORK
from zellige.storage import LatencyStore, LocalStore, ZipStore
from zellige.tools import rechunk as rechunking

__all__ = ["s3", "s3_process"]

VALUES = (np.arange(48 * 48) * 7 + 1).reshape(48, 48)
ROWS_TO_COLUMNS = {"chunks": (48, 2), "max_memory": 7000}  # too little for the direct way
DIRECT = {"chunks": (6, 16), "max_memory": "1 MB"}


def left_by(folder):
    """What is left of a rechunk that was not finished."""
    return sorted((folder / WORK).rglob("*")) if (folder / WORK).exists() else []


@pytest.fixture
def source(tmp_path):
    return zellige.create_array(tmp_path / "source", data=VALUES, chunks=(2, 48), attributes={"unit": "K"})


# -- on a cluster ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [DIRECT, ROWS_TO_COLUMNS, {"chunks": (4, 2), "shards": (8, [10, 30, 8])}])
def test_workers_carry_all_boxes_and_tell_so(how, client, source, tmp_path):
    seen = []
    target = zellige.rechunk(
        source, tmp_path / "b", client=client, progress=lambda *found: seen.append(found), **{"max_memory": 8000, **how}
    )
    assert np.array_equal(target[...], VALUES)
    assert target.attrs == {"unit": "K"}
    assert [done for done, _, _ in seen] == list(range(1, seen[-1][1] + 1))
    assert not left_by(tmp_path / "b")


@PLACES
def test_from_one_place_to_another_by_workers(kind, client, tmp_path, s3):
    there = kind(tmp_path, client, s3)
    options = {"storage_options": there.options}
    zellige.create_array(there.place, name="a", data=VALUES, chunks=(2, 48), **options)
    there.commit()
    source = zellige.open_array(there.place, path="a", **options)
    zellige.rechunk(source, there.place, name="b", client=client, **ROWS_TO_COLUMNS, **options)
    there.commit()
    target = zellige.open_array(there.place, path="b", mode="r", **options)
    assert target.chunks == (48, 2)
    assert np.array_equal(target[...], VALUES)
    assert not [key for key in target.store.list("b/") if WORK in key]


def test_an_array_that_is_there_is_filled_by_workers(client, source, tmp_path):
    there = Icechunk(tmp_path)
    zellige.create_array(there.place, name="a", shape=(48, 48), dtype=VALUES.dtype, chunks=(48, 2))
    there.commit()
    target = zellige.open_array(there.place, path="a", mode="r+")
    assert zellige.rechunk(source, target, client=client, max_memory="100 kB") is target
    assert np.array_equal(target[...], VALUES)


def test_memory_and_archives_are_refused_before_anything_is_written(client, source, tmp_path):
    memory = zellige.MemoryStore()
    for a, b in ((source, memory), (zellige.array(VALUES), tmp_path / "b")):
        with pytest.raises(ValueError, match="no worker reaches it"):
            zellige.rechunk(a, b, client=client, chunks=6)
    with ZipStore(tmp_path / "b.zip", mode="w") as archive:
        with pytest.raises(TypeError, match="written by one process"):
            zellige.rechunk(source, archive, client=client, chunks=6)
        assert list(archive.list()) == []
    with pytest.raises(TypeError, match="written by one process"):
        zellige.rechunk(source, tmp_path / "c.zip", client=client, chunks=6)
    assert not (tmp_path / "c.zip").exists()
    assert not list(memory.list())
    assert not (tmp_path / "b").exists()


def test_tasks_are_small_and_the_job_goes_to_the_workers_once(tmp_path):
    sizes = np.random.default_rng(3).integers(1, 50, 1000)
    source = zellige.create_array(tmp_path / "a", shape=(int(sizes.sum()),), chunks=[sizes], dtype="i8")

    class Client:
        sent: list[bytes]

        def submit(self, function, *args, **options):
            return "a future"

        def map(self, function, numbers, **options):
            self.sent = [pickle.dumps((function, number, options)) for number in numbers]
            raise KeyboardInterrupt

    client = Client()
    with pytest.raises(KeyboardInterrupt):
        zellige.rechunk(source, tmp_path / "b", chunks=30, max_memory=4000, client=client)
    assert len(client.sent) > 50
    assert max(map(len, client.sent)) < 300


def test_one_process_carries_one_box_at_a_time(source, tmp_path, monkeypatch):
    inside, most = [], []
    real = rechunking._Job.carry

    def carry(job, stage, number):
        inside.append(number)
        most.append(len(inside))
        time.sleep(0.01)
        found = real(job, stage, number)
        inside.pop()
        return found

    monkeypatch.setattr(rechunking._Job, "carry", carry)
    target = zellige.create_array(tmp_path / "b", shape=(48, 48), dtype=VALUES.dtype, chunks=(6, 16))
    model = target, rechunking._Checkpoint(target.store, "", 1 << 20, fresh=True)
    job = rechunking._Job.of(source, *model, (target.store, "m"), by_middle=True)
    threads = [threading.Thread(target=rechunking._carry_there, args=(0, 0, job)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


# -- kills ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [DIRECT | {"max_memory": 9000}, ROWS_TO_COLUMNS], ids=["direct", "by a middle"])
def test_a_worker_is_killed_and_nothing_is_lost(how, client, source, tmp_path):
    victim = next(iter(client.run(os.getpid).values()))
    killed = []

    def kill(done, _total, _region):
        if done == 3:
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    slow = LatencyStore(LocalStore(tmp_path / "b"), latency=0.01)
    target = zellige.rechunk(source, slow, client=client, progress=kill, **how)
    assert killed
    assert np.array_equal(target[...], VALUES)
    assert not left_by(tmp_path / "b")


def test_nothing_is_carried_any_more_when_the_call_returns(client, source, tmp_path):
    victim = next(iter(client.run(os.getpid).values()))

    def kill(done, total, _region):
        if done == total - 1:  # its boxes are done, but dask would let others carry them once more
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: victim not in client.run(os.getpid, on_error="ignore").values())

    slow = LatencyStore(LocalStore(tmp_path / "b"), latency=0.05)
    target = zellige.rechunk(source, slow, client=client, progress=kill, **DIRECT | {"max_memory": 9000})
    target[...] = 0
    wait_for(lambda: not any(client.processing().values()))
    assert not target[...].any()
    assert not left_by(tmp_path / "b")


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


_DRIVER = """
import sys
import zellige
from distributed import Client, LocalCluster
from zellige.storage import LatencyStore, LocalStore

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        slow = LatencyStore(LocalStore(sys.argv[2]), latency=0.02)
        zellige.rechunk(sys.argv[1], slow, chunks=(48, 2), max_memory=7000, client=client)
"""


def test_the_client_is_killed_and_the_same_call_goes_on(cluster, source, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    command = [sys.executable, str(script), str(tmp_path / "source"), str(tmp_path / "b")]
    process = subprocess.Popen(command, env=os.environ, start_new_session=True)
    while sum(path.name.startswith("1.") for path in left_by(tmp_path / "b")) < 3:
        assert process.poll() is None
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)  # its workers, too
    assert process.wait() == -signal.SIGKILL
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "b" / "c").rglob("*") if path.is_file()}
    assert finished
    seen = []
    target = zellige.rechunk(
        source, tmp_path / "b", client=cluster, progress=lambda *found: seen.append(found[2]), **ROWS_TO_COLUMNS
    )
    assert np.array_equal(target[...], VALUES)
    assert "done before" in seen
    assert all(path.stat().st_mtime_ns == then for path, then in finished.items())
    assert not left_by(tmp_path / "b")


# -- without a cluster ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", [DIRECT, ROWS_TO_COLUMNS], ids=["direct", "by a middle"])
def test_onto_an_archive_and_into_a_session_no_marks_are_left(how, source, tmp_path):
    with ZipStore(tmp_path / "b.zip", mode="w") as archive:
        assert np.array_equal(zellige.rechunk(source, archive, **how)[...], VALUES)
    with ZipStore(tmp_path / "b.zip", mode="r") as archive:
        assert np.array_equal(zellige.open_array(archive)[...], VALUES)
        assert not [key for key in archive.list() if WORK in key]
    there = Icechunk(tmp_path)
    target = zellige.rechunk(source, there.place, name="a", **how)
    assert np.array_equal(target[...], VALUES)
    with pytest.raises(zellige.errors.ContainsArrayError):
        zellige.rechunk(source, there.place, name="a", **how)
    assert np.array_equal(zellige.rechunk(target, there.place, name="b", **how)[...], VALUES)


def test_requests_in_flight_are_part_of_the_memory(source, tmp_path):
    """Of 64 threads that wait for a store, those wait whose chunks fit into a quarter of the memory."""
    slow = LatencyStore(LocalStore(tmp_path / "source"), latency=0.001, concurrency=64)
    remote = zellige.open_array(slow)
    chunk = 2 * 48 * 8
    for memory, most in ((200 * chunk, 50), (40 * chunk, 10), (2000 * chunk, 64)):
        _, limits = rechunking._plan(remote, source, memory, by_middle=True)
        assert limits.requests == most
    seen = []

    class Counting(LatencyStore):
        def read(self, key, spans=None):
            seen.append(_thread._count())
            return super().read(key, spans)

    before = _thread._count()
    counted = zellige.open_array(Counting(LocalStore(tmp_path / "source"), latency=0.001, concurrency=64))
    target = zellige.rechunk(counted, None, chunks=(6, 16), max_memory=40 * chunk)
    assert np.array_equal(target[...], VALUES)
    assert 1 < max(seen) - before <= 10  # one of them renews the lease of the target
