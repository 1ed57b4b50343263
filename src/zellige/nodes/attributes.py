"""What arrays and groups have in common: a place in a store, and attributes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from zellige.errors import ReadOnlyError
from zellige.metadata.json import new_attributes, plain
from zellige.stores import Store, StorePath
from zellige.types import JSON


class Attributes(MutableMapping[str, JSON]):
    """A node's attributes as a dict: reading costs nothing, every change is written at once.

    Values are JSON: strings, numbers, booleans, None, lists and dicts. numpy scalars and arrays are converted. NaN and
    infinities come back as they were set; they are stored as NaN, Infinity and -Infinity, as Python's json and
    zarr-python do. Readers of strict JSON do not know these: the setting `strict_json` refuses them.
    """

    def __init__(self, node: NodeHandle) -> None:
        self._node = node

    def __getitem__(self, key: str) -> JSON:
        return self._node.metadata.attributes[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        self._node._change_attributes(lambda attributes: attributes.__delitem__(key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._node.metadata.attributes)

    def __len__(self) -> int:
        return len(self._node.metadata.attributes)

    def update(self, values: Any = (), /, **named: Any) -> None:
        """Change several attributes in one write."""
        new = plain(dict(values, **named))
        self._node._change_attributes(lambda attributes: attributes.update(new))

    def put(self, values: Mapping[str, Any]) -> None:
        """Replace all attributes."""
        new = new_attributes(values)

        def replace(attributes: dict[str, JSON]) -> None:
            attributes.clear()
            attributes.update(new)

        self._node._change_attributes(replace)

    def asdict(self) -> dict[str, JSON]:
        """Return a copy as a plain dict."""
        from copy import deepcopy

        return deepcopy(dict(self._node.metadata.attributes))

    def __repr__(self) -> str:
        return f"Attributes({self.asdict()!r})"


class NodeHandle:
    """A handle on an array or a group."""

    __slots__ = ()

    _kind: ClassVar[str]

    if TYPE_CHECKING:
        store: Store
        path: str
        metadata: Any

    @abstractmethod
    def _change_attributes(self, change: Callable[[dict[str, JSON]], None]) -> None:
        """Change the stored attributes in place, by one write."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the store, with all that was opened in it; a zip file is complete then, or after an error as before."""
        self.store.__exit__(*exc)

    @property
    def name(self) -> str:
        """The path with a leading slash."""
        return "/" + self.path

    @property
    def basename(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def store_path(self) -> StorePath:
        """The store and the path as one value."""
        return StorePath(self.store, self.path)

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self.store.read_only

    @property
    def attrs(self) -> Attributes:
        """The attributes, as a dict that writes every change."""
        return Attributes(self)

    def update_attributes(self, new_attributes: Mapping[str, Any]) -> Self:
        """Change several attributes in one write."""
        self.attrs.update(new_attributes)
        return self

    def _check_writable(self) -> None:
        if self.store.read_only:
            raise ReadOnlyError(
                f"{self._kind} {self.name!r} was opened for reading only; open it with mode='r+' to write"
            )
