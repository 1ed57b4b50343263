"""Threads: used for large plans, joined afterwards, stopped by the first error; nothing is lost among them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import strategies as ours
import zellige
from counting_store import CountingStore
from zellige import pool
from zellige.stores import LocalStore, MemoryStore

CHUNKS = 64
SHAPE, CHUNK = (CHUNKS * 64, 1024), (64, 1024)  # 256 KiB a chunk: enough for threads to be used


def workers(count: int) -> Any:
    return zellige.config.set({"threading.max_workers": count})


def large(before: Callable[[str, str], None] | None = None) -> tuple[zellige.Array, np.ndarray, CountingStore]:
    """An array of many chunks on a store with a hook, which is set when all is written."""
    model = ours.counted(SHAPE)
    store = CountingStore()
    array = zellige.create_array(store, data=model, chunks=CHUNK)
    store.before = before
    return array, model, store.reset()


def run_threads(count: int, work: Callable[[int], None]) -> None:
    """Run the work at the same time in several threads; the first exception is raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(10)
            work(number)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# -- how threads are used -------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_result_is_the_same_for_any_number_of_workers(count):
    with workers(count):
        array, model, store = large()
        assert np.array_equal(array[...], model)
        assert np.array_equal(array[::-3, 5:7], model[::-3, 5:7])
        store.reset()
        for target in (array, model):
            target[10:-10, 1:] *= -1
        assert np.array_equal(array[...], model)
        assert sorted(store.keys("put")) == sorted(f"c/{k}/0" for k in range(CHUNKS))


@pytest.mark.parametrize("count", [2, 3])
def test_large_plans_use_all_workers_with_the_caller_among_them(count):
    meeting = threading.Barrier(count)
    met = threading.local()

    def meet(_method: str, _key: str) -> None:
        if not hasattr(met, "once"):  # broken, and so an error, if fewer threads come
            met.once = meeting.wait(10)

    array, model, store = large(meet)
    before = threading.active_count()
    with workers(count):
        found = array[...]
    assert np.array_equal(found, model)
    threads = {call.thread for call in store.calls}
    assert len(threads) == count
    assert threading.get_ident() in threads
    assert threading.active_count() == before


def test_one_chunk_and_small_plans_stay_in_the_calling_thread():
    array, _, store = large()
    small = CountingStore()
    tiny = zellige.create_array(small, data=np.arange(100), chunks=1)
    with workers(4):
        array[:64]
        tiny[...]
    assert {call.thread for call in store.calls + small.calls} == {threading.get_ident()}


def test_each_task_is_done_once_even_if_no_thread_can_be_started(monkeypatch):
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    array, model, store = large()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with workers(4):
        found = array[...]
    assert np.array_equal(found, model)
    assert len(store.calls) == CHUNKS


def test_the_number_of_workers_is_that_of_the_cpus_unless_set():
    with zellige.config.set({"threading.max_workers": None}):
        assert pool.workers() >= 1
    with workers(7):
        assert pool.workers() == 7


# -- errors ---------------------------------------------------------------------------------------


# Each of four workers begins with its own quarter of the chunks.
@pytest.mark.parametrize("failing", [0, CHUNKS * 3 // 4], ids=["in the caller", "in a helper"])
@pytest.mark.parametrize("error", [OSError("broken disk"), KeyboardInterrupt()], ids=["OSError", "KeyboardInterrupt"])
@pytest.mark.parametrize("writing", [False, True], ids=["read", "write"])
def test_an_error_in_one_worker_surfaces_and_stops_the_others(failing, error, writing):
    failed = threading.Event()

    def fail(_method: str, key: str) -> None:
        if key == f"c/{failing}/0":
            failed.set()
            raise error
        failed.wait(10)
        time.sleep(0.01)  # while the one that failed says so

    array, model, store = large(fail)
    before = threading.active_count()
    act = partial(array.__setitem__, ..., -model) if writing else partial(array.__getitem__, ...)
    with workers(4), pytest.raises(type(error)) as found:
        act()
    assert found.value is error
    assert threading.active_count() == before
    assert len(store.calls) < CHUNKS // 2
    store.before = None
    array[...] = model
    assert np.array_equal(array[...], model)


@pytest.mark.parametrize("error", [OSError("broken disk"), KeyboardInterrupt()], ids=["OSError", "KeyboardInterrupt"])
def test_an_error_surfaces_without_threads(error):
    def fail(_method: str, key: str) -> None:
        if key == "c/1/0":
            raise error

    array, _, store = large(fail)
    with workers(1), pytest.raises(type(error)) as found:
        array[...]
    assert found.value is error
    assert store.keys() == ["c/0/0"]


# -- several threads at one array -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.parametrize("chain", [{}, {"compressors": None}], ids=["zstd", "raw"])
def test_threads_that_write_parts_of_the_same_chunks_lose_nothing(kind, chain, tmp_path):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    array = zellige.create_array(store, shape=(50, 8), chunks=([20, 30], 8), dtype="int32", **chain)

    def write(number: int) -> None:
        mine = zellige.open(store, mode="r+")
        for row in range(50):
            mine[row, number] = 100 * row + number + 1

    run_threads(8, write)
    assert np.array_equal(array[...], np.add.outer(100 * np.arange(50), np.arange(1, 9)))


def test_plans_with_threads_inside_threads_lose_nothing():
    array, model, _ = large()

    def write(number: int) -> None:
        array[:, number::8] = -model[:, number::8]

    with workers(3):
        run_threads(8, write)
    assert np.array_equal(array[...], -model)


def test_appends_from_several_threads_all_arrive():
    store = MemoryStore()
    array = zellige.create_array(store, shape=(0,), chunks=[[3]], dtype="int64", chunk_grid="rectilinear")

    def append(number: int) -> None:
        mine = zellige.open(store, mode="r+")
        for k in range(10):
            mine.append([number * 10 + k] * 2)

    run_threads(8, append)
    array.refresh()
    found = array[...].reshape(-1, 2)
    assert (found[:, 0] == found[:, 1]).all()
    assert sorted(found[:, 0].tolist()) == list(range(80))


def test_attributes_from_several_threads_all_arrive():
    array = zellige.zeros(1)
    run_threads(8, lambda k: array.attrs.update({f"{k}": k, f"{k} again": k}))
    array.refresh()
    assert len(array.attrs) == 16
