"""`convert`: other formats, and Zarr format 2, as arrays and groups of Zarr format 3.

A `Source` lists the groups and arrays first, which are checked by making each array in memory without its values. What
cannot be represented is refused then, before anything is written. Values follow box by box, in bounded memory.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.lib import format as npy

from zellige.display.progress import Progress, ProgressLike, check_progress
from zellige.errors import (
    ChunkShapeError,
    ConflictError,
    NodeNotFoundError,
    ZelligeError,
    ZelligeWarning,
    hint,
    warn_caller,
)
from zellige.metadata import GroupMetadata
from zellige.metadata.json import write_json
from zellige.nodes import hierarchy, node, remove
from zellige.nodes.array import Array
from zellige.nodes.create import create_array
from zellige.nodes.remove import Work
from zellige.stores import Store, StoreLike, finishing, locate, opened
from zellige.stores.base import digest
from zellige.stores.resolve import place
from zellige.tools.copy import moved, transfer
from zellige.tools.migrate import Upgrade, migrate
from zellige.tools.rechunk import Boxes, group_chunks
from zellige.tools.scan import Scan
from zellige.types import JSON, AnyArray

if TYPE_CHECKING:
    from zellige.nodes.node import NodeMetadata

_ELEMENTS = 1 << 22
"""How many elements are read at a time, unless a chunk has more."""

Region: TypeAlias = tuple[slice, ...]
Unsupported: TypeAlias = Literal["raise", "skip"]


class NotRepresentableError(ZelligeError, ValueError):
    """Something in the source that has no form in Zarr; `path` says where."""

    path: str


@dataclass
class Part:
    """An array of the source."""

    path: str
    attributes: dict[str, Any]
    options: dict[str, Any]
    """What `create_array` needs."""
    chunks: tuple[int, ...] | None
    """The chunks that the source has."""
    values: Callable[[Region], Any]
    """The values of a region."""
    slabs: int | None = None
    """The axis along which the values have to be read one slab after the other, if they do."""


@dataclass
class Source:
    """The nodes of a source by their paths, and what is left out of it."""

    unsupported: Unsupported
    """What becomes of parts without a form in Zarr."""
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The attributes of each group."""
    arrays: dict[str, Part] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    identity: dict[str, JSON] = field(default_factory=dict)
    """Which file it is, and in which version."""

    def leave_out(self, name: str, error: NotRepresentableError) -> None:
        """Go on without something that has no form in Zarr; raises unless such is to be skipped."""
        if self.unsupported == "raise":
            raise error
        self.skipped[name] = str(error)


