"""From what users pass as `store` to a store and a path in it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Hashable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from zellige.errors import as_mapping
from zellige.stores.base import Store, check_key
from zellige.stores.local import LocalStore
from zellige.stores.memory import MemoryStore
from zellige.types import Buffer


class StorePath:
    """A store and a path in it, without outer slashes; the root's is empty. It is immutable.

    Parameters
    ----------
    store
        The store.
    path
        A key, or how keys begin, without the last `/`.

    >>> place = StorePath(MemoryStore(), "a") / "b"
    >>> place.path, place.name, place.parent.path
    ('a/b', 'b', 'a')
    >>> place.set(b"value")
    >>> place.exists(), place.get(), place.parent.is_empty()
    (True, b'value', False)
    """

    __slots__ = ("_store", "_path")

    def __init__(self, store: Store, path: str = "") -> None:
        parts = [part for part in path.replace("\\", "/").split("/") if part]
        self._store = store
        self._path = check_key("/".join(parts)) if parts else ""

    @property
    def store(self) -> Store:
        """The store."""
        return self._store

    @property
    def path(self) -> str:
        """A key, or how keys begin."""
        return self._path

    @property
    def read_only(self) -> bool:
        """Whether the store refuses to write."""
        return self._store.read_only

    @property
    def name(self) -> str:
        """The last part of the path; the root has none."""
        return self._path.rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        """The place above; the root's is the root."""
        return StorePath(self._store, self._path.rpartition("/")[0])

    def __truediv__(self, other: str) -> StorePath:
        return StorePath(self._store, self._path + "/" + other)

    # -- the value here ---------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether there is a value here; what only has keys below it has none."""
        try:
            return bool(self._path) and self._store.exists(self._path)
        except IsADirectoryError:
            return False

    def get(self) -> bytes | None:
        """Return the value, or None if there is none."""
        try:
            return self._store.get(self._path) if self._path else None
        except IsADirectoryError:
            return None

    def set(self, value: Buffer) -> None:
        """Store a `value`, all or nothing."""
        self._store.put(self._path, value)

    def delete(self) -> None:
        """Remove the value; nothing happens if there is none."""
        self._store.delete([self._path])

    def is_empty(self) -> bool:
        """Whether there is no key below."""
        return not any(True for _ in self._store.list(self._path and f"{self._path}/"))

    def is_within(self, other: StorePath) -> bool:
        """Return whether this is the `other` place or lies below it, also in a store with another root."""
        return place(self._store, self._path).within(place(other._store, other._path))

    # -- as a value -------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StorePath):
            return NotImplemented
        return self._path == other._path and self._store == other._store

    def __hash__(self) -> int:
        return hash((self._store, self._path))

    def __str__(self) -> str:
        root = _root(self._store)
        return f"{root.rstrip('/')}/{self._path}" if self._path else root

    def __repr__(self) -> str:
        return f"StorePath({self._store!r}, {self._path!r})"


class Place(NamedTuple):
    """Where a path is, so that paths of stores with different roots can be compared."""

    owner: Hashable
    path: str

    def within(self, other: Place) -> bool:
        """Whether this is the other place, or lies below it."""
        return self.owner == other.owner and self.path.startswith(other.path)


def place(store: Store, path: str) -> Place:
    """Return where a path is, by the name that its store has for a key there."""
    name: Any = store.name(f"{path}/k" if path else "k")
    if isinstance(name, tuple):
        return Place(name[0], name[1].removesuffix("k"))
    return Place("", os.path.realpath(name.removesuffix("k")).rstrip("/") + "/")


def _root(store: Store) -> str:
    """Return the root of a store for people."""
    if isinstance(store, LocalStore):
        return store.root
    if isinstance(store, MemoryStore):
        return f"memory://{store.identity[1]}"
    url: object = getattr(store, "url", None)  # of a store on a server
    return url if isinstance(url, str) else repr(store)


StoreLike: TypeAlias = Store | StorePath | str | os.PathLike[str] | MutableMapping[str, Any] | Any | None
"""What every `store` argument accepts; Any stands for the stores of obstore, fsspec and zarr-python."""

_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://").match

_REMOTE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https")
"""The schemes that `Client` knows, which is not imported for local paths."""
_squeezed = re.compile(rf"({'|'.join(_REMOTE)}|memory|file):/[^/]", re.IGNORECASE).match
_named: dict[str, MemoryStore] = {}
"""The stores of `memory://name`."""


