"""The `cast_value` codec: the same numbers in another type (spec: Extension codecs)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArraySpec
from zellige.codecs.cast import OutOfRange, Rounding, cast, is_float, is_integer
from zellige.codecs.fields import Rule
from zellige.dtypes import DataType, from_json, parse_dtype
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray

_MAPS_KEPT = 64


def _read_type(value: JSON, field: str) -> JSON:
    """The type as metadata has it, which has fewer spellings than callers have."""
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

    For each value, `scalar_map` is asked first: {"encode": [[from, to], …], "decode": …}, in which NaN stands
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
        """The configuration for metadata."""
        return {**super().configuration(), "data_type": self.target.to_json()}

    @property
    def target(self) -> DataType:
        """The type of the encoded chunk."""
        try:
            return parse_dtype(self.data_type)
        except MetadataError as error:
            raise _inside(error, "configuration.data_type") from error

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The other type, with the fill value in it, which must come back when decoded."""
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
        """The numbers in the other type."""
        return self._convert(chunk, spec.dtype, self.target, "encode")

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The numbers in the chunk's own type, by the same rules."""
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
    """The pairs of a map as values of their types."""
    pairs = []
    for i, (key, value) in enumerate(json.loads(entries)):
        try:
            pairs.append((source.read_fill(key), target.read_fill(value)))
        except MetadataError as error:
            raise _inside(error, f"configuration.scalar_map.{way}[{i}]") from error
    return pairs


def _inside(error: MetadataError, field: str) -> MetadataError:
    """The same error with its place in the codec's configuration."""
    return type(error)(f"codec 'cast_value': {error}", field=field)


def _matches(values: AnyArray, value: AnyArray) -> AnyArray:
    """Where values equal a value; NaN equals NaN."""
    same = values == value
    return np.asarray(same | (np.isnan(values) & np.isnan(value)) if is_float(values.dtype) else same)
