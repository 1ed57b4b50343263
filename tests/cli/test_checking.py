"""Damage of every kind is found by `validate`, and mended or named by `repair`; `diff` says how two nodes differ."""

from __future__ import annotations

import os
import zipfile

import numpy as np
import pytest
from command import VALUES, fill

import zellige

DAMAGE = {
    "a damaged chunk": ("regular/c/0/1", b"damaged", "chunk", "error"),
    "a damaged chunk of uneven ones": ("months/uneven/c/1/2", b"", "chunk", "error"),
    "a damaged shard": ("sharded/c/0/0", b"short", "index", "error"),
    "a damaged chunk of format 2": ("old/0.0", b"damaged", "chunk", "error"),
    "a missing chunk": ("regular/c/0/1", None, "missing", "note"),
    "a chunk beyond the end": ("regular/c/9/0", b"old", "outside", "warning"),
    "a stray key": ("regular/notes.md", b"hello", "stray", "warning"),
    "a broken document": ("regular/zarr.json", b"{", "document", "error"),
}
LEFT = {"a stray key", "a broken document"}
"""What repair only names."""


def snapshot(store):
    return {key: store.get(key) for key in store.list()}


def damaged(store, name):
    key, value, kind, level = DAMAGE[name]
    if value is None:
        store.delete([key])
    else:
        store.put(key, value)
    return key, kind, level


def test_a_whole_tree_is_fine(tree, run):
    ran = run("validate", *tree.argv)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "2 groups, 4 arrays, 15 chunks looked at: 0 errors, 0 warnings\n"
    found = run("validate", *tree.argv, "--deep", "--json").json
    assert found == {"ok": True, "arrays": 4, "groups": 2, "chunks": 15, "deep": True, "findings": []}


@pytest.mark.parametrize("name", DAMAGE)
def test_each_kind_of_damage_is_found(tree, run, name):
    key, kind, level = damaged(tree.store, name)
    ran = run("validate", *tree.argv, "--deep")
    assert ran.code == (0 if level == "note" else 1)
    assert any(line.startswith(f"{level}: {kind} {key}: ") for line in ran.out.splitlines())
    found = run("validate", *tree.argv, "--deep", "--json").json
    assert found["ok"] is (level == "note")
    assert (level, kind, key) in [(one["level"], one["kind"], one["key"]) for one in found["findings"]]


