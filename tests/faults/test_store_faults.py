"""The n-th call of the system fails, for every n until an operation gets through, once and from then on.

After each failure every key holds its old value or its new one, the error tells its number and its key, and nothing
stays behind: no unfinished file, no open file, no lock. `ZELLIGE_LONG=1` tries every error at every point.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from crashing_store import LONG, held_locks

import zellige
from zellige.stores import LocalStore, MemoryStore, base, threads

ERRORS = [errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO]
CALLS: dict[str, ModuleType] = {
    **dict.fromkeys(["open", "pwrite", "pwritev", "fsync", "replace", "link", "close", "mkdir", "scandir"], os),
    **dict.fromkeys(["pread", "preadv", "unlink", "rename", "rmdir", "fstat"], os),
    "flock": fcntl,
}
DURABILITIES: list[Any] = ["process", "power"] if LONG else ["power"]  # which calls all that the other does
MOST = 200  # calls of one kind in one operation; more would be an endless loop
OLD, NEW = b"old" * 50, b"new value" * 20


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    """The real fsync takes long and shows nothing here."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


class Fault:
    """The n-th call of one function raises; with `lasting`, so do all after it."""

    def __init__(self, call: str, number: int, code: int, *, lasting: bool) -> None:
        self.call, self.number, self.code, self.lasting = call, number, code, lasting
        self.hits = 0
        self._count = itertools.count()
        self._real = getattr(CALLS[call], call)

    def __call__(self, *args: Any, **options: Any) -> Any:
        turn = next(self._count)
        if turn < self.number or (turn > self.number and not self.lasting):
            return self._real(*args, **options)
        self.hits += 1
        assert turn < MOST, f"{self.call} is tried again and again"
        if self.call == "close":
            self._real(*args)  # as the system does: the descriptor is gone, the error comes all the same
        raise OSError(self.code, os.strerror(self.code))

    @contextmanager
    def injected(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CALLS[self.call], self.call, self)
            yield


# -- single values --------------------------------------------------------------------------------


@dataclass
class Operation:
    """Something that changes some keys of a store, from old values to new ones; None stands for no key."""

    run: Callable[[LocalStore], object]
    changes: dict[str, tuple[bytes | None, bytes | None]]
    others: dict[str, bytes] = field(default_factory=lambda: {"a/other": b"other"})

    def prepare(self, root: Path) -> LocalStore:
        store = LocalStore(root)
        for key, value in self.others.items():
            store.put(key, value)
        for key, (old, _) in self.changes.items():
            if old is not None:
                store.put(key, old)
        return store


def under_lock(store: LocalStore) -> None:
    with store.lock("a/k"):
        store.put("a/k", (store.get("a/k") or b"")[:0] + NEW)


def under_lock_of_a_new_key(store: LocalStore) -> None:
    with store.lock("n/e/w"):
        store.put("n/e/w", NEW)


def read_all_ways(store: LocalStore) -> None:
    assert store.get("a/k") == OLD
    assert store.get_range("a/k", 1, 4) == OLD[1:5]
    assert store.read("a/k", [(0, 2), (-3, None)]).parts == [OLD[:2], OLD[-3:]]
    assert store.read("a/k").whole == OLD
    assert store.size("a/k") == len(OLD)


def list_all_ways(store: LocalStore) -> None:
    assert sorted(store.list("a/")) == ["a/k", "a/other"]
    assert store.list_dir("a/") == (["a/k", "a/other"], [])


