"""dask arrays from stored arrays and into them, with chunks of any size.

>>> import dask.array as da
>>> import zellige
>>> import zellige.dask
>>> store = zellige.MemoryStore()
>>> stored = zellige.dask.store(da.arange(59, chunks=((31, 28),)), store)
>>> stored.write_chunk_sizes
((31, 28),)
>>> zellige.dask.from_array(stored).chunks
((31, 28),)

No two tasks write to one stored chunk: where the blocks of a dask array end elsewhere than stored chunks do, their
ends are moved to the nearest ends of stored chunks first, and an `AlignmentWarning` says so.

In a session of icechunk the tasks of other processes write to forks of it, which are merged; committing is left to you.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from zellige import Array, Group, MemoryStore, Store, create_array, open_array, storage

try:
    import dask
    import dask.array as da
    from dask.base import get_scheduler, tokenize
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph
except ImportError as error:
    raise ImportError("zellige.dask needs dask: pip install 'zellige[dask]'") from error

__all__ = [
    "AlignmentWarning",
    "Part",
    "check_reachable",
    "edges_of",
    "forked",
    "from_array",
    "snap",
    "store",
    "store_parts",
]

Chunks = tuple[tuple[int, ...], ...]

_MOST_TAGS = 10_000  # chunks whose tags go into a token; asking for more of them takes longer than it saves


class AlignmentWarning(UserWarning):
    """The blocks of a dask array were moved to the ends of stored chunks."""


# -- reading --------------------------------------------------------------------------------------


def from_array(arr: Any, chunks: Any = None, *, token: str | None = None) -> da.Array:
    """A dask array that reads a stored one.

    `arr` is an array, or a place that `zellige.open_array` opens. `chunks` are the smallest pieces that can be read
    alone by default, so that no chunk is decoded twice: stored chunks, in shards their inner ones. `"shards"` takes
    whole shards; everything that dask knows is accepted as well.

    `token` names the content. By default it is made of the array's document and of the tags of its chunks, where
    these cost little (on a local disk: inode, time and size; in memory the values), so that a store that was
    written again gives another dask array. Elsewhere every call gives a new name.

    >>> import zellige
    >>> a = zellige.array(range(10), chunks=[[3, 7]])
    >>> from_array(a).chunks, from_array(a, chunks=5).chunks
    (((3, 7),), ((5, 5),))
    """
    array = arr if isinstance(arr, Array) else open_array(arr, mode="r")
    check_reachable(array.store)
    if chunks is None or (isinstance(chunks, str) and chunks == "shards"):
        sizes = array.read_chunk_sizes if chunks is None else array.write_chunk_sizes
        cut: Any = tuple(tuple(axis) or (0,) for axis in sizes)
    else:
        cut = da.core.normalize_chunks(chunks, array.shape, dtype=array.dtype)
    name = f"zellige-{tokenize(token) if token is not None else _token(array)}-{tokenize(cut)}"
    meta = np.empty((0,) * array.ndim, array.dtype)
    return da.from_array(Handle(array), chunks=cut, name=name, meta=meta, asarray=False, inline_array=True)


def _token(array: Array) -> str:
    """A name of what an array holds now; see `from_array`."""
    store, prefix = array.store, array.path and array.path + "/"
    document = next(iter(array.metadata.to_documents()))
    found = store.get_versioned(prefix + document)
    if found is None or not store.near or prod(array.grid.grid_shape) > _MOST_TAGS:
        return uuid4().hex
    tags = [_tag(store, chunk.key) for chunk in array.iter_chunks()]
    where = () if isinstance(store, MemoryStore) else (repr(store), array.path)
    return uuid4().hex if ... in tags else str(tokenize(*where, found, tags))


def _tag(store: Store, key: str) -> object:
    """The tag of a stored value, None if there is no such key, and an ellipsis if the store has no tags."""
    found = store.get_tagged(key, [])
    if found is None:
        return None
    return ... if found[1] is None else found[1]


class Handle:
    """An array as tasks hold it: pickled it is the place and a name of its document, which workers read once.

    They read it when a task first uses it. Reading while a task is unpickled would do so in the scheduler, too, and an
    error there takes a worker down.
    """

    __slots__ = ("_documents", "_found", "_name", "_place", "_writes")

    _found: Array | None

    def __init__(self, array: Array, name: str | None = None, *, stored: bool = True, writes: bool = False) -> None:
        self._found, self._place = array, (array.store, array.path, array.config)
        self._documents = None if stored else array.metadata.to_documents()
        self._name, self._writes = name or tokenize(array.metadata.to_documents()), writes

    @property
    def _array(self) -> Array:
        if self._found is None:
            store, path, config = self._place
            if self._documents is None:
                self._found = _opened(store, path, config, self._name)
            else:
                self._found = Array.from_documents(store, path, self._documents, config)
        return self._found

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._array.dtype

    def __getitem__(self, index: Any) -> Any:
        found = self._array.oindex[index] if _is_fancy(index) else self._array[index]
        return np.asarray(found, self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = value

    def fork(self) -> Array:
        """The array in a fork of its store."""
        array = self._array
        return Array.from_documents(array.store.fork(), array.path, array.metadata.to_documents(), array.config)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        store, path, _ = self._place
        return "zellige.dask.Handle", repr(store), path, self._name

    def __getstate__(self) -> tuple[Any, ...]:
        store = self._place[0]
        if isinstance(store, MemoryStore):
            raise TypeError(_no_way_out(store))
        if self._writes and store.transactional:
            raise TypeError(_no_way_back(store))
        return self._place, self._documents, self._name, self._writes

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._place, self._documents, self._name, self._writes = state
        self._found = None


def _is_fancy(index: Any) -> bool:
    """Whether an index holds lists; dask means each axis on its own."""
    return isinstance(index, tuple) and any(isinstance(part, list | np.ndarray) for part in index)


@lru_cache(maxsize=128)
def _opened(store: Store, path: str, config: Any, _name: str) -> Array:
    """The array at a place, read once in each process for as long as its document has this name."""
    return Array.open(store, path, config)


# -- writing --------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A dask array and where its values go."""

    source: da.Array
    target: Array
    region: tuple[slice, ...] | None = None
    """Which part of the target; all of it by default."""
    stored: bool = True
    """Whether the target's document is in the store as the handle has it."""


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
    check_reachable(target)
    with forked(target, compute=compute) as place:
        array = place if isinstance(place, Array) else create_array(place, **_creation(x, create))
        part = Part(x, array, None if region is None else tuple(region))
        later = store_parts([part], align=align, compute=compute, progress=progress)
    if later is not None:
        return later
    if place is target:
        return array
    return target if isinstance(target, Array) else open_array(_store_of(target), path=array.path, mode="r+")


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
    fork = next((part.target.store for part in ready if part.target.store.transactional), None)
    if not computes_elsewhere():
        fork = None
    if align:
        ready = [_aligned(part) for part in ready]
    elif fork is not None and any(_shared_axes(part) for part in ready):
        raise ValueError(
            f"align=False: two tasks would write to one chunk, and each writes to a copy of {fork!r}; leave it out"
        )
    if fork is None:
        later = _joined(dask.optimize(*map(_stored, ready)), partial(_finish, then))
    else:
        later = _joined([_stored_in_forks(part) for part in ready], _merged)
    if not compute:
        return later
    found = _compute(later, progress)
    if fork is not None and found is not None:
        fork.merge([found])
    return None


