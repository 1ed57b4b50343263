"""Processes forked from one that has imported a library and not used it: started, waited for, killed, measured.

To fork is a hundred times faster than to start Python, which counts when hundreds of writers are killed. It is safe
because the process of a scenario never uses the library itself: no threads and no locks are copied.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from reliability.adapters import NoneError

FORK = multiprocessing.get_context("fork")
PATIENCE = 300.0
"""Seconds that a process may take."""


class ChildError(Exception):
    """What went wrong in another process, in words; `died` if it ended without a word."""

    def __init__(self, words: str, *, died: bool = False) -> None:
        super().__init__(words)
        self.died = died


def words(error: BaseException) -> str:
    """An error in one line."""
    text = f"{type(error).__name__}: {error}".strip().splitlines()
    return text[0][:300]


class Child:
    """A forked process that calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.pipe, there = FORK.Pipe(duplex=False)
        self.process = FORK.Process(target=_call, args=(there, function, arguments), daemon=True)
        self.process.start()
        there.close()

    def kill(self) -> None:
        """End it at once."""
        assert self.process.pid
        if self.process.exitcode is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        assert self.process.pid
        os.kill(self.process.pid, signal.SIGINT)

    def result(self, seconds: float = PATIENCE) -> Any:
        """What the function returned; a `ChildError` if it raised, died or took too long."""
        try:
            if not self.pipe.poll(seconds):
                raise ChildError(f"no answer in {seconds:g} s", died=True)
            kind, answer = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise ChildError(f"the process ended with {self.process.exitcode}", died=True) from None
        finally:
            self.kill()
        if kind == "none":
            raise NoneError
        if kind == "error":
            raise ChildError(answer)
        return answer


def _call(there: Connection, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Send what a function returns or raises; then end without what an interpreter does at its end."""
    try:
        try:
            there.send(("value", function(*arguments)))
        except BaseException as error:  # noqa: BLE001 - whatever a library raises goes into the table
            there.send(("none", "") if isinstance(error, NoneError) else ("error", words(error)))
    finally:
        os._exit(0)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in another process."""
    return Child(function, *arguments).result()


def together(calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What several functions return, each in a process of its own, all at once."""
    children = [Child(*one) for one in calls]
    results: dict[Child, Any] = {}
    try:
        while missing := [child for child in children if child not in results]:
            # In the order in which they end: when one fails, others may wait for it forever.
            ended = wait([child.pipe for child in missing], PATIENCE) or [missing[0].pipe]
            results |= {child: child.result() for child in missing if child.pipe in ended}
    finally:
        for child in children:
            child.kill()
    return [results[child] for child in children]


# -- measuring ------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """What some work took, and how it ended."""

    seconds: float
    bytes: int
    """Memory at the peak, over that before."""
    error: str
    value: Any


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def measured(work: Callable[[], Any]) -> Measured:
    """Do some work in this process, and say what it took."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # from here on, the peak is counted anew
    except OSError:
        pass
    before, start = _peak(), time.perf_counter()
    value, error = None, ""
    try:
        value = work()
    except Exception as raised:  # noqa: BLE001 - the matter of the scenario
        error = words(raised)
    return Measured(time.perf_counter() - start, _peak() - before, error, value)
