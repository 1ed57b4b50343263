"""The libraries, as the scenarios call them: each as its documentation says, with its own defaults.

zellige
    This checkout, on local directories with `durability="process"`, its default for chunks.
tensorstore
    The `zarr3` driver on the `file` key-value store, no cache. It knows no attributes and no groups; to append is to
    resize and to write.
zarrs
    zarr-python with `codec_pipeline.path` set to `zarrs.ZarrsCodecPipeline`: chunks are read and written by zarrs,
    documents by zarr-python.
zarr
    zarr-python as it comes, with rectilinear grids allowed.
careless
    No library, and not in the table: uncompressed chunks written in place, without locks, lengths or checks. The
    tests show with it that the scenarios notice what they look for.

A method that a library has no counterpart for raises `NoneError`, which the table shows as "none".
"""

from __future__ import annotations

import importlib
import json
import os
import time
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from reliability import documents

ALL = slice(None)


class NoneError(Exception):
    """The library has no such feature."""


class NotHereError(Exception):
    """The library is not installed."""


class Library:
    """How the scenarios call a library; here what zellige and zarr-python have in common.

    Made, it has imported its library and used nothing of it: it may be handed to forked processes.
    """

    name = ""
    title = ""
    module: ModuleType
    imports: tuple[str, ...] = ()

    def __init__(self) -> None:
        try:
            self.module, *_ = [importlib.import_module(name) for name in self.imports]
        except ImportError as error:
            raise NotHereError(f"{self.title} does not import: {error}") from None

    # -- arrays -----------------------------------------------------------------------------------

    def open(self, path: str) -> Any:
        """A handle to read and write."""
        return self.module.open_array(path, mode="r+")

    def read(self, array: Any, index: Any = ALL) -> np.ndarray:
        """`array[index]`."""
        return np.asarray(array[index])

    def write(self, array: Any, index: Any, value: Any) -> None:
        """`array[index] = value`."""
        array[index] = value

    def append(self, path: str, rows: np.ndarray) -> None:
        """Open an array and add rows at its end."""
        self.open(path).append(rows, axis=0)

    def resize(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Change the shape; returns the handle to go on with."""
        array.resize(shape)
        return array

    def set_attribute(self, array: Any, key: str, value: int) -> None:
        """Set one attribute."""
        array.attrs[key] = value

    def attributes(self, path: str) -> dict[str, Any]:
        """All attributes, as stored."""
        return dict(self.open(path).attrs)

    # -- creating ---------------------------------------------------------------------------------

    def create(self, path: str) -> None:
        """Create an array; an error if there is one."""
        self.module.create_array(path, shape=(8,), chunks=(8,), dtype="int64")

    def create_by_default(self, path: str, values: np.ndarray) -> str:
        """Write an array of one zstd chunk, coded as the library does it unless told otherwise; says how."""
        array = self.module.create_array(path, shape=values.shape, chunks=values.shape, dtype=values.dtype)
        array[...] = values
        return _chain(path)

    def create_below(self, root: str, name: str) -> None:
        """Create an array below a group."""
        self.module.open_group(root, mode="r+").create_array(name, shape=(8,), chunks=(8,), dtype="int64")

    def below(self, root: str, name: str) -> np.ndarray:
        """The values of an array that a group's consolidated metadata names, by its name or by listing."""
        group = self.module.open_group(root, mode="r")
        found = dict(group.arrays())
        return np.asarray((found[name] if name in found else group[name])[...])

    def put_key(self, root: str, key: str) -> None:
        """Write a value with the store of the library."""
        raise NoneError

    def put_durably(self, path: str, value: Any) -> None:
        """Write all of an array so that it survives a power cut."""
        raise NoneError


def _chain(path: str) -> str:
    """The codecs in a document, in words."""
    with open(f"{path}/zarr.json") as file:
        codecs = json.load(file)["codecs"]
    words = []
    for codec in codecs[1:]:
        checked = codec.get("configuration", {}).get("checksum")
        words.append(codec["name"] + " with checksum" * bool(checked))
    return ", ".join(words) or "no codec"


class Zellige(Library):
    """Our own library, from here."""

    name = title = "zellige"
    imports = ("zellige", "zellige.nodes.open", "zellige.nodes.create", "zellige.nodes.group", "zellige.stores")

    def put_key(self, root: str, key: str) -> None:
        """Write a value with the store."""
        self.module.LocalStore(root).put(key, b"let in")

    def put_durably(self, path: str, value: Any) -> None:
        """Write all of an array, durably."""
        self.module.open_array(path, mode="r+", config={"durability": "power"})[...] = value


class Zarr(Library):
    """zarr-python as it comes."""

    name, title = "zarr", "zarr-python"
    imports: tuple[str, ...] = ("zarr", "zarr.storage", "zarr.core.sync")
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        if "array.rectilinear_chunks" in self.module.config:
            self.module.config.set({"array.rectilinear_chunks": True})
        self.module.config.set(self.settings)

    def put_key(self, root: str, key: str) -> None:
        """Write a value with the store."""
        from zarr.core.buffer import default_buffer_prototype
        from zarr.core.sync import sync

        value = default_buffer_prototype().buffer.from_bytes(b"let in")
        sync(self.module.storage.LocalStore(root).set(key, value))


class Zarrs(Zarr):
    """zarr-python with the pipeline of zarrs."""

    name = title = "zarrs"
    imports = (*Zarr.imports, "zarrs")
    settings: ClassVar = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}


