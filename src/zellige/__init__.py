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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zellige import aio, codecs, dtype, errors, experimental, storage
    from zellige.aio import AsyncArray, AsyncGroup
    from zellige.display.progress import progress
    from zellige.display.text import print_debug_info
    from zellige.grid.grid import ChunkGrid, ChunkSpec, DimensionGrid, FixedDimension, VaryingDimension
    from zellige.nodes.array import Array
    from zellige.nodes.commit import change
    from zellige.nodes.create import (
        array,
        create,
        create_array,
        empty,
        empty_like,
        from_array,
        full,
        full_like,
        ones,
        ones_like,
        zeros,
        zeros_like,
    )
    from zellige.nodes.group import Group
    from zellige.nodes.hierarchy import create_hierarchy
    from zellige.nodes.open import (
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
    from zellige.settings import config
    from zellige.stores import LocalStore, MemoryStore, Store
    from zellige.tools.convert import convert
    from zellige.tools.copy import copy, copy_all, copy_store
    from zellige.tools.diff import diff
    from zellige.tools.migrate import migrate
    from zellige.tools.rechunk import rechunk
    from zellige.tools.repair import repair, vacuum
    from zellige.tools.validate import validate
    from zellige.views import LazyArray, concat, stack

__version__ = "0.1.0"

_NAMES = {
    "aio": "AsyncArray AsyncGroup",
    "display.progress": "progress",
    "display.text": "print_debug_info",
    "grid.axis": "DimensionGrid FixedDimension VaryingDimension",
    "grid.grid": "ChunkGrid ChunkSpec",
    "nodes.array": "Array",
    "nodes.commit": "change",
    "nodes.create": "array create create_array empty empty_like from_array full full_like ones ones_like zeros "
    "zeros_like",
    "nodes.group": "Group",
    "nodes.hierarchy": "create_hierarchy",
    "nodes.open": "consolidate_metadata create_group group load open open_array open_consolidated open_group open_like "
    "save save_array save_group tree",
    "settings": "config",
    "stores": "LocalStore MemoryStore Store",
    "tools.convert": "convert",
    "tools.copy": "copy copy_all copy_store",
    "tools.diff": "diff",
    "tools.migrate": "migrate",
    "tools.rechunk": "rechunk",
    "tools.repair": "repair vacuum",
    "tools.validate": "validate",
    "views": "LazyArray concat stack",
}
"""The public names by the modules that they come from, which are imported on first use of a name."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = {"aio", "codecs", "dtype", "errors", "experimental", "kernel", "storage"}
_GUESTS = {"dask", "xarray", "zarr"}
"""Modules that need other libraries: attributes as well, but not for `from zellige import *`."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES | _GUESTS:
        raise AttributeError(f"module 'zellige' has no attribute {name!r}")
    module = import_module(f"zellige.{_HOMES.get(name, name)}")
    found = globals()[name] = getattr(module, name) if name in _HOMES else module
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
    "change",
    "codecs",
    "concat",
    "config",
    "consolidate_metadata",
    "convert",
    "copy",
    "copy_all",
    "copy_store",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "diff",
    "dtype",
    "empty",
    "empty_like",
    "errors",
    "experimental",
    "from_array",
    "full",
    "full_like",
    "group",
    "kernel",
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
    "progress",
    "rechunk",
    "repair",
    "save",
    "save_array",
    "save_group",
    "stack",
    "storage",
    "tree",
    "vacuum",
    "validate",
    "zeros",
    "zeros_like",
]
