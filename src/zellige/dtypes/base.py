"""`DataType`: what an element is: its name in metadata, its type in memory, its bytes, and its fill values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from zellige.dtypes.cast import as_values, is_complex, unmasked
from zellige.dtypes.fill import unfit
from zellige.errors import CodecError, MaskedValueError, MetadataError
from zellige.types import JSON, AnyArray, Buffer, Shape

Endian: TypeAlias = Literal["little", "big"] | None

MOST_BYTES = 2**31 - 1
"""The size of the largest element that numpy has."""


@dataclass(frozen=True, slots=True, repr=False)
class DataType:
    """A data type as metadata names it and as numpy holds it in memory.

    Each family of types is a class below this one: it reads and writes fill values in its own form.
    """

    name: str
    numpy: np.dtype[Any]
    configuration: dict[str, JSON] | None = field(default=None, hash=False)
    endian: bool = field(default=False, compare=False)
    """Whether elements have components of more than one byte, so that the byte order matters."""
    storage: Storage | None = field(default=None, compare=False)
    """How elements become bytes, if that is not simply numpy's memory."""

    codec: ClassVar[str] = "bytes"
    """The array-to-bytes codec that it needs; `bytes` for elements of one size."""

    @classmethod
    def of(cls, name: str, numpy: np.dtype[Any], configuration: dict[str, JSON] | None = None, **others: Any) -> Self:
        """Make a type of this family, with what follows from the type of numpy."""
        endian = any(leaf.itemsize > 1 and leaf.byteorder != "|" and not leaf.hasobject for leaf in leaves(numpy))
        return cls(name, numpy, configuration, endian, Storage.of(numpy), **others)

    def __repr__(self) -> str:
        facts = ("name", "numpy", "endian", "configuration", "codec")
        return f"DataType({', '.join(f'{fact}={getattr(self, fact)!r}' for fact in facts)})"

    def to_json(self) -> JSON:
        """Return the form for metadata: types without parameters are plain strings, which every reader knows."""
        return self.name if self.configuration is None else {"name": self.name, "configuration": self.configuration}

    def to_native_dtype(self) -> np.dtype[Any]:
        """Return the numpy type, in the byte order of this machine."""
        return self.numpy

    @property
    def item_size(self) -> int | None:
        """The bytes of one element; None if elements have any length."""
        return self.numpy.itemsize if self.codec == "bytes" else None

    @property
    def label(self) -> str:
        """The type for people: its name, or numpy's text for one with parameters."""
        return self.name if self.configuration is None else str(self.numpy)

    @property
    def zero(self) -> AnyArray:
        """The zero of the type, as `numpy.zeros` has it; the empty string or bytes."""
        return self.default() if self.numpy.hasobject else np.zeros((), self.numpy)

    # -- fill values, as 0-d arrays, which keep every bit -----------------------------------------

    def default(self) -> AnyArray:
        """Return the fill value of arrays that are created without one."""
        return np.zeros((), self.numpy)

    def read_fill(self, value: JSON) -> AnyArray:
        """Return a JSON fill value as a 0-d array, to the bit."""
        return self._checked(self._read(value), value)

    def write_fill(self, fill: AnyArray) -> JSON:
        """Return the JSON form of a fill value."""
        raise NotImplementedError

    def cast_fill(self, value: Any) -> AnyArray:
        """Return a user's fill value as a 0-d array; refuses a value that the type cannot hold."""
        try:
            value = unmasked(value) if isinstance(value, np.ndarray | list | tuple) else value
        except MaskedValueError as error:
            raise MetadataError("fill_value is masked; give a value, or leave it out", field="fill_value") from error
        if value is None:
            return read_only(self.default())
        if isinstance(value, np.ndarray | np.generic) and value.dtype == self.numpy and self.numpy.kind != "O":
            return self._checked(np.array(value, self.numpy), value)
        return self._checked(self._cast(value), value)

    def _checked(self, fill: AnyArray | None, value: Any) -> AnyArray:
        if fill is None or fill.ndim:
            raise unfit(value, self.numpy, f"expected {self._expected()}")
        return read_only(fill)

    def _expected(self) -> str:
        """Return what fill values are, for messages."""
        raise NotImplementedError

    def _read(self, value: JSON) -> AnyArray | None:
        """Return the fill value that a JSON value spells; None if it spells none."""
        raise NotImplementedError

    def _cast(self, value: Any) -> AnyArray | None:
        """Return the fill value that a user means; None if the type does not have it."""
        return self._element(value, self.numpy)

    def _element(self, value: Any, dtype: np.dtype[Any]) -> AnyArray | None:
        """Return a value as an element of a type, by the rules for elements."""
        try:
            found = as_values(value, dtype)
        except (TypeError, ValueError, OverflowError):
            return None
        return None if found.ndim else found


