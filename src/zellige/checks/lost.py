"""Documents that are damaged or missing, and what consolidated metadata still knows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zellige import node
from zellige.copy_plan import Survey
from zellige.errors import BadArchiveError, MetadataError
from zellige.metadata import document
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
from zellige.metadata.v3 import DOCUMENT
from zellige.stores import Store

if TYPE_CHECKING:
    from zellige.node import NodeMetadata

DAMAGE = (MetadataError, BadArchiveError)
"""What reading a damaged document raises; the latter in a zip file."""


@dataclass(frozen=True)
class Lost:
    """A node with documents that are damaged or missing, and what they are to become."""

    path: str
    whole: Documents
    """The documents of the node, once it is mended."""
    metadata: NodeMetadata
    damaged: tuple[str, ...]
    """The names of documents that cannot be read."""
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
            content = document.parse_attributes(raw) if name == ATTRIBUTES_V2 else document.parse(raw)
            if name in (DOCUMENT, ARRAY_V2, GROUP_V2):
                node.parse({name: content})
            good[name] = content
        except DAMAGE as error:
            damaged[name] = str(error)
    return good, damaged


def held_entries(store: Store, survey: Survey, groups: Mapping[str, GroupMetadata]) -> Iterator[tuple[str, Entries]]:
    """The consolidated metadata that can be read, with the paths of the groups that hold it: those furthest down first.

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
    yield from sorted(found.items(), key=lambda item: (-item[0].count("/") - bool(item[0]), item[0]))


def find_lost(
    store: Store, survey: Survey, groups: Mapping[str, GroupMetadata], whole: Callable[[str], bool]
) -> Iterator[Lost]:
    """The nodes whose documents are damaged or missing and which consolidated metadata knows.

    Without its document and without a key below it, a node was removed, and the consolidated metadata lags behind.
    `whole` tells of a path whether nothing is to be restored there.
    """
    seen: set[str] = set()
    for holder, entries in held_entries(store, survey, groups):
        for relative, entry in sorted(entries.items()):
            path = node.join(holder, relative)
            if path in seen or whole(path) or not survey.under(path):
                continue
            remedy = f"repair restores it from the consolidated metadata of '/{holder}'"
            lost = _restorable(store, survey, path, entry, remedy)
            if lost is not None:
                seen.add(path)
                yield lost


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
