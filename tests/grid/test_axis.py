"""One axis of the grid, as seed 004 describes it: every method against an explicit list of edges."""

from __future__ import annotations

import pickle
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dimension_oracle import Oracle, dimensions
from zellige import DimensionGrid, FixedDimension, VaryingDimension
from zellige.errors import ChunkShapeError

TRILLION = 10**12

# -- questions -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(dimensions)
def test_every_method_agrees_with_the_list_of_edges(pair):
    dim, oracle = pair
    cells = range(len(oracle.edges))
    assert isinstance(dim, DimensionGrid)
    assert dim.extent == oracle.extent
    assert dim.nchunks == oracle.nchunks
    assert dim.ngridcells == len(oracle.edges)
    assert [dim.chunk_offset(k) for k in cells] == oracle.begins
    assert [dim.chunk_size(k) for k in cells] == oracle.edges
    assert [dim.data_size(k) for k in cells] == oracle.data
    assert [dim.index_to_chunk(i) for i in range(dim.extent)] == oracle.owner
    assert dim.indices_to_chunks(np.arange(dim.extent)).tolist() == oracle.owner
    assert [dim.locate(i) for i in range(dim.extent)] == [(k, oracle.begins[k], oracle.edges[k]) for k in oracle.owner]
    assert dim.data_sizes == tuple(oracle.data[: oracle.nchunks])
    declared = [dim.size] if isinstance(dim, FixedDimension) else oracle.edges
    assert list(dim.unique_edge_lengths) == list(dict.fromkeys(declared))
    assert pickle.loads(pickle.dumps(dim)) == dim


@settings(deadline=None)
@given(dimensions, st.integers(1, 50))
def test_outside_is_an_index_error(pair, far):
    dim, _ = pair
    for method in (dim.chunk_offset, dim.chunk_size, dim.data_size):
        for chunk in (-far, dim.ngridcells - 1 + far):
            with pytest.raises(IndexError, match=f"chunk {chunk} is out of bounds"):
                method(chunk)
    for index in (-far, dim.extent - 1 + far):
        with pytest.raises(IndexError, match=f"index {index} is out of bounds .* {dim.extent}"):
            dim.index_to_chunk(index)


@settings(deadline=None)
@given(dimensions)
def test_indices_keep_their_shape(pair):
    dim, oracle = pair
    indices = np.arange(dim.extent)[::-1].reshape(1, -1, 1)
    found = dim.indices_to_chunks(indices)
    assert found.shape == indices.shape
    assert found.ravel().tolist() == oracle.owner[::-1]


def test_protocol_asks_for_behaviour_not_for_a_class():
    class Half:
        nchunks = 1

    assert isinstance(FixedDimension(1, 1), DimensionGrid)
    assert isinstance(VaryingDimension([1], 1), DimensionGrid)
    assert not isinstance(Half(), DimensionGrid)


def test_unique_edge_lengths():
    assert tuple(FixedDimension(10, 95).unique_edge_lengths) == (10,)
    assert tuple(VaryingDimension([3, 1, 3, 2, 1], 10).unique_edge_lengths) == (3, 1, 2)
    lazily = iter(VaryingDimension([[5, TRILLION], [2, TRILLION], 5], 7).unique_edge_lengths)
    assert [next(lazily), next(lazily)] == [5, 2]
    assert next(lazily, None) is None


def test_fields_of_the_seed():
    assert (FixedDimension(size=10, extent=95).size, FixedDimension(10, 95).extent) == (10, 95)
    dim = VaryingDimension(edges=[1, 2, 3], extent=5)
    assert dim.edges == (1, 2, 3)
    assert dim.cumulative == (1, 3, 6)
    assert dim.extent == 5


