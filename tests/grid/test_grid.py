"""The chunk grid, as seed 004 describes it: the product of its dimensions."""

from __future__ import annotations

import pickle
import tracemalloc
from itertools import product
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zellige
from dimension_oracle import dimensions
from zellige import ChunkGrid, ChunkSpec, DimensionGrid, FixedDimension, VaryingDimension
from zellige.errors import ChunkShapeError
from zellige.grid.edges import Edges

TRILLION = 10**12


class SeedDimension:
    """A dimension with exactly the names that seed 004 asks for, from a dimension of ours."""

    def __init__(self, dimension):
        self._dimension = dimension
        self.nchunks, self.ngridcells = dimension.nchunks, dimension.ngridcells
        self.extent, self.unique_edge_lengths = dimension.extent, [*dimension.unique_edge_lengths]
        for name in ("index_to_chunk", "chunk_offset", "chunk_size", "data_size", "indices_to_chunks"):
            setattr(self, name, getattr(dimension, name))

    def with_extent(self, new_extent):
        return SeedDimension(self._dimension.with_extent(new_extent))

    def resize(self, new_extent):
        return SeedDimension(self._dimension.resize(new_extent))


# -- building grids -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "sizes", "kind"),
    [
        (100, 10, FixedDimension(10, 100)),
        (95, np.int32(10), FixedDimension(10, 95)),
        (30, [10, 10, 10], FixedDimension(10, 30)),
        (30, [[10, 3]], FixedDimension(10, 30)),
        (30, np.array([10, 10, 10]), FixedDimension(10, 30)),
        (30, [30], FixedDimension(30, 30)),
        (29, [10, 10, 10], VaryingDimension([10, 10, 10], 29)),
        (20, [10, 10, 10], VaryingDimension([10, 10, 10], 20)),
        (0, [10], VaryingDimension([10], 0)),
        (30, (10, 15, 5), VaryingDimension([10, 15, 5], 30)),
        (25, [10, 10, 5], VaryingDimension([10, 10, 5], 25)),
        (0, 10, FixedDimension(10, 0)),
    ],
)
def test_uniform_edges_that_fit_exactly_collapse(extent, sizes, kind):
    grid = ChunkGrid.from_sizes((extent,), (sizes,))
    assert grid.dimensions == (kind,)
    assert grid.is_regular is isinstance(kind, FixedDimension)


@pytest.mark.parametrize(
    ("shape", "sizes", "message"),
    [
        ((10,), (1, 2), "2 chunk sizes for 1 dimensions"),
        ((10, 10), (3,), "1 chunk sizes for 2 dimensions"),
        ((10,), ([3, 3],), "sum to 6, the shape needs 10"),
        ((10,), ([],), "at least one edge"),
        ((10,), (-1,), "-1"),
        ((-10,), (1,), "-10"),
        ((10,), (True,), "True"),
        ((10,), (2.5,), r"2\.5"),
        ((10,), (None,), "None"),
        ((10,), ("10",), "'1'"),
    ],
)
def test_sizes_that_do_not_fit(shape, sizes, message):
    with pytest.raises(ChunkShapeError, match=message):
        ChunkGrid.from_sizes(shape, sizes)


def test_from_metadata_keeps_what_is_declared():
    axes = (10, Edges.of([10, 10, 10]), Edges.of([10, 10]))
    document = SimpleNamespace(shape=(30, 30, 15), chunk_grid=SimpleNamespace(axes=axes))
    grid = ChunkGrid.from_metadata(document)
    assert grid.dimensions == (FixedDimension(10, 30), VaryingDimension([[10, 3]], 30), VaryingDimension([10, 10], 15))
    assert not grid.is_regular
    assert grid.shape == (30, 30, 15)


def test_regular_grids_have_a_chunk_shape_and_others_say_what_to_use():
    assert ChunkGrid.from_sizes((100, 95), (10, 20)).chunk_shape == (10, 20)
    grid = ChunkGrid.from_sizes((6, 7), ([1, 2, 3], 4))
    for kind in (NotImplementedError, AttributeError):
        with pytest.raises(kind, match=r"chunk_sizes.*read_chunk_sizes.*write_chunk_sizes"):
            grid.chunk_shape
    assert getattr(grid, "chunk_shape", None) is None
    assert not hasattr(grid, "chunk_shape")


# -- grids ----------------------------------------------------------------------------------------

grids = st.lists(dimensions, max_size=3)


