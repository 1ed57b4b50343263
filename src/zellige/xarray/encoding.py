"""How variables are stored: chunks, codecs and fill values from `encoding`, dask and what the user says."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import numpy as np

import xarray as xr
from zellige import Array, MemoryStore, create_array, create_hierarchy, errors
from zellige.xarray import compat
from zellige.xarray.calendar import Cut, Ends

_CODECS = {"compressors", "compressor", "filters", "serializer"}
_LAYOUT = {"chunks", "shards"}
_OTHERS = {"fill_value", "chunk_key_encoding", "write_empty_chunks"}
_NO_MEANING = {"source", "original_shape", "preferred_chunks", "cache_metadata", "overwrite"}


def array_metadata(
    variable: xr.Variable,
    name: str,
    cuts: Mapping[Any, Cut],
    *,
    explicit: bool,
    zarr_format: Any,
    growing: Collection[Any],
) -> Any:
    """The metadata of a new array for an encoded variable; everything about it is checked here.

    Chunks are, in this order, what an explicit encoding says, what `cuts` says about a dimension, the blocks of
    dask, and what the variable was read from. Encodings that come with a variable but do not fit it are dropped. The
    coordinate of a dimension that is `growing` gets room for what is appended.
    """
    encoding = {key: value for key, value in variable.encoding.items() if key not in _NO_MEANING}
    encoding.pop("_FillValue", None)
    unknown = encoding.keys() - _CODECS - _LAYOUT - _OTHERS
    if unknown and explicit:
        known = ", ".join(sorted(_CODECS | _LAYOUT | _OTHERS))
        raise ValueError(f"variable {name!r}: unknown encoding {sorted(unknown)}; beside those of CF there are {known}")
    attributes, fill = _attributes_and_fill(variable, name, zarr_format)
    common = {
        "shape": variable.shape,
        "dtype": str if compat.is_string(variable.dtype) else variable.dtype,
        "attributes": attributes,
        "dimension_names": [str(dim) for dim in variable.dims],
        "fill_value": fill,
        "zarr_format": zarr_format,
    }
    if explicit:
        layout = {key: encoding[key] for key in _LAYOUT if encoding.get(key) is not None}
        layout = layout or _layout(variable, name, cuts, {}, growing)
        if encoding.get("chunk_key_encoding") is not None:
            layout["chunk_key_encoding"] = encoding["chunk_key_encoding"]
        return _metadata(name, common | layout | _codecs(encoding, zarr_format))
    layout = _layout(variable, name, cuts, encoding, growing)
    try:
        return _metadata(name, common | layout | _codecs(encoding, zarr_format))
    except (ValueError, TypeError):  # of a codec for other data, or of another library
        return _metadata(name, common | _layout(variable, name, cuts, {}, growing))


def _metadata(name: str, options: Mapping[str, Any]) -> Any:
    """What a new array with these options would be; made in memory, where nothing is written."""
    try:
        array = create_array(**options)
    except errors.ZelligeError as error:
        error.args = (f"variable {name!r}: {error}",)
        raise
    _check_memory(name, array)
    return array.metadata


def _check_memory(name: str, array: Array) -> None:
    """Refuse chunks that no process of this machine can hold, and so never write."""
    largest, needed = _largest(array)
    if needed > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise errors.ChunkShapeError(
            f"variable {name!r}: a chunk of {tuple(largest)} elements of {array.dtype} takes {needed / 2**30:.4g} GiB, "
            "more than the memory of this machine; a chunk is stored with its full size, also where it reaches beyond "
            "the end: choose smaller chunks, or -1 for the whole dimension",
            axis=None,
        )


def _largest(array: Array) -> tuple[list[int], int]:
    """The shape of the largest chunk, and its bytes."""
    largest = [max(dimension.unique_edge_lengths, default=1) for dimension in array.grid.dimensions]
    return largest, prod(largest) * array.dtype.itemsize


def _attributes_and_fill(variable: xr.Variable, name: str, zarr_format: Any) -> tuple[dict[str, Any], Any]:
    """As xarray's own engine does: the array's fill value masks in format 2, the attribute in format 3.

    None in format 2 says that nothing is missing.
    """
    attributes = dict(variable.attrs)
    if zarr_format == 2:
        fill = attributes.pop("_FillValue", None)
    else:
        fill = variable.encoding.get("fill_value")
        if fill is None and variable.dtype.kind == "f":
            fill = np.nan
        missing = attributes.pop("_FillValue", None)
        if missing is not None:
            attributes["_FillValue"] = compat.FillValueCoder.encode(missing, variable.dtype)
    return encoded_attributes(attributes, f"variable {name!r}"), fill


def encoded_attributes(attributes: Mapping[Any, Any], owner: str) -> dict[str, Any]:
    """Attributes as they are stored; raises if names that are no text become those of others."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        if str(key) in found:
            raise ValueError(
                f"{owner}: more than one attribute would have the name {str(key)!r}, since names are stored as text; "
                "rename one of them"
            )
        found[str(key)] = compat.encode_attribute(value)
    return found


