"""Removing nodes: all that is their own goes, and nothing else; killed anywhere, the same call or the next finishes it.

**What is a node's own** follows from its metadata, not from how a key looks: its metadata documents, the marks of this
library, and what its chunk key encoding reads as a chunk of its rank. All other keys stay where they are. Of an array
whose metadata cannot be read only the format is known, and so keys that look like chunks of that format go: `c/0/1` and
`c.0.1` beside a `zarr.json`, `0.1` and `0/1` beside a `.zarray`.

**The mark**, the key `__zellige_unfinished` at a place, says that no whole node is there, and how the chunks are named,
so that they can be removed without any metadata. It also names what is under way:

| under way | steps | what a kill leaves is finished by |
|---|---|---|
| a removal | mark, metadata from the top downwards, chunks, mark | the same call, any creation there, or `vacuum` |
| a move to here (`source`) | mark, chunks, metadata, the same removed at the source, mark | the same call |
| making in many steps (`work`) | mark, chunks, metadata from the leaves upwards, mark | the same call, or `vacuum` |

So nothing can be opened by half, and no program takes what is unfinished for a node. Beside the metadata of a node the
mark means nothing: it is then the last key that a process did not come to remove. In a transaction nothing is ever seen
half done, and there are no marks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from zellige.errors import (
    ConflictError,
    ContainsArrayError,
    ContainsGroupError,
    MetadataError,
    NotANodeError,
)
from zellige.metadata.chunks import (
    ChunkKeyEncoding,
    DefaultChunkKeyEncoding,
    V2ChunkKeyEncoding,
    parse_chunk_key_encoding,
)
from zellige.metadata.groups import ARRAY_V2, ATTRIBUTES_V2, CONSOLIDATED_V2, GROUP_V2, GroupMetadata
from zellige.metadata.json import read_json
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import lease, node
from zellige.stores import Store, abilities
from zellige.stores.abilities import Folders
from zellige.stores.threads import gather
from zellige.types import JSON

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata, NodeMetadata

WORK = f"{node.OWN}_work"
"""Beside the mark while a node is being made: what the operation keeps, such as which parts are done."""

_REMOVING = "a node was being removed from here, or moved here; zellige finishes that when one is created here"
_UNFINISHED = "is not finished here: run the same call of zellige again, or `zellige vacuum --unfinished` to remove it"


# -- the mark -------------------------------------------------------------------------------------


class ChunkNames(NamedTuple):
    """How the chunks of an array are named below it; without a rank if its metadata cannot be read."""

    keys: ChunkKeyEncoding
    rank: int | None

    @classmethod
    def of(cls, metadata: NodeMetadata) -> list[ChunkNames]:
        """Return those of a node: none if it is a group."""
        if isinstance(metadata, GroupMetadata):
            return []
        return [cls(metadata.chunk_key_encoding, len(metadata.shape))]

    @classmethod
    def of_document(cls, key: str, raw: bytes) -> list[ChunkNames]:
        """Return those of the node that a document, given by its key, belongs to."""
        name = _split(key)[1]
        try:
            content = read_json(raw)
            if name == GROUP_V2 or content.get("node_type") == "group":
                return []
            if name == DOCUMENT:
                keys = parse_chunk_key_encoding(content.get("chunk_key_encoding"))
            else:
                keys = V2ChunkKeyEncoding(content.get("dimension_separator") or ".")
            shape = content.get("shape")
            return [cls(keys, len(shape))] if isinstance(shape, list) else _UNREADABLE[name]
        except MetadataError:
            return _UNREADABLE[name]

    @classmethod
    def parse(cls, entry: Any) -> ChunkNames:
        """Read an entry of a mark."""
        name, configuration, rank = entry
        if rank is not None and type(rank) is not int:
            raise TypeError(f"rank {rank!r}")
        return cls(parse_chunk_key_encoding({"name": name, "configuration": configuration}), rank)

    def has(self, key: str) -> bool:
        """Return whether a key is that of a chunk, in the grid or beyond its end."""
        return self.keys.decode_chunk_key(key, self._rank_of(key) if self.rank is None else self.rank) is not None

    def has_folder(self, folder: str) -> bool:
        """Return whether a directory is one that such keys lie in."""
        rank = self._rank_of(folder)
        below = self.rank is None or rank < self.rank
        return self.keys.separator == "/" and below and self.keys.decode_chunk_key(folder, rank) is not None

    def _rank_of(self, key: str) -> int:
        return key.count(self.keys.separator) + (self.keys.name == "v2")


_UNREADABLE = {
    DOCUMENT: [ChunkNames(DefaultChunkKeyEncoding(separator), None) for separator in "/."],
    ARRAY_V2: [ChunkNames(V2ChunkKeyEncoding(separator), None) for separator in "/."],
    GROUP_V2: [],
}


@dataclass(frozen=True)
class Work:
    """An operation that makes a node in many steps."""

    name: str
    """What users call it: rechunk, copy, convert."""
    asked: Mapping[str, JSON]
    """Its arguments; a call with the same ones goes on with what this one left."""
    state: Mapping[str, JSON] = field(default_factory=dict)
    """What a call that goes on has to know beside it."""

    def is_same(self, other: Work | None) -> bool:
        """Return whether another operation has the same name and arguments."""
        return other is not None and (self.name, dict(self.asked)) == (other.name, dict(other.asked))


@dataclass(frozen=True)
class Mark:
    """What a mark says."""

    nodes: Mapping[str, Iterable[ChunkNames]]
    """How the chunks of each node are named, by the paths of the nodes below the mark."""
    source: JSON = None
    """From where a node is being moved."""
    work: Work | None = None
    """What is being made; None for a removal or a move."""

    def to_bytes(self) -> bytes:
        """Return the mark as it is stored; people can read it."""
        nodes = {path: [(*keys.to_dict().values(), rank) for keys, rank in found] for path, found in self.nodes.items()}
        about = _REMOVING if self.work is None else f"a {self.work.name} {_UNFINISHED}"
        source = {} if self.source is None else {"source": self.source}
        work = {} if self.work is None else {"work": vars(self.work)}
        return json.dumps({"about": about, "nodes": nodes, **source, **work}).encode()

    @classmethod
    def parse(cls, raw: bytes) -> Mark:
        """Read a mark; what of it cannot be read is left out."""
        nodes, work = {}, None
        try:
            content: Any = read_json(raw)
        except MetadataError:
            return cls({})
        with suppress(MetadataError, AttributeError, TypeError, ValueError):
            nodes = {path: list(map(ChunkNames.parse, entries)) for path, entries in content.get("nodes").items()}
        with suppress(TypeError):
            found = Work(**content.get("work"))
            if isinstance(found.name, str) and isinstance(found.asked, dict) and isinstance(found.state, dict):
                work = found
        return cls(nodes, content.get("source"), work)


def mark_key(path: str) -> str:
    """Return the key of the mark at a path."""
    return node.join(path, node.UNFINISHED)


def read_mark(store: Store, path: str) -> Mark | None:
    """Read the mark at a path, if there is one."""
    raw = None if store.traits.transactional else store.get(mark_key(path))
    return None if raw is None else Mark.parse(raw)


def write_mark(store: Store, path: str, mark: Mark) -> None:
    """Leave a mark, in the place of another one."""
    if not store.traits.transactional:
        store.put(mark_key(path), mark.to_bytes())


def create_mark(store: Store, path: str, mark: Mark) -> None:
    """Leave a mark where there is none; raises if another process was first."""
    if not store.traits.transactional and not store.create(mark_key(path), mark.to_bytes()):
        raise ConflictError(f"'/{path}' in {store!r}: another operation began there meanwhile; nothing was written")


def remove_mark(store: Store, path: str) -> None:
    """Say that all is finished."""
    if not store.traits.transactional:
        store.delete([mark_key(path)])


def is_begun(store: Store, path: str) -> bool:
    """Return whether a removal or a move was begun at a path without a node; raises where something was being made."""
    found = read_mark(store, path)
    if found is not None and found.work is not None:
        raise ConflictError(f"'/{path}' in {store!r} is not free: {words(found.work)}")
    return found is not None


def words(work: Work) -> str:
    """Return the words for an error about something unfinished."""
    return (
        f"an unfinished {work.name} is there, or one that is under way; run the same {work.name} again to finish it, "
        "or zellige.vacuum(…, unfinished=True) to remove it"
    )


# -- what goes, and what stays --------------------------------------------------------------------

# Consolidated metadata speaks of all nodes below, and the newer format hides the older: neither may be uncovered.
_ORDER = {name: order for order, name in enumerate((CONSOLIDATED_V2, GROUP_V2, ARRAY_V2, ATTRIBUTES_V2, DOCUMENT))}
_MARKS = (node.PENDING, node.RECORD, node.UNFINISHED)


class Owners:
    """To which of some nodes keys belong, by how the chunks of each node are named."""

    def __init__(self, nodes: Mapping[str, Iterable[ChunkNames]]) -> None:
        self._nodes = nodes
        self._near: dict[str, tuple[str, Iterable[ChunkNames]]] = {}

    def owner(self, key: str) -> str | None:
        """Return the path of the node whose document or chunk a key is."""
        folder, name = _split(key)
        if name in _ORDER:
            return folder if folder in self._nodes else None
        path, chunks = self.nearest(folder)
        below = node.relative(key, path)
        return path if any(found.has(below) for found in chunks) else None

    def nearest(self, folder: str) -> tuple[str, Iterable[ChunkNames]]:
        """Return the path of the nearest node at or above a directory, and how its chunks are named."""
        found = self._near.get(folder)
        if found is None:
            if folder in self._nodes:
                found = folder, self._nodes[folder]
            else:
                found = self.nearest(_split(folder)[0]) if folder else ("", [])
            self._near[folder] = found
        return found


class Removal:
    """What goes with the node at a path, found by one listing and the documents of all nodes below it.

    `more` are keys, relative to the node, that go although they are not its own, `kept` are some that stay. `nodes` are
    such that have no document here, by their paths relative to this one. `keys` are those below, if they were listed.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        more: Iterable[str] = (),
        kept: Iterable[str] = (),
        nodes: Mapping[str, Iterable[ChunkNames]] | None = None,
        keys: Iterable[str] | None = None,
    ) -> None:
        self.store, self.path, self.prefix = store, path, node.prefix(path)
        staying = {node.UNFINISHED, *kept}
        self.keys = [key for key in (node.keys_at(store, path) if keys is None else keys) if key not in staying]
        self.nodes: dict[str, list[ChunkNames]] = {path: list(chunks) for path, chunks in (nodes or {}).items()}
        """How the chunks of each node are named, by the paths of the nodes relative to this one."""
        self._find_nodes()
        self._owners = Owners(self.nodes)
        given = set(more)
        self.own = [key for key in self.keys if key in given or self._owns(key)]
        self._folders = {above for path in self.nodes for above in (*node.parents(path), path)} | {""}

    def _find_nodes(self) -> None:
        names = (*_UNREADABLE, node.UNFINISHED)
        found = [key for key in self.keys if key.endswith(names) and _split(key)[1] in names and not _is_reserved(key)]
        if not self.store.traits.transactional:
            found.append(node.UNFINISHED)
        for key, raw in zip(
            found, gather(lambda key: self.store.get(self.prefix + key), found, self.store), strict=True
        ):
            folder, name = _split(key)
            if raw is not None and name == node.UNFINISHED:
                for path, chunks in Mark.parse(raw).nodes.items():
                    self.nodes.setdefault(node.join(folder, path), []).extend(chunks)
            elif raw is not None:
                self.nodes.setdefault(folder, []).extend(ChunkNames.of_document(name, raw))

    def _owns(self, key: str) -> bool:
        folder, name = _split(key)
        if (place := _place_of_work(folder)) is not None:
            return place in self.nodes
        return folder in self.nodes if name in _MARKS else self.owner(key) is not None

    def owner(self, key: str) -> str | None:
        """Return the path of the node whose document or chunk a key is; both relative to this node."""
        return self._owners.owner(key)

    def _owns_folder(self, folder: str) -> bool:
        if (place := _place_of_work(folder)) is not None:
            return place in self.nodes
        path, chunks = self._owners.nearest(_split(folder)[0])
        below = node.relative(folder, path)
        return folder in self._folders or any(found.has_folder(below) for found in chunks)

    def refuse_chunks_of(self, new: Mapping[str, NodeMetadata]) -> None:
        """Refuse to leave keys that new arrays, given by their paths relative to this node, would read as chunks.

        So are files in the place of directories of chunks.
        """
        own = set(self.own)
        staying = [key for key in self.keys if key not in own]
        has_folders = self.store.ability(Folders) is not None
        for path, metadata in new.items() if staying else ():
            prefix = node.prefix(path)
            below = [key[len(prefix) :] for key in staying if key.startswith(prefix)]
            stray = first_chunk(below, metadata)
            if stray is not None and path not in self.nodes:
                raise lost_chunk(self.store, self.prefix + prefix + stray)
            if stray is None and has_folders:
                stray = next((key for found in ChunkNames.of(metadata) for key in below if found.has_folder(key)), None)
            if stray is not None:
                key = self.prefix + prefix + stray
                raise NotANodeError(
                    f"key {key!r} in {self.store!r} looks like a chunk of the new array, or is in the place of its "
                    "chunks, and is no part of what is there; nothing was removed. Remove that key first"
                )

    def remove_documents(self) -> None:
        """Remove the documents from the top downwards."""

        def order(key: str) -> tuple[int, int]:
            return key.count("/"), _ORDER[_split(key)[1]]

        documents = sorted((key for key in self.own if _split(key)[1] in _ORDER), key=order)
        for _, batch in groupby(documents, key=order):
            self._delete(batch)

    def remove_rest(self) -> None:
        """Remove the chunks and the marks of nodes below, and the directories that are empty then."""
        self._delete(key for key in self.own if _split(key)[1] not in _ORDER)
        abilities.prune(self.store, self.prefix, self._owns_folder)

    def remove_only(self, keys: Iterable[str]) -> None:
        """Remove some keys, documents first and from the top downwards, and the directories that are empty then."""
        self.own = list(keys)
        self.remove_documents()
        self.remove_rest()

    def _delete(self, keys: Iterable[str]) -> None:
        abilities.delete_below(self.store, self.prefix, [self.prefix + key for key in keys])


