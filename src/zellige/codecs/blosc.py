"""The `blosc` codec (containers of c-blosc 1), by numcodecs.

The library trusts the sizes in a container, so all of them are checked before it sees the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from struct import Struct
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np

from zellige.codecs.base import EXPANSION, BytesBytesCodec, Codec, library
from zellige.codecs.fields import REQUIRED, integer
from zellige.errors import CodecError, UnsupportedCodecError
from zellige.types import JSON, Buffer

Cname = Literal["lz4", "lz4hc", "blosclz", "zstd", "snappy", "zlib"]
Shuffle = Literal["noshuffle", "shuffle", "bitshuffle"]
SHUFFLES: tuple[Shuffle, ...] = get_args(Shuffle)
"""In the order of the library's numbers."""
MAX_INT = 2**31 - 1
_OVERHEAD = 16  # the header of a container
_MAX_NBYTES = MAX_INT - _OVERHEAD

_HEADER = Struct("<BBBBIII")  # format versions, flags, typesize, nbytes, blocksize, cbytes
_word = Struct("<I").unpack_from
_MEMCPY, _NO_SPLIT = 0x02, 0x10
_MAX_SPLITS, _MIN_SPLIT = 16, 128
_LARGEST_BLOCK = 1 << 20  # that the library makes by itself


