"""Nodes of a hierarchy: their names and paths, and their metadata as it is stored, read, walked through and changed.

A node is known by its metadata documents, parsed and by name: `{"zarr.json": …}`, or `{".zarray": …, ".zattrs": …}` in
Zarr format 2. Nothing above this module asks which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

from zellige.errors import (
    ConflictError,
    ContainsArrayError,
    ContainsGroupError,
    MetadataError,
    NodeNameError,
    UnfinishedError,
)
from zellige.metadata import ArrayV3Metadata
from zellige.metadata.groups import (
    ARRAY_V2,
    ATTRIBUTES_V2,
    CONSOLIDATED_V2,
    GROUP_V2,
    Documents,
    GroupMetadata,
)
from zellige.metadata.json import read_attributes, read_json, write_json
from zellige.metadata.v3 import DOCUMENT
from zellige.stores import Store
from zellige.stores.abilities import Folders
from zellige.stores.base import Tag, is_key
from zellige.stores.threads import gather, is_busy
from zellige.types import JSON

if TYPE_CHECKING:
    from zellige.metadata.v2 import ArrayV2Metadata
    from zellige.nodes.record import Record

    ArrayMetadata: TypeAlias = ArrayV3Metadata | ArrayV2Metadata
    NodeMetadata: TypeAlias = ArrayMetadata | GroupMetadata

Read: TypeAlias = Callable[[str], bytes | None]
"""Gives the bytes of a document of one node by its name."""

T = TypeVar("T")

OWN = "__zellige"
"""How the names of our own keys begin: marks, leases, quarantine. No node has such a name, and none is listed."""
PENDING = f"{OWN}_pending"
"""The key of an array that is there while chunks may lie beyond its end; see `resize`."""
RECORD = f"{OWN}_commit"
"""The key of a group that is there while several of its arrays are changed at once; see `commit`."""
UNFINISHED = f"{OWN}_unfinished"
"""The key at a place where a node is being removed, moved to, or made in many steps; see `remove`."""

_TRIES = 100
_MOST_BYTES = 255  # of a name, in the file systems that most stores end up in
_LONGEST_PATH = 900  # bytes; the rest of a key of 1,024 is for chunks


def nothing(*_: object) -> None:
    """Do nothing: for those who need not be told."""


# -- names and paths ------------------------------------------------------------------------------


def normalize_path(path: str | None) -> str:
    """Return a path within a store without outer slashes; the root is empty. For nodes that exist: tolerant."""
    return "/".join([part for part in _text(path).split("/") if part])


def new_path(path: str | None) -> str:
    """Return the path of a node to be created, below the root of a store; strict, but for outer slashes."""
    found = _text(path).strip("/")
    if found:
        check_names(found)
    return found


def _text(path: Any) -> str:
    if path is not None and not isinstance(path, str):
        raise TypeError(f"a path within a store is a string, found {path!r} of type {type(path).__name__}")
    return path or ""


def join(path: str, name: str) -> str:
    """Return the key, or path, of something below a node."""
    return f"{path}/{name}" if path and name else path or name


def relative(path: str, top: str) -> str:
    """Return the path of a node relative to a node at or above it."""
    return path[len(top) :].lstrip("/")


def parents(path: str) -> list[str]:
    """Return the paths of all groups above a node, from the root downwards."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:depth]) for depth in range(len(parts))]


def depth(path: str) -> int:
    """Return how many groups lie above a node."""
    return path.count("/") + bool(path)


def is_below(path: str, top: str) -> bool:
    """Return whether a path is that of a node, or of one below it."""
    return not top or path == top or path.startswith(top + "/")


def keys_below(keys: list[str], path: str) -> list[str]:
    """Return those of some sorted keys that lie below a path."""
    return keys[bisect_left(keys, path + "/") : bisect_left(keys, path + "0")] if path else keys  # "0" follows "/"


def check_names(path: str) -> None:
    """Refuse names that the format does not allow for new nodes (spec: node names).

    The format also reserves names that begin with `__`; anndata and xarray use such, and other libraries take them.
    """
    for name in path.split("/"):
        if not name.strip(".") or name.startswith(OWN) or name == DOCUMENT or not _is_text(name):
            raise NodeNameError(
                f"{_shortened(name)!r} in path {_shortened(path)!r} cannot name a node: a name is not empty, is not "
                f"made of dots only, does not begin with {OWN!r}, is not {DOCUMENT!r}, and is text without NUL; write "
                "paths as 'a/b'",
                name=name,
            )
        if len(name.encode()) > _MOST_BYTES:
            raise NodeNameError(
                f"{_shortened(name)!r} cannot name a node: it has {len(name)} characters, and file systems take names "
                f"of {_MOST_BYTES} bytes; use a shorter one",
                name=name,
            )
    if len(path.encode()) > _LONGEST_PATH:
        raise NodeNameError(
            f"path {_shortened(path)!r} has {len(path)} characters, and object stores take keys of 1,024 bytes; use a "
            "shorter one",
            name=path,
        )


