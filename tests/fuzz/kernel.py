"""Fuzz every entry point of the kernel: right calls of which something is changed, under the sanitizers.

`make kernelfuzz` calls this through `tools/sanitized.sh`, with one process for each entry point. A case follows from
its number alone. If a process dies, or a promise is broken, its number is printed with the report; `--entry decode
--case 17` carries that one out again.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "kernel"), str(Path(__file__).parents[1])]
from calls import LAYOUTS, REFUSED, VALUES, Arguments, Calls, Valid  # noqa: E402

from zellige import kernel  # noqa: E402

ENTRIES = ("read_files", "decode", "write_files", "encode", "Reader")
NUMBERS = (-(2**63), -1, 0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 255, 4096, 1 << 20, 1 << 46, 1 << 62, 2**63 - 1)
STUCK = 300  # seconds after its time is over: a process that is not done then hangs


def number(chance: random.Random) -> int:
    return chance.choice(NUMBERS) if chance.random() < 0.8 else chance.randrange(-3, 40)


def changed_integers(chance: random.Random, given: Any) -> array[int]:
    made = array("q", given)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if made:
            made[chance.randrange(len(made))] = number(chance)
    if chance.random() < 0.1:
        del made[chance.randrange(len(made) + 1) :]
    if chance.random() < 0.1:
        made.extend(made[: chance.randrange(9)])
    return made


def changed_table(chance: random.Random, table: Any) -> Any:
    axis = chance.randrange(len(table))
    entry = list(table[axis])
    which = chance.choice([k for k in (0, 0, 2, 3) if entry[k] is not None])
    if chance.random() < 0.05:
        entry[1] = chance.choice(((), (0, 0), (0, 1), (1,), (-1,), (2,), (1 << 40,)))
    else:
        entry[which] = changed_integers(chance, entry[which])
    return (*table[:axis], tuple(entry), *table[axis + 1 :])


def changed_bytes(chance: random.Random, raw: bytes) -> bytes | None:
    if chance.random() < 0.05:
        return chance.choice((None, b"", bytes(5), raw * 2))
    made = bytearray(raw)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(made))
        if chance.random() < 0.3:
            made[at : at + 4] = struct.pack("<I", number(chance) & 0xFFFFFFFF)
        else:
            made[at] = chance.choice((0, 1, 127, 128, 255, made[at] ^ 1 << chance.randrange(8)))
    if chance.random() < 0.2:
        del made[chance.randrange(len(made)) :]
    return bytes(made)


def changed_shard(chance: random.Random, raw: bytes) -> bytes:
    """One with 12 inner chunks, whose checksum fits."""
    body = bytearray(raw[:-4])
    index = len(body) - 16 * 12
    for _ in range(chance.randrange(1, 4)):
        at = index + 8 * chance.randrange(24)
        body[at : at + 8] = struct.pack("=q", chance.choice((number(chance), chance.randrange(len(raw) + 9))))
    return bytes(body) + struct.pack("<I", kernel.native.crc32c(bytes(body[index:])))


def changed(chance: random.Random, valid: Valid, given: Arguments) -> Arguments:
    """Some of the arguments of a call, changed."""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        match chance.randrange(7):
            case 0 | 1:
                given = replace(given, table=changed_table(chance, given.table))
            case 2:
                at = 8 * chance.randrange(len(given.program) // 8)
                word = struct.pack("=q", number(chance))
                given = replace(given, program=given.program[:at] + word + given.program[at + 8 :])
            case 3 | 4:
                at, values = chance.randrange(len(given.values)), list(given.values)
                sharded = "shards" in valid.name and chance.random() < 0.8 and len(values[at] or b"") > 196
                if values[at]:
                    values[at] = changed_shard(chance, values[at]) if sharded else changed_bytes(chance, values[at])
                given = replace(given, values=values)
            case 5:
                given = replace(given, flags=chance.randrange(4), threads=chance.choice((-1, 0, 1, 2, 3, 300)))
            case 6:
                folder = chance.choice((None, None, 0, 1, 5, 4095, 4096, 1 << 40))
                given = replace(given, fill=chance.random() < 0.5, folder=folder)
    return given


def coords_of(valid: Valid, given: Arguments) -> list[tuple[int, int]]:
    width = 8 if "shards" in valid.name else 6
    rows, columns = ([*dict.fromkeys(int(n) for n in entry[0][::width])] for entry in given.table)
    return [(row, column) for row in rows for column in columns]


def reader(chance: random.Random, calls: Calls, valid: Valid) -> None:
    given = valid.writing
    calls.store(replace(given, values=changed(chance, valid, given).values), coords_of(valid, given))
    axes = []
    for size, extent in zip((8, 6) if "shards" in valid.name else (5, 4), VALUES.shape, strict=True):
        count = -(-extent // size)
        axes.append((array("q", [0, count * size]), array("q", [0, count])))
    program = changed(chance, valid, given).program
    for _ in range(chance.choice((0, 1, 1, 2))):
        axis, which = chance.randrange(2), chance.randrange(2)
        pair = list(axes[axis])
        pair[which] = changed_integers(chance, pair[which])
        axes[axis] = tuple(pair)
    shape = tuple(number(chance) if chance.random() < 0.1 else n for n in VALUES.shape)
    empty = (lambda shape, dtype: np.empty(3)) if chance.random() < 0.05 else np.empty
    try:
        made = kernel.native.Reader(
            *(calls.base, given.pieces, False, program, shape, tuple(axes), chance.random() < 0.5),
            *(lambda: 3, empty, empty, np.dtype("i4")),
        )
        for _ in range(3):
            index = tuple(
                chance.choice((slice(None), number(chance), slice(number(chance), number(chance), 3), ...))
                for _ in range(chance.randrange(4))
            )
            found = made.read(index)
            assert found is None or found.dtype == np.dtype("i4")
    except REFUSED:
        pass


def case(entry: str, at: int, calls: Calls, valids: dict[str, Valid]) -> None:
    """Carry one case out; raises if a promise is broken."""
    chance = random.Random(f"{entry} {at}")
    layout = chance.choice(list(LAYOUTS))
    valid = valids.get(layout) or valids.setdefault(layout, Valid(layout))
    if entry == "Reader":
        reader(chance, calls, valid)
    elif entry in ("decode", "read_files"):
        right = valid.reading
        given = changed(chance, valid, right)
        if entry == "read_files":
            calls.store(given, coords_of(valid, right))
        found = calls.read(entry, given)
        assert given is not right or np.array_equal(found, valid.expected(right))
    else:
        given = changed(chance, valid, valid.writing)
        if entry == "encode":
            raws = calls.encode(given, VALUES)
            again = None if raws is None or any(calls.statuses[: len(raws)]) else ("decode", raws)
        else:
            again = None if calls.write(given, VALUES) != 0 else ("read_files", given.values)
        if again is not None and given is valid.writing:
            found = calls.read(again[0], replace(given, values=again[1]))
            assert np.array_equal(found, VALUES)
    if chance.random() < 0.2:  # so that directories have to be made
        calls.clear()


def fuzz(entry: str, seconds: float, first: int, only: int | None) -> None:
    """Carry out cases until the time is over, and say before each one which it is."""
    progress = os.open(os.environ["KERNEL_FUZZ_AT"], os.O_WRONLY) if "KERNEL_FUZZ_AT" in os.environ else -1
    valids: dict[str, Valid] = {}
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files in memory are many times as fast
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        calls = Calls(Path(folder, "stored"))
        calls.folder.mkdir()
        end, at = time.monotonic() + seconds, first if only is None else only
        while time.monotonic() < end:
            if progress >= 0:
                os.pwrite(progress, b"%-20d" % at, 0)
            case(entry, at, calls, valids)
            at += 1
            if only is not None:
                break
    print(f"done {at - first}")


def run_one(entry: str, seconds: int, first: int) -> tuple[str, str]:
    with tempfile.NamedTemporaryFile() as progress:
        command = [sys.executable, __file__, "--entry", entry, "--seconds", str(seconds), "--first", str(first)]
        environment = {**os.environ, "KERNEL_FUZZ_AT": progress.name}
        try:
            done = subprocess.run(
                command, check=False, timeout=seconds + STUCK, env=environment,
                capture_output=True, text=True, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return entry, f"FIND: case {Path(progress.name).read_text().strip()} does not end"
        at = Path(progress.name).read_text().strip()
    if done.returncode == 0:
        return entry, f"{done.stdout.split()[-1]} cases, nothing found"
    return entry, f"FIND: case {at} ended with {done.returncode}\n{done.stderr[-6000:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for all entry points together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--entry", choices=ENTRIES)
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--first", type=int, default=int(time.time()) * 1000, help="the number of the first case")
    given = parser.parse_args()
    if given.entry:
        fuzz(given.entry, given.seconds, given.first, given.case)
        return
    share = max(1, given.seconds * given.jobs // len(ENTRIES))
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(lambda entry: run_one(entry, share, given.first), ENTRIES))
    for entry, text in found:
        print(f"{entry:12} {text}")
    sys.exit(any("FIND" in text for _, text in found))


if __name__ == "__main__":
    main()
