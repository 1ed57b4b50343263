"""The `conditional` codec: each chunk says which of some bytes-to-bytes codecs were applied to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from zellige import codecs as registry
from zellige.codecs.base import BytesBytesCodec, Codec, integer, only_keys
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, Buffer

_MAX_BITS = 1 << 16  # far more than anyone needs


@dataclass(frozen=True, slots=True)
class ConditionalCodec(BytesBytesCodec):
    """Leave out codecs where they do not help.

    Bit i of a header, least significant first, tells whether codec i was applied; the other bits are 0. A
    codec whose output size depends on the bytes is a compressor, and is applied where it makes the bytes
    shorter. Any other, a checksum or a shuffle, is always applied: it is there for another reason.
    """

    codecs: tuple[BytesBytesCodec, ...]
    header_bits: int | None = None
    """The length of the header, or None for as many whole bytes as the codecs need."""

    name: ClassVar[str] = "conditional"

    def __post_init__(self) -> None:
        codecs: object = self.codecs
        if not isinstance(codecs, tuple) or not codecs or not all(isinstance(c, BytesBytesCodec) for c in codecs):
            raise MetadataError(
                f"codec 'conditional': codecs must be bytes-to-bytes codecs, at least one, found {codecs!r}",
                field="configuration.codecs",
            )
        if self.header_bits is not None:
            least = 8 * _whole_bytes(len(self.codecs))
            if integer(self.name, {"header_bits": self.header_bits}, "header_bits", least, _MAX_BITS) % 8:
                raise MetadataError(
                    f"codec 'conditional': header_bits must be a multiple of 8, found {self.header_bits}",
                    field="configuration.header_bits",
                )

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration."""
        only_keys(cls.name, configuration, "codecs", "header_bits")
        chain = nested_codecs(cls.name, configuration)
        return cls(chain, configuration.get("header_bits"))  # type: ignore[arg-type]

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        bits = {} if self.header_bits is None else {"header_bits": self.header_bits}
        return {"codecs": [codec.to_json() for codec in self.codecs], **bits}

    def evolve(self, itemsize: int) -> Self:
        """Complete the codecs inside."""
        return replace(self, codecs=tuple(codec.evolve(itemsize) for codec in self.codecs))

    def _header_size(self) -> int:
        return _whole_bytes(len(self.codecs) if self.header_bits is None else self.header_bits)

    def encoded_bound(self, nbytes: int) -> int:
        """As if all codecs were applied, since none of them has a bound below the length of its input."""
        return self._header_size() + list(_bounds(self.codecs, nbytes))[-1]

    def encode(self, raw: Buffer) -> bytes:
        """The header, then what the codecs that were applied made of the bytes."""
        applied = 0
        for i, codec in enumerate(self.codecs):
            encoded = codec.encode(raw)
            if codec.encoded_size(len(raw)) is not None or len(encoded) < len(raw):
                raw, applied = encoded, applied | 1 << i
        return b"".join((applied.to_bytes(self._header_size(), "little"), raw))

    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """The bytes before the codecs that the header names, each held to what the ones before it can make."""
        applied, decoded = self._applied(raw)
        *limits, last = _bounds(applied, limit)
        if len(decoded) > last:
            raise CodecError(f"conditional: at most {last} bytes expected after the header, {len(decoded)} found")
        for codec, most in zip(reversed(applied), reversed(limits), strict=True):
            decoded = codec.decode(decoded, most)
        return decoded

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """What the codecs that the header names begin with."""
        applied, rest = self._applied(raw)
        found: Buffer | None = rest[:most] if not applied else rest
        for codec in reversed(applied):
            found = None if found is None else codec.head(found, most)
        return found

    def _applied(self, raw: Buffer) -> tuple[list[BytesBytesCodec], Buffer]:
        """The codecs that the header names, and what follows it."""
        size = self._header_size()
        if len(raw) < size:
            raise CodecError(f"conditional: at least {size} bytes expected, {len(raw)} found")
        bits = int.from_bytes(raw[:size], "little")
        if bits >> len(self.codecs):
            raise CodecError(
                f"conditional: the header {bits:#x} names more than the {len(self.codecs)} codecs there are"
            )
        return [codec for i, codec in enumerate(self.codecs) if bits >> i & 1], memoryview(raw)[size:]


def _whole_bytes(bits: int) -> int:
    return -(-bits // 8)


def _bounds(codecs: tuple[BytesBytesCodec, ...] | list[BytesBytesCodec], nbytes: int) -> Iterator[int]:
    """The most bytes before each codec, and after the last, for `nbytes` at the beginning."""
    yield nbytes
    for codec in codecs:
        size = codec.encoded_size(nbytes)
        nbytes = codec.encoded_bound(nbytes) if size is None else size
        yield nbytes


def nested_codecs(name: str, configuration: Mapping[str, JSON]) -> tuple[Codec, ...]:
    """The codecs under `codecs` of a codec's configuration; errors name the place."""
    items, field = configuration.get("codecs"), "configuration.codecs"
    if not isinstance(items, list):
        found = repr(items) if "codecs" in configuration else "nothing"
        raise MetadataError(f"codec {name!r}: codecs must be a list of codecs, found {found}", field=field)
    return tuple(_nested(item, f"{field}[{i}]") for i, item in enumerate(items))


def _nested(item: JSON, field: str) -> Codec:
    try:
        return registry.from_item(item)
    except MetadataError as error:
        raise type(error)(f"{field}: {error}", field=f"{field}.{error.field}") from error
    except RecursionError as error:
        raise MetadataError(f"{field}: codecs are nested too deeply", field=field) from error
