"""dask arrays into stored ones: in place, or in a transaction by forks of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

import dask
from zellige import Array, Store, create_array, open_array, storage
from zellige.dask.alignment import Part, aligned_chunks, edges_of, shared_axes
from zellige.dask.assembly import assembled
from zellige.dask.clusters import check_reachable, client, computes_elsewhere, forked, store_of
from zellige.dask.races import refuse_races
from zellige.dask.reading import Flight, Handle

_PATIENCE = 60.0  # seconds to wait for tasks of other processes after one has failed


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
    """Store a dask array and return the `Array`; with `compute=False` something to be computed later.

    `target` is an array, of which `region` says what is written; or a place, where one is created with the keywords
    of `zellige.create_array` and, if they do not say otherwise, with a stored chunk for each block.

    Blocks that end within stored chunks are rechunked first, with an `AlignmentWarning`; so no two tasks write to
    one stored chunk. `align=False` leaves them: partial writes lock their chunk, which is safe among the threads and
    processes of one machine. `progress=True` shows a bar.

    A new array gets its document when all is written: if a task fails, or the process is killed, there is no array, and
    the same call begins anew. With `compute=False` the document is there at once.

    A zip file that is given by its path is complete at the end; one process writes it, so that a cluster is refused.

    In a session of icechunk, a cluster writes to forks of it: there must be no uncommitted changes at first, and all
    that was written is in the session at the end, to be committed by you.

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
    if isinstance(target, str | os.PathLike):
        given = {"region": region, "align": align, "progress": progress}
        return _store_at(x, target, create, compute=compute, **given)
    return _store(x, target, create, region=region, align=align, compute=compute, progress=progress)


def _store_at(x: da.Array, target: Any, create: dict[str, Any], *, compute: bool, **given: Any) -> Any:
    """Store at a place that is opened for this: an archive is complete at the end."""
    options = create.pop("storage_options", None)
    if not compute:
        found = storage.open_store(target, storage_options=options)
        # The last task closes an archive; whoever never computes it leaves it as it was.
        return _store(x, found, create, compute=False, then=found.store.close, **given)
    with storage.opened(target, storage_options=options) as place:
        array = _store(x, place, create, compute=True, **given)
    if not array.store.traits.transactional:
        return array
    return open_array(target, path=array.path, mode="r", storage_options=options)


def _store(
    x: da.Array,
    target: Any,
    create: dict[str, Any],
    *,
    region: Sequence[slice] | None,
    align: bool,
    compute: bool,
    progress: bool,
    then: Any = None,
) -> Any:
    check_reachable(target)
    if create.get("overwrite"):
        _refuse_to_remove(x, target, create.get("name"))
    how: dict[str, Any] = {"align": align, "compute": compute, "then": then, "progress": progress}
    part_of_it = _as_region(region)
    with forked(target, compute=compute) as place:
        if isinstance(place, Array):
            array = place
            later = store_parts([Part(x, array, part_of_it)], **how)
        elif not compute:
            array = create_array(place, **_creation(x, create))
            later = store_parts([Part(x, array, part_of_it, fresh=True)], **how)
        else:
            overwrite, array = bool(create.get("overwrite")), _new_array(place, _creation(x, create))
            with storage.filling(array, overwrite=overwrite) as guard:
                part = Part(x, array, part_of_it, stored=array.store.traits.transactional, guard=guard, fresh=True)
                later = store_parts([part], **how)
    if later is not None:
        return later
    if place is target:
        return array
    return target if isinstance(target, Array) else open_array(store_of(target), path=array.path, mode="r+")


def _as_region(region: Any) -> tuple[Any, ...] | None:
    if region is not None and not isinstance(region, Iterable):
        raise TypeError(f"region must be a slice for each axis, found {region!r}")
    return None if region is None else tuple(region)


def _new_array(place: Any, options: dict[str, Any]) -> Array:
    """An array at a place that has no document there yet; everything that can be refused is refused here."""
    where = storage.open_store(
        place, path=options.pop("name", None) or "", storage_options=options.pop("storage_options", None)
    )
    model = create_array(**options)
    return Array(where.store, where.path, model.metadata, model.config)


