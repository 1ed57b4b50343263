"""Attributes of arrays and groups."""

import numpy as np

import zarr

root = zarr.create_group("attributes.zarr", attributes={"title": "Tides of the North Sea", "version": 3})
z = root.create_array("level", shape=(24,), dtype="f4", attributes={"units": "m", "valid_range": [-9.5, 9.5]})

root.attrs["foo"] = "bar"
z.attrs["scale_factor"] = 0.01
z.attrs["add_offset"] = -3
z.attrs["flags"] = {"good": 1, "bad": [2, 3, {"deeper": None}]}
z.attrs["unicode"] = "Ålesund – 東京 🌊"
z.attrs["ok"] = True
z.attrs["nothing"] = None

print(sorted(z.attrs), "units" in z.attrs, "missing" in z.attrs, len(z.attrs))
print(z.attrs["flags"]["bad"][2]["deeper"], z.attrs.get("missing", "default"), z.attrs["unicode"])
z.attrs.update({"units": "cm", "station": "Cuxhaven"})
z.update_attributes({"scale_factor": 1.0})
del z.attrs["nothing"]

again = zarr.open_group("attributes.zarr", mode="r")
print(sorted(again.attrs.items()))
print(dict(sorted(again["level"].attrs.asdict().items())))
print({key: type(value).__name__ for key, value in sorted(again["level"].attrs.items())})

# Attributes change through any handle; a new one sees them.
z = zarr.open_array("attributes.zarr/level", mode="r+")
z.attrs["history"] = ["created", "changed"]
print(zarr.open("attributes.zarr/level", mode="r").attrs["history"])

# Replace all at once.
root.attrs.put({"only": 1})
print(dict(root.attrs), dict(zarr.open("attributes.zarr", mode="r").attrs))
root.attrs.clear()
print(dict(zarr.open("attributes.zarr", mode="r").attrs))

# numpy values have to be made plain by hand.
z.attrs["mean"] = float(np.mean([1, 2, 4]))
z.attrs["shape"] = [int(n) for n in np.array([2, 3])]
print(round(z.attrs["mean"], 4), z.attrs["shape"])
try:
    z.attrs["missing"]
except KeyError as error:
    print("KeyError", error)
try:
    zarr.open("attributes.zarr/level", mode="r").attrs["x"] = 1
except (ValueError, PermissionError):
    print("read-only")
