"""What a write will do, variable by variable, decided and checked before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

import xarray as xr
from zellige import Array, errors
from zellige.xarray import compat, packing, text
from zellige.xarray.backend import RULES, check_lengths, name_dimensions, stored_variable
from zellige.xarray.calendar import Cut, Ends, Rule, fine_enough, resolve_chunks
from zellige.xarray.encoding import array_metadata, encoded_attributes

_CODED = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "dtype", "_Unsigned")
"""The attributes that say what stored numbers mean; what is added later must agree with them."""


@dataclass
class Step:
    """One variable and what becomes of it: a new array, a longer one, or other values in the one that is there."""

    path: str
    """The path of the array, below the group that is written to."""
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
    def growth(self) -> tuple[Array, int, int, list[int] | None]:
        """The array that grows, by how much, along which axis, and how that is cut."""
        assert self.array is not None and self.axis is not None  # noqa: PT018
        return self.array, self.variable.shape[self.axis], self.axis, self.edges

    @property
    def in_place(self) -> bool:
        """Whether values are replaced that readers see already."""
        return self.metadata is None and self.axis is None


@dataclass(frozen=True)
class There:
    """A group that is there: its attributes and its arrays."""

    attributes: Mapping[str, Any]
    arrays: Mapping[str, Array]


@dataclass
class Plan:
    """One dataset and the group that it goes to."""

    attributes: dict[str, Any]
    steps: list[Step]
    is_new: bool
    """Whether the group is created."""

    @property
    def changes_metadata(self) -> bool:
        """Whether anything is created or grows."""
        return self.is_new or any(not step.in_place for step in self.steps)


@dataclass(frozen=True)
class Wishes:
    """What the user says about a write."""

    mode: str
    zarr_format: Any
    encoding: Mapping[Any, Mapping[str, Any]]
    chunks: Any = None
    append_dim: Any = None
    region: Any = None
    write_empty_chunks: bool | None = None
    casting: Literal["same_value", "unsafe"] = "same_value"
    inherited: xr.Dataset | None = None
    """The dataset with the coordinates that it inherits from the groups above it in a tree."""


def plan_dataset(ds: xr.Dataset, path: str, there: There | None, wishes: Wishes, above: Sequence[There] = ()) -> Plan:
    """What is to be done to write a dataset to a group; everything about it is checked.

    Parameters
    ----------
    ds
        The dataset.
    path
        The path of its group, below the group that is written to.
    there
        The group that is there; None for one that is created.
    wishes
        What the user says.
    above
        The groups above that are there, the nearest first; a dataset inherits their coordinates.
    """
    check_names(ds)
    arrays = {} if there is None else there.arrays
    stored = Stored(arrays)
    check_lengths(path, stored.dimensions, arrays)
    region = None
    if wishes.region is not None:
        region = _resolve_region(ds, wishes.region, stored)
        ds = ds.drop_vars(list(ds.indexes))  # they are what the region was found by
    variables, attributes = compat.encode_dataset_coordinates(ds)
    _check_encoding(wishes, variables, arrays)
    if wishes.append_dim is not None:
        _check_append(ds, wishes, stored, variables)
    rules_there = {} if there is None or region is not None else stored_rules(there.attributes)
    whole = ds if wishes.inherited is None else wishes.inherited
    kept = {dim: rule for dim, rule in rules_there.items() if dim in whole.indexes}
    indexes = {}
    if kept or wishes.chunks is not None:
        holders = [stored, *(Stored(group.arrays) for group in above)] if stored.arrays else []
        indexes = next(filter(None, (holder.index_of(wishes.append_dim) for holder in holders)), {})
    cuts, rules = resolve_chunks(whole, wishes.chunks, indexes, kept)
    growing = {*rules, wishes.append_dim}
    steps = []
    for name, variable in variables.items():
        if name in arrays:
            step = stored.step(name, variable, wishes, region, cuts)
        elif wishes.mode == "r+":
            raise ValueError(f"variable {name!r} is not in the store, and mode 'r+' adds none; use mode='a' to add it")
        elif region is not None:
            step = stored.new_in_region(name, variable, wishes, region)
        else:
            step = _new(name, variable, wishes, cuts, growing, rules=rules)
        steps += [] if step is None else [step]
    _check_fit(steps, stored)
    steps = [replace(step, path=join(path, step.path)) for step in steps]
    found = encoded_attributes({k: v for k, v in attributes.items() if k != RULES}, f"group {'/' + path!r}")
    if not rules.items() <= rules_there.items():
        found[RULES] = {str(dim): rule.to_json() for dim, rule in (rules_there | rules).items()}
    if there is not None and found.items() <= dict(there.attributes).items():
        found = {}
    return Plan(found, steps, there is None)


def stored_rules(attributes: Mapping[str, Any]) -> dict[Any, Rule]:
    """The calendar rules that a group was written with."""
    found = attributes.get(RULES)
    parsed = {dim: Rule.parse(rule) for dim, rule in found.items()} if isinstance(found, dict) else {}
    return {dim: rule for dim, rule in parsed.items() if rule is not None}


def join(*parts: str) -> str:
    """A path of those parts that are not empty."""
    return "/".join(part for part in parts if part)


def check_names(ds: xr.Dataset) -> None:
    """Names of variables become names of arrays."""
    for name in ds.variables:
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(f"variable {name!r}: names must be strings, not empty and without '/', to be stored")


def _check_fit(steps: Iterable[Step], stored: Stored) -> None:
    """Refuse new arrays with which the dataset would not open any more."""
    new = {step.path: step for step in steps if step.metadata is not None}
    for name, step in new.items():
        for dim, length in zip(step.variable.dims, step.metadata.shape, strict=True):
            if stored.sizes.get(dim, length) != length:
                others = [other for other, dims in stored.dimensions.items() if dim in dims]
                raise errors.DatasetError(
                    f"variable {name!r} is new and has {length} elements along {dim!r}, where stored variables have "
                    f"{stored.sizes[dim]} ({', '.join(others)}), and no dataset opens with both. Nothing was written; "
                    f"make it as long, make the stored ones longer first (append_dim={dim!r}), or give the dimension "
                    "another name",
                    dimension=str(dim),
                    lengths={stored.sizes[dim]: others, length: [name]},
                )
    dimensions = {**stored.dimensions, **{name: step.variable.dims for name, step in new.items()}}
    for name in (name for name, dims in dimensions.items() if not dims):
        for other in (other for other, dims in dimensions.items() if name in dims and (name in new or other in new)):
            raise ValueError(
                f"variable {name!r} has no dimensions, and has the name of a dimension of {other}: xarray opens no "
                "dataset with both. Nothing was written; rename one of them"
            )


def _check_encoding(wishes: Wishes, variables: Iterable[Any], arrays: Iterable[str]) -> None:
    for name in wishes.encoding:
        if name not in variables:
            raise ValueError(f"encoding: there is no variable {name!r} in the dataset")
        if name in arrays:
            raise ValueError(f"encoding: {name!r} is stored already, and keeps its encoding; leave it out")
        errors.as_mapping(wishes.encoding[name] or {}, f"encoding[{name!r}]")


def _new(
    name: str,
    variable: xr.Variable,
    wishes: Wishes,
    cuts: Mapping[Any, Cut],
    growing: Collection[Any] = (),
    shape: Sequence[int] | None = None,
    rules: Mapping[Any, Rule] | None = None,
) -> Step:
    """A new array. Along dimensions that are `growing` more will be appended; `shape` is that of one filled in part."""
    given = wishes.encoding.get(name)
    if given is not None:
        variable = variable.copy(deep=False)
        variable.encoding = dict(given)
    variable = text.check_fill(variable, name, wishes.zarr_format, explicit=given is not None)
    encoded = packing.encode(variable, name, wishes.zarr_format, wishes.casting)
    units = _units_to_grow(variable, encoded, rules or {})
    if units is not None:
        variable = variable.copy(deep=False)
        variable.encoding = {**variable.encoding, "units": units}
        encoded = packing.encode(variable, name, wishes.zarr_format, wishes.casting)
    metadata = array_metadata(
        encoded if shape is None else _of_shape(encoded, shape),
        name,
        cuts,
        explicit=given is not None,
        zarr_format=wishes.zarr_format,
        growing=growing,
    )
    empty = wishes.write_empty_chunks
    empty = encoded.encoding.get("write_empty_chunks") if empty is None else empty
    return Step(name, encoded, metadata, config=None if empty is None else {"write_empty_chunks": empty})


def _units_to_grow(variable: xr.Variable, encoded: xr.Variable, rules: Mapping[Any, Rule]) -> str | None:
    """Units of time that hold what is appended later, where those that xarray takes from the values do not.

    Those of one time alone are days. A rule tells the step of what is to come; else seconds are fine enough for most.
    """
    found = encoded.attrs.get("units")
    is_time = variable.dtype.kind in "mM" or "calendar" in encoded.attrs
    chosen_by_user = "units" in variable.encoding or "units" in variable.attrs
    if not is_time or not isinstance(found, str) or chosen_by_user or variable.chunks is not None:
        return None
    step = next((rule.step for dim, rule in rules.items() if dim in variable.dims and rule.step is not None), None)
    short = np.dtype(variable.encoding.get("dtype", np.int64)).itemsize < 8  # seconds would leave its range soon
    if step is None and (variable.size > 1 or not variable.ndim or short):
        return None
    units = fine_enough(found, step)
    return None if units == found else units


def _of_shape(variable: xr.Variable, shape: Sequence[int]) -> xr.Variable:
    """A variable with the same attributes and encoding, whose values take no memory."""
    return xr.Variable(
        variable.dims, np.broadcast_to(np.empty((), variable.dtype), shape), variable.attrs, variable.encoding
    )


# -- what is there --------------------------------------------------------------------------------


class Stored:
    """The arrays of a group as variables."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self.dimensions = name_dimensions(arrays)
        self.sizes = {
            dim: size
            for name, array in arrays.items()
            for dim, size in zip(self.dimensions[name], array.shape, strict=True)
        }

    def index_of(self, dim: Any) -> dict[Any, pd.Index]:
        """The stored coordinate of a dimension, by its name; empty if there is none."""
        has = dim in self.arrays and self.dimensions[dim] == (dim,)
        return {dim: self.decoded(dim).to_index()} if has else {}

    def new_in_region(self, name: str, variable: xr.Variable, wishes: Wishes, region: Mapping[Any, slice]) -> Step:
        """A new array as long, and cut, as those that are there; a region of it is written."""
        if unknown := [dim for dim in variable.dims if dim in region and dim not in self.sizes]:
            raise ValueError(
                f"variable {name!r} is not in the store, nor is any with its dimension {unknown[0]!r}, so that the "
                "region does not tell how long it is; write it without a region first"
            )
        cuts = {dim: self._cut_of(dim) for dim in variable.dims if dim in self.sizes}
        shape = [self.sizes.get(dim, size) for dim, size in variable.sizes.items()]
        step = _new(name, variable, wishes, cuts, shape=shape)
        places = tuple(region.get(dim, slice(None)) for dim in variable.dims)
        self._check_region(name, step.variable, places, shape)
        return replace(step, region=places)

    def _cut_of(self, dim: Any) -> Cut:
        """How the first array that has a dimension cuts it."""
        name = next(name for name, dims in self.dimensions.items() if dim in dims)
        chunks = self.arrays[name].grid.axes[self.dimensions[name].index(dim)].declared
        return chunks if isinstance(chunks, int) else list(chunks)

    @staticmethod
    def _check_region(name: str, variable: xr.Variable, places: Sequence[slice], shape: Sequence[int]) -> None:
        lengths = [len(range(*place.indices(n))) for place, n in zip(places, shape, strict=True)]
        _check_sizes(name, variable, dict(zip(variable.dims, lengths, strict=True)))

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
        cuts: Mapping[Any, Cut],
    ) -> Step | None:
        """What to do with a variable whose array is there; None if it stays as it is."""
        array, dims = self.arrays[name], self.dimensions[name]
        if wishes.mode == "a-" and wishes.append_dim is not None and wishes.append_dim not in dims:
            return None
        encoded = self._encoded(name, variable, wishes)
        if set(encoded.dims) != set(dims):
            raise ValueError(f"variable {name!r} has the dimensions {encoded.dims}, the stored one has {dims}")
        encoded = encoded.transpose(*dims)
        empty = wishes.write_empty_chunks
        settings = None if empty is None else {"write_empty_chunks": empty}
        if wishes.append_dim in dims:
            axis = dims.index(wishes.append_dim)
            _check_sizes(
                name, encoded, {d: n for d, n in zip(dims, array.shape, strict=True) if d != wishes.append_dim}
            )
            asked = wishes.chunks is not None and (
                not isinstance(wishes.chunks, Mapping) or wishes.chunks.get(wishes.append_dim) is not None
            )
            edges = _new_edges(name, encoded, array, axis, cuts, asked=asked)
            return Step(name, encoded, array=array, axis=axis, edges=edges, config=settings)
        places = tuple((region or {}).get(dim, slice(None)) for dim in dims)
        self._check_region(name, encoded, places, array.shape)
        if wishes.append_dim is not None and variable.chunks is None:
            if _same(np.asarray(encoded.data), array[...]):
                return None
            if variable.dims == (name,):
                raise ValueError(f"coordinate {name!r} differs from the stored one; align the dataset, or drop it")
        return Step(name, encoded, array=array, region=places, config=settings)

    def _encoded(self, name: str, variable: xr.Variable, wishes: Wishes) -> Any:
        """Values encoded exactly as the stored ones are."""
        new, raw = variable.copy(deep=False), self.raw(name)
        is_text = _check_kind(name, variable, raw.dtype)
        new.encoding = dict(self.decoded(name).encoding)
        # Given as an attribute, too, they would be there twice, which xarray refuses even if both say the same.
        new.attrs = {
            key: value
            for key, value in variable.attrs.items()
            if key not in ("_FillValue", "missing_value") or not _same(value, new.encoding.get(key))
        }
        is_fixed = raw.dtype.kind in "SU"
        if is_fixed:
            new.encoding.pop("dtype", None)  # xarray would cut strings that do not fit
        with warnings.catch_warnings():
            # xarray takes other units then, and such times are refused below.
            warnings.filterwarnings("ignore", "Times can't be serialized faithfully", UserWarning)
            encoded = packing.encode(new, name, wishes.zarr_format, wishes.casting, as_text=is_text)
        if is_fixed and encoded.chunks is None:
            if wishes.casting != "unsafe":
                text.check_ends(encoded, name)
            encoded = text.as_fixed(encoded, name, raw.dtype)
        for key in _CODED:
            if not _same(_meaning(encoded.attrs.get(key)), _meaning(raw.attrs.get(key))):
                found, stored = encoded.attrs.get(key), raw.attrs.get(key)
                raise ValueError(
                    f"variable {name!r} cannot be encoded as the stored one: {key} would be {found!r}, it is "
                    f"{stored!r}{_remedy(name, key, found, raw, is_time=_is_time(variable))}"
                )
        if not _holds(raw.dtype, encoded):
            raise ValueError(
                f"variable {name!r} has the type {encoded.dtype} and values that do not fit the stored one, {raw.dtype}"
            )
        return encoded


