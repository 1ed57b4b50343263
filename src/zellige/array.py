"""`Array`: a handle on a stored array that indexes like numpy, whatever its chunks look like."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zellige import engine, indexing, node
from zellige.chunking import ChunksLike, parse_new_chunks
from zellige.codecs.base import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec
from zellige.codecs.chain import CodecChain
from zellige.config import ArrayConfig
from zellige.dtypes.fill import fill_bits
from zellige.dtypes.values import as_values
from zellige.errors import ArrayNotFoundError, BroadcastError, ConflictError, MetadataError, ReadOnlyError
from zellige.grid import ChunkGrid, ChunkSpec, FixedDimension
from zellige.indexing import Selection
from zellige.metadata import ArrayV3Metadata
from zellige.node import DOCUMENT, Attributes
from zellige.plans import plan as plan_for
from zellige.runs import EdgeEntries, Edges
from zellige.selecting import Selecting
from zellige.stores import Store
from zellige.types import JSON, AnyArray, Coords, Shape

if TYPE_CHECKING:
    from zellige.dtypes.structs import FieldNames
    from zellige.info import ArrayInfo


@dataclass(frozen=True, slots=True)
class ArrayChunk(ChunkSpec):
    """A chunk with its place in the grid and its key in the store."""

    coords: Coords
    key: str


class Array(Selecting):
    """An N-dimensional array in a store, cut into chunks of any size.

    Arrays are made by `zellige.create_array` and opened by `zellige.open`. The handle holds no data: each
    read and write goes to the chunks that it touches, and to no others.

    >>> import zellige
    >>> a = zellige.create_array(shape=(59, 2), chunks=[[31, 28], 2], dtype="float32")
    >>> a[30:33, 0] = [1.0, 2.0, 3.0]
    >>> a[29:34, 0]
    array([0., 1., 2., 3., 0.], dtype=float32)
    """

    __slots__ = ("store", "path", "config", "metadata", "grid", "_inner", "_engine", "__weakref__")

    store: Store
    path: str
    """The path within the store; the root is empty."""
    config: ArrayConfig
    metadata: ArrayV3Metadata
    grid: ChunkGrid
    """The arrangement of the chunks."""

    def __init__(self, store: Store, path: str, metadata: ArrayV3Metadata, config: ArrayConfig) -> None:
        self.store, self.path, self.config = store, path, config
        self._bind(metadata)
        shape = tuple(next(iter(dim.unique_edge_lengths)) for dim in self.grid.dimensions)
        chain = CodecChain.from_json(metadata.codecs, metadata.data_type, metadata.fill_value, shape)
        self._inner = chain.inner_shape(shape)
        self._check_shards(self.grid)
        prefix = path and path + "/"
        self._engine = engine.Engine(store, prefix, metadata.chunk_key_encoding, self.ndim, chain, config)

    def _check_shards(self, grid: ChunkGrid) -> None:
        """Inner chunks must divide every shard."""
        for axis, (size, dim) in enumerate(zip(self._inner or (), grid.dimensions, strict=False)):
            uneven = next((edge for edge in dim.unique_edge_lengths if edge % size), None)
            if uneven is not None:
                raise MetadataError(
                    f"axis {axis}: inner chunks of {size} do not divide a shard of {uneven}; use multiples of {size}",
                    field="codecs",
                )

    def _bind(self, metadata: ArrayV3Metadata) -> None:
        self.metadata = metadata
        self.grid = ChunkGrid.from_metadata(metadata)

    @classmethod
    def open(cls, store: Store, path: str = "", config: Mapping[str, Any] | ArrayConfig | None = None) -> Array:
        """Open the array at a path of a store; one request."""
        path = node.normalize_path(path)
        raw = store.get(node.join(path, DOCUMENT))
        if raw is None:
            raise ArrayNotFoundError(f"there is no Zarr v3 array at '/{path}' in {store!r}")
        try:
            return cls(store, path, ArrayV3Metadata.from_bytes(raw), ArrayConfig.of(config))
        except RecursionError as error:
            raise MetadataError(
                f"the codecs of the array at '/{path}' are nested too deeply", field="codecs"
            ) from error
        except MetadataError as error:
            message = f"cannot open the array at '/{path}' in {store!r}: {error}"
            raise type(error)(message, field=error.field) from error

    # -- what it is -------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        return self.metadata.shape

    @shape.setter
    def shape(self, value: Sequence[int]) -> None:
        self.resize(value)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.metadata.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.metadata.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements in memory."""
        return self.metadata.data_type.numpy

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements in memory."""
        return self.size * self.dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """The value of elements that were never written."""
        return self.metadata.fill_value[()]

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """The names of the axes, if they have any."""
        return self.metadata.dimension_names

    @property
    def attrs(self) -> Attributes:
        """The attributes, as a dict that writes every change."""
        return Attributes(self)

    @property
    def order(self) -> str:
        """The memory order of results."""
        return self.config.order

    @property
    def name(self) -> str:
        """The path with a leading slash."""
        return "/" + self.path

    @property
    def basename(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self.store.read_only

    @property
    def filters(self) -> tuple[ArrayArrayCodec, ...]:
        """The array-to-array codecs."""
        return self._engine.chain.filters

    @property
    def serializer(self) -> ArrayBytesCodec:
        """The array-to-bytes codec."""
        return self._engine.chain.serializer

    @property
    def compressors(self) -> tuple[BytesBytesCodec, ...]:
        """The bytes-to-bytes codecs."""
        return self._engine.chain.compressors

    # -- its chunks -------------------------------------------------------------------------------

    @property
    def shards(self) -> Shape | None:
        """The shape of every shard, whose inner chunks are `chunks`; None for an array without shards.

        Raises for shards that differ, like `chunks`; `write_chunk_sizes` has their sizes.
        """
        return None if self._inner is None else self.grid.chunk_shape

    @property
    def chunks(self) -> Shape:
        """The shape of every chunk of a regular array; in shards, of every inner chunk.

        Raises for a rectilinear one, as an `AttributeError` too, so that `getattr(a, "chunks", None)` works.
        """
        return self._inner or self.grid.chunk_shape

    @property
    def write_chunk_sizes(self) -> tuple[Edges, ...]:
        """The data sizes of the stored chunks along each axis, as dask writes chunks, for every grid."""
        return self.grid.chunk_sizes

    @property
    def read_chunk_sizes(self) -> tuple[Edges, ...]:
        """The data sizes of the smallest pieces that can be read alone: inner chunks, where there are shards."""
        if self._inner is None:
            return self.grid.chunk_sizes
        return tuple(FixedDimension(c, n).data_sizes for c, n in zip(self._inner, self.shape, strict=True))

    @property
    def cdata_shape(self) -> Shape:
        """The number of chunks along each axis."""
        return self.grid.grid_shape

    @property
    def nchunks(self) -> int:
        """The number of chunks."""
        return self.grid.get_nchunks()

    @property
    def nchunks_initialized(self) -> int:
        """The number of chunks that are stored; lists the store."""
        inside = self.grid.grid_shape
        return sum(all(map(operator.lt, coords, inside)) for coords, _ in self._engine.stored(self.ndim))

    def nbytes_stored(self) -> int:
        """The number of bytes that the array takes in the store, with its document; lists the store."""
        keys = [key for _, key in self._engine.stored(self.ndim)]
        return sum(self.store.size(key) or 0 for key in [node.join(self.path, DOCUMENT), *keys])

    def iter_chunks(self, selection: Any = ...) -> Iterator[ArrayChunk]:
        """The chunks that a selection hits, with their coordinates, regions and keys.

        >>> import zellige
        >>> a = zellige.zeros((6,), chunks=[[1, 2, 3]])
        >>> [(chunk.key, chunk.slices) for chunk in a.iter_chunks(slice(0, 2))]
        [('c/0', (slice(0, 1, None),)), ('c/1', (slice(1, 3, None),))]
        """
        plan = plan_for(indexing.select(selection, self.shape), self.grid)
        for coords, *_ in plan.requests():
            spec = self.grid.spec(coords)
            yield ArrayChunk(spec.slices, spec.codec_shape, coords, self._engine.key(coords))

    # -- reading ----------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        if self.metadata.data_type.numpy.names is not None:
            return self.get_basic_selection(index)
        return self._read(indexing.select(index, self.metadata.shape))

    def _read(self, selection: Selection, out: AnyArray | None = None, fields: FieldNames | None = None) -> Any:
        if fields is not None:
            from zellige.dtypes.structs import take_fields

            return take_fields(self._read(selection), fields, out)
        plan = plan_for(selection, self.grid)
        if out is None:
            work = engine.empty(selection.work_shape, self.dtype, self.config.order)
            self._engine.read(plan, work)
            return selection.to_result(work)
        if out.shape != selection.result_shape:
            raise BroadcastError(f"out has shape {out.shape}, the selection has shape {selection.result_shape}")
        work = selection.to_work(out)
        if np.may_share_memory(work, out) or not work.size:
            self._engine.read(plan, work)
        else:  # numpy could not view `out` in the order of the work array
            out[...] = self._read(selection)
        return out

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ValueError("an array in a store cannot be turned into a numpy array without a copy")
        found: AnyArray = self[...]
        return found if dtype is None else found.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """The rows along the first axis; each chunk is read once."""
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        rows = self.grid.dimensions[0]
        for k in range(rows.nchunks):
            start = rows.chunk_offset(k)
            yield from self[start : start + rows.data_size(k)]

    # -- writing ----------------------------------------------------------------------------------

    def __setitem__(self, index: Any, value: Any) -> None:
        self.set_basic_selection(index, value)

    def _write(self, selection: Selection, value: Any, fields: FieldNames | None = None) -> None:
        self._check_writable()
        dtype = self.dtype if fields is None else np.empty(0, self.dtype)[fields].dtype
        # Everything that can be wrong with the value shows here, before the first byte is written.
        work = selection.value_to_work(_as_value(value, dtype))
        plan = plan_for(selection, self.grid)
        if fields is None:
            self._engine.write(plan, work)
        else:
            self._engine.write_fields(plan, work, fields)

    def _check_writable(self) -> None:
        if self.store.read_only:
            raise ReadOnlyError(f"array {self.name!r} was opened for reading only; open it with mode='r+' to write")

    # -- changing the array -----------------------------------------------------------------------

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

        def with_shape(metadata: ArrayV3Metadata) -> ArrayV3Metadata:
            old = ChunkGrid.from_metadata(metadata)  # as it is stored: another handle may have changed it
            before[:] = [old]
            grid = old.update_shape(shape, new)
            self._check_shards(grid)
            return metadata.resized(grid)

        # The shape first: killed in between, a reader sees the new shape, and no chunk of it is missing.
        self._update(with_shape)
        (old,) = before
        if self.metadata.chunk_grid.bounded:
            self._engine.reshape(old, self.grid)
        if any(map(operator.lt, shape, old.shape)):
            self._engine.trim(self.grid)

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

        The data is written first and the shape last: a reader sees the old array or the whole new one.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> a.append(range(31), chunks=[31])
        (90,)
        """
        self._check_writable()
        value = _as_value(data, self.dtype)
        axis = self._axis(axis)
        new: list[Any] = [None] * self.ndim
        new[axis] = chunks
        begun: list[tuple[ChunkGrid, ChunkGrid]] = []

        def write_data(metadata: ArrayV3Metadata) -> ArrayV3Metadata:
            old = ChunkGrid.from_metadata(metadata)
            _check_appended(value.shape, old.shape, axis)
            end = old.shape[axis]
            shape = (*old.shape[:axis], end + value.shape[axis], *old.shape[axis + 1 :])
            grid = old.update_shape(shape, new)
            self._check_shards(grid)
            region = tuple(slice(end, None) if k == axis else slice(None) for k in range(self.ndim))
            selection = indexing.select(region, shape)
            work = selection.value_to_work(value)
            begun[:] = [(old, grid)]
            if metadata.chunk_grid.bounded:
                self._engine.reshape(old, grid)
            self._engine.write(plan_for(selection, grid), work)
            return metadata.resized(grid)

        try:
            self._update(write_data)
        except BaseException:
            for old, grid in begun:
                self._undo_append(old, grid)
            raise
        return self.shape

    def _undo_append(self, old: ChunkGrid, grid: ChunkGrid) -> None:
        """After a failed append: remove what lies beyond the end, where growing would show it."""
        with self.store.exclusive(node.join(self.path, DOCUMENT)):  # others append under the same lock
            self.refresh()
            if self.metadata.chunk_grid.bounded and self.grid == old:
                self._engine.reshape(grid, old)
            self._engine.trim(self.grid)

    def _axis(self, axis: int) -> int:
        if not -self.ndim <= axis < self.ndim:
            raise IndexError(f"axis {axis} is out of bounds for an array of {self.ndim} dimensions")
        return axis % self.ndim

    def update_attributes(self, new_attributes: Mapping[str, Any]) -> Array:
        """Change several attributes in one write."""
        self.attrs.update(new_attributes)
        return self

    def _change_attributes(self, change: Callable[[dict[str, JSON]], None]) -> None:
        self._check_writable()

        def with_attributes(metadata: ArrayV3Metadata) -> ArrayV3Metadata:
            attributes = dict(metadata.attributes)
            change(attributes)
            return replace(metadata, attributes=attributes)

        self._update(with_attributes)

    def _update(self, change: Callable[[ArrayV3Metadata], ArrayV3Metadata]) -> None:
        """Change the stored document, starting from what is stored now, and follow it."""

        def rewrite(raw: bytes) -> tuple[bytes, ArrayV3Metadata]:
            found = ArrayV3Metadata.from_bytes(raw)
            if _layout(found) != _layout(self.metadata):
                raise ConflictError(f"array {self.name!r} was replaced meanwhile; nothing was written, call refresh()")
            metadata = change(found)
            return metadata.to_bytes(), metadata

        self._bind(node.update(self.store, self.path, rewrite))

    def refresh(self) -> None:
        """Read the document again: another handle may have resized the array or changed its attributes."""
        fresh = Array.open(self.store, self.path, self.config)
        self._engine = fresh._engine
        self._bind(fresh.metadata)

    def with_config(self, config: Mapping[str, Any] | ArrayConfig) -> Array:
        """The same array with some settings changed, such as `{"write_empty_chunks": True}`."""
        return Array(self.store, self.path, self.metadata, self.config.changed(config))

    # -- showing ----------------------------------------------------------------------------------

    @property
    def info(self) -> ArrayInfo:
        """A summary for people, without reading the chunks."""
        from zellige.info import describe

        return describe(self)

    def info_complete(self) -> ArrayInfo:
        """Like `info`, with the number and size of the stored chunks; lists the store."""
        from zellige.info import describe

        return describe(self, stored=True)

    def __repr__(self) -> str:
        from zellige.info import one_line

        return one_line(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return self.store == other.store and self.path == other.path and self.metadata == other.metadata

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.store, self.path, self.metadata.to_bytes(), self.config)


