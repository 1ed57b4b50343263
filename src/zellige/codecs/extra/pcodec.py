"""Files of pcodec's standalone format, for `numcodecs.pcodec`: read chunk by chunk, into memory of the right size.

The library itself would allocate what a file asks for, and would not tell that bytes are left over.
"""

from __future__ import annotations

from typing import Any

from zellige.codecs.base import library
from zellige.errors import CodecError
from zellige.types import AnyArray

TYPES = ("uint32", "uint64", "int32", "int64", "float32", "float64", "uint16", "int16", "float16")
"""In the order of their numbers, from 1."""
_MAGIC = b"pco!"
_MAX_WINDOW = 20  # the logarithm; writers use 15 at most


def module(name: str) -> Any:
    """A module of the library."""
    return library("numcodecs.pcodec", name, "pcodec")


def read_file(raw: bytes, out: AnyArray) -> None:
    """Fill `out` from a file; raises `IndexError` if the file ends too early."""
    if raw[:4] != _MAGIC or raw[4] not in (2, 3):
        raise CodecError("numcodecs.pcodec: there is no standalone file of version 2 or 3")
    pos = raw[4] + 3  # version 3 has one byte more, for the type of all chunks
    pos -= -(6 + 1 + (raw[pos] & 63)) // 8  # a count that is only a hint
    header, _ = module("pcodec.wrapped").FileDecompressor.new(raw[pos : pos + 2])
    major = raw[pos]
    pos += 2 if major >= 4 else 1
    filled, number = 0, 1 + TYPES.index(out.dtype.name)
    while raw[pos]:
        count = 1 + int.from_bytes(raw[pos + 1 : pos + 4], "little")
        if raw[pos] != number or filled + count > len(out):
            raise CodecError(f"numcodecs.pcodec: {len(out)} of {out.dtype.name} expected, others found")
        if major >= 3:
            _check_window(raw[pos + 4 : pos + 16], 8 * out.itemsize)
        pos = _read_chunk(header, raw, pos + 4, out[filled : filled + count])
        filled += count
    if filled != len(out) or pos + 1 != len(raw):
        found = f"{len(out)} numbers in {pos + 1} bytes expected, {filled} in {len(raw)} found"
        raise CodecError(f"numcodecs.pcodec: {found}")


def _check_window(meta: bytes, width: int) -> None:
    """Refuse to look back too far: the library allocates the whole window, up to gigabytes."""
    bits = int.from_bytes(meta, "little")
    skip = {0: 0, 1: width, 2: width, 3: 8}.get(bits & 15)  # what belongs to the mode
    if skip is None:
        return  # a mode of version 4, whose libraries check for themselves
    bits >>= 4 + skip
    if bits & 15 == 2 and 1 + (bits >> 4 & 31) > _MAX_WINDOW:
        raise CodecError(f"numcodecs.pcodec: a window of 2**{1 + (bits >> 4 & 31)} numbers is too large")


def _read_chunk(header: Any, raw: bytes, pos: int, out: AnyArray) -> int:
    """Fill `out` from the chunk at `pos`; returns where it ends."""
    # The library copies nothing but takes only bytes. This is more than a chunk of so many numbers can have.
    reach = 4096 + 128 * len(out)
    read_meta = header.chunk_decompressor if hasattr(header, "chunk_decompressor") else header.read_chunk_meta
    chunk, used = read_meta(raw[pos : pos + reach], f"{out.dtype.kind}{8 * out.itemsize}")
    pos += used
    progress, used = chunk.read_page_into(raw[pos : pos + reach], len(out), out)
    if progress.n_processed != len(out) or not progress.finished:
        raise CodecError(f"numcodecs.pcodec: {len(out)} numbers expected, {progress.n_processed} found")
    return int(pos + used)
