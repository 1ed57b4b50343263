"""Data in format 2 as other programs leave it; orders, separators, and arrays without axes."""

import json
import os

import numpy as np

import zarr

# A directory that some other program has written.
os.makedirs("legacy.zarr/field")
with open("legacy.zarr/.zgroup", "w") as file:
    json.dump({"zarr_format": 2}, file)
with open("legacy.zarr/.zattrs", "w") as file:
    json.dump({"source": "some other program"}, file)
document = {
    "zarr_format": 2,
    "shape": [3, 5],
    "chunks": [2, 3],
    "dtype": ">i2",
    "compressor": None,
    "filters": None,
    "fill_value": -1,
    "order": "F",
}
with open("legacy.zarr/field/.zarray", "w") as file:
    json.dump(document, file)
with open("legacy.zarr/field/.zattrs", "w") as file:
    json.dump({"_ARRAY_DIMENSIONS": ["y", "x"]}, file)
field = np.arange(15).reshape(3, 5)
for i in range(2):
    for j in range(2):
        if (i, j) != (1, 1):
            block = np.zeros((2, 3), ">i2")
            part = field[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
            block[: part.shape[0], : part.shape[1]] = part
            with open(f"legacy.zarr/field/{i}.{j}", "wb") as file:
                file.write(block.tobytes(order="F"))

legacy = zarr.open("legacy.zarr", mode="r")
z = legacy["field"]
print(legacy.attrs["source"], z.shape, z.chunks, z.fill_value, z.order, z.attrs["_ARRAY_DIMENSIONS"])
print(z[:].tolist(), z[:].flags.f_contiguous, z.metadata.zarr_format)
zarr.open_array("legacy.zarr/field", mode="r+")[2, 3:] = [100, 200]
print(zarr.open_array("legacy.zarr/field", mode="r", zarr_format=2)[2].tolist(), z.nchunks_initialized)
try:
    zarr.open("legacy.zarr", mode="r", zarr_format=3)
except FileNotFoundError:
    print("not in format 3")

# Orders and separators.
data = np.arange(24).reshape(4, 6)
for order in ("C", "F"):
    for separator in (".", "/"):
        z = zarr.open_array(
            f"{order}-{'dot' if separator == '.' else 'slash'}.zarr",
            mode="w",
            shape=data.shape,
            chunks=(2, 3),
            dtype="i4",
            order=order,
            dimension_separator=separator,
            zarr_format=2,
            compressor=None,
        )
        z[:] = data
        print(order, separator, z.order, z[:].tolist() == data.tolist(), sorted(os.listdir(z.store.root))[-2:])
new = zarr.create_array(
    store="keys.zarr",
    data=data,
    chunks=(4, 3),
    chunk_key_encoding={"name": "v2", "separator": "."},
    dimension_names=["row", "column"],
)
print(sorted(os.listdir("keys.zarr")), new.metadata.dimension_names)
dots = zarr.create_array(
    store="dots.zarr", data=data, chunks=(4, 6), chunk_key_encoding={"name": "default", "separator": "."}
)
print(sorted(os.listdir("dots.zarr")), zarr.open("dots.zarr")[3, 5])

# No axes at all, and no elements.
for zarr_format in (2, 3):
    point = zarr.create_array(store=f"point{zarr_format}.zarr", shape=(), dtype="f8", zarr_format=zarr_format)
    point[...] = 42.5
    again = zarr.open_array(f"point{zarr_format}.zarr", mode="r")
    print(again.shape, again.chunks, again.ndim, again[()], float(again[...]), again.nchunks)
    nothing = zarr.create_array(store={}, shape=(0, 3), chunks=(2, 3), dtype="i4", zarr_format=zarr_format)
    print(nothing[:].shape, nothing.size, nothing.append(np.ones((2, 3), "i4")), nothing[1].tolist())
