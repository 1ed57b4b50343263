"""The functions at the top of the package: create, open, save and load arrays.

Parameters that mean the same everywhere:

store
    A path, a `file://` URL, a `Store`, a dict, or None for memory.
path, name
    Where in the store; the root by default. Missing groups above it are created.
chunks
    One size for all axes; or for each axis a size, `-1` for the whole axis, or edges such as
    `[31, 28, 31]` or `[[10, 365]]` (365 times 10); or `{"time": …}` with `dimension_names`; or `"auto"`.
chunk_grid
    `"rectilinear"` keeps uniform edges as edges, `"regular"` refuses uneven ones; inferred by default.
filters, serializer, compressors
    Codecs, names or JSON; None for none. The default compressor is zstd with its checksum.
checksum
    Add a crc32c to every chunk.
config
    Settings of the handle: `order`, `write_empty_chunks`, `read_missing_chunks`.
overwrite
    Replace a node that is there already; otherwise that is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from math import prod
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np

from zellige import node
from zellige.array import Array
from zellige.chunking import ChunksLike, GridName, parse_shards
from zellige.codecs import Codec, parse_codec, parse_codecs
from zellige.codecs.chain import CodecChain
from zellige.codecs.sharding import ShardingCodec
from zellige.config import ArrayConfig
from zellige.dtypes import DataType, parse_dtype
from zellige.dtypes.fill import fill_bits
from zellige.dtypes.values import as_values
from zellige.errors import ArrayNotFoundError, NotANodeError
from zellige.grid import ChunkGrid
from zellige.info import human_bytes
from zellige.metadata import ArrayV3Metadata
from zellige.metadata.document import Extension, plain
from zellige.metadata.grids import grid_document
from zellige.metadata.keys import chunk_key_encoding_argument
from zellige.stores import Store, resolve
from zellige.types import Shape

StoreLike: TypeAlias = Store | str | PathLike[str] | MutableMapping[str, Any] | None
Mode: TypeAlias = Literal["r", "r+", "a", "w", "w-"]

_AT_ONCE = 64 << 20  # data up to this size is converted in one go


def create_array(
    store: StoreLike = None,
    *,
    name: str | None = None,
    shape: int | Sequence[int] | None = None,
    dtype: Any = None,
    data: Any = None,
    chunks: ChunksLike = "auto",
    shards: ChunksLike = None,
    chunk_grid: GridName | None = None,
    filters: Any = "auto",
    serializer: Any = "auto",
    compressors: Any = "auto",
    compressor: Any = "auto",
    checksum: bool = False,
    fill_value: Any = None,
    order: Literal["C", "F"] | None = None,
    zarr_format: Literal[3] = 3,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    overwrite: bool = False,
    config: Mapping[str, Any] | ArrayConfig | None = None,
    write_data: bool = True,
) -> Array:
    """Create an array; with `data`, of its shape and type, and filled with it.

    Parameters: see the module's text. `compressor` is the old name for a single compressor.

    >>> import zellige
    >>> zellige.create_array(shape=(100, 20), chunks=(10, [5, 12, 3]), dtype="int16")
    <zellige.Array / (100, 20) int16, rectilinear chunks 10 × [5, 12, 3]>
    """
    if zarr_format != 3:
        raise ValueError(f"zarr_format={zarr_format!r}: this version writes Zarr format 3 only")
    data = _as_data(data, dtype)
    shape_, data_type = _shape_and_type(shape, dtype, data)
    fill = data_type.cast_fill(fill_value)
    names = _check_dimension_names(dimension_names, len(shape_))
    grid_name, axes, inner = parse_shards(
        chunks,
        shards,
        shape_,
        itemsize=data_type.numpy.itemsize,
        dimension_names=names,
        chunk_grid=chunk_grid,
    )
    if _is_auto(chunks) or _is_auto(shards):
        _say_chosen(axes, inner, data_type)
    if not _is_auto(compressors) and not _is_auto(compressor):
        raise ValueError("compressors= and its old name compressor= are both given; leave one out")
    chosen = compressors if _is_auto(compressor) else compressor
    codecs = _chain(data_type, filters, serializer, chosen, checksum=checksum)
    if inner is not None:
        codecs = [_sharding(inner, codecs)]
    chunk_shape = tuple(c if isinstance(c, int) else c[0] for c in axes)
    chain = CodecChain(codecs, data_type, fill, chunk_shape)
    metadata = ArrayV3Metadata(
        shape=shape_,
        data_type=data_type,
        chunk_grid=grid_document(grid_name, axes),
        chunk_key_encoding=chunk_key_encoding_argument(chunk_key_encoding),
        fill_value=fill,
        codecs=tuple(Extension(codec.name, codec.configuration()) for codec in chain),
        attributes=plain(attributes or {}),
        dimension_names=names,
    )
    settings = ArrayConfig.of({**_as_dict(config), **({"order": order} if order else {})})
    target = resolve(store)
    path = node.normalize_path(name)
    array = Array(target, path, metadata, settings)  # checks everything before anything is written
    if not overwrite and (stray := next(array._engine.stored(array.ndim), None)) is not None:
        _refuse_stray(array, stray[1])
    if overwrite and isinstance(data, Array):
        _refuse_to_remove(data, target, path)
    node.create(target, path, metadata.to_bytes(), overwrite=overwrite)
    if data is not None and write_data:
        _copy_values(array, data)
    return array


def _refuse_to_remove(source: Array, store: Store, path: str) -> None:
    """Overwriting begins by removing what is there; the source of the values must not be among it."""
    below = source.store.identity == store.identity and f"{source.path}/".startswith(path and path + "/")
    # Stores with other roots may mean the same place, and then their locks have the same name.
    here = store.exclusive_here(node.join(path, node.DOCUMENT))
    there = source.store.exclusive_here(node.join(source.path, node.DOCUMENT))
    if below or here.name == there.name:
        raise ValueError(
            f"data is the array {source.name!r} of {source.store!r}, which overwriting '/{path}' would remove before "
            "it is read; write to another path"
        )


def _refuse_stray(array: Array, key: str) -> None:
    """Chunks without a document would appear in a new array as if they were written there."""
    if array.store.get(node.join(array.path, node.DOCUMENT)) is None:
        raise NotANodeError(f"key {key!r} in {array.store!r} looks like a chunk of a lost array; remove it first")


def _as_dict(config: Mapping[str, Any] | ArrayConfig | None) -> dict[str, Any]:
    if isinstance(config, ArrayConfig):
        return {name: getattr(config, name) for name in config.__slots__}
    return dict(config or {})


def _as_data(data: Any, dtype: Any) -> Any:
    """Data that has a shape; of the array's own type where numpy would guess another, as for strings and structs."""
    if data is None or (hasattr(data, "shape") and not isinstance(data, np.ndarray)):
        return data
    if dtype is not None and (numpy := parse_dtype(dtype).numpy).kind not in "biufc":
        return as_values(data, numpy)
    return np.asarray(data)


