"""Codecs that compute with the numbers of a chunk: `bitround` and `scale_offset` (spec: Extension codecs)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArraySpec, integer, only_keys
from zellige.codecs.cast import bit_length, cast, is_float, is_integer, limits
from zellige.dtypes import DataType
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray

_MOST_BITS = 2**32 - 1
_CONSTANTS_KEPT = 256
_MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52, "complex64": 23, "complex128": 52}


@dataclass(frozen=True, slots=True)
class BitroundCodec(ArrayArrayCodec):
    """Rounds to `keepbits` significant bits, so that compressors find more zeros; decoding changes nothing.

    Floats keep so many bits of their mantissa, half to even; NaN and infinities stay as they are. Integers
    keep so many bits from their highest set bit, in two's complement: all negative numbers of a type are
    rounded to the same multiple. What would round beyond the type's greatest number is rounded down.
    Times are rounded as the integers that they are.
    """

    keepbits: int

    name: ClassVar[str] = "bitround"
    is_view: ClassVar[bool] = True

    def __post_init__(self) -> None:
        integer(self.name, {"keepbits": self.keepbits}, "keepbits", 1, _MOST_BITS)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration."""
        only_keys(cls.name, configuration, "keepbits")
        return cls(integer(cls.name, configuration, "keepbits", 1, _MOST_BITS))

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        return {"keepbits": self.keepbits}

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The same type; the fill value is rounded."""
        dtype = spec.dtype.numpy
        if dtype.name not in _MANTISSA and (dtype.kind not in "iumM" or dtype.isbuiltin == 2):
            raise MetadataError(
                f"codec 'bitround': {spec.dtype.name} cannot be rounded; integers, floats and times can",
                field="configuration",
            )
        return replace(spec, fill=_read_only(self.encode(spec.fill, spec)))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The rounded numbers."""
        dtype = spec.dtype.numpy
        values = np.asarray(chunk, dtype, order="C").reshape(-1)
        if dtype.name in _MANTISSA:
            size = dtype.itemsize // (2 if dtype.kind == "c" else 1)
            rounded = _round_floats(values.view(f"u{size}"), _MANTISSA[dtype.name], self.keepbits)
        else:
            rounded = _round_integers(values.view(f"u{dtype.itemsize}"), dtype.kind != "u", self.keepbits)
        return rounded.view(dtype).reshape(chunk.shape)

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The chunk itself."""
        return chunk


def _round_floats(bits: AnyArray, mantissa: int, keepbits: int) -> AnyArray:
    dropped = mantissa - keepbits
    if dropped <= 0:
        return bits
    width = 8 * bits.dtype.itemsize
    exponent = (1 << (width - 1)) - (1 << mantissa)
    rounded = (bits + ((bits >> dropped) & 1) + ((1 << (dropped - 1)) - 1)) & ((1 << width) - (1 << dropped))
    # The carry would turn a NaN into something else.
    return np.where(bits & exponent == exponent, bits, rounded)


def _round_integers(bits: AnyArray, signed: bool, keepbits: int) -> AnyArray:
    """Integers given as bit patterns; the addition saturates at the greatest number of the type."""
    length = bit_length(bits).astype(bits.dtype)
    dropped = length - np.minimum(length, min(keepbits, 8 * bits.dtype.itemsize))
    unit = np.ones_like(bits) << dropped
    added = ((bits >> dropped) & 1) + (unit >> 1) - 1
    greatest = (1 << (8 * bits.dtype.itemsize - signed)) - 1
    room = np.where(bits <= greatest, greatest - bits, added)
    return np.where(dropped > 0, (bits + np.minimum(added, room)) & (0 - unit), bits)


@dataclass(frozen=True, slots=True)
class ScaleOffsetCodec(ArrayArrayCodec):
    """Stores (x − offset) · scale, computed in the chunk's own type.

    `offset` and `scale` are written like fill values of that type. A step whose result the type cannot hold
    is an error: integers do not wrap around and divide without remainder, floats do not become infinite.
    """

    offset: JSON = 0
    scale: JSON = 1

    name: ClassVar[str] = "scale_offset"

    def __post_init__(self) -> None:
        for key, value in (("offset", self.offset), ("scale", self.scale)):
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise MetadataError(
                    f"codec 'scale_offset': {key} must be a number, or a string as for fill values, found {value!r}",
                    field=f"configuration.{key}",
                )

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration, which may be empty."""
        only_keys(cls.name, configuration, "offset", "scale")
        return cls(**configuration)

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        return {"offset": self.offset, "scale": self.scale}

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The same type, with the fill value scaled."""
        dtype = spec.dtype.numpy
        if not (is_integer(dtype) or is_float(dtype)):
            raise MetadataError(
                f"codec 'scale_offset': {spec.dtype.name} does not hold real numbers", field="configuration"
            )
        if self._constants(spec)[1] == 0:
            raise MetadataError("codec 'scale_offset': scale must not be 0", field="configuration.scale")
        try:
            return replace(spec, fill=_read_only(self.encode(spec.fill, spec)))
        except CodecError as error:
            raise MetadataError(
                f"codec 'scale_offset': fill value {spec.fill[()]} cannot be encoded; choose another: {error}",
                field="configuration",
            ) from error

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The scaled numbers."""
        dtype = spec.dtype.numpy
        values, (offset, scale) = np.asarray(chunk, dtype).reshape(-1), self._constants(spec)
        if not values.size:
            return chunk
        if is_integer(dtype):
            result = _scale_integers(values, int(offset), int(scale))
        elif dtype.isbuiltin == 2:
            result = _through_float64(np.multiply, _through_float64(np.subtract, values, offset), scale)
        else:
            with np.errstate(all="ignore"):
                result = _finite((values - offset) * scale, values)
        return result.reshape(chunk.shape)

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The numbers as they were, up to the rounding of floats."""
        dtype = spec.dtype.numpy
        values, (offset, scale) = np.asarray(chunk, dtype).reshape(-1), self._constants(spec)
        if not values.size:
            return chunk
        if is_integer(dtype):
            result = _unscale_integers(values, int(offset), int(scale))
        elif dtype.isbuiltin == 2:
            result = _through_float64(np.add, _through_float64(np.divide, values, scale), offset)
        else:
            with np.errstate(all="ignore"):
                result = _finite(values / scale + offset, values)
        return result.reshape(chunk.shape)

    def _constants(self, spec: ArraySpec) -> tuple[AnyArray, AnyArray]:
        offset = _constant(json.dumps(self.offset), spec.dtype, "offset")
        return offset, _constant(json.dumps(self.scale), spec.dtype, "scale")


@lru_cache(_CONSTANTS_KEPT)
def _constant(value: str, dtype: DataType, key: str) -> AnyArray:
    """A number of the configuration as a value of the chunk's type."""
    field = f"configuration.{key}"
    try:
        found = dtype.read_fill(json.loads(value))
    except MetadataError as error:
        raise MetadataError(f"codec 'scale_offset': {key}: {error}", field=field) from error
    if not math.isfinite(found):
        raise MetadataError(f"codec 'scale_offset': {key} must be finite, found {value}", field=field)
    return found


