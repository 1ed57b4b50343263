"""Writing: from values in memory to chunks.

Whole chunks are encoded by the kernel without the interpreter: into local files by one call, for other stores in
batches that are sent with many requests in flight. A chunk of which a part changes is locked, read, changed and written
back, one at a time; so is whatever the kernel declines. Chunks that hold only the fill value are not stored, unless
the setting `array.write_empty_chunks` is on.
"""

from __future__ import annotations

import operator
import os
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige import kernel
from zellige.codecs.chain import BoundChain, CodecChain
from zellige.codecs.sharding import BoundShard, inner_error
from zellige.dtypes.fill import equals_fill
from zellige.errors import CodecError, CorruptChunkError, EncodeError, ShortReadError, UnsupportedCodecError
from zellige.grid.grid import ChunkGrid
from zellige.io.chunks import Chunks, Files
from zellige.io.plan import Copy, Plan, Table, parts, shard_table, table
from zellige.io.read import BATCH, MANY, part_size, reporting
from zellige.io.shard import plan_within, replaced, stored_parts, work_within
from zellige.kernel.program import inner_shape, program_of
from zellige.stores import threads
from zellige.stores.abilities import Folders, batch, obstacles
from zellige.stores.base import parts_of
from zellige.stores.files import temporary_name
from zellige.stores.locks import Apart
from zellige.types import AnyArray, Buffer, Coords, Encoded, Kept, Old, Part, Shape

if TYPE_CHECKING:
    from zellige.display.progress import Progress

_LISTED = 100_000  # chunks that an error lists
_SHOWN = 5


def write(chunks: Chunks, plan: Plan, value: AnyArray, *, to_end: bool = False) -> None:
    """Write the work array into the chunks of a plan.

    What a chunk holds beyond the end of the array stays, because another handle may know of a later end. With
    `to_end`, where no other can, the fill value goes there; then the plan reaches up to the end of every axis.
    """
    reporting(partial(_write, chunks, plan, value, to_end), plan, "written")


def _write(chunks: Chunks, plan: Plan, value: AnyArray, to_end: bool, progress: Progress | None) -> None:
    if not len(plan):
        return
    dtype, files = chunks.chain.dtype.numpy, chunks.files
    if value.dtype != dtype and value.size and not any(value.strides):  # one value for all elements
        first: tuple[Any, ...] = (*[slice(1)] * value.ndim, ...)
        value = np.broadcast_to(value[first].astype(dtype), value.shape)
    by_box = value.dtype == dtype or all(map(plan.is_range, range(value.ndim)))
    by_kernel = kernel.native is not None and (files is not None or program_of(chunks.chain) is not None)
    if not _has_whole(plan) or not by_box or not by_kernel:
        _write_each(chunks, plan, partial(write_chunk, chunks, value, to_end), value.nbytes, progress)
    elif files is not None:
        _write_files(chunks, files, plan, value, to_end, progress)
    else:
        _write_batches(chunks, plan, value, to_end, progress)


def _has_whole(plan: Plan) -> bool:
    """Return whether a plan may cover all of a chunk."""
    for axis in plan.projections:
        for entry in axis:
            if entry[4]:
                break
        else:
            return False
    return True


# -- whole chunks ---------------------------------------------------------------------------------


def _flags(chunks: Chunks, to_end: bool) -> int:
    return kernel.KEEP_EMPTY * chunks.config.write_empty_chunks | kernel.PAD * to_end


def _work(plan: Plan, value: AnyArray, codecs: CodecChain) -> tuple[Table | None, AnyArray]:
    """Return a plan as the kernel takes it, and the work array; only the elements that it needs are converted."""
    if value.dtype != codecs.dtype.numpy:
        box, plan = plan.boxed()
        value = value[box].astype(codecs.dtype.numpy)
    inner = inner_shape(codecs)
    return table(plan) if inner is None else shard_table(plan, inner), value


