"""Creating and opening: every mode against everything that may be there already, and every form of argument."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import CountingStore, contents
from zellige.codecs import BytesCodec, GzipCodec, TransposeCodec, ZstdCodec
from zellige.errors import (
    ArrayNotFoundError,
    ContainsArrayError,
    ContainsGroupError,
    MetadataError,
    NodeNameError,
    NodeNotFoundError,
    NotANodeError,
    ReadOnlyError,
    UnknownCodecError,
)
from zellige.metadata import DefaultChunkKeyEncoding, V2ChunkKeyEncoding
from zellige.stores import LocalStore, MemoryStore, Store

GROUP = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"kept": True}}).encode()


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


# -- modes ----------------------------------------------------------------------------------------


def put_array(store: Store) -> None:
    zellige.create_array(store, name="place", data=[1, 2, 3, 4], chunks=2)


def put_group(store: Store) -> None:
    zellige.create_array(store, name="place/child", data=[1, 2])


THERE = {
    "nothing": lambda store: None,
    "array": put_array,
    "group": put_group,
    "broken v2 array": lambda store: store.put("place/.zarray", b'{"zarr_format": 2}'),
    "v2 group": lambda store: store.put("place/.zgroup", b'{"zarr_format": 2}'),
    "foreign": lambda store: store.put("place/notes.txt", b"keep me"),
    "rubbish": lambda store: store.put("place/zarr.json", b"not a document"),
}

OPENED, CREATED = "opened", "created"

# What each mode does; `a?` is mode `a` without a shape to create from.
MODES: dict[str, dict[str, Any]] = {
    "nothing": {
        "r": ArrayNotFoundError,
        "r+": ArrayNotFoundError,
        "a": CREATED,
        "a?": ArrayNotFoundError,
        "w": CREATED,
        "w-": CREATED,
    },
    "array": {"r": OPENED, "r+": OPENED, "a": OPENED, "a?": OPENED, "w": CREATED, "w-": ContainsArrayError},
    "group": {
        "r": ArrayNotFoundError,
        "r+": ArrayNotFoundError,
        "a": ContainsGroupError,
        "a?": ArrayNotFoundError,
        "w": CREATED,
        "w-": ContainsGroupError,
    },
    "broken v2 array": {
        "r": MetadataError,
        "r+": MetadataError,
        "a": MetadataError,
        "a?": MetadataError,
        "w": CREATED,
        "w-": ContainsArrayError,
    },
    "v2 group": {
        "r": ArrayNotFoundError,
        "r+": ArrayNotFoundError,
        "a": ContainsGroupError,
        "a?": ArrayNotFoundError,
        "w": CREATED,
        "w-": ContainsGroupError,
    },
    "foreign": {
        "r": ArrayNotFoundError,
        "r+": ArrayNotFoundError,
        "a": CREATED,
        "a?": ArrayNotFoundError,
        "w": NotANodeError,
        "w-": CREATED,
    },
    "rubbish": {
        "r": MetadataError,
        "r+": MetadataError,
        "a": MetadataError,
        "a?": MetadataError,
        "w": CREATED,
        "w-": ContainsArrayError,
    },
}


# Without a shape, `open` opens or creates a group where there is no array: tests/nodes/test_groups.py.
CASES = [(there, mode, zellige.open_array) for there in MODES for mode in MODES[there]]
CASES += [
    (*case[:2], zellige.open) for case in CASES if (case[1], MODES[case[0]][case[1]]) != ("a?", ArrayNotFoundError)
]


@pytest.mark.parametrize(("there", "mode", "opener"), CASES)
def test_every_mode_against_everything(store, there, mode, opener):
    THERE[there](store)
    before = contents(store)
    expected = MODES[there][mode]
    options = {} if mode == "a?" else {"shape": 3, "dtype": "int8", "fill_value": 9}
    if isinstance(expected, type):
        with pytest.raises(NodeNotFoundError if expected is ArrayNotFoundError else expected):
            opener(store, path="place", mode=mode[:1] if mode == "a?" else mode, **options)
        assert contents(store) == before
        return
    array = opener(store, path="/place/", mode=mode.rstrip("?"), **options)
    assert array.read_only == (mode == "r")
    assert array.path == "place"
    if expected == OPENED:
        assert array[...].tolist() == [1, 2, 3, 4]
        assert contents(store) == before
    else:
        assert array[...].tolist() == [9, 9, 9]
        kept = {"place/notes.txt"} if there == "foreign" else set()
        assert set(contents(store)) == {"zarr.json", "place/zarr.json"} | kept


def test_the_default_mode_opens_or_creates_and_unknown_ones_are_refused(store):
    zellige.open(store, shape=2)[:] = 5
    assert zellige.open(store, shape=7)[...].tolist() == [5, 5]
    assert zellige.open_array(store)[...].tolist() == [5, 5]
    for mode in ("x", "rw", ""):
        with pytest.raises(ValueError, match="mode"):
            zellige.open_array(store, mode=mode)


def test_opening_is_one_request():
    store = CountingStore()
    zellige.create_array(store, name="a/b", data=[1, 2])
    store.reset()
    zellige.open(store, path="a/b", mode="r")
    assert store.counts() == {"get": 1}
    assert store.keys() == ["a/b/zarr.json"]


def test_reading_modes_leave_no_directory_behind(tmp_path):
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            zellige.open(tmp_path / "absent", mode=mode)
    assert list(tmp_path.iterdir()) == []


# -- nodes ----------------------------------------------------------------------------------------


def test_groups_above_are_created_and_those_there_are_kept(store):
    store.put("a/zarr.json", GROUP)
    zellige.create_array(store, name="a/b/c", shape=1)
    assert json.loads(store.get("zarr.json")) == json.loads(store.get("a/b/zarr.json"))
    assert json.loads(store.get("zarr.json")) == {"zarr_format": 3, "node_type": "group"}
    assert store.get("a/zarr.json") == GROUP


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_directory_of_an_array_holds_no_other_store(tmp_path, zarr_format):
    outer, inner, data = tmp_path / "p.zarr", tmp_path / "p.zarr/w", np.arange(4)
    zellige.create_array(outer, data=data, chunks=2, zarr_format=zarr_format)
    before = sorted(outer.rglob("*"))
    for action in (
        lambda: zellige.create_array(inner, data=data),
        lambda: zellige.create_array(inner, name="x", data=data),
        lambda: zellige.create_group(inner),
        lambda: zellige.save(inner, data),
        lambda: zellige.rechunk(outer, inner, chunks=4),
        lambda: zellige.copy_store(outer, inner),
        lambda: zellige.copy(outer, inner, "x"),
    ):
        with pytest.raises(ContainsArrayError, match=r"p\.zarr.*choose another place"):
            action()
    assert sorted(outer.rglob("*")) == before
    zellige.create_group(tmp_path / "g.zarr", zarr_format=zarr_format)
    assert zellige.create_array(tmp_path / "g.zarr/w", data=data)[:].tolist() == data.tolist()


def test_an_array_holds_no_other_node(store):
    zellige.create_array(store, name="a/array", shape=1)
    store.delete(["zarr.json"])
    before = contents(store)
    for name in ("a/array/b", "a/array/b/c", "a/array/c/0"):
        for overwrite in (False, True):
            with pytest.raises(ContainsArrayError, match="'/a/array'"):
                zellige.create_array(store, name=name, shape=1, overwrite=overwrite)
    assert contents(store) == before


def test_a_refused_creation_leaves_no_groups_behind(store):
    zellige.create_array(store, name="a/b/array", shape=1)
    store.put("a/b/foreign/notes.txt", b"keep me")
    store.put("a/b/v2/.zgroup", b"{}")
    store.delete(["zarr.json"])
    store.delete(["a/zarr.json"])
    before = contents(store)
    cases = [("array", False, ContainsArrayError), ("foreign", True, NotANodeError), ("v2", False, ContainsGroupError)]
    for name, overwrite, kind in cases:
        with pytest.raises(kind):
            zellige.create_array(store, name=f"a/b/{name}", shape=1, overwrite=overwrite)
    assert contents(store) == before


def test_overwriting_replaces_the_node_and_nothing_beside_it(store):
    for name in ("g/a", "g/ab", "g/a.b"):
        zellige.create_array(store, name=name, data=[1, 2, 3], chunks=1, attributes={"old": 1})
    beside = {key: raw for key, raw in contents(store).items() if not key.startswith("g/a/")}
    array = zellige.create_array(store, name="g/a", shape=5, chunks=1, overwrite=True)
    assert array.attrs == {}
    assert not array[...].any()
    assert contents(store) == {**beside, "g/a/zarr.json": store.get("g/a/zarr.json")}
    with pytest.raises(ContainsArrayError, match="overwrite=True"):
        zellige.create_array(store, name="g/a", shape=1, overwrite=False)
    zellige.create_array(store, name="g", shape=1, overwrite=True)
    assert set(contents(store)) == {"zarr.json", "g/zarr.json"}


BAD_NAMES = [
    ".",
    "..",
    "a/..",
    "../a",
    "...",
    "__zellige",
    "a/__zellige_b",
    "zarr.json",
    "a/zarr.json/b",
    "a\0b",
    "x/.zellige-tmp-1",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_are_refused(store, name):
    with pytest.raises(ValueError, match=r"path|key"):
        zellige.create_array(store, name=name, shape=1)
    assert contents(store) == {}
    if ".." in name.split("/") or "\0" in name:
        with pytest.raises(ValueError, match="key"):
            zellige.open(store, path=name, mode="r")


def test_a_bad_name_is_a_fact_of_the_error(store):
    with pytest.raises(NodeNameError, match="'__zellige_b'") as found:
        zellige.create_array(store, name="a/__zellige_b/c", shape=1)
    assert found.value.name == "__zellige_b"


@pytest.mark.parametrize("name", ["a b", "é/数", "%d/100%", "-", "..x", "x..", ".hidden", "C:", "a\\b", "/a/b/", "c/0"])
def test_odd_names_are_fine(store, name):
    zellige.create_array(store, name=name, data=[5])
    assert zellige.open(store, path=name, mode="r")[0] == 5


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_exclusive_creation_has_one_winner(kind, tmp_path):
    for turn in range(5):
        store = MemoryStore() if kind == "memory" else LocalStore(tmp_path / f"{turn}")
        won: list[int] = []
        lost: list[Exception] = []
        start = threading.Barrier(8)

        def create(number: int, store=store, won=won, lost=lost, start=start) -> None:
            start.wait(10)
            try:
                zellige.open_array(store, path="a/b", mode="w-", shape=1, dtype="int8", fill_value=number)
                won.append(number)
            except ContainsArrayError as error:
                lost.append(error)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(won), len(lost)) == (1, 7)
        assert zellige.open(store, path="a/b")[0] == won[0]


def test_a_read_only_store_refuses_creation(store):
    put_array(store)
    before = contents(store)
    for overwrite in (False, True):
        with pytest.raises((ReadOnlyError, ContainsArrayError)):
            zellige.create_array(store.as_read_only(), name="place", shape=1, overwrite=overwrite)
        with pytest.raises(ReadOnlyError):
            zellige.create_array(store.as_read_only(), name="other", shape=1, overwrite=overwrite)
    assert contents(store) == before


# -- arguments ------------------------------------------------------------------------------------


def names(codecs: Any) -> list[str]:
    return [codec.name for codec in codecs]


TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}

CHAINS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["bytes", "zstd"]),
    ({"compressors": "auto", "filters": "auto", "serializer": "auto"}, ["bytes", "zstd"]),
    ({"compressors": None}, ["bytes"]),
    ({"compressors": []}, ["bytes"]),
    ({"compressors": "gzip"}, ["bytes", "gzip"]),
    ({"compressors": GzipCodec(level=3)}, ["bytes", "gzip"]),
    ({"compressors": ["gzip", ZstdCodec(), {"name": "crc32c"}]}, ["bytes", "gzip", "zstd", "crc32c"]),
    ({"compressor": None}, ["bytes"]),
    ({"compressor": "gzip"}, ["bytes", "gzip"]),
    ({"compressor": GzipCodec()}, ["bytes", "gzip"]),
    ({"checksum": True}, ["bytes", "zstd", "crc32c"]),
    ({"checksum": True, "compressors": None}, ["bytes", "crc32c"]),
    ({"filters": None}, ["bytes", "zstd"]),
    ({"filters": TransposeCodec((1, 0))}, ["transpose", "bytes", "zstd"]),
    ({"filters": TRANSPOSE}, ["transpose", "bytes", "zstd"]),
    ({"filters": (TRANSPOSE, TRANSPOSE)}, ["transpose", "transpose", "bytes", "zstd"]),
    ({"serializer": "bytes"}, ["bytes", "zstd"]),
    ({"serializer": BytesCodec("big"), "compressors": None}, ["bytes"]),
]


@pytest.mark.parametrize(("arguments", "chain"), CHAINS, ids=repr)
def test_codecs_in_every_form(arguments, chain):
    model = np.arange(12, dtype="int16").reshape(3, 4)
    store = MemoryStore()
    array = zellige.create_array(store, data=model, chunks=2, **arguments)
    found = zellige.open(store)
    assert names([*found.filters, found.serializer, *found.compressors]) == chain
    assert np.array_equal(found[...], model)
    assert found == array


def test_the_default_compressor_has_its_checksum():
    (codec,) = zellige.zeros(3).compressors
    assert codec == ZstdCodec(level=codec.level, checksum=True)


BAD_CHAINS: list[tuple[type[Exception], dict[str, Any]]] = [
    (UnknownCodecError, {"compressors": "zstandard"}),
    (UnknownCodecError, {"filters": {"name": "rot13"}}),
    (MetadataError, {"compressors": 5}),
    (MetadataError, {"compressors": {"level": 5}}),
    (MetadataError, {"compressors": {"name": "gzip", "configuration": {"level": 99}}}),
    (MetadataError, {"compressors": {"name": "gzip", "configuration": {"lvl": 1}}}),
    (MetadataError, {"compressors": TRANSPOSE}),
    (MetadataError, {"compressors": BytesCodec()}),
    (MetadataError, {"filters": "gzip"}),
    (MetadataError, {"filters": {"name": "transpose", "configuration": {"order": [0, 0]}}}),
    (MetadataError, {"filters": {"name": "transpose", "configuration": {"order": [0, 1, 2]}}}),
    (MetadataError, {"serializer": None}),
    (MetadataError, {"serializer": "gzip"}),
    (MetadataError, {"serializer": {"name": "bytes"}}),
    (MetadataError, {"serializer": {"name": "bytes", "configuration": {"endian": "middle"}}}),
]


@pytest.mark.parametrize(("kind", "arguments"), BAD_CHAINS, ids=repr)
def test_bad_codecs_are_refused(kind, arguments):
    store = MemoryStore()
    with pytest.raises(kind):
        zellige.create_array(store, shape=(3, 4), dtype="int16", chunks=2, **arguments)
    assert contents(store) == {}


KEYS: list[tuple[Any, str, Any]] = [
    (None, "c/1/0", DefaultChunkKeyEncoding()),
    ("default", "c/1/0", DefaultChunkKeyEncoding()),
    ("v2", "1.0", V2ChunkKeyEncoding()),
    ({"name": "v2"}, "1.0", V2ChunkKeyEncoding()),
    ({"name": "default", "separator": "."}, "c.1.0", DefaultChunkKeyEncoding(".")),
    ({"name": "v2", "configuration": {"separator": "/"}}, "1/0", V2ChunkKeyEncoding("/")),
    (V2ChunkKeyEncoding("/"), "1/0", V2ChunkKeyEncoding("/")),
]


@pytest.mark.parametrize(("argument", "key", "encoding"), KEYS, ids=repr)
def test_chunk_key_encodings_in_every_form(argument, key, encoding):
    store = MemoryStore()
    array = zellige.create_array(store, name="a", shape=(4, 2), chunks=2, chunk_key_encoding=argument)
    array[2:] = 1
    assert sorted(set(contents(store)) - {"zarr.json"}) == sorted([f"a/{key}", "a/zarr.json"])
    assert zellige.open(store, path="a").metadata.chunk_key_encoding == encoding
    assert array.nchunks_initialized == 1


@pytest.mark.parametrize("argument", ["v3", 5, {"name": "v2", "separator": "-"}, {"separator": "."}, {}, {"nom": 1}])
def test_bad_chunk_key_encodings_are_refused(argument):
    store = MemoryStore()
    with pytest.raises(MetadataError, match="chunk_key_encoding"):
        zellige.create_array(store, shape=4, chunk_key_encoding=argument)
    assert contents(store) == {}


FILLS: list[tuple[str, Any, Any]] = [
    ("float64", None, 0.0),
    ("int8", -128, -128),
    ("uint64", 2**64 - 1, 2**64 - 1),
    ("float32", "NaN", np.nan),
    ("float32", "-Infinity", -np.inf),
    ("float16", "0x7e01", np.frombuffer(b"\x01\x7e", "<f2")[0]),
    ("complex64", 1 + 2j, 1 + 2j),
    ("complex128", ["NaN", 1.5], complex(np.nan, 1.5)),
    ("bool", True, True),
    ("int16", np.int64(5), 5),
    ("r16", b"ab", b"ab"),
]


@pytest.mark.parametrize(("dtype", "fill", "expected"), FILLS, ids=repr)
def test_fill_values(dtype, fill, expected):
    store = MemoryStore()
    zellige.create_array(store, shape=2, dtype=dtype, fill_value=fill)
    array = zellige.open(store)
    assert array[...].tobytes() == np.full(2, np.array(expected, array.dtype)).tobytes()


WITHOUT_FILL = {
    "create_array": lambda s: zellige.create_array(s, shape=3, fill_value=None, zarr_format=2),
    "create": lambda s: zellige.create(3, store=s, fill_value=None, zarr_format=2),
    "empty": lambda s: zellige.empty(3, store=s, fill_value=None, zarr_format=2),
    "full": lambda s: zellige.full(3, None, store=s, zarr_format=2),
    "array": lambda s: zellige.array(np.zeros(3), store=s, fill_value=None, zarr_format=2),
    "from_array": lambda s: zellige.from_array(s, data=np.zeros(3), fill_value=None, zarr_format=2),
    "open_array": lambda s: zellige.open_array(s, shape=3, mode="a", fill_value=None, zarr_format=2),
    "open": lambda s: zellige.open(s, shape=3, mode="w", fill_value=None, zarr_format=2),
    "group": lambda s: zellige.create_group(s, zarr_format=2).create_array("a", shape=3, fill_value=None),
    "require": lambda s: zellige.create_group(s, zarr_format=2).require_array("a", shape=3, fill_value=None),
    "group full": lambda s: zellige.create_group(s, zarr_format=2).full(name="a", shape=3, fill_value=None),
}
WITH_FILL = {
    "create_array": lambda s: zellige.create_array(s, shape=3, zarr_format=2),
    "zeros": lambda s: zellige.zeros(3, store=s, zarr_format=2),
    "zeros of None": lambda s: zellige.zeros(3, store=s, fill_value=None, zarr_format=2),
    "empty": lambda s: zellige.empty(3, store=s, zarr_format=2),
    "require": lambda s: zellige.create_group(s, zarr_format=2).require_array("a", shape=3),
}


@pytest.mark.parametrize("how", WITHOUT_FILL)
def test_no_fill_value_in_format_2_stays_none(how):
    store = MemoryStore()
    made = WITHOUT_FILL[how](store)
    array = zellige.open(store, path=made.path)
    assert made.fill_value is array.fill_value is None
    assert array[...].tolist() == [0.0] * 3
    # Whatever writes the metadata anew.
    array.attrs["a"] = 1
    array.resize((5,))
    array.append(np.zeros(2))
    if made.path:
        held = zellige.consolidate_metadata(store)
        held["a"].attrs["b"] = 1
        assert held["a"].fill_value is None
    assert json.loads(store.get((made.path and made.path + "/") + ".zarray"))["fill_value"] is None
    copied = zellige.create_group(zarr_format=2)
    zellige.copy(array, copied, name="b")
    zellige.copy(array, copied, name="c", chunks=2)
    zellige.rechunk(array, copied.store, name="d", chunks=3)
    for name in "bcd":
        assert zellige.open(copied.store, path=name).fill_value is None
    assert zellige.from_array(data=array).fill_value is None
    assert zellige.from_array(data=array, zarr_format=3).fill_value == 0


@pytest.mark.parametrize("how", WITH_FILL)
def test_the_default_fill_value_in_format_2_is_zero(how):
    made = WITH_FILL[how](MemoryStore())
    assert made.fill_value == 0


def test_chunks_are_stored_for_an_array_that_gets_no_fill_value():
    source = zellige.zeros(6, chunks=2, zarr_format=2)
    assert zellige.from_array(data=source).nchunks_initialized == 0
    assert zellige.from_array(data=source, fill_value=None).nchunks_initialized == 3


def test_dimension_names_and_what_they_are_good_for():
    array = zellige.create_array(shape=(4, 6), dimension_names=["t", "x"], chunks={"x": [1, 5], "t": 2})
    assert array.dimension_names == ("t", "x")
    assert array.write_chunk_sizes == ((2, 2), (1, 5))
    assert zellige.create_array(shape=3, dimension_names="t").dimension_names == ("t",)
    assert zellige.create_array(shape=(3, 4), dimension_names=[None, "x"]).dimension_names == (None, "x")
    assert zellige.zeros(3).dimension_names is None


@pytest.mark.parametrize(
    "make", [str, Path, lambda path: f"file://{path}", LocalStore], ids=["str", "Path", "URL", "Store"]
)
def test_stores_in_every_form(make, tmp_path):
    zellige.create_array(make(tmp_path / "x.zarr"), data=[1, 2])
    assert (tmp_path / "x.zarr" / "zarr.json").exists()
    assert zellige.open(make(tmp_path / "x.zarr"), mode="r")[...].tolist() == [1, 2]
    plain: dict[str, bytes] = {}
    zellige.create_array(plain, data=[1, 2])
    assert sorted(plain) == ["c/0", "zarr.json"]
    for bad in ("s3://", "", 5):
        with pytest.raises((ValueError, TypeError), match="store"):
            zellige.create_array(bad, shape=1)


MISUSES = {
    "nodes": lambda a: zellige.create_hierarchy(store={}, nodes=None),
    "config of an array": lambda a: a.with_config(5),
    "config": lambda a: zellige.create_array({}, data=[1], config=5),
    "settings": lambda a: zellige.config.set(5),
    "storage_options": lambda a: zellige.open_array({}, storage_options=5),
    "storage_options of a place": lambda a: zellige.open_array("memory://none", storage_options=5),
    "dimension_names": lambda a: zellige.create_array({}, data=[1], dimension_names=5),
    "arrays": lambda a: zellige.concat(None),
    "axis of stack": lambda a: zellige.stack([a, a], axis=10**30),
    "axis of append": lambda a: a.append([1], axis="time"),
    "chunks of append": lambda a: a.append([1], chunks=1.5),
    "level": lambda a: zellige.create_group({}).tree(level="all"),
}


@pytest.mark.parametrize("misuse", MISUSES.values(), ids=MISUSES)
def test_arguments_of_another_kind_are_named_before_anything_happens(misuse):
    a = zellige.create_array({}, data=[1, 2, 3], chunks=2)
    words = r"must be|neither a chunk size|out of bounds|interpreted as an integer"
    with pytest.raises((TypeError, ValueError, IndexError), match=words):
        misuse(a)
    assert a.shape == (3,)
