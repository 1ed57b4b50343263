"""dask arrays from stored arrays and into them: nothing is lost, whatever the chunks."""

from __future__ import annotations

import os
import pickle
import time
import warnings
from dataclasses import replace
from functools import partial

import cloudpickle
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask
import xarray as xr
import zarr
import zellige
import zellige.xarray
from counting_store import WRITES, CountingStore
from zellige.dask import AlignmentWarning, Part, edges_of, from_array, snap, store, store_parts
from zellige.storage import LocalStore


@st.composite
def cuts(draw, total: int | None = None) -> tuple[int, ...]:
    """Positive sizes, of a sum if one is given."""
    if total is None:
        return tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=8)))
    ends = sorted(draw(st.sets(st.integers(1, total - 1), max_size=8))) if total > 1 else []
    return tuple(b - a for a, b in zip([0, *ends], [*ends, total], strict=True))


# -- reading --------------------------------------------------------------------------------------


def test_blocks_are_the_stored_chunks():
    data = np.arange(59 * 12).reshape(59, 12)
    array = zellige.array(data, chunks=[[31, 28], 5])
    x = from_array(array)
    assert x.chunks == ((31, 28), (5, 5, 2))
    assert x.dtype == data.dtype
    assert np.array_equal(x.compute(), data)
    assert np.array_equal(x[[58, 0, 30], ::-2].compute(), data[[58, 0, 30], ::-2])
    assert np.array_equal(x.sum(axis=0).compute(), data.sum(axis=0))


def test_chunk_sizes_are_chunks_for_dask_itself():
    data = np.arange(59 * 12).reshape(59, 12)
    array = zellige.array(data, chunks=[[31, 28], 5])
    sharded = zellige.create_array(data=data, chunks=(10, 3), shards=([20, 40], 12))
    for sizes in (array.write_chunk_sizes, array.read_chunk_sizes, sharded.write_chunk_sizes, sharded.read_chunk_sizes):
        x = da.from_array(array, chunks=sizes)
        assert x.chunks == sizes
        assert np.array_equal(x.compute(), data)
        assert da.from_array(data).rechunk(sizes).chunks == sizes
        assert da.zeros(data.shape, chunks=sizes).chunks == sizes
    view = array.lazy[::2]
    assert np.array_equal(da.from_array(view, chunks=view.read_chunk_sizes).compute(), data[::2])


def test_inner_chunks_that_do_not_divide_their_shards_are_blocks(tmp_path):
    data, allowed = np.arange(1, 26), {"uneven_inner_chunks": True}
    array = zellige.create_array(tmp_path, data=data, chunks=4, shards=[[10, 7, 8]], config=allowed)
    x = from_array(tmp_path)
    assert x.chunks == ((4, 4, 2, 4, 3, 4, 4),) == array.read_chunk_sizes
    assert np.array_equal(x.compute(), data)
    shards = from_array(tmp_path, chunks="shards")
    store(shards + 1, array)
    assert np.array_equal(array[...], data + 1)
    with pytest.raises(ValueError, match=r"array\.uneven_inner_chunks"):
        store(shards, zellige.open_array(tmp_path))
    assert np.array_equal(array[...], data + 1)


def test_other_chunks_can_be_asked_for(tmp_path):
    data = np.arange(24)
    array = zellige.create_array(tmp_path, data=data, chunks=2, shards=[[8, 12, 4]])
    assert from_array(array).chunks == ((2,) * 12,)
    assert from_array(tmp_path, chunks="shards").chunks == ((8, 12, 4),)
    assert from_array(str(tmp_path), chunks=10).chunks == ((10, 10, 4),)
    assert from_array(array, chunks=((5, 19),)).chunks == ((5, 19),)
    for chunks in ("shards", 10, -1, "auto"):
        assert np.array_equal(from_array(array, chunks=chunks).compute(), data)


@pytest.mark.parametrize("data", [np.float64(3), np.empty((0, 3)), np.array(["a", "bcd"], "T"), np.array(["x", "yz"])])
def test_scalars_empty_arrays_and_strings_are_read(data):
    x = from_array(zellige.array(data))
    found = x.compute()
    assert (x.shape, found.dtype) == (data.shape, data.dtype)
    assert np.array_equal(found, data)


