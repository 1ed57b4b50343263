"""What a write will do, variable by variable, decided and checked before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from zellige import Array, Group, errors
from zellige.xarray import compat
from zellige.xarray.backend import name_dimensions, stored_variable
from zellige.xarray.calendar import resolve_chunks
from zellige.xarray.encoding import array_metadata

_CODED = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "dtype", "_Unsigned")
"""The attributes that say what stored numbers mean; what is added later must agree with them."""


@dataclass
class Step:
    """One variable and what becomes of it."""

    name: str
    variable: xr.Variable
    """Its encoded values."""
    metadata: Any = None
    """For a new array."""
    array: Array | None = None
    """The array that is there, if it is not new."""
    region: tuple[slice, ...] | None = None
    axis: int | None = None
    """The axis that is appended to, if any."""
    edges: list[int] | None = None
    """How the new region of that axis is cut; None leaves it to the array."""
    config: dict[str, Any] | None = None

    @property
    def target(self) -> Array:
        """The array, once it is there."""
        if self.array is None:
            raise RuntimeError(f"the array of {self.name!r} has not been created yet")
        return self.array


@dataclass
class Plan:
    """One dataset and the group that it goes to."""

    attributes: dict[str, Any]
    steps: list[Step]
    zarr_format: Any


@dataclass(frozen=True)
class Wishes:
    """What the user says about a write."""

    mode: str
    zarr_format: Any
    encoding: Mapping[Any, Mapping[str, Any]]
    chunks: Any = None
    append_dim: Any = None
    region: Any = None


def plan_dataset(ds: xr.Dataset, group: Group | None, wishes: Wishes) -> Plan:
    """What is to be done to write a dataset to a group, None for one that is created."""
    check_names(ds)
    arrays = dict(group.arrays()) if group is not None and wishes.mode != "w" else {}
    stored = _Stored(arrays)
    region = None
    if wishes.region is not None:
        region = _resolve_region(ds, wishes.region, stored)
        ds = ds.drop_vars(list(ds.indexes))  # they are what the region was found by
    chunks = resolve_chunks(ds, wishes.chunks)
    variables, attributes = compat.encode_dataset_coordinates(ds)
    _check_encoding(wishes, variables, arrays)
    if wishes.append_dim is not None:
        _check_append(ds, wishes, stored, variables)
    steps = []
    for name, variable in variables.items():
        if name in arrays:
            step = stored.step(name, variable, wishes, region, chunks)
            steps += [] if step is None else [step]
        elif wishes.mode == "r+" or region is not None:
            raise ValueError(
                f"variable {name!r} is not in the store, and mode {wishes.mode!r} with region={wishes.region!r} adds "
                "none; use mode='a' without a region to add it"
            )
        else:
            steps.append(_new(name, variable, wishes, chunks))
    return Plan({str(k): compat.encode_attribute(v) for k, v in attributes.items()}, steps, wishes.zarr_format)


def check_names(ds: xr.Dataset) -> None:
    """Names of variables become names of arrays."""
    for name in ds.variables:
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(f"variable {name!r}: names must be strings, not empty and without '/', to be stored")


def _check_encoding(wishes: Wishes, variables: Iterable[Any], arrays: Iterable[str]) -> None:
    for name in wishes.encoding:
        if name not in variables:
            raise ValueError(f"encoding: there is no variable {name!r} in the dataset")
        if name in arrays:
            raise ValueError(f"encoding: {name!r} is stored already, and keeps its encoding; leave it out")


def _new(name: str, variable: xr.Variable, wishes: Wishes, chunks: Mapping[Any, Any]) -> Step:
    given = wishes.encoding.get(name)
    if given is not None:
        variable = variable.copy(deep=False)
        variable.encoding = dict(given)
    encoded = compat.encode_variable(variable, name, wishes.zarr_format)
    metadata = array_metadata(encoded, name, chunks, explicit=given is not None, zarr_format=wishes.zarr_format)
    empty = encoded.encoding.get("write_empty_chunks")
    return Step(name, encoded, metadata, config=None if empty is None else {"write_empty_chunks": empty})


# -- what is there --------------------------------------------------------------------------------


class _Stored:
    """The arrays of a group as variables."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.dimensions = name_dimensions(arrays)
        self.sizes = {
            dim: size
            for name, array in arrays.items()
            for dim, size in zip(self.dimensions[name], array.shape, strict=True)
        }

    def raw(self, name: str) -> xr.Variable:
        """The variable of encoded values."""
        return stored_variable(self.arrays[name], self.dimensions[name])

    def decoded(self, name: str) -> xr.Variable:
        """The variable of decoded values."""
        return compat.decode_variable(self.raw(name), name)

    def step(
        self,
        name: str,
        variable: xr.Variable,
        wishes: Wishes,
        region: Mapping[Any, slice] | None,
        chunks: Mapping[Any, Any],
    ) -> Step | None:
        """What to do with a variable whose array is there; None if it stays as it is."""
        array, dims = self.arrays[name], self.dimensions[name]
        if wishes.mode == "a-" and wishes.append_dim is not None and wishes.append_dim not in dims:
            return None
        encoded = self._encoded(name, variable, wishes.zarr_format)
        if set(encoded.dims) != set(dims):
            raise ValueError(f"variable {name!r} has the dimensions {encoded.dims}, the stored one has {dims}")
        encoded = encoded.transpose(*dims)
        if wishes.append_dim in dims:
            axis = dims.index(wishes.append_dim)
            _check_sizes(
                name, encoded, {d: n for d, n in zip(dims, array.shape, strict=True) if d != wishes.append_dim}
            )
            return Step(name, encoded, array=array, axis=axis, edges=_new_edges(name, encoded, array, axis, chunks))
        places = tuple((region or {}).get(dim, slice(None)) for dim in dims)
        lengths = [len(range(*place.indices(n))) for place, n in zip(places, array.shape, strict=True)]
        _check_sizes(name, encoded, dict(zip(dims, lengths, strict=True)))
        if wishes.append_dim is not None and variable.chunks is None:
            if _same(np.asarray(encoded.data), array[...]):
                return None
            if variable.dims == (name,):
                raise ValueError(f"coordinate {name!r} differs from the stored one; align the dataset, or drop it")
        return Step(name, encoded, array=array, region=places)

    def _encoded(self, name: str, variable: xr.Variable, zarr_format: Any) -> Any:
        """Values encoded exactly as the stored ones are."""
        new, raw = variable.copy(deep=False), self.raw(name)
        new.encoding = dict(self.decoded(name).encoding)
        is_fixed, is_integer = raw.dtype.kind in "SU", raw.dtype.kind in "iu" and variable.dtype.kind in "iu"
        if is_fixed or is_integer:
            new.encoding.pop("dtype", None)  # xarray would cut strings and wrap integers that do not fit
        encoded = compat.encode_variable(new, name, zarr_format)
        if is_fixed and compat.is_string(encoded.dtype) and encoded.chunks is None:
            encoded = encoded.astype(str)
        for key in _CODED:
            if not _same(_meaning(encoded.attrs.get(key)), _meaning(raw.attrs.get(key))):
                raise ValueError(
                    f"variable {name!r} cannot be encoded as the stored one: {key} would be "
                    f"{encoded.attrs.get(key)!r}, it is {raw.attrs.get(key)!r}"
                )
        if not _holds(raw.dtype, encoded):
            raise ValueError(
                f"variable {name!r} has the type {encoded.dtype} and values that do not fit the stored one, {raw.dtype}"
            )
        return encoded


