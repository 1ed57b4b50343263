"""The codecs of numcodecs under their names in Zarr v3, `numcodecs.*`, as zarr-python writes them (spec: 7.6).

Their fields are those of numcodecs, with the same defaults. Where a stream may lie about its size, or the library
trusts it, it is checked here before the library sees it. The codecs of arrays are a few numpy expressions, written
here so that they work in C order whatever the layout in memory, in any byte order, and keep the shape.

>>> Zlib.from_configuration({}).to_json()
{'name': 'numcodecs.zlib', 'configuration': {'level': 1}}
"""

from __future__ import annotations

import math
import re
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from zellige import codecs
from zellige.codecs import zfp
from zellige.codecs.base import (
    ArrayArrayCodec,
    ArrayBytesCodec,
    ArraySpec,
    BytesBytesCodec,
    Codec,
    LibraryCall,
    library,
)
from zellige.codecs.bitround import BitroundCodec
from zellige.codecs.blosc import MAX_INT, SHUFFLES, BloscCodec, Cname
from zellige.codecs.crc32c import Checksum, Crc32cCodec
from zellige.codecs.fields import Rule, integer, number, one_of
from zellige.codecs.gzip import GzipCodec
from zellige.codecs.zstd import ZstdCodec
from zellige.dtypes import DataType, parse_dtype
from zellige.dtypes.cast import limits
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray, Buffer

_IDS = {kind: codec_id for codec_id, kind in codecs.NUMCODECS.items()}


class NumcodecsCodec(Codec):
    """A codec with the configuration of numcodecs without `id`; the table of `codecs` has its name."""

    null_is_absent: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if cls.__name__ in _IDS:
            cls.name = f"numcodecs.{_IDS[cls.__name__]}"

    @property
    def codec_id(self) -> str:
        """The name in numcodecs."""
        return self.name.removeprefix("numcodecs.")

    def get_config(self) -> dict[str, JSON]:
        """Return the configuration as numcodecs has it."""
        return {"id": self.codec_id, **self.configuration()}


def _numcodecs(codec: str, module: str) -> Any:
    return library(codec, f"numcodecs.{module}", "numcodecs")


def _octets(raw: Buffer) -> AnyArray:
    return np.frombuffer(raw, np.uint8)


# -- the compressors of Zarr itself ---------------------------------------------------------------


class CoreCodec(NumcodecsCodec, BytesBytesCodec):
    """Another configuration for one of the codecs of Zarr itself, which does the work."""

    @abstractmethod
    def core(self) -> BytesBytesCodec:
        """Return the codec of Zarr itself that makes the same bytes."""

    def encoded_bound(self, nbytes: int) -> int:
        """Return the bound of the core codec."""
        return self.core().encoded_bound(nbytes)

    def encode(self, raw: Buffer) -> Buffer:
        """Return what the core codec makes of the bytes."""
        return self.core().encode(raw)

    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """Return what the core codec made the bytes of."""
        return self.core().decode(raw, limit)

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """Return what the core codec finds at the beginning."""
        return self.core().head(raw, most)


@dataclass(frozen=True)
class Blosc(CoreCodec):
    """Blosc with `shuffle` as a number: 0 none, 1 bytes, 2 bits, -1 bits for elements of one byte, else bytes.

    The element size for shuffling is the chain's, unless `typesize` is given, which older readers do not know.
    """

    cname: Cname = "lz4"
    clevel: Annotated[int, integer(0, 9)] = 5
    shuffle: Annotated[int, integer(-1, 2)] = 1
    blocksize: Annotated[int, integer(0, MAX_INT)] = 0
    typesize: Annotated[int | None, integer(1, MAX_INT)] = None
    _itemsize: int | None = field(default=None, repr=False, compare=False)

    def evolve(self, itemsize: int) -> Self:
        """Shuffle by the element size."""
        return replace(self, _itemsize=itemsize)

    def core(self) -> BloscCodec:
        """Return the same container."""
        shuffle = None if self.shuffle == -1 else SHUFFLES[self.shuffle]
        size = self.typesize or self._itemsize
        codec = BloscCodec(self.cname, self.clevel, shuffle, size, self.blocksize)
        return codec if size is None else codec.evolve(size)


@dataclass(frozen=True)
class Zstd(CoreCodec):
    """Zstandard; without a checksum by default, other than `ZstdCodec`."""

    level: Annotated[int, integer(-131072, 22)] = 0
    checksum: bool = False

    def core(self) -> ZstdCodec:
        """Return the same frame."""
        return ZstdCodec(self.level, self.checksum)


