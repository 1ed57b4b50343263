"""Copies of nodes: bytes as they are, documents last, nothing half-way that looks like a node."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import strategies as ours
import zellige
from counting_store import WRITES, CountingStore, contents
from zellige.display import progress as reporting
from zellige.errors import (
    BrokenNodeWarning,
    CompatibilityWarning,
    ConflictError,
    ContainsArrayError,
    ContainsGroupError,
    MetadataError,
    NodeNameError,
    NodeNotFoundError,
    NotANodeError,
    ReadOnlyError,
    StoreKeyError,
)
from zellige.nodes import node
from zellige.stores import LocalStore, MemoryStore, Store, StorePath, threads
from zellige.tools.copy import Copied, CopyError, copy, copy_all, copy_store

MODEL = ours.counted((6, 7), "int16")
DOCUMENTS = {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}
MAIN = {"zarr.json", ".zarray", ".zgroup"}


def build(store: Store, zarr_format: int = 3) -> zellige.Group:
    """A hierarchy with something of everything; some chunks are not stored."""
    root = zellige.create_group(store, zarr_format=zarr_format)
    group = root.create_group("g", attributes={"title": "tides", "nested": {"a": [1, None]}})
    group.create_group("empty")
    group.create_group("sub/deeper", attributes={"level": 2})
    if zarr_format == 3:
        rect = group.create_array("rect", shape=(6, 7), chunks=[[1, 2, 3], [4, 3]], dtype="int16", fill_value=7)
        rect[1:] = MODEL[1:]
        group.create_array("sub/sharded", data=MODEL, chunks=(1, 7), shards=[[2, 4], 7], attributes={"unit": "K"})
        group.create_array("sub/deeper/point", data=np.float32(2.5), chunk_key_encoding="v2")
        group.create_array("words", data=["a", "", "βγ"], dtype="string", chunks=2)
    else:
        rect = group.create_array("rect", shape=(6, 7), chunks=(2, 4), dtype=">i2", fill_value=7, order="F")
        rect[2:] = MODEL[2:]
        slashes = {"name": "v2", "separator": "/"}
        group.create_array(
            "sub/sharded", data=MODEL, chunks=(1, 7), attributes={"unit": "K"}, chunk_key_encoding=slashes
        )
        group.create_array("sub/deeper/point", data=np.float32(2.5))
    return group


NODES = {2: 7, 3: 8}
"""How many arrays and groups there are in `g`, with itself."""


def below(store: Store, path: str) -> dict[str, bytes | None]:
    """The keys and values below a path, relative to it."""
    prefix = path and path + "/"
    return {key[len(prefix) :]: raw for key, raw in contents(store).items() if key.startswith(prefix)}


def group_at(store: Any, **options: Any) -> zellige.Group:
    return zellige.create_group(store, **options)


def is_document(key: str) -> bool:
    return key.rpartition("/")[2] in DOCUMENTS


def written(store: CountingStore) -> list[str]:
    """The keys that were put or created, in order, but for the mark of what is not finished."""
    return [key for key in store.keys("put", "create", "replace") if node.UNFINISHED not in key]


@pytest.fixture(params=["memory to memory", "memory to local", "local to memory", "local to local", "within one"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Store]:
    """Where to copy from, and where to."""
    if request.param == "within one":
        store = MemoryStore()
        return store, store
    kinds: dict[str, Callable[[str], Store]] = {
        "memory": lambda _: MemoryStore(),
        "local": lambda name: LocalStore(tmp_path / name),
    }
    source, _, target = request.param.partition(" to ")
    return kinds[source]("from"), kinds[target]("to")


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def zarr_format(request: pytest.FixtureRequest) -> int:
    return request.param


# -- bytes as they are ----------------------------------------------------------------------------


def test_a_copied_group_has_the_same_bytes(stores, zarr_format):
    here, there = stores
    source = build(here, zarr_format)
    before = below(here, "g")
    dest = zellige.open_group(there, path="into", zarr_format=zarr_format)
    copied = copy(source, dest, "copy")
    assert below(there, "into/copy") == before == below(here, "g")
    assert copied == (NODES[zarr_format], 0, sum(map(len, before.values())))
    assert copied.left_out == ()
    found = dict(dest["copy"].members(max_depth=None))
    expected = dict(source.members(max_depth=None))
    assert list(found) == list(expected)
    assert len(found) == NODES[zarr_format] - 1
    for name, original in expected.items():
        assert found[name].metadata == original.metadata
        if isinstance(original, zellige.Array):
            assert np.array_equal(found[name][...], original[...]), name
    assert dest["copy"].attrs == source.attrs


@pytest.mark.parametrize("name", ["rect", "sub/sharded", "sub/deeper/point"])
def test_a_copied_array_has_the_same_bytes(stores, zarr_format, name):
    here, there = stores
    source = build(here, zarr_format)[name]
    dest = zellige.open_group(there, path="into", zarr_format=zarr_format)
    assert copy(source, dest)[:2] == (1, 0)
    base = name.rpartition("/")[2]
    assert below(there, f"into/{base}") == below(here, f"g/{name}")
    assert np.array_equal(dest[base][...], source[...])


def test_nothing_is_decoded_on_the_way():
    store = MemoryStore()
    source = build(store)
    store.put("g/rect/c/1/0", b"damaged")
    document = json.loads(store.get("g/rect/zarr.json") or b"")
    document["codecs"].append({"name": "not known here", "configuration": {"x": 1}})
    store.put("g/rect/zarr.json", json.dumps(document).encode())
    there = MemoryStore()
    copy(source, group_at(there))
    assert below(there, "g") == below(store, "g")
    assert there.get("g/rect/c/1/0") == b"damaged"


def test_source_and_dest_may_be_places(tmp_path, zarr_format):
    build(LocalStore(tmp_path / "from"), zarr_format)
    copied = copy(StorePath(LocalStore(tmp_path / "from"), "g"), tmp_path / "to")  # which is not there yet
    assert copied[:2] == (NODES[zarr_format], 0)
    assert below(LocalStore(tmp_path / "to"), "g") == below(LocalStore(tmp_path / "from"), "g")
    assert zellige.open_group(tmp_path / "to", mode="r").metadata.zarr_format == zarr_format
    copy(str(tmp_path / "from"), tmp_path / "to", "whole/of/it")  # and which is there
    assert below(LocalStore(tmp_path / "to"), "whole/of/it") == below(LocalStore(tmp_path / "from"), "")
    for path in ("whole", "whole/of"):
        assert zellige.open_group(tmp_path / "to", path=path, mode="r").metadata.zarr_format == zarr_format


def test_each_key_of_the_source_is_read_once(zarr_format):
    here, there = CountingStore(), CountingStore()
    source = build(here, zarr_format)
    dest = group_at(there, zarr_format=zarr_format)
    here.reset()
    there.reset()
    copy(source, dest)
    assert sorted(here.keys("get")) == sorted(key for key in contents(here.inner) if key.startswith("g/"))
    assert here.counts() == {"list": 1, "get": len(below(here.inner, "g"))}
    assert sorted(written(there)) == sorted(key for key in contents(there.inner) if key.startswith("g/"))
    reads = [key for key in there.keys("get", "exists", "size") if key.startswith("g/")]
    assert reads == []  # the listing of the target has shown that there is nothing


def test_verifying_reads_each_key_of_the_target_once(zarr_format):
    here, there = CountingStore(), CountingStore()
    source = build(here, zarr_format)
    dest = group_at(there, zarr_format=zarr_format)
    here.reset()
    there.reset()
    copied = copy(source, dest, verify=True)
    keys = sorted(key for key in contents(here.inner) if key.startswith("g/"))
    assert sorted(here.keys("get")) == keys
    assert sorted(key for key in there.keys("get") if key.startswith("g/")) == keys
    assert copied == copy(source, group_at(None, zarr_format=zarr_format))


def test_documents_are_written_after_chunks_and_the_main_one_of_the_node_at_the_end(zarr_format):
    there = CountingStore()
    dest = group_at(there, zarr_format=zarr_format)
    there.reset()
    copy(build(MemoryStore(), zarr_format), dest, "a/b")
    order = [key for key in written(there) if key.startswith("a/b/")]
    first = next(k for k, key in enumerate(order) if is_document(key))
    assert first > 5
    assert all(map(is_document, order[first:]))
    made = {key: k for k, key in enumerate(order)}
    mains = [key for key in order if key.rpartition("/")[2] in MAIN]
    assert mains[-1].rpartition("/")[0] == "a/b"
    assert order[-1] == mains[-1]
    for key in mains:
        path = key.rpartition("/")[0]
        if path.startswith("a/b"):
            inner = [k for other, k in made.items() if other.startswith(f"{path}/") and other != key]
            assert all(k < made[key] for k in inner), key


def test_no_more_values_are_on_their_way_than_there_are_threads():
    lock, flying, most = threading.Lock(), set[str](), [0]

    def taken(method: str, key: str) -> None:
        if method == "get" and "/c/" in key:
            with lock:
                flying.add(key)
                most[0] = max(most[0], len(flying))

    def landed(method: str, key: str) -> None:
        if method == "put":
            with lock:
                flying.discard(key)

    here = CountingStore()
    root = group_at(here)
    root.create_array("a", data=np.arange(400), chunks=1)
    here.before = taken
    with zellige.config.set({"threading.max_workers": 4}):
        assert threads.workers() == 4
        copy(root["a"], group_at(CountingStore(before=landed)))
    assert 1 <= most[0] <= 4
    assert not flying


# -- what is copied, and what is not --------------------------------------------------------------


def test_what_belongs_to_no_node_is_left_out_and_named(zarr_format):
    store, there = MemoryStore(), MemoryStore()
    source = build(store, zarr_format)
    whole = below(store, "g")
    chunk, outside = ("c/1/0", "c/9/9") if zarr_format == 3 else ("1.0", "9.9")
    strays = [
        "README.md",
        "__zellige_x/zarr.json",
        "implicit/a/zarr.json",
        f"rect/{outside}",
        "rect/notes",
        "sub/x/c/0",
    ]
    for stray in strays:
        store.put(f"g/{stray}", b"{}")
    lines: list[str] = []
    copied = copy(source, group_at(there, zarr_format=zarr_format), log=lines.append)
    assert copied.left_out == tuple(f"g/{stray}" for stray in strays)
    assert copied[:2] == (NODES[zarr_format], 0)
    assert below(there, "g") == whole
    assert f"rect/{chunk}" in whole
    assert [line for line in lines if line.startswith("leave out")] == [f"leave out g/{stray}" for stray in strays]
    array = copy(source["rect"], group_at(None, zarr_format=zarr_format))
    assert array.left_out == (f"g/rect/{outside}", "g/rect/notes")


def test_chunks_that_a_smaller_grid_does_not_have_are_left_out():
    store = MemoryStore()
    array = zellige.create_array(store, name="a", data=np.arange(6), chunks=2)
    zellige.open_array(store, path="a").resize(3)
    store.put("a/c/2", b"left behind")
    dest = group_at(None)
    assert copy(array, dest).left_out == ("a/c/2",)  # what is stored counts, not what the handle remembers
    assert dest["a"][...].tolist() == [0, 1, 2]


def test_where_both_formats_have_a_node_that_of_the_source_is_copied():
    store = MemoryStore()
    zellige.create_array(store, name="a", data=[1, 2], zarr_format=2)
    zellige.create_array(store, name="b", data=[3, 4], chunk_key_encoding="v2")
    store.put("a/zarr.json", store.get("b/zarr.json") or b"")
    for form, kept, left in ((2, ".zarray", "zarr.json"), (3, "zarr.json", ".zarray")):
        there = MemoryStore()
        copied = copy(zellige.open_array(store, path="a", zarr_format=form), group_at(there, zarr_format=form))
        assert copied.left_out == (f"a/{left}",)
        assert sorted(below(there, "a")) == sorted([kept, "0"])


def test_shallow_copies_the_arrays_but_not_the_groups(zarr_format):
    source = build(MemoryStore(), zarr_format)
    dest = group_at(None, zarr_format=zarr_format)
    arrays = sorted(source.array_keys())
    assert copy(source, dest, shallow=True) == (1 + len(arrays), 0, sum(map(len, below(dest.store, "g").values())))
    assert sorted(dest["g"]) == arrays
    assert dest["g"].attrs == source.attrs
    members = group_at(None, zarr_format=zarr_format)
    assert copy_all(source, members, shallow=True)[:2] == (len(arrays), 0)
    assert sorted(members) == arrays
    assert copy(source, group_at(None), shallow=True, dry_run=True).left_out == ()


def test_without_attrs_drops_the_attributes_and_nothing_else(zarr_format):
    source = build(MemoryStore(), zarr_format)
    dest = group_at(None, zarr_format=zarr_format)
    copy(source, dest, without_attrs=True)
    assert source.attrs["title"] == "tides"
    assert source["sub/sharded"].attrs == {"unit": "K"}
    for name, found in dest["g"].members(max_depth=None):
        assert found.attrs == {}
        bare = source[name].metadata.with_attributes({})
        assert found.metadata == bare
    assert dest["g"].attrs == {}
    assert np.array_equal(dest["g/sub/sharded"][...], MODEL)
    assert not any(key.endswith(".zattrs") for key in contents(dest.store))
    same = "g/rect/zarr.json" if zarr_format == 3 else "g/rect/.zarray"
    assert dest.store.get(same) == source.store.get(same)  # it had no attributes


def test_a_node_keeps_its_format_unless_told_otherwise():
    source = build(MemoryStore(), 2)
    dest = group_at(None, zarr_format=3)
    copy(source, dest)
    assert below(dest.store, "g") == below(source.store, "g")
    assert np.array_equal(dest["g/rect"][2:], MODEL[2:])


def test_nodes_that_cannot_be_read_are_refused_before_anything_is_written():
    store, there = MemoryStore(), MemoryStore()
    source = build(store)
    dest = group_at(there)
    store.put("g/sub/deeper/zarr.json", b"{")
    before = contents(there)
    with pytest.raises(MetadataError, match=r"cannot copy '/g/sub/deeper' of .* copy_store"):
        copy(source, dest)
    assert contents(there) == before


# -- encoding anew --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": 4},
        {"chunks": 4, "verify": True},
        {"compressors": None},
        {"compressor": "gzip", "verify": True},
        {"dtype": "float64", "verify": True},
        {"fill_value": 3},
        {"attributes": {"new": 1}},
        {"chunk_key_encoding": "v2"},
    ],
    ids=repr,
)
def test_options_encode_arrays_anew(options):
    source, there = build(MemoryStore()), CountingStore()
    dest = group_at(there)
    there.reset()
    del source["words"]
    copied = copy(source, dest, **options)
    arrays = [found for _, found in dest["g"].members(max_depth=None) if isinstance(found, zellige.Array)]
    assert copied[:2] == (NODES[3] - 1, 0)
    documents = sum(len(raw or b"") for key, raw in below(there.inner, "g").items() if is_document(key))
    assert copied.n_bytes_copied == documents + sum(array.nbytes for array in arrays)
    for array in arrays:
        original = source[array.path[2:]]
        assert np.array_equal(array[...], original[...])
        assert array.attrs == options.get("attributes", original.attrs)
        if "chunks" in options and array.ndim:
            assert array.chunks == (4, 4)
        if "dtype" in options:
            assert array.dtype == "float64"
        if "compressors" in options and not array.path.endswith("sharded"):
            assert array.compressors == ()
    assert dest["g"].attrs == source.attrs
    order = written(there)
    first = next(k for k, key in enumerate(order) if is_document(key))
    assert all(map(is_document, order[first:]))
    assert order[-1] == "g/zarr.json"


@pytest.mark.parametrize("to", [2, 3])
@pytest.mark.parametrize("options", [{"chunks": 4}, {"compressors": None}, {"attributes": {}}], ids=repr)
def test_options_give_members_of_the_format_of_the_group(zarr_format, to, options):
    source, dest = build(MemoryStore(), zarr_format)["sub/deeper"], group_at(None, zarr_format=to)
    before = contents(dest.store)
    try:
        zellige.from_array(data=source["point"], zarr_format=to, write_data=False, **options)
    except MetadataError as error:  # then a copy is refused for the same reason
        with pytest.raises(type(error), match=re.escape(str(error))):
            copy(source, dest, **options)
        assert contents(dest.store) == before
    else:
        copy(source, dest, verify=True, **options)
        assert {dest[name].metadata.zarr_format for name in ("deeper", "deeper/point")} == {to}
        assert dest["deeper/point"][()] == 2.5
        assert dest["deeper"].attrs == {"level": 2}


def test_a_hierarchy_can_be_converted_on_the_way(tmp_path):
    source = build(MemoryStore(), 2)
    copied = copy(source, tmp_path, zarr_format=3, verify=True)
    assert copied[:2] == (NODES[2], 0)
    found = zellige.open_group(tmp_path, mode="r")
    assert {node.metadata.zarr_format for _, node in found.members(max_depth=None)} == {3}
    assert not any(key.rpartition("/")[2].startswith(".z") for key in contents(LocalStore(tmp_path)))
    for name, original in source.walk():
        assert found[f"g/{name}"].attrs == original.attrs
        if isinstance(original, zellige.Array):
            assert np.array_equal(found[f"g/{name}"][...], original[...])
    dest = zellige.open_group(tmp_path)
    copy(source, dest, "bare", zarr_format=3, without_attrs=True)
    assert [found.attrs for _, found in [("", dest["bare"]), *dest["bare"].walk()]] == [{}] * NODES[2]
    copy(source["rect"], dest, "rect", without_attrs=True, attributes={"a": 1})
    assert dest["rect"].attrs == {"a": 1}


def test_the_same_layout_is_copied_as_it_is_even_with_options():
    source = build(MemoryStore())["rect"]
    source.store.put("g/rect/c/1/0", b"damaged")
    dest = group_at(None)
    copy(source, dest, attributes={"a": 1}, chunk_key_encoding="v2")
    assert dest.store.get("rect/1.0") == b"damaged"
    with pytest.raises(zellige.errors.CorruptChunkError):
        copy(source, dest, "again", chunks=2)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"chunks": (4, 4, 4)}, ValueError),
        ({"compressors": "no such"}, ValueError),
        ({"no_such_option": 1}, TypeError),
        ({"overwrite": True}, TypeError),
        ({"name": "x", "data": 1}, TypeError),
        ({"shape": (2, 2)}, TypeError),
        ({"if_exists": "ask"}, ValueError),
        ({"progress": 3}, TypeError),
        ({"log": 3}, TypeError),
    ],
    ids=repr,
)
def test_arguments_that_do_not_fit_are_refused_before_the_first_write(options, error):
    source, dest = build(MemoryStore()), group_at(None)
    before = contents(dest.store)
    given = {key: value for key, value in options.items() if key != "name"}
    with pytest.raises(error):
        copy(source, dest, "copy", **given)
    with pytest.raises(error):
        copy_all(source, dest, **options)
    assert contents(dest.store) == before


def test_lossy_values_do_not_pass_the_verification():
    source = zellige.create_array({}, name="a", data=[1.0, 2.3456789], chunks=1)
    dest = group_at(None)
    with pytest.raises(CopyError, match=r"'a/c/1'.*lossy") as caught:
        copy(source, dest, verify=True, filters={"name": "numcodecs.bitround", "configuration": {"keepbits": 3}})
    assert caught.value.key == "a/c/1"
    assert "a" not in dest


# -- what is there already ------------------------------------------------------------------------


def with_old(mode: str, zarr_format: int = 3) -> tuple[zellige.Group, zellige.Group]:
    """A source, and a target where `g` has an array `rect` and an array `other`, and attributes."""
    source, dest = build(MemoryStore(), zarr_format), group_at(None, zarr_format=zarr_format)
    old = dest.create_group("g", attributes={"title": "old", "kept": True})
    old.create_array("rect", data=np.zeros(3), chunks=1, fill_value=9)
    old.create_array("other", data=[1, 2])
    return source, dest


def test_raise(zarr_format):
    source, dest = with_old("raise", zarr_format)
    before = contents(dest.store)
    with pytest.raises(ContainsArrayError, match=r"'/g/rect' .*if_exists="):
        copy(source, dest)
    with pytest.raises(FileExistsError):
        copy(source["rect"], dest["g"], if_exists="raise")
    with pytest.raises(ContainsGroupError, match="there is a group at '/g'"):
        copy(source["rect"], dest, "g")
    with pytest.raises(ContainsArrayError, match="there is an array at '/g/rect'"):
        copy(source, dest["g"], "rect")
    assert contents(dest.store) == before


@pytest.mark.parametrize("mode", ["raise", "replace", "skip", "skip_initialized"])
def test_groups_merge_in_every_mode(mode):
    source, dest = with_old(mode)
    del dest["g/rect"]
    other = below(dest.store, "g/other")
    assert copy(source, dest, if_exists=mode)[:2] == (NODES[3], 0)
    assert dest["g"].attrs == {"title": "tides", "kept": True, "nested": {"a": [1, None]}}
    assert sorted(dest["g"]) == sorted([*source, "other"])
    assert below(dest.store, "g/other") == other
    for name in ("rect", "sub", "empty", "words"):
        assert below(dest.store, f"g/{name}") == below(source.store, f"g/{name}")
    assert copy(source, group_at(None), without_attrs=True)[:2] == (NODES[3], 0)


def test_merging_without_attributes_leaves_those_that_are_there():
    source, dest = with_old("skip")
    copy(source, dest, if_exists="skip", without_attrs=True)
    assert dest["g"].attrs == {"title": "old", "kept": True}


def test_replace(zarr_format):
    source, dest = with_old("replace", zarr_format)
    assert copy(source, dest, if_exists="replace")[:2] == (NODES[zarr_format], 0)
    assert below(dest.store, "g/rect") == below(source.store, "g/rect")  # and no chunk of the old one
    assert dest["g/other"][...].tolist() == [1, 2]
    copy(source["rect"], dest, "g", if_exists="replace")  # an array in place of a group
    assert below(dest.store, "g") == below(source.store, "g/rect")
    copy(source, dest, if_exists="replace")  # and back
    assert below(dest.store, "g") == below(source.store, "g")


def test_skip(zarr_format):
    source, dest = with_old("skip", zarr_format)
    old = below(dest.store, "g/rect")
    lines: list[str] = []
    assert copy(source, dest, if_exists="skip", log=lines.append)[:2] == (NODES[zarr_format] - 1, 1)
    assert below(dest.store, "g/rect") == old
    assert "skip /g/rect (6, 7) int16" in lines
    assert not any(line.startswith("leave out") for line in lines)
    before = contents(dest.store)
    assert copy(source["rect"], dest, "g", if_exists="skip") == (0, 1, 0)
    assert copy(source, dest["g"], "rect", if_exists="skip") == (0, 1, 0)  # not even its members
    assert contents(dest.store) == before


def test_skip_initialized(zarr_format):
    source, dest = with_old("skip_initialized", zarr_format)
    old = below(dest.store, "g/rect")
    dest["g/rect"].resize(5)  # now chunks are missing
    chunks = dest["g/rect"].nchunks_initialized
    assert chunks < dest["g/rect"].nchunks
    dest["g/rect"].resize(3)
    assert below(dest.store, "g/rect") == old
    # All chunks of its own grid, which is another one:
    full = dest["g"].create_array("rect", shape=3, dtype="int8", chunks=1, fill_value=9, overwrite=True)
    full[:] = 1
    assert copy(source["rect"], dest["g"], if_exists="skip_initialized") == (0, 1, 0)
    full[1] = 9  # removes one
    assert full.nchunks_initialized == 2
    assert copy(source["rect"], dest["g"], if_exists="skip_initialized")[:2] == (1, 0)
    assert below(dest.store, "g/rect") == below(source.store, "g/rect")
    # All chunks that the source has; it has not all of its grid:
    assert source["rect"].nchunks_initialized < source["rect"].nchunks
    assert copy(source["rect"], dest["g"], if_exists="skip_initialized") == (0, 1, 0)
    key = next(key for key in contents(dest.store) if key.startswith("g/rect/") and not is_document(key))
    dest.store.delete([key])
    assert copy(source["rect"], dest["g"], if_exists="skip_initialized")[:2] == (1, 0)
    assert below(dest.store, "g/rect") == below(source.store, "g/rect")
    for action in (
        lambda: copy(source["rect"], dest, "g", if_exists="skip_initialized"),
        lambda: copy(source, dest["g"], "rect", if_exists="skip_initialized"),
    ):
        with pytest.raises(FileExistsError):  # nothing of another kind is removed
            action()


@pytest.mark.parametrize("mode", ["replace", "skip", "skip_initialized"])
def test_a_document_that_cannot_be_read_is_something_in_the_way(mode):
    source, dest = build(MemoryStore()), group_at(None)
    dest.store.put("rect/zarr.json", b"{")
    with pytest.raises(ContainsArrayError):
        copy(source["rect"], dest)
    before = contents(dest.store)
    if mode == "skip_initialized":
        with pytest.raises(MetadataError):
            copy(source["rect"], dest, if_exists=mode)
    else:
        assert copy(source["rect"], dest, if_exists=mode)[:2] == ((1, 0) if mode == "replace" else (0, 1))
    assert (contents(dest.store) == before) == (mode != "replace")


@pytest.mark.parametrize("mode", ["raise", "replace", "skip", "skip_initialized"])
def test_keys_that_are_no_node_are_not_removed(mode):
    source, dest = build(MemoryStore()), group_at(None)
    dest.store.put("g/rect/notes", b"of somebody")
    before = contents(dest.store)
    for action in (lambda: copy(source, dest, if_exists=mode), lambda: copy(source["rect"], dest, "g", if_exists=mode)):
        with pytest.raises(NotANodeError, match="'g/rect/notes'"):
            action()
        assert contents(dest.store) == before


# -- what is refused ------------------------------------------------------------------------------


def refuse_all(actions: list[Callable[[], object]], error: Any, match: str, *stores: Store) -> None:
    before = [contents(store) for store in stores]
    for action in actions:
        with pytest.raises(error, match=match):
            action()
        assert [contents(store) for store in stores] == before


@pytest.mark.parametrize("mode", ["raise", "replace", "skip", "skip_initialized"])
@pytest.mark.parametrize("kind", ["memory", "local"])
def test_nothing_is_copied_onto_or_into_itself(kind, mode, tmp_path):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "store")
    source = build(store)
    root = zellige.open_group(store)
    actions = [
        lambda: copy(source, root, if_exists=mode),
        lambda: copy(source, source, if_exists=mode),
        lambda: copy(source, source["sub"], "again", if_exists=mode),
        lambda: copy(source["rect"], source, if_exists=mode),
        lambda: copy(root, source, "x", if_exists=mode),
        lambda: copy_all(root, root, if_exists=mode),
        lambda: copy_all(root, source, if_exists=mode),
        lambda: copy(CountingStore(store), root, "g/sub/x", if_exists=mode),
    ]
    if kind == "local":  # the same place by other ways
        os.symlink(tmp_path / "store/g/sub", tmp_path / "link")
        os.symlink(tmp_path / "store/g/sub", tmp_path / "store/alias")
        actions += [
            lambda: copy(source, tmp_path / "store", if_exists=mode),
            lambda: copy(source["sub"], tmp_path / "store/g", if_exists=mode),
            lambda: copy(tmp_path / "store/g/rect", tmp_path / "store/g", "rect", if_exists=mode),
            lambda: copy(source, zellige.open_group(tmp_path / "link"), "x", if_exists=mode),
            lambda: copy(source, zellige.open_group(store, path="alias"), "x", if_exists=mode),
        ]
    refuse_all(actions, ValueError, "same place or lies below", store)


def test_what_holds_the_source_is_not_replaced():
    store = MemoryStore()
    source = build(store)
    root = zellige.open_group(store)
    source.create_array("sub/sub", data=[1])
    source.create_array("g/rect", data=[2])
    refuse_all(
        [
            lambda: copy(source["rect"], root, "g", if_exists="replace"),
            lambda: copy_all(source["sub"], source, if_exists="replace"),  # its `sub` to where it is itself
            lambda: copy_all(source, root, if_exists="replace"),  # `g/g/rect` to `g/rect`, which is to be copied, too
        ],
        ValueError,
        "cannot be replaced",
        store,
    )
    store.delete(["g/zarr.json"])  # no node any more, but the source lies there
    refuse_all([lambda: copy(root["g/sub"], root, "g", if_exists="replace")], NotANodeError, "'g/", store)


def test_members_may_move_up():
    store = MemoryStore()
    source = build(store)
    assert copy_all(source["sub"], source)[:2] == (3, 0)
    assert below(store, "g/deeper") == below(store, "g/sub/deeper")
    assert below(store, "g/sharded") == below(store, "g/sub/sharded")


def test_groups_above_must_not_be_arrays():
    store, source = MemoryStore(), build(MemoryStore())
    dest = group_at(store)
    dest.create_array("a", data=[1])
    refuse_all(
        [
            lambda: copy(source, dest, "a/b"),
            lambda: copy(source, dest, "a/b/c", if_exists="replace"),
            lambda: copy(source, StorePath(store, "a")),
            lambda: copy(source, StorePath(store, "a/b")),
            lambda: copy_all(source, StorePath(store, "a/b")),
        ],
        ContainsArrayError,
        "'/a' in .* is an array",
        store,
    )
    with pytest.raises(TypeError, match="copy into a group"):
        copy(source, dest["a"])


@pytest.mark.parametrize("name", ["", "/x", "x/", "a//b", "..", "__zellige_x", "zarr.json", "a/../b", "x" * 300])
def test_names_are_checked(name):
    source, dest = build(MemoryStore()), group_at(None)
    place = StorePath(dest.store, "a/__zellige_b")
    actions = [lambda: copy(source, dest, name), lambda: copy(source, place), lambda: copy_all(source, place)]
    refuse_all(actions, NodeNameError, "name", dest.store)


def test_names_of_members_are_checked():
    store, dest = MemoryStore(), group_at(None)
    source = build(store)
    store.put(f"g/{'x' * 300}/zarr.json", store.get("g/empty/zarr.json") or b"")
    refuse_all([lambda: copy(source, dest), lambda: copy_all(source, dest)], NodeNameError, "300", dest.store)


def test_a_root_has_no_name():
    source = build(MemoryStore())
    root = zellige.open_group(source.store)
    with pytest.raises(NodeNameError, match="give name="):
        copy(root, group_at(None))
    dest = group_at(None)
    assert copy(root, dest, "all")[:2] == (NODES[3] + 1, 0)
    assert below(dest.store, "all") == contents(source.store)


def test_sources_that_are_not_there(tmp_path):
    dest = group_at(None)
    gone = dest.create_group("gone")
    del dest["gone"]
    refuse_all(
        [lambda: copy(tmp_path / "absent", dest, "x"), lambda: copy(gone, dest, "x"), lambda: copy_all({}, dest)],
        NodeNotFoundError,
        "there is no array and no group",
        dest.store,
    )
    assert not (tmp_path / "absent").exists()
    with pytest.raises(TypeError, match="has no members"):
        copy_all(zellige.zeros(3), dest)
    with pytest.raises(TypeError):
        copy(np.zeros(3), dest, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_store_for_reading_only_is_refused(dry_run):
    source = build(MemoryStore())
    dest = zellige.open_group(group_at(None).store, mode="r")
    for action in (copy, copy_all):
        with pytest.raises(ReadOnlyError):
            action(source, dest, dry_run=dry_run)
    with pytest.raises(ReadOnlyError):
        copy_store(source.store, dest.store, dry_run=dry_run)
    readable = zellige.open_group(source.store, mode="r")
    assert copy(readable["g"], group_at(None))[:2] == (NODES[3], 0)


# -- dry runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["replace", "skip", "skip_initialized"])
@pytest.mark.parametrize("options", [{}, {"chunks": 3}, {"shallow": True}, {"without_attrs": True}], ids=repr)
def test_a_dry_run_changes_nothing_and_counts(mode, options):
    source, dest = with_old(mode)
    if "chunks" in options:
        del source["words"]
    dest.consolidate_metadata()
    store = CountingStore(dest.store)
    there = zellige.open_group(store)
    store.reset()
    before = contents(dest.store), contents(source.store)
    lines: list[str] = []
    calls: list[Any] = []
    given = {"if_exists": mode, "progress": lambda *call: calls.append(call), **options}
    planned = copy(source, there, dry_run=True, log=lines.append, **given)
    members = copy_all(source, there["g"], dry_run=True, **given)
    assert (contents(dest.store), contents(source.store)) == before
    assert store.keys(*WRITES) == []
    assert calls == []
    assert planned.n_bytes_copied == 0
    assert re.fullmatch(r"dry run: \d+ copied, \d+ skipped", lines.pop())
    logged: list[str] = []
    assert copy(source, there, log=logged.append, **given)[:2] == planned[:2]
    assert logged[:-1] == lines
    assert planned[:2] == (members[0] + 1, members[1])


def test_a_dry_run_makes_no_groups(tmp_path):
    copied = copy(build(MemoryStore()), tmp_path / "to", "a/b", dry_run=True)
    assert copied == (NODES[3], 0, 0)
    assert not (tmp_path / "to").exists()
    with pytest.raises(NodeNameError):
        copy(build(MemoryStore()), tmp_path / "to", "a//b", dry_run=True)


# -- when it goes wrong ---------------------------------------------------------------------------


class Flipping(MemoryStore):
    """A store that damages one key."""

    bad = ""

    def write(self, key: str, value: Any, if_tag: Any = None) -> bool:
        return super().write(key, self._flipped(key, value), if_tag)

    def _flipped(self, key: str, value: Any) -> bytes:
        raw = bytes(value)
        return raw[:-1] + bytes([raw[-1] ^ 1]) if key == self.bad else raw


@pytest.mark.parametrize("bad", ["g/rect/c/1/0", "g/sub/sharded/c/0/0", "g/rect/zarr.json", "g/zarr.json"])
def test_verification_finds_a_damaged_value(bad):
    source, store = build(MemoryStore()), Flipping()
    dest = group_at(store)
    store.bad = bad
    with pytest.raises(CopyError, match=re.escape(repr(bad))) as caught:
        copy(source, dest, verify=True)
    assert caught.value.key == bad
    assert isinstance(caught.value, OSError)
    assert "g" not in dest
    assert store.get(bad) is None
    with pytest.raises(CopyError, match=re.escape(repr(bad))):
        copy_store(source.store, flipping(bad), verify=True)
    assert copy(source, group_at(flipping(bad)), verify=False)[:2] == (NODES[3], 0)  # nobody looked


def flipping(bad: str) -> Flipping:
    store = Flipping()
    store.bad = bad
    return store


def test_verification_finds_damage_in_what_is_encoded_anew():
    source, store = build(MemoryStore())["rect"], flipping("rect/c/1/1")
    with pytest.raises(ValueError, match="'rect/c/1/1'"):  # a checksum finds it first
        copy(source, group_at(store), verify=True, chunks=3)
    assert store.get("rect/zarr.json") is None
    raw = flipping("rect/c/1/1")
    with pytest.raises(CopyError, match="'rect/c/1/1'") as caught:
        copy(source, group_at(raw), verify=True, chunks=3, compressors=None)
    assert caught.value.key == "rect/c/1/1"
    assert raw.get("rect/zarr.json") is None


class OutOfOrderError(Exception):
    """What the store raises in these tests."""


def failing_at(count: int, methods: tuple[str, ...]) -> Callable[[str, str], None]:
    left = [count]
    lock = threading.Lock()

    def before(method: str, key: str) -> None:
        with lock:
            if method in methods:
                left[0] -= 1
                if left[0] == -1:
                    raise OutOfOrderError(key)

    return before


def reachable(store: Store) -> list[str]:
    root = zellige.open_group(store, mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BrokenNodeWarning)
        return [name for name, _ in root.members(max_depth=None)]


@pytest.mark.parametrize("name", ["g", "new/place/g"])
@pytest.mark.parametrize(("zarr_format", "options"), [(2, {}), (3, {}), (3, {"chunks": 4})], ids=repr)
def test_a_copy_that_fails_leaves_no_node_and_can_be_done_again(zarr_format, name, options):
    here = MemoryStore()
    source = build(here, zarr_format)
    if options:
        del source["words"]
    before = contents(here)
    whole = MemoryStore()
    copy(source, group_at(whole, zarr_format=zarr_format), name, **options)
    total, failures = len(below(whole, name)), 0
    for count in range(total + 3):
        there = CountingStore()
        dest = group_at(there, zarr_format=zarr_format)
        there.before = failing_at(count, ("put", "create"))
        try:
            copy(source, dest, name, **options)
        except OutOfOrderError:
            failures += 1
            assert name not in dest
            assert not [path for path in reachable(there.inner) if path.startswith(name)]
        else:
            assert below(there.inner, name) == below(whole, name)
            break
        finally:
            there.before = None
        assert contents(here) == before
        mode = ("raise", "replace", "skip", "skip_initialized")[count % 4]
        assert copy(source, dest, name, if_exists=mode, **options)[1] == 0
        assert below(there.inner, name) == below(whole, name)
    assert failures >= total


@pytest.mark.parametrize("count", [0, 3, 7])
def test_a_source_that_cannot_be_read_stops_the_copy(count):
    here = CountingStore()
    source = build(here)
    dest = group_at(None)
    here.before = failing_at(count, ("get",))
    with pytest.raises(OutOfOrderError):
        copy(source, dest)
    assert "g" not in dest
    assert reachable(dest.store) == []


def test_what_is_left_of_a_copy_with_more_chunks_is_removed():
    source, dest = build(MemoryStore())["rect"], group_at(None)
    copy(source, dest)
    dest.store.put("rect/c/0/0", b"a chunk that the source does not have")
    dest.store.delete(["rect/zarr.json"])
    copy(source, dest, if_exists="skip")
    assert below(dest.store, "rect") == below(source.store, "g/rect")


def test_a_replaced_array_is_gone_when_the_copy_fails_not_half_of_it():
    source, dest = with_old("replace")
    store = CountingStore(dest.store)
    there = zellige.open_group(store)
    store.before = failing_at(1, ("put",))
    with pytest.raises(OutOfOrderError):
        copy(source["rect"], there["g"], if_exists="replace")
    assert "rect" not in dest["g"]
    assert dest["g/other"][...].tolist() == [1, 2]


def test_somebody_else_may_be_quicker():
    source = build(MemoryStore())["rect"]
    store = CountingStore()
    dest = group_at(store)

    def before(method: str, key: str) -> None:
        if method == "create" and key == "rect/zarr.json":
            store.inner.put(key, zellige.zeros(1).store.get("zarr.json") or b"")

    store.before = before
    with pytest.raises(ContainsArrayError):
        copy(source, dest)
    assert dest["rect"].shape == (1,)
    attributes = build(MemoryStore(), 2)["sub/sharded"]
    store = CountingStore()
    dest = group_at(store, zarr_format=2)
    store.before = lambda method, key: store.inner.put(key, b"{}") if method == "create" and "/." in key else None
    with pytest.raises(ConflictError, match="another writer"):
        copy(attributes, dest)


def test_a_group_above_may_be_made_by_somebody_else():
    store = CountingStore()
    dest = group_at(store)

    def before(method: str, key: str) -> None:
        if method == "create" and key == "a/zarr.json":
            store.before = None
            zellige.create_group(store.inner, path="a", attributes={"by": "another"})

    store.before = before
    copy(build(MemoryStore())["rect"], dest, "a/rect")
    assert dest["a"].attrs == {"by": "another"}
    assert dest["a/rect"].shape == (6, 7)


def test_a_chunk_that_is_gone_meanwhile_is_missing_in_the_copy():
    here = CountingStore()
    source = build(here)["rect"]

    def before(method: str, key: str) -> None:
        if method == "get" and key == "g/rect/c/1/0":
            here.inner.delete([key])

    here.before = before
    dest = group_at(None)
    done: list[int] = []
    copied = copy(source, dest, verify=True, progress=lambda count, total, key: done.append(total - count))
    here.before = None
    assert below(dest.store, "rect") == below(here.inner, "g/rect")
    assert copied.n_bytes_copied == sum(len(raw or b"") for raw in below(dest.store, "rect").values())
    assert done[-1] == 0


# -- consolidated metadata ------------------------------------------------------------------------


def check_consolidated(store: Store, path: str = "") -> zellige.Group:
    """Raises if consolidated metadata is not up to date."""
    return zellige.open_consolidated(store, path=path, check=True)


@pytest.mark.parametrize("name", ["g", "a/b"])
@pytest.mark.parametrize("options", [{}, {"without_attrs": True}, {"shallow": True}], ids=repr)
def test_consolidated_metadata_of_the_target_follows(zarr_format, name, options):
    source = build(MemoryStore(), zarr_format)
    store = MemoryStore()
    group_at(store, zarr_format=zarr_format).consolidate_metadata()
    dest = zellige.open_consolidated(store)
    copy(source, dest, name, **options)
    assert name in dest
    assert name in check_consolidated(store)
    copy_all(source, dest, **options)
    copy(source["rect"], dest, name, if_exists="replace", **options)  # in place of the group
    found = check_consolidated(store)
    assert isinstance(found[name], zellige.Array)
    assert "rect" in found
    assert "empty" in found or "shallow" in options


def test_consolidated_metadata_of_groups_below_follows(zarr_format):
    source, dest = with_old("replace", zarr_format)
    dest["g"].consolidate_metadata()
    copy(source, dest, if_exists="replace")
    found = check_consolidated(dest.store, "g")
    assert sorted(found) == sorted([*source, "other"])
    assert found.attrs["title"] == "tides"


def consolidated(zarr_format: int = 3) -> zellige.Group:
    """The family with consolidated metadata; in format 3 one of its arrays is rectilinear."""
    source = build(MemoryStore(), zarr_format)
    with pytest.warns(CompatibilityWarning) if zarr_format == 3 else contextlib.nullcontext():
        return source.consolidate_metadata()


def test_consolidated_metadata_is_copied_with_its_group(zarr_format):
    source = consolidated(zarr_format)
    dest = group_at(None, zarr_format=zarr_format)
    copied = copy(source, dest)
    assert below(dest.store, "g") == below(source.store, "g")
    assert copied.left_out == ()
    assert sorted(check_consolidated(dest.store, "g")) == sorted(source)
    for options in ({"without_attrs": True}, {"shallow": True}):
        copied = copy(source, dest, str(*options), **options)
        assert copied.left_out == ()
        found = check_consolidated(dest.store, str(*options))
        assert len(found) == (len(source) if "shallow" not in options else len(list(source.arrays())))


def test_consolidated_metadata_that_is_made_anew_is_never_out_of_date():
    source = consolidated()
    there = CountingStore()
    dest = group_at(there)
    there.before = failing_at(0, ("replace",))  # which is how it comes into the document
    with pytest.raises(OutOfOrderError):
        copy(source, dest, without_attrs=True)
    assert dest["g"].metadata.consolidated is None
    assert len(dest["g"]) == len(source)


def test_consolidated_metadata_cannot_hold_the_other_format():
    source = build(MemoryStore(), 2)
    store = MemoryStore()
    dest = group_at(store).consolidate_metadata()
    refuse_all([lambda: copy(source, dest)], ValueError, "zarr_format=3", store)
    outer = group_at(None)
    outer.create_group("g").consolidate_metadata()
    refuse_all([lambda: copy(source, outer)], ValueError, "consolidated metadata of '/g'", outer.store)


# -- progress and log -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"chunks": 3}], ids=repr)
def test_progress_counts_every_key_once(options):
    source, dest = build(MemoryStore()), group_at(None)
    if options:
        del source["words"]
    calls: list[tuple[int, int, str]] = []
    absent: list[str] = []

    def progress(done: int, total: int, key: str) -> None:
        calls.append((done, total, key))
        if not dest.store.exists(key):
            absent.append(key)

    copy(source, dest, progress=progress, **options)
    assert len(absent) == (3 if options else 0)  # arrays that are encoded anew get their documents later
    total = len(calls)
    assert [call[:2] for call in calls] == [(k + 1, total) for k in range(total)]
    if options:
        assert {key for _, _, key in calls} == {key for key in contents(dest.store) if is_document(key)} - {"zarr.json"}
        assert total == NODES[3] - 1 + 3  # the arrays twice: their values, and their documents
    else:
        assert sorted(key for _, _, key in calls) == [key for key in contents(dest.store) if key.startswith("g/")]


def test_progress_is_told_by_one_thread_at_a_time():
    source = group_at(None).create_array("a", data=np.arange(40), chunks=1)
    inside, overlaps = threading.Lock(), []

    def progress(done: int, total: int, key: str) -> None:
        if not inside.acquire(blocking=False):
            overlaps.append(key)
            return
        time.sleep(0.001)
        inside.release()

    with zellige.config.set({"threading.max_workers": 4}):
        copy(source, group_at(None), progress=progress)
    assert overlaps == []


def test_progress_can_stop_a_copy():
    def progress(done: int, total: int, key: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    dest = group_at(None)
    with pytest.raises(KeyboardInterrupt):
        copy(build(MemoryStore()), dest, progress=progress)
    assert "g" not in dest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal(monkeypatch):
    monkeypatch.setattr(reporting, "_DELAY", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    source = build(MemoryStore())
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        copy(source, group_at(None), progress=True)
        copy(source, group_at(None), progress=False)
    total = len(below(source.store, "g"))
    last = stream.getvalue().rpartition("\r")[2]
    assert last.startswith(f"copied 100% {'━' * 20}  {total}/{total} keys, ")
    assert last.rstrip().endswith("  g/zarr.json")
    assert last.endswith("\n")
    assert len(last) == 120
    assert stream.getvalue().count("\n") == 1
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    copy(source, group_at(None), progress=True)
    assert sys.stderr.getvalue() == ""


def test_the_log_goes_where_one_wants_it(tmp_path):
    source = build(MemoryStore())
    lines: list[str] = []
    stream = io.StringIO()
    total = sum(len(raw or b"") for raw in below(source.store, "g").values())
    for log in (lines.append, stream, tmp_path / "log", str(tmp_path / "log too")):
        copy(source, group_at(None), log=log)
    assert lines == [
        "copy /g",
        "copy /g/empty",
        "copy /g/rect (6, 7) int16",
        "copy /g/sub",
        "copy /g/sub/deeper",
        "copy /g/sub/deeper/point () float32",
        "copy /g/sub/sharded (6, 7) int16",
        "copy /g/words (3,) string",
        f"all done: 8 copied, 0 skipped, {total:,} bytes copied",
    ]
    text = "\n".join(lines) + "\n"
    assert stream.getvalue() == (tmp_path / "log").read_text() == (tmp_path / "log too").read_text() == text
    copy(source["rect"], group_at(None), "x", log=lines.append)
    assert lines[-2] == "copy /g/rect -> /x (6, 7) int16"


def test_a_log_that_cannot_be_written_is_found_out_first(tmp_path):
    dest = group_at(None)
    with pytest.raises(FileNotFoundError):
        copy(build(MemoryStore()), dest, log=tmp_path / "absent/log")
    assert list(dest) == []


# -- all members ----------------------------------------------------------------------------------


def test_copy_all(stores, zarr_format):
    here, there = stores
    source = build(here, zarr_format)
    dest = zellige.open_group(there, path="into", zarr_format=zarr_format, attributes={"mine": 1})
    copied = copy_all(source, dest)
    members = {key: raw for key, raw in below(here, "g").items() if "/" in key}
    mine = {key: raw for key, raw in below(there, "into").items() if "/" in key}
    assert mine == members
    assert copied == (NODES[zarr_format] - 1, 0, sum(len(raw or b"") for raw in members.values()))
    assert copied.left_out == ()
    assert dest.attrs == {"mine": 1}
    with pytest.raises(FileExistsError):
        copy_all(source, dest)
    assert copy_all(source, dest, if_exists="skip")[1] == len([n for _, n in source.walk() if hasattr(n, "shape")])


def test_copy_all_asks_once_what_is_there():
    source, there = build(MemoryStore()), CountingStore()
    dest = group_at(there)
    there.reset()
    copy_all(source, dest)
    assert there.keys("list", "list_dir") == [""]
    there.reset()
    assert copy_all(source, dest, if_exists="skip").n_skipped == 4
    assert sorted(there.keys("list", "list_dir")) == sorted(["", *(f"{name}/" for name in source)])


def test_copy_all_makes_the_group(tmp_path, zarr_format):
    source = build(MemoryStore(), zarr_format)
    copy_all(source, tmp_path / "to")
    assert sorted(zellige.open_group(tmp_path / "to", mode="r")) == sorted(source)
    assert copy_all(source["empty"], tmp_path / "nothing") == (0, 0, 0)
    assert list(zellige.open_group(tmp_path / "nothing", mode="r")) == []


# -- keys -----------------------------------------------------------------------------------------


def test_copy_store(stores, zarr_format):
    here, there = stores
    build(here, zarr_format)
    here.put("notes.txt", b"whatever")
    before = contents(here)
    copied = copy_store(here, there, dest_path="/copy/")
    assert below(there, "copy") == before
    assert copied == (len(before), 0, sum(len(raw or b"") for raw in before.values()))
    part = copy_store(here, there, "g/sub", "part")
    assert below(there, "part") == below(here, "g/sub")
    assert part[:2] == (len(below(here, "g/sub")), 0)


def test_copy_store_reads_once_and_writes_documents_last(zarr_format):
    here, there = CountingStore(), CountingStore()
    build(here, zarr_format)
    here.reset()
    copy_store(here, there, verify=True)
    keys = sorted(contents(here.inner))
    assert sorted(here.keys("get")) == sorted(written(there)) == keys
    assert sorted(there.keys("get")) == sorted([*keys, node.UNFINISHED])
    kinds = [is_document(key) for key in written(there)]
    assert kinds == sorted(kinds)
    assert len(set(kinds)) == 2
    assert written(there)[-1] in MAIN


FILTERS: list[tuple[dict[str, Any], Callable[[str], bool]]] = [
    ({"excludes": "/c/"}, lambda key: "/c/" not in key),
    ({"excludes": ["RECT", "WORDS"], "flags": re.IGNORECASE}, lambda key: "rect" not in key and "words" not in key),
    ({"excludes": "RECT"}, lambda key: True),
    ({"excludes": "", "includes": ["rect", r"^zarr\.json$"]}, lambda key: "rect" in key or key == "zarr.json"),
    ({"includes": "rect"}, lambda key: True),
    ({"excludes": "g", "includes": "zarr"}, lambda key: "zarr" in key),
]


@pytest.mark.parametrize(("options", "wanted"), FILTERS, ids=[repr(options) for options, _ in FILTERS])
def test_copy_store_filters_keys(options, wanted):
    source, there = build(MemoryStore()).store, MemoryStore()
    copied = copy_store(source, there, **options)
    assert contents(there) == {key: raw for key, raw in contents(source).items() if wanted(key)}
    assert copied[:2] == (len(contents(there)), 0)
    with pytest.raises(re.error):
        copy_store(source, there, excludes="(")


def test_copy_store_and_keys_that_are_there():
    source, there = build(MemoryStore()).store, MemoryStore()
    there.put("g/rect/c/1/0", b"old")
    before, total = contents(there), len(contents(source))
    with pytest.raises(CopyError, match="'g/rect/c/1/0'") as caught:
        copy_store(source, there)
    assert caught.value.key == "g/rect/c/1/0"
    with pytest.raises(ValueError, match="if_exists"):
        copy_store(source, there, if_exists="skip_initialized")  # type: ignore[arg-type]
    lines: list[str] = []
    assert copy_store(source, there, if_exists="skip", dry_run=True, log=lines.append) == (total - 1, 1, 0)
    assert contents(there) == before
    assert lines[0] == "skip g/rect/c/1/0"
    assert lines[-1] == f"dry run: {total - 1} copied, 1 skipped"
    assert copy_store(source, there, if_exists="skip")[:2] == (total - 1, 1)
    assert there.get("g/rect/c/1/0") == b"old"
    assert copy_store(source, there, if_exists="replace")[:2] == (total, 0)
    assert contents(there) == contents(source)


OLDER: dict[str, Callable[[Store], Any]] = {
    "the same": lambda s: zellige.create_array(s, name="a", data=np.full(8, 9), chunks=2),
    "fewer dimensions": lambda s: zellige.create_array(s, name="a", data=np.full(8, 9), chunks=1),
    "more dimensions": lambda s: zellige.create_array(s, name="a", data=np.full((4, 4, 2), 9), chunks=1),
    "other names": lambda s: zellige.create_array(
        s, name="a", data=np.full((8, 2), 9), chunks=1, chunk_key_encoding={"name": "default", "separator": "."}
    ),
    "format 2": lambda s: zellige.create_array(
        s, name="a", data=np.full((8, 2), 9), chunks=2, zarr_format=2, attributes={"old": 1}
    ),
    "a lost document": lambda s: (
        zellige.create_array(s, name="a", data=np.full((8, 2), 9), chunks=1),
        s.delete(["a/zarr.json"]),
    ),
}


@pytest.mark.parametrize("place", ["memory", "local", "zip"])
@pytest.mark.parametrize("older", OLDER)
def test_copy_store_replaces_nodes_with_all_their_chunks_and_nothing_else(older, place, tmp_path):
    source, values = MemoryStore(), np.zeros((8, 2), int)
    zellige.open_group(source)
    values[:2] = 1
    zellige.create_array(source, name="a", data=values, chunks=1, config={"write_empty_chunks": False})
    there: Any = {"memory": MemoryStore(), "local": tmp_path / "x.zarr", "zip": tmp_path / "x.zip"}[place]
    with zellige.storage.opened(there) as target:
        zellige.open_group(target)
        OLDER[older](target.store)
        zellige.create_array(target, name="a_too", data=np.full((8, 2), 7), chunks=1)
        target.store.put("a/notes.txt", b"mine")
        target.store.put("a_too/notes.txt", b"mine")
    copied = copy_store(source, there, if_exists="replace", verify=True)
    assert copied.n_copied == len(contents(source))
    with zellige.storage.opened(there) as target:
        assert np.array_equal(zellige.load(target, path="a"), values)
        assert (zellige.load(target, path="a_too") == 7).all()
        found = contents(target.store)
        assert found.pop("a/notes.txt") == found.pop("a_too/notes.txt") == b"mine"
        assert {key: raw for key, raw in found.items() if not key.startswith("a_too/")} == contents(source)


def test_copy_store_replaces_only_the_keys_that_it_is_about():
    source, there = MemoryStore(), MemoryStore()
    for store, value in ((source, 1), (there, 9)):
        zellige.create_array(store, name="a", data=np.full(4, value), chunks=2, attributes={"value": value})
    source.delete(["a/c/1"])
    copy_store(source, there, if_exists="replace", excludes="/c/")
    a = zellige.open_array(there, path="a")
    assert a[:].tolist() == [9, 9, 9, 9]
    assert a.attrs["value"] == 1
    copy_store(source, there, if_exists="replace", excludes="c/0")
    assert a[:].tolist() == [9, 9, 0, 0]


def test_copy_store_refuses_keys_that_are_read_and_written(tmp_path):
    for store in (MemoryStore(), LocalStore(tmp_path)):
        build(store)
        zellige.open_group(store).create_group("g/g")
        again = LocalStore(tmp_path) if isinstance(store, LocalStore) else store
        for paths in (("", ""), ("", "g"), ("g", "")):
            before = contents(store)
            with pytest.raises(ValueError, match="both read and overwritten"):
                copy_store(store, again, *paths, if_exists="replace")
            assert contents(store) == before
        copied = copy_store(store, again, "", "backup")
        assert below(store, "backup") == before
        assert copied.n_copied == len(before)
    with pytest.raises(StoreKeyError):
        copy_store(MemoryStore({"a": b""}), MemoryStore(), dest_path="../x")


@pytest.mark.parametrize("options", [{}, {"dry_run": True}, {"if_exists": "replace"}])
def test_copy_store_of_nothing_is_refused_before_the_target_is_touched(options, tmp_path):
    there = LocalStore(tmp_path / "there.zarr")
    build(there)
    (tmp_path / "empty.zarr").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for source, path in ((tmp_path / "typo.zarr", ""), (tmp_path / "empty.zarr", ""), (there, "typo"), ({}, "")):
        for dest in ("backup.zarr", "backup.zip"):
            with pytest.raises(NodeNotFoundError, match=rf"no array and no group at '/{path}'.*check source"):
                copy_store(source, tmp_path / dest, path, **options)
    assert sorted(tmp_path.rglob("*")) == before
    assert copy_store(there, {}, excludes=".").n_copied == 0  # who leaves all out has asked for that


def test_copy_store_progress_and_log():
    source = build(MemoryStore()).store
    lines: list[str] = []
    calls: list[tuple[int, int, str]] = []
    copied = copy_store(source, {}, dest_path="x", log=lines.append, progress=lambda *call: calls.append(call))
    total = len(contents(source))
    assert [call[:2] for call in calls] == [(k + 1, total) for k in range(total)]
    assert {key for _, _, key in calls} == {f"x/{key}" for key in contents(source)}
    assert len(lines) == total + 1
    assert lines[-2] == "copy zarr.json -> x/zarr.json"
    assert lines[-1] == f"all done: {total} copied, 0 skipped, {copied.n_bytes_copied:,} bytes copied"


# -- moving ---------------------------------------------------------------------------------------


def test_moving_by_copying_writes_documents_last(zarr_format):
    store = CountingStore()
    source = build(store, zarr_format)
    before = below(store.inner, "g")
    store.reset()
    zellige.open_group(store).move("g", "moved")
    assert source.path == "g"
    assert below(store.inner, "moved") == before
    assert below(store.inner, "g") == {}
    copied = [key for key in written(store) if key.startswith("moved/")]
    kinds = [is_document(key) for key in copied]
    assert kinds == sorted(kinds)
    assert copied[-1] in {f"moved/{name}" for name in MAIN}


def test_the_order_of_copies_puts_documents_last():
    keys = ["zarr.json", "a/.zattrs", "a/.zarray", "a/b/zarr.json", "a/b/c/0", "a/0", "x"]
    batches = list(node.copy_order(keys))
    assert batches == [["a/b/c/0", "a/0", "x"], ["a/b/zarr.json"], ["a/.zattrs"], ["a/.zarray"], ["zarr.json"]]
    assert list(node.copy_order([])) == []


def test_the_result_is_a_tuple_of_three():
    copied, skipped, nbytes = result = copy(build(MemoryStore()), group_at(None))
    assert isinstance(result, Copied)
    assert result == (copied, skipped, nbytes)
    assert result._fields == ("n_copied", "n_skipped", "n_bytes_copied")
    assert repr(result) == f"Copied(n_copied=8, n_skipped=0, n_bytes_copied={nbytes})"
