"""The examples in docs/cli.md, run in their order, print what is written there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from zellige.cli.parser import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
TEXT = PAGE.read_text() if PAGE.exists() else ""
pytestmark = pytest.mark.skipif(not TEXT, reason="installed without its documentation")


def examples() -> list[tuple[str, str]]:
    """Commands, and what they print."""
    blocks = re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [tuple(part.split("\n", 1)) for part in parts]


def as_pattern(text: str) -> str:
    """An ellipsis stands for what differs from machine to machine."""
    return ".*".join(map(re.escape, text.split("...")))


def test_every_example_prints_what_is_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert len(examples()) > 20
    for command, printed in examples():
        line, _, remark = command.partition("  # exit code ")
        program, *argv = shlex.split(line)
        if program != "zellige":
            subprocess.run(line.replace("python", sys.executable, 1), shell=True, check=True)
            continue
        ran = run(*argv)
        assert ran.code == int(remark or 0), ran.err
        assert re.fullmatch(as_pattern(printed), ran.err + ran.out, re.DOTALL), f"{command}\n{ran.err}{ran.out}"


def test_every_command_has_a_section():
    assert set(re.findall(r"^## (\w+)$", TEXT, re.MULTILINE)) == COMMANDS.keys()


def test_json_has_the_keys_that_are_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("demo")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
    argv = {"doctor": [], "diff": ["demo.zarr", "demo.zarr"], "copy": ["demo.zarr", "b.zarr"]}
    argv |= {
        "rechunk": ["demo.zarr/t", "c.zarr", "--chunks", "9"],
        "demo": ["d.zarr"],
        "convert": ["old.zarr", "n.zarr"],
    }
    arrays = ("info", "head", "stats", "coverage", "explain")
    import zellige

    zellige.create_array("old.zarr", data=[1, 2], zarr_format=2)
    for name in COMMANDS:
        given = argv.get(name, ["demo.zarr/t" if name in arrays else "demo.zarr"])
        found = run(name, *given, "--json").json
        for key in found[0] if isinstance(found, list) else found:
            about = sections["repair" if name == "vacuum" else name]
            assert f"`{key}`" in about, f"{name}: {key}"
