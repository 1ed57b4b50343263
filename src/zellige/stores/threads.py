"""Threads: how many an operation uses, and how they share its tasks.

Threads are started for one operation and joined before it returns, so none outlives its use and a fork is always safe.
All operations of a process share one number of helpers: many callers at once, such as the threads of dask, work mostly
alone. Where requests are waited for, as many threads wait as the store wants, shared by all operations on it. The
kernel has threads of its own, which do not wait.
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

_SMALL = 256 << 10  # bytes; starting threads takes as long as copying about so many
_FEW = 8  # requests of a near store, each of which takes microseconds
_MANY_STORES = 64  # names that are remembered before those without helpers are forgotten
_MOST_HELD = 256 << 20  # bytes of values that waiting threads have at once
_MOMENT = 1.0  # seconds

T = TypeVar("T")
S = TypeVar("S")

# -- how many -------------------------------------------------------------------------------------

_busy: ContextVar[bool] = ContextVar("_busy", default=False)


def is_busy() -> bool:
    """Whether this thread is at work already, so that what it starts runs inline, unless it waits for a store."""
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
    """Return the whole CPUs that control groups grant this process, as containers set them; many if none does."""
    limits = [1 << 16]
    for line in _lines(proc):
        _, kinds, path = line.split(":", 2)
        places = [path[:end] for end, letter in enumerate(path) if letter == "/"] + [path.rstrip("/")]
        for place in places:
            if not kinds:
                quota = " ".join(_lines(f"{top}{place}/cpu.max")).split()
            elif "cpu" in kinds.split(","):
                quota = [*_lines(f"{top}/cpu{place}/cpu.cfs_quota_us"), *_lines(f"{top}/cpu{place}/cpu.cfs_period_us")]
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
    """Return the threads for work of so many bytes in all on a store.

    Where requests are waited for, many more than there are processors, each of which holds about `held` bytes.
    """
    if store is not None and store.traits.concurrency is not None:
        few = max(workers(), _MOST_HELD // max(held, 1))
        return Crew(min(store.traits.concurrency, few), store.identity)
    return Crew(workers() if nbytes >= _SMALL else 1)


class _Helpers:
    """How many helpers all operations of this process have together; those who wait for a store by its name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._shares: dict[Hashable, list[list[int]]] = {}

    @property
    def busy(self) -> int:
        """How many are at work, without those who wait."""
        return sum(count for (count,) in self._shares.get(None, ()))

    def take(self, share: list[int], name: Hashable, wanted: int, most: int) -> int:
        """Put as many as wanted into a share, or as many as are left. They come back when the share is set to 0."""
        with self.lock:
            others = [other for other in self._shares.get(name, ()) if other[0]]
            self._shares[name] = [*others, share]
            share[0] = max(0, min(wanted, most - sum(count for (count,) in others)))
            if len(self._shares) > _MANY_STORES:
                self._shares = {known: shares for known, shares in self._shares.items() if any(s[0] for s in shares)}
        return share[0]


_helpers = _Helpers()
if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_helpers.__init__)  # type: ignore[misc]


# -- sharing tasks --------------------------------------------------------------------------------

Work: TypeAlias = Callable[[Any], None]

Stopped: TypeAlias = Callable[[BaseException, list[tuple[Any, BaseException]], Iterator[Any]], None]
"""Told about an error, the tasks that failed with their own errors, and those that were not begun."""


def run(work: Work, tasks: Iterable[Any], count: int, among: Crew, stopped: Stopped | None = None) -> None:
    """Do `work` for each of `count` tasks, which are taken in order.

    The first error stops all threads and is raised when they have stopped. Helpers see the context variables of the
    caller.
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
        share[0] = 0  # without a call, so that no interrupt comes before it


class _Shared(Iterator[Any]):
    """An iterator that threads share, whatever it runs to get the next item."""

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

    # An interrupt may come between any two steps, also of handling an error: nothing is left before all have ended.
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
            # No circle of errors and frames: what the frames hold, such as locks, is freed as soon as the error is.
            errors.clear()
            failed.clear()
            del first


class _Team:
    """The helpers of one operation: threads that nothing can keep from being waited for.

    Made of the plainest parts. `threading.Thread` and `Event` are written in Python: an interrupt at a bad moment in
    them leaves their locks taken, and all wait forever; or it is lost in a callback that runs when a thread is freed.
    """

    def __init__(self, contexts: Sequence[Any]) -> None:
        self._contexts, size = contexts, len(contexts)
        self._locks = [allocate_lock() for _ in range(size)]
        for lock in self._locks:
            lock.acquire()
        self._launched, self._begun, self._done = [False] * size, [False] * size, [False] * size
        self._over = False

    def start(self, work: Callable[[], None]) -> None:
        """Let each helper do some work in its context; the others do the share of one that cannot be started."""

        def run(me: int) -> None:
            try:
                self._begun[me] = True  # before it looks whether all is over: who is not waited for does nothing
                if not self._over:
                    self._contexts[me].run(work)
            finally:
                try:
                    # Before Python 3.13 `threading` remembers such a thread for good, if anybody asks who it is.
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
        """Wait for all that have begun; after an interrupt once more.

        Wait a moment for each of the others, so that no thread is left. One that never begins, because there is no
        memory for its first call, ends without a word.
        """
        self._over = True
        for me, lock in enumerate(self._locks):
            if self._begun[me] and not self._done[me]:  # else an interrupt came just after this lock was taken
                lock.acquire()
        for me, lock in enumerate(self._locks):
            if self._launched[me] and not self._done[me]:
                lock.acquire(timeout=_MOMENT)


# -- questions to a store -------------------------------------------------------------------------


def gather(function: Callable[[T], S], items: Sequence[T], store: Store, *, large: bool = False) -> list[S]:
    """Return what a function that asks a store gives for each item, in order.

    By several threads, unless there are few items, or each takes microseconds: what is not `large`, where nobody waits
    for the store.
    """
    near = store.traits.concurrency is None
    if len(items) < (_FEW if near else 2) or (near and not large):
        return [function(item) for item in items]
    results: list[Any] = [None] * len(items)

    def work(k: int) -> None:
        results[k] = function(items[k])

    run(work, range(len(items)), len(items), crew(store, _SMALL))
    return results


def farther(one: Store, other: Store) -> Store:
    """Return that of two stores that are asked in turn for which more threads pay."""
    return max(one, other, key=lambda store: store.traits.concurrency or 0)
