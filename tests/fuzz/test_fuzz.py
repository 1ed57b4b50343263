"""The targets of the fuzzer without the fuzzer: all that it ever found, where it begins, and some random changes."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
import targets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run import FINDS, LONGEST, keeping, slug
from targets import TARGETS

LONG = os.environ.get("ZELLIGE_LONG") == "1"

FOLDERS = {slug(target): target for target in TARGETS}
KEPT = sorted(path for path in FINDS.glob("*/*") if path.is_file()) if FINDS.exists() else []

every_target = pytest.mark.parametrize("target", TARGETS)


@cache
def begin(target: str) -> list[bytes]:
    return [seed for seed in targets.seeds(target) if len(seed) <= LONGEST]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_find_stays_found(path: Path):
    TARGETS[FOLDERS[path.parent.name]](path.read_bytes())


def test_finds_are_kept_for_targets_that_there_are():
    assert {path.parent.name for path in KEPT} <= FOLDERS.keys()


@every_target
def test_what_the_fuzzer_begins_with_keeps_the_promises(target):
    assert begin(target)
    for data in begin(target):
        TARGETS[target](data)


@every_target
@settings(
    max_examples=2000 if LONG else 40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=not LONG
)
@given(st.data())
def test_random_changes_keep_the_promises(target, data):
    raw = data.draw(st.sampled_from(begin(target)))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        stop = data.draw(st.integers(start, min(len(raw), start + 8)))
        raw = raw[:start] + data.draw(st.binary(max_size=8)) + raw[stop:]
    TARGETS[target](raw)


@every_target
@settings(max_examples=500 if LONG else 10, deadline=None, derandomize=not LONG)
@given(data=st.binary(max_size=64))
def test_random_bytes_keep_the_promises(target, data):
    TARGETS[target](data)


def test_a_broken_promise_is_kept_once_for_each_place(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("run.FINDS", tmp_path)

    def check(data: bytes) -> None:
        if data.startswith(b"a"):
            raise ValueError("a promise")
        assert data != b"b"

    run = keeping("some target", check)
    for data in (b"a", b"aa", b"b", b"c"):
        run(data)
    kept = sorted(path.read_bytes() for path in (tmp_path / "some_target").iterdir())
    assert kept == [b"a", b"b"]
    assert capsys.readouterr().out.count("FIND") == 2
