from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from store_suite import ALL, READING, StoreSuite, enter

import zellige.stores.local
from running import fork, run_threads
from zellige import kernel
from zellige.errors import UnsafeLinkError
from zellige.stores import LocalStore, base, files
from zellige.types import Kept


class TestLocalStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path) -> LocalStore:
        return LocalStore(tmp_path / "not yet there" / "x.zarr")


@pytest.fixture
def store(tmp_path) -> LocalStore:
    return LocalStore(tmp_path / "x.zarr")


def files_below(path: str | os.PathLike[str]) -> list[str]:
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)


def start_child(code: str, *args: str) -> subprocess.Popen[bytes]:
    """A Python process that runs the code, with the arguments in `args`."""
    source = str(pathlib.Path(zellige.stores.local.__file__).parents[2])
    program = "import signal, sys; args = sys.argv[1:]\nfrom zellige.stores import LocalStore\n" + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", program, *args], env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.PIPE
    )


# -- the directory --------------------------------------------------------------------------------


def test_values_are_plain_files_below_the_root(store):
    store.put("a/b", b"value")
    store.create("a/c", b"other")
    assert files_below(store.root) == [f"{store.root}/a/b", f"{store.root}/a/c"]
    assert pathlib.Path(store.root, "a", "b").read_bytes() == b"value"


def test_the_root_appears_with_the_first_write(store):
    for method in READING.values():
        assert not method(store, "k")
    assert not store.replace("k", b"x", "version")
    store.delete(["k"])
    store.delete_prefix("")
    assert not os.path.exists(store.root)
    store.put("k", b"x")
    assert os.path.isdir(store.root)


def test_removing_everything_keeps_the_root_only(store):
    store.put("a/b", b"x")
    pathlib.Path(store.root, "a", ".zellige-tmp-1-x").touch()
    store.delete_prefix("")
    assert os.listdir(store.root) == []


def test_removing_a_prefix_removes_its_directory(store):
    store.put("a/b/c", b"x")
    pathlib.Path(store.root, "a", "b", ".zellige-tmp-1-x").touch()
    store.delete_prefix("a/b/")
    assert os.listdir(f"{store.root}/a") == []


def test_nothing_leaves_the_root(store, tmp_path):
    pathlib.Path(tmp_path, "secret").write_bytes(b"secret")
    store.put("k", b"x")
    for method in ALL.values():
        for key in ("../secret", "a/../../secret", str(tmp_path / "secret")):
            with pytest.raises(ValueError, match="secret"):
                method(store, key)
    assert pathlib.Path(tmp_path, "secret").read_bytes() == b"secret"


def test_root_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = LocalStore("x/../y.zarr/")
    monkeypatch.chdir("/")
    assert store.root == str(tmp_path / "y.zarr")
    assert repr(store) == f"LocalStore({store.root!r})"
    assert repr(store.as_read_only()) == f"LocalStore({store.root!r}, read_only=True)"


@pytest.mark.parametrize("root", [b"x", 5, None])
def test_only_text_names_a_root(root):
    with pytest.raises(TypeError):
        LocalStore(root)


@pytest.mark.parametrize("root", ["", "a\0b"])
def test_an_impossible_root_is_refused(root):
    with pytest.raises(ValueError, match="NUL"):
        LocalStore(root)


def test_identity_looks_through_links(store, tmp_path):
    store.put("k", b"x")
    os.symlink(store.root, tmp_path / "link")
    link = LocalStore(tmp_path / "link")
    assert link == store
    assert hash(link) == hash(store)
    assert link != LocalStore(tmp_path)


def test_a_pickle_is_small_and_equal(store):
    assert store.identity
    data = pickle.dumps(store)
    assert len(data) < 150 + len(store.root)
    assert pickle.loads(data) == store