def _batch_size(plan: Plan, itemsize: int) -> int:
    """Return how many chunks are converted or encoded at once."""
    return min(MANY, max(threads.workers(), BATCH // max(plan.largest * itemsize, 1)))


def _write_files(
    chunks: Chunks, files: Files, plan: Plan, value: AnyArray, to_end: bool, progress: Progress | None
) -> None:
    """Write whole chunks by the kernel, and the others one by one.

    To survive a power cut the kernel flushes many files together, and the directories up to the store's own; those
    above were made durable with the array's document.
    """
    assert kernel.native is not None
    base, pieces, program, inner = files
    follow, name = chunks.store.traits.follow_links, os.fsencode(f"{temporary_name()}-k")
    flags = _flags(chunks, to_end) | kernel.SYNC * (chunks.store.traits.durability == "power")
    size = part_size(plan, progress)
    if value.dtype != chunks.chain.dtype.numpy:
        size = min(size, _batch_size(plan, chunks.chain.dtype.numpy.itemsize))
    rest = parts(plan, size, shards=inner is not None)
    for part in rest:
        statuses, (rows, work) = bytearray([kernel.NOT_BEGUN]) * len(part), _work(part, value, chunks.chain)
        later = chain.from_iterable(other.copies() for other in rest)
        if rows is not None:
            alone = Apart("whole")
            try:
                with alone:
                    alone.wait(chunks.place)
                    kernel.native.write_files(
                        *(base, pieces, len(base), follow, name),
                        *(rows, program, work, statuses, flags, threads.workers()),
                    )
            except BaseException as error:
                _report(plan, later, error, [], _left(part, statuses))
                raise
            finally:
                chunks.indexes.clear()
        left = [*_left(part, statuses)]
        if left:
            each = partial(write_chunk, chunks, value, to_end)
            nbytes = prod(left[0].shape) * value.itemsize * len(left)
            _run(chunks, each, left, len(left), nbytes, partial(_report, plan, later))
        if progress is not None:
            progress.advance(chunks.key(part.copy(len(part) - 1).coords), len(part))


def _left(part: Plan, statuses: bytearray) -> Iterator[Copy]:
    """Yield what the kernel has not written."""
    return map(part.copy, np.flatnonzero(np.frombuffer(statuses, np.uint8)).tolist())


class _Batch:
    """Chunks that are encoded together, by the first thread that needs one of them."""

    __slots__ = ("plan", "_raws", "_statuses", "_lock")

    def __init__(self, plan: Plan) -> None:
        self.plan, self._lock = plan, allocate_lock()
        self._raws: list[bytes | None] | None = None
        self._statuses = bytearray(len(plan))

    def take(self, number: int, chunks: Chunks, value: AnyArray, flags: int) -> tuple[int, bytes | None]:
        """Return the status and the bytes of a chunk, which are not kept any longer."""
        with self._lock:
            if self._raws is None:
                self._raws, self._statuses = encode(chunks.chain, self.plan, value, flags)
        raw, self._raws[number] = self._raws[number], None
        return self._statuses[number], raw


def encode(codecs: CodecChain, plan: Plan, value: AnyArray, flags: int) -> tuple[list[bytes | None], bytearray]:
    """Encode the chunks that a plan covers whole, by the kernel; statuses say which it left."""
    program, statuses = program_of(codecs), bytearray([kernel.DECLINED]) * len(plan)
    rows, work = (None, value) if program is None else _work(plan, value, codecs)
    if kernel.native is None or program is None or rows is None:
        return [None] * len(plan), statuses
    return kernel.native.encode(rows, program, work, statuses, flags, threads.workers()), statuses


def _write_batches(chunks: Chunks, plan: Plan, value: AnyArray, to_end: bool, progress: Progress | None) -> None:
    """Encode whole chunks in batches, and send them with many requests in flight; the others one by one."""
    flags, store = _flags(chunks, to_end), chunks.store
    itemsize = chunks.chain.dtype.numpy.itemsize
    held, size = plan.largest * itemsize, _batch_size(plan, itemsize)

    def put(task: tuple[_Batch, int, Copy]) -> None:
        batch, number, copy = task
        key = chunks.key(copy.coords)
        status, raw = batch.take(number, chunks, value, flags)
        if status in (kernel.OK, kernel.EMPTY):
            # A thread that writes a part of this chunk must not store its older copy over this one.
            with store.lock_here(key):
                _put(chunks, key, raw)
        else:
            write_chunk(chunks, value, to_end, copy)
        if progress is not None:
            progress.advance(key)

    tasks = (
        (batch, number, copy)
        for batch in map(_Batch, parts(plan, size, shards=inner_shape(chunks.chain) is not None))
        for number, copy in enumerate(batch.plan.copies())
    )
    # Where requests do not wait, one thread sends what all threads of the kernel encode.
    crew = threads.Crew(1) if store.traits.concurrency is None else threads.crew(store, value.nbytes, held)
    with batch(store) as within:
        within(threads.run, put, tasks, len(plan), crew, partial(_report, plan, ()))


# -- the plain path -------------------------------------------------------------------------------


def _write_each(chunks: Chunks, plan: Plan, work: threads.Work, nbytes: int, progress: Progress | None) -> None:
    """Do some work for each chunk of a plan."""

    def work_and_tell(copy: Copy) -> None:
        work(copy)
        if progress is not None:
            progress.advance(chunks.key(copy.coords))

    _run(
        chunks,
        work if progress is None else work_and_tell,
        plan.copies(),
        len(plan),
        nbytes,
        partial(_report, plan, ()),
    )


def _run(
    chunks: Chunks, work: threads.Work, copies: Iterable[Copy], count: int, nbytes: int, stopped: threads.Stopped
) -> None:
    """Write chunks one by one, while the kernel writes none of the array: it takes no locks of single chunks."""
    crew = threads.crew(chunks.store, nbytes, nbytes // max(count, 1))
    alone = Apart("parts")
    with batch(chunks.store) as within, alone:
        alone.wait(chunks.place)
        within(threads.run, work, copies, count, crew, stopped)


def write_chunk(chunks: Chunks, value: AnyArray, to_end: bool, copy: Copy) -> None:
    """Write one chunk in plain Python: the reference that the kernel is tested against."""
    bound, key, data = chunks.chain.bound[copy.shape], chunks.key(copy.coords), value[copy.outside]
    if to_end:
        starts = [pick.start for pick in copy.inside if isinstance(pick, slice)]
        copy = copy._replace(inside=tuple(map(slice, starts, copy.shape)))
        data = _padded(data, tuple(map(operator.sub, copy.shape, starts)), bound)
    try:
        if copy.whole and data.shape == copy.shape:
            raw = encoded(chunks, bound, data.astype(bound.dtype, copy=False))
            with chunks.store.lock_here(key):  # a thread that writes a part must not store its older copy over it
                _put(chunks, key, raw)
            return
        changed = _changed if bound.shard is None else _changed_shard
        update_chunk(chunks, copy.coords, partial(changed, chunks, bound, copy, data))
    except EncodeError as error:
        raise chunks.refused(error, copy.coords) from error


def update_chunk(chunks: Chunks, coords: Coords, change: Callable[[Old | None], Encoded | list[Part] | None]) -> None:
    """Change the bytes of a chunk, so that no other change of it is lost; `change` may be called again."""
    key = chunks.key(coords)
    chunks.indexes.drop(key)

    def changed(old: Old | None) -> Sequence[Part] | None:
        new = change(old)
        return new if new is None or isinstance(new, list) else parts_of(new)

    chunks.store.splice(key, changed)


def _changed(chunks: Chunks, bound: BoundChain, copy: Copy, data: AnyArray, old: Old | None) -> Encoded | None:
    """Return the bytes of a chunk after a write of a part; all that the array has of it repairs damage."""
    try:
        chunk = load(chunks, bound, copy.coords, old)
    except CorruptChunkError:
        if not copy.whole:
            raise
        return encoded(chunks, bound, _padded(data, bound.shape, bound), old)
    copy.put(chunk, data)
    return encoded(chunks, bound, chunk, old)


def _changed_shard(
    chunks: Chunks, bound: BoundChain, copy: Copy, data: AnyArray, old: Old | None
) -> Encoded | list[Part] | None:
    """Do as `_changed` for a shard, in which only the inner chunks that change are encoded anew."""
    assert isinstance(bound.shard, BoundShard)
    try:
        return _with_inner(bound.shard, copy, data, old, keep_empty=_keeps(chunks, old))
    except (EncodeError, UnsupportedCodecError):
        raise  # what is stored is sound
    except (CodecError, ShortReadError) as error:
        if not copy.whole:
            raise chunks.corrupt(error, copy.coords) from error
        return encoded(chunks, bound, _padded(data, bound.shape, bound), old)


def _with_inner(
    shard: BoundShard, copy: Copy, data: AnyArray, old: Old | None, *, keep_empty: bool
) -> list[Part] | None:
    """Return a shard after writing what a copy picks; None if nothing but fill values is left."""
    dtype = shard.spec.dtype.numpy
    plan, work = plan_within(shard, copy), work_within(shard, copy, data.astype(dtype, copy=False))
    stored = stored_parts(shard, old)
    flags = kernel.KEEP_EMPTY * keep_empty
    raws, statuses = encode(shard.chain, plan, work, flags) if _has_whole(plan) else ([], bytearray())
    changed: dict[int, Buffer | None] = {}
    for place, inner in enumerate(plan.copies()):
        number = shard.index.number(inner.coords)
        if statuses and statuses[place] in (kernel.OK, kernel.EMPTY):
            changed[number] = raws[place]
            continue
        if inner.whole:
            chunk = np.asarray(work[inner.outside])
        else:
            chunk = _load_inner(shard, old, stored.get(number), inner)
            inner.put(chunk, work[inner.outside])
        changed[number] = shard.encode_inner(chunk, inner.coords, keep_empty=keep_empty)
    if not keep_empty and all(raw is None for raw in changed.values()) and stored.keys() <= changed.keys():
        return None
    return replaced(shard, stored, changed)


def _load_inner(shard: BoundShard, old: Old | None, part: Part | None, copy: Copy) -> AnyArray:
    """Return an inner chunk to be changed."""
    if isinstance(part, Kept):
        assert old is not None
        part = old.read(part.start, part.length)
    if part is None:
        return np.full(copy.shape, shard.spec.fill, shard.spec.dtype.numpy)
    try:
        return np.array(shard.chain.bound[copy.shape].decode(part))
    except CodecError as error:
        raise inner_error(error, copy.coords) from error


def write_fields(chunks: Chunks, plan: Plan, value: AnyArray, fields: str | list[str]) -> None:
    """Write some fields of structs; the others stay, so that every chunk is read before it is written."""

    def write_one(copy: Copy) -> None:
        bound = chunks.chain.bound[copy.shape]

        def change(old: Old | None) -> Encoded | None:
            chunk = load(chunks, bound, copy.coords, old)
            copy.put(chunk[fields], value[copy.outside])
            return encoded(chunks, bound, chunk, old)

        try:
            update_chunk(chunks, copy.coords, change)
        except EncodeError as error:
            raise chunks.refused(error, copy.coords) from error

    reporting(partial(_write_each, chunks, plan, write_one, value.nbytes), plan, "written")


# -- one chunk ------------------------------------------------------------------------------------


def load(chunks: Chunks, bound: BoundChain, coords: Coords, old: Old | None) -> AnyArray:
    """Return a chunk to be changed, from its bytes, which are not read if they are far too many."""
    if old is None:
        return np.full(bound.shape, bound.fill, bound.dtype)
    try:
        if old.size > bound.encoded_bound:  # else there is nothing to check
            chunks.check_size(coords, bound, old.size)
        raw = old.read(0, old.size)
        chunk = bound.decode(raw)
        # An uncompressed chunk is a view of its bytes: no copy, if the store has read them for this call only.
        fresh = isinstance(raw, memoryview) and not raw.readonly and np.may_share_memory(chunk, np.asarray(raw))
        return np.array(chunk, bound.dtype, copy=not fresh or None)
    except UnsupportedCodecError:
        raise
    except (CodecError, ShortReadError) as error:
        raise chunks.corrupt(error, coords) from error


def encoded(chunks: Chunks, bound: BoundChain, chunk: AnyArray, old: object = None) -> Encoded | None:
    """Return the bytes to store, or None for a chunk of fill values that need not be stored."""
    keep = _keeps(chunks, old)
    if not keep and equals_fill(chunk, bound.fill):
        return None
    return bound.encode(chunk) if bound.shard is None else bound.shard.encode(chunk, keep_empty=keep)


def _keeps(chunks: Chunks, old: object) -> bool:
    """Return whether fill values are stored as such, in place of an old value or of None."""
    return chunks.config.write_empty_chunks or (old is not None and chunks.store.traits.optimistic)


def _put(chunks: Chunks, key: str, raw: Encoded | None) -> None:
    chunks.indexes.drop(key)
    if raw is None:
        chunks.store.delete([key])
    else:
        chunks.store.write(key, raw)


def _padded(data: AnyArray, shape: Shape, bound: BoundChain) -> AnyArray:
    """Return the data followed by fill values, along each axis."""
    if data.shape == shape:
        return data
    padded = np.full(shape, bound.fill, bound.dtype)
    padded[tuple(map(slice, data.shape))] = data
    return padded


def copy_chunks(source: Chunks, target: Chunks, grid: ChunkGrid) -> None:
    """Copy the bytes of another array's chunks as they are; grid and codecs must be the same."""

    def copy(item: tuple[Coords, str]) -> None:
        raw = source.store.get(item[1])
        if raw is not None:
            target.store.put(target.key(item[0]), raw)

    inside = [c for c in source.stored(grid.ndim) if all(map(operator.lt, c[0], grid.grid_shape))]
    _check_not_stored(source, grid, {coords for coords, _ in inside})
    crew = threads.crew(threads.farther(source.store, target.store), len(inside) << 20)
    with batch(target.store) as within:
        within(threads.run, copy, inside, len(inside), crew)


def _check_not_stored(source: Chunks, grid: ChunkGrid, stored: Set[Coords]) -> None:
    """Raise if a chunk that is not stored may not be missing, or something is in its place, or in that of a directory.

    A listing leaves out what is no value, and a copy would have fill values for it. Reading says what it is.
    """
    if len(stored) < prod(grid.grid_shape) and not source.config.read_missing_chunks:
        source.check_missing(next(coords for coords in grid.all_chunk_coords() if coords not in stored))
    files = source.store.list(source.prefix) if source.store.ability(Folders) is not None else ()
    for key in (*(key for key, _ in obstacles(source.store, source.prefix)), *files):
        below = key[len(source.prefix) :]
        while below.count("/") <= grid.ndim:
            coords = source.keys.decode_chunk_key(below, grid.ndim)
            if coords is not None:
                if coords not in stored and all(map(operator.lt, coords, grid.grid_shape)):
                    source.store.read(source.key(coords))
                    source.check_missing(coords)
                break
            below += "/0"


# -- what was written when an error stopped it ----------------------------------------------------


def _report(
    plan: Plan,
    later: Iterable[Copy],
    error: BaseException,
    failed: list[tuple[Any, BaseException]],
    left: Iterable[Any],
) -> None:
    """Say on an error which chunks of a plan were written, which failed, and which were not tried: `left` and `later`.

    As the attributes `written`, `failed` and `not_tried`, lists of coordinates, and as a note for readers. Of a plan
    with very many chunks only those that failed are listed; the other two are None.
    """
    count = len(plan)
    if count < 2:
        return
    broken = [_coords(task) for task, _ in failed]
    if count > _LISTED:
        error.__dict__.update(written=None, failed=broken, not_tried=None)
        error.add_note(f"of {count} chunks, failed: {_listed(broken)}")
        return
    not_tried = [*map(_coords, chain(left, later))]
    unwritten = {*not_tried, *broken}
    written = [copy.coords for copy in plan.copies() if copy.coords not in unwritten]
    facts = {"written": written, "failed": broken, "not_tried": not_tried}
    error.__dict__.update(facts)
    error.add_note("; ".join(f"{words.replace('_', ' ')}: {_listed(coords)}" for words, coords in facts.items()))


def _coords(task: Copy | tuple[_Batch, int, Copy]) -> Coords:
    return task.coords if isinstance(task, Copy) else task[2].coords


def _listed(coords: Sequence[Coords]) -> str:
    if not coords:
        return "no chunk"
    shown = ", ".join(map(str, coords[:_SHOWN]))
    return f"{len(coords)} chunk{'s' * (len(coords) > 1)} {shown}{', …' * (len(coords) > _SHOWN)}"
