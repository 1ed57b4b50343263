from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from node_laws import check_arrays, check_groups
from store_suite import StoreSuite

import zellige
from running import fork
from zellige.errors import ReadOnlyError, ShortReadError
from zellige.stores import LocalStore, MemoryStore
from zellige.stores.fsspec import FsspecStore
from zellige.stores.zip import ZipStore

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
pytest.importorskip("fsspec.asyn")


def in_memory() -> FsspecStore:
    return FsspecStore(fsspec.filesystem("memory"), f"/{uuid.uuid4().hex}/x.zarr")


class TestFsspecMemory(StoreSuite):
    @pytest.fixture
    def store(self):
        store = in_memory()
        yield store
        store.delete_prefix("")


class Slow(fsspec.asyn.AsyncFileSystem):
    """A remote file system of coroutines: files in a dict, a cache of listings, and odd answers to odd ranges."""

    protocol = "slow"
    disks: dict[str, dict[str, bytes]] = {}  # noqa: RUF012 - shared by all, as a server is
    modes: list[str] = []  # noqa: RUF012

    def __init__(self, disk="default", password=None, **options):
        super().__init__(**options)
        self.data = self.disks.setdefault(disk, {})

    async def _cat_file(self, path, start=None, end=None, **_):
        await asyncio.sleep(0)
        value = self.data.get(self._strip_protocol(path))
        if value is None:
            raise FileNotFoundError(path)
        if start is not None and start >= len(value):
            raise OSError(22, "The requested range is not satisfiable")
        return value[start:end]

    async def _pipe_file(self, path, value, mode="overwrite", **_):
        self.modes.append(mode)
        if mode == "create" and path in self.data:
            raise FileExistsError(path)
        self.data[path] = bytes(value)

    async def _rm_file(self, path, **_):
        self.data.pop(path, None)

    async def _info(self, path, **_):
        if path in self.data:
            return {"name": path, "size": len(self.data[path]), "type": "file"}
        if any(found.startswith(path + "/") for found in tuple(self.data)):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    async def _ls(self, path, detail=True, **_):
        if path not in self.dircache:
            names = {
                "/".join(found.split("/")[: path.count("/") + 2])
                for found in tuple(self.data)
                if found.startswith(path + "/")
            }
            self.dircache[path] = [await self._info(name) for name in names]
        if not self.dircache[path] and path not in self.data:
            raise FileNotFoundError(path)
        return self.dircache[path]

    def invalidate_cache(self, path=None):
        self.dircache.clear()


class TestFsspecOfCoroutines(StoreSuite):
    @pytest.fixture
    def store(self):
        disk = uuid.uuid4().hex
        yield FsspecStore(Slow(disk=disk), "bucket/x.zarr")
        del Slow.disks[disk]


# -- which store it is ----------------------------------------------------------------------------


def test_the_local_file_system_gives_a_local_store(tmp_path):
    root = str(tmp_path / "x")
    local = fsspec.filesystem("file")
    for store in (
        FsspecStore(local, root),
        FsspecStore.from_url(f"file://{root}"),
        FsspecStore.from_url(root),
        FsspecStore.from_mapper(fsspec.get_mapper(root)),
        FsspecStore(fsspec.filesystem("dir", path=str(tmp_path), fs=local), "x"),
        FsspecStore(fsspec.filesystem("dir", path=root, fs=local)),
    ):
        assert type(store) is LocalStore
        assert store.root == root
    assert FsspecStore(local, root, read_only=True).read_only


def test_a_url_or_a_mapper_gives_the_same_store():
    options = {"disk": "urls", "password": "secret"}
    fsspec.register_implementation("slow", Slow, clobber=True)
    store = FsspecStore.from_url("slow://bucket/x.zarr/", options)
    store.put("a", b"1")
    mapper = fsspec.get_mapper("slow://bucket/x.zarr", **options)
    assert FsspecStore.from_mapper(mapper) == store
    assert FsspecStore.from_mapper(mapper, read_only=True).get("a") == b"1"
    assert FsspecStore.from_url("slow://bucket/other", options) != store
    with pytest.raises(ReadOnlyError):
        FsspecStore.from_url("slow://bucket/x.zarr", options, read_only=True).put("a", b"2")
    assert mapper["a"] == b"1"
    assert store.traits.concurrency == 64
    assert in_memory().traits.concurrency is None


def test_secrets_are_not_shown():
    store = FsspecStore(Slow(disk="repr", password="secret"), "bucket")
    assert repr(store) == "FsspecStore(<Slow>, 'bucket')"
    http = FsspecStore(fsspec.filesystem("http"), "http://user:secret@localhost/x.zarr?token=secret")
    assert repr(http) == "FsspecStore(<HTTPFileSystem>, 'http://localhost/x.zarr')"


