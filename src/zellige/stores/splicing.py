"""Changes that keep most of a value: only what changes is read, and the system copies the rest from file to file.

Where the file system can, both files then share those bytes on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zellige.stores.base import resolve_span
from zellige.stores.files import Copied, read_range, regular
from zellige.types import Buffer, Encoded, Kept, Splice

if TYPE_CHECKING:
    from zellige.stores.local import LocalStore


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


def splice_file(store: LocalStore, key: str, change: Splice) -> None:
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
            parts = [Copied(old.fd, part) if isinstance(part, Kept) else part for part in parts]
        store.write(key, parts)
    finally:
        with store._naming(key):
            for fd in opened:
                os.close(fd)
