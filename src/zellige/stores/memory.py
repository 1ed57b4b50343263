"""Values in a mapping of this process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Self

from zellige.stores.base import KeyLock, Store, check_key, check_prefix, digest, is_key, resolve_span
from zellige.types import Buffer, Span

_stamp = itertools.count(1).__next__


class MemoryStore(Store):
    """The values of a mapping, which is used in place when it is given.

    Keys are text and values are bytes; a dict that begins with anything else is refused. A mapping other than a dict
    must allow single operations from several threads, as a dict does. Pickling copies the contents: what the copy
    writes is not seen here.
    """

    near = True

    def __init__(self, data: MutableMapping[str, Any] | None = None, *, read_only: bool = False) -> None:
        if type(data) is dict:
            _check_entries(data)
        self._data = {} if data is None else data
        self._stamps: dict[str, int] = {}  # a new number at every write, for the versions
        self.read_only = read_only

    # -- reading ----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """The whole value, or None if there is no such key."""
        if not is_key(key):
            check_key(key)
        value = self._data.get(key)
        return value if value is None or type(value) is bytes else _frozen(value)

    def get_range(self, key: str, start: int, length: int | None = None) -> bytes | None:
        """Exactly these bytes, or None if there is no such key; see `Store.get_range`."""
        value = self.get(key)
        if value is None:
            return None
        begin, count = resolve_span(key, start, length, len(value))
        return value[begin : begin + count]

    def get_tagged(self, key: str, spans: Sequence[Span]) -> tuple[Sequence[bytes], object] | None:
        """Several ranges, and the value itself as the tag."""
        value = self.get(key)
        if value is None:
            return None
        places = [resolve_span(key, start, length, len(value)) for start, length in spans]
        return [value[begin : begin + count] for begin, count in places], value

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        """The value with its version, or None if there is no such key."""
        check_key(key)
        with self._writing(key):
            value = self.get(key)
            # The content counts as well, because somebody else may change the mapping.
            return None if value is None else (value, f"{self._stamps.get(key, 0):x}-{digest(value)}")

    def size(self, key: str) -> int | None:
        """The value's length in bytes, or None if there is no such key."""
        value = self.get(key)
        return None if value is None else len(value)

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[str]:
        """All keys that start with the prefix, in no particular order."""
        return iter(self._keys(check_prefix(prefix)))

    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        """The keys directly below the prefix and the sub-prefixes, both whole and sorted."""
        keys, prefixes = [], set()
        for key in self._keys(check_prefix(prefix)):
            end = key.find("/", len(prefix)) + 1
            if end:
                prefixes.add(key[:end])
            else:
                keys.append(key)
        return sorted(keys), sorted(prefixes)

    def _keys(self, prefix: str) -> Sequence[str]:
        # A tuple first, because other threads may write. A mapping of somebody else may hold what is no key.
        return [key for key in tuple(self._data) if key.startswith(prefix) and is_key(key)]

    # -- writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""
        self._check_writable()
        check_key(key)
        frozen = _frozen(value)
        with self._writing(key):
            self._store(key, frozen)

    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        self._check_writable()
        check_key(key)
        frozen = _frozen(value)
        with self._writing(key):
            if key in self._data:
                return False
            self._store(key, frozen)
        return True

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""
        self._check_writable()
        check_key(key)
        frozen = _frozen(value)
        with self._writing(key):
            found = self.get_versioned(key)
            if found is None or found[1] != version:
                return False
            self._store(key, frozen)
        return True

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none."""
        self._check_writable()
        check_key(key)
        with self._writing(key):
            self._data.pop(key, None)
            self._stamps.pop(key, None)

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix."""
        self._check_writable()
        for key in self._keys(check_prefix(prefix)):
            self.delete(key)

    def _store(self, key: str, value: bytes) -> None:
        self._data[key] = value
        self._stamps[key] = _stamp()

    def _writing(self, key: str) -> KeyLock:
        # Not the lock of `exclusive`: a put never waits for somebody's read-modify-write.
        return KeyLock(("writing", self.identity, key))

    # -- locking and views ------------------------------------------------------------------------

    @property
    def identity(self) -> tuple[str, int]:
        """The mapping itself."""
        return ("memory", id(self._data))

    def as_read_only(self) -> Self:
        """The same mapping through a store that refuses to write."""
        view = type(self)(self._data, read_only=True)
        view._stamps = self._stamps
        return view

    def __getstate__(self) -> tuple[dict[str, bytes], bool]:
        return {key: _frozen(value) for key, value in tuple(self._data.items())}, self.read_only

    def __setstate__(self, state: tuple[dict[str, bytes], bool]) -> None:
        MemoryStore.__init__(self, state[0], read_only=state[1])

    def __repr__(self) -> str:
        # Counting could be slow in a mapping that is not a dict.
        size = f" of {len(self._data)}" if type(self._data) is dict else ""
        mode = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}(<{type(self._data).__name__}{size}>{mode})"


def _check_entries(data: dict[Any, Any]) -> None:
    """Refuse a dict that was not made to be a store: its first entry tells, however many there are."""
    for key, value in itertools.islice(data.items(), 1):
        if not isinstance(key, str):
            raise TypeError(f"a dict as a store has text as its keys, found {key!r} of type {type(key).__name__}")
        try:
            memoryview(value)
        except TypeError:
            raise TypeError(
                f"a dict as a store has bytes as its values, found {value!r:.80} of type {type(value).__name__} for "
                f"key {key!r}; store arrays with zellige.save_group"
            ) from None


def _frozen(value: Buffer) -> bytes:
    """The value as bytes that nobody can change; `bytes(5)` would be five zeros, hence the view."""
    return value if type(value) is bytes else memoryview(value).tobytes()
