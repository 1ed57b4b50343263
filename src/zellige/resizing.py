"""Changing the shape of an array: `resize`, `append`, and `start_append` for data that others write."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige import indexing, node
from zellige.chunking import ChunksLike, parse_new_chunks
from zellige.dimensions import BoundedDimension
from zellige.dtypes.values import as_value
from zellige.errors import BroadcastError, ChunkShapeError, ConflictError
from zellige.grid import ChunkGrid
from zellige.metadata import document
from zellige.plans import plan as plan_for
from zellige.runs import EdgeEntries, Edges
from zellige.types import Shape

if TYPE_CHECKING:
    from zellige.array import Array
    from zellige.config import ArrayConfig
    from zellige.engine import Engine
    from zellige.lease import Lease, ShapeLease
    from zellige.node import ArrayMetadata
    from zellige.stores import Store
    from zellige.upkeep import Upkeep


class Resizing:
    """What `Array` has from here."""

    __slots__ = ()

    if TYPE_CHECKING:
        store: Store
        path: str
        metadata: ArrayMetadata
        grid: ChunkGrid
        config: ArrayConfig
        _engine: Engine

        @property
        def shape(self) -> Shape:
            """The lengths of the axes."""

        @property
        def ndim(self) -> int:
            """The number of axes."""

        @property
        def dtype(self) -> np.dtype[Any]:
            """The type of the elements in memory."""

        @property
        def dimension_names(self) -> tuple[str | None, ...] | None:
            """The names of the axes."""

        def refresh(self) -> None:
            """Read the document again."""

        def _check_writable(self) -> None: ...
        def _check_shards(self, grid: ChunkGrid) -> None: ...
        def _update(self, change: Callable[[ArrayMetadata], ArrayMetadata]) -> None: ...

    def resize(self, new_shape: int | Sequence[int], chunks: ChunksLike = None) -> None:
        """Change the shape; existing chunks stay as they are.

        `chunks` says for each axis how its new region is cut: a size that repeats, or edges. By default
        the last edge repeats. Shrinking deletes what lies outside, so growing again shows fill values.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> a.resize((120,), chunks=[[31, 30]])
        >>> a.write_chunk_sizes
        ((31, 28, 31, 30),)
        """
        self._check_writable()
        shape = self._new_shape(new_shape)
        new = parse_new_chunks(self._by_axis(chunks), self.ndim)
        with self._locked() as held:  # until all is done: what others append must not be trimmed
            if self.metadata.chunk_grid.bounded:
                # Never shrink one axis of a bounded grid while growing another: chunks of both shapes might be as long.
                self.refresh()
                smaller = tuple(map(min, self.shape, shape))
                if smaller not in (self.shape, shape):
                    self._resize(smaller, [None] * self.ndim, held)
            self._resize(shape, new, held)

    def _resize(self, shape: Shape, new: Sequence[Any], held: ShapeLease) -> None:
        before: list[ChunkGrid] = []

        def with_shape(metadata: ArrayMetadata) -> ArrayMetadata:
            old = ChunkGrid.from_metadata(metadata)  # as it is stored: another handle may have changed it
            before[:] = [old]
            grid = old.update_shape(shape, new)
            self._check_shards(grid)
            self._recover(old, held)
            self._upkeep.uncover(old, grid)
            if metadata.chunk_grid.bounded or _shrinks(old, grid):
                held.mark(old.shape, shape)
            if _shrinks(old, grid) and self._trims_first(metadata):
                self._upkeep.trim(grid)
            return metadata.resized(grid)

        # The shape first: killed in between, a reader sees the new shape, and no chunk of it is missing.
        self._update(with_shape)
        (old,) = before
        if self.metadata.chunk_grid.bounded:
            self._upkeep.reshape(old, self.grid)
        if _shrinks(old, self.grid) and not self._trims_first(self.metadata):
            self._upkeep.trim(self.grid)
        if self.metadata.chunk_grid.bounded or _shrinks(old, self.grid):
            held.cleaned()

    def _new_shape(self, shape: int | Sequence[int]) -> Shape:
        try:
            given = (
                (operator.index(shape),) if isinstance(shape, int | np.integer) else tuple(map(operator.index, shape))
            )
        except TypeError as error:
            raise ValueError(f"the new shape {shape!r} must be integers") from error
        if len(given) != self.ndim or any(not 0 <= n < 2**63 for n in given):
            raise ValueError(
                f"the new shape {given} must have {self.ndim} lengths from 0 to 2**63 - 1, one for each axis"
            )
        return given

    def _by_axis(self, chunks: ChunksLike) -> ChunksLike:
        """Names of dimensions in a mapping replaced by axis numbers."""
        if not isinstance(chunks, Mapping):
            return chunks
        names = self.dimension_names or ()
        return {names.index(key) if key in names else key: value for key, value in chunks.items()}

    def append(self, data: Any, axis: int = 0, chunks: int | EdgeEntries | None = None) -> Shape:
        """Add data at the end of an axis and return the new shape; `chunks` says how the new region is cut.

        The data is written first and the shape last: a reader sees the old array or the whole new one. What a
        killed writer left beyond the end is removed by the next one. A store that is a transaction shows others
        both at its end.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> a.append(range(31), chunks=[31])
        (90,)
        """
        self._check_writable()
        value = as_value(data, self.dtype, self.config.casting)
        axis = self._axis(axis)
        new = self._new_chunks(axis, chunks)
        begun: list[tuple[ArrayMetadata, ChunkGrid]] = []

        def grow(metadata: ArrayMetadata) -> ArrayMetadata:
            old = ChunkGrid.from_metadata(metadata)
            check_appended(value.shape, old.shape, axis)
            self._recover(old, held)
            shape = (*old.shape[:axis], old.shape[axis] + value.shape[axis], *old.shape[axis + 1 :])
            grid = old.update_shape(shape, new)
            self._check_shards(grid)
            begun[:] = [(metadata, grid)]
            return metadata.resized(grid)

        def write() -> None:
            ((metadata, grid),) = begun
            old = ChunkGrid.from_metadata(metadata)
            region = tuple(slice(old.shape[k] if k == axis else 0, None) for k in range(self.ndim))
            selection = indexing.select(region, grid.shape)
            work = selection.value_to_work(value)
            held.mark(old.shape, grid.shape)
            if metadata.chunk_grid.bounded:
                self._upkeep.reshape(old, grid)
            self._engine.write(plan_for(selection, grid), work, to_end=True)

        def write_and_grow(metadata: ArrayMetadata) -> ArrayMetadata:
            longer = grow(metadata)
            write()
            return longer

        with self._locked() as held:
            try:
                if self.store.transactional:
                    # Nobody sees the shape before the data, and there are such stores that take no chunk outside of it.
                    self._update(grow)
                    write()
                else:
                    self._update(write_and_grow)
            except BaseException:
                for metadata, grid in begun:
                    self._undo_append(metadata, grid, held)
                raise
            held.cleaned()
        return self.shape

    def start_append(self, length: int, axis: int = 0, chunks: int | EdgeEntries | None = None) -> PendingAppend:
        """Make room at the end of an axis for data that others write, such as the tasks of a cluster.

        They write to `.array`, which has the new shape; readers see that once `commit` is called, and what was
        written before is removed by `abort`, or by the next one who resizes or appends: only one can win. In a
        transaction the shape changes at once, since nobody else sees it.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> pending = a.start_append(31, chunks=[31])
        >>> pending.array[59:] = 1
        >>> a.shape, pending.commit(), a.shape
        ((59,), (90,), (90,))
        """
        self._check_writable()
        axis = self._axis(axis)
        if operator.index(length) < 0:
            raise ValueError(f"length={length} must not be negative")
        with self._locked() as held:
            self.refresh()
            before = self.metadata
            grid = self._grown(length, axis, chunks)
            longer = before.resized(grid)
            self._recover(self.grid, held)
            self._upkeep.uncover(self.grid, grid)
            held.mark(self.shape, grid.shape, keep=True)
            if self.store.transactional:
                self._update(lambda _: longer)
            lease = held.keep()
        other = type(self).from_documents(self.store, self.path, longer.to_documents(), self.config)  # type: ignore[attr-defined]
        return PendingAppend(self, other, before, lease)  # type: ignore[arg-type]

    def _grown(self, length: int, axis: int, chunks: int | EdgeEntries | None) -> ChunkGrid:
        """The grid after an axis has grown by so many elements; everything about it is checked."""
        if self.metadata.chunk_grid.bounded:
            raise ChunkShapeError("the last chunk of a 'zarrs.regular_bounded' grid changes as it grows; use append")
        new = self._new_chunks(axis, chunks)
        grid = self.grid.update_shape(tuple(n + length * (k == axis) for k, n in enumerate(self.shape)), new)
        self._check_shards(grid)
        return grid

    def _undo_append(self, before: ArrayMetadata, grid: ChunkGrid, held: ShapeLease) -> None:
        """After a failed append: remove what lies beyond the end, where growing would show it."""
        if not held.is_held():  # another one took over, and has removed it
            return
        self.refresh()
        old = ChunkGrid.from_metadata(before)
        if self._trims_first(before):
            self._upkeep.trim(old)
        if self.store.transactional:
            self._update(lambda _: before)
        if self.metadata.chunk_grid.bounded and self.grid == old:
            self._upkeep.reshape(grid, old)
        self._upkeep.trim(self.grid)
        held.cleaned()

    # -- what a killed writer leaves --------------------------------------------------------------

    @contextmanager
    def _locked(self, lease: Lease | None = None, *, inside: bool = False) -> Iterator[ShapeLease]:
        """The right to change the shape, under the lock of the metadata.

        Others who change the shape of the array, or of all arrays of its group at once, are waited for. With `lease` it
        is a right that was taken before; that raises if another process has taken over. `inside` is for those who
        change all arrays of the group themselves.
        """
        from zellige import commit
        from zellige.lease import ShapeLease, attempts, busy

        key = node.join(self.path, node.PENDING)
        document = node.join(self.path, node.document_names(self.metadata)[0])
        owner = None
        for _ in attempts():
            with self.store.exclusive(document):
                held = ShapeLease(self.store, key, lease)
                if lease is not None:
                    lease.confirm()
                else:
                    owner = held.attempt() or (None if inside else commit.owner_above(self.store, self.path))
                if owner is None:
                    try:
                        yield held
                    finally:
                        held.release()
                    return
                held.release()
            if owner.is_this_thread():
                break
        assert owner is not None
        raise busy(self.store, key, f"the shape of array {'/' + self.path!r}", owner)

    @property
    def _upkeep(self) -> Upkeep:
        from zellige.upkeep import Upkeep

        return Upkeep(self._engine)

    def _recover(self, grid: ChunkGrid, held: ShapeLease) -> None:
        """Before a change of the shape: finish, or undo, one that was killed."""
        if held.leftover():
            if self.metadata.chunk_grid.bounded:
                for other in Pending(self.store, self.path, self.metadata.chunk_grid.axes).grids():
                    self._upkeep.reshape(other, grid)
            self._upkeep.trim(grid)
            held.cleaned()

    def _trims_first(self, metadata: ArrayMetadata) -> bool:
        """Whether chunks outside of a smaller shape go before the shape changes.

        icechunk hides them afterwards, and shows them again when the array grows. The chunks of a bounded grid change
        with the shape, and so can be trimmed only then; icechunk has no such grids.
        """
        return self.store.transactional and not metadata.chunk_grid.bounded

    def _new_chunks(self, axis: int, chunks: int | EdgeEntries | None) -> list[int | Edges | None]:
        """How the new region of one axis is cut, as `ChunkGrid.update_shape` takes it."""
        return parse_new_chunks([chunks if k == axis else None for k in range(self.ndim)], self.ndim)

    def _axis(self, axis: int) -> int:
        try:
            axis = operator.index(axis)
        except TypeError:
            names = self.metadata.dimension_names
            named = "" if names is None else f"; its dimensions are named {names}, in this order"
            raise TypeError(
                f"array '/{self.path}': axis={axis!r} must be an integer from {-self.ndim} to {self.ndim - 1}{named}"
            ) from None
        if not -self.ndim <= axis < self.ndim:
            raise IndexError(f"axis {axis} is out of bounds for an array of {self.ndim} dimensions")
        return axis % self.ndim


class Pending:
    """What the mark beside a document says of a bounded grid whose shape changes; see `lease.ShapeLease`."""

    __slots__ = ("key", "_store", "_axes")

    def __init__(self, store: Store, path: str, axes: Sequence[Any]) -> None:
        self.key, self._store, self._axes = node.join(path, node.PENDING), store, axes

    @property
    def chunk_shape(self) -> Shape:
        """The shape of the chunks of a bounded grid, but for the last ones."""
        return tuple(self._axes)

    def grids(self) -> Sequence[ChunkGrid]:
        """The bounded grids before and after a change that is not done; none if there is no mark."""
        raw = self._store.get(self.key)
        shapes: Any = [] if raw is None else document.parse(raw).get("shapes", [])
        return [ChunkGrid(tuple(map(BoundedDimension, self._axes, shape))) for shape in shapes]


def _shrinks(old: ChunkGrid, new: ChunkGrid) -> bool:
    return any(map(operator.lt, new.shape, old.shape))


@dataclass(frozen=True)
class PendingAppend:
    """An append that was started: data may be written beyond the end, where no reader sees it yet."""

    target: Array
    """The array as readers see it."""
    array: Array
    """The same with its new shape."""
    _before: ArrayMetadata
    _lease: Lease | None
    """The right to change the shape; None in a transaction, where nobody else can."""

    def commit(self) -> Shape:
        """Show the new shape to readers; raises, and changes nothing, if another process has taken over."""
        target = self.target
        before = ChunkGrid.from_metadata(self._before)

        def with_shape(metadata: ArrayMetadata) -> ArrayMetadata:
            if ChunkGrid.from_metadata(metadata) != before:
                raise ConflictError(
                    f"array {target.name!r} was resized since this append was started; its data is gone, append again"
                )
            return metadata.resized(self.array.grid)

        if self._lease is not None:
            with target._locked(self._lease) as held:
                target._update(with_shape)
                held.cleaned()
        return target.shape

    def abort(self) -> None:
        """Remove what was written beyond the end; nothing happens after a commit, or if another has removed it."""
        if self._lease is None or self._lease.is_held():
            with self.target._locked(self._lease) as held:
                self.target._undo_append(self._before, self.array.grid, held)


def check_appended(data: Shape, shape: Shape, axis: int) -> None:
    """Refuse data of another shape than that of an array, but for one axis."""
    if len(data) != len(shape) or any(d != n for k, (d, n) in enumerate(zip(data, shape, strict=True)) if k != axis):
        expected = ", ".join("any" if k == axis else str(n) for k, n in enumerate(shape))
        raise BroadcastError(f"data of shape {data} cannot be appended along axis {axis}: expected shape ({expected})")
