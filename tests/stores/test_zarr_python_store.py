from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import Future

import numpy as np
import pytest
from node_laws import check_arrays, check_groups
from store_suite import StoreSuite

import zellige
from running import fork, run_threads
from zellige.errors import ReadOnlyError, ShortReadError
from zellige.stores.zarr_python import ZarrPythonStore

zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
pytest.importorskip("zarr.storage")


class TestZarrPythonMemory(StoreSuite):
    @pytest.fixture
    def store(self) -> ZarrPythonStore:
        return ZarrPythonStore(zarr.storage.MemoryStore())


class Noted(zarr.storage.WrapperStore):
    """Notes each request, how many were under way at once, and answers as it is told to."""

    def __init__(self, store, answer=None):
        super().__init__(store)
        self.requests, self.at_once, self.most, self.threads, self.answer = [], 0, 0, set(), answer

    async def get(self, key, prototype, byte_range=None):
        self.requests.append((key, byte_range))
        self.threads.add(threading.current_thread().name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.02)
        self.at_once -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return prototype.buffer.from_bytes(self.answer)
        return await super().get(key, prototype, byte_range)

    async def getsize(self, key):
        return await self._store.getsize(key)


# -- the event loop -------------------------------------------------------------------------------


def test_all_stores_share_one_thread_and_many_requests_are_in_flight():
    stores = [ZarrPythonStore(Noted(zarr.storage.MemoryStore())) for _ in range(2)]
    for store in stores:
        store.put("a", b"x")
    run_threads(16, lambda number: stores[number % 2].get("a") == b"x" or pytest.fail("lost"))
    assert stores[0].zarr_store.threads == stores[1].zarr_store.threads == {"zellige-zarr-python"}
    assert stores[0].zarr_store.most >= 4
    assert [thread.name for thread in threading.enumerate()].count("zellige-zarr-python") == 1


def test_ranges_are_asked_for_at_once():
    store = ZarrPythonStore(Noted(zarr.storage.MemoryStore()))
    for number in range(10):
        store.put(f"{number}", b"%d" % number * 100)
    store.zarr_store.most = 0
    assert store.read("3", [(0, 2), (50, 3), (-4, None)]).parts == [b"33", b"333", b"3333"]
    assert store.zarr_store.most == 3


def test_ranges_are_asked_for_as_zarr_python_wants_them():
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest

    store = ZarrPythonStore(Noted(zarr.storage.MemoryStore()))
    store.put("k", b"0123456789")
    for span in ((2, 3), (-4, None), (4, None), (-4, 2), (10, None)):
        store.get_range("k", *span)
    assert [request for _, request in store.zarr_store.requests if request is not None] == [
        RangeByteRequest(2, 5),
        SuffixByteRequest(4),
        RangeByteRequest(4, 10),
        RangeByteRequest(6, 8),
    ]


