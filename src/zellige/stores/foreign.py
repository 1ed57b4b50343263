"""What stores over another library's stores have in common: conditions, ranges and errors.

Other libraries have no conditional writes, or none that tell who won, so that the threads of this process are kept
apart by a lock; and they differ in what they answer to a range beyond the end, so that every answer is measured.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from zellige.stores.base import KeyLock, Store, check_key, check_prefix, digest, resolve_span
from zellige.types import Buffer, Span


class ForeignStore(Store):
    """A store over that of another library.

    A put is as much all or nothing as that library's. `create` and `replace` have one winner among the threads of this
    process. Between processes `create` has one where the library can write on condition; `replace` compares what
    is stored with what was read, just before it writes.
    """

    concurrency: int | None = 64
    measured: bool = False
    """Whether a range must be compared with the size before it is asked for."""

    def __init__(self) -> None:
        self._writes: dict[str, int] = {}
        """How often those keys were written whose version somebody has asked for."""

    # -- what each library does -------------------------------------------------------------------

    @abstractmethod
    def _ranges(self, key: str, places: Sequence[tuple[int, int]]) -> Sequence[bytes] | None:
        """So many bytes from each start, or the last ones of the value where the start is -1; None if it is missing."""

    @abstractmethod
    def _put(self, key: str, value: bytes) -> None:
        """Store a value."""

    @abstractmethod
    def _create(self, key: str, value: bytes) -> bool:
        """Store a value for a key that was missing a moment ago; False if somebody else was quicker."""

    @abstractmethod
    def _delete(self, keys: Sequence[str]) -> None:
        """Remove keys, which may be gone."""

    # -- reading ----------------------------------------------------------------------------------

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key; see `Store.get_range`."""
        found = self.get_ranges(key, [(start, length)])
        return None if found is None else found[0]

    def get_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes] | None:
        """Several ranges of one value, or None if there is no such key; each has the length that was asked for."""
        check_key(key)
        places = None if self.measured else _unmeasured(spans)
        if places is None:
            size = self.size(key)
            if size is None:
                return None
            places = [resolve_span(key, *span, size) for span in spans]
        wanted = [place for place in places if place[1]]
        try:
            parts = self._ranges(key, wanted) if wanted else ()
        except OSError:
            self._check_spans(key, spans)  # there are those who answer to a range beyond the end by an error
            raise
        if parts is None:
            return None
        for part, (_, length) in zip(parts, wanted, strict=True):
            if len(part) != length:
                self._check_spans(key, spans)
                raise OSError(f"key {key!r} in {self!r}: asked for {length} bytes of it, and got {len(part)}")
        rest = iter(parts)
        return [next(rest) if length else b"" for _, length in places]

    def _check_spans(self, key: str, spans: Sequence[Span]) -> None:
        """Raise `ShortReadError` if one of them reaches beyond the value."""
        size = self.size(key)
        if size is not None:
            for span in spans:
                resolve_span(key, *span, size)

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The value with its version, which follows from the content and the writes by this store; None if missing."""
        check_key(key)
        with self._writing(key):
            count = self._writes.setdefault(key, 0)
            value = self.get(key)
            return None if value is None else (value, f"{count:x}-{digest(value)}")

    # -- writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: Buffer) -> None:
        """Store the value."""
        self._check_writable()
        check_key(key)
        frozen = memoryview(value).tobytes()
        with self._writing(key):
            self._count(key)
            self._put(key, frozen)

    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        self._check_writable()
        check_key(key)
        frozen = memoryview(value).tobytes()
        with self._writing(key):
            return not self.exists(key) and self._create(key, frozen)

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""
        self._check_writable()
        check_key(key)
        frozen = memoryview(value).tobytes()
        with self._writing(key):
            found = self.get_versioned(key)
            if found is None or found[1] != version:
                return False
            self._count(key)
            self._put(key, frozen)
        return True

    def _count(self, key: str) -> None:
        if key in self._writes:
            self._writes[key] += 1

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none."""
        self._check_writable()
        check_key(key)
        with self._writing(key):
            self._delete([key])

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix."""
        self._check_writable()
        self._delete(list(self.list(check_prefix(prefix))))

    def _writing(self, key: str) -> KeyLock:
        # Not the lock of `exclusive`: a put never waits for somebody's read-modify-write.
        return KeyLock(("writing", self.identity, key))

    def _failed(self, error: Exception, key: str) -> OSError:
        """The failure of the other library, as an OSError that names key and cause; a PermissionError stays one."""
        text = f"key {key!r} in {self!r}: "
        if isinstance(error, OSError) and error.errno is not None:
            return OSError(error.errno, text + (error.strerror or str(error)))
        kinds = (kind for kind in type(error).__mro__ if issubclass(kind, OSError) and kind.__module__ == "builtins")
        return next(kinds, OSError)(f"{text}{type(error).__name__}: {error}")


def _unmeasured(spans: Sequence[Span]) -> list[tuple[int, int]] | None:
    """The ranges as places, if that can be told without knowing the size."""
    places = []
    for start, length in spans:
        if start >= 0 and length:
            places.append((start, length))
        elif start < 0 and (length is None or length == -start):
            places.append((-1, -start))
        else:
            return None
    return places or None