def read_only(fill: AnyArray) -> AnyArray:
    """Return the same array, which can no longer be changed."""
    fill.flags.writeable = False
    return fill


# -- elements as bytes ----------------------------------------------------------------------------

_BITS = re.compile(r"u?(?:int|float)([246])(?:_|$)")
"""The names of types that do not use all bits of a byte."""
_LAST_CHARACTER = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Storage:
    """How elements become bytes where that takes more than numpy's own byte order.

    numpy cannot swap the bytes of types that are not its own, the bits above a 4-bit number mean nothing, and not
    every byte is a bool or every 32 bits a character.
    """

    carrier: np.dtype[Any]
    """Types of the same size in the same places, whose byte order numpy can change."""
    is_partial: bool
    """Whether there are bits that do not count: they are ignored, and written as 0."""
    is_checked: bool
    """Whether there are bytes that mean nothing."""

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> Storage | None:
        """Return the storage of a type; None if numpy's memory is all there is, or for `bool`, which `bytes` knows."""
        carrier = _carrier(dtype)
        is_partial = any(_BITS.match(leaf.name) for leaf in leaves(dtype))
        is_checked = any(leaf.kind in "bU" for leaf in leaves(dtype)) and dtype.kind != "b"
        return cls(carrier, is_partial, is_checked) if is_partial or is_checked or carrier != dtype else None

    def is_plain(self, endian: Endian) -> bool:
        """Return whether elements are stored in this byte order as they are in memory, with nothing to check."""
        return not (self.is_partial or self.is_checked) and self._stored(endian) == self.carrier

    def encode(self, chunk: AnyArray, dtype: np.dtype[Any], endian: Endian) -> AnyArray:
        """Return the bytes of the elements in C order."""
        elements = np.asarray(chunk, dtype, order="C").reshape(-1).view(self.carrier)
        if self.is_checked:
            check_elements(elements)
        if self.is_partial:
            elements = elements.copy()
            _clear_bits(elements, dtype)
        return elements.astype(self._stored(endian), copy=False).view(np.uint8)

    def decode(self, raw: Buffer, shape: Shape, dtype: np.dtype[Any], endian: Endian) -> AnyArray:
        """Return the elements, which may be a view of `raw`; their number has been checked."""
        stored: AnyArray = np.ndarray(prod(shape), self._stored(endian), raw)
        if self.is_checked:
            check_elements(stored)
        elements = stored.astype(self.carrier, copy=self.is_partial)
        if self.is_partial:
            _clear_bits(elements, dtype)
        return elements.view(dtype).reshape(shape)

    def _stored(self, endian: Endian) -> np.dtype[Any]:
        return self.carrier if endian is None else self.carrier.newbyteorder(endian)


def leaves(dtype: np.dtype[Any]) -> Iterator[np.dtype[Any]]:
    """Yield the types without fields that a type is made of."""
    if dtype.subdtype is not None:
        yield from leaves(dtype.subdtype[0])
    elif dtype.names is None:
        yield dtype
    else:
        for name in dtype.names:
            yield from leaves(dtype[name])


def _carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.names is not None:
        return np.dtype([(name, _carrier(dtype[name])) for name in dtype.names])
    if dtype.isbuiltin != 2:
        return dtype
    return np.dtype("u2,u2" if is_complex(dtype) else f"u{dtype.itemsize}")


def _clear_bits(elements: AnyArray, dtype: np.dtype[Any]) -> None:
    """Set the bits that do not count to 0, in place."""
    if dtype.names is not None:
        for name in dtype.names:
            _clear_bits(elements[name], dtype[name])
    elif bits := _BITS.match(dtype.name):
        np.bitwise_and(elements, (1 << int(bits[1])) - 1, out=elements)


def check_elements(elements: AnyArray) -> None:
    """Raise `CodecError` for a bool that is neither 0 nor 1, and for a character that Unicode does not have."""
    dtype = elements.dtype
    if dtype.names is not None:
        for name in dtype.names:
            check_elements(elements[name])
    elif dtype.kind == "b" and elements.view(np.uint8).max(initial=0) > 1:
        raise CodecError("bytes: a bool must be stored as 00 or 01")
    elif dtype.kind == "U":
        characters = np.ascontiguousarray(elements).reshape(-1).view(f"{dtype.byteorder}u4")
        if (most := int(characters.max(initial=0))) > _LAST_CHARACTER:
            raise CodecError(f"bytes: {most:#x} is not a character of Unicode")
