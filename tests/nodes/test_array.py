"""`Array` as users meet it: what it says of itself, how it behaves like numpy, what it refuses."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from counting_store import CountingStore, contents
from zellige.errors import (
    ArrayNotFoundError,
    BoundsCheckError,
    BroadcastError,
    ChunkShapeError,
    MetadataError,
    ReadOnlyError,
    RectilinearChunksError,
    UnknownDataTypeError,
)
from zellige.stores import LocalStore, MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def regular(store) -> zellige.Array:
    return zellige.create_array(
        store,
        name="group/regular",
        data=ours.counted((5, 6), "float32"),
        chunks=(2, 4),
        fill_value=np.nan,
        compressors=["gzip", "crc32c"],
        filters={"name": "transpose", "configuration": {"order": [1, 0]}},
        dimension_names=["y", None],
        attributes={"unit": "K"},
    )


@pytest.fixture
def uneven() -> zellige.Array:
    return zellige.create_array(data=ours.counted((6, 7)), chunks=[[1, 2, 3], 4], dimension_names=["time", "x"])


# -- what it is -----------------------------------------------------------------------------------


def test_properties_of_a_regular_array(regular, store):
    assert (regular.shape, regular.ndim, regular.size, len(regular)) == ((5, 6), 2, 30, 5)
    assert regular.dtype == np.dtype("float32")
    assert regular.nbytes == 120
    assert np.isnan(regular.fill_value)
    assert isinstance(regular.fill_value, np.float32)
    assert (regular.name, regular.path, regular.basename) == ("/group/regular", "group/regular", "regular")
    assert regular.dimension_names == ("y", None)
    assert regular.store is store
    assert regular.order == "C"
    assert regular.read_only is False
    assert regular.chunks == (2, 4)
    assert (regular.cdata_shape, regular.nchunks, regular.nchunks_initialized) == ((3, 2), 6, 6)
    assert regular.read_chunk_sizes == regular.write_chunk_sizes == ((2, 2, 1), (4, 2))
    assert regular.metadata.shape == (5, 6)
    assert [codec.name for codec in regular.filters] == ["transpose"]
    assert regular.serializer.name == "bytes"
    assert [codec.name for codec in regular.compressors] == ["gzip", "crc32c"]
    assert regular.attrs == {"unit": "K"}
    stored = {key: len(raw) for key, raw in contents(store).items() if key.startswith("group/regular/")}
    assert regular.nbytes_stored() == sum(stored.values())


def test_an_array_without_axes_has_one_chunk():
    array = zellige.create_array(shape=(), dtype="int8")
    assert (array.shape, array.size, array.chunks, array.nchunks, array.cdata_shape) == ((), 1, (), 1, ())
    assert array.write_chunk_sizes == ()
    assert [(chunk.coords, chunk.key, chunk.slices) for chunk in array.iter_chunks()] == [((), "c", ())]
    for action in (len, list):
        with pytest.raises(TypeError, match="0-d"):
            action(array)


def test_chunks_of_an_uneven_array_are_an_error_that_getattr_understands(uneven):
    with pytest.raises(RectilinearChunksError, match="write_chunk_sizes") as found:
        uneven.chunks
    assert isinstance(found.value, AttributeError)
    assert isinstance(found.value, NotImplementedError)
    assert getattr(uneven, "chunks", "none") == "none"
    assert not hasattr(uneven, "chunks")
    assert uneven.read_chunk_sizes == uneven.write_chunk_sizes == ((1, 2, 3), (4, 3))
    assert (uneven.cdata_shape, uneven.nchunks) == ((3, 2), 6)


def test_chunk_sizes_are_plain_tuples_of_integers(regular, uneven):
    sharded, start = zellige.zeros((10, 6), chunks=(2, 3), shards=([4, 6], 6)), (0,)
    views = [sharded.lazy[1:, ::2], zellige.concat([uneven, uneven]), zellige.stack([regular, regular])]
    for array in (regular, uneven, sharded, sharded.async_array, *views):
        names = [name for name in ("read_chunk_sizes", "write_chunk_sizes") if hasattr(array, name)]
        assert names
        for sizes in (getattr(array, name) for name in names):
            assert type(sizes) is tuple
            assert {type(axis) for axis in sizes} == {tuple}
            assert {type(size) for axis in sizes for size in axis} == {int}
            assert json.loads(json.dumps(sizes)) == [[*axis] for axis in sizes]
            assert [start + axis for axis in sizes] == [(0, *axis) for axis in sizes]
            assert sizes <= sizes
    for metadata in (uneven.metadata, sharded.metadata):
        assert json.loads(json.dumps(metadata.chunk_grid.chunk_shapes)) == [
            axis if isinstance(axis, int) else [*axis] for axis in metadata.chunk_grid.chunk_shapes
        ]
    assert [type(axis) for axis in sharded.metadata.chunk_grid.chunk_shapes] == [tuple, int]


def test_a_trillion_chunk_sizes_are_never_listed():
    many, start = 10**12, (0,)
    array = zellige.create_array(shape=(many, many), chunks=(5, [[3, many]]), shards=None, dtype="int8")
    by_five, by_three = array.write_chunk_sizes
    assert (len(by_five), by_five[:2], by_five[-1]) == (many // 5, (5, 5), 5)
    assert (len(by_three), by_three[:2], by_three[-1]) == (333333333334, (3, 3), 1)
    assert (start + by_three)[:3] == (0, 3, 3)
    assert by_five > by_three
    assert array.metadata.chunk_grid.chunk_shapes[1].to_rle() == [[3, many]]
    assert zellige.zeros(many, chunks=5, shards=10, dtype="int8").read_chunk_sizes[0][:2] == (5, 5)


@ours.examples(0.03)
@given(st.data())
def test_every_chunk_is_at_its_place(data):
    shape = data.draw(ours.shapes())
    grid = data.draw(ours.grids(shape))
    array = zellige.create_array(shape=shape, chunks=grid.argument, dtype="int8")
    assert array.write_chunk_sizes == grid.sizes
    assert array.cdata_shape == tuple(map(len, grid.sizes))
    assert {chunk.coords: chunk.slices for chunk in array.iter_chunks()} == grid.slices
    for chunk in array.iter_chunks():
        assert chunk.codec_shape == tuple(edges[k] for edges, k in zip(grid.edges, chunk.coords, strict=True))
        assert chunk.key == "/".join(["c", *map(str, chunk.coords)])


def test_iter_chunks_of_a_selection(uneven):
    assert [chunk.coords for chunk in uneven.iter_chunks((slice(1, 4), -1))] == [(1, 1), (2, 1)]
    assert [chunk.coords for chunk in uneven.iter_chunks(np.s_[0:0])] == []
    with pytest.raises(BoundsCheckError):
        list(uneven.iter_chunks(9))


# -- as numpy -------------------------------------------------------------------------------------


def test_iteration_gives_rows_and_reads_each_chunk_once():
    store = CountingStore()
    model = ours.counted((6, 7))
    array = zellige.create_array(store, data=model, chunks=[[1, 2, 3], 4])
    store.reset()
    rows = list(array)
    assert len(rows) == 6
    assert all(np.array_equal(row, expected) for row, expected in zip(rows, model, strict=True))
    assert set(Counter(store.keys()).values()) == {1}
    assert len(store.keys()) == 6
    numbers = list(zellige.array([1, 2, 3], chunks=2))
    assert numbers == [1, 2, 3]
    assert all(isinstance(number, np.int64) for number in numbers)
    assert list(zellige.zeros((0, 3))) == []
    assert [row.shape for row in zellige.zeros((2, 0))] == [(0,), (0,)]


def test_numpy_takes_it_as_an_array(uneven):
    model = ours.counted((6, 7))
    assert np.array_equal(np.asarray(uneven), model)
    assert np.asarray(uneven, "float64").dtype == np.float64
    assert np.array_equal(np.add(uneven, 1), model + 1)
    assert np.array(uneven, copy=True).sum() == model.sum()
    with pytest.raises(ValueError, match="without a copy"):
        np.array(uneven, copy=False)
    assert np.asarray(zellige.array(5)).shape == ()


@pytest.mark.parametrize("dtype", ours.CORE_DTYPES)
def test_values_of_every_type_come_back(dtype):
    model = ours.counted((4, 3), dtype)
    array = zellige.create_array(data=model, chunks=([1, 3], 2))
    assert array.dtype == array[...].dtype == model.dtype
    assert array[...].tobytes() == model.tobytes()
    one = array[2, 1]
    assert type(one) is type(model[2, 1])
    assert one == model[2, 1]
    assert isinstance(array[2, 1, ...], np.ndarray)
    array[...] = model.astype(model.dtype.newbyteorder(">"))
    assert np.array_equal(array[...], model)


FILTERS_OF_ANOTHER_TYPE: dict[str, tuple[str, Any, str, int]] = {
    "to more bytes": ("uint8", {"name": "cast_value", "configuration": {"data_type": "float64"}}, "little", 8),
    "to one byte": ("int32", {"name": "cast_value", "configuration": {"data_type": "int8"}}, "", 1),
    "by numcodecs": ("uint8", {"name": "numcodecs.astype", "configuration": {"encode_dtype": "<f4"}}, "little", 4),
    "twice": (
        "uint8",
        [
            {"name": "cast_value", "configuration": {"data_type": "int16"}},
            {"name": "cast_value", "configuration": {"data_type": "float32"}},
        ],
        "little",
        4,
    ),
}


@pytest.mark.parametrize("layout", [{"chunks": 2}, {"chunks": [[1, 3]]}, {"chunks": 1, "shards": 2}], ids=str)
@pytest.mark.parametrize("name", FILTERS_OF_ANOTHER_TYPE)
def test_automatic_codecs_follow_the_type_that_filters_make(name, layout, store):
    dtype, filters, endian, itemsize = FILTERS_OF_ANOTHER_TYPE[name]
    array = zellige.create_array(store, shape=4, dtype=dtype, filters=filters, compressors="blosc", **layout)
    array[:] = [1, 2, 3, 4]
    assert array[:].tolist() == [1, 2, 3, 4]
    again = zellige.open_array(store)
    assert again[:].tolist() == [1, 2, 3, 4]
    assert again.serializer.configuration() == ({"endian": endian} if endian else {})
    assert again.compressors[0].configuration()["typesize"] == itemsize


def test_order_f_gives_fortran_arrays(uneven):
    model = ours.counted((6, 7))
    array = zellige.create_array(data=model, chunks=[[1, 2, 3], 4], order="F")
    assert array.order == array.config.order == "F"
    assert array[...].flags.f_contiguous
    assert array[1:4, 2:].flags.f_contiguous
    assert np.array_equal(array[...], model)
    assert uneven[...].flags.c_contiguous
    assert "order" not in array.metadata.to_dict()


# -- settings of a handle -------------------------------------------------------------------------


def test_with_config_changes_what_is_given_and_keeps_the_rest():
    array = zellige.create_array(shape=4, order="F", config={"read_missing_chunks": False})
    other = array.with_config({"write_empty_chunks": True})
    assert (other.config.order, other.config.read_missing_chunks, other.config.write_empty_chunks) == ("F", False, True)
    assert array.config.write_empty_chunks is False
    assert other == array
    assert array.with_config(other.config).config == other.config
    for bad, kind in (({"order": "X"}, ValueError), ({"write_empty_chunks": 1}, ValueError), ({"x": 1}, KeyError)):
        with pytest.raises(kind):
            array.with_config(bad)


def test_refresh_follows_other_handles(store):
    array = zellige.create_array(store, shape=(4,), chunks=2, dtype="int8")
    other = zellige.open(store)
    other.resize((6,))
    other[:] = 3
    other.attrs["x"] = 1
    assert (array.shape, array.attrs) == ((4,), {})
    array.refresh()
    assert array.shape == (6,)
    assert array.attrs == {"x": 1}
    assert array[...].tolist() == [3] * 6
    zellige.create_array(store, data=[1.5], overwrite=True)
    array.refresh()
    assert array[...].tolist() == [1.5]
    store.delete(["zarr.json"])
    with pytest.raises(ArrayNotFoundError):
        array.refresh()


def test_pickles_are_small_and_carry_everything(tmp_path):
    model = ours.counted((300, 300))
    array = zellige.create_array(LocalStore(tmp_path), name="a", data=model, chunks=[[100, 200], -1], order="F")
    raw = pickle.dumps(array)
    assert len(raw) < 2000
    copy = pickle.loads(raw)
    assert copy == array
    assert copy.config == array.config
    copy[0, 0] = -1
    assert array[0, 0] == -1
    inside = pickle.loads(pickle.dumps(zellige.create_array(data=model, chunks=100)))
    assert np.array_equal(inside[...], model)


def test_equality(store):
    array = zellige.create_array(store, name="a", shape=4, fill_value=np.nan)
    assert array == zellige.open(store, path="a")
    assert array != zellige.create_array(store, name="b", shape=4, fill_value=np.nan)
    assert array != zellige.create_array(MemoryStore(), name="a", shape=4, fill_value=np.nan)
    assert array != zellige.open(store, path="a", mode="r")
    assert array != "a"
    before = zellige.open(store, path="a")
    array.attrs["x"] = 1
    assert array != before
    with pytest.raises(TypeError):
        hash(array)


# -- for people -----------------------------------------------------------------------------------


def test_repr_shows_the_grid(regular, uneven):
    assert repr(regular) == "<zellige.Array /group/regular (y: 5, ?: 6) float32, regular chunks 2 × 4>"
    assert repr(uneven) == "<zellige.Array / (time: 6, x: 7) int32, rectilinear chunks [1, 2, 3] × 4>"
    assert repr(zellige.zeros(())) == "<zellige.Array / () float64, regular chunks scalar>"
    many = zellige.zeros((12,), chunks=[[1, 2, 1, 2, 6]])
    assert "[1, 2, 1, 2, …(5)]" in repr(many)


def test_info_shows_the_grid_and_what_is_stored(uneven):
    info = uneven.info
    assert info["Chunk grid"] == "rectilinear, 3 × 2 = 6 chunks"
    assert info["Chunks, axis 0 (time)"] == "[1, 2, 3]"
    assert info["Data type"] == "int32"
    assert info["Size"] == "168 B"
    assert len(repr(info).splitlines()) == len(info.items)
    complete = uneven.info_complete()
    assert complete["Chunks stored"] == "6 of 6"
    assert complete.items[: len(info.items)] == info.items
    with pytest.raises(KeyError):
        info["Chunks stored"]


# -- refusals, which change nothing ---------------------------------------------------------------

BAD_CHUNKS: list[Any] = [
    0,
    -2,
    2.5,
    "many",
    True,
    (2,),
    (2, 2, 2),
    (2, 0),
    (2, [3, 2]),
    (2, [3, 0, 4]),
    (2, []),
    (2, [[3, 0]]),
    (2, [[3, 1, 4]]),
    (2, "x"),
    (2, 2.0),
    (2, [2.5, 4]),
    (2, [True, 6]),
    {"time": 3},
    {5: 3},
    (2, [[1, 2**63]]),
    (2, np.ones((2, 2), int)),
    {2, 3},
]


@pytest.mark.parametrize("chunks", BAD_CHUNKS, ids=repr)
def test_bad_chunks_are_refused_on_creation(chunks, store):
    with pytest.raises(ChunkShapeError):
        zellige.create_array(store, name="g/a", shape=(5, 6), chunks=chunks)
    assert contents(store) == {}


BAD_CREATION: list[tuple[type[Exception], dict[str, Any]]] = [
    (ValueError, {"shape": (-1,)}),
    (ValueError, {"shape": (1.5,)}),
    (ValueError, {"shape": "ab"}),
    (ValueError, {"shape": (True,)}),
    (ValueError, {"shape": (2**63,)}),
    (ValueError, {"shape": (1,) * 65}),
    (ValueError, {}),
    (ValueError, {"shape": 3, "data": [1, 2]}),
    (UnknownDataTypeError, {"shape": 3, "dtype": "flaot32"}),
    (UnknownDataTypeError, {"shape": 3, "dtype": [("a", "O")]}),
    (UnknownDataTypeError, {"data": ["a", None]}),
    (MetadataError, {"shape": 3, "dtype": "int8", "fill_value": 300}),
    (MetadataError, {"shape": 3, "dtype": "int8", "fill_value": 0.5}),
    (MetadataError, {"shape": 3, "dtype": "float32", "fill_value": [1, 2]}),
    (ValueError, {"shape": 3, "dimension_names": ["x", "y"]}),
    (ValueError, {"shape": 3, "dimension_names": [5]}),
    (ValueError, {"shape": 3, "zarr_format": 4}),
    (ValueError, {"shape": 3, "order": "X"}),
    (ValueError, {"shape": 3, "config": {"order": "X"}}),
    (KeyError, {"shape": 3, "config": {"colour": "X"}}),
    (MetadataError, {"shape": 3, "attributes": {"a": len}}),
    (MetadataError, {"shape": 3, "attributes": {5: 1}}),
    (ChunkShapeError, {"shape": 3, "chunks": [[1, 2]], "chunk_grid": "regular"}),
    (ChunkShapeError, {"shape": 3, "chunk_grid": "hexagonal"}),
]


@pytest.mark.parametrize(("kind", "arguments"), BAD_CREATION, ids=repr)
def test_bad_arguments_are_refused_on_creation(kind, arguments, store):
    with pytest.raises(kind):
        zellige.create_array(store, name="g/a", **arguments)
    assert contents(store) == {}


BAD_WRITES: list[tuple[type[Exception], Any, Any]] = [
    (BroadcastError, ..., np.zeros((2, 2))),
    (BroadcastError, (slice(2), 0), [1, 2, 3]),
    (BroadcastError, slice(0, 0), [1, 2]),
    (BroadcastError, (0, 0), [1, 2]),
    (IndexError, 6, 0),
    (IndexError, (0, -8), 0),
    (IndexError, ([0, 1], [0, 7]), 0),
    (IndexError, np.ones(5, bool), 0),
    (ValueError, ..., "x"),
    (TypeError, ..., None),
    (TypeError, ..., {"a": 1}),
    (OverflowError, ..., 2**40),
    (ValueError, ..., [[1, 2], [3]]),
    (ValueError, ..., np.array("x")),
]


@pytest.mark.parametrize(("kind", "index", "value"), BAD_WRITES, ids=repr)
def test_bad_writes_are_refused_before_anything_is_written(kind, index, value):
    store = CountingStore()
    array = zellige.create_array(store, data=ours.counted((6, 7)), chunks=[[1, 2, 3], 4])
    before = contents(store)
    store.reset()
    with pytest.raises(kind):
        array[index] = value
    assert store.calls == []
    assert contents(store) == before


def test_a_read_only_array_refuses_every_change(regular, store):
    array = zellige.open(store, path="group/regular", mode="r")
    before = contents(store)
    assert array.read_only
    changes = [
        lambda: array.__setitem__(..., 0),
        lambda: array.oindex.__setitem__(0, 0),
        lambda: array.vindex.__setitem__(([0], [0]), 0),
        lambda: array.blocks.__setitem__(0, 0),
        lambda: array.resize((1, 1)),
        lambda: setattr(array, "shape", (1, 1)),
        lambda: array.append(np.zeros((1, 6))),
        lambda: array.attrs.update(a=1),
        lambda: array.update_attributes({"a": 1}),
        lambda: array.attrs.__delitem__("unit"),
    ]
    for change in changes:
        with pytest.raises(ReadOnlyError, match="r\\+"):
            change()
    assert contents(store) == before
    assert array.shape == (5, 6)
    assert isinstance(pickle.loads(pickle.dumps(array)).store, MemoryStore)
    assert pickle.loads(pickle.dumps(array)).read_only


# -- arguments that mean nothing ----------------------------------------------------------------------


def test_overwriting_needs_a_clear_yes(tmp_path):
    """Any other word would count as one, and the array that is there would be gone."""
    zellige.create_array(tmp_path / "a", data=[1, 2])
    for wrong in ("no", "False", 0, None):
        with pytest.raises(TypeError, match=r"overwrite=.* must be True or False"):
            zellige.create_array(tmp_path / "a", shape=3, overwrite=wrong)
        with pytest.raises(TypeError, match=r"overwrite=.* must be True or False"):
            zellige.create_group(tmp_path / "a", overwrite=wrong)
    assert zellige.open_array(tmp_path / "a")[:].tolist() == [1, 2]
    with pytest.raises(TypeError, match="checksum='x' must be True or False"):
        zellige.create_array(shape=3, checksum="x")


@pytest.mark.parametrize("shape", [True, (True,), [False]])
def test_a_resize_takes_lengths_only(shape):
    array = zellige.array([1, 2, 3])
    with pytest.raises(ValueError, match="must be integers"):
        array.resize(shape)
    assert array[:].tolist() == [1, 2, 3]


@pytest.mark.parametrize("shape", [{}, set(), {3: 1}, {3}])
def test_a_shape_has_an_order(shape):
    with pytest.raises(ValueError, match="has no order"):
        zellige.create_array(shape=shape)


def test_a_type_that_is_none_is_named_with_the_remedy():
    with pytest.raises(
        zellige.errors.UnknownDataTypeError, match=r"dtype=3 is not known; give a name such as 'float32'"
    ):
        zellige.create_array(shape=3, dtype=3)


def test_hints_name_settings_and_no_sections():
    with pytest.raises(KeyError, match=r"did you mean '\w+\.\w+'|known: "):
        zellige.create_array(shape=3, config={"foo": 1})
    with pytest.raises(KeyError, match="there is no setting 'array'") as found:
        zellige.config.set({"array": 3})
    assert "did you mean 'array'?" not in str(found.value)
