"""The record of a change of several arrays: what the change does, and how readers that meet the record see it.

Writers keep it in the lease of the group, see `commit`. A reader that finds one that is committed applies it to what it
has read, since the metadata of the arrays may still be behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from zellige.errors import MetadataError
from zellige.metadata.groups import ARRAY_V2, Documents
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import lease, node
from zellige.nodes.array import Array
from zellige.nodes.consolidated import stored_entries
from zellige.stores import Store
from zellige.stores.base import ChangedError, retried
from zellige.stores.threads import gather
from zellige.types import JSON, is_key

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata

T = TypeVar("T")


@dataclass(frozen=True)
class Growth:
    """The fields of an array's main document that say how long it is, before and after a change."""

    before: dict[str, JSON]
    after: dict[str, JSON]

    @classmethod
    def of(cls, before: ArrayMetadata, after: ArrayMetadata) -> Growth:
        """Return the change from one state of an array's metadata to another."""
        return cls(_length_fields(before), _length_fields(after))

    def applied(self, documents: Documents) -> Documents | None:
        """Return the documents after the change; None if they are those of neither state."""
        name, main = _main(documents)
        if main.get("shape") == self.after["shape"]:
            return documents
        if main.get("shape") != self.before["shape"]:
            return None
        return {**documents, name: {**main, **self.after}}

    def is_done(self, documents: Documents | None) -> bool:
        """Return whether documents show the state after a change; False also if there is no difference."""
        differs = self.before["shape"] != self.after["shape"]
        return documents is not None and differs and self.applied(documents) is documents

    def is_behind(self, documents: Documents) -> bool:
        """Return whether documents show an array that has grown beyond this change."""
        shape, after = _main(documents)[1].get("shape"), self.after["shape"]
        if not isinstance(shape, list) or len(shape) != len(after) or shape == after:
            return False
        return all(n >= least for n, least in zip(shape, after, strict=True))


def _main(documents: Documents) -> tuple[str, dict[str, JSON]]:
    """Return the name of the document of an array that tells its shape, and the document; an empty one if none does."""
    name = DOCUMENT if DOCUMENT in documents else ARRAY_V2
    return name, documents.get(name, {})


def _length_fields(metadata: ArrayMetadata) -> dict[str, JSON]:
    main = next(iter(metadata.to_documents().values()))
    return {name: main[name] for name in ("shape", "chunk_grid") if name in main}


@dataclass
class Record:
    """What a change does, by the paths of nodes in the store."""

    path: str
    """The group whose lease keeps it; what is stored has paths relative to that."""
    committed: bool = False
    """Whether it is done; only without a `switch`."""
    switch: str | None = None
    """The group whose consolidated metadata says whether it is done."""
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
        """Return the content of the lease."""

        def below(found: Mapping[str, T]) -> dict[str, T]:
            return {node.relative(place, self.path): value for place, value in found.items()}

        return {
            "committed": self.committed,
            "switch": self.switch,
            "grown": below({place: [growth.before, growth.after] for place, growth in self.grown.items()}),
            "created": below(self.created),
            "attributes": below(self.attributes),
            "consolidate": self.consolidate,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], key: str) -> Record:
        """Check the content of the lease at a key."""
        top = key.removesuffix(node.RECORD).rstrip("/")

        def places(name: str, check: Callable[[Any], T]) -> dict[str, T]:
            return {node.join(top, _path(path)): check(found) for path, found in content.get(name, {}).items()}

        try:
            grown = places("grown", lambda pair: Growth(*map(_sized, pair)))
            created, attributes = places("created", _documents), places("attributes", dict)
            switch = None if content.get("switch") is None else _path(content["switch"])
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise MetadataError(
                f"key {key!r}: the record of a change of several arrays cannot be read: {error}; delete the key, and "
                "look at the group with zellige.validate",
                field="",
            ) from error
        committed, consolidate = content.get("committed") is True, content.get("consolidate") is True
        return cls(top, committed, switch, grown, created, attributes, consolidate)


def _path(path: str) -> str:
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


# -- what readers see -----------------------------------------------------------------------------


def is_committed(store: Store, record: Record) -> bool:
    """Return whether a change is done, as far as readers see."""
    if record.switch is None:
        return record.committed
    in_v3 = [DOCUMENT in found for found in record.created.values()]
    in_v3 += ["chunk_grid" in growth.after for growth in record.grown.values()]
    entries = stored_entries(store, record.switch, 3 if any(in_v3) else 2) or {}
    held = {place: entries.get(node.relative(place, record.switch)) for place in (*record.grown, *record.created)}
    if any(growth.is_done(held[place]) for place, growth in record.grown.items()):
        return True
    if any(held[place] is not None for place in record.created):
        return True
    # Others may have made the consolidated metadata anew; then the arrays, which come after it, tell.
    return any(
        gather(lambda item: item[1].is_done(node.load(store, item[0])), list(record.grown.items()), store)
    ) or any(gather(lambda place: node.load(store, place) is not None, list(record.created), store))


def stable(store: Store, groups: Iterable[str], read: Callable[[], T]) -> tuple[T, list[Record]]:
    """Return what `read` gives for groups that are being changed, and the committed records to be applied to it.

    It is read again if a record was committed, or removed, meanwhile.
    """
    keys = {group: node.join(group, node.RECORD) for group in groups}

    def look() -> dict[str, Record | None]:
        """Return the records that are there; None for one that is not committed."""
        found = zip(keys, gather(store.get, list(keys.values()), store), strict=True)
        return {group: _committed(store, group, raw) for group, raw in found if raw is not None}

    def attempt() -> tuple[T, list[Record]]:
        before = look()
        found = read()
        if look() != before:
            raise ChangedError
        return found, [record for record in before.values() if record is not None]

    return retried(store, list(keys.values()), attempt, writing=False)


def created_node(store: Store, path: str) -> Documents | None:
    """Return the documents of a node that was not found at a path, if its creation is committed and not finished."""
    if store.traits.transactional:
        return None
    groups = [*node.parents(path), path]
    raws = gather(lambda group: store.get(node.join(group, node.RECORD)), groups, store)
    for group, raw in zip(groups, raws, strict=True):
        record = None if raw is None else _committed(store, group, raw)
        if record is not None and path in record.created:
            return record.created[path]
    return None


def _committed(store: Store, path: str, raw: bytes) -> Record | None:
    try:
        record = Record.from_json(lease.read(raw).content, node.join(path, node.RECORD))
    except MetadataError:
        return None  # writers say so; the arrays are still what their own metadata says
    return record if is_committed(store, record) else None


def apply(records: Iterable[Record], groups: Iterable[str], level: dict[str, Any]) -> None:
    """Apply committed records to what was read of the nodes directly below some groups.

    `level` has it by the paths of these members: an array, or documents, or None where nothing is.
    """
    parents = set(groups)
    for record in records:
        for place, growth in record.grown.items():
            found = level.get(place)
            documents = found.metadata.to_documents() if isinstance(found, Array) else found
            if isinstance(documents, dict):
                level[place] = growth.applied(documents) or found
        for place, documents in record.created.items():
            if place != record.path and place.rpartition("/")[0] in parents and level.get(place) is None:
                level[place] = documents
