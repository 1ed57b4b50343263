"""The mark of what is not finished: a key at a place where a node is being removed, moved to, or made in many steps.

A node that takes long to write (`rechunk`, `copy`, `convert`, `zellige.dask.store`) is written data first and documents
last: until all of it is there, no program takes it for a node. The mark says meanwhile what is being made, so that
opening it can name the remedy, the same call can go on, and another one neither mixes its data with it nor takes it for
rubbish of unknown origin. The mark also says how chunks are named there, so that they can be removed without any
document.

Beside the documents of a node the mark means nothing: it is then the last key that a process did not come to remove.
In a transaction nothing is ever seen half done, and there are no marks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from zellige.errors import ConflictError, MetadataError, RemoteError
from zellige.metadata.groups import GroupMetadata
from zellige.metadata.json import read_json
from zellige.metadata.keys import ChunkKeyEncoding, parse_chunk_key_encoding
from zellige.nodes import node
from zellige.stores import Store
from zellige.types import JSON

if TYPE_CHECKING:
    from zellige.nodes.node import NodeMetadata

_REMOVING = "a node was being removed from here, or moved here; zellige finishes that when one is created here"
_MAKING = "is not finished here: run the same call of zellige again, or `zellige vacuum --unfinished` to remove it"

WORK = f"{node.OWN}_work"
"""Beside the mark while a node is being made: what the operation keeps, such as which parts are done."""


class Chunks(NamedTuple):
    """How the chunks of an array are named, below the array; without a rank if its document cannot be read."""

    keys: ChunkKeyEncoding
    rank: int | None

    @classmethod
    def of(cls, metadata: NodeMetadata) -> list[Chunks]:
        """Those of a node: none if it is a group."""
        if isinstance(metadata, GroupMetadata):
            return []
        return [cls(metadata.chunk_key_encoding, len(metadata.shape))]

    def has(self, key: str) -> bool:
        """Whether a key is that of a chunk, in the grid or beyond its end."""
        return self.keys.decode_chunk_key(key, self._rank_of(key) if self.rank is None else self.rank) is not None

    def has_folder(self, folder: str) -> bool:
        """Whether a directory is one that such keys lie in."""
        rank = self._rank_of(folder)
        below = self.rank is None or rank < self.rank
        return self.keys.separator == "/" and below and self.keys.decode_chunk_key(folder, rank) is not None

    def _rank_of(self, key: str) -> int:
        return key.count(self.keys.separator) + (self.keys.name == "v2")


@dataclass(frozen=True)
class Work:
    """An operation that makes a node in many steps."""

    name: str
    """What users call it: rechunk, copy, convert."""
    asked: Mapping[str, JSON]
    """What it was asked for; a call that asks for the same goes on with what this one left."""
    state: Mapping[str, JSON] = field(default_factory=dict)
    """What a call that goes on has to know beside it."""

    def is_same(self, other: Work | None) -> bool:
        """Whether another operation was asked for the same."""
        return other is not None and (self.name, dict(self.asked)) == (other.name, dict(other.asked))


@dataclass(frozen=True)
class Mark:
    """What a mark says."""

    nodes: Mapping[str, Iterable[Chunks]]
    """How the chunks of each node are named, by the paths of the nodes below the mark."""
    source: JSON = None
    """From where a node is being moved."""
    work: Work | None = None
    """What is being made; None for a removal or a move."""

    def to_bytes(self) -> bytes:
        """The mark as it is stored; people can read it."""
        nodes = {path: [(*keys.to_dict().values(), rank) for keys, rank in found] for path, found in self.nodes.items()}
        about = _REMOVING if self.work is None else f"a {self.work.name} {_MAKING}"
        content: dict[str, Any] = {"about": about, "nodes": nodes}
        if self.source is not None:
            content["source"] = self.source
        if self.work is not None:
            content["work"] = vars(self.work)
        return json.dumps(content).encode()

    @classmethod
    def parse(cls, raw: bytes) -> Mark:
        """Read a mark; what of it cannot be read is left out."""
        try:
            content: Any = read_json(raw)
        except MetadataError:
            return cls({})
        return cls(_nodes(content.get("nodes")), content.get("source"), _work(content.get("work")))


def _nodes(found: Any) -> dict[str, list[Chunks]]:
    try:
        return {path: [_chunks(entry) for entry in entries] for path, entries in found.items()}
    except (MetadataError, AttributeError, TypeError, ValueError):
        return {}


def _chunks(entry: Any) -> Chunks:
    name, configuration, rank = entry
    if rank is not None and type(rank) is not int:
        raise TypeError(f"rank {rank!r}")
    return Chunks(parse_chunk_key_encoding({"name": name, "configuration": configuration}), rank)


def _work(found: Any) -> Work | None:
    with suppress(TypeError):
        work = Work(**found)
        if isinstance(work.name, str) and isinstance(work.asked, dict) and isinstance(work.state, dict):
            return work
    return None


# -- in the store ---------------------------------------------------------------------------------


def key_of(path: str) -> str:
    """The key of the mark at a path."""
    return node.join(path, node.UNFINISHED)


def read(store: Store, path: str) -> Mark | None:
    """The mark at a path, if there is one."""
    raw = None if store.traits.transactional else store.get(key_of(path))
    return None if raw is None else Mark.parse(raw)


def write(store: Store, path: str, mark: Mark) -> None:
    """Leave a mark, in the place of another one."""
    if not store.traits.transactional:
        store.put(key_of(path), mark.to_bytes())


def remove(store: Store, path: str) -> None:
    """Say that all is finished."""
    if not store.traits.transactional:
        store.delete([key_of(path)])


def is_begun(store: Store, path: str) -> bool:
    """Whether a removal or a move was begun at a path and is not finished; raises where something was being made.

    For those who have seen that there is no node.
    """
    found = read(store, path)
    if found is not None and found.work is not None:
        raise ConflictError(f"'/{path}' in {store!r} is not free: {said(found.work)}")
    return found is not None


def said(work: Work) -> str:
    """What to tell those who meet something unfinished."""
    return (
        f"an unfinished {work.name} is there, or one that is under way; run the same {work.name} again to finish it, "
        "or zellige.vacuum(…, unfinished=True) to remove it"
    )


def hint(store: Store, path: str) -> str:
    """The end of a message about a node that is not there: why, if it is unfinished; else nothing."""
    with suppress(RemoteError):  # who may not ask is told no more
        found = read(store, path)
        if found is not None and found.work is not None:
            return f": {said(found.work)}"
    return ""
