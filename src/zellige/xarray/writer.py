"""Writing datasets, data arrays and trees: `write`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

import xarray as xr
from zellige import Array, Group, config, errors, open_group, storage
from zellige import change as begin_change
from zellige import open as open_any
from zellige.xarray.backend import arrays_by_group, name_dimensions, read_arrays
from zellige.xarray.encoding import try_codecs
from zellige.xarray.plan import (
    Options,
    Plan,
    Source,
    Step,
    Stored,
    check_names,
    check_tree,
    join,
    parents,
    plan_dataset,
)

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
    write_empty_chunks: bool | None = None,
    write_inherited_coords: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    casting: Literal["same_value", "unsafe"] | None = None,
    **to_zarr: Any,
) -> Any:
    """Write a dataset, data array or tree to a group of a store, and return the group.

    Everything is checked before anything is written. New arrays and what is appended become visible all at once, at the
    end: readers see the old dataset or the new one, and a write that fails or is killed leaves the old one. Only one
    writer at a time changes a group; another one waits, or gets a `ConflictError` before it has written anything. The
    blocks of dask become the stored chunks, whatever their sizes; numpy data is cut automatically.

    Parameters
    ----------
    data
        What to write.
    store
        Where: a path, a URL, a store, a group, a dict. A path that ends in `.zip` is one file, complete at the end.
    mode
        `w-` (the default) creates, `w` replaces, `a` adds to what is there, `a-` does so but leaves stored variables
        without `append_dim` as they are, `r+` changes values only. With `append_dim` the default is `a`, with `region`
        `r+`. What `w` replaces is removed before the new dataset is there, and before blocks of dask are computed: an
        error in one of them costs the old dataset.
    group
        The path of the group in the store.
    encoding
        By variable, as in xarray; of a tree by path and variable. Those that come with the variables are used where
        they fit.
    append_dim
        Make the stored dataset longer along a dimension. Variables without the dimension stay if they are equal, and
        are replaced otherwise, one after the other; coordinates must be equal. The groups of a tree that do not have
        the dimension are treated in the same way.
    region
        Change a part: a slice for each dimension, or `"auto"` to find it by the values of coordinates. With `mode="a"`
        variables that are not stored yet are created, as long as the others, and filled in that part.
    align
        Rechunk blocks of dask that end within stored chunks, with an `AlignmentWarning`, so that no two tasks
        write to one chunk; False leaves that to the locks of the store.
    compute
        False returns a `Delayed` for what dask computes. New arrays are then created, and values in memory written, at
        once; what is appended is seen only when all of it is computed.
    consolidated
        Whether to consolidate the metadata of the whole store at the end; by default, and wherever it was before.
        True warns of variables with rectilinear chunks, for which zarr-python needs a setting to open the store.
    chunks
        How new values are cut, by dimension: a size, edges, which may reach beyond the end, one of the words `"year"`,
        `"quarter"`, `"month"`, `"week"`, `"day"`, `"hour"` and `"minute"`, a frequency of pandas, or the name of a
        coordinate whose equal labels go together. A word or a frequency is one chunk for each period, declared at its
        full length and filled by what is appended; it is kept in the store, so that it need not be repeated.
        `("month", "6h")` tells the step of the times as well, for which the units of new times are chosen (hours here).
        Index coordinates are not cut.
    progress
        True for a progress bar, on a cluster that of its scheduler; or a context manager of your own, such as a
        `dask.diagnostics.Callback`.
    zarr_format
        The Zarr format of a dataset that is created, 2 or 3.
    write_empty_chunks
        Whether chunks that hold only the fill value are stored; by default what `encoding` or the settings say.
    write_inherited_coords
        Whether each group of a tree gets the coordinates that it inherits from those above, as in `to_zarr`.
    storage_options
        How to reach a server; see `zellige.open`.
    casting
        Values that an encoding cannot hold raise `LossyCastError` before anything is written (blocks of dask as they
        are encoded): numbers out of the range of a packed type, fractions for integers without `scale_factor` and
        `add_offset`, missing values without `_FillValue`, values that are stored as `_FillValue` and are not missing,
        text that is cut or missing. Rounding to the nearest packed number is no loss. `"unsafe"` lets them change, and
        stores missing text as `""`; by default the setting `array.casting`.
    to_zarr
        The other keywords of `Dataset.to_zarr`: `safe_chunks` and `align_chunks` mean `align`, `zarr_version` means
        `zarr_format`. `synchronizer`, `chunk_store` and `chunkmanager_store_kwargs` are refused, with what to use
        instead, unless they are None.

    Returns
    -------
    Group
        The group, or a `Delayed` with `compute=False`. On a cluster, a session of icechunk is written by forks of it,
        which are merged; committing is left to you.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> time = pd.date_range("2023-01-01", "2023-12-31")
    >>> ds = xr.Dataset({"t": ("time", np.arange(365.0))}, {"time": time})
    >>> root = write(ds, {}, chunks={"time": "month"})
    >>> root["t"].write_chunk_sizes
    ((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31),)
    """
    switches = {"align": align, "compute": compute, "write_inherited_coords": write_inherited_coords}
    _check_switches(switches | ({} if consolidated is None else {"consolidated": consolidated}))
    if not isinstance(progress, bool | AbstractContextManager):
        raise TypeError(f"progress={progress!r} must be True, False or a context manager")
    align, zarr_format = _options_of_to_zarr(to_zarr, align, zarr_format)
    chosen = _choose_mode(mode, append_dim, region)
    casts = config.get("array.casting") if casting is None else casting
    if casts not in ("same_value", "unsafe"):
        raise ValueError(f"casting={casts!r} must be 'same_value' or 'unsafe'")
    sources = _sources(data, encoding, chunks, inherit=write_inherited_coords)
    _check_dims(sources.values(), append_dim, chunks)
    options = Options(chosen, zarr_format, append_dim, region, write_empty_chunks, casts)
    where = store.store_path if isinstance(store, Group) else store
    with storage.opened(where, path=group or "", storage_options=storage_options) as place:
        if not compute and _is_archive(place, store):
            raise ValueError(
                "compute=False: a zip file given by its path is complete when write returns; open it with "
                "zellige.storage.ZipStore, and close it when all is computed"
            )
        with _without_new_folders(place), _for_tasks(place, sources.values(), compute=compute) as reached:
            writing = _Writing(reached, sources, options, align, progress, compute)
            later = writing.run(consolidate=consolidated is not False)
        if not compute:
            return later
        found = open_group(place, mode="r+")
        if consolidated is True:
            _warn_of_rectilinear(found)
    # A path to an archive is written and closed, so that its group is opened again.
    return open_group(store, path=group, mode="r") if _is_archive(place, store) else found


def _check_switches(given: Mapping[str, Any]) -> None:
    """Refuse words such as "no", which would mean yes."""
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name}={value!r} must be True or False")


def _warn_of_rectilinear(group: Group) -> None:
    """Warn of arrays in consolidated metadata for which zarr-python needs a setting to open the store."""
    arrays = {path: found for path, found in group.members(max_depth=None) if isinstance(found, Array)}
    uneven = [path for path, array in arrays.items() if array.metadata.chunk_grid.name == "rectilinear"]
    if uneven:
        warnings.warn(errors.CompatibilityWarning.of_rectilinear(group.name, sorted(uneven)), stacklevel=3)


def _options_of_to_zarr(given: Mapping[str, Any], align: bool, zarr_format: Any) -> tuple[bool, Any]:
    """The keywords of `Dataset.to_zarr` that have another name here; others are refused with what to use instead."""
    refused = {
        "synchronizer": "zellige locks what it changes by itself",
        "chunk_store": "metadata and chunks are in one store; give that as store",
        "chunkmanager_store_kwargs": "set options of dask with dask.config.set",
    }
    for name, value in given.items():
        if name in refused and value is not None:
            raise TypeError(f"{name}= has no meaning here: {refused[name]}; leave it out")
        if name in ("safe_chunks", "align_chunks"):
            align = align and (value is None or bool(value) or name == "align_chunks")
        elif name == "zarr_version":
            if None not in (value, zarr_format) and value != zarr_format:
                raise ValueError(f"zarr_version={value} and zarr_format={zarr_format} differ; give zarr_format only")
            zarr_format = value if zarr_format is None else zarr_format
        elif name not in refused:
            raise TypeError(f"write() got an unexpected keyword argument {name!r}")
    return align, zarr_format


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


def _sources(data: Any, encoding: Any, chunks: Any, *, inherit: bool) -> dict[str, Source]:
    """The datasets to be written, by their paths."""
    given = dict(errors.as_mapping(encoding or {}, "encoding"))
    if isinstance(data, xr.DataTree):
        nodes = {"" if node is data else node.relative_to(data): node for node in data.subtree}
        encodings = {key.strip("/"): value for key, value in given.items()}
        if unknown := encodings.keys() - nodes.keys():
            raise ValueError(f"encoding: there is no group {min(unknown)!r} in the tree; its keys are paths of groups")
        found = {}
        for path, node in nodes.items():
            ds = node.to_dataset(inherit=inherit or node is data)
            whole = node.to_dataset() if path else None
            found[path] = Source(ds, encodings.get(path) or {}, _chunks_for(ds, chunks), whole)
        return found
    ds = _as_dataset(data) if isinstance(data, xr.DataArray) else data
    if not isinstance(ds, xr.Dataset):
        raise TypeError(f"expected a Dataset, DataArray or DataTree, found {type(data).__name__}")
    return {"": Source(ds, given, _chunks_for(ds, chunks))}


def _as_dataset(array: xr.DataArray) -> xr.Dataset:
    """A data array as a dataset, so that `xr.open_dataarray` finds it and its name, even if that is a coordinate's."""
    if array.name is not None and array.name not in array.coords and array.name not in array.dims:
        return array.to_dataset()
    stored = "values"
    while stored in array.coords or stored in array.dims:
        stored += "_"
    return array.to_dataset(name=stored).assign_attrs({_NAME: array.name})


