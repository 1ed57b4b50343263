"""An index that is remembered is never used for the bytes of another value: shards that change while they are read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import strategies as ours
import zellige
from counting_store import CountingStore
from zellige.errors import ConflictError
from zellige.io.shard import IndexCache, ShardSource
from zellige.stores import LocalStore, MemoryStore, Store, base
from zellige.stores.base import ChangedError


def sharding(chunk_shape: Any, codecs: Any = ("bytes",), checksum: bool = True, **more: Any) -> dict[str, Any]:
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    inner = [little if codec == "bytes" else codec for codec in codecs]
    index = [little, *([{"name": "crc32c"}] if checksum else [])]
    configuration = {"chunk_shape": list(chunk_shape), "codecs": inner, "index_codecs": index, **more}
    return {"name": "sharding_indexed", "configuration": configuration}


NESTED = sharding((8,), [sharding((2,), checksum=False)], checksum=False)
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"serializer": sharding((2,), checksum=False)},
    "checksums": {"serializer": sharding((2,), ["bytes", {"name": "crc32c"}])},
    "index at the start": {"serializer": sharding((2,), checksum=False, index_location="start")},
    "nested": {"serializer": NESTED},
    "nested checksums": {"serializer": sharding((8,), [sharding((2,))])},
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path)


def pair(store: Store, layout: str, size: int = 64) -> tuple[zellige.Array, zellige.Array, np.ndarray]:
    """Two handles on one shard."""
    model = ours.counted((size,))
    array = zellige.create_array(store, data=model, chunks=(size,), compressors=None, **LAYOUTS[layout])
    return array, zellige.open_array(store), model


CHANGES: dict[str, Callable[[np.ndarray], None]] = {  # each moves what follows to other offsets
    "first emptied": lambda model: model[:2].fill(0),
    "eight emptied": lambda model: model[8:16].fill(0),
    "last emptied": lambda model: model[-2:].fill(0),
    "all but the last emptied": lambda model: model[:-2].fill(0),
    "all but the first emptied": lambda model: model[2:].fill(0),
    "all emptied": lambda model: model.fill(0),
    "all changed": lambda model: model.__iadd__(1000),
}


# -- between two reads ---------------------------------------------------------------------------


@layouts
@pytest.mark.parametrize("change", CHANGES)
def test_what_another_handle_writes_is_seen(store, layout, change):
    array, other, model = pair(store, layout)
    for warm in (0, 20, 63):
        assert array[warm] == model[warm]
    CHANGES[change](model)
    other[...] = model
    for index in (63, 62, 17, 0, 9):
        assert array[index] == model[index], index
    assert np.array_equal(array[10:50], model[10:50])
    assert np.array_equal(array[...], model)


@layouts
@pytest.mark.parametrize("change", CHANGES)
def test_what_the_handle_itself_writes_is_seen(store, layout, change):
    array, _, model = pair(store, layout)
    for index in (0, 20, 63):
        assert array[index] == model[index]
    CHANGES[change](model)
    array[:40] = model[:40]
    assert array[63] == ours.counted((64,))[63]
    array[40:] = model[40:]
    for index in (63, 62, 17, 0, 9):
        assert array[index] == model[index], index
    array[5:60] = model[5:60] = 3
    assert np.array_equal(array[3:62], model[3:62])


# -- within one read ------------------------------------------------------------------------------


@layouts
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("who", ["the same handle", "another handle"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_shard_that_changes_between_two_requests_is_read_again(layout, change, who, at):
    # Old offsets in new bytes would give other values, or an error about a shard that is sound.
    store = CountingStore()
    array, other, model = pair(store, layout)
    old, new = model.copy(), model
    CHANGES[change](new)
    seen = []

    def before(method: str, key: str) -> None:
        if method == "get_ranges":
            seen.append(key)
            if len(seen) == at:
                (array if who == "the same handle" else other)[...] = new

    store.before = before
    found = array[40:44]
    assert np.array_equal(found, new[40:44] if len(seen) >= at else old[40:44])
    store.before = None
    other[...] = new
    assert np.array_equal(array[38:46], new[38:46])


def test_a_shard_that_keeps_changing_is_a_conflict_not_a_mixture(monkeypatch):
    monkeypatch.setattr(base, "_LONGEST", 0.001)
    store = CountingStore()
    array, other, model = pair(store, "plain")
    rounds = iter(range(1000))

    def before(method: str, key: str) -> None:
        if method == "get_ranges":
            other[...] = np.roll(model, next(rounds)) * (np.arange(64) // 2 != 3)

    store.before = before
    with pytest.raises(ConflictError, match="kept changing"):
        array[40]


def test_another_process_writes_the_shard(tmp_path):
    array, _, model = pair(LocalStore(tmp_path), "plain")
    assert array[40] == 41
    script = "import sys, zellige; zellige.open_array(sys.argv[1])[:30] = 0"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, env=environment)
    model[:30] = 0
    assert array[40] == 41
    assert array[29] == 0
    assert np.array_equal(array[25:60], model[25:60])


def test_a_file_that_is_replaced_is_noticed(tmp_path):
    array, other, model = pair(LocalStore(tmp_path), "plain")
    copy = (tmp_path / "c/0").read_bytes()
    assert array[40] == 41
    other[:30] = 0
    assert array[40] == 41
    replacement = tmp_path / "replacement"
    replacement.write_bytes(copy)
    replacement.rename(tmp_path / "c/0")
    assert array[40] == 41
    assert array[29] == 30
    assert np.array_equal(array[1:], model[1:])


# -- the parts of it ------------------------------------------------------------------------------


def test_a_source_stays_with_the_value_of_its_index():
    # Another thread may have put indexes of a newer value into the cache, of a shard that lies at the same place.
    array = zellige.create_array({}, data=np.arange(1, 9), chunks=2, shards=8, compressors=None)
    shard, store, cache = array._chunks.chain.bound[8,].shard, array.store, IndexCache()
    source = ShardSource(shard, store, "c/0", cache)
    assert source.locate([(0,), (3,)]) == [(0, 16), (48, 16)]
    array[...] = np.arange(11, 19)
    new = ShardSource(shard, store, "c/0", cache := IndexCache())
    new.locate([(0,)])
    source._cache = cache
    for read in (
        lambda: source.read([(0, 16)]),
        lambda: source.within(shard, 0, 128).locate([(0,)]),
        lambda: source.within(shard, 0, 128).read([(0, 3)]),
        lambda: source.read([(0, 3000)]),
    ):
        with pytest.raises(ChangedError):
            read()


def test_indexes_of_an_older_value_are_forgotten():
    cache = IndexCache()
    cache.keep("c/0", "old", (0, None), 1)
    cache.keep("c/0", "old", (5, 9), 2)
    assert [cache.find("c/0", place) for place in ((0, None), (5, 9), (6, 9))] == [
        ("old", 1),
        ("old", 2),
        ("old", None),
    ]
    cache.keep("c/0", "new", (5, 9), 3)
    assert [cache.find("c/0", place) for place in ((0, None), (5, 9))] == [("new", None), ("new", 3)]
    cache.keep("c/0", None, (0, None), 4)  # of a store without tags
    assert cache.find("c/0", (0, None)) == ("new", None)


def test_threads_share_the_remembered_indexes():
    cache, errors = IndexCache(), []

    def work(me: int) -> None:
        try:
            for k in range(4000):
                cache.keep(f"c/{(7 * k + 13 * me) % 200}", b"tag", (0, None), k)
                cache.find(f"c/{k % 200}", (0, None))
                if k % 3 == 0:
                    cache.drop(f"c/{k % 200}")
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []


@pytest.mark.parametrize("local", [False, True])
def test_what_was_empty_is_seen_once_another_handle_has_written_it(tmp_path, local):
    store = zellige.LocalStore(tmp_path) if local else zellige.MemoryStore()
    writer = zellige.create_array(store, shape=8, chunks=2, shards=8, dtype="int32", compressors=None)
    writer[:2] = [1, 2]
    reader = zellige.open(store, mode="r")
    assert reader[4:6].tolist() == [0, 0]  # the index is remembered, in which this chunk is empty
    writer[4:6] = [7, 8]
    assert reader[4:6].tolist() == [7, 8]
    writer[:2] = 0
    writer[4:6] = 0  # nothing is left, so the shard is deleted
    assert reader[6] == 0
    writer[6] = 9
    assert reader[6] == 9


@layouts
@pytest.mark.parametrize("size", [16, 128], ids=["smaller", "larger"])
def test_an_index_from_before_the_shard_had_another_shape_is_not_used(store, layout, size):
    array, other, model = pair(store, layout)
    assert array[:3].tolist() == model[:3].tolist()
    array.resize(0)
    array.resize(size, chunks=size)
    assert [array[0], array[size - 1]] == [0, 0]
    other.refresh()
    other[...] = model = ours.counted((size,), start=1000)
    assert array[size - 3 :].tolist() == model[-3:].tolist()
    assert array[:2].tolist() == model[:2].tolist()
