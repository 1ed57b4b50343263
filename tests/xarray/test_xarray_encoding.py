"""Datasets whose encoding cannot hold a value are refused; what is written reads as it was given, but for rounding."""

from __future__ import annotations

from typing import Any

import cftime
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dask
import strategies as ours
import xarray as xr
import zellige
from counting_store import contents
from xarray_data import OTHERS_SAY, opened
from zellige.errors import LossyCastError, MaskedValueError
from zellige.xarray import write

pytestmark = [pytest.mark.filterwarnings(f"ignore:.*{words}") for words in (*OTHERS_SAY, "saving variable t with")]

TIMES = np.array(["2000-01-01", "2100-01-01"], "M8[ns]")
PACKED = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 273.15}
BLOCKS = pytest.mark.parametrize("blocks", [None, 1], ids=["numpy", "dask"])


def dataset(values: Any, encoding: dict[str, Any], blocks: int | None = None, **attrs: Any) -> xr.Dataset:
    """One variable with an encoding of its own, maybe in blocks of dask."""
    ds = xr.Dataset({"t": ("x", values, attrs)})
    if blocks is not None:
        ds = ds.chunk({"x": blocks})
    ds.t.encoding = dict(encoding)
    return ds


# -- what is refused ------------------------------------------------------------------------------

