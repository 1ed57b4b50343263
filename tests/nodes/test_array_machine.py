"""An array and numpy side by side through random histories: whatever is done, both hold the same."""

from __future__ import annotations

import pickle
import tempfile
from math import prod
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import strategies as ours
import zellige
from zellige.codecs import BytesCodec, ShardingCodec, ZstdCodec
from zellige.stores import LocalStore, MemoryStore, Store

SIDE = 10
CHAINS: list[dict[str, Any]] = [{}, {"compressors": None}, {"compressors": None, "checksum": True}]
FILLS = {"int32": [0, -1], "float64": [0.0, -0.0, np.nan], "uint8": [0, 255], "complex64": [0, 1j]}

Axis = int | list[int]
"""How the model remembers one axis: a size that repeats, or edges."""


def edges_of(axis: Axis, extent: int) -> tuple[int, ...]:
    return ours.repeated(axis, extent) if isinstance(axis, int) else tuple(axis)


def grown(axis: Axis, old: int, new: int, chunks: Any) -> Axis:
    """The naive rule: present edges stay, slack is used first, then `chunks`, or the last edge again."""
    if isinstance(axis, int):
        edges = list(ours.repeated(axis, old))
        if chunks is None or chunks == axis or new <= sum(edges):
            return axis
    else:
        edges = list(axis)
        if new <= sum(edges):
            return axis
        chunks = edges[-1] if chunks is None else chunks
    more = [chunks] * -(-(new - sum(edges)) // chunks) if isinstance(chunks, int) else list(chunks)
    edges += more
    uniform = isinstance(axis, int) and len(set(edges)) == 1 and sum(edges) == new
    return edges[0] if uniform else edges


class ArrayMachine(RuleBasedStateMachine):
    """Rules act on both; the invariants compare them."""

    def make_store(self) -> Store:
        return MemoryStore()

    def options(self, data, shape: tuple[int, ...]) -> dict[str, Any]:
        """Codecs and settings of the array."""
        return data.draw(st.sampled_from(CHAINS))

    def pieces(self, chunk: Any) -> int:
        """How many chunks that can be read alone a stored chunk holds."""
        return 1

    @initialize(data=st.data())
    def create(self, data):
        shape = data.draw(ours.shapes(max_side=6))
        dtype = data.draw(st.sampled_from(sorted(FILLS)))
        grid = data.draw(ours.grids(shape))
        self.array = zellige.create_array(
            self.make_store(),
            name="group/array",
            shape=shape,
            dtype=dtype,
            chunks=grid.argument,
            fill_value=data.draw(st.sampled_from(FILLS[dtype])),
            **self.options(data, shape),
        )
        assert self.array.write_chunk_sizes == grid.sizes
        self.axes: list[Axis] = [c if isinstance(c, int) else list(c) for c in self.array.metadata.chunk_grid.axes]
        self.model = np.full(shape, self.array.fill_value, dtype)
        self.attributes: dict[str, Any] = {}
        self.sparse = True  # no chunk of fill values has been stored
        self.count = 0
        self.other = self.opened()

    def opened(self) -> zellige.Array:
        return zellige.open(self.array.store, path=self.array.path, mode="r+", config=self.array.config)

    def fresh(self, shape: tuple[int, ...]) -> np.ndarray:
        """Values that were never written before, for types that can tell them apart."""
        self.count += 1
        return ours.counted(shape, self.model.dtype, start=self.count * 17 + 1)

    # -- reading and writing ----------------------------------------------------------------------

    @rule(data=st.data(), way=st.sampled_from(["basic", "mixed"]))
    def write(self, data, way):
        index = data.draw(getattr(ours, way)(self.model.shape))
        try:
            shape = np.shape(self.model[index])
        except (IndexError, ValueError):
            return
        value = self.fresh(shape) if data.draw(st.booleans()) else self.array.fill_value
        try:
            self.array[index] = value
        except IndexError:  # numpy does not check the bounds if nothing is picked
            assert 0 in shape
        self.model[index] = value

    @rule(data=st.data())
    def read(self, data):
        index = data.draw(ours.orthogonal(self.model.shape))
        try:
            found = self.array.oindex[index]
        except IndexError:
            return
        whole = zellige.create_array(data=self.model, chunks=-1).oindex[index]
        assert found.tobytes() == whole.tobytes()

    @rule()
    def fill(self):
        value = self.fresh(self.model.shape)
        self.array[...] = value
        self.model[...] = value

    @rule()
    def clear(self):
        self.array[...] = self.array.fill_value
        self.model[...] = self.array.fill_value
        if not self.array.config.write_empty_chunks:
            stored = set(self.array.store.list(self.array.path + "/"))
            left = [chunk for chunk in self.array.iter_chunks() if chunk.key in stored]
            assert not any(map(self.is_cleared, left))
            self.sparse = not left and not self.other.config.write_empty_chunks

    def is_cleared(self, chunk: Any) -> bool:
        """Whether a chunk is no longer stored after fill values were written over all of the array."""
        return True

    # -- changing the shape -----------------------------------------------------------------------

    def acting(self, data) -> zellige.Array:
        """A handle to change the array with; the other one has perhaps not noticed the last change."""
        if data.draw(st.booleans()):
            self.array, self.other = self.other, self.array
        return self.array

    def new_chunks(self, data, axis: int, extent: int) -> Any:
        kind = data.draw(st.sampled_from(["default", "size", "edges"]))
        if kind == "default":
            return None
        if kind == "size":
            return data.draw(st.integers(1, 5))
        return list(data.draw(ours.edge_lists(extent)))  # enough, wherever the present edges end

    @rule(data=st.data())
    def resize(self, data):
        old = self.model.shape
        shape = tuple(data.draw(st.integers(0, SIDE)) for _ in old)
        chunks = [self.new_chunks(data, k, n) for k, n in enumerate(shape)]
        default = all(c is None for c in chunks) and data.draw(st.booleans())
        self.acting(data).resize(shape, **({} if default else {"chunks": chunks}))
        self.axes = [grown(*axis) for axis in zip(self.axes, old, shape, chunks, strict=True)]
        model = np.full(shape, self.array.fill_value, self.model.dtype)
        common = tuple(slice(min(a, b)) for a, b in zip(old, shape, strict=True))
        model[common] = self.model[common]
        self.model = model

    @rule(data=st.data())
    def shrink_to_zero(self, data):
        shape = tuple(data.draw(st.sampled_from([0, n])) for n in self.model.shape)
        self.acting(data).resize(shape)
        self.model = np.array(self.model[tuple(map(slice, shape))])

    @rule(data=st.data())
    def shrink_and_grow_again(self, data):
        old = self.model.shape
        shape = tuple(data.draw(st.integers(0, n)) for n in old)
        self.acting(data).resize(shape)
        self.acting(data).resize(old)
        model = np.full(old, self.array.fill_value, self.model.dtype)
        kept = tuple(map(slice, shape))
        model[kept] = self.model[kept]
        self.model = model

    @precondition(lambda self: self.model.ndim)
    @rule(data=st.data())
    def append(self, data):
        axis = data.draw(st.integers(-self.model.ndim, self.model.ndim - 1))
        at = axis % self.model.ndim
        old = self.model.shape[at]
        length = data.draw(st.integers(0, max(0, SIDE - old)))
        value = self.fresh(tuple(length if k == at else n for k, n in enumerate(self.model.shape)))
        chunks = self.new_chunks(data, at, old + length)
        found = self.acting(data).append(value, axis=axis, chunks=chunks)
        self.axes[at] = grown(self.axes[at], old, old + length, chunks)
        self.model = np.concatenate([self.model, value], axis=at)
        assert found == self.model.shape

    # -- everything else that must not matter -----------------------------------------------------

    @rule(data=st.data(), key=st.sampled_from("abc"), value=st.integers() | st.text() | st.lists(st.booleans()))
    def set_attribute(self, data, key, value):
        self.acting(data).attrs[key] = value
        self.attributes[key] = value

    @rule(data=st.data(), key=st.sampled_from("abc"))
    def delete_attribute(self, data, key):
        if key in self.attributes:
            self.attributes.pop(key)
            del self.acting(data).attrs[key]

    @rule()
    def reopen(self):
        self.array = self.opened()

    @rule()
    def pickle(self):
        array = pickle.loads(pickle.dumps(self.array))
        assert array.metadata == self.array.metadata
        assert array.config == self.array.config
        self.array = array
        self.other = self.opened()

    @rule()
    def toggle_write_empty_chunks(self):
        self.array = self.array.with_config({"write_empty_chunks": not self.array.config.write_empty_chunks})
        self.sparse = False

    @rule()
    def refresh_the_other_handle(self):
        self.other.refresh()
        self.array, self.other = self.other, self.array

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def the_values_are_the_same(self):
        found = self.array[...]
        assert (found.shape, found.dtype) == (self.model.shape, self.model.dtype)
        assert found.tobytes() == self.model.tobytes()

    @invariant()
    def the_edges_follow_the_rule(self):
        sizes = self.array.write_chunk_sizes
        pairs = zip(self.axes, self.model.shape, strict=True)
        assert sizes == tuple(ours.clipped(edges_of(axis, extent), extent) for axis, extent in pairs)
        assert tuple(map(sum, sizes)) == self.array.shape

    @invariant()
    def the_attributes_are_the_same(self):
        assert self.array.attrs.asdict() == self.attributes

    @invariant()
    def only_chunks_of_the_grid_are_stored(self):
        prefix = self.array.path + "/"
        pieces = {chunk.key: self.pieces(chunk) for chunk in self.array.iter_chunks()}
        stored = set(self.array.store.list(prefix)) - {prefix + "zarr.json"}
        assert stored <= pieces.keys()
        assert self.array.nchunks_initialized == sum(pieces[key] for key in stored)
        if self.sparse:
            fill = self.array.metadata.fill_value.tobytes()
            for chunk in self.array.iter_chunks():
                part = self.model[chunk.slices]
                assert (chunk.key in stored) != (part.tobytes() == fill * part.size)


class LocalArrayMachine(ArrayMachine):
    """The same on disk."""

    def make_store(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return LocalStore(self.folder.name)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


class UnevenShardsMachine(ArrayMachine):
    """The same in shards, which their inner chunks need not divide, nor those within these."""

    def options(self, data, shape: tuple[int, ...]) -> dict[str, Any]:
        """Shards, perhaps of shards."""
        self.inner = tuple(data.draw(st.integers(1, 4)) for _ in shape)
        within = tuple(data.draw(st.integers(1, 3)) for _ in shape)
        codecs: tuple[Any, ...] = data.draw(st.sampled_from([(BytesCodec(),), (BytesCodec(), ZstdCodec(level=1))]))
        if data.draw(st.booleans()):
            codecs = (ShardingCodec(within, codecs),)
        serializer = ShardingCodec(self.inner, codecs, index_location=data.draw(st.sampled_from(["start", "end"])))
        return {"serializer": serializer, "compressors": None, "config": {"uneven_inner_chunks": True}}

    def pieces(self, chunk: Any) -> int:
        """The inner chunks that hold elements of the array."""
        return prod(-(-n // c) for n, c in zip(chunk.shape, self.inner, strict=True))

    def is_cleared(self, chunk: Any) -> bool:
        """A shard that reaches beyond the end keeps the inner chunks there, of which another handle may know more.

        They hold fill values only if a handle has stored empty chunks.
        """
        return self.sparse or chunk.shape == chunk.codec_shape

    @invariant()
    def inner_chunks_begin_anew_in_each_shard(self):
        """What is said of the smallest pieces that can be read alone."""
        cut = tuple(
            tuple(min(c, shard - start) for shard in shards for start in range(0, shard, c))
            for c, shards in zip(self.inner, self.array.write_chunk_sizes, strict=True)
        )
        assert self.array.read_chunk_sizes == cut
        assert self.array.cdata_shape == tuple(map(len, cut))


SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), stateful_step_count=25)

TestArrayInMemory = ArrayMachine.TestCase
TestArrayInMemory.settings = settings(SETTINGS, max_examples=max(20, ours.EXAMPLES // 24))
TestArrayInUnevenShards = UnevenShardsMachine.TestCase
TestArrayInUnevenShards.settings = settings(SETTINGS, max_examples=max(20, ours.EXAMPLES // 48))
TestArrayOnDisk = LocalArrayMachine.TestCase
TestArrayOnDisk.settings = settings(SETTINGS, max_examples=max(20, ours.EXAMPLES // 80))