def _split(key: str) -> tuple[str, str]:
    folder, _, name = key.rpartition("/")
    return folder, name


def _place_of_work(folder: str) -> str | None:
    """Return the path of the node that is being made by an operation which keeps something in this directory."""
    place, found, _ = f"/{folder}/".partition(f"/{WORK}/")
    return place[1:] if found else None


def _is_reserved(key: str) -> bool:
    """Return whether a key lies where no node can be, but our own scratch."""
    return f"/{node.OWN}" in f"/{_split(key)[0]}"


def first_chunk(keys: Iterable[str], metadata: NodeMetadata) -> str | None:
    """Return the first of some keys, relative to a node, that is a chunk of it."""
    return next((key for chunks in ChunkNames.of(metadata) for key in keys if chunks.has(key)), None)


def looks_like_chunk(key: str) -> bool:
    """Return whether a key, relative to a node whose metadata is lost, looks like a chunk of any format."""
    return any(chunks.has(key) for form in _UNREADABLE.values() for chunks in form)


def lost_chunk(store: Store, key: str) -> NotANodeError:
    """Return the error for a key that would appear in a new array as if it were written there."""
    return NotANodeError(
        f"key {key!r} in {store!r} looks like a chunk of a lost array, whose metadata is missing; zellige.repair "
        "restores it where consolidated metadata has it, else put it back, or remove the chunks first"
    )


