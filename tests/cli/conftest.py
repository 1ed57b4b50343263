"""The command, run in this process, on the stores that the tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Archive, Ran, Tree, fill

import zellige
from zellige.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "stores"))

from servers import s3, s3_process

__all__ = ["s3", "s3_process"]


@pytest.fixture
def run(capsys) -> Callable[..., Ran]:
    """Runs a command here."""

    def run(*argv: object) -> Ran:
        capsys.readouterr()
        code = main([str(part) for part in argv])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture(params=["local", "zip", "s3"])
def tree(request, tmp_path) -> Tree:
    """The same tree in every kind of store."""
    if request.param == "local":
        place = tmp_path / "tree.zarr"
        return Tree(str(place), [], fill(place))
    if request.param == "zip":
        with zellige.storage.open_store(tmp_path / "tree.zip").store as store:
            fill(store)
        return Tree(str(tmp_path / "tree.zip"), [], Archive(tmp_path / "tree.zip"))
    server = request.getfixturevalue("s3")
    place, options = server.url(), server.options
    flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
    return Tree(place, flags, fill(place, storage_options=options), options)


@pytest.fixture
def local(tmp_path) -> Path:
    """The tree in a directory."""
    place = tmp_path / "local.zarr"
    fill(place)
    return place
