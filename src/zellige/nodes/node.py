"""Nodes of a hierarchy: their names and paths, and their metadata as it is stored, read, walked through and changed.

A node is known by its metadata documents, parsed and by name: `{"zarr.json": …}`, or `{".zarray": …, ".zattrs": …}` in
Zarr format 2. Nothing above this module asks which.
"""

from __future__ import annotations

import marshal
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, TypeVar

from zellige.codecs.chain import CodecChain
from zellige.codecs.sharding import Uneven, uneven
from zellige.errors import (
    ConflictError,
    ContainsArrayError,
    ContainsGroupError,
    MetadataError,
    NodeNameError,
    ReadOnlyError,
    RemoteError,
    UnfinishedError,
    shown,
)
from zellige.grid.grid import ChunkGrid
from zellige.metadata import ArrayV3Metadata
from zellige.metadata.groups import (
    ARRAY_V2,
    ATTRIBUTES_V2,
    CONSOLIDATED_V2,
    GROUP_V2,
    Documents,
    GroupMetadata,
)
from zellige.metadata.json import as_attributes, copied, new_attributes, plain, read_attributes, read_json, write_json
from zellige.metadata.v3 import DOCUMENT
from zellige.stores import Store, StorePath
from zellige.stores.abilities import Folders
from zellige.stores.base import ChangedError, Tag, is_key, retried
from zellige.stores.threads import gather, is_busy
from zellige.types import JSON, Shape

if TYPE_CHECKING:
    from zellige.metadata.v2 import ArrayV2Metadata
    from zellige.nodes.consolidated import Consolidated
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

_MOST_BYTES = 255  # of a name, in the file systems that most stores end up in
_LONGEST_PATH = 900  # bytes; the rest of a key of 1,024 is for chunks


def nothing(*_: object) -> None:
    """Do nothing: the default of callbacks."""


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


def prefix(path: str) -> str:
    """Return how the keys below a node begin."""
    return path and path + "/"


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


def levels(paths: Iterable[str]) -> list[list[str]]:
    """Return paths with those of the same depth together, sorted, from the root downwards.

    >>> levels(["a/b", "", "c", "a"])
    [[''], ['a', 'c'], ['a/b']]
    """
    return [list(level) for _, level in groupby(sorted(sorted(paths), key=depth), key=depth)]


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
                f"{shown(name)} in path {shown(path)} cannot name a node: a name is not empty, is not made of dots "
                f"only, does not begin with {OWN!r}, is not {DOCUMENT!r}, and is text without NUL; write paths as "
                "'a/b'",
                name=name,
            )
        if len(name.encode()) > _MOST_BYTES:
            raise NodeNameError(
                f"{shown(name)} cannot name a node: it has {len(name)} characters, and file systems take names of "
                f"{_MOST_BYTES} bytes; use a shorter one",
                name=name,
            )
    if len(path.encode()) > _LONGEST_PATH:
        raise NodeNameError(
            f"path {shown(path)} has {len(path)} characters, and object stores take keys of 1,024 bytes; use a shorter "
            "one",
            name=path,
        )


