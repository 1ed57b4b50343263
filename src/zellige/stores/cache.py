"""A cache in front of a store: values and ranges of them in memory or in a folder, and decoded chunks in memory."""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

import numpy as np

from zellige.stores import files
from zellige.stores.abilities import DecodedChunks, Folders
from zellige.stores.base import (
    DOCUMENTS,
    MISSING,
    TEMPORARY,
    Missing,
    Store,
    Tag,
    Value,
    check_key,
    check_keys,
    digest,
    resolve_span,
)
from zellige.stores.wrappers import FoldersAround, WrapperStore
from zellige.types import AnyArray, Buffer, Encoded, Span

T = TypeVar("T")

_WHOLE: Span = (0, None)
_OVERHEAD = 256  # bytes that an entry takes beside its value


@dataclass(frozen=True)
class CacheStatistics:
    """What a cache has done so far, and what it holds."""

    hits: int = 0
    """Requests that were answered without the value being fetched."""
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    evictions: int = 0
    """Entries that had to make room."""
    nbytes: int = 0
    """The bytes of values in memory, with what each entry takes."""
    decoded_nbytes: int = 0
    """The bytes of decoded chunks."""


class _Kept(NamedTuple):
    """What is kept of one version of a value: the value, a decoded chunk, or the ranges that were asked for."""

    value: Any
    mark: str | None
    """A short text that differs where tags do."""
    since: float
    """The time before the store was asked."""
    tag: Tag | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class _Mark:
    """The tag of a value that may have been kept; its own tag is not known if it comes from a folder."""

    mark: str
    tag: Tag | None = field(compare=False)

    def __repr__(self) -> str:
        return self.mark


