"""Locks of files against other processes."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from io import FileIO
from typing import Self
from weakref import ref

_LOCK_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class FileLock(FileIO):
    """A file locked against other processes, there only while somebody holds the lock or waits for it, or a value then.

    Closing it frees the lock, and so does the system when the process dies. `with` closes it in C, as it frees a
    `KeyLock`. A file system without locks is no error: there only the threads of one process are kept apart.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, "r+", opener=_open_lock)
        try:
            _file_locks[self.fileno()] = ref(self)
            self._locked = _flock(self.fileno(), lock=True)
            self._gone = False
            self.fresh = False
            """Whether nothing is in the file, and nobody else writes there: then a value may be written into it."""
        except BaseException:
            self.close()
            raise

    @classmethod
    def taken(cls, path: str) -> Self:
        """The lock of a path, once nobody else has it."""
        while not (lock := cls(path)).is_in_place():
            lock.close()
        return lock

    def is_in_place(self) -> bool:
        """Whether the file is the one of its path: who held it before has removed it, and the next made another."""
        try:
            mine = self._mine = os.fstat(self.fileno())
            # What a process that died has left in it, or a backup made of links, is nobody's to overwrite.
            self.fresh = self._locked and not mine.st_size and mine.st_nlink == 1
            return os.path.samestat(mine, os.stat(str(self.name)))
        except FileNotFoundError:
            return False
        except BaseException:
            self.close()
            raise

    def become(self, path: str) -> None:
        """Rename the file, over what may be there: it is a value now, and who waits for the lock makes another."""
        if not os.path.samestat(self._mine, os.stat(str(self.name))):  # somebody removed it, and another made one
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.name)
        os.replace(str(self.name), path)
        self._gone = True

    def remove(self) -> None:
        """Remove the file and free the lock; in a forked child nothing, because the parent holds it."""
        if self.closed:
            return
        # Somebody may have removed the file, and then the one of this name is another.
        if not self._gone and self.is_in_place():
            with suppress(FileNotFoundError):
                os.unlink(str(self.name))
        # Closing alone does not free it while a process that is being started has a copy of the descriptor.
        _flock(self.fileno(), lock=False)


def _open_lock(path: str, _flags: int) -> int:
    return os.open(path, _LOCK_FLAGS | os.O_CREAT, 0o666)


_file_locks: dict[int, ref[FileLock]] = {}
"""By their descriptors, so that there are no more of them than files that were ever open at once."""


def remove_free_lock(path: str) -> bool:
    """Remove the file of a lock that nobody holds; those who wait for it make another."""
    import fcntl

    try:
        fd = os.open(path, _LOCK_FLAGS)
    except OSError as exc:
        if exc.errno == errno.ELOOP:  # a link, which is no lock of anybody's
            with suppress(OSError):
                os.unlink(path)
                return True
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            return False
        os.unlink(path)  # while it is held, as `FileLock.remove` does
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _flock(fd: int, *, lock: bool) -> bool:
    """Lock or free an open file; False if its file system has no locks."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX if lock else fcntl.LOCK_UN)
    except OSError as exc:
        if exc.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
            raise
        return False
    return True


def _forget_locks() -> None:
    """In a forked child: the parent holds these locks, and a copy of their descriptors would keep them."""
    for known in _file_locks.values():
        lock = known()
        if lock is not None:
            lock.close()
    _file_locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
