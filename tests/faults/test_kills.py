"""Writers killed at random times: nothing is torn, nothing broken, and what they leave goes.

A short form of 20 kills for each kind of writing; with `ZELLIGE_LONG=1` a thousand.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zellige
from zellige.stores import LocalStore, files
from zellige.stores.base import TEMPORARY

LONG = os.environ.get("ZELLIGE_LONG") == "1"
KILLS = 1000 if LONG else 20
LONGEST = 0.012  # seconds that a writer lives; some generations are written in that time

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Child:
    """A forked process that does the work until it is killed."""

    def __init__(self, work: Callable[[Callable[[], None]], object]) -> None:
        read, write = os.pipe()
        say = os.write  # which the work may replace
        self.pid = os.fork()
        if not self.pid:
            signal.alarm(60)
            try:
                work(lambda: say(write, b"."))
            finally:
                os._exit(1)
        os.close(write)
        self._ready = read
        os.read(read, 1)  # until the work says so, or has ended

    def kill(self) -> int:
        """Kill it, and wait until it is gone; says by which signal it ended."""
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._ready)
        return -os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def temporary(root: Path | str) -> list[str]:
    return sorted(name for _, _, names in os.walk(root) for name in names if name.startswith(TEMPORARY))


def is_lock(name: str) -> bool:
    return name.startswith(f"{TEMPORARY}lock-")


def kill_writers(root: Path, write: Callable[[int], object], check: Callable[[], object]) -> tuple[int, int]:
    """Kill so many writers of one generation after the other; how many left unfinished files, and how many locks."""
    chance = random.Random(len(str(root)) + KILLS)
    unfinished = locks = 0

    def work(ready: Callable[[], None]) -> None:
        ready()
        for generation in range(chance.randrange(1, 1 << 20), 1 << 30):
            write(generation)

    for _ in range(KILLS):
        child = Child(work)
        time.sleep(chance.random() * LONGEST)
        chance.random()  # so that the next writer begins elsewhere
        assert child.kill() == signal.SIGKILL, "the writer failed before it was killed"
        left = temporary(root)
        unfinished += any(not is_lock(name) for name in left)
        locks += any(map(is_lock, left))
        check()
        list(LocalStore(root).list())
        assert temporary(root) == [], "what a dead writer left is still there after a listing"
    return unfinished, locks


def report(record_property: Any, unfinished: int, locks: int) -> None:
    record_property("kills", KILLS)
    record_property("kills that left an unfinished file", unfinished)
    record_property("kills that left a lock", locks)


# -- chunks, documents, shards --------------------------------------------------------------------

COUNT, SIZE = 4, 16384
PATTERN = np.arange(SIZE, dtype="int64")


def generations(values: np.ndarray) -> set[int]:
    """The generations of a chunk's values: one, unless it is torn."""
    return set(np.unique(values - PATTERN[: len(values)]).tolist())


def test_killed_writers_of_chunks_tear_none(tmp_path, record_property):
    array = zellige.create_array(tmp_path, shape=(COUNT * SIZE,), chunks=(SIZE,), dtype="int64", compressors=None)
    array[...] = np.tile(PATTERN, COUNT)
    new = np.tile(PATTERN, COUNT)

    def write(generation: int) -> None:
        array[...] = new + generation

    def check() -> None:
        found = zellige.open_array(tmp_path, mode="r")[...].reshape(COUNT, SIZE)
        assert [len(generations(chunk)) for chunk in found] == [1] * COUNT
        sizes = {os.path.getsize(tmp_path / "c" / str(k)) for k in range(COUNT)}
        assert sizes == {SIZE * 8}

    unfinished, locks = kill_writers(tmp_path, write, check)
    report(record_property, unfinished, locks)
    assert unfinished or not LONG  # else no kill has met a write


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_killed_writers_of_documents_break_none(tmp_path, zarr_format, record_property):
    group = zellige.create_group(tmp_path, zarr_format=zarr_format)
    array = group.create_array("a", data=np.arange(10), chunks=5)
    group.attrs.update(generation=0, text="")
    array.attrs.update(generation=0, text="")

    def write(generation: int) -> None:
        for node in (array, group):
            node.attrs.update(generation=generation, text=f"{generation} " * (1000 + generation % 1000))

    def check() -> None:
        root = zellige.open_group(tmp_path, mode="r")
        assert root["a"][...].tolist() == list(range(10))
        for node in (root, root["a"]):
            generation = node.attrs["generation"]
            assert node.attrs["text"] == (f"{generation} " * (1000 + generation % 1000) if generation else "")

    unfinished, locks = kill_writers(tmp_path, write, check)
    report(record_property, unfinished, locks)
    assert locks or not LONG