LOSSES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "packed numbers out of range": (
        [280.0, 1281.0],
        PACKED,
        r"value 1281\.0 at \(1,\) does not fit int16 with scale_factor=0\.01 and add_offset=273\.15, "
        r"which holds -54\.53 to 600\.82; choose another dtype",
    ),
    "with a fill value too": ([np.nan, -60.0], {**PACKED, "_FillValue": -32768}, r"value -60\.0 at \(1,\)"),
    "an infinity": ([280.0, -np.inf], PACKED, r"value -inf at \(1,\)"),
    "NaN": ([280.0, np.nan], PACKED, r"the value at \(1,\) is missing \(nan\), and int16 .*; give a _FillValue"),
    "NaN in plain integers": ([1.0, np.nan], {"dtype": "int32"}, r"missing \(nan\), and int32 would store it"),
    "a value that is stored as the fill value": (
        [280.0, 273.15],
        {**PACKED, "_FillValue": 0},
        r"value 273\.15 at \(1,\) would be stored as 0, its _FillValue, and be read as missing; choose another",
    ),
    "a float that is the fill value": ([1.5, -9999.0], {"_FillValue": -9999.0}, r"value -9999\.0.*read as missing"),
    "an integer that is the missing value": ([1, 2], {"missing_value": 2}, r"value 2 .*read as missing"),
    "integers": ([1, 300], {"dtype": "int8"}, r"value 300 at \(1,\) does not fit int8, which holds -128 to 127"),
    "negative integers": ([1, -1], {"dtype": "uint16"}, "does not fit uint16, which holds 0 to 65535"),
    "unsigned integers": (np.array([1, 2**63], "u8"), {"dtype": "int64"}, "value 9223372036854775808 "),
    "integers with a fill value": ([1, 300], {"dtype": "uint8", "_FillValue": 255}, "value 300 .* 0 to 255"),
    "booleans": ([1, 2], {"dtype": "bool"}, r"value 2 at \(1,\) does not fit (bool|int8), which"),
    "floats for integers": ([1.0, 3e9], {"dtype": "int32"}, r"value 3000000000\.0 .* does not fit int32"),
    "a fraction in plain integers": (
        [3.0, 2.5],
        {"dtype": "int32"},
        r"value 2\.5 at \(1,\) has a fraction, and int32 would store it as 2; round the values, or choose a dtype",
    ),
    "a fraction beside missing values": (
        [np.nan, 0.25],
        {"dtype": "int16", "_FillValue": -1},
        r"value 0\.25 at \(1,\) has a fraction, and int16 would store it as 0",
    ),
    "a fraction in booleans": ([1.0, 0.5], {"dtype": "bool"}, r"value 0\.5 .*(has a fraction|does not fit)"),
    "floats that become infinite": ([1.0, 1e300], {"dtype": "float32"}, r"value 1e\+300 .* does not fit float32"),
    "packed floats": ([1.0, 1e300], {"dtype": "float32", "scale_factor": 0.1}, r"value 1e\+300"),
    "imaginary numbers": ([1 + 0j, 2j], {"dtype": "float64"}, "value 2j"),
    "unsigned numbers in signed integers": (
        [1.0, 256.0],
        {"dtype": "int8", "_Unsigned": "true", "_FillValue": -1},
        r"value 256\.0 .* does not fit int8, which holds 0 to 255",
    ),
    "a sign that readers do not learn of": ([1.0, 200.0], {"dtype": "int8", "_Unsigned": "true"}, "-128 to 127"),
    "dates": (
        TIMES,
        {"dtype": "int16", "units": "hours since 2000-01-01"},
        r"value 2100-01-01T00:00:00.* at \(1,\) does not fit int16 in 'hours since 2000-01-01', which holds -32768 to",
    ),
    "no date": (np.array(["2000", "NaT"], "M8[s]"), {"dtype": "int32", "units": "days since 2000-01-01"}, "NaT"),
    "a date that is the fill value": (
        TIMES,
        {"dtype": "int32", "units": "hours since 2000-01-01", "_FillValue": 876600},
        "would be stored as 876600, its _FillValue",
    ),
    "dates of another calendar": (
        np.array([cftime.DatetimeNoLeap(2000, 1, 1), cftime.DatetimeNoLeap(2100, 1, 1)]),
        {"dtype": "int16", "units": "hours since 2000-01-01", "calendar": "noleap"},
        r"value 2100-01-01 .* does not fit int16 in 'hours since",
    ),
    "dates that floats round": (
        np.array(["1900-01-01", "2020-01-01T12:34:57"], "M8[s]"),
        {"dtype": "float32", "units": "seconds since 1900-01-01"},
        r"time 2020-01-01T12:34:57.* at \(1,\) is no number of float32 in 'seconds since .*; choose the dtype int64",
    ),
    "spans that floats round": (
        np.array([1, 2**24 + 1], "m8[s]"),
        {"dtype": "float32", "units": "seconds"},
        r"at \(1,\) is no number of float32 in 'seconds'",
    ),
    "spans of time": (TIMES - TIMES[0], {"dtype": "int16", "units": "hours"}, "does not fit int16 in 'hours'"),
    "text": (np.array(["ab", "abc"]), {"dtype": "U2"}, r"'abc' at \(1,\) is longer than its encoding, <U2"),
    "bytes": (np.array([b"ab", b"abc"]), {"dtype": "S2"}, r"at \(1,\) is longer than its encoding, \|S2"),
}


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("explicit", [False, True], ids=["its own encoding", "encoding="])
@pytest.mark.parametrize("case", LOSSES)
def test_a_new_dataset_is_refused_before_anything_is_written(case, explicit, form):
    values, encoding, message = LOSSES[case]
    store = zellige.MemoryStore()
    ds = dataset(values, {} if explicit else encoding)
    options = {"zarr_format": form, "encoding": {"t": encoding} if explicit else None}
    with pytest.raises(LossyCastError, match=message) as caught:
        write(ds, store, **options)
    assert contents(store) == {}
    assert caught.value.index == (1,)
    assert "variable 't'" in str(caught.value)
    assert "casting='unsafe'" in str(caught.value)


@pytest.mark.parametrize("case", LOSSES)
def test_blocks_of_dask_are_looked_at_as_they_are_written(case):
    values, encoding, message = LOSSES[case]
    with pytest.raises(LossyCastError, match=message) as caught:
        write(dataset(values, encoding, 1), zellige.MemoryStore())
    assert caught.value.index == (1,)  # in the variable, not in its block


