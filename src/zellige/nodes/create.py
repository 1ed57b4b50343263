"""Making arrays: `create_array`, and `zeros`, `ones`, `full`, `empty` and `create` in its terms.

Parameters that mean the same everywhere:

store
    A path, a `file://` URL, a `Store`, a `StorePath`, a dict, or None for memory.
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
fill_value
    The value of elements that were never written; by default zero, or what is closest to it. None in Zarr format 2
    means that there is no fill value: missing chunks read as zero, and xarray takes no element for missing.
zarr_format
    3, or 2 for readers that know nothing newer; by default the setting `default_zarr_format`.
config
    Settings of the handle: `order`, `write_empty_chunks`, `read_missing_chunks`.
overwrite
    Replace a node that is there already, with all nodes below it; otherwise that is an error. Files that are not
    part of them stay, and what is no Zarr node is refused. Stopped half-way, it can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from zellige.codecs import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec, parse_codec, parse_codecs
from zellige.codecs.base import ArraySpec
from zellige.codecs.chain import CodecChain, resolved
from zellige.codecs.sharding import ShardingCodec
from zellige.dtypes import DataType, parse_dtype
from zellige.dtypes.cast import as_value, as_values, unmasked
from zellige.errors import as_mapping
from zellige.grid.grid import ChunkGrid
from zellige.grid.parse import ChunksLike, GridName, parse_shards
from zellige.metadata import ArrayV3Metadata
from zellige.metadata.grids import grid_document
from zellige.metadata.json import Extension, new_attributes
from zellige.metadata.keys import chunk_key_encoding_argument
from zellige.nodes import node
from zellige.nodes.array import Array
from zellige.settings import ArrayConfig
from zellige.settings import config as settings
from zellige.stores import StoreLike, locate
from zellige.types import NOT_GIVEN, Shape

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata

ZarrFormat = Literal[2, 3]

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
    fill_value: Any = NOT_GIVEN,
    order: Literal["C", "F"] | None = None,
    zarr_format: ZarrFormat | None = None,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
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
    target, path = locate(store, node.new_path(name), storage_options=storage_options)
    if not _is_auto(compressors) and not _is_auto(compressor):
        raise ValueError("compressors= and its old name compressor= are both given; leave one out")
    form = check_format(zarr_format)
    if form == 2 and (dtype is object or (dtype is None and getattr(data, "dtype", np.dtype(bool)).kind == "O")):
        from zellige.nodes.create_v2 import object_type

        dtype = object_type(filters)
    data = as_data(data, dtype)
    shape_, data_type = _shape_and_type(shape, dtype, data)
    names = _check_dimension_names(dimension_names, len(shape_))
    grid = parse_shards(
        chunks,
        shards,
        shape_,
        itemsize=data_type.numpy.itemsize,
        dimension_names=names,
        chunk_grid=chunk_grid,
    )
    if _is_auto(chunks) or _is_auto(shards):
        _say_chosen(grid[1], grid[2], data_type)
    codecs = _Codecs(filters, serializer, compressors if _is_auto(compressor) else compressor, checksum)
    common = {
        "shape": shape_,
        "fill_value": fill_value,
        "attributes": new_attributes(attributes),
        "dimension_names": names,
        "chunk_key_encoding": chunk_key_encoding,
    }
    metadata: ArrayMetadata
    if form == 3:
        metadata = _metadata_v3(data_type, grid, codecs, **common)
    else:
        from zellige.nodes.create_v2 import metadata_v2  # only for those who write such arrays

        declared = dtype if dtype is not None else data_type if data is None else type_of(data)
        metadata = metadata_v2(data_type, grid, codecs, declared=declared, order=order or "C", **common)
    handle = ArrayConfig.of({**_as_dict(config), **({"order": order} if order else {})})
    array = Array(target, path, metadata, handle)  # checks everything before anything is written
    array._check_shards(array.grid)
    if write_data:
        put(array, data, copy_values, overwrite=overwrite)
    else:
        _check_data(array, data, overwrite=overwrite)
        _create(array, overwrite=overwrite)
    return array


class _Codecs(NamedTuple):
    """What a user says about codecs."""

    filters: Any
    serializer: Any
    compressors: Any
    checksum: bool


def _metadata_v3(
    data_type: DataType, grid: tuple[GridName, Any, Shape | None], codecs: _Codecs, **common: Any
) -> ArrayV3Metadata:
    grid_name, axes, inner = grid
    given = common.pop("fill_value")
    fill = data_type.cast_fill(None if given is NOT_GIVEN else given)
    shape = tuple(c if isinstance(c, int) else c[0] for c in axes)
    chain = _chain(ArraySpec(inner or shape, data_type, fill), codecs)
    if inner is not None:
        chain = [_sharding(inner, chain)]
    checked = CodecChain(chain, data_type, fill, shape)
    serializer = checked.serializer.evolve(checked.specs(shape)[-1])
    return ArrayV3Metadata(
        data_type=data_type,
        chunk_grid=grid_document(grid_name, axes),
        fill_value=fill,
        codecs=tuple(
            Extension(codec.name, codec.configuration())
            for codec in (*checked.filters, serializer, *checked.compressors)
        ),
        **{**common, "chunk_key_encoding": chunk_key_encoding_argument(common["chunk_key_encoding"])},
    )


def put(array: Array, data: Any, copy: Callable[[Array, Any], None], *, overwrite: bool) -> None:
    """Put a new array into its store with its values, if there are any; an error, or a kill, leaves no array by half.

    Values that are not in memory are read first if they are few. If they are many, the document comes after them.
    """
    _check_data(array, data, overwrite=overwrite)
    if data is None:
        _create(array, overwrite=overwrite)
        return
    from zellige.nodes import placing

    place = (array.store, array.path, array.metadata)
    if isinstance(data, np.ndarray) or array.nbytes <= _AT_ONCE:
        values = data if isinstance(data, np.ndarray | Array) else _loaded(data)
        placing.create_with_values(*place, lambda: copy(array, values), overwrite=overwrite)
        return
    with placing.filling(*place, overwrite=overwrite):
        copy(array, data)


def _check_data(array: Array, data: Any, *, overwrite: bool) -> None:
    """Refuse data that does not fit, or would be removed before it is read, before anything is changed."""
    if isinstance(data, np.ndarray):
        as_value(data, array.dtype, array.config.casting)
    elif overwrite and data is not None:
        from zellige.nodes.sources import refuse_to_remove

        refuse_to_remove(data, array.store, array.path)


def _create(array: Array, *, overwrite: bool) -> None:
    from zellige.nodes import placing  # only for those who write

    placing.create(array.store, array.path, array.metadata, overwrite=overwrite)


def _loaded(data: Any) -> Any:
    """Values in memory; raises if an element is masked."""
    return np.asarray(unmasked(data)) if hasattr(data, "shape") else data


def check_format(zarr_format: Any) -> ZarrFormat:
    """The format of a new node: 2, 3, or None for the setting `default_zarr_format`."""
    found: Any = settings.get("default_zarr_format") if zarr_format is None else zarr_format
    if type(found) is not int or found not in (2, 3):
        raise ValueError(f"zarr_format={zarr_format!r} must be 3 or 2")
    return found  # type: ignore[return-value]


def _as_dict(config: Mapping[str, Any] | ArrayConfig | None) -> dict[str, Any]:
    if isinstance(config, ArrayConfig):
        return {name: getattr(config, name) for name in config.__slots__}
    return dict(as_mapping(config or {}, "config"))


def as_data(data: Any, dtype: Any) -> Any:
    """Data that has a shape; of the array's own type where numpy would guess another, as for strings and structs."""
    if data is None or (hasattr(data, "shape") and not isinstance(data, np.ndarray)):
        return data
    if dtype is not None and (numpy := parse_dtype(dtype).numpy).kind not in "biufc":
        return as_values(data, numpy)
    return np.asarray(unmasked(data))