def _is_text(name: str) -> bool:
    """Return whether a name can be written as UTF-8, and is one that stores take."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return is_key(name) is not None


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
    read = read or reader(store, path, zarr_format, first=first, consolidated=consolidated)
    groups = [CONSOLIDATED_V2, GROUP_V2] if consolidated else [GROUP_V2]
    in_v2 = [*groups, ARRAY_V2] if expect == "group" else [ARRAY_V2, *groups]
    for name in [*in_v2, DOCUMENT] if first == 2 else [DOCUMENT, *in_v2]:
        asked = zarr_format in (None, 3 if name == DOCUMENT else 2)
        if asked and (raw := read(name)) is not None:
            found = {name: parse_document(store, path, name, raw)}
            # Consolidated metadata holds the group's own documents, too.
            alone = name in (DOCUMENT, CONSOLIDATED_V2)
            if not alone and (raw := read(ATTRIBUTES_V2)) is not None:
                found[ATTRIBUTES_V2] = parse_document(store, path, ATTRIBUTES_V2, raw)
            return found
    return None


def parse_document(store: Store, path: str, name: str, raw: bytes) -> dict[str, JSON]:
    """Parse one document of a node; an error says of which."""
    try:
        return read_attributes(raw) if name == ATTRIBUTES_V2 else read_json(raw)
    except MetadataError as error:
        raise MetadataError(f"{name} of '/{path}' in {store!r}: {error}", field=error.field) from error


def reader(
    store: Store, path: str, zarr_format: int | None = None, *, first: int | None = None, consolidated: bool = False
) -> Read:
    """Return a function that reads documents of a node by name.

    Where requests are waited for, all documents that may be there are requested at the same time, but for those of the
    format that is not `first`, if that is given. What goes wrong with one is raised only if that one is needed: without
    the right to list, some stores refuse what is not there.
    """
    if store.traits.concurrency is None or zarr_format == 3 or is_busy():
        return partial(read_document, store, path)
    in_v2 = [ARRAY_V2, GROUP_V2, ATTRIBUTES_V2] + [CONSOLIDATED_V2] * consolidated
    batches = [[DOCUMENT], in_v2] if first or zarr_format == 2 else [[DOCUMENT, *in_v2]]
    found: dict[str, bytes | Exception | None] = {}

    def look(name: str) -> bytes | Exception | None:
        try:
            return read_document(store, path, name)
        except Exception as error:  # noqa: BLE001  (raised when the document is needed)
            return error

    def read(name: str) -> bytes | None:
        if name not in found:
            names = next(batch for batch in batches if name in batch)
            found.update(zip(names, gather(look, names, store), strict=True))
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
        from zellige.metadata.v2 import ArrayV2Metadata  # needed only for such arrays

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


def keys_at(store: Store, path: str) -> Iterator[str]:
    """Yield the keys at and below a node, relative to it."""
    cut = len(prefix(path))
    return (key[cut:] for key in store.list(prefix(path)))


def children(store: Store, path: str) -> list[str]:
    """Return the paths directly below a group that may hold nodes; one listing."""
    return _listed(store, path)[0]


def _listed(store: Store, path: str) -> tuple[list[str], bool]:
    """Return the paths directly below a group that may hold nodes, and whether several of them are being changed."""
    keys, folders = store.list_dir(prefix(path))
    names = [relative(folder, path).rstrip("/") for folder in folders]
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
            from zellige.nodes import record  # needed only during a change of several arrays

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
    from zellige.nodes import remove  # needed only if nothing was found

    with suppress(RemoteError):  # without access, the message says no more
        found = remove.read_mark(store, path)
        if found is not None and found.work is not None:
            return f": {remove.words(found.work)}"
    return ""


# -- storing --------------------------------------------------------------------------------------


def put_new(store: Store, path: str, metadata: NodeMetadata) -> Documents:
    """Store the documents of a new node, whose place was checked; raises if another process was first."""
    documents = metadata.to_documents()
    if not put_documents(store, path, documents):
        raise there(store, path) or ConflictError(f"'/{path}' in {store!r} was created and removed meanwhile")
    return documents


def put_documents(store: Store, path: str, documents: Documents) -> bool:
    """Store the documents of a new node; False if another process was first."""
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
    follow: Callable[[T], object] = nothing,
    stored: Stored | None = None,
) -> T:
    """Read documents of a node, change them and write them back, so that no other change is lost.

    The first name is the document that must be there; the others may be missing. What `change` gives beside the
    documents is returned; `follow` gets it first, in the order of the writes. `stored` is what was read before: it is
    read again only if it has changed since.
    """
    keys = [join(path, name) for name in names]
    known = [] if stored is None else [stored]

    def attempt() -> T:
        with store.lock(keys[0]):
            before = known.pop() if known else read_stored(store, path, names)
            after, result = change(before.documents)
            _replace(store, path, names, before, after)
            follow(result)
            return result

    return retried(store, keys, attempt)


def _replace(store: Store, path: str, names: Sequence[str], before: Stored, after: Documents) -> None:
    """Write the documents that differ; raise `ChangedError` if one of them is not what was read any more."""
    old, tags = before
    changed = {
        name: _dumped(store, path, name, after.get(name, {}), old.get(name))
        for name in names
        if after.get(name, {}) != old.get(name, {})
    }
    for name, raw in changed.items():
        key = join(path, name)
        if not (store.replace(key, raw, tags[name]) if name in tags else store.create(key, raw)):
            raise ChangedError


def copy_order(keys: Iterable[str], *, transactional: bool = False) -> list[list[str]]:
    """Return keys in the order in which they are copied, so that what is cut short never looks like a node.

    All chunks first; then the documents from the depth upwards, and of each depth those that make nodes last. A
    transaction is never seen cut short, and icechunk takes no chunk before its array: there it is the reverse.

    >>> copy_order(["zarr.json", "a/zarr.json", "a/c/0", "b/.zarray", "b/.zattrs", "b/0"])
    [['a/c/0', 'b/0'], ['b/.zattrs'], ['a/zarr.json', 'b/.zarray'], ['zarr.json']]
    """

    def order(key: str) -> tuple[bool, int, bool]:
        name = key.rpartition("/")[2]
        is_main = name in (DOCUMENT, ARRAY_V2, GROUP_V2)
        is_document = is_main or name in (ATTRIBUTES_V2, CONSOLIDATED_V2)
        return (True, -key.count("/"), is_main) if is_document else (False, 0, False)

    batches = [list(batch) for _, batch in groupby(sorted(keys, key=order), key=order)]
    return batches[::-1] if transactional else batches


# -- handles --------------------------------------------------------------------------------------


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
        """Change several attributes in one write.

        Parameters
        ----------
        values
            The new attributes, as a mapping or as pairs; others stay.
        named
            More of them, as keyword arguments.
        """
        new = plain(dict(values, **named))
        self._node._change_attributes(lambda attributes: attributes.update(new))

    def put(self, values: Mapping[str, Any]) -> None:
        """Replace all attributes by `values`."""
        new = new_attributes(values)

        def replace(attributes: dict[str, JSON]) -> None:
            attributes.clear()
            attributes.update(new)

        self._node._change_attributes(replace)

    def asdict(self) -> dict[str, JSON]:
        """Return a copy as a plain dict."""
        return dict(copied(self._node.metadata.attributes))

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
        _holder: Consolidated | None

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
        """Change several attributes in one write: `new_attributes`; others stay."""
        self.attrs.update(new_attributes)
        return self


def check_writable(handle: NodeHandle) -> None:
    """Raise `ReadOnlyError`, which names the node, if its store is opened for reading only."""
    if handle.store.read_only:
        try:
            handle.store.check_writable()
        except ReadOnlyError as error:
            raise ReadOnlyError(f"{handle._kind} {handle.name!r} was not changed: {error}") from error


# -- what the metadata of an array comes to -------------------------------------------------------


_MOST, _LONGEST = 1024, 16 << 10  # blueprints that are remembered, and bytes of the metadata of each
_known: dict[bytes, Blueprint] = {}
"""Blueprints by the bytes of their metadata, since opening an array again is mostly parsing."""


class Blueprint(NamedTuple):
    """An array without its place and its settings; shared by handles, so nothing here ever changes."""

    metadata: ArrayMetadata
    grid: ChunkGrid
    chain: CodecChain
    inner: Shape | None
    """The shape of the inner chunks of shards."""
    uneven: Uneven | None
    """Where inner chunks do not divide the shards."""

    @classmethod
    def of(cls, metadata: ArrayMetadata) -> Blueprint:
        """Check what the metadata says, and bring it together."""
        grid = ChunkGrid.from_metadata(metadata)
        shape = tuple(next(iter(dim.unique_edge_lengths)) for dim in grid.dimensions)
        chain = CodecChain.from_json(metadata.codecs, metadata.data_type, metadata.fill_value, shape)
        shard = chain.shard(shape)
        if shard is None:
            return cls(metadata, grid, chain, None, None)
        return cls(metadata, grid, chain, shard.chunk_shape, uneven(chain, grid.dimensions))


def remember(raw: bytes, blueprint: Blueprint) -> None:
    """Keep what the bytes of a document, or its fingerprint, came to."""
    if len(raw) <= _LONGEST:
        if len(_known) >= _MOST:
            _known.clear()
        _known[raw] = _copied(blueprint)


def remembered(raw: bytes) -> Blueprint | None:
    """Return what the bytes of a document came to before; its attributes can be changed in place."""
    found = _known.get(raw)
    return None if found is None else _copied(found)


def blueprint_of(documents: Documents) -> Blueprint:
    """Return what parsed documents come to; those that differ in nothing but the attributes are checked once."""
    key = _fingerprint(documents)
    found = None if key is None else _known.get(key)
    if found is not None:
        attributes = as_attributes(documents[DOCUMENT].get("attributes"))
        return found._replace(metadata=found.metadata.with_attributes(attributes))
    metadata: Any = parse(documents)
    blueprint = Blueprint.of(metadata)
    if key is not None:
        remember(key, blueprint._replace(metadata=metadata.with_attributes({})))
    return blueprint


def _fingerprint(documents: Documents) -> bytes | None:
    """Return the bytes of a document without its attributes; None for Zarr format 2, and for what is no JSON."""
    if documents.keys() != {DOCUMENT} or type(documents[DOCUMENT]) is not dict:  # another kind has a key twice
        return None
    rest = {key: value for key, value in documents[DOCUMENT].items() if key != "attributes"}
    try:
        return b"\0" + marshal.dumps(rest, 2)  # later versions write equal values in more than one way
    except ValueError:
        return None


def _copied(blueprint: Blueprint) -> Blueprint:
    """Return the same with attributes of its own."""
    metadata = blueprint.metadata
    if not metadata.attributes:
        return blueprint
    return blueprint._replace(metadata=metadata.with_attributes(copied(metadata.attributes)))