@settings(max_examples=60, deadline=None)
@given(grids)
def test_a_grid_is_the_product_of_its_dimensions(pairs):
    oracles = [oracle for _, oracle in pairs]
    grid = ChunkGrid(dimensions=tuple(dim for dim, _ in pairs))
    counts = tuple(o.nchunks for o in oracles)
    assert grid.ndim == len(pairs)
    assert grid.shape == tuple(o.extent for o in oracles)
    assert grid.grid_shape == counts
    assert grid.get_nchunks() == len(grid) == prod(counts)
    assert grid.chunk_sizes == tuple(tuple(o.data[: o.nchunks]) for o in oracles)
    assert grid.is_regular is all(isinstance(dim, FixedDimension) for dim, _ in pairs)
    coords = list(product(*map(range, counts)))
    assert list(grid.all_chunk_coords()) == coords
    specs = list(grid)
    assert len(specs) == len(coords)
    seen = np.zeros(grid.shape, int)
    for spec, at in zip(specs, coords, strict=True):
        assert spec == grid[at] == grid.spec(at)
        assert spec.codec_shape == tuple(o.edges[k] for o, k in zip(oracles, at, strict=True))
        assert spec.shape == tuple(o.data[k] for o, k in zip(oracles, at, strict=True))
        assert tuple(s.start for s in spec.slices) == tuple(o.begins[k] for o, k in zip(oracles, at, strict=True))
        assert spec.is_boundary is (spec.shape != spec.codec_shape)
        seen[spec.slices] += 1
    assert (seen == 1).all()  # no gaps, no overlaps
    twin = pickle.loads(pickle.dumps(grid))
    assert twin == grid
    assert hash(twin) == hash(grid)


@settings(deadline=None)
@given(grids, st.data())
def test_a_box_of_chunks(pairs, data):
    grid = ChunkGrid(tuple(dim for dim, _ in pairs))
    origin = [data.draw(st.integers(0, n)) for n in grid.grid_shape]
    shape = [data.draw(st.integers(0, n - k)) for n, k in zip(grid.grid_shape, origin, strict=True)]
    expected = list(product(*(range(k, k + n) for k, n in zip(origin, shape, strict=True))))
    assert list(grid.all_chunk_coords(origin=origin, selection_shape=shape)) == expected
    rest = list(product(*(range(k, n) for k, n in zip(origin, grid.grid_shape, strict=True))))
    assert list(grid.all_chunk_coords(origin=origin)) == rest


@settings(deadline=None)
@given(grids)
def test_dimensions_of_others_make_the_same_grid(pairs):
    own = ChunkGrid(tuple(dim for dim, _ in pairs))
    foreign = ChunkGrid(tuple(SeedDimension(dim) for dim, _ in pairs))
    assert all(isinstance(dim, DimensionGrid) for dim in foreign.dimensions)
    assert (foreign.shape, foreign.grid_shape, foreign.chunk_sizes) == (own.shape, own.grid_shape, own.chunk_sizes)
    assert [*foreign] == [*own]
    assert foreign.to_text() == own.to_text()
    longer = tuple(n + 7 for n in own.shape)
    assert foreign.update_shape(longer).chunk_sizes == own.update_shape(longer).chunk_sizes
    cut = [[3] * 9] * own.ndim
    assert foreign.update_shape(longer, cut).chunk_sizes == own.update_shape(longer, cut).chunk_sizes
    if all(own.shape):
        array = zellige.create_array(data=np.arange(prod(own.shape)).reshape(own.shape), chunks=foreign)
        assert array.write_chunk_sizes == own.chunk_sizes
        assert np.array_equal(array[...], np.arange(prod(own.shape)).reshape(own.shape))


def test_chunk_by_position():
    grid = ChunkGrid.from_sizes((55, 90), [[10, 20, 30], [25, 25, 25, 25]])
    assert grid[0, 1] == ChunkSpec((slice(0, 10), slice(25, 50)), (10, 25))
    corner = grid[2, 3]
    assert corner == ChunkSpec((slice(30, 55), slice(75, 90)), (30, 25))
    assert corner.shape == (25, 15)
    assert corner.is_boundary
    assert not grid[0, 0].is_boundary
    assert grid[np.int64(0), 1] == grid[0, 1]
    assert grid[..., 0, 1] == grid[0, ..., 1] == grid[0, 1, ...] == grid[0, 1]
    for outside in [(99, 99), (0, 4), (3, 0), (-1, 0), (0, -1)]:
        assert grid[outside] is None
    line = ChunkGrid.from_sizes((5,), (2,))
    assert line[2] == ChunkSpec((slice(4, 5),), (2,))
    assert line[3] is None


