"""The zip format: archives are read by position, and written as a draft beside their place.

The standard library reads and writes the directory. The bytes of entries are read and written here, by position: many
threads at once, and of an entry that is not compressed a range costs no more than the range.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import threading
import zlib
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import IO, NoReturn, TypeAlias, TypeVar
from uuid import uuid4
from zipfile import BadZipFile, ZipFile, ZipInfo

from zellige.errors import BadArchiveError, StoreKeyError
from zellige.stores import files
from zellige.stores.base import TEMPORARY, Store, Value, is_key, resolve_span
from zellige.types import Buffer, Span

try:
    from isal import isal_zlib

    crc32 = isal_zlib.crc32  # measured fourteen times as fast
except ImportError:
    crc32 = zlib.crc32

TAIL = 256 << 10  # read first: the directory of a few thousand entries, and the documents that we write beside it
_EXTRA = 256  # bytes of extra fields that are read with the data, in the hope that there are no more
_BLOCK = 4 << 20  # copied at once
_AT_ONCE = 512  # buffers for one call of pwritev; the system takes at most 1024
_LONGEST = 0xFFFF  # bytes of a name

_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1
_LOCAL = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra fields

_numbers = count(1)

T = TypeVar("T", bound=Buffer)

Place: TypeAlias = str | os.PathLike[str] | IO[bytes] | tuple[Store, str]
"""Where an archive is: a path, a file object, or a key of another store."""


# -- where an archive is --------------------------------------------------------------------------


class Source:
    """The bytes of an archive, read by position. Its end is kept: the directory, and often documents."""

    def __init__(self, name: str, size: int, read_at: Callable[[int, int], bytes], identity: Hashable) -> None:
        self.name, self.size, self.identity = name, size, identity
        self.stamp = uuid4().hex
        """What no other archive has, nor the same one once it was changed."""
        self._read_at = read_at
        self._begin = max(size - TAIL, 0)
        self._tail = read_at(self._begin, size - self._begin)

    def read(self, start: int, length: int) -> bytes:
        """Read so many bytes, fewer only at the end."""
        begin = self._begin
        if start >= begin:
            return self._tail[start - begin :][:length]
        if start + length <= begin:
            return self._read_at(start, length)
        return self._read_at(start, begin - start) + self._tail[: start + length - begin]


class Descriptor:
    """A descriptor that is closed when the last one who may still read from it is gone.

    It cannot be copied or pickled: the copy would close the descriptor of the original.
    """

    def __init__(self, path: str, flags: int) -> None:
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o666)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds a file descriptor and cannot be copied or pickled; open the path")

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def read(self, start: int, length: int) -> bytes:
        """Read so many bytes, fewer only at the end."""
        return files.pread(self.fd, length, start)


class FileSource(Source):
    """A file of this machine, read from one descriptor: also if another file takes its name meanwhile."""

    def __init__(self, path: str) -> None:
        self.file = Descriptor(path, os.O_RDONLY)
        info = os.fstat(self.file.fd)
        try:
            size = files.regular(info)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from exc
        version = _version_of(info)
        super().__init__(repr(path), size, self.file.read, version)
        self.stamp = "-".join(f"{number:x}" for number in version)

    def is_at(self, path: str) -> bool:
        """Whether this path is still the same file, unchanged."""
        try:
            return _version_of(os.stat(path)) == self.identity
        except FileNotFoundError:
            return False


def _version_of(info: os.stat_result) -> tuple[int, ...]:
    """Return what tells a file from every other one, and from itself once it was changed."""
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size


def open_source(place: Place) -> Source:
    """Open an archive for reading."""
    if isinstance(place, str):
        return FileSource(place)
    if isinstance(place, tuple):
        return _value_source(*place)
    if not isinstance(place, os.PathLike) and hasattr(place, "read") and hasattr(place, "seek"):
        return _handle_source(place)
    raise TypeError(f"an archive is a path, a file object that can be sought, or (store, key), not {place!r}")


def _value_source(store: Store, key: str) -> Source:
    """Read a value of another store by ranges."""
    size = store.size(key)
    if size is None:
        raise FileNotFoundError(f"there is no key {key!r} in {store!r}")

    def read(start: int, length: int) -> bytes:
        length = min(length, size - start)
        found = store.get_range(key, start, length) if length > 0 else b""
        if found is None:
            raise FileNotFoundError(f"key {key!r} was removed from {store!r} while the archive was open")
        return found

    return Source(f"{key!r} in {store!r}", size, read, (store.identity, key))


def _handle_source(file: IO[bytes]) -> Source:
    """Read a file object, by one thread at a time."""
    lock = threading.Lock()

    def read(start: int, length: int) -> bytes:
        with lock:
            file.seek(start)
            return file.read(length)

    return Source(repr(getattr(file, "name", file)), file.seek(0, io.SEEK_END), read, id(lock))


# -- entries --------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Document:
    """A value that is kept in memory until the archive is closed."""

    value: bytes
    version: str = field(default_factory=lambda: f"{next(_numbers):x}")

    def read(self, key: str, spans: Sequence[Span] | None) -> Value:
        """Answer `Store.read`."""
        return Value.cut(key, self.value, spans, self.version)


@dataclass(eq=False, slots=True)
class Entry:
    """A value in an archive: where its header and its bytes are, and what they must give."""

    source: Source | Draft
    name: str
    start: int
    end: int  # where the next entry begins, or the directory
    stored: int
    size: int
    crc: int
    method: int = _STORED
    data: int = -1  # where the bytes begin, once the header has been read

    @property
    def version(self) -> str:
        """What no other value has."""
        return f"{self.source.stamp}-{self.start:x}-{self.crc:x}"

    def read(self, key: str, spans: Sequence[Span] | None) -> Value:
        """Answer `Store.read`. A whole value is compared with its checksum; a compressed one is always read whole."""
        if spans is None or (spans and self.method != _STORED):
            return Value.cut(key, self._decoded(self._raw()), spans, self.version)
        places = [resolve_span(key, *span, self.size) for span in spans]
        if places and self.data < 0:
            self.find()
        parts = [self.measured(self.source.read(self.data + start, length), length) for start, length in places]
        return Value(parts, self.size, self.version)

    def _raw(self) -> Buffer:
        """Read the bytes as they are stored, with the header before them unless that is known."""
        known = self.data >= 0
        length = self.stored if known else self._head_length + self.stored
        found: Buffer = self.source.read(self.data if known else self.start, length)
        if not known:
            self.find(bytes(found[: self._head_length]))
            found = memoryview(found)[self.data - self.start :][: self.stored]
            if len(found) < self.stored and self.data + self.stored <= self.source.size:
                found = self.source.read(self.data, self.stored)  # behind more extra fields than were expected
        return self.measured(found, self.stored)

    @property
    def _head_length(self) -> int:
        """As many bytes as the header has, or a few more."""
        return _LOCAL.size + len(self.name.encode()) + _EXTRA

    def find(self, head: bytes | None = None) -> None:
        """Look into the header before the bytes, which says where they begin."""
        head = self.source.read(self.start, self._head_length) if head is None else head
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
        """Return what was read, if it has the length that it must have."""
        if len(found) != length:
            self.fail(f"{len(found)} of {length} bytes are there; the archive was cut short meanwhile")
        return found

    def _decoded(self, raw: Buffer) -> Buffer:
        value = raw if self.method == _STORED else self._inflated(raw)
        if crc32(value) != self.crc:
            self.fail(f"its checksum is {crc32(value):08x}, the directory says {self.crc:08x}; it is damaged")
        return value

    def _inflated(self, raw: Buffer) -> bytes:
        # One byte more than declared: never more memory than that, whatever the bytes say.
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            value = engine.decompress(raw, self.size + 1)
        except zlib.error as error:
            self.fail(f"it cannot be decompressed: {error}", error)
        if len(value) != self.size or not engine.eof:
            self.fail(f"it does not decompress to the {self.size} bytes that the directory says; it is damaged")
        return value

    def info(self) -> ZipInfo:
        """Return the entry as the standard library writes it."""
        info = ZipInfo(self.name, (1980, 1, 1, 0, 0, 0))  # the same content gives the same archive
        info.compress_type, info.CRC, info.header_offset = self.method, self.crc, self.start
        info.compress_size, info.file_size, info.external_attr = self.stored, self.size, 0o100644 << 16
        return info

    def fail(self, reason: str, cause: Exception | None = None) -> NoReturn:
        """Raise, saying which entry of which archive it is."""
        raise BadArchiveError(
            f"entry {self.name!r} of the archive {self.source.name}: {reason}", key=self.name
        ) from cause


def check_name(name: str) -> None:
    """Refuse names that no archive can hold."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise StoreKeyError(f"key {name!r}: the names in a zip archive are UTF-8; use text", key=name) from error
    if length > _LONGEST:
        raise StoreKeyError(f"key {name[:60]!r}… has {length} bytes, a zip archive takes {_LONGEST}", key=name)


