"""What a scenario found with one library."""

from __future__ import annotations

from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """A cell of the table, and the facts behind it."""

    text: str
    good: bool | None
    """Whether nothing was lost, made up or let in; None where the library has no such feature."""
    facts: dict[str, Any]


def counted(text: str, good: bool | None, **facts: Any) -> Outcome:
    """An outcome with its facts."""
    return Outcome(text, good, facts)