@dataclass(frozen=True)
class BloscCodec(BytesBytesCodec):
    """Blocks that are shuffled, then compressed by `cname`.

    `typesize` is the element size for shuffling, and None until a chain knows it; above 255 it acts
    as 1. `shuffle` None is chosen then, too: `"bitshuffle"` for elements of one byte, `"shuffle"` for others.
    `blocksize` 0 lets the library choose. Only writing depends on these parameters.
    """

    cname: Annotated[Cname, REQUIRED] = "zstd"
    clevel: Annotated[int, integer(0, 9), REQUIRED] = 5
    shuffle: Annotated[Shuffle | None, REQUIRED] = "shuffle"
    typesize: Annotated[int | None, integer(1, MAX_INT)] = None
    blocksize: Annotated[int, integer(0, MAX_INT), REQUIRED] = 0

    name: ClassVar[str] = "blosc"

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from the configuration in metadata; `typesize` may be missing without shuffling (spec)."""
        found = super().from_configuration(configuration)
        if found.typesize is None and found.shuffle != "noshuffle":
            raise cls._must_be("typesize", f"an integer from 1 to {MAX_INT} for shuffling", "nothing")
        return found

    def configuration(self) -> dict[str, JSON]:
        """Return the configuration for metadata: all five, which some readers require."""
        return Codec.configuration(self.evolve(self.typesize or 1))

    def evolve(self, itemsize: int) -> Self:
        """Shuffle by the element size, unless `typesize` was given, and as suits it, unless `shuffle` was."""
        if self.typesize is not None and self.shuffle is not None:
            return self
        return replace(self, typesize=self.typesize or itemsize, shuffle=self.shuffle or _suiting(itemsize))

    def encoded_bound(self, nbytes: int) -> int:
        """Return the length of a container of bytes that it cannot compress, and holds as they are."""
        return nbytes + _OVERHEAD

    def encode(self, raw: Buffer) -> Buffer:
        """Return one container."""
        if len(raw) > _MAX_NBYTES:
            raise CodecError(f"blosc: {len(raw)} bytes are more than the {_MAX_NBYTES} it can hold; use smaller chunks")
        shuffle = SHUFFLES.index(self.shuffle or _suiting(self.typesize or 1))
        _check_memory(min(len(raw), max(self.blocksize, _LARGEST_BLOCK)))
        try:
            container: bytes = _blosc().compress(
                raw, self.cname.encode(), self.clevel, shuffle, self.blocksize, typesize=self.typesize or 1
            )
        except (RuntimeError, ValueError) as error:  # e.g. a library that was built without snappy
            raise CodecError(f"blosc: {error}") from error
        return container

    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """Return the content."""
        nbytes = _content_size(raw)
        if nbytes > limit:
            raise CodecError(f"blosc: at most {limit} bytes expected, {nbytes} stated")
        return _decompress(raw) if nbytes else b""

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """Return the first block, as a container of its own."""
        block = _first_block(raw, most)
        return None if block is None else self.decode(block, max(_LARGEST_BLOCK, most))


def _suiting(itemsize: int) -> Shuffle:
    """Return how elements of a size are shuffled best."""
    return "bitshuffle" if itemsize == 1 else "shuffle"


@cache
def _blosc() -> Any:
    blosc = library("blosc", "numcodecs.blosc", "numcodecs")
    blosc.use_threads = False  # chunks are the unit of parallel work, and the library's pool is global
    return blosc


def _check_memory(blocksize: int) -> None:
    """Raise `MemoryError` if there is no memory for two blocks: the library crashes where it gets none."""
    np.empty(2 * blocksize + 4096, "u1")


def _decompress(raw: Buffer) -> bytes:
    """Return the content of a container that was checked."""
    _check_memory(_word(raw, 8)[0])
    try:
        content: bytes = _blosc().decompress(raw)
    except RuntimeError as error:
        if raw[2] >> 5 == 2 and "snappy" not in _blosc().list_compressors():
            raise UnsupportedCodecError("blosc: the bytes need snappy, which numcodecs was built without") from error
        raise CodecError(f"blosc: the bytes are damaged: {error}") from error
    return content


# -- the structure of containers ------------------------------------------------------------------


def _content_size(raw: Buffer) -> int:
    """Return the size of the content; raises `CodecError` unless everything lies within the container."""
    size = len(raw)
    if size < _OVERHEAD:
        raise CodecError(f"blosc: at least {_OVERHEAD} bytes expected, {size} found")
    nbytes: int
    version, _, flags, typesize, nbytes, blocksize, cbytes = _HEADER.unpack_from(raw)
    if version != 2 or flags & 0x08 or flags >> 5 > 4:
        raise _unknown(version, flags)
    if nbytes > _MAX_NBYTES or (nbytes and not (0 < blocksize <= nbytes and typesize)):
        raise CodecError(f"blosc: {nbytes} bytes cannot have blocks of {blocksize} with elements of {typesize}")
    if cbytes != size:
        raise CodecError(f"blosc: {cbytes} bytes stated, {size} found")
    if nbytes > EXPANSION * cbytes:
        raise CodecError(f"blosc: {nbytes} bytes stated, which {cbytes} cannot hold")
    if flags & _MEMCPY or not nbytes:
        if cbytes != nbytes + _OVERHEAD:
            raise CodecError(f"blosc: {nbytes + _OVERHEAD} bytes expected, {cbytes} found")
        return nbytes
    full, rest = divmod(nbytes, blocksize)  # blocks that are full, and another that is not
    splits = 1 if flags & _NO_SPLIT else _splits(blocksize, typesize)
    starts = Struct(f"<{full + bool(rest)}i")
    first, last = _OVERHEAD + starts.size, size - 4
    if first > size:
        raise CodecError("blosc: the bytes end too early")
    for block, pos in enumerate(starts.unpack_from(raw, _OVERHEAD)):
        for _ in range(splits if block < full else 1):
            if not first <= pos <= last:
                raise CodecError(f"blosc: block {block} lies outside of the bytes")
            pos += 4 + _word(raw, pos)[0]
        if pos > size:
            raise CodecError(f"blosc: block {block} reaches beyond the bytes")
    return nbytes


def _unknown(version: int, flags: int) -> CodecError:
    return CodecError(f"blosc: version {version} with flags {flags:02x} is not known; known is version 2")


def _first_block(raw: Buffer, most: int) -> bytes | None:
    """Return a container of the first block of another, of which only the beginning may be there; None if large."""
    if len(raw) < _OVERHEAD + 4:
        return None
    version, lz, flags, typesize, nbytes, blocksize, _ = _HEADER.unpack_from(raw)
    if version != 2:
        raise _unknown(version, flags)
    if flags & _MEMCPY:
        body = bytes(raw[_OVERHEAD : _OVERHEAD + most])
    elif nbytes <= blocksize or not 0 < blocksize <= _LARGEST_BLOCK or not typesize:
        return None
    else:
        start = pos = int.from_bytes(raw[_OVERHEAD : _OVERHEAD + 4], "little")
        for _ in range(1 if flags & _NO_SPLIT else _splits(blocksize, typesize)):
            pos += 4 + int.from_bytes(raw[pos : pos + 4], "little")
        if pos > len(raw):
            return None
        body = (_OVERHEAD + 4).to_bytes(4, "little") + bytes(raw[start:pos])
    size = len(body) if flags & _MEMCPY else blocksize
    return _HEADER.pack(version, lz, flags, typesize, size, min(blocksize, size), _OVERHEAD + len(body)) + body


@lru_cache(4096)
def _splits(blocksize: int, typesize: int) -> int:
    """Return into how many streams a full block is split; the limits are those of c-blosc's decoder."""
    if typesize > _MAX_SPLITS or blocksize // typesize < _MIN_SPLIT:
        return 1
    if blocksize % typesize:
        raise CodecError(f"blosc: blocks of {blocksize} bytes cannot be split by elements of {typesize}")
    return typesize
