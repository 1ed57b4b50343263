"""`scale_offset` and `cast_value`, which zarr-python has since 3.4, in both directions."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import zellige

NAMED = os.environ.get("ZELLIGE_PEER_PYTHON")
PYTHON = NAMED or str(Path(__file__).parents[2] / ".venv-peer" / "bin" / "python")
SCRIPT = Path(__file__).with_name("peer_zarr_codecs.py")

if not NAMED and not os.access(PYTHON, os.X_OK):
    pytest.skip(
        "zarr-python 3.4 or newer is missing, which has these codecs: ZELLIGE_PEER_PYTHON is not set and there is no "
        ".venv-peer/bin/python; `make peer` makes it, with a Python 3.12 or newer on the machine",
        allow_module_level=True,
    )

DATA = np.arange(35).reshape(5, 7)


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}


# Each is: the data, the filters, the fill value.
CASES = {
    "offset": (DATA.astype("uint16") + 1000, [codec("scale_offset", offset=1000, scale=1)], 1000),
    "scaled float": (DATA.astype("float64") / 4, [codec("scale_offset", offset=-10.0, scale=4.0)], 0.0),
    "cast": (DATA.astype("float64"), [codec("cast_value", data_type="uint8")], 0.0),
    "rounded": (DATA / 8, [codec("cast_value", data_type="int16", rounding="towards-zero")], 0.0),
    "clamped": (DATA.astype("int32") * 10, [codec("cast_value", data_type="int8", out_of_range="clamp")], 0),
    "wrapped": (DATA.astype("int32") * 10, [codec("cast_value", data_type="uint8", out_of_range="wrap")], 0),
    "packed with NaN": (
        np.where(DATA % 5 == 0, np.nan, DATA.astype("float64")),
        [
            codec("scale_offset", offset=-10.0, scale=2.0),
            codec(
                "cast_value",
                data_type="uint8",
                rounding="nearest-even",
                scalar_map={"encode": [["NaN", 0]], "decode": [[0, "NaN"]]},
            ),
        ],
        0.0,
    ),
}


def run(command, folder):
    cases = {name: {"filters": filters, "fill": fill} for name, (_, filters, fill) in CASES.items()}
    (folder / "cases.json").write_text(json.dumps(cases))
    found = subprocess.run([PYTHON, str(SCRIPT), command, str(folder)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theirs")
    for name, (data, _, _) in CASES.items():
        np.save(folder / f"{name}.data.npy", data)
    run("write", folder)
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    for name, (data, filters, fill) in CASES.items():
        zellige.create_array(
            folder / name, data=data, chunks=(3, 4), filters=filters, compressors=None, fill_value=fill
        )
    run("read", folder)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_we_read_what_they_write(written, name):
    np.testing.assert_array_equal(zellige.open(written / name, mode="r")[...], np.load(written / f"{name}.found.npy"))


@pytest.mark.parametrize("name", CASES)
def test_they_read_what_we_write(ours, name):
    np.testing.assert_array_equal(np.load(ours / f"{name}.found.npy"), zellige.open(ours / name, mode="r")[...])


@pytest.mark.parametrize("name", CASES)
def test_both_store_the_same_bytes(written, ours, name):
    def chunks(folder):
        return {str(f.relative_to(folder)): f.read_bytes() for f in (folder / "c").rglob("*") if f.is_file()}

    assert chunks(ours / name) == chunks(written / name)
