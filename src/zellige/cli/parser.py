"""The arguments of the command, and what their text means; nothing is evaluated.

Imports nothing that help does not need.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from itertools import takewhile
from types import EllipsisType
from typing import Any, NamedTuple, NoReturn, TypeAlias

from zellige import __version__

# -- what the commands take -----------------------------------------------------------------------

Argument: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]
"""The names and the options that `add_argument` takes."""


class Command(NamedTuple):
    """What a command is for, an example, and its arguments."""

    help: str
    example: str
    arguments: tuple[Argument, ...]


def _command(help: str, example: str, *arguments: Argument) -> Command:
    return Command(help, example, arguments)


def _argument(*names: str, **options: Any) -> Argument:
    return names, options


def _flag(*names: str, help: str) -> Argument:
    return _argument(*names, action="store_true", help=help)


def _options(short: str, long: str, name: str, help: str) -> Argument:
    return _argument(short, long, dest=name, action="append", default=[], metavar="KEY=VALUE", help=help)


def _place(name: str = "PLACE", help: str = "a path or URL") -> list[Argument]:
    return [
        _argument("place", metavar=name, help=help),
        _argument("--path", default="", help="the node within it"),
        _options("-o", "--option", "storage_options", "a storage option of the place"),
    ]


def _target(**options: Any) -> list[Argument]:
    return [
        _argument("dest", metavar="DEST", help="where it goes", **options),
        _argument("--to", default="", metavar="PATH", help="the path within DEST; its root by default"),
        _options("-O", "--dest-option", "dest_options", "a storage option of DEST"),
    ]


def _selection(help: str = "as in numpy; by default everything") -> Argument:
    return _argument("selection", metavar="SELECTION", nargs="?", default=None, help=help)


_QUIET = _flag("-q", "--quiet", help="no progress bar")
_LAYOUT = [
    _argument("--chunks", help="31+28+31,100,-1 or 30*12,50 or time=30,lat=-1 or auto"),
    _argument("--shards", help="likewise; chunks are then the parts of a shard"),
    _argument("--compressor", help="zstd, gzip, blosc, … or none, or JSON"),
]

COMMANDS = {
    "info": _command("what a node is, and what of it is stored", "zellige info demo.zarr/t", *_place()),
    "tree": _command(
        "the nodes below a group",
        "zellige tree demo.zarr",
        *_place(),
        _argument("--level", type=int, help="how deep"),
        _argument("--max-nodes", type=int, default=500, help="how many nodes are shown"),
        _flag("--ascii", help="draw with ASCII characters"),
    ),
    "ls": _command(
        "the members of a group",
        "zellige ls -r demo.zarr",
        *_place(),
        _flag("-r", "--recursive", help="also what is in the groups"),
    ),
    "head": _command(
        "values of an array",
        "zellige head demo.zarr/t 0:3,::6,-1",
        *_place(),
        _selection("as in numpy, such as 0:10,::2,-1; by default the first 10 along each axis"),
        _flag("--all", help="print every value"),
    ),
    "stats": _command(
        "minimum, maximum, mean and NaN of an array",
        "zellige stats demo.zarr/t",
        *_place(),
        _selection(),
        _flag("--per-chunk", help="of each chunk"),
        _QUIET,
    ),
    "coverage": _command(
        "which chunks are stored, as a map",
        "zellige coverage demo.zarr/t",
        *_place(),
        _argument("--svg", metavar="FILE", help="write a picture to scale instead"),
    ),
    "explain": _command(
        "what a selection costs to read, and a better layout",
        "zellige explain demo.zarr/t :,5,5",
        *_place(),
        _selection(),
    ),
    "validate": _command(
        "find what is wrong",
        "zellige validate --deep demo.zarr",
        *_place(),
        _flag("--deep", help="decode every chunk"),
        _QUIET,
    ),
    "repair": _command(
        "mend what validate finds",
        "zellige repair --do demo.zarr",
        *_place(),
        _flag("--do", help="do it; otherwise only say what would be done"),
        _flag("--drop", help="remove damaged chunks and those beyond the end, instead of putting them aside"),
        _flag("--stray", help="also put aside keys that belong to no node"),
        _flag("--shrink", help="make arrays of a dataset that disagree about a dimension as long as the shortest one"),
        _flag("--shallow", help="do not decode the chunks"),
        _QUIET,
    ),
    "vacuum": _command(
        "remove what is of no use",
        "zellige vacuum demo.zarr",
        *_place(),
        _flag("--dry-run", help="only say what would be done"),
        _flag("--quarantine", help="also remove what repair has put aside"),
        _flag("--unfinished", help="also remove what a rechunk, copy or convert has left that was stopped"),
    ),
    "diff": _command(
        "how two nodes differ",
        "zellige diff demo.zarr backup.zarr",
        *_place("FIRST"),
        _argument("second", metavar="SECOND", help="a path or URL"),
        _argument("--second-path", default=None, metavar="PATH", help="the node within it; as --path by default"),
        _options("-O", "--second-option", "dest_options", "a storage option of SECOND"),
        _flag("--metadata", help="compare no values"),
        _QUIET,
    ),
    "copy": _command(
        "copy a node, bytes as they are",
        "zellige copy demo.zarr backup.zarr",
        *_place("SOURCE"),
        *_target(),
        _argument(
            "--if-exists",
            choices=["raise", "replace", "skip"],
            default="raise",
            help="what happens to what is there",
        ),
        _flag("--verify", help="read everything back and compare"),
        _flag("--dry-run", help="only say what would be done"),
        _QUIET,
    ),
    "rechunk": _command(
        "write an array with other chunks",
        "zellige rechunk demo.zarr/t new.zarr --chunks 30,-1,-1",
        *_place("SOURCE"),
        *_target(),
        *_LAYOUT,
        _argument("--memory", default="1 GiB", help="how much may be used, such as 500MB"),
        _flag("--overwrite", help="replace an array that is there"),
        _QUIET,
    ),
    "convert": _command(
        "HDF5, netCDF4, .npy, .npz or Zarr format 2 to Zarr format 3",
        "zellige convert a.h5 a.zarr",
        *_place("SOURCE", "a .h5, .nc, .npy or .npz file, or Zarr format 2"),
        *_target(nargs="?"),
        *_LAYOUT,
        _flag("--overwrite", help="replace a node that is there"),
        _flag("--dry-run", help="check everything and write nothing"),
        _flag("--skip", help="leave out what Zarr cannot hold"),
        _flag("--remove-v2", help="in place: remove the metadata of Zarr format 2"),
        _flag("--undo", help="in place: go back to Zarr format 2"),
        _QUIET,
    ),
    "consolidate": _command(
        "put the metadata of all nodes into that of the group", "zellige consolidate demo.zarr", *_place()
    ),
    "demo": _command(
        "make something to look at",
        "zellige demo",
        _argument("place", metavar="PLACE", nargs="?", default="demo.zarr", help="by default demo.zarr"),
        _flag("--overwrite", help="replace what is there"),
    ),
    "doctor": _command("versions, and what is missing", "zellige doctor"),
}
"""All commands; each is a function of its name in `commands.py`, and takes `--json` as well."""

# -- parsing --------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where help is."""
        self.exit(2, f"{self.prog}: {message}; see '{self.prog} --help'\n")


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="zellige",
        description="Look at Zarr arrays and groups, check, mend, copy and convert them.",
        epilog="A PLACE is what zellige.open takes: a path or a URL. Exit codes: 0 fine, 1 something found, 2 error.",
    )
    parser.add_argument("--version", action="version", version=f"zellige {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (purpose, example, arguments) in COMMANDS.items():
        sentence = f"{purpose[0].upper()}{purpose[1:]}."
        made = commands.add_parser(name, help=purpose, description=sentence, epilog=f"example: {example}")
        for names, options in [*arguments, _flag("--json", help="print JSON")]:
            made.add_argument(*names, **options)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command, wherever its options stand.

    Before Python 3.12.7 argparse gives up an optional positional argument when an option stands before it.
    """
    parser, given = make_parser(), protect(argv)
    found, rest = parser.parse_known_args(given)
    before = list(takewhile(lambda text: text.startswith("-"), given))
    if before and rest[: len(before)] == before:  # they stand before the command, and may be its own
        found, rest = parser.parse_known_args([*given[len(before) :], *before])
    for name in ("selection", "dest"):
        if rest and getattr(found, name, "") is None and not rest[0].startswith("-"):
            setattr(found, name, rest.pop(0))
    if rest:
        parser.error(f"{found.command} does not take {' '.join(rest)}")
    return found


def protect(argv: Sequence[str]) -> list[str]:
    """Arguments in which selections and chunks that begin with a negative number do not look like options.

    >>> protect(["head", "a.zarr", "-1,0:5"])
    ['head', 'a.zarr', ' -1,0:5']
    """
    return [f" {text}" if re.match(r"-[\d:]", text) else text for text in argv]


# -- what the arguments mean -----------------------------------------------------------------------

Index: TypeAlias = tuple[int | slice | EllipsisType, ...]

_number = re.compile(r"-?\d+").fullmatch
_slice = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?\d+)?)?").fullmatch
_run = re.compile(r"(\d+)(?:\*(\d+))?").fullmatch


def parse_selection(text: str) -> Index:
    """A selection as in numpy: numbers, slices and `...`, with commas between them.

    >>> parse_selection("0:10, ::2, -1")
    (slice(0, 10, None), slice(None, None, 2), -1)
    """
    return tuple(_index(part.strip(), text) for part in text.strip().strip("[]").split(","))


def _index(part: str, text: str) -> int | slice | EllipsisType:
    if part == "...":
        return ...
    if _number(part):
        return int(part)
    found = _slice(part)
    if found is None:
        raise ValueError(f"selection {text.strip()!r}: {part!r} is no number, slice or '...'; write it as 0:10,::2,-1")
    return slice(*(None if bound is None else int(bound) for bound in found.groups()))


def parse_chunks(text: str) -> Any:
    """Chunks as `create_array` takes them: a size, `-1`, `auto` or edges for each axis, with names or without.

    A single number is for all axes.

    >>> parse_chunks("31+28+31,100,-1")
    [[[31, 1], [28, 1], [31, 1]], 100, -1]
    >>> parse_chunks("30*12,50"), parse_chunks("time=31+28*2,lat=10"), parse_chunks("auto")
    ([[[30, 12]], 50], {'time': [[31, 1], [28, 2]], 'lat': 10}, 'auto')
    """
    text = text.strip()
    if text == "auto":
        return "auto"
    parts = [part.strip() for part in text.split(",")]
    named = [part.partition("=") for part in parts]
    if all(equals for _, equals, _ in named):
        return {name.strip(): _axis(entry.strip(), text) for name, _, entry in named}
    axes = [_axis(part, text) for part in parts]
    return axes[0] if len(axes) == 1 and isinstance(axes[0], int) else axes


def _axis(part: str, text: str) -> Any:
    if part in ("auto", "-1"):
        return "auto" if part == "auto" else -1
    if part.isdecimal():
        return int(part)
    runs = [_run(run.strip()) for run in part.split("+")]
    if not all(runs):
        raise ValueError(
            f"chunks {text!r}: {part!r} is no size, -1, 'auto' or edges; write it as 31+28+31,100,-1 or 30*12,50"
        )
    return [[int(run[1]), int(run[2] or 1)] for run in runs if run]


def parse_compressor(text: str) -> Any:
    """A codec by its name, or as JSON; an empty list for none.

    >>> parse_compressor("gzip"), parse_compressor("none"), parse_compressor('{"name": "zstd"}')
    ('gzip', [], {'name': 'zstd'})
    """
    if text == "none":
        return []
    return json.loads(text) if text.startswith(("{", "[")) else text


def parse_options(pairs: Sequence[str]) -> dict[str, Any] | None:
    """Storage options out of `key=value`; values that are JSON mean what JSON says. None if there are none.

    >>> parse_options(["anon=true", "region=eu-central-1", "retries=3"])
    {'anon': True, 'region': 'eu-central-1', 'retries': 3}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"option {pair!r} must be written as key=value")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found or None
