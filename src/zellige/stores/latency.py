"""A store whose requests take a while, in real time or in a time that is only counted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from zellige.stores.base import Listing, Store
from zellige.stores.wrappers import WrapperStore


class LatencyStore(WrapperStore):
    """A store whose every request takes a while, for tests and to see what a remote store would do.

    Requests wait in real time, or with `simulated=True` only for each other: then they end together as soon as
    `concurrency` of them are under way, or all other threads of the process wait, too. `rounds` says how often one had
    to wait for another: requests whose waiting overlaps are one round. `waited` is the time that takes, and
    `requests` how many there were.

    >>> from zellige.storage import MemoryStore
    >>> store = LatencyStore(MemoryStore({"a": b"value"}), 0.020, simulated=True)
    >>> store.get("a"), store.get("a")
    (b'value', b'value')
    >>> store.requests, store.rounds, store.waited
    (2, 2, 0.04)
    """

    def __init__(
        self,
        inner: Store,
        latency: float = 0.020,
        *,
        concurrency: int = 64,
        gap: int = 1 << 20,
        simulated: bool = False,
    ) -> None:
        super().__init__(inner)
        if latency < 0 or concurrency < 1 or gap < 0:
            raise ValueError(f"latency={latency}, concurrency={concurrency}, gap={gap} must be >= 0, >= 1 and >= 0")
        self.latency = latency
        self.traits = replace(self.traits, concurrency=concurrency, coalesce_gap=gap)
        self._clock = _Simulated(concurrency) if simulated else _Real(latency)

    @property
    def requests(self) -> int:
        """How many requests there were."""
        return self._clock.requests

    @property
    def rounds(self) -> int:
        """The longest chain of requests of which each began when the one before had ended."""
        return self._clock.rounds

    @property
    def waited(self) -> float:
        """The seconds that one waits for so many rounds."""
        return self.rounds * self.latency

    def reset(self) -> None:
        """Forget what was counted so far."""
        self._clock.requests = self._clock.rounds = 0

    def _ask(self, method: str, *given: Any, **options: Any) -> Any:
        with self._clock.request():
            found = super()._ask(method, *given, **options)
            # Asked for at once, so that the request ends when this returns.
            return Listing(tuple(found.keys), tuple(found.prefixes)) if isinstance(found, Listing) else found

    def __getstate__(self) -> dict[str, Any]:
        simulated = isinstance(self._clock, _Simulated)
        return {"inner": self.inner, "latency": self.latency, "simulated": simulated} | {
            "concurrency": self.traits.concurrency,
            "gap": self.traits.coalesce_gap,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        LatencyStore.__init__(self, **state)


# -- clocks ---------------------------------------------------------------------------------------


class _Real:
    """Requests that take their time; rounds are the longest chain of them."""

    def __init__(self, latency: float) -> None:
        self.requests = self.rounds = 0
        self._lock = threading.Lock()
        self._latency = latency

    @contextmanager
    def request(self) -> Iterator[None]:
        """Make a request within the block, which first waits as long as that takes."""
        with self._lock:
            self.requests += 1
            number = self.rounds + 1
        try:
            time.sleep(self._latency)
            yield
        finally:
            with self._lock:
                self.rounds = max(self.rounds, number)


_STEP = 0.002
"""Seconds between two looks at what the other threads do."""
_PATIENCE = 1.0
"""Seconds without a request after which a round ends, although some thread is at work."""
_QUIET = 0.040
"""The same where the system does not tell what threads do."""

_TASKS = "/proc/self/task"


class _Simulated:
    """Requests that end together, when as many have come as may be under way or no more can come."""

    def __init__(self, most: int) -> None:
        self.requests = self.rounds = 0
        self._most, self._under_way, self._turn = most, 0, 0
        self._ended = threading.Condition(threading.Lock())
        self._patience = _PATIENCE if os.path.isdir(_TASKS) else _QUIET

    def request(self) -> AbstractContextManager[object]:
        """Wait for the end of the round that this request belongs to."""
        with self._ended:
            self.requests += 1
            self._under_way += 1
            turn = self._turn
            try:
                if self._under_way == self._most:
                    self._end()
                elif self._under_way == 1:
                    self._watch(turn)
                while turn == self._turn:
                    self._ended.wait()
            finally:
                if turn == self._turn:  # interrupted, maybe the one who watches
                    self._end()
        return nullcontext()

    def _watch(self, turn: int) -> None:
        """End a round when no other thread can send a request before it has an answer; for its first request."""
        seen: tuple[int, list[str] | None] = (0, None)
        since = time.monotonic()
        while turn == self._turn:
            found = self._under_way, _others_at_rest()
            if found[0] != seen[0]:
                since = time.monotonic()
            if (found == seen and found[1] is not None) or time.monotonic() - since > self._patience:
                self._end()
                return
            seen = found
            # Frees the interpreter, too: whoever waited for that is at work when the others are looked at again.
            self._ended.wait(_STEP)

    def _end(self) -> None:
        self._turn += 1
        self.rounds += 1
        self._under_way = 0
        self._ended.notify_all()


def _others_at_rest() -> list[str] | None:
    """Return how often each other thread of this process was given a processor; None if one has work, or if unknown.

    Two equal answers say that nobody has done anything in between. However busy the machine is, a thread that could go
    on is not asleep for the system, while a length of time without a request would say little.
    """
    me, found = str(threading.get_native_id()), []
    try:
        for name in os.listdir(_TASKS):
            if name != me:
                with open(f"{_TASKS}/{name}/status") as file:
                    lines = [line for line in file if line.startswith(("Pid:", "State:")) or "_switches:" in line]
                if not any(line.startswith("State:\tS") for line in lines):
                    return None
                found += lines
    except (FileNotFoundError, ProcessLookupError):  # a thread that has just ended, or another system
        return None
    return found
