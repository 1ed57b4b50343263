"""Creating arrays: arguments, checked metadata, the node in its place with the groups above, data.

`create_array` is the whole story, for both Zarr formats. The other functions turn their arguments into its options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from zellige.codecs import (
    ArrayArrayCodec,
    ArrayBytesCodec,
    BytesBytesCodec,
    Codec,
    from_json,
    parse_codec,
    parse_codecs,
)
from zellige.codecs.base import ArraySpec
from zellige.codecs.chain import CodecChain, resolved
from zellige.codecs.sharding import ShardingCodec, chunk_chain
from zellige.dtypes import DataType, parse_dtype
from zellige.dtypes.cast import as_value, as_values, unmasked
from zellige.dtypes.fill import fill_bits
from zellige.errors import ChunkShapeError, MetadataError, UnknownDataTypeError, as_flag
from zellige.grid.parse import ChunksLike, GridName, parse_shards
from zellige.io.write import copy_chunks
from zellige.metadata import ArrayV3Metadata
from zellige.metadata.chunks import V2ChunkKeyEncoding, chunk_key_encoding_argument, grid_document
from zellige.metadata.json import Extension, new_attributes
from zellige.nodes import node
from zellige.nodes.array import Array
from zellige.settings import ArrayConfig
from zellige.settings import config as settings
from zellige.stores import Store, StoreLike, locate
from zellige.types import JSON, NOT_GIVEN, Shape

if TYPE_CHECKING:
    from zellige.metadata.v2 import ArrayV2Metadata
    from zellige.nodes.node import ArrayMetadata

ZarrFormat = Literal[2, 3]

_AT_ONCE = 64 << 20  # data up to this size is converted in one go
_COMPRESSOR_V2 = {"id": "zstd", "level": 1}  # without the checksum, which not every reader of this format knows
_NAMES_V2 = "_ARRAY_DIMENSIONS"  # as xarray names axes in Zarr format 2


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

    Parameters
    ----------
    store
        A path, a URL, a `Store`, a `StorePath`, a dict, or None for memory.
    name
        The path in the store; the root by default. Missing groups above it are created.
    shape
        The lengths of the axes; an integer for one axis.
    dtype
        The type of the elements: anything that numpy takes, or the name of a Zarr data type. `float64` by default.
    data
        Anything array-like.
    chunks
        One size for all axes; or for each axis a size, `-1` for the whole axis, or edges such as `[31, 28, 31]` or
        `[[10, 365]]` (365 times 10); or `{"time": …}` with `dimension_names`; or `"auto"`.
    shards
        The same for the stored values, each of which holds several chunks; None stores each chunk by itself.
    chunk_grid
        `"rectilinear"` keeps uniform edges as edges, `"regular"` refuses uneven ones; inferred by default.
    filters, serializer, compressors
        Codecs, names or JSON; None for none. The default compressor is zstd with its checksum.
    compressor
        The old name for a single compressor.
    checksum
        Whether to add a crc32c to every chunk.
    fill_value
        The value of elements that were never written; by default zero, or what is closest to it, and NaT for times.
        None in Zarr format 2 means that there is no fill value: missing chunks read as zero, and xarray takes no
        element for missing.
    order
        The memory order of results, and of chunks in Zarr format 2.
    zarr_format
        3, or 2 for readers that know nothing newer; by default the setting `default_zarr_format`.
    attributes
        The attributes, as JSON.
    chunk_key_encoding
        How the chunks are named in the store: `"default"` (`c/0/1`) or `"v2"` (`0.1`), or
        `{"name": …, "separator": …}`.
    dimension_names
        The names of the axes.
    storage_options
        How to reach a server; see `zellige.open`.
    overwrite
        Whether to replace a node that is there already, with all nodes below it; otherwise that is an error. Files that
        are not part of them stay, and what is no Zarr node is refused. Stopped half-way, it can be repeated.
    config
        Settings of the handle: `order`, `write_empty_chunks`, `read_missing_chunks`.
    write_data
        Whether `data` is written; otherwise only its shape and type are taken.

    >>> import zellige
    >>> zellige.create_array(shape=(100, 20), chunks=(10, [5, 12, 3]), dtype="int16")
    <zellige.Array / (100, 20) int16, rectilinear chunks 10 × [5, 12, 3]>
    """
    options = {key: value for key, value in locals().items() if key not in ("store", "name")}
    return make(store, node.new_path(name), options)


