"""Arrays from other arrays: bytes are copied as they are where they mean the same, values otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import strategies as ours
import zellige
from counting_store import CountingStore, contents
from zellige.errors import ContainsArrayError, CorruptChunkError, MetadataError
from zellige.nodes import create as creation
from zellige.stores import LocalStore, MemoryStore

MODEL = ours.counted((6, 7), "int16")


def source(store: Any = None, **options: Any) -> zellige.Array:
    """An uneven array with something of everything; two of its chunks are not stored."""
    given = {
        "chunks": [[1, 2, 3], 4],
        "fill_value": 7,
        "attributes": {"unit": "K"},
        "dimension_names": ["t", None],
        "compressors": "gzip",
        "chunk_key_encoding": "v2",
        "order": "F",
        **options,
    }
    array = zellige.create_array(store, name="from", shape=MODEL.shape, dtype=MODEL.dtype, **given)
    array[1:] = MODEL[1:]
    return array


def expected() -> np.ndarray:
    model = MODEL.copy()
    model[0] = 7
    return model


# -- bytes as they are ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"chunks": "keep", "compressors": "keep"}, {"attributes": {}}], ids=repr)
def test_the_same_layout_copies_the_bytes(options):
    here, there = CountingStore(), CountingStore()
    array = source(here)
    here.reset()
    copy = zellige.from_array(there, data=array, name="to", **options)
    stored = {key[len("from/") :]: raw for key, raw in contents(here.inner).items() if key.startswith("from/")}
    copied = {key[len("to/") :]: raw for key, raw in contents(there.inner).items() if key.startswith("to/")}
    del stored["zarr.json"], copied["zarr.json"]
    assert copied == stored
    assert len(stored) == 4
    assert here.counts() == {"list": 1, "get": 4}
    assert there.counts()["put"] == 4
    assert np.array_equal(copy[...], expected())


def test_what_an_array_is_stays_with_its_copy():
    array = source()
    copy = zellige.from_array(data=array)
    for fact in ("shape", "dtype", "fill_value", "attrs", "dimension_names", "filters", "serializer", "compressors"):
        assert getattr(copy, fact) == getattr(array, fact), fact
    assert copy.write_chunk_sizes == array.write_chunk_sizes
    assert copy.metadata.to_dict() == array.metadata.to_dict()
    assert copy.order == "F"
    for name in ("regular", "rectilinear"):
        uniform = zellige.zeros((4, 4), chunks=[[2, 2], [2, 2]], chunk_grid=name)
        assert zellige.from_array(data=uniform).metadata.chunk_grid == uniform.metadata.chunk_grid


def test_nothing_is_decoded_on_the_way():
    store = MemoryStore()
    array = source(store)
    store.put("from/1.0", b"damaged")
    copy = zellige.from_array(store, data=array, name="to")
    assert store.get("to/1.0") == b"damaged"
    with pytest.raises(CorruptChunkError):
        copy[1, 0]
    assert np.array_equal(copy[3:], MODEL[3:])
    with pytest.raises(CorruptChunkError):  # another layout has to decode
        zellige.from_array(store, data=array, name="other", chunks=3)


def test_another_key_encoding_still_copies_the_bytes():
    store = MemoryStore()
    array = source(store)
    copy = zellige.from_array(store, data=array, name="to", chunk_key_encoding="default")
    assert store.get("to/c/2/1") == store.get("from/2.1")
    assert np.array_equal(copy[...], expected())


def test_chunks_outside_the_grid_are_not_copied():
    store = MemoryStore()
    array = source(store)
    store.put("from/9.9", b"left behind by somebody")
    zellige.from_array(store, data=array, name="to")
    assert store.get("to/9.9") is None


# -- values ---------------------------------------------------------------------------------------

CHANGES: list[dict[str, Any]] = [
    {"chunks": (2, 3)},
    {"chunks": [[5, 1], [7]]},
    {"chunks": "auto"},
    {"chunks": [[2, 2, 2], -1], "chunk_grid": "rectilinear"},
    {"compressors": None},
    {"compressor": "zstd"},
    {"checksum": True},
    {"filters": {"name": "transpose", "configuration": {"order": [1, 0]}}},
    {"serializer": {"name": "bytes", "configuration": {"endian": "big"}}},
    {"fill_value": 0},
    {"dtype": "float64"},
    {"dtype": "int64", "chunks": 5},
]


@pytest.mark.parametrize("options", CHANGES, ids=repr)
@pytest.mark.parametrize("at_once", [True, False])
def test_another_layout_has_equal_values(options, at_once, monkeypatch):
    if not at_once:
        monkeypatch.setattr(creation, "_AT_ONCE", 0)  # chunk by chunk, as for arrays larger than memory
    array = source()
    copy = zellige.from_array(data=array, **options)
    assert np.array_equal(copy[...], expected())
    assert copy.dtype == options.get("dtype", "int16")
    assert copy.attrs == array.attrs


def test_a_type_without_byte_order_can_become_one_with():
    small = zellige.create_array(data=np.arange(4, dtype="uint8"), chunks=3)
    assert zellige.from_array(data=small, dtype="float32")[...].tolist() == [0, 1, 2, 3]
    assert zellige.zeros_like(small, dtype="int64")[...].tolist() == [0] * 4
    with pytest.raises(MetadataError, match="does not fit"):
        zellige.from_array(data=zellige.full(4, -1, dtype="int8"), dtype="uint8")


def test_write_data_false_makes_an_empty_array():
    array = zellige.from_array(data=source(), write_data=False)
    assert array.nchunks_initialized == 0
    assert array.write_chunk_sizes == ((1, 2, 3), (4, 3))
    assert zellige.create_array(data=MODEL, write_data=False).nchunks_initialized == 0


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_an_array_is_not_overwritten_by_itself(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    array = source(store)
    before = contents(store)
    again = LocalStore(tmp_path) if kind == "local" else store
    actions = [
        lambda: zellige.from_array(again, data=array, name="from", chunks=3, overwrite=True),
        lambda: zellige.create_array(again, data=array, name="/from", overwrite=True),
        lambda: zellige.save(again, array, path="from"),
        lambda: zellige.save(again, array),  # the group that holds it
        lambda: zellige.open(again, path="from", mode="w", data=array),
    ]
    if kind == "local":  # the same place by another way
        actions.append(lambda: zellige.save(tmp_path / "from", array))
    for action in actions:
        with pytest.raises(ValueError, match="before it is read"):
            action()
        assert contents(store) == before
    zellige.from_array(store, data=array, name="from2", overwrite=True)
    assert np.array_equal(zellige.load(store, path="from2"), expected())


# -- anything array-like --------------------------------------------------------------------------


class Foreign:
    """An array of another library: a shape, a type, chunks, and slices that can be read."""

    def __init__(self, values: np.ndarray, chunks: Any) -> None:
        self.values, self.chunks = values, chunks
        self.shape, self.dtype = values.shape, values.dtype
        self.asked: list[Any] = []

    def __getitem__(self, index: Any) -> np.ndarray:
        self.asked.append(index)
        return self.values[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.values if dtype is None else self.values.astype(dtype)


CHUNKS_OF_OTHERS: list[tuple[Any, Any]] = [
    ((2, 4), ((2, 2, 2), (4, 3))),  # h5py, zarr
    (((1, 2, 3), (4, 3)), ((1, 2, 3), (4, 3))),  # dask
    (None, ((6,), (7,))),  # h5py, contiguous
]


@pytest.mark.parametrize(("chunks", "sizes"), CHUNKS_OF_OTHERS, ids=repr)
def test_chunks_of_other_libraries_are_kept(chunks, sizes):
    foreign = Foreign(MODEL, chunks)
    for make in (lambda: zellige.from_array(data=foreign), lambda: zellige.array(foreign)):
        array = make()
        assert array.write_chunk_sizes == sizes
        assert np.array_equal(array[...], MODEL)
    assert zellige.zeros_like(foreign).write_chunk_sizes == sizes
    assert zellige.from_array(data=foreign, chunks=3).write_chunk_sizes == ((3, 3), (3, 3, 1))


def test_a_large_array_is_read_chunk_by_chunk(monkeypatch):
    monkeypatch.setattr(creation, "_AT_ONCE", 0)
    foreign = Foreign(MODEL, ((1, 2, 3), (4, 3)))
    array = zellige.from_array(data=foreign)
    assert foreign.asked == [chunk.slices for chunk in array.iter_chunks()]
    assert np.array_equal(array[...], MODEL)


@pytest.mark.parametrize("data", [[[1, 2], [3, 4]], (1.5, 2.5), 5, True, np.float32(2), range(3), [], np.zeros((0, 3))])
def test_plain_values_become_arrays(data):
    for array in (zellige.array(data), zellige.create_array(data=data)):
        found = array[...]
        assert found.dtype == np.asarray(data).dtype
        assert np.array_equal(found, np.asarray(data))


# -- save and load --------------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    for store in (MemoryStore(), tmp_path / "x.zarr"):
        zellige.save(store, MODEL, chunks=3)
        assert np.array_equal(zellige.load(store), MODEL)
        assert zellige.open(store).chunks == (3, 3)
        zellige.save_array(store, [1, 2], path="/")  # in place of what was there
        assert zellige.load(store).tolist() == [1, 2]
        with pytest.raises(ContainsArrayError):
            zellige.save(store, [3], overwrite=False)
        with pytest.raises(FileNotFoundError):
            zellige.load(store, path="absent")
    store = MemoryStore()
    zellige.save(store, source(), path="a/b")
    assert np.array_equal(zellige.load(store, path="a/b"), expected())


# -- as numpy makes arrays ------------------------------------------------------------------------


def test_arrays_of_one_value():
    for made, model in [
        (zellige.zeros((2, 3), dtype="int8"), np.zeros((2, 3), "int8")),
        (zellige.zeros(2, dtype="r24"), np.zeros(2, "V3")),
        (zellige.zeros(2, dtype="bool"), np.zeros(2, bool)),
        (zellige.ones((2, 3)), np.ones((2, 3))),
        (zellige.ones(2, dtype="complex64"), np.ones(2, "complex64")),
        (zellige.full(3, 7, dtype="uint8"), np.full(3, 7, "uint8")),
        (zellige.full(2, np.nan), np.full(2, np.nan)),
        (zellige.empty(2, fill_value=3), np.full(2, 3.0)),
        (zellige.create((2, 2), dtype="int16", chunks=1), np.zeros((2, 2), "int16")),
    ]:
        assert made[...].dtype == model.dtype
        assert made[...].tobytes() == model.tobytes()
        assert made.nchunks_initialized == 0


LIKE = {"zeros_like": 0, "ones_like": 1, "empty_like": 0, "full_like": 7}


@pytest.mark.parametrize("name", LIKE)
def test_arrays_like_another(name):
    array = source()
    like = getattr(zellige, name)
    made = like(array)
    assert (made.shape, made.dtype, made.write_chunk_sizes) == (array.shape, array.dtype, array.write_chunk_sizes)
    assert made.compressors == array.compressors
    assert made.dimension_names == array.dimension_names
    assert made.attrs == {}
    assert (made[...] == LIKE[name]).all()
    assert like(array, shape=(3, 3)).shape == (3, 3)
    assert like(array, chunks=2).chunks == (2, 2)
    assert like(array, dtype="float32", attributes={"a": 1}).attrs == {"a": 1}
    store = MemoryStore()
    like(array, store=store, path="x")
    assert zellige.open(store, path="x").shape == array.shape
    plain = like([[1.5, 2.5]])
    assert (plain.shape, plain.dtype) == ((1, 2), np.dtype("float64"))


def test_arrays_like_one_without_a_fill_value():
    array = zellige.create_array(data=[0, 1, 2], zarr_format=2, fill_value=None)
    expected = {"zeros_like": 0, "ones_like": 1, "empty_like": None, "full_like": None}
    for name, fill in expected.items():
        made = getattr(zellige, name)(array)
        assert (made.metadata.zarr_format, made.fill_value) == (2, fill)
        assert made[:].tolist() == [fill or 0] * 3
        assert getattr(zellige, name)(array, zarr_format=3).fill_value == (fill or 0)
    assert zellige.full_like(zellige.full(3, 7, zarr_format=2), fill_value=None).fill_value is None
    assert zellige.full_like(zellige.full(3, 7, zarr_format=3), fill_value=None).fill_value == 0


def test_full_like_with_a_value():
    assert zellige.full_like(source(), fill_value=3)[0, 0] == 3
    assert zellige.full_like(np.zeros(2), fill_value=np.nan).fill_value != zellige.zeros(1).fill_value


def test_a_view_is_not_written_over_the_array_that_it_is_a_view_of():
    store = zellige.MemoryStore()
    zellige.create_array(store, name="x", data=np.arange(5))
    a = zellige.open_array(store, path="x")
    for data in (a.lazy[::2], zellige.concat([np.arange(3), a]), zellige.stack([a, a])):
        with pytest.raises(ValueError, match="would remove"):
            zellige.from_array(store, name="x", data=data, overwrite=True)
    assert a[...].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("target", [2, 3])
@pytest.mark.parametrize("source", [2, 3])
def test_names_of_axes_and_attributes_go_from_format_to_format(source, target):
    a = zellige.create_array(
        data=np.arange(6).reshape(2, 3), dimension_names=["y", "x"], attributes={"unit": "m"}, zarr_format=source
    )
    b = zellige.from_array(data=a, zarr_format=target)
    assert (b.metadata.zarr_format, b.dimension_names) == (target, ("y", "x"))
    assert np.array_equal(b[...], a[...])
    assert {k: v for k, v in b.attrs.items() if k != "_ARRAY_DIMENSIONS"} == {"unit": "m"}
    assert ("_ARRAY_DIMENSIONS" in b.attrs) == (target == 2)
