"""Grids of others: `zarrs.regular_bounded`, whose last chunks are cut to the array, and the old `rectangular`."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zellige
from zellige.errors import ChunkShapeError, ContainsArrayError, MetadataError, NotANodeError

BOUNDED = "zarrs.regular_bounded"


def bounded(store=None, **options):
    return zellige.create_array(store, chunk_grid=BOUNDED, dtype="int16", compressors=None, **options)


def test_codec_shapes_are_clipped_to_the_array():
    # Spec 5.3: L = 10, chunks of 4: codec shapes 4, 4, 2.
    store = {}
    bounded(store, shape=10, chunks=4)[...] = np.arange(1, 11)
    assert [len(store[f"c/{k}"]) // 2 for k in range(3)] == [4, 4, 2]
    document = json.loads(store["zarr.json"])
    assert document["chunk_grid"] == {"name": BOUNDED, "configuration": {"chunk_shape": [4]}}
    a = zellige.open(store)
    assert a.chunks == (4,)
    assert a.write_chunk_sizes == ((4, 4, 2),)
    assert a.grid[2].codec_shape == (2,)


LAYOUTS = {
    "raw": {"compressors": None},
    "zstd": {"compressors": "zstd"},
    "turned": {"filters": [zellige.codecs.TransposeCodec((1, 0))], "compressors": None},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values_are_written_and_read_as_numpy_does(data, layout, tmp_path_factory):
    """Chunks of the border too, whole and in part, from memory and, with the kernel, from files."""
    shape = data.draw(st.tuples(st.integers(0, 9), st.integers(1, 9)))
    chunks = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    a = zellige.create_array(
        data.draw(st.sampled_from([None, tmp_path_factory.mktemp("bounded")])),
        shape=shape,
        chunks=chunks,
        dtype="int16",
        chunk_grid=BOUNDED,
        **layout,
    )
    model = np.zeros(shape, "int16")

    def region():
        return tuple(slice(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in shape)

    for number in range(1, 4):
        where = region()
        a[where] = model[where] = number * 1000 + np.arange(model[where].size).reshape(model[where].shape)
        found = zellige.open(a.store)
        np.testing.assert_array_equal(found[...], model)
        where = region()
        np.testing.assert_array_equal(found[where], model[where])


CHANGES = {
    "resize": lambda a: a.resize((6, 3)),
    "resize smaller": lambda a: a.resize((2, 3)),
    "resize the other axis": lambda a: a.resize((5, 4)),
    "append": lambda a: a.append(np.ones((1, 3))),
    "start_append": lambda a: a.start_append(1),
    "change": lambda a: append_with_others(a.store, a.path),
}


def append_with_others(store, path):
    with zellige.change(store) as change:
        change.append(path, np.ones((1, 3)))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_shape_is_refused_before_anything_is_written(change):
    root = zellige.group(zellige.MemoryStore())
    a = root.create_array("a", data=np.arange(15).reshape(5, 3), chunks=(2, 2), chunk_grid=BOUNDED)
    before = {key: a.store.get(key) for key in a.store.list()}
    with pytest.raises(ChunkShapeError, match=r"keeps its shape.* zellige\.rechunk\(array, target, chunks=2\)"):
        change(a)
    assert {key: a.store.get(key) for key in a.store.list()} == before
    a.resize(a.shape)  # nothing changes
    assert {key: a.store.get(key) for key in a.store.list()} == before


def test_repair_leaves_a_dataset_that_it_could_shrink_only_in_part():
    root = zellige.group(zellige.MemoryStore())
    for name, length, grid in [("a", 7, "regular"), ("b", 9, BOUNDED), ("t", 5, BOUNDED)]:
        root.create_array(name, data=np.arange(length), chunks=2, chunk_grid=grid, dimension_names=["t"])
    before = {key: root.store.get(key) for key in root.store.list()}
    for dry_run in (True, False):
        assert [done for done, _ in zellige.repair(root.store, shrink=True, dry_run=dry_run).actions] == ["left"]
    assert {key: root.store.get(key) for key in root.store.list()} == before


def test_the_remedy_of_the_refusal_works():
    a = bounded(shape=(5, 3), chunks=2)
    a[...] = np.arange(15).reshape(5, 3)
    copy = zellige.rechunk(a, zellige.MemoryStore(), chunks=2)
    assert copy.metadata.chunk_grid.name == "regular"
    copy.append(np.ones((1, 3), "int16"))
    assert copy[...].tolist() == [*np.arange(15).reshape(5, 3).tolist(), [1, 1, 1]]


def test_shards_at_the_border_are_read_from_files(tmp_path):
    model = np.arange(1, 61, dtype="int16").reshape(10, 6)
    a = zellige.create_array(tmp_path, data=model, shards=(4, 4), chunks=(2, 2), chunk_grid=BOUNDED)
    assert (a.grid[2, 1].codec_shape, a.chunks, a.shards) == ((2, 2), (2, 2), (4, 4))
    a[7:9, 3:] = model[7:9, 3:] = -5
    for where in (np.s_[...], np.s_[9, 5], np.s_[3:, 1:], np.s_[::-3, ::2]):
        np.testing.assert_array_equal(zellige.open_array(tmp_path, mode="r")[where], model[where])


def test_shards_that_inner_chunks_do_not_divide_are_read_and_never_written():
    """Shards of 7 and 3 elements, of inner chunks of 2: the last shard changes with the shape of the array."""
    index = [struct.pack("<8Q", 0, 2, 2, 2, 4, 2, 6, 1), struct.pack("<4Q", 0, 2, 2, 1)]
    store = {"c/0": bytes(range(1, 8)) + index[0], "c/1": bytes(range(8, 11)) + index[1]}
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    codec = zellige.codecs.ShardingCodec((2,), [zellige.codecs.BytesCodec(None)], [zellige.codecs.BytesCodec()])
    document = zellige.create_array(shape=10, chunks=10, dtype="uint8", compressors=None).metadata.to_dict()
    document |= {"codecs": [codec.to_json()], "chunk_grid": {"name": BOUNDED, "configuration": {"chunk_shape": [7]}}}
    assert document["codecs"][0]["configuration"]["index_codecs"] == [little]
    store["zarr.json"] = json.dumps(document).encode()
    a = zellige.open_array(store, config={"uneven_inner_chunks": True})
    assert a[...].tolist() == [*range(1, 11)]
    assert (a[6], a[9], a.read_chunk_sizes) == (7, 10, ((2, 2, 2, 1, 2, 1),))
    with pytest.raises(ChunkShapeError, match=r"do not divide a shard of 7; .* on this grid others are read only"):
        a[0] = 5
    assert zellige.open_array(store)[...].tolist() == [*range(1, 11)]


def test_other_edges_are_refused():
    with pytest.raises(ChunkShapeError, match="not regular"):
        bounded(shape=10, chunks=[[4, 6]])


def with_grid(configuration):
    store = {}
    zellige.create_array(store, data=np.arange(25, dtype="uint8"), chunks=[[5, 5, 15]])
    document = json.loads(store["zarr.json"])
    document["chunk_grid"] = {"name": "rectangular", "configuration": configuration}
    store["zarr.json"] = json.dumps(document).encode()
    return store


def test_the_rectangular_form_is_read_and_written_back_as_rectilinear():
    a = zellige.open(with_grid({"chunk_shape": [[5, 5, 15]]}))
    assert a.write_chunk_sizes == ((5, 5, 15),)
    np.testing.assert_array_equal(a[...], np.arange(25))
    a.attrs["x"] = 1
    assert json.loads(a.store.get("zarr.json"))["chunk_grid"] == {
        "name": "rectilinear",
        "configuration": {"kind": "inline", "chunk_shapes": [[[5, 2], 15]]},
    }


@pytest.mark.parametrize("shape", [[[5, [5, 2]]], [[]], [[0, 25]], [["5"]], [True], 5])
def test_bad_rectangular_grids_are_refused(shape):
    with pytest.raises(MetadataError) as info:
        zellige.open(with_grid({"chunk_shape": shape}))
    assert info.value.field.startswith("chunk_grid.configuration.chunk_shape")


# -- what is in the way of a new array -------------------------------------------------------------


def test_chunks_of_a_lost_array_are_not_taken_over():
    store = {"c/0": bytes(24)}
    with pytest.raises(NotANodeError, match="'c/0'"):
        zellige.create_array(store, shape=3, compressors=None)
    assert store == {"c/0": bytes(24)}


def test_no_array_is_made_within_a_v2_array():
    store = {"x/.zarray": b"{}"}
    with pytest.raises(ContainsArrayError, match="'/x'"):
        zellige.create_array(store, name="x/y", shape=3)
    assert list(store) == ["x/.zarray"]


def test_blocks_of_no_length_are_left_out():
    class Dasklike:
        shape, dtype, chunks = (3,), np.dtype("int8"), ((0, 3, 0),)

        def __array__(self, dtype=None, copy=None):
            return np.arange(3, dtype="int8")

    a = zellige.from_array(data=Dasklike())
    assert a.write_chunk_sizes == ((3,),)
    assert a[...].tolist() == [0, 1, 2]


def test_two_names_for_the_compressor_are_one_too_many():
    with pytest.raises(ValueError, match="leave one out"):
        zellige.zeros(3, compressor="zstd", compressors=["gzip"])


def test_complex_numbers_are_not_cut_to_real_ones():
    a = zellige.zeros(3)
    with pytest.raises(TypeError, match=r"\.real"):
        a[...] = np.array([1j, 2, 3])
    assert a.nchunks_initialized == 0
