"""`Pipeline`: the codec pipeline of zarr-python over zellige's arrays, with their kernel, locks and atomic writes.

A pipeline never sees the array, only batches of chunks. So a batch becomes one selection of a *stand-in*: a
`zellige.Array` with the same codecs and the same keys of chunks, long enough to hold all of the batch, which is read or
written by one call. What zellige does not do, `plain` does: the pipeline that zarr-python uses by default.
"""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec, CodecPipeline
from zarr.core.buffer import cpu
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, ZipStore

import zarr
from zellige import Array, errors
from zellige import LocalStore as Directory
from zellige.storage import Store, open_store
from zellige.zarr.batches import Item, Keys, Line, Selected, selected
from zellige.zarr.store import ZelligeStore

OLDEST, NEWEST = (3, 1), (3, 4)
"""The minor versions of zarr-python that this was tested with: the interface of pipelines changes between them."""

STORES = (LocalStore, MemoryStore, ObjectStore, FsspecStore, ZipStore)
"""Stores that zellige reads and writes itself; a subclass may do what zellige does not know of."""

_MOST_STANDS = 64  # that a pipeline keeps: an array needs one or two, more only when it was resized often


class Operation(NamedTuple):
    """A batch as one operation on a stand-in."""

    array: Array
    selected: Selected

    def read(self, out: npt.NDArray[Any]) -> None:
        """Fill an array with what is picked."""
        index, shape = self.selected.picks, self.selected.shape
        if self.selected.points:
            self.array.get_coordinate_selection(index, out=out)
        else:
            self.array.get_orthogonal_selection(index, out=out.reshape(shape))

    def write(self, value: npt.NDArray[Any]) -> None:
        """Write values, or one for all, to what is picked."""
        index, shape = self.selected.picks, self.selected.shape
        if self.selected.points:
            self.array.set_coordinate_selection(index, value)
        else:
            self.array.set_orthogonal_selection(index, value.reshape(shape) if value.ndim else value)


class Pipeline(CodecPipeline):
    """A codec pipeline of zarr-python that reads and writes by zellige.

    Choose it by `zellige.zarr.enable()`, by `zarr.config.set({"codec_pipeline.path": "zellige.zarr.Pipeline"})`, or by
    the variable `ZARR_CODEC_PIPELINE__PATH=zellige.zarr.Pipeline`.

    Parameters
    ----------
    plain
        The pipeline of zarr-python with the same codecs.
    """

    def __init__(self, plain: CodecPipeline) -> None:
        self.plain = plain
        self._store: tuple[Any, Store] | None = None
        self._stands: dict[Any, Array | None] = {}

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Self:
        """Return the pipeline of some codecs.

        Parameters
        ----------
        codecs
            Codecs of zarr-python, in the order of encoding.
        """
        return cls(BatchedCodecPipeline.from_codecs(codecs))

    def evolve_from_array_spec(self, array_spec: Any) -> Self:
        """Return the same pipeline, with what its codecs take from the array.

        Parameters
        ----------
        array_spec
            The `ArraySpec` of the chunks.
        """
        return type(self)(self.plain.evolve_from_array_spec(array_spec))

    def __iter__(self) -> Iterator[Codec]:
        codecs: Iterator[Codec] = iter(self.plain)  # type: ignore[call-overload]
        return codecs

    def __eq__(self, other: object) -> bool:
        return self.plain == other.plain if isinstance(other, Pipeline) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.plain)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.plain,)

    # -- what zarr-python does ---------------------------------------------------------------------

    @property
    def supports_partial_decode(self) -> bool:
        """Whether the plain pipeline reads parts of chunks alone."""
        return self.plain.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        """Whether the plain pipeline writes parts of chunks alone."""
        return self.plain.supports_partial_encode

    def validate(self, *, shape: Any, dtype: Any, chunk_grid: Any) -> None:
        """Refuse codecs that do not fit an array. Parameters: see `zarr.abc.codec.CodecPipeline`."""
        self.plain.validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)

    def compute_encoded_size(self, byte_length: int, array_spec: Any) -> int:
        """Return the length of an encoded chunk. Parameters: see `zarr.abc.codec.CodecPipeline`."""
        return self.plain.compute_encoded_size(byte_length, array_spec)

    async def decode(self, chunk_bytes_and_specs: Iterable[Any]) -> Iterable[Any]:
        """Decode chunks. Parameters: see `zarr.abc.codec.CodecPipeline`."""
        return await self.plain.decode(chunk_bytes_and_specs)

    async def encode(self, chunk_arrays_and_specs: Iterable[Any]) -> Iterable[Any]:
        """Encode chunks. Parameters: see `zarr.abc.codec.CodecPipeline`."""
        return await self.plain.encode(chunk_arrays_and_specs)

    # -- what zellige does -------------------------------------------------------------------------

    async def read(self, batch_info: Iterable[Item], out: Any, drop_axes: tuple[int, ...] = ()) -> Any:
        """Read chunks into a result. Parameters: see `zarr.abc.codec.CodecPipeline`."""
        batch = list(batch_info)
        found = self._operation(batch, out, drop_axes)
        if found is None:
            return await self.plain.read(batch, out, drop_axes)
        try:
            await asyncio.to_thread(found.read, out.as_ndarray_like())
        except errors.ChunkNotFoundError:  # zarr-python names all chunks that are missing
            return await self.plain.read(batch, out, drop_axes)
        return ({"status": "present"},) * len(batch)

    async def write(self, batch_info: Iterable[Item], value: Any, drop_axes: tuple[int, ...] = ()) -> None:
        """Write values to chunks. Parameters: see `zarr.abc.codec.CodecPipeline`."""
        batch = list(batch_info)
        found = self._operation(batch, value, drop_axes)
        if found is None or found.array.read_only:  # which zarr-python refuses in its own words
            await self.plain.write(batch, value, drop_axes)
        else:
            await asyncio.to_thread(found.write, value.as_ndarray_like())

    def _operation(self, batch: Sequence[Item], memory: Any, drop_axes: tuple[int, ...]) -> Operation | None:
        """Return a batch as one operation; None if it is for the plain pipeline."""
        if not batch or type(memory) is not cpu.NDBuffer or not is_tested():
            return None
        values: Any = memory.as_ndarray_like()
        if type(values) is not np.ndarray or not values.size:  # a masked array, or nothing
            return None
        stored, spec, *_ = batch[0]
        store = getattr(stored, "store", None)
        if type(store) not in STORES:
            return None
        found = selected(batch, drop_axes)
        if found is None or memory.shape not in (found.result, ()):
            return None
        array = self._stand_in(store, spec, found)
        return Operation(array, found) if array is not None and _is_same(memory.dtype, array.dtype) else None

    def _stand_in(self, store: Any, spec: Any, found: Selected) -> Array | None:
        """Return the stand-in for a batch; None if zellige does not know its codecs or its type."""
        if self._store is None or self._store[0] is not store:
            self._store = store, _opened(store)
            self._stands.clear()
        grid = [(line.extent, line.edges) for line in found.lines]
        key = json.dumps([found.keys, grid, str(spec.dtype), str(spec.fill_value), str(spec.config)])
        if key not in self._stands:
            if len(self._stands) >= _MOST_STANDS:
                self._stands.clear()
            self._stands[key] = _open(self._store[1], tuple(self), spec, found.keys, found.lines)
        return self._stands[key]


