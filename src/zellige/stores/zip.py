"""Values in a zip archive: the store with its transaction, and the format as it is read and written."""

from __future__ import annotations

import errno
import io
import os
import stat
import struct
import threading
import warnings
import weakref
import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import IO, Any, Literal, NoReturn, Self, TypeAlias, TypeVar, get_args
from uuid import uuid4
from zipfile import BadZipFile, ZipFile, ZipInfo

from zellige.errors import BadArchiveError, ConflictError, StoreKeyError, ZelligeWarning
from zellige.stores import files
from zellige.stores.base import (
    ABSENT,
    DOCUMENTS,
    TEMPORARY,
    Listing,
    Missing,
    Store,
    Tag,
    Traits,
    Value,
    check_key,
    check_keys,
    check_prefix,
    is_key,
    parts_of,
    resolve_span,
)
from zellige.stores.locks import FileLock
from zellige.types import Buffer, Durability, Encoded, Span

try:
    from isal import isal_zlib

    crc32 = isal_zlib.crc32  # measured fourteen times as fast
except ImportError:
    crc32 = zlib.crc32

TAIL = 256 << 10  # bytes that are read first: the directory of a few thousand entries, and metadata beside it
_EXTRA = 256  # bytes of extra fields that are read with the data; there are rarely more
_BLOCK = 4 << 20  # bytes that are copied at once
_LONGEST = 0xFFFF  # bytes of a name

_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1
_LOCAL = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra fields

_numbers = count(1)  # tell the versions of archives of this process apart

T = TypeVar("T", bound=Buffer)

Mode: TypeAlias = Literal["r", "r+", "a", "w", "x"]
Place: TypeAlias = str | os.PathLike[str] | IO[bytes] | tuple[Store, str]
"""Where an archive is: a path, a file object, or a key of another store."""


