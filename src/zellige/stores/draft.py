"""The zip format, as it is written: a draft of an archive, beside the place where it will be."""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from zipfile import ZipInfo

from zellige.errors import StoreKeyError
from zellige.stores import files
from zellige.stores.archive import STORED, Descriptor, Document, Entry, crc32, numbers
from zellige.stores.base import TEMPORARY
from zellige.types import Buffer

_BLOCK = 4 << 20  # copied at once
_AT_ONCE = 512  # buffers for one call of pwritev; the system takes at most 1024
_DATE = (1980, 1, 1, 0, 0, 0)  # the same content gives the same archive
_LONGEST = 0xFFFF  # bytes of a name

_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_MOST32, _MOST16 = 0xFFFF_FFFF, 0xFFFF


class Draft(Descriptor):
    """An archive that is being written, in a temporary file beside its place.

    Threads write at once, each into a place that it has reserved.
    """

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self.name = f"(draft of {path!r})"
        self.target = path
        self.folder = os.path.dirname(path) + "/"
        self.temporary = f"{self.folder}{TEMPORARY}{files.owner(self.pid)}-zip{next(numbers)}"
        super().__init__(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self.size = 0
        self.dead = 0
        """Bytes of values that were written again or removed."""
        self.changed = False
        """Whether anything was written or removed, which is lost without the draft."""
        self._lock = threading.Lock()

    def add(self, name: str, parts: Sequence[Buffer]) -> Entry:
        """Write a value, uncompressed."""
        crc = size = 0
        for part in parts:
            crc = crc32(part, crc)
            size += memoryview(part).nbytes
        entry, header = self._reserve(name, size, size, crc, STORED)
        try:
            _write_at(self.fd, [header, *parts], entry.start)
        except OSError as exc:
            self.forget(entry)
            raise OSError(exc.errno, f"entry {name!r}: {exc.strerror}", self.temporary) from exc
        return entry

    def copy(self, entry: Entry) -> Entry:
        """Take over a value of another archive as it is stored there."""
        if entry.data < 0:
            entry.find(entry.source.read(entry.start, entry.head_length))
        new, header = self._reserve(entry.name, entry.stored, entry.size, entry.crc, entry.method)
        _write_at(self.fd, [header], new.start)
        for start in range(0, entry.stored, _BLOCK):
            length = min(_BLOCK, entry.stored - start)
            block = entry.source.read(entry.data + start, length)
            _write_at(self.fd, [entry.measured(block, length)], new.data + start)
        return new

    def _reserve(self, name: str, stored: int, size: int, crc: int, method: int) -> tuple[Entry, bytes]:
        """A place for a value, and the header that begins it."""
        header = _info(name, stored, size, crc, method).FileHeader()
        with self._lock:
            start = self.size
            self.size = end = start + len(header) + stored
        return Entry(self, name, start, end, stored, size, crc, method, start + len(header)), header

    def forget(self, entry: Entry | Document | None) -> None:
        """Note that a value will not be in the archive."""
        if isinstance(entry, Entry) and entry.source is self:
            with self._lock:
                self.dead += entry.end - entry.start

    def finish(self, entries: Sequence[Entry], place: Callable[[str, str], bool]) -> bool:
        """Write the directory and put the archive into its place; it survives a power cut."""
        start = self.size
        for first in range(0, len(entries), 10_000):
            part = b"".join(map(_central, entries[first : first + 10_000]))
            self.size = _write_at(self.fd, [part], self.size)
        self.size = _write_at(self.fd, [_end_of(len(entries), start, self.size)], self.size)
        with suppress(FileNotFoundError):
            os.fchmod(self.fd, stat.S_IMODE(os.stat(self.target).st_mode))  # who may read it stays
        os.fsync(self.fd)
        done = place(self.temporary, self.target)
        files.sync_folder(self.folder)
        return done

    def remove(self) -> None:
        """Remove the file, unless it was put into its place; not the parent's in a forked process."""
        if self.pid == os.getpid():
            files.unlink(self.temporary)


def check_name(name: str) -> None:
    """Refuse what no archive can hold."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise StoreKeyError(f"key {name!r}: the names in a zip archive are UTF-8; use text", key=name) from error
    if length > _LONGEST:
        raise StoreKeyError(f"key {name[:60]!r}… has {length} bytes, a zip archive takes {_LONGEST}", key=name)


def _write_at(fd: int, parts: Sequence[Buffer], at: int) -> int:
    """Write all of it, and return where it ends."""
    for first in range(0, len(parts), _AT_ONCE):
        some = parts[first : first + _AT_ONCE]
        end = at + sum(memoryview(part).nbytes for part in some)
        at += os.pwritev(fd, some, at)
        while at < end:
            at += os.pwrite(fd, memoryview(b"".join(some))[at - end :], at)
    return at


def _info(name: str, stored: int, size: int, crc: int, method: int) -> ZipInfo:
    info = ZipInfo(name, _DATE)
    info.compress_type, info.CRC, info.compress_size, info.file_size = method, crc, stored, size
    return info


def _central(entry: Entry) -> bytes:
    """The entry in the directory (APPNOTE 4.3.12), with 64-bit numbers only where they are needed."""
    name = entry.name.encode()
    sizes: list[Any] = [entry.size, entry.stored, entry.start]
    large = [n for n in sizes if n >= _MOST32]
    extra = struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    size, stored, start = (min(n, _MOST32) for n in sizes)
    version = 45 if large else 20
    flags = 0 if entry.name.isascii() else 0x800
    return (
        _CENTRAL.pack(
            *(b"PK\1\2", 3 << 8 | version, version, flags, entry.method, 0, 1 << 5 | 1, entry.crc, stored, size),
            *(len(name), len(extra), 0, 0, 0, 0o100644 << 16, start),
        )
        + name
        + extra
    )


def _end_of(number: int, start: int, end: int) -> bytes:
    """What ends an archive (APPNOTE 4.3.14 to 4.3.16)."""
    size, found = end - start, b""
    if number >= _MOST16 or size >= _MOST32 or start >= _MOST32:
        found = _END64.pack(b"PK\6\6", 44, 3 << 8 | 45, 45, 0, 0, number, number, size, start)
        found += _LOCATOR.pack(b"PK\6\7", 0, end, 1)
    few = min(number, _MOST16)
    return found + _END.pack(b"PK\5\6", 0, 0, few, few, min(size, _MOST32), min(start, _MOST32), 0)
