"""The laws of a store, public and our own. A test class of one store inherits them and has the fixture `store`."""

from __future__ import annotations

import zellige.testing
from zellige.stores import locks
from zellige.testing.stores import ALL, READING, WRITING, enter

__all__ = ["ALL", "READING", "WRITING", "StoreSuite", "enter"]


class StoreSuite(zellige.testing.StoreSuite):
    """The public laws, and how the locks of our stores are made."""

    def test_no_lock_is_remembered_when_it_is_free(self, store):
        locks._locks.clear()
        with store.lock("a"), store.lock_here("b"), store.lock("a"):
            assert len(locks._locks) == 2
            for number in range(3 * locks._MANY):
                enter(store, str(number))
                assert len(locks._locks) <= locks._MANY
            locks._sweep()
            assert sorted(lock().name for lock in locks._locks.values()) == sorted(
                store.lock_here(key).name for key in "ab"
            )
        locks._sweep()
        assert locks._locks == {}

    def test_a_lock_is_left_in_c_where_no_interrupt_comes_between(self, store):
        lock = store.lock_here("a")
        assert type(lock.__exit__).__name__ == "builtin_function_or_method"
