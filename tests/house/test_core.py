"""Names at zarr-python's places: the snippets of seed 004 run with `zarr` replaced by `zellige`."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_grid import SeedDimension
from test_indexing import Ix

import strategies as ours
import zellige
from zellige import ChunkGrid, ChunkSpec
from zellige.core.indexing import OrthogonalIndexer
from zellige.errors import BoundsCheckError, ChunkShapeError
from zellige.metadata.v3 import RectilinearChunkGridMetadata, RegularChunkGridMetadata


def run(snippet: str, **names: object) -> dict[str, object]:
    """What a snippet of the seed leaves behind, with `zarr` replaced by `zellige`."""
    found = {"zellige": zellige, **names}
    exec(re.sub(r"\bzarr\b", "zellige", snippet), found)
    return found


# -- the seed's examples --------------------------------------------------------------------------

API = """
# Creating arrays
arr = zarr.create_array(shape=(100, 200), chunks=(10, 20))                          # regular
uneven = zarr.create_array(shape=(60, 100), chunks=[[10, 20, 30], [25, 25, 25, 25]])   # rectilinear

# ChunkGrid as a collection
grid = arr._chunk_grid            # ChunkGrid (bound to array shape)
assert grid.grid_shape == (10, 10)
assert grid.ndim == 2
assert grid.is_regular

spec = grid[0, 1]                 # ChunkSpec for chunk at grid position (0, 1)
assert spec.slices == (slice(0, 10), slice(20, 40))
assert spec.shape == (10, 20)
assert spec.codec_shape == (10, 20)

boundary = grid[9, 0]
assert boundary.shape == (10, 20)
assert boundary.codec_shape == (10, 20)

assert grid[99, 99] is None

for spec in grid:                 # iterate all chunks
    ...

assert arr.chunks == (10, 20)
assert arr.write_chunk_sizes == ((10,) * 10, (20,) * 10)
"""

SIZES = """
arr = zarr.create_array(store, shape=(100, 80), chunks=(30, 40))
assert arr.write_chunk_sizes == ((30, 30, 30, 10), (40, 40))
"""

UNEVEN_SIZES = """
arr = zarr.create_array(store, shape=(60, 100), chunks=[[10, 20, 30], [50, 50]])
assert arr.write_chunk_sizes == ((10, 20, 30), (50, 50))
arr.resize((80, 100))
arr.resize((200, 100))
arr.resize((30, 100))
assert arr.shape == (30, 100)
"""

FROM_ARRAY = """
src = zarr.create_array(store, shape=(60, 100), chunks=[[10, 20, 30], [50, 50]])
new = zarr.from_array(data=src, store=new_store, chunks="keep")
assert new.write_chunk_sizes == ((10, 20, 30), (50, 50))
"""

CONSTRUCTION = """
from zarr.core.chunk_grids import ChunkGrid, FixedDimension, VaryingDimension
# Regular grid
grid = ChunkGrid.from_sizes(array_shape=(100, 200), chunk_sizes=(10, 20))
# Rectilinear grid
grid = ChunkGrid.from_sizes(array_shape=(60, 100), chunk_sizes=[[10, 20, 30], [25, 25, 25, 25]])
# Rectilinear grid with boundary clipping
grid = ChunkGrid.from_sizes(array_shape=(55, 90), chunk_sizes=[[10, 20, 30], [25, 25, 25, 25]])
# Direct construction
grid = ChunkGrid(dimensions=(FixedDimension(10, 100), VaryingDimension([10, 20, 30], 55)))
"""

EXPERIMENTAL = """
from zarr.experimental import ChunkGrid, ChunkSpec
assert isinstance(ChunkGrid.from_sizes((5,), (2,))[0], ChunkSpec)
assert zarr.experimental.ChunkGrid is ChunkGrid
"""


@pytest.mark.parametrize("snippet", [API, SIZES, UNEVEN_SIZES, FROM_ARRAY, CONSTRUCTION, EXPERIMENTAL])
def test_the_examples_of_the_seed(snippet):
    run(snippet, store={}, new_store={})


VIRTUALIZARR = """
from zarr.core.metadata.v3 import ArrayV3Metadata, {name}

def is_regular(_metadata):
    assert isinstance(_metadata, ArrayV3Metadata)
    if not isinstance(_metadata.chunk_grid, {name}):
        return False
    return True

