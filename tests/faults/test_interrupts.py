"""Interrupts, exits and forks in the middle of writing: nothing is written afterwards, nothing hangs or is torn."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashing_store import LONG, CrashingStore, counted, held_locks

import zellige
from running import fork, run_threads, settled
from zellige.io import shard
from zellige.stores import LocalStore, MemoryStore, Store, files, locks
from zellige.stores import threads as team

CHUNKS = 32
SHAPE, CHUNK = (CHUNKS * 64, 1024), (64, 1024)  # 256 KiB a chunk: enough for threads to be used
WAIT = 20
"""Seconds until something that should have happened long ago is given up."""

TIMES = 20 if LONG else 1

forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def plain(monkeypatch):
    """Without the kernel, which has threads of its own."""
    monkeypatch.setattr("zellige.kernel.native", None)


def workers(count: int) -> Any:
    return zellige.config.set({"threading.max_workers": count})


def large(inner: Store | None = None) -> tuple[zellige.Array, np.ndarray, CrashingStore]:
    """An array of many chunks whose puts are listed, and what it holds."""
    model = counted(SHAPE)
    store = CrashingStore(inner)
    array = zellige.create_array(store, data=model, chunks=CHUNK)
    store.changes.clear()
    return array, model, store


def in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    """Interrupts arrive as they do in a program of a user; what a test did to them ends with it."""
    assert in_main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def check_quiet(array: zellige.Array, model: np.ndarray, store: CrashingStore, threads: int) -> None:
    """No chunk lands from now on, no thread is left, every chunk is old or new, and all can go on."""
    put = store.keys()
    time.sleep(0.3)
    assert store.keys() == put
    assert settled(threads)
    assert team._helpers.busy == 0
    assert held_locks() == []
    store.before = None
    found = array[...]
    for chunk in array.iter_chunks():
        part = model[chunk.slices]
        assert np.array_equal(found[chunk.slices], -part if chunk.key in put else part)
    with workers(3):
        array[...] = model
    assert np.array_equal(array[...], model)


# -- an interrupt while several threads write -----------------------------------------------------


@pytest.mark.usefixtures("plain")
def test_an_interrupt_in_the_main_thread_stops_all_and_surfaces():
    array, model, store = large()
    seen: set[int] = set()

    def interrupt(_method: str, _key: str) -> None:
        time.sleep(0.01)
        seen.add(threading.get_ident())
        if in_main_thread() and len(seen) == 3:
            signal.raise_signal(signal.SIGINT)

    threads = _thread._count()
    store.before = interrupt
    with workers(3), pytest.raises(KeyboardInterrupt):
        array[...] = -model
    assert len(store.changes) < CHUNKS
    check_quiet(array, model, store, threads)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def signal_while_the_main_thread_waits(store: CrashingStore, number: int) -> list[str]:
    """The helper takes one chunk, and sends a signal when the main thread has written the others; which one it was."""
    main, begun, sent = threading.get_ident(), threading.Event(), []

    def before(_method: str, key: str) -> None:
        if in_main_thread():
            assert begun.wait(WAIT)
            return
        begun.set()
        until(lambda: len(store.changes) == CHUNKS - 1)
        time.sleep(0.1)
        sent.append(key)
        signal.pthread_kill(main, number)
        time.sleep(0.2)

    store.before = before
    return sent


@pytest.mark.usefixtures("plain")
def test_an_interrupt_while_the_main_thread_waits_for_the_others():
    array, model, store = large()
    threads = _thread._count()
    sent = signal_while_the_main_thread_waits(store, signal.SIGINT)
    with workers(2), pytest.raises(KeyboardInterrupt):
        array[...] = -model
    assert len(sent) == 1
    check_quiet(array, model, store, threads)


class Alarmed(Exception):
    """What a signal handler of a user raises."""


@pytest.fixture(params=[Alarmed, SystemExit], ids=lambda error: error.__name__)
def alarm(request) -> Iterator[type[BaseException]]:
    """What the handler of SIGUSR1 raises."""

    def handle(*_: object) -> None:
        raise request.param

    before = signal.signal(signal.SIGUSR1, handle)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("plain")
def test_what_another_signal_handler_raises_stops_all_as_well(alarm):
    array, model, store = large()
    main, begun = threading.get_ident(), threading.Event()

    def slow(_method: str, _key: str) -> None:
        if in_main_thread():
            assert begun.wait(WAIT)
            time.sleep(0.02)
            return
        if not begun.is_set():
            begun.set()
            until(lambda: len(store.changes) == 3)
            signal.pthread_kill(main, signal.SIGUSR1)
        time.sleep(0.05)

    store.before = slow
    threads = _thread._count()
    with workers(2), pytest.raises(alarm):
        array[...] = -model
    check_quiet(array, model, store, threads)


@pytest.mark.usefixtures("plain")
def test_what_another_signal_handler_raises_while_the_main_thread_waits(alarm):
    array, model, store = large()
    threads = _thread._count()
    sent = signal_while_the_main_thread_waits(store, signal.SIGUSR1)
    with workers(2), pytest.raises(alarm):
        array[...] = -model
    assert len(sent) == 1
    check_quiet(array, model, store, threads)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_while_threads_are_started(number, monkeypatch):
    array, model, store = large()
    started = []
    real = team.start_new_thread

    def start(*args: Any) -> None:
        real(*args)
        started.append(args)
        if len(started) == number:
            signal.raise_signal(signal.SIGINT)

    store.before = lambda _method, _key: time.sleep(0.01)
    threads = _thread._count()
    monkeypatch.setattr(team, "start_new_thread", start)
    with workers(3), pytest.raises(KeyboardInterrupt):
        array[...] = -model
    monkeypatch.undo()
    assert len(store.changes) < CHUNKS
    check_quiet(array, model, store, threads)


def timed(act: Callable[[], Any]) -> float:
    """How many seconds it takes."""
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


STORM = 300 if LONG else 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt within a finalizer
@pytest.mark.parametrize("count", [1, 3], ids=["alone", "with helpers"])
@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.parametrize("width", [1024, 1000], ids=["whole chunks", "parts"])
def test_interrupts_at_any_moment(width, kind, count, tmp_path):
    """By a timer that is set to a random moment of the write; afterwards another thread finds no lock taken."""
    store = CrashingStore(MemoryStore() if kind == "memory" else LocalStore(tmp_path))
    model = counted((8 * 64, 1024))
    array = zellige.create_array(store, data=model, chunks=CHUNK)
    begun: list[str] = []
    store.before = lambda _method, key: begun.append(key)

    def write() -> None:
        array[:, :width] = model[:, :width]

    def state() -> tuple[int, int]:
        return len(begun), len(store.changes)

    random = np.random.default_rng(1)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupted = late = 0
    try:
        with workers(count):
            lasted = min(timed(write) for _ in range(3))
            for _ in range(STORM):
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-5, random.uniform(0, lasted)))
                    write()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    put = state()
                    interrupted += 1
                    time.sleep(0.02)
                    late += state() != put
                other = threading.Thread(target=partial(array.__setitem__, (slice(None), 0), model[:, 0]), daemon=True)
                other.start()
                other.join(WAIT)
                assert not other.is_alive(), "a lock was left"
                assert team._helpers.busy == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if LONG:
        print(f"\n{interrupted} interrupts, {late} with chunks that were written afterwards")
    assert interrupted > 0
    assert late == 0
    assert np.array_equal(array[...], model)


def interrupted(number: int, act: Callable[[], Any]) -> bool:
    """Do it with an interrupt at the moment with this number; whether there were that many.

    An interrupt is noticed where a function begins, and where one in C returns.
    """
    left = [number]

    def profile(_frame: Any, event: str, _: Any) -> None:
        left[0] -= event in ("call", "c_return")
        if not left[0]:
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        sys.setprofile(profile)
        act()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return left[0] <= 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt within a finalizer
@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.parametrize("layout", [{"chunks": 8}, {"chunks": 2, "shards": 8}], ids=["chunk", "shard"])
@pytest.mark.parametrize("part", [slice(8), slice(5)], ids=["whole", "part"])
def test_an_interrupt_at_every_moment_leaves_no_lock_and_no_open_file(part, layout, kind, tmp_path):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    array = zellige.create_array(store, data=np.zeros(8, "int32"), **layout)
    array[part] = 1  # whatever is imported on first use
    gc.collect()
    before = open_files()
    number = 1
    while interrupted(number, partial(array.__setitem__, part, number)):
        assert len(set(array[:5].tolist())) == 1
        other = threading.Thread(target=partial(array.__setitem__, slice(5, 8), 0), daemon=True)
        other.start()
        other.join(5)
        assert not other.is_alive(), f"an interrupt at moment {number} has left a lock"
        number += 1
    assert number > 20
    gc.collect()
    assert open_files() - before == set()


def open_files() -> set[tuple[str, str]]:
    """The descriptors of this process with what they are; none where the system does not tell."""
    folder = Path("/proc/self/fd")
    return {(fd.name, os.readlink(fd)) for fd in folder.glob("*") if os.path.lexists(fd)} if folder.exists() else set()


@pytest.mark.usefixtures("plain")
def test_an_interrupt_surfaces_although_a_chunk_has_failed_before():
    array, _, store = large()
    begun, failed = threading.Event(), threading.Event()

    def fail(_method: str, _key: str) -> None:
        if in_main_thread():
            begun.set()
            assert failed.wait(WAIT)
            time.sleep(0.05)
            signal.raise_signal(signal.SIGINT)
        else:
            assert begun.wait(WAIT)
            failed.set()
            raise OSError("broken disk")

    store.before = fail
    with workers(2), pytest.raises(KeyboardInterrupt):
        array[...] = 0


def test_an_interrupt_of_an_append_takes_back_what_was_written():
    array, model, store = large()
    keys = set(store.inner.list())
    new = [f"c/{number}/0" for number in range(CHUNKS, 2 * CHUNKS)]

    def interrupt(_method: str, key: str) -> None:
        if in_main_thread() and key in new[1:]:  # whichever of them this thread gets
            store.before = None
            signal.raise_signal(signal.SIGINT)

    store.before = interrupt
    with workers(3), pytest.raises(KeyboardInterrupt):
        array.append(-model)
    assert array.shape == model.shape
    assert set(store.inner.list()) == keys
    array.append(-model)
    assert np.array_equal(zellige.open_array(store.inner)[...], np.concatenate([model, -model]))


def test_interrupted_readers_leave_no_thread():
    array, model, store = large()
    real, calls = store.read, []

    def read(*given: Any) -> Any:
        calls.append(given)
        if in_main_thread() and len(calls) > 9:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.005)
        return real(*given)

    store.read = read
    threads = _thread._count()
    with workers(3), pytest.raises(KeyboardInterrupt):
        array[...]
    count = len(calls)
    time.sleep(0.3)
    assert len(calls) == count < CHUNKS
    assert settled(threads)
    store.read = real
    assert np.array_equal(array[...], model)


# -- programs -------------------------------------------------------------------------------------

BEGINNING = """
import _thread, os, signal, sys, threading, time
import numpy as np
import zellige
from zellige.stores import LocalStore

