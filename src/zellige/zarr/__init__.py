"""zellige underneath zarr-python: its arrays, read and written by zellige's kernel, without changing a script.

>>> import zarr, zellige.zarr
>>> zellige.zarr.enable()
>>> a = zarr.create_array({}, shape=(4,), chunks=(2,), dtype="int16")
>>> a[1:] = 7
>>> a[:].tolist()
[0, 7, 7, 7]
>>> zellige.zarr.disable()
"""

from __future__ import annotations

try:
    import zarr
except ImportError as error:
    raise ImportError("zellige.zarr needs zarr-python: pip install 'zellige[zarr]'") from error

from zarr.registry import register_pipeline

from zellige.zarr.pipeline import Pipeline
from zellige.zarr.store import as_store

__all__ = ["Pipeline", "as_store", "disable", "enable"]

_ON = {"codec_pipeline.path": "zellige.zarr.Pipeline", "array.rectilinear_chunks": True}
"""The settings of zarr-python that `enable` changes."""
_before: dict[str, object] = {}
"""What they were before `enable`, for `disable`."""

Pipeline.__module__ = "zellige.zarr"  # by this name zarr-python finds it
register_pipeline(Pipeline)


def enable() -> None:
    """Let zarr-python read and write by zellige, in this process, for arrays that are opened from now on.

    Rectilinear chunks are turned on, too, where zarr-python has them.
    """
    if not _before:
        _before.update({name: zarr.config.get(name, False) for name in _ON})
    zarr.config.set(_ON)


def disable() -> None:
    """Undo `enable`, for arrays that are opened from now on."""
    zarr.config.set(_before)
    _before.clear()
