"""`convert`: other formats, and Zarr format 2, as arrays and groups of Zarr format 3.

Every source becomes a list of `Part`s first, which are checked by making each array in memory without its values. What
cannot be represented is refused then, before anything is written. Values follow box by box, in bounded memory.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
from zellige.stores.path import place
from zellige.tools.migrate import migrate, upgraded
from zellige.tools.rechunk_plan import Boxes, ends_of, group
from zellige.tools.transfer import Courier, moved, refuse_hidden
from zellige.types import JSON, AnyArray, Shape

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
    """A group or an array of the source."""

    path: str
    attributes: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] | None = None
    """Of an array: what `create_array` needs; None for a group."""
    pieces: tuple[int, ...] | None = None
    """The chunks that the source has."""
    values: Callable[[Region], Any] | None = None
    """The values of a region."""
    stream: Callable[[Array], Iterator[tuple[Region, AnyArray]]] | None = None
    """Instead of `values`: all of them one after the other, cut for an array."""


@dataclass
class Source:
    """The nodes of a source, groups before what is in them, and what is left out of it."""

    parts: list[Part] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    file: str = ""
    """Which file it is, and which object within it."""
    version: str = ""
    """In which version: its size and the time of its last change."""

    @property
    def arrays(self) -> dict[str, Part]:
        """The arrays by their paths."""
        return {part.path: part for part in self.parts if part.options is not None}


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

    source
        An HDF5 or netCDF4 file (needs `pip install 'zellige[hdf5]'`), an open file, group or dataset of h5py; a `.npy`
        or `.npz` file, never unpickled; or the place of a node of Zarr format 2.
    dest
        Where it goes. A node of Zarr format 2 is converted in place without it, by `migrate`; the documents of format 2
        stay, so that it can be undone. Chunks of Zarr format 2 are copied as they are.
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
        For the places of source and target.
    create
        Options of `create_array` for every array, such as `compressors` or `chunks`; chunks of the source are kept.
        Chunks and shards that are given by the names of dimensions apply where these are, and arrays without them keep
        their own; a name that no array has is an error.

    Dimension scales of HDF5 become dimension names, `_FillValue` the fill value (and stays an attribute, as xarray
    writes it), enumerations integers with `flag_values` and `flag_meanings`. Soft and external links are left out, and
    so are attributes without a form in JSON. Whatever is left out is named by a warning, and in the result.

    Values are written first and documents last: what was stopped is no node, and the same call finishes it. Arrays that
    were complete are not written again, if the file is still the same.

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
        reading = _reader(source, path, unsupported, stack)
        if reading is None:
            job = _Upgrade(source, path, dest, name, storage_options, dest_storage_options)
            return job.run(create, progress, overwrite=overwrite, dry_run=dry_run)
        if dest is None:
            raise ValueError(f"{source!r} is not Zarr, so it cannot be converted in place; give dest=")
        reading.file, reading.version = _identity(source)
        _check_rules(reading, create)
        models = _models(reading, create, unsupported)
        for left_out, reason in reading.skipped.items():
            warn_caller(f"left out {left_out}: {reason}", ZelligeWarning)
        arrays = tuple(reading.arrays)
        groups = tuple(part.path for part in reading.parts if part.options is None)
        if not dry_run:
            with opened(dest, node.new_path(name), storage_options=dest_storage_options) as where:
                _write(reading, models, where, progress, overwrite=overwrite)
        nbytes = sum(model.nbytes for model in models.values())
        return Converted(arrays, groups, reading.skipped, (), nbytes, dry_run)


# -- what the source is ---------------------------------------------------------------------------


def _reader(source: Any, path: str, unsupported: Unsupported, stack: ExitStack) -> Source | None:
    """What there is to convert; None for a place of Zarr."""
    if type(source).__module__.split(".")[0] == "h5py":
        from zellige.tools.hdf5 import read_group

        return read_group(source, path, unsupported)
    file = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if file is None or not os.path.isfile(file):
        return None
    with open(file, "rb") as opened:
        head = opened.read(8)
    if head.startswith(b"\x93NUMPY"):
        return _npy(file)
    if head.startswith(b"PK") and _holds_npy(file):
        return _npz(file, path, unsupported, stack)
    if head.startswith(b"CDF"):
        raise NotRepresentableError(
            f"{file!r} is a netCDF file of the classic format; make it netCDF4 first: nccopy -k nc4 IN OUT", path=""
        )
    if head == b"\x89HDF\r\n\x1a\n":
        from zellige.tools.hdf5 import read_file

        return read_file(file, path, unsupported, stack)
    if head.startswith(b"PK"):
        return None
    raise NotRepresentableError(f"{file!r} is not HDF5, netCDF4, .npy, .npz or Zarr, by its first bytes", path="")


def _identity(source: Any) -> tuple[str, str]:
    """Which file a source is, with its place within the file if it is an object of h5py, and in which version."""
    given = source.file.filename if hasattr(source, "file") else source
    file = os.path.realpath(os.fsdecode(given))
    name = getattr(source, "name", "")
    try:
        info = os.stat(file)
    except OSError:
        return f"{file} {name}", ""  # in memory
    return f"{file} {name}", f"{info.st_size} {info.st_mtime_ns}"


def _checked(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """A type of numpy without Python objects, which only a pickle could hold."""
    if dtype.hasobject:
        raise NotRepresentableError(f"{what} holds Python objects as a pickle, which is never loaded", path=what)
    return dtype


def _npy(file: str) -> Source:
    try:
        data = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise NotRepresentableError(f"{file!r} cannot be read: {error}", path="") from error
    return Source([Part("", {}, {"shape": data.shape, "dtype": data.dtype}, None, data.__getitem__)])


def _holds_npy(file: str) -> bool:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    return bool(names) and all(name.endswith(".npy") for name in names)


def _npz(file: str, path: str, unsupported: Unsupported, stack: ExitStack) -> Source:
    """One array for each member, read as a stream: a compressed member has no places to jump to."""
    archive = stack.enter_context(zipfile.ZipFile(file))
    found = Source([] if path else [Part("")])
    for member in archive.namelist():
        name = member.removesuffix(".npy")
        if path in ("", name):
            with archive.open(member) as opened:
                shape, in_rows, dtype = _header(opened)
            try:
                _checked(dtype, f"{file!r}: {name!r}")
            except NotRepresentableError as error:
                if unsupported == "raise":
                    raise
                found.skipped[name] = str(error)
                continue
            options = {"shape": shape, "dtype": dtype}
            part = Part("" if path else node.new_path(name), {}, options)
            part.stream = _Stream(archive, member, shape, dtype, in_rows)
            found.parts.append(part)
    if not found.parts and not found.skipped:
        raise NodeNotFoundError(f"{file!r} has no array {path!r}; it has {archive.namelist()}")
    return found


def _header(opened: Any) -> tuple[Shape, bool, np.dtype[Any]]:
    """Shape, whether rows come one after the other, and type of what a stream holds."""
    version = npy.read_magic(opened)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(opened)
    return shape, not fortran, dtype


@dataclass(frozen=True)
class _Stream:
    """The values of a member of a `.npz` file, slab by slab along the axis that varies slowest."""

    archive: zipfile.ZipFile
    member: str
    shape: Shape
    dtype: np.dtype[Any]
    in_rows: bool

    def __call__(self, target: Array) -> Iterator[tuple[Region, AnyArray]]:
        with self.archive.open(self.member) as opened:
            _header(opened)
            if not self.shape:
                yield (), self._take(opened, ())
                return
            axis = 0 if self.in_rows else len(self.shape) - 1
            start = 0
            for size in target.write_chunk_sizes[axis]:
                region = tuple(
                    slice(start, start + size) if k == axis else slice(0, n) for k, n in enumerate(self.shape)
                )
                yield region, self._take(opened, tuple(part.stop - part.start for part in region))
                start += size

    def _take(self, opened: Any, shape: Shape) -> AnyArray:
        wanted = prod(shape) * self.dtype.itemsize
        raw = opened.read(wanted)
        if len(raw) != wanted:
            raise NotRepresentableError(f"{self.member!r} ends early: {len(raw)} of {wanted} bytes", path=self.member)
        return np.ndarray(shape, self.dtype, raw, order="C" if self.in_rows else "F")


# -- writing --------------------------------------------------------------------------------------


def _models(source: Source, create: Mapping[str, Any], unsupported: Unsupported) -> dict[str, Array]:
    """Every array of the source, made in memory, which checks all but its values."""
    models: dict[str, Array] = {}
    for part in list(source.parts):
        try:
            node.new_path(part.path)
            if part.options is not None:
                models[part.path] = create_array(None, **_options(part, create))
        except ChunkShapeError as error:
            # Not that the array has no form is wrong, but what was asked for.
            raise ChunkShapeError(
                f"{part.path or '/'}: {error}; arrays that differ are given chunks by the names of dimensions, such as "
                "{'time': 31}",
                axis=None,
            ) from error
        except ValueError as error:
            if unsupported == "raise":
                raise NotRepresentableError(
                    f"{part.path or '/'} cannot be converted: {error}; unsupported='skip' leaves such out",
                    path=part.path,
                ) from error
            source.parts.remove(part)
            source.skipped[part.path] = str(error)
    return models


def _options(part: Part, create: Mapping[str, Any]) -> dict[str, Any]:
    """What `create_array` gets for a part: chunks of the source, unless others are given."""
    chunks = {} if part.pieces is None else {"chunks": part.pieces}
    given = dict(create)
    for option in _RULES:
        if isinstance(create.get(option), Mapping):
            rules = _applied(part, create[option])
            kept = dict(enumerate(part.pieces or ())) if option == "chunks" else {}
            given |= {option: kept | rules}
            if not rules:
                del given[option]
    return {**chunks, "attributes": part.attributes, **(part.options or {}), "zarr_format": 3, **given}


_RULES = ("chunks", "shards")
"""Options that may be given by the names of dimensions, or by the numbers of axes."""


def _applied(part: Part, rules: Mapping[Any, Any]) -> dict[int, Any]:
    """The rules for dimensions that an array has, by the numbers of its axes."""
    options = part.options or {}
    axes: dict[Any, int] = {axis: axis for axis in range(len(options.get("shape", ())))}
    axes |= {name: axis for axis, name in enumerate(options.get("dimension_names") or ()) if name is not None}
    return {axes[key]: rule for key, rule in rules.items() if key in axes}


def _check_rules(source: Source, create: Mapping[str, Any]) -> None:
    """Refuse rules for dimensions that no array has."""
    parts = source.arrays.values()
    for option in _RULES:
        rules = create.get(option)
        for key in rules if isinstance(rules, Mapping) else ():
            if not any(_applied(part, {key: None}) for part in parts):
                names = {name for part in parts for name in (part.options or {}).get("dimension_names") or () if name}
                known = hint(str(key), sorted(names)) if names else "the dimensions have no names"
                raise ChunkShapeError(f"{option}: no array has the dimension {key!r}; {known}", axis=None)


def _write(
    source: Source, models: Mapping[str, Array], target: tuple[Store, str], progress: ProgressLike, *, overwrite: bool
) -> None:
    """Write arrays one after the other, each with its document last, and then the groups; the top comes last."""
    store, top = target
    new = _nodes(source, models)
    if not new:
        return
    boxes = {path: _boxes(part, models[path]) for path, part in source.arrays.items()}
    work = Work("convert", _asked(source, new))
    if not overwrite:
        _refuse_other_version(store, top, work)
    left = hierarchy.begin(store, top, work, new, overwrite=overwrite)
    with Progress(progress, sum(map(len, boxes.values())), "converted", "boxes") as report:
        for path, part in source.arrays.items() if left != "mark" else ():
            where = node.join(top, path)
            if left == "parts" and node.there(store, where) is not None:
                report.skip(len(boxes[path]))
                continue
            _write_array(part, Array(store, where, models[path].metadata, models[path].config), boxes[path], report)
    groups = [path for path in new if path not in models]
    for path in sorted(groups, key=_depth, reverse=not store.traits.transactional) if left != "mark" else ():
        if left == "nothing" or node.there(store, node.join(top, path)) is None:
            node.put_new(store, node.join(top, path), new[path])
    remove.remove_mark(store, top)


def _write_array(part: Part, array: Array, boxes: Iterable[Any], report: Progress) -> None:
    """Write the values of an array, and then its document; in a transaction, which may want it so, before them."""
    if array.store.traits.transactional:
        node.put_new(array.store, array.path, array.metadata)
    with _naming(part.path):
        for region, values in _values(part, array, boxes):
            array[region] = values
            report.advance(part.path or "/")
    if not array.store.traits.transactional:
        node.put_new(array.store, array.path, array.metadata)


def _nodes(source: Source, models: Mapping[str, Array]) -> dict[str, NodeMetadata]:
    """The metadata of all nodes to come, with groups that no part speaks of."""
    given: dict[str, NodeMetadata] = {path: model.metadata for path, model in models.items()}
    given |= {part.path: GroupMetadata(part.attributes) for part in source.parts if part.options is None}
    above = {parent: GroupMetadata() for path in given for parent in node.parents(path)}
    return {**above, **given}


def _depth(path: str) -> int:
    return path.count("/") + bool(path)


def _asked(source: Source, new: Mapping[str, NodeMetadata]) -> dict[str, JSON]:
    """What tells a call with the same arguments, and the same file, from others."""
    documents = {path: metadata.to_documents() for path, metadata in new.items()}
    return {
        "from": source.file,
        "version": source.version,
        "nodes": digest(json.dumps(documents, sort_keys=True).encode()),
    }


def _refuse_other_version(store: Store, top: str, work: Work) -> None:
    """Refuse to finish what was begun with another version of the same file, which would mix the two."""
    found = remove.read_mark(store, top)
    earlier = None if found is None else found.work
    if earlier is None or earlier.name != work.name or node.there(store, top) is not None:
        return
    if earlier.asked.get("from") == work.asked["from"] and earlier.asked.get("version") != work.asked["version"]:
        raise ConflictError(
            f"'/{top}' in {store!r} is not free: a convert of the same source was stopped there, and the source "
            f"{work.asked['from']} has changed since. Pass overwrite=True to convert it anew, or remove what is there "
            "with zellige.vacuum(…, unfinished=True)"
        )


def _boxes(part: Part, model: Array) -> Boxes | range:
    """How the values are cut on their way."""
    if part.stream is not None:
        sizes = model.write_chunk_sizes
        return range(len(sizes[0 if getattr(part.stream, "in_rows", True) else -1]) if sizes else 1)
    stored = Boxes(tuple(map(ends_of, model.write_chunk_sizes)))
    if part.pieces is None:
        return group(stored, stored, _ELEMENTS)
    ends = (np.minimum(np.arange(c, n + c, c), n) for c, n in zip(part.pieces, model.shape, strict=True))
    return group(stored, Boxes(tuple(ends)), _ELEMENTS)


def _values(part: Part, target: Array, boxes: Iterable[Any]) -> Iterator[tuple[Region, Any]]:
    if part.stream is not None:
        yield from part.stream(target)
    elif part.values is not None:
        for region in boxes:
            yield region, part.values(region)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors about values say in which array they are."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise NotRepresentableError(f"{path or '/'} holds text that is not UTF-8: {error}", path=path) from error


# -- from Zarr format 2 ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Upgrade:
    """A node of Zarr format 2 on its way to format 3."""

    source: StoreLike
    path: str
    dest: StoreLike
    name: str | None
    source_options: Mapping[str, Any] | None
    dest_options: Mapping[str, Any] | None

    def run(self, create: Mapping[str, Any], progress: ProgressLike, *, overwrite: bool, dry_run: bool) -> Converted:
        """Convert in place, or copy the bytes and convert the copy."""
        if create:
            raise TypeError(
                f"{', '.join(create)}: chunks and codecs of Zarr format 2 are kept as they are; use rechunk for others"
            )
        writable = self.dest is None and not dry_run
        store, top = locate(
            self.source, node.normalize_path(self.path), read_only=not writable, storage_options=self.source_options
        )
        with finishing(self.source if writable else None, store):
            return self._run(store, top, progress, overwrite=overwrite, dry_run=dry_run)

    def _run(self, store: Store, top: str, progress: ProgressLike, *, overwrite: bool, dry_run: bool) -> Converted:
        planned, new, old = upgraded(store, top)
        if planned.failed:
            path, reason = next(iter(planned.failed.items()))
            more = f", and {len(planned.failed) - 1} more" if len(planned.failed) > 1 else ""
            raise NotRepresentableError(f"'/{path}'{more} has no form in Zarr format 3: {reason}", path=path)
        if self.dest is None:
            if not dry_run:
                migrate(store, top, dry_run=False, progress=progress)
        elif not dry_run:
            refuse_hidden(store, top)
            keys = [key for key in store.list(top and top + "/") if key not in old]
            with opened(self.dest, node.new_path(self.name), storage_options=self.dest_options) as (there, where):
                if overwrite and place(store, top).within(place(there, where)):
                    raise ValueError(
                        "the source lies within dest, which would be removed before it is read; use another place"
                    )
                self._copy((store, top, keys), (there, where), new, progress, overwrite=overwrite)
        return self._said(store, top, planned.converted, planned.skipped, dry_run=dry_run)

    @staticmethod
    def _copy(
        source: tuple[Store, str, list[str]],
        target: tuple[Store, str],
        new: Mapping[str, NodeMetadata],
        progress: ProgressLike,
        *,
        overwrite: bool,
    ) -> None:
        """Copy the chunks as they are, and write documents of Zarr format 3 last."""
        (store, top, keys), (there, where) = source, target
        cut = len(top and top + "/")
        nodes = {path[cut:]: metadata for path, metadata in new.items()}
        documents = {path: metadata.to_documents() for path, metadata in nodes.items()}
        work = Work("convert", {"from": repr(place(store, top)), "nodes": sorted(nodes)})
        left = hierarchy.begin(there, where, work, nodes, overwrite=overwrite)
        if left != "mark":
            content = {
                node.join(where, node.join(path, name)): write_json(found)
                for path, by_name in documents.items()
                for name, found in by_name.items()
            }
            chunks = {moved(key, top, where) for key in keys} - content.keys() - {remove.mark_key(where)}
            for batch in reversed(node.copy_order(content)) if left == "parts" else ():
                there.delete(batch)  # documents of an earlier call; chunks are written again
            with Progress(progress, len(chunks) + len(content), "copied") as report:
                courier = Courier((store, top), (there, where), content, report, verify=False)
                for batch in node.copy_order([*chunks, *content], transactional=there.traits.transactional):
                    courier.carry_all(batch)
        remove.remove_mark(there, where)

    def _said(
        self, store: Store, top: str, converted: Iterable[str], skipped: Iterable[str], *, dry_run: bool
    ) -> Converted:
        kinds: dict[bool, list[str]] = {True: [], False: []}
        for path in sorted(converted):
            documents = node.load(store, path, zarr_format=2)
            kinds[documents is not None and node.is_group(documents)].append(path[len(top and top + "/") :])
        unchanged = tuple(path[len(top and top + "/") :] for path in sorted(skipped))
        return Converted(tuple(kinds[False]), tuple(kinds[True]), {}, unchanged, 0, dry_run)
