"""TensorStore reads what we wrote and writes what we read, bit for bit, in one directory.

Every type with one chain, every chain with one type, every layout and key encoding, and some random
combinations. TensorStore does not know rectilinear grids.
"""

from __future__ import annotations

import base64
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import peer_cases
import pytest
from peer_cases import DTYPES, EXACT, KEYS, LAYOUTS, LITTLE, blosc, codec

import zellige
from zellige.errors import CodecError

ts = pytest.importorskip("tensorstore", reason="the peer TensorStore is missing: pip install 'tensorstore>=0.1.71'")

# What the peer cannot do, or does wrong. Cases that need it are skipped with this reason.
LIMITS = {
    "create r24": "TensorStore ends the process when it is asked to create an array of a raw type r<N>",
    "names ('x', 'x')": "TensorStore refuses dimension names that occur twice",
    "theirs names (None, None)": "TensorStore leaves out dimension_names when none is given, which means the same",
}
# Limits that the tests below go around, or state as a fact:
# - a raw type's fill value must be base64 for TensorStore, though the text says a list of bytes;
# - its Python arrays of raw types have items of 0 bytes (`as_bytes` mends that);
# - it cannot change attributes, and turns integers in them above 2**64 - 1 into floats when it resizes;
# - it leaves what a resize cut off in the chunks that reach over the end.


def unless_limited(*names: str) -> None:
    """Skip a case that the peer cannot do."""
    for name in names:
        if name in LIMITS:
            pytest.skip(LIMITS[name])


# -- cases ----------------------------------------------------------------------------------------

# One chain needs a library that the other side of the test lacks: see below.
CHAINS = {name: chain for name, chain in peer_cases.CHAINS.items() if name != "blosc snappy"}


class Case(peer_cases.Case):
    """One array, whoever makes it."""

    __slots__ = ()

    def document(self) -> dict[str, Any]:
        """The metadata, as the peer is told."""
        shape, chunks = LAYOUTS[self.layout]
        name, separator = self.keys
        return {
            "shape": shape,
            "data_type": self.dtype,
            "chunk_grid": codec("regular", chunk_shape=chunks),
            "chunk_key_encoding": codec(name, separator=separator),
            "fill_value": fill_json(np.array(self.fill).astype(self.numpy)),
            "codecs": self.codecs(),
        }


def fill_json(fill: np.ndarray) -> Any:
    """A finite fill value in a document."""
    value = fill.item()
    return [value.real, value.imag] if isinstance(value, complex) else value


def random_cases(count: int) -> list[Case]:
    draw = random.Random(20260102)
    layouts = [layout for layout in LAYOUTS if layout != "large"]
    return [
        Case(draw.choice(DTYPES), draw.choice(layouts), draw.choice([*CHAINS]), draw.choice(KEYS), draw.choice([0, 1]))
        for _ in range(count)
    ]


CASES = [
    *(Case(dtype=dtype, chain="zstd checksum") for dtype in DTYPES),
    *(Case(dtype=dtype, chain="big") for dtype in ("int16", "uint64", "float16", "float64", "complex64", "complex128")),
    *(Case(chain=chain, layout="large") for chain in CHAINS),
    *(Case(layout=layout, keys=keys) for layout in LAYOUTS for keys in KEYS),
    *random_cases(16),
]


def case_id(case: Case) -> str:
    return " ".join([case.dtype, case.layout, case.chain, *case.keys])


every_case = pytest.mark.parametrize("case", CASES, ids=case_id)


# -- the peer -------------------------------------------------------------------------------------


def ours(path: Path, case: Case, **options: Any) -> zellige.Array:
    """A new array of ours."""
    return zellige.create_array(path, **{**case.arguments(), **options})


def peer_open(path: Path, **options: Any) -> Any:
    """A store of the peer, which remembers nothing of earlier ones."""
    place = {"driver": "file", "path": f"{path}/"}
    # Without waiting for the disk at each write, which is most of the time otherwise.
    return ts.open({"driver": "zarr3", "kvstore": place, "context": {"file_io_sync": False}, **options}).result()


def theirs(path: Path, case: Case, **fields: Any) -> Any:
    """A new array of the peer."""
    return peer_open(path, create=True, metadata={**case.document(), **fields})


def peer_read(path: Path) -> np.ndarray:
    return np.asarray(peer_open(path).read().result())


def peer_write(path: Path, region: Any, value: Any) -> None:
    peer_open(path)[region].write(value).result()


