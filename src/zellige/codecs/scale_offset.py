"""The `scale_offset` codec: numbers shifted and scaled in their own type (spec: Extension codecs)."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArraySpec
from zellige.codecs.cast_value import cast, is_float, is_integer
from zellige.codecs.fields import Rule
from zellige.dtypes import DataType
from zellige.dtypes.cast import limits
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray

_CONSTANTS_KEPT = 256
_Step: TypeAlias = tuple[Callable[[Any, Any], Any], AnyArray]
"""An operation and its constant."""
_FILL = Rule(
    "a number, or a string as for fill values",
    lambda value: isinstance(value, int | float | str) and not isinstance(value, bool),
)


@dataclass(frozen=True)
class ScaleOffsetCodec(ArrayArrayCodec):
    """Stores (x − offset) · scale, computed in the chunk's own type.

    `offset` and `scale` are written like fill values of that type. A step whose result the type cannot hold
    is an error: integers do not wrap around and divide without remainder, floats do not become infinite.
    """

    offset: Annotated[JSON, _FILL] = 0
    scale: Annotated[JSON, _FILL] = 1

    name: ClassVar[str] = "scale_offset"

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return the same type, with the fill value scaled."""
        dtype = spec.dtype.numpy
        if not (is_integer(dtype) or is_float(dtype)):
            raise self._refused(f"{spec.dtype.name} does not hold real numbers")
        if self._constants(spec)[1] == 0:
            raise self._wrong("scale", "scale must not be 0")
        try:
            return spec.refilled(self.encode(spec.fill, spec))
        except CodecError as error:
            message = f"fill value {spec.fill[()]} cannot be encoded; choose another: {error}"
            raise self._refused(message) from error

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the scaled numbers."""
        offset, scale = self._constants(spec)
        return _computed(chunk, spec, (operator.sub, offset), (operator.mul, scale))

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the numbers as they were, up to the rounding of floats."""
        offset, scale = self._constants(spec)
        divide = operator.floordiv if is_integer(spec.dtype.numpy) else operator.truediv
        return _computed(chunk, spec, (divide, scale), (operator.add, offset))

    def _constants(self, spec: ArraySpec) -> tuple[AnyArray, AnyArray]:
        offset = _constant(json.dumps(self.offset), spec.dtype, "offset")
        return offset, _constant(json.dumps(self.scale), spec.dtype, "scale")


@lru_cache(_CONSTANTS_KEPT)
def _constant(value: str, dtype: DataType, key: str) -> AnyArray:
    """Return a number of the configuration as a value of the chunk's type."""
    field = f"configuration.{key}"
    try:
        found = dtype.read_fill(json.loads(value))
    except MetadataError as error:
        raise MetadataError(f"codec 'scale_offset': {key}: {error}", field=field) from error
    if not math.isfinite(found):
        raise MetadataError(f"codec 'scale_offset': {key} must be finite, found {value}", field=field)
    return found


def _computed(chunk: AnyArray, spec: ArraySpec, *steps: _Step) -> AnyArray:
    """Return what some steps make of a chunk, in its own type."""
    dtype = spec.dtype.numpy
    result = values = np.asarray(chunk, dtype).reshape(-1)
    if not values.size:
        return chunk
    if is_integer(dtype):
        return _integers(values, steps).reshape(chunk.shape)
    with np.errstate(all="ignore"):
        for step, constant in steps:
            if dtype.isbuiltin == 2:  # rounded once, since float64 has more than twice the bits
                result = cast(step(result.astype(np.float64), constant.astype(np.float64)), dtype)
            else:
                result = step(result, constant)
    if dtype.isbuiltin == 1 and (lost := np.isfinite(values) & ~np.isfinite(result)).any():
        raise CodecError(f"scale_offset: {values[lost][0]} becomes too large for {dtype.name}")
    return result.reshape(chunk.shape)


def _integers(values: AnyArray, steps: Sequence[_Step]) -> AnyArray:
    """Compute the same for integers; every step is monotonic, so that the extremes speak for all values."""
    dtype, (low, high) = values.dtype, limits(values.dtype)
    work = values.astype(np.int8) if dtype.isbuiltin == 2 else values  # numpy cannot compute with those of ml_dtypes
    for extreme in (int(work.min()), int(work.max())):
        x = extreme
        for step, constant in steps:
            x = step(x, int(constant))
            if not low <= x <= high:
                message = f"{extreme} becomes {x}, beyond {dtype.name}, which is {low} to {high}"
                raise CodecError(f"scale_offset: {message}")
    for step, constant in steps:
        if step is operator.floordiv and (rests := work % int(constant)).any():
            raise CodecError(f"scale_offset: {work[rests != 0][0]} is no multiple of scale {constant}")
        work = step(work, int(constant))
    return work.astype(dtype, copy=False)
