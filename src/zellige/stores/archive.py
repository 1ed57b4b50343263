"""The zip format, as it is read: where an archive is, and its entries.

The directory is parsed by the standard library. The bytes of entries are read here, by position, so that many
threads read at once and a range of an entry that is not compressed costs no more than the range.
"""

from __future__ import annotations

import io
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import IO, NoReturn, Protocol, TypeVar
from uuid import uuid4
from zipfile import BadZipFile, ZipFile, ZipInfo

from zellige.errors import BadArchiveError
from zellige.stores import files
from zellige.stores.base import Store, is_key, resolve_span
from zellige.types import Buffer, Span

try:
    from isal import isal_zlib

    crc32 = isal_zlib.crc32  # measured fourteen times as fast
except ImportError:
    crc32 = zlib.crc32

TAIL = 256 << 10  # read first: the directory of a few thousand entries, and the documents that we write beside it
_EXTRA = 256  # bytes of extra fields that are read with the data, in the hope that there are no more

STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1
_LOCAL = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra fields

numbers = count(1)
"""One for each value, so that no two versions are the same."""

T = TypeVar("T", bound=Buffer)


# -- where an archive is --------------------------------------------------------------------------


class Source(Protocol):
    """The bytes of an archive, read by position."""

    size: int
    name: str
    stamp: str
    """What no other archive has, nor the same one once it was changed."""

    def read(self, start: int, length: int) -> bytes:
        """So many bytes, fewer only at the end."""


class Descriptor:
    """A descriptor that is closed when the last one who may still read from it is gone.

    It cannot be copied or pickled: the copy would close the descriptor of the original.
    """

    def __init__(self, path: str, flags: int) -> None:
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o666)
        self.stamp = uuid4().hex

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds a file descriptor and cannot be copied or pickled; open the path")

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def read(self, start: int, length: int) -> bytes:
        """So many bytes, fewer only at the end."""
        data = os.pread(self.fd, length, start)
        while len(data) < length and (more := os.pread(self.fd, length - len(data), start + len(data))):
            data += more
        return data


def stamp_of(info: os.stat_result) -> tuple[int, ...]:
    """What tells a file from every other one, and from itself once it was changed."""
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size


class FileSource(Descriptor):
    """A file of this machine, read from one descriptor: also if another file takes its name meanwhile."""

    def __init__(self, path: str) -> None:
        super().__init__(path, os.O_RDONLY)
        self.name = repr(path)
        self.info = os.fstat(self.fd)
        self.stamp = "-".join(f"{number:x}" for number in stamp_of(self.info))
        try:
            self.size = files.regular(self.info)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from exc


