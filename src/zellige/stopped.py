"""What a write of many chunks had done when an error stopped it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from zellige.plans import Plan, coords_of
from zellige.types import Coords

_MOST = 100_000  # chunks that are listed
_SHOWN = 5


class Done(list[str]):
    """The keys of the chunks of a row that are written; notes on an error how many they are."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            error.__dict__["_done_in_row"] = len(self)


def report(plan: Plan, error: BaseException, failed: list[tuple[Any, BaseException]], left: Iterator[Any]) -> None:
    """Say on an error which chunks of a plan were written, which failed, and which were not tried.

    As the attributes `written`, `failed` and `not_tried`, lists of coordinates, and as a note for readers. Of a plan
    with very many chunks only those that failed are listed; the other two are None.
    """
    count = len(plan)
    if count < 2:
        return
    broken: list[Coords] = []
    not_tried: list[Coords] = []
    for task, why in failed:
        coords, done = coords_of(task), why.__dict__.get("_done_in_row", 0)
        broken += coords[done : done + 1]
        not_tried += coords[done + 1 :]
    if count > _MOST:
        error.__dict__.update(written=None, failed=broken, not_tried=None)
        error.add_note(f"of {count} chunks, failed: {_listed(broken)}")
        return
    not_tried += [coords for task in left for coords in coords_of(task)]
    unwritten = {*not_tried, *broken}
    written = [request[0] for request in plan.requests() if request[0] not in unwritten]
    facts = {"written": written, "failed": broken, "not_tried": not_tried}
    error.__dict__.update(facts)
    error.add_note("; ".join(f"{words.replace('_', ' ')}: {_listed(coords)}" for words, coords in facts.items()))


def _listed(coords: Sequence[Coords]) -> str:
    if not coords:
        return "no chunk"
    shown = ", ".join(map(str, coords[:_SHOWN]))
    return f"{len(coords)} chunk{'s' * (len(coords) > 1)} {shown}{', …' * (len(coords) > _SHOWN)}"
