"""The engine: `xr.open_dataset(…, engine="zellige")`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, StoreBackendEntrypoint

import xarray as xr
from zellige import Array, Group, MemoryStore, Store, errors, open_group, storage
from zellige.xarray import compat

_PLACE = ("filename_or_obj", "group", "consolidated", "storage_options", "zarr_format")
_CONTENT = ("drop_variables", "use_zarr_fill_value_as_mask")
_DECODING = ("mask_and_scale", "decode_times", "concat_characters", "decode_coords", "use_cftime", "decode_timedelta")

RULES = "_zellige_chunks"
"""The attribute of a group that keeps the calendar rules of its dimensions, for what is appended later."""

_TRIES = 8

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""The attribute that names the axes of an array in Zarr format 2."""


class ZelligeBackend(BackendEntrypoint):
    """Opens Zarr groups, with chunks of any size, as datasets and trees.

    `chunks={}` gives exactly the stored chunks; without `chunks` only what is indexed is read.
    """

    description = "Open Zarr stores, with chunks of any size, using zellige"
    supports_groups = True
    open_dataset_parameters = (*_PLACE, *_CONTENT, *_DECODING)

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether `filename_or_obj` is a store or a group of zellige, or a path that ends in `.zarr`."""
        if isinstance(filename_or_obj, str | os.PathLike):
            return os.path.splitext(str(filename_or_obj).rstrip("/"))[1] == ".zarr"
        return isinstance(filename_or_obj, Store | storage.StorePath | Group)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        consolidated: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: Any = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        **decoding: Any,
    ) -> xr.Dataset:
        """Open one group as a dataset.

        Parameters
        ----------
        filename_or_obj
            A path, a URL, a store or a group.
        drop_variables
            The names of variables that are left out.
        group
            The path of the group.
        consolidated
            Whether to read consolidated metadata; by default where it is there.
        storage_options
            How to reach a server; see `zellige.open`.
        zarr_format
            The only Zarr format to look for, 2 or 3.
        use_zarr_fill_value_as_mask
            Whether the fill value of an array means that values are missing; by default in format 2.
        decoding
            What xarray decodes, as in `xarray.open_zarr`: `mask_and_scale`, `decode_times`, `decode_coords` and others.
        """
        found = _open_group(filename_or_obj, group, consolidated, storage_options, zarr_format)
        return _dataset(found, drop_variables, use_zarr_fill_value_as_mask, decoding)

    def open_groups_as_dict(self, filename_or_obj: Any, **options: Any) -> dict[str, xr.Dataset]:
        """Open a group and all groups below it, by their paths. Parameters: as for `open_dataset`."""
        top = _open_group(filename_or_obj, *(options.pop(name, None) for name in _PLACE[1:]))
        drop_variables, fill_as_mask = (options.pop(name, None) for name in _CONTENT)
        members = dict(top.members(max_depth=None))  # all at once, so that a change of the whole tree is seen as one
        groups = {"": top, **{path: found for path, found in members.items() if isinstance(found, Group)}}
        arrays = arrays_by_group(members.items())
        return {
            "/" + path: _dataset(found, drop_variables, fill_as_mask, options, arrays.get(path, {}))
            for path, found in groups.items()
        }

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xr.DataTree:
        """Open a group and all groups below it as a tree. Parameters: as for `open_dataset`."""
        return xr.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def _open_group(
    place: Any,
    group: str | None,
    consolidated: bool | None,
    storage_options: Mapping[str, Any] | None,
    zarr_format: Any = None,
) -> Group:
    """The group to be read, reached from the root, whose consolidated metadata may describe it."""
    path = (group or "").strip("/")
    if isinstance(place, Group):
        return place.get_group(path) if path else place
    options: dict[str, Any] = {"mode": "r", "storage_options": storage_options, "zarr_format": zarr_format}
    try:
        root = open_group(place, use_consolidated=consolidated, **options)
    except errors.GroupNotFoundError:
        if not path:
            raise
        return open_group(place, path=path, use_consolidated=consolidated, **options)
    return root.get_group(path) if path else root


def _dataset(
    group: Group,
    drop_variables: str | Iterable[str] | None,
    fill_as_mask: bool | None,
    decoding: Mapping[str, Any],
    arrays: Mapping[str, Array] | None = None,
) -> xr.Dataset:
    dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
    store = ZelligeDataStore(group, dropped, fill_as_mask, arrays)
    if decoding.get("decode_times") in (None, True) and store.lacks_rows:
        decoding = {**decoding, "decode_times": compat.decode_no_times(store.get_variables())}
    return StoreBackendEntrypoint().open_dataset(store, drop_variables=drop_variables, **decoding)


class ZelligeDataStore(AbstractDataStore):
    """The variables and attributes of one group, as they are stored."""

    def __init__(
        self,
        group: Group,
        dropped: Iterable[str] = (),
        fill_as_mask: bool | None = None,
        arrays: Mapping[str, Array] | None = None,
    ) -> None:
        self._arrays = read_arrays(group, dropped, arrays)
        self._attributes = group.attrs.asdict()
        self._fill_as_mask = fill_as_mask

    @property
    def lacks_rows(self) -> bool:
        """Whether an array has no elements."""
        return any(0 in array.shape for array in self._arrays.values())

    def get_variables(self) -> dict[str, xr.Variable]:
        """The arrays as variables that read when they are indexed."""
        dimensions = name_dimensions(self._arrays)
        return {
            name: stored_variable(array, dimensions[name], self._fill_as_mask) for name, array in self._arrays.items()
        }

    def get_attrs(self) -> dict[str, Any]:
        """The attributes of the group, without those of netCDF's own use of Zarr, and of ours."""
        return {
            name: value
            for name, value in self._attributes.items()
            if not name.lower().startswith("_nc") and name != RULES
        }