class HandleSource:
    """A file object that can be read and sought, by one thread at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self.name = repr(getattr(file, "name", file))
        self.stamp = uuid4().hex
        self._file, self._lock = file, threading.Lock()
        self.size = file.seek(0, io.SEEK_END)

    def read(self, start: int, length: int) -> bytes:
        """So many bytes, fewer only at the end."""
        with self._lock:
            self._file.seek(start)
            return self._file.read(length)


class ValueSource:
    """A value of another store, read by ranges."""

    def __init__(self, store: Store, key: str) -> None:
        self.name = f"{key!r} in {store!r}"
        self.stamp = uuid4().hex
        self.store, self.key = store, key
        size = store.size(key)
        if size is None:
            raise FileNotFoundError(f"there is no key {key!r} in {store!r}")
        self.size = size

    def read(self, start: int, length: int) -> bytes:
        """So many bytes, fewer only at the end."""
        length = min(length, self.size - start)
        found = self.store.get_range(self.key, start, length) if length > 0 else b""
        if found is None:
            raise FileNotFoundError(f"key {self.key!r} was removed from {self.store!r} while the archive was open")
        return found


class _WithTail:
    """A source whose end is kept: the directory, and often documents."""

    def __init__(self, source: Source) -> None:
        self.source, self.size, self.name, self.stamp = source, source.size, source.name, source.stamp
        self._start = max(source.size - TAIL, 0)
        self._tail = source.read(self._start, source.size - self._start)

    def read(self, start: int, length: int) -> bytes:
        if start >= self._start:
            return self._tail[start - self._start :][:length]
        if start + length <= self._start:
            return self.source.read(start, length)
        return self.source.read(start, self._start - start) + self._tail[: start + length - self._start]


class _Cursor:
    """What `ZipFile` wants of a file."""

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        if base + offset < 0:
            raise OSError(f"position {base + offset} lies before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, length: int = -1) -> bytes:
        left = max(self._source.size - self._at, 0)
        data = self._source.read(self._at, left if length < 0 else min(length, left))
        self._at += len(data)
        return data

    def close(self) -> None:
        """Nothing: the source stays open."""


# -- entries --------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Document:
    """A value that is kept in memory until the archive is closed."""

    value: bytes
    number: int = field(default_factory=numbers.__next__)

    @property
    def version(self) -> str:
        """What no other value has."""
        return f"{self.number:x}"

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return len(self.value)

    def read(self) -> bytes:
        """The value."""
        return self.value

    def read_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes]:
        """Several ranges of the value."""
        places = [resolve_span(key, *span, self.size) for span in spans]
        return [self.value[start : start + length] for start, length in places]


@dataclass(eq=False, slots=True)
class Entry:
    """A value in an archive: where its header and its bytes are, and what they must give."""

    source: Source
    name: str
    start: int
    end: int  # where the next entry begins, or the directory
    stored: int
    size: int
    crc: int
    method: int
    data: int = -1  # where the bytes begin, once the header has been read

    @property
    def version(self) -> str:
        """What no other value has."""
        return f"{self.source.stamp}-{self.start:x}-{self.crc:x}"

    def read(self) -> Buffer:
        """The whole value, compared with its checksum."""
        return self._decoded(self._raw())

    def read_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes]:
        """Several ranges; of a compressed value all of it is read, of another one nothing else."""
        places = [resolve_span(key, *span, self.size) for span in spans]
        if self.method != STORED:
            value = memoryview(self.read())
            return [bytes(value[start : start + length]) for start, length in places]
        if places and self.data < 0:
            self.find(self.source.read(self.start, self.head_length))
        return [self.measured(self.source.read(self.data + start, length), length) for start, length in places]

    def _raw(self) -> Buffer:
        """The bytes as they are stored, with the header before them unless that is known."""
        known = self.data >= 0
        length = self.stored if known else self.head_length + self.stored
        found: Buffer = self.source.read(self.data if known else self.start, length)
        if not known:
            self.find(bytes(found[: self.head_length]))
            found = memoryview(found)[self.data - self.start :][: self.stored]
            if len(found) < self.stored and self.data + self.stored <= self.source.size:
                found = self.source.read(self.data, self.stored)  # behind more extra fields than were expected
        return self.measured(found, self.stored)

    @property
    def head_length(self) -> int:
        """As many bytes as the header has, or a few more."""
        return _LOCAL.size + len(self.name.encode()) + _EXTRA

    def find(self, head: bytes) -> None:
        """Read the header before the bytes, which says where they begin."""
        if len(head) < _LOCAL.size or not head.startswith(b"PK\3\4"):
            self.fail("there is no header where the directory says; the archive is cut short or damaged")
        _, name, extra = _LOCAL.unpack_from(head)
        # The name is UTF-8 or in the old code page; some tools say so in one of the two places only.
        if head[_LOCAL.size :][:name] not in (self.name.encode(), self.name.encode("cp437", "ignore")):
            self.fail("the header where the directory says is that of another entry; the archive is damaged")
        data = self.start + _LOCAL.size + name + extra
        if data + self.stored > self.end:
            self.fail(f"its {self.stored} bytes reach into what follows; the archive is cut short or damaged")
        self.data = data

    def measured(self, found: T, length: int) -> T:
        """What was read, if it has the length that it must have."""
        if len(found) != length:
            self.fail(f"{len(found)} of {length} bytes are there; the archive was cut short meanwhile")
        return found

    def _decoded(self, raw: Buffer) -> Buffer:
        value = raw if self.method == STORED else self._inflated(raw)
        if crc32(value) != self.crc:
            self.fail(f"its checksum is {crc32(value):08x}, the directory says {self.crc:08x}; it is damaged")
        return value

    def _inflated(self, raw: Buffer) -> bytes:
        # One byte more than declared: never more memory than that, whatever the bytes say.
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            value = engine.decompress(raw, self.size + 1)
        except zlib.error as error:
            raise BadArchiveError(self._message(f"it cannot be decompressed: {error}"), key=self.name) from error
        if len(value) != self.size or not engine.eof:
            self.fail(f"it does not decompress to the {self.size} bytes that the directory says; it is damaged")
        return value

    def fail(self, reason: str) -> NoReturn:
        """Raise, saying which entry of which archive it is."""
        raise BadArchiveError(self._message(reason), key=self.name)

    def _message(self, reason: str) -> str:
        return f"entry {self.name!r} of the archive {self.source.name}: {reason}"


def read_directory(source: Source, *, last: bool) -> dict[str, Entry]:
    """The entries of an archive by their names, checked: none leaves the root, none shares bytes with another.

    With `last` the last one of a name counts; else a name that is there twice is refused.
    """
    kept = _WithTail(source)
    try:
        with ZipFile(_Cursor(kept)) as archive:
            infos, end = archive.infolist(), archive.start_dir
    except (BadZipFile, struct.error, OSError, UnicodeDecodeError, ValueError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise BadArchiveError(
            f"{source.name} ({source.size} bytes) is no zip archive, is cut short or is damaged: {error}"
        ) from error
    entries: dict[str, Entry] = {}
    ends = dict(_neighbours(sorted(info.header_offset for info in infos), end))
    for info in infos:
        name = info.orig_filename
        entry = Entry(
            *(kept, name, info.header_offset, ends[info.header_offset]),
            *(info.compress_size, info.file_size, info.CRC, info.compress_type),
        )
        if not is_key(name.removesuffix("/")):
            entry.fail("such a name could leave the store; make the archive anew with relative names")
        if name in entries and not last:
            entry.fail(
                "the name is there twice; leave out duplicates='error' to read the last one, as zarr-python does"
            )
        _check_readable(entry, info)
        entries[name] = entry
    return {name: entry for name, entry in entries.items() if not name.endswith("/")}


def _neighbours(starts: Sequence[int], end: int) -> Iterator[tuple[int, int]]:
    """Each header with where the next one is."""
    return pairwise([*starts, end])


def _check_readable(entry: Entry, info: ZipInfo) -> None:
    if info.flag_bits & _ENCRYPTED:
        entry.fail("it is encrypted; make the archive without a password")
    if info.compress_type not in (STORED, _DEFLATED):
        entry.fail(f"its compression {info.compress_type} is not read here; make the archive with stored entries")
    if entry.start < 0 or entry.start + _LOCAL.size + entry.stored > entry.end:
        entry.fail(f"its {entry.stored} bytes reach into what follows; the archive is cut short or damaged")
    if info.compress_type == STORED and entry.stored != entry.size:
        entry.fail(f"it is not compressed, but has {entry.stored} bytes of {entry.size}; the directory is damaged")
