"""Values in a mapping of this process."""

from __future__ import annotations

import itertools
from collections.abc import MutableMapping, Sequence
from typing import Any

from zellige.stores.base import (
    ABSENT,
    ContentTag,
    Listing,
    Missing,
    Store,
    Tag,
    Traits,
    Value,
    check_key,
    check_keys,
    check_prefix,
    is_key,
    joined,
)
from zellige.types import Encoded, Span

_stamp = itertools.count(1).__next__


class MemoryStore(Store):
    """The values of a mapping of this process. A pickle is a copy: what it writes is not seen here.

    Parameters
    ----------
    data
        A mapping of text to bytes, which is used in place; by default a new dict. A mapping other than a dict must
        allow single operations from several threads, as a dict does.
    read_only
        Whether to refuse to write.

    """

    def __init__(self, data: MutableMapping[str, Any] | None = None, *, read_only: bool = False) -> None:
        if type(data) is dict:
            _check_entries(data)
        self._data = {} if data is None else data
        self._stamps: dict[str, int] = {}  # a new number at every write, for the tags
        self.traits = Traits(read_only=read_only)

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Return the whole value, or ranges of it; see `Store.read`."""
        found = self._data.get(check_key(key))
        if found is None:
            return None
        value = found if type(found) is bytes else joined(found)
        # The content counts as well, because others may change the mapping.
        return Value.cut(key, value, spans, ContentTag(self._stamps.get(key, 0), value))

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing, maybe on a condition; see `Store.write`."""
        self.check_writable()
        check_key(key)
        frozen = joined(value)
        with self._writing(key):
            if if_tag is not None:
                found = self.read(key, ())
                if (ABSENT if found is None else found.tag) != if_tag:
                    return False
            self._data[key] = frozen
            self._stamps[key] = _stamp()
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""
        self.check_writable()
        for key in check_keys(keys):
            with self._writing(key):
                self._data.pop(key, None)
                self._stamps.pop(key, None)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or one level of them."""
        check_prefix(prefix)
        # A tuple first, because other threads may write. A given mapping may hold what is no key.
        keys = [key for key in tuple(self._data) if key.startswith(prefix) and is_key(key)]
        return Listing(keys) if recursive else Listing.one_level(prefix, keys)

    @property
    def identity(self) -> tuple[str, int]:
        """The mapping itself."""
        return ("memory", id(self._data))

    def __getstate__(self) -> tuple[dict[str, bytes], bool]:
        return {key: joined(value) for key, value in tuple(self._data.items())}, self.read_only

    def __setstate__(self, state: tuple[dict[str, bytes], bool]) -> None:
        MemoryStore.__init__(self, state[0], read_only=state[1])

    def __repr__(self) -> str:
        # Other mappings may be slow to count.
        size = f" of {len(self._data)}" if type(self._data) is dict else ""
        mode = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}(<{type(self._data).__name__}{size}>{mode})"


def _check_entries(data: dict[Any, Any]) -> None:
    """Refuse a dict that is no store, by its first entry."""
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
