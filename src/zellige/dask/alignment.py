"""Blocks of dask and stored chunks: where they end, and how blocks are moved so that no two share a chunk."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import dask.array as da
import numpy as np

from zellige import Array


class AlignmentWarning(UserWarning):
    """The blocks of a dask array were moved to the ends of stored chunks."""


class Part(NamedTuple):
    """A dask array and where its values go."""

    source: da.Array
    target: Array
    region: tuple[slice, ...] | None = None
    """Which part of the target; all of it by default."""
    stored: bool = True
    """Whether the target's document is in the store as the handle has it."""
    guard: Callable[[], None] | None = None
    """Called before each write; raises if another writer has taken over."""
    fresh: bool = False
    """Whether the target was made for this, so that nothing can read from it."""


def edges_of(chunks: Iterable[Iterable[int]]) -> list[int | list[int]]:
    """How dask cuts axes as `chunks=` of `create_array`: one size where blocks are equal but for a shorter last one.

    >>> edges_of([(10, 10, 3), (5, 12, 3), (0,), (0, 4)])
    [10, [5, 12, 3], 1, 4]
    """
    found: list[int | list[int]] = []
    for axis in chunks:
        sizes = [int(size) for size in axis if size]
        equal = len(set(sizes[:-1])) <= 1 and (not sizes or sizes[-1] <= sizes[0])
        found.append((sizes[0] if sizes else 1) if equal else sizes)
    return found


def snap(blocks: Sequence[int], stored: Sequence[int], start: int = 0) -> tuple[int, ...]:
    """The blocks of one axis with their ends moved to the nearest ends of stored chunks.

    `stored` are the sizes of the chunks of the whole axis, of which the blocks cover a part that begins at `start`.

    >>> snap((10, 10, 10), (7, 14, 9))
    (7, 14, 9)
    >>> snap((4, 4, 4), (6, 6, 6), start=3)
    (3, 6, 3)
    """
    total = sum(blocks)
    if total == 0:
        return (0,)
    ends = np.cumsum(np.asarray(stored, np.int64)) - start
    inner = ends[(ends > 0) & (ends < total)]
    if not len(inner):
        return (total,)
    wanted = np.cumsum(np.asarray(blocks, np.int64))[:-1]
    after = np.searchsorted(inner, wanted).clip(0, len(inner) - 1)
    before = (after - 1).clip(0)
    nearest = np.where(wanted - inner[before] <= inner[after] - wanted, inner[before], inner[after])
    cuts = np.unique(np.concatenate([[0], nearest, [total]]))
    return tuple(int(size) for size in np.diff(cuts))


def _axes(part: Part) -> list[tuple[Sequence[int], Sequence[int], int]]:
    """For each axis the blocks, the stored chunks, and where in these the blocks begin."""
    starts = [place.start for place in part.region or ()]
    return list(zip(part.source.chunks, part.target.write_chunk_sizes, starts, strict=True))


def shared_axes(part: Part) -> list[int]:
    """The axes along which two blocks share a stored chunk."""
    return [axis for axis, found in enumerate(_axes(part)) if not _fits(*found)]


def aligned_chunks(part: Part) -> tuple[tuple[int, ...], ...] | None:
    """How the source would be cut so that its blocks end where stored chunks end; None if they do already.

    A warning says that they do not.
    """
    x, target = part.source, part.target
    shared = shared_axes(part)
    if not shared:
        return None
    chunks = tuple(snap(*found) if axis in shared else tuple(found[0]) for axis, found in enumerate(_axes(part)))
    axes = ", ".join(map(str, shared))
    warnings.warn(
        f"the blocks of the dask array end within stored chunks of {target.name!r} along axis {axes}; "
        f"{x.npartitions} blocks were rechunked to {prod(map(len, chunks))}, so that no two tasks write to one chunk",
        AlignmentWarning,
        stacklevel=_user_level(),
    )
    return chunks


def _user_level() -> int:
    """How many frames above its caller the first one lies that is not of this package, as `stacklevel` counts."""
    here = str(Path(__file__).parents[1])
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level


def _fits(blocks: Sequence[int], stored: Sequence[int], start: int) -> bool:
    """Whether every inner end of a block is the end of a stored chunk."""
    wanted = np.cumsum(np.asarray(blocks, np.int64))[:-1] + start
    wanted = wanted[(wanted > start) & (wanted < start + sum(blocks))]
    return bool(np.isin(wanted, np.cumsum(np.asarray(stored, np.int64))).all())
