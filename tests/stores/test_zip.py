from __future__ import annotations

import copy
import io
import os
import pathlib
import pickle
import shutil
import signal
import stat
import struct
import subprocess
import sys
import textwrap
import threading
import zipfile
import zlib
from dataclasses import replace

import numpy as np
import pytest
from node_laws import check_arrays, check_groups
from store_suite import WRITING, StoreSuite

import zellige
from running import fork, run_threads
from zellige.errors import BadArchiveError, ConflictError, ReadOnlyError, StoreKeyError, ZelligeWarning
from zellige.stores import MemoryStore
from zellige.stores.locks import FileLock
from zellige.stores.zip import TAIL, Draft, Entry, ZipStore


class TestZipStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        with ZipStore(tmp_path / "x.zip", mode="w") as store:
            yield store
        assert zipfile.ZipFile(tmp_path / "x.zip").testzip() is None

    @pytest.mark.parametrize("method", WRITING)
    def test_read_only_refuses_to_write(self, store, method):
        """A view of an archive that is being written is not pickled, as the archive is not whole yet."""
        store.put("k/l", b"old")
        view = store.as_read_only()
        assert view.read_only
        assert "read_only=True" in repr(view)
        for key in ("k", "/no/key"):
            with pytest.raises(ReadOnlyError):
                WRITING[method](view, key)
        view.close()
        assert view.get("k/l") == b"old"

    def test_pickling_keeps_values_and_mode(self, store):
        """One process writes an archive; what is pickled is an archive that is read."""
        for unfinished in (store, store.as_read_only()):
            with pytest.raises(TypeError, match="open for writing"):
                pickle.dumps(unfinished)


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "x.zip"


def names(path: pathlib.Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return sorted(archive.namelist())


def write(path: pathlib.Path, values: dict[str, bytes], mode: str = "w", **options) -> None:
    with ZipStore(path, mode=mode, **options) as store:
        for key, value in values.items():
            store.put(key, value)


def zip_of(values: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive as other tools write it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, value in values.items():
            archive.writestr(name, value)
    return file.getvalue()


def only(path: pathlib.Path) -> list[str]:
    return sorted(os.listdir(path.parent))


# -- what is written ------------------------------------------------------------------------------


def test_the_archive_holds_exactly_the_last_values_uncompressed(path):
    with ZipStore(path, mode="w") as store:
        for turn in range(5):
            store.put("zarr.json", b'{"turn": %d}' % turn)
            store.put("c/0", b"%d" % turn * 100)
            store.put("c/1", b"%d" % turn * 100)
        store.delete(["c/1"])
        assert not path.exists()
    with zipfile.ZipFile(path) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "c/0": b"4" * 100,
            "zarr.json": b'{"turn": 4}',
        }
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert all(stat.S_ISREG(info.external_attr >> 16) for info in archive.infolist())
    assert path.read_bytes().count(b"PK\3\4") == 2, "nothing is left of what was written over"
    assert only(path) == ["x.zip"]


def test_the_same_values_give_the_same_bytes(path, tmp_path):
    for place in (path, tmp_path / "y.zip"):
        write(place, {"a/zarr.json": b"{}", "a/c/0": b"x", "ü": b"y"})
    assert path.read_bytes() == (tmp_path / "y.zip").read_bytes()


def test_documents_are_written_once_at_the_end(path):
    with ZipStore(path, mode="w") as store:
        group = zellige.group(store)
        for number in range(50):
            group.attrs["n"] = number
        (draft,) = path.parent.iterdir()
        assert draft.stat().st_size == 0
    assert names(path) == ["zarr.json"]
    assert zellige.open_group(ZipStore(path)).attrs["n"] == 49


def test_an_archive_is_changed_and_the_rest_kept_as_it_is_stored(path):
    path.write_bytes(zip_of({"a/0": b"zero" * 1000, "a/1": b"one" * 1000, "b": b"b"}))
    packed = zipfile.ZipFile(path).getinfo("a/1").compress_size
    with ZipStore(path, mode="r+") as store:
        store.put("a/0", b"new")
        store.delete(["b"])
        store.put("c", b"c")
        assert store.get("a/1") == b"one" * 1000
    assert names(path) == ["a/0", "a/1", "c"]
    assert zipfile.ZipFile(path).getinfo("a/1").compress_size == packed
    assert {key: ZipStore(path).get(key) for key in ("a/0", "a/1", "b", "c")} == {
        "a/0": b"new",
        "a/1": b"one" * 1000,
        "b": None,
        "c": b"c",
    }


def test_an_archive_that_nothing_changed_is_not_written_again(path):
    path.write_bytes(zip_of({"a": b"x"}))
    before = path.stat()
    with ZipStore(path, mode="a") as store:
        store.delete(["b"])
        assert not store.create("a", b"y")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_modes(path):
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError, match=r"x\.zip"):
            ZipStore(path, mode=mode)
    write(path, {}, mode="a")
    assert names(path) == []
    write(path, {"a": b"1"}, mode="a")
    write(path, {"b": b"2"}, mode="r+")
    assert names(path) == ["a", "b"]
    with pytest.raises(FileExistsError, match="mode='w'"):
        ZipStore(path, mode="x")
    write(path, {"c": b"3"}, mode="w")
    assert names(path) == ["c"]
    path.unlink()
    write(path, {"d": b"4"}, mode="x")
    assert names(path) == ["d"]
    assert ZipStore(path).read_only
    assert ZipStore(path, read_only=True, mode="a").read_only
    with ZipStore(path, read_only=False) as store:
        assert not store.read_only
    for mode, read_only in (("r", False), ("w", True), ("x", True)):
        with pytest.raises(ValueError, match="contradicts"):
            ZipStore(path, mode=mode, read_only=read_only)
    with pytest.raises(ValueError, match="'r', 'r\\+'"):
        ZipStore(path, mode="rb")
    with pytest.raises(TypeError, match="an archive is"):
        ZipStore(5)
    assert only(path) == ["x.zip"]