def _shape_and_type(shape: int | Sequence[int] | None, dtype: Any, data: Any) -> tuple[Shape, DataType]:
    if data is not None:
        if shape is not None and _as_shape(shape) != tuple(data.shape):
            raise ValueError(f"shape={shape} differs from the shape of the data, {tuple(data.shape)}; leave one out")
        return tuple(data.shape), parse_dtype(_type_of(data) if dtype is None else dtype)
    if shape is None:
        raise ValueError("create_array needs shape= and dtype=, or data=")
    return _as_shape(shape), parse_dtype("float64" if dtype is None else dtype)


def _type_of(data: Any) -> Any:
    """The type of something that has one; numpy's does not say all about ours."""
    return data.metadata.data_type if isinstance(data, Array) else data.dtype


def _as_shape(shape: Any) -> Shape:
    given = (shape,) if isinstance(shape, int | np.integer) and not isinstance(shape, bool) else shape
    try:
        lengths = tuple(int(n) if isinstance(n, int | np.integer) and not isinstance(n, bool) else -1 for n in given)
    except TypeError:
        lengths = (-1,)
    if any(n < 0 for n in lengths):
        raise ValueError(f"shape={shape!r} must be one integer >= 0 for each axis")
    if any(n >= 2**63 for n in lengths) or len(lengths) > 64:
        raise ValueError(f"shape={shape!r} is larger than numpy can index")
    return lengths


