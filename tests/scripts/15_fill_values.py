"""Fill values, and chunks that hold nothing else."""

import os

import numpy as np

import zarr


def files(place):
    return sum(name not in ("zarr.json", ".zarray", ".zattrs") for _, _, names in os.walk(place) for name in names)


for dtype, fill in [
    ("i4", 7),
    ("f8", np.nan),
    ("f4", np.inf),
    ("f2", 0.1),
    ("u1", 255),
    ("?", True),
    ("c8", 1 + 2j),
    ("S3", b"ab"),
    ("U3", "äöü"),
]:
    for zarr_format in (2, 3):
        z = zarr.create_array(
            store="fill.zarr",
            shape=(3,),
            chunks=2,
            dtype=dtype,
            fill_value=fill,
            zarr_format=zarr_format,
            overwrite=True,
        )
        again = zarr.open("fill.zarr", mode="r")
        print(dtype, zarr_format, again.fill_value, again[:].tolist(), files("fill.zarr"))

for dtype in ("i8", "f4", "?", "c16", "U2", "S2", "M8[s]"):
    z = zarr.create_array(store={}, shape=(2,), dtype=dtype)
    print(dtype, repr(z.fill_value.item() if hasattr(z.fill_value, "item") else z.fill_value), z[:].tolist())

none = zarr.create_array(store="none.zarr", shape=(4,), chunks=2, dtype="i2", fill_value=None, zarr_format=2)
none[:2] = 3
print(none[:2], files("none.zarr"))

# Empty chunks are not written, unless wanted.
z = zarr.create_array(store="sparse.zarr", shape=(100,), chunks=(10,), dtype="i4")
z[:] = 0
print(files("sparse.zarr"), z.nchunks_initialized)
z[5] = 1
z[95] = 1
print(files("sparse.zarr"), z.nchunks_initialized)
z[:10] = 0
print(files("sparse.zarr"), z.nchunks_initialized, z[90:].sum())

dense = zarr.create_array(
    store="dense.zarr", shape=(100,), chunks=(10,), dtype="i4", config={"write_empty_chunks": True}
)
dense[:] = 0
print(files("dense.zarr"), dense.nchunks_initialized)
with zarr.config.set({"array.write_empty_chunks": True}):
    other = zarr.create_array(store="other.zarr", shape=(100,), chunks=(10,), dtype="i4")
    other[:50] = 0
print(files("other.zarr"))
old = zarr.open("old.zarr", mode="w", shape=(10,), chunks=(5,), dtype="i4", write_empty_chunks=True, zarr_format=2)
old[:] = 0
print(files("old.zarr"))
again = zarr.open_array("sparse.zarr", mode="r+").with_config({"write_empty_chunks": True})
again[:10] = 0
print(files("sparse.zarr"))
