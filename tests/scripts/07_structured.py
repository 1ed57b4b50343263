"""Arrays of records with fields."""

import numpy as np

import zarr

people = np.array(
    [(b"aaa", 1, 4.2), (b"bbb", 2, 8.4), (b"ccc", 3, 12.6)],
    dtype=[("name", "S3"), ("count", "i4"), ("weight", "f8")],
)
z = zarr.array(people, chunks=2)
print(z.dtype.names, z.shape, z[0], z[1:]["count"])
print(z[:]["weight"], z[:2][["name", "count"]].tolist())

catalogue = zarr.create_array(
    store="catalogue.zarr",
    shape=(1000,),
    chunks=(100,),
    dtype=[("ra", "<f8"), ("dec", "<f8"), ("magnitude", "<f4"), ("id", "<i8"), ("variable", "?")],
)
rows = np.zeros(1000, catalogue.dtype)
rows["ra"] = np.linspace(0, 360, 1000, endpoint=False)
rows["dec"] = np.linspace(-90, 90, 1000)
rows["id"] = np.arange(1000)
rows["magnitude"] = 10 + rows["id"] % 5
rows["variable"] = rows["id"] % 3 == 0
catalogue[:] = rows

again = zarr.open_array("catalogue.zarr", mode="r")
print(again[500]["id"], again[500].tolist(), again.dtype["ra"].kind)
bright = again[:][again[:]["magnitude"] < 11]
print(len(bright), bright["id"][:4], again.fill_value)
print(again.oindex[[3, 5, 999]]["id"], again.vindex[[10, 20]]["ra"].round(2))

catalogue[5] = (1.5, -2.5, 3.5, 77, True)
catalogue[6:8] = np.array([(1, 2, 3, 4, False), (5, 6, 7, 8, True)], catalogue.dtype)
print(catalogue[4:8].tolist())

# The same in format 2.
old = zarr.create_array(store="old.zarr", data=people, chunks=(2,), zarr_format=2)
print(zarr.open("old.zarr", mode="r")[:].tolist(), zarr.open("old.zarr", mode="r").dtype == people.dtype)
counted = old[:]
counted["count"] = [10, 20, 30]
old[:] = counted
print(old[:].tolist())

# Fields in fields.
nested = np.dtype([("position", [("x", "f4"), ("y", "f4")]), ("time", "i8")])
n = zarr.create_array(store={}, shape=(4,), chunks=(2,), dtype=nested)
n[1] = ((1.0, 2.0), 3)
print(n[:2].tolist(), n[:]["position"]["y"])
