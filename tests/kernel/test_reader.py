"""The prepared reader: what it reads is what the plain path and numpy give, and the rest it declines."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from array import array as packed
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from running import run_threads
from zellige import kernel

if kernel.native is None:
    pytest.skip("the kernel was not built, or is off: there is no C compiler here", allow_module_level=True)

from test_kernel import CHAINS, FORKS, HOSTILE, INTERRUPTED, python_calls, stored


def by_tables(array: zellige.Array) -> zellige.Array:
    """The same array, read by the kernel from tables that Python makes."""
    other = array.with_config({})
    other._reader = False
    return other


def without_kernel(array: zellige.Array) -> zellige.Array:
    """The same array, read by the plain path."""
    other = by_tables(array)
    other._chunks._files = None
    return other


def outcome(action: Any) -> tuple[Any, ...]:
    """Everything that can be seen of a result, or of an error."""
    try:
        found = action()
    except (LookupError, TypeError, ValueError, OSError) as error:
        return type(error), str(error)
    flags = found.flags
    return type(found), found.dtype, found.shape, flags.writeable, flags.c_contiguous, flags.aligned, found.tobytes()


def read(array: zellige.Array, index: Any) -> Any:
    """What the reader itself gives; None if it declines."""
    reader = array._prepare()
    assert reader, "there is no reader"
    return reader.read(index)


@pytest.fixture
def numbers(tmp_path) -> zellige.Array:
    """A rectilinear array of 20 by 12 numbers, uncompressed."""
    values = np.arange(240, dtype="int32").reshape(20, 12)
    return zellige.create_array(tmp_path / "numbers", data=values, chunks=[[3, 9, 8], 5], compressors=None)


# -- the same values ----------------------------------------------------------------------------------


@given(stored(), st.data())
@ours.examples(0.1)
def test_reader_tables_plain_path_and_numpy_agree(case, data):
    values, made = case
    with tempfile.TemporaryDirectory() as folder:
        try:
            array = zellige.create_array(f"{folder}/a", data=values, **made)
        except (ValueError, NotImplementedError):  # a codec that does not take this type
            return
        if values.ndim and data.draw(st.booleans()):  # of which some chunks are missing
            array.resize([n + data.draw(st.integers(0, 3)) for n in values.shape])
            larger = np.full(array.shape, array.fill_value, values.dtype)
            larger[tuple(map(slice, values.shape))] = values
            values = larger
        others = by_tables(array), without_kernel(array)
        for index in (..., (), *(data.draw(ours.basic(values.shape)) for _ in range(4))):
            found = outcome(lambda index=index: array[index])
            for other in others:
                assert found == outcome(lambda index=index, other=other: other[index])
            if not issubclass(found[0], Exception):
                assert found[-1] == values[index].astype(found[1]).tobytes()


def picked(extent: int) -> st.SearchStrategy[Any]:
    """An integer or a slice that picks something, upwards."""
    inside = st.integers(0, extent - 1)
    ends = st.tuples(inside, inside).map(sorted)
    step = st.none() | st.integers(1, extent + 1) | st.just(2**63)
    wide = st.builds(lambda ends, step: slice(ends[0], ends[1] + 1, step), ends, step)
    return st.integers(-extent, extent - 1) | wide | wide.map(lambda s: slice(s.start - extent, s.stop + 99, s.step))


@given(stored(), st.data())
@ours.examples(0.1)
def test_integers_and_plain_slices_are_never_declined(case, data):
    values, made = case
    with tempfile.TemporaryDirectory() as folder:
        try:
            array = zellige.create_array(f"{folder}/a", data=values, **made)
        except (ValueError, NotImplementedError):
            return
        if array.order != "C" or array._uneven is not None:
            return
        items: list[Any] = [data.draw(picked(n)) for n in values.shape]
        if items and data.draw(st.booleans()):
            low, high = sorted(data.draw(st.tuples(*2 * [st.integers(0, len(items))])))
            items[low:high] = [...]
        index = tuple(items)
        assert outcome(lambda: read(array, index)) == outcome(lambda: without_kernel(array)[index])
        assert read(array, index).tobytes() == values[index].astype(array.dtype).tobytes()


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("dtype", [">f8", "bool", ">c16", "datetime64[s]", "S3", "float16"])
def test_every_chain_and_type(tmp_path, chain, dtype):
    values = (np.arange(70 * 33).reshape(70, 33) % 97).astype(dtype)
    end = {"name": "bytes", "configuration": {"endian": "big"}} if dtype[0] == ">" else "auto"
    made = {"chunks": [[1, 40, 29], 8], "compressors": CHAINS[chain], "serializer": end}
    array = zellige.create_array(tmp_path / "a", data=values, **made)
    plain = without_kernel(array)
    for index in (..., (3, 4), (slice(3, 60, 7), slice(2, 30)), slice(40, 42), (slice(None), 32)):
        assert outcome(lambda index=index: read(array, index)) == outcome(lambda index=index: plain[index])


def test_scalars_are_scalars_and_arrays_without_axes_are_arrays(tmp_path, numbers):
    one = zellige.create_array(tmp_path / "one", data=np.float64(7.5))
    assert type(read(numbers, (3, 5))) is np.int32
    assert type(read(numbers, (3, 5, ...))) is np.ndarray
    assert type(read(one, ())) is np.float64
    assert type(read(one, ...)) is np.ndarray
    assert (read(numbers, (3, 5)), read(numbers, (-17, ..., -7)), read(one, ()), read(one, ...)) == (41, 41, 7.5, 7.5)


def test_results_belong_to_the_caller(numbers):
    found = read(numbers, (slice(2, 9), slice(None, None, 2)))
    found[...] = -1
    assert found.flags.owndata
    assert (read(numbers, (slice(2, 9), slice(None, None, 2))) >= 0).all()


def test_formats_of_old(tmp_path):
    values = np.arange(30, dtype=">i4").reshape(5, 6)
    array = zellige.create_array(tmp_path / "a", data=values, chunks=(2, 4), zarr_format=2)
    assert read(array, (4, slice(1, None, 2))).tolist() == values[4, 1::2].tolist()
    assert read(array, 0).dtype == without_kernel(array)[0].dtype


@pytest.mark.parametrize("path", [lambda array: array, by_tables, without_kernel], ids=["reader", "tables", "plain"])
def test_steps_may_be_longer_than_any_axis(numbers, path):
    values = numbers[...]
    for step in (2**63 - 1, 2**63, 2**70):
        np.testing.assert_array_equal(path(numbers)[1:5:step, 2::step], values[1:5:step, 2::step])
        np.testing.assert_array_equal(path(numbers)[::-step, 3], values[::-step, 3])


# -- what is declined ---------------------------------------------------------------------------------

Pair = namedtuple("Pair", "row column")


class Index:
    """An integer of somebody else; or none, if it raises something."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> int:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


