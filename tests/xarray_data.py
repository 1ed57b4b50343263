"""Datasets for the tests of the xarray guest, and its engine by name."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import xarray as xr
from zellige.xarray import ZelligeBackend

OTHERS_SAY = ("Consolidated metadata", "does not have a Zarr V3", "not part in the Zarr format 3", "decode_timedelta")
"""Warnings of zarr-python and of older versions of xarray that are not about what is tested here."""

ROOT = Path(__file__).parents[1]


def everything() -> xr.Dataset:
    """CF times, scale and offset, strings of both kinds, bools, missing values, scalars, coordinates of all sorts."""
    rng = np.random.default_rng(7)
    packed = rng.integers(-100, 100, (20, 6)) * 0.25 + 273  # exact in binary, so that packing loses nothing
    packed[3, 2] = packed[19, 5] = np.nan
    ds = xr.Dataset(
        {
            "t2m": (("time", "x"), packed, {"units": "K"}),
            "wind": (("time", "x", "z"), rng.normal(size=(20, 6, 4)).astype("f4")),
            "count": ("time", np.arange(20, dtype="i2")),
            "names": ("x", np.array(["a", "bc", "", "déf", "g", "h"], dtype=object)),
            "fixed": ("x", np.array(["ab", "c", "d", "e", "f", "g"])),
            "flag": (("time", "x"), rng.random((20, 6)) > 0.5),
            "gaps": ("x", [1.5, np.nan, 2.5, np.nan, 0.0, -1.0]),
            "scalar": ((), 42, {"long_name": "the answer"}),
            "lag": ("x", pd.to_timedelta(np.arange(6), unit="h").to_numpy()),
        },
        {
            "time": pd.date_range("2000-01-01T06:00", periods=20),
            "x": np.arange(6) * 0.25,
            "label": ("time", np.arange(20) // 6),
            "area": (("x", "z"), np.ones((6, 4))),
        },
        {"title": "everything", "levels": np.arange(3), "version": np.int64(2)},
    )
    ds.t2m.encoding = {"dtype": "int16", "scale_factor": 0.25, "add_offset": 273.0, "_FillValue": -32768}
    ds.lag.encoding = {"dtype": "int64", "units": "hours"}
    return ds


def chunked(ds: xr.Dataset, **chunks: Any) -> xr.Dataset:
    """The dataset with blocks of dask; strings stay in memory, since xarray would load them to learn their type."""
    return ds.chunk(chunks).assign(names=ds.names)


def daily(start: str = "2021-01-01", end: str = "2023-12-31", x: int = 3) -> xr.Dataset:
    """A value for each day and place, and the mean of each day."""
    time = pd.date_range(start, end)
    days = np.arange(len(time), dtype="f8") + time[0].toordinal()
    return xr.Dataset(
        {"t": (("time", "x"), days[:, None] + np.arange(x)), "mean": ("time", days)},
        {"time": time, "x": np.arange(x)},
        {"source": "made up"},
    )


def opened(place: Any, **options: Any) -> xr.Dataset:
    """The dataset at a place, by the engine of this tree."""
    return xr.open_dataset(place, engine=ZelligeBackend, **options)


def install_engine(directory: Path) -> None:
    """Make `engine="zellige"` known as an installation of this tree would, for as long as `directory` is on the path.

    Tests may run without an installation, or with one of another tree.
    """
    found = importlib.metadata.entry_points(group="xarray.backends", name="zellige")
    if not found:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        info = directory / "zellige_entry-0.dist-info"
        info.mkdir()
        lines = [f"{name} = {value}" for name, value in project["entry-points"]["xarray.backends"].items()]
        (info / "entry_points.txt").write_text("\n".join(["[xarray.backends]", *lines, ""]))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zellige-entry\nVersion: 0\n")
        sys.path.insert(0, str(directory))
        importlib.invalidate_caches()
    xr.backends.list_engines.cache_clear()
