"""`validate` finds what was broken on purpose, and nothing else; `repair` and `vacuum` mend it."""

from __future__ import annotations

import errno
import json
import os
import shutil

import numpy as np
import pytest

import zellige
from counting_store import WRITES, CountingStore
from zellige.errors import CompatibilityWarning, CorruptChunkError, NodeNotFoundError, ReadOnlyError
from zellige.nodes import node
from zellige.stores import files
from zellige.tools.validate import QUARANTINE


@pytest.fixture
def store():
    """A tree with arrays of every kind, all whole."""
    store = zellige.MemoryStore()
    root = zellige.group(store, attributes={"title": "all kinds"})
    values = np.arange(1, 61).reshape(6, 10)
    root.create_array("regular", data=values, chunks=(2, 5))
    root.create_array("months/uneven", data=values, chunks=([1, 5], [3, 3, 4]))
    root.create_array("sharded", data=values, chunks=(2, 5), shards=(6, 10))
    root.create_array("plain", data=values, chunks=(3, 10), compressors=None)
    zellige.group(store, path="old", zarr_format=2).create_array("a", data=values, chunks=(4, 10))
    return store


def found(store, **options):
    return [(one.kind, one.key) for one in zellige.validate(store, **options).findings]


@pytest.mark.parametrize("deep", [False, True])
def test_a_whole_tree_has_no_findings(store, deep):
    report = zellige.validate(store, deep=deep)
    assert report.findings == ()
    assert report.ok
    assert (report.groups, report.arrays, report.chunks) == (3, 5, 9 + 6 + 1 + 2 - 3 + 2)


def test_nothing_is_written(store):
    counting = CountingStore(store)
    zellige.validate(counting, deep=True)
    assert not counting.made(*WRITES)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("regular/zarr.json", b"{", "document"),
        ("regular/zarr.json", b'{"zarr_format": 3, "node_type": "array"}', "document"),
        ("old/a/.zarray", b"[]", "document"),
        ("regular/c/0/1", b"damaged", "chunk"),
        ("months/uneven/c/1/2", b"", "chunk"),
        ("sharded/c/0/0", b"short", "index"),
        ("old/a/0.0", b"damaged", "chunk"),
        ("regular/c/9/0", b"anything", "outside"),
        ("README.txt", b"hello", "stray"),
        ("regular/notes.md", b"hello", "stray"),
        ("lost/.zattrs", b"{}", "stray"),
        ("regular/" + node.PENDING, b"", "leftover"),
    ],
)
def test_each_kind_of_damage_is_found_and_nothing_else(store, key, value, kind):
    store.put(key, value)
    stray = {"stray"} if kind == "document" else set()  # the chunks of an array that is none any more
    others = [one for one in found(store, deep=True) if one != (kind, key)]
    assert (kind, key) in found(store, deep=True)
    assert {name for name, _ in others} <= stray


def test_sizes_that_must_be_so_are_compared_without_reading(store):
    store.put("plain/c/0/0", b"12345")
    assert found(store) == [("chunk", "plain/c/0/0")]
    assert "5 bytes, 240 are expected" in zellige.validate(store).findings[0].message


def test_a_damaged_inner_chunk_is_found_by_decoding(store):
    raw = bytearray(store.get("sharded/c/0/0"))
    raw[20] ^= 255
    store.put("sharded/c/0/0", bytes(raw))
    assert found(store) == []
    assert found(store, deep=True) == [("chunk", "sharded/c/0/0")]


def _directory(path):
    path.mkdir()


def _full_directory(path):
    path.mkdir()
    (path / "notes.txt").write_bytes(b"something")


def _link_out(path):
    outside = path.parents[len(path.parts) - path.parts.index("x.zarr") - 1].parent / "outside"
    outside.write_bytes(b"values")
    path.symlink_to(outside)


def _link_to_nothing(path):
    path.symlink_to("nothing")


OBSTACLES = {
    "an empty directory": (_directory, "directory"),
    "a directory with something in it": (_full_directory, "directory"),
    "a FIFO": (os.mkfifo, "no regular file"),
    "a link out of the store": (_link_out, "link"),
    "a link to nothing": (_link_to_nothing, "link"),
}