zellige.config.set({"threading.max_workers": 3})
array = zellige.open_array(sys.argv[1], mode="r+")
size = array.shape

def write(k):
    array[...] = np.full(size, k, "int32")
"""


def start(code: str, path: Path) -> subprocess.Popen[str]:
    """A program that has the array at the path open."""
    source = str(Path(zellige.__file__).parents[1])
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = BEGINNING + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)], env={**os.environ, "PYTHONPATH": source}, **pipes
    )


def finish(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The code, and what it said; killed, and an error, if it does not end."""
    try:
        out, said = program.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        program.kill()
        program.communicate()
        raise
    return program.returncode, out, said


@pytest.fixture(params=["zstd", "raw", "shards"] if LONG else ["zstd"])
def on_disk(request, tmp_path) -> Path:
    options: dict[str, Any] = {
        "raw": {"chunks": CHUNK, "compressors": None},
        "zstd": {"chunks": CHUNK},
        "shards": {"chunks": (16, 1024), "shards": CHUNK},
    }[request.param]
    zellige.create_array(tmp_path, data=np.zeros(SHAPE, "int32"), **options)
    return tmp_path


def check_chunks(path: Path) -> None:
    """Each chunk holds one value, and a new writer is not kept waiting."""
    array = zellige.open_array(path, mode="r+")
    found = array[...]
    for chunk in array.iter_chunks():
        part = found[chunk.slices]
        assert part.min() == part.max()
    array[1, 1] = 9
    assert array[1, 1] == 9
    array[...] = 0