def _refuse_to_remove(x: da.Array, target: Any, name: str | None) -> None:
    """Overwriting begins by removing what is there; what is yet to be read must not be among it."""
    removed = storage.open_store(target, path=name or "")
    for place in storage.places_of(x):
        if place.is_within(removed):
            raise ValueError(
                f"the dask array reads from '/{place.path}' of {place.store!r}, which overwriting '/{removed.path}' of "
                f"{removed.store!r} would remove before it is read; store it at another place, or load it first with "
                "x.persist()"
            )


def _creation(x: da.Array, options: dict[str, Any]) -> dict[str, Any]:
    if x.dtype == object and "dtype" not in options:
        raise ValueError("the dask array holds Python objects; say dtype='string' or dtype='bytes'")
    chunks = {} if {"chunks", "shards"} & options.keys() else {"chunks": edges_of(x.chunks)}
    return {"shape": x.shape, "dtype": x.dtype, **chunks, **options}


def store_parts(
    parts: Iterable[Part], *, align: bool = True, compute: bool = True, then: Any = None, progress: bool = False
) -> Delayed | None:
    """Store several dask arrays in one computation; `then`, if given, is called at the end, once all is written.

    Within a transaction that other processes write to, all must be in one fork of it; see `forked`.
    """
    ready = [_checked(part) for part in parts]
    fork = next((part.target.store for part in ready if part.target.store.traits.transactional), None)
    if not computes_elsewhere():
        fork = None
    moved: list[Any] = [aligned_chunks(part) if align else None for part in ready]
    if not align and fork is not None and any(shared_axes(part) for part in ready):
        raise ValueError(
            f"align=False: two tasks would write to one chunk, and each writes to a copy of {fork!r}; leave it out"
        )
    refuse_races(ready, moved)
    flight = Flight() if compute else None  # what is computed later may be computed again after it failed
    here = compute and not computes_elsewhere()
    if fork is None:
        stored = [_stored(part, chunks, flight, here=here) for part, chunks in zip(ready, moved, strict=True)]
        later = _joined(dask.optimize(*stored), partial(_finish, then))
    else:
        rechunked = map(_rechunked, ready, moved)
        later = _joined([_stored_in_forks(part) for part in rechunked], _merged)
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

            show(future, notebook=False)  # type: ignore[no-untyped-call]
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


def _rechunked(part: Part, chunks: Any) -> Part:
    """The same with a source that is cut otherwise, unless there are no chunks for that."""
    return part if chunks is None else part._replace(source=part.source.rechunk(chunks))


def _stored(part: Part, chunks: Any, flight: Flight | None, *, here: bool) -> da.Array:
    """A dask array whose blocks are written once it is computed; `here` is whether that is in this process."""
    # A new name each time: what was written before is to be written again.
    handle = Handle(part.target, uuid4().hex, stored=part.stored, writes=True, guard=part.guard, flight=flight)
    if chunks is not None and here:
        return assembled(part.source, part.target, part.region or (), chunks, handle)
    found = da.store(
        _rechunked(part, chunks).source,
        handle,
        regions=part.region,
        lock=False,
        compute=False,
        return_stored=True,
        load_stored=False,
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


# -- transactions ---------------------------------------------------------------------------------


def _stored_in_forks(part: Part) -> da.Array:
    """A dask array whose blocks, once computed, are forks of the target's store to which they were written."""
    (x,) = dask.optimize(part.source)
    # With its document: each fork is a store of its own, and what others have opened is not to be used for it.
    handle = Handle(part.target, stored=False)
    name, starts = f"zellige-fork-{uuid4().hex}", [place.start for place in part.region or ()]
    layer: dict[Any, Any] = {}
    for key, block in zip(flatten(x.__dask_keys__()), da.core.slices_from_chunks(x.chunks), strict=True):
        region = tuple(slice(s.start + start, s.stop + start) for s, start in zip(block, starts, strict=True))
        layer[(name, *key[1:])] = (partial(_write_fork, handle, region), key)
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[x])
    return da.Array(graph, name, x.chunks, dtype=object)


def _write_fork(handle: Handle, region: tuple[slice, ...], block: Any) -> Store:
    """Write a block to a copy of the transaction, which knows of nothing else that other tasks write."""
    array = handle.fork()
    array[region] = block
    return array.store


def _merged(forks: Sequence[Store]) -> Store | None:
    """One fork with all that was written to several."""
    if not forks:
        return None
    first, *others = forks
    storage.merge(first, others)
    return first
