"""Nodes of a hierarchy: where their documents are, how they come to be and how they change.

A node is known by its documents, parsed and by name: `{"zarr.json": …}`, or `{".zarray": …, ".zattrs": …}` in
the older format. Nothing above this module asks which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

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
from zellige.metadata.json import new_attributes, plain, read_attributes, read_json, write_json
from zellige.metadata.v3 import DOCUMENT
from zellige.stores import Store, StorePath
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
S = TypeVar("S")

OWN = "__zellige"
"""How the names of our own keys begin: marks, scratch, quarantine. No node has such a name, and none is listed."""

PENDING = f"{OWN}_pending"
"""The key of an array that is there while chunks may lie beyond its end."""

RECORD = f"{OWN}_commit"
"""The key of a group that is there while several of its arrays are changed at once; see `commit`."""
UNFINISHED = f"{OWN}_unfinished"
"""The key at a place where a node is being removed, moved to, or made in many steps; see `unfinished.py`."""

_TRIES = 100
_MOST_BYTES = 255  # of a name, in the file systems that most stores end up in
_LONGEST_PATH = 900  # bytes; the rest of a key of 1,024 is for chunks


# -- names and paths ------------------------------------------------------------------------------


def normalize_path(path: str | None) -> str:
    """A path within a store, without outer slashes; the root is empty. For nodes that exist: tolerant."""
    return "/".join([part for part in _text(path).split("/") if part])


def new_path(path: str | None) -> str:
    """The path of a node to be created, below the root of a store; strict, but for outer slashes."""
    found = _text(path).strip("/")
    if found:
        check_names(found)
    return found


def _text(path: Any) -> str:
    if path is not None and not isinstance(path, str):
        raise TypeError(f"a path within a store is a string, found {path!r} of type {type(path).__name__}")
    return path or ""


def join(path: str, name: str) -> str:
    """The key, or path, of something below a node."""
    return f"{path}/{name}" if path and name else path or name


def parents(path: str) -> list[str]:
    """The paths of all groups above a node, from the root downwards."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:depth]) for depth in range(len(parts))]


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
    """Whether a name can be written as UTF-8, and is one that stores take."""
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
    raw: bytes | None = None,
    read: Read | None = None,
) -> Documents | None:
    """The documents of the node at a path; None if there is none.

    Where both formats have one, the newer wins, or `first`, which is also what is likely to be found. `consolidated`
    reads `.zmetadata` as well, and then nothing else if it is there. `expect` is looked for first. `raw` is
    `zarr.json`, if it has been read already, and `read` how to read.
    """
    if raw is not None:
        return {DOCUMENT: _parsed(store, path, DOCUMENT, raw)}
    if read is None and first is None:
        read = at_once(store, path, zarr_format, consolidated=consolidated)
    for candidate in (first or 3, 5 - (first or 3)):
        if zarr_format in (None, candidate):
            ask = read or at_once(store, path, candidate, consolidated=consolidated)
            found = (
                _fetch(ask, store, path, DOCUMENT)
                if candidate == 3
                else _load_v2(ask, store, path, consolidated=consolidated, group_first=expect == "group")
            )
            if found is not None:
                return found
    return None


def at_once(store: Store, path: str, zarr_format: int | None = None, *, consolidated: bool = False) -> Read:
    """How to read documents of a node, by names; where requests are waited for, all are asked for at the same time."""
    if store.traits.concurrency is None or zarr_format == 3 or is_busy():
        return partial(read_document, store, path)
    from zellige.nodes.lookahead import ask_for  # only for those who wait

    older = [ARRAY_V2, GROUP_V2, ATTRIBUTES_V2] + [CONSOLIDATED_V2] * consolidated
    return ask_for(older if zarr_format == 2 else [DOCUMENT, *older], store, path)


def _load_v2(ask: Read, store: Store, path: str, *, consolidated: bool, group_first: bool) -> Documents | None:
    names = [CONSOLIDATED_V2, GROUP_V2] if consolidated else [GROUP_V2]
    for name in [*names, ARRAY_V2] if group_first else [ARRAY_V2, *names]:
        found = _fetch(ask, store, path, name)
        if found is not None:
            # Consolidated metadata holds the group's own documents, too.
            return found if name == CONSOLIDATED_V2 else {**found, **(_fetch(ask, store, path, ATTRIBUTES_V2) or {})}
    return None