def locate(
    store: StoreLike,
    path: str = "",
    *,
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Store, str]:
    """Return the store of a `store` argument, and the path in it.

    Parameters
    ----------
    store
        What `resolve` takes, or a `StorePath`.
    path
        The path in the store, or below the `StorePath`.
    read_only, storage_options
        As for `resolve`.

    """
    if isinstance(store, StorePath):
        _no_options(storage_options, "a place in a store")
        return resolve(store.store, read_only=read_only), "/".join(part for part in (store.path, path) if part)
    if isinstance(store, str) and store[:9].lower() == "memory://":
        # Below the name of the store there may be a path.
        name, _, inner = store[9:].strip("/").partition("/")
        found = resolve(f"memory://{name}", read_only=read_only, storage_options=storage_options)
        return found, "/".join(part for part in (*inner.split("/"), path) if part)
    return resolve(store, read_only=read_only, storage_options=storage_options), path


def finishing(given: object, store: Store) -> AbstractContextManager[object]:
    """Close a store at the end of the block if it was opened for this job, by a path or a URL.

    Closing completes a zip file; after an exception the file stays as it was.

    Parameters
    ----------
    given
        The `store` argument of the job.
    store
        The store that it stands for.

    """
    return store if isinstance(given, str | os.PathLike) else nullcontext()


@contextmanager
def opened(
    store: StoreLike, path: str = "", *, storage_options: Mapping[str, Any] | None = None
) -> Iterator[tuple[Store, str]]:
    """Open a place for one whole job, as a store and the path in it; see `finishing`. Parameters: see `locate`."""
    found, place = locate(store, path, storage_options=storage_options)
    with finishing(store, found):
        yield found, place


