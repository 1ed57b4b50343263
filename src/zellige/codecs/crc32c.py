"""The `crc32c` codec: four bytes at the end that tell whether the rest is damaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zellige.codecs.base import BytesBytesCodec, library
from zellige.errors import CodecError
from zellige.types import Buffer


@dataclass(frozen=True, slots=True)
class Crc32cCodec(BytesBytesCodec):
    """Appends the CRC-32C (Castagnoli) of the bytes, little-endian."""

    name: ClassVar[str] = "crc32c"

    def encoded_size(self, nbytes: int) -> int:
        """Four more."""
        return nbytes + 4

    def encoded_bound(self, nbytes: int) -> int:
        """Four more."""
        return nbytes + 4

    def encode(self, raw: Buffer) -> bytes:
        """The bytes and their checksum."""
        return b"".join((raw, _checksum(raw).to_bytes(4, "little")))

    def decode(self, raw: Buffer, limit: int) -> memoryview:
        """A view of the bytes before the checksum, once it is verified."""
        if len(raw) < 4:
            raise CodecError(f"crc32c: at least 4 bytes expected, {len(raw)} found")
        if len(raw) - 4 > limit:
            raise CodecError(f"crc32c: at most {limit} bytes and a checksum expected, {len(raw)} found")
        body = memoryview(raw)[:-4]
        stored, computed = int.from_bytes(raw[-4:], "little"), _checksum(body)
        if stored != computed:
            raise CodecError(f"crc32c: the checksum is {computed:08x}, stored is {stored:08x}; the bytes are damaged")
        return body

    def head(self, raw: Buffer, most: int) -> memoryview:
        """The bytes as they are."""
        return memoryview(raw)[:most]


def _checksum(raw: Buffer) -> int:
    # The library takes bytes and arrays, not memoryviews.
    value: int = library("crc32c", "google_crc32c", "google-crc32c").value(np.frombuffer(raw, np.uint8))
    return value