@pytest.mark.parametrize("links", ["inside", "anywhere"])
def test_links_are_followed_but_not_in_circles_and_not_when_removing(tmp_path, links):
    store, other = LocalStore(tmp_path / "x.zarr", links=links), LocalStore(tmp_path / "other")
    other.put("k", b"x")
    other.put("deep/l", b"y")
    store.put("a/m", b"z")
    os.symlink(other.root, f"{store.root}/link")
    os.symlink(other.root, f"{store.root}/a/link")
    os.symlink(store.root, f"{store.root}/a/up")
    os.symlink("/", f"{store.root}/a/top")
    os.symlink(store.root, f"{other.root}/back")
    os.symlink("nowhere", f"{store.root}/broken")
    if links == "anywhere":
        mine = {"a/m", "a/link/k", "a/link/deep/l", "link/k", "link/deep/l"}
        assert set(store.list()) >= mine
        assert all(key in mine or "/back/" in key for key in store.list())
        assert store.list_dir() == ([], ["a/", "link/"])
        assert store.get("link/deep/l") == b"y"
    else:
        assert list(store.list()) == ["a/m"]
        assert store.list_dir() == ([], ["a/"])
        with pytest.raises(UnsafeLinkError, match="'link/deep'"):
            store.get("link/deep/l")
    assert store.get("a/up/a/m") == b"z"
    store.delete_prefix("link/")
    store.delete_prefix("")
    assert set(LocalStore(other.root).list_dir("deep/")[0]) == {"deep/l"}
    assert other.get("k") == b"x"
    assert os.listdir(store.root) == []


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", READING)
def test_a_directory_in_the_place_of_a_value_raises(store, method):
    store.put("a/b", b"x")
    with pytest.raises(IsADirectoryError, match="'a'"):
        READING[method](store, "a")


@pytest.mark.parametrize("method", ["get", "get_range", "read a range", "size"])
@pytest.mark.parametrize("links", ["inside", "anywhere"])
def test_a_fifo_or_socket_or_device_raises(tmp_path, method, links):
    store = LocalStore(tmp_path / "x.zarr", links=links)
    store.put("k", b"x")
    os.mkfifo(f"{store.root}/fifo")
    writer = os.open(f"{store.root}/fifo", os.O_RDWR)
    os.write(writer, b"waiting")
    os.mkfifo(f"{store.root}/silent")
    os.symlink("silent", f"{store.root}/link")
    os.symlink("/dev/null", f"{store.root}/null")
    keys = ["fifo", "silent", "link", "socket"]
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(store.root, os.O_RDONLY)  # the path itself may be too long for a socket
        server.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        for key in [*keys, "null"] if links == "anywhere" else keys:
            with pytest.raises(OSError, match=f"'{key}': not a regular file") as caught:
                READING[method](store, key)
            assert caught.value.errno
    os.close(writer)
    if links == "inside":
        with pytest.raises(UnsafeLinkError, match="'null'"):
            READING[method](store, "null")
    assert list(store.list()) == ["k"]
    assert store.list_dir() == (["k"], [])


@pytest.mark.parametrize("method", ["get", "get_range", "size"])
@pytest.mark.parametrize(("links", "error"), [("inside", UnsafeLinkError), ("anywhere", OSError)])
def test_an_endless_device_raises(tmp_path, method, links, error):
    store = LocalStore(tmp_path / "x.zarr", links=links)
    store.put("k", b"x")
    os.symlink("/dev/zero", f"{store.root}/zero")
    with pytest.raises(error, match="leads out" if links == "inside" else "not a regular file"):
        READING[method](store, "zero")


@pytest.mark.parametrize("method", ["get", "get_range", "read a range"])
@pytest.mark.parametrize("call", ["open", "pread"])
def test_other_errors_name_the_key_and_keep_their_class(store, monkeypatch, method, call):
    def fail(*_args):
        raise PermissionError(errno.EACCES, "refused")

    store.put("a/k", b"x")
    monkeypatch.setattr(kernel, "native", None)  # the kernel leaves what fails to this path
    for name in (call, call + "v"):
        monkeypatch.setattr(os, name, fail, raising=False)
    with pytest.raises(PermissionError, match="'a/k'") as caught:
        READING[method](store, "a/k")
    assert caught.value.errno == errno.EACCES
    assert caught.value.filename == f"{store.root}/a/k"


@pytest.mark.skipif(os.geteuid() == 0, reason="root ignores permission bits")
def test_an_unreadable_file_raises(store):
    store.put("k", b"x")
    os.chmod(f"{store.root}/k", 0)
    with pytest.raises(PermissionError, match="'k'"):
        store.get("k")


def test_a_value_cannot_lie_below_a_value_nor_replace_a_directory(store):
    store.put("a/b", b"x")
    with pytest.raises(NotADirectoryError, match="'a/b/c'"):
        store.put("a/b/c", b"y")
    with pytest.raises(IsADirectoryError, match="'a'"):
        store.put("a", b"y")
    with pytest.raises(OSError, match="'a'"):
        store.delete(["a"])
    assert not store.create("a", b"y")
    assert files_below(store.root) == [f"{store.root}/a/b"]