class ZipStore(Store):
    """The entries of a zip archive.

    **Writing is a transaction.** Chunks go to a draft beside the archive, uncompressed, metadata stays in memory, and
    `close` replaces the old archive by the new one. The old archive stays as it was after an exception in a `with`
    block, after a kill, or if the store is never closed, which warns. No name is ever there twice. Changing an archive
    copies what stays. One process writes; if another replaced the archive meanwhile, `close` raises `ConflictError`.

    Parameters
    ----------
    source
        A path, a file object, or `(store, key)` for an archive that is a value of another store.
    mode
        As in `zellige.open`; by default "r", or "a" with `read_only=False`. Only a path can be written to.
    read_only
        Whether to refuse to write; by default as `mode` says.
    path
        The folder in the archive that is the root of the store; "" is the archive's own root. By default it is that,
        too, unless there is only one folder (and others that begin with `__`), which holds the metadata of a node. Then
        it is that folder, and keys may begin with its name (`x.zarr/t` and `t` mean the same), unless the folder holds
        something of its own name.
    duplicates
        What happens if a name is there twice, as zarr-python writes it whenever a key changes. With "last", the last
        one counts, and changing the archive drops the others; "error" refuses the archive.

    """

    def __init__(
        self,
        source: Place,
        mode: Mode | None = None,
        *,
        read_only: bool | None = None,
        path: str | None = None,
        duplicates: Literal["error", "last"] = "last",
    ) -> None:
        refuses, self._mode = _modes(mode, read_only)
        self._source = os.path.realpath(source) if isinstance(source, str | os.PathLike) else source
        self._path = None if path is None else path.strip("/")
        if self._path:
            check_key(self._path)
        if duplicates not in ("error", "last"):
            raise ValueError(f"duplicates={duplicates!r} must be 'error' or 'last'")
        self._duplicates = duplicates
        self._open(refuses)

    def _open(self, read_only: bool) -> None:
        self._owner = True
        self._archive = _Archive(self._source, self._mode, self._duplicates)
        found = _root_of(self._archive.entries) if self._path is None else self._path
        self._prefix = found and found + "/"
        # Where the folder was found here, others may give paths from the archive's own root.
        named = self._path is None and not any(name.startswith(self._prefix * 2) for name in self._archive.entries)
        self._alias = self._prefix if named else ""
        base = self._source[0].traits if isinstance(self._source, tuple) else Traits()
        self.traits = Traits(
            read_only=read_only, concurrency=base.concurrency, coalesce_gap=base.coalesce_gap, transactional=True
        )

    # -- reading ----------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        """Return the name in the archive of a key, or of a prefix."""
        return key if self._alias and key.startswith(self._alias) else self._prefix + key

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read a whole value, or ranges of it; see `Store.read`."""
        found = self._archive.entries.get(self._name(check_key(key)))
        return None if found is None else found.read(key, spans)

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or one level of them."""
        top = self._name(check_prefix(prefix))
        cut = len(top) - len(prefix)
        if recursive:
            return Listing([name[cut:] for name in tuple(self._archive.entries) if name.startswith(top)])
        names, folders = self._archive.folders().get(top, ((), ()))
        return Listing([name[cut:] for name in names], [folder[cut:] for folder in folders])

    # -- writing ----------------------------------------------------------------------------------

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing, maybe on a condition; see `Store.write`."""
        self.check_writable()
        return self._archive.write(self._name(check_key(key)), parts_of(value), if_tag)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""
        self.check_writable()
        for key in check_keys(keys):
            self._archive.delete(self._name(key))

    def check_writable(self) -> None:
        """Raise if the store refuses to write, or its archive is closed."""
        super().check_writable()
        self._archive.check_writer()

    def close(self) -> None:
        """Replace the old archive by what was written; nothing for a read-only view of a store."""
        if self._owner:
            self._archive.close(keep=True)

    def discard(self) -> None:
        """Close, and keep the archive as it was before it was opened."""
        if self._owner:
            self._archive.close(keep=False)

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.close()
        else:
            self.discard()

    # -- views ------------------------------------------------------------------------------------

    @property
    def identity(self) -> Hashable:
        """The archive as it was opened, or this transaction."""
        return ("zip", self._archive.identity, self._prefix)

    def name(self, key: str) -> Hashable:
        """Return the name of a key, the same with and without the folder."""
        return super().name(self._name(check_key(key))[len(self._prefix) :])

    def with_durability(self, durability: Durability) -> Self:
        """Return the store itself: what was written survives a power cut once the store is closed."""
        return self

    def as_read_only(self) -> Self:
        """Return the same archive through a store that refuses to write."""
        view = super().as_read_only()
        view._owner = False
        return view

    def __getstate__(self) -> dict[str, Any]:
        if self._mode != "r":
            raise TypeError(
                f"{self!r} is open for writing and cannot be pickled, since one process writes an archive; close it "
                "and pickle one that is opened with mode='r'"
            )
        if not isinstance(self._source, str | tuple):
            raise TypeError(f"{self!r} reads a file object and cannot be pickled; open the archive by its path")
        return {"_source": self._source, "_path": self._path, "_duplicates": self._duplicates}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _mode="r")
        self._open(read_only=True)

    def __repr__(self) -> str:
        path = f", path={self._prefix[:-1]!r}" if self._prefix else ""
        mode = ", read_only=True" if self.read_only else f", mode={self._mode!r}"
        return f"{type(self).__name__}({self._source!r}{path}{mode})"


def _modes(mode: str | None, read_only: bool | None) -> tuple[bool, str]:
    """Whether a store refuses to write, and how its archive is opened."""
    if mode is None:
        mode = "a" if read_only is False else "r"
    if mode not in get_args(Mode):
        raise ValueError(f"mode={mode!r} must be one of {', '.join(map(repr, get_args(Mode)))}")
    if read_only is None:
        read_only = mode == "r"
    if (read_only and mode in "wx") or (not read_only and mode == "r"):
        raise ValueError(f"mode={mode!r} contradicts read_only={read_only}; leave one of them out")
    return read_only, "r" if read_only else mode


def _root_of(names: dict[str, Any]) -> str:
    """Return the one folder that is a node with nothing beside it, see `ZipStore`; else the archive's own root."""
    tops = {name[: name.find("/") + 1] for name in names if not name.startswith("__")}
    if len(tops) != 1:
        return ""
    (top,) = tops
    return top[:-1] if any(top + name in names for name in DOCUMENTS) else ""