def test_killed_writers_of_parts_of_shards_tear_none(tmp_path, record_property):
    inner = SIZE // 8
    array = zellige.create_array(
        tmp_path, shape=(COUNT * SIZE,), chunks=(inner,), shards=(SIZE,), dtype="int64", compressors=None
    )
    array[...] = np.tile(PATTERN[:inner], COUNT * 8)

    def write(generation: int) -> None:
        for part in range(generation % 8, COUNT * 8, 5):
            array[part * inner : (part + 1) * inner] = PATTERN[:inner] + generation

    def check() -> None:
        found = zellige.open_array(tmp_path, mode="r")[...].reshape(COUNT * 8, inner)
        assert [len(generations(chunk)) for chunk in found] == [1] * (COUNT * 8)

    unfinished, locks = kill_writers(tmp_path, write, check)
    report(record_property, unfinished, locks)
    assert locks or not LONG  # the value is written into the file of the lock, which is renamed onto the chunk
    array[1:3] = 5  # the locks are free
    assert array[:4].tolist()[1:3] == [5, 5]


def test_killed_writers_of_parts_of_chunks_tear_none(tmp_path, record_property):
    array = zellige.create_array(tmp_path, shape=(COUNT * SIZE,), chunks=(SIZE,), dtype="int64", compressors=None)
    array[...] = np.tile(PATTERN, COUNT)

    def write(generation: int) -> None:
        for chunk in range(COUNT):  # all but the ends, which stay as they are
            array[chunk * SIZE + 1 : (chunk + 1) * SIZE - 1] = PATTERN[1:-1] + generation

    def check() -> None:
        found = zellige.open_array(tmp_path, mode="r")[...].reshape(COUNT, SIZE)
        assert [len(np.unique((chunk - PATTERN)[1:-1])) for chunk in found] == [1] * COUNT
        assert found[:, 0].tolist() == [0] * COUNT
        assert found[:, -1].tolist() == [SIZE - 1] * COUNT

    unfinished, locks = kill_writers(tmp_path, write, check)
    report(record_property, unfinished, locks)
    assert locks or not LONG  # the value is written into the file of the lock, which is renamed onto the chunk


# -- what is left ---------------------------------------------------------------------------------


def stuck_in(call: str, method: str, root: Path) -> Child:
    """A writer that goes no further than this call of the system, with its temporary file there."""

    def work(ready: Callable[[], None]) -> None:
        def stop(*_args: object) -> None:
            ready()
            signal.pause()

        setattr(os, call, stop)
        getattr(LocalStore(root), method)("a/k", b"new")

    return Child(work)


@pytest.mark.parametrize(("call", "method"), [("replace", "put"), ("link", "create"), ("pwritev", "put")])
@pytest.mark.parametrize("tidy", [LocalStore.clean, lambda s: list(s.list()), lambda s: s.list_dir("a/")])
def test_the_file_of_a_writer_stays_while_it_lives_and_goes_after_it(tmp_path, call, method, tidy):
    store = LocalStore(tmp_path)
    store.put("a/other", b"x")
    child = stuck_in(call, method, tmp_path)
    (name,) = temporary(tmp_path)
    tidy(store)
    assert temporary(tmp_path) == [name]
    os.kill(child.pid, signal.SIGSTOP)
    tidy(store)
    assert temporary(tmp_path) == [name]
    child.kill()
    tidy(store.as_read_only()) if tidy is not LocalStore.clean else None
    assert temporary(tmp_path) == [name]  # a store that is read only removes nothing
    tidy(store)
    assert temporary(tmp_path) == []
    assert list(store.list()) == ["a/other"]


def test_a_writer_that_ended_leaves_nothing(tmp_path):
    child = os.fork()
    if not child:
        LocalStore(tmp_path).put("a/k", b"x")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.listdir(tmp_path / "a") == ["k"]


