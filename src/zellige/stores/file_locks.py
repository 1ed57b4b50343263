"""Locks of files against other processes."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from io import FileIO
from typing import Self
from weakref import ref

from zellige.stores.files import in_folder

_LOCK_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class FileLock(FileIO):
    """A file locked against other processes, there only while somebody holds the lock or waits for it, or a value then.

    Closing it frees the lock, and so does the system when the process dies. `with` closes it in C, as it frees a
    `KeyLock`. A file system without locks is no error: there only the threads of one process are kept apart.
    """

    def __init__(self, path: str) -> None:
        # Few calls: what lets other threads run between two that take long costs more than the calls themselves.
        fd = os.open(path, _LOCK_FLAGS | os.O_CREAT, 0o666)
        super().__init__(fd, "r+")
        try:
            self.path = path
            self.is_value = False
            _file_locks[fd] = ref(self)
            locked = _flock(fd, fcntl.LOCK_EX)
            self._mine = mine = os.fstat(fd)
            self.fresh = locked and not mine.st_size and mine.st_nlink == 1
            """Whether a value may be written into the file: what a process that died has left in it, or a backup made
            of links, is nobody's to overwrite, nor is what others write who could not be locked out."""
        except BaseException:
            self.close()
            raise

    @classmethod
    def taken(cls, path: str) -> Self:
        """The lock of a path, once nobody else has it; its directory is made if missing."""
        while True:
            try:
                lock = cls(path)
            except FileNotFoundError:
                lock = in_folder(path, lambda _: cls(path))
            if lock.is_in_place():
                return lock
            lock.close()

    def is_in_place(self) -> bool:
        """Whether the file is the one of its path: who held it before has removed it, and the next made another."""
        try:
            return os.path.samestat(self._mine, os.stat(self.path))
        except FileNotFoundError:
            return False
        except BaseException:
            self.close()
            raise

    def become(self, path: str) -> None:
        """Rename the file, over what may be there: it is a value now, and who waits for the lock makes another."""
        if not self.is_in_place():  # somebody removed it, and another may have made one
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        os.replace(self.path, path)
        self.is_value = True
        self._free()

    def remove(self) -> None:
        """Remove the file and free the lock; in a forked child nothing, because the parent holds it."""
        if self.closed:
            return
        # Somebody may have removed the file, and then the one of this name is another.
        if self.is_in_place():
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        self._free()

    def _free(self) -> None:
        # Closing alone does not while a process that is being started has a copy of the descriptor.
        _flock(self.fileno(), fcntl.LOCK_UN)


_file_locks: dict[int, ref[FileLock]] = {}
"""By their descriptors, so that there are no more of them than files that were ever open at once."""


def remove_free_lock(path: str) -> bool:
    """Remove the file of a lock that nobody holds; those who wait for it make another."""
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


def _flock(fd: int, how: int) -> bool:
    """Lock or free an open file; False if its file system has no locks."""
    try:
        fcntl.flock(fd, how)
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
