"""The writer: what is written opens equal, in our engine always, in xarray's own when the grid is regular."""

from __future__ import annotations

import datetime
import itertools
import os
import warnings
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from dask.diagnostics import Callback

import dask
import xarray as xr
import zellige
import zellige.dask
from counting_store import WRITES, CountingStore, contents
from xarray_data import OTHERS_SAY, chunked, daily, everything, opened
from zellige.xarray import ZelligeBackend, write

pytestmark = [pytest.mark.filterwarnings(f"ignore:.*{words}") for words in OTHERS_SAY]

REGULAR = {"numpy": {}, "blocks": {"time": 8, "x": 6}, "a short tail": {"time": (9, 9, 2), "z": 3}}
UNEVEN = {
    "one axis": {"time": (3, 10, 7)},
    "three axes": {"time": (1, 2, 17), "x": (5, 1), "z": (1, 2, 1)},
    "a long tail": {"time": (5, 5, 10)},
}


def cut(chunks) -> xr.Dataset:
    return chunked(everything(), **chunks) if chunks else everything()


@pytest.mark.parametrize("chunks", UNEVEN.values(), ids=UNEVEN)
def test_uneven_blocks_become_stored_chunks_and_open_identical(chunks, tmp_path):
    write(cut(chunks), tmp_path)
    ds = opened(tmp_path, chunks={})
    xr.testing.assert_identical(ds, everything())
    for dim, sizes in chunks.items():
        assert ds.wind.chunksizes[dim] == sizes
    assert zellige.open_array(tmp_path, path="wind").grid.dimensions[0].edges == chunks["time"]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", REGULAR.values(), ids=REGULAR)
def test_regular_blocks_open_identical_in_xarrays_own_engine_too(chunks, zarr_format, tmp_path):
    write(cut(chunks), tmp_path, zarr_format=zarr_format)
    xr.testing.assert_identical(opened(tmp_path), everything())
    theirs = xr.open_dataset(tmp_path, engine="zarr")
    xr.testing.assert_identical(theirs, everything())
    array = zellige.open_array(tmp_path, path="wind")
    assert array.metadata.zarr_format == zarr_format
    if chunks:
        assert array.chunks[0] == np.max(chunks["time"])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_documents_say_what_xarray_would_have_written(zarr_format, tmp_path):
    source = chunked(everything(), time=8)
    write(source, tmp_path / "ours", zarr_format=zarr_format)
    source.to_zarr(tmp_path / "theirs", zarr_format=zarr_format)
    ours, theirs = (zellige.open_group(tmp_path / place) for place in ("ours", "theirs"))
    assert set(ours) == set(theirs)
    assert dict(ours.attrs) == dict(theirs.attrs)
    for name, array in ours.arrays():
        other = theirs[name]
        assert dict(array.attrs) == dict(other.attrs), name
        assert (array.dtype, array.shape, array.dimension_names) == (other.dtype, other.shape, other.dimension_names)
        # Floats are not a number until they are written, as in xarray since 2025.8.
        fill = np.nan if zarr_format == 3 and array.dtype.kind == "f" else other.fill_value
        np.testing.assert_equal(array.fill_value, fill)
        assert getattr(array.metadata, "fill_is_null", None) == getattr(other.metadata, "fill_is_null", None), name


def test_what_xarrays_engine_opened_is_written_with_its_encoding(tmp_path):
    source = everything().drop_vars("names")
    source.to_zarr(tmp_path / "a", encoding={"wind": {"chunks": (5, 3, 4)}})
    write(xr.open_dataset(tmp_path / "a", engine="zarr"), tmp_path / "b")
    xr.testing.assert_identical(opened(tmp_path / "b"), source)
    ours, theirs = (zellige.open_array(tmp_path / place, path="wind") for place in "ab")
    assert ours.chunks == theirs.chunks == (5, 3, 4)
    assert ours.compressors == theirs.compressors
    packed = zellige.open_array(tmp_path / "b", path="t2m")
    assert packed.dtype == "int16"
    assert packed.attrs["scale_factor"] == 0.25


@pytest.mark.parametrize("calendar", ["noleap", "360_day"])
def test_other_calendars_survive(calendar, tmp_path):
    time = xr.date_range("2001-02-26", periods=8, calendar=calendar, use_cftime=True)
    ds = xr.Dataset({"v": ("time", np.arange(8))}, {"time": time}).chunk(time=(2, 5, 1))
    write(ds, tmp_path)
    xr.testing.assert_identical(opened(tmp_path), ds.compute())


def test_empty_and_zero_dimensional_data_survive(tmp_path):
    ds = xr.Dataset({"none": (("a", "b"), np.empty((0, 3), "f4")), "one": ((), 1.5)}, {"a": np.empty(0, "i8")})
    for place, source in {"numpy": ds, "dask": ds.chunk()}.items():
        write(source, tmp_path / place)
        xr.testing.assert_identical(opened(tmp_path / place), ds)


# -- encodings ------------------------------------------------------------------------------------


def test_an_explicit_encoding_comes_first(tmp_path):
    ds = chunked(everything(), time=(3, 10, 7))
    encoding = {
        "wind": {"chunks": [[10, 10], 6, 2], "compressors": "gzip", "fill_value": 5},
        "t2m": {"dtype": "f4", "chunks": (5, 3), "shards": (10, 6)},
    }
    with pytest.warns(zellige.dask.AlignmentWarning):
        write(ds, tmp_path, encoding=encoding, chunks={"time": 4})
    root = zellige.open_group(tmp_path)
    assert root["wind"].chunks == (10, 6, 2)
    assert root["wind"].compressors[0].name == "gzip"
    assert root["wind"].fill_value == 5
    assert (root["t2m"].dtype, root["t2m"].chunks, root["t2m"].shards) == ("f4", (5, 3), (10, 6))
    assert root["count"].chunks == (4,)
    xr.testing.assert_equal(opened(tmp_path), everything())