@pytest.fixture
def folder(tmp_path):
    """An array of format 3, with keys of two kinds, and one of format 2, in a directory."""
    root = zellige.create_group(tmp_path / "x.zarr")
    values = np.arange(1, 61).reshape(6, 10)
    root.create_array("deep", data=values, chunks=(2, 5))
    root.create_array("flat", data=values[0], chunks=5, compressors=None)
    zellige.create_array(tmp_path / "x.zarr", name="old", data=values, chunks=(3, 10), zarr_format=2)
    return tmp_path / "x.zarr"


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("key", ["deep/c/1/1", "flat/c/1", "old/1.0"])
@pytest.mark.parametrize("what", OBSTACLES)
def test_what_is_no_file_in_the_place_of_a_chunk_is_damage(folder, what, key, deep):
    make, word = OBSTACLES[what]
    (folder / key).unlink()
    make(folder / key)
    report = zellige.validate(folder, deep=deep)
    errors = [one for one in report.findings if one.level == "error"]
    assert [(one.kind, one.key) for one in errors] == [("chunk", key)]
    assert word in errors[0].message
    assert not report.ok
    assert not [one for one in report.findings if one.kind == "missing"], "what is damaged is not missing as well"
    done = zellige.repair(folder, dry_run=False)
    assert key in [finding.key for finding in done.left], "nothing is removed that is no value"
    assert os.path.lexists(folder / key)


@pytest.mark.parametrize("what", OBSTACLES)
def test_what_is_no_file_in_the_place_of_a_document_is_damage(folder, what):
    make, word = OBSTACLES[what]
    for key in ("flat/zarr.json", "old/.zarray"):
        (folder / key).unlink()
        make(folder / key)
        found = [(one.kind, one.level) for one in zellige.validate(folder).findings if one.key == key]
        assert found == [("document", "error")]
    alone = zellige.validate(folder / "flat")
    assert [one.key for one in alone.findings if one.kind == "document"] == ["zarr.json"]
    assert word in next(one.message for one in alone.findings if one.kind == "document")


def test_a_file_in_the_place_of_the_directory_of_chunks_is_damage(folder):
    for chunk in (folder / "deep/c/1").iterdir():
        chunk.unlink()
    (folder / "deep/c/1").rmdir()
    (folder / "deep/c/1").write_bytes(b"")
    found = [(one.kind, one.level, one.key) for one in zellige.validate(folder).findings]
    assert ("chunk", "error", "deep/c/1") in found


def test_directories_and_links_within_the_store_are_no_damage(folder):
    (folder / "empty").mkdir()
    (folder / "flat/c/more").mkdir()
    (folder / "flat/c/1").rename(folder / "flat/elsewhere")
    (folder / "flat/c/1").symlink_to("../elsewhere")
    assert [(one.kind, one.key) for one in zellige.validate(folder, deep=True).findings] == [
        ("stray", "flat/elsewhere")
    ]


@pytest.mark.parametrize("deep", [False, True])
def test_a_chunk_that_may_not_be_read_is_named(folder, deep, monkeypatch):
    """Whoever runs the tests may be root, who reads everything: so the calls refuse."""
    refused = [str(folder / "deep/c/0/0"), str(folder / "flat/c/0"), str(folder / "old/.zarray")]
    access, opened = os.access, os.open

    def may(path, mode, **options):
        return os.fspath(path) not in refused and access(path, mode, **options)

    def try_open(path, *given, **options):
        if path in refused:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *given, **options)

    monkeypatch.setattr(os, "access", may)
    monkeypatch.setattr(os, "open", try_open)
    found = [(one.kind, one.key) for one in zellige.validate(folder, deep=deep).findings if one.level == "error"]
    assert found == [("chunk", "deep/c/0/0"), ("chunk", "flat/c/0"), ("document", "old/.zarray")]


def test_missing_chunks_are_a_note(store):
    store.delete(["regular/c/1/0"])
    report = zellige.validate(store)
    assert [(one.kind, one.key, one.coords) for one in report.findings] == [("missing", "regular/c/1/0", (1, 0))]
    assert report.ok
    assert "1 of 6 chunks" in report.findings[0].message


def test_consolidated_metadata_that_lags_behind_is_found_and_mended(store):
    with pytest.warns(CompatibilityWarning):
        zellige.consolidate_metadata(store, "months")
    zellige.consolidate_metadata(store, "old", zarr_format=2)
    assert found(store) == []
    content = json.loads(store.get("months/uneven/zarr.json"))
    store.put("months/uneven/zarr.json", json.dumps({**content, "attributes": {"a": 1}}).encode())
    store.put("old/a/.zattrs", b'{"a": 1}')
    assert [kind for kind, _ in found(store)] == ["consolidated"] * 2
    zellige.repair(store, dry_run=False)
    assert found(store) == []


def test_below_a_path_only_that_is_looked_at(store):
    store.put("months/uneven/c/0/0", b"damaged")
    assert found(store, path="months", deep=True) == [("chunk", "months/uneven/c/0/0")]
    assert found(store, path="regular", deep=True) == []
    with pytest.raises(NodeNotFoundError, match="nowhere"):
        zellige.validate(store, "nowhere")


