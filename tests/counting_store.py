"""A store that counts what is asked of it, and can be told to fail, around any other store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

from zellige.stores import MemoryStore, Store
from zellige.stores.base import KeyLock
from zellige.types import Buffer, Span

READS = ("get", "borrow", "get_range", "get_ranges", "get_tagged", "get_versioned")
WRITES = ("put", "put_parts", "create", "replace", "delete", "delete_prefix")


@dataclass(frozen=True)
class Call:
    """One request: the method, its key or prefix, and how many bytes came or went."""

    method: str
    key: str
    nbytes: int = 0
    thread: int = 0


class CountingStore(Store):
    """Passes everything on to another store and keeps a log of it.

    `before`, if given, is called with the method's name and key before each request, and may raise.
    A view made by `as_read_only` shares the log.
    """

    def __init__(self, inner: Store | None = None, before: Callable[[str, str], None] | None = None) -> None:
        self.inner = MemoryStore() if inner is None else inner
        self.read_only = self.inner.read_only
        self.before = before
        self.calls: list[Call] = []

    # -- what was asked ---------------------------------------------------------------------------

    def reset(self) -> Self:
        """Forget what was counted so far."""
        self.calls.clear()
        return self

    def made(self, *methods: str) -> list[Call]:
        """The calls of these methods, or all, in order."""
        return [call for call in self.calls if not methods or call.method in methods]

    def keys(self, *methods: str) -> list[str]:
        """The keys that were asked for, in order and with repetitions."""
        return [call.key for call in self.made(*methods)]

    def counts(self) -> dict[str, int]:
        """How often each method was called."""
        return dict(Counter(call.method for call in self.calls))

    def nbytes(self, *methods: str) -> int:
        """How many bytes went through these methods."""
        return sum(call.nbytes for call in self.made(*methods))

    def _pass_on(self, method: str, key: str, *more: Any) -> Any:
        if self.before is not None:
            self.before(method, key)
        found = None
        try:
            found = getattr(self.inner, method)(key, *more)
            return found
        finally:
            self.calls.append(Call(method, key, _moved(method, found, more), threading.get_ident()))

    # -- the store --------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        return self._pass_on("get", key)

    def borrow(self, key: str) -> Buffer | None:
        return self._pass_on("borrow", key)

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        return self._pass_on("get_range", key, start, length)

    def get_ranges(self, key: str, spans: Sequence[Span]) -> Any:
        return self._pass_on("get_ranges", key, spans)

    def get_tagged(self, key: str, spans: Sequence[Span]) -> tuple[Sequence[bytes], object] | None:
        return self._pass_on("get_tagged", key, spans)

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        return self._pass_on("get_versioned", key)

    def size(self, key: str) -> int | None:
        return self._pass_on("size", key)

    def list(self, prefix: str = "") -> Iterator[str]:
        return self._pass_on("list", prefix)

    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        return self._pass_on("list_dir", prefix)

    def put(self, key: str, value: Buffer) -> None:
        self._pass_on("put", key, value)

    def put_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        self._pass_on("put_parts", key, parts)

    def create(self, key: str, value: Buffer) -> bool:
        return self._pass_on("create", key, value)

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        return self._pass_on("replace", key, value, version)

    def delete(self, key: str) -> None:
        self._pass_on("delete", key)

    def delete_prefix(self, prefix: str) -> None:
        self._pass_on("delete_prefix", prefix)

    @property
    def identity(self) -> Hashable:
        return self.inner.identity

    def exclusive(self, key: str) -> AbstractContextManager[object]:
        return self.inner.exclusive(key)

    def exclusive_here(self, key: str) -> KeyLock:
        return self.inner.exclusive_here(key)

    def as_read_only(self) -> Self:
        view = type(self)(self.inner.as_read_only(), self.before)
        view.calls = self.calls
        return view

    def __repr__(self) -> str:
        return f"CountingStore({self.inner!r})"


def _moved(method: str, found: Any, given: tuple[Any, ...]) -> int:
    """How many bytes a request has moved."""
    if method in READS:
        value = found[0] if found is not None and method in ("get_tagged", "get_versioned") else found
    else:
        value = given[0] if method in ("put", "put_parts") or (found and method in WRITES) else None
    parts = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return sum(map(len, parts))


def contents(store: Store) -> dict[str, bytes | None]:
    """All keys and values of a store."""
    return {key: store.get(key) for key in sorted(store.list())}
