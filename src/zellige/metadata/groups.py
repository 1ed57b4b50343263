"""The metadata of groups, v3 and v2, and the consolidated metadata that they may hold (spec: 3.2, 9, 10.1).

Consolidated metadata is, in both formats, the documents of all nodes below a group: `{"a/b": {"zarr.json": …}}`
here, whatever its form in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from zellige.errors import MetadataError
from zellige.metadata.json import Fields, as_attributes, as_object, comparable, one_of
from zellige.metadata.v3 import DOCUMENT
from zellige.types import JSON, is_key

ARRAY_V2, GROUP_V2, ATTRIBUTES_V2, CONSOLIDATED_V2 = ".zarray", ".zgroup", ".zattrs", ".zmetadata"

Documents: TypeAlias = dict[str, dict[str, JSON]]
"""The parsed documents of one node by their names: `zarr.json`, or `.zarray` with `.zattrs`, and so on."""
Entries: TypeAlias = dict[str, Documents]
"""The documents of nodes by their paths."""

_BLOCK = "consolidated_metadata"


@dataclass(frozen=True, slots=True)
class ConsolidatedMetadata:
    """The main documents of nodes below a group, by their paths."""

    metadata: dict[str, JSON]
    kind: str = "inline"
    must_understand: bool = False


@dataclass(frozen=True, eq=False)
class GroupMetadata:
    """What the metadata of a group says."""

    attributes: dict[str, JSON] = field(default_factory=dict)
    zarr_format: Literal[2, 3] = 3
    consolidated: Entries | None = None
    """The documents of the nodes below, by their paths relative to the group; None if there are none."""
    extra: dict[str, JSON] = field(default_factory=dict)
    """Unknown fields that may be ignored; kept when the metadata is written again."""

    @classmethod
    def from_documents(
        cls, documents: Mapping[str, dict[str, JSON]], *, use_consolidated: bool = True
    ) -> GroupMetadata:
        """Check parsed documents, given by their names; consolidated metadata that is broken only if it is used."""
        read = _read_v3 if DOCUMENT in documents else _read_v2
        try:
            return read(documents)
        except BrokenBlockError:
            if use_consolidated:
                raise
        rest = {name: content for name, content in documents.items() if name != CONSOLIDATED_V2}
        if DOCUMENT in rest:
            rest[DOCUMENT] = {key: value for key, value in rest[DOCUMENT].items() if key != _BLOCK}
        return read(rest)

    def to_documents(self) -> Documents:
        """Return the documents by their names; optional parts that are empty are left out."""
        return _write_v3(self) if self.zarr_format == 3 else _write_v2(self)

    @property
    def consolidated_metadata(self) -> ConsolidatedMetadata | None:
        """The consolidated metadata by the names that it has in zarr-python."""
        if self.consolidated is None:
            return None
        return ConsolidatedMetadata({path: next(iter(found.values())) for path, found in self.consolidated.items()})

    def to_dict(self) -> dict[str, JSON]:
        """Return the main document."""
        return next(iter(self.to_documents().values()))

    def with_attributes(self, attributes: dict[str, JSON]) -> GroupMetadata:
        """Return the same group with other attributes."""
        return replace(self, attributes=attributes)

    def with_consolidated(self, entries: Entries | None) -> GroupMetadata:
        """Return the same group with other consolidated metadata, or none."""
        extra = {key: value for key, value in self.extra.items() if key != _BLOCK}
        return replace(self, consolidated=entries, extra=extra)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupMetadata):
            return False
        return bool(comparable(self.to_documents()) == comparable(other.to_documents()))


# -- v3: a field of the group's document ----------------------------------------------------------


def _read_v3(documents: Mapping[str, dict[str, JSON]]) -> GroupMetadata:
    fields = Fields(documents[DOCUMENT])
    fields.take("zarr_format", one_of(3))
    fields.take("node_type", one_of("group"))
    attributes = fields.take("attributes", as_attributes, {})
    block, entries = documents[DOCUMENT].get(_BLOCK), None
    if block is None or (isinstance(block, dict) and block.get("kind") == "inline"):
        entries = fields.take(_BLOCK, lambda found, _: None if found is None else block_entries(found), None)
    # Any other form is not used, and kept only if the metadata lets a reader ignore it.
    return GroupMetadata(attributes, 3, entries, fields.ignorable())


def block_entries(block: JSON) -> Entries:
    """Return the entries of a `consolidated_metadata` block."""
    try:
        found = Fields(block, _BLOCK).take("metadata", as_object)
        return {_inside(path, f"{_BLOCK}.metadata"): {DOCUMENT: _entry(entry)} for path, entry in found.items()}
    except MetadataError as error:
        raise _broken(error) from error


def block_of(entries: Entries) -> dict[str, JSON]:
    """Return the `consolidated_metadata` block of some entries, in the order of zarr-python: by depth, then name."""
    paths = sorted(entries, key=lambda path: (path.count("/"), path))
    # A document of the other format has no place in the block.
    metadata = {path: _content(entries[path][DOCUMENT]) for path in paths if DOCUMENT in entries[path]}
    return {"kind": "inline", "must_understand": False, "metadata": metadata}


def _write_v3(group: GroupMetadata) -> Documents:
    document: dict[str, JSON] = {"zarr_format": 3, "node_type": "group"}
    if group.attributes:
        document["attributes"] = group.attributes
    if group.consolidated is not None:
        document[_BLOCK] = block_of(group.consolidated)
    return {DOCUMENT: document | group.extra}


def _inside(path: str, field: str) -> str:
    """Return a path of consolidated metadata, which some begin with a slash, if it leads to a node below the group."""
    found = path.strip("/")
    if not found or not is_key(found):
        place = f"{field}.{path}" if found else field
        raise MetadataError(f"{field} has {path!r}, which is no path of a node below the group", field=place)
    return found


class BrokenBlockError(MetadataError):
    """Consolidated metadata that cannot be read; without it the group can."""


def _broken(error: MetadataError) -> BrokenBlockError:
    remedy = "open with use_consolidated=False, or call consolidate_metadata to write it anew"
    return BrokenBlockError(f"consolidated metadata: {error}; {remedy}", field=error.field)


class BrokenEntry(dict[str, JSON]):
    """An entry that is no document at all; it is written back as it was."""

    value: JSON


def _entry(value: JSON) -> dict[str, JSON]:
    # Nothing more is checked before the entry is used, so that a broken one does not hide the others.
    if isinstance(value, dict):
        return value
    entry = BrokenEntry()
    entry.value = value
    return entry


def _content(entry: dict[str, JSON]) -> JSON:
    return entry.value if isinstance(entry, BrokenEntry) else entry


def attributes_of(documents: Documents) -> dict[str, JSON]:
    """Return the attributes in the documents of a node."""
    found = documents[DOCUMENT].get("attributes") if DOCUMENT in documents else documents.get(ATTRIBUTES_V2)
    return as_attributes(found)


def with_attributes(documents: Documents, attributes: dict[str, JSON]) -> Documents:
    """Return the documents of a node with other attributes, and everything else as it is."""
    if DOCUMENT not in documents:
        return {**documents, ATTRIBUTES_V2: attributes}
    rest = {key: value for key, value in documents[DOCUMENT].items() if key != "attributes"}
    return {DOCUMENT: {**rest, "attributes": attributes} if attributes else rest}


# -- v2: a document of its own --------------------------------------------------------------------


def _read_v2(documents: Mapping[str, dict[str, JSON]]) -> GroupMetadata:
    entries = None
    if CONSOLIDATED_V2 in documents:
        entries = consolidated_entries(documents[CONSOLIDATED_V2])
        documents = {**entries.pop("", {}), **documents}
        if GROUP_V2 not in documents:
            raise _broken(MetadataError(f"{CONSOLIDATED_V2} says nothing about the group itself", field="metadata"))
    fields = Fields(documents.get(GROUP_V2, {}))
    fields.take("zarr_format", one_of(2))
    fields.take(_BLOCK, lambda block, _: block, None)
    return GroupMetadata(as_attributes(documents.get(ATTRIBUTES_V2)), 2, entries, fields.rest())


def consolidated_entries(document: dict[str, JSON]) -> Entries:
    """Return the entries of a `.zmetadata` document; the group itself has the empty path."""
    entries: Entries = {}
    try:
        fields = Fields(document)
        fields.take("zarr_consolidated_format", one_of(1))
        for key, value in fields.take("metadata", as_object).items():
            path, _, name = key.strip("/").rpartition("/")
            if name in (ARRAY_V2, GROUP_V2, ATTRIBUTES_V2):
                _inside(key, "metadata")
                entries.setdefault(path, {})[name] = _entry(value)
    except MetadataError as error:
        raise _broken(error) from error
    return {path: found for path, found in entries.items() if found.keys() != {ATTRIBUTES_V2} or not path}


def consolidated_document(entries: Entries) -> dict[str, JSON]:
    """Return the `.zmetadata` document of some entries, among them the group itself."""
    keys: dict[str, JSON] = {}
    for path, documents in entries.items():
        keys |= {f"{path}/{name}" if path else name: _content(entry) for name, entry in documents.items()}
    return {"zarr_consolidated_format": 1, "metadata": dict(sorted(keys.items()))}


def _write_v2(group: GroupMetadata) -> Documents:
    documents: Documents = {GROUP_V2: {"zarr_format": 2, **group.extra}}
    if group.attributes:
        documents[ATTRIBUTES_V2] = group.attributes
    if group.consolidated is not None:
        documents[CONSOLIDATED_V2] = consolidated_document({"": dict(documents), **group.consolidated})
    return documents
