"""A writer that is stopped for so long that another machine takes over, and then goes on, changes nothing any more.

The first writer of a dataset in an object store is stopped before its first request, its second, and so on. Its lease
expires, a second writer appends, and the first one goes on. What a writer was told is true: what was written is there
once, in all variables, and what was refused is not there. The next append is right. The short form stops some of the
writers before every fourth request only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import obstore.store
import pytest
from crashing_store import LONG

import dask
import xarray as xr
import zellige
from xarray_data import opened
from zellige.errors import ConflictError
from zellige.nodes import lease
from zellige.stores import Store, files
from zellige.stores.object import ObjectStore
from zellige.xarray import write

pytestmark = [
    pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning"),
    pytest.mark.filterwarnings("ignore:.*Zarr format 2.*:FutureWarning"),
]


class FarStore(ObjectStore):
    """An object store as another machine uses it, which stops before its n-th request until it may go on."""

    def __init__(self, store: Any, at: int) -> None:
        super().__init__(store)
        self._left = at
        self.is_stopped, self.goes_on = threading.Event(), threading.Event()

    @property
    def identity(self) -> Hashable:
        return "far", super().identity  # so that no lock of this process keeps both apart

    def _stop(self) -> None:
        self._left -= 1
        if not self._left:
            self.is_stopped.set()
            assert self.goes_on.wait(120)

    def _ask(self, *request: Any) -> Any:
        self._stop()
        return super()._ask(*request)

    def write(self, *request: Any) -> bool:
        self._stop()
        return super().write(*request)

    def _delete(self, *request: Any) -> None:
        self._stop()
        super()._delete(*request)


def rows(*numbers: int) -> xr.Dataset:
    """Variables that all tell which rows they hold, but for one whose chunks need not be stored."""
    n = np.array(numbers)
    values = {"a": (("time", "x"), n[:, None] * [1, 10]), "b": ("time", n), "zero": ("time", n * 0)}
    return xr.Dataset(values, {"time": n, "x": [1, 2]})


OLD, FIRST, SECOND, NEXT = rows(0, 1, 2, 3), rows(14, 15, 16, 17), rows(24, 25, 26), rows(37, 38)


def both(*parts: xr.Dataset) -> xr.Dataset:
    return xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override")


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The time that leases go by. The thread `first` runs far away, where nothing is renewed."""
    state, here = SimpleNamespace(ahead=0.0), files.owner
    monkeypatch.setattr(lease, "time", SimpleNamespace(**{**vars(time), "time": lambda: time.time() + state.ahead}))

    def owner(pid: int) -> str:
        return "1.1.far-away" if threading.current_thread().name == "first" else here(pid)

    monkeypatch.setattr(lease, "files", SimpleNamespace(**{**vars(files), "owner": owner}))
    monkeypatch.setattr(lease.Lease, "renew", lambda self: None)
    return state


def append_first(store: Store, ds: xr.Dataset, told: list[str]) -> None:
    try:
        write(ds, store, append_dim="time")
        told.append("written")
    except ConflictError:
        told.append("refused")


def check(store: Store, *allowed: xr.Dataset) -> xr.Dataset:
    found = opened(store).load()
    assert any(found.identical(one) for one in allowed), found
    xr.testing.assert_identical(opened(store, consolidated=False).load(), found)
    report = zellige.validate(store, deep=True)
    assert report.ok, str(report)
    return found


FORMS: dict[str, dict[str, Any]] = {
    "consolidated": {"chunks": {"time": 7}, "consolidated": None},
    "without consolidated metadata": {"chunks": {"time": 7}, "consolidated": False},
    "Zarr format 2": {"chunks": {"time": 3}, "zarr_format": 2},
    "chunks of their own": {"chunks": {"time": [1, 3]}, "consolidated": None},
}


@pytest.mark.parametrize(("form", "blocks"), [*((form, None) for form in FORMS), ("consolidated", 2)])
def test_who_loses_its_lease_while_it_is_stopped_changes_nothing_any_more(form, blocks, clock):
    outcomes = set()
    for number in count(1, 1 if LONG or (form, blocks) == ("consolidated", None) else 4):
        objects, told = obstore.store.MemoryStore(), []
        near, far = ObjectStore(objects), FarStore(objects, number)
        write(OLD, near, **FORMS[form])
        ds = FIRST if blocks is None else FIRST.chunk(time=blocks)
        thread = threading.Thread(target=append_first, args=(far, ds, told), name="first")
        with dask.config.set(scheduler="synchronous"):
            thread.start()
            while thread.is_alive() and not far.is_stopped.wait(0.001):
                pass
            if not far.is_stopped.is_set():
                break  # it has ended by itself
            clock.ahead += 10_000
            write(SECOND, near, append_dim="time")
            far.goes_on.set()
            thread.join()
        clock.ahead += 10_000
        outcomes |= {*told}
        if told == ["written"]:
            found = check(near, both(OLD, FIRST, SECOND), both(OLD, SECOND, FIRST))
        else:
            assert told == ["refused"]
            found = check(near, both(OLD, SECOND))
        write(NEXT, near, append_dim="time")
        check(near, both(found, NEXT))
    assert number > 20, "the first writer made hardly any request"
    assert outcomes == {"written", "refused"}
