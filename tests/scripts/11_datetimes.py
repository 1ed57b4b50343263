"""Dates and spans of time."""

import numpy as np

import zarr

days = np.arange("2024-01-01", "2025-01-01", dtype="datetime64[D]")
z = zarr.create_array(store="days.zarr", data=days, chunks=(100,))
print(z.dtype, z.shape, z[59], z[-1], z[366 - 3 :])
print(np.array_equal(zarr.open("days.zarr", mode="r")[:], days))
print((z[:] < np.datetime64("2024-03-01")).sum(), z[:].astype("M8[M]")[::100])

stamps = zarr.create_array(
    store="stamps.zarr", shape=(4,), dtype="datetime64[ns]", fill_value=np.datetime64("NaT", "ns")
)
stamps[1] = np.datetime64("2024-02-29T12:34:56.789")
stamps[2] = "1969-07-20T20:17:40"
print(stamps[:], np.isnat(stamps[:]), np.isnat(stamps.fill_value))

spans = zarr.create_array(store={}, data=np.diff(days[::30]), chunks=5)
print(spans.dtype, spans[:3], spans[:].sum())

old = zarr.create_array(store="old.zarr", data=days[:5].astype("M8[s]"), chunks=2, zarr_format=2)
print(old.dtype, zarr.open("old.zarr", mode="r")[:])
old[0] = "2000-01-01"
print(old[0], old[:1] == np.array(["2000-01-01"], "M8[s]"))
