"""The `cast_value` codec: the same numbers in another type (spec: Extension codecs); and the casts behind it.

numpy's own casts round to nearest only, wrap around silently, and round twice on the way to the small floats of
ml_dtypes. Here they are exact in all five roundings. Inside, floats are float64, which holds every float type exactly;
arrays are flat.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArraySpec
from zellige.codecs.fields import Rule
from zellige.dtypes import DataType, from_json, parse_dtype
from zellige.dtypes.cast import limits
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray

Rounding = Literal["nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"]
OutOfRange = Literal["clamp", "wrap"]

_MAPS_KEPT = 64


def _read_type(value: JSON, field: str) -> JSON:
    """Return the type as metadata has it, which has fewer spellings than callers have."""
    try:
        from_json(value)
    except MetadataError as error:
        raise _inside(error, field) from error
    return value


_DATA_TYPE = Rule("a data type", lambda value: True, _read_type)
_SCALAR_MAP = Rule(
    "an object with 'encode' and 'decode'",
    lambda value: isinstance(value, Mapping) and value.keys() <= {"encode", "decode"},
)


@dataclass(frozen=True)
class CastValueCodec(ArrayArrayCodec):
    """Stores the numbers as `data_type`; a value that no rule covers is an error, never a surprise.

    For each value, `scalar_map` comes first: {"encode": [[from, to], …], "decode": …}, in which NaN stands
    for every NaN and the first match wins. Then the value is rounded if it must be, and `out_of_range` says
    what becomes of a value beyond the type: "clamp" (to infinity, if the type has it), "wrap" (integers
    only), or nothing, which is an error.
    """

    data_type: Annotated[JSON, _DATA_TYPE]
    rounding: Rounding = "nearest-even"
    out_of_range: OutOfRange | None = None
    scalar_map: Annotated[Mapping[str, JSON] | None, _SCALAR_MAP] = None

    name: ClassVar[str] = "cast_value"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_number(self.target, "configuration.data_type")
        if self.out_of_range == "wrap" and not is_integer(self.target.numpy):
            raise self._wrong("out_of_range", f"only integers wrap, not {self.target.name}; use 'clamp'")
        for way, pairs in (self.scalar_map or {}).items():  # what they hold is checked when both types are known
            if not isinstance(pairs, list | tuple) or not all(
                isinstance(p, list | tuple) and len(p) == 2 for p in pairs
            ):
                raise self._must_be(f"scalar_map.{way}", "a list of pairs [from, to]", repr(pairs))

    def configuration(self) -> dict[str, JSON]:
        """Return the configuration for metadata."""
        return {**super().configuration(), "data_type": self.target.to_json()}

    @property
    def target(self) -> DataType:
        """The type of the encoded chunk."""
        try:
            return parse_dtype(self.data_type)
        except MetadataError as error:
            raise _inside(error, "configuration.data_type") from error

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return the other type, with the fill value in it, which must come back when decoded."""
        self._check_number(spec.dtype, "configuration")
        try:
            encoded = self.encode(spec.fill, spec)
            decoded = self.decode(encoded, spec)
        except CodecError as error:
            raise self._refused(f"fill value {spec.fill[()]} cannot be cast: {error}") from error
        if not _matches(decoded, spec.fill).all():
            raise self._refused(
                f"fill value {spec.fill[()]} comes back as {decoded[()]}; choose another, or map it both ways in "
                "scalar_map"
            )
        return spec.refilled(encoded, self.target)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the numbers in the other type."""
        return self._convert(chunk, spec.dtype, self.target, "encode")

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the numbers in the chunk's own type, by the same rules."""
        return self._convert(chunk, self.target, spec.dtype, "decode")

    def _convert(self, chunk: AnyArray, source: DataType, target: DataType, way: str) -> AnyArray:
        values = np.asarray(chunk, source.numpy).reshape(-1)
        entries = None if self.scalar_map is None else self.scalar_map.get(way)
        if not entries:
            return cast(values, target.numpy, self.rounding, self.out_of_range).reshape(chunk.shape)
        result, free = np.empty(values.shape, target.numpy), np.ones(values.shape, bool)
        for key, value in _pairs(json.dumps(entries), source, target, way):
            found = free & _matches(values, key)
            result[found] = value
            free &= ~found
        result[free] = cast(values[free], target.numpy, self.rounding, self.out_of_range)
        return result.reshape(chunk.shape)

    def _check_number(self, dtype: DataType, field: str) -> None:
        if not (is_integer(dtype.numpy) or is_float(dtype.numpy)):
            raise self._refused(f"{dtype.name} does not hold real numbers", field)


