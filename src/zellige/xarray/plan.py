"""What a write will do, variable by variable, decided and checked before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

import xarray as xr
from zellige import Array, Group, create_group, errors, open_group, storage
from zellige.xarray import compat
from zellige.xarray.backend import RULES, arrays_by_group, check_lengths, name_dimensions, stored_variable
from zellige.xarray.calendar import Cut, Ends, Rule, fine_enough, resolve_chunks
from zellige.xarray.encoding import (
    CONVENTIONS,
    Casting,
    array_metadata,
    as_fixed,
    check_ends,
    check_fill,
    encode,
    encoded_attributes,
)


@dataclass(frozen=True)
class Step:
    """One variable and what becomes of it: a new array, a longer one, or other values in the one that is there."""

    path: str
    """The path of the array, below the group that is written to."""
    variable: xr.Variable
    """Its encoded values."""
    metadata: Any = None
    """For a new array."""
    array: Array | None = None
    """The array that is there, or is made for this."""
    region: tuple[slice, ...] | None = None
    axis: int | None = None
    """The axis that is appended to, if any."""
    edges: list[int] | None = None
    """How the new region of that axis is cut; None leaves it to the array."""
    config: dict[str, Any] | None = None

    @property
    def in_place(self) -> bool:
        """Whether values are replaced that readers see already."""
        return self.metadata is None and self.axis is None

    @property
    def of_dask(self) -> bool:
        """Whether the values are blocks of dask; others are in memory, or are read on access."""
        return self.variable.chunks is not None

    @property
    def values(self) -> Any:
        """The values, read if they are not in memory."""
        return np.asarray(self.variable.data)

    def into(self, array: Array) -> Step:
        """The same step into an array that was created for it, or is longer than the stored one."""
        region = self.region
        if self.axis is not None:
            end, length = array.shape[self.axis], self.variable.shape[self.axis]
            region = tuple(slice(end - length, end) if k == self.axis else slice(None) for k in range(array.ndim))
        return replace(self, array=array, region=region)

    @property
    def target(self) -> Array:
        """The array, with the settings of this write."""
        assert self.array is not None
        return self.array if self.config is None else self.array.with_config(self.config)


@dataclass(frozen=True)
class Plan:
    """One dataset and the group that it goes to."""

    attributes: dict[str, Any]
    """Those that the group gets, beside others that are there."""
    steps: list[Step]
    metadata: Any = None
    """Of the group, if it is created."""

    @property
    def changes_metadata(self) -> bool:
        """Whether anything is created or grows."""
        return self.metadata is not None or any(not step.in_place for step in self.steps)


@dataclass(frozen=True)
class Options:
    """What the user says about a write of one dataset, or of all those of a tree."""

    mode: str
    zarr_format: Any
    append_dim: Any
    region: Any
    write_empty_chunks: bool | None
    casting: Casting


@dataclass(frozen=True)
class Source:
    """A dataset to be written, and what the user says about it alone."""

    ds: xr.Dataset
    encoding: Mapping[Any, Mapping[str, Any]]
    chunks: Any
    """What `chunks=` says about its dimensions."""
    inherited: xr.Dataset | None = None
    """The dataset with the coordinates that it inherits from the groups above it in a tree."""

    def cuts(self, dim: Any) -> bool:
        """Whether the user says how a dimension is cut."""
        given = self.chunks.get(dim) if isinstance(self.chunks, Mapping) else self.chunks
        return given is not None


def plan_dataset(source: Source, path: str, stored: Stored, options: Options, above: Sequence[Stored]) -> Plan:
    """Return what is to be done to write a dataset to a group; everything about it is checked.

    `above` are the groups above it, the nearest first: a dataset inherits their coordinates.
    """
    check_names(ds := source.ds)
    check_lengths(path, stored.arrays)
    region = None
    if options.region is not None:
        region = _resolve_region(ds, options.region, stored)
        ds = ds.drop_vars(list(ds.indexes))  # they are what the region was found by
    variables, attributes = compat.encode_dataset_coordinates(ds)
    _check_encoding(source.encoding, variables, stored.arrays)
    if options.append_dim is not None:
        _check_append(ds, options, stored, variables)
    whole = ds if source.inherited is None else source.inherited
    rules_there = {} if region is not None else _stored_rules(stored.attributes)
    kept = {dim: rule for dim, rule in rules_there.items() if dim in whole.indexes}
    indexes = {}
    if kept or source.chunks is not None:
        holders = [stored, *above] if stored.arrays else []
        indexes = next(filter(None, (holder.index_of(options.append_dim) for holder in holders)), {})
    cuts, rules = resolve_chunks(whole, source.chunks, indexes, kept)
    steps = []
    for name, variable in variables.items():
        if name in stored.arrays:
            step = stored.step(name, variable, options, region, cuts, asked=source.cuts(options.append_dim))
        elif options.mode == "r+":
            raise ValueError(f"variable {name!r} is not in the store, and mode 'r+' adds none; use mode='a' to add it")
        elif region is not None:
            step = stored.new_in_region(name, variable, source.encoding.get(name), options, region)
        else:
            step = _new(name, variable, source.encoding.get(name), options, cuts, rules)
        steps += [] if step is None else [step]
    _check_fit(steps, stored)
    steps = [replace(step, path=join(path, step.path)) for step in steps]
    found = encoded_attributes({k: v for k, v in attributes.items() if k != RULES}, f"group {'/' + path!r}")
    if not rules.items() <= rules_there.items():
        found[RULES] = {str(dim): rule.to_json() for dim, rule in (rules_there | rules).items()}
    if not stored.exists:
        return Plan(found, steps, create_group(attributes=found, zarr_format=options.zarr_format).metadata)
    return Plan({} if found.items() <= stored.attributes.items() else found, steps)


def _stored_rules(attributes: Mapping[str, Any]) -> dict[Any, Rule]:
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


def _check_encoding(encoding: Mapping[Any, Mapping[str, Any]], variables: Iterable[Any], arrays: Iterable[str]) -> None:
    for name in encoding:
        if name not in variables:
            raise ValueError(f"encoding: there is no variable {name!r} in the dataset")
        if name in arrays:
            raise ValueError(f"encoding: {name!r} is stored already, and keeps its encoding; leave it out")
        errors.as_mapping(encoding[name] or {}, f"encoding[{name!r}]")


def _new(
    name: str,
    variable: xr.Variable,
    given: Mapping[str, Any] | None,
    options: Options,
    cuts: Mapping[Any, Cut],
    rules: Mapping[Any, Rule],
    shape: Sequence[int] | None = None,
) -> Step:
    """A new array, with the encoding that is `given` instead of its own.

    Along dimensions with a rule more will be appended; `shape` is that of an array that is filled in part.
    """
    if given is not None:
        variable = variable.copy(deep=False)
        variable.encoding = dict(given)
    variable = check_fill(variable, name, options.zarr_format, explicit=given is not None)
    encoded = encode(variable, name, options.zarr_format, options.casting)
    units = _units_to_grow(variable, encoded, rules)
    if units is not None:
        variable = variable.copy(deep=False)
        variable.encoding = {**variable.encoding, "units": units}
        encoded = encode(variable, name, options.zarr_format, options.casting)
    metadata = array_metadata(
        encoded if shape is None else _of_shape(encoded, shape),
        name,
        cuts,
        explicit=given is not None,
        zarr_format=options.zarr_format,
        growing={*rules, options.append_dim},
    )
    empty = options.write_empty_chunks
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
    """A group before a write: its attributes, and its arrays as variables. A group that is not there has neither."""

    def __init__(self, arrays: Mapping[str, Array], group: Group | None = None) -> None:
        self.arrays, self.exists = arrays, group is not None
        self.attributes: dict[str, Any] = {} if group is None else group.attrs.asdict()
        self.zarr_format = None if group is None else group.metadata.zarr_format

    @cached_property
    def dimensions(self) -> dict[str, tuple[str, ...]]:
        """The names of the axes of each array."""
        return name_dimensions(self.arrays)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The lengths of the dimensions."""
        named = ((self.dimensions[name], array.shape) for name, array in self.arrays.items())
        return {dim: size for dims, shape in named for dim, size in zip(dims, shape, strict=True)}

    def index_of(self, dim: Any) -> dict[Any, pd.Index]:
        """The stored coordinate of a dimension, by its name; empty if there is none."""
        has = dim in self.arrays and self.dimensions[dim] == (dim,)
        return {dim: self.decoded(dim).to_index()} if has else {}

    def new_in_region(
        self,
        name: str,
        variable: xr.Variable,
        given: Mapping[str, Any] | None,
        options: Options,
        region: Mapping[Any, slice],
    ) -> Step:
        """A new array as long, and cut, as those that are there; a region of it is written."""
        if unknown := [dim for dim in variable.dims if dim in region and dim not in self.sizes]:
            raise ValueError(
                f"variable {name!r} is not in the store, nor is any with its dimension {unknown[0]!r}, so that the "
                "region does not tell how long it is; write it without a region first"
            )
        cuts = {dim: self._cut_of(dim) for dim in variable.dims if dim in self.sizes}
        shape = [self.sizes.get(dim, size) for dim, size in variable.sizes.items()]
        step = _new(name, variable, given, options, cuts, {}, shape)
        places = tuple(region.get(dim, slice(None)) for dim in variable.dims)
        _check_region(name, step.variable, places, shape)
        return replace(step, region=places)

    def _cut_of(self, dim: Any) -> Cut:
        """How the first array that has a dimension cuts it."""
        name = next(name for name, dims in self.dimensions.items() if dim in dims)
        chunks = self.arrays[name].grid.axes[self.dimensions[name].index(dim)].declared
        return chunks if isinstance(chunks, int) else list(chunks)

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
        options: Options,
        region: Mapping[Any, slice] | None,
        cuts: Mapping[Any, Cut],
        *,
        asked: bool,
    ) -> Step | None:
        """What to do with a variable whose array is there; None if it stays as it is. For `asked` see `_new_edges`."""
        array, dims = self.arrays[name], self.dimensions[name]
        if options.mode == "a-" and options.append_dim is not None and options.append_dim not in dims:
            return None
        encoded = self._encoded(name, variable, options)
        if set(encoded.dims) != set(dims):
            raise ValueError(f"variable {name!r} has the dimensions {encoded.dims}, the stored one has {dims}")
        encoded = encoded.transpose(*dims)
        empty = options.write_empty_chunks
        settings = None if empty is None else {"write_empty_chunks": empty}
        if options.append_dim in dims:
            axis = dims.index(options.append_dim)
            kept = {dim: n for dim, n in zip(dims, array.shape, strict=True) if dim != options.append_dim}
            _check_sizes(name, encoded, kept)
            edges = _new_edges(name, encoded, array, axis, cuts, asked=asked)
            return Step(name, encoded, array=array, axis=axis, edges=edges, config=settings)
        places = tuple((region or {}).get(dim, slice(None)) for dim in dims)
        _check_region(name, encoded, places, array.shape)
        if options.append_dim is not None and variable.chunks is None:
            if _same(np.asarray(encoded.data), array[...]):
                return None
            if variable.dims == (name,):
                raise ValueError(f"coordinate {name!r} differs from the stored one; align the dataset, or drop it")
        return Step(name, encoded, array=array, region=places, config=settings)

    def _encoded(self, name: str, variable: xr.Variable, options: Options) -> Any:
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
            encoded = encode(new, name, options.zarr_format, options.casting, as_text=is_text)
        if is_fixed and encoded.chunks is None:
            if options.casting != "unsafe":
                check_ends(encoded, name)
            encoded = as_fixed(encoded, name, raw.dtype)
        for key in CONVENTIONS:
            if not _same(_meaning(encoded.attrs.get(key)), _meaning(raw.attrs.get(key))):
                found, stored = encoded.attrs.get(key), raw.attrs.get(key)
                raise ValueError(
                    f"variable {name!r} cannot be encoded as the stored one: {key} would be {found!r}, it is "
                    f"{stored!r}{_remedy(variable, name, key, found, raw)}"
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


def _remedy(variable: xr.Variable, name: str, key: str, found: Any, raw: xr.Variable) -> str:
    """What to do about values that need other attributes than the stored ones have."""
    if key != "units" or not isinstance(found, str) or not isinstance(raw.attrs.get(key), str):
        return "; encode the values alike, or write the dataset anew"
    if variable.dtype.kind not in "mM" and not compat.holds_cftime(variable):
        return f"; convert the values to {raw.attrs[key]!r} and set that attribute, or write the dataset anew"
    wanted = {name: {"units": found}}
    return (
        f". The stored units are of {raw.dtype} and do not hold these times exactly; write the dataset anew with "
        f"encoding={wanted}, or round the times"
    )


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
    may_be_missing = a.dtype.kind in "fcmM" and b.dtype.kind in "fcmM"
    return bool(np.array_equal(a, b, equal_nan=may_be_missing))


def _check_sizes(name: str, variable: xr.Variable, wanted: Mapping[Any, int]) -> None:
    for dim, size in wanted.items():
        if variable.sizes[dim] != size:
            raise ValueError(
                f"variable {name!r} has {variable.sizes[dim]} elements along {dim!r}, its place in the store has "
                f"{size}; only append_dim= makes an array longer, and region= writes to a part of it"
            )


def _check_region(name: str, variable: xr.Variable, places: Sequence[slice], shape: Sequence[int]) -> None:
    lengths = [len(range(*place.indices(n))) for place, n in zip(places, shape, strict=True)]
    _check_sizes(name, variable, dict(zip(variable.dims, lengths, strict=True)))


# -- appending ------------------------------------------------------------------------------------


def _check_append(ds: xr.Dataset, options: Options, stored: Stored, variables: Mapping[Any, xr.Variable]) -> None:
    dim = options.append_dim
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
    says nothing else, so that every append may repeat it. Where the last stored chunk reaches beyond the end, the new
    values fill it first: a chunk is stored with its full size, and readers would fail if it were written with another
    one before they see the new grid. If the user has `asked` for other chunks in this write, a warning says so.
    """
    dim, length = variable.dims[axis], variable.shape[axis]
    cut = None if variable.dims == (name,) else cuts.get(dim)
    asked = asked and cut is not None
    dimension = array.grid.axes[axis]
    stored = dimension.declared
    reach = dimension.nchunks * stored if isinstance(stored, int) else sum(stored)  # the end of the last stored chunk
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


@dataclass
class Extent:
    """How long the dimensions of one group are once a write is done."""

    stored: Stored
    """What is there before."""
    lengths: dict[Any, tuple[int, str]]
    """Of each dimension, with a variable that has it."""
    new: set[Any] = field(default_factory=set)
    """The dimensions of arrays that are created."""
    indexes: dict[Any, pd.Index] = field(default_factory=dict)
    """The coordinates of dimensions that are created."""

    @classmethod
    def of(cls, stored: Stored, plan: Plan | None = None, ds: xr.Dataset | None = None) -> Extent:
        """The extent of a group, after a write of a dataset to it if there is one."""
        lengths = {dim: (stored.sizes[dim], name) for name, dims in stored.dimensions.items() for dim in dims}
        found = cls(stored, lengths)
        for step in () if plan is None else plan.steps:
            name, dims = step.path.rpartition("/")[2], step.variable.dims
            if step.axis is not None:
                dim = dims[step.axis]
                lengths[dim] = stored.sizes[dim] + step.variable.shape[step.axis], name
            elif step.metadata is not None:
                lengths.update(zip(dims, ((n, name) for n in step.metadata.shape), strict=True))
                found.new.update(dims)
                if ds is not None and dims == (name,) and name in ds.indexes:
                    found.indexes[name] = ds.indexes[name]
        return found

    def index(self, dim: Any) -> pd.Index | None:
        """The coordinate of a dimension; None if there is none."""
        return self.indexes[dim] if dim in self.indexes else self.stored.index_of(dim).get(dim)


def check_tree(
    place: storage.StorePath,
    sources: Mapping[str, Source],
    there: Mapping[str, Stored],
    plans: Mapping[str, Plan],
) -> None:
    """Refuse new arrays with which groups above and below would not open as one tree.

    Arrays that only grow are not looked at: the groups of a tree may be appended to one after the other.
    """
    if not any(step.metadata is not None and step.variable.dims for plan in plans.values() for step in plan.steps):
        return
    extents = {join(place.path, path): Extent.of(found, plans[path], sources[path].ds) for path, found in there.items()}
    others = dict(_arrays_above(place))
    if any(found.exists for found in there.values()):  # else there is nothing below, or it is removed
        members = open_group(place, mode="r").members(max_depth=None)
        others |= arrays_by_group((join(place.path, path), member) for path, member in members)
    extents |= {path: Extent.of(Stored(arrays)) for path, arrays in others.items() if path not in extents}
    for path, extent in extents.items():
        for above in parents(path):
            if above in extents:
                _check_pair(path, extent, above, extents[above])


def parents(path: str) -> list[str]:
    """The paths of the groups above one, from the root downwards."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:count]) for count in range(len(parts))]


def _arrays_above(place: storage.StorePath) -> Iterator[tuple[str, dict[str, Array]]]:
    """The arrays of the groups above a place; the consolidated metadata of the root may tell all of them."""
    found: Group | None = None
    for path in parents(place.path):
        try:
            if found is None:
                found = open_group(storage.StorePath(place.store, path), mode="r")
            else:
                found = found.get_group(path.rpartition("/")[2])
        except errors.ZelligeError:  # there is no group; creating one names what is there instead
            found = None
        else:
            yield path, dict(found.arrays())


def _check_pair(path: str, extent: Extent, above: str, outer: Extent) -> None:
    """Refuse a group that is not aligned with one above it, if arrays are created in one of them."""
    for dim in [dim for dim in extent.lengths if dim in outer.lengths and dim in extent.new | outer.new]:
        (mine, name), (theirs, other) = extent.lengths[dim], outer.lengths[dim]
        elsewhere = f"a group that is not below '/{above}'" if above else "another store"
        remedy = f"Nothing was written; give the dimension another name in one of them, or write to {elsewhere}"
        if mine != theirs:
            raise errors.DatasetError(
                f"variable {name!r} of group '/{path}' has {mine} elements along {dim!r}, the dimension of the same "
                f"name in group '/{above}' has {theirs} ({other}), and xarray opens no tree of such groups. {remedy}",
                dimension=str(dim),
                lengths={mine: [join(path, name)], theirs: [join(above, other)]},
            )
        if dim in extent.indexes or dim in outer.indexes:
            index, outer_index = extent.index(dim), outer.index(dim)
            if index is not None and outer_index is not None and not index.equals(outer_index):
                raise errors.DatasetError(
                    f"coordinate {dim!r} of group '/{path}' has other values than that of group '/{above}', and xarray "
                    f"opens no tree of such groups. {remedy}",
                    dimension=str(dim),
                    lengths={mine: [join(path, name), join(above, other)]},
                )
