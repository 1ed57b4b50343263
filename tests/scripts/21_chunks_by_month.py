# zellige only: zarr-python 3.1 has one chunk shape for all chunks of an array
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
days = np.arange(365)
t[:] = days[:, None, None] + np.zeros((4, 5))
time = root.create_array("time", data=np.datetime64("2023-01-01") + days, chunks=[months], dimension_names=["time"])
assert t.write_chunk_sizes == (tuple(months), (2, 2), (5,))
assert t.nchunks == 24
assert getattr(t, "chunks", None) is None

for month in range(1, 4):
    length = calendar.monthrange(2024, month)[1]
    t.append(np.full((length, 4, 5), month, "f4"), chunks=[length])
    time.append(np.datetime64(f"2024-{month:02}-01") + np.arange(length), chunks=[length])
assert t.shape == (456, 4, 5)
assert t.write_chunk_sizes[0][-4:] == (31, 31, 29, 31)
assert time[-1] == np.datetime64("2024-03-31")

climate = zarr.open_group("climate.zarr", mode="r")
february = climate["t2m"].blocks[1]
assert february.shape == (28, 4, 5)
assert february[:, 0, 0].tolist() == list(range(31, 59))
assert climate["t2m"].blocks[13].shape == (29, 4, 5)
assert climate["time"].blocks[13].tolist()[-1].day == 29
print(climate.tree())
