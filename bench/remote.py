"""The remote case: 512 chunks of 64 KiB from a server that waits 20 ms before each answer, as ratios.

    make remote, or python -m bench.remote [--rounds N] [--wait SECONDS] [--concurrency N]

Needs `zellige[cloud]`, tensorstore, zarr and aiohttp. The server (`slow_server.py`) is a process of its own on
loopback, and each library reads in a process of its own, one after the other in each round; the best time counts.
Every library is called as its documentation says for an `http://` URL, with its own defaults. Ratios are the peer's
time over zellige's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

CHUNKS, ELEMENTS = 512, 32768
CODECS: dict[str, Any] = {"raw": None, "zstd": "zstd"}
GOALS = {"tensorstore": 1.0, "zarr": 5.0}
REPEAT = 3


def model() -> np.ndarray:
    """The data: smooth, with four bits of noise."""
    noise = np.random.default_rng(0).integers(0, 16, CHUNKS * ELEMENTS)
    return (np.arange(CHUNKS * ELEMENTS) // 64 + noise).astype("int16").reshape(CHUNKS, ELEMENTS)


def read_zellige(url: str, concurrency: int | None) -> Callable[[], Any]:
    """Our own way."""
    import zellige

    options = {} if concurrency is None else {"concurrency": concurrency}
    array = zellige.open_array(url, mode="r", storage_options=options or None)
    return lambda: array[...]


def read_tensorstore(url: str, _concurrency: int | None) -> Callable[[], Any]:
    """TensorStore's driver for HTTP, 32 requests at once."""
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "http", "base_url": url}}
    array = tensorstore.open(spec, read=True).result()
    return lambda: array.read().result()


def read_zarr(url: str, _concurrency: int | None) -> Callable[[], Any]:
    """zarr-python through fsspec, 10 requests at once."""
    import zarr

    array = zarr.open_array(url, mode="r")
    return lambda: array[...]


READERS = {"zellige": read_zellige, "tensorstore": read_tensorstore, "zarr": read_zarr}


def work(library: str, url: str, concurrency: int | None) -> float:
    """The best time of a few reads, after one that is compared with the data."""
    read = READERS[library](url, concurrency)
    assert np.array_equal(read(), model()), f"{library} reads other values"
    best = float("inf")
    for _ in range(REPEAT):
        start = time.perf_counter()
        read()
        best = min(best, time.perf_counter() - start)
    return best


@contextmanager
def server(folder: str, wait: float) -> Iterator[str]:
    """The address of a server of a folder, in a process of its own."""
    command = [sys.executable, "-m", "bench.slow_server", folder, str(wait)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()  # which ends it


def measured(library: str, url: str, concurrency: int | None) -> float:
    """The best time of one library, in a new process."""
    command = [sys.executable, "-m", "bench.remote", "--library", library, "--url", url]
    if concurrency is not None:
        command += ["--concurrency", str(concurrency)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def table(times: dict[str, dict[str, float]]) -> str:
    """Milliseconds of zellige and the ratios of the others, as Markdown."""
    lines = ["| case | zellige | TensorStore | zarr | goal |", "|---|---:|---:|---:|---|"]
    for codec, found in times.items():
        ours = found["zellige"]
        ratios = {peer: found[peer] / ours for peer in GOALS}
        met = all(ratios[peer] >= least for peer, least in GOALS.items())
        lines.append(
            f"| remote_{codec}_64K | {ours * 1000:.0f} ms | {ratios['tensorstore']:.2f} | {ratios['zarr']:.2f} "
            f"| >= 1, >= 5: {'ok' if met else 'behind'} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure all libraries in turn, or one in this process."""
    parser = argparse.ArgumentParser(prog="python -m bench.remote", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wait", type=float, default=0.020, help="seconds before each answer")
    parser.add_argument("--concurrency", type=int, help="requests of zellige at once, instead of its default")
    parser.add_argument("--library", choices=READERS, help="only this one, in this process")
    parser.add_argument("--url", help="of an array, with --library")
    given = parser.parse_args()
    if given.library:
        print(work(given.library, given.url, given.concurrency))
        return
    import zellige

    times: dict[str, dict[str, float]] = {codec: {} for codec in CODECS}
    with tempfile.TemporaryDirectory() as folder:
        for codec, compressors in CODECS.items():
            layout = {"chunks": (1, ELEMENTS), "compressors": compressors}
            zellige.create_array(Path(folder, codec), data=model(), **layout)
        with server(folder, given.wait) as address:
            for _ in range(given.rounds):
                for codec, found in times.items():
                    for library in READERS:
                        seconds = measured(library, f"{address}/{codec}", given.concurrency)
                        found[library] = min(found.get(library, seconds), seconds)
    print(table(times))


if __name__ == "__main__":
    main()