@dataclass(frozen=True)
class GZip(CoreCodec):
    """Gzip."""

    level: Annotated[int, integer(0, 9)] = 1

    def core(self) -> GzipCodec:
        """Return the same member."""
        return GzipCodec(self.level)


# -- the compressors of the standard library ------------------------------------------------------


class _Stream(NumcodecsCodec, BytesBytesCodec):
    """One stream, nothing after it.

    The decompressor objects of the standard library, other than the functions that numcodecs uses, stop at a given
    length and tell whether the stream was whole.
    """

    level: int
    decompressor: ClassVar[str]

    @property
    def _module(self) -> Any:
        return import_module(self.codec_id)

    def _compressed(self, raw: Buffer) -> Any:
        return self._module.compress(raw, self.level)

    def _decoder(self) -> Any:
        return getattr(self._module, self.decompressor)()

    def encode(self, raw: Buffer) -> bytes:
        with LibraryCall(self.name):
            stream: bytes = self._compressed(raw)
        return stream

    def decode(self, raw: Buffer, limit: int) -> bytes:
        # One byte more than is allowed: then the stream can reach its end, and an overrun shows.
        content, decoder = self._begin(raw, min(limit + 1, sys.maxsize))
        if len(content) > limit:
            raise CodecError(f"{self.name}: the content is longer than the {limit} bytes expected")
        if not decoder.eof:
            raise CodecError(f"{self.name}: the bytes end too early")
        return content

    def head(self, raw: Buffer, most: int) -> bytes:
        return self._begin(raw, most)[0]

    def _begin(self, raw: Buffer, most: int) -> tuple[bytes, Any]:
        """Return at most so many bytes of the content, and the decoder after them."""
        with LibraryCall(f"{self.name}: the bytes are damaged"):
            decoder = self._decoder()
            content: bytes = decoder.decompress(raw, most)
        if decoder.unused_data:
            raise CodecError(f"{self.name}: {len(decoder.unused_data)} bytes are left over")
        return content, decoder


@dataclass(frozen=True)
class Zlib(_Stream):
    """A zlib stream (RFC 1950)."""

    level: Annotated[int, integer(-1, 9)] = 1

    decompressor: ClassVar[str] = "decompressobj"


@dataclass(frozen=True)
class BZ2(_Stream):
    """A bzip2 stream."""

    level: Annotated[int, integer(1, 9)] = 1

    decompressor: ClassVar[str] = "BZ2Decompressor"


_XZ, _RAW = 1, 3
_EXTREME = 1 << 31
_FILTERS = 3, 4, 5, 6, 7, 8, 9, 33, 0x4000000000000001
_OPTIONS = ("preset", "dict_size", "lc", "lp", "pb", "mode", "nice_len", "mf", "depth", "dist", "start_offset")
_MAX_DICT = 128 << 20  # twice what preset 9 uses; a larger one is only a way to make readers allocate
_MEMORY = _MAX_DICT + (8 << 20)


def _is_filter(value: object) -> bool:
    """Return whether this could be a filter of the `lzma` module, which decides when it is used."""
    if not isinstance(value, Mapping) or value.get("id") not in _FILTERS:
        return False
    options = {key: option for key, option in value.items() if key != "id"}
    numbers = all(key in _OPTIONS and type(option) is int for key, option in options.items())
    return numbers and options.get("dict_size", 0) <= _MAX_DICT


_LZMA_PRESET = Rule(
    "from 0 to 9, or 2**31 more for the extreme ones",
    lambda value: type(value) is int and value >= 0 and value & ~_EXTREME in range(10),
)
_LZMA_FILTERS = Rule(
    f"a list of filters as {{'id': 33, 'preset': 6}}, with dict_size up to {_MAX_DICT}",
    lambda value: isinstance(value, list | tuple) and bool(value) and all(map(_is_filter, value)),
)


