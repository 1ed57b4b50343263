"""dask arrays that read stored ones, and arrays as tasks hold them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from math import prod
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.base import get_scheduler, tokenize

from zellige import Array, Group, MemoryStore, Store, open_array, storage

_MOST_TAGS = 10_000  # chunks whose tags go into a token; asking for more of them takes longer than it saves


def from_array(arr: Any, chunks: Any = None, *, token: str | None = None) -> da.Array:
    """Return a dask array that reads a stored one.

    Parameters
    ----------
    arr
        An array, or a place that `zellige.open_array` opens.
    chunks
        The blocks. By default the smallest chunks that can be read alone, so that none is decoded twice: stored chunks,
        in shards their inner ones. `"shards"` takes whole shards; everything that dask knows is accepted as well.
    token
        A name of the content. By default it is made of the array's metadata and of the tags of its chunks, where these
        cost little (on a local disk: inode, time and size; in memory the values), so that a store that was written
        again gives another dask array. Elsewhere every call gives a new name.

    Examples
    --------
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
    metadata = store.read(prefix + next(iter(array.metadata.to_documents())))
    if metadata is None or store.traits.concurrency is not None or prod(array.grid.grid_shape) > _MOST_TAGS:
        return uuid4().hex
    found = [store.read(chunk.key, ()) for chunk in array.iter_chunks()]
    if any(value is not None and value.tag is None for value in found):
        return uuid4().hex
    tags = [None if value is None else repr(value.tag) for value in found]
    where = () if isinstance(store, MemoryStore) else (repr(store), array.path)
    return str(tokenize(*where, metadata.whole, repr(metadata.tag), tags))


class Handle:
    """An array as tasks hold it: pickled it is the place and a name of its metadata, which workers read once.

    They read it when a task first uses it. Reading while a task is unpickled would do so in the scheduler, too, and an
    error there takes a worker down.
    """

    __slots__ = ("_documents", "_flight", "_found", "_guard", "_name", "_place", "_writes")

    _found: Array | None

    def __init__(
        self,
        array: Array,
        *,
        stored: bool = True,
        writes: bool = False,
        guard: Callable[[], None] | None = None,
        flight: Flight | None = None,
    ) -> None:
        self._found, self._place = array, (array.store, array.path, array.config)
        self._documents = None if stored else array.metadata.to_documents()
        # Writers get a new name each time: what was written before is to be written again.
        self._name = uuid4().hex if writes else tokenize(array.metadata.to_documents())
        self._writes = writes
        self._guard, self._flight = guard, flight

    @property
    def store_path(self) -> storage.StorePath:
        """Where the array is; nothing is opened for that."""
        return storage.StorePath(*self._place[:2])

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
        with nullcontext() if self._flight is None else self._flight:
            if self._guard is not None:
                self._guard()
            self._array[index] = value

    def fork(self) -> Array:
        """The array in a fork of its store."""
        array = self._array
        return Array.from_documents(storage.fork(array.store), array.path, array.metadata.to_documents(), array.config)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        store, path, _ = self._place
        return "zellige.dask.Handle", repr(store), path, self._name

    def __getstate__(self) -> tuple[Any, ...]:
        store = self._place[0]
        if isinstance(store, MemoryStore):
            raise TypeError(_no_way_out(store))
        if self._writes and store.traits.transactional:
            raise TypeError(
                f"{store!r} is a transaction of this process, and what others write to copies of it would be lost; "
                "have the cluster ready when you call store or write, without compute=False"
            )
        return self._place, self._documents, self._name, self._writes, self._guard

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._place, self._documents, self._name, self._writes, self._guard = state
        self._found = self._flight = None


class Flight:
    """The writes of one computation that are in flight in this process.

    When one task fails, dask returns while others are still running. Nothing may be written after that.
    """

    def __init__(self) -> None:
        self._changed, self._count, self._closed = threading.Condition(), 0, False

    def __enter__(self) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("nothing more is written, because another task of the same computation failed")
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def land(self) -> None:
        """Let no more begin, and wait for those that have begun."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._count)


def _is_fancy(index: Any) -> bool:
    """Whether an index holds lists; dask means each axis on its own."""
    return isinstance(index, tuple) and any(isinstance(part, list | np.ndarray) for part in index)


@lru_cache(maxsize=128)
def _opened(store: Store, path: str, config: Any, _name: str) -> Array:
    """The array at a place, read once in each process for as long as its metadata has this name."""
    return Array.open(store, path, config)


# -- where dask computes --------------------------------------------------------------------------


def client() -> Any:
    """The client of the cluster that dask would compute on, or None."""
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if owner is not None and type(owner).__module__.split(".")[0] == "distributed" else None


def computes_elsewhere() -> bool:
    """Whether dask would compute in other processes."""
    scheduler = get_scheduler()
    return client() is not None or getattr(scheduler, "__module__", "") == "dask.multiprocessing"


def check_reachable(place: Any) -> None:
    """Refuse values in the memory of this process where other processes would have to write or read them.

    Parameters
    ----------
    place
        A store, a group, an array, or a path within a store; None and a dict are memory.
    """
    place = getattr(place, "store", place)
    if (place is None or isinstance(place, MemoryStore | MutableMapping)) and client() is not None:
        raise ValueError(_no_way_out(place))


def _no_way_out(store: Any) -> str:
    return (
        f"{store!r} is in the memory of this process, and the workers of a cluster would write to and read from copies "
        "of it; use a directory or an object store, or compute with scheduler='threads'"
    )


@contextmanager
def forked(place: Any, *, compute: bool = True) -> Iterator[Any]:
    """Yield a place as the tasks of dask write to it: in a transaction, a fork of it that is merged at the end.

    It is the place itself if dask computes in this process, or if all processes see what one of them writes.

    Parameters
    ----------
    place
        A store, a group, an array, or a path within a store.
    compute
        Whether the tasks run within the block; forks cannot be merged after it.
    """
    whole = store_of(place)
    if whole is None or not whole.traits.transactional or not computes_elsewhere():
        yield place
        return
    if not compute:
        raise ValueError(f"compute=False: {whole!r} is a transaction, to which forks must be merged; compute at once")
    fork = storage.fork(whole)
    if isinstance(place, Array):
        yield Array.from_documents(fork, place.path, place.metadata.to_documents(), place.config)
    elif isinstance(place, Group | storage.StorePath):
        yield storage.StorePath(fork, place.path)
    else:
        yield fork
    storage.merge(whole, [fork])


def store_of(place: Any) -> Store | None:
    """The store that a place is in, if it is open already."""
    found = getattr(place, "store", place)  # of an array, a group, or a path within a store
    if hasattr(found, "session"):  # of icechunk
        return storage.ZarrPythonStore(found)
    return found if isinstance(found, Store) else None