def _check_dimension_names(names: Sequence[str | None] | None, rank: int) -> tuple[str | None, ...] | None:
    if names is None:
        return None
    found = (names,) if isinstance(names, str) else tuple(names)
    if len(found) != rank or any(name is not None and not isinstance(name, str) for name in found):
        raise ValueError(f"dimension_names={names!r} must be {rank} strings or None, one for each axis")
    return found


def _chain(dtype: DataType, filters: Any, serializer: Any, compressors: Any, *, checksum: bool) -> list[Codec]:
    """The codecs of a new array."""
    first = [] if _is_auto(filters) else parse_codecs(filters)
    if _is_auto(serializer):
        middle = parse_codec({"name": dtype.codec, "configuration": {"endian": "little"} if dtype.endian else {}})
    else:
        middle = parse_codec(serializer)
    if _is_auto(compressors):
        # Around a shard, a compressor would hide its parts; it belongs inside.
        last = [] if isinstance(middle, ShardingCodec) else [parse_codec("zstd")]
    else:
        last = parse_codecs(compressors)
    return [*first, middle, *last, *([parse_codec("crc32c")] if checksum else [])]


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _sharding(inner: Shape, chain: list[Codec]) -> Codec:
    index = (parse_codec("bytes"), parse_codec("crc32c"))
    return ShardingCodec(inner, tuple(chain), index)


def _say_chosen(axes: Sequence[Any], inner: Shape | None, dtype: DataType) -> None:
    """What `"auto"` came to, for those who listen to the logger `zellige`."""
    from logging import getLogger

    chosen = inner or tuple(c if isinstance(c, int) else c[0] for c in axes)
    nbytes = human_bytes(prod(chosen) * dtype.numpy.itemsize)
    shards = f" in shards {tuple(axes)}" if inner else ""
    getLogger("zellige").info("'auto' chose chunks %s of %s, %s each%s", chosen, dtype.name, nbytes, shards)


# -- copying --------------------------------------------------------------------------------------


def from_array(store: StoreLike = None, *, data: Any, name: str | None = None, **options: Any) -> Array:
    """A new array with the values of another array, or of anything array-like.

    Chunks, codecs, fill value, attributes and dimension names of a zellige array are kept unless given
    anew (`"keep"` says so explicitly). Where grid, type and codecs stay the same, the bytes of the
    chunks are copied as they are.

    >>> import zellige
    >>> a = zellige.create_array(data=[1, 2, 3, 4], chunks=[[1, 3]])
    >>> b = zellige.from_array(data=a)
    >>> b.write_chunk_sizes, b[:]
    (((1, 3),), array([1, 2, 3, 4]))
    """
    given = {key: value for key, value in options.items() if not (isinstance(value, str) and value == "keep")}
    write_data = given.pop("write_data", True)
    array = create_array(store, name=name, data=data, write_data=False, **_keeping(data, given))
    if write_data:
        _copy(array, data)
    return array