class _Archive:
    """An open archive, shared by a store and its read-only views: entries by name, and the draft of the next."""

    def __init__(self, source: Place, mode: str, duplicates: str) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._writers, self._closed, self._mode = 0, False, mode
        self._folders: dict[str, tuple[list[str], set[str]]] | None = None
        self._entries: dict[str, Entry | Document] | None = {}
        self._base: Source | None = None
        self._draft: Draft | None = None
        self.identity: Hashable = id(self)
        if mode == "r":
            self._base = open_source(source)
            self.identity = self._base.identity
        else:
            self._start_draft(source)
        if self._base is not None:
            try:
                self.entries.update(read_directory(self._base, last=duplicates == "last"))
            except BaseException:
                self.close(keep=False)
                raise

    def _start_draft(self, path: Place) -> None:
        if not isinstance(path, str):
            raise ValueError(
                f"mode={self._mode!r}: only an archive that is given by its path can be written; use mode='r'"
            )
        if self._mode == "x" and os.path.lexists(path):
            raise FileExistsError(f"{path!r} is there already; use mode='w' to replace it, or 'a' to change it")
        if os.path.isdir(path):
            reason = "there is a directory in the place of the archive; remove it, or use another place"
            raise IsADirectoryError(errno.EISDIR, reason, path)
        if self._mode in ("r+", "a"):
            try:
                self._base = FileSource(path)
            except FileNotFoundError:
                if self._mode == "r+":
                    raise
        folder = os.path.dirname(path) + "/"
        with suppress(OSError):  # the drafts of writers that are dead
            for name in os.listdir(folder):
                if name.startswith(TEMPORARY):
                    files.clean(folder, name)
        self._draft = Draft(path)
        # Not bound to the archive, which would then never be collected.
        self._forgotten = weakref.finalize(self, _forget, self._draft)

    @property
    def entries(self) -> dict[str, Entry | Document]:
        """The values by their names; raises if the archive is closed."""
        if self._entries is None:
            raise ValueError("the archive is closed; open it again")
        return self._entries

    def check_writer(self) -> Draft:
        """Return the draft; raise if the archive is closed, or another process opened it."""
        if self._draft is None or self._closed:
            raise ValueError("the archive is closed; open it again")
        if self._draft.pid != os.getpid():
            raise ValueError(
                f"the archive {self._draft.target!r} is written by the process that opened it, not by a fork"
            )
        return self._draft

    def write(self, name: str, parts: Sequence[Buffer], if_tag: Tag | Missing | None) -> bool:
        """Store a value, maybe on a condition; closing waits for it."""
        check_name(name)
        with self._idle:
            draft = self.check_writer()
            self._writers += 1
        try:
            if not self._allows(name, if_tag):
                return False
            is_document = name[name.rfind("/") + 1 :] in DOCUMENTS
            new = Document(b"".join(map(memoryview, parts))) if is_document else draft.add(name, parts)
            with self._lock:
                if not self._allows(name, if_tag):
                    draft.forget(new)
                    return False
                self._put(draft, name, new)
            return True
        finally:
            with self._idle:
                self._writers -= 1
                self._idle.notify_all()

    def _allows(self, name: str, if_tag: Tag | Missing | None) -> bool:
        found = self.entries.get(name)
        return if_tag is None or if_tag == (ABSENT if found is None else found.version)

    def delete(self, name: str) -> None:
        """Remove a value; nothing happens if there is none."""
        with self._lock:
            draft = self.check_writer()
            if name in self.entries:
                self._put(draft, name, None)

    def _put(self, draft: Draft, name: str, new: Entry | Document | None) -> None:
        """Put a value into the place of another, under the lock."""
        old = self.entries.get(name)
        if new is None:
            del self.entries[name]
        else:
            self.entries[name] = new
        if old is None or new is None:
            self._folders = None
        draft.forget(old)
        draft.changed = True

    def folders(self) -> dict[str, tuple[list[str], set[str]]]:
        """Return the names in each folder, and the folders in it; computed once until names come or go."""
        with self._lock if self._draft is not None else nullcontext():
            if self._folders is None:
                self._folders = _by_folder(self.entries)
            return self._folders

    # -- the end ----------------------------------------------------------------------------------

    def close(self, *, keep: bool) -> None:
        """Close it, with what was written or without."""
        draft, done = self._draft, True
        if draft is not None and draft.pid == os.getpid():
            with self._idle:
                done, self._closed = self._closed, True
                self._idle.wait_for(lambda: not self._writers)
        try:
            if draft is not None and keep and not done and (draft.changed or self._base is None):
                self._commit(draft)
        finally:
            self._entries = self._folders = self._base = None
            if draft is not None:
                self._forgotten.detach()
                draft.remove()

    def _commit(self, draft: Draft) -> None:
        """Complete the draft, or a new one if it holds dead values, and put it into its place."""
        with self._lock:
            final = Draft(draft.target) if draft.dead else draft
            try:
                values = [found for found in self.entries.values() if isinstance(found, Entry)]
                kept = [found if found.source is final else final.copy(found) for found in values]
                # Metadata last, beside the directory: remote readers get both with one request.
                documents = {name: found for name, found in self.entries.items() if isinstance(found, Document)}
                kept += [final.add(name, [documents[name].value]) for name in sorted(documents)]
                self._place(final, kept)
            except OSError as exc:
                if exc.errno is None:  # an error of ours, which says what to do
                    raise
                reason = f"the archive cannot be completed: {exc.strerror}"
                raise OSError(exc.errno, reason, final.target) from exc
            finally:
                final.remove()

    def _place(self, final: Draft, entries: Sequence[Entry]) -> None:
        if self._mode == "x":
            if not final.finish(entries, files.link):
                raise FileExistsError(f"{final.target!r} was created by another process meanwhile; nothing was written")
            return
        with FileLock.taken(final.folder + files.lock_name(final.target)) as lock:
            try:
                if self._mode in ("r+", "a") and not self._is_as_opened(final.target):
                    raise ConflictError(f"{final.target!r} was replaced meanwhile; nothing was written, open it again")
                final.finish(entries, files.rename)
            finally:
                lock.remove()

    def _is_as_opened(self, path: str) -> bool:
        """Whether the archive is still the one that was opened, or still missing."""
        if isinstance(self._base, FileSource):
            return self._base.is_at(path)
        return not os.path.exists(path)