PLACE = {"name", "storage_options", "overwrite", "write_data"}
"""The options of `create_array` that do not say what the array is like."""
_DEFAULTS = {key: value for key, value in (create_array.__kwdefaults__ or {}).items() if key not in PLACE}


def make(
    store: StoreLike,
    path: str,
    options: Mapping[str, Any],
    *,
    copy: Callable[[Array, Any], None] | None = None,
    between: Callable[[], object] = node.nothing,
) -> Array:
    """Create an array with the options of `create_array`; an error, or a kill, leaves no array by half.

    Values that are not in memory are read first if they are few. If they are many, the metadata comes after them.
    `copy` writes the data, by default `copy_values`. `between`: see `hierarchy.create`.
    """
    from zellige.nodes import hierarchy  # needed only for writing

    given = dict(options)
    overwrite, write_data = given.pop("overwrite", False), given.pop("write_data", True)
    target, path = locate(store, path, storage_options=given.pop("storage_options", None))
    array, data = new_array(target, path, **given)
    write, metadata = copy or copy_values, array.metadata
    if isinstance(data, np.ndarray):
        as_value(data, array.dtype, array.config.casting)  # refuses what does not fit
    elif overwrite and data is not None:
        from zellige.nodes.provenance import refuse_to_remove

        refuse_to_remove(data, target, path)
    values = data if write_data else None
    if values is not None and not isinstance(values, np.ndarray):
        if array.nbytes > _AT_ONCE:
            with hierarchy.filling(target, path, metadata, overwrite=overwrite, between=between):
                write(array, values)
            return array
        values = values if isinstance(values, Array) else _loaded(values)
    hierarchy.create(target, {path: metadata}, overwrite=overwrite, between=between)
    if values is not None:
        with hierarchy.undone_by_errors(target, path):
            write(array, values)
    return array


# -- from arguments to metadata -------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """What arguments come to that are the same in both formats."""

    shape: Shape
    data_type: DataType
    declared: Any
    """The type as it was given, which may have a byte order."""
    grid: GridName
    axes: tuple[Any, ...]
    inner: Shape | None
    """The shape of the inner chunks of shards."""
    names: tuple[str | None, ...] | None


def new_array(store: Store, path: str, **options: Any) -> tuple[Array, Any]:
    """Return an array that is not stored yet, by the options of `create_array`, and its data; checks everything."""
    if unknown := options.keys() - _DEFAULTS.keys():
        raise TypeError(f"create_array() got an unexpected keyword argument {min(unknown)!r}")
    given = SimpleNamespace(**{**_DEFAULTS, **options})
    if not _is_auto(given.compressors) and not _is_auto(given.compressor):
        raise ValueError("compressors= and its old name compressor= are both given; leave one out")
    given.compressors = given.compressors if _is_auto(given.compressor) else given.compressor
    as_flag(given.checksum, "checksum")
    form = check_format(given.zarr_format)
    dtype = given.dtype
    is_object = dtype is object or (dtype is None and getattr(given.data, "dtype", np.dtype(bool)).kind == "O")
    if form == 2 and is_object:
        dtype = _object_type(given.filters)
    data = _as_data(given.data, dtype)
    shape, data_type = _shape_and_type(given.shape, dtype, data)
    names = _check_dimension_names(given.dimension_names, len(shape))
    grid, axes, inner = parse_shards(
        given.chunks,
        given.shards,
        shape,
        itemsize=data_type.numpy.itemsize,
        dimension_names=names,
        chunk_grid=given.chunk_grid,
    )
    if _is_auto(given.chunks) or _is_auto(given.shards):
        _log_choice(axes, inner, data_type)
    declared = dtype if dtype is not None else data_type if data is None else type_of(data)
    layout = _Layout(shape, data_type, declared, grid, axes, inner, names)
    metadata: ArrayMetadata = _metadata_v3(layout, given) if form == 3 else _metadata_v2(layout, given)
    config = ArrayConfig.of(given.config).changed({"order": given.order} if given.order else None)
    array = Array(store, path, metadata, config)
    array._check_shards(array.grid)
    return array, data