def _unpickle(store: Store, path: str, raw: bytes, config: ArrayConfig) -> Array:
    return Array(store, path, ArrayV3Metadata.from_bytes(raw), config)


def _layout(metadata: ArrayV3Metadata) -> tuple[Any, ...]:
    """What stays the same for as long as an array lives."""
    fill = fill_bits(metadata.fill_value)
    return len(metadata.shape), metadata.data_type, fill, metadata.codecs, metadata.chunk_key_encoding


def _as_value(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    """A value as an array; numbers of another type are converted chunk by chunk as they are written."""
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        value = np.asarray(value)
        if value.dtype.kind == "c" and dtype.kind in "biuf":
            raise TypeError(f"{value.dtype} values do not fit an array of {dtype}; write .real or .imag")
        if value.dtype.kind in "biufc" and dtype.kind in "biufc":
            return value  # type: ignore[no-any-return]
    return as_values(value, dtype)


def _check_appended(data: Shape, shape: Shape, axis: int) -> None:
    if len(data) != len(shape) or any(d != n for k, (d, n) in enumerate(zip(data, shape, strict=True)) if k != axis):
        expected = ", ".join("any" if k == axis else str(n) for k, n in enumerate(shape))
        raise BroadcastError(f"data of shape {data} cannot be appended along axis {axis}: expected shape ({expected})")
