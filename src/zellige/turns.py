"""Taking turns: of the many threads that wait for a store, only as many as there are CPUs work at a time.

A thread has its turn from the start of its task, and lets others have it while it waits for a request or a lock.
Nobody waits for anything else while it has its turn, and so everybody gets one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from zellige import pool
from zellige.stores.base import KeyLock
from zellige.stores.wrappers import WrapperStore
from zellige.types import AnyArray, Buffer, Encoded

T = TypeVar("T")
S = TypeVar("S")


class _Mine(threading.local):
    member = False
    """Whether this thread takes turns at all; the others just work."""
    turn = False


_mine = _Mine()


class _Turns:
    """How many threads have their turn."""

    def __init__(self) -> None:
        self.changed, self.taken = threading.Condition(threading.Lock()), 0

    def take(self) -> None:
        """Wait for a turn."""
        with self.changed:
            while self.taken >= pool.workers():
                self.changed.wait()
            self.taken += 1
            _mine.turn = True

    def end(self) -> None:
        """Let another one have it."""
        with self.changed:
            self.taken -= 1
            _mine.turn = False
            self.changed.notify()


_turns = _Turns()
if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_turns.__init__)  # type: ignore[misc]


def in_turn(work: Callable[[Any], None]) -> Callable[[Any], None]:
    """Work for the threads of a crowd, on a `YieldingStore`."""

    def turn_by_turn(task: Any) -> None:
        if _mine.member:
            work(task)
            return
        _mine.member = True
        try:
            _turns.take()
            work(task)
        finally:
            _mine.member = False
            if _mine.turn:
                _turns.end()

    return turn_by_turn


def _let_go() -> None:
    """Before waiting: others may have the turn."""
    if _mine.turn:
        _turns.end()


_LAST = frozenset({"put", "put_parts", "delete"})
"""What ends a task: nothing is left to be done in turn."""


class YieldingStore(WrapperStore):
    """A store during whose requests others have their turn; for work that is done `in_turn`."""

    def _ask(self, method: str, key: str, *more: Any) -> Any:
        again = _mine.turn and method not in _LAST
        _let_go()
        try:
            return super()._ask(method, key, *more)
        finally:
            if again:
                _turns.take()

    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        """What `decode` makes of a value in turn, maybe kept by the store inside."""
        again = _mine.turn
        _let_go()
        try:
            return self.inner.decoded(key, how, self._in_turn(decode))
        finally:
            if again:
                _turns.take()

    def update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> None:
        """Read a value, change it in turn, and write it back."""
        _let_go()
        self.inner.update(key, self._in_turn(change))

    def _in_turn(self, work: Callable[[T], S]) -> Callable[[T], S]:
        """Work that is called while this thread has let go of its turn."""
        if not _mine.member:
            return work

        def turn_by_turn(value: T) -> S:
            _turns.take()
            try:
                return work(value)
            finally:
                _let_go()

        return turn_by_turn

    def exclusive(self, key: str) -> AbstractContextManager[object]:
        """The lock of the store inside; what is done under it is to wait for requests."""
        _let_go()
        return self.inner.exclusive(key)

    def exclusive_here(self, key: str) -> KeyLock:
        """The lock of the store inside; what is done under it is to wait for a request."""
        _let_go()
        return self.inner.exclusive_here(key)
