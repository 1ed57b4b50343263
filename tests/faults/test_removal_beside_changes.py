"""Who removes, replaces or moves a node waits for those who change it, and finishes what a dead one has committed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from crashing_store import CrashingStore, Killed

import zellige
from zellige.errors import ConflictError, NodeNotFoundError
from zellige.nodes import lease
from zellige.stores import LocalStore, MemoryStore, Store

pytestmark = pytest.mark.filterwarnings("ignore::zellige.errors.CompatibilityWarning")


def replace(group: zellige.Group) -> None:
    group.create_array("x", data=[9, 9], chunks=1, overwrite=True)


def replace_by_another_shape(group: zellige.Group) -> None:
    group.create_array("x", data=[9, 9, 9, 9], chunks=1, overwrite=True)


def delete(group: zellige.Group) -> None:
    del group["x"]


def delete_and_create(group: zellige.Group) -> None:
    delete(group)
    group.create_array("x", data=[9, 9], chunks=1)


def move(group: zellige.Group) -> None:
    group.move("x", "z")


def start_anew(group: zellige.Group) -> None:
    zellige.open_group(group.store, mode="w")


ACTIONS: dict[Callable[[zellige.Group], None], list[int] | None] = {
    replace: [9, 9],
    replace_by_another_shape: [9] * 4,
    delete: None,
    delete_and_create: [9, 9],
    move: None,
    start_anew: None,
}
"""With what is at `x` after them."""

every_action = pytest.mark.parametrize("act", ACTIONS, ids=lambda act: act.__name__)
consolidated = pytest.mark.parametrize("consolidated", [False, True], ids=["alone", "consolidated"])


def make(store: Store, consolidated: bool = False) -> Store:
    group = zellige.open_group(store, mode="w")
    group.create_array("x", data=[1, 2], chunks=1)
    if consolidated:
        zellige.consolidate_metadata(store)
    return store


def values(store: Store, name: str = "x") -> list[int] | None:
    try:
        found: list[int] = zellige.open(store, path=name, mode="r")[:].tolist()
    except NodeNotFoundError:
        return None
    return found


@every_action
@consolidated
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_change_that_is_under_way_keeps_them_out(act, consolidated, kind, tmp_path):
    store = make(LocalStore(tmp_path) if kind == "local" else MemoryStore(), consolidated)
    with zellige.config.set({"lease.wait": 0.05}), zellige.change(store) as change:
        change.append("x", [3])
        with pytest.raises(ConflictError, match="Nothing was written"):
            act(zellige.open_group(store))
    assert values(store) == [1, 2, 3]
    act(zellige.open_group(store))
    assert values(store) == ACTIONS[act]


@every_action
def test_an_append_that_others_write_keeps_them_out(act, tmp_path):
    store = make(LocalStore(tmp_path))
    pending = zellige.open_array(store, path="x", mode="r+").start_append(1)
    pending.array[2:] = 3
    with zellige.config.set({"lease.wait": 0.05}), pytest.raises(ConflictError, match="Nothing was written"):
        act(zellige.open_group(store))
    pending.commit()
    assert values(store) == [1, 2, 3]
    act(zellige.open_group(store))
    assert values(store) == ACTIONS[act]


@every_action
def test_an_append_of_another_thread_is_waited_for(act, tmp_path):
    """It is stopped while its chunk is there and its new shape is not."""
    stopped, goes_on, acting = threading.Event(), threading.Event(), threading.Event()

    class Slow(LocalStore):
        def write(self, key: str, value: Any, if_tag: Any = None) -> bool:
            if key == "x/zarr.json" and not stopped.is_set():
                stopped.set()
                assert goes_on.wait(60)
            return super().write(key, value, if_tag)

    make(LocalStore(tmp_path))
    slow = zellige.open_array(Slow(tmp_path), path="x", mode="r+")
    appending = threading.Thread(target=slow.append, args=([3],))
    appending.start()
    assert stopped.wait(60)
    done: list[str] = []

    def run() -> None:
        acting.set()
        act(zellige.open_group(LocalStore(tmp_path)))
        done.append("acted")

    other = threading.Thread(target=run)
    other.start()
    acting.wait(60)
    other.join(0.3)
    assert done == [], "it has not waited"
    goes_on.set()
    appending.join(60)
    other.join(60)
    assert done == ["acted"]
    assert values(LocalStore(tmp_path)) == ACTIONS[act]
    assert values(LocalStore(tmp_path), "z") == ([1, 2, 3] if act is move else None)


@every_action
@consolidated
def test_what_a_dead_writer_has_committed_is_finished_first(act, consolidated, monkeypatch):
    """Killed at every point, it never changes the array that comes later."""
    monkeypatch.setattr(lease.Lease, "renew", lambda self: None)  # the thread that renews is dead as well
    at = 0
    while True:
        inner = make(MemoryStore(), consolidated)
        at += 1
        store = CrashingStore(inner, at)
        try:
            with zellige.change(store) as change:
                change.append("x", [3])
        except Killed:
            pass
        else:
            break
        lease._held.clear()  # the process is dead
        with zellige.config.set({"lease.timeout": 0}):
            group = zellige.open_group(inner)
            act(group)
            expected = ACTIONS[act]
            for _ in range(2):
                assert values(inner) == expected
                zellige.repair(inner, dry_run=False)
            with zellige.change(inner) as change:
                if expected is not None:
                    change.append("x", [5])
        assert values(inner) == (None if expected is None else [*expected, 5])
        if act is move:
            assert values(inner, "z") in ([1, 2], [1, 2, 3])
    assert at > 3


def test_the_others_of_a_change_are_there_all_the_same():
    """Of two arrays that a dead writer has made longer, one is replaced: the other one is as long as it was told."""
    for at in range(1, 30):
        inner = make(MemoryStore())
        zellige.open_group(inner).create_array("y", data=np.array([7, 7]), chunks=1)
        store = CrashingStore(inner, at)
        try:
            with zellige.change(store) as change:
                change.append("x", [3])
                change.append("y", [8])
        except Killed:
            lease._held.clear()
        else:
            break
        with zellige.config.set({"lease.timeout": 0}):
            replace(zellige.open_group(inner))
            zellige.repair(inner, dry_run=False)
        assert values(inner) == [9, 9]
        assert values(inner, "y") in ([7, 7], [7, 7, 8])