def peer_resize(path: Path, *shape: int) -> None:
    peer_open(path).resize(exclusive_max=shape).result()


def assert_same(found: Any, expected: np.ndarray) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)  # shows where they differ
    assert found.tobytes() == expected.tobytes()  # and no bit is lost: zeros have signs, NaNs payloads


def stored(path: Path) -> dict[str, bytes]:
    """The stored chunks by key."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def document_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "zarr.json").read_text())


# -- whole arrays ---------------------------------------------------------------------------------


@every_case
def test_the_peer_reads_what_we_wrote(tmp_path, case):
    ours(tmp_path, case)[...] = case.values()
    assert_same(peer_read(tmp_path), case.values())


@every_case
def test_we_read_what_the_peer_wrote(tmp_path, case):
    theirs(tmp_path, case).write(case.values()).result()
    opened = zellige.open_array(tmp_path, mode="r")
    assert_same(opened[...], case.values())
    assert opened.chunks == LAYOUTS[case.layout][1]


@every_case
def test_both_store_the_same_chunks(tmp_path, case):
    theirs(tmp_path / "theirs", case).write(case.values()).result()
    ours(tmp_path / "ours", case)[...] = case.values()
    found, expected = stored(tmp_path / "ours"), stored(tmp_path / "theirs")
    assert found.keys() == expected.keys()
    if case.chain in EXACT:
        assert found == expected


@every_case
def test_both_describe_the_array_alike(tmp_path, case):
    theirs(tmp_path / "theirs", case)
    ours(tmp_path / "ours", case)
    found, expected = zellige.open_array(tmp_path / "ours"), zellige.open_array(tmp_path / "theirs")
    for name in ("shape", "dtype", "grid", "filters", "compressors", "fill_value", "dimension_names"):
        assert getattr(found, name) == getattr(expected, name)
    if found.dtype.itemsize > 1:  # the byte order of single bytes is no one's business
        assert found.serializer == expected.serializer
    assert found.metadata.chunk_key_encoding == expected.metadata.chunk_key_encoding


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64", "complex64"])
def test_the_defaults_of_each_side_suit_the_other(tmp_path, dtype):
    values = np.arange(600).reshape(20, 30).astype(dtype)
    zellige.create_array(tmp_path / "ours", data=values)
    assert_same(peer_read(tmp_path / "ours"), values)
    peer = peer_open(tmp_path / "theirs", create=True, dtype=dtype, schema={"domain": {"shape": values.shape}})
    peer.write(values).result()
    assert_same(zellige.open_array(tmp_path / "theirs", mode="r")[...], values)


# -- types and codecs that one side lacks ---------------------------------------------------------


def as_bytes(found: np.ndarray) -> np.ndarray:
    """The bytes of a peer's array of a raw type, which come along a further axis."""
    interface = {**found.__array_interface__, "typestr": "|u1", "descr": [("", "|u1")]}
    return np.array(type("Bytes", (), {"__array_interface__": interface})())


def test_raw_values_go_both_ways(tmp_path):
    values = np.frombuffer(b"abcdefghijklmno", "V3")
    for name, chunks in ("source", 2), ("target", 3):
        zellige.create_array(tmp_path / name, shape=5, chunks=chunks, dtype="r24", fill_value=b"xyz")
        document = document_of(tmp_path / name)
        assert document["fill_value"] == [*b"xyz"]
        document["fill_value"] = base64.b64encode(b"xyz").decode()
        (tmp_path / name / "zarr.json").write_text(json.dumps(document))
    zellige.open_array(tmp_path / "source")[:4] = values[:4]
    source, target = peer_open(tmp_path / "source"), peer_open(tmp_path / "target")
    assert as_bytes(source.read().result()).tobytes() == b"abcdefghijklxyz"
    target.write(source).result()
    found = zellige.open_array(tmp_path / "target")
    assert found[:].tobytes() == b"abcdefghijklxyz"
    assert found.fill_value.tobytes() == b"xyz"


def test_raw_arrays_of_the_peer(tmp_path):
    unless_limited("create r24")
    theirs(tmp_path, Case(), data_type="r24", fill_value="AAAA", codecs=[codec("bytes")])
    assert_same(zellige.open_array(tmp_path)[...], np.zeros((7, 5), "V3"))


def test_blosc_with_snappy_is_refused_by_its_name(tmp_path):
    codecs = [LITTLE, blosc(cname="snappy", typesize=4)]
    theirs(tmp_path, Case(layout="large"), codecs=codecs).write(Case(layout="large").values()).result()
    array = zellige.open_array(tmp_path)
    with pytest.raises(CodecError, match="snappy"):
        array[...]