def test_an_interrupt_ends_the_request_that_was_waited_for(monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    class Endless(zarr.storage.WrapperStore):
        async def get(self, key, prototype, byte_range=None):
            begun.set()
            try:
                await asyncio.sleep(1000)
            finally:
                ended.set()

    def interrupted(_future):
        begun.wait(10)
        raise KeyboardInterrupt

    store = ZarrPythonStore(Endless(zarr.storage.MemoryStore()))
    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.get("a")
    assert ended.wait(10)


def test_a_store_that_zarr_python_has_not_opened_yet_is_opened(tmp_path):
    theirs = zarr.storage.ZipStore(tmp_path / "x.zip", mode="w")
    zarr.create_array(theirs, data=np.arange(10), chunks=4)
    theirs.close()
    store = ZarrPythonStore(zarr.storage.ZipStore(tmp_path / "x.zip", mode="r"))
    assert zellige.open_array(store)[...].tolist() == list(range(10))
    store.close()


def test_using_a_store_from_its_own_loop_is_an_error_not_a_deadlock():
    def recursive(store: ZarrPythonStore) -> ZarrPythonStore:
        class Recursive(zarr.storage.WrapperStore):
            async def get(self, key, prototype, byte_range=None):
                return store.get(key)

        return ZarrPythonStore(Recursive(zarr.storage.MemoryStore()))

    with pytest.raises(OSError, match="own event loop"):
        recursive(ZarrPythonStore(zarr.storage.WrapperStore(zarr.storage.MemoryStore()))).get("a")
    assert recursive(ZarrPythonStore(zarr.storage.MemoryStore({}))).get("a") is None  # which needs no loop


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_its_own_loop():
    store = ZarrPythonStore(zarr.storage.MemoryStore())
    store.put("a", b"x")

    def work() -> bool:
        store.put("b", b"y")
        return store.get("a") == b"x" and store.get("b") == b"y"

    children = [fork(work) for _ in range(2)]
    assert all(child() for child in children)
    assert store.get("b") is None


def test_the_thread_ends_with_the_interpreter_without_a_word():
    code = (
        "import zarr, threading\n"
        "from zellige.stores.zarr_python import ZarrPythonStore\n"
        "store = ZarrPythonStore(zarr.storage.MemoryStore())\n"
        "store.put('a', b'x')\n"
        "print(store.get('a'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(zellige.__file__))},
    )
    assert (done.returncode, done.stdout) == (0, "b'x'\n")
    assert "Task was destroyed" not in done.stderr
    assert "ResourceWarning" not in done.stderr


# -- promises -------------------------------------------------------------------------------------


def test_an_answer_of_another_length_is_never_taken():
    store = ZarrPythonStore(Noted(zarr.storage.MemoryStore(), answer=b"xx"))
    asyncio.run(store.zarr_store.set("k", zarr.core.buffer.cpu.Buffer.from_bytes(b"0123456789")))
    for span in ((2, 3), (-3, None), (0, 1)):
        with pytest.raises(OSError, match=r"'k'.*and got 2"):
            store.get_range("k", *span)
    with pytest.raises(ShortReadError, match="10 bytes"):
        store.get_range("k", 8, 3)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(PermissionError("403"), PermissionError), (OSError(5, "broken"), OSError), (RuntimeError("broken"), OSError)],
)
def test_errors_name_key_and_cause(error, kind):
    store = ZarrPythonStore(Noted(zarr.storage.MemoryStore(), answer=error))
    for read in (store.get, store.read, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(kind, match="key 'a/k'") as caught:
            read("a/k")
        assert str(error.args[-1]) in str(caught.value)
        assert caught.value.__cause__ is error


def test_create_believes_the_store_about_who_won():
    class Quicker(zarr.storage.WrapperStore):
        """Somebody else writes between the question and the write."""

        async def set_if_not_exists(self, key, value):
            await self._store.set(key, type(value).from_bytes(b"theirs"))
            await self._store.set_if_not_exists(key, value)

    store = ZarrPythonStore(Quicker(zarr.storage.MemoryStore()))
    assert not store.create("a", b"mine")
    assert store.get("a") == b"theirs"


def test_read_only_there_is_read_only_here():
    inner = zarr.storage.MemoryStore()
    ZarrPythonStore(inner).put("a", b"x")
    for store in (ZarrPythonStore(inner.with_read_only(True)), ZarrPythonStore(inner, read_only=True)):
        assert store.read_only
        assert store.get("a") == b"x"
        with pytest.raises(ReadOnlyError):
            store.put("a", b"y")


def test_stores_are_equal_when_they_hold_the_same_data(tmp_path):
    values: dict = {}
    memory = [ZarrPythonStore(zarr.storage.MemoryStore(values)) for _ in range(2)]
    assert memory[0] == memory[1]
    assert memory[0] != ZarrPythonStore(zarr.storage.MemoryStore())
    local = [ZarrPythonStore(zarr.storage.LocalStore(tmp_path / name)) for name in "aab"]
    assert local[0] == local[1] != local[2]
    assert len({*memory, *local}) == 3
    assert repr(local[0]) == "ZarrPythonStore(<zarr LocalStore>)"


@pytest.mark.parametrize("kind", ["memory", "local", "fsspec", "object"])
def test_arrays_and_groups_come_back_on_each_store_of_zarr_python(kind, tmp_path):
    if kind == "memory":
        inner = zarr.storage.MemoryStore()
    elif kind == "local":
        inner = zarr.storage.LocalStore(tmp_path)
    elif kind == "fsspec":
        fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        memory = AsyncFileSystemWrapper(fsspec.filesystem("memory"), asynchronous=True)
        inner = zarr.storage.FsspecStore(memory, path=f"/{tmp_path.name}")
    else:
        obstore = pytest.importorskip("obstore", reason="obstore is not installed")
        inner = zarr.storage.ObjectStore(obstore.store.MemoryStore())
    store = ZarrPythonStore(inner)
    check_arrays(store)
    check_groups(store)
    check_arrays(store.as_read_only(), written=True)
    if kind == "local":
        check_groups(pickle.loads(pickle.dumps(store)), written=True)
    theirs = zarr.open_array(inner, path="arrays/regular", mode="r")
    assert np.array_equal(theirs[...], zellige.open_array(store, path="arrays/regular")[...])