DECLINED = [
    *(None, True, np.int64(3), np.array(3), [1, 2], np.arange(20) > 3, 1.5, "x", Index(2), Pair(1, 2)),
    *(20, -21, 2**70, -(2**70), (3, 12), (3, 4, 5), (..., 3, ...), (1, 2, 3, ...), (3, None), (3, [1])),
    *(slice(3, 3), slice(5, 2), slice(None, None, -1), slice(None, None, 0), slice("a"), slice(0, 2, 1.5)),
    *(slice(Index(TypeError("no"))), slice(Index(ValueError("no"))), (25, slice("a")), (slice("a"), 25)),
]


@pytest.mark.parametrize("index", DECLINED, ids=range(len(DECLINED)))
def test_other_indices_are_declined_and_read_or_refused_as_before(numbers, index):
    assert read(numbers, index) is None
    assert outcome(lambda: numbers[index]) == outcome(lambda: without_kernel(numbers)[index])


def test_bounds_of_slices_may_be_integers_of_others(numbers):
    index = slice(Index(2), np.int64(7), np.uint8(2))
    np.testing.assert_array_equal(read(numbers, index), without_kernel(numbers)[2:7:2])


def test_what_an_index_raises_comes_through(numbers):
    with pytest.raises(KeyError, match="mine"):
        numbers[slice(Index(KeyError("mine")))]


class Counting(zellige.LocalStore):
    """A store that may do something on the way."""