def test_a_part_reads_only_its_chunks():
    counting = CountingStore()
    zellige.create_array(counting, data=np.arange(40), chunks=[[5, 15, 20]])
    x = from_array(counting)
    counting.reset()
    assert x[7:9].sum().compute() == 15
    assert [key for key in counting.keys("get", "get_ranges") if key.startswith("c/")] == ["c/1"]


# -- names ----------------------------------------------------------------------------------------


def stores(tmp_path):
    return {"memory": zellige.MemoryStore(), "local": zellige.LocalStore(tmp_path / "a")}


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_a_name_changes_when_a_chunk_the_shape_or_an_attribute_does(kind, tmp_path):
    array = zellige.create_array(stores(tmp_path)[kind], data=np.arange(10), chunks=[[3, 7]])
    names = [from_array(array).name]
    assert from_array(zellige.open_array(array.store)).name == names[0]
    array[0] = 5
    names.append(from_array(array).name)
    array.append([1, 2])
    names.append(from_array(array).name)
    array.attrs["unit"] = "K"
    names.append(from_array(array).name)
    zellige.create_array(array.store, data=np.arange(10), chunks=[[3, 7]], overwrite=True)
    names.append(from_array(array.store).name)
    assert len({*names}) == len(names)


def test_chunks_and_places_have_names_of_their_own(tmp_path):
    a = zellige.create_array(tmp_path / "a", data=np.arange(10), chunks=5)
    b = zellige.create_array(tmp_path / "b", data=np.arange(10), chunks=5)
    assert len({x.name for x in (from_array(a), from_array(b), from_array(a, chunks=3))}) == 3
    assert from_array(a, token="v1").name == from_array(b, token="v1").name != from_array(a, token="v2").name


def test_where_tags_cost_requests_every_name_is_new():
    store = CountingStore()
    store.traits = replace(store.traits, concurrency=4)
    array = zellige.create_array(store, data=np.arange(10))
    assert from_array(array).name != from_array(array).name


def test_the_name_of_an_array_in_a_zip_file_leaves_the_archive_open(tmp_path):
    """The token was made of objects that hold the archive's descriptor, and copies of them closed it."""
    data = np.arange(100_000)
    for name, values in {"1.zip": data, "2.zip": data + 10**6}.items():
        zellige.save(tmp_path / name, values, chunks=25_000, compressors=None)
    first = zellige.open_array(tmp_path / "1.zip", mode="r")
    x = from_array(first)
    second = zellige.open_array(tmp_path / "2.zip", mode="r")  # which got the same descriptor
    assert np.array_equal(first[:], data)
    assert np.array_equal(x.compute(), data)
    assert np.array_equal(second[:], data + 10**6)


