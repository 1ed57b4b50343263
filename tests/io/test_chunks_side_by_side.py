"""Uncompressed chunks of many widths side by side, with the kernel and without it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import strategies as ours
import zellige
from zellige import kernel
from zellige.errors import ChunkNotFoundError, CorruptChunkError

SHAPE, CHUNKS = (12, 3, 20), ([5, 7], 3, [3, 6, 4, 7])
ONE = (1, 0, 2)
PLACE = np.s_[5:12, :, 9:13]
"""Of that one."""


@pytest.fixture(params=["kernel", "python"], autouse=True)
def _path(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(kernel, "native", None)


def filled(store: Any, **options: Any) -> tuple[zellige.Array, np.ndarray]:
    model = ours.counted(SHAPE, "int16")
    options = {"chunks": CHUNKS, "compressors": None, **options}
    return zellige.create_array(store, data=model, **options), model


@pytest.mark.parametrize(
    "index",
    [
        np.s_[:5],
        np.s_[5:, :, 3:13],
        np.s_[:, :, 1:],  # of the first one only a part
        np.s_[1:],
        np.s_[:, 1:],
        np.s_[:, :, :3],
        np.s_[::2],
        np.s_[[1, 2, 6]],
    ],
)
def test_any_part_of_them_is_read(tmp_path, index):
    array, model = filled(tmp_path)
    assert np.array_equal(array[index], model[index])


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
def test_chunks_of_other_chains(tmp_path, options):
    array, model = filled(tmp_path, **options)
    assert np.array_equal(array[...], model)


@pytest.mark.parametrize("chunks", [(5, 3, 6), (5, 2, [7, 7, 7]), ([5, 8], 3, 14)])
def test_chunks_may_reach_beyond_the_end(tmp_path, chunks):
    array, model = filled(tmp_path, chunks=chunks)
    assert np.array_equal(array[...], model)
    assert np.array_equal(array[:, ::-1], model[:, ::-1])


def test_results_of_another_type(tmp_path):
    array, model = filled(tmp_path)
    out = np.zeros(SHAPE, "float64")
    assert np.array_equal(array.get_basic_selection(..., out=out), model)


@pytest.mark.parametrize("chunks", [CHUNKS, (5, 3, 6)])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_missing_chunk_is_fill_or_an_error(tmp_path, chunks, workers):
    array, model = filled(tmp_path, chunks=chunks, fill_value=-7)
    part = array.grid[ONE]
    array.store.delete(["c/1/0/2"])
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
    array.store.delete(["c/1/0/2"])
    (tmp_path / "c/1/0/2").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="c/1/0/2"):
        array[...]
    assert len(os.listdir("/proc/self/fd")) == before
