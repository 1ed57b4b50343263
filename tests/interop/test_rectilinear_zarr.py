"""zarr-python reads our rectilinear arrays, writes such that we read, and both see the same chunks.

Only zarr-python 3.4 or newer knows rectilinear grids, and it needs a newer Python than zellige does. So it
has its own interpreter, which runs peer_zarr_rectilinear.py: one process for each directory of arrays, and
the tests compare what it reports with what we see and with plain numpy.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from math import nan, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import zellige

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("peer_zarr_rectilinear.py")
NAMED = os.environ.get("ZELLIGE_PEER_PYTHON")
PYTHON = NAMED or str(ROOT / ".venv-peer" / "bin" / "python")

if not NAMED and not os.access(PYTHON, os.X_OK):
    pytest.skip(
        "the peer zarr-python 3.4 or newer is missing, which reads and writes rectilinear arrays: ZELLIGE_PEER_PYTHON "
        "is not set and there is no .venv-peer/bin/python in the repository; `make peer` makes it, "
        "with a Python 3.12 or newer on the machine",
        allow_module_level=True,
    )

# What the peer cannot do, or does wrong, when it makes the array of a case; skipped with this reason. It reads
# the same arrays when we make them.
_ENDS = "zarr-python creates only edges that end where the array ends; it has others after shrinking"
_STALE = "zarr-python leaves what a resize cut off in the last chunk, and shows it again after growing"
LIMITS = {
    "edges beyond the end": _ENDS,
    "edges beyond both ends": _ENDS,
    "grown within the edges": _ENDS,
    "cut and grown": _STALE,
}
# The same when the peer shrank an array and we grow it: the values are in its chunks.
LIMITS_OF_CHANGES = {**LIMITS, "shrunk along both axes": _STALE}

# -- cases ----------------------------------------------------------------------------------------

Step = dict[str, Any]


class Case(NamedTuple):
    """One array, and what happens to it before it is read."""

    shape: tuple[int, ...]
    chunks: list[Any]
    steps: tuple[Step, ...]
    dtype: str = "int32"
    fill: Any = -1
    chain: str = "little"
    keys: tuple[str, str] = ("default", "/")

    def arguments(self) -> dict[str, Any]:
        """For `create_array`, which has the same parameters on both sides."""
        codecs = CHAINS[self.chain]
        serializer = next(i for i, codec in enumerate(codecs) if codec["name"] == "bytes")
        name, separator = self.keys
        return {
            "shape": self.shape,
            "chunks": self.chunks,
            "dtype": self.dtype,
            "fill_value": self.fill,
            "filters": codecs[:serializer],
            "serializer": codecs[serializer],
            "compressors": codecs[serializer + 1 :],
            "chunk_key_encoding": {"name": name, "configuration": {"separator": separator}},
        }

    def document(self) -> dict[str, Any]:
        """The document by hand, with the edges spelt as they are here."""
        name, separator = self.keys
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape,
            "data_type": self.dtype,
            "chunk_grid": codec("rectilinear", kind="inline", chunk_shapes=self.chunks),
            "chunk_key_encoding": codec(name, separator=separator),
            "fill_value": self.fill,
            "codecs": CHAINS[self.chain],
        }


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, **({"configuration": configuration} if configuration else {})}


LITTLE, BIG = codec("bytes", endian="little"), codec("bytes", endian="big")
BLOSC = codec("blosc", cname="zstd", clevel=5, shuffle="bitshuffle", typesize=4, blocksize=0)
ZSTD = codec("zstd", level=1, checksum=True)
CHAINS = {
    "little": [LITTLE],
    "big": [BIG],
    "transposed": [codec("transpose", order=[1, 0]), LITTLE],
    "rotated": [codec("transpose", order=[2, 0, 1]), BIG, ZSTD, codec("crc32c")],
    "gzip": [LITTLE, codec("gzip", level=1)],
    "zstd": [LITTLE, codec("zstd", level=0, checksum=False)],
    "zstd checksum": [LITTLE, ZSTD],
    "blosc": [LITTLE, BLOSC],
    "crc32c": [LITTLE, codec("crc32c")],
    "all": [codec("transpose", order=[1, 0]), BIG, BLOSC, codec("gzip", level=5), codec("crc32c")],
}


def numbered(shape: Iterable[int], first: int) -> list[Any]:
    """Different numbers, as JSON."""
    shape = tuple(shape)
    return (first + np.arange(prod(shape)).reshape(shape)).tolist()


def write(shape: tuple[int, ...], *region: tuple[int, int] | tuple[int, int, int], first: int = 1) -> Step:
    """Write a region, or everything, of an array of this shape."""
    bounds = region or tuple((0, n) for n in shape)
    return {"do": "write", "region": bounds, "values": numbered((len(range(*b)) for b in bounds), first)}


def resize(*shape: int, **chunks: Any) -> Step:
    return {"do": "resize", "shape": shape, **chunks}


def append(*shape: int, axis: int = 0, first: int = 1000, **chunks: Any) -> Step:
    return {"do": "append", "axis": axis, "values": numbered(shape, first), **chunks}


def filled(shape: tuple[int, ...], chunks: list[Any], *steps: Step, **options: Any) -> Case:
    """An array that is written whole, before what follows."""
    return Case(shape, chunks, (write(shape), *steps), **options)


MIXED = (7, 5), [[3, 4], [2, 2, 1]]

COMMON = {
    "one axis": filled((10,), [[1, 2, 3, 4]]),
    "two axes": filled((6, 7), [[1, 2, 3], [3, 3, 1]]),
    "three axes": filled((5, 6, 4), [[2, 3], 4, [1, 1, 2]], chain="rotated"),
    "size and edges": filled((10, 20), [3, [5, 15]]),
    "edges and size": filled((9, 4), [[2, 7], 3]),
    "one edge": filled((10,), [[10]]),
    "uniform edges": filled((9,), [[3, 3, 3]]),
    "runs": filled((40, 3), [[4] * 7 + [1] * 2 + [5, 5], [1, 2]], chain="zstd"),
    "many chunks": filled((60,), [[1] * 20 + [2] * 20]),
    "edges beyond the end": filled((4,), [[1, 2, 3, 5]]),
    "edges beyond both ends": filled((4, 5), [[3, 3, 2], [4, 4]], chain="zstd checksum"),
    "no value written": Case((4, 5), [[1, 3], [2, 3]], ()),
    "some chunks missing": Case((6, 7), [[1, 2, 3], [3, 3, 1]], (write((6, 7), (1, 3), (2, 7)),)),
    "strided write": Case((9,), [[2, 3, 4]], (write((9,), (1, 9, 3)),)),
    "zero length": Case((0, 4), [2, [1, 3]], ()),
    **{f"chain {chain}": filled(*MIXED, chain=chain) for chain in CHAINS if chain != "rotated"},
    **{f"type {dtype}": filled(*MIXED, dtype=dtype, fill=1) for dtype in ("bool", "uint8", "int64", "complex64")},
    "type float64": filled(*MIXED, dtype="float64", fill=nan, chain="big"),
    "type float16": Case(*MIXED, (write((7, 5), (2, 5), (1, 3)),), dtype="float16", fill=-0.0),
    "keys default dot": filled(*MIXED, keys=("default", ".")),
    "keys v2 dot": filled(*MIXED, keys=("v2", ".")),
    "keys v2 slash": filled(*MIXED, keys=("v2", "/")),
    "shrunk to overflow": filled((10,), [[1, 2, 3, 4]], resize(4)),
    "shrunk along both axes": filled((6, 7), [[1, 2, 3], [3, 3, 1]], resize(2, 4), chain="gzip"),
    "shrunk to nothing": filled((6, 7), [[1, 2, 3], [3, 3, 1]], resize(0, 7)),
    "shrunk at an edge and grown": filled((10,), [[1, 2, 3, 4]], resize(6), resize(9)),
    "cut and grown": filled((10,), [[1, 2, 3, 4]], resize(5), resize(10)),
    "grown within the edges": Case((4,), [[1, 2, 3, 5]], (write((4,)), resize(11), write((11,), (5, 9)))),
}

OF_THE_PEER = {
    **COMMON,
    "grown beyond the edges": filled((9,), [[4, 5]], resize(20), write((20,), (7, 15), first=100)),
    "grown along both axes": filled(*MIXED, resize(9, 12), write((9, 12), (5, 9), (3, 12), first=100), chain="zstd"),
    "grown by size": filled((10, 4), [3, [1, 3]], resize(14, 4), write((14, 4), (9, 13), (0, 3), first=100)),
    "appended": filled((9,), [[4, 5]], append(3), append(2)),
    "appended along axis 1": filled(*MIXED, append(7, 3, axis=1), append(7, 1, axis=1), chain="blosc"),
    "appended to overflow": filled((10,), [[1, 2, 3, 4]], resize(7), append(5)),
}

OF_OURS = {
    **COMMON,
    "sizes only": filled((7, 5), [3, 2]),
    "runs as pairs": filled((22,), [[[4, 3], 1, [3, 3]]]),
    "a pair for each axis": filled((6, 8), [[[2, 3]], [[4, 2]]]),
    "a long run beyond the end": filled((7,), [[[2, 3], [1, 1000]]]),
    "grown by default": filled((9,), [[4, 5]], resize(20), write((20,), (7, 15), first=100)),
    "grown by a size": filled((9,), [[4, 5]], resize(20, chunks=[4]), write((20,), (7, 20), first=100)),
    "grown by edges": filled((9,), [[4, 5]], resize(20, chunks=[[1, 8, 2]]), write((20,), (7, 20), first=100)),
    "grown by edges to overflow": filled((9,), [[4, 5]], resize(12, chunks=[[1, 8, 2]])),
    "grown along both axes": filled(*MIXED, resize(9, 12, chunks=[[2], [[3, 2], 1]]), chain="zstd"),
    "grown along one axis of three": filled(
        (2, 3, 2), [[1, 1], 2, [2]], resize(2, 3, 7, chunks=[None, None, [4, 1]]), chain="rotated"
    ),
    "appended": filled((9,), [[4, 5]], append(3), append(2)),
    "appended by edges": filled((59,), [[31, 28]], append(61, chunks=[31, 30]), append(31, chunks=[31])),
    "appended by a size": filled((9,), [[4, 5]], append(7, chunks=2)),
    "appended along axis 1": filled(*MIXED, append(7, 3, axis=1, chunks=[1, 2]), chain="blosc"),
    "appended to overflow": filled((10,), [[1, 2, 3, 4]], resize(7), append(9, chunks=[6])),
    "regular become uneven": filled((6, 4), [3, 2], append(2, 4, chunks=[2])),
}

BY_HAND = {
    "sizes only": filled((7, 5), [3, 2]),
    "single edges": filled((7, 5), [[3, 4], [2, 2, 1]]),
    "pairs only": filled((12,), [[[4, 3]]]),
    "pairs and edges": filled((22,), [[[4, 3], 1, [3, 3]]]),
    "a pair of one": filled((5, 4), [[[2, 1], 3], [[4, 1]]]),
    "pairs that could be one": filled((12,), [[[2, 2], [2, 4]]], chain="crc32c"),
    "size beyond the end": filled((3, 4), [8, [1, 3]]),
    "edges beyond the end": filled((4, 3), [[1, 2, 3, 5], 2]),
    "a long run beyond the end": filled((7,), [[[2, 3], [1, 1000]]]),
    "three axes": filled((4, 3, 5), [[[1, 2], 2], 2, [[2, 2], 1]], chain="rotated"),
    "zero length": Case((0, 4), [[2], [1, 3]], ()),
}

# -- what should be there -------------------------------------------------------------------------


def after(case: Case, *more: Step) -> np.ndarray:
    """The values by plain numpy, which knows no chunks."""
    values = np.full(case.shape, case.fill, case.dtype)
    for step in (*case.steps, *more):
        if step["do"] == "write":
            values[tuple(slice(*bounds) for bounds in step["region"])] = np.array(step["values"]).astype(values.dtype)
        elif step["do"] == "resize":
            old, values = values, np.full(step["shape"], case.fill, case.dtype)
            kept = tuple(slice(min(n, m)) for n, m in zip(old.shape, values.shape, strict=True))
            values[kept] = old[kept]
        else:
            values = np.concatenate([values, np.array(step["values"]).astype(values.dtype)], step["axis"])
    return values


def change(array: zellige.Array, step: Step) -> None:
    """One step by us."""
    if step["do"] == "write":
        array[tuple(slice(*bounds) for bounds in step["region"])] = np.array(step["values"]).astype(array.dtype)
    elif step["do"] == "resize":
        array.resize(step["shape"], chunks=step.get("chunks"))
    else:
        array.append(np.array(step["values"]).astype(array.dtype), step["axis"], chunks=step.get("chunks"))


def ours(path: Path, case: Case) -> zellige.Array:
    """A new array of ours, after its steps."""
    array = zellige.create_array(path, **case.arguments(), chunk_grid="rectilinear")
    for step in case.steps:
        change(array, step)
    return array


def later(case: Case) -> list[Step]:
    """Steps for the other side, on an array whose own steps are done: write over chunks, grow, append."""
    shape = after(case).shape
    if not prod(shape):
        return []
    middle = [(n // 3, n // 3 + (n + 1) // 2) for n in shape]
    wider = (*shape[:-1], shape[-1] + 5)
    corner = [(n - 1, n) for n in shape[:-1]]
    return [
        write(shape, *middle, first=200),
        resize(*wider),
        write(wider, *corner, (shape[-1], shape[-1] + 3), first=300),
        append(2, *wider[1:], first=400),
    ]


# -- the peer -------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """What both sides see of one array."""

    path: Path
    array: zellige.Array
    peer: dict[str, Any]
    """The peer's report."""
    values: np.ndarray
    """The values that the peer read."""


