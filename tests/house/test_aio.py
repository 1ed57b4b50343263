"""`zellige.aio`: the plain operations, awaited; their threads; what is left of a cancelled one."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import CountingStore, contents
from zellige import aio, config
from zellige.aio import AsyncArray, AsyncGroup

LONG = 60
"""Seconds after which a wait that should have ended is given up; a test that passes never waits for it."""


def ours() -> list[threading.Thread]:
    """The threads of the facade."""
    return [thread for thread in threading.enumerate() if thread.name == "zellige-aio"]


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No test leaves a thread behind, so none of the operations does."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


class Gate:
    """Holds the requests of a store for chunks until it is opened, and tells a loop when the first one is there."""

    def __init__(self, *methods: str) -> None:
        self.methods = methods or ("get", "put")
        self.open = threading.Event()
        self.reached = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, method: str, key: str) -> None:
        if method in self.methods and "c/" in key:
            assert self.loop is not None
            self.loop.call_soon_threadsafe(self.reached.set)
            assert self.open.wait(LONG), "the loop did not come to open the gate"

    async def wait(self) -> None:
        """Wait until a request stands before the gate."""
        await asyncio.wait_for(self.reached.wait(), LONG)


@contextmanager
def gated(*methods: str, data: Any = range(8), chunks: Any = 2) -> Iterator[tuple[AsyncArray, Gate, CountingStore]]:
    """An array in a store with a gate, which is open again in the end."""
    store, gate = CountingStore(), Gate(*methods)
    plain = zellige.create_array(store, data=np.array(data, "int16"), chunks=chunks)
    store.before = gate
    try:
        yield AsyncArray(plain), gate, store.reset()
    finally:
        gate.open.set()
        for thread in ours():
            thread.join(LONG)


def run(main: Callable[[], Any], gate: Gate | None = None) -> Any:
    """`asyncio.run`, with the loop that a gate tells."""

    async def with_gate() -> Any:
        if gate is not None:
            gate.loop = asyncio.get_running_loop()
        return await main()

    return asyncio.run(with_gate())


# -- the same as the plain operations -------------------------------------------------------------

FUNCTIONS = """
    open open_array open_group open_consolidated open_like create create_array create_group create_hierarchy group
    array from_array zeros ones full empty zeros_like ones_like full_like empty_like save save_array save_group load
    consolidate_metadata tree copy copy_all copy_store
"""

KNOWN = """
    shape ndim size dtype nbytes fill_value dimension_names order shards grid read_chunk_sizes write_chunk_sizes
    cdata_shape nchunks filters serializer compressors compressor config metadata path name basename store store_path
    read_only attrs
