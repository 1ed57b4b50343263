"""From figures to a table: ratios, targets, and a verdict for each case; for the terminal, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.cases import CASES, REGULAR, Case
from bench.libraries import OURS, PEERS, TITLES
from bench.machine import QUIET

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def judge(case: Case, result: Mapping[str, Any], scale: int = 1) -> dict[str, Any]:
    """A result with its ratios, its targets and where it is behind them."""
    figures = result["figures"]
    ours = figures.get(OURS)
    ratios = {}
    if ours and case.unit == "s":
        ratios = {peer: round(figures[peer] / ours, 3) for peer in case.peers if peer in figures}
    behind = [
        f"{TITLES[peer]} {number(ratio)} < {case.targets[peer]:g}"
        for peer, ratio in ratios.items()
        if round(ratio, 2) < case.targets.get(peer, 0)
    ]
    if case.limit is not None and ours is not None and ours > case.limit:
        behind.append(f"{amount(case, ours)} > {amount(case, case.limit)}")
    if OURS in result["errors"]:
        behind.append("zellige fails")
    return {
        **result,
        "about": case.about,
        "unit": case.unit,
        "bytes": case.bulk(scale) if case.bulk else None,
        "ratios": ratios,
        "targets": {peer: case.targets[peer] for peer in case.peers if peer in case.targets},
        "limit": case.limit,
        "behind": behind,
    }


# -- words ----------------------------------------------------------------------------------------


def number(ratio: float) -> str:
    """A ratio with as many digits as it deserves."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def amount(case: Case, figure: float, moved: int | None = None) -> str:
    """A figure in the unit of its case; bytes that were moved make it a rate."""
    if case.unit == "B":
        return f"{figure / 2**20:.0f} MiB"
    if moved:
        return f"{moved / figure / 1e9:.2f} GB/s"
    size, unit = next((unit for unit in UNITS if figure >= unit[0]), UNITS[-1])
    return f"{figure / size:.3g} {unit}" if figure / size < 100 else f"{figure / size:.0f} {unit}"


def cell(case: Case, row: Mapping[str, Any], peer: str) -> str:
    """What the table says of one peer in one case: its ratio, its figure, or why there is none."""
    if peer not in row["figures"]:
        return "fails" if peer in row["errors"] else ""
    if case.unit == "B":
        return amount(case, row["figures"][peer])
    return number(row["ratios"][peer]) if peer in row["ratios"] else ""


def target(case: Case) -> str:
    """What is asked for: the least ratio against TensorStore, or what the case is compared with."""
    words = []
    for peer in ("tensorstore", REGULAR, "zarr"):
        if peer in case.peers and peer in case.targets:
            words.append(f">= {case.targets[peer]:g}")
            break
    if case.limit is not None:
        words.append(f"<= {amount(case, case.limit)}")
    return ", ".join(words)


def mark(row: Mapping[str, Any]) -> str:
    """Whether the targets are met, and that the machine was not quiet if it was not."""
    words = "behind" if row["behind"] else "ok" if row["figures"].get(OURS) is not None else "-"
    if row["equal"] is False:
        words += ", values differ"
    return words + (" ~" if (row.get("others_percent") or 0) >= QUIET else "")


# -- tables ---------------------------------------------------------------------------------------


def columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The peers that have anything to show."""
    shown = {peer for row in rows for peer in (*row["figures"], *row["errors"])}
    return [peer for peer in (*PEERS, REGULAR) if peer in shown]


def header(peers: Sequence[str]) -> list[str]:
    """The first line of the table."""
    return ["case", "zellige", *(TITLES[peer] for peer in peers), "target", ""]


def cells(row: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    """One line of the table."""
    case = CASES[row["name"]]
    ours = row["figures"].get(OURS)
    first = "fails" if OURS in row["errors"] else "" if ours is None else amount(case, ours, row["bytes"])
    return [row["name"], first, *(cell(case, row, peer) for peer in peers), target(case), mark(row)]


NAME = 29
"""The width of the longest name and a little more."""


def terminal_line(texts: Sequence[str]) -> str:
    """A line for the terminal, whose columns stand below each other while the run goes on."""
    name, ours, *peers, aim, verdict = texts
    shown = "".join(f"{text:>12}" for text in peers)
    return f"{name:{NAME}}{ours:>11}{shown}  {aim:18}{verdict}".rstrip()


def notes(report: Mapping[str, Any]) -> list[str]:
    """What is said below the table: errors, and where we are behind."""
    lines = []
    for row in report["cases"]:
        lines += [f"{row['name']}: {TITLES.get(who, who)}: {why}" for who, why in row["errors"].items()]
    lines += [f"{who} is left out: {why}" for who, why in report["absent"].items()]
    lines += [f"behind: {row['name']}: {'; '.join(row['behind'])}" for row in report["cases"] if row["behind"]]
    return lines


def quietness(report: Mapping[str, Any]) -> str:
    """Whether other processes were busy, in words."""
    before, during = report["others_percent"], report["others_percent_during"]
    if before is None or during is None:
        return "The system does not tell how busy other processes were."
    start = "The machine was quiet" if report["quiet"] else "THE MACHINE WAS NOT QUIET, these figures are noise"
    return f"{start}: other processes used {before:g} % of the cores before the run and {during:g} % during it."


def summary(report: Mapping[str, Any]) -> str:
    """How many cases meet their targets."""
    rows = [row for row in report["cases"] if row["figures"].get(OURS) is not None or row["behind"]]
    return f"{sum(not row['behind'] for row in rows)} of {len(rows)} cases meet their targets."


def markdown(report: Mapping[str, Any]) -> str:
    """The table for the README, with all that is needed to judge and to repeat it."""
    machine, versions = report["machine"], report["versions"]
    peers = columns(report["cases"])
    listed = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "python")
    lines = [
        f"`{report['command']}`, {report['date']}: {machine['cores']} cores of {machine['cpu']}, "
        f"{machine['memory_gib']:g} GiB, {machine['system']}; Python {versions['python']}; {listed}. "
        f"Data: int16 on {report['where']}, page cache warm. {quietness(report)}",
        "",
        f"Best of {report['rounds']} rounds, of three times as many where a ratio is close to the target, either way, "
        "and again where the machine was not quiet. The columns of the peers are their time divided by zellige's: over "
        "1, zellige is faster. Memory is in MiB for each. The target is against TensorStore where it takes part, "
        "against the others 1, for open and scalar_raw 2.5. A ~ marks cases during which the machine stayed busy. "
        f"{summary(report)}",
        "",
        "| case | what | " + " | ".join(header(peers)[1:]) + " |",
        "|---|---|" + "---:|" * (len(peers) + 1) + "---|---|",
    ]
    for row in report["cases"]:
        name, *others = cells(row, peers)
        lines.append(f"| {name} | {row['about']} | " + " | ".join(others) + " |")
    if found := notes(report):
        lines += ["", *(f"- {line}" for line in found)]
    return "\n".join(lines) + "\n"
