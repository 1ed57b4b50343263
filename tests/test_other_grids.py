"""Grids of others: `zarrs.regular_bounded`, whose last chunks are cut to the array, and the old `rectangular`."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_resizing_encodes_the_last_chunks_anew(data):
    sizes = st.tuples(st.integers(0, 9), st.integers(1, 9))
    shape, chunks = data.draw(sizes), data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    a = bounded(shape=shape, chunks=chunks)
    model = np.arange(1, np.prod(shape) + 1, dtype="int16").reshape(shape)
    a[...] = model
    for _ in range(3):
        if data.draw(st.booleans()):
            more = np.full((data.draw(st.integers(0, 4)), model.shape[1]), 77, "int16")
            a.append(more)
            model = np.concatenate([model, more])
        else:
            new = data.draw(sizes)
            a.resize(new)
            kept = tuple(slice(0, min(n, m)) for n, m in zip(new, model.shape, strict=True))
            model, old = np.zeros(new, "int16"), model
            model[kept] = old[kept]
        np.testing.assert_array_equal(zellige.open(a.store)[...], model)


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
    for change in (lambda: a.__setitem__(0, 5), lambda: a.resize(8), lambda: a.append([1])):
        with pytest.raises(ChunkShapeError, match=r"do not divide a shard of 7; .* on this grid others are read only"):
            change()
    assert zellige.open_array(store)[...].tolist() == [*range(1, 11)]


def test_other_edges_are_refused():
    a = bounded(shape=10, chunks=4)
    with pytest.raises(ChunkShapeError, match="chunks of 4 only"):
        a.resize(20, chunks=5)
    with pytest.raises(ChunkShapeError, match="not regular"):
        bounded(shape=10, chunks=[[4, 6]])


def test_a_failed_append_leaves_the_array_as_it_was():
    class Failing(zellige.MemoryStore):
        full = False

        def put(self, key, value):
            if self.full and key == "c/2":
                raise OSError("no space")
            super().put(key, value)

    store = Failing()
    a = bounded(store, shape=6, chunks=4)
    a[...] = np.arange(1, 7)
    store.full = True
    with pytest.raises(OSError, match="no space"):
        a.append(np.full(6, 9))
    np.testing.assert_array_equal(a[...], np.arange(1, 7))
    np.testing.assert_array_equal(zellige.open(store)[...], np.arange(1, 7))


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
