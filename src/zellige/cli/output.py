"""What the commands print: text for people, JSON for programs, errors in one line."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Container, Mapping
from typing import Any

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "bold": 1, "dim": 2}


def paint(text: str, colour: str) -> str:
    """Text in a colour, if it goes to a terminal and nobody has asked for none (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "chunk"), counted(1000, "chunk")
    ('1 chunk', '1,000 chunks')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def emit(arguments: Namespace, content: Callable[[], Any], text: Callable[[], str], code: int = 0) -> int:
    """Print one of two forms, only that one is made; returns the exit code."""
    print(json.dumps(plain(content()), indent=2, ensure_ascii=False) if arguments.json else text())
    return int(code)


def plain(value: Any) -> Any:
    """Any value as JSON: NaN and infinities as in Zarr documents, complex numbers as pairs, bytes as base64.

    >>> plain({"a": (1, float("nan")), "b": 1 + 2j, "c": b"ab"})
    {'a': [1, 'NaN'], 'b': [1.0, 2.0], 'c': 'YWI='}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m"):
        return plain(value.astype(str).tolist())
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def error_line(error: Exception, options: Container[str] = ()) -> str:
    """An error in one line, with what to do about it by the options that the command takes."""
    from zellige import errors

    words = str(error.args[0]) if type(error) is KeyError and error.args else str(error)
    line = " ".join(words.split()) or type(error).__name__
    if isinstance(error, errors.NodeNotFoundError):
        return f"{line}; check the place, or give the node within it by --path"
    for keyword, option in {"overwrite=": "--overwrite", "if_exists=": "--if-exists"}.items():
        if isinstance(error, FileExistsError) and keyword in line and option in options:
            return f"{line}: here {option}"
    if "unsupported='skip'" in line:
        return f"{line}, here --skip"
    known = (errors.ZelligeError, OSError, ValueError, TypeError, LookupError, ImportError, MemoryError)
    if not isinstance(error, known):
        return f"{type(error).__name__}: {line}; this is a mistake in zellige, ZELLIGE_DEBUG=1 shows where"
    return line