def test_size_zero_has_no_chunks():
    dim = FixedDimension(0, 0)
    assert (dim.nchunks, dim.ngridcells, dim.data_sizes) == (0, 0, ())
    with pytest.raises(IndexError):
        dim.chunk_size(0)
    with pytest.raises(IndexError):
        dim.index_to_chunk(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedDimension(-1, 5), "size.*-1"),
        (lambda: FixedDimension(5, -1), "extent.*-1"),
        (lambda: VaryingDimension([1], -1), "extent.*-1"),
        (lambda: FixedDimension(2.5, 5), r"size.*2\.5"),
        (lambda: FixedDimension(True, 5), "size.*True"),
        (lambda: FixedDimension("2", 5), "size.*'2'"),
        (lambda: FixedDimension(2, 5.0), r"extent.*5\.0"),
        (lambda: FixedDimension(2, None), "extent.*None"),
        (lambda: VaryingDimension([1], 1.0), r"extent.*1\.0"),
        (lambda: VaryingDimension([1], True), "extent.*True"),
        (lambda: VaryingDimension([], 0), "at least one edge"),
        (lambda: VaryingDimension([1, 2], 4), "sum to 3, the shape needs 4"),
        (lambda: VaryingDimension([0, 2], 2), "at least 1"),
        (lambda: VaryingDimension([True, 2], 2), "integer"),
        (lambda: VaryingDimension([1, 2], 3).with_extent(4), "sum to 3, the shape needs 4"),
        (lambda: VaryingDimension([1, 2], 3).with_extent(-1), "extent"),
        (lambda: FixedDimension(2, 3).resize(-1), "extent"),
        (lambda: VaryingDimension([1, 2], 3).resize(-1), "extent"),
        (lambda: VaryingDimension([1, 2], 3).resize(9, [2, 3]), "sum to 5, but 6 elements.*append 1"),
        (lambda: FixedDimension(2, 3).resize(9, [2, 2]), "sum to 4, but 5 elements.*append 1"),
        (lambda: VaryingDimension([1, 2], 3).resize(9, 0), "at least 1"),
        (lambda: FixedDimension(2, 3).resize(9, -2), "at least 1"),
        (lambda: FixedDimension(2, 3).resize(9, []), "sum to 0"),
        (lambda: FixedDimension(2, 3).resize(9, True), "integer"),
    ],
)
def test_refused(make, message):
    with pytest.raises(ChunkShapeError, match=message) as info:
        make()
    assert isinstance(info.value, ValueError)


# -- extents and resizing -------------------------------------------------------------------------


@settings(deadline=None)
@given(dimensions, st.integers(0, 60))
def test_with_extent_keeps_the_edges(pair, extent):
    dim, oracle = pair
    if isinstance(dim, VaryingDimension) and extent > sum(oracle.edges):
        with pytest.raises(ChunkShapeError):
            dim.with_extent(extent)
        return
    new = dim.with_extent(extent)
    assert type(new) is type(dim)
    assert (new.extent, new.chunks) == (extent, dim.chunks)


new_regions = st.none() | st.integers(1, 9) | st.lists(st.integers(1, 9), min_size=1, max_size=6)


@settings(deadline=None)
@given(dimensions, st.integers(0, 60), new_regions)
def test_resizing(pair, extent, chunks):
    dim, oracle = pair
    reach = sum(oracle.edges)
    missing = extent - reach
    if isinstance(chunks, list) and sum(chunks) < missing:
        with pytest.raises(ChunkShapeError):
            dim.resize(extent, chunks)
        return
    last = dim.size if isinstance(dim, FixedDimension) else oracle.edges[-1]
    step = last if chunks is None else chunks
    added = [] if missing <= 0 else step if isinstance(step, list) else [step] * ceil(missing / step)
    new = dim.resize(extent, chunks)
    expected = Oracle(oracle.edges + added, extent)
    assert new.extent == extent
    assert new.nchunks == expected.nchunks
    assert [new.chunk_size(k) for k in range(new.nchunks)] == expected.edges[: expected.nchunks]
    assert new.data_sizes == tuple(expected.data[: expected.nchunks])
    if isinstance(dim, VaryingDimension):
        assert new.edges == tuple(expected.edges)
    elif chunks is None or missing <= 0:
        assert new == FixedDimension(dim.size, extent)


def test_resizing_by_example():
    # Seed 004 wishes for [10, 10, 10, 10, 10] here, not for [10, 10, 10, 15].
    assert VaryingDimension([10, 10, 10], 30).resize(45).edges == (10,) * 5
    grown = VaryingDimension([10, 20], 30).resize(80, [5, 45])
    assert grown == VaryingDimension([10, 20, 5, 45], 80)
    slack = VaryingDimension([10, 20, 30], 35)
    assert slack.resize(60).edges == slack.resize(60, [7]).edges == (10, 20, 30)
    assert slack.resize(61, [7]).edges == (10, 20, 30, 7)
    assert slack.resize(5).edges == (10, 20, 30)
    assert slack.resize(0).nchunks == 0
    assert slack.resize(0).ngridcells == 3


def test_a_fixed_dimension_becomes_varying_when_the_new_region_differs():
    dim = FixedDimension(10, 25)
    assert dim.resize(45) == FixedDimension(10, 45)
    assert dim.resize(40, [4, 6]) == VaryingDimension([10, 10, 10, 4, 6], 40)
    assert dim.resize(40, 4) == VaryingDimension([[10, 3], [4, 3]], 40)
    assert dim.resize(28, [4]) == FixedDimension(10, 28)  # the last chunk has room
    assert FixedDimension(10, 0).resize(9, [4, 5]) == VaryingDimension([4, 5], 9)
    for same in (10, np.int64(10)):
        assert dim.resize(45, same) == FixedDimension(10, 45)
    assert dim.resize(50, [10, 10]) == FixedDimension(10, 50)  # uniform and exact
