"""Nodes described for people: `repr(array)`, `array.info` and `group.info`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

from zellige.display.text import Member, human_bytes
from zellige.errors import MetadataError, UnfinishedError
from zellige.grid.axis import as_axis
from zellige.metadata.json import UNFINISHED, UNFINISHED_WORDS
from zellige.nodes.array import Array

if TYPE_CHECKING:
    from zellige.grid.grid import DimensionGrid
    from zellige.nodes.group import Group, Node


@dataclass(frozen=True, slots=True)
class Info:
    """Labels and values; prints as a table."""

    items: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, items: Iterable[tuple[str, Any]]) -> Info:
        """Return labels with values of any type."""
        return cls(tuple((label, str(value)) for label, value in items))

    def __getitem__(self, label: str) -> str:
        return dict(self.items)[label]

    def __repr__(self) -> str:
        width = max(len(label) for label, _ in self.items)
        return "\n".join(f"{label:<{width}} : {value}" for label, value in self.items)


def describe(array: Array, *, stored: bool = False) -> Info:
    """Return what an array is; `stored` adds what is in the store, which takes a listing."""
    nchunks, chain = array.grid.get_nchunks(), array._chunks.chain
    largest = prod(max(dim.unique_edge_lengths) for dim in array.grid.dimensions)
    counts = " × ".join(map(str, array.grid.grid_shape)) or "1"
    items: list[tuple[str, Any]] = [
        ("Name", array.name),
        ("Type", "Array"),
        ("Zarr format", array.metadata.zarr_format),
        ("Data type", array.metadata.data_type.label),
        ("Fill value", array.fill_value),
        ("Shape", _shape_text(array)),
        ("Chunk grid", f"{array.metadata.chunk_grid.name}, {counts} = {nchunks:,} chunks"),
        *((f"Chunks, {name}", _axis_text(dim)) for name, dim in zip(_names(array), array.grid.dimensions, strict=True)),
        ("Largest chunk", human_bytes(largest * array.dtype.itemsize)),
        ("Order", array.order),
        ("Read-only", array.read_only),
        ("Store", repr(array.store)),
        ("Filters", list(chain.filters)),
        ("Serializer", chain.serializer),
        ("Compressors", list(chain.compressors)),
        ("Size", human_bytes(array.nbytes)),
    ]
    if UNFINISHED in array.metadata.extra:
        items.append(("Unfinished", UNFINISHED_WORDS))
    if stored:
        nbytes = array.nbytes_stored()
        items.append(("Stored", human_bytes(nbytes)))
        items.append(("Ratio", f"{array.nbytes / nbytes:.1f}" if nbytes else "-"))
        items.append(("Chunks stored", f"{array._chunks.count(array.grid):,} of {nchunks:,}"))
    return Info.of(items)


def html(array: Array) -> str:
    """Return what `repr` says, and pictures; nothing is read."""
    from zellige.display.svg import array_html

    grid, inner = array.grid, array._inner
    count = grid.get_nchunks()
    kind = ("chunk" if inner is None else "shard") + "s" * (count != 1)
    facts = [
        ("Shape", " × ".join(f"{n:,}" for n in array.shape) or "scalar"),
        ("Type", str(array.metadata.data_type.label)),
        ("Size", human_bytes(array.nbytes)),
        ("Grid", f"{array.metadata.chunk_grid.name}, {count:,} {kind}"),
    ]
    if inner is not None:
        facts.append(("Inner chunks", " × ".join(f"{n:,}" for n in inner)))
    compressors = ", ".join(str(getattr(codec, "name", codec)) for codec in array.compressors) or "none"
    facts += [("Compressors", compressors), ("Fill value", str(array.fill_value)), ("Store", repr(array.store))]
    return array_html(f"zellige.Array {array.name}", facts, grid, inner, array.dimension_names)


def describe_group(group: Group, *, complete: bool = False) -> Info:
    """Return what a group is; `complete` adds the number of its members, which takes listings."""
    items: list[tuple[str, Any]] = [
        ("Name", group.name),
        ("Type", "Group"),
        ("Zarr format", group.metadata.zarr_format),
        ("Read-only", group.read_only),
        ("Store", repr(group.store)),
        ("Attributes", len(group.attrs)),
        ("Consolidated", group.metadata.consolidated is not None),
    ]
    if complete:
        names: dict[str, list[str]] = {"Arrays": [], "Groups": [], "Unfinished": [], "Cannot be read": []}
        for name, found in group._below(None):
            if isinstance(found, MetadataError):
                names["Unfinished" if isinstance(found, UnfinishedError) else "Cannot be read"].append(name)
            else:
                names["Arrays" if isinstance(found, Array) else "Groups"].append(name)
        counts = {what: len(names.pop(what)) for what in ("Arrays", "Groups")}
        items += [("Members", sum(counts.values())), *counts.items()]
        items += [(what, ", ".join(found)) for what, found in names.items() if found]
    return Info.of(items)


def tree_members(group: Group, level: int | None) -> list[Member]:
    """Return what a tree shows below a group: each document is read once, or none with consolidated metadata."""
    if level is not None and index(level) < 1:
        return []
    found = sorted(group._below(None if level is None else level - 1), key=lambda item: item[0].split("/"))
    return [_member(path, node) for path, node in found]


def _member(path: str, found: Node | MetadataError) -> Member:
    if isinstance(found, MetadataError):
        label = str(found) if isinstance(found, UnfinishedError) else f"cannot be read: {found}"
        return Member(path, label, is_group=False, is_broken=True)
    if isinstance(found, Array):
        return Member(path, f"{found.shape} {found.metadata.data_type.label}", is_group=False)
    return Member(path)


def one_line(array: Array) -> str:
    """Return the array in one line, with its grid."""
    cuts = " × ".join(_axis_text(dim) for dim in array.grid.dimensions) or "scalar"
    return (
        f"<zellige.Array {array.name} {_shape_text(array)} {array.metadata.data_type.label}, "
        f"{array.metadata.chunk_grid.name} chunks {cuts}>"
    )


def _names(array: Array) -> list[str]:
    names = array.dimension_names or (None,) * array.ndim
    return [f"axis {k}" if name is None else f"axis {k} ({name})" for k, name in enumerate(names)]


def _shape_text(array: Array) -> str:
    names = array.dimension_names
    if names is None:
        return str(array.shape)
    parts = (f"{name or '?'}: {n}" for name, n in zip(names, array.shape, strict=True))
    return f"({', '.join(parts)})"


def _axis_text(dim: DimensionGrid) -> str:
    """Return one axis of the grid: `10` for a size that repeats, `[31, 28, 31, …(24)]` for edges."""
    chunks = as_axis(dim).declared
    if isinstance(chunks, int):
        return str(chunks)
    head = ", ".join(map(str, chunks[:4]))
    return f"[{head}, …({len(chunks)})]" if len(chunks) > 4 else f"[{head}]"
