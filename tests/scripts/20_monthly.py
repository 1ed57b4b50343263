# zellige only: zarr-python has one chunk shape for all chunks
"""Daily climate data, one chunk for each month, appended month by month."""

import calendar

import numpy as np
import zarr

months = [calendar.monthrange(2023, month)[1] for month in range(1, 13)]
root = zarr.open_group("climate.zarr", mode="w", attributes={"Conventions": "CF-1.8"})
t = root.create_array(
    "t2m",
    shape=(sum(months), 4, 5),
    chunks=(months, 2, 5),
    dtype="f4",
    fill_value=np.nan,
    dimension_names=["time", "lat", "lon"],
    attributes={"units": "K"},
)
day = np.arange(365)
t[:] = (280 + 10 * np.sin(2 * np.pi * day / 365))[:, None, None] + np.zeros((4, 5))
time = root.create_array("time", data=np.datetime64("2023-01-01") + day, chunks=[months], dimension_names=["time"])
print(t.write_chunk_sizes, t.nchunks, t.chunks if hasattr(t, "chunks") else "no single shape")

for month in range(1, 4):
    length = calendar.monthrange(2024, month)[1]
    start = np.datetime64(f"2024-{month:02}-01")
    t.append(np.full((length, 4, 5), 280 + month, "f4"), chunks=[length])
    time.append(start + np.arange(length), chunks=[length])
print(t.shape, t.write_chunk_sizes[0][-4:], time[-1])
print([float(t.blocks[k].mean().round(3)) for k in range(3)], t.blocks[13].shape)

feb = zarr.open("climate.zarr", mode="r")["t2m"].blocks[1]
print(feb.shape, feb[0, 0, 0].round(4), t[58:60, 0, 0].round(4).tolist())
