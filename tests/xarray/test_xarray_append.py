"""Making stored datasets longer, changing regions, and chunks by calendar and labels."""

from __future__ import annotations

import itertools
import tracemalloc
import warnings
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies
from hypothesis.strategies import booleans, integers, lists, sampled_from

import dask
import xarray as xr
import zarr
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


@pytest.mark.parametrize(("step", "count"), [("90D", 5), ("31D", 12), ("59D", 7), ("MS", 12), ("2MS", 6), ("ME", 12)])
def test_a_step_of_days_is_no_step_of_months(step, count):
    """Also where one step from the first of January leads to the first of a month."""
    ds = xr.Dataset(coords={"time": pd.DatetimeIndex(["2001-01-01"])})
    assert edges_of(ds, ("year", step)) == [count]


# -- months that fill -----------------------------------------------------------------------------


def days_of(word: str, days: pd.DatetimeIndex) -> list[int]:
    """How many days each period has that some days lie in, by counting all days of the calendar around them."""
    periods = {"year": "Y", "quarter": "Q", "month": "M", "week": "W", "day": "D"}
    touched = dict.fromkeys(days.to_period(periods[word]))
    first = [max(period.start_time, days[0]) for period in touched]
    return [(period.end_time.normalize() - start).days + 1 for period, start in zip(touched, first, strict=True)]


def stored_edges(root: zellige.Group, name: str = "t") -> list[int]:
    """The declared sizes of the chunks along the first axis."""
    chunks = root[name].grid.dimensions[0].chunks
    return [chunks] * root[name].grid.grid_shape[0] if isinstance(chunks, int) else list(chunks)


@pytest.mark.parametrize(
    ("word", "batch"), [("month", 1), *itertools.product(["year", "quarter", "month", "week", "day"], [9, 45])]
)
def test_a_period_is_one_chunk_however_its_days_arrive(word, batch):
    """Also the first day alone: one time at midnight is taken for that of daily values."""
    whole = daily("2023-12-11", "2024-03-20")
    store = zellige.MemoryStore()
    for start in range(0, whole.sizes["time"], batch):
        root = write(whole.isel(time=slice(start, start + batch)), store, append_dim="time", chunks={"time": word})
    assert stored_edges(root) == days_of(word, whole.indexes["time"])
    assert root["t"].nchunks_initialized == len(stored_edges(root))
    assert root["time"].nchunks_initialized == 1
    xr.testing.assert_identical(opened(root), whole)


@settings(max_examples=15, deadline=None)
@given(strategies.data())
def test_random_batches_fill_the_periods_of_the_calendar(draw):
    start = pd.Timestamp("1999-12-01") + pd.Timedelta(days=draw.draw(integers(0, 500)))
    batches = draw.draw(lists(integers(1, 70), min_size=1, max_size=6))
    word = draw.draw(sampled_from(["year", "quarter", "month", "week"]))
    time = pd.date_range(start, periods=sum(batches))
    whole = xr.Dataset({"t": ("time", np.arange(len(time)))}, {"time": time})
    store, first = zellige.MemoryStore(), 0
    for size in batches:
        rule = {"time": word} if not first or draw.draw(booleans()) else None  # the store keeps the rule
        root = write(whole.isel(time=slice(first, first + size)), store, append_dim="time", chunks=rule)
        first += size
    assert stored_edges(root) == days_of(word, time)
    xr.testing.assert_identical(opened(root), whole)


STEPS = {
    "6h": ("2024-01-30", "6h", "month", [8, 29 * 4]),
    "hours of a day": ("2024-02-28T05:00", "h", "day", [19, 24, 24]),
    "months of a year": ("2023-11-01", "MS", "year", [2, 12]),
    "ends of months": ("2023-11-30", "ME", "quarter", [2, 3]),
    "every ten days, from the first": ("2024-01-01", "D", "10D", [10, 10, 10]),
    "quarters that begin in December": ("2024-02-20", "D", "QS-DEC", [10, 92]),
}


@pytest.mark.parametrize("case", STEPS)
def test_the_step_of_the_times_tells_how_many_are_to_come(case):
    start, step, word, expected = STEPS[case]
    count = {"6h": 12, "hours of a day": 50, "every ten days, from the first": 21}.get(
        case, 5 if "months" in case else 15
    )
    time = pd.date_range(start, periods=count, freq=step)
    whole = xr.Dataset({"t": ("time", np.arange(count))}, {"time": time})
    for cut in (count, count // 2):
        store = zellige.MemoryStore()
        write(whole.isel(time=slice(cut)), store, chunks={"time": word})
        if cut < count:
            write(whole.isel(time=slice(cut, None)), store, append_dim="time")
        assert stored_edges(zellige.open_group(store)) == expected


def test_a_step_that_the_times_do_not_tell_can_be_given():
    for day, rule, expected in (
        ("2024-02-01", ("month", "6h"), 29 * 4),
        ("2024-02-01", ("year", "MS"), 11),
        ("2024-02-01T06:00", "day", 18),
        ("2024-02-01T06:30", "hour", 30),
    ):
        ds = xr.Dataset({"t": ("time", [1.0])}, {"time": pd.DatetimeIndex([day])})
        root = write(ds, {}, chunks={"time": rule})
        assert stored_edges(root) == [expected]
        assert root.attrs["_zellige_chunks"] == {"time": list(rule) if isinstance(rule, tuple) else rule}


CALENDARS = {"noleap": [31, 28], "360_day": [30, 30], "all_leap": [31, 29], "standard": [31, 29]}


@pytest.mark.parametrize("calendar", CALENDARS)
def test_months_of_other_calendars_fill(calendar, tmp_path):
    time = xr.date_range("2000-01-01", periods=45, calendar=calendar, use_cftime=True)
    whole = xr.Dataset({"t": ("time", np.arange(45.0))}, {"time": time})
    for start in range(0, 45, 9):
        root = write(whole.isel(time=slice(start, start + 9)), tmp_path, append_dim="time", chunks={"time": "month"})
    assert stored_edges(root) == CALENDARS[calendar]
    xr.testing.assert_identical(opened(tmp_path, decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)), whole)


