"""What only some stores can do, and functions for all stores that use it where it is there.

`Store.ability` returns an ability of a store, or None. A wrapper returns that of the store inside, maybe wrapped, too.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from zellige.types import AnyArray, Buffer

if TYPE_CHECKING:
    from zellige.stores.base import Store

S = TypeVar("S", bound="Store")


# -- directories ----------------------------------------------------------------------------------


class Obstacle(StrEnum):
    """What lies in the place of a key and cannot be read as a value."""

    DIRECTORY = "a directory"
    OUTER_DIRECTORY = "a link to a directory out of the store"
    OUTER_FILE = "a link to a file out of the store"
    NOWHERE = "a link that leads nowhere"
    SPECIAL = "no regular file"
    UNREADABLE = "a file that this process may not read"

    @property
    def is_hidden(self) -> bool:
        """Whether listings leave it out, with all that may be behind it."""
        return self not in (Obstacle.DIRECTORY, Obstacle.UNREADABLE)

    @property
    def remedy(self) -> str:
        """What to do about it where a value belongs."""
        if self in (Obstacle.OUTER_DIRECTORY, Obstacle.OUTER_FILE):
            return "open LocalStore(…, links='anywhere') to follow such links, or put what it leads to in its place"
        return "restore the value, or remove what is there"


class Folders(ABC):
    """Prefixes that are directories: they may be links, outlive their keys, and be moved in one step.

    The parameters `prefix` and `keys` are those of `Store`; `source` and `dest` are prefixes.
    """

    @abstractmethod
    def outer(self) -> Store | None:
        """Return a store of the directory above, to be read only; None if there is none."""

    @abstractmethod
    def obstacles(self, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
        """Find what lies below the prefix in the place of keys and cannot be read as a value.

        Directories are among it; the caller knows whether a value belongs there.
        """

    @abstractmethod
    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove keys that start with a prefix; a directory further down that is a link goes itself, and no more."""

    @abstractmethod
    def remove_tree(self, prefix: str) -> None:
        """Remove every key that starts with the prefix, and all directories."""

    @abstractmethod
    def detach(self, prefix: str) -> bool:
        """Remove a prefix that is only a link to another, which stays; False, and nothing done, if it is none."""

    @abstractmethod
    def prune(self, prefix: str, owned: Callable[[str], bool]) -> None:
        """Remove the prefix and those below it that hold nothing and are `owned`.

        `owned` is called with their paths, relative to the prefix and without a last `/`.
        """

    @abstractmethod
    def rename(self, source: str, dest: str) -> bool:
        """Move all keys below a prefix to another that has none, at once; False, and nothing done, if it cannot."""


def obstacles(store: Store, prefix: str = "") -> Iterator[tuple[str, Obstacle]]:
    """Find what lies in the place of keys and is no value; nothing where prefixes are only the beginnings of keys.

    Parameters: see `Folders`.
    """
    folders = store.ability(Folders)
    return iter(()) if folders is None else folders.obstacles(prefix)


def delete_below(store: Store, prefix: str, keys: Sequence[str]) -> None:
    """Remove keys that start with a prefix, links to directories instead of what they lead to.

    Parameters: see `Folders`.
    """
    folders = store.ability(Folders)
    if folders is None:
        store.delete(keys)
    else:
        folders.delete_below(prefix, keys)


def prune(store: Store, prefix: str, owned: Callable[[str], bool]) -> None:
    """Remove the directories at a prefix and below it that hold nothing and are owned, where there are any.

    Parameters: see `Folders.prune`.
    """
    store.check_writable()
    folders = store.ability(Folders)
    if folders is not None:
        folders.prune(prefix, owned)


# -- transactions in several processes ------------------------------------------------------------


class Forks(ABC):
    """A transaction that other processes can write to."""

    @abstractmethod
    def fork(self) -> Any:
        """Return a copy of the transaction, which can be pickled and forked again."""

    @abstractmethod
    def merge(self, forks: Iterable[Any]) -> None:
        """Take over what was written to forks, each of which wrote other keys."""


def fork(store: S) -> S:
    """Return a store for other processes to write to: a fork of a transaction, else the store itself.

    `merge` takes over what they wrote.

    Parameters
    ----------
    store
        The store; a transaction of one process only raises TypeError.

    """
    if not store.traits.transactional or store.read_only:
        return store
    forks = store.ability(Forks)
    if forks is None:
        raise TypeError(f"{store!r} is written by one process; write to another store, or without a cluster")
    forked: S = forks.fork()
    return forked


def merge(store: Store, forks: Iterable[Store]) -> None:
    """Take over what was written to forks of a store.

    Parameters
    ----------
    store
        The store that was forked; nothing happens unless it is a transaction.
    forks
        What `fork` returned, each after other keys were written to it.

    """
    own = store.ability(Forks)
    if own is not None and store.traits.transactional:
        own.merge(forks)


# -- many writes at once --------------------------------------------------------------------------


class Batches(ABC):
    """Writes that are made durable together."""

    @abstractmethod
    def batch(self) -> AbstractContextManager[Callable[..., Any]]:
        """Enter a batch; see the function `batch`."""


def batch(store: Store) -> AbstractContextManager[Callable[..., Any]]:
    """Make many writes durable together, at the end of the block.

    Yields a function that calls another one with its arguments as part of the batch; threads that `threads.run` starts
    for that call belong to the batch, too.
    """
    batches = store.ability(Batches)
    return nullcontext(operator.call) if batches is None else batches.batch()


# -- decoded chunks -------------------------------------------------------------------------------


class DecodedChunks(ABC):
    """A cache of decoded chunks."""

    @abstractmethod
    def decoded(self, key: str, how: Hashable, decode: Callable[[Buffer], AnyArray]) -> AnyArray | None:
        """Return a decoded value, cached or decoded now; None if there is no such key.

        Parameters
        ----------
        key
            The key of the chunk.
        how
            Equal for calls whose `decode` gives the same values.
        decode
            Decodes the value.

        """
