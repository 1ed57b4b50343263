"""Shards between zellige, zarr-python and TensorStore: each reads and changes what the others wrote.

Physical order is free in a shard, so bytes are compared only where a shard holds a single inner chunk. Shards
of a rectilinear grid need a newer zarr-python: it has its own interpreter, as in test_rectilinear_zarr.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.metadata import version
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import zellige
from zellige.codecs import ShardingCodec

# What a peer cannot do, or does wrong: (peer, case) and the reason.
_SQUARE = "zarr-python compares the inner shape with the shard's shape as it is before the transpose"
_AROUND = "TensorStore refuses bytes-to-bytes codecs after sharding_indexed"
LIMITS = {
    ("zarr", "rank 0"): "zarr-python fails when it writes a shard without axes, and reads one",
    ("zarr", "transposed before"): _SQUARE,
    ("zarr", "three axes rotated before"): _SQUARE,
    ("tensorstore", "compressed as a whole"): _AROUND,
    ("tensorstore", "checksum of the whole"): _AROUND,
}
if tuple(map(int, version("zarr").split(".")[:2])) >= (3, 4):
    del LIMITS["zarr", "rank 0"]

pytestmark = pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec disables partial reads")

# -- cases ----------------------------------------------------------------------------------------


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, **({"configuration": configuration} if configuration else {})}


LITTLE, BIG, CRC = codec("bytes", endian="little"), codec("bytes", endian="big"), codec("crc32c")
GZIP, ZSTD = codec("gzip", level=5), codec("zstd", level=3, checksum=True)
BLOSC = codec("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=4, blocksize=0)
TURN = codec("transpose", order=[1, 0])


def sharding(
    chunk_shape: Any, codecs: Any = (LITTLE,), index: Any = (LITTLE, CRC), location: str = "end"
) -> dict[str, Any]:
    options = {"codecs": list(codecs), "index_codecs": list(index), "index_location": location}
    return codec("sharding_indexed", chunk_shape=list(chunk_shape), **options)


class Case(NamedTuple):
    """One array, whoever makes it."""

    serializer: dict[str, Any] = sharding((2, 3))
    shape: tuple[int, ...] = (7, 11)
    shards: tuple[int, ...] = (4, 6)
    dtype: str = "int32"
    fill: Any = 0
    filters: tuple[Any, ...] = ()
    compressors: tuple[Any, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """For `create_array` of zellige and of zarr-python."""
        return {
            "shape": self.shape,
            "chunks": self.shards,
            "dtype": self.dtype,
            "fill_value": np.array(self.fill, self.dtype)[()],
            "filters": list(self.filters),
            "serializer": self.serializer,
            "compressors": list(self.compressors),
        }

    def document(self) -> dict[str, Any]:
        """For TensorStore."""
        return {
            "shape": self.shape,
            "data_type": self.dtype,
            "chunk_grid": codec("regular", chunk_shape=self.shards),
            "fill_value": "NaN" if self.fill is nan else [self.fill, 0] if self.dtype[0] == "c" else self.fill,
            "codecs": [*self.filters, self.serializer, *self.compressors],
        }

    def values(self) -> np.ndarray:
        """Numbers; the last third of the rows, some columns and a whole inner chunk hold the fill value."""
        size = int(np.prod(self.shape, dtype=int))
        values = np.arange(1, size + 1).reshape(self.shape).astype(self.dtype)
        if values.ndim and size:
            values[-len(values) // 3 :] = self.fill
            values[..., :: max(2, values.shape[-1] // 2)] = self.fill
            values[tuple(slice(n) for n in self.inner)] = self.fill  # a whole inner chunk
        return values

    @property
    def inner(self) -> tuple[int, ...]:
        return tuple(self.serializer["configuration"]["chunk_shape"])


CASES = {
    "index at the end": Case(),
    "index at the start": Case(sharding((2, 3), location="start")),
    "index without checksum": Case(sharding((2, 3), index=[LITTLE])),
    "big index": Case(sharding((2, 3), index=[BIG])),
    "big index with checksum at the start": Case(sharding((2, 3), index=[BIG, CRC], location="start")),
    "big": Case(sharding((2, 3), [BIG])),
    "gzip": Case(sharding((2, 3), [LITTLE, GZIP])),
    "zstd": Case(sharding((2, 3), [LITTLE, ZSTD])),
    "blosc": Case(sharding((2, 3), [LITTLE, BLOSC])),
    "crc32c": Case(sharding((2, 3), [LITTLE, CRC], location="start")),
    "all": Case(sharding((2, 3), [TURN, BIG, BLOSC, GZIP, ZSTD, CRC])),
    "fill of 7": Case(fill=7),
    "shards as large as the array": Case(shape=(8, 12), shards=(8, 12)),
    "one shard beyond the array": Case(sharding((3, 2)), shape=(4, 5), shards=(9, 8)),
    "one plain inner chunk": Case(sharding((4, 6))),
    "one inner chunk": Case(sharding((4, 6), [LITTLE, ZSTD])),
    "inner chunks of one element": Case(sharding((1, 1)), shape=(3, 5), shards=(2, 2)),
    "many inner chunks": Case(sharding((5, 4), [LITTLE, ZSTD]), shape=(43, 37), shards=(30, 20)),
    "one axis": Case(sharding((3,), [LITTLE, GZIP]), (20,), (9,)),
    "three axes": Case(sharding((1, 2, 3), [LITTLE, CRC]), (3, 5, 7), (2, 4, 6), "uint8"),
    "zero length": Case(shape=(0, 5)),
    "rank 0": Case(sharding(()), (), ()),
    "bool": Case(dtype="bool", fill=False),
    "int16": Case(sharding((2, 3), [BIG, ZSTD]), dtype="int16", fill=-1),
    "float64": Case(dtype="float64", fill=nan),
    "complex64": Case(dtype="complex64", fill=1),
    "transposed inside": Case(sharding((2, 3), [TURN, LITTLE, ZSTD])),
    "transposed before, square": Case(sharding((2, 2)), shards=(4, 4), filters=(TURN,)),
    "transposed before": Case(sharding((3, 2), [LITTLE, GZIP]), filters=(TURN,)),
    "three axes rotated before": Case(
        sharding((3, 1, 2)), (3, 5, 7), (2, 4, 6), filters=(codec("transpose", order=[2, 0, 1]),)
    ),
    "nested": Case(sharding((2, 6), [sharding((1, 3))], location="start")),
    "nested with codecs": Case(sharding((4, 3), [sharding((2, 1), [BIG, ZSTD], [BIG], "start")], [LITTLE])),
    "nested and transposed": Case(sharding((2, 6), [TURN, sharding((3, 1), [LITTLE, CRC])])),
    "nested twice": Case(sharding((4, 6), [sharding((2, 6), [sharding((1, 2), [LITTLE, GZIP])])])),
    "compressed as a whole": Case(compressors=(GZIP,)),
    "checksum of the whole": Case(sharding((2, 3), [LITTLE, ZSTD]), compressors=(CRC,)),
}


# -- peers ----------------------------------------------------------------------------------------


class Zarr:
    """zarr-python."""

    name = "zarr"

    def __init__(self) -> None:
        self.zarr = pytest.importorskip("zarr", reason="the peer zarr-python is missing: pip install 'zarr>=3.1'")

    def create(self, path: Path, case: Case) -> Any:
        return self.zarr.create_array(path, **case.arguments())

    def open(self, path: Path) -> Any:
        return self.zarr.open_array(path, mode="r+")

    def read(self, array: Any, index: Any = ...) -> np.ndarray:
        return np.asarray(array[index])


class TensorStore:
    """TensorStore, without its cache, so that it sees what others write."""

    name = "tensorstore"

    def __init__(self) -> None:
        reason = "the peer TensorStore is missing: pip install 'tensorstore>=0.1.71'"
        self.ts = pytest.importorskip("tensorstore", reason=reason)

    def create(self, path: Path, case: Case) -> Any:
        return self._open(path, metadata=case.document(), create=True)

    def open(self, path: Path) -> Any:
        return self._open(path, open=True)

    def _open(self, path: Path, create: bool = False, open: bool = False, **more: Any) -> Any:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}, "recheck_cached_data": True}
        return self.ts.open({**spec, **more}, create=create, open=open).result()

    def read(self, array: Any, index: Any = ...) -> np.ndarray:
        return np.asarray(array[index].read().result())


@pytest.fixture(params=[Zarr, TensorStore], ids=lambda kind: kind.name)
def peer(request) -> Any:
    return request.param()


@pytest.fixture(params=CASES)
def case(request, peer) -> Case:
    limit = LIMITS.get((peer.name, request.param))
    if limit is not None and not (request.param == "rank 0" and "the_peer_reads" in request.node.name):
        pytest.skip(limit)
    return CASES[request.param]


def ours(path: Path, case: Case) -> zellige.Array:
    return zellige.create_array(path, **case.arguments())


def assert_same(found: Any, expected: np.ndarray) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


def parts(shape: tuple[int, ...]) -> list[Any]:
    """Regions that begin and end inside of inner chunks."""
    if 0 in shape or not shape:
        return [...]
    middle = tuple(slice(n // 3, n - n // 4) for n in shape)
    return [middle, tuple(n - 1 for n in shape), tuple(slice(0, (n + 1) // 2) for n in shape), shape[0] // 2]


def stored(path: Path) -> dict[str, bytes]:
    """The stored shards by key."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


