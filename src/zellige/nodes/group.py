"""`Group`: a node that holds arrays and other groups, like a dict of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from zellige.errors import (
    BrokenNodeWarning,
    ConflictError,
    ContainsArrayError,
    ContainsGroupError,
    GroupNotFoundError,
    MetadataError,
    NodeNotFoundError,
    ReadOnlyError,
    RemoteError,
    StaleMetadataError,
    warn_caller,
)
from zellige.metadata.groups import (
    Documents,
    Entries,
    GroupMetadata,
    attributes_of,
    block_of,
    consolidated_document,
    with_attributes,
)
from zellige.metadata.json import new_attributes, write_json
from zellige.nodes import node
from zellige.nodes.array import Array, open_array_or, warned
from zellige.nodes.consolidated import Consolidated, bare, differences, warn_of_rectilinear
from zellige.nodes.listing import Listing
from zellige.nodes.making import Making, as_name
from zellige.nodes.node import NodeHandle
from zellige.stores import Store, StoreLike, locate
from zellige.stores.base import is_key
from zellige.types import JSON

if TYPE_CHECKING:
    from zellige.display.tree import Tree
    from zellige.nodes.info import Info
    from zellige.nodes.node import NodeMetadata

Node: TypeAlias = "Array | Group"
Found: TypeAlias = tuple[str, "NodeMetadata | MetadataError"]

_TRIES = 16  # attempts to store consolidated metadata that others change meanwhile


class Group(Listing, Making, NodeHandle):
    """A node that holds arrays and other groups, like a dict whose keys are names or paths.

    Groups are made by `zellige.create_group` and opened by `zellige.open_group`.

    >>> import zellige
    >>> root = zellige.create_group()
    >>> t = root.create_array("2024/t", shape=(366,), chunks=[[31, 29, 306]], dtype="float32")
    >>> root["2024/t"] == t, "2024" in root, list(root)
    (True, True, ['2024'])
    """

    __slots__ = ("store", "path", "metadata", "_holder", "_trusts", "_listed", "__weakref__")

    store: Store
    path: str
    """The path within the store; the root is empty."""
    metadata: GroupMetadata

    def __init__(
        self,
        store: Store,
        path: str,
        metadata: GroupMetadata,
        holder: Consolidated | None = None,
        *,
        use_consolidated: bool = True,
    ) -> None:
        self.store, self.path, self.metadata = store, path, metadata
        if holder is None and metadata.consolidated is not None:
            holder = Consolidated(store, path, metadata.zarr_format, metadata.consolidated)
        self._holder = holder
        """The consolidated metadata that this group belongs to: its own, or that of a group above."""
        self._trusts = use_consolidated and holder is not None
        self._listed = None

    @classmethod
    def open(
        cls,
        store: StoreLike,
        path: str = "",
        zarr_format: int | None = None,
        use_consolidated: bool | None = None,
        check: bool = False,
    ) -> Group:
        """Open the group at a path of a store; one request, or a few for Zarr format 2.

        `use_consolidated` takes what is known of the members from the group's consolidated metadata: by default
        if there is some; True demands it. `check` compares it with the members and raises if they differ.
        """
        store, path = locate(store, node.normalize_path(path))
        used = use_consolidated is not False
        documents = node.load(store, path, zarr_format=zarr_format, consolidated=used, expect="group")
        if documents is None:
            documents = _committed_documents(store, path)
        if documents is None:
            raise GroupNotFoundError(f"there is no group at '/{path}' in {store!r}{node.why_missing(store, path)}")
        if not node.is_group(documents):
            raise GroupNotFoundError(f"there is an array at '/{path}' in {store!r}, not a group; use open_array")
        group = cls.from_documents(store, path, documents, use_consolidated=used)
        if not used:
            group._follow_zmetadata()
        if use_consolidated and not group._trusts:
            raise ValueError(
                f"the group at '/{path}' in {store!r} has no consolidated metadata; call consolidate_metadata first, "
                "or leave use_consolidated out"
            )
        if check:
            group._check_consolidated()
        return group

    def _follow_zmetadata(self) -> None:
        """Consolidated metadata of Zarr format 2 that is not used for reading has to be followed all the same."""
        if self.metadata.zarr_format == 2 and self.store.exists(node.join(self.path, ".zmetadata")):
            self._holder = Consolidated(self.store, self.path, 2, None, self._holder)

    @classmethod
    def from_store(
        cls,
        store: StoreLike,
        *,
        attributes: Mapping[str, Any] | None = None,
        zarr_format: Literal[2, 3] = 3,
        overwrite: bool = False,
    ) -> Group:
        """Create a group at the root of a store, or at a `StorePath`."""
        target, path = locate(store)
        return make_group(target, path, zarr_format, attributes, overwrite=overwrite)

    @classmethod
    def from_documents(
        cls,
        store: Store,
        path: str,
        documents: Documents,
        holder: Consolidated | None = None,
        *,
        use_consolidated: bool = True,
    ) -> Group:
        """The group that parsed documents describe; nothing is read or written."""
        try:
            # What a copy within consolidated metadata says about its own is not used.
            used = use_consolidated and holder is None
            metadata = GroupMetadata.from_documents(documents, use_consolidated=used)
        except MetadataError as error:
            message = f"cannot open the group at '/{path}' in {store!r}: {error}"
            raise type(error)(message, field=error.field) from error
        return cls(store, path, metadata, holder, use_consolidated=use_consolidated)

    # -- finding members --------------------------------------------------------------------------

    def _documents(self, path: str) -> Documents | None:
        """The documents of a node below, from the consolidated metadata or from the store."""
        if self._trusts and self._holder is not None:
            return self._holder.documents(path)
        return node.load(self.store, path, first=self.metadata.zarr_format)

    def _node(self, path: str, documents: Documents) -> Node:
        if not node.is_group(documents):
            return warned(Array.from_documents(self.store, path, documents, None, self._holder))
        group = Group.from_documents(self.store, path, documents, self._holder, use_consolidated=self._trusts)
        if self._holder is None:
            group._follow_zmetadata()
        return group

    def __getitem__(self, path: str) -> Node:
        """The member at a name, or at a path below."""
        found = self._find(path)
        if found is None:
            place = self._place(path)
            documents = None if place is None or self._trusts else _committed_documents(self.store, place)
            if place is not None and documents is not None:
                return self._node(place, documents)
            reason = "" if place is None else node.why_missing(self.store, place) or self._why_not_named(place)
            raise NodeNotFoundError(f"there is no node {path!r} in group {self.name!r} of {self.store!r}{reason}")
        return found

    def _why_not_named(self, place: str) -> str:
        """The end of a message about a node that is not in the consolidated metadata, but in the store."""
        from zellige.nodes import unfinished

        if not self._trusts:
            return ""
        with suppress(RemoteError):  # who may not ask is told no more
            if node.there(self.store, place) is not None:
                mark = unfinished.read(self.store, place)
                if mark is not None and mark.source is not None:
                    return f": a move of '/{mark.source}' was stopped, or is under way; run the same move again"
                return (
                    ": it is in the store, but the consolidated metadata does not name it; call consolidate_metadata, "
                    "or open the group with use_consolidated=False"
                )
        return ""

    def _find(self, path: str) -> Node | None:
        place = self._place(path)
        documents = None if place is None else self._documents(place)
        return None if place is None or documents is None else self._node(place, documents)

    def _place(self, path: str) -> str | None:
        """The path in the store of a member that may be there; None for what can be none."""
        below = "/".join(part for part in as_name(path).split("/") if part)
        place = node.join(self.path, below)
        return place if below and is_key(place) else None

    def get(self, path: str, default: Any = None) -> Any:
        """The member at a path, or a default if there is none."""
        found = self._find(path)
        return default if found is None else found

    def get_array(self, path: str) -> Array:
        """The array at a path; raises if there is a group, or nothing."""
        found = self[path]
        if not isinstance(found, Array):
            raise ContainsGroupError(f"{path!r} in group {self.name!r} is a group, not an array")
        return found

    def get_group(self, path: str) -> Group:
        """The group at a path; raises if there is an array, or nothing."""
        found = self[path]
        if not isinstance(found, Group):
            raise ContainsArrayError(f"{path!r} in group {self.name!r} is an array, not a group")
        return found

    def __contains__(self, path: object) -> bool:
        place = self._place(path) if isinstance(path, str) else None
        try:
            return place is not None and self._documents(place) is not None
        except MetadataError:
            return True  # something broken is there

    def _walk(self, max_depth: int | None) -> Iterator[tuple[str, Documents | MetadataError]]:
        """All nodes below, level by level: their documents, or what is wrong with them."""
        if not self._trusts or self._holder is None:
            yield from node.walk(self.store, self.path, self.metadata.zarr_format, max_depth)
            return
        groups, depth = [self.path], 0
        while groups and (max_depth is None or depth <= max_depth):
            places = [node.join(path, name) for path in groups for name in self._holder.children(path)]
            level = [(place, self._holder.documents(place) or {}) for place in places]
            yield from level
            groups = [place for place, documents in level if node.is_group(documents)]
            depth += 1

    def _below(self, max_depth: int | None) -> Iterator[tuple[str, Node | MetadataError]]:
        """All nodes below with their paths relative to this group, or what is wrong with them."""
        for path, found in self._walk_nodes(max_depth):
            name = path[len(self.path) :].lstrip("/")
            try:
                yield name, self._node(path, found) if isinstance(found, dict) else found
            except MetadataError as error:
                yield name, error

    def _walk_nodes(self, max_depth: int | None) -> Iterator[tuple[str, Array | Documents | MetadataError]]:
        """Like `_walk`, with arrays where that is quicker: those with documents met before."""
        if (self._trusts and self._holder is not None) or self.metadata.zarr_format == 2:
            return self._walk(max_depth)

        def read(place: str) -> Array | Documents | None:
            likely = self.metadata.zarr_format
            return open_array_or(self.store, place, holder=self._holder, consolidated=False, likely=likely)

        return node.walk_with(read, self.store, self.path, max_depth)

    def _members(self, max_depth: int | None) -> Iterator[tuple[str, Node]]:
        """All nodes below that can be read; a warning names each of the others."""
        for name, found in self._below(max_depth):
            if isinstance(found, MetadataError):
                warnings.warn(f"{name!r} in group {self.name!r} is left out: {found}", BrokenNodeWarning, stacklevel=3)
            else:
                yield name, found

    def _without_consolidated(self) -> Group:
        """The same group, whose members are read from the store."""
        return Group(self.store, self.path, self.metadata, self._holder, use_consolidated=False)

    # -- changing ---------------------------------------------------------------------------------

    def _check_writable(self) -> None:
        if self.store.read_only:
            raise ReadOnlyError(f"group {self.name!r} was opened for reading only; open it with mode='r+' to write")

    def _make_group(self, path: str, attributes: Mapping[str, Any] | None, *, overwrite: bool) -> Group:
        made = make_group(self.store, path, self.metadata.zarr_format, attributes, overwrite=overwrite)
        made._trusts = self._trusts
        return made

    def __delitem__(self, path: str) -> None:
        """Remove a member with all nodes below it; files that are not part of them stay.

        Stopped half-way, it can be repeated.
        """
        from zellige.nodes import (
            removal,  # only for those who write
            unfinished,  # only for those who write
        )

        self._check_writable()
        place = self._place(path)
        if place is None or not (path in self or unfinished.read(self.store, place) or self._why_not_named(place)):
            raise NodeNotFoundError(f"there is no node {path!r} in group {self.name!r} of {self.store!r}")
        # In between: as long as the consolidated metadata speaks of an array, all its chunks are there.
        removal.clear(self.store, place, between=lambda: self._follow(place))

    def move(self, source: str, dest: str) -> None:
        """Give a member another name, or another place below this group; the groups above it are created.

        On a local disk this is one step; consolidated metadata names the member at neither place meanwhile. On other
        stores the bytes are copied, the documents last, and then removed: until it is done, the member is where it
        was. Stopped half-way, it can be repeated.

        >>> import zellige
        >>> root = zellige.create_group()
        >>> _ = root.create_array("a", data=[1, 2, 3])
        >>> root.move("a", "old/a")
        >>> list(root), root["old/a"][:]
        (['old'], array([1, 2, 3]))
        """
        from zellige.nodes import placing

        try:
            old, new = self[source].path, self._new(dest)
        except NodeNotFoundError:
            old, new = self._place(source) or "", self._new(dest)
            if not (old and (placing.was_begun(self.store, old, new) or placing.is_leaving(self.store, old))):
                raise
        if self._trusts and node.there(self.store, old) is None and not placing.was_begun(self.store, old, new):
            raise NodeNotFoundError(
                f"there is no node {source!r} in {self.store!r}, although the consolidated metadata of {self.name!r} "
                "names it: a removal or a move of it was stopped, or is under way; run that again, or call "
                "consolidate_metadata"
            )
        if node.is_below(new, old):
            raise ValueError(f"cannot move {source!r} to {dest!r}, which is the same place or lies below it")
        forget = None if self._holder is None else partial(self._forget, old)
        follow = partial(self._follow, old, new, below=True)
        placing.move(self.store, old, new, self.metadata.zarr_format, follow, forget)

    def _follow(self, *paths: str, below: bool = False) -> None:
        """Follow changes below in the consolidated metadata that this group belongs to."""
        if self._holder is not None:
            self._holder.follow(*paths, below=below)

    def _forget(self, *paths: str) -> None:
        """Take nodes below out of the consolidated metadata that this group belongs to, before they go."""
        if self._holder is not None:
            self._holder.forget(*paths)

    def update_attributes(self, new_attributes: Mapping[str, Any]) -> Group:
        """Change several attributes in one write."""
        self.attrs.update(new_attributes)
        return self

    def _change_attributes(self, change: Callable[[dict[str, JSON]], None]) -> None:
        self._check_writable()
        names = node.document_names(self.metadata)

        def rewrite(documents: Documents) -> tuple[Documents, dict[str, JSON]]:
            attributes = dict(attributes_of(documents))
            change(attributes)
            return with_attributes(documents, attributes), attributes

        def follow(attributes: dict[str, JSON]) -> None:
            self.metadata = self.metadata.with_attributes(attributes)

        node.update(self.store, self.path, names, rewrite, follow)
        self._follow(self.path)

    def refresh(self) -> None:
        """Read the document again: another handle may have changed it."""
        own = self._holder is not None and self._holder.path == self.path
        fresh = Group.open(self.store, self.path, self.metadata.zarr_format, None if own and self._trusts else False)
        self.metadata = fresh.metadata
        if own or self._holder is None:
            outer = self._holder.outer if self._holder is not None else None
            self._holder, self._trusts = fresh._holder or outer, fresh._trusts
            if fresh._holder is not None:
                fresh._holder.outer = outer

    # -- consolidated metadata --------------------------------------------------------------------

    def _collect(self) -> Entries:
        """The documents of all nodes below as they are in the store; a warning names what is left out."""
        entries: Entries = {}
        for path, documents in self._without_consolidated()._walk(None):
            name = path[len(self.path) :].lstrip("/")
            if isinstance(documents, MetadataError):
                _warn(f"{name!r} is not in the consolidated metadata of {self.name!r}: {documents}")
            elif ("zarr.json" in documents) != (self.metadata.zarr_format == 3):
                other = 5 - self.metadata.zarr_format
                _warn(f"{name!r} is not in the consolidated metadata of {self.name!r}: it has Zarr format {other}")
            else:
                entries[name] = bare(documents)
        return entries

    def consolidate_metadata(self) -> Group:
        """Write the documents of all nodes below into this group's own, so that one request reads them all.

        Changes made through this group, or through members reached through it, are followed. After other changes
        call this again; `open_consolidated(…, check=True)` tells. A `CompatibilityWarning` names members with
        rectilinear chunks, for which zarr-python needs a setting to open the group.
        """
        held = self._consolidate()
        warn_of_rectilinear(self.name, held.metadata.consolidated or {}, stacklevel=2)
        return held

    def _consolidate(self) -> Group:
        """As `consolidate_metadata`, without its warning."""
        self._check_writable()
        found: list[Entries] = []

        # Members are read after the document that is replaced: a change meanwhile that was followed there is not lost.
        def with_block(documents: Documents) -> tuple[Documents, None]:
            found[:] = [self._collect()]
            return {"zarr.json": {**documents["zarr.json"], "consolidated_metadata": block_of(found[0])}}, None

        if self.metadata.zarr_format == 3:
            node.update(self.store, self.path, ["zarr.json"], with_block)
        else:
            found = [self._put_zmetadata()]
        return self._holding(found[0])

    def _put_zmetadata(self) -> Entries:
        """Store consolidated metadata of Zarr format 2; returns the entries."""
        key = node.join(self.path, ".zmetadata")
        for _ in range(_TRIES):
            old = self.store.read(key)
            entries = self._collect()
            raw = write_json(consolidated_document({"": self._own_documents(), **entries}))
            if self.store.create(key, raw) if old is None else self.store.replace(key, raw, old.tag):
                return entries
        raise ConflictError(f"key {key!r} in {self.store!r} kept changing; nothing was written, try again", key=key)

    def _own_documents(self) -> Documents:
        """The group's own documents as they are in the store."""
        found = node.load(self.store, self.path, zarr_format=self.metadata.zarr_format, expect="group")
        return bare(found or self.metadata.to_documents())

    def _holding(self, entries: Entries) -> Group:
        """A group that uses its new consolidated metadata; this one follows it from now on."""
        own = self._holder is not None and self._holder.path == self.path
        outer = self._holder.outer if own and self._holder is not None else self._holder
        self._holder = Consolidated(self.store, self.path, self.metadata.zarr_format, entries, outer)
        self.metadata = self.metadata.with_consolidated(entries)
        return Group(self.store, self.path, self.metadata, self._holder)

    def _check_consolidated(self) -> None:
        held = self.metadata.consolidated
        if held is None:
            raise ValueError(f"the group {self.name!r} in {self.store!r} has no consolidated metadata to check")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BrokenNodeWarning)
            stored = self._collect()
        if self.metadata.zarr_format == 2:
            held = {"": self.metadata.with_consolidated(None).to_documents(), **held}
            stored = {"": self._own_documents(), **stored}
        found = tuple(differences(held, stored))
        if found:
            shown = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
            raise StaleMetadataError(
                f"the consolidated metadata of {self.name!r} in {self.store!r} is not up to date: {shown}; call "
                "consolidate_metadata, or open with use_consolidated=False",
                differences=found,
            )

    # -- showing ----------------------------------------------------------------------------------

    def tree(
        self, expand: bool | None = None, level: int | None = None, *, max_nodes: int = 500, plain: bool = False
    ) -> Tree:
        """The hierarchy below as a tree: text in a terminal, HTML in a notebook.

        `level` is how deep to go, `max_nodes` how many lines to show; `plain` uses ASCII only, `expand` opens
        all groups of the HTML.

        >>> import zellige
        >>> root = zellige.create_group()
        >>> _ = root.create_array("a/t", shape=(59,), chunks=[[31, 28]], dtype="float32")
        >>> root.tree()
        /
        └── a
            └── t (59,) float32
        """
        from zellige.display.tree import Tree
        from zellige.nodes.info import tree_members

        found = tree_members(self, level)
        return Tree.of(self.name, found, max_nodes=max_nodes, plain=plain, expand=expand)

    def _repr_html_(self) -> str:
        return self.tree()._repr_html_()

    @property
    def info(self) -> Info:
        """A summary for people, without reading the members."""
        from zellige.nodes.info import describe_group

        return describe_group(self)

    def info_complete(self) -> Info:
        """Like `info`, with the number of members; lists the store."""
        from zellige.nodes.info import describe_group

        return describe_group(self, complete=True)

    def __repr__(self) -> str:
        return f"<zellige.Group {self.name} in {self.store!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        same = self.store == other.store and self.path == other.path
        return same and self.metadata.with_consolidated(None) == other.metadata.with_consolidated(None)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the consolidated metadata, which can be large; it is read again if somebody asks for it.
        bare = self.metadata.with_consolidated(None).to_documents()
        return _unpickle, (self.store, self.path, bare, self._holder, self._trusts)


def _unpickle(store: Store, path: str, documents: Documents, holder: Consolidated | None, trusts: bool) -> Group:
    return Group.from_documents(store, path, documents, holder, use_consolidated=trusts)


def make_group(
    store: Store, path: str, zarr_format: Literal[2, 3], attributes: Mapping[str, Any] | None, *, overwrite: bool
) -> Group:
    """Create a group, with the groups above it."""
    from zellige.nodes import placing

    metadata = GroupMetadata(new_attributes(attributes), zarr_format)
    placing.create(store, path, metadata, overwrite=overwrite)
    return Group(store, path, metadata)


def _committed_documents(store: Store, path: str) -> Documents | None:
    """The documents of a group whose creation is committed, and was not finished; None if there is no such."""
    from zellige.nodes.commit import created_group  # only for those who find nothing

    return created_group(store, path)


def _warn(message: str) -> None:
    warn_caller(message, BrokenNodeWarning)
