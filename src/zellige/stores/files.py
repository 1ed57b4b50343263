"""Files: atomic writes, what survives a power cut, and what dead writers left behind.

A value is written to a temporary file beside its place and renamed onto it, so that neither a reader nor a crash sees
half of it. The name of a temporary file names its writer: another process removes it when the writer is dead.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from io import FileIO
from itertools import count
from typing import Any, TypeAlias, TypeVar

import numpy as np

from zellige import kernel
from zellige.stores.base import TEMPORARY, ContentTag, Value, digest, resolve_span
from zellige.stores.locks import FileLock, remove_free_lock
from zellige.types import Buffer, Kept, Span

T = TypeVar("T")
Place: TypeAlias = Callable[[str, str], bool]
"""Puts a temporary file into its place, and returns whether it did."""
Part: TypeAlias = Buffer | Callable[[int, int], int]
"""Part of a value to be written: bytes, or a function that writes to a file at a position and returns the next one."""

MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""Errors that mean that there is no such file: a name that the file system cannot hold is not there either."""
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Without O_NONBLOCK, opening a FIFO waits for a writer. Links are resolved, and checked, before."""
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_CHECKED = 1 << 20  # bytes; a longer range is compared with the size before memory is allocated for it
_FAR = 1 << 62  # so is a range that starts beyond any file
_TRIES = 32  # attempts to create a directory while another process removes it
_AT_ONCE = 512  # buffers for one call of pwritev; the system takes at most 1024
_CANNOT_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
_LOCK = "lock-"

_numbers = count()  # make the names of temporary files unique in this process


# -- reading --------------------------------------------------------------------------------------


def regular(info: os.stat_result) -> int:
    """Return the size of a regular file; OSError for anything else."""
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    number = errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.ESPIPE
    raise OSError(number, os.strerror(number))


class FileTag(ContentTag):
    """A tag of a file: its inode, time and size, which only two writes within one tick of the clock can share."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "-".join(f"{number:x}" for number in self.name)


def read(fd: int, key: str, spans: Sequence[Span] | None) -> Value:
    """Read a whole value, or ranges of it."""
    info = os.fstat(fd)
    size = regular(info)
    name = info.st_ino, info.st_mtime_ns, size
    if spans is not None:
        return Value([read_range(fd, key, *span) for span in spans], size, FileTag(name, None))
    value = os.pread(fd, size + 1, 0)
    if len(value) != size:  # it was changed meanwhile
        value = FileIO(fd, closefd=False).readall()
    return Value((value,), len(value), FileTag(name, value))


def read_range(fd: int, key: str, start: int, length: int | None) -> bytes:
    """Read exactly these bytes; see `Store.read`."""
    begin, count = start, length
    if count is None or not (0 < count <= _CHECKED and 0 <= begin <= _FAR):
        begin, count = resolve_span(key, start, length, regular(os.fstat(fd)))
    data = pread(fd, count, begin)
    if len(data) < count:
        resolve_span(key, start, length, regular(os.fstat(fd)))
        raise OSError(errno.EIO, "the value became shorter while it was read")
    return data


def read_fresh(fd: int, key: str, start: int, length: int, size: int) -> memoryview:
    """Read exactly these bytes of a value of a known size, into memory that is nobody else's and may be changed."""
    begin, count = resolve_span(key, start, length, size)
    fresh, done = np.empty(count, np.uint8).data, 0
    while done < count:
        more = os.preadv(fd, [fresh[done:]], begin + done)
        if not more:
            raise OSError(errno.EIO, "the value became shorter while it was read")
        done += more
    return fresh


def pread(fd: int, count: int, start: int) -> bytes:
    """Read so many bytes from a position, fewer only at the end of the file."""
    data = os.pread(fd, count, start)
    while len(data) < count and (more := os.pread(fd, count - len(data), start + len(data))):
        data += more
    return data


def resolved(path: str) -> str:
    """Return what `os.path.realpath` returns for an absolute path, by one system call if there are no links in it."""
    if kernel.native is not None and kernel.native.has_no_links(os.fsencode(path)):
        return path
    return os.path.realpath(path)


def encloses(target: str, path: str) -> bool:
    """Whether a link at this path leads back to where it lies, in a circle."""
    return bool(target) and (os.path.realpath(os.path.dirname(path)) + "/").startswith(target.rstrip("/") + "/")


# -- writing --------------------------------------------------------------------------------------


def temporary_name() -> str:
    """Return how the names of this process's unfinished files begin; `-` and something unique follow."""
    return f"{TEMPORARY}{owner(os.getpid())}"


