"""Changing the shape of an array: `append`, `resize`, and `start_append` for data that others write.

Each is the same five steps. *Lease*: no other writer changes the shape until it is released. *Plan*: the metadata is
read once, under the lease, and everything that can be refused is refused now. *Write*: chunks go beyond the end, where
no reader looks. *Commit*: one conditional write of the metadata shows the new shape. *Release*.

While chunks may lie beyond the end, a key beside the metadata says so, `node.PENDING`. It outlives a crash: the
next owner of the lease finds it, and removes those chunks. So a reader meets the old array or the whole new one, and
growing never shows what a killed writer left.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige.dtypes.cast import as_value
from zellige.dtypes.fill import equals_fill
from zellige.errors import BroadcastError, CodecError, ConflictError, CorruptChunkError, UnsupportedCodecError
from zellige.grid.edges import EdgeEntries, Edges
from zellige.grid.grid import ChunkGrid, ChunkSpec
from zellige.grid.parse import ChunksLike, parse_new_chunks
from zellige.io import select
from zellige.io.chunks import Chunks
from zellige.io.plan import plan_for
from zellige.io.write import encoded, load, update_chunk, write
from zellige.nodes import lease, node
from zellige.nodes.array import Array, update_metadata
from zellige.nodes.lease import Lease, Owner
from zellige.stores import threads
from zellige.stores.base import WholeValue
from zellige.stores.locks import Apart
from zellige.types import Coords, Encoded, Old, Shape

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata

_FEW = 1000  # chunks that are looked for one by one; to list a store of millions would take longer
_BEYOND = "chunks may lie beyond the end of this array; the next resize or append by zellige removes them"


def append(array: Array, data: Any, axis: int = 0, chunks: int | EdgeEntries | None = None) -> Shape:
    """Add data at the end of an axis and return the new shape. Parameters: see `Array.append`."""
    node.check_writable(array)
    value = as_value(data, array.dtype, array.config.casting)
    axis = axis_number(array, axis)
    with shape_lease(array) as held:  # one writer; the others wait, or get a ConflictError before they write anything
        check_appended(value.shape, held.grid.shape, axis)
        grid = grown(array, held.metadata, value.shape[axis], axis, chunks)
        new = tuple(slice(n if k == axis else 0, None) for k, n in enumerate(held.grid.shape))
        held.recover()
        try:
            held.announce()
            if array.store.traits.transactional:
                # The shape is not visible before the data, and some such stores take no chunk outside of it.
                held.commit(grid)
                write_to_end(array, grid, new, value)
            else:
                write_to_end(array, grid, new, value)  # beyond the end: no reader looks there
                held.commit(grid)  # one conditional write; from here on it is there
        except BaseException:
            held.undo(held.metadata)
            raise
        held.clean()
    return array.shape


def resize(array: Array, new_shape: int | Sequence[int], chunks: ChunksLike = None) -> None:
    """Change the shape; existing chunks stay as they are. Parameters: see `Array.resize`."""
    node.check_writable(array)
    shape = _parse_shape(new_shape, array.ndim)
    cut = parse_new_chunks(_by_axis(chunks, array.dimension_names or ()), array.ndim)
    with shape_lease(array) as held:  # until all is done: what others append must not be trimmed
        grid = _reshaped(array, held.metadata, shape, cut)
        held.recover()
        clear_uncovered(array._chunks, held.grid, grid)
        if not any(map(operator.lt, shape, held.grid.shape)):
            held.commit(grid)
            return
        held.announce()
        if array.store.traits.transactional:
            # icechunk hides chunks outside of a smaller shape, and would show them again when it grows.
            trim(array._chunks, grid)
            held.commit(grid)
        else:
            held.commit(grid)  # the shape first: killed here, no chunk is missing that a reader looks for
            trim(array._chunks, grid)
        held.clean()


def start_append(array: Array, length: int, axis: int = 0, chunks: int | EdgeEntries | None = None) -> PendingAppend:
    """Make room at the end of an axis for data that others write. Parameters: see `Array.start_append`."""
    node.check_writable(array)
    axis = axis_number(array, axis)
    if operator.index(length) < 0:
        raise ValueError(f"length={length} must not be negative")
    with shape_lease(array) as held:
        grid = grown(array, held.metadata, length, axis, chunks)
        held.recover()
        clear_uncovered(array._chunks, held.grid, grid)  # others may leave some of it unwritten
        kept = held.keep()
        if array.store.traits.transactional:
            held.commit(grid)
    longer = held.metadata.resized(grid)
    target = Array.from_documents(array.store, array.path, longer.to_documents(), array.config)
    return PendingAppend(array, target, held.metadata, kept)


@dataclass
class PendingAppend:
    """An append that was started: data may be written beyond the end, where no reader sees it yet."""

    target: Array
    """The array as readers see it."""
    array: Array
    """The same with its new shape."""
    _before: ArrayMetadata
    _lease: Lease | None
    """The right to change the shape; None in a transaction, which no other writer sees."""
    _is_committed: bool = False

    def commit(self) -> Shape:
        """Show the new shape to readers; raises, and changes nothing, if another process has taken over."""
        if self._lease is not None:
            with shape_lease(self.target, self._lease) as held:
                if held.grid != ChunkGrid.from_metadata(self._before):
                    raise _resized_meanwhile(self.target)
                held.commit(self.array.grid)
                held.clean()
        self._is_committed = True
        return self.target.shape

    def abort(self) -> None:
        """Remove what was written beyond the end; nothing happens after a commit, or if another has removed it."""
        if not self._is_committed and (self._lease is None or self._lease.is_held()):
            with shape_lease(self.target, self._lease) as held:
                held.undo(self._before)


# -- the lease ------------------------------------------------------------------------------------


@contextmanager
def shape_lease(array: Array, kept: Lease | None = None, *, inside: bool = False) -> Iterator[Held]:
    """Hold the right to change the shape of an array, under the lock of its metadata.

    Other writers of the shape, or of all shapes in the group, are waited for. `kept` is a right that `Held.keep`
    returned; raises if another process has taken over. `inside` is for callers that hold the lease of a group above,
    and change all of its arrays at once.
    """
    from zellige.nodes import commit  # which is built on this

    key, owner = node.join(array.path, node.PENDING), None
    backoff = lease.Backoff(array.store, f"the shape of array {array.name!r}")
    while True:
        with array.store.lock(node.join(array.path, node.document_names(array.metadata)[0])):
            held = Held(array, kept or Lease(array.store, key, _BEYOND), handed_over=kept is not None)
            if kept is not None:
                kept.confirm()
            try:
                if kept is None:
                    owner = held.take() or (None if inside else commit.owner_above(array.store, array.path))
                if owner is None:
                    held.read()
                    yield held
                    return
            finally:
                held.release()
        backoff.pause(key, owner)


class Held:
    """The right to change the shape of one array, and the metadata that was read under it; given by `shape_lease`.

    Where the lock of the metadata keeps other processes out, the key `node.PENDING` is needed only while chunks may lie
    beyond the end, and names no owner. Where it does not, in object stores, and for an append that other processes
    write, the key is a lease. In a transaction it is not needed: what is killed there leaves nothing.
    """

    metadata: ArrayMetadata
    """The array as it is stored, which a handle that was opened before may not know."""
    grid: ChunkGrid
    """The grid of `metadata`."""

    def __init__(self, array: Array, kept: Lease, *, handed_over: bool) -> None:
        self.array, self._store, self._lease = array, array.store, kept
        self._is_leased = handed_over or (self._store.traits.optimistic and not self._store.traits.transactional)
        self._left = handed_over
        """Whether something may lie beyond the end."""
        self._may_be_committed = False

    def take(self) -> Owner | None:
        """Take it; returns the owner if another one has it."""
        if self._store.traits.transactional:
            return None
        if self._is_leased:
            owner = self._lease.attempt()
            self._left = self._lease.left is not None
            return owner
        raw = self._store.get(self._lease.key)
        self._left = raw is not None
        return None if raw is None else lease.read(raw).live_owner

    def read(self) -> None:
        """Read the metadata; no other writer changes shape and grid while this is held."""
        self._stored, self.metadata = self.array._read_stored()
        self.grid = ChunkGrid.from_metadata(self.metadata)

    def recover(self) -> None:
        """Remove what a killed writer left beyond the end."""
        if self._left:
            trim(self.array._chunks, self.grid)
            self.clean()

    def announce(self) -> None:
        """Say, so that it outlives a crash, that something may lie beyond the end from now on."""
        self._left = True
        if self._is_leased:
            self._lease.check()
        elif not self._store.traits.transactional:
            self._store.put(self._lease.key, lease.dump(_BEYOND, None, {}))

    def keep(self) -> Lease | None:
        """Say the same in a lease that outlasts the lock, for an append that others write; None in a transaction."""
        if self._store.traits.transactional:
            return None
        if not self._is_leased:
            self._lease.take("the shape of this array")
        self._is_leased = False  # so that `release` leaves it alone
        return self._lease

    def commit(self, grid: ChunkGrid) -> None:
        """Show a new shape to readers, and follow it: one conditional write.

        Attributes that others have changed since the metadata was read are kept. A shape that was changed by a
        program without leases raises `ConflictError`.
        """
        if self._is_leased:
            self._lease.check()  # after a takeover nothing is shown: what was written has been removed
        self._may_be_committed = True

        def with_grid(metadata: ArrayMetadata) -> ArrayMetadata:
            if metadata is not self.metadata:  # it has changed since it was read
                there = ChunkGrid.from_metadata(metadata)
                if there == grid:
                    return metadata  # it was written, and only the answer was lost
                if there != self.grid:
                    raise _resized_meanwhile(self.array)
            return metadata.resized(grid)

        update_metadata(self.array, with_grid, (self._stored, self.metadata))

    def undo(self, before: ArrayMetadata) -> None:
        """Take an append back: remove what lies beyond the end; in a transaction also the shape, which came first."""
        if self._is_leased and not self._lease.is_held():
            return  # another process took over, and has removed it
        if self._store.traits.transactional:
            trim(self.array._chunks, ChunkGrid.from_metadata(before))
            update_metadata(self.array, lambda found: before.with_attributes(found.attributes))
        else:
            if self._may_be_committed:
                self.read()  # the error may have come after the shape was stored
            trim(self.array._chunks, self.grid)
            self.array._bind(self.metadata)
        self.clean()

    def clean(self) -> None:
        """Say that nothing lies beyond the end any more."""
        self._left = False
        if not self._is_leased and not self._store.traits.transactional:
            self._store.delete([self._lease.key])

    def release(self) -> None:
        """Let others in; if something was left beyond the end, they remove it."""
        if self._is_leased:
            if self._left:
                self._lease.abandon()
            else:
                self._lease.release()


def _resized_meanwhile(array: Array) -> ConflictError:
    return ConflictError(
        f"array {array.name!r} was resized meanwhile by a program that takes no lease; what was written beyond its "
        "old end is not part of it, try again"
    )


# -- plans and data -------------------------------------------------------------------------------


def grown(array: Array, metadata: ArrayMetadata, length: int, axis: int, chunks: int | EdgeEntries | None) -> ChunkGrid:
    """Return the grid after an axis has grown by so many elements; everything about it is checked."""
    shape = tuple(n + length * (k == axis) for k, n in enumerate(metadata.shape))
    cut = parse_new_chunks([chunks if k == axis else None for k in range(len(shape))], len(shape))
    return _reshaped(array, metadata, shape, cut)


def _reshaped(array: Array, metadata: ArrayMetadata, shape: Shape, cut: Sequence[int | Edges | None]) -> ChunkGrid:
    grid = ChunkGrid.from_metadata(metadata).update_shape(shape, cut)
    array._check_shards(grid)
    metadata.resized(grid)  # raises where the format has no such grid
    return grid


def write_to_end(array: Array, grid: ChunkGrid, region: tuple[slice, ...], value: Any) -> None:
    """Write a region that reaches up to the end of every axis of a grid; beyond that, chunks get the fill value."""
    selection = select.basic(region, grid.shape)
    write(array._chunks, plan_for(selection, grid), selection.value_to_work(value), to_end=True)


def axis_number(array: Array, axis: int) -> int:
    """Return the number of an axis from 0; a negative one counts from the end."""
    try:
        axis = operator.index(axis)
    except TypeError:
        names = array.metadata.dimension_names
        named = "" if names is None else f"; its dimensions are named {names}, in this order"
        raise TypeError(
            f"array {array.name!r}: axis={axis!r} must be an integer from {-array.ndim} to {array.ndim - 1}{named}"
        ) from None
    if not -array.ndim <= axis < array.ndim:
        raise IndexError(f"axis {axis} is out of bounds for an array of {array.ndim} dimensions")
    return axis % array.ndim


def check_appended(data: Shape, shape: Shape, axis: int) -> None:
    """Refuse data of another shape than that of an array, but for one axis."""
    if len(data) != len(shape) or any(d != n for k, (d, n) in enumerate(zip(data, shape, strict=True)) if k != axis):
        expected = ", ".join("any" if k == axis else str(n) for k, n in enumerate(shape))
        raise BroadcastError(f"data of shape {data} cannot be appended along axis {axis}: expected shape ({expected})")


def _parse_shape(shape: int | Sequence[int], ndim: int) -> Shape:
    try:
        lengths = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        if any(isinstance(n, bool) for n in lengths):
            raise TypeError("True and False are no lengths")
        given = tuple(map(operator.index, lengths))
    except TypeError as error:
        raise ValueError(f"the new shape {shape!r} must be integers") from error
    if len(given) != ndim or any(not 0 <= n < 2**63 for n in given):
        raise ValueError(f"the new shape {given} must have {ndim} lengths from 0 to 2**63 - 1, one for each axis")
    return given


def _by_axis(chunks: ChunksLike, names: Sequence[str | None]) -> ChunksLike:
    """Return chunks with names of dimensions, in a mapping, replaced by axis numbers."""
    if not isinstance(chunks, Mapping):
        return chunks
    return {names.index(key) if key in names else key: value for key, value in chunks.items()}


# -- what lies beyond the end ---------------------------------------------------------------------


def trim(chunks: Chunks, grid: ChunkGrid) -> None:
    """Delete stored chunks outside of a grid, and clear what its last chunks hold beyond the end.

    Only stored chunks are looked at, so that a grid of any size is quick to trim.
    """

    def trim_one(item: tuple[Coords, str]) -> None:
        coords, key = item
        if not all(map(operator.lt, coords, grid.grid_shape)):
            chunks.store.delete([key])
        elif (spec := grid.spec(coords)).is_boundary:
            _clear(chunks, coords, spec)

    _apart(chunks, trim_one, list(chunks.stored(grid.ndim)))


def clear_uncovered(chunks: Chunks, old: ChunkGrid, new: ChunkGrid) -> None:
    """Clear what lies beyond the end before growing, in the chunks where growing would show it.

    Nothing does, unless a handle that did not know of the end has written there, or a copy took what a killed writer
    left. A few chunks are looked for one by one; for many, those that are stored are listed.
    """

    def clear_one(item: tuple[Coords, str]) -> None:
        coords, key = item
        spec = old[coords]
        if spec is None:
            if chunks.store.exists(key):
                chunks.store.delete([key])
        elif spec.is_boundary and _reaches_over(chunks, coords, key, spec):
            _clear(chunks, coords, spec)

    kept = [
        dim.index_to_chunk(was.extent) if dim.extent > was.extent else dim.nchunks
        for was, dim in zip(old.dimensions, new.dimensions, strict=True)
    ]
    if prod(new.grid_shape) - prod(kept) > _FEW:
        found = [item for item in chunks.stored(new.ndim) if any(map(operator.ge, item[0], kept))]
    else:
        found = [(coords, chunks.key(coords)) for coords in _outside(kept, new.grid_shape)]
    _apart(chunks, clear_one, found)


def _apart(chunks: Chunks, work: Callable[[tuple[Coords, str]], None], items: list[tuple[Coords, str]]) -> None:
    """Do some work for stored chunks, while no thread of this process writes whole ones without their locks."""
    alone = Apart("parts")
    with alone:
        alone.wait(chunks.place)
        threads.gather(work, items, chunks.store)


def _reaches_over(chunks: Chunks, coords: Coords, key: str, spec: ChunkSpec) -> bool:
    """Return whether a chunk holds anything but the fill value beyond the end of the array."""
    bound = chunks.chain.bound[spec.codec_shape]
    try:
        chunks.check_size(coords, bound)
        raw = chunks.store.get(key)
        chunk = None if raw is None else load(chunks, bound, coords, WholeValue(key, memoryview(raw)))
    except UnsupportedCodecError:
        raise
    except CodecError:  # readers get an error, never old data
        return False
    return chunk is not None and any(not equals_fill(chunk[part].copy(), bound.fill) for part in _beyond(spec))


def _clear(chunks: Chunks, coords: Coords, spec: ChunkSpec) -> None:
    """Put the fill value where a chunk reaches over the end of the array; a damaged chunk stays as it is."""
    bound = chunks.chain.bound[spec.codec_shape]

    def change(old: Old | None) -> Encoded | None:
        chunk = load(chunks, bound, coords, old)
        for part in _beyond(spec):
            chunk[part] = bound.fill
        return encoded(chunks, bound, chunk, old)

    with suppress(CorruptChunkError):  # readers get an error, never old data
        update_chunk(chunks, coords, change)


def _outside(kept: Sequence[int], counts: Shape) -> Iterator[Coords]:
    """Yield the coordinates within a grid that lie outside a box at its beginning."""
    for axis, (first, count) in enumerate(zip(kept, counts, strict=True)):
        yield from product(*map(range, kept[:axis]), range(first, count), *map(range, counts[axis + 1 :]))


def _beyond(spec: ChunkSpec) -> Iterator[tuple[slice, ...]]:
    """Yield what of a chunk lies beyond the end of the array, along each axis."""
    for axis, (size, full) in enumerate(zip(spec.shape, spec.codec_shape, strict=True)):
        if size < full:
            yield (slice(None),) * axis + (slice(size, None),)
