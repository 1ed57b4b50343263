"""The `n5_default` codec: blocks of N5 in their default mode, which begin with their own shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from struct import pack, unpack_from
from typing import ClassVar, NamedTuple, Self

import numpy as np

from zellige.codecs.arrays import BytesCodec, TransposeCodec
from zellige.codecs.base import ArrayBytesCodec, ArraySpec, BytesBytesCodec, Codec, only_keys
from zellige.codecs.extra.conditional import nested_codecs
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray, Buffer, Shape

_TYPES = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {"float32", "float64"}
_FIELD = "configuration.codecs"
_MAX_SIZE = 2**32 - 1

# Blocks at the border may be cut to the array, and are never larger than the others. Some more is read, but
# a block that states much more than its chunk is damaged, and decoding it would take memory for nothing.
_MAX_RATIO = 4


class _Parts(NamedTuple):
    """The chain inside, by role."""

    transpose: TransposeCodec
    serializer: BytesCodec
    compressor: BytesBytesCodec | None


@dataclass(frozen=True, slots=True)
class N5DefaultCodec(ArrayBytesCodec):
    """A header with the shape of the block, then the block through `codecs`.

    These are a transposition that reverses all axes, big-endian `bytes`, and at most one bytes-to-bytes
    codec. A block is written with the shape of its chunk. One of another shape is read too: what it lacks is
    filled with the fill value, and what it has more is cut off.
    """

    codecs: tuple[Codec, ...]

    name: ClassVar[str] = "n5_default"

    def __post_init__(self) -> None:
        codecs: object = self.codecs
        if not isinstance(codecs, tuple) or not 2 <= len(codecs) <= 3:
            raise MetadataError(
                f"codec 'n5_default': codecs must be 'transpose', 'bytes', and at most one more, found {codecs!r}",
                field=_FIELD,
            )
        kinds = (TransposeCodec, "transpose"), (BytesCodec, "bytes"), (BytesBytesCodec, "a bytes-to-bytes codec")
        for i, (codec, (kind, expected)) in enumerate(zip(codecs, kinds, strict=False)):
            if not isinstance(codec, kind):
                raise MetadataError(f"codec 'n5_default': codecs[{i}] must be {expected}", field=f"{_FIELD}[{i}].name")
        self._check_parts(self._parts())

    def _check_parts(self, parts: _Parts) -> None:
        order = parts.transpose.order
        if order != tuple(reversed(range(len(order)))):
            raise MetadataError(
                f"codec 'n5_default': order must reverse all axes, found {list(order)}",
                field=f"{_FIELD}[0].configuration.order",
            )
        if parts.serializer.endian == "little":
            raise MetadataError(
                "codec 'n5_default': endian must be 'big', found 'little'",
                field=f"{_FIELD}[1].configuration.endian",
            )

    def _parts(self) -> _Parts:
        transpose, serializer, *rest = self.codecs
        return _Parts(transpose, serializer, rest[0] if rest else None)  # type: ignore[arg-type]

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration."""
        only_keys(cls.name, configuration, "codecs")
        return cls(nested_codecs(cls.name, configuration))

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        return {"codecs": [codec.to_json() for codec in self.codecs]}

    def check(self, spec: ArraySpec) -> None:
        """A type and sizes that N5 has, and as many axes as the transposition."""
        if spec.dtype.name not in _TYPES:
            raise MetadataError(
                f"codec 'n5_default': {spec.dtype.name} is not a type of N5, which are {', '.join(sorted(_TYPES))}",
                field="name",
            )
        if any(size > _MAX_SIZE for size in spec.shape):
            raise MetadataError(f"codec 'n5_default': chunks of {spec.shape} are too large for a header", field="name")
        parts = self._parts()
        for i, check in enumerate((parts.transpose.resolve, parts.serializer.check)):
            try:
                check(spec)
            except MetadataError as error:
                raise MetadataError(f"codec 'n5_default': {error}", field=f"{_FIELD}[{i}].{error.field}") from error

    def evolve(self, spec: ArraySpec) -> Self:
        """The same codec, whose compressor knows the size of the elements."""
        transpose, serializer, compressor = self._parts()
        if compressor is None:
            return self
        return replace(self, codecs=(transpose, serializer, compressor.evolve(spec.dtype.numpy.itemsize)))

    def encoded_size(self, spec: ArraySpec) -> None:
        """It depends on the shape in the header, even without a compressor."""

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> bytes:
        """The header with the shape of the chunk, and the block."""
        transpose, serializer, compressor = self._parts()
        block: Buffer = serializer.encode(transpose.encode(chunk, spec), transpose.resolve(spec))
        if compressor is not None:
            block = compressor.evolve(spec.dtype.numpy.itemsize).encode(block)
        return b"".join((pack(f">HH{len(spec.shape)}I", 0, len(spec.shape), *spec.shape), block))

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """The block, brought to the shape of the chunk."""
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
    """The shape of the block, in the order of the array's axes."""
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
    """The block as a chunk: the fill value where it is too small, cut where it is too large."""
    if block.shape == spec.shape:
        return block
    common = tuple(slice(min(sizes)) for sizes in zip(block.shape, spec.shape, strict=True))
    chunk = np.full(spec.shape, spec.fill, spec.dtype.numpy)
    chunk[common] = block[common]
    return chunk