def read_arrays(
    group: Group, dropped: Iterable[str] = (), arrays: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """The arrays of a group, all before or all after a change that is under way.

    Arrays whose own metadata is read one after the other may have been changed in between: then they disagree about the
    length of a dimension, and are read again. If they still do, `DatasetError` says so.

    Those that are `dropped` are left out. `arrays` are those of the group, if they were read already.
    """
    left_out = set(dropped)
    for attempt in range(_TRIES):
        if arrays is None or attempt:
            # A change of a whole tree is recorded in a group above.
            arrays = dict(group.arrays()) if attempt < _TRIES - 1 or not group.path else _arrays_from_above(group)
        found = {name: array for name, array in arrays.items() if name not in left_out}
        if not _disagreements(found):
            break
    check_lengths(group.path, found)
    return found


def _arrays_from_above(group: Group) -> dict[str, Array]:
    """The arrays of a group, reached from the root of its store."""
    try:
        top = open_group(group.store, mode="r", use_consolidated=False)
    except errors.GroupNotFoundError:
        return dict(group.arrays())
    return arrays_by_group(top.members(max_depth=None)).get(group.path, {})


def arrays_by_group(members: Iterable[tuple[str, Array | Group]]) -> dict[str, dict[str, Array]]:
    """The arrays among the members of a group: by the paths of the groups that they are in, and by their names."""
    found: dict[str, dict[str, Array]] = {}
    for path, member in members:
        parent, _, name = path.rpartition("/")
        if isinstance(member, Array):
            found.setdefault(parent, {})[name] = member
    return found


def check_lengths(path: str, arrays: Mapping[str, Array]) -> None:
    """Refuse arrays of a group that disagree about the length of a dimension."""
    for dim, lengths in _disagreements(arrays).items():
        each = "; ".join(f"{length}: {', '.join(names)}" for length, names in sorted(lengths.items()))
        least = min(lengths)
        cut = ", ".join(f"{name} {n} -> {least}" for n, names in sorted(lengths.items()) if n > least for name in names)
        raise errors.DatasetError(
            f"the arrays of group '/{path}' disagree about the length of dimension {dim!r} ({each}), as after an "
            "append by another program that was stopped. zellige.repair(…, shrink=True) makes all as long as the "
            f"shortest one and removes the rest ({cut}); drop_variables= opens the dataset without some of them",
            dimension=dim,
            lengths=lengths,
        )


def _disagreements(arrays: Mapping[str, Array]) -> dict[str, dict[int, list[str]]]:
    """The dimensions that have several lengths: the names of the arrays by their lengths."""
    found: dict[str, dict[int, list[str]]] = {}
    for name, dims in name_dimensions(arrays).items():
        for dim, length in zip(dims, arrays[name].shape, strict=True):
            names = found.setdefault(dim, {}).setdefault(length, [])
            names += [name] if name not in names else []
    return {dim: lengths for dim, lengths in found.items() if len(lengths) > 1}


def name_dimensions(arrays: Mapping[str, Array]) -> dict[str, tuple[str, ...]]:
    """The names of all axes of the arrays of a group.

    They are in the metadata, or where netCDF's library puts them. An axis without a name gets an invented one, as
    netCDF's libraries do: `phony_dim_0`, `phony_dim_1`, …, one for each length, shared by all arrays of the group;
    several axes of one length in one array get one each.
    """
    known = {name: array.dimension_names or _nczarr_names(array) for name, array in arrays.items()}
    taken = {name for names in known.values() for name in names if name is not None}
    free: Iterator[str] = (name for k in range(1 << 62) if (name := f"phony_dim_{k}") not in taken)
    phony: dict[tuple[int, int], str] = {}

    def named(names: Iterable[str | None], array: Array) -> Iterator[str]:
        seen: dict[int, int] = {}
        for name, length in zip(names, array.shape, strict=True):
            if name is None:
                nth = seen[length] = seen.get(length, -1) + 1
                if (length, nth) not in phony:
                    phony[length, nth] = next(free)
                name = phony[length, nth]
            yield name

    return {name: tuple(named(known[name], array)) for name, array in arrays.items()}


def _nczarr_names(array: Array) -> Sequence[str | None]:
    """The names that netCDF's library gives to axes: references to dimensions, such as `/group/time`."""
    places = [array.attrs.get("_NCZARR_ARRAY"), array.attrs.get("_nczarr_array")]
    places.append(getattr(array.metadata, "extra", {}).get("_NCZARR_ARRAY"))
    for place in places:
        found = place.get("dimrefs", place.get("dimension_references")) if isinstance(place, dict) else None
        if isinstance(found, list) and len(found) == array.ndim and all(isinstance(ref, str) for ref in found):
            return [ref.rpartition("/")[2] for ref in found]
    return [None] * array.ndim


def stored_variable(array: Array, dimensions: tuple[str, ...], fill_as_mask: bool | None = None) -> xr.Variable:
    """An array as a variable of encoded values, whose `encoding` says how it is stored."""
    is_v2 = array.metadata.zarr_format == 2
    attributes = array.attrs.asdict()
    if is_v2:
        attributes = {k: v for k, v in attributes.items() if k != DIMENSIONS and not k.lower().startswith("_nc")}
    data = ZelligeArray(array)
    chunks = _declared(array, "chunks", "read_chunk_sizes")
    encoding: dict[str, Any] = {
        "chunks": chunks,
        "preferred_chunks": dict(zip(dimensions, chunks, strict=True)),
        "compressors": _codecs(array.compressors),
        "filters": _codecs(array.filters),
        "shards": _declared(array, "shards", "write_chunk_sizes"),
    }
    if data.dtype.kind == "T":
        encoding["dtype"] = data.dtype
    if not is_v2:
        encoding["serializer"] = _codecs([array.serializer])[0]
    # As xarray's own engine: the fill value of the array masks in format 2, the attribute in format 3.
    if is_v2 if fill_as_mask is None else fill_as_mask:
        if array.fill_value is not None:
            attributes["_FillValue"] = array.fill_value
    else:
        if not is_v2:
            encoding["fill_value"] = array.fill_value
        if "_FillValue" in attributes:
            attributes["_FillValue"] = compat.FillValueCoder.decode(attributes["_FillValue"], array.dtype)
    return xr.Variable(dimensions, compat.LazilyIndexedArray(data), attributes, encoding, fastpath=True)


def _declared(array: Array, name: str, sizes: str) -> Any:
    """The chunks or shards of an array: for each axis their size, or all sizes where they differ."""
    try:
        return getattr(array, name)
    except errors.RectilinearChunksError:
        return tuple(map(_size_or_sizes, getattr(array, sizes)))


def _size_or_sizes(sizes: Any) -> Any:
    """The size of all chunks but a smaller last one, or else all sizes; more than a million are never listed."""
    if not len(sizes):
        return 0
    first, last = sizes[0], sizes[-1]
    equal = sizes.count(first) + (last != first) == len(sizes)
    return first if equal and last <= first else sizes


def _codecs(codecs: Iterable[Any]) -> tuple[Any, ...]:
    """Codecs as JSON, which every library takes; those of format 2 are objects of numcodecs already."""
    return tuple(
        {"name": codec.name, "configuration": codec.configuration()} if hasattr(codec, "configuration") else codec
        for codec in codecs
    )


class ZelligeArray(BackendArray):
    """An array as xarray reads it: any index, and awaited as well."""

    __slots__ = ("_array", "dtype", "shape")

    def __init__(self, array: Array) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = compat.in_memory_dtype(array.dtype)

    @property
    def store_path(self) -> storage.StorePath:
        """Where the array is: what is written elsewhere must not be read from what that replaces."""
        return self._array.store_path

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(compat.read_indexed(self._array, key), self.dtype)

    async def async_getitem(self, key: Any) -> Any:
        """The same in a thread, so that others go on meanwhile."""
        return await asyncio.to_thread(self.__getitem__, key)

    def __deepcopy__(self, memo: Any) -> ZelligeArray:
        return self  # the values are in the store, and stay there

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return "zellige.xarray", repr(self._array.store), self._array.path, repr(self._array.metadata.to_documents())

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._array.store, MemoryStore):
            raise TypeError(
                f"{self._array.store!r} is in the memory of this process, and what reads from it cannot be sent to "
                "others; use a directory or an object store, or load the dataset first"
            )
        return ZelligeArray, (self._array,)
