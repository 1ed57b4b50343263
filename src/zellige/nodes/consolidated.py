"""Consolidated metadata: the documents of all nodes below a group, kept with the group's own.

A group that holds some follows every change that is made through it, or through nodes that were reached
through it: the entry in the store is changed after the node itself, but removed before chunks go that it speaks of.
Changes by others are found by `differences`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from zellige.errors import (
    BrokenNodeWarning,
    CompatibilityWarning,
    MetadataError,
    StaleMetadataError,
    StaleMetadataWarning,
    warn_caller,
)
from zellige.metadata import ArrayV3Metadata
from zellige.metadata.chunks import spelled_out
from zellige.metadata.groups import (
    ARRAY_V2,
    ATTRIBUTES_V2,
    CONSOLIDATED_V2,
    GROUP_V2,
    Documents,
    Entries,
    GroupMetadata,
    attributes_of,
    block_entries,
    block_of,
    consolidated_document,
    consolidated_entries,
    with_attributes,
)
from zellige.metadata.json import comparable, copied, write_json
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node
from zellige.stores import Store
from zellige.stores.base import ChangedError, retried
from zellige.types import JSON

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata, NodeHandle

_BLOCK = "consolidated_metadata"

_CODED = (
    *("data_type", "codecs", "chunk_key_encoding", "storage_transformers"),
    *("dtype", "compressor", "filters", "order", "dimension_separator"),  # in Zarr format 2
)
"""The fields of an array's document that say how its chunks are stored."""
_GRIDS = ("chunk_grid", "chunks")
_SIZES = ("shape", "chunks")
"""The fields of an array's document in which an empty list says something."""
_MOST_WORDS = 120  # of a field in a message


