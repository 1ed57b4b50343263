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
    TEMPORARY,
    Missing,
    Store,
    Tag,
    Value,
    check_key,
    check_keys,
    digest,
    slices,
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
    """Requests that were answered from the cache."""
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    evictions: int = 0
    """Entries that were removed to make room."""
    nbytes: int = 0
    """The bytes of values in memory, with the overhead of each entry."""
    decoded_nbytes: int = 0
    """The bytes of decoded chunks."""


@dataclass(frozen=True, slots=True)
class _CachedTag:
    """The tag of a cached value: a text that differs where tags do; in a folder there is only that text."""

    text: str
    tag: Tag | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return self.text


class _Entry(NamedTuple):
    """What is cached of one version of a value: the value, a decoded chunk, or the requested ranges."""

    value: Any
    tag: _CachedTag | None
    since: float
    """The time before the request."""
    size: int | None = None


class CacheStore(WrapperStore, DecodedChunks):
    """Keeps the values that are read from another store, up to a number of bytes; those used least recently go first.

    All arrays that use this store share the cache. What is written through this store is never answered from before.
    Changes by others are not noticed, except with `ttl` or `validate`. That a key is missing is not remembered.

    Parameters
    ----------
    inner
        The store whose values are cached.
    max_bytes
        The limit of encoded values in memory.
    folder
        A directory for values that outlive the process; several processes may share it.
    folder_bytes
        The limit of encoded values in the folder.
    decoded_bytes
        The limit of decoded chunks in memory, of arrays without shards; 0 keeps none.
    ttl
        The seconds that an entry is used for; None for no limit.
    validate
        Whether to ask the store before each use whether the value is still the same, by a small request.

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
        on_disk = None if folder is None else _Folder(folder, folder_bytes, _lasting(inner))
        self._cache = _Cache(max_bytes, decoded_bytes, on_disk)

    @property
    def statistics(self) -> CacheStatistics:
        """Hits, misses and bytes so far."""
        return self._cache.statistics()

    def clear(self) -> None:
        """Empty the cache."""
        self._cache.drop("")

    # -- reading ----------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Return the whole value, or ranges of it, cached or fetched; see `Store.read`."""
        found = self._read(key, [_WHOLE] if spans is None else spans)
        return None if found is None else Value(found.value, found.size, found.tag)

    def ability(self, kind: type[T]) -> Any:
        """Return that of the store inside; what it changes is forgotten here."""
        if kind is DecodedChunks and self._settings["decoded_bytes"]:
            return self
        found: Any = super().ability(kind)
        return FoldersAround(found, "", self._cache.written) if found is not None and kind is Folders else found

    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        """Return what `decode` makes of a value, from the cache or anew; None if there is no such key."""
        chunk: AnyArray
        cached = self._cache.find_chunk(check_key(key), how)
        if cached is not None and self._is_current(key, cached):
            chunk = cached.value
            self._cache.count(chunk.nbytes, hit=True)
            return chunk
        with self._cache.fetching(key) as is_valid:
            found = self._read(key, [_WHOLE])
            if found is None:
                return None
            chunk = np.array(decode(found.value[0]))  # a copy, which does not hold the encoded bytes
            chunk.flags.writeable = False
            self._cache.keep_chunk(is_valid, key, how, found._replace(value=chunk))
            return chunk

    def _read(self, key: str, spans: Sequence[Span]) -> _Entry | None:
        """Return ranges as one entry, whose value they are."""
        found = self._cache.find(check_key(key), spans)
        if found is not None and self._is_current(key, found):
            self._cache.count(sum(map(len, found.value)), hit=True)
            return found
        with self._cache.fetching(key) as is_valid:
            found = self._cache.load(key, spans)
            hit = found is not None and self._is_current(key, found)
            if not hit:
                found = self._fetch(key, spans)
            self._cache.count(0 if found is None else sum(map(len, found.value)), hit=hit)
            if found is None:
                self._cache.forget(key)
            else:
                self._cache.keep(is_valid, key, spans, found, new=not hit)
            return found

    def _fetch(self, key: str, spans: Sequence[Span]) -> _Entry | None:
        """Read ranges from the store inside."""
        since = time.time()
        found = self.inner.read(key, None if list(spans) == [_WHOLE] else spans)
        if found is None:
            return None
        parts = [part if type(part) is bytes else bytes(part) for part in found.parts]
        return _Entry(parts, _cached(found.tag), since, found.size)

    def _is_current(self, key: str, entry: _Entry) -> bool:
        """Whether an entry may still be used; if not, all that is cached of the key is forgotten."""
        good = self._ttl is None or 0 <= time.time() - entry.since < self._ttl
        if good and self._validate:
            now = None if entry.tag is None else self.inner.read(key, ())
            good = now is not None and _cached(now.tag) == entry.tag
        if not good:
            self._cache.forget(key)
        return good

    # -- writing ----------------------------------------------------------------------------------

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value in the store inside, maybe on a condition, and forget what was cached of it."""
        self.check_writable()
        check_key(key)
        if isinstance(if_tag, _CachedTag):
            if_tag = if_tag.tag
            if if_tag is None:  # from the folder, which keeps no tags; the next read asks the store
                self._cache.written(key)
                return False
        try:
            return self.inner.write(key, value, if_tag)
        finally:  # also if it failed: it is not known what is there
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
        """Hold the lock of the store inside; what is read under it is read anew: of metadata, all of its node."""
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
    """Return a name of a store that means the same in other processes."""

    def is_text(name: object) -> bool:
        return isinstance(name, str) or (isinstance(name, tuple) and all(map(is_text, name)))

    if not is_text(store.identity):
        raise ValueError(f"{store!r} ends with this process, and a folder does not; leave folder out")
    return repr(store.identity)


def _cached(tag: Tag | None) -> _CachedTag | None:
    return None if tag is None else _CachedTag(digest(repr(tag).encode(errors="replace")), tag)


# -- in memory ------------------------------------------------------------------------------------


class _Lru:
    """Entries by key and by part, which is a range or a way of decoding, up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self.most, self.nbytes, self.evictions = most, 0, 0
        self._entries: OrderedDict[tuple[str, Hashable], tuple[_Entry, int]] = OrderedDict()
        self._parts: dict[str, set[Hashable]] = {}

    def find(self, key: str, part: Hashable) -> _Entry | None:
        found = self._entries.get((key, part))
        if found is None:
            return None
        self._entries.move_to_end((key, part))
        return found[0]

    def any_of(self, key: str) -> _Entry | None:
        part = next(iter(self._parts.get(key, ())), None)
        return None if part is None else self._entries[key, part][0]

    def keep(self, key: str, part: Hashable, entry: _Entry, nbytes: int) -> None:
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
    """The entries of a `CacheStore`, which its views share."""

    def __init__(self, max_bytes: int, decoded_bytes: int, folder: _Folder | None) -> None:
        self.folder = folder
        self._values, self._chunks = _Lru(max_bytes), _Lru(decoded_bytes)
        self._fetches: dict[object, str] = {}
        """The keys of requests in flight; one whose answer must not be cached is removed."""
        self._counts = {True: [0, 0], False: [0, 0]}
        self._written: set[str] = set()
        """Keys and prefixes that were written here: another process may add what it read before to the folder."""
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

    def find_chunk(self, key: str, how: Hashable) -> _Entry | None:
        with self.lock:
            return self._chunks.find(key, how)

    def find(self, key: str, spans: Sequence[Span]) -> _Entry | None:
        """Find ranges in memory, all of one value."""
        with self.lock:
            if not spans:
                known = self._values.any_of(key)
                return None if known is None or known.size is None else known._replace(value=[])
            return _joined(key, spans, lambda span: self._values.find(key, span))

    def load(self, key: str, spans: Sequence[Span]) -> _Entry | None:
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
        """Note a request; yield a function that says whether its answer may be cached: nothing was written since."""
        token = object()
        with self.lock:
            self._fetches[token] = key
        try:
            yield lambda: token in self._fetches
        finally:
            with self.lock:
                self._fetches.pop(token, None)

    def keep(self, is_valid: Callable[[], bool], key: str, spans: Sequence[Span], found: _Entry, *, new: bool) -> None:
        """Keep ranges in memory, and new ones in the folder too."""

        def place(temporary: str, path: str) -> bool:
            with self.lock:
                if is_valid():
                    return files.rename(temporary, path)
            files.unlink(temporary)
            return False

        # Without a tag it is not known whether two ranges are of one value.
        kept = [(s, p) for s, p in zip(spans, found.value, strict=True) if s == _WHOLE or found.tag is not None]
        if new and self.folder is not None and not self._was_written(key):
            for span, part in kept:
                self.folder.keep(key, span, found._replace(value=part), place)
        with self.lock:
            if is_valid():
                for span, part in kept:
                    self._values.keep(key, span, found._replace(value=part), len(part))

    def keep_chunk(self, is_valid: Callable[[], bool], key: str, how: Hashable, entry: _Entry) -> None:
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
        """Forget a key, or all below a prefix, and the answers to requests in flight."""
        with self.lock:
            for token, key in tuple(self._fetches.items()):
                if key == name or (_is_prefix(name) and key.startswith(name)):
                    del self._fetches[token]
        self.forget(name)

    def forget(self, name: str) -> None:
        """Forget what is cached of a key, or of all below a prefix."""
        with self.lock:
            self._values.drop(name)
            self._chunks.drop(name)
            if self.folder is not None:
                self.folder.drop(name)