def test_the_name_of_an_array_in_a_zip_file_is_that_of_the_archive(tmp_path):
    names = []
    for value in range(3):
        zellige.save(tmp_path / "a.zip", np.full(10, value // 2), compressors=None, overwrite=True)
        names.append(from_array(tmp_path / "a.zip").name)
        assert from_array(tmp_path / "a.zip").name == names[-1]
    assert len({*names}) == 3


# -- pickles and processes ------------------------------------------------------------------------


def test_a_task_is_small_even_for_very_many_edges(tmp_path):
    sizes = np.random.default_rng(3).integers(1, 50, 1000)
    common = {"shape": (int(sizes.sum()),), "chunks": [sizes], "dtype": "i2", "attributes": {"a": "b" * 999}}
    source, target = (zellige.create_array(tmp_path / name, **common) for name in "ab")
    assert len(pickle.dumps(source)) > 3000
    (reading,) = dask.optimize(from_array(source)[5:900])
    writing = store(from_array(source), target, compute=False)
    for graph, least in ((dict(reading.dask), 10), (dict(writing.dask), 1000)):
        tasks = [task for key, task in graph.items() if not str(key).startswith("zellige-stored")]
        assert len(tasks) >= least
        assert max(len(cloudpickle.dumps(task)) for task in tasks) < 2048


def test_a_handle_reads_its_document_once_in_each_process(tmp_path):
    from zellige.dask.reader import Handle

    array = zellige.create_array(tmp_path, data=np.arange(10), chunks=[[4, 6]])
    raw = pickle.dumps(Handle(array))
    first, second = pickle.loads(raw), pickle.loads(raw)
    assert first._array is second._array
    assert np.array_equal(first[2:5], [2, 3, 4])
    assert dask.base.tokenize(first) == dask.base.tokenize(Handle(array))


def test_memory_is_not_sent_to_other_processes():
    x = from_array(zellige.array(np.arange(10)))
    with pytest.raises(TypeError, match="memory of this process"):
        cloudpickle.dumps(dict(x.dask))


def test_a_process_pool_writes_and_reads(tmp_path):
    data = np.arange(100)
    with dask.config.set(scheduler="processes", num_workers=2):
        array = store(da.from_array(data, chunks=((10, 33, 57),)), tmp_path)
        assert np.array_equal((from_array(array) + 1).compute(), data + 1)
    assert np.array_equal(array[:], data)


# -- writing --------------------------------------------------------------------------------------


def test_an_array_is_created_with_a_chunk_for_each_block(tmp_path):
    x = da.random.default_rng(1).normal(size=(20, 9), chunks=((3, 10, 7), 4))
    array = store(x, tmp_path, name="a/b", compressors="gzip", attributes={"unit": "K"}, dimension_names=["y", "x"])
    assert array.path == "a/b"
    assert array.write_chunk_sizes == ((3, 10, 7), (4, 4, 1))
    assert (array.compressors[0].name, array.attrs["unit"]) == ("gzip", "K")
    assert np.array_equal(array[:], x.compute())
    with pytest.raises(FileExistsError):
        store(x, tmp_path, name="a/b")
    regular = store(x.rechunk(5), tmp_path, name="a/b", overwrite=True)
    assert regular.chunks == (5, 5)


def test_nothing_is_written_before_it_is_computed(tmp_path):
    later = store(da.ones(10, chunks=3), tmp_path, compute=False)
    array = zellige.open_array(tmp_path)
    assert array.nchunks_initialized == 0
    later.compute()
    assert np.array_equal(array[:], np.ones(10))


def test_computing_twice_writes_twice(tmp_path):
    array = zellige.create_array(tmp_path, shape=(10,), chunks=5)
    x = da.ones(10, chunks=5)
    store(x, array)
    array[:] = 0
    store(x, array)
    assert np.array_equal(array[:], np.ones(10))


def test_a_region_is_written_and_nothing_else():
    array = zellige.zeros((20, 6), chunks=[[3, 10, 7], [1, 5]], dtype="i4")
    with pytest.warns(AlignmentWarning, match=r"axis 0; 4 blocks were rechunked to \d"):
        store(da.arange(12 * 4, dtype="i4", chunks=12).reshape(12, 4), array, region=[slice(2, 14), slice(-5, -1)])
    model = np.zeros((20, 6), "i4")
    model[2:14, 1:5] = np.arange(48).reshape(12, 4)
    assert np.array_equal(array[:], model)


def test_what_does_not_fit_is_refused_before_anything_is_written():
    array = zellige.zeros((10,), chunks=5)
    x = da.ones(10, chunks=5)
    before = {key: array.store.get(key) for key in array.store.list()}
    unknown = da.ones(10, chunks=5)
    unknown = unknown[unknown > 0]
    cases = [
        (x[:9], {}, ValueError, r"has shape \(9,\)"),
        (x, {"region": [slice(3, 9)]}, ValueError, r"shape \(6,\)"),
        (x, {"region": [slice(0, 10, 2)]}, ValueError, "without a step"),
        (x, {"dtype": "f4"}, TypeError, "only for a target that is created"),
        (unknown, {}, ValueError, "unknown size"),
        (np.ones(10), {}, TypeError, "expected a dask array"),
    ]
    for data, options, error, message in cases:
        with pytest.raises(error, match=message):
            store(data, array, **options)
    with pytest.raises(ValueError, match="say dtype="):
        store(da.from_array(np.array(["a", "b"], object), chunks=1), {})
    assert {key: array.store.get(key) for key in array.store.list()} == before


def test_several_arrays_are_stored_in_one_computation():
    a, b = zellige.zeros(6, chunks=2), zellige.zeros(4, chunks=4)
    called = []
    store_parts(
        [Part(da.ones(6, chunks=2), a), Part(da.ones(2, chunks=2), b, (slice(2, 4),))], then=lambda: called.append(1)
    )
    assert (a[:].sum(), b[:].tolist(), called) == (6, [0, 0, 1, 1], [1])


# -- alignment ------------------------------------------------------------------------------------


@given(st.data())
def test_snapped_blocks_share_no_chunk_and_cover_everything(data):
    stored = data.draw(cuts())
    total = sum(stored)
    start = data.draw(st.integers(0, total - 1))
    blocks = data.draw(cuts(data.draw(st.integers(1, total - start))))
    snapped = snap(blocks, stored, start)
    assert sum(snapped) == sum(blocks)
    assert min(snapped) > 0
    inner_ends = set((start + np.cumsum(snapped))[:-1].tolist())
    assert inner_ends <= set(np.cumsum(stored).tolist())
    if set((start + np.cumsum(blocks))[:-1].tolist()) <= set(np.cumsum(stored).tolist()):
        assert snapped == blocks


@given(cuts())
@settings(max_examples=50)
def test_edges_make_the_blocks_that_they_came_from(blocks):
    (entry,) = edges_of([blocks])
    array = zellige.create_array(shape=(sum(blocks),), chunks=[entry])
    assert array.write_chunk_sizes == (blocks,)
    regular = len(set(blocks[:-1])) <= 1 and blocks[-1] <= blocks[0]
    assert isinstance(entry, int) == regular


def test_moved_blocks_are_reported_with_numbers_at_the_line_of_the_caller():
    array = zellige.zeros((30, 4), chunks=[[7, 14, 9], 4])
    with pytest.warns(AlignmentWarning) as found:
        store(da.ones((30, 4), chunks=(5, 4)), array)
    assert "along axis 0; 6 blocks were rechunked to 3" in str(found[0].message)
    assert os.path.samefile(found[0].filename, __file__)


def test_aligned_blocks_are_left_alone():
    array = zellige.zeros((30,), chunks=[[7, 14, 9]])
    store(da.ones(30, chunks=((21, 9),)), array)  # a warning would be an error
    store(da.ones(16, chunks=((14, 2),)), array, region=[slice(7, 23)])
    assert array[:].sum() == 30


def slowly(block: np.ndarray) -> np.ndarray:
    time.sleep(0.001)  # so that blocks overlap
    return block


class Misaligned:
    """A dask array of 400 elements on its way onto chunks that end elsewhere."""

    def __init__(self, place, seed: int, *, align: bool) -> None:
        rng = np.random.default_rng(seed)
        sizes = np.diff([0, *sorted(rng.choice(np.arange(1, 400), 12, replace=False)), 400])
        blocks = np.diff([0, *sorted(rng.choice(np.arange(1, 400), 10, replace=False)), 400])
        self.data = np.arange(1, 401)
        self.array = zellige.create_array(place, name=str(seed), shape=(400,), dtype="i8", chunks=[sizes])
        x = da.from_array(self.data, chunks=(tuple(map(int, blocks)),)).map_blocks(slowly)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AlignmentWarning)
            self.later = store(x, self.array, align=align, compute=False)

    def lost(self) -> int:
        """How many elements did not arrive."""
        return int((self.array[:] != self.data).sum())


def lost_in(runs: int, place, *, align: bool) -> int:
    """How many elements are lost in so many runs, with whatever dask computes: threads, processes, a cluster."""
    stores = [Misaligned(place, seed, align=align) for seed in range(runs)]
    assert sum(store.lost() for store in stores) == runs * 400
    dask.compute(*(store.later for store in stores))
    return sum(store.lost() for store in stores)


@pytest.mark.parametrize("align", [True, False], ids=["aligned", "as they are"])
def test_misaligned_parallel_stores_lose_nothing_in_50_runs(align, tmp_path):
    with dask.config.set(scheduler="threads", num_workers=8):
        assert lost_in(50, tmp_path, align=align) == 0


def test_aligned_tasks_write_each_chunk_once_and_read_none():
    counting = CountingStore()
    with dask.config.set(scheduler="threads", num_workers=4):
        assert lost_in(1, counting, align=True) == 0
    written = [key for key in counting.keys(*WRITES) if key.startswith("0/c/")]
    assert sorted(written) == sorted(f"0/c/{k}" for k in range(13))


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_any_blocks_go_onto_any_chunks(data):
    shape = (data.draw(st.integers(1, 30)), data.draw(st.integers(1, 12)))
    stored = [list(data.draw(cuts(n))) for n in shape]
    blocks = tuple(data.draw(cuts(n)) for n in shape)
    model = np.arange(1, 1 + shape[0] * shape[1]).reshape(shape)
    array = zellige.create_array(shape=shape, dtype="i8", chunks=stored)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignmentWarning)
        store(da.from_array(model, chunks=blocks), array)
    assert np.array_equal(array[:], model)
    assert np.array_equal(from_array(array).compute(), model)


