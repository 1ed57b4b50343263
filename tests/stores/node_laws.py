"""Arrays and groups that must come back from every store, whatever it is."""

from __future__ import annotations

from typing import Any

import numpy as np

import zellige
from zellige.stores import Store

MODEL = np.random.default_rng(7).integers(0, 1000, size=(23, 31))

ARRAYS: dict[str, dict[str, Any]] = {
    "regular": {"chunks": (5, 7)},
    "rectilinear": {"chunks": [[3, 10, 10], [30, 1]]},
    "half": {"chunks": [5, [1, 30]]},
    "sharded": {"chunks": (2, 3), "shards": (10, 12)},
    "uneven": {"chunks": (2, 3), "shards": [[4, 10, 10], 12]},
    "v2": {"chunks": (5, 7), "zarr_format": 2},
}
RECTILINEAR = {"rectilinear", "half", "uneven"}


def check_arrays(store: Store, *, written: bool = False, without: frozenset[str] | set[str] = frozenset()) -> None:
    """Create, change, resize and append to arrays of each kind, and read them; or only read what was so written."""
    for name, options in ARRAYS.items():
        if name in without:
            continue
        path = f"arrays/{name}" if options.get("zarr_format") != 2 else "v2"
        model = MODEL.copy()
        if not written:
            array = zellige.create_array(store, name=path, data=model, fill_value=-1, **options)
            array[4:9, 2:20] = 0
            array.attrs["kind"] = name
            array.append(model[:4])
            array.resize((20, 25))
            array.resize((23, 31))
        model[4:9, 2:20] = 0
        model[20:] = -1
        model[:, 25:] = -1
        found = zellige.open_array(store, path=path)
        assert np.array_equal(found[...], model), name
        assert np.array_equal(found[3:17:2, ::-3], model[3:17:2, ::-3]), name
        assert found.attrs["kind"] == name


def check_groups(store: Store, *, written: bool = False) -> None:
    """Create a hierarchy, move and delete in it, and go through it; or only go through what was so written."""
    if not written:
        root = zellige.create_group(store, path="groups", attributes={"a": 1})
        root.create_group("x/y")
        root.create_array("x/data", data=np.arange(10), chunks=4)
        root.create_array("gone", data=np.arange(10), chunks=4)
        root.attrs["b"] = [1, 2]
        root.move("x/data", "x/y/moved")
        del root["gone"]
    found = zellige.open_group(store, path="groups")
    assert dict(found.attrs) == {"a": 1, "b": [1, 2]}
    assert sorted(path for path, _ in found.members(max_depth=None)) == ["x", "x/y", "x/y/moved"]
    assert np.array_equal(found["x/y/moved"][...], np.arange(10))
