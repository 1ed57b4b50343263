"""dask arrays into stored ones: blocks moved to the ends of chunks, written in place or to forks of a transaction."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import accumulate, pairwise, product
from math import prod
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

import dask
from zellige import Array, Store, create_array, errors, open_array, storage
from zellige.dask.reader import Flight, Handle, check_reachable, client, computes_elsewhere, forked, store_of

_PATIENCE = 60.0  # seconds to wait for tasks of other processes after one has failed

Slices: TypeAlias = tuple[slice, ...]
Chunks: TypeAlias = tuple[tuple[int, ...], ...]


class AlignmentWarning(UserWarning):
    """The blocks of a dask array were moved to the ends of stored chunks."""


class Part(NamedTuple):
    """A dask array and where its values go."""

    source: da.Array
    target: Array
    region: Slices | None = None
    """Which part of the target; all of it by default."""
    stored: bool = True
    """Whether the target's metadata is in the store as the handle has it."""
    guard: Callable[[], None] | None = None
    """Called before each write; raises if another writer has taken over."""
    fresh: bool = False
    """Whether the target was made for this, so that nothing can read from it."""


def store(
    x: da.Array,
    target: Any,
    *,
    region: Sequence[slice] | None = None,
    align: bool = True,
    compute: bool = True,
    progress: bool = False,
    **create: Any,
) -> Any:
    """Store a dask array and return the `Array`, or with `compute=False` a `Delayed` that stores it.

    A new array gets its metadata when all is written: if a task fails, or the process is killed, there is no array, and
    the same call begins anew. With `compute=False` the metadata is there at once.

    A zip file that is given by its path is complete at the end; one process writes it, so that a cluster is refused.
    In a session of icechunk, a cluster writes to forks of it: there must be no uncommitted changes at first, and all
    that was written is in the session at the end, to be committed by you.

    Parameters
    ----------
    x
        The dask array.
    target
        An array, or a place, where one is created.
    region
        Which part of the target is written: a slice for each axis; all of it by default.
    align
        Rechunk blocks that end within stored chunks, with an `AlignmentWarning`, so that no two tasks write to one
        stored chunk. False leaves them: partial writes lock their chunk, which is safe among the threads and processes
        of one machine.
    compute
        Whether to store it now.
    progress
        Whether to show a bar.
    create
        For a target that is created: the keywords of `zellige.create_array`. Unless they say otherwise, each block is
        a stored chunk.

    Examples
    --------
    >>> import dask.array as da
    >>> import zellige
    >>> a = zellige.zeros((6,), chunks=[[1, 2, 3]])
    >>> later = store(da.ones(2, chunks=2), a, region=[slice(1, 3)], compute=False)
    >>> _ = later.compute()
    >>> a[:]
    array([0., 1., 1., 0., 0., 0.])
    """
    _check_known(x)
    if isinstance(target, Array) and create:
        raise TypeError(f"{', '.join(sorted(create))}: only for a target that is created, not for an Array")
    if region is not None and not isinstance(region, Iterable):
        raise TypeError(f"region must be a slice for each axis, found {region!r}")
    how: dict[str, Any] = {"region": None if region is None else tuple(region), "align": align, "progress": progress}
    if not isinstance(target, str | os.PathLike):
        return _store(x, target, create, compute=compute, **how)
    options = create.pop("storage_options", None)
    if not compute:
        found = storage.open_store(target, storage_options=options)
        # The last task closes an archive; whoever never computes it leaves it as it was.
        return _store(x, found, create, compute=False, then=found.store.close, **how)
    with storage.opened(target, storage_options=options) as place:
        array = _store(x, place, create, compute=True, **how)
    if not array.store.traits.transactional:
        return array
    return open_array(target, path=array.path, mode="r", storage_options=options)


