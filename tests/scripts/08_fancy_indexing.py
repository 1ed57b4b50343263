"""Every way to index."""

import numpy as np

import zarr

data = np.arange(15 * 20).reshape(15, 20)
z = zarr.create_array(store="grid.zarr", data=data, chunks=(4, 6))

print(z[2, 3], z[2].shape, z[-1, -2:], z[::4, ::7].tolist(), z[..., 1].shape, z[3:3].shape)
print(z[5:2:1].shape, z[np.int64(3), np.uint8(4)], z[(1, 2)])

# Orthogonal: each axis on its own.
print(z.oindex[[1, 5, 14], [0, 19]].tolist())
print(z.oindex[:, [2, 2, 1]].shape, z.oindex[np.array([3, 1]), 2:4].tolist())
rows = np.zeros(15, dtype=bool)
rows[[0, 7]] = True
print(z.oindex[rows, 5:7].tolist(), z.get_orthogonal_selection((rows, 0)).tolist())

# By coordinates, and by mask.
print(z.vindex[[0, 3, 14], [1, 5, 19]], z.vindex[[[0, 1], [2, 3]], [[4, 5], [6, 7]]].tolist())
print(z.get_coordinate_selection(([0, -1], [0, -1])), z[[0, 1, 2], [3, 4, 5]])
mask = data % 50 == 0
print(z.vindex[mask], z.get_mask_selection(mask), z[mask])

# Whole chunks.
print(z.blocks[0, 0].tolist(), z.blocks[3, 3].tolist(), z.blocks[1].shape, z.blocks[-1, 1:3].shape)
print(z.get_block_selection((slice(1, 3), 0)).shape)

# Writing.
z[0] = -1
z[1:3, 4] = [10, 20]
z.oindex[[5, 7], [1, 2, 3]] = np.array([[1, 2, 3], [4, 5, 6]])
z.oindex[9, ::10] = -9
z.vindex[[10, 11, 12], [0, 0, 0]] = [-10, -11, -12]
z.set_coordinate_selection(([13], [13]), 1313)
z.set_mask_selection(data == 299, 0)
z.blocks[2, 2] = 77
z.set_block_selection((3, 0), np.zeros((3, 6), int))
z.set_basic_selection((slice(14, 15), slice(-3, None)), [[7, 8, 9]])
z.set_orthogonal_selection(([4], [4]), 44)
z[[3, 3], [0, 1]] = [30, 31]
print(z[:].tolist())
print(z[:].sum(), zarr.open("grid.zarr")[:].sum())

print(z.get_basic_selection(slice(1, 3), fields=None).shape, z.get_basic_selection(Ellipsis).shape)

for bad in [15, (0, 20), (0, 0, 0), -16]:
    try:
        z[bad]
    except IndexError:
        print("IndexError", bad)
try:
    z.vindex[[0, 1], [0, 25]]
except IndexError:
    print("IndexError in vindex")
