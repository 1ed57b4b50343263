"""A climate record that grows month by month, with coordinates and packed values beside it."""

import calendar

import numpy as np

import zarr

lat, lon = np.linspace(60, 40, 5), np.linspace(0, 30, 7)
root = zarr.open_group("climate.zarr", mode="w", attributes={"Conventions": "CF-1.8", "institution": "ΩMO"})
root.create_array("lat", data=lat, dimension_names=["lat"], attributes={"units": "degrees_north"})
root.create_array("lon", data=lon, dimension_names=["lon"], attributes={"units": "degrees_east"})
root.create_array(
    "time",
    shape=(0,),
    chunks=(100,),
    dtype="i4",
    dimension_names=["time"],
    attributes={"units": "days since 2023-01-01", "calendar": "standard"},
)
root.create_array(
    "t2m",
    shape=(0, 5, 7),
    chunks=(31, 5, 7),
    dtype="i2",
    fill_value=-32768,
    dimension_names=["time", "lat", "lon"],
    attributes={"scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768},
)


def temperature(days):
    season = 10 * np.sin(2 * np.pi * (days - 80) / 365)[:, None, None]
    return 288 + season - (lat[None, :, None] - 50) / 2 + lon[None, None, :] / 30


start = 0
for month in range(1, 13):
    root = zarr.open_group("climate.zarr", mode="a")  # each month in a run of its own
    days = np.arange(start, start + calendar.monthrange(2023, month)[1])
    t2m, attrs = root["t2m"], root["t2m"].attrs
    packed = np.round((temperature(days) - attrs["add_offset"]) / attrs["scale_factor"]).astype("i2")
    root["time"].append(days)
    t2m.append(packed)
    root.attrs["history"] = [*root.attrs.get("history", []), f"2023-{month:02}"]
    start += len(days)
zarr.consolidate_metadata("climate.zarr")

climate = zarr.open_consolidated("climate.zarr", mode="r")
t2m = climate["t2m"]
print(t2m.shape, climate["time"].shape, t2m.metadata.dimension_names, len(climate.attrs["history"]))
values = t2m[:] * t2m.attrs["scale_factor"] + t2m.attrs["add_offset"]
print(values.mean(axis=(1, 2))[[0, 100, 364]].round(3).tolist())
months = (np.datetime64("2023-01-01") + climate["time"][:]).astype("M8[M]").astype(int) % 12
means = [round(float(values[months == month].mean()), 2) for month in range(12)]
print(means)
print(t2m[59:90:15, 2, 3].tolist(), t2m.nchunks, t2m.nchunks_initialized, climate["lat"][:].tolist())
summer = t2m.oindex[np.flatnonzero((months >= 5) & (months <= 7)), 0, [0, 6]]
print(summer.shape, int(summer.sum(dtype="i8")), sorted(climate.array_keys()))

# Last month again, corrected.
december = zarr.open_array("climate.zarr/t2m", mode="r+")
december[334:] = december[334:] + 100
print(int(zarr.open("climate.zarr/t2m", mode="r")[334:].sum(dtype="i8")))
