"""Rechunking: equal values from any grid to any grid, few decodes, bounded memory, and resuming after kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zellige
from counting_store import CountingStore
from zellige.errors import BroadcastError, ConflictError, ContainsArrayError
from zellige.nodes.node import UNFINISHED
from zellige.nodes.remove import WORK
from zellige.tools import rechunk as plans
from zellige.tools.rechunk import bytes_of


def sample(shape, dtype="int32"):
    return (np.arange(prod(shape)) * 7 + 1).astype(dtype).reshape(shape)


def edges(length):
    """Sizes that add up to a length."""
    if not length:
        return st.just([])
    cuts = st.sets(st.integers(1, length - 1), max_size=6) if length > 1 else st.just(set())
    return cuts.map(lambda found: [int(n) for n in np.diff([0, *sorted(found), length])])


# -- boxes ----------------------------------------------------------------------------------------


@st.composite
def two_cuts(draw):
    shape = draw(st.lists(st.integers(1, 40), max_size=3))
    return [plans.Boxes(tuple(plans.ends_of(draw(edges(n))) for n in shape)) for _ in range(2)], draw(
        st.integers(1, 500)
    )


@settings(deadline=None)
@given(two_cuts())
def test_boxes_hold_whole_pieces_and_fit_unless_one_piece_does_not(given_):
    (pieces, other), most = given_
    boxes = plans.group_chunks(pieces, other, most)
    for mine, theirs in zip(boxes.ends, pieces.ends, strict=True):
        assert set(mine.tolist()) <= set(theirs.tolist())
        assert mine[-1] == theirs[-1]
    assert boxes.largest <= max(most, pieces.largest)
    assert sum(prod(part.stop - part.start for part in box) for box in boxes) == prod(int(e[-1]) for e in pieces.ends)


@settings(deadline=None)
@given(two_cuts())
def test_pieces_are_the_overlaps(given_):
    (a, b), _ = given_
    met = sum(
        all(x.start < y.stop and y.start < x.stop for x, y in zip(mine, theirs, strict=True))
        for mine in a
        for theirs in b
    )
    assert met == len(a.split_by(b))


def test_boxes_end_where_both_grids_do():
    source, target = (plans.Boxes((plans.ends_of([size] * (60 // size)),)) for size in (15, 10))
    assert plans.group_chunks(target, source, 40).ends[0].tolist() == [30, 60]


def test_rows_to_columns_go_through_an_intermediate_array_and_others_do_not():
    rows, columns = (plans.Boxes((plans.ends_of(a), plans.ends_of(b))) for a, b in (([1] * 64, [64]), ([64], [1] * 64)))
    plan = plans.make_plan(rows, columns, 64 * 4)
    assert plan.middle is not None
    assert plan.middle.shape == (16, 16)
    assert plans.make_plan(rows, columns, 64 * 32).middle is None
    assert plans.make_plan(rows, rows, 64).middle is None


@pytest.mark.parametrize(
    ("text", "count"), [(7, 7), ("7", 7), ("2 kB", 2000), ("2KiB", 2048), ("1.5 MB", 1_500_000), ("3g", 3 << 30)]
)
def test_sizes_in_words(text, count):
    assert bytes_of(text) == count


@pytest.mark.parametrize("text", ["", "many", "-1", 0, "1 XB", True, 1j])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="number of bytes"):
        bytes_of(text)


# -- values ---------------------------------------------------------------------------------------


@st.composite
def jobs(draw):
    shape = tuple(draw(st.lists(st.integers(0, 14), max_size=3)))
    old, new = ([draw(edges(n)) or 1 for n in shape] for _ in range(2))
    return shape, old, new, draw(st.sampled_from(["int32", "float64", "U3", "bool"])), draw(st.integers(1, 4))


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_any_grid_to_any_grid(job):
    shape, old, new, dtype, room = job
    values = sample(shape, dtype)
    source = zellige.create_array(data=values, chunks=old, attributes={"unit": "K"})
    least = 64
    while True:
        try:
            target = zellige.rechunk(source, zellige.MemoryStore(), chunks=new, max_memory=least * room)
            break
        except ValueError as error:
            least = int(str(error).rpartition(" ")[2].replace(",", ""))
    np.testing.assert_array_equal(target[...], values)
    assert target.attrs == {"unit": "K"}
    assert target.dtype == source.dtype
    assert not [key for key in target.store.list() if WORK in key]


@pytest.mark.parametrize(
    "options",
    [{"chunks": (8, 8), "shards": (16, 32)}, {"chunks": ([20, 12], 32), "compressors": None}, {"chunks": (32, 1)}, {}],
)
@pytest.mark.parametrize(
    "made", [{"chunks": (4, 32)}, {"chunks": (2, 4), "shards": (8, 16)}, {"chunks": (32, 5), "zarr_format": 2}]
)
def test_shards_formats_and_codecs(made, options):
    values = sample((32, 32))
    values[:8] = 0  # chunks of fill values, which are not stored
    form = {"zarr_format": 3} if made.get("zarr_format") == 2 and options else {}
    source = zellige.create_array(data=values, **made)
    target = zellige.rechunk(source, zellige.MemoryStore(), max_memory=16 << 10, **options, **form)
    np.testing.assert_array_equal(target[...], values)
    assert target.shards == options.get("shards", made.get("shards") if not options else None)


def test_none_is_an_option_like_others():
    source = zellige.create_array(data=sample((6,)), zarr_format=2, fill_value=0)
    made = zellige.rechunk(source, zellige.MemoryStore(), chunks=3, fill_value=None, compressors=None)
    assert (made.fill_value, made.compressors) == (None, ())
    kept = zellige.rechunk(source, zellige.MemoryStore(), chunks=None, shards=None)
    assert (kept.fill_value, kept.compressors, kept.chunks) == (0, source.compressors, source.chunks)


def test_an_array_that_is_there_is_filled():
    target = zellige.full((6, 6), fill_value=9, dtype="int32", chunks=([1, 5], 2))
    target[...] = 1
    assert zellige.rechunk(zellige.array(np.zeros((6, 6), "int32")), target) is target
    assert not target[...].any()


def test_strings_of_any_length():
    values = np.array([["a", "bb" * 50], ["", "ü"]], dtype=np.dtypes.StringDType())
    source = zellige.create_array(data=values, chunks=(1, 2))
    assert zellige.rechunk(source, zellige.MemoryStore(), chunks=(2, 1))[...].tolist() == values.tolist()


# -- work -----------------------------------------------------------------------------------------


def counted(values, old, new, memory):
    """How often each chunk of the source is read, and each key of the target written."""
    here, there = CountingStore(), CountingStore()
    source = zellige.create_array(here, data=values, chunks=old)
    here.reset()
    target = zellige.rechunk(source, there, chunks=new, max_memory=memory)
    np.testing.assert_array_equal(target[...], values)
    reads = [key for key in here.keys("get", "get_ranges") if key.startswith("c/")]
    writes = [key for key in there.keys("put") if key.startswith("c/")]
    return reads, writes


def test_with_memory_enough_every_chunk_is_read_and_written_once():
    reads, writes = counted(sample((64, 64)), (1, 64), (64, 1), "1 MiB")
    assert len(reads) == len(set(reads)) == 64
    assert len(writes) == len(set(writes)) == 64


def test_from_rows_to_columns_every_chunk_is_read_once_in_a_twentieth_of_the_memory():
    values = sample((200, 200), "float64")
    reads, writes = counted(values, (1, 200), (200, 1), values.nbytes // 20)
    assert len(reads) == len(set(reads)) == 200
    assert len(writes) == len(set(writes)) == 200


def test_little_memory_is_refused_before_anything_is_written():
    store = zellige.MemoryStore()
    with pytest.raises(ValueError, match="give at least"):
        zellige.rechunk(zellige.zeros((100, 100), chunks=(10, 10)), store, chunks=(50, 50), max_memory=1000)
    assert not list(store.list())


# VmHWM belongs to the memory of this program; ru_maxrss would begin with that of the process which started it.
_CHILD = """
import json, sys
import zellige
def memory(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name))
source, target, most, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
a = zellige.open(source)
warm = zellige.ones((256, 256), chunks=(64, 256))  # libraries and their contexts, of first use, are not counted
zellige.rechunk(warm, target + "-warm", chunks=(256, 64), max_memory=700_000)
before = memory("VmRSS")
b = zellige.rechunk(a, target, max_memory=most, **options)
print(memory("VmHWM") - before)
"""


def child(*args, **options):
    return subprocess.run(
        [sys.executable, "-c", *map(str, args)], check=True, capture_output=True, text=True, env=os.environ, **options
    )


IN_PROC = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc, which tells the peak of memory")


def peak(source, target, memory, **options):
    """The bytes of memory that a rechunk needs at most, in a process of its own."""
    return int(child(_CHILD, source, target, memory, json.dumps(options)).stdout) * 1024


@IN_PROC
def test_an_array_of_twenty_times_the_memory_stays_within_it(tmp_path):
    values = np.random.default_rng(1).integers(0, 99, (1280, 8192)).astype("int64")
    memory = values.nbytes // 20  # several times what codecs keep for each thread
    zellige.save(tmp_path / "a", values, chunks=(16, 8192))
    assert peak(tmp_path / "a", tmp_path / "b", memory, chunks=(1280, 16)) < 1.5 * memory
    target = zellige.open(tmp_path / "b")
    for chunk in target.iter_chunks():
        np.testing.assert_array_equal(target[chunk.slices], values[chunk.slices])


LARGE = (20480, 8192)  # of float64, 20 times 64 MiB
LARGE_TARGETS = {
    "columns": {"chunks": [20480, 32]},
    "rectilinear": {"chunks": [[1000, 3000, 500, 4000, 2980, 6000, 3000], [96] * 85 + [32]]},
    "shards": {"chunks": [512, 64], "shards": [2048, 256]},
}


@pytest.mark.skipif("ZELLIGE_LONG" not in os.environ, reason="the long form, for ZELLIGE_LONG=1: 1.3 GB on a disk")
@pytest.mark.parametrize("kind", LARGE_TARGETS)
@IN_PROC
def test_neither_does_a_large_one_need_more(kind, tmp_path):
    memory = 64 << 20
    source = zellige.create_array(tmp_path / "a", shape=LARGE, dtype="float64", chunks=(64, 8192))
    rng = np.random.default_rng(1)
    for chunk in source.iter_chunks():
        source[chunk.slices] = rng.integers(0, 999, chunk.shape)
    assert source.nbytes == 20 * memory
    found = peak(tmp_path / "a", tmp_path / "b", memory, **LARGE_TARGETS[kind])
    print(f"{kind}: {found / memory:.2f} of the memory")
    assert found < 1.5 * memory
    target = zellige.open(tmp_path / "b")
    for start in range(0, LARGE[0], 2048):
        np.testing.assert_array_equal(target[start : start + 2048], source[start : start + 2048])


# -- stopping and going on ------------------------------------------------------------------------


class Stop(BaseException):
    """Like a signal: nobody catches it."""


def stopping(at):
    """A store whose so-manieth write fails, with all that come after it."""
    left = [at]

    def before(method, _key):
        if method in ("put", "create", "delete", "delete_prefix"):
            left[0] -= 1
            if left[0] < 0:
                raise Stop

    return CountingStore(before=before)


@pytest.mark.parametrize("new", [(2, 24), (24, 2)], ids=["direct", "by an intermediate array"])
def test_stopped_anywhere_the_same_call_goes_on(new):
    values = sample((24, 24))
    source = zellige.create_array(data=values, chunks=(1, 24))
    options = {"chunks": new, "max_memory": 2200}
    at, again = 0, True
    while again:
        store, again = stopping(at), False
        try:
            zellige.rechunk(source, store, **options)
        except Stop:
            again = True
        store.before = None
        done = {key: store.inner.get(key) for key in store.inner.list("c/")}
        store.reset()
        if again:
            np.testing.assert_array_equal(zellige.rechunk(source, store, **options)[...], values)
            assert not done.keys() & set(store.keys("put")), "finished chunks are not written again"
        assert not [key for key in store.inner.list() if WORK in key]
        at += 1
    assert at > 15


def test_more_or_less_memory_goes_on_too():
    values = sample((24, 24))
    source = zellige.create_array(data=values, chunks=(1, 24))
    for first, then in ((4000, 1500), (1500, 4000)):
        store = stopping(9)
        with pytest.raises(Stop):
            zellige.rechunk(source, store, chunks=(3, 5), max_memory=first)
        store.before = None
        np.testing.assert_array_equal(zellige.rechunk(source, store, chunks=(3, 5), max_memory=then)[...], values)


def test_what_another_rechunk_left_is_not_taken_for_this_one():
    source = zellige.create_array(data=sample((24, 24)), chunks=(1, 24))
    store = stopping(5)
    with pytest.raises(Stop):
        zellige.rechunk(source, store, chunks=(3, 5))
    store.before = None
    with pytest.raises(ConflictError, match="unfinished rechunk"):
        zellige.rechunk(source, store, chunks=(5, 3))
    target = zellige.rechunk(source, store, chunks=(5, 3), overwrite=True)
    np.testing.assert_array_equal(target[...], source[...])


_SLOW = """
import sys, time
import zellige
class Slow(zellige.LocalStore):
    def put(self, key, value):
        time.sleep(0.01)
        super().put(key, value)
