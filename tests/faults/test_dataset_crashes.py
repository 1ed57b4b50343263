"""One change of many arrays: a writer that dies, or fails, at any point leaves the old dataset or the new one.

Each way to write a dataset dies at its first change of the store, its second, and so on until it ends by itself. After
each death readers see the old dataset or the new one, whatever metadata they use, and the next append is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from crashing_store import CrashingStore, Killed

import zellige
from xarray_data import opened as open_one
from zellige.stores import MemoryStore, Store
from zellige.xarray import write


def dataset(start: str, days: int, **more: Any) -> xr.Dataset:
    """Five variables, all of which tell the day that they belong to."""
    time = pd.date_range(start, periods=days)
    day = (time - pd.Timestamp("2020-01-01")).days.to_numpy()
    values = {f"v{k}": (("time", "x"), np.outer(day, [1.0, 10.0]) + k) for k in range(4)}
    return xr.Dataset({**values, "total": ("time", day * 7)}, {"time": time, "x": [1, 2]}).assign(**more)


pytestmark = pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning")

OLD, MORE = dataset("2021-01-01", 20), dataset("2021-01-21", 25)
BOTH = xr.concat([OLD, MORE], "time")


class Case(NamedTuple):
    """A way to write, what was there, and what is there afterwards."""

    before: xr.Dataset | None
    act: Callable[[Store], Any]
    after: xr.Dataset


CASES = {
    "append": Case(OLD, lambda store: write(MORE, store, append_dim="time"), BOTH),
    "append of dask": Case(OLD, lambda store: write(MORE.chunk(time=20), store, append_dim="time"), BOTH),
    "new variables": Case(
        OLD,
        lambda store: write(
            OLD[["v0", "total"]].rename(v0="new", total="newer").drop_vars(["time", "x"]), store, mode="a"
        ),
        OLD.assign(new=OLD.v0, newer=OLD.total),
    ),
    "create": Case(None, lambda store: write(OLD, store), OLD),
}


def opened(store: Store, *, consolidated: bool | None) -> xr.Dataset | None:
    try:
        return open_one(store, consolidated=consolidated).load()
    except zellige.errors.GroupNotFoundError:
        return None


def deaths(case: Case) -> Iterator[tuple[int, Store]]:
    for number in count(1):
        inner = MemoryStore()
        if case.before is not None:
            write(case.before, inner)
        try:
            case.act(CrashingStore(inner, at=number))
        except Killed:
            yield number, inner
        else:
            assert number > 5, "the operation changed nearly nothing"
            return


def same(found: xr.Dataset | None, expected: xr.Dataset | None) -> bool:
    return found is None if expected is None else found is not None and found.identical(expected)


@pytest.mark.parametrize("name", CASES)
def test_a_death_at_any_point_leaves_the_old_dataset_or_the_new_one(name):
    case = CASES[name]
    for number, store in deaths(case):
        for consolidated in (None, False):
            found = opened(store, consolidated=consolidated)
            assert same(found, case.before) or same(found, case.after), f"death {number}, {consolidated=}"
