"""Every command as a process: exit codes, one line for an error, what is imported, interrupts and closed pipes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from command import SOURCE, process

import zellige
from zellige.cli.parser import COMMANDS

RUNS = {
    "info": (["info", "{tree}", "--path", "months/uneven"], 0, "Chunks stored"),
    "tree": (["tree", "{tree}"], 0, "└── sharded (6, 10) int32"),
    "ls": (["ls", "-r", "{tree}"], 0, "array  months/uneven"),
    "head": (["head", "{tree}/regular", "-1,0:3"], 0, "[51 52 53]"),
    "stats": (["stats", "{tree}/old"], 0, "max   60"),
    "coverage": (["coverage", "{tree}/sharded"], 0, "1 of 1 chunks"),
    "explain": (["explain", "{tree}/regular", "0"], 0, "chunks"),
    "validate": (["validate", "--deep", "{broken}"], 1, "error: chunk regular/c/0/0"),
    "repair": (["repair", "{broken}"], 1, "would be put aside"),
    "vacuum": (["vacuum", "{tree}"], 0, "nothing beyond the end"),
    "diff": (["diff", "{tree}/regular", "{tree}/sharded"], 1, "codecs"),
    "copy": (["copy", "{tree}", "{new}"], 0, "all done"),
    "rechunk": (["rechunk", "{tree}/regular", "{new}", "--chunks", "-1"], 0, "regular chunks 6 × 10"),
    "convert": (["convert", "{tree}/old"], 0, "1 arrays"),
    "consolidate": (["consolidate", "{even}"], 0, "/ holds 1 node"),
    "demo": (["demo", "{new}"], 0, "zellige coverage"),
    "doctor": (["doctor"], 0, "numpy"),
}


@pytest.fixture
def places(local, tmp_path):
    zellige.copy_store(local, tmp_path / "broken.zarr")
    (tmp_path / "broken.zarr/regular/c/0/0").write_bytes(b"damaged")
    zellige.create_group(tmp_path / "even.zarr").create_array("a", data=[1, 2])
    named = {name: str(tmp_path / f"{name}.zarr") for name in ("broken", "even", "new")}
    np.save(tmp_path / "values.npy", np.arange(3))
    return {"tree": str(local), "npy": str(tmp_path / "values.npy"), **named}


def test_every_command_is_run():
    assert RUNS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", RUNS)
def test_a_command_as_a_process(places, name):
    argv, code, expected = RUNS[name]
    ran = process(*(part.format(**places) for part in argv))
    assert (ran.code, ran.err) == (code, "")
    assert expected in ran.out


def test_a_warning_goes_to_stderr_in_one_line(places):
    ran = process("consolidate", f"{places['tree']}/months", "--json")
    assert (ran.code, ran.json["nodes"]) == (0, 1)
    assert re.fullmatch(r"zellige: warning: .*'uneven'.*use_consolidated=False.*\n", ran.err)


@pytest.mark.parametrize("name", ["info", "validate", "diff", "doctor"])
def test_json_of_a_process(places, name):
    argv, code, _ = RUNS[name]
    ran = process(*(part.format(**places) for part in argv), "--json")
    assert (ran.code, type(ran.json)) == (code, dict)


# -- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["info", "nowhere.zarr"], "there is no array and no group at '/' in LocalStore("),
        (["info"], "the following arguments are required: PLACE; see 'zellige info --help'"),
        (["dance"], "invalid choice: 'dance'"),
        (["info", "a", "b"], "info does not take b; see 'zellige --help'"),
        (["head", "{tree}/regular", "1,2,3"], "too many indices"),
        (["head", "{tree}/regular", "x"], "write it as 0:10,::2,-1"),
        (["head", "{tree}/regular", "99"], "99"),
        (["stats", "{broken}/regular"], "is damaged"),
        (["info", "{tree}", "-o", "anon"], "key=value"),
        (["info", "{tree}", "-o", "anon=true"], "leave them out"),
        (["rechunk", "{tree}/regular", "{new}", "--chunks", "1+2"], "axis"),
        (["rechunk", "{tree}/regular", "{new}", "--memory", "much"], "'500 MB'"),
        (["convert", "{tree}/zarr.json", "{new}"], "is not HDF5, netCDF4, .npy, .npz or Zarr"),
        (["demo", "{tree}"], ": here --overwrite\n"),
        (["rechunk", "{tree}/regular", "{tree}/sharded", "--chunks", "3"], ": here --overwrite\n"),
        (["convert", "{npy}", "{tree}"], ": here --overwrite\n"),
        (["copy", "{tree}", "{tree}", "--path", "regular", "--to", "sharded"], ": here --if-exists\n"),
        (["--deep", "info", "{tree}"], "info does not take --deep"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_is_one_line_and_exit_code_2(places, run, argv, words):
    ran = run(*(part.format(**places) for part in argv))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("zellige")
    assert words in ran.err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--json"], ["info"]),
        (["--json", "-r"], ["ls"]),
        (["--deep", "--json", "--quiet"], ["validate"]),
        (["--level=1"], ["tree", "--json"]),
    ],
)
def test_options_may_stand_before_the_command(local, run, before, after):
    ran = run(*before, *after, local)
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == run(*after, local, *before).json


def test_a_traceback_only_on_request(tmp_path):
    plain = process("info", tmp_path / "nowhere")
    asked = process("info", tmp_path / "nowhere", ZELLIGE_DEBUG="1")
    assert (plain.code, asked.code) == (2, 2)
    assert (plain.err.count("Traceback"), asked.err.count("Traceback")) == (0, 1)
    assert asked.err.endswith(plain.err)


def test_a_mistake_of_ours_is_named_as_such(local, run, monkeypatch):
    monkeypatch.setattr(zellige.Array, "info_complete", lambda self: self.nothing)
    ran = run("info", local / "regular")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "AttributeError" in ran.err
    assert "a mistake in zellige, ZELLIGE_DEBUG=1 shows where" in ran.err


def test_warnings_are_one_line_each(local, run):
    (local / "regular/zarr.json").write_text("{")
    ran = run("ls", local)
    assert ran.code == 0
    assert ran.err.startswith("zellige: warning: ")
    assert ran.err.count("\n") == 1
    assert "array  regular" not in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(run, name):
    ran = run(name, "--help")
    assert ran.code == 0
    assert f"example: {COMMANDS[name].example}" in " ".join(ran.out.split())


def test_the_version(run):
    assert run("--version").out == f"zellige {zellige.__version__}\n"


# -- starting, and ending early -------------------------------------------------------------------

CODECS = {"numcodecs", "zstandard", "isal", "google_crc32c", "zfpy", "obstore", "fsspec", "h5py", "asyncio"}
WATCH = "import sys\nfrom zellige.cli import main\nmain({argv!r})\nprint(*sys.modules, file=sys.stderr)"


def modules(*argv: str) -> set[str]:
    return set(process(code=WATCH.format(argv=list(argv))).err.split())


@pytest.mark.parametrize("argv", [("--help",), ("info", "--help"), ("--version",)])
def test_help_imports_nothing(argv):
    loaded = modules(*argv)
    assert "numpy" not in loaded
    assert {name for name in loaded if name.startswith("zellige")} == {"zellige", "zellige.cli", "zellige.cli.parser"}


def test_info_imports_no_codec_library(local):
    assert not CODECS & modules("info", f"{local}/regular")
    assert not CODECS & modules("info", f"{local}/sharded")
    assert not CODECS & modules("tree", str(local), "--json")


def start(*argv: str, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "zellige", *argv],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_closed_pipe_is_silent(tmp_path):
    zellige.save(tmp_path / "a.zarr", np.zeros(200_000))
    running = start("head", str(tmp_path / "a.zarr"), ":", "--all")
    running.stdout.readline()
    running.stdout.close()
    err = running.stderr.read()
    running.stderr.close()
    assert (running.wait(30), err) == (141, "")


def test_an_interrupt_leaves_data_whole(tmp_path):
    source = zellige.create_array(tmp_path / "a.zarr", data=np.arange(3000), chunks=1)
    running = start("rechunk", str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr"), "--chunks", "2", "--memory", "400")
    begun = False
    while not begun and running.poll() is None:
        # It is stopped while it is looked at, so that it is not done before the signal comes.
        running.send_signal(signal.SIGCONT)
        time.sleep(0.01)
        running.send_signal(signal.SIGSTOP)
        begun = any(tmp_path.glob("b.zarr/c/*"))
    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGCONT)
    out, err = running.communicate(timeout=300)
    assert (running.returncode, out) == (130, "")
    assert err == "zellige: interrupted; what is stored is whole, run the same command again\n"
    assert zellige.validate(tmp_path / "b.zarr", deep=True).findings[0].kind in ("leftover", "missing")
    done = process("rechunk", tmp_path / "a.zarr", tmp_path / "b.zarr", "--chunks", "2", "--memory", "400")
    assert done.code == 0
    assert np.array_equal(zellige.load(tmp_path / "b.zarr"), source[...])
    assert zellige.validate(tmp_path / "b.zarr", deep=True).findings == ()


# -- colour ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colour_is_for_terminals_that_want_it(local, run, monkeypatch, terminal, no_color, coloured):
    (local / "regular/c/0/0").write_bytes(b"damaged")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: terminal, raising=False)
    ran = run("validate", "--deep", local)
    assert ("\x1b[31merror:\x1b[0m" in ran.out) is coloured
    assert ("\x1b" in ran.out) is coloured


# -- doctor and demo ------------------------------------------------------------------------------


def test_doctor_names_what_is_missing(run, monkeypatch):
    lines = [
        "numpy>=2",
        "no-such-thing>=3; extra == 'gone'",
        'numcodecs[x]; extra == "there"',
        "zellige[gone]; extra == 'dev'",
    ]
    monkeypatch.setattr("zellige.cli.commands.requires", lambda _: lines)
    ran = run("doctor")
    assert "[gone]         without no-such-thing: pip install 'zellige[gone]'" in ran.out.splitlines()
    assert ran.code == 0
    found = run("doctor", "--json").json
    assert found["extras"]["gone"] == {"no-such-thing": None}
    assert found["extras"].keys() == {"gone", "there"}
    assert found["packages"]["numpy"] == np.__version__
    monkeypatch.setattr("zellige.cli.commands._REQUIRED", ("numpy", "no-such-thing"))
    ran = run("doctor")
    assert (ran.code, "no-such-thing  missing: pip install no-such-thing" in ran.out) == (1, True)


@pytest.mark.parametrize(("is_off", "remedy"), [(True, "unset ZELLIGE_KERNEL"), (False, "where a C compiler is")])
def test_doctor_says_why_the_kernel_does_not_work_and_what_to_do(run, monkeypatch, is_off, remedy):
    state = {"works": False, "is_off": is_off, "state": "…", "codecs": {}}
    monkeypatch.setattr("zellige.kernel.info", lambda: state)
    (line,) = [line for line in run("doctor").out.splitlines() if line.startswith("kernel")]
    assert line.endswith(remedy)


def test_the_demo_is_sound(run, tmp_path):
    ran = run("demo", tmp_path / "d.zarr", "--json")
    assert ran.json == {"place": str(tmp_path / "d.zarr"), "arrays": ["t", "monthly/mean"]}
    group = zellige.open(tmp_path / "d.zarr", mode="r")
    assert tuple(group["t"].write_chunk_sizes[0])[:3] == (31, 28, 31)
    assert group["t"].coverage().fraction == 22 / 24
    assert zellige.validate(tmp_path / "d.zarr", deep=True).ok
    assert json.loads((tmp_path / "d.zarr/zarr.json").read_text())["node_type"] == "group"
