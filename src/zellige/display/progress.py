"""How far a long operation is: `progress=` of many functions, and `zellige.progress()` for reads and writes.

A bar on a terminal, tqdm in notebooks where it is installed, a function of one's own; otherwise nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Token
from typing import Any, Self, TextIO, TypeAlias

from zellige.settings import progress_sink

ProgressLike: TypeAlias = bool | Callable[[int, int, str], object] | None
"""True for a bar, a function of (done, total, name), False for neither, None for what `progress()` around it says."""

_DELAY = 0.3  # seconds before a bar appears: what is done by then needs none
_PAUSE = 0.1  # seconds between two states of it
_BAR = 20  # characters
clock = time.monotonic


@contextmanager
def progress(show: bool | Callable[[int, int, str], object] = True) -> Iterator[None]:
    """Within the block, report how far each operation of this thread is: reads, writes, copies, checks and the others.

    Parameters
    ----------
    show
        True shows a bar on stderr if that is a terminal, and uses tqdm in a notebook if it is installed. A function is
        called as `show(done, total, name)` after each chunk, or whatever the operation counts, from any thread but one
        at a time; what it raises stops the operation. False is silence, also for operations that were asked to report.

    >>> import zellige
    >>> a = zellige.create_array(data=range(59), chunks=[[31, 28]])
    >>> with zellige.progress(print):
    ...     _ = a[:]
    1 2 c/0
    2 2 c/1
    """
    check_progress(show)
    token = progress_sink.set(show)
    try:
        yield
    finally:
        progress_sink.reset(token)


def check_progress(given: Any) -> None:
    """Refuse what cannot be reported to."""
    if given is not None and not isinstance(given, bool) and not callable(given):
        raise TypeError(f"progress={given!r} must be True, a function of (done, total, key), or None")


class Progress:
    """Counts what an operation has done, and reports it.

    Operations within this one, such as the reads of a copy, report nothing of their own.
    """

    def __init__(self, given: ProgressLike, total: int, verb: str = "done", unit: str = "keys") -> None:
        around = progress_sink.get()
        chosen = around if given is None or around is False else given
        self._shown = _show(verb, unit) if chosen is True else None
        self._report = self._shown if chosen is True else chosen if callable(chosen) else None
        self._total, self._done = total, 0
        self._lock = threading.Lock()
        self._token: Token[ProgressLike] | None = None

    def advance(self, name: str, count: int = 1) -> None:
        """So many more are done, the last of them with this name."""
        if self._report is not None:
            with self._lock:
                self._done += count
                self._report(self._done, self._total, name)

    def skip(self, count: int) -> None:
        """So many need nothing; that is not worth a report."""
        self._done += count

    def __enter__(self) -> Self:
        if progress_sink.get() is not None:
            self._token = progress_sink.set(None)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            progress_sink.reset(self._token)
        if self._shown is not None:
            self._shown.close()


def _show(verb: str, unit: str) -> Bar | _Tqdm | None:
    """What shows progress where this process runs."""
    if _in_notebook():
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return None
        return _Tqdm(tqdm, verb, unit)
    return Bar(sys.stderr, verb, unit) if sys.stderr.isatty() else None


def _in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which has loaded IPython long ago."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class _Tqdm:
    """A bar of tqdm, made when the first thing is done."""

    def __init__(self, tqdm: Any, verb: str, unit: str) -> None:
        self._tqdm, self._names = tqdm, {"desc": verb, "unit": f" {unit}"}
        self._bar: Any = None

    def __call__(self, done: int, total: int, name: str) -> None:
        if self._bar is None:
            self._bar = self._tqdm(total=total, **self._names)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()


class Bar:
    """One line on a terminal that is written again and again.

    It appears after a moment, so that what is quick leaves no trace.
    """

    def __init__(self, stream: TextIO, verb: str, unit: str) -> None:
        self._stream, self._verb, self._unit = stream, verb, unit
        self._start = clock()
        self._next = self._start + _DELAY
        self._drawn = False

    def __call__(self, done: int, total: int, name: str) -> None:
        """Draw it again, unless that was just now."""
        now = clock()
        if now >= self._next or (self._drawn and done == total):
            from shutil import get_terminal_size  # which imports much, only to be shown a bar

            self._next, self._drawn = now + _PAUSE, True
            width = get_terminal_size().columns - 1
            text = f"{bar_text(self._verb, self._unit, done, total, now - self._start)}  {name}"
            print(f"\r{text[:width]:<{width}}", end="", file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the line."""
        if self._drawn:
            print(file=self._stream, flush=True)


def bar_text(verb: str, unit: str, done: int, total: int, seconds: float) -> str:
    """How far it is, how fast, and how long it may still take.

    >>> print(bar_text("copied", "keys", 25, 100, 10.0))
    copied  25% ━━━━━───────────────  25/100 keys, 2.5/s, 0:30 left
    """
    part = done / total if total else 1.0
    full = int(_BAR * part)
    rate = done / seconds if seconds else 0.0
    left = f", {_minutes((total - done) / rate)} left" if rate and done < total else ""
    speed = f", {rate:,.1f}/s" if rate < 100 else f", {rate:,.0f}/s"
    line = "━" * full + "─" * (_BAR - full)
    return f"{verb} {part:4.0%} {line}  {done:,}/{total:,} {unit}{speed}{left}"


def _minutes(seconds: float) -> str:
    """A time as `m:ss`, or `h:mm:ss`.

    >>> _minutes(75), _minutes(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