def _metadata_v3(layout: _Layout, given: SimpleNamespace) -> ArrayV3Metadata:
    data_type, inner = layout.data_type, layout.inner
    fill = data_type.cast_fill(None if given.fill_value is NOT_GIVEN else given.fill_value)
    shape = tuple(c if isinstance(c, int) else c[0] for c in layout.axes)
    codecs = _codecs(ArraySpec(inner or shape, data_type, fill), given)
    if inner is not None:
        codecs = [ShardingCodec(inner, tuple(codecs), (parse_codec("bytes"), parse_codec("crc32c")))]
    chain = CodecChain(codecs, data_type, fill, shape)
    serializer = chain.serializer.evolve(chain.specs(shape)[-1])
    return ArrayV3Metadata(
        shape=layout.shape,
        data_type=data_type,
        chunk_grid=grid_document(layout.grid, layout.axes),
        chunk_key_encoding=chunk_key_encoding_argument(given.chunk_key_encoding),
        fill_value=fill,
        codecs=tuple(
            Extension(codec.name, codec.configuration()) for codec in (*chain.filters, serializer, *chain.compressors)
        ),
        attributes=new_attributes(given.attributes),
        dimension_names=layout.names,
    )


def _codecs(spec: ArraySpec, given: SimpleNamespace) -> list[Codec]:
    """Return the codecs of a new array, whose chunks are like this."""
    filters = [] if _is_auto(given.filters) else parse_codecs(given.filters)
    if _is_auto(given.serializer):
        dtype = resolved(spec, filters)[-1].dtype  # filters may make another one
        serializer = parse_codec({"name": dtype.codec, "configuration": {"endian": "little"} if dtype.endian else {}})
    else:
        serializer = parse_codec(given.serializer)
    if not _is_auto(given.compressors):
        compressors = parse_codecs(given.compressors)
    else:  # around a shard, a compressor would hide its inner chunks; it belongs inside
        compressors = [] if isinstance(serializer, ShardingCodec) else [parse_codec("zstd")]
    return [*filters, serializer, *compressors, *([parse_codec("crc32c")] if given.checksum else [])]


