"""From bytes to bytes: four bytes that tell whether the others are damaged."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from zellige.codecs.base import BytesBytesCodec, library
from zellige.codecs.numcodecs.base import NumcodecsCodec, as_array, numcodecs, standard
from zellige.errors import CodecError, MetadataError
from zellige.types import Buffer


@dataclass(frozen=True, slots=True)
class _Checksum(NumcodecsCodec, BytesBytesCodec):
    """Four bytes, little-endian, before or after the others."""

    @abstractmethod
    def _sum(self, body: Any) -> int:
        """The checksum of an array of bytes."""

    def _is_first(self) -> bool:
        return False

    def encoded_size(self, nbytes: int) -> int:
        """Four more."""
        return nbytes + 4

    def encoded_bound(self, nbytes: int) -> int:
        """Four more."""
        return nbytes + 4

    def encode(self, raw: Buffer) -> bytes:
        """The bytes and their checksum."""
        checksum = self._sum(as_array(raw)).to_bytes(4, "little")
        return b"".join((checksum, raw) if self._is_first() else (raw, checksum))

    def decode(self, raw: Buffer, limit: int) -> memoryview:
        """A view of the bytes without the checksum, once it is verified."""
        if not 4 <= len(raw) <= limit + 4:
            raise CodecError(f"{self.name}: from 4 to {limit + 4} bytes expected, {len(raw)} found")
        view = memoryview(raw)
        checksum, body = (view[:4], view[4:]) if self._is_first() else (view[-4:], view[:-4])
        stored, computed = int.from_bytes(checksum, "little"), self._sum(as_array(body))
        if stored != computed:
            raise CodecError(
                f"{self.name}: the checksum is {computed:08x}, stored is {stored:08x}; the bytes are damaged"
            )
        return body

    def head(self, raw: Buffer, most: int) -> memoryview:
        """The bytes as they are."""
        start = 4 if self._is_first() else 0
        return memoryview(raw)[start : start + most]


@dataclass(frozen=True, slots=True)
class _Located(_Checksum):
    """A checksum at the start or at the end."""

    location: Literal["start", "end"] = "start"

    def __post_init__(self) -> None:
        self._one_of("location", "start", "end")

    def _is_first(self) -> bool:
        return self.location == "start"


@dataclass(frozen=True, slots=True)
class CRC32(_Located):
    """CRC-32, as in zip files."""

    name: ClassVar[str] = "numcodecs.crc32"

    def _sum(self, body: Any) -> int:
        checksum: int = standard("zlib").crc32(body)
        return checksum


@dataclass(frozen=True, slots=True)
class Adler32(_Located):
    """Adler-32, as in zlib streams."""

    name: ClassVar[str] = "numcodecs.adler32"

    def _sum(self, body: Any) -> int:
        checksum: int = standard("zlib").adler32(body)
        return checksum


@dataclass(frozen=True, slots=True)
class CRC32C(_Located):
    """CRC-32C; at the end it is the same as the codec `crc32c`."""

    location: Literal["start", "end"] = "end"

    name: ClassVar[str] = "numcodecs.crc32c"

    def _sum(self, body: Any) -> int:
        checksum: int = library(self.name, "google_crc32c", "google-crc32c").value(body)
        return checksum


@dataclass(frozen=True, slots=True)
class Fletcher32(_Checksum):
    """Fletcher-32 as HDF5 has it."""

    name: ClassVar[str] = "numcodecs.fletcher32"

    def _sum(self, body: Any) -> int:
        if not len(body):  # the library does not take nothing
            return 0
        return int.from_bytes(numcodecs(self.name, "fletcher32").Fletcher32().encode(body)[-4:], "little")


@dataclass(frozen=True, slots=True)
class JenkinsLookup3(_Checksum):
    """Bob Jenkins' lookup3 as HDF5 has it, beginning with `initval`.

    The `prefix` of numcodecs is an array of bytes, for which JSON has no form, so there may be none.
    """

    initval: int = 0
    prefix: None = None

    name: ClassVar[str] = "numcodecs.jenkins_lookup3"

    def __post_init__(self) -> None:
        self._integer("initval", 0, 2**32 - 1)
        if self.prefix is not None:
            raise MetadataError(f"codec {self.name!r}: a prefix is not supported", field="configuration.prefix")

    def _sum(self, body: Any) -> int:
        checksum: int = numcodecs(self.name, "jenkins").jenkins_lookup3(body, self.initval)
        return checksum
