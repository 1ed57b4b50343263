"""Commands that only look: info, tree, ls, head, stats, coverage, explain."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from typing import Any

from zellige import Array, ChunkGrid, Group
from zellige import open as open_node
from zellige.cli import values
from zellige.cli.output import emit, paint

_FIRST = 10  # elements that `head` shows along each axis
_SHOWN = 200  # values that are printed before numpy leaves some out


def _node(arguments: Namespace) -> Array | Group:
    options = values.options(arguments.storage_options)
    return open_node(arguments.place, path=arguments.path, mode="r", storage_options=options)


def _array(arguments: Namespace) -> Array:
    found = _node(arguments)
    if isinstance(found, Group):
        raise ValueError(
            f"{found.name!r} is a group; give an array in it by --path, zellige tree shows which there are"
        )
    return found


def _selection(arguments: Namespace) -> Any:
    return ... if arguments.selection is None else values.selection(arguments.selection)


def _width() -> int:
    return min(100, shutil.get_terminal_size().columns)


# -- nodes ----------------------------------------------------------------------------------------


def info(arguments: Namespace) -> int:
    """What a node is: `array.info_complete()` and `group.info_complete()`, with rulers and attributes."""
    found = _node(arguments)
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
        f"\n\n{paint(name or f'axis {axis}', 'bold')}: {array.shape[axis]:,} in {_count(dim.nchunks, 'chunk')}\n"
        + ChunkGrid((dim,)).to_text(_width())
        for axis, (name, dim) in enumerate(zip(names, array.grid.dimensions, strict=True))
    ]
    return _table(array) + _attributes(array) + "".join(rulers)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def tree(arguments: Namespace) -> int:
    """The nodes below a group: `group.tree()`."""
    found = _node(arguments)

    def text() -> str:
        if isinstance(found, Array):
            return repr(found)
        return repr(found.tree(level=arguments.level, max_nodes=arguments.max_nodes, plain=arguments.ascii))

    emit(arguments, lambda: _branch(found, arguments.level), text)
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
    found = _node(arguments)
    members = [("", found)] if isinstance(found, Array) else list(found.members(None if arguments.recursive else 0))
    members.sort(key=lambda member: member[0])
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

    array = _array(arguments)
    first = tuple(slice(0, min(_FIRST, n)) for n in array.shape)
    selection = first if arguments.selection is None else values.selection(arguments.selection)
    found = np.asarray(array[selection])
    content = {"path": array.path, "shape": found.shape, "dtype": array.metadata.data_type.label}
    most = found.size + 1 if arguments.all else _SHOWN
    emit(
        arguments,
        lambda: {**content, "values": found},
        lambda: np.array2string(found, max_line_width=_width(), threshold=most, separator=" "),
    )
    return 0


def stats(arguments: Namespace) -> int:
    """What values come to: `array.stats(selection)`, or `array.chunk_stats(selection)`."""
    array, selection = _array(arguments), _selection(arguments)
    if not arguments.per_chunk:
        found = array.stats(selection, progress=not arguments.quiet)
        emit(arguments, lambda: vars(found), lambda: "\n".join(f"{k:<5} {v}" for k, v in vars(found).items()))
        return 0
    chunks = list(array.chunk_stats(selection, progress=not arguments.quiet))
    emit(
        arguments,
        lambda: [{"coords": coords, **vars(found)} for coords, found in chunks],
        lambda: "\n".join(f"{coords}: " + ", ".join(f"{k} {v}" for k, v in vars(s).items()) for coords, s in chunks),
    )
    return 0


def coverage(arguments: Namespace) -> int:
    """Which chunks are stored: `array.coverage()`."""
    array = _array(arguments)
    found = array.coverage()
    if arguments.svg:
        with open(arguments.svg, "w", encoding="utf-8") as file:
            file.write(found.to_svg())

    def text() -> str:
        said = repr(found).strip("<>")
        if arguments.svg:
            return f"{said}; see {arguments.svg}"
        names = array.dimension_names or (None,) * array.ndim
        axes = [names[axis] or f"axis {axis}" for axis in found.map_axes]
        which = f"down {axes[0]}, across {axes[1]}" if len(axes) == 2 else f"across {axes[0]}" if axes else "one chunk"
        return f"{found.to_text(_width())}\n{which}; █ all, ▒ some, · none\n{said}"

    content = {"grid_shape": found.grid_shape, "total": found.total, "fraction": found.fraction}
    emit(arguments, lambda: {**content, "stored": sorted(found.stored)}, text)
    return 0


_EXPLAINED = ("chunks", "shards", "requests", "bytes", "elements", "bytes_wanted", "amplification", "suggestion")


def explain(arguments: Namespace) -> int:
    """What a selection costs: `array.explain(selection)`."""
    array: Any = _array(arguments)
    found = array.explain(_selection(arguments))
    emit(arguments, lambda: {name: getattr(found, name) for name in _EXPLAINED}, lambda: str(found))
    return 0