@dataclass(frozen=True)
class Converted:
    """What `convert` has done, or would do in a dry run; nodes by their paths below the target."""

    arrays: tuple[str, ...]
    groups: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """What was left out, with the reason: links, attributes, and with `unsupported="skip"` arrays."""
    unchanged: tuple[str, ...] = ()
    """Nodes that were of Zarr format 3 already."""
    nbytes: int = 0
    """The bytes of the values."""
    dry_run: bool = False

    def __str__(self) -> str:
        would = "would be " if self.dry_run else ""
        lines = [f"left out {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join([*lines, f"{len(self.arrays)} arrays and {len(self.groups)} groups {would}converted"])


def convert(
    source: Any,
    dest: StoreLike = None,
    *,
    path: str = "",
    name: str | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    unsupported: Unsupported = "raise",
    progress: ProgressLike = None,
    storage_options: Mapping[str, Any] | None = None,
    dest_storage_options: Mapping[str, Any] | None = None,
    **create: Any,
) -> Converted:
    """Write what is in a file of another format, or in Zarr format 2, as Zarr format 3.

    Dimension scales of HDF5 become dimension names, `_FillValue` the fill value (and stays an attribute, as xarray
    writes it), enumerations integers with `flag_values` and `flag_meanings`. Soft and external links are left out, and
    so are attributes without a form in JSON. Whatever is left out is named by a warning, and in the result.

    Values are written first and metadata last: what was stopped is no node, and the same call finishes it. Arrays that
    were complete are not written again, if the file is still the same.

    Parameters
    ----------
    source
        An HDF5 or netCDF4 file (needs `pip install 'zellige[hdf5]'`), an open file, group or dataset of h5py; a `.npy`
        or `.npz` file, never unpickled; or the place of a node of Zarr format 2.
    dest
        Where it goes. A node of Zarr format 2 is converted in place without it, by `migrate`; the metadata of format 2
        stays, so that it can be undone. Chunks of Zarr format 2 are copied as they are.
    path
        The node, group or dataset within the source; by default all of it.
    name
        The path within `dest`; by default its root.
    overwrite
        Replace a node that is there.
    dry_run
        Check everything and write nothing.
    unsupported
        What to do about what Zarr cannot hold, such as references: `"raise"` an error before anything is written, or
        `"skip"` it.
    progress
        Called as `progress(done, total, path)` after each box of values; True shows a bar.
    storage_options, dest_storage_options
        How to reach the servers of source and target; see `zellige.open`.
    create
        Options of `create_array` for every array, such as `compressors` or `chunks`; chunks of the source are kept.
        Chunks and shards that are given by the names of dimensions apply where these are, and arrays without them keep
        their own; a name that no array has is an error.

    >>> import numpy as np, os, tempfile, zellige
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     np.save(os.path.join(directory, "days.npy"), [31, 28, 31])
    ...     store = zellige.MemoryStore()
    ...     print(zellige.convert(os.path.join(directory, "days.npy"), store))
    1 arrays and 0 groups converted
    >>> zellige.open_array(store)[:]
    array([31, 28, 31])
    """
    check_progress(progress)
    if unsupported not in ("raise", "skip"):
        raise ValueError(f"unsupported={unsupported!r} must be 'raise' or 'skip'")
    with ExitStack() as stack:
        reading = Source(unsupported)
        if not _find_parts(reading, source, path, stack):
            if create:
                raise TypeError(
                    f"{', '.join(create)}: chunks and codecs of Zarr format 2 are kept as they are; use rechunk for "
                    "others"
                )
            in_place = dest is None and not dry_run
            node_path = node.normalize_path(path)
            store, top = locate(source, node_path, read_only=not in_place, storage_options=storage_options)
            stack.enter_context(finishing(source if in_place else None, store))
            target = dest, name, dest_storage_options
            return _from_v2(store, top, target, progress, overwrite=overwrite, dry_run=dry_run)
        if dest is None:
            raise ValueError(f"{source!r} is not Zarr, so it cannot be converted in place; give dest=")
        reading.identity = _identity(source)
        _check_rules(reading, create)
        models = _models(reading, create)
        for left_out, reason in reading.skipped.items():
            warn_caller(f"left out {left_out}: {reason}", ZelligeWarning)
        arrays, groups = tuple(reading.arrays), tuple(reading.groups)
        if not dry_run:
            with opened(dest, node.new_path(name), storage_options=dest_storage_options) as where:
                _write(reading, models, where, progress, overwrite=overwrite)
        nbytes = sum(model.nbytes for model in models.values())
        return Converted(arrays, groups, reading.skipped, (), nbytes, dry_run)


# -- what the source is ---------------------------------------------------------------------------


def _find_parts(found: Source, source: Any, path: str, stack: ExitStack) -> bool:
    """Find out what there is to convert; False for a place of Zarr."""
    if type(source).__module__.split(".")[0] == "h5py":
        _add_hdf5(found, source, path, stack)
        return True
    file = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if file is None or not os.path.isfile(file):
        return False
    with open(file, "rb") as opened:
        head = opened.read(8)
    if head.startswith(b"\x93NUMPY"):
        _add_npy(found, file)
    elif head == b"\x89HDF\r\n\x1a\n":
        _add_hdf5(found, file, path, stack)
    elif head.startswith(b"PK"):
        return _add_npz(found, stack.enter_context(zipfile.ZipFile(file)), path)
    elif head.startswith(b"CDF"):
        raise NotRepresentableError(
            f"{file!r} is a netCDF file of the classic format; make it netCDF4 first: nccopy -k nc4 IN OUT", path=""
        )
    else:
        raise NotRepresentableError(f"{file!r} is not HDF5, netCDF4, .npy, .npz or Zarr, by its first bytes", path="")
    return True


def _identity(source: Any) -> dict[str, JSON]:
    """Which file a source is, and in which version: its size and the time of its last change.

    With the file goes the place within it, if the source is an object of h5py.
    """
    given = source.file.filename if hasattr(source, "file") else source
    file = os.path.realpath(os.fsdecode(given))
    version = ""  # of what is in memory
    with suppress(OSError):
        info = os.stat(file)
        version = f"{info.st_size} {info.st_mtime_ns}"
    return {"from": f"{file} {getattr(source, 'name', '')}", "version": version}


def _add_npy(found: Source, file: str) -> None:
    try:
        data = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise NotRepresentableError(f"{file!r} cannot be read: {error}", path="") from error
    found.arrays[""] = Part("", {}, {"shape": data.shape, "dtype": data.dtype}, None, data.__getitem__)


def _add_npz(found: Source, archive: zipfile.ZipFile, path: str) -> bool:
    """Add one array for each member, read as a stream: a compressed member has no places to jump to.

    False for any other zip file, such as one with nodes of Zarr.
    """
    file, members = archive.filename, archive.namelist()
    if not members or not all(member.endswith(".npy") for member in members):
        return False
    if not path:
        found.groups[""] = {}
    for member in members:
        name = member.removesuffix(".npy")
        if path in ("", name):
            with archive.open(member) as opened:
                shape, in_columns, dtype = _header(opened)
            if dtype.hasobject:
                what = f"{file!r}: {name!r}"
                reason = f"{what} holds Python objects as a pickle, which is never loaded"
                found.leave_out(name, NotRepresentableError(reason, path=what))
                continue
            values = _slabs(archive, member, dtype, "F" if in_columns else "C")
            slabs = max(len(shape) - 1, 0) if in_columns else 0
            where, options = "" if path else node.new_path(name), {"shape": shape, "dtype": dtype}
            found.arrays[where] = Part(where, {}, options, None, values, slabs)
    if path and not found.arrays and not found.skipped:
        raise NodeNotFoundError(f"{file!r} has no array {path!r}; it has {members}")
    return True


def _header(opened: Any) -> tuple[Any, bool, np.dtype[Any]]:
    """Shape, whether columns come one after the other, and type of what a stream holds."""
    read = npy.read_array_header_1_0 if npy.read_magic(opened) == (1, 0) else npy.read_array_header_2_0
    return read(opened)


def _slabs(
    archive: zipfile.ZipFile, member: str, dtype: np.dtype[Any], order: Literal["C", "F"]
) -> Callable[[Region], AnyArray]:
    """Gives the values of a member of a `.npz` file that come next, along the axis that varies slowest."""

    @cache
    def stream() -> Any:
        opened = archive.open(member)
        _header(opened)
        return opened

    def read(region: Region) -> AnyArray:
        shape = tuple(part.stop - part.start for part in region)
        wanted = prod(shape) * dtype.itemsize
        raw = stream().read(wanted)
        if len(raw) != wanted:
            raise NotRepresentableError(f"{member!r} ends early: {len(raw)} of {wanted} bytes", path=member)
        if not stream().peek(1):  # these were the last ones
            stream().close()
            stream.cache_clear()
        return np.ndarray(shape, dtype, raw, order=order)

    return read


# -- writing --------------------------------------------------------------------------------------


def _models(source: Source, create: Mapping[str, Any]) -> dict[str, Array]:
    """Every array of the source, made in memory, which checks all but its values."""
    models: dict[str, Array] = {}
    for path in [*source.groups, *source.arrays]:
        try:
            node.new_path(path)
            if path in source.arrays:
                models[path] = create_array(None, **_options(source.arrays[path], create))
        except ChunkShapeError as error:
            # The options are wrong, and not the array.
            raise ChunkShapeError(
                f"{path or '/'}: {error}; arrays that differ are given chunks by the names of dimensions, such as "
                "{'time': 31}",
                axis=None,
            ) from error
        except ValueError as error:
            if source.unsupported == "raise":
                raise NotRepresentableError(
                    f"{path or '/'} cannot be converted: {error}; unsupported='skip' leaves such out", path=path
                ) from error
            source.groups.pop(path, None)
            source.arrays.pop(path, None)
            source.skipped[path] = str(error)
    return models


def _options(part: Part, create: Mapping[str, Any]) -> dict[str, Any]:
    """What `create_array` gets for a part: chunks of the source, unless others are given."""
    chunks = {} if part.chunks is None else {"chunks": part.chunks}
    given = dict(create)
    for option in _RULES:
        if isinstance(create.get(option), Mapping):
            rules = _applied(part, create[option])
            kept = dict(enumerate(part.chunks or ())) if option == "chunks" else {}
            given |= {option: kept | rules}
            if not rules:
                del given[option]
    return {**chunks, "attributes": part.attributes, **part.options, "zarr_format": 3, **given}


_RULES = ("chunks", "shards")
"""Options that may be given by the names of dimensions, or by the numbers of axes."""


def _applied(part: Part, rules: Mapping[Any, Any]) -> dict[int, Any]:
    """The rules for dimensions that an array has, by the numbers of its axes."""
    axes: dict[Any, int] = {axis: axis for axis in range(len(part.options["shape"]))}
    axes |= {name: axis for axis, name in enumerate(part.options.get("dimension_names", ())) if name is not None}
    return {axes[key]: rule for key, rule in rules.items() if key in axes}


def _check_rules(source: Source, create: Mapping[str, Any]) -> None:
    """Refuse rules for dimensions that no array has."""
    parts = source.arrays.values()
    for option in _RULES:
        rules = create.get(option)
        for key in rules if isinstance(rules, Mapping) else ():
            if not any(_applied(part, {key: None}) for part in parts):
                names = {name for part in parts for name in part.options.get("dimension_names", ()) if name}
                known = hint(str(key), sorted(names)) if names else "the dimensions have no names"
                raise ChunkShapeError(f"{option}: no array has the dimension {key!r}; {known}", axis=None)


def _write(
    source: Source, models: Mapping[str, Array], target: tuple[Store, str], progress: ProgressLike, *, overwrite: bool
) -> None:
    """Write arrays one after the other, each with its document last, and then the groups; the top comes last."""
    store, top = target
    given: dict[str, NodeMetadata] = {path: model.metadata for path, model in models.items()}
    given |= {path: GroupMetadata(attributes) for path, attributes in source.groups.items()}
    # No part speaks of some groups above others.
    new: dict[str, NodeMetadata] = {above: GroupMetadata() for path in given for above in node.parents(path)} | given
    if not new:
        return
    boxes = {path: _boxes(part, models[path]) for path, part in source.arrays.items()}
    documents = {path: metadata.to_documents() for path, metadata in new.items()}
    work = Work("convert", {**source.identity, "nodes": digest(json.dumps(documents, sort_keys=True).encode())})
    if not overwrite:
        _refuse_other_version(store, top, work)
    left = hierarchy.begin(store, top, work, new, overwrite=overwrite)
    if left != "mark":
        with Progress(progress, sum(map(len, boxes.values())), "converted", "boxes") as report:
            for path, part in source.arrays.items():
                array = Array(store, node.join(top, path), models[path].metadata, models[path].config)
                if left == "parts" and node.there(store, array.path) is not None:
                    report.skip(len(boxes[path]))
                else:
                    _write_array(part, array, boxes[path], report)
        groups = [path for path in new if path not in models]
        for path in sorted(groups, key=node.depth, reverse=not store.traits.transactional):
            if left == "nothing" or node.there(store, node.join(top, path)) is None:
                node.put_new(store, node.join(top, path), new[path])
    remove.remove_mark(store, top)


def _write_array(part: Part, array: Array, boxes: Boxes, report: Progress) -> None:
    """Write the values of an array, and then its document; in a transaction, which may want it so, before them."""
    if array.store.traits.transactional:
        node.put_new(array.store, array.path, array.metadata)
    try:
        for region in boxes:
            array[region] = part.values(region)
            report.advance(part.path or "/")
    except UnicodeDecodeError as error:
        raise NotRepresentableError(
            f"{part.path or '/'} holds text that is not UTF-8: {error}", path=part.path
        ) from error
    if not array.store.traits.transactional:
        node.put_new(array.store, array.path, array.metadata)


def _refuse_other_version(store: Store, top: str, work: Work) -> None:
    """Refuse to finish what was begun with another version of the same file, which would mix the two."""
    mark = remove.read_mark(store, top)
    earlier = None if mark is None else mark.work
    if earlier is None or earlier.name != work.name or node.there(store, top) is not None:
        return
    if earlier.asked.get("from") == work.asked["from"] and earlier.asked.get("version") != work.asked["version"]:
        raise ConflictError(
            f"'/{top}' in {store!r} is not free: a convert of the same source was stopped there, and the source "
            f"{work.asked['from']} has changed since. Pass overwrite=True to convert it anew, or remove what is there "
            "with zellige.vacuum(…, unfinished=True)"
        )


def _boxes(part: Part, model: Array) -> Boxes:
    """How the values are cut on their way."""
    if part.slabs is not None:
        return Boxes.of(model.write_chunk_sizes[k] if k == part.slabs else (n,) for k, n in enumerate(model.shape))
    stored = Boxes.of(model.write_chunk_sizes)
    if part.chunks is None:
        return group_chunks(stored, stored, _ELEMENTS)
    ends = (np.minimum(np.arange(c, n + c, c), n) for c, n in zip(part.chunks, model.shape, strict=True))
    return group_chunks(stored, Boxes(tuple(ends)), _ELEMENTS)


# -- from Zarr format 2 ---------------------------------------------------------------------------


def _from_v2(
    store: Store,
    top: str,
    target: tuple[StoreLike, str | None, Mapping[str, Any] | None],
    progress: ProgressLike,
    *,
    overwrite: bool,
    dry_run: bool,
) -> Converted:
    """Convert in place, or copy chunks as they are, and none of the old documents, and write the new ones last."""
    upgrade = Upgrade.of(store, top)
    if upgrade.failed:
        path, reason = next(iter(upgrade.failed.items()))
        more = f", and {len(upgrade.failed) - 1} more" if len(upgrade.failed) > 1 else ""
        raise NotRepresentableError(f"'/{path}'{more} has no form in Zarr format 3: {reason}", path=path)
    dest, name, options = target
    nodes = {node.relative(path, top): upgrade.metadata(path) for path in sorted(upgrade.nodes)}
    groups = {path for path, metadata in nodes.items() if isinstance(metadata, GroupMetadata)}
    changed, unchanged = (
        [node.relative(path, top) for path in sorted(paths)] for paths in (upgrade.converted, upgrade.skipped)
    )
    converted = Converted(
        arrays=tuple(path for path in changed if path not in groups),
        groups=tuple(path for path in changed if path in groups),
        unchanged=tuple(unchanged),
        dry_run=dry_run,
    )
    if dest is None or dry_run:
        if not dry_run:
            migrate(store, top, dry_run=False, progress=progress)
        return converted
    with opened(dest, node.new_path(name), storage_options=options) as (there, where):
        origin = Scan(store, [top], 2)
        origin.refuse_hidden()
        if overwrite and place(store, top).within(place(there, where)):
            raise ValueError("the source lies within dest, which would be removed before it is read; use another place")
        work = Work("convert", {"from": repr(place(store, top)), "nodes": sorted(nodes)})
        left = hierarchy.begin(there, where, work, nodes, overwrite=overwrite)
        if left != "mark":
            content = {
                node.join(where, node.join(path, name)): write_json(document)
                for path, metadata in nodes.items()
                for name, document in metadata.to_documents().items()
            }
            chunks = (
                {moved(key, top, where) for key in {*origin.keys} - upgrade.old_keys}
                - content.keys()
                - {remove.mark_key(where)}
            )
            for batch in reversed(node.copy_order(content)) if left == "parts" else ():
                there.delete(batch)  # documents of an earlier call; chunks are written again
            with Progress(progress, len(chunks) + len(content), "copied") as report:
                transfer((store, top), (there, where), chunks, report, content=content)
        remove.remove_mark(there, where)
    return converted


# -- HDF5 and netCDF4 -----------------------------------------------------------------------------

_BOOKKEEPING = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"}
_BOOKKEEPING |= {"_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"}
"""Attributes by which HDF5 and netCDF4 keep dimensions; dimension names say the same."""
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"


def _add_hdf5(found: Source, source: Any, path: str, stack: ExitStack) -> None:
    """Add what is in a file, in a group of h5py, or a dataset alone."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 and netCDF4 files need h5py: pip install 'zellige[hdf5]'") from error
    top = stack.enter_context(h5py.File(source, "r")) if isinstance(source, str) else source
    if path:
        if path not in top:
            raise NodeNotFoundError(f"there is no {path!r} in {top.file.filename!r}")
        top = top[path]
    walk = _Walk(h5py, found)
    (walk.add_dataset if isinstance(top, h5py.Dataset) else walk.add_group)("", top)


@dataclass
class _Walk:
    """Goes through a file once, and collects what is to be converted."""

    h5py: Any
    source: Source
    seen: dict[Any, str] = field(default_factory=dict)
    """The objects that were met, with their paths; one may have several names, even below itself."""

    def add_group(self, path: str, group: Any) -> None:
        """Collect a group, and then what is in it."""
        self.seen[self._identity(group)] = path or "/"
        self.source.groups[path] = dict(self._attributes(path, group))
        for name in group:
            self._member(f"{path}/{name}" if path else name, group, name)

    def _member(self, path: str, group: Any, name: str) -> None:
        link = group.get(name, getlink=True)
        if not isinstance(link, self.h5py.HardLink):
            where = getattr(link, "filename", "") + getattr(link, "path", "")
            self.source.skipped[path] = f"a link to {where}, which Zarr does not have"
            return
        found = group[name]
        earlier = self.seen.get(self._identity(found))
        if earlier is not None:
            self.source.skipped[path] = f"another name of {earlier}, which Zarr does not have"
        elif isinstance(found, self.h5py.Group):
            self.add_group(path, found)
        elif isinstance(found, self.h5py.Dataset):
            self.seen[self._identity(found)] = path
            self.add_dataset(path, found)
        else:
            self.source.skipped[path] = "a named type, which Zarr does not have"

    def _identity(self, found: Any) -> Any:
        info = self.h5py.h5o.get_info(found.id)
        return info.fileno, info.addr

    # -- datasets ---------------------------------------------------------------------------------

    def add_dataset(self, path: str, dataset: Any) -> None:
        """Collect a dataset, unless it stands for a dimension only."""
        if _NO_VARIABLE in str(dataset.attrs.get("NAME", "")):
            return  # nothing but the name and length of a dimension
        try:
            self.source.arrays[path] = self._part(path, dataset)
        except NotRepresentableError as error:
            self.source.leave_out(path or "/", error)

    def _part(self, path: str, dataset: Any) -> Part:
        if dataset.shape is None:
            raise self._refused(path, "has no values and no shape")
        attributes = dict(self._attributes(path, dataset))
        dtype, values = self._type(path, dataset)
        own = dataset.is_scale and dataset.ndim == 1
        scales = [dataset] if own else [next(iter(axis.values()), None) for axis in dataset.dims]
        shape = self._shape(dataset, scales)
        options = {"shape": shape, "dtype": dtype}
        # The name of the scale at an axis, else its label; a scale of one axis is its own.
        pairs = zip(dataset.dims, scales, strict=True)
        names = [
            (axis.label if scale is None else (scale.name or "").rpartition("/")[2]) or None for axis, scale in pairs
        ]
        if any(name is not None for name in names):
            options["dimension_names"] = names
        if dtype != "string":
            options["fill_value"] = self._fill(dataset, np.dtype(dtype), attributes)
        elif "_FillValue" in attributes:
            options["fill_value"] = attributes["_FillValue"]
        members = self.h5py.check_enum_dtype(dataset.dtype)
        if members:
            labels = sorted(members, key=members.__getitem__)
            attributes.setdefault("flag_values", [int(members[name]) for name in labels])
            attributes.setdefault("flag_meanings", " ".join(labels))
        if shape != dataset.shape:
            in_memory = np.dtype(object if isinstance(dtype, str) else dtype)
            values = partial(_read_padded, values, dataset.shape, options.get("fill_value"), in_memory)
        return Part(path, attributes, options, dataset.chunks, values)

    def _shape(self, dataset: Any, scales: list[Any]) -> tuple[int, ...]:
        """The shape as netCDF shows it: along a dimension without a limit, as long as the longest that has it.

        In the file such datasets are as long as they were written; what is missing reads as the fill value. `scales`
        are those of the axes, None for an axis without one.
        """
        return tuple(
            length if limit is not None or scale is None else max(length, self._length(scale))
            for length, limit, scale in zip(dataset.shape, dataset.maxshape, scales, strict=True)
        )

    def _length(self, scale: Any) -> int:
        """The length of the dimension that a scale stands for."""
        if scale.ndim != 1 or scale.maxshape != (None,):
            return 0
        users = scale.attrs.get("REFERENCE_LIST", ())
        return max([int(scale.shape[0]), *(int(scale.file[user[0]].shape[user[1]]) for user in users)])

    def _type(self, path: str, dataset: Any) -> tuple[Any, Any]:
        """The type of an array, and a function that reads regions as such."""
        dtype, h5py = dataset.dtype, self.h5py
        text = h5py.check_string_dtype(dtype)
        if text is not None and (text.length is None or text.encoding == "utf-8"):
            return "string", partial(_read, dataset.asstr())
        if h5py.check_ref_dtype(dtype) is not None:
            raise self._refused(path, "holds references to other places of its file")
        if h5py.check_vlen_dtype(dtype) is not None:
            raise self._refused(path, "holds lists of different lengths")
        if dtype.hasobject:
            raise self._refused(path, f"holds structs with elements of any length or references: {dtype}")
        plain = np.dtype(dtype.newbyteorder("="), metadata={}) if dtype.names is None else dtype
        return plain, partial(_read, dataset)

    def _refused(self, path: str, reason: str) -> NotRepresentableError:
        return NotRepresentableError(
            f"dataset '/{path}' {reason}, which Zarr cannot hold; unsupported='skip' leaves it out", path=path
        )

    def _fill(self, dataset: Any, dtype: np.dtype[Any], attributes: dict[str, Any]) -> Any:
        """The fill value; `_FillValue` stays among the attributes in the form in which xarray looks for it."""
        if "_FillValue" not in dataset.attrs:
            return dataset.fillvalue if dtype.kind != "V" else None
        value = np.asarray(dataset.attrs["_FillValue"]).reshape(-1)[0]
        if dtype.kind == "f":
            attributes["_FillValue"] = base64.b64encode(struct.pack("<d", float(value))).decode()
        elif dtype.kind == "S":
            attributes["_FillValue"] = base64.b64encode(bytes(value)).decode()
        return value

    # -- attributes -------------------------------------------------------------------------------

    def _attributes(self, path: str, found: Any) -> Iterator[tuple[str, Any]]:
        """Attributes as JSON; those that have no such form are left out, and named."""
        for name in found.attrs:
            if name not in _BOOKKEEPING:
                try:
                    yield name, _json(self.h5py, found.attrs[name])
                except (TypeError, UnicodeDecodeError, OSError) as error:
                    self.source.skipped[f"attribute {name} of /{path}"] = str(error)


def _read_padded(read: Any, shape: tuple[int, ...], fill: Any, dtype: np.dtype[Any], region: Region) -> Any:
    """A region that may go beyond the end of what is in the file, where the values are fill values."""
    values = np.zeros([part.stop - part.start for part in region], dtype)
    if fill is not None or dtype.hasobject:
        values[...] = "" if fill is None else fill
    there = tuple(slice(part.start, min(part.stop, n)) for part, n in zip(region, shape, strict=True))
    if all(part.start < part.stop for part in there):
        values[tuple(slice(0, part.stop - part.start) for part in there)] = read(there)
    return values


def _read(dataset: Any, region: Region) -> Any:
    return dataset[region]


def _json(h5py: Any, value: Any) -> Any:
    """The value of an attribute as JSON."""
    if isinstance(value, h5py.Empty):
        raise TypeError("it has no value")
    if isinstance(value, h5py.Reference):
        raise TypeError("it is a reference to another place of its file")
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype.kind in "SO":
        return [_json(h5py, one) for one in value.tolist()]
    if isinstance(value, np.ndarray) and value.shape == (1,):
        return _json(h5py, value[0])  # as netCDF4 stores numbers
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufU":
            raise TypeError(f"JSON has no {value.dtype}")
        return value.tolist()
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"JSON has no {type(value).__name__}")
