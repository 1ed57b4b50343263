"""Rows: small chunks side by side are read and written together, and nobody can tell but by counting."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from counting_store import WRITES, Call, CountingStore
from zellige import engine, gathering, plans, pool, scratch
from zellige.codecs.chain import BoundChain
from zellige.errors import ChunkNotFoundError, CorruptChunkError, UnsupportedCodecError
from zellige.stores import LocalStore, MemoryStore, Store
from zellige.types import Buffer

BIG = {"serializer": {"name": "bytes", "configuration": {"endian": "big"}}}
CRC = {"name": "crc32c"}
CHAINS: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None},
    "zstd": {},
    "blosc": {"compressors": "blosc"},
    "gzip": {"compressors": "gzip"},
    "crc32c": {"compressors": CRC},
    "zstd and crc32c": {"compressors": ["zstd", CRC]},
}
DTYPES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "int16": ("int16", [0, 3, 256], {}),
    "bool": ("bool", [False, True], {}),
    "float64": ("float64", [0.0, -0.0, 5.0, np.nan], {}),
    "complex64": ("complex64", [0, 1 + 2j], {}),
    "strings": ("<U3", ["", "7", "abc"], {}),
    "big int16": ("int16", [0, 3, 256], BIG),
    "big float64": ("float64", [0.0, 5.0, np.nan], BIG),
    "big complex64": ("complex64", [0, 1 + 2j], BIG),
}
PLAIN = ["int16", "float64", "complex64", "strings"]
"""Those that a row decodes and encodes together."""


class NearStore(CountingStore):
    """Counts, and says that requests are quick, without which there are no rows."""

    near = True

    def borrow_many(self, keys: Sequence[str], into: memoryview | None = None) -> list[Buffer | None]:
        for key in keys:
            if self.before is not None:
                self.before("borrow_many", key)
        found = self.inner.borrow_many(keys, into)
        sizes = [0 if value is None else len(value) for value in found]
        self.calls += map(Call, ["borrow_many"] * len(keys), keys, sizes, [threading.get_ident()] * len(keys))
        return found


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> NearStore:
    return NearStore(MemoryStore() if request.param == "memory" else LocalStore(tmp_path))


@pytest.fixture
def workers():
    """One, unless the test says something else: rows leave enough for every thread, so they depend on it."""
    with zellige.config.set({"threading.max_workers": 1}):
        yield lambda count: zellige.config.set({"threading.max_workers": count})


@contextmanager
def limits(row: int, workers: int = 1) -> Iterator[pytest.MonkeyPatch]:
    """Rows of so many bytes, also of few chunks, and threads for the smallest work."""
    with pytest.MonkeyPatch.context() as patch, zellige.config.set({"threading.max_workers": workers}):
        patch.setattr(engine, "_ROW", row)
        patch.setattr(plans, "_FEW", 2)
        patch.setattr(pool, "_SMALL_TASK", 1)
        patch.setattr(pool, "SMALL_TOTAL", 1)
        yield patch


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Equal in every bit, NaN and -0.0 too."""
    return (found.shape, found.dtype, found.tobytes()) == (expected.shape, expected.dtype, expected.tobytes())


def key_of(coords: tuple[int, ...]) -> str:
    return "/".join(["c", *map(str, coords)])


def stored(store: Store) -> set[str]:
    """The keys of the stored chunks."""
    return set(store.list()) - {"zarr.json"}


# -- against numpy --------------------------------------------------------------------------------


@st.composite
def short_chunks(draw: st.DrawFn, extent: int) -> tuple[Any, tuple[int, ...]]:
    """One entry of `chunks=` with many small chunks: regular or not, and perhaps beyond the end."""
    if draw(st.booleans()):
        size = draw(st.integers(1, 4))
        return size, ours.repeated(size, extent)
    edges: list[int] = []
    while sum(edges) < extent:
        edges += [draw(st.integers(1, 4))] * draw(st.integers(1, 6))
    edges += draw(st.sampled_from([[], [], [3, 3]]))
    return draw(st.sampled_from([list(edges), ours.as_runs(tuple(edges))])), tuple(edges)


