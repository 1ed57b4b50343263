"""Shards, counted: which bytes are asked for, what is encoded again, how much memory it takes."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import strategies as ours
import zellige
from counting_store import READS, WRITES, CountingStore
from zellige.codecs import GzipCodec, ZstdCodec
from zellige.stores import LocalStore
from zellige.types import Span

EMPTY = 2**64 - 1
KiB, MiB = 1 << 10, 1 << 20


class SpanStore(CountingStore):
    """Also keeps the ranges that were asked for."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.spans: list[list[Span]] = []

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Any:
        if spans is not None:
            self.spans.append(list(spans))
        return super().read(key, spans)

    def reset(self) -> SpanStore:
        self.spans.clear()
        return super().reset()


class UntaggedStore(CountingStore):
    """A store that cannot tell whether a value has changed."""

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Any:
        found = super().read(key, spans)
        return None if found is None else found._replace(tag=None)


def sharding(chunk_shape: Any, codecs: Any = ("bytes",), checksum: bool = True, **more: Any) -> dict[str, Any]:
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    inner = [little if codec == "bytes" else codec for codec in codecs]
    index = [little, *([{"name": "crc32c"}] if checksum else [])]
    configuration = {"chunk_shape": list(chunk_shape), "codecs": inner, "index_codecs": index, **more}
    return {"name": "sharding_indexed", "configuration": configuration}


def filled(count: int, inner: int, *, size: int | None = None, store: Any = None, **options: Any) -> tuple[Any, Any]:
    """An array of 4-byte numbers from 1, `count` inner chunks, maybe in shards of `size` of them; none was counted."""
    store = SpanStore() if store is None else store
    shape = (count * inner,)
    given = {"chunks": (inner,), "shards": ((size or count) * inner,), "compressors": None, **options}
    zellige.create_array(store, data=ours.counted(shape), **given)
    return zellige.open_array(store), store.reset()


def reads(store: CountingStore) -> int:
    return len(store.made(*READS))


# -- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["start", "end"])
def test_one_element_of_a_shard_costs_two_range_reads_and_later_one(location):
    serializer = sharding((8,), index_location=location)
    array, store = filled(64, 8, chunks=(512,), shards=None, serializer=serializer)
    store.reset()
    index, data = 64 * 16 + 4, 8 * 4
    assert array[100] == 101
    begin = index if location == "start" else 0
    assert store.spans == [[(0, index) if location == "start" else (-index, None)], [(begin + 12 * data, data)]]
    assert store.counts() == {"get_ranges": 2}
    assert store.nbytes(*READS) == index + data
    store.reset()
    assert array[500] == 501
    assert store.spans == [[(begin + 62 * data, data)]]
    assert (reads(store), store.nbytes(*READS)) == (1, data)


def test_an_empty_inner_chunk_costs_the_index_and_then_a_look_at_the_tag():
    array, store = filled(64, 8)
    zellige.open_array(store)[8:16] = 0
    store.reset()
    assert array[9] == 0
    assert reads(store) == 1
    index = store.nbytes(*READS)
    assert array[10] == 0  # the remembered index must still hold: somebody may have written there
    assert (reads(store), store.nbytes(*READS)) == (2, index)


def test_a_missing_shard_costs_one_request():
    array, store = filled(64, 8)
    array[...] = 0
    store.reset()
    assert array[9] == 0
    assert reads(store) == 1


def test_a_whole_shard_costs_one_request():
    array, store = filled(64, 8)
    assert np.array_equal(array[...], ours.counted((512,)))
    assert np.array_equal(array[3::8], ours.counted((512,))[3::8])  # something of each inner chunk
    assert store.counts() == {"get": 2}


def test_a_shard_that_reaches_over_the_end_costs_two_requests():
    store = SpanStore()
    zellige.create_array(store, data=ours.counted((500,)), chunks=(8,), shards=(1024,), compressors=None)
    array = zellige.open_array(store)
    store.reset()
    assert np.array_equal(array[...], ours.counted((500,)))
    assert store.spans == [[(-(128 * 16 + 4), None)], [(0, 63 * 8 * 4)]]
    assert reads(store) == 2


def test_neighbours_are_one_range():
    array, store = filled(64, 8)
    assert array[0] == 1
    store.reset()
    assert np.array_equal(array[80:160], ours.counted((512,))[80:160])
    assert store.spans == [[(10 * 32, 10 * 32)]]
    assert reads(store) == 1


def test_inner_chunks_near_each_other_are_one_range_and_far_ones_one_request():
    array, store = filled(64, 4096)  # of 16 KiB
    assert array[0] == 1
    store.reset()
    assert array[[4096, 4096 * 3]].tolist() == [4097, 4096 * 3 + 1]
    assert store.spans == [[(16 * KiB, 3 * 16 * KiB)]]
    store.reset()
    assert array[[4096, 4096 * 30]].tolist() == [4097, 4096 * 30 + 1]
    assert store.spans == [[(16 * KiB, 16 * KiB), (30 * 16 * KiB, 16 * KiB)]]


def test_each_shard_has_its_own_index():
    array, store = filled(64, 8, size=16)
    assert array[[0, 200, 400]].tolist() == [1, 201, 401]
    assert reads(store) == 6
    store.reset()
    assert array[[5, 205, 405]].tolist() == [6, 206, 406]
    assert reads(store) == 3


def test_one_element_of_nested_shards_costs_an_index_for_each_level():
    nested = sharding((64,), [sharding((8,))])
    array, store = filled(64, 8, chunks=(512,), shards=None, serializer=nested)
    outer, inner = 8 * 16 + 4, 64 * 4 + 8 * 16 + 4
    assert array[100] == 101
    assert store.spans == [
        [(-outer, None)],
        [(inner + 256, 132)],  # the index of the second inner shard
        [(inner + 4 * 32, 32)],
    ]
    store.reset()
    assert array[101] == 102
    assert reads(store) == 1
    assert array[0] == 1  # of another inner shard
    assert reads(store) == 3


