"""Chunk sizes along the axes of views: the edges of the source, cut by what the view picks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from zellige.grid.axis import FixedDimension, is_size
from zellige.grid.edges import Edges

_MANY = 100_000  # chunks whose elements are counted one by one


def one_chunk(extent: int) -> Edges:
    """An axis that is not cut."""
    return Edges.of_runs([(extent, 1)] if extent else [])


def joined(edges: Iterable[Edges]) -> Edges:
    """Edges one after another."""
    return Edges.of_runs(chain.from_iterable(part.runs for part in edges))


def declared(source: Any, axis: int, extent: int) -> Edges:
    """The chunk sizes that a source declares along an axis, in any of the usual forms; else one chunk."""
    chunks = getattr(source, "read_chunk_sizes", None) or getattr(source, "chunks", None)
    if not isinstance(chunks, tuple | list) or len(chunks) != len(source.shape):
        return one_chunk(extent)
    own = chunks[axis]
    if is_size(own):
        return FixedDimension(int(own), extent).data_runs if own > 0 else one_chunk(extent)
    if isinstance(own, Edges):
        return own
    sizes = [int(n) for n in own if n > 0]  # dask has blocks of no length, and of unknown ones
    return Edges.of(sizes) if sum(sizes) == extent else one_chunk(extent)


def cut(edges: Edges, at: range) -> Edges:
    """How many elements of each chunk a range picks, without those that it misses, in the range's order.

    >>> cut(Edges.of([10, 20, 30]), range(5, 40))
    (5, 20, 10)
    >>> cut(Edges.of([10, 20, 30]), range(59, -1, -4))
    (8, 5, 2)
    """
    if not at:
        return one_chunk(0)
    if at.step < 0:
        ascending = cut(edges, at[::-1])
        return ascending.part(range(len(ascending))[::-1])
    return _slice(edges, at) if at.step == 1 else _stride(edges, at)


def _slice(edges: Edges, at: range) -> Edges:
    first, last = edges.chunk_of(at.start), edges.chunk_of(at.stop - 1)
    if first == last:
        return one_chunk(len(at))
    head = edges.offset(first) + edges[first] - at.start
    tail = at.stop - edges.offset(last)
    return Edges.of_runs(chain([(head, 1)], edges.part(range(first + 1, last)).runs, [(tail, 1)]))


def _stride(edges: Edges, at: range) -> Edges:
    first, last = edges.chunk_of(at.start), edges.chunk_of(at[-1])
    if last - first > _MANY:  # about the same, without looking at each of them
        return FixedDimension(max(1, edges[first] // at.step), len(at)).data_runs
    inner = edges.part(range(first, last))
    ends = edges.offset(first) + np.cumsum(np.fromiter(inner, np.int64, len(inner)))
    before = -((at.start - ends) // at.step)  # picked elements before the end of each chunk
    counts = np.diff(before, prepend=0, append=len(at))
    return Edges.of(counts[counts > 0])
