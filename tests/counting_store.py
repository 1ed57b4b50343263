"""A store that counts what is asked of it, and can be told to fail, around any other store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self, TypeVar

from zellige.stores import MemoryStore, Store
from zellige.stores.base import ABSENT, Listing, Missing, Tag, Traits, Value, joined
from zellige.types import Encoded, Span

T = TypeVar("T")

READS = ("get", "get_ranges", "size")
WRITES = ("put", "create", "replace", "delete")


def kind_of_read(spans: Sequence[Span] | None) -> str:
    """What a read is called here: for the whole value, for ranges of it, or for its size alone."""
    return "get" if spans is None else "get_ranges" if spans else "size"


def kind_of_write(if_tag: Tag | Missing | None) -> str:
    """What a write is called here, by its condition."""
    return "put" if if_tag is None else "create" if if_tag is ABSENT else "replace"


@dataclass(frozen=True)
class Call:
    """One request: its kind, its key or prefix, and how many bytes came or went."""

    method: str
    key: str
    nbytes: int = 0
    thread: int = 0


class CountingStore(Store):
    """Passes everything on to another store and keeps a log of it.

    Requests have the names of what they are for: `get`, `get_ranges`, `size`, `put`, `create`, `replace`, `list`,
    `list_dir`, and `delete` for each key. `before`, if given, is called with the name and the key before each request,
    and may raise.
    A view made by `as_read_only` shares the log.
    """

    def __init__(self, inner: Store | None = None, before: Callable[[str, str], None] | None = None) -> None:
        self.inner = MemoryStore() if inner is None else inner
        self.traits = Traits(read_only=self.inner.read_only)
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

    def _pass_on(self, method: str, key: str, ask: Callable[[], T], moved: Callable[[T], int] = lambda _: 0) -> T:
        if self.before is not None:
            self.before(method, key)
        nbytes = 0
        try:
            found = ask()
            nbytes = moved(found)
            return found
        finally:
            self.calls.append(Call(method, key, nbytes, threading.get_ident()))

    # -- the store --------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        def moved(found: Value | None) -> int:
            return 0 if found is None else sum(map(len, found.parts))

        return self._pass_on(kind_of_read(spans), key, lambda: self.inner.read(key, spans), moved)

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        def moved(done: bool) -> int:
            return len(joined(value)) if done else 0

        return self._pass_on(kind_of_write(if_tag), key, lambda: self.inner.write(key, value, if_tag), moved)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._pass_on("delete", key, lambda key=key: self.inner.delete([key]))

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        method = "list" if recursive else "list_dir"
        return self._pass_on(method, prefix, lambda: self.inner.list(prefix, recursive=recursive))

    @property
    def identity(self) -> Hashable:
        return self.inner.identity

    def lock(self, key: str) -> AbstractContextManager[object]:
        return self.inner.lock(key)

    def name(self, key: str) -> Hashable:
        return self.inner.name(key)

    def as_read_only(self) -> Self:
        view = type(self)(self.inner.as_read_only(), self.before)
        view.calls = self.calls
        return view

    def __repr__(self) -> str:
        return f"CountingStore({self.inner!r})"


def contents(store: Store) -> dict[str, bytes | None]:
    """All keys and values of a store."""
    return {key: store.get(key) for key in sorted(store.list())}