def test_irregular_times_get_no_room_for_what_nobody_can_know():
    time = pd.DatetimeIndex(["2021-01-01T00:00", "2021-01-01T07:00", "2021-01-20T11:30", "2021-02-03T00:10"])
    root = write(xr.Dataset({"t": ("time", np.arange(4))}, {"time": time}), {}, chunks={"time": "month"})
    assert stored_edges(root) == [3, 1]


def test_a_dataset_without_rows_keeps_its_rule_for_the_first_append(tmp_path):
    empty = daily("2021-01-01", "2021-01-02").isel(time=slice(0, 0))
    write(empty, tmp_path, chunks={"time": "month"})
    assert opened(tmp_path).sizes["time"] == 0
    write(daily("2021-01-15", "2021-02-10"), tmp_path, append_dim="time")
    assert stored_edges(zellige.open_group(tmp_path)) == [17, 28]
    xr.testing.assert_identical(opened(tmp_path), daily("2021-01-15", "2021-02-10"))
    assert "_zellige_chunks" not in opened(tmp_path).attrs


@pytest.mark.parametrize("index", [np.arange(7), pd.date_range("2021-01-01", periods=7)], ids=["numbers", "days"])
def test_a_dimension_without_elements_is_appended_to(index):
    whole = xr.Dataset({"t": (("n", "x"), np.arange(14.0).reshape(7, 2)), "k": ("n", np.arange(7))}, {"n": index})
    store = zellige.MemoryStore()
    write(whole.isel(n=slice(0)), store)
    for part in (slice(0, 3), slice(3, 3), slice(3, 7)):
        write(whole.isel(n=part), store, append_dim="n")
    xr.testing.assert_identical(opened(store), whole)


def test_edges_may_reach_beyond_the_end(tmp_path):
    root = write(daily(end="2021-02-10"), tmp_path, chunks={"time": [31, 28, 31]})
    assert stored_edges(root) == [31, 28, 31]
    root = write(daily("2021-02-11", "2021-03-31"), tmp_path, append_dim="time")
    assert stored_edges(root) == [31, 28, 31]
    assert root["t"].nchunks_initialized == 3
    xr.testing.assert_identical(opened(root), daily(end="2021-03-31"))
    with pytest.raises(ValueError, match=r"edges of 'time' sum to 30.*its length is 31"):
        write(daily(end="2021-01-31"), {}, chunks={"time": [10, 20]})


def test_values_that_a_kept_rule_does_not_fit_are_appended_with_a_warning(tmp_path):
    write(daily("2021-02-01", "2021-02-20"), tmp_path, chunks={"time": "month"})
    with pytest.warns(zellige.errors.ZelligeWarning, match=r"times that ascend.*written by 'month'"):
        root = write(daily("2021-01-01", "2021-01-31"), tmp_path, append_dim="time")
    assert stored_edges(root) == [28, 23]  # what has room is filled first
    with pytest.raises(ValueError, match="needs times that ascend"):
        write(daily("2020-01-01", "2020-01-31"), tmp_path, append_dim="time", chunks={"time": "month"})
    expected = xr.concat([daily("2021-02-01", "2021-02-20"), daily("2021-01-01", "2021-01-31")], "time")
    xr.testing.assert_identical(opened(tmp_path), expected)


def test_a_reader_from_before_reads_on_while_a_month_fills(tmp_path):
    write(daily(end="2021-01-20"), tmp_path, chunks={"time": "month"})
    before = opened(tmp_path)
    write(daily("2021-01-21", "2021-02-03"), tmp_path, append_dim="time")
    xr.testing.assert_identical(before.load(), daily(end="2021-01-20"))


def test_putting_blocks_together_takes_memory_for_few_chunks(tmp_path):
    """One chunk that is put together, what encoding it needs, and a block: not all blocks of it beside it."""
    years, block, width = 6, 30, 3000
    time = pd.date_range("2001-01-01", periods=360 * years)
    source = da.random.default_rng(3).normal(size=(len(time), width), chunks=(block, width))
    chunk = 360 * width * 8
    ds = xr.Dataset({"t": (("time", "x"), source)}, {"time": time})
    with warnings.catch_warnings(), dask.config.set(scheduler="synchronous"):
        warnings.simplefilter("ignore", zellige.dask.AlignmentWarning)
        tracemalloc.start()
        try:
            root = write(ds, tmp_path, chunks={"time": [360] * years})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert stored_edges(root) == [360] * years
    assert peak < 4 * chunk


def test_two_times_of_one_month_are_as_far_apart_as_their_step():
    ds = xr.Dataset(coords={"time": pd.to_datetime(["2024-01-01", "2024-01-31"])})
    assert edges_of(ds, "month") == [2]
    assert edges_of(ds, "day") == [1, 1]
    assert edges_of(ds, "year") == [13]  # every 30 days


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
@pytest.mark.parametrize("blocks", [False, True], ids=["numpy", "dask"])
@pytest.mark.parametrize("batch", [1, 4, 5, 7, 13])
def test_a_size_that_is_repeated_continues_the_regular_grid(batch, blocks, zarr_format, tmp_path):
    whole = daily(end="2021-01-28")
    with warnings.catch_warnings():
        warnings.simplefilter("error", zellige.errors.ZelligeWarning)
        warnings.simplefilter("ignore", zellige.dask.AlignmentWarning)  # blocks that end within stored chunks
        for start in range(0, 28, batch):
            part = whole.isel(time=slice(start, start + batch))
            part = part.chunk(time=5) if blocks else part
            write(part, tmp_path, append_dim="time", chunks={"time": 5}, zarr_format=zarr_format)
    for name in ("t", "mean"):
        assert zellige.open_array(tmp_path, path=name).chunks[0] == 5
    xr.testing.assert_identical(opened(tmp_path), whole)


