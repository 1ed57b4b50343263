"""Several writers and readers at once: threads with one handle, threads with their own, and processes. Nothing is lost.

Numbers of the long form (`make soak`); the short one does a tenth.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from crashing_store import LONG, CrashingStore, counted

import zellige
from running import run_threads
from zellige.nodes import resize
from zellige.nodes.node import PENDING
from zellige.stores import LocalStore, MemoryStore, Store, abilities, files

WORKERS = 4
PROCESSES = 4 if LONG else 3


def times(count: int) -> int:
    return count if LONG else count // 10


def figure(words: str) -> None:
    """For those who run the long form."""
    if LONG:
        print(f"\n{words}")


# -- at the same time -----------------------------------------------------------------------------

_meeting: Any = None
"""In a process of the pool: where all of them meet."""


def _enter(meeting: Any) -> None:
    global _meeting
    _meeting = meeting


def _in_process(work: Callable[..., Any], number: int, path: str, given: tuple[Any, ...]) -> Any:
    _meeting.wait(60)
    return work(zellige.open_array(path, mode="r+"), number, *given)


def _rounds_in_process(work: Callable[..., Any], number: int, given: tuple[Any, ...]) -> Any:
    return work(partial(_meeting.wait, 60), number, *given)


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, context, _enter, (context.Barrier(PROCESSES),)) as pool:
        yield pool


def results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result(300) for future in futures]


WAYS = ["threads with one handle", "threads with their own", "processes"]
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def together(way, request) -> Callable[..., list[Any]]:
    """Runs `work(array, number, *given)` at once in several threads or processes; says how many there were."""

    def run(work: Callable[..., Any], path: Any, *given: Any) -> list[Any]:
        if way == "processes":
            pool = request.getfixturevalue("processes")
            return results([pool.submit(_in_process, work, k, str(path), given) for k in range(PROCESSES)])
        shared = zellige.open_array(path, mode="r+")

        def act(number: int) -> Any:
            mine = shared if way == WAYS[0] else zellige.open_array(path, mode="r+")
            return work(mine, number, *given)

        return run_threads(WORKERS, act)

    return run


LAYOUTS: dict[str, dict[str, Any]] = {
    "raw chunk": {"chunks": -1, "compressors": None},
    "zstd chunk": {"chunks": -1},
    "raw shard": {"chunks": 4, "shards": 600, "compressors": None},
    "zstd shard": {"chunks": 4, "shards": 600},
    "older format": {"chunks": -1, "zarr_format": 2},
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


# -- parts of one chunk ---------------------------------------------------------------------------


def write_parts(array: zellige.Array, number: int, count: int) -> int:
    """Every so many elements are this writer's, one at a time; no two writers share one."""
    mine = range(number, count, WORKERS)
    for k in mine:
        array[k] = k + 1
    return len(mine)


@ways
@layouts
def test_no_update_of_a_part_of_one_chunk_is_lost(way, together, layout, tmp_path):
    count = times(600)
    zellige.create_array(tmp_path, shape=(600,), dtype="int32", **layout)
    made = sum(together(write_parts, tmp_path, count))
    found = zellige.open_array(tmp_path, mode="r")[...]
    written = [k for k in range(count) if k % WORKERS < (PROCESSES if way == "processes" else WORKERS)]
    lost = [k for k in written if found[k] != k + 1]
    figure(f"{way}: {made} updates of parts, {len(lost)} lost")
    assert made == len(written)
    assert lost == []
    assert not found[count:].any()


def write_rows(array: zellige.Array, number: int, rounds: int) -> None:
    """A column in each of several chunks; every writer touches all of them, each time."""
    for k in range(1, rounds + 1):
        array[:, number] = 1000 * number + k


@ways
def test_writers_of_many_shared_chunks_do_not_wait_for_each_other_forever(way, together, tmp_path):
    zellige.create_array(tmp_path, shape=(40, WORKERS), dtype="int32", chunks=([7, 13, 20], -1))
    rounds = times(200)
    count = len(together(write_rows, tmp_path, rounds))
    expected = np.broadcast_to(1000 * np.arange(WORKERS) + rounds, (40, WORKERS)) * (np.arange(WORKERS) < count)
    assert np.array_equal(zellige.open_array(tmp_path, mode="r")[...], expected)


# -- attributes -----------------------------------------------------------------------------------


