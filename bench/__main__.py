"""The command `python -m bench`; see the package for its use."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine, report
from bench.cases import CASES, Case, select
from bench.chart import chart
from bench.libraries import LIBRARIES, OURS
from bench.runner import Options, Runner

HERE = Path(__file__).parent
README, PAGE = HERE.parent / "README.md", HERE.parent / "docs/benchmark.md"
CHART = HERE.parent / "docs/pictures/speed.svg"
BEGIN, END = "<!-- from bench/results.json -->", "<!-- end of bench/results.json -->"
ROOM = 5 * 2**30
"""Bytes that the data needs at full size, at most."""


def counts(text: str) -> list[int]:
    """Numbers with commas between them, in ascending order."""
    return sorted(map(int, text.split(",")))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare the speed of zellige and its peers.")
    parser.add_argument("--case", help="names or patterns, with commas between them; by default all")
    parser.add_argument(
        "--cores", type=counts, default=[], help="numbers of cores; by default of whole reads and writes"
    )
    parser.add_argument("--quick", action="store_true", help="smaller arrays and fewer rounds")
    parser.add_argument("--check", action="store_true", help="no timing: only whether all libraries agree")
    parser.add_argument("--scale", type=int, help="divide the length of each axis by this")
    parser.add_argument("--rounds", type=int, help="how often each library takes its turn")
    parser.add_argument("--libraries", default="", help="only these, with commas; zellige always takes part")
    parser.add_argument("--folder", help="where the data goes; by default memory if there is room")
    parser.add_argument("--save", help="the result's files without their suffixes")
    parser.add_argument("--again", action="store_true", help="repeat what others disturbed in the last complete run")
    parser.add_argument("--tables", action="store_true", help="write the tables of the last complete run once more")
    parser.add_argument("--list", action="store_true", help="show the names of all cases")
    found = parser.parse_args(arguments)
    found.case = found.case or ("read_*,write_*" if found.cores else "*")
    if found.cores and not 1 <= found.cores[0] <= found.cores[-1] <= machine.cores():
        parser.error(f"--cores: from 1 to {machine.cores()}, which this process may use")
    if found.cores and shutil.which("taskset") is None:
        parser.error("--cores: needs the command taskset, which is not here")
    if unknown := set(filter(None, found.libraries.split(","))) - set(LIBRARIES):
        parser.error(f"no library {', '.join(unknown)}; there are {', '.join(LIBRARIES)}")
    return found


def options(arguments: argparse.Namespace) -> Options:
    """How to measure."""
    usual = Options(scale=2, rounds=3, least=0.02, patience=0.3, sure=1, close=1.0) if arguments.quick else Options()
    return usual._replace(scale=arguments.scale or usual.scale, rounds=arguments.rounds or usual.rounds)


def command(arguments: Sequence[str]) -> str:
    """How to repeat this run."""
    rest = [argument for argument in arguments if argument != "--quick"]
    words = ["make bench"] + ["QUICK=1"] * (len(rest) != len(arguments))
    for option, variable in (("--case", "CASE"), ("--cores", "CORES")):
        if option in rest[:-1]:
            at = rest.index(option)
            words.append(f"{variable}={shlex.quote(rest[at + 1])}")
            del rest[at : at + 2]
    if rest:
        words.append(f"ARGS={shlex.quote(shlex.join(rest))}")
    return " ".join(words)


def is_complete(arguments: argparse.Namespace) -> bool:
    """Whether this is the run whose figures everybody sees."""
    some = arguments.quick or arguments.scale or arguments.libraries or arguments.check or arguments.cores
    return not some and arguments.case == "*"


def run_all(
    runners: Sequence[Runner], cases: Sequence[Case], say: Callable[[str], None], *, timed: bool
) -> list[dict[str, Any]]:
    """Run the cases with each runner, each line of the table as soon as it is known."""
    peers = [peer for peer in (*report.PEERS, report.REGULAR) if any(peer in case.peers for case in cases)]
    say(report.terminal_line(report.header(peers)))
    rows = []
    for position, case in enumerate(cases):
        for runner in runners:
            row = report.judge(case, runner.run(case, timed=timed), runner.options.scale)
            rows.append(row)
            if timed or row["figures"]:
                say(report.terminal_line(report.cells(row, peers)))
            else:
                agree = {True: "all agree", False: "VALUES DIFFER", None: "-"}[row["equal"]]
                fails = "".join(f"; {who}: {why}" for who, why in row["errors"].items())
                say(f"{case.name:{report.NAME}}{agree}{fails}")
        runners[0].forget(cases[position + 1 :])
    return rows


def make_report(arguments: Sequence[str], chosen: Options, where: str, before: float | None) -> dict[str, Any]:
    """All that is known before the first case."""
    return {
        "command": command(arguments),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine.describe(),
        "versions": machine.versions(),
        "where": where,
        "scale": chosen.scale,
        "rounds": chosen.rounds,
        "others_percent": before,
    }


def share(rows: Sequence[dict[str, Any]]) -> float | None:
    """What others used of the cores during the run: the mean over the cases."""
    found = [row["others_percent"] for row in rows if row.get("others_percent") is not None]
    return round(sum(found) / len(found), 1) if found else None


def save(result: dict[str, Any], prefix: Path) -> None:
    """Write the report as JSON and as Markdown."""
    prefix.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    prefix.with_suffix(".md").write_text(report.markdown(result))
    print(f"saved as {prefix.name}.json and {prefix.name}.md in {prefix.parent.name}/")


def publish(result: dict[str, Any]) -> None:
    """Keep the figures of a complete run, and put them where people look: the README, its page, and the chart."""
    (HERE / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    into_page(report.headlines(result), README)
    into_page(report.markdown(result), PAGE)
    CHART.write_text(chart(result))
    print(f"bench/results.json, {README.name}, {PAGE.name} and {CHART.name} show this run")


def into_page(table: str, page: Path) -> None:
    """Put a table into a page, between its two marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}")


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """A saved run, judged by the goals of today."""
    rows = [report.judge(CASES[row["name"]], row, result["scale"]) for row in result["cases"]]
    return result | {"cases": rows}