def test_another_size_is_that_of_the_chunks_after_the_last_stored_one(tmp_path):
    whole = daily(end="2021-01-28")
    for rows, size in ((slice(7), 5), (slice(7, 16), 4), (slice(16, 17), 4), (slice(17, 28), 5)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", zellige.errors.ZelligeWarning)
            write(whole.isel(time=rows), tmp_path, append_dim="time", chunks={"time": size})
        assert any("room for 3 more" in str(one.message) for one in told) is (rows.start == 7)
    # Three of the second write fill the chunk that is there, and its last chunk is as long as what is left.
    assert stored_edges(zellige.open_group(tmp_path)) == [5, 5, 4, 2, 1, 5, 5, 1]
    xr.testing.assert_identical(opened(tmp_path), whole)


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


# -- arrays that disagree -------------------------------------------------------------------------


def torn(place) -> xr.Dataset:
    """A dataset of which another program has made one variable longer, and was stopped; what all of it had before."""
    ds = daily(end="2021-01-20")
    write(ds, place)
    zellige.open_array(place, path="t", mode="r+").append(np.full((5, 3), 7.0))
    zellige.consolidate_metadata(place)
    return ds


def test_a_repair_that_would_leave_nothing_says_so(tmp_path):
    write(daily(end="2021-01-20"), tmp_path)
    zellige.open_array(tmp_path, path="t", mode="r+").resize((0, 3))
    (found,) = (found for found in zellige.validate(tmp_path).findings if found.kind == "dataset")
    assert "removes all that the others have: mean 20 -> 0, time 20 -> 0" in found.message


@pytest.mark.parametrize("consolidated", [None, False])
def test_arrays_that_disagree_are_refused_with_names_lengths_and_remedy(consolidated, tmp_path):
    ds = torn(tmp_path)
    words = (
        r"dimension 'time' \(20: mean, time; 25: t\).*zellige\.repair\(…, shrink=True\).*t 25 -> 20.*drop_variables="
    )
    with pytest.raises(zellige.errors.DatasetError, match=words) as caught:
        opened(tmp_path, consolidated=consolidated)
    assert (caught.value.dimension, caught.value.lengths) == ("time", {20: ["mean", "time"], 25: ["t"]})
    xr.testing.assert_identical(opened(tmp_path, consolidated=consolidated, drop_variables="t"), ds.drop_vars("t"))


@pytest.mark.parametrize(
    "options",
    [{"append_dim": "time"}, {"mode": "a"}, {"mode": "r+"}, {"region": {"time": slice(0, 5)}}],
    ids=str,
)
def test_nothing_is_written_to_a_dataset_whose_arrays_disagree(options, tmp_path):
    ds = torn(tmp_path)
    before = contents(zellige.LocalStore(tmp_path))
    part = ds.isel(time=slice(5)).drop_vars(["time", "x"]) if "region" in options else ds
    with pytest.raises(zellige.errors.DatasetError, match="disagree about the length"):
        write(part, tmp_path, **options)
    assert contents(zellige.LocalStore(tmp_path)) == before


def test_validate_reports_arrays_that_disagree_and_repair_shrinks_them_if_asked(tmp_path):
    ds = torn(tmp_path)
    (found,) = zellige.validate(tmp_path).findings
    assert (found.kind, found.level) == ("dataset", "error")
    assert "20: mean, time; 25: t" in found.message
    assert "removes what the others have beyond it: t 25 -> 20" in found.message
    assert "t 25 -> 20" in str(zellige.repair(tmp_path, shrink=True))
    assert zellige.repair(tmp_path, dry_run=False).left == (found,)
    assert [done for done, _ in zellige.repair(tmp_path, shrink=True).actions] == ["mended"]
    assert zellige.open_array(tmp_path, path="t").shape == (25, 3)
    zellige.repair(tmp_path, shrink=True, dry_run=False)
    assert zellige.validate(tmp_path).ok
    xr.testing.assert_identical(opened(tmp_path), ds)


def test_repair_leaves_consolidated_metadata_that_hides_arrays_that_disagree(tmp_path):
    """By new consolidated metadata the dataset would not open any more."""
    ds = daily(end="2021-01-20")
    write(ds, tmp_path)
    zellige.open_array(tmp_path, path="t", mode="r+").append(np.full((5, 3), 7.0))
    xr.testing.assert_identical(opened(tmp_path), ds)
    assert not zellige.validate(tmp_path).ok
    zellige.repair(tmp_path, dry_run=False)
    xr.testing.assert_identical(opened(tmp_path), ds)
    zellige.repair(tmp_path, dry_run=False, shrink=True)
    assert zellige.validate(tmp_path).ok
    xr.testing.assert_identical(opened(tmp_path), ds)


# -- documents that contradict consolidated metadata ----------------------------------------------


def old_documents_come_back(place, zarr_format) -> None:
    """A backup had the documents of a shorter dataset; all rows are still there for readers."""
    name = "zarr.json" if zarr_format == 3 else ".zarray"
    kept = {array: (place / array / name).read_bytes() for array in ("t", "mean", "time")}
    write(daily("2021-01-21", "2021-01-30"), place, append_dim="time")
    for array, raw in kept.items():
        (place / array / name).write_bytes(raw)


def every_array_is_resized_alone(place, zarr_format) -> None:
    for array in ("t", "mean", "time"):
        found = zellige.open_array(place, path=array, mode="r+")
        found.resize((12, *found.shape[1:]))


def another_program_resizes(place, zarr_format) -> None:
    for array in ("t", "mean", "time"):
        found = zarr.open_array(place / array, mode="r+")
        found.resize((12, *found.shape[1:]))


CONTRADICTIONS = {  # with the lengths by the documents and by the consolidated metadata
    old_documents_come_back: (20, 30),
    every_array_is_resized_alone: (12, 20),
    another_program_resizes: (12, 20),
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("how", ["append", "dask", "a", "new variable", "new in a region", "r+", "region", "tree"])
@pytest.mark.parametrize("happens", CONTRADICTIONS)
def test_nothing_is_written_by_documents_that_contradict_consolidated_metadata(happens, how, zarr_format, tmp_path):
    write(daily(end="2021-01-20"), tmp_path, zarr_format=zarr_format)
    happens(tmp_path, zarr_format)
    stored, held = CONTRADICTIONS[happens]
    before = contents(zellige.LocalStore(tmp_path))
    ds, more = daily().isel(time=slice(stored)), daily("2022-01-01", "2022-01-04")
    new = ds[["t"]].rename(t="v").drop_vars(["time", "x"])
    acts: dict[str, tuple[Any, dict[str, Any]]] = {
        "append": (more, {"append_dim": "time"}),
        "dask": (more.chunk({"time": 2}), {"append_dim": "time"}),
        "a": (ds, {"mode": "a"}),
        "new variable": (new, {"mode": "a"}),
        "new in a region": (new.isel(time=slice(4)), {"mode": "a", "region": {"time": slice(0, 4)}}),
        "r+": (ds, {"mode": "r+"}),
        "region": (ds[["t"]].isel(time=slice(4)).drop_vars(["time", "x"]), {"region": {"time": slice(0, 4)}}),
        "tree": (xr.DataTree(more), {"append_dim": "time"}),
    }
    data, options = acts[how]
    words = rf"'t': shape \[{stored}, 3\] in its own metadata, \[{held}, 3\] in the consolidated.*consolidate_metadata"
    with pytest.raises(zellige.errors.StaleMetadataError, match=words):
        write(data, tmp_path, **options)
    assert contents(zellige.LocalStore(tmp_path)) == before
    zellige.consolidate_metadata(tmp_path)
    write(more, tmp_path, append_dim="time")
    for consolidated in (None, False):
        found = opened(tmp_path, consolidated=consolidated)
        xr.testing.assert_identical(found, xr.concat([ds, more], "time", data_vars="minimal"))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("happens", CONTRADICTIONS)
def test_repair_brings_such_documents_and_consolidated_metadata_together(happens, zarr_format, tmp_path):
    """Also where an array ends within its only chunk, as coordinates do: then the others tell."""
    write(daily(end="2021-01-20"), tmp_path, zarr_format=zarr_format, chunks={"time": 4})
    happens(tmp_path, zarr_format)
    rows = 30 if happens is old_documents_come_back else 12
    check_repaired(tmp_path, daily().isel(time=slice(rows)))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("old", ["t", "time"])
def test_repair_brings_back_one_document_that_is_older_than_the_others(old, zarr_format, tmp_path):
    write(daily(end="2021-01-20"), tmp_path, zarr_format=zarr_format, chunks={"time": 4})
    document = tmp_path / old / ("zarr.json" if zarr_format == 3 else ".zarray")
    kept = document.read_bytes()
    write(daily("2021-01-21", "2021-01-30"), tmp_path, append_dim="time")
    document.write_bytes(kept)
    check_repaired(tmp_path, daily(end="2021-01-30"))


def check_repaired(place, expected) -> None:
    """After a repair there is nothing left to mend, no chunk was put aside, and all readers see the dataset."""
    before = {key for key in contents(zellige.LocalStore(place)) if not key.endswith(("zarr.json", ".zarray"))}
    assert zellige.repair(place, dry_run=False).left == ()
    assert before <= contents(zellige.LocalStore(place)).keys()
    assert zellige.validate(place, deep=True).ok
    for consolidated in (None, False):
        xr.testing.assert_identical(opened(place, consolidated=consolidated), expected)


def test_a_dataset_is_written_anew_whatever_its_documents_say(tmp_path):
    write(daily(end="2021-01-20"), tmp_path)
    every_array_is_resized_alone(tmp_path, 3)
    write(daily(end="2021-01-04"), tmp_path, mode="w")
    xr.testing.assert_identical(opened(tmp_path), daily(end="2021-01-04"))


@pytest.mark.parametrize("blocks", [False, True], ids=["numpy", "dask"])
@pytest.mark.parametrize("group", ["", "a/b"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_documents_that_are_ahead_of_consolidated_metadata_are_appended_to_with_a_warning(
    zarr_format, group, blocks, tmp_path
):
    """As another program leaves them that appends and does not consolidate: readers have not seen its rows."""
    place = {"group": group or None}
    write(daily(end="2021-01-20"), tmp_path, zarr_format=zarr_format, **place)
    for name in ("t", "mean", "time"):
        array = zarr.open_array(tmp_path / group / name, mode="r+")
        array.append(array[-5:] + 5)
    assert opened(tmp_path, **place).sizes["time"] == 20
    more = daily("2021-01-26", "2021-01-30")
    more = more.chunk() if blocks else more
    words = rf"'{group and group + '/'}t': 25 along 'time' in its own metadata, 20 in the consolidated metadata"
    before = contents(zellige.LocalStore(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error", zellige.errors.StaleMetadataWarning)
        with pytest.raises(zellige.errors.StaleMetadataWarning, match=rf"{words}.*zellige\.consolidate_metadata"):
            write(more, tmp_path, append_dim="time", **place)
    assert contents(zellige.LocalStore(tmp_path)) == before
    with pytest.warns(zellige.errors.StaleMetadataWarning, match=words):
        write(more, tmp_path, append_dim="time", **place)
    for consolidated in (None, False):
        assert opened(tmp_path, consolidated=consolidated, **place).sizes["time"] == 30
    assert zellige.validate(tmp_path).ok


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_that_were_consolidated_again_are_appended_to_without_a_warning(zarr_format, tmp_path):
    ds = daily(end="2021-01-20")
    write(ds.isel(time=slice(15)), tmp_path, zarr_format=zarr_format)
    ds.isel(time=slice(15, None)).to_zarr(tmp_path, append_dim="time", consolidated=False)
    zellige.consolidate_metadata(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", zellige.errors.StaleMetadataWarning)
        write(daily("2021-01-21", "2021-01-25"), tmp_path, append_dim="time")
        write(daily("2021-01-26", "2021-01-30"), tmp_path, append_dim="time", consolidated=False)
        write(daily("2021-01-31", "2021-02-02"), tmp_path, append_dim="time")
    xr.testing.assert_identical(opened(tmp_path), daily(end="2021-02-02"))


def test_levels_of_a_pyramid_may_have_different_lengths():
    root = zellige.create_group()
    for level, size in enumerate((64, 32, 16)):
        root.create_array(str(level), shape=(size, size), dtype="uint8", dimension_names=["y", "x"])
    report = zellige.validate(root.store)
    assert report.ok
    assert {found.kind for found in report.findings} == {"lengths"}
    assert zellige.repair(root.store, shrink=True, dry_run=False).actions == ()


# -- documents that are missing -------------------------------------------------------------------


@pytest.mark.parametrize("group", ["", "a/b"])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("how", ["append", "append others", "a", "new", "r+", "region", "tree"])
def test_a_document_that_only_consolidated_metadata_has_is_named_with_the_remedy(how, zarr_format, group, tmp_path):
    ds, more = daily(end="2021-01-20"), daily("2021-01-21", "2021-01-25")
    place = {"group": group or None}
    write(ds, tmp_path, zarr_format=zarr_format, **place)
    document = tmp_path / group / "t" / ("zarr.json" if zarr_format == 3 else ".zarray")
    document.unlink()
    before = contents(zellige.LocalStore(tmp_path))
    xr.testing.assert_identical(opened(tmp_path, **place), ds)
    acts: dict[str, tuple[Any, dict[str, Any]]] = {
        "append": (more, {"append_dim": "time"}),
        "append others": (more.drop_vars("t"), {"append_dim": "time"}),
        "a": (ds + 1, {"mode": "a"}),
        "new": (ds[["mean"]].rename(mean="new"), {"mode": "a"}),
        "r+": (ds + 1, {"mode": "r+"}),
        "region": (ds[["t"]].isel(time=slice(4)).drop_vars(["time", "x"]), {"region": {"time": slice(0, 4)}}),
        "tree": (xr.DataTree(more), {"append_dim": "time"}),
    }
    data, options = acts[how]
    name = str(document.relative_to(tmp_path))
    with pytest.raises(zellige.errors.StaleMetadataError, match=rf"'{name}'.* missing.*zellige\.repair") as caught:
        write(data, tmp_path, **options, **place)
    assert len(caught.value.differences) == 1
    assert contents(zellige.LocalStore(tmp_path)) == before
    assert zellige.repair(tmp_path, dry_run=False).left == ()
    write(more, tmp_path, append_dim="time", **place)
    for consolidated in (None, False):
        xr.testing.assert_identical(opened(tmp_path, consolidated=consolidated, **place), daily(end="2021-01-25"))


def test_a_missing_document_is_no_obstacle_to_other_values_and_repaired_to_replace_all(tmp_path):
    ds = daily(end="2021-01-20")
    write(ds, tmp_path)
    (tmp_path / "t" / "zarr.json").unlink()
    write(ds[["mean"]] + 1, tmp_path, mode="r+")
    assert zellige.load(tmp_path, path="mean").tolist() == (ds["mean"] + 1).values.tolist()
    with pytest.raises(zellige.errors.NotANodeError, match=r"lost array.*zellige\.repair"):
        write(ds, tmp_path, mode="w")
    assert zellige.repair(tmp_path, dry_run=False).left == ()
    write(ds, tmp_path, mode="w")
    xr.testing.assert_identical(opened(tmp_path), ds)


def test_an_array_that_was_removed_whole_is_no_obstacle(tmp_path):
    ds = daily(end="2021-01-20")
    write(ds, tmp_path)
    zellige.LocalStore(tmp_path).delete_prefix("mean/")
    write(daily("2021-01-21", "2021-01-25").drop_vars("mean"), tmp_path, append_dim="time")
    xr.testing.assert_identical(opened(tmp_path, consolidated=False), daily(end="2021-01-25").drop_vars("mean"))


def test_chunks_of_an_array_whose_document_nothing_knows_are_not_taken_for_those_of_another_writer(tmp_path):
    ds = daily(end="2021-01-20")
    write(ds, tmp_path, consolidated=False)
    (tmp_path / "t" / "zarr.json").unlink()
    before = contents(zellige.LocalStore(tmp_path))
    with pytest.raises(zellige.errors.NotANodeError, match=r"'t/c/0/0'.* looks like a chunk of a lost array"):
        write(ds, tmp_path, mode="a")
    assert contents(zellige.LocalStore(tmp_path)) == before


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("group", ["", "a/b"])
@pytest.mark.parametrize("options", [{"append_dim": "time"}, {"mode": "a"}, {}], ids=["append", "a", "w-"])
def test_a_group_whose_document_is_missing_is_named_with_the_remedy(options, group, zarr_format, tmp_path):
    ds, more = daily(end="2021-01-20"), daily("2021-01-21", "2021-01-25")
    write(ds, tmp_path, group=group or None, zarr_format=zarr_format)
    name = "zarr.json" if zarr_format == 3 else ".zgroup"
    (tmp_path / group / name).unlink()
    before = contents(zellige.LocalStore(tmp_path))
    restored = bool(group) or zarr_format == 2  # from consolidated metadata that is not in the document itself
    remedy = r"zellige\.repair" if restored else r"zellige\.open_group\(…, mode='a'\).*zellige\.consolidate_metadata"
    words = rf"array at '/{group and group + '/'}(mean|t|time|x)'.* no group at '/{group}'.*{name}.*{remedy}"
    with pytest.raises(zellige.errors.ContainsArrayError, match=words) as caught:
        write(more, tmp_path, group=group or None, zarr_format=zarr_format, **options)
    assert "overwrite" not in str(caught.value)
    assert contents(zellige.LocalStore(tmp_path)) == before
    if restored:
        assert zellige.repair(tmp_path, dry_run=False).left == ()
    else:
        zellige.open_group(tmp_path, mode="a")
        zellige.consolidate_metadata(tmp_path)
    write(more, tmp_path, group=group or None, append_dim="time")
    xr.testing.assert_equal(opened(tmp_path, group=group or None), daily(end="2021-01-25"))


def test_a_variable_with_the_name_of_a_group_is_told_to_take_another_one(tmp_path):
    write(daily(end="2021-01-20"), tmp_path, group="sub")
    write(xr.Dataset({"v": 1}), tmp_path, mode="a")
    with pytest.raises(zellige.errors.ContainsGroupError, match=r"'sub'.* another name") as caught:
        write(xr.Dataset({"sub": 1}), tmp_path, mode="a")
    assert "overwrite" not in str(caught.value)


# -- what zarr-python consolidates ----------------------------------------------------------------


def with_scalar(first: int = 0) -> xr.Dataset:
    """Five rows, and a variable without axes, as climate data has for its grid mapping."""
    rows = np.arange(first, first + 5)
    return xr.Dataset({"t": ("time", rows * 1.0), "crs": ((), 0)}, {"time": rows})


SCALAR_WRITES: dict[str, Any] = {
    "append": lambda place: write(with_scalar(5), place, append_dim="time"),
    "append without the scalar": lambda place: write(with_scalar(5).drop_vars("crs"), place, append_dim="time"),
    "a": lambda place: write(with_scalar() + 1, place, mode="a"),
    "new": lambda place: write(xr.Dataset({"new": ((), 7)}), place, mode="a"),
    "r+": lambda place: write(with_scalar() + 1, place, mode="r+"),
    "region": lambda place: write(with_scalar()[["t"]].isel(time=slice(2)) + 1, place, region={"time": slice(2)}),
    "nothing": lambda place: None,
}


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("how", SCALAR_WRITES)
def test_a_variable_without_axes_that_another_library_consolidated_is_no_obstacle(
    how, zarr_format, consolidated, tmp_path
):
    """zarr-python spells an array's own document and its entry in the consolidated metadata differently."""
    place = tmp_path / "x.zarr"
    with_scalar().to_zarr(place, zarr_format=zarr_format, consolidated=consolidated)
    SCALAR_WRITES[how](place)
    expected = {
        "append": xr.concat([with_scalar(), with_scalar(5)], "time", data_vars="minimal"),
        "new": with_scalar().assign(new=7),
        "a": with_scalar() + 1,
        "r+": with_scalar() + 1,
        "region": with_scalar().assign(t=("time", [1.0, 2.0, 2.0, 3.0, 4.0])),
    }
    found = expected.get(how.split()[0], with_scalar())
    assert zellige.validate(place, deep=True).ok
    assert zellige.repair(place, dry_run=False).actions == ()
    assert zellige.vacuum(place).actions == ()
    for _ in range(2):
        xr.testing.assert_equal(opened(place), found)
        xr.testing.assert_equal(xr.open_zarr(place), found)
        zellige.consolidate_metadata(place)
        zellige.open_consolidated(place, check=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_without_axes_that_had_some_before_is_refused(zarr_format, tmp_path):
    write(with_scalar(), tmp_path, zarr_format=zarr_format)
    zellige.create_array(tmp_path, name="t", data=1.0, zarr_format=zarr_format, overwrite=True)
    with pytest.raises(zellige.errors.StaleMetadataError, match=r"'t': shape \[\] in its own metadata, \[5\]"):
        write(with_scalar(5).drop_vars("t"), tmp_path, append_dim="time")


# -- attributes that are not finite ---------------------------------------------------------------


def unbounded(start: str) -> xr.Dataset:
    """Five days whose attributes and encodings are NaN and infinite."""
    days = np.arange(15, dtype="f8").reshape(5, 3)
    days[0, 1] = np.nan
    ds = xr.Dataset(
        {
            "t": (("time", "x"), days.astype("f4"), {"valid_max": np.inf, "valid_range": [-np.inf, np.float32("inf")]}),
            "p": (("time", "x"), days, {"missing_value": np.nan, "units": "NaN"}),
            "q": (("time", "x"), days, {"limits": np.array([np.nan, 1.0])}),
            "n": ("time", np.arange(5)),
        },
        {"time": pd.date_range(start, periods=5), "x": np.arange(3)},
        {"bound": -np.inf},
    )
    ds["t"].encoding = {"missing_value": np.float32("nan")}
    ds["q"].encoding = {"_FillValue": np.nan, "missing_value": np.nan}
    return ds


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_attributes_that_are_not_finite_survive_write_append_rewrite_and_netcdf(zarr_format, tmp_path):
    place = tmp_path / "a.zarr"
    unbounded("2021-01-01").zellige.write(place, zarr_format=zarr_format)
    unbounded("2021-01-06").zellige.write(place, append_dim="time")
    whole = xr.concat([unbounded("2021-01-01"), unbounded("2021-01-06")], "time")
    expected = whole.copy()
    expected["t"].attrs["valid_range"] = [-np.inf, np.inf]
    expected["q"].attrs["limits"] = [np.nan, 1.0]
    del expected["p"].attrs["missing_value"]  # decoded, it is part of the encoding

    xr.testing.assert_identical(opened(place), expected)
    xr.testing.assert_identical(xr.open_dataset(place, engine="zarr"), expected)
    theirs = zarr.open_group(place, mode="r")
    assert theirs.attrs["bound"] == -np.inf
    assert theirs["t"].attrs["valid_max"] == np.inf
    assert theirs["t"].attrs["valid_range"] == [-np.inf, np.inf]
    assert theirs["p"].attrs["units"] == "NaN"
    for name in ("t", "p", "q"):
        assert np.isnan(theirs[name].attrs["missing_value"])
        assert np.isnan(opened(place)[name].encoding["missing_value"])

    # Again, from what was read: to another place, over the same one, by xarray, and as netCDF.
    opened(place).zellige.write(tmp_path / "b.zarr", zarr_format=zarr_format)
    opened(place).load().zellige.write(place, mode="w", zarr_format=zarr_format)
    opened(place).to_zarr(tmp_path / "c.zarr", zarr_format=zarr_format)
    for again in (place, tmp_path / "b.zarr", tmp_path / "c.zarr"):
        opened(again).isel(time=slice(3)).zellige.write(again, append_dim="time")
        xr.testing.assert_identical(opened(again), xr.concat([expected, expected.isel(time=slice(3))], "time"))
        opened(again).isel(time=slice(10)).to_netcdf(tmp_path / "ours.nc")
        whole.to_netcdf(tmp_path / "theirs.nc")
        with xr.open_dataset(tmp_path / "ours.nc") as ours, xr.open_dataset(tmp_path / "theirs.nc") as direct:
            xr.testing.assert_identical(ours.load(), direct.load())


def test_a_missing_value_that_differs_from_the_stored_one_is_refused():
    stored = write(unbounded("2021-01-01"), {})
    before = contents(stored.store)
    other = unbounded("2021-01-06")
    other["p"].attrs["missing_value"] = -1.0
    with pytest.raises(ValueError, match="missing_value"):
        write(other, stored.store, append_dim="time")
    assert contents(stored.store) == before


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


# -- units of times that are appended one by one --------------------------------------------------


def at(time, **encoding) -> xr.Dataset:
    """A value for each of some times."""
    ds = xr.Dataset({"t": ("time", np.arange(len(time), dtype="f8"))}, {"time": time})
    ds.time.encoding = encoding
    return ds


FIRST_AND_LATER = {
    "the step of a rule": (("month", "6h"), "6h", "hours since"),
    "a step of days": (("year", "D"), "D", "days since"),
    "a step of months": (("year", "MS"), "MS", "days since"),
    "half hours": (("day", "90min"), "90min", "minutes since"),
    "a rule without a step": ("month", "6h", "seconds since"),
    "hourly values": (None, "h", "seconds since"),
    "daily values": (None, "D", "seconds since"),
}


@pytest.mark.parametrize("calendar", ["standard", "noleap"])
@pytest.mark.parametrize("case", FIRST_AND_LATER)
def test_units_of_the_first_time_hold_those_that_follow(case, calendar):
    rule, frequency, units = FIRST_AND_LATER[case]
    times = xr.date_range("2024-01-01", periods=9, freq=frequency, calendar=calendar, use_cftime=calendar != "standard")
    store = zellige.MemoryStore()
    chunks = None if rule is None else {"time": rule}
    write(at(times[:1]), store, append_dim="time", chunks=chunks)
    for k in range(1, 9):
        write(at(times[k : k + 1]), store, append_dim="time")
    assert opened(store).indexes["time"].equals(times)
    assert zellige.open_array(store, path="time").attrs["units"].startswith(units)
    assert zellige.open_array(store, path="time").dtype == np.dtype("i8")


@pytest.mark.parametrize("rule", [None, ("month", "6h"), "month"])
def test_a_dataset_without_rows_takes_any_times(rule):
    times = pd.date_range("2024-01-01", periods=9, freq="6h")
    store = zellige.MemoryStore()
    write(at(times[:0]), store, chunks=None if rule is None else {"time": rule})
    write(at(times), store, append_dim="time")
    assert opened(store).indexes["time"].equals(times)


def test_units_of_many_times_or_of_the_user_stay():
    days = pd.date_range("2024-01-01", periods=3)
    for ds in (at(days), at(days[:1], units="days since 2000-01-01"), at(days[:1], dtype="int32")):
        store = zellige.MemoryStore()
        write(ds, store)
        assert zellige.open_array(store, path="time").attrs["units"].startswith("days since")
    with pytest.raises(ValueError, match=r"write the dataset anew with encoding=\{'time': \{'units': 'hours since"):
        write(at(pd.date_range("2024-01-02T01", periods=2, freq="h")), store, append_dim="time")
    store = zellige.MemoryStore()
    write(at(days), store, chunks={"time": ("month", "6h")})  # finer than what is there
    assert zellige.open_array(store, path="time").attrs["units"].startswith("hours since")


def test_a_kept_rule_whose_step_was_another_one_warns_of_nothing():
    months = pd.date_range("2024-01-01", periods=15, freq="MS")
    declared = {"year": (366,), ("year", "MS"): (12, 12)}
    for rule, sizes in declared.items():
        store = zellige.MemoryStore()
        write(at(months[:1]), store, append_dim="time", chunks={"time": rule})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for k in range(1, 15):
                write(at(months[k : k + 1]), store, append_dim="time")
        assert zellige.open_array(store, path="t").grid.dimensions[0].chunks == sizes
        assert opened(store).indexes["time"].equals(months)


# -- times without rows ---------------------------------------------------------------------------


def noleap(days: int) -> xr.Dataset:
    """Days of a calendar that numpy does not have."""
    time = xr.date_range("2020-01-01", periods=days, calendar="noleap", use_cftime=True)
    return xr.Dataset({"t": ("time", np.arange(float(days)))}, {"time": time})


UNITS = {"units": "hours since 2000-01-01", "calendar": "noleap"}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("way", ["encoding=", "its own encoding", "opened"])
def test_a_dataset_of_another_calendar_begins_without_rows(way, zarr_format):
    empty, store = noleap(40).isel(time=slice(0)), zellige.MemoryStore()
    if way == "its own encoding":
        empty.time.encoding = dict(UNITS)
    if way == "opened":
        write(noleap(40), other := zellige.MemoryStore(), encoding={"time": UNITS})
        empty = opened(other).isel(time=slice(0))
    options = {"encoding": {"time": UNITS}} if way == "encoding=" else {}
    chunks = {"time": "month"} if zarr_format == 3 else None
    write(empty, store, append_dim="time", chunks=chunks, zarr_format=zarr_format, **options)
    stored = zellige.open_array(store, path="time")
    assert stored.dtype == np.int64
    assert stored.attrs["calendar"] == "noleap"
    assert stored.attrs["units"].startswith("hours since 2000-01-01")
    assert opened(store).sizes["time"] == 0
    write(empty.drop_encoding(), store, append_dim="time")  # nothing more, which changes nothing
    write(noleap(40), store, append_dim="time")
    if zarr_format == 3:
        assert zellige.open_array(store, path="t").write_chunk_sizes == ((31, 9),)
    xr.testing.assert_equal(opened(store), noleap(40))


@pytest.mark.parametrize("encoding", [None, {"units": UNITS["units"]}, {"calendar": "noleap"}], ids=str)
def test_times_without_rows_do_not_tell_their_calendar(encoding):
    store = zellige.MemoryStore()
    empty = noleap(3).isel(time=slice(0))
    with pytest.raises(ValueError, match=r"variable 'time' has no rows, .*give both, such as encoding=\{'time': "):
        write(empty, store, encoding=None if encoding is None else {"time": encoding})
    for wrong in ({**UNITS, "calendar": "lunar"}, {**UNITS, "units": "hours since never"}):
        with pytest.raises(ValueError, match=r"variable 'time' cannot be encoded with .*; choose units"):
            write(empty, store, encoding={"time": wrong})
    assert contents(store) == {}


def test_times_of_another_calendar_do_not_join_plain_numbers():
    store = zellige.MemoryStore()
    write(xr.Dataset({"t": ("time", [1.0]), "time": ("time", [0.0])}), store)
    with pytest.raises(ValueError, match=r"variable 'time' cannot be encoded as the stored one: units would be"):
        write(noleap(3), store, append_dim="time")


# -- values of another kind -----------------------------------------------------------------------

TEXT = [np.array(["a", "b"]), np.array(["a", None], object), np.array([b"a", b"b"])]
NUMBERS = [np.array([1, 2]), np.array([1.5, 2.0]), np.array([True, False]), np.array([1, 2], object)]


@pytest.mark.parametrize("how", [{"append_dim": "x"}, {"mode": "r+"}], ids=str)
@pytest.mark.parametrize("text", TEXT, ids=lambda values: values.dtype.name)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda values: values.dtype.name)
def test_text_and_numbers_do_not_replace_each_other(text, number, how):
    for first, second, found in ((number, text, "text"), (text, number, "no text")):
        if first.dtype != object or first is text:
            store = zellige.MemoryStore()
            write(xr.Dataset({"v": ("x", first)}), store, casting="unsafe")  # one of them has missing text
            before = contents(store)
            with pytest.raises(TypeError, match=rf"variable 'v' holds {found} \(.*\), the stored one is of type"):
                write(xr.Dataset({"v": ("x", second)}), store, **how)
            assert contents(store) == before


def test_values_of_another_unit_are_refused_with_what_to_do_about_values():
    store = zellige.MemoryStore()
    write(xr.Dataset({"t": ("time", [280.0], {"units": "K"})}), store)
    with pytest.raises(ValueError, match=r"units would be 'degC', it is 'K'; convert the values to 'K'") as caught:
        write(xr.Dataset({"t": ("time", [7.0], {"units": "degC"})}), store, append_dim="time")
    assert "times" not in str(caught.value)


def test_a_label_that_is_stored_twice_has_no_place():
    store = zellige.MemoryStore()
    ds = xr.Dataset({"t": ("x", [1.0, 2.0, 3.0])}, {"x": [0, 1, 2]})
    write(ds, store)
    write(ds.isel(x=[2]), store, append_dim="x")
    before = contents(store)
    with pytest.raises(
        ValueError, match=r"region: 2 is in the stored coordinate 'x' more than once.*region=\{'x': slice"
    ):
        write(ds.isel(x=slice(1, 3)), store, region="auto")
    assert contents(store) == before
    write(ds.isel(x=slice(0, 2)) + 10, store, region="auto")  # whose places are known
    assert opened(store).t.values.tolist() == [11, 12, 3, 3]


def test_appended_values_are_cut_into_equal_chunks_without_a_rest():
    store = zellige.MemoryStore()
    write(xr.Dataset({"v": ("x", np.arange(4))}), store, chunks={"x": [1, 3]})
    write(xr.Dataset({"v": ("x", np.arange(10))}), store, append_dim="x", chunks={"x": 5})
    assert zellige.open_array(store, path="v").write_chunk_sizes == ((1, 3, 5, 5),)


def test_a_region_of_other_coordinates_says_which_are_missing():
    store = zellige.MemoryStore()
    write(daily(), store)
    later = daily(end="2021-01-03").assign_coords(time=pd.date_range("2023-12-30", periods=3))
    with pytest.raises(ValueError, match=r"^region: 1 values of 'time', the first of them 2024-01-01 .*append_dim="):
        write(later, store, region="auto")
    with pytest.raises(ValueError, match="must be a slice without a step, of integers"):
        write(later.drop_vars(["time", "x"]), store, region={"time": slice(0, 3.0)})
    with pytest.raises(TypeError, match=r"append_dim=\['time'\] must be the name of one dimension"):
        write(later, store, append_dim=["time"])


@pytest.mark.parametrize("units", [None, "hours since 1900-01-01 00:00:00.0", "days since 2024-01-01 00:00"])
def test_blocks_of_times_have_the_stored_units_however_midnight_is_spelled(units, tmp_path):
    def block(number: int) -> xr.Dataset:
        times = pd.date_range("2024-01-01", periods=2) + pd.Timedelta(days=2 * number)
        ds = xr.Dataset({"v": ("step", np.arange(2.0))}, {"step": [2 * number, 2 * number + 1], "at": ("step", times)})
        if units is not None:
            ds["at"].encoding.update(units=units, dtype="int64", calendar="proleptic_gregorian")
        return ds

    write(block(0), tmp_path / "a")
    write(block(1).chunk(step=2), tmp_path / "a", append_dim="step")
    found = xr.open_dataset(tmp_path / "a", engine="zellige", chunks={})
    assert np.array_equal(found["at"].values, pd.date_range("2024-01-01", periods=4).values)
    write(found, tmp_path / "b", mode="w")
    assert xr.open_dataset(tmp_path / "b", engine="zellige").identical(found.compute())
