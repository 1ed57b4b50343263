"""How nodes come into a hierarchy: new ones with the groups above, data first if need be; and how they move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from zellige.errors import ConflictError, ContainsArrayError, NotANodeError, as_flag, as_mapping
from zellige.metadata.groups import ARRAY_V2, GROUP_V2, Documents, GroupMetadata
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node, remove
from zellige.nodes.lease import Lease, busy
from zellige.nodes.remove import WORK, ChunkNames, Mark, Removal, Work
from zellige.settings import ArrayConfig
from zellige.stores import Store, StoreLike, locate
from zellige.stores.abilities import Folders
from zellige.stores.threads import gather

if TYPE_CHECKING:
    from zellige.nodes.group import Node
    from zellige.nodes.node import NodeMetadata

NodeLike: TypeAlias = "NodeMetadata | Mapping[str, Any]"
"""The metadata of a node, or the content of its `zarr.json`."""


# -- metadata at once -----------------------------------------------------------------------------


def create(
    store: Store,
    nodes: Mapping[str, NodeMetadata],
    *,
    overwrite: bool,
    between: Callable[[], object] = node.nothing,
    forget: Callable[..., object] = node.nothing,
) -> dict[str, Documents]:
    """Store the metadata of new nodes, given by paths, with the groups above; exactly one of several creators wins.

    Whatever is refused is refused before the first write. All nodes have one Zarr format, and none lies below an array.
    Groups that are there stay if they are only above others; `overwrite` removes other nodes that are there, with all
    nodes below them. `forget` gets the paths of these before anything is removed, and `between` is called for each when
    its metadata is gone and its chunks are not. Returns the documents of all nodes that were created, by their paths.
    """
    as_flag(overwrite, "overwrite")
    store.check_writable()
    for path in filter(None, nodes):
        node.check_names(path)
    missing = missing_parents(store, *nodes)
    # What lies below another node that is given goes with that one, if it is overwritten.
    tops = [path for path in nodes if not (overwrite and any(above in nodes for above in node.parents(path)))]
    found = gather(
        lambda path: is_occupied(store, path) if overwrite else has_remains(store, path, nodes[path]), tops, store
    )
    taken = {
        top: {node.relative(path, top): nodes[path] for path in nodes if node.is_below(path, top)}
        for top, is_taken in zip(tops, found, strict=True)
        if is_taken
    }
    if missing or len(nodes) > 1:  # else the removal itself is the first write
        for top, new in taken.items():
            Removal(store, top).refuse_chunks_of(new)
    above = {parent for path in nodes for parent in node.parents(path)} - nodes.keys()
    gone = {parent for parent in above if not taken.keys().isdisjoint(node.parents(parent))}
    if taken:
        forget(*taken)
    zarr_format = next(iter(nodes.values())).zarr_format
    group = GroupMetadata(zarr_format=zarr_format).to_documents()

    def make(path: str) -> Documents | None:
        if path not in nodes:
            return group if node.put_documents(store, path, group) else None
        if path not in taken:
            return node.put_new(store, path, nodes[path])
        with remove.replacing(store, path, taken[path], whole=overwrite, between=between):
            return node.put_new(store, path, nodes[path])

    made: dict[str, Documents] = {}
    for paths in node.levels({*missing, *gone, *nodes}):
        new_documents = zip(paths, gather(make, paths, store), strict=True)
        made |= {path: documents for path, documents in new_documents if documents is not None}
    return made


def put_groups(store: Store, paths: Iterable[str], zarr_format: Literal[2, 3]) -> None:
    """Create groups, given from the root downwards; those that are there by now stay."""
    group = GroupMetadata(zarr_format=zarr_format).to_documents()
    for path in paths:
        node.put_documents(store, path, group)


def missing_parents(store: Store, *paths: str) -> list[str]:
    """Return the paths above some new nodes that have no group yet; raises if one of them is an array.

    What is left of a group that was being removed goes first: a new one in its place would show it.
    """
    above = sorted({parent for path in paths for parent in node.parents(path)} - set(paths))
    if "" in paths:
        node.check_outer(store)
    there = gather(lambda parent: node.check_parent(store, parent), above, store)
    missing = [parent for parent, found in zip(above, there, strict=True) if not found]
    gather(lambda parent: remove.finish(store, parent), missing, store)
    return missing


def is_occupied(store: Store, path: str, kept: Iterable[str] = ()) -> bool:
    """Return whether something has to be removed before a node overwrites what is at a path; keys in `kept` stay.

    That is a node, or what is left of one whose removal was begun; raises where there are keys without a node.
    """
    keys, folders = store.list_dir(node.prefix(path))
    names = {node.relative(key, path) for key in keys} - set(kept)
    if (names or folders) and not names & {DOCUMENT, ARRAY_V2, GROUP_V2, node.UNFINISHED}:
        raise NotANodeError(
            f"'/{path}' in {store!r} holds keys but no Zarr node, and only nodes are overwritten; choose another path"
        )
    return bool(names)


def has_remains(store: Store, path: str, metadata: NodeMetadata, own: str = "") -> bool:
    """Return whether a removal was begun at a path, whose remains have to go before a new node; raises if one is there.

    Chunks of a lost array would appear in a new one as if they were written there, and so they are refused. `own` is
    the id of a lease above that the caller holds.
    """
    node.check_free(store, path)
    if isinstance(metadata, GroupMetadata):
        return remove.is_begun(store, path)
    marked = False

    def names() -> Iterator[str]:
        nonlocal marked
        for key in node.keys_at(store, path):
            marked = marked or key == node.UNFINISHED
            yield key

    stray = remove.first_chunk(names(), metadata)
    begun = (marked or stray is not None) and remove.is_begun(store, path)
    if begun or stray is None:
        return begun
    from zellige.nodes import commit  # needed only beside keys that others left

    if (owner := commit.owner_above(store, path, own)) is not None:
        raise busy(store, node.join(path, stray), "the arrays of the group above", owner)
    if store.exists(node.join(path, stray)):
        raise remove.lost_chunk(store, node.join(path, stray))
    return has_remains(store, path, metadata, own)  # it was what a dead writer had left


# -- several nodes at once ------------------------------------------------------------------------


def create_hierarchy(
    *, store: StoreLike, nodes: Mapping[str, NodeLike], overwrite: bool = False
) -> Iterator[tuple[str, Node]]:
    """Create the nodes of a hierarchy, given by their paths, and the groups above them; those made are returned.

    Everything is checked before the first write. Groups that are there already stay if they are only above others.

    Parameters
    ----------
    store
        A place, as for `zellige.open`.
    nodes
        By paths: the metadata of each node, or the content of its `zarr.json`.
    overwrite
        Whether nodes that are there go with all nodes below them; files that are not part of them stay.

    >>> import zellige
    >>> t = zellige.zeros((59,), chunks=[[31, 28]]).metadata
    >>> made = dict(zellige.create_hierarchy(store={}, nodes={"a/t": t, "a/u": t}))
    >>> sorted(made)
    ['', 'a', 'a/t', 'a/u']
    """
    target, base = locate(store)
    return iter(create_below(target, base, as_mapping(nodes, "nodes"), overwrite=overwrite).items())


def create_below(
    store: Store,
    base: str,
    nodes: Mapping[str, NodeLike],
    *,
    overwrite: bool,
    forget: Callable[..., object] = node.nothing,
    zarr_format: Literal[2, 3] | None = None,
) -> dict[str, Node]:
    """Create nodes below a path, of one format; returns those that were made, by their paths below it."""
    from zellige.nodes.group import Group

    given = {node.new_path(path): _metadata(path, value) for path, value in nodes.items()}
    if len(given) < len(nodes):
        raise ValueError("duplicate paths: some of them are the same without outer slashes")
    formats = {metadata.zarr_format for metadata in given.values()}
    if zarr_format is not None and formats - {zarr_format}:
        raise ValueError(f"the members of group '/{base}' have its Zarr format, {zarr_format}")
    if len(formats) > 1:
        raise ValueError("the nodes of a hierarchy have one Zarr format; found 2 and 3")
    arrays = {path for path, metadata in given.items() if not isinstance(metadata, GroupMetadata)}
    for path in given:
        if above := arrays.intersection(node.parents(path)):
            raise ContainsArrayError(f"'{min(above)}' is given as an array, which cannot hold {path!r}")
    handles = {path: _handle(store, node.join(base, path), metadata) for path, metadata in given.items()}
    places = {node.join(base, path): metadata for path, metadata in given.items()}
    made = create(store, places, overwrite=overwrite, forget=forget) if places else {}
    below = {node.relative(place, base): documents for place, documents in made.items() if node.is_below(place, base)}
    return {
        path: handles[path] if path in handles else Group.from_documents(store, node.join(base, path), documents)
        for path, documents in below.items()
    }


def _metadata(path: str, value: NodeLike) -> NodeMetadata:
    if isinstance(value, Mapping):
        return node.parse({DOCUMENT: dict(value)})
    if not hasattr(value, "to_documents"):
        raise TypeError(f"{path!r}: a node is given by its metadata or the content of its zarr.json, found {value!r}")
    return value


def _handle(store: Store, path: str, metadata: NodeMetadata) -> Node:
    """Return the node, which checks what its metadata says."""
    from zellige.nodes.array import Array
    from zellige.nodes.group import Group

    if isinstance(metadata, GroupMetadata):
        return Group(store, path, metadata)
    array = Array(store, path, metadata, ArrayConfig.of())
    array._check_shards(array.grid)
    return array


# -- data first, metadata last --------------------------------------------------------------------

Left: TypeAlias = Literal["nothing", "parts", "mark"]


def begin(
    store: Store,
    path: str,
    work: Work,
    new: Mapping[str, NodeMetadata],
    *,
    overwrite: bool,
    between: Callable[[], object] = node.nothing,
) -> Left:
    """Leave the mark of nodes that are going to be written data first and metadata last.

    `new` are the nodes to come, by their paths below. Everything is checked before anything is removed or written;
    `between`: see `create`. Returns what an earlier call with the same arguments has left: nothing, parts of it, or
    all of it with nothing but the mark to be removed. In a transaction there is no mark, and metadata may come first.
    """
    as_flag(overwrite, "overwrite")
    store.check_writable()
    if path:
        node.check_names(path)
    missing = missing_parents(store, path)
    found = remove.read_mark(store, path)
    if found is not None and work.is_same(found.work):
        if node.there(store, path) is None:
            put_groups(store, missing, new[""].zarr_format)
            return "parts"
        if not overwrite:
            return "mark"
    taken = is_occupied(store, path) if overwrite else has_remains(store, path, new[""])
    if not taken and len(new) > 1:
        _check_below(store, path, new)
    mark = Mark({below: ChunkNames.of(metadata) for below, metadata in new.items()}, work=work)
    put_groups(store, missing, new[""].zarr_format)
    if taken:
        with remove.removing(store, path, new, whole=overwrite, between=between):
            remove.write_mark(store, path, mark)
    else:
        remove.create_mark(store, path, mark)
    return "nothing"


def _check_below(store: Store, path: str, new: Mapping[str, NodeMetadata]) -> None:
    """Raise if there are nodes, or chunks of lost arrays, where nodes are to come below a path that is free."""
    keys = sorted(store.list(node.prefix(path)))
    for below, metadata in new.items():
        place = node.join(path, below)
        found = node.keys_below(keys, place)
        if found:
            node.check_free(store, place)
            stray = remove.first_chunk((node.relative(key, place) for key in found), metadata)
            if stray is not None:
                raise remove.lost_chunk(store, node.join(place, stray))


_FILLING = "a new array is being filled here by the process that is named; it has no metadata until that is done"


@contextmanager
def filling(
    store: Store,
    path: str,
    metadata: NodeMetadata,
    *,
    overwrite: bool,
    between: Callable[[], object] = node.nothing,
) -> Iterator[Callable[[], None] | None]:
    """Make a new array whose values are written in this block, and its metadata at the end of it.

    A killed process leaves no array, but a mark and a lease of its own, so that the next call begins anew. If the other
    process is still at work, the call raises `ConflictError`. After an exception nothing is left. Yields a function
    that raises if another process has taken over. In a transaction, never seen by half, the metadata comes first.
    """
    if store.traits.transactional:
        create(store, {path: metadata}, overwrite=overwrite, between=between)
        with undone_by_errors(store, path):
            yield None
        return
    store.check_writable()
    work = Work("store", {})
    lease = Lease(store, node.join(path, f"{WORK}/lease"), _FILLING)

    def end() -> None:
        store.delete_prefix(node.join(path, WORK) + "/")
        remove.remove_mark(store, path)

    try:
        left = begin(store, path, work, {"": metadata}, overwrite=overwrite, between=between)
        if left == "mark":  # a process that was killed had done everything
            end()
            node.check_free(store, path)
        lease.take("this place")
        if left == "parts":  # left by a process that has died
            kept = [node.relative(lease.key, path)]
            with remove.removing(store, path, {"": metadata}, whole=False, kept=kept):
                remove.write_mark(store, path, Mark({"": ChunkNames.of(metadata)}, work=work))
        with undone_by_errors(store, path):
            yield lease.check
            lease.confirm()
            node.put_new(store, path, metadata)
        end()
    finally:
        lease.abandon()


@contextmanager
def undone_by_errors(store: Store, path: str) -> Iterator[None]:
    """Remove a new node if the block fails, before others know of it."""
    try:
        yield
    except ConflictError:  # what is there may be that of another process
        raise
    except BaseException:
        with suppress(Exception):  # the first error is the one to raise
            remove.clear(store, path)
        raise


# -- to another place -----------------------------------------------------------------------------


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
    missing = missing_parents(store, dest)
    taken = any(True for _ in store.list(dest + "/"))
    if taken and not remove.is_begun(store, dest):
        raise NotANodeError(f"'/{dest}' in {store!r} holds keys but no Zarr node; choose another path")
    put_groups(store, missing, zarr_format)
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
    with remove.undisturbed(store, source, below=False):
        return _rename_folder(store, folders, source, dest, follow, forget)


def _rename_folder(
    store: Store,
    folders: Folders,
    source: str,
    dest: str,
    follow: Callable[[], object],
    forget: Callable[[], object] | None,
) -> bool:
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
        with suppress(Exception):  # the first error is the one to raise
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

    with remove.undisturbed(store, source) as keys:
        origin = Removal(store, source, keys=keys)
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
