"""The array-to-array codecs of numcodecs: `delta`, `fixedscaleoffset`, `quantize`, `astype`, `packbits`, `bitround`.

They are a few numpy expressions each, written here so that they work in C order whatever the layout in
memory, in any byte order, and keep the shape. The values are those of numcodecs: `quantize` and `astype` lose a number
that does not fit the encoded type without an error, since it may be a fill value at the border.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArraySpec
from zellige.codecs.cast import limits
from zellige.codecs.numcodecs.base import KINDS, NumcodecsCodec, number_type, unsuitable
from zellige.dtypes import DataType, parse_dtype
from zellige.errors import CodecError, MetadataError
from zellige.types import AnyArray

_NUMBERS, _FLOATS, _SCALARS = "iufc", "f", "biufc"


@dataclass(frozen=True, slots=True)
class _Conversion(NumcodecsCodec, ArrayArrayCodec):
    """A codec from one declared type to another, element by element or along the flattened chunk."""

    _kinds: ClassVar[str]
    _keys: ClassVar[tuple[str, str]] = ("dtype", "astype")
    """The fields that name the decoded and the encoded type; None stands for the chunk's, and for the decoded."""

    def __post_init__(self) -> None:
        for key in self._keys:
            if getattr(self, key) is not None:
                self._type(key, self._kinds)

    def _types(self, spec: ArraySpec) -> tuple[DataType, DataType]:
        """The decoded and the encoded type, in native byte order."""
        if spec.dtype.numpy.kind not in self._kinds:
            raise unsuitable(self.name, f"{KINDS[self._kinds]} type", spec.dtype.name)
        before, after = self._keys
        decoded = self._declared(before, spec.dtype)
        if decoded.numpy != spec.dtype.numpy:
            raise MetadataError(
                f"codec {self.name!r}: {before} is {getattr(self, before)!r}, the chunk has {spec.dtype.name}",
                field=f"configuration.{before}",
            )
        encoded = self._declared(after, decoded)
        if decoded.numpy.kind == "c" != encoded.numpy.kind:
            raise MetadataError(
                f"codec {self.name!r}: {after} {encoded.name} would drop the imaginary part of {decoded.name}",
                field=f"configuration.{after}",
            )
        return decoded, encoded

    def _declared(self, key: str, default: DataType) -> DataType:
        value = getattr(self, key)
        return default if value is None else number_type(self.name, key, value, self._kinds)

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The same shape with the encoded type; the fill value is encoded like a chunk of one element."""
        decoded, encoded = self._types(spec)
        try:
            with np.errstate(all="ignore"):
                fill = self._encoded(_vector(spec.fill, decoded), encoded.numpy)[0, ...]
        except OverflowError as error:  # a Python integer that the type cannot hold
            raise MetadataError(
                f"codec {self.name!r}: {spec.dtype.name} cannot hold its parameters: {error}", field="configuration"
            ) from error
        fill.flags.writeable = False
        return ArraySpec(spec.shape, encoded, fill)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The encoded chunk, of the same shape."""
        decoded, encoded = self._types(spec)
        with np.errstate(all="ignore"):
            return self._encoded(_vector(chunk, decoded), encoded.numpy).reshape(chunk.shape)

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The chunk, as far as the encoded type could hold it."""
        decoded, encoded = self._types(spec)
        with np.errstate(all="ignore"):
            return self._decoded(_vector(chunk, encoded), decoded.numpy).reshape(chunk.shape)

    @abstractmethod
    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        """A chunk of the decoded type as one of `dtype`."""

    @abstractmethod
    def _decoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        """A chunk of the encoded type as one of `dtype`."""


def _vector(chunk: AnyArray, dtype: DataType) -> AnyArray:
    """The chunk in native byte order with at least one axis: of none, numpy's results are scalars."""
    return np.atleast_1d(np.asarray(chunk, dtype.numpy))