MASKED = np.ma.masked_array([1, -9999, 3, 4], [0, 1, 0, 0])
UNFIT = {
    "masked": (lambda: da.from_array(MASKED, chunks=2), zellige.errors.MaskedValueError, -9999),
    "masked by a task": (
        lambda: da.ones(4, chunks=2, dtype=int).map_blocks(lambda b: np.ma.masked_equal(b, 1), dtype=int),
        zellige.errors.MaskedValueError,
        1,
    ),
    "of another type than dask knows": (
        lambda: da.ones(4, chunks=2, dtype=int).map_blocks(lambda b: b + 0.5, dtype=int, meta=np.empty(0, int)),
        zellige.errors.LossyCastError,
        1,
    ),
    "too large": (
        lambda: da.from_array(np.array([1, 2, 3, 2.0**70]), chunks=2),
        zellige.errors.LossyCastError,
        np.iinfo(int).min,
    ),
}


@pytest.mark.parametrize(
    ("name", "chunks", "scheduler"),
    [
        *((name, chunks, "threads") for name in UNFIT for chunks in (2, 3, 4, [[1, 3]])),
        *((name, 3, "processes") for name in UNFIT),
    ],
)
@pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning")
def test_blocks_that_an_array_cannot_store_are_refused_however_they_are_cut(name, chunks, scheduler, tmp_path):
    make, error, wrong = UNFIT[name]
    a = zellige.create_array(tmp_path / "a.zarr", shape=4, chunks=chunks, dtype=int)
    with dask.config.set(scheduler=scheduler):
        with pytest.raises(error):
            store(make(), a)
        with pytest.raises(error):
            store(make(), tmp_path / "new.zarr", chunks=chunks, dtype=int)
    assert wrong not in a[:]


@pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning")
def test_masked_blocks_without_masked_elements_are_stored():
    values = np.ma.masked_array(np.arange(4), False)
    a = zellige.create_array(shape=4, chunks=3, dtype=int)
    store(da.from_array(values, chunks=2), a)
    assert a[:].tolist() == [0, 1, 2, 3]


# -- failures -----------------------------------------------------------------------------------


def _failing(block, block_info=None):
    if block_info[0]["chunk-location"] == (1,):
        raise RuntimeError("a bad block")
    return block


WAYS = {
    "store": lambda x, place: store(x, place),
    "store in other chunks": lambda x, place: store(x, place, chunks=4),
    "store and overwrite": lambda x, place: store(x, place, overwrite=True),
    "create_array": lambda x, place: zellige.create_array(place, data=x, chunks=3),
    "from_array": lambda x, place: zellige.from_array(place, data=x),
    "save": lambda x, place: zellige.save(place, x),
    "a member": lambda x, place: zellige.open_group(place.parent).create_array(place.name, data=x),
}


@pytest.mark.parametrize(
    ("way", "at_once", "scheduler"),
    [*((way, size, "threads") for way in WAYS for size in (0, 1 << 20)), ("store in other chunks", 0, "processes")],
)
@pytest.mark.filterwarnings("ignore::zellige.dask.AlignmentWarning")
def test_a_task_that_fails_leaves_no_array_and_the_call_can_be_repeated(way, at_once, scheduler, tmp_path, monkeypatch):
    monkeypatch.setattr(zellige.nodes.create, "_AT_ONCE", at_once)
    good = da.from_array(np.arange(1, 10), chunks=3)
    with dask.config.set(scheduler=scheduler):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a bad block"):
                WAYS[way](good.map_blocks(_failing, dtype=int), tmp_path / "x.zarr")
            with pytest.raises(zellige.errors.NodeNotFoundError):
                zellige.open_array(tmp_path / "x.zarr")
            with pytest.raises(FileNotFoundError):
                zarr.open(tmp_path / "x.zarr", mode="r")
        WAYS[way](good, tmp_path / "x.zarr")
    assert zellige.load(tmp_path / "x.zarr").tolist() == list(range(1, 10))
    assert [name for name in os.listdir(tmp_path / "x.zarr") if "zellige" in name] == []


