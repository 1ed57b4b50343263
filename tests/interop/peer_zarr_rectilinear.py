"""The peer's side of test_rectilinear_zarr.py, run by an interpreter that has zarr-python 3.4 or newer.

    write DIR   make and change the arrays that DIR/cases.json describes, then read them
    read DIR    read every array in DIR

Prints a JSON object: for each array its shape and chunks as zarr-python sees them, or its `error`. The
values go to DIR/NAME.npy.
"""

from __future__ import annotations

import json
import pathlib
import sys
import traceback

import numpy as np

import zarr

OLDEST = 3, 4


def main(command: str, directory: str) -> dict:
    """Do a command for all arrays of a directory."""
    root = pathlib.Path(directory)
    if command == "write":
        cases = json.loads((root / "cases.json").read_text())
    elif command == "read":
        cases = {path.parent.name: {} for path in root.glob("*/zarr.json")}
    else:
        raise SystemExit(f"unknown command {command!r}; known: write, read")
    return {name: attempt(root / name, **case) for name, case in cases.items()}


def attempt(path: pathlib.Path, **case: object) -> dict:
    """One array; an error is an answer too, so that the other arrays get theirs."""
    try:
        return answer(path, **case)
    except Exception:  # noqa: BLE001
        return {"error": traceback.format_exc()}


def answer(path: pathlib.Path, create: dict | None = None, steps: list[dict] | None = None) -> dict:
    """Make, change and read one array."""
    array = zarr.open_array(path, mode="r+") if create is None else zarr.create_array(path, **create)
    for step in steps or []:
        change(array, **step)
    array = zarr.open_array(path, mode="r")
    np.save(path.with_name(path.name + ".npy"), array[...])
    grid = array.metadata.to_dict()["chunk_grid"]
    return {
        "shape": array.shape,
        "sizes": [list(map(int, sizes)) for sizes in array.write_chunk_sizes],
        "grid_shape": array.cdata_shape,
        "declared": grid["configuration"].get("chunk_shapes"),
    }


def change(array: zarr.Array, do: str, **how: object) -> None:
    """One step: write, resize or append."""
    if do == "write":
        region = tuple(slice(*bounds) for bounds in how["region"])
        array[region] = np.array(how["values"]).astype(array.dtype)
    elif do == "resize":
        array.resize(tuple(how["shape"]))
    elif do == "append":
        array.append(np.array(how["values"]).astype(array.dtype), axis=how["axis"])
    else:
        raise ValueError(f"unknown step {do!r}")


if __name__ == "__main__":
    if tuple(map(int, zarr.__version__.split(".")[:2])) < OLDEST:
        raise SystemExit(f"zarr-python {zarr.__version__} is too old; rectilinear chunks need 3.4 or newer")
    zarr.config.set({"array.rectilinear_chunks": True})
    print(json.dumps(main(*sys.argv[1:])))
