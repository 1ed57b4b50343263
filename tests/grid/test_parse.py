"""Everything that `chunks=` accepts, and everything that it refuses."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import zellige
from zellige import ChunkGrid, FixedDimension, VaryingDimension
from zellige.errors import ChunkShapeError
from zellige.grid.edges import Edges
from zellige.grid.parse import auto_chunks, parse_chunks, parse_new_chunks, parse_shards

MiB = 1 << 20
TRILLION = 10**12


def parse(chunks, shape, itemsize=8, **options):
    return parse_chunks(chunks, shape, itemsize=itemsize, **options)


# -- accepted -------------------------------------------------------------------------------------

REGULAR = [
    ("one size for all axes", 10, (100, 20), (10, 10)),
    ("a numpy integer", np.int64(10), (100, 20), (10, 10)),
    ("larger than the axis", 500, (100, 20), (500, 500)),
    ("a flat tuple", (10, 5), (100, 20), (10, 5)),
    ("a flat list", [10, 5], (100, 20), (10, 5)),
    ("a numpy array of sizes", np.array([10, 5]), (100, 20), (10, 5)),
    ("numpy integers", (np.int8(10), np.uint64(5)), (100, 20), (10, 5)),
    ("an iterator", iter([10, 5]), (100, 20), (10, 5)),
    ("-1 for all", -1, (100, 20), (100, 20)),
    ("-1 for one axis", (10, -1), (100, 20), (10, 20)),
    ("None for one axis", (10, None), (100, 20), (10, 20)),
    ("-1 on an empty axis", (-1, 4), (0, 20), (1, 4)),
    ("uniform lists", [[10, 10], [20, 20]], (20, 40), (10, 20)),
    ("uniform dask tuples", ((10, 10), (20, 20)), (20, 40), (10, 20)),
    ("a uniform run", [[[10, 10]], 5], (100, 20), (10, 5)),
    ("one edge for the axis", [[100], 5], (100, 20), (100, 5)),
    ("uniform numpy edges", [np.full(10, 10), 5], (100, 20), (10, 5)),
    ("rank 0, nothing", (), (), ()),
    ("rank 0, a size", 7, (), ()),
    ("rank 0, auto", "auto", (), ()),
    ("rank 0, a mapping", {}, (), ()),
    ("a mapping by axis", {0: 10, 1: 5}, (100, 20), (10, 5)),
    ("a mapping with the rest whole", {1: 5}, (100, 20), (100, 5)),
    ("an empty mapping", {}, (100, 20), (100, 20)),
    ("a mapping with a numpy key", {np.int64(1): 5}, (100, 20), (100, 5)),
    ("a regular grid", ChunkGrid.from_sizes((100, 20), (10, 5)), (100, 20), (10, 5)),
    ("a regular grid of another shape", ChunkGrid.from_sizes((7, 7), (10, 5)), (100, 20), (10, 5)),
]

RECTILINEAR = [
    ("nested lists", [[60, 40], [5, 12, 3]], (100, 20), ((60, 40), (5, 12, 3))),
    ("nested in one dimension", [[3, 5, 2]], (10,), ((3, 5, 2),)),
    ("dask tuples", ((60, 40), (5, 12, 3)), (100, 20), ((60, 40), (5, 12, 3))),
    ("dask tuples with a short end", ((4, 4, 2),), (10,), ((4, 4, 2),)),
    ("mixed", (10, [5, 12, 3]), (100, 20), (10, (5, 12, 3))),
    ("mixed with a whole axis", (-1, [5, 12, 3]), (100, 20), (100, (5, 12, 3))),
    ("numpy edges", [np.array([60, 40]), np.array([5, 12, 3], np.uint8)], (100, 20), ((60, 40), (5, 12, 3))),
    ("a numpy matrix", np.array([[6, 4], [12, 8]]), (10, 20), ((6, 4), (12, 8))),
    ("runs", [[[30, 3], 10], 4], (100, 20), ((30, 30, 30, 10), 4)),
    ("runs as tuples", (((30, 3), 10), 4), (100, 20), ((30, 30, 30, 10), 4)),
    ("edges beyond the shape", [[1, 2, 3, 5]], (4,), ((1, 2, 3, 5),)),
    ("uniform edges beyond the shape", [[4, 4, 4]], (10,), ((4, 4, 4),)),
    ("edges on an empty axis", [[4]], (0,), ((4,),)),
    ("an Edges object", [Edges.of([3, 7])], (10,), ((3, 7),)),
    ("an iterator of edges", [iter([3, 7])], (10,), ((3, 7),)),
    ("a range", [range(1, 5)], (10,), ((1, 2, 3, 4),)),
    ("a mapping", {1: [5, 12, 3]}, (100, 20), (100, (5, 12, 3))),
    ("a grid", ChunkGrid((FixedDimension(10, 100), VaryingDimension([5, 15], 20))), (100, 20), (10, (5, 15))),
    ("a grid whose edges reach over", ChunkGrid((VaryingDimension([5, 15], 20),)), (18,), ((5, 15),)),
]


@pytest.mark.parametrize(("chunks", "shape", "expected"), [c[1:] for c in REGULAR], ids=[c[0] for c in REGULAR])
def test_regular(chunks, shape, expected):
    name, axes = parse(chunks, shape)
    assert (name, axes) == ("regular", expected)
    assert all(type(size) is int for size in axes)


@pytest.mark.parametrize(("chunks", "shape", "expected"), [c[1:] for c in RECTILINEAR], ids=[c[0] for c in RECTILINEAR])
def test_rectilinear(chunks, shape, expected):
    assert parse(chunks, shape) == ("rectilinear", expected)


@pytest.mark.parametrize(("chunks", "shape", "expected"), [c[1:] for c in REGULAR[:16]])
def test_chunk_grid_regular_accepts_what_is_regular(chunks, shape, expected):
    if not hasattr(chunks, "__next__"):
        assert parse(chunks, shape, chunk_grid="regular") == ("regular", expected)


@pytest.mark.parametrize(("chunks", "shape", "expected"), [c[1:] for c in RECTILINEAR])
def test_chunk_grid_regular_refuses_what_is_not(chunks, shape, expected):
    if not any(hasattr(entry, "__next__") for entry in (chunks if isinstance(chunks, list) else [])):
        axis = next(k for k, sizes in enumerate(expected) if isinstance(sizes, tuple))
        with pytest.raises(ChunkShapeError, match=f"axis {axis}: edges .* not regular") as info:
            parse(chunks, shape, chunk_grid="regular")
        assert info.value.axis == axis


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([[10, 10], [20, 20]], ((10, 10), (20, 20))),
        ((10, [20, 20]), (10, (20, 20))),
        ((10, 20), (10, 20)),
        ([[[10, 2]], -1], ((10, 10), 40)),
    ],
)
def test_chunk_grid_rectilinear_keeps_uniform_edges(chunks, expected):
    assert parse(chunks, (20, 40), chunk_grid="rectilinear") == ("rectilinear", expected)


@pytest.mark.parametrize("name", ["Regular", "", "hexagonal", 3, True])
def test_unknown_chunk_grid(name):
    with pytest.raises(ChunkShapeError, match=r"chunk_grid.*regular.*rectilinear"):
        parse(10, (100,), chunk_grid=name)


def test_names_of_dimensions():
    names = ("time", None, "x")
    shape = (59, 4, 20)
    assert parse({"time": [31, 28], "x": 5}, shape, dimension_names=names)[1] == ((31, 28), 4, 5)
    assert parse({"x": 5, 1: 2}, shape, dimension_names=names)[1] == (59, 2, 5)
    assert parse({"x": None, "time": -1}, shape, dimension_names=names)[1] == shape
    with pytest.raises(ChunkShapeError, match=r"no dimension 'y'.*'time', 'x'"):
        parse({"y": 5}, shape, dimension_names=names)
    with pytest.raises(ChunkShapeError, match=r"no dimension 'time'.*axis numbers 0 to 2.*dimension_names"):
        parse({"time": 5}, shape)


@pytest.mark.parametrize("chunks", ["auto", None])
def test_auto_as_a_whole(chunks):
    assert parse(chunks, (100, 20)) == ("regular", (100, 20))
    assert parse(chunks, (10_000, 10_000)) == ("regular", auto_chunks((10_000, 10_000), 8))


def test_auto_for_some_axes():
    name, (time, x) = parse(("auto", [4000, 6000]), (10_000, 10_000))
    assert name == "rectilinear"
    assert x == (4000, 6000)
    assert MiB <= time * 6000 * 8 <= 16 * MiB
    _, (time, x) = parse({0: 1, 1: "auto"}, (10_000, 10**8), itemsize=4)
    assert time == 1
    assert MiB <= x * 4 <= 16 * MiB


def test_a_trillion_edges_are_not_expanded():
    name, (edges,) = parse([[[3, TRILLION], 5]], (3 * TRILLION + 1,))
    assert name == "rectilinear"
    assert [*edges.runs] == [(3, TRILLION), (5, 1)]
    assert parse([[[3, TRILLION]]], (3 * TRILLION,)) == ("regular", (3,))


# -- refused --------------------------------------------------------------------------------------

REFUSED = [
    # chunks, shape, what the message names
    (0, (10,), "axis 0.*at least 1, found 0; -1 "),
    (-2, (10,), "axis 0.*at least 1, found -2"),
    ((5, 0), (10, 10), "axis 1.*at least 1, found 0"),
    ((5, -3), (10, 10), "axis 1.*at least 1, found -3"),
    (True, (10,), "True"),
    ((5, True), (10, 10), "axis 1.*True"),
    (2.0, (10,), r"2\.0"),
    ((5, 2.5), (10, 10), r"axis 1.*2\.5"),
    (np.array([5.0, 2.0]), (10, 10), r"axis 0.*5\.0"),
    (np.array(3), (10,), "3"),
    (Fraction(5), (10,), "Fraction"),
    (object(), (10,), "object"),
    ("big", (10,), "axis 0.*'big'.*'auto'"),
    ((5, "Auto"), (10, 10), "axis 1.*'Auto'.*'auto'"),
    (b"ab", (10, 10), "b'ab'"),
    ({2, 3}, (10, 10), r"\{2, 3\}"),
    ((5,), (10, 10), "1 entries.*2 axes"),
    ((5, 5, 5), (10, 10), "3 entries.*2 axes"),
    ((), (10,), "0 entries.*1 axes"),
    ((5,), (), "1 entries.*0 axes"),
    ([3, 5, 2], (10,), r"3 entries.*1 axes.*nest them: \[\[3, 5, 2\]\]"),
    ([[3, 5]], (10,), "axis 0.*sum to 8.*needs 10.*2 more"),
    ((5, [3, 5]), (10, 10), "axis 1.*sum to 8.*needs 10.*2 more"),
    ([[]], (10,), "axis 0.*empty"),
    ([[]], (0,), "axis 0.*empty"),
    ([[0, 10]], (10,), "axis 0.*edge 0 is 0.*at least 1"),
    ([[-1]], (10,), "axis 0.*-1.*at least 1"),
    ([[5, True, 4]], (10,), "axis 0.*integer.*True"),
    ([[5.0, 5.0]], (10,), r"axis 0.*integer.*5\.0"),
    ([["5", "5"]], (10,), "axis 0.*integer.*'5'"),
    ([[None]], (10,), "axis 0.*integer.*None"),
    ([[np.array(10)]], (10,), "axis 0.*integer"),
    ([np.array([5.0, 5.0])], (10,), "axis 0.*1-d integers.*float64"),
    ([np.array([[5, 2]])], (10,), r"axis 0.*1-d integers.*\(1, 2\)"),
    ([[[5, 2, 1]]], (10,), "axis 0.*pair.*5, 2, 1"),
    ([[[5, 0]]], (10,), "axis 0.*count.*at least 1"),
    ([[[[5, 2]]]], (10,), "axis 0.*pair"),
    ([[2**63]], (10,), f"axis 0.*{2**63 - 1}"),
    ([[[2**40, 2**40]]], (10,), f"axis 0.*{2**63 - 1}"),
    (2**63, (10,), f"axis 0.*{2**63 - 1}"),
    ((5, 10**5000), (10, 10), f"axis 1.*{2**63 - 1}"),
    ([{0: 5}], (10,), "axis 0.*0: 5"),
    ([b"55"], (10,), "axis 0.*b'55'"),
    ({2: 5}, (10, 10), "no dimension 2.*0 to 1"),
    ({-1: 5}, (10, 10), "no dimension -1"),
    ({True: 5}, (10, 10), "no dimension True"),
    ({0: 0}, (10,), "axis 0.*at least 1"),
    (ChunkGrid.from_sizes((10,), (5,)), (10, 10), "1 entries.*2 axes"),
    (ChunkGrid((VaryingDimension([5, 4], 9),)), (10,), "axis 0.*sum to 9.*needs 10"),
]


@pytest.mark.parametrize(("chunks", "shape", "message"), REFUSED, ids=[f"{k} {c[2]}" for k, c in enumerate(REFUSED)])
def test_refused(chunks, shape, message):
    with pytest.raises(ChunkShapeError, match=message) as info:
        parse(chunks, shape)
    assert isinstance(info.value, ValueError)
    if "axis 0" in message or "axis 1" in message:
        assert info.value.axis == int(message[message.index("axis ") + 5])


@pytest.mark.parametrize("chunks", [0, (5, "Auto"), [[3, 5]], 2**63])
def test_nothing_is_stored_for_refused_chunks(chunks):
    store = zellige.MemoryStore()
    with pytest.raises(ChunkShapeError):
        zellige.create_array(store, shape=(10,), chunks=chunks, dtype="int8")
    assert list(store.list()) == []


# -- the new region of a resize -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (None, [None, None]),
        (5, [5, 5]),
        (np.int64(5), [5, 5]),
        ((5, None), [5, None]),
        ([[1, 2], 3], [(1, 2), 3]),
        ([[[1, 4]], None], [(1, 1, 1, 1), None]),
        ({1: [4, 5]}, [None, (4, 5)]),
        ({}, [None, None]),
    ],
)
def test_chunks_of_a_new_region(chunks, expected):
    assert parse_new_chunks(chunks, 2) == expected


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ("auto", "'auto'"),
        (2.5, r"2\.5"),
        (0, "axis 0.*at least 1"),
        (-1, "axis 0.*at least 1, found -1$"),
        ((5, 0), "axis 1.*at least 1"),
        ((5,), "1 entries for 2 axes"),
        ((5, []), "axis 1.*empty"),
        ((5, "auto"), "axis 1.*'auto'"),
        ((5, [True]), "axis 1.*True"),
        ({2: 5}, "no dimension 2"),
        (np.array(3), "3"),
        (b"ab", "b'ab'"),
        ((2**63, 1), f"axis 0.*{2**63 - 1}"),
    ],
)
def test_new_regions_that_are_refused(chunks, message):
    with pytest.raises(ChunkShapeError, match=message):
        parse_new_chunks(chunks, 2)


# -- automatic sizes ------------------------------------------------------------------------------

itemsizes = st.sampled_from([1, 2, 4, 8, 16])
shapes = st.lists(st.integers(0, 5000) | st.integers(1, 10**9), max_size=4).map(tuple)


@settings(deadline=None)
@given(shapes, itemsizes)
@example((3650, 721, 1440), 4)
@example((100_000, 1000), 8)
@example((2, 10**9), 16)
def test_automatic_chunks_hold_one_to_sixteen_mebibytes(shape, itemsize):
    sizes = auto_chunks(shape, itemsize)
    nbytes = prod(sizes) * itemsize
    assert len(sizes) == len(shape)
    assert all(1 <= size <= max(1, n) for size, n in zip(sizes, shape, strict=True))
    assert nbytes <= 16 * MiB
    if prod(shape) * itemsize > 16 * MiB:
        assert nbytes >= MiB


@settings(deadline=None)
@given(shapes, itemsizes)
def test_the_last_axes_stay_whole(shape, itemsize):
    assume(0 not in shape)
    sizes = auto_chunks(shape, itemsize)
    cut = [axis for axis, (size, n) in enumerate(zip(sizes, shape, strict=True)) if size < n]
    # At most one axis is cut into pieces; before it are single rows, after it whole axes.
    for axis in cut[:-1]:
        assert sizes[axis] == 1
    for axis in range(cut[-1] if cut else 0):
        assert sizes[axis] == 1


@settings(deadline=None)
@given(shapes, itemsizes)
def test_no_sliver_is_left_at_the_end(shape, itemsize):
    for size, n in zip(auto_chunks(shape, itemsize), shape, strict=True):
        count = -(-n // size)
        assert n == 0 or count * size - n < count  # pieces differ by less than one element each


@pytest.mark.parametrize("shape", [(), (1,), (1000, 1000), (3, 0, 5), (0,), (1, 1, 1)])
def test_small_arrays_are_one_chunk(shape):
    assert auto_chunks(shape, 1) == tuple(max(1, n) for n in shape)


def test_elements_larger_than_a_chunk():
    assert auto_chunks((5, 5), itemsize=64 * MiB) == (1, 1)


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 10**6), itemsizes, st.integers(1, 5000))
def test_given_axes_are_kept(a, b, itemsize, size):
    free, kept = auto_chunks((a, b), itemsize, [None, size])
    assert kept == size
    assert 1 <= free <= a
    assert free * size * itemsize <= 16 * MiB
    first, second = auto_chunks((a, b), itemsize, [Edges.of([a, a]), None])
    assert first == (a, a)
    assert 1 <= second <= b
    assert second == 1 or second * a * itemsize <= 16 * MiB


@pytest.mark.parametrize("wrong", ["x", (4, 4), True, 1.5, {"q": 1}])
def test_errors_name_the_argument_that_is_wrong(wrong):
    with pytest.raises(ChunkShapeError, match="shards") as found:
        parse_shards((2,), wrong, (8,), itemsize=1)
    assert "chunks=" not in str(found.value)
    with pytest.raises(ChunkShapeError, match="chunks"):
        parse_shards(wrong, None, (8,), itemsize=1)
