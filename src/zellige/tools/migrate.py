"""From Zarr v2 to Zarr v3 in place: documents are written beside documents, and chunks stay as they are (spec: 10.4).

Where both formats have a document, the newer one is read; but through a group of Zarr v2 the older ones of its members
are. So documents of Zarr v3 are written from the leaves upwards, and removed from the root downwards: wherever that is
cut short, no group of Zarr v3 is above nodes that are still to be converted, and all of them open with their data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from zellige.codecs.chain import CodecChain
from zellige.codecs.v2 import NotConvertibleError, to_v3
from zellige.display.progress import Progress, ProgressLike
from zellige.errors import CodecError, ConflictError, MetadataError, NodeNameError, NodeNotFoundError, ReadOnlyError
from zellige.metadata import ArrayV3Metadata, GroupMetadata
from zellige.metadata.groups import ARRAY_V2, ATTRIBUTES_V2, CONSOLIDATED_V2, GROUP_V2, Documents, Entries
from zellige.metadata.json import comparable, write_json
from zellige.metadata.v2 import ArrayV2Metadata
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node
from zellige.nodes.array import Array, layout
from zellige.nodes.consolidated import bare
from zellige.settings import ArrayConfig
from zellige.stores import Store, StoreLike, finishing, locate, threads
from zellige.types import AnyArray, Shape

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata

Upgraded: TypeAlias = ArrayV3Metadata | GroupMetadata

_OLD = (CONSOLIDATED_V2, ARRAY_V2, GROUP_V2, ATTRIBUTES_V2)
"""The documents of Zarr v2 in the order of their removal: attributes without a node mean nothing."""
_UNFIT = (MetadataError, NodeNameError, CodecError, ImportError)
"""What says that a node has no form in Zarr v3, or none that can be read here."""
_NO_V2 = "it has no metadata of Zarr v2 to go back to"


# -- what was done --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Migration:
    """What `migrate` has done, or would do; nodes are given by their paths in the store, the root is empty."""

    converted: tuple[str, ...] = ()
    """Nodes that have got metadata of Zarr v3."""
    skipped: tuple[str, ...] = ()
    """Nodes that had one already; when undoing, those that have none."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Nodes that were left as they are, with the reason."""
    removed: tuple[str, ...] = ()
    """Nodes whose metadata of Zarr v2 was removed; when undoing, that of Zarr v3."""
    dry_run: bool = True
    undo: bool = False

    def __repr__(self) -> str:
        paths = {*self.converted, *self.skipped, *self.failed, *self.removed}
        lines = [f"/{path}: {self._line(path)}" for path in sorted(paths, key=lambda path: path.split("/"))]
        what = "undoing a migration" if self.undo else "migration"
        head = f"{what} (a dry run: nothing was written; use dry_run=False)" if self.dry_run else what
        return "\n  ".join([f"<{head}>", *lines])

    def _line(self, path: str) -> str:
        would = "would be " if self.dry_run else ""
        said = []
        if path in self.converted:
            said.append(f"{would}converted")
        if path in self.skipped:
            said.append("has only metadata of Zarr v2" if self.undo else "has metadata of Zarr v3")
        if path in self.removed:
            said.append(f"{would}{'Zarr v2 again' if self.undo else 'without metadata of Zarr v2'}")
        if path in self.failed:
            said.append(f"left as it is: {self.failed[path]}")
        return ", ".join(said)


# -- the nodes of a hierarchy ---------------------------------------------------------------------


class _Found(NamedTuple):
    """A node with its documents of both formats."""

    path: str
    old: Documents | None
    new: Documents | None
    error: str | None
    """What is wrong with documents that cannot be read."""

    @property
    def is_group(self) -> bool:
        """Whether there can be nodes below; the newer document decides."""
        documents = self.new or self.old
        return documents is not None and node.is_group(documents)


def _walk(store: Store, path: str) -> list[_Found]:
    """The node at a path and all below it, level by level."""
    found: list[_Found] = []
    level = [path]
    while level:
        nodes = [here for here in threads.gather(partial(_look, store), level, store) if here is not None]
        found += nodes
        below = threads.gather(partial(node.children, store), [here.path for here in nodes if here.is_group], store)
        level = [child for children in below for child in children]
    if not found:
        raise NodeNotFoundError(
            f"there is no array and no group at '/{path}' in {store!r}{node.why_missing(store, path)}"
        )
    return found