@st.composite
def wide_grids(draw: st.DrawFn) -> ours.Grid:
    """Arrays of two to four axes, the last of them long and in many small chunks."""
    heads = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    if draw(st.booleans()):  # chunks of one shape that fit exactly
        size = draw(st.integers(1, 4))
        shape = (*heads, size * draw(st.integers(8, 16)))
        sizes = (*(draw(st.sampled_from([1, n])) for n in heads), size)
        axes = [(k, ours.repeated(k, n)) for k, n in zip(sizes, shape, strict=True)]
    else:
        shape = (*heads, draw(st.integers(8, 40)))
        axes = [*(draw(ours.axis_chunks(n)) for n in heads), draw(short_chunks(shape[-1]))]
    return ours.Grid([entry for entry, _ in axes], tuple(edges for _, edges in axes), shape)


@st.composite
def regions(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Slices of any sign and step; along the last axis mostly long ones, which hit many chunks, or some positions."""
    *heads, last = shape
    near_start, near_end = st.none() | st.integers(0, 3), st.none() | st.integers(-3, -1)
    long = st.builds(slice, near_start, near_end, st.sampled_from([None, 1, 2, 5]))
    back = st.builds(slice, near_end, near_start, st.sampled_from([-1, -1, -3]))
    every = [slice(None)] * len(heads) if draw(st.booleans()) else [draw(ours.slices(n)) for n in heads]
    some = st.lists(st.integers(0, last - 1), min_size=1, max_size=30)
    picks = (some.map(sorted) | some).map(np.array)
    return (*every, draw(st.just(slice(None)) | long | back | ours.slices(last) | picks))


@dataclass
class Case:
    """An array and what numpy makes of the same."""

    array: zellige.Array
    model: np.ndarray
    grid: ours.Grid
    touched: set[str]
    """The chunks that were written to."""

    def write(self, index: tuple[Any, ...], value: Any) -> None:
        self.array[index] = value
        self.model[index] = value
        chosen = np.zeros(self.grid.shape, bool)
        chosen[index] = True
        self.touched |= {key_of(k) for k, region in self.grid.slices.items() if chosen[region].any()}

    def expected_keys(self) -> set[str]:
        """The chunks that should be stored: not those of fill values, unless that was asked for."""
        if self.array.config.write_empty_chunks:
            return self.touched
        fill = self.array.metadata.fill_value.tobytes()
        parts = {key_of(k): self.model[region] for k, region in self.grid.slices.items()}
        return {key for key, part in parts.items() if part.tobytes() != fill * part.size}


@st.composite
def cases(draw: st.DrawFn, store: Store) -> Case:
    """An array of any kind, still without chunks."""
    grid = draw(wide_grids())
    dtype, fills, options = DTYPES[draw(st.sampled_from([*PLAIN, *PLAIN, *DTYPES]))]
    chain = {**CHAINS[draw(st.sampled_from(list(CHAINS)))], **options}
    fill = np.array(draw(st.sampled_from(fills)), dtype)
    config = {"write_empty_chunks": draw(st.booleans()), "order": draw(st.sampled_from("CCCCF"))}
    array = zellige.create_array(
        store, shape=grid.shape, chunks=grid.argument, dtype=dtype, fill_value=fill[()], config=config, **chain
    )
    return Case(array, np.full(grid.shape, fill, dtype), grid, set())


@st.composite
def written(draw: st.DrawFn, case: Case, index: tuple[Any, ...]) -> Any:
    """What is assigned: values that tell their position, one of them everywhere, or a few among fill values."""
    fill = case.model.dtype.type(case.array.fill_value)
    counted = ours.counted(case.model[index].shape, case.model.dtype, draw(st.integers(1, 300)))
    kind = draw(st.sampled_from(["counted", "counted", "scalar", "fill", "sparse"]))
    if kind == "sparse":
        return np.where(ours.counted(counted.shape) % 11 == 0, counted, np.full(counted.shape, fill))
    return {"counted": counted, "scalar": counted.dtype.type(case.model.flat[0]), "fill": fill}[kind]


def check_against_numpy(data: st.DataObject, store: Store) -> None:
    case = data.draw(cases(store))
    row = data.draw(st.sampled_from([1, 60, 200, 500, 1 << 20]), label="row")
    with limits(row, data.draw(st.sampled_from([1, 1, 2, 4]), label="workers")) as patch:
        patch.setattr(plans, "_LAYERS", data.draw(st.sampled_from([1, 2, 8]), label="layers"))
        patch.setattr(gathering, "_STRIP", data.draw(st.sampled_from([50, 200, 1000, 1 << 20]), label="strip"))
        patch.setattr(gathering, "_SLAB", data.draw(st.sampled_from([50, 200, 1000, 1 << 20]), label="slab"))
        if data.draw(st.booleans(), label="as if they were large"):
            patch.setattr(plans, "_FEW", 1 << 62)
            patch.setattr(plans, "_LARGE", 0)
            patch.setattr(engine, "_SHARES", data.draw(st.sampled_from([1, 2, 8]), label="shares"))
        for _ in range(data.draw(st.integers(1, 4))):
            index = data.draw(regions(case.grid.shape), label="written to")
            case.write(index, data.draw(written(case, index)))
            assert same(case.array[...], case.model)
            assert stored(store) == case.expected_keys()
        for _ in range(2):
            index = data.draw(regions(case.grid.shape), label="read")
            assert same(case.array[index], case.model[index])


@ours.examples(0.04)
@given(st.data())
def test_arrays_of_many_small_chunks_equal_numpy_in_memory(data):
    check_against_numpy(data, MemoryStore())


@ours.examples(0.02)
@given(st.data())
def test_arrays_of_many_small_chunks_equal_numpy_on_a_disk(tmp_path_factory, data):
    check_against_numpy(data, LocalStore(tmp_path_factory.mktemp("rows")))


# -- counted --------------------------------------------------------------------------------------

SHAPE, CHUNK = (6, 60), (3, 2)
KEYS = [key_of((i, j)) for i in range(2) for j in range(30)]
ONE = (1, 7)
EVERYTHING = np.s_[...]
ROWS, COLUMNS = slice(3, 6), slice(14, 16)  # of that one

TOGETHER = {name: chain for name, chain in CHAINS.items() if name != "zstd and crc32c"}
together = pytest.mark.parametrize("chain", TOGETHER.values(), ids=TOGETHER)
every_chain = pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)


def filled(store: NearStore, chain: dict[str, Any], **options: Any) -> tuple[zellige.Array, np.ndarray]:
    """An array of many small chunks on a store that has counted nothing yet."""
    model = ours.counted(SHAPE, "int16")
    array = zellige.create_array(store, data=model, chunks=CHUNK, **chain, **options)
    store.reset()
    return array, model


@pytest.fixture
def rows_used(monkeypatch) -> list[int]:
    """How many chunks each row has that is read or written."""
    found: list[int] = []

    def spy(name: str) -> None:
        real = getattr(engine.Engine, name)

        def counted(self: Any, *given: Any) -> None:
            found.append(len(given[-1].wanted))
            real(self, *given)

        monkeypatch.setattr(engine.Engine, name, counted)

    spy("_read_row")
    spy("_write_row")
    return found


@together
def test_a_row_is_read_with_one_request_for_each_chunk(store, chain, workers, rows_used):
    array, model = filled(store, chain)
    rows_used.clear()
    assert same(array[...], model)
    assert sorted(store.keys()) == sorted(KEYS)
    assert store.counts() == {"borrow_many": len(KEYS)}
    assert sum(rows_used) == len(KEYS)
    assert max(rows_used) > 10


@every_chain
def test_a_row_of_chunks_is_written_with_one_request_for_each(store, chain, workers, rows_used):
    array, model = filled(store, chain)
    array[...] = -model
    assert store.keys() == store.keys("put")
    assert sorted(store.keys()) == sorted(KEYS)
    assert max(rows_used) > 10
    assert same(array[...], -model)


@pytest.mark.parametrize(
    ("dtype", "chain"),
    [("bool", {}), ("int16", CHAINS["zstd and crc32c"]), ("int16", BIG)],
    ids=["bool", "two codecs", "big"],
)
def test_chunks_that_cannot_be_decoded_together_are_asked_for_once_too(store, dtype, chain, workers, rows_used):
    model = ours.counted(SHAPE, dtype)
    array = zellige.create_array(store, data=model, chunks=CHUNK, config={"write_empty_chunks": True}, **chain)
    store.reset()
    rows_used.clear()
    assert same(array[...], model)
    assert sorted(store.keys()) == sorted(KEYS)
    assert store.counts() == {"borrow": len(KEYS)}
    assert max(rows_used) > 10


@pytest.mark.parametrize("index", [np.s_[:, 1:-1], np.s_[2:5], np.s_[::2, ::3], np.s_[::-1, 50:3:-1]], ids=str)
@every_chain
def test_parts_of_the_chunks_are_read_with_one_request_for_each(store, chain, index, workers):
    array, model = filled(store, chain)
    assert same(array[index], model[index])
    assert len(store.keys()) == len(set(store.keys()))
    assert store.counts().keys() <= {"borrow_many", "borrow", "get_range"}


def test_a_store_that_is_not_near_is_asked_for_each_chunk_by_itself(workers, rows_used):
    array, model = filled(CountingStore(), {})
    assert same(array[...], model)
    assert array.store.counts() == {"borrow": len(KEYS)}
    assert rows_used == []


@pytest.mark.parametrize("row", [1, 30, 100, 500, 1 << 20])
@together
def test_rows_of_any_length_leave_out_nothing_and_repeat_nothing(store, chain, row, rows_used):
    array, model = filled(store, chain)
    rows_used.clear()
    with limits(row):
        array[...] = -model
        assert sorted(store.keys()) == sorted(KEYS)
        store.reset()
        assert same(array[...], -model)
        assert sorted(store.keys()) == sorted(KEYS)
    assert all(count * 3 * 2 * 2 <= row for count in rows_used)


def test_whole_rows_below_each_other_are_done_together(store, workers, rows_used):
    array, model = filled(store, {})
    rows_used.clear()
    assert same(array[...], model)
    array[...] = -model
    assert same(array[:, 1:], -model[:, 1:])
    assert rows_used == [len(KEYS)] * 3
    assert store.counts() == {"borrow_many": 2 * len(KEYS), "put": len(KEYS)}


@every_chain
def test_chunks_of_many_shapes_in_a_row_are_written_with_one_request_for_each(store, chain, workers, rows_used):
    model = ours.counted((7, 60), "int16")
    array = zellige.create_array(store, data=model, chunks=[[3, 4], [1, 2, 3] * 10], **chain)
    store.reset()
    rows_used.clear()
    array[...] = -model
    assert store.keys() == store.keys("put")
    assert len(store.keys()) == len(set(store.keys())) == 60
    assert rows_used == [60]
    assert same(array[...], -model)


@pytest.fixture
def copies(monkeypatch) -> list[int]:
    """By how many copies each row is put together, or taken apart."""
    found: list[int] = []
    real = gathering._pairs

    def counted(*given: Any) -> Any:
        pairs = real(*given)
        found.append(len(pairs))
        return pairs

    monkeypatch.setattr(gathering, "_pairs", counted)
    return found


@pytest.mark.parametrize(
    ("chunks", "index", "count"),
    [
        pytest.param((3, 2, 2), EVERYTHING, 1, id="chunks of one shape"),
        pytest.param((3, 2, 7), EVERYTHING, 2, id="the last one reaches over the end"),
        pytest.param(([3, 2, 4, 1, 2], 2, 2), EVERYTHING, 1, id="many depths"),
        pytest.param(([3, 2, 4, 1, 2], 2, [1, 2, 3, 3, 2, 1] * 3), EVERYTHING, 13, id="many widths, two equal ones"),
        pytest.param((3, 2, 2), np.s_[1:-1, :, 1:-1], 3, id="all but the edges"),
        pytest.param((3, 2, 2), np.s_[:, :, ::2], 18, id="every second"),
    ],
)
def test_small_chunks_are_copied_by_few_calls(store, chunks, index, count, workers, copies):
    model = ours.counted((12, 2, 36), "int16")
    array = zellige.create_array(store, data=model, chunks=chunks)
    copies.clear()
    assert same(array[index], model[index])
    assert set(copies) == {count}
    if index is EVERYTHING:
        copies.clear()
        array[...] = -model
        assert set(copies) == {1 if count == 2 else count}  # what reaches over the end is written by itself
        assert same(array[...], -model)


@pytest.mark.parametrize("chain", [{"compressors": None}, {}], ids=["raw", "zstd"])
@pytest.mark.parametrize(("strip", "planes"), [(5, [4, 4, 4]), (6, [6, 6]), (11, [6, 6]), (1, [1] * 12)])
def test_chunks_of_many_widths_are_put_together_some_planes_at_a_time(
    store, chain, strip, planes, workers, monkeypatch
):
    """Strips of one length that have no more bytes than that, each copied to its place once."""
    widths = [1, 2, 3, 3, 2, 1] * 3
    model = ours.counted((12, 2, 36), "int16")
    array = zellige.create_array(store, data=model, chunks=([3, 2, 4, 1, 2], 2, widths), **chain)
    copied: list[tuple[int, int]] = []

    def copy(place: np.ndarray, every: Any, values: np.ndarray) -> None:
        copied.append((len(place), place.itemsize // 2))
        place[every] = values

    monkeypatch.setattr(gathering, "_STRIP", strip * 2 * 36 * 2)
    monkeypatch.setattr(gathering, "setitem", copy)
    assert same(array[...], model)
    assert copied == [(count, width) for count in planes for width in (*widths, 36)]


def test_usual_chunks_decide_how_many_are_read_together(store, workers, rows_used):
    model = ours.counted((6, 30), "int16")
    array = zellige.create_array(store, data=model, chunks=[[2, 4], [2, 4] * 5], compressors=None)
    rows_used.clear()
    with limits(row=40):  # two of the usual ones, 3 x 3 elements of two bytes, but not of the largest
        assert same(array[...], model)
    assert rows_used == [2] * 10


@pytest.mark.parametrize("name", ["100%", "%d/%s", "a b/c.d", "%%"])
@pytest.mark.parametrize("encoding", [None, {"name": "default", "separator": "."}, {"name": "v2", "separator": "/"}])
def test_rows_find_their_keys_whatever_the_array_and_its_keys_are_called(store, name, encoding, workers):
    model = ours.counted(SHAPE, "int16")
    array = zellige.create_array(store, name=name, data=model, chunks=CHUNK, chunk_key_encoding=encoding)
    expected = {
        f"{name}/{array.metadata.chunk_key_encoding.encode_chunk_key((i, j))}" for i in range(2) for j in range(30)
    }
    assert {key for key in store.list() if not key.endswith("zarr.json")} == expected
    store.reset()
    assert same(array[...], model)
    assert set(store.keys()) == expected


class MixedStore(NearStore):
    """Puts some values where they are wanted, and has others elsewhere."""

    def borrow_many(self, keys: Sequence[str], into: memoryview | None = None) -> list[Buffer | None]:
        found: list[Buffer | None] = []
        at = 0
        for k, key in enumerate(keys):
            value = self.inner.get(key)
            if into is not None and value is not None and k % 3:
                into[at : at + len(value)] = value
                value, at = into[at : at + len(value)], at + len(value)  # type: ignore[assignment]
            found.append(value)
        return found


def test_values_of_which_only_some_are_where_they_are_wanted(workers, rows_used):
    array, model = filled(MixedStore(), {"compressors": None})
    rows_used.clear()
    assert same(array[...], model)
    assert rows_used == [len(KEYS)]


@pytest.mark.parametrize("large", [0, -1], ids=["first", "last"])
def test_one_large_chunk_does_not_keep_the_small_ones_apart(store, large, workers, rows_used):
    edges = [2] * 40
    edges[large] = 20
    model = ours.counted((8, 98), "int16")
    array = zellige.create_array(store, data=model, chunks=(4, edges), compressors=None)
    rows_used.clear()
    assert same(array[...], model)
    assert max(rows_used) > 20


def test_groups_do_not_become_large_because_a_few_chunks_are(store, workers, monkeypatch):
    """As groups as wide as the usual chunks allow would be where others are much deeper than these."""
    sizes: list[int] = []
    real = engine.Engine._joined
    monkeypatch.setattr(
        engine.Engine, "_joined", lambda self, row: (sizes.append(sum(row.nbytes(2))), real(self, row))[1]
    )
    for deep in (3, 6, 60):
        model = ours.counted((20 + deep, 60), "int16")
        store.inner.delete_prefix("")
        array = zellige.create_array(store, data=model, chunks=[[2] * 10 + [deep], 2], compressors=None)
        with limits(row=240):
            assert same(array[...], model)
        assert max(sizes, default=0) <= 2 * 240, deep
    assert sizes


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_rows_of_larger_arrays_leave_something_for_every_thread(workers, rows_used):
    array, model = filled(NearStore(), {})
    rows_used.clear()
    with limits(model.nbytes, workers):
        assert same(array[...], model)
    assert len(rows_used) >= 2 * workers
    assert max(rows_used) > 2


# -- missing, damaged and empty chunks ------------------------------------------------------------


@every_chain
def test_a_missing_chunk_among_stored_ones_reads_as_fill(store, chain, workers):
    array, model = filled(store, chain, fill_value=-7)
    array.store.delete(key_of(ONE))
    model[ROWS, COLUMNS] = -7
    store.reset()
    assert same(array[...], model)
    assert sorted(store.keys()) == sorted(KEYS)
    store.inner.delete_prefix("c/")
    assert same(array[...], np.full(SHAPE, -7, "int16"))


@every_chain
def test_a_missing_chunk_in_a_row_can_be_an_error(store, chain, workers):
    array, model = filled(store, chain)
    array.store.delete(key_of(ONE))
    strict = array.with_config({"read_missing_chunks": False})
    with pytest.raises(ChunkNotFoundError, match="is missing") as found:
        strict[...]
    assert (found.value.coords, found.value.key) == (ONE, key_of(ONE))
    assert same(strict[:3], model[:3])


CHANGES: dict[str, Any] = {
    "shorter": lambda raw: raw[:-1],
    "longer": lambda raw: raw + b"\0",
    "empty": lambda _: b"",
    "another's": lambda raw: raw + raw,
    "no bytes of the codec": lambda raw: bytes(len(raw) + 3),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@every_chain
def test_a_damaged_chunk_in_a_row_is_named_and_the_others_stay_readable(store, chain, change, workers):
    model = ours.counted(SHAPE, "int16")
    array = zellige.create_array(store, name="g/a", data=model, chunks=CHUNK, **chain)
    key = f"g/a/{key_of(ONE)}"
    store.put(key, change(store.get(key)))
    for index in (..., np.s_[3:], np.s_[:, 10:30], np.s_[::-1, ::-1]):
        with pytest.raises(CorruptChunkError, match="damaged") as found:
            array[index]
        assert (found.value.array, found.value.coords, found.value.key) == ("/g/a", ONE, key)
    for index in (np.s_[:3], np.s_[:, :14], np.s_[:, 16:]):
        assert same(array[index], model[index])
    array[...] = model
    assert same(array[...], model)


@pytest.mark.parametrize("compressors", ["zstd", "gzip", CRC], ids=["zstd", "gzip", "crc32c"])
def test_a_flipped_bit_in_a_row_is_found_by_a_checksum(store, compressors, workers):
    array, _ = filled(store, {"compressors": compressors})
    raw = bytearray(store.get(key_of(ONE)))
    raw[-3] ^= 0x10
    store.put(key_of(ONE), raw)
    with pytest.raises(CorruptChunkError) as found:
        array[...]
    assert found.value.coords == ONE


def test_the_first_of_several_damaged_chunks_is_named(store, workers):
    array, _ = filled(store, {})
    for coords in ((0, 29), (0, 4), ONE):
        store.put(key_of(coords), b"junk")
    with pytest.raises(CorruptChunkError) as found:
        array[...]
    assert found.value.coords == (0, 4)


def test_what_cannot_be_decoded_here_is_not_called_damaged(store, workers):
    array, _ = filled(store, {"compressors": {"name": "blosc", "configuration": {"clevel": 0}}})
    raw = bytearray(store.get(key_of(ONE)))
    raw[2] = 2 << 5 | 0x10  # compressed by snappy, in one stream
    body = (16 + 4).to_bytes(4, "little") + (8).to_bytes(4, "little") + bytes(8)
    raw[12:] = (16 + len(body)).to_bytes(4, "little") + body
    store.put(key_of(ONE), raw)
    with pytest.raises(UnsupportedCodecError, match="snappy") as found:
        array[...]
    assert type(found.value) is UnsupportedCodecError


@every_chain
def test_chunks_of_fill_values_in_a_row_are_not_stored_and_go_if_they_were(store, chain, workers, rows_used):
    array = zellige.create_array(store, shape=SHAPE, chunks=CHUNK, dtype="int16", fill_value=5, **chain)
    model = ours.counted(SHAPE, "int16") + 5
    model[ROWS, COLUMNS] = 5
    array[...] = model
    assert stored(store) == set(KEYS) - {key_of(ONE)}
    array[...] = model + 100
    assert stored(store) == set(KEYS)
    store.reset()
    array[...] = model
    assert stored(store) == set(KEYS) - {key_of(ONE)}
    assert store.keys("delete") == [key_of(ONE)]
    assert sorted(store.keys(*WRITES)) == sorted(KEYS)
    assert same(array[...], model)
    assert max(rows_used) > 10


@every_chain
def test_chunks_of_fill_values_in_a_row_are_stored_when_asked_for(store, chain, workers, rows_used):
    config = {"write_empty_chunks": True}
    array = zellige.create_array(store, shape=SHAPE, chunks=CHUNK, dtype="int16", config=config, **chain)
    array[...] = np.zeros(SHAPE, "int16")
    assert sorted(store.keys("put")) == sorted(KEYS)
    assert max(rows_used) > 10


# -- memory ---------------------------------------------------------------------------------------

SMALL_ROW = 4096


@pytest.fixture
def sizes(monkeypatch) -> dict[str, int]:
    """The most that was asked for, for each slot of scratch, and of what is decoded together; with small rows."""
    most: dict[str, int] = {"decoded": 0, "row": 0}
    real_buffer, real_decode = scratch.buffer, BoundChain.decode_many

    def buffer(slot: str, nbytes: int) -> memoryview:
        most[slot] = max(most.get(slot, 0), nbytes)
        return real_buffer(slot, nbytes)

    def decode_many(self: BoundChain, raws: Any, sizes: Any, into: Any) -> Any:
        most["decoded"] = max(most["decoded"], sum(sizes))
        return real_decode(self, raws, sizes, into)

    monkeypatch.setattr(engine, "_ROW", SMALL_ROW)
    monkeypatch.setattr(scratch, "buffer", buffer)
    monkeypatch.setattr(BoundChain, "decode_many", decode_many)
    return most


LAYOUTS: dict[str, tuple[tuple[int, ...], Any, Any]] = {
    "small chunks": ((8, 2048), (4, 2), EVERYTHING),
    "small chunks of a box": ((2, 3, 4, 1024), (1, 3, 2, 2), EVERYTHING),
    "chunks of half a row": ((512, 64), (512, 4), EVERYTHING),
    "chunks of more than half a row": ((512, 64), (512, 5), EVERYTHING),
    "chunks of more than a row": ((2048, 64), (1024, 4), EVERYTHING),
    "long rows of a chunk": ((4, 4096), (1, 1024), EVERYTHING),
    "a thin slice of large chunks": ((1024, 2048), (1024, 2), np.s_[7]),
    "a step through large chunks": ((1024, 2048), (1024, 2), np.s_[::512]),
    "small chunks before large ones": ((8 + 1024, 512), [[8, 1024], 1], np.s_[:9]),
    "chunks that reach far over the end": ((8, 512), [[1024], 1], EVERYTHING),
    "edges of many sizes": ((9, 3 * 300), [[4, 5], [1, 2, 3, 3] * 100], np.s_[1:]),
}


@pytest.mark.parametrize(("shape", "chunks", "index"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("chain", [CHAINS["raw"], CHAINS["zstd"], CHAINS["gzip"]], ids=["raw", "zstd", "gzip"])
def test_no_more_than_a_row_is_held_at_once(shape, chunks, index, chain, sizes, workers):
    model = ours.counted(shape, "int8")
    array = zellige.create_array(MemoryStore(), data=model, chunks=chunks, config={"write_empty_chunks": True}, **chain)
    assert same(array[index], model[index])
    array[index] = 3
    assert (array[index] == 3).all()
    most = SMALL_ROW if isinstance(chunks, tuple) else 2 * SMALL_ROW  # more, if some are larger than usual
    assert sizes["row"] <= most
    assert sizes.get("chunks", 0) <= most + 1  # one byte, to notice what is longer than it should
    assert sizes["decoded"] <= 2 * SMALL_ROW


def test_rows_are_about_as_long_as_they_may_be(sizes, workers):
    model = ours.counted((8, 4096), "int8")
    array = zellige.create_array(MemoryStore(), data=model, chunks=(4, 2))
    assert same(array[...], model)
    assert SMALL_ROW // 8 < sizes["decoded"] <= SMALL_ROW // 4
    assert SMALL_ROW // 2 < sizes["chunks"] <= SMALL_ROW
    plain = zellige.create_array(MemoryStore(), data=model, chunks=(4, 2), compressors=None)
    assert same(plain[...], model)
    assert SMALL_ROW // 2 < sizes["decoded"] <= SMALL_ROW


# -- threads --------------------------------------------------------------------------------------


@contextmanager
def four_threads() -> Iterator[None]:
    """Rows by four threads, whatever they are."""
    with limits(600, workers=4):
        yield


@every_chain
def test_threads_share_rows_and_each_chunk_is_asked_for_once(store, chain, rows_used):
    array, model = filled(store, chain)
    meeting, met = threading.Barrier(4), threading.local()

    def meet(_method: str, _key: str) -> None:
        if not hasattr(met, "once"):  # broken, and so an error, if fewer threads come
            met.once = meeting.wait(10)

    store.before = meet
    with four_threads():
        assert same(array[...], model)
    assert sorted(store.keys()) == sorted(KEYS)
    assert len({call.thread for call in store.calls}) == 4
    store.reset().before = None
    with four_threads():
        array[...] = -model
        assert sorted(store.keys()) == sorted(KEYS)
        assert same(array[...], -model)
    assert len(rows_used) > 8
    assert max(rows_used) > 2


@every_chain
def test_threads_name_the_damaged_chunk_and_fill_the_missing_one(store, chain):
    array, model = filled(store, chain, fill_value=-7)
    with four_threads():
        store.put(key_of(ONE), b"junk")
        with pytest.raises(CorruptChunkError) as found:
            array[...]
        assert (found.value.coords, found.value.key) == (ONE, key_of(ONE))
        assert same(array[:, 16:], model[:, 16:])
        store.delete(key_of(ONE))
        model[ROWS, COLUMNS] = -7
        assert same(array[...], model)
        with pytest.raises(ChunkNotFoundError) as missing:
            array.with_config({"read_missing_chunks": False})[...]
        assert missing.value.coords == ONE
        array[...] = -7
        assert stored(store) == set()


@pytest.mark.parametrize("chain", [CHAINS["raw"], CHAINS["zstd"]], ids=["raw", "zstd"])
def test_a_row_waits_for_a_thread_that_changes_a_part_of_one_of_its_chunks(store, chain, workers, rows_used):
    array, model = filled(store, chain)
    row = threading.Thread(target=array.__setitem__, args=(..., -model))
    overtaken = threading.Event()

    def before(method: str, key: str) -> None:
        if (method, key) != ("put", key_of(ONE)):
            return
        if threading.current_thread() is row:
            overtaken.set()
        else:  # about to store what was read before
            row.start()
            overtaken.wait(0.2)

    store.before = before
    rows_used.clear()
    array[ROWS.start, COLUMNS.start] = 99
    row.join()
    assert max(rows_used) > 10
    assert same(array[...], -model)


@pytest.mark.parametrize("chain", [CHAINS["raw"], CHAINS["zstd"]], ids=["raw", "zstd"])
def test_threads_that_write_rows_with_the_same_and_with_other_chunks_lose_nothing(store, chain):
    array, model = filled(store, chain)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                if number < 2:  # the same chunks
                    array[:3] = model[:3] * 2
                else:  # parts of the same chunks
                    array[number + 1, 1:-1] = model[number + 1, 1:-1] * 2
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    with limits(600):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    model[:3] *= 2
    model[3:, 1:-1] *= 2
    assert same(array[...], model)
