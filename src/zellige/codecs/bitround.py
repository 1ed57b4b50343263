"""The `bitround` codec: numbers of fewer significant bits (spec: Extension codecs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArraySpec
from zellige.codecs.cast_value import bit_length
from zellige.codecs.fields import integer
from zellige.types import AnyArray

_MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52, "complex64": 23, "complex128": 52}


@dataclass(frozen=True)
class BitroundCodec(ArrayArrayCodec):
    """Rounds to `keepbits` significant bits, so that compressors find more zeros; decoding changes nothing.

    Floats keep so many bits of their mantissa, half to even; NaN and infinities stay as they are. Integers
    keep so many bits from their highest set bit, in two's complement: all negative numbers of a type are
    rounded to the same multiple. What would round beyond the type's greatest number is rounded down.
    Times are rounded as the integers that they are.
    """

    keepbits: Annotated[int, integer(1, 2**32 - 1)]

    name: ClassVar[str] = "bitround"
    is_view: ClassVar[bool] = True

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return the same type; the fill value is rounded."""
        dtype = spec.dtype.numpy
        if dtype.name not in _MANTISSA and (dtype.kind not in "iumM" or dtype.isbuiltin == 2):
            raise self._refused(f"{spec.dtype.name} cannot be rounded; integers, floats and times can")
        return spec.refilled(self.encode(spec.fill, spec))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the rounded numbers."""
        dtype = spec.dtype.numpy
        values = np.asarray(chunk, dtype, order="C").reshape(-1)
        if dtype.name in _MANTISSA:
            size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
            rounded = _round_floats(values.view(f"u{size}"), _MANTISSA[dtype.name], self.keepbits)
        else:
            rounded = _round_integers(values.view(f"u{dtype.itemsize}"), dtype.kind != "u", self.keepbits)
        return rounded.view(dtype).reshape(chunk.shape)

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the chunk itself."""
        return chunk


def _round_floats(bits: AnyArray, mantissa: int, keepbits: int) -> AnyArray:
    """Round floats given as bit patterns to so many bits of their mantissa; NaN and infinities stay."""
    dropped = mantissa - keepbits
    if dropped <= 0:
        return bits
    width = 8 * bits.dtype.itemsize
    exponent = (1 << (width - 1)) - (1 << mantissa)
    rounded = (bits + ((bits >> dropped) & 1) + ((1 << (dropped - 1)) - 1)) & ((1 << width) - (1 << dropped))
    # The carry would turn a NaN into something else.
    return np.where(bits & exponent == exponent, bits, rounded)


def _round_integers(bits: AnyArray, signed: bool, keepbits: int) -> AnyArray:
    """Round integers given as bit patterns; the addition saturates at the greatest number of the type."""
    length = bit_length(bits).astype(bits.dtype)
    dropped = length - np.minimum(length, min(keepbits, 8 * bits.dtype.itemsize))
    unit = np.ones_like(bits) << dropped
    added = ((bits >> dropped) & 1) + (unit >> 1) - 1
    greatest = (1 << (8 * bits.dtype.itemsize - signed)) - 1
    room = np.where(bits <= greatest, greatest - bits, added)
    return np.where(dropped > 0, (bits + np.minimum(added, room)) & (0 - unit), bits)