def test_a_store_that_is_under_way_keeps_others_out(tmp_path):
    seen = []

    def look(block):
        with zellige.config.set({"lease.wait": 0}), pytest.raises(zellige.errors.ConflictError) as caught:
            store(da.zeros(6, chunks=2), tmp_path / "x.zarr")
        seen.append(caught.value)
        return block

    with dask.config.set(scheduler="threads", num_workers=1):
        store(da.ones(6, chunks=6).map_blocks(look, dtype=float, meta=np.empty(0)), tmp_path / "x.zarr")
    assert len(seen) == 1
    assert zellige.load(tmp_path / "x.zarr").tolist() == [1] * 6


def test_what_is_computed_later_is_there_at_once(tmp_path):
    later = store(da.ones(6, chunks=2), tmp_path / "x.zarr", compute=False)
    assert zellige.load(tmp_path / "x.zarr").tolist() == [0] * 6
    later.compute()
    assert zellige.load(tmp_path / "x.zarr").tolist() == [1] * 6


# -- storing over what is read --------------------------------------------------------------------


READERS = {
    "from_array": lambda place: from_array(place),
    "arithmetic": lambda place: (from_array(place) + 1)[::2].sum(axis=0, keepdims=True),
    "dask": lambda place: da.from_array(zellige.open_array(place, mode="r"), chunks=2),
    "a view": lambda place: da.from_array(zellige.open_array(place, mode="r").lazy[::-1], chunks=2),
    "delayed": lambda place: da.from_delayed(dask.delayed(np.asarray)(zellige.open_array(place, mode="r")), (6,), int),
    "fused": lambda place: dask.optimize(from_array(place)[1:] + 1)[0],
    "zarr-python": lambda place: da.from_zarr(zarr.open_array(place, mode="r")),
    "a path read by zarr-python": lambda place: da.from_zarr(str(place)) + 1,
    "a relative path": lambda place: da.from_zarr(os.path.relpath(place)),
    "a URL read by zarr-python": lambda place: da.from_zarr(place.as_uri()),
    "xarray": lambda place: xr.DataArray(xr.Variable("x", from_array(place) * 2)).data,
    "a closure": lambda place: _with_closure(zarr.open_array(place, mode="r")),
    "a default": lambda place: _with_default(zellige.open_array(place, mode="r")),
    "a method": lambda place: ones().map_blocks(_Reader(zellige.open_array(place, mode="r")).add),
    "a method of the array": lambda place: da.from_delayed(
        dask.delayed(zarr.open_array(place, mode="r").get_basic_selection)(slice(0, 6)), (6,), int
    ),
    "a partial": lambda place: ones().map_blocks(partial(_add, zarr.open_array(place, mode="r"))),
    "a dataset in a closure": lambda place: _with_closure(xr.Dataset({"a": ("x", from_array(place))})["a"]),
    "a global variable": lambda place: _with_global(zellige.open_array(place, mode="r")),
}


def ones():
    return da.ones(6, chunks=2, dtype=int)


def _with_closure(found):
    def add(block):
        def inner():
            return add and np.asarray(found[0])

        return block + inner()

    return ones().map_blocks(add, dtype=int)


class _Reader:
    def __init__(self, found):
        self.found = found

    def add(self, block):
        return block + self.found[0]


def _add(found, block):
    return block + found[0]


def _with_default(found):
    return ones().map_blocks(lambda block, found=found: block + found[0], dtype=int)


