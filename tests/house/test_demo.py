"""What people try first: the examples, and the commands that a Makefile and a README promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import zellige

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("kernel", ["", "off"], ids=["kernel", "plain"])
def test_an_example_runs_twice_in_one_place(path, kernel, tmp_path):
    environment = {**os.environ, "ZELLIGE_KERNEL": kernel, "ZELLIGE_REQUIRE_KERNEL": ""}
    environment["PYTHONPATH"] = str(Path(zellige.__file__).parents[1])
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "All values read back equal" in done.stdout