def _by_folder(names: Iterable[str]) -> dict[str, tuple[list[str], set[str]]]:
    """Return the names in each folder, and the folders in it."""
    found: dict[str, tuple[list[str], set[str]]] = {}
    for name in names:
        found.setdefault(_folder_of(name), ([], set()))[0].append(name)
    for folder in tuple(found):
        while folder:
            above = _folder_of(folder)
            folders = found.setdefault(above, ([], set()))[1]
            if folder in folders:
                break
            folders.add(folder)
            folder = above
    return found


def _folder_of(name: str) -> str:
    return name[: name.rfind("/", 0, -1) + 1]


def _forget(draft: Draft) -> None:
    """Remove the draft of a store that was never closed; warn if something is lost."""
    if draft.changed and draft.pid == os.getpid():
        warnings.warn(
            f"the archive {draft.target!r} was written to and was not closed, so that it stays as it was; use "
            "`with zellige.open(…) as node` or `with ZipStore(…) as store`, or call node.store.close()",
            ZelligeWarning,
            stacklevel=2,
        )
    draft.remove()


# -- where an archive is --------------------------------------------------------------------------


class Source:
    """The bytes of an archive, read by position. Its end is kept: the directory, and often metadata."""

    def __init__(self, name: str, size: int, read_at: Callable[[int, int], bytes], identity: Hashable) -> None:
        self.name, self.size, self.identity = name, size, identity
        self.stamp = uuid4().hex
        """Unique to this archive, until it is changed."""
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
    """A descriptor that is closed when it is collected.

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
    """A local file, read from one descriptor, also if another file replaces it meanwhile."""

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
    """Return what identifies a file, until it is changed."""
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
    """Open a value of another store, which is read by ranges."""
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
    """Open a file object, which is read by one thread at a time."""
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
        """Unique to this value."""
        return f"{self.source.stamp}-{self.start:x}-{self.crc:x}"

    def read(self, key: str, spans: Sequence[Span] | None) -> Value:
        """Answer `Store.read`; a whole value is compared with its checksum, and a compressed one always read whole."""
        if spans is None or (spans and self.method != _STORED):
            return Value.cut(key, self._decoded(self._raw()), spans, self.version)
        wanted = [resolve_span(key, *span, self.size) for span in spans]
        if wanted and self.data < 0:
            self.find()
        parts = [self.measured(self.source.read(self.data + start, length), length) for start, length in wanted]
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
        """The length of the header, or a little more."""
        return _LOCAL.size + len(self.name.encode()) + _EXTRA

    def find(self, head: bytes | None = None) -> None:
        """Read the header before the bytes, which says where they begin."""
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
        """Return what was read; raise unless it has this length."""
        if len(found) != length:
            self.fail(f"{len(found)} of {length} bytes are there; the archive was cut short meanwhile")
        return found

    def _decoded(self, raw: Buffer) -> Buffer:
        value = raw if self.method == _STORED else self._inflated(raw)
        if crc32(value) != self.crc:
            self.fail(f"its checksum is {crc32(value):08x}, the directory says {self.crc:08x}; it is damaged")
        return value

    def _inflated(self, raw: Buffer) -> bytes:
        # One byte more than declared bounds the memory, whatever the bytes say.
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
        """Raise an error that names the entry and the archive."""
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
    """Return the checked entries of an archive by their names: none leaves the root, none shares bytes with another.

    With `last` the last entry of a name counts; else a name that is there twice is refused.
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
    """An archive that is being written, in a temporary file beside its place; threads write to it at once."""

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self.name, self.stamp = f"(draft of {path!r})", uuid4().hex
        self.target = path
        self.folder = os.path.dirname(path) + "/"
        self.temporary = f"{self.folder}{files.temporary_name()}-zip{next(_numbers)}"
        try:
            super().__init__(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except OSError as exc:
            reason = "its directory does not exist; create it" if exc.errno == errno.ENOENT else exc.strerror
            raise OSError(exc.errno, f"the archive cannot be written: {reason}", path) from exc
        self.size = 0
        self.dead = 0
        """Bytes of values that were overwritten or removed."""
        self.changed = False
        """Whether anything was written or removed."""
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
            files.write_at(self.fd, [header, *parts], entry.start)
        except OSError as exc:
            self.forget(entry)
            raise OSError(exc.errno, f"entry {name!r}: {exc.strerror}", self.temporary) from exc
        return entry

    def copy(self, entry: Entry) -> Entry:
        """Copy a value of another archive as it is stored there."""
        if entry.data < 0:
            entry.find()
        new = Entry(self, entry.name, 0, 0, entry.stored, entry.size, entry.crc, entry.method)
        files.write_at(self.fd, [self._reserve(new)], new.start)
        for start in range(0, entry.stored, _BLOCK):
            length = min(_BLOCK, entry.stored - start)
            block = entry.source.read(entry.data + start, length)
            files.write_at(self.fd, [entry.measured(block, length)], new.data + start)
        return new

    def _reserve(self, entry: Entry) -> bytes:
        """Reserve a place for a value, and return its header."""
        header = entry.info().FileHeader()
        with self._lock:
            entry.start, entry.data = self.size, self.size + len(header)
            self.size = entry.end = entry.data + entry.stored
        return header

    def forget(self, entry: Entry | Document | None) -> None:
        """Note that a value will not be in the archive."""
        if isinstance(entry, Entry) and entry.source is self:
            with self._lock:
                self.dead += entry.end - entry.start

    def finish(self, entries: Sequence[Entry], place: Callable[[str, str], bool]) -> bool:
        """Write the directory and put the archive into its place, so that it survives a power cut."""
        with open(self.fd, "wb", closefd=False) as file:
            file.seek(self.size)
            with ZipFile(file, "w") as archive:
                archive.filelist.extend(entry.info() for entry in entries)
        with suppress(FileNotFoundError):
            os.fchmod(self.fd, stat.S_IMODE(os.stat(self.target).st_mode))  # its permissions stay
        os.fsync(self.fd)
        done = place(self.temporary, self.target)
        files.sync_folder(self.folder)
        return done

    def remove(self) -> None:
        """Remove the file unless it was put into its place; nothing in a forked process."""
        if self.pid == os.getpid():
            files.unlink(self.temporary)
