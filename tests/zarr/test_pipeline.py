"""zarr-python with `zellige.zarr.Pipeline`: the results of numpy and of its own pipeline."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, ShardingCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore, WrapperStore, ZipStore

import zarr
import zellige
import zellige.zarr
from strategies import examples
from zellige.zarr import pipeline
from zellige.zarr.pipeline import Pipeline

PLAIN = "zarr.core.codec_pipeline.BatchedCodecPipeline"


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    zellige.zarr.enable()
    yield
    zellige.zarr.disable()


@pytest.fixture
def used(monkeypatch) -> Counter[str]:
    """Counts the batches that are read and written by zellige, and by the plain pipeline."""
    found: Counter[str] = Counter()
    operation = Pipeline._operation

    def count(self: Pipeline, batch: Any, *rest: Any) -> Any:
        made = operation(self, batch, *rest)
        found["plain" if made is None else "zellige"] += 1
        return made

    monkeypatch.setattr(Pipeline, "_operation", count)
    return found


def plainly(array: zarr.Array) -> zarr.Array:
    """The same array, read and written by zarr-python alone."""
    with zarr.config.set({"codec_pipeline.path": PLAIN}):
        return zarr.open_array(array.store, path=array.path)


# -- every selection ------------------------------------------------------------------------------


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """A shape, and the options of an array of it."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    inner = tuple(draw(st.integers(1, 4)) for _ in shape)
    options: dict[str, Any] = {"chunks": inner, "zarr_format": draw(st.sampled_from([3, 3, 2]))}
    options["dtype"] = draw(st.sampled_from(["int16", "float64", "bool", "complex64", "M8[s]"]))
    options["fill_value"] = draw(st.sampled_from([0, 1]))
    options["compressors"] = draw(st.sampled_from([None, "auto"]))
    options["config"] = {"write_empty_chunks": draw(st.booleans())}
    if options["zarr_format"] == 2:
        options["order"] = draw(st.sampled_from("CF"))
    else:
        options["config"]["order"] = draw(st.sampled_from("CF"))
    if options["zarr_format"] == 3:
        if draw(st.booleans()):
            options["shards"] = tuple(size * draw(st.integers(1, 3)) for size in inner)
        separator = draw(st.sampled_from("/."))
        options["chunk_key_encoding"] = {"name": draw(st.sampled_from(["default", "v2"])), "separator": separator}
    return shape, options


def picks(draw: st.DrawFn, length: int, *, arrays: bool) -> Any:
    """What is picked along one axis: in ways that zarr-python knows."""
    kinds = ["integer", "slice", "all", *(["positions", "mask"] if arrays else [])]
    match draw(st.sampled_from(kinds)):
        case "integer":
            return draw(st.integers(-length, length - 1))
        case "slice":
            start = draw(st.integers(0, length - 1))
            return slice(start, draw(st.integers(start + 1, length)), draw(st.integers(1, length + 1)))
        case "positions":
            return np.array(draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=6)))
        case "mask":
            return np.array([True, *draw(st.lists(st.booleans(), min_size=length - 1, max_size=length - 1))])
    return slice(None)