def test_a_file_system_for_coroutines_is_used_by_its_blocking_twin():
    store = FsspecStore(Slow(disk="twin", asynchronous=True, loop=None), "b")
    store.put("a", b"x")
    assert store.get("a") == b"x"
    assert not store.fs.asynchronous


def test_a_missing_library_is_named():
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from zellige.stores.fsspec import FsspecStore\n"
        "try: FsspecStore.from_url('memory://x')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'zellige[fsspec]'" in done.stdout


# -- promises -------------------------------------------------------------------------------------


def test_listings_are_not_taken_from_a_cache():
    disk = uuid.uuid4().hex
    mine, fs = FsspecStore(Slow(disk=disk), "b"), Slow(disk=disk, skip_instance_cache=True)
    mine.put("a/x", b"1")
    assert mine.list_dir("a/") == (["a/x"], [])
    fs.pipe_file("b/a/y", b"22")  # by somebody else, whose cache is another
    assert mine.list_dir("a/") == (["a/x", "a/y"], [])
    assert sorted(mine.list()) == ["a/x", "a/y"]
    assert mine.size("a/y") == 2


def test_create_is_on_condition_where_the_file_system_can():
    store = FsspecStore(Slow(disk=uuid.uuid4().hex), "b")
    Slow.modes.clear()
    assert store.create("a", b"x")
    store.put("a", b"y")
    assert Slow.modes == ["create", "overwrite"]


@pytest.mark.parametrize("method", ["put", "create"])
def test_a_file_in_the_place_of_a_directory_is_an_error_that_names_the_key(method):
    store = in_memory()
    store.put("a", b"a file")
    with pytest.raises(FileExistsError, match=r"key 'a/b' in .*/a$"):
        getattr(store, method)("a/b", b"new")
    assert store.get("a/b") is None


def test_create_loses_against_a_process_that_was_quicker_by_a_moment(monkeypatch):
    store = FsspecStore(Slow(disk=uuid.uuid4().hex), "b")
    store.put("a", b"theirs")
    monkeypatch.setattr(FsspecStore, "exists", lambda self, key: False)
    assert not store.create("a", b"mine")
    assert store.get("a") == b"theirs"


def test_a_file_system_that_ignores_the_condition_is_not_trusted_with_it():
    class Old(Slow):
        protocol = "old"

        async def _pipe_file(self, path, value, **options):
            assert not options
            self.data[path] = bytes(value)

    store = FsspecStore(Old(disk=uuid.uuid4().hex), "b")
    assert store.create("a", b"x")
    assert not store.create("a", b"y")
    assert store.get("a") == b"x"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError("403 Forbidden"), PermissionError),
        (PermissionError(13, "Permission denied"), PermissionError),
        (OSError(5, "Input/output error"), OSError),
        (ConnectionResetError("gone"), ConnectionResetError),
        (TimeoutError("too late"), TimeoutError),
        (RuntimeError("broken"), OSError),
        (KeyError("odd"), OSError),
    ],
)
def test_only_a_missing_file_is_missing(monkeypatch, error, kind):
    store = FsspecStore(Slow(disk="errors"), "b")

    async def fail(*_args, **_options):
        raise error

    for method in ("_cat_file", "_info", "_ls", "_pipe_file", "_rm_file"):
        monkeypatch.setattr(Slow, method, fail)
    store.fs.cat_file = store.fs.info = store.fs.ls = store.fs.find = store.fs.pipe_file = store.fs.rm_file = (
        lambda *a, **k: asyncio.run(fail())
    )
    for action in (
        lambda: store.get("a/k"),
        lambda: store.get_range("a/k", 0, 1),
        lambda: store.size("a/k"),
        lambda: store.put("a/k", b"x"),
        lambda: store.create("a/k", b"x"),
        lambda: store.delete(["a/k"]),
        lambda: list(store.list("a/k/")),
        lambda: store.list_dir("a/k/"),
    ):
        with pytest.raises(kind, match=r"a/k") as caught:
            action()
        assert type(caught.value) is kind
        assert str(error.args[-1]) in str(caught.value)
        assert caught.value.__cause__ is error
    Slow.clear_instance_cache()


def test_an_answer_of_another_length_is_never_taken():
    class Deaf(Slow):
        """Ignores ranges, as some servers do."""

        protocol = "deaf"

        async def _cat_file(self, path, start=None, end=None, **_):
            return await super()._cat_file(path)

    store = FsspecStore(Deaf(disk=uuid.uuid4().hex), "b")
    store.put("a", b"0123456789")
    with pytest.raises(OSError, match=r"'a'.*asked for 3 bytes of it, and got 10"):
        store.get_range("a", 2, 3)
    with pytest.raises(ShortReadError, match="10 bytes"):
        store.get_range("a", 8, 3)


