"""Consolidated metadata: the documents of all nodes below a group, kept with the group's own.

A group that holds some follows every change that is made through it, or through nodes that were reached
through it: the entry in the store is changed after the node itself. Changes by others are found by `differences`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zellige import node
from zellige.errors import MetadataError
from zellige.metadata.groups import (
    CONSOLIDATED_V2,
    Documents,
    Entries,
    block_entries,
    block_of,
    consolidated_document,
    consolidated_entries,
)
from zellige.metadata.v3 import DOCUMENT
from zellige.stores import Store

_BLOCK = "consolidated_metadata"


class Consolidated:
    """The consolidated metadata that a group holds, in memory and in the store."""

    __slots__ = ("store", "path", "zarr_format", "_entries", "_names")

    def __init__(self, store: Store, path: str, zarr_format: int, entries: Entries | None) -> None:
        self.store, self.path, self.zarr_format = store, path, zarr_format
        self._entries = entries
        self._names: dict[str, list[str]] | None = None

    @property
    def entries(self) -> Entries:
        """The documents of the nodes by their paths, relative to the group that holds them."""
        if self._entries is None:  # after pickling
            self._entries = _stored(self.store, self.path, self.zarr_format) or {}
        return self._entries

    def documents(self, path: str) -> Documents | None:
        """The documents of the node at a path of the store; None if there is no entry."""
        return self.entries.get(self._relative(path))

    def children(self, path: str) -> list[str]:
        """The names of the nodes directly below a path of the store, sorted."""
        if self._names is None:
            self._names = {}
            for entry in sorted(self.entries):
                parent, _, name = entry.rpartition("/")
                self._names.setdefault(parent, []).append(name)
        return self._names.get(self._relative(path), [])

    def _relative(self, path: str) -> str:
        return path[len(self.path) :].lstrip("/")

    # -- following changes ------------------------------------------------------------------------

    def note(self, changes: Mapping[str, Documents | None]) -> None:
        """Follow changes of nodes, by their paths in the store; None for one that is gone, with all below it."""
        relative = {self._relative(path): documents for path, documents in changes.items()}
        name = DOCUMENT if self.zarr_format == 3 else CONSOLIDATED_V2
        if self.store.exists(node.join(self.path, name)):
            change = _change_block if self.zarr_format == 3 else _change_document
            node.update(self.store, self.path, [name], lambda documents: change(documents, relative))
        if self._entries is not None:
            _apply(self._entries, {path: found for path, found in relative.items() if path})
            self._names = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the entries, which can be large; they are read again if somebody asks for them.
        return Consolidated, (self.store, self.path, self.zarr_format, None)


def _apply(entries: Entries, changes: Mapping[str, Documents | None]) -> None:
    for path, documents in changes.items():
        if documents is not None:
            entries[path] = documents
        else:
            for below in [entry for entry in entries if entry == path or entry.startswith(path + "/")]:
                del entries[below]


def _change_block(documents: Documents, changes: Mapping[str, Documents | None]) -> tuple[Documents, None]:
    group = documents[DOCUMENT]
    block = group.get(_BLOCK)
    if not isinstance(block, dict) or block.get("kind") != "inline":
        return documents, None  # removed meanwhile, or never readable
    try:
        entries = block_entries(block)
    except MetadataError:
        return documents, None  # it was broken by others; nothing in it can be followed
    # The group's own document is the one that holds the block.
    _apply(entries, {path: found for path, found in changes.items() if path})
    return {DOCUMENT: {**group, _BLOCK: block_of(entries)}}, None


def _change_document(documents: Documents, changes: Mapping[str, Documents | None]) -> tuple[Documents, None]:
    entries = consolidated_entries(documents[CONSOLIDATED_V2])
    _apply(entries, changes)
    return {CONSOLIDATED_V2: consolidated_document(entries)}, None


def _stored(store: Store, path: str, zarr_format: int) -> Entries | None:
    found = node.load(store, path, zarr_format=zarr_format, consolidated=True)
    metadata = None if found is None else node.parse(found)
    return getattr(metadata, "consolidated", None)


# -- comparing ------------------------------------------------------------------------------------


def differences(held: Entries, found: Entries) -> Iterator[str]:
    """How entries differ from what is in the store, one sentence each."""
    for path in sorted(held.keys() | found.keys()):
        if path not in found:
            yield f"'{path}' is in the consolidated metadata only"
        elif path not in held:
            yield f"'{path}' is in the store only"
        elif _comparable(held[path]) != _comparable(found[path]):
            yield f"'{path}' has another document in the store"


def _comparable(documents: Documents) -> Documents:
    """Documents without what means the same as nothing."""

    def bare(content: Any) -> Any:
        return {key: value for key, value in content.items() if key != _BLOCK and value not in ({}, [], None)}

    return {name: found for name, content in documents.items() if (found := bare(content)) or name != ".zattrs"}