class Consolidated:
    """The consolidated metadata that a group holds, in memory and in the store."""

    __slots__ = ("store", "path", "zarr_format", "outer", "_entries", "_names")

    def __init__(
        self, store: Store, path: str, zarr_format: int, entries: Entries | None = None, outer: Self | None = None
    ) -> None:
        self.store, self.path, self.zarr_format, self.outer = store, path, zarr_format, outer
        self._entries = entries
        self._names: tuple[Entries | None, dict[str, list[str]]] = (None, {})
        """The names of members by paths, with the entries they were taken from: another thread may change those."""

    @property
    def entries(self) -> Entries:
        """The documents of the nodes by their paths, relative to the group that holds them."""
        if self._entries is None:  # after pickling, or not read yet
            self._entries = stored_entries(self.store, self.path, self.zarr_format) or {}
        return self._entries

    def entry(self, path: str) -> Documents | None:
        """Return what is held of the node at a path of the store, not to be changed; None if there is no entry."""
        return self.entries.get(node.relative(path, self.path))

    def documents(self, path: str) -> Documents | None:
        """Return the documents of the node at a path of the store, as a copy; None if there is no entry."""
        found = self.entry(path)
        return None if found is None else {name: _with_own_attributes(name, held) for name, held in found.items()}

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes directly below a path of the store, sorted."""
        entries, (known, names) = self.entries, self._names
        if known is not entries:
            names = {}
            for entry in sorted(entries):
                parent, _, name = entry.rpartition("/")
                names.setdefault(parent, []).append(name)
            self._names = entries, names
        return names.get(node.relative(path, self.path), [])

    def walk(self, path: str, max_depth: int | None) -> Iterator[tuple[str, Documents]]:
        """Yield the paths and documents of all nodes below a path of the store, level by level."""
        groups, depth = [path], 0
        while groups and (max_depth is None or depth <= max_depth):
            places = [node.join(group, name) for group in groups for name in self.children(group)]
            level = [(place, self.documents(place) or {}) for place in places]
            yield from level
            groups = [place for place, documents in level if node.is_group(documents)]
            depth += 1

    # -- following changes ------------------------------------------------------------------------

    def follow(self, *paths: str, below: bool = False) -> None:
        """Take over what is in the store now at some paths; with `below`, at all paths below them as well.

        Groups between, and those above that hold consolidated metadata themselves, are not forgotten.
        """

        def take(holder: Consolidated, entries: Entries, path: str) -> None:
            for place in [*holder._between(path), path]:
                if place == path or node.relative(place, holder.path) not in entries:
                    holder._take(entries, place)
            if below:
                _drop(entries, node.relative(path, holder.path), keep=True)
                first = self.zarr_format
                for place, found in node.walk(self.store, path, None, lambda p: node.load(self.store, p, first=first)):
                    if isinstance(found, dict):
                        entries[node.relative(place, holder.path)] = bare(found)

        inner = {place for path in paths for place in (*self._between(path), path)}
        self._change_all(paths, inner - {self.path}, take)
        if self.outer is not None:
            self.outer.follow(*paths, below=below)

    def forget(self, *paths: str) -> None:
        """Take out nodes and all below them, before they go from the store: what is named here is whole there.

        From the consolidated metadata of groups between, and of those above, too.
        """

        def leave_out(holder: Consolidated, entries: Entries, path: str) -> None:
            _drop(entries, node.relative(path, holder.path))

        self._change_all(paths, {place for path in paths for place in self._between(path)}, leave_out)
        if self.outer is not None:
            self.outer.forget(*paths)

    def _change_all(self, paths: Sequence[str], inner: Collection[str], change: _Change) -> None:
        """Change the entries of some paths, here and in groups below that hold consolidated metadata themselves."""
        self._change(paths, change)
        for place in sorted(inner):
            if holds_some(self.store, place, self.zarr_format):
                Consolidated(self.store, place, self.zarr_format)._change(paths, change)

    def _change(self, paths: Sequence[str], change: _Change) -> None:
        name = DOCUMENT if self.zarr_format == 3 else CONSOLIDATED_V2
        mine = [path for path in paths if node.is_below(path, self.path)]
        if not mine or not self.store.exists(node.join(self.path, name)):
            return

        # Nodes are read within the lock: a later change of one is followed after this.
        def change_mine(entries: Entries) -> None:
            for path in mine:
                change(self, entries, path)

        def remember(written: _Written) -> None:
            if written[1] is not None:
                self._entries = {path: documents for path, documents in written[1].items() if path}

        change_entries(self.store, self.path, self.zarr_format, change_mine, follow=remember)

    def _between(self, path: str) -> list[str]:
        """Return the paths of groups between this one and a node below."""
        return [node.join(self.path, above) for above in node.parents(node.relative(path, self.path))[1:]]

    def _take(self, entries: Entries, path: str) -> None:
        """Make an entry what a node is; without the node, there is none for anything below either."""
        relative = node.relative(path, self.path)
        try:
            found = node.load(self.store, path, zarr_format=self.zarr_format)
        except MetadataError:
            return  # whatever is broken there, the entry is not the place to say so
        if found is None or not node.is_group(found):
            _drop(entries, relative)
        if found is not None and (relative or self.zarr_format == 2):
            entries[relative] = bare(found)

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the entries, which can be large; they are read again on first use.
        return Consolidated, (self.store, self.path, self.zarr_format, None, self.outer)


_Change: TypeAlias = Callable[[Consolidated, Entries, str], None]
"""Changes the entry of the node at a path of the store, among those that a holder has."""
_Written: TypeAlias = tuple[Documents, Entries | None]
"""The document with consolidated metadata that was written, and its entries; None if it has none that can be read."""


def holder_of(handle: NodeHandle) -> Consolidated | None:
    """Return the consolidated metadata that a node was reached through, or that a group holds, if there is some."""
    return handle._holder


def _with_own_attributes(name: str, content: dict[str, JSON]) -> dict[str, JSON]:
    """Return a document whose attributes are a copy: the caller may change them in place, and nothing else."""
    if name == ATTRIBUTES_V2:
        attributes: dict[str, JSON] = copied(content)
        return attributes
    if "attributes" not in content:
        return content
    own = copy(content)  # which knows of keys that occurred twice
    own["attributes"] = copied(content["attributes"])
    return own


def bare(documents: Documents) -> Documents:
    """Return documents as consolidated metadata holds them: without such of their own."""
    return {
        name: {key: value for key, value in content.items() if key != _BLOCK}
        for name, content in documents.items()
        if name != CONSOLIDATED_V2
    }


def _drop(entries: Entries, path: str, *, keep: bool = False) -> None:
    """Remove the entries of a node and of all below it, or only those below."""
    for entry in [entry for entry in entries if node.is_below(entry, path) and entry and not (keep and entry == path)]:
        del entries[entry]


def holds_some(store: Store, path: str, zarr_format: int) -> bool:
    """Return whether a group holds consolidated metadata."""
    if zarr_format == 2:
        return store.exists(node.join(path, CONSOLIDATED_V2))
    raw = store.get(node.join(path, DOCUMENT))
    return raw is not None and b'"consolidated_metadata"' in raw


def stored_entries(store: Store, path: str, zarr_format: int | None = None) -> Entries | None:
    """Return the documents that a group holds, by the paths of nodes relative to it; None if it holds none."""
    found = node.load(store, path, zarr_format=zarr_format, consolidated=True, expect="group")
    metadata = None if found is None else node.parse(found)
    return getattr(metadata, "consolidated", None)


# -- in the store ---------------------------------------------------------------------------------


def consolidate(store: Store, path: str, metadata: GroupMetadata) -> Entries:
    """Write the documents of all nodes below a group into the group's own; returns them.

    Members are read after what is replaced: a change meanwhile that was followed there is not lost.
    """

    def with_block(documents: Documents) -> tuple[Documents, Entries]:
        entries = _collected(store, path, 3)
        return _with_entries(documents, entries), entries

    if metadata.zarr_format == 3:
        return node.update(store, path, [DOCUMENT], with_block)
    key = node.join(path, CONSOLIDATED_V2)

    def attempt() -> Entries:
        old = store.read(key)  # which need not be readable
        entries = _collected(store, path, 2)
        raw = write_json(consolidated_document({"": _own_documents(store, path, metadata), **entries}))
        if not (store.create(key, raw) if old is None else store.replace(key, raw, old.tag)):
            raise ChangedError
        return entries

    return retried(store, [key], attempt)


def _collected(store: Store, path: str, zarr_format: int) -> Entries:
    """Return the documents of all nodes below a group as they are in the store; a warning names what is left out."""
    entries: Entries = {}
    for place, found in node.walk(store, path, None, lambda place: node.load(store, place, first=zarr_format)):
        name = node.relative(place, path)
        reason = found if not isinstance(found, dict) else f"it has Zarr format {5 - zarr_format}"
        if isinstance(found, dict) and (DOCUMENT in found) == (zarr_format == 3):
            entries[name] = bare(found)
        else:
            warn_caller(f"{name!r} is not in the consolidated metadata of '/{path}': {reason}", BrokenNodeWarning)
    return entries


def _own_documents(store: Store, path: str, metadata: GroupMetadata) -> Documents:
    """Return a group's own documents as they are in the store."""
    found = node.load(store, path, zarr_format=metadata.zarr_format, expect="group")
    return bare(found or metadata.to_documents())


