"""What reading a selection would cost: counted with the engine's own plans, without reading a chunk.

Sizes of stored values are asked for, and the indexes of shards are read; nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige import pool
from zellige.codecs.base import Reader
from zellige.grid import ChunkGrid
from zellige.indexing import Selection
from zellige.info import human_bytes
from zellige.plans import Plan, Request, Tasks
from zellige.plans import plan as plan_for
from zellige.shards import IndexCache, ShardReader
from zellige.types import AnyArray, Buffer, Shape, Span

if TYPE_CHECKING:
    from zellige.array import Array

_EXACT = 100_000  # chunks; of more, so many are looked at
_SAMPLE = 1000
_POOR = 2.0  # a layout that decodes so many times less is worth a word
_SMALL_CHUNK, _LARGE_CHUNK = 64 << 10, 4 << 20
_MANY_REQUESTS = 1000


@dataclass(frozen=True)
class Explanation:
    """What reading a selection would cost, with nothing remembered from before."""

    elements: int
    """How many elements are asked for."""
    bytes_wanted: int
    """Their size in memory."""
    chunks: int
    """How many stored values are touched: chunks, or shards."""
    missing: int
    """How many of them are not stored; asking for one costs a request all the same."""
    inner_chunks: int
    """How many chunks are decoded: of shards, the inner ones."""
    requests: int
    """How many requests the store gets."""
    bytes_read: int
    """How many bytes it sends."""
    bytes_decoded: int
    """How many bytes of elements the chunks have that are decoded, wanted or not."""
    exact: bool = True
    """Whether every chunk was looked at; of very many, a sample is, and the numbers are estimates."""
    suggestion: str | None = None
    """A layout that would serve this selection better, if there is one."""

    @property
    def amplification(self) -> float:
        """How many times more is decoded than was asked for."""
        return self.bytes_decoded / self.bytes_wanted if self.bytes_wanted else 0.0

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        missing = f", {about}{self.missing:,} of them not stored" if self.missing else ""
        lines = [
            f"wanted   {self.elements:,} elements, {human_bytes(self.bytes_wanted)}",
            f"touched  {self.chunks:,} stored chunk{'s' * (self.chunks != 1)}{missing}",
            f"asked    {about}{self.requests:,} request{'s' * (self.requests != 1)}, {human_bytes(self.bytes_read)}",
            f"decoded  {about}{self.inner_chunks:,} chunk{'s' * (self.inner_chunks != 1)}, "
            f"{human_bytes(self.bytes_decoded)}: {self.amplification:.1f} times what is wanted",
        ]
        return "\n".join([*lines, *([f"better   {self.suggestion}"] if self.suggestion else [])])


def explain(array: Array, selection: Selection) -> Explanation:
    """What reading a selection of an array would cost."""
    plan = plan_for(selection, array.grid)
    count = len(plan)
    looked_at = list(plan.requests() if count <= _EXACT else _sample(plan))
    found = pool.gather(_Costing(array, plan, selection.work_shape).of, looked_at, array.store)
    share = count / len(looked_at) if looked_at else 0
    missing, inner, asked, read, decoded = (round(share * sum(getattr(cost, name) for cost in found)) for name in _COST)
    elements = prod(selection.result_shape)
    wanted = elements * array.dtype.itemsize
    words = _suggestion(array, selection, count, wanted, decoded)
    return Explanation(elements, wanted, count, missing, inner, asked, read, decoded, count <= _EXACT, words)


def _sample(plan: Plan) -> Iterator[Request]:
    """Requests at even distances."""
    return map(plan.request, range(0, len(plan), len(plan) // _SAMPLE))


# -- of one chunk ---------------------------------------------------------------------------------

_COST = ("missing", "inner", "requests", "read", "decoded")


@dataclass
class _Cost:
    """What one stored chunk costs; see `Explanation`."""

    missing: int = 0
    inner: int = 0
    requests: int = 0
    read: int = 0
    decoded: int = 0

    def ask(self, nbytes: int | None) -> None:
        """One request, which finds so many bytes, or nothing."""
        self.requests += 1
        self.read += nbytes or 0
        self.missing = int(nbytes is None)

    def decode(self, count: int, nbytes: int) -> None:
        """So many chunks are decoded, of so many bytes together."""
        self.inner += count
        self.decoded += nbytes


class _Costing:
    """Goes the ways of `Engine._read_chunk`, and only counts."""

    def __init__(self, array: Array, plan: Plan, work_shape: Shape) -> None:
        self.array, self.plan = array, plan
        self.engine, self.store = array._engine, array.store
        # Room for one element that is all elements of the result: fill values have somewhere to go.
        cell: AnyArray = np.empty(1, array.dtype)
        self.nowhere: AnyArray = np.lib.stride_tricks.as_strided(cell, work_shape, (0,) * len(work_shape))

    def of(self, request: Request) -> _Cost:
        """The cost of one stored chunk."""
        coords, shape, inside, outside, whole = request
        bound, key, cost = self.engine.chain.bound[shape], self.engine.key(coords), _Cost()
        if bound.shard is not None:
            reader = _Watcher(cost, ShardReader(self.store, key, IndexCache(), self.engine._merging), self.store, key)
            if not bound.shard.read(reader, inside, self.plan, self.nowhere[outside], self._decoding(cost)):
                cost.missing = int(self.store.size(key) is None)
            if reader.all_of_it and not cost.missing:
                counts = (-(-n // size) for n, size in zip(shape, bound.shard.chunk_shape, strict=True))
                cost.decode(prod(counts), bound.nbytes)
            return cost
        part = None if whole or bound.strides is None else bound.part(inside, self.plan.order, self.store.gap)
        size = self.store.size(key)
        for nbytes in [size] if part is None else [None if size is None else length for _, length in part.spans]:
            cost.ask(nbytes)
        if size is not None:
            cost.decode(1, bound.nbytes if part is None else cost.read)
        return cost

    def _decoding(self, cost: _Cost) -> Callable[[Any, Any, int], None]:
        """A runner that runs nothing: tasks are the requests of inner chunks, alone or after their bytes."""

        def run(_work: Callable[[Any], None], tasks: Tasks, _nbytes: int) -> None:
            shapes = [(task[-1] if len(task) == 2 else task)[1] for task in tasks.requests()]
            cost.decode(len(shapes), sum(map(prod, shapes)) * self.array.dtype.itemsize)

        return run


class _Watcher(Reader):
    """The reader of a shard that counts, and reads nothing but indexes."""

    def __init__(self, cost: _Cost, reader: ShardReader, store: Any, key: str, *, nested: bool = False) -> None:
        self._cost, self._reader, self._store, self._key, self._nested = cost, reader, store, key, nested
        self.all_of_it = False

    @property
    def merging(self) -> tuple[int, int]:
        """How ranges are merged; see `Reader`."""
        return self._reader.merging

    def whole(self) -> Buffer | None:
        """All of it: only its size is asked for, unless it is a part of another."""
        if self._nested:
            found = self._reader.whole()
            self._cost.ask(None if found is None else len(found))
            return found
        self.all_of_it = True
        self._cost.ask(self._store.size(self._key))
        return None

    def ranges(self, spans: Sequence[Span]) -> Sequence[Buffer] | None:
        """Some ranges, of which nothing is read."""
        for _, length in spans:
            self._cost.ask(length)
        return [b""] * len(spans)

    def index(self, span: Span, parse: Callable[[Buffer], Any]) -> Any:
        """The index, which is read."""

        def count(raw: Buffer) -> Any:
            self._cost.ask(len(raw))
            return parse(raw)

        found = self._reader.index(span, count)
        if found is None:
            self._cost.ask(None)
        return found

    def within(self, start: int, length: int) -> Reader:
        """A range of it as a shard of its own."""
        return _Watcher(self._cost, self._reader.within(start, length), self._store, self._key, nested=True)


# -- a better layout ------------------------------------------------------------------------------


def _suggestion(array: Array, selection: Selection, count: int, wanted: int, decoded: int) -> str | None:
    """Words about a layout in which this selection would decode much less, or ask much less often."""
    if not wanted or not array.ndim:
        return None
    shape = _fitting(array, selection)
    plan = plan_for(selection, ChunkGrid.from_sizes(array.shape, shape))
    there = len(plan) * prod(shape) * array.dtype.itemsize
    sizes = ", ".join(map(str, shape))
    if decoded > _POOR * there:
        return f"chunks=({sizes}) would decode {human_bytes(there)} instead of {human_bytes(decoded)}"
    each = prod(array._inner or array.grid.spec((0,) * array.ndim).codec_shape) * array.dtype.itemsize
    if array._inner is None and count > _MANY_REQUESTS and each < _SMALL_CHUNK:
        return f"{count:,} small chunks are asked for one by one; shards= keeps many of them in one stored value"
    return None


def _fitting(array: Array, selection: Selection) -> Shape:
    """A chunk shape like the selection: long where it is long, and of a usual size in bytes."""
    spans = [max(1, _span(axis)) for axis in selection.axes]
    most = _LARGE_CHUNK // max(1, array.dtype.itemsize)
    while prod(spans) > most:
        axis = max(range(len(spans)), key=spans.__getitem__)
        spans[axis] = ceil(spans[axis] / 2)
    return tuple(spans)


def _span(axis: Any) -> int:
    """From the first to the last index that is picked."""
    if not len(axis):
        return 0
    return int(max(axis)) - int(min(axis)) + 1 if not isinstance(axis, range) else abs(axis[-1] - axis[0]) + 1
