"""How much memory an action takes at its highest: counted by Python, and as pages of the process."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

MiB = 1 << 20
BOUND = 16 * MiB

LONG = os.environ.get("ZELLIGE_LONG") == "1"

_STATUS, _REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak(NamedTuple):
    """Bytes above what there was before."""

    counted: int
    """What Python and numpy have asked for, whether it was used or not."""
    resident: int
    """What the process has really taken, native libraries included; 0 where the system does not tell."""


def _pages(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def peak_of(action: Callable[[], Any]) -> Peak:
    """The peak while an action runs."""
    gc.collect()
    linux = _REFS.exists()
    if linux:
        _REFS.write_text("5")  # forget the highest so far
    before = _pages("VmRSS") if linux else 0
    tracemalloc.start()
    try:
        action()
        counted = tracemalloc.get_traced_memory()[1]
        resident = _pages("VmHWM") - before if linux else 0
    finally:
        tracemalloc.stop()
    return Peak(counted, resident)


@contextmanager
def bounded(bound: int = BOUND, *, counted: bool = True) -> Iterator[None]:
    """Fail if what happens within takes more than so many bytes.

    `counted` is whether bytes that are never touched count as well. To count them makes everything several times
    slower, so that only the long form does so, or any where the system does not tell of pages.
    """
    linux = _REFS.exists()
    count = counted and (LONG or not linux)
    if linux:
        _REFS.write_text("5")
    before = _pages("VmRSS") if linux else 0
    if count:
        tracemalloc.start()
    try:
        yield
        asked = tracemalloc.get_traced_memory()[1] if count else 0
        taken = _pages("VmHWM") - before if linux else 0
    finally:
        tracemalloc.stop()
    assert asked < bound, f"{asked} bytes were allocated"
    assert taken < bound, f"the process grew by {taken} bytes"
