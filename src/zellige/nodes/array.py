"""`Array`: a handle on a stored array that indexes like numpy, whatever its chunks look like."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from zellige.codecs.base import ArrayBytesCodec
from zellige.codecs.sharding import Uneven, chunk_chain, uneven
from zellige.dtypes.cast import as_value, check_output, direct_output, fill_output
from zellige.dtypes.fill import boxed, fill_bits
from zellige.errors import (
    ArrayNotFoundError,
    ChunkShapeError,
    ConflictError,
    MetadataError,
    RectilinearChunksError,
    UnfinishedWarning,
    warn_caller,
)
from zellige.grid.edges import EdgeEntries, InnerEdges, LazyTuple, Sizes, as_tuple
from zellige.grid.grid import ChunkGrid, ChunkSpec, FixedDimension
from zellige.grid.parse import ChunksLike, nearest_divisor
from zellige.io import results, select
from zellige.io.chunks import Chunks
from zellige.io.plan import plan_for
from zellige.io.read import read, reader
from zellige.io.select import FieldNames, Indexer, Selection
from zellige.io.write import write, write_fields
from zellige.metadata import ArrayV3Metadata
from zellige.metadata.json import UNFINISHED, UNFINISHED_WORDS
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node
from zellige.nodes.node import Blueprint, NodeHandle, blueprint_of, remember, remembered
from zellige.settings import ArrayConfig, progress_sink
from zellige.stores import Store, StoreLike, locate
from zellige.types import JSON, AnyArray, Casting, Coords, Shape

if TYPE_CHECKING:
    from zellige.aio import AsyncArray
    from zellige.display.progress import ProgressLike
    from zellige.kernel._native import Reader
    from zellige.metadata.groups import Documents
    from zellige.nodes.consolidated import Consolidated
    from zellige.nodes.info import Info
    from zellige.nodes.node import ArrayMetadata
    from zellige.nodes.resize import PendingAppend
    from zellige.stores.resolve import StorePath
    from zellige.tools.stats import Coverage, Explanation, Stats
    from zellige.views import LazyArray


Fields: TypeAlias = Sequence[str] | str | None
"""The fields of structs that are meant: some, one, or all."""
Way: TypeAlias = Callable[[Any, Any], Selection]
"""A way of indexing, one of the functions of `select`: from an index, and a shape or a grid, to what it picks."""


@dataclass(frozen=True, slots=True)
class ArrayChunk(ChunkSpec):
    """A chunk with its place in the grid and its key in the store."""

    coords: Coords
    key: str


class Array(NodeHandle):
    """An N-dimensional array in a store, cut into chunks of any size.

    Arrays are made by `zellige.create_array` and opened by `zellige.open`. The handle holds no data: each
    read and write goes to the chunks that it touches, and to no others.

    >>> import zellige
    >>> a = zellige.create_array(shape=(59, 2), chunks=[[31, 28], 2], dtype="float32")
    >>> a[30:33, 0] = [1.0, 2.0, 3.0]
    >>> a[29:34, 0]
    array([0., 1., 2., 3., 0.], dtype=float32)
    """

    __slots__ = (
        "store",
        "path",
        "config",
        "metadata",
        "grid",
        "_inner",
        "_uneven",
        "_chunks",
        "_reader",
        "_holder",
        "__weakref__",
    )

    _kind = "array"

    store: Store
    path: str
    """The path within the store; the root is empty."""
    config: ArrayConfig
    metadata: ArrayMetadata
    grid: ChunkGrid
    """The arrangement of the chunks."""

    def __init__(
        self,
        store: Store,
        path: str,
        metadata: ArrayMetadata,
        config: ArrayConfig,
        holder: Consolidated | None = None,
        blueprint: Blueprint | None = None,
    ) -> None:
        if metadata.zarr_format == 2:
            config = _config_v2(metadata, config)
        self.store, self.path, self.config, self._holder = store, path, config, holder
        self.metadata, self.grid, chain, self._inner, self._uneven = blueprint or Blueprint.of(metadata)
        self._chunks = Chunks(store, node.prefix(path), metadata.chunk_key_encoding, len(metadata.shape), chain, config)
        self._reader: Reader | Literal[False] | None = None  # until first use; False if there is none

    def _check_shards(self, grid: ChunkGrid) -> None:
        """Refuse a grid in which inner chunks do not divide the shards, unless a setting allows to write such."""
        if self._inner is not None and (found := uneven(self._chunks.chain, grid.dimensions)) is not None:
            self._check_uneven(found)

    def _check_uneven(self, found: Uneven) -> None:
        if self.config.uneven_inner_chunks and not self.metadata.chunk_grid.bounded:
            return
        axis, size, edge, common = found
        nearest = nearest_divisor(common, size)
        words = (
            f"axis {axis}: inner chunks of {size} do not divide a shard of {edge}; the nearest that do are {nearest}"
        )
        if self.metadata.chunk_grid.bounded:
            raise ChunkShapeError(f"{words}, and on this grid others are read only", axis=axis)
        raise ChunkShapeError(
            f"{words}, and the setting array.uneven_inner_chunks=True writes others, which few libraries read",
            axis=axis,
        )

    def _bind(self, metadata: ArrayMetadata) -> None:
        self.metadata = metadata
        self.grid = ChunkGrid.from_metadata(metadata)
        if self._inner is not None:
            self._uneven = uneven(self._chunks.chain, self.grid.dimensions)
        self._reader = None  # after the grid, see `_prepare`

    @classmethod
    def open(
        cls,
        store: StoreLike,
        path: str = "",
        config: Mapping[str, Any] | ArrayConfig | None = None,
        zarr_format: int | None = None,
    ) -> Array:
        """Open the array at a path of a store; one request, or a few for Zarr format 2.

        Parameters: see `zellige.open_array`.
        """
        return open_array(*locate(store, node.normalize_path(path)), config, zarr_format)

    @classmethod
    def from_dict(cls, store_path: StorePath, data: Mapping[str, Any]) -> Array:
        """Return the array that the content `data` of a `zarr.json` describes; nothing is read or written.

        `store_path` is the place where the array is, or is going to be.
        """
        return cls.from_documents(store_path.store, store_path.path, {DOCUMENT: dict(data)})

    @classmethod
    def from_documents(
        cls,
        store: Store,
        path: str,
        documents: Documents,
        config: Mapping[str, Any] | ArrayConfig | None = None,
        holder: Consolidated | None = None,
    ) -> Array:
        """Return the array that parsed documents describe; nothing is read or written.

        Parameters
        ----------
        store, path
            Where the array is, or is going to be.
        documents
            Its metadata documents by name, such as `{"zarr.json": …}`.
        config
            Settings of the handle, as for `zellige.create_array`.
        holder
            The consolidated metadata that it was reached through, which follows its changes.
        """
        settings = ArrayConfig.of(config)
        try:
            blueprint = blueprint_of(documents)
            return cls(store, path, blueprint.metadata, settings, holder, blueprint)
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
        """The value of elements that were never written; None if there is none (null in Zarr format 2).

        Without a fill value they read as zero, or what is closest to it.
        """
        return None if self.metadata.fill_is_null else self.metadata.fill_value[()]

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """The names of the axes, if they have any."""
        return self.metadata.dimension_names

    @property
    def order(self) -> str:
        """The memory order of results."""
        return self.config.order

    @property
    def filters(self) -> tuple[Any, ...]:
        """The array-to-array codecs of the chunks; in Zarr format 2, the filters as objects of numcodecs."""
        if isinstance(self.metadata, ArrayV3Metadata):
            return chunk_chain(self._chunks.chain).filters
        return self.metadata.numcodecs_filters

    @property
    def serializer(self) -> ArrayBytesCodec:
        """The array-to-bytes codec of the chunks."""
        return chunk_chain(self._chunks.chain).serializer

    @property
    def compressors(self) -> tuple[Any, ...]:
        """The bytes-to-bytes codecs of the chunks; in Zarr format 2, the compressor as an object of numcodecs."""
        if isinstance(self.metadata, ArrayV3Metadata):
            return chunk_chain(self._chunks.chain).compressors
        return self.metadata.numcodecs_compressors

    @property
    def compressor(self) -> Any:
        """The first of the compressors, by the name that it had when there was one only."""
        return next(iter(self.compressors), None)

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

        Raises for a rectilinear one, as an `AttributeError` too, so that `getattr(a, "chunks", None)` works; also where
        inner chunks do not divide the shards, and so begin anew in each.
        """
        if self._uneven is not None and not all(map(self._is_stepped, range(self.ndim))):
            raise RectilinearChunksError(
                "inner chunks that do not divide their shards have no common shape; use read_chunk_sizes"
            )
        return self._inner or self.grid.chunk_shape

    def _is_stepped(self, axis: int) -> bool:
        """Return whether all inner chunks along an axis have one size, but for the last."""
        assert self._inner is not None
        shards, size = self.grid.axes[axis].data_runs, self._inner[axis]
        return not any(edge % size for edge in shards.part(range(len(shards) - 1)).unique())

    @property
    def write_chunk_sizes(self) -> tuple[Sizes, ...]:
        """The data sizes of the stored chunks along each axis, as dask writes chunks, for every grid.

        Tuples of integers; an axis of more than a million chunks has a sequence that behaves like one, and that
        `json.dumps(sizes, default=list)` writes.

        >>> import zellige
        >>> zellige.zeros((59, 4), chunks=[[31, 28], 3]).write_chunk_sizes
        ((31, 28), (3, 1))
        """
        return self.grid.chunk_sizes

    @property
    def read_chunk_sizes(self) -> tuple[Sizes, ...]:
        """The data sizes of the smallest chunks that can be read alone: inner chunks, where there are shards.

        In the form of `write_chunk_sizes`.
        """
        return tuple(as_tuple(read_runs(self, axis)) for axis in range(self.ndim))

    @property
    def _chunk_grid(self) -> ChunkGrid:
        """`grid`, by the name that it has in zarr-python."""
        return self.grid

    @property
    def cdata_shape(self) -> Shape:
        """The number of chunks along each axis; in shards, of inner chunks. `grid.grid_shape` counts shards."""
        if self._inner is None:
            return self.grid.grid_shape
        return tuple(len(read_runs(self, axis)) for axis in range(self.ndim))

    @property
    def nchunks(self) -> int:
        """The number of chunks; in shards, of inner chunks."""
        return prod(self.cdata_shape)

    @property
    def nchunks_initialized(self) -> int:
        """The number of chunks that are stored, or whose shard is; lists the store."""
        if self._inner is None:
            return self._chunks.count(self.grid)
        inner, inside = self._inner, self.grid.grid_shape
        stored = (c for c, _ in self._chunks.stored(self.ndim) if all(map(operator.lt, c, inside)))
        return sum(prod(-(-n // c) for n, c in zip(self.grid.spec(s).shape, inner, strict=True)) for s in stored)

    def nbytes_stored(self) -> int:
        """Return the number of bytes that the array takes in the store, with its metadata; lists the store."""
        keys = [key for _, key in self._chunks.stored(self.ndim)]
        documents = [node.join(self.path, name) for name in node.document_names(self.metadata)]
        return sum(self.store.size(key) or 0 for key in [*documents, *keys])

    def iter_chunks(self, selection: Any = ...) -> Iterator[ArrayChunk]:
        """Yield the chunks that a `selection` hits, with their coordinates, regions and keys.

        >>> import zellige
        >>> a = zellige.zeros((6,), chunks=[[1, 2, 3]])
        >>> [(chunk.key, chunk.slices) for chunk in a.iter_chunks(slice(0, 2))]
        [('c/0', (slice(0, 1, None),)), ('c/1', (slice(1, 3, None),))]
        """
        plan = plan_for(select.basic(selection, self.shape), self.grid)
        for coords, *_ in plan.copies():
            spec = self.grid.spec(coords)
            yield ArrayChunk(spec.slices, spec.codec_shape, coords, self._chunks.key(coords))

    def coverage(self) -> Coverage:
        """Return which chunks are stored; lists the store.

        >>> import zellige
        >>> a = zellige.zeros((6, 4), chunks=([1, 5], 2))
        >>> a[0, 0] = 1
        >>> a.coverage(), a.coverage().to_array().tolist()
        (<1 of 4 chunks are stored, 25.0%>, [[1.0, 0.0], [0.0, 0.0]])
        """
        from zellige.tools.stats import coverage

        return coverage(self, self._inner)

    def explain(self, selection: Any = ...) -> Explanation:
        """Return what reading a `selection` would cost: chunks, requests, bytes, and a better layout if there is one.

        No chunk is read; the sizes of stored values and the indexes of shards are.

        >>> import zellige
        >>> a = zellige.create_array(data=range(1000), chunks=[[400, 600]], compressors=None)
        >>> print(a.explain(slice(390, 405)))
        wanted   15 elements, 120 B
        touched  2 stored chunks
        asked    2 requests, 120 B
        decoded  2 chunks, 120 B: 1.0 times what is wanted
        """
        from zellige.tools.stats import explain

        return explain(self, select.basic(selection, self.shape), self._inner)

    def stats(self, selection: Any = ..., *, progress: ProgressLike = None) -> Stats:
        """Return minimum, maximum, mean and the number of NaN of a selection, read chunk by chunk.

        `selection`: as for `get_basic_selection`. `progress`: as for `zellige.copy`.

        >>> import zellige
        >>> zellige.array([1.0, float("nan"), 3.0], chunks=2).stats()
        Stats(count=3, nan=1, min=1.0, max=3.0, mean=2.0)
        """
        from zellige.tools.stats import stats

        return stats(self, selection, progress)

    def chunk_stats(self, selection: Any = ..., *, progress: ProgressLike = None) -> Iterator[tuple[Coords, Stats]]:
        """Yield `stats` of each chunk that a selection hits, of what it picks there. Parameters: see `stats`.

        >>> import zellige
        >>> for coords, found in zellige.array([3, 1, 2], chunks=[[1, 2]]).chunk_stats():
        ...     print(coords, found.min, found.max)
        (0,) 3 3
        (1,) 1 2
        """
        from zellige.tools.stats import chunk_stats

        return chunk_stats(self, selection, progress)

    @property
    def lazy(self) -> LazyArray:
        """A view that composes selections without reading; `[...]` or `numpy.asarray` reads.

        >>> import zellige
        >>> view = zellige.array(range(100)).lazy[10:20][::3]
        >>> view.shape, view[...]
        ((4,), array([10, 13, 16, 19]))
        """
        from zellige.views import lazy

        return lazy(self)

    # -- reading ----------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        reader = self._prepare() if self._reader is None else self._reader
        if reader and progress_sink.get() is None and (found := reader.read(index)) is not None:
            return found
        if self.metadata.data_type.numpy.names is not None:
            return self.get_basic_selection(index)
        return self._read(select.basic(index, self.metadata.shape))

    def get_basic_selection(self, selection: Any = ..., *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """Read `array[selection]`, optionally into an array that is there already.

        Parameters
        ----------
        selection
            Integers, slices, `...`, None, masks and integer arrays, mixed as in numpy.
        out
            A numpy array of the shape of the result, which is filled and returned. If its type is another one, the rule
            of writing applies: values that it cannot hold raise `LossyCastError`, and nothing lands in it, unless the
            array was opened with `config={"casting": "unsafe"}`.
        fields
            Names of fields of structs; all by default. Names within the selection mean the same. Elements are read
            whole.

        >>> import numpy as np, zellige
        >>> out = np.zeros(2, "float32")
        >>> zellige.array([1.5, 2.5, 3.5]).get_basic_selection(slice(1, None), out=out)
        array([2.5, 3.5], dtype=float32)

        """
        return self._get(select.basic, selection, out, fields)

    def get_orthogonal_selection(self, selection: Any, *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """Read, each axis picked on its own: `array.oindex[selection]`. `out`, `fields`: see `get_basic_selection`.

        A `selection` has for each axis an integer, a slice, a mask or an array of integers; `...` for the others.
        """
        return self._get(select.orthogonal, selection, out, fields)

    def get_coordinate_selection(self, selection: Any, *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """Read point by point: `array.vindex[selection]`. `out`, `fields`: see `get_basic_selection`.

        A `selection` is an array of integers for each axis, broadcast to each other, or a mask of the array's shape.
        """
        return self._get(select.points, selection, out, fields)

    def get_mask_selection(self, mask: Any, *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """Return the elements where a boolean `mask` is true. `out`, `fields`: see `get_basic_selection`."""
        return self._get(select.points, np.asarray(mask, bool), out, fields)

    def get_block_selection(self, selection: Any, *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """Read whole chunks by their position in the grid: `array.blocks[selection]`.

        A `selection` has an integer or a slice for each axis. `out`, `fields`: see `get_basic_selection`.
        """
        return self._get(select.blocks, selection, out, fields)

    @property
    def oindex(self) -> Indexer:
        """Orthogonal indexing: each axis is picked on its own."""
        return Indexer(self.get_orthogonal_selection, self.set_orthogonal_selection)

    @property
    def vindex(self) -> Indexer:
        """Pointwise indexing: one integer array for each axis, or a mask."""
        return Indexer(self.get_coordinate_selection, self.set_coordinate_selection)

    @property
    def blocks(self) -> Indexer:
        """Indexing by chunks: integers and slices count chunks."""
        return Indexer(self.get_block_selection, self.set_block_selection)

    def _select(self, way: Way, index: Any, fields: Fields) -> tuple[Selection, FieldNames | None]:
        """Return what an index picks in one of the ways of indexing, and the fields that it, or `fields`, names."""
        names: FieldNames | None = None
        if fields is not None or self.dtype.names is not None:
            index, names = select.split_fields(index, self.dtype, fields)
        return select.blocks(index, self.grid) if way is select.blocks else way(index, self.shape), names

    def _get(self, way: Way, index: Any, out: AnyArray | None, fields: Fields) -> Any:
        selection, names = self._select(way, index, fields)
        return self._read(selection, out, names)

    def _prepare(self) -> Reader | Literal[False]:
        """Make the kernel's reader of this array, on first use; False if there is none."""
        grid, dtype = self.grid, self.dtype
        fits = self.config.order == "C" and dtype.names is None and dtype == self._chunks.chain.dtype.numpy
        made = reader(self._chunks, grid) if fits else None
        self._reader = made or False
        if self.grid is not grid:  # another thread has followed a resize meanwhile
            self._reader = None
        return made or False

    def _read(self, selection: Selection, out: AnyArray | None = None, fields: FieldNames | None = None) -> Any:
        if out is not None:
            return self._read_into(selection, out, fields)
        work = results.empty(selection.work_shape, self.dtype, self.config.order)
        read(self._chunks, plan_for(selection, self.grid), work)
        found = selection.to_result(work)
        if fields is None:
            return found
        return select.take_fields(found, fields)

    def _read_into(self, selection: Selection, out: AnyArray, fields: FieldNames | None) -> AnyArray:
        dtype = self._dtype_of(fields)
        check_output(out, selection.result_shape, dtype, self.config.casting)
        if fields is None and (target := direct_output(out, dtype)) is not None:
            work = selection.to_work(target)
            if np.may_share_memory(work, target) or not work.size:  # numpy can view `out` as the work array
                read(self._chunks, plan_for(selection, self.grid), work)
                return out
        fill_output(self._read(selection, None, fields), out, self.config.casting)
        return out

    def _dtype_of(self, fields: FieldNames | None) -> np.dtype[Any]:
        return self.dtype if fields is None else np.empty(0, self.dtype)[fields].dtype

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
        """Yield the rows along the first axis; each chunk is read once."""
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        rows = self.grid.dimensions[0]
        for k in range(rows.nchunks):
            start = rows.chunk_offset(k)
            yield from self[start : start + rows.data_size(k)]

    # -- writing ----------------------------------------------------------------------------------

    def __setitem__(self, index: Any, value: Any) -> None:
        self._set(select.basic, index, value, None, None)

    def set_basic_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """Write `array[selection] = value`.

        Parameters
        ----------
        selection
            Integers, slices, `...`, None, masks and integer arrays, mixed as in numpy.
        value
            Anything that numpy can broadcast to the selection.
        fields
            Names of fields of structs, whose other fields stay as they are; all by default.
        casting
            `"unsafe"` lets values change that the array's type cannot hold; by default they raise `LossyCastError`.
        """
        self._set(select.basic, selection, value, fields, casting)

    def set_orthogonal_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """Write `array.oindex[selection] = value`. `fields`, `casting`: see `set_basic_selection`."""
        self._set(select.orthogonal, selection, value, fields, casting)

    def set_coordinate_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """Write `array.vindex[selection] = value`. `fields`, `casting`: see `set_basic_selection`."""
        self._set(select.points, selection, value, fields, casting)

    def set_mask_selection(
        self, mask: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """Write where a `mask` is true. `value`, `fields`, `casting`: see `set_basic_selection`."""
        self._set(select.points, np.asarray(mask, bool), value, fields, casting)

    def set_block_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """Write `array.blocks[selection] = value`. `fields`, `casting`: see `set_basic_selection`."""
        self._set(select.blocks, selection, value, fields, casting)

    def _set(self, way: Way, index: Any, value: Any, fields: Fields, casting: Casting | None) -> None:
        selection, names = self._select(way, index, fields)
        node.check_writable(self)
        if self._uneven is not None:
            self._check_uneven(self._uneven)
        if casting not in (None, "same_value", "unsafe"):
            raise ValueError(f"casting={casting!r} must be 'same_value' or 'unsafe'")
        dtype = self._dtype_of(names)
        if self.metadata.data_type.name == "object" and selection.result_shape == ():
            value = boxed(value)  # one object, even if it is a list
        # Everything that can be wrong with the value shows here, before the first byte is written.
        work = selection.value_to_work(as_value(value, dtype, casting or self.config.casting))
        plan = plan_for(selection, self.grid)
        if names is None:
            write(self._chunks, plan, work)
        else:
            write_fields(self._chunks, plan, work, names)

    # -- changing its shape -----------------------------------------------------------------------

    def resize(self, new_shape: int | Sequence[int], chunks: ChunksLike = None) -> None:
        """Change the shape; existing chunks stay as they are.

        Shrinking deletes what lies outside, so growing again shows fill values.

        Parameters
        ----------
        new_shape
            The new lengths of all axes.
        chunks
            For each axis, how its new region is cut: a size that repeats, or edges. By default the last edge repeats.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> a.resize((120,), chunks=[[31, 30]])
        >>> a.write_chunk_sizes
        ((31, 28, 31, 30),)
        """
        from zellige.nodes import resize  # needed only to change a shape

        resize.resize(self, new_shape, chunks)

    def append(self, data: Any, axis: int = 0, chunks: int | EdgeEntries | None = None) -> Shape:
        """Add data at the end of an axis and return the new shape.

        The data is written first and the shape last: a reader sees the old array or the whole new one. What a
        killed writer left beyond the end is removed by the next one. A store that is a transaction shows others
        both at its end.

        Parameters
        ----------
        data
            What is added; along the other axes it is as long as the array.
        axis
            The axis that grows.
        chunks
            How the new region is cut: a size that repeats, or edges. By default the last edge repeats.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> a.append(range(31), chunks=[31])
        (90,)
        """
        from zellige.nodes import resize  # needed only to change a shape

        return resize.append(self, data, axis, chunks)

    def start_append(self, length: int, axis: int = 0, chunks: int | EdgeEntries | None = None) -> PendingAppend:
        """Make room at the end of an axis for data that others write, such as the tasks of a cluster.

        They write to `.array`, which has the new shape; readers see that once `commit` is called, and what was
        written before is removed by `abort`, or by the next resize or append: only one can win. In a
        transaction the shape changes at once, since no other process sees it.

        Parameters
        ----------
        length
            By how many elements the axis grows.
        axis
            The axis that grows.
        chunks
            How the new region is cut: a size that repeats, or edges. By default the last edge repeats.

        >>> import zellige
        >>> a = zellige.zeros((59,), chunks=[[31, 28]])
        >>> pending = a.start_append(31, chunks=[31])
        >>> pending.array[59:] = 1
        >>> a.shape, pending.commit(), a.shape
        ((59,), (90,), (90,))
        """
        from zellige.nodes import resize  # needed only to change a shape

        return resize.start_append(self, length, axis, chunks)

    # -- changing its metadata --------------------------------------------------------------------

    def _change_attributes(self, change: Callable[[dict[str, JSON]], None]) -> None:
        node.check_writable(self)

        def with_attributes(metadata: ArrayMetadata) -> ArrayMetadata:
            attributes = dict(metadata.attributes)
            change(attributes)
            return metadata.with_attributes(attributes)

        update_metadata(self, with_attributes)

    def _read_stored(self) -> tuple[node.Stored, ArrayMetadata]:
        """Return the documents as they are stored now, and the metadata that they hold."""
        stored = node.read_stored(self.store, self.path, node.document_names(self.metadata))
        return stored, self._parsed(stored.documents)

    def _parsed(self, documents: Documents) -> ArrayMetadata:
        """Return the metadata that stored documents hold; raises if they are those of another array."""
        found: Any = node.parse(documents)
        if node.is_group(documents) or layout(found) != layout(self.metadata):
            raise ConflictError(f"array {self.name!r} was replaced meanwhile; nothing was written, call refresh()")
        metadata: ArrayMetadata = found
        return metadata

    def refresh(self) -> None:
        """Read the metadata again: another handle may have resized the array or changed its attributes."""
        fresh = Array.open(self.store, self.path, self.config, self.metadata.zarr_format)
        self._chunks = fresh._chunks
        self._bind(fresh.metadata)

    def with_config(self, config: Mapping[str, Any] | ArrayConfig) -> Array:
        """Return the same array with some settings changed: `config`, such as `{"write_empty_chunks": True}`."""
        return Array(self.store, self.path, self.metadata, self.config.changed(config), self._holder)

    # -- showing ----------------------------------------------------------------------------------

    @property
    def async_array(self) -> AsyncArray:
        """The array for use in an event loop; see `zellige.aio`."""
        from importlib import import_module

        found: AsyncArray = import_module("zellige.aio").AsyncArray(self)  # a guest, whom this layer does not know
        return found

    @property
    def info(self) -> Info:
        """A summary for people, without reading the chunks."""
        from zellige.nodes.info import describe

        return describe(self)

    def info_complete(self) -> Info:
        """Return `info` with the number and size of the stored chunks; lists the store."""
        from zellige.nodes.info import describe

        return describe(self, stored=True)

    def __repr__(self) -> str:
        from zellige.nodes.info import one_line

        return one_line(self)

    def _repr_html_(self) -> str:
        from zellige.nodes.info import html

        return html(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return self.store == other.store and self.path == other.path and self.metadata == other.metadata

    def __reduce__(self) -> tuple[Any, ...]:
        return Array.from_documents, (self.store, self.path, self.metadata.to_documents(), self.config, self._holder)


def read_runs(array: Array, axis: int) -> LazyTuple:
    """Return the data sizes along an axis of the smallest chunks that can be read alone, as runs of equal ones."""
    if array._inner is None:
        return array.grid.axes[axis].data_runs
    if array._uneven is None or array._is_stepped(axis):
        return FixedDimension(array._inner[axis], array.shape[axis]).data_runs
    return InnerEdges(array.grid.axes[axis].data_runs, array._inner[axis])


def update_metadata(
    array: Array,
    change: Callable[[ArrayMetadata], ArrayMetadata],
    read: tuple[node.Stored, ArrayMetadata] | None = None,
) -> None:
    """Change the stored metadata of an array, starting from what is stored now, and make the handle follow.

    `read` is what `_read_stored` returned before; it is read again only if it has changed since.
    """
    stored = None if read is None else read[0]

    def rewrite(documents: Documents) -> tuple[Documents, ArrayMetadata]:
        found = read[1] if read is not None and documents is read[0].documents else array._parsed(documents)
        metadata = change(found)
        return metadata.to_documents(), metadata

    node.update(array.store, array.path, node.document_names(array.metadata), rewrite, array._bind, stored)
    if array._holder is not None:
        array._holder.follow(array.path)


def open_array(
    store: Store, path: str, config: Mapping[str, Any] | ArrayConfig | None = None, zarr_format: int | None = None
) -> Array:
    """Open the array at a path; ArrayNotFoundError if there is none."""
    found = open_array_or(store, path, config, zarr_format)
    if isinstance(found, Array):
        return found
    if found is None:
        raise ArrayNotFoundError(f"there is no array at '/{path}' in {store!r}{node.why_missing(store, path)}")
    raise ArrayNotFoundError(f"there is a group at '/{path}' in {store!r}, not an array; use open_group")


def open_array_or(
    store: Store,
    path: str,
    config: Mapping[str, Any] | ArrayConfig | None = None,
    zarr_format: int | None = None,
    *,
    holder: Consolidated | None = None,
    consolidated: bool = True,
    likely: int | None = None,
) -> Array | Documents | None:
    """Open the array at a path; returns the documents of the group that is there instead, or None for nothing.

    `consolidated` is whether those of a group may come out of its `.zmetadata`, `likely` the format to be expected.
    """
    settings = ArrayConfig.of(config)
    read = node.reader(store, path, zarr_format, first=3 if likely == 3 else None, consolidated=consolidated)
    raw = None if zarr_format == 2 else read(DOCUMENT)
    if raw is not None and (known := remembered(raw)) is not None:
        return warned(Array(store, path, known.metadata, settings, holder, known))
    if raw is not None:
        documents: Documents | None = {DOCUMENT: node.parse_document(store, path, DOCUMENT, raw)}
    elif zarr_format == 3:
        return None
    else:
        documents = node.load(store, path, zarr_format=2, consolidated=consolidated, read=read)
    if documents is None or node.is_group(documents):
        return documents
    array = Array.from_documents(store, path, documents, settings, holder)
    if raw is not None:
        remember(raw, Blueprint(array.metadata, array.grid, array._chunks.chain, array._inner, array._uneven))
    return warned(array)


def warned(array: Array) -> Array:
    """Return an array that is opened, with a warning if its metadata says that it is still being filled."""
    if array.metadata.extra and UNFINISHED in array.metadata.extra:
        warn_caller(f"array {array.name!r} of {array.store!r} {UNFINISHED_WORDS}", UnfinishedWarning)
    return array


def _config_v2(metadata: Any, config: ArrayConfig) -> ArrayConfig:
    """Order results as the chunks are; without a fill value write all chunks: others make nothing of missing ones."""
    config = replace(config, order=metadata.order)
    return replace(config, write_empty_chunks=True) if metadata.fill_is_null else config


def layout(metadata: ArrayMetadata) -> tuple[Any, ...]:
    """Return what stays the same for as long as an array lives."""
    fill = fill_bits(metadata.fill_value)
    return len(metadata.shape), metadata.data_type, fill, metadata.codecs, metadata.chunk_key_encoding
