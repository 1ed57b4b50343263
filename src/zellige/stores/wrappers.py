"""Stores around other stores: they count requests, delay them, shorten keys, or fence off writers without a lease.

Locks, batches and durability are those of the store inside: a wrapper and what it wraps may be used side by side.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Self, TypeVar

from zellige.errors import ConflictError, ShortReadError
from zellige.stores.abilities import DecodedChunks, Folders, Forks, Obstacle
from zellige.stores.base import (
    ABSENT,
    ChangedError,
    Listing,
    Missing,
    Store,
    Tag,
    Value,
    check_key,
    check_keys,
    check_prefix,
    joined,
    parts_of,
    retried,
)
from zellige.types import AnyArray, Buffer, Durability, Encoded, Span

T = TypeVar("T")


class WrapperStore(Store):
    """A store that passes everything on to another one; a base for those that do something on the way.

    All requests go through `_ask`, which is the one method to override for what happens with each of them.

    Parameters
    ----------
    inner
        The store inside.

    >>> from zellige.storage import MemoryStore
    >>> store = WrapperStore(MemoryStore({"a": b"value"}))
    >>> store.get("a"), store == store.inner
    (b'value', True)
    """

    inner: Store
    """The store inside."""

    def __init__(self, inner: Store) -> None:
        if not isinstance(inner, Store):
            raise TypeError(f"{type(self).__name__} wraps a Store, found {inner!r}; make one with zellige.storage")
        self.inner = inner
        self.traits = replace(inner.traits, local_path=None)  # something is between keys and files

    def _ask(self, ask: Callable[..., T], *given: Any, **options: Any) -> T:
        """Pass one request on: `read`, `write`, `delete` or `list` of the store inside."""
        return ask(*given, **options)

    def _around(self, inner: Store) -> Self:
        """Return the same wrapper around a view of what it wraps; all else is shared."""
        view = self._view(read_only=inner.read_only, durability=inner.traits.durability)
        view.inner = inner
        return view

    # -- requests ---------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read a whole value, or ranges of it, of the store inside."""
        return self._ask(self.inner.read, key, spans)

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value in the store inside, maybe on a condition."""
        return self._ask(self.inner.write, key, value, if_tag)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys from the store inside."""
        self._ask(self.inner.delete, keys)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List the keys of the store inside."""
        return self._ask(self.inner.list, prefix, recursive=recursive)

    # -- all else ---------------------------------------------------------------------------------

    def lock(self, key: str) -> AbstractContextManager[object]:
        """Return the lock of the store inside."""
        return self.inner.lock(key)

    @property
    def identity(self) -> Hashable:
        """That of the store inside: it holds the same data."""
        return self.inner.identity

    def name(self, key: str) -> Hashable:
        """Return the name that the store inside has for the key."""
        return self.inner.name(key)

    def ability(self, kind: type[T]) -> Any:
        """Return that of the store inside."""
        found = self.inner.ability(kind)
        return _ForksAround(self, found) if isinstance(found, Forks) and kind is Forks else found

    def with_durability(self, durability: Durability) -> Self:
        """Return the same data through a store whose writes survive this."""
        return self._around(self.inner.with_durability(durability))

    def as_read_only(self) -> Self:
        """Return the same data through a store that refuses to write."""
        return self._around(self.inner.as_read_only())

    def close(self) -> None:
        """Release what the store inside holds."""
        self.inner.close()

    def __exit__(self, *exc: object) -> None:
        self.inner.__exit__(*exc)  # which may drop what was written before an exception

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


class _ForksAround(Forks):
    """Forks of a transaction, each in the wrapper that the transaction is in."""

    def __init__(self, outside: WrapperStore, inside: Forks) -> None:
        self._outside, self._inside = outside, inside

    def fork(self) -> WrapperStore:
        return self._outside._around(self._inside.fork())

    def merge(self, forks: Iterable[Any]) -> None:
        self._inside.merge([fork.inner for fork in forks])


class FoldersAround(Folders):
    """The directories of a wrapped store, where prefixes may be longer: they begin with `prefix` there.

    `changed` is called with each prefix, as it is outside, below which something may have changed.
    """

    def __init__(self, inside: Folders, prefix: str = "", changed: Callable[[str], object] = lambda _: None) -> None:
        self._inside, self._prefix, self._changed = inside, prefix, changed

    def outer(self) -> Store | None:
        """Return a store of the directory above; None for a part of another store, which is above it."""
        return None if self._prefix else self._inside.outer()

    def obstacles(self, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
        """Find what lies in the place of keys and is no value."""
        found = self._inside.obstacles(self._prefix + check_prefix(prefix))
        return ((key[len(self._prefix) :], what) for key, what in found)

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove keys that start with a prefix."""
        inside = [self._prefix + key for key in check_keys(keys)]
        with self._changing(prefix) as top:
            self._inside.delete_below(top, inside)

    def remove_tree(self, prefix: str) -> None:
        """Remove every key that starts with the prefix, and all directories."""
        with self._changing(prefix) as top:
            self._inside.remove_tree(top)

    def detach(self, prefix: str) -> bool:
        """Remove a prefix that is only a link to another, which stays."""
        with self._changing(prefix) as top:
            return self._inside.detach(top)

    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        """Remove the prefix and those below it that hold nothing."""
        self._inside.prune(self._prefix + check_prefix(prefix), owned)

    def rename(self, source: str, dest: str) -> bool:
        """Move all keys below a prefix to another that has none, at once."""
        with self._changing(source) as old, self._changing(dest) as new:
            return self._inside.rename(old, new)

    @contextmanager
    def _changing(self, prefix: str) -> Iterator[str]:
        """Yield a prefix as it is inside, and report a change below it, even a failed one: its outcome is unknown."""
        inside = self._prefix + check_prefix(prefix)
        try:
            yield inside
        finally:
            self._changed(prefix)


