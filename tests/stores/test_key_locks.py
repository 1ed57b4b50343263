"""Locks of names: one for each, and one for many at once that never becomes the lock of one of them."""

from __future__ import annotations

import threading

from zellige.stores import base
from zellige.stores.base import KeyLock


def claimed(*names: object) -> KeyLock:
    """A lock for many that has these names, and is held by this thread."""
    every = KeyLock.for_many()
    every.acquire()
    assert every.claims(names)
    return every


def test_names_of_which_somebody_uses_one_cannot_be_claimed():
    mine, every = KeyLock("b"), KeyLock.for_many()
    with every:
        assert not every.claims(["a", "b"])
        assert KeyLock("a") is not every
        del mine
        assert every.claims(["a", "b"])
        assert not KeyLock.for_many().claims(["c", "b"])


def test_who_wants_one_of_the_names_waits_and_gets_a_lock_of_its_own():
    order: list[str] = []
    every = claimed("a", "b")

    def want(name: str) -> None:
        lock = KeyLock(name)
        assert not lock.passing
        with lock:
            order.append(name)

    threads = [threading.Thread(target=want, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    threads[2].join()
    assert order == ["c"]
    every.release()
    for thread in threads:
        thread.join()
    assert sorted(order) == ["a", "b", "c"]


def test_who_waited_goes_on_though_others_who_wait_keep_the_lock_alive():
    every = claimed("a", "b")
    done = threading.Event()
    thread = threading.Thread(target=lambda: [KeyLock("a"), KeyLock("b"), done.set()], daemon=True)
    thread.start()
    every.release()
    assert done.wait(20)
    assert KeyLock.for_many().claims(["a", "b"])
    assert every.passing  # still here


def test_locks_that_were_one_do_not_wait_for_each_other_afterwards():
    claimed("a", "b").release()
    with KeyLock("a"):
        entered = threading.Thread(target=lambda: KeyLock("b").acquire())
        entered.start()
        entered.join(10)
        assert not entered.is_alive()


def test_the_names_are_forgotten():
    base._locks.clear()
    for number in range(20):
        every = claimed(*[(number, k) for k in range(100)])
        assert len(base._locks) <= base._MANY
        every.release()
    del every
    base._sweep()
    assert base._locks == {}