def _is_text(name: str) -> bool:
    """Return whether a name can be written as UTF-8, and is one that stores take."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return is_key(name) is not None


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:60] + "…"


# -- reading --------------------------------------------------------------------------------------


def load(
    store: Store,
    path: str,
    *,
    zarr_format: int | None = None,
    first: int | None = None,
    consolidated: bool = False,
    expect: Literal["array", "group"] = "array",
    read: Read | None = None,
) -> Documents | None:
    """Read the documents of the node at a path; None if there is none.

    Where both formats have one, the newer wins, or `first`, which is also what is likely to be found. `consolidated`
    reads `.zmetadata` as well, and then nothing else if it is there. `expect` is looked for first. `read` is how to
    read, if some of it has been read already.
    """
    if read is None and first is None:
        read = reader(store, path, zarr_format, consolidated=consolidated)
    for candidate in (2, 3) if first == 2 else (3, 2):
        if zarr_format in (None, candidate):
            ask = read or reader(store, path, candidate, consolidated=consolidated)
            if candidate == 3:
                names = [DOCUMENT]
            else:
                groups = [CONSOLIDATED_V2, GROUP_V2] if consolidated else [GROUP_V2]
                names = [*groups, ARRAY_V2] if expect == "group" else [ARRAY_V2, *groups]
            for name in names:
                if (found := _load_one(ask, store, path, name)) is not None:
                    # Consolidated metadata holds the group's own documents, too.
                    alone = name in (DOCUMENT, CONSOLIDATED_V2)
                    return found if alone else {**found, **(_load_one(ask, store, path, ATTRIBUTES_V2) or {})}
    return None


def _load_one(read: Read, store: Store, path: str, name: str) -> Documents | None:
    raw = read(name)
    return None if raw is None else {name: parse_document(store, path, name, raw)}


def parse_document(store: Store, path: str, name: str, raw: bytes) -> dict[str, JSON]:
    """Parse one document of a node; an error says of which."""
    try:
        return read_attributes(raw) if name == ATTRIBUTES_V2 else read_json(raw)
    except MetadataError as error:
        raise MetadataError(f"{name} of '/{path}' in {store!r}: {error}", field=error.field) from error


def reader(store: Store, path: str, zarr_format: int | None = None, *, consolidated: bool = False) -> Read:
    """Return a function that reads documents of a node by name.

    Where requests are waited for, all documents that may be there are asked for at the same time. What goes wrong with
    one is raised only if that one is needed: without the right to list, some stores refuse what is not there.
    """
    if store.traits.concurrency is None or zarr_format == 3 or is_busy():
        return partial(read_document, store, path)
    names = [ARRAY_V2, GROUP_V2, ATTRIBUTES_V2] + [CONSOLIDATED_V2] * consolidated
    if zarr_format != 2:
        names = [DOCUMENT, *names]

    def look(name: str) -> bytes | Exception | None:
        try:
            return read_document(store, path, name)
        except Exception as error:  # noqa: BLE001  (raised by whoever needs it)
            return error

    found = dict(zip(names, gather(look, names, store), strict=True))

    def read(name: str) -> bytes | None:
        answer = found[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return read


def read_document(store: Store, path: str, name: str) -> bytes | None:
    """Read the bytes of a document; None if there is none."""
    try:
        return store.get(join(path, name))
    except IsADirectoryError as error:
        raise MetadataError(f"{name} of '/{path}' in {store!r} is a directory, not a document", field="") from error


def parse(documents: Documents) -> NodeMetadata:
    """Return the metadata that documents hold."""
    if ARRAY_V2 in documents:
        from zellige.metadata.v2 import ArrayV2Metadata  # only for those who have such arrays

        return ArrayV2Metadata.from_documents(documents)
    if is_group(documents):
        return GroupMetadata.from_documents(documents)
    return ArrayV3Metadata.from_documents(documents)


def is_group(documents: Documents) -> bool:
    """Return whether documents are those of a group."""
    return documents[DOCUMENT].get("node_type") == "group" if DOCUMENT in documents else ARRAY_V2 not in documents


def document_names(metadata: NodeMetadata) -> tuple[str, ...]:
    """Return the names of a node's own documents, the main one first."""
    if metadata.zarr_format == 3:
        return (DOCUMENT,)
    return (GROUP_V2 if isinstance(metadata, GroupMetadata) else ARRAY_V2, ATTRIBUTES_V2)


