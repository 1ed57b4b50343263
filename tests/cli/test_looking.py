"""Commands that only look, on every kind of store and array."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command import ARRAYS, VALUES

import zellige
from families import strict

STORED = {"regular": (3, 2), "months/uneven": (2, 3), "sharded": (1, 1), "old": (2, 1)}
"""The grids of stored chunks of the arrays."""


@pytest.mark.parametrize("path", ARRAYS)
def test_info_says_what_an_array_is(tree, run, path):
    ran = run("info", *tree.argv, "--path", path)
    assert (ran.code, ran.err) == (0, "")
    array = tree.open(path)
    lines = dict(line.split(" : ", 1) for line in ran.out.splitlines() if " : " in line)
    facts = {label.strip(): value for label, value in lines.items()}
    assert facts["Chunks stored"] == "{0} of {0}".format(np.prod(STORED[path]))
    assert facts["Size"] == "240 B"
    assert facts["Zarr format"] == str(array.metadata.zarr_format)
    assert ran.out.count("┌") == ran.out.count("└") == array.ndim  # a ruler for each axis


def test_rulers_show_uneven_chunks_by_name(local, run):
    lines = run("info", local / "months/uneven").out.splitlines()
    place = lines.index("place: 10 in 3 chunks")
    widths = [len(cell) + 1 for cell in lines[place + 1].strip("┌┐").split("┬")]
    assert np.allclose(np.divide(widths, sum(widths)), [0.3, 0.3, 0.4], atol=0.02)
    assert lines[place + 3].split() == ["3", "3", "4"]
    assert "day: 6 in 2 chunks" in lines


@pytest.mark.parametrize("path", ARRAYS)
def test_info_as_json(tree, run, path):
    found = run("info", *tree.argv, "--path", path, "--json").json
    array = tree.open(path)
    documents = [key for key in tree.store.list(path + "/") if key.rpartition("/")[2] in ("zarr.json", ".zarray")]
    assert found["metadata"] == {key.rpartition("/")[2]: json.loads(tree.store.get(key)) for key in documents}
    assert found["bytes_stored"] == sum(tree.store.size(key) for key in tree.store.list(path + "/"))
    assert found["grid_shape"] == list(STORED[path])
    assert (found["chunks"], found["chunks_stored"]) == (np.prod(STORED[path]),) * 2
    assert (found["type"], found["path"], found["zarr_format"]) == ("array", path, array.metadata.zarr_format)
    assert (found["shape"], found["dtype"], found["bytes"]) == ([6, 10], "int32", 240)
    assert found["dimension_names"] == (["day", "place"] if "uneven" in path else None)


def test_info_of_a_group(tree, run):
    ran = run("info", *tree.argv)
    assert '  title: "all kinds"' in ran.out.splitlines()
    found = run("info", *tree.argv, "--json").json
    counts = {"arrays": 4, "groups": 1, "consolidated": False, "zarr_format": 3, "path": "", "type": "group"}
    assert {key: found[key] for key in counts} == counts
    assert found["attributes"] == {"title": "all kinds"}


def test_attributes_that_are_not_finite(tmp_path, run):
    attributes = {"missing": float("nan"), "range": [float("-inf"), "NaN"]}
    zellige.create_group(tmp_path, attributes=attributes).create_array("a", shape=1, attributes=attributes)
    for place in (tmp_path, tmp_path / "a"):
        assert {"  missing: NaN", '  range: [-Infinity, "NaN"]'} <= set(run("info", place).out.splitlines())
        found = strict(run("info", place, "--json").out.encode())  # for readers of strict JSON
        assert found["attributes"] == {"missing": "NaN", "range": ["-Infinity", "NaN"]}


def test_chunks_that_are_missing_are_counted(local, run):
    (local / "regular/c/0/1").unlink()
    assert run("info", local / "regular", "--json").json["chunks_stored"] == 5
    assert "5 of 6" in run("info", local / "regular").out


def test_tree(tree, run):
    assert run("tree", *tree.argv).out == (
        "/\n├── months\n│   └── uneven (6, 10) int32\n"
        "├── old (6, 10) int32\n├── regular (6, 10) int32\n└── sharded (6, 10) int32\n"
    )
    assert run("tree", *tree.argv, "--ascii", "--level", 1).out == (
        "/\n|-- months\n|-- old (6, 10) int32\n|-- regular (6, 10) int32\n`-- sharded (6, 10) int32\n"
    )
    found = run("tree", *tree.argv, "--json").json
    assert list(found["members"]) == ["months", "old", "regular", "sharded"]
    assert found["members"]["months"]["members"]["uneven"]["shape"] == [6, 10]
    assert run("tree", *tree.argv, "--json", "--level", 1).json["members"]["months"]["members"] == {}
    assert "(6, 10) int32" in run("tree", *tree.argv, "--path", "old").out


def test_ls(tree, run):
    assert [line.split()[:2] for line in run("ls", *tree.argv).out.splitlines()] == [
        ["group", "months"],
        ["array", "old"],
        ["array", "regular"],
        ["array", "sharded"],
    ]
    deep = run("ls", "-r", *tree.argv, "--json").json
    assert [node["path"] for node in deep] == ["months", "months/uneven", "old", "regular", "sharded"]
    assert run("ls", *tree.argv, "--path", "old", "--json").json == [
        {"type": "array", "path": "old", "shape": [6, 10], "dtype": "int32"}
    ]


@pytest.mark.parametrize("path", ARRAYS)
@pytest.mark.parametrize(
    ("text", "index"), [("0:2,::4", np.s_[0:2, ::4]), ("-1", -1), ("-2,-1", (-2, -1)), ("...,3", np.s_[..., 3])]
)
def test_head_shows_what_numpy_shows(tree, run, path, text, index):
    argv = ["head", *tree.argv, "--path", path, text]
    assert run(*argv).out == f"{np.array2string(VALUES[index], separator=' ')}\n"
    found = run(*argv, "--json").json
    assert found == {
        "type": "array",
        "path": path,
        "shape": list(VALUES[index].shape),
        "dtype": "int32",
        "values": VALUES[index].tolist(),
    }


def test_head_without_a_selection_is_the_beginning(tmp_path, run):
    data = np.arange(4000.0).reshape(20, 200)
    data[0, 0] = np.nan
    zellige.save(tmp_path / "a.zarr", data)
    found = run("head", tmp_path / "a.zarr", "--json").json
    assert found["shape"] == [10, 10]
    assert found["values"][0][:2] == ["NaN", 1.0]
    assert "..." in run("head", tmp_path / "a.zarr", ":").out
    assert "..." not in run("head", tmp_path / "a.zarr", ":", "--all").out


@pytest.mark.parametrize("path", ARRAYS)
def test_stats(tree, run, path):
    argv = ["stats", *tree.argv, "--path", path]
    expected = {"count": 60, "nan": 0, "min": 1, "max": 60, "mean": 30.5}
    assert run(*argv, "--json").json == pytest.approx(expected)
    said = dict(line.split() for line in run(*argv).out.splitlines())
    assert {name: float(value) for name, value in said.items()} == pytest.approx(expected)
    assert run(*argv, "2,:5", "--json").json["mean"] == VALUES[2, :5].mean()


def test_stats_of_each_chunk(local, run):
    found = run("stats", local / "months/uneven", "--per-chunk", "--json").json
    assert [part["coords"] for part in found] == [[i, j] for i in range(2) for j in range(3)]
    assert found[5] == {
        "coords": [1, 2],
        "count": 20,
        "nan": 0,
        "min": VALUES[1:, 6:].min(),
        "max": 60,
        "mean": VALUES[1:, 6:].mean(),
    }
    text = run("stats", local / "months/uneven", "0", "--per-chunk").out.splitlines()
    assert text[0] == "(0, 0): count 3, nan 0, min 1, max 3, mean 2.0"
    assert len(text) == 3


def test_coverage(tree, run):
    for key in ("regular/c/0/1", "regular/c/2/0"):
        tree.store.delete([key])
    argv = ["coverage", *tree.argv, "--path", "regular"]
    assert run(*argv).out.splitlines() == [
        "█·",
        "██",
        "·█",
        "down axis 0, across axis 1; █ all, ▒ some, · none",
        "4 of 6 chunks are stored, 66.7%",
    ]
    assert run(*argv, "--json").json == {
        "grid_shape": [3, 2],
        "total": 6,
        "fraction": 4 / 6,
        "stored": [[0, 0], [1, 0], [1, 1], [2, 1]],
    }


def test_coverage_as_a_picture(local, run, tmp_path):
    ran = run("coverage", local / "months/uneven", "--svg", tmp_path / "map.svg")
    assert ran.out == f"6 of 6 chunks are stored, 100.0%; see {tmp_path / 'map.svg'}\n"
    assert (tmp_path / "map.svg").read_text().startswith("<svg")


def test_a_map_has_the_axes_with_the_most_chunks_and_fits():
    a = zellige.zeros((2, 60, 50), chunks=1, dtype="i1")
    a[:, :20, :25] = 1
    a[0, 20:40] = 1
    found = a.coverage()
    assert found.map_axes == (1, 2)
    lines = found.to_text(width=25, height=30).splitlines()
    assert lines == ["█" * 12 + "▒" + "·" * 12] * 10 + ["▒" * 25] * 10 + ["·" * 25] * 10
    assert zellige.zeros(()).coverage().to_text() == "·"
    assert zellige.zeros((0, 5), chunks=1).coverage().to_text() == ""


@pytest.mark.parametrize("command", ["head", "stats", "coverage", "explain"])
def test_a_group_is_no_array(local, run, command):
    ran = run(command, local)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"zellige {command}: '/' is a group; give an array in it by --path, zellige tree shows which there are\n"
    )
