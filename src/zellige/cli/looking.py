"""Commands that only look: info, tree, ls, head, stats, coverage, explain."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from operator import itemgetter
from typing import Any

from zellige import Array, ChunkGrid, Group
from zellige.cli import values
from zellige.cli.output import counted, emit, paint
from zellige.cli.places import array_at, node_at

_FIRST = 10  # elements that `head` shows along each axis
_SHOWN = 200  # values that are printed before numpy leaves some out


def _selection(arguments: Namespace) -> Any:
    return ... if arguments.selection is None else values.selection(arguments.selection)


def _width() -> int:
    return min(100, shutil.get_terminal_size().columns)


# -- nodes ----------------------------------------------------------------------------------------


def info(arguments: Namespace) -> int:
    """What a node is: `array.info_complete()` and `group.info_complete()`, with rulers and attributes."""
    with node_at(arguments) as found:
        if isinstance(found, Array):
            emit(arguments, lambda: _array_facts(found), lambda: _array_text(found))
        else:
            emit(arguments, lambda: _group_facts(found), lambda: _table(found) + _attributes(found))
    return 0


def _array_facts(array: Array) -> dict[str, Any]:
    return {
        "type": "array",
        "path": array.path,
        "zarr_format": array.metadata.zarr_format,
        "shape": array.shape,
        "dtype": array.metadata.data_type.label,
        "dimension_names": array.dimension_names,
        "grid_shape": array.grid.grid_shape,
        "chunks": array.grid.get_nchunks(),
        "chunks_stored": len(array.coverage().stored),
        "bytes": array.nbytes,
        "bytes_stored": array.nbytes_stored(),
        "attributes": dict(array.attrs),
        "metadata": array.metadata.to_documents(),
    }


def _group_facts(group: Group) -> dict[str, Any]:
    below = [found for _, found in group.members(max_depth=None)]
    arrays = sum(isinstance(found, Array) for found in below)
    return {
        "type": "group",
        "path": group.path,
        "zarr_format": group.metadata.zarr_format,
        "arrays": arrays,
        "groups": len(below) - arrays,
        "consolidated": group.metadata.consolidated is not None,
        "attributes": dict(group.attrs),
        "metadata": group.metadata.to_documents(),
    }


def _table(found: Array | Group) -> str:
    items = found.info_complete().items
    width = max(len(label) for label, _ in items)
    return "\n".join(f"{paint(label.ljust(width), 'bold')} : {value}" for label, value in items)


def _attributes(found: Array | Group) -> str:
    lines = [f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in found.attrs.items()]
    return "\n".join(["\n", paint("Attributes", "bold"), *lines]) if lines else ""


def _array_text(array: Array) -> str:
    names = array.dimension_names or (None,) * array.ndim
    rulers = [
        f"\n\n{paint(name or f'axis {axis}', 'bold')}: {array.shape[axis]:,} in {counted(dim.nchunks, 'chunk')}\n"
        + ChunkGrid((dim,)).to_text(_width())
        for axis, (name, dim) in enumerate(zip(names, array.grid.dimensions, strict=True))
    ]
    return _table(array) + _attributes(array) + "".join(rulers)


def tree(arguments: Namespace) -> int:
    """The nodes below a group: `group.tree()`."""
    shown = {"level": arguments.level, "max_nodes": arguments.max_nodes, "plain": arguments.ascii}
    with node_at(arguments) as found:
        emit(
            arguments,
            lambda: _branch(found, arguments.level),
            lambda: repr(found) if isinstance(found, Array) else repr(found.tree(**shown)),
        )
    return 0


def _branch(found: Array | Group, level: int | None) -> dict[str, Any]:
    """A node and what is below it."""
    facts = _facts(found)
    if isinstance(found, Group):
        deeper = None if level is None else level - 1
        below = found.members() if level is None or level > 0 else ()
        facts["members"] = {name: _branch(member, deeper) for name, member in below}
    return facts


def _facts(found: Array | Group) -> dict[str, Any]:
    if isinstance(found, Group):
        return {"type": "group", "path": found.path}
    return {"type": "array", "path": found.path, "shape": found.shape, "dtype": found.metadata.data_type.label}


def ls(arguments: Namespace) -> int:
    """The members of a group: `group.members()`."""
    depth = None if arguments.recursive else 0
    with node_at(arguments) as found:
        members = [("", found)] if isinstance(found, Array) else sorted(found.members(depth), key=itemgetter(0))
        emit(arguments, lambda: [_facts(member) for _, member in members], lambda: _listing(members))
    return 0


def _listing(members: list[tuple[str, Any]]) -> str:
    """A line for each: its kind, its name, and of arrays shape, type and chunks."""
    width = max((len(name) for name, _ in members), default=0)
    lines = []
    for name, member in members:
        if isinstance(member, Group):
            lines.append(f"group  {paint(name, 'blue')}")
        else:
            words = repr(member).removeprefix(f"<zellige.Array {member.name} ").removesuffix(">")
            lines.append(f"array  {(name or member.name).ljust(width)}  {words}")
    return "\n".join(lines)


# -- values ---------------------------------------------------------------------------------------


def head(arguments: Namespace) -> int:
    """Values of a selection: `array[selection]`."""
    import numpy as np

    with array_at(arguments) as array:
        first = tuple(slice(0, min(_FIRST, n)) for n in array.shape)
        found = np.asarray(array[first if arguments.selection is None else _selection(arguments)])
        most = found.size + 1 if arguments.all else _SHOWN
        emit(
            arguments,
            lambda: {**_facts(array), "shape": found.shape, "values": found},
            lambda: np.array2string(found, max_line_width=_width(), threshold=most, separator=" "),
        )
    return 0


def stats(arguments: Namespace) -> int:
    """What values come to: `array.stats(selection)`, or `array.chunk_stats(selection)`."""
    with array_at(arguments) as array:
        asked = {"selection": _selection(arguments), "progress": not arguments.quiet}
        if arguments.per_chunk:
            chunks = list(array.chunk_stats(**asked))
            emit(arguments, lambda: [{"coords": at, **vars(found)} for at, found in chunks], lambda: _lines(chunks))
        else:
            found = vars(array.stats(**asked))
            emit(arguments, lambda: found, lambda: "\n".join(f"{name:<5} {value}" for name, value in found.items()))
    return 0


def _lines(chunks: list[tuple[Any, Any]]) -> str:
    """A line for each chunk."""
    return "\n".join(f"{at}: " + ", ".join(f"{k} {v}" for k, v in vars(found).items()) for at, found in chunks)


def coverage(arguments: Namespace) -> int:
    """Which chunks are stored: `array.coverage()`."""
    with array_at(arguments) as array:
        found = array.coverage()
        if arguments.svg:
            with open(arguments.svg, "w", encoding="utf-8") as file:
                file.write(found.to_svg())
        said = repr(found).strip("<>")
        content = {"grid_shape": found.grid_shape, "total": found.total, "fraction": found.fraction}
        emit(
            arguments,
            lambda: {**content, "stored": sorted(found.stored)},
            lambda: f"{said}; see {arguments.svg}" if arguments.svg else f"{_map(array, found)}\n{said}",
        )
    return 0


def _map(array: Array, found: Any) -> str:
    """The map of a coverage, with its axes."""
    names = array.dimension_names or (None,) * array.ndim
    axes = [names[axis] or f"axis {axis}" for axis in found.map_axes]
    which = f"down {axes[0]}, across {axes[1]}" if len(axes) == 2 else f"across {axes[0]}" if axes else "one chunk"
    return f"{found.to_text(_width())}\n{which}; █ all, ▒ some, · none"


def explain(arguments: Namespace) -> int:
    """What reading a selection would cost: `array.explain(selection)`."""
    with array_at(arguments) as array:
        found = array.explain(_selection(arguments))
        emit(arguments, lambda: {**vars(found), "amplification": found.amplification}, lambda: str(found))
    return 0