@pytest.mark.parametrize("chain", ["zstd checksum", "gzip 5", "blosc zstd"])
def test_a_peers_scalar_is_read_into_an_array_that_is_there(tmp_path, chain):
    theirs(tmp_path, Case(layout="rank 0", chain=chain)).write(np.int32(5)).result()
    out = np.array(-1, np.int32)
    zellige.open_array(tmp_path, mode="r").get_basic_selection(..., out=out)
    assert_same(out, np.array(5, np.int32))


# -- fill values and missing chunks ---------------------------------------------------------------


def from_bits(dtype: str, *bits: int) -> Any:
    """A number by the bits of its parts."""
    part = np.dtype(f"u{np.dtype(dtype).itemsize // len(bits)}")
    return np.array(bits, part).view(dtype)[0]


FILLS: dict[str, tuple[Any, Any]] = {  # the value, and how a document spells it
    "bool": (np.True_, True),
    "int8": (np.int8(-128), -128),
    "int64": (np.int64(-(2**63)), -(2**63)),
    "uint64": (np.uint64(2**64 - 1), 2**64 - 1),
    "float16 nan": (np.float16("nan"), "NaN"),
    "float16 rounded": (np.float16(0.1), 0.1),
    "float32 nan": (np.float32("nan"), "NaN"),
    "float32 inf": (np.float32("inf"), "Infinity"),
    "float32 rounded": (np.float32(0.1), 0.1),
    "float32 nan payload": (from_bits("float32", 0xFFC00001), "0xffc00001"),
    "float64 nan payload": (from_bits("float64", 0x7FF0000000000001), "0x7ff0000000000001"),
    "float64 inf": (np.float64("-inf"), "-Infinity"),
    "float64 zero": (np.float64(-0.0), -0.0),
    "float64 tiny": (np.float64(5e-324), 5e-324),
    "float64 max": (np.float64(1.7976931348623157e308), 1.7976931348623157e308),
    "complex64": (np.complex64(1.5 - 2j), [1.5, -2.0]),
    "complex64 nan": (from_bits("complex64", 0x7FC00000, 0x80000000), ["NaN", -0.0]),
    "complex128 inf": (np.complex128(complex(-math.inf, math.inf)), ["-Infinity", "Infinity"]),
}
every_fill = pytest.mark.parametrize("name", FILLS)


@every_fill
def test_missing_chunks_of_ours_read_as_the_fill_value(tmp_path, name):
    fill, _ = FILLS[name]
    ours(tmp_path, Case(dtype=fill.dtype.name), fill_value=fill)
    assert stored(tmp_path) == {}
    assert_same(peer_read(tmp_path), np.full((7, 5), fill))
    assert_same(peer_open(tmp_path).fill_value, np.asarray(fill))


@every_fill
def test_missing_chunks_of_the_peer_read_as_the_fill_value(tmp_path, name):
    fill, spelling = FILLS[name]
    theirs(tmp_path, Case(dtype=fill.dtype.name), fill_value=spelling)
    array = zellige.open_array(tmp_path, mode="r")
    assert_same(array.fill_value, np.asarray(fill))
    assert_same(array[...], np.full((7, 5), fill))


@every_fill
def test_both_put_the_fill_value_around_what_was_written(tmp_path, name):
    fill, spelling = FILLS[name]
    case = Case(dtype=fill.dtype.name)
    # The last chunks reach over the end of the array, and are only half written.
    ours(tmp_path / "ours", case, fill_value=fill)[5:, 3:] = 0
    value = np.zeros((2, 2), fill.dtype)
    theirs(tmp_path / "theirs", case, fill_value=spelling)[5:, 3:].write(value).result()
    assert stored(tmp_path / "ours") == stored(tmp_path / "theirs")
    assert_same(peer_read(tmp_path / "ours"), zellige.open_array(tmp_path / "theirs")[...])


def test_a_chunk_that_becomes_empty_is_gone_for_the_other_side(tmp_path):
    expected = np.ones((7, 5), np.int32)
    expected[3:6, 2:4] = 7
    theirs(tmp_path / "theirs", Case(fill=7)).write(np.int32(1)).result()
    zellige.open_array(tmp_path / "theirs")[3:6, 2:4] = 7
    ours(tmp_path / "ours", Case(fill=7))[...] = 1
    peer_write(tmp_path / "ours", np.s_[3:6, 2:4], np.int32(7))
    for path in tmp_path / "ours", tmp_path / "theirs":
        assert len(stored(path)) == 8
        assert "c/1/1" not in stored(path)
        assert_same(zellige.open_array(path)[...], expected)
        assert_same(peer_read(path), expected)


