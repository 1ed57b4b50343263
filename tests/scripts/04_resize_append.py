"""Arrays that grow and shrink."""

import numpy as np

import zarr

z = zarr.create_array(store="growing.zarr", shape=(100, 50), chunks=(10, 10), dtype="int32", fill_value=-1)
z[:] = np.arange(5000).reshape(100, 50)
z.resize((120, 55))
print(z.shape, z[99, 49], z[100, 0], z[0, 54], z.nchunks)
z.resize((20, 10))
print(z.shape, z[19, 9], z.nchunks, z.nchunks_initialized)
z.resize((30, 30))
print(z.shape, z[:].sum(), z[18:22, 5:12].tolist())
print(zarr.open("growing.zarr", mode="r").shape)

a = np.arange(10000, dtype="i4").reshape(1000, 10)
z = zarr.create_array(store="appended.zarr", data=a, chunks=(100, 4))
print(z.append(a), z.shape)
print(z.append(np.vstack([a[:7], a[:7]]), axis=0))
print(z.append(np.zeros((2014, 3), "i4"), axis=1), z.shape)
print(z[1000:1002, :10].tolist(), z[2007, 8:].tolist(), z[:].sum())

try:
    z.append(np.zeros((3, 99), "i4"))
except ValueError:
    print("another width is refused")

# A log, line by line.
log = zarr.create_array(store="log.zarr", shape=(0,), chunks=(4,), dtype="f8")
for k in range(10):
    log.append([k * 0.5])
print(log.shape, log[:].tolist(), log.nchunks)
log.resize(3)
print(log[:])
