"""zellige inside event loops: each operation runs as a whole in a thread, so that the loop is never blocked.

>>> import asyncio
>>> from zellige import aio
>>> async def main():
...     a = await aio.create_array(shape=(59,), chunks=[[31, 28]], dtype="int16")
...     await asyncio.gather(a.setitem(slice(31), 1), a.setitem(slice(31, None), 2))
...     return await a.getitem(slice(29, 33))
>>> asyncio.run(main())
array([1, 1, 2, 2], dtype=int16)

The functions are those of `zellige`, awaited; arrays and groups come back as `AsyncArray` and `AsyncGroup`, whose
`sync` is the plain object, and are taken wherever plain ones are. Errors are those of the plain functions.

Threads. An event loop has at most `async.concurrency` of them (see `zellige.config`); further operations are queued.
Threads live as long as some operation is in flight, and the loop joins them before it hands over the last result:
nothing runs on after `asyncio.run`, or between two batches. They are daemons, and not those of an executor, which keeps
idle threads and lets them hold up the end of the interpreter.

Cancelling. A cancelled `await` raises `CancelledError` at once, and one that takes longer than the setting
`async.timeout` raises `TimeoutError`. A queued operation then never starts. One in flight goes on to its end, since it
cannot be stopped halfway without harm: a write may still arrive, whole chunk by whole chunk. The end of the loop waits
for it, at most `async.timeout` seconds if that is set.

Reads and writes of one array may overlap freely. As with threads, a resize should not overlap with other operations
through the same object.
"""

from __future__ import annotations

import asyncio
import inspect
import operator
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload
from weakref import WeakKeyDictionary

# A line for each name would be long.
# isort: off
from zellige import Array, Group, config
from zellige import array as _array, create as _create, create_array as _create_array, from_array as _from_array
from zellige import zeros as _zeros, ones as _ones, full as _full, empty as _empty
from zellige import zeros_like as _zeros_like, ones_like as _ones_like, full_like as _full_like
from zellige import empty_like as _empty_like, create_group as _create_group, create_hierarchy as _create_hierarchy
from zellige import group as _group, open as _open, open_array as _open_array, open_group as _open_group
from zellige import open_like as _open_like, open_consolidated as _open_consolidated, tree as _tree, load as _load
from zellige import save as _save, save_array as _save_array, save_group as _save_group
from zellige import copy as _copy, copy_all as _copy_all, copy_store as _copy_store
from zellige import consolidate_metadata as _consolidate_metadata
# isort: on

if TYPE_CHECKING:
    from zellige.settings import ArrayConfig
    from zellige.storage import StoreLike

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
N = TypeVar("N")
Plain = TypeVar("Plain", Array, Group)


# -- threads --------------------------------------------------------------------------------------

_LOOK = 1.0  # seconds after which an idle thread looks whether the loop was closed while operations were queued


class _Job:
    """One operation: called in a thread, ended in the loop."""

    __slots__ = ("call", "ended", "witness", "_value", "_error")

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.call: Callable[[], Any] | None = call
        self.ended: asyncio.Future[None] = loop.create_future()
        self.witness: AsyncGenerator[None, None] | None = None
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call it, unless it was given up; in a thread."""
        call, self.call = self.call, None
        try:
            self._value = None if call is None else call()
        except BaseException as error:  # noqa: BLE001  (raised again where it is awaited)
            self._error = error

    async def give_up(self) -> None:
        """Do not start it any more; if it is in flight, the end of the loop waits for it."""
        self.call = None
        self.witness = _outlast(self.ended)
        await anext(self.witness)

    def result(self) -> Any:
        """Return the result, or raise the error; once."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._value
        finally:
            del error  # its traceback holds this frame: together they would stay until the garbage is collected


async def _outlast(ended: asyncio.Future[None]) -> AsyncGenerator[None, None]:
    """A generator for an operation that is no longer awaited: loops finish generators before they close."""
    try:
        yield
    finally:
        if not ended.done():
            await asyncio.wait([ended], timeout=config.get("async.timeout"))


