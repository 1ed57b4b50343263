"""zarr-python reads what we wrote and writes what we read, bit for bit, in one directory.

Every type with one chain, every chain with one type, every layout and key encoding, and some random
combinations. Rectilinear grids need a newer zarr-python: see test_rectilinear_zarr.py.
"""

from __future__ import annotations

import json
import math
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import peer_cases
import pytest
from peer_cases import CHAINS, EXACT, KEYS, LAYOUTS, Case

import zellige

zarr = pytest.importorskip("zarr", reason="the peer zarr-python is missing: pip install 'zarr>=3.1'")

# What the peer cannot do, or does wrong. Cases that need it are skipped with this reason.
LIMITS = {
    "r24": "zarr-python does not know the raw types r<N>",
    "blosc snappy": "the blosc library of numcodecs, which zarr-python and zellige share, is built without snappy",
    "fill float32 nan payload": "zarr-python turns every NaN of a fill value into the usual one when it writes it",
}


def unless_limited(*names: str) -> None:
    """Skip a case that the peer cannot do."""
    for name in names:
        if name in LIMITS:
            pytest.skip(LIMITS[name])


# -- cases ----------------------------------------------------------------------------------------

DTYPES = [*peer_cases.DTYPES, "r24"]


def random_cases(count: int) -> list[Case]:
    draw = random.Random(20260101)
    layouts = [layout for layout in LAYOUTS if layout != "large"]
    chains = [chain for chain in CHAINS if chain not in LIMITS]
    dtypes = [dtype for dtype in DTYPES if dtype not in LIMITS]
    return [
        Case(draw.choice(dtypes), draw.choice(layouts), draw.choice(chains), draw.choice(KEYS), draw.choice([0, 1]))
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


def ours(path: Path, case: Case, **options: Any) -> zellige.Array:
    """A new array of ours."""
    return zellige.create_array(path, **{**case.arguments(), **options})


def theirs(path: Path, case: Case, **options: Any) -> zarr.Array:
    """A new array of the peer."""
    unless_limited(case.dtype, case.chain)
    return zarr.create_array(path, **{**case.arguments(), **options})


both_ways = pytest.mark.parametrize(
    ("make", "open_again"), [(ours, zarr.open_array), (theirs, zellige.open_array)], ids=["ours", "theirs"]
)


def assert_same(found: Any, expected: np.ndarray) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)  # shows where they differ
    assert found.tobytes() == expected.tobytes()  # and no bit is lost: zeros have signs, NaNs payloads