def test_ctrl_c_ends_a_program_that_writes(on_disk):
    """It ends with the interrupt, and what it finds right after that is what stays."""
    code = """
    def listed():
        return {(e.path, e.stat().st_ino) for d, _, _ in os.walk(sys.argv[1]) for e in os.scandir(d) if e.is_file()}

    print("ready", flush=True)
    try:
        for k in range(1, 1 << 20):
            write(k)
    except KeyboardInterrupt:
        left = listed()
        time.sleep(0.3)  # a thread that was just being started sees the interrupt, and ends without any work
        print("same" if listed() == left else "changed", _thread._count(), flush=True)
    """
    for number in range(TIMES):
        program = start(code, on_disk)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        time.sleep(0.1 + 0.013 * number)
        program.send_signal(signal.SIGINT)
        assert finish(program) == (0, "same 0\n", "")
        check_chunks(on_disk)


EXITS = {
    "right after a write": ("write(5)\nsys.exit(3)", 3, {5}),
    "at the end": ("write(5)", 0, {5}),
    "while a thread writes": (
        "t = threading.Thread(target=lambda: [write(k) for k in range(1, 21)])\nt.start()\nsys.exit(3)",
        3,
        {20},
    ),
    "while a daemon writes": (
        "t = threading.Thread(target=lambda: [write(k) for k in range(1, 1 << 20)], daemon=True)\n"
        "t.start()\ntime.sleep(0.2)\nsys.exit(3)",
        3,
        None,
    ),
    "in a thread that writes": (
        "def stop():\n    write(6)\n    sys.exit(4)\n    write(7)\n"
        "t = threading.Thread(target=stop)\nt.start()\nt.join()",
        0,
        {6},
    ),
    "while several write": (
        "for n in range(4):\n    threading.Thread(target=lambda: [write(k) for k in range(1, 11)]).start()\n"
        "sys.exit(3)",
        3,
        {10},
    ),
    "with a write at exit": ("import atexit\natexit.register(write, 8)\nsys.exit(3)", 3, {8}),
}


