"""From bytes to bytes: `zlib`, `bz2` and `lzma`, by the standard library.

Its decompressor objects, other than the functions that numcodecs uses, stop at a given length and tell
whether the stream was whole.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from zellige.codecs.base import BytesBytesCodec
from zellige.codecs.numcodecs.base import NumcodecsCodec, standard
from zellige.errors import CodecError
from zellige.types import Buffer


@dataclass(frozen=True, slots=True)
class _Stream(NumcodecsCodec, BytesBytesCodec):
    """A compressor of the standard library: one stream, nothing after it."""

    _module: ClassVar[str]
    _errors: ClassVar[tuple[str, ...]] = ()
    """The module's own exceptions."""

    @abstractmethod
    def _compress(self, raw: Buffer) -> bytes:
        """One stream."""

    @abstractmethod
    def _decoder(self) -> Any:
        """An object with `decompress(raw, most)`, `eof` and `unused_data`."""

    def _failures(self) -> tuple[type[Exception], ...]:
        """What the module raises for damaged bytes or for parameters that do not go together."""
        own = tuple(getattr(standard(self._module), name) for name in self._errors)
        return (*own, OSError, EOFError, ValueError, OverflowError)

    def encoded_bound(self, nbytes: int) -> int:
        """Generous: other writers may store their blocks otherwise."""
        return 2 * nbytes + 4096

    def encode(self, raw: Buffer) -> bytes:
        """One stream."""
        try:
            return self._compress(raw)
        except self._failures() as error:
            raise CodecError(f"{self.name}: {error}") from error

    def decode(self, raw: Buffer, limit: int) -> bytes:
        """The content of the one stream."""
        try:
            decoder = self._decoder()
            # One byte more than is allowed: then the stream can reach its end, and an overrun shows.
            content: bytes = decoder.decompress(raw, min(limit + 1, sys.maxsize))
        except self._failures() as error:
            raise CodecError(f"{self.name}: the bytes are damaged: {error}") from error
        if len(content) > limit:
            raise CodecError(f"{self.name}: the content is longer than the {limit} bytes expected")
        if not decoder.eof:
            raise CodecError(f"{self.name}: the bytes end too early")
        if decoder.unused_data:
            raise CodecError(f"{self.name}: {len(decoder.unused_data)} bytes are left over")
        return content

    def head(self, raw: Buffer, most: int) -> bytes:
        """What the content begins with."""
        try:
            decoder = self._decoder()
            found: bytes = decoder.decompress(raw, most)
        except self._failures() as error:
            raise CodecError(f"{self.name}: the bytes are damaged: {error}") from error
        if decoder.unused_data:
            raise CodecError(f"{self.name}: {len(decoder.unused_data)} bytes are left over")
        return found


@dataclass(frozen=True, slots=True)
class Zlib(_Stream):
    """A zlib stream (RFC 1950)."""

    level: int = 1

    name: ClassVar[str] = "numcodecs.zlib"
    _module: ClassVar[str] = "zlib"
    _errors: ClassVar[tuple[str, ...]] = ("error",)

    def __post_init__(self) -> None:
        self._integer("level", -1, 9)

    def _compress(self, raw: Buffer) -> bytes:
        stream: bytes = standard("zlib").compress(raw, self.level)
        return stream

    def _decoder(self) -> Any:
        return standard("zlib").decompressobj()


@dataclass(frozen=True, slots=True)
class BZ2(_Stream):
    """A bzip2 stream."""

    level: int = 1

    name: ClassVar[str] = "numcodecs.bz2"
    _module: ClassVar[str] = "bz2"

    def __post_init__(self) -> None:
        self._integer("level", 1, 9)

    def _compress(self, raw: Buffer) -> bytes:
        stream: bytes = standard("bz2").compress(raw, self.level)
        return stream

    def _decoder(self) -> Any:
        return standard("bz2").BZ2Decompressor()


_XZ, _ALONE, _RAW = 1, 2, 3
_CHECKS = -1, 0, 1, 4, 10
_EXTREME = 1 << 31
_FILTERS = 3, 4, 5, 6, 7, 8, 9, 33, 0x4000000000000001
_OPTIONS = ("preset", "dict_size", "lc", "lp", "pb", "mode", "nice_len", "mf", "depth", "dist", "start_offset")
_MAX_DICT = 128 << 20  # twice what preset 9 uses; a larger one is only a way to make readers allocate
_MEMORY = _MAX_DICT + (8 << 20)


@dataclass(frozen=True, slots=True)
class LZMA(_Stream):
    """An LZMA stream, with the numbers of the `lzma` module.

    `format` is 1 (xz), 2 (the older .lzma) or 3 (raw, which needs `filters`); `check` is for xz only; either
    `preset` or `filters` says how to compress.
    """

    format: int = _XZ
    check: int = -1
    preset: int | None = None
    filters: Sequence[Mapping[str, int]] | None = field(default=None, hash=False)

    name: ClassVar[str] = "numcodecs.lzma"
    _module: ClassVar[str] = "lzma"
    _errors: ClassVar[tuple[str, ...]] = ("LZMAError",)

    def __post_init__(self) -> None:
        self._integer("format", _XZ, _RAW)
        if type(self.check) is not int or self.check not in (_CHECKS if self.format == _XZ else _CHECKS[:2]):
            raise self._bad("check", "-1, 0, 1, 4 or 10, and -1 or 0 without xz")
        if self.preset is not None:
            self._check_preset(self.preset)
        if self.filters is not None or self.format == _RAW:
            self._check_filters(self.filters)

    def _check_preset(self, preset: object) -> None:
        if type(preset) is not int or preset & ~_EXTREME not in range(10) or preset < 0:
            raise self._bad("preset", "from 0 to 9, or 2**31 more for the extreme ones")
        if self.filters is not None:
            raise self._bad("preset", "missing where there are filters")

    def _check_filters(self, filters: object) -> None:
        if not isinstance(filters, list | tuple) or not filters or not all(map(_is_filter, filters)):
            raise self._bad(
                "filters", f"a list of filters as {{'id': 33, 'preset': 6}}, with dict_size up to {_MAX_DICT}"
            )

    def _compress(self, raw: Buffer) -> bytes:
        stream: bytes = standard("lzma").compress(
            raw, format=self.format, check=self.check, preset=self.preset, filters=self.filters
        )
        return stream

    def _decoder(self) -> Any:
        if self.format == _RAW:
            return standard("lzma").LZMADecompressor(_RAW, filters=self.filters)
        return standard("lzma").LZMADecompressor(self.format, memlimit=_MEMORY)


def _is_filter(value: object) -> bool:
    """Whether this could be a filter of the `lzma` module, which decides when it is used."""
    if not isinstance(value, Mapping) or value.get("id") not in _FILTERS:
        return False
    options = {key: option for key, option in value.items() if key != "id"}
    numbers = all(key in _OPTIONS and type(option) is int for key, option in options.items())
    return numbers and options.get("dict_size", 0) <= _MAX_DICT
