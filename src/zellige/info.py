"""Arrays described for people: `repr(array)` and `array.info`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zellige.array import Array
    from zellige.grid import DimensionGrid


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """Labels and values; prints as a table."""

    items: tuple[tuple[str, str], ...]

    def __getitem__(self, label: str) -> str:
        return dict(self.items)[label]

    def __repr__(self) -> str:
        width = max(len(label) for label, _ in self.items)
        return "\n".join(f"{label:<{width}} : {value}" for label, value in self.items)


def describe(array: Array, *, stored: bool = False) -> ArrayInfo:
    """What an array is; `stored` adds what is in the store, which takes a listing."""
    items: list[tuple[str, Any]] = [
        ("Name", array.name),
        ("Type", "Array"),
        ("Zarr format", 3),
        ("Data type", array.metadata.data_type.label),
        ("Fill value", array.fill_value),
        ("Shape", _shape_text(array)),
        ("Chunk grid", f"{array.metadata.chunk_grid.name}, {_times(array.cdata_shape)} = {array.nchunks:,} chunks"),
        *((f"Chunks, {name}", _axis_text(dim)) for name, dim in zip(_names(array), array.grid.dimensions, strict=True)),
        ("Largest chunk", human_bytes(_largest(array) * array.dtype.itemsize)),
        ("Order", array.order),
        ("Read-only", array.read_only),
        ("Store", repr(array.store)),
        ("Filters", list(array.filters)),
        ("Serializer", array.serializer),
        ("Compressors", list(array.compressors)),
        ("Size", human_bytes(array.nbytes)),
    ]
    if stored:
        nbytes = array.nbytes_stored()
        items.append(("Stored", human_bytes(nbytes)))
        items.append(("Ratio", f"{array.nbytes / nbytes:.1f}" if nbytes else "-"))
        items.append(("Chunks stored", f"{array.nchunks_initialized:,} of {array.nchunks:,}"))
    return ArrayInfo(tuple((label, str(value)) for label, value in items))


def one_line(array: Array) -> str:
    """The array in one line, with its grid."""
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
    """One axis of the grid: `10` for a size that repeats, `[31, 28, 31, …(24)]` for edges."""
    if isinstance(dim.chunks, int):
        return str(dim.chunks)
    head = ", ".join(map(str, dim.chunks[:4]))
    return f"[{head}, …({len(dim.chunks)})]" if len(dim.chunks) > 4 else f"[{head}]"


def _largest(array: Array) -> int:
    return prod(max(dim.unique_edge_lengths) for dim in array.grid.dimensions)


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "1"


def human_bytes(nbytes: float) -> str:
    """A number of bytes for people.

    >>> human_bytes(5 * 2**20)
    '5.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} PiB"
