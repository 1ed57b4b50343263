"""What `durability="power"` costs: chunks written with it and without, in turn, on the disk of the other scenarios."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

FORMS = {
    "one chunk of 64 KiB a call": (1 << 16, 1),
    "one chunk of 1 MiB a call": (1 << 20, 1),
    "64 chunks of 64 KiB a call": (1 << 16, 64),
    "16 chunks of 1 MiB a call": (1 << 20, 16),
}
"""Bytes of a chunk, and chunks that are written by one call."""


def measure(folder: str, times: int) -> dict[str, Any]:
    """Milliseconds that a chunk takes, for each form: the median of some calls, which take turns."""
    return {"file_system": _file_system(folder), "forms": {name: _form(folder, *FORMS[name], times) for name in FORMS}}


def _form(folder: str, size: int, count: int, times: int) -> dict[str, float]:
    import zellige

    values = np.random.default_rng(0).integers(0, 256, size * count, "uint8")
    path = f"{folder}/cost"
    options: dict[str, Any] = {"shape": values.shape, "chunks": size, "dtype": "uint8", "compressors": None}
    plain = zellige.create_array(path, **options)
    arrays = {kind: plain.with_config({"durability": kind}) for kind in ("process", "power")}
    taken: dict[str, list[float]] = {kind: [] for kind in arrays}
    for number in range(times + 1):
        for kind, array in arrays.items():
            start = time.perf_counter()
            array[...] = values
            if number:  # the first call creates the files
                taken[kind].append((time.perf_counter() - start) / count * 1000)
    shutil.rmtree(path)
    return {kind: statistics.median(found) for kind, found in taken.items()}


def _file_system(folder: str) -> str:
    """The kind of the file system that holds a directory."""
    place, kind = "", "unknown"
    with open("/proc/mounts") as mounts:
        for line in mounts:
            _, at, found, *_ = line.split()
            inside = os.path.commonpath([at, os.path.realpath(folder)]) == at
            if inside and len(at) >= len(place):
                place, kind = at, found
    return kind


def markdown(cost: Mapping[str, Any]) -> str:
    """A table of what was measured."""
    lines = [
        f"What durability costs zellige, for each chunk, uncompressed, on {cost['file_system']}:",
        "",
        '| what is written | `"process"` | `"power"` | times as long |',
        "|---|---|---|---|",
    ]
    for name, found in cost["forms"].items():
        process, power = found["process"], found["power"]
        lines.append(f"| {name} | {process:.2g} ms | {power:.2g} ms | {power / process:.2g} |")
    return "\n".join(lines) + "\n"
