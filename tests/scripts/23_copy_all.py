# zellige only: copy, copy_all and copy_store are names of 2.x that 3.x has, but does not implement
"""Copies of arrays, of groups and of whole stores."""

import numpy as np
from zarr.storage import LocalStore, MemoryStore

import zarr

store = LocalStore("source.zarr")
source = zarr.group(store=store, attributes={"title": "source"})
foo = source.create_group("foo")
baz = foo.create_array("bar/baz", shape=(100,), chunks=(50,), dtype="i4", attributes={"units": "m"})
baz[:] = np.arange(100)
foo.create_array("spam", shape=(100,), chunks=(30,), dtype="i4")

target = zarr.group(store="target.zarr")
zarr.copy(source["foo"], target)
assert sorted(target["foo"]) == ["bar", "spam"]
assert target["foo/bar/baz"].attrs["units"] == "m"
assert np.array_equal(target["foo/bar/baz"][:], np.arange(100))
zarr.copy(source["foo/bar/baz"], target, name="other")
assert target["other"].chunks == (50,)

everything = zarr.group(store="all.zarr")
zarr.copy_all(source, everything)
assert sorted(path for path, _ in everything.members(max_depth=None)) == ["foo", "foo/bar", "foo/bar/baz", "foo/spam"]

memory = MemoryStore()
zarr.copy_store(store, memory)
copied = zarr.open_group(memory, mode="r")
assert copied.attrs["title"] == "source"
assert copied["foo/bar/baz"][99] == 99
