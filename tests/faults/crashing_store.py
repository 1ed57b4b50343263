"""A store that dies, or fails, at a call that changes something; and what tests of crashes and races share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from zellige.stores import MemoryStore, Store, base, file_locks
from zellige.stores.base import KeyLock
from zellige.types import Buffer, Span

LONG = bool(os.environ.get("ZELLIGE_LONG"))
"""Whether the long form of the tests is asked for (`make soak`)."""

Hook = Callable[[str, str], None]
"""Called with the method's name and the key before each call that changes something; may raise."""


class Killed(BaseException):
    """The process is dead: whoever catches this cannot do anything any more."""


class CrashingStore(Store):
    """Passes everything on to another store until the call number `at` that would change something.

    That call raises `Killed` instead, and so does every call after it, reading ones too. With `error` it raises that
    instead, once, or with `forever` from then on, and reading goes on. `before` is called before each call that
    changes something; `changes` lists those that were made.
    """

    near: ClassVar[bool] = True  # so that rows of small chunks are written together, as on the stores inside

    def __init__(
        self,
        inner: Store | None = None,
        at: int | None = None,
        error: BaseException | None = None,
        *,
        forever: bool = False,
        before: Hook | None = None,
    ) -> None:
        self.inner = MemoryStore() if inner is None else inner
        self.read_only, self.renames = self.inner.read_only, self.inner.renames
        self.at, self.error, self.forever, self.before = at, error, forever, before
        self.tried = 0
        self.dead = False
        self.changes: list[tuple[str, str]] = []
        self._counting = threading.Lock()

    def arm(self, at: int | None, error: BaseException | None = None, *, forever: bool = False) -> None:
        """Die, or fail, at the call with this number, counted from now on; None for never."""
        self.at, self.error, self.forever, self.tried = at, error, forever, 0

    def keys(self, *methods: str) -> list[str]:
        """The keys that were changed, in order, by these methods or by any."""
        return [key for method, key in self.changes if not methods or method in methods]

    def _read(self, method: str, *given: Any) -> Any:
        if self.dead:
            raise Killed
        return getattr(self.inner, method)(*given)

    def _change(self, method: str, *given: Any) -> Any:
        if self.before is not None:
            self.before(method, given[0])
        with self._counting:
            if self.dead:
                raise Killed
            self.tried += 1
            now = self.at is not None and (self.tried >= self.at if self.forever else self.tried == self.at)
            if now and self.error is None:
                self.dead = True
                raise Killed
        if now and self.error is not None:
            raise self.error
        found = getattr(self.inner, method)(*given)
        self.changes.append((method, given[0]))
        return found

    # -- the store --------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        return self._read("get", key)

    def borrow(self, key: str) -> Buffer | None:
        return self._read("borrow", key)

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        return self._read("get_range", key, start, length)

    def get_ranges(self, key: str, spans: Sequence[Span]) -> Any:
        return self._read("get_ranges", key, spans)

    def get_tagged(self, key: str, spans: Sequence[Span]) -> tuple[Sequence[bytes], object] | None:
        return self._read("get_tagged", key, spans)

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        return self._read("get_versioned", key)

    def size(self, key: str) -> int | None:
        return self._read("size", key)

    def list(self, prefix: str = "") -> Iterator[str]:
        return self._read("list", prefix)

    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        return self._read("list_dir", prefix)

    def put(self, key: str, value: Buffer) -> None:
        self._change("put", key, value)

    def put_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        self._change("put_parts", key, parts)

    def create(self, key: str, value: Buffer) -> bool:
        return self._change("create", key, value)

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        return self._change("replace", key, value, version)

    def delete(self, key: str) -> None:
        self._change("delete", key)

    def delete_prefix(self, prefix: str) -> None:
        # Key by key: a process can die after any of them.
        for key in sorted(self._read("list", prefix)):
            self._change("delete", key)
        self._change("delete_prefix", prefix)  # for the directories

    def rename_prefix(self, source: str, dest: str) -> bool:
        return self._change("rename_prefix", source, dest)

    @property
    def identity(self) -> Hashable:
        return self.inner.identity

    def exclusive(self, key: str) -> AbstractContextManager[object]:
        return self._read("exclusive", key)

    def exclusive_here(self, key: str) -> KeyLock:
        return self._read("exclusive_here", key)

    def as_read_only(self) -> Self:
        return type(self)(self.inner.as_read_only())

    def __repr__(self) -> str:
        return f"CrashingStore({self.inner!r})"


# -- what tests share -----------------------------------------------------------------------------


def counted(shape: tuple[int, ...], dtype: Any = "int32", start: int = 1) -> np.ndarray:
    """Values that tell their position."""
    return np.arange(start, start + prod(shape)).reshape(shape).astype(dtype)


def held_locks() -> list[object]:
    """The locks of keys that somebody holds, in this process and against others."""
    keys = [known() for known in list(base._locks.values())]
    between = [known() for known in list(file_locks._file_locks.values())]
    held = [lock for lock in keys if lock is not None and not repr(lock).startswith("<unlocked")]
    return held + [lock for lock in between if lock is not None and not lock.closed]
