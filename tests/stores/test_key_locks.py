"""Locks of names: one for each, and one for many at once that never becomes the lock of one of them."""

from __future__ import annotations

import threading

from zellige.stores import base
from zellige.stores.base import KeyLock


def test_one_lock_for_all_is_refused_if_somebody_uses_one():
    mine = KeyLock("b")
    assert KeyLock.for_all(["a", "b"]) is None
    del mine
    assert KeyLock.for_all(["a", "b"]) is not None


def test_who_wants_one_of_the_names_waits_and_gets_a_lock_of_its_own():
    order: list[str] = []
    every = KeyLock.for_all(["a", "b"])
    assert every is not None

    def want(name: str) -> None:
        lock = KeyLock(name)
        assert not lock.passing
        with lock:
            order.append(name)

    threads = [threading.Thread(target=want, args=(name,)) for name in ("a", "b", "c")]
    with every:
        for thread in threads:
            thread.start()
        threads[2].join()
        assert order == ["c"]
    del every
    for thread in threads:
        thread.join()
    assert sorted(order) == ["a", "b", "c"]


def test_locks_that_were_one_do_not_wait_for_each_other_afterwards():
    with KeyLock.for_all(["a", "b"]):  # type: ignore[union-attr]
        pass
    with KeyLock("a"):
        entered = threading.Thread(target=lambda: KeyLock("b").acquire())
        entered.start()
        entered.join(10)
        assert not entered.is_alive()


def test_the_names_are_forgotten():
    base._locks.clear()
    for number in range(20):
        with KeyLock.for_all([(number, k) for k in range(100)]):  # type: ignore[union-attr]
            assert len(base._locks) <= base._MANY
    base._sweep()
    assert base._locks == {}