@pytest.mark.parametrize("key", ["x" * 300, "a/" + "é" * 200, "/".join(["segment"] * 1000)])
def test_a_name_too_long_cannot_be_written_and_is_missing(store, key):
    for write in (store.put, store.create):
        with pytest.raises(OSError, match="too long") as caught:
            write(key, b"x")
        assert caught.value.errno == errno.ENAMETOOLONG
    assert store.get(key) is None
    assert store.size(key) is None
    assert not store.replace(key, b"x", "version")
    store.delete([key])
    store.delete_prefix(key + "/")
    assert list(store.list(key + "/")) == []
    assert files_below(store.root) == []


@pytest.mark.parametrize("method", ["put", "create", "replace"])
@pytest.mark.parametrize("call", ["pwritev", "close", "replace"])
def test_a_failed_write_leaves_the_old_value_and_nothing_else(store, monkeypatch, method, call):
    store.put("a/k", b"old")
    key = "a/new" if method == "create" else "a/k"
    version = [store.read("a/k").tag] if method == "replace" else []
    before = files_below(store.root)

    def full(*args):
        if call == "close":
            reads = fcntl.fcntl(args[0], fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
            real(*args)
            if reads:
                return
        raise OSError(errno.ENOSPC, "No space left on device")

    name = "link" if (method, call) == ("create", "replace") else call
    real = getattr(os, name)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with pytest.raises(OSError, match="a/") as caught:
            getattr(store, method)(key, b"new value", *version)
    assert caught.value.errno == errno.ENOSPC
    assert files_below(store.root) == before
    assert store.get("a/k") == b"old"


def test_short_writes_of_wider_items_are_continued(store, monkeypatch):
    value = bytes(range(256)) * 16
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwritev(fd, [memoryview(parts[0]).cast("B")[:1000]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:1000], at))
    store.put("k", memoryview(value).cast("I"))
    assert store.get("k") == value
    assert store.create("l", memoryview(value).cast("d"))
    assert store.get("l") == value


def test_short_writes_and_reads_are_continued(store, monkeypatch):
    value = bytes(range(256)) * 1024
    pwrite, pwritev, pread, preadv = os.pwrite, os.pwritev, os.pread, os.preadv
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwritev(fd, [parts[0][:50_000]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:100_000], at))
    store.put("k", value)
    store.put("parts", [value, value[:1000]])
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 70_000), at))
    monkeypatch.setattr(os, "preadv", lambda fd, into, at: preadv(fd, [into[0][:70_000]], at))
    store.splice("k", lambda old: [old.read(0, old.size)])
    assert store.get("k") == value
    assert store.get("parts") == value + value[:1000]
    assert store.get_range("k", 1, 200_000) == value[1:200_001]


@pytest.mark.parametrize(
    "law",
    [
        StoreSuite.test_create_writes_only_a_new_key,
        StoreSuite.test_create_has_one_winner,
        StoreSuite.test_replace_has_one_winner,
        StoreSuite.test_lock_loses_no_update,
    ],
)
def test_file_systems_without_links_and_locks(store, monkeypatch, law):
    def refuse(*_args):
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setattr("fcntl.flock", refuse)
    law(StoreSuite(), store)


def test_a_directory_in_the_place_of_a_value_leaves_no_open_file(store):
    store.put("a/b", b"x")
    store.put("k", b"y")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(IsADirectoryError, match="'a'"):
            store.get("a")
        assert [store.get(key) for key in ("k", "missing", "a/b/c")] == [b"y", None, None]
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_lock_of_a_key_is_that_of_a_store_further_up_or_down(store):
    store.put("a/b/k", b"0")
    below = LocalStore(f"{store.root}/a/b")

    def increment(number):
        for _ in range(50):
            with below.lock_here("k") if number else store.lock("a/b/k"):
                store.put("a/b/k", b"%d" % (int(store.get("a/b/k")) + 1))

    run_threads(4, increment)
    assert store.get("a/b/k") == b"200"


# -- other processes ------------------------------------------------------------------------------


def test_a_killed_writer_leaves_whole_values(store):
    code = """
    store = LocalStore(args[0])
    while True:
        for byte in b"abcdef":
            store.put("a/k", bytes([byte]) * (1 << 20))
            print(flush=True)
    """
    for turn in range(15):
        with start_child(code, store.root) as child:
            child.stdout.readline()
            time.sleep(turn % 5 * 0.001)
            child.send_signal(signal.SIGKILL)
        value = store.get("a/k")
        assert len(value) == 1 << 20
        assert value == value[:1] * (1 << 20)
        assert list(store.list()) == ["a/k"]
        assert store.list_dir("a/") == (["a/k"], [])
    store.delete_prefix("a/")
    assert os.listdir(store.root) == []


