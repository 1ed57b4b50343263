"""Programs written for zarr-python do the same with zellige when only their imports change.

Each of tests/scripts runs twice, with either library in a directory of its own; what they print, and what they
leave on disk, must be the same. A script with the comment `# zellige only` says why the peer cannot run it, and
checks its results itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import zellige

zarr = pytest.importorskip("zarr", reason="the peer zarr-python is missing: pip install 'zarr>=3.1'")

SCRIPTS = {path.stem: path for path in sorted((Path(__file__).parents[1] / "scripts").glob("*.py"))}
OURS_ONLY = "# zellige only"

every_script = pytest.mark.parametrize("name", SCRIPTS)
every_shared_script = pytest.mark.parametrize(
    "name", [name for name, path in SCRIPTS.items() if OURS_ONLY not in path.read_text()]
)


def with_our_imports(source: str) -> str:
    """A script as its author would change it: the imports, and nothing else."""
    source = re.sub(r"^import zarr$", "import zellige as zarr", source, flags=re.MULTILINE)
    return re.sub(r"^from zarr\b", "from zellige", source, flags=re.MULTILINE)


@contextlib.contextmanager
def quiet(library: ModuleType) -> Iterator[None]:
    """The peer warns of types without a specification and of names that it will drop; that is its own affair."""
    with warnings.catch_warnings():
        if library is zarr:
            warnings.simplefilter("ignore")
        yield


def execute(source: str, path: Path, place: Path) -> list[str]:
    """What a script prints in a directory; empty lines do not count."""
    before, printed = Path.cwd(), io.StringIO()
    os.chdir(place)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
    finally:
        os.chdir(before)
    return [line.rstrip() for line in printed.getvalue().splitlines() if line.strip()]


class Run(NamedTuple):
    """What became of a script."""

    place: Path
    printed: list[str]
    error: Exception | None = None


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Run a script with one of the libraries, once."""

    @cache
    def run(name: str, library: ModuleType) -> Run:
        path, place = SCRIPTS[name], tmp_path_factory.mktemp(f"{name}-{library.__name__}")
        source = path.read_text()
        try:
            with quiet(library):
                return Run(place, execute(with_our_imports(source) if library is zellige else source, path, place))
        except Exception as error:  # noqa: BLE001
            return Run(place, [], error)
        finally:
            library.config.reset()

    return run


@pytest.fixture
def both(name, run) -> tuple[Run, Run]:
    """The same script with ours and with theirs."""
    ours, theirs = run(name, zellige), run(name, zarr)
    if theirs.error is not None:
        raise theirs.error
    if ours.error is not None:
        pytest.skip("the script does not run with zellige; another test says why")
    return ours, theirs


@every_script
def test_a_script_runs_with_only_its_imports_changed(name, run):
    source = SCRIPTS[name].read_text()
    pairs = zip(source.splitlines(), with_our_imports(source).splitlines(), strict=True)
    changed = [old for old, new in pairs if old != new]
    assert "import zarr" in changed
    assert all(re.match(r"(import zarr$|from zarr\b)", line) for line in changed)
    if (error := run(name, zellige).error) is not None:
        raise error


@every_shared_script
def test_a_script_prints_the_same_with_either_library(both):
    ours, theirs = both
    assert ours.printed == theirs.printed
    assert theirs.printed  # and not nothing


def test_few_scripts_need_zellige():
    assert len(SCRIPTS) >= 20
    assert sum(OURS_ONLY in path.read_text() for path in SCRIPTS.values()) <= 4


# -- what they leave on disk ----------------------------------------------------------------------


def contents(library: ModuleType, place: Path) -> dict[str, Any]:
    """All nodes of all hierarchies in a directory, as a library sees them."""
    found: dict[str, Any] = {}
    for root in sorted(path for path in place.rglob("*.zarr") if path.is_dir()):
        node = library.open(root, mode="r")
        found[root.name] = described(library, node)
        if isinstance(node, library.Group):
            members = node.members(max_depth=None)
            found |= {f"{root.name}/{name}": described(library, member) for name, member in members}
    return found


# What the peer cannot read; such cases are skipped with this reason.
LIMITS = (
    {} if hasattr(zarr.dtype, "Struct") else {"07_structured": "this zarr-python does not know the data type struct"}
)


def described(library: ModuleType, node: Any) -> tuple[Any, ...]:
    if isinstance(node, library.Group):
        return "group", node.metadata.zarr_format, dict(node.attrs)
    chunks = node.chunks, node.shards
    return "array", node.metadata.zarr_format, dict(node.attrs), node.shape, chunks, node.dtype, np.asarray(node[...])


@every_shared_script
@pytest.mark.parametrize("library", [zellige, zarr], ids=["we read", "they read"])
def test_a_script_leaves_the_same_hierarchies_with_either_library(name, library, both):
    if library is zarr and name in LIMITS:
        pytest.skip(LIMITS[name])
    with quiet(library):
        ours, theirs = (contents(library, run.place) for run in both)
    assert ours.keys() == theirs.keys()
    for path, expected in theirs.items():
        np.testing.assert_equal(ours[path], expected, err_msg=path)
