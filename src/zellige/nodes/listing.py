"""The ways to go through the members of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import ref

from zellige.errors import MetadataError
from zellige.nodes.array import Array

if TYPE_CHECKING:
    from zellige.nodes.group import Group, Node


class Listing:
    """What `Group` has from here, like a dict of its direct members and more."""

    __slots__ = ()

    if TYPE_CHECKING:
        _listed: ref[_Names] | None

        def _members(self, max_depth: int | None) -> Iterator[tuple[str, Node]]: ...
        def _below(self, max_depth: int | None) -> Iterator[tuple[str, Node | MetadataError]]: ...
        def _without_consolidated(self) -> Group: ...

    def members(
        self, max_depth: int | None = 0, *, use_consolidated_for_children: bool = True
    ) -> tuple[tuple[str, Node], ...]:
        """The nodes below as (path, node): direct ones, those down to a depth, or all for None.

        Each document is read once, several at a time; none at all with consolidated metadata. A node that cannot be
        read is left out with a `BrokenNodeWarning` that names it.

        >>> import zellige
        >>> root = zellige.create_group()
        >>> _ = root.create_group("a/b")
        >>> [name for name, _ in root.members(max_depth=None)]
        ['a', 'a/b']
        """
        group = self if use_consolidated_for_children else self._without_consolidated()
        return tuple(group._members(_depth(max_depth)))

    def nmembers(self, max_depth: int | None = 0) -> int:
        """The number of nodes below, as in `members`."""
        return sum(not isinstance(found, MetadataError) for _, found in self._below(_depth(max_depth)))

    def keys(self) -> Iterator[str]:
        """The names of the direct members."""
        return (name for name, _ in self._members(0))

    def values(self) -> Iterator[Node]:
        """The direct members."""
        return (found for _, found in self._members(0))

    def items(self) -> Iterator[tuple[str, Node]]:
        """The direct members with their names."""
        return self._members(0)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """The direct members that are arrays, with their names."""
        return ((name, found) for name, found in self._members(0) if isinstance(found, Array))

    def array_keys(self) -> Iterator[str]:
        """The names of the direct members that are arrays."""
        return (name for name, _ in self.arrays())

    def array_values(self) -> Iterator[Array]:
        """The direct members that are arrays."""
        return (found for _, found in self.arrays())

    def groups(self) -> Iterator[tuple[str, Group]]:
        """The direct members that are groups, with their names."""
        return ((name, found) for name, found in self._members(0) if not isinstance(found, Array))

    def group_keys(self) -> Iterator[str]:
        """The names of the direct members that are groups."""
        return (name for name, _ in self.groups())

    def group_values(self) -> Iterator[Group]:
        """The direct members that are groups."""
        return (found for _, found in self.groups())

    def walk(self) -> Iterator[tuple[str, Node]]:
        """All nodes below with their paths, level by level."""
        return self._members(None)

    def visit(self, function: Callable[[str], Any]) -> Any:
        """Call a function with the path of every node below, until it returns something."""
        return self.visititems(lambda path, _: function(path))

    def visititems(self, function: Callable[[str, Node], Any]) -> Any:
        """Call a function with the path and the node of every node below, until it returns something."""
        for path, found in self._members(None):
            if (result := function(path, found)) is not None:
                return result
        return None

    def __iter__(self) -> Iterator[str]:
        names = _Names([name for name, _ in self._members(0)])
        self._listed = ref(names)  # type: ignore[misc]
        return names

    def __len__(self) -> int:
        # `list(group)` asks for the length right after it has begun: what was just listed is not listed again.
        names = None if self._listed is None else self._listed()
        return self.nmembers() if names is None or names.at else len(names.names)

    def __bool__(self) -> bool:
        return True  # an empty group is a group


class _Names:
    """An iterator that knows whether it has begun."""

    __slots__ = ("names", "at", "__weakref__")

    def __init__(self, names: list[str]) -> None:
        self.names, self.at = names, 0

    def __iter__(self) -> _Names:
        return self

    def __next__(self) -> str:
        self.at += 1
        if self.at > len(self.names):
            raise StopIteration
        return self.names[self.at - 1]


def _depth(max_depth: int | None) -> int | None:
    if max_depth is not None and max_depth < 0:
        raise ValueError(f"max_depth={max_depth} must be None or at least 0")
    return max_depth