@pytest.mark.parametrize("flags", [[], ["--deep"]], ids=["quick", "deep"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/hostname", path)])
def test_what_is_no_file_in_the_place_of_a_chunk_is_an_error(local, run, make, flags):
    os.unlink(local / "regular/c/0/1")
    make(local / "regular/c/0/1")
    ran = run("validate", local, *flags)
    assert ran.code == 1
    assert "error: chunk regular/c/0/1: " in ran.out
    assert run("repair", local, "--do").code == 1


@pytest.mark.parametrize("name", DAMAGE)
def test_a_repair_is_a_dry_run_unless_told(local, run, name):
    store = zellige.LocalStore(local)
    key, kind, level = damaged(store, name)
    before = snapshot(store)
    ran = run("repair", local)
    assert ran.code == (0 if level == "note" else 1)
    assert f"{level}: {kind} {key}" in ran.out
    assert ("give --do to do it" in ran.out) is (name not in LEFT and level != "note")
    assert snapshot(store) == before


@pytest.mark.parametrize("name", DAMAGE)
def test_repair_mends_or_names(tree, run, name):
    key, kind, level = damaged(tree.store, name)
    ran = run("repair", *tree.argv, "--do")
    assert ran.code == (1 if name in LEFT else 0)
    assert f"{level}: {kind} {key}" in ran.out
    assert "would be" not in ran.out
    again = run("validate", *tree.argv, "--deep")
    assert again.code == ran.code
    if name in LEFT:
        assert tree.store.get(key) == DAMAGE[name][1]


def test_repair_as_json(local, run):
    (local / "regular/c/0/1").write_bytes(b"damaged")
    (local / "regular/c/2/0").unlink()
    found = run("repair", local, "--json").json
    assert (found["dry_run"], found["left"]) == (True, 0)
    assert [(one["done"], one["key"], one["coords"]) for one in found["actions"]] == [
        ("put aside", "regular/c/0/1", [0, 1])
    ]
    assert [one["kind"] for one in found["notes"]] == ["missing"]
    assert run("repair", local, "--do", "--drop", "--json").json["actions"][0]["done"] == "removed"
    assert not list(local.rglob("__zellige_quarantine"))


def test_stray_keys_are_put_aside_on_request(local, run):
    (local / "README.txt").write_text("hello")
    assert run("repair", local, "--do", "--stray").code == 0
    assert (local / "__zellige_quarantine/README.txt").read_text() == "hello"
    assert run("vacuum", local, "--quarantine").code == 0
    assert not list(local.rglob("README.txt"))


def test_a_shallow_repair_decodes_nothing(local, run):
    (local / "regular/c/0/1").write_bytes(b"damaged")
    assert run("repair", local, "--shallow").out == "nothing to repair\n"


def test_vacuum(tree, run):
    tree.store.put("regular/c/9/0", b"old")
    argv = ["vacuum", *tree.argv]
    said = "warning: outside regular/c/9/0: chunk (9, 0) lies beyond the end of the array\n"
    assert run(*argv, "--dry-run").out == f"would be removed: {said}"
    assert tree.store.exists("regular/c/9/0")
    ran = run(*argv, "--json")
    assert (ran.code, ran.json["actions"][0]["key"]) == (0, "regular/c/9/0")
    assert not tree.store.exists("regular/c/9/0")


def test_equal_nodes_do_not_differ(tree, run, tmp_path):
    fill(tmp_path / "other.zarr")
    ran = run("diff", *tree.argv, tmp_path / "other.zarr")
    assert (ran.code, ran.out) == (0, "no difference\n")
    assert run("diff", *tree.argv, tmp_path / "other.zarr", "--path", "old").code == 0


def test_differences_are_told(local, run, tmp_path):
    store = fill(tmp_path / "other.zarr")
    array = zellige.open(store, path="months/uneven")
    array[2:4, 5] = 0
    array.attrs["unit"] = "K"
    ran = run("diff", local, tmp_path / "other.zarr")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        "/months/uneven: attributes.unit only in the second: 'K'",
        "/months/uneven: 2 elements differ, the first at (2, 5)",
    ]
    assert run("diff", local, tmp_path / "other.zarr", "--json").json == {
        "differ": True,
        "metadata": ["/months/uneven: attributes.unit only in the second: 'K'"],
        "values": [{"path": "/months/uneven", "elements": 2, "first": [2, 5]}],
    }
    assert len(run("diff", local, tmp_path / "other.zarr", "--metadata").out.splitlines()) == 1


def test_other_chunks_are_a_difference_of_metadata_only(local, run):
    ran = run("diff", local, local, "--path", "regular", "--second-path", "months/uneven")
    assert ran.code == 1
    assert "elements differ" not in ran.out
    assert "chunk_grid" in ran.out
    assert np.array_equal(zellige.load(local, path="regular"), VALUES)


# -- archives -------------------------------------------------------------------------------------


def damage_entry(path, name):
    """Change one byte of an entry's data, as a bad disk does."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
    raw = bytearray(path.read_bytes())
    begin = info.header_offset + 30 + int.from_bytes(raw[info.header_offset + 26 :][:2], "little")
    begin += int.from_bytes(raw[info.header_offset + 28 :][:2], "little")
    raw[begin + info.compress_size // 2] ^= 0xFF
    path.write_bytes(raw)


@pytest.fixture
def archive(tmp_path):
    """An archive of which two chunks, a chunk beyond the end, and the document of an array are damaged."""
    path = tmp_path / "z.zip"
    with zellige.open_group(path, mode="w") as root:
        for name in "abc":
            root.create_array(name, data=np.arange(1, 101), chunks=25, compressors=None)
        root.store.put("a/c/7", b"beyond the end")
    for name in ("a/c/1", "b/c/2", "a/c/7", "c/zarr.json"):
        damage_entry(path, name)
    return path


def test_damaged_entries_of_an_archive_are_findings_like_others(archive, run):
    """The first of them ended the command with exit code 2, and nothing else was named."""
    ran = run("validate", "--deep", archive, "--json")
    assert (ran.code, ran.err) == (1, "")
    found = [(one["level"], one["kind"], one["key"]) for one in ran.json["findings"]]
    errors = [("error", "chunk", "a/c/1"), ("error", "chunk", "b/c/2"), ("error", "document", "c/zarr.json")]
    assert [one for one in found if one[0] == "error"] == errors
    assert ("warning", "outside", "a/c/7") in found
    assert "--drop" in ran.json["findings"][0]["message"]


def test_damaged_entries_of_an_archive_stay_unless_they_are_dropped(archive, run):
    def entries():
        with zipfile.ZipFile(archive) as found:
            return {info.filename: info.CRC for info in found.infolist()}

    before = entries()
    assert {one["done"] for one in run("repair", archive, "--json").json["actions"]} == {"left"}
    ran = run("repair", archive, "--do", "--json")
    assert (ran.code, {one["done"] for one in ran.json["actions"]}) == (1, {"left"})
    assert entries() == before
    dropped = run("repair", archive, "--do", "--drop", "--json").json
    gone = ["a/c/1", "a/c/7", "b/c/2"]
    assert [one["key"] for one in dropped["actions"] if one["done"] == "removed"] == gone
    assert entries() == {name: crc for name, crc in before.items() if name not in gone}
    values = np.arange(1, 101)
    assert np.array_equal(zellige.load(archive, path="b"), np.where((values > 50) & (values <= 75), 0, values))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_damaged_document_in_an_archive_comes_back_from_consolidated_metadata(tmp_path, run, zarr_format):
    path = tmp_path / "z.zip"
    with zellige.open_group(path, mode="w", zarr_format=zarr_format) as root:
        root.create_array("a", data=VALUES)
        zellige.consolidate_metadata(root.store, zarr_format=zarr_format)
    damage_entry(path, "a/.zarray" if zarr_format == 2 else "a/zarr.json")
    assert run("repair", path, "--do").code == 0
    assert run("validate", "--deep", path).code == 0
    assert np.array_equal(zellige.open_group(path, mode="r", use_consolidated=False)["a"][...], VALUES)


def test_damaged_consolidated_metadata_in_an_archive_is_made_anew(tmp_path, run):
    path = tmp_path / "z.zip"
    with zellige.open_group(path, mode="w", zarr_format=2) as root:
        root.create_array("a", data=VALUES)
        zellige.consolidate_metadata(root.store, zarr_format=2)
    damage_entry(path, ".zmetadata")
    assert [one["kind"] for one in run("validate", path, "--json").json["findings"]] == ["consolidated"]
    assert run("repair", path, "--do").code == 0
    assert run("validate", "--deep", path).code == 0
    assert np.array_equal(zellige.open_group(path, mode="r", use_consolidated=True)["a"][...], VALUES)
