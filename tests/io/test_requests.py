"""Requests to stores that are waited for: in how few rounds, how many at once, which ranges together, and by whom."""

from __future__ import annotations

import _thread
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import CountingStore, contents
from running import settled
from zellige.storage import CacheStore, LatencyStore, LocalStore, MemoryStore, Store
from zellige.stores import threads as team

MODEL = np.arange(256 * 50).reshape(256, 50)
KiB = 1024


def slow(inner: Store, **options: Any) -> LatencyStore:
    """A store whose requests take 20 ms of simulated time, and end together."""
    return LatencyStore(inner, 0.020, simulated=True, **options)


@contextmanager
def rounds(store: LatencyStore, most: int, requests: int | None = None) -> Iterator[None]:
    """What is done here takes no more rounds of requests, and so many requests in all."""
    store.reset()
    yield
    assert 0 < store.rounds <= most
    assert requests in (None, store.requests)


def array(inner: Store, **options: Any) -> zellige.Array:
    return zellige.create_array(inner, data=MODEL, chunks=(1, 50), **options)


# -- chunks -----------------------------------------------------------------------------------------


def test_256_chunks_are_read_in_less_than_6_rounds():
    array(MemoryStore(data := {}))
    store = slow(MemoryStore(data))
    found = zellige.open_array(store)
    with rounds(store, 5, requests=256):
        assert np.array_equal(found[...], MODEL)
    assert store.waited < 6 * 0.020
    with rounds(store, 5, requests=256):
        assert np.array_equal(found[::-1, 3:5], MODEL[::-1, 3:5])
    with rounds(store, 2, requests=100):
        assert np.array_equal(found.oindex[np.arange(100) * 2, [3]], MODEL[0:200:2, [3]])


def test_chunks_are_written_and_changed_in_few_rounds():
    store = slow(inner := MemoryStore())
    made = zellige.create_array(store, shape=MODEL.shape, dtype=MODEL.dtype, chunks=(1, 50))
    with rounds(store, 5, requests=256):
        made[...] = MODEL
    with rounds(store, 10, requests=512):  # each is read, and then written
        made[:, 5:9] = -MODEL[:, 5:9]
    expected = MODEL.copy()
    expected[:, 5:9] *= -1
    assert np.array_equal(zellige.open_array(inner)[...], expected)


def test_chunks_are_deleted_in_few_rounds():
    array(inner := MemoryStore())
    store = slow(inner)
    found = zellige.open_array(store)
    with rounds(store, 12):
        found.resize((16, 50))
    assert sum(key.startswith("c/") for key in inner.list()) == 16


def test_copying_takes_few_rounds():
    array(inner := MemoryStore())
    store = slow(target := MemoryStore())
    with rounds(store, 16):
        zellige.copy_store(inner, store)
    assert contents(target) == contents(inner)
    group = zellige.open_group(slow(MemoryStore()), mode="a")
    store = group.store
    with rounds(store, 20):
        zellige.copy(zellige.open_array(inner), group, "copy")
    assert np.array_equal(zellige.open_array(store.inner, path="copy")[...], MODEL)


@pytest.mark.parametrize("location", ["start", "end"])
def test_one_element_of_a_shard_takes_two_rounds_and_then_one(location):
    inner = MemoryStore()
    zellige.create_array(
        inner, data=MODEL, chunks=(128, 50), serializer=zellige.codecs.ShardingCodec((4, 10), index_location=location)
    )
    store = slow(inner)
    found = zellige.open_array(store)
    with rounds(store, 2, requests=2):
        assert found[7, 13] == MODEL[7, 13]
    with rounds(store, 1, requests=1):
        assert found[77, 13] == MODEL[77, 13]
    with rounds(store, 2, requests=3):  # the index of the other shard, and a part of each
        assert np.array_equal(found[:, 3], MODEL[:, 3])


# -- documents --------------------------------------------------------------------------------------

