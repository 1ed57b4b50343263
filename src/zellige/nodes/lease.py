"""Leases: the exclusive right to change something, held by an owner until it is released or expires.

A lease is a document in the store. It is created on condition, so that one of several writers wins, and it names its
owner: the machine, the process, and the time at which the owner last renewed it. A second writer waits for the
setting `lease.wait`, and then gets a `ConflictError` before it has written anything. It takes over at once if the owner
is known to be dead, which a process of the same machine tells, and never while that process is there, even stopped. A
lease of another machine expires when it was not renewed for the setting `lease.timeout`. An owner that was only slow
may go on after that; what it writes then is kept out by a `FencedStore`.

The document also carries what its owner is doing, so that the one that takes it over can finish or undo that.
"""

from __future__ import annotations

import json
import os
import platform
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from zellige.errors import ConflictError
from zellige.settings import config
from zellige.stores import Store, files
from zellige.stores.base import Tag
from zellige.types import JSON

_RENEWALS = 3  # how often a lease is renewed before it would expire

_held: WeakValueDictionary[str, Lease] = WeakValueDictionary()
"""The leases that this process holds, by their identifiers. One without references is abandoned."""


class Owner(NamedTuple):
    """The holder of a lease."""

    process: str
    """The process, as `files.owner` names it."""
    host: str
    """The name of its machine, for people."""
    id: str
    time: float
    """When the lease was last renewed, in seconds since 1970."""

    def is_alive(self) -> bool:
        """Return whether the owner may still be at work."""
        if self.process == files.owner(os.getpid()):
            return self.id in _held
        running = files.is_running(self.process)
        timeout: float = config.get("lease.timeout")
        return time.time() <= self.time + timeout if running is None else running

    def is_this_thread(self) -> bool:
        """Return whether it is this thread itself that holds the lease, so that waiting for it would never end."""
        lease = _held.get(self.id)
        return lease is not None and lease.thread == threading.get_ident()

    def __str__(self) -> str:
        return f"process {self.process.partition('.')[0]} on {self.host}"


class Document(NamedTuple):
    """What a lease in a store says: its owner, None if it names none, and what the owner is doing."""

    owner: Owner | None
    content: dict[str, Any]

    @property
    def live_owner(self) -> Owner | None:
        """The owner, if it may still be at work."""
        return self.owner if self.owner is not None and self.owner.is_alive() else None


def read(raw: bytes) -> Document:
    """Parse the document of a lease; one that cannot be read, such as a copy that was cut short, has no owner."""
    try:
        found = json.loads(raw)
        if not isinstance(found, dict):
            return Document(None, {})
        owner = found.pop("owner", None)
        found.pop("about", None)
        if owner is not None:
            kinds = {"process": str, "host": str, "id": str, "time": float}
            owner = Owner(**{name: kind(owner[name]) for name, kind in kinds.items()})
        return Document(owner, found)
    except (ValueError, KeyError, TypeError):
        return Document(None, {})


def dump(about: str, owner: Owner | None, content: Mapping[str, JSON]) -> bytes:
    """Return the document of a lease; without an owner it only says what was begun."""
    named = {} if owner is None else {"owner": owner._asdict()}
    return json.dumps({"about": about, **named, **content}).encode()


