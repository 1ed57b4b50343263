"""`diff`: how two nodes differ, in what their documents say and in their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from zellige.display.progress import Progress, ProgressLike
from zellige.errors import NodeNotFoundError
from zellige.nodes.array import Array
from zellige.nodes.group import Group
from zellige.stores import StoreLike, locate
from zellige.tools.rechunk import Boxes, group_chunks
from zellige.types import AnyArray

_ELEMENTS = 1 << 24
"""How many elements are compared at a time."""


@dataclass(frozen=True)
class Differences:
    """How two nodes differ; it is true if they do."""

    metadata: tuple[str, ...]
    """One sentence each: what only one of them has, and what they say differently."""
    values: tuple[tuple[str, int, tuple[int, ...]], ...]
    """Arrays with the number of elements that differ, and the place of the first of them."""

    def __bool__(self) -> bool:
        return bool(self.metadata or self.values)

    def __str__(self) -> str:
        lines = [f"{path}: {count:,} elements differ, the first at {first}" for path, count, first in self.values]
        return "\n".join([*self.metadata, *lines]) or "no difference"


def diff(
    a: Array | Group | StoreLike,
    b: Array | Group | StoreLike,
    *,
    values: bool = True,
    progress: ProgressLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Differences:
    """Compare two arrays, or two groups with everything below them.

    Values are compared as they read, whatever the chunks and codecs are; NaN equals NaN.

    Parameters
    ----------
    a, b
        Two arrays, two groups, or places of such.
    values
        Whether to compare values; otherwise only the metadata is.
    progress
        Whether to show a progress bar, or a function to be called; see `zellige.progress`.
    storage_options
        How to reach a server; see `zellige.open`.

    >>> import zellige
    >>> a, b = zellige.array([1, 2, 3]), zellige.array([1, 2, 4], chunks=[[2, 1]])
    >>> print(diff(a, b))  # doctest: +ELLIPSIS
    /: chunk_grid: {'name': 'regular', ...} and {'name': 'rectilinear', ...}
    /: 1 elements differ, the first at (2,)
    """
    left, right = _nodes(a, storage_options), _nodes(b, storage_options)
    words = [f"/{path}: only in the first" for path in sorted(left.keys() - right.keys())]
    words += [f"/{path}: only in the second" for path in sorted(right.keys() - left.keys())]
    both = sorted(left.keys() & right.keys())
    for path in both:
        words += _documents(f"/{path}", left[path], right[path])
    boxes: dict[str, Boxes] = {}
    for path in both if values else ():
        x, y = left[path], right[path]
        if isinstance(x, Array) and isinstance(y, Array) and x.shape == y.shape:
            boxes[path] = group_chunks(Boxes.of(x.write_chunk_sizes), Boxes.of(y.write_chunk_sizes), _ELEMENTS)
    found = []
    with Progress(progress, sum(map(len, boxes.values())), "compared", "boxes") as report:
        for path, regions in boxes.items():
            count = _values(left[path], right[path], regions, partial(report.advance, path))
            if count[0]:
                found.append((f"/{path}", *count))
    return Differences(tuple(words), tuple(found))


def _nodes(node: Array | Group | StoreLike, storage_options: Mapping[str, Any] | None) -> dict[str, Array | Group]:
    """A node and everything below it, by paths relative to it."""
    if not isinstance(node, Array | Group):
        from zellige.nodes.open import open as open_node

        store, path = locate(node, read_only=True, storage_options=storage_options)
        try:
            node = open_node(store, path=path, mode="r")
        except FileNotFoundError as error:
            raise NodeNotFoundError(str(error)) from error
    return {"": node, **(dict(node.members(max_depth=None)) if isinstance(node, Group) else {})}


def _documents(path: str, a: Array | Group, b: Array | Group) -> Iterator[str]:
    left, right = (_flat(node.metadata.to_documents()) for node in (a, b))
    for key in sorted(left.keys() | right.keys()):
        if key not in right:
            yield f"{path}: {key} only in the first: {left[key]!r}"
        elif key not in left:
            yield f"{path}: {key} only in the second: {right[key]!r}"
        elif repr(left[key]) != repr(right[key]):  # by their words, in which NaN equals NaN, and 1 is not True
            yield f"{path}: {key}: {left[key]!r} and {right[key]!r}"


def _flat(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of the documents of a node, those of the attributes one by one."""
    fields: dict[str, Any] = {}
    for name, content in documents.items():
        own = {"attributes": content} if name == ".zattrs" else content
        fields |= {f"attributes.{key}": value for key, value in own.get("attributes", {}).items()}
        fields |= {key: value for key, value in own.items() if key not in ("attributes", "consolidated_metadata")}
    return fields


def _values(a: Any, b: Any, regions: Boxes, advance: Callable[[], None]) -> tuple[int, tuple[int, ...]]:
    """How many elements differ, and where the first one is."""
    count, first = 0, ()
    for region in regions:
        unequal = ~_same(np.asarray(a[region]), np.asarray(b[region]))
        if unequal.any():
            if not count:
                place = np.unravel_index(int(unequal.argmax()), unequal.shape)
                first = tuple(int(k) + part.start for k, part in zip(place, region, strict=True))
            count += int(unequal.sum())
        advance()
    return count, first


def _same(a: AnyArray, b: AnyArray) -> AnyArray:
    """Which elements are equal, NaN to NaN; elements of types that cannot be compared are not."""
    try:
        equal = np.asarray(a == b)
    except (TypeError, ValueError):
        return np.zeros(a.shape, bool)
    if a.dtype.kind in "fcmM" and b.dtype.kind in "fcmM":
        equal |= (a != a) & (b != b)
    return equal if equal.shape == a.shape else np.zeros(a.shape, bool)