def _store(
    x: da.Array, target: Any, create: dict[str, Any], *, region: Slices | None, compute: bool, **how: Any
) -> Any:
    check_reachable(target)
    if create.get("overwrite"):
        _refuse_to_remove(x, target, create.get("name"))
    with forked(target, compute=compute) as place:
        if isinstance(place, Array):
            array = place
            later = store_parts([Part(x, array, region)], compute=compute, **how)
        elif not compute:
            array = create_array(place, **_creation(x, create))
            later = store_parts([Part(x, array, region, fresh=True)], compute=False, **how)
        else:
            overwrite, array = bool(create.get("overwrite")), _new_array(place, _creation(x, create))
            with storage.filling(array, overwrite=overwrite) as guard:
                part = Part(x, array, region, stored=array.store.traits.transactional, guard=guard, fresh=True)
                later = store_parts([part], **how)
    if later is not None:
        return later
    if place is target:
        return array
    return target if isinstance(target, Array) else open_array(store_of(target), path=array.path, mode="r+")


def _refuse_to_remove(x: da.Array, target: Any, name: str | None) -> None:
    """Refuse to overwrite, which begins by removing what is there, what is yet to be read."""
    removed = storage.open_store(target, path=name or "")
    for place in storage.places_of(x):
        if place.is_within(removed):
            raise ValueError(
                f"the dask array reads from '/{place.path}' of {place.store!r}, which overwriting '/{removed.path}' of "
                f"{removed.store!r} would remove before it is read; store it at another place, or load it first with "
                "x.persist()"
            )


def _creation(x: da.Array, options: dict[str, Any]) -> dict[str, Any]:
    """The keywords of `create_array`."""
    if x.dtype == object and "dtype" not in options:
        raise ValueError("the dask array holds Python objects; say dtype='string' or dtype='bytes'")
    chunks = {} if {"chunks", "shards"} & options.keys() else {"chunks": edges_of(x.chunks)}
    return {"shape": x.shape, "dtype": x.dtype, **chunks, **options}


def _new_array(place: Any, options: dict[str, Any]) -> Array:
    """An array at a place that has no metadata there yet; everything that can be refused is refused here."""
    where = storage.open_store(
        place, path=options.pop("name", None) or "", storage_options=options.pop("storage_options", None)
    )
    model = create_array(**options)
    return Array(where.store, where.path, model.metadata, model.config)


# -- one computation ------------------------------------------------------------------------------


def store_parts(
    parts: Iterable[Part], *, align: bool = True, compute: bool = True, then: Any = None, progress: bool = False
) -> Delayed | None:
    """Store several dask arrays in one computation.

    Within a transaction that other processes write to, all must be in one fork of it; see `forked`.

    Parameters
    ----------
    parts
        The arrays, and where they go.
    align, compute, progress
        As for `store`.
    then
        Called at the end, once all is written.

    Returns
    -------
    Delayed or None
        With `compute=False`, what stores them when it is computed.
    """
    ready = [_checked(part) for part in parts]
    elsewhere = computes_elsewhere()
    fork = next((part.target.store for part in ready if elsewhere and part.target.store.traits.transactional), None)
    moved = [_aligned_chunks(part) if align or fork is not None else None for part in ready]
    if not align and any(moved):
        raise ValueError(
            f"align=False: two tasks would write to one chunk, and each writes to a copy of {fork!r}; leave it out"
        )
    for part, chunks in zip(ready, moved, strict=True):
        if chunks is not None:
            _warn_of_rechunking(part, chunks)
    refuse_races(ready, moved)
    flight = Flight() if compute else None  # what is computed later may be computed again after it failed
    if fork is None:
        here = compute and not elsewhere
        stored = [_stored(part, chunks, flight, here=here) for part, chunks in zip(ready, moved, strict=True)]
    else:
        stored = list(map(_stored_in_forks, ready, moved))
    later = _joined(dask.optimize(*stored), partial(_finish, then) if fork is None else _merged)
    if flight is None:
        return later
    try:
        found = _compute(later, progress)
    except BaseException:
        flight.land()
        raise
    if fork is not None and found is not None:
        storage.merge(fork, [found])
    return None


def _check_known(x: da.Array) -> None:
    if not isinstance(x, da.Array):
        raise TypeError(f"expected a dask array, found {type(x).__name__}; assign other data to the array itself")
    if any(np.isnan(size) for axis in x.chunks for size in axis):
        raise ValueError("the dask array has chunks of unknown size; call compute_chunk_sizes() first")