def _metadata_v2(layout: _Layout, given: SimpleNamespace) -> ArrayV2Metadata:
    """Return the metadata of a new array of Zarr format 2; raises for what the format cannot say."""
    from zellige.dtypes.v2 import declared, to_v2, write_v2_fill  # needed only for such arrays
    from zellige.metadata.v2 import ArrayV2Metadata

    if layout.inner is not None:
        raise ValueError("Zarr format 2 has no shards; leave shards= out, or use zarr_format=3")
    if layout.grid != "regular":
        raise ChunkShapeError("Zarr format 2 has chunks of one shape only; use zarr_format=3 for others", axis=None)
    if given.serializer is not None and not _is_auto(given.serializer):
        raise MetadataError("Zarr format 2 has no serializers; leave serializer= out", field="serializer")
    compressors = _as_list(given.compressors)
    if len(compressors) > 1:
        raise MetadataError("Zarr format 2 takes one compressor; give the others as filters", field="compressor")
    separator = "."
    if given.chunk_key_encoding is not None:
        encoding = chunk_key_encoding_argument(given.chunk_key_encoding)
        if not isinstance(encoding, V2ChunkKeyEncoding):
            raise MetadataError(
                "Zarr format 2 has chunk keys of its own; give chunk_key_encoding={'name': 'v2', 'separator': …}",
                field="chunk_key_encoding",
            )
        separator = encoding.separator
    data_type = layout.data_type
    filters = list(map(_codec_v2, _as_list(given.filters)))
    if data_type.codec != "bytes" and not filters:
        filters = list(map(_codec_v2, parse_codecs(data_type.codec)))
    filters += [{"id": "crc32c"}] if given.checksum else []
    dtype = to_v2(data_type if isinstance(layout.declared, DataType) else layout.declared)
    fill = None if given.fill_value is NOT_GIVEN else given.fill_value
    no_fill = given.fill_value is None  # null says that there is none
    attributes = new_attributes(given.attributes)
    if layout.names is not None:
        attributes = {**attributes, _NAMES_V2: list(layout.names)}
    content: dict[str, JSON] = {
        "zarr_format": 2,
        "shape": list(layout.shape),
        "chunks": list(layout.axes),
        "dtype": dtype,
        "compressor": _COMPRESSOR_V2 if _is_auto(given.compressors) else next(map(_codec_v2, compressors), None),
        "fill_value": None if no_fill else write_v2_fill(data_type, declared(dtype), data_type.cast_fill(fill)),
        "order": given.order or "C",
        "filters": filters or None,
        "dimension_separator": separator,
    }
    return ArrayV2Metadata.from_documents({".zarray": content, ".zattrs": attributes})


def _codec_v2(given: Any) -> dict[str, JSON]:
    """Return the configuration of a codec that a user gives; other than in documents, nothing of it is mended."""
    from zellige.codecs.v2 import v2_config
    from zellige.metadata.v2 import LEVELS

    found = v2_config(given)
    if found["id"] in LEVELS:
        from_json(f"numcodecs.{found['id']}", {key: value for key, value in found.items() if key != "id"})
    return found


def _object_type(filters: Any) -> DataType:
    """Return the data type of arrays of Python objects, which is what the first of the filters makes of them."""
    from zellige.codecs.v2 import v2_config
    from zellige.dtypes.v2 import from_v2

    chosen = _as_list(filters)
    if not chosen:
        raise UnknownDataTypeError(
            "dtype=object does not say what the objects are; say dtype='string' or dtype='bytes', or give "
            "object_codec=, such as numcodecs.JSON()",
            field="data_type",
        )
    first = v2_config(chosen[0])
    return from_v2("|O", first["id"], first.get("dtype"))


def _as_list(given: Any) -> list[Any]:
    """Return what a user gives for several codecs: nothing, one codec, or several."""
    if given is None or _is_auto(given):
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def check_format(zarr_format: Any) -> ZarrFormat:
    """Return the format of a new node: 2, 3, or for None the setting `default_zarr_format`."""
    found: Any = settings.get("default_zarr_format") if zarr_format is None else zarr_format
    if type(found) is not int or found not in (2, 3):
        raise ValueError(f"zarr_format={zarr_format!r} must be 3 or 2")
    return 2 if found == 2 else 3


def _as_data(data: Any, dtype: Any) -> Any:
    """Return data that has a shape; of the array's own type where numpy would guess another, as for strings."""
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
    """Return the type of something that has one; numpy's does not say all about ours."""
    return data.metadata.data_type if isinstance(data, Array) else data.dtype


def _as_shape(shape: Any) -> Shape:
    given = (shape,) if isinstance(shape, int | np.integer) and not isinstance(shape, bool) else shape
    if isinstance(given, Mapping | Set):
        raise ValueError(f"shape={shape!r} has no order; give one integer >= 0 for each axis")
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


def _log_choice(axes: Sequence[Any], inner: Shape | None, dtype: DataType) -> None:
    """Log what `"auto"` came to, to the logger `zellige`."""
    from logging import getLogger

    from zellige.display.text import human_bytes

    chosen = inner or tuple(c if isinstance(c, int) else c[0] for c in axes)
    nbytes = human_bytes(prod(chosen) * dtype.numpy.itemsize)
    shards = f" in shards {tuple(axes)}" if inner else ""
    getLogger("zellige").info("'auto' chose chunks %s of %s, %s each%s", chosen, dtype.name, nbytes, shards)


