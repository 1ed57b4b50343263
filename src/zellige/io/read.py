"""Reading: from a plan to values in memory.

Local files whose codecs the kernel knows are read, decoded and scattered by one call without the interpreter. Other
values are fetched first, many requests in flight, and decoded in batches as they arrive. `read_chunk` is the plain
path: one chunk at a time, every codec. It looks again at whatever the kernel declines, and names what is wrong.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zellige import kernel
from zellige.codecs.chain import BoundChain, CodecChain
from zellige.codecs.sharding import BoundShard, inner_error
from zellige.errors import CodecError, ShortReadError, UnsupportedCodecError
from zellige.grid.edges import Edges
from zellige.grid.grid import Axis, ChunkGrid
from zellige.io import results
from zellige.io.chunks import Chunks, Files
from zellige.io.plan import Copy, Plan, Target, parts, shard_table, table
from zellige.io.shard import ShardSource, plan_within, work_within
from zellige.kernel.program import inner_shape, program_of
from zellige.settings import progress_sink
from zellige.stores import threads
from zellige.stores.abilities import DecodedChunks
from zellige.stores.base import ChangedError, retried
from zellige.types import AnyArray, Buffer, Coords

if TYPE_CHECKING:
    from zellige.display.progress import Progress
    from zellige.kernel._native import Reader

MANY = 1 << 16
"""Chunks that one call of the kernel gets."""
BATCH = 16 << 20
"""Bytes of chunks that are decoded or encoded by one call, between memory and a store."""
_STEPS = 200  # in which a progress bar moves
_MOST = 1 << 46  # elements along an axis, `Z_MOST` in `kernel.h`
_MOST_RUNS = 100_000  # of chunks of one size, which a reader copies: then it would take long to prepare


def read(chunks: Chunks, plan: Plan, out: AnyArray) -> None:
    """Fill the work array with what a plan picks from the chunks of an array."""
    reporting(partial(_read, chunks, plan, out), plan, "read")


def reporting(work: Callable[[Progress | None], object], plan: Plan, verb: str) -> None:
    """Do some work for each chunk of a plan, and report its progress where `zellige.progress` is in force."""
    if progress_sink.get() is None:
        work(None)
        return
    from zellige.display.progress import Progress  # needed only if progress is shown

    with Progress(None, len(plan), verb, "chunks") as progress:
        work(progress)


def _read(chunks: Chunks, plan: Plan, out: AnyArray, progress: Progress | None) -> None:
    if not len(plan):
        return
    files = chunks.files if out.dtype == chunks.chain.dtype.numpy else None
    if files is None or not _read_files(chunks, files, plan, out, progress):
        _read_values(chunks, plan, out, progress)


def part_size(plan: Plan, progress: Progress | None) -> int:
    """Return how many chunks one call of the kernel gets: few enough that a bar moves, enough for all threads."""
    return MANY if progress is None else max(4 * threads.workers(), len(plan) // _STEPS)


def _read_files(chunks: Chunks, files: Files, plan: Plan, out: AnyArray, progress: Progress | None) -> bool:
    """Read files by the kernel, and what it leaves by the plain path; False if the plan is not for the kernel."""
    assert kernel.native is not None
    base, pieces, program, inner = files
    fill, follow = chunks.config.read_missing_chunks, chunks.store.traits.follow_links
    for part in parts(plan, part_size(plan, progress), shards=inner is not None):
        rows = table(part) if inner is None else shard_table(part, inner)
        if rows is None:
            return False
        statuses = bytearray(len(part))
        if kernel.native.read_files(base, pieces, follow, rows, program, out, statuses, fill, threads.workers()):
            left = [part.copy(number) for number in _not_ok(statuses)]
            crew = threads.crew(chunks.store, prod(left[0].shape) * out.itemsize * len(left))
            threads.run(partial(read_chunk, chunks, out), left, len(left), crew)
        if progress is not None:
            progress.advance(chunks.key(part.copy(len(part) - 1).coords), len(part))
    return True


def _not_ok(statuses: bytearray) -> list[int]:
    found: list[int] = np.flatnonzero(np.frombuffer(statuses, np.uint8)).tolist()
    return found


# -- the kernel's reader --------------------------------------------------------------------------


def reader(chunks: Chunks, grid: ChunkGrid) -> Reader | None:
    """Prepare an array for the commonest reads, by integers and plain slices: see `kernel/reader.c`.

    None if its chunks are not files of the kernel, or its grid is not for it: the last chunk is stored shorter than the
    others, runs of equal chunks are very many, or inner chunks do not divide their shards.
    """
    files = chunks.files
    if kernel.native is None or files is None:
        return None
    axes = [_edges(axis, size) for axis, size in zip(grid.axes, files.inner or (0,) * grid.ndim, strict=True)]
    if None in axes:
        return None
    made: Reader = kernel.native.Reader(
        *(files.base, files.pieces, chunks.store.traits.follow_links, files.program),
        *(grid.shape, tuple(axes), chunks.config.read_missing_chunks),
        *(threads.workers, np.empty, results.empty, chunks.chain.dtype.numpy),
    )
    return made


def _edges(axis: Axis, inner: int) -> tuple[Buffer, Buffer] | None:
    """Return where runs of equal chunks begin, as elements and as chunk numbers, and where the last one ends."""
    sizes = axis.declared
    if not isinstance(sizes, Edges):
        if axis.nchunks and axis.chunk_size(axis.nchunks - 1) != sizes:
            return None  # the last chunk is stored shorter
        sizes = Edges.of_runs([(sizes, axis.nchunks)] if axis.nchunks and sizes < _MOST else [])
    if not 0 < sizes.total <= _MOST or len(sizes.starts) > _MOST_RUNS:
        return None
    if inner and any(size % inner for size in axis.unique_edge_lengths):
        return None
    return sizes.starts, sizes.firsts


# -- the plain path -------------------------------------------------------------------------------


def read_chunk(chunks: Chunks, out: AnyArray, copy: Copy) -> None:
    """Read one chunk in plain Python: the reference that the kernel is tested against."""
    bound = chunks.chain.bound[copy.shape]
    try:
        chunks.check_size(copy.coords, bound)
        if bound.shard is not None:
            found = _read_shard(chunks, bound, copy, out)
        else:
            chunk = _decoded(chunks, bound, copy.coords)
            found = chunk is not None
            if chunk is not None:
                out[copy.outside] = copy.of(chunk)
    except UnsupportedCodecError:
        raise
    except (CodecError, ShortReadError) as error:
        raise chunks.corrupt(error, copy.coords) from error
    if not found:
        _fill(chunks, copy, out)


def _decoded(chunks: Chunks, bound: BoundChain, coords: Coords) -> AnyArray | None:
    """Return a whole chunk, maybe one that the store has kept; None if it is missing."""
    keeper = chunks.store.ability(DecodedChunks)
    if keeper is not None:
        return keeper.decoded(chunks.key(coords), bound, bound.decode)
    found = chunks.store.read(chunks.key(coords))
    return None if found is None else bound.decode(found.parts[0])


def _fill(chunks: Chunks, copy: Copy, out: AnyArray) -> None:
    chunks.check_missing(copy.coords)
    out[copy.outside] = chunks.chain.fill


# -- values from any store ------------------------------------------------------------------------


class _Batch(NamedTuple):
    """Chunks that are decoded together."""

    plan: Plan
    values: list[Buffer | None]
    arrived: Iterator[int]
    """Counts the values that are there."""


def _read_values(chunks: Chunks, plan: Plan, out: AnyArray, progress: Progress | None) -> None:
    """Fetch the values of chunks, many requests in flight, and decode each batch when all of it is there."""
    bound = chunks.chain.bound[plan.copy(0).shape]
    # Of a shard only what is picked is fetched.
    held = out.nbytes // len(plan) if bound.shard is not None else plan.largest * bound.dtype.itemsize
    crew = threads.crew(chunks.store, held * len(plan), held)

    def done(copy: Copy) -> None:
        if progress is not None:
            progress.advance(chunks.key(copy.coords))

    if not _in_batches(chunks, bound, plan, out):

        def read_one(copy: Copy) -> None:
            _read_part(chunks, out, copy)
            done(copy)

        threads.run(read_one, plan.copies(), len(plan), crew)
        return
    decoding = allocate_lock()  # one batch at a time, by all threads of the kernel

    def fetch(task: tuple[_Batch, int, Copy]) -> None:
        batch, number, copy = task
        found = chunks.store.read(chunks.key(copy.coords))
        if found is None:
            chunks.check_missing(copy.coords)
        else:
            batch.values[number] = found.parts[0]
        if next(batch.arrived) == len(batch.values) - 1:
            with decoding:
                decode(chunks.chain, batch.plan, batch.values, out, chunks.corrupt)
        done(copy)

    size = min(MANY, max(threads.workers(), BATCH // max(held, 1)))
    # Where requests do not wait, one thread fetches what all threads of the kernel decode.
    crew = crew if chunks.store.traits.concurrency is not None else threads.Crew(1)
    threads.run(fetch, _fetches(plan, size), len(plan), crew)


def _fetches(plan: Plan, size: int) -> Iterator[tuple[_Batch, int, Copy]]:
    for part in parts(plan, size):
        batch = _Batch(part, [None] * len(part), count())
        for number, copy in enumerate(part.copies()):
            yield batch, number, copy


def _in_batches(chunks: Chunks, bound: BoundChain, plan: Plan, out: AnyArray) -> bool:
    """Return whether the kernel decodes the chunks of a plan, and all bytes of each are needed for it."""
    keeps = chunks.store.ability(DecodedChunks) is not None
    if bound.shard is not None or keeps or program_of(chunks.chain) is None:
        return False
    parts_of_chunks = bound.strides is not None and not all(p[4] for axis in plan.projections for p in axis)
    return out.dtype == chunks.chain.dtype.numpy and not parts_of_chunks


def _read_part(chunks: Chunks, out: AnyArray, copy: Copy) -> None:
    """Read one chunk by the plain path; of an uncompressed one only the bytes that are needed, if those are few."""
    bound, store = chunks.chain.bound[copy.shape], chunks.store
    part = None
    if bound.strides is not None and not copy.whole and store.ability(DecodedChunks) is None:
        part = bound.part(copy.inside, copy.order, store.traits.coalesce_gap)
    if part is None:
        read_chunk(chunks, out, copy)
        return
    try:
        found = store.read(chunks.key(copy.coords), part.spans)
        if found is not None:
            if found.size is not None and found.size != bound.encoded_size:
                raise CodecError(f"bytes: {bound.encoded_size} bytes expected, {found.size} found")
            out[copy.outside] = part.decode(found.parts)
    except ShortReadError:
        read_chunk(chunks, out, copy)  # which says how long the value is
        return
    except CodecError as error:
        raise chunks.corrupt(error, copy.coords) from error
    if found is None:
        _fill(chunks, copy, out)


# -- shards ---------------------------------------------------------------------------------------


def _read_shard(chunks: Chunks, bound: BoundChain, copy: Copy, out: AnyArray) -> bool:
    """Read a part of a shard; again from the start if it was rewritten since its index was read."""
    assert isinstance(bound.shard, BoundShard)
    shard, key = bound.shard, chunks.key(copy.coords)

    def attempt() -> bool:
        source = ShardSource(shard, chunks.store, key, chunks.indexes, chunks.merging)
        try:
            return read_inner(source, copy, out)
        except ChangedError:
            chunks.indexes.drop(key)
            raise

    return retried(chunks.store, [key], attempt, writing=False)


def read_inner(source: ShardSource, copy: Copy, out: AnyArray) -> bool:
    """Read what a copy picks from the inner chunks of a shard; False if there is no such shard."""
    shard = source.shard
    target = Target(out, copy.outside)
    plan, work = plan_within(shard, copy), work_within(shard, copy, target.array)
    everything = len(plan) == prod(shard.counts)
    if everything or shard.inner.shard is None:
        values = _all_values(source, plan) if everything else _values(source, plan)
        if values is None:
            return False
        decode(shard.chain, plan, values, work, inner_error)
    elif not _read_nested(source, plan, work):
        return False
    target.write_back()
    return True


def _all_values(source: ShardSource, plan: Plan) -> list[Buffer | None] | None:
    """Read all inner chunks by one request; None if there is no such shard."""
    raw, layout = source.whole(), source.shard.index
    if raw is None:
        return None
    index, view = layout.of(raw), memoryview(raw)
    spans = [index.span(layout.number(copy.coords)) for copy in plan.copies()]
    return [None if span is None else view[span[0] : span[0] + span[1]] for span in spans]


def _values(source: ShardSource, plan: Plan) -> list[Buffer | None] | None:
    """Read some inner chunks; None if there is no such shard."""
    spans = source.locate(copy.coords for copy in plan.copies())
    return None if spans is None else _fetched(source, plan, spans)


def _fetched(source: ShardSource, plan: Plan, spans: Sequence[tuple[int, int] | None]) -> list[Buffer | None] | None:
    """Read inner chunks at known places; an index that points beyond the end of the shard is damaged."""
    try:
        return source.read(spans)
    except ShortReadError as error:
        ends = [0 if span is None else sum(span) for span in spans]
        last, index = plan.copy(ends.index(max(ends))), source.shard.index
        raise index.bad_entry(index.number(last.coords), f"reaches beyond the end of the shard: {error}") from error


def _read_nested(source: ShardSource, plan: Plan, out: AnyArray) -> bool:
    """Read inner chunks that are shards themselves, of which parts may be enough; False if the outer one is gone."""
    shard, spans = source.shard, source.locate(copy.coords for copy in plan.copies())
    if spans is None:
        return False
    whole = [span if copy.whole else None for copy, span in zip(plan.copies(), spans, strict=True)]
    only_parts = not any(whole) and any(spans)  # reading those asks the store by itself
    found = [None] * len(spans) if only_parts else _fetched(source, plan, whole)
    if found is None:
        return False
    for copy, span, raw in zip(plan.copies(), spans, found, strict=True):
        if span is None:
            out[copy.outside] = shard.spec.fill
        elif raw is not None:
            out[copy.outside] = copy.of(shard.decode_inner(raw, copy.coords, copy.shape))
        elif not _read_part_of(source, span, copy, out):
            return False
    return True


def _read_part_of(source: ShardSource, span: tuple[int, int], copy: Copy, out: AnyArray) -> bool:
    """Read a part of an inner chunk that is a shard itself."""
    inner = source.shard.chain.bound[copy.shape].shard
    assert isinstance(inner, BoundShard)
    try:
        return read_inner(source.within(inner, *span), copy, out)
    except (CodecError, ShortReadError) as error:
        raise inner_error(error, copy.coords) from error


# -- decoding -------------------------------------------------------------------------------------


def decode(
    chain: CodecChain,
    plan: Plan,
    values: list[Buffer | None],
    out: AnyArray,
    blame: Callable[[CodecError, Coords], Exception],
) -> None:
    """Decode the chunks of a plan and copy what it picks of them; None stands for a chunk of fill values.

    Those that the kernel does not decode are decoded one by one. `blame` makes the error for a damaged one.
    """
    program = program_of(chain) if inner_shape(chain) is None and out.dtype == chain.dtype.numpy else None
    left: Sequence[int] = range(len(values))
    if kernel.native is not None and program is not None:
        statuses = bytearray(len(values))
        if not kernel.native.decode(values, table(plan), program, out, statuses, True, threads.workers()):
            return
        left = _not_ok(statuses)
    for number in left:
        copy, raw = plan.copy(number), values[number]
        if raw is None:
            out[copy.outside] = chain.fill
            continue
        try:
            chunk = chain.bound[copy.shape].decode(raw)
        except CodecError as error:
            if isinstance(error, UnsupportedCodecError) and blame is not inner_error:
                raise  # what is only unsupported here is not damaged
            raise blame(error, copy.coords) from error
        out[copy.outside] = copy.of(chunk)