STALE = {
    "chunks of another shape": {"chunks": (3, 3, 3, 3)},
    "edges of another length": {"chunks": ((3, 4), 6)},
    "shards that do not fit": {"chunks": (7, 5), "shards": (9, 9)},
    "a codec for other data": {"serializer": {"name": "vlen-utf8"}},
    "an unknown codec": {"compressors": ({"name": "imaginary"},), "filters": ({"name": "nothing"},)},
    "what netCDF says": {"zlib": True, "complevel": 4, "chunksizes": (1, 1), "contiguous": False, "source": "a.nc"},
    "what format 2 says": {"compressor": object(), "order": "F"},
}


def test_codecs_of_zarr_python_are_tuned_as_its_own_engine_does(tmp_path):
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    ds = daily()
    encoding = {"t": {"compressors": (zarr.codecs.BloscCodec(),)}}
    write(ds, tmp_path / "ours", encoding=encoding)
    ds.to_zarr(tmp_path / "theirs", encoding=encoding)
    ours, theirs = (zellige.open_array(tmp_path / who, path="t").compressors for who in ("ours", "theirs"))
    assert ours == theirs
    assert (ours[0].typesize, ours[0].shuffle) == (8, "shuffle")


@pytest.mark.parametrize("encoding", STALE.values(), ids=STALE)
def test_a_stale_encoding_is_no_error(encoding):
    ds = xr.Dataset({"v": (("y", "x"), np.arange(120.0).reshape(20, 6))})
    ds.v.encoding = encoding
    xr.testing.assert_identical(opened(write(ds, {})), ds)
    uneven = ds.chunk(y=(3, 17))
    uneven.v.encoding = encoding
    root = write(uneven, {})
    xr.testing.assert_identical(opened(root), ds)
    assert root["v"].write_chunk_sizes[0] == (3, 17)


def test_the_same_in_an_explicit_encoding_is_an_error():
    ds = xr.Dataset({"v": ("x", np.arange(20.0))})
    for encoding, message in (({"zlib": True}, "unknown encoding"), ({"chunks": (3, 3)}, "entries")):
        store = zellige.MemoryStore()
        with pytest.raises(ValueError, match=message):
            write(ds, store, encoding={"v": encoding})
        assert contents(store) == {}


def test_blocks_win_over_the_chunks_that_a_variable_was_read_from():
    first = write(daily(end="2021-01-20").chunk(time=5), {})
    again = write(opened(first, chunks={}).isel(time=slice(2, None)).chunk(time=(1, 17)), {})
    assert again["t"].write_chunk_sizes[0] == (1, 17)
    same = write(opened(first), {})
    assert same["t"].chunks == (5, 3)


def test_shards_survive_opening_and_writing():
    ds = xr.Dataset({"v": ("x", np.arange(40))})
    first = write(ds, {}, encoding={"v": {"chunks": (5,), "shards": (20,)}})
    with pytest.warns(zellige.dask.AlignmentWarning, match="8 blocks were rechunked to 2"):
        again = write(opened(first, chunks={}), {})
    assert (again["v"].chunks, again["v"].shards) == ((5,), (20,))
    xr.testing.assert_identical(opened(again), ds)


# -- modes, groups, trees -------------------------------------------------------------------------


def test_nothing_is_replaced_unless_the_mode_says_so(tmp_path):
    ds = daily(end="2021-01-10")
    write(ds, tmp_path)
    before = contents(zellige.LocalStore(tmp_path))
    with pytest.raises(FileExistsError, match="mode 'w' replaces"):
        write(ds + 1, tmp_path)
    assert contents(zellige.LocalStore(tmp_path)) == before
    write(ds[["mean"]] + 1, tmp_path, mode="w")
    xr.testing.assert_equal(opened(tmp_path), ds[["mean"]] + 1)
    assert not (tmp_path / "t").exists()


def test_mode_a_adds_variables_and_replaces_values(tmp_path):
    ds = daily(end="2021-01-10")
    write(ds, tmp_path)
    write((ds[["mean"]] * 2).assign(new=("x", [1, 2, 3])).assign_attrs(more=1), tmp_path, mode="a")
    found = opened(tmp_path)
    assert np.array_equal(found["mean"], ds["mean"] * 2)
    assert np.array_equal(found["t"], ds["t"])
    assert found.new.values.tolist() == [1, 2, 3]
    assert found.attrs == {"source": "made up", "more": 1}


@pytest.mark.parametrize("mode", ["a", "a-", "r+"])
def test_variables_without_axes_are_added_and_replaced(mode, tmp_path):
    ds = daily(end="2021-01-05").assign(scalar=3).assign_coords(place=1.5)
    write(ds, tmp_path)
    write(ds.assign(scalar=4), tmp_path, mode=mode)
    assert opened(tmp_path).scalar == 4
    if mode != "r+":
        write(ds.assign(new=7), tmp_path, mode=mode)
        xr.testing.assert_identical(opened(tmp_path), ds.assign(new=7))


def test_a_region_creates_variables_as_long_as_those_that_are_there(tmp_path):
    ds = daily(end="2021-01-30")
    write(ds.chunk(time=(7, 14, 9)), tmp_path)
    part = (ds.isel(time=slice(5, 25)) * 2).rename(t="double", mean="twice").drop_vars("x")
    write(part.drop_vars("time"), tmp_path, mode="a", region={"time": slice(5, 25)})
    found = opened(tmp_path)
    assert zellige.open_array(tmp_path, path="double").write_chunk_sizes == ((7, 14, 9), (3,))
    expected = (ds * 2).rename(t="double", mean="twice").where((ds.time >= ds.time[5]) & (ds.time < ds.time[25]))
    xr.testing.assert_equal(found[["double", "twice"]], expected.assign_coords(x=ds.x))
    with pytest.raises(ValueError, match="'other' is not in the store, and mode 'r\\+' adds none"):
        write(part.rename(double="other").drop_vars("time"), tmp_path, region={"time": slice(5, 25)})
    with pytest.raises(ValueError, match=r"nor is any with its dimension 'y'.*without a region first"):
        write(xr.Dataset({"z": ("y", [1, 2])}), tmp_path, mode="a", region={"y": slice(0, 2)})


