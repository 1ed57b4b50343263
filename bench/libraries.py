"""The libraries, each called as its documentation says, with its own defaults; all open local directories.

zellige
    This checkout. Threads: as many as this process may use CPUs.
tensorstore
    The `zarr3` driver on the `file` key-value store, opened by `ts.open(spec, read=True, write=…).result()` and
    nothing else in the spec: no cache (`cache_pool` 0), `recheck_cached_*` as they are (without a cache only the
    metadata is checked, when an array is opened), `file_io_concurrency` and `data_copy_concurrency` shared, which
    means one thread for each CPU and at least 4 for files, `file_io_sync` on (fsync costs nothing on tmpfs).
    Values are numpy arrays from `.read().result()`; writes are waited for by `.write(values).result()`.
    It knows no groups: listing one means the `list` of its key-value store, then opening every array at once.
zarr
    zarr-python with its default pipeline (`BatchedCodecPipeline`).
zarr-fused
    zarr-python with `codec_pipeline.path` set to `zarr.core.codec_pipeline.FusedCodecPipeline`, which is not its
    default. Releases without it are left out, and the output says so.
zarrs
    zarr-python with `codec_pipeline.path` set to `zarrs.ZarrsCodecPipeline`. What that pipeline cannot do (oindex
    and vindex over three axes, steps) goes to zarr-python's own, as for every user; results in F order are an error.
zarrista
    The binding of the Rust library zarrs itself: `zarrista.Array.open(FilesystemStore(path), "/")`, values by
    `np.asarray(array[index])`. It reads and writes boxes; it has no steps, arrays of indices or F order, so those cases
    are without it. Threads: those of Rayon, one for each CPU.
numpy
    Not measured: the oracle that the others are compared with.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

Get = Callable[[Any], Any]
Put = Callable[[Any, Any], None]


class NotHereError(Exception):
    """A library, or what it needs, is not installed."""


class Library:
    """How the cases call a library; here what zellige and zarr-python have in common."""

    name = ""
    imports = ""
    """What a script imports to use it."""

    def __init__(self) -> None:
        self.module = self.load(self.imports)

    @staticmethod
    def load(name: str) -> ModuleType:
        """Import a module, or say that it is not here."""
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise NotHereError(f"{name} does not import: {error}") from None

    def open(self, path: str, mode: str = "r", order: str = "C") -> Any:
        """Open an array."""
        return self.module.open_array(path, mode=mode, **({"config": {"order": order}} if order != "C" else {}))

    def script_to_open(self, path: str) -> str:
        """Python code that imports the library and opens an array."""
        return f"import {self.imports} as lib; lib.open_array({path!r}, mode='r')"

    def create(self, path: str, arguments: dict[str, Any]) -> Any:
        """Create an array."""
        return self.module.create_array(path, **arguments)

    def create_group(self, path: str) -> None:
        """Create a group."""
        self.module.create_group(path)

    def consolidate(self, path: str) -> None:
        """Collect the metadata of a group."""
        self.module.consolidate_metadata(path)

    def getter(self, array: Any) -> Get:
        """A function that reads `array[index]`."""
        return array.__getitem__

    def setter(self, array: Any) -> Put:
        """A function that writes `array[index] = value`."""
        return array.__setitem__

    def orthogonal(self, array: Any) -> Get:
        """A function that reads `array.oindex[index]`."""
        return array.oindex.__getitem__

    def pointwise(self, array: Any) -> Get:
        """A function that reads `array.vindex[index]`."""
        return array.vindex.__getitem__

    def members(self, path: str) -> list[Any]:
        """Open all arrays of a group."""
        return [array for _, array in self.module.open_group(path, mode="r").arrays()]

    def axis(self, array: Any) -> Any:
        """The first axis of an array's grid, which finds the chunks of indices."""
        return array.grid.dimensions[0]


class Zellige(Library):
    """Our own library, from here."""

    name = imports = "zellige"


class Zarr(Library):
    """zarr-python as it comes."""

    name = imports = "zarr"
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        if "array.rectilinear_chunks" in self.module.config:
            self.module.config.set({"array.rectilinear_chunks": True})
        self.module.config.set(self.settings)

    def axis(self, array: Any) -> Any:
        """The first axis of the grid."""
        return array._chunk_grid.dimensions[0]


