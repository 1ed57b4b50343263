"""Memory to work in: buffers and codec contexts, one set per thread, reused from chunk to chunk; and results.

A fresh 4 MiB buffer for every chunk halves the speed by page faults, and a fresh zstd context costs
several times the decoding of a small chunk. Threads that end hand their set on to the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import prod
from typing import Any, Literal, TypeVar

import numpy as np

from zellige.types import AnyArray, Shape

T = TypeVar("T")

_ALIGN_FROM = 64 << 10
_KEEP_FROM = 4 << 20  # of smaller results the allocator keeps the memory by itself
_KEEP_BYTES = 32 << 20  # a larger buffer is freed after its use
_KEEP_SETS = 16
_FROM_FILES = {"file", "chunks", "piece"}
# The system copies files by `rep movsb`. On AMD's Zen 4, 512 KiB took 49 us into memory that begins at a multiple of 32
# bytes, 40 us into other memory, and 178 us where that begins 1 to 8 bytes after a page. 48 suits elements of any type.
_ASIDE = 48

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
        have = memoryview(_aligned(nbytes, _ASIDE if slot in _FROM_FILES else 0))  # type: ignore[arg-type]
        if nbytes > _KEEP_BYTES:
            return have
        _local.buffers[slot] = have
    return have[:nbytes]


def _aligned(nbytes: int, aside: int = 0) -> AnyArray:
    """Fresh memory that begins at a multiple of 64 bytes, so that rows fill cache lines, or so many behind one."""
    raw = np.empty(nbytes + 64, np.uint8)
    skip = (aside - raw.__array_interface__["data"][0]) % 64
    return raw[skip : skip + nbytes]


def array(slot: str, shape: Shape, dtype: np.dtype[Any]) -> AnyArray:
    """An uninitialised array in such a buffer."""
    return np.ndarray(shape, dtype, buffer(slot, prod(shape) * dtype.itemsize))


def empty(shape: Shape, dtype: np.dtype[Any], order: Literal["C", "F"] = "C") -> AnyArray:
    """An uninitialised array for a result, aligned in the same way unless it is small."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < _ALIGN_FROM or dtype.hasobject:
        return np.empty(shape, dtype, order=order)
    kept = None
    if nbytes >= _KEEP_FROM:
        from zellige.results import memory  # only for those who read much

        kept = memory(nbytes)
    return np.ndarray(shape, dtype, _aligned(nbytes) if kept is None else kept, order=order)


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
