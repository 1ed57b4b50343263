"""Arrays in shards: they read and write like numpy, whatever the shards, and keep their shape through every change."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from counting_store import CountingStore, contents
from zellige.codecs import BloscCodec, BytesCodec, ShardingCodec
from zellige.errors import ChunkShapeError, CorruptChunkError, RectilinearChunksError
from zellige.stores import LocalStore, MemoryStore
from zellige.types import Kept


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, **({"configuration": configuration} if configuration else {})}


LITTLE, BIG, CRC = codec("bytes", endian="little"), codec("bytes", endian="big"), codec("crc32c")
ZSTD, GZIP = codec("zstd", level=1), codec("gzip", level=1)


# -- any shards -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The arguments of an array in shards, and its edges as naive lists."""

    shape: tuple[int, ...]
    inner: tuple[int, ...]
    edges: tuple[tuple[int, ...], ...]
    arguments: dict[str, Any]

    def create(self, **options: Any) -> zellige.Array:
        return zellige.create_array(shape=self.shape, dtype="int32", **{**self.arguments, **options})


def divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]


@st.composite
def shard_axes(draw: st.DrawFn, extent: int, inner: int, uneven: bool) -> tuple[Any, tuple[int, ...]]:
    """One entry of `shards=`, and its edges: a size or a list, all multiples of the inner size, or any."""
    lengths = st.integers(1, 9) if uneven else st.integers(1, 4).map(lambda count: inner * count)
    if draw(st.booleans()):
        size = draw(lengths)
        return size, ours.repeated(size, extent)
    edges = [draw(lengths)]
    while sum(edges) < extent:
        edges.append(draw(lengths))
    edges += [inner] * draw(st.sampled_from([0, 0, 0, 2]))  # wholly beyond the end
    return edges, tuple(edges)


@st.composite
def chains(draw: st.DrawFn, inner: tuple[int, ...], depth: int = 0, uneven: bool = False) -> list[dict[str, Any]]:
    """Codecs for inner chunks of a shape: plain, compressed, transposed, nested."""
    if depth < 2 and draw(st.integers(0, 3)) == 0:
        order = draw(st.permutations(range(len(inner))))
        turned = [inner[axis] for axis in order]
        smaller = tuple(draw(st.integers(1, n + 1) if uneven else st.sampled_from(divisors(n))) for n in turned)
        return [codec("transpose", order=list(order)), draw(shardings(smaller, depth + 1, uneven))]
    order = draw(st.permutations(range(len(inner))))
    transposes = draw(st.sampled_from([[], [], [codec("transpose", order=list(order))]]))
    steps = draw(st.sampled_from([[], [ZSTD], [GZIP], [CRC], [ZSTD, CRC]]))
    return [*transposes, draw(st.sampled_from([LITTLE, LITTLE, BIG])), *steps]


@st.composite
def shardings(draw: st.DrawFn, inner: tuple[int, ...], depth: int = 0, uneven: bool = False) -> dict[str, Any]:
    """The codec as JSON for inner chunks of a shape."""
    index = [draw(st.sampled_from([LITTLE, BIG])), *draw(st.sampled_from([[], [CRC]]))]
    return codec(
        "sharding_indexed",
        chunk_shape=list(inner),
        codecs=draw(chains(inner, depth, uneven)),
        index_codecs=index,
        index_location=draw(st.sampled_from(["start", "end"])),
    )


@st.composite
def layouts(draw: st.DrawFn, min_dims: int = 1, transposed: bool | None = None) -> Layout:
    """Regular and rectilinear shards of inner chunks of any shape, with transposes before them and codecs after.

    Half of the time inner chunks need not divide their shards.
    """
    shape = draw(ours.shapes(min_dims=min_dims))
    inner = tuple(draw(st.integers(1, 3)) for _ in shape)
    uneven = draw(st.booleans())
    axes = [draw(shard_axes(n, c, uneven)) for n, c in zip(shape, inner, strict=True)]
    order = list(range(len(shape)))
    if transposed or (transposed is None and draw(st.booleans())):
        order = draw(st.permutations(order))
    arguments = {
        "chunks": [entry for entry, _ in axes],
        "filters": [codec("transpose", order=list(order))] if order != list(range(len(shape))) else None,
        "serializer": draw(shardings(tuple(inner[axis] for axis in order), uneven=uneven)),
        "compressors": draw(st.sampled_from([None] * 5 + [[ZSTD], [CRC]])),
        "fill_value": draw(st.sampled_from([0, 7])),
        "config": {"write_empty_chunks": draw(st.sampled_from([False, False, True])), "uneven_inner_chunks": uneven},
        "order": draw(st.sampled_from("CCF")),
    }
    return Layout(shape, inner, tuple(edges for _, edges in axes), arguments)