def stored(case: str) -> tuple[zellige.MemoryStore, Any, str]:
    """A dataset with the encoding of a case and the value of it that fits, the one that does not, and the message."""
    values, encoding, message = LOSSES[case]
    values = np.asarray(values)
    store = zellige.MemoryStore()
    write(dataset(values[:1], encoding), store)
    return store, values[::-1], message.replace(r"at \(1,\)", r"at \(0,\)")


APPENDED = [name for name in LOSSES if name not in ("a sign that readers do not learn of", "text", "bytes")]


@BLOCKS
@pytest.mark.parametrize("case", [*APPENDED, "a sign that readers do not learn of"])
def test_an_append_is_refused_and_the_dataset_stays_as_it_was(case, blocks):
    store, values, message = stored(case)
    before, found = contents(store), opened(store).load()
    if case == "a sign that readers do not learn of":
        message = r"does not fit int8, which holds -128 to 127"
    with pytest.raises(LossyCastError, match=message), dask.config.set(scheduler="synchronous"):
        write(dataset(values, {}, blocks), store, append_dim="x")
    assert contents(store) == before
    xr.testing.assert_identical(opened(store).load(), found)


@pytest.mark.parametrize("how", [{"region": {"x": slice(0, 1)}}, {"mode": "a"}, {"mode": "r+"}], ids=str)
@pytest.mark.parametrize("case", APPENDED)
def test_values_that_replace_others_are_refused_before_anything_is_written(case, how):
    store, values, message = stored(case)
    before = contents(store)
    for blocks in (None, 1):  # of one block, which is the first to be written
        with pytest.raises(LossyCastError, match=message):
            write(dataset(values[:1], {}, blocks), store, **how)
        assert contents(store) == before


def test_every_variable_is_looked_at_before_the_first_is_written():
    store = zellige.MemoryStore()
    good = dataset([1.0, 2.0], {})
    with pytest.raises(LossyCastError, match="variable 'u'"):
        write(good.assign(u=dataset([1, 300], {"dtype": "int8"}).t), store)
    assert contents(store) == {}
    write(good, store)
    before = contents(store)
    tree = xr.DataTree.from_dict({"/": good, "/a": dataset([1, 300], {"dtype": "int8"})})
    with pytest.raises(LossyCastError, match="variable 't'"):
        write(tree, store, mode="w")
    assert contents(store) == before


def test_the_place_of_a_value_is_that_in_the_variable(monkeypatch):
    values = np.zeros((50, 3, 4))
    values[47, 1, 2] = 300
    ds = xr.Dataset({"t": (("x", "y", "z"), values)})
    ds.t.encoding = {"dtype": "int8"}
    for data in (ds, ds.chunk({"x": 9, "y": 2, "z": 3})):
        for batch in (1 << 20, 5):
            monkeypatch.setattr("zellige.xarray.encoding._BATCH", batch)
            with pytest.raises(LossyCastError, match=r"value 300\.0 at \(47, 1, 2\)") as caught:
                write(data, zellige.MemoryStore())
            assert caught.value.index == (47, 1, 2)
    scalar = xr.Dataset({"t": ((), 300)})
    scalar.t.encoding = {"dtype": "int8"}
    with pytest.raises(LossyCastError, match=r"value 300 at \(\)"):
        write(scalar, zellige.MemoryStore())


# -- what is allowed ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("way", ["keyword", "setting"])
@BLOCKS
def test_the_caller_may_let_values_change(blocks, way):
    store, packed = zellige.MemoryStore(), np.array([281.15, 1281.0])
    options: dict[str, Any] = {"casting": "unsafe"} if way == "keyword" else {}
    with zellige.config.set({"array.casting": "unsafe"} if way == "setting" else {}):
        write(dataset(packed, PACKED, blocks), store, **options)
        write(dataset(packed, {}, blocks), store, append_dim="x", **options)
    wrapped = np.around((packed - 273.15) / 0.01).astype("int64").astype("int16")
    assert np.array_equal(zellige.open_array(store, path="t")[:], np.tile(wrapped, 2))
    with pytest.raises(ValueError, match="casting='safe' must be"):
        write(dataset(packed, {}), store, append_dim="x", casting="safe")