def change_entries(
    store: Store,
    path: str,
    zarr_format: int,
    change: Callable[[Entries], object],
    attributes: Mapping[str, JSON] | None = None,
    follow: Callable[[_Written], object] = node.nothing,
) -> _Written:
    """Change entries of the consolidated metadata of one group by one write; returns what was written.

    `change` changes entries in place. It is called once they were read, and again if others changed them meanwhile;
    what it raises leaves everything as it is. `attributes` is what the group itself gets beside the attributes that it
    has, in Zarr format 3, which has both in one document. `follow`: see `node.update`.
    """

    def rewrite(documents: Documents) -> tuple[Documents, _Written]:
        if attributes and zarr_format == 3:
            documents = with_attributes(documents, {**attributes_of(documents), **attributes})
        if (entries := _entries_in(documents)) is not None:
            change(entries)
            documents = _with_entries(documents, entries)
        return documents, (documents, entries)

    return node.update(store, path, [DOCUMENT if zarr_format == 3 else CONSOLIDATED_V2], rewrite, follow)


def _entries_in(documents: Documents) -> Entries | None:
    """Return the entries of a document; None if there are none, or others have broken them."""
    try:
        if CONSOLIDATED_V2 in documents:
            return consolidated_entries(documents[CONSOLIDATED_V2])
        block = documents[DOCUMENT].get(_BLOCK)
        return block_entries(block) if isinstance(block, dict) and block.get("kind") == "inline" else None
    except MetadataError:
        return None


