"""The places that commands read and write; each is closed at the end, which is when an archive is written."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zellige import Array, Group, storage
from zellige import open as open_node
from zellige.cli import values


@contextmanager
def opened(place: str, path: str, options: list[str], *, read_only: bool) -> Iterator[Any]:
    """A path within a store."""
    found = storage.open_store(place, path=path, read_only=read_only, storage_options=values.options(options))
    with found.store:
        yield found


def first(arguments: Namespace, *, read_only: bool = True) -> Any:
    """The first place of a command, whatever it calls it."""
    place = next(getattr(arguments, name) for name in ("place", "source", "first") if hasattr(arguments, name))
    return opened(place, arguments.path, arguments.storage_options, read_only=read_only)


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
