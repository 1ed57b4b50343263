"""Symbolic links: those that stay below the root are followed, those that lead out let nothing out and nothing in."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_suite import READING, enter

import zellige
from zellige.errors import ReadOnlyError, UnsafeLinkError
from zellige.stores import LocalStore, files
from zellige.tools.copy import CopyError

SECRET = b"secret"


READS: dict[str, Callable[[LocalStore, str], Any]] = {
    **READING,
    "get_range from the end": lambda s, k: s.get_range(k, -1),
}
WRITES: dict[str, Callable[[LocalStore, str], Any]] = {
    "put": lambda s, k: s.put(k, b"new"),
    "put of parts": lambda s, k: s.put(k, [b"n", b"ew"]),
    "create": lambda s, k: s.create(k, b"new"),
    "lock": enter,
    "rename to": lambda s, k: s.rename("inner/", k + "/"),
}
CHANGES = {
    **WRITES,
    "replace": lambda s, k: s.replace(k, b"new", "version"),
    "delete": lambda s, k: s.delete([k]),
    "delete_prefix": lambda s, k: s.delete_prefix(k + "/"),
    "rename from": lambda s, k: s.rename(k + "/", "moved/"),
}

FILES = {
    "absolute": "{outside}/file",
    "relative": "../outside/file",
    "chain": "absolute",
    "deep/relative": "../../outside/file",
    "sibling": "{root}-sibling/file",  # its path begins as the root's
    "out and in and out": "{outside}/to root/absolute",
    "nothing": "{outside}/nothing",
}
"""Links that lead out to files, by their keys."""

FOLDERS = {
    "folder": "{outside}",
    "relative folder": "../outside",
    "folder chain": "folder",
    "deep/folder": "../../outside",
    "sibling folder": "{root}-sibling",
    "above/outside": "",  # through the next one
    "above": "..",
    "the whole disk": "/",
    "out and in and out": "{outside}/to root/folder",
}
"""Links that lead out to directories."""

THROUGH = [
    *(f"{folder}/file" for folder in FOLDERS if folder not in ("above", "the whole disk")),
    "folder/deep/file",
    "folder chain/deep/file",
]
"""Keys of files that links in the middle put outside."""


@pytest.fixture
def outside(tmp_path) -> Path:
    """A directory that is none of the store's business, and one beside the store."""
    for name in ("outside/file", "outside/deep/file", "x.zarr-sibling/file"):
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(SECRET)
    os.symlink(tmp_path / "x.zarr", tmp_path / "outside" / "to root")
    return tmp_path / "outside"


@pytest.fixture
def store(tmp_path) -> LocalStore:
    found = LocalStore(tmp_path / "x.zarr")
    found.put("inner/k", b"mine")
    found.put("deep/k", b"deep")
    return LocalStore(found.root)  # one that has seen no directory yet


@pytest.fixture
def planted(store, outside) -> LocalStore:
    """A store with every link of `FOLDERS`."""
    plant(store, {name: to for name, to in FOLDERS.items() if to}, outside)
    return store


def plant(store: LocalStore, links: dict[str, str], outside: Path | str = "") -> None:
    for name, target in links.items():
        os.symlink(target.format(outside=outside, root=store.root), f"{store.root}/{name}")


def state(top: str | os.PathLike[str]) -> dict[str, Any]:
    """All that can be seen of a directory; what was made and removed again shows in the times."""
    found: dict[str, Any] = {}
    for folder, _, names in os.walk(top):
        info = os.stat(folder)
        found[folder] = (info.st_mtime_ns, sorted(os.listdir(folder)))
        for name in names:
            path = f"{folder}/{name}"
            info = os.lstat(path)
            content = os.readlink(path) if os.path.islink(path) else Path(path).read_bytes()
            found[path] = (info.st_ino, info.st_mtime_ns, info.st_nlink, content)
    return found


def outer_state(tmp_path: Path) -> dict[str, Any]:
    return state(tmp_path / "outside") | state(tmp_path / "x.zarr-sibling") | {"": sorted(os.listdir(tmp_path))}


def dead_name() -> str:
    """The name of a temporary file of a process that had this one's number before."""
    pid, _, place = files.owner(os.getpid()).split(".")
    return f"{files.TEMPORARY}{pid}.0.{place}-0"


