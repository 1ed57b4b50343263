"""The codecs of numcodecs under their names in Zarr v3, `numcodecs.*`, as zarr-python writes them (spec: 7.6).

>>> Zlib.from_configuration({}).to_json()
{'name': 'numcodecs.zlib', 'configuration': {'level': 1}}
"""

from __future__ import annotations

from zellige.codecs.base import Codec
from zellige.codecs.numcodecs.arrays import AsType, BitRound, Delta, FixedScaleOffset, PackBits, Quantize
from zellige.codecs.numcodecs.checksums import CRC32, CRC32C, Adler32, Fletcher32, JenkinsLookup3
from zellige.codecs.numcodecs.compressors import LZ4, Blosc, GZip, Shuffle, Zstd
from zellige.codecs.numcodecs.serializers import ZFPY, PCodec
from zellige.codecs.numcodecs.streams import BZ2, LZMA, Zlib

__all__ = [
    "CLASSES",
    "Blosc",
    "Zstd",
    "GZip",
    "Zlib",
    "BZ2",
    "LZMA",
    "LZ4",
    "Shuffle",
    "CRC32",
    "Adler32",
    "CRC32C",
    "Fletcher32",
    "JenkinsLookup3",
    "Delta",
    "FixedScaleOffset",
    "Quantize",
    "AsType",
    "PackBits",
    "BitRound",
    "ZFPY",
    "PCodec",
]

_ALL: list[type[Codec]] = [
    *(Blosc, Zstd, GZip, Zlib, BZ2, LZMA, LZ4, Shuffle),
    *(CRC32, Adler32, CRC32C, Fletcher32, JenkinsLookup3),
    *(Delta, FixedScaleOffset, Quantize, AsType, PackBits, BitRound),
    *(ZFPY, PCodec),
]
CLASSES: dict[str, type[Codec]] = {codec.name: codec for codec in _ALL}
"""Every codec by its name in documents."""
