"""The functions at the top of the package that open, save and load: arrays, groups, or whatever is there.

Functions that do a whole job, such as `save`, `rechunk` or `consolidate_metadata`, close what they open by a path or a
URL: a zip file is complete then, and a handle that they give back can be read. What functions that create or open give
back is a context manager: `with zellige.open("x.zip") as root` writes a zip file when the block ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from zellige.errors import ArrayNotFoundError, GroupNotFoundError, NodeNotFoundError
from zellige.nodes import array, node
from zellige.nodes.array import Array, open_array_or
from zellige.nodes.consolidated import warn_of_rectilinear
from zellige.nodes.create import (
    KNOWN_OPTIONS,
    NO_MEANING,
    ZarrFormat,
    check_format,
    create_array,
    from_array,
    like,
    modern_options,
)
from zellige.nodes.group import Group, Node, make_group
from zellige.settings import ArrayConfig
from zellige.stores import Store, StoreLike, finishing, locate, opened, reopened

if TYPE_CHECKING:
    from zellige.display.text import Tree

Mode: TypeAlias = Literal["r", "r+", "a", "w", "w-"]


def _mode(mode: Mode | None, store: StoreLike) -> Mode:
    """Return the mode that is meant: by default `a`, and `r` for a store that is read-only."""
    if mode is None:
        return "r" if getattr(store, "read_only", False) else "a"
    if mode not in ("r", "r+", "a", "w", "w-"):
        raise ValueError(f"mode={mode!r} must be one of 'r', 'r+', 'a', 'w', 'w-'")
    return mode


def _find(
    store: StoreLike, path: str | None, mode: Mode, storage_options: Mapping[str, Any] | None
) -> tuple[Store, str]:
    """Return the store and the path of a node to be opened."""
    return locate(store, node.normalize_path(path), read_only=mode == "r", storage_options=storage_options)


def open(
    store: StoreLike = None,
    *,
    mode: Mode | None = None,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | ArrayConfig | None = None,
    **create: Any,
) -> Node:
    """Open the array or the group at a place.

    Parameters
    ----------
    store
        A path, a URL, a `Store`, a `StorePath`, a dict, or None for memory.
    mode
        `r` reads only, `r+` reads and writes, `a` opens or creates, `w` creates anew, `w-` creates, and fails if there
        is something already. Reading modes never create anything. By default `a`, and `r` for a read-only store.
    zarr_format
        2 or 3; of a node that is there whichever it has, of a new one the setting `default_zarr_format`.
    path
        The path in the store; the root by default.
    storage_options
        How to reach a server.
    config
        Settings of an array's handle, as for `create_array`.
    create
        Options of `create_array` for the modes that create. Where there is nothing they make an array if `shape` or
        `data` is among them, else a group.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.create_array(store, name="t", data=[1.5, 2.5]).attrs["unit"] = "K"
    >>> zellige.open(store, path="t", mode="r").attrs["unit"]
    'K'
    >>> zellige.open(store, mode="r")
    <zellige.Group / in MemoryStore(<dict of 3>, read_only=True)>
    """
    mode = _mode(mode, store)
    wants_array = "shape" in create or "data" in create
    common: dict[str, Any] = {"mode": mode, "zarr_format": zarr_format, "path": path}
    common["storage_options"] = storage_options
    if mode not in ("w", "w-"):
        target, place = _find(store, path, mode, storage_options)
        found = open_array_or(target, place, config, zarr_format)
        if isinstance(found, Array):
            _check_known(create)
            return found
        if found is not None and not wants_array and not create:
            return Group.from_documents(target, place, found)
        if found is None and mode != "a":
            reason = node.why_missing(target, place)
            raise NodeNotFoundError(f"there is no array and no group at '/{place}' in {target!r}{reason}")
        if found is None and not wants_array:
            _refuse_lost_chunks(target, place)
    if wants_array:
        return open_array(store, config=config, **common, **create)
    return open_group(store, **common, **create)


_LOOKED_AT = 1000  # keys of a directory


def _refuse_lost_chunks(store: Store, path: str) -> None:
    """Raise if keys at a place without a node look like chunks: a new group would hide that an array was lost."""
    from zellige.nodes import remove  # needed only before a group is created

    listing = store.list(node.prefix(path), recursive=False)
    folders = [found for found in listing.prefixes if remove.looks_like_chunk(node.relative(found, path).rstrip("/"))]
    for key in chain(listing, *(islice(store.list(folder), _LOOKED_AT) for folder in folders)):
        if remove.looks_like_chunk(node.relative(key, path)):
            raise remove.lost_chunk(store, key)


def open_array(
    store: StoreLike = None,
    *,
    path: str | None = "",
    mode: Mode | None = None,
    zarr_format: ZarrFormat | None = None,
    storage_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | ArrayConfig | None = None,
    **create: Any,
) -> Array:
    """Open an array, or create it where the mode says so. Parameters: see `open`.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> a = zellige.open_array(store, shape=(4,), dtype="int8", chunks=[[1, 3]])
    >>> a[:] = 7
    >>> zellige.open_array(store, mode="r")[:]
    array([7, 7, 7, 7], dtype=int8)
    """
    mode = _mode(mode, store)
    options: dict[str, Any] = {"config": config, "zarr_format": zarr_format}
    if create:
        _check_known(create)
        options |= modern_options({**create, "config": config}, zarr_format)
    if mode in ("w", "w-"):
        options = {"overwrite": mode == "w", "storage_options": storage_options, **options}
        return create_array(store, name=path, **options)
    target, place = _find(store, path, mode, storage_options)
    try:
        return array.open_array(target, place, options["config"], zarr_format)
    except ArrayNotFoundError:
        if mode != "a" or ("shape" not in create and "data" not in create):
            raise
    return create_array(target, name=place, **options)


def open_group(
    store: StoreLike = None,
    *,
    mode: Mode | None = None,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    attributes: Mapping[str, Any] | None = None,
    use_consolidated: bool | None = None,
    check: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **older: Any,
) -> Group:
    """Open a group, or create it where the mode says so.

    Parameters
    ----------
    store, mode, path, zarr_format, storage_options
        See `open`.
    attributes
        The attributes of a new group.
    use_consolidated
        By default what the group's consolidated metadata says about its members is used if there is some; True demands
        it, False ignores it.
    check
        Whether to compare it with the members first.
    older
        Keywords that scripts have and that mean nothing here.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.open_group(store, path="runs/1", attributes={"seed": 3}).attrs["seed"]
    3
    >>> zellige.open_group(store, mode="r")["runs"].name
    '/runs'
    """
    if unknown := sorted(older.keys() - NO_MEANING):
        raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}")
    mode = _mode(mode, store)
    if mode in ("w", "w-"):
        return create_group(
            store,
            path=path,
            zarr_format=zarr_format,
            overwrite=mode == "w",
            attributes=attributes,
            storage_options=storage_options,
        )
    target, place = _find(store, path, mode, storage_options)
    try:
        return Group.open(target, place, zarr_format, use_consolidated, check)
    except GroupNotFoundError:
        if mode != "a":
            raise
    return create_group(target, path=place, zarr_format=zarr_format, attributes=attributes)


def create_group(
    store: StoreLike = None,
    *,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """Create a group, with the groups above it.

    Parameters
    ----------
    store, path, zarr_format, storage_options
        See `open`.
    overwrite
        Whether to replace a node that is there, with all nodes below it; files that are not part of them stay.
    attributes
        Its attributes.

    >>> import zellige
    >>> zellige.create_group(attributes={"title": "tides"}).attrs["title"]
    'tides'
    """
    target, place = locate(store, node.new_path(path), storage_options=storage_options)
    return make_group(target, place, check_format(zarr_format), attributes, overwrite=overwrite)


def group(store: StoreLike = None, *, overwrite: bool = False, **options: Any) -> Group:
    """Open the group at a place, created if there is nothing.

    Parameters
    ----------
    store
        The place, as for `open`; None for a new group in memory.
    overwrite
        Whether to remove the group that is there, and create a new one.
    **options
        As for `open_group`.

    >>> import zellige
    >>> root = zellige.group()
    >>> root["x"] = [1, 2, 3]
    >>> root["x"][1:]
    array([2, 3])
    """
    return open_group(store, mode="w" if overwrite else "a", **options)


def _check_known(options: Mapping[str, Any]) -> None:
    """Refuse keywords that `create_array` would refuse, also where it is not called."""
    if unknown := sorted(options.keys() - NO_MEANING - KNOWN_OPTIONS):
        raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}; see create_array for those that there are")


def open_like(a: Any, path: StoreLike, **options: Any) -> Array:
    """Open the array at a place, or create it there like another.

    Parameters
    ----------
    a
        Anything array-like, whose shape, type and chunks a new array gets.
    path
        The place, as for `open`.
    **options
        Other options than those of `a`, as for `open`.

    >>> import zellige
    >>> a = zellige.zeros((59, 2), chunks=[[31, 28], 2], dtype="int8")
    >>> zellige.open_like(a, {}).write_chunk_sizes
    ((31, 28), (2,))
    """
    return open_array(path, **like(a, options))


# -- consolidated metadata and trees --------------------------------------------------------------


def consolidate_metadata(
    store: StoreLike,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """Write the metadata of all nodes below a group into the group's own, so that one request reads it all.

    A `CompatibilityWarning` names members with rectilinear chunks: zarr-python opens no group whose consolidated
    metadata holds one, unless its setting `array.rectilinear_chunks` is on, or `use_consolidated=False` is given.

    Parameters
    ----------
    store
        A path, a URL, a `Store`, a `StorePath` or a dict.
    path
        Where in the store the group is; the root by default.
    zarr_format
        The format of the group, where both formats have one there.
    storage_options
        Options for the store, if `store` is a URL.

    Returns the group, which uses its new consolidated metadata.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> _ = zellige.create_array(store, name="a/t", data=[1, 2])
    >>> _ = zellige.consolidate_metadata(store)
    >>> [name for name, _ in zellige.open_consolidated(store).members(max_depth=None)]
    ['a', 'a/t']
    """
    with opened(store, node.normalize_path(path), storage_options=storage_options) as (target, place):
        held = Group.open(target, place, zarr_format, use_consolidated=False)._consolidate()
    warn_of_rectilinear(held.name, held.metadata.consolidated or {}, stacklevel=2)
    found = reopened(store, target, storage_options)
    return held if found is target else Group.open(found, place, zarr_format)


def open_consolidated(store: StoreLike, *, use_consolidated: Literal[True] = True, **options: Any) -> Group:
    """Open a group by its consolidated metadata alone. Parameters: see `open_group`.

    `check=True` compares it with the members first, and raises `StaleMetadataError` if they differ.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.save_group(store, t=[1, 2])
    >>> _ = zellige.consolidate_metadata(store)
    >>> list(zellige.open_consolidated(store, check=True))
    ['t']
    """
    if use_consolidated is not True:
        raise TypeError("open_consolidated uses consolidated metadata; call open_group to do without")
    mode: Any = options.pop("mode", None) or ("r" if getattr(store, "read_only", False) else "r+")
    return open_group(store, mode=mode, use_consolidated=True, **options)


def tree(grp: StoreLike | Group, expand: bool | None = None, level: int | None = None, **options: Any) -> Tree:
    """Show the hierarchy below a group, or at a place, as a tree. Parameters: see `Group.tree`.

    >>> import zellige
    >>> root = zellige.group()
    >>> root["a"] = [1, 2, 3]
    >>> zellige.tree(root, plain=True)
    /
    `-- a (3,) int64
    """
    root = grp if isinstance(grp, Group) else open_group(grp, mode="r")
    return root.tree(expand, level, **options)


# -- saving and loading ---------------------------------------------------------------------------


def save_array(store: StoreLike, arr: Any, *, path: str = "", **options: Any) -> None:
    """Store anything array-like as an array, in place of a node that is there already.

    Parameters
    ----------
    store, path
        Where the array goes; see `open`.
    arr
        The array.
    options
        As for `from_array`.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.save_array(store, [1, 2, 3], path="x", chunks=[[1, 2]])
    >>> zellige.load(store, path="x")
    array([1, 2, 3])
    """
    target, place = locate(store, node.new_path(path), storage_options=options.pop("storage_options", None))
    with finishing(store, target):
        from_array(target, data=arr, name=place, **{"overwrite": True, **options})


def save_group(
    store: StoreLike,
    *args: Any,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **arrays: Any,
) -> None:
    """Store several arrays in a group: `arr_0`, `arr_1`, … and those given by name. Others in the group stay.

    Parameters
    ----------
    store, path, zarr_format, storage_options
        Where the group is; see `open`.
    args, arrays
        Anything array-like.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.save_group(store, [1, 2], days=[31, 28])
    >>> sorted(zellige.load(store))
    ['arr_0', 'days']
    """
    if not args and not arrays:
        raise ValueError("save_group needs at least one array")
    root = open_group(store, path=path, zarr_format=zarr_format, storage_options=storage_options)
    with finishing(store, root.store):
        for name, data in {**{f"arr_{k}": data for k, data in enumerate(args)}, **arrays}.items():
            root.array(name, data, overwrite=True)


def save(
    store: StoreLike,
    *args: Any,
    zarr_format: ZarrFormat | None = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    """Store one array as an array, or several as a group; keywords name arrays.

    Parameters: see `save_array` and `save_group`.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.save(store, [[1, 2], [3, 4]])
    >>> zellige.load(store)
    array([[1, 2],
           [3, 4]])
    """
    common: dict[str, Any] = {"zarr_format": zarr_format, "storage_options": storage_options}
    arrays = {name: value for name, value in kwargs.items() if hasattr(value, "__array__")}
    if not args and not kwargs:
        raise ValueError("save needs at least one array")
    if len(args) == 1 and not arrays:
        save_array(store, args[0], path=path or "", **common, **kwargs)
    else:
        save_group(store, *args, path=path, **common, **kwargs)


def load(
    store: StoreLike,
    path: str | None = None,
    zarr_format: ZarrFormat | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Read the array at a place into numpy; of a group, a dict of the arrays in it. Parameters: see `open`.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.save(store, [1, 2, 3])
    >>> zellige.load(store)
    array([1, 2, 3])
    """
    found = open(store, path=path, mode="r", zarr_format=zarr_format, storage_options=storage_options)
    if isinstance(found, Array):
        return found[...]
    return {name: np.asarray(member[...]) for name, member in found.arrays()}