def orthogonal_of(index: Any, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """The index for numpy that picks the product of the positions, and the axes that it drops afterwards."""
    items = index if isinstance(index, tuple) else (index,)
    if any(item is Ellipsis for item in items):
        at = next(k for k, item in enumerate(items) if item is Ellipsis)
        items = (*items[:at], *[slice(None)] * (len(shape) - len(items) + 1), *items[at + 1 :])
    items = (*items, *[slice(None)] * (len(shape) - len(items)))
    picked = [np.arange(n)[np.asarray(i, bool if np.size(i) and np.asarray(i).dtype == bool else int)]
              if not isinstance(i, slice) else np.arange(n)[i] for i, n in zip(items, shape, strict=True)]  # fmt: skip
    dropped = tuple(axis for axis, item in enumerate(items) if not isinstance(item, slice) and np.ndim(item) == 0)
    return np.ix_(*(np.atleast_1d(positions) for positions in picked)), dropped


def step(data: st.DataObject, array: zellige.Array, model: np.ndarray) -> None:
    """Read or write something in both, and compare."""
    kind = data.draw(st.sampled_from(["basic", "mixed", "orthogonal", "points"]))
    index = data.draw(getattr(ours, kind)(model.shape))
    try:
        where, dropped = orthogonal_of(index, model.shape) if kind == "orthogonal" else (index, ())
        expected = model[where].squeeze(dropped) if dropped else model[where]
    except IndexError:
        with pytest.raises(IndexError):
            (array.oindex if kind == "orthogonal" else array.vindex if kind == "points" else array)[index]
        return
    if not np.size(expected):
        return  # where numpy does not look at bounds
    view: Any = {"orthogonal": array.oindex, "points": array.vindex}.get(kind, array)
    if data.draw(st.booleans()):
        assert np.array_equal(view[index], expected)
        return
    value = -ours.counted(np.shape(expected), start=data.draw(st.integers(0, 99)))
    value = data.draw(st.sampled_from([value, value.astype("int64"), np.full_like(value, array.fill_value)]))
    view[index] = value
    model[where] = np.reshape(value, model[where].shape)


@ours.examples(0.07)
@given(layouts(), st.data())
def test_shards_read_and_write_like_numpy(layout, data):
    array = layout.create()
    model = np.full(layout.shape, array.fill_value)
    if data.draw(st.booleans()):
        array[...] = model = ours.counted(layout.shape)
    for _ in range(3):
        step(data, array, model)
        assert np.array_equal(array[...], model)
    other = zellige.open_array(array.store, config={"uneven_inner_chunks": True})
    step(data, other, model)
    assert np.array_equal(array[...], other[...])
    assert np.array_equal(array[...], model)


@ours.examples(0.03)
@given(layouts(min_dims=0, transposed=True))
def test_shards_say_what_they_are(layout):
    array = layout.create()
    sizes = tuple(map(ours.clipped, layout.edges, layout.shape))
    assert array.write_chunk_sizes == sizes
    inner = tuple(
        tuple(min(c, shard - start) for shard in shards for start in range(0, shard, c))
        for c, shards in zip(layout.inner, sizes, strict=True)
    )
    assert array.read_chunk_sizes == inner
    regular = tuple(ours.clipped(ours.repeated(c, n), n) for c, n in zip(layout.inner, layout.shape, strict=True))
    if inner == regular:
        assert array.chunks == layout.inner
    else:
        with pytest.raises(RectilinearChunksError, match="use read_chunk_sizes"):
            array.chunks
    assert array.grid.grid_shape == tuple(map(len, array.write_chunk_sizes))
    assert array.cdata_shape == tuple(map(len, inner))
    assert array.nchunks == prod(array.cdata_shape)
    if all(isinstance(size, int) for size in layout.arguments["chunks"]):
        assert array.shards == tuple(layout.arguments["chunks"])
    assert pickle.loads(pickle.dumps(array)).metadata == array.metadata


@ours.examples(0.02)
@given(layouts())
def test_shards_hold_the_same_bytes_however_they_were_written(layout):
    model = ours.counted(layout.shape)
    whole, parts = layout.create(), layout.create()
    whole[...] = model
    for index in np.ndindex(layout.shape):
        parts[index] = model[index]
    if layout.arguments["config"]["write_empty_chunks"]:  # stored where something was written, and only there
        assert np.array_equal(parts[...], whole[...])
    else:
        assert contents(parts.store) == contents(whole.store)


# -- `shards=` ------------------------------------------------------------------------------------

GIVEN = {  # shape, chunks, shards, the edges of the shards, inner chunks
    "flat": ((10, 6), (2, 3), (4, 6), ((4, 4, 2), (6,)), (2, 3)),
    "one number": ((10, 6), 2, 4, ((4, 4, 2), (4, 2)), (2, 2)),
    "rectilinear": ((10, 6), (2, 3), [[4, 2, 4], [3, 3]], ((4, 2, 4), (3, 3)), (2, 3)),
    "edges and a size": ((10, 6), (1, 3), [[7, 3], 6], ((7, 3), (6,)), (1, 3)),
    "runs": ((10, 6), (2, 3), [[[2, 3], 4], 6], ((2, 2, 2, 4), (6,)), (2, 3)),
    "beyond the end": ((5, 6), (2, 3), [[2, 6], 6], ((2, 3), (6,)), (2, 3)),
    "whole": ((10, 6), (2, 3), -1, ((10,), (6,)), (2, 3)),
    "whole axis": ((10, 6), (2, 3), (4, -1), ((4, 4, 2), (6,)), (2, 3)),
    "chunks of whole shards": ((10, 6), -1, (4, 3), ((4, 4, 2), (3, 3)), (4, 3)),
    "one inner chunk": ((4, 6), (4, 6), (4, 6), ((4,), (6,)), (4, 6)),
    "chunks chosen": ((10, 6), "auto", (4, 6), ((4, 4, 2), (6,)), (4, 6)),
    "chunks chosen for edges": ((12,), None, [[4, 6, 2]], ((4, 6, 2),), (2,)),
    "shards chosen": ((10, 6), (2, 4), "auto", ((10,), (6,)), (2, 4)),
    "by name": ((10, 6), {"y": 2, "x": 3}, {"y": [4, 6]}, ((4, 6), (6,)), (2, 3)),
    "zero length": ((0, 6), (2, 3), (4, 6), ((), (6,)), (2, 3)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_the_shards_argument(name):
    shape, chunks, shards, sizes, inner = GIVEN[name]
    store = MemoryStore()
    array = zellige.create_array(
        store, shape=shape, dtype="int16", chunks=chunks, shards=shards, dimension_names=["y", "x"][: len(shape)]
    )
    assert array.write_chunk_sizes == sizes
    assert array.chunks == inner
    assert isinstance(array._chunks.chain.serializer, ShardingCodec)
    assert (array._chunks.chain.filters, array._chunks.chain.compressors) == ((), ())
    assert [c.name for c in array._chunks.chain.serializer.codecs] == ["bytes", "zstd"]
    assert [c.name for c in array._chunks.chain.serializer.index_codecs] == ["bytes", "crc32c"]
    model = ours.counted(shape, "int16")
    array[...] = model
    assert np.array_equal(zellige.open_array(store)[...], model)
    stored = {"/".join(["c", *map(str, coords)]) for coords in np.ndindex(*map(len, sizes))}
    assert set(store.list()) == {"zarr.json", *stored}


def test_shards_that_differ_have_no_one_shape():
    array = zellige.create_array(shape=(10, 6), chunks=(2, 3), shards=[[4, 6], 6])
    with pytest.raises(RectilinearChunksError, match="write_chunk_sizes"):
        array.shards
    assert array.chunks == (2, 3)
    assert array.read_chunk_sizes == ((2,) * 5, (3, 3))
    assert zellige.create_array(shape=(10, 6), chunks=(2, 3)).shards is None


def test_automatic_shards_hold_whole_inner_chunks_and_are_bounded():
    array = zellige.create_array(shape=(10_000, 10_000), dtype="float64", chunks=(300, 700), shards="auto")
    for shard, inner, extent in zip(array.shards, (300, 700), array.shape, strict=True):
        assert shard % inner == 0
        assert shard < extent + inner
    nbytes = array.shards[0] * array.shards[1] * 8
    assert 32 << 20 < nbytes <= 64 << 20
    both = zellige.create_array(shape=(10_000, 10_000), dtype="float64", chunks="auto", shards="auto")
    assert all(shard % inner == 0 for shard, inner in zip(both.shards, both.chunks, strict=True))


def test_automatic_shards_can_be_rectilinear():
    array = zellige.create_array(shape=(10,), chunks=(2,), shards="auto", chunk_grid="rectilinear")
    assert array.metadata.chunk_grid.name == "rectilinear"


@pytest.mark.parametrize(
    ("chunks", "shards", "axis", "nearest"),
    [
        ((2, 4), (4, 6), 1, 3),
        ((3, 3), (4, 6), 0, 2),
        ((5, 3), (4, 6), 0, 4),
        ((2, 3), [[4, 6], [5, 1]], 1, 1),
        ((4, 3), [[4, 6], 6], 0, 2),  # what divides all edges
        ((4, 3), -1, 0, 5),
    ],
)
def test_chunks_that_do_not_divide_the_shards_are_refused(chunks, shards, axis, nearest):
    store = MemoryStore()
    words = rf"axis {axis}: .*do not divide.*nearest that do are {nearest}, .*array\.uneven_inner_chunks=True"
    with pytest.raises(ChunkShapeError, match=words) as caught:
        zellige.create_array(store, shape=(10, 6), chunks=chunks, shards=shards)
    assert caught.value.axis == axis
    assert list(store.list()) == []
    fixed = [nearest if k == axis else c for k, c in enumerate(chunks)]
    assert zellige.create_array(shape=(10, 6), chunks=fixed, shards=shards).chunks == tuple(fixed)


@pytest.mark.parametrize(
    ("chunks", "shards", "options"),
    [
        ((2, 3), (4,), {}),
        ((2,), (4, 6), {}),
        ((2, 3), (4, 0), {}),
        ((2, 3), "large", {}),
        ((2, 3), [[4], 6], {}),  # edges that end too early
        ([[2, 4, 4], 3], (10, 6), {}),  # inner chunks are all alike
        ((2, 3), [[4, 6], 6], {"chunk_grid": "regular"}),
    ],
)
def test_bad_shards_are_refused(chunks, shards, options):
    store = MemoryStore()
    with pytest.raises(ChunkShapeError):
        zellige.create_array(store, shape=(10, 6), chunks=chunks, shards=shards, **options)
    assert list(store.list()) == []


def test_codecs_go_into_the_shards():
    array = zellige.create_array(
        data=ours.counted((4, 6)),
        chunks=(2, 3),
        shards=(4, 6),
        filters=[codec("transpose", order=[1, 0])],
        serializer=BIG,
        compressors=[GZIP],
        checksum=True,
    )
    assert [c.name for c in array._chunks.chain.serializer.codecs] == ["transpose", "bytes", "gzip", "crc32c"]
    assert np.array_equal(array[1:3, 2:5], ours.counted((4, 6))[1:3, 2:5])


@pytest.mark.parametrize("depth", [1, 2])
def test_codecs_inside_of_shards_know_the_element_size(depth):
    serializer: Any = "auto"
    if depth == 2:
        serializer = ShardingCodec((1, 3), (BytesCodec("little"), BloscCodec()))
    compressors = None if depth == 2 else "blosc"
    array = zellige.create_array(
        data=ours.counted((4, 6), "float64"),
        chunks=(2, 3),
        shards=(4, 6),
        serializer=serializer,
        compressors=compressors,
    )
    chain = array.metadata.codecs[0].configuration["codecs"]
    for _ in range(depth - 1):
        chain = chain[0]["configuration"]["codecs"]
    assert [item["configuration"].get("typesize") for item in chain] == [None, 8]
    assert np.array_equal(array[...], ours.counted((4, 6)))


def test_shards_of_shards():
    inner = codec("sharding_indexed", chunk_shape=[1, 3], codecs=[LITTLE], index_codecs=[LITTLE])
    array = zellige.create_array(data=ours.counted((4, 6)), chunks=(2, 3), shards=(4, 6), serializer=inner)
    assert (array.shards, array.chunks) == ((4, 6), (2, 3))
    assert np.array_equal(array[::2, 1], ours.counted((4, 6))[::2, 1])


# -- resizing -------------------------------------------------------------------------------------


def uneven(store: Any = None, **options: Any) -> tuple[zellige.Array, np.ndarray]:
    """Shards of 4 and 2 rows, of inner chunks of 2; some of them empty."""
    model = ours.counted((6, 5))
    model[2:4, :3] = 0
    array = zellige.create_array(store, data=model, chunks=(2, 3), shards=[[4, 2], 6], **options)
    return array, model


def grown(model: np.ndarray, shape: tuple[int, ...], fill: int = 0) -> np.ndarray:
    larger = np.full(shape, fill, model.dtype)
    common = tuple(slice(min(n, m)) for n, m in zip(shape, model.shape, strict=True))
    larger[common] = model[common]
    return larger


def test_resizing_shards():
    array, model = uneven()
    array.resize((12, 9), chunks=[[6], 3])
    assert array.write_chunk_sizes == ((4, 2, 6), (6, 3))
    model = grown(model, (12, 9))
    assert np.array_equal(array[...], model)
    array[5:11, 4:] = model[5:11, 4:] = 9
    array.resize((9, 4))
    assert np.array_equal(array[...], model[:9, :4])
    array.resize((11, 7))  # what was cut off does not come back
    assert np.array_equal(array[...], grown(model[:9, :4], (11, 7)))
    assert np.array_equal(zellige.open_array(array.store)[8:, 2:], grown(model[:9, :4], (11, 7))[8:, 2:])


def test_appending_shards():
    array, model = uneven()
    assert array.append(np.full((5, 5), 8), chunks=[4, 2]) == (11, 5)
    assert array.append(np.full((11, 4), 9), axis=1) == (11, 9)
    assert array.write_chunk_sizes == ((4, 2, 4, 1), (6, 3))
    expected = np.concatenate([np.concatenate([model, np.full((5, 5), 8)]), np.full((11, 4), 9)], axis=1)
    assert np.array_equal(array[...], expected)
    assert array.chunks == (2, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array.resize((12, 5), chunks=[[3, 3], None]),
        lambda array: array.resize((12, 5), chunks=[5, None]),
        lambda array: array.resize((6, 10), chunks=[None, [4]]),
        lambda array: array.append(np.ones((3, 5)), chunks=[3]),
        lambda array: array.append(np.ones((6, 4)), axis=1, chunks=4),
    ],
)
def test_new_edges_must_be_multiples_of_the_inner_chunks(change):
    store = CountingStore()
    array, model = uneven(store)
    before = contents(store.inner)
    with pytest.raises(ChunkShapeError, match=r"inner chunks of [23] do not divide a shard of [345]; "):
        change(array)
    assert contents(store.inner) == before
    assert array.shape == (6, 5)
    assert np.array_equal(array[...], model)
    array.resize((12, 5), chunks=[[2, 4], None])
    assert array.write_chunk_sizes[0] == (4, 2, 2, 4)


# -- inner chunks that do not divide their shards --------------------------------------------------

NOT_DIVIDING = {
    "regular": {"chunks": (4, 3), "shards": (10, 5)},
    "rectilinear": {"chunks": (4, 3), "shards": ([7, 10, 3, 5], [4, 9])},
    "larger than some shards": {"chunks": (8, 9), "shards": ([7, 10, 3, 5], 13), "compressors": None},
    "nested": {"chunks": (5, 4), "shards": (12, 13), "serializer": ShardingCodec((2, 3)), "compressors": None},
}


@pytest.fixture(params=NOT_DIVIDING)
def not_dividing(request, tmp_path) -> tuple[zellige.Array, np.ndarray]:
    """A stored array, opened without the setting that allows to write it."""
    model = ours.counted((25, 13), "float32")
    model[10:20, :5] = 0
    zellige.create_array(tmp_path, data=model, config={"uneven_inner_chunks": True}, **NOT_DIVIDING[request.param])
    return zellige.open_array(tmp_path), model


def test_tools_take_inner_chunks_that_do_not_divide_their_shards(not_dividing, tmp_path):
    array, model = not_dividing
    assert zellige.validate(tmp_path, deep=True).ok
    covered, found = array.coverage(), array.stats()
    assert len(covered.stored) == sum(bool(model[chunk.slices].any()) for chunk in array.iter_chunks())
    assert (found.min, found.max, found.count) == (model.min(), model.max(), model.size)
    assert sum(part.count for _, part in array.chunk_stats()) == model.size
    assert array.nchunks == prod(map(len, array.read_chunk_sizes))
    assert "Inner chunks" in array._repr_html_()
    assert str(array.info)
    group = zellige.group()
    zellige.copy(array, group, "copy")
    assert not zellige.diff(array, group["copy"])
    for target in ({"chunks": (6, 5)}, {"chunks": ([20, 5], 13)}, {"chunks": (2, 2), "shards": (6, 6)}):
        with zellige.config.set({"threading.max_workers": 1}):
            made = zellige.rechunk(array, {}, config={"uneven_inner_chunks": True}, **target)
        assert np.array_equal(made[...], model)
    with pytest.raises(ChunkShapeError, match=r"array\.uneven_inner_chunks"):
        zellige.from_array(data=array)
    again = zellige.from_array(data=array, config={"uneven_inner_chunks": True})
    assert np.array_equal(again[...], model)
    assert again.read_chunk_sizes == array.read_chunk_sizes


def test_a_damaged_clipped_inner_chunk_is_named(tmp_path):
    array = zellige.create_array(
        tmp_path,
        data=np.arange(1, 11),
        chunks=4,
        shards=10,
        compressors=["crc32c"],
        config={"uneven_inner_chunks": True},
    )
    raw = bytearray(array.store.get("c/0"))
    raw[2 * (4 * 8 + 4) + 3] ^= 1  # in the third inner chunk, of two elements
    array.store.put("c/0", bytes(raw))
    assert array[:8].tolist() == [*range(1, 9)]
    with pytest.raises(CorruptChunkError) as caught:
        array[9]
    assert (caught.value.coords, caught.value.inner) == ((0,), (2,))
    (finding,) = zellige.validate(tmp_path, deep=True).findings
    assert finding.key == "c/0"


@pytest.mark.parametrize("length", [2, 3, 7])
def test_one_element_of_a_clipped_inner_chunk_costs_two_range_reads(length):
    store = CountingStore()
    allowed = {"uneven_inner_chunks": True}
    zellige.create_array(store, data=np.arange(1, 21), chunks=length, shards=10, config=allowed)
    array = zellige.open_array(store)
    store.reset()
    assert array[19] == 20
    assert len(store.calls) == 2
    assert not store.made("get")


# -- copies, pickles, descriptions ----------------------------------------------------------------


@pytest.mark.parametrize("shards", [(4, 6), [[4, 2], 6]], ids=["regular", "rectilinear"])
def test_copies_keep_the_shards_and_their_bytes(shards):
    model = ours.counted((6, 5))
    array = zellige.create_array(data=model, chunks=(2, 3), shards=shards, compressors=[GZIP], fill_value=7)
    copy = zellige.from_array(data=array)
    assert contents(copy.store) == contents(array.store)
    assert copy.write_chunk_sizes == array.write_chunk_sizes
    assert copy.chunks == array.chunks == (2, 3)
    like = zellige.zeros_like(array)
    assert (like.write_chunk_sizes, like.chunks) == (array.write_chunk_sizes, (2, 3))


def test_copies_into_other_shards():
    array, model = uneven()
    for options, sizes, inner in (
        ({"shards": (6, 3)}, ((6,), (3, 2)), (2, 3)),
        ({"shards": None}, ((2, 2, 2), (3, 2)), (2, 3)),
        ({"chunks": (1, 3), "shards": (3, 6)}, ((3, 3), (5,)), (1, 3)),
        ({"chunks": (3, 3)}, ((3, 3), (3, 2)), (3, 3)),
        ({"dtype": "float32"}, ((4, 2), (5,)), (2, 3)),
    ):
        copy = zellige.from_array(data=array, **options)
        assert (copy.write_chunk_sizes, copy.chunks) == (sizes, inner)
        assert np.array_equal(copy[...], model)


def test_copies_of_transposed_and_compressed_shards():
    nested = codec("sharding_indexed", chunk_shape=[3, 2], codecs=[LITTLE], index_codecs=[LITTLE])
    array = zellige.create_array(
        data=ours.counted((6, 5)),
        chunks=[[4, 2], 6],
        filters=[codec("transpose", order=[1, 0])],
        serializer=nested,
        compressors=[ZSTD],
    )
    copy = zellige.from_array(data=array)
    assert contents(copy.store) == contents(array.store)


@pytest.mark.parametrize("more", [{"index_location": "start"}, {"index_codecs": [BIG]}], ids=lambda more: min(more))
def test_copies_keep_how_the_index_is_stored(more):
    serializer = codec("sharding_indexed", **{"chunk_shape": [2], "codecs": [LITTLE], "index_codecs": [LITTLE], **more})
    array = zellige.create_array(data=ours.counted((4,)), chunks=(4,), serializer=serializer, compressors=None)
    copy = zellige.from_array(data=array)
    assert copy._chunks.chain.serializer == array._chunks.chain.serializer
    assert contents(copy.store) == contents(array.store)


def test_pickles_carry_the_shards(tmp_path):
    array, model = uneven(LocalStore(tmp_path))
    assert array[5, 4] == model[5, 4]  # with an index that is remembered, and stays behind
    copy = pickle.loads(pickle.dumps(array))
    assert copy == array
    assert copy.chunks == (2, 3)
    copy[0, 0] = model[0, 0] = -1
    assert np.array_equal(array[...], model)
    assert np.array_equal(copy[...], model)


def test_descriptions_of_shards():
    array, _ = uneven()
    assert repr(array) == "<zellige.Array / (6, 5) int32, rectilinear chunks [4, 2] × 6>"
    assert "chunk_shape=(2, 3)" in array.info["Serializer"]
    assert array.info["Chunk grid"] == "rectilinear, 2 × 1 = 2 chunks"
    assert array.info_complete()["Chunks stored"] == "2 of 2"
    assert "sharding" in repr(array.info).lower()


@pytest.mark.parametrize("dtype", ours.CORE_DTYPES)
def test_values_of_every_type_come_back_from_shards(dtype):
    model = ours.counted((5, 6), dtype)
    array = zellige.create_array(data=model, chunks=(2, 1), shards=[[2, 4], 3])
    assert array[...].tobytes() == model.tobytes()
    for index in (np.s_[1:4, 2], np.s_[[4, 0], [5, 1]], np.s_[::-2]):
        assert array[index].tobytes() == model[index].tobytes()
    array[1:3, 4:] = model[1:3, 4:] = model[:2, :2]
    assert array[...].tobytes() == model.tobytes()


# -- what a change of a part reads and keeps -------------------------------------------------------


class Splicing(MemoryStore):
    """Notes what becomes of the shards that change."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[Any] = []

    def splice(self, key, change):
        def noted(old):
            parts = change(old)
            self.parts = [*(parts or ())]
            return parts

        super().splice(key, noted)


@pytest.mark.parametrize("location", ["start", "end"])
def test_what_stays_in_a_shard_is_kept_in_as_few_pieces_as_there_are(location):
    store = Splicing()
    more = {"chunk_shape": [4], "codecs": [LITTLE], "index_codecs": [LITTLE], "index_location": location}
    serializer = codec("sharding_indexed", **more)
    array = zellige.create_array(
        store, shape=(64,), chunks=(64,), dtype="int32", serializer=serializer, compressors=None
    )
    value = np.arange(1, 65, dtype="int32")
    array[...] = value
    for where in (slice(20, 24), slice(0, 4), slice(60, 64), slice(30, 33), slice(8, 16)):
        array[where] = value[where] = -value[where]
        kept = [part for part in store.parts if isinstance(part, Kept)]
        assert len(kept) == (1 if where.start == 0 or where.stop == 64 else 2), where
        changed = {index // 4 for index in range(where.start, where.stop)}
        assert sum(map(len, kept)) == 4 * 4 * (16 - len(changed))
        assert np.array_equal(array[...], value)
    assert np.array_equal(zellige.open_array(store)[...], value)


def test_a_change_of_an_inner_chunk_reads_the_index_alone(tmp_path, monkeypatch):
    array = zellige.create_array(
        tmp_path, shape=(1024, 64), shards=(1024, 64), chunks=(16, 64), dtype="int16", compressors=None
    )
    value = np.arange(1, 65537, dtype="uint16").astype("int16").reshape(1024, 64)
    array[...] = value
    read: list[int] = []
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, count, at: (read.append(count), pread(fd, count, at))[1])
    monkeypatch.setattr(os, "preadv", lambda fd, into, at: (read.append(n := preadv(fd, into, at)), n)[1])
    array[160:176] = value[160:176] = 7
    assert read == [64 * 16 + 4]
    read.clear()
    array[200, 5] = value[200, 5] = 9
    assert read == [64 * 16 + 4, 2048]
    monkeypatch.undo()
    assert np.array_equal(array[...], value)