def _joined(key: str, spans: Sequence[Span], find: Callable[[Span], _Entry | None]) -> _Entry | None:
    """Return ranges cut out of the whole value, or each from its own entry if all are of one version; else None."""
    whole = find(_WHOLE)
    if whole is not None:
        return whole._replace(value=slices(key, whole.value, spans))
    entries: list[_Entry] = []
    for span in spans:
        entry = find(span) if span != _WHOLE else None
        if entry is None or (entries and entry.tag != entries[0].tag):
            return None
        entries.append(entry)
    oldest = min(entries, key=lambda entry: entry.since)
    return oldest._replace(value=[entry.value for entry in entries])


_caches: WeakSet[_Cache] = WeakSet()
"""All caches, whose fetches in other threads a forked child does not have."""


def _forget_fetches() -> None:
    """In a forked child: the threads that held these locks do not exist here."""
    for cache in _caches:
        cache.lock = threading.Lock()
        cache._fetches.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_fetches)


# -- in a folder ----------------------------------------------------------------------------------

_ABANDONED = 3600.0  # seconds after which a temporary file counts as left behind
_CHECK = 16  # bytes of the checksum at the start of a file
_HEADER = struct.Struct("<dII")  # when it was read from the store, the lengths of its tag and of its key
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ENOENT})  # or removed with its folder