def test_a_report_reads_well(store):
    store.put("regular/c/0/0", b"damaged")
    words = str(zellige.validate(store, deep=True))
    assert words.startswith("error: chunk regular/c/0/0: zstd")
    assert words.endswith("3 groups, 5 arrays, 17 chunks decoded: 1 error, 0 warnings")


# -- repair ---------------------------------------------------------------------------------------


def snapshot(store):
    return {key: store.get(key) for key in store.list()}


def test_a_dry_run_changes_nothing_and_tells_the_same(store):
    store.put("regular/c/0/0", b"damaged")
    store.put("plain/c/7/7", b"beyond")
    before = snapshot(store)
    would = zellige.repair(store)
    assert snapshot(store) == before
    assert would.dry_run
    assert zellige.repair(store, dry_run=False).actions == would.actions


def test_damaged_chunks_are_put_aside_and_read_as_fill(store):
    store.put("regular/c/0/0", b"damaged")
    with pytest.raises(CorruptChunkError):
        zellige.open(store)["regular"][...]
    done = zellige.repair(store, dry_run=False)
    assert [(what, one.key) for what, one in done.actions] == [("put aside", "regular/c/0/0")]
    assert store.get(f"{QUARANTINE}/regular/c/0/0") == b"damaged"
    assert not zellige.open(store)["regular"][:2, :5].any()
    assert zellige.validate(store, deep=True).ok
    assert zellige.vacuum(store, quarantine=True).actions == ()
    assert not [key for key in store.list() if QUARANTINE in key]


def test_damaged_chunks_may_be_dropped(store):
    store.put("sharded/c/0/0", b"damaged")
    assert zellige.repair(store, dry_run=False, drop=True).actions[0][0] == "removed"
    assert not [key for key in store.list() if QUARANTINE in key]


def test_stray_keys_stay_unless_asked_for(store):
    store.put("README.txt", b"hello")
    done = zellige.repair(store, dry_run=False)
    assert [(what, one.key) for what, one in done.actions] == [("left", "README.txt")]
    assert store.get("README.txt") == b"hello"
    zellige.repair(store, dry_run=False, stray=True)
    assert store.get(f"{QUARANTINE}/README.txt") == b"hello"


def test_a_broken_document_is_named_and_its_chunks_stay(store):
    store.put("regular/zarr.json", b"{")
    before = snapshot(store)
    chunks = sorted(key for key in before if key.startswith("regular/c/"))
    for stray in (False, True):
        done = zellige.repair(store, dry_run=False, stray=stray)
        assert [(what, one.key) for what, one in done.actions] == [
            ("left", key) for key in [*chunks, "regular/zarr.json"]
        ]
        assert {one.path for one in done.left} == {"regular"}
        assert snapshot(store) == before


@pytest.mark.parametrize("deep", [False, True])
def test_chunks_beyond_the_end_are_put_aside_and_removed_if_asked_for(store, deep):
    """With a damaged shape they are good data."""
    content = json.loads(store.get("regular/zarr.json"))
    store.put("regular/zarr.json", json.dumps({**content, "shape": [2, 10]}).encode())
    beyond = {key: store.get(key) for key in store.list("regular/c/") if not key.startswith("regular/c/0/")}
    done = zellige.repair(store, dry_run=False, deep=deep)
    assert [(what, one.key) for what, one in done.actions] == [("put aside", key) for key in sorted(beyond)]
    assert {key: store.get(f"{QUARANTINE}/{key}") for key in beyond} == beyond
    for key, value in beyond.items():
        store.put(key, value)
    assert {what for what, _ in zellige.repair(store, dry_run=False, drop=True).actions} == {"removed"}


def test_what_was_put_aside_before_is_kept(store):
    for value in (b"first", b"second", b"first", b"third"):
        store.put("regular/c/0/0", value)
        zellige.repair(store, dry_run=False)
    kept = [store.get(key) for key in sorted(store.list(f"{QUARANTINE}/"))]
    assert kept == [b"first", b"second", b"third"]


# -- lost documents -------------------------------------------------------------------------------


@pytest.fixture(params=[3, 2])
def consolidated(request):
    """A tree with consolidated metadata at the root, of both formats."""
    root = zellige.create_group(zellige.MemoryStore(), zarr_format=request.param, attributes={"title": "all"})
    root.create_group("g", attributes={"kind": "group"})
    root.create_array("g/a", data=np.arange(1, 61).reshape(6, 10), chunks=(2, 5), attributes={"unit": "K"})
    root.create_array("b", data=np.arange(1, 5), chunks=2)
    zellige.consolidate_metadata(root.store, zarr_format=request.param)
    return root.store


def names(store):
    return ("zarr.json", "zarr.json") if store.exists("zarr.json") else (".zarray", ".zgroup")


