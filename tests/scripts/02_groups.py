"""Groups in groups, and what can be asked of them."""

import numpy as np

import zarr

root = zarr.group("experiment.zarr")
foo = root.create_group("foo")
bar = foo.create_group("bar", attributes={"kind": "inner"})
z1 = bar.create_array("baz", shape=(100, 100), chunks=(10, 10), dtype="i4")
z1[:] = 42
root.create_array("measurements/2024/temperature", shape=(12,), dtype="f8")[:] = np.linspace(0, 11, 12)

print(root.name, foo.name, bar.name, z1.name, z1.path, z1.basename, bar.basename)
print(root["foo/bar/baz"].shape, root["foo"]["bar"]["baz"][0, 0])
print("foo" in root, "foo/bar/baz" in root, "nothing" in root, "foo/nothing" in root)
print(sorted(root), sorted(root.keys()), len(root))
print(sorted(root.group_keys()), sorted(root.array_keys()), sorted(foo.group_keys()), sorted(bar.array_keys()))
for name, group in sorted(root.groups()):
    print(name, group.nmembers(), group.nmembers(max_depth=None))
for name, array in bar.arrays():
    print(name, array.dtype, array.chunks)
for path, node in sorted(root.members(max_depth=None), key=lambda item: item[0]):
    print(path, "array" if isinstance(node, zarr.Array) else "group", dict(node.attrs))

# Opening by path, and again.
print(zarr.open_group("experiment.zarr", path="foo/bar", mode="r").attrs["kind"])
print(zarr.open_group("experiment.zarr/foo", mode="r")["bar/baz"][99, 99])
print(zarr.open_array("experiment.zarr", path="measurements/2024/temperature", mode="r")[3])
print(zarr.open("experiment.zarr", path="foo", mode="r").name)
print(isinstance(zarr.open("experiment.zarr"), zarr.Group))

# Requiring.
print(root.require_group("foo").name, root.require_group("new/deep").path)
a, b = root.require_groups("foo", "other")
print(a.name, b.name)
print(root.require_array("foo/bar/baz", shape=(100, 100), dtype="i4")[5, 5])
print(root.require_array("required", shape=(3,), dtype="u1", chunks=(2,)).chunks)
try:
    root.require_array("required", shape=(4,), dtype="u1")
except TypeError:
    print("another shape is refused")

# Assigning and deleting.
root["numbers"] = np.arange(5)
print(root["numbers"][:], root.get("numbers").shape, root.get("gone", "nothing there"))
del root["numbers"]
del root["foo/bar"]
print(sorted(root), sorted(root["foo"]))
try:
    root["numbers"]
except KeyError:
    print("KeyError")
for name in ("numbers", "foo/bar/baz"):
    print(root.get(name))

# Creating over what is there.
for overwrite in (False, True):
    try:
        root.create_group("measurements", overwrite=overwrite)
    except Exception:  # noqa: BLE001
        print("there already")
print(list(root["measurements"]))