# -- removing -------------------------------------------------------------------------------------


@contextmanager
def removing(
    store: Store,
    path: str,
    new: Mapping[str, NodeMetadata] | None = None,
    *,
    whole: bool = True,
    coming: Removal | None = None,
    between: Callable[[], object] = node.nothing,
    more: Iterable[str] = (),
    kept: Collection[str] = (),
) -> Iterator[None]:
    """Remove the node at a path with everything below it, and keep others out while a new one comes in its place.

    The mark stays, for what comes to replace or to remove. `new` are the nodes to come, by their paths below; `coming`
    is one that is moved here. Without `whole` only what is left of a node goes: a whole one is an error. `between` is
    called when the metadata is gone and the chunks are not: as long as consolidated metadata speaks of an array, all of
    its chunks are there. `more`, `kept`: see `Removal`.
    """
    store.check_writable()
    folders = store.ability(Folders)
    if folders is not None and folders.detach(node.prefix(path)):
        between()
        yield
        return

    with ExitStack() as held:
        held.enter_context(store.lock(mark_key(path)))
        keys = None
        if whole:
            keys = held.enter_context(undisturbed(store, path, kept=kept))
        else:
            node.check_free(store, path)
        removal = Removal(store, path, more, kept, keys=keys)
        removal.refuse_chunks_of(new or {})
        mark = Mark(removal.nodes) if coming is None else Mark({**removal.nodes, **coming.nodes}, coming.path)
        write_mark(store, path, mark)
        removal.remove_documents()
        between()
        removal.remove_rest()
        yield


