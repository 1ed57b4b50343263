"""The suite for authors of stores: it loads pytest only when used, and finds what a store does wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import zellige
import zellige.testing


def run(*command: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(zellige.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *command], env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True
    )


def test_importing_it_does_not_import_pytest():
    code = "import sys, zellige.testing; assert 'pytest' not in sys.modules; zellige.testing.StoreSuite"
    code += "; assert 'pytest' in sys.modules"
    assert run("-c", code).stderr == ""


def test_without_pytest_it_says_what_to_install():
    code = "import sys; sys.modules['pytest'] = None; import zellige.testing; zellige.testing.StoreSuite"
    assert "ImportError: zellige.testing needs pytest; run: pip install pytest" in run("-c", code).stderr


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="no attribute 'ArraySuite'"):
        zellige.testing.ArraySuite  # type: ignore[attr-defined]


def test_it_finds_what_a_store_does_wrong(tmp_path):
    """A store that ignores conditions, and one that has no fixture."""
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent(
            """
            import pytest
            import zellige.testing

            class Careless(zellige.MemoryStore):
                def write(self, key, value, if_tag=None):
                    return super().write(key, value)

            class TestCareless(zellige.testing.StoreSuite):
                @pytest.fixture
                def store(self):
                    return Careless()

            class TestNothing(zellige.testing.StoreSuite):
                pass
            """
        )
    )
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "create or long_range", str(tmp_path))
    failed = set(re.findall(r"FAILED \S+::(\w+::\w+)", done.stdout))
    assert failed == {"TestCareless::test_create_writes_only_a_new_key", "TestCareless::test_create_has_one_winner"}
    assert "assert not True" in done.stdout  # the values are shown
    assert "TestNothing needs a fixture `store`" in done.stdout