UNCHANGED = {"a/k": (OLD, OLD)}
OPERATIONS = {
    "put": Operation(lambda s: s.put("a/k", NEW), {"a/k": (OLD, NEW)}),
    "put of a new key": Operation(lambda s: s.put("n/e/w", NEW), {"n/e/w": (None, NEW)}),
    "put of a document": Operation(lambda s: s.put("a/zarr.json", NEW), {"a/zarr.json": (OLD, NEW)}),
    "put of a new document": Operation(lambda s: s.put("n/e/zarr.json", NEW), {"n/e/zarr.json": (None, NEW)}),
    "put of parts": Operation(lambda s: s.put("a/k", [NEW[:5], NEW[5:7], NEW[7:]]), {"a/k": (OLD, NEW)}),
    "put of parts of a new key": Operation(lambda s: s.put("n/w", [NEW[:5], NEW[5:]]), {"n/w": (None, NEW)}),
    "create": Operation(lambda s: s.create("a/k", NEW), {"a/k": (None, NEW)}),
    "create of a document": Operation(lambda s: s.create("n/zarr.json", NEW), {"n/zarr.json": (None, NEW)}),
    "create of what is there": Operation(lambda s: s.create("a/k", NEW), UNCHANGED),
    "replace": Operation(lambda s: s.replace("a/k", NEW, s.read("a/k").tag), {"a/k": (OLD, NEW)}),
    "replace of another version": Operation(lambda s: s.replace("a/k", NEW, "another"), UNCHANGED),
    "delete": Operation(lambda s: s.delete(["a/k"]), {"a/k": (OLD, None)}),
    "delete_prefix": Operation(
        lambda s: s.delete_prefix("b/"), {"b/k": (OLD, None), "b/c/k": (OLD, None), "b/c/d/k": (OLD, None)}
    ),
    "rename": Operation(lambda s: s.rename("b/", "n/c/"), {"b/k": (OLD, None), "n/c/k": (None, OLD)}),
    "lock": Operation(under_lock, {"a/k": (OLD, NEW)}),
    "lock of a new key": Operation(under_lock_of_a_new_key, {"n/e/w": (None, NEW)}),
    "reading": Operation(read_all_ways, UNCHANGED),
    "listing": Operation(list_all_ways, UNCHANGED, {"a/other": b"other"}),
}
# A prefix of a prefix is named by the prefix, so these may be in the text of the error instead of the key.
PREFIXES = {"delete_prefix": "b/", "rename": "b/", "listing": "a/"}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def temporary(root: Path) -> list[str]:
    return [name for _, _, names in os.walk(root) for name in names if name.startswith(base.TEMPORARY)]


def assert_nothing_stays(root: Path, before: int, *, may_stay: bool = False) -> None:
    """No open file, no lock that is held, no unfinished file."""
    assert open_files() == before, "open files"
    assert held_locks() == []
    locks = [name for name in temporary(root) if name.startswith(base.TEMPORARY + "lock-")]
    assert may_stay or temporary(root) == locks, "unfinished files"
    # The file of a lock may stay; nobody holds it, so that the next listing removes it.
    assert may_stay or LocalStore(root).clean() == len(locks), "locks that are held"
    assert may_stay or temporary(root) == []


def assert_told(error: OSError, code: int, names: list[str]) -> None:
    assert error.errno == code
    assert any(repr(name) in str(error) for name in names), f"{error!r} names none of {names}"


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_after_a_failure_every_key_is_old_or_new(tmp_path, name, call, lasting, durability, record_property):
    operation, injected = OPERATIONS[name], 0
    codes = ERRORS if LONG else [ERRORS[sum(map(ord, name + call + durability)) % len(ERRORS)]]
    for code in codes:
        for number in range(MOST):
            root = tmp_path / f"{code}-{number}"
            operation.prepare(root)
            store = LocalStore(root, durability=durability)
            before = open_files()
            fault = Fault(call, number, code, lasting=lasting)
            error = None
            try:
                with fault.injected():
                    operation.run(store)
            except OSError as exc:
                error = exc
            injected += bool(fault.hits)
            about = f"{call} number {number} failed with {errno.errorcode[code]}"
            found = {key: store.get(key) for key in operation.changes}
            if error is None:
                assert found == {key: new for key, (_, new) in operation.changes.items()}, about
            else:
                assert fault.hits, about
                assert_told(error, code, [*operation.changes, *operation.others, PREFIXES.get(name, name)])
                assert all(found[key] in states for key, states in operation.changes.items()), about
            assert {key: store.get(key) for key in operation.others} == operation.others, about
            assert_nothing_stays(root, before, may_stay=call == "unlink" and lasting)
            if not fault.hits:
                break
        else:
            raise AssertionError(f"{call} is called {MOST} times")
    record_property("faults", injected)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ("reading", "listing", "delete")])
def test_calls_that_write_a_part_are_continued(tmp_path, name):
    operation = OPERATIONS[name]
    pwrite, pwritev = os.pwrite, os.pwritev
    store = operation.prepare(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:1], at))
        patch.setattr(os, "pwritev", lambda fd, parts, at: pwritev(fd, [parts[0][:1]], at))
        operation.run(store)
    assert {key: store.get(key) for key in operation.changes} == {k: new for k, (_, new) in operation.changes.items()}


