"""Compressors, the old way and the new way."""

import numcodecs
import numpy as np
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.codecs.numcodecs import LZ4, Delta, Shuffle

import zarr

data = np.arange(20000, dtype="i4").reshape(200, 100)
names = [
    ("blosc", {"compressors": BloscCodec(cname="zstd", clevel=3, shuffle=zarr.codecs.BloscShuffle.bitshuffle)}),
    ("gzip", {"compressors": GzipCodec(level=5)}),
    ("zstd", {"compressors": [ZstdCodec(level=3)]}),
    ("numcodecs", {"filters": Delta(dtype="<i4"), "compressors": [Shuffle(elementsize=4), LZ4(acceleration=2)]}),
    ("several", {"compressors": (GzipCodec(level=1), Crc32cCodec())}),
    ("none", {"compressors": None}),
    ("dict", {"compressors": {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5}}}),
    ("big", {"serializer": BytesCodec(endian="big"), "compressors": None}),
    ("transposed", {"filters": TransposeCodec(order=(1, 0)), "compressors": ZstdCodec()}),
]
root = zarr.create_group("compressed.zarr")
for name, options in names:
    z = root.create_array(name, shape=data.shape, chunks=(100, 50), dtype=data.dtype, **options)
    z[:] = data
    print(
        name,
        [type(codec).__name__ for codec in z.filters],
        type(z.serializer).__name__,
        [type(codec).__name__ for codec in z.compressors],
        np.array_equal(zarr.open_array("compressed.zarr", path=name, mode="r")[:], data),
        z.nbytes_stored() < z.nbytes + 2000,
    )

z = root["gzip"]
print(z.compressors[0].level, z.filters, root["blosc"].compressors[0].clevel, root["none"].compressors)
try:
    print(root["big"].compressor)
except TypeError:
    print(None)  # 3.x wants to be asked for `compressors` here
print([codec["name"] for codec in root["several"].metadata.to_dict()["codecs"]])

# The whole chain at once.
z = zarr.create(
    shape=(8, 8),
    chunks=(4, 4),
    dtype="u2",
    codecs=[BytesCodec(), BloscCodec(cname="lz4", clevel=1)],
    store="codecs.zarr",
    zarr_format=3,
)
z[:] = 9
print(z[7, 7], [codec["name"] for codec in z.metadata.to_dict()["codecs"]])

# The old way: Zarr format 2 and one compressor.
old = zarr.open_group("old.zarr", mode="w", zarr_format=2)
for name, compressor in [
    ("blosc", numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.BITSHUFFLE)),
    ("zlib", numcodecs.Zlib(level=1)),
    ("gzip", numcodecs.GZip(level=1)),
    ("bz2", numcodecs.BZ2(level=1)),
    ("lzma", numcodecs.LZMA(preset=1)),
    ("lz4", numcodecs.LZ4()),
    ("zstd", numcodecs.Zstd(level=5)),
    ("none", None),
]:
    z = old.create_array(name, shape=data.shape, chunks=(100, 50), dtype=data.dtype, compressor=compressor)
    z[:] = data
    again = zarr.open_array("old.zarr", path=name)
    print(name, np.array_equal(again[:], data), again.compressor is None, again.metadata.zarr_format)
    if compressor is not None:
        print(again.metadata.to_dict()["compressor"]["id"])
    same = old.create_array(f"{name} again", shape=5, dtype="u1", compressor=again.compressor)
    print((same.metadata.to_dict()["compressor"] or {}).get("id"))