class Directory(NamedTuple):
    """A directory of arrays, and the peer's report about all of them."""

    path: Path
    reports: dict[str, Any]

    def __getitem__(self, name: str) -> Seen:
        if name not in self.reports:
            pytest.skip(LIMITS_OF_CHANGES[name])
        assert "error" not in self.reports[name], self.reports[name]["error"]
        path = self.path / name
        return Seen(path, zellige.open_array(path), self.reports[name], np.load(self.path / f"{name}.npy"))


def ask(command: str, path: Path, cases: dict[str, Any] | None = None) -> Directory:
    """Let the peer do something with a directory of arrays."""
    if cases is not None:
        (path / "cases.json").write_text(json.dumps(cases))
    # Our PYTHONPATH is for another interpreter.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run([PYTHON, SCRIPT, command, path], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{PYTHON} failed:\n{done.stderr}"
    return Directory(path, json.loads(done.stdout))


@pytest.fixture(scope="module")
def made_by_peer(tmp_path_factory) -> Directory:
    able = {name: case for name, case in OF_THE_PEER.items() if name not in LIMITS}
    cases = {name: {"create": case.arguments(), "steps": case.steps} for name, case in able.items()}
    return ask("write", tmp_path_factory.mktemp("made_by_peer"), cases)


@pytest.fixture(scope="module")
def made_by_us(tmp_path_factory) -> Directory:
    path = tmp_path_factory.mktemp("made_by_us")
    for name, case in OF_OURS.items():
        ours(path / name, case)
    return ask("read", path)


