# zellige only: some of these names of 2.x are deprecated in 3.x, and the others are gone
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
assert d2[19, 9] == 199
assert d3[:].tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]

paths = []
root.visit(paths.append)
assert sorted(paths) == ["bar", "bar/d1", "baz"]
shapes = {}
root.visititems(lambda path, node: shapes.update({path: getattr(node, "shape", None)}))
assert shapes == {"bar": None, "bar/d1": (20, 10), "baz": (5,)}
assert sorted(name for name, _ in root.items()) == ["bar", "baz"]
assert sorted(value.name for value in root.values()) == ["/bar", "/baz"]
print(root.tree())
print(zarr.tree(root["bar"]))

assert (d1.nbytes, d1.order, len(d1)) == (800, "C", 20)
assert [int(row[0]) for row in d1] == list(range(0, 200, 10))
d1.shape = (25, 10)
assert d1.shape == (25, 10)
assert not d1[20:].any()

# Objects, and what they are.
names = root.create_dataset("names", shape=3, dtype=object, object_codec=numcodecs.VLenUTF8())
names[:] = ["Ada", "Grace", "Αθηνά"]
assert root["names"][:].tolist() == ["Ada", "Grace", "Αθηνά"]
labels = root.create_dataset(
    "labels", shape=4, dtype=object, filters=[numcodecs.Categorize(labels=["low", "high"], dtype=object)]
)
labels[:] = ["low", "high", "low", "high"]
assert root["labels"][:].tolist() == ["low", "high", "low", "high"]
ragged = root.create_dataset("ragged", shape=2, dtype=object, object_codec=numcodecs.VLenArray("i4"))
ragged[:] = np.array([np.array([1, 2, 3]), np.array([4])], dtype=object)
assert [list(row) for row in root["ragged"][:]] == [[1, 2, 3], [4]]
