"""Many small chunks in a few files."""

import os

import numpy as np
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

import zarr

z = zarr.create_array(
    store="sharded.zarr",
    shape=(1000, 100),
    shards=(500, 100),
    chunks=(50, 10),
    dtype="uint16",
    compressors=ZstdCodec(level=1),
)
z[:] = np.arange(100_000).reshape(1000, 100) % 65_000
print(z.shards, z.chunks, z.nchunks, z.shape)
print(sum(len(files) for _, _, files in os.walk("sharded.zarr/c")))

z[123, 45] = 7
z[490:510, 3] = np.arange(20)
again = zarr.open_array("sharded.zarr", mode="r")
print(again.shards, again.chunks, again[123, 44:47], again[489:512, 3].tolist(), again[:].sum())
print(again[::333, ::33].tolist(), again.oindex[[1, 999], [0, 99]].tolist(), again.blocks[0].shape)

small = zarr.create_array(store={}, shape=(64,), chunks=(8,), shards=(32,), dtype="i1", fill_value=1)
small[10] = 5
print(small[:16].tolist(), small.nchunks_initialized, type(small.serializer).__name__ if small.serializer else None)

auto = zarr.create_array(store={}, shape=(256, 256), chunks=(16, 16), shards=(128, 64), dtype="f8")
auto[:] = 1.5
auto.resize((300, 256))
print(auto.shards, auto[:].sum(), auto.append(np.ones((4, 256)))[0])

# By the codec itself, with the index at the start.
codec = ShardingCodec(
    chunk_shape=(8, 8),
    codecs=[BytesCodec(), ZstdCodec()],
    index_codecs=[BytesCodec(), Crc32cCodec()],
    index_location="start",
)
by_codec = zarr.create(shape=(32, 32), chunks=(16, 16), dtype="u1", codecs=[codec], zarr_format=3, store="codec.zarr")
by_codec[:20, :20] = np.arange(400).reshape(20, 20) % 256
print(by_codec.chunks, by_codec.shards, by_codec[:].sum(), zarr.open("codec.zarr", mode="r")[19, 19])
