"""Locks of names: one for each name, for as long as somebody uses it."""

from __future__ import annotations

import threading

from zellige.stores import locks
from zellige.stores.locks import KeyLock


def test_a_name_has_one_lock_while_somebody_uses_it():
    mine = KeyLock("a")
    assert KeyLock("a") is mine
    assert KeyLock("b") is not mine
    assert (mine.name, mine.held) == ("a", None)


def test_who_wants_a_lock_that_is_held_waits_and_others_do_not():
    order: list[str] = []
    with KeyLock("a"), KeyLock("a"):
        threads = [threading.Thread(target=lambda n=name: [KeyLock(n).acquire(), order.append(n)]) for name in "ab"]
        for thread in threads:
            thread.start()
        threads[1].join(20)
        assert order == ["b"]
    threads[0].join(20)
    assert order == ["b", "a"]


def test_names_that_nobody_uses_are_forgotten():
    locks._locks.clear()
    kept = KeyLock("kept")
    for number in range(20 * locks._MANY):
        KeyLock(number)
        assert len(locks._locks) <= locks._MANY
    locks._sweep()
    assert list(locks._locks) == ["kept"]
    assert KeyLock("kept") is kept