@dataclass(frozen=True)
class LZMA(_Stream):
    """An LZMA stream, with the numbers of the `lzma` module.

    `format` is 1 (xz), 2 (the older .lzma) or 3 (raw, which needs `filters`); `check` is for xz only; either
    `preset` or `filters` says how to compress.
    """

    format: Annotated[int, integer(_XZ, _RAW)] = _XZ
    check: Annotated[int, one_of(-1, 0, 1, 4, 10)] = -1
    preset: Annotated[int | None, _LZMA_PRESET] = None
    filters: Annotated[Sequence[Mapping[str, int]] | None, _LZMA_FILTERS] = field(default=None, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.check > 0 and self.format != _XZ:
            raise self._must_be("check", "-1 or 0 without xz", self.check)
        if self.preset is not None and self.filters is not None:
            raise self._must_be("preset", "left out where there are filters", self.preset)
        if self.filters is None and self.format == _RAW:
            raise self._must_be("filters", f"{_LZMA_FILTERS.expected} for raw streams", "nothing")

    def _compressed(self, raw: Buffer) -> Any:
        options = {"format": self.format, "check": self.check, "preset": self.preset, "filters": self.filters}
        return self._module.compress(raw, **options)

    def _decoder(self) -> Any:
        if self.format == _RAW:
            return self._module.LZMADecompressor(_RAW, filters=self.filters)
        return self._module.LZMADecompressor(self.format, memlimit=_MEMORY)


# -- lz4 and shuffle, by numcodecs ----------------------------------------------------------------

_LZ4_EXPANSION = 255  # every further byte of a length counts so many
_FULL = re.compile(rb"\xff*")


@dataclass(frozen=True)
class LZ4(NumcodecsCodec, BytesBytesCodec):
    """The size of the content, then one LZ4 block."""

    acceleration: Annotated[int, integer(-MAX_INT - 1, MAX_INT)] = 1

    def encoded_bound(self, nbytes: int) -> int:
        """Return the bound for blocks, which grow by one byte in 255 at most."""
        return nbytes + nbytes // 255 + 20

    def encode(self, raw: Buffer) -> bytes:
        """Return the size and the block."""
        with LibraryCall(self.name):
            encoded: bytes = _numcodecs(self.name, "lz4").compress(_octets(raw), self.acceleration)
        return encoded

    def decode(self, raw: Buffer, limit: int) -> bytes:
        """Return the content, if it is as long as stated."""
        if len(raw) < 5:
            raise CodecError(f"{self.name}: at least 5 bytes expected, {len(raw)} found")
        size = int.from_bytes(raw[:4], "little")
        if size > limit:
            raise CodecError(f"{self.name}: at most {limit} bytes expected, {size} stated")
        if size > _LZ4_EXPANSION * len(raw):
            raise CodecError(f"{self.name}: {size} bytes stated, which {len(raw)} cannot hold")
        if size == 0 and raw[4:] == b"\0":  # numcodecs writes this, and cannot read it
            return b""
        with LibraryCall(f"{self.name}: the bytes are damaged"):
            content: bytes = _numcodecs(self.name, "lz4").decompress(_octets(raw))
        return content

    def head(self, raw: Buffer, most: int) -> bytes:
        """Return what the block begins with."""
        block, out, pos = memoryview(raw)[4:], bytearray(), 0
        try:
            while len(out) < most:
                token = block[pos]
                count, pos = _lz4_length(block, pos + 1, token >> 4)
                out += block[pos : pos + min(count, most)]
                pos += count
                if len(out) >= most:
                    break
                distance = block[pos] | block[pos + 1] << 8
                if not 0 < distance <= len(out):
                    message = f"the bytes are damaged: a copy from {distance} bytes before the content"
                    raise CodecError(f"{self.name}: {message}")
                count, pos = _lz4_length(block, pos + 2, token & 15)
                count = min(count + 4, most)
                out += (out[-distance:] * (count // distance + 1))[:count]
        except IndexError:
            pass  # the end of the block, or of what there is of it
        return bytes(out)


def _lz4_length(block: memoryview, pos: int, count: int) -> tuple[int, int]:
    """Return a length that begins with four bits of a token, and where it ends; or as far as it is there."""
    if count < 15 or not (full := _FULL.match(block, pos)):
        return count, pos
    count, pos = count + 255 * (full.end() - full.start()), full.end()
    return (count + block[pos], pos + 1) if pos < len(block) else (count, pos)


@dataclass(frozen=True)
class Shuffle(NumcodecsCodec, BytesBytesCodec):
    """The first byte of every element, then the second of every element, and so on.

    Without `elementsize` it is that of the chain, as in zarr-python.
    """

    elementsize: Annotated[int | None, integer(0, MAX_INT)] = None

    overhead: ClassVar[int | None] = 0

    def evolve(self, itemsize: int) -> Self:
        """Shuffle by the element size."""
        return replace(self, elementsize=itemsize) if self.elementsize is None else self

    def encode(self, raw: Buffer) -> Buffer:
        """Return the bytes in their new order."""
        return self._reordered(raw, "encode")

    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """Return the bytes in their old order."""
        if len(raw) > limit:
            raise CodecError(f"{self.name}: at most {limit} bytes expected, {len(raw)} found")
        return self._reordered(raw, "decode")

    def head(self, raw: Buffer, most: int) -> memoryview | None:
        """Return the bytes as they are, if there is nothing to do."""
        return memoryview(raw)[:most] if self.elementsize in (0, 1) else None

    def _reordered(self, raw: Buffer, verb: str) -> Buffer:
        size = 4 if self.elementsize is None else self.elementsize
        if size <= 1 or not len(raw):
            return raw
        if len(raw) % size:
            raise CodecError(f"{self.name}: {len(raw)} bytes are not a multiple of the {size} of an element")
        return memoryview(getattr(_numcodecs(self.name, "shuffle").Shuffle(size), verb)(_octets(raw)))


# -- checksums ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CRC32(NumcodecsCodec, Checksum):
    """CRC-32, as in zip files."""

    location: Literal["start", "end"] = "start"

    def _checksum(self, body: AnyArray) -> int:
        return int(import_module("zlib").crc32(body))


@dataclass(frozen=True)
class Adler32(NumcodecsCodec, Checksum):
    """Adler-32, as in zlib streams."""

    location: Literal["start", "end"] = "start"

    def _checksum(self, body: AnyArray) -> int:
        return int(import_module("zlib").adler32(body))


@dataclass(frozen=True)
class CRC32C(NumcodecsCodec, Crc32cCodec):
    """CRC-32C; at the end it is the same as the codec `crc32c`."""

    location: Literal["start", "end"] = "end"


@dataclass(frozen=True)
class Fletcher32(NumcodecsCodec, Checksum):
    """Fletcher-32 as HDF5 has it."""

    def _checksum(self, body: AnyArray) -> int:
        # The library does not take nothing.
        stored = _numcodecs(self.name, "fletcher32").Fletcher32().encode(body)[-4:] if len(body) else b""
        return int.from_bytes(stored, "little")


@dataclass(frozen=True)
class JenkinsLookup3(NumcodecsCodec, Checksum):
    """Bob Jenkins' lookup3 as HDF5 has it, beginning with `initval`.

    The `prefix` of numcodecs is an array of bytes, for which JSON has no form, so there may be none.
    """

    initval: Annotated[int, integer(0, 2**32 - 1)] = 0
    prefix: Annotated[None, Rule("left out: JSON has no form for it", lambda value: value is None)] = None

    def _checksum(self, body: AnyArray) -> int:
        return int(_numcodecs(self.name, "jenkins").jenkins_lookup3(body, self.initval))


# -- arrays to arrays -----------------------------------------------------------------------------

_KINDS: dict[str, str] = {"f": "a float", "iufc": "a number", "biufc": "a bool or number"}
"""The kinds of numpy types that a codec takes, and how to say it."""

# numpy also takes expressions as "(2,3)i4", and warns of some letters.
_SPELLING = re.compile(r"[<>|=]?(\?|[biufc][0-9]{0,2}|[a-z]{3,10}[0-9]{0,3})")


@lru_cache(256)
def _named(name: str) -> DataType | None:
    """Return the type called "<f4" or "float32", None for others; in memory its byte order does not matter."""
    try:
        return parse_dtype(name)
    except MetadataError:
        return None


def _type_of(kinds: str) -> Rule:
    """Accept the name of a type."""

    def accepts(value: Any) -> bool:
        found = _named(value) if isinstance(value, str) and _SPELLING.fullmatch(value) else None
        return found is not None and found.numpy.kind in kinds

    return Rule(f"the name of {_KINDS[kinds]} type, as '<f4'", accepts)


class Conversion(NumcodecsCodec, ArrayArrayCodec):
    """From one declared type to another, element by element or along the flattened chunk."""

    kinds: ClassVar[str] = "iufc"
    types: ClassVar[tuple[str, str]] = ("dtype", "astype")
    """The fields that name the decoded and the encoded type; None stands for the chunk's, and for the decoded."""

    def _types(self, spec: ArraySpec) -> tuple[DataType, DataType]:
        """Return the decoded and the encoded type, in native byte order."""
        if spec.dtype.numpy.kind not in self.kinds:
            raise self._refused(f"needs {_KINDS[self.kinds]} type, the chunk has {spec.dtype.name}", "name")
        before, after = (getattr(self, key) for key in self.types)
        decoded = (before and _named(before)) or spec.dtype
        if decoded.numpy != spec.dtype.numpy:
            raise self._wrong(self.types[0], f"{self.types[0]} is {before!r}, the chunk has {spec.dtype.name}")
        encoded = (after and _named(after)) or decoded
        if decoded.numpy.kind == "c" != encoded.numpy.kind:
            message = f"{self.types[1]} {encoded.name} would drop the imaginary part of {decoded.name}"
            raise self._wrong(self.types[1], message)
        return decoded, encoded

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return the same shape with the encoded type; the fill value is encoded like a chunk of one element."""
        decoded, encoded = self._types(spec)
        try:
            with np.errstate(all="ignore"):
                fill = self._encoded(_vector(spec.fill, decoded), encoded.numpy, spec.fill)[0, ...]
        except OverflowError as error:  # a Python integer that the type cannot hold
            raise self._refused(f"{spec.dtype.name} cannot hold its parameters: {error}") from error
        return spec.refilled(fill, encoded)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the encoded chunk, of the same shape."""
        decoded, encoded = self._types(spec)
        with np.errstate(all="ignore"):
            return self._encoded(_vector(chunk, decoded), encoded.numpy, spec.fill).reshape(chunk.shape)

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the chunk, as far as the encoded type could hold it."""
        decoded, encoded = self._types(spec)
        with np.errstate(all="ignore"):
            return self._decoded(_vector(chunk, encoded), decoded.numpy).reshape(chunk.shape)

    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any], fill: AnyArray) -> AnyArray:
        """Return a chunk of the decoded type as one of `dtype`."""
        return chunk.astype(dtype, copy=False)

    def _decoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        """Return a chunk of the encoded type as one of `dtype`."""
        return chunk.astype(dtype, copy=False)


def _vector(chunk: AnyArray, dtype: DataType) -> AnyArray:
    """Return the chunk in native byte order with at least one axis: of none, numpy's results are scalars."""
    return np.atleast_1d(np.asarray(chunk, dtype.numpy))


@dataclass(frozen=True)
class Delta(Conversion):
    """The first element, then the difference of each element from the one before, in C order.

    Integers that do not fit `astype` raise `CodecError`: they would spoil all elements after them.
    """

    dtype: Annotated[str, _type_of("iufc")]
    astype: Annotated[str | None, _type_of("iufc")] = None

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the differences, of the same shape."""
        encoded = super().encode(chunk, spec)
        integers = {encoded.dtype.kind, spec.dtype.numpy.kind} <= {"i", "u"}
        narrow = encoded.dtype.itemsize < spec.dtype.numpy.itemsize  # else it holds what wrapped around
        if integers and narrow and not np.array_equal(self.decode(encoded, spec), chunk):
            raise CodecError(
                f"{self.name}: there are differences that {encoded.dtype} cannot hold; give a wider astype"
            )
        return encoded

    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any], fill: AnyArray) -> AnyArray:
        flat = chunk.reshape(-1)
        out = np.empty(flat.shape, dtype)
        out[:1] = flat[:1]
        out[1:] = np.diff(flat)
        return out

    def _decoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        flat = chunk.reshape(-1)
        if dtype.kind in "iu":
            # Summed in the decoded type, where integers wrap around just as the differences did. By itself
            # numpy would sum uint64 into a signed type by way of floats.
            flat = flat.astype(dtype, copy=False)
        return np.cumsum(flat, out=np.empty(flat.shape, dtype))


@dataclass(frozen=True)
class FixedScaleOffset(Conversion):
    """`(x - offset) * scale`, rounded half to even.

    Floats that integers cannot hold raise `CodecError`, unless they are the fill value, which may lie at the border.
    """

    offset: Annotated[float, number()]
    scale: Annotated[float, number()]
    dtype: Annotated[str | None, _type_of("iufc")] = None
    astype: Annotated[str | None, _type_of("iufc")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale == 0:
            raise self._must_be("scale", "other than 0", self.scale)

    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any], fill: AnyArray) -> AnyArray:
        scaled = np.around((chunk - self.offset) * self.scale)
        if chunk.dtype.kind == "f" and dtype.kind in "iu":
            wide, (low, high) = scaled.astype(np.float64), limits(dtype)
            # Floats next to the ends of 64 bits lie beyond them: the first that is too great is a power of two.
            lost = ~((wide >= low) & (wide < float(high) + 1 if high > 1 << 53 else wide <= high))
            lost &= ~((chunk == fill) | (np.isnan(chunk) & np.isnan(fill)))
            if lost.any():
                raise CodecError(
                    f"{self.name}: {chunk[lost][0]} becomes {wide[lost][0]}, beyond {dtype}, which is {low} to {high}; "
                    "give a wider astype, or another scale or offset"
                )
        return scaled.astype(dtype, copy=False)

    def _decoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        return (chunk / self.scale + self.offset).astype(dtype, copy=False)


@dataclass(frozen=True)
class Quantize(Conversion):
    """Floats rounded to as many binary places as `digits` decimal ones need; decoding only casts.

    As in numcodecs, a number that does not fit `astype` is lost without an error: it may be a fill value at the border.
    """

    digits: Annotated[int, integer(-300, 300)]  # beyond, the scale is no float64
    dtype: Annotated[str | None, _type_of("f")] = None
    astype: Annotated[str | None, _type_of("f")] = None

    kinds: ClassVar[str] = "f"

    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any], fill: AnyArray) -> AnyArray:
        scale = 2.0 ** math.ceil(math.log2(10.0**self.digits))
        return (np.around(scale * chunk) / scale).astype(dtype, copy=False)


@dataclass(frozen=True)
class AsType(Conversion):
    """A cast to `encode_dtype`, and back to `decode_dtype`; as in `Quantize`, what does not fit is lost."""

    encode_dtype: Annotated[str, _type_of("biufc")]
    decode_dtype: Annotated[str | None, _type_of("biufc")] = None

    kinds: ClassVar[str] = "biufc"
    types: ClassVar[tuple[str, str]] = ("decode_dtype", "encode_dtype")


@dataclass(frozen=True)
class PackBits(NumcodecsCodec, ArrayArrayCodec):
    """Bools as bits, most significant first, after a byte that counts the bits of padding.

    The encoded chunk has one axis, and no element of it stands for one of the chunk: its fill value is 0.
    """

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return one axis of bytes."""
        if spec.dtype.numpy.kind != "b":
            raise self._refused(f"needs bool, the chunk has {spec.dtype.name}", "name")
        dtype = parse_dtype("uint8")
        return ArraySpec((1 + -(-prod(spec.shape) // 8),), dtype, dtype.cast_fill(0))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the count of padding and the bits."""
        padding = np.array([-chunk.size % 8], np.uint8)
        return np.concatenate((padding, np.packbits(chunk.reshape(-1))))

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the bools; raises `CodecError` if the padding is not that of the shape."""
        size = prod(spec.shape)
        if chunk[0] != -size % 8:
            raise CodecError(f"{self.name}: {-size % 8} bits of padding expected, {chunk[0]} stated")
        return np.unpackbits(chunk[1:], count=size).view(np.bool_).reshape(spec.shape)


@dataclass(frozen=True)
class BitRound(NumcodecsCodec, BitroundCodec):
    """Floats with their mantissa rounded to `keepbits`, half to even; decoding changes nothing.

    NaNs stay as they are: rounding could turn them into other values, which numcodecs lets happen.
    """

    keepbits: Annotated[int, integer(0, 52)]

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return the same shape and type."""
        dtype = spec.dtype.numpy
        if dtype.kind != "f" or dtype.isbuiltin != 1:  # ml_dtypes has one of this kind
            raise self._refused(f"needs floats, the chunk has {spec.dtype.name}", "name")
        if self.keepbits > np.finfo(dtype).nmant:
            raise self._must_be("keepbits", f"at most {np.finfo(dtype).nmant} for {spec.dtype.name}", self.keepbits)
        return super().resolve(spec)


# -- arrays to bytes ------------------------------------------------------------------------------


class _Serializer(NumcodecsCodec, ArrayBytesCodec):
    """A compressor for some types of numbers."""

    types: ClassVar[tuple[str, ...]]

    def check(self, spec: ArraySpec) -> None:
        if spec.dtype.numpy.name not in self.types:
            raise self._refused(f"needs one of {', '.join(self.types)}, the chunk has {spec.dtype.name}", "name")


_ZFP_PARAMETERS = {2: "rate", 3: "precision", 4: "tolerance"}


@dataclass(frozen=True)
class ZFPY(_Serializer):
    """A zfp stream with a header: `mode` 2 keeps `rate` bits for each number, 3 `precision` bit planes, 4 `tolerance`.

    A negative parameter means lossless.
    """

    mode: Annotated[int, integer(2, 4)] = 4
    tolerance: Annotated[float, number()] = -1
    rate: Annotated[float, number("a finite number up to 128", high=128)] = -1  # of four axes, what a header can hold
    precision: Annotated[int, integer(-(2**31), 2**31 - 1)] = -1

    types: ClassVar[tuple[str, ...]] = ("int32", "int64", "float32", "float64")

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from the configuration in metadata; `compression_kwargs` repeats the others."""
        if not isinstance(configuration.get("compression_kwargs", {}), Mapping):
            raise cls._must_be("compression_kwargs", "an object", repr(configuration["compression_kwargs"]))
        return super().from_configuration({k: v for k, v in configuration.items() if k != "compression_kwargs"})

    def configuration(self) -> dict[str, JSON]:
        """Return the mode and its parameter; the other parameters mean nothing."""
        return {"mode": self.mode, **self._parameter()}

    def _parameter(self) -> dict[str, float]:
        key = _ZFP_PARAMETERS[self.mode]
        return {key: getattr(self, key)}

    def check(self, spec: ArraySpec) -> None:
        """Refuse all but one to four axes, as long as a header can tell."""
        super().check(spec)
        rank = len(spec.shape)
        if not 1 <= rank <= 4:
            raise self._refused(f"needs from 1 to 4 axes, the chunk has {rank}", "name")
        stream = zfp.Stream(spec.shape, spec.dtype.numpy.name)
        if not all(1 <= size <= 1 << stream.size_bits for size in spec.shape):
            raise self._refused(f"needs axes of 1 to {1 << stream.size_bits}, the chunk has {spec.shape}", "name")
        least = max(stream.opening_bits, 1) / stream.values
        if self.mode == 2 and 0 <= self.rate < least:
            raise self._must_be("rate", f"at least {least} for {spec.dtype.name} with {rank} axes", self.rate)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> bytes:
        """Return one stream."""
        native = np.ascontiguousarray(chunk, spec.dtype.numpy)
        with LibraryCall(self.name):
            stream: bytes = _zfpy().compress_numpy(native, write_header=True, **self._parameter())
        return stream

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return the chunk that the header describes, if it is the right one and whole; other damage goes unnoticed.

        Versions of numcodecs before 0.10 gave all elements to the library as one axis, and the header says so.
        """
        stream, header = zfp.read_header(raw)
        if stream.dtype != spec.dtype.numpy.name or stream.shape not in (spec.shape, (prod(spec.shape),)):
            raise CodecError(
                f"{self.name}: {spec.dtype.numpy.name} of shape {spec.shape} expected, "
                f"{stream.dtype} of shape {stream.shape} stated"
            )
        least, most = stream.size(stream.minbits, header), stream.size(stream.longest_block, header)
        if not least <= len(raw) <= most:
            raise CodecError(f"{self.name}: from {least} to {most} bytes expected, {len(raw)} found")
        with LibraryCall(f"{self.name}: the bytes are damaged"):
            return zfp.read_stream(raw, most, _zfpy().decompress_numpy).reshape(spec.shape)


def _zfpy() -> Any:
    return library(ZFPY.name, "zfpy", "zfpy")


_PCO_TYPES = ("uint32", "uint64", "int32", "int64", "float32", "float64", "uint16", "int16", "float16")
"""In the order of their numbers, from 1."""
_PCO_MAGIC = b"pco!"
_MAX_WINDOW = 20  # the logarithm; writers use 15 at most


def _pcodec(module: str) -> Any:
    return library(PCodec.name, module, "pcodec")


@dataclass(frozen=True)
class PCodec(_Serializer):
    """Lossless compression of numbers by pcodec, in its standalone format, in C order.

    Only writing depends on these parameters. Every `equal_pages_up_to` numbers are compressed by themselves.
    """

    level: Annotated[int, integer(0, 12)] = 8
    mode_spec: Literal["auto", "classic"] = "auto"
    delta_spec: Literal["auto", "none", "try_consecutive", "try_lookback"] = "auto"
    paging_spec: Literal["equal_pages_up_to"] = "equal_pages_up_to"
    delta_encoding_order: Annotated[int | None, integer(0, 7)] = None
    equal_pages_up_to: Annotated[int, integer(1, 1 << 24)] = 1 << 18

    types: ClassVar[tuple[str, ...]] = _PCO_TYPES

    def __post_init__(self) -> None:
        super().__post_init__()
        order = self.delta_encoding_order
        if order is None and self.delta_spec == "try_consecutive":
            raise self._must_be("delta_encoding_order", "an integer from 0 to 7 for 'try_consecutive'", "nothing")
        if order is not None and self.delta_spec not in ("auto", "try_consecutive"):
            raise self._must_be("delta_encoding_order", "left out unless delta_spec is 'try_consecutive'", order)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> bytes:
        """Return one file of the standalone format."""
        flat = np.ascontiguousarray(chunk, spec.dtype.numpy).reshape(-1)
        with LibraryCall(self.name):
            file: bytes = _pcodec("pcodec.standalone").simple_compress(flat, self._chunk_config())
        return file

    def _chunk_config(self) -> Any:
        pco, delta = _pcodec("pcodec"), str(self.delta_spec)
        if delta == "none" and not hasattr(pco.DeltaSpec, "none"):
            delta = "no_op"  # its name since version 1
        if self.delta_encoding_order is not None:
            delta_spec = pco.DeltaSpec.try_consecutive(self.delta_encoding_order)
        else:
            delta_spec = getattr(pco.DeltaSpec, delta)()
        return pco.ChunkConfig(
            compression_level=self.level,
            mode_spec=getattr(pco.ModeSpec, self.mode_spec)(),
            delta_spec=delta_spec,
            paging_spec=pco.PagingSpec.equal_pages_up_to(self.equal_pages_up_to),
        )

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return the numbers of all chunks of the file, which are as many as expected."""
        flat = np.empty(prod(spec.shape), spec.dtype.numpy)
        with LibraryCall(f"{self.name}: the bytes are damaged"):
            _read_file(bytes(raw), flat)
        return flat.reshape(spec.shape)


def _read_file(raw: bytes, out: AnyArray) -> None:
    """Fill `out` from a file, chunk by chunk; raises `IndexError` if the file ends too early.

    The library itself would allocate what a file asks for, and would not tell that bytes are left over.
    """
    if raw[:4] != _PCO_MAGIC or raw[4] not in (2, 3):
        raise CodecError("numcodecs.pcodec: there is no standalone file of version 2 or 3")
    pos = raw[4] + 3  # version 3 has one byte more, for the type of all chunks
    pos -= -(6 + 1 + (raw[pos] & 63)) // 8  # a count that is only a hint
    header, _ = _pcodec("pcodec.wrapped").FileDecompressor.new(raw[pos : pos + 2])
    major = raw[pos]
    pos += 2 if major >= 4 else 1
    filled, number = 0, 1 + _PCO_TYPES.index(out.dtype.name)
    while raw[pos]:
        count = 1 + int.from_bytes(raw[pos + 1 : pos + 4], "little")
        if raw[pos] != number or filled + count > len(out):
            raise CodecError(f"numcodecs.pcodec: {len(out)} of {out.dtype.name} expected, others found")
        if major >= 3:
            _check_window(raw[pos + 4 : pos + 16], 8 * out.itemsize)
        pos = _read_chunk(header, raw, pos + 4, out[filled : filled + count])
        filled += count
    if filled != len(out) or pos + 1 != len(raw):
        found = f"{len(out)} numbers in {pos + 1} bytes expected, {filled} in {len(raw)} found"
        raise CodecError(f"numcodecs.pcodec: {found}")


def _check_window(meta: bytes, width: int) -> None:
    """Refuse to look back too far: the library allocates the whole window, up to gigabytes."""
    bits = int.from_bytes(meta, "little")
    skip = {0: 0, 1: width, 2: width, 3: 8}.get(bits & 15)  # what belongs to the mode
    if skip is None:
        return  # a mode of version 4, whose libraries check for themselves
    bits >>= 4 + skip
    if bits & 15 == 2 and 1 + (bits >> 4 & 31) > _MAX_WINDOW:
        raise CodecError(f"numcodecs.pcodec: a window of 2**{1 + (bits >> 4 & 31)} numbers is too large")


def _read_chunk(header: Any, raw: bytes, pos: int, out: AnyArray) -> int:
    """Fill `out` from the chunk at `pos`; returns where it ends."""
    # The library copies nothing but takes only bytes. This is more than a chunk of so many numbers can have.
    reach = 4096 + 128 * len(out)
    read_meta = header.chunk_decompressor if hasattr(header, "chunk_decompressor") else header.read_chunk_meta
    chunk, used = read_meta(raw[pos : pos + reach], f"{out.dtype.kind}{8 * out.itemsize}")
    pos += used
    progress, used = chunk.read_page_into(raw[pos : pos + reach], len(out), out)
    if progress.n_processed != len(out) or not progress.finished:
        raise CodecError(f"numcodecs.pcodec: {len(out)} numbers expected, {progress.n_processed} found")
    return int(pos + used)


CLASSES: dict[str, type[NumcodecsCodec]] = {
    f"numcodecs.{codec_id}": globals()[kind] for codec_id, kind in codecs.NUMCODECS.items()
}
"""Every codec by its name in metadata."""
__all__ = ["CLASSES", *codecs.NUMCODECS.values()]