# -- data -----------------------------------------------------------------------------------------


def _loaded(data: Any) -> Any:
    """Return values in memory; raises if an element is masked."""
    return np.asarray(unmasked(data)) if hasattr(data, "shape") else data


def copy_values(target: Array, data: Any) -> None:
    """Write all values of something array-like, chunk by chunk if they are many."""
    if isinstance(data, np.ndarray) or target.nbytes <= _AT_ONCE:
        target[...] = _loaded(data)
        return
    for chunk in target.grid:  # so that memory stays bounded
        target[chunk.slices] = np.asarray(unmasked(data[chunk.slices]))


def copy_array(target: Array, data: Any) -> None:
    """Write all values of something array-like; the bytes of chunks that mean the same are copied as they are."""
    if isinstance(data, Array) and same_chunks(target, data):
        copy_chunks(data._chunks, target._chunks, target.grid)
    else:
        copy_values(target, data)


def same_chunks(a: Array, b: Array) -> bool:
    """Return whether the stored bytes of both arrays mean the same."""

    def meaning(array: Array) -> tuple[Any, ...]:
        metadata = array.metadata
        return metadata.data_type, metadata.codecs, fill_bits(metadata.fill_value), metadata.fill_is_null

    return a.grid == b.grid and meaning(a) == meaning(b)


# -- as numpy makes arrays ------------------------------------------------------------------------


def create(shape: int | Sequence[int], *, store: StoreLike = None, path: str | None = None, **options: Any) -> Array:
    """Create an array of fill values, with the keywords of zarr-python's older function as well.

    Parameters
    ----------
    shape
        The lengths of the axes.
    store, path
        Where the array goes: `store` and `name` of `create_array`.
    options
        As for `create_array`. `chunk_shape` is another name for `chunks`, `codecs` the whole chain at once,
        `dimension_separator` a part of `chunk_key_encoding`, `object_codec` the first of the filters in Zarr format 2.

    >>> import zellige
    >>> zellige.create((4, 6), chunks=(2, 3), dtype="int16", fill_value=7)[0, 0]
    np.int16(7)
    """
    return create_array(store, name=path, **modern_options({"shape": shape, **options}))


def modern_options(options: dict[str, Any], zarr_format: Any = None) -> dict[str, Any]:
    """Return the keywords of older functions as those of `create_array`."""
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
        chain = parse_codecs(codecs)
        serializers = [codec for codec in chain if isinstance(codec, ArrayBytesCodec)]
        found["filters"] = [codec for codec in chain if isinstance(codec, ArrayArrayCodec)]
        found["serializer"] = serializers[0] if serializers else "auto"
        found["compressors"] = [codec for codec in chain if isinstance(codec, BytesBytesCodec)]
    if (write_empty := found.pop("write_empty_chunks", None)) is not None:
        found["config"] = ArrayConfig.of(found.get("config")).changed({"write_empty_chunks": write_empty})
    mode = found.pop("mode", None)
    return found if mode is None else {**found, "overwrite": mode == "w"}


NO_MEANING = {"synchronizer", "chunk_store", "cache_metadata", "cache_attrs", "meta_array", "read_only"}
"""Accepted because scripts have them; locks, caches and read-only stores are arranged otherwise here."""

_OLDER = {"chunk_shape", "dimension_separator", "object_codec", "codecs", "write_empty_chunks"}
KNOWN_OPTIONS = {*_DEFAULTS, *PLACE, *_OLDER}
"""The keywords of functions that create arrays, old and new."""


def zeros(shape: int | Sequence[int], **options: Any) -> Array:
    """Create an array of zeros. Parameters: see `create`.

    >>> import zellige
    >>> zellige.zeros((2, 3), dtype="int8")[0]
    array([0, 0, 0], dtype=int8)
    """
    return create(shape, **{**options, "fill_value": zero(options.get("dtype"))})


