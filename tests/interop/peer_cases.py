"""Arrays that both peers make and read in the same way: types, layouts, keys, chains of codecs, values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

DTYPES = [
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
]

LAYOUTS = {  # shape, chunk shape
    "boundary": ((7, 5), (3, 2)),
    "one axis": ((9,), (4,)),
    "rank 0": ((), ()),
    "zero length": ((0, 4), (2, 3)),
    "three axes": ((3, 4, 5), (2, 3, 2)),
    "chunk beyond array": ((3, 2), (5, 2)),
    "large": ((70, 50), (30, 40)),
}

KEYS = [("default", "/"), ("default", "."), ("v2", "."), ("v2", "/")]


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, **({"configuration": configuration} if configuration else {})}


def blosc(**changes: Any) -> dict[str, Any]:
    return codec("blosc", **{"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0, **changes})


LITTLE, BIG = codec("bytes", endian="little"), codec("bytes", endian="big")
TRANSPOSE = codec("transpose")  # the order depends on the rank

CHAINS: dict[str, list[dict[str, Any]]] = {
    "little": [LITTLE],
    "big": [BIG],
    "transpose": [TRANSPOSE, LITTLE],
    "crc32c": [LITTLE, codec("crc32c")],
    **{f"gzip {level}": [LITTLE, codec("gzip", level=level)] for level in (0, 1, 5, 9)},
    **{f"zstd {level}": [LITTLE, codec("zstd", level=level, checksum=False)] for level in (-5, 0, 19)},
    "zstd checksum": [LITTLE, codec("zstd", level=3, checksum=True)],
    **{f"blosc {cname}": [LITTLE, blosc(cname=cname)] for cname in ("lz4hc", "blosclz", "zstd", "zlib", "snappy")},
    **{f"blosc lz4 {kind}": [LITTLE, blosc(shuffle=kind)] for kind in ("noshuffle", "shuffle", "bitshuffle")},
    "blosc 0": [LITTLE, blosc(clevel=0)],
    "blosc blocks": [LITTLE, blosc(cname="zstd", clevel=9, shuffle="bitshuffle", blocksize=512)],
    "two transposes": [TRANSPOSE, TRANSPOSE, BIG, codec("gzip", level=1)],
    "checksums inside and outside": [LITTLE, codec("crc32c"), codec("zstd", level=1, checksum=True), codec("crc32c")],
    "all": [TRANSPOSE, BIG, blosc(), codec("gzip", level=2), codec("zstd", level=1, checksum=True), codec("crc32c")],
}

EXACT = {"little", "big", "transpose", "crc32c"}  # chains that leave the writer no choice


class Case(NamedTuple):
    """One array, whoever makes it."""

    dtype: str = "int32"
    layout: str = "boundary"
    chain: str = "little"
    keys: tuple[str, str] = KEYS[0]
    fill: Any = 0

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(f"V{int(self.dtype[1:]) // 8}" if self.dtype[0] == "r" else self.dtype)

    def arguments(self) -> dict[str, Any]:
        """For `create_array`, which has the same parameters on both sides."""
        shape, chunks = LAYOUTS[self.layout]
        codecs = self.codecs()
        serializer = next(i for i, codec in enumerate(codecs) if codec["name"] == "bytes")
        name, separator = self.keys
        return {
            "shape": shape,
            "chunks": chunks,
            "dtype": self.numpy,
            "fill_value": np.array(self.fill).astype(self.numpy)[()],
            "filters": codecs[:serializer],
            "serializer": codecs[serializer],
            "compressors": codecs[serializer + 1 :],
            "chunk_key_encoding": {"name": name, "configuration": {"separator": separator}},
        }

    def codecs(self) -> list[dict[str, Any]]:
        """The chain, complete."""
        return [self._complete(codec, len(LAYOUTS[self.layout][0])) for codec in CHAINS[self.chain]]

    def _complete(self, codec: dict[str, Any], rank: int) -> dict[str, Any]:
        """The codec with what depends on the rank and the type."""
        if codec["name"] == "transpose":
            return {**codec, "configuration": {"order": [*range(1, rank), *range(min(rank, 1))]}}
        if codec["name"] == "blosc":
            return {**codec, "configuration": {**codec["configuration"], "typesize": self.numpy.itemsize}}
        return codec

    def values(self) -> np.ndarray:
        """Random bits after the limits of the type; the middle of the array is left at the fill value."""
        shape, chunks = LAYOUTS[self.layout]
        values = np.full(shape, np.array(self.fill).astype(self.numpy))
        if self.layout == "large":  # compressible, so that compressors have something to do
            return (np.arange(values.size).reshape(shape) // 7).astype(self.numpy)
        raw = np.random.default_rng(len(shape)).integers(0, 256, (*shape, self.numpy.itemsize), np.uint8)
        if self.numpy.kind == "b":
            raw &= 1
        noise = raw.reshape(-1).view(self.numpy)
        limits = limits_of(self.numpy)[: noise.size]
        noise[: limits.size] = limits
        filled = tuple(slice(c, 2 * c) for c in chunks)
        kept = values[filled].copy()
        values[...] = noise.reshape(shape)
        if shape:
            values[filled] = kept
        return values


def limits_of(dtype: np.dtype[Any]) -> np.ndarray:
    """Values at the limits of a type."""
    if dtype.kind in "iu":
        return np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    if dtype.kind in "fc":
        part = np.finfo(dtype)
        return np.array([math.nan, math.inf, -math.inf, -0.0, part.smallest_subnormal, part.max], dtype)
    return np.zeros(0, dtype)
