"""Whole hierarchies, and arrays like others."""

import numpy as np
from zarr.storage import LocalStore

import zarr

# Arrays after others.
a = zarr.array(np.arange(20, dtype="i2").reshape(4, 5), chunks=(2, 5))
z = zarr.zeros_like(a)
print(z.shape, z.chunks, z.dtype, z[:].sum(), zarr.ones_like(a, dtype="f4")[:].sum())
print(
    zarr.full_like(a, fill_value=9)[0],
    zarr.empty_like(a, chunks=(4, 1)).chunks,
    zarr.zeros_like(np.ones((2, 3)))[:].tolist(),
)

root = zarr.group(store=LocalStore("hierarchy.zarr"), attributes={"Conventions": "CF-1.8"})
root.zeros(name="zeros", shape=(2, 2), dtype="u1")
root.ones(name="ones", shape=3)
root.full(name="full", shape=(2,), fill_value=4, dtype="i8", chunks=1)
root.empty(name="empty", shape=(2,), dtype="f4")[:] = [1, 2]
root.zeros_like(name="zeros_like", data=a)
root.ones_like(name="ones_like", data=a)
root.full_like(name="full_like", data=a, fill_value=6)
root.create_array("data", data=np.arange(4.0))
deep = root.create_group("a").create_group("b").create_group("c")
deep.create_array("x", shape=(6, 6), chunks=(3, 3), dtype="i4", attributes={"deep": True})[:] = 1
for path, node in sorted(root.members(max_depth=None), key=lambda item: item[0]):
    if isinstance(node, zarr.Array):
        print(path, node.shape, node.dtype, node[...].sum(), dict(node.attrs))
    else:
        print(path, node.nmembers())
print([name for name, _ in sorted(root.members(max_depth=1), key=lambda item: item[0]) if "/" in name])

# Many nodes at once, described by others' metadata.
nodes = {"groups/one": root.metadata, "groups/one/x": root["a/b/c/x"].metadata, "groups/two": root["a"].metadata}
made = dict(zarr.create_hierarchy(store=root.store, nodes=nodes))
print(sorted(made), made["groups/one/x"].shape, dict(root["groups/one"].attrs), root["groups/one/x"][:].sum())
below = dict(root.create_hierarchy({"more": root["a"].metadata, "more/y": root["ones"].metadata}))
print(sorted(below), root["more/y"][:])
print(root.tree())
print(sorted(root.group_keys()), [array.ndim for array in root["a/b/c"].array_values()])