NO_READER: dict[str, Any] = {
    "a store in memory": lambda folder: zellige.zeros((4, 4)),
    "a class of somebody else": lambda folder: zellige.create_array(Counting(folder), shape=(4, 4), dtype="i2"),
    "the other memory order": lambda folder: zellige.zeros((4, 4), store=folder, config={"order": "F"}),
    "fields": lambda folder: zellige.create_array(folder, shape=4, dtype=[("x", "i2"), ("y", "f4")]),
    "text": lambda folder: zellige.create_array(folder, data=np.array(["a", "bcd"], object), dtype="string"),
    "no elements": lambda folder: zellige.zeros((4, 0), store=folder),
    "chunks as long as the array": lambda folder: zellige.zeros(5, chunks=2, store=folder, chunk_grid=BOUNDED),
    "a long axis": lambda folder: zellige.create_array(folder, shape=2**50, chunks=2**20, dtype="u1"),
    "inner chunks that do not divide": lambda folder: zellige.create_array(
        folder,
        shape=10,
        chunks=5,
        dtype="u1",
        serializer=zellige.codecs.ShardingCodec((3,), (zellige.zeros(3, dtype="u1").serializer,)),
        compressors=None,
        config={"uneven_inner_chunks": True},
    ),
}
BOUNDED = "zarrs.regular_bounded"


@pytest.mark.parametrize("kind", NO_READER)
def test_some_arrays_have_no_reader_and_are_read_as_before(tmp_path, kind):
    array = NO_READER[kind](tmp_path / "a")
    assert array._prepare() is False
    index = slice(0, 2)
    assert outcome(lambda: array[index]) == outcome(lambda: without_kernel(array)[index])


def test_a_selection_of_very_many_chunks_is_declined_and_a_few_of_them_are_read(tmp_path):
    array = zellige.create_array(tmp_path / "a", shape=(3 << 20, 4), chunks=(1, 2), dtype="u1", fill_value=7)
    assert read(array, ...) is None
    assert read(array, (slice(None), 0)) is None
    assert read(array, (slice(None, None, 1 << 20), 0)).tolist() == [7, 7, 7]
    assert read(array, slice(5, 8)).tolist() == [[7] * 4] * 3


def test_runs_of_very_many_chunks_cost_nothing(tmp_path):
    array = zellige.create_array(tmp_path / "a", shape=10**12 + 5, chunks=[[[1, 10**12], 5]], dtype="u1", fill_value=7)
    array[10**12 - 1 : 10**12 + 2] = [1, 2, 3]
    assert read(array, slice(10**12 - 2, None)).tolist() == [7, 1, 2, 3, 7, 7, 7]


# -- what is not well ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [{"chunks": (2, 3)}, {"chunks": (2, 3), "shards": (4, 3)}], ids=["chunks", "shards"])
def test_missing_chunks_are_filled_or_named(tmp_path, layout):
    array = zellige.create_array(tmp_path / "a", shape=(8, 9), dtype="int16", fill_value=-7, **layout)
    array[2:4, 3:6] = 5
    expected = np.full((8, 9), -7, "int16")
    expected[2:4, 3:6] = 5
    np.testing.assert_array_equal(read(array, ...), expected)
    strict = array.with_config({"read_missing_chunks": False})
    np.testing.assert_array_equal(read(strict, (slice(2, 4), slice(3, 6))), expected[2:4, 3:6])
    assert read(strict, ...) is None
    with pytest.raises(zellige.errors.ChunkNotFoundError, match=r"chunk \(0, 0\)"):
        strict[...]
    assert read(strict, (3, 4)) == 5  # goes on


@pytest.mark.parametrize("layout", [{"chunks": 10}, {"chunks": 5, "shards": 10}, {"chunks": 10, "compressors": None}])
def test_a_damaged_chunk_is_named_and_the_others_are_read(tmp_path, layout):
    values = np.arange(1, 31, dtype="int32")
    array = zellige.create_array(tmp_path / "a", data=values, **layout)
    file = tmp_path / "a/c/1"
    file.write_bytes(file.read_bytes()[:-1])
    assert read(array, ...) is None
    for index in (..., 15, slice(8, 22)):
        found = outcome(lambda index=index: array[index])
        assert found == outcome(lambda index=index: by_tables(array)[index])
        assert found[0] is zellige.errors.CorruptChunkError
    np.testing.assert_array_equal(read(array, slice(20, None)), values[20:])