def test_mode_r_plus_changes_values_only(tmp_path):
    ds = daily(end="2021-01-10")
    with pytest.raises(FileNotFoundError, match="creates none"):
        write(ds, tmp_path, mode="r+")
    write(ds, tmp_path)
    write(ds + 1, tmp_path, mode="r+")
    xr.testing.assert_equal(opened(tmp_path), ds + 1)
    with pytest.raises(ValueError, match="'new' is not in the store"):
        write(ds.assign(new=1), tmp_path, mode="r+")


def test_groups_and_data_arrays(tmp_path):
    ds = daily(end="2021-01-10")
    write(ds, tmp_path, group="a/b")
    write(ds["t"].chunk(time=(1, 9)), tmp_path, group="c", zarr_format=3)
    write(ds["x"], tmp_path, group="d")
    ds["t"].rename(None).zellige.write(tmp_path, group="e")
    xr.testing.assert_identical(opened(tmp_path, group="a/b"), ds)
    for group, expected in {"c": ds["t"], "d": ds["x"], "e": ds["t"].rename(None)}.items():
        xr.testing.assert_identical(xr.open_dataarray(tmp_path, engine=ZelligeBackend, group=group), expected)
    assert set(zellige.open_consolidated(tmp_path, check=True)) == {"a", "c", "d", "e"}


def test_trees(tmp_path):
    tree = xr.DataTree.from_dict({"/": xr.Dataset({"a": 1}), "/x/y": daily(end="2021-01-10").chunk(time=(4, 6))})
    tree.zellige.write(tmp_path, encoding={"/x/y": {"mean": {"dtype": "f4"}}})
    found = xr.open_datatree(tmp_path, engine=ZelligeBackend, chunks={})
    xr.testing.assert_equal(found, tree)
    assert found["x/y/t"].chunksizes["time"] == (4, 6)
    assert zellige.open_array(tmp_path, path="x/y/mean").dtype == "f4"
    xr.testing.assert_identical(opened(tmp_path, group="x"), xr.Dataset())
    with pytest.raises(ValueError, match="no group 'z'"):
        write(tree, tmp_path, mode="w", encoding={"/z": {}})


def tree_of(ds: xr.Dataset) -> xr.DataTree:
    """A tree in which the root and another group lack the dimension that the others have."""
    parts = {
        "/": xr.Dataset(attrs={"title": "all"}),
        "/a": ds,
        "/a/b": ds[["mean"]],
        "/c": xr.Dataset({"k": ("y", [1, 2])}),
    }
    return xr.DataTree.from_dict(parts)


def test_groups_of_a_tree_may_lack_a_dimension(tmp_path):
    first, second = daily(end="2021-01-20"), daily("2021-01-21", "2021-02-10")
    root = write(tree_of(first), tmp_path, chunks={"time": "month"})
    assert root["a/t"].grid.dimensions[0].chunks == (31,)
    write(tree_of(second), tmp_path, append_dim="time")
    assert zellige.open_array(tmp_path, path="a/t").write_chunk_sizes[0] == (31, 10)
    found = xr.open_datatree(tmp_path, engine=ZelligeBackend)
    xr.testing.assert_identical(found.load(), tree_of(daily(end="2021-02-10")))
    for options in ({"chunks": {"nowhere": 3}}, {"append_dim": "nowhere"}):
        with pytest.raises(ValueError, match=r"'nowhere'.*known: 'time', 'x', 'y'"):
            write(tree_of(second), tmp_path, **{"mode": "a", **options})
    with pytest.raises(ValueError, match="would be left shorter"):
        write(
            tree_of(daily("2021-02-11", "2021-02-12")).filter(lambda node: node.name != "b"),
            tmp_path,
            append_dim="time",
        )


def test_coordinates_that_a_group_of_a_tree_inherits_are_written_if_asked_for(tmp_path):
    parts = {"/": xr.Dataset(coords={"x": [1, 2]}), "/a": xr.Dataset({"v": ("x", [3, 4])})}
    for inherited in (False, True):
        root = write(xr.DataTree.from_dict(parts), tmp_path, mode="w", write_inherited_coords=inherited)
        assert ("x" in root["a"]) is inherited


def test_the_keywords_of_to_zarr_are_taken_or_say_what_to_use():
    ds = daily(end="2021-01-04") * 0
    meaningless = {"synchronizer": None, "chunk_store": None, "chunkmanager_store_kwargs": None}
    root = write(ds, {}, zarr_version=2, safe_chunks=True, align_chunks=False, write_empty_chunks=True, **meaningless)
    assert root.metadata.zarr_format == 2
    assert root["t"].nchunks_initialized == 1
    assert (
        write(ds + 0, {}, write_empty_chunks=False, encoding={"t": {"fill_value": 0.0}})["t"].nchunks_initialized == 0
    )
    with pytest.raises(ValueError, match="zarr_version=2 and zarr_format=3 differ"):
        write(ds, {}, zarr_version=2, zarr_format=3)
    for name, remedy in {
        "synchronizer": "locks what it changes",
        "chunk_store": "in one store",
        "chunkmanager_store_kwargs": r"dask\.config\.set",
        "chunk_sizes": "unexpected keyword argument 'chunk_sizes'",
    }.items():
        with pytest.raises(TypeError, match=remedy):
            write(ds, {}, **{name: object()})


@pytest.mark.parametrize("safe", [True, False])
def test_safe_chunks_means_what_it_means_in_xarray(safe):
    root = write(daily(end="2021-01-30").chunk(time=(7, 14, 9)), {})
    misaligned = daily(end="2021-01-30").chunk(time=10) + 1
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        write(misaligned, root, mode="r+", safe_chunks=safe)
    assert any(issubclass(one.category, zellige.dask.AlignmentWarning) for one in told) is safe
    xr.testing.assert_equal(opened(root), misaligned.compute())