def set_attributes(array: zellige.Array, number: int, count: int) -> list[str]:
    names = [f"{number}-{k}" for k in range(number, count, WORKERS)]
    for name in names:
        array.attrs[name] = name
    return names


@ways
@pytest.mark.parametrize("zarr_format", [2, 3], ids=["v2", "v3"])
def test_no_update_of_attributes_is_lost(way, together, zarr_format, tmp_path):
    zellige.create_array(tmp_path, shape=(1,), attributes={"first": 1}, zarr_format=zarr_format)
    names = [name for found in together(set_attributes, tmp_path, times(100)) for name in found]
    found = dict(zellige.open_array(tmp_path, mode="r").attrs)
    lost = [name for name in names if found.get(name) != name]
    figure(f"{way}, format {zarr_format}: {len(names)} updates of attributes, {len(lost)} lost")
    assert found == {"first": 1} | {name: name for name in names}


def change_all(array: zellige.Array, number: int, count: int) -> int:
    """Attributes, appends and parts in turn, by everybody."""
    for k in range(count):
        array.attrs[f"{number}-{k}"] = k
        array.append(np.full((1, WORKERS), 1 + number, "int32"))
        array[k % 3, number] = 100 + k
    return count


@ways
def test_attributes_appends_and_parts_do_not_disturb_each_other(way, together, tmp_path):
    zellige.create_array(tmp_path, data=np.zeros((3, WORKERS), "int32"), chunks=(4, WORKERS))
    count = times(100)
    writers = len(together(change_all, tmp_path, count))
    array = zellige.open_array(tmp_path, mode="r")
    assert len(array.attrs) == writers * count
    rows = array[3:]
    assert (rows == rows[:, :1]).all()
    assert sorted(rows[:, 0].tolist()) == sorted(list(range(1, writers + 1)) * count)
    first = array[:3]
    for row in range(3):
        last = max((k for k in range(count) if k % 3 == row), default=-100)
        assert first[row, :writers].tolist() == [100 + last] * writers


# -- appends --------------------------------------------------------------------------------------

GROWING: dict[str, dict[str, Any]] = {
    "regular": {"chunks": 4},
    "rectilinear": {"chunks": [[5, 3, 4]]},
    "raw": {"chunks": 4, "compressors": None},
    "shards": {"chunks": 2, "shards": 8},
    "older format": {"chunks": 4, "zarr_format": 2},
}
TOGETHER = 3
"""Rows of one append, which are not as many as a chunk holds."""


def append_rows(array: zellige.Array, number: int, count: int) -> list[int]:
    mine = list(range(number + 1, count + 1, WORKERS))
    for k in mine:
        array.append([10 * k + row for row in range(TOGETHER)])
    return mine


@ways
@pytest.mark.parametrize("layout", GROWING.values(), ids=GROWING)
def test_no_appended_row_is_missing_or_mixed(way, together, layout, tmp_path):
    zellige.create_array(tmp_path, shape=(0,), dtype="int32", fill_value=-1, **layout)
    numbers = [k for found in together(append_rows, tmp_path, times(100)) for k in found]
    array = zellige.open_array(tmp_path, mode="r")
    rows = array[...].reshape(-1, TOGETHER)
    whole = {tuple(10 * k + row for row in range(TOGETHER)) for k in numbers}
    found = [tuple(row) for row in rows.tolist()]
    figure(f"{way}: {len(numbers)} appends, {len(whole - set(found))} missing, {len(set(found) - whole)} mixed")
    assert sorted(found) == sorted(whole)
    assert not LocalStore(tmp_path).exists(PENDING)


def append_or_shrink(array: zellige.Array, number: int, count: int) -> None:
    """One writer cuts what is there to its first rows, again and again; the others append."""
    for k in range(count):
        if number == 0:
            array.refresh()
            array.resize((min(len(array), 2 * TOGETHER) if k % 2 else max(0, len(array) - TOGETHER),))
        else:
            mark = 10 * (number * count + k + 1)
            array.append([mark + row for row in range(TOGETHER)])