# -- laws -----------------------------------------------------------------------------------------


def test_we_read_what_the_peer_wrote(tmp_path, peer, case):
    array = peer.create(tmp_path, case)
    array[...] = case.values()
    opened = zellige.open_array(tmp_path, mode="r")
    assert_same(opened[...], case.values())
    for index in parts(case.shape):
        assert_same(zellige.open_array(tmp_path)[index], case.values()[index])
        assert_same(opened[index], case.values()[index])


def test_the_peer_reads_what_we_wrote(tmp_path, peer, case):
    ours(tmp_path, case)[...] = case.values()
    opened = peer.open(tmp_path)
    assert_same(peer.read(opened), case.values())
    for index in parts(case.shape):
        assert_same(peer.read(opened, index), case.values()[index])


def test_both_store_the_same_shards(tmp_path, peer, case):
    peer.create(tmp_path / "theirs", case)[...] = case.values()
    ours(tmp_path / "ours", case)[...] = case.values()
    found, expected = stored(tmp_path / "ours"), stored(tmp_path / "theirs")
    assert found.keys() == expected.keys()
    single = case.inner == case.shards and not case.filters
    if single and [c["name"] for c in case.serializer["configuration"]["codecs"]] == ["bytes"]:
        assert found == expected  # no choice is left to the writer