def test_links_are_followed_only_where_the_store_says_so(tmp_path):
    values = np.arange(4)
    array = zellige.create_array(tmp_path / "s/a", data=values, chunks=2)
    outside = tmp_path / "outside"
    os.rename(tmp_path / "s/a/c", outside)
    (tmp_path / "s/a/c").symlink_to(outside)
    assert read(array, ...) is None
    followed = zellige.open_array(zellige.LocalStore(tmp_path / "s/a", links="anywhere"))
    np.testing.assert_array_equal(read(followed, ...), values)


def test_a_reader_that_met_what_is_not_for_the_kernel_gives_up(tmp_path):
    array = zellige.create_array(tmp_path / "a", data=np.arange(4), chunks=2)
    reader = array._prepare()
    os.rename(tmp_path / "a/c/0", tmp_path / "a/c/here")
    (tmp_path / "a/c/0").symlink_to("here")
    assert array[0] == 0
    assert reader.read(3) is None
    assert array[3] == 3


# -- changes --------------------------------------------------------------------------------------------


def test_a_resize_is_seen_at_once_by_its_handle_and_by_others_when_they_refresh(tmp_path):
    array = zellige.create_array(tmp_path / "a", data=np.arange(6), chunks=4)
    other = zellige.open_array(tmp_path / "a")
    assert array[-1] == other[-1] == 5
    array.append(np.arange(6, 10), chunks=[3, 3])
    assert array[-1] == 9
    assert other[-1] == 5
    with pytest.raises(IndexError):
        other[9]
    other.refresh()
    assert other[-1] == 9
    np.testing.assert_array_equal(read(other, ...), np.arange(10))
    array.resize(3)
    assert array[...].tolist() == [0, 1, 2]
    array.resize(7)
    assert array[...].tolist() == [0, 1, 2, 0, 0, 0, 0]


def test_values_that_change_are_seen_at_once(numbers):
    assert numbers[3, 5] == 41
    zellige.open_array(numbers.store, path=numbers.path, mode="r+")[3, 5] = -1
    assert numbers[3, 5] == -1


def test_a_reader_of_the_former_grid_does_not_stay(tmp_path, monkeypatch):
    """Another thread follows a resize while this one prepares."""
    import zellige.nodes.array as module

    array = zellige.create_array(tmp_path / "a", data=np.arange(6), chunks=4)
    make = module.reader

    def slow(*given: Any, **options: Any) -> Any:
        made = make(*given, **options)
        monkeypatch.undo()
        array.append([6, 7])
        return made

    monkeypatch.setattr(module, "reader", slow)
    assert array[5] == 5
    assert array[7] == 7


def test_progress_is_reported(tmp_path):
    array = zellige.create_array(tmp_path / "a", data=np.arange(6), chunks=2)
    assert array[5] == 5
    seen: list[Any] = []
    with zellige.progress(lambda *told: seen.append(told)):
        assert array[...].tolist() == [0, 1, 2, 3, 4, 5]
    assert seen[-1][:2] == (3, 3)


# -- work is counted ------------------------------------------------------------------------------------


def test_a_read_is_one_call_and_the_kernel_is_the_next(numbers):
    assert python_calls(lambda: numbers[3:7, ::2]) == 2  # the lambda itself, and `__getitem__`
    assert python_calls(lambda: numbers[3, 5]) == 2
    frames = []

    def watch(frame: Any, event: str, arg: Any) -> None:
        if event == "c_call" and isinstance(getattr(arg, "__self__", None), kernel.native.Reader):
            frames.append((frame.f_code.co_name, frame.f_back.f_code.co_name))

    def caller() -> None:
        numbers[3:7, ::2]

    sys.setprofile(watch)
    try:
        caller()
    finally:
        sys.setprofile(None)
    assert frames == [("__getitem__", "caller")]


