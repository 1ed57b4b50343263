"""Readers: arrays prepared for the commonest reads, by integers and plain slices. See `kernel/reader.c`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zellige import kernel
from zellige.grid.edges import Edges
from zellige.grid.grid import Axis, ChunkGrid
from zellige.io import results
from zellige.io.chunks import Files
from zellige.stores import threads
from zellige.types import Buffer

if TYPE_CHECKING:
    from zellige.kernel._native import Reader

_MOST = 1 << 46  # elements along an axis, `Z_MOST` in `kernel.h`
_MOST_RUNS = 100_000  # of chunks of one size, which a reader copies: then it would take long to prepare


def reader(files: Files, grid: ChunkGrid, dtype: np.dtype[Any], *, follow: bool, fill: bool) -> Reader | None:
    """A reader of an array; None if its grid is not for one.

    Parameters
    ----------
    files
        Where its chunks are, and how they are encoded.
    grid
        Where they lie in the array.
    dtype
        The type of results.
    follow
        Whether links are followed.
    fill
        Whether chunks that are missing are filled; otherwise the reader declines.
    """
    inner = files.inner or (0,) * grid.ndim
    axes = [_edges(axis, size) for axis, size in zip(grid.axes, inner, strict=True)]
    if kernel.native is None or None in axes:
        return None
    given = (files.base, files.pieces, follow, files.program, grid.shape, tuple(axes), fill)
    made: Reader = kernel.native.Reader(*given, threads.workers, np.empty, results.empty, dtype)
    return made


def _edges(axis: Axis, inner: int) -> tuple[Buffer, Buffer] | None:
    """Where runs of chunks of one size begin: their elements and their numbers, and where the last one ends."""
    sizes = axis.declared
    if not isinstance(sizes, Edges):
        if axis.nchunks and axis.chunk_size(axis.nchunks - 1) != sizes:
            return None  # the last chunk is stored shorter
        sizes = Edges.of_runs([(sizes, axis.nchunks)] if axis.nchunks and sizes < _MOST else [])
    if not 0 < sizes.total <= _MOST or len(sizes.starts) > _MOST_RUNS:
        return None
    if inner and any(size % inner for size in axis.unique_edge_lengths):
        return None
    return sizes.starts, sizes.firsts
