"""Changing the shape of an array: `resize` and `append`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from zellige import indexing, node
from zellige.chunking import ChunksLike, parse_new_chunks
from zellige.dtypes.values import as_value
from zellige.errors import BroadcastError
from zellige.grid import ChunkGrid
from zellige.plans import plan as plan_for
from zellige.runs import EdgeEntries
from zellige.types import Shape

if TYPE_CHECKING:
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
                self._set_mark()
                if self._trims_first(metadata):
                    self._engine.trim(grid)
            return metadata.resized(grid)

        with self._locked():  # until all is done: what others append must not be trimmed
            # The shape first: killed in between, a reader sees the new shape, and no chunk of it is missing.
            self._update(with_shape)
            (old,) = before
            if self.metadata.chunk_grid.bounded:
                self._engine.reshape(old, self.grid)
            if any(map(operator.lt, shape, old.shape)):
                if not self._trims_first(self.metadata):
                    self._engine.trim(self.grid)
                self._clear_mark()

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
        new: list[Any] = [None] * self.ndim
        new[axis] = chunks
        begun: list[tuple[ArrayMetadata, ChunkGrid]] = []

        def grow(metadata: ArrayMetadata) -> ArrayMetadata:
            old = ChunkGrid.from_metadata(metadata)
            _check_appended(value.shape, old.shape, axis)
            self._recover(old)
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
            if metadata.chunk_grid.bounded:
                self._engine.reshape(old, grid)
            self._engine.write(plan_for(selection, grid), selection.value_to_work(value))

        def write_and_grow(metadata: ArrayMetadata) -> ArrayMetadata:
            longer = grow(metadata)
            self._set_mark()
            write()
            return longer

        with self._locked():
            try:
                if self.store.transactional:
                    # Nobody sees the shape before the data, and there are such stores that take no chunk outside of it.
                    self._update(grow)
                    write()
                else:
                    self._update(write_and_grow)
            except BaseException:
                for metadata, grid in begun:
                    self._undo_append(metadata, grid)
                raise
            self._clear_mark()
        return self.shape

    def _undo_append(self, before: ArrayMetadata, grid: ChunkGrid) -> None:
        """After a failed append: remove what lies beyond the end, where growing would show it."""
        self.refresh()
        old = ChunkGrid.from_metadata(before)
        if self._trims_first(before):
            self._engine.trim(old)
        if self.store.transactional:
            self._update(lambda _: before)
        if self.metadata.chunk_grid.bounded and self.grid == old:
            self._engine.reshape(grid, old)
        self._engine.trim(self.grid)
        self._clear_mark()

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
        if not self.store.transactional and self.store.exists(self._mark):
            self._engine.trim(grid)
            self._clear_mark()

    def _set_mark(self) -> None:
        """Note that chunks may lie beyond the end; what is killed in a transaction leaves none."""
        if not self.store.transactional:
            self.store.put(self._mark, _WORDS)

    def _clear_mark(self) -> None:
        if not self.store.transactional:
            self.store.delete(self._mark)

    def _trims_first(self, metadata: ArrayMetadata) -> bool:
        """Whether chunks outside of a smaller shape go before the shape changes.

        icechunk hides them afterwards, and shows them again when the array grows. The chunks of a bounded grid change
        with the shape, and so can be trimmed only then; icechunk has no such grids.
        """
        return self.store.transactional and not metadata.chunk_grid.bounded

    def _axis(self, axis: int) -> int:
        if not -self.ndim <= axis < self.ndim:
            raise IndexError(f"axis {axis} is out of bounds for an array of {self.ndim} dimensions")
        return axis % self.ndim


_WORDS = b"chunks may lie beyond the end of this array; the next resize or append by zellige removes them\n"


def _check_appended(data: Shape, shape: Shape, axis: int) -> None:
    if len(data) != len(shape) or any(d != n for k, (d, n) in enumerate(zip(data, shape, strict=True)) if k != axis):
        expected = ", ".join("any" if k == axis else str(n) for k, n in enumerate(shape))
        raise BroadcastError(f"data of shape {data} cannot be appended along axis {axis}: expected shape ({expected})")