@ways
@pytest.mark.parametrize("layout", GROWING.values(), ids=GROWING)
def test_appends_while_others_shrink_stay_whole(way, together, layout, tmp_path):
    """A row of fill values would be one that was appended, and cleared with those before it."""
    zellige.create_array(tmp_path, shape=(0,), dtype="int32", fill_value=-1, **layout)
    together(append_or_shrink, tmp_path, times(100))
    array = zellige.open_array(tmp_path, mode="r+")
    rows = array[...].reshape(-1, TOGETHER)
    assert (rows[:, 0] % 10 == 0).all()
    assert (rows == rows[:, :1] + np.arange(TOGETHER)).all()
    length = len(array)
    array.resize((length + 20,))
    assert (array[length:] == -1).all()


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_what_is_appended_waits_until_a_shrinking_has_cleared_up(kind, tmp_path):
    inner: Store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    zellige.create_array(inner, data=counted((8,)), chunks=4, fill_value=-1)
    threads: list[threading.Thread] = []

    def append() -> None:
        zellige.open_array(inner, mode="r+").append([101, 102, 103])

    def meanwhile(method: str, key: str) -> None:
        if key.startswith("c/") and not threads:  # the shape is the new one already
            assert zellige.open_array(inner, mode="r").shape == (2,)
            threads.append(threading.Thread(target=append))
            threads[0].start()
            threads[0].join(0.2)

    zellige.open_array(CrashingStore(inner, before=meanwhile), mode="r+").resize((2,))
    threads[0].join(20)
    assert zellige.open_array(inner, mode="r")[...].tolist() == [1, 2, 101, 102, 103]


@pytest.mark.parametrize(
    "options", [{}, {"compressors": None}, {"chunks": 2, "shards": 4}], ids=["zstd", "raw", "shard"]
)
def test_a_handle_that_does_not_know_of_appended_rows_does_not_remove_them(options):
    """The rows that it knows and those that were appended are disjoint parts of one chunk."""
    store = MemoryStore()
    older = zellige.create_array(store, data=[1, 2], **{"chunks": 4, **options})
    zellige.open_array(store, mode="r+").append([3, 4])
    older[...] = [11, 12]
    assert zellige.open_array(store, mode="r")[...].tolist() == [11, 12, 3, 4]


STALE: dict[str, dict[str, Any]] = {
    "zstd": {"chunks": 4},
    "raw": {"chunks": 4, "compressors": None},
    "shards": {"chunks": 2, "shards": 4},
    "rectilinear": {"chunks": [[3, 4, 4, 9]]},
    "older format": {"chunks": 4, "zarr_format": 2},
}


@pytest.mark.parametrize("few", [0, 1000], ids=["listed", "one by one"])
@pytest.mark.parametrize("grow", ["resize", "append", "append, then resize"])
@pytest.mark.parametrize("where", [slice(5, 8), slice(6, None), slice(None)], ids=str)
@pytest.mark.parametrize("layout", STALE.values(), ids=STALE)
def test_growing_never_shows_what_a_handle_that_knew_a_later_end_has_written(layout, where, grow, few, monkeypatch):
    monkeypatch.setattr(resize, "_FEW", few)
    store = MemoryStore()
    older = zellige.create_array(store, data=counted((20,)), fill_value=-1, **layout)
    array = zellige.open_array(store, mode="r+")
    array.resize((6,))
    older[where] = 500
    model = np.full(20, -1)
    model[:6] = array[...]
    assert (model[:6] == np.where(np.isin(np.arange(6), np.arange(20)[where]), 500, np.arange(1, 7))).all()
    if "append" in grow:
        array.append([7])
        model[6] = 7
        assert array[...].tolist() == model[:7].tolist()
    if "resize" in grow:
        array.resize((20,))
        assert array[...].tolist() == model.tolist()
    else:
        array.append(np.full(2, 9))
        assert array[...].tolist() == [*model[:7].tolist(), 9, 9]


def test_growing_changes_no_chunk_that_holds_nothing_beyond_the_end():
    store = CrashingStore()
    array = zellige.create_array(store, data=counted((6, 6)), chunks=(4, 4))
    store.changes.clear()
    array.resize((7, 9))
    assert not [key for _, key in store.changes if key.startswith("c/")]
    assert not {"c/0/0", "c/0/1", "c/1/0", "c/1/1"} & set(store.keys())


def overwrite_or_append(array: zellige.Array, number: int, count: int) -> None:
    """One writer overwrites the rows that were there from the start; the others append."""
    for k in range(count):
        if number == 0:
            array[:2] = [1000 + k, 1000 + k]
        else:
            array.append([number])