def _with_entries(documents: Documents, entries: Entries) -> Documents:
    if CONSOLIDATED_V2 in documents:
        return {CONSOLIDATED_V2: consolidated_document(entries)}
    return {DOCUMENT: {**documents[DOCUMENT], _BLOCK: block_of(entries)}}


def follow_changes(
    store: Store,
    path: str,
    changed: Entries,
    attributes: Mapping[str, Mapping[str, JSON]],
    is_newer: Callable[[str, Documents], bool] = lambda path, documents: False,
) -> bool:
    """Set attributes of groups, and put nodes that were changed into the consolidated metadata of all groups above.

    Each group is written once, those above others after them. `path` is the group that the change is about, `changed`
    the documents of nodes below it, and `attributes` what groups get beside the attributes that they have, both by
    paths in the store. `is_newer` tells whether the documents that are held of a node are newer than this change, and
    stay. Returns whether there is consolidated metadata at the path or above it.
    """
    above = {place for node_path in [*changed, *attributes, path] for place in node.parents(node_path)}
    known, holders = dict(changed), set[str]()

    def put(group: str, entries: Entries) -> None:
        for place, documents in known.items():
            relative = node.relative(place, group)
            is_held = node.is_below(place, group) and (relative or GROUP_V2 in documents)
            if is_held and not (relative in entries and is_newer(place, entries[relative])):
                entries[relative] = bare(documents)

    for place in sorted({*above, *attributes, path}, key=node.depth, reverse=True):
        found = node.load(store, place, expect="group")
        if found is None or not node.is_group(found):
            continue
        if _follow_in(store, place, found, known, attributes.get(place, {}), partial(put, place)):
            holders.add(place)
    return not holders.isdisjoint([*node.parents(path), path])


def _follow_in(
    store: Store,
    path: str,
    found: Documents,
    known: Entries,
    attributes: Mapping[str, JSON],
    put: Callable[[Entries], object],
) -> bool:
    """Bring one group into line; tells whether it holds consolidated metadata."""

    def add_attributes(documents: Documents) -> tuple[Documents, Documents]:
        documents = with_attributes(documents, {**attributes_of(documents), **attributes})
        return documents, documents

    in_v3 = DOCUMENT in found
    holds = isinstance(found[DOCUMENT].get(_BLOCK), dict) if in_v3 else holds_some(store, path, 2)
    if in_v3 and (holds or attributes):
        found, _ = change_entries(store, path, 3, put, attributes)
    elif attributes:
        found = node.update(store, path, [GROUP_V2, ATTRIBUTES_V2], add_attributes)
    if attributes:
        known[path] = bare(found)
    if holds and not in_v3:  # its entries have the group itself among them
        change_entries(store, path, 2, put)
    return holds


# -- what others make of it -----------------------------------------------------------------------


def warn_of_rectilinear(name: str, entries: Entries, stacklevel: int) -> None:
    """Warn that zarr-python refuses the whole group, if one of its members has rectilinear chunks.

    zarr-python parses all entries when it opens a group, and rectilinear chunks are off by default there.
    """
    found = [path for path, documents in sorted(entries.items()) if _is_rectilinear(documents)]
    if found:
        warnings.warn(CompatibilityWarning.of_rectilinear(name, found), stacklevel=stacklevel + 1)


def _is_rectilinear(documents: Documents) -> bool:
    grid = documents.get(DOCUMENT, {}).get("chunk_grid")
    return isinstance(grid, dict) and grid.get("name") == "rectilinear"


# -- comparing ------------------------------------------------------------------------------------


def check_entries(store: Store, path: str, metadata: GroupMetadata) -> None:
    """Raise `StaleMetadataError` if the consolidated metadata of a group differs from the nodes below it."""
    held = metadata.consolidated
    if held is None:
        raise ValueError(f"the group '/{path}' in {store!r} has no consolidated metadata to check")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenNodeWarning)
        stored = _collected(store, path, metadata.zarr_format)
    if metadata.zarr_format == 2:
        held = {"": metadata.with_consolidated(None).to_documents(), **held}
        stored = {"": _own_documents(store, path, metadata), **stored}
    if found := tuple(differences(held, stored)):
        raise StaleMetadataError(
            f"the consolidated metadata of '/{path}' in {store!r} is not up to date: {_some(found)}; call "
            "consolidate_metadata, or open with use_consolidated=False",
            differences=found,
        )


