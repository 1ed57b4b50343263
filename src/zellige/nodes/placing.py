"""How nodes come to a place: created, in the place of others, or moved there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from zellige.errors import ConflictError, NotANodeError
from zellige.metadata.groups import ARRAY_V2, GROUP_V2, Documents, GroupMetadata
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node, removal, unfinished
from zellige.nodes.lease import Lease, busy
from zellige.nodes.removal import Removal
from zellige.nodes.unfinished import Chunks, Mark, Work
from zellige.stores import Store
from zellige.stores.abilities import Folders
from zellige.stores.threads import gather

if TYPE_CHECKING:
    from zellige.nodes.node import NodeMetadata


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


def check_place(
    store: Store, path: str, metadata: NodeMetadata, *, overwrite: bool, kept: Iterable[str] = (), own: str = ""
) -> bool:
    """Whether something has to be removed before a node can be at a path; raises if it must stay.

    That is a node to be overwritten, or what is left of one whose removal was begun. Keys that are `kept` do not count.
    `own` is the id of a lease above that the caller holds.
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
    return _has_remains(store, path, metadata, own)


def _has_remains(store: Store, path: str, metadata: NodeMetadata, own: str) -> bool:
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
        from zellige.nodes import commit  # only for those who meet what others left

        if (owner := commit.owner_above(store, path, own)) is not None:
            raise busy(store, node.join(path, stray), "the arrays of the group above", owner)
        if store.exists(node.join(path, stray)):
            raise removal.lost_chunk(store, node.join(path, stray))
        return _has_remains(store, path, metadata, own)
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
    elif not store.traits.transactional and not store.create(unfinished.key_of(path), mark.to_bytes()):
        raise ConflictError(f"'/{path}' in {store!r}: another operation began there meanwhile; nothing was written")
    return "nothing"


_FILLING = "a new array is being filled here by the process that is named; it has no document until that is done"


@contextmanager
def filling(store: Store, path: str, metadata: NodeMetadata, *, overwrite: bool) -> Iterator[Callable[[], None] | None]:
    """Make a new array whose values are written in this block, and its document at the end of it.

    A process that is killed leaves no array, but a mark and a lease of its own, so that the next call begins anew. One
    that finds the other still at work gets a `ConflictError`. After an exception nothing is left. Yields a function
    that raises if another one has taken over. In a transaction, never seen by half, the document comes first.
    """
    if store.traits.transactional:
        create(store, path, metadata, overwrite=overwrite)
        with _undone_by_errors(store, path):
            yield None
        return
    store.check_writable()
    work = Work("store", {})
    lease = Lease(store, node.join(path, f"{unfinished.WORK}/lease"), _FILLING)
    try:
        left = begin(store, path, work, {"": metadata}, overwrite=overwrite)
        if left == "mark":  # one that was killed had done everything
            _end_filling(store, path)
            node.check_free(store, path)
        lease.take("this place")
        if left == "parts":
            _begin_anew(store, path, work, metadata, lease)
        with _undone_by_errors(store, path):
            yield lease.check
            lease.confirm()
            node.put_new(store, path, metadata)
        _end_filling(store, path)
    finally:
        lease.abandon()


def _end_filling(store: Store, path: str) -> None:
    store.delete_prefix(node.join(path, unfinished.WORK) + "/")
    unfinished.remove(store, path)


def _begin_anew(store: Store, path: str, work: Work, metadata: NodeMetadata, lease: Lease) -> None:
    """Remove what a process had written that has died."""
    kept = [lease.key[len(path and path + "/") :]]
    with removal.removing(store, path, {"": metadata}, whole=False, kept=kept):
        unfinished.write(store, path, Mark({"": Chunks.of(metadata)}, work=work))


@contextmanager
def _undone_by_errors(store: Store, path: str) -> Iterator[None]:
    """Remove a node that was made for a block which fails: nobody else knows of it."""
    try:
        yield
    except ConflictError:  # what is there may be that of another one
        raise
    except BaseException:
        with suppress(Exception):  # the first error is the one to be told
            removal.clear(store, path)
        raise


def create_with_values(
    store: Store, path: str, metadata: NodeMetadata, write: Callable[[], object], *, overwrite: bool
) -> None:
    """Create an array and write its values, which are at hand; an error leaves no array."""
    create(store, path, metadata, overwrite=overwrite)
    with _undone_by_errors(store, path):
        write()


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


def move(
    store: Store,
    source: str,
    dest: str,
    zarr_format: Literal[2, 3],
    follow: Callable[[], object],
    forget: Callable[[], object] | None = None,
) -> None:
    """Move a node and everything below it, other keys too, and make the groups above it.

    Where that is not one step, a mark at the new place says from where the node comes, until it is whole there and
    nothing of it is left at the old one: a move that was killed can be repeated. `follow` is called as soon as the
    node is at the new place only. `forget`, if there is consolidated metadata, takes the node out of it, and is called
    before a step after which its chunks would be missed at the old place.
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
    if taken or not _rename(store, source, dest, follow, forget):
        # What is left at the new place may still be named by consolidated metadata, like the node that it was.
        _move_keys(store, source, dest, follow, between=follow if taken else removal.nothing)


def _rename(
    store: Store, source: str, dest: str, follow: Callable[[], object], forget: Callable[[], object] | None
) -> bool:
    """Move a node in one step; False, and nothing done, if that cannot be.

    Consolidated metadata cannot change in the same step: it names the node at neither place meanwhile. The mark goes
    with the node and says from where it came, so that a move that was killed can be repeated.
    """
    store.check_writable()
    folders = store.ability(Folders)
    if folders is None:
        return False
    if forget is None:
        done = folders.rename(source + "/", dest + "/")
        if done:
            follow()
        return done
    unfinished.write(store, source, Mark({}, source))
    try:
        forget()
        done = folders.rename(source + "/", dest + "/")
    except BaseException:
        with suppress(Exception):  # the first error is the one to be told
            follow()
            unfinished.remove(store, source)
        raise
    follow()
    unfinished.remove(store, dest if done else source)
    return done


def is_leaving(store: Store, source: str) -> bool:
    """Whether a node was being moved away from a path, by a step that has not come."""
    return was_begun(store, source, source)


def was_begun(store: Store, source: str, dest: str) -> bool:
    """Whether a node was being moved from one path to another."""
    found = unfinished.read(store, dest)
    return found is not None and found.source == source


def _move_keys(
    store: Store, source: str, dest: str, follow: Callable[[], object], between: Callable[[], object]
) -> None:
    origin = Removal(store, source)
    with removal.replacing(store, dest, whole=False, coming=origin, between=between):
        try:
            # The main document last: only then there is a node.
            for batch in node.copy_order(origin.keys, transactional=store.traits.transactional):
                gather(lambda key: _copy_key(store, source, dest, key), batch, store, large=True)
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
