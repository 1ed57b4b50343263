"""Two processes of four threads each that read, write, append and set attributes for a long time.

No errors, no descriptor and no memory that does not come back. Ten minutes, or ZELLIGE_SOAK seconds, in the long form.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashing_store import LONG

import zellige

PROCESSES, THREADS = 2, 4
WRITERS = PROCESSES * THREADS
ROWS = 48
MOST = 400
"""Rows after which what was appended is cut off again."""

LAYOUTS: dict[str, dict[str, Any]] = {
    "zstd": {"chunks": (16, WRITERS)},
    "raw": {"chunks": (16, WRITERS), "compressors": None},
    "rectilinear": {"chunks": ([10, 30, 8], WRITERS)},
    "shards": {"chunks": (4, WRITERS), "shards": (16, WRITERS)},
}


# -- one process ----------------------------------------------------------------------------------


class Soak:
    """What one process does, and what it has seen."""

    def __init__(self, folder: str, first: int, seconds: float) -> None:
        self.folder, self.first = folder, first
        self.end = time.monotonic() + seconds
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []

    def run(self, number: int) -> None:
        """One thread: its own column of every array, its own attribute, and rows of its own."""
        column = self.first + number
        try:
            k = 0
            while time.monotonic() < self.end and not self.errors:
                k += 1
                for name in LAYOUTS:
                    self.turn(name, column, k)
                self.append(column, k)
                if k % 10 == 0:
                    self.overwrite(column, k)
        except BaseException:  # noqa: BLE001 - reported by the process
            self.errors.append(traceback.format_exc())

    def turn(self, name: str, column: int, k: int) -> None:
        array = zellige.open_array(self.folder, path=name, mode="r+")
        value = column * 1_000_000 + k % 1_000_000
        rows = slice(k % 20, k % 20 + 20)
        array[rows, column] = value
        found = array[...]
        assert (found[rows, column] == value).all(), f"{name}: column {column} lost {value}"
        owners = found[found != 0] // 1_000_000
        assert np.array_equal(owners, np.nonzero(found)[1]), f"{name}: values in a column that is not theirs"
        if k % 5 == 0:
            array.attrs[str(column)] = k
            array.refresh()
            assert array.attrs[str(column)] == k, f"{name}: attribute {column} lost {k}"
            self.done["attributes"] += 1
        self.done["writes"] += 1
        self.done["reads"] += 1

    def append(self, column: int, k: int) -> None:
        array = zellige.open_array(self.folder, path="growing", mode="r+")
        array.append(np.full((3, 4), column * 1_000_000 + k % 1_000_000 + 1))
        self.done["appends"] += 1
        if len(array) > MOST and column == 0:
            array.resize((30, 4))
            self.done["cuts"] += 1
        found = zellige.open_array(self.folder, path="growing", mode="r")
        if column == 0:  # only this one cuts, so that nothing is cut while it reads
            rows = found[...].reshape(-1, 12)
            assert (rows == rows[:, :1]).all(), "rows of one append are mixed"
            assert rows.all(), "an appended row is missing"

    def overwrite(self, column: int, k: int) -> None:
        """Whole chunks that are large enough for more threads; each holds one value at any time."""
        array = zellige.open_array(self.folder, path="large", mode="r+")
        array[...] = column * 1_000_000 + k % 1_000_000
        found = array[...].reshape(8, -1)
        assert (found == found[:, :1]).all(), "a chunk holds more than one value"
        self.done["overwrites"] += 1


def resident() -> int:
    """The bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def main(folder: str, first: int, seconds: float) -> None:
    """Soak, and print what was seen; memory is looked at when all is warm, and at the end."""
    zellige.config.set({"threading.max_workers": 2})
    soak = Soak(folder, first, seconds)
    threads = [threading.Thread(target=soak.run, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    samples: list[tuple[int, int]] = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1.0, seconds / 20))
        samples.append((resident(), descriptors()))
    for thread in threads:
        thread.join()
    warm = samples[len(samples) // 5 :]
    tenth = max(1, len(warm) // 10)
    early, late = (sum(m for m, _ in part) / len(part) for part in (warm[:tenth], warm[-tenth:]))
    print(
        json.dumps(
            {
                "done": dict(soak.done),
                "errors": soak.errors,
                "growth": late - early,
                "peak growth": max(m for m, _ in warm) - early,
                "resident": late,
                "most descriptors": [max(fds for _, fds in part) for part in (warm[:tenth], warm[-tenth:])],
                "descriptors": descriptors(),
                "samples": len(samples),
            }
        )
    )


# -- the test -------------------------------------------------------------------------------------


def soaked(folder: Path, seconds: float) -> list[dict[str, Any]]:
    """What each process has seen."""
    for name, options in LAYOUTS.items():
        zellige.create_array(folder, name=name, shape=(ROWS, WRITERS), dtype="int64", **options)
    zellige.create_array(folder, name="growing", shape=(0, 4), dtype="int64", chunks=(8, 4))
    zellige.create_array(folder, name="large", shape=(8 * 64, 512), dtype="int64", chunks=(64, 512))
    source = str(Path(zellige.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, *map(str, Path(__file__).parents[:2])])}
    program = "import sys, test_soak; test_soak.main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(folder), str(k * THREADS), str(seconds)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for k in range(PROCESSES)
    ]
    found = []
    for process in running:
        out, _ = process.communicate(timeout=2 * seconds + 120)
        assert process.returncode == 0
        found.append(json.loads(out))
    return found


def check(folder: Path, found: list[dict[str, Any]], growth: float) -> None:
    for seen in found:
        assert seen["errors"] == []
        assert seen["done"]["writes"] > 0
        assert seen["growth"] < growth
        early, late = seen["most descriptors"]
        assert late <= early + 4  # those that are open for the moment of a read or a write
        assert seen["descriptors"] <= 8
    left = [name for _, _, names in os.walk(folder) for name in names if name.startswith(".zellige-tmp-")]
    assert left == []


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="there is no /proc to ask about memory")


@needs_proc
def test_a_few_seconds_of_everything_at_once(tmp_path):
    check(tmp_path, soaked(tmp_path, 3), growth=64e6)


@needs_proc
@pytest.mark.skipif(not LONG, reason="ten minutes; set ZELLIGE_LONG=1 for it (make soak)")
def test_ten_minutes_of_everything_at_once(tmp_path):
    found = soaked(tmp_path, float(os.environ.get("ZELLIGE_SOAK", "600")))
    for seen in found:
        print(f"\n{seen}")
    check(tmp_path, found, growth=5e6)
