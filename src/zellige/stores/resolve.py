"""From what users pass as `store` to a store."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, TypeAlias

from zellige.errors import as_mapping
from zellige.stores.base import Store
from zellige.stores.local import LocalStore
from zellige.stores.memory import MemoryStore
from zellige.stores.path import StorePath

StoreLike: TypeAlias = Store | StorePath | str | os.PathLike[str] | MutableMapping[str, Any] | Any | None
"""What every `store` argument accepts; Any stands for the stores of obstore, fsspec and zarr-python."""

_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://").match
_squeezed = re.compile(r"(s3a?|gcs|gs|az|abfss?|https?|memory|file):/[^/]", re.IGNORECASE).match

_REMOTE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https")
_named: dict[str, MemoryStore] = {}
"""The stores of `memory://name`, for as long as the process runs."""


def locate(
    store: StoreLike,
    path: str = "",
    *,
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Store, str]:
    """Return the store that is meant, and the path in it; a `StorePath` begins below its root."""
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

    Only then is all there that was written to a zip file; after an exception the file stays as it was.
    """
    return store if isinstance(given, str | os.PathLike) else nullcontext()


@contextmanager
def opened(
    store: StoreLike, path: str = "", *, storage_options: Mapping[str, Any] | None = None
) -> Iterator[tuple[Store, str]]:
    """Open a place for one whole job, as a store and the path in it; see `finishing`."""
    found, place = locate(store, path, storage_options=storage_options)
    with finishing(store, found):
        yield found, place


def reopened(given: object, store: Store, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Return the store for handles that outlast a job: an archive that was closed with it is opened again, to read."""
    if isinstance(given, str | os.PathLike) and store.traits.transactional:
        return resolve(given, read_only=True, storage_options=storage_options)
    return store


def resolve(store: StoreLike, *, read_only: bool = False, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Return the store that is meant.

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

    With `read_only` the result refuses to write. `storage_options` say how to reach a server.
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
    if isinstance(store, Store):
        return store.as_read_only() if read_only and not store.read_only else store
    foreign = _from_foreign(store, read_only)
    if foreign is not None:
        return foreign
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
    from zellige.stores.foreign.fsspec import FsspecStore

    return FsspecStore.from_url(text.removeprefix("fsspec+"), options, read_only=read_only)


def _from_path(path: str | bytes, read_only: bool, options: Mapping[str, Any] | None) -> Store:
    if isinstance(path, str):
        if _scheme(path):  # a path object of another library may be a URL
            return _from_text(path, read_only, options)
        if _squeezed(path):
            raise ValueError(
                f"store {path!r} is a path made of a URL, which has lost a slash; give the URL as a str instead"
            )
        _no_options(options, "a local path")
        if path.lower().endswith(".zip") and not os.path.isdir(path):
            return _zip(path, "r" if read_only else "a")
    return LocalStore(path, read_only=read_only)  # type: ignore[arg-type]  # which refuses bytes


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
        from zellige.stores.http import HTTPStore

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


def _from_foreign(store: Any, read_only: bool) -> Store | None:
    """Return the same values through our store; None if it is of no library that is known here.

    An object of a library can only be there if the library is imported, so none is imported for this. Their local
    stores become ours, which lock, and replace on condition.
    """

    def opened_by(module: str, name: str) -> Any:
        return getattr(import_module(f"zellige.stores.{module}"), name)

    if _is_from("obstore.store", store, "LocalStore"):
        return LocalStore(store.prefix or "/", read_only=read_only)
    if _is_from("obstore.store", store, "HTTPStore"):
        found: Store = opened_by("http", "HTTPStore")(store)
    elif _is_from("obstore.store", store, "S3Store", "GCSStore", "AzureStore", "MemoryStore"):
        found = opened_by("object", "ObjectStore")(store)
    elif _is_from("fsspec.spec", store, "AbstractFileSystem"):
        found = opened_by("foreign.fsspec", "FsspecStore")(store)
    elif _is_from("fsspec.mapping", store, "FSMap"):
        found = opened_by("foreign.fsspec", "FsspecStore").from_mapper(store)
    elif _is_from("zarr.storage", store, "LocalStore"):
        found = LocalStore(store.root, read_only=store.read_only)
    elif _is_from("zarr.storage", store, "FsspecStore") and (local := _local_path(store)) is not None:
        found = LocalStore(local, read_only=store.read_only)  # dask.array.from_zarr opens paths so
    elif _is_from("zarr.abc.store", store, "Store"):
        found = opened_by("foreign.zarr_python", "ZarrPythonStore")(store)
    else:
        return None
    return found.as_read_only() if read_only and not found.read_only else found


def _local_path(store: Any) -> str | None:
    """Return the directory of zarr-python's store of files of fsspec, if these are local ones."""
    from zellige.stores.foreign.fsspec import local_path

    return local_path(store.fs, store.path)


def _is_from(module: str, thing: object, *names: str) -> bool:
    """Whether it is of one of these classes of a module, if that is imported."""
    library = sys.modules.get(module)
    return library is not None and any(isinstance(thing, getattr(library, name, ())) for name in names)
