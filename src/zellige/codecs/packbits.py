"""The `packbits` codec: elements of any number of bits, side by side (spec: Extension codecs)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from zellige.codecs.base import ArrayBytesCodec, ArraySpec
from zellige.codecs.fields import integer
from zellige.errors import CodecError
from zellige.types import AnyArray, Buffer

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


@dataclass(frozen=True)
class PackbitsCodec(ArrayBytesCodec):
    """Keeps the bits from `first_bit` to `last_bit` of every component, the lowest bit first, without gaps.

    Complex numbers have two components, all others one. Decoding puts the bits back in their places, zeros
    below them, and above them zeros, or copies of `last_bit` for signed integers.

    `padding_encoding` may add a byte with the number of bits, 0 to 7, that fill up the last byte. The text
    of the format always adds it; zarrs leaves it out where all bits of whole bytes are kept, which is read too.
    """

    padding_encoding: Literal["none", "first_byte", "last_byte"] = "none"
    first_bit: Annotated[int | None, integer(0, 63)] = None
    last_bit: Annotated[int | None, integer(0, 63)] = None

    name: ClassVar[str] = "packbits"
    null_is_absent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last_bit is not None and self.last_bit < (self.first_bit or 0):
            raise self._wrong("last_bit", f"last_bit {self.last_bit} lies before first_bit {self.first_bit}")

    def check(self, spec: ArraySpec) -> None:
        """Refuse types that are no numbers, and bits that the type does not have."""
        dtype, bits = spec.dtype.numpy, self._form(spec).bits
        if dtype.kind not in "biufcmM" and dtype.isbuiltin != 2:
            raise self._refused(f"{spec.dtype.name} cannot be packed")
        for key, bit in (("first_bit", self.first_bit), ("last_bit", self.last_bit)):
            if bit is not None and bit >= bits:
                raise self._wrong(key, f"{key} {bit} is beyond the {bits} bits of {spec.dtype.name}")

    def _form(self, spec: ArraySpec) -> _Form:
        dtype = spec.dtype.numpy
        components = 2 if dtype.kind == "c" else 1
        size = dtype.itemsize // components
        signed = dtype.kind in "imM" or dtype.name in ("int2", "int4")
        bits = _NARROW.get(dtype.name, 8 * size)
        stop = bits if self.last_bit is None else self.last_bit + 1
        return _Form(prod(spec.shape) * components, size, bits, signed, self.first_bit or 0, stop)

    def encoded_size(self, spec: ArraySpec) -> int:
        """Return the bits that are kept, in whole bytes, and the byte for the padding."""
        return self._form(spec).packed_size + (self.padding_encoding != "none")

    def layout(self, spec: ArraySpec) -> np.dtype[Any] | None:
        """Return the type in little-endian order, if all its bits are kept and nothing is added."""
        plain = self.padding_encoding == "none" and self._form(spec).is_whole
        return spec.dtype.numpy.newbyteorder("<") if plain else None

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """Return the packed bits."""
        form = self._form(spec)
        elements = np.asarray(chunk, spec.dtype.numpy.newbyteorder("<"), order="C")
        octets = elements.reshape(-1).view(np.uint8).reshape(-1, form.size)
        if form.is_whole:
            packed = octets.tobytes()
        else:
            packed = b"".join(
                np.packbits(form.narrowed(octets[slab]), bitorder="little").tobytes() for slab in form.slabs()
            )
        if self.padding_encoding == "none":
            return packed
        padding = bytes([form.padding])
        return padding + packed if self.padding_encoding == "first_byte" else packed + padding

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return the elements; a view of `raw` if all bits are kept."""
        form, dtype = self._form(spec), spec.dtype.numpy.newbyteorder("<")
        packed = self._without_padding(memoryview(raw), form)
        if form.is_whole:
            return np.frombuffer(packed, dtype).reshape(spec.shape)
        octets = np.empty((form.components, form.size), np.uint8)
        for slab in form.slabs():
            count = len(octets[slab]) * form.width
            bits = np.frombuffer(packed, np.uint8, -(-count // 8), slab.start * form.width // 8)
            octets[slab] = form.widened(np.unpackbits(bits, count=count, bitorder="little"))
        return octets.reshape(-1).view(dtype).reshape(spec.shape)

    def _without_padding(self, raw: memoryview, form: _Form) -> memoryview:
        """Return the packed bits; checks the length, and the byte for the padding."""
        size, padded = form.packed_size, self.padding_encoding != "none"
        if form.is_whole and len(raw) == size:  # as zarrs writes them
            padded = False
        if len(raw) != size + padded:
            raise CodecError(f"packbits: {size + padded} bytes expected, {len(raw)} found")
        if not padded:
            return raw
        stated, packed = (raw[0], raw[1:]) if self.padding_encoding == "first_byte" else (raw[-1], raw[:-1])
        if stated != form.padding:
            raise CodecError(f"packbits: {form.padding} bits of padding expected, {stated} stated")
        return packed


class _Form(NamedTuple):
    """How the elements of a chunk are made of components, and these of bits."""

    components: int
    size: int
    """The bytes of a component in memory."""
    bits: int
    """The bits of a component, at most 8 for each byte."""
    signed: bool
    first: int
    """The first bit that is kept, and below the one after the last."""
    stop: int

    @property
    def width(self) -> int:
        return self.stop - self.first

    @property
    def is_whole(self) -> bool:
        """Whether components are stored as they are in memory."""
        return self.width == 8 * self.size

    @property
    def packed_size(self) -> int:
        return -(-self.components * self.width // 8)

    @property
    def padding(self) -> int:
        return -self.components * self.width % 8

    def slabs(self) -> Iterator[slice]:
        return (slice(start, min(start + _SLAB, self.components)) for start in range(0, self.components, _SLAB))

    def narrowed(self, octets: AnyArray) -> AnyArray:
        """Return the kept bits of components, one in a byte."""
        if self.bits == 1:  # each bit is in a byte already
            return octets
        return np.unpackbits(octets, axis=1, bitorder="little")[:, self.first : self.stop]

    def widened(self, bits: AnyArray) -> AnyArray:
        """Return components from their kept bits, given one in a byte."""
        bits = bits.reshape(-1, self.width)
        if self.bits == 1:
            return bits
        spread = np.zeros((len(bits), 8 * self.size), np.uint8)
        spread[:, self.first : self.stop] = bits
        if self.signed:
            spread[:, self.stop : self.bits] = bits[:, -1:]
        return np.packbits(spread, axis=1, bitorder="little")
