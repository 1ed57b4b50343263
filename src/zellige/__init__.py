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

from zellige import codecs, errors
from zellige.api import (
    array,
    create,
    create_array,
    empty,
    empty_like,
    from_array,
    full,
    full_like,
    load,
    ones,
    ones_like,
    open,
    open_array,
    save,
    save_array,
    zeros,
    zeros_like,
)
from zellige.array import Array
from zellige.config import config
from zellige.grid import ChunkGrid, ChunkSpec, DimensionGrid, FixedDimension, VaryingDimension
from zellige.stores import LocalStore, MemoryStore, Store

__version__ = "0.1.0"

__all__ = [
    "Array",
    "ChunkGrid",
    "ChunkSpec",
    "DimensionGrid",
    "FixedDimension",
    "VaryingDimension",
    "Store",
    "LocalStore",
    "MemoryStore",
    "array",
    "codecs",
    "config",
    "create",
    "create_array",
    "empty",
    "empty_like",
    "errors",
    "from_array",
    "full",
    "full_like",
    "load",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "save",
    "save_array",
    "zeros",
    "zeros_like",
    "__version__",
]
