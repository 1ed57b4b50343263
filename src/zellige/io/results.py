"""Memory for large results: that of results which were dropped.

Fresh memory costs a page fault and the zeroing of every page. Measured with the kernel on two cores, 128 MiB in chunks
of 512 KiB: uncompressed reads take 15.1 ms without this and 11.3 ms with it, blosc 43.5 and 40.8, zstd 53.6 and 49.6.
A program that reads in a loop drops one result after the other, so their memory is kept, up to `memory.keep_bytes`, and
given to the next of about that size. What is kept is marked as free: the system takes the pages when it needs them.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from math import prod
from typing import Any, Literal
from weakref import finalize

import numpy as np

from zellige.settings import config
from zellige.types import AnyArray, Shape

_ALIGN_FROM = 64 << 10  # bytes; smaller results are what numpy makes
_KEEP_FROM = 4 << 20  # bytes; of smaller results the allocator keeps the memory by itself
_WASTE = 2  # a result may lie in memory that is so many times as large
_CAN_BE_KEPT = hasattr(mmap, "MADV_FREE") and hasattr(mmap, "MAP_ANONYMOUS")

_kept: list[mmap.mmap] = []
"""Blocks that are free, the oldest first. Only single steps of lists change it, because a result can be dropped at
any moment, also between two steps of this module."""


def empty(shape: Shape, dtype: np.dtype[Any], order: Literal["C", "F"] = "C") -> AnyArray:
    """Return an uninitialised array for a result, whose rows begin at cache lines unless it is small."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < _ALIGN_FROM or dtype.hasobject:
        return np.empty(shape, dtype, order=order)
    kept = memory(nbytes) if nbytes >= _KEEP_FROM else None
    try:
        return np.ndarray(shape, dtype, _aligned(nbytes) if kept is None else kept, order=order)
    except MemoryError:
        return np.empty(shape, dtype, order=order)  # whose error names this shape and type


def _aligned(nbytes: int) -> AnyArray:
    """Return fresh memory that begins at a multiple of 64 bytes."""
    raw = np.empty(nbytes + 64, np.uint8)
    skip = -raw.__array_interface__["data"][0] % 64
    return raw[skip : skip + nbytes]


def memory(nbytes: int) -> AnyArray | None:
    """Return bytes that are kept again when the last array that sees them is gone; None if so many never are."""
    if not _CAN_BE_KEPT or nbytes > _trim():
        return None
    try:
        block = _kept_block(nbytes) or _new_block(nbytes)
    except (OSError, OverflowError):  # there is not enough, which numpy says better
        _kept.clear()
        return None
    seen = np.frombuffer(block, np.uint8)
    finalize(seen, _keep, block).atexit = False
    return seen


def _kept_block(nbytes: int) -> mmap.mmap | None:
    """Return the smallest block that is large enough, if it is not much too large."""
    for block in sorted(_kept, key=len):
        if nbytes <= len(block) <= _WASTE * nbytes:
            with suppress(ValueError):  # another thread was faster
                _kept.remove(block)
                return block
    return None


def _new_block(nbytes: int) -> mmap.mmap:
    """Return fresh memory, in huge pages where there are any, as numpy asks for them."""
    block = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system that was built without them
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _keep(block: mmap.mmap) -> None:
    """Keep the memory of a result that was dropped, and less of what was dropped before.

    Python calls this within whatever drops a result. An interrupt in these microseconds is lost, as in any such call.
    """
    with suppress(OSError):  # a system that is too old for this frees it
        block.madvise(mmap.MADV_FREE)
        _kept.append(block)
    _trim()


def _trim() -> int:
    """Keep no more than the setting allows, which is returned."""
    most: int = config.get("memory.keep_bytes")
    while sum(map(len, _kept)) > most:
        with suppress(IndexError):  # another thread was faster
            del _kept[0]
    return most