class Fused(Zarr):
    """zarr-python with its fused pipeline."""

    name = "zarr-fused"
    settings: ClassVar = {"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(self.load("zarr.core.codec_pipeline"), "FusedCodecPipeline"):
            raise NotHereError(f"zarr-python {self.module.__version__} has no fused pipeline")


class Zarrs(Zarr):
    """zarr-python with the pipeline of zarrs."""

    name = "zarrs"
    settings: ClassVar = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}

    def __init__(self) -> None:
        self.load("zarrs")
        super().__init__()


class Zarrista(Library):
    """The Python binding of zarrs."""

    name = imports = "zarrista"

    def open(self, path: str, mode: str = "r", order: str = "C") -> Any:
        """Open an array, which is always ready to write."""
        return self.module.Array.open(self.module.store.FilesystemStore(path), "/")

    def script_to_open(self, path: str) -> str:
        """Python code that imports the library and opens an array."""
        return f"import zarrista; zarrista.Array.open(zarrista.store.FilesystemStore({path!r}), '/')"

    def getter(self, array: Any) -> Get:
        """A function that reads a box, or one element: zarrista keeps axes of length 1."""

        def get(index: Any) -> Any:
            values = np.asarray(array[index])
            return values if index is ... or isinstance(index[0], slice) else values.reshape(())

        return get

    def members(self, path: str) -> list[Any]:
        """Open all arrays of a group."""
        found: list[Any] = self.module.Group.open(self.module.store.FilesystemStore(path), "/").child_arrays()
        return found


class TensorStore(Library):
    """TensorStore."""

    name = imports = "tensorstore"

    def _open(self, path: str, mode: str) -> Any:
        return self.module.open(self._spec(path), read=True, write=mode != "r")

    @staticmethod
    def _spec(path: str) -> dict[str, Any]:
        return {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}

    def script_to_open(self, path: str) -> str:
        """Python code that imports the library and opens an array."""
        return f"import tensorstore as ts; ts.open({self._spec(path)!r}, read=True).result()"

    def open(self, path: str, mode: str = "r", order: str = "C") -> Any:
        """Open an array; in F order, a pair that `getter` understands."""
        array = self._open(path, mode).result()
        return array if order == "C" else (array, order)

    def getter(self, array: Any) -> Get:
        """A function that reads a box."""
        if isinstance(array, tuple):
            return lambda index: array[0][index].read(order=array[1]).result()
        return lambda index: array[index].read().result()

    def setter(self, array: Any) -> Put:
        """A function that writes a box."""
        return lambda index, value: array[index].write(value).result()

    def orthogonal(self, array: Any) -> Get:
        """A function that reads by an outer index."""
        return lambda index: array.oindex[index].read().result()

    def pointwise(self, array: Any) -> Get:
        """A function that reads points."""
        return lambda index: array.vindex[index].read().result()

    def members(self, path: str) -> list[Any]:
        """List the documents below a directory, and open their arrays."""
        keys = self.module.KvStore.open({"driver": "file", "path": f"{path}/"}).result().list().result()
        names = [key[:-10].decode() for key in keys if key.endswith(b"/zarr.json")]
        return [array.result() for array in [self._open(f"{path}/{name}", "r") for name in names]]


class Numpy(Library):
    """The oracle: the same operations on an array in memory."""

    name = imports = "numpy"

    def getter(self, array: Any) -> Get:
        """A function that reads `array[index]`."""
        return lambda index: np.asarray(array[index])

    def orthogonal(self, array: Any) -> Get:
        """A function that reads by an outer index."""
        return lambda index: array[np.ix_(*index)]

    def pointwise(self, array: Any) -> Get:
        """A function that reads points."""
        return array.__getitem__

    def members(self, path: str) -> list[Any]:
        """The names of what is in a directory, without the document."""
        return [name for name in os.listdir(path) if name != "zarr.json"]


LIBRARIES = {kind.name: kind for kind in (Zellige, TensorStore, Zarrista, Zarrs, Fused, Zarr, Numpy)}
OURS = Zellige.name
PEERS = (TensorStore.name, Zarrista.name, Zarrs.name, Fused.name, Zarr.name)
TITLES = {
    Zellige.name: "zellige",
    TensorStore.name: "TensorStore",
    Zarrista.name: "zarrista",
    Zarrs.name: "zarrs",
    Fused.name: "zarr fused",
    Zarr.name: "zarr",
    "regular": "own regular",
}