def test_slices_give_views():
    grid = ChunkGrid.from_sizes((6, 8), [[1, 2, 3], 2])
    everything = {at: grid[at] for at in grid.all_chunk_coords()}

    def at(view):
        assert list(view) == [everything[coords] for coords in view.all_chunk_coords()]
        assert len(view) == prod(view.grid_shape)
        return list(view.all_chunk_coords())

    assert at(grid[0, :]) == at(grid[0]) == at(grid[0, ...]) == [(0, k) for k in range(4)]
    assert at(grid[:, 3]) == at(grid[..., 3]) == [(k, 3) for k in range(3)]
    assert at(grid[1:3, :]) == [(i, j) for i in (1, 2) for j in range(4)]
    assert at(grid[::2, 1:3]) == [(0, 1), (0, 2), (2, 1), (2, 2)]
    assert at(grid[::-1, 0:1]) == [(2, 0), (1, 0), (0, 0)]
    assert at(grid[:]) == at(grid[...]) == at(grid[:, :]) == list(everything)
    assert at(grid[5:, :]) == []
    assert grid[1:3, ::2].grid_shape == (2, 2)
    assert grid[1:3, :][1, 0] == everything[2, 0]  # positions count within the view
    assert grid[1:3, :][2, 0] is None
    assert at(grid[1:, :][1:, 2:]) == [(2, 2), (2, 3)]


@pytest.mark.parametrize("coords", [(0, 0, 0), (0, slice(None), 0), (..., 0, 0, 0)])
def test_too_many_coordinates(coords):
    with pytest.raises(IndexError, match="3 coordinates for a grid of 2 dimensions"):
        ChunkGrid.from_sizes((6, 8), (2, 2))[coords]


@pytest.mark.parametrize("coords", [(3, slice(None)), (slice(None), -1), 3])
def test_views_outside_the_grid(coords):
    with pytest.raises(IndexError, match="out of bounds"):
        ChunkGrid.from_sizes((6, 8), (2, 4))[coords]


@pytest.mark.parametrize("coords", ["a", 1.0, (0, 1.5), None])
def test_coordinates_are_integers_and_slices(coords):
    with pytest.raises(TypeError):
        ChunkGrid.from_sizes((6, 8), (2, 4))[coords]


def test_rank_zero_has_one_chunk():
    grid = ChunkGrid.from_sizes((), ())
    assert (grid.ndim, grid.shape, grid.grid_shape, grid.get_nchunks()) == (0, (), (), 1)
    assert grid.is_regular
    assert grid.chunk_shape == grid.chunk_sizes == ()
    assert list(grid.all_chunk_coords()) == [()]
    assert list(grid) == [grid[()]] == [grid[...]] == [ChunkSpec((), ())]
    assert not grid[()].is_boundary
    assert grid.update_shape(()) == grid


def test_zero_length_axes_have_no_chunks():
    grid = ChunkGrid.from_sizes((0, 4, 0), (3, 2, [5]))
    assert grid.grid_shape == (0, 2, 0)
    assert grid.get_nchunks() == 0
    assert list(grid) == list(grid.all_chunk_coords()) == []
    assert grid.chunk_sizes == ((), (2, 2), ())
    assert grid[0, 0, 0] is None
    assert not grid
    assert not grid[:, 1:]
    assert grid.dimensions[2].ngridcells == 1


def test_update_shape():
    grid = ChunkGrid.from_sizes((60, 100), ([10, 20, 30], 25))
    assert grid.update_shape((80, 90)).dimensions == (VaryingDimension([10, 20, 30, 30], 80), FixedDimension(25, 90))
    cut = grid.update_shape((75, 150), chunks=([15], [20, 30]))
    assert cut.chunk_sizes == ((10, 20, 30, 15), (25, 25, 25, 25, 20, 30))
    assert grid.update_shape((75, 100), chunks=(5, None)).chunk_sizes[0] == (10, 20, 30, 5, 5, 5)
    assert grid.update_shape((30, 100)).dimensions[0] == VaryingDimension([10, 20, 30], 30)
    assert grid.shape == (60, 100)  # grids do not change
    with pytest.raises(ChunkShapeError, match="rank"):
        grid.update_shape((60,))


# -- worked examples ------------------------------------------------------------------------------


def test_the_regular_example_of_the_specification():
    # Seed 000 and spec 5.1.
    grid = ChunkGrid.from_sizes((10, 200, 3000), (5, 20, 400))
    assert grid.grid_shape == (2, 10, 8)
    chunk = tuple(dim.index_to_chunk(i) for dim, i in zip(grid.dimensions, (7, 150, 900), strict=True))
    assert chunk == (1, 7, 2)
    assert tuple(i - s.start for i, s in zip((7, 150, 900), grid[chunk].slices, strict=True)) == (2, 10, 100)
    last = grid[0, 0, 7]
    assert last.slices[2] == slice(2800, 3000)
    assert last.codec_shape == (5, 20, 400)
    assert last.shape == (5, 20, 200)


