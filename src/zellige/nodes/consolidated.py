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
from typing import TYPE_CHECKING, Any

from zellige.errors import CompatibilityWarning, MetadataError, StaleMetadataError, StaleMetadataWarning
from zellige.metadata import ArrayV3Metadata
from zellige.metadata.grids import spelled_out
from zellige.metadata.groups import (
    ARRAY_V2,
    ATTRIBUTES_V2,
    CONSOLIDATED_V2,
    GROUP_V2,
    Documents,
    Entries,
    attributes_of,
    block_entries,
    block_of,
    consolidated_document,
    consolidated_entries,
    with_attributes,
)
from zellige.metadata.json import comparable, copied
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node
from zellige.stores import Store
from zellige.types import JSON

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata

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
        self, store: Store, path: str, zarr_format: int, entries: Entries | None, outer: Consolidated | None = None
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

    def documents(self, path: str) -> Documents | None:
        """The documents of the node at a path of the store, as a copy; None if there is no entry."""
        found = self.entries.get(self._relative(path))
        if found is None:
            return None
        return {name: _with_own_attributes(name, content) for name, content in found.items()}

    def children(self, path: str) -> list[str]:
        """The names of the nodes directly below a path of the store, sorted."""
        entries, (known, names) = self.entries, self._names
        if known is not entries:
            names = {}
            for entry in sorted(entries):
                parent, _, name = entry.rpartition("/")
                names.setdefault(parent, []).append(name)
            self._names = entries, names
        return names.get(self._relative(path), [])

    def _relative(self, path: str) -> str:
        return path[len(self.path) :].lstrip("/")

    # -- following changes ------------------------------------------------------------------------

    def follow(self, *paths: str, below: bool = False) -> None:
        """Take over what is in the store now at some paths; with `below`, at all paths below them as well.

        Groups between, and those above that hold consolidated metadata themselves, are not forgotten.
        """
        self._follow(paths, below=below)
        for path in sorted({place for changed in paths for place in (*self._between(changed), changed)} - {self.path}):
            if holds_some(self.store, path, self.zarr_format):
                Consolidated(self.store, path, self.zarr_format, None)._follow(paths, below=below)
        if self.outer is not None:
            self.outer.follow(*paths, below=below)

    def forget(self, *paths: str) -> None:
        """Take out nodes and all below them, before they go from the store: what is named here is whole there.

        From the consolidated metadata of groups between, and of those above, too.
        """
        self._change(paths, self._leave_out)
        for path in sorted({place for leaving in paths for place in self._between(leaving)}):
            if holds_some(self.store, path, self.zarr_format):
                inner = Consolidated(self.store, path, self.zarr_format, None)
                inner._change(paths, inner._leave_out)
        if self.outer is not None:
            self.outer.forget(*paths)

    def _leave_out(self, entries: Entries, paths: list[str]) -> None:
        for path in paths:
            _drop(entries, self._relative(path))

    def _between(self, path: str) -> list[str]:
        """The paths of groups between this one and a node below."""
        return [node.join(self.path, above) for above in node.parents(self._relative(path))[1:]]

    def _follow(self, paths: tuple[str, ...], *, below: bool) -> None:
        self._change(paths, partial(self._take, below=below))

    def _change(self, paths: tuple[str, ...], change: Callable[[Entries, list[str]], None]) -> None:
        """Change the entries of some paths in the store."""
        name = DOCUMENT if self.zarr_format == 3 else CONSOLIDATED_V2
        mine = [path for path in paths if node.is_below(path, self.path)]
        if not mine or not self.store.exists(node.join(self.path, name)):
            return
        within = _change_block if self.zarr_format == 3 else _change_document

        # Nodes are read within the lock: whoever changes one after that will follow after this.
        def rewrite(documents: Documents) -> tuple[Documents, Entries | None]:
            return within(documents, lambda entries: change(entries, mine))

        node.update(self.store, self.path, [name], rewrite, self._remember)

    def _remember(self, entries: Entries | None) -> None:
        if entries is not None:
            self._entries = {path: documents for path, documents in entries.items() if path}

    def _take(self, entries: Entries, paths: list[str], *, below: bool) -> None:
        for path in paths:
            for place in [*self._between(path), path] if path != self.path else [path]:
                if place == path or self._relative(place) not in entries:
                    self._take_one(entries, place)
            if below:
                self._take_below(entries, path)

    def _take_one(self, entries: Entries, path: str) -> None:
        """Make an entry what a node is; without the node, there is none for anything below either."""
        relative = self._relative(path)
        try:
            found = node.load(self.store, path, zarr_format=self.zarr_format)
        except MetadataError:
            return  # whatever is broken there, the entry is not the place to say so
        if found is None or not node.is_group(found):
            _drop(entries, relative)
        if found is not None and (relative or self.zarr_format == 2):
            entries[relative] = bare(found)

    def _take_below(self, entries: Entries, path: str) -> None:
        _drop(entries, self._relative(path), keep=True)
        for place, found in node.walk(self.store, path, self.zarr_format):
            if isinstance(found, dict):
                entries[self._relative(place)] = bare(found)

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the entries, which can be large; they are read again if somebody asks for them.
        return Consolidated, (self.store, self.path, self.zarr_format, None, self.outer)


