"""Moving nodes: one rename where the store can, else keys copied and then removed; killed anywhere, it can be repeated.

Where it is not one step, the mark at the new place names the old one, until the node is whole at the new place and
nothing of it is left at the old one. Metadata is copied last, and removed first: at every moment there is one whole
node. If a killed move left both whole and one of them was changed since, that is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from zellige.errors import ConflictError, NotANodeError
from zellige.nodes import hierarchy, node, remove
from zellige.nodes.remove import Mark, Removal
from zellige.stores import Store
from zellige.stores.abilities import Folders
from zellige.stores.threads import gather


def move(
    store: Store,
    source: str,
    dest: str,
    zarr_format: Literal[2, 3],
    follow: Callable[[], object],
    forget: Callable[[], object] | None = None,
) -> None:
    """Move a node and everything below it, other keys too, and make the groups above it.

    `follow` is called as soon as the node is at the new place only. `forget`, if there is consolidated metadata, takes
    the node out of it, and is called before a step after which its chunks would be missed at the old place.
    """
    node.check_names(dest)
    if (error := node.there(store, dest)) is not None:
        if not was_begun(store, source, dest):
            raise error
        _end_move(store, source, dest, follow)
        return
    missing = hierarchy.missing_parents(store, dest)
    taken = any(True for _ in store.list(dest + "/"))
    if taken and not remove.is_begun(store, dest):
        raise NotANodeError(f"'/{dest}' in {store!r} holds keys but no Zarr node; choose another path")
    hierarchy.put_groups(store, missing, zarr_format)
    if taken or not _rename(store, source, dest, follow, forget):
        # What is left at the new place may still be named by consolidated metadata, like the node that it was.
        _move_keys(store, source, dest, follow, between=follow if taken else node.nothing)


def was_begun(store: Store, source: str, dest: str) -> bool:
    """Return whether a node was being moved from one path to another.

    Where both are the same, it was to be renamed, and that step has not come.
    """
    found = remove.read_mark(store, dest)
    return found is not None and found.source == source


def _rename(
    store: Store, source: str, dest: str, follow: Callable[[], object], forget: Callable[[], object] | None
) -> bool:
    """Move a node in one step; False, and nothing done, if that cannot be.

    Consolidated metadata cannot change in the same step: it names the node at neither place meanwhile. The mark goes
    with the node and says from where it came.
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
    remove.write_mark(store, source, Mark({}, source))
    try:
        forget()
        done = folders.rename(source + "/", dest + "/")
    except BaseException:
        with suppress(Exception):  # the first error is the one to be told
            follow()
            remove.remove_mark(store, source)
        raise
    follow()
    remove.remove_mark(store, dest if done else source)
    return done


def _move_keys(
    store: Store, source: str, dest: str, follow: Callable[[], object], between: Callable[[], object]
) -> None:
    """Copy all keys, the main document last, and then remove them."""

    def copy(key: str) -> None:
        raw = store.get(node.join(source, key))
        if raw is not None:
            store.put(node.join(dest, key), raw)

    origin = Removal(store, source)
    with remove.replacing(store, dest, whole=False, coming=origin, between=between):
        try:
            for batch in node.copy_order(origin.keys, transactional=store.traits.transactional):
                gather(copy, batch, store, large=True)
        except BaseException:
            remove.clear(store, dest, more=origin.keys)  # there was nothing before
            raise
        remove.clear(store, source, more=origin.keys, between=follow)


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
    remove.clear(store, source, more=left, between=follow)
    remove.remove_mark(store, dest)
