"""Stores around other stores: they pass everything on, with the locks of the store inside."""

from __future__ import annotations

import logging
import math
import pickle
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import obstore.store
import pytest
from store_suite import StoreSuite

import zellige
from running import run_threads
from zellige.errors import ConflictError, StoreKeyError
from zellige.storage import LatencyStore, LocalStore, LoggingStore, MemoryStore, PrefixStore, Store, WrapperStore
from zellige.stores import wrappers
from zellige.stores.abilities import Folders, obstacles
from zellige.stores.base import Traits
from zellige.stores.object import ObjectStore
from zellige.stores.wrappers import FencedStore


def contents(store: Store) -> dict[str, bytes | None]:
    return {key: store.get(key) for key in sorted(store.list())}


class TestLatencyStore(StoreSuite):
    @pytest.fixture
    def store(self) -> LatencyStore:
        return LatencyStore(MemoryStore(), 0)


class TestPrefixStoreAroundALoggingStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path) -> PrefixStore:
        return PrefixStore(LoggingStore(LocalStore(tmp_path / "root")), "x")


def allowed() -> None:
    """The check of a lease that is held."""


class TestFencedStore(StoreSuite):
    control_keys = False

    @pytest.fixture
    def store(self) -> FencedStore:
        return FencedStore(ObjectStore(obstore.store.MemoryStore()), allowed)


# -- fences -----------------------------------------------------------------------------------------