def meshed(model: np.ndarray, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """An orthogonal index as numpy takes it: integers keep their axes."""
    return np.ix_(*[np.atleast_1d(np.arange(n)[pick]) for n, pick in zip(model.shape, index, strict=True)])


@examples(0.25)
@given(st.data())
def test_all_selections_are_those_of_numpy(data):
    shape, options = data.draw(layouts())
    array = zarr.create_array(MemoryStore(), shape=shape, **options)
    model = np.full(shape, array.fill_value, array.dtype)
    numbers = np.arange(1, model.size + 1).astype("int64")
    for step in range(3):
        way = data.draw(st.sampled_from(["basic", "orthogonal", "points", "blocks"]))
        if way == "points":
            points = st.tuples(*[st.integers(0, n - 1) for n in shape])
            index = tuple(
                map(np.array, zip(*data.draw(st.lists(points, min_size=1, max_size=5, unique=True)), strict=True))
            )
            expected, on_model, indexer = model[index], index, array.vindex
        elif way == "blocks" and "shards" not in options:
            index = tuple(
                data.draw(st.integers(0, -(-n // size) - 1)) for n, size in zip(shape, array.chunks, strict=True)
            )
            on_model = tuple(slice(at * size, (at + 1) * size) for at, size in zip(index, array.chunks, strict=True))
            expected, indexer = model[on_model], array.blocks
        elif way == "orthogonal":
            index = tuple(picks(data.draw, n, arrays=True) for n in shape)
            dropped = tuple(axis for axis, pick in enumerate(index) if isinstance(pick, int))
            on_model = meshed(model, index)
            expected, indexer = model[on_model].squeeze(axis=dropped), array.oindex
        else:
            on_model = index = tuple(picks(data.draw, n, arrays=False) for n in shape)
            expected, indexer = model[index], array
        assert np.array_equal(indexer[index], expected)
        if step < 2:
            if way == "orthogonal":
                value = np.ones((), "int64").astype(model.dtype)  # positions may repeat
            else:
                value = numbers[: np.size(expected)].astype(model.dtype).reshape(np.shape(expected))
            indexer[index] = value
            model[on_model] = value
    assert np.array_equal(array[...], model)
    assert np.array_equal(plainly(array)[...], model)


@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_text(zarr_format):
    array = zarr.create_array(MemoryStore(), shape=3, dtype="str", chunks=2, zarr_format=zarr_format)
    array[:] = np.array(["a", "", "übc"], array.dtype)
    array[1] = "d"
    assert array[:].tolist() == plainly(array)[:].tolist() == ["a", "d", "übc"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_no_axes(zarr_format, used):
    array = zarr.create_array(MemoryStore(), shape=(), dtype="int32", zarr_format=zarr_format)
    array[...] = 7
    assert array[...] == 7
    assert used == {"zellige": 2}
    assert plainly(array)[...] == 7


# -- stores and codecs ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "local", "zip", "obstore", "fsspec"])
def test_stores(kind, tmp_path, used):
    if kind == "obstore":
        from obstore.store import MemoryStore as Memory

        store: Any = zarr.storage.ObjectStore(Memory())
    elif kind == "fsspec":
        store = zarr.storage.FsspecStore.from_url("memory://pipeline/x")
    else:
        store = {"memory": MemoryStore, "local": LocalStore, "zip": ZipStore}[kind](
            *({"memory": (), "local": (tmp_path,), "zip": (tmp_path / "x.zip",)}[kind]),
            **({"mode": "w"} if kind == "zip" else {}),
        )
    model = np.arange(600).reshape(30, 20)
    array = zarr.create_array(store, name="a/b", data=model, chunks=(7, 6))
    assert np.array_equal(array[3:25, ::2], model[3:25, ::2])
    if kind != "zip":  # where an entry that is written again is there twice
        array[1:3] = model[1:3] = 0
    assert used["plain"] == 0
    assert np.array_equal(plainly(array)[...], model)
    store.close()


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle")},
        {"compressors": [ZstdCodec(level=3, checksum=True), zarr.codecs.Crc32cCodec()]},
        {"filters": zarr.codecs.TransposeCodec(order=(1, 0)), "compressors": "gzip"},
        {"serializer": BytesCodec(endian="big")},
        {"zarr_format": 2, "dtype": ">i4"},
        {"shards": (8, 8), "serializer": "auto"},
        {"serializer": ShardingCodec(chunk_shape=(2, 2), index_location="start"), "compressors": None},
    ],
    ids=str,
)
def test_codecs(options, used):
    model = np.arange(64, dtype=options.get("dtype", "int32")).reshape(8, 8)
    if options.get("compressors") == "gzip":
        options = {**options, "compressors": zarr.codecs.GzipCodec()}
    array = zarr.create_array(
        MemoryStore(), data=model, chunks=(4, 4), **{k: v for k, v in options.items() if k != "dtype"}
    )
    assert np.array_equal(array[...], model)
    array[1:3, 2:7] = model[1:3, 2:7] = -1
    assert np.array_equal(array[...], model)
    assert used["plain"] == 0
    assert np.array_equal(plainly(array)[...], model)


# -- what zarr-python does itself -----------------------------------------------------------------


class Mine(BytesCodec):
    """A codec that somebody registered in the place of another."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: zarr.create_array(MemoryStore(), shape=4, dtype="int8", serializer=Mine()),
        lambda: zarr.create_array(WrapperStore(MemoryStore()), shape=4, dtype="int8"),
    ],
    ids=["a codec of others", "a store of others"],
)
def test_what_is_not_known_here_is_for_zarr_python(make, used):
    array = make()
    array[1:3] = [1, 2]
    assert array[1:3].tolist() == [1, 2]
    assert used["zellige"] == 0
    assert used["plain"] > 0


def test_masked_arrays_and_empty_selections_are_for_zarr_python(used):
    array = zarr.create_array(MemoryStore(), shape=(5, 17), chunks=(3, 13), dtype="int32")
    array[0] = np.ma.masked_greater(np.arange(17, dtype="int32"), 5)
    array.oindex[np.arange(4), slice(12, 1, 1)] = np.zeros((4, 0), "int32")
    assert used["zellige"] == 0
    assert array[0].tolist() == plainly(array)[0].tolist()


def test_a_version_that_was_not_tested_is_named_once(monkeypatch):
    monkeypatch.setattr(zarr, "__version__", "3.99.1")
    pipeline.is_tested.cache_clear()
    array = zarr.create_array(MemoryStore(), shape=4, dtype="int8")
    with pytest.warns(
        zellige.errors.ZelligeWarning, match=r"tested with zarr-python 3\.1 to 3\.4, and this is 3\.99\.1"
    ):
        array[:] = 1
    assert array[:].tolist() == [1] * 4
    monkeypatch.undo()
    pipeline.is_tested.cache_clear()


def test_missing_chunks_are_an_error_where_they_may_not_be_missing():
    array = zarr.create_array(MemoryStore(), shape=4, chunks=1, dtype="int8")
    array[:2] = 1
    if not hasattr(array._async_array.config, "read_missing_chunks"):
        pytest.skip("this zarr-python has no setting read_missing_chunks")
    strict = array.with_config({"read_missing_chunks": False})
    assert strict[:2].tolist() == [1, 1]
    with pytest.raises(zarr.errors.ChunkNotFoundError, match="2 chunk"):
        strict[:]


def test_a_store_that_is_read_only_refuses_in_the_words_of_zarr_python(tmp_path):
    zarr.create_array(tmp_path, data=np.arange(4))
    array = zarr.open_array(LocalStore(tmp_path, read_only=True), mode="r")
    assert array[:].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        array[:] = 1


def test_enabling_is_undone(tmp_path):
    zellige.zarr.enable()
    zellige.zarr.disable()
    assert zarr.config.get("codec_pipeline.path") == PLAIN
    assert not zarr.config.get("array.rectilinear_chunks", False)
    zellige.zarr.disable()
    code = "import zarr; print(type(zarr.create_array({}, shape=1, dtype='i1')._async_array.codec_pipeline).__module__)"
    environment = {**os.environ, "ZARR_CODEC_PIPELINE__PATH": "zellige.zarr.Pipeline"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "zellige.zarr\n"  # by its entry point


# -- promises --------------------------------------------------------------------------------------


def test_a_damaged_chunk_is_named(tmp_path):
    zarr.create_array(tmp_path, data=np.arange(100), chunks=50)
    (tmp_path / "c/1").write_bytes(b"no zstd")
    with pytest.raises(zellige.errors.CorruptChunkError, match="key 'c/1'"):
        zarr.open_array(tmp_path)[:]


def test_links_are_followed_as_zarr_python_follows_them(tmp_path):
    zarr.create_array(tmp_path / "elsewhere", data=np.arange(10), chunks=4)
    array = zarr.create_array(tmp_path / "x", shape=10, chunks=4, dtype="int64")
    (tmp_path / "x/c").symlink_to(tmp_path / "elsewhere/c")
    assert array[:].tolist() == plainly(array)[:].tolist() == list(range(10))
    array[3:5] = 7
    assert zarr.open_array(tmp_path / "elsewhere")[2:6].tolist() == [2, 7, 7, 5]


def test_a_resized_array_is_the_same_array(tmp_path):
    array = zarr.create_array(tmp_path, data=np.arange(1, 11), chunks=4)
    array.resize((6,))
    array[:] = np.arange(1, 7)
    array.resize((12,))
    array[10:] = 5
    assert array[:].tolist() == plainly(array)[:].tolist()


def test_pipelines_are_pickled(tmp_path):
    array = zarr.create_array(tmp_path, data=np.arange(10), chunks=4)
    again = pickle.loads(pickle.dumps(array))
    assert isinstance(again._async_array.codec_pipeline, Pipeline)
    assert again == array
    assert again[3:7].tolist() == [3, 4, 5, 6]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_forked_process_reads(tmp_path):
    """As the workers of a torch DataLoader do, after the parent has used the threads of both libraries."""
    code = f"""
import multiprocessing, sys, numpy as np, zarr, zellige.zarr
zellige.zarr.enable()
array = zarr.create_array({str(tmp_path)!r}, data=np.arange(100_000), chunks=1000)
expected = int(array[:].sum())
def read(answers): answers.put(int(zarr.open_array({str(tmp_path)!r}, mode="r")[:].sum()))
context = multiprocessing.get_context("fork")
answers = context.Queue()
for _ in range(3):
    workers = [context.Process(target=read, args=(answers,)) for _ in range(4)]
    for worker in workers: worker.start()
    assert [answers.get() for _ in workers] == [expected] * 4
    for worker in workers: worker.join()
    assert int(array[:].sum()) == expected
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=300)


def increment(place: Path, times: int) -> None:
    zellige.zarr.enable()
    array = zarr.open_array(place, mode="r+")
    column = multiprocessing.current_process()._identity[0] % 2
    for number in range(times):
        array[column] = number + 1


@pytest.mark.parametrize("shards", [None, (2,)])
def test_two_processes_that_write_parts_of_one_chunk_lose_nothing(shards, tmp_path):
    array = zarr.create_array(
        tmp_path, shape=(2,), chunks=(2,) if shards is None else (1,), shards=shards, dtype="int32"
    )
    context = multiprocessing.get_context("spawn")
    for _ in range(3):
        array[:] = 0
        writers = [context.Process(target=increment, args=(tmp_path, 100)) for _ in range(2)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
            assert writer.exitcode == 0
        assert array[:].tolist() == [100, 100]
