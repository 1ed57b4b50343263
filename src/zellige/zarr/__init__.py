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

_PATH = "zellige.zarr.Pipeline"

Pipeline.__module__ = "zellige.zarr"  # by this name zarr-python finds it
register_pipeline(Pipeline)


def enable() -> None:
    """Let zarr-python read and write by zellige, in this process, for arrays that are opened from now on.

    Rectilinear chunks are turned on, too.
    """
    zarr.config.set({"codec_pipeline.path": _PATH, "array.rectilinear_chunks": True})


def disable() -> None:
    """Let zarr-python read and write by itself again, for arrays that are opened from now on."""
    for name in ("codec_pipeline.path", "array.rectilinear_chunks"):
        zarr.config.set({name: dict(zarr.config.defaults[0])})
