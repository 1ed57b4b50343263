"""Damaged and deceitful chunks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from reliability import documents
from reliability.adapters import Library
from reliability.children import FORK, ChildError, Measured, call, measured
from reliability.outcome import Outcome, counted

LENGTH = 4096
SIDE = 1 << 17
"""Elements of a chunk of 1 MiB."""
KINDS = NOTICED, WRONG, FILL, CRASH, SAME = ("noticed", "wrong numbers", "fill", "process died", "no effect")


def _numbers() -> np.ndarray:
    """Values that pack a little: a random walk."""
    return np.random.default_rng(0).integers(-900, 1000, LENGTH).cumsum() + 10**6


def _noise() -> np.ndarray:
    """Values that do not pack."""
    return np.random.default_rng(0).integers(1, 2**62, LENGTH)


def _write(library: Library, path: str, values: np.ndarray) -> None:
    library.write(library.open(path), slice(None), values)


def _judge(library: Library, path: str, values: np.ndarray) -> str:
    try:
        found = library.read(library.open(path))
    except Exception:  # noqa: BLE001 - that is what it means to notice
        return NOTICED
    if np.array_equal(found, values):
        return SAME
    return FILL if not found.any() else WRONG


def _judge_all(library: Library, path: str, variants: Sequence[bytes], values: np.ndarray, kinds: Any) -> None:
    for k, variant in enumerate(variants):
        if kinds[k] < 0:
            kinds[k] = KINDS.index(CRASH)  # until proven otherwise
            with open(f"{path}/c/0", "wb") as file:
                file.write(variant)
            kinds[k] = KINDS.index(_judge(library, path, values))


def _outcomes(library: Library, path: str, variants: Sequence[bytes], values: np.ndarray) -> Counter[str]:
    """What a library makes of variants of the chunk; after one that kills the process, a new one goes on."""
    kinds = FORK.Array("i", [-1] * len(variants), lock=False)
    while -1 in list(kinds):
        try:
            call(_judge_all, library, path, variants, values, kinds)
        except ChildError as error:
            if not error.died:
                raise
    return Counter(KINDS[kind] for kind in kinds)


def _cut(library: Library, path: str, values: np.ndarray, count: int) -> Counter[str]:
    """What a library makes of a chunk that was cut at many lengths, from 0 to one byte less."""
    call(_write, library, path, values)
    with open(f"{path}/c/0", "rb") as file:
        whole = file.read()
    lengths = np.linspace(0, len(whole) - 1, count).astype(int).tolist()
    return _outcomes(library, path, [whole[:length] for length in lengths], values)


def truncated(library: Library, folder: str, count: int) -> Outcome:
    """A chunk that was cut short, for each codec, of values that pack and of values that do not."""
    facts, told, good = {}, [], True
    for name in ("raw", "zstd", "blosc", "gzip", "shard"):
        chain = documents.shard([LENGTH // 8]) if name == "shard" else documents.CHAINS[name]
        path = documents.make(f"{folder}/{name}", documents.document([LENGTH], [LENGTH], chain))
        found = _cut(library, path, _numbers(), count) + _cut(library, path, _noise(), count)
        facts[name] = dict(found)
        others = {kind: n for kind, n in found.items() if kind != NOTICED}
        good &= not others.keys() - {SAME}
        if others:
            told.append(f"{name}: " + ", ".join(f"{kind} {n} of {2 * count}" for kind, n in others.items()))
    return counted("; ".join(told) or f"all {10 * count} noticed", good, **facts)


def _flips(whole: bytes, count: int) -> list[bytes]:
    """Copies with one byte changed, at random places."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(count):
        changed = bytearray(whole)
        changed[random.integers(len(whole))] ^= int(random.integers(1, 256))
        found.append(bytes(changed))
    return found


def _flipped(library: Library, path: str, values: np.ndarray, count: int, how: str) -> Outcome:
    with open(f"{path}/c/0", "rb") as file:
        whole = file.read()
    found = _outcomes(library, path, _flips(whole, count), values)
    text = ", ".join(f"{found[kind]} {kind}" for kind in KINDS if found[kind])
    good = not (found[WRONG] or found[FILL] or found[CRASH])
    return counted(f"{text} ({how})" if how else text, good, **found, of=count, chain=how)


def flips_default(library: Library, folder: str, count: int) -> Outcome:
    """One byte of a zstd chunk is another, coded as each library does it unless told otherwise."""
    values = _numbers()
    how = call(library.create_by_default, f"{folder}/a", values)
    return _flipped(library, f"{folder}/a", values, count, how)


def flips_crc32c(library: Library, folder: str, count: int) -> Outcome:
    """One byte of a chunk with a crc32c is another."""
    values = _numbers()
    path = documents.make(f"{folder}/a", documents.document([LENGTH], [LENGTH], documents.CHAINS["crc32c"]))
    call(_write, library, path, values)
    return _flipped(library, path, values, count, "")


def _read_measured(library: Library, path: str) -> tuple[Measured, bool]:
    array = library.open(path)
    library.read(array, slice(SIDE, SIDE + 1))  # a whole chunk: what is imported on first use
    found = measured(lambda: library.read(array, slice(0, 1)).tolist())
    return found, not found.error


def bomb(library: Library, folder: str, count: int) -> Outcome:
    """A chunk of less than 1 KiB that unpacks to `count` GiB, where 1 MiB belongs."""
    chain = [documents.BYTES, documents.ZSTD, documents.ZSTD]
    path = documents.make(f"{folder}/a", documents.document([2 * SIDE], [SIDE], chain))
    call(_write, library, path, np.arange(2 * SIDE))
    stored = documents.bomb(count << 30)
    assert len(stored) < 1024
    with open(f"{path}/c/0", "wb") as file:
        file.write(stored)
    try:
        found, read = call(_read_measured, library, path)
    except ChildError as error:
        return counted(str(error), good=False, stored=len(stored))
    peak = found.bytes / 2**20
    how = "read without an error" if read else "error"
    os.unlink(f"{path}/c/0")
    facts = {"peak_mib": round(peak, 1), "seconds": round(found.seconds, 3), "error": found.error}
    return counted(f"{how}, {peak:.0f} MiB", bool(found.error) and peak < 16, **facts, stored=len(stored))