class FencedStore(WrapperStore):
    """An object store that only the owner of a lease can write to.

    A process that is stopped for long between checking its lease and writing would overwrite what the next owner has
    written. So every write is conditional: it fails where another process has written meanwhile, and the lease is
    checked again before the next attempt. Object stores have no conditional delete: there a race of a moment remains.

    Parameters
    ----------
    inner
        The store, whose conditional writes are what keeps others out.
    check
        Raises `ConflictError` if the lease is lost; see `Lease.check`.

    """

    def __init__(self, inner: Store, check: Callable[[], None]) -> None:
        super().__init__(inner)
        self._check = check

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing; without a condition, retry until no other write comes first."""
        if if_tag is not None:
            self._check()
            done = self.inner.write(key, value, if_tag)
            if done and if_tag is ABSENT:
                self._check_created(key, value)
            return done

        def attempt() -> bool:
            if self.create(key, value):
                return True
            found = self.inner.read(key, ())
            if found is None or not self.replace(key, value, found.tag):
                raise ChangedError
            return True

        return retried(self, [key], attempt)

    def _check_created(self, key: str, value: Encoded) -> None:
        """Check the lease after a key was created, and remove the key if it is lost: no other owner would."""
        try:
            self._check()
        except ConflictError:
            if self.inner.get(key) == joined(value):
                self.inner.delete([key])
            raise

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""
        self.check_writable()
        for key in check_keys(keys):
            if self.inner.exists(key):
                self._check()
                self.inner.delete([key])


class PrefixStore(WrapperStore):
    """The keys below a prefix of another store, without that prefix.

    Parameters
    ----------
    inner
        The other store.
    prefix
        How its keys begin, with or without a last `/`.

    >>> from zellige.storage import MemoryStore
    >>> outer = MemoryStore({"a/b/c": b"value", "a/x": b"other"})
    >>> store = PrefixStore(outer, "a/b")
    >>> store.get("c"), list(store.list())
    (b'value', ['c'])
    """

    def __init__(self, inner: Store, prefix: str) -> None:
        super().__init__(inner)
        self.prefix = check_key(prefix.removesuffix("/")) + "/"
        """How the keys of the other store begin; ends in `/`."""

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read a whole value, or ranges of it; see `Store.read`."""
        try:
            return self.inner.read(self.prefix + check_key(key), spans)
        except ShortReadError as error:
            text = str(error).replace(repr(self.prefix + key), repr(key))
            raise ShortReadError(text, **vars(error) | {"key": key}) from error

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing, maybe on a condition; see `Store.write`."""
        self.check_writable()
        return self.inner.write(self.prefix + check_key(key), value, if_tag)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""
        self.check_writable()
        self.inner.delete([self.prefix + key for key in check_keys(keys)])

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or one level of them."""
        found = self.inner.list(self.prefix + check_prefix(prefix), recursive=recursive)
        cut = len(self.prefix)
        return Listing((key[cut:] for key in found.keys), [below[cut:] for below in found.prefixes])

    def lock(self, key: str) -> AbstractContextManager[object]:
        """Return the lock that the other store has for its own key."""
        return self.inner.lock(self.prefix + check_key(key))

    @property
    def identity(self) -> Hashable:
        """The other store and the prefix; locks are those of the other store."""
        return "prefix", self.inner.identity, self.prefix

    def name(self, key: str) -> Hashable:
        """Return what the other store calls its own key."""
        return self.inner.name(self.prefix + check_key(key))

    def ability(self, kind: type[T]) -> Any:
        """Return that of the other store, with its own keys."""
        found: Any = super().ability(kind)
        if found is None or kind not in (Folders, DecodedChunks):
            return found
        return FoldersAround(found, self.prefix) if kind is Folders else _ChunksBelow(found, self.prefix)

    def __repr__(self) -> str:
        return f"PrefixStore({self.inner!r}, {self.prefix[:-1]!r})"