def _with_own_attributes(name: str, content: dict[str, JSON]) -> dict[str, JSON]:
    """A document whose attributes are a copy: those who get them may change them in place, and nothing else of it."""
    if name == ".zattrs":
        attributes: dict[str, JSON] = copied(content)
        return attributes
    if "attributes" not in content:
        return content
    own = copy(content)  # which knows of keys that occurred twice
    own["attributes"] = copied(content["attributes"])
    return own


def bare(documents: Documents) -> Documents:
    """Documents as consolidated metadata holds them: without such of their own."""
    return {
        name: {key: value for key, value in content.items() if key != _BLOCK}
        for name, content in documents.items()
        if name != CONSOLIDATED_V2
    }


def _drop(entries: Entries, path: str, *, keep: bool = False) -> None:
    """Remove the entries of a node and of all below it, or only those below."""
    for entry in [entry for entry in entries if node.is_below(entry, path) and entry and not (keep and entry == path)]:
        del entries[entry]


def _change_block(documents: Documents, take: Callable[[Entries], None]) -> tuple[Documents, Entries | None]:
    group = documents[DOCUMENT]
    block = group.get(_BLOCK)
    if not isinstance(block, dict) or block.get("kind") != "inline":
        return documents, None  # removed meanwhile, or never readable
    try:
        entries = block_entries(block)
    except MetadataError:
        return documents, None  # it was broken by others; nothing in it can be followed
    take(entries)
    return {DOCUMENT: {**group, _BLOCK: block_of(entries)}}, entries


def _change_document(documents: Documents, take: Callable[[Entries], None]) -> tuple[Documents, Entries | None]:
    try:
        entries = consolidated_entries(documents[CONSOLIDATED_V2])
    except MetadataError:
        return documents, None
    take(entries)
    return {CONSOLIDATED_V2: consolidated_document(entries)}, entries


def holds_some(store: Store, path: str, zarr_format: int) -> bool:
    """Whether a group holds consolidated metadata."""
    if zarr_format == 2:
        return store.exists(node.join(path, CONSOLIDATED_V2))
    raw = store.get(node.join(path, DOCUMENT))
    return raw is not None and b'"consolidated_metadata"' in raw


def stored_entries(store: Store, path: str, zarr_format: int) -> Entries | None:
    """The documents that a group holds, by the paths of nodes relative to it; None if it holds none."""
    found = node.load(store, path, zarr_format=zarr_format, consolidated=True, expect="group")
    metadata = None if found is None else node.parse(found)
    return getattr(metadata, "consolidated", None)


# -- changes of several nodes ---------------------------------------------------------------------


