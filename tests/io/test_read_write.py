"""Motion, counted: which chunks are asked for, how often, how many bytes; and what happens when chunks are bad."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from counting_store import READS, CountingStore, contents
from zellige.codecs import GzipCodec
from zellige.errors import ChunkNotFoundError, CodecError, CorruptChunkError, EncodeError
from zellige.stores import LocalStore, MemoryStore
from zellige.stores import threads as team
from zellige.stores.base import Value
from zellige.stores.wrappers import LatencyStore

TRILLION = 10**12

PENDING = "__zellige_pending"


def make(shape: Any, chunks: Any, **options: Any) -> tuple[zellige.Array, CountingStore]:
    """An array of fill values on a store that has counted nothing yet."""
    store = CountingStore()
    return zellige.create_array(store, shape=shape, chunks=chunks, **options), store.reset()


def filled(model: np.ndarray, chunks: Any, **options: Any) -> tuple[zellige.Array, CountingStore]:
    """An array with these values on a store that has counted nothing yet."""
    store = CountingStore()
    return zellige.create_array(store, data=model, chunks=chunks, **options), store.reset()


def key_of(coords: tuple[int, ...]) -> str:
    return "/".join(["c", *map(str, coords)])


# -- only what is hit is touched ------------------------------------------------------------------


@st.composite
def hits(draw: st.DrawFn) -> tuple[ours.Grid, Any, dict[str, tuple[int, int]]]:
    """A grid, an index, and by the naive oracle for each chunk hit: how many elements are picked, of how many."""
    shape = draw(ours.shapes(min_dims=1, max_side=7))
    grid = draw(ours.grids(shape))
    index = draw(ours.basic(shape) | ours.mixed(shape))
    owner = np.zeros(shape, object)
    for coords, region in grid.slices.items():
        owner[region] = key_of(coords)
    try:
        picked = owner[index]
    except IndexError:
        index, picked = ..., owner
    counts = np.unique(np.asarray(picked, str), return_counts=True)
    sizes = dict(zip(*np.unique(owner.astype(str), return_counts=True), strict=True))
    return grid, index, {str(key): (int(n), int(sizes[key])) for key, n in zip(*counts, strict=True)}


def attempt(action: Any) -> bool:
    """Whether it succeeds; bounds are checked even if nothing is picked, unlike in numpy."""
    try:
        action()
    except IndexError:
        return False
    return True


@ours.examples(0.1)
@given(hits(), st.sampled_from([None, "zstd"]))
def test_a_read_asks_once_for_each_chunk_hit_and_for_no_other(case, compressors):
    grid, index, expected = case
    array, store = filled(ours.counted(grid.shape), grid.argument, compressors=compressors)
    if attempt(lambda: array[index]):
        assert sorted(store.keys()) == sorted(expected)
        assert set(store.counts()) <= {"get", "get_ranges"}
        assert sorted(chunk.key for chunk in array.iter_chunks(index)) == sorted(expected)


@ours.examples(0.1)
@given(hits())
def test_a_write_puts_each_chunk_hit_and_no_other(case):
    grid, index, expected = case
    array, store = filled(ours.counted(grid.shape), grid.argument)
    if attempt(lambda: array.__setitem__(index, -1)):
        assert sorted(store.keys("put")) == sorted(expected)
        assert len(store.keys(*READS)) == len(set(store.keys(*READS)))
        assert set(store.keys(*READS)) <= set(expected)
        assert not store.made("delete", "list")


@ours.examples(0.1)
@given(st.data())
def test_whole_chunks_are_never_read_and_others_once(data):
    """Whole is a chunk that lies inside the array: another handle may know that the array ends later."""
    shape = data.draw(ours.shapes(min_dims=1, max_side=7))
    grid = data.draw(ours.grids(shape))
    bound = [st.none() | st.integers(-n, n) for n in shape]
    index = tuple(slice(data.draw(b), data.draw(b), data.draw(st.sampled_from([1, -1, 2]))) for b in bound)
    array, store = filled(ours.counted(shape), grid.argument)
    array[index] = -1
    chosen = np.zeros(shape, bool)
    chosen[index] = True
    inside = {chunk.coords for chunk in array.iter_chunks() if chosen[chunk.slices].shape == chunk.codec_shape}
    read = [
        key_of(k)
        for k, region in grid.slices.items()
        if chosen[region].any() and not (chosen[region].all() and k in inside)
    ]
    assert sorted(store.keys(*READS)) == sorted(read)


@pytest.mark.parametrize("chain", [{}, {"compressors": None}, {"compressors": "gzip", "checksum": True}])
def test_stored_bytes_are_the_padded_chunks(chain):
    model = ours.counted((5, 7))
    array, store = filled(model, [[2, 3], 3], fill_value=-1, **chain)
    padded = np.full((5, 9), -1, "int32")
    padded[:, :7] = model
    stored = {key: value for key, value in contents(store).items() if key != "zarr.json"}
    assert sorted(stored) == [key_of((i, j)) for i in range(2) for j in range(3)]
    for chunk in array.iter_chunks():
        rows, columns = chunk.slices
        expected = padded[rows, columns.start : columns.start + 3]
        assert chunk.codec_shape == expected.shape
        if chain == {"compressors": None}:
            assert stored[chunk.key] == expected.tobytes()
    # Another array that declares the padded extent sees the padding as data.
    document = array.metadata.to_bytes().replace(b'"shape": [5, 7]', b'"shape": [5, 9]')
    wider = zellige.open(MemoryStore({**stored, "zarr.json": document}))
    assert np.array_equal(wider[...], padded)


# -- a trillion chunks ----------------------------------------------------------------------------


@pytest.mark.parametrize("grid", ["regular", "rectilinear"])
def test_ten_values_of_a_trillion_chunks_are_ten_requests(grid):
    array, store = make((TRILLION,), [[[1, TRILLION]]], dtype="int8", chunk_grid=grid)
    assert array.nchunks == TRILLION
    array[:: TRILLION // 10] = np.arange(1, 11)
    assert store.counts() == {"put": 10}
    store.reset()
    assert array[:: TRILLION // 10].tolist() == list(range(1, 11))
    assert store.counts() == {"get": 10}
    assert store.keys() == [key_of((k * TRILLION // 10,)) for k in range(10)]
    store.reset()
    assert array[[TRILLION - 1, 5, 5]].tolist() == [0, 0, 0]
    assert sorted(store.keys()) == [key_of((5,)), key_of((TRILLION - 1,))]


@pytest.mark.parametrize("chunks", [[[[1, TRILLION]]], [[[1, TRILLION // 2], [2, TRILLION // 4]]]])
def test_a_trillion_chunks_take_little_memory(chunks):
    store = MemoryStore()
    small = zellige.create_array(shape=(4,), chunks=[[1, 3]], dtype="int8")
    small.append(np.ones(3, "int8"))  # imports what is imported on first use, as do the next lines
    assert "(7,)" in repr(small)
    assert small.info["Shape"] == "(7,)"
    assert zellige.open(small.store, mode="r")[-4:].tolist() == [0, 1, 1, 1]
    tracemalloc.start()
    try:
        array = zellige.create_array(store, shape=(TRILLION,), chunks=chunks, dtype="int8")
        opened = zellige.open(store, mode="r")
        assert opened[TRILLION - 1] == 0
        assert opened.write_chunk_sizes[0][-1] in (1, 2)
        assert f"{TRILLION}" in repr(opened)
        assert f"{TRILLION}" in opened.info["Shape"]
        array.resize((TRILLION + 5,))
        array.append(np.ones(3, "int8"))
        assert array[-4:].tolist() == [0, 1, 1, 1]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_shrinking_looks_at_stored_chunks_only():
    array, store = make((TRILLION, 4), [[[1, TRILLION]], [3, 1]], dtype="int8", chunk_grid="rectilinear")
    rows = [0, 7, 1000, TRILLION - 1]
    array.oindex[rows, :] = 5
    store.reset()
    array.resize((1000, 4))
    assert set(store.keys("delete")) == {key_of((k, j)) for k in rows[2:] for j in (0, 1)} | {PENDING}
    # One value is asked for to see whether a killed writer, or one that is at work, has left its document.
    assert store.counts() == {"list": 1, "delete": 5, "get": 2, "replace": 1, "put": 1}
    store.reset()
    array.resize((TRILLION, 4))
    # What a handle with an old shape may have written beyond the end is looked for among what is stored.
    assert store.counts() == {"list": 1, "get": 2, "replace": 1}
    assert array.oindex[rows, :].tolist() == [[5] * 4, [5] * 4, [0] * 4, [0] * 4]


def test_shrinking_clears_the_cut_off_part_of_boundary_chunks():
    array, store = filled(ours.counted((6, 6)), (4, 4))
    store.reset()
    array.resize((4, 5))
    assert sorted(store.keys("delete")) == [PENDING, "c/1/0", "c/1/1"]
    assert [key for key in store.keys("get") if key.startswith("c/")] == ["c/0/1"]
    assert store.keys("put") == [PENDING, "c/0/1"]
    array.resize((6, 6))
    expected = np.zeros((6, 6), "int32")
    expected[:4, :5] = ours.counted((6, 6))[:4, :5]
    assert np.array_equal(array[...], expected)


# -- chunks of fill values ------------------------------------------------------------------------


def test_chunks_of_fill_values_are_not_stored():
    array, store = make((6,), [[1, 2, 3]], dtype="int16", fill_value=7)
    array[...] = 7
    assert contents(store).keys() == {"zarr.json"}
    array[...] = range(6)
    assert array.nchunks_initialized == 3
    array[:2] = 7  # the first chunk as a whole, a part of the second
    assert sorted(set(contents(store)) - {"zarr.json"}) == ["c/1", "c/2"]
    array[2] = 7  # the rest of the second
    assert sorted(set(contents(store)) - {"zarr.json"}) == ["c/2"]
    assert array[...].tolist() == [7, 7, 7, 3, 4, 5]


def test_chunks_of_fill_values_are_stored_when_asked_for():
    array, store = make((6,), [[1, 2, 3]], dtype="int16", config={"write_empty_chunks": True})
    array[...] = 0
    assert array.nchunks_initialized == 3
    assert store.counts()["put"] == 3
    array.with_config({"write_empty_chunks": False})[1:] = 0
    assert array.nchunks_initialized == 1


NAN = np.frombuffer(bytes.fromhex("010000000000f87f"), "<f8")[0]
DISTINCT = [
    ("float64", 0.0, -0.0),
    ("float64", -0.0, 0.0),
    ("float16", 0.0, -0.0),
    ("float64", np.nan, NAN),
    ("complex128", 0.0, complex(0.0, -0.0)),
    ("complex64", complex(-0.0, 0.0), 0.0),
    ("r24", b"\0\0\1", b"\0\1\0"),
    ("bool", False, True),
]


@pytest.mark.parametrize(("dtype", "fill", "other"), DISTINCT)
def test_only_the_bits_of_the_fill_value_are_fill(dtype, fill, other):
    array, _ = make((4,), 2, dtype=dtype, fill_value=fill)
    near = np.full(4, np.array(other, array.dtype))
    array[...] = near
    assert array.nchunks_initialized == 2
    assert array[...].tobytes() == near.tobytes()
    array[...] = np.full(4, array.metadata.fill_value)
    assert array.nchunks_initialized == 0
    assert array[...].tobytes() == array.metadata.fill_value.tobytes() * 4
    array[1] = near[0]  # one element of a chunk of fill values is enough
    assert array.nchunks_initialized == 1


SWAPPED = [("int16", 256), ("float64", np.nan), ("complex64", 1), ("datetime64[s]", np.datetime64(256, "s"))]


@pytest.mark.parametrize(("dtype", "fill"), SWAPPED)
@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("compressors", [None, "zstd", "gzip"])
def test_a_chunk_changed_in_parts_is_fill_in_any_byte_order(dtype, fill, endian, compressors, tmp_path):
    serializer = {"name": "bytes", "configuration": {"endian": endian}}
    options = {"compressors": compressors, "serializer": serializer}
    array = zellige.create_array(tmp_path, shape=(4,), chunks=4, dtype=dtype, fill_value=fill, **options)
    swapped = np.full(4, np.array(fill, dtype).byteswap())
    array[...] = swapped
    array[1] = swapped[1]
    assert array[...].tobytes() == swapped.tobytes()
    array[:2] = array.fill_value
    assert array.nchunks_initialized == 1
    array[2:] = array.fill_value
    assert array.nchunks_initialized == 0


# -- parts of uncompressed chunks -----------------------------------------------------------------

RAW: dict[str, Any] = {"compressors": None}
TRANSPOSED = {**RAW, "filters": {"name": "transpose", "configuration": {"order": [1, 0]}}}
BIG = {**RAW, "serializer": {"name": "bytes", "configuration": {"endian": "big"}}}

PARTS = [
    (RAW, (3, 5), 8),  # one element
    (RAW, (3, slice(10, 20)), 10 * 8),  # a part of a row
    (RAW, (3, slice(10, 31, 5)), 21 * 8),  # from the first to the last, not further
    (RAW, (slice(2, 4), slice(10, 20)), (100 + 10) * 8),  # across the end of a row
    (RAW, (slice(10, 20), 3), (9 * 100 + 1) * 8),  # a part of a column
    (RAW, ([9, 4], [7, 2]), (5 * 100 + 6) * 8),  # points
    (BIG, (3, slice(10, 20)), 10 * 8),
    (TRANSPOSED, (3, 5), 8),
    (TRANSPOSED, (slice(10, 20), 3), 10 * 8),  # a column is contiguous there
    (TRANSPOSED, (3, slice(10, 20)), (9 * 50 + 1) * 8),
    (TRANSPOSED, ([9, 4], [7, 2]), (5 * 50 + 6) * 8),
]


@pytest.mark.parametrize(("chain", "index", "nbytes"), PARTS)
def test_raw_parts_fetch_the_covering_span(chain, index, nbytes):
    model = ours.counted((50, 100), "float64")
    array, store = filled(model, (50, 100), **chain)
    assert np.array_equal(array[index], model[index])
    assert store.counts() == {"get_ranges": 1}
    assert store.nbytes() == nbytes


def test_a_large_part_is_fetched_as_a_whole():
    model = ours.counted((50, 100), "float64")
    array, store = filled(model, (50, 100), **RAW)
    assert np.array_equal(array[10:40], model[10:40])
    assert store.counts() == {"get": 1}


@ours.examples(0.1)
@given(st.data(), st.sampled_from(["int16", "bool", "complex128"]), st.booleans())
def test_raw_parts_equal_the_whole_and_fetch_no_more_than_they_span(data, dtype, transposed):
    shape = data.draw(ours.shapes(min_dims=1, max_side=8).filter(lambda shape: 0 not in shape))
    grid = data.draw(ours.grids(shape))
    index = data.draw(ours.mixed(shape))
    order = data.draw(st.permutations(range(len(shape)))) if transposed else list(range(len(shape)))
    filters = {"name": "transpose", "configuration": {"order": order}}
    model = ours.counted(shape, dtype)
    config = {"write_empty_chunks": True}
    array, store = filled(model, grid.argument, compressors=None, filters=filters, config=config)
    whole = zellige.create_array(data=model, chunks=grid.argument)
    if not attempt(lambda: array[index]):
        return
    assert np.array_equal(array[index], whole[index])
    store.reset()
    array[index]
    spans = naive_spans(grid, index, order, model.dtype.itemsize)
    assert sorted(store.keys()) == sorted(spans)
    assert all(call.nbytes in spans[call.key] for call in store.calls)


def naive_spans(grid: ours.Grid, index: Any, order: list[int], itemsize: int) -> dict[str, set[int]]:
    """For each chunk hit: the bytes from the first to the last element picked, or all if those are over half.

    Where all data of a chunk are picked, both will do.
    """
    spans = {}
    chosen = np.zeros(grid.shape, bool)
    chosen[index] = True
    for coords, region in grid.slices.items():
        picked = np.argwhere(chosen[region])
        if not len(picked):
            continue
        shape = [edges[k] for edges, k in zip(grid.edges, coords, strict=True)]
        places = np.arange(np.prod(shape)).reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
        low, high = picked.min(axis=0), picked.max(axis=0)  # a box: points far apart are read together
        span = int(places[tuple(high)] - places[tuple(low)] + 1) * itemsize
        total = places.size * itemsize
        whole = len(picked) == np.prod([s.stop - s.start for s in region])
        spans[key_of(coords)] = {total, span} if whole else {total} if 2 * span > total else {span}
    return spans


# -- missing and damaged chunks -------------------------------------------------------------------


def test_missing_chunks_can_be_an_error():
    array, _ = make((6,), [[1, 2, 3]], dtype="int16", fill_value=4)
    array[1:3] = 1
    strict = array.with_config({"read_missing_chunks": False})
    assert strict[1:3].tolist() == [1, 1]
    for read in (lambda: strict[...], lambda: strict[4], lambda: strict[[2, 4]]):
        with pytest.raises(ChunkNotFoundError, match=r"chunk \(\d,\), key 'c/\d' is missing") as found:
            read()
        assert isinstance(found.value, KeyError)
    assert (found.value.coords, found.value.key) == ((2,), "c/2")
    assert array[...].tolist() == [4, 1, 1, 4, 4, 4]


CHECKED: list[dict[str, Any]] = [{}, {"compressors": "gzip"}, {"compressors": None, "checksum": True}]
LENGTHS = [*CHECKED, {"compressors": None}, {"compressors": "blosc"}, {"compressors": "zstd", **TRANSPOSED}]


def flipped(raw: bytes) -> bytes:
    return raw[:-3] + bytes([raw[-3] ^ 0x10]) + raw[-2:]


DAMAGE = [(lambda raw: raw[:-1], chain) for chain in LENGTHS]
DAMAGE += [(lambda raw: raw + b"\0", chain) for chain in LENGTHS]
DAMAGE += [(lambda _: b"", chain) for chain in LENGTHS]
DAMAGE += [(flipped, chain) for chain in CHECKED]


@pytest.mark.parametrize(("damage", "chain"), DAMAGE)
def test_damaged_chunks_are_errors_and_a_whole_write_repairs_them(damage, chain):
    model = ours.counted((6, 5))
    store = MemoryStore()
    array = zellige.create_array(store, name="g/a", data=model, chunks=[[2, 4], -1], **chain)
    key, coords = "g/a/c/1/0", (1, 0)
    bad = damage(store.get(key))
    store.put(key, bad)
    actions = {
        "whole read": lambda: array[...],
        "last element": lambda: array[3:, 1:],
        "partial write": lambda: array.__setitem__((3, 3), 0),
        "write by points": lambda: array.__setitem__(([3, 0], [3, 0]), model[0, 0]),
    }
    for action in actions.values():
        with pytest.raises(CorruptChunkError) as found:
            action()
        error = found.value
        assert (error.array, error.coords, error.key) == ("/g/a", coords, key)
        for fact in ("'/g/a'", str(coords), repr(key), "damaged"):
            assert fact in str(error)
        assert store.get(key) == bad
    assert np.array_equal(array[:2], model[:2])
    array[2:] = model[2:]
    assert np.array_equal(array[...], model)


TO_INT8 = {"name": "cast_value", "configuration": {"data_type": "int8"}}
SHARD = {
    "chunk_shape": [1, 2],
    "codecs": [TO_INT8, {"name": "bytes"}],
    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}
REFUSING: dict[str, dict[str, Any]] = {
    "plain chunks": {"chunks": (2, 4), "filters": [TO_INT8]},
    "uneven chunks": {"chunks": [[2, 2], [4, 4]], "filters": [TO_INT8]},
    "shards": {"chunks": (1, 2), "shards": (2, 4), "filters": [TO_INT8]},
    "shards in shards": {
        "chunks": (2, 4),
        "shards": (2, 4),
        "serializer": {"name": "sharding_indexed", "configuration": SHARD},
        "compressors": None,
    },
    "compressed shards": {
        "chunks": (2, 4),
        "serializer": {"name": "sharding_indexed", "configuration": SHARD},
        "compressors": "zstd",
    },
}
WRITES = {
    "all of it": np.s_[:, :],
    "whole chunks": np.s_[2:4, 4:8],
    "a whole inner chunk": np.s_[3:4, 6:8],
    "an element": np.s_[3, 7],
    "parts of several": np.s_[1:3, 3:7],
    "points": np.s_[[3, 0], [7, 1]],
}


@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("layout", REFUSING)
def test_values_that_a_codec_refuses_are_no_damage(layout, write, place, tmp_path):
    store = MemoryStore() if place == "memory" else LocalStore(tmp_path)
    array = zellige.create_array(store, name="g/a", shape=(4, 8), dtype="int32", **REFUSING[layout])
    array[...] = 7
    before = contents(store)
    index = WRITES[write]
    value = np.full(np.shape(array[index]), 8)
    value[(-1,) * value.ndim] = 300  # only the last one of all does not fit
    with pytest.raises(EncodeError, match=r"array '/g/a', chunk .*cannot be encoded: .*300 is out of range") as caught:
        array[index] = value
    error = caught.value
    assert not isinstance(error, CorruptChunkError)
    assert (error.array, error.key) == ("/g/a", f"g/a/c/{error.coords[0]}/{error.coords[1]}")
    assert contents(store).keys() == before.keys()
    assert contents(store)[error.key] == before[error.key]
    at = np.broadcast_arrays(*np.ogrid[:4, :8])
    last = tuple(int(np.atleast_1d(axis[index]).ravel()[-1]) for axis in at)
    assert error.coords == (last[0] // 2, last[1] // 4)
    if "shard" in layout:
        inner = tuple(k % n // i for k, n, i in zip(last, (2, 4), (1, 2), strict=True))
        assert str(inner) in str(error)
        assert layout == "shards in shards" or error.inner == inner


@pytest.mark.parametrize("layout", ["plain chunks", "shards"])
def test_what_is_stored_stays_damage_when_a_part_is_written(layout):
    array = zellige.create_array(shape=(4, 8), dtype="int32", **REFUSING[layout])
    array[...] = 7
    array.store.put("c/0/0", b"damaged")
    with pytest.raises(CorruptChunkError, match=r"chunk \(0, 0\), key 'c/0/0' is damaged"):
        array[0, 0] = 8
    with pytest.raises(EncodeError):
        array[:2, :4] = 300
    array[:2, :4] = 8
    assert array[0, 0] == 8


def test_a_compressor_that_refuses_bytes_names_the_chunk(monkeypatch):
    array = zellige.create_array(shape=(4, 40), dtype="int8", chunks=(4, 2), compressors="gzip")
    array[...] = 1
    encode = GzipCodec.encode

    def refusing(self: GzipCodec, raw: Any) -> Any:
        if 99 in bytes(raw):
            raise CodecError("gzip: not today")
        return encode(self, raw)

    monkeypatch.setattr(GzipCodec, "encode", refusing)
    monkeypatch.setattr("zellige.kernel.native", None)  # which knows gzip
    value = np.ones((4, 40), "int8")
    value[2, 13] = 99
    with pytest.raises(EncodeError, match=r"chunk \(0, 6\), key 'c/0/6' cannot be encoded: gzip: not today"):
        array[...] = value
    shards = zellige.create_array(shape=(4, 40), dtype="int8", chunks=(1, 2), shards=(4, 40), compressors="gzip")
    with pytest.raises(EncodeError, match=r"chunk \(0, 0\).* inner chunk \(2, 6\): gzip: not today") as caught:
        shards[...] = value
    assert caught.value.inner == (2, 6)


@pytest.mark.parametrize("place", [19, 20])
def test_a_part_of_a_raw_chunk_that_is_too_short_is_an_error(place):
    array, store = filled(ours.counted((100,)), 100, compressors=None)
    store.inner.put("c/0", store.inner.get("c/0")[:80])
    with pytest.raises(CorruptChunkError, match=r"which has 80 bytes|400 bytes expected, 80 found") as found:
        array[place]
    assert found.value.coords == (0,)


def test_a_bool_is_stored_as_0_or_1():
    array, store = filled(np.ones(100, bool), 100, compressors=None)
    store.inner.put("c/0", b"\1" * 99 + b"\2")
    for read in (lambda: array[...], lambda: array[99], lambda: array[95:100]):
        with pytest.raises(CorruptChunkError, match="00 or 01"):
            read()
    assert array[:10].all()


# -- a few elements of uncompressed chunks --------------------------------------------------------


def test_points_of_a_raw_chunk_are_read_by_themselves():
    model = np.arange(64 * 1024, dtype="int32").reshape(64, 1024)
    store = CountingStore()
    array = zellige.create_array(store, data=model, chunks=(64, 1024), compressors=None)
    store.reset()
    rows, columns = [63, 0, 31, 0, 63], [1023, 5, 7, 5, 1022]
    assert array.vindex[rows, columns].tolist() == model[rows, columns].tolist()
    assert store.counts() == {"get_ranges": 1}
    assert store.nbytes("get_ranges") == 4 * 4  # each once, and neighbours together
    store.reset()
    assert np.array_equal(array.oindex[[1, 40], [7, 900]], model[np.ix_([1, 40], [7, 900])])
    assert store.counts() == {"get_ranges": 1}
    assert store.nbytes("get_ranges") <= 2 * (900 - 7 + 1) * 4


def test_many_points_of_a_raw_chunk_are_read_with_it():
    model = np.arange(64 * 1024, dtype="int32").reshape(64, 1024)
    store = CountingStore()
    array = zellige.create_array(store, data=model, chunks=(64, 1024), compressors=None)
    points = np.random.default_rng(0).integers(0, 64, 500), np.random.default_rng(1).integers(0, 1024, 500)
    store.reset()
    assert np.array_equal(array.vindex[points], model[points])
    assert store.counts() == {"get": 1}


ROWS = [60, 3, 31, 3]  # in any order, and one of them twice
ORDERS = {"as it is": (0, 1, 2), "planes turned": (0, 2, 1), "last axis first": (2, 1, 0)}
PLANES = {
    "rows": ((ROWS,), 4),
    "rows and columns": ((ROWS, [31, 0, 5]), 4),
    "three arrays": ((ROWS, [31, 0, 5], [7, 7, 30]), 4),
    "rows and slices": ((ROWS, slice(3, 30, 2), slice(1, 31)), 4),
    "rows of two chunks": (([100, 3, 60, 127, 70],), 5),
    "too many rows": ((list(range(0, 60, 2)),), None),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["int16", ">i2"])
@pytest.mark.parametrize(("index", "count"), PLANES.values(), ids=PLANES)
def test_planes_of_raw_chunks_are_read_by_themselves(index, count, dtype, order):
    model = np.random.default_rng(0).integers(-999, 999, (128, 32, 32)).astype("int16")
    filters = [{"name": "transpose", "configuration": {"order": ORDERS[order]}}]
    serializer = {"name": "bytes", "configuration": {"endian": "big" if dtype[0] == ">" else "little"}}
    array, store = filled(model, (64, 32, 32), compressors=None, filters=filters, serializer=serializer)
    every = (*index, *[slice(None)] * (3 - len(index)))
    positions = [np.arange(side)[pick] for side, pick in zip(model.shape, every, strict=True)]
    assert np.array_equal(array.oindex[index], model[np.ix_(*positions)])
    if count is None or order == "last axis first":
        assert set(store.counts()) == {"get"}
    else:
        assert set(store.counts()) == {"get_ranges"}
        assert store.nbytes() == count * 32 * 32 * 2


def test_planes_of_a_missing_chunk_are_fill_and_of_a_cut_one_an_error():
    array = zellige.create_array(
        shape=(64, 32, 64), chunks=(32, 32, 64), dtype="bool", fill_value=True, compressors=None
    )
    array[:32] = False
    assert array.oindex[[63, 1]].any(axis=(1, 2)).tolist() == [True, False]
    raw = array.store.get("c/0/0/0")
    array.store.put("c/0/0/0", raw[:-1])
    for planes in ([0, 30], [0, 31]):
        with pytest.raises(CorruptChunkError, match="c/0/0/0"):
            array.oindex[planes]
    array.store.put("c/0/0/0", raw[:100] + b"2" + raw[101:])
    with pytest.raises(CorruptChunkError, match="00 or 01"):
        array.oindex[[0, 30]]


def test_a_point_in_a_missing_chunk_is_fill_and_in_a_cut_one_an_error():
    array = zellige.create_array(shape=(8, 4096), chunks=(4, 4096), dtype="int32", fill_value=9, compressors=None)
    array[:4] = 1
    assert array.vindex[[0, 7, 3], [0, 5, 4000]].tolist() == [1, 9, 1]
    raw = array.store.get("c/0/0")
    array.store.put("c/0/0", raw[:-100])
    for points in (([0, 1], [0, 1000]), ([0, 3], [0, 4095])):
        with pytest.raises(CorruptChunkError, match="c/0/0"):
            array.vindex[points]


# -- large uncompressed chunks --------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1024, 1100), (1000, 1024), (700, 900)])
def test_a_large_raw_chunk_is_read_in_pieces(tmp_path, shape):
    model = np.random.default_rng(0).integers(0, 2**31, shape, dtype="int32")
    array = zellige.create_array(tmp_path, data=model, chunks=(1024, 1024), compressors=None)
    assert np.array_equal(array[...], model)
    assert np.array_equal(array[::-1], model[::-1])
    out = np.zeros(shape, "float64")
    assert np.array_equal(array.get_basic_selection(..., out=out), model)


@pytest.mark.parametrize(
    "change", [lambda raw: raw[:-1], lambda raw: raw[:-4096], lambda raw: raw + b"x", lambda raw: b""]
)
def test_a_large_raw_chunk_of_another_length_is_damaged(change):
    store = MemoryStore()
    array = zellige.create_array(store, data=np.ones((1024, 1100), "int32"), chunks=(1024, 1024), compressors=None)
    store.put("c/0/0", change(store.get("c/0/0")))
    with pytest.raises(CorruptChunkError, match="c/0/0"):
        array[...]


def test_a_part_of_an_uncompressed_file_is_put_into_the_bytes_that_were_read(tmp_path):
    model = np.arange(1 << 20, dtype="int64").reshape(1024, 1024)
    array = zellige.create_array(tmp_path, data=model, chunks=(1024, 1024), compressors=None)
    array[1:9, 1:9] = 0  # what is imported on first use is there
    tracemalloc.start()
    try:
        array[5:500, 7:1000] = 3
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    model[1:9, 1:9] = 0
    model[5:500, 7:1000] = 3
    assert np.array_equal(zellige.open_array(tmp_path)[...], model)
    assert peak < 1.25 * model.nbytes  # the chunk once


@pytest.mark.parametrize("layout", [{"compressors": None}, {"compressors": None, "checksum": True}, {}])
def test_a_part_that_is_refused_changes_no_bytes_of_the_store(layout):
    """Also if the store hands out the memory in which it keeps them."""

    class Refusing(MemoryStore):
        full = False

        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[str, bytearray] = {}

        def read(self, key: str, spans: Any = None) -> Value | None:
            found = super().read(key, spans)
            if found is None or spans is not None:
                return found
            kept = self.kept.setdefault(key, bytearray(found.parts[0]))
            return Value((memoryview(kept),), found.size, found.tag)

        def write(self, key: str, value: Any, if_tag: Any = None) -> bool:
            if self.full and key.startswith("c/"):
                raise OSError("no space left")
            return super().write(key, value, if_tag)

    store = Refusing()
    array = zellige.create_array(store, data=np.arange(20), chunks=10, **layout)
    store.full = True
    with pytest.raises(OSError, match="no space"):
        array[3:5] = 77
    assert array[...].tolist() == [*range(20)]


def test_a_boundary_chunk_costs_one_read_whether_it_is_there_or_not():
    array, store = make((5,), 4, dtype="int32")
    for _ in range(2):
        store.reset()
        array[...] = 7
        assert store.keys(*READS) == ["c/1"]
        assert sorted(store.keys("put")) == ["c/0", "c/1"]


@pytest.mark.parametrize("kind", ["zstd", "raw", "shard"])
def test_writing_all_that_the_array_has_of_a_damaged_boundary_chunk_repairs_it(kind):
    layout = {"zstd": {"chunks": 4}, "raw": {"chunks": 4, "compressors": None}, "shard": {"chunks": 2, "shards": 4}}[
        kind
    ]
    array, store = filled(ours.counted((5,)), **layout)
    store.put("c/1", b"damaged")
    with pytest.raises(CorruptChunkError):
        array[:]
    array[4:] = 9
    assert array[:].tolist() == [*ours.counted((4,)).tolist(), 9]


# -- chunks of very different sizes ---------------------------------------------------------------

UNLIKE = [1, 40, 40, 40]
"""The first chunk says little about the others."""


def test_the_largest_chunk_bounds_how_many_are_fetched_at_once(monkeypatch):
    array = zellige.create_array(data=ours.counted((121, 50), "int16"), chunks=(UNLIKE, 50), compressors=None)
    held = []
    real = team.crew
    monkeypatch.setattr(team, "crew", lambda store, total, each=0: held.append(each) or real(store, total, each))
    far = zellige.open_array(LatencyStore(array.store, 0))
    assert np.array_equal(far[...], array[...])
    assert held[-1] == 40 * 50 * 2


@pytest.mark.parametrize("length", [0, 3, 396])
def test_a_short_uncompressed_file_is_named_alike_by_both_paths(tmp_path, length, monkeypatch):
    zellige.create_array(tmp_path, data=np.arange(100, dtype="i4").reshape(10, 10), chunks=(10, 10), compressors=None)
    (tmp_path / "c/0/0").write_bytes((tmp_path / "c/0/0").read_bytes()[:length])
    said = []
    for _ in range(2):
        with pytest.raises(CorruptChunkError) as found:
            zellige.open_array(tmp_path, mode="r")[9, 9]
        said.append(str(found.value))
        monkeypatch.setattr("zellige.kernel.native", None)
    assert said[0] == said[1]
    assert f"400 bytes expected, {length} found" in said[0]
