"""Threads: used for large plans, joined afterwards, stopped by the first error; nothing is lost among them."""

from __future__ import annotations

import _thread
import gc
import importlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import ref

import numpy as np
import pytest

import strategies as ours
import zellige
from counting_store import CountingStore
from running import run_threads, settled
from zellige.stores import LocalStore, MemoryStore, locks
from zellige.stores import threads as team

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


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    """Without the kernel, which has threads of its own."""
    monkeypatch.setattr("zellige.kernel.native", None)


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
    before = _thread._count()
    with workers(count):
        found = array[...]
    assert np.array_equal(found, model)
    threads = {call.thread for call in store.calls}
    assert len(threads) == count
    assert threading.get_ident() in threads
    assert settled(before)


def test_one_chunk_and_small_plans_stay_in_the_calling_thread():
    array, _, store = large()
    small = CountingStore()
    tiny = zellige.create_array(small, data=np.arange(100), chunks=1)
    with workers(4):
        array[:64]
        tiny[...]
    assert {call.thread for call in store.calls + small.calls} == {threading.get_ident()}


def test_each_task_is_done_once_even_if_no_thread_can_be_started(monkeypatch):
    def refuse(_function: object, _args: object) -> None:
        raise RuntimeError("can't start new thread")

    array, model, store = large()
    monkeypatch.setattr(team, "start_new_thread", refuse)
    with workers(4):
        found = array[...]
    assert np.array_equal(found, model)
    assert len(store.calls) == CHUNKS


def test_a_helper_that_dies_before_it_begins_is_not_waited_for(monkeypatch):
    """As one does for whose first call there is no memory."""
    array, model, _ = large()
    monkeypatch.setattr(team, "_MOMENT", 0.01)
    monkeypatch.setattr(team, "start_new_thread", lambda *_: 1)
    with workers(3):
        assert np.array_equal(array[...], model)


def test_a_helper_that_begins_when_all_is_over_does_nothing(monkeypatch):
    late: list[Any] = []
    monkeypatch.setattr(team, "_MOMENT", 0.01)
    monkeypatch.setattr(team, "start_new_thread", lambda run, given: late.append((run, given)))
    done: list[int] = []

    def work(task: int) -> None:
        done.append(task)
        if task == 3:
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        team.run(work, range(9), 9, team.Crew(3))
    for run, given in late:
        ended = _thread.allocate_lock()
        ended.acquire()
        _thread.start_new_thread(lambda run=run, given=given, ended=ended: (run(*given), ended.release()), ())
        assert ended.acquire(timeout=60)
    assert (len(late), done) == (2, [0, 1, 2, 3])


def test_a_thread_that_waits_for_a_store_may_have_helpers_of_its_own():
    """Ranges of one value are asked for at the same time, also where many values are read; never by more than may."""
    busy, most, lock = 0, 0, threading.Lock()
    meeting = threading.Barrier(6)
    inner_crew = team.Crew(6, "store")

    def request(_: int) -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        meeting.wait(30)
        with lock:
            busy -= 1

    team.run(lambda _: team.run(request, range(3), 3, inner_crew), range(2), 2, inner_crew)
    assert (busy, most) == (0, 6)


def test_the_number_of_workers_is_that_of_the_cpus_unless_set():
    with zellige.config.set({"threading.max_workers": None}):
        assert team.workers() >= 1
    with workers(7):
        assert team.workers() == 7


# -- how many CPUs there are ----------------------------------------------------------------------

MANY = 1 << 16


def granted(tmp_path: Any, groups: str, files: dict[str, str]) -> int:
    """What control groups grant, by the file that names those of a process, and others with their limits."""
    for path, text in {"self": groups, **files}.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return team._granted(str(tmp_path / "self"), str(tmp_path / "top"))


