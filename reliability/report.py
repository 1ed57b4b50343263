"""From outcomes to a table: for the terminal, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reliability import cost
from reliability.adapters import LIBRARIES, OURS
from reliability.scenarios import SCENARIOS

MARK = " ✗"
"""Where something was lost, made up, or let in."""


def cell(found: Mapping[str, Any]) -> str:
    """What the table says of one library in one scenario."""
    if "text" in found:
        return str(found["text"])
    if "none" in found:
        return "none"
    return "not installed" if "absent" in found else f"fails: {found['error']}"


def is_bad(found: Mapping[str, Any]) -> bool:
    """Whether something was lost, made up or let in, or the scenario did not end."""
    return "error" in found or found.get("good", True) is False


def marked(found: Mapping[str, Any]) -> str:
    """A cell of the Markdown table, bold where it is bad."""
    text = cell(found).replace("|", "\\|")
    return f"**{text}**" if is_bad(found) else text


def line(name: str, library: str, found: Mapping[str, Any]) -> str:
    """One line for the terminal."""
    return f"{name:22}{LIBRARIES[library].title:13}{cell(found)}{MARK * is_bad(found)}"


def columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The libraries that took part."""
    return [name for name in LIBRARIES if any(name in row["libraries"] for row in rows)]


def summary(report: Mapping[str, Any]) -> str:
    """In how many scenarios each library lost nothing, in words."""
    words = []
    for name in columns(report["scenarios"]):
        found = [row["libraries"][name] for row in report["scenarios"] if name in row["libraries"]]
        asked = [one for one in found if not one.keys() & {"none", "absent"} and one.get("good", True) is not None]
        good = sum(not is_bad(one) for one in asked)
        words.append(f"{LIBRARIES[name].title} {good} of {len(asked)}")
    return f"Scenarios without loss: {', '.join(words)}."


def markdown(report: Mapping[str, Any]) -> str:
    """The table for the documentation, with all that is needed to judge and to repeat it."""
    rows, machine, versions = report["scenarios"], report["machine"], report["versions"]
    names = columns(rows)
    listed = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "python")
    lines = [
        f"`{report['command']}`, {report['date']}: {machine['cores']} cores, {machine['memory_gib']:g} GiB, "
        f"{machine['system']}; Python {versions['python']}; {listed}. A local directory ({report['where']}).",
        "",
        'Bold: something was lost, made up or let in, or the scenario did not come to its end. "none": the library '
        f"has no such feature. {summary(report)}",
        "",
        "| what happens | " + " | ".join(LIBRARIES[name].title for name in names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for row in rows:
        cells = [marked(row["libraries"][name]) if name in row["libraries"] else "" for name in names]
        lines.append(f"| {row['about']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n\n" + cost.markdown(report["cost"])


def ours_are_good(report: Mapping[str, Any]) -> bool:
    """Whether zellige lost nothing."""
    found = [row["libraries"].get(OURS, {}) for row in report["scenarios"]]
    return not any(is_bad(one) for one in found)


def row(name: str, count: int) -> dict[str, Any]:
    """An empty line of the table."""
    return {"name": name, "about": SCENARIOS[name].about, "count": count, "libraries": {}}