@contextmanager
def undisturbed(store: Store, path: str, *, below: bool = True, kept: Collection[str] = ()) -> Iterator[list[str]]:
    """Yield the keys at a path, relative to it, once no writer changes shapes of arrays there; keep such writers out.

    An append, or a change of several arrays, writes chunks that a removal would take, and then shows the array as if
    they were there. A live writer is waited for, for the setting `lease.wait`, then `ConflictError` is raised. What a
    dead one left is finished or undone first. A writer that begins later writes chunks that were not listed, and so
    are not removed; it fails if the array is gone, or adds to the one that has come in its place.

    Parameters
    ----------
    store, path
        The node that goes.
    below
        Whether the keys of nodes and chunks below are listed as well.
    kept
        Keys that are left out, such as that of a lease which the caller holds.
    """
    from zellige.nodes import commit  # which is built on this

    def listed() -> list[str]:
        if not below:
            return [node.relative(key, path) for key in store.list_dir(node.prefix(path))[0]]
        return [key for key in node.keys_at(store, path) if key not in kept]

    if store.traits.transactional:
        yield listed()
        return
    backoff = lease.Backoff(store, f"what is at '/{path}', or a group above it")
    while True:
        with ExitStack() as locks:
            owner, keys = None, listed()
            while _is_changing_above(store, path):
                if (owner := commit.owner_above(store, path)) is not None:
                    break
                keys = listed()  # a dead writer's change was finished or undone
            begun = [key for key in keys if _split(key)[1] in (node.PENDING, node.RECORD)]
            if begun:
                names = set(keys)
                for folder, name in map(_split, sorted(begun)):  # an append to a local array holds this lock
                    if name == node.PENDING:
                        document = DOCUMENT if node.join(folder, DOCUMENT) in names else ARRAY_V2
                        locks.enter_context(store.lock(node.join(path, node.join(folder, document))))
                keys = listed()
                raws = gather(lambda key: store.get(node.join(path, key)), begun, store)
                owners = [lease.read(raw).live_owner for raw in raws if raw is not None]
                owner = next((found for found in owners if found is not None), owner)
            if owner is None:
                yield keys
                return
        backoff.pause(mark_key(path), owner)


