"""What lies in the place of a chunk, or of its directory, and is none: no copy takes it for a missing chunk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zellige
from zellige.errors import ChunkNotFoundError, ZelligeError

VALUES = np.arange(1, 401).reshape(20, 20)
CHUNK, ROW, ALL = "c/0/1", "c/0", "c"


def an_empty_directory(path: Path) -> None:
    path.mkdir()


def a_full_directory(path: Path) -> None:
    path.mkdir()
    (path / "x").write_bytes(b"x")


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("gone")


def a_link_out(path: Path) -> None:
    outside = path.parents[4] / "outside"
    outside.write_bytes(b"outside")
    path.symlink_to(outside)


def a_circle(path: Path) -> None:
    path.symlink_to(path.name)


def a_file(path: Path) -> None:
    path.write_bytes(b"file")


OBSTACLES = [(CHUNK, make) for make in (an_empty_directory, a_full_directory, a_fifo, a_link_to_nothing, a_link_out)]
OBSTACLES += [(CHUNK, a_circle), (ROW, a_link_to_nothing), (ROW, a_file), (ALL, a_file)]

COPIES: dict[str, Callable[[str, str], Any]] = {
    "save": lambda place, other: zellige.save(other, zellige.open_array(place, mode="r")),
    "from_array": lambda place, other: zellige.from_array(other, data=zellige.open_array(place, mode="r")),
    "array": lambda place, _: zellige.array(zellige.open_array(place, mode="r")),
    "create_array": lambda place, other: zellige.create_array(other, data=zellige.open_array(place, mode="r")),
    "copy": lambda place, other: zellige.copy(place, other),
    "copy_store": lambda place, other: zellige.copy_store(place, other),
    "verified": lambda place, other: zellige.copy_store(place, other, verify=True),
    "zipped": lambda place, other: zellige.copy_store(place, f"{other}.zip"),
    "rechunk": lambda place, other: zellige.rechunk(place, other, chunks=(5, 20)),
}


@pytest.mark.parametrize(
    "layout", [{"chunks": (10, 10)}, {"chunks": (5, 5), "shards": (10, 10)}], ids=["chunks", "shards"]
)
@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize(("key", "make"), OBSTACLES, ids=lambda found: getattr(found, "__name__", found))
def test_a_copy_refuses_what_is_no_chunk(tmp_path, key, make, name, layout):
    place = tmp_path / "a/b/x.zarr"
    zellige.create_array(place, data=VALUES, fill_value=-7, **layout)
    blocked = place / key
    shutil.rmtree(blocked) if blocked.is_dir() else blocked.unlink()
    make(blocked)
    with pytest.raises((OSError, ZelligeError)):
        zellige.open_array(place, mode="r")[...]
    with pytest.raises((OSError, ZelligeError)):
        COPIES[name](str(place), str(tmp_path / "copy"))
    left = [*tmp_path.glob("copy/c/*"), *tmp_path.glob("copy.zip")]
    assert left == [], "values were written"


@pytest.mark.parametrize("name", ["save", "from_array", "array"])
def test_missing_chunks_that_are_errors_are_errors_of_a_copy(tmp_path, name):
    array = zellige.create_array(tmp_path / "x", shape=(10,), chunks=5, dtype="i4", fill_value=3)
    array[:5] = 1
    strict = array.with_config({"read_missing_chunks": False})
    copies = {
        "save": lambda: zellige.save(tmp_path / "y", strict),
        "from_array": lambda: zellige.from_array(None, data=strict),
        "array": lambda: zellige.array(strict),
    }
    with pytest.raises(ChunkNotFoundError, match="c/1"):
        copies[name]()
    strict[5:] = 2
    copies[name]()


@pytest.mark.parametrize("make", [an_empty_directory, a_full_directory])
@pytest.mark.parametrize("name", ["copy_all", "copy_store", "copy"])
def test_a_member_whose_metadata_is_a_directory_is_not_left_out_in_silence(tmp_path, make, name):
    place = tmp_path / "a/b/g"
    group = zellige.open_group(place, mode="w")
    for member in "ab":
        group.create_array(member, data=np.arange(4))
    (place / "a/zarr.json").unlink()
    make(place / "a/zarr.json")
    target = zellige.open_group(tmp_path / "h", mode="w")
    copies = {
        "copy_all": lambda: zellige.copy_all(zellige.open_group(place, mode="r"), target),
        "copy_store": lambda: zellige.copy_store(place, tmp_path / "h", dest_path="g"),
        "copy": lambda: zellige.copy(place, target, name="g"),
    }
    with pytest.raises((OSError, ZelligeError), match=r"a/zarr\.json"):
        copies[name]()
    assert [*zellige.open_group(tmp_path / "h", mode="r")] == []


def test_a_sparse_array_is_copied_as_it_is(tmp_path):
    array = zellige.create_array(tmp_path / "x", shape=(100, 100), chunks=(10, 10), dtype="i4")
    array[35, 35] = 1
    for copied in (zellige.from_array(tmp_path / "y", data=array), zellige.array(array)):
        assert copied.nchunks_initialized == 1
        assert np.array_equal(copied[...], array[...])
    zellige.copy_store(tmp_path / "x", tmp_path / "z")
    assert np.array_equal(zellige.open_array(tmp_path / "z")[...], array[...])