class _Folder:
    """Values in a folder: one file each, named by digests, written whole; those used least recently are removed first.

    Several processes may share a folder, and its limit of bytes. A file names its key and has a checksum: what is
    loaded is what was kept, or nothing. `owner` is a name of the store that no other store has.
    """

    def __init__(self, path: str | os.PathLike[str], most: int, owner: str) -> None:
        self.path, self._most = os.path.abspath(os.fspath(path)), most
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            reason = "the folder of a cache is a file; remove it, or use another place"
            raise NotADirectoryError(errno.ENOTDIR, reason, self.path)
        self._owner = blake2b(owner.encode(errors="surrogateescape"), digest_size=32).digest()
        self._top = os.path.join(self.path, self._owner[:8].hex())
        self.evictions = 0
        self._since_scan = most  # the first write scans the folder

    def _folder(self, key: str) -> str:
        """Return the directory of a key's values; keys that begin with it and `/` are below."""
        names = [blake2b(os.fsencode(part), digest_size=8).hexdigest() for part in key.split("/") if part]
        return os.path.join(self._top, *names)

    def _file(self, key: str, span: Span) -> str:
        start, length = span
        return os.path.join(self._folder(key), f"{start}:{'' if length is None else length}")

    def load(self, key: str, span: Span) -> _Entry | None:
        """Return a value or a range of it, if it is there and not damaged."""
        path = self._file(key, span)
        try:
            with open(path, "rb") as file:
                raw = file.read()
        except OSError as error:
            if error.errno in files.MISSING:
                return None
            raise
        with suppress(OSError):  # only the order of removals depends on it
            os.utime(path)
        found = self._parsed(raw, key)
        if found is None:
            files.unlink(path)  # damaged, as after a power cut
        elif span == _WHOLE:
            found = found._replace(size=len(found.value))
        return found

    def keep(self, key: str, span: Span, entry: _Entry, place: files.Place) -> None:
        """Write a file, if there is room; `place` renames it."""
        path, raw = self._file(key, span), self._formatted(key, entry)
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

    def _formatted(self, key: str, entry: _Entry) -> bytes:
        tag, name = b"" if entry.tag is None else entry.tag.text.encode(), os.fsencode(key)
        rest = b"".join([_HEADER.pack(entry.since, len(tag), len(name)), tag, name, entry.value])
        return self._checksum(rest) + rest

    def _parsed(self, raw: bytes, key: str) -> _Entry | None:
        """Return what a file holds; None if it is damaged, or of another key or store with the same digests."""
        if len(raw) < _CHECK + _HEADER.size or self._checksum(raw[_CHECK:]) != raw[:_CHECK]:
            return None
        since, tag_length, name_length = _HEADER.unpack_from(raw, _CHECK)
        start = _CHECK + _HEADER.size
        middle = start + tag_length
        end = middle + name_length
        if raw[middle:end] != os.fsencode(key):
            return None
        return _Entry(raw[end:], _CachedTag(raw[start:middle].decode()) if tag_length else None, since)

    def drop(self, name: str) -> None:
        """Remove the files of a key, or of all keys below a prefix."""
        for folder, _, names in os.walk(self._folder(name)):
            for file in names:
                files.unlink(os.path.join(folder, file))
            if not _is_prefix(name):
                break

    def _trim(self) -> None:
        """Remove the files used least recently while there are too many bytes.

        Other processes write, too, so the folder is scanned each time an eighth of the limit was written here.
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