def _compute(later: Delayed, progress: bool) -> Any:
    """Compute, and show how far it is: on a cluster by what its scheduler says."""
    client = _client()
    if not progress:
        return later.compute()
    if client is None:
        from dask.diagnostics import ProgressBar

        with ProgressBar():
            return later.compute()
    from distributed import progress as show

    future = client.compute(later)
    show(future, notebook=False)  # type: ignore[no-untyped-call]
    return future.result()


def _stored(part: Part) -> da.Array:
    """A dask array whose blocks are written once it is computed."""
    found = da.store(
        part.source,
        # A new name each time: what was written before is to be written again.
        Handle(part.target, uuid4().hex, stored=part.stored, writes=True),
        regions=part.region,
        lock=False,
        compute=False,
        return_stored=True,
        load_stored=False,
    )
    return found[0] if isinstance(found, tuple) else found  # in some versions of dask a tuple of one


def _joined(arrays: Sequence[da.Array], function: Any) -> Delayed:
    """One task that waits for all blocks of all arrays, and calls a function of them."""
    keys = [key for array in arrays for key in _keys(array.__dask_keys__())]
    name = f"zellige-stored-{uuid4().hex}"
    graph = HighLevelGraph.from_collections(name, {name: (function, keys)}, dependencies=arrays)
    return Delayed(name, graph)


def _finish(then: Any, _blocks: Any) -> None:
    if then is not None:
        then()


# -- transactions ---------------------------------------------------------------------------------


@contextmanager
def forked(place: Any, *, compute: bool = True) -> Iterator[Any]:
    """A place as the tasks of dask write to it: in a transaction, a fork of it that is merged at the end.

    It is the place itself if dask computes in this process, or if all processes see what one of them writes.
    """
    whole = _store_of(place)
    if whole is None or not whole.transactional or not computes_elsewhere():
        yield place
        return
    if not compute:
        raise ValueError(f"compute=False: {whole!r} is a transaction, to which forks must be merged; compute at once")
    fork = whole.fork()
    if isinstance(place, Array):
        yield Array.from_documents(fork, place.path, place.metadata.to_documents(), place.config)
    elif isinstance(place, Group | storage.StorePath):
        yield storage.StorePath(fork, place.path)
    else:
        yield fork
    whole.merge([fork])


