"""copy, rechunk, convert and consolidate."""

from __future__ import annotations

import numpy as np
import pytest
from command import ARRAYS, VALUES, fill

import zellige


def snapshot(store):
    return {key: store.get(key) for key in store.list()}


def test_a_copy_has_the_same_bytes(tree, run, tmp_path):
    ran = run("copy", *tree.argv, tmp_path / "copy.zarr", "--verify")
    store = zellige.LocalStore(tmp_path / "copy.zarr")
    assert (ran.code, ran.err) == (0, "")
    assert snapshot(store) == snapshot(tree.store)
    nbytes = sum(map(len, snapshot(store).values()))
    assert ran.out == f"all done: {len(snapshot(store))} copied, 0 skipped, {nbytes:,} bytes copied\n"


def test_a_copy_to_a_server_needs_its_options(tree, run, local):
    options = ["-O" if part == "-o" else part for part in tree.options]
    before = snapshot(tree.store)
    assert run("copy", local, tree.place, *options, "--to", "again", "--path", "regular").code == 0
    assert np.array_equal(tree.open("again")[...], VALUES)
    assert before.items() < snapshot(tree.store).items()


@pytest.mark.parametrize("path", ARRAYS)
def test_one_node_is_copied_to_a_path(local, run, tmp_path, path):
    ran = run("copy", local, tmp_path / "copy.zarr", "--path", path, "--to", "a/b", "--json")
    assert ran.json["n_copied"] == 1
    assert ran.json["left_out"] == []
    assert np.array_equal(zellige.load(tmp_path / "copy.zarr", path="a/b"), VALUES)


def test_what_is_there_is_not_overwritten(local, run, tmp_path):
    (tmp_path / "copy.zarr").mkdir()
    (tmp_path / "copy.zarr/zarr.json").write_text("mine")
    ran = run("copy", local, tmp_path / "copy.zarr")
    assert ran.code == 2
    assert ran.err.startswith("zellige copy: key 'zarr.json' is in ")
    assert ran.err.endswith("pass if_exists='replace' or 'skip'\n")
    assert run("copy", local, tmp_path / "copy.zarr", "--if-exists", "skip").code == 0
    assert (tmp_path / "copy.zarr/zarr.json").read_text() == "mine"
    assert run("copy", local, tmp_path / "copy.zarr", "--if-exists", "replace", "--dry-run").out.startswith("dry run: ")
    assert (tmp_path / "copy.zarr/zarr.json").read_text() == "mine"
    assert run("copy", local, tmp_path / "copy.zarr", "--if-exists", "replace").code == 0
    assert zellige.open(tmp_path / "copy.zarr").attrs["title"] == "all kinds"


@pytest.mark.parametrize("command", ["copy", "convert"])
def test_a_dry_run_leaves_no_archive(local, run, tmp_path, command):
    argv = [command, local, tmp_path / "new.zip", "--path", "old"]
    assert run(*argv, "--dry-run").code == 0
    assert not (tmp_path / "new.zip").exists()
    assert run(*argv).code == 0
    assert np.array_equal(zellige.open(tmp_path / "new.zip", mode="r")[...], VALUES)


def test_nothing_is_copied_from_where_there_is_nothing(run, tmp_path):
    (tmp_path / "a").mkdir()
    ran = run("copy", tmp_path / "a", tmp_path / "b")
    assert ran.code == 2
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("path", ARRAYS)
def test_rechunk(tree, run, tmp_path, path):
    ran = run("rechunk", *tree.argv, tmp_path / "new.zarr", "--path", path, "--chunks", "1+2+3,-1")
    if path == "old":
        assert ran.code == 2
        assert "Zarr format 2" in ran.err
        assert not (tmp_path / "new.zarr").exists()
        return
    assert (ran.code, ran.err) == (0, "")
    made = zellige.open_array(tmp_path / "new.zarr", mode="r")
    assert tuple(map(tuple, made.write_chunk_sizes)) == ((1, 2, 3), (10,))
    assert np.array_equal(made[...], VALUES)
    assert ran.out == f"{made!r}\n"