def _shape_and_type(shape: int | Sequence[int] | None, dtype: Any, data: Any) -> tuple[Shape, DataType]:
    if data is not None:
        if shape is not None and _as_shape(shape) != tuple(data.shape):
            raise ValueError(f"shape={shape} differs from the shape of the data, {tuple(data.shape)}; leave one out")
        return tuple(data.shape), parse_dtype(type_of(data) if dtype is None else dtype)
    if shape is None:
        raise ValueError("create_array needs shape= and dtype=, or data=")
    return _as_shape(shape), parse_dtype("float64" if dtype is None else dtype)


def type_of(data: Any) -> Any:
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
    found = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (names,)
    if len(found) != rank or any(name is not None and not isinstance(name, str) for name in found):
        raise ValueError(f"dimension_names={names!r} must be {rank} strings or None, one for each axis")
    return found


def _chain(spec: ArraySpec, codecs: _Codecs) -> list[Codec]:
    """The codecs of a new array, whose chunks are like this."""
    filters, serializer, compressors, checksum = codecs
    first = [] if _is_auto(filters) else parse_codecs(filters)
    if _is_auto(serializer):
        dtype = resolved(spec, first)[-1].dtype  # filters may make another one
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

    from zellige.display.text import human_bytes

    chosen = inner or tuple(c if isinstance(c, int) else c[0] for c in axes)
    nbytes = human_bytes(prod(chosen) * dtype.numpy.itemsize)
    shards = f" in shards {tuple(axes)}" if inner else ""
    getLogger("zellige").info("'auto' chose chunks %s of %s, %s each%s", chosen, dtype.name, nbytes, shards)


