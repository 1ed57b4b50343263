"""The arguments of the command; imports nothing that help does not need."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple, NoReturn

from zellige import __version__


class Command(NamedTuple):
    """One command: where it is, what it is for, an example, and what it takes."""

    module: str
    help: str
    example: str
    arguments: Callable[[argparse.ArgumentParser], None]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where help is."""
        self.exit(2, f"{self.prog}: {message}; see '{self.prog} --help'\n")


def protect(argv: Sequence[str]) -> list[str]:
    """Arguments in which selections and chunks that begin with a negative number do not look like options.

    >>> protect(["head", "a.zarr", "-1,0:5"])
    ['head', 'a.zarr', ' -1,0:5']
    """
    return [f" {text}" if re.match(r"-[\d:]", text) else text for text in argv]


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


def options_of(command: str) -> set[str]:
    """The long options that a command takes.

    >>> sorted(options_of("demo"))
    ['--overwrite']
    """
    parser = Parser(add_help=False)
    COMMANDS[command].arguments(parser)
    return set(re.findall(r"--[a-z][a-z0-9-]*", parser.format_usage()))


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="zellige",
        description="Look at Zarr arrays and groups, check, mend, copy and convert them.",
        epilog="A PLACE is what zellige.open takes: a path or a URL. Exit codes: 0 fine, 1 something found, 2 error.",
    )
    parser.add_argument("--version", action="version", version=f"zellige {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        made = commands.add_parser(
            name, help=command.help, description=f"{_sentence(command.help)}.", epilog=f"example: {command.example}"
        )
        command.arguments(made)
        made.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


# -- what several commands take -------------------------------------------------------------------


def _place(parser: argparse.ArgumentParser, name: str = "place", meaning: str = "a path or URL") -> None:
    parser.add_argument(name, metavar=name.upper(), help=meaning)
    parser.add_argument("--path", default="", help="the node within it")
    _options(parser, "-o", "--option", "storage_options", "a storage option of the place")