def write(
    folder: str, path: str, parts: Sequence[Part], place: Place, *, sync: bool = False, held: FileLock | None = None
) -> bool:
    """Write a temporary file and put it into its place; it is removed if anything fails.

    The file of a lock that is `fresh` is used instead; if that fails, the owner of the lock removes it.
    """
    if held is not None:
        _fill(held.fileno(), parts, sync)
        held.become(path)
        return True
    temporary = f"{folder}{temporary_name()}-{next(_numbers)}"
    opened: list[int] = []
    try:
        try:
            opened.extend(map(os.open, (temporary,), (_WRITE,), (0o666,)))  # no interrupt comes in between
            _fill(opened[0], parts, sync)
        finally:
            for fd in opened:
                os.close(fd)
        return place(temporary, path)
    except BaseException:
        if opened:
            unlink(temporary)
        raise


def _fill(fd: int, parts: Sequence[Part], sync: bool) -> None:
    at = 0
    buffers: list[Buffer] = []
    for part in parts:
        if callable(part):
            at = part(fd, write_at(fd, buffers, at))
            buffers = []
        else:
            buffers.append(part)
    write_at(fd, buffers, at)
    if sync:
        os.fsync(fd)


def write_at(fd: int, parts: Sequence[Buffer], at: int) -> int:
    """Write buffers to a file from a position on, in as few calls as the system allows; return where they end."""
    for first in range(0, len(parts), _AT_ONCE):
        some, end = parts[first : first + _AT_ONCE], at
        for part in some:
            end += memoryview(part).nbytes
        at += os.pwritev(fd, some, at)
        while at < end:
            at += os.pwrite(fd, memoryview(b"".join(some))[at - end :], at)
    return at


def copy_kept(source: int, kept: Kept, target: int, at: int) -> int:
    """Copy bytes of one file to a position in another, and return where they end.

    The system copies; some file systems share the bytes on the disk.
    """
    start, stop = kept.start, kept.start + kept.length
    while start < stop:
        count = 0
        try:
            count = os.copy_file_range(source, target, stop - start, start, at)
        except AttributeError:  # not on every platform
            pass
        except OSError as exc:
            if exc.errno not in _CANNOT_COPY:
                raise
        if not count:  # not possible between these two, or there is nothing more
            part = os.pread(source, min(stop - start, _CHECKED), start)
            if not part:
                raise OSError(errno.EIO, "the value became shorter while it was copied")
            count = write_at(target, [part], at) - at
        start, at = start + count, at + count
    return at


def rename(temporary: str, path: str) -> bool:
    """Put a file into its place, over what is there."""
    os.replace(temporary, path)
    return True


def link(temporary: str, path: str) -> bool:
    """Put a file into its place; False if something is there."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        unlink(temporary)
    return True


def rename_folder(base: str, old: str, new: str) -> None:
    """Move a directory."""
    in_folder(base, new.rstrip("/"), lambda _: os.rename(old, new))
    _durable.clear()


def unlink(path: str) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def in_folder(base: str, path: str, action: Callable[[str], T]) -> T:
    """Do something in a file's directory, which is created if missing; retry, as others may be removing it."""
    folder = path[: path.rindex("/") + 1]
    for _ in range(_TRIES):
        try:
            return action(folder)
        except FileNotFoundError:
            with suppress(FileNotFoundError, FileExistsError):
                _make_folders(base, folder)
    return action(folder)


def _make_folders(base: str, folder: str) -> None:
    path = folder.rstrip("/")
    while path and not os.path.isdir(path):
        _durable.discard(path)
        if len(path) < len(base):
            _made.add(path)
        path = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)


# -- power cuts -----------------------------------------------------------------------------------

_REMEMBERED = 1 << 16
_durable: set[str] = set()
"""Directories whose entries in their parents survive a power cut, as far as this process knows."""
_made: set[str] = set()
"""Roots of stores and directories above, created by this process, whose entries may not survive a power cut yet."""
_batch: ContextVar[set[str] | None] = ContextVar("_batch", default=None)
"""The directories to be synchronised at the end of this thread's batch."""


def sync_up(base: str, folder: str) -> None:
    """Make what a directory lists survive a power cut, and the entries of the directory and those above it.

    Up to the store's root, or further where this process created that. Directories below the root may have been created
    without fsync, by the kernel or by another process.
    """
    folders, top = [folder.rstrip("/") or "/"], base.rstrip("/") or "/"
    while folders[-1] not in _durable and (len(folders[-1]) > len(top) or folders[-1] in _made):
        folders.append(os.path.dirname(folders[-1]))
    sync_folders(folders)


def sync_folders(folders: Iterable[str]) -> None:
    """Make what directories list survive a power cut, now or at the end of this thread's batch."""
    batch = _batch.get()
    if batch is None:
        _sync(set(folders))
    else:
        batch.update(folders)