@pytest.mark.parametrize(("code", "status", "values"), EXITS.values(), ids=EXITS)
def test_the_interpreter_exits_without_hanging_and_nothing_is_torn(code, status, values, tmp_path):
    zellige.create_array(tmp_path, data=np.zeros(SHAPE, "int32"), chunks=CHUNK)
    for _ in range(TIMES):
        assert finish(start(code, tmp_path)) == (status, "", "")
        found = np.unique(zellige.open_array(tmp_path, mode="r")[...])
        if values is not None:
            assert set(found.tolist()) == values
        check_chunks(tmp_path)


# -- forks ----------------------------------------------------------------------------------------


@forks
@pytest.mark.parametrize("layout", [{}, {"shards": (128, 1024)}], ids=["chunks", "shards"])
@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_child_forked_after_use_reads_and_writes_and_so_does_its_parent(layout, durability, tmp_path):
    store = LocalStore(tmp_path / "a.zarr", durability=durability)
    model = counted(SHAPE)
    array = zellige.create_array(store, data=model, chunks=CHUNK, **layout)
    half = SHAPE[0] // 2
    with workers(3):
        assert np.array_equal(array[...], model)

        def act() -> bool:
            right = np.array_equal(array[:half], model[:half])
            array[:half] = -model[:half]
            array[half - 1, 3] = 5
            array.attrs["child"] = 1
            return right and np.array_equal(array[: half - 1], -model[: half - 1])

        succeeded = fork(act)
        array[half:] = 2 * model[half:]
        array.attrs["parent"] = 2
        assert succeeded()
        model[:half] *= -1
        model[half - 1, 3] = 5
        model[half:] *= 2
        assert np.array_equal(array[...], model)
        assert dict(zellige.open_array(store).attrs) == {"child": 1, "parent": 2}