V2 = {
    "a quota": ("0::/a\n", {"a": "400000 100000"}, 4),
    "a quota of parts": ("0::/a\n", {"a": "250000 100000"}, 3),
    "less than one": ("0::/a\n", {"a": "5000 100000"}, 1),
    "another period": ("0::/a\n", {"a": "100000 50000"}, 2),
    "no limit": ("0::/a\n", {"a": "max 100000"}, MANY),
    "at the top": ("0::/\n", {"": "200000 100000"}, 2),
    "a tighter parent": ("0::/a/b/c\n", {"a": "200000 100000", "a/b/c": "800000 100000"}, 2),
    "a tighter child": ("0::/a/b/c\n", {"a": "800000 100000", "a/b": "max 100000", "a/b/c": "300000 100000"}, 3),
    "a neighbour": ("0::/a/b\n", {"a/c": "100000 100000", "x": "100000 100000"}, MANY),
    "a period of nothing": ("0::/a\n", {"a": "100000 0"}, MANY),
    "nothing in it": ("0::/a\n", {"a": ""}, MANY),
    "something else": ("0::/a\n", {"a": "lots of them"}, MANY),
    "no newline at the end": ("0::/a", {"a": "400000 100000\n"}, 4),
    "a name with a colon": ("0::/a:b/c\n", {"a:b": "400000 100000"}, 4),
}


@pytest.mark.parametrize(("groups", "limits", "expected"), V2.values(), ids=V2)
def test_limits_of_control_groups_count(tmp_path, groups, limits, expected):
    files = {os.path.join("top", path, "cpu.max"): text for path, text in limits.items()}
    assert granted(tmp_path, groups, files) == expected


V1 = {
    "a quota": ("4:cpu,cpuacct:/a\n", {"a": ("400000", "100000")}, 4),
    "no limit": ("4:cpu,cpuacct:/a\n", {"a": ("-1", "100000")}, MANY),
    "by itself": ("4:cpu:/a\n", {"a": ("150000", "100000")}, 2),
    "a tighter parent": ("4:cpuacct,cpu:/a/b\n", {"a": ("100000", "100000"), "a/b": ("900000", "100000")}, 1),
    "of a container that sees itself at the top": ("4:cpu:/docker/x\n", {"": ("300000", "100000")}, 3),
    "among others": ("9:memory:/m\n4:cpu:/a\n1:name=systemd:/s\n0::/u\n", {"a": ("200000", "100000")}, 2),
    "of others": ("9:cpuset:/a\n8:memory:/a\n", {"a": ("200000", "100000")}, MANY),
}


@pytest.mark.parametrize(("groups", "limits", "expected"), V1.values(), ids=V1)
def test_limits_of_older_control_groups_count(tmp_path, groups, limits, expected):
    files = {}
    for path, (quota, period) in limits.items():
        files[os.path.join("top/cpu", path, "cpu.cfs_quota_us")] = quota + "\n"
        files[os.path.join("top/cpu", path, "cpu.cfs_period_us")] = period + "\n"
    assert granted(tmp_path, groups, files) == expected


def test_without_control_groups_there_is_no_limit(tmp_path):
    assert team._granted(str(tmp_path / "self"), str(tmp_path / "top")) == MANY
    assert granted(tmp_path, "", {}) == MANY


