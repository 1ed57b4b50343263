"""A small hierarchy that tests of groups look at, and what it should look like."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import zellige

FORMATS = [3, 2]

FAMILY = {
    "a": None,
    "a/b": None,
    "a/b/v": np.array([[1, 2], [3, 4]], "int16"),
    "a/u": np.array([5, 6, 7], "int32"),
    "empty": None,
    "t": np.array([0.5, 1.5]),
}
"""Arrays, and None for groups, by their paths."""


def family(store: Any = None, zarr_format: int = 3) -> zellige.Group:
    root = zellige.create_group(store, zarr_format=zarr_format)
    for path, values in FAMILY.items():
        if values is None:
            root.create_group(path, attributes={"path": path})
        else:
            root.create_array(path, data=values, chunks=2, attributes={"path": path})
    return root


def below(group: zellige.Group) -> dict[str, Any]:
    """Everything below a group, in the form of `FAMILY`."""
    found = group.members(max_depth=None)
    return {path: node[...].tolist() if isinstance(node, zellige.Array) else None for path, node in found}


def expected_below(**changes: Any) -> dict[str, Any]:
    return {path: None if values is None else values.tolist() for path, values in {**FAMILY, **changes}.items()}


def strict(raw: bytes | None) -> Any:
    """A document, which must be JSON by the letter."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert raw is not None
    return json.loads(raw.decode("utf-8"), parse_constant=refuse)