"""


PLAIN = {name: getattr(zellige, name) for name in FUNCTIONS.split()}


@pytest.mark.parametrize("name", PLAIN)
def test_functions_have_the_parameters_and_the_text_of_the_plain_ones(name):
    plain, awaited = PLAIN[name], getattr(aio, name)
    assert inspect.signature(awaited).parameters == inspect.signature(plain).parameters
    assert awaited.__doc__.startswith(plain.__doc__.split("\n")[0])
    assert ">>>" not in awaited.__doc__  # those of the plain function do not await
    assert awaited.__module__ == "zellige.aio"
    assert inspect.iscoroutinefunction(awaited) or name == "create_hierarchy"


def test_signatures_name_what_comes_back():
    assert inspect.signature(aio.open_array).return_annotation == "AsyncArray"
    assert inspect.signature(AsyncGroup.create_group).return_annotation == "AsyncGroup"
    assert inspect.signature(AsyncArray.append).return_annotation == "Shape"


@pytest.mark.parametrize("chunks", [(3, 4), ([1, 4, 5], [7, 1, 4])], ids=["regular", "rectilinear"])
def test_what_is_known_is_known_without_waiting(chunks):
    plain = zellige.create_array(shape=(10, 12), chunks=chunks, dtype="int8", attributes={"unit": "K"})
    array = AsyncArray(plain)
    for name in KNOWN.split():
        if name == "shards" or getattr(plain, name, None) is not None:
            assert getattr(array, name) == getattr(plain, name), name
    assert getattr(array, "chunks", None) == getattr(plain, "chunks", None)
    assert str(array.info) == str(plain.info)
    assert array.sync is plain
    assert AsyncArray.shape.__doc__ == zellige.Array.shape.__doc__
    with pytest.raises(AttributeError):
        array.shape = (3, 4)
    with pytest.raises(TypeError):
        array.attrs["unit"] = "C"


def test_every_way_to_select_equals_the_plain_one():
    model = np.arange(120).reshape(10, 12)
    plain = zellige.create_array(data=model, chunks=[[1, 4, 5], 5])
    array, mask = AsyncArray(plain), model % 7 == 0
    rows, points = ([8, 1], slice(2, 9, 3)), ([1, 7, 1], [0, 11, 3])

    async def main():
        assert np.array_equal(await array.getitem((slice(2, 8), 3)), plain[2:8, 3])
        assert np.array_equal(await array.getitem(), model)
        assert np.array_equal(await array.get_orthogonal_selection(rows), plain.oindex[rows])
        assert np.array_equal(await array.oindex.getitem(rows), plain.oindex[rows])
        assert np.array_equal(await array.get_coordinate_selection(points), plain.vindex[points])
        assert np.array_equal(await array.vindex.getitem(points), plain.vindex[points])
        assert np.array_equal(await array.get_mask_selection(mask), model[mask])
        assert np.array_equal(await array.get_block_selection((1, 0)), plain.blocks[1, 0])
        assert np.array_equal(await array.blocks.getitem((1, 0)), plain.blocks[1, 0])
        out = np.empty((10, 12), model.dtype)
        assert await array.get_basic_selection(out=out) is out
        await array.setitem((0, 0), 1)
        await array.set_orthogonal_selection(rows, 2)
        await array.oindex.setitem(([0], [5]), 3)
        await array.set_coordinate_selection(points, [4, 5, 6])
        await array.vindex.setitem(([9], [9]), 7)
        await array.set_mask_selection(mask, 8)
        await array.set_block_selection((2, 2), 9)
        await array.blocks.setitem((0, 1), 10)

    asyncio.run(main())
    model[0, 0] = 1
    model[np.ix_([8, 1], range(2, 9, 3))] = 2
    model[0, 5] = 3
    model[points] = [4, 5, 6]
    model[9, 9] = 7
    model[mask] = 8
    model[5:, 10:] = 9
    model[0, 5:10] = 10
    assert np.array_equal(plain[...], model)


def test_many_reads_at_once_equal_the_plain_ones(tmp_path):
    rng = np.random.default_rng(0)
    plain = zellige.create_array(tmp_path, data=rng.integers(0, 999, (60, 50)), chunks=[[7, 13, 40], 9])
    slices = [tuple(slice(*sorted(rng.integers(0, n + 1, 2))) for n in plain.shape) for _ in range(200)]

    async def main():
        array = await aio.open_array(tmp_path, mode="r")
        return await asyncio.gather(*map(array.getitem, slices))

    for selection, found in zip(slices, asyncio.run(main()), strict=True):
        assert np.array_equal(found, plain[selection])


@pytest.mark.parametrize("shards", [None, 40])
def test_many_writes_into_the_same_chunks_lose_nothing(tmp_path, shards):
    model = np.random.default_rng(1).permutation(120)

    async def main():
        array = await aio.create_array(tmp_path, shape=(120,), chunks=20, shards=shards, dtype="int64")
        await asyncio.gather(*(array.setitem(slice(k, k + 3), model[k : k + 3]) for k in range(0, 120, 3)))

    asyncio.run(main())
    assert np.array_equal(zellige.open_array(tmp_path)[:], model)


def test_arrays_change_as_the_plain_ones_do():
    async def main():
        array = await aio.array(np.arange(59), chunks=[[31, 28]])
        assert await array.append(range(31), chunks=[31]) == (90,)
        await array.resize(60)
        same = await array.update_attributes({"unit": "K"})
        assert same.sync is array.sync
        assert array.attrs == {"unit": "K"}
        assert await array.nchunks_initialized() == array.sync.nchunks_initialized == 2
        assert await array.nbytes_stored() == array.sync.nbytes_stored()
        assert str(await array.info_complete()) == str(array.sync.info_complete())
        other = await aio.open_array(array.store)
        await other.resize(31)
        await array.refresh()
        assert np.array_equal(await array.getitem(), np.arange(31))
        assert array.with_config({"order": "F"}).order == "F"

    asyncio.run(main())


def test_the_functions_do_what_the_plain_ones_do(tmp_path):
    async def main():
        store = zellige.MemoryStore()
        for name in ("zeros", "ones", "empty", "create"):
            made = await getattr(aio, name)((3, 2), dtype="int8", store=store, path=name)
            like = await getattr(aio, f"{name}_like")(made) if name != "create" else made
            assert like.shape == made.shape == (3, 2)
            assert np.array_equal(await made.getitem(), getattr(zellige, name)((3, 2), dtype="int8")[...])
        full = await aio.full(4, 7, dtype="int8")
        assert (await (await aio.full_like(full)).getitem()).tolist() == [7] * 4
        assert (await aio.open_like(full, {})).dtype == "int8"
        assert (await (await aio.from_array(data=full)).getitem()).tolist() == [7] * 4
        assert isinstance(await aio.open(store), AsyncGroup)
        assert isinstance(await aio.open(store, path="ones"), AsyncArray)
        assert isinstance(await aio.consolidate_metadata(store), AsyncGroup)
        root = await aio.open_consolidated(store)
        assert await root.keys() == ["create", "empty", "ones", "zeros"]
        assert repr(await aio.tree(root, plain=True)) == repr(root.sync.tree(plain=True))
        await aio.save(tmp_path / "one", [1, 2])
        await aio.save_array(tmp_path / "two", [3, 4])
        await aio.save_group(tmp_path / "three", [5], function=full)
        assert (await aio.load(tmp_path / "one")).tolist() == [1, 2]
        assert (await aio.load(tmp_path / "two")).tolist() == [3, 4]
        assert sorted(await aio.load(tmp_path / "three")) == ["arr_0", "function"]

    asyncio.run(main())


def test_awaited_nodes_are_copied_as_the_plain_ones_are():
    async def main():
        source, dest = await small_hierarchy(), await aio.group()
        await aio.copy(await source.getitem("g"), dest, "x")
        await aio.copy_all(source, dest)
        assert [name async for name, _ in dest.members(max_depth=1)] == ["a", "g", "x", "g/h", "x/h"]
        store = zellige.MemoryStore()
        await aio.copy_store(source.store, store)
        assert contents(store) == contents(source.store)

    asyncio.run(main())


# -- groups ---------------------------------------------------------------------------------------


async def small_hierarchy() -> AsyncGroup:
    root = await aio.create_group(attributes={"title": "tides"})
    await asyncio.gather(root.create_array("a", data=[1, 2]), root.create_array("g/h/b", data=[3]))
    return root


def test_members_come_wrapped():
    async def main():
        root = await small_hierarchy()
        a, g = await root.getitem("a"), await root.getitem("g")
        assert isinstance(a, AsyncArray)
        assert isinstance(g, AsyncGroup)
        assert root.attrs == {"title": "tides"}
        assert (await root.get("g/h/b")).name == "/g/h/b"
        assert await root.get("nothing") is None
        assert await root.get("nothing", 5) == 5
        assert await root.get_array("a") == a
        assert await root.get_group("g") == g
        assert await root.contains("g/h")
        assert not await root.contains("h")
        assert root == AsyncGroup(root.sync)
        assert root != g
        assert (root.path, root.name, g.basename, g.read_only) == ("", "/", "g", False)
        assert (g.store, g.store_path, g.metadata) == (root.store, g.sync.store_path, g.sync.metadata)
        assert str(g.info) == str(g.sync.info)
        assert str(await g.info_complete()) == str(g.sync.info_complete())
        assert repr(await root.tree()) == repr(root.sync.tree())
        assert await root.nmembers() == 2
        assert await root.nmembers(max_depth=None) == 4

    asyncio.run(main())


def test_members_are_iterated_or_awaited():
    async def main():
        root = await small_hierarchy()
        found = {name: node async for name, node in root.members(max_depth=None)}
        assert {name: type(node) for name, node in found.items()} == {
            "a": AsyncArray,
            "g": AsyncGroup,
            "g/h": AsyncGroup,
            "g/h/b": AsyncArray,
        }
        assert await root.members() == [(name, found[name]) for name in ("a", "g")]
        assert await root.walk() == list(found.items())
        assert await root.items() == await root.members()
        assert [node async for node in root.values()] == [found["a"], found["g"]]
        assert [name async for name in root] == await root.keys() == ["a", "g"]
        assert [item async for item in root.arrays()] == [("a", found["a"])]
        assert await root.array_keys() == ["a"]
        assert await root.array_values() == [found["a"]]
        assert [item async for item in root.groups()] == [("g", found["g"])]
        assert await root.group_keys() == ["g"]
        assert await root.group_values() == [found["g"]]
        async for name, _ in root.members():
            assert name == "a"
            break

    asyncio.run(main())


def test_groups_change_as_the_plain_ones_do():
    async def main():
        root = await small_hierarchy()
        await root.setitem("x", await root.getitem("a"))
        assert (await (await root.get_array("x")).getitem()).tolist() == [1, 2]
        await root.delitem("x")
        await root.move("a", "g/a")
        assert await root.keys() == ["g"]
        assert (await root.require_group("g")).name == "/g"
        assert [group.name for group in await root.require_groups("g", "n")] == ["/g", "/n"]
        assert (await root.require_array("g/a", shape=2)).name == "/g/a"
        assert (await root.create_group("c", attributes={"k": 1})).attrs == {"k": 1}
        assert (await root.update_attributes({"more": 2})).attrs == {"title": "tides", "more": 2}
        likes = await asyncio.gather(
            root.array("v1", [1, 2]),
            root.zeros(name="v2", shape=2),
            root.ones(name="v3", shape=2),
            root.empty(name="v4", shape=2),
            root.full(name="v5", shape=2, fill_value=5),
            root.zeros_like(name="v6", data=[1, 2]),
            root.ones_like(name="v7", data=[1, 2]),
            root.empty_like(name="v8", data=[1, 2]),
            root.full_like(name="v9", data=[1, 2], fill_value=9),
        )
        assert [int((await like.getitem()).sum()) for like in likes] == [3, 0, 2, 0, 10, 0, 2, 0, 18]
        meta = likes[0].metadata
        assert sorted([name async for name, _ in root.create_hierarchy({"t/u": meta})]) == ["t", "t/u"]
        made = dict(await aio.create_hierarchy(store={}, nodes={"t": meta}))
        assert isinstance(made["t"], AsyncArray)
        held = await root.consolidate_metadata()
        assert await held.nmembers() == await root.nmembers()
        await root.refresh()
        assert await AsyncGroup.open(root.store, "t") == await root.getitem("t")
        assert await AsyncArray.open(root.store, "t/u") == await root.getitem("t/u")

    asyncio.run(main())


def test_wrappers_are_values():
    array, group = AsyncArray(zellige.zeros(3, dtype="int8")), AsyncGroup(zellige.group())
    assert array == AsyncArray(array.sync)
    assert array != group
    assert repr(array).startswith("<zellige.AsyncArray / (3,) int8")
    assert repr(group).startswith("<zellige.AsyncGroup / in MemoryStore")
    assert pickle.loads(pickle.dumps(array)).shape == (3,)
    with pytest.raises(TypeError, match=r"AsyncArray is made of a zellige.Array; found Group"):
        AsyncArray(group.sync)
    with pytest.raises(TypeError, match="found AsyncGroup"):
        AsyncGroup(group)


# -- the loop stays free --------------------------------------------------------------------------


def test_the_loop_works_while_a_store_waits_for_it():
    with gated() as (array, gate, _):

        async def main():
            reading = asyncio.create_task(array.getitem())
            await gate.wait()
            gate.open.set()  # what the store waits for, only the loop can do
            return await reading

        assert run(main, gate).tolist() == list(range(8))


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_operations_run_at_once_than_the_setting_says(most):
    barrier, lock = threading.Barrier(most), threading.Lock()
    now, peak = 0, 0

    def before(method: str, key: str) -> None:
        nonlocal now, peak
        with lock:
            now += 1
            peak = max(peak, now)
        barrier.wait(LONG)  # so many do run at once
        with lock:
            now -= 1
        barrier.wait(LONG)

    store = CountingStore()
    array = AsyncArray(zellige.create_array(store, data=np.arange(24), chunks=2))
    store.before = before

    async def main():
        with config.set({"async.concurrency": most}):
            return await asyncio.gather(*(array.getitem(2 * k) for k in range(12)))

    assert asyncio.run(main()) == list(range(0, 24, 2))
    assert peak == most
    assert len({call.thread for call in store.made("get")}) <= 12


def test_operations_run_in_the_order_of_their_calls():
    with gated(data=range(20)) as (array, gate, store):

        async def main():
            with config.set({"async.concurrency": 1}):
                reading = asyncio.gather(*(array.getitem(2 * k) for k in range(10)))
                await gate.wait()
                gate.open.set()
                await reading

        run(main, gate)
        assert store.keys("get") == [f"c/{k}" for k in range(10)]


def test_a_thread_serves_those_who_wait_and_ends_with_them():
    with gated(data=range(40)) as (array, gate, _):

        async def main():
            with config.set({"async.concurrency": 2}):
                reading = asyncio.gather(*(array.getitem(2 * k) for k in range(20)))
                await gate.wait()
                assert 1 <= len(ours()) <= 2
                gate.open.set()
                await reading
                assert ours() == []  # in the loop already, not only after it

        run(main, gate)


def test_nothing_runs_on_after_the_loop(tmp_path):
    before = set(threading.enumerate())

    async def main():
        array = await aio.create_array(tmp_path, shape=(40,), chunks=4, overwrite=True)
        await asyncio.gather(*(array.setitem(k, k) for k in range(40)))
        return float((await array.getitem()).sum())

    for _ in range(5):
        assert asyncio.run(main()) == 780
        assert set(threading.enumerate()) == before


def test_one_object_serves_several_loops_at_once():
    array = AsyncArray(zellige.create_array(data=np.arange(100), chunks=10))
    found = {}

    def other(k: int) -> None:
        async def main():
            return sum(await asyncio.gather(*(array.getitem(i) for i in range(100))))

        found[k] = asyncio.run(main())

    threads = [threading.Thread(target=other, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert found == dict.fromkeys(range(4), 4950)


def test_an_idle_thread_does_not_keep_the_last_result():
    with gated() as (array, gate, _):
        other = AsyncArray(zellige.ones(5))

        async def main():
            reading = asyncio.create_task(array.getitem())
            await gate.wait()
            found = await other.getitem()
            kept = weakref.ref(found)
            del found
            for _ in range(100):  # until the thread has come round, which nobody tells us
                if kept() is not None:
                    await asyncio.sleep(0.01)
            gate.open.set()
            await reading
            return kept()

        assert run(main, gate) is None


def test_loops_are_not_kept():
    async def main():
        await aio.zeros(3)
        return weakref.ref(asyncio.get_running_loop())

    found = asyncio.run(main())
    gc.collect()
    assert found() is None


def test_context_variables_are_those_of_the_caller():
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    seen = []
    store = CountingStore(before=lambda method, key: seen.append(who.get()))

    async def one(name: str):
        who.set(name)
        await aio.zeros(3, store=store, path=name)

    async def main():
        await asyncio.gather(one("ann"), one("bob"))
        return who.get()

    assert asyncio.run(main()) == "nobody"
    assert set(seen) == {"ann", "bob"}


# -- errors ---------------------------------------------------------------------------------------


def test_errors_are_those_of_the_plain_operations():
    async def main():
        array = await aio.zeros(3)
        with pytest.raises(IndexError) as plain:
            array.sync[5]
        with pytest.raises(IndexError) as found:
            await array.getitem(5)
        assert (type(found.value), str(found.value)) == (type(plain.value), str(plain.value))
        with pytest.raises(zellige.errors.NodeNotFoundError):
            await aio.open({}, mode="r")
        root = await aio.group()
        with pytest.raises(zellige.errors.NodeNotFoundError):
            await root.getitem("nothing")
        with pytest.raises(zellige.errors.NodeNotFoundError):
            await root.delitem("nothing")
        with pytest.raises(ValueError, match="max_depth=-1"):
            await anext(aiter(root.members(max_depth=-1)))

    asyncio.run(main())


class Interrupted(BaseException):
    """Not an `Exception`."""


@pytest.mark.parametrize("raised", [OSError("disk"), Interrupted("now"), TimeoutError("a store's own")])
def test_errors_of_a_store_come_through_as_they_are(raised):
    def fail(method: str, key: str) -> None:
        raise raised

    async def main():
        with pytest.raises(type(raised)) as found:
            await aio.open_array(CountingStore(before=fail), mode="r")
        assert found.value is raised
        assert any(entry.name == "fail" for entry in found.traceback)

    asyncio.run(main())


def test_an_error_that_futures_refuse_comes_through_too():
    def fail(method: str, key: str) -> None:
        raise StopIteration

    async def main():
        with pytest.raises(RuntimeError, match="StopIteration"):
            await aio.open_array(CountingStore(before=fail), mode="r")

    asyncio.run(main())


def test_an_error_is_freed_when_it_was_handled():
    class Weak(OSError):
        pass

    def fail(method: str, key: str) -> None:
        raise Weak

    async def main():
        try:
            await aio.open_array(CountingStore(before=fail), mode="r")
        except Weak as error:
            found = weakref.ref(error)
        await asyncio.sleep(0)
        return found()

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(main()) is None
    finally:
        gc.enable()


def test_without_a_thread_to_be_had_others_do_the_work_or_it_is_an_error(monkeypatch):
    with gated() as (array, gate, _):

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        async def main():
            first = asyncio.create_task(array.getitem(0))
            await gate.wait()
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                second = asyncio.create_task(array.getitem(2))
                await asyncio.sleep(0)
                gate.open.set()
                assert await asyncio.gather(first, second) == [0, 2]
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    await array.getitem(4)
            return await array.getitem(4)

        assert run(main, gate) == 4


# -- cancelling -----------------------------------------------------------------------------------


def test_a_cancelled_await_ends_at_once_and_its_write_arrives_whole():
    with gated("put") as (array, gate, _):

        async def main():
            writing = asyncio.create_task(array.setitem(slice(None), 7))
            await gate.wait()
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing  # while the store still holds the first chunk
            assert not gate.open.is_set()
            assert (await array.getitem()).tolist() == list(range(8))
            asyncio.get_running_loop().call_later(0.02, gate.open.set)

        run(main, gate)  # comes back when the write is over, which only the end of the loop can have awaited
        assert ours() == []
        assert array.sync[:].tolist() == [7] * 8


def test_a_cancelled_change_of_a_part_keeps_the_rest():
    with gated("put") as (array, gate, _):

        async def main():
            first = asyncio.create_task(array.setitem(0, 50))
            await gate.wait()
            second = asyncio.create_task(array.setitem(1, 51))  # waits for the lock of the chunk, in its thread
            await asyncio.sleep(0)
            first.cancel()
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await first
            await second
            return await array.getitem()

        assert run(main, gate).tolist() == [50, 51, 2, 3, 4, 5, 6, 7]


def test_an_operation_that_is_cancelled_before_its_turn_never_starts():
    with gated("put") as (array, gate, store), config.set({"async.concurrency": 1}):

        async def main():
            first = asyncio.create_task(array.setitem(slice(0, 2), 7))
            await gate.wait()
            second = asyncio.create_task(array.setitem(slice(2, 4), 7))
            third = asyncio.create_task(array.setitem(slice(4, 6), 7))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            gate.open.set()
            await asyncio.gather(first, third)

        run(main, gate)
        assert store.keys("put") == ["c/0", "c/2"]


def test_a_given_up_thread_still_counts():
    with gated("get") as (array, gate, _), config.set({"async.concurrency": 1}):

        async def main():
            first = asyncio.create_task(array.getitem(0))
            await gate.wait()
            first.cancel()
            second = asyncio.create_task(array.getitem(2))
            await asyncio.wait([first])
            assert len(ours()) == 1
            gate.open.set()
            return await second

        assert run(main, gate) == 2


def test_tasks_that_the_end_of_the_loop_cancels_are_over_with_it():
    with gated("put") as (array, gate, _):

        async def main():
            keep = asyncio.create_task(array.setitem(slice(None), 7))
            await gate.wait()
            asyncio.get_running_loop().call_later(0.02, gate.open.set)
            return keep

        assert run(main, gate).cancelled()
        assert ours() == []
        assert array.sync[:].tolist() == [7] * 8


def test_the_setting_limits_how_long_is_waited():
    with gated("get") as (array, gate, _):

        async def main():
            with pytest.raises(TimeoutError, match=r"get_basic_selection took longer than 0.01 s, the setting async"):
                await array.getitem()
            with config.set({"async.timeout": None}):
                assert (await aio.zeros(3)).shape == (3,)  # the loop goes on

        with config.set({"async.timeout": 0.01}):
            run(main, gate)  # whose end does not wait any longer either
            assert ours()


def test_a_timeout_of_the_caller_cancels():
    with gated("get") as (array, gate, _):

        async def main():
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await array.getitem()
            gate.open.set()
            return await array.getitem(3)

        assert run(main, gate) == 3


def test_a_group_of_tasks_fails_as_one():
    with gated("put") as (array, gate, _):

        async def main():
            async def fail() -> None:
                await gate.wait()
                asyncio.get_running_loop().call_later(0.02, gate.open.set)
                raise LookupError

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(array.setitem(slice(None), 7))
                tasks.create_task(fail())

        with pytest.raises(ExceptionGroup) as found:
            run(main, gate)
        assert found.group_contains(LookupError)
        assert array.sync[:].tolist() == [7] * 8


def test_a_loop_closed_in_the_middle_does_no_harm():
    with gated("put") as (array, gate, store), config.set({"async.concurrency": 1}):
        loop = gate.loop = asyncio.new_event_loop()

        async def begin():
            tasks = [asyncio.ensure_future(array.setitem(slice(k, k + 2), 7)) for k in (0, 2)]
            await gate.wait()
            return tasks

        tasks = loop.run_until_complete(begin())
        loop.close()
        gate.open.set()
        for thread in ours():
            thread.join(LONG)
        assert store.keys("put") == ["c/0"]  # the second one had not begun
        assert zellige.open_array(store, mode="r")[:].tolist() == [7, 7, *range(2, 8)]
        for task in tasks:
            task._log_destroy_pending = False
            task.get_coro().close()


STUCK = """
import asyncio, threading, zellige
from zellige import aio