def test_several_ranges_are_asked_for_at_once(monkeypatch):
    store = FsspecStore(Slow(disk=uuid.uuid4().hex), "b")
    store.put("a", bytes(range(100)))
    calls = []
    real = Slow._cat_file
    under_way = 0

    async def counted(self, path, start=None, end=None, **options):
        nonlocal under_way
        under_way += 1
        await asyncio.sleep(0.01)
        calls.append(under_way)
        under_way -= 1
        return await real(self, path, start, end)

    monkeypatch.setattr(Slow, "_cat_file", counted)
    assert store.read("a", [(0, 2), (50, 3), (97, 3)]).parts == [b"\0\1", b"234", b"abc"]
    assert max(calls) == 3


def test_pickling_and_forking_keep_the_files():
    store = FsspecStore(Slow(disk="forks"), "b")
    store.put("a", b"x")
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    assert copy.get("a") == b"x"
    assert fork(lambda: store.get("a") == b"x" and store.list_dir() == (["a"], []))()
    memory = in_memory()
    memory.put("a", b"x")
    assert pickle.loads(pickle.dumps(memory)).get("a") == b"x"
    assert fork(lambda: memory.get("a") == b"x")()


# -- arrays, and other file systems ---------------------------------------------------------------


@pytest.mark.parametrize("make", [in_memory, lambda: FsspecStore(Slow(disk=uuid.uuid4().hex), "b")])
def test_arrays_and_groups_come_back(make):
    store = make()
    check_arrays(store)
    check_groups(store)
    again = pickle.loads(pickle.dumps(store.as_read_only()))
    check_arrays(again, written=True)
    check_groups(again, written=True)


def test_zarr_python_reads_the_same_files():
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    store = in_memory()
    model = np.arange(60).reshape(6, 10)
    zellige.create_array(store, data=model, chunks=(4, 3))
    theirs = zarr.storage.MemoryStore()
    for key in store.list():
        theirs._store_dict[key] = zarr.core.buffer.cpu.Buffer.from_bytes(store.get(key))
    assert np.array_equal(zarr.open_array(theirs, mode="r")[...], model)


def test_an_archive_is_read_through_fsspec_and_a_file_of_it_by_us(tmp_path):
    model = np.arange(20).reshape(4, 5)
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        zellige.create_array(store, data=model, chunks=[[1, 3], 2])
    through = FsspecStore.from_url(f"zip::file://{tmp_path}/x.zip", read_only=True)
    assert np.array_equal(zellige.open_array(through)[...], model)
    memory = in_memory()
    memory.put("x.zip", (tmp_path / "x.zip").read_bytes())
    assert np.array_equal(zellige.open_array(ZipStore((memory, "x.zip")))[...], model)


def test_a_cache_in_front_keeps_what_was_read(tmp_path):
    memory = in_memory()
    zellige.create_array(memory, data=np.arange(10), chunks=4)
    cached = FsspecStore.from_url(
        f"simplecache::memory://{memory._root}", {"simplecache": {"cache_storage": str(tmp_path)}}, read_only=True
    )
    assert np.array_equal(zellige.open_array(cached)[...], np.arange(10))
    assert len(list(tmp_path.iterdir())) >= 4


def test_references_into_other_files_are_read(tmp_path):
    model = np.arange(12, dtype="<i4")
    (tmp_path / "data.bin").write_bytes(b"head" + model.tobytes())
    made = MemoryStore()
    zellige.create_array(made, shape=12, dtype="<i4", chunks=6, compressors=None, fill_value=0)
    references = {
        "zarr.json": made.get("zarr.json").decode(),
        "c/0": [str(tmp_path / "data.bin"), 4, 24],
        "c/1": [str(tmp_path / "data.bin"), 28, 24],
    }
    fs = fsspec.filesystem("reference", fo=references, remote_protocol="file")
    store = FsspecStore(fs, read_only=True)
    assert np.array_equal(zellige.open_array(store)[...], model)
    assert sorted(store.list()) == sorted(references)


def test_a_server_that_fails_is_an_error_that_names_the_key():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status = 404 if "missing" in self.path else 403
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_args):
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = FsspecStore.from_url(f"http://127.0.0.1:{server.server_port}/x", read_only=True)
        assert store.get("missing") is None
        with pytest.raises(OSError, match=r"'c/0'.*403"):
            store.get("c/0")
        server.shutdown()
    with pytest.raises(OSError, match="'c/0'"):
        store.get("c/0")