def test_an_archive_that_somebody_made_meanwhile_is_not_replaced_by_mode_x(path):
    store = ZipStore(path, mode="x")
    store.put("a", b"mine")
    write(path, {"a": b"theirs"})
    with pytest.raises(FileExistsError, match="meanwhile"):
        store.close()
    assert ZipStore(path).get("a") == b"theirs"
    assert only(path) == ["x.zip"]


@pytest.mark.parametrize("before", [{"a": b"old"}, None])
def test_an_archive_that_was_replaced_meanwhile_is_a_conflict(path, before):
    if before is not None:
        write(path, before)
    first, second = ZipStore(path, mode="a"), ZipStore(path, mode="a")
    first.put("a", b"first")
    second.put("a", b"second")
    first.close()
    with pytest.raises(ConflictError, match="replaced meanwhile"):
        second.close()
    assert ZipStore(path).get("a") == b"first"
    assert only(path) == ["x.zip"]


# -- when something goes wrong --------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r+", "a", "w"])
def test_an_exception_keeps_the_old_archive(path, mode):
    write(path, {"zarr.json": b"{}", "c/0": b"old"})
    before = path.read_bytes()
    store = ZipStore(path, mode=mode)

    def work() -> None:
        with store:
            store.put("c/0", b"new")
            store.put("zarr.json", b"new")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        work()
    assert path.read_bytes() == before
    assert only(path) == ["x.zip"]
    with pytest.raises(ValueError, match="closed"):
        store.get("c/0")


@pytest.mark.parametrize("moment", ["finish", "add", "copy"])
def test_a_failure_while_closing_keeps_the_old_archive(path, moment, monkeypatch):
    write(path, {"zarr.json": b"{}", "c/0": b"old", "c/1": b"old"})
    before = path.read_bytes()
    store = ZipStore(path, mode="r+")
    store.put("c/0", b"one")
    store.put("c/0", b"two")
    store.put("zarr.json", b"new")

    def fail(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"zellige.stores.zip.Draft.{moment}", fail)
    with pytest.raises(OSError, match="the archive cannot be completed: No space") as caught:
        store.close()
    assert (caught.value.errno, caught.value.filename) == (28, str(path))
    assert path.read_bytes() == before
    assert only(path) == ["x.zip"]


def test_a_value_that_could_not_be_written_is_not_there(path, monkeypatch):
    with ZipStore(path, mode="w") as store:
        store.put("a", b"old")
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", lambda fd, data, at: (_ for _ in ()).throw(OSError(28, "No space left")))
            with pytest.raises(OSError, match="No space"):
                store.put("b", b"new")
        assert sorted(store.list()) == ["a"]
    assert names(path) == ["a"]


