"""The engine: what it reads equals what xarray's own engine reads, and what numpy indexes."""

from __future__ import annotations

import asyncio
import copy
import importlib.metadata
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import xarray as xr
import zarr
import zellige
from counting_store import READS, CountingStore
from xarray_data import OTHERS_SAY, chunked, daily, everything, install_engine, opened
from zellige.xarray import ZelligeBackend, write

pytestmark = [pytest.mark.filterwarnings(f"ignore:.*{words}") for words in OTHERS_SAY]


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def by_xarray(request, tmp_path):
    """A store that xarray and zarr-python wrote."""
    chunked(everything(), time=8).to_zarr(tmp_path / "theirs.zarr", zarr_format=request.param)
    return tmp_path / "theirs.zarr"


def test_what_xarray_wrote_reads_as_its_own_engine_reads_it(by_xarray):
    ours, theirs = opened(by_xarray), xr.open_dataset(by_xarray, engine="zarr")
    xr.testing.assert_identical(ours, theirs)
    assert {k: v.dtype for k, v in ours.variables.items()} == {k: v.dtype for k, v in theirs.variables.items()}
    assert set(ours.coords) == set(theirs.coords)
    compared = 0
    for name, variable in theirs.variables.items():
        keys = {"chunks", "preferred_chunks", "shards", "units", "scale_factor", "_FillValue", "fill_value"}
        for key in keys & variable.encoding.keys():  # older versions have no fill_value, and nothing for strings
            np.testing.assert_equal(ours[name].encoding.get(key), variable.encoding[key], err_msg=f"{name} {key}")
            compared += 1
    assert compared > 30


def test_raw_values_are_those_of_xarrays_own_engine(by_xarray):
    ours = opened(by_xarray, decode_cf=False)
    theirs = xr.open_dataset(by_xarray, engine="zarr", decode_cf=False)
    xr.testing.assert_identical(ours, theirs)


def test_what_it_opens_can_be_written_by_xarray(tmp_path):
    source = everything().drop_vars(["names", "fixed"])
    write(source, tmp_path / "a.zarr", encoding={"count": {"chunks": (7,), "compressors": "gzip"}})
    opened(tmp_path / "a.zarr").to_zarr(tmp_path / "b.zarr")
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "b.zarr", engine="zarr"), source)
    assert zellige.open_array(tmp_path / "b.zarr", path="count").compressors[0].name == "gzip"


@pytest.mark.parametrize("consolidated", [None, False])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_data_arrays_without_a_name_are_found(zarr_format, consolidated, tmp_path):
    array = xr.DataArray([1, 2], dims="x")
    unnamed = array.to_dataset(name="__xarray_dataarray_variable__")
    unnamed.to_zarr(tmp_path / "theirs", zarr_format=zarr_format)
    write(unnamed, tmp_path / "ours", zarr_format=zarr_format)
    for place in (tmp_path / "theirs", tmp_path / "ours"):
        for engine in (ZelligeBackend, "zarr"):
            found = xr.open_dataarray(place, engine=engine, backend_kwargs={"consolidated": consolidated})
            xr.testing.assert_identical(found, array)


# -- chunks and indices ---------------------------------------------------------------------------


def uneven(store=None) -> zellige.Group:
    root = zellige.group(store)
    data = np.arange(20 * 9).reshape(20, 9)
    root.create_array("v", data=data, chunks=[[3, 10, 7], [4, 5]], dimension_names=["y", "x"])
    root.create_array("w", data=data[:, 0], chunks=[[1, 1, 18]], dimension_names=["z"])
    return root


def test_chunks_are_exactly_the_stored_ones():
    ds = opened(uneven(), chunks={})
    assert ds.v.data.chunks == ((3, 10, 7), (4, 5))
    assert ds.w.data.chunks == ((1, 1, 18),)
    assert ds.v.encoding["preferred_chunks"] == {"y": (3, 10, 7), "x": (4, 5)}
    assert np.array_equal(ds.v.values, np.arange(180).reshape(20, 9))


def test_chunk_sizes_of_an_array_are_chunks_for_xarray(tmp_path):
    write(daily(), tmp_path, chunks={"time": "month"})
    array = zellige.open_array(tmp_path, path="t")
    sizes = dict(zip(array.dimension_names, array.write_chunk_sizes, strict=True))
    assert opened(tmp_path)["t"].chunk(sizes).chunks == array.write_chunk_sizes


def test_other_chunks_are_those_asked_for():
    with pytest.warns(UserWarning, match="separate the stored chunks"):
        ds = opened(uneven(), chunks={"y": 10, "x": 9})
    assert ds.v.data.chunks == ((10, 10), (9,))
    assert np.array_equal(ds.v.values, np.arange(180).reshape(20, 9))


