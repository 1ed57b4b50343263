"""Writing datasets, data arrays and trees: `write`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import xarray as xr

from zellige import (
    Array,
    Group,
    MemoryStore,
    config,
    consolidate_metadata,
    create_group,
    errors,
    open_group,
    storage,
)
from zellige.xarray import compat
from zellige.xarray.encoding import group_metadata
from zellige.xarray.planning import Plan, Step, Wishes, plan_dataset

_NAME = "__xarray_dataarray_name__"
"""The attribute from which `xr.open_dataarray` takes the name of a data array."""


def write(
    data: xr.Dataset | xr.DataArray | xr.DataTree,
    store: Any,
    *,
    mode: Literal["w", "w-", "a", "a-", "r+"] | None = None,
    group: str | None = None,
    encoding: Mapping[Any, Any] | None = None,
    append_dim: Any = None,
    region: Any = None,
    align: bool = True,
    compute: bool = True,
    consolidated: bool | None = None,
    chunks: Any = None,
    progress: bool | AbstractContextManager[Any] = False,
    zarr_format: Literal[2, 3] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Write a dataset, data array or tree to a group of a store, and return the group.

    Everything is checked before anything is written. The blocks of dask become the stored chunks, whatever their
    sizes; numpy data is cut automatically.

    mode
        `w-` (the default) creates, `w` replaces, `a` adds to what is there, `a-` does so but leaves stored variables
        without `append_dim` as they are, `r+` changes values only. With `append_dim` the default is `a`, with `region`
        `r+`.
    encoding
        By variable, as in xarray; of a tree by path and variable. Those that come with the variables are used where
        they fit.
    append_dim
        Make the stored dataset longer along a dimension. New values are written first and shown last: readers see
        the old dataset or the new one. Variables without the dimension stay if they are equal, and are replaced
        otherwise; coordinates must be equal.
    region
        Change a part: a slice for each dimension, or `"auto"` to find it by the values of coordinates.
    chunks
        How new values are cut, by dimension: a size, edges, `"year"`, `"month"`, `"day"`, a frequency of pandas, or
        the name of a coordinate whose equal labels go together. Index coordinates are not cut.
    align
        Rechunk blocks of dask that end within stored chunks, with an `AlignmentWarning`, so that no two tasks
        write to one chunk; False leaves that to the locks of the store.
    compute
        False writes what is in memory and returns a `Delayed` for the rest.
    consolidated
        Whether to consolidate the metadata of the whole store at the end; by default, and wherever it was before.
    progress
        True for a progress bar, on a cluster that of its scheduler; or a context manager of your own, such as a
        `dask.diagnostics.Callback`.

    On a cluster, a session of icechunk is written by forks of it, which are merged; committing is left to you.

    >>> import numpy as np, pandas as pd
    >>> time = pd.date_range("2023-01-01", "2023-12-31")
    >>> ds = xr.Dataset({"t": ("time", np.arange(365.0))}, {"time": time})
    >>> root = write(ds, {}, chunks={"time": "month"})
    >>> root["t"].write_chunk_sizes
    ((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31),)
    """
    chosen = _choose_mode(mode, append_dim, region)
    datasets, encodings = _nodes(data, encoding)
    wishes = {path: Wishes(chosen, None, encodings[path], chunks, append_dim, region) for path in datasets}
    path = (group or "").strip("/")

    def write_to(place: _Place) -> Any:
        plans, there = _plans(place, datasets, wishes, zarr_format)
        consolidates = place.consolidates(consolidated, chosen)
        _create(place, plans, there, chosen)
        steps = [step for plan in plans.values() for step in plan.steps]
        finish = _Finish(place.root() if consolidates else None)
        return _Writing(steps, finish, align, progress).run(compute=compute)

    with _for_tasks(store, datasets, compute=compute) as reached:
        later = write_to(_Place(reached, path, storage_options))
    return _Place(store, path, storage_options).open() if compute else later


def _for_tasks(store: Any, datasets: Mapping[str, xr.Dataset], *, compute: bool) -> AbstractContextManager[Any]:
    """The store as dask writes to it, if there is anything for dask to do."""
    if not any(v.chunks is not None for ds in datasets.values() for v in ds.variables.values()):
        return nullcontext(store)
    from zellige.dask import check_reachable, forked

    check_reachable(store)
    return forked(store, compute=compute)


def _plans(
    place: _Place, datasets: Mapping[str, xr.Dataset], wishes: Mapping[str, Wishes], zarr_format: Any
) -> tuple[dict[str, Plan], dict[str, Group | None]]:
    """What is to be done, by path, and the groups that are there; everything is checked."""
    there = {path: place.find(path) for path in datasets}
    top, mode = there[""], wishes[""].mode
    form = _choose_format(place, top, mode, zarr_format)
    plans = {
        path: plan_dataset(ds, there[path], replace(wishes[path], zarr_format=form)) for path, ds in datasets.items()
    }
    if top is not None and mode == "w":
        _refuse_to_remove_sources(datasets.values(), top)
    return plans, there