def damage(store, key, how):
    """Damage a document, and return what a repair must put aside."""
    if how == "missing":
        store.delete([key])
        return []
    store.put(key, how)
    return [(f"{QUARANTINE}/{key}", how)]


@pytest.mark.parametrize("how", ["missing", b"{", b"", b'{"zarr_format": 7}'])
@pytest.mark.parametrize("path", ["g/a", "b", "g"])
def test_a_lost_document_comes_back_from_consolidated_metadata(consolidated, path, how):
    """The consolidated metadata was made anew without the member, so that nothing could read it any more."""
    before = snapshot(consolidated)
    key = f"{path}/{names(consolidated)[path == 'g']}"
    aside = damage(consolidated, key, how)
    report = zellige.validate(consolidated, deep=True)
    assert [(one.level, one.kind, one.key) for one in report.findings] == [("error", "document", key)]
    assert "repair restores it from the consolidated metadata" in report.findings[0].message
    would = zellige.repair(consolidated)
    assert [what for what, _ in would.actions] == ["mended"]
    assert zellige.repair(consolidated, dry_run=False).actions == would.actions
    after = snapshot(consolidated)
    assert json.loads(after.pop(key)) == json.loads(before.pop(key))
    assert after == before | dict(aside)
    assert zellige.validate(consolidated, deep=True).findings == ()


def test_several_documents_that_are_lost_come_back_at_once(consolidated):
    array, group = names(consolidated)
    for key in (f"g/{group}", f"g/a/{array}", f"b/{array}"):
        consolidated.put(key, b"{")
    consolidated.put("b/c/9" if array == "zarr.json" else "b/9", b"beyond")
    zellige.repair(consolidated, dry_run=False)
    assert zellige.validate(consolidated, deep=True).findings == ()
    root = zellige.open_group(consolidated, use_consolidated=False)
    assert sorted(name for name, _ in root.members(None)) == ["b", "g", "g/a"]
    assert root["g/a"].attrs["unit"] == "K"
    assert root["b"][:].tolist() == [1, 2, 3, 4]


def test_damaged_attributes_of_format_2_are_named_and_come_back():
    store = zellige.MemoryStore()
    root = zellige.create_group(store, zarr_format=2, attributes={"title": "all"})
    root.create_array("a", data=[1, 2], attributes={"unit": "K"})
    for value in (b"{", b"[]"):
        for key in (".zattrs", "a/.zattrs"):
            store.put(key, value)
        assert found(store) == [("document", ".zattrs"), ("document", "a/.zattrs"), ("stray", "a/0")]
    zellige.create_group(store, zarr_format=2, overwrite=True, attributes={"title": "all"})
    zellige.open_group(store).create_array("a", data=[1, 2], attributes={"unit": "K"})
    zellige.consolidate_metadata(store, zarr_format=2)
    for key in (".zattrs", "a/.zattrs"):
        store.put(key, b"{")
    assert found(store) == [("document", ".zattrs"), ("document", "a/.zattrs")]
    zellige.repair(store, dry_run=False)
    assert found(store) == []
    opened = zellige.open_group(store, use_consolidated=False)
    assert (opened.attrs["title"], opened["a"].attrs["unit"]) == ("all", "K")


def test_the_document_of_a_group_of_format_2_comes_back_from_its_own_consolidated_metadata():
    store = zellige.MemoryStore()
    zellige.create_group(store, zarr_format=2, attributes={"title": "all"}).create_array("a", data=[1, 2])
    zellige.consolidate_metadata(store, zarr_format=2)
    store.delete([".zgroup"])
    store.delete(["a/.zarray"])
    assert found(store) == [("document", ".zgroup"), ("document", "a/.zarray")]
    zellige.repair(store, dry_run=False)
    assert zellige.open_group(store, use_consolidated=False)["a"][:].tolist() == [1, 2]


def test_a_member_that_was_removed_is_not_restored(consolidated):
    for key in list(consolidated.list("b/")):
        consolidated.delete([key])
    assert [kind for kind, _ in found(consolidated)] == ["consolidated"]
    before = snapshot(consolidated)
    zellige.repair(consolidated, dry_run=False)
    assert found(consolidated) == []
    assert sorted(zellige.open_group(consolidated)) == ["g"]
    holder = "zarr.json" if consolidated.exists("zarr.json") else ".zmetadata"
    assert consolidated.get(f"{QUARANTINE}/{holder}") == before[holder], "nothing is lost that was written over"