def _is_changing_above(store: Store, path: str) -> bool:
    records = [node.join(parent, node.RECORD) for parent in node.parents(path)]
    return any(raw is not None for raw in gather(store.get, records, store))


@contextmanager
def replacing(store: Store, path: str, new: Mapping[str, NodeMetadata] | None = None, **how: Any) -> Iterator[None]:
    """Do as `removing`; the mark goes at the end of the block, when all is finished."""
    with removing(store, path, new, **how):
        yield
        remove_mark(store, path)


def clear(store: Store, path: str, **how: Any) -> None:
    """Remove the node at a path with everything below it; keys that are not its own stay. Options: see `removing`."""
    with replacing(store, path, **how):
        pass
    remove_directory(store, path)


def remove_directory(store: Store, path: str) -> None:
    """Remove the directory of a node that is gone, or never came, if nothing is in it; never that of the store."""
    if path:
        abilities.prune(store, node.prefix(path), lambda folder: not folder)


def remove_chunks(store: Store, path: str, metadata: ArrayMetadata) -> None:
    """Remove the chunks of an array that has no metadata in the store, and the directories that are empty then."""
    prefix = node.prefix(path)
    chunks = ChunkNames(metadata.chunk_key_encoding, len(metadata.shape))
    abilities.delete_below(store, prefix, [key for key in store.list(prefix) if chunks.has(key[len(prefix) :])])
    abilities.prune(store, prefix, lambda folder: not folder or chunks.has_folder(folder))


def finish(store: Store, path: str) -> None:
    """Finish a removal that was begun and is not done, unless there is a node now; raises where one was being made."""
    if is_begun(store, path):
        with suppress(ContainsArrayError, ContainsGroupError):
            clear(store, path, whole=False)