class Stuck(zellige.MemoryStore):
    def get(self, key):
        threading.Event().wait()

async def main():
    with zellige.config.set({"async.timeout": 0.05}):
        await aio.open_array(Stuck(), mode="r")

zellige.config.set({"async.timeout": 0.05})
try:
    asyncio.run(main())
except TimeoutError:
    print("given up")
"""


def test_a_thread_that_never_ends_does_not_keep_the_interpreter():
    source = Path(zellige.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", STUCK], env={"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=LONG
    )
    assert (done.stdout, done.stderr, done.returncode) == ("given up\n", "", 0)


def test_the_store_holds_what_the_plain_operations_write():
    def script(store: Any) -> None:
        root = zellige.create_group(store)
        root.create_array("a", data=np.arange(9), chunks=[[2, 3, 4]])[3:5] = 0
        root["a"].append([1, 2, 3])
        root.update_attributes({"done": True})

    async def awaited(store: Any) -> None:
        root = await aio.create_group(store)
        array = await root.create_array("a", data=np.arange(9), chunks=[[2, 3, 4]])
        await array.setitem(slice(3, 5), 0)
        await array.append([1, 2, 3])
        await root.update_attributes({"done": True})

    plain, other = zellige.MemoryStore(), zellige.MemoryStore()
    script(plain)
    asyncio.run(awaited(other))
    assert contents(plain) == contents(other)
