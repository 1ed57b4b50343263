"""Values of the asynchronous stores of zarr-python, such as icechunk sessions.

One thread runs the event loop of all such stores. Threads that wait for it keep many requests in flight.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Self, TypeVar

from zellige.stores.abilities import Forks
from zellige.stores.base import DOCUMENTS, Listing, Traits, check_prefix, is_key
from zellige.stores.foreign import CONCURRENCY, ForeignStore
from zellige.stores.locks import KeyLock
from zellige.types import Buffer, not_finite

T = TypeVar("T")


class ZarrPythonStore(ForeignStore, Forks):
    """The values of a store of zarr-python 3, such as `session.store` of icechunk.

    Pickling pickles that store: a writable session of icechunk needs `session.fork()` first. The store is used from an
    event loop of ours; one that is bound to another loop already cannot be.

    **icechunk** sessions are transactions: `traits.transactional` is true, others see nothing before `session.commit`,
    and conflicts are raised there. icechunk takes Zarr 3 only, and refuses keys that are neither metadata nor chunks of
    arrays that exist. Its version 2 takes rectilinear grids, whose sizes are written as runs of edges `[size, count]`,
    which mean the same; its version 1 takes none.

    Parameters
    ----------
    store
        A `zarr.abc.store.Store`.
    read_only
        Whether to refuse to write; a store that is read-only is so here, too.

    """

    def __init__(self, store: Any, *, read_only: bool = False) -> None:
        self._store = store
        icechunk: Any = sys.modules.get("icechunk")  # whoever has such a store has imported it
        self.measured = session = icechunk is not None and isinstance(store, icechunk.IcechunkStore)
        kind = type(store)
        self._waits = (kind.__module__.partition(".")[0], kind.__name__) != ("zarr", "MemoryStore")
        concurrency = CONCURRENCY if self._waits else None
        self.traits = Traits(read_only=read_only or store.read_only, concurrency=concurrency, transactional=session)
        self._errors: tuple[type[Exception], ...] = (icechunk.IcechunkError,) if session else ()
        self._unlisted: tuple[type[Exception], ...] = (*self._errors, FileNotFoundError, NotADirectoryError)
        self._run("", store._ensure_open())  # most stores do this themselves

    @property
    def zarr_store(self) -> Any:
        """The store of zarr-python, e.g. to commit: `array.store.zarr_store.session.commit("…")`."""
        return self._store

    def _run(self, key: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return _wait_for(work) if self._waits else _finished(work)
        except Exception as error:
            raise self._failed(error, key) from error

    async def _all(self, works: Sequence[Coroutine[Any, Any, T]]) -> Sequence[T]:
        """Return the results of coroutines that wait at the same time."""
        return await asyncio.gather(*works) if self._waits else [await work for work in works]

    # -- reading ----------------------------------------------------------------------------------

    async def _get_buffer(self, key: str, request: Any = None) -> Any:
        from zarr.core.buffer import default_buffer_prototype

        try:
            return await self._store.get(key, default_buffer_prototype(), request)
        except self._errors:
            # icechunk 2 raises for the bytes of an empty value.
            if request is not None or await self._measure(key) != 0:
                raise
            return default_buffer_prototype().buffer.from_bytes(b"")

    def _whole(self, key: str) -> Buffer | None:
        found = self._run(key, self._get_buffer(key))
        # The bytes of zarr-python's buffer, which the store may hold as well.
        return None if found is None else memoryview(found.as_numpy_array()).cast("B").toreadonly()

    def _ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes] | None:
        from zarr.abc.store import RangeByteRequest, SuffixByteRequest

        requests = [
            SuffixByteRequest(length) if start < 0 else RangeByteRequest(start, start + length)
            for start, length in ranges
        ]

        found = self._run(key, self._all([self._get_buffer(key, request) for request in requests]))
        return None if any(part is None for part in found) else [bytes(part.to_bytes()) for part in found]

    def _size(self, key: str) -> int | None:
        return self._run(key, self._measure(key))

    async def _measure(self, key: str) -> int | None:
        try:
            size = int(await self._store.getsize(key))
        except (FileNotFoundError, KeyError):
            return None
        # icechunk says 0 for a chunk that is missing.
        return size if size or await self._exists(key) else None

    async def _exists(self, key: str) -> bool:
        try:
            return bool(await self._store.exists(key))
        except KeyError:  # icechunk, for documents of Zarr 2, which it never has
            return False

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or one level of them.

        zarr-python does not distinguish keys and prefixes, so there is a request for each name.
        """
        check_prefix(prefix)
        if not recursive:
            return self._run(prefix, self._level(prefix))
        found = self._run(prefix, self._keys(prefix))
        return Listing([key for key in found if key.startswith(prefix) and is_key(key)])

    async def _keys(self, prefix: str) -> Sequence[str]:
        """Return keys among which are all that start with the prefix."""
        while True:
            try:
                return [key async for key in self._store.list_prefix(prefix)]
            except self._errors:  # icechunk lists only what is below a node
                if not prefix:
                    raise
            prefix = prefix[: prefix.rfind("/", 0, -1) + 1]

    async def _level(self, prefix: str) -> Listing:
        try:
            listed: AsyncIterator[str] = self._store.list_dir(prefix)
            names = {name.strip("/") async for name in listed}
            keys = {prefix + name for name in names if is_key(prefix + name)}
            values = dict(zip(keys, await self._all([self._is_value(key) for key in keys]), strict=True))
            return Listing([key for key in keys if values[key]], [key + "/" for key in keys if not values[key]])
        except self._unlisted:
            whole = [key for key in await self._keys(prefix) if key.startswith(prefix) and is_key(key)]
            return Listing.one_level(prefix, whole)

    async def _is_value(self, key: str) -> bool:
        """Whether a name in a listing is a key; for some stores folders exist, too."""
        if key.rpartition("/")[2] in DOCUMENTS:
            return True
        try:
            if not await self._exists(key):
                return False
            if await self._store.getsize(key):
                return True
        except self._errors:  # icechunk, for what can be no key
            return False
        return not any(found.startswith(key + "/") for found in await self._keys(key + "/"))

    # -- writing ----------------------------------------------------------------------------------

    def _put(self, key: str, value: bytes) -> None:
        self._set(key, value, self._store.set)

    def _create(self, key: str, value: bytes) -> bool:
        self._set(key, value, self._store.set_if_not_exists)
        # It does not say which writer won; in a transaction there are no others.
        return self.traits.transactional or self.get(key) == value

    def _set(self, key: str, value: bytes, how: Any) -> None:
        from zarr.core.buffer import default_buffer_prototype

        if self.traits.transactional and key.rpartition("/")[2] == "zarr.json":
            value = with_runs(value)
        try:
            self._run(key, how(key, default_buffer_prototype().buffer.from_bytes(value)))
        except OSError as error:
            words = _refusal(key, value) if self.traits.transactional else ""
            if not words:
                raise
            raise OSError(f"key {key!r} in {self!r}: {words}") from error

    def _delete(self, keys: Sequence[str]) -> None:
        async def remove(key: str) -> None:
            try:
                await self._store.delete(key)
            except (KeyError, FileNotFoundError):
                return
            except self._errors:  # icechunk, for a chunk outside of the array's shape
                if await self._exists(key):
                    raise

        async def remove_all() -> None:
            for first in range(0, len(keys), 64):
                await self._all([remove(key) for key in keys[first : first + 64]])

        self._run(", ".join(keys[:3]), remove_all())

    # -- views ------------------------------------------------------------------------------------

    @property
    def identity(self) -> Hashable:
        """The store, compared as zarr-python does."""
        return ("zarr", _Same(self._store))

    def fork(self) -> Self:
        """Return a fork of a session without uncommitted changes, for other processes."""
        import icechunk

        session = self._store.session
        # A fork of a session cannot be forked again once it has changes.
        is_fork = isinstance(session, icechunk.ForkSession)
        fork = pickle.loads(pickle.dumps(session)) if is_fork else session.fork()
        return type(self)(fork.store)

    def merge(self, forks: Iterable[Any]) -> None:
        """Take over what was written to forks of the session; nothing is committed.

        Parameters
        ----------
        forks
            What `fork` returned.

        """
        self._store.session.merge(*[fork.zarr_store.session for fork in forks])

    def close(self) -> None:
        """Close the store of zarr-python; nothing is committed."""
        self._store.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self._store, "read_only": self.read_only}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ZarrPythonStore.__init__(self, **state)

    def __repr__(self) -> str:
        kind = type(self._store)
        mode = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}(<{kind.__module__.partition('.')[0]} {kind.__name__}>{mode})"


