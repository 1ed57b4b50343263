"""What `zarr.core.indexing` has for others to use: how a selection hits the chunks of a grid.

>>> from zellige.core.chunk_grids import ChunkGrid
>>> indexer = OrthogonalIndexer((slice(1, 4), 0), (6, 4), ChunkGrid.from_sizes((6, 4), ([1, 2, 3], 4)))
>>> indexer.shape
(3,)
>>> for chunk_coords, chunk_selection, out_selection, is_complete_chunk in indexer:
...     print(chunk_coords, chunk_selection, out_selection, is_complete_chunk)
(1, 0) (slice(0, 2, 1), 0) (slice(0, 2, None),) False
(2, 0) (slice(0, 1, 1), 0) (slice(2, 3, None),) False
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zellige.errors import ChunkShapeError
from zellige.grid.grid import ChunkGrid, expand_ellipsis
from zellige.io.plan import Pick, Plan, plan_axes
from zellige.io.select import as_items, orthogonal
from zellige.metadata.v3 import ChunkGridMetadata
from zellige.types import Coords, Indices, Shape

__all__ = ["ChunkProjection", "OrthogonalIndexer"]

Picks: TypeAlias = tuple[int | Pick, ...]


class ChunkProjection(NamedTuple):
    """One chunk that a selection hits: `out[out_selection] = chunk[chunk_selection]`."""

    chunk_coords: Coords
    chunk_selection: Picks
    """Where in the chunk, counted from its first element."""
    out_selection: Picks
    """Where in the result, whose shape is the indexer's."""
    is_complete_chunk: bool
    """Whether all of the chunk that lies inside the array is picked."""


class OrthogonalIndexer:
    """The chunks that a selection hits, each axis picked on its own, as `oindex` does.

    Parameters
    ----------
    selection
        An integer, a slice, a list of positions or a mask for each axis, with at most one `...`.
    shape
        The shape of the array.
    chunk_grid
        The grid of the array. The metadata of a grid is taken as well, with a `DeprecationWarning`.

    """

    shape: Shape
    """The shape of the result: axes picked by an integer are not in it."""
    drop_axes: tuple[int, ...] = ()
    """Axes to remove from `chunk[chunk_selection]` before it is copied: none, since integers remove theirs."""

    def __init__(self, selection: Any, shape: Sequence[int], chunk_grid: ChunkGrid) -> None:
        grid = _resolve(chunk_grid, tuple(shape))
        found = orthogonal(selection, grid.shape)
        items = expand_ellipsis(as_items(selection), grid.ndim)
        self.shape = found.result_shape
        self._dropped = [axis < len(items) and isinstance(items[axis], int) for axis in range(grid.ndim)]
        self._flip = [(len(at), back.step is not None) for at, back in zip(found.axes, found.flip or (), strict=False)]
        axes = zip(found.axes, grid.axes, strict=True)
        self._plan = Plan(tuple(plan_axes([at], (), [dim]).projections[0] for at, dim in axes))

    def __iter__(self) -> Iterator[ChunkProjection]:
        dropped = self._dropped
        for copy in self._plan.copies():
            inside, outside = copy.inside, copy.outside
            places = map(_reversed, outside, self._flip) if self._flip else outside
            out: list[Any] = [place for place, gone in zip(places, dropped, strict=False) if not gone]
            kept: list[Any] = [pick for pick, gone in zip(inside, dropped, strict=True) if not gone]
            # Integers count as arrays in numpy, and arrays that stand apart move the axes of the result.
            if _arrays(kept) > 1 or (_arrays(kept) and any(dropped)):
                kept = _mesh(kept)
            rest = iter(kept)
            chunk = tuple(
                pick.start if gone and isinstance(pick, slice) else next(rest)
                for pick, gone in zip(inside, dropped, strict=True)
            )
            yield ChunkProjection(copy.coords, chunk, tuple(_mesh(out) if _arrays(out) > 1 else out), copy.whole)


def _resolve(chunk_grid: ChunkGrid | ChunkGridMetadata, shape: Shape) -> ChunkGrid:
    """Return a grid, made of metadata if that is what was given."""
    if isinstance(chunk_grid, ChunkGridMetadata):
        warnings.warn(
            "passing the metadata of a grid to an indexer is deprecated; use ChunkGrid.from_sizes(shape, chunks)",
            DeprecationWarning,
            stacklevel=3,
        )
        chunk_grid = ChunkGrid.from_sizes(shape, chunk_grid.axes)
    if not isinstance(chunk_grid, ChunkGrid):
        raise TypeError(f"chunk_grid must be a ChunkGrid, found {chunk_grid!r}")
    if chunk_grid.shape != shape:
        raise ChunkShapeError(f"the grid is for an array of shape {chunk_grid.shape}, found shape {shape}")
    return chunk_grid


def _reversed(place: Any, axis: tuple[int, bool]) -> Any:
    """Return where a part goes along an axis of this length, if the step is negative: plans are in ascending order."""
    length, back = axis
    if not back:
        return place
    last = length - 1 - place.stop
    return slice(length - 1 - place.start, last if last >= 0 else None, -1)


def _arrays(picks: Sequence[Pick]) -> int:
    return sum(isinstance(pick, np.ndarray) for pick in picks)


def _mesh(picks: Sequence[Pick]) -> list[Any]:
    """Return arrays that pick the product of the axes."""
    return [*np.ix_(*(_positions(pick) if isinstance(pick, slice) else pick for pick in picks))]


def _positions(pick: slice) -> Indices:
    return np.arange(pick.start, -1 if pick.stop is None else pick.stop, pick.step or 1)
