"""Changes of values in files, under their locks.

Of those that keep most of a value, only what changes is read, and the system copies the rest from file to file. Where
the file system can, both files then share those bytes on the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from zellige.stores.base import resolve_span
from zellige.stores.files import CHECKED, read_range, regular, rename, write_one
from zellige.types import Buffer, Encoded, Kept, Splice

if TYPE_CHECKING:
    from zellige.stores.file_locks import FileLock
    from zellige.stores.local import LocalStore

_CANNOT_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})


class _Whole(NamedTuple):
    """A value that is there as a whole."""

    key: str
    raw: memoryview

    @property
    def size(self) -> int:
        return len(self.raw)

    def read(self, start: int, length: int) -> memoryview:
        begin, count = resolve_span(self.key, start, length, self.size)
        return self.raw[begin : begin + count]


class _File(NamedTuple):
    """A value in a file that is open."""

    store: LocalStore
    key: str
    fd: int
    size: int

    def read(self, start: int, length: int) -> bytes:
        with self.store._naming(self.key):
            return read_range(self.fd, self.key, start, length)


def of_whole(key: str, change: Splice) -> Callable[[Buffer | None], Encoded | None]:
    """The change for `Store.update`, which hands over whole values."""

    def changed(raw: Buffer | None) -> Encoded | None:
        old = None if raw is None else _Whole(key, memoryview(raw))
        parts = change(old)
        if parts is None or old is None:
            return parts  # type: ignore[return-value]  # without an old value there is nothing to keep
        return [old.read(part.start, part.length) if isinstance(part, Kept) else part for part in parts]

    return changed


def write_back(store: LocalStore, key: str, value: Encoded | None, held: FileLock | None) -> None:
    """Write a value under its lock: into the file of the lock, if there is one, which then is the value's."""
    if value is None or held is None or held.closed or not held.fresh:
        store.write(key, value)
    else:
        store._write(key, value if isinstance(value, list | tuple) else (value,), rename, held)


def splice_file(store: LocalStore, key: str, change: Splice, held: FileLock | None) -> None:
    """Change the file of a key, which nobody else changes meanwhile."""
    opened: list[int] = []

    def open_again(fd: int) -> int:
        opened.append(os.dup(fd))
        return regular(os.fstat(fd))

    try:
        size = store._with_file(key, open_again)
        old = None if size is None else _File(store, key, opened[0], size)
        parts: Sequence[Any] | None = change(old)
        if parts is not None and old is not None:
            parts = [partial(_append, old.fd, part) if isinstance(part, Kept) else part for part in parts]
        write_back(store, key, parts, held)
    finally:
        with store._naming(key):
            for fd in opened:
                os.close(fd)


def _append(source: int, kept: Kept, target: int) -> None:
    """Let the system copy bytes of one file to the end of another."""
    at, stop = kept.start, kept.start + kept.length
    while at < stop:
        count = _copy_range(source, target, stop - at, at)
        if not count:  # it cannot, or there is nothing more
            part = os.pread(source, min(stop - at, CHECKED), at)
            if not part:
                raise OSError(errno.EIO, "the value became shorter while it was copied")
            write_one(target, part)
            count = len(part)
        at += count


def _copy_range(source: int, target: int, count: int, offset: int) -> int:
    """Append some bytes to a file; how many is up to the system, and 0 if it cannot do that between these two."""
    if not hasattr(os, "copy_file_range"):
        return 0
    try:
        return os.copy_file_range(source, target, count, offset)
    except OSError as exc:
        if exc.errno in _CANNOT_COPY:
            return 0
        raise
