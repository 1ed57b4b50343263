"""`as_store`: a store of zarr-python over any place that zellige opens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from zellige import storage

T = TypeVar("T")


def as_store(
    store: Any, *, path: str = "", read_only: bool = False, storage_options: Mapping[str, Any] | None = None
) -> ZelligeStore:
    """Return a store of zarr-python over any place that zellige opens: zip files, web servers, caches, S3 and others.

    Parameters
    ----------
    store
        A store of zellige, a path, a URL: what `zellige.open` takes.
    path
        The path within it that becomes the root.
    read_only
        Whether to refuse to write.
    storage_options
        How to reach a server.

    >>> import numpy as np, zarr, zellige.zarr
    >>> store = zellige.zarr.as_store("memory://doctest-as-store")
    >>> zarr.save_array(store, np.array([1, 2, 3]))
    >>> zarr.open_array(store)[:].tolist()
    [1, 2, 3]
    """
    found = storage.open_store(store, path=path, read_only=read_only, storage_options=storage_options)
    inner = storage.PrefixStore(found.store, found.path) if found.path else found.store
    return ZelligeStore(inner, read_only=read_only)


class ZelligeStore(Store):
    """A store of zarr-python over one of zellige; made by `as_store`.

    Closing it closes the store of zellige: that writes a zip file.

    Parameters
    ----------
    store
        The store of zellige.
    read_only
        Whether to refuse to write.
    """

    supports_writes = True
    supports_deletes = True
    supports_partial_writes = False
    supports_listing = True

    def __init__(self, store: storage.Store, *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only or store.traits.read_only)
        self.zellige_store = store
        """The store of zellige."""

    @classmethod
    async def open(cls, store: Any, *, read_only: bool = False) -> Self:
        """Return an open store. Parameters: as for the class."""
        found = cls(store, read_only=read_only)
        await found._open()
        return found

    def with_read_only(self, read_only: bool = False) -> Self:
        """Return the same store in another mode.

        Parameters
        ----------
        read_only
            Whether to refuse to write.
        """
        return type(self)(self.zellige_store, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ZelligeStore):
            return NotImplemented
        return self.zellige_store == other.zellige_store and self.read_only == other.read_only

    def __hash__(self) -> int:
        return hash(self.zellige_store.identity)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.zellige_store!r})"

    def __str__(self) -> str:
        return str(self.zellige_store)

    def close(self) -> None:
        """Close the store of zellige."""
        close: Callable[[], None] | None = getattr(self.zellige_store, "close", None)
        if close is not None:
            close()
        super().close()

    # -- without an event loop ---------------------------------------------------------------------

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Buffer | None:
        """Return a value or a range of it; None if there is no such key. Parameters: see `zarr.abc.store.Store.get`."""
        self._is_open = True
        found = self.zellige_store.read(key, None if byte_range is None else self._spans(key, byte_range))
        if found is None:
            return None
        made: Buffer = (prototype or default_buffer_prototype()).buffer.from_bytes(found.whole)
        return made

    def _spans(self, key: str, wanted: Any) -> list[tuple[int, int | None]]:
        """Return what zarr-python asks for as a range of zellige: its ranges may reach beyond the end."""
        size = self.zellige_store.size(key) or 0
        if isinstance(wanted, RangeByteRequest):
            start = min(wanted.start, size)
            return [(start, max(min(wanted.end, size) - start, 0))]
        if isinstance(wanted, OffsetByteRequest):
            return [(min(wanted.offset, size), None)]
        if isinstance(wanted, SuffixByteRequest):
            return [(size - min(wanted.suffix, size), None)]
        raise ValueError(f"Unexpected byte_range, got {wanted}.")

    def set_sync(self, key: str, value: Buffer) -> None:
        """Store a value, all or nothing. Parameters: see `zarr.abc.store.Store.set`."""
        self._is_open = True
        self._check_value(value)
        self.zellige_store.put(key, value.to_bytes())

    def delete_sync(self, key: str) -> None:
        """Remove a key, if it is there. Parameters: see `zarr.abc.store.Store.delete`."""
        self._is_open = True
        self._check_writable()
        self.zellige_store.delete([key])

    def _check_value(self, value: object) -> None:
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(
                f"{type(self).__name__}.set(): `value` must be a Buffer instance. Got an instance of {type(value)}."
            )

    # -- reading -----------------------------------------------------------------------------------

    async def get(self, key: str, prototype: BufferPrototype | None = None, byte_range: Any = None) -> Buffer | None:
        """Return a value or a range of it; None if there is no such key. Parameters: see `zarr.abc.store.Store.get`."""
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, Any]]
    ) -> list[Buffer | None]:
        """Return several values or ranges. Parameters: see `zarr.abc.store.Store.get_partial_values`."""
        return await asyncio.gather(*[self.get(key, prototype, wanted) for key, wanted in key_ranges])

    async def exists(self, key: str) -> bool:
        """Return whether there is such a key. Parameters: see `zarr.abc.store.Store.exists`."""
        return await asyncio.to_thread(self.zellige_store.exists, key)

    async def getsize(self, key: str) -> int:
        """Return the length of a value. Parameters: see `zarr.abc.store.Store.getsize`."""
        size = await asyncio.to_thread(self.zellige_store.size, key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    # -- writing -----------------------------------------------------------------------------------

    async def set(self, key: str, value: Buffer) -> None:
        """Store a value, all or nothing. Parameters: see `zarr.abc.store.Store.set`."""
        await asyncio.to_thread(self.set_sync, key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Store a value for a key that is not there yet. Parameters: see `zarr.abc.store.Store.set_if_not_exists`."""
        self._check_value(value)
        await asyncio.to_thread(self.zellige_store.create, key, value.to_bytes())

    async def delete(self, key: str) -> None:
        """Remove a key, if it is there. Parameters: see `zarr.abc.store.Store.delete`."""
        await asyncio.to_thread(self.delete_sync, key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove all keys below a path. Parameters: see `zarr.abc.store.Store.delete_dir`."""
        self._check_writable()
        await asyncio.to_thread(self.zellige_store.delete_prefix, _folder(prefix))

    async def clear(self) -> None:
        """Remove all keys."""
        await self.delete_dir("")

    # -- listing -----------------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        for key in await asyncio.to_thread(self._keys, ""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that start with a text. Parameters: see `zarr.abc.store.Store.list_prefix`."""
        for key in await asyncio.to_thread(self._keys, prefix):
            yield key

    def _keys(self, prefix: str) -> Sequence[str]:
        folder = prefix[: prefix.rfind("/") + 1]  # zellige lists what is below a path
        return [key for key in self.zellige_store.list(folder) if key.startswith(prefix)]

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below a path. Parameters: see `zarr.abc.store.Store.list_dir`."""
        folder = _folder(prefix)
        keys, prefixes = await asyncio.to_thread(self.zellige_store.list_dir, folder)
        for name in dict.fromkeys([*keys, *prefixes]):
            yield name[len(folder) :].rstrip("/")


def _folder(prefix: str) -> str:
    """Return a path of zarr-python as a prefix of zellige."""
    return prefix and prefix.rstrip("/") + "/"