@pytest.fixture(scope="module")
def made_by_hand(tmp_path_factory) -> Directory:
    path = tmp_path_factory.mktemp("made_by_hand")
    for name, case in BY_HAND.items():
        (path / name).mkdir()
        (path / name / "zarr.json").write_text(json.dumps(case.document()))
    return ask("write", path, {name: {"steps": case.steps} for name, case in BY_HAND.items()})


@pytest.fixture(scope="module")
def made_by_us_changed_by_peer(tmp_path_factory) -> Directory:
    path = tmp_path_factory.mktemp("changed_by_peer")
    for name, case in OF_OURS.items():
        ours(path / name, case)
    return ask("write", path, {name: {"steps": later(case)} for name, case in OF_OURS.items()})


@pytest.fixture(scope="module")
def made_by_peer_changed_by_us(tmp_path_factory, made_by_peer) -> Directory:
    path = tmp_path_factory.mktemp("changed_by_us")
    for name in made_by_peer.reports.keys() - LIMITS_OF_CHANGES:
        shutil.copytree(made_by_peer.path / name, path / name)
        array = zellige.open_array(path / name)
        for step in later(OF_THE_PEER[name]):
            change(array, step)
    return ask("read", path)


def check(seen: Seen, expected: np.ndarray) -> None:
    """Both sides see these values, and the same chunks."""
    array = seen.array
    for values in seen.values, array[...]:
        assert (values.dtype, values.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(values, expected)
        assert values.tobytes() == expected.tobytes()
    assert array.shape == tuple(seen.peer["shape"])
    assert [list(sizes) for sizes in array.write_chunk_sizes] == seen.peer["sizes"]
    assert array.cdata_shape == tuple(seen.peer["grid_shape"])
    assert array.metadata.chunk_grid.name == "rectilinear"
    # Edges as pairs or singly mean the same, a size and edges do not.
    assert [expand(dim.chunks) for dim in array.grid.dimensions] == [expand(axis) for axis in seen.peer["declared"]]


def expand(axis: Any) -> int | list[int]:
    """An axis of a document as a size, or as all of its edges."""
    if isinstance(axis, int):
        return axis
    pairs = ((entry, 1) if isinstance(entry, int) else entry for entry in axis)
    return [edge for edge, count in pairs for _ in range(count)]


def check_parts(array: zellige.Array, expected: np.ndarray) -> None:
    """Chunk by chunk, and across the chunks."""
    for chunk in array.iter_chunks():
        np.testing.assert_array_equal(array[chunk.slices], expected[chunk.slices])
    inner = tuple(slice(n // 4, n - n // 4, 2) for n in array.shape)
    np.testing.assert_array_equal(array[inner], expected[inner])


def stored(path: Path) -> dict[str, bytes]:
    """The stored chunks by key."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


# -- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_THE_PEER)
def test_we_read_what_the_peer_wrote(made_by_peer, name):
    seen, expected = made_by_peer[name], after(OF_THE_PEER[name])
    check(seen, expected)
    check_parts(seen.array, expected)


@pytest.mark.parametrize("name", OF_OURS)
def test_the_peer_reads_what_we_wrote(made_by_us, name):
    seen, expected = made_by_us[name], after(OF_OURS[name])
    check(seen, expected)
    check_parts(seen.array, expected)


@pytest.mark.parametrize("name", BY_HAND)
def test_both_read_every_spelling_of_edges(made_by_hand, name):
    seen, expected = made_by_hand[name], after(BY_HAND[name])
    check(seen, expected)
    check_parts(seen.array, expected)


@pytest.mark.parametrize("name", OF_OURS)
def test_we_read_our_arrays_after_the_peer_changed_them(made_by_us_changed_by_peer, name):
    check(made_by_us_changed_by_peer[name], after(OF_OURS[name], *later(OF_OURS[name])))


@pytest.mark.parametrize("name", OF_THE_PEER)
def test_the_peer_reads_its_arrays_after_we_changed_them(made_by_peer_changed_by_us, name):
    check(made_by_peer_changed_by_us[name], after(OF_THE_PEER[name], *later(OF_THE_PEER[name])))


@pytest.mark.parametrize("name", COMMON)
def test_both_store_the_same_chunks(made_by_peer, made_by_us, name):
    case = COMMON[name]
    found, expected = stored(made_by_us[name].path), stored(made_by_peer[name].path)
    assert found.keys() == expected.keys()
    resized = any(step["do"] == "resize" for step in case.steps)  # which we leave clean beyond the end, the peer not
    if case.chain in ("little", "big", "transposed", "crc32c") and not resized:  # no choice is left to the writer
        assert found == expected