@dataclass(frozen=True, slots=True)
class Delta(_Conversion):
    """The first element, then the difference of each element from the one before, in C order.

    Integers that do not fit `astype` raise `CodecError`: they would spoil all elements after them.
    """

    dtype: str
    astype: str | None = None

    name: ClassVar[str] = "numcodecs.delta"
    _kinds: ClassVar[str] = _NUMBERS

    def __post_init__(self) -> None:
        self._type("dtype", self._kinds)  # numcodecs has no default for it
        _Conversion.__post_init__(self)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The differences, of the same shape."""
        encoded = _Conversion.encode(self, chunk, spec)
        integers = {encoded.dtype.kind, spec.dtype.numpy.kind} <= {"i", "u"}
        narrow = encoded.dtype.itemsize < spec.dtype.numpy.itemsize  # else it holds what wrapped around
        if integers and narrow and not np.array_equal(self.decode(encoded, spec), chunk):
            raise CodecError(
                f"{self.name}: there are differences that {encoded.dtype} cannot hold; give a wider astype"
            )
        return encoded

    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        flat = chunk.reshape(-1)
        out = np.empty(flat.shape, dtype)
        out[:1] = flat[:1]
        out[1:] = np.diff(flat)
        return out

    def _decoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        flat = chunk.reshape(-1)
        if dtype.kind in "iu":
            # Summed in the decoded type, where integers wrap around just as the differences did. By itself
            # numpy would sum uint64 into a signed type by way of floats.
            flat = flat.astype(dtype, copy=False)
        return np.cumsum(flat, out=np.empty(flat.shape, dtype))


@dataclass(frozen=True, slots=True)
class FixedScaleOffset(_Conversion):
    """`(x - offset) * scale`, rounded half to even.

    Floats that integers cannot hold raise `CodecError`, unless they are the fill value, which may lie at the border.
    """

    offset: float
    scale: float
    dtype: str | None = None
    astype: str | None = None

    name: ClassVar[str] = "numcodecs.fixedscaleoffset"
    _kinds: ClassVar[str] = _NUMBERS

    def __post_init__(self) -> None:
        self._number("offset")
        self._number("scale")
        if self.scale == 0:
            raise self._bad("scale", "other than 0")
        _Conversion.__post_init__(self)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The encoded chunk, of the same shape."""
        decoded, encoded = self._types(spec)
        if decoded.numpy.kind == "f" and encoded.numpy.kind in "iu":
            with np.errstate(all="ignore"):
                values = _vector(chunk, decoded)
                self._check(values, self._scaled(values).astype(np.float64), spec.fill, encoded.numpy)
        return _Conversion.encode(self, chunk, spec)

    def _check(self, values: AnyArray, scaled: AnyArray, fill: AnyArray, dtype: np.dtype[Any]) -> None:
        low, high = limits(dtype)
        # Floats next to the ends of 64 bits lie beyond them: the first that is too great is a power of two.
        lost = ~((scaled >= low) & (scaled < float(high) + 1 if high > 1 << 53 else scaled <= high))
        lost &= ~((values == fill) | (np.isnan(values) & np.isnan(fill)))
        if lost.any():
            value = values[lost][0]
            raise CodecError(
                f"{self.name}: {value} becomes {scaled[lost][0]}, beyond {dtype}, which is {low} to {high}; give a "
                "wider astype, or another scale or offset"
            )

    def _scaled(self, chunk: AnyArray) -> AnyArray:
        return np.around((chunk - self.offset) * self.scale)

    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        return self._scaled(chunk).astype(dtype, copy=False)

    def _decoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        return (chunk / self.scale + self.offset).astype(dtype, copy=False)


