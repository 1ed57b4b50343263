"""Checksums, four bytes that reveal damage to the others; and `crc32c`, the one in the Zarr specification."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zellige.codecs.base import BytesBytesCodec, library
from zellige.errors import CodecError
from zellige.types import AnyArray, Buffer


class Checksum(BytesBytesCodec):
    """Four bytes, little-endian, before or after the others."""

    location: str = "end"
    overhead: ClassVar[int | None] = 4

    @abstractmethod
    def _checksum(self, body: AnyArray) -> int:
        """Return the checksum of an array of bytes."""

    def encode(self, raw: Buffer) -> bytes:
        """Return the bytes and their checksum."""
        checksum = self._checksum(np.frombuffer(raw, np.uint8)).to_bytes(4, "little")
        return b"".join((raw, checksum) if self.location == "end" else (checksum, raw))

    def decode(self, raw: Buffer, limit: int) -> memoryview:
        """Return a view of the bytes without the checksum, once it is verified."""
        if not 4 <= len(raw) <= limit + 4:
            raise CodecError(f"{self.name}: from 4 to {limit + 4} bytes expected, {len(raw)} found")
        view = memoryview(raw)
        checksum, body = (view[-4:], view[:-4]) if self.location == "end" else (view[:4], view[4:])
        stored, computed = int.from_bytes(checksum, "little"), self._checksum(np.frombuffer(body, np.uint8))
        if stored != computed:
            raise CodecError(
                f"{self.name}: the checksum is {computed:08x}, stored is {stored:08x}; the bytes are damaged"
            )
        return body

    def head(self, raw: Buffer, most: int) -> memoryview:
        """Return the bytes as they are."""
        start = 0 if self.location == "end" else 4
        return memoryview(raw)[start : start + most]


@dataclass(frozen=True)
class Crc32cCodec(Checksum):
    """Appends the CRC-32C (Castagnoli) of the bytes, little-endian."""

    name: ClassVar[str] = "crc32c"

    def _checksum(self, body: AnyArray) -> int:
        value: int = library(self.name, "google_crc32c", "google-crc32c").value(body)
        return value