class _ChunksBelow(DecodedChunks):
    """Decoded chunks that another store keeps, under longer keys."""

    def __init__(self, inside: DecodedChunks, prefix: str) -> None:
        self._inside, self._prefix = inside, prefix

    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        return self._inside.decoded(self._prefix + check_key(key), how, decode)


class LoggingStore(WrapperStore):
    """Counts the requests that a store gets, and logs each of them.

    Views and arrays of one LoggingStore share its counts; a pickle starts from zero.

    Parameters
    ----------
    inner
        The store that gets the requests.
    log
        Called with a line of text for each request. By default that is the debug level of the logger `zellige.stores`.

    >>> from zellige.storage import MemoryStore
    >>> store = LoggingStore(MemoryStore({"a": b"value"}), log=print)
    >>> _ = store.get_range("a", 0, 3)
    read 'a' [(0, 3)]: 3 bytes
    >>> store.counter["read"], store.nbytes["read"]
    (1, 3)
    """

    def __init__(self, inner: Store, log: Callable[[str], object] | None = None) -> None:
        super().__init__(inner)
        self._log = log
        self.counter: Counter[str] = Counter()
        """How often `read`, `write`, `delete` and `list` were called."""
        self.nbytes: Counter[str] = Counter()
        """How many bytes came or went by each method."""
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget what was counted so far."""
        with self._lock:
            self.counter.clear()
            self.nbytes.clear()

    def _ask(self, ask: Callable[..., T], *given: Any, **options: Any) -> T:
        nbytes, outcome = 0, "nothing"
        try:
            found = super()._ask(ask, *given, **options)
            if isinstance(found, Value):
                nbytes = sum(map(len, found.parts))
            elif found is True:  # written
                nbytes = sum(memoryview(part).nbytes for part in parts_of(given[1]))
            if found is not None or ask.__name__ != "read":
                outcome = f"{nbytes} bytes"
            return found
        except BaseException as error:
            outcome = f"raised {error!r}"
            raise
        finally:
            self._note(ask.__name__, given, nbytes, outcome)

    def _note(self, method: str, given: tuple[Any, ...], nbytes: int, outcome: str) -> None:
        with self._lock:
            self.counter[method] += 1
            self.nbytes[method] += nbytes
        spans = f" {list(given[1])!r}" if method == "read" and given[1] is not None else ""
        line = f"{method} {given[0]!r}{spans}: {outcome}"
        if self._log is not None:
            self._log(line)
            return
        import logging  # loaded on first use

        logging.getLogger("zellige.stores").debug("%s", line)

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "_log": self._log}

    def __setstate__(self, state: dict[str, Any]) -> None:
        LoggingStore.__init__(self, state["inner"], state["_log"])


class LatencyStore(WrapperStore):
    """A store whose every request takes a while, for tests and to see what a remote store would do.

    Parameters
    ----------
    inner
        The store that gets the requests.
    latency
        The seconds that each request takes.
    concurrency
        How many requests may be in flight at once.
    gap
        Ranges of one value that are so many bytes apart, or less, are read as one.
    simulated
        Requests do not wait in real time, but only for each other: they end together as soon as `concurrency` of them
        are in flight, or all other threads of the process wait, too.

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
        """The longest chain of requests of which each began when the one before had ended; overlapping ones are one."""
        return self._clock.rounds

    @property
    def waited(self) -> float:
        """The seconds that so many rounds take."""
        return self.rounds * self.latency

    def reset(self) -> None:
        """Forget what was counted so far."""
        self._clock.requests = self._clock.rounds = 0

    def _ask(self, ask: Callable[..., Any], *given: Any, **options: Any) -> Any:
        with self._clock.request():
            found = super()._ask(ask, *given, **options)
            # A listing is complete when its request ends.
            return Listing(tuple(found.keys), tuple(found.prefixes)) if isinstance(found, Listing) else found

    def __getstate__(self) -> dict[str, Any]:
        return {
            "inner": self.inner,
            "latency": self.latency,
            "concurrency": self.traits.concurrency,
            "gap": self.traits.coalesce_gap,
            "simulated": isinstance(self._clock, _Simulated),
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
"""The same where the system does not say what threads do."""

_TASKS = "/proc/self/task"


class _Simulated:
    """Requests that end together, when as many have come as may be in flight, or no more can come."""

    def __init__(self, most: int) -> None:
        self.requests = self.rounds = 0
        self._most, self._in_flight, self._number = most, 0, 0
        self._ended = threading.Condition(threading.Lock())
        self._patience = _PATIENCE if os.path.isdir(_TASKS) else _QUIET

    def request(self) -> AbstractContextManager[object]:
        """Wait for the end of the round that this request belongs to."""
        with self._ended:
            self.requests += 1
            self._in_flight += 1
            number = self._number
            try:
                if self._in_flight == self._most:
                    self._end()
                elif self._in_flight == 1:
                    self._watch(number)
                while number == self._number:
                    self._ended.wait()
            finally:
                if number == self._number:  # interrupted, maybe in `_watch`
                    self._end()
        return nullcontext()

    def _watch(self, number: int) -> None:
        """End a round when no other thread can send a request before it has an answer; for its first request."""
        seen: tuple[int, list[str] | None] = (0, None)
        since = time.monotonic()
        while number == self._number:
            found = self._in_flight, _others_at_rest()
            if found[0] != seen[0]:
                since = time.monotonic()
            if (found == seen and found[1] is not None) or time.monotonic() - since > self._patience:
                self._end()
                return
            seen = found
            # Releases the GIL, too: a thread that waited for it is seen running at the next look.
            self._ended.wait(_STEP)

    def _end(self) -> None:
        self._number += 1
        self.rounds += 1
        self._in_flight = 0
        self._ended.notify_all()


def _others_at_rest() -> list[str] | None:
    """Return how often each other thread of this process got a CPU; None if one is running, or if unknown.

    Two equal answers say that no thread ran in between. This holds on a busy machine, too: a thread that could run is
    not asleep for the system, while some time without a request would prove little.
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
