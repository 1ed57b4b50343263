"""The code in the guides runs, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from xarray_data import ROOT, install_engine

GUIDES = [ROOT / "docs" / name for name in ("dask.md", "xarray.md")]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_code_in_a_guide_runs(guide: Path, tmp_path, monkeypatch):
    install_engine(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 4
    namespace: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{guide.name}, block {number}", "exec"), namespace)
