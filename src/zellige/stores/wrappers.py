"""Stores around other stores: pass everything on, and count requests or shorten keys on the way.

Locks, batches and durability are those of the store inside: a wrapper and what it wraps may be used side by side.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

from zellige.errors import ConflictError, ShortReadError
from zellige.stores.abilities import DecodedChunks, Folders, Forks, Obstacle, Splices
from zellige.stores.base import (
    ABSENT,
    Listing,
    Missing,
    Store,
    Tag,
    Value,
    check_key,
    check_keys,
    check_prefix,
    joined,
    parts_of,
)
from zellige.types import AnyArray, Buffer, Durability, Encoded, Span

T = TypeVar("T")


class WrapperStore(Store):
    """A store that passes everything on to another one; a base for those that do something on the way.

    All requests go through `_ask`, which is the one method to override for what happens with each of them.

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
        self.inner = inner
        self.traits = replace(inner.traits, local_path=None)  # something is between keys and files

    def _ask(self, method: str, *given: Any, **options: Any) -> Any:
        """Pass one request on: `read`, `write`, `delete` or `list`."""
        return getattr(self.inner, method)(*given, **options)

    def _around(self, inner: Store) -> Self:
        """The same wrapper around a view of what it wraps; what it keeps is shared."""
        view = self._view(read_only=inner.read_only, durability=inner.traits.durability)
        view.inner = inner
        return view

    # -- requests ---------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read a whole value, or ranges of it, of the store inside."""
        found: Value | None = self._ask("read", key, spans)
        return found

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value in the store inside, maybe on a condition."""
        done: bool = self._ask("write", key, value, if_tag)
        return done

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys from the store inside."""
        self._ask("delete", keys)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List the keys of the store inside."""
        found: Listing = self._ask("list", prefix, recursive=recursive)
        return found

    # -- all else ---------------------------------------------------------------------------------

    def lock(self, key: str) -> AbstractContextManager[object]:
        """Return the lock of the store inside."""
        return self.inner.lock(key)

    @property
    def identity(self) -> Hashable:
        """That of the store inside: it holds the same data."""
        return self.inner.identity

    def name(self, key: str) -> Hashable:
        """Return the name that the store inside has for the key."""
        return self.inner.name(key)

    def ability(self, kind: type[T]) -> T | None:
        """Return that of the store inside, unless it would bypass this one."""
        if kind is Splices:
            return None
        found: Any = self.inner.ability(kind)
        if found is not None and kind is Forks:
            found = _ForksAround(self, found)
        ability: T | None = found
        return ability

    def with_durability(self, durability: Durability) -> Self:
        """Return the same data through a store whose writes survive this."""
        return self._around(self.inner.with_durability(durability))

    def as_read_only(self) -> Self:
        """Return the same data through a store that refuses to write."""
        return self._around(self.inner.as_read_only())

    def close(self) -> None:
        """Release what the store inside holds."""
        self.inner.close()

    def __exit__(self, *exc: object) -> None:
        self.inner.__exit__(*exc)  # which may drop what was written before an exception

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


class _ForksAround(Forks):
    """Forks of a transaction, each in the wrapper that the transaction is in."""

    def __init__(self, outside: WrapperStore, inside: Forks) -> None:
        self._outside, self._inside = outside, inside

    def fork(self) -> WrapperStore:
        return self._outside._around(self._inside.fork())

    def merge(self, forks: Iterable[Any]) -> None:
        self._inside.merge([fork.inner for fork in forks])


class FoldersAround(Folders):
    """The directories of a store inside of another, whose prefixes may be longer there.

    `changed` is called with each prefix, as it is outside, below which something may have changed.
    """

    def __init__(self, inside: Folders, prefix: str = "", changed: Callable[[str], object] = lambda _: None) -> None:
        self._inside, self._prefix, self._changed = inside, prefix, changed

    def outer(self) -> Store | None:
        """Return a store of the directory above; None for a part of another store, which is above it."""
        return None if self._prefix else self._inside.outer()

    def obstacles(self, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
        """Find what lies in the place of keys and is no value."""
        found = self._inside.obstacles(self._prefix + check_prefix(prefix))
        return ((key[len(self._prefix) :], what) for key, what in found)

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove keys that start with a prefix."""
        inside = [self._prefix + key for key in check_keys(keys)]
        with self._changing(prefix) as top:
            self._inside.delete_below(top, inside)

    def remove_tree(self, prefix: str) -> None:
        """Remove every key that starts with the prefix, and all directories."""
        with self._changing(prefix) as top:
            self._inside.remove_tree(top)

    def detach(self, prefix: str) -> bool:
        """Remove a prefix that is only a link to another, which stays."""
        with self._changing(prefix) as top:
            return self._inside.detach(top)

    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        """Remove the prefix and those below it that hold nothing."""
        self._inside.prune(self._prefix + check_prefix(prefix), owned)

    def rename(self, source: str, dest: str) -> bool:
        """Move all keys below a prefix to another that has none, at once."""
        with self._changing(source) as old, self._changing(dest) as new:
            return self._inside.rename(old, new)

    @contextmanager
    def _changing(self, prefix: str) -> Iterator[str]:
        """Note a change below a prefix, given as it is inside, even if it fails: nobody knows what is there then."""
        inside = self._prefix + check_prefix(prefix)
        try:
            yield inside
        finally:
            self._changed(prefix)


