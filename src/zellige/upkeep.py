"""What becomes of stored chunks when the shape of their array changes."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from zellige import pool
from zellige.dtypes.fill import equals_fill
from zellige.errors import CodecError, CorruptChunkError, EncodeError, UnsupportedCodecError
from zellige.grid import ChunkGrid, ChunkSpec
from zellige.types import Buffer, Coords, Encoded, Shape

if TYPE_CHECKING:
    from zellige.engine import Engine

_FEW = 1000  # chunks that are looked for one by one; to list a store of millions would take longer


class Upkeep:
    """Keeps the stored chunks of an array in line with its shape."""

    __slots__ = ("_engine", "_store", "_chain")

    def __init__(self, engine: Engine) -> None:
        self._engine, self._store, self._chain = engine, engine.store, engine.chain

    def uncover(self, old: ChunkGrid, new: ChunkGrid) -> None:
        """Before growing: clear what lies beyond the end, in the chunks where growing would show it.

        Nothing does, unless a handle that did not know of the end has written there, or a copy took what a killed
        writer left. A few chunks are looked for one by one; for many, those that are stored are listed.
        """
        kept = [
            dim.index_to_chunk(was.extent) if dim.extent > was.extent else dim.nchunks
            for was, dim in zip(old.dimensions, new.dimensions, strict=True)
        ]
        if prod(new.grid_shape) - prod(kept) > _FEW:
            found = [item for item in self._engine.stored(new.ndim) if any(map(operator.ge, item[0], kept))]
        else:
            found = [(coords, self._engine.key(coords)) for coords in _outside(kept, new.grid_shape)]
        pool.gather(partial(self._uncover, old), found, self._store)

    def _uncover(self, old: ChunkGrid, item: tuple[Coords, str]) -> None:
        coords, key = item
        spec = old[coords]
        if spec is None:
            if self._store.exists(key):
                self._store.delete(key)
        elif spec.is_boundary and self._reaches_over(coords, key, spec):
            self._clear(coords, key, spec)

    def _reaches_over(self, coords: Coords, key: str, spec: ChunkSpec) -> bool:
        """Whether a chunk holds anything but the fill value beyond the end of the array."""
        bound, raw = self._chain.bound[spec.codec_shape], self._store.borrow(key)
        if raw is None:
            return False
        with suppress(CorruptChunkError):  # an error for those who read it, and so never old data
            chunk = self._engine._load(coords, key, bound, raw)
            return any(not equals_fill(chunk[part].copy(), bound.fill) for part in _beyond(spec))
        return False

    def reshape(self, old: ChunkGrid, new: ChunkGrid) -> None:
        """Encode stored chunks anew whose codec shape a resize has changed; only bounded grids have such."""

        def reshape_one(item: tuple[Coords, str]) -> None:
            coords, key = item
            before, after = old[coords], new[coords]
            if before is not None and after is not None and before.codec_shape != after.codec_shape:
                self._reshape_chunk(key, before.codec_shape, after.codec_shape)

        pool.gather(reshape_one, list(self._engine.stored(new.ndim)), self._store)

    def _reshape_chunk(self, key: str, old: Shape, new: Shape) -> None:
        before, after = self._chain.bound[old], self._chain.bound[new]
        kept = tuple(slice(0, min(a, b)) for a, b in zip(old, new, strict=True))

        def change(raw: Buffer | None) -> Encoded | None:
            chunk = np.full(new, after.fill, after.dtype)
            if raw is not None:
                chunk[kept] = before.decode(raw)[kept]
            return self._engine._encode(after, chunk, raw)

        try:
            self._engine._update(key, change)
        except (EncodeError, UnsupportedCodecError):
            raise
        except CodecError:
            pass  # encoded anew already, or damaged before

    def trim(self, grid: ChunkGrid) -> None:
        """After shrinking: delete chunks outside the grid, and clear what its last chunks hold beyond the end.

        Only stored chunks are looked at, so that a grid of any size is quick to trim. Growing again shows
        fill values, never old data.
        """

        def trim_one(item: tuple[Coords, str]) -> None:
            coords, key = item
            if not all(map(operator.lt, coords, grid.grid_shape)):
                self._store.delete(key)
            elif (spec := grid.spec(coords)).is_boundary:
                self._clear(coords, key, spec)

        pool.gather(trim_one, list(self._engine.stored(grid.ndim)), self._store)

    def _clear(self, coords: Coords, key: str, spec: ChunkSpec) -> None:
        """Put the fill value where a chunk reaches over the end of the array; a damaged chunk stays as it is."""
        bound = self._chain.bound[spec.codec_shape]

        def change(raw: Buffer | None) -> Encoded | None:
            chunk = self._engine._load(coords, key, bound, raw)
            for part in _beyond(spec):
                chunk[part] = bound.fill
            return self._engine._encode(bound, chunk, raw)

        with suppress(CorruptChunkError):  # an error for those who read it, and so never old data
            self._engine._update(key, change)


def _outside(kept: Sequence[int], counts: Shape) -> Iterator[Coords]:
    """The coordinates within a grid that lie outside a box at its beginning."""
    for axis, (first, count) in enumerate(zip(kept, counts, strict=True)):
        yield from product(*map(range, kept[:axis]), range(first, count), *map(range, counts[axis + 1 :]))


def _beyond(spec: ChunkSpec) -> Iterator[tuple[slice, ...]]:
    """What of a chunk lies beyond the end of the array, along each axis."""
    for axis, (size, full) in enumerate(zip(spec.shape, spec.codec_shape, strict=True)):
        if size < full:
            yield (slice(None),) * axis + (slice(size, None),)
