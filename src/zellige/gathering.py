"""Copying rows of chunks out of a larger array and into one, and large chunks piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby
from typing import Any

import numpy as np

from zellige.codecs.chain import BoundChain
from zellige.dtypes.fill import equals_fill, rows_of_fill
from zellige.errors import CodecError
from zellige.plans import Pick, Row, Stretch, copy_rows, item
from zellige.types import AnyArray, Buffer


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


def _pairs(work: AnyArray, row: Row, dtype: np.dtype[Any], flat: Buffer) -> list[tuple[AnyArray, AnyArray]]:
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
    pairs: list[tuple[AnyArray, AnyArray]] = []
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


def scatter_pieces(bound: BoundChain, target: AnyArray, pieces: Iterable[Buffer]) -> None:
    """Copy what the array has of an uncompressed chunk, which comes in pieces of `bound.slab` bytes, to its place."""
    done, size = 0, bound.nbytes // bound.shape[0]
    inside = tuple(map(slice, target.shape[1:]))
    for piece in pieces:
        count, rest = divmod(len(piece), size)
        if rest or done + count > bound.shape[0]:
            raise CodecError(f"bytes: {bound.nbytes} bytes expected, {done * size + len(piece)} or more found")
        slab: AnyArray = np.ndarray((count, *bound.shape[1:]), bound.dtype, piece)
        copy_rows(target[done : done + count], slab[(slice(max(0, len(target) - done)), *inside)])
        done += count
    if done != bound.shape[0]:
        raise CodecError(f"bytes: {bound.nbytes} bytes expected, {done * size} found")