def test_a_killed_writer_leaves_the_old_archive_and_the_next_one_cleans_up(path):
    write(path, {"c/0": b"old"})
    before = path.read_bytes()
    program = """
        import os, signal, sys
        from zellige.stores.zip import ZipStore
        store = ZipStore(sys.argv[1], mode="r+")
        store.put("c/0", b"new" * 1000)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    source = str(pathlib.Path(zellige.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), path], env={**os.environ, "PYTHONPATH": source}
    )
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert len(only(path)) == 2
    with ZipStore(path, mode="r+") as store:
        assert store.get("c/0") == b"old"
    assert only(path) == ["x.zip"]


def test_a_store_that_is_forgotten_warns_and_keeps_the_old_archive(path):
    store = ZipStore(path, mode="w")
    store.put("a", b"x")
    with pytest.warns(ZelligeWarning, match="was not closed"):
        del store
    assert only(path) == []


def test_closing_twice_is_once_and_a_closed_store_says_so(path):
    store = ZipStore(path, mode="w")
    store.put("a", b"x")
    store.close()
    store.close()
    store.discard()
    for action in (
        lambda: store.get("a"),
        lambda: store.put("a", b"y"),
        lambda: store.list(),
        lambda: store.list_dir(),
    ):
        with pytest.raises(ValueError, match="closed"):
            action()
    assert names(path) == ["a"]


@pytest.mark.parametrize("mode", ["w", "x", "a"])
def test_an_archive_that_cannot_be_written_is_named_and_not_its_draft(tmp_path, mode):
    path = tmp_path / "missing" / "x.zip"
    with pytest.raises(FileNotFoundError, match="its directory does not exist; create it") as caught:
        ZipStore(path, mode=mode)
    assert (caught.value.filename, "tmp-" in str(caught.value)) == (str(path), False)


@pytest.mark.parametrize("mode", ["r", "r+", "a", "w"])
def test_a_directory_in_the_place_of_an_archive_is_refused_at_once(tmp_path, mode):
    with pytest.raises(IsADirectoryError) as caught:
        ZipStore(tmp_path, mode=mode)
    assert caught.value.filename == str(tmp_path)


@pytest.mark.parametrize("mode", ["w", "r+"])
def test_closing_waits_for_writers_and_refuses_later_ones(path, monkeypatch, mode):
    if mode == "r+":
        path.write_bytes(zip_of({}))
    before = path.read_bytes() if path.exists() else None
    store = ZipStore(path, mode=mode)
    begun, go = threading.Event(), threading.Event()
    real = os.pwritev

    def slow(fd, data, at):
        if not begun.is_set():
            begun.set()
            go.wait(10)
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwritev", slow)
    writer = threading.Thread(target=store.put, args=("c/0", b"x" * 1000))
    writer.start()
    begun.wait(10)
    closer = threading.Thread(target=store.close)
    closer.start()
    while not store._archive._closed:
        closer.join(0.001)
    with pytest.raises(ValueError, match="closed"):
        store.put("c/1", b"y")
    assert (path.read_bytes() if path.exists() else None) == before
    go.set()
    writer.join()
    closer.join()
    assert names(path) == ["c/0"]


def test_the_permissions_of_the_archive_and_a_link_to_it_stay(path, tmp_path):
    write(path, {"a": b"x"})
    path.chmod(0o640)
    link = tmp_path / "link.zip"
    link.symlink_to(path)
    write(link, {"b": b"y"}, mode="r+")
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(path) == ["a", "b"]


def test_names_that_no_archive_can_hold_are_refused(path):
    with ZipStore(path, mode="w") as store:
        for key in ("\udc80", "x" * 65536):
            with pytest.raises(StoreKeyError):
                store.put(key, b"x")
        store.put("x" * 65535, b"x")
    assert names(path) == ["x" * 65535]


# -- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_of_other_tools_are_read(path, compression):
    values = {"zarr.json": b"{}", "c/0/0": bytes(range(256)) * 1000, "empty": b"", "ünï/数据": b"x"}
    path.write_bytes(b"prepended" + zip_of(values, compression))
    store = ZipStore(path)
    assert sorted(store.list()) == sorted(values)
    for key, value in values.items():
        assert store.get(key) == bytes(store.get(key)) == value
        assert store.size(key) == len(value)
        assert store.read(key, [(0, None), (-len(value), 0)]).parts == [value, b""]
    assert store.get_range("c/0/0", 300, 10) == values["c/0/0"][300:310]


def test_an_archive_that_was_written_as_a_stream_is_read(path):
    class Unseekable(io.RawIOBase):
        """Makes zipfile put sizes behind the data instead of before it."""

        def __init__(self, file):
            self.file = file

        def writable(self):
            return True

        def write(self, data):
            return self.file.write(data)

    with open(path, "wb") as file, zipfile.ZipFile(Unseekable(file), "w") as archive:
        archive.writestr("a", b"value" * 100)
        archive.writestr("b", b"other")
    assert ZipStore(path).get("a") == b"value" * 100
    assert ZipStore(path).get_range("a", 5, 5) == b"value"
    write(path, {"c": b"c"}, mode="r+")
    assert names(path) == ["a", "b", "c"]


def test_a_range_reads_nothing_else(path, monkeypatch):
    write(path, {"c/0": bytes(10_000_000)})
    store, read = ZipStore(path), []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: read.append(n) or real(fd, n, at))
    assert store.get_range("c/0", 5_000_000, 10) == bytes(10)
    assert len(read) == 2
    assert sum(read) < 1000
    assert store.get_range("c/0", 6_000_000, 10) == bytes(10)
    assert read[2:] == [10]


def test_a_file_object_is_read_by_one_thread_at_a_time():
    values = {f"c/{n}": bytes([n]) * 1000 for n in range(20)}
    store = ZipStore(io.BytesIO(zip_of(values, zipfile.ZIP_STORED)))
    run_threads(4, lambda _: [store.get(key) for key in values] == list(values.values()) or pytest.fail("mixed"))
    with pytest.raises(TypeError, match="file object"):
        pickle.dumps(store)
    with pytest.raises(ValueError, match="by its path"):
        ZipStore(io.BytesIO(), mode="w")


def test_folders_are_listed_but_hold_no_key(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("a") if hasattr(archive, "mkdir") else archive.writestr("a/", b"")
        archive.writestr("a/b/c", b"x")
    store = ZipStore(path)
    assert list(store.list()) == ["a/b/c"]
    assert store.list_dir() == ([], ["a/"])
    assert store.list_dir("a/") == ([], ["a/b/"])
    assert store.get("a") is None


def test_a_store_that_is_read_may_be_pickled_and_forked(path):
    values = {f"c/{n}": b"%d" % n * 1000 for n in range(50)}
    write(path, values)
    store = ZipStore(path)
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    assert again != ZipStore(path, path="c")
    assert again.get("c/7") == values["c/7"]

    def read() -> bool:
        return all(store.get(key) == value for key, value in values.items())

    children = [fork(read) for _ in range(2)]
    assert read()
    assert all(child() for child in children)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_holds_a_descriptor_is_never_copied(path, duplicate):
    write(path, {"a": b"x"})
    store = ZipStore(path)
    with ZipStore(path, mode="r+") as changed, FileLock.taken(f"{path}.lock") as lock:
        changed.put("b", b"y")
        for owner in (store._archive._base.file, changed._archive._draft, lock):
            with pytest.raises(TypeError, match="cannot"):
                duplicate(owner)
        lock.remove()
    assert store.get("a") == b"x"
    assert {type(found) for found in store._archive.entries.values()} == {Entry}


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_tag_is_plain(path, mode):
    write(path, {"a": b"x"})
    with ZipStore(path, mode=mode) as store:
        (value,), _, tag = store.read("a", [(0, None)])
        assert (value, type(tag)) == (b"x", str)
        assert ZipStore(path).read("a", []).tag == tag
    write(path, {"a": b"x"})
    assert ZipStore(path).read("a", []).tag != tag


def test_a_forked_process_cannot_write_nor_close_what_its_parent_writes(path):
    with ZipStore(path, mode="w") as store:
        store.put("a", b"x")

        def work() -> bool:
            assert store.get("a") == b"x"
            try:
                store.put("a", b"y")
            except ValueError as error:
                store.close()
                return "not by a fork" in str(error)
            return False

        assert fork(work)()
        store.put("b", b"y")
    assert names(path) == ["a", "b"]


# -- the root -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "root"),
    [
        (["zarr.json", "a/zarr.json"], ""),
        (["a/zarr.json", "a/c/0"], "a/"),
        (["a/.zgroup", "a/b/.zarray", "__MACOSX/a/._zarr.json"], "a/"),
        (["a/b/zarr.json"], ""),
        (["a/zarr.json", "b/zarr.json"], ""),
        (["a/zarr.json", "readme.txt"], ""),
        ([], ""),
    ],
)
def test_one_folder_that_is_a_node_is_the_root(path, given, root):
    path.write_bytes(zip_of(dict.fromkeys(given, b"{}")))
    inside = [name.removeprefix(root) for name in given if name.startswith(root)]
    assert sorted(ZipStore(path).list()) == sorted(inside)
    assert sorted(ZipStore(path, path="").list()) == sorted(given)
    assert sorted(ZipStore(path, path="/a/").list()) == sorted(n[2:] for n in given if n.startswith("a/"))


def test_what_lies_beside_the_root_is_kept(path):
    path.write_bytes(zip_of({"a/zarr.json": b"{}", "a/c/0": b"0", "__MACOSX/x": b"x"}))
    with ZipStore(path, mode="r+") as store:
        store.put("c/1", b"1")
        store.delete_prefix("")
        store.put("c/2", b"2")
        assert "path='a'" in repr(store)
    assert names(path) == ["__MACOSX/x", "a/c/2"]
    with pytest.raises(StoreKeyError):
        ZipStore(path, path="../x")


@pytest.fixture
def zipped(tmp_path) -> pathlib.Path:
    """An archive with a directory `x.zarr` in it, as `zip -r` makes it."""
    root = zellige.create_group(tmp_path / "in" / "x.zarr", attributes={"title": "tides"})
    root.create_array("t", data=np.arange(10), chunks=[[3, 7]])
    return pathlib.Path(shutil.make_archive(str(tmp_path / "out"), "zip", tmp_path / "in"))


def test_the_one_folder_is_reached_by_its_name_too(zipped):
    for path in ("", "x.zarr", "/x.zarr/"):
        assert zellige.open_group(zipped, path=path, mode="r").attrs["title"] == "tides"
    for path in ("t", "x.zarr/t"):
        assert zellige.open_array(zipped, path=path, mode="r")[...].tolist() == list(range(10))
    assert zellige.open_group(zipped, mode="r")["x.zarr/t"][4] == 4
    assert list(zellige.open_group(zipped, path="x.zarr", mode="r")) == ["t"]
    store = ZipStore(zipped)
    assert sorted(store.list("x.zarr/")) == sorted(f"x.zarr/{key}" for key in store.list())
    keys, prefixes = store.list_dir("x.zarr/")
    assert keys == ["x.zarr/zarr.json"]
    assert prefixes == ["x.zarr/t/"]
    assert store.get("x.zarr/zarr.json") == store.get("zarr.json")
    assert not store.exists("x.zar/zarr.json")
    assert list(store.list("x.zarr/x.zarr/")) == []


def test_what_is_written_by_the_name_of_the_folder_is_in_that_folder(zipped):
    with ZipStore(zipped, mode="r+") as store:
        zellige.open_array(store, path="x.zarr/t")[0] = 7
        zellige.create_array(store, name="x.zarr/new", data=[1, 2])
        del zellige.open_group(store)["new"]
        assert store.lock_here("x.zarr/a") is store.lock_here("a")
        store.put("x.zarr/left", b"")
    assert names(zipped) == ["x.zarr/left", "x.zarr/t/c/0", "x.zarr/t/c/1", "x.zarr/t/zarr.json", "x.zarr/zarr.json"]
    assert zellige.open(zipped, path="t", mode="r")[:2].tolist() == [7, 1]


def test_a_member_that_has_the_name_of_the_folder_comes_first(path):
    path.write_bytes(zip_of({"a/zarr.json": b"outer", "a/a/zarr.json": b"inner", "a/b": b"b"}))
    store = ZipStore(path)
    assert store.get("zarr.json") == b"outer"
    assert store.get("a/zarr.json") == b"inner"
    assert store.get("a/b") is None
    assert ZipStore(path, path="").get("a/zarr.json") == b"outer"


# -- archives that are damaged, or meant to do harm -----------------------------------------------


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/\0b", "..", "../"])
def test_a_name_that_leaves_the_archive_is_refused(path, name):
    # As long as the name is, so that it can be put in its place.
    path.write_bytes(zip_of({"good": b"x", "n" * len(name): b"x"}).replace(b"n" * len(name), name.encode()))
    with pytest.raises(BadArchiveError, match="relative names"):
        ZipStore(path)


def test_of_a_name_that_is_there_twice_the_last_one_counts_unless_that_is_to_be_an_error(path):
    data = bytearray(zip_of({"a": b"first", "b": b"second"}, zipfile.ZIP_STORED))
    for at in (data.find(b"bsecond"), data.rfind(b"b")):
        data[at : at + 1] = b"a"
    path.write_bytes(data)
    assert ZipStore(path).get("a") == b"second"
    assert pickle.loads(pickle.dumps(ZipStore(path))).get("a") == b"second"
    with pytest.raises(BadArchiveError, match=r"'a'.*twice"):
        ZipStore(path, duplicates="error")
    with pytest.raises(ValueError, match="'error' or 'last'"):
        ZipStore(path, duplicates="first")
    write(path, {"c": b"new"}, mode="r+")
    assert names(path) == ["a", "c"], "what was written over is not carried on"
    assert b"first" not in path.read_bytes()


def test_entries_of_one_name_that_share_bytes_are_refused_all_the_same(path):
    data = bytearray(zip_of({"a": b"x" * 100, "b": b"y" * 100}, zipfile.ZIP_STORED))
    for at in (data.find(b"b" + b"y" * 100), data.rfind(b"b")):
        data[at : at + 1] = b"a"
    struct.pack_into("<L", data, data.find(b"PK\1\2") + 20, 150)  # what is written over reaches into the other
    struct.pack_into("<L", data, data.find(b"PK\1\2") + 24, 150)
    path.write_bytes(data)
    with pytest.raises(BadArchiveError, match="reach into what follows"):
        ZipStore(path)


def test_a_cut_archive_is_refused_wherever_it_is_cut(path):
    write(path, {"a": b"0123456789", "b": b"x" * 50, "zarr.json": b"{}"})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(BadArchiveError, match=r"x\.zip"):
            ZipStore(path)


def test_no_flipped_byte_gives_a_wrong_value(path):
    values = {"a": b"0123456789" * 3, "b": b"x" * 40}
    for archive in (zip_of(values, zipfile.ZIP_STORED), zip_of(values)):
        for at in range(len(archive)):
            damaged = bytearray(archive)
            damaged[at] ^= 0x41
            path.write_bytes(damaged)
            try:
                store = ZipStore(path)
                found = {key: store.get(key) for key in store.list()}
            except BadArchiveError:
                continue
            for key, value in found.items():
                # A changed name is another key; no value is another than one of these.
                assert value in values.values(), (at, key)


def test_a_wrong_checksum_names_the_entry(path):
    write(path, {"c/0": b"0123456789"})
    path.write_bytes(path.read_bytes().replace(b"0123456789", b"0123456780"))
    store = ZipStore(path)
    assert store.get_range("c/0", 0, 3) == b"012"
    with pytest.raises(BadArchiveError, match=r"'c/0'.*x\.zip.*checksum") as caught:
        store.get("c/0")
    assert caught.value.key == "c/0"


def test_a_value_never_takes_more_memory_than_declared(path):
    data = bytearray(zip_of({"bomb": bytes(50_000_000)}))
    for signature, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<L", data, data.find(signature) + place, 100)
    path.write_bytes(data)
    sizes, real = [], zlib.decompressobj

    class Counted:
        def __init__(self, *args):
            self.engine = real(*args)

        def decompress(self, raw, most):
            value = self.engine.decompress(raw, most)
            sizes.append(len(value))
            return value

        @property
        def eof(self):
            return self.engine.eof

    store = ZipStore(path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zlib, "decompressobj", Counted)
        with pytest.raises(BadArchiveError, match="100 bytes"):
            store.get("bomb")
    assert sizes == [101]


def test_entries_that_share_bytes_are_refused(path):
    data = bytearray(zip_of({"a": b"x" * 100, "b": b"y" * 100}, zipfile.ZIP_STORED))
    second = data.rfind(b"PK\1\2")
    struct.pack_into("<L", data, second + 42, 0)
    path.write_bytes(data)
    store = ZipStore(path)
    assert store.get("a") == b"x" * 100
    for read in (store.get, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(BadArchiveError, match="another entry"):
            read("b")
    struct.pack_into("<L", data, second + 42, 40)
    path.write_bytes(data)
    with pytest.raises(BadArchiveError, match="reach into what follows"):
        ZipStore(path)


@pytest.mark.parametrize(("offset", "value", "words"), [(8, 1, "encrypted"), (10, 93, "compression 93")])
def test_what_cannot_be_read_is_said(path, offset, value, words):
    data = bytearray(zip_of({"a": b"x"}))
    struct.pack_into("<H", data, data.find(b"PK\1\2") + offset, value)
    path.write_bytes(data)
    with pytest.raises(BadArchiveError, match=words):
        ZipStore(path)


@pytest.mark.parametrize("content", [b"", b"no archive", bytes(100_000)])
def test_what_is_no_archive_is_said(path, content):
    path.write_bytes(content)
    for mode in ("r", "r+", "a"):
        with pytest.raises(BadArchiveError, match=r"x\.zip.*no zip archive"):
            ZipStore(path, mode=mode)
    assert only(path) == ["x.zip"]
    with pytest.raises(IsADirectoryError):
        ZipStore(path.parent)


def test_an_archive_that_is_cut_while_it_is_open(path):
    write(path, {"c/0": bytes(1_000_000), "c/1": bytes(1_000_000)})
    store = ZipStore(path)
    os.truncate(path, 500_000)
    for read in (lambda: store.get("c/0"), lambda: store.get("c/1"), lambda: store.get_range("c/0", 999_000, 10)):
        with pytest.raises(BadArchiveError, match="cut short"):
            read()


# -- large archives -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [65534, 65535, 65536])
def test_more_entries_than_16_bits_count(count, path):
    with ZipStore(path, mode="w") as store:
        for number in range(count):
            store.put(f"{number}", b"")
    assert len(zipfile.ZipFile(path).infolist()) == count
    assert sum(1 for _ in ZipStore(path).list()) == count
    assert (b"PK\6\6" in path.read_bytes()) == (count > 65535)


def test_entries_beyond_4_gib(path):
    with ZipStore(path, mode="w") as store:
        store.put("a", b"first")
        store._archive._draft.size = 5 << 30  # a hole in the file
        store.put("b", b"second")
        store.put("zarr.json", b"{}")
    if path.stat().st_blocks * 512 > 1 << 30:
        path.unlink()
        pytest.skip("a file system without holes")
    assert ZipStore(path).get("b") == b"second"
    with zipfile.ZipFile(path) as archive:
        assert (archive.read("a"), archive.read("b")) == (b"first", b"second")
    path.unlink()


def test_a_value_of_more_than_4_gib_is_declared_in_64_bits(path):
    size, draft = (5 << 30) + 1, Draft(str(path))
    draft.finish([Entry(draft, "big", 7, 8, size, size, crc=1)], os.replace)
    (info,) = zipfile.ZipFile(path).infolist()
    assert (info.file_size, info.compress_size, info.header_offset) == (size, size, 7)


# -- archives elsewhere ---------------------------------------------------------------------------


class Counting(MemoryStore):
    """Notes each request."""

    def __init__(self, data, **options):
        super().__init__(data, **options)
        self.traits = replace(self.traits, concurrency=64)
        self.requests: list[tuple[str, int]] = []

    def __reduce__(self):
        return Counting, (self._data,)

    def read(self, key, spans=None):
        assert spans is not None, "the whole archive was read"
        found = super().read(key, spans)
        self.requests += [("range", len(part)) for part in found.parts] if spans else [("size", 0)]
        return found


def test_an_archive_in_another_store_is_read_by_few_ranges(path):
    model = np.arange(4_000_000, dtype="i4").reshape(2000, 2000)
    with ZipStore(path, mode="w") as store:
        zellige.create_array(store, data=model, chunks=500, compressors=None)
    elsewhere = Counting({"x.zip": path.read_bytes()})
    store = ZipStore((elsewhere, "x.zip"))
    assert store.traits.concurrency == 64
    array = zellige.open_array(store)
    assert elsewhere.requests == [("size", 0), ("range", TAIL)], "the directory, and the document beside it"
    elsewhere.requests.clear()
    assert np.array_equal(array[...], model)
    chunks = elsewhere.requests
    assert len(chunks) <= 16 + 1  # the last chunk lies partly in what is known
    assert sum(n for _, n in chunks) < model.nbytes * 1.01
    elsewhere.requests.clear()
    assert array[3, 4] == model[3, 4]
    assert len(elsewhere.requests) == 1
    assert elsewhere.requests[0][1] <= 2000
    copy = pickle.loads(pickle.dumps(store))
    assert np.array_equal(zellige.open_array(copy)[:5], model[:5])


def test_a_large_directory_takes_one_request_more():
    data = zip_of({f"{'long' * 25}/{n}": b"" for n in range(2000)}, zipfile.ZIP_STORED)
    elsewhere = Counting({"x.zip": data})
    assert sum(1 for _ in ZipStore((elsewhere, "x.zip")).list()) == 2000
    assert [what for what, _ in elsewhere.requests] == ["size", "range", "range"]
    assert sum(n for _, n in elsewhere.requests) <= len(data)


def test_an_archive_elsewhere_is_only_read(path):
    with pytest.raises(ValueError, match="by its path"):
        ZipStore((MemoryStore(), "x.zip"), mode="w")
    with pytest.raises(FileNotFoundError, match=r"'x\.zip'"):
        ZipStore((MemoryStore(), "x.zip"))
    store = MemoryStore({"x.zip": zip_of({"a": bytes(TAIL * 2)}, zipfile.ZIP_STORED)})
    archive = ZipStore((store, "x.zip"))
    assert archive == ZipStore((store, "x.zip"))
    store.delete(["x.zip"])
    with pytest.raises(FileNotFoundError, match="removed"):
        archive.get("a")


# -- arrays and groups, and zarr-python -----------------------------------------------------------


def test_arrays_and_groups_come_back(path):
    with ZipStore(path, mode="w") as store:
        check_arrays(store)
        check_groups(store)
    kept = ZipStore(path)
    check_arrays(kept, written=True)
    check_groups(kept, written=True)


@pytest.mark.parametrize("grid", ["regular", "rectilinear"])
def test_resizing_is_a_part_of_the_transaction(path, grid):
    model = np.arange(1, 71).reshape(10, 7)
    with ZipStore(path, mode="w") as store:
        array = zellige.create_array(
            store, shape=(10, 7), dtype="i8", chunks=(4, 3), chunk_grid=grid, fill_value=-1, compressors=None
        )
        array[...] = model
        array.append(model[:3])
        array.resize((6, 10))
        array.resize((10, 7))
    model[6:] = -1
    assert np.array_equal(zellige.open_array(ZipStore(path))[...], model)
    assert b"__zellige_pending" not in path.read_bytes()
    chunks = [name for name in names(path) if name != "zarr.json"]
    assert path.read_bytes().count(b"PK\3\4") == len(chunks) + 1


def test_threads_write_chunks_at_once(path):
    model = np.random.default_rng(1).normal(size=(400, 300))
    with ZipStore(path, mode="w") as store:
        array = zellige.create_array(store, shape=model.shape, dtype="f8", chunks=[[7, 93, 200, 100], 50])
        run_threads(4, lambda k: array.__setitem__(slice(k * 100, k * 100 + 100), model[k * 100 : k * 100 + 100]))
        assert np.array_equal(array[...], model)
    assert np.array_equal(zellige.open_array(ZipStore(path))[...], model)


def test_zarr_python_reads_what_we_write(path):
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    model = np.arange(60).reshape(6, 10)
    with ZipStore(path, mode="w") as store:
        group = zellige.group(store)
        for turn in range(3):
            group.attrs["turn"] = turn
        group.create_array("a", data=model, chunks=(3, 5))
        group.create_array("s", data=model, chunks=(3, 5), shards=(6, 10))
        group["a"][1, 1] = -1
    model[1, 1] = -1
    found = zarr.open_group(zarr.storage.ZipStore(path, mode="r"), mode="r")
    assert found.attrs["turn"] == 2
    assert np.array_equal(found["a"][...], model)
    assert found["s"][5, 9] == 59
    with ZipStore(path, mode="w") as store:
        zellige.create_array(store, data=model, chunks=(3, 5), zarr_format=2)
    assert np.array_equal(zarr.open_array(zarr.storage.ZipStore(path, mode="r"), mode="r")[...], model)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_we_read_and_change_what_zarr_python_writes(path, zarr_format):
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    model = np.arange(60).reshape(6, 10)
    theirs = zarr.storage.ZipStore(path, mode="w")
    group = zarr.create_group(theirs, zarr_format=zarr_format, attributes={"by": "zarr"})
    group.create_array("a", data=model, chunks=(3, 5))
    theirs.close()
    found = zellige.open_group(ZipStore(path))
    assert found.attrs["by"] == "zarr"
    assert np.array_equal(found["a"][...], model)
    with ZipStore(path, mode="r+") as store:
        zellige.open_group(store)["a"][0] = 7
        zellige.open_group(store).attrs["by"] = "both"
    model[0] = 7
    again = zarr.open_group(zarr.storage.ZipStore(path, mode="r"), mode="r")
    assert np.array_equal(again["a"][...], model)
    assert again.attrs["by"] == "both"


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_zarr_python_wrote_twice_is_read_as_it_does(path, zarr_format):
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    theirs = zarr.storage.ZipStore(path, mode="w")
    group = zarr.create_group(theirs, zarr_format=zarr_format)
    array = group.create_array("a", data=np.arange(6), chunks=(3,))
    group.attrs["turn"] = 1
    array[1:4] = -1
    theirs.close()
    twice = zipfile.ZipFile(path).namelist()
    assert len(twice) > len(set(twice)), "zarr-python writes nothing twice any more"
    found = zellige.open(str(path), mode="r")
    assert found.attrs["turn"] == 1
    assert found["a"][:].tolist() == [0, -1, -1, -1, 4, 5]
    with zellige.open(path, mode="r+") as root:
        root.attrs["turn"] = 2
        root["a"][0] = 9
    left = zipfile.ZipFile(path).namelist()
    assert sorted(left) == sorted(set(twice))
    again = zarr.open_group(zarr.storage.ZipStore(path, mode="r"), mode="r")
    assert again.attrs["turn"] == 2
    assert again["a"][:].tolist() == [9, -1, -1, -1, 4, 5]


def test_a_zipped_directory_is_opened_as_it_is(tmp_path):
    model = np.arange(10)
    zellige.create_array(tmp_path / "in" / "x.zarr", data=model, chunks=[[3, 7]])
    shutil.make_archive(str(tmp_path / "out"), "zip", tmp_path / "in")
    assert np.array_equal(zellige.open_array(ZipStore(tmp_path / "out.zip"))[...], model)


def test_readers_of_one_archive_do_not_wait_for_each_other(path):
    write(path, {f"c/{n}": bytes([n]) * 50_000 for n in range(32)})
    store, wrong = ZipStore(path), []

    def work(number: int) -> None:
        wrong.extend(n for n in range(32) if store.get_range(f"c/{n}", number * 1000, 1000) != bytes([n]) * 1000)

    run_threads(8, work)
    assert not wrong