# -- walking --------------------------------------------------------------------------------------


def children(store: Store, path: str) -> list[str]:
    """Return the paths directly below a group that may hold nodes; one listing."""
    return _listed(store, path)[0]


def _listed(store: Store, path: str) -> tuple[list[str], bool]:
    """Return the paths directly below a group that may hold nodes, and whether several of them are being changed."""
    prefix = path and path + "/"
    keys, prefixes = store.list_dir(prefix)
    names = [found[len(prefix) : -1] for found in prefixes]
    return [join(path, name) for name in names if not name.startswith(OWN)], join(path, RECORD) in keys


def walk(
    store: Store, path: str, max_depth: int | None, read: Callable[[str], T | Documents | None]
) -> Iterator[tuple[str, T | Documents | MetadataError]]:
    """Yield all nodes below a group, level by level: what `read` gives for each place, or what is wrong with it.

    `read` gives the documents of groups. One listing for each group; each node is read once, several at a time.
    """

    def read_or_error(place: str) -> T | Documents | MetadataError | None:
        try:
            found = read(place)
        except MetadataError as error:
            return error
        reason = why_missing(store, place) if found is None else ""
        return UnfinishedError(reason.removeprefix(": "), field="") if reason else found

    def read_level() -> tuple[dict[str, Any], list[str]]:
        """Return what is at the places below the groups, and those of the groups that are being changed."""
        listed = gather(lambda group: _listed(store, group), groups, store)
        places = [place for found, _ in listed for place in found]
        changing = [group for group, (_, changes) in zip(groups, listed, strict=True) if changes]
        return dict(zip(places, gather(read_or_error, places, store), strict=True)), changing

    groups, level_depth = [path], 0
    records: list[Record] = []
    while groups and (max_depth is None or level_depth <= max_depth):
        level, changing = read_level()
        if changing or records:
            from zellige.nodes import record  # only for those who meet a change of several arrays

            if changing:
                level, committed = record.stable(store, changing, lambda: read_level()[0])
                records += committed
            record.apply(records, groups, level)
        yield from ((place, found) for place, found in level.items() if found is not None)
        groups = [place for place, found in level.items() if isinstance(found, dict) and is_group(found)]
        level_depth += 1


# -- what is at a place ---------------------------------------------------------------------------


def kind_at(store: Store, path: str) -> Literal["array", "group", "unreadable"] | None:
    """Return what is at a path; None if there is no node."""
    read = reader(store, path)
    raw = read(DOCUMENT)
    if raw is None:
        return "array" if read(ARRAY_V2) is not None else "group" if read(GROUP_V2) is not None else None
    try:
        kind = read_json(raw).get("node_type")
    except MetadataError:
        return "unreadable"
    return kind if kind in ("array", "group") else "unreadable"


def check_parent(store: Store, path: str) -> bool:
    """Return whether there is a group at a path that is to hold others; raises if there is an array."""
    kind = kind_at(store, path)
    if kind == "array":
        raise ContainsArrayError(f"'/{path}' in {store!r} is an array, which holds no other nodes; choose another path")
    if kind is None and not path:
        check_outer(store)
    return kind is not None


def check_outer(store: Store) -> None:
    """Raise if the root of a store, which is no node yet, lies directly in the directory of an array."""
    folders = store.ability(Folders)
    outer = None if folders is None else folders.outer()
    if outer is not None and kind_at(outer, "") == "array":
        raise ContainsArrayError(
            f"{outer!r} is an array, which holds no other nodes, and {store!r} lies in its directory; choose another "
            "place"
        )


def check_free(store: Store, path: str) -> None:
    """Raise if there is a node at a path."""
    if error := there(store, path):
        raise error


def there(store: Store, path: str) -> ContainsArrayError | ContainsGroupError | None:
    """Return the error that says which node is at a path already; None if there is none."""
    kind = kind_at(store, path)
    if kind is None:
        return None
    error, what = (ContainsGroupError, "a group") if kind == "group" else (ContainsArrayError, "an array")
    return error(f"there is {what} at '/{path}' in {store!r} already; open it, or replace it with overwrite=True")


def why_missing(store: Store, path: str) -> str:
    """Return the end of a message about a node that is not there: that it is unfinished, if it is; else nothing."""
    from zellige.nodes.remove import hint  # only for those who have found nothing

    return hint(store, path)


# -- storing --------------------------------------------------------------------------------------


