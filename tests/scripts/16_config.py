"""Settings: ask, change for a while, change for good."""

import json

import numpy as np

import zarr

print(zarr.config.get("array.order"), zarr.config.get("array.write_empty_chunks"))
print(zarr.config.get("async.concurrency"), zarr.config.get("threading.max_workers"))
print(zarr.config.get("default_zarr_format"), zarr.config.get("no.such.key", "default"))

with zarr.config.set({"default_zarr_format": 2}):
    old = zarr.create_group("old.zarr")
    print(old.metadata.zarr_format, zarr.config.get("default_zarr_format"))
    print(zarr.zeros((2, 2)).metadata.zarr_format)
print(zarr.create_group("new.zarr").metadata.zarr_format)

with zarr.config.set({"array.order": "F"}):
    f = zarr.create_array(store={}, data=np.arange(6).reshape(2, 3))
    print(f.order, f[:].flags.f_contiguous, f[:].tolist())
print(zarr.create_array(store={}, data=np.arange(6).reshape(2, 3)).order)

with zarr.config.set({"async.concurrency": 4, "threading.max_workers": 2}):
    z = zarr.zeros((40, 40), chunks=(8, 8))
    z[:] = 3
    print(z[:].sum(), zarr.config.get("async.concurrency"))
print(zarr.config.get("async.concurrency"))

with zarr.config.set({"array": {"order": "F"}}), zarr.config.set({"json_indent": 4}):
    print(zarr.config.get("array.order"), zarr.config.get("json_indent"))
    zarr.create_group("indented.zarr")
with open("indented.zarr/zarr.json") as file:
    print("\n    " in file.read())

zarr.config.set({"array.order": "F"})
print(zarr.config.get("array.order"))
zarr.config.set({"array.order": "C"})
print(zarr.config.get("array.order"))

a = zarr.create_array(
    store="new.zarr", name="a", shape=(4,), dtype="i1", config={"order": "C", "write_empty_chunks": True}
)
a[:] = 0
print(a.config.write_empty_chunks, a.nchunks_initialized, a.with_config({"write_empty_chunks": False}).config.order)
with open("new.zarr/a/zarr.json") as file:
    print(json.load(file)["shape"], a.config.order)
