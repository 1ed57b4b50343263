"""One change of many arrays: a writer that dies, or fails, at any point leaves the old dataset or the new one.

Each way to write a dataset dies at its first change of the store, its second, and so on until it ends by itself. After
each death readers see the old dataset or the new one, whatever metadata they use, the next append is right, and nothing
is left over. In an object store here; in the long form also in memory, on a local disk and on a server of S3.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import obstore.store
import pandas as pd
import pytest
from crashing_store import LONG, CrashingStore, Killed

import xarray as xr
import zellige
from xarray_data import opened
from zellige.stores import LocalStore, MemoryStore, Store, resolve
from zellige.stores.object import ObjectStore
from zellige.xarray import ZelligeBackend, write

pytestmark = [
    pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning"),
    pytest.mark.filterwarnings("ignore:.*Zarr format 2.*:FutureWarning"),
]


def dataset(start: str, days: int) -> xr.Dataset:
    """Variables that all tell the day that they belong to."""
    time = pd.date_range(start, periods=days)
    day = (time - pd.Timestamp("2020-01-01")).days.to_numpy()
    values = {f"v{k}": (("time", "x"), np.outer(day, [1.0, 10.0]) + k) for k in range(3)}
    return xr.Dataset({**values, "total": ("time", day * 7)}, {"time": time, "x": [1, 2]})


OLD, MORE, NEXT = dataset("2021-01-01", 20), dataset("2021-01-21", 25), dataset("2021-02-15", 10)
NEW = OLD[["v0", "total"]].rename(v0="new", total="newer").drop_vars(["time", "x"])


def tree(ds: xr.Dataset) -> xr.DataTree:
    return xr.DataTree.from_dict({"/": ds[["x"]], "/a": ds.drop_vars("x"), "/b/c": ds[["total"]]})


class Case(NamedTuple):
    """A way to write, what was there before, and what is there afterwards."""

    before: Any
    act: Callable[[Store], Any]
    after: Any
    group: str = ""
    """Where the next append goes."""
    zarr_format: int = 3


def both(*parts: xr.Dataset) -> xr.Dataset:
    return xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override")


CASES = {
    "append": Case(OLD, lambda store: write(MORE, store, append_dim="time"), both(OLD, MORE)),
    "append in Zarr format 2": Case(
        OLD, lambda store: write(MORE, store, append_dim="time"), both(OLD, MORE), zarr_format=2
    ),
    "append of dask": Case(OLD, lambda store: write(MORE.chunk(time=20), store, append_dim="time"), both(OLD, MORE)),
    "append of months": Case(
        OLD, lambda store: write(MORE, store, append_dim="time", chunks={"time": "month"}), both(OLD, MORE)
    ),
    "append, static variable changed": Case(
        OLD.assign(mask=("x", [1, 2])),
        lambda store: write(MORE.assign(mask=("x", [3, 4])), store, append_dim="time"),
        both(OLD, MORE).assign(mask=("x", [3, 4])),
    ),
    "new variables": Case(OLD, lambda store: write(NEW, store, mode="a"), OLD.assign(new=OLD.v0, newer=OLD.total)),
    "a region of a new variable": Case(
        OLD,
        lambda store: write(NEW[["new"]] * 0 + 5, store, mode="a", region={"time": slice(0, 20)}),
        OLD.assign(new=OLD.v0 * 0 + 5),
    ),
    "create": Case(None, lambda store: write(OLD, store), OLD),
    "create a group": Case(None, lambda store: write(OLD, store, group="p/q"), OLD, "p/q"),
    "create a tree": Case(None, lambda store: write(tree(OLD), store), tree(OLD), "a"),
    "append to a tree": Case(
        tree(OLD), lambda store: write(tree(MORE), store, append_dim="time"), tree(both(OLD, MORE)), "a"
    ),
}
VISIBLE = {
    # Values in place, and arrays that are created for others to fill, are seen one after the other.
    "append, static variable changed": [both(OLD, MORE).assign(mask=("x", [1, 2]))],
    "a region of a new variable": [OLD.assign(new=OLD.v0 * np.nan)],
}


@pytest.fixture(params=["object", "memory", "local", "s3"] if LONG else ["object"])
def make_store(request, tmp_path) -> Callable[[], Store]:
    """Makes an empty store at every call."""
    if request.param == "s3":
        server = request.getfixturevalue("s3")
        return lambda: resolve(server.url(), storage_options=server.options)
    numbers = count()
    return {
        "memory": MemoryStore,
        "object": lambda: ObjectStore(obstore.store.MemoryStore()),
        "local": lambda: LocalStore(tmp_path / f"{next(numbers)}.zarr"),
    }[request.param]


def read(store: Store, case: Case, *, consolidated: bool | None) -> Any:
    """What a fresh reader sees; None where nothing is."""
    try:
        if isinstance(case.after, xr.DataTree):
            return xr.open_datatree(store, engine=ZelligeBackend, consolidated=consolidated).load()
        return opened(store, group=case.group or None, consolidated=consolidated).load()
    except zellige.errors.NodeNotFoundError:
        return None


def same(found: Any, expected: Any) -> bool:
    return found is None if expected is None else found is not None and found.identical(expected)


def prepared(case: Case, make_store: Callable[[], Store]) -> Store:
    inner = make_store()
    if case.before is not None:
        write(case.before, inner, zarr_format=case.zarr_format)
    return inner


def deaths(
    case: Case, make_store: Callable[[], Store], error: OSError | None = None
) -> Iterator[tuple[str, CrashingStore, Store]]:
    """What is left when the writer dies, or fails, at its first change, its second, and so on."""
    for number in count(1):
        inner = prepared(case, make_store)
        store = CrashingStore(inner, at=number, error=error)
        try:
            case.act(store)
        except Killed:
            pass
        except OSError as failed:
            if failed is not error:
                raise
        else:
            assert number > 5, "the operation changed nearly nothing"
            return
        yield f"{'error' if error else 'death'} {number} after {store.changes[-3:]}", store, inner


def allowed(name: str) -> list[Any]:
    return [CASES[name].before, CASES[name].after, *VISIBLE.get(name, [])]


@pytest.mark.parametrize("name", CASES)
def test_after_a_death_readers_see_the_old_dataset_or_the_new_one_and_the_next_append_is_right(name, make_store):
    case = CASES[name]
    for when, _, store in deaths(case, make_store):
        seen = check_readers(name, store, when)
        check_next_append(name, store, when, seen)


def check_readers(name: str, store: Store, when: str) -> Any:
    """What readers see is the old state or the new one, and the same whatever metadata they use; returns that."""
    seen = read(store, CASES[name], consolidated=None)
    assert any(same(seen, one) for one in allowed(name)), (when, seen)
    assert same(read(store, CASES[name], consolidated=False), seen), (when, seen)
    return seen


def part(state: Any, group: str) -> xr.Dataset | None:
    """The dataset of one group."""
    return state[group].to_dataset(inherit=False) if isinstance(state, xr.DataTree) else state


def next_after(state: xr.Dataset | None) -> xr.Dataset:
    """What is appended to a dataset: all of its variables, and those without the dimension as they are."""
    if state is None:
        return NEXT
    values = {"new": NEXT.v0, "newer": NEXT.total}
    more = NEXT.assign({k: values[k] for k in values if k in state})
    more = more.assign({k: v for k, v in state.variables.items() if "time" not in v.dims})
    return more.drop_vars([k for k in more.variables if k not in state.variables])


def check_next_append(name: str, store: Store, when: str, seen: Any) -> None:
    """The next append goes onto what readers have seen, and nothing is left over."""
    group = CASES[name].group
    state = part(seen, group)
    more = next_after(state)
    write(more, store, group=group or None, append_dim="time")
    found = opened(store, group=group or None).load()
    assert same(found, more if state is None else both(state, more)), (when, found)
    xr.testing.assert_identical(opened(store, group=group or None, consolidated=False).load(), found)
    report = zellige.validate(store, deep=True)
    assert report.ok, (when, str(report))
    assert not [key for key in store.list() if "__zellige" in key], when


@pytest.mark.parametrize("name", CASES)
def test_after_a_death_repair_leaves_the_old_dataset_or_the_new_one(name, make_store):
    case = CASES[name]
    for when, _, store in deaths(case, make_store):
        try:
            zellige.repair(store, dry_run=False)
        except zellige.errors.NodeNotFoundError:
            assert case.before is None
        found = read(store, case, consolidated=None)
        assert any(same(found, one) for one in allowed(name)), (when, found)
        if found is not None:
            assert same(read(store, case, consolidated=False), found), when
            assert zellige.validate(store, deep=True).ok, when
            assert not [key for key in store.list() if "__zellige" in key], when


@pytest.mark.parametrize("consolidated", [False, True])
def test_other_programs_see_a_killed_commit_array_by_array_only_without_consolidated_metadata(consolidated):
    seen: set[tuple[int, ...]] = set()
    for number in count(1):
        inner = MemoryStore()
        write(OLD, inner, consolidated=consolidated)
        try:
            write(MORE, CrashingStore(inner, at=number), append_dim="time", consolidated=consolidated)
        except Killed:
            seen.add(lengths_for_others(inner, consolidated=consolidated))
            zellige.repair(inner, dry_run=False)
            assert lengths_for_others(inner, consolidated=consolidated) in {(20,), (45,)}, number
        else:
            break
    assert {(20,), (45,)} <= seen
    assert ((20, 45) in seen) is not consolidated


def refused(store: Store) -> None:
    with pytest.raises(FileExistsError):
        write(OLD, store)


FINISHING: dict[str, Callable[[Store], Any]] = {
    "repair": lambda store: zellige.repair(store, dry_run=False),
    "the next write": lambda store: write(NEW[["new"]], store, mode="a"),
    "the same write again": refused,
}


@pytest.mark.parametrize("finish", FINISHING.values(), ids=FINISHING)
def test_other_programs_miss_a_killed_creation_that_is_committed_until_it_is_finished(finish):
    """They find the whole dataset or no group at all, also where zellige's readers find the dataset already."""
    missed = 0
    for when, _, store in deaths(CASES["create"], MemoryStore):
        seen = read(store, CASES["create"], consolidated=None)
        others = lengths_for_others(store, consolidated=True) if store.exists("zarr.json") else ()
        assert others in {(), (20,)}, when
        assert seen is not None or not others, when
        if seen is not None and not others:
            missed += 1
            finish(store)
            assert lengths_for_others(store, consolidated=True) == (20,), when
    assert missed


def lengths_for_others(store: Store, *, consolidated: bool) -> tuple[int, ...]:
    """The lengths of "time" that a program finds which knows documents only, or those of the group as its own."""
    documents = {key: json.loads(bytes(store.get(key) or b"")) for key in store.list() if key.endswith("zarr.json")}
    if consolidated:
        documents = documents["zarr.json"]["consolidated_metadata"]["metadata"]
    grown = [found for found in documents.values() if "time" in (found.get("dimension_names") or ())]
    return tuple(sorted({found["shape"][found["dimension_names"].index("time")] for found in grown}))


@pytest.mark.parametrize("name", CASES)
def test_after_an_error_the_dataset_is_the_old_one_or_the_new_one_and_nothing_is_left(name, make_store):
    case = CASES[name]
    for when, _, store in deaths(case, make_store, OSError(errno.EIO, "broken disk")):
        seen = check_readers(name, store, when)
        check_next_append(name, store, when, seen)
