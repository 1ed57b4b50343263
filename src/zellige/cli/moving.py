"""Commands that write: copy, rechunk, convert, consolidate."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from zellige import consolidate_metadata, copy_store, create_group, errors, migrate, open_array, open_group
from zellige import convert as convert_source
from zellige import copy as copy_node
from zellige import open as open_node
from zellige import rechunk as rechunk_array
from zellige.cli import values
from zellige.cli.output import emit


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
    options, dest_options = values.options(arguments.storage_options), values.options(arguments.dest_options)
    source = open_node(arguments.source, path=arguments.path, mode="r", storage_options=options)
    common = {
        "if_exists": arguments.if_exists,
        "dry_run": arguments.dry_run,
        "verify": arguments.verify,
        "progress": not arguments.quiet,
    }
    if arguments.to:
        dest = arguments.dest if dest_options is None else _group(arguments.dest, source, dest_options)
        copied = copy_node(source, dest, arguments.to, **common)
    else:
        copied = copy_store(source.store, arguments.dest, source.path, dest_storage_options=dest_options, **common)
    left_out = {"left_out": copied.left_out}
    emit(arguments, lambda: {**copied._asdict(), **left_out}, lambda: copied.summary(dry_run=arguments.dry_run))
    return 0


def _group(place: str, source: Any, options: dict[str, Any]) -> Any:
    """The group to copy into, made if there is none."""
    try:
        return open_group(place, mode="r+", storage_options=options)
    except errors.GroupNotFoundError:
        return create_group(place, zarr_format=source.metadata.zarr_format, storage_options=options)


def rechunk(arguments: Namespace) -> int:
    """Write an array with other chunks: `zellige.rechunk`."""
    options, dest_options = values.options(arguments.storage_options), values.options(arguments.dest_options)
    source = open_array(arguments.source, path=arguments.path, mode="r", storage_options=options)
    made = rechunk_array(
        source,
        arguments.dest,
        name=arguments.to,
        max_memory=arguments.memory,
        progress=not arguments.quiet,
        overwrite=arguments.overwrite,
        storage_options=dest_options,
        **_layout(arguments),
    )
    content = {"path": made.path, "shape": made.shape, "grid_shape": made.grid.grid_shape}
    emit(arguments, lambda: {**content, "metadata": made.metadata.to_documents()}, lambda: repr(made))
    return 0


def convert(arguments: Namespace) -> int:
    """Convert to Zarr format 3: `zellige.convert`; with --undo and --remove-v2 `zellige.migrate`."""
    options = values.options(arguments.storage_options)
    if arguments.undo or arguments.remove_v2:
        if arguments.dest is not None:
            raise ValueError("--undo and --remove-v2 are for a conversion in place; leave DEST out")
        done = migrate(
            arguments.source,
            arguments.path,
            dry_run=arguments.dry_run,
            undo=arguments.undo,
            remove_v2=arguments.remove_v2,
            progress=not arguments.quiet,
            storage_options=options,
        )
        emit(arguments, lambda: vars(done), lambda: repr(done))
        return 1 if done.failed else 0
    found = convert_source(
        arguments.source,
        arguments.dest,
        path=arguments.path,
        name=arguments.to,
        overwrite=arguments.overwrite,
        dry_run=arguments.dry_run,
        unsupported="skip" if arguments.skip else "raise",
        progress=not arguments.quiet,
        storage_options=options,
        dest_storage_options=values.options(arguments.dest_options),
        **_layout(arguments),
    )
    emit(arguments, lambda: vars(found), lambda: str(found).splitlines()[-1])
    return 0


def consolidate(arguments: Namespace) -> int:
    """Put all documents into the group's own: `zellige.consolidate_metadata`."""
    options = values.options(arguments.storage_options)
    made = consolidate_metadata(arguments.place, arguments.path, storage_options=options)
    count = made.nmembers(max_depth=None)
    emit(arguments, lambda: {"path": made.path, "nodes": count}, lambda: f"{made.name} holds {count} nodes")
    return 0
