"""Names for the types that travel between the layers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

JSON: TypeAlias = Any
"""A parsed JSON value."""

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Encoded bytes; a memoryview is contiguous and of format B."""

Encoded: TypeAlias = Buffer | Sequence[Buffer]
"""A stored value, maybe in parts."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Some bytes of a value that is being changed, which the next one has as well."""

    start: int
    length: int

    def __len__(self) -> int:
        return self.length


class Old(Protocol):
    """A value that is being changed, to be read in parts."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    def read(self, start: int, length: int) -> Buffer:
        """Return some of them; a range that reaches beyond the end raises `ShortReadError`."""


Part: TypeAlias = Buffer | Kept
"""Part of the next value."""

Splice: TypeAlias = Callable[[Old | None], Sequence[Part] | None]
"""Makes the next value out of the old one, or out of none; None is for no value."""

Span: TypeAlias = tuple[int, int | None]
"""A byte range (start, length): a negative start counts from the end, no length means up to the end."""

Durability: TypeAlias = Literal["process", "power"]
"""What a written value survives: a crash of the process, or a power cut as well."""

Casting: TypeAlias = Literal["same_value", "unsafe"]
"""What happens to values that an array's type cannot hold: they are refused, or changed as numpy's `astype` does."""

Shape: TypeAlias = tuple[int, ...]
Coords: TypeAlias = tuple[int, ...]
"""The position of a chunk in the grid."""

AnyArray: TypeAlias = npt.NDArray[Any]
Indices: TypeAlias = npt.NDArray[np.intp]

TEMPORARY = ".zellige-tmp-"
"""How the names of unfinished files begin; no segment of a key does."""

# Not in a key: `/` inside a segment, NUL, and surrogates that no file name can hold. The others, DC80 to
# DCFF, are how Python spells the bytes of a file name that is not UTF-8.
_NO = r"/\0\ud800-\udc7f\udd00-\udfff"
# One segment: not empty, not `.`, not `..`, not temporary. Possessive, so that no key takes long to refuse.
_SEGMENT = rf"(?:[^.{_NO}]|(?!\.{{1,2}}(?:/|\Z)|{re.escape(TEMPORARY)})\.)[^{_NO}]*+"

is_key = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*+").fullmatch
"""Whether a string is a key; stores test this inline, because they do it for every chunk."""


def not_finite(value: JSON, place: str) -> tuple[str, float] | None:
    """Return the first NaN or infinity in a JSON value, for which JSON has no number, with its path.

    >>> not_finite({"a": 1.5, "b": [0, math.inf]}, "attributes")
    ('attributes.b[1]', inf)
    """
    rest = [(place, value)]
    while rest:  # no recursion, however deep it is nested
        path, part = rest.pop()
        if isinstance(part, float) and not math.isfinite(part):
            return path, part
        if isinstance(part, dict):
            rest += [(f"{path}.{name}", item) for name, item in reversed(part.items())]
        elif isinstance(part, list):
            rest += [(f"{path}[{i}]", item) for i, item in reversed([*enumerate(part)])]
    return None


class NotGiven:
    """The default of parameters for which None means something."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = NotGiven()


class InternalName(str):
    """A name that no document can spell, since what is read from one is never of this type."""

    __slots__ = ()
