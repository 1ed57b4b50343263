"""Values that a cache keeps in a folder: one file each, named by digests, written whole, the oldest removed first.

Several processes may use one folder. A file says of which key it is and has a checksum, so that what is found is
what was kept, or nothing.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from zellige.stores.base import MISSING
from zellige.types import Span

_TEMPORARY = ".tmp-"
_ABANDONED = 3600.0  # seconds after which nobody writes a temporary file any more
_CHECK = 16  # bytes of the checksum at the start of a file
_HEADER = struct.Struct("<dII")  # when it was read from the store, the lengths of its mark and of its key
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG})


class Kept(NamedTuple):
    """A value with the mark of the version that it is of, and the time before it was asked for."""

    value: bytes
    mark: str | None
    since: float


class CacheFolder:
    """Where the values of one store are, with a limit of bytes for all processes; other stores may use the folder too.

    `owner` is the store, in words that no other store has.
    """

    def __init__(self, path: str | os.PathLike[str], most: int, owner: str) -> None:
        self.path, self._most = os.path.abspath(os.fspath(path)), most
        self._owner = blake2b(owner.encode(errors="surrogateescape"), digest_size=32).digest()
        self._top = os.path.join(self.path, self._owner[:8].hex())
        self.evictions = 0
        self._since_scan = most  # the first file that is kept has the others counted

    def _folder(self, key: str) -> str:
        """Where the values of a key are, and below it those of all keys that begin with it and `/`."""
        names = [blake2b(os.fsencode(part), digest_size=8).hexdigest() for part in key.split("/") if part]
        return os.path.join(self._top, *names)

    @staticmethod
    def _temporary(folder: str) -> str:
        return os.path.join(folder, f"{_TEMPORARY}{os.getpid():x}-{os.urandom(6).hex()}")

    def _file(self, key: str, span: Span) -> str:
        start, length = span
        return os.path.join(self._folder(key), f"{start}:{'' if length is None else length}")

    def load(self, key: str, span: Span) -> Kept | None:
        """A value or a range of it, if it is here and whole."""
        path = self._file(key, span)
        try:
            with open(path, "rb") as file:
                raw = file.read()
        except OSError as error:
            if error.errno in MISSING:
                return None
            raise
        with suppress(OSError):  # used last, removed last; not more than that depends on it
            os.utime(path)
        found = self._parsed(raw, key)
        if found is None:
            _remove(path)  # damaged, as after a power cut
        return found

    def prepare(self, key: str, span: Span, kept: Kept) -> Callable[[bool], None]:
        """Write a file beside its place; the result puts it there, or removes it if called with False."""
        path = self._file(key, span)
        temporary = self._temporary(os.path.dirname(path))
        raw = self._formatted(key, kept)
        if len(raw) > self._most:
            return lambda _: None
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(temporary, "xb") as file:
                file.write(raw)
        except OSError as error:
            _remove(temporary)
            if error.errno in _NO_ROOM or isinstance(error, FileNotFoundError):  # removed with its folder meanwhile
                return lambda _: None
            raise
        self._since_scan += len(raw)

        def finish(keep: bool) -> None:
            if keep:
                with suppress(FileNotFoundError):
                    os.replace(temporary, path)
            else:
                _remove(temporary)

        return finish

    def _checksum(self, rest: bytes) -> bytes:
        return blake2b(rest, digest_size=_CHECK, key=self._owner).digest()

    def _formatted(self, key: str, kept: Kept) -> bytes:
        mark, name = (kept.mark or "").encode(), os.fsencode(key)
        rest = b"".join([_HEADER.pack(kept.since, len(mark), len(name)), mark, name, kept.value])
        return self._checksum(rest) + rest

    def _parsed(self, raw: bytes, key: str) -> Kept | None:
        """What a file holds; None if it is damaged, or of another key or store with the same digests."""
        if len(raw) < _CHECK + _HEADER.size or self._checksum(raw[_CHECK:]) != raw[:_CHECK]:
            return None
        since, marked, named = _HEADER.unpack_from(raw, _CHECK)
        start = _CHECK + _HEADER.size
        mark, name = raw[start : start + marked], raw[start + marked : start + marked + named]
        if name != os.fsencode(key):
            return None
        return Kept(raw[start + marked + named :], mark.decode() or None, since)

    def drop(self, key: str) -> None:
        """Remove what is known of a key."""
        try:
            with os.scandir(self._folder(key)) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        _remove(entry.path)
        except OSError as error:
            if error.errno not in MISSING:
                raise

    def drop_prefix(self, prefix: str) -> None:
        """Remove what is known of all keys below a prefix."""
        for _, _, path in self._files(self._folder(prefix)):
            _remove(path)

    def _files(self, top: str) -> Iterator[tuple[float, int, str]]:
        """Time, size and path of all files below a folder."""
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(FileNotFoundError):
                    found = os.stat(path, follow_symlinks=False)
                    yield found.st_mtime, found.st_size, path

    @property
    def nbytes(self) -> int:
        """The bytes of all files."""
        return sum(size for _, size, _ in self._files(self._top))

    def trim(self) -> None:
        """Remove those used least lately while there are too many bytes.

        Others write too, so the files are counted again each time an eighth of the limit was written from here.
        """
        if self._since_scan < self._most // 8:
            return
        self._since_scan = 0
        files = sorted(self._files(self._top))
        total, now = sum(size for _, size, _ in files), time.time()
        for used, size, path in files:
            temporary = os.path.basename(path).startswith(_TEMPORARY)
            if temporary and now - used < _ABANDONED:
                continue
            if temporary or total > self._most - self._most // 8:
                _remove(path)
                total -= size
                self.evictions += 1


def _remove(path: str) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)
