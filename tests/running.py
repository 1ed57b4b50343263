"""Threads and forked processes for tests: started together, waited for, their errors told."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any


def run_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What the work gives in several threads at the same time; the first exception is raised here."""
    errors: list[BaseException] = []
    found: list[Any] = [None] * count
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(60)
            found[number] = work(number)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def fork(work: Callable[[], bool]) -> Callable[[], bool]:
    """Start the work in a forked child, killed if it hangs; the result waits and says whether it succeeded."""
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            code = 7 if work() else 1
        except BaseException:  # noqa: BLE001 - told by the exit code
            traceback.print_exc()
            code = 2
        os._exit(code)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def settled(threads: int) -> bool:
    """Whether there are so many threads besides the main one, once those that are just ending have ended."""
    end = time.monotonic() + 10
    while _thread._count() != threads and time.monotonic() < end:
        time.sleep(0.001)
    return _thread._count() == threads
