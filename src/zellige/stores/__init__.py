"""Where arrays keep their bytes: a map from keys to values, on disk or in memory."""

from zellige.stores import abilities
from zellige.stores.base import Store
from zellige.stores.local import LocalStore
from zellige.stores.memory import MemoryStore
from zellige.stores.resolve import StoreLike, StorePath, finishing, locate, opened, reopened, resolve

__all__ = ["abilities", "Store", "LocalStore", "MemoryStore", "StorePath", "StoreLike"]
__all__ += ["finishing", "locate", "opened", "reopened", "resolve"]