@pytest.mark.parametrize(
    "count",
    [
        'with store.lock(key): store.put(key, b"%d" % (int(store.get(key) or b"0") + 1))',
        'store.update(key, lambda raw: b"%d" % (int(bytes(raw or b"0")) + 1))',
        'store.splice(key, lambda old: [b"%d" % (int(old.read(0, old.size) if old else b"0") + 1)])',
    ],
    ids=["lock", "update", "splice"],
)
def test_no_change_is_lost_across_processes_and_roots(store, count):
    code = f"""
    store, key = LocalStore(args[0]), args[1]
    for _ in range(100):
        {count}
    """
    views = [(store.root, "a/b/n"), (f"{store.root}/a", "b/n"), (f"{store.root}/a/b", "n")]
    children = [start_child(code, *view) for view in views]
    assert [child.communicate() and child.returncode for child in children] == [0, 0, 0]
    assert store.get("a/b/n") == b"300"
    assert files_below(store.root) == [f"{store.root}/a/b/n"]


def test_the_lock_of_a_killed_process_is_free(store):
    code = """
    with LocalStore(args[0]).lock("a/k"):
        print(flush=True)
        signal.pause()
    """
    with start_child(code, store.root) as child:
        child.stdout.readline()
        assert os.listdir(f"{store.root}/a")
        assert list(store.list()) == []
        child.kill()
    enter(store, "a/k")
    assert os.listdir(f"{store.root}/a") == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_the_lock_after_the_thread_of_the_parent_that_held_it(store):
    held, done = threading.Event(), threading.Event()

    def hold():
        with store.lock("k"):
            held.set()
            done.wait()
            store.put("k", b"parent")

    def read():
        with store.lock("k"):
            return store.get("k") == b"parent"

    threads = [threading.Thread(target=hold), threading.Thread(target=enter, args=(store, "k"))]
    threads[0].start()
    held.wait()
    threads[1].start()
    succeeded = fork(read)
    done.set()
    for thread in threads:
        thread.join()
    assert succeeded()
    enter(store, "k")
    assert files_below(store.root) == [f"{store.root}/k"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_within_exclusive_leaves_the_lock_to_its_parent(store):
    lock = store.lock("k")
    lock.__enter__()

    def leave():
        lock.__exit__(None, None, None)
        return len(os.listdir(store.root)) == 1

    assert fork(leave)()
    assert len(os.listdir(store.root)) == 1
    lock.__exit__(None, None, None)
    assert os.listdir(store.root) == []


def changed_to(store, key, value):
    """Change a key, and give the inode of the file that was locked meanwhile."""
    found = []

    def change(_raw):
        (name,) = [name for name in os.listdir(store.root) if name.startswith(base.TEMPORARY)]
        found.append(os.stat(f"{store.root}/{name}").st_ino)
        return value

    store.update(key, change)
    return found[0]


@pytest.mark.parametrize("value", [b"new", b"", [b"n", b"ew"]], ids=["whole", "empty", "parts"])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_change_is_written_into_the_file_of_its_lock(store, old, value):
    if old is not None:
        store.put("k", old)
    locked = changed_to(store, "k", value)
    assert os.stat(f"{store.root}/k").st_ino == locked
    assert store.get("k") == b"".join([value] if isinstance(value, bytes) else value)
    assert os.listdir(store.root) == ["k"]
    assert changed_to(store, "k", b"again") != locked
    assert store.get("k") == b"again"


def test_a_change_that_fails_leaves_the_old_value_and_no_lock(store, monkeypatch):
    def refuse(_fd, _data, _at):
        raise OSError(errno.ENOSPC, "no space")

    store.put("k", b"old")
    monkeypatch.setattr(os, "pwritev", refuse)
    with pytest.raises(OSError, match="'k': no space"):
        store.update("k", lambda _raw: b"new")
    assert store.get("k") == b"old"
    assert os.listdir(store.root) == ["k"]


@pytest.mark.parametrize("left", ["content", "link"])
def test_what_is_in_the_file_of_a_lock_is_not_overwritten(store, tmp_path, left):
    """A process that died may have left it, and a backup made of hard links may have the same file."""
    store.put("k", b"old")
    lock, backup = f"{store.root}/{files.lock_name('k')}", tmp_path / "backup"
    with open(lock, "wb") as file:
        file.write(b"kept" if left == "content" else b"")
    os.link(lock, backup)
    changed_to(store, "k", b"new")
    assert backup.read_bytes() == (b"kept" if left == "content" else b"")
    assert store.get("k") == b"new"
    assert os.listdir(store.root) == ["k"]


@pytest.mark.parametrize("others", [None, b"half of wh"], ids=["removed", "another"])
def test_a_lock_that_somebody_removed_does_not_give_the_file_of_another_its_place(store, others):
    """As the removal of a whole tree does, after which another process may take the lock, and begin to write."""
    store.put("k", b"old")
    lock = f"{store.root}/{files.lock_name('k')}"

    def change(_raw):
        os.unlink(lock)
        if others is not None:
            pathlib.Path(lock).write_bytes(others)
        return b"new"

    store.update("k", change)
    assert store.get("k") == b"new"
    assert os.path.exists(lock) == (others is not None)
    assert others is None or pathlib.Path(lock).read_bytes() == others


def has_open(process: int, name: str) -> bool:
    """Whether a process has a file of this name open."""
    for fd in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(fd).endswith(name):
                return True
    return False


def test_who_waits_for_a_lock_whose_file_has_become_the_value_makes_another(store):
    store.put("k", b"old ")
    code = 'LocalStore(args[0]).update("k", lambda raw: bytes(raw) + b"child")'
    started = []

    def change(raw):
        started.append(start_child(code, store.root))
        while not has_open(started[0].pid, files.lock_name("k")):
            time.sleep(0.001)
        return bytes(raw) + b"parent "

    store.update("k", change)
    with started[0] as child:
        assert child.wait(20) == 0
    assert store.get("k") == b"old parent child"
    assert os.listdir(store.root) == ["k"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_within_a_change_writes_a_file_of_its_own(store):
    store.put("k", b"old")

    def change(raw):
        if not (child := os.fork()):
            return b"child"
        assert os.waitpid(child, 0)[1] == 0
        assert store.get("k") == b"child"
        return b"parent"

    parent = os.getpid()
    try:
        store.update("k", change)
    finally:
        if os.getpid() != parent:
            os._exit(sys.exc_info()[0] is not None)
    assert store.get("k") == b"parent"
    assert os.listdir(store.root) == ["k"]


def test_what_a_zombie_left_is_removed(store):
    """A process that has ended, but whose parent has not asked for its end yet."""
    store.put("k", b"x")
    child = os.fork()
    if not child:
        os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        left = f"{store.root}/{base.TEMPORARY}{files.owner(child)}-0"
        with open(left, "w"):
            pass
        assert store.clean() == 1
        assert not os.path.exists(left)
    finally:
        os.waitpid(child, 0)


def refusing(code):
    def refuse(*_given):
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize(
    "copy", [None, lambda *_given: 0, *map(refusing, (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP))]
)
def test_a_splice_needs_no_help_of_the_system(store, monkeypatch, copy):
    value = os.urandom((2 << 20) + 5)
    store.put("k", value)
    if copy is None:
        monkeypatch.delattr(os, "copy_file_range")
    else:
        monkeypatch.setattr(os, "copy_file_range", copy)
    store.splice("k", lambda old: [Kept(1, old.size - 1), b"new"])
    assert store.get("k") == value[1:] + b"new"


def test_a_splice_lets_the_system_copy_what_stays(store, monkeypatch):
    read: list[int] = []
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, count, at: (read.append(count), pread(fd, count, at))[1])
    monkeypatch.setattr(os, "preadv", lambda fd, into, at: (read.append(n := preadv(fd, into, at)), n)[1])
    value = os.urandom(3 << 20)
    store.put("k", value)
    store.splice("k", lambda old: [Kept(0, 1 << 20), old.read(5, 10), Kept(2 << 20, 1 << 20)])
    assert read == [10]
    assert store.get("k") == value[: 1 << 20] + value[5:15] + value[2 << 20 :]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_splice_that_cannot_be_written_keeps_the_old_value(store, monkeypatch, code):
    store.put("k", b"old")
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "copy_file_range", refusing(code))
    with pytest.raises(OSError, match="'k'") as caught:
        store.splice("k", lambda old: [b"new", Kept(0, 3)])
    assert (caught.value.errno, str(caught.value).count("key")) == (code, 1)
    monkeypatch.undo()
    with pytest.raises(OSError, match="shorter"):
        store.splice("k", lambda old: [b"new", Kept(0, 4)])
    assert (store.get("k"), os.listdir(store.root)) == (b"old", ["k"])
    assert len(os.listdir("/proc/self/fd")) == before
