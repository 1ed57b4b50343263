"""`explain` predicts requests and bytes exactly: compared with a store that counts them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zellige
from counting_store import CountingStore


class Tally(CountingStore):
    """Counts every range as a request, and the bytes of each."""

    def __init__(self):
        super().__init__()
        self.traits = replace(self.traits, concurrency=4)
        self.requests = self.nbytes = 0

    def read(self, key, spans=None):
        found = self.inner.read(key, spans)
        self.requests += 1 if spans is None else len(spans)
        self.nbytes += 0 if found is None else sum(map(len, found.parts))
        return found


LAYOUTS = [
    {"chunks": (4, 6)},
    {"chunks": ([1, 7, 12], [3, 17])},
    {"chunks": (5, 20), "compressors": None},
    {"chunks": ([9, 11], 20), "compressors": None},
    {"chunks": (2, 5), "shards": (10, 20)},
    {"chunks": (2, 5), "shards": ([4, 16], 10), "compressors": None},
    {"chunks": (3, 7), "shards": (10, 20), "config": {"uneven_inner_chunks": True}},
    {"chunks": (3, 30), "shards": ([4, 16], [11, 9]), "compressors": None, "config": {"uneven_inner_chunks": True}},
    {"chunks": (20, 20), "filters": None, "compressors": ["gzip"]},
    {"chunks": (4, 7), "zarr_format": 2},
]


@st.composite
def picks(draw, length):
    kind = draw(st.sampled_from(["int", "slice", "all", "array"]))
    if kind == "int":
        return draw(st.integers(-length, length - 1))
    if kind == "slice":
        low, high = sorted(draw(st.tuples(st.integers(0, length), st.integers(0, length))))
        return slice(low, high, draw(st.sampled_from([None, 1, 2, 5, -1])))
    if kind == "array":
        return draw(st.lists(st.integers(0, length - 1), min_size=3, max_size=3))
    return slice(None)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(LAYOUTS), picks(20), picks(20), st.booleans())
def test_requests_and_bytes_are_predicted_exactly(layout, rows, columns, sparse):
    store = Tally()
    values = np.arange(400).reshape(20, 20)
    if sparse:
        values[5:15] = 0
    made = zellige.create_array(store.inner, data=values, **layout)
    array = zellige.Array.open(store)
    said = array.explain((rows, columns))
    store.requests = store.nbytes = 0
    expected = values[rows, columns]
    np.testing.assert_array_equal(array[rows, columns], expected)
    assert (said.requests, said.bytes_read) == (store.requests, store.nbytes)
    assert (said.elements, said.bytes_wanted) == (expected.size, expected.nbytes)
    assert said.chunks == len(list(made.iter_chunks((rows, columns))))
    assert said.exact


def test_nested_shards_too():
    store = Tally()
    inner = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [2, 5],
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "end",
        },
    }
    values = np.arange(1, 401).reshape(20, 20)
    zellige.create_array(store.inner, data=values, chunks=(10, 10), shards=(20, 20), serializer=inner, compressors=None)
    array = zellige.Array.open(store)
    for index in [(0, 0), (slice(0, 3), slice(4, 12)), (slice(9, 11), slice(None)), ...]:
        said = zellige.Array.open(store).explain(index)
        store.requests = store.nbytes = 0
        np.testing.assert_array_equal(array.with_config({})[index], values[index])
        assert (said.requests, said.bytes_read) == (store.requests, store.nbytes)


def test_nothing_but_indexes_is_read():
    store = CountingStore()
    zellige.create_array(store, data=np.arange(400).reshape(20, 20), chunks=(4, 5))
    array = zellige.Array.open(store)
    store.reset()
    array.explain()
    assert not store.made("get", "get_ranges")


def test_inner_chunks_that_do_not_divide_their_shard_are_counted_as_they_are():
    allowed = {"uneven_inner_chunks": True}
    array = zellige.create_array(data=np.arange(1, 41), chunks=3, shards=10, compressors=None, config=allowed)
    for index, inner, decoded in ((slice(None), 16, 40), (slice(9, 11), 2, 4), (9, 1, 1), (slice(6, 10), 2, 4)):
        said = array.explain(index)
        assert (said.inner_chunks, said.bytes_decoded) == (inner, 8 * decoded)


def test_missing_chunks_are_told():
    array = zellige.zeros((10, 10), chunks=5)
    array[0, 0] = 1
    said = array.explain()
    assert (said.chunks, said.missing, said.requests, said.inner_chunks) == (4, 3, 4, 1)
    assert "3 of them not stored" in str(said)


def test_a_column_of_row_chunks_gets_a_better_layout():
    array = zellige.create_array(data=np.arange(10_000.0).reshape(100, 100), chunks=(1, 100))
    said = array.explain((slice(None), 3))
    assert said.amplification == 100
    assert said.suggestion == "chunks=(100, 1) would decode 800 B instead of 78.1 KiB"
    assert array.explain(5).suggestion is None


def test_many_small_chunks_call_for_shards():
    array = zellige.create_array(data=np.ones((2000, 4)), chunks=(1, 4))
    assert "shards=" in array.explain().suggestion


def test_a_selection_of_very_many_chunks_is_estimated():
    array = zellige.zeros((10**9,), chunks=10, dtype="int8")
    array[: 10**4] = 1
    said = array.explain()
    assert not said.exact
    assert said.chunks == said.requests == 10**8
    assert "about" in str(said)


@pytest.mark.parametrize("shape", [(), (0,), (0, 4)])
def test_empty_and_single(shape):
    said = zellige.zeros(shape).explain()
    assert said.elements == int(np.prod(shape))
    assert str(said)


@pytest.mark.parametrize("damage", [lambda raw: raw[:20], lambda raw: raw[:-10] + bytes([raw[-10] ^ 1]) + raw[-9:]])
def test_a_damaged_shard_is_named_as_a_read_names_it(damage):
    store = zellige.MemoryStore()
    values = np.arange(400).reshape(20, 20)
    array = zellige.create_array(store, name="s", data=values, chunks=(5, 5), shards=(10, 10))
    store.put("s/c/0/1", damage(store.get("s/c/0/1")))
    for ask in (array.explain, array.__getitem__):
        with pytest.raises(zellige.errors.CorruptChunkError, match=r"array '/s', chunk \(0, 1\), key 's/c/0/1'"):
            ask((0, 12))