def chunk_shape(metadata):
    return cast({name}, metadata.chunk_grid).chunk_shape
"""


@pytest.mark.parametrize("name", ["RegularChunkGridMetadata", "RegularChunkGrid"])
def test_the_lines_of_virtualizarr(name):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = run(VIRTUALIZARR.format(name=name), cast=cast)
    assert [warning.category for warning in told] == ([] if name.endswith("Metadata") else [DeprecationWarning])
    regular = zellige.zeros((5, 6), chunks=(2, 3)).metadata
    assert found["is_regular"](regular)
    assert found["chunk_shape"](regular) == (2, 3)
    assert not found["is_regular"](zellige.zeros((5, 6), chunks=([1, 4], 3)).metadata)
    assert not found["is_regular"](zellige.zeros(5, chunks=2, chunk_grid="zarrs.regular_bounded").metadata)


CUBED = """
def _create_zarr_indexer(selection, shape, chunks):
    if zarr.__version__[0] == "3":
        from zarr.core.chunk_grids import ChunkGrid
        from zarr.core.indexing import OrthogonalIndexer
        return OrthogonalIndexer(selection, shape, ChunkGrid.from_sizes(shape, chunks))
"""

CUBED_FOR_BOTH = """
def _create_zarr_indexer(selection, shape, chunks):
    if zarr.__version__[0] == "3":
        from zarr.core.indexing import OrthogonalIndexer
        try:
            from zarr.core.chunk_grids import ChunkGrid
            return OrthogonalIndexer(selection, shape, ChunkGrid.from_sizes(shape, chunks))
        except ImportError:
            from zarr.core.chunk_grids import RegularChunkGrid
            return OrthogonalIndexer(selection, shape, RegularChunkGrid(chunk_shape=chunks))
    else:
        from zarr.indexing import OrthogonalIndexer
        return OrthogonalIndexer(selection, ZarrArrayIndexingAdaptor(shape, chunks))
"""

CUBED_BEFORE = """
def _create_zarr_indexer(selection, shape, chunks):
    if zarr.__version__[0] == "3":
        from zarr.core.chunk_grids import RegularChunkGrid
        from zarr.core.indexing import OrthogonalIndexer
        return OrthogonalIndexer(selection, shape, RegularChunkGrid(chunk_shape=chunks))