def dead_pid() -> int:
    """The number of a process that has ended."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def test_clean_tells_from_the_name_who_is_dead(tmp_path):
    pid, began, here = files.owner(os.getpid()).split(".")
    dead = dead_pid()
    going = {
        "a dead writer": f"{dead}.{began}.{here}-0",
        "one whose beginning nobody knew": f"{dead}..{here}-0",
        "one that had this number before": f"{pid}.{int(began) - 1}.{here}-1",
        "one that had the number of init": f"1.{2**40}.{here}-1",
        "of no process": f"{2**22 + 1}.{began}.{here}-1",
    }
    staying = {
        "this process": f"{pid}.{began}.{here}-2",
        "this process, without its beginning": f"{pid}..{here}-2",
        "another machine": f"{dead}.{began}.{'0' * len(here)}-0",
        "another machine, the number of this process": f"{pid}.{int(began) - 1}.{'0' * len(here)}-0",
        "no number": f"x.{began}.{here}-0",
        "no digit of ours": f"²³.{began}.{here}-0",
        "a negative number": f"-{dead}.{began}.{here}-0",
        "older names": f"{dead}-0",
        "nothing": "",
        "dots": "...",
    }
    for folder in (tmp_path, tmp_path / "a" / "b"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*going.values(), *staying.values()):
            (folder / f"{TEMPORARY}{name}").write_bytes(b"half")
    store = LocalStore(tmp_path)
    assert store.clean() == 2 * len(going)
    expected = sorted(f"{TEMPORARY}{name}" for name in staying.values())
    assert sorted(os.listdir(tmp_path / "a" / "b")) == expected
    assert sorted({*os.listdir(tmp_path)} - {"a"}) == expected
    assert store.clean() == 0
    assert list(store.list()) == []
    assert store.list_dir("a/b/") == ([], [])


def test_a_listing_cleans_the_directories_that_it_sees(tmp_path):
    _, began, here = files.owner(os.getpid()).split(".")
    name = f"{TEMPORARY}{dead_pid()}.{began}.{here}-0"
    store = LocalStore(tmp_path)
    for key in ("a/k", "b/k"):
        store.put(key, b"x")
        (tmp_path / key[0] / name).touch()
    assert store.list_dir("a/") == (["a/k"], [])
    assert (os.listdir(tmp_path / "a"), sorted(os.listdir(tmp_path / "b"))) == (["k"], sorted([name, "k"]))
    assert sorted(store.list()) == ["a/k", "b/k"]
    assert temporary(tmp_path) == []


def test_a_file_that_cannot_be_removed_is_not_counted(tmp_path):
    _, began, here = files.owner(os.getpid()).split(".")
    (tmp_path / f"{TEMPORARY}{dead_pid()}.{began}.{here}-0").touch()

    def refuse(*_args: object) -> None:
        raise PermissionError(13, "refused")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert list(LocalStore(tmp_path).list()) == []
        assert LocalStore(tmp_path).clean() == 0
    assert LocalStore(tmp_path).clean() == 1


def test_a_process_that_gets_a_number_again_is_not_the_one_before(tmp_path):
    """The name is that of the process itself, also after a fork."""
    store = LocalStore(tmp_path)
    store.put("a/k", b"x")
    names = []
    for _ in range(2):
        child = stuck_in("replace", "put", tmp_path)
        names += temporary(tmp_path)
        pid, began, _ = names[-1].removeprefix(TEMPORARY).split(".")
        assert int(pid) == child.pid
        with open(f"/proc/{pid}/stat") as file:
            assert file.read().rpartition(")")[2].split()[19] == began
        child.kill()
        assert store.clean() == 1
    assert names[0] != names[1]


# -- locks ----------------------------------------------------------------------------------------


def holder(root: Path, key: str) -> Child:
    def work(ready: Callable[[], None]) -> None:
        with LocalStore(root).lock(key):
            ready()
            signal.pause()

    return Child(work)


def is_free(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.mark.parametrize("tidy", [LocalStore.clean, lambda s: list(s.list()), lambda s: s.list_dir("a/")])
def test_the_lock_of_a_dead_process_is_free_and_its_file_goes(tmp_path, tidy):
    store = LocalStore(tmp_path)
    child = holder(tmp_path, "a/k")
    (name,) = temporary(tmp_path)
    assert is_lock(name)
    tidy(store)
    assert temporary(tmp_path) == [name]
    assert not is_free(tmp_path / "a" / name)
    child.kill()
    assert temporary(tmp_path) == [name]
    assert is_free(tmp_path / "a" / name)
    tidy(store)
    assert temporary(tmp_path) == []
    with store.lock("a/k"):
        tidy(store)
        assert temporary(tmp_path) == [name]
    assert temporary(tmp_path) == []


def test_locks_of_killed_processes_are_never_in_the_way(tmp_path):
    store = LocalStore(tmp_path)
    for turn in range(KILLS if not LONG else 300):
        child = holder(tmp_path, "a/k")
        child.kill()
        with store.lock("a/k"):
            store.put("a/k", b"%d" % turn)
    assert os.listdir(tmp_path / "a") == ["k"]


def test_listings_that_clean_take_no_lock_from_those_who_wait_for_it(tmp_path):
    """Several processes count under one lock, while others list and clean all the time."""
    store = LocalStore(tmp_path)
    store.put("a/n", b"0")
    turns, children = 300 if LONG else 60, []
    for kind in ("count", "count", "clean", "list"):
        child = os.fork()
        if not child:
            signal.alarm(120)
            try:
                mine = LocalStore(tmp_path)
                for _ in range(turns):
                    if kind == "count":
                        with mine.lock("a/n"):
                            mine.put("a/n", b"%d" % (int(mine.get("a/n")) + 1))
                    elif kind == "clean":
                        mine.clean()
                    else:
                        assert list(mine.list()) == ["a/n"]
                os._exit(7)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [7] * 4
    assert store.get("a/n") == b"%d" % (2 * turns)
    assert os.listdir(tmp_path / "a") == ["n"]
