"""The `gzip` codec (RFC 1952), by ISA-L where it is fast and zlib where it is not."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any, ClassVar

from zellige.codecs.base import BytesBytesCodec
from zellige.codecs.fields import REQUIRED, integer
from zellige.errors import CodecError
from zellige.types import Buffer

_WBITS = 31  # the largest window, in a gzip member

# ISA-L counts from 0 to 3. Its 0 does not store, and its 3 is slower than its 2 and often larger.
ISAL_LEVELS = {1: 1, 2: 2, 3: 2}
"""The levels that ISA-L does, in its own counting."""

# A decoder copies what follows its member, so members after the first are fed in pieces: otherwise
# thousands of small members would cost the square of their number.
_PIECE = 4096
_LOOK = 64  # members that are looked at for the beginning of the content


@dataclass(frozen=True)
class GzipCodec(BytesBytesCodec):
    """One gzip member; `level` from 0 (stored) to 9 (smallest)."""

    level: Annotated[int, integer(0, 9), REQUIRED] = 5

    name: ClassVar[str] = "gzip"

    def encode(self, raw: Buffer) -> bytes:
        """Return one member, without a time stamp, so that equal chunks give equal bytes."""
        isal = _isal() if self.level in ISAL_LEVELS else None
        engine, level = (_zlib(), self.level) if isal is None else (isal, ISAL_LEVELS[self.level])
        member: bytes = engine.compress(raw, level, wbits=_WBITS)
        return member

    def decode(self, raw: Buffer, limit: int) -> bytes:
        """Return the content of all members, one after the other; checksums and lengths are verified."""
        view, engine = memoryview(raw), _isal() or _zlib()
        decoder = engine.decompressobj(wbits=_WBITS)
        parts: list[bytes] = []
        start, piece = 0, len(view)
        try:
            while not decoder.eof or start < len(view):
                if decoder.eof:
                    decoder, piece = engine.decompressobj(wbits=_WBITS), _PIECE
                if start >= len(view):
                    raise CodecError("gzip: the bytes end too early")
                # One byte more than is allowed: no bytes would mean no limit, and an overrun shows.
                parts.append(decoder.decompress(view[start : start + piece], min(limit + 1, sys.maxsize)))
                limit -= len(parts[-1])
                if limit < 0:
                    raise CodecError("gzip: the content is longer than expected")
                start = min(start + piece, len(view)) - len(decoder.unused_data)
                piece *= 2
        except engine.error as error:
            raise CodecError(f"gzip: the bytes are damaged: {error}") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def head(self, raw: Buffer, most: int) -> bytes:
        """Return what the first members begin with."""
        engine, found, start = _isal() or _zlib(), b"", 0
        try:
            for _ in range(_LOOK):
                decoder = engine.decompressobj(wbits=_WBITS)
                piece = raw[start : start + _PIECE]
                found += decoder.decompress(piece, most - len(found))
                start += len(piece) - len(decoder.unused_data)
                if not decoder.eof or len(found) >= most or start >= len(raw):
                    break
        except engine.error as error:
            raise CodecError(f"gzip: the bytes are damaged: {error}") from error
        return found


@cache
def _isal() -> Any:
    """Return ISA-L's zlib, or None where it is not installed."""
    try:
        return import_module("isal.isal_zlib")
    except ImportError:
        return None


@cache
def _zlib() -> Any:
    return import_module("zlib")
