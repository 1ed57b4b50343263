"""Storing over what is read: a block may read the part of a target that it writes itself, not what others write.

Tasks run in any order. A block that reads what another one writes gets old or new values, as it happens; so does dask
itself, which may read twice what is written once in a graph. Such graphs are refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from dask.core import flatten

from zellige import storage
from zellige.dask.alignment import Part

Block: TypeAlias = tuple[int, ...]
"""The number of a part, and the coordinates of one of its blocks."""

_SEVERAL: Block = (-1,)
"""Instead of a block: more than one."""


def refuse_races(given: Sequence[Part], moved: Sequence[Any]) -> None:
    """Raise if a block of the parts reads what another block of them writes.

    `moved` are for each part the chunks into which its blocks are cut anew, or None if they are not.
    """
    if all(part.fresh for part in given):
        return
    places = {place for part in given for place in storage.places_of(part.source)}
    if not any(_is_same(place, part.target.store_path) for place in places for part in given):
        return
    cut = zip(given, moved, strict=True)
    parts = [part if chunks is None else part._replace(source=part.source.rechunk(chunks)) for part, chunks in cut]
    targets = [_Target(number, part) for number, part in enumerate(parts)]
    hit = {place: [target for target in targets if _is_same(place, target.place)] for place in places}
    tasks = storage.graph_reads({key: task for part in parts for key, task in part.source.dask.items()})
    owners = _owners(tasks, hit)
    for target in targets:
        for key in flatten(target.part.source.__dask_keys__()):
            owner = owners[key]
            if owner is not None and owner != (target.number, *key[1:]):
                read = next(found[0].part.target for found in hit.values() if found)
                raise ValueError(
                    f"the dask array reads parts of {read.name!r} of {read.store!r} that other blocks overwrite, so "
                    "that old and new values would be mixed; store it at another place, or load it first with "
                    "x.persist()"
                )


def _is_same(a: storage.StorePath, b: storage.StorePath) -> bool:
    return a.is_within(b) and b.is_within(a)


class _Target:
    """The array that a part is stored in, and where each block goes."""

    def __init__(self, number: int, part: Part) -> None:
        self.number, self.part, self.place = number, part, part.target.store_path
        starts = [place.start for place in part.region or ()]
        self._ends = [np.cumsum([start, *blocks]) for start, blocks in zip(starts, part.source.chunks, strict=True)]

    def owner(self, region: tuple[slice, ...] | None) -> Block | None:
        """The block that writes a region, or a part of it; None if no block does."""
        coords = []
        shape = self.part.target.shape
        wanted = region if region is not None and len(region) == len(shape) else (slice(None),) * len(shape)
        for ends, part, length in zip(self._ends, wanted, shape, strict=True):
            touched = range(*part.indices(length))
            if not touched:
                return None
            low, high = min(touched[0], touched[-1]), max(touched[0], touched[-1])
            first = int(np.searchsorted(ends, low, "right")) - 1
            last = int(np.searchsorted(ends, high, "right")) - 1
            first, last = max(first, 0), min(last, len(ends) - 2)
            if high < ends[0] or low >= ends[-1]:
                return None
            coords.append((first, last))
        if any(first != last for first, last in coords):
            return _SEVERAL
        return (self.number, *(first for first, _ in coords))


def _owners(tasks: Mapping[Any, Any], hit: Mapping[storage.StorePath, list[_Target]]) -> dict[Any, Block | None]:
    """For each key of a graph the block that writes what it reads, directly or through others; None if none does."""
    owners: dict[Any, Block | None] = {}
    for top in tasks:
        todo = [top]
        while todo:  # no recursion, however long the graph is
            key = todo[-1]
            missing = [needed for needed in tasks[key].needs if needed not in owners] if key not in owners else []
            if missing:
                todo += missing
                continue
            todo.pop()
            if key not in owners:
                read = (target.owner(one.region) for one in tasks[key].reads for target in hit.get(one.place, ()))
                owners[key] = _together([*read, *(owners[needed] for needed in tasks[key].needs)])
    return owners


def _together(found: Sequence[Block | None]) -> Block | None:
    blocks = {block for block in found if block is not None}
    return _SEVERAL if len(blocks) > 1 else next(iter(blocks), None)
