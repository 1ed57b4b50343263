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
from zellige.stores.resolve import StoreLike, StorePath, locate
from zellige.stores.resolve import opened as _opened
from zellige.types import Kept

if TYPE_CHECKING:
    from zellige.nodes.array import Array
    from zellige.nodes.consolidated import Consolidated
    from zellige.nodes.provenance import graph_reads
    from zellige.stores.cache import CacheStatistics, CacheStore
    from zellige.stores.fsspec import FsspecStore
    from zellige.stores.object import HTTPStore, ObjectStore
    from zellige.stores.wrappers import LatencyStore, LoggingStore, PrefixStore, WrapperStore
    from zellige.stores.zarr_python import ZarrPythonStore
    from zellige.stores.zip import ZipStore
    from zellige.types import AnyArray

__all__ = [
    "ABSENT",
    "CacheStatistics",
    "CacheStore",
    "FsspecStore",
    "HTTPStore",
    "Kept",
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

_ELSEWHERE = dict.fromkeys(("CacheStatistics", "CacheStore"), "stores.cache")
_ELSEWHERE |= dict.fromkeys(("HTTPStore", "ObjectStore"), "stores.object")
_ELSEWHERE |= dict.fromkeys(("LatencyStore", "LoggingStore", "PrefixStore", "WrapperStore"), "stores.wrappers")
_ELSEWHERE |= {"FsspecStore": "stores.fsspec", "ZarrPythonStore": "stores.zarr_python"}
_ELSEWHERE |= {"ZipStore": "stores.zip", "graph_reads": "nodes.provenance"}
"""The modules of names that are imported on first use."""

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
    """Return the store that other functions would use for the same arguments, and the path in it; nothing is read.

    Use it for several calls on one store, or to close the store: an archive is written when it is closed.

    Parameters
    ----------
    store
        A place, as for `zellige.open`.
    path
        The path within it.
    read_only
        Whether the store refuses to write.
    storage_options
        How to reach a server.

    >>> found = open_store("memory://results", path="a/b")
    >>> found.path, found.store.read_only
    ('a/b', False)
    """
    return StorePath(*locate(store, normalize_path(path), read_only=read_only, storage_options=storage_options))


@contextmanager
def opened(
    store: StoreLike, *, path: str = "", storage_options: Mapping[str, Any] | None = None
) -> Iterator[StorePath]:
    """Open a place for one whole job: a store that is opened by a path or a URL is closed at the end of the block.

    Closing completes a zip file; after an exception the file stays as it was. A given store, and that of a `StorePath`,
    stays open.

    Parameters
    ----------
    store
        A place, as for `zellige.open`.
    path
        The path within it.
    storage_options
        How to reach a server.

    >>> import zellige
    >>> with opened("memory://jobs", path="a") as place:
    ...     _ = zellige.create_array(place, data=[1, 2, 3])
    >>> zellige.load("memory://jobs", path="a")
    array([1, 2, 3])
    """
    with _opened(store, normalize_path(path), storage_options=storage_options) as found:
        yield StorePath(*found)


def as_stored(values: Any, array: Array) -> AnyArray:
    """Return values as an array takes them in an assignment; their type may differ, but the values fit.

    Raises `MaskedValueError` for masked elements, `LossyCastError` for values that the array's type cannot hold.

    Parameters
    ----------
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
    """Refuse arrays whose own metadata contradicts the consolidated metadata of the group they were opened through.

    Raises `StaleMetadataError` where an array is shorter than the consolidated metadata says, or stored otherwise:
    writing by its own metadata would damage what readers of the consolidated metadata see.

    Parameters
    ----------
    arrays
        Members of a group that was opened with `use_consolidated=False`.
    missing
        Places where arrays are expected but not found: consolidated metadata may know them, if their own was lost.

    >>> import zellige
    >>> root = zellige.create_group({})
    >>> _ = root.create_array("a", shape=8, dtype="int8")
    >>> _ = root.consolidate_metadata()
    >>> zellige.open_array(root.store, path="a").resize(4)
    >>> check_consolidated(zellige.open_group(root.store, use_consolidated=False).array_values())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    zellige.errors.StaleMetadataError: ...'a': shape [4] in its own metadata, [8] in the consolidated metadata...
    """
    from zellige.nodes.consolidated import compare, holder_of, refuse_lost

    for place in missing:
        refuse_lost(place.store, [place.path])
    by_holder: dict[Consolidated, dict[str, Any]] = {}
    for array in arrays:
        if (holder := holder_of(array)) is not None:
            by_holder.setdefault(holder, {})[array.path] = array.metadata
    for holder, members in by_holder.items():
        compare(holder, members)


@contextmanager
def filling(array: Array, *, overwrite: bool = False) -> Iterator[Callable[[], None] | None]:
    """Write all values of a new array within the block, and its metadata at the end.

    An exception leaves nothing of the array. What a killed process leaves is no array for any program, and the next
    call removes it. In a transaction the metadata comes first. Yields a function to call before a value is written,
    which raises if another process has taken over; None in a transaction.

    Parameters
    ----------
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
    """Return the places of the stored arrays that data is read from, also through views, dask and xarray.

    Nothing is read. Values in memory have no place.

    Parameters
    ----------
    data
        An array, a view, a collection of dask, a variable of xarray, an array of zarr-python, or anything else.

    >>> import zellige
    >>> a = zellige.create_array({}, name="a", data=[1, 2, 3])
    >>> [place.path for place in places_of(a.lazy[::2])], places_of([1, 2, 3])
    (['a'], [])
    """
    from zellige.nodes.provenance import reads

    return list(dict.fromkeys(found.place for found in reads(data)))


def __getattr__(name: str) -> object:
    if name in _ELSEWHERE:
        from importlib import import_module

        return getattr(import_module(f"zellige.{_ELSEWHERE[name]}"), name)
    if name in _MISSING:
        raise AttributeError(f"{name} is not in this version of zellige, but meant for a later one; {_MISSING[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