@ways
def test_rows_appended_while_others_overwrite_the_rows_before_them_are_not_lost(way, together, tmp_path):
    count = times(100)
    zellige.create_array(tmp_path, data=np.array([1, 2], "int32"), chunks=1000, fill_value=-1)
    writers = len(together(overwrite_or_append, tmp_path, count))
    found = zellige.open_array(tmp_path, mode="r")[...].tolist()
    lost = found.count(-1)
    figure(f"{way}: {(writers - 1) * count} rows appended beside overwritten ones, {lost} lost")
    assert found[:2] == [999 + count] * 2
    assert sorted(found[2:]) == sorted(list(range(1, writers)) * count)


# -- creating -------------------------------------------------------------------------------------

CREATIONS: dict[str, Callable[[str, int], Any]] = {
    "create_array": lambda path, k: zellige.create_array(path, shape=(4,), dtype="int32", attributes={"by": k}),
    "with data": lambda path, k: zellige.create_array(path, data=[k] * 4, chunks=1, attributes={"by": k}),
    "older format": lambda path, k: zellige.create_array(path, shape=4, zarr_format=2, attributes={"by": k}),
    "open w-": lambda path, k: zellige.open(path, mode="w-", shape=(4,), dtype="int32", attributes={"by": k}),
    "open_group w-": lambda path, k: zellige.open_group(path, mode="w-", attributes={"by": k}),
    "below new groups": lambda path, k: zellige.create_array(path, name="a/b", shape=4, attributes={"by": k}),
}


def create_all(meet: Callable[[], Any], number: int, how: str, folder: str, rounds: int) -> list[bool]:
    """Whether this one has won, for each round."""
    won = []
    for k in range(rounds):
        meet()
        try:
            CREATIONS[how](f"{folder}/{k}.zarr", number)
            won.append(True)
        except FileExistsError:
            won.append(False)
    return won


@pytest.mark.parametrize("way", ["threads", "processes"])
@pytest.mark.parametrize("how", CREATIONS)
def test_exactly_one_of_several_creators_wins(way, how, request, tmp_path):
    rounds = times(100)
    if way == "processes":
        pool = request.getfixturevalue("processes")
        given = (how, str(tmp_path), rounds)
        found = results([pool.submit(_rounds_in_process, create_all, k, given) for k in range(PROCESSES)])
    else:
        meeting = threading.Barrier(WORKERS)
        found = run_threads(WORKERS, lambda k: create_all(partial(meeting.wait, 60), k, how, str(tmp_path), rounds))
    winners = [[number for number, won in enumerate(found) if won[k]] for k in range(rounds)]
    figure(f"{how}, {way}: {rounds} rounds, {sum(len(w) == 1 for w in winners)} with one winner")
    assert [len(w) for w in winners] == [1] * rounds
    for k, (winner,) in enumerate(winners):
        node = zellige.open(f"{tmp_path}/{k}.zarr", path="a/b" if how == "below new groups" else None, mode="r")
        assert node.attrs["by"] == winner
        if how == "with data":
            assert node[...].tolist() == [winner] * 4


# -- readers --------------------------------------------------------------------------------------

READABLE: dict[str, dict[str, Any]] = {
    "raw": {"chunks": (16, 64), "compressors": None},
    "zstd": {"chunks": (16, 64)},
    "rows of small chunks": {"chunks": (16, 4), "compressors": None},
    "rectilinear": {"chunks": ([10, 22], [30, 34])},
    "large raw": {"chunks": (32, 16384), "compressors": None},
    "shards": {"chunks": (8, 16), "shards": (32, 64)},
    "raw shards": {"chunks": (8, 16), "shards": (32, 64), "compressors": None},
}


def overwrite_or_read(array: zellige.Array, number: int, count: int) -> int:
    """One writes whole chunks of one value each; the others look for a chunk with more than one."""
    mixed = 0
    places = [chunk.slices for chunk in array.iter_chunks()]
    for k in range(count):
        if number == 0:
            array[...] = k % 7 * 1000 + 1
        else:
            found = array[...]
            mixed += sum(found[place].min() != found[place].max() for place in places)
    return mixed


@ways
@pytest.mark.parametrize("layout", READABLE.values(), ids=READABLE)
def test_readers_see_no_error_and_no_mixture_within_a_chunk(way, together, layout, tmp_path):
    count = times(200)
    shape = (32, 16384) if layout["chunks"] == (32, 16384) else (32, 64)
    zellige.create_array(tmp_path, data=np.ones(shape, "int32"), **layout)
    mixed = together(overwrite_or_read, tmp_path, count)
    figure(f"{way}: {count} overwrites, {count * (len(mixed) - 1)} reads, {sum(mixed)} mixtures")
    assert sum(mixed) == 0


