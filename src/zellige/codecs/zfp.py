"""The `zfp` codec: floats and integers in blocks of four along each axis (spec: Extension codecs).

The stream has no header, unlike that of `numcodecs.zfpy`: the configuration says all that a reader needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from zellige.codecs.base import ArrayBytesCodec, ArraySpec, library
from zellige.codecs.cast_value import is_integer
from zellige.codecs.fields import fields_of, integer, number
from zellige.dtypes.cast import limits
from zellige.errors import CodecError
from zellige.types import AnyArray, Buffer, Shape

_KEYS: dict[str, tuple[str, ...]] = {
    "reversible": (),
    "fixed_rate": ("rate",),
    "fixed_precision": ("precision",),
    "fixed_accuracy": ("tolerance",),
    "expert": ("minbits", "maxbits", "maxprec", "minexp"),
}
# The limits of the library, and of what its own header can say.
_MOST_PRECISION, _LEAST_EXPONENT, _REVERSIBLE, _MINEXP = 64, -1074, -1075, -16495
_MOST_BITS = 16658  # of a block: four axes of float64
# The number of each type in the library, and the bits that begin a block, lossy and reversible.
_TYPES = {"int32": (1, 0, 5), "int64": (2, 0, 6), "float32": (3, 9, 15), "float64": (4, 12, 19)}


@dataclass(frozen=True)
class ZfpCodec(ArrayBytesCodec):
    """Compresses blocks of numbers; `mode` says what may be lost.

    `reversible` loses nothing. `fixed_rate` spends `rate` bits on each value, `fixed_precision` keeps
    `precision` bits, and `fixed_accuracy` keeps floats within `tolerance`. `expert` sets the library's own
    limits; the zfpy package reads it, but writes it only where another mode says the same. All modes but
    `reversible` take finite floats, and integers of at most 30 bits, or 62, besides the sign.
    """

    mode: Literal["reversible", "fixed_rate", "fixed_precision", "fixed_accuracy", "expert"]
    rate: Annotated[float | None, number("a number above 0, up to 8192", 5e-324, 2**13)] = None
    precision: Annotated[int | None, integer(0, 2**31 - 1)] = None
    tolerance: Annotated[float | None, number("a finite number from 0", 0)] = None
    minbits: Annotated[int | None, integer(0, 2**15)] = None
    maxbits: Annotated[int | None, integer(1, 2**32 - 1)] = None
    maxprec: Annotated[int | None, integer(1, _MOST_PRECISION)] = None
    minexp: Annotated[int | None, integer(_MINEXP, 16272)] = None

    name: ClassVar[str] = "zfp"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in fields_of(ZfpCodec)[1:]:
            key, value = field.key, getattr(self, field.key)
            if value is None and key in _KEYS[self.mode]:
                raise self._must_be(key, f"{field.rule.expected} in mode {self.mode!r}", "nothing")
            if value is not None and key not in _KEYS[self.mode]:
                raise self._must_be(key, f"left out in mode {self.mode!r}", repr(value))
        if self.mode == "expert" and (self.minbits or 0) > (self.maxbits or 0):
            raise self._wrong("minbits", f"minbits {self.minbits} is greater than maxbits {self.maxbits}")

    def check(self, spec: ArraySpec) -> None:
        """Refuse types and shapes that the library does not take."""
        stream = self._stream(spec)
        if self.mode == "fixed_accuracy" and stream.dtype.startswith("int"):
            raise self._wrong("mode", f"fixed_accuracy is for floats, not {spec.dtype.name}; use fixed_precision")
        if self.mode != "expert":
            return
        if stream.maxbits < stream.opening_bits:
            raise self._must_be("maxbits", f"at least {stream.opening_bits} for {spec.dtype.name}", stream.maxbits)
        if max(stream.shape) > 1 << stream.size_bits:
            raise self._wrong("mode", f"a chunk of shape {spec.shape} is too long for zfpy to read in expert mode")

    def encoded_size(self, spec: ArraySpec) -> int | None:
        """Return the exact size if every block has as many bits."""
        stream = self._stream(spec)
        return stream.size(stream.minbits) if stream.minbits == stream.maxbits else None

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """Return the stream; raises `CodecError` for values that zfp would spoil."""
        stream = self._stream(spec)
        arguments = stream.arguments()
        if arguments is None:
            raise CodecError(f"zfp: zfpy cannot write expert mode {self.configuration()}; choose another mode")
        chunk = np.asarray(chunk, spec.dtype.numpy, order="C").reshape(stream.shape)
        values = _promoted(chunk, np.dtype(stream.dtype))
        if stream.minexp != _REVERSIBLE:
            _check_lossy(values)
        raw: bytes = _zfpy().compress_numpy(values, write_header=False, **arguments)
        return raw

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return the values."""
        stream = self._stream(spec)
        most, exact = stream.size(stream.longest_block), stream.minbits == stream.maxbits
        if len(raw) > most or (exact and len(raw) != most):
            raise CodecError(f"zfp: {'' if exact else 'at most '}{most} bytes expected, {len(raw)} found")
        return _demoted(read_stream(raw, most, stream.decompressed), spec.dtype.numpy).reshape(spec.shape)

    def _stream(self, spec: ArraySpec) -> Stream:
        """Return the library's parameters for a chunk; a single value is an axis of one."""
        dtype = _work_dtype(spec.dtype.numpy)
        if dtype is None:
            raise self._refused(f"{spec.dtype.name} cannot be compressed")
        if len(spec.shape) > 4 or 0 in spec.shape:
            raise self._refused(
                f"a chunk must have at most 4 axes, none empty, not the shape {spec.shape}; drop axes with 'reshape'"
            )
        stream, given = Stream(spec.shape or (1,), dtype), self.configuration()
        if self.mode == "fixed_rate":
            bits = max(math.floor(given["rate"] * stream.values + 0.5), stream.opening_bits, 1)
            return stream._replace(minbits=bits, maxbits=bits)
        if self.mode == "fixed_precision":
            return stream._replace(maxprec=min(given["precision"] or _MOST_PRECISION, _MOST_PRECISION))
        if self.mode == "fixed_accuracy":
            tolerance = given["tolerance"]
            return stream._replace(minexp=math.frexp(tolerance)[1] - 1 if tolerance else _LEAST_EXPONENT)
        if self.mode == "expert":
            minbits, maxbits, maxprec, minexp = (given[key] for key in _KEYS["expert"])
            return Stream(stream.shape, dtype, max(minbits, 1), maxbits, maxprec, max(minexp, _REVERSIBLE))
        return stream._replace(minexp=_REVERSIBLE)


