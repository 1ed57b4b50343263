"""Making stored datasets longer, changing regions, and chunks by calendar and labels."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import zellige
import zellige.dask
from counting_store import WRITES, CountingStore, contents
from xarray_data import OTHERS_SAY, chunked, daily, everything, opened
from zellige.xarray import write
from zellige.xarray.calendar import Ends, resolve_chunks

pytestmark = [pytest.mark.filterwarnings(f"ignore:.*{words}") for words in OTHERS_SAY]

DAYS = pd.date_range("2021-01-01", "2023-12-31")
MONTHS = pd.Series(1, DAYS).groupby([DAYS.year, DAYS.month]).count().tolist()


def chunk_writes(store: CountingStore) -> list[str]:
    return [key for key in store.keys(*WRITES) if "/c/" in key]


# -- calendars and labels -------------------------------------------------------------------------


def test_three_years_of_days_by_month_are_36_chunks_of_28_to_31():
    root = write(daily(), {}, chunks={"time": "month"})
    sizes = root["t"].write_chunk_sizes[0]
    assert len(sizes) == 36
    assert list(sizes) == MONTHS
    assert (min(sizes), max(sizes)) == (28, 31)
    assert root["t"].nchunks_initialized == 36
    assert root["time"].nchunks == 1  # an index is read whole
    xr.testing.assert_identical(opened(root), daily())
    assert list(opened(root, chunks={}).chunks["time"]) == MONTHS


WORDS = {
    "year": [365, 365, 366],
    "YS": [365, 365, 366],
    "quarter": [90, 91, 92, 92, 90, 91, 92, 92, 91, 91, 92, 92],
    "day": [1] * 1096,
    "100D": [100] * 11,
    "season": [31 + 28, 92, 92, 91, 31 + 31 + 28, 92, 92, 91, 31 + 31 + 29, 92, 92, 91, 31],
    "time.year": [365, 365, 366],
}


def edges_of(ds: xr.Dataset, rule) -> list[int]:
    """The edges of the chunks along the time, as a new array would get them."""
    cut = resolve_chunks(ds, {"time": rule})[0]["time"]
    return cut.after(0) if isinstance(cut, Ends) else cut


@pytest.mark.parametrize("word", WORDS)
def test_words_frequencies_and_labels_cut_where_they_should(word):
    time = pd.date_range("2022-01-01", "2024-12-31")
    ds = xr.Dataset(coords={"time": time, "season": ("time", (time.month % 12) // 3)})
    assert edges_of(ds, word) == WORDS[word]


def test_months_with_gaps_and_other_calendars():
    time = pd.DatetimeIndex(["2021-01-30", "2021-01-31", "2021-03-05", "2021-07-01"])
    assert edges_of(xr.Dataset(coords={"time": time}), "month") == [2, 1, 31]
    time = xr.date_range("2001-01-01", periods=90, calendar="360_day", use_cftime=True)
    assert edges_of(xr.Dataset(coords={"time": time}), "month") == [30, 30, 30]


def test_what_cannot_be_cut_says_why():
    ds = daily(end="2021-01-10")
    cases = {
        "does not cut 'time'.*'month'": (ds, "fortnightly"),
        "does not cut 'x'": (ds, "month"),
        "needs times that ascend": (ds.isel(time=slice(None, None, -1)), "month"),
        "no coordinate of its own": (ds.drop_vars("time"), "month"),
        "labels of 'time' have that one only": (ds, "x"),
    }
    for message, (data, word) in cases.items():
        dim = "x" if "'x'" in message else "time"
        with pytest.raises(ValueError, match=message):
            resolve_chunks(data, {dim: word})


# -- appending ------------------------------------------------------------------------------------

JANUARY = ("2024-01-01", "2024-01-31")


@pytest.mark.parametrize("blocks", [None, {"time": 31}, {}], ids=["numpy", "dask", "one block"])
def test_appending_a_month_adds_one_chunk_and_rewrites_none(blocks):
    store = CountingStore()
    write(daily(), store, chunks={"time": "month"})
    before = contents(store)
    store.reset()
    month = daily(*JANUARY)
    write(month if blocks is None else month.chunk(blocks), store, append_dim="time")
    assert sorted(chunk_writes(store)) == ["mean/c/36", "t/c/36/0", "time/c/0"]  # the last has room for more times
    after = contents(store)
    assert all(after[key] == value for key, value in before.items() if "/c/" in key and key != "time/c/0")
    assert zellige.open_array(store, path="t").write_chunk_sizes[0] == (*MONTHS, 31)
    xr.testing.assert_identical(opened(store, consolidated=True), daily(end="2024-01-31"))


def test_appending_by_calendar_and_by_blocks():
    store = zellige.MemoryStore()
    write(daily(end="2021-03-31"), store, chunks={"time": "month"})
    write(daily("2021-04-01", "2021-06-30"), store, append_dim="time", chunks={"time": "month"})
    write(daily("2021-07-01", "2021-07-20").chunk(time=(5, 12, 3)), store, append_dim="time", chunks={"time": "auto"})
    assert zellige.open_array(store, path="t").write_chunk_sizes[0] == (31, 28, 31, 30, 31, 30, 5, 12, 3)
    xr.testing.assert_identical(opened(store), daily(end="2021-07-20"))


def test_the_first_append_creates():
    store = zellige.MemoryStore()
    for month in range(1, 4):
        days = pd.date_range(f"2021-{month:02}-01", periods=1) + pd.offsets.MonthEnd(0)
        write(daily(f"2021-{month:02}-01", str(days[0].date())), store, append_dim="time", chunks={"time": "month"})
    assert zellige.open_array(store, path="t").write_chunk_sizes[0] == (31, 28, 31)
    xr.testing.assert_identical(opened(store), daily(end="2021-03-31"))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_regular_axis_stays_regular_for_other_readers(zarr_format, tmp_path):
    write(daily(end="2021-01-25").chunk(time=10), tmp_path, zarr_format=zarr_format)
    with pytest.warns(zellige.dask.AlignmentWarning):
        write(daily("2021-01-26", "2021-02-20").chunk(time=(7, 19)), tmp_path, append_dim="time")
    assert zellige.open_array(tmp_path, path="t").chunks == (10, 3)
    xr.testing.assert_identical(opened(tmp_path), daily(end="2021-02-20"))
    xr.testing.assert_identical(xr.open_dataset(tmp_path, engine="zarr"), daily(end="2021-02-20"))


def test_a_last_chunk_that_reaches_beyond_the_end_is_filled_first():
    store = zellige.MemoryStore()
    write(daily(end="2021-01-25"), store, encoding={"t": {"chunks": [[10, 20], 3]}, "mean": {"chunks": [[10, 20]]}})
    write(daily("2021-01-26", "2021-02-14").chunk(time=(8, 12)), store, append_dim="time")
    assert zellige.open_array(store, path="t").write_chunk_sizes[0] == (10, 20, 3, 12)
    xr.testing.assert_equal(opened(store), daily(end="2021-02-14"))


def test_all_kinds_of_values_are_appended_as_they_are_encoded(tmp_path):
    ds = everything()
    first, second = ds.isel(time=slice(12)), ds.isel(time=slice(12, None))
    for k, (a, b) in enumerate([(first, second), (chunked(first, time=(5, 7)), chunked(second, time=(1, 7)))]):
        write(a, tmp_path / str(k))
        write(
            b.drop_vars([name for name, v in b.variables.items() if "time" not in v.dims and name != "x"]),
            tmp_path / str(k),
            append_dim="time",
        )
        xr.testing.assert_identical(opened(tmp_path / str(k)), ds)


def test_strings_grow_only_where_they_can():
    store = zellige.MemoryStore()
    ds = xr.Dataset({"s": ("x", np.array(["ab", "c"])), "v": ("x", np.array(["long", ""], object))})
    write(ds, store)
    write(ds, store, append_dim="x")
    assert opened(store).s.values.tolist() == ["ab", "c", "ab", "c"]
    assert opened(store).v.values.tolist() == ["long", "", "long", ""]
    before = contents(store)
    for text in (np.array(["abcd", ""]), np.array(["abcd", ""], object)):
        with pytest.raises(ValueError, match=r"'s' has the type <U4 .* <U2"):
            write(ds.assign(s=("x", text)), store, append_dim="x")
    assert contents(store) == before
    write(ds.assign(s=("x", np.array(["yz", ""], object))), store, append_dim="x")
    assert opened(store).s.values.tolist() == ["ab", "c", "ab", "c", "yz", ""]


@pytest.mark.parametrize("blocks", [None, {}], ids=["numpy", "dask"])
def test_integers_that_do_not_fit_are_refused_and_not_wrapped(blocks):
    store = zellige.MemoryStore()
    ds = xr.Dataset({"v": ("x", np.array([1, 2], "i2"))})
    write(ds, store)
    write(ds.astype("i8") if blocks is None else ds.astype("i8").chunk(blocks), store, append_dim="x")
    before = contents(store)
    large = xr.Dataset({"v": ("x", [70_000, 3])})
    with pytest.raises(ValueError, match="int16"):
        write(large if blocks is None else large.chunk(blocks), store, append_dim="x")
    assert contents(store) == before
    assert opened(store).v.values.tolist() == [1, 2, 1, 2]


@pytest.mark.filterwarnings("ignore:Times can't be serialized faithfully")  # xarray takes other units
def test_an_append_is_checked_before_anything_is_written():
    store = zellige.MemoryStore()
    write(daily(end="2021-01-10"), store)
    more = daily("2021-01-11", "2021-01-20")
    hours = more.assign_coords(time=more.time + pd.Timedelta("6h"))
    bad = {
        "no dimension of the dataset": (more, "z"),
        "would be left shorter": (more.drop_vars("mean"), "time"),
        "are not stored yet": (more.assign(new=more["mean"]), "time"),
        "coordinate 'x' differs": (more.assign_coords(x=[5, 6, 7]), "time"),
        "elements along 'x'": (more.isel(x=slice(2)).drop_vars("x"), "time"),
        "units would be": (hours, "time"),
        "is no stored dimension": (more.rename(time="when"), "when"),
    }
    before = contents(store)
    for message, (data, dim) in bad.items():
        with pytest.raises(ValueError, match=message):
            write(data, store, append_dim=dim)
        assert contents(store) == before, message


def test_variables_without_the_dimension_are_written_only_if_they_differ():
    store = CountingStore()
    write(daily(end="2021-01-10").assign(mask=("x", [1, 0, 1])), store)
    store.reset()
    write(daily("2021-01-11", "2021-01-20").assign(mask=("x", [1, 0, 1])), store, append_dim="time")
    assert not [key for key in chunk_writes(store) if key.startswith(("mask", "x"))]
    write(daily("2021-01-21", "2021-01-30").assign(mask=("x", [1, 1, 1])), store, append_dim="time")
    assert opened(store).mask.values.tolist() == [1, 1, 1]


# -- what readers see -----------------------------------------------------------------------------


def test_readers_see_the_old_dataset_until_all_is_written():
    store = zellige.MemoryStore()
    old = daily(end="2021-02-28")
    write(old, store, chunks={"time": "month"})
    later = write(daily("2021-03-01", "2021-03-31").chunk(time=31), store, append_dim="time", compute=False)
    xr.testing.assert_identical(opened(store), old)
    xr.testing.assert_identical(opened(store, consolidated=False), old)
    dask.compute(later)
    xr.testing.assert_identical(opened(store), daily(end="2021-03-31"))


def test_a_failed_append_leaves_the_dataset_as_it_was():
    store = zellige.MemoryStore()
    write(daily(end="2021-02-28"), store, chunks={"time": "month"})
    before = contents(store)
    more = daily("2021-03-01", "2021-03-31").chunk(time=31)

    def fail(block):
        raise OSError("the disk is gone")

    more["t"] = more["t"].copy(data=more["t"].data.map_blocks(fail, dtype="f8", meta=np.empty((0, 0))))
    with pytest.raises(OSError, match="the disk is gone"):
        write(more, store, append_dim="time")
    assert contents(store) == before


# -- regions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [None, {"time": 4}], ids=["numpy", "dask"])
@pytest.mark.parametrize("how", ["slices", "auto", "both"])
@pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning")
def test_a_region_changes_its_part_and_no_other(how, blocks):
    store = zellige.MemoryStore()
    ds = daily(end="2021-01-30")
    write(ds.chunk(time=(7, 14, 9)), store)
    part = ds.isel(time=slice(5, 25), x=slice(1, 3)).drop_vars("mean") * -1
    region = {
        "slices": {"time": slice(5, 25), "x": slice(1, 3)},
        "auto": "auto",
        "both": {"time": "auto", "x": slice(1, 3)},
    }[how]
    write(part if blocks is None else part.chunk(blocks), store, region=region)
    expected = ds.copy(deep=True)
    expected.t[5:25, 1:3] *= -1
    xr.testing.assert_identical(opened(store), expected)


def test_a_region_is_checked_before_anything_is_written():
    store = zellige.MemoryStore()
    ds = daily(end="2021-01-30")
    write(ds, store)
    part = ds.isel(time=slice(5, 10))
    bad = {
        "not in the store": (part.assign_coords(time=part.time + pd.Timedelta("400D")), "auto"),
        "side by side": (ds.isel(time=[3, 5]), "auto"),
        "no dimension 'z'": (part, {"z": slice(3)}),
        "slice without a step": (part, {"time": slice(0, 10, 2)}),
        "5 elements along 'time'": (part, {"time": slice(0, 4)}),
        "'new' is not in the store": (part.assign(new=part["mean"]), "auto"),
        "no dimension of region": (part.assign(mean=1), {"time": slice(5, 10)}),
        "must be 'auto' or a dict": (part, 3),
    }
    before = contents(store)
    for message, (data, region) in bad.items():
        with pytest.raises((ValueError, KeyError, TypeError), match=message):
            write(data, store, region=region)
        assert contents(store) == before, message


# -- what is easily expected otherwise ------------------------------------------------------------


def test_a_minus_leaves_stored_variables_without_the_dimension_as_they_are():
    store = CountingStore()
    write(daily(end="2021-01-10").assign(mask=("x", [1, 0, 1])), store)
    more = daily("2021-01-11", "2021-01-20").assign(mask=("x", [0, 0, 0]), new=("x", [7, 8, 9]))
    store.reset()
    write(more.assign_coords(x=[5, 6, 7]), store, append_dim="time", mode="a-")
    assert not [key for key in chunk_writes(store) if key.startswith(("mask", "x"))]
    found = opened(store)
    assert found.mask.values.tolist() == [1, 0, 1]
    assert found.x.values.tolist() == [0, 1, 2]
    assert found.new.values.tolist() == [7, 8, 9]
    assert found.sizes["time"] == 20


def test_blocks_with_a_shorter_last_one_are_regular_and_what_follows_fills_it_first():
    store = zellige.MemoryStore()
    write(daily(end="2021-02-28").chunk(time=(31, 28)), store)
    assert zellige.open_array(store, path="t").chunks == (31, 3)
    before = contents(store)
    with pytest.warns(zellige.errors.ZelligeWarning, match=r"room for 3 more along 'time'.*follow after it"):
        write(daily("2021-03-01", "2021-03-31"), store, append_dim="time", chunks={"time": "month"})
    assert zellige.open_array(store, path="t").write_chunk_sizes[0] == (31, 31, 28)
    assert contents(store)["t/c/0/0"] == before["t/c/0/0"]
    xr.testing.assert_identical(opened(store), daily(end="2021-03-31"))


def test_months_that_were_asked_for_stay_months():
    store = zellige.MemoryStore()
    write(daily(end="2021-02-28").chunk(time=(31, 28)), store, chunks={"time": "month"})
    write(daily("2021-03-01", "2021-03-31").chunk(time=31), store, append_dim="time")
    assert zellige.open_array(store, path="t").write_chunk_sizes[0] == (31, 28, 31)
