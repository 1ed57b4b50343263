"""What is stored below some paths: one listing, from which copies, checks and repairs take keys and nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from zellige.errors import CopyError, MetadataError, UnsafeLinkError
from zellige.grid.grid import ChunkGrid
from zellige.metadata.groups import ARRAY_V2, ATTRIBUTES_V2, CONSOLIDATED_V2, GROUP_V2, Documents
from zellige.metadata.json import read_attributes, read_json
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node
from zellige.nodes.remove import ChunkNames, Owners
from zellige.stores import Store, abilities, threads
from zellige.stores.abilities import Folders, Obstacle
from zellige.stores.base import DOCUMENTS
from zellige.types import JSON, Coords

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata, NodeMetadata


class Found(NamedTuple):
    """A node, with its documents as they are stored and as they read."""

    path: str
    raw: dict[str, bytes]
    documents: Documents
    metadata: NodeMetadata


class Scan:
    """All keys below some paths of a store, listed once; documents are read when they are asked for.

    Where a node has documents of both formats, those of the format `first` count.
    """

    def __init__(self, store: Store, tops: Sequence[str], first: int) -> None:
        self.store, self.tops, self.first = store, tops, first
        listed = threads.gather(lambda top: list(store.list(top and top + "/")), tops, store, large=True)
        self.keys = sorted(key for keys in listed for key in keys)
        self.names: dict[str, set[str]] = {}
        """The names of documents by the paths of their nodes."""
        for key in self.keys:
            path, _, name = key.rpartition("/")
            if name in DOCUMENTS:
                self.names.setdefault(path, set()).add(name)
        self.consolidated: set[str] = set()
        """The groups that hold consolidated metadata, among those whose kind was asked for."""
        self._children: dict[str, list[str]] = {}
        for path in self.names:
            parent, _, name = path.rpartition("/")
            if name and not name.startswith(node.OWN):
                self._children.setdefault(parent, []).append(path)

    # -- keys -------------------------------------------------------------------------------------

    def under(self, path: str) -> list[str]:
        """All keys below a path."""
        return node.keys_below(self.keys, path)

    def places(self, name: str) -> list[str]:
        """The paths at which there is a key of this name."""
        return [key.rpartition("/")[0] for key in self.keys if f"/{key}".endswith(f"/{name}")]

    def chunks(self, path: str, metadata: ArrayMetadata) -> Iterator[tuple[Coords, str]]:
        """The chunks of an array that are stored and lie within its grid, with their keys."""
        grid, keys = ChunkGrid.from_metadata(metadata).grid_shape, metadata.chunk_key_encoding
        for key in self.under(path):
            coords = keys.decode_chunk_key(node.relative(key, path), len(grid))
            if coords is not None and all(map(operator.lt, coords, grid)):
                yield coords, key

    @cached_property
    def obstacles(self) -> dict[str, Obstacle]:
        """What lies in the place of keys and is no value, by its key, sorted; directories are among it."""
        return dict(sorted(found for top in self.tops for found in abilities.obstacles(self.store, top and top + "/")))

    @cached_property
    def _blocked(self) -> list[str]:
        return list(self.obstacles)

    def blocked(self, path: str, metadata: NodeMetadata) -> Iterator[tuple[str, str]]:
        """The keys of obstacles where something of a node belongs, each with what belongs there.

        For a group that is what its direct members need.
        """
        names = ChunkNames.of(metadata)
        for key in node.keys_below(self._blocked, path):
            what, rest = self.obstacles[key], node.relative(key, path)
            if is_reserved(rest):
                continue
            if not names:
                if rest.partition("/")[2] in DOCUMENTS:
                    yield key, "the metadata"
                elif what is Obstacle.OUTER_DIRECTORY and "/" not in rest:
                    yield key, "a node"
            elif any(found.has(rest) for found in names):
                yield key, "the chunk"
            elif what.is_hidden and any(found.has_folder(rest) for found in names):
                yield key, "a directory of chunks"

    # -- what a copy would leave out --------------------------------------------------------------

    def refuse_hidden(self, wanted: Callable[[str], bool] = lambda _: True) -> None:
        """Raise if the listing leaves out something that is to be copied."""
        for key, what in self.obstacles.items():
            if what.is_hidden and wanted(key) and wanted(key + "/"):
                self.refuse(key)

    def refuse_blocked(self, keys: Iterable[str], owners: Owners) -> None:
        """Raise where a directory is in the place of a chunk or of metadata, or a file in that of one of chunks.

        The chunks there are not missing but unknown, and a copy would read as fill values. `owners` are the nodes that
        are copied; `keys` are all that is copied.
        """
        for key, what in self.obstacles.items():
            folder, _, name = key.rpartition("/")
            is_document = name in DOCUMENTS and not is_reserved(folder)
            if what is Obstacle.DIRECTORY and (is_document or owners.owner(key) is not None):
                self.refuse(key)
        self.refuse_files(keys, owners)

    def refuse_files(self, keys: Iterable[str], owners: Owners) -> None:
        """Raise where a file is in the place of a directory of chunks."""
        for key in keys if self.store.ability(Folders) is not None else ():
            top, chunks = owners.nearest(key.rpartition("/")[0])
            if any(found.has_folder(node.relative(key, top)) for found in chunks):
                raise CopyError(
                    f"key {key!r} in {self.store!r}: it is a file in the place of a directory of chunks; restore the "
                    "directory, or remove the file; nothing was copied",
                    key=key,
                )

    def refuse(self, key: str) -> NoReturn:
        """Raise for an obstacle that a copy would have to leave out in silence."""
        what = self.obstacles[key]
        error = CopyError if what in (Obstacle.DIRECTORY, Obstacle.SPECIAL) else UnsafeLinkError
        reason = f"it is {what}; {what.remedy}"
        raise error(f"key {key!r} in {self.store!r} cannot be copied: {reason}; nothing was copied", key=key)

    # -- nodes ------------------------------------------------------------------------------------

    def children(self, path: str) -> list[str]:
        """The paths directly below a group that may hold nodes."""
        return self._children.get(path, [])

    def own(self, path: str) -> list[str]:
        """The names of a node's own documents, the main one first; none if there is no node."""
        names = self.names.get(path, set())
        old = next((name for name in (ARRAY_V2, GROUP_V2) if name in names), None)
        if DOCUMENT in names and (self.first == 3 or old is None):
            return [DOCUMENT]
        return [] if old is None else [old, *({ATTRIBUTES_V2} & names)]

    def kind(self, path: str) -> Literal["array", "group"] | None:
        """What is at a path; a document that cannot be read counts as that of an array."""
        main = next(iter(self.own(path)), None)
        raw = self.store.get(node.join(path, DOCUMENT)) if main == DOCUMENT else None
        content: dict[str, Any] = {}
        if raw is not None:
            with suppress(MetadataError):
                content = read_json(raw)
        is_group = main == GROUP_V2 or content.get("node_type") == "group"
        if is_group and ("consolidated_metadata" in content or self.has_zmetadata(path)):
            self.consolidated.add(path)
        return None if main is None else "group" if is_group else "array"

    def has_zmetadata(self, path: str) -> bool:
        """Whether the node at a path is a group of Zarr format 2 with consolidated metadata."""
        return self.own(path)[:1] == [GROUP_V2] and CONSOLIDATED_V2 in self.names[path]

    def load(self, paths: Sequence[str]) -> list[Found]:
        """The nodes at some paths; each document is read once, several at a time."""
        return [found for found in threads.gather(self._load, paths, self.store, large=True) if found is not None]

    def _load(self, path: str) -> Found | None:
        names = self.own(path)
        raw = {name: value for name in names if (value := self.store.get(node.join(path, name))) is not None}
        if not names or names[0] not in raw:
            return None
        try:
            documents = {name: parsed(name, value) for name, value in raw.items()}
            return Found(path, raw, documents, node.parse(documents))
        except MetadataError as error:
            message = f"cannot copy '/{path}' of {self.store!r}: {error}; copy_store copies keys as they are"
            raise type(error)(message, field=error.field) from error


def is_reserved(key: str) -> bool:
    """Whether a key is one that this library keeps for itself, or a path where such keys are."""
    return f"/{node.OWN}" in f"/{key}"


def parsed(name: str, raw: bytes) -> dict[str, JSON]:
    """The content of a document, given by its name."""
    return read_attributes(raw) if name == ATTRIBUTES_V2 else read_json(raw)
