"""Buffers and codec contexts, one set per thread, reused from chunk to chunk.

A fresh 4 MiB buffer for every chunk halves the speed by page faults, and a fresh zstd context costs
several times the decoding of a small chunk. Threads that end hand their set on to the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_KEEP_BYTES = 32 << 20  # a larger buffer is freed after its use
_KEEP_SETS = 16

_Set = tuple[dict[str, memoryview], dict[Any, Any]]
_idle: list[_Set] = []


class _Local(threading.local):
    def __init__(self) -> None:
        try:
            self.buffers, self.contexts = _idle.pop()
        except IndexError:
            self.buffers, self.contexts = {}, {}


_local = _Local()


def buffer(slot: str, nbytes: int) -> memoryview:
    """A writable buffer of `nbytes` of this thread, valid until the thread asks for the same slot again."""
    have = _local.buffers.get(slot)
    if have is None or len(have) < nbytes:
        have = _aligned(nbytes)
        if nbytes > _KEEP_BYTES:
            return have
        _local.buffers[slot] = have
    return have[:nbytes]


def _aligned(nbytes: int) -> memoryview:
    """Fresh memory that begins at a multiple of 64 bytes, so that rows fill cache lines."""
    raw = np.empty(nbytes + 64, np.uint8)
    skip = -raw.__array_interface__["data"][0] % 64
    return memoryview(raw[skip : skip + nbytes])  # type: ignore[arg-type]


def context(key: Any, make: Callable[[], T]) -> T:
    """The thread's own object for `key`, made on first use: codec contexts that are not thread-safe."""
    try:
        found: T = _local.contexts[key]
    except KeyError:
        found = _local.contexts[key] = make()
    return found


def hand_on() -> None:
    """Leave this thread's set to a later thread; called when a worker ends."""
    if len(_idle) < _KEEP_SETS:
        _idle.append((_local.buffers, _local.contexts))
    _local.buffers, _local.contexts = {}, {}
