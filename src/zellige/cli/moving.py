"""Commands that write: copy, rechunk, convert, consolidate."""

from __future__ import annotations

import os
from argparse import Namespace
from contextlib import ExitStack
from typing import Any

from zellige import consolidate_metadata, copy_store, migrate
from zellige import convert as convert_source
from zellige import copy as copy_node
from zellige import open as open_node
from zellige import rechunk as rechunk_array
from zellige.cli import values
from zellige.cli.output import counted, emit
from zellige.cli.places import array_at, first, target


def _layout(arguments: Namespace) -> dict[str, Any]:
    """The options of new arrays."""
    found: dict[str, Any] = {}
    for name in ("chunks", "shards"):
        if getattr(arguments, name) is not None:
            found[name] = values.chunks(getattr(arguments, name))
    if arguments.compressor is not None:
        found["compressors"] = values.compressor(arguments.compressor)
    return found


def copy(arguments: Namespace) -> int:
    """Copy a node: all keys by `zellige.copy_store`, or with --to a node into a group by `zellige.copy`."""
    common = {
        "if_exists": arguments.if_exists,
        "dry_run": arguments.dry_run,
        "verify": arguments.verify,
        "progress": not arguments.quiet,
    }
    with first(arguments) as place, target(arguments) as dest:
        source = open_node(place, mode="r")
        if arguments.to:
            copied = copy_node(source, dest, arguments.to, **common)
        else:
            copied = copy_store(source.store, dest, source.path, **common)
    content = {**copied._asdict(), "left_out": copied.left_out}
    emit(arguments, lambda: content, lambda: copied.summary(dry_run=arguments.dry_run))
    return 0


def rechunk(arguments: Namespace) -> int:
    """Write an array with other chunks: `zellige.rechunk`."""
    with array_at(arguments) as source, target(arguments) as dest:
        made = rechunk_array(
            source,
            dest,
            name=arguments.to,
            max_memory=arguments.memory,
            progress=not arguments.quiet,
            overwrite=arguments.overwrite,
            **_layout(arguments),
        )
    content = {"path": made.path, "shape": made.shape, "grid_shape": made.grid.grid_shape}
    emit(arguments, lambda: {**content, "metadata": made.metadata.to_documents()}, lambda: repr(made))
    return 0


def convert(arguments: Namespace) -> int:
    """Convert to Zarr format 3: `zellige.convert`; with --undo and --remove-v2 `zellige.migrate`.

    Exit code 1 if something is left out.
    """
    if arguments.undo or arguments.remove_v2:
        return _migrate(arguments)
    in_place = arguments.dest is None
    with ExitStack() as stack:
        if os.path.isfile(arguments.source) and not arguments.source.lower().endswith(".zip"):
            source, path = arguments.source, arguments.path
        else:
            source, path = stack.enter_context(first(arguments, read_only=not in_place or arguments.dry_run)), ""
        found = convert_source(
            source,
            None if in_place else stack.enter_context(target(arguments)),
            path=path,
            name=arguments.to,
            overwrite=arguments.overwrite,
            dry_run=arguments.dry_run,
            unsupported="skip" if arguments.skip else "raise",
            progress=not arguments.quiet,
            **_layout(arguments),
        )
    # What is left out has been named on stderr, by warnings.
    emit(arguments, lambda: vars(found), lambda: str(found).splitlines()[-1])
    return 1 if found.skipped else 0


def _migrate(arguments: Namespace) -> int:
    if arguments.dest is not None:
        raise ValueError("--undo and --remove-v2 are for a conversion in place; leave DEST out")
    with first(arguments, read_only=arguments.dry_run) as place:
        done = migrate(
            place,
            dry_run=arguments.dry_run,
            undo=arguments.undo,
            remove_v2=arguments.remove_v2 and not arguments.dry_run,
            progress=not arguments.quiet,
        )
    emit(arguments, lambda: vars(done), lambda: repr(done))
    return 1 if done.failed else 0


def consolidate(arguments: Namespace) -> int:
    """Put all documents into the group's own: `zellige.consolidate_metadata`."""
    with first(arguments, read_only=False) as place:
        made = consolidate_metadata(place)
        count = made.nmembers(max_depth=None)
    emit(arguments, lambda: {"path": made.path, "nodes": count}, lambda: f"{made.name} holds {counted(count, 'node')}")
    return 0
