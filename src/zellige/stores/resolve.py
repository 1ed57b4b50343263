"""From what users pass as `store` to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeAlias

from zellige.stores.base import Store
from zellige.stores.local import LocalStore
from zellige.stores.memory import MemoryStore
from zellige.stores.path import StorePath

StoreLike: TypeAlias = Store | StorePath | str | os.PathLike[str] | MutableMapping[str, Any] | None
"""What every `store` argument accepts."""

_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://").match


def locate(
    store: StoreLike,
    path: str = "",
    *,
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Store, str]:
    """The store that is meant, and the path in it; a `StorePath` begins below its root."""
    if storage_options:
        raise ValueError(f"storage_options={storage_options!r}: local paths and memory have no options; leave it out")
    if isinstance(store, StorePath):
        return resolve(store.store, read_only=read_only), "/".join(part for part in (store.path, path) if part)
    return resolve(store, read_only=read_only), path


def resolve(store: StoreLike, *, read_only: bool = False) -> Store:
    """The store that is meant.

    A store stays itself; None is a new MemoryStore and a mapping one over that mapping; a str or a path is
    the directory of a LocalStore. A str may begin with `~` or be a `file://` URL. With `read_only` the result
    refuses to write.
    """
    if isinstance(store, StorePath):
        raise TypeError(f"store is the path {store.path!r} within a store; give its .store")
    if isinstance(store, Store):
        return store.as_read_only() if read_only and not store.read_only else store
    if isinstance(store, str):
        return LocalStore(_path_of(store), read_only=read_only)
    if isinstance(store, os.PathLike):
        path = os.fspath(store)
        if isinstance(path, str):
            _refuse_remote(path)  # a path object of another library may be a URL
        return LocalStore(path, read_only=read_only)
    if store is None or isinstance(store, MutableMapping):
        return MemoryStore(store, read_only=read_only)
    raise TypeError(
        f"store is a {type(store).__name__}; use a Store, a str or path object of a local directory, "
        "a mutable mapping such as a dict, or None for a new store in memory"
    )


def _path_of(text: str) -> str:
    if not text:
        raise ValueError("store is an empty string; use '.' for the current directory or None for memory")
    if "::" in text:
        raise ValueError(
            f"store {text!r} is a chain of URLs (scheme {text.split('::', 1)[0]!r}); this version opens local "
            "paths and memory only. A local path with '::' in its name can be passed as a pathlib.Path"
        )
    if text[:7].lower() == "file://":
        return _path_of_url(text)
    _refuse_remote(text)
    return os.path.expanduser(text)


def _refuse_remote(text: str) -> None:
    found = _scheme(text)
    if found:
        raise ValueError(f"store {text!r} has the scheme {found[1]!r}; this version opens local paths and memory only")


def _path_of_url(url: str) -> str:
    from urllib.parse import unquote_to_bytes

    host, slash, path = url[7:].partition("/")
    if host.lower() not in ("", "localhost") or not slash:
        raise ValueError(
            f"store {url!r}: a file URL is 'file:///' and an absolute path; its host is {host!r}, but must be "
            "empty or 'localhost'"
        )
    return os.fsdecode(unquote_to_bytes(slash + path))