def _with_global(found):
    names = {"found": found}
    exec("def add(block): return block + found[0]", names)
    return ones().map_blocks(names["add"], dtype=int)


@pytest.mark.parametrize("reader", READERS)
def test_what_is_read_is_not_overwritten(reader, tmp_path):
    zellige.save_group(tmp_path / "x.zarr", a=np.arange(6), b=np.arange(3))
    x = READERS[reader](tmp_path / "x.zarr" / "a")
    group = zellige.open_group(tmp_path / "x.zarr")
    targets = [
        (tmp_path / "x.zarr" / "a", {}),
        (str(tmp_path / "x.zarr" / "a"), {}),
        ((tmp_path / "x.zarr" / "a").as_uri(), {}),
        (tmp_path / "x.zarr", {"name": "a"}),
        (tmp_path / "x.zarr", {}),  # the group above
        (LocalStore(tmp_path), {"name": "x.zarr/a"}),
        (zellige.storage.StorePath(LocalStore(tmp_path), "x.zarr"), {}),
        (group["a"].store_path, {}),
        (group.store_path, {"name": "a"}),
    ]
    for target, options in targets:
        for compute in (True, False):
            with pytest.raises(ValueError, match=r"reads.*would remove.*another place"):
                store(x, target, overwrite=True, compute=compute, **options)
    for write in (
        lambda: zellige.save(tmp_path / "x.zarr" / "a", x),
        lambda: zellige.save_array(tmp_path / "x.zarr", x),
        lambda: zellige.from_array(tmp_path / "x.zarr", name="a", data=x, overwrite=True),
        lambda: zellige.create_array(tmp_path / "x.zarr", data=x, overwrite=True),
        lambda: zellige.array(x, store=tmp_path / "x.zarr", path="a", overwrite=True),
        lambda: zellige.open_array(tmp_path / "x.zarr", path="a", mode="w", data=x),
        lambda: group.create_array("a", data=x, overwrite=True),
        lambda: group.__setitem__("a", x),
    ):
        with pytest.raises(ValueError, match="would remove"):
            write()
    assert zellige.load(tmp_path / "x.zarr", path="a").tolist() == list(range(6))
    store(x, tmp_path / "x.zarr", name="b", overwrite=True)
    assert np.array_equal(zellige.load(tmp_path / "x.zarr", path="b"), x.compute())
    assert zellige.load(tmp_path / "x.zarr", path="a").tolist() == list(range(6))


def test_values_that_were_loaded_are_stored_over_where_they_came_from(tmp_path):
    zellige.save(tmp_path / "a", np.arange(6), chunks=2)
    store((from_array(tmp_path / "a") + 1).persist(), tmp_path / "a", overwrite=True)
    assert zellige.load(tmp_path / "a").tolist() == [1, 2, 3, 4, 5, 6]


IN_PLACE = {
    "the same blocks": lambda x: x * 2,
    "twice the same": lambda x: x + x,
    "blocks joined": lambda x: da.from_array(np.arange(12), chunks=x.chunks) + x,
}


@pytest.mark.parametrize("change", IN_PLACE)
def test_an_array_is_changed_in_place_where_each_block_reads_what_it_writes(change):
    a = zellige.create_array(data=np.arange(12), chunks=[[3, 3, 4, 2]])
    wanted = IN_PLACE[change](from_array(a)).compute()
    store(IN_PLACE[change](from_array(a)), a)
    assert np.array_equal(a[:], wanted)


