"""What users give as `chunks=`, turned into one size or one list of edges for each axis.

Accepted: an integer for all axes; one entry for each axis, where an entry is an integer, `-1` or `None`
for the whole axis, `"auto"`, or edges (a sequence, dask-style tuples, a numpy array, `[length, count]`
runs); `"auto"` or None; a mapping from dimension names, or axis numbers, to entries; a `ChunkGrid`.

>>> parse_chunks((10, [5, 12, 3]), (100, 20), itemsize=8)
('rectilinear', (10, (5, 12, 3)))
>>> parse_chunks([[10, 10], [20, 20]], (20, 40), itemsize=8)
('regular', (10, 20))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from math import gcd, prod
from typing import Any, Literal, TypeAlias, TypeGuard, get_args

import numpy as np

from zellige.errors import ChunkShapeError
from zellige.grid.axis import AxisChunks, from_chunks, is_size
from zellige.grid.edges import Edges, positive_integer
from zellige.grid.grid import ChunkGrid
from zellige.settings import config
from zellige.types import Shape

GridName: TypeAlias = Literal["regular", "rectilinear", "zarrs.regular_bounded"]

ChunksLike: TypeAlias = int | str | Iterable[Any] | Mapping[Any, Any] | ChunkGrid | None
"""Everything that `chunks=` accepts."""

AUTO_BYTES = 4 << 20
"""The most that `"auto"` puts into one chunk; balanced cuts keep chunks above half of it."""

AUTO_INNER_BYTES = 512 << 10
"""The same for inner chunks of given shards."""

_MOST_TRIES = 100_000

AUTO_SHARD_BYTES = 64 << 20
"""The most that `shards="auto"` puts into one shard."""


def parse_chunks(
    chunks: ChunksLike,
    shape: Shape,
    *,
    itemsize: int,
    dimension_names: Sequence[str | None] | None = None,
    chunk_grid: GridName | None = None,
    called: str = "chunks",
) -> tuple[GridName, tuple[AxisChunks, ...]]:
    """Return the grid's name for the metadata and how each axis is cut.

    Uniform edges collapse to a size, unless `chunk_grid="rectilinear"` asks to keep them;
    `chunk_grid="regular"` refuses what is not regular. Errors name the argument as it is `called`.
    """
    if chunk_grid is not None and chunk_grid not in get_args(GridName):
        names = " or ".join(map(repr, get_args(GridName)))
        raise ChunkShapeError(f"chunk_grid must be {names}, found {chunk_grid!r}")
    entries = _entries(chunks, shape, dimension_names, called)
    pairs = zip(entries, shape, strict=True)
    axes = [_axis(entry, extent, axis, called) for axis, (entry, extent) in enumerate(pairs)]
    if None in axes:
        axes = list(auto_chunks(shape, itemsize, axes))
    cut = [c for c in axes if c is not None]
    if chunk_grid != "rectilinear":
        cut = [from_chunks(c, n).declared for c, n in zip(cut, shape, strict=True)]
    uneven = [axis for axis, c in enumerate(cut) if not isinstance(c, int)]
    if chunk_grid in ("regular", "zarrs.regular_bounded") and uneven:
        raise ChunkShapeError(
            f"axis {uneven[0]}: edges {cut[uneven[0]]!r} are not regular; give one size, or leave out chunk_grid",
            axis=uneven[0],
        )
    return chunk_grid or ("rectilinear" if uneven else "regular"), tuple(cut)


def parse_shards(
    chunks: ChunksLike,
    shards: ChunksLike,
    shape: Shape,
    *,
    itemsize: int,
    dimension_names: Sequence[str | None] | None = None,
    chunk_grid: GridName | None = None,
) -> tuple[GridName, tuple[AxisChunks, ...], Shape | None]:
    """Return what `parse_chunks` gives for stored values, and the shape of the inner chunks, if any.

    >>> parse_shards((10, 10), ([20, 50, 30], 40), (100, 100), itemsize=8)
    ('rectilinear', ((20, 50, 30), 40), (10, 10))
    """
    parse = partial(parse_chunks, itemsize=itemsize, dimension_names=dimension_names)
    if shards is None:
        return *parse(chunks, shape, chunk_grid=chunk_grid), None
    if isinstance(shards, str) and shards == "auto":
        _, inner = parse(chunks, shape, chunk_grid="regular")
        return chunk_grid or "regular", _auto_shards(inner, shape, itemsize), _sizes(inner)
    name, outer = parse(shards, shape, chunk_grid=chunk_grid, called="shards")
    common = tuple(c if isinstance(c, int) else gcd(*c.unique()) for c in outer)
    if chunks is None or (isinstance(chunks, str) and chunks == "auto"):
        auto = _sizes(auto_chunks(common, itemsize, most=AUTO_INNER_BYTES))
        return name, outer, tuple(nearest_divisor(n, c) for n, c in zip(common, auto, strict=True))
    # Inner chunks are cut from the shards, so a whole axis means a whole shard.
    _, inner = parse(chunks, common, chunk_grid="regular")
    return name, outer, _sizes(inner)


def _sizes(axes: tuple[AxisChunks, ...]) -> Shape:
    return tuple(size for size in axes if isinstance(size, int))


def _auto_shards(inner: tuple[AxisChunks, ...], shape: Shape, itemsize: int) -> tuple[AxisChunks, ...]:
    """Return shards of whole inner chunks, as many as fit into the target, the last axes first."""
    sizes = list(_sizes(inner))
    target = config.get("array.target_shard_size_bytes") or AUTO_SHARD_BYTES
    room = max(1, target // max(1, itemsize * prod(sizes)))
    for axis in reversed(range(len(shape))):
        count = min(room, max(1, -(-shape[axis] // sizes[axis])))
        sizes[axis] *= count
        room //= count
    return tuple(sizes)


def nearest_divisor(extent: int, size: int) -> int:
    """Return the divisor of `extent` that is nearest to `size`.

    >>> nearest_divisor(100, 30)
    25
    """
    size = min(size, extent)
    for distance in range(min(extent, _MOST_TRIES)):
        for candidate in (size - distance, size + distance):
            if 1 <= candidate <= extent and extent % candidate == 0:
                return candidate
    return 1  # there may be a nearer one among very large numbers


def parse_new_chunks(chunks: ChunksLike, ndim: int) -> list[int | Edges | None]:
    """Parse `chunks=` of a resize: for each axis how its new region is cut, None for the default."""
    entries: Sequence[Any]
    if chunks is None or is_size(chunks):
        entries = [chunks] * ndim
    elif isinstance(chunks, Mapping):
        entries = _from_mapping(chunks, (0,) * ndim, None, "chunks", missing=None)
    elif _is_list(chunks):
        entries = list(chunks)
    else:
        raise ChunkShapeError(f"chunks={chunks!r} does not describe a new region; give a size or edges for each axis")
    if len(entries) != ndim:
        raise ChunkShapeError(f"chunks has {len(entries)} entries for {ndim} axes; use None for an axis that stays")
    return [e if e is None else _size(e, axis) if is_size(e) else _edges(e, axis) for axis, e in enumerate(entries)]


def auto_chunks(
    shape: Shape, itemsize: int, given: Sequence[AxisChunks | None] | None = None, most: int = AUTO_BYTES
) -> tuple[AxisChunks, ...]:
    """Return sizes for the axes that are None in `given`, about 2 to 4 MiB a chunk: the last axes stay whole.

    >>> auto_chunks((3650, 721, 1440), itemsize=4)
    (1, 721, 1440)
    >>> auto_chunks((100_000, 1000), itemsize=8)
    (524, 1000)
    """
    axes: list[AxisChunks | None] = list(given) if given is not None else [None] * len(shape)
    fixed = [max(c if isinstance(c, int) else max(c.unique()), 1) for c in axes if c is not None]
    room = max(1, most // max(1, itemsize * prod(fixed)))
    for axis in reversed(range(len(shape))):
        if axes[axis] is None:
            extent = max(1, shape[axis])
            pieces = -(-extent // room)
            # Cut into pieces of nearly equal length, so that no sliver is left at the end.
            axes[axis] = size = -(-extent // pieces)
            room = max(1, room // size)
    return tuple(c for c in axes if c is not None)


def _entries(chunks: ChunksLike, shape: Shape, names: Sequence[str | None] | None, called: str) -> Sequence[Any]:
    """Return one entry for each axis."""
    rank = len(shape)
    if isinstance(chunks, ChunkGrid):
        chunks = [axis.declared for axis in chunks.axes]
    if chunks is None:
        return ["auto"] * rank
    if isinstance(chunks, str) or is_size(chunks):
        return [chunks] * rank
    if isinstance(chunks, Mapping):
        return _from_mapping(chunks, shape, names, called, missing=-1)
    if not _is_list(chunks):
        raise ChunkShapeError(f"{called}={chunks!r}: expected a size, one entry for each of {rank} axes, or 'auto'")
    entries = list(chunks)
    if len(entries) != rank:
        nested = f"; for uneven chunks along one axis nest them: [{entries!r}]" if rank == 1 and entries else ""
        raise ChunkShapeError(
            f"{called} has {len(entries)} entries, the shape {shape} has {rank} axes; "
            f"give one entry for each axis, -1 for a whole axis{nested}"
        )
    return entries


def _from_mapping(
    chunks: Mapping[Any, Any], shape: Shape, names: Sequence[str | None] | None, called: str, *, missing: Any
) -> list[Any]:
    axes = {name: axis for axis, name in enumerate(names or ()) if name is not None}
    entries = [missing] * len(shape)
    for key, entry in chunks.items():
        axis = key if is_size(key) else axes.get(key)
        if axis is None or not 0 <= axis < len(shape):
            known = (
                ", ".join(map(repr, axes)) or f"axis numbers 0 to {len(shape) - 1}; give dimension_names= to use names"
            )
            raise ChunkShapeError(f"{called}: there is no dimension {key!r}; known: {known}")
        entries[axis] = entry
    return entries


def _axis(entry: Any, extent: int, axis: int, called: str) -> AxisChunks | None:
    """Return one axis as a size or edges; None for "auto"."""
    if entry is None or (is_size(entry) and entry == -1):
        return max(1, extent)
    if isinstance(entry, str):
        if entry == "auto":
            return None
        raise ChunkShapeError(f"axis {axis}: {called}={entry!r} is not known; the only word is 'auto'", axis=axis)
    if is_size(entry):
        return _size(entry, axis)
    edges = _edges(entry, axis)
    if edges.total < extent:
        raise ChunkShapeError(
            f"axis {axis}: edges sum to {edges.total}, the shape needs {extent}; append {extent - edges.total} more",
            axis=axis,
        )
    return edges


def _is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """Return whether a value holds entries in an order: sets have none, and bytes are text rather than sizes."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping | Set)


def _size(value: Any, axis: int) -> int:
    try:
        return positive_integer(value, f"axis {axis}: a chunk size")
    except ChunkShapeError as error:
        hint = "" if value == -1 else "; -1 stands for the whole axis"
        raise ChunkShapeError(f"{error}{hint}", axis=axis) from error


def _edges(entry: Any, axis: int) -> Edges:
    if not _is_list(entry):
        raise ChunkShapeError(f"axis {axis}: {entry!r} is neither a chunk size nor a list of edges", axis=axis)
    try:
        edges = Edges.of(entry)
    except ChunkShapeError as error:
        raise ChunkShapeError(f"axis {axis}: {error}", axis=axis) from error
    if not len(edges):
        raise ChunkShapeError(f"axis {axis}: the list of edges is empty; an axis needs at least one", axis=axis)
    return edges