def _meaning(value: Any) -> Any:
    """An attribute so that two that mean the same are equal: units of time write their origin in many ways."""
    unit, since, origin = value.partition(" since ") if isinstance(value, str) else ("", "", "")
    if not since:
        return value
    try:
        return [unit, pd.Timestamp(origin).isoformat()]
    except ValueError:  # a date that only another calendar has
        return [unit, origin.removesuffix(" 00:00:00")]


def _holds(stored: np.dtype[Any], variable: xr.Variable) -> bool:
    """Whether encoded values fit into a stored type as they are; integers of dask are looked at as they are written."""
    new = variable.dtype
    if compat.is_string(stored):
        return compat.is_string(new) or new.kind == "U"
    if new.kind in "iu" and stored.kind in "iu" and not np.can_cast(new, stored):
        return variable.chunks is not None or bool((np.asarray(variable.data).astype(stored) == variable.data).all())
    return new == stored or (new.kind in "biuSU" and np.can_cast(new, stored))


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; NaN is equal to itself."""
    if one is None or other is None:
        return one is other
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "fcmM" and b.dtype.kind in "fcmM":
        return bool(np.array_equal(a, b, equal_nan=True))
    return bool(np.array_equal(a, b))


def _check_sizes(name: str, variable: xr.Variable, wanted: Mapping[Any, int]) -> None:
    for dim, size in wanted.items():
        if variable.sizes[dim] != size:
            raise ValueError(
                f"variable {name!r} has {variable.sizes[dim]} elements along {dim!r}, its place in the store has "
                f"{size}; only append_dim= makes an array longer, and region= writes to a part of it"
            )


# -- appending ------------------------------------------------------------------------------------


def _check_append(ds: xr.Dataset, wishes: Wishes, stored: _Stored, variables: Mapping[Any, xr.Variable]) -> None:
    dim = wishes.append_dim
    if dim not in ds.sizes:
        raise ValueError(f"append_dim={dim!r} is no dimension of the dataset; known: {', '.join(map(repr, ds.sizes))}")
    if not stored.arrays:
        return  # the first of many appends creates
    if dim not in stored.sizes:
        raise ValueError(f"append_dim={dim!r} is no stored dimension; known: {', '.join(map(repr, stored.sizes))}")
    left = [name for name, dims in stored.dimensions.items() if dim in dims and name not in variables]
    if left:
        raise ValueError(
            f"stored variables {left} have the dimension {dim!r}, and would be left shorter; append them too"
        )
    new = [name for name, variable in variables.items() if dim in variable.dims and name not in stored.arrays]
    if new:
        raise ValueError(f"variables {new} are not stored yet, and would be shorter along {dim!r} than those that are")


def _new_edges(
    name: str, variable: xr.Variable, array: Array, axis: int, chunks: Mapping[Any, Any]
) -> list[int] | None:
    """How appended values are cut: as the user says, or as dask or one whole block on an axis with edges.

    A regular axis stays regular unless the user says otherwise, for the sake of other readers. Where the last stored
    chunk reaches beyond the end, the new values fill it first: a chunk is stored with its full size, and readers would
    fail if it were written with another one before they see the new grid.
    """
    dim, length = variable.dims[axis], variable.shape[axis]
    cut = None if variable.dims == (name,) else chunks.get(dim)
    asked = cut is not None
    stored = array.grid.dimensions[axis].chunks
    if cut is None and isinstance(stored, int):
        return None
    if cut is None or cut == "auto":
        cut = [length] if variable.chunks is None else list(variable.chunks[axis])
    if isinstance(cut, int):
        cut = [cut] * (length // cut) + [length % cut]
    reach = _reach(array, axis) - array.shape[axis]
    if reach and asked:
        warnings.warn(
            f"the last stored chunk of {name!r} has room for {reach} more along {dim!r}, which the new values fill; "
            "the chunks that you ask for follow after it",
            errors.ZelligeWarning,
            stacklevel=2,
        )
    ends = [int(end) for end in np.cumsum(cut) if end > reach]
    edges = [b - a for a, b in zip([reach, *ends], ends, strict=False) if b > a]
    return edges or None


def _reach(array: Array, axis: int) -> int:
    """Where the last stored chunk of an axis ends, at or beyond the end of the axis."""
    dimension = array.grid.dimensions[axis]
    chunks = dimension.chunks
    return dimension.nchunks * chunks if isinstance(chunks, int) else sum(chunks)


# -- regions --------------------------------------------------------------------------------------


def _resolve_region(ds: xr.Dataset, region: Any, stored: _Stored) -> dict[Any, slice]:
    """A slice for each dimension that is named, found by coordinate values where it says `"auto"`."""
    given = dict.fromkeys(ds.dims, "auto") if isinstance(region, str) and region == "auto" else region
    if not isinstance(given, Mapping):
        raise TypeError(f"region={region!r} must be 'auto' or a dict from dimensions to slices or 'auto'")
    if unknown := [dim for dim in given if dim not in ds.sizes]:
        raise ValueError(f"region: there is no dimension {unknown[0]!r}; known: {', '.join(map(repr, ds.sizes))}")
    found: dict[Any, Any] = {
        dim: _auto(ds, dim, stored) if isinstance(v, str) and v == "auto" else v for dim, v in given.items()
    }
    for dim, place in found.items():
        if not isinstance(place, slice) or place.step not in (None, 1):
            raise ValueError(f"region: {dim!r} must be a slice without a step or 'auto', found {place!r}")
    outside = [name for name, v in ds.variables.items() if name not in ds.indexes and not set(found) & set(v.dims)]
    if outside:
        raise ValueError(f"variables {outside} have no dimension of region={region!r}; drop them, or write them alone")
    return found


def _auto(ds: xr.Dataset, dim: Any, stored: _Stored) -> slice:
    if dim not in ds.indexes or dim not in stored.arrays:
        return slice(0, ds.sizes[dim])
    places = pd.Index(stored.decoded(dim).values).get_indexer(ds.indexes[dim])
    if (places < 0).any():
        raise KeyError(
            f"region: some values of {dim!r} are not in the store, whose coordinates a region does not change"
        )
    if (np.diff(places) != 1).any():
        raise ValueError(f"region: the values of {dim!r} do not lie side by side in the store; write several regions")
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)
