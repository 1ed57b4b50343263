"""The words of configurations as enumerations, for scripts that import them; plain strings do as well."""

from __future__ import annotations

from enum import StrEnum


class Endian(StrEnum):
    """The byte orders of `BytesCodec`."""

    little = "little"
    big = "big"


class BloscShuffle(StrEnum):
    """What `BloscCodec` does before it compresses."""

    noshuffle = "noshuffle"
    shuffle = "shuffle"
    bitshuffle = "bitshuffle"


class BloscCname(StrEnum):
    """The compressors of `BloscCodec`."""

    lz4 = "lz4"
    lz4hc = "lz4hc"
    blosclz = "blosclz"
    zstd = "zstd"
    snappy = "snappy"
    zlib = "zlib"


class ShardingCodecIndexLocation(StrEnum):
    """Where the index of a shard is."""

    start = "start"
    end = "end"


class SubchunkWriteOrder(StrEnum):
    """In which order inner chunks lie in a shard; here always in that of their coordinates."""

    lexicographic = "lexicographic"