def _fetch(ask: Read, store: Store, path: str, name: str) -> Documents | None:
    raw = ask(name)
    return None if raw is None else {name: _parsed(store, path, name, raw)}


def read_document(store: Store, path: str, name: str) -> bytes | None:
    """The bytes of a document; None if there is none."""
    try:
        return store.get(join(path, name))
    except IsADirectoryError as error:
        raise MetadataError(f"{name} of '/{path}' in {store!r} is a directory, not a document", field="") from error


def _parsed(store: Store, path: str, name: str, raw: bytes) -> dict[str, JSON]:
    try:
        return read_attributes(raw) if name == ATTRIBUTES_V2 else read_json(raw)
    except MetadataError as error:
        raise MetadataError(f"{name} of '/{path}' in {store!r}: {error}", field=error.field) from error


def parse(documents: Documents) -> NodeMetadata:
    """What the documents of a node say it is."""
    if ARRAY_V2 in documents:
        from zellige.metadata.v2 import ArrayV2Metadata  # only for those who have such arrays

        return ArrayV2Metadata.from_documents(documents)
    if is_group(documents):
        return GroupMetadata.from_documents(documents)
    return ArrayV3Metadata.from_documents(documents)


def is_group(documents: Documents) -> bool:
    """Whether documents say that the node is a group."""
    return documents[DOCUMENT].get("node_type") == "group" if DOCUMENT in documents else ARRAY_V2 not in documents


def children(store: Store, path: str) -> list[str]:
    """The paths directly below a group that may hold nodes; one listing."""
    return _listed(store, path)[0]


def _listed(store: Store, path: str) -> tuple[list[str], bool]:
    """The paths directly below a group that may hold nodes, and whether several of them are being changed at once."""
    prefix = path and path + "/"
    keys, prefixes = store.list_dir(prefix)
    names = [found[len(prefix) : -1] for found in prefixes]
    return [join(path, name) for name in names if not name.startswith(OWN)], join(path, RECORD) in keys


def walk(
    store: Store, path: str, zarr_format: int, max_depth: int | None = None
) -> Iterator[tuple[str, Documents | MetadataError]]:
    """All nodes below a group, level by level: their documents, or what is wrong with them.

    One listing for each group; each document is read once, several at a time.
    """
    return walk_with(lambda place: load(store, place, first=zarr_format), store, path, max_depth)


def walk_with(
    read: Callable[[str], T | Documents | None], store: Store, path: str, max_depth: int | None = None
) -> Iterator[tuple[str, T | Documents | MetadataError]]:
    """Like `walk`, with what `read` gives for each place; for a group that must be its documents."""

    def read_or_error(place: str) -> T | Documents | MetadataError | None:
        try:
            found = read(place)
        except MetadataError as error:
            return error
        reason = why_missing(store, place) if found is None else ""
        return UnfinishedError(reason.removeprefix(": "), field="") if reason else found

    def read_level() -> tuple[dict[str, Any], list[str]]:
        """What is at the places below the groups, and those of the groups that are being changed."""
        listed = gather(lambda group: _listed(store, group), groups, store)
        places = [place for found, _ in listed for place in found]
        changing = [group for group, (_, changes) in zip(groups, listed, strict=True) if changes]
        return dict(zip(places, gather(read_or_error, places, store), strict=True)), changing

    groups, depth = [path], 0
    records: dict[str, Record] = {}
    while groups and (max_depth is None or depth <= max_depth):
        level, changing = read_level()
        if changing or records:
            from zellige.nodes import commit  # only for those who meet a change of several arrays

            if changing:
                level, found_records = commit.stable(store, changing, lambda: read_level()[0])
                records |= found_records
            commit.apply(records, groups, level)
        yield from ((place, found) for place, found in level.items() if found is not None)
        groups = [place for place, found in level.items() if isinstance(found, dict) and is_group(found)]
        depth += 1


def why_missing(store: Store, path: str) -> str:
    """The end of a message about a node that is not there: that it is unfinished, if it is; else nothing."""
    from zellige.nodes.unfinished import hint  # only for those who have found nothing

    return hint(store, path)


def is_below(path: str, top: str) -> bool:
    """Whether a path is that of a node, or of one below it."""
    return not top or path == top or path.startswith(top + "/")


def keys_below(keys: list[str], path: str) -> list[str]:
    """Those of some sorted keys that lie below a path."""
    return keys[bisect_left(keys, path + "/") : bisect_left(keys, path + "0")] if path else keys  # "0" follows "/"


