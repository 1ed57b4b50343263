"""What people write on the command line: selections, chunks, options. Nothing is evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias

Index: TypeAlias = tuple[int | slice | EllipsisType, ...]

_number = re.compile(r"-?\d+").fullmatch
_slice = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?\d+)?)?").fullmatch
_run = re.compile(r"(\d+)(?:\*(\d+))?").fullmatch


def selection(text: str) -> Index:
    """A selection as in numpy: numbers, slices and `...`, with commas between them.

    >>> selection("0:10, ::2, -1")
    (slice(0, 10, None), slice(None, None, 2), -1)
    """
    return tuple(_index(part.strip(), text) for part in text.strip().strip("[]").split(","))


def _index(part: str, text: str) -> int | slice | EllipsisType:
    if part == "...":
        return ...
    if _number(part):
        return int(part)
    found = _slice(part)
    if found is None:
        raise ValueError(f"selection {text.strip()!r}: {part!r} is no number, slice or '...'; write it as 0:10,::2,-1")
    return slice(*(None if bound is None else int(bound) for bound in found.groups()))


def chunks(text: str) -> Any:
    """Chunks as `create_array` takes them: a size, `-1`, `auto` or edges for each axis, with names or without.

    A single number is for all axes.

    >>> chunks("31+28+31,100,-1")
    [[[31, 1], [28, 1], [31, 1]], 100, -1]
    >>> chunks("30*12,50"), chunks("time=31+28*2,lat=10"), chunks("auto")
    ([[[30, 12]], 50], {'time': [[31, 1], [28, 2]], 'lat': 10}, 'auto')
    """
    text = text.strip()
    if text == "auto":
        return "auto"
    parts = [part.strip() for part in text.split(",")]
    named = [part.partition("=") for part in parts]
    if all(equals for _, equals, _ in named):
        return {name.strip(): _axis(entry.strip(), text) for name, _, entry in named}
    axes = [_axis(part, text) for part in parts]
    return axes[0] if len(axes) == 1 and isinstance(axes[0], int) else axes


def _axis(part: str, text: str) -> Any:
    if part in ("auto", "-1"):
        return "auto" if part == "auto" else -1
    if part.isdecimal():
        return int(part)
    runs = [_run(run.strip()) for run in part.split("+")]
    if not all(runs):
        raise ValueError(
            f"chunks {text!r}: {part!r} is no size, -1, 'auto' or edges; write it as 31+28+31,100,-1 or 30*12,50"
        )
    return [[int(run[1]), int(run[2] or 1)] for run in runs if run]


def compressor(text: str) -> Any:
    """A codec by its name, or as JSON; an empty list for none.

    >>> compressor("gzip"), compressor("none"), compressor('{"name": "zstd", "configuration": {"level": 9}}')["name"]
    ('gzip', [], 'zstd')
    """
    if text == "none":
        return []
    return json.loads(text) if text.startswith(("{", "[")) else text


def options(pairs: Sequence[str]) -> dict[str, Any] | None:
    """Storage options out of `key=value`; values that are JSON mean what JSON says. None if there are none.

    >>> options(["anon=true", "region=eu-central-1", "retries=3"])
    {'anon': True, 'region': 'eu-central-1', 'retries': 3}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"option {pair!r} must be written as key=value")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found or None
