"""The `n5_default` codec: blocks of N5 in their default mode, which begin with their own shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from struct import pack, unpack_from
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from zellige.codecs.arrays import BytesCodec, TransposeCodec
from zellige.codecs.base import ArrayBytesCodec, ArraySpec, BytesBytesCodec, Codec
from zellige.codecs.fields import codecs_of
from zellige.errors import CodecError, MetadataError
from zellige.types import AnyArray, Buffer, Shape

_TYPES = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {"float32", "float64"}
_FIELD = "configuration.codecs"
_MAX_SIZE = 2**32 - 1
_KINDS = ((TransposeCodec, "'transpose'"), (BytesCodec, "'bytes'"), (BytesBytesCodec, "a bytes-to-bytes codec"))

# Blocks at the border may be cut to the array, and are never larger than the others. Some more is read, but
# a block that states much more than its chunk is damaged, and decoding it would take memory for nothing.
_MAX_RATIO = 4


@dataclass(frozen=True)
class N5DefaultCodec(ArrayBytesCodec):
    """A header with the shape of the block, then the block through `codecs`.

    These are a transposition that reverses all axes, big-endian `bytes`, and at most one bytes-to-bytes
    codec. A block is written with the shape of its chunk. One of another shape is read too: what it lacks is
    filled with the fill value, and what it has more is cut off.
    """

    codecs: Annotated[tuple[Codec, ...], codecs_of(Codec)]

    name: ClassVar[str] = "n5_default"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(self.codecs) <= 3:
            raise self._must_be("codecs", "'transpose', 'bytes', and at most one more", self.codecs)
        for i, (codec, (kind, expected)) in enumerate(zip(self.codecs, _KINDS, strict=False)):
            if not isinstance(codec, kind):
                raise self._refused(f"codecs[{i}] must be {expected}, found {codec.name!r}", f"{_FIELD}[{i}].name")
        transpose, serializer, _ = self._parts()
        if transpose.order != tuple(reversed(range(len(transpose.order)))):
            message = f"order must reverse all axes, found {list(transpose.order)}"
            raise self._refused(message, f"{_FIELD}[0].configuration.order")
        if serializer.endian == "little":
            raise self._refused("endian must be 'big', found 'little'", f"{_FIELD}[1].configuration.endian")

    def _parts(self) -> tuple[TransposeCodec, BytesCodec, BytesBytesCodec | None]:
        """Return the chain inside, by role."""
        parts: tuple[Any, ...] = (*self.codecs, None)
        return parts[0], parts[1], parts[2]

    def check(self, spec: ArraySpec) -> None:
        """Refuse types and sizes that N5 does not have, and another number of axes than the transposition has."""
        if spec.dtype.name not in _TYPES:
            raise self._refused(f"{spec.dtype.name} is not a type of N5, which are {', '.join(sorted(_TYPES))}", "name")
        if any(size > _MAX_SIZE for size in spec.shape):
            raise self._refused(f"chunks of {spec.shape} are too large for a header", "name")
        transpose, serializer, _ = self._parts()
        for i, check in enumerate((transpose.resolve, serializer.check)):
            try:
                check(spec)
            except MetadataError as error:
                raise self._refused(str(error), f"{_FIELD}[{i}].{error.field}") from error

    def evolve(self, spec: ArraySpec) -> Self:
        """Return the same codec, whose compressor knows the size of the elements."""
        transpose, serializer, compressor = self._parts()
        last = () if compressor is None else (compressor.evolve(spec.dtype.numpy.itemsize),)
        return replace(self, codecs=(transpose, serializer, *last))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> bytes:
        """Return the header with the shape of the chunk, and the block."""
        transpose, serializer, compressor = self._parts()
        block: Buffer = serializer.encode(transpose.encode(chunk, spec), transpose.resolve(spec))
        if compressor is not None:
            block = compressor.evolve(spec.dtype.numpy.itemsize).encode(block)
        return b"".join((pack(f">HH{len(spec.shape)}I", 0, len(spec.shape), *spec.shape), block))

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return the block, brought to the shape of the chunk."""
        shape = _read_header(raw, len(spec.shape))
        if prod(shape) > _MAX_RATIO * prod(spec.shape):
            raise CodecError(f"n5_default: a block of shape {spec.shape} expected, one of {shape} stated")
        transpose, serializer, compressor = self._parts()
        stored = transpose.resolve(replace(spec, shape=shape))
        block: Buffer = memoryview(raw)[4 + 4 * len(shape) :]
        if compressor is not None:
            block = compressor.decode(block, serializer.encoded_size(stored))
        return _fitted(transpose.decode(serializer.decode(block, stored), spec), spec)


def _read_header(raw: Buffer, rank: int) -> Shape:
    """Return the shape of the block, in the order of the array's axes."""
    size = 4 + 4 * rank
    if len(raw) < size:
        raise CodecError(f"n5_default: a header of {size} bytes expected, {len(raw)} bytes found")
    mode, found, *shape = unpack_from(f">HH{rank}I", raw)
    if mode != 0:
        raise CodecError(f"n5_default: mode {mode} is not the default mode 0")
    if found != rank:
        raise CodecError(f"n5_default: {rank} axes expected, {found} stated")
    return tuple(shape)


def _fitted(block: AnyArray, spec: ArraySpec) -> AnyArray:
    """Return the block as a chunk: the fill value where it is too small, cut where it is too large."""
    if block.shape == spec.shape:
        return block
    common = tuple(slice(min(sizes)) for sizes in zip(block.shape, spec.shape, strict=True))
    chunk = np.full(spec.shape, spec.fill, spec.dtype.numpy)
    chunk[common] = block[common]
    return chunk
