"""From bytes to bytes: `blosc`, `zstd` and `gzip` with the configuration of numcodecs, `lz4` and `shuffle`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from zellige.codecs.base import BytesBytesCodec
from zellige.codecs.blosc import BloscCodec
from zellige.codecs.gzip import GzipCodec
from zellige.codecs.numcodecs.base import NumcodecsCodec, as_array, numcodecs
from zellige.codecs.zstd import ZstdCodec
from zellige.errors import CodecError
from zellige.types import Buffer

_MAX_INT = 2**31 - 1
_LZ4_EXPANSION = 255  # every further byte of a length counts so many
_PIECE = 4096


# -- the bytes of Zarr's own codecs ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Core(NumcodecsCodec, BytesBytesCodec):
    """Another configuration for one of the codecs of Zarr itself."""

    @abstractmethod
    def core(self) -> BytesBytesCodec:
        """The codec that does the work."""

    def encoded_bound(self, nbytes: int) -> int:
        """As the codec that does the work."""
        return self.core().encoded_bound(nbytes)

    def encode(self, raw: Buffer) -> Buffer:
        """As the codec that does the work."""
        return self.core().encode(raw)

    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """As the codec that does the work."""
        return self.core().decode(raw, limit)

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """As the codec that does the work."""
        return self.core().head(raw, most)


@dataclass(frozen=True, slots=True)
class Blosc(_Core):
    """Blosc with `shuffle` as a number: 0 none, 1 bytes, 2 bits, -1 bits for elements of one byte, else bytes.

    The element size for shuffling is the chain's, unless `typesize` is given, which older readers do not know.
    """

    cname: str = "lz4"
    clevel: int = 5
    shuffle: int = 1
    blocksize: int = 0
    typesize: int | None = None
    _itemsize: int = field(default=1, repr=False, compare=False)

    name: ClassVar[str] = "numcodecs.blosc"

    def __post_init__(self) -> None:
        self._one_of("cname", "lz4", "lz4hc", "blosclz", "zstd", "snappy", "zlib")
        self._integer("clevel", 0, 9)
        self._integer("shuffle", -1, 2)
        self._integer("blocksize", 0, _MAX_INT)
        if self.typesize is not None:
            self._integer("typesize", 1, _MAX_INT)

    def evolve(self, itemsize: int) -> Self:
        """Shuffle by the element size."""
        return replace(self, _itemsize=itemsize)

    def core(self) -> BloscCodec:
        """The same container."""
        size = self._itemsize if self.typesize is None else self.typesize
        shuffle = (2 if size == 1 else 1) if self.shuffle == -1 else self.shuffle
        names: tuple[Literal["noshuffle", "shuffle", "bitshuffle"], ...] = ("noshuffle", "shuffle", "bitshuffle")
        return BloscCodec(self.cname, self.clevel, names[shuffle], size, self.blocksize)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Zstd(_Core):
    """Zstandard; without a checksum by default, other than `ZstdCodec`."""

    level: int = 0
    checksum: bool = False

    name: ClassVar[str] = "numcodecs.zstd"

    def __post_init__(self) -> None:
        self._integer("level", -131072, 22)
        self._one_of("checksum", True, False)

    def core(self) -> ZstdCodec:
        """The same frame."""
        return ZstdCodec(self.level, self.checksum)


@dataclass(frozen=True, slots=True)
class GZip(_Core):
    """Gzip."""

    level: int = 1

    name: ClassVar[str] = "numcodecs.gzip"

    def __post_init__(self) -> None:
        self._integer("level", 0, 9)

    def core(self) -> GzipCodec:
        """The same member."""
        return GzipCodec(self.level)


# -- the bytes of numcodecs -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LZ4(NumcodecsCodec, BytesBytesCodec):
    """The size of the content, then one LZ4 block."""

    acceleration: int = 1

    name: ClassVar[str] = "numcodecs.lz4"

    def __post_init__(self) -> None:
        self._integer("acceleration", -_MAX_INT - 1, _MAX_INT)

    def encoded_bound(self, nbytes: int) -> int:
        """Blocks grow by one byte in 255 at most."""
        return nbytes + nbytes // 255 + 20

    def encode(self, raw: Buffer) -> bytes:
        """The size and the block."""
        try:
            encoded: bytes = numcodecs(self.name, "lz4").compress(as_array(raw), self.acceleration)
        except (RuntimeError, ValueError, OverflowError) as error:
            raise CodecError(f"{self.name}: {error}") from error
        return encoded

    def decode(self, raw: Buffer, limit: int) -> bytes:
        """The content, if it is as long as stated."""
        if len(raw) < 5:
            raise CodecError(f"{self.name}: at least 5 bytes expected, {len(raw)} found")
        size = int.from_bytes(raw[:4], "little")
        if size > limit:
            raise CodecError(f"{self.name}: at most {limit} bytes expected, {size} stated")
        if size > _LZ4_EXPANSION * len(raw):
            raise CodecError(f"{self.name}: {size} bytes stated, which {len(raw)} cannot hold")
        if size == 0 and raw[4:] == b"\0":  # numcodecs writes this, and cannot read it
            return b""
        try:
            content: bytes = numcodecs(self.name, "lz4").decompress(as_array(raw))
        except (RuntimeError, ValueError) as error:
            raise CodecError(f"{self.name}: the bytes are damaged: {error}") from error
        return content

    def head(self, raw: Buffer, most: int) -> bytes:
        """What the block begins with."""
        return _first_of_lz4(memoryview(raw)[4:], most)


def _first_of_lz4(block: memoryview, most: int) -> bytes:
    """About the first bytes of a block of LZ4, of which only the beginning may be there."""
    out, pos = bytearray(), 0
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
                raise CodecError(f"{LZ4.name}: the bytes are damaged: a copy from {distance} bytes before the content")
            count, pos = _lz4_length(block, pos + 2, token & 15)
            count = min(count + 4, most)
            out += (out[-distance:] * (count // distance + 1))[:count]
    except IndexError:
        pass  # the end of the block, or of what there is of it
    return bytes(out)


def _lz4_length(block: memoryview, pos: int, count: int) -> tuple[int, int]:
    """A length that begins with four bits of a token, and where it ends; or as far as it is there."""
    while count >= 15:
        piece = bytes(block[pos : pos + _PIECE])
        run = len(piece) - len(piece.lstrip(b"\xff"))
        count, pos = count + 255 * run, pos + run
        if run < len(piece):
            return count + piece[run], pos + 1
        if run < _PIECE:
            break
    return count, pos


@dataclass(frozen=True, slots=True)
class Shuffle(NumcodecsCodec, BytesBytesCodec):
    """The first byte of every element, then the second of every element, and so on.

    Without `elementsize` it is that of the chain, as in zarr-python.
    """

    elementsize: int | None = None

    name: ClassVar[str] = "numcodecs.shuffle"

    def __post_init__(self) -> None:
        if self.elementsize is not None:
            self._integer("elementsize", 0, _MAX_INT)

    def evolve(self, itemsize: int) -> Self:
        """Shuffle by the element size."""
        return replace(self, elementsize=itemsize) if self.elementsize is None else self

    def encoded_size(self, nbytes: int) -> int:
        """As many."""
        return nbytes

    def encoded_bound(self, nbytes: int) -> int:
        """As many."""
        return nbytes

    def encode(self, raw: Buffer) -> Buffer:
        """The bytes in their new order."""
        return raw if self._is_plain(raw) else memoryview(self._shuffle().encode(as_array(raw)))

    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """The bytes in their old order."""
        if len(raw) > limit:
            raise CodecError(f"{self.name}: at most {limit} bytes expected, {len(raw)} found")
        return raw if self._is_plain(raw) else memoryview(self._shuffle().decode(as_array(raw)))

    def head(self, raw: Buffer, most: int) -> memoryview | None:
        """The bytes as they are, if there is nothing to do."""
        return memoryview(raw)[:most] if self.elementsize in (0, 1) else None

    def _is_plain(self, raw: Buffer) -> bool:
        """Whether there is nothing to do."""
        size = 4 if self.elementsize is None else self.elementsize
        if size > 1 and len(raw) % size:
            raise CodecError(f"{self.name}: {len(raw)} bytes are not a multiple of the {size} of an element")
        return size <= 1 or not len(raw)

    def _shuffle(self) -> Any:
        return numcodecs(self.name, "shuffle").Shuffle(4 if self.elementsize is None else self.elementsize)