@pytest.mark.parametrize(
    ("shape", "edges", "element", "chunk", "codec_shape", "inside"),
    [
        ((6, 7), [[1, 2, 3], [[3, 2], 1]], (4, 5), (2, 1), (3, 3), (1, 2)),
        ((26, 38), [[16, 10], [24, 14]], (20, 15), (1, 0), (10, 24), (4, 15)),
        ((10,), [3], (9,), (3,), (3,), (0,)),
    ],
)
def test_the_rectilinear_examples_of_the_specification(shape, edges, element, chunk, codec_shape, inside):
    grid = ChunkGrid.from_sizes(shape, edges)
    assert tuple(dim.index_to_chunk(i) for dim, i in zip(grid.dimensions, element, strict=True)) == chunk
    assert grid[chunk].codec_shape == codec_shape
    assert tuple(i - s.start for i, s in zip(element, grid[chunk].slices, strict=True)) == inside


def test_edges_beyond_the_array():
    # Spec 5.2: shape [4], edges [1, 2, 3, 5].
    dim = VaryingDimension([1, 2, 3, 5], 4)
    assert [dim.chunk_offset(k) for k in range(4)] == [0, 1, 3, 6]
    assert (dim.ngridcells, dim.nchunks) == (4, 3)
    assert (dim.chunk_size(2), dim.data_size(2)) == (3, 1)
    assert (dim.chunk_size(3), dim.data_size(3)) == (5, 0)
    grid = ChunkGrid((dim,))
    assert grid.grid_shape == (3,)
    assert grid.chunk_sizes == ((1, 2, 1),)
    assert grid[3] is None
    assert grid[2] == ChunkSpec((slice(3, 4),), (3,))


def test_chunk_sizes_are_plain_tuples_of_integers():
    for chunks in ((30, 40), ([10, 20, 70], 40), (np.array([60, 40]), [[40, 2]])):
        sizes = ChunkGrid.from_sizes((100, 80), chunks).chunk_sizes
        assert {type(axis) for axis in sizes} == {tuple}
        assert {type(size) for axis in sizes for size in axis} == {int}


def test_the_chunk_sizes_of_the_seed():
    assert ChunkGrid.from_sizes((100, 80), (30, 40)).chunk_sizes == ((30, 30, 30, 10), (40, 40))
    assert ChunkGrid.from_sizes((60, 100), ([10, 20, 30], [50, 50])).chunk_sizes == ((10, 20, 30), (50, 50))


# -- values ---------------------------------------------------------------------------------------


def test_equality_and_hashing():
    def make(extent=55, edges=(10, 20, 30), size=10):
        return ChunkGrid((FixedDimension(size, 100), VaryingDimension(edges, extent)))

    assert make() == make()
    assert hash(make()) == hash(make())
    assert len({make(), make(), make(54), make(edges=(10, 30, 20)), make(size=11)}) == 4
    assert VaryingDimension([10, 10], 20) != FixedDimension(10, 20)  # declared otherwise
    assert VaryingDimension([[2, 2]], 3) == VaryingDimension([2, 2], 3)
    assert make() != "grid"
    assert VaryingDimension([1], 1) != 1


def test_specs_and_grids_cannot_be_changed():
    grid = ChunkGrid.from_sizes((5,), (2,))
    for target, name in ((grid, "dimensions"), (grid[0], "slices"), (grid.dimensions[0], "size")):
        with pytest.raises(AttributeError):
            setattr(target, name, ())


def test_a_trillion_chunks_cost_nothing():
    tracemalloc.start()
    try:
        grid = ChunkGrid.from_sizes((3 * TRILLION + 5, TRILLION), ([[3, TRILLION], 5], 1))
        assert grid.get_nchunks() == (TRILLION + 1) * TRILLION  # more than len() can say
        assert grid
        assert grid[1:, :]
        assert grid[TRILLION, 7] == ChunkSpec((slice(3 * TRILLION, 3 * TRILLION + 5), slice(7, 8)), (5, 1))
        assert next(iter(grid)).shape == (3, 1)
        assert next(iter(grid[5:, :])).slices[0] == slice(15, 18)
        assert len(grid.chunk_sizes[0]) == TRILLION + 1
        grown = grid.update_shape((4 * TRILLION + 5, TRILLION), (1, None))
        assert grown.grid_shape == (2 * TRILLION + 1, TRILLION)
        assert grid == ChunkGrid.from_sizes(grid.shape, ([[3, TRILLION], 5], 1))
        assert {grid: 1}[grid] == 1
        assert pickle.loads(pickle.dumps(grid)) == grid
        assert len(repr(grid)) < 500
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_public_names():
    for name in ("ChunkGrid", "ChunkSpec", "DimensionGrid", "FixedDimension", "VaryingDimension"):
        assert name in zellige.__all__
        assert getattr(zellige.grid, name) is getattr(zellige, name)