def zero(dtype: Any) -> Any:
    """Return the zero of a data type, `float64` if there is none."""
    return parse_dtype("float64" if dtype is None else dtype).zero


def ones(shape: int | Sequence[int], **options: Any) -> Array:
    """Create an array of ones. Parameters: see `create`.

    >>> import zellige
    >>> zellige.ones(3, dtype="int8")[:]
    array([1, 1, 1], dtype=int8)
    """
    return create(shape, **{**options, "fill_value": 1})


def full(shape: int | Sequence[int], fill_value: Any, **options: Any) -> Array:
    """Create an array of one value. Parameters: see `create`.

    >>> import zellige
    >>> zellige.full(3, 7, dtype="int8")[:]
    array([7, 7, 7], dtype=int8)
    """
    return create(shape, **{**options, "fill_value": fill_value})


def empty(shape: int | Sequence[int], **options: Any) -> Array:
    """Create an array to be filled; reads as the fill value until then. Parameters: see `create`.

    >>> import zellige
    >>> zellige.empty((59, 2), chunks=[[31, 28], 2]).write_chunk_sizes
    ((31, 28), (2,))
    """
    return create(shape, **options)


# -- after other arrays ---------------------------------------------------------------------------


def from_array(store: StoreLike = None, *, data: Any, name: str | None = None, **options: Any) -> Array:
    """Create an array with the values of another array, or of anything array-like.

    Chunks, codecs, fill value, attributes and dimension names of a zellige array are kept unless given anew. Where
    grid, type and codecs stay the same, the bytes of the chunks are copied as they are.

    Parameters
    ----------
    store, name
        Where the new array goes, as for `create_array`.
    data
        The array.
    options
        As for `create_array`; `"keep"` says that something is kept.

    >>> import zellige
    >>> a = zellige.create_array(data=[1, 2, 3, 4], chunks=[[1, 3]])
    >>> b = zellige.from_array(data=a)
    >>> b.write_chunk_sizes, b[:]
    (((1, 3),), array([1, 2, 3, 4]))
    """
    return make(store, node.new_path(name), options_of(data, options), copy=copy_array)


def array(data: Any, *, store: StoreLike = None, path: str | None = None, **options: Any) -> Array:
    """Create an array with the values of anything array-like. Parameters: see `from_array`; `path` is its `name`.

    >>> import zellige
    >>> zellige.array([[1, 2], [3, 4]], chunks=(1, 2)).nchunks
    2
    """
    return from_array(store, data=data, name=path, **options)