"""

ZARR_3 = SimpleNamespace(__version__="3.4.2")
"""The snippets ask for the version of zarr-python whose interface they use."""


@pytest.mark.parametrize(
    ("snippet", "warned"), [(CUBED, 0), (CUBED_FOR_BOTH, 0), (CUBED_BEFORE, 2)], ids=["new", "both", "before"]
)
def test_the_lines_of_cubed(snippet, warned):
    make = run(snippet, zellige=ZARR_3)["_create_zarr_indexer"]
    data = np.arange(35).reshape(5, 7)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        indexer = make((slice(1, 4), [6, 0, 5]), data.shape, (2, 3))
    assert [warning.category for warning in told] == [DeprecationWarning] * warned
    assert [projection.chunk_coords for projection in indexer] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert np.array_equal(gathered(indexer, data, (2, 3)), data[1:4][:, [6, 0, 5]])


# -- the indexer ----------------------------------------------------------------------------------


def gathered(indexer: OrthogonalIndexer, data: np.ndarray, chunks: object) -> np.ndarray:
    """What the chunks that an indexer names come to, each cut from the data and padded to its codec shape."""
    grid = chunks if isinstance(chunks, ChunkGrid) else ChunkGrid.from_sizes(data.shape, chunks)
    out = np.full(indexer.shape, -1)
    for coords, inside, outside, whole in indexer:
        spec = grid.spec(coords)
        chunk = np.full(spec.codec_shape, -2)
        chunk[tuple(slice(n) for n in spec.shape)] = data[spec.slices]
        picked = chunk[inside]
        assert picked.shape == out[outside].shape
        out[outside] = picked
        assert not whole or sorted(np.ravel(picked)) == sorted(np.ravel(data[spec.slices]))
    return out


@ours.examples(0.06)
@given(st.data(), st.booleans())
def test_a_selection_is_gathered_from_the_chunks_that_it_hits(data, foreign):
    shape = data.draw(ours.shapes())
    chosen = data.draw(ours.grids(shape))
    grid = (
        ChunkGrid.from_sizes(shape, chosen.edges) if all(shape) else zellige.zeros(shape, chunks=chosen.argument).grid
    )
    if foreign:
        grid = ChunkGrid(tuple(map(SeedDimension, grid.dimensions)))
    index = data.draw(ours.orthogonal(shape))
    model = np.arange(int(np.prod(shape))).reshape(shape)
    try:
        expected = np.asarray(Ix(index, model).get(model))
    except IndexError:
        with pytest.raises(BoundsCheckError):
            OrthogonalIndexer(index, shape, grid)
        return
    indexer = OrthogonalIndexer(index, shape, grid)
    assert indexer.shape == expected.shape
    assert np.array_equal(gathered(indexer, model, grid), expected)
    assert [*indexer] or not expected.size


@ours.examples(0.04)
@given(st.data())
def test_chunks_are_those_that_zarr_python_names(data):
    from zarr.core.chunk_grids import RegularChunkGrid
    from zarr.core.indexing import OrthogonalIndexer as Theirs

    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    picks = [
        data.draw(
            st.integers(-n, n - 1)
            | st.builds(
                slice, st.none() | st.integers(0, n), st.none() | st.integers(0, n), st.sampled_from([None, 1, 2])
            )
            | st.lists(st.integers(0, n - 1), min_size=1, max_size=4)
            | ours.masks((n,)).filter(np.any)
        )
        for n in shape
    ]
    indexer = OrthogonalIndexer(tuple(picks), shape, ChunkGrid.from_sizes(shape, chunks))
    theirs = Theirs(tuple(picks), shape, RegularChunkGrid(chunk_shape=chunks))
    assert indexer.shape == theirs.shape
    # Of an empty selection zarr-python names a chunk all the same.
    named = [tuple(map(int, part.chunk_coords)) for part in theirs] if 0 not in indexer.shape else []
    assert [part.chunk_coords for part in indexer] == named


@pytest.mark.parametrize(
    ("shape", "grid", "kind", "message"),
    [
        ((5,), ChunkGrid.from_sizes((6,), (2,)), ChunkShapeError, r"shape \(6,\), found shape \(5,\)"),
        ((5,), (2,), TypeError, r"must be a ChunkGrid, found \(2,\)"),
    ],
)
def test_an_indexer_refuses(shape, grid, kind, message):
    with pytest.raises(kind, match=message):
        OrthogonalIndexer(0, shape, grid)


def test_metadata_is_taken_for_a_grid_with_a_warning():
    for metadata in (RegularChunkGridMetadata((2,)), RectilinearChunkGridMetadata([[1, 4]])):
        with pytest.warns(DeprecationWarning, match="from_sizes"):
            indexer = OrthogonalIndexer(slice(None), (5,), metadata)
        assert np.array_equal(gathered(indexer, np.arange(5), [metadata.axes[0]]), np.arange(5))


def test_a_trillion_chunks_are_named_one_by_one():
    grid = ChunkGrid.from_sizes((10**12,), ([[1, 10**12]],))
    indexer = OrthogonalIndexer(slice(5, None), grid.shape, grid)
    first = next(iter(indexer))
    assert (indexer.shape, first.chunk_coords, first.is_complete_chunk) == ((10**12 - 5,), (5,), True)


# -- names ----------------------------------------------------------------------------------------


def test_older_names_of_chunk_grids_warn():
    from zellige.core import chunk_grids
    from zellige.core.metadata import v3

    for module in (chunk_grids, v3):
        with pytest.warns(DeprecationWarning, match=r"use zellige\.metadata\.v3\.RegularChunkGridMetadata"):
            assert module.RegularChunkGrid is RegularChunkGridMetadata
        with pytest.warns(DeprecationWarning, match="RectilinearChunkGridMetadata"):
            assert module.RectilinearChunkGrid is RectilinearChunkGridMetadata
        with pytest.raises(AttributeError, match=f"{module.__name__}' has no attribute 'Hexagonal'"):
            module.Hexagonal
    assert chunk_grids.ChunkGrid is ChunkGrid
    assert chunk_grids.ChunkSpec is ChunkSpec
    assert v3.parse_chunk_grid({"name": "regular", "configuration": {"chunk_shape": [2]}}) == RegularChunkGridMetadata(
        (2,)
    )
