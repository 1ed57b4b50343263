"""The `zstd` codec (RFC 8878), by `zstandard`.

Its readers tell neither where a frame ends nor whether it was whole, so the frames are walked first: that costs one
step per block of up to 128 KiB, and says what is wrong.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from zellige.codecs.base import EXPANSION, BytesBytesCodec, library
from zellige.codecs.fields import REQUIRED, Absent, integer
from zellige.errors import CodecError
from zellige.types import Buffer

_MAGIC = bytes.fromhex("28b52ffd")
_SKIPPABLE = bytes.fromhex("2a4d18")  # after a byte from 50 to 5f
_ROOM = 64 << 10  # offered at least to frames that do not state their size
_MAX_WINDOW = 1 << 27  # what level 22 uses; a larger one is only a way to make readers allocate

_Frame = tuple[int, int, int | None]
"""Start and end of a frame, and the size of its content if the frame states it."""


@dataclass(frozen=True)
class ZstdCodec(BytesBytesCodec):
    """One zstd frame that states the size of its content.

    `level` goes from -131072 (fastest) to 22 (smallest), 0 is the library's default; `checksum` lets
    readers notice damage for four bytes per chunk.
    """

    level: Annotated[int, integer(-131072, 22), REQUIRED] = 1
    checksum: Annotated[bool, Absent(False)] = True

    name: ClassVar[str] = "zstd"

    def encode(self, raw: Buffer) -> bytes:
        """Return one frame."""
        frame: bytes = _compressor(self.level, self.checksum).compress(raw)
        return frame

    def decode(self, raw: Buffer, limit: int) -> bytes:
        """Return the content of all frames."""
        frames = _frames(raw, limit)
        # The limit may be far more than there is.
        room, left = max([_ROOM, 8 * len(raw), *[size for _, _, size in frames if size]]), limit
        parts: list[bytes] = []
        try:
            for start, end, size in frames:
                reader = _decompressor().stream_reader(raw if end - start == len(raw) else memoryview(raw)[start:end])
                before = left
                while found := reader.read(min(room, left + 1)):  # to the end, where a checksum is verified
                    parts.append(found)
                    left -= len(found)
                    if left < 0:
                        raise CodecError(f"zstd: more bytes than the {limit} expected")
                if size is not None and before - left != size:
                    raise CodecError(f"zstd: the frame states {size} bytes, {before - left} found")
        except _zstandard().ZstdError as error:
            raise CodecError(f"zstd: the bytes are damaged: {error}") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def head(self, raw: Buffer, most: int) -> bytes:
        """Return what the first frames begin with."""
        try:
            reader = _decompressor().stream_reader(raw, read_across_frames=True)
            found: bytes = reader.read(most)
        except _zstandard().ZstdError as error:
            raise CodecError(f"zstd: the bytes are damaged: {error}") from error
        return found


def _zstandard() -> Any:
    return library("zstd", "zstandard", "zstandard")


_contexts = threading.local()
"""What a thread keeps: making a context costs several times the decoding of a small chunk."""


def _decompressor() -> Any:
    if not hasattr(_contexts, "decompressor"):
        _contexts.decompressor = _zstandard().ZstdDecompressor(max_window_size=_MAX_WINDOW)
    return _contexts.decompressor


def _compressor(level: int, checksum: bool) -> Any:
    kept: dict[Any, Any] = _contexts.__dict__
    if (level, checksum) not in kept:
        options = {"write_checksum": checksum, "write_content_size": True}
        kept[level, checksum] = _zstandard().ZstdCompressor(level=level, **options)
    return kept[level, checksum]


# -- the structure of frames ----------------------------------------------------------------------


def _frames(raw: Buffer, limit: int) -> list[_Frame]:
    """Return all frames of `raw`; raises `CodecError` if they are not whole or state more than `limit` bytes."""
    frames: list[_Frame] = []
    pos, stated = 0, 0
    try:
        while pos < len(raw) or pos == 0:
            magic = raw[pos : pos + 4]
            if magic == _MAGIC:
                frame = _frame(raw, pos)
                frames.append(frame)
                pos = frame[1]
                stated += frame[2] or 0
            elif magic[1:] == _SKIPPABLE and magic[0] >> 4 == 5:
                raw[pos + 7]  # IndexError if it is not there
                pos += 8 + int.from_bytes(raw[pos + 4 : pos + 8], "little")
            else:
                raise CodecError(f"zstd: there is no frame at byte {pos} of {len(raw)}")
    except IndexError:
        pos = len(raw) + 1
    if pos > len(raw):
        raise CodecError("zstd: the bytes end too early")
    if stated > limit:
        raise CodecError(f"zstd: at most {limit} bytes expected, {stated} stated")
    if stated > EXPANSION * len(raw):
        raise CodecError(f"zstd: {stated} bytes stated, which {len(raw)} cannot hold")
    return frames


def _frame(raw: Buffer, start: int) -> _Frame:
    """Return the frame at `start`; raises `IndexError` if `raw` ends within it, or returns an end beyond `raw`."""
    flags = raw[start + 4]
    if flags & 3:
        raise CodecError("zstd: the frame needs a dictionary, which Zarr does not have")
    single = flags >> 5 & 1
    pos = start + 6 - single
    width = (single, 2, 4, 8)[flags >> 6]
    size = None
    if width:
        size = int.from_bytes(raw[pos : pos + width], "little") + (256 if width == 2 else 0)
    elif (8 + (raw[pos - 1] & 7)) << (7 + (raw[pos - 1] >> 3)) > _MAX_WINDOW:
        raise CodecError(f"zstd: the frame needs a window of more than {_MAX_WINDOW >> 20} MiB")
    pos += width
    last = 0
    while not last:
        header = raw[pos] | raw[pos + 1] << 8 | raw[pos + 2] << 16
        pos += 3 + (1 if header & 6 == 2 else header >> 3)  # a run is stored as one byte
        last = header & 1
    return start, pos + (flags & 4), size
