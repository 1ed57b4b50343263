"""zarr-python with zellige underneath, compared with its own pipelines and with that of zarrs, as ratios.

    make beneath, or python -m bench.underneath [--rounds N]

The same lines of zarr-python read and write whole arrays of int16 on tmpfs, where there is one, by each pipeline in
turns, each in a process of its own; the best time of each counts. Ratios are the time of a peer over that with zellige.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

PIPELINES = {
    "zellige": "zellige.zarr.Pipeline",
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
}
"""The pipelines by the names that zarr-python's setting `codec_pipeline.path` takes."""

PEERS = tuple(PIPELINES)[1:]

GOALS = {"read 8 KiB": (8, 3, 3), "read 64 KiB": (3, 2, 2), "read 512 KiB": (1.2, 1, 1), "read 4 MiB": (1.2, 1, 1)}
"""The least ratio to each of the peers; writes are to be no slower than any."""
AT_LEAST = (1.0, 1.0, 1.0)

CHUNKS = {"8 KiB": (16, 128), "64 KiB": (32, 256), "512 KiB": (64, 256), "4 MiB": (128, 512)}
"""The edge of a chunk, and that of the array, both cubes."""


def measure(pipeline: str, place: Path) -> dict[str, float]:
    """Seconds to write and to read whole arrays by a pipeline, the best of three."""
    import zarr

    zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline]})
    best: dict[str, float] = {}

    def timed(what: str, start: float) -> None:
        best[what] = min(time.perf_counter() - start, best.get(what, float("inf")))

    for size, (edge, length) in CHUNKS.items():
        noise = np.random.default_rng(0).integers(0, 16, (length, length, length), "int16")
        model = noise + np.arange(length, dtype="int16")
        for codec, options in (("raw", {"compressors": None}), ("zstd", {})):
            array = zarr.create_array(
                place / f"{size}{codec}", shape=model.shape, chunks=(edge,) * 3, dtype="int16", **options
            )
            array[...] = model
            for _ in range(3):
                start = time.perf_counter()
                array[...] = model
                timed(f"write {size} {codec}", start)
                start = time.perf_counter()
                found = array[...]
                timed(f"read {size} {codec}", start)
            assert np.array_equal(found, model), f"{pipeline} read other values"
            shutil.rmtree(place / f"{size}{codec}")
    return best


def in_process(pipeline: str, folder: Path) -> dict[str, float]:
    """`measure` in a new process."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.underneath", "--measure", pipeline, str(folder)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def main() -> int:
    """Print a table of ratios; the exit code says whether all goals are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.underneath", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("PIPELINE", "FOLDER"), help="one pipeline, as JSON")
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure[0], Path(given.measure[1]))))
        return 0
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    there = [name for name in PIPELINES if name != "zarrs" or find_spec("zarrs")]
    best: dict[str, dict[str, float]] = {name: {} for name in there}
    for _ in range(given.rounds):
        for name in there:
            with tempfile.TemporaryDirectory(dir=memory) as folder:
                for what, seconds in in_process(name, Path(folder)).items():
                    best[name][what] = min(seconds, best[name].get(what, seconds))
    met = True
    print(f"{'':20}" + "".join(f"{name:>10}" for name in there))
    for what, own in best["zellige"].items():
        goals = dict(zip(PEERS, GOALS.get(what.rpartition(" ")[0], AT_LEAST), strict=True))
        cells = [f"{own * 1e3:7.1f} ms"]
        for name in there[1:]:
            ratio = best[name][what] / own
            met &= ratio >= goals[name]
            cells.append(f"{ratio:9.2f}{' ' if ratio >= goals[name] else '<'}")
        print(f"{what:20}" + "".join(cells))
    print("ratios: the peer's time over that with zellige; < is below the goal")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
