"""`vlen-utf8` and `vlen-bytes`: elements of any length (spec 7.2).

A chunk is the number of its elements and, for each, its length in bytes and the bytes; all numbers are
u32 little-endian. numcodecs walks along the lengths; what it does not check is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from zellige.codecs.base import ArrayBytesCodec, ArraySpec, library, variable_limit
from zellige.errors import CodecError, MetadataError
from zellige.types import AnyArray, Buffer

_WORD = 4  # bytes of a number


@dataclass(frozen=True)
class VLenCodec(ArrayBytesCodec):
    """Elements of any length, each after its length."""

    name: ClassVar[str]
    types: ClassVar[tuple[str, ...]]
    """The data types that the codec takes."""

    def check(self, spec: ArraySpec) -> None:
        """Refuse types that do not suit the codec."""
        if spec.dtype.name not in self.types:
            raise MetadataError(
                f"codec {self.name!r} is for {' and '.join(self.types)}, not for {spec.dtype.name}; "
                f"use {spec.dtype.codec!r}",
                field="name",
            )

    def encoded_bound(self, spec: ArraySpec) -> int:
        """Return the most that is written."""
        return variable_limit()

    def is_variable(self, spec: ArraySpec) -> bool:
        """Return True."""
        return True

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """Return what the lengths come to, if all of them are there."""
        view, most, count = memoryview(head), variable_limit(), prod(spec.shape)
        found = int.from_bytes(view[:_WORD], "little")
        if len(view) >= _WORD and found != count:
            raise CodecError(f"{self.name}: {count} elements expected, {found} found")
        end = _WORD
        for _ in range(count):
            if end + _WORD > len(view):
                if end > most:
                    raise CodecError(
                        f"{self.name}: elements of {end} bytes and more are beyond {most}; "
                        "raise the setting codecs.max_variable_chunk_bytes to read them"
                    )
                return most
            end += _WORD + int.from_bytes(view[end : end + _WORD], "little")
        return min(end, most)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """Return the number of elements, then each with its length."""
        # A copy, because numcodecs takes no array that is read-only.
        raw: Buffer = self._coder(spec).encode(np.array(chunk, object, order="C").reshape(-1))
        if len(raw) > (most := variable_limit()):
            raise CodecError(
                f"{self.name}: {len(raw)} bytes are more than {most}; "
                "use smaller chunks, or raise the setting codecs.max_variable_chunk_bytes"
            )
        return raw

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return the elements; the bytes must be these and no others."""
        expected, found = prod(spec.shape), int.from_bytes(raw[:_WORD], "little")
        if len(raw) < _WORD or found != expected:
            raise CodecError(f"{self.name}: {expected} elements expected, {found} found in {len(raw)} bytes")
        if len(raw) < _WORD * (1 + expected):  # before memory is taken for as many as the bytes say
            raise CodecError(f"{self.name}: {len(raw)} bytes cannot hold the lengths of {expected} elements")
        try:
            items: AnyArray = self._coder(spec).decode(raw)
        except UnicodeDecodeError as error:
            raise CodecError(f"{self.name}: an element is not UTF-8: {error}") from error
        except ValueError as error:
            raise CodecError(f"{self.name}: the bytes end too early") from error
        used = _WORD * (1 + expected) + self._content_size(items.tolist())
        if used != len(raw):
            raise CodecError(f"{self.name}: {used} bytes expected, {len(raw)} found")
        return items.astype(spec.dtype.numpy, copy=False).reshape(spec.shape)

    def _coder(self, spec: ArraySpec) -> Any:
        """Return what walks along the lengths, in C."""
        module = library(spec.dtype.codec, "numcodecs.vlen", "numcodecs")
        return module.VLenUTF8() if spec.dtype.codec == "vlen-utf8" else module.VLenBytes()

    def _content_size(self, items: list[Any]) -> int:
        """Return how many bytes elements take without their lengths."""
        if not isinstance(items[0], str):
            return sum(map(len, items))
        return len("".join(items).encode())


class VLenUTF8Codec(VLenCodec):
    """Strings as UTF-8."""

    name: ClassVar[str] = "vlen-utf8"
    types: ClassVar[tuple[str, ...]] = ("string",)


class VLenBytesCodec(VLenCodec):
    """Bytes."""

    name: ClassVar[str] = "vlen-bytes"
    types: ClassVar[tuple[str, ...]] = ("bytes",)


class VLenV2Codec(VLenCodec):
    """Either of them, under the one name that zarrs has for both."""

    name: ClassVar[str] = "zarrs.vlen_v2"
    types: ClassVar[tuple[str, ...]] = ("string", "bytes")
