"""Stores around other stores: pass everything on, and count requests or shorten keys on the way.

Locks, conditional updates, batches and durability are those of the store inside, so that a wrapper and what it
wraps may be used side by side.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

from zellige.errors import ConflictError, ShortReadError
from zellige.stores.base import Joined, KeyLock, Obstacle, Store, check_key, check_prefix
from zellige.types import AnyArray, Buffer, Durability, Encoded, Span

T = TypeVar("T")


KEY_WRITES = frozenset({"put", "put_parts", "update", "create", "replace", "delete"})
"""The methods that may change the value of one key."""


class WrapperStore(Store):
    """A store that passes everything on to another one; a base for those that do something on the way.

    All requests for a key or a prefix go through `_ask`, which is the one method to override.

    >>> from zellige.storage import MemoryStore
    >>> store = WrapperStore(MemoryStore({"a": b"value"}))
    >>> store.get("a"), store == store.inner
    (b'value', True)
    """

    inner: Store
    """The store inside."""

    def __init__(self, inner: Store) -> None:
        if not isinstance(inner, Store):
            raise TypeError(f"{type(self).__name__} wraps a Store, found {inner!r}; make one with zellige.storage")
        self._wrap(inner)

    def _wrap(self, inner: Store) -> None:
        self.inner = inner
        self.read_only, self.durability = inner.read_only, inner.durability
        self.concurrency, self.gap = inner.concurrency, inner.gap
        self.keeps_decoded, self.renames = inner.keeps_decoded, inner.renames
        self.near, self.optimistic, self.transactional = inner.near, inner.optimistic, inner.transactional

    def _ask(self, method: str, key: str, *more: Any) -> Any:
        """Pass one request on."""
        return getattr(self.inner, method)(key, *more)

    def _around(self, inner: Store) -> Self:
        """The same wrapper around a view of what it wraps; what it keeps is shared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.inner, other.read_only, other.durability = inner, inner.read_only, inner.durability
        return other

    # -- reading ----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """The whole value, or None if there is no such key."""
        found: bytes | None = self._ask("get", key)
        return found

    def borrow(self, key: str) -> Buffer | None:
        """Like `get`, but the buffer may be overwritten by this thread's next call on any store."""
        found: Buffer | None = self._ask("borrow", key)
        return found

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key; see `Store.get_range`."""
        found: bytes | None = self._ask("get_range", key, start, length)
        return found

    def get_ranges(self, key: str, spans: Sequence[Span]) -> list[bytes] | None:
        """Several ranges of one value, or None if there is no such key."""
        found: list[bytes] | None = self._ask("get_ranges", key, spans)
        return found

    def get_tagged(self, key: str, spans: Sequence[Span]) -> tuple[Sequence[bytes], object] | None:
        """Several ranges with a tag that differs once the value has been written again."""
        found: tuple[Sequence[bytes], object] | None = self._ask("get_tagged", key, spans)
        return found

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The value with the version that `replace` wants, or None if there is no such key."""
        found: tuple[bytes, str] | None = self._ask("get_versioned", key)
        return found

    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        """What `decode` makes of a value, maybe kept by the store inside; None if it is missing."""
        found: AnyArray | None = self._ask("decoded", key, how, decode)
        return found

    def size(self, key: str) -> int | None:
        """The value's length in bytes, or None if there is no such key."""
        found: int | None = self._ask("size", key)
        return found

    def exists(self, key: str) -> bool:
        """Whether there is such a key."""
        found: bool = self._ask("exists", key)
        return found

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[str]:
        """All keys that start with the prefix, in no particular order."""
        found: Iterator[str] = self._ask("list", prefix)
        return found

    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        """The keys directly below the prefix and the sub-prefixes, both whole and sorted."""
        found: tuple[Sequence[str], Sequence[str]] = self._ask("list_dir", prefix)
        return found

    def obstacles(self, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
        """What lies in the place of keys and is no value; see `Store.obstacles`."""
        found: Iterator[tuple[str, Obstacle]] = self._ask("obstacles", prefix)
        return found

    # -- writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""
        self._ask("put", key, value)

    def put_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store a value given in parts, all or nothing."""
        self._ask("put_parts", key, parts)

    def update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> None:
        """Read a value, change it and write it back in the way of the store inside."""
        self._ask("update", key, change)

    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        made: bool = self._ask("create", key, value)
        return made

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""
        done: bool = self._ask("replace", key, value, version)
        return done

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none."""
        self._ask("delete", key)

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove several keys, all of which start with a prefix."""
        self._ask("delete_below", prefix, keys)

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix."""
        self._ask("delete_prefix", prefix)

    def detach(self, prefix: str) -> bool:
        """Remove a prefix that is only a link to another, which stays; False, and nothing done, if it is none."""
        done: bool = self._ask("detach", prefix)
        return done

    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        """Remove the prefix and those below it that hold nothing; see `Store.prune`."""
        self._ask("prune", prefix, owned)

    def rename_prefix(self, source: str, dest: str) -> bool:
        """Move all keys below a prefix to another that has none, at once; False, and nothing done, if it cannot."""
        done: bool = self._ask("rename_prefix", source, dest)
        return done

    # -- locking and views ------------------------------------------------------------------------

    @property
    def identity(self) -> Hashable:
        """That of the store inside: it is the same data."""
        return self.inner.identity

    def exclusive(self, key: str) -> AbstractContextManager[object]:
        """The lock of the store inside."""
        return self.inner.exclusive(key)

    def exclusive_here(self, key: str) -> KeyLock:
        """The lock of the store inside."""
        return self.inner.exclusive_here(key)

    def batch(self) -> AbstractContextManager[Joined]:
        """That of the store inside."""
        return self.inner.batch()

    def with_durability(self, durability: Durability) -> Self:
        """The same data through a store whose writes survive this."""
        return self._around(self.inner.with_durability(durability))

    def fork(self) -> Self:
        """The same wrapper around a fork of what it wraps."""
        fork = self.inner.fork()
        return self if fork is self.inner else self._around(fork)

    def merge(self, forks: Iterable[Any]) -> None:
        """Take over what was written to forks."""
        self.inner.merge([fork.inner for fork in forks])

    def as_read_only(self) -> Self:
        """The same data through a store that refuses to write."""
        return self._around(self.inner.as_read_only())

    def close(self) -> None:
        """Release what the store inside holds."""
        self.inner.close()

    def __exit__(self, *exc: object) -> None:
        self.inner.__exit__(*exc)  # which may drop what was written before an exception

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


class FencedStore(WrapperStore):
    """An object store that is written to by the owner of a lease, and not by one that has lost it.

    Who was stopped for long between looking at its lease and writing would write over what the next owner has written.
    So nothing is written without a condition: a write fails where another one has written meanwhile, and the lease is
    looked at again before the next attempt. An object cannot be removed on condition: there a moment remains.

    Parameters
    ----------
    inner
        The store, whose `replace` and `create` are what keeps others out.
    check
        Raises `ConflictError` if the lease is lost; see `Lease.check`.

    """

    def __init__(self, inner: Store, check: Callable[[], None]) -> None:
        super().__init__(inner)
        self._check = check

    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""
        while not self.create(key, value):
            found = self.inner.get_versioned(key)
            if found is not None and self.replace(key, value, found[1]):
                return

    def put_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store a value given in parts, all or nothing."""
        self.put(key, b"".join(parts))

    def update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> None:
        """Read a value, change it and write it back if nobody else has meanwhile; else once more."""
        made: list[Encoded] = []

        def checked(old: Buffer | None) -> Encoded | None:
            new = change(old)
            made[:] = [new] if old is None and new is not None else []
            self._check()
            return new

        self.inner.update(key, checked)
        for value in made:
            self._check_made(key, value)

    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        self._check()
        if not self.inner.create(key, value):
            return False
        self._check_made(key, value)
        return True

    def _check_made(self, key: str, value: Encoded) -> None:
        """Look at the lease after a key was made where there was none: nobody else would remove it."""
        try:
            self._check()
        except ConflictError:
            if self.inner.get(key) == (value if isinstance(value, Buffer) else b"".join(value)):
                self.inner.delete(key)
            raise

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""
        self._check()
        return self.inner.replace(key, value, version)

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none."""
        self._check_writable()
        if self.inner.exists(key):
            self._check()
            self.inner.delete(key)


class PrefixStore(WrapperStore):
    """The keys below a prefix of another store, without that prefix.

    >>> from zellige.storage import MemoryStore
    >>> outer = MemoryStore({"a/b/c": b"value", "a/x": b"other"})
    >>> store = PrefixStore(outer, "a/b")
    >>> store.get("c"), list(store.list())
    (b'value', ['c'])
    """

    def __init__(self, inner: Store, prefix: str) -> None:
        super().__init__(inner)
        self.prefix = check_key(prefix.removesuffix("/")) + "/"
        """How the keys of the other store begin; ends in `/`."""

    def _ask(self, method: str, key: str, *more: Any) -> Any:
        if method in KEY_WRITES:
            self._check_writable()
        try:
            return super()._ask(method, self.prefix + check_key(key), *more)
        except ShortReadError as error:
            text = str(error).replace(repr(self.prefix + key), repr(key))
            raise ShortReadError(text, **vars(error) | {"key": key}) from error

    def borrow_many(self, keys: Sequence[str], into: memoryview | None = None) -> list[Buffer | None]:
        """Several small values, all valid until this thread's next call on any store; see `Store.borrow_many`."""
        return self.inner.borrow_many([self.prefix + check_key(key) for key in keys], into)

    def list(self, prefix: str = "") -> Iterator[str]:
        """All keys that start with the prefix, in no particular order."""
        return self._below(self.inner.list(self.prefix + check_prefix(prefix)))

    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        """The keys directly below the prefix and the sub-prefixes, both whole and sorted."""
        keys, prefixes = self.inner.list_dir(self.prefix + check_prefix(prefix))
        return list(self._below(keys)), list(self._below(prefixes))

    def obstacles(self, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
        """What lies in the place of keys and is no value; see `Store.obstacles`."""
        found = self.inner.obstacles(self.prefix + check_prefix(prefix))
        return ((key[len(self.prefix) :], what) for key, what in found)

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove several keys, all of which start with a prefix."""
        inner = [self.prefix + check_key(key) for key in keys]
        self.inner.delete_below(self.prefix + check_prefix(prefix), inner)

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix."""
        self._check_writable()
        self.inner.delete_prefix(self.prefix + check_prefix(prefix))

    def detach(self, prefix: str) -> bool:
        """Remove a prefix that is only a link to another, which stays; False, and nothing done, if it is none."""
        return self.inner.detach(self.prefix + check_prefix(prefix))

    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        """Remove the prefix and those below it that hold nothing; see `Store.prune`."""
        self.inner.prune(self.prefix + check_prefix(prefix), owned)

    def rename_prefix(self, source: str, dest: str) -> bool:
        """Move all keys below a prefix to another that has none, at once; False, and nothing done, if it cannot."""
        self._check_writable()
        return self.inner.rename_prefix(self.prefix + check_prefix(source), self.prefix + check_prefix(dest))

    def _below(self, keys: Sequence[str] | Iterator[str]) -> Iterator[str]:
        return (key[len(self.prefix) :] for key in keys)

    @property
    def identity(self) -> Hashable:
        """The other store and the prefix; locks are those of the other store."""
        return "prefix", self.inner.identity, self.prefix

    def exclusive(self, key: str) -> AbstractContextManager[object]:
        """The lock that the other store has for its own key."""
        return self.inner.exclusive(self.prefix + check_key(key))

    def exclusive_here(self, key: str) -> KeyLock:
        """The lock that the other store has for its own key."""
        return self.inner.exclusive_here(self.prefix + check_key(key))

    def __repr__(self) -> str:
        return f"PrefixStore({self.inner!r}, {self.prefix[:-1]!r})"


class LoggingStore(WrapperStore):
    """Counts the requests that a store gets, and logs each of them.

    `log` is called with a line for each request; by default it is the debug level of the logger `zellige.stores`.
    Views and arrays of one LoggingStore share its counts; a pickle begins anew.

    >>> from zellige.storage import MemoryStore
    >>> store = LoggingStore(MemoryStore({"a": b"value"}), log=print)
    >>> _ = store.get_range("a", 0, 3)
    get_range 'a' 0 3: 3 bytes
    >>> store.counter["get_range"], store.nbytes["get_range"]
    (1, 3)
    """

    def __init__(self, inner: Store, log: Callable[[str], object] | None = None) -> None:
        super().__init__(inner)
        self._log = log
        self.counter: Counter[str] = Counter()
        """How often each method was called."""
        self.nbytes: Counter[str] = Counter()
        """How many bytes came or went by each method."""
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget what was counted so far."""
        with self._lock:
            self.counter.clear()
            self.nbytes.clear()

    def _ask(self, method: str, key: str, *more: Any) -> Any:
        try:
            found = super()._ask(method, key, *more)
        except BaseException as error:
            self._note(method, key, more, 0, f"raised {error!r}")
            raise
        given = more[0] if method in ("put", "put_parts") or (found is True and more) else None
        value = found[0] if found is not None and method in ("get_tagged", "get_versioned") else found
        nbytes = _length(given) if given is not None else _length(value)
        self._note(method, key, more, nbytes, "nothing" if found is None and given is None else f"{nbytes} bytes")
        return found

    def _note(self, method: str, key: str, more: tuple[Any, ...], nbytes: int, outcome: str) -> None:
        with self._lock:
            self.counter[method] += 1
            self.nbytes[method] += nbytes
        spans = "".join(f" {part!r}" for part in more if method.startswith("get_"))
        self._write(f"{method} {key!r}{spans}: {outcome}")

    def _write(self, line: str) -> None:
        if self._log is not None:
            self._log(line)
            return
        import logging  # loaded by those who use it

        logging.getLogger("zellige.stores").debug("%s", line)

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "_log": self._log}

    def __setstate__(self, state: dict[str, Any]) -> None:
        LoggingStore.__init__(self, state["inner"], state["_log"])


def _length(found: Any) -> int:
    """How many bytes there are in what a request gave or took."""
    if isinstance(found, bytes | bytearray | memoryview):
        return memoryview(found).nbytes
    return sum(map(_length, found)) if isinstance(found, list | tuple) else 0
