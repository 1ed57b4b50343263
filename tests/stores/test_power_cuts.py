"""Power cuts while the kernel writes: what the system calls of a write allow a disk to hold afterwards.

A library that is loaded before the system's own logs the calls of a child that writes. A power cut at any place of the
log may keep or undo every change of a directory that was not synchronised after it, and empties every file that was not
flushed. The child, and the kernel in it, do not know of that.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import zellige
from zellige import kernel
from zellige.stores.base import TEMPORARY

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD and /proc"),
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler: cc, gcc or clang"),
    pytest.mark.skipif(kernel.native is None, reason="needs the kernel"),
]

WATCHER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int seen;

static void tell(const char *what, const char *one, const char *two) {
    const char *root = getenv("WATCHED"), *log = getenv("WATCH_LOG");
    if (!root || !log || strncmp(one, root, strlen(root))) return;
    char line[9000];
    int size = snprintf(line, sizeof line, "%s\t%s\t%s\n", what, one, two);
    int fd = open(log, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (write(fd, line, size) != size) abort();
    close(fd);
}

/* At one call of a kind: fail, be interrupted, or be killed. */
static int hit(const char *what, const char *path) {
    const char *at = getenv("WATCH_AT"), *action = getenv("WATCH_DO"), *root = getenv("WATCHED");
    if (!at || !action || strncmp(path, root, strlen(root)) || strcmp(what, getenv("WATCH_CALL"))) return 0;
    if (atomic_fetch_add(&seen, 1) != atoi(at)) return 0;
    if (!strcmp(action, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(action, "interrupt")) kill(getpid(), SIGINT), usleep(60000);
    return !strcmp(action, "fail");
}

static int flush(const char *name, int fd) {
    char path[4096] = "", link[64];
    struct stat info;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) path[0] = 0;
    const char *kind = !fstat(fd, &info) && S_ISDIR(info.st_mode) ? "folder" : "file";
    tell("flush", path, kind);
    if (hit(kind, path)) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int failed = real(fd);
    if (!failed) tell("flushed", path, kind);
    return failed;
}

int fsync(int fd) { return flush("fsync", fd); }
int fdatasync(int fd) { return flush("fdatasync", fd); }

int rename(const char *old, const char *new) {
    tell("rename", old, new);
    if (hit("rename", old)) {
        errno = EIO;
        return -1;
    }
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    int failed = real(old, new);
    if (!failed) tell("renamed", old, new);
    return failed;
}

int mkdir(const char *path, mode_t mode) {
    int (*real)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    int failed = real(path, mode);
    if (!failed) tell("made", path, "");
    return failed;
}
"""

WRITER = """
import os, sys
import numpy as np
import zellige
from zellige.stores import LocalStore
root, durability, value, log, workers = sys.argv[1:]
array = zellige.open_array(LocalStore(root, durability=durability), path="g/a", mode="r+")
value = np.full(array.shape, int(value), array.dtype)
with zellige.config.set({"threading.max_workers": int(workers)}):
    os.environ["WATCHED"], os.environ["WATCH_LOG"] = root, log
    part = (slice(int(os.environ.get("WATCH_PART", 1 << 20))),) * array.ndim
    array[part] = value[part]
"""

SHAPES: dict[str, dict[str, Any]] = {
    "one axis, several rounds": {"shape": (1200,), "chunks": (4,), "compressors": None},
    "three axes": {"shape": (8, 6, 6), "chunks": (2, 2, 2)},
    "shards": {"shape": (24, 24), "shards": (4, 6), "chunks": (2, 3)},
    "one chunk, not by the kernel": {
        "shape": (4,),
        "chunks": (4,),
        "compressors": {"name": "numcodecs.bz2", "configuration": {"level": 1}},
    },
}


class Event(NamedTuple):
    what: str
    path: str
    other: str