def test_shards_read_by_their_inner_chunks_as_in_xarrays_own_engine(tmp_path):
    zellige.create_group(tmp_path).create_array(
        "v", data=np.arange(24), chunks=2, shards=[[8, 12, 4]], dimension_names=["x"]
    )
    ds = opened(tmp_path, chunks={})
    assert ds.chunks["x"] == (2,) * 12
    assert ds.v.encoding["shards"] == ((8, 12, 4),)
    assert np.array_equal(ds.v, np.arange(24))


def test_more_chunks_than_can_be_listed_are_opened():
    """Of the same size but for the last one, of two sizes, and of inner chunks that do not divide their shards."""
    many, root = 10**12, zellige.group()
    options = {"dtype": "int8", "dimension_names": ["x"], "config": {"uneven_inner_chunks": True}}
    root.create_array("same", shape=many, chunks=[[[7, many]]], **options)
    root.create_array("two", shape=many, chunks=[[[7, 10**10], [5, many]]], **options)
    root.create_array("inner", shape=many, chunks=3, shards=10, **options)
    ds = opened(root.store)
    assert ds.same.encoding["chunks"] == (7,)
    assert ds.two.encoding["chunks"][0][10**10 - 1 : 10**10 + 1] == (7, 5)
    assert ds.inner.encoding["chunks"][0][:5] == (3, 3, 3, 1, 3)
    assert ds.two[-3:].values.tolist() == [0, 0, 0]


def test_inner_chunks_that_do_not_divide_their_shards_are_chunks(tmp_path):
    allowed = {"uneven_inner_chunks": True}
    zellige.create_group(tmp_path).create_array(
        "v", data=np.arange(25), chunks=4, shards=10, dimension_names=["x"], config=allowed
    )
    ds = opened(tmp_path, chunks={})
    assert ds.chunks["x"] == (4, 4, 2, 4, 4, 2, 4, 1)
    assert ds.v.encoding["shards"] == (10,)
    assert np.array_equal(ds.v, np.arange(25))


INDEXERS = {
    "basic": {"y": 4, "x": slice(1, None, 3)},
    "backwards": {"y": slice(None, None, -2), "x": slice(7, 2, -1)},
    "outer": {"y": [19, 0, 3, 3], "x": [8, 1]},
    "mixed": {"y": np.array([1, 12]), "x": slice(2, 6)},
    "vectorised": {"y": xr.DataArray([0, 5, 19], dims="p"), "x": xr.DataArray([8, 0, 4], dims="p")},
    "vectorised, one axis": {"y": xr.DataArray([[0, 5], [19, 2]], dims=("p", "q"))},
    "empty": {"y": slice(5, 5)},
    "scalar": {"y": 3, "x": -1},
}


@pytest.mark.parametrize("chunks", [None, {}], ids=["numpy", "dask"])
@pytest.mark.parametrize("indexers", INDEXERS.values(), ids=INDEXERS)
def test_every_kind_of_index_is_lazy_and_equals_numpy(indexers, chunks):
    model = xr.Dataset({"v": (("y", "x"), np.arange(180).reshape(20, 9))})
    ds = opened(uneven(), chunks=chunks)
    found, expected = ds.v.isel(indexers), model.v.isel(indexers)
    assert found.dims == expected.dims
    assert np.array_equal(found.values, expected.values)
    twice = found.isel({found.dims[0]: slice(None, None, 2)}) if found.dims else found
    assert np.array_equal(twice, expected.isel({expected.dims[0]: slice(None, None, 2)}) if expected.dims else expected)


def test_one_element_reads_one_chunk():
    store = CountingStore(uneven().store)
    ds = opened(store)
    store.reset()
    assert ds.v.isel(y=5, x=5).item() == 50
    assert [key for key in store.keys(*READS) if "/c/" in key] == ["v/c/1/1"]


def test_load_async_loads_the_same():
    ds = opened(uneven())
    if not hasattr(ds, "load_async"):
        pytest.skip(f"xarray {xr.__version__} has no load_async")
    asyncio.run(ds.load_async())
    assert np.array_equal(ds.v.values, np.arange(180).reshape(20, 9))
    picked = opened(uneven()).v.isel(y=[3, 1], x=slice(0, 2))
    asyncio.run(picked.load_async())
    assert np.array_equal(picked.values, np.arange(180).reshape(20, 9)[[3, 1], :2])


# -- places and groups ----------------------------------------------------------------------------


def test_a_place_may_be_a_path_a_store_a_group_or_a_dict(tmp_path):
    write(daily(end="2021-01-10"), tmp_path / "a.zarr")
    expected = opened(str(tmp_path / "a.zarr")).load()
    assert expected.sizes["time"] == 10
    store = zellige.LocalStore(tmp_path / "a.zarr")
    mapping = {key: store.get(key) for key in store.list()}
    for place in (tmp_path / "a.zarr", store, zellige.open_group(store), mapping, f"file://{tmp_path}/a.zarr"):
        xr.testing.assert_identical(opened(place), expected)