def test_an_entry_is_kept_while_chunks_of_a_member_are_there_that_nothing_else_knows(consolidated):
    holder = "zarr.json" if consolidated.exists("zarr.json") else ".zmetadata"
    content = json.loads(consolidated.get(holder))
    block = content["consolidated_metadata"]["metadata"] if holder == "zarr.json" else content["metadata"]
    key = "b" if holder == "zarr.json" else "b/.zarray"
    block[key]["shape"] = "unknown"
    consolidated.put(holder, json.dumps(content).encode())
    consolidated.put(f"b/{names(consolidated)[0]}", b"{")
    before = snapshot(consolidated)
    done = zellige.repair(consolidated, dry_run=False)
    assert {what for what, _ in done.actions} == {"left"}
    assert snapshot(consolidated) == before


def edit(store, key, **fields):
    """Change fields of a document."""
    store.put(key, json.dumps({**json.loads(store.get(key)), **fields}).encode())


def values_seen(store):
    """What readers of consolidated metadata read."""
    return {name: array[...].tolist() for name, array in zellige.open_group(store).members(None) if "b" in name}


@pytest.fixture(params=[3, 2])
def dataset(request):
    """Two arrays of one dimension with consolidated metadata, whose chunks are all there."""
    root = zellige.create_group(zellige.MemoryStore(), zarr_format=request.param)
    for name in ("b1", "b2"):
        root.create_array(name, data=np.arange(1.0, 11.0), chunks=4, dimension_names=["x"])
    zellige.consolidate_metadata(root.store, zarr_format=request.param)
    return root.store


def main_of(store, path="b1"):
    return f"{path}/{'zarr.json' if store.exists('zarr.json') else '.zarray'}"


def shorter(store):
    edit(store, main_of(store), shape=[4])


def of_another_type(store):
    edit(store, main_of(store), **({"data_type": "float32"} if store.exists("zarr.json") else {"dtype": "<f4"}))


def with_a_damaged_codec(store):
    raw = store.get(main_of(store))
    store.put(main_of(store), raw.replace(b'"zstd"', b'"zs!d"'))


def with_other_chunks(store):
    grid = {"name": "regular", "configuration": {"chunk_shape": [5]}}
    edit(store, main_of(store), **({"chunk_grid": grid} if store.exists("zarr.json") else {"chunks": [5]}))


@pytest.mark.parametrize("damage", [shorter, of_another_type, with_a_damaged_codec, with_other_chunks])
def test_a_document_by_which_chunks_cannot_be_read_comes_back_from_consolidated_metadata(dataset, damage):
    """Good chunks were put aside, and the consolidated metadata that could read them was made anew."""
    before = snapshot(dataset)
    damage(dataset)
    wrong, key = dataset.get(main_of(dataset)), main_of(dataset)
    assert values_seen(dataset)["b1"] == list(range(1, 11))
    for deep in (False, True):
        report = zellige.validate(dataset, deep=deep)
        assert [(one.level, one.kind, one.key) for one in report.findings] == [("error", "document", key)]
        assert "repair restores it from the consolidated metadata of '/'" in report.findings[0].message
    damaged = snapshot(dataset)
    zellige.vacuum(dataset)
    assert snapshot(dataset) == damaged, "chunks that readers see are not beyond the end"
    assert [what for what, _ in zellige.repair(dataset, dry_run=False).actions] == ["mended"]
    after = snapshot(dataset)
    assert json.loads(after.pop(key)) == json.loads(before.pop(key))
    assert after == before | {f"{QUARANTINE}/{key}": wrong}
    assert zellige.validate(dataset, deep=True).findings == ()


def made_anew_with_another_type(store):
    zellige.create_array(
        store, name="b1", data=np.arange(10, dtype="f4"), chunks=4, zarr_format=form_of(store), overwrite=True
    )


def made_shorter_with_all_its_chunks(store):
    zellige.open_array(store, path="b1").resize(4)


def form_of(store):
    return 3 if store.exists("zarr.json") else 2


@pytest.mark.parametrize("change", [made_anew_with_another_type, made_shorter_with_all_its_chunks])
def test_a_document_that_the_chunks_agree_with_counts(dataset, change):
    """Another program has changed the array, and has not consolidated again."""
    change(dataset)
    seen = zellige.open_array(dataset, path="b1")[:].tolist()
    assert {one.kind for one in zellige.validate(dataset, deep=True).findings} <= {"consolidated", "lengths"}
    zellige.repair(dataset, dry_run=False)
    assert values_seen(dataset)["b1"] == seen
    assert not [one for one in zellige.validate(dataset, deep=True).findings if one.level != "note"]


def of_another_type_of_the_same_size(store):
    edit(
        store, main_of(store), **({"data_type": "int64", "fill_value": 0} if form_of(store) == 3 else {"dtype": "<i8"})
    )


def shorter_within_the_last_chunk(store):
    for path in ("b1", "b2"):  # one alone would be the only one of its length
        edit(store, main_of(store, path), shape=[9])


