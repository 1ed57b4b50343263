"""Threads: how many an operation uses, and how they share its tasks.

Threads are started for one operation and joined before it returns, so a fork is safe; see also `locks`. All operations
of a process share one limit of helpers: many callers at once, such as the threads of dask, work mostly alone. Where
threads wait for requests, their number is that of the store, shared by all operations on it. The kernel has its own
threads.
"""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from zellige.settings import config

if TYPE_CHECKING:
    from zellige.stores import Store

_SMALL = 256 << 10  # bytes that are copied in the time that starting threads takes
_FEW = 8  # requests to a local store, each of which takes microseconds
_FLUSHES = 16  # files that a disk flushes together
_MANY_STORES = 64  # stores that are known before those without helpers are forgotten
_MOST_HELD = 256 << 20  # bytes of values that waiting threads hold together
_MOMENT = 1.0  # seconds that a thread is given to end

T = TypeVar("T")
S = TypeVar("S")

# -- how many -------------------------------------------------------------------------------------

_busy: ContextVar[bool] = ContextVar("_busy", default=False)
"""Whether this thread works for an operation that has threads already."""


def is_busy() -> bool:
    """Whether this thread is part of an operation: what it starts runs inline, unless it waits for a store."""
    return _busy.get()


def workers() -> int:
    """Return how many threads an operation may use."""
    chosen: int | None = config.get("threading.max_workers")
    return chosen or _cpus()


def _cpus() -> int:
    """Return the CPUs that this process may use: by its affinity, and by the limits of its control groups."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        allowed = os.cpu_count() or 1
    return min(allowed, _granted())


@cache
def _granted(proc: str = "/proc/self/cgroup", top: str = "/sys/fs/cgroup") -> int:
    """Return the whole CPUs that control groups grant this process, as in containers; many if there is no limit."""
    limits = [1 << 16]
    for line in _lines(proc):
        _, kinds, path = line.split(":", 2)
        for group in [path[:end] for end, letter in enumerate(path) if letter == "/"] + [path.rstrip("/")]:
            if not kinds:
                quota = " ".join(_lines(f"{top}{group}/cpu.max")).split()
            elif "cpu" in kinds.split(","):
                quota = [*_lines(f"{top}/cpu{group}/cpu.cfs_quota_us"), *_lines(f"{top}/cpu{group}/cpu.cfs_period_us")]
            else:
                continue
            if len(quota) == 2 and quota[0].isdigit() and int(quota[1]):
                limits.append(max(1, -(-int(quota[0]) // int(quota[1]))))
    return min(limits)


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().splitlines()
    except OSError:
        return []


class Crew(NamedTuple):
    """How many threads an operation may use, and with which other operations it shares them."""

    most: int
    name: Hashable = None
    """The store whose requests they wait for; None for those that share the processors."""


def crew(store: Store | None, nbytes: int, held: int = 0) -> Crew:
    """Return the threads for an operation.

    Parameters
    ----------
    store
        The store that it reads or writes; None for work of the CPU alone.
    nbytes
        How many bytes it reads or writes in all; few are not worth a thread.
    held
        How many bytes each thread holds while it waits for a request: there are more such threads than CPUs.

    """
    if store is not None and store.traits.concurrency is not None:
        few = max(workers(), _MOST_HELD // max(held, 1))
        return Crew(min(store.traits.concurrency, few), store.identity)
    return Crew(workers() if nbytes >= _SMALL else 1)


class _Helpers:
    """The helpers of all operations of this process: of those that share the CPUs, and of those on each store."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._shares: dict[Hashable, list[list[int]]] = {}

    @property
    def busy(self) -> int:
        """How many are at work, without those that wait."""
        return sum(count for (count,) in self._shares.get(None, ()))

    def take(self, share: list[int], name: Hashable, wanted: int, most: int) -> int:
        """Take as many as wanted, or as are left, into a share; setting the share to 0 gives them back."""
        with self.lock:
            others = [other for other in self._shares.get(name, ()) if other[0]]
            self._shares[name] = [*others, share]
            share[0] = max(0, min(wanted, most - sum(count for (count,) in others)))
            if len(self._shares) > _MANY_STORES:
                self._shares = {known: shares for known, shares in self._shares.items() if any(s[0] for s in shares)}
        return share[0]


_helpers = _Helpers()
"""The threads of this process, which all operations share."""


def _forget_helpers() -> None:
    """In a forked child, which has none of its parent's threads."""
    global _helpers
    _helpers = _Helpers()


"""The threads of this process, which all operations share."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)


# -- sharing tasks --------------------------------------------------------------------------------

Work: TypeAlias = Callable[[Any], None]

Stopped: TypeAlias = Callable[[BaseException, list[tuple[Any, BaseException]], Iterator[Any]], None]
"""Gets an error, the tasks that failed with their own errors, and the tasks that were not begun."""


def run(work: Work, tasks: Iterable[Any], count: int, among: Crew, stopped: Stopped | None = None) -> None:
    """Do work for each of several tasks, which are taken in order.

    The first error stops all threads and is raised when they have ended. Helpers have the caller's context variables.

    Parameters
    ----------
    work
        Called with each task.
    tasks, count
        The tasks, and how many they are.
    among
        How many threads may do them.
    stopped
        Called once after an error, when no thread works any more.

    """
    most = 1 if _busy.get() and among.name is None else min(among.most, count)
    if most < 2:
        _run_here(work, iter(tasks), stopped)
        return
    share = [0]
    try:
        if helpers := _helpers.take(share, among.name, most - 1, among.most - 1):
            _run_threads(work, _Shared(tasks), helpers, stopped)
        else:
            _run_here(work, iter(tasks), stopped)
    finally:
        share[0] = 0  # no call, before which an interrupt could come


class _Shared(Iterator[Any]):
    """An iterator that threads share."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items, self._lock = iter(items), allocate_lock()

    def __next__(self) -> Any:
        with self._lock:
            return next(self._items)