def test_a_part_is_filled_with_values_from_another_part():
    a = zellige.create_array(data=np.arange(12), chunks=[[3, 3, 4, 2]])
    store(from_array(a)[:3] * 10, a, region=[slice(3, 6)])
    assert a[:].tolist() == [0, 1, 2, 0, 10, 20, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("open_again", [str, os.path.relpath])
def test_an_array_that_zarr_python_reads_is_changed_in_place_but_not_shifted(tmp_path, open_again):
    a = zellige.create_array(tmp_path / "a.zarr", data=np.arange(12), chunks=3)
    store(da.from_zarr(open_again(tmp_path / "a.zarr")) * 2, a)
    assert a[:].tolist() == list(range(0, 24, 2))
    with pytest.raises(ValueError, match=r"reads parts of '/'.*other blocks.*another place"):
        store(da.from_zarr(open_again(tmp_path / "a.zarr"))[::-1], a)
    assert a[:].tolist() == list(range(0, 24, 2))


RACES = {
    "shifted": (lambda x: x[1:], slice(0, 11)),
    "shifted by a chunk": (lambda x: x[3:], slice(0, 9)),
    "reversed": (lambda x: x[::-1], slice(None)),
    "cumulated": (lambda x: da.cumsum(x, axis=0), slice(None)),
    "centred": (lambda x: x - x.sum(), slice(None)),
    "overlapping": (lambda x: da.overlap.map_overlap(lambda b: b, x, depth=1, boundary="none"), slice(None)),
    "by something else": (lambda x: da.from_delayed(dask.delayed(sum)(list(x.to_delayed())), (12,), int), slice(None)),
}


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("align", [True, False])
def test_blocks_that_others_may_have_overwritten_are_not_read(race, align):
    make, region = RACES[race]
    values = np.arange(12)
    a = zellige.create_array(data=values, chunks=[[3, 3, 4, 2]])
    x = make(from_array(a)).rechunk(6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignmentWarning)
        with pytest.raises(ValueError, match=r"reads parts of '/'.*other blocks.*another place"):
            store(x, a, region=[region], align=align)
    assert np.array_equal(a[:], values)


def test_blocks_that_are_moved_to_the_ends_of_chunks_read_what_others_write():
    a = zellige.create_array(data=np.arange(12), chunks=[[3, 3, 4, 2]])
    with pytest.warns(AlignmentWarning), pytest.raises(ValueError, match="reads parts of"):
        store(from_array(a, chunks=5) * 2, a)
    assert a[:].tolist() == list(range(12))
    store(from_array(a, chunks=5) * 2, a, align=False)
    assert a[:].tolist() == list(range(0, 24, 2))


@pytest.mark.parametrize("chunks", [{}, {"t": 4}])
def test_a_dataset_is_changed_in_place_but_not_shifted(tmp_path, chunks):
    data = xr.Dataset({"v": ("t", np.arange(12.0))})
    data.chunk(t=4).zellige.write(tmp_path / "x.zarr", consolidated=False)
    found = xr.open_dataset(tmp_path / "x.zarr", engine="zellige", chunks=chunks)
    (found + 1).zellige.write(tmp_path / "x.zarr", mode="r+")
    assert zellige.load(tmp_path / "x.zarr", path="v").tolist() == [*range(1, 13)]
    found = xr.open_dataset(tmp_path / "x.zarr", engine="zellige", chunks=chunks)
    for changed in (found.roll(t=1), found.isel(t=slice(None, None, -1)), found.shift(t=4, fill_value=0)):
        with pytest.raises(ValueError, match="reads parts of"):
            changed.chunk(t=4).zellige.write(tmp_path / "x.zarr", mode="r+")
    assert zellige.load(tmp_path / "x.zarr", path="v").tolist() == [*range(1, 13)]


def test_a_dataset_is_made_longer_by_a_part_of_itself(tmp_path):
    xr.Dataset({"v": ("t", np.arange(8.0))}).chunk(t=2).zellige.write(tmp_path / "x.zarr")
    lazy = xr.open_dataset(tmp_path / "x.zarr", engine="zellige").isel(t=slice(3, 7)).chunk(t=2)
    lazy.zellige.write(tmp_path / "x.zarr", append_dim="t")
    assert zellige.load(tmp_path / "x.zarr", path="v").tolist() == [*range(8), 3, 4, 5, 6]


def test_two_arrays_are_not_stored_over_each_other():
    a, b = (zellige.create_array(data=np.arange(6) * k, chunks=3) for k in (1, 2))
    with pytest.raises(ValueError, match="reads parts of"):
        store_parts([Part(from_array(a), b), Part(from_array(b), a)])
    assert (a[:].tolist(), b[:].tolist()) == ([0, 1, 2, 3, 4, 5], [0, 2, 4, 6, 8, 10])
    store_parts([Part(from_array(a) + 1, a), Part(from_array(b) + 1, b)])
    assert (a[0], b[1]) == (1, 3)