class FencedStore(WrapperStore):
    """An object store that is written to by the owner of a lease, and not by one that has lost it.

    A process that is stopped for long between checking its lease and writing would overwrite what the next owner has
    written. So every write has a condition: it fails where another process has written meanwhile, and the lease is
    checked again before the next attempt. An object cannot be removed on condition: there a moment remains.

    Parameters
    ----------
    inner
        The store, whose conditional writes are what keeps others out.
    check
        Raises `ConflictError` if the lease is lost; see `Lease.check`.

    """

    def __init__(self, inner: Store, check: Callable[[], None]) -> None:
        super().__init__(inner)
        self._check = check

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing; without a condition, try until no other write comes first."""
        if if_tag is not None:
            self._check()
            done = self.inner.write(key, value, if_tag)
            if done and if_tag is ABSENT:
                self._check_made(key, value)
            return done
        while not self.create(key, value):
            found = self.inner.read(key, ())
            if found is not None and self.replace(key, value, found.tag):
                break
        return True

    def _check_made(self, key: str, value: Encoded) -> None:
        """Check the lease after a key was made where there was none: nobody else would remove it."""
        try:
            self._check()
        except ConflictError:
            if self.inner.get(key) == joined(value):
                self.inner.delete([key])
            raise

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""
        self.check_writable()
        for key in check_keys(keys):
            if self.inner.exists(key):
                self._check()
                self.inner.delete([key])


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

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read a whole value, or ranges of it; see `Store.read`."""
        try:
            return self.inner.read(self.prefix + check_key(key), spans)
        except ShortReadError as error:
            text = str(error).replace(repr(self.prefix + key), repr(key))
            raise ShortReadError(text, **vars(error) | {"key": key}) from error

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing, maybe on a condition; see `Store.write`."""
        self.check_writable()
        return self.inner.write(self.prefix + check_key(key), value, if_tag)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""
        self.check_writable()
        self.inner.delete([self.prefix + key for key in check_keys(keys)])

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or one level of them."""
        found = self.inner.list(self.prefix + check_prefix(prefix), recursive=recursive)
        cut = len(self.prefix)
        return Listing((key[cut:] for key in found.keys), [below[cut:] for below in found.prefixes])

    def lock(self, key: str) -> AbstractContextManager[object]:
        """Return the lock that the other store has for its own key."""
        return self.inner.lock(self.prefix + check_key(key))

    @property
    def identity(self) -> Hashable:
        """The other store and the prefix; locks are those of the other store."""
        return "prefix", self.inner.identity, self.prefix

    def name(self, key: str) -> Hashable:
        """Return what the other store calls its own key."""
        return self.inner.name(self.prefix + check_key(key))

    def ability(self, kind: type[T]) -> T | None:
        """Return that of the other store, with its own keys."""
        found: Any = super().ability(kind)
        if found is not None and kind is Folders:
            found = FoldersAround(found, self.prefix)
        elif found is not None and kind is DecodedChunks:
            found = _ChunksBelow(found, self.prefix)
        ability: T | None = found
        return ability

    def __repr__(self) -> str:
        return f"PrefixStore({self.inner!r}, {self.prefix[:-1]!r})"


class _ChunksBelow(DecodedChunks):
    """Decoded chunks that another store keeps under longer keys."""

    def __init__(self, inside: DecodedChunks, prefix: str) -> None:
        self._inside, self._prefix = inside, prefix

    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        return self._inside.decoded(self._prefix + check_key(key), how, decode)


class LoggingStore(WrapperStore):
    """Counts the requests that a store gets, and logs each of them.

    `log` is called with a line for each request; by default it is the debug level of the logger `zellige.stores`.
    Views and arrays of one LoggingStore share its counts; a pickle begins anew.

    >>> from zellige.storage import MemoryStore
    >>> store = LoggingStore(MemoryStore({"a": b"value"}), log=print)
    >>> _ = store.get_range("a", 0, 3)
    read 'a' [(0, 3)]: 3 bytes
    >>> store.counter["read"], store.nbytes["read"]
    (1, 3)
    """

    def __init__(self, inner: Store, log: Callable[[str], object] | None = None) -> None:
        super().__init__(inner)
        self._log = log
        self.counter: Counter[str] = Counter()
        """How often `read`, `write`, `delete` and `list` were called."""
        self.nbytes: Counter[str] = Counter()
        """How many bytes came or went by each method."""
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget what was counted so far."""
        with self._lock:
            self.counter.clear()
            self.nbytes.clear()

    def _ask(self, method: str, *given: Any, **options: Any) -> Any:
        try:
            found = super()._ask(method, *given, **options)
        except BaseException as error:
            self._note(method, given, 0, f"raised {error!r}")
            raise
        if method == "write":
            nbytes = sum(memoryview(part).nbytes for part in parts_of(given[1])) if found else 0
        else:
            nbytes = sum(map(len, found.parts)) if isinstance(found, Value) else 0
        self._note(method, given, nbytes, "nothing" if found is None and method == "read" else f"{nbytes} bytes")
        return found

    def _note(self, method: str, given: tuple[Any, ...], nbytes: int, outcome: str) -> None:
        with self._lock:
            self.counter[method] += 1
            self.nbytes[method] += nbytes
        spans = f" {list(given[1])!r}" if method == "read" and given[1] is not None else ""
        self._write(f"{method} {given[0]!r}{spans}: {outcome}")

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
