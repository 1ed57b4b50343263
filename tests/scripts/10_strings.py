"""Text: of any length, of one length, and as objects in format 2."""

import numcodecs
import numpy as np

import zarr

greetings = ["Hello, World!", "Bonjour", "مرحبا", "こんにちは", "", "Здравствуйте", "¡Hola!", "안녕"]

# Variable length in format 3.
z = zarr.create_array(store="greetings.zarr", shape=(8,), chunks=(3,), dtype="string", fill_value="?")
z[:] = np.array(greetings, dtype=object)
print(z[0], z[2:5].tolist(), z.fill_value, len(str(z[1])))
z[1] = "Ça va?"
z[-1:] = "longer than it was before"
print(zarr.open("greetings.zarr", mode="r")[:].tolist())
z.resize((10,))
print(z[8:].tolist(), z.oindex[[0, 9]].tolist())

s = zarr.create_array(store={}, data=np.array(greetings, dtype=np.dtypes.StringDType()), chunks=4)
print(s[:].tolist(), s.shape, [len(text) for text in s[:]])

# Fixed length.
u = zarr.create_array(store="fixed.zarr", data=np.array(["abc", "de", "fghij"]), chunks=2)
print(u.dtype.kind, u.dtype.itemsize, u[:].tolist(), u.fill_value == "")
u[1] = "fives"
print(u[1], zarr.open("fixed.zarr", mode="r")[1:].tolist())
b = zarr.create_array(store={}, data=np.array([b"x", b"yyy"]))
print(b.dtype, b[:].tolist())

# Format 2: objects, and the codec that says what they are.
v = zarr.create_array(
    store="objects.zarr",
    shape=(8,),
    chunks=(4,),
    dtype=str,
    zarr_format=2,
    filters=[numcodecs.VLenUTF8()],
    compressors=numcodecs.Zstd(level=3),
)
v[:] = np.array(greetings, dtype=object)
print(v[:].tolist(), zarr.open("objects.zarr", mode="r")[5])
w = zarr.array(np.array(["a", "bb", "ccc"], dtype=object), dtype=str, zarr_format=2)
print(w[:].tolist())

fixed = zarr.open_array("fixed2.zarr", mode="w", shape=4, dtype="U6", zarr_format=2, chunks=2)
fixed[:2] = ["Łódź", "naïve"]
print(fixed[:].tolist(), fixed.dtype.kind)