# -- creating -------------------------------------------------------------------------------------


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
    """The bytes of a document that replaces another one, or none; an error says of which node."""
    try:
        return write_json(content, before)
    except MetadataError as error:
        raise MetadataError(f"{name} of '/{path}' in {store!r}: {error}", field=error.field) from error


def check_parent(store: Store, path: str) -> bool:
    """Whether there is a group at a path that is to hold others; raises if there is an array."""
    found, has = _look(store, path)
    is_array = _node_type(found) == "array" if found is not None else has(ARRAY_V2)
    if is_array:
        raise ContainsArrayError(f"'/{path}' in {store!r} is an array, which holds no other nodes; choose another path")
    is_group = found is not None or has(GROUP_V2)
    if not path and not is_group:
        check_outer(store)
    return is_group


def check_outer(store: Store) -> None:
    """Raise if the root of a store, which is no node yet, lies directly in the directory of an array."""
    folders = store.ability(Folders)
    outer = None if folders is None else folders.outer()
    if outer is not None:
        found, has = _look(outer, "")
        if _node_type(found) == "array" if found is not None else has(ARRAY_V2):
            raise ContainsArrayError(
                f"{outer!r} is an array, which holds no other nodes, and {store!r} lies in its directory; choose "
                "another place"
            )


def _look(store: Store, path: str) -> tuple[bytes | None, Callable[[str], bool]]:
    """`zarr.json` at a path, and whether there is another document."""
    read = at_once(store, path)
    return read(DOCUMENT), lambda name: read(name) is not None


def _node_type(raw: bytes) -> JSON:
    """What a document says it is; None if it cannot be read."""
    try:
        return read_json(raw).get("node_type")
    except MetadataError:
        return None


def check_free(store: Store, path: str) -> None:
    """Raise if there is a node at a path."""
    if error := there(store, path):
        raise error


def there(store: Store, path: str) -> ContainsArrayError | ContainsGroupError | None:
    """The error that says which node is at a path already."""
    raw, has = _look(store, path)
    if raw is not None:
        is_array = _node_type(raw) != "group"
    else:
        is_array = has(ARRAY_V2)
        if not is_array and not has(GROUP_V2):
            return None
    error, what = (ContainsArrayError, "an array") if is_array else (ContainsGroupError, "a group")
    return error(f"there is {what} at '/{path}' in {store!r} already; open it, or replace it with overwrite=True")


# -- changing -------------------------------------------------------------------------------------


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
    documents = {name: _parsed(store, path, name, old.whole) for name, old in there.items()}
    return Stored(documents, {name: old.tag for name, old in there.items()})


def _replace(store: Store, path: str, names: Sequence[str], before: Stored, after: Documents) -> bool:
    """Write the documents that differ; False if one of them is not what was read any more."""
    old, tags = before
    changed = {
        name: _dumped(store, path, name, after.get(name, {}), old.get(name))
        for name in names
        if after.get(name, {}) != old.get(name, {})
    }
    return all(_put_over(store, join(path, name), raw, tags, name) for name, raw in changed.items())


def _put_over(store: Store, key: str, raw: bytes, tags: Mapping[str, Tag | None], name: str) -> bool:
    return store.replace(key, raw, tags[name]) if name in tags else store.create(key, raw)


def copy_order(keys: Iterable[str], *, transactional: bool = False) -> list[list[str]]:
    """Keys in the order in which they are copied, so that what is cut short never looks like a node.

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


def document_names(metadata: NodeMetadata) -> tuple[str, ...]:
    """The names of a node's own documents, the main one first."""
    if metadata.zarr_format == 3:
        return (DOCUMENT,)
    return (GROUP_V2 if isinstance(metadata, GroupMetadata) else ARRAY_V2, ATTRIBUTES_V2)


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
        """A copy as a plain dict."""
        from copy import deepcopy

        return deepcopy(dict(self._node.metadata.attributes))

    def __repr__(self) -> str:
        return f"Attributes({self.asdict()!r})"


class NodeHandle:
    """What arrays and groups have in common: a place, and attributes."""

    __slots__ = ()

    if TYPE_CHECKING:
        store: Store
        path: str
        metadata: Any

        def _change_attributes(self, change: Callable[[dict[str, JSON]], None]) -> None: ...

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
