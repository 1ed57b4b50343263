"""The command `python -m reliability`; see the package for its use."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bench import machine

from reliability import cost, report
from reliability.adapters import LIBRARIES, SHOWN
from reliability.scenarios import SCENARIOS, Scenario

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- from reliability/results.md -->", "<!-- end of reliability/results.md -->"
TIMEOUT = 400.0
"""Seconds for one library in one scenario."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m reliability", description="Compare what libraries lose.")
    parser.add_argument("--scenario", default="*", help="names or patterns, with commas between them")
    parser.add_argument("--libraries", default=",".join(SHOWN), help="only these, with commas")
    parser.add_argument("--quick", action="store_true", help="small counts")
    parser.add_argument("--folder", help="where the data goes; by default the directory for temporary files")
    parser.add_argument("--save", help="the result's files without their suffixes")
    parser.add_argument("--update", action="store_true", help="replace these lines of results.*, keep the others")
    parser.add_argument("--list", action="store_true", help="show the names of all scenarios")
    found = parser.parse_args(arguments)
    if unknown := set(found.libraries.split(",")) - set(LIBRARIES):
        parser.error(f"no library {', '.join(unknown)}; there are {', '.join(LIBRARIES)}")
    return found


def select(patterns: str) -> list[Scenario]:
    """The scenarios with these names."""
    found = [s for s in SCENARIOS.values() if any(fnmatch(s.name, pattern) for pattern in patterns.split(","))]
    if not found:
        sys.exit(f"no scenario {patterns!r}; --list shows them")
    return found


def meet(library: str, folder: str, counts: Mapping[str, int], seconds: float = TIMEOUT) -> dict[str, Any]:
    """Let a library meet scenarios in a new process, below a folder of its own that is removed again.

    Returns what each found; how the process ended is the error of those that did not come to their end.
    """
    place, pairs = tempfile.mkdtemp(prefix=f"{library}-", dir=folder), [f"{name}={n}" for name, n in counts.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "reliability.scenarios", library, place, *pairs],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # no threads where processes are forked
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=seconds)
        end = f"the process ended with {process.returncode}: {(errors.splitlines() or [''])[-1][:200]}"
    except subprocess.TimeoutExpired:
        end = f"no end in {seconds:g} s"
        _kill_group(process.pid)
        out, _ = process.communicate()
    finally:
        _kill_group(process.pid)
        process.wait()
        shutil.rmtree(place, ignore_errors=True)
    answers = [json.loads(line) for line in out.splitlines()]
    return dict(zip_longest(counts, answers, fillvalue={"error": end}))


def _kill_group(pid: int) -> None:
    """End a process that leads its group, with all that it has forked."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def run_all(scenarios: Sequence[Scenario], libraries: Sequence[str], folder: str, *, quick: bool) -> list[Any]:
    """All lines of the table; each cell is said as soon as it is known."""
    rows = []
    for scenario in scenarios:
        count = scenario.quick if quick else scenario.full
        row = report.row(scenario.name, count) | {"load": round(os.getloadavg()[0], 1)}
        for library in libraries:
            start = time.perf_counter()
            found = meet(library, folder, {scenario.name: count})[scenario.name]
            found["took"] = round(time.perf_counter() - start, 1)
            row["libraries"][library] = found
            print(report.line(scenario.name, library, found), flush=True)
        rows.append(row)
    return rows


def command(arguments: Sequence[str]) -> str:
    """How to repeat this run."""
    rest = [argument for argument in arguments if argument != "--quick"]
    words = ["make reliability"] + ["QUICK=1"] * (len(rest) != len(arguments))
    return " ".join(words + [f"ARGS={shlex.quote(shlex.join(rest))}"] * bool(rest))


def update(result: dict[str, Any], file: Path) -> dict[str, Any]:
    """The saved report with the lines of another in place of its own."""
    saved: dict[str, Any] = json.loads(file.read_text())
    rows = {row["name"]: row for row in (*saved["scenarios"], *result["scenarios"])}
    return saved | {
        "date": result["date"],
        "cost": result["cost"],
        "scenarios": [rows[name] for name in SCENARIOS if name in rows],
    }


def save(result: dict[str, Any], prefix: Path) -> None:
    """Write the report as JSON and as Markdown."""
    prefix.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    prefix.with_suffix(".md").write_text(report.markdown(result))
    print(f"saved as {prefix.name}.json and {prefix.name}.md in {prefix.parent.name}/")


def into_page(table: str, page: Path) -> None:
    """Put the table of a complete run into the documentation, between its two marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}")


def main(raw: Sequence[str]) -> int:
    """Run what the command line asks for; 1 if zellige loses anything."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # the data is removed on the way
    arguments = parse(raw)
    if arguments.list:
        print("\n".join(f"{scenario.name:22}{scenario.about}" for scenario in SCENARIOS.values()))
        return 0
    folder = tempfile.mkdtemp(prefix="zellige-reliability-", dir=arguments.folder)
    libraries = [name for name in LIBRARIES if name in arguments.libraries.split(",")]
    try:
        rows = run_all(select(arguments.scenario), libraries, folder, quick=arguments.quick)
        spent = cost.measure(folder, 3 if arguments.quick else 15)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {
        "command": command(raw),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine.describe(),
        "versions": machine.versions(),
        "where": "a directory that was named" if arguments.folder else "the directory for temporary files",
        "scenarios": rows,
        "cost": spent,
    }
    if arguments.update:
        result = update(result, HERE / "results.json")
    print(report.summary(result))
    complete = len(rows) == len(SCENARIOS) and len(libraries) == len(SHOWN) and not arguments.quick
    shown = not arguments.save and (complete or arguments.update)
    save(result, Path(arguments.save) if arguments.save else HERE / ("results" if shown else "last"))
    if shown:
        into_page(report.markdown(result), PAGE)
    return int(not report.ours_are_good(result))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
