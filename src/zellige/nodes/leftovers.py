"""Leftovers: what stored chunks hold beyond the end of their array, and how it is removed.

Growing shows fill values, never old data. So what lies beyond the end is removed after shrinking (`trim`), and before
growing, where something may have come there since (`clear_uncovered`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import prod

from zellige.dtypes.fill import equals_fill
from zellige.errors import CorruptChunkError
from zellige.grid.grid import ChunkGrid, ChunkSpec
from zellige.io.chunks import Chunks
from zellige.io.write import encoded, load
from zellige.stores import threads
from zellige.stores.locks import Apart
from zellige.types import Buffer, Coords, Encoded, Shape

_FEW = 1000  # chunks that are looked for one by one; to list a store of millions would take longer


def trim(chunks: Chunks, grid: ChunkGrid) -> None:
    """Delete stored chunks outside of a grid, and clear what its last chunks hold beyond the end.

    Only stored chunks are looked at, so that a grid of any size is quick to trim.
    """

    def trim_one(item: tuple[Coords, str]) -> None:
        coords, key = item
        if not all(map(operator.lt, coords, grid.grid_shape)):
            chunks.store.delete([key])
        elif (spec := grid.spec(coords)).is_boundary:
            _clear(chunks, coords, key, spec)

    _apart(chunks, trim_one, list(chunks.stored(grid.ndim)))


def clear_uncovered(chunks: Chunks, old: ChunkGrid, new: ChunkGrid) -> None:
    """Before growing: clear what lies beyond the end, in the chunks where growing would show it.

    Nothing does, unless a handle that did not know of the end has written there, or a copy took what a killed writer
    left. A few chunks are looked for one by one; for many, those that are stored are listed.
    """

    def clear_one(item: tuple[Coords, str]) -> None:
        coords, key = item
        spec = old[coords]
        if spec is None:
            if chunks.store.exists(key):
                chunks.store.delete([key])
        elif spec.is_boundary and _reaches_over(chunks, coords, key, spec):
            _clear(chunks, coords, key, spec)

    kept = [
        dim.index_to_chunk(was.extent) if dim.extent > was.extent else dim.nchunks
        for was, dim in zip(old.dimensions, new.dimensions, strict=True)
    ]
    if prod(new.grid_shape) - prod(kept) > _FEW:
        found = [item for item in chunks.stored(new.ndim) if any(map(operator.ge, item[0], kept))]
    else:
        found = [(coords, chunks.key(coords)) for coords in _outside(kept, new.grid_shape)]
    _apart(chunks, clear_one, found)


def _apart(chunks: Chunks, work: Callable[[tuple[Coords, str]], None], items: list[tuple[Coords, str]]) -> None:
    """Do some work for stored chunks, while no thread of this process writes whole ones without their locks."""
    alone = Apart("parts")
    with alone:
        alone.wait(chunks.place)
        threads.gather(work, items, chunks.store)


def _reaches_over(chunks: Chunks, coords: Coords, key: str, spec: ChunkSpec) -> bool:
    """Whether a chunk holds anything but the fill value beyond the end of the array."""
    bound, raw = chunks.chain.bound[spec.codec_shape], chunks.store.get(key)
    if raw is None:
        return False
    with suppress(CorruptChunkError):  # an error for those who read it, and so never old data
        chunk = load(chunks, bound, coords, raw)
        return any(not equals_fill(chunk[part].copy(), bound.fill) for part in _beyond(spec))
    return False


def _clear(chunks: Chunks, coords: Coords, key: str, spec: ChunkSpec) -> None:
    """Put the fill value where a chunk reaches over the end of the array; a damaged chunk stays as it is."""
    bound = chunks.chain.bound[spec.codec_shape]

    def change(raw: Buffer | None) -> Encoded | None:
        chunk = load(chunks, bound, coords, raw)
        for part in _beyond(spec):
            chunk[part] = bound.fill
        return encoded(chunks, bound, chunk, raw)

    with suppress(CorruptChunkError):  # an error for those who read it, and so never old data
        chunks.indexes.drop(key)
        chunks.store.update(key, change)


def _outside(kept: Sequence[int], counts: Shape) -> Iterator[Coords]:
    """The coordinates within a grid that lie outside a box at its beginning."""
    for axis, (first, count) in enumerate(zip(kept, counts, strict=True)):
        yield from product(*map(range, kept[:axis]), range(first, count), *map(range, counts[axis + 1 :]))


def _beyond(spec: ChunkSpec) -> Iterator[tuple[slice, ...]]:
    """What of a chunk lies beyond the end of the array, along each axis."""
    for axis, (size, full) in enumerate(zip(spec.shape, spec.codec_shape, strict=True)):
        if size < full:
            yield (slice(None),) * axis + (slice(size, None),)
