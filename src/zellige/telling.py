"""An engine that reports each chunk that it has read or written; only for those who want to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zellige import pool
from zellige.engine import Engine
from zellige.plans import Plan, coords_of
from zellige.reporting import Progress

_STEPS = 200  # in which the work of the kernel is reported


@contextmanager
def telling(engine: Engine, plan: Plan, verb: str) -> Iterator[Engine]:
    """An engine that does what another does, and counts the chunks of a plan."""
    with Progress(None, len(plan), verb, "chunks") as progress:
        yield _Telling(engine, progress)


def _told(name: str) -> Callable[..., None]:
    """A method that does its task by the plain engine, and tells; the task comes last."""

    def do_and_tell(self: _Telling, *given: Any) -> None:
        getattr(self._plain, name)(*given)
        coords = coords_of(given[-1])
        self._progress.advance(self.key(coords[-1]), len(coords))

    return do_and_tell


class _Telling(Engine):
    """All that is done for a single chunk, or a row of them, goes through one of these methods."""

    __slots__ = ("_plain", "_progress")

    def __init__(self, plain: Engine, progress: Progress) -> None:
        for name in Engine.__slots__:
            setattr(self, name, getattr(plain, name))
        self._plain, self._progress = plain, progress

    def _part(self, plan: Plan) -> int:
        """Few enough that the bar moves, many enough for all threads."""
        return max(4 * pool.workers(), len(plan) // _STEPS)

    def _advance(self, part: Plan) -> None:
        """Count the chunks that the kernel has read."""
        self._progress.advance(self.key(part.request(len(part) - 1)[0]), len(part))

    _read_chunk = _told("_read_chunk")
    _read_kept = _told("_read_kept")
    _read_row = _told("_read_row")
    _write_chunk = _told("_write_chunk")
    _write_row = _told("_write_row")
    _write_fields = _told("_write_fields")
