"""A place in a store: where a value is, or where keys begin."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any, NamedTuple

from zellige.stores.base import Store, check_key
from zellige.stores.local import LocalStore
from zellige.stores.memory import MemoryStore
from zellige.types import Buffer


class StorePath:
    """A store and a path in it, without outer slashes; the root's is empty. It does not change.

    >>> place = StorePath(MemoryStore(), "a") / "b"
    >>> place.path, place.name, place.parent.path
    ('a/b', 'b', 'a')
    >>> place.set(b"value")
    >>> place.exists(), place.get(), place.parent.is_empty()
    (True, b'value', False)
    """

    __slots__ = ("_store", "_path")

    def __init__(self, store: Store, path: str = "") -> None:
        parts = [part for part in path.replace("\\", "/").split("/") if part]
        self._store = store
        self._path = check_key("/".join(parts)) if parts else ""

    @property
    def store(self) -> Store:
        """The store."""
        return self._store

    @property
    def path(self) -> str:
        """The key, or how keys begin."""
        return self._path

    @property
    def read_only(self) -> bool:
        """Whether the store refuses to write."""
        return self._store.read_only

    @property
    def name(self) -> str:
        """The last part of the path; the root has none."""
        return self._path.rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        """The place above; the root's is the root."""
        return StorePath(self._store, self._path.rpartition("/")[0])

    def __truediv__(self, other: str) -> StorePath:
        return StorePath(self._store, self._path + "/" + other)

    # -- the value here ---------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether there is a value here; what only has keys below it has none."""
        try:
            return bool(self._path) and self._store.exists(self._path)
        except IsADirectoryError:
            return False

    def get(self) -> bytes | None:
        """Return the value, or None if there is none."""
        try:
            return self._store.get(self._path) if self._path else None
        except IsADirectoryError:
            return None

    def set(self, value: Buffer) -> None:
        """Store the value, all or nothing."""
        self._store.put(self._path, value)

    def delete(self) -> None:
        """Remove the value; nothing happens if there is none."""
        self._store.delete([self._path])

    def is_empty(self) -> bool:
        """Whether there is no key below."""
        return not any(True for _ in self._store.list(self._path and f"{self._path}/"))

    def is_within(self, other: StorePath) -> bool:
        """Whether this is the other place, or lies below it; also where stores with other roots mean the same place."""
        return place(self._store, self._path).within(place(other._store, other._path))

    # -- as a value -------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StorePath):
            return NotImplemented
        return self._path == other._path and self._store == other._store

    def __hash__(self) -> int:
        return hash((self._store, self._path))

    def __str__(self) -> str:
        root = _root(self._store)
        return f"{root.rstrip('/')}/{self._path}" if self._path else root

    def __repr__(self) -> str:
        return f"StorePath({self._store!r}, {self._path!r})"


class Place(NamedTuple):
    """Where a path is, so that paths of different stores can be compared."""

    owner: Hashable
    path: str

    def within(self, other: Place) -> bool:
        """Whether this is the other place, or lies below it."""
        return self.owner == other.owner and self.path.startswith(other.path)


def place(store: Store, path: str) -> Place:
    """Return where a path is. Stores with other roots may mean the same place: their keys have the same name then."""
    name: Any = store.name(f"{path}/{_LAST}" if path else _LAST)
    if isinstance(name, tuple):
        return Place(name[0], name[1].removesuffix(_LAST))
    return Place("", os.path.realpath(name.removesuffix(_LAST)).rstrip("/") + "/")


_LAST = "zarr.json"


def _root(store: Store) -> str:
    """Return the root of a store for people."""
    if isinstance(store, LocalStore):
        return store.root
    if isinstance(store, MemoryStore):
        return f"memory://{store.identity[1]}"
    url: object = getattr(store, "url", None)  # of a store on a server
    return url if isinstance(url, str) else repr(store)
