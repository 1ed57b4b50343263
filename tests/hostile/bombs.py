"""Small values that unpack to a gibibyte of zeros, put together by hand: nothing of that size is ever in memory.

Each is honest: a decoder without a bound unpacks it to the end. `test_bombs.py` checks that in its long form.
"""

from __future__ import annotations

import base64
import lzma
import struct
import zlib
from functools import cache

import numpy as np

GiB = 1 << 30

_CRC32 = 0x5B64C2B0  # of a gibibyte of zeros
# What bz2 makes of a gibibyte of zeros at level 9, itself compressed by zlib: its parts do not end at bytes.
_BZ2 = (
    "eNpzisqwNHSMVAuO5ON8dJ8xvs+B4QADA4cCg0GDr5vTAtWVXA3TR+VH5Ye+vEdN/EmGrqATIHkWsIozrJrLJio5J7p08osXuVoETPjW8YQJAOT9"
    "7O0="
)


@cache
def zstd(sized: bool = True, size: int = GiB) -> bytes:
    """Runs of 128 KiB, four bytes each; the frame states its size, or only its window."""
    run = 128 << 10
    count = size // run
    header = bytes([0xA0]) + struct.pack("<I", size) if sized else bytes([0x00, 7 << 3])
    blocks = [struct.pack("<I", run << 3 | 1 << 1)[:3] + b"\0"] * (count - 1)
    last = struct.pack("<I", run << 3 | 1 << 1 | 1)[:3] + b"\0"
    return bytes.fromhex("28b52ffd") + header + b"".join(blocks) + last


@cache
def _deflated() -> bytes:
    """A mebibyte over and over: a flushed piece ends at a byte and needs nothing that came before."""
    maker = zlib.compressobj(9, wbits=-15)
    piece = maker.compress(bytes(1 << 20)) + maker.flush(zlib.Z_FULL_FLUSH)
    return piece * (GiB >> 20) + b"\x03\x00"


@cache
def gzip() -> bytes:
    return bytes.fromhex("1f8b0800000000000003") + _deflated() + struct.pack("<II", _CRC32, GiB)


@cache
def zlib_stream() -> bytes:
    return b"\x78\x9c" + _deflated() + struct.pack(">I", (GiB % 65521) << 16 | 1)


@cache
def _lzma2() -> bytes:
    """Two mebibytes over and over: each chunk begins anew, but for the dictionary, which holds zeros already."""
    raw = lzma.compress(bytes(1 << 21), lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 1}])
    assert raw[0] == 0xFF  # one chunk that resets all and has the full size
    chunk = raw[:-1]
    return chunk + (b"\xdf" + chunk[1:]) * (GiB // (1 << 21) - 1) + b"\0"


@cache
def lzma_raw() -> bytes:
    return _lzma2()


@cache
def xz(dictionary: int = 0x10) -> bytes:
    """One block without a checksum; `dictionary` is the code of its size, 0x10 for a mebibyte."""
    flags = b"\0\0"
    header = b"\x02\x00\x21\x01" + bytes([dictionary]) + bytes(3)
    header += struct.pack("<I", zlib.crc32(header))
    block = header + _lzma2()
    unpadded = len(block)
    records = b"\0\1" + _variable(unpadded) + _variable(GiB)
    index = records + bytes(-len(records) % 4)
    index += struct.pack("<I", zlib.crc32(index))
    tail = struct.pack("<I", len(index) // 4 - 1) + flags
    start = b"\xfd7zXZ\0" + flags + struct.pack("<I", zlib.crc32(flags))
    return start + block + bytes(-unpadded % 4) + index + struct.pack("<I", zlib.crc32(tail)) + tail + b"YZ"


def _variable(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


@cache
def lz4() -> bytes:
    """The size, a literal, and one match as long as all the rest; five literals end a block."""
    rest = GiB - 1 - 5 - 4 - 15
    return struct.pack("<I", GiB) + b"\x1f\0\1\0" + b"\xff" * (rest // 255) + bytes([rest % 255]) + b"\x50" + bytes(5)


@cache
def blosc(nbytes: int = GiB) -> bytes:
    """Blocks of 256 MiB, compressed by zstd; `nbytes` is what the container states."""
    stream = zstd(size=256 << 20)
    blocksize = min(nbytes, 256 << 20)
    count = nbytes // blocksize
    starts = [16 + 4 * count + k * (4 + len(stream)) for k in range(count)]
    body = struct.pack(f"<{count}i", *starts) + (struct.pack("<i", len(stream)) + stream) * count
    return struct.pack("<BBBBIII", 2, 1, 0x80 | 0x10, 1, nbytes, blocksize, 16 + len(body)) + body


def bz2() -> bytes:
    return zlib.decompress(base64.b64decode(_BZ2))


@cache
def pcodec() -> bytes:
    """Eight chunks of as many numbers as a chunk can have."""
    from pcodec import ChunkConfig, PagingSpec, standalone

    config = ChunkConfig(paging_spec=PagingSpec.equal_pages_up_to(1 << 18))
    small = standalone.simple_compress(np.zeros(1 << 18), config)
    body = small.rindex(struct.pack("<I", (1 << 18) - 1)[:3]) - 1  # the type, then the count less one
    chunk = small[body:-1]
    largest = chunk[:1] + struct.pack("<I", (1 << 24) - 1)[:3] + chunk[4:]
    return small[:body] + largest * 8 + small[-1:]


@cache
def zfpy() -> bytes:
    """A block of zeros is one bit, and in four dimensions has 256 numbers."""
    import zfpy

    small = zfpy.compress_numpy(np.zeros((4, 4, 4, 4)), tolerance=1.0, write_header=True)
    bits = int.from_bytes(small[4:12], "little")
    sizes = sum((size - 1) << 12 * axis for axis, size in enumerate((64, 128, 128, 128)))
    header = bits & ~(((1 << 48) - 1) << 4) | sizes << 4
    length = 12 + -(-(GiB // 8 // 256) // 8) + 16
    return (small[:4] + header.to_bytes(8, "little") + bytes(length))[: -(-length // 8) * 8]
