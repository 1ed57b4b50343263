"""What zarr-python 3.4 or newer sees of our groups: attributes, arrays without a fill value, rectilinear members."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import zellige
from zellige.errors import CompatibilityWarning

NAMED = os.environ.get("ZELLIGE_PEER_PYTHON")
PYTHON = NAMED or str(Path(__file__).parents[2] / ".venv-peer" / "bin" / "python")
SCRIPT = Path(__file__).with_name("peer_zarr_hierarchies.py")

if not NAMED and not os.access(PYTHON, os.X_OK):
    pytest.skip(
        "zarr-python 3.4 or newer is missing, which has rectilinear chunks: ZELLIGE_PEER_PYTHON is not set and there "
        "is no .venv-peer/bin/python; `make peer` makes it, with a Python 3.12 or newer on the machine",
        allow_module_level=True,
    )

ODD = {"x": math.nan, "y": [-math.inf, {"z": math.inf}], "text": "NaN"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    for form in (2, 3):
        root = zellige.create_group(folder / f"finite{form}", zarr_format=form, attributes=ODD)
        root.create_array("a", data=[1, 2], attributes=ODD)
        zellige.consolidate_metadata(folder / f"finite{form}")
    zellige.create_array(folder / "nofill", data=[0, 1, 2], zarr_format=2, fill_value=None)
    root = zellige.create_group(folder / "rectilinear")
    root.create_array("even", data=[1, 2])
    root.create_array("months", data=np.arange(59), chunks=[[31, 28]])
    return folder


@pytest.fixture(scope="module")
def warned(folder) -> str:
    """What we say when the group with rectilinear chunks is consolidated."""
    with pytest.warns(CompatibilityWarning) as caught:
        zellige.consolidate_metadata(folder / "rectilinear")
    return str(caught[0].message)


@pytest.fixture(scope="module")
def seen(folder, warned) -> dict[str, str]:
    """What zarr-python says about all of them."""
    found = subprocess.run([PYTHON, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout)


@pytest.mark.parametrize("form", [2, 3])
def test_attributes_that_are_not_finite(folder, seen, form):
    assert seen[f"attributes {form}"] == repr((ODD, ODD))
    root = zellige.open_group(folder / f"finite{form}", use_consolidated=False)
    assert repr(root.attrs.asdict()) == repr({**ODD, "theirs": math.nan})
    assert repr(root["a"].attrs.asdict()) == repr({**ODD, "theirs": [math.inf]})


def test_an_array_without_a_fill_value(folder, seen):
    assert seen["no fill value"] == "(None, [0, 1, 2])"
    array = zellige.open_array(folder / "nofill")
    assert (array.fill_value, array.attrs.asdict()) == (None, {"theirs": 1})


def test_a_rectilinear_member_needs_what_our_warning_says(seen, warned):
    assert "'array.rectilinear_chunks'" in seen["by default"]
    assert seen["by default"].startswith("error")
    # Without the setting: the group by its own document, and regular members by their names.
    assert "use_consolidated=False" in warned
    assert seen["even"] == "[1, 2]"
    assert seen["months"].startswith("error")
    # With the setting, everything.
    assert "zarr.config.set({'array.rectilinear_chunks': True})" in warned
    assert seen["setting"] == "['even', 'months']"
    assert seen["months with setting"] == str(sum(range(59)))
