"""Locks: of names between the threads of this process, of files between processes, and of two kinds of work.

Each is released in C: `with` calls the method of a built-in base class. An interrupt at the first line of an `__exit__`
in Python would leave the lock taken.
"""

from __future__ import annotations

import errno
import importlib
import os
import threading
import time
from _thread import RLock, get_ident
from collections.abc import Hashable
from contextlib import suppress
from io import FileIO
from typing import Any, Literal, Self
from weakref import ref

_MANY = 256  # names that are known before the unused ones are forgotten

# Weak references without callbacks: an interrupt within a callback is lost.
_locks: dict[Hashable, ref[Any]] = {}
_at_work: dict[Hashable, list[ref[Apart]]] = {}
"""The locks of single keys, and who is at work on the chunks of an array, by name."""
_file_locks: dict[int, ref[FileLock]] = {}
"""By their descriptors, so that there are no more of them than files that were ever open at once."""
_guard = threading.Lock()
"""Held while the first two are changed."""


# -- names ----------------------------------------------------------------------------------------


class KeyLock(RLock):  # type: ignore[misc]  # final for the stubs, not for Python
    """The lock of a name within this process: one object for all its users, and a thread may enter it again."""

    __slots__ = ("name", "held")

    name: Hashable
    held: ref[FileLock] | None
    """The lock against other processes that the owner of this lock holds, too."""

    def __new__(cls, name: Hashable) -> Self:
        """Return the lock in use under this name, or a new one."""
        with _guard:
            known = _locks.get(name)
            lock: Self | None = None if known is None else known()
            if lock is None:
                lock = super().__new__(cls)
                lock.name, lock.held = name, None
                if len(_locks) >= _MANY:
                    _sweep()
                _locks[name] = ref(lock)
            return lock


def _sweep() -> None:
    """Forget the names that nobody uses; under the guard."""
    for name in [name for name, lock in _locks.items() if lock() is None]:
        del _locks[name]


# -- kinds of work --------------------------------------------------------------------------------


class Apart(RLock):  # type: ignore[misc]  # final for the stubs, not for Python
    """Work of one of two kinds; the threads of this process do only one kind at a place at a time.

    Threads that do the same kind do not wait for each other. A worker holds its own lock while it works:

        work = Apart("whole")
        with work:
            work.wait(place)
    """

    __slots__ = ("kind", "over")

    kind: Literal["whole", "parts"]
    over: bool
    """Whether a thread that waited for this lock got it: then the work is done."""

    def __new__(cls, kind: Literal["whole", "parts"]) -> Self:
        """Return work of a kind, which begins with `wait`."""
        made = super().__new__(cls)
        made.kind, made.over = kind, False
        return made

    def wait(self, place: Hashable) -> None:
        """Wait until no thread does the other kind of work at a place, then register. The lock must be held."""
        while (other := self._in_the_way(place)) is not None:
            with other:
                other.over = True
            del other

    def _in_the_way(self, place: Hashable) -> Apart | None:
        with _guard:
            known = [found for entry in _at_work.get(place, ()) if (found := entry()) is not None and not found.over]
            for found in known:
                if found.kind != self.kind:
                    return found
            _at_work[place] = [*map(ref, known), ref(self)]
            if len(_at_work) > _MANY:
                for name in [name for name, entries in _at_work.items() if not any(entry() for entry in entries)]:
                    del _at_work[name]
            return None


# -- files ----------------------------------------------------------------------------------------

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class FileLock(FileIO):
    """A locked file, which is removed with the lock, or becomes a value.

    Closing the file releases the lock, and so does the system when the process dies. On a file system without locks
    only the threads of one process are kept apart; that is no error.
    """

    def __init__(self, path: str) -> None:
        opened: list[int] = []
        try:
            opened.extend(map(os.open, (path,), (_FLAGS | os.O_CREAT,), (0o666,)))  # no interrupt comes in between
            fd = opened[0]
            super().__init__(fd, "r+")
            self.path = path
            self.is_value = False
            _file_locks[fd] = ref(self)
            locked = _flock(fd)
            self._mine = mine = os.fstat(fd)
            self.fresh = locked and not mine.st_size and mine.st_nlink == 1
            """Whether a value may be written into the file: it is empty, no backup has a hard link to it, and it
            could be locked."""
        except BaseException:
            if self.closed:  # the file is not its own yet
                for fd in opened:
                    os.close(fd)
            self.close()
            raise

    @classmethod
    def taken(cls, path: str) -> Self:
        """Return the lock of a path; wait until it is free."""
        while True:
            lock = cls(path)
            if lock.is_in_place():
                return lock
            lock.close()

    def is_in_place(self) -> bool:
        """Whether the path is still this file; its last holder may have removed it."""
        try:
            return os.path.samestat(self._mine, os.stat(self.path))
        except FileNotFoundError:
            return False
        except BaseException:
            self.close()
            raise

    def become(self, path: str) -> None:
        """Rename the file onto a path, as its value. A process that waits for the lock creates another."""
        if not self.is_in_place():  # removed, maybe replaced
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        os.replace(self.path, path)
        self.is_value = True
        self._free()

    def remove(self) -> None:
        """Remove the file and release the lock; nothing in a forked child, because the parent holds it."""
        if self.closed:
            return
        if self.is_in_place():
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        self._free()

    def _free(self) -> None:
        # Closing alone does not release it while a process that is being started has a copy of the descriptor.
        _flock(self.fileno(), free=True)


def remove_free_lock(path: str) -> bool:
    """Remove the file of a lock that is free, and return whether it was."""
    import fcntl

    try:
        fd = os.open(path, _FLAGS)
    except OSError as exc:
        if exc.errno == errno.ELOOP:  # a link is no lock
            with suppress(OSError):
                os.unlink(path)
                return True
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            return False
        os.unlink(path)  # while it is locked, as in `FileLock.remove`
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _flock(fd: int, *, free: bool = False) -> bool:
    """Lock or free an open file; False if its file system has no locks."""
    import fcntl  # loaded when files are locked

    try:
        fcntl.flock(fd, fcntl.LOCK_UN if free else fcntl.LOCK_EX)
    except OSError as exc:
        if exc.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
            raise
        return False
    return True


# -- forks ----------------------------------------------------------------------------------------

_PATIENCE = 10.0  # seconds that a fork waits for imports of other threads
_module_locks: dict[str, Any] = getattr(importlib._bootstrap, "_module_locks", {})


def _forget_locks() -> None:
    """In a forked child: the threads that held locks do not exist here; locks of files belong to the parent.

    The copies of their descriptors are closed, which would keep them taken.
    """
    global _guard
    _guard = threading.Lock()
    _locks.clear()
    _at_work.clear()
    for known in _file_locks.values():
        lock = known()
        if lock is not None:
            lock.close()
    _file_locks.clear()


def _await_imports() -> None:
    """Before a fork: wait for the imports of other threads.

    Codecs and rare modules are imported by the operation that needs them first. Python has a lock for each module that
    is being imported. In a child whose parent forked meanwhile nobody releases it, and its first import waits forever.
    """
    until, me = time.monotonic() + _PATIENCE, get_ident()
    while time.monotonic() < until:
        owners = {lock.owner for lock in [known() for known in list(_module_locks.values())] if lock is not None}
        if not owners - {None} or me in owners:  # others may wait for a thread that forks within an import
            return
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_await_imports, after_in_child=_forget_locks)
