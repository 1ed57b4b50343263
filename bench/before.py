"""Now against an earlier commit: `python -m bench.before COMMIT [--case PATTERN]`, both in one run, in turns.

A ratio is the time before over the time now: below 1 it has become slower. The last line is the geometric mean.
"""

from __future__ import annotations

import argparse
import io
import math
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import machine
from bench.cases import Case, select
from bench.libraries import OURS
from bench.runner import ROOT, Process

_ROOM = 5 * 2**30
_FAIR = 0.95
"""A ratio below this is marked."""


def earlier(commit: str, folder: str) -> Path:
    """The package of an earlier commit, built as that commit builds it: with its kernel, if it has one."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    source, built = Path(folder) / "source", Path(folder) / "built"
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(source, filter="data")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(built), str(source)], check=True)
    return built


def compare(case: Case, processes: Sequence[Process], rounds: int, least: float) -> list[float]:
    """The best seconds of each process, which take turns."""
    for process in processes:
        answer = process.ask("prepare", case=case.name)
        if "error" in answer:
            raise RuntimeError(f"{case.name}: {answer['error']}")
    best = [math.inf] * len(processes)
    for _ in range(rounds):
        for k, process in enumerate(processes):
            best[k] = min(best[k], process.ask("run", least=least)["seconds"][0])
    for process in processes:
        process.ask("finish")
    return best


class Side:
    """One of the two versions: its process, and its own data."""

    def __init__(self, folder: Path, source: Path) -> None:
        folder.mkdir()
        self.folder, self.process = folder, Process(OURS, str(folder), 1, source)

    def get_ready(self, case: Case, later: Sequence[Case]) -> None:
        """Store what a case needs, and remove what no later one does."""
        kept = {stored.name for other in (case, *later) for stored in other.needs}
        for found in self.folder.iterdir():
            if found.is_dir() and found.name not in kept:
                shutil.rmtree(found)
        for stored in case.needs:
            if not (self.folder / stored.name).exists():
                self.process.ask("store", name=stored.name)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.before", description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--case", default="read_*,write_*", help="names or patterns, with commas between them")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--least", type=float, default=0.2, help="seconds for each in each round, at least")
    found = parser.parse_args()
    cases = [case for case in select(found.case.split(",")) if case.work]
    ratios = []
    data = Path(machine.place(_ROOM)[0])
    try:
        with tempfile.TemporaryDirectory() as old:
            sides = [Side(data / "before", earlier(found.commit, old)), Side(data / "now", ROOT / "src")]
            for k, case in enumerate(cases):
                for side in sides:
                    side.get_ready(case, cases[k + 1 :])
                before, now = compare(case, [side.process for side in sides], found.rounds, found.least)
                ratios.append(before / now)
                mark = "" if ratios[-1] >= _FAIR else "  slower"
                times = f"{before * 1e3:10.3f} ms {now * 1e3:10.3f} ms {ratios[-1]:6.2f}{mark}"
                print(f"{k + 1:3}/{len(cases)}  {case.name:28} {times}", flush=True)
            for side in sides:
                side.process.close()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    print(f"geometric mean of {len(ratios)} cases: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