@lru_cache(_MAPS_KEPT)
def _pairs(entries: str, source: DataType, target: DataType, way: str) -> list[tuple[AnyArray, AnyArray]]:
    """Return the pairs of a map as values of their types."""
    pairs = []
    for i, (key, value) in enumerate(json.loads(entries)):
        try:
            pairs.append((source.read_fill(key), target.read_fill(value)))
        except MetadataError as error:
            raise _inside(error, f"configuration.scalar_map.{way}[{i}]") from error
    return pairs


def _inside(error: MetadataError, field: str) -> MetadataError:
    """Return the same error with its place in the codec's configuration."""
    return type(error)(f"codec 'cast_value': {error}", field=field)


def _matches(values: AnyArray, value: AnyArray) -> AnyArray:
    """Return where values equal a value; NaN equals NaN."""
    same = values == value
    return np.asarray(same | (np.isnan(values) & np.isnan(value)) if is_float(values.dtype) else same)


# -- number formats -------------------------------------------------------------------------------


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is an integer, of numpy or of ml_dtypes."""
    return dtype.kind in "iu" or (dtype.isbuiltin == 2 and dtype.name.lstrip("u").startswith("int"))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is a float, of numpy or of ml_dtypes; not the one without sign and zero."""
    return dtype.kind == "f" or (dtype.isbuiltin == 2 and "float" in dtype.name and dtype.name != "float8_e8m0fnu")


class _Format(NamedTuple):
    precision: int
    """The number of significant bits."""
    least: int
    """The exponent of the smallest number above zero."""
    largest: float
    has_infinity: bool
    has_nan: bool


@cache
def _format(dtype: np.dtype[Any]) -> _Format:
    info = (import_module("ml_dtypes") if dtype.isbuiltin == 2 else np).finfo(dtype)
    with np.errstate(all="ignore"):
        infinity, nan = np.array([math.inf, math.nan]).astype(dtype).astype(np.float64).tolist()
    least = math.frexp(float(info.smallest_subnormal))[1] - 1
    return _Format(int(info.nmant) + 1, least, float(info.max), math.isinf(infinity), math.isnan(nan))


@cache
def _holds_all(dtype: np.dtype[Any], source: np.dtype[Any]) -> bool:
    """Return whether a float type holds every value of another type."""
    target = _format(dtype)
    if is_integer(source):
        low, high = limits(source)
        return max(-low, high) <= min(1 << target.precision, target.largest)
    own = _format(source)
    return (
        own.precision <= target.precision
        and own.least >= target.least
        and own.largest <= target.largest
        and own.has_infinity <= target.has_infinity
        and own.has_nan <= target.has_nan
    )


def bit_length(values: AnyArray) -> AnyArray:
    """Return the position of the highest set bit of unsigned integers, counted from 1; 0 for 0."""
    length: AnyArray = np.frexp(values.astype(np.float64))[1].astype(np.uint64)
    # float64 may have rounded up to the next power of two.
    length -= (length > 0) & (values.astype(np.uint64) >> (np.maximum(length, 1) - 1) == 0)
    return length


# -- casting --------------------------------------------------------------------------------------


def cast(
    values: AnyArray, dtype: np.dtype[Any], rounding: Rounding = "nearest-even", out_of_range: OutOfRange | None = None
) -> AnyArray:
    """Return a flat array of numbers as another type, rounded once; raises `CodecError` for what does not fit."""
    if values.dtype == dtype or not values.size:
        return values.astype(dtype)
    with np.errstate(all="ignore"):
        if not is_integer(dtype):
            return _to_floats(values, dtype, rounding, out_of_range)
        if is_integer(values.dtype):
            return _integers_to_integers(values, dtype, out_of_range)
        return _floats_to_integers(values.astype(np.float64), dtype, rounding, out_of_range)


def _integers_to_integers(values: AnyArray, dtype: np.dtype[Any], out_of_range: OutOfRange | None) -> AnyArray:
    low, high = limits(dtype)
    if values.dtype.isbuiltin == 2:  # of ml_dtypes, at most four bits
        values = values.astype(np.int8)
    least, most = int(values.min()), int(values.max())
    if low <= least and most <= high:
        return values.astype(dtype)
    if out_of_range == "clamp":
        own_low, own_high = limits(values.dtype)
        return values.clip(max(low, own_low), min(high, own_high)).astype(dtype)
    if out_of_range == "wrap":
        return _low_bits(values.astype(np.uint64), dtype)
    raise _unfit(least if least < low else most, dtype, f"{low} to {high}")


