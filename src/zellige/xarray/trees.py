"""Whether the groups of a tree fit each other: xarray opens one only if each group is aligned with those above it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

import xarray as xr
from zellige import Array, Group, errors, open_group, storage
from zellige.xarray.planning import Plan, Stored, There, join


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
    def of(cls, arrays: Mapping[str, Array], plan: Plan | None = None, ds: xr.Dataset | None = None) -> Extent:
        """The extent of a group with these arrays, after a write of a dataset to it if there is one."""
        stored = Stored(arrays)
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
    datasets: Mapping[str, xr.Dataset],
    there: Mapping[str, There | None],
    plans: Mapping[str, Plan],
) -> None:
    """Refuse new arrays with which groups above and below would not open as one tree.

    Arrays that only grow are not looked at: the groups of a tree may be appended to one after the other.

    Parameters
    ----------
    place
        Where is written to.
    datasets, there, plans
        What is written to each group below it, the group that is there, and what will be done.
    """
    if not any(step.metadata is not None and step.variable.dims for plan in plans.values() for step in plan.steps):
        return
    extents = {
        join(place.path, path): Extent.of({} if found is None else found.arrays, plans[path], datasets[path])
        for path, found in there.items()
    }
    others = dict(_arrays_above(place))
    if any(found is not None for found in there.values()):  # else there is nothing below, or it is removed
        others |= _arrays_below(place, extents)
    extents |= {path: Extent.of(arrays) for path, arrays in others.items()}
    for path, extent in extents.items():
        for above in _parents(path):
            if above in extents:
                _check_pair(path, extent, above, extents[above])


def _parents(path: str) -> list[str]:
    """The paths of the groups above one, from the root downwards."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:count]) for count in range(len(parts))]


def _arrays_above(place: storage.StorePath) -> Iterator[tuple[str, dict[str, Array]]]:
    """The arrays of the groups above a place; the consolidated metadata of the root may tell all of them."""
    found: Group | None = None
    for path in _parents(place.path):
        try:
            if found is None:
                found = open_group(storage.StorePath(place.store, path), mode="r")
            else:
                found = found.get_group(path.rpartition("/")[2])
        except errors.ZelligeError:  # there is no group; what is there instead is told by who creates one
            found = None
        else:
            yield path, dict(found.arrays())


def _arrays_below(place: storage.StorePath, known: Collection[str]) -> dict[str, dict[str, Array]]:
    """The arrays of the groups below a place that are not known yet."""
    below: dict[str, dict[str, Array]] = {}
    for path, found in open_group(place, mode="r").members(max_depth=None):
        parent, _, name = join(place.path, path).rpartition("/")
        if isinstance(found, Array) and parent not in known:
            below.setdefault(parent, {})[name] = found
    return below


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
