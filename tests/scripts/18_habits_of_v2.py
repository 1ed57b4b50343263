# zellige only: some of these names of 2.x are deprecated or gone in 3.x
"""A program that was written for zarr 2 and never changed."""

import numcodecs
import numpy as np
import zarr

store = zarr.storage.LocalStore("old.zarr")
root = zarr.group(store=store, overwrite=True, zarr_format=2)
d1 = root.create_dataset("bar/d1", shape=(20, 10), chunks=(10, 10), dtype="i4", compressor=numcodecs.Blosc())
d1[:] = np.arange(200).reshape(20, 10)
d2 = root.require_dataset("bar/d1", shape=(20, 10), dtype="i4")
d3 = root.create_dataset("baz", data=np.linspace(0, 1, 5), compressor=None)
objects = root.create_dataset("names", shape=3, dtype=object, object_codec=numcodecs.VLenUTF8())
objects[:] = ["Ada", "Grace", "Αθηνά"]
labels = root.create_dataset(
    "labels", shape=4, dtype=object, filters=[numcodecs.Categorize(labels=["low", "high"], dtype=object)]
)
labels[:] = ["low", "high", "low", "high"]
ragged = root.create_dataset("ragged", shape=2, dtype=object, object_codec=numcodecs.VLenArray("i4"))
ragged[0], ragged[1] = np.array([1, 2, 3]), np.array([4])
print(d2[19, 9], d3[:], objects[:].tolist(), labels[:].tolist(), [list(row) for row in ragged[:]])

root.visit(lambda path: print("visit", path))
root.visititems(lambda path, node: print(path, node.name, getattr(node, "shape", None)))
print(sorted(name for name, _ in root.items()), [value.name for value in root.values()][:1])
print(root.tree(plain=True))
print(zarr.tree(root["bar"], plain=True))

print(d1.info_complete() is not None, d1.nbytes, d1.order, len(d1), [int(row[0]) for row in d1][:3])
d1.shape = (25, 10)
print(d1.shape, d1[-1].tolist())

target = zarr.open_group("target.zarr", mode="w")
zarr.copy(root["bar"], target)
zarr.copy(root["baz"], target, name="other")
zarr.copy_all(root["bar"], target)
zarr.copy_store(store, zarr.storage.LocalStore("copied.zarr"))
print(sorted(target), sorted(target["bar"]), target["d1"][19, 9], zarr.open("copied.zarr")["names"][:].tolist())
