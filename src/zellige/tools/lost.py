"""Documents that are damaged, missing or wrong, and what consolidated metadata still knows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from zellige.errors import BadArchiveError, CodecError, MetadataError, ShortReadError
from zellige.metadata.groups import (
    ARRAY_V2,
    ATTRIBUTES_V2,
    CONSOLIDATED_V2,
    GROUP_V2,
    Documents,
    Entries,
    GroupMetadata,
    consolidated_entries,
)
from zellige.metadata.json import read_attributes, read_json
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node
from zellige.nodes.array import Array
from zellige.nodes.consolidated import conflict
from zellige.stores import Store
from zellige.tools.copy_plan import Survey
from zellige.types import Coords

if TYPE_CHECKING:
    from zellige.nodes.node import NodeMetadata

DAMAGE = (MetadataError, BadArchiveError)
"""What reading a damaged document raises; the latter in a zip file."""

Right: TypeAlias = Literal["document", "entry", "unclear"]
"""Which of a document and an entry of consolidated metadata the stored chunks agree with."""

Held: TypeAlias = Sequence[tuple[str, Entries]]
"""Consolidated metadata, with the paths of the groups that hold it: those furthest down first."""

_SAMPLE = 4  # chunks that are decoded to find out which document is right, of each kind


@dataclass(frozen=True)
class Lost:
    """A node with documents that are damaged or missing, and what they are to become."""

    path: str
    whole: Documents
    """The documents of the node, once it is mended."""
    metadata: NodeMetadata
    damaged: tuple[str, ...]
    """The names of documents that cannot be read, or are wrong."""
    written: tuple[str, ...]
    """The names of documents that are to be written, the main one last."""
    remedy: str
    """What `repair` does about it."""


def read_documents(store: Store, path: str, names: list[str]) -> tuple[Documents, dict[str, str]]:
    """The documents of a node that can be read, and of the others what is wrong with each."""
    good: Documents = {}
    damaged: dict[str, str] = {}
    for name in names:
        try:
            raw = node.read_document(store, path, name) or b""
            content = read_attributes(raw) if name == ATTRIBUTES_V2 else read_json(raw)
            if name in (DOCUMENT, ARRAY_V2, GROUP_V2):
                node.parse({name: content})
            good[name] = content
        except DAMAGE as error:
            damaged[name] = str(error)
    return good, damaged


def held_entries(store: Store, survey: Survey, groups: Mapping[str, GroupMetadata]) -> Held:
    """The consolidated metadata that can be read.

    That of format 2 is read also where the group's own document is lost.
    """
    found = {path: metadata.consolidated for path, metadata in groups.items() if metadata.consolidated is not None}
    for path, names in survey.names.items():
        if CONSOLIDATED_V2 in names and f"/{node.OWN}" not in f"/{path}":
            good, _ = read_documents(store, path, [CONSOLIDATED_V2])
            try:
                found[path] = consolidated_entries(good[CONSOLIDATED_V2])
            except (KeyError, MetadataError):
                continue
    return sorted(found.items(), key=lambda item: (-item[0].count("/") - bool(item[0]), item[0]))


def find_lost(store: Store, survey: Survey, held: Held, whole: Callable[[str], bool]) -> Iterator[Lost]:
    """The nodes whose documents are damaged or missing and which consolidated metadata knows.

    Without its document and without a key below it, a node was removed, and the consolidated metadata lags behind.
    `whole` tells of a path whether nothing is to be restored there.
    """
    seen: set[str] = set()
    for holder, entries in held:
        for relative, entry in sorted(entries.items()):
            path = node.join(holder, relative)
            if path in seen or whole(path) or not survey.under(path):
                continue
            lost = _restorable(store, survey, path, entry, _remedy(holder))
            if lost is not None:
                seen.add(path)
                yield lost


def _remedy(holder: str) -> str:
    return f"repair restores it from the consolidated metadata of '/{holder}'"


def _restorable(store: Store, survey: Survey, path: str, entry: Documents, remedy: str) -> Lost | None:
    """What a node is to become by an entry; None if that is no node either."""
    of_format = {DOCUMENT} if DOCUMENT in entry else {*entry, ATTRIBUTES_V2}
    good, damaged = read_documents(store, path, sorted(of_format & survey.names.get(path, set())))
    written = sorted((name for name in entry if name not in good), key=lambda name: name != ATTRIBUTES_V2)
    result = {**entry, **good}
    result = {name: result[name] for name in sorted(result, key=lambda name: name == ATTRIBUTES_V2)}
    try:
        metadata = node.parse(result)
    except MetadataError:
        return None
    return Lost(path, result, metadata, tuple(damaged), tuple(written), remedy)


def new_group(path: str, zarr_format: int) -> Lost:
    """A group whose document is missing, of which nothing is known."""
    metadata = GroupMetadata(zarr_format=2 if zarr_format == 2 else 3)
    documents = metadata.to_documents()
    return Lost(path, documents, metadata, (), tuple(documents), "repair makes one of an empty group")


# -- documents that contradict consolidated metadata ----------------------------------------------


@dataclass(frozen=True)
class Dispute:
    """An array whose document contradicts an entry of consolidated metadata, which may be the one that is right."""

    path: str
    holder: str
    """The path of the group that holds the entry."""
    why: str
    right: Right
    """What the chunks of the array tell."""
    lost: Lost
    """What the node is to become, if the entry is right."""
    lengths: Mapping[str, tuple[int, int]]
    """The dimensions that are shorter by the document, with their lengths by it and by the entry.

    Empty if they differ in anything else, or an axis that is shorter has no name.
    """


def find_disputes(survey: Survey, held: Held, documents: Mapping[str, Documents]) -> Iterator[Dispute]:
    """The arrays whose documents may be wrong: the chunks agree with consolidated metadata, or with neither alone.

    `documents` are those of arrays, by path, which can be parsed; by some of them no array can be opened. An array that
    another program has changed, and whose chunks are what its document says, is none.
    """
    seen: set[str] = set()
    for holder, entries in held:
        for relative, entry in sorted(entries.items()):
            path = node.join(holder, relative)
            found = documents.get(path)
            why = None if found is None or path in seen else conflict(entry, found)
            if found is None or why is None:
                continue
            own, other = _array(survey.store, path, found), _array(survey.store, path, entry)
            right = "document" if other is None else _right(survey, own, other)
            if other is None or right == "document" or (own is None and right == "unclear"):
                continue  # without an array by either, the document is damaged and reported as such
            seen.add(path)
            main = DOCUMENT if DOCUMENT in entry else ARRAY_V2
            whole = {**entry, **found, main: entry[main]}
            lost = Lost(path, whole, other.metadata, (main,), (main,), _remedy(holder))
            yield Dispute(path, holder, why, right, lost, {} if own is None else _lengths(own, other, main))


def _lengths(own: Array, other: Array, main: str) -> dict[str, tuple[int, int]]:
    """The dimensions along which two states of an array differ, if nothing else that matters does."""
    documents, entry = own.metadata.to_documents(), other.metadata.to_documents()
    sizes = {name: value for name, value in documents[main].items() if name in ("shape", "chunk_grid")}
    if own.ndim != other.ndim or conflict({**entry, main: {**entry[main], **sizes}}, documents) is not None:
        return {}
    names = own.dimension_names or (None,) * own.ndim
    shorter = [(dim, pair) for dim, *pair in zip(names, own.shape, other.shape, strict=True) if pair[0] != pair[1]]
    found = {dim: (pair[0], pair[1]) for dim, pair in shorter if dim is not None}
    return found if len(found) == len(shorter) else {}


def _array(store: Store, path: str, documents: Documents) -> Array | None:
    """The array that documents describe; None if they do not."""
    with suppress(MetadataError):
        if not node.is_group(documents):
            return Array.from_documents(store, path, documents)
    return None


def _right(survey: Survey, own: Array | None, other: Array) -> Right:
    """Whether stored chunks can be read by the document of an array only, or by an entry only."""
    of_own, of_other = ({} if array is None else _chunks(survey, array) for array in (own, other))
    both = [key for key in of_own if key in of_other]
    shared_own, shared_other = _readable(own, of_own, both), _readable(other, of_other, both)
    by_own = (shared_own - shared_other) | _readable(own, of_own, (key for key in of_own if key not in of_other))
    by_other = (shared_other - shared_own) | _readable(other, of_other, (key for key in of_other if key not in of_own))
    if by_own or by_other:
        return "unclear" if by_own and by_other else "entry" if by_other else "document"
    if not (of_own or of_other):
        return "document"  # there is nothing that could be lost
    # Whoever makes an array shorter removes the chunks beyond its end, and may leave the last one as it is.
    is_cut = own is not None and own.grid.grid_shape != other.grid.grid_shape and own.ndim == other.ndim
    return "document" if is_cut else "unclear"


def _chunks(survey: Survey, array: Array) -> dict[str, Coords]:
    return {key: coords for coords, key in survey.chunks(array.path, array.metadata)}


def _readable(array: Array | None, chunks: Mapping[str, Coords], keys: Iterable[str]) -> set[str]:
    """Those of some keys, among a few that are tried, whose chunks an array can read."""
    found = list(keys)
    tried = found[:: max(1, len(found) // _SAMPLE)][:_SAMPLE]
    return {key for key in tried if array is not None and _can_read(array, chunks[key])}


def _can_read(array: Array, coords: Coords) -> bool:
    try:
        array[array.grid.spec(coords).slices]
    except (CodecError, ShortReadError, BadArchiveError, OSError):
        return False
    return True
