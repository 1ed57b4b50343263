"""The ways to create members of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige.dtypes import parse_dtype
from zellige.errors import ContainsArrayError, ContainsGroupError, NodeNameError
from zellige.nodes import create as creation
from zellige.nodes import derive, node
from zellige.nodes.array import Array

if TYPE_CHECKING:
    from zellige.metadata.groups import GroupMetadata
    from zellige.nodes.consolidated import Consolidated
    from zellige.nodes.group import Group
    from zellige.nodes.hierarchy import NodeLike
    from zellige.stores import Store


class Making:
    """What `Group` has from here. Members have the Zarr format of the group."""

    __slots__ = ()

    if TYPE_CHECKING:
        store: Store
        path: str
        metadata: GroupMetadata
        _holder: Consolidated | None

        @property
        def name(self) -> str:
            """The path with a leading slash."""

        def __getitem__(self, path: str) -> Any: ...
        def get(self, path: str, default: Any = None) -> Any:
            """The member at a path."""

        def _check_writable(self) -> None: ...
        def _follow(self, *paths: str, below: bool = False) -> None: ...
        def _make_group(self, path: str, attributes: Mapping[str, Any] | None, *, overwrite: bool) -> Group: ...

    def _new(self, name: str) -> str:
        """The path of a member to be created."""
        self._check_writable()
        text = as_name(name)
        if not text or text.startswith("/"):
            raise NodeNameError(
                f"{name!r} cannot name a member of group {self.name!r}: give a name, or a path such as 'a/b' that "
                "does not begin with '/'",
                name=name,
            )
        node.check_names(text)
        return node.join(self.path, text)

    def _creating(self, path: str, make: Callable[[], Any], *, replaced: bool) -> Any:
        """Create a member, and follow that in the consolidated metadata, also if it fails half-way.

        Followed twice if it replaces another one: that leaves before its chunks go, and the new one comes at the end.
        """
        from zellige.nodes import removal  # only for those who write

        try:
            with removal.told(path, lambda: self._follow(path)):
                found = make()
        finally:
            self._follow(path, below=replaced)
        found._holder = self._holder
        return found

    def create_group(self, name: str, *, overwrite: bool = False, attributes: Mapping[str, Any] | None = None) -> Group:
        """Create a group below this one, with the groups between.

        `overwrite` replaces a node that is there, with all nodes below it; files that are not part of them stay.

        >>> import zellige
        >>> zellige.create_group().create_group("a/b", attributes={"run": 3}).attrs["run"]
        3
        """
        path = self._new(name)
        make = partial(self._make_group, path, attributes, overwrite=overwrite)
        return self._creating(path, make, replaced=overwrite)  # type: ignore[no-any-return]

    def require_group(self, name: str, *, overwrite: bool = False) -> Group:
        """The group at a path, created if there is nothing; with `overwrite` always anew."""
        found = None if overwrite else self.get(name)
        if found is None:
            try:
                return self.create_group(name, overwrite=overwrite)
            except ContainsGroupError:
                found = self[name]  # another one was quicker
        if isinstance(found, Array):
            raise ContainsArrayError(f"{name!r} in group {self.name!r} is an array, not a group")
        return found  # type: ignore[no-any-return]

    def require_groups(self, *names: str) -> tuple[Group, ...]:
        """Several groups, created where there are none."""
        return tuple(self.require_group(name) for name in names)

    def create_hierarchy(
        self, nodes: Mapping[str, NodeLike], *, overwrite: bool = False
    ) -> Iterator[tuple[str, Array | Group]]:
        """Create several nodes below this group at once; see `zellige.create_hierarchy`."""
        from zellige.nodes.hierarchy import create_below

        return iter(create_below(self, nodes, overwrite=overwrite).items())  # type: ignore[arg-type]

    def _make(self, maker: Callable[..., Array], name: str, options: dict[str, Any], *first: Any) -> Array:
        path = self._new(name)
        place = {"store": self.store, "path": path, "zarr_format": self.metadata.zarr_format}
        replaced = bool(options.get("overwrite")) or options.get("mode") == "w"
        make = partial(maker, *first, **place, **options)
        return self._creating(path, make, replaced=replaced)  # type: ignore[no-any-return]

    def create_array(self, name: str, **options: Any) -> Array:
        """Create an array below this group. Parameters: see `zellige.create_array`.

        >>> import zellige
        >>> zellige.create_group().create_array("t", shape=(59,), chunks=[[31, 28]], dtype="int8").name
        '/t'
        """
        given = creation.modern_options(options, self.metadata.zarr_format)

        def make(*, store: Store, path: str, zarr_format: int, **more: Any) -> Array:
            return creation.create_array(store, name=path, zarr_format=zarr_format, **more)  # type: ignore[arg-type]

        return self._make(make, name, given)

    create = create_array
    create_dataset = create_array

    def require_array(self, name: str, *, shape: Any, dtype: Any = None, exact: bool = False, **options: Any) -> Array:
        """The array at a path, created if there is nothing; raises if its shape or type is another.

        The type must be one that values of the array can be cast to safely, or with `exact` the same.
        """
        found = self.get(name)
        if found is None:
            return self.create_array(name, shape=shape, dtype=dtype, **options)
        if not isinstance(found, Array):
            raise ContainsGroupError(f"{name!r} in group {self.name!r} is a group, not an array")
        _check_required(found, shape, dtype, exact=exact)
        return found

    require_dataset = require_array

    def array(self, name: str, data: Any, **options: Any) -> Array:
        """Create an array with the values, and by default the chunks, of anything array-like."""
        if isinstance(data, Mapping | Making):
            raise TypeError(f"{name!r}: a {type(data).__name__} is no array; use zellige.copy for groups")
        return self._make(derive.array, name, options, data)

    def zeros(self, *, name: str, shape: Any, **options: Any) -> Array:
        """Create an array of zeros."""
        return self._make(creation.zeros, name, options, shape)

    def ones(self, *, name: str, shape: Any, **options: Any) -> Array:
        """Create an array of ones."""
        return self._make(creation.ones, name, options, shape)

    def empty(self, *, name: str, shape: Any, **options: Any) -> Array:
        """Create an array to be filled."""
        return self._make(creation.empty, name, options, shape)

    def full(self, *, name: str, shape: Any, fill_value: Any, **options: Any) -> Array:
        """Create an array of one value."""
        return self._make(creation.full, name, options, shape, fill_value)

    def zeros_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array of zeros with the shape, type and chunks of another."""
        return self._make(derive.zeros_like, name, options, data)

    def ones_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array of ones with the shape, type and chunks of another."""
        return self._make(derive.ones_like, name, options, data)

    def empty_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array to be filled with the shape, type and chunks of another."""
        return self._make(derive.empty_like, name, options, data)

    def full_like(self, *, name: str, data: Any, **options: Any) -> Array:
        """Create an array of one value with the shape, type and chunks of another."""
        return self._make(derive.full_like, name, options, data)

    def __setitem__(self, name: str, value: Any) -> None:
        """Store anything array-like under a name, in place of an array that is there already."""
        known = isinstance(self.get(name), Array)
        try:
            self.array(name, value, overwrite=known)
        except ContainsArrayError:
            # Consolidated metadata does not name an array whose replacement was killed; since that try it does.
            if known or self._holder is None or not isinstance(self.get(name), Array):
                raise
            self.array(name, value, overwrite=True)


def as_name(name: Any) -> str:
    """A name or path of a member."""
    if not isinstance(name, str):
        raise TypeError(f"the members of a group have names, found {name!r} of type {type(name).__name__}")
    return name


def _check_required(found: Array, shape: Any, dtype: Any, *, exact: bool) -> None:
    """Whether an array that is there can serve as the one that is required."""
    wanted = (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)
    if found.shape != wanted:
        raise TypeError(f"array {found.name!r} has the shape {found.shape}, not {wanted}")
    if dtype is None:
        return
    kind = parse_dtype(dtype).numpy
    if not (kind == found.dtype if exact else np.can_cast(found.dtype, kind)):
        raise TypeError(f"array {found.name!r} has the type {found.dtype}, not {kind}")