def _opened(store: Any) -> Store:
    """Return the store of zellige for a store of zarr-python, which follows links as that does."""
    if type(store) is LocalStore:
        return Directory(store.root, read_only=store.read_only, links="anywhere")
    given = store.zellige_store if type(store) is ZelligeStore else store
    return open_store(given, read_only=store.read_only).store


def _open(store: Store, codecs: tuple[Codec, ...], spec: Any, keys: Keys, lines: Sequence[Line]) -> Array | None:
    """Return a stand-in; None if zellige does not know the codecs or the type."""
    if not all(map(_is_known, codecs)):
        return None
    old = type(codecs[0]).__name__ == "V2Codec"
    content = _metadata_v2(codecs[0], spec, keys, lines) if old else _metadata(codecs, spec, keys, lines)
    missing = getattr(spec.config, "read_missing_chunks", True)  # older versions fill them always
    config = {"write_empty_chunks": spec.config.write_empty_chunks, "read_missing_chunks": missing}
    try:
        path = keys.prefix.rstrip("/")
        return Array.from_documents(store, path, {".zarray" if old else "zarr.json": content}, config)
    except (errors.MetadataError, errors.UnsupportedCodecError):
        return None


def _metadata(codecs: tuple[Codec, ...], spec: Any, keys: Keys, lines: Sequence[Line]) -> dict[str, Any]:
    """Return the metadata of a stand-in."""
    edges = [line.edges for line in lines]
    if all(isinstance(size, int) for size in edges):
        grid = {"name": "regular", "configuration": {"chunk_shape": edges}}
    else:
        grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": edges}}
    name = "default" if keys.is_default else "v2"
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [line.extent for line in lines],
        "data_type": spec.dtype.to_json(zarr_format=3),
        "chunk_grid": grid,
        "chunk_key_encoding": {"name": name, "configuration": {"separator": keys.separator}},
        "fill_value": spec.dtype.to_json_scalar(spec.fill_value, zarr_format=3),
        "codecs": [json.loads(json.dumps(codec.to_dict())) for codec in codecs],
        "attributes": {},
    }


def _metadata_v2(codec: Any, spec: Any, keys: Keys, lines: Sequence[Line]) -> dict[str, Any]:
    """Return the metadata of a stand-in of Zarr format 2."""
    fill = spec.fill_value
    return {
        "zarr_format": 2,
        "shape": [line.extent for line in lines],
        "chunks": [line.edges for line in lines],
        "dtype": spec.dtype.to_json(zarr_format=2)["name"],
        "fill_value": None if fill is None else spec.dtype.to_json_scalar(fill, zarr_format=2),
        "order": spec.config.order,
        "filters": [found.get_config() for found in codec.filters] if codec.filters else None,
        "compressor": codec.compressor.get_config() if codec.compressor else None,
        "dimension_separator": keys.separator,
    }


def _is_same(dtype: np.dtype[Any], native: np.dtype[Any]) -> bool:
    """Return whether a type is a native one, maybe in another byte order, in which zellige reads and writes, too."""
    return dtype == native or (dtype.byteorder in "<>" and dtype.newbyteorder("=") == native)


def _is_known(codec: Any) -> bool:
    """Return whether a codec, and those inside it, are as their names say: others may have replaced some."""
    inner = (*getattr(codec, "codecs", ()), *getattr(codec, "index_codecs", ()))
    return type(codec).__module__.partition(".")[0] in ("zarr", "numcodecs") and all(map(_is_known, inner))


@cache
def is_tested() -> bool:
    """Return whether this was tested with the version of zarr-python that is installed; warn if it was not."""
    major, minor, *_ = (int(re.sub(r"\D.*", "", part) or 0) for part in zarr.__version__.split("."))
    if OLDEST <= (major, minor) <= NEWEST:
        return True
    warnings.warn(
        f"zellige.zarr.Pipeline was tested with zarr-python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}, and "
        f"this is {zarr.__version__}; its own pipeline is used. Update zellige, or set codec_pipeline.path back",
        errors.ZelligeWarning,
        stacklevel=2,
    )
    return False