def _checked(part: Part) -> Part:
    """The same with a slice for every axis; raises if the values do not fit there."""
    _check_known(part.source)
    check_reachable(part.target.store)
    shape = part.target.shape
    region = part.region or (slice(None),) * len(shape)
    if len(region) != len(shape) or any(not isinstance(s, slice) or s.step not in (None, 1) for s in region):
        raise ValueError(f"region={part.region}: give one slice without a step for each of {len(shape)} axes")
    whole = tuple(slice(*s.indices(n)[:2]) for s, n in zip(region, shape, strict=True))
    wanted = tuple(max(0, s.stop - s.start) for s in whole)
    if part.source.shape != wanted:
        raise ValueError(f"the dask array has shape {part.source.shape}, its place in the array has shape {wanted}")
    return part._replace(region=whole)


def _starts(part: Part) -> list[int]:
    """Where a checked part begins along each axis of its target."""
    return [place.start for place in part.region or ()]


def _stored(part: Part, chunks: Chunks | None, flight: Flight | None, *, here: bool) -> da.Array:
    """A dask array whose blocks are written once it is computed; `here` is whether that is in this process."""
    handle = Handle(part.target, stored=part.stored, writes=True, guard=part.guard, flight=flight)
    if chunks is not None and here:
        return _assembled(part, chunks, handle)
    source = part.source if chunks is None else part.source.rechunk(chunks)
    found = da.store(
        source, handle, regions=part.region, lock=False, compute=False, return_stored=True, load_stored=False
    )
    return found[0] if isinstance(found, tuple) else found  # in some versions of dask a tuple of one


def _joined(arrays: Sequence[da.Array], function: Any) -> Delayed:
    """One task that waits for all blocks of all arrays, and calls a function of them."""
    keys = [key for array in arrays for key in flatten(array.__dask_keys__())]
    name = f"zellige-stored-{uuid4().hex}"
    graph = HighLevelGraph.from_collections(name, {name: (function, keys)}, dependencies=arrays)
    return Delayed(name, graph)


def _finish(then: Any, _blocks: Any) -> None:
    if then is not None:
        then()


def _compute(later: Delayed, progress: bool) -> Any:
    """Compute, and show how far it is: on a cluster by what its scheduler says."""
    cluster = client()
    if cluster is None:
        from dask.diagnostics import ProgressBar

        with ProgressBar() if progress else nullcontext():
            return later.compute()
    future = cluster.compute(later)
    try:
        if progress:
            from distributed import progress as show

            show(future, notebook=False)
        return future.result()
    except BaseException:
        future.cancel()
        _wait_for_workers(cluster, set(later.__dask_graph__()))
        raise