@pytest.mark.parametrize("damage", [of_another_type_of_the_same_size, shorter_within_the_last_chunk])
def test_where_nothing_tells_which_document_is_right_both_are_left(dataset, damage):
    damage(dataset)
    dataset.put("b1/c/1" if form_of(dataset) == 3 else "b1/1", b"damaged")
    before = snapshot(dataset)
    done = zellige.repair(dataset, dry_run=False)
    assert snapshot(dataset) == before
    assert {what for what, _ in done.actions} == {"left"}
    told = next(one.message for one in done.left if one.kind == "document")
    assert "nothing stored tells which of them is right" in told
    assert "zellige.consolidate_metadata" in told


@pytest.mark.filterwarnings("ignore::zellige.errors.BrokenNodeWarning")
def test_consolidated_metadata_without_what_is_below_a_broken_group_is_right():
    store = zellige.MemoryStore()
    zellige.create_group(store).create_array("g/a", data=range(4), chunks=2)
    store.put("g/zarr.json", b"nonsense")
    zellige.consolidate_metadata(store)
    assert {kind for kind, _ in found(store)} == {"document"}


def test_an_entry_is_kept_while_a_mark_lies_beside_a_damaged_document():
    store = zellige.MemoryStore()
    zellige.create_group(store).create_array("a", data=range(4), chunks=2)
    zellige.consolidate_metadata(store)
    store.put("a/zarr.json", b"nonsense")
    store.put("a/__zellige_unfinished", b"{}")
    done = zellige.repair(store, dry_run=False)
    assert {what for what, one in done.actions if one.kind in ("consolidated", "document")} == {"left"}
    zellige.repair(store, dry_run=False)
    assert zellige.validate(store, deep=True).ok
    assert zellige.open_array(store, path="a", mode="r")[:].tolist() == [0, 1, 2, 3]


@pytest.fixture
def migrated():
    """A consolidated hierarchy with metadata of both formats, as a migration leaves it."""
    store = zellige.MemoryStore()
    zellige.create_group(store, zarr_format=2).create_array("a", data=range(4), chunks=2)
    zellige.consolidate_metadata(store)
    zellige.migrate(store, dry_run=False)
    return store


def test_a_migration_that_was_cut_short_leaves_consolidated_metadata_that_is_right(migrated):
    migrated.delete(["zarr.json"])  # which comes last
    assert zellige.validate(migrated).findings == ()
    assert zellige.open_group(migrated, mode="r")["a"][:].tolist() == [0, 1, 2, 3]


def test_a_damaged_document_of_a_migrated_node_comes_back(migrated):
    before = migrated.get("a/zarr.json")
    migrated.put("a/zarr.json", b"nonsense")
    assert not zellige.validate(migrated).ok
    assert [what for what, _ in zellige.repair(migrated, dry_run=False).actions] == ["mended"]
    assert json.loads(migrated.get("a/zarr.json")) == json.loads(before)
    assert zellige.validate(migrated, deep=True).ok


def test_a_damaged_document_beside_one_of_format_2_is_put_aside(migrated):
    migrated.delete(["zarr.json"])
    migrated.put("a/zarr.json", b"nonsense")
    assert [what for what, _ in zellige.repair(migrated, dry_run=False).actions] == ["mended"]
    assert migrated.get("a/zarr.json") is None
    assert migrated.get(f"{QUARANTINE}/a/zarr.json") == b"nonsense"
    assert zellige.validate(migrated, deep=True).ok
    assert zellige.open_array(migrated, path="a", mode="r")[:].tolist() == [0, 1, 2, 3]


def test_a_document_with_an_unknown_codec_beside_one_of_format_2_stays(migrated):
    migrated.delete(["zarr.json"])
    document = json.loads(migrated.get("a/zarr.json"))
    document["codecs"][-1:] = [{"name": "of_somebody_else"}]
    migrated.put("a/zarr.json", json.dumps(document).encode())
    assert {what for what, one in zellige.repair(migrated, dry_run=False).actions if one.kind == "document"} == {"left"}
    assert json.loads(migrated.get("a/zarr.json")) == document