@pytest.mark.parametrize("name", ["put", "put of parts", "create", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize("most", [0, 1, 7, 100])
def test_a_disk_that_is_full_in_the_middle_leaves_the_old_value(tmp_path, name, code, most):
    operation = OPERATIONS[name]
    store = operation.prepare(tmp_path)
    before, room = open_files(), [most]
    pwrite = os.pwrite

    def full(fd: int, data: Any, at: int) -> int:
        parts = data if isinstance(data, list | tuple) else [data]
        data = b"".join(parts)[: room[0]]
        if not data:
            raise OSError(code, os.strerror(code))
        room[0] -= len(data)
        return pwrite(fd, data, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        patch.setattr(os, "pwritev", full)
        with pytest.raises(OSError, match="'a/k'") as caught:
            operation.run(store)
    assert caught.value.errno == code
    assert store.get("a/k") == operation.changes["a/k"][0]
    assert_nothing_stays(tmp_path, before)


@pytest.mark.parametrize("limit", [0, 1, 100])
def test_a_file_that_may_not_grow_leaves_the_old_value(tmp_path, limit):
    """The real thing: the system's limit on the size of files."""
    import resource
    import signal

    store = LocalStore(tmp_path)
    store.put("a/k", OLD)
    before = open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match="'a/k'") as caught:
            store.put("a/k", NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert store.get("a/k") == OLD
    assert_nothing_stays(tmp_path, before)


# -- arrays ---------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "chunks": {"shape": (20,), "chunks": (4,)},
    "chunks of two axes": {"shape": (4, 6), "chunks": (2, 3), "compressors": None},
    "rows": {"shape": (4, 16), "chunks": (2, 2), "compressors": None},
    "rows that are compressed": {"shape": (4, 16), "chunks": (2, 2), "compressors": "gzip"},
    "not by the kernel": {
        "shape": (20,),
        "chunks": (4,),
        "compressors": {"name": "numcodecs.bz2", "configuration": {"level": 1}},
    },
    "shards": {"shape": (16,), "chunks": (2,), "shards": (4,)},
    "format 2": {"shape": (20,), "chunks": (4,), "zarr_format": 2},
}
PARTS = {
    "all": lambda array: (slice(None),) * array.ndim,
    "parts of chunks": lambda array: tuple(slice(1, n - 1) for n in array.shape),
}


@pytest.fixture(params=["here", "threads"])
def workers(request, monkeypatch) -> int:
    """One thread, or several for the smallest work."""
    count = 1 if request.param == "here" else 3
    monkeypatch.setattr(threads, "_SMALL", 1)
    with zellige.config.set({"threading.max_workers": count}):
        yield count


def chunks_by_state(array: zellige.Array, old: np.ndarray, new: np.ndarray) -> dict[str, set[tuple[int, ...]]]:
    """The chunks that are old, and those that are new; any other is an error, and one that is the same is in both."""
    found = array[...]
    states: dict[str, set[tuple[int, ...]]] = {"old": set(), "new": set()}
    sizes = array.shards or array.chunks
    for coords in np.ndindex(*(-(-n // size) for n, size in zip(array.shape, sizes, strict=True))):
        box = tuple(slice(k * size, (k + 1) * size) for k, size in zip(coords, sizes, strict=True))
        is_old, is_new = np.array_equal(found[box], old[box]), np.array_equal(found[box], new[box])
        assert is_old or is_new, f"chunk {coords} is a mixture"
        states["old"] |= {coords} if is_old else set()
        states["new"] |= {coords} if is_new else set()
    return states


def assert_report(error: BaseException, states: dict[str, set[tuple[int, ...]]]) -> None:
    """What the error says of the chunks is what the chunks say."""
    written, failed, not_tried = error.written, error.failed, error.not_tried
    listed = [*written, *failed, *not_tried]
    assert len(listed) == len(set(listed))
    assert set(listed) == states["old"] | states["new"]
    assert set(written) <= states["new"]
    assert set(not_tried) <= states["old"]
    assert failed
    note, *others = error.__notes__
    assert all("may not survive a power cut" in other for other in others)
    assert note.startswith("written: ")
    assert "; failed: " in note
    assert "; not tried: " in note


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_failure_every_chunk_is_old_or_new(tmp_path, workers, kind, part, lasting, record_property):
    writing = Writing(tmp_path, kind, part)
    injected = 0
    not_used = {"scandir", "link", "rename", "rmdir", "fstat"}
    for call in [call for call in CALLS if call not in not_used]:
        one = ERRORS[sum(map(ord, kind + call)) % len(ERRORS)]
        for durability in DURABILITIES:
            for code in ERRORS if LONG and durability == "power" else [one]:
                for number in itertools.chain(range(2), range(2, MOST, 1 if LONG else 9)):
                    if not writing.fails_whole(Fault(call, number, code, lasting=lasting), durability):
                        break
                    injected += 1
    record_property("faults", injected)


class Writing:
    """A write of several chunks, again and again."""

    def __init__(self, root: Path, kind: str, part: str) -> None:
        self.root = root
        self.array = zellige.create_array(LocalStore(root), dtype="int32", fill_value=-1, **KINDS[kind])
        self.where = PARTS[part](self.array)
        self.old = np.full(self.array.shape, 7, "int32")
        self.value = np.arange(self.array.size, dtype="int32").reshape(self.array.shape)[self.where] + 100
        self.new = self.old.copy()
        self.new[self.where] = self.value
        self.array[...] = self.old
        self.keys = set(self.array.store.list()) - {"zarr.json", ".zarray", ".zattrs"}
        assert len(self.keys) > 2

    def fails_whole(self, fault: Fault, durability: Any) -> bool:
        """Whether the fault was met; then what is left was whole."""
        self.array[...] = self.old
        array = zellige.open_array(LocalStore(self.root, durability=durability), mode="r+")
        before = open_files()
        error = None
        try:
            with fault.injected():
                array[self.where] = self.value
        except OSError as exc:
            error = exc
        states = chunks_by_state(zellige.open_array(self.root, mode="r"), self.old, self.new)
        about = f"{fault.call} number {fault.number} failed with {errno.errorcode[fault.code]}, {durability}"
        if error is None:
            assert states["old"] == set(), about
        else:
            assert fault.hits, about
            assert error.errno == fault.code, about
            self.assert_named(error)
            if hasattr(error, "written"):
                assert_report(error, states)
            else:  # all were tried, and then something else failed
                assert states["old"] == set(), f"{about}: {error!r} says nothing of the chunks"
        assert_nothing_stays(self.root, before, may_stay=fault.call == "unlink" and fault.lasting)
        return bool(fault.hits)

    def assert_named(self, error: OSError) -> None:
        """The error tells the key of a chunk, or a directory above."""
        place = str(error.filename)
        above = place.startswith(str(self.root)) and any(f"{self.root}/{key}".startswith(place) for key in self.keys)
        assert above or any(repr(key) in str(error) for key in self.keys), f"{error!r} names no chunk"


# -- what the error of many chunks says -----------------------------------------------------------


class FailingStore(MemoryStore):
    """Refuses to store some keys."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.refused = set(keys)

    def write(self, key: str, value: Any, if_tag: Any = None) -> bool:
        if key in self.refused:
            raise OSError(errno.ENOSPC, f"key {key!r}: full", key)
        return super().write(key, value, if_tag)


def test_an_error_says_what_was_written_what_failed_and_what_was_not_tried():
    array = zellige.create_array(FailingStore("c/2"), shape=(20,), chunks=(4,), dtype="int32")
    with pytest.raises(OSError, match="'c/2'") as caught:
        array[...] = 5
    error = caught.value
    assert (error.written, error.failed, error.not_tried) == ([(0,), (1,)], [(2,)], [(3,), (4,)])
    assert error.__notes__ == ["written: 2 chunks (0,), (1,); failed: 1 chunk (2,); not tried: 2 chunks (3,), (4,)"]
    assert array[...].tolist() == [5] * 8 + [0] * 12


def test_a_note_lists_the_first_chunks_only():
    array = zellige.create_array(FailingStore("c/0"), shape=(20,), chunks=(1,), dtype="int32")
    with pytest.raises(OSError, match="'c/0'") as caught:
        array[...] = 5
    assert caught.value.not_tried == [(k,) for k in range(1, 20)]
    assert caught.value.__notes__ == [
        "written: no chunk; failed: 1 chunk (0,); not tried: 19 chunks (1,), (2,), (3,), (4,), (5,), …"
    ]


def test_an_error_of_the_last_chunk_leaves_nothing_untried():
    array = zellige.create_array(FailingStore("c/1"), shape=(8,), chunks=(4,), dtype="int32")
    with pytest.raises(OSError, match="'c/1'") as caught:
        array[...] = 5
    assert caught.value.__notes__ == ["written: 1 chunk (0,); failed: 1 chunk (1,); not tried: no chunk"]


def test_an_error_of_one_chunk_is_about_that():
    array = zellige.create_array(FailingStore("c/0"), shape=(8,), chunks=(8,), dtype="int32")
    with pytest.raises(OSError, match="'c/0'") as caught:
        array[...] = 5
    assert not hasattr(caught.value, "__notes__")


def test_only_the_chunks_of_the_selection_are_reported():
    array = zellige.create_array(FailingStore("c/1/2"), shape=(8, 12), chunks=(2, 3), dtype="int32")
    with pytest.raises(OSError, match="'c/1/2'") as caught:
        array[2:6, 3:12] = 5
    error = caught.value
    assert error.written == [(1, 1)]
    assert error.failed == [(1, 2)]
    assert error.not_tried == [(1, 3), (2, 1), (2, 2), (2, 3)]


def test_scattered_points_and_fields_are_reported_as_well():
    array = zellige.create_array(FailingStore("c/2"), shape=(20,), chunks=(4,), dtype="int32")
    with pytest.raises(OSError, match="'c/2'") as caught:
        array.oindex[[0, 9, 17]] = [1, 2, 3]
    assert (caught.value.written, caught.value.failed, caught.value.not_tried) == ([(0,)], [(2,)], [(4,)])
    with pytest.raises(OSError, match="'c/2'") as caught:
        array.vindex[[1, 10, 18]] = [1, 2, 3]
    assert (caught.value.written, caught.value.failed, caught.value.not_tried) == ([(0,)], [(2,)], [(4,)])
    structs = zellige.create_array(
        FailingStore("c/1"), shape=(12,), chunks=(4,), dtype=np.dtype([("x", "int32"), ("y", "int32")])
    )
    with pytest.raises(OSError, match="'c/1'") as caught:
        structs["x"] = np.arange(1, 13)
    assert (caught.value.written, caught.value.failed, caught.value.not_tried) == ([(0,)], [(1,)], [(2,)])


def test_of_many_small_chunks_it_says_which_failed():
    with_fill = np.full((2, 32), 5)
    with_fill[:, :2] = 0
    for value in (np.arange(1, 65).reshape(2, 32), with_fill):  # stored together, and one by one
        array = zellige.create_array(
            FailingStore("c/0/5"), shape=(2, 32), chunks=(2, 2), dtype="int32", compressors=None
        )
        with pytest.raises(OSError, match="'c/0/5'") as caught:
            array[...] = value
        error = caught.value
        assert error.written == [(0, k) for k in range(5)]
        assert error.failed == [(0, 5)]
        assert error.not_tried == [(0, k) for k in range(6, 16)]


def test_every_chunk_is_reported_once_when_several_threads_fail(monkeypatch):
    monkeypatch.setattr(threads, "_SMALL", 1)
    met = threading.Barrier(2)

    class Meeting(FailingStore):
        def write(self, key: str, value: Any, if_tag: Any = None) -> bool:
            if key in self.refused:
                met.wait(20)  # both fail at once
            return super().write(key, value, if_tag)

    plain = {"name": "numcodecs.bz2", "configuration": {"level": 1}}  # not for the kernel
    array = zellige.create_array(Meeting("c/3", "c/25"), shape=(40,), chunks=(1,), dtype="int32", compressors=plain)
    with zellige.config.set({"threading.max_workers": 2}), pytest.raises(OSError, match=r"c/3|c/25") as caught:
        array[...] = 5
    error = caught.value
    assert sorted(error.failed) == [(3,), (25,)]
    assert sorted([*error.written, *error.failed, *error.not_tried]) == [(k,) for k in range(40)]
    assert [(int(k),) for k in np.flatnonzero(array[...])] == sorted(error.written)


def test_of_very_many_chunks_only_those_that_failed_are_listed():
    array = zellige.create_array(FailingStore("c/2"), shape=(100_002,), chunks=(1,), dtype="int8", compressors=None)
    with pytest.raises(OSError, match="'c/2'") as caught:
        array[...] = 5
    error = caught.value
    assert error.failed == [(2,)]
    assert error.written is error.not_tried is None
    assert error.__notes__ == ["of 100002 chunks, failed: 1 chunk (2,)"]