def measure(raw: Sequence[str], arguments: argparse.Namespace, cases: Sequence[Case]) -> dict[str, Any]:
    """Run the cases in a new folder, and say what came out."""
    chosen, before = options(arguments), machine.others()
    only = [OURS, *filter(None, arguments.libraries.split(","))] if arguments.libraries else []
    folder, where = machine.place(ROOM // chosen.scale**2, arguments.folder)
    result = make_report(raw, chosen, where, before)
    print(f"{len(cases)} cases; data on {where}; other processes use {before} % of the cores")
    runner = Runner(folder, chosen, lambda line: print(line, flush=True), only)
    runners = [runner.on(count) for count in arguments.cores] or [runner]
    try:
        rows = run_all(runners, cases, runner.say, timed=not arguments.check)
    finally:
        for each in runners:
            each.close()
        shutil.rmtree(folder, ignore_errors=True)
    return with_rows(result | {"absent": runner.absent}, rows)


def with_rows(result: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The report with its cases, and whether the machine was quiet."""
    before, during = result["others_percent"], share(rows)
    quiet = None if before is None or during is None else max(before, during) < machine.QUIET
    return result | {"others_percent_during": during, "quiet": quiet, "cases": rows}


def disturbed(row: dict[str, Any]) -> bool:
    """Whether others used the cores during a case."""
    return (row.get("others_percent") or 0.0) > machine.QUIET


def repeat(raw: Sequence[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """The last complete run, in which cases that were disturbed are measured once more; the quieter time counts."""
    known: dict[str, Any] = json.loads((HERE / "results.json").read_text())
    names = [row["name"] for row in known["cases"] if disturbed(row)]
    if not names:
        raise SystemExit("no case of the last complete run was disturbed")
    found = {row["name"]: row for row in measure(raw, arguments, select(names))["cases"]}
    rows = [
        min(row, found.get(row["name"], row), key=lambda row: row["others_percent"] or 0.0) for row in known["cases"]
    ]
    return with_rows(known, rows)


def main(raw: Sequence[str]) -> int:
    """Run what the command line asks for; 1 if values differ or zellige fails."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # the data is removed on the way
    arguments = parse(raw)
    if arguments.list:
        print("\n".join(f"{case.name:{report.NAME}}{case.about}" for case in CASES.values()))
        return 0
    if arguments.tables:
        publish(judged(json.loads((HERE / "results.json").read_text())))
        return 0
    start = time.perf_counter()
    result = repeat(raw, arguments) if arguments.again else measure(raw, arguments, select(arguments.case.split(",")))
    print("\n".join(["", *report.notes(result), report.quietness(result)]))
    if not arguments.check:
        print(report.summary(result))
        if is_complete(arguments) and not arguments.save:
            publish(result)
        else:
            save(result, Path(arguments.save) if arguments.save else HERE / "last")
    print(f"{time.perf_counter() - start:.0f} s")
    return int(any(row["equal"] is False or OURS in row["errors"] for row in result["cases"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
