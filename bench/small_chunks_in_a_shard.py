"""One shard of 10,000 inner chunks of 4 kB: zellige and zarr-python side by side, as ratios.

    .venv/bin/python bench/small_chunks_in_a_shard.py [directory]

Both write and read the same array, whole, best of several rounds in turn; ratios are zarr-python's time over ours.
The directory should be on a file system in memory, such as /dev/shm, so that the disk plays no part.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import zarr
import zellige
from zellige.codecs import ZstdCodec

CHUNKS, ELEMENTS, ROUNDS = 10_000, 2048, 3


def seconds(work: Callable[[], object]) -> float:
    """How long some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(folder: str, compressors: list[ZstdCodec] | None) -> tuple[dict[str, float], dict[str, float]]:
    """The best times of both for each kind of work, in microseconds for one inner chunk."""
    data = np.cumsum(np.random.default_rng(0).integers(-3, 4, CHUNKS * ELEMENTS)).astype("int16")
    layout = {"chunks": (ELEMENTS,), "shards": data.shape, "compressors": compressors}
    ours = zellige.create_array(folder, shape=data.shape, dtype=data.dtype, overwrite=True, **layout)
    theirs = zarr.open_array(folder, mode="r+")
    best: list[dict[str, float]] = [{}, {}]
    for _ in range(ROUNDS):
        for array, times in zip((ours, theirs), best, strict=True):
            for kind, work in (("write", lambda a=array: a.__setitem__(..., data)), ("read", lambda a=array: a[...])):
                times[kind] = min(times.get(kind, np.inf), seconds(work) / CHUNKS * 1e6)
            assert np.array_equal(array[...], data)
    return best[0], best[1]


def main() -> None:
    """Print a table."""
    folder = tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None)
    print(f"zellige {zellige.__version__}, zarr-python {zarr.__version__}, microseconds for one inner chunk of 4 kB")
    print(f"{'codec':8} {'work':6} {'zellige':>8} {'zarr':>8} {'ratio':>6}")
    try:
        for name, compressors in (("none", None), ("zstd 1", [ZstdCodec(level=1, checksum=False)])):
            ours, theirs = compare(f"{folder}/{name}", compressors)
            for kind in ours:
                ratio = theirs[kind] / ours[kind]
                print(f"{name:8} {kind:6} {ours[kind]:8.1f} {theirs[kind]:8.1f} {ratio:6.1f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