def test_both_mean_the_same_codec(tmp_path, peer, case):
    peer.create(tmp_path / "theirs", case)
    found = ours(tmp_path / "ours", case)._chunks.chain.serializer
    expected = zellige.open_array(tmp_path / "theirs")._chunks.chain.serializer
    assert isinstance(found, ShardingCodec)
    assert (found.chunk_shape, found.index_location) == (expected.chunk_shape, expected.index_location)
    assert found.index_codecs == expected.index_codecs
    assert [c.name for c in found.codecs] == [c.name for c in expected.codecs]


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_both_change_parts_of_shards_in_turn(tmp_path, peer, case, first):
    if first == "ours":
        array, other = ours(tmp_path, case), peer.open(tmp_path)
    else:
        other = peer.create(tmp_path, case)
        array = zellige.open_array(tmp_path)
    expected = np.full(case.shape, case.fill, case.dtype)
    regions = [*parts(case.shape), ..., *parts(case.shape)[::-1]]
    for turn, region in enumerate(regions):
        number = np.array(turn % 3 + 1, case.dtype)
        writer = array if (turn % 2 == 0) == (first == "ours") else other
        writer[region] = expected[region] = number
        if turn == 5 and case.shape and 0 not in case.shape:  # some inner chunks become empty again
            writer[0] = expected[0] = np.array(case.fill, case.dtype)
        assert_same(array[...], expected)
        assert_same(peer.read(other), expected)
    assert_same(zellige.open_array(tmp_path)[...], expected)


def test_emptied_shards_disappear_whoever_empties_them(tmp_path, peer):
    case = CASES["zstd"]
    array = ours(tmp_path, case)
    array[...] = 1
    assert len(stored(tmp_path)) == 4
    other = peer.open(tmp_path)
    other[:4, :6] = 0
    assert stored(tmp_path).keys() == {"c/0/1", "c/1/0", "c/1/1"}
    array[:4, 6:] = 0
    assert stored(tmp_path).keys() == {"c/1/0", "c/1/1"}
    expected = np.ones(case.shape, np.int32)
    expected[:4] = 0
    assert_same(peer.read(other), expected)
    assert_same(array[...], expected)


@pytest.mark.parametrize(("peer_name", "name"), LIMITS)
def test_the_limits_of_the_peers_are_still_there(tmp_path, peer_name, name):
    """Fails when a peer has learnt it: then its line in LIMITS can go."""
    peer = {"zarr": Zarr, "tensorstore": TensorStore}[peer_name]()
    case = CASES[name]
    with pytest.raises((ValueError, IndexError), match=r"divisible|[Ss]harding|too many indices"):
        peer.create(tmp_path / "theirs", case)[...] = case.values()
    ours(tmp_path / "ours", case)[...] = case.values()
    assert_same(zellige.open_array(tmp_path / "ours")[...], case.values())


# -- rectilinear shards ---------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("peer_zarr_rectilinear.py")
NAMED = os.environ.get("ZELLIGE_PEER_PYTHON")
PYTHON = NAMED or str(ROOT / ".venv-peer" / "bin" / "python")


class Uneven(NamedTuple):
    """An array in rectilinear shards."""

    shards: list[Any]
    inner: tuple[int, ...] = (2, 3)
    codecs: tuple[Any, ...] = (LITTLE, ZSTD)
    index: tuple[Any, ...] = (LITTLE, CRC)
    location: str = "end"
    shape: tuple[int, ...] = (10, 12)

    def arguments(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "chunks": self.shards,
            "dtype": "int32",
            "fill_value": -1,
            "filters": [],
            "serializer": sharding(self.inner, self.codecs, self.index, self.location),
            "compressors": [],
        }