def test_a_zip_file_is_complete_when_it_is_written(tmp_path):
    path, ds = tmp_path / "x.zip", daily(end="2021-01-20")
    write(ds, path)
    xr.testing.assert_identical(opened(path), ds)
    write(daily("2021-01-21", "2021-01-31").chunk(time=11), str(path), append_dim="time")
    other = ds[["mean"]].rename(mean="new", time="day").drop_vars("day").isel(day=slice(0))
    write(other, path, group="more", mode="a")
    xr.testing.assert_identical(opened(path), daily(end="2021-01-31"))
    assert "more/new" in zellige.open(path, mode="r")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="would be left shorter"):
        write(ds.drop_vars("mean"), path, append_dim="time")
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="compute=False: a zip file"):
        write(ds.chunk(), path, mode="w", compute=False)
    assert path.read_bytes() == before


def test_metadata_is_consolidated_by_default_and_never_left_behind(tmp_path):
    ds = daily(end="2021-01-10")
    write(ds, tmp_path)
    assert set(zellige.open_consolidated(tmp_path, check=True)) == {"t", "mean", "time", "x"}
    write(ds[["mean"]].rename(mean="more"), tmp_path, mode="a", consolidated=False)
    assert "more" in zellige.open_consolidated(tmp_path, check=True)
    write(ds, tmp_path / "not", consolidated=False)
    assert zellige.open_group(tmp_path / "not").metadata.consolidated is None


# -- what would not open any more -----------------------------------------------------------------


def rows(count: int, **variables: Any) -> xr.Dataset:
    """Values along `time`, which has no coordinate, and whatever else."""
    return xr.Dataset({"n": ("time", np.arange(count * 1.0)), **variables})