def _floats_to_integers(
    values: AnyArray, dtype: np.dtype[Any], rounding: Rounding, out_of_range: OutOfRange | None
) -> AnyArray:
    low, high = limits(dtype)
    whole = _TO_WHOLE[rounding](values)
    below, above = whole < low, whole >= high + 1  # powers of two, which floats hold exactly
    if not np.isfinite(whole).all():
        raise CodecError(f"cast to {dtype.name}: NaN and infinities are no integers; map them in scalar_map")
    outside = below | above
    if not outside.any():
        return _whole_as(whole, dtype)
    if out_of_range == "clamp":
        result = _whole_as(np.where(outside, 0, whole), dtype)
        result[below], result[above] = low, high
        return result
    if out_of_range == "wrap":
        size = np.abs(np.fmod(whole, 2.0**64)).astype(np.uint64)
        return _low_bits(np.where(whole < 0, 0 - size, size), dtype)
    raise _unfit(values[outside][0], dtype, f"{low} to {high}")


def _to_floats(values: AnyArray, dtype: np.dtype[Any], rounding: Rounding, out_of_range: OutOfRange | None) -> AnyArray:
    if _holds_all(dtype, values.dtype):
        return values.astype(dtype)
    target = _format(dtype)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and bit_length(_magnitude(values)).max() > 53:
        exact = _round_integers(values, target.precision, rounding)  # float64 cannot hold them
    else:
        exact = values.astype(np.float64)
    rounded = _to_precision(exact, dtype, rounding)
    finite = np.isfinite(exact)
    outside = finite & ~(np.abs(rounded) <= target.largest)
    if outside.any():
        if out_of_range != "clamp":
            raise _unfit(values[outside][0], dtype, f"{-target.largest} to {target.largest}")
        edge = math.inf if target.has_infinity else target.largest
        rounded = np.where(outside, np.copysign(edge, exact), rounded)
    if not target.has_nan and np.isnan(exact).any():
        raise CodecError(f"cast to {dtype.name}: the type has no NaN; map it in scalar_map")
    if not target.has_infinity and np.isinf(exact).any():
        raise CodecError(f"cast to {dtype.name}: the type has no infinities; map them in scalar_map")
    return rounded.astype(dtype)


def _to_precision(values: AnyArray, dtype: np.dtype[Any], rounding: Rounding) -> AnyArray:
    """Round float64 to what a float type can hold, were it not for its greatest number."""
    if rounding == "nearest-even" and dtype.isbuiltin == 1:
        return values.astype(dtype)
    target = _format(dtype)
    exponent = np.frexp(values)[1]
    step = np.maximum(exponent - target.precision, target.least)
    rounded: AnyArray = np.ldexp(_TO_WHOLE[rounding](np.ldexp(values, -step)), step)
    return rounded


def _round_integers(values: AnyArray, precision: int, rounding: Rounding) -> AnyArray:
    """Round integers to so many significant bits, in integer arithmetic, and return float64."""
    size = _magnitude(values)
    dropped = np.maximum(bit_length(size), precision) - precision
    kept, unit = size >> dropped, np.uint64(1) << dropped
    rest = size & (unit - 1)
    kept += _rounds_away(rounding, rest, unit >> 1, kept & 1 == 1, values < 0)
    result: AnyArray = np.ldexp(kept.astype(np.float64), dropped.astype(np.int32))
    return np.where(values < 0, -result, result)


def _rounds_away(rounding: Rounding, rest: AnyArray, half: AnyArray, odd: AnyArray, negative: AnyArray) -> AnyArray:
    """Return where dropping `rest` rounds away from zero."""
    away = {
        "nearest-even": (rest > half) | ((rest == half) & odd),
        "towards-zero": np.False_,
        "towards-positive": ~negative,
        "towards-negative": negative,
        "nearest-away": rest >= half,
    }
    return np.asarray((rest > 0) & away[rounding])


def _nearest_away(values: AnyArray) -> AnyArray:
    whole = np.trunc(values)
    rounded: AnyArray = np.copysign(np.abs(whole) + (np.abs(values - whole) >= 0.5), values)
    return rounded


_TO_WHOLE: dict[str, Callable[[AnyArray], AnyArray]] = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
    "nearest-away": _nearest_away,
}


def _magnitude(values: AnyArray) -> AnyArray:
    """Return absolute values of integers of 64 bits, unsigned, also that of the least one."""
    return np.abs(values).astype(np.uint64)


def _whole_as(whole: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Return floats without fraction, within the limits of an integer type, as that type."""
    return whole.astype(np.int8).astype(dtype) if dtype.isbuiltin == 2 else whole.astype(dtype)


def _low_bits(bits: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Return the lowest bits of unsigned integers as an integer type: the value modulo the size of the type."""
    low, high = limits(dtype)
    return (bits & np.uint64(high - low)).astype(f"u{dtype.itemsize}").view(dtype)


def _unfit(value: Any, dtype: np.dtype[Any], bounds: str) -> CodecError:
    return CodecError(
        f"cast to {dtype.name}: {value} is out of range, which is {bounds}; set out_of_range, or map it in scalar_map"
    )