def _zfpy() -> Any:
    return library("zfp", "zfpy", "'zellige[zfp]'")


# -- streams --------------------------------------------------------------------------------------


class Stream(NamedTuple):
    """The library's parameters for a stream: its shape and type, and limits for each block of numbers."""

    shape: Shape
    dtype: str
    minbits: int = 1
    maxbits: int = _MOST_BITS
    maxprec: int = _MOST_PRECISION
    minexp: int = _LEAST_EXPONENT

    @property
    def values(self) -> int:
        """The number of values in a block."""
        return 1 << 2 * len(self.shape)

    @property
    def size_bits(self) -> int:
        """How many bits the header has for the size of an axis."""
        return 48 // len(self.shape)

    @property
    def opening_bits(self) -> int:
        """The bits that a block needs for its exponent and the like."""
        return _TYPES[self.dtype][1 + (self.minexp == _REVERSIBLE)]

    @property
    def longest_block(self) -> int:
        """The most bits of a block."""
        planes = self.values * min(self.maxprec, int(self.dtype[-2:]))
        return max(min(self.opening_bits + self.values - 1 + planes, self.maxbits), self.minbits)

    def size(self, block: int, header: int = 0) -> int:
        """Return the bytes of a stream whose blocks have so many bits; it ends with a whole word of 64."""
        blocks = prod(-(-size // 4) for size in self.shape)
        return 8 * -(-(header + blocks * block) // 64)

    def arguments(self) -> dict[str, float] | None:
        """Return the arguments of zfpy for these limits, or None if it has none.

        The rate is that of the bits which the library settles on: zfpy forgets the type when it writes, and would
        spend fewer bits on a block than a float's exponent has.
        """
        free = self.minbits == 1 and self.maxbits >= Stream(self.shape, self.dtype, minexp=_REVERSIBLE).longest_block
        precise = self.maxprec == _MOST_PRECISION
        if self.minbits == self.maxbits and precise and self.minexp == _LEAST_EXPONENT:
            return {"rate": self.minbits / self.values}
        if free and self.minexp == _LEAST_EXPONENT:
            return {"precision": self.maxprec}
        if free and precise and self.minexp == _REVERSIBLE:
            return {}
        if free and precise and self.minexp < 1024:
            return {"tolerance": math.ldexp(1.0, self.minexp)}
        return None

    def decompressed(self, raw: bytes) -> AnyArray:
        """Return the values of a stream without a header."""
        arguments = self.arguments()
        if arguments is None:
            return np.asarray(_zfpy().decompress_numpy(self._with_header(raw)))
        values = np.empty(self.shape, self.dtype)
        _zfpy()._decompress(raw, _TYPES[self.dtype][0], self.shape, out=values, **arguments)
        return values

    def _with_header(self, raw: bytes) -> bytes:
        """Return the stream after a header of 148 bits, which is the only way to pass all limits to zfpy."""
        sizes = 0
        for size in self.shape:
            sizes = (sizes << self.size_bits) + size - 1
        meta = (sizes << 4) + ((len(self.shape) - 1) << 2) + _TYPES[self.dtype][0] - 1
        mode = self.minexp - _MINEXP
        mode = (mode << 7) + self.maxprec - 1
        mode = (mode << 15) + min(self.maxbits, 2**15) - 1
        mode = (mode << 15) + self.minbits - 1
        mode = (mode << 12) + _LONG
        header = int.from_bytes(_MAGIC, "little") + (meta << 32) + (mode << 84)
        return ((int.from_bytes(raw, "little") << 148) + header).to_bytes(len(raw) + 24, "little")


_MAGIC = b"zfp\x05"
_LONG = 0xFFF  # in place of a mode of 12 bits: one of 64 follows


def read_header(raw: Buffer) -> tuple[Stream, int]:
    """Return what a header says, and its length in bits; `CodecError` for what the library would not survive."""
    if len(raw) < 16 or len(raw) % 8 or raw[:4] != _MAGIC:
        raise CodecError(f"zfp: there is no zfp stream in the {len(raw)} bytes")
    bits = int.from_bytes(raw[4:24], "little")
    dtype, rank, mode = list(_TYPES)[bits & 3], 1 + (bits >> 2 & 3), bits >> 52 & _LONG
    width = 48 // rank
    shape = tuple(1 + (bits >> (4 + axis * width) & ((1 << width) - 1)) for axis in reversed(range(rank)))
    # Blocks begin with an exponent. If there is no room for it, zfp loses count of the bits and the memory is gone.
    least, header = max(_TYPES[dtype][1], 1), 96
    if mode == _LONG:
        least, header = 64, 148  # blocks of fixed size that need the long form are far larger
        minbits, maxbits = 1 + (bits >> 64 & 0x7FFF), 1 + (bits >> 79 & 0x7FFF)
    else:
        minbits, maxbits = (mode + 1, mode + 1) if mode < 2048 else (1, _MOST_BITS)
    if maxbits < least:
        raise CodecError(f"zfp: blocks of {maxbits} bits are too small for {dtype}")
    return Stream(shape, dtype, minbits, maxbits, minexp=_REVERSIBLE), header


def read_stream(raw: Buffer, most: int, decompress: Callable[[bytes], AnyArray]) -> AnyArray:
    """Return what a stream of at most so many bytes holds; raises `CodecError` if it is cut short.

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


# -- types ----------------------------------------------------------------------------------------


def _work_dtype(dtype: np.dtype[Any]) -> str | None:
    """Return the type in which the library sees a type."""
    if dtype.kind in "mM" or (is_integer(dtype) and dtype.itemsize == 8):
        return "int64"
    if is_integer(dtype):
        return "int32"
    return {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}.get(dtype.name)


def _promotion(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return what is subtracted from narrow integers, and how far they are then shifted, to fill 31 bits."""
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
