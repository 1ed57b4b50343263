"""From one store into another, with other chunks, codecs or formats."""

import numpy as np
from zarr.codecs import BloscCodec
from zarr.storage import LocalStore, MemoryStore

import zarr

memory = MemoryStore()
source = zarr.create_array(
    store=memory,
    name="source",
    shape=(50, 40),
    chunks=(10, 8),
    dtype="f4",
    attributes={"units": "m/s", "comment": "wind"},
    dimension_names=("y", "x"),
)
source[:25] = np.arange(1000).reshape(25, 40)

# As it is.
attributes = dict(source.attrs)
copy = zarr.from_array(store="copy.zarr", data=source, attributes=attributes)
print(copy.shape, copy.chunks, copy.dtype, copy.fill_value, np.array_equal(copy[:], source[:]))
print(copy.metadata.dimension_names, copy.nchunks_initialized)

# With other chunks and another compressor.
rechunked = zarr.from_array(
    store=LocalStore("rechunked.zarr"),
    data=source,
    chunks=(25, 40),
    compressors=BloscCodec(cname="zstd"),
    attributes=attributes,
)
print(rechunked.chunks, type(rechunked.compressors[0]).__name__, rechunked[24, 39], rechunked[25:].any())

# In format 2, sharded, and empty.
bare = zarr.create_array(store=memory, name="bare", data=source[:], chunks=(10, 8))
old = zarr.from_array(store="old.zarr", data=bare, zarr_format=2)
print(old.metadata.zarr_format, old[:].sum(), old.chunks)
sharded = zarr.from_array(store="sharded.zarr", data=source, shards=(20, 40), attributes=attributes)
print(sharded.shards, sharded.chunks, sharded[:].sum())
empty = zarr.from_array(store={}, data=source, write_data=False)
print(empty[:].any(), empty.chunks)

# From numpy, and by hand.
plain = zarr.from_array("plain.zarr", data=np.arange(12).reshape(3, 4), chunks=(2, 2))
print(plain[:].tolist())
target = zarr.open_group("target.zarr", mode="w")
for name, array in zarr.open_group(memory, mode="r").arrays():
    new = target.create_array(name, shape=array.shape, chunks=array.chunks, dtype=array.dtype)
    new.attrs.update(array.attrs)
    new[:] = array[:]
print(sorted(target), dict(target["source"].attrs), target["source"][:].max())
target["again"] = source[:]
print(target["again"].shape, np.array_equal(target["again"][:], source[:]))
