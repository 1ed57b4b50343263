"""Commands that look after stored data: validate, repair, vacuum, diff."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from zellige import diff as differences
from zellige import open as open_node
from zellige import repair as mend
from zellige import vacuum as clean
from zellige import validate as check
from zellige.cli.output import emit, paint
from zellige.cli.places import first, opened

_COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}


def _finding(found: Any) -> dict[str, Any]:
    names = ("level", "kind", "path", "key", "message", "coords")
    return {name: getattr(found, name) for name in names}


def _painted(found: Any) -> str:
    return str(found).replace(f"{found.level}:", paint(f"{found.level}:", _COLOURS[found.level]), 1)


def validate(arguments: Namespace) -> int:
    """Find what is wrong: `zellige.validate`; exit code 1 if there is an error or a warning."""
    with first(arguments) as place:
        report = check(place, deep=arguments.deep, progress=not arguments.quiet)
    names = ("ok", "arrays", "groups", "chunks", "deep")
    emit(
        arguments,
        lambda: {n: getattr(report, n) for n in names} | {"findings": [_finding(found) for found in report.findings]},
        lambda: "\n".join([*map(_painted, report.findings), report.summary()]),
    )
    return 0 if report.ok else 1


def repair(arguments: Namespace) -> int:
    """Mend what can be mended: `zellige.repair`; exit code 1 if something is left to do."""
    with first(arguments, read_only=not arguments.do) as place:
        done = mend(
            place,
            dry_run=not arguments.do,
            deep=not arguments.shallow,
            drop=arguments.drop,
            stray=arguments.stray,
            shrink=arguments.shrink,
            progress=not arguments.quiet,
        )
    more = done.dry_run and any(what != "left" for what, _ in done.actions)
    _say(arguments, done, str(done) + ("\nnothing was changed; give --do to do it" if more else ""))
    return 1 if done.left or (done.dry_run and done.actions) else 0


def vacuum(arguments: Namespace) -> int:
    """Remove what is of no use: `zellige.vacuum`."""
    with first(arguments, read_only=arguments.dry_run) as place:
        done = clean(place, dry_run=arguments.dry_run, quarantine=arguments.quarantine, unfinished=arguments.unfinished)
    aside = "\nwhat repair had put aside is removed" if arguments.quarantine and not done.dry_run else ""
    _say(arguments, done, (str(done) if done.actions else "nothing beyond the end, nothing left over") + aside)
    return 0


def _say(arguments: Namespace, done: Any, text: str) -> None:
    emit(
        arguments,
        lambda: {
            "dry_run": done.dry_run,
            "actions": [{"done": what, **_finding(found)} for what, found in done.actions],
            "left": len(done.left),
            "notes": [_finding(found) for found in done.notes],
        },
        lambda: text,
    )


def diff(arguments: Namespace) -> int:
    """How two nodes differ: `zellige.diff`; exit code 1 if they do."""
    other = arguments.path if arguments.second_path is None else arguments.second_path
    with first(arguments) as here, opened(arguments.second, other, arguments.dest_options, read_only=True) as there:
        nodes = [open_node(place, mode="r") for place in (here, there)]
        found = differences(*nodes, values=not arguments.metadata, progress=not arguments.quiet)
    rows = [{"path": path, "elements": count, "first": place} for path, count, place in found.values]
    content = {"differ": bool(found), "metadata": found.metadata, "values": rows}
    emit(arguments, lambda: content, lambda: str(found))
    return 1 if found else 0