class _Threads:
    """The threads of one event loop. Everything runs in the loop, except for `_work`."""

    __slots__ = ("_jobs", "_unfinished", "_threads", "__weakref__")

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._unfinished = 0
        self._threads: list[threading.Thread] = []

    def start(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        """Queue a job, and start another thread if there may be more."""
        if len(self._threads) < min(self._unfinished + 1, config.get("async.concurrency")):
            thread = threading.Thread(target=self._work, args=(loop,), name="zellige-aio", daemon=True)
            try:
                thread.start()
                self._threads.append(thread)
            except RuntimeError:  # the system has no more threads: those that are there will do
                if not self._threads:
                    raise
        self._unfinished += 1
        self._jobs.put(job)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while not loop.is_closed():
            try:
                job = self._jobs.get(timeout=_LOOK)
            except Empty:
                continue
            if job is None:
                return
            job.run()
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(self._end, job)
            del job  # and with it the result, which may be large

    def _end(self, job: _Job) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            for _ in self._threads:
                self._jobs.put(None)
            while self._threads:
                self._threads.pop().join()
        job.ended.set_result(None)


_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, _Threads] = WeakKeyDictionary()
"""The threads of each event loop; they end with it."""


async def _run(function: Callable[..., T], /, *args: Any, **options: Any) -> T:
    """The result of a function, called in a thread with the context of the caller."""
    given = {name: _plain(value) for name, value in options.items()}
    loop = asyncio.get_running_loop()
    job = _Job(partial(copy_context().run, function, *map(_plain, args), **given), loop)
    _threads.setdefault(loop, _Threads()).start(job, loop)
    limit = config.get("async.timeout")
    try:
        await asyncio.wait([job.ended], timeout=limit)
    except asyncio.CancelledError:
        await job.give_up()
        raise
    if not job.ended.done():
        await job.give_up()
        name = getattr(function, "__qualname__", repr(function))
        raise TimeoutError(f"{name} took longer than {limit} s, the setting async.timeout; it may still finish")
    result: T = job.result()
    return result


# -- from plain objects to awaited ones, and back -------------------------------------------------


def _plain(value: Any) -> Any:
    return value.sync if isinstance(value, AsyncArray | AsyncGroup) else value


def _same(value: T) -> T:
    return value


def _to_array(found: Array) -> AsyncArray:
    return AsyncArray(found)


def _to_group(found: Group) -> AsyncGroup:
    return AsyncGroup(found)


def _to_node(found: Array | Group) -> AsyncArray | AsyncGroup:
    return AsyncArray(found) if isinstance(found, Array) else AsyncGroup(found)


def _named(wrap: Callable[[T], R]) -> Callable[[tuple[str, T]], tuple[str, R]]:
    return lambda item: (item[0], wrap(item[1]))


