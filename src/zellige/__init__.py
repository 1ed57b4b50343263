"""zellige: Zarr arrays with chunks of any size.

>>> import numpy as np
>>> import zellige
>>> days = [31, 28, 31, 30, 31, 30]
>>> a = zellige.create_array(shape=(181,), chunks=[days], dtype="float32", dimension_names=["time"])
>>> a[:] = np.arange(181)
>>> a[58:61]
array([58., 59., 60.], dtype=float32)
>>> a.write_chunk_sizes
((31, 28, 31, 30, 31, 30),)
"""

from typing import TYPE_CHECKING, Any

from zellige import codecs, errors
from zellige.api import (
    consolidate_metadata,
    create_group,
    group,
    load,
    open,
    open_array,
    open_consolidated,
    open_group,
    open_like,
    save,
    save_array,
    save_group,
    tree,
)
from zellige.array import Array
from zellige.config import config
from zellige.creation import create, create_array, empty, full, ones, zeros
from zellige.derive import array, empty_like, from_array, full_like, ones_like, zeros_like
from zellige.grid import ChunkGrid, ChunkSpec, DimensionGrid, FixedDimension, VaryingDimension
from zellige.group import Group
from zellige.stores import LocalStore, MemoryStore, Store

if TYPE_CHECKING:
    from zellige import aio, dtype, storage
    from zellige.aio import AsyncArray, AsyncGroup
    from zellige.copying import copy, copy_all, copy_store
    from zellige.hierarchy import create_hierarchy
    from zellige.info import print_debug_info
    from zellige.migration import migrate
    from zellige.views import LazyArray, concat, stack

__version__ = "0.1.0"

_LATER = {
    "AsyncArray": "aio",
    "AsyncGroup": "aio",
    "LazyArray": "views",
    "concat": "views",
    "copy": "copying",
    "copy_all": "copying",
    "copy_store": "copying",
    "create_hierarchy": "hierarchy",
    "migrate": "migration",
    "print_debug_info": "info",
    "stack": "views",
}
"""Names that not every script uses, with the modules that they come from; imported when asked for."""
_MODULES = {"aio", "dtype", "storage"}


def __getattr__(name: str) -> Any:
    if name not in _LATER and name not in _MODULES:
        raise AttributeError(f"module 'zellige' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"zellige.{_LATER.get(name, name)}")
    found = globals()[name] = getattr(module, name) if name in _LATER else module
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Array",
    "AsyncArray",
    "AsyncGroup",
    "ChunkGrid",
    "ChunkSpec",
    "DimensionGrid",
    "FixedDimension",
    "Group",
    "LazyArray",
    "LocalStore",
    "MemoryStore",
    "Store",
    "VaryingDimension",
    "__version__",
    "aio",
    "array",
    "codecs",
    "concat",
    "config",
    "consolidate_metadata",
    "copy",
    "copy_all",
    "copy_store",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "dtype",
    "empty",
    "empty_like",
    "errors",
    "from_array",
    "full",
    "full_like",
    "group",
    "load",
    "migrate",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_like",
    "print_debug_info",
    "save",
    "save_array",
    "save_group",
    "stack",
    "storage",
    "tree",
    "zeros",
    "zeros_like",
]
