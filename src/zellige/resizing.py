"""Changing the shape of an array: `resize`, `append`, and `start_append` for data that others write."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige import indexing, node
from zellige.chunking import ChunksLike, parse_new_chunks
from zellige.dtypes.values import as_value
from zellige.errors import BroadcastError, ChunkShapeError, ConflictError
from zellige.grid import ChunkGrid
from zellige.plans import plan as plan_for
from zellige.runs import EdgeEntries
from zellige.types import Shape

if TYPE_CHECKING:
    from zellige.array import Array
    from zellige.config import ArrayConfig
    from zellige.engine import Engine
    from zellige.node import ArrayMetadata
    from zellige.stores import Store


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
        before: list[ChunkGrid] = []

        def with_shape(metadata: ArrayMetadata) -> ArrayMetadata:
            old = ChunkGrid.from_metadata(metadata)  # as it is stored: another handle may have changed it
            before[:] = [old]
            grid = old.update_shape(shape, new)
            self._check_shards(grid)
            self._recover(old)
            if any(map(operator.lt, shape, old.shape)):
                self.store.put(self._mark, _WORDS)
            return metadata.resized(grid)

        with self._locked():  # until all is done: what others append must not be trimmed
            # The shape first: killed in between, a reader sees the new shape, and no chunk of it is missing.
            self._update(with_shape)
            (old,) = before
            if self.metadata.chunk_grid.bounded:
                self._engine.reshape(old, self.grid)
            if any(map(operator.lt, shape, old.shape)):
                self._engine.trim(self.grid)
                self.store.delete(self._mark)

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
        killed writer left beyond the end is removed by the next one.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> a.append(range(31), chunks=[31])
        (90,)
        """
        self._check_writable()
        value = as_value(data, self.dtype, self.config.casting)
        axis = self._axis(axis)
        new: list[Any] = [None] * self.ndim
        new[axis] = chunks
        begun: list[tuple[ChunkGrid, ChunkGrid]] = []

        def write_data(metadata: ArrayMetadata) -> ArrayMetadata:
            old = ChunkGrid.from_metadata(metadata)
            _check_appended(value.shape, old.shape, axis)
            self._recover(old)
            end = old.shape[axis]
            shape = (*old.shape[:axis], end + value.shape[axis], *old.shape[axis + 1 :])
            grid = old.update_shape(shape, new)
            self._check_shards(grid)
            region = tuple(slice(end, None) if k == axis else slice(None) for k in range(self.ndim))
            selection = indexing.select(region, shape)
            work = selection.value_to_work(value)
            begun[:] = [(old, grid)]
            self.store.put(self._mark, _WORDS)
            if metadata.chunk_grid.bounded:
                self._engine.reshape(old, grid)
            self._engine.write(plan_for(selection, grid), work)
            return metadata.resized(grid)

        with self._locked():
            try:
                self._update(write_data)
            except BaseException:
                for old, grid in begun:
                    self._undo_append(old, grid)
                raise
            self.store.delete(self._mark)
        return self.shape

    def start_append(self, length: int, axis: int = 0, chunks: int | EdgeEntries | None = None) -> PendingAppend:
        """Make room at the end of an axis for data that others write, such as the tasks of a cluster.

        They write to `.array`, which has the new shape; readers see that once `commit` is called, and what was
        written before is removed by `abort`, or by the next one who resizes or appends: only one can win.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> pending = a.start_append(31, chunks=[31])
        >>> pending.array[59:] = 1
        >>> a.shape, pending.commit(), a.shape
        ((59,), (90,), (90,))
        """
        from uuid import uuid4

        self._check_writable()
        axis = self._axis(axis)
        if operator.index(length) < 0:
            raise ValueError(f"length={length} must not be negative")
        self.refresh()
        if self.metadata.chunk_grid.bounded:
            raise ChunkShapeError("the last chunk of a 'zarrs.regular_bounded' grid changes as it grows; use append")
        new: list[Any] = [None] * self.ndim
        new[axis] = chunks
        shape = tuple(n + length * (k == axis) for k, n in enumerate(self.shape))
        grid = self.grid.update_shape(shape, new)
        self._check_shards(grid)
        with self._locked():
            self._recover(self.grid)
            words = _WORDS + uuid4().hex.encode()
            self.store.put(self._mark, words)
        longer = type(self).from_documents(  # type: ignore[attr-defined]
            self.store, self.path, self.metadata.resized(grid).to_documents(), self.config
        )
        return PendingAppend(self, longer, words)  # type: ignore[arg-type]

    def _undo_append(self, old: ChunkGrid, grid: ChunkGrid) -> None:
        """After a failed append: remove what lies beyond the end, where growing would show it."""
        self.refresh()
        if self.metadata.chunk_grid.bounded and self.grid == old:
            self._engine.reshape(grid, old)
        self._engine.trim(self.grid)
        self.store.delete(self._mark)

    # -- what a killed writer leaves --------------------------------------------------------------

    def _locked(self) -> AbstractContextManager[object]:
        """The lock of the document, under which all change the shape."""
        return self.store.exclusive(node.join(self.path, node.document_names(self.metadata)[0]))

    @property
    def _mark(self) -> str:
        return node.join(self.path, node.PENDING)

    def _recover(self, grid: ChunkGrid) -> None:
        """Before growing: remove what an append or a shrinking that was killed left beyond the end.

        Called under the lock of the document. Without the mark, which costs one request, nothing is there.
        """
        if self.store.exists(self._mark):
            self._engine.trim(grid)
            self.store.delete(self._mark)

    def _axis(self, axis: int) -> int:
        if not -self.ndim <= axis < self.ndim:
            raise IndexError(f"axis {axis} is out of bounds for an array of {self.ndim} dimensions")
        return axis % self.ndim


@dataclass(frozen=True)
class PendingAppend:
    """An append that was started: data may be written beyond the end, where no reader sees it yet."""

    target: Array
    """The array as readers see it."""
    array: Array
    """The same with its new shape."""
    _words: bytes

    def commit(self) -> Shape:
        """Show the new shape to readers; raises, and changes nothing, if the array was changed meanwhile."""
        target = self.target
        before = ChunkGrid.from_metadata(target.metadata)

        def with_shape(metadata: ArrayMetadata) -> ArrayMetadata:
            # Whoever resized or appended meanwhile has removed what was written beyond the end, and the mark.
            if ChunkGrid.from_metadata(metadata) != before or target.store.get(target._mark) != self._words:
                raise ConflictError(
                    f"array {target.name!r} was resized or appended to since this append was started; its data is "
                    "gone, append again"
                )
            return metadata.resized(self.array.grid)

        with target._locked():
            target._update(with_shape)
            target.store.delete(target._mark)
        return target.shape

    def abort(self) -> None:
        """Remove what was written beyond the end; nothing happens after a commit."""
        target = self.target
        with target._locked():
            if target.store.get(target._mark) == self._words:
                target._undo_append(target.grid, self.array.grid)


_WORDS = b"chunks may lie beyond the end of this array; the next resize or append by zellige removes them\n"


def _check_appended(data: Shape, shape: Shape, axis: int) -> None:
    if len(data) != len(shape) or any(d != n for k, (d, n) in enumerate(zip(data, shape, strict=True)) if k != axis):
        expected = ", ".join("any" if k == axis else str(n) for k, n in enumerate(shape))
        raise BroadcastError(f"data of shape {data} cannot be appended along axis {axis}: expected shape ({expected})")
