"""What stores over another library's stores have in common: conditions, ranges and errors.

Other libraries have no conditional writes, or none that say which writer won, so a lock keeps the threads of this
process apart. They differ in their answers to a range beyond the end, so the length of every answer is checked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from zellige.stores.base import (
    ABSENT,
    ContentTag,
    Missing,
    Store,
    Tag,
    Value,
    check_key,
    check_keys,
    joined,
    resolve_span,
)
from zellige.types import Buffer, Encoded, Span

CONCURRENCY = 64
"""How many requests are in flight at most."""


class ForeignStore(Store):
    """A store over that of another library.

    A write is as atomic as that library's. A conditional write has one winner among the threads of this process.
    Between processes the creation of a key has one where the library has conditional writes; else the stored value is
    compared just before the write.
    """

    measured: bool = False
    """Whether a range must be compared with the size before it is requested."""

    # -- what each library does -------------------------------------------------------------------

    @abstractmethod
    def _whole(self, key: str) -> Buffer | None:
        """Return a whole value; None if it is missing."""

    @abstractmethod
    def _ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes] | None:
        """Return so many bytes from each start, or the last ones where the start is -1; None if it is missing."""

    @abstractmethod
    def _size(self, key: str) -> int | None:
        """Return the length of a value; None if it is missing."""

    @abstractmethod
    def _put(self, key: str, value: bytes) -> None:
        """Store a value."""

    @abstractmethod
    def _create(self, key: str, value: bytes) -> bool:
        """Store a value for a key that was missing a moment ago; False if another writer was faster."""

    @abstractmethod
    def _delete(self, keys: Sequence[str]) -> None:
        """Remove keys, which may be gone."""

    # -- reading ----------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read the whole value, or ranges of it, each of the requested length; see `Store.read`.

        Only a whole value has a tag, which is its content.
        """
        check_key(key)
        if spans is None:
            whole = self._whole(key)
            return None if whole is None else Value((whole,), len(whole), ContentTag(0, whole))
        size, ranges = None, None if self.measured else _unmeasured(spans)
        if ranges is None:
            size = self._size(key)
            if size is None:
                return None
            ranges = [resolve_span(key, *span, size) for span in spans]
        wanted = [(start, length) for start, length in ranges if length]
        try:
            parts = self._ranges(key, wanted) if wanted else ()
        except OSError:
            self._check_spans(key, spans)  # some file systems raise for a range beyond the end
            raise
        if parts is None:
            return None
        for part, (_, length) in zip(parts, wanted, strict=True):
            if len(part) != length:
                self._check_spans(key, spans)
                raise OSError(f"key {key!r} in {self!r}: asked for {length} bytes of it, and got {len(part)}")
        rest = iter(parts)
        return Value([next(rest) if length else b"" for _, length in ranges], size, None)

    def _check_spans(self, key: str, spans: Sequence[Span]) -> None:
        """Raise `ShortReadError` if one of them reaches beyond the value."""
        size = self._size(key)
        if size is not None:
            for span in spans:
                resolve_span(key, *span, size)

    # -- writing ----------------------------------------------------------------------------------

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, maybe on a condition; see `Store.write`."""
        self.check_writable()
        check_key(key)
        frozen = joined(value)
        with self._writing(key):
            if if_tag is ABSENT:
                return not self.exists(key) and self._create(key, frozen)
            if if_tag is not None:
                found = self.read(key)
                if found is None or found.tag != if_tag:
                    return False
            self._put(key, frozen)
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""
        self.check_writable()
        if check_keys(keys):
            self._delete(keys)

    def _failed(self, error: Exception, key: str) -> OSError:
        """Return an error of the other library as an OSError, of the same class if it is one, with key and cause."""
        text = f"key {key!r} in {self!r}: "
        if isinstance(error, OSError) and error.errno is not None:
            return OSError(error.errno, text + (error.strerror or str(error)))
        kinds = (kind for kind in type(error).__mro__ if issubclass(kind, OSError) and kind.__module__ == "builtins")
        return next(kinds, OSError)(f"{text}{type(error).__name__}: {error}")


def _unmeasured(spans: Sequence[Span]) -> list[tuple[int, int]] | None:
    """Return the ranges as (start, length), see `_ranges`; None if that takes the size."""
    ranges = []
    for start, length in spans:
        if start >= 0 and length:
            ranges.append((start, length))
        elif start < 0 and (length is None or length == -start):
            ranges.append((-1, -start))
        else:
            return None
    return ranges or None