def test_the_tightest_limit_is_the_number_of_workers(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    with zellige.config.set({"threading.max_workers": None}):
        for limit, expected in ((3, 3), (8, 8), (MANY, 8)):
            monkeypatch.setattr(team, "_granted", lambda limit=limit: limit)
            assert team.workers() == expected


# -- many callers ---------------------------------------------------------------------------------


@pytest.fixture
def helpers(monkeypatch) -> Iterator[list[int]]:
    """How many helpers there were whenever one began."""
    lock, alive, seen = threading.Lock(), [0], []

    def start(run: Callable[[int], None], args: tuple[int]) -> None:
        def counted(me: int) -> None:
            with lock:
                alive[0] += 1
                seen.append(alive[0])
            run(me)
            with lock:
                alive[0] -= 1

        _thread.start_new_thread(counted, args)

    monkeypatch.setattr(team, "start_new_thread", start)
    before = _thread._count()
    yield seen
    assert settled(before)
    assert alive == [0]
    assert team._helpers.busy == 0


def test_many_callers_share_the_helpers(helpers):
    array, model, written = large()
    begun, all_begun = set(), threading.Event()

    def read(number: int) -> None:
        def wait_for_the_others(_method: str, _key: str) -> None:
            begun.add(number)
            if len(begun) == 16:
                all_begun.set()
            assert all_begun.wait(20)

        mine = zellige.open_array(CountingStore(written.inner))
        mine.store.before = wait_for_the_others
        assert np.array_equal(mine[:: CHUNK[0]], model[:: CHUNK[0]])
        assert len(mine.store.calls) == 1 + CHUNKS

    helpers.clear()
    with workers(4):
        run_threads(16, read)
    assert 1 <= max(helpers) <= 3
    assert np.array_equal(array[...], model)


def test_helpers_that_come_back_are_used_again(helpers):
    array, model, _ = large()
    helpers.clear()
    with workers(4):
        for _ in range(3):
            assert np.array_equal(array[...], model)
    assert len(helpers) == 9


def test_a_caller_works_alone_while_all_helpers_are_at_work(helpers):
    array, model, store = large()
    other, _, calls = large()
    first, found = threading.Lock(), []

    def look(_method: str, _key: str) -> None:
        if first.acquire(blocking=False):
            thread = threading.Thread(target=lambda: found.append(other[...]))
            thread.start()
            thread.join()

    store.before = look
    helpers.clear()
    with workers(2):
        assert np.array_equal(array[...], model)
    assert np.array_equal(found[0], model)
    assert len({call.thread for call in calls.calls}) == 1
    assert helpers == [1]


@pytest.mark.parametrize("error", [OSError("broken disk"), KeyboardInterrupt()], ids=["OSError", "KeyboardInterrupt"])
def test_helpers_come_back_after_errors(error, helpers):
    def fail(_method: str, _key: str) -> None:
        raise error

    array, model, store = large(fail)
    helpers.clear()
    for _ in range(5):
        with workers(4), pytest.raises(type(error)):
            array[...]
        assert team._helpers.busy == 0
    store.before = None
    with workers(4):
        assert np.array_equal(array[...], model)
    assert max(helpers) <= 3


def test_helpers_come_back_if_no_thread_can_be_started(monkeypatch):
    def refuse(_function: object, _args: object) -> None:
        raise RuntimeError("can't start new thread")

    array, model, _ = large()
    monkeypatch.setattr(team, "start_new_thread", refuse)
    with workers(4):
        assert np.array_equal(array[...], model)
    assert team._helpers.busy == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_all_helpers_while_those_of_the_parent_are_at_work():
    started, done = threading.Barrier(5), threading.Event()
    waited = threading.local()

    def wait(_method: str, _key: str) -> None:
        if not hasattr(waited, "once"):
            waited.once = True
            started.wait(10)
            done.wait(10)

    array, model, store = large(wait)
    with workers(4):
        reader = threading.Thread(target=lambda: array[...])
        reader.start()
        started.wait(10)  # the caller and its three helpers
        assert team._helpers.busy == 3
        child = os.fork()
        if not child:
            signal.alarm(20)
            meeting, met = threading.Barrier(4), threading.local()

            def meet(_method: str, _key: str) -> None:
                if not hasattr(met, "once"):
                    met.once = meeting.wait(10)

            store.before = meet
            try:
                right = np.array_equal(array[...], model) and team._helpers.busy == 0
            except BaseException:  # noqa: BLE001 - told by the exit code
                right = False
            os._exit(7 if right else 1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        done.set()
        reader.join()
    assert code == 7
    assert team._helpers.busy == 0


# -- errors ---------------------------------------------------------------------------------------


def test_an_interrupt_while_the_caller_waits_lets_no_chunk_land_after_it():
    array, model, store = large()
    caller, before, begun = threading.get_ident(), _thread._count(), threading.Event()

    def last(_method: str, _key: str) -> None:
        if threading.get_ident() == caller:
            assert begun.wait(120)  # until the other one has a chunk as well
        else:
            begun.set()
            while len(store.calls) < CHUNKS - 1:  # until the caller has done all the others, and waits
                time.sleep(0.001)
            time.sleep(0.05)
            _thread.interrupt_main()
            time.sleep(0.2)

    store.before = last
    with workers(2), pytest.raises(KeyboardInterrupt):
        array[...] = model + 1
    landed = len(store.calls)
    time.sleep(0.3)
    assert len(store.calls) == landed == CHUNKS
    assert settled(before)


def test_an_interrupt_surfaces_although_a_chunk_has_failed_before():
    array, model, store = large()
    caller = threading.get_ident()
    begun, failed = threading.Event(), threading.Event()

    def stop(_method: str, _key: str) -> None:
        if threading.get_ident() != caller:
            assert begun.wait(20)
            failed.set()
            raise OSError("broken disk")
        begun.set()
        assert failed.wait(20)
        time.sleep(0.05)  # until the other has left its chunk
        raise KeyboardInterrupt

    store.before = stop
    with workers(2), pytest.raises(KeyboardInterrupt):
        array[...] = model


@pytest.mark.parametrize("failing", [0, 3], ids=["the first", "among the first"])
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
    before = _thread._count()
    act = partial(array.__setitem__, ..., -model) if writing else partial(array.__getitem__, ...)
    with workers(4), pytest.raises(type(error)) as found:
        act()
    assert found.value is error
    assert settled(before)
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


def test_an_interrupt_just_before_waiting_waits_for_the_helpers_all_the_same(monkeypatch):
    real, left, active = team._Team.wait, [KeyboardInterrupt], []

    def wait(team):
        if left:
            raise left.pop()
        real(team)

    def work(number):
        active.append(number)
        # The caller is done long before its helpers.
        time.sleep(0 if threading.current_thread() is threading.main_thread() else 0.05)
        active.remove(number)

    monkeypatch.setattr(team._Team, "wait", wait)
    with workers(3), pytest.raises(KeyboardInterrupt):
        team.run(work, range(30), 30, team.crew(None, 1 << 30))
    assert not active
    assert not left


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_the_frames_of_an_error_held_is_free_once_it_is_handled(count, error):
    """A lock among it would otherwise stay taken until the next garbage collection."""
    held = []

    class Lock:
        pass

    def work(_number):
        lock = Lock()
        held.append(ref(lock))
        raise error

    gc.disable()
    try:
        with workers(count):
            try:
                team.run(work, range(30), 30, team.crew(None, 1 << 30))
            except error:
                pass
        assert held
        assert [lock() for lock in held] == [None] * len(held)
    finally:
        gc.enable()


def test_no_interrupt_is_lost_and_none_stops_all_forever(monkeypatch):
    """By a timer, at any moment of starting, working and waiting."""
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    chance, surfaced = random.Random(1), 0
    try:
        with workers(3):
            for _ in range(500):
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 4e-4))
                    for _ in range(3):
                        team.run(lambda _: None, range(6), 6, team.crew(None, 1 << 30))
                    time.sleep(1)
                except KeyboardInterrupt:
                    surfaced += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert surfaced == 500
    assert not lost
    assert team._helpers.busy == 0


FORKING = """
import importlib, os, sys, threading, zellige.stores
sys.path.insert(0, sys.argv[1])
importing = threading.Thread(target=importlib.import_module, args=("slow",))
importing.start()
while "slow" not in sys.modules:
    pass
child = os.fork()
if child == 0:
    import slow
    os._exit(0 if slow.DONE else 1)
importing.join()
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_can_import_what_its_parent_was_importing(tmp_path):
    """As codecs are imported by the operation that needs them first."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\nDONE = True\n")
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_within_an_import_waits_for_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.time, "sleep", lambda _: pytest.fail("it waits"))
    (tmp_path / "forking.py").write_text("import os\nCHILD = os.fork()\nif CHILD == 0:\n    os._exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    child = importlib.import_module("forking").CHILD
    assert os.waitpid(child, 0)[1] == 0
