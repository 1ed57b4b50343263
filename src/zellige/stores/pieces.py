"""Files that are read piece by piece, several of them in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from zellige.stores.files import READ
from zellige.types import Use


class _OtherError(Exception):
    """A file is missing, or not as long as was said."""


def read_pieces(
    base: str,
    after: Callable[[OSError, str], int],
    named: Callable[[OSError, str], OSError],
    keys: Sequence[str],
    sizes: Sequence[int],
    rooms: Sequence[memoryview],
    use: Use,
) -> bool:
    """See `Store.read_pieces`.

    `after` is called when a file cannot be opened, and gives another descriptor, or -1 if the file is missing. `named`
    makes an error that tells which key it is about.
    """
    fds: dict[str, int] = {}
    try:
        with suppress(_OtherError):
            use(_pieces(_opening(base, after, keys, fds), named, fds, sizes, rooms))
            return True
        return False
    finally:
        _close(fds, named)


def _pieces(
    opening: Iterable[tuple[str, int]],
    named: Callable[[OSError, str], OSError],
    fds: dict[str, int],
    sizes: Sequence[int],
    rooms: Sequence[memoryview],
) -> Iterator[None]:
    """Fill the rooms one after the other, again and again.

    A file is opened just before its first piece is read, and little is done from piece to piece: threads that let each
    other run too often wait for each other instead.
    """
    into: list[list[memoryview | bytearray]] = [[room] for room in rooms]
    counts, beyond = [*map(len, rooms)], bytearray(1)
    steps = -(-sizes[0] // counts[0])
    for step in range(steps):
        starts = [step * len(room) for room in rooms]
        if step == steps - 1:  # asks for one byte more than there should be
            counts = [size - start for size, start in zip(sizes, starts, strict=True)]
            into = [[room[:count], beyond] for room, count in zip(rooms, counts, strict=True)]
        for (key, fd), room, start, count in zip(fds.items() if step else opening, into, starts, counts, strict=True):
            try:
                found = os.preadv(fd, room, start)
            except OSError as exc:
                raise named(exc, key) from exc
            if found != count:
                raise _OtherError
            yield


def _opening(
    base: str, after: Callable[[OSError, str], int], keys: Sequence[str], fds: dict[str, int]
) -> Iterator[tuple[str, int]]:
    """Open one file after the other."""
    for key in keys:
        try:
            fd = os.open(base + key, READ)
        except OSError as exc:
            fd = after(exc, key)
            if fd < 0:
                raise _OtherError from None
        fds[key] = fd
        yield key, fd


def _close(fds: dict[str, int], named: Callable[[OSError, str], OSError]) -> None:
    """Close all, also if one of them says that it cannot be."""
    while fds:
        key, fd = fds.popitem()
        try:
            os.close(fd)
        except OSError as exc:
            _close(fds, named)
            raise named(exc, key) from exc
