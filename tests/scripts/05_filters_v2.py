"""Zarr format 2 with the filters of numcodecs."""

import numcodecs
import numpy as np

import zarr

data = np.cumsum(np.arange(1000) % 7).astype("i4")
z = zarr.create_array(
    store="delta.zarr",
    data=data,
    chunks=(100,),
    filters=[numcodecs.Delta(dtype="i4")],
    compressors=numcodecs.Blosc(cname="zstd", clevel=1, shuffle=numcodecs.Blosc.SHUFFLE),
    zarr_format=2,
)
print(np.array_equal(zarr.open("delta.zarr", mode="r")[:], data), z.metadata.zarr_format)
print(len(z.filters), [item["id"] for item in z.metadata.to_dict()["filters"]])
z[50:60] = 0
print(z[48:62].tolist())

values = np.linspace(1000, 1001, 11)
scaled = zarr.create(
    shape=11,
    chunks=4,
    dtype="f8",
    filters=[numcodecs.FixedScaleOffset(offset=1000, scale=10, dtype="f8", astype="u1")],
    compressor=numcodecs.Zlib(level=6),
    fill_value=1000,
    zarr_format=2,
    store="scaled.zarr",
)
scaled[:] = values
print(scaled[:].tolist())

quantized = zarr.array(
    np.sin(np.linspace(0, 6, 50)),
    chunks=20,
    filters=[numcodecs.Quantize(digits=2, dtype="f8")],
    compressor=None,
    zarr_format=2,
)
print(quantized[:5].round(6).tolist(), np.abs(quantized[:] - np.sin(np.linspace(0, 6, 50))).max() < 0.01)

chained = zarr.create_array(
    store="chained.zarr",
    shape=(64, 8),
    chunks=(16, 8),
    dtype="<i8",
    filters=[numcodecs.Delta(dtype="<i8"), numcodecs.AsType(encode_dtype="<i2", decode_dtype="<i8")],
    compressors=numcodecs.BZ2(level=2),
    zarr_format=2,
)
chained[:] = np.arange(512).reshape(64, 8)
print(chained[60:62, :3].tolist(), zarr.open_array("chained.zarr", mode="r")[::20, 0].tolist())

flags = zarr.create_array(
    store={}, data=np.arange(40) % 3 == 0, chunks=16, filters=[numcodecs.PackBits()], compressors=None, zarr_format=2
)
print(flags[:9].tolist(), flags[:].sum())

shuffled = zarr.create_array(
    store="shuffled.zarr",
    data=np.arange(300, dtype="f4"),
    chunks=128,
    filters=[numcodecs.Shuffle(elementsize=4)],
    compressors=numcodecs.LZ4(),
    zarr_format=2,
)
print(shuffled[127:130].tolist(), zarr.load("shuffled.zarr").sum())

rounded = zarr.create_array(
    store={}, data=np.linspace(0, 1, 7, dtype="f4"), filters=[numcodecs.BitRound(keepbits=4)], zarr_format=2
)
print(rounded[:].tolist())
