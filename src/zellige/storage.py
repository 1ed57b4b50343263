"""Stores by the names that zarr-python has for them.

>>> store = MemoryStore()
>>> store.put("a/b", b"value")
>>> (StorePath(store) / "a" / "b").get()
b'value'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from zellige.nodes.node import normalize_path
from zellige.stores.abilities import fork, merge
from zellige.stores.base import (
    ABSENT,
    Listing,
    Store,
    Traits,
    Value,
    check_key,
    check_keys,
    check_prefix,
    joined,
)
from zellige.stores.local import LocalStore
from zellige.stores.memory import MemoryStore
from zellige.stores.path import StorePath
from zellige.stores.resolve import StoreLike, locate
from zellige.stores.resolve import opened as _opened

if TYPE_CHECKING:
    from zellige.nodes.array import Array
    from zellige.nodes.sources import TaskReads
    from zellige.stores.cache import CacheStatistics, CacheStore
    from zellige.stores.foreign.fsspec import FsspecStore
    from zellige.stores.foreign.zarr_python import ZarrPythonStore
    from zellige.stores.http import HTTPStore
    from zellige.stores.latency import LatencyStore
    from zellige.stores.object import ObjectStore
    from zellige.stores.wrappers import LoggingStore, PrefixStore, WrapperStore
    from zellige.stores.zip import ZipStore
    from zellige.types import AnyArray

__all__ = [
    "ABSENT",
    "CacheStatistics",
    "CacheStore",
    "FsspecStore",
    "HTTPStore",
    "LatencyStore",
    "Listing",
    "LocalStore",
    "LoggingStore",
    "MemoryStore",
    "ObjectStore",
    "PrefixStore",
    "Store",
    "StoreLike",
    "StorePath",
    "Traits",
    "Value",
    "as_stored",
    "check_consolidated",
    "check_key",
    "check_keys",
    "check_prefix",
    "filling",
    "fork",
    "joined",
    "merge",
    "open_store",
    "opened",
    "places_of",
    "graph_reads",
    "WrapperStore",
    "ZarrPythonStore",
    "ZipStore",
]

# Imported when they are first asked for.
_ELSEWHERE = dict.fromkeys(("CacheStatistics", "CacheStore"), "cache")
_ELSEWHERE |= dict.fromkeys(("LoggingStore", "PrefixStore", "WrapperStore"), "wrappers")
_ELSEWHERE |= {"FsspecStore": "foreign.fsspec", "HTTPStore": "http", "LatencyStore": "latency", "ObjectStore": "object"}
_ELSEWHERE |= {"ZarrPythonStore": "foreign.zarr_python", "ZipStore": "zip"}

_MISSING = {
    "GpuMemoryStore": "use MemoryStore, and move arrays to the device after reading",
    "ManagedMemoryStore": "use MemoryStore, and keep the store where it is to be found again",
}


def open_store(
    store: StoreLike,
    *,
    path: str = "",
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> StorePath:
    """The store that everything else would use for the same arguments, and the path in it; nothing is read.

    To use one store for several calls, and to close it: an archive is written when it is closed.

    >>> found = open_store("memory://results", path="a/b")
    >>> found.path, found.store.read_only
    ('a/b', False)
    """
    return StorePath(*locate(store, normalize_path(path), read_only=read_only, storage_options=storage_options))


@contextmanager
def opened(
    store: StoreLike, *, path: str = "", storage_options: Mapping[str, Any] | None = None
) -> Iterator[StorePath]:
    """Open a place for one whole job: what was opened by a path or a URL is closed at the end of the block.

    Only then is there all that was written to a zip file; after an exception the file stays as it was. A store that is
    given stays open, and so does that of a `StorePath`.

    store
        A place, as for `zellige.open`.
    path
        The path within it.
    storage_options
        For the place, if it is on a server.

    >>> import zellige
    >>> with opened("memory://jobs", path="a") as place:
    ...     _ = zellige.create_array(place, data=[1, 2, 3])
    >>> zellige.load("memory://jobs", path="a")
    array([1, 2, 3])
    """
    with _opened(store, normalize_path(path), storage_options=storage_options) as found:
        yield StorePath(*found)


def as_stored(values: Any, array: Array) -> AnyArray:
    """Values as an array takes them when they are assigned to it; numbers may still be of another type, which fits.

    Raises `MaskedValueError` for masked elements, `LossyCastError` for values that the array's type cannot hold.

    values
        Anything array-like.
    array
        The array that they are meant for. Nothing is written.

    >>> import zellige
    >>> a = zellige.zeros(3, dtype="uint8")
    >>> as_stored([1, 2, 3], a)
    array([1, 2, 3])
    >>> as_stored([1, 2.5, 300], a)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    zellige.errors.LossyCastError: float64 value 2.5 at (1,) does not fit an array of uint8; ...
    """
    from zellige.dtypes.cast import as_value

    return as_value(values, array.dtype, array.config.casting)


def check_consolidated(arrays: Iterable[Array], missing: Iterable[StorePath] = ()) -> None:
    """Refuse arrays whose documents contradict the consolidated metadata of the group that they were reached through.

    Raises `StaleMetadataError` where an array is shorter than the consolidated metadata says, or stored otherwise: who
    writes by the document would damage what readers of the consolidated metadata see.

    arrays
        Members of a group that was opened with `use_consolidated=False`.
    missing
        Where arrays are expected, and none was found: consolidated metadata may know them, if documents were lost.

    >>> import zellige
    >>> root = zellige.create_group({})
    >>> _ = root.create_array("a", shape=8, dtype="int8")
    >>> _ = root.consolidate_metadata()
    >>> zellige.open_array(root.store, path="a").resize(4)
    >>> check_consolidated(zellige.open_group(root.store, use_consolidated=False).array_values())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    zellige.errors.StaleMetadataError: ...'a': shape [4] in its document, [8] in the consolidated metadata...
    """
    from zellige.nodes.consolidated import compare, refuse_lost

    for place in missing:
        refuse_lost(place.store, [place.path])
    found = list(arrays)
    for holder in {id(array._holder): array._holder for array in found}.values():
        if holder is not None:
            compare(holder, {one.path: one.metadata for one in found if one._holder is holder})


@contextmanager
def filling(array: Array, *, overwrite: bool = False) -> Iterator[Callable[[], None] | None]:
    """Around the writing of all values of a new array, at a place where it has no document yet.

    The document is written at the end of the block. An exception leaves nothing of the array; a process that is killed
    leaves what the next call removes, and what no program takes for an array meanwhile. In a transaction the document
    comes first. Yields a function to be called before a value is written, which raises if another process has taken
    over; None in a transaction.

    array
        The new array, made for instance after one in memory: `Array(store, path, model.metadata, model.config)`.
    overwrite
        Replace a node that is there.

    >>> import zellige
    >>> store, model = MemoryStore(), zellige.create_array(shape=3, dtype="int8")
    >>> a = zellige.Array(store, "a", model.metadata, model.config)
    >>> with filling(a):
    ...     a[:] = [1, 2, 3]
    ...     print(store.exists("a/zarr.json"))
    False
    >>> zellige.load(store, path="a")
    array([1, 2, 3], dtype=int8)
    """
    from zellige.nodes import hierarchy

    with hierarchy.filling(array.store, array.path, array.metadata, overwrite=overwrite) as check:
        yield check


def places_of(data: Any) -> list[StorePath]:
    """The places of the stored arrays that data is read from: behind views, tasks of dask, and what xarray puts around.

    Nothing is read. Values in memory come from nowhere.

    data
        An array, a view, a collection of dask, a variable of xarray, an array of zarr-python, or anything else.

    >>> import zellige
    >>> a = zellige.create_array({}, name="a", data=[1, 2, 3])
    >>> [place.path for place in places_of(a.lazy[::2])], places_of([1, 2, 3])
    (['a'], [])
    """
    from zellige.nodes.sources import reads  # only for those who overwrite something

    return list(dict.fromkeys(found.place for found in reads(data)))


def graph_reads(graph: Mapping[Any, Any]) -> dict[Any, TaskReads]:
    """What each task of a graph of dask reads from stored arrays, and the keys of the tasks that it depends on.

    graph
        A graph by keys, of low level or of high level.
    """
    from zellige.nodes import sources

    return sources.graph_reads(graph)


def __getattr__(name: str) -> object:
    if name in _ELSEWHERE:
        from importlib import import_module

        return getattr(import_module(f"zellige.stores.{_ELSEWHERE[name]}"), name)
    if name in _MISSING:
        raise AttributeError(f"{name} is not in this version of zellige, but meant for a later one; {_MISSING[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
