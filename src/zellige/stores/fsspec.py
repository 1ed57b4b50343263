"""Values as files of an fsspec file system: memory, zip, caches, references, SFTP and whatever else it knows.

Needs `pip install 'zellige[fsspec]'`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from zellige.stores.base import Listing, Store, Traits, check_prefix, is_key
from zellige.stores.foreign import CONCURRENCY, ForeignStore
from zellige.stores.threads import gather

T = TypeVar("T")


class FsspecStore(ForeignStore):
    """The files of a file system below a path.

    For a local file system this gives a `LocalStore` instead, whose writes are all or nothing. Elsewhere they are what
    the file system's `pipe_file` is: all or nothing in object stores and in memory, but not in SFTP and the like.
    Listings are never taken from fsspec's cache. Only FileNotFoundError means that a key is missing. Asynchronous file
    systems are used through their blocking methods. Pickles hold the file system's options, and so its credentials.

    Parameters
    ----------
    fs
        A file system of fsspec.
    root
        The path in it.
    read_only
        Whether to refuse to write.

    """

    def __new__(cls, fs: Any = None, root: str = "", *, read_only: bool = False) -> Any:
        """Return the store; a LocalStore for the local file system."""
        local = None if fs is None else local_path(fs, root)
        if local is None:
            return object.__new__(cls)
        from zellige.stores.local import LocalStore

        return LocalStore(local, read_only=read_only)

    def __init__(self, fs: Any, root: str = "", *, read_only: bool = False) -> None:
        self._fs, self._pid = _blocking(fs), os.getpid()
        self._root = str(fs._strip_protocol(root)).rstrip("/")
        self._in_memory = "memory" in _protocols(fs)
        self.traits = Traits(read_only=read_only, concurrency=None if self._in_memory else CONCURRENCY)

    @classmethod
    def from_url(cls, url: str, storage_options: Mapping[str, Any] | None = None, *, read_only: bool = False) -> Store:
        """Return the store at a URL.

        Parameters
        ----------
        url
            A URL of a scheme that fsspec knows, or a chain such as `simplecache::s3://bucket/x`.
        storage_options
            The options of the file system.
        read_only
            Whether to refuse to write.

        """
        from zellige.stores.client import redacted

        try:
            import fsspec.core

            fs, root = fsspec.core.url_to_fs(url, **(storage_options or {}))
        except ImportError as error:
            raise ImportError(
                f"store {redacted(url)!r} is opened by fsspec; run: pip install 'zellige[fsspec]', and what its "
                f"scheme needs: {error}"
            ) from error
        except ValueError as error:
            if not str(error).startswith("Protocol not known"):
                raise
            raise ValueError(
                f"store {redacted(url)!r} has a scheme that is not known ({str(error).lower()}); known are plain "
                "paths, file, memory, s3, s3a, gs, gcs, az, abfs, http, https, and what "
                "fsspec.available_protocols() lists. Check the spelling, or make the scheme "
                "known by fsspec.register_implementation"
            ) from error
        return cls(fs, root, read_only=read_only)

    @classmethod
    def from_mapper(cls, mapper: Any, *, read_only: bool = False) -> Store:
        """Return the store of a mapper.

        Parameters
        ----------
        mapper
            What `fsspec.get_mapper` returned.
        read_only
            Whether to refuse to write.

        """
        return cls(mapper.fs, mapper.root, read_only=read_only)

    @property
    def fs(self) -> Any:
        """The file system; a new one in a forked process, where the threads of the old one do not exist."""
        if self._pid != os.getpid():
            if self._fs.async_impl:
                self._fs = type(self._fs)(*self._fs.storage_args, **self._fs.storage_options)
            self._pid = os.getpid()
        return self._fs

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}" if self._root else key

    # -- reading ----------------------------------------------------------------------------------

    def _read(self, key: str, read: Callable[[Any, str], T]) -> T | None:
        """Return what the file system gives for a key; None if it is missing."""
        try:
            return read(self.fs, self._at(key))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._failed(error, key) from error

    def _whole(self, key: str) -> bytes | None:
        return self._read(key, lambda fs, path: bytes(fs.cat_file(path)))

    def _ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes] | None:
        bounds = [(-length, None) if start < 0 else (start, start + length) for start, length in ranges]

        def read(fs: Any, path: str) -> list[bytes]:
            if len(bounds) > 1 and fs.async_impl and all(start >= 0 for start, _ in bounds):
                starts, ends = zip(*bounds, strict=True)
                return [bytes(b) for b in fs.cat_ranges([path] * len(bounds), starts, ends, on_error="raise")]
            return [bytes(fs.cat_file(path, start=start, end=end)) for start, end in bounds]

        return self._read(key, read)

    def _size(self, key: str) -> int | None:
        def read(fs: Any, path: str) -> int:
            fs.invalidate_cache(fs._parent(path))
            info = fs.info(path)
            if info["type"] == "directory":
                raise FileNotFoundError(path)
            size = info.get("size")
            return len(fs.cat_file(path)) if size is None else int(size)

        return self._read(key, read)

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or one level of them."""
        check_prefix(prefix)
        if recursive:
            return Listing([key for key, _ in self._entries(prefix, lambda fs, path: fs.find(path, detail=True))])
        found = self._entries(prefix, lambda fs, path: {e["name"]: e for e in fs.ls(path, detail=True)})
        keys = [key for key, is_folder in found if not is_folder]
        return Listing(keys, [key + "/" for key, is_folder in found if is_folder])

    def _entries(self, prefix: str, ask: Callable[[Any, str], Mapping[str, Any]]) -> Sequence[tuple[str, bool]]:
        """Return the keys that start with a prefix, and whether each is a folder."""
        path = self._at(prefix).rstrip("/")
        try:
            self.fs.invalidate_cache(path)
            found = ask(self.fs, path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:
            raise self._failed(error, prefix) from error
        base = len(self._root) + 1 if self._root else 0
        keys = [(name.rstrip("/")[base:], info.get("type") == "directory") for name, info in found.items()]
        return [(key, is_folder) for key, is_folder in keys if key.startswith(prefix) and is_key(key)]

    # -- writing ----------------------------------------------------------------------------------

    def _put(self, key: str, value: bytes, **options: Any) -> None:
        fs, path = self.fs, self._at(key)
        try:
            try:
                fs.pipe_file(path, value, **options)
            except FileNotFoundError:  # where folders must be made
                fs.makedirs(fs._parent(path), exist_ok=True)
                fs.pipe_file(path, value, **options)
        except Exception as error:
            raise self._failed(error, key) from error

    def _create(self, key: str, value: bytes) -> bool:
        # Only if the file system has this parameter: some accept any keyword and ignore it.
        options = {"mode": "create"} if "mode" in inspect.signature(self.fs.pipe_file).parameters else {}
        try:
            self._put(key, value, **options)
        except FileExistsError:
            above = [key[:end] for end, letter in enumerate(key) if letter == "/"]
            if self._size(key) is None and any(self._size(name) is not None for name in above):
                raise  # there is a file where a directory is needed
            return False
        return True

    def _delete(self, keys: Sequence[str]) -> None:
        gather(lambda key: self._read(key, lambda fs, path: fs.rm_file(path)), keys, self)

    # -- views ------------------------------------------------------------------------------------

    @property
    def identity(self) -> Hashable:
        """The file system and the root; all file systems in memory are one."""
        return ("fsspec", "memory" if self._in_memory else self._fs, self._root)

    def __repr__(self) -> str:
        # The options of the file system may be secrets, and so may parts of a URL.
        mode = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}(<{type(self._fs).__name__}>, {_public(self._root)!r}{mode})"


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def local_path(fs: Any, root: str) -> str | None:
    """Return the path of the directory if the file system is the local one, also through `DirFileSystem`; else None."""
    if "dir" in _protocols(fs):
        return local_path(fs.fs, f"{fs.path}/{root}" if root else fs.path)
    from fsspec.implementations.local import LocalFileSystem

    plain = getattr(fs, "sync_fs", fs)  # in fsspec's asynchronous wrapper of a file system
    return str(plain._strip_protocol(root)) if isinstance(plain, LocalFileSystem) else None


def _blocking(fs: Any) -> Any:
    """Return the same file system with blocking methods."""
    if getattr(fs, "asynchronous", False):
        return type(fs)(*fs.storage_args, **{**fs.storage_options, "asynchronous": False})
    return fs


def _public(root: str) -> str:
    """Return a root without the password and the signature that a URL may have."""
    if "://" not in root:
        return root
    parts = urlsplit(root)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
