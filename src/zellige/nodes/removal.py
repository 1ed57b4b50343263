"""Removing nodes: all that is their own goes, and nothing else; stopped anywhere, it can be repeated.

A key is a node's own by the node's metadata, not by how it looks: its documents, the marks of this library, and what
its chunk key encoding reads as a chunk of its rank. All other keys stay where they are. Of an array whose document
cannot be read it is known only in which format it was, and so keys that look like chunks of that format go:
`c/0/1` and `c.0.1` beside a `zarr.json`, `0.1` and `0/1` beside a `.zarray`.

A removal first leaves a mark (`unfinished.py`), which says how the chunks of the nodes are named. Then the documents
go, from the top downwards, so that nothing can be opened by half, then the chunks, and at the end the mark. Whoever
finds one where no node is finishes what was begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import groupby
from typing import TYPE_CHECKING, Any

from zellige.errors import ContainsArrayError, ContainsGroupError, MetadataError, NotANodeError
from zellige.metadata.groups import ARRAY_V2, ATTRIBUTES_V2, CONSOLIDATED_V2, GROUP_V2
from zellige.metadata.json import read_json
from zellige.metadata.keys import DefaultChunkKeyEncoding, V2ChunkKeyEncoding, parse_chunk_key_encoding
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node, unfinished
from zellige.nodes.unfinished import WORK, Chunks, Mark
from zellige.stores import Store, abilities
from zellige.stores.abilities import Folders
from zellige.stores.threads import gather

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata, NodeMetadata

# Consolidated metadata speaks of all nodes below, and the newer format hides the older: neither may be uncovered.
_ORDER = {name: turn for turn, name in enumerate((CONSOLIDATED_V2, GROUP_V2, ARRAY_V2, ATTRIBUTES_V2, DOCUMENT))}
_MARKS = (node.PENDING, node.RECORD, node.UNFINISHED)


_UNREADABLE = {
    DOCUMENT: [Chunks(DefaultChunkKeyEncoding(separator), None) for separator in "/."],
    ARRAY_V2: [Chunks(V2ChunkKeyEncoding(separator), None) for separator in "/."],
    GROUP_V2: [],
}


def chunks_of(key: str, raw: bytes) -> list[Chunks]:
    """How the chunks are named that a document speaks of, given by its key; none if it is that of a group."""
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
        return [Chunks(keys, len(shape))] if isinstance(shape, list) else _UNREADABLE[name]
    except MetadataError:
        return _UNREADABLE[name]


# -- what goes, and what stays --------------------------------------------------------------------


class Owners:
    """To which of some nodes keys belong, by how the chunks of each node are named."""

    def __init__(self, nodes: Mapping[str, Iterable[Chunks]]) -> None:
        self._nodes = nodes
        self._near: dict[str, tuple[str, Iterable[Chunks]]] = {}

    def owner(self, key: str) -> str | None:
        """The path of the node whose document or chunk a key is."""
        folder, name = _split(key)
        if name in _ORDER:
            return folder if folder in self._nodes else None
        path, chunks = self.nearest(folder)
        cut = len(path and path + "/")
        return path if any(found.has(key[cut:]) for found in chunks) else None

    def nearest(self, folder: str) -> tuple[str, Iterable[Chunks]]:
        """The path of the nearest node at or above a directory, and how its chunks are named."""
        found = self._near.get(folder)
        if found is None:
            if folder in self._nodes:
                found = folder, self._nodes[folder]
            else:
                found = self.nearest(_split(folder)[0]) if folder else ("", [])
            self._near[folder] = found
        return found


class Removal:
    """What goes with the node at a path, found by one listing and the documents of all nodes below it."""

    def __init__(
        self,
        store: Store,
        path: str,
        more: Iterable[str] = (),
        kept: Iterable[str] = (),
        nodes: Mapping[str, Iterable[Chunks]] | None = None,
    ) -> None:
        """`more` are keys, relative to the node, that go although they are not its own, `kept` are some that stay.

        `nodes` are such that have no document here, by their paths relative to this one.
        """
        self.store, self.path, self.prefix = store, path, path and path + "/"
        cut, staying = len(self.prefix), {node.UNFINISHED, *kept}
        self.keys = [key[cut:] for key in store.list(self.prefix) if key[cut:] not in staying]
        self.nodes: dict[str, list[Chunks]] = {path: list(chunks) for path, chunks in (nodes or {}).items()}
        """How the chunks of each node are named, by the paths of the nodes relative to this one."""
        self._find_nodes()
        self._owners = Owners(self.nodes)
        given = set(more)
        self.own = [key for key in self.keys if key in given or self._owns(key)]
        self._folders = {above for path in self.nodes for above in (*node.parents(path), path)} | {""}

    def _find_nodes(self) -> None:
        names = (*_UNREADABLE, node.UNFINISHED)
        found = [key for key in self.keys if key.endswith(names) and _split(key)[1] in names and not _reserved(key)]
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
                self.nodes.setdefault(folder, []).extend(chunks_of(name, raw))

    def _owns(self, key: str) -> bool:
        folder, name = _split(key)
        if (place := _place_of_work(folder)) is not None:
            return place in self.nodes
        if name in _ORDER or name in _MARKS:
            return folder in self.nodes
        return self.owner(key) is not None

    def owner(self, key: str) -> str | None:
        """The path of the node whose document or chunk a key is; both relative to this node."""
        return self._owners.owner(key)

    def _owns_folder(self, folder: str) -> bool:
        if (place := _place_of_work(folder)) is not None:
            return place in self.nodes
        path, chunks = self._owners.nearest(_split(folder)[0])
        cut = len(path and path + "/")
        return folder in self._folders or any(found.has_folder(folder[cut:]) for found in chunks)

    def refuse_chunks_of(self, new: Mapping[str, NodeMetadata]) -> None:
        """Refuse to leave keys that new arrays, given by their paths relative to this node, would read as chunks."""
        own = set(self.own)
        staying = [key for key in self.keys if key not in own]
        for path, metadata in new.items() if staying else ():
            prefix = path and path + "/"
            stray = first_chunk((key[len(prefix) :] for key in staying if key.startswith(prefix)), metadata)
            if stray is not None:
                raise lost_chunk(self.store, self.prefix + prefix + stray)

    def leave_mark(self, coming: Removal | None = None) -> None:
        """Say that a removal has begun, and of what; with `coming`, that this node is being moved here."""
        nodes = self.nodes if coming is None else {**self.nodes, **coming.nodes}
        unfinished.write(self.store, self.path, Mark(nodes, None if coming is None else coming.path))

    def remove_documents(self) -> None:
        """Remove the documents from the top downwards."""

        def turn(key: str) -> tuple[int, int]:
            return key.count("/"), _ORDER[_split(key)[1]]

        documents = sorted((key for key in self.own if _split(key)[1] in _ORDER), key=turn)
        for _, batch in groupby(documents, key=turn):
            self._delete(list(batch))

    def remove_rest(self) -> None:
        """Remove the chunks and the marks of nodes below, and the directories that are empty then."""
        self._delete([key for key in self.own if _split(key)[1] not in _ORDER])
        abilities.prune(self.store, self.prefix, self._owns_folder)

    def remove_only(self, keys: Iterable[str]) -> None:
        """Remove some keys, documents first and from the top downwards, and the directories that are empty then."""
        self.own = list(keys)
        self.remove_documents()
        self.remove_rest()

    def _delete(self, keys: Sequence[str]) -> None:
        abilities.delete_below(self.store, self.prefix, [self.prefix + key for key in keys])


def _split(key: str) -> tuple[str, str]:
    folder, _, name = key.rpartition("/")
    return folder, name


def _place_of_work(folder: str) -> str | None:
    """The path of the node that is being made by an operation which keeps something in this directory, if it does."""
    place, found, _ = f"/{folder}/".partition(f"/{WORK}/")
    return place[1:] if found else None


def _reserved(key: str) -> bool:
    """Whether a key lies where no node can be, but our own scratch."""
    return f"/{node.OWN}" in f"/{_split(key)[0]}"


def first_chunk(keys: Iterable[str], metadata: NodeMetadata) -> str | None:
    """The first of some keys, relative to a node, that is a chunk of it."""
    return next((key for chunks in Chunks.of(metadata) for key in keys if chunks.has(key)), None)


def lost_chunk(store: Store, key: str) -> NotANodeError:
    """The error for a key that would appear in a new array as if it were written there."""
    return NotANodeError(
        f"key {key!r} in {store!r} looks like a chunk of a lost array, whose document is missing; zellige.repair "
        "restores the document where consolidated metadata has it, else put it back, or remove the chunks first"
    )


# -- removing -------------------------------------------------------------------------------------


def nothing() -> None:
    """For those who have nothing to do in between."""


_listener: ContextVar[tuple[str, Callable[[], object]]] = ContextVar("_listener", default=("", nothing))


@contextmanager
def told(path: str, follow: Callable[[], object]) -> Iterator[None]:
    """Within the block, `follow` is called whenever the documents at a path are gone and the chunks are not.

    For those who create a node by functions that know nothing of the group above it: as long as its consolidated
    metadata speaks of an array, all chunks of that are there.
    """
    before = _listener.set((path, follow))
    try:
        yield
    finally:
        _listener.reset(before)


def _tell(path: str) -> None:
    place, follow = _listener.get()
    if place == path:
        follow()


@contextmanager
def removing(
    store: Store,
    path: str,
    new: Mapping[str, NodeMetadata] | None = None,
    *,
    whole: bool = True,
    coming: Removal | None = None,
    between: Callable[[], object] = nothing,
    more: Iterable[str] = (),
    kept: Iterable[str] = (),
) -> Iterator[None]:
    """Remove the node at a path with everything below it, and keep others out while a new one comes in its place.

    The mark stays, for what comes to replace or to remove. `new` are the nodes to come, by their paths below; `coming`
    is one that is moved here. Without `whole` only what is left of a node goes: if there is a whole one, that is an
    error. `between` is called when the documents are gone and the chunks are not; see also `told`. `more` goes too, and
    `kept` stays, as for `Removal`.
    """
    store.check_writable()
    folders = store.ability(Folders)
    if folders is not None and folders.detach(path and path + "/"):
        between()
        _tell(path)
        yield
        return
    with store.lock(unfinished.key_of(path)):
        if not whole:
            node.check_free(store, path)
        removal = Removal(store, path, more, kept)
        removal.refuse_chunks_of(new or {})
        removal.leave_mark(coming)
        removal.remove_documents()
        between()
        _tell(path)
        removal.remove_rest()
        yield


@contextmanager
def replacing(store: Store, path: str, new: Mapping[str, NodeMetadata] | None = None, **how: Any) -> Iterator[None]:
    """Like `removing`, and all is finished with the end of the block: the mark goes."""
    with removing(store, path, new, **how):
        yield
        unfinished.remove(store, path)


def clear(
    store: Store,
    path: str,
    *,
    whole: bool = True,
    between: Callable[[], object] = nothing,
    more: Iterable[str] = (),
    kept: Iterable[str] = (),
) -> None:
    """Remove the node at a path with everything below it; keys that are not its own stay. See `replacing`."""
    with replacing(store, path, whole=whole, between=between, more=more, kept=kept):
        pass
    if path:
        abilities.prune(store, path + "/", lambda folder: not folder)


def remove_chunks(store: Store, path: str, metadata: ArrayMetadata) -> None:
    """Remove the chunks of an array that has no metadata in the store, and the directories that are empty then."""
    prefix = path and path + "/"
    chunks = Chunks(metadata.chunk_key_encoding, len(metadata.shape))
    abilities.delete_below(store, prefix, [key for key in store.list(prefix) if chunks.has(key[len(prefix) :])])
    abilities.prune(store, prefix, lambda folder: not folder or chunks.has_folder(folder))


def finish(store: Store, path: str) -> None:
    """Finish a removal that was begun and is not done, unless there is a node now; raises where one was being made."""
    if unfinished.is_begun(store, path):
        with suppress(ContainsArrayError, ContainsGroupError):
            clear(store, path, whole=False)