def _check_kind(name: str, variable: xr.Variable, stored: np.dtype[Any]) -> bool:
    """Refuse text for stored numbers, and anything else for stored text; returns whether text is stored."""
    expected = stored.kind in "SUT" or compat.is_string(stored)
    if stored.kind == "O" and not expected:
        return False
    found = variable.dtype.kind in "SUT" or compat.is_string(variable.dtype)
    if variable.dtype.kind == "O" and not found:
        # Objects say by their values what they are; None, NaN and the blocks of dask do not.
        values: Any = [] if variable.chunks is not None else np.ravel(variable.values)
        kind = pd.api.types.infer_dtype(values, skipna=True)
        found = kind in ("string", "bytes") if kind in ("string", "bytes", "integer", "floating") else expected
    if found != expected:
        raise TypeError(
            f"variable {name!r} holds {'' if found else 'no '}text ({variable.dtype}), the stored one is of type "
            f"{stored}; convert the values with astype, or give the variable another name"
        )
    return expected


def _remedy(name: str, key: str, found: Any, raw: xr.Variable, *, is_time: bool) -> str:
    """What to do about values that need other attributes than the stored ones have."""
    if key != "units" or not isinstance(found, str) or not isinstance(raw.attrs.get(key), str):
        return "; encode the values alike, or write the dataset anew"
    unit, since, origin = found.partition(" since ")
    if not is_time:
        return f"; convert the values to {raw.attrs[key]!r} and set that attribute, or write the dataset anew"
    return (
        f". The stored units are of {raw.dtype} and do not hold these times exactly; write the dataset anew with "
        f"encoding={{{name!r}: {{'units': '{unit}{since}{origin}'}}}}, or round the times"
    )


