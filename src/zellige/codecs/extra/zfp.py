"""The `zfp` codec: floats and integers in blocks of four along each axis (spec: Extension codecs).

The stream has no header, unlike that of `numcodecs.zfpy`: the configuration says all that a reader needs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from zellige.codecs.base import ArrayBytesCodec, ArraySpec, integer, library, one_of, only_keys
from zellige.codecs.cast import is_integer, limits
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray, Buffer, Shape

_KEYS: dict[str, tuple[str, ...]] = {
    "reversible": (),
    "fixed_rate": ("rate",),
    "fixed_precision": ("precision",),
    "fixed_accuracy": ("tolerance",),
    "expert": ("minbits", "maxbits", "maxprec", "minexp"),
}
# The limits of the library, and of what its own header can say.
_MOST_PRECISION, _LEAST_EXPONENT, _REVERSIBLE = 64, -1074, -1075
_INTEGERS = {
    "precision": (0, 2**31 - 1),
    "minbits": (0, 2**15),
    "maxbits": (1, 2**32 - 1),
    "maxprec": (1, _MOST_PRECISION),
    "minexp": (-16495, 16272),
}
_MOST_RATE = 2**13


@dataclass(frozen=True, slots=True)
class ZfpCodec(ArrayBytesCodec):
    """Compresses blocks of numbers; `mode` says what may be lost.

    `reversible` loses nothing. `fixed_rate` spends `rate` bits on each value, `fixed_precision` keeps
    `precision` bits, and `fixed_accuracy` keeps floats within `tolerance`. `expert` sets the library's own
    limits; the zfpy package reads it, but writes it only where another mode says the same. All modes but
    `reversible` take finite floats, and integers of at most 30 bits, or 62, besides the sign.
    """

    mode: Literal["reversible", "fixed_rate", "fixed_precision", "fixed_accuracy", "expert"]
    rate: float | None = None
    precision: int | None = None
    tolerance: float | None = None
    minbits: int | None = None
    maxbits: int | None = None
    maxprec: int | None = None
    minexp: int | None = None

    name: ClassVar[str] = "zfp"

    def __post_init__(self) -> None:
        one_of(self.name, {"mode": self.mode}, "mode", tuple(_KEYS))
        found = self.configuration()
        only_keys(self.name, found, "mode", *_KEYS[self.mode])
        for key in _KEYS[self.mode]:
            if key in _INTEGERS:
                integer(self.name, found, key, *_INTEGERS[key])
            else:
                _check_number(found, key)
        if self.mode == "expert" and found["minbits"] > found["maxbits"]:
            raise MetadataError(
                f"codec 'zfp': minbits {self.minbits} is greater than maxbits {self.maxbits}",
                field="configuration.minbits",
            )

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration."""
        mode = one_of(cls.name, configuration, "mode", tuple(_KEYS))
        only_keys(cls.name, configuration, "mode", *_KEYS[mode])
        return cls(**configuration)

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document: the mode and what belongs to it."""
        keys = ("mode", *(key for keys in _KEYS.values() for key in keys))
        return {key: value for key in keys if (value := getattr(self, key)) is not None}

    def check(self, spec: ArraySpec) -> None:
        """Refuse types and shapes that the library does not take."""
        field = _field(spec)
        if self.mode == "fixed_accuracy" and field.dtype.kind == "i":
            raise MetadataError(
                f"codec 'zfp': fixed_accuracy is for floats, not {spec.dtype.name}; use fixed_precision",
                field="configuration.mode",
            )
        if self.mode != "expert":
            return
        found = self._limits(field)
        if found.maxbits < (least := field.opening_bits(found)):
            raise MetadataError(
                f"codec 'zfp': maxbits must be at least {least} for {spec.dtype.name}, found {found.maxbits}",
                field="configuration.maxbits",
            )
        if max(field.shape) > 1 << field.size_bits:
            raise MetadataError(
                f"codec 'zfp': a chunk of shape {spec.shape} is too long for zfpy to read in expert mode",
                field="configuration.mode",
            )

    def encoded_size(self, spec: ArraySpec) -> int | None:
        """The exact size if every block has as many bits."""
        field = _field(spec)
        found = self._limits(field)
        return field.stream_size(found) if found.minbits == found.maxbits else None

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """The stream; raises `CodecError` for values that zfp would spoil."""
        field = _field(spec)
        found = self._limits(field)
        arguments = _arguments(found, field)
        if arguments is None:
            raise CodecError(f"zfp: zfpy cannot write expert mode {self.configuration()}; choose another mode")
        values = _promoted(np.asarray(chunk, spec.dtype.numpy, order="C").reshape(field.shape), field.dtype)
        if found.minexp != _REVERSIBLE:
            _check_lossy(values)
        raw: bytes = _zfpy().compress_numpy(values, write_header=False, **arguments)
        return raw

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """The values."""
        field = _field(spec)
        found = self._limits(field)
        most, exact = field.stream_size(found), found.minbits == found.maxbits
        if len(raw) > most or (exact and len(raw) != most):
            raise CodecError(f"zfp: {'' if exact else 'at most '}{most} bytes expected, {len(raw)} found")
        values = read_stream(raw, most, lambda stream: _decompressed(stream, found, field))
        return _demoted(values, spec.dtype.numpy).reshape(spec.shape)

    def _limits(self, field: _Field) -> _Limits:
        """The mode as limits of the library."""
        given = self.configuration()
        free = _Limits(1, field.most_bits, _MOST_PRECISION, _LEAST_EXPONENT)
        if self.mode == "fixed_rate":
            bits = max(math.floor(given["rate"] * field.values + 0.5), field.opening_bits(free), 1)
            return free._replace(minbits=bits, maxbits=bits)
        if self.mode == "fixed_precision":
            return free._replace(maxprec=min(given["precision"] or _MOST_PRECISION, _MOST_PRECISION))
        if self.mode == "fixed_accuracy":
            tolerance = given["tolerance"]
            return free._replace(minexp=math.frexp(tolerance)[1] - 1 if tolerance else _LEAST_EXPONENT)
        if self.mode == "expert":
            minbits, maxbits, maxprec, minexp = (given[key] for key in _KEYS["expert"])
            return _Limits(max(minbits, 1), maxbits, maxprec, max(minexp, _REVERSIBLE))
        return free._replace(minexp=_REVERSIBLE)


def _check_number(configuration: Mapping[str, JSON], key: str) -> None:
    value: Any = configuration.get(key)
    low, high = (5e-324, _MOST_RATE) if key == "rate" else (0, sys.float_info.max)
    if type(value) not in (int, float) or not low <= value <= high:
        raise MetadataError(
            f"codec 'zfp': {key} must be a number {'above' if low else 'from'} 0, up to {high}, found {value!r}",
            field=f"configuration.{key}",
        )


def _zfpy() -> Any:
    return library("zfp", "zfpy", "'zellige[zfp]'")


# -- fields and limits ----------------------------------------------------------------------------


class _Limits(NamedTuple):
    """What the library is told about each block of values."""

    minbits: int
    maxbits: int
    maxprec: int
    minexp: int


# The number of each type in the library, and the bits that begin a block, lossy and reversible.
_TYPES = {"int32": (1, 0, 5), "int64": (2, 0, 6), "float32": (3, 9, 15), "float64": (4, 12, 19)}


class _Field(NamedTuple):
    """A chunk as the library sees it."""

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def values(self) -> int:
        """The number of values in a block."""
        return 1 << 2 * len(self.shape)

    @property
    def size_bits(self) -> int:
        """How many bits the header has for the size of an axis."""
        return 48 // len(self.shape)

    @property
    def most_bits(self) -> int:
        """The most bits that any mode can spend on a block."""
        return _TYPES[self.dtype.name][2] + self.values - 1 + self.values * 8 * self.dtype.itemsize

    def opening_bits(self, found: _Limits) -> int:
        """The bits that a block needs for its exponent and the like."""
        return _TYPES[self.dtype.name][1 + (found.minexp == _REVERSIBLE)]

    def stream_size(self, found: _Limits) -> int:
        """The most bytes that a stream can have; it ends with a whole word of 64 bits."""
        planes = self.values * min(found.maxprec, 8 * self.dtype.itemsize)
        bits = max(min(self.opening_bits(found) + self.values - 1 + planes, found.maxbits), found.minbits)
        return 8 * -(-prod(-(-size // 4) for size in self.shape) * bits // 64)


def _field(spec: ArraySpec) -> _Field:
    """The chunk as the library sees it; a single value is an axis of one."""
    dtype = _work_dtype(spec.dtype.numpy)
    if dtype is None:
        raise MetadataError(f"codec 'zfp': {spec.dtype.name} cannot be compressed", field="configuration")
    if len(spec.shape) > 4 or 0 in spec.shape:
        raise MetadataError(
            f"codec 'zfp': a chunk must have at most 4 axes, none empty, not the shape {spec.shape}; "
            "drop axes with 'reshape'",
            field="configuration",
        )
    return _Field(spec.shape or (1,), dtype)


# -- the library ----------------------------------------------------------------------------------


def _arguments(found: _Limits, field: _Field) -> dict[str, float] | None:
    """The arguments of zfpy for these limits, or None if it has none.

    The rate is that of the bits which the library settles on: zfpy forgets the type when it writes, and would
    spend fewer bits on a block than a float's exponent has.
    """
    free = found.minbits == 1 and found.maxbits >= field.most_bits
    precise = found.maxprec == _MOST_PRECISION
    if found.minbits == found.maxbits and precise and found.minexp == _LEAST_EXPONENT:
        return {"rate": found.minbits / field.values}
    if free and found.minexp == _LEAST_EXPONENT:
        return {"precision": found.maxprec}
    if free and precise and found.minexp == _REVERSIBLE:
        return {}
    if free and precise and found.minexp < 1024:
        return {"tolerance": math.ldexp(1.0, found.minexp)}
    return None


def read_stream(raw: Buffer, most: int, decompress: Callable[[bytes], AnyArray]) -> AnyArray:
    """What a stream of at most so many bytes holds; raises `CodecError` if it is cut short.

    zfp neither checks where its input ends nor says how far it has read. So the stream is made as long as any can
    be, with a word to read ahead. Unless that is its own length, it is read twice: what follows must not matter.
    """
    size = most + 16
    values = decompress(bytes(raw).ljust(size, b"\0"))
    if len(raw) < most:
        again = decompress(bytes(raw).ljust(size, b"\xff"))
        if not np.array_equal(values.reshape(-1).view(np.uint8), again.reshape(-1).view(np.uint8)):
            raise CodecError(f"zfp: the stream of {len(raw)} bytes is cut short")
    return values


def _decompressed(stream: bytes, found: _Limits, field: _Field) -> AnyArray:
    arguments, number = _arguments(found, field), _TYPES[field.dtype.name][0]
    if arguments is None:
        return np.asarray(_zfpy().decompress_numpy(_with_header(stream, found, field)))
    values = np.empty(field.shape, field.dtype)
    _zfpy()._decompress(stream, number, field.shape, out=values, **arguments)
    return values


def _with_header(stream: bytes, found: _Limits, field: _Field) -> bytes:
    """The stream after a header of 148 bits, which is the only way to tell zfpy all the limits."""
    sizes = 0
    for size in field.shape:
        sizes = (sizes << field.size_bits) + size - 1
    meta = (sizes << 4) + ((len(field.shape) - 1) << 2) + _TYPES[field.dtype.name][0] - 1
    mode = found.minexp - _INTEGERS["minexp"][0]
    mode = (mode << 7) + found.maxprec - 1
    mode = (mode << 15) + min(found.maxbits, 2**15) - 1
    mode = (mode << 15) + found.minbits - 1
    mode = (mode << 12) + 0xFFF
    header = int.from_bytes(b"zfp\5", "little") + (meta << 32) + (mode << 84)
    return ((int.from_bytes(stream, "little") << 148) + header).to_bytes(len(stream) + 24, "little")


# -- types ----------------------------------------------------------------------------------------


def _work_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The type in which the library sees a type."""
    if dtype.kind in "mM":
        return np.dtype(np.int64)
    if is_integer(dtype):
        return np.dtype(np.int64 if dtype.itemsize == 8 else np.int32)
    if dtype.name in ("float16", "bfloat16", "float32"):
        return np.dtype(np.float32)
    return dtype if dtype.name == "float64" else None


