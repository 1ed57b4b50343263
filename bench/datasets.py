"""Datasets of many variables: creating and appending, compared with xarray's own `to_zarr`, as ratios.

    make datasets, or python -m bench.datasets [--variables N] [--rounds N]

Both write the same datasets to a local directory, in turns, with their defaults; the best time of each counts. Ratios
are xarray's time over zellige's. The goal is 1.0 or more. Needs xarray and zarr.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import xarray as xr
import zellige.xarray  # noqa: F401 - for ds.zellige

DAYS, WIDTH, GOAL = 10, 50, 1.0


def dataset(variables: int, number: int) -> xr.Dataset:
    """The block of days with a number."""
    time_of = pd.date_range("2020-01-01", periods=DAYS) + pd.Timedelta(days=DAYS * number)
    values = {f"v{k:03}": (("time", "x"), np.full((DAYS, WIDTH), number + k / 8)) for k in range(variables)}
    return xr.Dataset(values, {"time": time_of, "x": np.arange(WIDTH)})


def by_xarray(ds: xr.Dataset, place: Path, **options: Any) -> None:
    """As xarray does it."""
    ds.to_zarr(place, **options)


def by_zellige(ds: xr.Dataset, place: Path, **options: Any) -> None:
    """As zellige does it."""
    ds.zellige.write(place, **options)


WRITERS: dict[str, Callable[..., None]] = {"xarray": by_xarray, "zellige": by_zellige}


def measure(write: Callable[..., None], place: Path, variables: int, appends: int) -> dict[str, float]:
    """Seconds to create a dataset, and the shortest of several appends to it."""
    shutil.rmtree(place, ignore_errors=True)
    datasets = [dataset(variables, number) for number in range(appends + 1)]
    times = []
    for number, ds in enumerate(datasets):
        start = time.perf_counter()
        write(ds, place, **({"append_dim": "time"} if number else {}))
        times.append(time.perf_counter() - start)
    found = xr.open_dataset(place, engine="zellige")
    assert found.identical(xr.concat(datasets, "time")), "other values were written"
    return {"create": times[0], "append": min(times[1:])}


def main() -> int:
    """Print a table of ratios; the exit code says whether the goal is met."""
    parser = argparse.ArgumentParser(prog="python -m bench.datasets", description=__doc__)
    parser.add_argument("--variables", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--appends", type=int, default=4, help="appends in each round")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    best: dict[str, dict[str, float]] = {name: {} for name in WRITERS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.rounds):
            for name, write in WRITERS.items():
                for what, seconds in measure(write, Path(folder) / "x.zarr", given.variables, given.appends).items():
                    best[name][what] = min(seconds, best[name].get(what, seconds))
    ratios = {what: best["xarray"][what] / best["zellige"][what] for what in best["zellige"]}
    print(f"{given.variables} variables, xarray {xr.__version__}")
    for what, ratio in ratios.items():
        seconds = f"xarray {best['xarray'][what]:.3f} s, zellige {best['zellige'][what]:.3f} s"
        print(f"{what:8} {ratio:5.2f}  {seconds}{'' if ratio >= GOAL else '  below the goal'}")
    return 0 if min(ratios.values()) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
