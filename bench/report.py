"""From figures to tables: ratios, goals, and a verdict for each case; for the terminal, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.cases import CASES, REGULAR, Case
from bench.libraries import OURS, PEERS, TITLES
from bench.machine import QUIET

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def judge(case: Case, result: Mapping[str, Any], scale: int = 1) -> dict[str, Any]:
    """A result with its ratios, its goals and where it is behind them."""
    figures = result["figures"]
    ours = figures.get(OURS)
    ratios = {}
    if ours and case.unit == "s":
        ratios = {peer: round(figures[peer] / ours, 3) for peer in case.peers if peer in figures}
    behind = [
        f"{TITLES[peer]} {number(ratio)} < {case.goals[peer]:g}"
        for peer, ratio in ratios.items()
        if round(ratio, 2) < case.goals.get(peer, 0)
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
        "goals": {peer: case.goals[peer] for peer in case.peers if peer in case.goals},
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


def goal(case: Case) -> str:
    """What is asked for: the least ratio against all peers, and those that have one of their own."""
    goals = {peer: case.goals[peer] for peer in case.peers if peer in case.goals}
    usual = max(goals.values(), default=0.0)
    words = [f">= {usual:g}"] if goals else []
    words += [f"{TITLES[peer]} >= {least:g}" for peer, least in goals.items() if least != usual]
    if case.limit is not None:
        words.append(f"<= {amount(case, case.limit)}")
    return ", ".join(words)


def best_peer(row: Mapping[str, Any]) -> tuple[str, float] | None:
    """The peer that is nearest to us, or farthest ahead, and the ratio against it."""
    return min(row["ratios"].items(), key=lambda found: found[1], default=None)


def mark(row: Mapping[str, Any]) -> str:
    """Whether the goals are met, and that the machine was not quiet if it was not."""
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
    return ["case", "zellige", *(TITLES[peer] for peer in peers), "goal", ""]


def cells(row: Mapping[str, Any], peers: Sequence[str]) -> list[str]:
    """One line of the table."""
    case = CASES[row["name"]]
    ours = row["figures"].get(OURS)
    first = "fails" if OURS in row["errors"] else "" if ours is None else amount(case, ours, row["bytes"])
    name = f"{row['name']} @{row['cores']}" if "cores" in row else row["name"]
    return [name, first, *(cell(case, row, peer) for peer in peers), goal(case), mark(row)]


NAME = 29
"""The width of the longest name and a little more."""


def terminal_line(texts: Sequence[str]) -> str:
    """A line for the terminal, whose columns stand below each other while the run goes on."""
    name, ours, *peers, aim, verdict = texts
    shown = "".join(f"{text:>12}" for text in peers)
    return f"{name:{NAME}}{ours:>11}{shown}  {aim:25}{verdict}".rstrip()


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
    """How many cases meet their goals."""
    rows = [row for row in report["cases"] if row["figures"].get(OURS) is not None or row["behind"]]
    return f"{sum(not row['behind'] for row in rows)} of {len(rows)} cases meet their goals."


def circumstances(report: Mapping[str, Any]) -> str:
    """When, on what and with which versions the figures were made."""
    machine, versions = report["machine"], report["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "python")
    return (
        f"`{report['command']}`, {report['date']}: {machine['cores']} cores of {machine['cpu']}, "
        f"{machine['memory_gib']:g} GiB, {machine['system']}; Python {versions['python']}; {listed}. "
        f"Data: int16 on {report['where']}, page cache warm. {quietness(report)}"
    )


def markdown(report: Mapping[str, Any]) -> str:
    """All that was measured, with what is needed to judge and to repeat it."""
    on_cores = any("cores" in row for row in report["cases"])
    lines = [
        circumstances(report),
        "",
        f"Best of {report['rounds']} rounds, of three times as many where a ratio is close to the goal, either way, "
        "and again where the machine was not quiet.",
        "",
        *(_scaling(report["cases"]) if on_cores else _table(report["cases"])),
    ]
    if found := notes(report):
        lines += ["", *(f"- {line}" for line in found)]
    lines += ["", summary(report)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each case: our own figure, and the ratios against the peers."""
    peers = columns(rows)
    lines = [
        "The columns of the peers are their time divided by zellige's: over 1, zellige is faster. Memory is in MiB for "
        "each. The goal holds against every peer. A ~ marks cases during which the machine stayed busy.",
        "",
        "| case | what | " + " | ".join(header(peers)[1:]) + " |",
        "|---|---|" + "---:|" * (len(peers) + 1) + "---|---|",
    ]
    for row in rows:
        name, *others = cells(row, peers)
        lines.append(f"| {name} | {row['about']} | " + " | ".join(others) + " |")
    return lines