def swap_or_read(array: zellige.Array, number: int, count: int) -> int:
    """One swaps the halves of a shard, which takes as many bytes as before, at other places; the others read."""
    rng = np.random.default_rng(1)
    even, uneven = np.zeros(64, "int32") + 5, rng.integers(1, 1 << 30, 64, "int32")
    wrong = 0
    for k in range(count):
        if number == 0:
            array[...] = np.concatenate([even, uneven] if k % 2 else [uneven, even])
        else:
            half = array[64 * (k % 2) : 64 * (k % 2) + 64]
            wrong += not (np.array_equal(half, even) or np.array_equal(half, uneven))
    return wrong


@ways
@pytest.mark.parametrize("checked", [True, False], ids=["zstd", "bytes that tell nothing"])
def test_readers_of_a_shard_never_use_an_index_of_another_value(way, together, checked, tmp_path):
    """Both values have the same size, so that only their places tell them apart."""
    codec = {"name": "zstd", "configuration": {"level": 1, "checksum": checked}}
    array = zellige.create_array(tmp_path, shape=(128,), dtype="int32", chunks=64, shards=128, compressors=[codec])
    swap_or_read(array, 0, 2)
    count = times(2000)
    wrong = together(swap_or_read, tmp_path, count)
    figure(f"{way}: {count} swaps, {count * (len(wrong) - 1)} reads, {sum(wrong)} wrong")
    assert sum(wrong) == 0


def append_or_look(array: zellige.Array, number: int, count: int) -> int:
    """One appends; the others open the array again and again, and count what is neither old nor new."""
    wrong = 0
    for k in range(count):
        if number == 0:
            array.append([k + 1] * TOGETHER)
        else:
            mine = zellige.open_array(array.store, mode="r")
            found = mine[...]
            wrong += len(found) % TOGETHER != 0 or found.tolist() != [j // TOGETHER + 1 for j in range(len(found))]
    return wrong


@ways
@pytest.mark.parametrize("layout", GROWING.values(), ids=GROWING)
def test_readers_see_whole_appends_only(way, together, layout, tmp_path):
    zellige.create_array(tmp_path, shape=(0,), dtype="int32", fill_value=-1, **layout)
    assert sum(together(append_or_look, tmp_path, times(100))) == 0


# -- durable while others write -------------------------------------------------------------------


def test_a_document_is_durable_when_its_write_returns_although_others_write(monkeypatch, tmp_path):
    """The directories of a call of many chunks are synchronised at its end, those of other calls at theirs."""
    store = LocalStore(tmp_path, durability="power")
    array = zellige.create_array(store, name="a", shape=(1,))
    synced: list[str] = []
    real = files.sync_folder
    monkeypatch.setattr(files, "sync_folder", lambda path: (synced.append(path.rstrip("/")), real(path)))
    begun, done = threading.Event(), threading.Event()

    def write_long() -> None:
        with abilities.batch(store):
            begun.set()
            done.wait(20)

    writer = threading.Thread(target=write_long)
    writer.start()
    assert begun.wait(20)
    try:
        array.attrs["unit"] = "K"
        assert str(tmp_path / "a") in synced
    finally:
        done.set()
        writer.join()


def write_durably(store: LocalStore, number: int, rounds: int) -> None:
    array = zellige.open_array(store, path=str(number % 2), mode="r+")
    for k in range(rounds):
        if number % 2:
            array[:, number] = k
        else:
            array.attrs[str(number)] = k


def test_documents_and_durable_chunks_at_once_are_no_error(tmp_path):
    store = LocalStore(tmp_path, durability="power")
    for name in "01":
        zellige.create_array(store, name=name, shape=(4, WORKERS), chunks=(1, WORKERS), dtype="int32")
    rounds = times(200)
    run_threads(WORKERS, lambda k: write_durably(store, k, rounds))
    assert dict(zellige.open_array(store, path="0").attrs) == {"0": rounds - 1, "2": rounds - 1}
    assert zellige.open_array(store, path="1")[...].tolist() == [[0, rounds - 1, 0, rounds - 1]] * 4
