"""Writers that are killed, interrupted, or run out of room, and what they make durable."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from reliability import documents
from reliability.adapters import Library
from reliability.children import FORK, Child, call, words
from reliability.outcome import Outcome, counted

ROOT = Path(__file__).parents[1]
SIDE = 1 << 17
"""Elements of a chunk of 1 MiB."""


def _files(path: str) -> set[str]:
    """All files below a directory."""
    return {os.path.join(folder, name)[len(path) + 1 :] for folder, _, names in os.walk(path) for name in names}


def _chunks(path: str) -> set[str]:
    """The chunks of an array of one axis."""
    return {name for name in _files(path) if re.fullmatch(r"c/\d+", name)}


# -- kill -9 --------------------------------------------------------------------------------------

CHUNKS = 8


def _write_generations(library: Library, path: str, first: int, ready: Any) -> None:
    array = library.open(path)
    for number in range(first, first + 10**6):
        library.write(array, slice(None), np.full(CHUNKS * SIDE, number))
        if number == first:
            ready.set()


def _torn(library: Library, path: str) -> dict[str, int]:
    """How many chunks hold more than one generation, do not decode, or are gone; if any, all are written again."""
    array = library.open(path)
    found = {"mixed": 0, "undecodable": 0, "gone": 0}
    for k in range(CHUNKS):
        try:
            values = library.read(array, slice(k * SIDE, (k + 1) * SIDE))
        except Exception:  # noqa: BLE001 - counted
            found["undecodable"] += 1
        else:
            found["mixed"] += int(values.min() != values.max())
            found["gone"] += int(values.max() == 0)
    if any(found.values()):
        library.write(array, slice(None), np.full(CHUNKS * SIDE, 1))
    return found


def kills(library: Library, folder: str, count: int) -> Outcome:
    """A writer of 8 chunks, each full of the number of its generation, is killed at a random moment."""
    path = documents.make(f"{folder}/a", documents.document([CHUNKS * SIDE], [SIDE]))
    chance = random.Random(0)
    total, bad = {"mixed": 0, "undecodable": 0, "gone": 0}, 0
    for number in range(count):
        ready = FORK.Event()
        writer = Child(_write_generations, library, path, 1 + 1000 * number, ready)
        try:
            if not ready.wait(60):
                raise RuntimeError("the writer writes nothing")
            time.sleep(chance.uniform(0, 0.04))
        finally:
            writer.kill()
        found = call(_torn, library, path)
        bad += any(found.values())
        total = {kind: n + found[kind] for kind, n in total.items()}
    torn = sum(total.values())
    left = len(_files(path) - _chunks(path) - {"zarr.json"})
    text = f"{torn} torn chunks after {count} kills" + f", {left} unfinished files left" * bool(left)
    return counted(text, not torn, **total, kills=count, kills_that_tore=bad, other_files_left=left)


# -- Ctrl-C ---------------------------------------------------------------------------------------

SMALL = 1 << 13
"""Elements of a chunk of 64 KiB."""
LONG = 400
"""Chunks of the write, which takes seconds."""
QUIET, WATCHED = 1.0, 5.0
"""Seconds without a new chunk after which no more is expected, and seconds to wait for that at most."""


def _write_long(library: Library, path: str, count: int) -> dict[str, Any]:
    """Write all chunks; when that is interrupted, count the chunks then and a while later."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    values = np.random.default_rng(0).integers(1, 4096, count * SMALL)
    array = library.open(path)
    try:
        library.write(array, slice(None), values)
    except BaseException as error:  # noqa: BLE001 - an interrupt may come as another error
        surfaced, raised = time.monotonic(), words(error)
    else:
        return {"finished": True}
    at_once = seen = _chunks(path)
    quiet_since = time.monotonic()
    while (now := time.monotonic()) < min(quiet_since + QUIET, surfaced + WATCHED):
        time.sleep(0.05)
        if (found := _chunks(path)) != seen:
            seen, quiet_since = found, now
    return {"surfaced": surfaced, "raised": raised, "chunks": len(at_once), "after": len(seen - at_once)}


def _interrupt_once(library: Library, path: str) -> dict[str, Any]:
    documents.make(path, documents.document([LONG * SMALL], [SMALL], documents.CHAINS["gzip"]))
    writer = Child(_write_long, library, path, LONG)
    end = time.monotonic() + 60
    while len(_chunks(path)) < 8 and time.monotonic() < end:
        time.sleep(0.005)
    sent = time.monotonic()
    writer.interrupt()
    found: dict[str, Any] = writer.result()
    shutil.rmtree(path)
    if "finished" not in found:
        found["seconds"] = round(found.pop("surfaced") - sent, 3)
    return found


def interrupt(library: Library, folder: str, count: int) -> Outcome:
    """Ctrl-C in the middle of a write of many chunks, some times; then the process goes on with something else.

    What surfaces when all is written has not interrupted anything.
    """
    runs = [_interrupt_once(library, f"{folder}/{number}") for number in range(count)]
    after = [run.get("after", 0) for run in runs]
    ignored = sum("finished" in run or run["chunks"] == LONG for run in runs)
    slowest = max((run["seconds"] for run in runs if "seconds" in run), default=0.0)
    text = f"{', '.join(map(str, after))}" + f"; {ignored} times all was written first" * bool(ignored)
    good = not any(after) and not ignored and all("KeyboardInterrupt" in run["raised"] for run in runs)
    return counted(f"{text}; surfaced within {slowest:.2g} s", good, runs=runs)


# -- no room --------------------------------------------------------------------------------------

ROOM = 1 << 18
"""Bytes that a file may have: more than the chunks that pack well, less than the others."""