def _check_dims(sources: Iterable[Source], append_dim: Any, chunks: Any) -> None:
    """Refuse names of dimensions that no dataset has; of a tree, some groups may lack them."""
    dims = {dim: None for source in sources for dim in source.ds.sizes}
    known = ", ".join(map(repr, dims)) or "none"
    if not isinstance(append_dim, Hashable):
        raise TypeError(f"append_dim={append_dim!r} must be the name of one dimension; known: {known}")
    if append_dim is not None and append_dim not in dims:
        raise ValueError(f"append_dim={append_dim!r} is no dimension of the dataset; known: {known}")
    for dim in chunks if isinstance(chunks, Mapping) else ():
        if dim not in dims:
            raise ValueError(f"chunks: there is no dimension {dim!r}; known: {known}")


def _chunks_for(ds: xr.Dataset, chunks: Any) -> Any:
    """What `chunks=` says about the dimensions of one dataset."""
    return {dim: cut for dim, cut in chunks.items() if dim in ds.sizes} if isinstance(chunks, Mapping) else chunks


# -- the place ------------------------------------------------------------------------------------


@contextmanager
def _without_new_folders(place: storage.StorePath) -> Iterator[None]:
    """After an error, remove the directories that the write made and left empty, as the lease of a group does."""
    folder = (
        Path(os.path.abspath(place.store.root), place.path) if isinstance(place.store, storage.LocalStore) else None
    )
    missing = [] if folder is None else [above for above in (folder, *folder.parents) if not above.is_dir()]
    try:
        yield
    except BaseException:
        if missing:
            storage.LocalStore(missing[-1].parent).prune(f"{missing[-1].name}/", lambda _: True)
        raise