UNEVEN = {
    "both axes": Uneven([[4, 2, 4], [3, 9]]),
    "edges and a size": Uneven([[2, 8], 6], codecs=(LITTLE,)),
    "index at the start": Uneven([[4, 6], [6, 6]], location="start", index=(BIG,)),
    "transposed inside": Uneven([[4, 2, 4], [3, 9]], codecs=(TURN, LITTLE, GZIP)),
    "nested": Uneven([[4, 2, 4], [3, 9]], codecs=(sharding((1, 3), [LITTLE, CRC]),)),
    "blosc": Uneven([[10], [3, 3, 6]], codecs=(LITTLE, BLOSC)),
    "one axis": Uneven([[2, 4, 6, 8]], (2,), shape=(20,)),
    "runs": Uneven([[2] * 5, [6] * 2]),
}


def steps_of(case: Uneven, first: int) -> list[dict[str, Any]]:
    """Writes of parts, which cut inner chunks and shards."""
    steps = []
    for turn, cut in enumerate((0, 1, 3)):
        region = [(cut, n - 2 * cut) for n in case.shape]
        shape = tuple(stop - start for start, stop in region)
        values = (np.arange(int(np.prod(shape))) + first + 1000 * turn).reshape(shape)
        values[:2] = -1  # the fill value
        steps.append({"do": "write", "region": region, "values": values.tolist()})
    return steps


def apply(array: Any, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        array[tuple(slice(*bounds) for bounds in step["region"])] = np.array(step["values"], np.int32)


def ask(path: Path, cases: dict[str, Any]) -> dict[str, Any]:
    """Let the newer zarr-python make and change arrays; what it reports and reads."""
    if not NAMED and not os.access(PYTHON, os.X_OK):
        pytest.skip("the peer zarr-python 3.4 or newer is missing; `make peer` makes .venv-peer with it")
    (path / "cases.json").write_text(json.dumps(cases))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [PYTHON, SCRIPT, "write", path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def not_dividing(path: Path) -> None:
    """An array whose inner chunks do not divide its shards, as zarr-specs pull request 370 proposes."""
    allowed = {"uneven_inner_chunks": True}
    zellige.create_array(path, data=np.arange(1, 21), chunks=4, shards=10, compressors=None, config=allowed)


def test_peers_still_refuse_inner_chunks_that_do_not_divide_their_shard(tmp_path, peer):
    """The day they read them, what docs/format says of them, and how they are clipped, is to be compared."""
    not_dividing(tmp_path / "ours")
    with pytest.raises(ValueError, match=r"(?i)divi|chunk_shape"):
        peer.read(peer.open(tmp_path / "ours"))


def test_the_newer_peer_still_refuses_inner_chunks_that_do_not_divide_their_shard(tmp_path):
    not_dividing(tmp_path / "ours")
    assert "divisible" in ask(tmp_path, {"ours": {}})["ours"]["error"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """Arrays that the peer made, and arrays of ours that it changed."""
    path = tmp_path_factory.mktemp("rectilinear")
    cases = {}
    for name, case in UNEVEN.items():
        cases[f"theirs {name}"] = {"create": case.arguments(), "steps": steps_of(case, 1)}
        for who, steps in (("ours", []), ("both", steps_of(case, 5)[1:])):
            array = zellige.create_array(path / f"{who} {name}", **case.arguments(), chunk_grid="rectilinear")
            apply(array, steps_of(case, 1))
            cases[f"{who} {name}"] = {"steps": steps}
    return path, ask(path, cases)


@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize("who", ["theirs", "ours", "both"])
def test_rectilinear_shards(tmp_path, asked, name, who):
    (path, reports), case = asked, UNEVEN[name]
    report = reports[f"{who} {name}"]
    assert "error" not in report, report["error"]
    expected = np.full(case.shape, -1, np.int32)
    apply(expected, steps_of(case, 1) + (steps_of(case, 5)[1:] if who == "both" else []))
    assert_same(np.load(path / f"{who} {name}.npy"), expected)
    array = zellige.open_array(path / f"{who} {name}")
    assert_same(array[...], expected)
    assert array.chunks == case.inner
    assert [list(sizes) for sizes in array.write_chunk_sizes] == report["sizes"]
    for index in parts(case.shape):
        assert_same(array[index], expected[index])
    for chunk in array.iter_chunks():
        assert_same(array[chunk.slices], expected[chunk.slices])
    shutil.copytree(path / f"{who} {name}", tmp_path / "copy")
    copy = zellige.open_array(tmp_path / "copy")
    copy[1:9] = expected[1:9] = 3
    assert_same(zellige.open_array(tmp_path / "copy")[...], expected)
