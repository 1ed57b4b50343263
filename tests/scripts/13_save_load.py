"""Saving and loading in one line each."""

import numpy as np

import zarr

arr = np.arange(10000).reshape(100, 100)
zarr.save("example.zarr", arr)
print(np.array_equal(zarr.load("example.zarr"), arr))

zarr.save("several.zarr", arr[0], arr[:, 0] * 2)
several = zarr.open_group("several.zarr", mode="r")
print(sorted(several), several["arr_1"][:3])

zarr.save("named.zarr", foo=np.arange(5), bar=np.linspace(0, 1, 3))
named = zarr.open("named.zarr", mode="r")
print({name: array[:].tolist() for name, array in sorted(named.arrays())})

zarr.save_array("one.zarr", np.ones((2, 2), "f4"))
zarr.save_array("one.zarr", np.zeros((3, 3), "u1"), overwrite=True)
print(zarr.load("one.zarr").tolist(), zarr.load("one.zarr").dtype)
zarr.save_array("old.zarr", np.arange(4.0), zarr_format=2)
print(zarr.load("old.zarr"))

zarr.save_group("group.zarr", np.arange(3), extra=np.array([b"ab", b"c"]))
print(sorted(zarr.open_group("group.zarr").array_keys()), zarr.load("group.zarr", path="arr_0"))
zarr.save("group.zarr", np.eye(2), path="inner/eye")
print(zarr.load("group.zarr", path="inner/eye").tolist())
print(zarr.load("group.zarr", path="extra").tolist())

z = zarr.open("example.zarr", mode="r")
print(z.shape, z.dtype)
