"""Appends that others write: readers see the old array or the whole new one, and only one appender wins."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

import zellige
from counting_store import WRITES, CountingStore, contents
from zellige.errors import ConflictError
from zellige.nodes.resize import PendingAppend
from zellige.storage import MemoryStore, ZipStore


def months(store=None) -> zellige.Array:
    return zellige.create_array(store, data=np.arange(59), chunks=[[31, 28]], overwrite=store is not None)


def test_nobody_sees_it_before_the_commit():
    array = months()
    pending = array.start_append(61, chunks=[31, 30])
    pending.array[59:90] = 1
    pending.array[90:] = 2
    assert array.shape == zellige.open_array(array.store).shape == (59,)
    assert pending.commit() == (120,)
    fresh = zellige.open_array(array.store)
    assert fresh.write_chunk_sizes == array.write_chunk_sizes == ((31, 28, 31, 30),)
    assert np.array_equal(fresh[:], [*range(59), *[1] * 31, *[2] * 30])


def test_only_new_chunks_are_written():
    store = CountingStore()
    array = months(store)
    store.reset()
    pending = array.start_append(31, chunks=[31])
    pending.array[59:] = 1
    pending.commit()
    assert [key for key in store.keys(*WRITES) if key.startswith("c/")] == ["c/2"]


def test_an_abort_leaves_nothing():
    array = months()
    before = contents(array.store)
    pending = array.start_append(31, chunks=[31])
    pending.array[59:] = 1
    pending.abort()
    assert contents(array.store) == before
    with pytest.raises(ConflictError, match="write it again"):
        pending.commit()


@pytest.mark.parametrize("kind", ["memory", "transaction"])
def test_an_abort_after_the_commit_changes_nothing(kind, tmp_path):
    array = months(MemoryStore() if kind == "memory" else ZipStore(tmp_path / "a.zip", mode="w"))
    pending = array.start_append(31)
    pending.array[59:] = 1
    pending.commit()
    pending.abort()
    assert array.shape == (90,)
    assert array[58:].tolist() == [58, *[1] * 31]
    array.store.close()


RIVALS = {
    "append": lambda rival: rival.append([7, 7], chunks=[2]),
    "resize": lambda rival: rival.resize(61, chunks=[[2]]),
    "another start": lambda rival: rival.start_append(2, chunks=[2]),
}


@pytest.mark.parametrize("rival", RIVALS)
def test_a_second_writer_is_refused_before_it_writes_anything(rival):
    array = months()
    pending = array.start_append(31, chunks=[31])
    pending.array[59:] = 1
    before = contents(array.store)
    with pytest.raises(ConflictError, match=r"shape of array '/'.*begun by this thread"):
        RIVALS[rival](zellige.open_array(array.store))
    assert contents(array.store) == before
    pending.commit()
    assert zellige.open_array(array.store)[59:].tolist() == [1] * 31


@pytest.mark.parametrize("rival", RIVALS)
def test_a_second_writer_of_another_thread_waits(rival):
    array = months()
    pending = array.start_append(31, chunks=[31])
    pending.array[59:] = 1
    other = zellige.open_array(array.store)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(RIVALS[rival](other)))
    thread.start()
    pending.commit()
    thread.join(60)
    assert done
    assert zellige.open_array(array.store)[59:61].tolist() == [1, 1]


@pytest.mark.parametrize("rival", RIVALS)
def test_a_writer_that_is_given_up_or_forgotten_is_in_nobodys_way(rival):
    for give_up in (True, False):
        array = months()
        pending = array.start_append(31, chunks=[31])
        pending.array[59:] = 1
        if give_up:
            pending.abort()
        del pending
        found = RIVALS[rival](zellige.open_array(array.store))
        if isinstance(found, PendingAppend):
            found.array[59:] = 7
            found.commit()
        expected = {"append": [7, 7], "resize": [0, 0], "another start": [7, 7]}[rival]
        assert zellige.open_array(array.store)[59:].tolist() == expected


def test_what_a_killed_writer_left_is_removed_by_the_next_one():
    array = months()
    array.start_append(31, chunks=[31]).array[59:] = 1
    later = zellige.open_array(array.store)
    later.resize(90, chunks=[[31]])
    assert not later[59:].any()


def test_it_can_be_committed_in_another_process(tmp_path):
    array = months(tmp_path)
    pending = pickle.loads(pickle.dumps(array.start_append(2, chunks=[2])))
    pending.array[59:] = [5, 6]
    pending.commit()
    array.refresh()
    assert array[58:].tolist() == [58, 5, 6]


def test_a_regular_chunk_that_is_half_full_is_filled():
    array = zellige.create_array(data=np.arange(25), chunks=10)
    pending = array.start_append(10)
    pending.array[25:] = -1
    assert array[...].tolist() == list(range(25))
    pending.commit()
    assert array[...].tolist() == [*range(25), *[-1] * 10]


def test_what_cannot_be_is_refused():
    array = months()
    with pytest.raises(ValueError, match="negative"):
        array.start_append(-1)
    with pytest.raises(IndexError, match="axis 1"):
        array.start_append(1, axis=1)