class TensorStore(Library):
    """TensorStore."""

    name, title = "tensorstore", "TensorStore"
    imports = ("tensorstore",)

    def _spec(self, path: str) -> dict[str, Any]:
        return {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}

    def open(self, path: str) -> Any:
        """A handle to read and write."""
        return self.module.open(self._spec(path), read=True, write=True).result()

    def read(self, array: Any, index: Any = ALL) -> np.ndarray:
        """Read a box."""
        values: np.ndarray = array[index].read().result()
        return values

    def write(self, array: Any, index: Any, value: Any) -> None:
        """Write a box, and wait until it is written."""
        array[index].write(value).result()

    def append(self, path: str, rows: np.ndarray) -> None:
        """Resize and write."""
        array = self.open(path)
        end = array.shape[0]
        shape = [end + len(rows), *array.shape[1:]]
        array.resize(exclusive_max=shape, expand_only=True).result()[end : end + len(rows)].write(rows).result()

    def resize(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Change the shape; returns the handle to go on with."""
        return array.resize(exclusive_max=shape).result()

    def set_attribute(self, array: Any, key: str, value: int) -> None:
        """There are none."""
        raise NoneError

    def create(self, path: str) -> None:
        """Create an array; an error if there is one."""
        metadata = documents.document([8], [8])
        self.module.open({**self._spec(path), "metadata": metadata}, create=True, open=False).result()

    def create_by_default(self, path: str, values: np.ndarray) -> str:
        """Write an array of one zstd chunk, with the settings that zstd has here."""
        shape = list(values.shape)
        metadata = documents.document(shape, shape, [{"name": "bytes"}, {"name": "zstd"}], str(values.dtype))
        array = self.module.open({**self._spec(path), "metadata": metadata}, create=True).result()
        array.write(values).result()
        return _chain(path)

    def create_below(self, root: str, name: str) -> None:
        """Create an array at a path."""
        self.create(f"{root}/{name}")

    def below(self, root: str, name: str) -> np.ndarray:
        """There are no groups."""
        raise NoneError

    def put_key(self, root: str, key: str) -> None:
        """Write a value with the key-value store."""
        store = self.module.KvStore.open({"driver": "file", "path": f"{root}/"}).result()
        store.write(key, b"let in").result()


class Careless(Library):
    """What the scenarios must catch; arrays of one axis, uncompressed."""

    name = title = "careless"
    imports = ("numpy",)

    def open(self, path: str) -> Any:
        """The directory and the parsed document."""
        with open(f"{path}/zarr.json") as file:
            return path, json.load(file)

    def _pieces(self, array: Any, index: Any) -> list[tuple[str, slice, slice]]:
        """For each chunk of a range its file, where the range is in it, and where it is in the range."""
        path, metadata = array
        size = metadata["chunk_grid"]["configuration"]["chunk_shape"][0]
        start, stop, _ = index.indices(metadata["shape"][0])
        found = []
        for k in range(start // size, -(-stop // size)):
            low, high = max(start, k * size), min(stop, (k + 1) * size)
            where = slice(low - k * size, high - k * size)
            found.append((f"{path}/c/{k}", where, slice(low - start, high - start)))
        return found

    def _chunk(self, array: Any, file: str) -> np.ndarray:
        metadata = array[1]
        values = np.zeros(metadata["chunk_grid"]["configuration"]["chunk_shape"], metadata["data_type"])
        if os.path.exists(file):
            data = np.fromfile(file, values.dtype)
            values[: len(data)] = data
        return values

    def read(self, array: Any, index: Any = ALL) -> np.ndarray:
        """Whatever the files hold, and zeros where they end."""
        parts = [self._chunk(array, file)[where] for file, where, _ in self._pieces(array, index)]
        return np.concatenate(parts) if parts else np.zeros(0, array[1]["data_type"])

    def write(self, array: Any, index: Any, value: Any) -> None:
        """Read, change, and write over what is there."""
        given = np.asarray(value)
        for file, where, place in self._pieces(array, index):
            values = self._chunk(array, file)
            values[where] = (given[place] if given.ndim else given).astype(values.dtype)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            half = len(values) // 2
            with open(file, "wb") as out:
                out.write(values[:half])
                out.flush()
                time.sleep(0.001)  # so that little luck is needed to be caught
                out.write(values[half:])

    def resize(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Only the document."""
        path, metadata = array
        documents.make(path, {**metadata, "shape": list(shape)})
        return self.open(path)

    def set_attribute(self, array: Any, key: str, value: int) -> None:
        """Read the document, change it, write it."""
        path, _ = array
        metadata = self.open(path)[1]
        metadata["attributes"][key] = value
        documents.make(path, metadata)

    def attributes(self, path: str) -> dict[str, Any]:
        """All attributes."""
        found: dict[str, Any] = self.open(path)[1]["attributes"]
        return found

    def create(self, path: str) -> None:
        """Look, then write."""
        if os.path.exists(f"{path}/zarr.json"):
            raise FileExistsError(path)
        time.sleep(0.001)
        documents.make(path, documents.document([8], [8]))

    def create_by_default(self, path: str, values: np.ndarray) -> str:
        """There is no zstd."""
        raise NoneError

    def create_below(self, root: str, name: str) -> None:
        """Wherever the name leads."""
        self.create(f"{root}/{name}")

    def below(self, root: str, name: str) -> np.ndarray:
        """Wherever the name leads."""
        return self.read(self.open(f"{root}/{name}"))

    def put_key(self, root: str, key: str) -> None:
        """Wherever the key leads."""
        with open(f"{root}/{key}", "wb") as file:
            file.write(b"let in")


LIBRARIES: dict[str, type[Library]] = {kind.name: kind for kind in (Zellige, TensorStore, Zarrs, Zarr, Careless)}
OURS = Zellige.name
SHOWN = (Zellige.name, TensorStore.name, Zarrs.name, Zarr.name)
