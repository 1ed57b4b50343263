"""A store that dies, or fails, at a call that changes something; and what tests of crashes and races share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, Self, TypeVar

import numpy as np

from counting_store import kind_of_write
from zellige.stores import MemoryStore, Store, locks
from zellige.stores.abilities import Folders
from zellige.stores.base import Listing, Missing, Tag, Traits, Value
from zellige.stores.wrappers import FoldersAround
from zellige.types import Encoded, Span

T = TypeVar("T")

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
        self.traits = Traits(read_only=self.inner.read_only)
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

    def _look(self) -> None:
        if self.dead:
            raise Killed

    def change(self, method: str, key: str, make: Callable[[], T]) -> T:
        """Make a change, unless the time to die or to fail has come."""
        if self.before is not None:
            self.before(method, key)
        with self._counting:
            self._look()
            self.tried += 1
            now = self.at is not None and (self.tried >= self.at if self.forever else self.tried == self.at)
            if now and self.error is None:
                self.dead = True
                raise Killed
        if now and self.error is not None:
            raise self.error
        found = make()
        self.changes.append((method, key))
        return found

    # -- the store --------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        self._look()
        return self.inner.read(key, spans)

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        return self.change(kind_of_write(if_tag), key, lambda: self.inner.write(key, value, if_tag))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:  # a process can die after any of them
            self.change("delete", key, lambda key=key: self.inner.delete([key]))

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        self._look()
        return self.inner.list(prefix, recursive=recursive)

    def ability(self, kind: type[T]) -> T | None:
        found = self.inner.ability(kind)
        return CrashingFolders(self, found) if found is not None and kind is Folders else None

    @property
    def identity(self) -> Hashable:
        return self.inner.identity

    def lock(self, key: str) -> AbstractContextManager[object]:
        self._look()
        return self.inner.lock(key)

    def name(self, key: str) -> Hashable:
        self._look()
        return self.inner.name(key)

    def as_read_only(self) -> Self:
        return type(self)(self.inner.as_read_only())

    def __repr__(self) -> str:
        return f"CrashingStore({self.inner!r})"


class CrashingFolders(FoldersAround):
    """The directories of a store that dies; keys are removed one by one."""

    def __init__(self, store: CrashingStore, inside: Folders) -> None:
        super().__init__(inside)
        self._store = store

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        self._store.delete(keys)

    def remove_tree(self, prefix: str) -> None:
        self._store.delete(sorted(self._store.list(prefix)))
        self._store.change("delete_prefix", prefix, lambda: self._inside.remove_tree(prefix))  # for the directories

    def detach(self, prefix: str) -> bool:
        return False

    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        self._store._look()

    def rename(self, source: str, dest: str) -> bool:
        return self._store.change("rename_prefix", source, lambda: self._inside.rename(source, dest))


# -- what tests share -----------------------------------------------------------------------------


def counted(shape: tuple[int, ...], dtype: Any = "int32", start: int = 1) -> np.ndarray:
    """Values that tell their position."""
    return np.arange(start, start + prod(shape)).reshape(shape).astype(dtype)


def held_locks() -> list[object]:
    """The locks of keys that somebody holds, in this process and against others."""
    keys = [known() for known in list(locks._locks.values())]
    between = [known() for known in list(locks._file_locks.values())]
    held = [lock for lock in keys if lock is not None and not repr(lock).startswith("<unlocked")]
    return held + [lock for lock in between if lock is not None and not lock.closed]