class Lost:
    """The check of a lease that is lost before the n-th look at it."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise ConflictError("lost")


FENCED = {
    "put": lambda store, key: store.put(key, b"mine"),
    "put of parts": lambda store, key: store.put(key, [b"mi", b"ne"]),
    "create": lambda store, key: store.create(key, b"mine"),
    "update": lambda store, key: store.update(key, lambda old: b"mine"),
    "delete": lambda store, key: store.delete([key]),
}


@pytest.mark.parametrize("there", [None, b"theirs"])
@pytest.mark.parametrize("name", FENCED)
@pytest.mark.parametrize("at", [1, 2])
def test_who_has_lost_its_lease_leaves_what_is_there(name, there, at):
    inner = ObjectStore(obstore.store.MemoryStore())
    if there is not None:
        inner.put("k", there)
    try:
        FENCED[name](FencedStore(inner, Lost(at)), "k")
    except ConflictError:
        assert inner.get("k") == there
    else:  # nothing was to be done, or it was held for as long as it took
        nothing = (name, there) in [("delete", None), ("create", b"theirs")]
        assert nothing or at == 2
        assert inner.get("k") == (there if nothing else None if name == "delete" else b"mine")


# -- what a wrapper has from the store inside -------------------------------------------------------


class Far(MemoryStore):
    """A store with values of its own for everything that stores state about themselves."""

    traits = Traits(concurrency=7, coalesce_gap=12345, optimistic=True, transactional=True, durability="power")

    def __init__(self) -> None:
        super().__init__()
        self.traits = type(self).traits


WRAPPERS: dict[str, Any] = {
    "wrapper": WrapperStore,
    "prefix": lambda inner: PrefixStore(inner, "a/b"),
    "logging": LoggingStore,
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapper_states_what_the_store_inside_states(wrap):
    inner = Far()
    store = wrap(inner)
    assert store.traits == inner.traits
    view = store.as_read_only()
    assert view.traits == replace(inner.traits, read_only=True)
    assert (view.inner.read_only, store.read_only) == (True, False)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_what_is_between_keys_and_files_is_not_passed_by(wrap, tmp_path):
    inner = LocalStore(tmp_path)
    assert inner.traits.local_path == f"{tmp_path}/"
    assert wrap(inner).traits == replace(inner.traits, local_path=None)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_changes_are_optimistic_where_they_are_in_the_store_inside(wrap):
    class Meddling(Far):
        """A store to which somebody else writes between a read and a write."""

        meddles = True

        def write(self, key: str, value: Any, if_tag: Any = None) -> bool:
            if self.meddles:
                self.meddles = False
                super().write(key, b"theirs")
            return super().write(key, value, if_tag)

    inner = Meddling()
    wrap(inner).update("k", lambda old: bytes(old or b"") + b" mine")
    assert list(contents(inner).values()) == [b"theirs mine"]


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_durability_is_that_of_the_store_inside(wrap, tmp_path):
    store = wrap(LocalStore(tmp_path))
    assert store.traits.durability == "process"
    safe = store.with_durability("power")
    assert (safe.traits.durability, safe.inner.traits.durability, type(safe)) == ("power", "power", type(store))
    array = zellige.create_array(store, data=np.arange(10), chunks=2, config={"durability": "power"})
    assert np.array_equal(array[...], np.arange(10))


@pytest.mark.parametrize("lock", ["lock", "lock_here"])
def test_a_wrapper_and_the_store_inside_keep_each_other_out(lock, tmp_path):
    inner = LocalStore(tmp_path)
    stores = [(inner, "a/b/n"), (WrapperStore(inner), "a/b/n"), (PrefixStore(inner, "a/b"), "n")]
    stores.append((PrefixStore(PrefixStore(LoggingStore(inner), "a"), "b"), "n"))

    def increment(number: int) -> None:
        store, key = stores[number]
        for _ in range(50):
            with getattr(store, lock)(key):
                store.put(key, b"%d" % (int(store.get(key) or b"0") + 1))

    run_threads(len(stores), increment)
    assert inner.get("a/b/n") == b"200"


def test_several_locks_at_once_are_those_of_the_store_inside():
    inner = MemoryStore()
    held = threading.Event()

    def wait_for_it(number: int) -> None:
        if number:
            held.wait(10)
            with inner.lock_here("p/b"):
                assert inner.get("p/done") == b"1"
        else:
            with PrefixStore(inner, "p").lock_here("b"):
                held.set()
                inner.put("p/done", b"1")

    run_threads(2, wait_for_it)


def test_only_stores_are_wrapped():
    with pytest.raises(TypeError, match=r"wraps a Store, found \{\}"):
        WrapperStore({})  # type: ignore[arg-type]


# -- prefixes ---------------------------------------------------------------------------------------


def test_a_prefix_store_sees_its_keys_only():
    outer = MemoryStore({"a/b/c": b"1", "a/b/d/e": b"2", "a/bc": b"3", "c": b"4"})
    store = PrefixStore(outer, "a/b/")
    assert contents(store) == {"c": b"1", "d/e": b"2"}
    assert store.list_dir() == (["c"], ["d/"])
    store.delete_prefix("")
    assert contents(outer) == {"a/bc": b"3", "c": b"4"}


@pytest.mark.parametrize("prefix", ["", "/", "/a", "a//b", "../a", "a/..", "."])
def test_a_prefix_is_a_key(prefix):
    with pytest.raises(StoreKeyError):
        PrefixStore(MemoryStore(), prefix)


def test_two_prefix_stores_are_equal_if_their_data_is():
    outer = MemoryStore()
    assert PrefixStore(outer, "a") == PrefixStore(outer, "a/")
    assert PrefixStore(outer, "a") != PrefixStore(outer, "b")
    assert PrefixStore(outer, "a") != outer
    assert repr(PrefixStore(outer, "a")) == f"PrefixStore({outer!r}, 'a')"


def test_what_is_no_value_is_told_by_the_store_inside(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/link").symlink_to("nothing")
    link = "a link that leads nowhere"
    inner = LocalStore(tmp_path)
    assert dict(obstacles(LoggingStore(inner), "a/")) == {"a/b": "a directory", "a/b/link": link}
    assert dict(obstacles(PrefixStore(inner, "a"))) == {"b": "a directory", "b/link": link}
    assert dict(obstacles(PrefixStore(inner, "a"), "b/")) == {"b/link": link}
    assert list(obstacles(MemoryStore({"a/b": b""}))) == []


def test_a_prefix_is_renamed_within_its_store(tmp_path):
    outer = LocalStore(tmp_path)
    store = PrefixStore(outer, "p")
    store.put("a/k", b"1")
    folders = store.ability(Folders)
    assert folders is not None
    assert folders.rename("a/", "b/c/")
    assert contents(outer) == {"p/b/c/k": b"1"}


def test_an_array_below_a_prefix_is_that_of_the_outer_store(tmp_path):
    outer = LocalStore(tmp_path)
    group = zellige.create_group(PrefixStore(outer, "deep/er"))
    group.create_array("t", data=np.arange(59), chunks=[[31, 28]])
    group["t"][30:40] *= -1
    group["t"].resize(40)
    expected = np.arange(40)
    expected[30:] *= -1
    assert np.array_equal(zellige.open_array(outer, path="deep/er/t")[...], expected)
    assert [name for name, _ in zellige.open_group(PrefixStore(outer, "deep")).members(None)] == ["er", "er/t"]


# -- logs -------------------------------------------------------------------------------------------


def test_requests_are_counted_with_their_bytes():
    lines: list[str] = []
    store = LoggingStore(MemoryStore(), log=lines.append)
    store.put("k", b"12345")
    store.put("l", [b"12", b"3"])
    assert store.create("m", b"1234")
    assert not store.create("m", b"no")
    store.read("k", [(0, 2), (4, 1)])
    assert store.get("missing") is None
    assert store.size("k") == 5
    assert store.list_dir() == (["k", "l", "m"], [])
    store.delete(["l", "m"])
    assert store.counter == {"write": 4, "read": 3, "list": 1, "delete": 1}
    assert +store.nbytes == {"write": 12, "read": 3}
    assert lines[0] == "write 'k': 5 bytes"
    assert lines[3:7] == [
        "write 'm': 0 bytes",
        "read 'k' [(0, 2), (4, 1)]: 3 bytes",
        "read 'missing': nothing",
        "read 'k' []: 0 bytes",
    ]
    store.reset()
    assert not store.counter


def test_a_failed_request_is_logged_with_its_error():
    class Denied(MemoryStore):
        def read(self, key: str, spans: Any = None) -> Any:
            raise PermissionError("denied")

    lines: list[str] = []
    store = LoggingStore(Denied(), log=lines.append)
    with pytest.raises(PermissionError):
        store.get("k")
    assert lines == ["read 'k': raised PermissionError('denied')"]
    assert store.counter == {"read": 1}


def test_by_default_lines_go_to_the_logger_of_stores(caplog):
    store = LoggingStore(MemoryStore({"k": b"123"}))
    with caplog.at_level(logging.DEBUG, "zellige.stores"):
        store.as_read_only().get("k")
    assert caplog.messages == ["read 'k': 3 bytes"]
    assert store.counter == {"read": 1}


def test_a_pickle_counts_for_itself(tmp_path):
    store = LoggingStore(LocalStore(tmp_path))
    store.put("k", b"1")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.get("k") == b"1"
    assert (store.counter, copy.counter) == ({"write": 1}, {"read": 1})


# -- latency ----------------------------------------------------------------------------------------


def simulated(inner: Store | None = None, **options: Any) -> LatencyStore:
    return LatencyStore(MemoryStore() if inner is None else inner, simulated=True, **options)


def test_requests_one_after_the_other_are_a_round_each():
    store = simulated(latency=0.5)
    store.put("k", b"1")
    assert store.get("k") == b"1"
    assert list(store.list()) == ["k"]
    assert (store.requests, store.rounds, store.waited) == (3, 3, 1.5)
    store.reset()
    assert (store.requests, store.rounds) == (0, 0)


@pytest.mark.parametrize("is_simulated", [True, False])
def test_requests_at_the_same_time_are_one_round(is_simulated):
    store = LatencyStore(MemoryStore(), 0.2, concurrency=8, simulated=is_simulated)
    run_threads(8, lambda number: store.get(str(number)))
    assert (store.requests, store.rounds) == (8, 1)


def test_no_more_requests_end_together_than_may_be_under_way():
    store = simulated(concurrency=3)
    run_threads(9, lambda number: store.get(str(number)))
    assert (store.requests, store.rounds) == (9, 3)


def test_a_round_waits_for_those_who_are_at_work_and_not_for_those_who_sleep():
    store = simulated()

    def ask(number: int) -> None:
        if number == 2:
            threading.Event().wait(0.5)  # asleep, and so not waited for
        for turn in range(200_000 * number):
            math.sqrt(turn)
        store.get(str(number))

    run_threads(3, ask)
    assert (store.requests, store.rounds) == (3, 2)


def test_an_interrupt_ends_the_round_for_all(monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    store = simulated()
    with monkeypatch.context() as patched:
        patched.setattr(wrappers, "_others_at_rest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.get("k")
    assert store.get("k") is None
    assert store.rounds == 2


def test_an_update_is_two_rounds():
    store = simulated(MemoryStore({"k": b"1"}))
    store.update("k", lambda old: bytes(old or b"") + b"2")
    assert store.inner.get("k") == b"12"
    assert (store.requests, store.rounds) == (2, 2)


def test_latency_has_sensible_bounds():
    for options in ({"latency": -1}, {"concurrency": 0}, {"gap": -1}):
        with pytest.raises(ValueError, match="must be >= 0"):
            simulated(**options)


def test_a_pickle_waits_as_long():
    store = pickle.loads(pickle.dumps(simulated(MemoryStore({"k": b"1"}), latency=3, concurrency=5, gap=9)))
    assert store.get("k") == b"1"
    assert (store.waited, store.traits.concurrency, store.traits.coalesce_gap) == (3, 5, 9)
