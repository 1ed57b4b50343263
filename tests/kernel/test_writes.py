"""Writing by the kernel: the same values and keys as the plain path and numpy, on files and on other stores."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kernel import CHAINS, big, stored

import strategies as ours
import zellige
from running import fork, run_threads
from zellige import kernel
from zellige.io import write
from zellige.nodes import resize
from zellige.stores import LocalStore, MemoryStore, threads
from zellige.stores.locks import Apart
from zellige.stores.wrappers import LatencyStore

if kernel.native is None:
    pytest.skip("the kernel was not built, or is off: there is no C compiler here", allow_module_level=True)

STORES = {
    "files": LocalStore,
    "memory": lambda _: MemoryStore(),
    "far": lambda _: LatencyStore(MemoryStore(), 0, concurrency=4),
}


@contextmanager
def plain() -> Iterator[None]:
    """Without the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "native", None)
        yield


@pytest.fixture
def left(monkeypatch) -> list[Any]:
    """The chunks that the plain path writes from now on."""
    seen: list[Any] = []
    real = write.write_chunk

    def watched(chunks: Any, value: Any, to_end: bool, copy: Any) -> None:
        seen.append(copy.coords)
        real(chunks, value, to_end, copy)

    monkeypatch.setattr(write, "write_chunk", watched)
    return seen


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("dtype", ["int16", ">f8", "bool", "complex64", "datetime64[s]", "S3"])
@pytest.mark.parametrize("chain", CHAINS)
def test_the_kernel_writes_every_chain_and_type_without_help(tmp_path, left, chain, dtype, kind):
    values = (np.arange(70 * 33).reshape(70, 33) % 251 + 1).astype(dtype)
    made = {"chunks": [[1, 40, 29], [8, 8, 17]], "compressors": CHAINS[chain], "serializer": big(dtype)}
    array = zellige.create_array(STORES[kind](tmp_path / "a"), shape=values.shape, dtype=dtype, **made)
    array[...] = values.astype(array.dtype)
    assert left == []
    with plain():
        np.testing.assert_array_equal(zellige.open_array(array.store)[...], values)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("layout", [{"chunks": (10, 20)}, {"chunks": (10, 20), "shards": (50, 40)}])
def test_values_of_another_type_are_converted_for_the_kernel_in_batches(tmp_path, left, monkeypatch, layout, kind):
    monkeypatch.setattr(write, "BATCH", 4 * 10 * 20 * 9)
    asked: list[int] = []
    real = write._work
    monkeypatch.setattr(write, "_work", lambda *given: (found := real(*given), asked.append(found[1].nbytes))[0])
    values = np.random.default_rng(4).normal(size=(200, 200))
    array = zellige.create_array(STORES[kind](tmp_path / "a"), shape=values.shape, dtype="f4", **layout)
    array[...] = values
    np.testing.assert_array_equal(array[...], values.astype("f4"))
    array[50:100, 40:160] = values[50:100, 40:160].astype("f2")
    np.testing.assert_array_equal(array[50:100, 40:160], values[50:100, 40:160].astype("f2"))
    largest = 50 * 40 if "shards" in layout else 10 * 20
    assert max(asked) <= 4 * max(10 * 20 * 9, largest * threads.workers())
    array[...] = 7
    assert (array[...] == 7).all()
    assert left == []


@pytest.mark.parametrize(("name", "levels"), [("gzip", range(10)), ("numcodecs.zlib", range(-1, 10))])
def test_the_kernel_writes_every_level_of_deflate_without_help(tmp_path, left, name, levels):
    values = np.random.default_rng(3).normal(size=(80, 50)).astype("f4")
    sizes = {}
    for level in levels:
        made = {"chunks": (40, 50), "compressors": {"name": name, "configuration": {"level": level}}}
        array = zellige.create_array(tmp_path / str(level), data=values, **made)
        with plain():
            np.testing.assert_array_equal(zellige.open_array(array.store)[...], values)
        sizes[level] = sum(path.stat().st_size for path in (tmp_path / str(level) / "c").rglob("*") if path.is_file())
    assert left == []
    assert sizes[0] > values.nbytes > sizes[6] >= sizes[9]


@given(stored(), st.sampled_from([*STORES]), st.data())
@ours.examples(0.05)
def test_kernel_plain_path_and_numpy_write_the_same(case, kind, data):
    values, made = case
    index = data.draw(ours.mixed(values.shape))
    with tempfile.TemporaryDirectory() as folder:
        try:
            one, other = (zellige.create_array(STORES[kind](Path(folder, name)), data=values, **made) for name in "ab")
        except (ValueError, NotImplementedError):  # a codec that does not take this type
            return
        model = values.copy()
        try:
            new = np.roll(model[index], 1)
            wide = {"i": "i8", "u": "u8", "f": "f8"}.get(model.dtype.kind)
            if wide is not None and data.draw(st.booleans()):
                new = np.asarray(new).astype(wide)
            one[index] = new
        except IndexError:  # numpy lets some pass where nothing is picked
            return
        with plain():
            other[index] = new
        model[index] = new
        assert one[...].tobytes() == other[...].tobytes() == model.astype(one.dtype).tobytes()
        assert sorted(one.store.list("c/")) == sorted(other.store.list("c/"))


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("sharded", [False, True])
def test_chunks_of_fill_values_are_not_stored_and_go_if_they_were(tmp_path, kind, sharded):
    layout = {"chunks": (2, 5), "shards": (4, 5)} if sharded else {"chunks": (4, 5)}
    array = zellige.create_array(STORES[kind](tmp_path / "a"), shape=(8, 20), dtype="i4", fill_value=3, **layout)
    value = np.arange(100, 260).reshape(8, 20)
    array[...] = value
    assert len([*array.store.list("c/")]) == 8
    value[:4, 5:15] = 3
    array[...] = value
    assert sorted(array.store.list("c/")) == ["c/0/0", "c/0/3", *(f"c/1/{k}" for k in range(4))]
    assert np.array_equal(array[...], value)
    array.with_config({"write_empty_chunks": True})[...] = 3
    assert len([*array.store.list("c/")]) == 8
    array[...] = 3
    assert [*array.store.list("c/")] == []


