"""Caches: they answer as the store inside would, keep no more than they may, and never what was written over."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from store_suite import StoreSuite

import zellige
from running import fork, run_threads
from zellige.errors import CorruptChunkError, ShortReadError
from zellige.storage import CacheStore, LocalStore, LoggingStore, MemoryStore, PrefixStore, Store
from zellige.stores import cache


class TestCacheStore(StoreSuite):
    @pytest.fixture
    def store(self) -> CacheStore:
        return CacheStore(MemoryStore())


class TestCacheStoreWithAFolder(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path) -> CacheStore:
        return CacheStore(LocalStore(tmp_path / "root"), 1 << 20, folder=tmp_path / "cache")


class TestCacheStoreThatValidates(StoreSuite):
    @pytest.fixture
    def store(self) -> CacheStore:
        return CacheStore(MemoryStore(), 10_000, validate=True)


def counted(inner: Store | None = None, **options: Any) -> tuple[CacheStore, LoggingStore]:
    """A cache, and the store inside, which counts."""
    log = LoggingStore(MemoryStore() if inner is None else inner)
    return CacheStore(log, **options), log


# -- the same as without ----------------------------------------------------------------------------

KEYS = st.sampled_from(["d", "a/b", "a/c", "a/e/c"])
VALUES = st.binary(max_size=40) | st.integers(200, 400).map(bytes)
SPANS = st.tuples(st.integers(-45, 45), st.none() | st.integers(0, 45))


class CacheMachine(RuleBasedStateMachine):
    """A cache, a view of it and the store inside give the same under any operations through the cache."""

    @initialize(
        most=st.sampled_from([0, 700, 100_000]),
        decoded=st.sampled_from([0, 900]),
        validate=st.booleans(),
        on=st.booleans(),
    )
    def start(self, most: int, decoded: int, validate: bool, on: bool) -> None:
        self.inner = MemoryStore()
        self.most, self.decoded = most, decoded
        self.store = CacheStore(self.inner, most, decoded_bytes=decoded, validate=validate)
        self.view = PrefixStore(self.store.as_read_only(), "a") if on else PrefixStore(self.store, "a")

    def same(self, ask: Callable[[Store], Any]) -> None:
        """The cache answers, or raises, what the store inside does."""
        results = []
        for store in (self.inner, self.store):
            try:
                results.append(ask(store))
            except ShortReadError as error:
                results.append(str(error))
        assert results[0] == results[1]

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        self.same(lambda store: store.get(key))
        self.same(lambda store: store.get(key))
        self.same(lambda store: store.size(key))

    @rule(key=KEYS, spans=st.lists(SPANS, max_size=3))
    def get_ranges(self, key: str, spans: list[Any]) -> None:
        self.same(lambda store: (store.read(key, spans) or [None])[0])
        self.same(lambda store: [store.get_range(key, *span) for span in spans])

    @rule(key=KEYS)
    def decode(self, key: str) -> None:
        found = self.store.decoded(key, "bytes", lambda raw: np.frombuffer(raw, "u1"))
        assert (None if found is None else found.tobytes()) == self.inner.get(key)

    @rule(key=st.sampled_from(["b", "c", "e/c"]))
    def get_through_a_view(self, key: str) -> None:
        assert self.view.get(key) == self.inner.get(f"a/{key}")

    @rule(key=KEYS, value=VALUES, how=st.sampled_from(["put", "parts", "update", "create", "replace"]))
    def write(self, key: str, value: bytes, how: str) -> None:
        if how == "put":
            self.store.put(key, value)
        elif how == "parts":
            self.store.put(key, [value[:3], value[3:]])
        elif how == "update":
            self.store.update(key, lambda old: bytes(old or b"")[:100] + value)
        elif how == "create":
            self.store.create(key, value)
        elif found := self.store.read(key):
            assert self.store.replace(key, value, found.tag)

    @rule(key=KEYS, value=VALUES)
    def change_under_the_lock(self, key: str, value: bytes) -> None:
        with self.store.lock(key):
            self.inner.put(key, value)  # as another process would, before it let go of the lock
        self.store.delete([key])

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.store.delete([key])

    @rule(prefix=st.sampled_from(["", "a/", "a/e/"]))
    def delete_prefix(self, prefix: str) -> None:
        self.store.delete_prefix(prefix)

    @rule()
    def pickle(self) -> None:
        copy = pickle.loads(pickle.dumps(self.store))
        assert {key: copy.get(key) for key in copy.list()} == {key: self.inner.get(key) for key in self.inner.list()}

    @invariant()
    def it_keeps_no_more_than_it_may(self) -> None:
        if hasattr(self, "store"):
            assert self.store.statistics.nbytes <= self.most
            assert self.store.statistics.decoded_nbytes <= self.decoded


class FolderMachine(CacheMachine):
    """The same with a folder, and files that vanish or are damaged."""

    @initialize(most=st.sampled_from([0, 700]), room=st.sampled_from([100, 1500, 100_000]))
    def start(self, most: int, room: int) -> None:  # type: ignore[override]
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.inner = LocalStore(f"{self.folder.name}/root")  # type: ignore[assignment]
        self.most, self.decoded, self.room = most, 0, room
        options: dict[str, Any] = {"folder": f"{self.folder.name}/cache", "folder_bytes": room}
        self.store = CacheStore(self.inner, most, **options)
        self.view = PrefixStore(self.store, "a")

    def files(self) -> list[Path]:
        return sorted(path for path in Path(self.folder.name, "cache").rglob("*") if path.is_file())

    @rule(number=st.integers(0, 100), cut=st.booleans())
    def damage(self, number: int, cut: bool) -> None:
        for path in self.files()[number : number + 1]:
            raw = bytearray(path.read_bytes())
            raw[number % len(raw)] ^= 1
            path.write_bytes(raw[:-1] if cut else raw)

    @rule()
    def begin_anew(self) -> None:
        self.store = pickle.loads(pickle.dumps(self.store))
        self.view = PrefixStore(self.store, "a")

    @invariant()
    def the_folder_is_bounded(self) -> None:
        if hasattr(self, "store"):
            assert sum(path.stat().st_size for path in self.files()) <= self.room

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestFolderMachine = FolderMachine.TestCase
TestFolderMachine.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


# -- what is kept -----------------------------------------------------------------------------------


def test_a_value_is_fetched_once_and_its_ranges_with_it():
    store, log = counted(MemoryStore({"k": b"0123456789"}))
    assert store.get("k") == store.get("k") == b"0123456789"
    assert store.read("k", [(-2, None), (0, 1)]).parts == [b"89", b"0"]
    assert [store.get(key) for key in "kk"] == [b"0123456789"] * 2
    assert log.counter == {"read": 1}
    counts = store.statistics
    assert (counts.hits, counts.misses, counts.hit_bytes, counts.miss_bytes) == (4, 1, 33, 10)


def test_ranges_are_kept_one_by_one():
    store, log = counted(MemoryStore({"k": b"0123456789"}))
    assert store.read("k", [(0, 2), (4, 2)]).parts == [b"01", b"45"]
    assert store.get_range("k", 4, 2) == b"45"
    assert store.read("k", [])[:2] == ([], 10)
    assert log.counter == {"read": 1}
    assert store.get_range("k", 4, 3) == b"456"
    assert log.counter == {"read": 2}


def test_ranges_of_different_values_are_never_mixed():
    inner = MemoryStore({"k": b"aaaa"})
    store, log = counted(inner)
    store.get_range("k", 0, 2)
    inner.put("k", b"bbbb")
    store.get_range("k", 2, 2)
    assert store.read("k", [(0, 2), (2, 2)]).parts == [b"bb", b"bb"]
    assert log.counter == {"read": 3}


def test_what_has_no_tag_is_kept_whole_only():
    class Untagged(MemoryStore):
        def read(self, key: str, spans: Any = None) -> Any:
            found = super().read(key, spans)
            return found._replace(tag=None) if found else None

    store, log = counted(Untagged({"k": b"0123"}))
    for _ in range(2):
        assert store.get_range("k", 0, 2) == b"01"
    assert log.counter == {"read": 2}
    for _ in range(2):
        assert store.get("k") == b"0123"
    assert log.counter == {"read": 3}
    assert store.read("k", [(0, 1)]) == ([b"0"], 4, None)


def test_a_missing_key_is_asked_for_again():
    store, log = counted()
    assert store.get("k") is None
    log.inner.put("k", b"1")
    assert store.get("k") == b"1"


def test_those_used_least_lately_make_room():
    store, log = counted(MemoryStore({key: bytes(1000) for key in "abc"}), max_bytes=3000)
    for key in "abac":
        store.get(key)
    log.reset()
    for key in "ac":
        store.get(key)
    assert not log.counter
    assert store.statistics.evictions == 1
    store.get("b")
    assert log.counter == {"read": 1}


def test_what_is_larger_than_the_cache_leaves_the_others_alone():
    store, log = counted(MemoryStore({"small": b"1", "large": bytes(5000)}), max_bytes=3000)
    for key in ("small", "large", "large", "small"):
        store.get(key)
    assert log.counter == {"read": 3}


@pytest.mark.parametrize("options", [{"max_bytes": -1}, {"folder_bytes": 1.5}, {"decoded_bytes": None}, {"ttl": 0}])
def test_bad_limits_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}="):
        CacheStore(MemoryStore(), **options)


def test_clearing_forgets_everything(tmp_path):
    store, log = counted(LocalStore(tmp_path / "root"), folder=tmp_path / "cache")
    log.put("k", b"1")
    store.get("k")
    store.clear()
    log.reset()
    assert store.get("k") == b"1"
    assert log.counter == {"read": 1}


# -- changes ----------------------------------------------------------------------------------------


def test_a_value_that_is_being_fetched_while_it_is_written_is_not_kept():
    """The fetch begins before the write and ends after it, with the value from before."""
    read, written = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def read(self, key: str, spans: Any = None) -> Any:
            found = super().read(key, spans)
            read.set()
            assert written.wait(10)
            return found

    store = CacheStore(Slow({"k": b"old"}), decoded_bytes=1000)

    def work(number: int) -> None:
        if number == 0:
            assert store.decoded("k", 1, lambda raw: np.frombuffer(raw, "u1")).tobytes() == b"old"
        else:
            assert read.wait(10)
            store.put("k", b"new")
            written.set()

    run_threads(2, work)
    assert store.get("k") == b"new"
    assert store.decoded("k", 1, lambda raw: np.frombuffer(raw, "u1")).tobytes() == b"new"


def test_a_failed_write_is_forgotten_too():
    class Torn(MemoryStore):
        def write(self, key: str, value: Any, if_tag: Any = None) -> bool:
            super().write(key, value, if_tag)
            raise TimeoutError("no answer")

    store = CacheStore(Torn({"k": b"old"}))
    store.get("k")
    with pytest.raises(TimeoutError):
        store.put("k", b"new")
    assert store.get("k") == b"new"


def test_what_is_read_under_the_lock_is_read_anew(tmp_path):
    """Another process may have changed it while it had the lock."""
    inner = LocalStore(tmp_path)
    store = CacheStore(inner)
    inner.put("n", b"1")
    store.get("n")
    inner.put("n", b"2")
    with store.lock("n"):
        store.put("n", b"%d" % (int(store.get("n")) + 1))
    assert inner.get("n") == b"3"


def test_under_the_lock_of_a_document_all_documents_of_the_node_are_read_anew():
    inner = MemoryStore({"a/.zarray": b"1", "a/.zattrs": b"2", "b/.zattrs": b"3"})
    store, log = counted(inner)
    for key in ("a/.zarray", "a/.zattrs", "b/.zattrs"):
        store.get(key)
    inner.put("a/.zattrs", b"new")
    log.reset()
    with store.lock("a/.zarray"):
        assert [store.get(key) for key in ("a/.zarray", "a/.zattrs", "b/.zattrs")] == [b"1", b"new", b"3"]
    assert log.counter == {"read": 2}


def test_a_value_that_was_kept_is_replaced_on_condition(tmp_path):
    inner = LocalStore(tmp_path / "root")
    inner.put("k", b"old")
    first = CacheStore(inner, folder=tmp_path / "cache")
    assert first.get("k") == b"old"
    assert first.replace("k", b"new", first.read("k").tag)
    inner.put("k", b"theirs")
    kept = first.read("k")
    inner.put("k", b"later")
    assert not first.replace("k", b"mine", kept.tag)
    second = CacheStore(inner, folder=tmp_path / "cache")
    second.get("k")
    third = CacheStore(inner, folder=tmp_path / "cache")  # which has it from the folder, without its tag
    while not third.replace("k", b"mine", third.read("k").tag):
        pass
    assert inner.get("k") == b"mine"


def test_changes_by_others_are_noticed_where_values_are_validated():
    inner = MemoryStore({"k": b"old", "gone": b"x"})
    store, log = counted(inner, validate=True)
    store.get("k"), store.get("gone")
    inner.put("k", b"new")
    inner.delete(["gone"])
    assert (store.get("k"), store.get("gone")) == (b"new", None)
    log.reset()
    assert store.get("k") == b"new"
    assert (log.counter, log.nbytes["read"]) == ({"read": 1}, 0)


def test_changes_by_others_are_noticed_after_a_while(monkeypatch):
    inner = MemoryStore({"k": b"old"})
    store = CacheStore(inner, ttl=60, decoded_bytes=1000)
    now = cache.time.time()
    monkeypatch.setattr(cache.time, "time", lambda: now)
    store.get("k")
    inner.put("k", b"new")
    now += 59
    assert store.get("k") == b"old"
    # What is decoded from it is no younger than the value.
    assert store.decoded("k", 1, lambda raw: np.frombuffer(raw, "u1")).tobytes() == b"old"
    now += 2
    assert store.get("k") == b"new"
    assert store.decoded("k", 1, lambda raw: np.frombuffer(raw, "u1")).tobytes() == b"new"


# -- folders ----------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path) -> dict[str, Any]:
    """A store with a value, and where to cache it."""
    inner = LocalStore(tmp_path / "root")
    inner.put("a/k", b"0123456789")
    return {"inner": inner, "folder": tmp_path / "cache"}


def test_a_folder_outlives_the_cache(place):
    for expected in ({"read": 1}, {}):
        store, log = counted(**place)
        assert store.get("a/k") == b"0123456789"
        assert store.get_range("a/k", 3, 2) == b"34"
        assert log.counter == expected
    assert (store.statistics.hits, store.statistics.misses) == (2, 0)


def test_ranges_are_kept_in_the_folder_too(place):
    for expected in ({"read": 1}, {}):
        store, log = counted(max_bytes=0, **place)
        assert store.read("a/k", [(0, 2), (-1, None)]).parts == [b"01", b"9"]
        assert log.counter == expected


def test_a_ttl_counts_from_when_the_store_was_asked(place, monkeypatch):
    now = cache.time.time()
    monkeypatch.setattr(cache.time, "time", lambda: now)
    counted(**place)[0].get("a/k")
    now += 61
    store, log = counted(ttl=60, **place)
    store.get("a/k")
    assert log.counter == {"read": 1}


def test_validation_works_between_processes(place):
    counted(**place)[0].get("a/k")
    store, log = counted(validate=True, **place)
    assert store.get("a/k") == b"0123456789"
    assert (log.counter, log.nbytes["read"]) == ({"read": 1}, 0)
    place["inner"].put("a/k", b"new")
    assert store.get("a/k") == b"new"


def test_two_stores_in_one_folder_do_not_meet(place, tmp_path):
    other = LocalStore(tmp_path / "other")
    other.put("a/k", b"other")
    for _ in range(2):
        assert counted(**place)[0].get("a/k") == b"0123456789"
        assert counted(other, folder=place["folder"])[0].get("a/k") == b"other"


def test_a_store_that_ends_with_the_process_has_no_folder(tmp_path):
    for inner in (MemoryStore(), PrefixStore(MemoryStore(), "a")):
        with pytest.raises(ValueError, match="ends with this process"):
            CacheStore(inner, folder=tmp_path)


def test_files_are_named_by_digests_and_temporary_ones_do_not_stay(place):
    counted(**place)[0].get("a/k")
    (file,) = [path for path in place["folder"].rglob("*") if path.is_file()]
    assert "k" not in file.relative_to(place["folder"]).as_posix().replace("cache", "")
    assert file.name == "0:"


def test_a_full_disk_costs_the_cache_but_not_the_value(place, monkeypatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    store, log = counted(**place, max_bytes=0)
    monkeypatch.setattr(os, "makedirs", full)
    for _ in range(2):
        assert store.get("a/k") == b"0123456789"
    assert log.counter == {"read": 2}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_several_processes_share_a_folder(place):
    """Each reads all values several times, while the folder has room for few of them."""
    values = {f"k{number}": bytes([number]) * 1000 for number in range(20)}
    for key, value in values.items():
        place["inner"].put(key, value)

    def read() -> bool:
        store = CacheStore(place["inner"], 0, folder=place["folder"], folder_bytes=8000)
        return all(store.get(key) == value for _ in range(5) for key, value in values.items())

    children = [fork(read) for _ in range(3)]
    assert [wait() for wait in children] == [True] * 3
    sizes = [path.stat().st_size for path in place["folder"].rglob("*") if path.is_file()]
    assert sum(sizes) <= 8000 + 3 * 1100


def test_what_another_process_read_before_a_write_here_is_not_used(place):
    """It may put it into the folder after the write."""
    store = CacheStore(place["inner"], folder=place["folder"])
    other = CacheStore(place["inner"], folder=place["folder"])
    other.get("a/k")
    files = {path: path.read_bytes() for path in place["folder"].rglob("*") if path.is_file()}
    store.put("a/k", b"new")
    for path, raw in files.items():
        path.write_bytes(raw)
    assert store.get("a/k") == b"new"
    store.delete_prefix("a/")
    for path, raw in files.items():
        path.write_bytes(raw)
    assert store.get("a/k") is None


# -- arrays -----------------------------------------------------------------------------------------


def test_arrays_of_one_store_share_decoded_chunks():
    store, log = counted(max_bytes=0, decoded_bytes=1 << 20)
    model = np.arange(1200).reshape(30, 40)
    zellige.create_array(store, data=model, chunks=[[7, 13, 10], 20])
    first, second = zellige.open_array(store), zellige.open_array(store)
    assert np.array_equal(first[...], model)
    log.reset()
    assert np.array_equal(second[3:, ::-3], model[3:, ::-3])
    assert np.array_equal(second.vindex[[1, 25], [3, 39]], model[[1, 25], [3, 39]])
    assert not log.counter
    assert store.statistics.hits >= 6


def test_decoded_chunks_follow_every_kind_of_write():
    store, _ = counted(decoded_bytes=1 << 20)
    model = np.arange(60).reshape(6, 10)
    array = zellige.create_array(store, data=model, chunks=(2, 5), fill_value=-1)
    other = zellige.open_array(store)
    for index in ((slice(2), slice(5)), (3, slice(None)), (slice(None), 4)):
        assert np.array_equal(other[...], model)
        array[index] = model[index] = model[index] * 2
        assert np.array_equal(other[...], model)
    array.resize((3, 10))
    array.resize((6, 10))
    model[3:] = -1
    assert np.array_equal(other[...], model)
    anew = zellige.create_array(store, data=model + 1, chunks=(2, 5), overwrite=True)
    assert np.array_equal(anew[...], model + 1)


def test_decoded_chunks_cannot_be_changed_by_who_reads():
    store, _ = counted(decoded_bytes=1 << 20)
    array = zellige.create_array(store, data=np.arange(4), chunks=4)
    array[...][...] = 9
    assert np.array_equal(array[...], np.arange(4))
    assert not store.decoded("c/0", 1, lambda raw: np.frombuffer(raw, "u1")).flags.writeable


def test_missing_and_damaged_chunks_are_as_without_a_cache():
    store, _ = counted(decoded_bytes=1 << 20)
    array = zellige.create_array(store, shape=8, chunks=4, dtype="i4", fill_value=7)
    assert np.array_equal(array[...], [7] * 8)
    with pytest.raises(zellige.errors.ChunkNotFoundError):
        array.with_config({"read_missing_chunks": False})[...]
    store.put("c/1", b"no chunk")
    with pytest.raises(CorruptChunkError, match=r"chunk \(1,\)"):
        array[...]


@pytest.mark.parametrize("dtype", ["i2", "string"])
@pytest.mark.parametrize("options", [{}, {"shards": (8, 8)}], ids=["chunks", "shards"])
def test_an_array_through_a_cache_is_the_array(dtype, options, tmp_path):
    model = np.arange(256).reshape(16, 16).astype("i2" if dtype == "i2" else object)
    model = model if dtype == "i2" else model.astype(str).astype(object)
    caches = {"decoded_bytes": 1 << 20, "folder": tmp_path / "cache"}
    store = CacheStore(LocalStore(tmp_path / "root"), 1 << 20, **caches)
    array = zellige.create_array(store, shape=(16, 16), chunks=(4, 4), dtype=dtype, **options)
    array[...] = model
    for _ in range(2):
        assert np.array_equal(array[...].astype(object), model.astype(object))
        assert array[3, 5] == model[3, 5]
    array[1:7, 2] = model[1:7, 2] = model[0, 0]
    for _ in range(2):
        assert np.array_equal(zellige.open_array(store)[...].astype(object), model.astype(object))


def test_the_index_of_a_shard_is_kept():
    inner = MemoryStore()
    zellige.create_array(inner, data=np.arange(4096), chunks=64, shards=2048)
    store, log = counted(inner)
    for _ in range(3):
        assert zellige.open_array(store)[70] == 70
    assert log.counter == {"read": 3}  # the document, the index, the chunk


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_use_the_cache_while_a_thread_of_the_parent_had_its_lock():
    store = CacheStore(MemoryStore({"k": b"1"}))
    with store._cache.lock:
        child = fork(lambda: store.get("k") == b"1")
        assert child()


def test_a_folder_that_is_a_file_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="the folder of a cache is a file"):
        CacheStore(LocalStore(tmp_path / "data"), folder=tmp_path / "file")