UNFIT: dict[str, tuple[xr.Dataset, dict[str, Any], str]] = {
    "variable": (rows(6), {}, r"'n' .* 6 .* 'time', where stored variables have 5 \(t\)"),
    "blocks of dask": (rows(6).chunk({"time": 4}), {}, r"'n' .* 6 .* 'time', where stored variables have 5 \(t\)"),
    "shorter": (rows(1), {}, r"'n' .* 1 .* 'time', where stored variables have 5 \(t\)"),
    "none": (rows(0), {}, r"'n' .* 0 .* 'time', where stored variables have 5 \(t\)"),
    "one of two axes": (
        xr.Dataset({"n": (("time", "y"), np.zeros((5, 3)))}),
        {},
        r"'n' .* 3 .* 'y', where stored variables have 2 \(u\)",
    ),
    "index": (xr.Dataset(coords={"time": np.arange(6)}), {}, r"'time' .* 6 .* 'time', where stored variables have 5"),
    "coordinate": (xr.Dataset(coords={"lat": ("y", [1.0])}), {}, r"'lat' .* 1 .* 'y', where stored variables have 2"),
    "append": (
        xr.Dataset({"t": ("time", [5.0]), "n": ("y", [1.0])}),
        {"append_dim": "time"},
        r"'n' .* 1 .* 'y', where stored variables have 2 \(u\)",
    ),
    "region": (
        rows(2, m=("y", [1.0])),
        {"region": {"time": slice(2), "y": slice(3)}},
        "'m' has 1 elements along 'y', its place in the store has 2",
    ),
    "scalar named like a dimension": (xr.Dataset({"time": ((), 3)}), {}, "'time' has no dimensions, .* dimension of t"),
    "dimension named like a scalar": (rows(5, m=("s", [1.0])), {}, "'s' has no dimensions, .* dimension of m"),
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("case", UNFIT)
def test_new_variables_that_do_not_fit_the_stored_ones_are_refused(case, zarr_format, tmp_path):
    ds = xr.Dataset({"t": ("time", np.arange(5.0)), "u": ("y", [1.0, 2.0]), "s": ((), 1)})
    write(ds, tmp_path, zarr_format=zarr_format)
    before = contents(zellige.LocalStore(tmp_path))
    new, options, words = UNFIT[case]
    with pytest.raises(ValueError, match=words):
        write(new, tmp_path, mode="a", **options)
    assert contents(zellige.LocalStore(tmp_path)) == before
    xr.testing.assert_identical(opened(tmp_path), ds)


def test_the_error_of_a_variable_that_does_not_fit_says_what_to_do(tmp_path):
    write(rows(5).rename(n="t"), tmp_path)
    with pytest.raises(zellige.errors.DatasetError, match=r"append_dim='time'.* another name") as caught:
        write(rows(6), tmp_path, mode="a")
    assert caught.value.dimension == "time"
    assert caught.value.lengths == {5: ["t"], 6: ["n"]}
    write(rows(6).rename(time="later"), tmp_path, mode="a")
    assert opened(tmp_path).sizes == {"time": 5, "later": 6}


def place_of(path: str, ds: xr.Dataset) -> xr.DataTree:
    return xr.DataTree.from_dict({path: ds})


TIMES = np.arange(5)
MISALIGNED: dict[str, tuple[Any, dict[str, Any], str]] = {  # of a root with 5 times, and a group with 4 places below
    "group": (rows(6), {"group": "sub"}, r"'n' of group '/sub' .* 6 .* 'time', .* group '/' has 5 \(time\)"),
    "replaced": (rows(6), {"group": "below", "mode": "w"}, r"group '/below' .* 6 .* 'time', .* '/' has 5 \(time\)"),
    "in a group": (rows(6), {"group": "below", "mode": "a"}, r"group '/below' .* 6 .* 'time', .* '/' has 5 \(time\)"),
    "two levels": (rows(6), {"group": "p/q"}, r"'n' of group '/p/q' .* 6 .* 'time', .* group '/' has 5"),
    "above": (
        xr.Dataset({"n": ("place", np.zeros(3))}),
        {"mode": "a"},
        r"'v' of group '/below' has 4 .* 'place', .* group '/' has 3 \(n\)",
    ),
    "tree": (place_of("/sub", rows(6)), {"mode": "a"}, r"'n' of group '/sub' .* 6 .* 'time', .* group '/' has 5"),
    "tree that grows": (
        xr.DataTree.from_dict({"/": xr.Dataset({"t": ("time", np.ones(5))}, {"time": TIMES + 5}), "/sub": rows(5)}),
        {"append_dim": "time"},
        r"'n' of group '/sub' has 5 .* 'time', .* group '/' has 10",
    ),
    "other labels": (
        xr.Dataset(coords={"time": TIMES + 1}),
        {"group": "sub"},
        "coordinate 'time' of group '/sub' .* that of group '/'",
    ),
    "other labels above": (
        xr.Dataset(coords={"place": list("abcx")}),
        {"mode": "a"},
        "coordinate 'place' of group '/below' .* that of group '/'",
    ),
}


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("case", MISALIGNED)
def test_new_variables_with_which_a_tree_would_not_open_are_refused(case, consolidated, tmp_path):
    root = xr.Dataset({"t": ("time", np.arange(5.0))}, {"time": TIMES})
    below = xr.Dataset({"v": ("place", np.arange(4.0))}, {"place": list("abcd")})
    write(xr.DataTree.from_dict({"/": root, "/below": below}), tmp_path, consolidated=consolidated)
    before = contents(zellige.LocalStore(tmp_path))
    new, options, words = MISALIGNED[case]
    with pytest.raises(zellige.errors.DatasetError, match=words):
        write(new, tmp_path, consolidated=consolidated, **options)
    assert contents(zellige.LocalStore(tmp_path)) == before
    # What fits is written, and groups are appended to one after the other.
    write(rows(5).assign_coords(time=TIMES), tmp_path, group="sub", consolidated=consolidated)
    write(xr.Dataset({"w": ("place", np.zeros(4))}), tmp_path, mode="a", consolidated=consolidated)
    xr.open_datatree(tmp_path, engine=ZelligeBackend)
    for group, name in {"": "t", "sub": "n"}.items():
        later = xr.Dataset({name: ("time", np.ones(5))}, {"time": TIMES + 5})
        write(later, tmp_path, group=group, append_dim="time", consolidated=consolidated)
    assert xr.open_datatree(tmp_path, engine=ZelligeBackend)["sub"].sizes["time"] == 10


# -- checks ---------------------------------------------------------------------------------------


def test_a_warning_of_rectilinear_chunks_comes_only_with_consolidated_true(tmp_path):
    ds = daily(end="2021-03-31")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = write(ds, tmp_path / "a", chunks={"time": "month"})
        write(daily("2021-04-01", "2021-04-30"), tmp_path / "a", append_dim="time", chunks={"time": "month"})
    assert root.metadata.consolidated is not None
    with pytest.warns(zellige.errors.CompatibilityWarning, match="'mean', 't'"):
        write(ds, tmp_path / "b", chunks={"time": "month"}, consolidated=True)


def test_everything_is_checked_before_anything_is_written():
    ds = daily(end="2021-01-10")
    root = write(ds, {})
    bad = {
        "has 9 elements along 'time'": (ds.isel(time=slice(9)), {"mode": "a"}),
        "has the dimensions": (ds.assign(mean=("x", [1.0, 2, 3])), {"mode": "a"}),
        "already, and keeps": (ds, {"mode": "a", "encoding": {"t": {"dtype": "f4"}}}),
        "no variable 'u'": (ds, {"mode": "w", "encoding": {"u": {}}}),
        "no dimension 'y'": (ds, {"mode": "w", "chunks": {"y": 3}}),
        "edges of 'time' sum to 9": (ds, {"mode": "w", "chunks": {"time": [4, 5]}}),
        "one shape only": (ds, {"mode": "w", "chunks": {"time": [1, 9]}, "zarr_format": 2}),
        "names must be strings": (ds.rename(mean=3), {"mode": "w"}),
        "without '/'": (_renamed("a/b"), {"mode": "w"}),
        "has the format 3": (ds, {"mode": "a", "zarr_format": 2}),
        "must be one of": (ds, {"mode": "x"}),
        "give one of them": (ds, {"append_dim": "time", "region": "auto"}),
        "adds to what is there": (ds, {"append_dim": "time", "mode": "w"}),
        "changes what is there": (ds, {"region": "auto", "mode": "w"}),
        "attributes.bad": (ds.assign_attrs(bad=object()), {"mode": "w"}),
    }
    before = contents(root.store)
    for message, (data, options) in bad.items():
        with pytest.raises((ValueError, TypeError), match=message):
            write(data, root, **options)
        assert contents(root.store) == before, message
    with pytest.raises(TypeError, match="expected a Dataset"):
        write(np.arange(3), root, mode="w")


def _renamed(name: str) -> xr.Dataset:
    ds = xr.Dataset({"v": ("x", [1])})
    ds._variables[name] = ds._variables.pop("v")  # newer versions of xarray refuse such names themselves
    return ds


@pytest.mark.parametrize("chunks", [None, {}], ids=["lazy", "dask"])
def test_a_dataset_does_not_replace_what_it_is_read_from(chunks, tmp_path):
    ds = daily(end="2021-01-10")
    write(ds, tmp_path)
    with pytest.raises(ValueError, match="would remove first"):
        write(opened(tmp_path, chunks=chunks) * 1 if chunks is not None else opened(tmp_path), tmp_path, mode="w")
    xr.testing.assert_identical(opened(tmp_path), ds)
    write(opened(tmp_path, chunks=chunks).load(), tmp_path, mode="w")
    xr.testing.assert_identical(opened(tmp_path), ds)


SELECTIONS: dict[str, Any] = {
    "slice": lambda ds: ds.isel(time=slice(2, 5)),
    "integer": lambda ds: ds.isel(time=3),
    "list": lambda ds: ds.isel(time=[0, 2, 3]),
    "mask": lambda ds: ds.isel(time=np.arange(10) % 2 == 0),
    "labels": lambda ds: ds.sel(time=["2021-01-03", "2021-01-07"], x=[0, 2]),
    "points": lambda ds: ds.isel(time=xr.DataArray([0, 2], dims="p"), x=xr.DataArray([0, 2], dims="p")),
    "transposed": lambda ds: ds.transpose("x", "time").isel(x=[1, 0]),
    "backwards": lambda ds: ds.sortby("time", ascending=False),
}


@pytest.mark.parametrize("engine", [ZelligeBackend, "zarr"], ids=["ours", "theirs"])
@pytest.mark.parametrize("mode", ["w", "w-"])
@pytest.mark.parametrize("how", SELECTIONS)
def test_what_is_selected_of_a_lazy_dataset_is_written_elsewhere_and_not_to_where_it_is_read(
    how, mode, engine, tmp_path
):
    ds, select = daily(end="2021-01-10"), SELECTIONS[how]
    write(ds, tmp_path / "a.zarr")
    write(select(xr.open_dataset(tmp_path / "a.zarr", engine=engine)), tmp_path / "b.zarr", mode=mode)
    xr.testing.assert_identical(opened(tmp_path / "b.zarr"), select(ds))
    with pytest.raises(ValueError, match="would remove first"):
        write(select(xr.open_dataset(tmp_path / "a.zarr", engine=engine)), tmp_path / "a.zarr", mode="w")
    xr.testing.assert_identical(opened(tmp_path / "a.zarr"), ds)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "read",
    [
        xr.open_zarr,
        lambda place: xr.open_dataset(place, engine="zarr", chunks={}),
        lambda place: xr.open_dataset(place, engine="zarr"),
        lambda place: xr.Dataset({"a": ("x", da.from_zarr(str(place), component="a"))}),
        lambda place: xr.Dataset({"a": ("x", da.from_zarr(os.path.relpath(place), component="a") + 1)}),
    ],
)
def test_a_dataset_does_not_replace_what_zarr_python_reads_it_from(read, zarr_format, tmp_path):
    ds = xr.Dataset({"a": ("x", np.arange(1.0, 7.0))})
    write(ds, tmp_path / "x.zarr", zarr_format=zarr_format, chunks={"x": 2})
    with pytest.raises(ValueError, match="would remove first"):
        write(read(tmp_path / "x.zarr"), tmp_path / "x.zarr", mode="w")
    assert zellige.load(tmp_path / "x.zarr", path="a").tolist() == [1, 2, 3, 4, 5, 6]