@BLOCKS
def test_integers_that_were_read_as_floats_go_back(blocks):
    raw = np.array([-5, -1, 2**31 - 1, 0], "i4")
    store, other = zellige.MemoryStore(), zellige.MemoryStore()
    write(xr.Dataset({"t": ("x", raw, {"_FillValue": np.int32(-1)})}), store)
    found = opened(store, chunks=None if blocks is None else {})
    assert found.t.dtype.kind == "f"
    assert np.isnan(found.t[1])
    write(found, other)
    write(found.drop_encoding(), other, append_dim="x")
    assert zellige.open_array(other, path="t").dtype == raw.dtype
    assert np.array_equal(zellige.open_array(other, path="t")[:], np.tile(raw, 2))


@BLOCKS
def test_fractions_in_the_middle_of_integers_are_found(blocks):
    store = zellige.MemoryStore()
    write(dataset(np.array([1, 2], "i4"), {}), store)
    for how in ({"append_dim": "x"}, {"region": {"x": slice(0, 1)}}):
        values = [1.0, 7.5, 9.0] if "append_dim" in how else [0.4]
        with pytest.raises(LossyCastError, match="has a fraction"):
            write(dataset(values, {}, None if blocks is None else 3), store, **how)
        assert opened(store).t.values.tolist() == [1, 2]
    write(dataset([2.5, 3.7], {}, None if blocks is None else 2), store, append_dim="x", casting="unsafe")
    assert opened(store).t.values.tolist() == [1, 2, 2, 4]  # as xarray rounds


def test_what_is_missing_or_marked_by_hand_is_written():
    fill = {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}
    store = zellige.MemoryStore()
    write(dataset([1.5, np.nan], fill), store)
    assert np.array_equal(opened(store).t, [1.5, np.nan], equal_nan=True)
    # A `_FillValue` among the attributes means that the values are encoded already.
    raw = opened(store, mask_and_scale=False).load()
    assert raw.t.values.tolist() == [3, -1]
    other = zellige.MemoryStore()
    write(raw, other)
    assert np.array_equal(opened(other).t, [1.5, np.nan], equal_nan=True)


@pytest.mark.parametrize("values", [TIMES, TIMES - TIMES[0]], ids=["dates", "spans"])
@BLOCKS
def test_missing_times_come_back(values, blocks):
    values = np.append(values, np.array("NaT", values.dtype))
    units = "hours since 2000-01-01" if values.dtype.kind == "M" else "hours"
    for encoding in ({"dtype": "int64"}, {"dtype": "int32", "_FillValue": -9}, {"dtype": "float64"}):
        store = zellige.MemoryStore()
        write(dataset(values, {"units": units, **encoding}, blocks), store)
        found = opened(store, decode_timedelta=True).t.values
        assert np.array_equal(found, values, equal_nan=True)


@BLOCKS
def test_times_that_short_floats_hold_are_stored(blocks):
    times = np.array(["2000-01-01", "2020-02-29T18:00", "NaT"], "M8[ns]")
    for values, units in ((times, "days since 2000-01-01"), (times - times[0], "days")):
        store = zellige.MemoryStore()
        write(dataset(values, {"dtype": "float32", "units": units}, blocks), store)
        assert zellige.open_array(store, path="t").dtype == np.float32
        assert np.array_equal(opened(store, decode_timedelta=True).t, values, equal_nan=True)


@pytest.mark.filterwarnings("ignore:Times can't be serialized faithfully")  # xarray takes other units
@BLOCKS
def test_times_that_need_finer_units_are_never_cut(blocks):
    store = zellige.MemoryStore()
    write(dataset(TIMES, {"dtype": "int64", "units": "hours since 2000-01-01"}, 1), store)
    before = contents(store)
    with pytest.raises(ValueError, match="minutes since 2000-01-01"), dask.config.set(scheduler="synchronous"):
        write(dataset(TIMES + np.timedelta64(30, "m"), {}, blocks), store, append_dim="x")
    assert contents(store) == before