OPENERS: dict[str, Callable[..., Any]] = {
    "open": zellige.open,
    "open_array": zellige.open_array,
    "open_group": zellige.open_group,
    "open_consolidated": zellige.open_consolidated,
}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("opener", ["open", "open_group", "open_consolidated"])
def test_a_consolidated_hierarchy_is_opened_in_one_round(opener, zarr_format):
    inner = MemoryStore()
    root = zellige.create_group(inner, zarr_format=zarr_format)
    for number in range(20):
        root.create_array(f"g{number % 3}/a{number}", shape=10, dtype="i2")
    zellige.consolidate_metadata(inner, zarr_format=zarr_format)
    store = slow(inner)
    with rounds(store, 1):
        found = OPENERS[opener](store, mode="r")
        assert len(found.members(max_depth=None)) == 23
        assert found["g1/a4"].shape == (10,)
    with rounds(store, 1, requests=1 if zarr_format == 3 else None):
        OPENERS[opener](store, mode="r", zarr_format=zarr_format)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["array", "group"])
def test_a_node_of_either_format_is_opened_in_one_round(kind, zarr_format):
    inner = MemoryStore()
    attributes = {"a": 1}
    if kind == "array":
        zellige.create_array(inner, shape=3, dtype="i2", zarr_format=zarr_format, attributes=attributes)
    else:
        zellige.create_group(inner, zarr_format=zarr_format, attributes=attributes)
    store = slow(inner)
    for opener in ("open", f"open_{kind}"):
        with rounds(store, 1):
            assert OPENERS[opener](store, mode="r").attrs["a"] == 1


def test_a_member_of_a_group_takes_one_request():
    inner = MemoryStore()
    zellige.create_group(inner).create_array("a/b", shape=3, dtype="i2")
    store = slow(inner)
    root = zellige.open_group(store, use_consolidated=False)
    with rounds(store, 1, requests=1):
        assert root["a/b"].shape == (3,)


def test_a_refused_document_matters_only_if_it_is_needed():
    """Without the right to list, object stores answer 403 for what is not there."""

    def refuse(method: str, key: str) -> None:
        if method == "get" and not inner.inner.exists(key):
            raise PermissionError(f"403: {key}")

    inner = CountingStore()
    zellige.create_array(inner, shape=3, dtype="i2")
    inner.before = refuse
    assert zellige.open_array(slow(inner)).shape == (3,)
    with pytest.raises(PermissionError, match=r"403: x/zarr\.json"):
        zellige.open_array(slow(inner), path="x")


def test_a_hierarchy_is_listed_in_two_rounds_for_each_level():
    inner = MemoryStore()
    root = zellige.create_group(inner)
    for number in range(60):
        root.create_array(f"g{number % 6}/a{number}", shape=10, dtype="i2")
    store = slow(inner)
    found = zellige.open_group(store)
    with rounds(store, 2 * 2):
        assert found.nmembers(max_depth=None) == 66


def test_a_hierarchy_is_made_in_a_few_rounds_for_each_level():
    document = zellige.zeros((10,), dtype="i2").metadata
    store = slow(inner := MemoryStore())
    with rounds(store, 24):
        made = dict(zellige.create_hierarchy(store=store, nodes={f"g{k % 6}/a{k}": document for k in range(60)}))
    assert len(made) == 67
    assert zellige.open_group(inner).nmembers(max_depth=None) == 66


# -- how many at once -------------------------------------------------------------------------------


class Crowded(MemoryStore):
    """Counts the requests that are under way, and waits at first until so many are."""

    def __init__(self, data: Any = None, concurrency: int = 8, **options: Any) -> None:
        super().__init__(data, **options)
        self.traits = replace(self.traits, concurrency=concurrency)
        self.meeting = threading.Barrier(concurrency)
        self.now = self.most = 0
        self.guard = threading.Lock()
        self.armed = False

    def read(self, key: str, spans: Any = None) -> Any:
        with self.guard:
            self.now += 1
            self.most = max(self.most, self.now)
        if self.armed:
            self.meeting.wait(10)  # broken, and so an error, if fewer come
        with self.guard:
            self.now -= 1
        return super().read(key, spans)