def test_no_memory_stays_taken(tmp_path, numbers):
    values = np.arange(100, dtype="i8")
    shards = zellige.create_array(tmp_path / "shards", data=values, chunks=2, shards=20)
    strict = zellige.create_array(tmp_path / "strict", shape=100, chunks=1, config={"read_missing_chunks": False})
    readers = numbers._prepare(), shards._prepare(), strict._prepare()
    dtype = numbers.dtype

    def rounds(count: int) -> None:
        for _ in range(count):
            readers[0].read((3, 5))
            readers[0].read((slice(3, 7), slice(None, None, 2)))
            readers[0].read((3, 50))
            readers[0].read(slice("a"))
        for _ in range(count // 100):
            readers[0].read(...)
            readers[1].read(slice(1, 70))
            readers[2].read(...)

    rounds(200)
    gc.collect()
    blocks, references, memory = sys.getallocatedblocks(), sys.getrefcount(dtype), resident()
    rounds(25_000)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 200
    assert sys.getrefcount(dtype) == references
    assert resident() - memory < 4 << 20


def resident() -> int:
    """The bytes of memory that this process has; 0 where that is not told."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def test_no_descriptor_is_left_open(tmp_path, numbers):
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("the system does not tell which descriptors are open")
    shards = zellige.create_array(tmp_path / "a", data=np.ones((64, 64, 64)), chunks=8, shards=32)
    file = tmp_path / "a/c/1/1/1"
    file.write_bytes(file.read_bytes()[:-1])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert read(numbers, ...) is not None
        assert read(shards, ...) is None
    assert len(os.listdir("/proc/self/fd")) == before


# -- several threads, processes, interrupts ---------------------------------------------------------------


def test_many_threads_share_a_reader(tmp_path):
    values = np.arange(200 * 100, dtype="int32").reshape(200, 100)
    array = zellige.create_array(tmp_path / "a", data=values, chunks=(7, 9))
    wrong: list[int] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            low, at = chance.randrange(190), chance.randrange(100)
            one, many = read(array, (low, at)), array._reader.read((slice(low, low + 50), slice(3, None)))
            if one != values[low, at] or not np.array_equal(many, values[low : low + 50, 3:]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


ASKED = "assert array._prepare().read(...) is not None\n"
"""Which makes sure that those scripts, written for arrays, are about readers."""


@pytest.mark.skipif("ZELLIGE_SANITIZED" in os.environ, reason="AddressSanitizer may hang in a forked child")
@pytest.mark.parametrize("layout", [{"chunks": 50}, {"chunks": 10, "shards": 100}], ids=["chunks", "shards"])
def test_forks_while_readers_read(tmp_path, layout):
    zellige.create_array(tmp_path / "a", data=np.full((200, 200, 200), 1, "u1"), **layout)
    script = FORKS.replace("stop = threading", ASKED + "stop = threading", 1)
    ran = subprocess.run([sys.executable, "-c", script, tmp_path / "a"], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("fine\n", 0), ran.stderr


def test_an_interrupt_stops_a_reader_and_leaves_everything_usable(tmp_path):
    zellige.create_array(tmp_path / "a", data=np.ones((300, 300, 100)), chunks=10)
    script = INTERRUPTED.replace("signal.signal", ASKED + "signal.signal", 1)
    script = script.replace("array[...]\n", "array._reader.read(...)\n", 1)
    ran = subprocess.run([sys.executable, "-c", script, tmp_path / "a"], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("fine\n", 0), ran.stderr


# -- nothing is trusted -----------------------------------------------------------------------------------


class Making:
    """The arguments of a reader, of which one is changed at a time."""

    NAMES = ("base", "pieces", "follow", "program", "shape", "axes", "fill", "threads", "empty", "large", "dtype")

    def __init__(self, array: zellige.Array) -> None:
        how = array._chunks.files
        assert how is not None
        axes = []
        for axis in array.grid.axes:
            starts, numbers = [0], [0]
            for size in axis.data_runs:
                starts.append(starts[-1] + size)
                numbers.append(numbers[-1] + 1)
            axes.append((packed("q", starts), packed("q", numbers)))
        values = (how.base, how.pieces, False, how.program, array.shape, tuple(axes), True, int, np.empty, np.empty)
        self.given: dict[str, Any] = dict(zip(self.NAMES, (*values, array.dtype), strict=True))

    def __call__(self, **changed: Any) -> Any:
        return kernel.native.Reader(*(self.given | changed).values())


LAYOUTS: dict[str, Any] = {
    "raw": {"chunks": [[4, 6, 6], 4], "compressors": None},
    "shards": {"chunks": (2, 2), "shards": [[4, 6, 6], 4], "compressors": "zstd"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_number_of_a_grid_is_checked(tmp_path, layout):
    values = np.arange(1, 16 * 12 + 1, dtype="int32").reshape(16, 12)
    making = Making(zellige.create_array(tmp_path / "a", data=values, **LAYOUTS[layout]))
    np.testing.assert_array_equal(making().read(...), values)
    refused = 0
    indices = (..., (slice(None, None, 3), 5), (15, 11), (-1, slice(1, None)))
    for axis in range(2):
        for which in range(2):
            for at in range(len(making.given["axes"][axis][which])):
                for value in HOSTILE:
                    edges = [[*pair] for pair in making.given["axes"]]
                    edges[axis][which] = packed("q", edges[axis][which])
                    edges[axis][which][at] = value
                    try:
                        made = making(axes=tuple(map(tuple, edges)))
                    except ValueError:
                        refused += 1
                        continue
                    for index in indices:
                        found = made.read(index)
                        assert found is None or found.shape == values[index].shape
    assert refused > 100
    for axis in range(2):
        for value in HOSTILE:
            shape = tuple(value if k == axis else n for k, n in enumerate(values.shape))
            if 0 <= value <= values.shape[axis]:
                assert making(shape=shape).read(...) is None or value
            else:
                with pytest.raises(ValueError, match="edges"):
                    making(shape=shape)


WRONG: dict[str, list[Any]] = {
    "base": [b"", b"/tmp", b"/t\0mp/", "text/", None],
    "pieces": [(), (b"c/", b"/"), (b"c/", b"/", b"\0"), (b"c/", b"/", ""), [b"c/", b"/", b""]],
    "program": [b"", b"\0" * 80, "text", bytearray(80)],
    "shape": [(), (16,), (16, 12, 1), [16, 12], (16, "x"), (16, 2**63), (16, None)],
    "axes": [
        *((), [], (None, None), ((), ()), ((1, 2), (3, 4)), ((b"", b""), (b"", b""))),
        *(((b"\0" * 8, b"\0" * 8),) * 2, ((b"\0" * 16, b"\0" * 16),) * 2, ((b"\0" * 17, b"\0" * 17),) * 2),
    ],
    "threads": [None, 2],
    "empty": [None, "x"],
    "large": [None, "x"],
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_do_not_fit_are_refused(tmp_path, name):
    values = np.zeros((16, 12), "int32")
    making = Making(zellige.create_array(tmp_path / "a", data=values, **LAYOUTS["raw"]))
    for value in WRONG[name]:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            making(**{name: value})
    code = making.given["program"]
    for end in range(len(code)):
        with pytest.raises(ValueError, match="program"):
            making(program=code[:end])
    with pytest.raises(TypeError):
        kernel.native.Reader(*making.given.values(), 1)
    with pytest.raises(TypeError):
        kernel.native.Reader(**making.given)
    with pytest.raises(AttributeError):
        making().more = 1


def read_only(shape: Any, dtype: Any) -> Any:
    found = np.zeros(shape, dtype)
    found.flags.writeable = False
    return found


MAKERS = {
    "smaller": lambda shape, dtype: np.empty(3, dtype),
    "larger": lambda shape, dtype: np.empty((*shape, 2), dtype),
    "another type": lambda shape, dtype: np.empty(shape, "i8"),
    "as many bytes": lambda shape, dtype: np.empty(4 * 16 * 12, "i1"),
    "another order": lambda shape, dtype: np.empty(shape, dtype, order="F"),
    "in pieces": lambda shape, dtype: np.empty((*shape, 2), dtype)[..., 0],
    "read only": read_only,
    "nothing": lambda shape, dtype: None,
    "an error": lambda shape, dtype: 1 / 0,
}


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_made_for_results_is_checked(tmp_path, maker):
    values = np.zeros((16, 12), "int32")
    making = Making(zellige.create_array(tmp_path / "a", data=values, **LAYOUTS["raw"]))
    with pytest.raises((ValueError, TypeError, BufferError, ZeroDivisionError)):
        making(empty=MAKERS[maker]).read(...)


def test_the_number_of_threads_is_asked_for_much_only(tmp_path):
    array = zellige.create_array(tmp_path / "a", data=np.ones((300, 300)), chunks=100)
    asked: list[int] = []

    def threads() -> int:
        asked.append(1)
        return 2

    reader = Making(array)(threads=threads)
    assert reader.read((3, 5)) == 1
    assert asked == []
    assert reader.read(...).all()
    assert asked == [1]
    for wrong, error in ((lambda: 1 / 0, ZeroDivisionError), (lambda: "x", TypeError), (lambda: 2**70, OverflowError)):
        with pytest.raises(error):
            Making(array)(threads=wrong).read(...)
    for odd in (-5, 0, 10**6):
        assert Making(array)(threads=lambda odd=odd: odd).read(...).all()


def test_a_reader_in_a_cycle_is_collected(tmp_path):
    class Maker:
        reader: Any = None

        def __call__(self, shape: Any, dtype: Any) -> Any:
            return np.empty(shape, dtype)

    maker = Maker()
    maker.reader = Making(zellige.create_array(tmp_path / "a", data=np.zeros(4)))(empty=maker)
    assert maker.reader.read(0) == 0
    gone = weakref.ref(maker)
    del maker
    gc.collect()
    assert gone() is None


# -- indexes of shards that are kept --------------------------------------------------------------


def bytes_read() -> int:
    """How many bytes this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def settle(folder: Path) -> None:
    """Wait until files are so old that another change would give them other times."""
    while time.time() - max(path.stat().st_ctime for path in folder.rglob("*")) < 3.5:
        time.sleep(0.1)


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="/proc/self/io, which counts bytes, is of Linux")
def test_the_index_of_a_shard_is_read_once(tmp_path):
    values = np.arange(64 * 4096, dtype="i4").reshape(64, 4096)
    zellige.create_array(tmp_path / "a", data=values, chunks=(1, 16), shards=(32, 4096))
    index = 16 * 32 * 256
    fresh = zellige.open_array(tmp_path / "a", mode="r")
    for _ in range(2):  # too young to be kept
        before = bytes_read()
        assert fresh[3, 77] == values[3, 77]
        assert bytes_read() - before > index
    settle(tmp_path / "a")
    array = zellige.open_array(tmp_path / "a", mode="r")
    assert array[3, 77] == values[3, 77]
    for row in (5, 31):
        before = bytes_read()
        assert array[row, 99] == values[row, 99]
        assert bytes_read() - before < index
    before = bytes_read()
    assert array[40, 7] == values[40, 7]  # of the other shard
    assert bytes_read() - before > index