def _is_time(variable: xr.Variable) -> bool:
    return variable.dtype.kind in "mM" or compat.holds_cftime(variable)


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
    """Whether encoded values fit into a stored type as they are."""
    new = variable.dtype
    if compat.is_string(stored):
        return compat.is_string(new) or new.kind == "U"
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


def _check_append(ds: xr.Dataset, wishes: Wishes, stored: Stored, variables: Mapping[Any, xr.Variable]) -> None:
    dim = wishes.append_dim
    if not stored.arrays or (dim not in ds.sizes and dim not in stored.sizes):
        return  # the first of many appends creates; another group of a tree may not have the dimension
    if dim in ds.sizes and dim not in stored.sizes:
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
    name: str, variable: xr.Variable, array: Array, axis: int, cuts: Mapping[Any, Cut], *, asked: bool
) -> list[int] | None:
    """How appended values are cut: as the user or a kept rule says, or as dask or one block on an axis with edges.

    A regular axis stays regular unless the user says otherwise, for the sake of other readers; the size that it has
    says nothing else, so that every append may repeat it. Where the last stored
    chunk reaches beyond the end, the new values fill it first: a chunk is stored with its full size, and readers would
    fail if it were written with another one before they see the new grid. If the user has `asked` for other chunks in
    this write, a warning says so.
    """
    dim, length = variable.dims[axis], variable.shape[axis]
    cut = None if variable.dims == (name,) else cuts.get(dim)
    asked = asked and cut is not None
    stored, reach = array.grid.axes[axis].declared, _reach(array, axis)
    room = reach - array.shape[axis]
    if isinstance(stored, int) and cut in (None, stored):
        return None
    if cut is None or cut == "auto":
        cut = [length] if variable.chunks is None else list(variable.chunks[axis])
    if isinstance(cut, int):  # of the chunks after the last stored one
        left, moves = max(0, length - room), room % cut > 0
        cut = Ends(tuple(reach + end for end in (*range(cut, left, cut), *[left] * bool(left))))
    else:
        if not isinstance(cut, Ends):
            cut = Ends(tuple(array.shape[axis] + int(end) for end in np.cumsum(cut)))
        moves = room > 0 and reach not in cut.ends
    if asked and moves:
        warnings.warn(
            f"the last stored chunk of {name!r} has room for {room} more along {dim!r}, which the new values fill; "
            "the chunks that you ask for follow after it",
            errors.ZelligeWarning,
            stacklevel=2,
        )
    edges = cut.after(reach)
    return None if all(edge == stored for edge in edges) else edges