def _write_without_room(library: Library, path: str, values: np.ndarray) -> dict[str, Any]:
    array = library.open(path)
    library.read(array, slice(0, 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))  # Python ignores the signal, so that writes fail
    try:
        library.write(array, slice(None), values)
    except Exception as error:  # noqa: BLE001 - what it says is the matter
        text = f"{type(error).__name__}: {error} {' '.join(getattr(error, '__notes__', []))}"
        chunks = bool(getattr(error, "written", None) and getattr(error, "failed", None))
        number = getattr(error, "errno", None)
        return {
            "error": text.replace(path, "")[:400],
            "errno": number,
            "says_key": "c/" in text,
            "says_written": chunks,
        }
    return {"error": ""}


def _states(library: Library, path: str, old: np.ndarray, new: np.ndarray) -> list[str]:
    array = library.open(path)
    found = []
    for part in (slice(k * SIDE, (k + 1) * SIDE) for k in range(len(old) // SIDE)):
        try:
            values = library.read(array, part)
        except Exception:  # noqa: BLE001 - counted
            found.append("torn")
        else:
            whole = {"old": np.array_equal(values, old[part]), "new": np.array_equal(values, new[part])}
            found.append(next((name for name, equal in whole.items() if equal), "torn"))
    return found


def _write_all(library: Library, path: str, values: np.ndarray) -> None:
    library.write(library.open(path), slice(None), values)


def no_room(library: Library, folder: str, count: int) -> Outcome:
    """A write of many chunks of which every second one is longer than a file may be."""
    path = documents.make(f"{folder}/a", documents.document([count * SIDE], [SIDE], documents.CHAINS["zstd"]))
    old = np.full(count * SIDE, 1)
    new = np.full((count, SIDE), 2)
    new[1::2] = np.random.default_rng(0).integers(0, 2**62, (count // 2, SIDE))
    call(_write_all, library, path, old)
    said = call(_write_without_room, library, path, new.ravel())
    states = call(_states, library, path, old, new.ravel())
    torn = states.count("torn")
    text = f"{torn} torn of {count}; "
    if said["error"]:
        parts = ["errno"] * (said["errno"] is not None) + ["key"] * said["says_key"]
        parts += ["which chunks"] * said["says_written"]
        text += f"error with {', '.join(parts)}" if parts else "error without errno or key"
    else:
        text += "no error"
    left = len(_files(path) - _chunks(path) - {"zarr.json"})
    counts = {state: states.count(state) for state in ("old", "new", "torn")}
    return counted(text, not torn and bool(said["error"]), **counts, **said, other_files_left=left)


# -- power ----------------------------------------------------------------------------------------


TRACE = "trace-"
"""What the names of processes begin with that run under strace."""


def trace_target(library: Library, folder: str, how: str) -> None:
    """What runs under strace: one write of one chunk, or one new document."""
    path = f"{folder}/a"
    if how != "document":
        documents.make(path, documents.document([8], [8]))
    if how == "document":
        library.create(path)
    elif how == "durable":
        library.put_durably(path, np.arange(1, 9))
    else:
        library.write(library.open(path), slice(None), np.arange(1, 9))


def _traced(library: Library, folder: str, how: str) -> dict[str, bool] | None:
    """Whether what is renamed into its place was synced before, and its directory after; None without the feature."""
    log, path = f"{folder}/{how}.strace", f"{folder}/{TRACE}{how}/a"
    calls = "fsync,fdatasync,sync_file_range,rename,renameat,renameat2,link,linkat"
    own = [sys.executable, "-m", "reliability.scenarios", library.name, folder, f"{TRACE}{how}=1"]
    done = subprocess.run(
        ["strace", "-f", "-y", "-s", "4096", "-e", f"trace={calls}", "-o", log, *own],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    if answer.get("none"):
        return None
    if not answer.get("done"):
        raise RuntimeError(f"strace: {(answer.get('error') or done.stderr).strip()[-200:]}")
    place = f"{path}/zarr.json" if how == "document" else f"{path}/c/0"
    return judge_trace(Path(log).read_text(), place)


def judge_trace(log: str, place: str) -> dict[str, bool]:
    """Whether a log of strace shows that a file was synced before it got its name, and its directory afterwards."""
    synced: list[str] = []
    found = {"renamed": False, "file": False, "directory": False}
    for line in log.splitlines():
        if match := re.search(r"\bf(?:data)?sync\(\d+<([^>]*)>", line):
            synced.append(match[1])
            found["directory"] |= found["renamed"] and match[1] == os.path.dirname(place)
        elif match := re.search(r"\b(?:rename|link)(?:at2?)?\((.*)\)\s*= 0", line):
            names = re.findall(r'"([^"]*)"', match[1])
            folders = re.findall(r"<([^>]*)>", match[1])
            if len(folders) == len(names):
                names = [os.path.join(folder, name) for folder, name in zip(folders, names, strict=True)]
            if names and names[-1] == place:
                found["renamed"], found["file"] = True, names[0] in synced
    found["file"] |= place in synced  # written in place
    return found


def power(library: Library, folder: str, count: int) -> Outcome:
    """Whether fsync is called before the rename, and on the directory after it, as strace sees it."""
    if not shutil.which("strace"):
        return counted("not measured: strace is not installed", good=None, strace=False)
    facts, told = {}, []
    for how in ("chunk", "durable", "document"):
        facts[how] = found = _traced(library, folder, how)
        if found is None:
            continue
        synced = [what for what in ("file", "directory") if found[what]]
        label = "chunk, when asked" if how == "durable" else how
        told.append(f"{label}: {' and '.join(synced) + ' synced' if synced else 'not synced'}")
    best = facts["durable"] or facts["chunk"]
    good = all(found and found["file"] and found["directory"] for found in (best, facts["document"]))
    return counted("; ".join(told), good, **facts)
