"""The `packbits` codec: elements of any number of bits, side by side (spec: Extension codecs)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from zellige.codecs.base import ArrayBytesCodec, ArraySpec, integer, one_of, only_keys
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray, Buffer

_PADDINGS = ("none", "first_byte", "last_byte")
_MOST_BITS = 64
_SLAB = 1 << 16
"""So many components are spread out to one byte per bit at a time; a multiple of 8, to end with a byte."""

# The types that do not fill their bytes. All others have 8 bits for each byte.
_NARROW = {
    "bool": 1,
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}


@dataclass(frozen=True, slots=True)
class PackbitsCodec(ArrayBytesCodec):
    """Keeps the bits from `first_bit` to `last_bit` of every component, the lowest bit first, without gaps.

    Complex numbers have two components, all others one. Decoding puts the bits back in their places, zeros
    below them, and above them zeros, or copies of `last_bit` for signed integers.

    `padding_encoding` may add a byte with the number of bits, 0 to 7, that fill up the last byte. The text
    of the format always adds it; zarrs leaves it out where all bits of whole bytes are kept, which is read too.
    """

    padding_encoding: Literal["none", "first_byte", "last_byte"] = "none"
    first_bit: int | None = None
    last_bit: int | None = None

    name: ClassVar[str] = "packbits"

    def __post_init__(self) -> None:
        one_of(self.name, {"padding_encoding": self.padding_encoding}, "padding_encoding", _PADDINGS)
        for key, value in (("first_bit", self.first_bit), ("last_bit", self.last_bit)):
            if value is not None:
                integer(self.name, {key: value}, key, 0, _MOST_BITS - 1)
        if self.last_bit is not None and self.last_bit < (self.first_bit or 0):
            raise MetadataError(
                f"codec 'packbits': last_bit {self.last_bit} lies before first_bit {self.first_bit}",
                field="configuration.last_bit",
            )

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration, in which everything may be absent."""
        only_keys(cls.name, configuration, "padding_encoding", "first_bit", "last_bit")
        return cls(**configuration)

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document; bits that were not given depend on the type and are left out."""
        bits = {"first_bit": self.first_bit, "last_bit": self.last_bit}
        given = {key: value for key, value in bits.items() if value is not None}
        return {"padding_encoding": self.padding_encoding, **given}

    def check(self, spec: ArraySpec) -> None:
        """Refuse types that are no numbers, and bits that the type does not have."""
        dtype = spec.dtype.numpy
        if dtype.kind not in "biufcmM" and dtype.isbuiltin != 2:
            raise MetadataError(f"codec 'packbits': {spec.dtype.name} cannot be packed", field="configuration")
        form = _form(dtype)
        for key, bit in (("first_bit", self.first_bit), ("last_bit", self.last_bit)):
            if bit is not None and bit >= form.bits:
                raise MetadataError(
                    f"codec 'packbits': {key} {bit} is beyond the {form.bits} bits of {spec.dtype.name}",
                    field=f"configuration.{key}",
                )

    def encoded_size(self, spec: ArraySpec) -> int:
        """The bits that are kept, in whole bytes, and the byte for the padding."""
        return -(-self._stream_bits(spec) // 8) + (self.padding_encoding != "none")

    def layout(self, spec: ArraySpec) -> np.dtype[Any] | None:
        """The type in little-endian order, if all its bits are kept and nothing is added."""
        if self.padding_encoding == "none" and self._keeps_all(_form(spec.dtype.numpy)):
            return spec.dtype.numpy.newbyteorder("<")
        return None

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """The packed bits."""
        form = _form(spec.dtype.numpy)
        octets = _octets(np.asarray(chunk, spec.dtype.numpy.newbyteorder("<"), order="C"), form)
        if self._keeps_all(form):
            packed = octets.tobytes()
        else:
            packed = b"".join(
                np.packbits(self._narrowed(octets[slab], form), bitorder="little").tobytes()
                for slab in _slabs(len(octets))
            )
        padding = bytes([-self._stream_bits(spec) % 8])
        if self.padding_encoding == "none":
            return packed
        return padding + packed if self.padding_encoding == "first_byte" else packed + padding

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """The elements; a view of `raw` if all bits are kept."""
        dtype, form = spec.dtype.numpy, _form(spec.dtype.numpy)
        packed = self._without_padding(raw, spec)
        if self._keeps_all(form):
            return np.frombuffer(packed, dtype.newbyteorder("<")).reshape(spec.shape)
        octets = np.empty((prod(spec.shape) * form.components, form.size), np.uint8)
        width = self._width(form)
        for slab in _slabs(len(octets)):
            count = len(octets[slab])
            start = slab.start * width // 8
            bits = np.frombuffer(packed, np.uint8, -(-count * width // 8), start)
            octets[slab] = self._widened(np.unpackbits(bits, count=count * width, bitorder="little"), form)
        return octets.reshape(-1).view(dtype.newbyteorder("<")).reshape(spec.shape)

    # -- the kept bits ----------------------------------------------------------------------------

    def _span(self, form: _Form) -> tuple[int, int]:
        return self.first_bit or 0, form.bits if self.last_bit is None else self.last_bit + 1

    def _width(self, form: _Form) -> int:
        first, stop = self._span(form)
        return stop - first

    def _keeps_all(self, form: _Form) -> bool:
        return self._width(form) == 8 * form.size

    def _stream_bits(self, spec: ArraySpec) -> int:
        form = _form(spec.dtype.numpy)
        return prod(spec.shape) * form.components * self._width(form)

    def _without_padding(self, raw: Buffer, spec: ArraySpec) -> memoryview:
        """The packed bits; checks the length, and the byte for the padding."""
        expected, view = self.encoded_size(spec), memoryview(raw)
        if self.padding_encoding == "none" or (len(raw) == expected - 1 and self._keeps_all(_form(spec.dtype.numpy))):
            expected, padding, packed = expected - (self.padding_encoding != "none"), b"", view
        elif self.padding_encoding == "first_byte":
            padding, packed = bytes(view[:1]), view[1:]
        else:
            padding, packed = bytes(view[-1:]), view[:-1]
        if len(raw) != expected:
            raise CodecError(f"packbits: {expected} bytes expected, {len(raw)} found")
        if padding and padding[0] != -self._stream_bits(spec) % 8:
            raise CodecError(f"packbits: {-self._stream_bits(spec) % 8} bits of padding expected, {padding[0]} stated")
        return packed

    def _narrowed(self, octets: AnyArray, form: _Form) -> AnyArray:
        """The kept bits of components, one in a byte."""
        first, stop = self._span(form)
        if form.bits == 1:  # each bit is in a byte already
            return octets
        return np.unpackbits(octets, axis=1, bitorder="little")[:, first:stop]

    def _widened(self, bits: AnyArray, form: _Form) -> AnyArray:
        """Components from their kept bits, given one in a byte."""
        first, stop = self._span(form)
        bits = bits.reshape(-1, stop - first)
        if form.bits == 1:
            return bits
        spread = np.zeros((len(bits), 8 * form.size), np.uint8)
        spread[:, first:stop] = bits
        if form.signed:
            spread[:, stop : form.bits] = bits[:, -1:]
        return np.packbits(spread, axis=1, bitorder="little")


class _Form(NamedTuple):
    """How the elements of a type are made of bits."""

    components: int
    size: int
    """The bytes of a component in memory."""
    bits: int
    """The bits of a component, at most 8 for each byte."""
    signed: bool


def _form(dtype: np.dtype[Any]) -> _Form:
    components = 2 if dtype.kind == "c" else 1
    size = dtype.itemsize // components
    signed = dtype.kind in "imM" or dtype.name in ("int2", "int4")
    return _Form(components, size, _NARROW.get(dtype.name, 8 * size), signed)


def _octets(array: AnyArray, form: _Form) -> AnyArray:
    """The bytes of each component, the lowest first."""
    return array.reshape(-1).view(np.uint8).reshape(-1, form.size)


def _slabs(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _SLAB, count)) for start in range(0, count, _SLAB))