@pytest.mark.parametrize("compressors", [None, "zstd"])
def test_a_chunk_that_cannot_be_written_is_named_with_those_that_were(tmp_path, compressors):
    array = zellige.create_array(tmp_path / "a", shape=(60,), chunks=5, dtype="i4", compressors=compressors)
    (tmp_path / "a" / "c" / "7" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="'c/7'") as caught:
        array[...] = np.arange(1, 61, dtype="i4")
    error: Any = caught.value
    assert error.errno == errno.EISDIR
    assert error.failed == [(7,)]
    assert sorted([*error.written, (7,)]) == [(k,) for k in range(12)]
    assert error.not_tried == []
    assert not [name for name in os.listdir(tmp_path / "a" / "c") if name.startswith(".")]


def test_an_interrupted_write_says_what_was_written(tmp_path, monkeypatch):
    array = zellige.create_array(tmp_path / "a", shape=(60,), chunks=5, dtype="i4")

    class Interrupted:
        def write_files(self, *given: Any) -> int:
            statuses = given[8]
            statuses[:4] = bytes(4)
            raise KeyboardInterrupt

    monkeypatch.setattr(kernel, "native", Interrupted())
    assert array._chunks.files is not None
    with pytest.raises(KeyboardInterrupt) as caught:
        array[...] = 1
    error: Any = caught.value
    assert (error.written, error.failed) == ([(k,) for k in range(4)], [])
    assert error.not_tried == [(k,) for k in range(4, 12)]


# -- whole chunks and parts of them, by threads ----------------------------------------------------------


def test_whole_chunks_wait_for_a_thread_that_changes_a_part(tmp_path, monkeypatch):
    array = zellige.create_array(tmp_path / "a", data=np.arange(1, 41), chunks=10)
    whole = threading.Thread(target=array.__setitem__, args=(..., -np.arange(1, 41)))
    real = write._changed

    def changed(*given: Any) -> Any:
        result = real(*given)  # about to store what was read before
        whole.start()
        whole.join(0.3)
        assert whole.is_alive(), "the kernel has written meanwhile, and would be overwritten"
        return result

    monkeypatch.setattr(write, "_changed", changed)
    array[3] = 99
    whole.join()
    assert np.array_equal(array[...], -np.arange(1, 41))


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("compressors", [None, "zstd"])
def test_threads_that_write_the_same_and_other_chunks_lose_nothing(tmp_path, kind, compressors):
    model = ours.counted((12, 300))
    array = zellige.create_array(STORES[kind](tmp_path / "a"), data=model, chunks=(3, 7), compressors=compressors)

    def work(number: int) -> None:
        for _ in range(5):
            if number < 2:  # whole chunks, the same
                array[:3, :294] = model[:3, :294] * 2
            else:  # parts of the same chunks
                array[number + 1, 1:-1] = model[number + 1, 1:-1] * 2

    run_threads(5, work)
    model[:3, :294] *= 2
    model[3:6, 1:-1] *= 2
    assert np.array_equal(array[...], model)


def test_work_of_one_kind_does_not_wait_and_that_of_the_other_does():
    inside, leave = threading.Barrier(3), threading.Event()
    order: list[str] = []

    def same(_: int) -> None:
        mine = Apart("whole")
        with mine:
            mine.wait("here")
            inside.wait(20)  # both are inside, and the main thread knows
            leave.wait(20)
            order.append("whole")

    def other() -> None:
        mine = Apart("parts")
        with mine:
            mine.wait("here")
            order.append("parts")

    workers = [threading.Thread(target=same, args=(k,)) for k in range(2)]
    for worker in workers:
        worker.start()
    inside.wait(20)
    late = threading.Thread(target=other)
    late.start()
    elsewhere = Apart("parts")
    with elsewhere:
        elsewhere.wait("there")  # at another place nobody is in the way
    leave.set()
    for worker in (*workers, late):
        worker.join(20)
    assert order == ["whole", "whole", "parts"]


def test_a_forked_child_waits_for_nobody_of_its_parent():
    mine = Apart("whole")

    def work() -> bool:
        other = Apart("parts")
        with other:
            other.wait("here")
        return True

    with mine:
        mine.wait("here")
        assert fork(work)()


def test_whole_chunks_wait_for_a_resize_that_clears_one(tmp_path, monkeypatch):
    array = zellige.create_array(tmp_path / "a", data=np.arange(1, 41), chunks=10)
    other = zellige.open_array(tmp_path / "a", mode="r+")
    whole = threading.Thread(target=other.__setitem__, args=(slice(0, 40), -np.arange(1, 41)))
    real = resize.load

    def load(*given: Any) -> Any:
        found = real(*given)  # about to clear what was read before
        if not whole.ident:
            whole.start()
            whole.join(0.3)
            assert whole.is_alive(), "the kernel has written meanwhile, and would be overwritten"
        return found

    monkeypatch.setattr(resize, "load", load)
    array.resize((35,))
    whole.join()
    assert whole.ident
    assert np.array_equal(array[...], -np.arange(1, 36))
