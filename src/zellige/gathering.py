"""Copying rows of small chunks out of a larger array and into one, and strips of large chunks into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby
from math import prod
from operator import mul
from typing import Any, TypeAlias

import numpy as np

from zellige import scratch
from zellige.codecs.chain import BoundChain
from zellige.dtypes.fill import equals_fill, rows_of_fill
from zellige.plans import Pick, Row, Stretch, copy_rows, item
from zellige.stores import Store
from zellige.types import AnyArray, Buffer, Shape

Pairs: TypeAlias = list[tuple[AnyArray, AnyArray]]
"""Parts of an array, each with the same elements elsewhere."""

_PIECE = 1 << 20  # bytes of one chunk; about as much as stays in the cache of a processor while it is copied on
_STRIP = 3 << 19  # bytes of chunks side by side


def gather_row(values: AnyArray, row: Row, first: BoundChain, sizes: Sequence[int], flat: memoryview) -> bool:
    """Copy whole chunks of so many bytes out of the values, one after the other; True if one is of fill values."""
    for part, chunks in _pairs(values, row, first.dtype, flat):
        chunks[...] = part
    ends = [end // first.dtype.itemsize for end in accumulate(sizes, initial=0)]
    every: AnyArray = np.ndarray(values.size, first.dtype, flat)
    begun = rows_of_fill(every[ends[:-1]].reshape(-1, 1), first.fill)  # few others are worth a closer look
    closer = [every[ends[k] : ends[k + 1]] for k in np.flatnonzero(begun).tolist()]
    return any(equals_fill(chunk, first.fill) for chunk in closer)


def scatter_row(target: AnyArray, row: Row, dtype: np.dtype[Any], flat: Buffer) -> None:
    """Copy what is picked from chunks, which lie one after the other, to its place."""
    for part, chunks in _pairs(target, row, dtype, flat):
        part[...] = chunks


def _pairs(work: AnyArray, row: Row, dtype: np.dtype[Any], flat: Buffer) -> Pairs:
    """Parts of an array, each with the same elements of chunks that lie one after the other in memory.

    Few and large ones, with rows as items where they can be, and made without calls for each chunk.
    """
    first, *middle, last = row.entries
    depth = sum([size for _, size, _, _, _ in first])
    shape = (depth, *[size for ((_, size, _, _, _),) in middle])
    inside = (_joint(first, depth), *[pick for ((_, _, pick, _, _),) in middle])
    alike, behind = dtype == work.dtype, (*range(1, len(shape) + 1), 0)
    # Whole chunks that have one size and are side by side are one array.
    wholes = [
        size if alike and type(pick) is slice and place.stop - place.start == size else ~k
        for k, (_, size, pick, place, _) in enumerate(last)
    ]
    pairs: Pairs = []
    at = k = 0
    for _, equal in groupby(wholes):
        count = len([*equal])
        _, size, pick, place, _ = last[k]
        part = work[..., place.start : last[k + count - 1][3].stop]
        chunks: AnyArray = np.ndarray((count, *shape, size), dtype, flat, at)
        found = chunks[0][(*inside, pick)] if count == 1 else chunks[(slice(None), *inside)]
        if alike and found.strides[-1] == dtype.itemsize:
            line = item(found.shape[-1] * dtype.itemsize)
            part, found = part.view(line), found.view(line)
        pairs.append((part, found if count == 1 else found[..., 0].transpose(behind)))
        at, k = at + chunks.nbytes, k + count
    return pairs


def _joint(entries: list[Stretch], length: int) -> Pick:
    """What is picked from chunks of this length in all that follow each other."""
    _, size, end, _, _ = entries[-1]
    return end if len(entries) == 1 else slice(entries[0][2].start, length - size + end.stop)  # type: ignore[union-attr]


def read_strips(
    store: Store, keys: Sequence[str], dtype: np.dtype[Any], shape: Shape, widths: Sequence[int], target: AnyArray
) -> bool:
    """Read what the array has of uncompressed chunks side by side into its place, some planes of each at a time.

    The chunks have this shape but for the last axis. What is read of one is copied on while it is in the cache.
    Several are put together there, and the result is written in its own order. False if they must be read as a whole.
    """
    # Little is done before the first call that lets other threads run, and between those calls.
    depth, *middle, _ = shape
    column = prod(middle) * dtype.itemsize
    steps = -(-depth * column * sum(widths) // (_PIECE if len(keys) == 1 else _STRIP))
    if steps > depth and len(keys) > 1:
        return False  # what does not stay in the cache is put together in vain
    planes = -(-depth // steps)
    room = scratch.buffer("piece", planes * column * max(widths))
    sizes, rooms = [depth * column * width for width in widths], [room[: planes * column * width] for width in widths]
    if len(keys) == 1:
        use = partial(_scatter_one, target, depth, np.ndarray((planes, *shape[1:]), dtype, room))
    else:
        use = partial(_scatter_strips, target, depth, *_strip((planes, *target.shape[1:]), dtype, shape, widths, room))
    return store.read_pieces(keys, sizes, rooms, use)


def _scatter_one(target: AnyArray, depth: int, chunk: AnyArray, pieces: Iterator[None]) -> None:
    """Copy a chunk of so many planes, of which some come at a time."""
    planes = len(chunk)
    for start, _ in zip(range(0, depth, planes), pieces, strict=False):
        here = target[start : start + planes]
        copy_rows(here, chunk[tuple(map(slice, here.shape))])


def _scatter_strips(target: AnyArray, depth: int, strip: AnyArray, pairs: Pairs, pieces: Iterator[None]) -> None:
    """Put strips of chunks of so many planes together, and copy each to its place."""
    planes = len(strip)
    for start in range(0, depth, planes):
        here = target[start : start + planes]
        if (count := len(here)) < planes:
            strip, pairs = strip[:count], [(part[:count], chunk[:count]) for part, chunk in pairs]
        for (part, chunk), _ in zip(pairs, pieces, strict=False):
            part[...] = chunk
        copy_rows(here, strip)


def _strip(
    extents: Shape, dtype: np.dtype[Any], shape: Shape, widths: Sequence[int], room: memoryview
) -> tuple[AnyArray, Pairs]:
    """Memory for a strip; and its part for each chunk with the elements in the room, both with rows as items."""
    *outer, length = extents
    size = dtype.itemsize
    memory = scratch.buffer("strip", prod(extents) * size)
    strip: AnyArray = np.ndarray(extents, dtype, memory)
    lines, columns = strip.strides[:-1], [*accumulate(shape[-2:0:-1], mul, initial=size)][::-1]
    pairs, end = [], 0
    for width in widths:
        row = item(min(width, length - end) * size)
        part: AnyArray = np.ndarray(outer, row, memory, end * size, lines)
        chunk: AnyArray = np.ndarray(outer, row, room, 0, [width * column for column in columns])
        pairs.append((part, chunk))
        end += width
    return strip, pairs