def test_groups_are_opened_alone_or_as_a_tree(tmp_path):
    parts = {
        "/": xr.Dataset({"a": 1}),
        "/x": xr.Dataset({"b": ("u", [1, 2])}),
        "/x/y": xr.Dataset({"c": ("u", [3, 4])}),
    }
    tree = xr.DataTree.from_dict(parts)
    tree.to_zarr(tmp_path / "t.zarr", zarr_format=3)
    xr.testing.assert_identical(opened(tmp_path / "t.zarr", group="x"), parts["/x"])
    xr.testing.assert_identical(opened(tmp_path / "t.zarr", group="/x/y"), parts["/x/y"])
    xr.testing.assert_identical(xr.open_datatree(tmp_path / "t.zarr", engine=ZelligeBackend), tree)
    found = xr.open_groups(tmp_path / "t.zarr", engine=ZelligeBackend)
    assert list(found) == ["/", "/x", "/x/y"]
    below = xr.open_datatree(tmp_path / "t.zarr", engine=ZelligeBackend, group="x")
    xr.testing.assert_identical(below.to_dataset(), parts["/x"])
    assert "y" in below.children


def test_a_group_below_a_root_that_is_none_is_found(tmp_path):
    zellige.create_group(tmp_path / "a" / "b").create_array("v", data=[1, 2], dimension_names=["x"])
    assert opened(tmp_path / "a", group="b").v.values.tolist() == [1, 2]
    with pytest.raises(FileNotFoundError, match="no group at '/c'"):
        opened(tmp_path / "a", group="c")


def test_nothing_there_is_a_missing_file_and_stays_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="no group"):
        opened(tmp_path / "none.zarr")
    assert not (tmp_path / "none.zarr").exists()


def test_a_dataset_opens_in_the_state_in_which_it_was_consolidated(tmp_path):
    ds = xr.Dataset({"v": ("t", np.arange(3.0)), "w": ("t", np.arange(3.0))})
    ds.to_zarr(tmp_path, consolidated=True)
    zarr.open_group(tmp_path, use_consolidated=False)["v"].append(np.array([9.0]))
    xr.testing.assert_identical(opened(tmp_path).load(), ds)
    with pytest.raises(zellige.errors.DatasetError, match="3: w; 4: v"):
        opened(tmp_path, consolidated=False)
    assert any(found.kind == "consolidated" for found in zellige.validate(tmp_path).findings)


def test_consolidated_metadata_is_read_in_one_request_and_can_be_ignored_or_demanded(tmp_path):
    write(daily(end="2021-01-10"), tmp_path)
    store = CountingStore(zellige.LocalStore(tmp_path))
    opened(store)
    assert [key for key in store.keys(*READS) if key.endswith("zarr.json")] == ["zarr.json"]
    store.reset()
    opened(store, consolidated=False)
    assert {"t/zarr.json", "mean/zarr.json"} <= set(store.keys(*READS))
    write(daily(end="2021-01-10"), tmp_path / "not", consolidated=False)
    with pytest.raises(ValueError, match="no consolidated metadata"):
        opened(tmp_path / "not", consolidated=True)


def test_dropped_variables_are_not_even_looked_at():
    root = uneven()
    root.store.put("w/zarr.json", root.store.get("w/zarr.json").replace(b"int64", b"unknown"))
    with pytest.warns(zellige.errors.BrokenNodeWarning, match="w"):
        assert list(opened(root)) == ["v"]
    assert list(opened(uneven(), drop_variables="v")) == ["w"]
    assert list(opened(uneven(), drop_variables=["v", "w"])) == []


def test_storage_options_reach_the_store(tmp_path):
    write(daily(end="2021-01-10"), tmp_path)
    with pytest.raises(ValueError, match="storage_options"):
        opened(tmp_path, storage_options={"anon": True})


# -- names of axes, fill values -------------------------------------------------------------------


