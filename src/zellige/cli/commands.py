"""The commands: each is a thin layer over a documented function, and returns its exit code.

They print text for people, or with `--json` the same facts for programs.
"""

from __future__ import annotations

import base64
import json
import math
import os
import platform
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, requires, version
from operator import itemgetter
from typing import Any

from zellige import Array, ChunkGrid, Group, __version__, consolidate_metadata, copy_store, kernel, migrate, storage
from zellige import convert as convert_source
from zellige import copy as copy_node
from zellige import diff as differences
from zellige import open as open_node
from zellige import rechunk as rechunk_array
from zellige import repair as mend
from zellige import vacuum as clean
from zellige import validate as check
from zellige.cli.parser import parse_chunks, parse_compressor, parse_options, parse_selection

# -- what is printed -------------------------------------------------------------------------------

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


# -- places ---------------------------------------------------------------------------------------


@contextmanager
def opened(place: str, path: str, options: list[str], *, read_only: bool) -> Iterator[Any]:
    """A path within a store."""
    found = storage.open_store(place, path=path, read_only=read_only, storage_options=parse_options(options))
    with found.store:
        yield found


def first(arguments: Namespace, *, read_only: bool = True) -> Any:
    """The first place of a command."""
    return opened(arguments.place, arguments.path, arguments.storage_options, read_only=read_only)


@contextmanager
def target(arguments: Namespace) -> Iterator[Any]:
    """The place that a command writes to; a dry run leaves it as it is, an archive too."""
    with opened(arguments.dest, "", arguments.dest_options, read_only=False) as place:
        yield place
        if getattr(arguments, "dry_run", False):
            getattr(place.store, "discard", place.store.close)()


@contextmanager
def node_at(arguments: Namespace) -> Iterator[Array | Group]:
    """The node at the first place, to be read."""
    with first(arguments) as place:
        yield open_node(place, mode="r")


@contextmanager
def array_at(arguments: Namespace) -> Iterator[Array]:
    """The array at the first place, to be read."""
    with node_at(arguments) as found:
        if isinstance(found, Group):
            raise ValueError(
                f"{found.name!r} is a group; give an array in it by --path, zellige tree shows which there are"
            )
        yield found


