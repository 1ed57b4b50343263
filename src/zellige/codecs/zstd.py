"""The `zstd` codec (RFC 8878).

Larger values go straight to the C library, which decodes all frames into a buffer of the right size or refuses.
What it refuses, and small values, go to `zstandard`. Its readers tell neither where a frame ends nor whether it was
whole, so the frames are walked first: that costs one step per block of up to 128 KiB, and says what is wrong.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from zellige import scratch
from zellige.codecs import native
from zellige.codecs.base import (
    EXPANSION,
    BytesBytesCodec,
    consecutive,
    integer,
    library,
    one_of,
    only_keys,
    scratch_for,
)
from zellige.errors import CodecError
from zellige.types import JSON, Buffer

_MAGIC = bytes.fromhex("28b52ffd")
_SKIPPABLE = bytes.fromhex("2a4d18")  # after a byte from 50 to 5f
_ROOM = 64 << 10  # offered to frames that do not state their size
_MAX_WINDOW = 1 << 27  # what level 22 uses; a larger one is only a way to make readers allocate
_LEVELS = -131072, 22
_BLOCK = 128 << 10  # the most that a block holds
_OPEN = _MAGIC + bytes([0, 17 << 3])
"""The header of a frame that states no size, with a window of 128 MiB."""

_Frame = tuple[int, int, int | None]
"""Start and end of a frame, and the size of its content if the frame states it."""


@dataclass(frozen=True, slots=True)
class ZstdCodec(BytesBytesCodec):
    """One zstd frame that states the size of its content.

    `level` goes from -131072 (fastest) to 22 (smallest), 0 is the library's default; `checksum` lets
    readers notice damage for four bytes per chunk.
    """

    level: int = 1
    checksum: bool = True

    name: ClassVar[str] = "zstd"
    can_start: ClassVar[bool] = True
    decode_work: ClassVar[int] = 3
    encode_work: ClassVar[int] = 5

    def __post_init__(self) -> None:
        integer(self.name, {"level": self.level}, "level", *_LEVELS)
        one_of(self.name, {"checksum": self.checksum}, "checksum", (True, False))

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration; without `checksum` there is none (spec)."""
        only_keys(cls.name, configuration, "level", "checksum")
        return cls(integer(cls.name, configuration, "level", *_LEVELS), configuration.get("checksum", False))

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        return {"level": self.level, "checksum": self.checksum}

    def encoded_bound(self, nbytes: int) -> int:
        """Generous: other writers may cut their output into many frames or raw blocks."""
        return 2 * nbytes + 4096

    def encode(self, raw: Buffer) -> Buffer:
        """One frame, in this thread's scratch if it is large."""
        if len(raw) >= native.LEAST and (zstd := native.zstd()):
            out = scratch_for(raw, "zstd frame", self.room(len(raw)))
            return out[: zstd.compress(raw, out, self.level, self.checksum)]
        make = partial(_compressor, self.level, self.checksum)
        frame: bytes = scratch.context(("zstd", self.level, self.checksum), make).compress(raw)
        return frame

    def decode(self, raw: Buffer, limit: int) -> memoryview:
        """The content of all frames, in this thread's scratch."""
        if limit >= native.LEAST and raw[:4] == _MAGIC and (zstd := native.zstd()):
            stated = zstd.stated(raw)
            if native.LEAST <= stated <= min(limit, EXPANSION * len(raw)):
                out = scratch_for(raw, "zstd", stated)
                if _filled(raw, out):
                    return out
        frames = _frames(raw, limit)
        sizes = [size for _, _, size in frames if size is not None]
        if len(sizes) == len(frames):
            out = scratch_for(raw, "zstd", sum(sizes))
            return out[: _decompress(raw, frames, out)]
        room = min(limit, max(_ROOM, 8 * len(raw)))
        while True:  # the limit may be far more than there is
            out = scratch_for(raw, "zstd", room)
            try:
                return out[: _decompress(raw, frames, out)]
            except _TooLongError:
                if room == limit:
                    raise
                room = min(limit, 8 * room)

    def head(self, raw: Buffer, most: int) -> bytes:
        """What the first frames begin with."""
        try:
            reader = scratch.context("zstd", _decompressor).stream_reader(raw, read_across_frames=True)
            found: bytes = reader.read(most)
        except _zstandard().ZstdError as error:
            raise CodecError(f"zstd: the bytes are damaged: {error}") from error
        return found

    def decode_into(self, raw: Buffer, out: memoryview) -> None:
        """Decode straight into `out`."""
        if len(out) >= native.LEAST and _filled(raw, out):
            return
        found = _decompress(raw, _frames(raw, len(out)), out)
        if found != len(out):
            raise CodecError(f"zstd: {len(out)} bytes expected, {found} found")

    def decode_start(self, raw: Buffer, size: int, wanted: int) -> Buffer | None:
        """The blocks up to there, as a frame of their own; None where a checksum wants them all."""
        if wanted + _BLOCK > size or (zstd := native.zstd()) is None or not (found := _first_blocks(raw, size, wanted)):
            return None
        raw, start, last, end = found
        kept = bytes(raw[start : start + len(_OPEN)]), raw[last]
        try:
            raw[start : start + len(_OPEN)] = _OPEN
            raw[last] |= 1
            out = scratch_for(raw, "zstd", size)
            filled = zstd.decompress(raw[start:end], out)
        except native.NativeError:
            return None  # all of it, which says what is wrong
        finally:
            raw[start : start + len(_OPEN)], raw[last] = kept
        return out[:filled] if filled >= wanted else None

    def room(self, nbytes: int, count: int = 1) -> int:
        """ZSTD_compressBound, and a little."""
        return nbytes + (nbytes >> 8) + 1024 * count

    def encode_many(self, flat: memoryview, sizes: Sequence[int], into: memoryview) -> list[Buffer]:
        """Small values in one call, without holding the interpreter; large ones by the faster library."""
        if sum(sizes) >= native.LEAST * len(sizes) and (zstd := native.zstd()):
            return zstd.compress_many(flat, into, sizes, [*map(self.room, sizes)], self.level, self.checksum)
        spans = np.empty((len(sizes), 2), np.uint64)
        spans[:, 1] = sizes
        spans[:, 0] = np.cumsum(spans[:, 1]) - spans[:, 1]
        make = partial(_compressor, self.level, self.checksum)
        compressor = scratch.context(("zstd", self.level, self.checksum), make)
        found = compressor.multi_compress_to_buffer(_zstandard().BufferWithSegments(flat, spans.tobytes()))
        return [memoryview(found[k]) for k in range(len(found))]

    def decode_many(self, raws: Sequence[Buffer], sizes: Sequence[int]) -> Buffer:
        """Small values in one call if each is one frame that states its size; else one by one."""
        if False not in [raw[:4] == _MAGIC for raw in raws]:
            large = native.decoded(native.zstd(), raws, sizes)
            if large is not None:
                return large
        # The library ends the process when there is nothing to decode, or nothing in a frame.
        if len(raws) == len(sizes) != 0 and 0 not in sizes and False not in map(_is_frame_of, raws, sizes):
            every = scratch.buffer("many", sum(sizes))
            if _decoded_at_once(raws, array("Q", sizes), every):
                return every
        return BytesBytesCodec.decode_many(self, raws, sizes)

    def decode_rows(self, raw: Buffer, spans: npt.NDArray[np.uint64], rows: memoryview) -> None:
        """Small values in one call if each is one whole frame; else one by one, which also finds a damaged one."""
        size = len(rows) // len(spans)
        alone = size >= native.LEAST and native.zstd()
        if size and not alone and _whole_frames(np.frombuffer(raw, np.uint8), spans.astype(np.int64)):
            frames = _zstandard().BufferWithSegments(raw, spans.tobytes())
            if _decoded_at_once(frames, array("Q", [size]) * len(spans), rows):
                return
        BytesBytesCodec.decode_rows(self, raw, spans, rows)


