"""dask arrays that read stored ones, and arrays as tasks hold them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from math import prod
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.base import tokenize

from zellige import Array, MemoryStore, Store, open_array, storage
from zellige.dask.clusters import check_reachable, no_way_back, no_way_out

_MOST_TAGS = 10_000  # chunks whose tags go into a token; asking for more of them takes longer than it saves


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
    found = store.read(prefix + document)
    if found is None or store.traits.concurrency is not None or prod(array.grid.grid_shape) > _MOST_TAGS:
        return uuid4().hex
    tags = [_tag(store, chunk.key) for chunk in array.iter_chunks()]
    where = () if isinstance(store, MemoryStore) else (repr(store), array.path)
    return uuid4().hex if ... in tags else str(tokenize(*where, found.whole, repr(found.tag), tags))


def _tag(store: Store, key: str) -> object:
    """The tag of a stored value, None if there is no such key, and an ellipsis if the store has no tags."""
    found = store.read(key, ())
    if found is None:
        return None
    return ... if found.tag is None else repr(found.tag)


class Handle:
    """An array as tasks hold it: pickled it is the place and a name of its document, which workers read once.

    They read it when a task first uses it. Reading while a task is unpickled would do so in the scheduler, too, and an
    error there takes a worker down.
    """

    __slots__ = ("_documents", "_flight", "_found", "_guard", "_name", "_place", "_writes")

    _found: Array | None

    def __init__(
        self,
        array: Array,
        name: str | None = None,
        *,
        stored: bool = True,
        writes: bool = False,
        guard: Callable[[], None] | None = None,
        flight: Flight | None = None,
    ) -> None:
        self._found, self._place = array, (array.store, array.path, array.config)
        self._documents = None if stored else array.metadata.to_documents()
        self._name, self._writes = name or tokenize(array.metadata.to_documents()), writes
        self._guard, self._flight = guard, flight

    @property
    def store_path(self) -> storage.StorePath:
        """Where the array is; nothing is opened for that."""
        return storage.StorePath(*self._place[:2])

    @property
    def writes(self) -> bool:
        """Whether tasks write to the array."""
        return self._writes

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
            raise TypeError(no_way_out(store))
        if self._writes and store.traits.transactional:
            raise TypeError(no_way_back(store))
        return self._place, self._documents, self._name, self._writes, self._guard

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._place, self._documents, self._name, self._writes, self._guard = state
        self._found = self._flight = None


class Flight:
    """The writes of one computation that threads of this process are at.

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
    """The array at a place, read once in each process for as long as its document has this name."""
    return Array.open(store, path, config)
