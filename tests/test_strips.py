"""Large uncompressed chunks side by side are read in strips across all of them, and nobody can tell but by counting."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import strategies as ours
import zellige
from zellige import engine, gathering, kernel, plans
from zellige.errors import ChunkNotFoundError, CorruptChunkError
from zellige.stores import MemoryStore, pieces

SHAPE, CHUNKS = (12, 3, 20), ([5, 7], 3, [3, 6, 4, 7])
ONE = (1, 0, 2)
PLACE = np.s_[5:12, :, 9:13]
"""Of that one."""


@pytest.fixture(autouse=True)
def strips(monkeypatch):
    """Every chunk counts as large, a strip is of two planes, and one thread does it all."""
    monkeypatch.setattr(kernel, "native", None)
    monkeypatch.setattr(plans, "_FEW", 1 << 62)
    monkeypatch.setattr(plans, "_LARGE", 0)
    monkeypatch.setattr(engine, "_SHARES", 1)
    monkeypatch.setattr(gathering, "_SLAB", 2 * 3 * 20 * 2)
    with zellige.config.set({"threading.max_workers": 1}):
        yield


@pytest.fixture
def calls(monkeypatch) -> list[Any]:
    """What is asked of the system while strips are read: files that are opened, and how much is read at once."""
    found: list[Any] = []

    class Counted:
        def open(self, path: str, flags: int) -> int:
            found.append(os.path.relpath(path, path.partition("/c/")[0]))
            return os.open(path, flags)

        def preadv(self, fd: int, into: Any, start: int) -> int:
            found.append(os.preadv(fd, into, start))
            return found[-1]

        close = staticmethod(os.close)

    monkeypatch.setattr(pieces, "os", Counted())
    return found


def filled(store: Any, **options: Any) -> tuple[zellige.Array, np.ndarray]:
    model = ours.counted(SHAPE, "int16")
    options = {"chunks": CHUNKS, "compressors": None, **options}
    return zellige.create_array(store, data=model, **options), model


def test_a_strip_has_some_planes_of_every_chunk(tmp_path, calls):
    array, model = filled(tmp_path)
    assert np.array_equal(array[...], model)
    planes = [3 * width * 2 for width in CHUNKS[2]]
    names = [[f"c/{i}/0/{k}" for k in range(4)] for i in range(2)]
    opening = [[call for name, plane in zip(row, planes, strict=True) for call in (name, 2 * plane)] for row in names]
    full, rest = [2 * plane for plane in planes], planes
    assert calls == [*opening[0], *full, *rest, *opening[1], *full, *full, *rest]


@pytest.mark.parametrize(
    ("index", "count"),
    [
        (np.s_[:5], 4),
        (np.s_[5:, :, 3:13], 2),
        (np.s_[:, :, 1:], 6),  # of the first one only a part
        (np.s_[1:], 4),
        (np.s_[:, 1:], 0),
        (np.s_[:, :, :3], 0),
        (np.s_[::2], 0),
        (np.s_[[1, 2, 6]], 0),
    ],
)
def test_only_whole_chunks_side_by_side_are_read_in_strips(tmp_path, calls, index, count):
    array, model = filled(tmp_path)
    assert np.array_equal(array[index], model[index])
    assert len([call for call in calls if isinstance(call, str)]) == count


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": "zstd"},
        {"filters": [{"name": "transpose", "configuration": {"order": [2, 0, 1]}}]},
        {"serializer": {"name": "bytes", "configuration": {"endian": "big"}}},
        {"config": {"order": "F"}},
        {"chunks": (5, 3, 5), "shards": (10, 3, 10)},
    ],
    ids=["zstd", "transposed", "big-endian", "F order", "shards"],
)
def test_others_are_not(tmp_path, calls, options):
    array, model = filled(tmp_path, **options)
    assert np.array_equal(array[...], model)
    assert calls == []


def test_strips_that_would_not_stay_in_the_cache_are_not_made(tmp_path, calls, monkeypatch):
    array, model = filled(tmp_path)
    monkeypatch.setattr(gathering, "_SLAB", 3 * 20 * 2 - 1)  # less than a plane
    assert np.array_equal(array[...], model)
    assert calls == []


def test_no_strips_from_a_store_that_has_values_only_as_a_whole(calls):
    array, model = filled(MemoryStore())
    assert np.array_equal(array[...], model)
    assert calls == []


@pytest.mark.parametrize("chunks", [(5, 3, 6), (5, 2, [7, 7, 7]), ([5, 8], 3, 14)])
def test_chunks_may_reach_beyond_the_end(tmp_path, calls, chunks):
    array, model = filled(tmp_path, chunks=chunks)
    assert np.array_equal(array[...], model)
    assert len(set(calls) - set(range(1000))) == array.nchunks
    assert np.array_equal(array[:, ::-1], model[:, ::-1])


def test_results_of_another_type(tmp_path, calls):
    array, model = filled(tmp_path)
    out = np.zeros(SHAPE, "float64")
    assert np.array_equal(array.get_basic_selection(..., out=out), model)


@pytest.mark.parametrize("chunks", [CHUNKS, (5, 3, 6)])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_missing_chunk_is_fill_or_an_error(tmp_path, chunks, workers):
    array, model = filled(tmp_path, chunks=chunks, fill_value=-7)
    part = array.grid[ONE]
    array.store.delete("c/1/0/2")
    model[part.slices] = -7
    with zellige.config.set({"threading.max_workers": workers}):
        assert np.array_equal(array[...], model)
        strict = array.with_config({"read_missing_chunks": False})
        with pytest.raises(ChunkNotFoundError) as found:
            strict[...]
    assert (found.value.coords, found.value.key) == (ONE, "c/1/0/2")


@pytest.mark.parametrize(
    "change",
    [lambda raw: raw[:-1], lambda raw: raw + b"x", lambda raw: b"", lambda raw: raw[:50]],
    ids=["shorter", "longer", "empty", "much shorter"],
)
def test_a_damaged_chunk_is_named_and_the_others_stay_readable(tmp_path, change):
    array, model = filled(tmp_path)
    array.store.put("c/1/0/2", change(array.store.get("c/1/0/2")))
    with pytest.raises(CorruptChunkError) as found:
        array[...]
    assert (found.value.coords, found.value.key) == (ONE, "c/1/0/2")
    assert np.array_equal(array[:5], model[:5])
    array[PLACE] = model[PLACE]
    assert np.array_equal(array[...], model)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    array, _ = filled(tmp_path)
    array.store.delete("c/1/0/2")
    (tmp_path / "c/1/0/2").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="c/1/0/2"):
        array[...]
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_too_many_files_are_open_chunks_are_read_one_by_one(tmp_path, monkeypatch):
    array, model = filled(tmp_path)
    real, failed = os.open, []

    class Full:
        preadv, close = staticmethod(os.preadv), staticmethod(os.close)

        def open(self, path: str, flags: int) -> int:
            if path.endswith("2"):
                failed.append(path)
                raise OSError(24, "Too many open files", path)
            return real(path, flags)

    monkeypatch.setattr(pieces, "os", Full())
    assert np.array_equal(array[...], model)
    assert len(failed) == 2


def test_a_chunk_that_is_replaced_meanwhile_is_read_as_it_was_or_as_it_is(tmp_path, monkeypatch):
    array, model = filled(tmp_path)
    seen = []

    class Replacing:
        open, close = staticmethod(os.open), staticmethod(os.close)

        def preadv(self, fd: int, into: Any, start: int) -> int:
            seen.append(start)
            if len(seen) == 2:  # the first chunk of the first row is begun, the others are not
                for k, width in enumerate(CHUNKS[2]):
                    array.store.put(f"c/0/0/{k}", bytes(5 * 3 * width * 2))
            return os.preadv(fd, into, start)

    monkeypatch.setattr(pieces, "os", Replacing())
    found = array[:5]
    assert np.array_equal(found[:, :, :9], model[:5, :, :9])  # both were open already
    assert not found[:, :, 9:].any()