def _decoded_at_once(frames: Any, sizes: array[int], into: memoryview) -> bool:
    """Decode frames by one call, and put what they hold into memory that is kept; False to have a closer look."""
    decompressor = scratch.context("zstd", _decompressor)
    try:
        found = decompressor.multi_decompress_to_buffer(frames, decompressed_sizes=sizes.tobytes())
    except _zstandard().ZstdError:
        return False
    for k, piece in enumerate(consecutive(into, sizes)):
        piece[:] = found[k]
    return True


def _filled(raw: Buffer, out: memoryview) -> bool:
    """Decode exactly as many bytes as `out` has; False to have a closer look at the frames."""
    if raw[:4] != _MAGIC or (zstd := native.zstd()) is None:
        return False
    try:
        return zstd.decompress(raw, out) == len(out)
    except native.NativeError:
        return False


class _TooLongError(CodecError):
    """There are more bytes than the buffer holds."""


def _zstandard() -> Any:
    return library("zstd", "zstandard", "zstandard")


def _compressor(level: int, checksum: bool) -> Any:
    return _zstandard().ZstdCompressor(level=level, write_checksum=checksum, write_content_size=True)


def _decompressor() -> Any:
    return _zstandard().ZstdDecompressor(max_window_size=_MAX_WINDOW)


