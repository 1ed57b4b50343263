"""Copying rows of small chunks out of a larger array and into one, and strips of large chunks into one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby, repeat
from math import prod
from operator import setitem
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
_STRIP = 3 << 19  # bytes of chunks side by side that are there already
_SLAB = 4 << 20  # bytes of chunks side by side that come in pieces, each of which is copied while in that cache


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
    if target.nbytes > _STRIP and len({*row.sizes[-1]}) > 1 and False not in row.wholes and dtype == target.dtype:
        _scatter_uneven(target, row, flat)
        return
    for part, chunks in _pairs(target, row, dtype, flat):
        part[...] = chunks


def _scatter_uneven(target: AnyArray, row: Row, flat: Buffer) -> None:
    """Put whole chunks of many widths together, some planes at a time in the cache, and copy these to their place.

    So the result is written once, in its own order, as numpy does by itself where chunks have one width.
    """
    depth, widths = len(target), row.sizes[-1]
    planes = -(-depth // -(-target.nbytes // _STRIP))
    strip, parts = _strip((planes, *target.shape[1:]), target.dtype, widths)
    shape = (sum(row.sizes[0]), *[only for (only,) in row.sizes[1:-1]])
    starts = accumulate([prod(shape) * width * target.itemsize for width in widths], initial=0)
    chunks = _lines([np.ndarray((*shape, width), target.dtype, flat, next(starts)) for width in widths], parts)
    line = item(target.shape[-1] * target.itemsize)
    target, strip = target.view(line), strip.view(line)
    places: list[AnyArray] = []
    values: list[AnyArray] = []
    for start in range(0, depth, planes):
        stop = min(start + planes, depth)
        if stop - start < planes:
            strip, parts = strip[: stop - start], [part[: stop - start] for part in parts]
        places += [*parts, target[start:stop]]
        values += [*[chunk[start:stop] for chunk in chunks], strip]
    # One call for all copies: other threads run during each of them, but seldom come between two.
    deque(map(setitem, places, repeat(...), values), 0)  # type: ignore[arg-type]  # the stubs know lists only


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
    steps = -(-depth * column * sum(widths) // (_PIECE if len(keys) == 1 else _SLAB))
    if steps > depth and len(keys) > 1:
        return False  # what does not stay in the cache is put together in vain
    planes = -(-depth // steps)
    room = scratch.buffer("piece", planes * column * max(widths))
    sizes, rooms = [depth * column * width for width in widths], [room[: planes * column * width] for width in widths]
    chunks: list[AnyArray] = [np.ndarray((planes, *middle, width), dtype, room) for width in widths]
    use = partial(_scatter_one, target, chunks[0]) if len(keys) == 1 else partial(_scatter_strips, target, chunks)
    use = partial(use, depth)
    return store.read_pieces(keys, sizes, rooms, use)


def _scatter_one(target: AnyArray, chunk: AnyArray, depth: int, pieces: Iterator[None]) -> None:
    """Copy a chunk of so many planes, of which some come at a time."""
    planes = len(chunk)
    for start, _ in zip(range(0, depth, planes), pieces, strict=False):
        here = target[start : start + planes]
        copy_rows(here, chunk[tuple(map(slice, here.shape))])


def _scatter_strips(target: AnyArray, chunks: Sequence[AnyArray], depth: int, pieces: Iterator[None]) -> None:
    """Put chunks of so many planes together, of which some come at a time, and copy each strip to its place."""
    planes = len(chunks[0])
    strip, parts = _strip((planes, *target.shape[1:]), target.dtype, [chunk.shape[-1] for chunk in chunks])
    chunks = _lines(chunks, parts)
    for start in range(0, depth, planes):
        here = target[start : start + planes]
        if (count := len(here)) < planes:
            strip, parts, chunks = strip[:count], [part[:count] for part in parts], [chunk[:count] for chunk in chunks]
        for part, chunk, _ in zip(parts, chunks, pieces, strict=False):
            part[...] = chunk
        copy_rows(here, strip)


def _strip(extents: Shape, dtype: np.dtype[Any], widths: Sequence[int]) -> tuple[AnyArray, list[AnyArray]]:
    """Memory for a strip across chunks of these widths, and its part for each of them, with rows as items."""
    *outer, length = extents
    strip = scratch.array("strip", extents, dtype)
    parts, end = [], 0
    for width in widths:
        row = item(min(width, length - end) * dtype.itemsize)
        parts.append(np.ndarray(outer, row, strip, end * dtype.itemsize, strip.strides[:-1]))
        end += width
    return strip, parts


def _lines(chunks: Sequence[AnyArray], parts: Sequence[AnyArray]) -> list[AnyArray]:
    """What the parts of a strip take from all planes of the chunks, with rows as items."""
    return [
        np.ndarray((len(chunk), *part.shape[1:]), part.dtype, chunk, 0, chunk.strides[:-1])
        for chunk, part in zip(chunks, parts, strict=True)
    ]