print("ready", flush=True)
zellige.rechunk(zellige.open(sys.argv[1]), Slow(sys.argv[2]), chunks=(64, 2), max_memory=16384)
"""


@pytest.mark.parametrize("writes", [2, 12, 30])
def test_killed_and_repeated(tmp_path, writes):
    values = sample((64, 64), "int64")
    zellige.save(tmp_path / "a", values, chunks=(2, 64))
    process = subprocess.Popen([sys.executable, "-c", _SLOW, str(tmp_path / "a"), str(tmp_path / "b")], env=os.environ)
    while sum(len(names) for *_, names in os.walk(tmp_path / "b")) < writes and process.poll() is None:
        pass
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert (tmp_path / "b" / UNFINISHED).exists()
    target = zellige.rechunk(tmp_path / "a", tmp_path / "b", chunks=(64, 2), max_memory=16384)
    for chunk in target.iter_chunks():
        np.testing.assert_array_equal(target[chunk.slices], values[chunk.slices])
    assert not (tmp_path / "b" / UNFINISHED).exists()


# -- arguments ------------------------------------------------------------------------------------


def test_what_is_there_is_kept_unless_overwritten():
    source = zellige.array(np.arange(6), chunks=2)
    store = zellige.MemoryStore()
    zellige.create_array(store, data=[1, 2, 3])
    with pytest.raises(ContainsArrayError):
        zellige.rechunk(source, store, chunks=3)
    assert zellige.open(store)[:].tolist() == [1, 2, 3]
    assert zellige.rechunk(source, store, chunks=3, overwrite=True)[:].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_source_is_never_its_own_target():
    a = zellige.array(np.arange(6), chunks=2)
    for target in (a, a.store):
        with pytest.raises(ValueError, match="another place"):
            zellige.rechunk(a, target, overwrite=not isinstance(target, zellige.Array))
    assert a[:].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_source_is_not_removed_with_a_group_that_is_overwritten(tmp_path):
    zellige.save_group(tmp_path / "x.zarr", a=np.arange(6))
    for target in (tmp_path / "x.zarr", zellige.storage.StorePath(zellige.LocalStore(tmp_path), "x.zarr")):
        with pytest.raises(ValueError, match="lies below"):
            zellige.rechunk(tmp_path / "x.zarr" / "a", target, chunks=2, overwrite=True)
    assert zellige.load(tmp_path / "x.zarr", path="a").tolist() == [0, 1, 2, 3, 4, 5]


def test_targets_of_another_shape_and_options_without_meaning():
    a = zellige.array(np.arange(6), chunks=2)
    with pytest.raises(BroadcastError, match="resize"):
        zellige.rechunk(a, zellige.zeros(7))
    with pytest.raises(TypeError, match="leave chunks="):
        zellige.rechunk(a, zellige.zeros(6), chunks=3)
    with pytest.raises(TypeError, match="progress"):
        zellige.rechunk(a, None, progress="yes")


def test_progress_counts_to_the_end():
    seen = []
    source = zellige.create_array(data=sample((24, 24)), chunks=(1, 24))
    zellige.rechunk(source, None, chunks=(24, 1), max_memory=1200, progress=lambda *found: seen.append(found))
    assert [done for done, _, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total, _ in seen} == {len(seen)}
    assert seen[-1][2].startswith("[0:24, ")
    assert seen[-1][2].endswith(":24]")


def test_the_mark_is_a_document_that_people_can_read():
    source = zellige.create_array(data=sample((24, 24)), chunks=(1, 24))
    store = stopping(5)
    with pytest.raises(Stop):
        zellige.rechunk(source, store, chunks=(3, 5), max_memory=5000)
    mark = json.loads(store.inner.get(UNFINISHED))
    assert "a rechunk is not finished here: run the same call" in mark["about"]
    assert mark["work"]["state"]["memory"] == 5000


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("into", ["a new array", "an array that is there"])
def test_a_second_call_with_the_same_target_is_refused_while_the_first_is_at_work(into, overwrite, tmp_path):
    source = zellige.create_array(data=np.arange(1, 601).reshape(20, 30), chunks=(1, 30))
    target: Any = tmp_path
    options: dict[str, Any] = {"chunks": (20, 3)}
    if into != "a new array":
        target, options = zellige.create_array(tmp_path, shape=(20, 30), chunks=(20, 3), dtype="int64"), {}
    refused = []

    def again(*_: object) -> None:
        with zellige.config.set({"lease.wait": 0}), pytest.raises(zellige.errors.ConflictError):
            zellige.rechunk(source, target, overwrite=overwrite, **options)
        refused.append(True)

    zellige.rechunk(source, target, overwrite=overwrite, progress=again, **options)
    assert refused
    assert np.array_equal(zellige.open(tmp_path, mode="r")[...], source[...])
    assert not [name for name in os.listdir(tmp_path) if name.startswith("__zellige")]
