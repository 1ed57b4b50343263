"""Stores of zellige as stores of zarr-python: its own suite for stores, and reading and writing through them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zarr.core.buffer import cpu
from zarr.testing.store import StoreTests

import zarr
import zellige
import zellige.zarr
from zellige.storage import CacheStore, PrefixStore
from zellige.zarr.store import ZelligeStore


class TestSuite(StoreTests[ZelligeStore, cpu.Buffer]):
    """The suite that zarr-python has for stores."""

    store_cls = ZelligeStore
    buffer_cls = cpu.Buffer

    @pytest.fixture(params=["local", "prefix", "cache"])
    def store_kwargs(self, request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
        local = zellige.LocalStore(tmp_path)
        kinds = {"local": local, "prefix": PrefixStore(local, "a/b"), "cache": CacheStore(local)}
        return {"store": kinds[request.param]}

    async def set(self, store: ZelligeStore, key: str, value: cpu.Buffer) -> None:
        store.zellige_store.put(key, value.to_bytes())

    async def get(self, store: ZelligeStore, key: str) -> cpu.Buffer:
        return self.buffer_cls.from_bytes(store.zellige_store.get(key))

    def test_store_repr(self, store: ZelligeStore) -> None:
        assert repr(store).startswith("ZelligeStore(")

    def test_store_supports_writes(self, store: ZelligeStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: ZelligeStore) -> None:
        assert store.supports_listing


def test_a_zip_file_is_there_when_the_store_is_closed(tmp_path):
    with zellige.zarr.as_store(tmp_path / "x.zip") as store:
        zarr.save_array(store, np.arange(10))
        assert not (tmp_path / "x.zip").exists()
    assert zellige.load(tmp_path / "x.zip").tolist() == list(range(10))
    assert zarr.load(zellige.zarr.as_store(tmp_path / "x.zip", read_only=True)).tolist() == list(range(10))


def test_a_path_within_becomes_the_root(tmp_path):
    zellige.save(tmp_path, a=np.arange(3))
    assert zarr.open_array(zellige.zarr.as_store(tmp_path, path="a"), mode="r")[:].tolist() == [0, 1, 2]


def test_a_read_only_store_refuses_to_write(tmp_path):
    zellige.save(tmp_path, np.arange(3))
    store = zellige.zarr.as_store(tmp_path, read_only=True)
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_array(store, mode="r+")[:] = 1
    assert pickle.loads(pickle.dumps(store)) == store
    writable = zellige.zarr.as_store(tmp_path)
    assert writable.with_read_only(True).read_only
    assert writable.with_read_only(True) != writable


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("enabled", [False, True])
def test_hierarchies_are_written_and_read(enabled, tmp_path):
    if enabled:
        zellige.zarr.enable()
    try:
        root = zarr.create_group(zellige.zarr.as_store(tmp_path))
        root.create_group("a").create_array("b", data=np.arange(20).reshape(4, 5), chunks=(2, 2))
        root["a/b"][1:3, 1:] = 7
        zarr.consolidate_metadata(root.store)
        assert list(zarr.open_group(root.store, mode="r")["a"].array_keys()) == ["b"]
        del root["a/b"]
        assert list(root["a"].keys()) == []
    finally:
        zellige.zarr.disable()
