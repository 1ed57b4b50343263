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

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zellige import aio, codecs, dtype, errors, experimental, storage
    from zellige.aio import AsyncArray, AsyncGroup
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
    from zellige.checks import diff, repair, vacuum, validate
    from zellige.commit import change
    from zellige.config import config
    from zellige.conversion import convert
    from zellige.copying import copy, copy_all, copy_store
    from zellige.creation import create, create_array, empty, full, ones, zeros
    from zellige.derive import array, empty_like, from_array, full_like, ones_like, zeros_like
    from zellige.grid import ChunkGrid, ChunkSpec, DimensionGrid, FixedDimension, VaryingDimension
    from zellige.group import Group
    from zellige.hierarchy import create_hierarchy
    from zellige.info import print_debug_info
    from zellige.migration import migrate
    from zellige.rechunking import rechunk
    from zellige.reporting import progress
    from zellige.stores import LocalStore, MemoryStore, Store
    from zellige.views import LazyArray, concat, stack

__version__ = "0.1.0"

_NAMES = {
    "aio": "AsyncArray AsyncGroup",
    "api": "consolidate_metadata create_group group load open open_array open_consolidated open_group open_like save "
    "save_array save_group tree",
    "array": "Array",
    "commit": "change",
    "checks": "diff repair vacuum validate",
    "config": "config",
    "conversion": "convert",
    "copying": "copy copy_all copy_store",
    "creation": "create create_array empty full ones zeros",
    "derive": "array empty_like from_array full_like ones_like zeros_like",
    "grid": "ChunkGrid ChunkSpec DimensionGrid FixedDimension VaryingDimension",
    "group": "Group",
    "hierarchy": "create_hierarchy",
    "info": "print_debug_info",
    "rechunking": "rechunk",
    "reporting": "progress",
    "migration": "migrate",
    "stores": "LocalStore MemoryStore Store",
    "views": "LazyArray concat stack",
}
"""The public names by the modules that they come from, which are imported when a name is first asked for."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = {"aio", "codecs", "dtype", "errors", "experimental", "kernel", "storage"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module 'zellige' has no attribute {name!r}")
    module = import_module(f"zellige.{_HOMES.get(name, name)}")
    found = globals()[name] = getattr(module, name) if name in _HOMES else module
    return found


class _Name:
    """A public name that a module has, too: without this, importing the module would put it in the name's place."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, package: ModuleType | None, _owner: type) -> Any:
        return getattr(import_module(f"zellige.{_HOMES[self._name]}"), self._name)

    def __set__(self, package: ModuleType, value: object) -> None:
        if not isinstance(value, ModuleType):
            raise AttributeError(f"zellige.{self._name} cannot be replaced")


class _Package(ModuleType):
    array = _Name("array")
    config = _Name("config")
    group = _Name("group")


sys.modules[__name__].__class__ = _Package


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
