"""Prepare samples region by region, then read random batches, as for training."""

import numpy as np
from zarr.codecs import BloscCodec

import zarr

n, height, width = 200, 16, 16
root = zarr.open_group("train.zarr", mode="w")
images = root.create_array(
    name="images",
    shape=(n, height, width, 3),
    chunks=(16, height, width, 3),
    dtype="uint8",
    compressors=BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
)
labels = root.create_array(name="labels", shape=(n,), chunks=(64,), dtype="int64")
weights = root.create_array(name="weights", shape=(n,), chunks=(64,), shards=(128,), dtype="float32", fill_value=1)

rng = np.random.default_rng(0)
for start in range(0, n, 30):  # does not line up with the chunks
    stop = min(start + 30, n)
    images[start:stop] = rng.integers(0, 256, (stop - start, height, width, 3), dtype="uint8")
    labels[start:stop] = np.arange(start, stop) % 10
weights[10:20] = weights[10:20] * 0.5
root.attrs["classes"] = [f"class {k}" for k in range(10)]


class Dataset:
    def __init__(self, path):
        self.root = zarr.open_group(path, mode="r")
        self.images, self.labels = self.root["images"], self.root["labels"]

    def __len__(self):
        return self.images.shape[0]

    def __getitem__(self, index):
        return self.images[index].astype("f4") / 255, int(self.labels[index])


dataset = Dataset("train.zarr")
image, label = dataset[123]
print(len(dataset), image.shape, round(float(image.mean()), 6), label)

order = np.random.default_rng(1).permutation(len(dataset))
total, seen = 0.0, np.zeros(10, int)
for k in range(0, len(order), 32):
    batch = np.sort(order[k : k + 32])
    x = dataset.images.oindex[batch]
    y = dataset.labels.oindex[batch]
    total += float(x.mean(dtype="f8"))
    seen += np.bincount(y, minlength=10)
print(round(total, 6), seen.tolist())

# In any order, and points with replacement.
batch = order[:8]
x, y = dataset.images.oindex[batch, 4:12, 4:12], dataset.labels.vindex[batch]
print(x.shape, y.tolist(), int(x.sum()))
picked = np.random.default_rng(2).integers(0, n, 12)
print(dataset.labels.get_coordinate_selection(picked).tolist(), zarr.open_array("train.zarr/weights")[8:12].tolist())

# A running mean, chunk by chunk.
mean = np.zeros((height, width, 3))
for start in range(0, n, dataset.images.chunks[0]):
    mean += dataset.images[start : start + dataset.images.chunks[0]].sum(axis=0)
print((mean / n).mean().round(6), dataset.root.attrs["classes"][3])