def test_a_fill_value_that_does_not_fit_is_refused():
    store = zellige.MemoryStore()
    with pytest.raises(LossyCastError, match=r"variable 't' cannot be encoded with .*int16.*; choose a _FillValue"):
        write(dataset([280.0, np.nan], {**PACKED, "_FillValue": 1e20}), store)
    assert contents(store) == {}


@ours.examples(0.2)
@given(st.data())
def test_packed_numbers_come_back_or_are_refused(data):
    dtype = np.dtype(data.draw(st.sampled_from(["int8", "uint8", "int16", "int32"])))
    scale, offset = data.draw(st.sampled_from([(0.25, 0.0), (1.0, 0.0), (2.0, -7.5), (-0.5, 273.0)]))
    fill = data.draw(st.none() | st.sampled_from([0, int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]))
    info = np.iinfo(dtype)
    near = st.sampled_from([info.min - 1, info.min, info.min + 1, -1, 0, 1, info.max - 1, info.max, info.max + 1])
    numbers = st.lists(near | st.sampled_from([np.nan, np.inf]), min_size=1, max_size=4)
    packed = np.array(data.draw(numbers), float) + data.draw(st.sampled_from([0.0, 0.25, -0.25]))
    values = packed * scale + offset
    encoding = {"dtype": dtype, "scale_factor": scale, "add_offset": offset}
    encoding |= {} if fill is None else {"_FillValue": fill}
    rounded = np.around(packed)
    fits = np.where(
        np.isnan(packed), fill is not None, (rounded >= info.min) & (rounded <= info.max) & (rounded != fill)
    )
    store = zellige.MemoryStore()
    ds = dataset(values, encoding, data.draw(st.sampled_from([None, 2])))
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):  # the quick look and the long one agree
            patch.setattr("zellige.xarray.encoding._Numbers.is_sound", lambda *_: False)
        if fits.all():
            write(ds, store)
            assert np.array_equal(opened(store).t, rounded * scale + offset, equal_nan=True)
        else:
            with pytest.raises(LossyCastError) as caught:
                write(ds, store)
            assert not fits[caught.value.index]


# -- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", [{}, {"dtype": "float32"}, {**PACKED, "_FillValue": -1}, {"_FillValue": -9.0}])
@BLOCKS
def test_masked_values_are_missing_values(encoding, blocks):
    given = np.ma.array([280.0, -9999.0], mask=[0, 1])
    data = given if blocks is None else da.from_array(given, chunks=1)
    store = zellige.MemoryStore()
    write(dataset(data, encoding), store)
    write(dataset(data, {}), store, append_dim="x")
    assert np.allclose(opened(store).t, [280.0, np.nan, 280.0, np.nan], equal_nan=True)


@BLOCKS
def test_masked_times_are_missing_times(blocks):
    given = np.ma.array(TIMES, mask=[0, 1])
    store = zellige.MemoryStore()
    write(dataset(given if blocks is None else da.from_array(given, chunks=1), {}), store)
    assert np.array_equal(opened(store).t, np.array([TIMES[0], "NaT"], TIMES.dtype), equal_nan=True)


@pytest.mark.parametrize("encoding", [{}, {"dtype": "int16"}])
def test_masked_blocks_that_nobody_expected_are_refused(encoding):
    given = da.from_array(np.array([1, 3]), chunks=1).map_blocks(
        lambda x: np.ma.array(x, mask=x == 3), dtype="i8", meta=np.array([], "i8")
    )
    with pytest.raises((MaskedValueError, LossyCastError), match=r"masked|missing \(nan\)"):
        write(dataset(given, encoding), zellige.MemoryStore())
    store = zellige.MemoryStore()
    write(dataset(given, {"_FillValue": -1}), store)
    assert np.array_equal(opened(store).t, [1, np.nan], equal_nan=True)