def _choose_mode(mode: str | None, append_dim: Any, region: Any) -> str:
    if append_dim is not None and region is not None:
        raise ValueError("append_dim= makes a dataset longer, region= changes a part of it; give one of them")
    chosen = mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
    if chosen not in ("w", "w-", "a", "a-", "r+"):
        raise ValueError(f"mode={mode!r} must be one of 'w', 'w-', 'a', 'a-', 'r+'")
    if append_dim is not None and chosen not in ("a", "a-"):
        raise ValueError(f"mode={mode!r}: append_dim= adds to what is there, which is mode 'a' or 'a-'")
    if region is not None and chosen not in ("a", "a-", "r+"):
        raise ValueError(f"mode={mode!r}: region= changes what is there, which is mode 'r+' or 'a'")
    return chosen


def _choose_format(place: _Place, top: Group | None, mode: str, wanted: int | None) -> int:
    """The Zarr format to write; raises if the mode and what is there do not go together."""
    if top is None and mode == "r+":
        raise errors.GroupNotFoundError(f"there is no group at '/{place.group}', and mode 'r+' creates none")
    if top is not None and mode == "w-":
        raise errors.ContainsGroupError(
            f"there is a group at '/{place.group}' in {top.store!r} already; mode 'w' replaces it, 'a' adds to it"
        )
    if top is None or mode == "w":
        return wanted or config.get("default_zarr_format")
    if wanted not in (None, top.metadata.zarr_format):
        raise ValueError(f"zarr_format={wanted}: the group that is there has the format {top.metadata.zarr_format}")
    return top.metadata.zarr_format


def _nodes(data: Any, encoding: Any) -> tuple[dict[str, xr.Dataset], dict[str, Mapping[Any, Any]]]:
    """The datasets to be written by their paths, and the encodings of each."""
    given = dict(encoding or {})
    if isinstance(data, xr.DataTree):
        found = {node.relative_to(data): node.to_dataset(inherit=node is data) for node in data.subtree}
        datasets = {"" if path == "." else path: ds for path, ds in found.items()}
        encodings = {key.strip("/"): value for key, value in given.items()}
        if unknown := encodings.keys() - datasets.keys():
            raise ValueError(f"encoding: there is no group {min(unknown)!r} in the tree; its keys are paths of groups")
        return datasets, {path: encodings.get(path) or {} for path in datasets}
    if isinstance(data, xr.DataArray):
        data = _as_dataset(data)
    if not isinstance(data, xr.Dataset):
        raise TypeError(f"expected a Dataset, DataArray or DataTree, found {type(data).__name__}")
    return {"": data}, {"": given}


def _as_dataset(array: xr.DataArray) -> xr.Dataset:
    """A data array as a dataset, so that `xr.open_dataarray` finds it and its name, even if that is a coordinate's."""
    if array.name is not None and array.name not in array.coords and array.name not in array.dims:
        return array.to_dataset()
    stored = "values"
    while stored in array.coords or stored in array.dims:
        stored += "_"
    return array.to_dataset(name=stored).assign_attrs({_NAME: array.name})


def join(*parts: str) -> str:
    """A path of those parts that are not empty."""
    return "/".join(part for part in parts if part)


# -- the place ------------------------------------------------------------------------------------


class _Place:
    """A group in a store, which may be there or not."""

    def __init__(self, store: Any, group: str, storage_options: Mapping[str, Any] | None) -> None:
        self._store = MemoryStore() if store is None else store
        if isinstance(store, Group):
            self._store = storage.StorePath(store.store, store.path)
        self.group = group
        self._options: dict[str, Any] = {"mode": "r+", "storage_options": storage_options}

    def path(self, below: str = "") -> str:
        """The path of a node below the group."""
        return join(self.group, below)

    def find(self, below: str) -> Group | None:
        """The group there, as its own documents say, or None."""
        try:
            return open_group(self._store, path=self.path(below), use_consolidated=False, **self._options)
        except errors.GroupNotFoundError:
            return None

    def consolidates(self, wanted: bool | None, mode: str) -> bool:
        """Whether to consolidate: as the user says, unless what is there would be out of date."""
        if wanted is None or mode == "r+":
            return mode != "r+" if wanted is None else wanted
        try:
            return wanted or open_group(self._store, **self._options).metadata.consolidated is not None
        except errors.GroupNotFoundError:
            return False

    def root(self) -> storage.StorePath:
        """The root of the store, or the group if there is none, as something that can be sent to other processes."""
        try:
            found = open_group(self._store, use_consolidated=False, **self._options)
        except errors.GroupNotFoundError:
            found = self.open()
        return storage.StorePath(found.store, found.path)

    def create(self, attributes: Mapping[str, Any], zarr_format: Any, *, overwrite: bool) -> Group:
        """Create the group, with those above it."""
        options = {"zarr_format": zarr_format, "overwrite": overwrite}
        options["storage_options"] = self._options["storage_options"]
        return create_group(self._store, path=self.group, attributes=attributes, **options)

    def open(self) -> Group:
        """The group as it is now."""
        return open_group(self._store, path=self.group, **self._options)


