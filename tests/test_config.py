"""Settings: typed, for a while or for a process, from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import zellige


def test_config_for_a_while():
    before = repr(zellige.config)
    with zellige.config.set({"array.order": "F", "array.write_empty_chunks": True}) as config:
        assert config.get("array.order") == "F"
        array = zellige.zeros((2, 2))
        assert array.order == "F"
        assert array.config.write_empty_chunks
        assert zellige.zeros(2, order="C").order == "C"
        assert zellige.zeros(2, config={"write_empty_chunks": False}).config.write_empty_chunks is False
        assert zellige.zeros(2, config=array.config, order="C").config.write_empty_chunks
    assert repr(zellige.config) == before
    assert zellige.zeros(2).order == "C"
    zellige.config.set({"array.order": "F"})
    assert zellige.zeros(2).order == "F"
    zellige.config.set({"array.order": "C"})
    assert repr(zellige.config) == before


BAD_SETTINGS: list[tuple[type[Exception], dict[str, Any]]] = [
    (KeyError, {"array.colour": 1}),
    (ValueError, {"array.order": "K"}),
    (ValueError, {"array.write_empty_chunks": 1}),
    (ValueError, {"threading.max_workers": 0}),
    (ValueError, {"threading.max_workers": 1.5}),
    (ValueError, {"array.order": "F", "threading.max_workers": True}),
]


@pytest.mark.parametrize(("kind", "values"), BAD_SETTINGS, ids=repr)
def test_bad_settings_are_refused_and_change_nothing(kind, values):
    before = repr(zellige.config)
    with pytest.raises(kind):
        zellige.config.set(values)
    assert repr(zellige.config) == before
    with pytest.raises(KeyError, match="known"):
        zellige.config.get("array.colour")


def in_a_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(zellige.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_settings_from_the_environment():
    code = "import zellige; c = zellige.config; print([c.get(k) for k in {!r}])"
    keys = ["threading.max_workers", "array.order", "array.write_empty_chunks", "array.read_missing_chunks"]
    environment = {
        "ZELLIGE_THREADING__MAX_WORKERS": "3",
        "ZELLIGE_ARRAY__ORDER": "F",
        "ZELLIGE_ARRAY__WRITE_EMPTY_CHUNKS": "True",
        "ZELLIGE_ARRAY__READ_MISSING_CHUNKS": "false",
    }
    assert in_a_process(code.format(keys), **environment).stdout.strip() == "[3, 'F', True, False]"
    assert in_a_process(code.format(keys[:1]), ZELLIGE_THREADING__MAX_WORKERS="None").stdout.strip() == "[None]"
    failed = in_a_process("import zellige", ZELLIGE_THREADING__MAX_WORKERS="many")
    assert failed.returncode
    assert "threading.max_workers must be an integer >= 1" in failed.stderr