@pytest.mark.parametrize("workers", [1, 2])
def test_as_many_requests_are_under_way_as_the_store_wants(workers):
    store = Crowded(concurrency=16)
    found = array(store)
    store.armed = True
    before = _thread._count()
    with zellige.config.set({"threading.max_workers": workers}):
        assert np.array_equal(found[...], MODEL)
    assert store.most == 16
    assert settled(before)


def test_large_chunks_are_fewer_at_once():
    store = Crowded(concurrency=64)
    with zellige.config.set({"threading.max_workers": 2}):
        most = {held: team.crew(store, 0, held).most for held in (0, 1 << 20, 16 << 20, 1 << 30)}
    assert most == {0: 64, 1 << 20: 64, 16 << 20: 16, 1 << 30: 2}
    assert team.crew(MemoryStore(), 1 << 30).most == 2


def test_all_operations_on_a_store_share_its_threads():
    store = Crowded(concurrency=8)
    found = array(store)
    threads: set[int] = set()
    real = store.read

    def read(key: str, spans: Any = None) -> Any:
        threads.add(threading.active_count())
        time.sleep(0.001)
        return real(key, spans)

    store.read = read  # type: ignore[method-assign]
    before = _thread._count()
    callers = [threading.Thread(target=lambda: found[...]) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert max(threads) <= before + 4 + 7


def test_two_stores_do_not_wait_for_each_others_threads():
    stores = [Crowded(concurrency=6) for _ in range(2)]
    arrays = [array(store) for store in stores]
    for store in stores:
        store.armed = True
    errors: list[BaseException] = []

    def read(number: int) -> None:
        try:
            assert np.array_equal(arrays[number][:6], MODEL[:6])
        except BaseException as error:  # noqa: BLE001  (shown below)
            errors.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


# -- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("refused"), KeyboardInterrupt()])
@pytest.mark.parametrize("kind", ["whole", "part"])
def test_nothing_is_written_after_an_error(error, kind):
    def fail(method: str, key: str) -> None:
        if method == "put" and key == "c/100/0":
            raise error

    inner = CountingStore()
    store = LatencyStore(inner, 0.001, concurrency=16)
    found = zellige.create_array(store, shape=MODEL.shape, dtype=MODEL.dtype, chunks=(1, 50))
    inner.before = fail
    before = _thread._count()
    with pytest.raises(type(error)):
        found[:, : 50 if kind == "whole" else 7] = 1
    written = len(inner.reset().inner._data)  # type: ignore[attr-defined]
    time.sleep(0.05)
    assert len(inner.inner._data) == written < 256  # type: ignore[attr-defined]
    assert inner.calls == []
    assert settled(before)
    inner.before = None
    found[...] = MODEL
    assert np.array_equal(found[...], MODEL)


def test_writers_of_the_same_chunks_wait_for_each_other_and_lose_nothing():
    store = LatencyStore(MemoryStore(), 0.001, concurrency=8)
    found = zellige.create_array(store, shape=(16, 40), chunks=(4, 40), dtype="i4")

    def add(number: int) -> None:
        for step in range(5):
            found[:, number * 5 : number * 5 + 5] = number + step

    with zellige.config.set({"threading.max_workers": 1}):
        threads = [threading.Thread(target=add, args=(number,), daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert np.array_equal(found[...], np.broadcast_to(np.arange(8).repeat(5) + 4, (16, 40)))


# -- ranges -----------------------------------------------------------------------------------------


class Ranged(CountingStore):
    """Keeps the ranges that are asked for."""

    def __init__(self, inner: Store, gap: int, concurrency: int | None = 4) -> None:
        super().__init__(inner)
        self.traits = replace(self.traits, coalesce_gap=gap, concurrency=concurrency)
        self.spans: list[Any] = []

    def read(self, key: str, spans: Any = None) -> Any:
        if spans is not None:
            self.spans.append(list(spans))
        return super().read(key, spans)


@pytest.mark.parametrize(("gap", "ranges"), [(0, 3), (15, 3), (16, 2), (31, 2), (32, 1)])
def test_parts_of_a_shard_are_read_together_up_to_the_gap_of_the_store(gap, ranges):
    """Inner chunks 0, 2 and 5 of 16 KiB each: gaps of 16 and 32 KiB."""
    inner = MemoryStore()
    model = np.arange(10 * 4096, dtype="i4")
    zellige.create_array(inner, data=model, chunks=4096, shards=10 * 4096, compressors=None)
    wanted = np.array([0, 2, 5]) * 4096
    own = {"sharding_coalesce_max_gap_bytes": gap * KiB}
    for store, config in ((Ranged(inner, gap * KiB), {}), (Ranged(inner, 1 << 30), own), (Ranged(inner, 0, None), own)):
        found = zellige.open_array(store, config=config)
        assert np.array_equal(found.oindex[wanted], model[wanted])
        assert [len(spans) for spans in store.spans] == [1, ranges]  # the index, and then the parts


def test_no_more_is_read_together_than_the_settings_say():
    inner = MemoryStore()
    model = np.arange(8 * 4096, dtype="i4")
    zellige.create_array(inner, data=model, chunks=4096, shards=8 * 4096, compressors=None)
    for most, count in ((16 << 20, 1), (48 * KiB, 2), (16 * KiB, 4), (1, 4)):
        store = Ranged(inner, 1 << 20)
        found = zellige.open_array(store, config={"sharding_coalesce_max_bytes": most})
        assert np.array_equal(found[: 4 * 4096], model[: 4 * 4096])
        assert len(store.spans[-1]) == count


def test_scattered_elements_are_read_together_up_to_the_gap_of_the_store():
    inner = MemoryStore()
    model = np.arange(1 << 18, dtype="i4")
    zellige.create_array(inner, data=model, chunks=1 << 18, compressors=None)
    wanted = np.array([0, 1000, 100_000, 102_000, 250_000])
    for gap, count in ((1 * KiB, 5), (5 * KiB, 4), (16 * KiB, 3)):
        store = Ranged(inner, gap)
        assert np.array_equal(zellige.open_array(store).vindex[wanted], model[wanted])
        assert len(store.spans[-1]) == count
    store = Ranged(inner, 1 << 20)
    assert np.array_equal(zellige.open_array(store).vindex[[5, 7]], [5, 7])
    assert store.nbytes("get_ranges") == 3 * 4


# -- with caches ------------------------------------------------------------------------------------


def test_what_a_cache_has_takes_no_round():
    array(inner := MemoryStore())
    store = slow(inner)
    cache = CacheStore(store, decoded_bytes=1 << 20)
    found = zellige.open_array(cache)
    with rounds(store, 5, requests=256):
        assert np.array_equal(found[...], MODEL)
    store.reset()
    assert np.array_equal(found[::3], MODEL[::3])
    assert store.requests == 0


def test_documents_are_plain_json(tmp_path):
    """What is written through a store that is waited for is what others write."""
    for store in (slow(LocalStore(tmp_path / "slow")), LocalStore(tmp_path / "near")):
        zellige.create_array(store, name="a/b", shape=3, dtype="i2", chunks=[[1, 2]])
    names = {path.relative_to(tmp_path / "near") for path in (tmp_path / "near").rglob("zarr.json")}
    assert len(names) == 3
    for name in names:
        assert json.loads((tmp_path / "slow" / name).read_text()) == json.loads((tmp_path / "near" / name).read_text())
