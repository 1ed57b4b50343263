"""Every name of xarray that it does not promise to keep, in one place.

What its own Zarr engine does to attributes, strings and fill values is taken from there, so that both engines read
the same from one store, and write the same to it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from xarray.backends import zarr as engine
from xarray.coding.strings import check_vlen_dtype, create_vlen_dtype
from xarray.conventions import decode_cf_variables
from xarray.conventions import encode_dataset_coordinates as encode_dataset_coordinates
from xarray.core import indexing
from xarray.core.common import contains_cftime_datetimes

import xarray as xr

LazilyIndexedArray = indexing.LazilyIndexedArray
FillValueCoder = engine.FillValueCoder
"""Turns the attribute `_FillValue` into JSON and back, in Zarr format 3."""
encode_attribute = engine.encode_zarr_attr_value
holds_cftime = contains_cftime_datetimes

_VECTORIZED = indexing.IndexingSupport.VECTORIZED
_TAKES_FORMAT = "zarr_format" in inspect.signature(engine.encode_zarr_variable).parameters
_KEEPS_STRINGS = hasattr(engine.ZarrArrayWrapper, "_preserve_string_dtype")


def in_memory_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which this version of xarray holds elements; older ones know strings as objects only."""
    if dtype.kind == "T" and not _KEEPS_STRINGS:
        return create_vlen_dtype(str)
    return dtype


def is_string(dtype: np.dtype[Any]) -> bool:
    """Whether a type is that of strings of any length."""
    return dtype.kind == "T" or vlen_type(dtype) is str


def vlen_type(dtype: np.dtype[Any]) -> type | None:
    """What objects are that have any length, `str` or `bytes`; None for other types, and objects that do not say."""
    found: type | None = check_vlen_dtype(dtype)
    return found


def decode_variable(variable: xr.Variable, name: str) -> xr.Variable:
    """A stored variable with CF conventions decoded, whose encoding says how to encode others as it is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*decode_timedelta", FutureWarning)  # both ways encode the same
        return decode_cf_variables({name: variable}, {}, decode_times=decode_no_times({name: variable}))[0][name]


def decode_no_times(variables: Mapping[Any, xr.Variable]) -> Any:
    """What to give as `decode_times`: times without rows, which xarray cannot decode by itself in other calendars."""
    standard = (None, "standard", "gregorian", "proleptic_gregorian")
    empty = [name for name, v in variables.items() if not v.size and v.attrs.get("calendar") not in standard]
    return dict.fromkeys(empty, xr.coders.CFDatetimeCoder(use_cftime=True)) or True


def encode_variable(variable: Any, name: str, zarr_format: int) -> Any:
    """A variable as it is stored: CF conventions applied, their parts as attributes."""
    options = {"zarr_format": zarr_format} if _TAKES_FORMAT else {}
    return engine.encode_zarr_variable(variable, name=name, **options)


def read_indexed(array: Any, key: Any) -> Any:
    """What xarray's index means for an array that has `oindex` and `vindex`."""
    way = {indexing.VectorizedIndexer: "vindex", indexing.OuterIndexer: "oindex"}.get(type(key))
    method = (array if way is None else getattr(array, way)).__getitem__
    return indexing.explicit_indexing_adapter(key, array.shape, _VECTORIZED, method)
