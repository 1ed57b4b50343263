"""How nodes come to a place: created, in the place of others, or moved there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from zellige import node, removal, unfinished
from zellige.errors import ConflictError, NotANodeError
from zellige.lease import busy
from zellige.metadata.groups import ARRAY_V2, GROUP_V2, Documents, GroupMetadata
from zellige.metadata.v3 import DOCUMENT
from zellige.pool import gather
from zellige.removal import Removal
from zellige.stores import Store
from zellige.unfinished import Chunks, Mark, Work

if TYPE_CHECKING:
    from zellige.node import NodeMetadata


# -- creating -------------------------------------------------------------------------------------


def create(store: Store, path: str, metadata: NodeMetadata, *, overwrite: bool) -> dict[str, Documents]:
    """Put a new node's documents in place, with groups above it; exactly one of several creators wins.

    Returns the documents of all nodes that were created, by their paths.
    """
    if path:
        node.check_names(path)
    # Whatever is refused is refused before the first write.
    missing = missing_parents(store, path)
    taken = check_place(store, path, metadata, overwrite=overwrite)
    if not taken:
        return _put(store, path, metadata, missing)
    with removal.replacing(store, path, {"": metadata}, whole=overwrite):
        return _put(store, path, metadata, missing)


def _put(store: Store, path: str, metadata: NodeMetadata, missing: list[str]) -> dict[str, Documents]:
    made = _make_groups(store, missing, metadata.zarr_format)
    return {**made, path: node.put_new(store, path, metadata)}


def make_parents(store: Store, path: str, zarr_format: Literal[2, 3]) -> None:
    """Create the groups above a path that are missing."""
    _make_groups(store, missing_parents(store, path), zarr_format)


def _make_groups(store: Store, paths: list[str], zarr_format: Literal[2, 3]) -> dict[str, Documents]:
    group = GroupMetadata(zarr_format=zarr_format).to_documents()
    return {path: group for path in paths if node.put_documents(store, path, group)}


def missing_parents(store: Store, path: str) -> list[str]:
    """The paths above that have no group yet; raises if one of them is an array.

    What is left of a group that was being removed goes first: a new one in its place would show it.
    """
    missing = [parent for parent in node.parents(path) if not node.check_parent(store, parent)]
    if not path:
        node.check_outer(store)
    for parent in missing:
        removal.finish(store, parent)
    return missing


def check_place(store: Store, path: str, metadata: NodeMetadata, *, overwrite: bool, kept: Iterable[str] = ()) -> bool:
    """Whether something has to be removed before a node can be at a path; raises if it must stay.

    That is a node to be overwritten, or what is left of one whose removal was begun. Keys that are `kept` do not count.
    """
    prefix = path and path + "/"
    if overwrite:
        keys, prefixes = store.list_dir(prefix)
        keys = [key for key in keys if key[len(prefix) :] not in set(kept)]
        names = {key[len(prefix) :] for key in keys}
        if (keys or prefixes) and not names & {DOCUMENT, ARRAY_V2, GROUP_V2, node.UNFINISHED}:
            raise NotANodeError(
                f"'/{path}' in {store!r} holds keys but no Zarr node, and only nodes are overwritten; choose another "
                "path"
            )
        return bool(keys)
    node.check_free(store, path)
    if isinstance(metadata, GroupMetadata):
        return unfinished.is_begun(store, path)
    return _has_remains(store, path, metadata)


def _has_remains(store: Store, path: str, metadata: NodeMetadata) -> bool:
    """Whether there are remains of a node whose removal was begun.

    Chunks of a lost array would appear in a new one as if they were written there, and so they are refused.
    """
    cut, marked = len(path) + 1 if path else 0, False

    def names() -> Iterator[str]:
        nonlocal marked
        for key in store.list(path and path + "/"):
            marked = marked or key[cut:] == node.UNFINISHED
            yield key[cut:]

    stray = removal.first_chunk(names(), metadata)
    begun = (marked or stray is not None) and unfinished.is_begun(store, path)
    if stray is not None and not begun:
        from zellige import commit  # only for those who meet what others left

        if (owner := commit.owner_above(store, path)) is not None:
            raise busy(store, node.join(path, stray), "the arrays of the group above", owner)
        if store.exists(node.join(path, stray)):
            raise removal.lost_chunk(store, node.join(path, stray))
        return _has_remains(store, path, metadata)
    return begun


# -- making in many steps -------------------------------------------------------------------------


Left: TypeAlias = Literal["nothing", "parts", "mark"]


def begin(store: Store, path: str, work: Work, new: Mapping[str, NodeMetadata], *, overwrite: bool) -> Left:
    """Leave the mark of nodes that are going to be written data first and documents last.

    `new` are the nodes to come, by their paths below. Everything is checked before anything is removed or written.
    Returns what an earlier call has left that was asked for the same: nothing, parts of it, or all of it with nothing
    but the mark to be removed. In a transaction there is no mark, and documents may come first.
    """
    if path:
        node.check_names(path)
    missing = missing_parents(store, path)
    found = unfinished.read(store, path)
    if found is not None and work.is_same(found.work):
        if node.there(store, path) is None:
            _make_groups(store, missing, new[""].zarr_format)
            return "parts"
        if not overwrite:
            return "mark"
    taken = check_place(store, path, new[""], overwrite=overwrite)
    if not taken and len(new) > 1:
        _check_below(store, path, new)
    mark = Mark({below: Chunks.of(metadata) for below, metadata in new.items()}, work=work)
    _make_groups(store, missing, new[""].zarr_format)
    if taken:
        with removal.removing(store, path, new, whole=overwrite):
            unfinished.write(store, path, mark)
    elif not store.transactional and not store.create(unfinished.key_of(path), mark.to_bytes()):
        raise ConflictError(f"'/{path}' in {store!r}: another operation began there meanwhile; nothing was written")
    return "nothing"


def _check_below(store: Store, path: str, new: Mapping[str, NodeMetadata]) -> None:
    """Raise if there are nodes, or chunks of lost arrays, where nodes are to come below a path that is free."""
    keys = sorted(store.list(path and path + "/"))
    for below, metadata in new.items():
        place = node.join(path, below)
        found = node.keys_below(keys, place)
        if found:
            node.check_free(store, place)
            stray = removal.first_chunk((key[len(place and place + "/") :] for key in found), metadata)
            if stray is not None:
                raise removal.lost_chunk(store, node.join(place, stray))


# -- moving ---------------------------------------------------------------------------------------


def move(store: Store, source: str, dest: str, zarr_format: Literal[2, 3], follow: Callable[[], object]) -> None:
    """Move a node and everything below it, other keys too, and make the groups above it.

    Where that is not one step, a mark at the new place says from where the node comes, until it is whole there and
    nothing of it is left at the old one: a move that was killed can be repeated. `follow` is called as soon as the
    node is at the new place only.
    """
    node.check_names(dest)
    if (error := node.there(store, dest)) is not None:
        if not was_begun(store, source, dest):
            raise error
        _end_move(store, source, dest, follow)
        return
    missing = missing_parents(store, dest)
    taken = any(True for _ in store.list(dest + "/"))
    if taken and not unfinished.is_begun(store, dest):
        raise NotANodeError(f"'/{dest}' in {store!r} holds keys but no Zarr node; choose another path")
    _make_groups(store, missing, zarr_format)
    if taken or not store.rename_prefix(source + "/", dest + "/"):
        _move_keys(store, source, dest, follow)
    else:
        follow()


def was_begun(store: Store, source: str, dest: str) -> bool:
    """Whether a node was being moved from one path to another."""
    found = unfinished.read(store, dest)
    return found is not None and found.source == source


def _move_keys(store: Store, source: str, dest: str, follow: Callable[[], object]) -> None:
    origin = Removal(store, source)
    with removal.replacing(store, dest, whole=False, coming=origin):
        try:
            # The main document last: only then there is a node.
            for batch in node.copy_order(origin.keys, transactional=store.transactional):
                gather(lambda key: _copy_key(store, source, dest, key), batch)
        except BaseException:
            removal.clear(store, dest, more=origin.keys)  # there was nothing before
            raise
        removal.clear(store, source, more=origin.keys, between=follow)


def _copy_key(store: Store, source: str, dest: str, key: str) -> None:
    raw = store.get(node.join(source, key))
    if raw is not None:
        store.put(node.join(dest, key), raw)


def _end_move(store: Store, source: str, dest: str, follow: Callable[[], object]) -> None:
    """Remove what is still at the old place, after the node was whole at the new one."""
    left = Removal(store, source).keys

    def differs(key: str) -> bool:
        raw = store.get(node.join(source, key))
        return raw is not None and raw != store.get(node.join(dest, key))

    for key, different in zip(left, gather(differs, left, store), strict=True):
        if different:
            raise ConflictError(
                f"'/{source}' in {store!r} was being moved to '/{dest}' when that was stopped, and key {key!r} was "
                "changed in one of them since; delete the one that is not wanted"
            )
    removal.clear(store, source, more=left, between=follow)
    unfinished.remove(store, dest)