def _store_of(place: Any) -> Store | None:
    """The store that a place is in, if it is open already."""
    found = getattr(place, "store", place)  # of an array, a group, or a path within a store
    if hasattr(found, "session"):  # of icechunk
        return storage.ZarrPythonStore(found)
    return found if isinstance(found, Store) else None


def _stored_in_forks(part: Part) -> da.Array:
    """A dask array whose blocks, once computed, are forks of the target's store to which they were written."""
    (x,) = dask.optimize(part.source)
    # With its document: each fork is a store of its own, and what others have opened is not to be used for it.
    handle = Handle(part.target, stored=False)
    name, starts = f"zellige-fork-{uuid4().hex}", [place.start for place in part.region or ()]
    layer: dict[Any, Any] = {}
    for key, block in zip(_keys(x.__dask_keys__()), da.core.slices_from_chunks(x.chunks), strict=True):
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
    first.merge(others)
    return first


def _keys(nested: Any) -> Iterable[Any]:
    if isinstance(nested, list):
        for inner in nested:
            yield from _keys(inner)
    else:
        yield nested


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
    if len(region) != len(shape) or any(s.step not in (None, 1) for s in region):
        raise ValueError(f"region={part.region}: give one slice without a step for each of {len(shape)} axes")
    whole = tuple(slice(*s.indices(n)[:2]) for s, n in zip(region, shape, strict=True))
    wanted = tuple(max(0, s.stop - s.start) for s in whole)
    if part.source.shape != wanted:
        raise ValueError(f"the dask array has shape {part.source.shape}, its place in the array has shape {wanted}")
    return part._replace(region=whole)


def _client() -> Any:
    """The client of the cluster that dask would compute on, or None."""
    client = getattr(get_scheduler(), "__self__", None)
    return client if client is not None and type(client).__module__.split(".")[0] == "distributed" else None


def computes_elsewhere() -> bool:
    """Whether dask would compute in other processes."""
    scheduler = get_scheduler()
    return _client() is not None or getattr(scheduler, "__module__", "") == "dask.multiprocessing"


def check_reachable(place: Any) -> None:
    """Refuse values in the memory of this process where other processes would have to write or read them."""
    place = getattr(place, "store", place)  # of a group, or of a path within a store
    if (place is None or isinstance(place, MemoryStore | MutableMapping)) and _client() is not None:
        raise ValueError(_no_way_out(place))


def _no_way_out(store: Any) -> str:
    return (
        f"{store!r} is in the memory of this process, and the workers of a cluster would write to and read from copies "
        "of it; use a directory or an object store, or compute with scheduler='threads'"
    )


def _no_way_back(store: Any) -> str:
    return (
        f"{store!r} is a transaction of this process, and what others write to copies of it would be lost; have the "
        "cluster ready when you call store or write, without compute=False"
    )


# -- alignment ------------------------------------------------------------------------------------


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


def _shared_axes(part: Part) -> list[int]:
    """The axes along which two blocks share a stored chunk."""
    return [axis for axis, found in enumerate(_axes(part)) if not _fits(*found)]


def _aligned(part: Part) -> Part:
    """The same with blocks that end where stored chunks end."""
    x, target = part.source, part.target
    shared = _shared_axes(part)
    if not shared:
        return part
    chunks = tuple(snap(*found) if axis in shared else found[0] for axis, found in enumerate(_axes(part)))
    moved = x.rechunk(chunks)
    axes = ", ".join(map(str, shared))
    warnings.warn(
        f"the blocks of the dask array end within stored chunks of {target.name!r} along axis {axes}; "
        f"{x.npartitions} blocks were rechunked to {moved.npartitions}, so that no two tasks write to one chunk",
        AlignmentWarning,
        stacklevel=_user_level(),
    )
    return part._replace(source=moved)


def _user_level() -> int:
    """How many frames above its caller the first one lies that is not of this package, as `stacklevel` counts."""
    here = str(Path(__file__).parent)
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level


def _fits(blocks: Sequence[int], stored: Sequence[int], start: int) -> bool:
    """Whether every inner end of a block is the end of a stored chunk."""
    wanted = np.cumsum(np.asarray(blocks, np.int64))[:-1] + start
    wanted = wanted[(wanted > start) & (wanted < start + sum(blocks))]
    return bool(np.isin(wanted, np.cumsum(np.asarray(stored, np.int64))).all())