def copy_values(target: Array, data: Any) -> None:
    """Write all values of something array-like, in pieces if they are many."""
    if isinstance(data, np.ndarray) or target.nbytes <= _AT_ONCE:
        target[...] = _loaded(data)
        return
    for region in _regions(target.grid):  # in pieces, so that memory stays bounded
        target[region] = np.asarray(unmasked(data[region]))


def _regions(grid: ChunkGrid) -> Iterator[tuple[slice, ...]]:
    return (spec.slices for spec in grid)


# -- as numpy makes arrays ------------------------------------------------------------------------


def create(shape: int | Sequence[int], *, store: StoreLike = None, path: str | None = None, **options: Any) -> Array:
    """An array of fill values, with the keywords of zarr-python's older function as well.

    Parameters: see `create_array`. `chunk_shape` is another name for `chunks`, `codecs` the whole chain at once,
    `dimension_separator` a part of `chunk_key_encoding`, `object_codec` the first of the filters in Zarr format 2.

    >>> import zellige
    >>> zellige.create((4, 6), chunks=(2, 3), dtype="int16", fill_value=7)[0, 0]
    np.int16(7)
    """
    return create_array(store, name=path, **modern_options({"shape": shape, **options}))


def modern_options(options: dict[str, Any], zarr_format: Any = None) -> dict[str, Any]:
    """The keywords of older functions as those of `create_array`."""
    found = {key: value for key, value in options.items() if key not in NO_MEANING}
    if (chunk_shape := found.pop("chunk_shape", None)) is not None:
        found["chunks"] = chunk_shape
    chunks = found.get("chunks", "auto")
    if chunks is None or chunks is True:
        found["chunks"] = "auto"
    elif chunks is False:
        found["chunks"] = -1
    if (separator := found.pop("dimension_separator", None)) is not None:
        name = "v2" if check_format(found.get("zarr_format", zarr_format)) == 2 else "default"
        found["chunk_key_encoding"] = {"name": name, "separator": separator}
    if (codec := found.pop("object_codec", None)) is not None:
        found["filters"] = [codec, *(found.get("filters") or [])]
    if (codecs := found.pop("codecs", None)) is not None:
        found |= _by_kind(codecs)
    if (write_empty := found.pop("write_empty_chunks", None)) is not None:
        found["config"] = {**_as_dict(found.get("config")), "write_empty_chunks": write_empty}
    mode = found.pop("mode", None)
    return found if mode is None else {**found, "overwrite": mode == "w"}


NO_MEANING = {"synchronizer", "chunk_store", "cache_metadata", "cache_attrs", "meta_array", "read_only"}
"""Accepted because scripts have them; locks, caches and read-only stores are arranged otherwise here."""


KNOWN_OPTIONS = {*(create_array.__kwdefaults__ or ()), "chunk_shape", "dimension_separator", "object_codec", "codecs"}
KNOWN_OPTIONS |= {"write_empty_chunks"}
"""The keywords of functions that create arrays, old and new."""


def _by_kind(codecs: Any) -> dict[str, Any]:
    """A whole chain as filters, serializer and compressors."""
    chain = parse_codecs(codecs)
    serializers = [codec for codec in chain if isinstance(codec, ArrayBytesCodec)]
    return {
        "filters": [codec for codec in chain if isinstance(codec, ArrayArrayCodec)],
        "serializer": serializers[0] if serializers else "auto",
        "compressors": [codec for codec in chain if isinstance(codec, BytesBytesCodec)],
    }


def zeros(shape: int | Sequence[int], **options: Any) -> Array:
    """An array of zeros.

    >>> import zellige
    >>> zellige.zeros((2, 3), dtype="int8")[0]
    array([0, 0, 0], dtype=int8)
    """
    dtype = options.get("dtype")
    return create(shape, **{**options, "fill_value": parse_dtype("float64" if dtype is None else dtype).zero})


def ones(shape: int | Sequence[int], **options: Any) -> Array:
    """An array of ones.

    >>> import zellige
    >>> zellige.ones(3, dtype="int8")[:]
    array([1, 1, 1], dtype=int8)
    """
    return create(shape, **{**options, "fill_value": 1})


def full(shape: int | Sequence[int], fill_value: Any, **options: Any) -> Array:
    """An array of one value.

    >>> import zellige
    >>> zellige.full(3, 7, dtype="int8")[:]
    array([7, 7, 7], dtype=int8)
    """
    return create(shape, **{**options, "fill_value": fill_value})


def empty(shape: int | Sequence[int], **options: Any) -> Array:
    """An array to be filled; reads as the fill value until then.

    >>> import zellige
    >>> zellige.empty((59, 2), chunks=[[31, 28], 2]).write_chunk_sizes
    ((31, 28), (2,))
    """
    return create(shape, **options)