def options_from(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Options of a function that have the names of arguments, and `progress`."""
    bar = {"progress": not arguments.quiet} if "quiet" in arguments else {}
    return {name: getattr(arguments, name) for name in names} | bar


def _width() -> int:
    return min(100, shutil.get_terminal_size().columns)


# -- nodes ----------------------------------------------------------------------------------------


def info(arguments: Namespace) -> int:
    """What a node is: `array.info_complete()` and `group.info_complete()`, with rulers and attributes."""
    with node_at(arguments) as found:
        return emit(arguments, lambda: _all_facts(found), lambda: _description(found))


def _facts(found: Array | Group) -> dict[str, Any]:
    if isinstance(found, Group):
        return {"type": "group", "path": found.path}
    return {"type": "array", "path": found.path, "shape": found.shape, "dtype": found.metadata.data_type.label}


def _all_facts(found: Array | Group) -> dict[str, Any]:
    facts = {
        **_facts(found),
        "zarr_format": found.metadata.zarr_format,
        "attributes": dict(found.attrs),
        "metadata": found.metadata.to_documents(),
    }
    if isinstance(found, Array):
        return facts | {
            "dimension_names": found.dimension_names,
            "grid_shape": found.grid.grid_shape,
            "chunks": found.grid.get_nchunks(),
            "chunks_stored": len(found.coverage().stored),
            "bytes": found.nbytes,
            "bytes_stored": found.nbytes_stored(),
        }
    below = [member for _, member in found.members(max_depth=None)]
    arrays = sum(isinstance(member, Array) for member in below)
    consolidated = found.metadata.consolidated is not None
    return facts | {"arrays": arrays, "groups": len(below) - arrays, "consolidated": consolidated}


def _description(found: Array | Group) -> str:
    items = found.info_complete().items
    width = max(len(label) for label, _ in items)
    lines = [f"{paint(label.ljust(width), 'bold')} : {value}" for label, value in items]
    if found.attrs:
        lines += ["", paint("Attributes", "bold")]
        lines += [f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in found.attrs.items()]
    if isinstance(found, Array):
        for name, dim in zip(_axis_names(found), found.grid.dimensions, strict=True):
            lines += ["", f"{paint(name, 'bold')}: {dim.extent:,} in {counted(dim.nchunks, 'chunk')}"]
            lines.append(ChunkGrid((dim,)).to_text(_width()))
    return "\n".join(lines)


def _axis_names(array: Array) -> list[str]:
    names = array.dimension_names or (None,) * array.ndim
    return [name or f"axis {axis}" for axis, name in enumerate(names)]


def tree(arguments: Namespace) -> int:
    """The nodes below a group: `group.tree()`."""
    shown = {**options_from(arguments, "level", "max_nodes"), "plain": arguments.ascii}
    with node_at(arguments) as found:
        return emit(
            arguments,
            lambda: _branch(found, arguments.level),
            lambda: repr(found if isinstance(found, Array) else found.tree(**shown)),
        )


def _branch(found: Array | Group, level: int | None) -> dict[str, Any]:
    """A node and what is below it."""
    facts = _facts(found)
    if isinstance(found, Group):
        deeper = None if level is None else level - 1
        below = found.members() if level is None or level > 0 else ()
        facts["members"] = {name: _branch(member, deeper) for name, member in below}
    return facts


def ls(arguments: Namespace) -> int:
    """The members of a group: `group.members()`."""
    depth = None if arguments.recursive else 0
    with node_at(arguments) as found:
        members = [("", found)] if isinstance(found, Array) else sorted(found.members(depth), key=itemgetter(0))
        return emit(arguments, lambda: [_facts(member) for _, member in members], lambda: _listing(members))


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

_FIRST = 10  # elements that `head` shows along each axis
_SHOWN = 200  # values that are printed before numpy leaves some out


def _selection(arguments: Namespace) -> Any:
    return ... if arguments.selection is None else parse_selection(arguments.selection)


def head(arguments: Namespace) -> int:
    """Values of a selection: `array[selection]`."""
    import numpy as np

    with array_at(arguments) as array:
        first = tuple(slice(0, min(_FIRST, n)) for n in array.shape)
        found = np.asarray(array[first if arguments.selection is None else _selection(arguments)])
        most = found.size + 1 if arguments.all else _SHOWN
        return emit(
            arguments,
            lambda: {**_facts(array), "shape": found.shape, "values": found},
            lambda: np.array2string(found, max_line_width=_width(), threshold=most, separator=" "),
        )


def stats(arguments: Namespace) -> int:
    """What values come to: `array.stats(selection)`, or `array.chunk_stats(selection)`."""
    with array_at(arguments) as array:
        if arguments.per_chunk:
            parts = array.chunk_stats(_selection(arguments), **options_from(arguments))
            chunks = [(coords, vars(part)) for coords, part in parts]
            lines = [f"{coords}: " + ", ".join(f"{k} {v}" for k, v in part.items()) for coords, part in chunks]
            content = [{"coords": coords, **part} for coords, part in chunks]
            return emit(arguments, lambda: content, lambda: "\n".join(lines))
        found = vars(array.stats(_selection(arguments), **options_from(arguments)))
        return emit(arguments, lambda: found, lambda: "\n".join(f"{name:<5} {value}" for name, value in found.items()))


def coverage(arguments: Namespace) -> int:
    """Which chunks are stored: `array.coverage()`."""
    with array_at(arguments) as array:
        found = array.coverage()
        if arguments.svg:
            with open(arguments.svg, "w", encoding="utf-8") as file:
                file.write(found.to_svg())
        said = repr(found).strip("<>")
        content = {"grid_shape": found.grid_shape, "total": found.total, "fraction": found.fraction}
        return emit(
            arguments,
            lambda: {**content, "stored": sorted(found.stored)},
            lambda: f"{said}; see {arguments.svg}" if arguments.svg else f"{_map(array, found)}\n{said}",
        )


def _map(array: Array, found: Any) -> str:
    """The map of a coverage, with its axes."""
    names = _axis_names(array)
    axes = [names[axis] for axis in found.map_axes]
    which = f"down {axes[0]}, across {axes[1]}" if len(axes) == 2 else f"across {axes[0]}" if axes else "one chunk"
    return f"{found.to_text(_width())}\n{which}; █ all, ▒ some, · none"


def explain(arguments: Namespace) -> int:
    """What reading a selection would cost: `array.explain(selection)`."""
    with array_at(arguments) as array:
        found = array.explain(_selection(arguments))
        return emit(arguments, lambda: {**vars(found), "amplification": found.amplification}, lambda: str(found))


# -- checks ---------------------------------------------------------------------------------------

_LEVELS = {"error": "red", "warning": "yellow", "note": "dim"}


def validate(arguments: Namespace) -> int:
    """Find what is wrong: `zellige.validate`; exit code 1 if there is an error or a warning."""
    with first(arguments) as place:
        report = check(place, **options_from(arguments, "deep"))
    lines = [
        str(found).replace(f"{found.level}:", paint(f"{found.level}:", _LEVELS[found.level]), 1)
        for found in report.findings
    ]
    names = ("ok", "arrays", "groups", "chunks", "deep")
    return emit(
        arguments,
        lambda: {n: getattr(report, n) for n in names} | {"findings": [_finding(found) for found in report.findings]},
        lambda: "\n".join([*lines, report.summary()]),
        code=not report.ok,
    )


def _finding(found: Any) -> dict[str, Any]:
    return {"level": found.level, **vars(found)}


def repair(arguments: Namespace) -> int:
    """Mend what can be mended: `zellige.repair`; exit code 1 if something is left to do."""
    with first(arguments, read_only=not arguments.do) as place:
        options = options_from(arguments, "drop", "stray", "shrink")
        done = mend(place, dry_run=not arguments.do, deep=not arguments.shallow, **options)
    more = done.dry_run and any(what != "left" for what, _ in done.actions)
    text = str(done) + ("\nnothing was changed; give --do to do it" if more else "")
    return _say(arguments, done, text, code=bool(done.left or (done.dry_run and done.actions)))


def vacuum(arguments: Namespace) -> int:
    """Remove what is of no use: `zellige.vacuum`."""
    with first(arguments, read_only=arguments.dry_run) as place:
        done = clean(place, **options_from(arguments, "dry_run", "quarantine", "unfinished"))
    aside = "\nwhat repair had put aside is removed" if arguments.quarantine and not done.dry_run else ""
    return _say(arguments, done, (str(done) if done.actions else "nothing beyond the end, nothing left over") + aside)


def _say(arguments: Namespace, done: Any, text: str, code: int = 0) -> int:
    return emit(
        arguments,
        lambda: {
            "dry_run": done.dry_run,
            "actions": [{"done": what, **_finding(found)} for what, found in done.actions],
            "left": len(done.left),
            "notes": [_finding(found) for found in done.notes],
        },
        lambda: text,
        code,
    )


def diff(arguments: Namespace) -> int:
    """How two nodes differ: `zellige.diff`; exit code 1 if they do."""
    other = arguments.path if arguments.second_path is None else arguments.second_path
    with first(arguments) as here, opened(arguments.second, other, arguments.dest_options, read_only=True) as there:
        nodes = [open_node(place, mode="r") for place in (here, there)]
        found = differences(*nodes, values=not arguments.metadata, **options_from(arguments))
    rows = [{"path": path, "elements": count, "first": place} for path, count, place in found.values]
    content = {"differ": bool(found), "metadata": found.metadata, "values": rows}
    return emit(arguments, lambda: content, lambda: str(found), code=bool(found))


# -- writing --------------------------------------------------------------------------------------


def _layout(arguments: Namespace) -> dict[str, Any]:
    """The options of new arrays."""
    given = {name: getattr(arguments, name) for name in ("chunks", "shards")}
    found = {name: parse_chunks(text) for name, text in given.items() if text is not None}
    if arguments.compressor is not None:
        found["compressors"] = parse_compressor(arguments.compressor)
    return found


def copy(arguments: Namespace) -> int:
    """Copy a node: all keys by `zellige.copy_store`, or with --to a node into a group by `zellige.copy`."""
    common = options_from(arguments, "if_exists", "dry_run", "verify")
    with first(arguments) as place, target(arguments) as dest:
        source = open_node(place, mode="r")
        if arguments.to:
            copied = copy_node(source, dest, arguments.to, **common)
        else:
            copied = copy_store(source.store, dest, source.path, **common)
    content = {**copied._asdict(), "left_out": copied.left_out}
    return emit(arguments, lambda: content, lambda: copied.summary(dry_run=arguments.dry_run))


def rechunk(arguments: Namespace) -> int:
    """Write an array with other chunks: `zellige.rechunk`."""
    with array_at(arguments) as source, target(arguments) as dest:
        options = {**options_from(arguments, "overwrite"), **_layout(arguments)}
        made = rechunk_array(source, dest, name=arguments.to, max_memory=arguments.memory, **options)
    content = {"path": made.path, "shape": made.shape, "grid_shape": made.grid.grid_shape}
    return emit(arguments, lambda: {**content, "metadata": made.metadata.to_documents()}, lambda: repr(made))


def convert(arguments: Namespace) -> int:
    """Convert to Zarr format 3: `zellige.convert`; with --undo and --remove-v2 `zellige.migrate`.

    Exit code 1 if something is left out.
    """
    if arguments.undo or arguments.remove_v2:
        return _migrate(arguments)
    in_place = arguments.dest is None
    with ExitStack() as stack:
        if os.path.isfile(arguments.place) and not arguments.place.lower().endswith(".zip"):
            source, path = arguments.place, arguments.path
        else:
            source, path = stack.enter_context(first(arguments, read_only=not in_place or arguments.dry_run)), ""
        found = convert_source(
            source,
            None if in_place else stack.enter_context(target(arguments)),
            path=path,
            name=arguments.to,
            unsupported="skip" if arguments.skip else "raise",
            **options_from(arguments, "overwrite", "dry_run"),
            **_layout(arguments),
        )
    # What is left out has been named on stderr, by warnings.
    return emit(arguments, lambda: vars(found), lambda: str(found).splitlines()[-1], code=bool(found.skipped))


def _migrate(arguments: Namespace) -> int:
    if arguments.dest is not None:
        raise ValueError("--undo and --remove-v2 are for a conversion in place; leave DEST out")
    with first(arguments, read_only=arguments.dry_run) as place:
        remove_v2 = arguments.remove_v2 and not arguments.dry_run
        done = migrate(place, remove_v2=remove_v2, **options_from(arguments, "dry_run", "undo"))
    return emit(arguments, lambda: vars(done), lambda: repr(done), code=bool(done.failed))


def consolidate(arguments: Namespace) -> int:
    """Put all documents into the group's own: `zellige.consolidate_metadata`."""
    with first(arguments, read_only=False) as place:
        made = consolidate_metadata(place)
        count = made.nmembers(max_depth=None)
    content = {"path": made.path, "nodes": count}
    return emit(arguments, lambda: content, lambda: f"{made.name} holds {counted(count, 'node')}")


# -- beginning ------------------------------------------------------------------------------------


def demo(arguments: Namespace) -> int:
    """Make a year of temperatures, a chunk for each month, and say how to look at it."""
    import numpy as np

    from zellige import create_group

    months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    day, latitude = np.arange(365)[:, None, None], np.linspace(-85, 85, 18)[None, :, None]
    season = 12 * np.cos((day - 200) / 365 * 2 * np.pi) * np.sin(np.radians(latitude))
    wave = 2 * np.sin(np.radians(np.linspace(0, 350, 36)))
    field = np.round(28 * np.cos(np.radians(latitude)) - 5 + season + wave, 1).astype("float32")
    field[300:, 0, 0] = np.nan
    with opened(arguments.place, "", [], read_only=False) as place:
        group = create_group(place, overwrite=arguments.overwrite, attributes={"title": "a year of weather"})
        made = group.create_array(
            "t",
            data=field[:334],
            chunks=[months[:11], 9, 36],
            dimension_names=["time", "lat", "lon"],
            attributes={"unit": "°C"},
        )
        made.resize((365, 18, 36), chunks={"time": [31]})
        group.create_array("monthly/mean", data=field.mean(axis=(1, 2)), chunks=[months])
    at = arguments.place
    t, more = (at, " --path t") if at.lower().endswith(".zip") else (f"{at}/t", "")
    lines = [
        f"made {at}: eleven months of temperatures, and room for the twelfth; try",
        f"  zellige tree {at}",
        f"  zellige info {t}{more}",
        f"  zellige head {t} 0:3,::6,0{more}",
        f"  zellige coverage {t}{more}",
        f"  zellige validate --deep {at}",
    ]
    return emit(arguments, lambda: {"place": at, "arrays": ["t", "monthly/mean"]}, lambda: "\n".join(lines))


_REQUIRED = ("numpy", "numcodecs", "zstandard", "google-crc32c")


def doctor(arguments: Namespace) -> int:
    """Versions of everything that matters, extras with what they lack; exit code 1 if something needed is missing."""
    packages = {name: _version(name) for name in _REQUIRED}
    extras = {name: {package: _version(package) for package in needed} for name, needed in sorted(_extras().items())}
    content = {
        "zellige": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "kernel": kernel.info(),
        "packages": packages,
        "extras": extras,
    }
    return emit(arguments, lambda: content, lambda: _doctor_text(content), code=not all(packages.values()))


def _doctor_text(content: dict[str, Any]) -> str:
    lines = [f"{name:<14} {content[name]}" for name in ("zellige", "python", "platform", "cpus")]
    lines.append(f"{'kernel':<14} {_kernel_text(content['kernel'])}")
    for name, found in content["packages"].items():
        lines.append(f"{name:<14} {found or paint('missing', 'red') + f': pip install {name}'}")
    for name, needed in content["extras"].items():
        missing = [package for package, found in needed.items() if found is None]
        have = ", ".join(f"{package} {found}" for package, found in needed.items() if found is not None)
        said = f"without {', '.join(missing)}: pip install 'zellige[{name}]'" if missing else have
        lines.append(f"{f'[{name}]':<14} {said}")
    if not content["extras"]:
        lines.append("extras are not known, because zellige is not installed: pip install zellige")
    return "\n".join(lines)


def _kernel_text(found: dict[str, Any]) -> str:
    if found["works"]:
        missing = [name for name, known in found["codecs"].items() if not known]
        return f"{found['state']}{', without ' * bool(missing)}{', '.join(missing)}"
    remedy = "unset ZELLIGE_KERNEL" if found["is_off"] else "install zellige again where a C compiler is"
    return f"{found['state']}: everything works in plain Python, slower; {remedy}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _extras() -> dict[str, list[str]]:
    """The packages of each extra, from what is written about this installation."""
    try:
        lines = requires("zellige") or []
    except PackageNotFoundError:
        lines = []
    found: dict[str, list[str]] = {}
    for line in lines:
        needed, _, condition = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        package = re.match(r"[\w.-]+", needed)
        if extra and package and extra[1] != "dev" and package[0] != "zellige":
            found.setdefault(extra[1], []).append(package[0])
    return found
