"""What is stored for the cases: arrays of int16, smooth with noise, and how they are cut and encoded.

A scale divides the length of every axis, never the size of a chunk: small runs do the same work, less often.
"""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from bench.libraries import Library

CODECS: dict[str, dict[str, Any] | None] = {
    "raw": None,
    "zstd": {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
    "blosc": {
        "name": "blosc",
        "configuration": {"typesize": 2, "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0},
    },
    "gzip": {"name": "gzip", "configuration": {"level": 1}},
}
TRANSPOSE = {"name": "transpose", "configuration": {"order": [2, 1, 0]}}


def smooth(shape: tuple[int, ...]) -> np.ndarray:
    """Waves along the axes plus four bits of noise, as int16; always the same values for a shape."""
    waves = [(2000 * np.sin(np.arange(n, dtype="float32") / (17 + 6 * k))).astype("int16") for k, n in enumerate(shape)]
    noise = np.random.default_rng(0).integers(0, 16, shape, dtype="uint8")
    values = noise.astype("int16")
    for axis, wave in enumerate(waves):
        values += np.expand_dims(wave, [k for k in range(len(shape)) if k != axis])
    return values


def source(folder: str, shape: tuple[int, ...]) -> np.ndarray:
    """The values of an array of this shape, made once for each folder."""
    file = Path(folder, f"source-{'x'.join(map(str, shape))}.npy")
    if not file.exists():
        np.save(file, smooth(shape))
    return np.load(file)


def checksum(values: object) -> str:
    """Type, shape and a checksum of an array's values in C order; other values as they print."""
    if not isinstance(values, np.ndarray):
        return str(values)
    return f"{values.dtype.str}{list(values.shape)} {zlib.crc32(np.ascontiguousarray(values)):08x}"


def uneven(count: int, size: int, multiple: int = 1) -> list[int]:
    """As many edges with the same sum as `count` chunks of one size, each within 30 % of it."""
    most = int(0.3 * size / multiple) * multiple
    shifts = np.random.default_rng(count).integers(-most // multiple, most // multiple + 1, count // 2) * multiple
    edges = [size] * (count % 2)
    for shift in shifts.tolist():
        edges += [size + shift, size - shift]
    return edges


@dataclass(frozen=True)
class Layout:
    """A cube of int16, or several in a row along the first axis, cut into cubic chunks."""

    side: int
    chunk: int
    codec: str = "raw"
    shard: int | None = None
    uneven: bool = False
    """Chunks (of shards: shards) of sizes within 30 % of the stated one."""
    transposed: bool = False
    writer: str = "zarr"
    """Who writes the array that all read."""
    blocks: int = 1
    copy: int = 0
    """Tells arrays apart that differ only in where they lie."""

    @property
    def name(self) -> str:
        """The name of its directory."""
        return "-".join(str(value) for value in vars(self).values())

    @property
    def outer(self) -> int:
        """The size along each axis of what is stored as one value."""
        return self.shard or self.chunk

    def length(self, scale: int) -> int:
        """The side of the cube, always whole chunks."""
        return max(1, self.side // scale // self.outer) * self.outer

    def shape(self, scale: int) -> tuple[int, int, int]:
        """The shape of the array."""
        n = self.length(scale)
        return (self.blocks * n, n, n)

    def edges(self, n: int) -> int | list[int]:
        """How an axis of some length is cut into stored values."""
        return uneven(n // self.outer, self.outer, self.chunk if self.shard else 1) if self.uneven else self.outer

    def arguments(self, scale: int) -> dict[str, Any]:
        """The arguments of `create_array`, which are the same for zellige and zarr-python."""
        shape = self.shape(scale)
        cut = tuple(self.edges(n) for n in shape)
        inner = (self.chunk,) * 3
        return {
            "shape": shape,
            "dtype": "int16",
            "chunks": inner if self.shard else cut,
            "shards": cut if self.shard else None,
            "compressors": CODECS[self.codec],
            "filters": [TRANSPOSE] if self.transposed else None,
            "fill_value": 0,
        }

    def write(self, library: Library, folder: str, scale: int) -> None:
        """Write the array into its place in the folder."""
        array = library.create(f"{folder}/{self.name}", self.arguments(scale))
        n = self.length(scale)
        values = source(folder, (n, n, n))
        for k in range(self.blocks):
            array[k * n : (k + 1) * n] = values


@dataclass(frozen=True)
class Grid:
    """One axis with very many chunks, none of them stored: as a few runs, or one edge after the other."""

    count: int
    runs: bool
    writer: str = "zellige"

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"grid-{self.count}-{'runs' if self.runs else 'edges'}"

    def edges(self, scale: int) -> list[Any]:
        """The declared edges: 3 runs, or sizes from 50 to 149 that are nowhere equal twice in a row."""
        count = self.count // scale**3
        if self.runs:
            return [[100, count // 2], [50, count // 4], [200, count - count // 2 - count // 4]]
        sizes = np.random.default_rng(0).integers(50, 100, count)
        sizes[1::2] += 50
        return sizes.tolist()

    def write(self, _library: Library, folder: str, scale: int) -> None:
        """Write the document, which is all there is of the array."""
        edges = self.edges(scale)
        extent = sum(e[0] * e[1] for e in edges) if self.runs else sum(edges)
        document = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [extent],
            "data_type": "int16",
            "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [edges]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "fill_value": 0,
            "attributes": {},
        }
        place = Path(folder, self.name)
        place.mkdir()
        (place / "zarr.json").write_text(json.dumps(document, separators=(",", ":")))


@dataclass(frozen=True)
class Members:
    """A group of many small arrays, with consolidated metadata or without."""

    count: int
    consolidated: bool
    writer: str = "zarr"

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"group-{self.count}-{'consolidated' if self.consolidated else 'plain'}"

    def write(self, library: Library, folder: str, scale: int) -> None:
        """Write the first array, and copies of it with attributes of their own."""
        place = f"{folder}/{self.name}"
        library.create_group(place)
        layout = Layout(side=64, chunk=64, codec="zstd")
        array = library.create(f"{place}/a0", layout.arguments(1))
        array[...] = source(folder, layout.shape(1))
        document = json.loads(Path(place, "a0", "zarr.json").read_text())
        for k in range(1, self.members(scale)):
            shutil.copytree(f"{place}/a0", f"{place}/a{k}")
            document["attributes"] = {"number": k, "units": "K"}
            Path(place, f"a{k}", "zarr.json").write_text(json.dumps(document))
        if self.consolidated:
            library.consolidate(place)

    def members(self, scale: int) -> int:
        """How many arrays there are."""
        return max(2, self.count // scale**3)


Stored = Layout | Grid | Members