def change_entries(
    store: Store, path: str, zarr_format: int, change: Callable[[Entries], None], attributes: Mapping[str, JSON]
) -> bool:
    """Change entries of the consolidated metadata of one group by one write; False, and nothing done, if it has none.

    Parameters
    ----------
    store, path, zarr_format
        Where the group is, and its format.
    change
        Changes entries in place. It is called once they were read, and again if others changed them meanwhile; what it
        raises leaves everything as it is.
    attributes
        What the group itself gets beside the attributes that it has; only in Zarr format 3, which has both in one
        document.
    """
    done: list[Entries | None] = []

    def rewrite(documents: Documents) -> tuple[Documents, Entries | None]:
        if zarr_format == 2:
            return _change_document(documents, change)
        if attributes:
            documents = with_attributes(documents, {**attributes_of(documents), **attributes})
        return _change_block(documents, change)

    node.update(store, path, [DOCUMENT if zarr_format == 3 else CONSOLIDATED_V2], rewrite, done.append)
    return done[-1] is not None


def follow_changes(
    store: Store,
    path: str,
    changed: Entries,
    attributes: Mapping[str, Mapping[str, JSON]],
    is_newer: Callable[[str, Documents], bool] = lambda path, documents: False,
) -> bool:
    """Set attributes of groups, and put nodes that were changed into the consolidated metadata of all groups above.

    Each group is written once, those above others after them. Returns whether there is consolidated metadata at the
    path or above it.

    Parameters
    ----------
    path
        The group that the change is about.
    changed
        The documents of nodes below it, by their paths in the store.
    attributes
        What groups get beside the attributes that they have, by their paths in the store.
    is_newer
        Whether the documents that are held of the node at a path are newer than this change, and stay.
    """
    above = {place for node_path in [*changed, *attributes, path] for place in node.parents(node_path)}
    known, holders = dict(changed), set[str]()
    for place in sorted({*above, *attributes, path}, key=lambda place: -place.count("/") - bool(place)):
        found = node.load(store, place, expect="group")
        if found is not None and node.is_group(found):
            follow = _follow_v3 if DOCUMENT in found else _follow_v2
            take = partial(_put_entries, place, known, is_newer)
            if follow(store, place, known, attributes.get(place, {}), take):
                holders.add(place)
    return not holders.isdisjoint([*node.parents(path), path])


def _follow_v3(
    store: Store, path: str, known: Entries, attributes: Mapping[str, JSON], take: Callable[[Entries], None]
) -> bool:
    """Bring one group into line: attributes and consolidated metadata by one write; tells whether it holds some."""

    def rewrite(documents: Documents) -> tuple[Documents, Documents]:
        if attributes:
            documents = with_attributes(documents, {**attributes_of(documents), **attributes})
        return _change_block(documents, take)[0], documents

    def remember(documents: Documents) -> None:
        if attributes:
            known[path] = bare(documents)
        held.append(isinstance(documents[DOCUMENT].get(_BLOCK), dict))

    held: list[bool] = []
    node.update(store, path, [DOCUMENT], rewrite, remember)
    return held[-1]


def _follow_v2(
    store: Store, path: str, known: Entries, attributes: Mapping[str, JSON], take: Callable[[Entries], None]
) -> bool:
    """The same in Zarr format 2, where attributes and consolidated metadata are documents of their own."""

    def rewrite(documents: Documents) -> tuple[Documents, Documents]:
        documents = with_attributes(documents, {**attributes_of(documents), **attributes})
        return documents, documents

    if attributes:
        node.update(store, path, [GROUP_V2, ATTRIBUTES_V2], rewrite, lambda found: known.update({path: found}))
    if not store.exists(node.join(path, CONSOLIDATED_V2)):
        return False
    node.update(store, path, [CONSOLIDATED_V2], partial(_change_document, take=take))
    return True


def _put_entries(path: str, known: Entries, is_newer: Callable[[str, Documents], bool], entries: Entries) -> None:
    """Put the documents of changed nodes below a group into its entries."""
    for place, documents in known.items():
        relative = place[len(path) :].lstrip("/")
        if relative in entries and is_newer(place, entries[relative]):
            continue
        if node.is_below(place, path) and (relative or GROUP_V2 in documents):
            entries[relative] = bare(documents)


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