# -- codecs ---------------------------------------------------------------------------------------


def _codecs(encoding: Mapping[str, Any], zarr_format: Any) -> dict[str, Any]:
    given = {key: encoding[key] for key in _CODECS if key in encoding}
    found = {key: [*codecs] if isinstance(codecs, tuple) else codecs for key, codecs in given.items()}
    if zarr_format == 2:
        found.pop("serializer", None)
        if isinstance(filters := found.get("filters"), list):
            # Strings bring this one themselves.
            found["filters"] = [f for f in filters if getattr(f, "codec_id", None) != "vlen-utf8"] or None
    return found


_PLAIN = {"bytes", "transpose", "sharding_indexed", "zstd", "gzip", "blosc", "crc32c"}
_PLAIN |= {f"numcodecs.{name}" for name in ("zstd", "blosc", "gzip", "zlib", "lz4", "shuffle")}
"""Codecs that take every value, and whose libraries are there."""
_LARGE = 1 << 30  # bytes of a chunk; some compressors take no more than twice as many


def try_codecs(path: str, metadata: Any, values: Any, config: Mapping[str, Any] | None) -> None:
    """Encode values as a new array would, and forget the result; raises if a codec refuses them, or its library lacks.

    For values that are not at hand, None, one chunk of zeros tells about the library only. Codecs that take every value
    are not tried.
    """
    store = MemoryStore()
    array: Any = dict(create_hierarchy(store=store, nodes={path: metadata}))[path]
    if _is_plain(metadata.codecs) and _largest(array)[1] < _LARGE:
        return
    array = array if config is None else array.with_config(config)
    try:
        if values is None:
            _try_zeros(array)
            return
        values = np.asarray(values)
        start = 0
        for size in array.write_chunk_sizes[0] if array.ndim else (1,):
            rows = slice(start, start + size) if array.ndim else ...
            array[rows] = values[rows]
            start += size
            store.delete_prefix(f"{path}/")  # so that only a row of chunks is in memory
    except ImportError as error:
        raise ImportError(f"variable {path!r}: {error}") from error


def _try_zeros(array: Any) -> None:
    first = tuple(slice(0, sizes[0]) for sizes in array.write_chunk_sizes if sizes)
    if array.size and len(first) == array.ndim:
        try:
            array.with_config({"write_empty_chunks": True})[first] = np.zeros((), array.dtype)
        except errors.EncodeError:  # of zeros, which may not be among the values
            return


def _is_plain(codecs: Any) -> bool:
    """Whether all codecs, also those within shards, take every value."""
    for codec in codecs:
        name, configuration = (codec["name"], codec) if isinstance(codec, dict) else (codec.name, codec.configuration)
        if name not in _PLAIN or not _is_plain(configuration.get("codecs", ())):
            return False
    return True


# -- chunks ---------------------------------------------------------------------------------------


_INDEX = 8192  # elements of a chunk of a coordinate that grows: it is read whole, so that chunks should be few


def _layout(
    variable: xr.Variable, name: str, cuts: Mapping[Any, Cut], encoding: Mapping[str, Any], growing: Collection[Any]
) -> dict[str, Any]:
    """`chunks=` and `shards=` of a new array."""
    former, blocks = _former_chunks(variable, encoding), _blocks_of(variable, name)
    is_index = variable.dims == (name,)
    if is_index and name in growing and blocks is None:
        return {"chunks": [max(_INDEX, variable.size)]}
    found = blocks if blocks is not None else former
    kept = {} if found is None else dict(zip(variable.dims, found, strict=True))
    asked = {} if is_index else cuts  # an index is read whole, so it is not cut
    cut = [asked.get(dim, kept.get(dim, "auto")) for dim in variable.dims]
    cut = [one.after(0) if isinstance(one, Ends) else one for one in cut]
    shards = encoding.get("shards")
    if shards is not None and former is not None:
        if cut == former:
            return {"chunks": cut, "shards": shards}
        if cut == list(shards):
            return {"chunks": former, "shards": shards}
    return {"chunks": cut}


def _former_chunks(variable: xr.Variable, encoding: Mapping[str, Any]) -> list[Any] | None:
    """The chunks that a variable was read from, if they fit what it is now."""
    found = encoding.get("chunks")
    if isinstance(found, int):
        found = (found,) * variable.ndim
    if not isinstance(found, list | tuple) or len(found) != variable.ndim:
        return None
    for size, length in zip(found, variable.shape, strict=True):
        fits = size > 0 if isinstance(size, int) else isinstance(size, list | tuple) and sum(size) == length
        if not fits:
            return None
    return [size if isinstance(size, int) else list(size) for size in found]


def _blocks_of(variable: xr.Variable, name: str) -> list[Any] | None:
    """The blocks of dask along each axis, as sizes where they are equal but for a shorter last one."""
    if variable.chunks is None:
        return None
    from zellige.dask import edges_of

    if any(np.isnan(size) for axis in variable.chunks for size in axis):
        raise ValueError(f"variable {name!r} has dask chunks of unknown size; call compute_chunk_sizes() first")
    return list(edges_of(variable.chunks))
