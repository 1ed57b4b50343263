"""Where dask computes, what other processes reach, and how a transaction is written by them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from dask.base import get_scheduler

from zellige import Array, Group, MemoryStore, Store, storage


def client() -> Any:
    """The client of the cluster that dask would compute on, or None."""
    owner = getattr(get_scheduler(), "__self__", None)
    return owner if owner is not None and type(owner).__module__.split(".")[0] == "distributed" else None


def computes_elsewhere() -> bool:
    """Whether dask would compute in other processes."""
    scheduler = get_scheduler()
    return client() is not None or getattr(scheduler, "__module__", "") == "dask.multiprocessing"


def check_reachable(place: Any) -> None:
    """Refuse values in the memory of this process where other processes would have to write or read them."""
    place = getattr(place, "store", place)  # of a group, or of a path within a store
    if (place is None or isinstance(place, MemoryStore | MutableMapping)) and client() is not None:
        raise ValueError(no_way_out(place))


def no_way_out(store: Any) -> str:
    """What to say of values that no other process reaches."""
    return (
        f"{store!r} is in the memory of this process, and the workers of a cluster would write to and read from copies "
        "of it; use a directory or an object store, or compute with scheduler='threads'"
    )


def no_way_back(store: Any) -> str:
    """What to say of a transaction that other processes have copies of."""
    return (
        f"{store!r} is a transaction of this process, and what others write to copies of it would be lost; have the "
        "cluster ready when you call store or write, without compute=False"
    )


@contextmanager
def forked(place: Any, *, compute: bool = True) -> Iterator[Any]:
    """A place as the tasks of dask write to it: in a transaction, a fork of it that is merged at the end.

    It is the place itself if dask computes in this process, or if all processes see what one of them writes.
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