def _look(store: Store, path: str) -> _Found | None:
    found: dict[int, Documents | None] = {}
    error = None
    for zarr_format in (2, 3):
        try:
            found[zarr_format] = node.load(store, path, zarr_format=zarr_format)
        except MetadataError as broken:
            found[zarr_format], error = None, str(broken)
    if error is None and found[2] is None and found[3] is None:
        return None
    return _Found(path, found[2], found[3], error)


# -- migrating ------------------------------------------------------------------------------------


def migrate(
    store: StoreLike,
    path: str | None = "",
    *,
    dry_run: bool = True,
    remove_v2: bool = False,
    undo: bool = False,
    force: bool = False,
    progress: ProgressLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Migration:
    """Convert an array, or a group with all below it, from Zarr v2 to Zarr v3; chunks are not touched.

    By default this is a dry run that writes nothing: look at the result, then call with `dry_run=False`. That puts a
    `zarr.json` beside the metadata of Zarr v2 and never replaces one. A node that cannot be said in Zarr v3 is left
    as it is and named in the result; the others are converted, and groups show it all the same. Every array is checked
    on a small chunk: what the codecs of Zarr v2 have written must come back through those of Zarr v3.

    Consolidated metadata is converted with its group, if all members are; that of groups above `path` stays. Nobody
    should change metadata meanwhile.

    Parameters
    ----------
    store, path
        The place, and the path of the node within it.
    dry_run
        Change nothing, and tell what would be converted.
    remove_v2
        Remove the metadata of Zarr v2 once all of Zarr v3 is in place and can be opened. Nodes that were converted some
        time ago and whose metadata differs by now are left.
    undo
        Go back, as long as the metadata of Zarr v2 is there: remove every `zarr.json` that has some beside it. If one
        has changed since, nothing is removed and a `ConflictError` says where.
    force
        Trust the `zarr.json` in `remove_v2`, and give up what has changed in it in `undo`.
    progress
        Called as `progress(done, total, path)` for each node; True shows a bar.
    storage_options
        How to reach a server; see `zellige.open`.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> root = zellige.create_group(store, zarr_format=2)
    >>> root["t"] = [1, 2, 3]
    >>> zellige.migrate(store)
    <migration (a dry run: nothing was written; use dry_run=False)>
      /: would be converted
      /t: would be converted
    >>> zellige.migrate(store, dry_run=False).converted
    ('t', '')
    >>> zellige.open(store).metadata.zarr_format
    3
    """
    if remove_v2 and (dry_run or undo):
        raise ValueError("remove_v2=True needs dry_run=False, and cannot be undone; look at a dry run without it first")
    target, place = locate(store, node.normalize_path(path), storage_options=storage_options)
    if not dry_run and target.read_only:
        raise ReadOnlyError(f"{target!r} is read-only; open it for writing, or look at a dry run")
    with finishing(store, target):
        nodes = _walk(target, place)
        with Progress(progress, len(nodes), "undone" if undo else "converted", "nodes") as report:
            if undo:
                return _undo(target, nodes, report, dry_run=dry_run, force=force)
            upgrade = Upgrade(target, nodes, report if dry_run else None)
            if not dry_run:
                upgrade.write(report)
        removed = upgrade.remove_v2(force=force) if remove_v2 else ()
    return Migration(tuple(upgrade.converted), upgrade.skipped, upgrade.failed, tuple(removed), dry_run)


class Upgrade:
    """The metadata of Zarr v3 for the nodes of a hierarchy."""

    def __init__(self, store: Store, nodes: list[_Found], progress: Progress | None) -> None:
        self.store = store
        self.nodes = {found.path: found for found in nodes}
        self.failed: dict[str, str] = {}
        self.converted: dict[str, Upgraded] = {}
        """In the order of writing: from the leaves upwards."""
        for found in sorted(nodes, key=lambda found: (-node.depth(found.path), found.path)):
            self._plan(found)
            if progress is not None:
                progress.advance(found.path)
        self.skipped = tuple(path for path in self.nodes if path not in {**self.failed, **self.converted})

    @classmethod
    def of(cls, store: Store, path: str) -> Upgrade:
        """The upgrade of the node at a path and all below it."""
        return cls(store, _walk(store, path), None)

    @property
    def old_keys(self) -> set[str]:
        """The keys that the metadata of Zarr v2 may have."""
        return {node.join(path, name) for path in self.nodes for name in _OLD}

    def _plan(self, found: _Found) -> None:
        try:
            if found.error is not None:
                raise MetadataError(found.error)
            if found.new is None:
                self.converted[found.path] = _checked(found)
            elif found.old is not None and self._is_left_over(found) and (changes := ", ".join(_changes(found))):
                raise MetadataError(
                    f"its zarr.json, of a migration that was cut short, and its metadata of Zarr v2 differ in "
                    f"{changes}; keep the latter with undo=True, force=True for this node, or remove the former"
                )
        except _UNFIT as error:
            self.failed[found.path] = str(error)
        except RecursionError:
            self.failed[found.path] = "its metadata is nested too deeply"

    def _is_left_over(self, found: _Found) -> bool:
        """Whether a group above is of Zarr v2, through which the document of Zarr v3 was never seen."""
        above = (self.nodes.get(path) for path in node.parents(found.path))
        return any(group is not None and group.new is None for group in above)

    # -- writing ----------------------------------------------------------------------------------

    def write(self, progress: Progress) -> None:
        """Put all documents in place."""
        progress.skip(len(self.nodes) - len(self.converted))
        for path in list(self.converted):
            error = self._write(path)
            if error is not None:
                self.failed[path] = error
                del self.converted[path]
            progress.advance(path)

    def metadata(self, path: str) -> Upgraded:
        """The metadata of Zarr v3 of a node; consolidated metadata of Zarr v2 is converted with it."""
        if path not in self.converted:
            return cast("Upgraded", node.parse(self.nodes[path].new or {}))
        new = self.converted[path]
        if isinstance(new, GroupMetadata) and self.store.exists(node.join(path, CONSOLIDATED_V2)):
            return new.with_consolidated(self._entries(path))
        return new

    def _write(self, path: str) -> str | None:
        """Create a document; what was in the way, if it was not created."""
        new, old = self.metadata(path), self.nodes[path].old
        self.converted[path] = new
        raw = write_json(new.to_dict())
        main = GROUP_V2 if isinstance(new, GroupMetadata) else ARRAY_V2
        with self.store.lock(node.join(path, main)):  # as everybody does who changes it
            if not _same(old, node.load(self.store, path, zarr_format=2)):
                return "its metadata of Zarr v2 has changed meanwhile; try again"
            if not self.store.create(node.join(path, DOCUMENT), raw):
                return "another writer has created its zarr.json meanwhile; try again"
        return None

    def _entries(self, path: str) -> Entries | None:
        """The consolidated metadata of a group, for which all nodes below must be of Zarr v3: it hides the others."""
        entries: Entries = {}
        for below, found in self.nodes.items():
            if below == path or not node.is_below(below, path):
                continue
            new = self.converted[below].to_documents() if below in self.converted else found.new
            if new is None or below in self.failed:
                return None
            entries[node.relative(below, path)] = bare(new)
        return entries

    # -- removing ---------------------------------------------------------------------------------

    def remove_v2(self, *, force: bool) -> list[str]:
        """Remove the documents of Zarr v2 of all nodes that are of Zarr v3; returns the paths of those nodes."""
        for path in self.nodes:
            if path not in self.failed:
                try:
                    self._check_ready(path, force=force)
                except _UNFIT as error:
                    self.failed[path] = f"its metadata of Zarr v2 stays: {error}"
        return [path for path in self.nodes if path not in self.failed and self._remove(path)]

    def _check_ready(self, path: str, *, force: bool) -> None:
        """Raise unless the node can be opened by its document of Zarr v3, and the others say nothing else."""
        documents = node.load(self.store, path, zarr_format=3)
        if documents is None:
            raise MetadataError("its zarr.json was removed meanwhile; try again")
        new: Any = node.parse(documents)
        if isinstance(new, ArrayV3Metadata):
            Array(self.store, path, new, ArrayConfig.of())
        found = self.nodes[path]
        if not _same(found.old, node.load(self.store, path, zarr_format=2)):
            raise MetadataError("it has changed meanwhile; try again")
        if path in self.converted or found.old is None:
            return
        if not _is_of(new, found.old):
            raise MetadataError("the zarr.json describes other chunks")
        if not force and (changes := ", ".join(_changes(found))):
            raise MetadataError(f"the zarr.json differs in {changes}; use force=True if it is right")

    def _remove(self, path: str) -> bool:
        keys = [key for key in (node.join(path, name) for name in _OLD) if self.store.exists(key)]
        for key in keys:
            self.store.delete([key])
        return bool(keys)


def _same(a: Documents | None, b: Documents | None) -> bool:
    return bool(comparable(a) == comparable(b))


def _is_of(new: Upgraded, old: Documents) -> bool:
    """Whether documents of both formats are about the same chunks, whatever else has changed."""
    parsed: Any = node.parse(old)
    expected: Upgraded = to_v3(parsed)
    if not isinstance(new, ArrayV3Metadata) or not isinstance(expected, ArrayV3Metadata):
        return type(new) is type(expected)
    return layout(new) == layout(expected)


# -- undoing --------------------------------------------------------------------------------------


def _undo(store: Store, nodes: list[_Found], progress: Progress, *, dry_run: bool, force: bool) -> Migration:
    failed = {found.path: found.error or _NO_V2 for found in nodes if found.old is None or found.error is not None}
    skipped = tuple(found.path for found in nodes if found.path not in failed and found.new is None)
    both = [found for found in nodes if found.path not in failed and found.new is not None]
    changed = {}
    for found in both if not force else ():
        if changes := ", ".join(_changes(found)):
            changed[found.path] = (
                f"its zarr.json has changed since ({changes}), which would be lost; use force=True if it may"
            )
    if changed and not dry_run:
        path, reason = next(iter(changed.items()))
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ConflictError(f"nothing was undone: '/{path}'{more}: {reason}")
    todo = [found for found in both if found.path not in changed]
    progress.skip(len(nodes) - len(todo))
    for found in todo:
        if not dry_run:
            key = node.join(found.path, DOCUMENT)
            with store.lock(key):
                if not _same(found.new, node.load(store, found.path, zarr_format=3)):
                    raise ConflictError(f"{key!r} has changed meanwhile; it is still there, try again")
                store.delete([key])
        progress.advance(found.path)
    removed = tuple(found.path for found in todo)
    return Migration((), skipped, {**failed, **changed}, removed, dry_run, undo=True)


def _changes(found: _Found) -> list[str]:
    """The fields in which the document of Zarr v3 differs from what converting gives now."""
    assert found.new is not None
    try:
        expected, new = (
            comparable(bare(metadata.to_documents())[DOCUMENT])
            for metadata in (_converted(found), node.parse(found.new))
        )
    except (*_UNFIT, RecursionError) as error:
        return [f"everything: {error}"]
    return [key for key in sorted(expected.keys() | new.keys()) if expected.get(key) != new.get(key)]


# -- one node -------------------------------------------------------------------------------------


def _converted(found: _Found) -> Upgraded:
    """The document of Zarr v3; raises if there is none."""
    assert found.old is not None
    if found.path:
        node.check_names(found.path)
    old: Any = node.parse(found.old)
    new: Upgraded = to_v3(old)
    return new


def _checked(found: _Found) -> Upgraded:
    """The document of Zarr v3, once it is certain that chunks can be read by it."""
    new = _converted(found)
    if isinstance(new, ArrayV3Metadata):
        old: Any = node.parse(found.old or {})
        _check_reading(old, new)  # before anything is made of a fill value that may be very long
    raw = write_json(new.to_dict())
    if isinstance(new, ArrayV3Metadata) and ArrayV3Metadata.from_bytes(raw) != new:
        raise NotConvertibleError("its metadata of Zarr v3 would be read otherwise than it was written", field="")
    return new


_MOST = 4096  # elements of a chunk to try
_SMALL, _LARGE = 1 << 16, 1 << 24  # bytes of it, and of the whole chunk if a small one does not do


def _check_reading(old: ArrayV2Metadata, new: ArrayV3Metadata) -> None:
    """Refuse unless the codecs of both formats make the same of some bytes."""
    full, dtype = old.chunk_grid.chunk_shape, old.data_type.numpy
    _chain(old, full)
    _chain(new, full)
    problem: object = f"chunks of {prod(full)} elements of {dtype} are too large"
    for shape in (_small(full, dtype.itemsize), full):
        if prod(shape) * dtype.itemsize <= _LARGE:
            try:
                return _compare(_chain(old, shape), _chain(new, shape), _sample(dtype, shape))
            except CodecError as error:  # for example, there are too few elements for a filter
                problem = error
    raise NotConvertibleError(f"its codecs could not be tried: {problem}", field="")


def _chain(metadata: ArrayMetadata, shape: Shape) -> CodecChain:
    return CodecChain.from_json(metadata.codecs, metadata.data_type, metadata.fill_value, shape)


def _small(chunk_shape: Shape, itemsize: int) -> Shape:
    """A chunk with few elements, but a multiple of 8 or 4 of them where the whole chunk has one."""
    most = min(_MOST, max(1, _SMALL // itemsize))
    sizes: list[int] = []
    for size in reversed(chunk_shape):
        small = size if size <= 8 else gcd(size, 8) * (3 if size % 4 else 1)
        sizes.insert(0, small if prod(sizes) * small <= most else 1)
    return tuple(sizes)


def _compare(old: CodecChain, new: CodecChain, sample: AnyArray) -> None:
    """Raises `NotConvertibleError` if the chains read otherwise, and `CodecError` if the older one cannot be tried."""
    v2, v3 = old.bound[sample.shape], new.bound[sample.shape]
    try:
        raw = bytes(v2.encode(sample))
    except CodecError:  # numcodecs cannot write all that it reads
        raw = bytes(v3.encode(sample))
    expected = v2.decode(raw).copy()
    try:
        found = v3.decode(raw).copy()
    except CodecError as error:
        raise NotConvertibleError(f"the codecs of Zarr v3 would not read its chunks: {error}", field="") from error
    if not _equal(expected, found, old.dtype.numpy):
        raise NotConvertibleError("the codecs of Zarr v3 would read its chunks otherwise", field="")


def _equal(a: AnyArray, b: AnyArray, dtype: np.dtype[Any]) -> bool:
    """Whether chunks have the same elements, bit by bit but for NaNs; `dtype` is theirs in native byte order."""
    a, b = a.astype(dtype), b.astype(dtype)
    if a.shape != b.shape or dtype.kind in "OT":
        return a.shape == b.shape and bool(a.tolist() == b.tolist())
    return a.tobytes() == b.tobytes() or (dtype.kind in "fc" and np.array_equal(a, b, equal_nan=True))


def _sample(dtype: np.dtype[Any], shape: Shape) -> AnyArray:
    """A chunk of rising numbers, which suit every filter, or of something made of them."""
    count = prod(shape)
    return _elements(dtype, np.arange(count) * 100 // max(count, 100)).reshape(shape)


_FACTORS: dict[str, complex] = {"f": 1.25, "c": 1.25 + 0.5j}


def _elements(dtype: np.dtype[Any], numbers: AnyArray) -> AnyArray:
    """Numbers as elements of a type."""
    if dtype.names is not None:
        found = np.zeros(len(numbers), dtype)
        for k, name in enumerate(dtype.names):
            found[name] = _elements(dtype[name], numbers + k)
        return found
    if dtype.kind in "UT":
        return np.array([f"{number}é" for number in numbers.tolist()], dtype)
    if dtype.kind in "SO":
        return np.array([b"%d" % number for number in numbers.tolist()], dtype)
    if dtype.kind == "V":
        return numbers.astype(np.uint8).repeat(dtype.itemsize).view(dtype)
    if dtype.kind in "mM":
        return numbers.astype(np.int64).view(dtype)
    made: AnyArray = numbers % 3 if dtype.kind == "b" else numbers * _FACTORS.get(dtype.kind, 1)
    return made.astype(dtype)
