"""`Group`: a node that holds arrays and other groups, like a dict of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import ref

import numpy as np

from zellige.dtypes import parse_dtype
from zellige.errors import (
    BrokenNodeWarning,
    ContainsArrayError,
    ContainsGroupError,
    GroupNotFoundError,
    MetadataError,
    NodeNameError,
    NodeNotFoundError,
    RemoteError,
    as_mapping,
)
from zellige.metadata.groups import Documents, GroupMetadata, attributes_of, with_attributes
from zellige.metadata.json import new_attributes
from zellige.nodes import node
from zellige.nodes.array import Array, open_array_or, warned
from zellige.nodes.consolidated import Consolidated, check_entries, consolidate, holds_some, warn_of_rectilinear
from zellige.nodes.create import copy_array, copy_values, like, make, modern_options, options_of, zero
from zellige.nodes.node import NodeHandle
from zellige.stores import Store, StoreLike, locate
from zellige.stores.base import is_key
from zellige.types import JSON, NOT_GIVEN

if TYPE_CHECKING:
    from zellige.display.text import Tree
    from zellige.nodes.hierarchy import NodeLike
    from zellige.nodes.info import Info

Node: TypeAlias = "Array | Group"


class Group(NodeHandle):
    """A node that holds arrays and other groups, like a dict whose keys are names or paths.

    Groups are made by `zellige.create_group` and opened by `zellige.open_group`.

    >>> import zellige
    >>> root = zellige.create_group()
    >>> t = root.create_array("2024/t", shape=(366,), chunks=[[31, 29, 306]], dtype="float32")
    >>> root["2024/t"] == t, "2024" in root, list(root)
    (True, True, ['2024'])
    """

    __slots__ = ("store", "path", "metadata", "_holder", "_trusts", "_listed", "__weakref__")

    _kind = "group"

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
        self._listed: tuple[ref[Generator[str]], int] | None = None
        """The iterator over names that has not begun yet, and how many there are."""

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

        Parameters: see `zellige.open_group`.
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
            check_entries(store, path, group.metadata)
        return group

    def _follow_zmetadata(self) -> None:
        """Follow consolidated metadata of Zarr format 2 also where it is not used for reading."""
        if self.metadata.zarr_format == 2 and holds_some(self.store, self.path, 2):
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
        """Create a group at the root of a store, or at a `StorePath`. Parameters: see `zellige.create_group`."""
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
        """Return the group that parsed documents describe; nothing is read or written.

        Parameters
        ----------
        store, path
            Where the group is, or is going to be.
        documents
            Its metadata documents by name, such as `{"zarr.json": …}`.
        holder
            The consolidated metadata of a group above that it was reached through, which follows its changes.
        use_consolidated
            Whether members are looked up in consolidated metadata, where there is some.
        """
        try:
            # What a copy within consolidated metadata says about its own is not used.
            used = use_consolidated and holder is None
            metadata = GroupMetadata.from_documents(documents, use_consolidated=used)
        except MetadataError as error:
            message = f"cannot open the group at '/{path}' in {store!r}: {error}"
            raise type(error)(message, field=error.field) from error
        return cls(store, path, metadata, holder, use_consolidated=use_consolidated)

    # -- finding members --------------------------------------------------------------------------

    @property
    def _known(self) -> Consolidated | None:
        """The consolidated metadata that tells of the members; None if they are read from the store."""
        return self._holder if self._trusts else None

    def _documents(self, path: str) -> Documents | None:
        """Return the documents of a node below."""
        known = self._known
        return node.load(self.store, path, first=self.metadata.zarr_format) if known is None else known.documents(path)

    def _node(self, path: str, documents: Documents) -> Node:
        if not node.is_group(documents):
            return warned(Array.from_documents(self.store, path, documents, None, self._holder))
        group = Group.from_documents(self.store, path, documents, self._holder, use_consolidated=self._trusts)
        if self._holder is None:
            group._follow_zmetadata()
        return group

    def __getitem__(self, path: str) -> Node:
        """Return the member at a `path` below, often a name."""
        place, reason = self._place(path), ""
        if place is not None:
            documents = self._documents(place)
            if documents is None and not self._trusts:
                documents = _committed_documents(self.store, place)
            if documents is not None:
                return self._node(place, documents)
            reason = node.why_missing(self.store, place) or self._why_not_named(place)
        raise NodeNotFoundError(f"there is no node {path!r} in group {self.name!r} of {self.store!r}{reason}")

    def _why_not_named(self, place: str) -> str:
        """Return the end of a message about a node that is not in the consolidated metadata, but in the store."""
        from zellige.nodes import remove

        if not self._trusts:
            return ""
        with suppress(RemoteError):  # without access, the message says no more
            if node.there(self.store, place) is not None:
                mark = remove.read_mark(self.store, place)
                if mark is not None and mark.source is not None:
                    return f": a move of '/{mark.source}' was stopped, or is in progress; run the same move again"
                return (
                    ": it is in the store, but the consolidated metadata does not name it; call consolidate_metadata, "
                    "or open the group with use_consolidated=False"
                )
        return ""

    def _place(self, path: str) -> str | None:
        """Return the path in the store of a member that may be there; None for what can be none."""
        below = node.normalize_path(_as_name(path))
        place = node.join(self.path, below)
        return place if below and is_key(place) else None

    def get(self, path: str, default: Any = None) -> Any:
        """Return the member at a `path` below, or a `default` if there is none."""
        place = self._place(path)
        documents = None if place is None else self._documents(place)
        return default if place is None or documents is None else self._node(place, documents)

    def get_array(self, path: str) -> Array:
        """Return the array at a `path` below; raises if there is a group, or nothing."""
        return self._as_array(path, self[path])

    def get_group(self, path: str) -> Group:
        """Return the group at a `path` below; raises if there is an array, or nothing."""
        return self._as_group(path, self[path])

    def _as_array(self, path: str, found: Node) -> Array:
        if not isinstance(found, Array):
            raise ContainsGroupError(f"{path!r} in group {self.name!r} is a group, not an array")
        return found

    def _as_group(self, path: str, found: Node) -> Group:
        if not isinstance(found, Group):
            raise ContainsArrayError(f"{path!r} in group {self.name!r} is an array, not a group")
        return found

    def __contains__(self, path: object) -> bool:
        """Return whether there is a member at a `path` below."""
        place = self._place(path) if isinstance(path, str) else None
        try:
            return place is not None and self._documents(place) is not None
        except MetadataError:
            return True  # something broken is there

    # -- going through members --------------------------------------------------------------------

    def _below(self, max_depth: int | None) -> Iterator[tuple[str, Node | MetadataError]]:
        """Yield all nodes below with their paths relative to this group, level by level, or what is wrong with them."""
        form, known = self.metadata.zarr_format, self._known

        def read(place: str) -> Array | Documents | None:
            if form == 3:  # metadata that was met before is not even parsed
                return open_array_or(self.store, place, holder=self._holder, consolidated=False, likely=form)
            return node.load(self.store, place, first=form)

        walked: Iterator[tuple[str, Array | Documents | MetadataError]]
        if known is None:
            walked = node.walk(self.store, self.path, max_depth, read)
        else:
            walked = known.walk(self.path, max_depth)
        for path, found in walked:
            name = node.relative(path, self.path)
            try:
                yield name, self._node(path, found) if isinstance(found, dict) else found
            except MetadataError as error:
                yield name, error

    def _members(self, max_depth: int | None) -> Iterator[tuple[str, Node]]:
        """Yield all nodes below that can be read; a warning names each of the others."""
        for name, found in self._below(max_depth):
            if isinstance(found, MetadataError):
                warnings.warn(f"{name!r} in group {self.name!r} is left out: {found}", BrokenNodeWarning, stacklevel=3)
            else:
                yield name, found

    def members(
        self, max_depth: int | None = 0, *, use_consolidated_for_children: bool = True
    ) -> tuple[tuple[str, Node], ...]:
        """Return the nodes below as (path, node).

        The metadata of each is read once, several at a time. A node that cannot be read is left out with a
        `BrokenNodeWarning` that names it.

        Parameters
        ----------
        max_depth
            How many levels between a node and this group; None for all.
        use_consolidated_for_children
            Whether consolidated metadata, if there is some, is used in place of the nodes' own.

        >>> import zellige
        >>> root = zellige.create_group()
        >>> _ = root.create_group("a/b")
        >>> [name for name, _ in root.members(max_depth=None)]
        ['a', 'a/b']
        """
        group = self
        if not use_consolidated_for_children:
            group = Group(self.store, self.path, self.metadata, self._holder, use_consolidated=False)
        return tuple(group._members(_checked_depth(max_depth)))

    def nmembers(self, max_depth: int | None = 0) -> int:
        """Return the number of nodes below, down to `max_depth` as in `members`."""
        return sum(not isinstance(found, MetadataError) for _, found in self._below(_checked_depth(max_depth)))

    def items(self) -> Iterator[tuple[str, Node]]:
        """Return the direct members with their names."""
        return self._members(0)

    def keys(self) -> Iterator[str]:
        """Return the names of the direct members."""
        return (name for name, _ in self._members(0))

    def values(self) -> Iterator[Node]:
        """Return the direct members."""
        return (found for _, found in self._members(0))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Return the direct members that are arrays, with their names."""
        return ((name, found) for name, found in self._members(0) if isinstance(found, Array))

    def array_keys(self) -> Iterator[str]:
        """Return the names of the direct members that are arrays."""
        return (name for name, _ in self.arrays())

    def array_values(self) -> Iterator[Array]:
        """Return the direct members that are arrays."""
        return (found for _, found in self.arrays())

    def groups(self) -> Iterator[tuple[str, Group]]:
        """Return the direct members that are groups, with their names."""
        return ((name, found) for name, found in self._members(0) if isinstance(found, Group))

    def group_keys(self) -> Iterator[str]:
        """Return the names of the direct members that are groups."""
        return (name for name, _ in self.groups())

    def group_values(self) -> Iterator[Group]:
        """Return the direct members that are groups."""
        return (found for _, found in self.groups())

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Return all nodes below with their paths, level by level."""
        return self._members(None)

    def visit(self, function: Callable[[str], Any]) -> Any:
        """Call a `function` with the path of every node below, until it returns something."""
        return self.visititems(lambda path, _: function(path))

    def visititems(self, function: Callable[[str, Node], Any]) -> Any:
        """Call a `function` with the path and the node of every node below, until it returns something."""
        for path, found in self._members(None):
            if (result := function(path, found)) is not None:
                return result
        return None

    def __iter__(self) -> Iterator[str]:
        names = [name for name, _ in self._members(0)]

        def each() -> Generator[str]:
            self._listed = None
            yield from names

        iterator = each()
        self._listed = ref(iterator), len(names)
        return iterator

    def __len__(self) -> int:
        # `list(group)` asks for the length right before it begins: what was just listed is not listed again.
        iterator, count = self._listed or (lambda: None, 0)
        return self.nmembers() if iterator() is None else count

    def __bool__(self) -> bool:
        return True  # an empty group is a group

    # -- creating members -------------------------------------------------------------------------

    @contextmanager
    def _following(self, path: str, *, replaced: bool) -> Iterator[Callable[[], None]]:
        """Follow the creation of a member in the consolidated metadata, also if it fails half-way.

        Yields what follows in between, if it replaces another one: that leaves before its chunks go, and the new one
        comes at the end.
        """
        try:
            yield partial(self._follow, path)
        finally:
            self._follow(path, below=replaced)

    def create_group(self, name: str, *, overwrite: bool = False, attributes: Mapping[str, Any] | None = None) -> Group:
        """Create a group below this one, with the groups between.

        Parameters
        ----------
        name
            Its name, or its path below this group.
        overwrite
            Whether to replace a node that is there, with all nodes below it; files that are not part of them stay.
        attributes
            Its attributes.

        >>> import zellige
        >>> zellige.create_group().create_group("a/b", attributes={"run": 3}).attrs["run"]
        3
        """
        path, form = member_path(self, name), self.metadata.zarr_format
        with self._following(path, replaced=overwrite) as between:
            made = make_group(self.store, path, form, attributes, overwrite=overwrite, between=between)
        made._holder, made._trusts = self._holder, self._trusts
        return made

    def require_group(self, name: str, *, overwrite: bool = False) -> Group:
        """Return the group at a path below, its `name`, created if there is nothing; with `overwrite` always anew."""
        found = None if overwrite else self.get(name)
        if found is None:
            try:
                return self.create_group(name, overwrite=overwrite)
            except ContainsGroupError:
                found = self[name]  # another process was first
        return self._as_group(name, found)

    def require_groups(self, *names: str) -> tuple[Group, ...]:
        """Return the groups at the paths `names` below, created where there are none."""
        return tuple(self.require_group(name) for name in names)

    def create_hierarchy(self, nodes: Mapping[str, NodeLike], *, overwrite: bool = False) -> Iterator[tuple[str, Node]]:
        """Create several nodes below this group at once. Parameters: see `zellige.create_hierarchy`."""
        from zellige.nodes.hierarchy import create_below

        places = [member_path(self, path) for path in as_mapping(nodes, "nodes")]
        form = self.metadata.zarr_format
        try:
            made = create_below(
                self.store, self.path, nodes, overwrite=overwrite, forget=self._forget, zarr_format=form
            )
        finally:
            self._follow(*places, below=True)
        made.pop("", None)
        for found in made.values():
            found._holder = self._holder
        return iter(made.items())

    def create_array(self, name: str, **options: Any) -> Array:
        """Create an array below this group, of its Zarr format. Parameters: see `zellige.create_array`.

        >>> import zellige
        >>> zellige.create_group().create_array("t", shape=(59,), chunks=[[31, 28]], dtype="int8").name
        '/t'
        """
        return self._make(name, modern_options(self._options(options)))

    create = create_array
    create_dataset = create_array

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        return dict(zarr_format=self.metadata.zarr_format, **options)

    def _make(self, name: str, options: Mapping[str, Any], copy: Callable[[Array, Any], None] = copy_values) -> Array:
        path = member_path(self, name)
        with self._following(path, replaced=bool(options.get("overwrite"))) as between:
            made = make(self.store, path, options, copy=copy, between=between)
        made._holder = self._holder
        return made

    def require_array(self, name: str, *, shape: Any, dtype: Any = None, exact: bool = False, **options: Any) -> Array:
        """Return the array at a path below, created if there is nothing; raises if its shape differs.

        Parameters
        ----------
        name
            The path.
        shape
            The shape that it has, or gets.
        dtype
            A type that values of the array can be cast to safely.
        exact
            Whether the array must have exactly that type.
        **options
            Of a new array, as for `zellige.create_array`.
        """
        found = self.get(name)
        if found is None:
            return self.create_array(name, shape=shape, dtype=dtype, **options)
        array = self._as_array(name, found)
        wanted = (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)
        if array.shape != wanted:
            raise TypeError(f"array {array.name!r} has the shape {array.shape}, not {wanted}")
        kind = array.dtype if dtype is None else parse_dtype(dtype).numpy
        if not (kind == array.dtype if exact else np.can_cast(array.dtype, kind)):
            raise TypeError(f"array {array.name!r} has the type {array.dtype}, not {kind}")
        return array

    require_dataset = require_array

    def array(self, name: str, data: Any, **options: Any) -> Array:
        """Create an array with the values of anything array-like. Parameters: see `zellige.from_array`."""
        if isinstance(data, Mapping | Group):
            raise TypeError(f"{name!r}: a {type(data).__name__} is no array; use zellige.copy for groups")
        return self._make(name, options_of(data, self._options(options)), copy_array)

    def zeros(self, *, name: str, shape: Any, **options: Any) -> Array:
        """Create an array of zeros. Parameters: see `zellige.create_array`."""
        return self.full(name=name, shape=shape, fill_value=zero(options.get("dtype")), **options)

    def ones(self, *, name: str, shape: Any, **options: Any) -> Array:
        """Create an array of ones. Parameters: see `zellige.create_array`."""
        return self.full(name=name, shape=shape, fill_value=1, **options)

    def empty(self, *, name: str, shape: Any, **options: Any) -> Array:
        """Create an array to be filled. Parameters: see `zellige.create_array`."""
        return self.create_array(name, shape=shape, **options)

    def full(self, *, name: str, shape: Any, fill_value: Any, **options: Any) -> Array:
        """Create an array of one value. Parameters: see `zellige.create_array`."""
        return self.create_array(name, shape=shape, fill_value=fill_value, **options)

    def zeros_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array of zeros like `data`. Parameters: see `full_like`."""
        given = like(data, self._options(options))
        return self._make(name, modern_options({**given, "fill_value": zero(given["dtype"])}))

    def ones_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array of ones like `data`. Parameters: see `full_like`."""
        return self.full_like(name=name, data=data, fill_value=1, **options)

    def empty_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array like `data` that is to be filled. Parameters: see `full_like`."""
        return self._make(name, modern_options(like(data, self._options(options))))

    def full_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array of one value, by default the fill value of `data`.

        Parameters
        ----------
        name
            The path below this group.
        data
            Anything array-like, whose shape, type and chunks it gets.
        **options
            Other options than those of `data`, as for `zellige.create`; `fill_value` is the value.
        """
        options.setdefault("fill_value", getattr(data, "fill_value", NOT_GIVEN))
        return self.empty_like(name=name, data=data, **options)

    def __setitem__(self, name: str, value: Any) -> None:
        """Store a `value`, anything array-like, under a `name`, in place of an array that is there already."""
        known = isinstance(self.get(name), Array)
        try:
            self.array(name, value, overwrite=known)
        except ContainsArrayError:
            # Consolidated metadata does not name an array whose replacement was killed; since that try it does.
            if known or self._holder is None or not isinstance(self.get(name), Array):
                raise
            self.array(name, value, overwrite=True)

    # -- changing ---------------------------------------------------------------------------------

    def __delitem__(self, path: str) -> None:
        """Remove the member at a `path` with all nodes below it; files that are not part of them stay.

        Stopped half-way, it can be repeated.
        """
        from zellige.nodes import remove  # needed only for writing

        node.check_writable(self)
        place = self._place(path)
        if place is None or not (path in self or remove.read_mark(self.store, place) or self._why_not_named(place)):
            raise NodeNotFoundError(f"there is no node {path!r} in group {self.name!r} of {self.store!r}")
        remove.clear(self.store, place, between=partial(self._follow, place))

    def move(self, source: str, dest: str) -> None:
        """Give a member another name, or another place below this group; the groups above it are created.

        On a local disk this is one step; consolidated metadata names the member at neither place meanwhile. On other
        stores the bytes are copied, the metadata last, and then removed: until it is done, the member is where it
        was. Stopped half-way, it can be repeated.

        Parameters
        ----------
        source
            The name of the member, or its path below this group.
        dest
            Its new name, or path below this group.

        >>> import zellige
        >>> root = zellige.create_group()
        >>> _ = root.create_array("a", data=[1, 2, 3])
        >>> root.move("a", "old/a")
        >>> list(root), root["old/a"][:]
        (['old'], array([1, 2, 3]))
        """
        from zellige.nodes.hierarchy import move, was_begun

        new = member_path(self, dest)
        try:
            old = self[source].path
        except NodeNotFoundError:
            old = self._place(source) or ""
            if not (old and (was_begun(self.store, old, new) or was_begun(self.store, old, old))):
                raise
        if self._trusts and node.there(self.store, old) is None and not was_begun(self.store, old, new):
            raise NodeNotFoundError(
                f"there is no node {source!r} in {self.store!r}, although the consolidated metadata of {self.name!r} "
                "names it: a removal or a move of it was stopped, or is in progress; run that again, or call "
                "consolidate_metadata"
            )
        if node.is_below(new, old):
            raise ValueError(f"cannot move {source!r} to {dest!r}, which is the same place or lies below it")
        forget = None if self._holder is None else partial(self._forget, old)
        move(self.store, old, new, self.metadata.zarr_format, partial(self._follow, old, new, below=True), forget)

    def _follow(self, *paths: str, below: bool = False) -> None:
        """Follow changes below in the consolidated metadata that this group belongs to."""
        if self._holder is not None:
            self._holder.follow(*paths, below=below)

    def _forget(self, *paths: str) -> None:
        """Take nodes below out of the consolidated metadata that this group belongs to, before they go."""
        if self._holder is not None:
            self._holder.forget(*paths)

    def _change_attributes(self, change: Callable[[dict[str, JSON]], None]) -> None:
        node.check_writable(self)

        def rewrite(documents: Documents) -> tuple[Documents, dict[str, JSON]]:
            attributes = dict(attributes_of(documents))
            change(attributes)
            return with_attributes(documents, attributes), attributes

        def follow(attributes: dict[str, JSON]) -> None:
            self.metadata = self.metadata.with_attributes(attributes)

        node.update(self.store, self.path, node.document_names(self.metadata), rewrite, follow)
        self._follow(self.path)

    def refresh(self) -> None:
        """Read the metadata again: another handle may have changed it."""
        own = self._holder is not None and self._holder.path == self.path
        fresh = Group.open(self.store, self.path, self.metadata.zarr_format, None if own and self._trusts else False)
        self.metadata = fresh.metadata
        if own or self._holder is None:
            outer = self._holder.outer if self._holder is not None else None
            self._holder, self._trusts = fresh._holder or outer, fresh._trusts
            if fresh._holder is not None:
                fresh._holder.outer = outer

    # -- consolidated metadata --------------------------------------------------------------------

    def consolidate_metadata(self) -> Group:
        """Write the metadata of all nodes below into this group's own, so that one request reads it all.

        Changes made through this group, or through members reached through it, are followed. After other changes
        call this again; `open_consolidated(…, check=True)` tells. A `CompatibilityWarning` names members with
        rectilinear chunks, for which zarr-python needs a setting to open the group.
        """
        held = self._consolidate()
        warn_of_rectilinear(self.name, held.metadata.consolidated or {}, stacklevel=2)
        return held

    def _consolidate(self) -> Group:
        """Do as `consolidate_metadata`, without its warning; this group follows its new metadata from now on."""
        node.check_writable(self)
        entries = consolidate(self.store, self.path, self.metadata)
        own = self._holder is not None and self._holder.path == self.path
        outer = self._holder.outer if own and self._holder is not None else self._holder
        self._holder = Consolidated(self.store, self.path, self.metadata.zarr_format, entries, outer)
        self.metadata = self.metadata.with_consolidated(entries)
        return Group(self.store, self.path, self.metadata, self._holder)

    # -- showing ----------------------------------------------------------------------------------

    def tree(
        self, expand: bool | None = None, level: int | None = None, *, max_nodes: int = 500, plain: bool = False
    ) -> Tree:
        """Return the hierarchy below as a tree: text in a terminal, HTML in a notebook.

        Parameters
        ----------
        expand
            Whether all groups of the HTML are open.
        level
            How deep to go; all the way by default.
        max_nodes
            How many lines to show at most.
        plain
            Whether to use ASCII only.

        >>> import zellige
        >>> root = zellige.create_group()
        >>> _ = root.create_array("a/t", shape=(59,), chunks=[[31, 28]], dtype="float32")
        >>> root.tree()
        /
        └── a
            └── t (59,) float32
        """
        from zellige.display.text import Tree
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
        """Return `info` with the number of members; lists the store."""
        from zellige.nodes.info import describe_group

        return describe_group(self, complete=True)

    def __repr__(self) -> str:
        return f"<zellige.Group {self.name} in {self.store!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        same = self.store == other.store and self.path == other.path
        return same and self.metadata.with_consolidated(None) == other.metadata.with_consolidated(None)

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the consolidated metadata, which can be large; it is read again on first use.
        bare = self.metadata.with_consolidated(None).to_documents()
        make = partial(Group.from_documents, use_consolidated=self._trusts)
        return make, (self.store, self.path, bare, self._holder)


def member_path(group: Group, name: str) -> str:
    """Return the path in the store of a member to be created; raises if the group is read-only, or the name bad."""
    node.check_writable(group)
    text = _as_name(name)
    if not text or text.startswith("/"):
        raise NodeNameError(
            f"{name!r} cannot name a member of group {group.name!r}: give a name, or a path such as 'a/b' that "
            "does not begin with '/'",
            name=name,
        )
    node.check_names(text)
    return node.join(group.path, text)


def make_group(
    store: Store,
    path: str,
    zarr_format: Literal[2, 3],
    attributes: Mapping[str, Any] | None,
    *,
    overwrite: bool,
    between: Callable[[], object] = node.nothing,
) -> Group:
    """Create a group, with the groups above it; `between`: see `hierarchy.create`."""
    from zellige.nodes import hierarchy

    metadata = GroupMetadata(new_attributes(attributes), zarr_format)
    hierarchy.create(store, {path: metadata}, overwrite=overwrite, between=between)
    return Group(store, path, metadata)


def _committed_documents(store: Store, path: str) -> Documents | None:
    """Return the documents of a node whose creation is committed, and was not finished; None if there is no such."""
    from zellige.nodes.record import created_node  # needed only if nothing was found

    return created_node(store, path)


def _as_name(name: Any) -> str:
    """Return a name or path of a member."""
    if not isinstance(name, str):
        raise TypeError(f"the members of a group have names, found {name!r} of type {type(name).__name__}")
    return name


def _checked_depth(max_depth: int | None) -> int | None:
    if max_depth is not None and max_depth < 0:
        raise ValueError(f"max_depth={max_depth} must be None or at least 0")
    return max_depth