def _wait_for_workers(cluster: Any, keys: set[Any]) -> None:
    """After a failure: wait until no worker runs a task of the computation any more, which might write."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        running = {key for found in cluster.processing().values() for key in found}
        if running.isdisjoint(keys):
            return
        time.sleep(0.05)


# -- blocks that end where chunks end -------------------------------------------------------------


def edges_of(chunks: Iterable[Iterable[int]]) -> list[int | list[int]]:
    """Return `chunks=` of `create_array` for axes as dask cuts them.

    Parameters
    ----------
    chunks
        The sizes of the blocks along each axis. One size stands for those that are equal but for a shorter last one.

    Examples
    --------
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
    """Return the blocks of one axis with their ends moved to the nearest ends of stored chunks.

    Parameters
    ----------
    blocks
        The sizes of the blocks.
    stored
        The sizes of the chunks of the whole axis.
    start
        Where on the axis the blocks begin.

    Examples
    --------
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


def _aligned_chunks(part: Part) -> Chunks | None:
    """How the source would be cut so that its blocks end where stored chunks end; None if they do already."""
    found = []
    for blocks, stored, start in zip(part.source.chunks, part.target.write_chunk_sizes, _starts(part), strict=True):
        sizes = tuple(size for size in blocks if size)
        cut = snap(sizes, stored, start)
        found.append(blocks if not sizes or cut == sizes else cut)
    return None if tuple(found) == part.source.chunks else tuple(found)


def _warn_of_rechunking(part: Part, chunks: Chunks) -> None:
    x = part.source
    axes = ", ".join(str(axis) for axis, (old, new) in enumerate(zip(x.chunks, chunks, strict=True)) if old != new)
    errors.warn_caller(
        f"the blocks of the dask array end within stored chunks of {part.target.name!r} along axis {axes}; "
        f"{x.npartitions} blocks were rechunked to {prod(map(len, chunks))}, so that no two tasks write to one chunk",
        AlignmentWarning,
    )


# -- chunks put together from blocks --------------------------------------------------------------


class _Assembly:
    """Chunks that are being put together: a buffer for each, from its first block to its last."""

    def __init__(self, handle: Handle, array: Array) -> None:
        self._handle, self._array = handle, array
        self._buffers: dict[tuple[int, ...], Any] = {}
        self._guard, self._writing = threading.Lock(), threading.Lock()

    def put(self, coords: tuple[int, ...], shape: tuple[int, ...], inside: Slices, outside: Slices, block: Any) -> None:
        """Copy a part of a block to its place in a chunk; raises if the array cannot store it."""
        # numpy would drop a mask here, and cut what does not fit if the block is not of the type that dask expects.
        values = storage.as_stored(block[inside], self._array)
        with self._guard:
            buffer = self._buffers.get(coords)
            if buffer is None:
                buffer = self._buffers[coords] = np.empty(shape, self._array.dtype)
        buffer[outside] = values

    def write(self, coords: tuple[int, ...], region: Slices, _blocks: Any) -> None:
        """Write a chunk that is complete; one at a time, since its encoded form needs memory as well."""
        with self._writing:
            self._handle[region] = self._buffers.pop(coords)

    def __reduce__(self) -> Any:
        raise TypeError("chunks are put together in one process; compute with scheduler='threads'")


def _assembled(part: Part, chunks: Chunks, handle: Handle) -> da.Array:
    """A dask array whose blocks, cut as `chunks` says, are written once the blocks of the source are computed."""
    (x,) = dask.optimize(part.source)
    name = f"zellige-assembled-{uuid4().hex}"
    assembly, starts = _Assembly(handle, part.target), _starts(part)
    axes = [_overlaps(cut, blocks) for cut, blocks in zip(chunks, x.chunks, strict=True)]
    layer: dict[Any, Any] = {}
    for coords in product(*(range(len(cut)) for cut in chunks)):
        shape = tuple(cut[k] for cut, k in zip(chunks, coords, strict=True))
        keys = []
        for overlap in product(*(axis[k] for axis, k in zip(axes, coords, strict=True))):
            number, inside, outside = zip(*overlap, strict=True)
            keys.append((f"{name}-put", *coords, *number))
            layer[keys[-1]] = (partial(assembly.put, coords, shape, inside, outside), (x.name, *number))
        first = [start + sum(cut[:k]) for start, cut, k in zip(starts, chunks, coords, strict=True)]
        place = tuple(slice(start, start + size) for start, size in zip(first, shape, strict=True))
        layer[name, *coords] = (partial(assembly.write, coords, place), keys)
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[x])
    return da.Array(graph, name, chunks, dtype=object)


def _overlaps(chunks: Sequence[int], blocks: Sequence[int]) -> list[list[tuple[int, slice, slice]]]:
    """For each chunk along an axis the blocks in it: their numbers, which part of the block, and where in the chunk."""
    found: list[list[tuple[int, slice, slice]]] = [[] for _ in chunks]
    chunk_ends, block_ends = list(accumulate(chunks)), list(accumulate(blocks))
    for low, high in pairwise(sorted({0, *chunk_ends, *block_ends})):
        chunk, block = bisect_right(chunk_ends, low), bisect_right(block_ends, low)
        start, first = chunk_ends[chunk] - chunks[chunk], block_ends[block] - blocks[block]
        found[chunk].append((block, slice(low - first, high - first), slice(low - start, high - start)))
    return found


# -- transactions ---------------------------------------------------------------------------------


def _stored_in_forks(part: Part, chunks: Chunks | None) -> da.Array:
    """A dask array whose blocks, once computed, are forks of the target's store to which they were written."""
    source = part.source if chunks is None else part.source.rechunk(chunks)
    # With its metadata: each fork is a store of its own, and what others have opened is not to be used for it.
    write = partial(_write_fork, Handle(part.target, stored=False), _starts(part))
    meta = np.empty((0,) * source.ndim, object)
    return source.map_blocks(write, name=f"zellige-fork-{uuid4().hex}", dtype=object, meta=meta)