def test_only_the_last_indexes_are_remembered(monkeypatch):
    monkeypatch.setattr("zellige.io.shard._KEEP", 3)
    array, store = filled(64, 8, size=8)

    def cost(shard: int) -> int:
        store.reset()
        assert array[shard * 64 + 9] == shard * 64 + 10
        return reads(store)

    assert [cost(shard) for shard in (0, 1, 2, 0, 1, 2)] == [2, 2, 2, 1, 1, 1]
    assert [cost(shard) for shard in (3, 1, 2, 0)] == [2, 1, 1, 2]


def test_a_store_without_tags_has_nothing_remembered():
    array, store = filled(64, 8, store=UntaggedStore())
    other = zellige.open_array(store)
    for _ in range(2):
        store.reset()
        assert array[500] == 501
        assert reads(store) == 2
    other[:400] = 0
    assert array[500] == 501


# -- writing --------------------------------------------------------------------------------------


@pytest.fixture
def encoded(monkeypatch) -> list[int]:
    """The lengths of what gzip has encoded since."""
    lengths: list[int] = []
    plain = GzipCodec.encode

    def counting(self: GzipCodec, raw: Any) -> bytes:
        lengths.append(len(raw))
        return plain(self, raw)

    monkeypatch.setattr(GzipCodec, "encode", counting)
    monkeypatch.setattr("zellige.kernel.native", None)  # which encodes gzip itself
    return lengths


def parts(raw: bytes, count: int) -> list[bytes | None]:
    """The bytes of each inner chunk, by the index at the end with its checksum."""
    entries = struct.iter_unpack("<QQ", raw[-16 * count - 4 : -4])
    return [None if offset == EMPTY else raw[offset : offset + length] for offset, length in entries]


def test_changing_one_inner_chunk_of_4096_encodes_one_and_copies_the_others(encoded):
    array, store = filled(4096, 16, compressors="gzip")
    assert len(encoded) == 4096
    before = parts(store.inner.get("c/0"), 4096)
    encoded.clear()
    array[1000 * 16 + 3] = -1
    assert encoded == [64]
    after = parts(store.inner.get("c/0"), 4096)
    assert [k for k in range(4096) if after[k] != before[k]] == [1000]
    expected = ours.counted((4096 * 16,))
    expected[1000 * 16 + 3] = -1
    assert np.array_equal(array[...], expected)


def test_a_write_across_inner_chunks_encodes_those_that_it_touches(encoded):
    array, store = filled(64, 16, compressors="gzip")
    encoded.clear()
    before = parts(store.inner.get("c/0"), 64)
    array[40:100] = 0  # parts of two, and three whole ones, which are empty then
    assert encoded == [64, 64]
    after = parts(store.inner.get("c/0"), 64)
    assert [k for k in range(64) if after[k] != before[k]] == [2, 3, 4, 5, 6]
    assert after[3:6] == [None] * 3


def test_copied_bytes_are_not_decoded():
    # A damaged inner chunk stays as it is when another one changes.
    array, store = filled(64, 16, compressors=ZstdCodec())
    raw = bytearray(store.inner.get("c/0"))
    raw[5] ^= 0xFF
    store.inner.put("c/0", raw)
    array[1000] = 0
    assert parts(store.inner.get("c/0"), 64)[0] == parts(bytes(raw), 64)[0]


def test_whole_shards_are_written_without_reading():
    array, store = filled(64, 8, size=16)
    array[...] = 5
    array[128:256] = 6
    assert reads(store) == 0
    assert store.counts() == {"put": 5}
    array[:256] = 0
    assert store.counts() == {"put": 5, "delete": 2}
    assert np.array_equal(array[...], np.repeat([0, 5], 256))


def test_a_part_of_a_shard_is_written_with_one_read_and_one_write():
    array, store = filled(64, 8, size=16)
    array[100:140] = 0
    assert sorted(store.keys(*READS)) == sorted(store.keys(*WRITES)) == ["c/0", "c/1"]


# -- memory ---------------------------------------------------------------------------------------

SIDE = 64 * MiB // 4


@pytest.fixture(scope="module")
def large() -> np.ndarray:
    """64 MiB that zstd makes about half as long."""
    return np.random.default_rng(1).integers(0, 1 << 16, SIDE, np.uint32)


def peak(action: Callable[[], Any]) -> tuple[int, Any]:
    """The most memory that an action took on top of what was there."""
    tracemalloc.start()
    try:
        found = action()
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


def test_memory_of_one_large_shard(tmp_path, large):
    store = LocalStore(tmp_path)
    array = zellige.create_array(store, shape=SIDE, dtype="uint32", chunks=16 * KiB, shards=SIDE)
    writing, _ = peak(lambda: array.__setitem__(..., large))
    stored = store.size("c/0")
    assert 16 * MiB < stored < 48 * MiB
    joined = stored if zellige.kernel.native is None else 0  # the plain path joins the inner chunks in memory
    assert writing < stored + joined + 8 * MiB  # the array itself was there before
    reading, found = peak(lambda: array[...])
    assert np.array_equal(found, large)
    assert reading < large.nbytes + stored + 8 * MiB
    part, found = peak(lambda: array[16 * KiB * 500 : 16 * KiB * 510])
    assert np.array_equal(found, large[16 * KiB * 500 : 16 * KiB * 510])
    assert part < 10 * 3 * 64 * KiB + MiB
    changing, _ = peak(lambda: array.__setitem__(5, 0))
    assert changing < stored + 8 * MiB
    assert (array[5], array[6]) == (0, large[6])