def _run_here(work: Work, tasks: Iterator[Any], stopped: Stopped | None) -> None:
    for task in tasks:
        try:
            work(task)
        except BaseException as error:
            if stopped is not None:
                stopped(error, [(task, error)], tasks)
            raise


def _run_threads(work: Work, tasks: Iterator[Any], helpers: int, stopped: Stopped | None) -> None:
    errors: list[BaseException] = []
    failed: list[tuple[Any, BaseException]] = []
    skipped: list[Any] = []
    context = copy_context()
    context.run(_busy.set, True)

    def drain() -> None:
        task = None
        try:
            for task in tasks:
                if errors:
                    skipped.append(task)  # taken, but not begun
                    return
                work(task)
                task = None
        except BaseException as error:  # noqa: BLE001  (raised again by the caller, KeyboardInterrupt too)
            errors.append(error)
            if task is not None:
                failed.append((task, error))

    team = _Team([context.copy() for _ in range(helpers)])

    def begin() -> None:
        team.start(drain)
        context.run(drain)

    # An interrupt may come between any two steps, also while an error is handled: leave only when all have ended.
    ahead = [begin]
    while True:
        try:
            while ahead:
                ahead.pop()()
            team.wait()
            break
        except BaseException as error:  # noqa: BLE001  (raised again below)
            errors.append(error)
    if errors:
        # An interrupt is meant for the caller, whatever else went wrong.
        first = next((found for found in errors if not isinstance(found, Exception)), errors[0])
        try:
            if stopped is not None:
                stopped(first, failed, chain(skipped, tasks))
            raise first
        finally:
            # No cycle of errors and frames: what the frames hold, such as locks, is freed with the error.
            errors.clear()
            failed.clear()
            del first


class _Team:
    """The helpers of one operation, which are always joined.

    `threading.Thread` and `Event` are written in Python: an interrupt at a bad moment leaves their locks taken, and a
    join waits forever; or the interrupt is lost in a callback that runs when a thread is freed. So this uses locks.
    """

    def __init__(self, contexts: Sequence[Any]) -> None:
        self._contexts, size = contexts, len(contexts)
        self._locks = [allocate_lock() for _ in range(size)]
        for lock in self._locks:
            lock.acquire()
        self._launched, self._begun, self._done = [False] * size, [False] * size, [False] * size
        self._over = False

    def start(self, work: Callable[[], None]) -> None:
        """Let each helper do the work in its context; if one cannot be started, the others do its share."""

        def run(me: int) -> None:
            try:
                self._begun[me] = True  # before it looks at `_over`: a thread that is not joined does nothing
                if not self._over:
                    self._contexts[me].run(work)
            finally:
                try:
                    # Before Python 3.13 `threading` keeps such a thread for good, once `current_thread` was called.
                    threading._active.pop(get_ident(), None)  # type: ignore[attr-defined]
                finally:  # which needs no memory
                    self._done[me] = True
                    self._locks[me].release()

        for me in range(len(self._locks)):
            try:
                start_new_thread(run, (me,))
            except (RuntimeError, MemoryError):  # no more threads, or the interpreter is shutting down
                return
            self._launched[me] = True

    def wait(self) -> None:
        """Join all threads that have begun; after an interrupt call it again.

        Each of the others gets a moment. One that never begins, for want of memory, ends silently.
        """
        self._over = True
        for me, lock in enumerate(self._locks):
            if self._begun[me] and not self._done[me]:  # else an interrupt came just after this lock was taken
                lock.acquire()
        for me, lock in enumerate(self._locks):
            if self._launched[me] and not self._done[me]:
                lock.acquire(timeout=_MOMENT)


# -- requests to a store --------------------------------------------------------------------------


def gather(
    function: Callable[[T], S], items: Sequence[T], store: Store, *, large: bool = False, flushed: bool = False
) -> list[S]:
    """Return what a function that sends requests to a store returns for each item, in order.

    Threads share the items, unless these are few, or the store is local and each request takes microseconds.

    Parameters
    ----------
    function, items
        The function, and what to call it with.
    store
        The store, whose concurrency is the limit.
    large
        Whether the values are large, so that threads help with local files, too.
    flushed
        Whether each call flushes a file to the disk, which does that for several files together.

    """
    is_local = store.traits.concurrency is None
    flushed = flushed and store.traits.local_path is not None
    if len(items) < (_FEW if is_local else 2) or (is_local and not large and not flushed):
        return [function(item) for item in items]
    results: list[Any] = [None] * len(items)

    def work(k: int) -> None:
        results[k] = function(items[k])

    run(work, range(len(items)), len(items), Crew(_FLUSHES, store.identity) if flushed else crew(store, _SMALL))
    return results


def farther(one: Store, other: Store) -> Store:
    """Return the one of two stores that takes more requests at once, for work that uses both in turn."""
    return max(one, other, key=lambda store: store.traits.concurrency or 0)
