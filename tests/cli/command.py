"""What the tests of the command share: running it, and the nodes that it is run on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import zellige

SOURCE = Path(zellige.__file__).parents[1]


@dataclass
class Ran:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def process(*argv: object, cwd: Path | None = None, code: str | None = None, **environment: str) -> Ran:
    """Runs a command in a process of its own."""
    program = ["-m", "zellige"] if code is None else ["-c", code]
    done = subprocess.run(
        [sys.executable, *program, *map(str, argv)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80", **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


VALUES = np.arange(1, 61, dtype="int32").reshape(6, 10)


def fill(store: Any, **options: Any) -> Any:
    """A tree with arrays of every kind: regular, rectilinear, sharded, and of Zarr format 2."""
    root = zellige.create_group(store, attributes={"title": "all kinds"}, **options)
    where = root.store
    root.create_array("regular", data=VALUES, chunks=(2, 5))
    root.create_array("months/uneven", data=VALUES, chunks=([1, 5], [3, 3, 4]), dimension_names=["day", "place"])
    root.create_array("sharded", data=VALUES, chunks=(2, 5), shards=(6, 10))
    zellige.create_array(where, name="old", data=VALUES, chunks=(4, 10), zarr_format=2)
    return where


ARRAYS = ["regular", "months/uneven", "sharded", "old"]


class Archive:
    """A zip file that is opened for each call, since a command replaces it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            writes = name in ("put", "delete")
            with zellige.storage.open_store(self._file, read_only=not writes).store as store:
                found = getattr(store, name)(*given)
                return list(found) if name == "list" else found

        return call


@dataclass
class Tree:
    """A filled store, and how a command is told where it is."""

    place: str
    options: list[str]
    store: Any
    storage_options: dict[str, Any] | None = None

    def open(self, path: str = "") -> Any:
        """The node at a path, as it is now."""
        return zellige.open(self.place, path=path, mode="r", storage_options=self.storage_options)

    @property
    def argv(self) -> list[str]:
        return [self.place, *self.options]