def options_of(data: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `create_array` for an array with the values of another one: kept, or given anew."""
    given = {key: value for key, value in given.items() if not (isinstance(value, str) and value == "keep")}
    return {"data": data, **_keeping(data, given)}


def _keeping(source: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a new array has of another one, and what is given anew."""
    kept = _kept(source, given) if isinstance(source, Array) else _kept_chunks(source)
    unfit = {"chunks", "shards", "chunk_grid"} if given.keys() & {"chunks", "shape"} else set()
    unfit |= {"shards"} if "shards" in given else set()
    unfit |= {"compressors"} if "compressor" in given else set()
    unfit |= {"serializer"} if "dtype" in given else set()  # the byte order belongs to the type
    return {key: value for key, value in kept.items() if key not in unfit} | dict(given)


_LAYOUT = {"chunks", "shards", "shape", "dtype", "filters", "serializer", "compressors", "compressor", "checksum"}


def _kept(source: Array, given: Mapping[str, Any]) -> dict[str, Any]:
    metadata, inner = source.metadata, source._inner
    named = metadata.zarr_format == 2 and metadata.dimension_names is not None
    axes = list(metadata.chunk_grid.axes)
    kept: dict[str, Any] = {
        "chunks": axes,
        "chunk_grid": metadata.chunk_grid.name,
        "fill_value": None if metadata.fill_is_null else metadata.fill_value,
        # Names of axes among the attributes, as xarray writes them in Zarr format 2, are given as such.
        "attributes": {k: v for k, v in metadata.attributes.items() if not (named and k == _NAMES_V2)},
        "dimension_names": metadata.dimension_names,
        "order": source.order,
        "zarr_format": metadata.zarr_format,
    }
    if given.get("zarr_format") not in (None, metadata.zarr_format):
        # What the codecs of one format come to in the other is not for this function to guess.
        return kept if inner is None else {**kept, "chunks": inner, "chunk_grid": None}
    kept["chunk_key_encoding"] = metadata.chunk_key_encoding
    if isinstance(metadata, ArrayV3Metadata):
        chain = source._chunks.chain
        if chunk_chain(chain) is not chain and not _LAYOUT.isdisjoint(given):
            # Where something of the layout changes, what is inside plain shards is kept without them.
            chain = chunk_chain(chain)
            kept |= {"chunks": inner, "shards": axes}
        return {**kept, "filters": chain.filters, "serializer": chain.serializer, "compressors": chain.compressors}
    from zellige.dtypes.v2 import declared

    dtype: Any = declared(metadata.dtype)  # with its byte order
    dtype = metadata.data_type if dtype.hasobject else dtype
    return {**kept, "filters": metadata.filters, "compressors": metadata.compressor, "dtype": dtype}


def _kept_chunks(data: Any) -> dict[str, Any]:
    """Return the chunks of array-likes that have some: h5py, dask, zarr."""
    chunks = getattr(data, "chunks", None)
    if not chunks:
        return {}
    # dask has blocks of no length, which a grid has not.
    return {"chunks": tuple(tuple(n for n in c if n) or -1 if isinstance(c, tuple) else c for c in chunks)}


def zeros_like(a: Any, **options: Any) -> Array:
    """Create an array of zeros like another. Parameters: see `full_like`.

    >>> import zellige
    >>> zellige.zeros_like(zellige.array([[1, 2], [3, 4]], chunks=[[1, 1], 2]))[0]
    array([0, 0])
    """
    return zeros(**like(a, options))


def ones_like(a: Any, **options: Any) -> Array:
    """Create an array of ones like another. Parameters: see `full_like`.

    >>> import zellige
    >>> zellige.ones_like([1.5, 2.5])[:]
    array([1., 1.])
    """
    return ones(**like(a, options))


def empty_like(a: Any, **options: Any) -> Array:
    """Create an array like another that is to be filled. Parameters: see `full_like`.

    >>> import zellige
    >>> zellige.empty_like(zellige.zeros(59, chunks=[[31, 28]])).write_chunk_sizes
    ((31, 28),)
    """
    return empty(**like(a, options))


def full_like(a: Any, *, fill_value: Any = NOT_GIVEN, **options: Any) -> Array:
    """Create an array of one value, with the shape, type and chunks of another.

    Parameters
    ----------
    a
        Anything array-like, whose shape, type and chunks it gets.
    fill_value
        The value; by default the fill value of `a`.
    **options
        Other options than those of `a`, as for `create`.

    >>> import zellige
    >>> zellige.full_like([1, 2, 3], fill_value=9)[:]
    array([9, 9, 9])
    """
    if fill_value is NOT_GIVEN:
        fill_value = getattr(a, "fill_value", NOT_GIVEN)
    return full(**{**like(a, options), "fill_value": fill_value})


def like(a: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for an array like another one, its shape and type among them, but with no values of it."""
    shaped = a if hasattr(a, "shape") and hasattr(a, "dtype") else np.asarray(a)
    kept = _keeping(a, options)
    if isinstance(a, Array):
        left = {"attributes"} if a.fill_value is None else {"attributes", "fill_value"}
        kept = {key: value for key, value in kept.items() if key in options or key not in left}
    return {"shape": shaped.shape, "dtype": type_of(shaped), **kept}