def _is_archive(place: storage.StorePath, given: Any) -> bool:
    """Whether a path was given, and an archive is at it, which is written when it is closed."""
    return isinstance(given, str | os.PathLike) and place.store.traits.transactional


def _for_tasks(place: storage.StorePath, sources: Iterable[Source], *, compute: bool) -> AbstractContextManager[Any]:
    """The place as dask writes to it, if there is anything for dask to do."""
    if not any(v.chunks is not None for source in sources for v in source.ds.variables.values()):
        return nullcontext(place)
    from zellige.dask import check_reachable, forked

    check_reachable(place)
    return forked(place, compute=compute)


def _is_taken(place: storage.StorePath) -> bool:
    """Whether there is something that mode 'w' removes."""
    try:
        open_any(place, mode="r")
    except errors.NodeNotFoundError:
        return False
    except errors.ZelligeError:  # something that is broken
        return True
    return True


def _refuse_to_remove_sources(sources: Iterable[Source], place: storage.StorePath) -> None:
    """Replacing begins by removing what is there; what is yet to be read must not be among it."""
    for source in sources:
        for name, variable in source.ds.variables.items():
            for read in storage.places_of(variable):
                if read.is_within(place):
                    raise ValueError(
                        f"variable {name!r} is read from '/{read.path}' of {read.store!r}, which mode 'w' would "
                        "remove first; load the dataset, or write to another place"
                    )


# -- writing --------------------------------------------------------------------------------------