def _reach(array: Array, axis: int) -> int:
    """Where the last stored chunk of an axis ends, at or beyond the end of the axis."""
    dimension = array.grid.axes[axis]
    chunks = dimension.declared
    return dimension.nchunks * chunks if isinstance(chunks, int) else sum(chunks)


# -- regions --------------------------------------------------------------------------------------


def _resolve_region(ds: xr.Dataset, region: Any, stored: Stored) -> dict[Any, slice]:
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
        ends = (place.start, place.stop) if isinstance(place, slice) and place.step in (None, 1) else ("",)
        if not all(end is None or isinstance(end, int | np.integer) for end in ends):
            raise ValueError(f"region: {dim!r} must be a slice without a step, of integers, or 'auto', found {place!r}")
    outside = [name for name, v in ds.variables.items() if name not in ds.indexes and not set(found) & set(v.dims)]
    if outside:
        raise ValueError(f"variables {outside} have no dimension of region={region!r}; drop them, or write them alone")
    return found


def _auto(ds: xr.Dataset, dim: Any, stored: Stored) -> slice:
    if dim not in ds.indexes or dim not in stored.arrays:
        return slice(0, ds.sizes[dim])
    index = pd.Index(stored.decoded(dim).values)
    twice = ds.indexes[dim][ds.indexes[dim].isin(index[index.duplicated()])]
    if len(twice):
        raise ValueError(
            f"region: {twice[0]} is in the stored coordinate {dim!r} more than once, so that its place is not known; "
            f"give a slice, such as region={{{dim!r}: slice(0, {ds.sizes[dim]})}}, without the coordinate"
        )
    places = index.get_indexer_for(ds.indexes[dim])
    if (places < 0).any():
        first = ds.indexes[dim][int((places < 0).argmax())]
        raise ValueError(
            f"region: {int((places < 0).sum())} values of {dim!r}, the first of them {first}, are not in the store, "
            "whose coordinates a region does not change; append them with append_dim=, or drop them"
        )
    if (np.diff(places) != 1).any():
        raise ValueError(f"region: the values of {dim!r} do not lie side by side in the store; write several regions")
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)