def differences(held: Entries, found: Entries) -> Iterator[str]:
    """Yield how entries differ from what is in the store, one sentence each."""
    for path in sorted(held.keys() | found.keys()):
        if path not in found:
            yield f"'{path}' is in the consolidated metadata only"
        elif path not in held:
            yield f"'{path}' is in the store only"
        elif meaning(held[path]) != meaning(found[path]):
            yield f"'{path}' has other metadata in the store"


def meaning(documents: Documents) -> Documents:
    """Return documents in one spelling for all that mean the same; what cannot be read is left as it stands.

    Stores may spell a document anew, as icechunk does with the edges of chunks, and so do other libraries.
    """
    try:
        metadata = node.parse(documents)
    except MetadataError:
        return _without_nothing(documents)
    if isinstance(metadata, ArrayV3Metadata):
        metadata = replace(metadata, chunk_grid=spelled_out(metadata.chunk_grid, metadata.shape))
    return _without_nothing(metadata.to_documents())


def _without_nothing(documents: Documents) -> Documents:
    """Return documents without what means the same as nothing; an empty shape is that of an array without axes."""

    def meant(content: Any) -> Any:
        kept = {k: v for k, v in content.items() if k in _SIZES or v not in ({}, [], None)}
        return {k: comparable(v) for k, v in kept.items() if k != _BLOCK}

    return {name: found for name, content in documents.items() if (found := meant(content)) or name != ".zattrs"}


# -- documents that contradict it -----------------------------------------------------------------


def conflict(held: Documents, found: Documents) -> str | None:
    """Return how the documents of an array contradict what is held of it, where chunks that readers see are at stake.

    A write by such documents overwrites elements that the consolidated metadata shows, or stores chunks otherwise
    than it says: the array is shorter, or has other elements, chunks or codecs. An array that has only grown is no
    conflict, nor are other attributes or fill values, nor an entry that cannot be read.
    """
    theirs, ours = _array_document(held), _array_document(found)
    if (DOCUMENT in held) != (DOCUMENT in found):
        return None  # a migration leaves the documents of the other format
    # As they are spelled, which is quick; zarr-python leaves out of the one what is an empty list in the other.
    if all((theirs.get(name) or None) == (ours.get(name) or None) for name in ("shape", *_CODED, *_GRIDS)):
        return None
    try:
        node.parse(held)
    except MetadataError:
        return None
    if not theirs:
        return "an array by its own metadata, a group in the consolidated metadata"
    theirs, ours = _array_document(meaning(held)), _array_document(meaning(found))
    name = next((name for name in _CODED if theirs.get(name) != ours.get(name)), None)
    if _is_shorter(ours.get("shape"), theirs.get("shape")):
        name = "shape"
    if name is None:
        name = next((name for name in _GRIDS if _contradict(theirs, ours, name)), None)
    if name is None:
        return None
    mine, held_of_it = _worded(ours.get(name)), _worded(theirs.get(name))
    return f"{name} {mine} in its own metadata, {held_of_it} in the consolidated metadata"


def _array_document(documents: Documents) -> dict[str, JSON]:
    found = documents.get(DOCUMENT) or documents.get(ARRAY_V2) or {}
    return found if "shape" in found else {}


def _is_shorter(shape: Any, held: Any) -> bool:
    return len(shape) != len(held) or any(n < least for n, least in zip(shape, held, strict=True))


def _contradict(held: dict[str, Any], found: dict[str, Any], name: str) -> bool:
    """Return whether two grids cut the elements that both have otherwise; one that has grown may have become uneven."""
    if held.get(name) == found.get(name):
        return False
    names = {grid.get("name") for grid in (held[name], found[name]) if isinstance(grid, dict)}
    return held["shape"] == found["shape"] or names <= {"regular"}


def _worded(value: JSON) -> str:
    words = str(value)
    return words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"


