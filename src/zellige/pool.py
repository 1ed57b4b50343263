"""Threads: the caller works too, each worker takes a contiguous run of the plan, and helps others at the end.

Interleaved chunks would make the threads touch the same pages of the output at once. Threads are started
for one operation and joined before it returns, so none outlives its use and a fork is always safe. All operations
of a process share one number of helpers: many callers at once, such as the threads of dask, work mostly alone.

Where requests are waited for, a `Crowd` of threads waits: as many as the store wants, shared by all operations on it.
"""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import ref

from zellige import plans, scratch
from zellige.config import config
from zellige.stores import Store

SMALL_TOTAL = 256 << 10
_WORTH_THREADS = 8  # items
_MANY_STORES = 64  # names that are remembered before those without helpers are forgotten
# Below this, threads fight for the interpreter and lose: measured with chunks of 8 KiB, two were slower than one.
_SMALL_TASK = 48 << 10
_MOST_HELD = 256 << 20  # bytes of values that threads of a crowd have at once

T = TypeVar("T")
S = TypeVar("S")


class Tasks(Protocol):
    """Something that can be cut into runs of tasks."""

    def __len__(self) -> int: ...

    def requests(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Some of the tasks; the iterator may be shared by threads."""


class _Worker(threading.local):
    busy = False
    """Whether this thread is at work already; then what it starts itself runs inline."""


_worker = _Worker()


def is_busy() -> bool:
    """Whether this thread is at work already, so that what it starts runs inline."""
    return _worker.busy


def workers() -> int:
    """How many threads an operation may use."""
    chosen: int | None = config.get("threading.max_workers")
    return chosen or _cpus()


def _cpus() -> int:
    """The CPUs that this process may use: by its affinity, and by the limits of its control groups."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        allowed = os.cpu_count() or 1
    return min(allowed, _granted())


@cache
def _granted(proc: str = "/proc/self/cgroup", top: str = "/sys/fs/cgroup") -> int:
    """The whole CPUs that the control groups of this process grant it, as containers set them; many if none does."""
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


Work: TypeAlias = Callable[[Any], None]

Stopped: TypeAlias = Callable[[BaseException, list[tuple[Any, BaseException]], Iterator[Any]], None]
"""Told about an error, the tasks that failed with their own errors, and those that were not begun."""


class Crowd(NamedTuple):
    """Threads that wait for the requests of one store, many more than there are CPUs."""

    name: Hashable
    most: int


def crowd(store: Store, held: int = 0) -> Crowd | None:
    """Those who wait for a store, each with about so many bytes in its hands; None if nobody has to wait."""
    if store.concurrency is None:
        return None
    few = max(workers(), _MOST_HELD // max(held, 1))
    return Crowd(store.identity, min(store.concurrency, few))


def run(
    work: Callable[[Any], None],
    tasks: Tasks,
    nbytes: int,
    stopped: Stopped | None = None,
    waiting: Crowd | None = None,
) -> None:
    """Do `work` for every task; `nbytes` is about how much one is, in bytes that are copied.

    The first error stops all workers and is raised when they have stopped. With `waiting`, tasks wait for a store.
    """
    count = len(tasks)
    if _worker.busy or count < 2:
        most = 1
    elif waiting is not None:
        most = waiting.most
    else:
        most = workers() if nbytes >= _SMALL_TASK and count * nbytes >= SMALL_TOTAL else 1
    if most < 2:
        _run_here(work, tasks, stopped)
        return
    name = None if waiting is None else waiting.name
    share = _helpers.take(name, min(most, count) - 1, most - 1)
    try:
        if share.count:
            _run_threads(work, tasks, 1 + share.count, stopped)
        else:
            _run_here(work, tasks, stopped)
    finally:
        share.count = 0


class _Share:
    """The helpers of one operation. Who forgets it gives them back, even if an interrupt came at a bad moment."""

    __slots__ = ("count", "__weakref__")

    def __init__(self) -> None:
        self.count = 0


class _Helpers:
    """How many helpers all operations of this process have together; those who wait for a store by its name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._shares: dict[Hashable, list[ref[_Share]]] = {}

    @property
    def busy(self) -> int:
        """How many are at work, without those who wait."""
        return sum(share.count for share in self._of(None))

    def _of(self, name: Hashable) -> list[_Share]:
        """The shares that are in use."""
        found = [found() for found in self._shares.get(name, ())]
        return [share for share in found if share is not None and share.count]

    def take(self, name: Hashable, wanted: int, most: int) -> _Share:
        """As many as wanted, unless too few are left."""
        mine = _Share()
        with self.lock:
            others = self._of(name)
            mine.count = max(0, min(wanted, most - sum(share.count for share in others)))
            self._shares[name] = [*map(ref, others), ref(mine)]
            if len(self._shares) > _MANY_STORES:
                self._shares = {known: shares for known, shares in self._shares.items() if self._of(known)}
        return mine


_helpers = _Helpers()
if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_helpers.__init__)  # type: ignore[misc]


def _run_here(work: Callable[[Any], None], tasks: Tasks, stopped: Stopped | None) -> None:
    todo = tasks.requests()
    for task in todo:
        try:
            work(task)
        except BaseException as error:
            if stopped is not None:
                stopped(error, [(task, error)], todo)
            raise


def _run_threads(work: Callable[[Any], None], tasks: Tasks, nworkers: int, stopped: Stopped | None) -> None:
    bounds = [len(tasks) * k // nworkers for k in range(nworkers + 1)]
    runs = [tasks.requests(start, stop) for start, stop in pairwise(bounds)]
    errors: list[BaseException] = []
    failed: list[tuple[Any, BaseException]] = []
    skipped: list[Any] = []
    team = _Team(nworkers)

    def drain(me: int) -> None:
        _worker.busy = True
        task = None
        try:
            for run in runs[me:] + runs[:me]:
                for task in run:
                    if errors:
                        skipped.append(task)  # taken, but not begun
                        return
                    work(task)
                    task = None
        except BaseException as error:  # noqa: BLE001  (raised again by the caller, KeyboardInterrupt too)
            errors.append(error)
            if task is not None:
                failed.append((task, error))
        finally:
            _worker.busy = False

    def help_out(me: int) -> None:
        if not errors:
            drain(me)
            scratch.hand_on()

    def begin() -> None:
        team.start(help_out)
        drain(0)

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
                stopped(first, failed, chain(skipped, *runs))
            raise first
        finally:
            # No circle of errors and frames: what the frames hold, such as locks, is freed as soon as the error is.
            errors.clear()
            failed.clear()
            del first


def _forget_this_thread() -> None:
    """Before Python 3.13 `threading` remembers threads like these, if anybody asks who they are, for good."""
    threading._active.pop(get_ident(), None)  # type: ignore[attr-defined]


class _Team:
    """The helpers of one operation: threads that nothing can keep from being waited for.

    Made of the plainest parts. `threading.Thread` and `Event` are written in Python: an interrupt at a bad moment in
    them leaves their locks taken, and all wait forever; or it is lost in a callback that runs when a thread is freed.
    """

    def __init__(self, size: int) -> None:
        self._locks = [allocate_lock() for _ in range(size)]
        for lock in self._locks:
            lock.acquire()
        self._launched: list[int] = []
        self._begun: list[int] = []
        self._done: list[int] = []

    def start(self, work: Callable[[int], None]) -> None:
        """Let all but the caller, who is number 0, do some work; without a helper, the others do its share."""

        def run(me: int) -> None:
            self._begun.append(me)  # before it looks for errors: who is not waited for finds one, and does nothing
            try:
                work(me)
            finally:
                _forget_this_thread()
                self._done.append(me)
                self._locks[me].release()

        for me in range(1, len(self._locks)):
            try:
                start_new_thread(run, (me,))
            except RuntimeError:  # no more threads, or the interpreter is shutting down
                return
            self._launched.append(me)

    def wait(self) -> None:
        """Wait for all that were started; after an interrupt once more."""
        for me in {*self._launched, *self._begun}:
            if me not in self._done:  # else an interrupt came just after this lock was taken
                self._locks[me].acquire()


def gather(
    function: Callable[[T], S], items: Sequence[T], store: Store | None = None, *, large: bool = False
) -> list[S]:
    """What a function that asks a store gives for each item, in order.

    By several threads, unless there are few items, or each takes microseconds: what is not `large` of a near store.
    """
    waiting = None if store is None else crowd(store)
    least = _WORTH_THREADS if waiting is None else 2
    if len(items) < least or (store is not None and store.near and not large):
        return [function(item) for item in items]
    results: list[Any] = [None] * len(items)

    def work(k: int) -> None:
        results[k] = function(items[k])

    run(work, plans.Tasks(list(range(len(items)))), 1 << 20, None, waiting)
    return results


def farther(one: Store, other: Store) -> Store:
    """Of two stores that are asked in turn, the one for which more threads pay."""
    return max(one, other, key=lambda store: store.concurrency or 0)
