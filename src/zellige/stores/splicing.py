"""Changes of values in files, under their locks.

Of those that keep most of a value, only what changes is read, and the system copies the rest from file to file. Where
the file system can, both files then share those bytes on the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from zellige.stores.files import CHECKED, Part, read_range, regular, rename, write_one
from zellige.types import Kept, Splice

if TYPE_CHECKING:
    from zellige.stores.file_locks import FileLock
    from zellige.stores.local import LocalStore

_CANNOT_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})


class _File(NamedTuple):
    """A value in a file that is open."""

    store: LocalStore
    key: str
    fd: int
    size: int

    def read(self, start: int, length: int) -> bytes:
        try:
            return read_range(self.fd, self.key, start, length)
        except OSError as exc:
            raise self.store._named(exc, self.key) from exc


def _write_back(store: LocalStore, key: str, value: Sequence[Part] | None, held: FileLock | None) -> None:
    """Write a value under its lock: into the file of the lock, if there is one, which then is the value's."""
    if value is None or held is None or held.closed or not held.fresh:
        if value is None:
            store.delete([key])
        else:
            store._write(key, value, rename)
    else:
        store._write(key, value, rename, held)


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
        _write_back(store, key, parts, held)
    finally:
        try:
            for fd in opened:
                os.close(fd)
        except OSError as exc:
            raise store._named(exc, key) from exc


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
