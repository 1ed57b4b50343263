"""Nodes of a hierarchy: where their documents are, how they come to be and how they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Protocol, TypeVar

from zellige.errors import (
    ConflictError,
    ContainsArrayError,
    ContainsGroupError,
    MetadataError,
    NodeNameError,
    NotANodeError,
)
from zellige.metadata import document
from zellige.stores import Store
from zellige.types import JSON

T = TypeVar("T")

DOCUMENT = "zarr.json"
_GROUP = document.dump({"zarr_format": 3, "node_type": "group"})
_TRIES = 100


def normalize_path(path: str | None) -> str:
    """A path within a store, without outer slashes; the root is empty."""
    return "/".join(part for part in (path or "").replace("\\", "/").split("/") if part)


def join(path: str, name: str) -> str:
    """The key, or path, of something below a node."""
    return f"{path}/{name}" if path else name


def check_names(path: str) -> None:
    """Refuse names that the format does not allow for new nodes (spec: node names)."""
    for name in path.split("/") if path else ():
        if not name.strip(".") or name.startswith("__") or name == DOCUMENT or "\0" in name:
            raise NodeNameError(
                f"{name!r} in path {path!r} cannot name a node: a name is not made of dots only, does not begin with "
                f"'__' and is not {DOCUMENT!r}",
                name=name,
            )


def create(store: Store, path: str, raw: bytes, *, overwrite: bool) -> None:
    """Put a new node's document in place, with groups above it; exactly one of several creators wins."""
    check_names(path)
    # Whatever is refused is refused before the first write.
    parents = _missing_parents(store, path)
    if overwrite:
        _clear(store, path)
    elif error := _node_there(store, path):
        raise error
    for parent in parents:
        store.create(join(parent, DOCUMENT), _GROUP)
    if not store.create(join(path, DOCUMENT), raw):
        raise _occupied(store, path, store.get(join(path, DOCUMENT)))


def _missing_parents(store: Store, path: str) -> list[str]:
    parts = path.split("/") if path else []
    missing = []
    for depth in range(len(parts)):
        parent = "/".join(parts[:depth])
        found = store.get(join(parent, DOCUMENT))
        is_array = node_type(found) == "array" if found is not None else store.exists(join(parent, ".zarray"))
        if found is None and not is_array:
            missing.append(parent)
        elif is_array:
            raise ContainsArrayError(
                f"'/{parent}' in {store!r} is an array, which cannot hold '/{path}'; choose another path"
            )
    return missing


def node_type(raw: bytes) -> JSON:
    """What a document says it is; None if it cannot be read."""
    try:
        return document.parse(raw).get("node_type")
    except MetadataError:
        return None


def _clear(store: Store, path: str) -> None:
    """Remove a node that is to be overwritten; refuses to remove what is not a node."""
    prefix = path and path + "/"
    keys, prefixes = store.list_dir(prefix)
    if not keys and not prefixes:
        return
    names = {key[len(prefix) :] for key in keys}
    if not names & {DOCUMENT, ".zarray", ".zgroup"}:
        raise NotANodeError(
            f"'/{path}' in {store!r} holds keys but no Zarr node, and only nodes are overwritten; choose another path"
        )
    store.delete_prefix(prefix)


def _node_there(store: Store, path: str) -> Exception | None:
    """The error that says which node is at a path already."""
    found = store.get(join(path, DOCUMENT))
    if found is not None:
        return _occupied(store, path, found)
    for name, error in ((".zarray", ContainsArrayError), (".zgroup", ContainsGroupError)):
        if store.exists(join(path, name)):
            return error(f"there is a Zarr v2 node at '/{path}' in {store!r}; choose another path or overwrite=True")
    return None


def _occupied(store: Store, path: str, found: bytes | None) -> Exception:
    error = ContainsGroupError if found is not None and node_type(found) == "group" else ContainsArrayError
    kind = "a group" if error is ContainsGroupError else "an array"
    return error(f"there is {kind} at '/{path}' in {store!r} already; open it, or replace it with overwrite=True")


def update(store: Store, path: str, change: Callable[[bytes], tuple[bytes, T]]) -> T:
    """Read a document, change it and write it back, so that no other change is lost."""
    key = join(path, DOCUMENT)
    for _ in range(_TRIES):
        with store.exclusive(key):
            found = store.get_versioned(key)
            if found is None:
                raise ConflictError(f"the node at '/{path}' in {store!r} was deleted meanwhile; nothing was written")
            raw, result = change(found[0])
            if store.replace(key, raw, found[1]):
                return result
    raise ConflictError(f"key {key!r} in {store!r} kept changing; nothing was written, try again")


class HasAttributes(Protocol):
    """A node with attributes in its document."""

    @property
    def metadata(self) -> Any:
        """The node's document."""

    def _change_attributes(self, change: Callable[[dict[str, JSON]], None]) -> None: ...


class Attributes(MutableMapping[str, JSON]):
    """A node's attributes as a dict: reading costs nothing, every change is written at once.

    Values are JSON: strings, finite numbers, booleans, None, lists and dicts. numpy scalars and arrays
    are converted.
    """

    def __init__(self, node: HasAttributes) -> None:
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
        new = document.plain(dict(values, **named))
        self._node._change_attributes(lambda attributes: attributes.update(new))

    def put(self, values: Mapping[str, Any]) -> None:
        """Replace all attributes."""
        new = document.plain(values)

        def replace(attributes: dict[str, JSON]) -> None:
            attributes.clear()
            attributes.update(new)

        self._node._change_attributes(replace)

    def asdict(self) -> dict[str, JSON]:
        """A copy as a plain dict."""
        return dict(self._node.metadata.attributes)

    def __repr__(self) -> str:
        return f"Attributes({self.asdict()!r})"