def _keeping(source: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What a new array has of another one, and what is given anew."""
    kept = _kept(source, given) if isinstance(source, Array) else _kept_chunks(source)
    unfit = {"chunks", "shards", "chunk_grid"} if given.keys() & {"chunks", "shape"} else set()
    unfit |= {"shards"} if "shards" in given else set()
    unfit |= {"compressors"} if "compressor" in given else set()
    unfit |= {"serializer"} if "dtype" in given else set()  # the byte order belongs to the type
    return {key: value for key, value in kept.items() if key not in unfit} | given


_LAYOUT = {"chunks", "shards", "shape", "dtype", "filters", "serializer", "compressors", "compressor", "checksum"}


def _kept(source: Array, given: Collection[str]) -> dict[str, Any]:
    metadata = source.metadata
    return {
        **_kept_layout(source, as_it_is=_LAYOUT.isdisjoint(given)),
        "chunk_grid": metadata.chunk_grid.name,
        "fill_value": metadata.fill_value,
        "attributes": metadata.attributes,
        "chunk_key_encoding": metadata.chunk_key_encoding,
        "dimension_names": metadata.dimension_names,
        "order": source.order,
    }


def _kept_layout(source: Array, *, as_it_is: bool) -> dict[str, Any]:
    """Chunks, shards and codecs; where something of it changes, what is inside plain shards is kept without them."""
    grid, shard = list(source.metadata.chunk_grid.axes), source.serializer
    plain = isinstance(shard, ShardingCodec) and not source.filters and not source.compressors
    if plain and not as_it_is:
        assert isinstance(shard, ShardingCodec)
        inner = CodecChain(shard.codecs, source.metadata.data_type, source.metadata.fill_value, shard.chunk_shape)
        codecs = {"filters": inner.filters, "serializer": inner.serializer, "compressors": inner.compressors}
        return {"chunks": shard.chunk_shape, "shards": grid, **codecs}
    codecs = {"filters": source.filters, "serializer": shard, "compressors": source.compressors}
    return {"chunks": grid, **codecs}


def _kept_chunks(data: Any) -> dict[str, Any]:
    """The chunks of array-likes that have some: h5py, dask, zarr."""
    chunks = getattr(data, "chunks", None)
    if not chunks:
        return {}
    # dask has blocks of no length, which a grid has not.
    return {"chunks": tuple(tuple(n for n in c if n) or -1 if isinstance(c, tuple) else c for c in chunks)}


def _copy(target: Array, data: Any) -> None:
    if isinstance(data, Array) and _same_chunks(target, data):
        target._engine.copy_chunks(data._engine, target.grid)
    else:
        _copy_values(target, data)


def _same_chunks(a: Array, b: Array) -> bool:
    """Whether the stored bytes of both arrays mean the same."""

    def meaning(array: Array) -> tuple[Any, ...]:
        document = array.metadata.to_dict()
        return document["data_type"], document["fill_value"], document["codecs"], fill_bits(array.metadata.fill_value)

    return a.grid == b.grid and meaning(a) == meaning(b)


def _copy_values(target: Array, data: Any) -> None:
    if isinstance(data, np.ndarray) or target.nbytes <= _AT_ONCE:
        target[...] = np.asarray(data) if hasattr(data, "shape") else data
        return
    for region in _regions(target.grid):  # in pieces, so that memory stays bounded
        target[region] = np.asarray(data[region])


def _regions(grid: ChunkGrid) -> Iterator[tuple[slice, ...]]:
    return (spec.slices for spec in grid)


# -- opening --------------------------------------------------------------------------------------


def open_array(
    store: StoreLike = None,
    *,
    path: str = "",
    mode: Mode = "a",
    config: Mapping[str, Any] | ArrayConfig | None = None,
    **create: Any,
) -> Array:
    """Open an array, or create it where the mode says so, with the parameters of `create_array`.

    Modes: `r` read only, `r+` read and write, `a` open or create, `w` create anew, `w-` create, fail if
    there is something already. Reading modes never create anything.
    """
    if mode not in ("r", "r+", "a", "w", "w-"):
        raise ValueError(f"mode={mode!r} must be one of 'r', 'r+', 'a', 'w', 'w-'")
    place = node.normalize_path(path)
    if mode in ("w", "w-"):
        return create_array(store, name=path, config=config, **{"overwrite": mode == "w", **create})
    target = resolve(store, read_only=mode == "r")
    try:
        return Array.open(target, place, config)
    except ArrayNotFoundError:
        if mode != "a" or ("shape" not in create and "data" not in create):
            raise
    return create_array(target, name=path, config=config, **create)


def open(store: StoreLike = None, *, path: str = "", mode: Mode | None = None, **options: Any) -> Array:
    """Open the array at a place. Parameters: see `open_array`; by default an array is opened or created (`a`).

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.create_array(store, name="t", data=[1.5, 2.5]).attrs["unit"] = "K"
    >>> zellige.open(store, path="t", mode="r").attrs["unit"]
    'K'
    """
    return open_array(store, path=path, mode=mode or "a", **options)


def save_array(store: StoreLike, arr: Any, *, path: str = "", **options: Any) -> None:
    """Store anything array-like as an array, in place of a node that is there already."""
    from_array(store, data=arr, name=path, **{"overwrite": True, **options})


save = save_array


def load(store: StoreLike, path: str = "") -> Any:
    """The whole array as numpy.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.save(store, [[1, 2], [3, 4]])
    >>> zellige.load(store)
    array([[1, 2],
           [3, 4]])
    """
    return open_array(store, path=path, mode="r")[...]


# -- as numpy makes arrays ------------------------------------------------------------------------


def create(shape: int | Sequence[int], *, store: StoreLike = None, path: str | None = None, **options: Any) -> Array:
    """An array of fill values. Parameters: see `create_array`."""
    return create_array(store, name=path, shape=shape, **options)


def zeros(shape: int | Sequence[int], **options: Any) -> Array:
    """An array of zeros.

    >>> import zellige
    >>> zellige.zeros((2, 3), dtype="int8")[0]
    array([0, 0, 0], dtype=int8)
    """
    dtype = options.get("dtype")
    return create(shape, **{**options, "fill_value": parse_dtype("float64" if dtype is None else dtype).zero})


def ones(shape: int | Sequence[int], **options: Any) -> Array:
    """An array of ones."""
    return create(shape, **{**options, "fill_value": 1})


def full(shape: int | Sequence[int], fill_value: Any, **options: Any) -> Array:
    """An array of one value."""
    return create(shape, **{**options, "fill_value": fill_value})


def empty(shape: int | Sequence[int], **options: Any) -> Array:
    """An array to be filled; reads as the fill value until then."""
    return create(shape, **options)


def array(data: Any, *, store: StoreLike = None, path: str | None = None, **options: Any) -> Array:
    """An array with the values of anything array-like.

    >>> import zellige
    >>> zellige.array([[1, 2], [3, 4]], chunks=(1, 2)).nchunks
    2
    """
    return from_array(store, data=data, name=path, **options)


def zeros_like(a: Any, **options: Any) -> Array:
    """An array of zeros with the shape, type and chunks of another."""
    return zeros(**_like(a, options))


def ones_like(a: Any, **options: Any) -> Array:
    """An array of ones with the shape, type and chunks of another."""
    return ones(**_like(a, options))


def empty_like(a: Any, **options: Any) -> Array:
    """An array to be filled with the shape, type and chunks of another."""
    return empty(**_like(a, options))


def full_like(a: Any, *, fill_value: Any = None, **options: Any) -> Array:
    """An array of one value with the shape, type and chunks of another."""
    if fill_value is None:
        fill_value = getattr(a, "fill_value", None)
    return full(fill_value=fill_value, **_like(a, options))


def _like(a: Any, options: dict[str, Any]) -> dict[str, Any]:
    shaped = a if hasattr(a, "shape") and hasattr(a, "dtype") else np.asarray(a)
    kept = _keeping(a, options)
    if isinstance(a, Array):
        kept = {key: value for key, value in kept.items() if key in options or key not in ("attributes", "fill_value")}
    return {"shape": shaped.shape, "dtype": _type_of(shaped), **kept}
