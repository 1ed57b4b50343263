"""What `zarr.core.metadata` has, as far as chunk grids go, and the older names of their metadata."""

from __future__ import annotations

import warnings
from typing import Any

from zellige.metadata.v3 import ArrayV3Metadata, RectilinearChunkGridMetadata, RegularChunkGridMetadata

__all__ = ["ArrayV3Metadata"]

_OLDER = {"RegularChunkGrid": RegularChunkGridMetadata, "RectilinearChunkGrid": RectilinearChunkGridMetadata}


def deprecated(module: str, name: str) -> Any:
    """Return the class that an older name stands for, with a `DeprecationWarning`.

    Parameters
    ----------
    module
        The name of the module that it is imported from.
    name
        The older name.

    """
    if name not in _OLDER:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    found = _OLDER[name]
    warnings.warn(
        f"{module}.{name} is deprecated; use zellige.metadata.v3.{found.__name__}, or is_regular of a ChunkGrid",
        DeprecationWarning,
        stacklevel=3,
    )
    return found
