"""Names for the types that travel between the layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

JSON: TypeAlias = Any
"""A parsed JSON value."""

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Encoded bytes; a memoryview is contiguous and of format B."""

Encoded: TypeAlias = Buffer | Sequence[Buffer]
"""A stored value, maybe in parts."""

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


class InternalName(str):
    """A name that no document can spell, since what is read from one is never of this type."""

    __slots__ = ()
