"""Copying rows of chunks out of a larger array and into one, and large chunks piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from zellige import scratch
from zellige.codecs.chain import BoundChain
from zellige.dtypes.fill import equals_fill, rows_of_fill
from zellige.errors import CodecError
from zellige.plans import Row, copy_rows
from zellige.types import AnyArray, Buffer

_TINY = 16 << 10  # bytes of a chunk that takes longer to look at than to copy element by element


def gather_row(values: AnyArray, row: Row, bounds: Sequence[BoundChain], flat: memoryview) -> bool:
    """Copy chunks side by side, which fill the values, one after the other; tells whether one is of fill values."""
    first, width = bounds[0], len(row.numbers[-1])
    if len(set(bounds)) == 1:  # then by one call
        chunks: AnyArray = np.ndarray((len(bounds), *first.shape), first.dtype, flat)
        item = f"V{first.shape[-1] * first.dtype.itemsize}"
        lines = values.view(item).reshape(*first.shape[:-2], -1, first.shape[-2], width)
        chunks.view(item).reshape(-1, width, *first.shape[:-1])[...] = np.moveaxis(lines, (-3, -1), (0, 1))
        return bool(rows_of_fill(chunks, first.fill).any())
    at, empty = 0, False
    for request, bound in zip(row.wanted, bounds, strict=True):
        chunk: AnyArray = np.ndarray(bound.shape, bound.dtype, flat, at)
        copy_rows(chunk, values[request[3]])
        empty = empty or equals_fill(chunk, bound.fill)
        at += bound.nbytes
    return empty


def scatter_row(target: AnyArray, row: Row, chunks: Sequence[AnyArray]) -> None:
    """Copy chunks side by side to their place: put together in memory that is warm, then by one long copy."""
    *_, upright, last = row.entries
    size, width = target.itemsize, len(last)
    in_rows = chunks[0].dtype == target.dtype and {chunk.strides[-1] for chunk in chunks} == {size}
    if not in_rows or target.nbytes < len(chunks) * _TINY:
        for k, above in enumerate(upright):
            np.concatenate(chunks[k * width : (k + 1) * width], axis=-1, out=target[..., above[3], :])
        return
    slab: AnyArray = np.ndarray(target.shape, target.dtype, scratch.buffer("row", target.nbytes))
    items = [np.dtype((np.void, chunk.shape[-1] * size)) for chunk in chunks[:width]] * len(upright)
    places = [(..., above[3], beside[3]) for above in upright for beside in last]
    # `copy_rows` once more, without its questions for each chunk.
    for chunk, item, place in zip(chunks, items, places, strict=True):
        slab[place].view(item)[...] = chunk.view(item)
    target[...] = slab


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
