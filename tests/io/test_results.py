"""The memory of large results is used again when nobody sees it any more, and never before."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import zellige
from running import fork, run_threads
from zellige.io import results

MIB = 1 << 20

pytestmark = pytest.mark.skipif(not results._CAN_BE_KEPT, reason="this system cannot take back memory that is kept")


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    gc.collect()
    results._kept.clear()
    yield
    results._kept.clear()


def large(mib: int = 8, fill: int = 0) -> zellige.Array:
    """An array of bytes; chunk k holds k + `fill`."""
    array = zellige.create_array({}, shape=(mib, MIB), chunks=(1, MIB), dtype="uint8", compressors=None)
    array[...] = np.arange(mib, dtype="uint8")[:, None] + np.uint8(fill)
    return array


def address(values: Any) -> int:
    return int(values.__array_interface__["data"][0])


def kept() -> int:
    return sum(map(len, results._kept))


def test_a_dropped_result_gives_its_memory_to_the_next():
    array = large()
    first = array[...]
    place = address(first)
    del first
    assert kept() == 8 * MIB
    second = array[...]
    assert address(second) == place
    assert kept() == 0
    np.testing.assert_array_equal(second[:, -1], np.arange(8))
    assert second.flags.c_contiguous
    assert second.flags.writeable
    assert place % 64 == 0


def holders(values: np.ndarray) -> dict[str, Any]:
    return {
        "view": values[3:],
        "other type": values.view("int64"),
        "transposed": values.T,
        "memoryview": memoryview(values),
        "element": values[5, 7:8],
        "frombuffer": np.frombuffer(values, "uint8"),
        "subclass": values.view(np.matrix),
    }


@pytest.mark.parametrize("kind", list(holders(np.zeros((8, 8), "uint8"))))
def test_memory_that_somebody_sees_is_never_used_again(kind):
    array, other = large(), large(fill=100)
    first = array[...]
    held = holders(first)[kind]
    before = bytes(np.asarray(held).tobytes())
    del first
    gc.collect()
    assert kept() == 0
    second = other[...]
    assert not np.shares_memory(np.asarray(held), second)
    assert np.asarray(held).tobytes() == before
    del held
    gc.collect()
    assert kept() == 8 * MIB


@pytest.mark.parametrize(("mib", "used"), [(8, True), (5, True), (4, True), (9, False), (16, False)])
def test_results_of_about_that_size_use_it(mib, used):
    place = address(block := large(8)[...])
    del block
    found = large(mib, 3)[...]
    assert (address(found) == place) is used
    np.testing.assert_array_equal(found[:, 0], np.arange(mib) + 3)


def test_the_smallest_that_is_large_enough_is_used():
    results_of = {mib: large(mib)[...] for mib in (12, 8, 10)}
    places = {mib: address(values) for mib, values in results_of.items()}
    results_of.clear()
    assert address(first := large(7)[...]) == places[8]
    assert address(second := large(7)[...]) == places[10]
    assert first.shape == second.shape


def test_small_results_and_those_with_objects_stay_with_numpy():
    for values in (large(3)[...], zellige.array(np.array(["é"] * 600_000, dtype=object), dtype="string")[...]):
        assert len(values)
    del values
    assert kept() == 0


def test_only_as_much_is_kept_as_the_setting_says_and_the_oldest_goes_first():
    with zellige.config.set({"memory.keep_bytes": 20 * MIB}):
        found = [large(8)[...] for _ in range(4)]
        places = [address(values) for values in found]
        while found:
            del found[0]
            assert kept() <= 16 * MIB
        block = np.frombuffer(results._kept[0], "uint8")
        assert address(block) == places[2]
        assert len(large(21)[...]) == 21  # too large to be kept, and done by numpy
        assert kept() == 16 * MIB
    with zellige.config.set({"memory.keep_bytes": 0}):
        assert len(large(8)[...]) == 8
        assert kept() == 0


def test_an_error_gives_the_memory_back():
    array = large()
    array.store.put("c/5/0", b"too short")
    for _ in range(3):
        with pytest.raises(zellige.errors.CorruptChunkError):
            array[...]
        gc.collect()
        assert kept() == 8 * MIB


def test_without_memory_numpy_says_so(monkeypatch):
    del (first := [large()[...]])[0]
    assert kept() == 8 * MIB
    assert not first

    def none_left(*_: object, **__: object) -> object:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(results.mmap, "mmap", none_left)
    found = large(16, 1)[...]
    np.testing.assert_array_equal(found[:, 0], np.arange(16) + 1)
    assert kept() == 0
    with zellige.config.set({"memory.keep_bytes": 1 << 80}), pytest.raises(MemoryError):
        results.empty((1 << 59,), np.dtype("uint8"))


def test_systems_that_cannot_take_it_back_keep_none(monkeypatch):
    monkeypatch.setattr(results, "_CAN_BE_KEPT", False)
    assert large()[3, 0] == 3
    assert large()[...][7, -1] == 7
    assert kept() == 0


def test_a_read_into_kept_memory_takes_no_page_faults():
    import resource  # not on systems that the mark above skips

    array = large(32)
    for _ in range(3):
        assert array[...][1, 1] == 1
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        assert array[...][1, 1] == 1
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    with zellige.config.set({"memory.keep_bytes": 0}):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            assert array[...][1, 1] == 1
    assert faults < resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_held_results_never_change_whatever_is_read_and_dropped_by_many_threads():
    arrays = [large(mib, 10 * mib) for mib in (4, 5, 6, 9)]

    def read_and_drop(seed: int) -> None:
        chosen, held = random.Random(seed), []
        for _ in range(60):
            array = chosen.choice(arrays)
            begin = chosen.randrange(array.shape[0] - 3)
            held.append((array.shape[0], begin, array[begin:] if chosen.random() < 0.5 else array[...][begin:]))
            while len(held) > chosen.randrange(5):
                mib, first, values = held.pop(chosen.randrange(len(held)))
                for column in (0, MIB - 1):
                    np.testing.assert_array_equal(values[:, column], np.arange(first, mib) + 10 * mib)
                values[...] = 255  # whoever holds a result may change it

    run_threads(4, read_and_drop)
    assert kept() <= zellige.config["memory.keep_bytes"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_memory_of_its_own():
    array = large()
    held, dropped = array[...], array[...]
    del dropped

    def child() -> bool:
        mine = array[...]
        mine[...] = 77
        del mine
        return int(array[...][2, 2]) == 2

    assert fork(child)()
    np.testing.assert_array_equal(held[:, 9], np.arange(8))
    np.testing.assert_array_equal(array[...][:, 9], np.arange(8))