def test_what_a_migration_leaves_of_the_other_format_contradicts_nothing():
    root = zellige.create_group(zellige.MemoryStore(), zarr_format=2)
    root.create_array("b", data=np.arange(1, 5), chunks=2)
    zellige.consolidate_metadata(root.store, zarr_format=2)
    zellige.migrate(root.store, dry_run=False)
    zellige.open_array(root.store, path="b").resize(3)
    zellige.consolidate_metadata(root.store)  # in zarr.json; .zmetadata is as it was
    assert found(root.store) == []


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("what", OBSTACLES)
def test_a_member_whose_document_is_blocked_stays_in_consolidated_metadata(tmp_path, what, zarr_format):
    """`repair` made the consolidated metadata anew without it, so that nothing could read it any more."""
    root = zellige.create_group(tmp_path / "x.zarr", zarr_format=zarr_format)
    root.create_array("b", data=np.arange(1, 5), chunks=2)
    zellige.consolidate_metadata(tmp_path / "x.zarr", zarr_format=zarr_format)
    key = tmp_path / "x.zarr/b" / ("zarr.json" if zarr_format == 3 else ".zarray")
    key.unlink()
    OBSTACLES[what][0](key)
    done = zellige.repair(tmp_path / "x.zarr", dry_run=False, stray=True)
    assert {what for what, _ in done.actions} == {"left"}
    assert values_seen(tmp_path / "x.zarr") == {"b": [1, 2, 3, 4]}
    (told,) = (one.message for one in done.left if one.kind == "document")
    assert "the consolidated metadata of '/' has it" in told
    shutil.rmtree(key) if key.is_dir() and not key.is_symlink() else key.unlink()
    zellige.repair(tmp_path / "x.zarr", dry_run=False)
    assert zellige.open_group(tmp_path / "x.zarr", use_consolidated=False)["b"][:].tolist() == [1, 2, 3, 4]
    assert zellige.validate(tmp_path / "x.zarr", deep=True).ok


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("path", ["", "s", "s/t"])
def test_a_group_without_a_document_is_an_error_and_gets_one(path, zarr_format):
    """`validate` found nothing where nothing could be listed."""
    store = zellige.MemoryStore()
    root = zellige.create_group(store, zarr_format=zarr_format)
    root.create_array("s/t/b", data=[1, 2, 3])
    root.create_array("a", data=[4])
    key = node.join(path, ".zgroup" if zarr_format == 2 else "zarr.json")
    store.delete([key])
    report = zellige.validate(store, deep=True)
    assert [(one.level, one.kind, one.key) for one in report.findings] == [("error", "document", key)]
    assert "no metadata of a group here" in report.findings[0].message
    done = [what for what, _ in zellige.repair(store, dry_run=False).actions]
    if path:
        assert done == ["mended"]
    else:  # it may be a directory of several stores, and is no group unless somebody says so
        assert done == ["left"]
        zellige.open_group(store, mode="a", zarr_format=zarr_format)
    assert zellige.validate(store, deep=True).findings == ()
    opened = zellige.open_group(store)
    assert opened.metadata.zarr_format == zarr_format
    assert sorted(name for name, _ in opened.members(None)) == ["a", "s", "s/t", "s/t/b"]
    assert opened["s/t/b"][:].tolist() == [1, 2, 3]


def test_what_is_being_removed_is_not_restored(consolidated):
    array = names(consolidated)[0]
    consolidated.delete([f"b/{array}"])
    consolidated.put("b/" + node.UNFINISHED, json.dumps({"nodes": {}}).encode())
    assert ("document", f"b/{array}") not in found(consolidated)


def test_a_node_inside_of_an_array_is_a_warning(tmp_path):
    zellige.create_array(tmp_path / "w", data=[3, 4])
    shutil.copytree(tmp_path / "w", tmp_path / "p.zarr/w")
    shutil.copytree(tmp_path / "w", tmp_path / "p.zarr/deep/q")
    zellige.create_array(tmp_path / "p.zarr", data=[1, 2])
    report = zellige.validate(tmp_path / "p.zarr", deep=True)
    nested = [("warning", "nested", f"{path}/zarr.json") for path in ("deep/q", "w")]
    assert [(one.level, one.kind, one.key) for one in report.findings] == nested
    assert "copy_store" in report.findings[0].message
    done = zellige.repair(tmp_path / "p.zarr", dry_run=False, stray=True)
    assert {what for what, _ in done.actions} == {"left"}
    assert zellige.open_array(tmp_path / "p.zarr/w")[:].tolist() == [3, 4]


def test_chunks_that_were_never_written_are_noted_and_no_damage(store):
    store.delete(["regular/c/0/0"])
    done = zellige.repair(store, dry_run=False)
    assert (done.actions, [one.kind for one in done.notes]) == ((), ["missing"])
    assert "1 of 6 chunks are not stored" in str(done)


def test_what_a_killed_append_left_is_removed():
    a = zellige.create_array(data=[1, 2, 3], chunks=2)
    a.store.put("c/1", zellige.create_array(data=[3, 9], chunks=2).store.get("c/0"))
    a.store.put("c/2", b"appended")
    a.store.put(node.PENDING, b"")
    assert {one.kind for one in zellige.validate(a.store).findings} == {"outside", "leftover"}
    zellige.repair(a.store, dry_run=False)
    assert zellige.validate(a.store).findings == ()
    a.resize(6)
    assert a[:].tolist() == [1, 2, 3, 0, 0, 0]