def _write_fork(handle: Handle, starts: Sequence[int], block: Any, block_info: Any = None) -> Store:
    """Write a block to a copy of the transaction, which knows of nothing else that other tasks write."""
    array, location = handle.fork(), block_info[0]["array-location"]
    array[tuple(slice(a + start, b + start) for (a, b), start in zip(location, starts, strict=True))] = block
    return array.store


def _merged(forks: Sequence[Store]) -> Store | None:
    """One fork with all that was written to several."""
    if not forks:
        return None
    first, *others = forks
    storage.merge(first, others)
    return first


# -- blocks that read what others write -----------------------------------------------------------

Block: TypeAlias = tuple[int, ...]
"""The number of a part, and the coordinates of one of its blocks."""

_SEVERAL: Block = (-1,)
"""Instead of a block: more than one."""


def refuse_races(given: Sequence[Part], moved: Sequence[Chunks | None]) -> None:
    """Raise if a block of the parts, cut anew as `moved` says, reads what another block of them writes."""
    if all(part.fresh for part in given):
        return
    places = {place for part in given for place in storage.places_of(part.source)}
    if not any(_is_same(place, part.target.store_path) for place in places for part in given):
        return
    cut = zip(given, moved, strict=True)
    parts = [part if chunks is None else part._replace(source=part.source.rechunk(chunks)) for part, chunks in cut]
    targets = [_Target(number, part) for number, part in enumerate(parts)]
    hit = {place: [target for target in targets if _is_same(place, target.place)] for place in places}
    tasks = storage.graph_reads({key: task for part in parts for key, task in part.source.dask.items()})
    owners = _owners(tasks, hit)
    for target in targets:
        for key in flatten(target.part.source.__dask_keys__()):
            owner = owners[key]
            if owner is not None and owner != (target.number, *key[1:]):
                read = next(found[0].part.target for found in hit.values() if found)
                raise ValueError(
                    f"the dask array reads parts of {read.name!r} of {read.store!r} that other blocks overwrite, so "
                    "that old and new values would be mixed; store it at another place, or load it first with "
                    "x.persist()"
                )


def _is_same(a: storage.StorePath, b: storage.StorePath) -> bool:
    return a.is_within(b) and b.is_within(a)


class _Target:
    """The array that a part is stored in, and where each block goes."""

    def __init__(self, number: int, part: Part) -> None:
        self.number, self.part, self.place = number, part, part.target.store_path
        chunks = zip(_starts(part), part.source.chunks, strict=True)
        self._ends = [np.cumsum([start, *blocks]) for start, blocks in chunks]

    def owner(self, region: Slices | None) -> Block | None:
        """The block that writes a region, or a part of it; None if no block does."""
        shape = self.part.target.shape
        wanted = region if region is not None and len(region) == len(shape) else (slice(None),) * len(shape)
        coords = []
        for ends, part, length in zip(self._ends, wanted, shape, strict=True):
            touched = range(*part.indices(length))
            if not touched:
                return None
            low, high = min(touched[0], touched[-1]), max(touched[0], touched[-1])
            if high < ends[0] or low >= ends[-1]:
                return None
            first = int(np.searchsorted(ends, low, "right")) - 1
            last = int(np.searchsorted(ends, high, "right")) - 1
            coords.append((max(first, 0), min(last, len(ends) - 2)))
        if any(first != last for first, last in coords):
            return _SEVERAL
        return (self.number, *(first for first, _ in coords))


def _owners(tasks: Mapping[Any, Any], hit: Mapping[storage.StorePath, list[_Target]]) -> dict[Any, Block | None]:
    """For each key of a graph the block that writes what it reads, directly or through others; None if none does."""
    owners: dict[Any, Block | None] = {}
    for top in tasks:
        todo = [top]
        while todo:  # no recursion, however long the graph is
            key = todo[-1]
            missing = [needed for needed in tasks[key].needs if needed not in owners] if key not in owners else []
            if missing:
                todo += missing
                continue
            todo.pop()
            if key not in owners:
                found = {target.owner(one.region) for one in tasks[key].reads for target in hit.get(one.place, ())}
                found = (found | {owners[needed] for needed in tasks[key].needs}) - {None}
                owners[key] = _SEVERAL if len(found) > 1 else next(iter(found), None)
    return owners
