"""Threads: the caller works too, each worker takes a contiguous run of the plan, and helps others at the end.

Interleaved chunks would make the threads touch the same pages of the output at once. Threads are started
for one operation and joined before it returns, so none outlives its use and a fork is always safe.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Protocol

from zellige import scratch
from zellige.config import config

_SMALL_TOTAL = 256 << 10
# Below this, threads fight for the interpreter and lose: measured with chunks of 64 KiB, two were slower than one.
_SMALL_TASK = 160 << 10


class Tasks(Protocol):
    """Something that can be cut into runs of tasks."""

    def __len__(self) -> int: ...

    def requests(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """Some of the tasks; the iterator may be shared by threads."""


class _Worker(threading.local):
    busy = False
    """Whether this thread is at work already; then what it starts itself runs inline."""


_worker = _Worker()


def workers() -> int:
    """How many threads an operation may use."""
    chosen: int | None = config.get("threading.max_workers")
    return chosen or _cpus()


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def run(work: Callable[[Any], None], tasks: Tasks, nbytes: int) -> None:
    """Do `work` for every task; `nbytes` is about how much one is, in bytes that are copied.

    The first error stops all workers and is raised when they have stopped.
    """
    count = len(tasks)
    if _worker.busy or count < 2 or nbytes < _SMALL_TASK or count * nbytes < _SMALL_TOTAL or workers() < 2:
        for task in tasks.requests():
            work(task)
        return
    _run_threads(work, tasks, min(workers(), count))


def _run_threads(work: Callable[[Any], None], tasks: Tasks, nworkers: int) -> None:
    bounds = [len(tasks) * k // nworkers for k in range(nworkers + 1)]
    runs = [tasks.requests(start, stop) for start, stop in pairwise(bounds)]
    errors: list[BaseException] = []

    def drain(me: int) -> None:
        _worker.busy = True
        try:
            for run in runs[me:] + runs[:me]:
                for task in run:
                    if errors:
                        return
                    work(task)
        except BaseException as error:  # noqa: BLE001  (raised again by the caller, KeyboardInterrupt too)
            errors.append(error)
        finally:
            _worker.busy = False

    def help_out(me: int) -> None:
        drain(me)
        scratch.hand_on()

    helpers = [threading.Thread(target=help_out, args=(k,), daemon=True) for k in range(1, nworkers)]
    started = [helper for helper in helpers if _start(helper)]
    drain(0)
    for helper in started:
        _join(helper, errors)
    if errors:
        raise errors[0]


def _start(helper: threading.Thread) -> bool:
    """Start a helper; without one, the others do its work."""
    try:
        helper.start()
    except RuntimeError:  # no more threads, or the interpreter is shutting down
        return False
    return True


def _join(helper: threading.Thread, errors: list[BaseException]) -> None:
    """Wait for a helper, also through an interrupt, which stops it."""
    while helper.is_alive():
        try:
            helper.join()
        except KeyboardInterrupt as error:
            errors.append(error)