def _sync(folders: set[str]) -> None:
    for folder in sorted(folders):
        sync_folder(folder)
    if len(_durable) > _REMEMBERED:
        _durable.clear()
    listed = {folder for folder in folders if os.path.dirname(folder) in folders}
    _durable.update(listed)
    _made.difference_update(listed)


def sync_folder(path: str) -> None:
    """Make what a directory lists survive a power cut."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as exc:
        exc.filename = path
        raise


@contextmanager
def batch(base: str) -> Iterator[Callable[..., Any]]:
    """Synchronise the directories of many writes once each, at the end.

    Yields a function that calls another one as part of the batch, with the threads that it uses. Its context is entered
    and left in C: an interrupt at a bad moment cannot leave a thread in a batch that never ends.
    """
    folders: set[str] = set()
    context = copy_context()
    context.run(_batch.set, folders)
    try:
        yield context.run
    except BaseException as error:
        try:
            _sync(folders)  # what was written shall last
        except OSError as exc:
            error.add_note(f"and what was written may not survive a power cut: {exc}")
        raise
    try:
        _sync(folders)
    except OSError as exc:
        raise OSError(exc.errno, f"key {exc.filename[len(base) :]!r}: {exc.strerror}", exc.filename) from exc


# -- writers, and what dead ones left --------------------------------------------------------------


@cache
def owner(pid: int) -> str:
    """Name a writer: the process, when it began, and the machine or container where its number is valid."""
    return f"{pid}.{_status(pid)[1]}.{_space()}"


if hasattr(os, "register_at_fork"):  # the child may have the number of a dead process
    os.register_at_fork(after_in_child=owner.cache_clear)


@cache
def _space() -> str:
    """Name this boot of this machine and its process numbers, which containers have of their own."""
    parts = [os.uname().nodename]
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        parts.append(file.read())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return digest("\n".join(parts).encode())[:12]


def _status(pid: int) -> tuple[str, str]:
    """Return the letter of a process's state, and when it began; both empty if unknown.

    When it began distinguishes a process from a later one with its number.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def is_running(writer: str) -> bool | None:
    """Whether a process, as `owner` names it, has not ended; None if unknown, as for those of other machines."""
    pid, _, more = writer.partition(".")
    began, _, space = more.partition(".")
    if not (pid.isascii() and pid.isdecimal()) or space != _space():
        return None
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    state, since = _status(int(pid))
    if not began or not since:
        return None  # another process may have its number now
    # A zombie has ended.
    return state not in ("Z", "X") and since == began


def clean(folder: str, name: str) -> bool:
    """Remove a temporary file if its writer has ended, or the file of a lock that is free."""
    rest = name.removeprefix(TEMPORARY)
    if rest.startswith(_LOCK):
        return remove_free_lock(folder + name)
    if is_running(rest.rpartition("-")[0]) is not False:
        return False
    try:
        os.unlink(folder + name)
    except OSError:  # already gone, or not permitted
        return False
    return True


def lock_name(key: str) -> str:
    """Return the name of the file that is locked for a key, in the key's directory."""
    return f"{TEMPORARY}{_LOCK}{digest(key[key.rfind('/') + 1 :].encode(errors='surrogateescape'))}"


# -- removing -------------------------------------------------------------------------------------


def remove_tree(top: str, *, keep_top: bool) -> None:
    """Remove a directory with everything in it; links are removed, not what they lead to."""
    if not keep_top and os.path.islink(top) and os.path.isdir(top):
        unlink(top)
    folders = [top]
    for folder in folders:  # grows on the way
        for path, is_folder in _content(folder):
            if is_folder:
                folders.append(path)
            else:
                unlink(path)
    for folder in reversed(folders[1:] if keep_top else folders):
        _remove_empty(folder)


def prune(top: str, owned: Callable[[str], bool], folder: str = "") -> None:
    """Remove the directories below one, and itself, that hold nothing and are owned; links stay."""
    for path, is_folder in _content(top + folder):
        name = path[len(top) :]
        if is_folder and owned(name):
            prune(top, owned, name)
    if owned(folder) and not os.path.islink((top + folder).rstrip("/")):
        _remove_empty(top + folder)


def _remove_empty(folder: str) -> None:
    """Remove a directory if it is empty."""
    _durable.discard(folder.rstrip("/"))
    try:
        os.rmdir(folder)
    except OSError as exc:
        if exc.errno not in MISSING | {errno.ENOTEMPTY, errno.EEXIST}:
            raise


def remove_link(path: str) -> bool:
    """Remove a link; False if it is none."""
    if not os.path.islink(path):
        return False
    unlink(path)
    sync_folders([os.path.dirname(path)])
    return True


def _content(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths in a directory, and whether each is a directory; nothing if it is gone."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError as exc:
        if exc.errno in MISSING:
            return
        raise
    yield from found
