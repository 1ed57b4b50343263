"""Arrays made after others: `from_array`, `array`, and `zeros_like` and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zellige.codecs.chain import CodecChain
from zellige.codecs.sharding import chunk_chain
from zellige.dtypes.fill import fill_bits
from zellige.io.write import copy_chunks
from zellige.metadata import ArrayV3Metadata
from zellige.nodes import node
from zellige.nodes.array import Array
from zellige.nodes.create import as_data, copy_values, create_array, empty, full, ones, put, type_of, zeros
from zellige.stores import StoreLike, locate
from zellige.types import NOT_GIVEN

if TYPE_CHECKING:
    from zellige.metadata.v2 import ArrayV2Metadata


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
    options = _keeping(data, given)
    if not write_data:
        return create_array(store, name=name, data=data, write_data=False, **options)
    overwrite, storage_options = options.pop("overwrite", False), options.pop("storage_options", None)
    target, path = locate(store, node.new_path(name), storage_options=storage_options)
    model = create_array(None, data=data, write_data=False, **options)  # checks everything
    array = Array(target, path, model.metadata, model.config)
    put(array, data if hasattr(data, "shape") else as_data(data, array.metadata.data_type), _copy, overwrite=overwrite)
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


def _kept(source: Array, given: dict[str, Any]) -> dict[str, Any]:
    metadata = source.metadata
    named = metadata.zarr_format == 2 and metadata.dimension_names is not None
    common = {
        "chunks": list(metadata.chunk_grid.axes),
        "chunk_grid": metadata.chunk_grid.name,
        "fill_value": None if metadata.fill_is_null else metadata.fill_value,
        # Names of axes among the attributes, as xarray writes them in Zarr format 2, are given as such.
        "attributes": {k: v for k, v in metadata.attributes.items() if not (named and k == "_ARRAY_DIMENSIONS")},
        "dimension_names": metadata.dimension_names,
        "order": source.order,
        "zarr_format": metadata.zarr_format,
    }
    if given.get("zarr_format") not in (None, metadata.zarr_format):
        # What the codecs of one format come to in the other is not for this function to guess.
        return {**common, **_inner_chunks(source)}
    encoding = {"chunk_key_encoding": metadata.chunk_key_encoding}
    if isinstance(metadata, ArrayV3Metadata):
        return {**common, **encoding, **_kept_layout(source, as_it_is=_LAYOUT.isdisjoint(given))}
    return {**common, **encoding, **_kept_v2(metadata)}


def _inner_chunks(source: Array) -> dict[str, Any]:
    return {} if source._inner is None else {"chunks": source._inner, "chunk_grid": None}


def _kept_v2(metadata: ArrayV2Metadata) -> dict[str, Any]:
    """The type with its byte order, filters and compressor."""
    from zellige.dtypes.v2 import declared

    dtype: Any = declared(metadata.dtype)
    kept = {"filters": metadata.filters, "compressors": metadata.compressor}
    return {**kept, "dtype": metadata.data_type if dtype.hasobject else dtype}


def _kept_layout(source: Array, *, as_it_is: bool) -> dict[str, Any]:
    """Chunks, shards and codecs; where something of it changes, what is inside plain shards is kept without them."""
    outer, grid = source._chunks.chain, list(source.metadata.chunk_grid.axes)
    inner = chunk_chain(outer)
    if inner is outer or as_it_is:
        return {"chunks": grid, **_codecs(outer)}
    return {"chunks": source._inner, "shards": grid, **_codecs(inner)}


def _codecs(chain: CodecChain) -> dict[str, Any]:
    return {"filters": chain.filters, "serializer": chain.serializer, "compressors": chain.compressors}


def _kept_chunks(data: Any) -> dict[str, Any]:
    """The chunks of array-likes that have some: h5py, dask, zarr."""
    chunks = getattr(data, "chunks", None)
    if not chunks:
        return {}
    # dask has blocks of no length, which a grid has not.
    return {"chunks": tuple(tuple(n for n in c if n) or -1 if isinstance(c, tuple) else c for c in chunks)}


def _copy(target: Array, data: Any) -> None:
    if isinstance(data, Array) and same_chunks(target, data):
        copy_chunks(data._chunks, target._chunks, target.grid)
    else:
        copy_values(target, data)


def same_chunks(a: Array, b: Array) -> bool:
    """Whether the stored bytes of both arrays mean the same."""

    def meaning(array: Array) -> tuple[Any, ...]:
        metadata = array.metadata
        return metadata.data_type, metadata.codecs, fill_bits(metadata.fill_value), metadata.fill_is_null

    return a.grid == b.grid and meaning(a) == meaning(b)


def array(data: Any, *, store: StoreLike = None, path: str | None = None, **options: Any) -> Array:
    """An array with the values of anything array-like.

    >>> import zellige
    >>> zellige.array([[1, 2], [3, 4]], chunks=(1, 2)).nchunks
    2
    """
    return from_array(store, data=data, name=path, **options)


def zeros_like(a: Any, **options: Any) -> Array:
    """An array of zeros with the shape, type and chunks of another.

    >>> import zellige
    >>> zellige.zeros_like(zellige.array([[1, 2], [3, 4]], chunks=[[1, 1], 2]))[0]
    array([0, 0])
    """
    return zeros(**like(a, options))


def ones_like(a: Any, **options: Any) -> Array:
    """An array of ones with the shape, type and chunks of another.

    >>> import zellige
    >>> zellige.ones_like([1.5, 2.5])[:]
    array([1., 1.])
    """
    return ones(**like(a, options))


def empty_like(a: Any, **options: Any) -> Array:
    """An array to be filled with the shape, type and chunks of another.

    >>> import zellige
    >>> zellige.empty_like(zellige.zeros(59, chunks=[[31, 28]])).write_chunk_sizes
    ((31, 28),)
    """
    return empty(**like(a, options))


def full_like(a: Any, *, fill_value: Any = NOT_GIVEN, **options: Any) -> Array:
    """An array of one value, by default the fill value of the other, with the shape, type and chunks of another.

    >>> import zellige
    >>> zellige.full_like([1, 2, 3], fill_value=9)[:]
    array([9, 9, 9])
    """
    if fill_value is NOT_GIVEN:
        fill_value = getattr(a, "fill_value", NOT_GIVEN)
    return full(**{**like(a, options), "fill_value": fill_value})


def like(a: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What a new array has of another one, its shape and type among it, and what is given anew."""
    shaped = a if hasattr(a, "shape") and hasattr(a, "dtype") else np.asarray(a)
    kept = _keeping(a, options)
    if isinstance(a, Array):
        left = {"attributes"} if a.fill_value is None else {"attributes", "fill_value"}
        kept = {key: value for key, value in kept.items() if key in options or key not in left}
    return {"shape": shaped.shape, "dtype": type_of(shaped), **kept}
