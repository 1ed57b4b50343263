"""`convert`: what comes out of HDF5, netCDF4, .npy and .npz files, and of Zarr format 2, equals what was in them."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

import zellige
from counting_store import WRITES, CountingStore
from zellige.errors import ChunkShapeError, ContainsGroupError, NodeNotFoundError, ZelligeWarning
from zellige.tools.convert import NotRepresentableError

h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'zellige[hdf5]'")

VALUES = np.arange(60, dtype="f4").reshape(6, 10)


def converted(source, **options):
    """The group or array that a source becomes, and what was said about it."""
    store = zellige.MemoryStore()
    found = zellige.convert(source, store, **options)
    return zellige.open(store, mode="r"), found


@pytest.fixture
def file(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as opened:
        yield opened


def from_file(file, **options):
    file.flush()
    return converted(file, **options)


def same(array, data):
    data = np.asarray(data)
    assert array.shape == data.shape
    return np.array_equal(np.asarray(array[...]), data, equal_nan=data.dtype.kind == "f")


# -- HDF5 -----------------------------------------------------------------------------------------


def test_groups_datasets_and_attributes(file):
    file.attrs["title"] = "all"
    group = file.create_group("a/b")
    group.attrs["n"] = np.int16(3)
    data = group.create_dataset("t", data=VALUES, chunks=(2, 5), compression="gzip")
    data.attrs["unit"] = b"K"
    file["scalar"] = 7
    root, found = from_file(file)
    assert sorted(name for name, _ in root.members(max_depth=None)) == ["a", "a/b", "a/b/t", "scalar"]
    assert (found.groups, found.arrays) == (("", "a", "a/b"), ("a/b/t", "scalar"))
    assert found.nbytes == VALUES.nbytes + 8
    assert dict(root.attrs) == {"title": "all"}
    assert dict(root["a/b"].attrs) == {"n": 3}
    assert dict(root["a/b/t"].attrs) == {"unit": "K"}
    assert root["a/b/t"].chunks == (2, 5)
    assert same(root["a/b/t"], VALUES)
    assert root["scalar"][()] == 7


def test_a_file_is_read_by_its_name(tmp_path):
    with h5py.File(tmp_path / "a.data", "w") as file:
        file["x/y"] = VALUES
    root, _ = converted(tmp_path / "a.data")
    assert same(root["x/y"], VALUES)
    array, found = converted(str(tmp_path / "a.data"), path="x/y")
    assert found.arrays == ("",)
    assert same(array, VALUES)
    with pytest.raises(NodeNotFoundError, match="no 'z' in"):
        converted(tmp_path / "a.data", path="z")


@pytest.mark.parametrize(
    "data",
    [
        np.array([True, False]),
        np.array([1, -2], "<i2"),
        np.array([1, 2], ">u8"),
        np.array([1.5, np.nan], ">f8"),
        np.array([1 + 2j], "c8"),
        np.array([b"ab", b"c"], "S3"),
        np.array([0.5], "f2"),
        np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", ">f8")]),
        np.array([(1, (True, 2))], [("a", "u1"), ("b", [("c", "?"), ("d", "<i8")])]),
        np.zeros((0, 3)),
        np.array([b"\1\2\3"], "V3"),
    ],
    ids=lambda data: str(data.dtype),
)
def test_values_of_every_kind(file, data):
    file["x"] = data
    found = from_file(file)[0]["x"]
    assert same(found, data.astype(data.dtype.newbyteorder("=")))
    assert found.metadata.zarr_format == 3


def test_strings(file):
    words = ["", "añb", "日本"]
    file["variable"] = words
    file.create_dataset("fixed", data=[word.encode() for word in words], dtype=h5py.string_dtype("utf-8", 9))
    file.create_dataset("ascii", data=[b"ab", b""], dtype=h5py.string_dtype("ascii", 4))
    root, _ = from_file(file)
    for name in ("variable", "fixed"):
        assert root[name].metadata.data_type.name == "string"
        assert root[name][:].tolist() == words
    assert root["ascii"][:].tolist() == [b"ab", b""]


def test_text_that_is_none_is_an_error_that_names_its_place(file):
    file.create_dataset("x", data=[b"\xff\xfe"], dtype=h5py.string_dtype("utf-8", 2))
    with pytest.raises(NotRepresentableError, match=r"^x holds text that is not UTF-8"):
        from_file(file)


def test_enumerations_are_integers_with_their_names(file):
    kind = h5py.enum_dtype({"RED": 0, "GREEN": 5}, basetype="i1")
    file.create_dataset("colour", data=[5, 0], dtype=kind)
    found = from_file(file)[0]["colour"]
    assert (found[:].tolist(), found.dtype) == ([5, 0], np.dtype("i1"))
    assert dict(found.attrs) == {"flag_values": [0, 5], "flag_meanings": "RED GREEN"}


def test_dimension_scales_become_names(file):
    for name, size in (("lat", 6), ("lon", 10)):
        file[name] = np.arange(size)
        file[name].make_scale(name)
    file["t"] = VALUES
    for axis, name in enumerate(("lat", "lon")):
        file["t"].dims[axis].attach_scale(file[name])
    file["labelled"] = VALUES
    file["labelled"].dims[1].label = "x"
    root, _ = from_file(file)
    assert root["t"].dimension_names == ("lat", "lon")
    assert root["lat"].dimension_names == ("lat",)
    assert root["labelled"].dimension_names == (None, "x")
    assert dict(root["t"].attrs) == dict(root["lat"].attrs) == {}


def test_fill_values(file):
    file.create_dataset("own", shape=(4,), dtype="i2", fillvalue=-1, chunks=(2,))
    file["t"] = VALUES
    file["t"].attrs["_FillValue"] = np.float32(1e20)
    file["n"] = [1, 2]
    file["n"].attrs["_FillValue"] = np.array([-99])
    root, _ = from_file(file)
    assert (root["own"].fill_value, root["own"][:].tolist()) == (-1, [-1] * 4)
    assert root["t"].fill_value == np.float32(1e20)
    assert (root["n"].fill_value, root["n"].attrs["_FillValue"]) == (-99, -99)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.array([1, 2]), [1, 2]),
        (np.array([7]), 7),
        (b"text", "text"),
        ("añb", "añb"),
        (["a", "b"], ["a", "b"]),
        (np.array([b"x", b"y"]), ["x", "y"]),
        (True, True),
        (float("nan"), float("nan")),
        (np.array([np.inf, -np.inf]), [np.inf, -np.inf]),
    ],
)
def test_attributes_as_json(file, value, expected):
    file.attrs["a"] = value
    assert repr(from_file(file)[0].attrs["a"]) == repr(expected)  # in which NaN equals NaN


def test_attributes_without_a_form_are_left_out_and_named(file):
    file["x"] = VALUES
    file["x"].attrs["reference"] = file.ref
    file["x"].attrs["empty"] = h5py.Empty("f4")
    file["x"].attrs["complex"] = 1 + 2j
    file["x"].attrs["bytes"] = np.void(b"\1\2")
    file["x"].attrs["good"] = 1
    with pytest.warns(ZelligeWarning) as told:
        root, found = from_file(file)
    names = {f"attribute {name} of /x" for name in ("reference", "empty", "complex", "bytes")}
    assert found.skipped.keys() == names
    assert all(any(name in str(warning.message) for warning in told) for name in names)
    assert dict(root["x"].attrs) == {"good": 1}


def test_links_are_left_out_and_named(file):
    file["a/x"] = VALUES
    file["soft"] = h5py.SoftLink("/a/x")
    file["external"] = h5py.ExternalLink("other.h5", "/y")
    file["hard"] = file["a/x"]
    file["a/up"] = file["/"]
    file["type"] = np.dtype("i4")
    with pytest.warns(ZelligeWarning):
        root, found = from_file(file)
    assert found.skipped.keys() == {"soft", "external", "hard", "a/up", "type"}
    assert found.skipped["hard"] == "another name of a/x, which Zarr does not have"
    assert [name for name, _ in root.members(max_depth=None)] == ["a", "a/x"]


UNFIT = {
    "references": lambda file: file.create_dataset("x", data=np.array([file.ref], h5py.ref_dtype)),
    "lists": lambda file: file.create_dataset("x", (2,), h5py.vlen_dtype("i4")),
    "no shape": lambda file: file.create_dataset("x", data=h5py.Empty("f4")),
    "structs with strings": lambda file: file.create_dataset("x", (1,), [("a", h5py.string_dtype())]),
    "structs with arrays": lambda file: file.create_dataset("x", (1,), [("a", "i4", (2,))]),
    "a name": lambda file: file.create_dataset("__zellige_x", data=1),
}


@pytest.mark.parametrize("make", UNFIT.values(), ids=UNFIT)
def test_what_has_no_form_is_refused_before_anything_is_written(file, make):
    file["a"] = VALUES
    make(file)
    store = CountingStore()
    with pytest.raises(NotRepresentableError, match="x") as told:
        zellige.convert(file, store)
    assert told.value.path in ("x", "__zellige_x")
    assert not store.made(*WRITES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = zellige.convert(file, store, unsupported="skip")
    assert (found.arrays, list(found.skipped)) == (("a",), [told.value.path])
    assert same(zellige.open(store)["a"], VALUES)


def test_a_long_dataset_is_never_in_memory_at_once(tmp_path):
    size = 64 << 20
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", shape=(size,), dtype="u1", chunks=(1 << 20,))
    store = zellige.LocalStore(tmp_path / "a.zarr")
    tracemalloc.start()
    try:
        zellige.convert(tmp_path / "a.h5", store)
        assert tracemalloc.get_traced_memory()[1] < size // 4
    finally:
        tracemalloc.stop()
    assert zellige.open(store)["x"].shape == (size,)


def test_each_chunk_of_the_source_is_read_once(file, monkeypatch):
    data = file.create_dataset("x", data=VALUES, chunks=(2, 5))
    seen = []
    monkeypatch.setattr("zellige.tools.convert._read", lambda dataset, region: seen.append(region) or dataset[region])
    monkeypatch.setattr("zellige.tools.convert._ELEMENTS", 10)
    from_file(file)
    assert len(seen) == 6
    seen.clear()
    from_file(file, chunks=(2, 10))
    assert len(seen) == 3
    assert data.chunks == (2, 5)


def test_options_are_for_every_array(file):
    file["x"], file["y"] = VALUES, VALUES[0]
    root, _ = from_file(file, compressors="gzip", chunks=4)
    assert {array.compressors[0].name for _, array in root.arrays()} == {"gzip"}
    assert (root["x"].chunks, root["y"].chunks) == ((4, 4), (4,))
    assert same(root["x"], VALUES)


def weather(file):
    """A dataset as netCDF4 writes it: two dimensions, a variable of both, others of one or none of them."""
    for name, length in (("time", 59), ("lat", 4)):
        file[name] = np.arange(length)
        file[name].make_scale(name)
    made = file.create_dataset("t", data=np.arange(236).reshape(59, 4), chunks=(10, 2))
    for axis, name in enumerate(("time", "lat")):
        made.dims[axis].attach_scale(file[name])
    file.create_dataset("edge", data=np.arange(3), chunks=(2,))
    file["scalar"] = 7
    return file


def test_a_rule_for_a_dimension_applies_where_that_dimension_is(file):
    store = zellige.MemoryStore()
    found = zellige.convert(weather(file), store, chunks={"time": [31, 28]})
    assert sorted(found.arrays) == ["edge", "lat", "scalar", "t", "time"]
    assert found.skipped == {}
    root = zellige.open(store, mode="r")
    sizes = {name: array.write_chunk_sizes for name, array in root.arrays()}
    assert sizes == {
        "t": ((31, 28), (2, 2)),  # other axes keep the chunks of the source
        "time": ((31, 28),),
        "lat": ((4,),),
        "edge": ((2, 1),),
        "scalar": (),
    }
    for name, array in root.arrays():
        np.testing.assert_array_equal(array[...], file[name][...])
    zellige.convert(file, store, overwrite=True, chunks={"time": 10}, shards={"time": 30})
    sharded = zellige.open(store, mode="r")
    assert (sharded["t"].shards, sharded["t"].chunks) == ((30, 4), (10, 2))
    assert sharded["lat"].shards is None


@pytest.mark.parametrize("unsupported", ["raise", "skip"])
def test_a_rule_for_a_dimension_that_is_nowhere_is_an_error(file, unsupported):
    store = zellige.MemoryStore()
    weather(file)
    for option in ("chunks", "shards"):
        with pytest.raises(ChunkShapeError, match=f"{option}.*'tme'.*did you mean 'time'"):
            zellige.convert(file, store, unsupported=unsupported, **{option: {"tme": 3}})
    with pytest.raises(ChunkShapeError, match=r"edge.*2 entries.*by the names of dimensions"):
        zellige.convert(file, store, unsupported=unsupported, chunks=(31, 2))
    assert list(store.list()) == []


def test_what_is_left_out_is_said(file):
    file["good"] = np.arange(3)
    file["ref"] = np.array([file.ref], h5py.ref_dtype)
    file["zarr.json"] = np.arange(3)
    file["soft"] = h5py.SoftLink("/good")
    with pytest.warns(ZelligeWarning) as said:
        found = zellige.convert(file, zellige.MemoryStore(), unsupported="skip")
    assert found.skipped.keys() == {"ref", "zarr.json", "soft"}
    assert {str(one.message).partition(":")[0] for one in said} == {f"left out {name}" for name in found.skipped}
    assert {one.filename for one in said} == {__file__}


def test_progress_counts_to_the_end(file):
    file.create_dataset("x", data=VALUES, chunks=(2, 5))
    file["y"] = 3
    seen = []
    from_file(file, progress=lambda *told: seen.append(told))
    assert seen[-1] == (2, 2, "y")
    assert [done for done, _, _ in seen] == [1, 2]


def test_a_dry_run_writes_nothing(file):
    file["x"] = VALUES
    store = CountingStore()
    found = zellige.convert(file, store, dry_run=True)
    assert (found.arrays, found.dry_run) == (("x",), True)
    assert str(found) == "1 arrays and 1 groups would be converted"
    assert not store.made(*WRITES)


def test_what_is_there_stays_unless_told(file):
    file["x"] = VALUES
    store = zellige.MemoryStore()
    zellige.create_array(store, name="g/mine", data=[1])
    with pytest.raises(ContainsGroupError):
        zellige.convert(file, store, name="g")
    assert zellige.open(store)["g/mine"][:].tolist() == [1]
    zellige.convert(file, store, name="g", overwrite=True)
    assert list(zellige.open(store)["g"]) == ["x"]


# -- netCDF4 --------------------------------------------------------------------------------------


def test_a_netcdf_file_reads_the_same_through_xarray(tmp_path):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    pytest.importorskip("zarr", reason="zarr is not installed")
    data = VALUES.copy()
    data[0, 0] = np.nan
    made = xarray.Dataset(
        {"t": (("time", "x"), data, {"unit": "K"}), "n": (("x",), np.arange(10, dtype="i2")), "word": ((), "añb")},
        coords={
            "time": np.arange("2024-01-01", "2024-01-07", dtype="M8[D]").astype("M8[ns]"),
            "wide": (("time", "x"), VALUES),
        },
        attrs={"title": "all"},
    )
    made.to_netcdf(
        tmp_path / "a.nc",
        engine="netcdf4",
        encoding={"t": {"_FillValue": np.float32(-9), "chunksizes": (2, 5)}, "n": {"_FillValue": np.int16(-1)}},
    )
    zellige.convert(tmp_path / "a.nc", tmp_path / "a.zarr")
    root = zellige.open(tmp_path / "a.zarr", mode="r")
    assert sorted(root) == ["n", "t", "time", "wide", "word"]  # x is a dimension without a variable
    assert (root["t"].dimension_names, root["n"].dimension_names) == (("time", "x"), ("x",))
    assert (root["t"].fill_value, root["t"].chunks) == (np.float32(-9), (2, 5))
    with xarray.open_dataset(tmp_path / "a.nc", engine="netcdf4") as expected:
        found = xarray.open_zarr(tmp_path / "a.zarr", consolidated=False, chunks=None)
        xarray.testing.assert_identical(found.load(), expected.load())


def test_masked_values_of_netcdf4_become_the_fill_value(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    given = np.ma.array([1, 2, 3, 4], mask=[0, 1, 0, 0])
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 4)
        file.createVariable("v", "i4", ("x",), fill_value=-9999)[:] = given
        file.createVariable("w", "i4", ("x",))[:] = given  # netCDF's own fill value
    zellige.convert(tmp_path / "a.nc", tmp_path / "a.zarr")
    root = zellige.open(tmp_path / "a.zarr", mode="r")
    for name in ("v", "w"):
        array = root[name]
        found = np.ma.masked_equal(array[:], array.fill_value)
        assert (found.mask.tolist(), found.compressed().tolist()) == ([False, True, False, False], [1, 3, 4])
    opened = xarray.open_dataset(tmp_path / "a.zarr", engine="zellige")["v"]
    assert np.array_equal(opened, given.astype(float).filled(np.nan), equal_nan=True)


def test_variables_are_as_long_as_their_unlimited_dimension(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("member", None)
        file.createDimension("x", 3)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(45)
        file.createVariable("a", "f4", ("time",), fill_value=-1, chunksizes=(7,))[:] = np.arange(10)
        file.createVariable("b", "i2", ("time",))
        file.createVariable("both", "f8", ("time", "x", "member"), chunksizes=(4, 3, 2))[:5, :, :3] = np.arange(
            45.0
        ).reshape(5, 3, 3)
        file.createVariable("word", str, ("time",))[:2] = np.array(["a", "b"], object)
        group = file.createGroup("g")
        group.createVariable("longer", "i4", ("member",))[:] = np.arange(8)
        group.createDimension("only", None)
        group.createVariable("only", "f8", ("only",))
        group.createVariable("of_only", "f8", ("only",))[:] = np.arange(4)
    zellige.convert(tmp_path / "a.nc", tmp_path / "a.zarr")
    root = zellige.open(tmp_path / "a.zarr", mode="r")
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        file.set_auto_mask(False)
        names = [*file.variables, *(f"g/{name}" for name in file["g"].variables)]
        assert sorted(names) == sorted(path for path, found in root.members(max_depth=None) if hasattr(found, "shape"))
        for name in names:
            expected = file[name][...]
            if name == "both":  # netCDF 4.9 mixes up values where a dimension other than the first is padded
                expected = np.full(expected.shape, netCDF4.default_fillvals["f8"])
                expected[:5, :, :3] = np.arange(45).reshape(5, 3, 3)
            assert root[name].shape == expected.shape, name
            assert root[name][...].tolist() == expected.tolist(), name
    with xarray.open_dataset(tmp_path / "a.nc", engine="netcdf4") as expected:
        found = xarray.open_dataset(tmp_path / "a.zarr", engine="zellige")
        assert dict(found.sizes) == dict(expected.sizes)
        assert np.array_equal(found["a"], expected["a"], equal_nan=True)


def test_classic_netcdf_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "a.nc").write_bytes(b"CDF\x01" + bytes(28))
    with pytest.raises(NotRepresentableError, match="nccopy -k nc4"):
        converted(tmp_path / "a.nc")


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = 1
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ImportError, match=r"pip install 'zellige\[hdf5\]'"):
        converted(tmp_path / "a.h5")


# -- numpy ----------------------------------------------------------------------------------------

STRUCT = np.array([(1, "añ")], [("a", "i4"), ("b", "U3")])
ARRAYS = {"C": VALUES, "F": np.asfortranarray(VALUES), "scalar": np.array(3.5), "empty": np.zeros((0, 4)), "s": STRUCT}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("chunks", ["auto", 4])
def test_npy(tmp_path, name, chunks):
    np.save(tmp_path / "a.npy", ARRAYS[name])
    found, _ = converted(tmp_path / "a.npy", chunks=() if chunks == 4 and name == "scalar" else chunks)
    assert same(found, ARRAYS[name])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("chunks", ["auto", {0: 4}])
def test_npz(tmp_path, save, chunks):
    arrays = {name: data for name, data in ARRAYS.items() if chunks == "auto" or data.ndim}
    save(tmp_path / "a.npz", **arrays)
    root, found = converted(tmp_path / "a.npz", chunks=chunks)
    assert sorted(root) == sorted(arrays) == sorted(found.arrays)
    for name, data in arrays.items():
        assert same(root[name], data)
    one, _ = converted(tmp_path / "a.npz", path="F")
    assert same(one, VALUES)
    with pytest.raises(NodeNotFoundError, match="no array 'nothing'"):
        converted(tmp_path / "a.npz", path="nothing")


@pytest.mark.parametrize("save", [np.save, np.savez])
def test_a_pickle_is_never_loaded(tmp_path, save):
    path = tmp_path / ("a.npy" if save is np.save else "a.npz")
    save(path, np.array([{"a": 1}], object), allow_pickle=True)
    store = CountingStore()
    with pytest.raises(NotRepresentableError, match="pickle"):
        zellige.convert(path, store)
    assert not store.made(*WRITES)


def test_a_npz_that_ends_early_is_refused(tmp_path):
    import zipfile

    np.save(tmp_path / "x.npy", VALUES)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", (tmp_path / "x.npy").read_bytes()[:-8])
    with pytest.raises(NotRepresentableError, match="ends early: 232 of 240 bytes"):
        converted(tmp_path / "a.npz")


# -- Zarr format 2 --------------------------------------------------------------------------------


def test_zarr_2_to_another_place(tmp_path):
    root = zellige.create_group(tmp_path / "old", zarr_format=2, attributes={"a": 1})
    root["x"], root["g/y"] = VALUES, VALUES[0]
    found = zellige.convert(tmp_path / "old", tmp_path / "new")
    assert (found.arrays, found.groups) == (("g/y", "x"), ("", "g"))
    made = zellige.open(tmp_path / "new", mode="r")
    assert {node.metadata.zarr_format for _, node in made.members(max_depth=None)} == {made.metadata.zarr_format} == {3}
    assert same(made["x"], VALUES)
    assert not list((tmp_path / "new").rglob(".z*"))
    assert zellige.open(tmp_path / "old", mode="r").metadata.zarr_format == 2
    with pytest.raises(ContainsGroupError):
        zellige.convert(tmp_path / "old", tmp_path / "new")
    zellige.save(tmp_path / "new", VALUES, path="more")
    zellige.convert(tmp_path / "old", tmp_path / "new", overwrite=True)
    assert sorted(zellige.open(tmp_path / "new", mode="r")) == ["g", "x"]
    with pytest.raises(ValueError, match="the source lies within dest"):
        zellige.convert(tmp_path / "old", tmp_path, name="old", overwrite=True)
    with pytest.raises(TypeError, match=r"compressors: .* use rechunk"):
        zellige.convert(tmp_path / "old", tmp_path / "other", compressors=None)


def test_what_zarr_3_cannot_say_is_refused_before_anything_is_written(tmp_path):
    root = zellige.create_group(tmp_path / "old", zarr_format=2)
    root["x"] = VALUES
    document = tmp_path / "old/x/.zarray"
    document.write_text(document.read_text().replace('"compressor": ', '"compressor": {"id": "nonsense"}, "_": '))
    with pytest.raises(NotRepresentableError, match="x"):
        zellige.convert(tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "new").exists()


# -- arguments ------------------------------------------------------------------------------------


def test_arguments_without_a_meaning_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    with pytest.raises(ValueError, match="give dest="):
        zellige.convert(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="unsupported='maybe'"):
        zellige.convert(tmp_path / "a.npy", {}, unsupported="maybe")
    with pytest.raises(TypeError, match="progress="):
        zellige.convert(tmp_path / "a.npy", {}, progress="yes")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(NotRepresentableError, match="by its first bytes"):
        zellige.convert(tmp_path / "text", {})
    with pytest.raises(NodeNotFoundError):
        zellige.convert(tmp_path / "nothing", {})
