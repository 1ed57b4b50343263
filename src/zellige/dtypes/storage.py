"""Elements as bytes where that takes more than numpy's own byte order.

numpy cannot swap the bytes of types that are not its own, the bits above a 4-bit number mean nothing, and
not every byte is a bool or every 32 bits a character.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from zellige.errors import CodecError
from zellige.types import AnyArray, Buffer, Shape

Endian = Literal["little", "big"] | None

_LAST_CHARACTER = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Storage:
    """What the `bytes` codec must know of such a type."""

    carrier: np.dtype[Any]
    """Types of the same size in the same places, whose byte order numpy can change."""
    masks: tuple[tuple[int, int], ...] = ()
    """The places of bytes in which not all bits count, and those that do; others are ignored, and written as 0."""
    bools: tuple[int, ...] = ()
    """The places of bytes that must be 0 or 1."""
    texts: tuple[tuple[int, int], ...] = ()
    """The place and size in bytes of texts in UTF-32."""

    def is_plain(self, endian: Endian) -> bool:
        """Whether elements are stored in this byte order as they are in memory, with nothing to check."""
        return not (self.masks or self.bools or self.texts) and self._stored(endian) == self.carrier

    def encode(self, chunk: AnyArray, dtype: np.dtype[Any], endian: Endian) -> AnyArray:
        """The bytes of the elements in C order."""
        elements = np.asarray(chunk, dtype, order="C").reshape(-1).view(self.carrier)
        self._check_texts(elements)
        raw = elements.astype(self._stored(endian), copy=False).view(np.uint8)
        return self._masked(raw.reshape(-1, dtype.itemsize)).reshape(-1)

    def decode(self, raw: Buffer, shape: Shape, dtype: np.dtype[Any], endian: Endian) -> AnyArray:
        """The elements, which may be a view of `raw`; their number has been checked."""
        stored = self._masked(np.frombuffer(raw, np.uint8).reshape(-1, dtype.itemsize))
        for place in self.bools:
            if stored[:, place].max(initial=0) > 1:
                raise CodecError("bytes: a bool must be stored as 00 or 01")
        elements = np.ndarray(prod(shape), self._stored(endian), stored.data).astype(self.carrier, copy=False)
        self._check_texts(elements)
        return elements.view(dtype).reshape(shape)

    def _check_texts(self, elements: AnyArray) -> None:
        rows = elements.view(np.uint8).reshape(len(elements), self.carrier.itemsize) if self.texts else elements
        for place, size in self.texts:
            characters = np.ascontiguousarray(rows[:, place : place + size]).view(np.uint32)
            if (most := characters.max(initial=0)) > _LAST_CHARACTER:
                raise CodecError(f"bytes: {most:#x} is not a character of Unicode")

    def _masked(self, raw: AnyArray) -> AnyArray:
        """The bytes of elements, a row each, without the bits that do not count."""
        if self.masks:
            raw = raw.copy()
            for place, bits in self.masks:
                raw[:, place] &= bits
        return raw

    def _stored(self, endian: Endian) -> np.dtype[Any]:
        return self.carrier if endian is None else self.carrier.newbyteorder(endian)