class CacheStore(WrapperStore, DecodedChunks):
    """Keeps the values that are read from another store, up to a number of bytes, those used last the longest.

    `max_bytes` is for encoded values in memory, `folder_bytes` for those in a `folder`, which several processes may
    share and which outlives them, and `decoded_bytes` for decoded chunks of arrays without shards. All arrays that
    use this store share them.

    What is written through this store is never answered from before. Changes by others are not noticed, unless
    entries are used for `ttl` seconds only, or with `validate=True` each time the store says that the value is still
    the same, which takes a small request. That a key is missing is not remembered.

    >>> from zellige.storage import MemoryStore
    >>> store = CacheStore(MemoryStore({"a": b"value"}))
    >>> store.get("a"), store.get_range("a", 0, 3)
    (b'value', b'val')
    >>> store.statistics.hits, store.statistics.misses
    (1, 1)
    """

    def __init__(
        self,
        inner: Store,
        max_bytes: int = 256 << 20,
        *,
        folder: str | os.PathLike[str] | None = None,
        folder_bytes: int = 4 << 30,
        decoded_bytes: int = 0,
        ttl: float | None = None,
        validate: bool = False,
    ) -> None:
        super().__init__(inner)
        for name, most in (("max_bytes", max_bytes), ("folder_bytes", folder_bytes), ("decoded_bytes", decoded_bytes)):
            if type(most) is not int or most < 0:
                raise ValueError(f"{name}={most!r} must be an integer >= 0, in bytes")
        if ttl is not None and not ttl > 0:
            raise ValueError(f"ttl={ttl!r} must be None or seconds > 0")
        self._ttl, self._validate = ttl, validate
        self._settings = {"max_bytes": max_bytes, "folder_bytes": folder_bytes, "decoded_bytes": decoded_bytes}
        kept = None if folder is None else _Folder(folder, folder_bytes, _lasting(inner))
        self._cache = _Cache(max_bytes, decoded_bytes, kept)

    @property
    def statistics(self) -> CacheStatistics:
        """Hits, misses and bytes so far."""
        return self._cache.statistics()

    def clear(self) -> None:
        """Forget everything that is kept."""
        self._cache.drop("")

    # -- reading ----------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Return the whole value, or ranges of it, kept or fetched; see `Store.read`."""
        found = self._read(key, [_WHOLE] if spans is None else spans)
        if found is None:
            return None
        return Value(found.value, found.size, None if found.mark is None else _Mark(found.mark, found.tag))

    def ability(self, kind: type[T]) -> T | None:
        """Return that of the store inside; what it changes is forgotten here."""
        if kind is DecodedChunks and self._settings["decoded_bytes"]:
            return self  # type: ignore[return-value]
        found: Any = super().ability(kind)
        if found is not None and kind is Folders:
            found = FoldersAround(found, "", self._cache.written)
        ability: T | None = found
        return ability

    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        """Return what `decode` makes of a value, kept or made anew; None if there is no such key."""
        chunk: AnyArray
        kept = self._cache.find_chunk(check_key(key), how)
        if kept is not None and self._is_current(key, kept):
            chunk = kept.value
            self._cache.count(chunk.nbytes, hit=True)
            return chunk
        with self._cache.fetching(key) as is_valid:
            found = self._read(key, [_WHOLE])
            if found is None:
                return None
            chunk = np.array(decode(found.value[0]))  # a copy, which does not keep the encoded bytes
            chunk.flags.writeable = False
            self._cache.keep_chunk(is_valid, key, how, found._replace(value=chunk))
            return chunk

    def _read(self, key: str, spans: Sequence[Span]) -> _Kept | None:
        """Return ranges as one entry, whose value they are."""
        found = self._cache.find(check_key(key), spans)
        if found is not None and self._is_current(key, found):
            self._cache.count(sum(map(len, found.value)), hit=True)
            return found
        with self._cache.fetching(key) as is_valid:
            found = self._cache.load(key, spans)
            hit = found is not None and self._is_current(key, found)
            if not hit:
                since = time.time()
                found = _as_kept(self.inner.read(key, None if list(spans) == [_WHOLE] else spans), since)
            self._cache.count(0 if found is None else sum(map(len, found.value)), hit=hit)
            if found is None:
                self._cache.forget(key)
            else:
                self._cache.keep(is_valid, key, spans, found, new=not hit)
            return found

    def _is_current(self, key: str, kept: _Kept) -> bool:
        """Whether something kept may be used still; if not, all that is kept of the key is forgotten."""
        good = self._ttl is None or 0 <= time.time() - kept.since < self._ttl
        if good and self._validate:
            now = None if kept.mark is None else self.inner.read(key, ())
            good = now is not None and _mark(now.tag) == kept.mark
        if not good:
            self._cache.forget(key)
        return good

    # -- writing ----------------------------------------------------------------------------------

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value in the store inside, maybe on a condition, and forget what was kept of it."""
        self.check_writable()
        check_key(key)
        if isinstance(if_tag, _Mark):
            if_tag = if_tag.tag
            if if_tag is None:  # it comes from the folder, which does not keep tags; the next read is a fresh one
                self._cache.written(key)
                return False
        try:
            return self.inner.write(key, value, if_tag)
        finally:  # also if it failed: nobody knows what is there
            self._cache.written(key)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys from the store inside."""
        self.check_writable()
        check_keys(keys)
        try:
            self.inner.delete(keys)
        finally:
            for key in keys:
                self._cache.written(key)

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold the lock of the store inside; what is read under it is read anew, of a document all of its node."""
        folder, _, name = key.rpartition("/")
        with self.inner.lock(key):
            for other in DOCUMENTS if name in DOCUMENTS else [name]:
                self._cache.drop(f"{folder}/{other}" if folder else other)
            yield

    # -- copies -----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        folder = self._cache.folder
        where = None if folder is None else folder.path
        return {"inner": self.inner, "folder": where, "ttl": self._ttl, "validate": self._validate, **self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        CacheStore.__init__(self, **state)


def _lasting(store: Store) -> str:
    """Return what a store is called in a folder, also by other processes."""

    def is_text(name: object) -> bool:
        return isinstance(name, str) or (isinstance(name, tuple) and all(map(is_text, name)))

    if not is_text(store.identity):
        raise ValueError(f"{store!r} ends with this process, and a folder does not; leave folder out")
    return repr(store.identity)


def _mark(tag: Tag | None) -> str | None:
    return None if tag is None else digest(repr(tag).encode(errors="replace"))


def _as_kept(answer: Value | None, since: float) -> _Kept | None:
    """Return what a store has answered, as it is kept."""
    if answer is None:
        return None
    parts = [part if type(part) is bytes else bytes(part) for part in answer.parts]
    return _Kept(parts, _mark(answer.tag), since, answer.tag, answer.size)


# -- in memory ------------------------------------------------------------------------------------


class _Lru:
    """Entries by key and by part, which is a range or a way of decoding, up to so many bytes."""

    def __init__(self, most: int) -> None:
        self.most, self.nbytes, self.evictions = most, 0, 0
        self._entries: OrderedDict[tuple[str, Hashable], tuple[_Kept, int]] = OrderedDict()
        self._parts: dict[str, set[Hashable]] = {}

    def find(self, key: str, part: Hashable) -> _Kept | None:
        found = self._entries.get((key, part))
        if found is None:
            return None
        self._entries.move_to_end((key, part))
        return found[0]

    def any_of(self, key: str) -> _Kept | None:
        part = next(iter(self._parts.get(key, ())), None)
        return None if part is None else self._entries[key, part][0]

    def keep(self, key: str, part: Hashable, entry: _Kept, nbytes: int) -> None:
        self._remove(key, part)
        nbytes += _OVERHEAD
        if nbytes > self.most:
            return
        self._entries[key, part] = entry, nbytes
        self._parts.setdefault(key, set()).add(part)
        self.nbytes += nbytes
        while self.nbytes > self.most:
            self._remove(*next(iter(self._entries)))
            self.evictions += 1

    def _remove(self, key: str, part: Hashable) -> None:
        found = self._entries.pop((key, part), None)
        if found is not None:
            self.nbytes -= found[1]
            self._parts[key].remove(part)
            if not self._parts[key]:
                del self._parts[key]

    def drop(self, name: str) -> None:
        """Forget a key, or all keys below a prefix."""
        for key in [key for key in self._parts if key.startswith(name)] if _is_prefix(name) else [name]:
            for part in tuple(self._parts.get(key, ())):
                self._remove(key, part)


def _is_prefix(name: str) -> bool:
    """Whether this is a prefix, the empty one or one that ends in `/`, rather than a key."""
    return not name or name.endswith("/")


class _Cache:
    """What a `CacheStore` and its views keep together."""

    def __init__(self, max_bytes: int, decoded_bytes: int, folder: _Folder | None) -> None:
        self.folder = folder
        self._values, self._chunks = _Lru(max_bytes), _Lru(decoded_bytes)
        self._fetches: dict[object, str] = {}
        """The keys of requests that are under way; one that is dropped meanwhile is missing here."""
        self._counts = {True: [0, 0], False: [0, 0]}
        self._written: set[str] = set()
        """Keys and prefixes that were written here: another process may put what it read before into the folder."""
        self.lock = threading.Lock()
        _caches.add(self)

    def statistics(self) -> CacheStatistics:
        with self.lock:
            (hits, hit_bytes), (misses, miss_bytes) = self._counts[True], self._counts[False]
            evictions = self._values.evictions + self._chunks.evictions
            evictions += 0 if self.folder is None else self.folder.evictions
            sizes = self._values.nbytes, self._chunks.nbytes
            return CacheStatistics(hits, misses, hit_bytes, miss_bytes, evictions, *sizes)

    def count(self, nbytes: int, *, hit: bool) -> None:
        with self.lock:
            self._counts[hit][0] += 1
            self._counts[hit][1] += nbytes

    # -- finding ----------------------------------------------------------------------------------

    def find_chunk(self, key: str, how: Hashable) -> _Kept | None:
        """Find a decoded chunk."""
        with self.lock:
            return self._chunks.find(key, how)

    def find(self, key: str, spans: Sequence[Span]) -> _Kept | None:
        """Find ranges in memory, all of one value."""
        with self.lock:
            if not spans:
                known = self._values.any_of(key)
                return None if known is None or known.size is None else known._replace(value=[])
            return _joined(key, spans, lambda span: self._values.find(key, span))

    def load(self, key: str, spans: Sequence[Span]) -> _Kept | None:
        """Find ranges in the folder, all of one value."""
        folder = self.folder
        if folder is None or not spans or self._was_written(key):
            return None
        return _joined(key, spans, lambda span: folder.load(key, span))

    def _was_written(self, key: str) -> bool:
        with self.lock:
            names = [key[:end] for end in (0, *(at + 1 for at, letter in enumerate(key) if letter == "/"), len(key))]
            return not self._written.isdisjoint(names)

    # -- keeping ----------------------------------------------------------------------------------

    @contextmanager
    def fetching(self, key: str) -> Iterator[Callable[[], bool]]:
        """Note a request; gives whether its answer may be kept, as nothing was written meanwhile."""
        token = object()
        with self.lock:
            self._fetches[token] = key
        try:
            yield lambda: token in self._fetches
        finally:
            with self.lock:
                self._fetches.pop(token, None)

    def keep(self, is_valid: Callable[[], bool], key: str, spans: Sequence[Span], found: _Kept, *, new: bool) -> None:
        """Keep ranges in memory, and new ones in the folder too."""

        def place(temporary: str, path: str) -> bool:
            with self.lock:
                if is_valid():
                    return files.rename(temporary, path)
            files.unlink(temporary)
            return False

        # Without a mark nobody could tell whether two ranges are of one value.
        kept = [(s, p) for s, p in zip(spans, found.value, strict=True) if s == _WHOLE or found.mark is not None]
        if new and self.folder is not None and not self._was_written(key):
            for span, part in kept:
                self.folder.keep(key, span, found._replace(value=part), place)
        with self.lock:
            if is_valid():
                for span, part in kept:
                    self._values.keep(key, span, found._replace(value=part), len(part))

    def keep_chunk(self, is_valid: Callable[[], bool], key: str, how: Hashable, entry: _Kept) -> None:
        with self.lock:
            if is_valid():
                self._chunks.keep(key, how, entry, entry.value.nbytes)

    # -- forgetting -------------------------------------------------------------------------------

    def written(self, name: str) -> None:
        """Forget a key, or all below a prefix, which has been written from here."""
        if self.folder is not None:
            with self.lock:
                self._written.add(name)
        self.drop(name)

    def drop(self, name: str) -> None:
        """Forget a key, or all below a prefix, and what is just being fetched of it as well."""
        with self.lock:
            for token, key in tuple(self._fetches.items()):
                if key == name or (_is_prefix(name) and key.startswith(name)):
                    del self._fetches[token]
        self.forget(name)

    def forget(self, name: str) -> None:
        """Forget what is kept of a key, or of all below a prefix."""
        with self.lock:
            self._values.drop(name)
            self._chunks.drop(name)
            if self.folder is not None:
                self.folder.drop(name)


def _joined(key: str, spans: Sequence[Span], find: Callable[[Span], _Kept | None]) -> _Kept | None:
    """Return ranges out of the whole value, or each for itself if all are of one value; None if one is not there."""
    whole = find(_WHOLE)
    if whole is not None:
        places = [resolve_span(key, *span, len(whole.value)) for span in spans]
        return whole._replace(value=[whole.value[start : start + count] for start, count in places])
    entries: list[_Kept] = []
    for span in spans:
        entry = find(span) if span != _WHOLE else None
        if entry is None or (entries and entry.mark != entries[0].mark):
            return None
        entries.append(entry)
    oldest = min(entries, key=lambda entry: entry.since)
    return oldest._replace(value=[entry.value for entry in entries])


_caches: WeakSet[_Cache] = WeakSet()


def _forget_fetches() -> None:
    """In a forked child: the threads that held these locks do not exist here."""
    for cache in _caches:
        cache.lock = threading.Lock()
        cache._fetches.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_fetches)


# -- in a folder ----------------------------------------------------------------------------------

_ABANDONED = 3600.0  # seconds after which nobody writes a temporary file any more
_CHECK = 16  # bytes of the checksum at the start of a file
_HEADER = struct.Struct("<dII")  # when it was read from the store, the lengths of its mark and of its key
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ENOENT})  # or removed with its folder


class _Folder:
    """Values in a folder: one file each, named by digests, written whole, those used least lately removed first.

    Several processes may use one folder, and a limit of bytes for all of them. A file says of which key it is and has
    a checksum, so that what is found is what was kept, or nothing. `owner` is the store, in words that no other has.
    """

    def __init__(self, path: str | os.PathLike[str], most: int, owner: str) -> None:
        self.path, self._most = os.path.abspath(os.fspath(path)), most
        self._owner = blake2b(owner.encode(errors="surrogateescape"), digest_size=32).digest()
        self._top = os.path.join(self.path, self._owner[:8].hex())
        self.evictions = 0
        self._since_scan = most  # the first file that is kept has the others counted

    def _folder(self, key: str) -> str:
        """Return where the values of a key are, and below it those of all keys that begin with it and `/`."""
        names = [blake2b(os.fsencode(part), digest_size=8).hexdigest() for part in key.split("/") if part]
        return os.path.join(self._top, *names)

    def _file(self, key: str, span: Span) -> str:
        start, length = span
        return os.path.join(self._folder(key), f"{start}:{'' if length is None else length}")

    def load(self, key: str, span: Span) -> _Kept | None:
        """Return a value or a range of it, if it is here and whole."""
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
            files.unlink(path)  # damaged, as after a power cut
        elif span == _WHOLE:
            found = found._replace(size=len(found.value))
        return found

    def keep(self, key: str, span: Span, kept: _Kept, place: files.Place) -> None:
        """Write a file, as far as there is room; `place` puts it there."""
        path, raw = self._file(key, span), self._formatted(key, kept)
        if len(raw) > self._most:
            return
        try:
            files.in_folder(self._top + "/", path, lambda folder: files.write(folder, path, [raw], place))
        except OSError as error:
            if error.errno in _NO_ROOM:
                return
            raise
        self._since_scan += len(raw)
        self._trim()

    def _checksum(self, rest: bytes) -> bytes:
        return blake2b(rest, digest_size=_CHECK, key=self._owner).digest()

    def _formatted(self, key: str, kept: _Kept) -> bytes:
        mark, name = (kept.mark or "").encode(), os.fsencode(key)
        rest = b"".join([_HEADER.pack(kept.since, len(mark), len(name)), mark, name, kept.value])
        return self._checksum(rest) + rest

    def _parsed(self, raw: bytes, key: str) -> _Kept | None:
        """Return what a file holds; None if it is damaged, or of another key or store with the same digests."""
        if len(raw) < _CHECK + _HEADER.size or self._checksum(raw[_CHECK:]) != raw[:_CHECK]:
            return None
        since, marked, named = _HEADER.unpack_from(raw, _CHECK)
        start = _CHECK + _HEADER.size
        mark, name = raw[start : start + marked], raw[start + marked : start + marked + named]
        if name != os.fsencode(key):
            return None
        return _Kept(raw[start + marked + named :], mark.decode() or None, since)

    def drop(self, name: str) -> None:
        """Remove what is known of a key, or of all keys below a prefix."""
        for folder, _, names in os.walk(self._folder(name)):
            for file in names:
                files.unlink(os.path.join(folder, file))
            if not _is_prefix(name):
                break

    def _trim(self) -> None:
        """Remove those used least lately while there are too many bytes.

        Others write too, so the files are counted again each time an eighth of the limit was written from here.
        """
        if self._since_scan < self._most // 8:
            return
        self._since_scan = 0
        found, now = [], time.time()
        for folder, _, names in os.walk(self._top):
            for name in names:
                with suppress(FileNotFoundError):
                    info = os.lstat(os.path.join(folder, name))
                    if not name.startswith(TEMPORARY) or now - info.st_mtime > _ABANDONED:
                        found.append((info.st_mtime, info.st_size, os.path.join(folder, name)))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total > self._most - self._most // 8:
                files.unlink(path)
                total -= size
                self.evictions += 1
