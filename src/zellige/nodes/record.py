"""The record of a change of several arrays: what it does, as the lease of the group keeps it; see `commit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zellige.errors import MetadataError
from zellige.metadata.groups import ARRAY_V2, Documents
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node
from zellige.types import JSON, is_key

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata


@dataclass(frozen=True)
class Growth:
    """The fields of an array's main document that say how long it is, before and after a change."""

    before: dict[str, JSON]
    after: dict[str, JSON]

    @classmethod
    def of(cls, before: ArrayMetadata, after: ArrayMetadata) -> Growth:
        """The change from one state of an array's metadata to another."""
        return cls(_length_fields(before), _length_fields(after))

    def applied(self, documents: Documents) -> Documents | None:
        """The documents after the change; None if they are those of neither state."""
        name, main = _main(documents)
        if main.get("shape") == self.after["shape"]:
            return documents
        if main.get("shape") != self.before["shape"]:
            return None
        return {**documents, name: {**main, **self.after}}

    def is_done(self, documents: Documents | None) -> bool:
        """Whether documents show the state after a change; False also if there is no difference."""
        return (
            documents is not None
            and self.before["shape"] != self.after["shape"]
            and self.applied(documents) is documents
        )

    def is_behind(self, documents: Documents) -> bool:
        """Whether documents show an array that has grown beyond this change."""
        shape, after = _main(documents)[1].get("shape"), self.after["shape"]
        if not isinstance(shape, list) or len(shape) != len(after) or shape == after:
            return False
        return all(n >= least for n, least in zip(shape, after, strict=True))


def _main(documents: Documents) -> tuple[str, dict[str, JSON]]:
    """The document of an array that tells its shape, and its name; an empty one if there is none."""
    name = DOCUMENT if DOCUMENT in documents else ARRAY_V2
    return name, documents.get(name, {})


def _length_fields(metadata: ArrayMetadata) -> dict[str, JSON]:
    main = next(iter(metadata.to_documents().values()))
    return {name: main[name] for name in ("shape", "chunk_grid") if name in main}


@dataclass
class Record:
    """What a change does, by the paths of nodes relative to its group."""

    committed: bool = False
    """Whether it is done; only without a `switch`."""
    switch: str | None = None
    """The group whose consolidated metadata says whether it is done, by its path in the store."""
    grown: dict[str, Growth] = field(default_factory=dict)
    created: dict[str, Documents] = field(default_factory=dict)
    attributes: dict[str, dict[str, JSON]] = field(default_factory=dict)
    """Attributes that groups get, beside those that they have."""
    consolidate: bool = False
    """Whether metadata is consolidated where it was not before."""

    @property
    def is_empty(self) -> bool:
        """Whether no node changes."""
        return not (self.grown or self.created or self.attributes)

    def to_json(self) -> dict[str, Any]:
        """The content of the lease."""
        return {
            "committed": self.committed,
            "switch": self.switch,
            "grown": {path: [growth.before, growth.after] for path, growth in self.grown.items()},
            "created": self.created,
            "attributes": self.attributes,
            "consolidate": self.consolidate,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], key: str) -> Record:
        """Check the content of a lease; `key` is where it was found."""
        try:
            grown = {_checked(path): Growth(*map(_sized, pair)) for path, pair in content.get("grown", {}).items()}
            created = {_checked(path): _documents(found) for path, found in content.get("created", {}).items()}
            attributes = {_checked(path): dict(found) for path, found in content.get("attributes", {}).items()}
            switch = None if content.get("switch") is None else _checked(content["switch"])
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise MetadataError(
                f"key {key!r}: the record of a change of several arrays cannot be read: {error}; delete the key, and "
                "look at the group with zellige.validate",
                field="",
            ) from error
        committed, consolidate = content.get("committed") is True, content.get("consolidate") is True
        return cls(committed, switch, grown, created, attributes, consolidate)


def _checked(path: str) -> str:
    if path and not is_key(path):
        raise ValueError(f"{path!r} is no path of a node")
    return path


def _sized(fields: Any) -> dict[str, JSON]:
    if not isinstance(fields["shape"], list):
        raise TypeError(f"shape {fields['shape']!r} is no list")
    return dict(fields)


def _documents(found: Any) -> Documents:
    documents = {str(name): dict(content) for name, content in found.items()}
    node.parse(documents)
    return documents
