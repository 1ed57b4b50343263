"""Programs: a codec chain in the kernel's terms, as 64-bit integers and the fill value. See `parse_program` in C."""

from __future__ import annotations

from struct import pack
from typing import Any

import numpy as np

from zellige import kernel
from zellige.codecs.arrays import BytesCodec
from zellige.codecs.base import BytesBytesCodec
from zellige.codecs.chain import CodecChain, permutation
from zellige.codecs.sharding import BoundShard, ShardingCodec
from zellige.types import Shape

_PARAMETERS = 5
_MOST_AXES, _MOST_CODECS, _LONGEST_ELEMENT, _LARGEST_INNER = 32, 8, 1 << 20, 1 << 46  # as in `kernel.h`
_COMPRESSORS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def program_of(chain: CodecChain) -> bytes | None:
    """Return the program of a chain, made on first use; None if the kernel cannot run all of it, or is off."""
    if kernel.native is None:
        return None
    try:
        return chain.program
    except AttributeError:
        first, *_ = chain.bound  # of all shapes the rank is the same
        words = _words(chain, first)
        chain.program = None if words is None else pack(f"={len(words)}q", *words) + chain.fill.tobytes()
        return chain.program


def inner_shape(chain: CodecChain) -> Shape | None:
    """Return the shape of the inner chunks of a chain that makes shards; None for other chains."""
    return chain.serializer.chunk_shape if isinstance(chain.serializer, ShardingCodec) else None


def _words(chain: CodecChain, shape: Shape) -> list[int] | None:
    serializer = chain.serializer
    if isinstance(serializer, ShardingCodec):
        return _shard_words(serializer, chain, shape)
    order = permutation(chain.filters, len(shape))
    steps = [_step(codec) for codec in chain.compressors]
    dtype = chain.dtype.numpy
    if order is None or None in steps or not isinstance(serializer, BytesCodec) or dtype.hasobject:
        return None
    if len(shape) > _MOST_AXES or len(steps) > _MOST_CODECS or not 0 < dtype.itemsize <= _LONGEST_ELEMENT:
        return None
    stored = serializer.layout(chain.specs(shape)[-1])
    swap = None if stored is None else _swapped(stored, dtype)
    if swap is None:
        return None
    codecs: list[tuple[int, ...]] = [step for step in steps if step]
    if not all(kernel.can(step[0]) for step in codecs) or sum(step[0] <= kernel.LZ4 for step in codecs) > 1:
        return None  # of two compressors, what is between them has no known length
    padded = [word for step in codecs for word in (*step, *[0] * (1 + _PARAMETERS - len(step)))]
    is_bool = int(dtype.kind == "b")
    return [len(shape), dtype.itemsize, swap, is_bool, *order, len(codecs), *padded, 0]


def _step(codec: BytesBytesCodec) -> tuple[int, ...] | None:
    """Return number and parameters of a codec from bytes to bytes; () if it does nothing, None if unknown."""
    core = codec.core() if hasattr(codec, "core") else codec  # of numcodecs: another form of the same
    found: tuple[int, ...] | None = None
    match core.name, core.configuration():
        case "zstd", {"level": level, "checksum": checksum}:
            found = kernel.ZSTD, level, int(checksum)
        case "gzip", {"level": level}:
            from zellige.codecs.gzip import ISAL_LEVELS  # which is there, since the codec is

            found = kernel.GZIP, ISAL_LEVELS.get(level, 0), level
        case "numcodecs.zlib", {"level": level}:
            found = kernel.ZLIB, level
        case "blosc", {"cname": cname, "clevel": level, "shuffle": shuffle, "typesize": size, "blocksize": block}:
            found = kernel.BLOSC, _COMPRESSORS.index(cname), level, _SHUFFLES.index(shuffle), size, block
        case "numcodecs.lz4", {"acceleration": acceleration}:
            found = kernel.LZ4, acceleration
        case "numcodecs.shuffle", {"elementsize": size}:
            found = (kernel.SHUFFLE, size) if size > 1 else ()
        case "crc32c", _:
            found = (kernel.CRC32C,)
        case "numcodecs.crc32c", {"location": "end"}:
            found = (kernel.CRC32C,)
        case "numcodecs.fletcher32", _:
            found = (kernel.FLETCHER32,)
    return found


def _shard_words(codec: ShardingCodec, chain: CodecChain, shape: Shape) -> list[int] | None:
    """Return the words for shards whose inner chunks divide them, with an index as all writers store it."""
    index = codec.index_codecs
    plain = isinstance(index[0], BytesCodec) and index[0].endian == "little"
    sums = [part.name == "crc32c" for part in index[1:]]
    if chain.filters or chain.compressors or not plain or sums not in ([], [True]):
        return None
    if max(codec.chunk_shape, default=0) > _LARGEST_INNER:
        return None
    shard = chain.shard(shape)
    inner = _words(shard.chain, codec.chunk_shape) if isinstance(shard, BoundShard) else None
    if inner is None or inner[-1]:  # shards within shards
        return None
    return [*inner[:-1], 1, int(codec.index_location == "start"), len(sums), *codec.chunk_shape]


def _swapped(stored: np.dtype[Any], dtype: np.dtype[Any]) -> int | None:
    """Return the size of the units whose bytes are reversed, 0 for none; None if two types differ otherwise."""
    if stored == dtype:
        return 0
    if stored.names is not None or stored.newbyteorder("=") != dtype or dtype.kind not in "iufcmMU":
        return None
    if dtype.kind == "U":
        return 4
    unit = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return unit if unit in (2, 4, 8) else None