class _Same:
    """A store of zarr-python with a hash: equal if it is the same, or says so."""

    __slots__ = ("_store",)

    def __init__(self, store: Any) -> None:
        self._store = store

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or type(self._store) is not type(other._store):
            return False
        if self._store is other._store:
            return True
        values = getattr(self._store, "_store_dict", None)
        # zarr-python compares what two stores in memory hold; the same data is the same dict.
        return self._store == other._store if values is None else values is other._store._store_dict

    def __hash__(self) -> int:
        return hash(type(self._store))


# -- icechunk -------------------------------------------------------------------------------------


def _sizes(value: bytes) -> tuple[dict[str, Any], list[Any]] | None:
    """Return metadata with a rectilinear grid, and the sizes in it; None for all else."""
    if b'"rectilinear"' not in value:
        return None
    try:
        document = json.loads(value)
        grid = document["chunk_grid"]
        return (document, grid["configuration"]["chunk_shapes"]) if grid["name"] == "rectilinear" else None
    except (ValueError, TypeError, KeyError):  # a chunk, or wrong metadata: the store will say
        return None


def with_runs(value: bytes) -> bytes:
    """Write sizes that repeat as runs `[[size, count]]`, which mean the same; icechunk 2 wants runs.

    >>> grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [4, [[5, 2]]]}}
    >>> json.loads(with_runs(json.dumps({"shape": [10, 10], "chunk_grid": grid}).encode()))["chunk_grid"]
    {'name': 'rectilinear', 'configuration': {'kind': 'inline', 'chunk_shapes': [[[4, 3]], [[5, 2]]]}}
    """
    found = _sizes(value)
    if found is None or not any(isinstance(size, int) for size in found[1]):
        return value
    document, sizes = found
    # At least one edge, since an axis of no length has chunks of this size, too, once it grows.
    sizes[:] = [
        [[size, max(-(-extent // size), 1)]] if isinstance(size, int) else size
        for size, extent in zip(sizes, document["shape"], strict=True)
    ]
    return json.dumps(document).encode()


def _refusal(key: str, value: bytes) -> str:
    """Return why metadata was refused, where icechunk does not say it well; else an empty text."""
    import icechunk

    name = key.rpartition("/")[2]
    if name in DOCUMENTS and name != "zarr.json":
        return "icechunk holds Zarr 3 only; use zarr_format=3"
    if name in DOCUMENTS and (found := not_finite(json.loads(value), "")):
        place, number = found
        return f"{place[1:]} is {number}, and icechunk takes strict JSON only; use a finite number, text or None"
    if _sizes(value) is None or int(icechunk.__version__.split(".")[0]) >= 2:
        return ""
    return f"icechunk {icechunk.__version__} takes regular chunks only; rectilinear ones need icechunk 2"


# -- the event loop -------------------------------------------------------------------------------

_loops: dict[int, tuple[asyncio.AbstractEventLoop, threading.Thread]] = {}
"""By process: a forked one has no thread of its parent's loop, and closing that would disturb the parent."""


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine of a store in memory, which never waits and needs no event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    work.close()
    raise RuntimeError("a store of zarr-python in memory waits for something")


def _wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine; the calling thread waits for it."""
    try:
        loop, thread = _started(os.getpid())
        if threading.current_thread() is thread:
            raise RuntimeError("a store of zarr-python waits for itself: it was used from its own event loop")
    except BaseException:
        work.close()
        raise
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _started(pid: int) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Return the loop of this process, started when it is first needed."""
    if pid not in _loops:
        with KeyLock(("event loop", pid)):
            if pid not in _loops:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name="zellige-zarr-python", daemon=True)
                thread.start()
                _loops[pid] = loop, thread
    return _loops[pid]


@atexit.register
def _stop() -> None:
    """End the thread and close the loop, if they were started."""
    found = _loops.pop(os.getpid(), None)
    if found is not None:
        loop, thread = found
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