def _create(place: _Place, plans: Mapping[str, Plan], there: Mapping[str, Group | None], mode: str) -> None:
    """Create groups and arrays that are missing, and follow the attributes of groups."""
    top = None if mode == "w" else there[""]
    form = plans[""].zarr_format
    if top is None:
        top = place.create(plans[""].attributes, form, overwrite=mode == "w")
    nodes: dict[str, Any] = {}
    for path, plan in plans.items():
        group = None if mode == "w" else there[path]
        if group is None and path:
            nodes[path] = group_metadata(plan.attributes, form)
        elif group is not None and mode in ("a", "a-") and not plan.attributes.items() <= dict(group.attrs).items():
            group.attrs.update(plan.attributes)
        nodes |= {join(path, step.name): step.metadata for step in plan.steps if step.metadata is not None}
    made: dict[str, Any] = dict(top.create_hierarchy(nodes))
    for path, plan in plans.items():
        for step in plan.steps:
            step.array = step.array or made[join(path, step.name)]


def _refuse_to_remove_sources(datasets: Any, top: Group) -> None:
    """Replacing begins by removing what is there; what is yet to be read must not be among it."""
    for ds in datasets:
        for name, variable in ds.variables.items():
            for source in compat.sources(variable):
                if not isinstance(source, Array) or source.store.identity != top.store.identity:
                    continue
                if not top.path or source.path.startswith(top.path + "/"):
                    raise ValueError(
                        f"variable {name!r} is read from {source.name!r} of {source.store!r}, which mode 'w' would "
                        "remove first; load the dataset, or write to another place"
                    )


# -- writing --------------------------------------------------------------------------------------


@dataclass
class _Finish:
    """What is done once all values are written: show what was appended, consolidate."""

    root: storage.StorePath | None
    """The group to be consolidated, if any."""
    pending: list[Any] = field(default_factory=list)

    def __call__(self) -> None:
        committed: list[tuple[Array, tuple[int, ...]]] = []
        for append in self.pending:
            before = append.target.shape
            try:
                append.commit()
            except BaseException:  # one array that is longer than the others makes no dataset
                for target, shape in committed:
                    target.resize(shape)
                raise
            committed.append((append.target, before))
        if self.root is not None:
            consolidate_metadata(self.root)

    def give_up(self) -> None:
        """Remove what was appended."""
        for append in self.pending:
            append.abort()


@dataclass
class _Writing:
    """The steps of all plans, carried out."""

    steps: list[Step]
    finish: _Finish
    align: bool
    progress: bool | AbstractContextManager[Any]

    def run(self, *, compute: bool) -> Any:
        try:
            targets = [self._target(step) for step in self.steps]
            for step, (array, region) in zip(self.steps, targets, strict=True):
                if step.variable.chunks is None:
                    array[... if region is None else region] = np.asarray(step.variable.data)
            later = self._run_dask(targets, compute=compute)
            if compute:
                self.finish()
            return later
        except BaseException:
            self.finish.give_up()
            raise

    def _target(self, step: Step) -> tuple[Array, tuple[slice, ...] | None]:
        """The array to write to, and where."""
        array = step.target
        if step.axis is None:
            return (array if step.config is None else array.with_config(step.config)), step.region
        length = step.variable.shape[step.axis]
        append = array.start_append(length, step.axis, step.edges)
        self.finish.pending.append(append)
        longer = append.array
        end = longer.shape[step.axis]
        return longer, tuple(slice(end - length, end) if k == step.axis else slice(None) for k in range(longer.ndim))

    def _run_dask(self, targets: list[Any], *, compute: bool) -> Any:
        chunked = [k for k, step in enumerate(self.steps) if step.variable.chunks is not None]
        if compute and not chunked:
            return None
        from zellige.dask import Part, store_parts

        parts = [
            Part(step.variable.data, array, region, stored=step.axis is None)
            for step, (array, region) in ((self.steps[k], targets[k]) for k in chunked)
        ]
        shown = nullcontext() if isinstance(self.progress, bool) else self.progress
        with shown:
            return store_parts(
                parts,
                align=self.align,
                compute=compute,
                then=None if compute else self.finish,
                progress=self.progress is True,
            )
