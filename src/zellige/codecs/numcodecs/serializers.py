"""From arrays to bytes: `zfpy` and `pcodec`, compressors of numbers.

Both libraries trust the bytes. zfp reads beyond the end of a stream that is cut, and both allocate what a
header asks for; so headers are read here first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from zellige.codecs.base import ArrayBytesCodec, ArraySpec, library
from zellige.codecs.numcodecs.base import NumcodecsCodec, unsuitable
from zellige.codecs.extra.zfp import read_stream
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray, Buffer, Shape


@dataclass(frozen=True, slots=True)
class _Serializer(NumcodecsCodec, ArrayBytesCodec):
    """A compressor for some types of numbers."""

    _types: ClassVar[tuple[str, ...]]

    def check(self, spec: ArraySpec) -> None:
        """The type is one of a few."""
        if spec.dtype.numpy.name not in self._types:
            raise unsuitable(self.name, f"one of {', '.join(self._types)}", spec.dtype.name)

    def encoded_size(self, spec: ArraySpec) -> None:
        """It depends on the values."""


# -- zfp ------------------------------------------------------------------------------------------

_PARAMETERS = {2: "rate", 3: "precision", 4: "tolerance"}
_ZFP_TYPES = ("int32", "int64", "float32", "float64")  # in the order of the numbers in headers
# Blocks begin with an exponent. If there is no room for it, zfp loses count of the bits and the memory is gone.
_LEAST_BITS = {"int32": 1, "int64": 1, "float32": 9, "float64": 12}
_ZFP_MAGIC = b"zfp\x05"
_META_BITS = 52
_SHORT_BITS, _LONG_BITS = 12, 64
_LEAST_LONG = 64  # blocks of fixed size that need the long form are far larger
_MAX_BITS = 16658


@dataclass(frozen=True)
class ZFPY(_Serializer):
    """A zfp stream with a header: `mode` 2 keeps `rate` bits for each number, 3 `precision` bit planes, 4 `tolerance`.

    A negative parameter means lossless.
    """

    mode: int = 4
    tolerance: float = -1
    rate: float = -1
    precision: int = -1

    name: ClassVar[str] = "numcodecs.zfpy"
    _types: ClassVar[tuple[str, ...]] = _ZFP_TYPES

    def __post_init__(self) -> None:
        self._integer("mode", 2, 4)
        self._number("tolerance")
        self._number("rate")
        if self.rate > 128:  # of four axes: what a header can hold
            raise self._bad("rate", "at most 128")
        self._integer("precision", -(2**31), 2**31 - 1)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration; `compression_kwargs` repeats the others."""
        if not isinstance(configuration.get("compression_kwargs", {}), Mapping):
            raise MetadataError(
                f"codec {cls.name!r}: compression_kwargs must be an object", field="configuration.compression_kwargs"
            )
        return super().from_configuration({k: v for k, v in configuration.items() if k != "compression_kwargs"})

    def configuration(self) -> dict[str, JSON]:
        """The mode and its parameter; the other parameters mean nothing."""
        return {"mode": self.mode, **self._parameter()}

    def _parameter(self) -> dict[str, float]:
        key = _PARAMETERS[self.mode]
        return {key: getattr(self, key)}

    def check(self, spec: ArraySpec) -> None:
        """From one to four axes, as long as a header can tell."""
        super().check(spec)
        rank = len(spec.shape)
        if not 1 <= rank <= 4:
            raise unsuitable(self.name, "from 1 to 4 axes", rank)
        if not all(1 <= size <= 1 << 48 // rank for size in spec.shape):
            raise unsuitable(self.name, f"axes of 1 to {1 << 48 // rank} elements", spec.shape)
        least = _LEAST_BITS[spec.dtype.numpy.name] / 4**rank
        if self.mode == 2 and 0 <= self.rate < least:
            raise self._bad("rate", f"at least {least} for {spec.dtype.name} with {rank} axes")

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> bytes:
        """One stream."""
        native = np.ascontiguousarray(chunk, spec.dtype.numpy)
        try:
            stream: bytes = _zfpy().compress_numpy(native, write_header=True, **self._parameter())
        except (RuntimeError, TypeError, ValueError) as error:
            raise CodecError(f"{self.name}: {error}") from error
        return stream

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """The chunk that the header describes, if it is the right one and whole: other damage gives other numbers.

        Versions of numcodecs before 0.10 gave all elements to the library as one axis, and the header says so.
        """
        header = _zfp_header(raw)
        if header.dtype != spec.dtype.numpy.name or header.shape not in (spec.shape, (prod(spec.shape),)):
            raise CodecError(
                f"{self.name}: {spec.dtype.numpy.name} of shape {spec.shape} expected, "
                f"{header.dtype} of shape {header.shape} stated"
            )
        least, most = header.sizes()
        if not least <= len(raw) <= most:
            raise CodecError(f"{self.name}: from {least} to {most} bytes expected, {len(raw)} found")
        try:
            chunk = read_stream(raw, most, _zfpy().decompress_numpy)
        except (RuntimeError, TypeError, ValueError) as error:
            raise CodecError(f"{self.name}: the bytes are damaged: {error}") from error
        return chunk.reshape(spec.shape)


class _ZfpHeader(NamedTuple):
    """What a stream says about itself."""

    dtype: str
    shape: Shape
    bits: int
    """The length of the header."""
    block: tuple[int, int]
    """The least and the most bits of a block."""

    def sizes(self) -> tuple[int, int]:
        """The least and the most bytes that a stream can have."""
        least, most = self.block
        values = 4 ** len(self.shape)
        blocks = prod(-(-size // 4) for size in self.shape)
        # Every bit plane of every value, one test for each value, and the exponent or the count of planes.
        needed = values * (int(self.dtype[-2:]) + 1) + 24
        longest = max(least, min(most, needed))
        return _words(self.bits + blocks * least), _words(self.bits + blocks * longest)


def _words(bits: int) -> int:
    """Bytes for so many bits; a stream is made of words of 64."""
    return -(-bits // 64) * 8


def _zfp_header(raw: Buffer) -> _ZfpHeader:
    if len(raw) < 16 or len(raw) % 8 or raw[:4] != _ZFP_MAGIC:
        raise CodecError(f"{ZFPY.name}: there is no zfp stream in the {len(raw)} bytes")
    bits = int.from_bytes(raw[4:24], "little")
    rank = 1 + (bits >> 2 & 3)
    width = 48 // rank
    sizes = [1 + (bits >> (4 + axis * width) & ((1 << width) - 1)) for axis in range(rank)]
    mode = bits >> _META_BITS & 0xFFF
    length = 32 + _META_BITS + (_LONG_BITS if mode == 0xFFF else _SHORT_BITS)
    block = _long_mode(bits >> (_META_BITS + _SHORT_BITS)) if mode == 0xFFF else _short_mode(mode)
    dtype = _ZFP_TYPES[bits & 3]
    if block[1] < (_LEAST_LONG if mode == 0xFFF else _LEAST_BITS[dtype]):
        raise CodecError(f"{ZFPY.name}: blocks of {block[1]} bits are too small for {dtype}")
    return _ZfpHeader(dtype, tuple(sizes[::-1]), length, block)


def _short_mode(mode: int) -> tuple[int, int]:
    """The bits of a block: of a fixed rate, or of any other mode."""
    return (mode + 1, mode + 1) if mode < 2048 else (1, _MAX_BITS)


def _long_mode(mode: int) -> tuple[int, int]:
    """The bits of a block as they are given."""
    return 1 + (mode & 0x7FFF), 1 + (mode >> 15 & 0x7FFF)


def _zfpy() -> Any:
    return library(ZFPY.name, "zfpy", "zfpy")


# -- pco ------------------------------------------------------------------------------------------

_PCO_TYPES = {
    "uint32": 1,
    "uint64": 2,
    "int32": 3,
    "int64": 4,
    "float32": 5,
    "float64": 6,
    "uint16": 7,
    "int16": 8,
    "float16": 9,
}
_PCO_MAGIC = b"pco!"
_MAX_WINDOW = 20  # the logarithm; writers use 15 at most


@dataclass(frozen=True, slots=True)
class PCodec(_Serializer):
    """Lossless compression of numbers by pcodec, in its standalone format, in C order.

    Only writing depends on these parameters. Every `equal_pages_up_to` numbers are compressed by themselves.
    """

    level: int = 8
    mode_spec: Literal["auto", "classic"] = "auto"
    delta_spec: Literal["auto", "none", "try_consecutive", "try_lookback"] = "auto"
    paging_spec: Literal["equal_pages_up_to"] = "equal_pages_up_to"
    delta_encoding_order: int | None = None
    equal_pages_up_to: int = 1 << 18

    name: ClassVar[str] = "numcodecs.pcodec"
    _types: ClassVar[tuple[str, ...]] = tuple(_PCO_TYPES)

    def __post_init__(self) -> None:
        self._integer("level", 0, 12)
        self._one_of("mode_spec", "auto", "classic")
        self._one_of("delta_spec", "auto", "none", "try_consecutive", "try_lookback")
        self._one_of("paging_spec", "equal_pages_up_to")
        self._integer("equal_pages_up_to", 1, 1 << 24)
        if self.delta_encoding_order is not None or self.delta_spec == "try_consecutive":
            self._integer("delta_encoding_order", 0, 7)
            if self.delta_spec not in ("auto", "try_consecutive"):
                raise self._bad("delta_encoding_order", "missing unless delta_spec is 'try_consecutive'")

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> bytes:
        """One file of the standalone format."""
        flat = np.ascontiguousarray(chunk, spec.dtype.numpy).reshape(-1)
        try:
            file: bytes = _pco("standalone").simple_compress(flat, self._chunk_config())
        except (RuntimeError, TypeError) as error:
            raise CodecError(f"{self.name}: {error}") from error
        return file

    def _chunk_config(self) -> Any:
        pco = library(self.name, "pcodec", "pcodec")
        return pco.ChunkConfig(
            compression_level=self.level,
            mode_spec=getattr(pco.ModeSpec, self.mode_spec)(),
            delta_spec=self._delta(pco.DeltaSpec),
            paging_spec=pco.PagingSpec.equal_pages_up_to(self.equal_pages_up_to),
        )

    def _delta(self, specs: Any) -> Any:
        if self.delta_encoding_order is not None:
            return specs.try_consecutive(self.delta_encoding_order)
        if self.delta_spec == "none" and not hasattr(specs, "none"):
            return specs.no_op()  # its name since version 1
        return getattr(specs, self.delta_spec)()

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """The numbers of all chunks of the file, which are as many as expected."""
        flat = np.empty(prod(spec.shape), spec.dtype.numpy)
        try:
            _read_pco(bytes(raw), flat)
        except (RuntimeError, TypeError) as error:
            raise CodecError(f"{self.name}: the bytes are damaged: {error}") from error
        except IndexError as error:
            raise CodecError(f"{self.name}: the bytes end too early") from error
        return flat.reshape(spec.shape)


def _pco(module: str) -> Any:
    return library(PCodec.name, f"pcodec.{module}", "pcodec")


def _read_pco(raw: bytes, out: AnyArray) -> None:
    """Fill `out` from a file of the standalone format; raises `IndexError` if the file ends too early."""
    pos = _first_chunk(raw)
    header, _ = _pco("wrapped").FileDecompressor.new(raw[pos : pos + 2])
    major = raw[pos]
    pos += 2 if major >= 4 else 1
    filled = 0
    while raw[pos]:
        count = 1 + int.from_bytes(raw[pos + 1 : pos + 4], "little")
        if raw[pos] != _PCO_TYPES[out.dtype.name] or filled + count > len(out):
            raise CodecError(f"{PCodec.name}: {len(out)} of {out.dtype.name} expected, others found")
        if major >= 3:
            _check_window(raw[pos + 4 : pos + 16], 8 * out.itemsize)
        pos = _read_chunk(header, raw, pos + 4, out[filled : filled + count])
        filled += count
    if filled != len(out) or pos + 1 != len(raw):
        raise CodecError(f"{PCodec.name}: {len(out)} numbers in {pos + 1} bytes expected, {filled} in {len(raw)} found")


def _first_chunk(raw: bytes) -> int:
    """Where the standalone header ends, which holds a count that is only a hint."""
    if raw[:4] != _PCO_MAGIC or raw[4] not in (2, 3):
        raise CodecError(f"{PCodec.name}: there is no standalone file of version 2 or 3")
    pos = raw[4] + 3  # version 3 has one byte more, for the type of all chunks
    return pos - (-(6 + 1 + (raw[pos] & 63)) // 8)


def _check_window(meta: bytes, width: int) -> None:
    """Refuse to look back too far: the library allocates the whole window, up to gigabytes."""
    bits = int.from_bytes(meta, "little")
    skip = {0: 0, 1: width, 2: width, 3: 8}.get(bits & 15)  # what belongs to the mode
    if skip is None:
        return  # a mode of version 4, whose libraries check for themselves
    bits >>= 4 + skip
    if bits & 15 == 2 and 1 + (bits >> 4 & 31) > _MAX_WINDOW:
        raise CodecError(f"{PCodec.name}: a window of 2**{1 + (bits >> 4 & 31)} numbers is too large")


def _read_chunk(header: Any, raw: bytes, pos: int, out: AnyArray) -> int:
    """Fill `out` from the chunk at `pos`; returns where it ends."""
    # The library copies nothing but takes only bytes. This is more than a chunk of so many numbers can have.
    reach = 4096 + 128 * len(out)
    name = f"{out.dtype.kind}{8 * out.itemsize}"
    read_meta = header.chunk_decompressor if hasattr(header, "chunk_decompressor") else header.read_chunk_meta
    chunk, used = read_meta(raw[pos : pos + reach], name)
    pos += used
    progress, used = chunk.read_page_into(raw[pos : pos + reach], len(out), out)
    if progress.n_processed != len(out) or not progress.finished:
        raise CodecError(f"{PCodec.name}: {len(out)} numbers expected, {progress.n_processed} found")
    return int(pos + used)