def spy_on_locks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of all files that are locked from now on."""
    locked: list[str] = []
    flock = fcntl.flock

    def spy(fd: int, how: int) -> None:
        locked.append(os.readlink(f"/proc/self/fd/{fd}"))
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", spy)
    return locked


def refused(action: Callable[[], object], key: str) -> None:
    """The action is refused, with the key or the directory in it that is at fault."""
    with pytest.raises(UnsafeLinkError, match="links='anywhere'") as caught:
        action()
    named = caught.value.key
    assert f"{key}/".startswith(f"{named}/")
    assert repr(named) in str(caught.value)


# -- leading out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("key", FILES)
def test_a_link_to_a_file_outside_is_not_read(store, outside, tmp_path, key, method):
    plant(store, FILES, outside)
    before = outer_state(tmp_path)
    refused(lambda: READS[method](store, key), key)
    assert outer_state(tmp_path) == before


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("key", THROUGH)
def test_nothing_is_read_through_a_directory_outside(planted, tmp_path, key, method):
    before = outer_state(tmp_path)
    for _ in range(2):  # what was refused is not remembered as seen
        refused(lambda: READS[method](planted, key), key)
    assert outer_state(tmp_path) == before


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize("key", THROUGH)
def test_nothing_is_changed_through_a_directory_outside(planted, tmp_path, key, method):
    before = outer_state(tmp_path)
    for _ in range(2):
        refused(lambda: CHANGES[method](planted, key), key)
    assert outer_state(tmp_path) == before
    assert planted.get("inner/k") == b"mine"


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_directory_is_made_outside(planted, tmp_path, folder, method):
    # Below the test's own directory also if the link leads to the whole disk.
    key = f"{folder}{tmp_path}/outside/new/deeper/k" if folder == "the whole disk" else f"{folder}/new/deeper/k"
    before = outer_state(tmp_path)
    refused(lambda: WRITES[method](planted, key), key)
    assert outer_state(tmp_path) == before
    assert planted.get("inner/k") == b"mine"


@pytest.mark.parametrize("folder", FOLDERS)
def test_removing_what_is_not_there_removes_nothing_outside(planted, tmp_path, folder):
    before = outer_state(tmp_path)
    removals = (
        lambda key: planted.delete([key]),
        lambda key: planted.delete_prefix(key + "/"),
        lambda key: planted.replace(key, b"", "v"),
    )
    for action in removals:
        refused(lambda action=action: action(f"{folder}/none"), f"{folder}/none")
    assert outer_state(tmp_path) == before


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("method", ["get", "size", "exists", "read"])
def test_what_is_not_there_outside_is_refused_as_what_is_there(planted, folder, method):
    refused(lambda: getattr(planted, method)(f"{folder}/none"), f"{folder}/none")


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("method", ["list", "list_dir"])
def test_a_directory_outside_is_not_listed(planted, tmp_path, folder, method):
    (tmp_path / "outside" / dead_name()).touch()  # what a listing inside would remove
    before = outer_state(tmp_path)
    refused(lambda: list(getattr(planted, method)(f"{folder}/")), folder)
    assert outer_state(tmp_path) == before


def test_listings_leave_out_links_that_lead_out(planted, outside):
    plant(planted, {f"file {name}".replace("/", " "): to for name, to in FILES.items() if "deep" not in name}, outside)
    assert sorted(planted.list()) == ["deep/k", "inner/k"]
    assert planted.list_dir() == ([], ["deep/", "inner/"])
    assert planted.list_dir("deep/") == (["deep/k"], [])


@pytest.mark.parametrize("key", FILES)
def test_writing_replaces_a_link_and_not_what_it_leads_to(store, outside, tmp_path, key):
    plant(store, FILES, outside)
    before = outer_state(tmp_path)
    assert not store.create(key, b"new")
    enter(store, key)
    refused(lambda: store.replace(key, b"new", "version"), key)
    store.put(key, b"new")
    assert store.get(key) == b"new"
    assert not os.path.islink(f"{store.root}/{key}")
    assert outer_state(tmp_path) == before


@pytest.mark.parametrize("key", FILES)
def test_removing_removes_a_link_and_not_what_it_leads_to(store, outside, tmp_path, key):
    plant(store, FILES, outside)
    before = outer_state(tmp_path)
    store.delete([key])
    assert store.get(key) is None
    assert not os.path.lexists(f"{store.root}/{key}")
    assert outer_state(tmp_path) == before


@pytest.mark.parametrize("prefix", ["folder/", "relative folder/", "folder chain/", "deep/", "above/", ""])
def test_removing_a_prefix_removes_links_and_not_what_they_lead_to(planted, tmp_path, prefix):
    before = outer_state(tmp_path)
    planted.delete_prefix(prefix)
    assert outer_state(tmp_path) == before
    assert not os.path.lexists(f"{planted.root}/{prefix.rstrip('/')}") or not prefix
    assert prefix in ("", "deep/") or planted.get("deep/k") == b"deep"
    assert prefix or os.listdir(planted.root) == []


def test_a_link_is_not_moved_as_a_prefix(planted, tmp_path):
    before = outer_state(tmp_path)
    with pytest.raises(NotADirectoryError, match="'folder/'"):
        planted.rename("folder/", "moved/")
    with pytest.raises(NotADirectoryError, match="'inner/'"):
        planted.rename("inner/", "folder/")
    assert outer_state(tmp_path) == before
    assert planted.get("inner/k") == b"mine"


def test_a_link_in_the_place_of_a_lock_makes_and_locks_nothing_outside(store, outside, tmp_path, monkeypatch):
    locked = spy_on_locks(monkeypatch)
    plant(
        store,
        {f"inner/{files.lock_name('inner/k')}": "{outside}/made", files.lock_name("k"): "{outside}/file"},
        outside,
    )
    before = outer_state(tmp_path)
    for key in ("inner/k", "k"):
        try:
            enter(store, key)
        except (OSError, UnsafeLinkError) as error:
            assert repr(key) in str(error)  # noqa: PT017 - it may be refused, or the link be removed
    assert outer_state(tmp_path) == before
    assert [path for path in locked if not path.startswith(store.root + "/")] == []


def test_cleaning_removes_links_and_neither_locks_nor_removes_what_they_lead_to(store, outside, tmp_path, monkeypatch):
    locked = spy_on_locks(monkeypatch)
    links = {
        dead_name(): "{outside}/file",
        f"{files.TEMPORARY}lock-0": "{outside}/file",
        f"{files.TEMPORARY}lock-1": "{outside}",
        f"{files.TEMPORARY}lock-2": "{outside}/nothing",
    }
    plant(store, links, outside)
    before = outer_state(tmp_path)
    store.clean()
    assert sorted(store.list()) == ["deep/k", "inner/k"]
    assert outer_state(tmp_path) == before
    assert [path for path in locked if not path.startswith(store.root + "/")] == []


def test_cleaning_does_not_follow_links(planted, tmp_path):
    (tmp_path / "outside" / dead_name()).touch()
    before = outer_state(tmp_path)
    assert planted.clean() == 0
    assert outer_state(tmp_path) == before


def test_an_array_or_group_that_a_link_puts_outside_is_refused(tmp_path):
    zellige.create_array(tmp_path / "outside", name="a", data=np.arange(4), chunks=2)
    root = zellige.create_group(tmp_path / "x.zarr")
    root.create_array("own", data=np.arange(4), chunks=2)
    os.symlink("../outside/a", tmp_path / "x.zarr" / "array")
    os.symlink("../outside", tmp_path / "x.zarr" / "group")
    os.symlink("../../outside/a/c", tmp_path / "x.zarr" / "own" / "c2")
    before = state(tmp_path / "outside")
    for name in ("array", "group", "group/a"):
        with pytest.raises(UnsafeLinkError):
            root[name]
        with pytest.raises(UnsafeLinkError):
            root.create_array(name, data=[1], overwrite=True)
    assert list(root) == ["own"]
    os.rename(tmp_path / "x.zarr" / "own" / "c", tmp_path / "c")
    os.rename(tmp_path / "x.zarr" / "own" / "c2", tmp_path / "x.zarr" / "own" / "c")
    own = zellige.open_array(tmp_path / "x.zarr", path="own", mode="r+")
    for action in (lambda: own[...], lambda: own.__setitem__(..., 5), lambda: own.__setitem__(0, 5)):
        with pytest.raises(UnsafeLinkError, match="c"):
            action()
    assert state(tmp_path / "outside") == before


# -- staying inside -------------------------------------------------------------------------------

INSIDE = {
    "file": "inner/k",
    "absolute": "{root}/inner/k",
    "chain": "file",
    "deep/link": "../inner/k",
    "folder": "inner",
    "absolute folder": "{root}/inner",
    "folder chain": "folder",
    "deep/folder": "../inner",
    "self": ".",
    "out and in": "../outside/to root/inner/k",
}
ALIASES = [
    *(name for name in INSIDE if "folder" not in name and name != "self"),
    *(f"{name}/k" for name in INSIDE if "folder" in name),
    *("self/inner/k", "self/self/inner/k", "self/folder/k"),
]


@pytest.fixture(params=["the directory", "a link to it", "below a link"])
def linked(request, store, outside, tmp_path) -> LocalStore:
    """A store with links that stay inside, by one of its names."""
    plant(store, INSIDE)
    os.symlink(store.root, tmp_path / "link to root")
    os.symlink(tmp_path, tmp_path / "link above")
    names = {"the directory": store.root, "a link to it": "link to root", "below a link": "link above/x.zarr"}
    return LocalStore(tmp_path / names[request.param])


@pytest.mark.parametrize("method", READS)
def test_links_inside_are_followed(linked, method):
    expected = READS[method](linked, "inner/k")
    assert expected or method == "get_ranges of none"
    for key in ALIASES:
        assert READS[method](linked, key) == expected


@pytest.mark.parametrize("key", [key for key in ALIASES if "/k" in key])
def test_writing_through_a_directory_inside_writes_there(linked, key):
    linked.put(key, b"new")
    assert linked.get("inner/k") == b"new"
    assert not linked.create(key, b"other")
    assert linked.replace(key, b"newer", linked.read("inner/k").tag)
    with linked.lock(key):
        linked.put(key, [b"new", b"est"])
    assert linked.get("inner/k") == b"newest"
    linked.put(f"{key}2/new/k", b"x")
    assert linked.get("inner/k2/new/k") == b"x"
    linked.delete([key])
    assert linked.get("inner/k") is None
    linked.delete_prefix(f"{key}2/")
    assert os.listdir(f"{linked.root}/inner") == []


@pytest.mark.parametrize("key", [key for key in ALIASES if "/k" not in key])
def test_writing_replaces_a_link_inside(linked, key):
    linked.put(key, b"new")
    assert linked.get(key) == b"new"
    assert linked.get("inner/k") == b"mine"
    linked.delete([key])
    assert linked.get(key) is None
    assert linked.get("inner/k") == b"mine"


def test_listings_show_links_inside_and_go_round_in_no_circle(linked):
    below = {"", "folder/", "absolute folder/", "folder chain/", "deep/folder/", "inner/"} - {""}
    files_ = {"file", "absolute", "chain", "deep/link", "out and in", "deep/k"}
    assert sorted(linked.list()) == sorted(files_ | {f"{folder}k" for folder in below})
    folders = ["absolute folder/", "deep/", "folder chain/", "folder/", "inner/", "self/"]
    assert linked.list_dir() == (["absolute", "chain", "file", "out and in"], folders)
    assert linked.list_dir("self/")[0] == ["self/absolute", "self/chain", "self/file", "self/out and in"]


def test_a_root_behind_a_link_refuses_what_leads_out(linked, outside):
    plant(linked, {"out": "{outside}"}, outside)
    refused(lambda: linked.get("out/file"), "out/file")
    refused(lambda: linked.put("out/file", b"x"), "out/file")
    assert (outside / "file").read_bytes() == SECRET


def test_removing_links_inside_keeps_what_they_lead_to(linked):
    for prefix in ("folder chain/", "folder/", "absolute folder/", "deep/", "self/"):
        linked.delete_prefix(prefix)
        assert linked.get("inner/k") == b"mine"
        assert not os.path.lexists(f"{linked.root}/{prefix[:-1]}")
    linked.delete_prefix("")
    assert os.listdir(linked.root) == []


# -- leading nowhere ------------------------------------------------------------------------------


@pytest.mark.parametrize("links", ["inside", "anywhere"])
@pytest.mark.parametrize("method", READS)
def test_a_link_to_nothing_is_no_missing_key(store, method, links):
    """Whatever it led to is lost, which is not the same as a value that was never written."""
    plant(store, {"dangling": "nothing", "chain": "dangling", "deep/far": "{root}/no/thing"})
    store = LocalStore(store.root, links=links)
    for key in ("dangling", "chain", "deep/far", "dangling/k", "chain/k", "deep/far/k", "deep/far/l/k"):
        for _ in range(2):  # what was refused is not remembered as seen
            with pytest.raises(UnsafeLinkError, match="leads nowhere") as caught:
                READS[method](store, key)
            assert f"{key}/".startswith(f"{caught.value.key}/")
    assert sorted(store.list()) == ["deep/k", "inner/k"]
    assert store.list_dir() == ([], ["deep/", "inner/"])


@pytest.mark.parametrize("method", READS)
def test_what_is_not_there_behind_a_link_is_missing(store, method):
    plant(store, {"folder": "inner", "deep/folder": "../inner"})
    for key in ("folder/none", "folder/none/deeper/k", "deep/folder/none", "deep/folder/none/k"):
        assert not READS[method](store, key)


@pytest.mark.parametrize("method", ["list", "list_dir"])
def test_a_directory_that_is_nowhere_is_not_listed(store, method):
    plant(store, {"dangling": "nothing"})
    with pytest.raises(UnsafeLinkError, match="leads nowhere"):
        list(getattr(store, method)("dangling/"))


@pytest.mark.skipif(
    zellige.kernel.native is None, reason="counts the work beside the kernel, which was not built or is off"
)
def test_a_missing_chunk_costs_one_call(store, monkeypatch):
    """Whether a link leads nowhere is asked once for each directory, not for each chunk that is missing."""
    array = zellige.create_array(store, name="a", shape=(1000,), chunks=1, dtype="i4")
    assert array[:2].tolist() == [0, 0]
    asked = []
    for name in ("stat", "lstat", "readlink"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, **o: asked.append(a) or real(*a, **o))
    assert array[2:].sum() == 0
    assert asked == []


LOST = {"the chunks": "a/c", "a row of chunks": "a/c/1", "a chunk": "a/c/1/0"}


@pytest.mark.parametrize("target", ["outside", "nowhere"])
@pytest.mark.parametrize("what", LOST)
def test_chunks_behind_a_link_are_never_taken_for_missing(tmp_path, what, target):
    """Plain reading, `validate` and copies all say so; copies that were made held fill values."""
    path, root = tmp_path / "x.zarr" / LOST[what], zellige.create_group(tmp_path / "x.zarr")
    root.create_array("a", data=np.arange(1, 17).reshape(4, 4), chunks=2)
    os.rename(path, tmp_path / "moved")
    os.symlink(tmp_path / ("moved" if target == "outside" else "nothing"), path)
    source = tmp_path / "x.zarr"
    with pytest.raises(UnsafeLinkError):
        zellige.open_array(source, path="a", mode="r")[:]
    for deep in (False, True):
        report = zellige.validate(source, deep=deep)
        assert [(one.level, one.kind, one.key) for one in report.findings if one.level != "note"] == [
            ("error", "chunk", LOST[what])
        ]
        message = next(one.message for one in report.findings if one.level == "error")
        assert ("links='anywhere'" in message) == (target == "outside")
    dest = tmp_path / "copy.zarr"
    for copy in (
        lambda: zellige.copy_store(source, dest, verify=True),
        lambda: zellige.copy(f"{source}/a", dest, "a"),
        lambda: zellige.copy(f"{source}/a", dest, "a", chunks=4),
        lambda: zellige.copy_all(source, dest),
    ):
        with pytest.raises(UnsafeLinkError):
            copy()
    assert not dest.exists()
    if target == "outside":
        anywhere = LocalStore(source, links="anywhere")
        assert zellige.validate(anywhere, deep=True).ok
        zellige.copy_store(anywhere, dest)
        assert zellige.open_array(dest, path="a")[:].tolist() == np.arange(1, 17).reshape(4, 4).tolist()


@pytest.mark.parametrize("name", ["a", "deep/a", "deep/a/0"])
def test_a_conversion_leaves_out_nothing_behind_a_link(tmp_path, name):
    source, dest = tmp_path / "x.zarr", tmp_path / "copy.zarr"
    root = zellige.create_group(source, zarr_format=2)
    root.create_array("deep/a", data=np.arange(4).reshape(2, 2), chunks=1, dimension_separator="/")
    root.create_array("a", data=np.arange(4), chunks=2)
    os.rename(source / name, tmp_path / "moved")
    os.symlink(tmp_path / "moved", source / name)
    with pytest.raises(UnsafeLinkError, match=name):
        zellige.convert(source, dest)
    assert not dest.exists()


@pytest.mark.parametrize("name", ["a", "deep/a", "deep"])
def test_a_member_behind_a_link_is_told_and_stops_copies(tmp_path, name):
    source, dest = tmp_path / "x.zarr", tmp_path / "copy.zarr"
    root = zellige.create_group(source)
    root.create_array("deep/a", data=np.arange(4), chunks=2)
    root.create_array("a", data=np.arange(4), chunks=2)
    os.rename(source / name, tmp_path / "moved")
    os.symlink(tmp_path / "moved", source / name)
    errors = [one for one in zellige.validate(source).findings if one.level != "note"]
    assert [(one.level, one.kind, one.key) for one in errors] == [("error", "document", name)]
    assert "links='anywhere'" in errors[0].message
    for copy in (zellige.copy_store, zellige.copy_all):
        with pytest.raises(UnsafeLinkError, match=name):
            copy(source, dest)
    assert not dest.exists()
    assert zellige.copy_store(source, dest, excludes=f"^{name}(/|$)").n_copied
    assert zellige.validate(LocalStore(source, links="anywhere")).ok


def test_what_lies_beside_nodes_and_is_no_file_is_stray(tmp_path):
    source = tmp_path / "x.zarr"
    zellige.create_group(source).create_array("a", data=np.arange(4), chunks=2)
    (tmp_path / "README").write_text("hello")
    os.symlink("nothing", source / ".#lock")
    os.symlink(tmp_path / "README", source / "README")
    os.symlink("nothing", source / "a" / "backup")
    os.mkfifo(source / "a" / "pipe")
    stray = [".#lock", "README", "a/backup", "a/pipe"]
    found = zellige.validate(source, deep=True).findings
    assert [(one.level, one.kind, one.key) for one in found] == [("warning", "stray", key) for key in stray]
    done = zellige.repair(source, dry_run=False, stray=True)
    assert [finding.key for finding in done.left] == stray
    assert list(zellige.copy_all(source, tmp_path / "copy.zarr").left_out) == stray
    for key in stray:
        with pytest.raises((UnsafeLinkError, CopyError)):
            zellige.copy_store(source, tmp_path / "other.zarr", excludes=[f"^{one}$" for one in stray if one != key])
    assert zellige.copy_store(source, tmp_path / "other.zarr", excludes=[f"^{one}$" for one in stray]).n_copied == 4


@pytest.mark.parametrize("target", ["nothing", "../outside/nothing", "{outside}/nothing", "{outside}/no/thing"])
@pytest.mark.parametrize("method", WRITES)
def test_nothing_is_made_where_a_link_leads_nowhere(store, outside, tmp_path, target, method):
    plant(store, {"dangling": target}, outside)
    before = outer_state(tmp_path)
    for key in ("dangling/k", "dangling/new/k"):
        with pytest.raises((OSError, UnsafeLinkError), match=r"dangling|inner/"):
            WRITES[method](store, key)
    assert outer_state(tmp_path) == before
    assert sorted(os.listdir(store.root)) == ["dangling", "deep", "inner"]
    store.put("dangling", b"new")
    assert store.get("dangling") == b"new"
    assert outer_state(tmp_path) == before


CIRCLES = {"loop": "loop", "ping": "pong", "pong": "ping", "deep/far": "../deep/far", "longer": "longer/on"}


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("key", ["loop", "ping", "deep/far", "longer", "loop/k", "ping/k", "deep/far/on/k"])
def test_a_link_in_a_circle_raises(store, key, method):
    plant(store, CIRCLES)
    with pytest.raises(OSError, match=repr(key)) as caught:
        READS[method](store, key)
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("links", ["inside", "anywhere"])
def test_listings_leave_out_links_in_a_circle(store, links):
    plant(store, CIRCLES)
    found = LocalStore(store.root, links=links)
    assert sorted(found.list()) == ["deep/k", "inner/k"]
    assert found.list_dir() == ([], ["deep/", "inner/"])
    assert found.list_dir("deep/") == (["deep/k"], [])


def test_a_link_in_a_circle_can_be_replaced_and_removed(store):
    plant(store, CIRCLES)
    store.put("loop", b"new")
    assert store.get("loop") == b"new"
    store.delete(["ping"])
    store.delete_prefix("deep/")
    assert sorted(os.listdir(store.root)) == ["inner", "longer", "loop", "pong"]
    store.delete_prefix("")
    assert os.listdir(store.root) == []


# -- anywhere -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", READS)
def test_links_lead_anywhere_if_asked_for(planted, outside, method):
    planted.put("same", SECRET)
    plant(planted, {f"file {name}".replace("/", " "): to for name, to in FILES.items() if "deep" not in name}, outside)
    anywhere = LocalStore(planted.root, links="anywhere")
    expected = READS[method](anywhere, "same")
    for key in [*THROUGH, "file absolute", "file relative", "file sibling", f"the whole disk{outside}/deep/file"]:
        found = READS[method](anywhere, key)
        assert found == expected or method.startswith("read")  # which tell files apart
        assert found is not None


def test_writing_and_removing_anywhere(planted, outside):
    anywhere = LocalStore(planted.root, links="anywhere")
    anywhere.put("folder/new/k", b"x")
    assert (outside / "new" / "k").read_bytes() == b"x"
    assert anywhere.create("folder/new/l", b"y")
    assert anywhere.replace("folder/new/l", b"z", anywhere.read("folder/new/l").tag)
    with anywhere.lock("folder/new/k"):
        assert len(os.listdir(outside / "new")) == 3  # with the lock
    assert sorted(anywhere.list("folder/new/")) == ["folder/new/k", "folder/new/l"]
    assert "folder/" in anywhere.list_dir()[1]
    anywhere.delete(["folder/new/k"])
    anywhere.delete_prefix("folder/new/")
    assert not (outside / "new").exists()
    anywhere.delete_prefix("folder/")
    assert (outside / "file").read_bytes() == SECRET
    assert not os.path.lexists(f"{planted.root}/folder")


def test_only_known_words_say_which_links_are_followed(tmp_path):
    for word in ("outside", "", None, True, "Inside"):
        with pytest.raises(ValueError, match="'inside' or 'anywhere'"):
            LocalStore(tmp_path, links=word)


COPIES = {
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
    "as_read_only": lambda s: s.as_read_only(),
    "as_read_only of a pickle": lambda s: pickle.loads(pickle.dumps(s)).as_read_only(),
    "pickle of as_read_only": lambda s: pickle.loads(pickle.dumps(s.as_read_only())),
    "with_durability": lambda s: s.with_durability("power" if s.traits.durability == "process" else "process"),
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("links", ["inside", "anywhere"])
@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("read_only", [False, True])
def test_copies_of_a_store_keep_what_it_was_told(planted, copy, links, durability, read_only):
    first = LocalStore(planted.root, links=links, durability=durability, read_only=read_only)
    found = COPIES[copy](first)
    assert found.root == first.root
    assert found.read_only == (read_only or "as_read_only" in copy)
    assert (found.traits.durability == durability) == (copy != "with_durability")
    if links == "anywhere":
        assert found.get("folder/file") == SECRET
    else:
        refused(lambda: found.get("folder/file"), "folder/file")
    if found.read_only:
        for method in set(CHANGES) - {"lock"}:
            with pytest.raises(ReadOnlyError):
                CHANGES[method](found, "inner/k")
        with pytest.raises(ReadOnlyError):
            found.clean()
        enter(found, "inner/k")
    assert os.listdir(f"{planted.root}/inner") == ["k"]