def reopened(given: object, store: Store, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Return the store for handles that outlast a job: an archive that the job closed is opened again, to read.

    Parameters
    ----------
    given, store
        As for `finishing`.
    storage_options
        As for `resolve`.

    """
    if isinstance(given, str | os.PathLike) and store.traits.transactional:
        return resolve(given, read_only=True, storage_options=storage_options)
    return store


def resolve(store: StoreLike, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Return the store of a `store` argument.

    | given | store |
    |---|---|
    | a store, a `StorePath` | itself |
    | None, a dict or another mutable mapping | in memory, a mapping in place |
    | a str or a path, `file://` | a directory; if it ends in `.zip` and is none, a zip file |
    | `memory://name` | in memory; of one name, the same in the whole process |
    | `s3:// s3a:// gs:// gcs:// az:// abfs://` | an object store |
    | `http:// https://` | a web server, read-only |
    | `fsspec+scheme://`, a chain `a::b`, another scheme | what fsspec opens |
    | a store of obstore, a filesystem or mapper of fsspec, a store of zarr-python | the same values |

    Parameters
    ----------
    store
        What is given.
    read_only
        Whether the result refuses to write.
    storage_options
        How to reach a server.

    """
    if storage_options is not None:
        as_mapping(storage_options, "storage_options")
    if isinstance(store, str):
        return _from_text(store, read_only, storage_options)
    if isinstance(store, os.PathLike):
        return _from_path(os.fspath(store), read_only, storage_options)
    _no_options(storage_options, f"a {type(store).__name__}")
    if isinstance(store, StorePath):
        raise TypeError(f"store is the path {store.path!r} within a store; give its .store")
    found = store if isinstance(store, Store) else _from_foreign(store)
    if found is not None:
        return found.as_read_only() if read_only and not found.read_only else found
    if store is None or isinstance(store, MutableMapping):
        return MemoryStore(store, read_only=read_only)
    raise TypeError(
        f"store is a {type(store).__name__}; use a Store, a str with a path or a URL, a path object of a local "
        "directory, a mutable mapping such as a dict, a store of obstore, fsspec or zarr-python, or None for a new "
        "store in memory"
    )


# -- texts ----------------------------------------------------------------------------------------


def _from_text(text: str, read_only: bool, options: Mapping[str, Any] | None) -> Store:
    if not text:
        raise ValueError("store is an empty string; use '.' for the current directory or None for memory")
    found = _scheme(text)
    scheme = found[1].lower() if found else ""
    if "::" not in text:
        if scheme in ("", "file"):
            return _from_path(_path_of_url(text) if scheme else os.path.expanduser(text), read_only, options)
        if scheme == "memory":
            _no_options(options, "a store in memory")
            return _from_name(text, read_only)
        if scheme in _REMOTE:
            return _remote(text, scheme, read_only, options)
    from zellige.stores.fsspec import FsspecStore

    return FsspecStore.from_url(text.removeprefix("fsspec+"), options, read_only=read_only)


def _from_path(path: Any, read_only: bool, options: Mapping[str, Any] | None) -> Store:
    if isinstance(path, str):
        if _scheme(path):  # a path object of another library may be a URL
            return _from_text(path, read_only, options)
        if _squeezed(path):
            from zellige.stores.client import redacted

            url = redacted(path.replace(":/", "://", 1))
            raise ValueError(f"store is a path made of the URL {url!r}, which has lost a slash; give the URL as a str")
        _no_options(options, "a local path")
        if path.lower().endswith(".zip") and not os.path.isdir(path):
            return _zip(path, "r" if read_only else "a")
    return LocalStore(path, read_only=read_only)  # which refuses bytes


def _path_of_url(url: str) -> str:
    from urllib.parse import unquote_to_bytes

    host, slash, path = url[7:].partition("/")
    if host.lower() not in ("", "localhost") or not slash:
        raise ValueError(
            f"store {url!r}: a file URL is 'file:///' and an absolute path; its host is {host!r}, but must be "
            "empty or 'localhost'"
        )
    return os.fsdecode(unquote_to_bytes(slash + path))


def _from_name(url: str, read_only: bool) -> Store:
    name, _, inner = url[9:].strip("/").partition("/")
    if not name or inner:
        what = f"has the path {inner!r} in it; give that as path=" if inner else "has no name"
        raise ValueError(f"store {url!r} {what}; write memory://name, or None for a new store in memory")
    store = _named.setdefault(name, MemoryStore())
    return store.as_read_only() if read_only else store


def _remote(url: str, scheme: str, read_only: bool, options: Mapping[str, Any] | None) -> Store:
    given = dict(options or {})
    own = {name: given.pop(name) for name in ("concurrency", "gap") if name in given}
    base, _, name = url.rpartition("/")
    is_zip = name.lower().endswith(".zip") and not base.endswith("/")
    place = base if is_zip else url
    if scheme in ("http", "https"):
        from zellige.stores.object import HTTPStore

        store: Store = HTTPStore(place, given, **own)
    else:
        from zellige.stores.object import ObjectStore

        store = ObjectStore.from_url(place, given, read_only=read_only or is_zip, **own)
    return _zip((store, name), "r") if is_zip else store


def _zip(place: Any, mode: Any) -> Store:
    from zellige.stores.zip import ZipStore

    return ZipStore(place, mode)


def _no_options(options: Mapping[str, Any] | None, what: str) -> None:
    if options:
        names = ", ".join(map(repr, as_mapping(options, "storage_options")))  # the values may be secret
        raise ValueError(f"storage_options ({names}) are for servers, and store is {what}; leave them out")


# -- other libraries ------------------------------------------------------------------------------


_FOREIGN = (
    ("obstore.store", "HTTPStore", "object", "HTTPStore"),
    ("obstore.store", "S3Store GCSStore AzureStore MemoryStore", "object", "ObjectStore"),
    ("fsspec.spec", "AbstractFileSystem", "fsspec", "FsspecStore"),
    ("fsspec.mapping", "FSMap", "fsspec", "FsspecStore.from_mapper"),
    ("zarr.abc.store", "Store", "zarr_python", "ZarrPythonStore"),
)
"""Classes of other libraries, and what makes a store of them here."""


def _from_foreign(store: Any) -> Store | None:
    """Return a store with the same values; None for an object of no library that is known here.

    Local stores of other libraries become ours, which lock, and have conditional writes.
    """
    if _is_from("obstore.store", "LocalStore", store):
        return LocalStore(store.prefix or "/")
    if _is_from("zarr.storage", "LocalStore", store):
        return LocalStore(store.root, read_only=store.read_only)
    if _is_from("zarr.storage", "FsspecStore", store):  # dask.array.from_zarr opens paths so
        from zellige.stores.fsspec import local_path

        if (path := local_path(store.fs, store.path)) is not None:
            return LocalStore(path, read_only=store.read_only)
    for module, names, home, name in _FOREIGN:
        if _is_from(module, names, store):
            found: Store = attrgetter(name)(import_module(f"zellige.stores.{home}"))(store)
            return found
    return None


def _is_from(module: str, names: str, thing: object) -> bool:
    """Whether it is of one of these classes of a module, which is imported if there is such an object."""
    library = sys.modules.get(module)
    return library is not None and any(isinstance(thing, getattr(library, name, ())) for name in names.split())
