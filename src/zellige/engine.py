"""Motion: carrying out plans. One function reads a chunk, one writes a chunk; the pool calls them.

Reading: store -> decode -> copy into the output. Writing: gather -> (read and change, under the key's
lock) -> encode -> store. Chunks that hold only the fill value are not stored, unless asked for.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from zellige import kernel, pool, scratch
from zellige.codecs.base import Shard
from zellige.codecs.chain import BoundChain, CodecChain
from zellige.config import ArrayConfig, told
from zellige.dtypes.fill import equals_fill
from zellige.errors import (
    ChunkNotFoundError,
    CodecError,
    ConflictError,
    CorruptChunkError,
    EncodeError,
    ShortReadError,
    UnsupportedCodecError,
)
from zellige.grid import ChunkGrid, Unsettled
from zellige.metadata import ChunkKeyEncoding
from zellige.plans import Plan, Request, Row, Rows, Target, Tasks, assign, copy_rows, grouped, parts, shard_table, table
from zellige.shards import GAP, IndexCache, ShardReader, StaleIndexError
from zellige.stopped import Done, report
from zellige.stores import Store
from zellige.types import AnyArray, Buffer, Coords, Encoded, Old, Part, Shape

_TRIES = 16
_PART = 1 << 16  # chunks that the kernel is told of at once
_UNKNOWN = object()
_STRIPS = 16 << 20  # bytes of large chunks that are read together, a strip across all of them at a time
_SHARES = 8  # of those for each thread, so that all end at about the same time
_ROW = 4 << 20  # bytes of small chunks that are read or written together: many, so that threads seldom change


class Prepared(NamedTuple):
    """What the kernel is told of an array whose chunks are files."""

    base: bytes
    """The directory of the store, up to the last `/`."""
    pieces: tuple[bytes, ...]
    """What is around the numbers in keys."""
    code: bytes
    """The program."""
    inner: Shape | None
    """The shape of inner chunks, if chunks are shards."""


class Engine:
    """Reads and writes the chunks of one array; made once for each handle."""

    __slots__ = (
        *("store", "prefix", "keys", "_key_form", "chain", "config", "indexes", "_merging", "unsettled"),
        *("_rank", "_kernel"),
    )

    def __init__(
        self, store: Store, prefix: str, keys: ChunkKeyEncoding, rank: int, chain: CodecChain, config: ArrayConfig
    ) -> None:
        self.store = store if config.durability is None else store.with_durability(config.durability)
        if store.concurrency is not None:
            from zellige.turns import YieldingStore  # only for those who wait

            self.store = YieldingStore(self.store)
        self.prefix, self.chain, self.config = prefix, chain, config
        self.keys = keys
        self._rank, self._kernel = rank, _UNKNOWN
        # `c/%d/%d`: filled in for every chunk without calling anything.
        self._key_form = prefix.replace("%", "%%") + keys.encode_chunk_key(("%d",) * rank)  # type: ignore[arg-type]
        self.indexes = IndexCache()
        self.unsettled: Unsettled | None = None
        gap = config.sharding_coalesce_max_gap_bytes
        if gap is None:
            gap = max(store.gap, GAP) if store.concurrency is None else store.gap
        self._merging = gap, config.sharding_coalesce_max_bytes

    def key(self, coords: Coords) -> str:
        """The store key of a chunk."""
        return self._key_form % coords

    def _tell(self, verb: Literal["read", "write", "write_fields"], plan: Plan, *given: Any, **options: Any) -> None:
        """Do the same, and report each chunk to those who want to know."""
        from zellige.telling import telling

        with telling(self, plan, "read" if verb == "read" else "written") as engine:
            getattr(engine, verb)(plan, *given, **options)

    # -- the kernel -------------------------------------------------------------------------------

    @property
    def kernel(self) -> Prepared | None:
        """What the kernel is told of this array, made on first use; None if it is not for the kernel."""
        if self._kernel is _UNKNOWN:
            self._kernel = self._prepared()
        return self._kernel  # type: ignore[return-value]

    def _prepared(self) -> Prepared | None:
        base = self.store.local_base
        if base is None or self.unsettled is not None:
            return None
        from zellige.kernel.program import inner_shape, program  # only for those who read files

        code = program(self.chain, next(iter(self.chain.bound)))
        if code is None:
            return None
        form = self.keys.encode_chunk_key(("%d",) * self._rank)  # type: ignore[arg-type]
        first, *others = map(os.fsencode, form.split("%d"))
        return Prepared(os.fsencode(base), (os.fsencode(self.prefix) + first, *others), code, inner_shape(self.chain))

    def _read_files(self, plan: Plan, out: AnyArray) -> bool:
        """Read by the kernel, and what it leaves by the plain path; False if this is not for the kernel."""
        how = self.kernel
        if how is None or kernel.native is None or out.dtype != self.chain.dtype.numpy:
            return False
        fill, follow, threads = self.config.read_missing_chunks, self.store.follows_links, pool.workers()
        for part, work in parts(plan, out, self._part(plan)):
            statuses = bytearray(len(part))
            rows = table(part) if how.inner is None else shard_table(part, how.inner)
            if rows is None:
                return False
            if kernel.native.read_files(how.base, how.pieces, follow, rows, how.code, work, statuses, fill, threads):
                for number in np.flatnonzero(np.frombuffer(statuses, np.uint8)).tolist():
                    # As a whole, so that what is wrong shows. Not the method of one who reports each chunk.
                    Engine._read_chunk(self, work, part, part.request(number), entire=True)
            self._advance(part)
        return True

    def _part(self, plan: Plan) -> int:
        """How many chunks of a plan the kernel is told of at once."""
        return _PART

    def _advance(self, part: Plan) -> None:
        """Called when a part of a plan is done."""

    # -- reading ----------------------------------------------------------------------------------

    def read(self, plan: Plan, out: AnyArray) -> None:
        """Fill the work array from the chunks of the plan."""
        if told.get() is not None:
            self._tell("read", plan, out)
            return
        first, times = self._first(plan)
        if first is None or self._read_files(plan, out):
            return  # nothing is picked, or all is done
        kept = self.store.keeps_decoded and first.shard is None and not out.dtype.hasobject
        work = partial(self._read_kept if kept else self._read_chunk, out, plan)
        if self.store.concurrency is not None:
            self._run_waiting(work, plan, first, out.nbytes)
        elif (little := first.at_once(out.size / len(plan), plan.planes, self.store.gap)) is not None:
            pool.run(work, plan, little)
        elif not kept and (rows := self._rows(plan, first, times, out)):
            together = self._read_strips if rows.large else self._read_row
            pool.run(partial(together, out, plan), rows, int(first.decode_work * times * len(plan) / len(rows)))
        else:
            pool.run(work, plan, int(first.decode_work * times))

    def _read_strips(self, out: AnyArray, plan: Plan, row: Row) -> None:
        """Read large uncompressed chunks side by side, a strip across all of them at a time."""
        target, widths, keys = out[row.box], row.sizes[-1], row.keys(self._key_form)
        if len(widths) < 2 or False in row.wholes or not self._read_pieces(keys, row.shape, widths, target):
            for request in row.wanted:
                self._read_chunk(target, plan, request)

    def _read_pieces(self, keys: Sequence[str], shape: Shape, widths: Sequence[int], target: AnyArray) -> bool:
        """Read whole chunks side by side piece by piece; declines if one is missing, or must be read as a whole."""
        from zellige.gathering import read_strips  # only for those who read much

        try:
            return read_strips(self.store, keys, self.chain.bound[shape].dtype, shape, widths, target)
        except OSError:
            return False  # as a whole, which names the one that cannot be read

    def _read_row(self, out: AnyArray, plan: Plan, row: Row) -> None:
        """Read chunks side by side, and copy them row by row."""
        target = out[row.box]
        flat = self._joined(row)
        if flat is None:
            slab = target if len(row.numbers[-1]) == 1 else scratch.array("row", target.shape, target.dtype)
            for request in row.wanted:
                self._read_chunk(slab, plan, request)
            if slab is not target:
                target[...] = slab
            return
        from zellige.gathering import scatter_row  # only for those who read many chunks

        scatter_row(target, row, self.chain.bound[row.shape].dtype, flat)

    def _joined(self, row: Row) -> Buffer | None:
        """The elements of chunks that are read and decoded together, one after the other; None if that cannot be."""
        first = self.chain.bound[row.shape]
        total = sum(sizes := row.nbytes(first.dtype.itemsize))
        if (False in row.wholes and first.strides is not None) or not first.takes_rows or total > 2 * _ROW:
            return None
        into = scratch.buffer("chunks", total + 1) if first.is_plain else None
        raws = self.store.borrow_many(row.keys(self._key_form), into)
        if None in raws:
            for coords, raw in zip(row.coords, raws, strict=True):
                if raw is None:
                    self._check_missing(coords, self.key(coords))
        try:
            return first.decode_many(raws, sizes, into)
        except CodecError:
            return None  # one by one, which names the one that is damaged

    def _read_chunk(self, out: AnyArray, plan: Plan, request: Request, *, entire: bool = False) -> None:
        """Read what a request picks from a chunk; with `entire` not by parts of its bytes, even if few would do."""
        coords, shape, inside, outside, whole = request
        bound = self.chain.bound[shape]
        key = self._key_form % coords
        try:
            if bound.shard is not None:
                found = self._read_shard(key, bound.shard, out, plan, request)
            elif (
                bound.in_pieces
                and self.store.in_pieces
                and whole
                and plan.order is None
                and self._read_pieces([key], shape, shape[-1:], out[outside])
            ):
                found = True
            elif (
                bound.strides is None
                or whole
                or entire
                or (self.unsettled is not None and shape != self.unsettled.chunk_shape)
                or (part := bound.part(inside, plan.order, self.store.gap)) is None
            ):
                raw = self.store.borrow(key)
                found = raw is not None
                # Straight into the output, where a chunk spans all axes but the first of it.
                direct = whole and out.shape[1:] == shape[1:]
                if raw is not None and not (direct and bound.decode_into(raw, out[outside])):
                    all_of_it = whole or not bound.can_start or self.unsettled is not None
                    chunk = bound.decode(raw) if all_of_it else bound.decode_for(raw, inside, plan.order)
                    assign(out, outside, (chunk if plan.order is None else chunk.transpose(plan.order))[inside])
            else:
                parts = self._ranges(key, part.spans)
                found = parts is not None
                if parts is not None:
                    assign(out, outside, part.decode(parts))
        except UnsupportedCodecError:
            raise
        except (CodecError, ShortReadError) as error:
            raw = self.store.borrow(key) if self.unsettled is not None else None
            other = None if raw is None else self._in_other_shape(coords, bound, raw)
            if other is None:
                raise self._corrupt(error, coords, key) from error
            out[outside] = (other if plan.order is None else other.transpose(plan.order))[inside]
            return
        if not found:
            self._check_missing(coords, key)
            out[outside] = bound.fill

    def _read_kept(self, out: AnyArray, plan: Plan, request: Request) -> None:
        """`_read_chunk` where the store keeps decoded chunks: always whole ones."""
        coords, shape, inside, outside, _ = request
        bound, key = self.chain.bound[shape], self._key_form % coords
        try:
            chunk = self.store.decoded(key, bound, bound.decode)
        except UnsupportedCodecError:
            raise
        except CodecError as error:
            raise self._corrupt(error, coords, key) from error
        if chunk is None:
            self._check_missing(coords, key)
            out[outside] = bound.fill
        else:
            out[outside] = (chunk if plan.order is None else chunk.transpose(plan.order))[inside]

    def _ranges(self, key: str, spans: list[tuple[int, int]]) -> Sequence[Buffer] | None:
        """Some ranges of a chunk; None if it is missing."""
        if len(spans) > 1:
            return self.store.get_ranges(key, spans)
        piece = self.store.borrow_range(key, *spans[0])
        return None if piece is None else (piece,)

    def _read_shard(self, key: str, shard: Shard, out: AnyArray, plan: Plan, request: Request) -> bool:
        """Read a part of a shard; again from the start if it was rewritten since its index was read."""
        _, _, inside, outside, _ = request
        target = Target(out, outside)
        for _ in range(_TRIES):
            try:
                reader = ShardReader(self.store, key, self.indexes, self._merging)
                found = shard.read(reader, inside, plan, target.array, pool.run)
            except StaleIndexError:
                self.indexes.drop(key)
                continue
            if found:
                target.write_back()
            return found
        raise ConflictError(f"key {key!r} in {self.store!r} kept changing while it was read; try again")

    def _corrupt(self, error: Exception, coords: Coords, key: str) -> CorruptChunkError:
        what, facts = self._named(error, coords, key)
        return CorruptChunkError(f"{what} is damaged: {error}; writing the whole chunk repairs it", **facts)

    def _refused(self, error: EncodeError, coords: Coords, key: str) -> EncodeError:
        what, facts = self._named(error, coords, key)
        return EncodeError(f"{what} cannot be encoded: {error}", **facts)

    def _named(self, error: Exception, coords: Coords, key: str) -> tuple[str, dict[str, Any]]:
        """The words and the facts that name the chunk which an error is about."""
        name = "/" + self.prefix.rstrip("/")
        facts = {"array": name, "coords": coords, "key": key, "inner": getattr(error, "inner", None)}
        return f"array {name!r}, chunk {coords}, key {key!r}", facts

    def _check_missing(self, coords: Coords, key: str) -> None:
        if not self.config.read_missing_chunks:
            raise ChunkNotFoundError(
                f"chunk {coords}, key {key!r} is missing; set read_missing_chunks=True to read it as fill",
                coords=coords,
                key=key,
            )

    def _first(self, plan: Plan) -> tuple[BoundChain | None, float]:
        """The chain for the first chunk of a plan, and how many times as large as that one they are on average."""
        first = next(plan.requests(0, 1), None)
        if first is None:
            return None, 0
        return self.chain.bound[first[1]], 1 if len(plan) == 1 else plan.usual / prod(first[1])

    def _run_waiting(
        self, work: pool.Work, plan: Plan, first: BoundChain, picked: int, stopped: pool.Stopped | None = None
    ) -> None:
        """Work on chunks of a store whose requests are waited for: many at once, but few decode or encode.

        `picked` is how many bytes of elements the plan picks in all.
        """
        from zellige.turns import in_turn

        # Of a shard only what is picked is fetched.
        held = plan.largest * first.dtype.itemsize if first.shard is None else picked // len(plan)
        pool.run(in_turn(work), plan, 0, stopped, pool.crowd(self.store, held))

    def _rows(self, plan: Plan, first: BoundChain, times: float, work: AnyArray, *, write: bool = False) -> Rows | None:
        """The plan in rows of chunks, where that is faster, and still leaves something for every thread."""
        count, small = len(plan), self.store.near and first.shard is None
        if count < 2 or not small or work.dtype.hasobject or not work.flags.c_contiguous:
            return None
        if (total := count * first.nbytes * times) > 2 * work.nbytes:
            return None  # it picks little from each, but they would all be there at once
        shared = 1 if total < pool.SMALL_TOTAL else 2 * pool.workers()
        # Fewer if they are decoded, so that they stay in the cache until they are copied.
        most = min(_ROW if write or first.is_plain else _ROW // 4, work.nbytes // shared)
        if write or not first.is_plain:
            return grouped(plan, work.itemsize, most, "write" if write else "decode")
        can = self.store.in_pieces and first.takes_rows and work.dtype == first.dtype
        strips = min(_STRIPS, work.nbytes // (_SHARES * pool.workers())) if can else 0
        return grouped(plan, work.itemsize, most, "copy", strips)

    # -- writing ----------------------------------------------------------------------------------

    def write(self, plan: Plan, value: AnyArray, *, to_end: bool = False) -> None:
        """Write the work array into the chunks of the plan.

        What a chunk holds beyond the end of the array stays, because another handle may know of a later end. With
        `to_end`, where no other can, the fill value goes there; then the plan reaches up to the end of every axis.
        """
        if told.get() is not None:
            self._tell("write", plan, value, to_end=to_end)
            return
        first, times = self._first(plan)
        if first is None:
            return  # nothing is picked
        rows, work = self._rows(plan, first, times, value, write=True), int(first.encode_work * times)
        with self.store.batch() as joined:
            if self.store.concurrency is not None:
                work_on = joined(partial(self._write_chunk, value, plan, to_end))
                self._run_waiting(work_on, plan, first, value.nbytes, partial(report, plan))
            elif rows is None:
                pool.run(joined(partial(self._write_chunk, value, plan, to_end)), plan, work, partial(report, plan))
            else:
                work_on = joined(partial(self._write_row, value, plan, to_end))
                pool.run(work_on, rows, work * len(plan) // len(rows), partial(report, plan))

    def _write_row(self, value: AnyArray, plan: Plan, to_end: bool, row: Row) -> None:
        """Write chunks side by side."""
        source = value[row.box]
        if self._put_together(source, row):
            return
        slab = scratch.array("row", source.shape, source.dtype)
        slab[...] = source
        with Done() as done:
            for request in row.wanted:
                self._write_chunk(slab, plan, to_end, request)
                done.append(self.key(request[0]))

    def _put_together(self, values: AnyArray, row: Row) -> bool:
        """Encode and store whole chunks together; declines others, and if one need not be stored."""
        from zellige.gathering import gather_row  # only for those who write

        first = self.chain.bound[row.shape]
        if values.dtype != first.dtype or not first.takes_rows or False in row.wholes:
            return False
        sizes = row.nbytes(first.dtype.itemsize)
        if sum(sizes) != values.nbytes:
            return False  # some reach beyond the end of the array
        flat = scratch.buffer("chunks", values.nbytes)
        empty = gather_row(values, row, first, sizes, flat)
        if empty and not self.config.write_empty_chunks:
            return False
        try:
            raws = first.encode_many(flat, sizes)
        except EncodeError:
            return False  # one by one, which names the one that is refused
        with Done() as done:
            self.store.put_many(row.keys(self._key_form), raws, done)
        return True

    def _write_chunk(self, value: AnyArray, plan: Plan, to_end: bool, request: Request) -> None:
        coords, shape, inside, outside, whole = request
        bound = self.chain.bound[shape]
        key = self._key_form % coords
        data = value[outside]
        if to_end:
            starts = [pick.start for pick in inside if isinstance(pick, slice)]
            inside = tuple(map(slice, starts, shape))
            data = _padded(data, tuple(map(operator.sub, shape, starts)), bound)
        try:
            if whole and data.shape == shape:
                self._put_whole(key, bound, data)
                return
            change = _Change(coords, key, bound, inside, plan, data, whole)
            if bound.shard is None:
                self._update(key, partial(self._changed, change))
            else:
                self.indexes.drop(key)
                self.store.splice(key, partial(self._spliced, change))
        except EncodeError as error:
            raise self._refused(error, coords, key) from error

    def _changed(self, change: _Change, raw: Buffer | None) -> Encoded | None:
        """The bytes of a chunk after a part was written; one that is all that the array has of it repairs damage."""
        bound = change.bound
        try:
            chunk = self._load(change.coords, change.key, bound, raw)
        except CorruptChunkError:
            if not change.whole:
                raise
            return self._encode(bound, _padded(change.data, bound.shape, bound), raw)
        change.make(chunk)
        return self._encode(bound, chunk, raw)

    def _spliced(self, change: _Change, old: Old | None) -> Sequence[Part] | None:
        """`_changed` for a shard, in which only the inner chunks that change are encoded anew."""
        coords, key, bound, inside, plan, data, whole = change
        assert bound.shard is not None
        try:
            return bound.shard.update(old, inside, plan, data, pool.run, keep_empty=self._keeps(old))
        except (EncodeError, UnsupportedCodecError):
            raise  # what is stored is sound
        except (CodecError, ShortReadError) as error:
            raw = None if old is None else old.read(0, old.size)
            other = None if raw is None else self._in_other_shape(coords, bound, raw)
            if other is not None:
                change.make(other)
            elif whole:
                other = _padded(data, bound.shape, bound)
            else:
                raise self._corrupt(error, coords, key) from error
            return self._encode(bound, other, raw)  # type: ignore[return-value]  # a shard always comes in parts

    def write_fields(self, plan: Plan, value: AnyArray, fields: str | list[str]) -> None:
        """Write some fields of structs; the others stay, so that every chunk is read before it is written."""
        if told.get() is not None:
            self._tell("write_fields", plan, value, fields)
            return
        first, times = self._first(plan)
        if first is None:
            return  # nothing is picked
        with self.store.batch() as joined:
            work_on = joined(partial(self._write_fields, value, fields, plan))
            if self.store.concurrency is not None:
                self._run_waiting(work_on, plan, first, value.nbytes, partial(report, plan))
            else:
                pool.run(work_on, plan, int(first.encode_work * times), partial(report, plan))

    def _write_fields(self, value: AnyArray, fields: str | list[str], plan: Plan, request: Request) -> None:
        coords, shape, inside, outside, _ = request
        bound, key = self.chain.bound[shape], self._key_form % coords

        def change(raw: Buffer | None) -> Encoded | None:
            chunk = self._load(coords, key, bound, raw)
            part = chunk[fields]
            (part if plan.order is None else part.transpose(plan.order))[inside] = value[outside]
            return self._encode(bound, chunk, raw)

        try:
            self._update(key, change)
        except EncodeError as error:
            raise self._refused(error, coords, key) from error

    def _update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> None:
        self.indexes.drop(key)
        self.store.update(key, change)

    def _put_whole(self, key: str, bound: BoundChain, data: AnyArray) -> None:
        """Write a chunk without reading it."""
        if bound.shard is not None or data.flags.c_contiguous or bound.dtype.hasobject:
            chunk = data.astype(bound.dtype, copy=False)
        else:
            chunk = _scratch_chunk(bound)  # in memory that is warm already
            copy_rows(chunk, data)
        raw = self._encode(bound, chunk)
        # A thread that writes a part of this chunk must not store its older copy over this one.
        with self.store.exclusive_here(key):
            self._put(key, raw)

    def _load(self, coords: Coords, key: str, bound: BoundChain, raw: Buffer | None) -> AnyArray:
        """A chunk to be changed, in this thread's scratch."""
        if raw is None:
            chunk = _scratch_chunk(bound)
            chunk[...] = bound.fill
            return chunk
        try:
            found = bound.decode(raw)
            if found.flags.carray and found.dtype == bound.dtype:  # in scratch; what belongs to others is read-only
                return found
            chunk = _scratch_chunk(bound)
            chunk[...] = found
        except UnsupportedCodecError:
            raise
        except CodecError as error:
            other = self._in_other_shape(coords, bound, raw)
            if other is None:
                raise self._corrupt(error, coords, key) from error
            return other
        return chunk

    def _in_other_shape(self, coords: Coords, bound: BoundChain, raw: Buffer) -> AnyArray | None:
        """A chunk that a resize which is not done has left in the shape of another grid; None if it is damaged."""
        for grid in () if self.unsettled is None else self.unsettled.grids():
            spec = grid[coords]
            if spec is not None and spec.codec_shape != bound.shape:
                with suppress(CodecError):
                    found = self.chain.bound[spec.codec_shape].decode(raw)
                    return _padded(found[tuple(map(slice, bound.shape))], bound.shape, bound)
        return None

    def _encode(self, bound: BoundChain, chunk: AnyArray, raw: Buffer | None = None) -> Encoded | None:
        """The bytes to store, or None for a chunk of fill values that need not be stored."""
        keep = self._keeps(raw)
        if not keep and equals_fill(chunk, bound.fill):
            return None
        if bound.shard is None:
            return bound.encode(chunk)
        return bound.shard.encode(chunk, pool.run, keep_empty=keep)

    def _keeps(self, old: object) -> bool:
        """Whether fill values are stored as such, in place of an old value or of None."""
        return self.config.write_empty_chunks or (old is not None and self.store.optimistic)

    def _put(self, key: str, raw: Encoded | None) -> None:
        self.indexes.drop(key)
        self.store.write(key, raw)

    # -- stored chunks ----------------------------------------------------------------------------

    def stored(self, rank: int) -> Iterator[tuple[Coords, str]]:
        """Coordinates and keys of the chunks that are stored, inside the grid or not."""
        for key in self.store.list(self.prefix):
            coords = self.keys.decode_chunk_key(key[len(self.prefix) :], rank)
            if coords is not None:
                yield coords, key

    def count(self, grid: ChunkGrid) -> int:
        """The number of stored chunks inside a grid."""
        return sum(all(map(operator.lt, coords, grid.grid_shape)) for coords, _ in self.stored(grid.ndim))

    def copy_chunks(self, source: Engine, grid: ChunkGrid) -> None:
        """Copy the bytes of another array's chunks as they are; grid and codecs must be the same."""

        def copy(item: tuple[Coords, str]) -> None:
            raw = source.store.get(item[1])
            if raw is not None:
                self.store.put(self.key(item[0]), raw)

        inside = [c for c in source.stored(grid.ndim) if all(map(operator.lt, c[0], grid.grid_shape))]
        with self.store.batch() as joined:
            pool.run(joined(copy), Tasks(inside), 1 << 20, None, pool.crowd(pool.farther(source.store, self.store)))


class _Change(NamedTuple):
    """A part of a chunk that is written."""

    coords: Coords
    key: str
    bound: BoundChain
    inside: tuple[Any, ...]
    plan: Plan
    data: AnyArray
    whole: bool
    """Whether it is all that the array has of the chunk."""

    def make(self, chunk: AnyArray) -> None:
        """Put it into the chunk."""
        order = self.plan.order
        assign(chunk if order is None else chunk.transpose(order), self.inside, self.data)


def _padded(data: AnyArray, shape: Shape, bound: BoundChain) -> AnyArray:
    """The data followed by fill values, along each axis."""
    if data.shape == shape:
        return data
    padded = np.full(shape, bound.fill, bound.dtype)
    padded[tuple(map(slice, data.shape))] = data
    return padded


def _scratch_chunk(bound: BoundChain) -> AnyArray:
    """An uninitialised chunk in this thread's scratch; objects need memory of their own."""
    if bound.dtype.hasobject:
        return np.empty(bound.shape, bound.dtype)
    return scratch.array("chunk", bound.shape, bound.dtype)