def write_in_place(file: Path, raw: bytes) -> None:
    with file.open("r+b") as stream:
        stream.write(raw)


def write_with_the_old_time(file: Path, raw: bytes) -> None:
    times = file.stat()
    write_in_place(file, raw)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def replace_file(file: Path, raw: bytes) -> None:
    file.with_name("new").write_bytes(raw)
    os.replace(file.with_name("new"), file)


CHANGES = [write_in_place, write_with_the_old_time, replace_file, lambda file, _: file.unlink()]


def test_an_index_that_was_kept_is_not_used_for_another_file(tmp_path):
    values = np.arange(20 * 30, dtype="i4").reshape(20, 30) + 1
    made = {"chunks": (2, 3), "shards": (20, 30), "compressors": None}
    values[0:2, 0:3] = 0  # an inner chunk that is not stored
    for number in range(len(CHANGES)):
        zellige.create_array(tmp_path / str(number), data=values, **made)
    # The same size, with another one missing, so that all lie elsewhere.
    other = values.copy()
    other[0:2, 0:3], other[18:20, 27:30] = 5, 0
    zellige.create_array(tmp_path / "other", data=other, **made)
    raw = (tmp_path / "other/c/0/0").read_bytes()
    settle(tmp_path)
    for number, change in enumerate(CHANGES):
        array, file = zellige.open_array(tmp_path / str(number), mode="r"), tmp_path / str(number) / "c/0/0"
        assert file.stat().st_size == len(raw)
        assert (array[0, 0], array[19, 29]) == (0, 600)  # the second one by the index that was kept
        change(file, raw)
        expected = other if file.exists() else np.zeros_like(other)
        assert array[0, 0] == expected[0, 0]
        np.testing.assert_array_equal(array[...], expected)


def test_indexes_of_more_shards_than_are_kept_do_not_mix(tmp_path):
    values = np.arange(300 * 40, dtype="i4").reshape(300, 40)
    zellige.create_array(tmp_path / "a", data=values, chunks=(1, 10), shards=(2, 20))
    settle(tmp_path / "a")
    array, chance = zellige.open_array(tmp_path / "a", mode="r"), random.Random(5)
    places = [(chance.randrange(300), chance.randrange(40)) for _ in range(4000)]

    def work(_: int) -> bool:
        return all(array[place] == values[place] for place in places)

    assert run_threads(4, work) == [True] * 4
