"""Run by the interpreter of zarr-python 3.4 or newer: writes and reads arrays with its newer codecs.

`write DIR` makes one array for each case of cases.json in DIR, with its .npy beside it; `read DIR` saves the
values of every array there as .npy.
"""

import json
import sys
from pathlib import Path

import numpy as np

import zarr


def main(command: str, folder: Path) -> None:
    for name, case in json.loads((folder / "cases.json").read_text()).items():
        if command == "write":
            data = np.load(folder / f"{name}.data.npy")
            array = zarr.create_array(
                folder / name,
                shape=data.shape,
                chunks=(3, 4),
                dtype=data.dtype,
                filters=case["filters"],
                compressors=None,
                fill_value=case["fill"],
            )
            array[...] = data
        np.save(folder / f"{name}.found.npy", zarr.open_array(folder / name, mode="r")[...])


main(sys.argv[1], Path(sys.argv[2]))