def _scaling(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each case: the figures of each library on so many cores, and the best peer on most of them."""
    by_case: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_case.setdefault(row["name"], []).append(row)
    counts = sorted({row["cores"] for row in rows})
    libraries = [OURS, *columns(rows)]
    heads = [f"{TITLES[name]} {' / '.join(map(str, counts))}" for name in libraries]
    lines = [
        f"Each library has the stated number of cores. The last column is the time of the best peer on {counts[-1]} "
        "divided by zellige's.",
        "",
        f"| case | what | {' | '.join(heads)} | best peer |",
        "|---|---|" + "---:|" * (len(libraries) + 1),
    ]
    for found in by_case.values():
        case, best = CASES[found[0]["name"]], best_peer(found[-1])
        shown = [
            _joined(
                amount(case, row["figures"][name], row["bytes"]) if name in row["figures"] else "-" for row in found
            )
            for name in libraries
        ]
        last = f"{number(best[1])} ({TITLES[best[0]]})" if best else ""
        lines.append(f"| {case.name} | {case.about} | {' | '.join(shown)} | {last} |")
    return lines


def _joined(amounts: Iterable[str]) -> str:
    """Amounts in a row; a unit that all have is said once."""
    pairs = [text.partition(" ")[::2] for text in amounts]
    units = {unit for _, unit in pairs if unit}
    if len(units) != 1:
        return " / ".join(" ".join(filter(None, pair)) for pair in pairs)
    return f"{' / '.join(figure for figure, _ in pairs)} {units.pop()}"


HEADLINES = {
    "read_raw_512K": "read an array, uncompressed, chunks of 512 KiB",
    "read_zstd_512K": "read an array, zstd, chunks of 512 KiB",
    "read_raw_8K": "read an array, uncompressed, chunks of 8 KiB",
    "read_shard_zstd_64K": "read an array, zstd, chunks of 64 KiB in shards of 4 MiB",
    "write_zstd_512K": "write an array, zstd, chunks of 512 KiB",
    "scalar_raw": "read one element, uncompressed",
}
"""The cases that stand for all, in the words of the README."""


def headlines(report: Mapping[str, Any]) -> str:
    """The six lines of the README."""
    machine, rows = report["machine"], {row["name"]: row for row in report["cases"]}
    lines = ["| | zellige | the best peer | times as fast |", "|---|---:|---:|---:|"]
    for name, words in HEADLINES.items():
        case, row = CASES[name], rows[name]
        ours, best = amount(case, row["figures"][OURS], row["bytes"]), best_peer(row)
        assert best, f"{name} has no peer"
        peer, ratio = best
        theirs = f"{amount(case, row['figures'][peer], row['bytes'])} ({TITLES[peer]})"
        lines.append(f"| {words} | {ours} | {theirs} | {number(ratio)} |")
    peers = ", ".join(TITLES[peer] for peer in columns(report["cases"]) if peer != REGULAR)
    lines += [
        "",
        f"{report['date']}, {machine['cores']} cores of {machine['cpu']}, int16 on {report['where']}; peers: {peers}. "
        f"{summary(report)}",
    ]
    return "\n".join(lines) + "\n"
