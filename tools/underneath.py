"""zarr-python's own tests, with zellige underneath: `make underneath`.

Takes the tests from the source distribution of the zarr-python that is installed, runs them with
`codec_pipeline.path` set to `zellige.zarr.Pipeline`, and prints how many pass and how many of their reads and writes
zellige did. Fails if a test fails that is not among `EXCEPTIONS`, or if zellige did less than it used to.
"""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

TESTS = (
    "test_indexing.py",
    "test_codec_pipeline.py",
    "test_codec_pipeline_suite.py",
    "test_pipeline_parity.py",
    "test_v2.py",
    "test_resize.py",
    "test_unified_chunk_grid.py",
    "test_codecs/test_sharding.py",
)

EXCEPTIONS = {
    "test_sharding_partial_shard_read__index_chunk_slice_fails": "replaces what zarr-python's own codec calls",
    "test_encoded_subchunk_write_order": "inner chunks are stored in C order, whatever the codec's option says",
}
"""Tests that fail with zellige underneath, and why."""

LEAST = 0.9
"""The least share of reads and writes that zellige does; the rest are mocks, text and stores of the tests' own."""


# -- as a plugin of pytest, in the process of the tests ---------------------------------------------


def pytest_configure(config: Any) -> None:
    """Count the batches that zellige does, and those that it leaves to zarr-python."""
    from zellige.zarr.pipeline import Pipeline

    config.batches = counts = collections.Counter()
    operation = Pipeline._operation

    def counted(self: Pipeline, batch: Any, *rest: Any) -> Any:
        found = operation(self, batch, *rest)
        counts["zarr-python" if found is None else "zellige"] += bool(batch)
        return found

    Pipeline._operation = counted  # type: ignore[method-assign]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Mark the tests that are known to fail."""
    import pytest

    for item in items:
        if reason := EXCEPTIONS.get(item.originalname):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


def pytest_sessionfinish(session: Any) -> None:
    """Fail if zellige did too little."""
    counts = session.config.batches
    if counts["zellige"] < LEAST * counts.total():
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """Say who did how much."""
    counts = config.batches
    terminalreporter.write_line(f"reads and writes: {counts['zellige']} of {counts.total()} by zellige")


# -- as a command -----------------------------------------------------------------------------------


def main() -> int:
    """Fetch the tests, if they are not there yet, and run them."""
    folder, name = Path("build/underneath"), f"zarr-{version('zarr')}"
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        wanted = ["--no-binary", "zarr", f"zarr=={version('zarr')}", "--dest", str(folder)]
        subprocess.run([*pip, *wanted], check=True)
        with tarfile.open(folder / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "underneath", "-p", "no:cacheprovider", "-W", "ignore"]
    tests = [f"tests/{test}" for test in TESTS if (folder / name / "tests" / test).exists()]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "ZARR_CODEC_PIPELINE__PATH": "zellige.zarr.Pipeline",
    }
    return subprocess.run([*pytest, *tests, *sys.argv[1:]], cwd=folder / name, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