@pytest.fixture(scope="module")
def watcher(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("watcher")
    (folder / "watcher.c").write_text(WATCHER)
    command = [str(COMPILER), "-shared", "-fPIC", "-w", "watcher.c", "-o", "watcher.so", "-ldl", "-pthread"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return str(folder / "watcher.so")


class Writer:
    """Children that write one value into all of an array, watched."""

    def __init__(self, watcher: str, folder: Path) -> None:
        self.watcher, self.root, self._log = watcher, str(folder / "x.zarr"), folder / "log"

    def create(self, shape: str) -> zellige.Array:
        return zellige.create_array(self.root, name="g/a", dtype="int32", **SHAPES[shape])

    def write(
        self, value: int, durability: str = "power", *, workers: int = 3, **trouble: object
    ) -> tuple[list[Event], subprocess.CompletedProcess[str]]:
        self._log.write_text("")
        arguments = [self.root, durability, str(value), str(self._log), str(workers)]
        given = os.environ | {"LD_PRELOAD": self.watcher, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        given |= {f"WATCH_{name.upper()}": str(what) for name, what in trouble.items()}
        done = subprocess.run(
            [sys.executable, "-c", WRITER, *arguments], env=given, capture_output=True, text=True, timeout=120
        )
        events = [Event(*line.split("\t")) for line in self._log.read_text().splitlines()]
        return events, done

    def temporaries(self) -> list[str]:
        return [name for _, _, names in os.walk(self.root) for name in names if name.startswith(TEMPORARY)]


@pytest.fixture
def writer(watcher, tmp_path) -> Writer:
    return Writer(watcher, tmp_path)


def after_cut(events: list[Event], keep: random.Random | bool) -> dict[str, str]:
    """What a disk may hold of each chunk if the power fails after these events; `keep` decides what is open.

    A file that was not flushed is empty. A rename that a later flush of its directory does not confirm may be undone.
    """
    flushed = {event.path for event in events if event.what == "flushed"}
    held: dict[str, str] = {}
    for at, event in enumerate(events):
        if event.what != "rename":
            continue
        renamed = next((k for k, e in enumerate(events[at:], at) if e[1:] == event[1:] and e.what == "renamed"), None)
        sure = renamed is not None and is_flushed(os.path.dirname(event.other), events[renamed:])
        if sure or (keep if isinstance(keep, bool) else keep.random() < 0.5):
            before = [e for e in events[:at] if e.what == "flushed" and e.path == event.path]
            held[event.other] = "new" if before and event.path in flushed else "empty"
        else:
            held[event.other] = "old"
    return held


def is_flushed(folder: str, events: list[Event]) -> bool:
    """Whether a directory was flushed, from begin to end within these events."""
    begun = False
    for event in events:
        if event.path == folder:
            begun = begun or event.what == "flush"
            if begun and event.what == "flushed":
                return True
    return False


def lost_folders(events: list[Event]) -> list[str]:
    """The directories that were made, and that a power cut after these events may undo."""
    return [
        event.path
        for at, event in enumerate(events)
        if event.what == "made" and not is_flushed(os.path.dirname(event.path), events[at:])
    ]


# -- the law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_after_every_power_cut_a_chunk_is_old_or_new(writer, shape):
    array = writer.create(shape)
    for value in (1, 2):  # new files, and files that replace others
        events, done = writer.write(value)
        assert done.returncode == 0, done.stderr
        assert (array[...] == value).all()
        count = array.nchunks if array.shards is None else int(np.prod([6, 4]))
        assert len(after_cut(events, True)) == count
        step = max(1, len(events) // 200)  # every place, of long logs every second or third
        for cut in range(0, len(events) + 1, step):
            assert "empty" not in after_cut(events[:cut], True).values()
        for seed in range(12):
            chance = random.Random(seed)
            assert "empty" not in after_cut(events[: chance.randrange(len(events) + 1)], chance).values()
        assert set(after_cut(events, False).values()) == {"new"}  # when the call has returned
        assert lost_folders(events) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_each_file_and_each_directory_is_flushed_once(writer, shape):
    writer.create(shape)
    for value in (1, 2):
        events, _ = writer.write(value)
        counts = Counter(event.path for event in events if event.what == "flushed")
        assert {path: count for path, count in counts.items() if count > 1} == {}
        files = {event.path for event in events if event.what == "flushed" and event.other == "file"}
        assert files == {event.path for event in events if event.what == "rename"}


def test_files_are_flushed_in_rounds_before_the_first_of_them_is_renamed(writer):
    writer.create("one axis, several rounds")
    events, _ = writer.write(1)
    order = "".join({"flushed": "f", "rename": "r"}.get(event.what, "") for event in events if event.other != "folder")
    rounds = [len(run) for run in order.replace("rf", "r f").split()]
    assert rounds == [256, 256, 88]
    folders = [at for at, event in enumerate(events) if event.what == "flush" and event.other == "folder"]
    assert min(folders) > max(at for at, event in enumerate(events) if event.what == "renamed")


def test_the_model_sees_what_a_power_cut_does_to_quick_writes(writer):
    writer.create("three axes")
    events, _ = writer.write(1, "process")
    assert set(after_cut(events, True).values()) == {"empty"}
    assert set(after_cut(events, False).values()) == {"old"}
    assert lost_folders(events) != []


def test_directories_of_a_quick_write_survive_with_the_next_careful_one(writer):
    writer.create("three axes")
    quick, _ = writer.write(1, "process")
    careful, _ = writer.write(2)
    assert lost_folders(quick + careful) == []


def test_directories_of_a_quick_write_survive_with_the_next_careful_part(writer):
    """Parts of chunks are not written by the kernel, which made the directories."""
    writer.create("three axes")
    quick, _ = writer.write(1, "process")
    careful, done = writer.write(2, part=3)
    assert done.returncode == 0, done.stderr
    changed = {event.other for event in careful if event.what == "renamed"}
    assert len(changed) == 8
    assert not any(path.startswith(f"{folder}/") for folder in lost_folders(quick + careful) for path in changed)


# -- trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["file", "rename", "folder"])
@pytest.mark.parametrize("shape", ["one axis, several rounds", "shards"])
def test_what_the_kernel_could_not_write_is_written_again(writer, shape, call):
    array = writer.create(shape)
    writer.write(1)
    events, done = writer.write(2, call=call, at=0, do="fail")
    assert done.returncode == 0, done.stderr
    assert (array[...] == 2).all()
    assert writer.temporaries() == []
    assert set(after_cut(events, False).values()) == {"new"}


@pytest.mark.parametrize(("call", "at"), [("file", 0), ("file", 200), ("rename", 0), ("rename", 200)])
def test_an_interrupt_leaves_whole_chunks_and_nothing_else(writer, call, at):
    array = writer.create("one axis, several rounds")
    writer.write(1)
    events, done = writer.write(2, workers=1, call=call, at=at, do="interrupt")
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr
    assert writer.temporaries() == []
    written = int((array[...] == 2).sum()) // 4
    assert written == {("file", 0): 0, ("file", 200): 128, ("rename", 0): 1, ("rename", 200): 201}[call, at]
    assert int((array[...] == 1).sum()) // 4 == 300 - written
    renamed = {event.other for event in events if event.what == "renamed"}
    assert [path for path, held in after_cut(events, False).items() if path in renamed and held != "new"] == []


@pytest.mark.parametrize(("call", "at"), [("file", 0), ("file", 200), ("rename", 5), ("folder", 0)])
def test_a_killed_writer_leaves_whole_chunks_and_files_that_a_listing_removes(writer, call, at):
    array = writer.create("one axis, several rounds")
    writer.write(1)
    events, done = writer.write(2, call=call, at=at, do="kill")
    assert done.returncode == -signal.SIGKILL
    assert set(np.unique(array[...])) <= {1, 2}
    assert "empty" not in after_cut(events, True).values()
    assert bool(writer.temporaries()) == (call != "folder")
    assert len([*array.store.list("g/a/c/")]) == 300
    assert writer.temporaries() == []