def _scale_integers(values: AnyArray, offset: int, scale: int) -> AnyArray:
    """(x − offset) · scale; every step is monotonic, so that the extremes speak for all values."""
    dtype, work = values.dtype, _plain(values)
    for x in (int(work.min()), int(work.max())):
        _check_range(dtype, x, x - offset, (x - offset) * scale)
    result: AnyArray = (work - offset) * scale
    return result.astype(dtype, copy=False)


def _unscale_integers(values: AnyArray, offset: int, scale: int) -> AnyArray:
    """The inverse, x / scale + offset; see `_scale_integers`."""
    dtype, work = values.dtype, _plain(values)
    for x in (int(work.min()), int(work.max())):
        _check_range(dtype, x, x // scale, x // scale + offset)
    rests = work % scale
    if rests.any():
        raise CodecError(f"scale_offset: {work[rests != 0][0]} is no multiple of scale {scale}")
    result: AnyArray = work // scale + offset
    return result.astype(dtype, copy=False)


def _plain(values: AnyArray) -> AnyArray:
    """Integers that numpy can compute with; those of ml_dtypes have at most four bits."""
    return values.astype(np.int8) if values.dtype.isbuiltin == 2 else values


def _check_range(dtype: np.dtype[Any], value: int, *steps: int) -> None:
    low, high = limits(dtype)
    for step in steps:
        if not low <= step <= high:
            raise CodecError(f"scale_offset: {value} becomes {step}, beyond {dtype.name}, which is {low} to {high}")


def _finite(results: AnyArray, values: AnyArray) -> AnyArray:
    """The results, unless a finite value gave one that is not."""
    if not np.isfinite(results).all():
        lost = np.isfinite(values) & ~np.isfinite(results)
        if lost.any():
            raise CodecError(f"scale_offset: {values[lost][0]} becomes too large for {values.dtype.name}")
    return results


def _through_float64(step: Any, values: AnyArray, constant: AnyArray) -> AnyArray:
    """One step in float64, rounded to the type of the values; exact, as float64 has more than twice the bits."""
    with np.errstate(all="ignore"):
        return cast(step(values.astype(np.float64), constant.astype(np.float64)), values.dtype)


def _read_only(fill: AnyArray) -> AnyArray:
    fill.flags.writeable = False
    return fill
