"""What a store is: a map from keys to bytes, with the few promises that arrays rely on.

* A put is all or nothing: a reader, or the survivor of a crash, sees the old value or the new one.
* `None` means "there is no such key" and nothing else; every other failure raises.
* `create` and `replace` are conditional writes with exactly one winner.
* `exclusive` serialises read-modify-write of one key.

Keys are relative, `/`-separated and checked by every method, so that nothing leaves the store's root.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Self

from zellige.errors import ReadOnlyError, StoreKeyError
from zellige.types import Buffer, Span

# An empty, `.` or `..` segment anywhere (this covers a leading, trailing or doubled slash), or a NUL.
_BAD_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|\0").search


def check_key(key: str) -> str:
    """The key itself; raises `StoreKeyError` if it could leave the root or is no key at all."""
    if _BAD_KEY(key):
        raise StoreKeyError(
            f"key {key!r}: a key has no empty, '.' or '..' segment, no outer '/' and no NUL; use a relative path",
            key=key,
        )
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself: empty, or a valid key followed by `/`."""
    if prefix:
        if not prefix.endswith("/"):
            raise StoreKeyError(f"prefix {prefix!r} must be empty or end in '/'", key=prefix)
        check_key(prefix[:-1])
    return prefix


class Store(ABC):
    """A map from keys to bytes; see the module's text for the promises."""

    read_only: bool = False

    # -- reading ----------------------------------------------------------------------------------

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The whole value, or None if there is no such key."""

    def borrow(self, key: str) -> Buffer | None:
        """Like `get`, but the buffer may be overwritten by this thread's next call on any store."""
        return self.get(key)

    @abstractmethod
    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key.

        A negative start counts from the end; no length means up to the end. A range that reaches
        beyond the value raises `ShortReadError`.
        """

    def get_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes] | None:
        """Several ranges of one value, or None if there is no such key."""
        found = []
        for start, length in spans:
            part = self.get_range(key, start, length)
            if part is None:
                return None
            found.append(part)
        return found

    @abstractmethod
    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The value with the version that `replace` wants, or None if there is no such key."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """The value's length in bytes, or None if there is no such key."""

    def exists(self, key: str) -> bool:
        """Whether there is such a key."""
        return self.size(key) is not None

    # -- listing ----------------------------------------------------------------------------------

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[str]:
        """All keys that start with the prefix (empty, or ending in `/`), in no particular order."""

    @abstractmethod
    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        """The keys directly below the prefix and the sub-prefixes (ending in `/`), both whole and sorted."""

    # -- writing ----------------------------------------------------------------------------------

    @abstractmethod
    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""

    @abstractmethod
    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""

    @abstractmethod
    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix."""

    # -- locking and views ------------------------------------------------------------------------

    @property
    @abstractmethod
    def identity(self) -> Hashable:
        """Equal for two stores of one process exactly when they hold the same data."""

    def exclusive(self, key: str) -> AbstractContextManager[None]:
        """Hold this while reading, changing and writing back one key."""
        return _KeyLock((self.identity, key))

    @abstractmethod
    def as_read_only(self) -> Self:
        """The same data through a store that refuses to write."""

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} is read-only; open it for writing, e.g. with mode='r+'")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Store):
            return NotImplemented
        return self.identity == other.identity and self.read_only == other.read_only

    def __hash__(self) -> int:
        return hash((self.identity, self.read_only))


class _KeyLock:
    """A lock per key and process, kept only while somebody holds it or waits for it."""

    __slots__ = ("name", "lock")

    _guard = threading.Lock()
    _locks: dict[Hashable, tuple[threading.RLock, int]] = {}  # type: ignore[valid-type]  # noqa: RUF012

    def __init__(self, name: Hashable) -> None:
        self.name = name

    def __enter__(self) -> None:
        with self._guard:
            lock, users = self._locks.get(self.name) or (threading.RLock(), 0)
            self._locks[self.name] = (lock, users + 1)
        self.lock = lock
        lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self.lock.release()
        with self._guard:
            lock, users = self._locks.pop(self.name)
            if users > 1:
                self._locks[self.name] = (lock, users - 1)