def _promotion(dtype: np.dtype[Any]) -> tuple[int, int]:
    """What is subtracted from narrow integers, and how far they are then shifted, to fill 31 bits."""
    low, high = limits(dtype)
    bits = (high - low).bit_length()
    return (0 if low else 1 << (bits - 1), 31 - bits) if bits < 32 else (0, 0)


def _promoted(values: AnyArray, work: np.dtype[Any]) -> AnyArray:
    dtype = values.dtype
    if not is_integer(dtype):
        return values.view(work) if dtype.kind in "mM" else values.astype(work, copy=False)
    if dtype.kind == "u" and values.max() > limits(work)[1]:
        raise CodecError(f"zfp: {values.max()} is too large: {dtype.name} is stored as {work.name}")
    middle, shift = _promotion(dtype)
    return (values.astype(work) - middle) << shift if shift else values.astype(work, copy=False)


def _demoted(values: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    if dtype.kind in "mM":
        return values.view(dtype)
    if not is_integer(dtype):
        with np.errstate(over="ignore"):
            return values.astype(dtype, copy=False)
    middle, shift = _promotion(dtype)
    low, high = limits(dtype)
    if shift:
        values = ((values >> shift) + middle).clip(low, high)
    return (np.maximum(values, 0) if dtype.kind == "u" else values).astype(dtype, copy=False)


def _check_lossy(values: AnyArray) -> None:
    """Refuse what would spoil the other values of its block."""
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise CodecError("zfp: NaN and infinities can only be stored in mode 'reversible'")
        return
    most = 1 << (8 * values.dtype.itemsize - 2)
    if values.min() < -most or values.max() > most:
        raise CodecError(f"zfp: integers beyond ±{most} can only be stored in mode 'reversible'")
