"""Text and bytes of datasets come back as they were given, or are refused before anything is written."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import dask
import xarray as xr
import zellige
from counting_store import contents
from xarray_data import OTHERS_SAY, opened
from zellige.errors import LossyCastError
from zellige.xarray import write

pytestmark = [pytest.mark.filterwarnings(f"ignore:.*{words}") for words in OTHERS_SAY]

STRINGS = np.dtypes.StringDType


def dataset(values: Any, **encoding: Any) -> xr.Dataset:
    """One variable."""
    ds = xr.Dataset({"v": ("x", values)})
    ds.v.encoding = dict(encoding)
    return ds


STORED = {
    "text of any length": np.array(["a", "b"], object),
    "text of a fixed length": np.array(["a", "b"], "U5"),
    "text of numpy": np.array(["a", "b"], STRINGS()),
}
MISSING = {
    "None": np.array(["c", None], object),
    "NaN": np.array(["c", np.nan], object),
    "pandas": pd.array(["c", None], dtype="string"),
    "numpy": np.array(["c", None], STRINGS(na_object=None)),
    "numpy with NaN": np.array(["c", np.nan], STRINGS(na_object=np.nan)),
}
HOW: list[dict[str, Any]] = [{"append_dim": "x"}, {"region": {"x": slice(0, 2)}}, {"mode": "r+"}, {"mode": "a"}]
REMEDY = r"is missing \(.*\), and Zarr has no missing text; .*ds\['v'\]\.fillna\(''\), or pass casting='unsafe'"


# -- missing text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("case", MISSING)
def test_missing_text_is_refused_in_a_new_dataset(case, form):
    store = zellige.MemoryStore()
    with pytest.raises(LossyCastError, match=rf"variable 'v': the text at \(1,\) {REMEDY}") as caught:
        write(dataset(MISSING[case]), store, zarr_format=form)
    assert caught.value.index == (1,)
    assert contents(store) == {}
    write(dataset(MISSING[case]), store, zarr_format=form, casting="unsafe")
    assert opened(store).v.values.tolist() == ["c", ""]


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("case", [*MISSING, "all"])
@pytest.mark.parametrize("stored", STORED)
def test_missing_text_is_refused_where_text_is_stored(stored, case, how):
    values = MISSING.get(case, np.array([None, None], object))
    store = zellige.MemoryStore()
    write(dataset(STORED[stored]), store)
    before = contents(store)
    with pytest.raises(LossyCastError, match=REMEDY) as caught:
        write(dataset(values), store, **how)
    assert caught.value.index == ((0,) if case == "all" else (1,))
    assert contents(store) == before
    write(dataset(values), store, casting="unsafe", **how)
    assert opened(store).v.values[-2:].tolist() == ["" if case == "all" else "c", ""]


def test_the_place_of_missing_text_is_that_in_the_variable():
    values = np.full((3, 4), "a", object)
    values[2, 1] = None
    with pytest.raises(LossyCastError, match=r"at \(2, 1\)"):
        write(xr.Dataset({"v": (("x", "y"), values)}), {})


@pytest.mark.filterwarnings("ignore:variable .* has blocks of dask with objects")
@pytest.mark.parametrize("values", MISSING.values(), ids=MISSING)
def test_missing_text_in_blocks_of_dask_is_refused(values):
    blocks = dataset(da.from_array(np.asarray(values), chunks=1))
    with pytest.raises(LossyCastError, match=REMEDY) as caught, dask.config.set(scheduler="synchronous"):
        write(blocks, zellige.MemoryStore())
    assert caught.value.index == (1,)
    store = zellige.MemoryStore()
    write(dataset(STORED["text of any length"]), store, chunks={"x": 1})
    with pytest.raises(LossyCastError, match=REMEDY), dask.config.set(scheduler="synchronous"):
        write(blocks, store, append_dim="x")
    assert opened(store).v.values.tolist() == ["a", "b"]


def test_objects_in_blocks_of_dask_are_computed_with_a_warning():
    text = da.from_array(np.array(["a", "bc"], object), chunks=1)
    store = zellige.MemoryStore()
    with pytest.warns(xr.SerializationWarning, match="variable 'v' has blocks of dask with objects"):
        write(dataset(text), store)
    assert opened(store).v.values.tolist() == ["a", "bc"]


def test_missing_numbers_among_objects_stay_missing():
    store = zellige.MemoryStore()
    write(dataset(np.array([1.5, None], object)), store)
    assert np.array_equal(opened(store).v, [1.5, np.nan], equal_nan=True)


def test_missing_text_is_the_fill_value_in_format_2():
    store = zellige.MemoryStore()
    text = MISSING["None"]
    write(dataset(text), store, zarr_format=2, encoding={"v": {"_FillValue": "NA"}})
    write(dataset(text), store, append_dim="x")
    assert zellige.open_array(store, path="v")[:].tolist() == ["c", "NA", "c", "NA"]
    assert opened(store).v.isnull().values.tolist() == [False, True, False, True]
    with pytest.raises(LossyCastError, match=r"variable 'v': 'NA' at \(1,\) is its _FillValue, and would be read as"):
        write(dataset(np.array(["a", "NA"], object)), store, append_dim="x")


@pytest.mark.parametrize("values", [MISSING["None"], *STORED.values()], ids=["missing", *STORED])
def test_text_in_format_3_has_no_fill_value(values):
    # xarray's own engine cannot open what has one.
    store = zellige.MemoryStore()
    with pytest.raises(
        ValueError, match=r"variable 'v': text in Zarr format 3 has no _FillValue .*'NA'; fill .*fillna"
    ):
        write(dataset(values), store, encoding={"v": {"_FillValue": "NA"}})
    with pytest.raises(ValueError, match=r"variable 'v': text in Zarr format 3 has no _FillValue"):
        write(xr.Dataset({"v": ("x", values, {"_FillValue": "NA"})}), store)
    assert contents(store) == {}


def test_a_fill_value_that_text_brings_along_from_format_2_is_dropped():
    first, second = zellige.MemoryStore(), zellige.MemoryStore()
    write(dataset(STORED["text of any length"]), first, zarr_format=2, encoding={"v": {"_FillValue": "NA"}})
    write(opened(first).load(), second, zarr_format=3)
    assert opened(second).v.values.tolist() == ["a", "b"]


# -- what a stored type does not hold -------------------------------------------------------------


@pytest.mark.parametrize("how", [{"mode": "w"}, *HOW], ids=str)
def test_text_that_utf8_does_not_have_is_refused_before_anything_is_written(how):
    store = zellige.MemoryStore()
    write(dataset(STORED["text of any length"]), store)
    before = contents(store)
    with pytest.raises(LossyCastError, match=r"variable 'v': 'b\\udce9' at \(1,\) cannot be stored as UTF-8.*astype"):
        write(dataset(np.array(["a", "b\udce9"], object)), store, **how)
    assert contents(store) == before
    write(dataset(np.array(["a", "b\udce9"])), zellige.MemoryStore())  # as the remedy says


def test_bytes_that_end_in_nul_are_refused():
    values = np.array([b"bcd", b"a\0"], object)
    store = zellige.MemoryStore()
    with pytest.raises(LossyCastError, match=r"variable 'v': b'a\\x00' at \(1,\) ends in NUL, .*as numbers"):
        write(dataset(values), store)
    assert contents(store) == {}
    write(dataset(values), store, casting="unsafe")
    before = contents(store)
    with pytest.raises(LossyCastError, match="ends in NUL"):
        write(dataset(values), store, append_dim="x")
    assert contents(store) == before


def test_text_that_ends_in_nul_keeps_it_where_it_has_any_length():
    store, fixed = zellige.MemoryStore(), zellige.MemoryStore()
    text = np.array(["a\0", "b"], object)
    write(dataset(text), store)
    assert opened(store).v.values.tolist() == ["a\0", "b"]
    write(dataset(STORED["text of a fixed length"]), fixed)
    with pytest.raises(LossyCastError, match=r"variable 'v': 'a\\x00' at \(0,\) ends in NUL"):
        write(dataset(text), fixed, append_dim="x")


@pytest.mark.parametrize("values", [["ab", "abcdef"], [b"ab", b"abcdef"]], ids=["text", "bytes"])
@pytest.mark.parametrize("dtype", [None, object], ids=["fixed", "objects"])
def test_text_that_is_too_long_is_named_with_both_lengths(values, dtype):
    store = zellige.MemoryStore()
    kind = "U" if isinstance(values[0], str) else "S"
    write(dataset(np.array(values[:1], f"{kind}3")), store)
    before = contents(store)
    message = rf"'abcdef' at \(1,\) has a length of 6, the stored type holds 3; .*'v': \{{'dtype': '{kind}6'\}}"
    with pytest.raises(LossyCastError, match=message) as caught:
        write(dataset(np.array(values, dtype)), store, append_dim="x")
    assert caught.value.index == (1,)
    assert contents(store) == before


def test_short_text_in_a_long_type_is_appended_to_a_short_one():
    store = zellige.MemoryStore()
    write(dataset(np.array(["ab"])), store)
    write(dataset(np.array(["cd"], "U20")), store, append_dim="x")
    assert opened(store).v.values.tolist() == ["ab", "cd"]