# -- computing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [None, {}])
def test_a_dataset_is_not_removed_with_the_group_above_it(tmp_path, chunks):
    data = xr.Dataset({"a": ("x", np.arange(6))})
    data.zellige.write(tmp_path / "x.zarr", group="g", consolidated=False)
    read = xr.open_dataset(tmp_path / "x.zarr" / "g", engine="zellige", chunks=chunks)
    for store, group in ((tmp_path / "x.zarr", None), (tmp_path / "x.zarr", "g"), (tmp_path / "x.zarr" / "g", None)):
        with pytest.raises(ValueError, match="would remove first"):
            read.zellige.write(store, group=group, mode="w")
    assert zellige.load(tmp_path / "x.zarr", path="g/a").tolist() == list(range(6))


def test_later_is_later():
    store = zellige.MemoryStore()
    ds = daily(end="2021-01-10").chunk(time=(4, 6))
    later = write(ds, store, compute=False)
    assert np.isnan(opened(store, consolidated=False)["t"].values).all()
    dask.compute(later)
    xr.testing.assert_identical(opened(store, consolidated=True), ds.compute())


def test_progress_is_shown(capsys):
    ds = daily(end="2021-01-10").chunk(time=(4, 6))
    write(ds, {}, progress=True)
    assert "100%" in capsys.readouterr().out
    done = []
    write(ds, {}, progress=Callback(posttask=lambda key, *_: done.append(key)))
    assert len(done) >= 4


def test_no_two_tasks_write_to_one_chunk():
    store = CountingStore()
    write(daily(end="2021-01-30").chunk(time=(7, 14, 9)), store)
    store.reset()
    with pytest.warns(zellige.dask.AlignmentWarning, match="3 blocks were rechunked to 3"):
        write(daily(end="2021-01-30").chunk(time=10) + 1, store, mode="r+")
    written = [key for key in store.keys(*WRITES) if "/c/" in key]
    assert sorted(written) == sorted({*written})
    assert not [key for key in store.keys("get") if key.startswith("t/c/")]  # whole chunks: nothing is read
    xr.testing.assert_equal(opened(store), daily(end="2021-01-30") + 1)


def test_misaligned_blocks_lose_nothing_even_if_they_are_left(tmp_path):
    write(daily(end="2021-01-30").chunk(time=(7, 14, 9)), tmp_path)
    write(daily(end="2021-01-30").chunk(time=4) + 1, tmp_path, mode="r+", align=False)
    xr.testing.assert_equal(opened(tmp_path), daily(end="2021-01-30") + 1)


