"""Several nodes created at once: `create_hierarchy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from zellige.errors import ContainsArrayError, as_mapping
from zellige.metadata import GroupMetadata
from zellige.nodes import node, placing, removal
from zellige.nodes.array import Array
from zellige.nodes.group import Group, Node
from zellige.settings import ArrayConfig
from zellige.stores import Store, StoreLike, locate, threads

if TYPE_CHECKING:
    from zellige.nodes.node import NodeMetadata

NodeLike: TypeAlias = "NodeMetadata | Mapping[str, Any]"
"""The metadata of a node, or the content of its `zarr.json`."""


def create_hierarchy(
    *, store: StoreLike, nodes: Mapping[str, NodeLike], overwrite: bool = False
) -> Iterator[tuple[str, Node]]:
    """Create the nodes of a hierarchy, given by their paths, and the groups above them; those made are returned.

    Everything is checked before the first write. Groups that are there already stay if they are only above others.
    With `overwrite`, nodes that are there go with all nodes below them; files that are not part of them stay.

    >>> import zellige
    >>> t = zellige.zeros((59,), chunks=[[31, 28]]).metadata
    >>> made = dict(zellige.create_hierarchy(store={}, nodes={"a/t": t, "a/u": t}))
    >>> sorted(made)
    ['', 'a', 'a/t', 'a/u']
    """
    target, base = locate(store)
    return iter(_create(target, base, nodes, lambda *_: None, overwrite=overwrite).items())


def create_below(group: Group, nodes: Mapping[str, NodeLike], *, overwrite: bool) -> dict[str, Node]:
    """Create nodes below a group, by their paths relative to it."""
    for path in as_mapping(nodes, "nodes"):
        group._new(path)  # refuses what cannot name a member
    if any(_metadata(path, value).zarr_format != group.metadata.zarr_format for path, value in nodes.items()):
        raise ValueError(f"the members of group {group.name!r} have its Zarr format, {group.metadata.zarr_format}")
    try:
        made = _create(group.store, group.path, nodes, group._forget, overwrite=overwrite)
    finally:
        group._follow(*(node.join(group.path, path) for path in nodes), below=True)
    made.pop("", None)
    for found in made.values():
        found._holder = group._holder
    return made


def _create(
    store: Store, base: str, nodes: Mapping[str, NodeLike], forget: Callable[..., object], *, overwrite: bool
) -> dict[str, Node]:
    """Create nodes below a path, from the root downwards; `forget` is told the paths of those that are replaced."""
    nodes = as_mapping(nodes, "nodes")
    given = {node.new_path(path): _metadata(path, value) for path, value in nodes.items()}
    if len(given) < len(nodes):
        raise ValueError("some of the paths mean the same node")
    if not given:
        return {}
    _check_tree(given)
    above = _above(given)
    handles = {path: _handle(store, node.join(base, path), metadata) for path, metadata in given.items()}
    # Whatever is in the way is found before anything is written.
    parents = sorted({*node.parents(base), *(node.join(base, path) for path in above)})
    there = threads.gather(lambda path: node.check_parent(store, path), parents, store)
    missing = [path for path, found in zip(parents, there, strict=True) if not found]
    threads.gather(lambda path: removal.finish(store, path), missing, store)
    # What lies below another one that is given goes with it, if that is overwritten.
    tops = [path for path in given if not (overwrite and any(above in given for above in node.parents(path)))]
    taken = _taken(store, base, {path: given[path] for path in tops}, overwrite=overwrite)
    below = {
        top: {path[len(top) :].lstrip("/"): given[path] for path in given if node.is_below(path, top)} for top in taken
    }
    for top in taken:
        removal.Removal(store, node.join(base, top)).refuse_chunks_of(below[top])
    if taken:
        forget(*(node.join(base, top) for top in taken))
    for parent in node.parents(base):
        if not node.check_parent(store, parent):
            node.put_new(store, parent, GroupMetadata(zarr_format=next(iter(given.values())).zarr_format))

    def make(path: str) -> Node | None:
        place = node.join(base, path)
        if path in handles:
            found = handles[path]
        elif node.check_parent(store, place):
            return None
        else:
            found = Group(store, place, above[path])
        with removal.replacing(store, place, below[path], whole=overwrite) if path in taken else nullcontext():
            node.put_new(store, place, found.metadata)
        return found

    made: dict[str, Node] = {}
    for _, level in groupby(sorted({**above, **handles}, key=_depth), key=_depth):
        paths = sorted(level)
        new = zip(paths, threads.gather(make, paths, store), strict=True)
        made |= {path: found for path, found in new if found is not None}
    return made


def _depth(path: str) -> int:
    """How many groups lie above a node."""
    return path.count("/") + bool(path)


def _taken(store: Store, base: str, given: Mapping[str, NodeMetadata], *, overwrite: bool) -> list[str]:
    """The paths at which something has to be removed first; raises if it must stay."""

    def check(path: str) -> bool:
        return placing.check_place(store, node.join(base, path), given[path], overwrite=overwrite)

    found = threads.gather(check, list(given), store)
    return [path for path, taken in zip(given, found, strict=True) if taken]


def _metadata(path: str, value: NodeLike) -> NodeMetadata:
    if isinstance(value, Mapping):
        return node.parse({"zarr.json": dict(value)})
    if not hasattr(value, "to_documents"):
        raise TypeError(f"{path!r}: a node is given by its metadata or the content of its zarr.json, found {value!r}")
    return value


def _handle(store: Store, path: str, metadata: NodeMetadata) -> Node:
    """The node, which checks what its document says."""
    if isinstance(metadata, GroupMetadata):
        return Group(store, path, metadata)
    array = Array(store, path, metadata, ArrayConfig.of())
    array._check_shards(array.grid)
    return array


def _above(given: Mapping[str, NodeMetadata]) -> dict[str, GroupMetadata]:
    """The groups above nodes that are not given themselves."""
    found: dict[str, GroupMetadata] = {}
    for path, metadata in given.items():
        group = GroupMetadata(zarr_format=metadata.zarr_format)
        found |= {above: group for above in node.parents(path) if above not in given}
    return found


def _check_tree(given: Mapping[str, NodeMetadata]) -> None:
    if len({metadata.zarr_format for metadata in given.values()}) > 1:
        raise ValueError("the nodes of a hierarchy have one Zarr format; found 2 and 3")
    arrays = {path for path, metadata in given.items() if not isinstance(metadata, GroupMetadata)}
    for path in given:
        above = arrays.intersection(node.parents(path))
        if above:
            raise ContainsArrayError(f"'{min(above)}' is given as an array, which cannot hold {path!r}")
