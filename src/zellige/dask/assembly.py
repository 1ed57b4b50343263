"""Blocks of dask put together to stored chunks, in memory for one chunk at a time.

dask's own `rechunk` holds all blocks of a chunk beside the chunk that it makes of them. Here each block is copied into
the chunk as it is computed, and is gone; the chunk is written when it is complete. That needs one process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, product
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

import dask
from zellige import Array, storage
from zellige.dask.reading import Handle

Slices: TypeAlias = tuple[slice, ...]


class _Piece(NamedTuple):
    """What a block contributes to a chunk: which part of the block, and where in the chunk."""

    inside: Slices
    outside: Slices


class Assembly:
    """Chunks that are being put together: a buffer for each, from its first block to its last."""

    def __init__(self, handle: Handle, array: Array) -> None:
        self._handle, self._array = handle, array
        self._buffers: dict[tuple[int, ...], Any] = {}
        self._guard, self._writing = threading.Lock(), threading.Lock()

    def put(self, coords: tuple[int, ...], shape: tuple[int, ...], piece: _Piece, block: Any) -> None:
        """Copy a part of a block to its place in a chunk; raises if the array cannot store it."""
        # numpy would drop a mask here, and cut what does not fit if the block is not of the type that dask expects.
        values = storage.as_stored(block[piece.inside], self._array)
        with self._guard:
            buffer = self._buffers.get(coords)
            if buffer is None:
                buffer = self._buffers[coords] = np.empty(shape, self._array.dtype)
        buffer[piece.outside] = values

    def write(self, coords: tuple[int, ...], region: Slices, _blocks: Any) -> None:
        """Write a chunk that is complete; one at a time, since its encoded form needs memory as well."""
        with self._writing:
            self._handle[region] = self._buffers.pop(coords)

    def __reduce__(self) -> Any:
        raise TypeError("chunks are put together in one process; compute with scheduler='threads'")


def assembled(x: da.Array, array: Array, region: Slices, chunks: Sequence[Sequence[int]], handle: Handle) -> da.Array:
    """A dask array whose blocks, cut as `chunks` says, are written to a region of an array once they are computed."""
    (x,) = dask.optimize(x)
    name = f"zellige-assembled-{uuid4().hex}"
    assembly = Assembly(handle, array)
    starts = [place.start for place in region]
    axes = [list(_overlaps(cut, blocks)) for cut, blocks in zip(chunks, x.chunks, strict=True)]
    layer: dict[Any, Any] = {}
    for coords in product(*(range(len(cut)) for cut in chunks)):
        shape = tuple(cut[k] for cut, k in zip(chunks, coords, strict=True))
        keys = []
        for parts in product(*(axis[k] for axis, k in zip(axes, coords, strict=True))):
            number, inside, outside = zip(*parts, strict=True)
            keys.append((f"{name}-put", *coords, *number))
            piece = _Piece(inside, outside)
            layer[keys[-1]] = (partial(assembly.put, coords, shape, piece), (x.name, *number))
        first = [start + sum(cut[:k]) for start, cut, k in zip(starts, chunks, coords, strict=True)]
        place = tuple(slice(start, start + size) for start, size in zip(first, shape, strict=True))
        layer[name, *coords] = (partial(assembly.write, coords, place), keys)
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[x])
    return da.Array(graph, name, tuple(map(tuple, chunks)), dtype=object)


def _overlaps(chunks: Sequence[int], blocks: Sequence[int]) -> Iterator[list[tuple[int, slice, slice]]]:
    """For each chunk along an axis the blocks in it: their numbers, which part of the block, and where in the chunk."""
    ends = list(accumulate(blocks))
    start = number = 0
    for size in chunks:
        found: list[tuple[int, slice, slice]] = []
        while number < len(blocks):
            first = ends[number] - blocks[number]
            low, high = max(first, start), min(ends[number], start + size)
            if high > low:
                found.append((number, slice(low - first, high - first), slice(low - start, high - start)))
            if ends[number] > start + size:
                break
            number += 1
        yield found
        start += size