def _awaited(function: Callable[P, T], wrap: Callable[[T], R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A function as one that is awaited, with the same parameters, whose result is wrapped."""

    async def run(*args: P.args, **options: P.kwargs) -> R:
        return wrap(await _run(function, *args, **options))

    return _dressed(run, function)


def _method(
    function: Callable[Concatenate[N, P], T], wrap: Callable[[T], R]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """A method of `Array` or `Group` as one that is awaited."""
    return _awaited(function, wrap)


def _maker(function: Callable[..., Array]) -> Callable[..., Coroutine[Any, Any, AsyncArray]]:
    """A method of `Group` that makes an array; among its options may be a `self`, which `Concatenate` refuses."""
    return _awaited(function, _to_array)


def _listed(function: Callable[P, Iterable[T]], wrap: Callable[[T], R]) -> Callable[P, Results[R]]:
    """A function with several results as one whose results are awaited."""

    def collect(*args: P.args, **options: P.kwargs) -> list[T]:
        return list(function(*args, **options))

    def run(*args: P.args, **options: P.kwargs) -> Results[R]:
        async def start() -> list[R]:
            return [wrap(found) for found in await _run(collect, *args, **options)]

        return Results(start)

    return _dressed(run, function)


def _listing(
    function: Callable[Concatenate[N, P], Iterable[T]], wrap: Callable[[T], R]
) -> Callable[Concatenate[Any, P], Results[R]]:
    """A method of `Group` with several results as one whose results are awaited."""
    return _listed(function, wrap)


_ASYNC = {"Array": "AsyncArray", "Group": "AsyncGroup", "Node": "AsyncArray | AsyncGroup"}


def _dressed(run: Callable[P, R], function: Callable[P, Any]) -> Callable[P, R]:
    """The name, parameters and text of a plain function; without its examples, which do not await."""
    wraps(function)(run)
    known = inspect.signature(function)
    returns = re.sub(r"\b(Array|Group|Node)\b", lambda found: _ASYNC[found[0]], known.return_annotation)
    text = re.split(r"\s*\n(?:Examples\n-+|>>> )", inspect.cleandoc(function.__doc__ or ""), maxsplit=1)[0]
    run.__dict__["__signature__"] = known.replace(return_annotation=returns)
    run.__module__ = __name__
    run.__doc__ = f"{text}\n\nLike the plain `{function.__name__}`, in a thread and to be awaited.".lstrip()
    return run


class Results(Generic[T]):
    """Several results: one by one in `async for`, or as a list by `await`.

    >>> async def main():
    ...     root = await group()
    ...     await root.require_groups("a", "b")
    ...     return [name async for name in root.keys()], await root.keys()
    >>> asyncio.run(main())
    (['a', 'b'], ['a', 'b'])
    """

    __slots__ = ("_start",)

    def __init__(self, start: Callable[[], Coroutine[Any, Any, list[T]]]) -> None:
        self._start = start

    def __await__(self) -> Generator[Any, Any, list[T]]:
        return self._start().__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        for found in await self:
            yield found


class _known(property, Generic[N, T]):  # noqa: N801  (reads like `property`)
    """A property of the plain object that is known without awaiting."""

    def __init__(self, kind: type[N], get: Callable[[N], T]) -> None:
        super().__init__(lambda node: get(node.sync))
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.__doc__ = getattr(self._kind, name).__doc__

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type, /) -> Self: ...
        @overload
        def __get__(self, instance: Any, owner: type | None = None, /) -> T: ...
        def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...


class _Facade(Generic[Plain]):
    """What `AsyncArray` and `AsyncGroup` share."""

    __slots__ = ("sync", "__weakref__")

    _kind: ClassVar[Any]
    sync: Plain
    """The plain object."""

    def __init__(self, plain: Plain) -> None:
        if not isinstance(plain, self._kind):
            name = self._kind.__name__
            raise TypeError(f"Async{name} is made of a zellige.{name}; found {type(plain).__name__}")
        self.sync = plain

    @classmethod
    async def open(cls, store: StoreLike, path: str = "", **options: Any) -> Self:
        """Open the node at a path of a store; parameters as for `Array.open` and `Group.open`."""
        return cls(await _run(cls._kind.open, store, path, **options))

    path = _known(Array, lambda a: a.path)
    name = _known(Array, lambda a: a.name)
    basename = _known(Array, lambda a: a.basename)
    store = _known(Array, lambda a: a.store)
    store_path = _known(Array, lambda a: a.store_path)
    read_only = _known(Array, lambda a: a.read_only)
    info = _known(Array, lambda a: a.info)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes, to be read; `update_attributes` changes them."""
        return MappingProxyType(self.sync.attrs.asdict())

    def __eq__(self, other: object) -> bool:
        return self.sync == other.sync if isinstance(other, type(self)) else NotImplemented

    def __repr__(self) -> str:
        return repr(self.sync).replace("<zellige.", "<zellige.Async", 1)


# -- arrays ---------------------------------------------------------------------------------------


class AsyncIndexer(NamedTuple):
    """One way of indexing, such as `oindex`: `await a.oindex.getitem(selection)`."""

    getitem: Callable[..., Coroutine[Any, Any, Any]]
    setitem: Callable[..., Coroutine[Any, Any, None]]


class AsyncArray(_Facade[Array]):
    """An array whose operations are awaited; what is known about it is there at once.

    >>> async def main():
    ...     a = await zeros((59, 2), chunks=[[31, 28], 2], dtype="int8")
    ...     await a.setitem((30, 1), 7)
    ...     return a.shape, await a.oindex.getitem(([30, 31], slice(None)))
    >>> asyncio.run(main())
    ((59, 2), array([[0, 7],
           [0, 0]], dtype=int8))
    """

    __slots__ = ()
    _kind = Array

    shape = _known(Array, lambda a: a.shape)
    ndim = _known(Array, lambda a: a.ndim)
    size = _known(Array, lambda a: a.size)
    dtype = _known(Array, lambda a: a.dtype)
    nbytes = _known(Array, lambda a: a.nbytes)
    fill_value = _known(Array, lambda a: a.fill_value)
    dimension_names = _known(Array, lambda a: a.dimension_names)
    order = _known(Array, lambda a: a.order)
    chunks = _known(Array, lambda a: a.chunks)
    shards = _known(Array, lambda a: a.shards)
    grid = _known(Array, lambda a: a.grid)
    read_chunk_sizes = _known(Array, lambda a: a.read_chunk_sizes)
    write_chunk_sizes = _known(Array, lambda a: a.write_chunk_sizes)
    cdata_shape = _known(Array, lambda a: a.cdata_shape)
    nchunks = _known(Array, lambda a: a.nchunks)
    filters = _known(Array, lambda a: a.filters)
    serializer = _known(Array, lambda a: a.serializer)
    compressors = _known(Array, lambda a: a.compressors)
    compressor = _known(Array, lambda a: a.compressor)
    config = _known(Array, lambda a: a.config)
    metadata = _known(Array, lambda a: a.metadata)

    def with_config(self, config: Mapping[str, Any] | ArrayConfig) -> AsyncArray:
        """Return the same array with some settings changed. Parameters: see `Array.with_config`."""
        return AsyncArray(self.sync.with_config(config))

    getitem = get_basic_selection = _method(Array.get_basic_selection, _same)
    get_orthogonal_selection = _method(Array.get_orthogonal_selection, _same)
    get_coordinate_selection = _method(Array.get_coordinate_selection, _same)
    get_mask_selection = _method(Array.get_mask_selection, _same)
    get_block_selection = _method(Array.get_block_selection, _same)
    setitem = set_basic_selection = _method(Array.set_basic_selection, _same)
    set_orthogonal_selection = _method(Array.set_orthogonal_selection, _same)
    set_coordinate_selection = _method(Array.set_coordinate_selection, _same)
    set_mask_selection = _method(Array.set_mask_selection, _same)
    set_block_selection = _method(Array.set_block_selection, _same)

    @property
    def oindex(self) -> AsyncIndexer:
        """Orthogonal indexing: each axis is picked on its own."""
        return AsyncIndexer(self.get_orthogonal_selection, self.set_orthogonal_selection)

    @property
    def vindex(self) -> AsyncIndexer:
        """Pointwise indexing: one integer array for each axis, or a mask."""
        return AsyncIndexer(self.get_coordinate_selection, self.set_coordinate_selection)

    @property
    def blocks(self) -> AsyncIndexer:
        """Indexing by chunks: integers and slices count chunks."""
        return AsyncIndexer(self.get_block_selection, self.set_block_selection)

    resize = _method(Array.resize, _same)
    append = _method(Array.append, _same)
    update_attributes = _method(Array.update_attributes, _to_array)
    refresh = _method(Array.refresh, _same)
    info_complete = _method(Array.info_complete, _same)
    nbytes_stored = _method(Array.nbytes_stored, _same)

    async def nchunks_initialized(self) -> int:
        """The number of chunks that are stored; lists the store."""
        return await _run(operator.attrgetter("nchunks_initialized"), self)


# -- groups ---------------------------------------------------------------------------------------


class AsyncGroup(_Facade[Group]):
    """A group whose operations are awaited; members come as `AsyncArray` and `AsyncGroup`.

    >>> async def main():
    ...     root = await create_group()
    ...     await asyncio.gather(root.setitem("a", [1, 2]), root.create_group("b/c"))
    ...     return [name async for name, _ in root.members(max_depth=None)], await root.contains("b/c")
    >>> asyncio.run(main())
    (['a', 'b', 'b/c'], True)
    """

    __slots__ = ()
    _kind = Group

    metadata = _known(Group, lambda g: g.metadata)

    getitem = _method(Group.__getitem__, _to_node)
    setitem = _method(Group.__setitem__, _same)
    delitem = _method(Group.__delitem__, _same)
    contains = _method(Group.__contains__, _same)
    get = _method(Group.get, lambda found: _to_node(found) if isinstance(found, Array | Group) else found)
    get_array = _method(Group.get_array, _to_array)
    get_group = _method(Group.get_group, _to_group)

    members = _listing(Group.members, _named(_to_node))
    walk = _listing(Group.walk, _named(_to_node))
    items = _listing(Group.items, _named(_to_node))
    keys = _listing(Group.keys, _same)
    values = _listing(Group.values, _to_node)
    arrays = _listing(Group.arrays, _named(_to_array))
    array_keys = _listing(Group.array_keys, _same)
    array_values = _listing(Group.array_values, _to_array)
    groups = _listing(Group.groups, _named(_to_group))
    group_keys = _listing(Group.group_keys, _same)
    group_values = _listing(Group.group_values, _to_group)
    nmembers = _method(Group.nmembers, _same)
    tree = _method(Group.tree, _same)
    info_complete = _method(Group.info_complete, _same)

    def __aiter__(self) -> AsyncIterator[str]:
        return aiter(self.keys())

    create_group = _method(Group.create_group, _to_group)
    require_group = _method(Group.require_group, _to_group)
    require_groups = _method(Group.require_groups, lambda found: tuple(map(_to_group, found)))
    create_array = _maker(Group.create_array)
    require_array = _maker(Group.require_array)
    create_hierarchy = _listing(Group.create_hierarchy, _named(_to_node))
    array = _maker(Group.array)
    zeros = _maker(Group.zeros)
    ones = _maker(Group.ones)
    empty = _maker(Group.empty)
    full = _maker(Group.full)
    zeros_like = _maker(Group.zeros_like)
    ones_like = _maker(Group.ones_like)
    empty_like = _maker(Group.empty_like)
    full_like = _maker(Group.full_like)

    move = _method(Group.move, _same)
    update_attributes = _method(Group.update_attributes, _to_group)
    consolidate_metadata = _method(Group.consolidate_metadata, _to_group)
    refresh = _method(Group.refresh, _same)


# -- the functions of the package -----------------------------------------------------------------

open = _awaited(_open, _to_node)
open_array = _awaited(_open_array, _to_array)
open_group = _awaited(_open_group, _to_group)
open_consolidated = _awaited(_open_consolidated, _to_group)
open_like = _awaited(_open_like, _to_array)
create = _awaited(_create, _to_array)
create_array = _awaited(_create_array, _to_array)
create_group = _awaited(_create_group, _to_group)
create_hierarchy = _listed(_create_hierarchy, _named(_to_node))
group = _awaited(_group, _to_group)
array = _awaited(_array, _to_array)
from_array = _awaited(_from_array, _to_array)
zeros = _awaited(_zeros, _to_array)
ones = _awaited(_ones, _to_array)
full = _awaited(_full, _to_array)
empty = _awaited(_empty, _to_array)
zeros_like = _awaited(_zeros_like, _to_array)
ones_like = _awaited(_ones_like, _to_array)
full_like = _awaited(_full_like, _to_array)
empty_like = _awaited(_empty_like, _to_array)
save = _awaited(_save, _same)
save_array = _awaited(_save_array, _same)
save_group = _awaited(_save_group, _same)
load = _awaited(_load, _same)
consolidate_metadata = _awaited(_consolidate_metadata, _to_group)
tree = _awaited(_tree, _same)
copy = _awaited(_copy, _same)
copy_all = _awaited(_copy_all, _same)
copy_store = _awaited(_copy_store, _same)