def test_leftover_files_of_dead_writers_are_removed(tmp_path):
    zellige.save(tmp_path, np.arange(4))
    pid, _, place = files.owner(os.getpid()).split(".")
    leftover = tmp_path / f"{files.TEMPORARY}{pid}.0.{place}-0"  # of a process that had this one's number before
    leftover.write_bytes(b"half")
    zellige.vacuum(tmp_path)
    assert not leftover.exists()


def test_a_read_only_store_is_not_repaired(store):
    store.put("regular/c/0/0", b"damaged")
    with pytest.raises(ReadOnlyError):
        zellige.repair(store.as_read_only(), dry_run=False)


# -- diff -----------------------------------------------------------------------------------------


def test_equal_nodes_do_not_differ(store):
    other = zellige.MemoryStore()
    zellige.copy_store(store, other)
    assert not zellige.diff(store, other)
    assert str(zellige.diff(store, other)) == "no difference"


def test_values_are_compared_whatever_the_chunks_are():
    values = np.arange(60.0).reshape(6, 10)
    values[1, 1] = np.nan
    a, b = (zellige.array(values, chunks=chunks) for chunks in ((2, 5), ([1, 5], [3, 3, 4])))
    assert zellige.diff(a, b).values == ()
    b[2, 3:6] = -1
    assert zellige.diff(a, b).values == (("/", 3, (2, 3)),)
    assert zellige.diff(a, b, values=False).values == ()


def test_documents_are_compared_field_by_field(store):
    other = zellige.MemoryStore()
    zellige.copy_store(store, other)
    zellige.open(other)["regular"].attrs["unit"] = "K"
    del zellige.open(other)["plain"]
    assert zellige.diff(store, other).metadata == (
        "/plain: only in the first",
        "/regular: attributes.unit only in the second: 'K'",
    )


def test_arrays_of_other_shapes_differ_in_their_documents():
    found = zellige.diff(zellige.zeros(3), zellige.zeros(4))
    assert any(sentence.startswith("/: shape: ") for sentence in found.metadata)
    assert found.values == ()


# -- coverage and statistics ----------------------------------------------------------------------


def test_coverage_counts_stored_chunks_and_maps_them():
    a = zellige.zeros((7, 9), chunks=([1, 6], 3), dtype="int32")
    assert a.coverage().fraction == 0
    a[0, 0] = a[6, 8] = 1
    cover = a.coverage()
    assert cover.stored == {(0, 0), (1, 2)}
    np.testing.assert_array_equal(cover.to_array(), [[1, 0, 0], [0, 0, 1]])
    assert zellige.zeros(()).coverage().total == 1
    assert zellige.zeros((0,)).coverage().fraction == 1


def test_a_large_grid_is_mapped_by_boxes_of_chunks():
    a = zellige.zeros((10**12,), chunks=1, dtype="int8")
    a[0] = a[10**12 - 1] = 1
    cells = a.coverage().to_array(most=1000)
    assert 500 <= len(cells) <= 1000
    assert cells[0] > 0
    assert cells[-1] > 0
    assert not cells[1:-1].any()


@pytest.mark.parametrize("selection", [..., (slice(1, None, 2), slice(3, 9)), (2,), ([0, 0, 4], slice(None))])
def test_statistics_are_those_of_numpy(selection):
    values = np.random.default_rng(5).normal(size=(6, 10))
    values[2, 3] = values[0, 0] = np.nan
    picked = values[selection]
    stats = zellige.array(values, chunks=([1, 5], [3, 3, 4])).stats(selection)
    assert (stats.count, stats.nan) == (picked.size, np.isnan(picked).sum())
    assert (stats.min, stats.max) == (np.nanmin(picked), np.nanmax(picked))
    assert stats.mean == pytest.approx(np.nanmean(picked))


@pytest.mark.parametrize(
    ("values", "low", "high", "mean"),
    [
        (np.array(["b", "a", "c"]), "a", "c", None),
        (np.array([1 + 2j, 3j]), None, None, 0.5 + 2.5j),
        (np.array([True, False]), False, True, 0.5),
        (np.array(["2024-01-02", "NaT"], "M8[D]"), np.datetime64("2024-01-02"), np.datetime64("2024-01-02"), None),
        (np.array([], "int16"), None, None, None),
        (np.array([np.nan, np.nan]), None, None, None),
    ],
)
def test_statistics_of_other_types(values, low, high, mean):
    stats = zellige.array(values).stats()
    assert (stats.min, stats.max, stats.mean) == (low, high, mean)