def stored(path: Path) -> dict[str, bytes]:
    """The stored chunks by key."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


# -- whole arrays ---------------------------------------------------------------------------------


@every_case
def test_the_peer_reads_what_we_wrote(tmp_path, case):
    unless_limited(case.dtype, case.chain)
    ours(tmp_path, case)[...] = case.values()
    assert_same(zarr.open_array(tmp_path, mode="r")[...], case.values())


@every_case
def test_we_read_what_the_peer_wrote(tmp_path, case):
    theirs(tmp_path, case)[...] = case.values()
    opened = zellige.open_array(tmp_path, mode="r")
    assert_same(opened[...], case.values())
    assert opened.chunks == LAYOUTS[case.layout][1]


@every_case
def test_both_store_the_same_chunks(tmp_path, case):
    theirs(tmp_path / "theirs", case)[...] = case.values()
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


@pytest.mark.parametrize("chain", ["zstd checksum", "gzip 5", "blosc zstd"])
def test_a_peers_scalar_is_read_into_an_array_that_is_there(tmp_path, chain):
    theirs(tmp_path, Case(layout="rank 0", chain=chain))[...] = 5
    out = np.array(-1, np.int32)
    zellige.open_array(tmp_path, mode="r").get_basic_selection(..., out=out)
    assert_same(out, np.array(5, np.int32))


# -- what each side does by default ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64", "complex64"])
def test_the_defaults_of_each_side_suit_the_other(tmp_path, dtype):
    values = np.arange(600).reshape(20, 30).astype(dtype)
    zellige.create_array(tmp_path / "ours", data=values)
    assert_same(zarr.open_array(tmp_path / "ours", mode="r")[...], values)
    zarr.create_array(tmp_path / "theirs", data=values)
    assert_same(zellige.open_array(tmp_path / "theirs", mode="r")[...], values)


def test_values_saved_by_one_side_are_loaded_by_the_other(tmp_path):
    values = np.linspace(0, 1, 77)
    zellige.save(tmp_path / "ours", values)
    assert_same(zarr.load(tmp_path / "ours"), values)
    zarr.save_array(tmp_path / "theirs", values)
    assert_same(zellige.load(tmp_path / "theirs"), values)


def test_from_array_takes_the_chunks_of_a_peers_array(tmp_path):
    case = Case(chain="gzip 5")
    source = theirs(tmp_path, case)
    source[...] = case.values()
    copy = zellige.from_array(data=source)
    assert copy.chunks == source.chunks
    assert_same(copy[...], case.values())


def test_groups_that_we_made_above_an_array_are_groups_for_the_peer(tmp_path):
    zellige.create_array(tmp_path, name="a/b", data=np.arange(3))
    group = zarr.open_group(tmp_path, mode="r")
    assert [name for name, _ in group.members(max_depth=None)] == ["a", "a/b"]
    assert_same(group["a/b"][...], np.arange(3))


def test_an_array_in_a_peers_group_opens_by_its_path(tmp_path):
    zarr.open_group(tmp_path, mode="w").create_group("a").create_array("b", data=np.arange(3))
    assert_same(zellige.open_array(tmp_path, path="a/b", mode="r")[...], np.arange(3))


# -- fill values and missing chunks ---------------------------------------------------------------


def from_bits(dtype: str, *bits: int) -> Any:
    """A number by the bits of its parts."""
    part = np.dtype(f"u{np.dtype(dtype).itemsize // len(bits)}")
    return np.array(bits, part).view(dtype)[0]


FILLS = {
    "bool": np.True_,
    "int8": np.int8(-128),
    "int64": np.int64(-(2**63)),
    "uint64": np.uint64(2**64 - 1),
    **{f"{dtype} {text}": np.dtype(dtype).type(text) for dtype in ("float16", "float32") for text in ("nan", "inf")},
    **{f"float64 {text}": np.float64(text) for text in ("nan", "-inf", "-0.0", "5e-324", "1.7976931348623157e308")},
    "float32 rounded": np.float32(0.1),
    "float16 rounded": np.float16(0.1),
    "float32 nan payload": from_bits("float32", 0xFFC00001),
    "complex64": np.complex64(1.5 - 2j),
    "complex64 nan": from_bits("complex64", 0x7FC00000, 0x80000000),  # NaN and -0.0
    "complex128 inf": np.complex128(complex(-math.inf, math.inf)),
}
every_fill = pytest.mark.parametrize("name", FILLS)


@every_fill
@both_ways
def test_missing_chunks_read_as_the_fill_value(tmp_path, name, make, open_again):
    if make is theirs:
        unless_limited(f"fill {name}")
    fill = FILLS[name]
    make(tmp_path, Case(dtype=fill.dtype.name), fill_value=fill)
    assert stored(tmp_path) == {}
    array = open_again(tmp_path, mode="r")
    assert_same(array.fill_value, np.asarray(fill))
    assert_same(array[...], np.full((7, 5), fill))


@every_fill
def test_both_put_the_fill_value_around_what_was_written(tmp_path, name):
    unless_limited(f"fill {name}")
    fill = FILLS[name]
    case = Case(dtype=fill.dtype.name)
    for make in ours, theirs:
        # The last chunks reach over the end of the array, and are only half written.
        make(tmp_path / make.__name__, case, fill_value=fill)[5:, 3:] = 0
    assert stored(tmp_path / "ours") == stored(tmp_path / "theirs")
    assert_same(zarr.open_array(tmp_path / "ours")[...], zellige.open_array(tmp_path / "theirs")[...])


@both_ways
def test_a_chunk_that_becomes_empty_is_gone_for_the_other_side(tmp_path, make, open_again):
    make(tmp_path, Case(), fill_value=7)[...] = 1
    assert "c/1/1" in stored(tmp_path)
    open_again(tmp_path, mode="r+")[3:6, 2:4] = 7
    assert "c/1/1" not in stored(tmp_path)
    expected = np.ones((7, 5), np.int32)
    expected[3:6, 2:4] = 7
    assert_same(zellige.open_array(tmp_path)[...], expected)
    assert_same(zarr.open_array(tmp_path)[...], expected)


# -- attributes and names -------------------------------------------------------------------------

ATTRIBUTES = {
    "text": 'Käse 日本 \U0001f9c0 " \\ \n \u0000',
    "": "empty name",
    "numbers": [0, -1, 2**53 + 1, 2**64, 0.1, -0.0, 1e300, 5e-324],
    "nested": {"a": [{"b": None}, [], {}, True, False]},
    "_FillValue": "AAAAAAAA+H8=",
}


@both_ways
def test_attributes_survive(tmp_path, make, open_again):
    make(tmp_path, Case(), attributes=ATTRIBUTES)
    found = open_again(tmp_path, mode="r").attrs
    assert json.dumps(dict(found), sort_keys=True) == json.dumps(ATTRIBUTES, sort_keys=True)


@both_ways
def test_attributes_changed_by_the_other_side_are_seen(tmp_path, make, open_again):
    array = make(tmp_path, Case(), attributes={"kept": 1, "changed": 1, "deleted": 1})
    other = open_again(tmp_path, mode="r+")
    other.attrs["changed"] = [2]
    other.attrs["new"] = {"deep": "text"}
    del other.attrs["deleted"]
    again = zellige.open_array(tmp_path) if make is ours else zarr.open_array(tmp_path)
    assert dict(again.attrs) == {"kept": 1, "changed": [2], "new": {"deep": "text"}}
    if make is ours:
        array.refresh()
        assert dict(array.attrs) == dict(again.attrs)


def test_a_nan_in_the_attributes_of_the_peer_is_read(tmp_path):
    # It writes a bare NaN, which is no JSON; we read it, and never write it.
    array = theirs(tmp_path, Case(), attributes={"missing": math.nan})
    array[...] = 1
    opened = zellige.open_array(tmp_path)
    assert math.isnan(opened.attrs["missing"])
    assert_same(opened[...], np.ones((7, 5), np.int32))


def test_an_array_with_a_nan_in_its_attributes_is_pickled(tmp_path):
    theirs(tmp_path, Case(), attributes={"missing": math.nan})[...] = 1
    assert_same(pickle.loads(pickle.dumps(zellige.open_array(tmp_path)))[...], np.ones((7, 5), np.int32))


def test_an_array_with_a_nan_in_its_attributes_equals_itself(tmp_path):
    theirs(tmp_path, Case(), attributes={"missing": math.nan})
    assert zellige.open_array(tmp_path) == zellige.open_array(tmp_path)


def test_a_nan_in_the_attributes_stays_one(tmp_path):
    theirs(tmp_path, Case(), attributes={"missing": math.nan, "range": [-math.inf, math.inf]})[...] = 1
    array = zellige.open_array(tmp_path)
    array.append(np.full((2, 5), 2, np.int32))
    array.attrs["new"] = math.nan
    expected = "{'missing': nan, 'range': [-inf, inf], 'new': nan}"
    assert repr(dict(zarr.open_array(tmp_path).attrs)) == expected
    assert repr(array.attrs.asdict()) == expected


@pytest.mark.parametrize("names", [("y", "x"), ("time", None), (None, None), ("", "é"), ("x", "x"), None])
@both_ways
def test_dimension_names_survive(tmp_path, names, make, open_again):
    make(tmp_path, Case(), dimension_names=names)
    array = open_again(tmp_path, mode="r")
    found = array.metadata.dimension_names
    assert (None if found is None else tuple(found)) == names


# -- one array, two writers -----------------------------------------------------------------------

WRITES = [np.s_[2:6, 1:4], np.s_[0, :], np.s_[:, 4], np.s_[::2, ::3], np.s_[6, 4], np.s_[3:6, 2:4], np.s_[1:, :1]]


@pytest.mark.parametrize("chain", ["little", "transpose", "zstd checksum", "blosc lz4 shuffle", "gzip 1", "all"])
@both_ways
def test_partial_writes_of_both_sides_in_turn(tmp_path, chain, make, open_again):
    writers = [make(tmp_path, Case(chain=chain, fill=-1)), open_again(tmp_path, mode="r+")]
    expected = np.full((7, 5), -1, np.int32)
    for turn, region in enumerate(WRITES):
        writers[turn % 2][region] = expected[region] = turn
        for reader in writers:
            assert_same(reader[...], expected)


@both_ways
def test_orthogonal_and_pointwise_writes_are_read_by_the_other_side(tmp_path, make, open_again):
    array = make(tmp_path, Case(chain="zstd 0"))
    expected = np.zeros((7, 5), np.int32)
    array.oindex[[0, 3, 6], slice(1, 4)] = expected[[0, 3, 6], 1:4] = np.arange(9).reshape(3, 3)
    array.vindex[[5, 2], [4, 0]] = expected[[5, 2], [4, 0]] = [-1, -2]
    other = open_again(tmp_path, mode="r")
    assert_same(other[...], expected)
    assert_same(other.oindex[[0, 3, 6], slice(1, 4)], expected[[0, 3, 6], 1:4])
    assert_same(other.vindex[[5, 2], [4, 0]], expected[[5, 2], [4, 0]])


# -- resizing -------------------------------------------------------------------------------------


def grown(values: np.ndarray, shape: tuple[int, int], fill: int) -> np.ndarray:
    larger = np.full(shape, fill, values.dtype)
    larger[tuple(map(slice, values.shape))] = values
    return larger


@both_ways
def test_an_array_that_one_side_grew_is_read_and_filled_by_the_other(tmp_path, make, open_again):
    case = Case(chain="zstd checksum", fill=-1)
    array = make(tmp_path, case)
    array[...] = case.values()
    array.resize((11, 6))
    expected = grown(case.values(), (11, 6), -1)
    other = open_again(tmp_path, mode="r+")
    assert_same(other[...], expected)
    other[9:, 2:] = expected[9:, 2:] = 5
    assert_same(array[...], expected)


def test_refresh_follows_a_resize_of_the_peer(tmp_path):
    case = Case(fill=-1)
    array = ours(tmp_path, case)
    array[...] = case.values()
    peer = zarr.open_array(tmp_path, mode="r+")
    peer.resize((10, 3))
    assert array.shape == (7, 5)
    array.refresh()
    expected = grown(case.values()[:, :3], (10, 3), -1)
    assert_same(array[...], expected)
    array[8:] = expected[8:] = 3
    assert_same(peer[...], expected)


@both_ways
def test_an_array_that_one_side_shrank_is_read_by_the_other(tmp_path, make, open_again):
    case = Case(chain="gzip 5")
    array = make(tmp_path, case)
    array[...] = case.values()
    array.resize((4, 2))
    assert_same(open_again(tmp_path, mode="r")[...], case.values()[:4, :2])
    assert stored(tmp_path).keys() == {"c/0/0", "c/1/0"}


def test_what_we_cut_off_does_not_come_back_when_the_peer_grows_the_array(tmp_path):
    # The peer itself leaves it in the chunks that reach over the end, so only this way round.
    array = ours(tmp_path, Case(fill=-1))
    array[...] = 1
    array.resize((4, 5))
    peer = zarr.open_array(tmp_path, mode="r+")
    peer.resize((7, 5))
    expected = np.full((7, 5), -1, np.int32)
    expected[:4] = 1
    assert_same(peer[...], expected)
    array.refresh()
    assert_same(array[...], expected)


@pytest.mark.parametrize("axis", [0, 1])
@both_ways
def test_appending_by_both_sides_in_turn(tmp_path, axis, make, open_again):
    case = Case(chain="zstd 0", fill=-1)
    make(tmp_path, case)[...] = case.values()
    expected = case.values()
    for turn in range(4):
        shape = list(expected.shape)
        shape[axis] = turn + 1
        piece = np.full(shape, turn, np.int32)
        opener = open_again if turn % 2 == 0 else zellige.open_array if make is ours else zarr.open_array
        opener(tmp_path, mode="r+").append(piece, axis=axis)
        expected = np.concatenate([expected, piece], axis)
    assert_same(zellige.open_array(tmp_path)[...], expected)
    assert_same(zarr.open_array(tmp_path)[...], expected)


@both_ways
def test_a_zero_length_axis_grows_on_the_other_side(tmp_path, make, open_again):
    make(tmp_path, Case(layout="zero length"))
    other = open_again(tmp_path, mode="r+")
    rows = np.arange(12, dtype=np.int32).reshape(3, 4)
    other.append(rows)
    assert_same(zellige.open_array(tmp_path)[...], rows)
    assert_same(zarr.open_array(tmp_path)[...], rows)