# -- attributes and names -------------------------------------------------------------------------

ATTRIBUTES = {
    "text": 'Käse 日本 \U0001f9c0 " \\ \n \u0000',
    "": "empty name",
    "numbers": [0, -1, 2**53 + 1, 2**64 - 1, 0.1, -0.0, 1e300, 5e-324],
    "nested": {"a": [{"b": None}, [], {}, True, False]},
}


def as_text(attributes: Any) -> str:
    return json.dumps(dict(attributes), sort_keys=True)


def test_attributes_of_the_peer_survive(tmp_path):
    theirs(tmp_path, Case(), attributes=ATTRIBUTES)
    assert as_text(zellige.open_array(tmp_path).attrs) == as_text(ATTRIBUTES)


def test_the_peer_reads_strict_json_only_which_a_setting_makes_sure_of(tmp_path):
    ours(tmp_path / "default", Case(), attributes={"missing": math.nan})
    with pytest.raises(ValueError, match="Invalid JSON"):
        peer_open(tmp_path / "default")
    with zellige.config.set(strict_json=True):
        with pytest.raises(zellige.errors.MetadataError, match=r"attributes\.missing"):
            ours(tmp_path / "strict", Case(), attributes={"missing": math.nan})
        ours(tmp_path / "strict", Case(), attributes={"missing": "NaN"})
    assert peer_open(tmp_path / "strict").shape == (7, 5)


def test_attributes_of_ours_survive_a_resize_by_the_peer(tmp_path):
    array = ours(tmp_path, Case(), attributes=ATTRIBUTES, dimension_names=("y", None))
    assert as_text(peer_open(tmp_path).spec().to_json()["metadata"]["attributes"]) == as_text(ATTRIBUTES)
    peer_resize(tmp_path, 8, 8)
    array.refresh()
    assert array.shape == (8, 8)
    assert as_text(array.attrs) == as_text(ATTRIBUTES)
    assert array.dimension_names == ("y", None)


@pytest.mark.parametrize("names", [("y", "x"), ("time", None), (None, None), ("", "é"), ("x", "x"), None])
@pytest.mark.parametrize("make", [ours, theirs])
def test_dimension_names_survive(tmp_path, names, make):
    unless_limited(f"names {names}", f"{make.__name__} names {names}")
    make(tmp_path, Case(), **({} if names is None else {"dimension_names": names}))
    assert zellige.open_array(tmp_path).dimension_names == names
    assert peer_open(tmp_path).domain.labels == tuple(name or "" for name in names or (None, None))


def test_the_peer_opens_an_array_of_ours_below_a_group(tmp_path):
    zellige.create_array(tmp_path, name="a/b", data=np.arange(3))
    assert_same(peer_read(tmp_path / "a" / "b"), np.arange(3))


# -- one array, two writers -----------------------------------------------------------------------

WRITES = [np.s_[2:6, 1:4], np.s_[0, :], np.s_[:, 4], np.s_[::2, ::3], np.s_[6, 4], np.s_[3:6, 2:4], np.s_[1:, :1]]


@pytest.mark.parametrize("chain", ["little", "transpose", "zstd checksum", "blosc lz4 shuffle", "gzip 1", "all"])
@pytest.mark.parametrize("first", [0, 1], ids=["we begin", "the peer begins"])
def test_partial_writes_of_both_sides_in_turn(tmp_path, chain, first):
    case = Case(chain=chain, fill=-1)
    (theirs if first else ours)(tmp_path, case)
    array = zellige.open_array(tmp_path)
    expected = np.full((7, 5), -1, np.int32)
    for turn, region in enumerate(WRITES):
        expected[region] = turn
        if (turn + first) % 2:
            peer_write(tmp_path, region, np.int32(turn))
        else:
            array[region] = turn
        assert_same(array[...], expected)
        assert_same(peer_read(tmp_path), expected)


