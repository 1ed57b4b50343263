"""Run by the interpreter of zarr-python 3.4 or newer: says what it sees of the groups in a directory.

Prints a JSON object: for each way to look, by its name, the `repr` of what came of it, or `error` and its words. It
also sets the attribute `theirs` of what it looks at.
"""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import zarr

warnings.simplefilter("ignore")  # of consolidated metadata, which is tested here


def attempt(look: Callable[[], object]) -> str:
    """What comes of it; an error is an answer too."""
    try:
        return repr(look())
    except Exception as error:  # noqa: BLE001
        return f"error {error}"


def main(folder: Path) -> dict[str, str]:
    """Look at everything."""
    found = {}
    for form in (2, 3):
        group = zarr.open_group(folder / f"finite{form}", mode="r+")
        found[f"attributes {form}"] = attempt(lambda group=group: (dict(group.attrs), dict(group["a"].attrs)))
        group.attrs["theirs"] = float("nan")
        group["a"].attrs["theirs"] = [float("inf")]
    array = zarr.open_array(folder / "nofill", mode="r+")
    found["no fill value"] = attempt(lambda: (array.fill_value, array[:].tolist()))
    array.attrs["theirs"] = 1
    place = folder / "rectilinear"
    plain = {"mode": "r", "use_consolidated": False}
    found["by default"] = attempt(lambda: zarr.open_group(place, mode="r")["even"][:].tolist())
    found["even"] = attempt(lambda: zarr.open_group(place, **plain)["even"][:].tolist())
    found["months"] = attempt(lambda: zarr.open_group(place, **plain)["months"][:].tolist())
    with zarr.config.set({"array.rectilinear_chunks": True}):
        found["setting"] = attempt(lambda: sorted(name for name, _ in zarr.open_group(place, mode="r").members()))
        found["months with setting"] = attempt(lambda: int(zarr.open_group(place, mode="r")["months"][:].sum()))
    return found


print(json.dumps(main(Path(sys.argv[1]))))
