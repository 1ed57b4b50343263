"""What is not as it should be on a disk: links that change, files of the wrong length or in the wrong place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import contents
from zellige import kernel
from zellige.errors import CorruptChunkError, NotANodeError, UnsafeLinkError
from zellige.storage import LocalStore, MemoryStore
from zellige.tools.copy import CopyError


@pytest.fixture(params=["kernel", "plain"], autouse=True)
def _path(request, monkeypatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(kernel, "native", None)


LAYOUTS: dict[str, dict[str, Any]] = {
    "raw": {"chunks": 4, "compressors": None},
    "zstd": {"chunks": 4},
    "shards": {"chunks": 2, "shards": 4},
}


@pytest.mark.parametrize("links", ["inside", "anywhere"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("place", ["root", "above"])
def test_a_handle_stays_with_its_directory_when_a_link_in_its_path_is_changed(tmp_path, place, layout, links):
    first, second = np.arange(8), np.arange(100, 108)
    for name, values in (("v1", first), ("v2", second)):
        zellige.create_array(tmp_path / name / "a", data=values, **LAYOUTS[layout])
    target = "v{}" if place == "above" else "v{}/a"
    link = tmp_path / "current"
    link.symlink_to(target.format(1))
    array = zellige.open_array(LocalStore(link / "a" if place == "above" else link, links=links), mode="r+")
    np.testing.assert_array_equal(array[...], first)
    (tmp_path / "new").symlink_to(target.format(2))
    os.replace(tmp_path / "new", link)
    array[1] = -1
    array[4:8] = -2
    array.append(np.full(4, 9))
    expected = [0, -1, 2, 3, -2, -2, -2, -2, 9, 9, 9, 9]
    assert array[...].tolist() == zellige.open_array(tmp_path / "v1/a")[...].tolist() == expected
    np.testing.assert_array_equal(zellige.open_array(tmp_path / "v2/a")[...], second)


WRONG = {
    "bytes in between": lambda raw: raw[:4] + b"\1\2\3" + raw[4:],
    "bytes at the end": lambda raw: raw + b"\1\2\3",
    "cut": lambda raw: raw[:200],
}


@pytest.mark.parametrize("index", [(3, 1), (slice(2, 4), slice(1, 3)), (slice(5, 20), slice(3, 30, 2)), ...])
@pytest.mark.parametrize("change", WRONG)
@pytest.mark.parametrize("store", ["local", "memory"])
def test_an_uncompressed_chunk_of_another_length_is_never_read(tmp_path, store, change, index):
    where: Any = MemoryStore() if store == "memory" else LocalStore(tmp_path)
    values = np.arange(1024, dtype="f4").reshape(32, 32)
    zellige.create_array(where, data=values, chunks=(8, 8), compressors=None)
    where.put("c/0/0", WRONG[change](where.get("c/0/0")))
    with pytest.raises(CorruptChunkError, match=r"256 bytes expected, (259|200) found|which has 200 bytes"):
        zellige.open_array(where)[index]


def test_a_file_in_the_place_of_a_directory_of_chunks_is_no_missing_chunk(tmp_path):
    array = zellige.create_array(tmp_path / "a", data=np.ones((4, 4)), chunks=(2, 2))
    for name in ("0/0", "0/1"):
        (tmp_path / "a/c" / name).unlink()
    (tmp_path / "a/c/0").rmdir()
    assert array[0, 0] == 0
    (tmp_path / "a/c/0").write_bytes(b"")
    for index in ((0, 0), ..., (slice(1, 3), 0)):
        with pytest.raises(NotADirectoryError, match=r"'c/0/[01]': a file is in the place of a directory"):
            array[index]
    assert array[2:].all()
    with pytest.raises(CopyError, match="a file in the place of a directory of chunks"):
        zellige.copy(array, zellige.create_group(tmp_path / "copies"), name="b")
    assert [*zellige.open_group(tmp_path / "copies").keys()] == []
    assert zellige.open_array(tmp_path / "a").shape == (4, 4)
    with pytest.raises(zellige.errors.ArrayNotFoundError):
        zellige.open_array(tmp_path / "a", path="c/0", mode="r")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_that_is_far_too_long_is_not_read_into_memory(tmp_path, layout):
    array = zellige.create_array(tmp_path / "a", data=np.arange(8), **LAYOUTS[layout])
    os.truncate(tmp_path / "a/c/0", 1 << 42)  # with a hole that takes no space
    with pytest.raises(CorruptChunkError, match=r"chunk \(0,\), key 'c/0'.*(4398046511104|shard's index)"):
        array[...]
    with pytest.raises(CorruptChunkError, match=r"chunk \(0,\), key 'c/0'.*(4398046511104|shard's index)"):
        array[1]
    assert array[4:].tolist() == [4, 5, 6, 7]


def test_what_a_link_puts_elsewhere_meanwhile_is_not_written_or_removed(tmp_path):
    array = zellige.create_array(tmp_path / "a", data=np.arange(16), chunks=4)
    assert array[...].sum() == 120  # directories were looked at
    (tmp_path / "a/c").rename(tmp_path / "outside")
    (tmp_path / "a/c").symlink_to(tmp_path / "outside")
    before = {path.name: path.read_bytes() for path in (tmp_path / "outside").iterdir()}
    for change in (
        lambda: array.__setitem__(slice(0, 4), 9),
        lambda: array.__setitem__(1, 9),
        lambda: array.__setitem__(slice(0, 4), 0),
        lambda: array.store.delete(["c/0"]),
    ):
        with pytest.raises(UnsafeLinkError, match="a link leads out of"):
            change()
    assert {path.name: path.read_bytes() for path in (tmp_path / "outside").iterdir()} == before


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_opening_makes_no_group_of_an_array_whose_document_was_lost(tmp_path, zarr_format):
    zellige.create_array(tmp_path / "a", data=np.arange(16).reshape(4, 4), chunks=2, zarr_format=zarr_format)
    document = tmp_path / "a" / ("zarr.json" if zarr_format == 3 else ".zarray")
    kept = document.read_bytes()
    document.unlink()
    files = sorted(Path(tmp_path / "a").rglob("*"))
    with pytest.raises(NotANodeError, match="looks like a chunk of a lost array"):
        zellige.open(tmp_path / "a")
    assert sorted(Path(tmp_path / "a").rglob("*")) == files
    document.write_bytes(kept)
    assert zellige.open(tmp_path / "a").shape == (4, 4)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("x")
    zellige.create_group(tmp_path / "other", path="c")
    os.unlink(tmp_path / "other/zarr.json")
    assert isinstance(zellige.open(tmp_path / "other"), zellige.Group)  # of what is no array, as ever


@pytest.mark.parametrize("layout", [{"chunks": 4}, {"chunks": 2, "shards": 4}], ids=["chunks", "shards"])
def test_a_part_is_not_written_to_a_file_that_is_far_too_long_nor_is_it_read(tmp_path, layout):
    array = zellige.create_array(tmp_path / "a", data=np.arange(1, 17), compressors=None, **layout)
    os.truncate(tmp_path / "a/c/0", 1 << 42)  # with a hole that takes no space
    with pytest.raises(CorruptChunkError, match=r"chunk \(0,\), key 'c/0'"):
        array[1] = 5
    assert os.path.getsize(tmp_path / "a/c/0") == 1 << 42
    array.resize((2,))  # what lies beyond is an error for those who read it, and so is never old data
    with pytest.raises(CorruptChunkError, match=r"chunk \(0,\), key 'c/0'"):
        array[...]
    array[...] = [7, 8]  # all that the array has of it
    array.resize((4,))
    assert array[...].tolist() == [7, 8, 0, 0]


@pytest.mark.parametrize("new", [{"data": np.ones((4, 4)), "chunks": 2}, {"shape": 3}, {"shape": (4, 4)}], ids=str)
def test_overwriting_removes_nothing_where_a_file_is_in_the_place_of_a_directory(tmp_path, new):
    zellige.create_array(tmp_path / "a", data=np.arange(16).reshape(4, 4), chunks=2)
    shutil.rmtree(tmp_path / "a/c/0")
    (tmp_path / "a/c/0").write_bytes(b"")
    before = contents(zellige.LocalStore(tmp_path))
    for _ in range(2):
        with pytest.raises(NotANodeError, match=r"key 'a?/?c/0'.*nothing was removed.*Remove that key first"):
            zellige.create_array(tmp_path / "a", overwrite=True, **new)
        assert contents(zellige.LocalStore(tmp_path)) == before
    (tmp_path / "a/c/0").unlink()
    zellige.create_array(tmp_path / "a", overwrite=True, **new)