def _target(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("dest", metavar="DEST", nargs="?" if optional else None, help="where it goes")
    parser.add_argument("--to", default="", metavar="PATH", help="the path within DEST; its root by default")
    _options(parser, "-O", "--dest-option", "dest_options", "a storage option of DEST")


def _options(parser: argparse.ArgumentParser, short: str, long: str, name: str, meaning: str) -> None:
    parser.add_argument(short, long, dest=name, action="append", default=[], metavar="KEY=VALUE", help=meaning)


def _quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def _selection(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("selection", metavar="SELECTION", nargs="?", default=None, help=meaning)


def _layout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chunks", help="31+28+31,100,-1 or 30*12,50 or time=30,lat=-1 or auto")
    parser.add_argument("--shards", help="likewise; chunks are then the parts of a shard")
    parser.add_argument("--compressor", help="zstd, gzip, blosc, … or none, or JSON")


def _flag(parser: argparse.ArgumentParser, name: str, meaning: str) -> None:
    parser.add_argument(name, action="store_true", help=meaning)


# -- the commands ---------------------------------------------------------------------------------


def _info(parser: argparse.ArgumentParser) -> None:
    _place(parser)


def _tree(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    parser.add_argument("--level", type=int, help="how deep")
    parser.add_argument("--max-nodes", type=int, default=500, help="how many nodes are shown")
    _flag(parser, "--ascii", "draw with ASCII characters")


def _ls(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    parser.add_argument("-r", "--recursive", action="store_true", help="also what is in the groups")


def _head(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    _selection(parser, "as in numpy, such as 0:10,::2,-1; by default the first 10 along each axis")
    _flag(parser, "--all", "print every value")


def _stats(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    _selection(parser, "as in numpy; by default everything")
    _flag(parser, "--per-chunk", "of each chunk")
    _quiet(parser)


def _coverage(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    parser.add_argument("--svg", metavar="FILE", help="write a picture to scale instead")


def _explain(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    _selection(parser, "as in numpy; by default everything")


def _validate(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    _flag(parser, "--deep", "decode every chunk")
    _quiet(parser)


def _repair(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    _flag(parser, "--do", "do it; otherwise only say what would be done")
    _flag(parser, "--drop", "remove damaged chunks and those beyond the end, instead of putting them aside")
    _flag(parser, "--stray", "also put aside keys that belong to no node")
    _flag(parser, "--shrink", "make arrays of a dataset that disagree about a dimension as long as the shortest one")
    _flag(parser, "--shallow", "do not decode the chunks")
    _quiet(parser)


def _vacuum(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    _flag(parser, "--dry-run", "only say what would be done")
    _flag(parser, "--quarantine", "also remove what repair has put aside")
    _flag(parser, "--unfinished", "also remove what a rechunk, copy or convert has left that was stopped")


def _diff(parser: argparse.ArgumentParser) -> None:
    _place(parser, "first")
    parser.add_argument("second", metavar="SECOND", help="a path or URL")
    parser.add_argument("--second-path", default=None, metavar="PATH", help="the node within it; as --path by default")
    _options(parser, "-O", "--second-option", "dest_options", "a storage option of SECOND")
    _flag(parser, "--metadata", "compare no values")
    _quiet(parser)


def _copy(parser: argparse.ArgumentParser) -> None:
    _place(parser, "source")
    _target(parser)
    parser.add_argument(
        "--if-exists", choices=["raise", "replace", "skip"], default="raise", help="what happens to what is there"
    )
    _flag(parser, "--verify", "read everything back and compare")
    _flag(parser, "--dry-run", "only say what would be done")
    _quiet(parser)


def _rechunk(parser: argparse.ArgumentParser) -> None:
    _place(parser, "source")
    _target(parser)
    _layout(parser)
    parser.add_argument("--memory", default="1 GiB", help="how much may be used, such as 500MB")
    _flag(parser, "--overwrite", "replace an array that is there")
    _quiet(parser)


def _convert(parser: argparse.ArgumentParser) -> None:
    _place(parser, "source", "a .h5, .nc, .npy or .npz file, or Zarr format 2")
    _target(parser, optional=True)
    _layout(parser)
    _flag(parser, "--overwrite", "replace a node that is there")
    _flag(parser, "--dry-run", "check everything and write nothing")
    _flag(parser, "--skip", "leave out what Zarr cannot hold")
    _flag(parser, "--remove-v2", "in place: remove the documents of Zarr format 2")
    _flag(parser, "--undo", "in place: go back to Zarr format 2")
    _quiet(parser)


def _consolidate(parser: argparse.ArgumentParser) -> None:
    _place(parser)


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="PLACE", nargs="?", default="demo.zarr", help="by default demo.zarr")
    _flag(parser, "--overwrite", "replace what is there")


COMMANDS = {
    "info": Command("looking", "what a node is, and what of it is stored", "zellige info demo.zarr/t", _info),
    "tree": Command("looking", "the nodes below a group", "zellige tree demo.zarr", _tree),
    "ls": Command("looking", "the members of a group", "zellige ls -r demo.zarr", _ls),
    "head": Command("looking", "values of an array", "zellige head demo.zarr/t 0:3,::6,-1", _head),
    "stats": Command("looking", "minimum, maximum, mean and NaN of an array", "zellige stats demo.zarr/t", _stats),
    "coverage": Command("looking", "which chunks are stored, as a map", "zellige coverage demo.zarr/t", _coverage),
    "explain": Command(
        "looking", "what a selection costs to read, and a better layout", "zellige explain demo.zarr/t :,5,5", _explain
    ),
    "validate": Command("checking", "find what is wrong", "zellige validate --deep demo.zarr", _validate),
    "repair": Command("checking", "mend what validate finds", "zellige repair --do demo.zarr", _repair),
    "vacuum": Command("checking", "remove what is of no use", "zellige vacuum demo.zarr", _vacuum),
    "diff": Command("checking", "how two nodes differ", "zellige diff demo.zarr backup.zarr", _diff),
    "copy": Command("moving", "copy a node, bytes as they are", "zellige copy demo.zarr backup.zarr", _copy),
    "rechunk": Command(
        "moving", "write an array with other chunks", "zellige rechunk demo.zarr/t new.zarr --chunks 30,-1,-1", _rechunk
    ),
    "convert": Command(
        "moving", "HDF5, netCDF4, .npy, .npz or Zarr format 2 to Zarr format 3", "zellige convert a.h5 a.zarr", _convert
    ),
    "consolidate": Command(
        "moving", "put all documents into the group's own", "zellige consolidate demo.zarr", _consolidate
    ),
    "demo": Command("about", "make something to look at", "zellige demo", _demo),
    "doctor": Command("about", "versions, and what is missing", "zellige doctor", lambda _: None),
}
"""All commands; each is a function of its name in its module."""
