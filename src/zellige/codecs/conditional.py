"""The `conditional` codec: each chunk says which of some bytes-to-bytes codecs were applied to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from zellige.codecs.base import BytesBytesCodec
from zellige.codecs.chain import decoding_steps
from zellige.codecs.fields import codecs_of, integer
from zellige.errors import CodecError
from zellige.types import Buffer

_MAX_BITS = 1 << 16  # far more than anyone needs


@dataclass(frozen=True)
class ConditionalCodec(BytesBytesCodec):
    """Leave out codecs where they do not help.

    Bit i of a header, least significant first, tells whether codec i was applied; the other bits are 0. A
    codec whose output size depends on the bytes is a compressor, and is applied where it makes the bytes
    shorter. Any other, a checksum or a shuffle, is always applied: it is there for another reason.
    `header_bits` is the length of the header, or None for as many whole bytes as the codecs need.
    """

    codecs: Annotated[tuple[BytesBytesCodec, ...], codecs_of(BytesBytesCodec, "bytes-to-bytes codecs")]
    header_bits: Annotated[int | None, integer(8, _MAX_BITS)] = None

    name: ClassVar[str] = "conditional"
    null_is_absent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.header_bits is not None and (self.header_bits % 8 or self.header_bits < len(self.codecs)):
            expected = f"a multiple of 8, and at least the {len(self.codecs)} codecs"
            raise self._must_be("header_bits", expected, self.header_bits)

    def evolve(self, itemsize: int) -> Self:
        """Complete the codecs inside."""
        return replace(self, codecs=tuple(codec.evolve(itemsize) for codec in self.codecs))

    def _header_size(self) -> int:
        return -(-(self.header_bits or len(self.codecs)) // 8)

    def encoded_bound(self, nbytes: int) -> int:
        """Return the bound with all codecs applied: none of them has a bound below the length of its input."""
        return self._header_size() + decoding_steps(self.codecs, nbytes, exact=False)[1]

    def encode(self, raw: Buffer) -> bytes:
        """Return the header, then what the codecs that were applied made of the bytes."""
        applied = 0
        for i, codec in enumerate(self.codecs):
            encoded = codec.encode(raw)
            if codec.encoded_size(len(raw)) is not None or len(encoded) < len(raw):
                raw, applied = encoded, applied | 1 << i
        return b"".join((applied.to_bytes(self._header_size(), "little"), raw))

    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """Return the bytes before the codecs that the header names, each held to what the ones before it can make."""
        applied, decoded = self._applied(raw)
        steps, most, _ = decoding_steps(applied, limit, exact=False)
        if len(decoded) > most:
            raise CodecError(f"conditional: at most {most} bytes expected after the header, {len(decoded)} found")
        for codec, bound, _ in steps:
            decoded = codec.decode(decoded, bound)
        return decoded

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """Return what the codecs that the header names begin with."""
        applied, rest = self._applied(raw)
        found: Buffer | None = rest[:most] if not applied else rest
        for codec in reversed(applied):
            found = None if found is None else codec.head(found, most)
        return found

    def _applied(self, raw: Buffer) -> tuple[list[BytesBytesCodec], Buffer]:
        """Return the codecs that the header names, and what follows it."""
        size = self._header_size()
        if len(raw) < size:
            raise CodecError(f"conditional: at least {size} bytes expected, {len(raw)} found")
        bits = int.from_bytes(raw[:size], "little")
        if bits >> len(self.codecs):
            raise CodecError(
                f"conditional: the header {bits:#x} names more than the {len(self.codecs)} codecs there are"
            )
        return [codec for i, codec in enumerate(self.codecs) if bits >> i & 1], memoryview(raw)[size:]