def differences(held: Entries, found: Entries) -> Iterator[str]:
    """How entries differ from what is in the store, one sentence each."""
    for path in sorted(held.keys() | found.keys()):
        if path not in found:
            yield f"'{path}' is in the consolidated metadata only"
        elif path not in held:
            yield f"'{path}' is in the store only"
        elif meaning(held[path]) != meaning(found[path]):
            yield f"'{path}' has another document in the store"


def meaning(documents: Documents) -> Documents:
    """Documents in one spelling for all that mean the same; what cannot be read is left as it stands.

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
    """Documents without what means the same as nothing; an empty shape is that of an array without axes."""

    def meant(content: Any) -> Any:
        told = {k: v for k, v in content.items() if k in _SIZES or v not in ({}, [], None)}
        return {k: comparable(v) for k, v in told.items() if k != _BLOCK}

    return {name: found for name, content in documents.items() if (found := meant(content)) or name != ".zattrs"}


# -- documents that contradict it -----------------------------------------------------------------


def conflict(held: Documents, found: Documents) -> str | None:
    """How the documents of an array contradict what is held of it, where chunks that readers see are at stake.

    Who writes by such documents writes over elements that the consolidated metadata shows, or stores chunks otherwise
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
        return "an array by its document, a group in the consolidated metadata"
    theirs, ours = _array_document(meaning(held)), _array_document(meaning(found))
    name = next((name for name in _CODED if theirs.get(name) != ours.get(name)), None)
    if _is_shorter(ours.get("shape"), theirs.get("shape")):
        name = "shape"
    if name is None:
        name = next((name for name in _GRIDS if _contradict(theirs, ours, name)), None)
    if name is None:
        return None
    return f"{name} {_worded(ours.get(name))} in its document, {_worded(theirs.get(name))} in the consolidated metadata"


def _array_document(documents: Documents) -> dict[str, JSON]:
    found = documents.get(DOCUMENT) or documents.get(ARRAY_V2) or {}
    return found if "shape" in found else {}


def _is_shorter(shape: Any, held: Any) -> bool:
    return len(shape) != len(held) or any(n < least for n, least in zip(shape, held, strict=True))


def _contradict(held: dict[str, Any], found: dict[str, Any], name: str) -> bool:
    """Whether two grids cut the elements that both have otherwise; one that has grown may have become uneven."""
    if held.get(name) == found.get(name):
        return False
    names = {grid.get("name") for grid in (held[name], found[name]) if isinstance(grid, dict)}
    return held["shape"] == found["shape"] or names <= {"regular"}


def _worded(value: JSON) -> str:
    words = str(value)
    return words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"


def refuse_conflicts(holder: Consolidated, arrays: Mapping[str, Documents]) -> None:
    """Refuse to write by documents that contradict consolidated metadata: nothing tells which of them is right.

    Parameters
    ----------
    holder
        The consolidated metadata of a group.
    arrays
        The documents of arrays below it, by their paths in the store. They were read after the consolidated metadata,
        which is read again where they differ, since another writer may have changed both in between.
    """
    try:
        told = _conflicts(holder, arrays)
        if told:
            told = _conflicts(Consolidated(holder.store, holder.path, holder.zarr_format, None), arrays)
    except MetadataError:
        return  # it is broken; nothing in it can be compared
    if not told:
        return
    differences = tuple(f"'{path}': {found}" for path, found in told.items())
    place = f", {holder.path!r}" if holder.path else ""
    raise StaleMetadataError(
        f"documents of arrays in {holder.store!r} contradict the consolidated metadata of group '/{holder.path}', as "
        f"after a change by another program, or after old documents came back from a backup: {_some(differences)}. "
        f"Nothing was written. If the documents are right, call zellige.consolidate_metadata(…{place}) and write "
        "again. If the consolidated metadata is right, restore the documents: zellige.repair does so where stored "
        "chunks tell",
        differences=differences,
    )


