"""A cache in front of a store: values and ranges of them in memory or in a folder, and decoded chunks in memory."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakSet

import numpy as np

from zellige.stores.abilities import DecodedChunks, Folders
from zellige.stores.base import DOCUMENTS, Missing, Store, Tag, Value, check_key, check_keys, digest, resolve_span
from zellige.stores.cachefolder import CacheFolder, Kept
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
        kept = None if folder is None else CacheFolder(folder, folder_bytes, _lasting(inner))
        self._cache = _Cache(max_bytes, decoded_bytes, kept)

    @property
    def statistics(self) -> CacheStatistics:
        """Hits, misses and bytes so far."""
        return self._cache.statistics()

    def clear(self) -> None:
        """Forget everything that is kept."""
        self._cache.drop_prefix("")

    # -- reading ----------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """The whole value, or ranges of it, kept or fetched; see `Store.read`."""
        found = self._read(key, [_WHOLE] if spans is None else spans)
        if found is None:
            return None
        return Value(found.parts, found.size, None if found.mark is None else _Mark(found.mark, found.tag))

    def ability(self, kind: type[T]) -> T | None:
        """That of the store inside; what it changes is forgotten here."""
        if kind is DecodedChunks and self._settings["decoded_bytes"]:
            return self  # type: ignore[return-value]
        found: Any = super().ability(kind)
        return FoldersAround(found, "", self._cache.written) if found is not None and kind is Folders else found  # type: ignore

    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        """What `decode` makes of a value, kept or made anew; None if there is no such key."""
        entry = self._cache.find(check_key(key), how)
        if entry is not None and self._is_current(key, entry):
            self._cache.count(entry.value.nbytes, hit=True)
            chunk: AnyArray = entry.value
            return chunk
        with self._cache.fetching(key) as fetch:
            found = self._read(key, [_WHOLE])
            if found is None:
                return None
            chunk = np.array(decode(found.parts[0]))  # a copy, which does not keep the encoded bytes
            chunk.flags.writeable = False
            self._cache.keep_decoded(fetch, key, how, _Entry(chunk, *found[1:]))
            return chunk

    def _read(self, key: str, spans: Sequence[Span]) -> _Found | None:
        found = self._cache.find_parts(check_key(key), spans)
        if found is not None and self._is_current(key, found):
            self._cache.count(sum(map(len, found.parts)), hit=True)
            return found
        with self._cache.fetching(key) as fetch:
            found = self._cache.load(key, spans)
            hit = found is not None and self._is_current(key, found)
            if not hit:
                since = time.time()
                answer = self.inner.read(key, None if list(spans) == [_WHOLE] else spans)
                found = None if answer is None else _found(answer, since)
            self._cache.count(0 if found is None else sum(map(len, found.parts)), hit=hit)
            if found is None:
                self._cache.forget(key)
            else:
                self._cache.keep(fetch, key, spans, found, new=not hit)
            return found

    def _is_current(self, key: str, kept: _Found | _Entry) -> bool:
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
        """The lock of the store inside; what is read under it is read anew, of a document all of its node."""
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
    """What a store is called in a folder, also by other processes."""

    def is_text(name: object) -> bool:
        return isinstance(name, str) or (isinstance(name, tuple) and all(map(is_text, name)))

    if not is_text(store.identity):
        raise ValueError(f"{store!r} ends with this process, and a folder does not; leave folder out")
    return repr(store.identity)


def _mark(tag: Tag | None) -> str | None:
    """A short text that differs where tags do."""
    return None if tag is None else digest(repr(tag).encode(errors="replace"))


class _Mark(NamedTuple):
    """The tag of a value that may have been kept; its own tag is not known if it comes from a folder."""

    mark: str
    tag: Tag | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Mark) and self.mark == other.mark

    def __ne__(self, other: object) -> bool:
        return not self == other  # that of a tuple would compare the tags, too

    def __hash__(self) -> int:
        return hash(self.mark)

    def __repr__(self) -> str:
        return self.mark


class _Found(NamedTuple):
    """Ranges of one value, with its mark, the time before it was asked for, its tag and its size."""

    parts: Sequence[bytes]
    mark: str | None
    since: float
    tag: Tag | None
    size: int | None


def _found(answer: Value, since: float) -> _Found:
    """What a store has answered, as it is kept."""
    parts = [part if type(part) is bytes else bytes(part) for part in answer.parts]
    return _Found(parts, _mark(answer.tag), since, answer.tag, answer.size)


class _Entry(NamedTuple):
    """What is kept under one name."""

    value: Any
    mark: str | None
    since: float
    tag: Tag | None = None
    size: int | None = None


class _Fetch:
    """A request that is under way; what it gives is kept only if nothing was written meanwhile."""

    __slots__ = ("key", "valid")

    def __init__(self, key: str) -> None:
        self.key, self.valid = key, True


_Part: TypeAlias = Hashable
"""A range, or a way of decoding."""


class _Lru:
    """Entries by key and part, up to so many bytes."""

    def __init__(self, most: int) -> None:
        self.most, self.nbytes, self.evictions = most, 0, 0
        self._entries: OrderedDict[tuple[str, _Part], tuple[_Entry, int]] = OrderedDict()
        self._parts: dict[str, set[_Part]] = {}

    def find(self, key: str, part: _Part) -> _Entry | None:
        found = self._entries.get((key, part))
        if found is None:
            return None
        self._entries.move_to_end((key, part))
        return found[0]

    def any_of(self, key: str) -> _Entry | None:
        part = next(iter(self._parts.get(key, ())), None)
        return None if part is None else self._entries[key, part][0]

    def keep(self, key: str, part: _Part, entry: _Entry, nbytes: int) -> None:
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

    def _remove(self, key: str, part: _Part) -> None:
        found = self._entries.pop((key, part), None)
        if found is not None:
            self.nbytes -= found[1]
            parts = self._parts[key]
            parts.remove(part)
            if not parts:
                del self._parts[key]

    def drop(self, key: str) -> None:
        for part in tuple(self._parts.get(key, ())):
            self._remove(key, part)

    def drop_prefix(self, prefix: str) -> None:
        for key in [key for key in self._parts if key.startswith(prefix)]:
            self.drop(key)


class _Cache:
    """What a `CacheStore` and its views keep together."""

    def __init__(self, max_bytes: int, decoded_bytes: int, folder: CacheFolder | None) -> None:
        self.folder = folder
        self._values, self._chunks = _Lru(max_bytes), _Lru(decoded_bytes)
        self._fetches: list[_Fetch] = []
        self._counts = CacheStatistics()
        self._written: set[str] = set()
        """Keys and prefixes that were written here: another process may put what it read before into the folder."""
        self.lock = threading.Lock()
        _caches.add(self)

    def statistics(self) -> CacheStatistics:
        with self.lock:
            evictions = self._values.evictions + self._chunks.evictions
            evictions += 0 if self.folder is None else self.folder.evictions
            sizes = {"nbytes": self._values.nbytes, "decoded_nbytes": self._chunks.nbytes}
            return replace(self._counts, evictions=evictions, **sizes)

    def count(self, nbytes: int, *, hit: bool) -> None:
        with self.lock:
            now = self._counts
            if hit:
                self._counts = replace(now, hits=now.hits + 1, hit_bytes=now.hit_bytes + nbytes)
            else:
                self._counts = replace(now, misses=now.misses + 1, miss_bytes=now.miss_bytes + nbytes)

    # -- finding ----------------------------------------------------------------------------------

    def find(self, key: str, how: Hashable) -> _Entry | None:
        """A decoded chunk."""
        with self.lock:
            return self._chunks.find(key, how)

    def find_parts(self, key: str, spans: Sequence[Span]) -> _Found | None:
        """Ranges in memory, all of one value."""
        with self.lock:
            if not spans:
                known = self._values.any_of(key)
                return None if known is None or known.size is None else _Found([], *known[1:])
            return _joined(key, spans, lambda span: self._values.find(key, span))

    def load(self, key: str, spans: Sequence[Span]) -> _Found | None:
        """Ranges in the folder, all of one value."""
        folder = self.folder
        if folder is None or not spans or self._was_written(key):
            return None

        def find(span: Span) -> _Entry | None:
            kept = folder.load(key, span)
            return None if kept is None else _Entry(*kept, size=len(kept.value) if span == _WHOLE else None)

        return _joined(key, spans, find)

    def _was_written(self, key: str) -> bool:
        with self.lock:
            if not self._written or "" in self._written:
                return bool(self._written)
            ends = [end + 1 for end, letter in enumerate(key) if letter == "/"]
            return key in self._written or any(key[:end] in self._written for end in ends)

    # -- keeping ----------------------------------------------------------------------------------

    @contextmanager
    def fetching(self, key: str) -> Iterator[_Fetch]:
        """Around a request whose answer may be kept."""
        fetch = _Fetch(key)
        with self.lock:
            self._fetches.append(fetch)
        try:
            yield fetch
        finally:
            with self.lock:
                self._fetches.remove(fetch)

    def keep(self, fetch: _Fetch, key: str, spans: Sequence[Span], found: _Found, *, new: bool) -> None:
        """Keep ranges in memory, and new ones in the folder too."""
        # Without a mark nobody could tell whether two ranges are of one value.
        kept = [(s, p) for s, p in zip(spans, found.parts, strict=True) if s == _WHOLE or found.mark is not None]
        finish = []
        if new and self.folder is not None and not self._was_written(key):
            finish = [self.folder.prepare(key, span, Kept(part, found.mark, found.since)) for span, part in kept]
        with self.lock:
            for put in finish:
                put(fetch.valid)
            if fetch.valid:
                for span, part in kept:
                    self._values.keep(key, span, _Entry(part, *found[1:]), len(part))
        if finish and self.folder is not None:
            self.folder.trim()

    def keep_decoded(self, fetch: _Fetch, key: str, how: Hashable, entry: _Entry) -> None:
        with self.lock:
            if fetch.valid:
                self._chunks.keep(key, how, entry, entry.value.nbytes)

    # -- forgetting -------------------------------------------------------------------------------

    def written(self, name: str) -> None:
        """A key, or all below a prefix, has been written from here."""
        if self.folder is not None:
            with self.lock:
                self._written.add(name)
        if not name or name.endswith("/"):
            self.drop_prefix(name)
        else:
            self.drop(name)

    def drop(self, key: str) -> None:
        """Forget a key, and what is just being fetched of it as well."""
        with self.lock:
            self._void(lambda fetched: fetched == key)
        self.forget(key)

    def forget(self, key: str) -> None:
        """Forget what is kept of a key."""
        with self.lock:
            self._values.drop(key)
            self._chunks.drop(key)
            if self.folder is not None:
                self.folder.drop(key)

    def drop_prefix(self, prefix: str) -> None:
        """Forget all keys below a prefix, and what is just being fetched of them as well."""
        with self.lock:
            self._values.drop_prefix(prefix)
            self._chunks.drop_prefix(prefix)
            self._void(lambda fetched: fetched.startswith(prefix))
            if self.folder is not None:
                self.folder.drop_prefix(prefix)

    def _void(self, concerns: Callable[[str], bool]) -> None:
        for fetch in self._fetches:
            if concerns(fetch.key):
                fetch.valid = False


def _joined(key: str, spans: Sequence[Span], find: Callable[[Span], _Entry | None]) -> _Found | None:
    """Ranges out of the whole value, or each for itself if all are of one value; None if one is not there."""
    whole = find(_WHOLE)
    if whole is not None:
        places = [resolve_span(key, *span, len(whole.value)) for span in spans]
        return _Found([whole.value[start : start + count] for start, count in places], *whole[1:])
    entries: list[_Entry] = []
    for span in spans:
        entry = find(span) if span != _WHOLE else None
        if entry is None or (entries and entry.mark != entries[0].mark):
            return None
        entries.append(entry)
    oldest = min(entries, key=lambda entry: entry.since)
    return _Found([entry.value for entry in entries], *oldest[1:])


_caches: WeakSet[_Cache] = WeakSet()


def _forget_fetches() -> None:
    """In a forked child: the threads that held these locks do not exist here."""
    for cache in _caches:
        cache.lock = threading.Lock()
        cache._fetches.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_fetches)