@dataclass
class _Writing:
    """One write of one or several datasets to a place."""

    place: storage.StorePath
    sources: Mapping[str, Source]
    options: Options
    align: bool
    progress: bool | AbstractContextManager[Any]
    compute: bool

    def run(self, *, consolidate: bool) -> Any:
        """Plan, check and write; returns a `Delayed` with `compute=False`."""
        if self.options.mode == "r+" or self.options.region is not None:
            plans = self._plans_in_place()
            if not any(plan.changes_metadata for plan in plans.values()):
                return self._write_in_place(_steps(plans))
        below, form = [path for path in self.sources if path], self.options.zarr_format
        change = begin_change(self.place, below=below, zarr_format=form, consolidate=consolidate)
        try:
            return self._write_at_once(change)
        except BaseException:
            change.abort()
            raise

    # -- plans ------------------------------------------------------------------------------------

    def _plans_in_place(self) -> dict[str, Plan]:
        """What is to be done where nothing is created or grows; other writers are not kept out."""
        there = {path: self._stored(path) for path in self.sources}
        if not there[""].exists and self.options.mode == "r+":
            raise errors.GroupNotFoundError(f"there is no group at '/{self.place.path}', and mode 'r+' creates none")
        return self._plans(there)

    def _stored(self, path: str) -> Stored:
        """The group at a path, as its own metadata says."""
        try:
            group = open_group(self.place / path if path else self.place, mode="r+", use_consolidated=False)
        except errors.GroupNotFoundError:
            return Stored({})
        arrays = read_arrays(group)
        check_names(ds := self.sources[path].ds)
        missing = [group.store_path / str(name) for name in ds.variables if name not in arrays]
        storage.check_consolidated(arrays.values(), missing)
        return Stored(arrays, group)

    def _plans_for(self, change: Any) -> dict[str, Plan]:
        """What is to be done, while the group is leased."""
        mode, dim = self.options.mode, self.options.append_dim
        there: dict[str, Stored] = {}
        for path in self.sources:
            group = change.group(path)
            complete = mode not in ("w", "w-")
            there[path] = Stored({} if group is None else change.arrays(path, complete=complete), group)
        if there[""].exists and mode == "w-":
            raise errors.ContainsGroupError(
                f"there is a group at '/{self.place.path}' in {self.place.store!r} already; mode 'w' replaces it, 'a' "
                "adds to it"
            )
        if dim is not None and len(self.sources) > 1 and there[""].exists:
            self._check_whole_tree(dim)
        if mode == "w":
            _refuse_to_remove_sources(self.sources.values(), self.place)
            there = {path: Stored({}) for path in self.sources}
        for path, found in there.items():
            change.compare({join(path, name): array for name, array in found.arrays.items()})
        plans = self._plans(there)
        check_tree(self.place, self.sources, there, plans)
        return plans

    def _check_whole_tree(self, dim: Any) -> None:
        """Refuse to make some groups of a tree longer, and to leave others that have the dimension as they are."""
        members = open_group(self.place, mode="r", use_consolidated=False).members(max_depth=None)
        below = {path: arrays for path, arrays in arrays_by_group(members).items() if path not in self.sources}
        left = [path for path, arrays in below.items() if any(dim in d for d in name_dimensions(arrays).values())]
        if left:
            raise ValueError(
                f"stored groups {left} have the dimension {dim!r}, and would be left shorter; append to them too"
            )

    def _plans(self, there: Mapping[str, Stored]) -> dict[str, Plan]:
        wanted, stored = self.options.zarr_format, there[""].zarr_format
        if None not in (wanted, stored) and wanted != stored:
            raise ValueError(f"zarr_format={wanted}: the group that is there has the format {stored}")
        form = stored or wanted or config.get("default_zarr_format")
        plans = {}
        options = replace(self.options, zarr_format=form)
        for path, source in self.sources.items():
            above = [there[parent] for parent in reversed(parents(path)) if parent in there]
            plans[path] = plan_dataset(source, path, there[path], options, above)
        return plans

    # -- carrying them out ------------------------------------------------------------------------

    def _write_at_once(self, change: Any) -> Any:
        """Write new and longer arrays where no reader looks, and show them all at the end."""
        plans = self._plans_for(change)
        steps = _steps(plans)
        if self.options.mode == "w" and _is_taken(self.place):
            for step in steps:
                try_codecs(step.path, step.metadata, None if step.of_dask else step.variable.data, step.config)
        hidden = self._prepare(change, plans)
        in_place = [step for step in steps if step.in_place]
        appends = any(step.axis is not None for step in hidden)
        if self.options.region is not None or not (self.compute or appends):
            change.commit()  # the arrays alone, for others to fill, region by region
            return self._write_in_place([*hidden, *in_place])
        for step in hidden:
            if not step.of_dask:
                change.write(step.path, step.values, step.config)
        if self.compute:
            self._run_dask(hidden, change)
            change.commit(partial(self._write_in_place, in_place))
            return None
        finish = partial(change.commit, partial(_put, [step for step in in_place if not step.of_dask]))
        return self._run_dask([*hidden, *in_place], change, finish)

    def _prepare(self, change: Any, plans: Mapping[str, Plan]) -> list[Step]:
        """Tell the change what is to be created, and what grows; everything to be written that no reader sees yet."""
        for path, plan in plans.items():
            if plan.metadata is None and plan.attributes and self.options.mode in ("a", "a-"):
                change.set_attributes(plan.attributes, path)
        steps = {step.path: step for step in _steps(plans) if not step.in_place}
        grown = {
            path: (step.array, step.variable.shape[step.axis], step.axis, step.edges)
            for path, step in steps.items()
            if step.axis is not None
        }
        nodes = {path: plan.metadata for path, plan in plans.items() if plan.metadata is not None}
        nodes |= {path: step.metadata for path, step in steps.items() if path not in grown}
        try:
            made = change.create(nodes, overwrite=self.options.mode == "w")
        except (errors.ContainsArrayError, errors.ContainsGroupError) as error:
            raise self._is_taken_by(plans, steps) or error from None
        made |= change.grow(grown, filled=True)
        return [step.into(made[path]) for path, step in steps.items()]

    def _is_taken_by(
        self, plans: Mapping[str, Plan], steps: Iterable[str]
    ) -> errors.ContainsArrayError | errors.ContainsGroupError | None:
        """The error for a variable in whose place a node is that is no variable of the dataset, with what to do."""
        for path in steps:
            try:
                found = open_any(self.place / path, mode="r")
            except errors.ZelligeError:
                continue
            group, _, name = path.rpartition("/")
            above = join(self.place.path, group)
            is_array = isinstance(found, Array)
            kind = errors.ContainsArrayError if is_array else errors.ContainsGroupError
            what = "an array" if is_array else "a group"
            taken = f"variable {name!r}: there is {what} at '{found.name}' in {self.place.store!r} already"
            missing = plans[group].metadata
            if missing is None:
                return kind(f"{taken}; give the variable another name")
            remedy = "zellige.repair(…, dry_run=False) restores it"
            if not above and not (self.place / ".zmetadata").exists():
                remedy = (
                    "zellige.open_group(…, mode='a') makes one, and zellige.consolidate_metadata(…) the consolidated "
                    "metadata that was lost with it"
                )
            key = next(iter(missing.to_documents()))
            return kind(
                f"{taken}, but no group at '/{above}': the metadata of the group ({key}) is missing. Nothing was "
                f"written. {remedy}; write again after that"
            )
        return None

    def _write_in_place(self, steps: Sequence[Step]) -> Any:
        """Write to arrays that readers see."""
        _put(steps)
        return self._run_dask(steps, None, None if self.compute else partial(_put, ()))

    def _run_dask(self, steps: Sequence[Step], change: Any, then: Any = None) -> Any:
        """Write what dask computes: at once, or later, and then call what comes after it."""
        steps = [step for step in steps if step.of_dask]
        if not steps and then is None:
            return None
        from zellige.dask import Part, store_parts

        parts = []
        guard = None if change is None else change.guard
        for step in steps:
            stored = change is None or step.in_place  # else its metadata comes with the commit
            array = step.target if stored else change.fenced(step.target)
            parts.append(Part(step.variable.data, array, step.region, stored=stored, guard=guard))
        with nullcontext() if isinstance(self.progress, bool) else self.progress:
            return store_parts(parts, align=self.align, compute=then is None, then=then, progress=self.progress is True)


def _steps(plans: Mapping[str, Plan]) -> list[Step]:
    return [step for plan in plans.values() for step in plan.steps]


def _put(steps: Iterable[Step]) -> None:
    """Write values that are not blocks of dask to arrays that readers see."""
    for step in steps:
        if not step.of_dask:
            step.target[... if step.region is None else step.region] = step.values