def test_orthogonal_and_pointwise_writes_go_both_ways(tmp_path):
    array = ours(tmp_path, Case(chain="zstd 0"))
    expected = np.zeros((7, 5), np.int32)
    array.oindex[[0, 3, 6], slice(1, 4)] = expected[[0, 3, 6], 1:4] = np.arange(9).reshape(3, 3)
    array.vindex[[5, 2], [4, 0]] = expected[[5, 2], [4, 0]] = [-1, -2]
    assert_same(peer_read(tmp_path), expected)
    rows = np.array([[8, 9], [6, 7]], np.int32)
    peer_open(tmp_path).oindex[[1, 5], [0, 4]].write(rows).result()
    expected[np.ix_([1, 5], [0, 4])] = rows
    assert_same(array[...], expected)


# -- resizing -------------------------------------------------------------------------------------


def grown(values: np.ndarray, shape: tuple[int, int], fill: int) -> np.ndarray:
    larger = np.full(shape, fill, values.dtype)
    larger[tuple(map(slice, values.shape))] = values
    return larger


def test_an_array_that_we_grew_is_read_and_filled_by_the_peer(tmp_path):
    case = Case(chain="zstd checksum", fill=-1)
    array = ours(tmp_path, case)
    array[...] = case.values()
    array.resize((11, 6))
    expected = grown(case.values(), (11, 6), -1)
    assert_same(peer_read(tmp_path), expected)
    peer_write(tmp_path, np.s_[9:, 2:], np.int32(5))
    expected[9:, 2:] = 5
    assert_same(array[...], expected)


@pytest.mark.parametrize("make", [ours, theirs])
def test_refresh_follows_a_resize_of_the_peer(tmp_path, make):
    case = Case(fill=-1)
    make(tmp_path, case)
    array = zellige.open_array(tmp_path)
    array[...] = case.values()
    peer_resize(tmp_path, 10, 3)
    assert array.shape == (7, 5)
    array.refresh()
    expected = grown(case.values()[:, :3], (10, 3), -1)
    assert_same(array[...], expected)
    array[8:] = expected[8:] = 3
    assert_same(peer_read(tmp_path), expected)


def test_an_array_that_one_side_shrank_is_read_by_the_other(tmp_path):
    case = Case(chain="gzip 5")
    array = ours(tmp_path / "ours", case)
    array[...] = case.values()
    array.resize((4, 2))
    theirs(tmp_path / "theirs", case).write(case.values()).result()
    peer_resize(tmp_path / "theirs", 4, 2)
    for path in tmp_path / "ours", tmp_path / "theirs":
        assert stored(path).keys() == {"c/0/0", "c/1/0"}
        assert_same(peer_read(path), case.values()[:4, :2])
        assert_same(zellige.open_array(path)[...], case.values()[:4, :2])


def test_what_we_cut_off_does_not_come_back_when_the_peer_grows_the_array(tmp_path):
    # The peer itself leaves it in the chunks that reach over the end, so only this way round.
    array = ours(tmp_path, Case(fill=-1))
    array[...] = 1
    array.resize((4, 5))
    peer_resize(tmp_path, 7, 5)
    expected = np.full((7, 5), -1, np.int32)
    expected[:4] = 1
    assert_same(peer_read(tmp_path), expected)
    array.refresh()
    assert_same(array[...], expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_appending_by_both_sides_in_turn(tmp_path, axis):
    case = Case(chain="zstd 0", fill=-1)
    theirs(tmp_path, case).write(case.values()).result()
    expected = case.values()
    for turn in range(4):
        shape = list(expected.shape)
        shape[axis] = turn + 1
        piece = np.full(shape, turn, np.int32)
        end = expected.shape[axis]
        expected = np.concatenate([expected, piece], axis)
        if turn % 2 == 0:
            zellige.open_array(tmp_path, mode="r+").append(piece, axis=axis)
        else:
            peer_resize(tmp_path, *expected.shape)
            peer_write(tmp_path, np.s_[end:] if axis == 0 else np.s_[:, end:], piece)
    assert_same(zellige.open_array(tmp_path)[...], expected)
    assert_same(peer_read(tmp_path), expected)


def test_a_zero_length_axis_grows_on_the_other_side(tmp_path):
    rows = np.arange(12, dtype=np.int32).reshape(3, 4)
    theirs(tmp_path / "theirs", Case(layout="zero length"))
    zellige.open_array(tmp_path / "theirs").append(rows)
    assert_same(peer_read(tmp_path / "theirs"), rows)
    array = ours(tmp_path / "ours", Case(layout="zero length"))
    peer_resize(tmp_path / "ours", 3, 4)
    peer_write(tmp_path / "ours", ..., rows)
    array.refresh()
    assert_same(array[...], rows)
