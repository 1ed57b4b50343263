"""Stores by the names that zarr-python has for them.

>>> store = MemoryStore()
>>> store.put("a/b", b"value")
>>> (StorePath(store) / "a" / "b").get()
b'value'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zellige.stores.base import Store
from zellige.stores.local import LocalStore
from zellige.stores.memory import MemoryStore
from zellige.stores.path import StorePath
from zellige.stores.resolve import StoreLike

if TYPE_CHECKING:
    from zellige.stores.http import HTTPStore
    from zellige.stores.objects import ObjectStore

__all__ = ["HTTPStore", "LocalStore", "MemoryStore", "ObjectStore", "Store", "StoreLike", "StorePath"]

_REMOTE = "copy the data to a local directory and use LocalStore, or give any MutableMapping of keys to bytes as store"
_ON_DEMAND = {"ObjectStore": "zellige.stores.objects", "HTTPStore": "zellige.stores.http"}
"""What needs more libraries, and is imported when it is first asked for."""
_MISSING = {
    "ZipStore": "unpack the file into a directory and use LocalStore",
    "FsspecStore": _REMOTE,
    "LoggingStore": "subclass LocalStore or MemoryStore and log in the methods of interest",
    "WrapperStore": "subclass Store and pass its methods on",
    "GpuMemoryStore": "use MemoryStore, and move arrays to the device after reading",
    "ManagedMemoryStore": "use MemoryStore, and keep the store where it is to be found again",
}


def __getattr__(name: str) -> object:
    if name in _ON_DEMAND:
        from importlib import import_module

        found: object = getattr(import_module(_ON_DEMAND[name]), name)
        return found
    if name in _MISSING:
        raise AttributeError(f"{name} is not in this version of zellige, but meant for a later one; {_MISSING[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
