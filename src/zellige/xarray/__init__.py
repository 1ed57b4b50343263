"""xarray on zellige: an engine that reads chunks of any size, and a writer that keeps them.

>>> import numpy as np, pandas as pd, xarray as xr
>>> import zellige.xarray
>>> time = pd.date_range("2024-01-01", "2024-03-31")
>>> ds = xr.Dataset({"t": ("time", np.arange(91.0))}, {"time": time})
>>> root = ds.zellige.write({}, chunks={"time": "month"})
>>> xr.open_dataset(root, engine=zellige.xarray.ZelligeBackend, chunks={}).chunks["time"]
(31, 29, 31)
"""

from __future__ import annotations

from typing import Any

try:
    import xarray as xr
except ImportError as error:
    raise ImportError("zellige.xarray needs xarray: pip install 'zellige[xarray]'") from error

from zellige.xarray.backend import ZelligeBackend
from zellige.xarray.writer import write

__all__ = ["ZelligeAccessor", "ZelligeBackend", "write"]


@xr.register_datatree_accessor("zellige")
@xr.register_dataarray_accessor("zellige")
@xr.register_dataset_accessor("zellige")
class ZelligeAccessor:
    """`ds.zellige`, for datasets, data arrays and trees."""

    def __init__(self, data: xr.Dataset | xr.DataArray | xr.DataTree) -> None:
        self._data = data

    def write(self, store: Any, **options: Any) -> Any:
        """Write this to a store, and return the group. Parameters: see `zellige.xarray.write`."""
        return write(self._data, store, **options)