def test_axes_without_names_get_one_for_each_length():
    root = zellige.group()
    root.create_array("a", shape=(3, 4))
    root.create_array("b", shape=(4, 4, 3))
    root.create_array("c", shape=(5, 3), dimension_names=["phony_dim_0", None])
    ds = opened(root)
    dims = {name: ds[name].dims for name in "abc"}
    assert dims["a"] == ("phony_dim_1", "phony_dim_2")
    assert dims["b"] == ("phony_dim_2", "phony_dim_3", "phony_dim_1")
    assert dims["c"] == ("phony_dim_0", "phony_dim_1")
    assert ds.sizes == {"phony_dim_0": 5, "phony_dim_1": 3, "phony_dim_2": 4, "phony_dim_3": 4}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_values_mask_in_format_2_and_only_attributes_do_in_format_3(zarr_format):
    root = zellige.group(zarr_format=zarr_format)
    root.create_array("v", data=np.array([1, 7, 3]), fill_value=7, dimension_names=["x"])
    assert np.isnan(opened(root).v.values[1]) == (zarr_format == 2)
    assert np.isnan(opened(root, use_zarr_fill_value_as_mask=True).v.values[1])
    assert opened(root, use_zarr_fill_value_as_mask=False).v.values.tolist() == [1, 7, 3]
    assert opened(root, mask_and_scale=False).v.values.tolist() == [1, 7, 3]


# -- copies, other processes, the entry point -----------------------------------------------------


@pytest.mark.parametrize("engine", [ZelligeBackend, "zarr"], ids=["ours", "theirs"])
def test_zeros_are_values_where_format_2_has_no_fill_value(engine, tmp_path):
    root = zellige.create_group(tmp_path, zarr_format=2)
    for name, fill in (("none", None), ("zero", 0)):
        root.create_array(name, data=[0.0, 1.0, 2.0], fill_value=fill, dimension_names=["x"])
    zellige.consolidate_metadata(tmp_path)
    ds = xr.open_dataset(tmp_path, engine=engine)
    np.testing.assert_array_equal(ds["none"], [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(ds["zero"], [np.nan, 1.0, 2.0])


def test_a_lazy_dataset_can_be_pickled_and_copied(tmp_path):
    ds = opened(uneven(tmp_path))
    again = pickle.loads(pickle.dumps(ds))
    assert np.array_equal(again.v.values, np.arange(180).reshape(20, 9))
    assert np.array_equal(copy.deepcopy(opened(uneven())).v.values, again.v.values)


def test_what_reads_from_memory_is_not_sent_to_other_processes():
    with pytest.raises(TypeError, match="memory of this process"):
        pickle.dumps(opened(uneven()))
    assert pickle.loads(pickle.dumps(opened(uneven()).load())).v.shape == (20, 9)


def test_importing_the_engine_imports_no_dask_and_no_zarr():
    code = "import sys, zellige.xarray; print(*({'dask', 'zarr', 'distributed', 'zellige.dask'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def test_the_engine_is_found_by_its_name(tmp_path):
    install_engine(tmp_path)
    (entry,) = importlib.metadata.entry_points(group="xarray.backends", name="zellige")
    assert entry.load() is ZelligeBackend
    assert isinstance(xr.backends.list_engines()["zellige"], ZelligeBackend)
    assert np.array_equal(xr.open_dataset(uneven(), engine="zellige").w, np.arange(20) * 9)
    assert np.array_equal(xr.open_dataset(uneven()).w, np.arange(20) * 9)  # a group can be nobody else's


def test_it_guesses_what_it_can_open():
    guess = ZelligeBackend().guess_can_open
    assert all(map(guess, ["a.zarr", "a.zarr/", Path("b/c.zarr"), zellige.MemoryStore(), zellige.group()]))
    assert not any(map(guess, ["a.nc", Path("a"), 3, {}]))


@pytest.mark.parametrize("place", ["document", "attributes", "newer attributes"])
def test_the_names_that_netcdfs_library_gives_to_axes_are_read(place, tmp_path):
    root = zellige.create_group(tmp_path, zarr_format=2)
    root.create_array("t", data=np.arange(6).reshape(2, 3), fill_value=-1)
    document = json.loads((tmp_path / "t/.zarray").read_text())
    names = ["/time", "/inner/x"]
    if place == "document":  # as of netCDF-C 4.8
        (tmp_path / "t/.zarray").write_text(json.dumps(document | {"_NCZARR_ARRAY": {"dimrefs": names}}))
    else:
        newer = place == "newer attributes"
        attribute = (
            {"_nczarr_array": {"dimension_references": names}} if newer else {"_NCZARR_ARRAY": {"dimrefs": names}}
        )
        (tmp_path / "t/.zattrs").write_text(json.dumps(attribute | {"units": "K"}))
    found = opened(tmp_path)["t"]
    assert found.dims == ("time", "x")
    assert found.attrs == ({} if place == "document" else {"units": "K"})
    assert found.values.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("wrong", [{"dimrefs": ["/time"]}, {"dimrefs": [1, 2]}, {}, "no"])
def test_names_of_netcdfs_library_that_do_not_fit_are_not_used(wrong, tmp_path):
    root = zellige.create_group(tmp_path, zarr_format=2)
    root.create_array("t", data=np.zeros((2, 3)), attributes={"_NCZARR_ARRAY": wrong})
    assert opened(tmp_path)["t"].dims == ("phony_dim_0", "phony_dim_1")
