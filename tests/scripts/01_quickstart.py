"""The quickstart: create an array on disk, write, close, open again."""

import numpy as np

import zarr

z = zarr.create_array(
    store="data/example-1.zarr",
    shape=(100, 100),
    chunks=(10, 10),
    dtype="f4",
)
print(z.shape, z.chunks, z.dtype, z.fill_value, z.ndim, z.size, z.nbytes)

rng = np.random.default_rng(42)
values = rng.random((100, 100), dtype="f4")
z[:, :] = values
z[0, :] = np.arange(100)
z[:, 0] = np.arange(100)
z[50:60, 50:60] = 7

again = zarr.open_array("data/example-1.zarr", mode="r")
print(again[0, :5], again[:3, 0], again[55, 55], again[-1, -1] == values[-1, -1])
print(np.asarray(again).sum(dtype="f8").round(3), again[...].mean(dtype="f8").round(6))
print(again.nchunks, again.nchunks_initialized, again.cdata_shape)

try:
    again[0, 0] = 1
except ValueError:
    print("read-only", again.read_only)

# The way of 2.x, which many tutorials still show.
z2 = zarr.open("data/example-2.zarr", mode="w", shape=(1000, 10), chunks=(100, 10), dtype="i4", fill_value=-1)
z2[:500] = 42
z2[500:, ::2] = 7
print(z2[498:502].tolist())
print(zarr.open("data/example-2.zarr", mode="r")[:].sum())

# In memory.
m = zarr.zeros((4, 6), chunks=(2, 3), dtype="int64")
m[1:3, 2:] = 5
print(m[:])
print(zarr.ones(3)[:], zarr.full((2, 2), 3.5)[:].tolist(), zarr.array([1, 2, 3])[1:])
print(zarr.array(np.arange(6).reshape(2, 3), chunks=(1, 3)).chunks)