class Lease:
    """The exclusive right to change what a key of a store stands for.

    While this object is referred to, a thread renews the lease in time. It can be pickled, and is then used by another
    process in the name of the owner; only the owner renews it.
    """

    def __init__(self, store: Store, key: str, about: str) -> None:
        self.store, self.key, self._about = store, key, about
        self.id, self.thread = os.urandom(8).hex(), threading.get_ident()
        self._process, self._host, self._renewed = files.owner(os.getpid()), platform.node(), 0.0
        self.left: dict[str, Any] | None = None
        """What a dead owner was doing whose lease was taken over; None if the lease was free."""
        self.succeeded = False
        """Whether another owner had it before, which may be dead or only slow."""
        self._taken = self._lost = False
        self._lock = threading.Lock()

    # -- taking -----------------------------------------------------------------------------------

    def attempt(self) -> Owner | None:
        """Take the lease if it is free or its owner is dead; otherwise return the owner.

        What a dead owner was doing stays in the document until `write` replaces it, so that nothing is forgotten if
        this process dies as well.
        """
        _held[self.id] = self  # first: another thread that finds the document must see that its owner lives
        while not self.store.create(self.key, self._document({})):
            found = self.store.read(self.key)
            if found is None:
                continue
            if self._owns(found.whole):
                break  # it was created, and only the answer was lost
            document = read(found.whole)
            if (owner := document.live_owner) is not None:
                self.abandon()
                return owner
            if self._swap(self._document(document.content), found.tag):
                self.left = document.content
                self.succeeded = True
                break
        self._taken = True
        _renewer.start()
        return None

    def take(self, what: str) -> None:
        """Take the lease; wait for another owner, and raise `ConflictError` if that one stays at work."""
        backoff = Backoff(self.store, what)
        while (owner := self.attempt()) is not None:
            backoff.pause(self.key, owner)

    # -- holding ----------------------------------------------------------------------------------

    def write(self, content: dict[str, Any]) -> None:
        """Store what the owner is doing; raises `ConflictError` if another process has taken over."""
        self._update(lambda _: content)

    def renew(self) -> None:
        """Tell others that the owner is alive; what it is doing stays as it is stored."""
        if not self._taken:
            return  # it is being taken at this moment
        try:
            self._update(lambda content: content)
        except ConflictError:
            self.abandon()  # the next write says so
        except OSError:
            pass  # the store does not answer, and it is tried again

    def _update(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Replace the document for as long as it is this owner's, which may be several processes."""
        with self._lock:
            while (found := self.store.read(self.key)) is not None and self._owns(found.whole):
                if self._swap(self._document(change(read(found.whole).content)), found.tag):
                    return
            self._lost = True
            raise self._lost_error()

    def _swap(self, document: bytes, tag: Tag | None) -> bool:
        """Replace the document on condition; a lost answer does not make a write that was done a failure."""
        return self.store.replace(self.key, document, tag) or self.store.get(self.key) == document

    def stored(self) -> dict[str, Any] | None:
        """Return what is stored of what the owner is doing; None if another process has taken over. One request."""
        raw = None if self._lost else self.store.get(self.key)
        return read(raw).content if raw is not None and self._owns(raw) else None

    def is_held(self) -> bool:
        """Return whether the lease is still this owner's; one request."""
        return self.stored() is not None

    def confirm(self) -> None:
        """Raise `ConflictError` if another process has taken over; one request."""
        if not self.is_held():
            self._lost = True
            raise self._lost_error()

    def check(self) -> None:
        """Raise `ConflictError` if another process may have taken over, because the lease was not renewed for long.

        That happens to a process that was stopped for a while. It costs nothing as long as the lease is renewed.
        """
        timeout: float = config.get("lease.timeout")
        if self._lost or time.time() > self._renewed + timeout / 2:
            self.confirm()

    def release(self) -> None:
        """Give the lease back; nothing happens if another process has taken over."""
        try:
            with self._lock:
                if self.is_held():
                    self.store.delete([self.key])
        finally:
            self.abandon()  # also if the store fails: others that find the document may take over

    def abandon(self) -> None:
        """Stop to hold the lease; what is stored stays, so that others take over and finish what it says."""
        _held.pop(self.id, None)
        _renewer.wake()

    # -- details ----------------------------------------------------------------------------------

    def _document(self, content: Mapping[str, JSON]) -> bytes:
        self._renewed = round(time.time(), 3)
        return dump(self._about, Owner(self._process, self._host, self.id, self._renewed), content)

    def _owns(self, raw: bytes) -> bool:
        owner = read(raw).owner
        return owner is not None and owner.id == self.id

    def _lost_error(self) -> ConflictError:
        return ConflictError(
            f"key {self.key!r} in {self.store!r}: this lease was given up, or another process has taken over because "
            "it was not renewed in time. What was written since is not part of the data; write it again",
            key=self.key,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), thread=0)


class Backoff:
    """Growing pauses between attempts to take a lease, until the setting `lease.wait` has passed."""

    def __init__(self, store: Store, what: str) -> None:
        self._store, self._what = store, what
        self._until, self._longest = time.monotonic() + config.get("lease.wait"), 0.02

    def pause(self, key: str, owner: Owner) -> None:
        """Wait a moment for the owner of a lease; `ConflictError` after the last moment, or if it is this thread."""
        if time.monotonic() >= self._until or owner.is_this_thread():
            raise busy(self._store, key, self._what, owner)
        time.sleep(random.uniform(0, self._longest))
        self._longest = min(1.0, self._longest * 1.5)


def busy(store: Store, key: str, what: str, owner: Owner) -> ConflictError:
    """Return the error for a lease that another one holds."""
    if owner.is_this_thread():
        remedy = "it was begun by this thread and not finished: commit it, or give it up"
    elif files.is_running(owner.process):
        remedy = "try again, wait longer with the setting 'lease.wait', or end that process"
    else:
        remedy = (
            "try again, or wait longer with the setting 'lease.wait'; if that process is dead, set 'lease.timeout' to "
            "0 and call zellige.repair"
        )
    return ConflictError(
        f"key {key!r} in {store!r}: {owner} is changing {what}. Nothing was written; {remedy}", key=key, owner=owner
    )


# -- renewing -------------------------------------------------------------------------------------


class _Renewer:
    """A thread that renews the leases of this process; it runs while there are any."""

    def __init__(self) -> None:
        self._lock, self._wakes = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """See to it that what is held now is renewed in time."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="zellige-leases", daemon=True)
                self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Let the thread look again: a lease was taken or given up, or the setting has changed."""
        self._wakes.set()

    def _run(self) -> None:
        while True:
            interval = max(0.05, config.get("lease.timeout") / _RENEWALS)
            self._wakes.wait(interval)
            with self._lock:
                self._wakes.clear()
                if not _held:
                    self._thread = None
                    return
            _renew_held(interval / 2)


def _renew_held(age: float) -> None:
    """Renew the leases that were not renewed for so many seconds; keeps no reference to any."""
    for lease in list(_held.values()):
        if time.time() >= lease._renewed + age:
            lease.renew()


_renewer = _Renewer()
"""The one thread of this process that renews all of its leases."""


def _forget_leases() -> None:
    """Hold no lease in a forked child: its parent does, and the thread that renews them is not here."""
    global _renewer
    _renewer = _Renewer()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_leases)