def test_every_way_of_cutting_reads_back(tmp_path):
    ds = daily(end="2021-01-12")
    sizes = [(12,), (5, 7), (1, 10, 1), (4, 4, 4)]
    for k, (blocks, stored) in enumerate(itertools.product(sizes, sizes)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zellige.dask.AlignmentWarning)
            root = write(ds.chunk(time=blocks), tmp_path / str(k), chunks={"time": stored})
        assert root["t"].write_chunk_sizes[0] == stored
        xr.testing.assert_identical(opened(root), ds)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"encoding": 5}, "encoding must be a mapping"),
        ({"encoding": {"t": "int16"}}, r"encoding\['t'\] must be a mapping"),
        ({"chunks": 2.5}, "must be a size, edges"),
        ({"chunks": {"x": [1.5, 1.5]}}, "must be a size, edges"),
        ({"chunks": {"x": [2, "a"]}}, "must be a size, edges"),
        ({"chunks": {"x": ("month",)}}, "must be a size, edges"),
        ({"group": 5}, "a path within a store is a string"),
    ],
    ids=str,
)
def test_arguments_of_another_kind_are_named(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        xr.Dataset({"t": ("x", [1.0, 2.0, 3.0])}).zellige.write({}, **options)


# -- refused writes -------------------------------------------------------------------------------


def paths_below(folder) -> set[str]:
    """Everything in a directory, directories as well."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


REFUSED = {
    "no such dimension": (everything(), {"chunks": {"zz": 3}}),
    "an unknown encoding": (everything(), {"encoding": {"wind": {"colour": "blue"}}}),
    "values that do not fit": (everything(), {"encoding": {"count": {"dtype": "int8", "_FillValue": 3}}}),
    "blocks that do not fit": (everything()[["count"]].chunk(), {"encoding": {"count": {"_FillValue": 3}}}),
    "an attribute": (everything().assign_attrs(bad=object()), {}),
    "an array above it": (everything(), {"group": "v/g/h"}),
    "nothing to change": (everything(), {"mode": "r+"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_write_leaves_no_directory(case, tmp_path):
    ds, options = REFUSED[case]
    if "group" in options:
        zellige.create_array(tmp_path / "d.zarr", name="v", data=np.arange(3))
    for place in ("d.zarr", "a/b/d.zarr") if "group" not in options else ("d.zarr",):
        before = paths_below(tmp_path)
        with pytest.raises((ValueError, TypeError, OSError)):
            write(ds, tmp_path / place, **options)
        assert paths_below(tmp_path) == before


def test_a_refused_write_leaves_what_was_there(tmp_path):
    (tmp_path / "d.zarr").mkdir()
    (tmp_path / "d.zarr" / "notes.txt").write_text("mine")
    (tmp_path / "empty.zarr").mkdir()
    before = paths_below(tmp_path)
    for place in ("d.zarr", "empty.zarr", "d.zarr/below"):
        with pytest.raises(ValueError, match="unknown encoding"):
            write(everything(), tmp_path / place, encoding={"wind": {"colour": "blue"}})
        assert paths_below(tmp_path) == before


def test_mode_w_removes_the_old_dataset_before_blocks_are_computed(tmp_path):
    def fail(block):
        raise RuntimeError("no data")

    write(everything(), tmp_path / "d.zarr")
    blocks = everything()[["wind"]].chunk()
    failing = blocks.assign(wind=blocks.wind.copy(data=blocks.wind.data.map_blocks(fail, dtype="f4", meta=np.empty(0))))
    with pytest.raises(RuntimeError, match="no data"):
        write(failing, tmp_path / "d.zarr", mode="w")
    with pytest.raises(zellige.errors.GroupNotFoundError):
        opened(tmp_path / "d.zarr")
    write(everything(), tmp_path / "d.zarr")  # nothing is in the way
    xr.testing.assert_identical(opened(tmp_path / "d.zarr"), everything())


class _Missing:
    """A library that is not installed."""

    def __call__(self, *_: object) -> object:
        raise ImportError("codec 'zfp' needs zfpy: pip install zfpy")


FLOATS = np.array([1.0, 2.5, 300.0])
SCALED = {"offset": 0, "scale": 10, "dtype": "<f8", "astype": "|u1"}
UNENCODABLE: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a library that lacks": (FLOATS, {"serializer": {"name": "zfp", "configuration": {"mode": "reversible"}}}, "zfpy"),
    "integers beyond their type": (
        np.array([1, 2, 120], "i1"),
        {"filters": [{"name": "scale_offset", "configuration": {"offset": -100, "scale": 1}}]},
        "array '/v', .* 120 becomes 220, beyond int8",
    ),
    "floats beyond integers": (
        FLOATS,
        {"filters": [{"name": "numcodecs.fixedscaleoffset", "configuration": SCALED}]},
        "array '/v', .* 300.0 becomes 3000.0, beyond uint8",
    ),
    "a chunk within a shard": (
        np.array([1, 2, 120], "i1"),
        {
            "filters": [{"name": "scale_offset", "configuration": {"offset": -100, "scale": 1}}],
            "chunks": (1,),
            "shards": (3,),
        },
        "120 becomes 220, beyond int8",
    ),
    "format 2": (
        np.array([1, 2, 30000], "i4"),
        {"filters": [{"id": "delta", "dtype": "<i4", "astype": "|i1"}]},
        "differences that int8 cannot hold",
    ),
}


@pytest.mark.parametrize("case", UNENCODABLE)
def test_mode_w_keeps_the_old_dataset_if_a_codec_refuses_the_new_one(case, tmp_path, monkeypatch):
    values, encoding, message = UNENCODABLE[case]
    monkeypatch.setattr("zellige.codecs.zfp.library", _Missing())
    write(everything(), tmp_path / "d.zarr")
    before = paths_below(tmp_path)
    form = 2 if case == "format 2" else 3
    ds = xr.Dataset({"a": ("x", [1, 2, 3]), "v": ("x", values)})
    with pytest.raises((ImportError, zellige.errors.EncodeError), match=message):
        write(ds, tmp_path / "d.zarr", mode="w", zarr_format=form, encoding={"v": encoding})
    assert paths_below(tmp_path) == before
    xr.testing.assert_identical(opened(tmp_path / "d.zarr"), everything())


def test_mode_w_keeps_the_old_dataset_if_blocks_need_a_library_that_lacks(tmp_path, monkeypatch):
    encoding = UNENCODABLE["a library that lacks"][1]
    monkeypatch.setattr("zellige.codecs.zfp.library", _Missing())
    write(everything(), tmp_path / "d.zarr")
    with pytest.raises(ImportError, match="variable 'v': codec 'zfp' needs zfpy"):
        write(xr.Dataset({"v": ("x", FLOATS)}).chunk(), tmp_path / "d.zarr", mode="w", encoding={"v": encoding})
    xr.testing.assert_identical(opened(tmp_path / "d.zarr"), everything())


@pytest.mark.parametrize("blocks", [None, {"x": 2}], ids=["numpy", "dask"])
def test_mode_w_replaces_what_its_codecs_take(blocks, tmp_path):
    encoding = {"v": {"filters": [{"name": "scale_offset", "configuration": {"offset": 1, "scale": 2}}]}}
    ds = xr.Dataset({"v": (("x", "y"), np.arange(15, dtype="i4").reshape(5, 3) + 1), "s": ((), 3), "w": ("z", [])})
    for _ in range(2):
        write(ds if blocks is None else ds.chunk(blocks), tmp_path, mode="w", encoding=encoding, chunks={"x": 2})
        xr.testing.assert_identical(opened(tmp_path), ds)


# -- what an error says ---------------------------------------------------------------------------


def test_attributes_that_would_have_one_name_are_refused():
    store = zellige.MemoryStore()
    for ds, owner in (
        (xr.Dataset(attrs={1: 2, "1": 3}), "group '/'"),
        (xr.Dataset({"v": ("x", [1], {"1": 2, 1: 3})}), "variable 'v'"),
    ):
        with pytest.raises(ValueError, match=f"{owner}: more than one attribute would have the name '1'.*rename"):
            write(ds, store)
    assert contents(store) == {}
    write(xr.Dataset(attrs={1: 2}), store)
    assert opened(store).attrs == {"1": 2}


def numbers(**encoding) -> xr.Dataset:
    """Ten days of a variable named "v"."""
    time = pd.date_range("2024-01-01", periods=10)
    return xr.Dataset({"v": ("time", np.arange(10.0), {}, encoding)}, {"time": time})


BAD_ENCODINGS = {
    "no type": ({"dtype": "int17"}, "dtype='int17' is no type of numpy"),
    "a type of another kind": ({"dtype": 7.5}, "dtype=7.5 is no type of numpy"),
    "a fill value": ({"dtype": "int16", "_FillValue": np.nan}, "cannot convert float NaN to integer; choose"),
    "text as a fill value": ({"_FillValue": "abc"}, "could not convert string to float: 'abc'; choose"),
    "text as a factor": ({"dtype": "int16", "scale_factor": "x"}, "cannot be encoded with .*'scale_factor': 'x'"),
    "a chunk of nothing": ({"chunks": (0,)}, "a chunk size must be at least 1"),
    "a codec": ({"compressors": "nope"}, "codec 'nope' is not known"),
}


@pytest.mark.parametrize("case", BAD_ENCODINGS)
def test_errors_of_an_encoding_name_the_variable(case):
    encoding, message = BAD_ENCODINGS[case]
    with pytest.raises((ValueError, TypeError), match=f"variable 'v'.*{message}"):
        write(numbers(), {}, encoding={"v": encoding})


def test_errors_of_times_name_the_variable():
    for encoding, message in (({"units": "hours since bar"}, "bar"), ({"calendar": "foo"}, "calendar must be one of")):
        with pytest.raises(ValueError, match=f"variable 'time' .*{message}.*; choose"):
            write(numbers(), {}, encoding={"time": encoding})


@pytest.mark.parametrize("value", [b"x", datetime.date(2024, 1, 1), {1, 2}], ids=str)
def test_errors_of_attributes_name_the_variable(value):
    ds = numbers()
    ds.v.attrs["b"] = value
    with pytest.raises(zellige.errors.MetadataError, match=r"variable 'v': attributes\.b must be"):
        write(ds, {})


TYPES_OF_PANDAS = {
    "category": (xr.Dataset({"v": ("x", pd.Categorical(["a", "b"]))}), r"astype\(str\), or its codes"),
    "nullable": (xr.Dataset({"v": ("x", pd.array([1, None], dtype="Int64"))}), "as a type of numpy"),
    "interval": (xr.Dataset(coords={"v": pd.IntervalIndex.from_breaks([0, 1, 2])}), "as a type of numpy"),
}


@pytest.mark.parametrize("case", TYPES_OF_PANDAS)
def test_types_of_pandas_are_refused_with_the_variable(case):
    ds, remedy = TYPES_OF_PANDAS[case]
    if isinstance(ds["v"].dtype, np.dtype):
        pytest.skip("this version of xarray holds it as a type of numpy")
    with pytest.raises(
        TypeError, match=f"variable 'v' has the type .* of pandas, which Zarr does not have; store .*{remedy}"
    ):
        write(ds, {})


@pytest.mark.parametrize("size", ["0D", "-1D", ("month", "0h"), True, False, 0, -2, 2.5, [True, 9]], ids=str)
def test_chunks_that_are_no_sizes_are_refused(size):
    with pytest.raises(ValueError, match=r"chunks: .*'time'.*(is not above 0|must be a size, edges)"):
        write(numbers(), {}, chunks={"time": size})


@pytest.mark.parametrize("size", [10**16, [10**16]], ids=["a size", "edges"])
def test_a_chunk_that_no_memory_holds_is_refused(size):
    with pytest.raises(zellige.errors.ChunkShapeError, match=r"variable 'v': a chunk .* more than the memory of this"):
        write(numbers(), {}, chunks={"time": size})
    assert write(numbers(), {}, chunks={"time": 1000})["v"].chunks == (1000,)


@pytest.mark.parametrize("name", ["align", "compute", "consolidated", "write_inherited_coords", "progress"])
def test_words_are_no_switches(name):
    with pytest.raises(TypeError, match=f"{name}='no' must be True"):
        write(numbers(), {}, **{name: "no"})