def test_rechunk_into_shards_with_another_compressor(local, run, tmp_path):
    argv = ["rechunk", local, tmp_path / "new.zarr", "--path", "regular", "--to", "a", "--chunks", "2,5"]
    found = run(*argv, "--shards", "6,10", "--compressor", "gzip", "--memory", "1MB", "--json").json
    assert (found["path"], found["grid_shape"]) == ("a", [1, 1])
    made = zellige.open_array(tmp_path / "new.zarr", path="a")
    assert (made.shards, made.chunks, made.compressors[0].name) == ((6, 10), (2, 5), "gzip")
    assert np.array_equal(made[...], VALUES)
    again = run(*argv, "--compressor", "none")
    assert (again.code, "--overwrite" in again.err) == (2, True)
    assert run(*argv, "--compressor", "none", "--overwrite").code == 0
    assert zellige.open_array(tmp_path / "new.zarr", path="a").compressors == ()


def test_consolidate(tree, run):
    assert run("consolidate", *tree.argv, "--path", "months").out == "/months holds 1 node\n"
    assert run("consolidate", *tree.argv, "--json").json == {"path": "", "nodes": 4}
    assert tree.open().metadata.consolidated.keys() == {"months", "months/uneven", "regular", "sharded"}


# -- convert --------------------------------------------------------------------------------------


def test_convert_in_place_and_back(tree, run):
    before = snapshot(tree.store)
    argv = ["convert", *tree.argv, "--path", "old"]
    assert run(*argv, "--dry-run").out == "1 arrays and 0 groups would be converted\n"
    assert snapshot(tree.store) == before
    assert run(*argv, "--json").json == {
        "arrays": [""],
        "groups": [],
        "skipped": {},
        "unchanged": [],
        "nbytes": 0,
        "dry_run": False,
    }
    assert tree.open("old").metadata.zarr_format == 3
    assert run(*argv, "--undo").code == 0
    assert snapshot(tree.store) == before
    assert run(*argv, "--remove-v2").code == 0
    assert not tree.store.exists("old/.zarray")
    assert np.array_equal(tree.open("old")[...], VALUES)


def test_convert_to_another_place_keeps_the_chunks(tree, run, tmp_path):
    ran = run("convert", *tree.argv, tmp_path / "new.zarr", "--path", "old", "--to", "a")
    assert (ran.code, ran.out) == (0, "1 arrays and 0 groups converted\n")
    store = zellige.LocalStore(tmp_path / "new.zarr")
    assert {key: raw for key, raw in snapshot(store).items() if "json" not in key} == {
        key.replace("old", "a"): raw
        for key, raw in snapshot(tree.store).items()
        if key.startswith(("old/0.", "old/1."))
    }
    assert zellige.open(store, path="a").metadata.zarr_format == 3
    assert np.array_equal(zellige.open(store, path="a")[...], VALUES)