def put_new(store: Store, path: str, metadata: NodeMetadata) -> Documents:
    """Store the documents of a new node, whose place was checked; raises if another one was quicker."""
    documents = metadata.to_documents()
    if not put_documents(store, path, documents):
        raise there(store, path) or ConflictError(f"'/{path}' in {store!r} was created and removed meanwhile")
    return documents


def put_documents(store: Store, path: str, documents: Documents) -> bool:
    """Store the documents of a new node; False if another one was quicker."""
    (name, main), *others = [(name, _dumped(store, path, name, found)) for name, found in documents.items()]
    key = join(path, name)
    if name == DOCUMENT:
        return store.create(key, main)
    # The main one last: a node is there once it is whole.
    with store.lock(key):
        if store.exists(key):
            return False
        if not others:
            store.delete([join(path, ATTRIBUTES_V2)])  # what may be left of a node that was removed by half
        for other, raw in others:
            store.put(join(path, other), raw)
        return store.create(key, main)


def _dumped(
    store: Store, path: str, name: str, content: dict[str, JSON], before: dict[str, JSON] | None = None
) -> bytes:
    """Return the bytes of a document that replaces another one, or none; an error says of which node."""
    try:
        return write_json(content, before)
    except MetadataError as error:
        raise MetadataError(f"{name} of '/{path}' in {store!r}: {error}", field=error.field) from error


class Stored(NamedTuple):
    """Documents of a node as they were read, for a write on the condition that they are still the same."""

    documents: Documents
    tags: Mapping[str, Tag | None]
    """By the names of those that are there."""


def read_stored(store: Store, path: str, names: Sequence[str]) -> Stored:
    """Read documents of a node with their tags; the first name must be there, the others may be missing."""
    found = dict(gather(lambda name: (name, store.read(join(path, name))), names, store))
    if found[names[0]] is None:
        raise ConflictError(f"the node at '/{path}' in {store!r} was deleted meanwhile; nothing was written")
    there = {name: old for name, old in found.items() if old is not None}
    documents = {name: parse_document(store, path, name, old.whole) for name, old in there.items()}
    return Stored(documents, {name: old.tag for name, old in there.items()})


def update(
    store: Store,
    path: str,
    names: Sequence[str],
    change: Callable[[Documents], tuple[Documents, T]],
    follow: Callable[[T], object] = lambda _: None,
    stored: Stored | None = None,
) -> None:
    """Read documents of a node, change them and write them back, so that no other change is lost.

    The first name is the document that must be there; the others may be missing. `follow` gets what `change` gave
    beside the documents, in the order of the writes. `stored` is what was read before: it is read again only if it has
    changed since.
    """
    for _ in range(_TRIES):
        with store.lock(join(path, names[0])):
            before = stored or read_stored(store, path, names)
            stored = None
            after, result = change(before.documents)
            if _replace(store, path, names, before, after):
                follow(result)
                return
    raise ConflictError(f"'/{path}' in {store!r} kept changing; nothing was written, try again")


def _replace(store: Store, path: str, names: Sequence[str], before: Stored, after: Documents) -> bool:
    """Write the documents that differ; False if one of them is not what was read any more."""
    old, tags = before
    changed = {
        name: _dumped(store, path, name, after.get(name, {}), old.get(name))
        for name in names
        if after.get(name, {}) != old.get(name, {})
    }
    return all(
        store.replace(join(path, name), raw, tags[name]) if name in tags else store.create(join(path, name), raw)
        for name, raw in changed.items()
    )


def copy_order(keys: Iterable[str], *, transactional: bool = False) -> list[list[str]]:
    """Return keys in the order in which they are copied, so that what is cut short never looks like a node.

    All chunks first; then the documents from the depth upwards, and of each depth those that make nodes last. A
    transaction is never seen cut short, and icechunk takes no chunk before its array: there it is the reverse.

    >>> copy_order(["zarr.json", "a/zarr.json", "a/c/0", "b/.zarray", "b/.zattrs", "b/0"])
    [['a/c/0', 'b/0'], ['b/.zattrs'], ['a/zarr.json', 'b/.zarray'], ['zarr.json']]
    """
    batches = [list(batch) for _, batch in groupby(sorted(keys, key=_turn), key=_turn)]
    return batches[::-1] if transactional else batches


def _turn(key: str) -> tuple[bool, int, bool]:
    name = key.rpartition("/")[2]
    is_main = name in (DOCUMENT, ARRAY_V2, GROUP_V2)
    is_document = is_main or name in (ATTRIBUTES_V2, CONSOLIDATED_V2)
    return (True, -key.count("/"), is_main) if is_document else (False, 0, False)
