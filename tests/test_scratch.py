"""Scratch memory: where it begins, which decides how fast the system and numpy copy."""

from __future__ import annotations

import numpy as np
import pytest

from zellige import scratch


def address(memory: memoryview) -> int:
    return int(np.frombuffer(memory, np.uint8).__array_interface__["data"][0])


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(scratch._local, "buffers", {})


@pytest.mark.parametrize("nbytes", [1, 4096, 1 << 20, 40 << 20])
def test_memory_to_work_in_begins_at_a_cache_line(nbytes):
    memory = scratch.buffer("row", nbytes)
    assert len(memory) == nbytes
    assert address(memory) % 64 == 0


@pytest.mark.parametrize("slot", ["file", "chunks", "piece"])
def test_memory_that_files_are_read_into_begins_beside_one_but_suits_all_elements(slot):
    """Whatever it grows to: so the system fills it faster, and every type of numpy is aligned in it."""
    for nbytes in (1, 4096, 1 << 20, 40 << 20):
        memory = scratch.buffer(slot, nbytes)
        assert len(memory) == nbytes
        assert address(memory) % 32 == 16
        assert np.ndarray(nbytes // 32, np.clongdouble, memory).flags.aligned