def compare(holder: Consolidated, arrays: Mapping[str, ArrayMetadata]) -> dict[str, str]:
    """Refuse to write by metadata of arrays that contradicts consolidated metadata: nothing tells which one is right.

    The metadata, given by paths in the store, was read after the consolidated metadata, which is read again where they
    differ, since another writer may have changed both in between. Returns the arrays that are longer than it says, and
    how much: an append to them comes after elements that its readers have never seen.
    """
    try:
        conflicts, growths = _compared(holder, arrays)
        if conflicts or growths:
            fresh = Consolidated(holder.store, holder.path, holder.zarr_format)
            conflicts, growths = _compared(fresh, arrays)
    except MetadataError:
        return {}  # it is broken; nothing in it can be compared
    if not conflicts:
        return growths
    differences = tuple(f"'{path}': {found}" for path, found in conflicts.items())
    place = f", {holder.path!r}" if holder.path else ""
    raise StaleMetadataError(
        f"metadata of arrays in {holder.store!r} contradicts the consolidated metadata of group '/{holder.path}', as "
        f"after a change by another program, or after old files came back from a backup: {_some(differences)}. Nothing "
        f"was written. If the metadata of the arrays is right, call zellige.consolidate_metadata(…{place}) and write "
        "again. If the consolidated metadata is right, restore that of the arrays: zellige.repair does so where stored "
        "chunks tell",
        differences=differences,
    )


def _compared(holder: Consolidated, arrays: Mapping[str, ArrayMetadata]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what contradicts consolidated metadata, and what has grown beyond it."""
    conflicts, growths = {}, {}
    for path, metadata in arrays.items():
        held = holder.entry(path)
        if held is None:
            continue
        if (found := conflict(held, metadata.to_documents())) is not None:
            conflicts[path] = found
        elif lengths := _growth(holder, _array_document(held).get("shape"), metadata):
            growths[path] = f"'{path}': {', '.join(lengths)}"
    return conflicts, growths


def _growth(holder: Consolidated, held: Any, metadata: ArrayMetadata) -> list[str]:
    """Return along which axes an array is longer than a shape that is held of it."""
    if not isinstance(held, list) or len(held) != len(metadata.shape):
        return []
    names = metadata.dimension_names or [None] * len(held)
    return [
        f"{n} along {f'axis {axis}' if name is None else repr(name)} in its own metadata, {seen} in the consolidated "
        f"metadata of '/{holder.path}'"
        for axis, (name, n, seen) in enumerate(zip(names, metadata.shape, held, strict=True))
        if n > seen
    ]


def refuse_lost(store: Store, paths: Collection[str]) -> None:
    """Refuse arrays whose documents are missing, while consolidated metadata above has them and their keys are there.

    `paths` are where arrays are expected, and none was found. What has no key below it was removed, and the
    consolidated metadata lags behind.
    """
    lost: dict[str, str] = {}
    for place in sorted({above for path in paths for above in node.parents(path)}):
        try:
            entries = stored_entries(store, place) or {}
        except MetadataError:
            continue  # it is broken; nothing in it can be compared
        for path in paths:
            entry = entries.get(node.relative(path, place)) if node.is_below(path, place) else None
            if entry is None or node.is_group(entry) or node.load(store, path) is not None:
                continue
            if any(True for _ in store.list(path + "/")):
                lost[node.join(path, DOCUMENT if DOCUMENT in entry else ARRAY_V2)] = place
    if not lost:
        return
    differences = tuple(
        f"{key!r} is missing, the consolidated metadata of '/{top}' has it" for key, top in lost.items()
    )
    raise StaleMetadataError(
        f"metadata of arrays in {store!r} is missing, while their chunks are there: {_some(differences)}. Nothing "
        "was written. zellige.repair(…, dry_run=False) restores it from there; write again after that",
        differences=differences,
    )


def _some(sentences: Sequence[str]) -> str:
    """Return the first few of some sentences."""
    more = len(sentences) - 5
    return "; ".join(sentences[:5]) + (f"; and {more} more" if more > 0 else "")


def warn_of_growth(store: Store, growths: Sequence[str], stacklevel: int) -> None:
    """Warn of an append to arrays that are longer than consolidated metadata says, as `compare` returned them."""
    warnings.warn(
        f"arrays in {store!r} have grown beyond consolidated metadata, as after an append by another program that did "
        f"not consolidate: {_some(growths)}. What is appended now comes after elements that readers have not seen, and "
        "may repeat them. Call zellige.consolidate_metadata(…) and look at the group again before you append; "
        "warnings.simplefilter('error', zellige.errors.StaleMetadataWarning) refuses such appends",
        StaleMetadataWarning,
        stacklevel=stacklevel + 1,
    )