# -- the directory --------------------------------------------------------------------------------


class _Cursor:
    """What `ZipFile` needs of a file to read the directory."""

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        if at < 0:
            raise OSError(f"position {at} lies before the beginning")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def read(self, length: int = -1) -> bytes:
        left = max(self._source.size - self._at, 0)
        data = self._source.read(self._at, left if length < 0 else min(length, left))
        self._at += len(data)
        return data


def read_directory(source: Source, *, last: bool) -> dict[str, Entry]:
    """Return the entries of an archive by their names, checked: none leaves the root, none shares bytes with another.

    With `last` the last one of a name counts; else a name that is there twice is refused.
    """
    try:
        with ZipFile(_Cursor(source)) as archive:
            infos, end = archive.infolist(), archive.start_dir
    except (BadZipFile, struct.error, OSError, UnicodeDecodeError, ValueError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise BadArchiveError(
            f"{source.name} ({source.size} bytes) is no zip archive, is cut short or is damaged: {error}"
        ) from error
    entries: dict[str, Entry] = {}
    ends = dict(pairwise([*sorted(info.header_offset for info in infos), end]))
    for info in infos:
        name, start = info.orig_filename, info.header_offset
        sizes = info.compress_size, info.file_size
        entry = Entry(source, name, start, ends[start], *sizes, info.CRC, info.compress_type)
        if not is_key(name.removesuffix("/")):
            entry.fail("such a name could leave the store; make the archive anew with relative names")
        if name in entries and not last:
            entry.fail(
                "the name is there twice; leave out duplicates='error' to read the last one, as zarr-python does"
            )
        if info.flag_bits & _ENCRYPTED:
            entry.fail("it is encrypted; make the archive without a password")
        if entry.method not in (_STORED, _DEFLATED):
            entry.fail(f"its compression {entry.method} is not read here; make the archive with stored entries")
        if start < 0 or start + _LOCAL.size + entry.stored > entry.end:
            entry.fail(f"its {entry.stored} bytes reach into what follows; the archive is cut short or damaged")
        if entry.method == _STORED and entry.stored != entry.size:
            entry.fail(f"it is not compressed, but has {entry.stored} bytes of {entry.size}; the directory is damaged")
        entries[name] = entry
    return {name: entry for name, entry in entries.items() if not name.endswith("/")}


# -- drafts ---------------------------------------------------------------------------------------


class Draft(Descriptor):
    """An archive that is being written, in a temporary file beside its place.

    Threads write at once, each into a place that it has reserved.
    """

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self.name, self.stamp = f"(draft of {path!r})", uuid4().hex
        self.target = path
        self.folder = os.path.dirname(path) + "/"
        self.temporary = f"{self.folder}{TEMPORARY}{files.owner(self.pid)}-zip{next(_numbers)}"
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
        entry = Entry(self, name, 0, 0, size, size, crc)
        header = self._reserve(entry)
        try:
            self._write([header, *parts], entry.start)
        except OSError as exc:
            self.forget(entry)
            raise OSError(exc.errno, f"entry {name!r}: {exc.strerror}", self.temporary) from exc
        return entry

    def copy(self, entry: Entry) -> Entry:
        """Take over a value of another archive as it is stored there."""
        if entry.data < 0:
            entry.find()
        new = Entry(self, entry.name, 0, 0, entry.stored, entry.size, entry.crc, entry.method)
        self._write([self._reserve(new)], new.start)
        for start in range(0, entry.stored, _BLOCK):
            length = min(_BLOCK, entry.stored - start)
            block = entry.source.read(entry.data + start, length)
            self._write([entry.measured(block, length)], new.data + start)
        return new

    def _reserve(self, entry: Entry) -> bytes:
        """Find a place for a value, and return the header that begins it."""
        header = entry.info().FileHeader()
        with self._lock:
            entry.start, entry.data = self.size, self.size + len(header)
            self.size = entry.end = entry.data + entry.stored
        return header

    def _write(self, parts: Sequence[Buffer], at: int) -> None:
        for first in range(0, len(parts), _AT_ONCE):
            some = parts[first : first + _AT_ONCE]
            end = at + sum(memoryview(part).nbytes for part in some)
            at += os.pwritev(self.fd, some, at)
            while at < end:
                at += os.pwrite(self.fd, memoryview(b"".join(some))[at - end :], at)

    def forget(self, entry: Entry | Document | None) -> None:
        """Note that a value will not be in the archive."""
        if isinstance(entry, Entry) and entry.source is self:
            with self._lock:
                self.dead += entry.end - entry.start

    def finish(self, entries: Sequence[Entry], place: Callable[[str, str], bool]) -> bool:
        """Write the directory and put the archive into its place; it survives a power cut."""
        with open(self.fd, "wb", closefd=False) as file:
            file.seek(self.size)
            with ZipFile(file, "w") as archive:
                archive.filelist.extend(entry.info() for entry in entries)
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