# -- the structure of frames ----------------------------------------------------------------------


def _frames(raw: Buffer, limit: int) -> list[_Frame]:
    """All frames of `raw`; raises `CodecError` if they are not whole or state more than `limit` bytes."""
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
                pos = _skip(raw, pos)
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


def _is_frame_of(raw: Buffer, size: int) -> bool:
    """Whether the bytes are one whole frame that states this size."""
    try:
        return raw[:4] == _MAGIC and _frame(raw, 0)[1:] == (len(raw), size)
    except (CodecError, IndexError):
        return False


def _frame(raw: Buffer, start: int) -> _Frame:
    """The frame at `start`; raises `IndexError` if `raw` ends within it, or returns an end beyond `raw`."""
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


def _first_blocks(raw: Buffer, size: int, wanted: int) -> tuple[memoryview, int, int, int] | None:
    """How the blocks with the first `wanted` bytes become a frame: where its header, its last block and its end are.

    None if they are all blocks, or if the bytes are not one frame of this size without a checksum.
    """
    view = memoryview(raw)
    if view.readonly or not _is_frame_of(raw, size) or raw[4] & 4:
        return None
    single = raw[4] >> 5 & 1
    pos = 6 - single + (single, 2, 4, 8)[raw[4] >> 6]
    start, reached, header = pos - len(_OPEN), 0, 0
    while not header & 1:
        header, last = raw[pos] | raw[pos + 1] << 8 | raw[pos + 2] << 16, pos
        pos += 3 + (1 if header & 6 == 2 else header >> 3)
        reached += _BLOCK if header & 6 == 4 else header >> 3  # a compressed one is full, unless it is the last
        if reached >= wanted and not header & 1:
            return view, start, last, pos
    return None


def _whole_frames(raw: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64]) -> bool:
    """Whether each span is one frame of one block and nothing else: `_frame` for many at once."""
    starts, lengths = spans[:, 0], spans[:, 1]
    ends = starts + lengths
    if not len(raw) or (lengths < 12).any() or (ends > len(raw)).any():
        return False
    magic = np.frombuffer(_MAGIC, np.uint8)
    flags = raw[starts + 4].astype(np.int64)
    single = flags >> 5 & 1
    width = np.array([0, 2, 4, 8])[flags >> 6] + np.where(flags >> 6 == 0, single, 0)
    at = np.minimum(starts + 6 - single + width, ends - 3)
    header = raw[at] | raw[at + 1].astype(np.int64) << 8 | raw[at + 2].astype(np.int64) << 16
    reach = at + 3 + np.where(header & 6 == 2, 1, header >> 3) + (flags & 4)
    whole = (raw[starts[:, None] + np.arange(4)] == magic).all(axis=1) & (flags & 3 == 0) & (header & 1 == 1)
    return bool((whole & (reach == ends)).all())


def _skip(raw: Buffer, start: int) -> int:
    """The end of the skippable frame at `start`."""
    raw[start + 7]  # IndexError if it is not there
    return start + 8 + int.from_bytes(raw[start + 4 : start + 8], "little")


# -- decoding -------------------------------------------------------------------------------------


def _decompress(raw: Buffer, frames: list[_Frame], out: memoryview) -> int:
    """Decode frames one after the other into `out`; returns how many bytes they filled."""
    decompressor = scratch.context("zstd", _decompressor)
    filled = 0
    try:
        for start, end, size in frames:
            reader = decompressor.stream_reader(raw if end - start == len(raw) else memoryview(raw)[start:end])
            found = reader.readinto(out[filled:])
            # Without a stated size there may be bytes left, or a checksum that is not yet verified.
            if size is None and reader.readinto(bytearray(1)):
                raise _TooLongError(f"zstd: more bytes than the {len(out)} expected")
            if size is not None and found != size:
                raise CodecError(f"zstd: the frame states {size} bytes, {found} found")
            filled += found
    except _zstandard().ZstdError as error:
        raise CodecError(f"zstd: the bytes are damaged: {error}") from error
    return filled
