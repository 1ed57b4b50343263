"""An error that stops a write of many chunks says which were written, which failed, and which were not tried."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import CountingStore
from zellige.io import write
from zellige.stores import threads

LAYOUTS: dict[str, tuple[tuple[int, ...], Any]] = {
    "one after the other": ((60,), 5),
    "in rows": ((4, 60), (4, 5)),
    "in uneven rows": ((4, 60), (4, [4, 6] * 6)),
}


def failing(
    shape: tuple[int, ...], chunks: Any, *keys: str, concurrency: int | None = None
) -> tuple[zellige.Array, CountingStore]:
    """An array whose store has no room for some keys."""

    def refuse(method: str, key: str) -> None:
        if method == "put" and key in keys:
            raise OSError(errno.ENOSPC, "no space left", key)

    store = CountingStore()
    store.traits = replace(store.traits, concurrency=concurrency)
    array = zellige.create_array(store, shape=shape, chunks=chunks, dtype="uint8", compressors=None)
    store.before = refuse
    return array, store.reset()


@pytest.fixture
def several(monkeypatch):
    monkeypatch.setattr(threads, "_SMALL", 1)
    with zellige.config.set({"threading.max_workers": 4}):
        yield


@pytest.mark.parametrize(("shape", "chunks"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("number", [0, 4, 11])
def test_the_error_says_what_was_done(shape, chunks, number):
    all_coords = [(0,) * (len(shape) - 1) + (k,) for k in range(12)]
    key = "c/" + "/".join(map(str, all_coords[number]))
    array, store = failing(shape, chunks, key)
    with pytest.raises(OSError, match="no space left") as caught:
        array[...] = 1
    error: Any = caught.value
    assert error.errno == errno.ENOSPC
    assert error.failed == [all_coords[number]]
    assert error.written == all_coords[:number]
    assert error.not_tried == all_coords[number + 1 :]
    assert f"failed: 1 chunk {all_coords[number]}" in error.__notes__[0]
    assert sorted(store.inner.list("c/")) == sorted("c/" + "/".join(map(str, c)) for c in error.written)


@pytest.mark.parametrize(("shape", "chunks"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.usefixtures("several")
def test_every_chunk_is_in_one_list_whatever_the_threads_did(shape, chunks):
    lead = (0,) * (len(shape) - 1)
    keys = ["c/" + "/".join(map(str, (*lead, k))) for k in (1, 5, 10)]
    array, store = failing(shape, chunks, *keys, concurrency=4)
    with pytest.raises(OSError, match="no space left") as caught:
        array[...] = np.arange(1, np.prod(shape) + 1).reshape(shape) % 250 + 1
    error: Any = caught.value
    assert 1 <= len(error.failed) <= 3
    assert sorted([*error.written, *error.failed, *error.not_tried]) == [(*lead, k) for k in range(12)]
    assert sorted(store.inner.list("c/")) == sorted("c/" + "/".join(map(str, c)) for c in error.written)


def test_of_very_many_chunks_only_those_that_failed_are_listed(monkeypatch):
    monkeypatch.setattr(write, "_LISTED", 5)
    array, _ = failing((60,), 5, "c/7")
    with pytest.raises(OSError, match="no space left") as caught:
        array[...] = 1
    error: Any = caught.value
    assert (error.written, error.failed, error.not_tried) == (None, [(7,)], None)
    assert error.__notes__ == ["of 12 chunks, failed: 1 chunk (7,)"]


def test_an_error_of_one_chunk_needs_no_lists():
    array, _ = failing((5,), 5, "c/0")
    with pytest.raises(OSError, match="no space left") as caught:
        array[...] = 1
    assert not hasattr(caught.value, "written")