def refuse_lost(store: Store, paths: Collection[str]) -> None:
    """Refuse arrays whose documents are missing, while consolidated metadata above has them and their keys are there.

    Parameters
    ----------
    store, paths
        Where arrays are expected, and none was found. What has no key below it was removed, and the consolidated
        metadata lags behind.
    """
    told: dict[str, str] = {}
    for place in sorted({above for path in paths for above in node.parents(path)}):
        try:
            found = node.load(store, place, consolidated=True, expect="group")
            entries = None if found is None else getattr(node.parse(found), "consolidated", None)
        except MetadataError:
            continue  # it is broken; nothing in it can be compared
        cut = len(place and place + "/")
        for path in (path for path in paths if entries is not None and node.is_below(path, place)):
            entry = (entries or {}).get(path[cut:])
            if entry is None or node.is_group(entry) or node.load(store, path) is not None:
                continue
            if any(True for _ in store.list(path + "/")):
                told[node.join(path, DOCUMENT if DOCUMENT in entry else ARRAY_V2)] = place
    if not told:
        return
    differences = tuple(
        f"document {key!r} is missing, the consolidated metadata of '/{top}' has it" for key, top in told.items()
    )
    raise StaleMetadataError(
        f"documents of arrays in {store!r} are missing, while their chunks are there: {_some(differences)}. Nothing "
        "was written. zellige.repair(…, dry_run=False) restores them from there; write again after that",
        differences=differences,
    )


def _some(told: Sequence[str]) -> str:
    """The first few of some sentences."""
    return "; ".join(told[:5]) + (f"; and {len(told) - 5} more" if len(told) > 5 else "")


def find_growth(holder: Consolidated, arrays: Mapping[str, ArrayMetadata]) -> dict[str, str]:
    """The arrays that are longer than consolidated metadata says, and how much.

    Who appends to them comes after elements that readers of the consolidated metadata have never seen. `arrays` are
    below the group, by their paths in the store; it is read again if they differ, as in `refuse_conflicts`.
    """
    try:
        found = _growths(holder, arrays)
        return found and _growths(Consolidated(holder.store, holder.path, holder.zarr_format, None), arrays)
    except MetadataError:
        return {}


def _growths(holder: Consolidated, arrays: Mapping[str, ArrayMetadata]) -> dict[str, str]:
    told = {}
    for path, metadata in arrays.items():
        held: Any = _array_document(holder.entries.get(holder._relative(path), {})).get("shape")
        if not isinstance(held, list) or len(held) != len(metadata.shape):
            continue
        names = metadata.dimension_names or [None] * len(held)
        lengths = [
            f"{n} along {f'axis {axis}' if name is None else repr(name)} in its document, {seen} in the consolidated "
            f"metadata of '/{holder.path}'"
            for axis, (name, n, seen) in enumerate(zip(names, metadata.shape, held, strict=True))
            if n > seen
        ]
        if lengths:
            told[path] = f"'{path}': {', '.join(lengths)}"
    return told


def warn_of_growth(store: Store, told: Sequence[str], stacklevel: int) -> None:
    """Warn those who append to arrays of which `find_growth` tells."""
    warnings.warn(
        f"arrays in {store!r} have grown beyond consolidated metadata, as after an append by another program that did "
        f"not consolidate: {_some(told)}. What is appended now comes after elements that readers have not seen, and "
        "may repeat them. Call zellige.consolidate_metadata(…) and look at the group again before you append; "
        "warnings.simplefilter('error', zellige.errors.StaleMetadataWarning) refuses such appends",
        StaleMetadataWarning,
        stacklevel=stacklevel + 1,
    )


def _conflicts(holder: Consolidated, arrays: Mapping[str, Documents]) -> dict[str, str]:
    entries = holder.entries
    pairs = ((path, entries.get(holder._relative(path)), found) for path, found in arrays.items())
    told = {path: conflict(held, found) for path, held, found in pairs if held is not None}
    return {path: found for path, found in told.items() if found is not None}
