"""What the figures depend on: the machine, the versions, where the data is, and who else uses the cores."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

QUIET = 10.0
"""Other processes may use this much of the cores, in percent."""

PACKAGES = ("zellige", "tensorstore", "zarrista", "zarr", "zarrs", "numpy", "numcodecs", "zstandard", "blosc", "isal")


def cores() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _field(file: str, name: str) -> str:
    """A line `name: value` of a file of the system, or nothing."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def describe() -> dict[str, Any]:
    """The machine, without names of hosts or users."""
    kilobytes = int((_field("/proc/meminfo", "MemTotal") or "0").split()[0])
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": cores(),
        "memory_gib": round(kilobytes / 2**20, 1),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
    }


def versions() -> dict[str, str]:
    """The versions of all that takes part."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            pass
    return found


# -- who else is busy -----------------------------------------------------------------------------


def _all_times() -> tuple[int, int]:
    """Ticks that the CPUs were not idle, and all ticks; zeros where the system does not tell."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _ticks_of(pid: int) -> int:
    """Ticks that a process and its finished children have used."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, after_name[11:15]))


class Load:
    """How much of the cores other processes use, from when it is made."""

    def __init__(self, own: Iterable[int] = ()) -> None:
        self._own = {pid: _ticks_of(pid) for pid in (os.getpid(), *own)}
        self._busy, self._all = _all_times()

    def percent(self) -> float | None:
        """The share of others since then; None where the system does not tell."""
        busy, ticks = _all_times()
        if ticks == self._all:
            return None
        own = sum(max(0, _ticks_of(pid) - before) for pid, before in self._own.items())
        return round(max(0.0, 100 * (busy - self._busy - own) / (ticks - self._all)), 1)


def others(seconds: float = 1.0) -> float | None:
    """The share of the cores that others use now, in percent."""
    load = Load()
    time.sleep(seconds)
    return load.percent()


# -- where the data is ----------------------------------------------------------------------------


def place(needed: int, wanted: str | None = None) -> tuple[str, str]:
    """A new folder for the data, in memory if there is room, and what to call it in the output."""
    parent = wanted or ("/dev/shm" if _has_room("/dev/shm", needed) else None)
    folder = tempfile.mkdtemp(prefix="zellige-bench-", dir=parent)
    if wanted:
        return folder, "a directory that was named"
    return folder, "tmpfs (/dev/shm)" if parent else "the directory for temporary files, on disk"


def _has_room(parent: str, needed: int) -> bool:
    """Whether a file system in memory has room, with as much left for the processes."""
    available = int((_field("/proc/meminfo", "MemAvailable") or "0").split()[0]) * 1024
    return os.path.isdir(parent) and shutil.disk_usage(parent).free > needed and available > 2 * needed