@dataclass(frozen=True, slots=True)
class Quantize(_Conversion):
    """Floats rounded to as many binary places as `digits` decimal ones need; decoding only casts."""

    digits: int
    dtype: str | None = None
    astype: str | None = None

    name: ClassVar[str] = "numcodecs.quantize"
    _kinds: ClassVar[str] = _FLOATS

    def __post_init__(self) -> None:
        self._integer("digits", -300, 300)  # beyond, the scale is no float64
        _Conversion.__post_init__(self)

    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        scale = 2.0 ** math.ceil(math.log2(10.0**self.digits))
        return (np.around(scale * chunk) / scale).astype(dtype, copy=False)

    def _decoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        return chunk.astype(dtype, copy=False)


@dataclass(frozen=True, slots=True)
class AsType(_Conversion):
    """A cast to `encode_dtype`, and back to `decode_dtype`."""

    encode_dtype: str
    decode_dtype: str | None = None

    name: ClassVar[str] = "numcodecs.astype"
    _kinds: ClassVar[str] = _SCALARS
    _keys: ClassVar[tuple[str, str]] = ("decode_dtype", "encode_dtype")

    def __post_init__(self) -> None:
        self._type("encode_dtype", self._kinds)
        _Conversion.__post_init__(self)

    def _encoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        return chunk.astype(dtype, copy=False)

    def _decoded(self, chunk: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        return chunk.astype(dtype, copy=False)


@dataclass(frozen=True, slots=True)
class PackBits(NumcodecsCodec, ArrayArrayCodec):
    """Bools as bits, most significant first, after a byte that counts the bits of padding.

    The encoded chunk has one axis, and no element of it stands for one of the chunk: its fill value is 0.
    """

    name: ClassVar[str] = "numcodecs.packbits"

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """One axis of bytes."""
        if spec.dtype.numpy.kind != "b":
            raise unsuitable(self.name, "bool", spec.dtype.name)
        dtype = parse_dtype("uint8")
        return ArraySpec((1 + -(-prod(spec.shape) // 8),), dtype, dtype.cast_fill(0))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The count of padding and the bits."""
        padding = np.array([-chunk.size % 8], np.uint8)
        return np.concatenate((padding, np.packbits(chunk.reshape(-1))))

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The bools; raises `CodecError` if the padding is not that of the shape."""
        size = prod(spec.shape)
        if chunk[0] != -size % 8:
            raise CodecError(f"{self.name}: {-size % 8} bits of padding expected, {chunk[0]} stated")
        return np.unpackbits(chunk[1:], count=size).view(np.bool_).reshape(spec.shape)


@dataclass(frozen=True, slots=True)
class BitRound(NumcodecsCodec, ArrayArrayCodec):
    """Floats with their mantissa rounded to `keepbits`, half to even; decoding changes nothing.

    NaNs stay as they are: rounding could turn them into other values, which numcodecs lets happen.
    """

    keepbits: int

    name: ClassVar[str] = "numcodecs.bitround"

    def __post_init__(self) -> None:
        self._integer("keepbits", 0, 52)

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The same shape and type."""
        if spec.dtype.numpy.kind != "f" or spec.dtype.numpy.isbuiltin != 1:  # ml_dtypes has one of this kind
            raise unsuitable(self.name, "floats", spec.dtype.name)
        if self.keepbits > np.finfo(spec.dtype.numpy).nmant:
            raise self._bad("keepbits", f"at most {np.finfo(spec.dtype.numpy).nmant} for {spec.dtype.name}")
        fill = self.encode(spec.fill.reshape(1), spec)[0, ...]
        fill.flags.writeable = False
        return replace(spec, fill=fill)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The rounded chunk."""
        floats = _vector(chunk, spec.dtype)
        drop = int(np.finfo(floats.dtype).nmant) - self.keepbits
        if drop == 0:
            return chunk
        bits = floats.view(f"u{floats.itemsize}")
        half = (1 << (drop - 1)) - 1  # and one more where the last bit that is kept is odd
        rounded = ((bits + ((bits >> drop) & 1) + half) >> drop) << drop
        return np.where(np.isnan(floats), floats, rounded.view(floats.dtype)).reshape(chunk.shape)

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The chunk as it is."""
        return chunk