def test_convert_a_file(run, tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    argv = ["convert", tmp_path / "a.npy", tmp_path / "a.zarr", "--chunks", "1+5,-1", "--compressor", "none"]
    assert run(*argv, "--json").json == {
        "arrays": [""],
        "groups": [],
        "skipped": {},
        "unchanged": [],
        "nbytes": VALUES.nbytes,
        "dry_run": False,
    }
    made = zellige.open_array(tmp_path / "a.zarr")
    assert np.array_equal(made[...], VALUES)
    assert (tuple(made.write_chunk_sizes[0]), made.compressors) == ((1, 5), ())
    again = run(*argv)
    assert (again.code, "--overwrite" in again.err) == (2, True)
    assert run(*argv, "--overwrite").code == 0


def test_convert_leaves_out_what_it_is_told_to(run, tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'zellige[hdf5]'")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"], file["ref"] = VALUES, np.array([file.ref], h5py.ref_dtype)
    refused = run("convert", tmp_path / "a.h5", tmp_path / "a.zarr")
    assert refused.code == 2
    assert refused.err == (
        "zellige convert: dataset '/ref' holds references to other places of its file, which Zarr cannot hold; "
        "unsupported='skip' leaves it out, here --skip\n"
    )
    assert not (tmp_path / "a.zarr").exists()
    ran = run("convert", tmp_path / "a.h5", tmp_path / "a.zarr", "--skip")
    assert (ran.code, ran.out) == (1, "1 arrays and 1 groups converted\n")
    assert ran.err.startswith("zellige: warning: left out ref: ")
    assert np.array_equal(zellige.load(tmp_path / "a.zarr", path="a"), VALUES)


def test_convert_leaves_out_members_of_a_npz_that_only_a_pickle_could_hold(run, tmp_path):
    np.savez(tmp_path / "a.npz", a=VALUES, b=np.array([{"a": 1}], object), c=VALUES[0])
    refused = run("convert", tmp_path / "a.npz", tmp_path / "a.zarr")
    assert (refused.code, "pickle" in refused.err) == (2, True)
    assert not (tmp_path / "a.zarr").exists()
    ran = run("convert", tmp_path / "a.npz", tmp_path / "a.zarr", "--skip")
    assert (ran.code, ran.out) == (1, "2 arrays and 1 groups converted\n")
    assert ran.err.startswith("zellige: warning: left out b: ")
    assert sorted(zellige.load(tmp_path / "a.zarr")) == ["a", "c"]
    assert np.array_equal(zellige.load(tmp_path / "a.zarr", path="a"), VALUES)


def test_convert_applies_chunks_where_the_dimension_is(run, tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'zellige[hdf5]'")
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["time"], file["lat"], file["t"] = np.arange(59), np.arange(4), np.arange(59 * 4).reshape(59, 4)
        for axis, name in enumerate(("time", "lat")):
            file[name].make_scale(name)
            file["t"].dims[axis].attach_scale(file[name])
    argv = ["convert", tmp_path / "a.nc", tmp_path / "a.zarr", "--skip"]
    nowhere = run(*argv, "--chunks", "tme=31")
    assert (nowhere.code, "'tme'" in nowhere.err) == (2, True)
    assert not (tmp_path / "a.zarr").exists()
    ran = run(*argv, "--chunks", "time=31")
    assert (ran.code, ran.out, ran.err) == (0, "3 arrays and 1 groups converted\n", "")
    assert sorted(zellige.load(tmp_path / "a.zarr")) == ["lat", "t", "time"]
    assert zellige.open(tmp_path / "a.zarr", mode="r")["time"].write_chunk_sizes == ((31, 28),)


INTO_ARCHIVES = {
    "copy": (["copy", "{local}/regular", "{zip}", "--to", "t"], "t"),
    "copy all": (["copy", "{local}", "{zip}"], "regular"),
    "rechunk": (["rechunk", "{local}/regular", "{zip}", "--to", "t", "--chunks", "3"], "t"),
    "convert": (["convert", "{npy}", "{zip}", "--to", "t"], "t"),
    "convert format 2": (["convert", "{local}/old", "{zip}", "--to", "t"], "t"),
}
IN_ARCHIVES = [["consolidate"], ["repair", "--do"], ["vacuum"], ["convert", "--path", "old"], ["validate", "--deep"]]


@pytest.mark.parametrize("name", INTO_ARCHIVES)
def test_every_command_writes_archives(name, local, run, tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    zellige.save_group(tmp_path / "there.zip", other=[1, 2])
    argv, path = INTO_ARCHIVES[name]
    for archive in ("new.zip", "there.zip") if name != "copy all" else ("new.zip",):
        places = {"local": local, "zip": tmp_path / archive, "npy": tmp_path / "a.npy"}
        ran = run(*(part.format(**places) for part in argv))
        assert (ran.code, ran.err) == (0, "")
        assert np.array_equal(zellige.load(tmp_path / archive, path=path), VALUES)
    assert zellige.load(tmp_path / "there.zip", path="other").tolist() == [1, 2]


@pytest.mark.parametrize("argv", IN_ARCHIVES, ids=" ".join)
def test_every_command_changes_archives(argv, run, tmp_path):
    with zellige.storage.open_store(tmp_path / "tree.zip").store as store:
        fill(store)
    assert run(argv[0], tmp_path / "tree.zip", *argv[1:]).code == 0
    for name in ARRAYS:
        assert np.array_equal(zellige.load(tmp_path / "tree.zip", path=name), VALUES)


@pytest.mark.parametrize("name", ["demo.zip", "demo.zarr"])
def test_the_demo_names_commands_that_work(run, name, tmp_path):
    made = run("demo", tmp_path / name)
    hints = [line.split() for line in made.out.splitlines() if line.startswith("  zellige ")]
    assert len(hints) == 5
    for _, *argv in hints:
        assert run(*argv).code == 0, argv


def test_the_demo_is_made_in_an_archive(run, tmp_path):
    assert run("demo", tmp_path / "demo.zip").code == 0
    assert zellige.open(tmp_path / "demo.zip", mode="r")["t"].shape == (365, 18, 36)


@pytest.mark.parametrize("flag", ["--undo", "--remove-v2"])
def test_what_is_for_a_conversion_in_place_takes_no_target(local, run, tmp_path, flag):
    ran = run("convert", local, tmp_path / "b.zarr", flag)
    assert (ran.code, ran.err.endswith("leave DEST out\n")) == (2, True)