@forks
def test_a_child_forked_while_threads_of_its_parent_write_works(tmp_path):
    model = counted((256, 256))
    array = zellige.create_array(tmp_path, data=model, chunks=(32, 256))
    stop = threading.Event()

    def write(number: int) -> None:
        while not stop.is_set():
            array[:, number] = model[:, number]

    def act() -> bool:
        right = np.array_equal(array[...], model)
        array[:, 200] = 7
        array.attrs["child"] = os.getpid()
        return right and bool((array[:, 200] == 7).all())

    def fork_some(_: int) -> None:
        try:
            for _ in range(5 * TIMES):
                array[:, 200] = model[:, 200]
                assert fork(act)()
        finally:
            stop.set()

    run_threads(4, lambda k: write(k) if k else fork_some(k))
    model[:, 200] = 7
    assert np.array_equal(array[...], model)


@forks
def test_a_child_forked_while_a_thread_holds_the_lock_of_a_chunk_works(tmp_path):
    model = counted((256, 256))
    inner = LocalStore(tmp_path)
    zellige.create_array(inner, data=model, chunks=(64, 256))
    held, done = threading.Event(), threading.Event()

    def hold(_method: str, key: str) -> None:
        if key == "c/0/0":
            held.set()
            assert done.wait(WAIT)

    mine = zellige.open_array(CrashingStore(inner, before=hold), mode="r+")
    array = zellige.open_array(inner, mode="r+")
    writer = threading.Thread(target=partial(mine.__setitem__, (0, 0), 5))
    writer.start()
    assert held.wait(WAIT)

    def act() -> bool:
        array[64, 0] = 6
        array.append(counted((1, 256)))
        return array[64, 0] == 6 and array[0, 0] == 1

    try:
        assert fork(act)()
        waits = fork(lambda: array.__setitem__((0, 1), 8) is None)  # until the thread of the parent is done
    finally:
        time.sleep(0.1)
        done.set()
        writer.join()
    assert waits()
    assert array[:2, :2].tolist() == [[5, 8], [257, 258]]
    assert zellige.open_array(inner).shape == (257, 256)


LOCKS: dict[str, Callable[[zellige.Array], Any]] = {
    "of the indexes of shards": lambda _: shard._lock,
    "of all keys": lambda _: locks._guard,
    "of all helpers": lambda _: team._helpers.lock,
}


@forks
@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_a_child_forked_while_a_thread_holds_a_lock_of_the_library_works(lock, tmp_path):
    store = LocalStore(tmp_path, durability="power")
    model = counted((256, 256))
    array = zellige.create_array(store, data=model, chunks=(32, 256), shards=(64, 256))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock(array):
            held.set()
            done.wait(WAIT)

    def act() -> bool:
        right = np.array_equal(array[...], model)
        array[...] = -model
        array[3, 3] = 0
        return right and array[3, 3] == 0 and array[4, 4] == -model[4, 4]

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(WAIT)
    with workers(2):
        succeeded = fork(act)
        try:
            assert succeeded()
        finally:
            done.set()
            holder.join()
        assert array[3, 3] == 0


@forks
def test_a_child_forked_while_a_thread_synchronises_directories_works(tmp_path, monkeypatch, plain):
    """That takes milliseconds on a disk, with a lock held."""
    store = LocalStore(tmp_path, durability="power")
    array = zellige.create_array(store, data=counted((8,)), chunks=2)
    held, done = threading.Event(), threading.Event()
    main, real = os.getpid(), files.sync_folder

    def slow(path: str) -> None:
        if os.getpid() == main and not in_main_thread():
            held.set()
            done.wait(WAIT)
        real(path)

    monkeypatch.setattr(files, "sync_folder", slow)
    writer = threading.Thread(target=partial(array.__setitem__, ..., 5))
    writer.start()
    assert held.wait(WAIT)

    def act() -> bool:
        array[...] = 6
        array.attrs["child"] = 1
        return array[...].tolist() == [6] * 8

    succeeded = fork(act)
    try:
        assert succeeded()
    finally:
        done.set()
        writer.join()
    assert array[...].tolist() == [6] * 8


@forks
def test_memory_is_the_childs_own_after_a_fork():
    array = zellige.create_array(MemoryStore(), data=counted((8,)), chunks=2)

    def act() -> bool:
        array[...] = 6
        return array[...].tolist() == [6] * 8

    assert fork(act)()
    assert array[...].tolist() == list(range(1, 9))
