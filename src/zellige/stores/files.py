"""Files that are written whole or not at all, and what dead writers left behind.

A value is written to a temporary file beside its place and renamed onto it, so that neither a reader nor a crash
sees half of it. The name of a temporary file says who writes it: another process removes it when that one is dead.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from zellige import kernel
from zellige.stores.abilities import Joined, Work
from zellige.stores.base import MISSING, NOT_EMPTY, TEMPORARY, Value, digest, resolve_span
from zellige.types import Buffer, Span

if TYPE_CHECKING:
    from zellige.stores.file_locks import FileLock

T = TypeVar("T")
Place: TypeAlias = Callable[[str, str], bool]
"""Puts a temporary file into its place, and tells whether it did."""
Part: TypeAlias = Buffer | Callable[[int], None]
"""Of a value that is written: bytes, or what appends some to a file, whose descriptor it gets."""

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Without O_NONBLOCK the opening of a FIFO waits for a writer; what a link leads to is looked at before."""
_KIND, _REGULAR = 0o170000, stat.S_IFREG  # of the mode, what kind of file it is
_GUESS = 64 << 10  # read at once of what a file has more than it said
CHECKED = 1 << 20
"""A longer range is compared with the size before memory is taken for it."""
_FAR = 1 << 62  # so is one that starts where no file reaches
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_TRIES = 32  # how often a write makes its directory while somebody else removes it
_AT_ONCE = 512  # buffers for one call of writev; the system takes at most 1024
_MADE = 1 << 16  # directories that are remembered as not synchronised
_LOCK = "lock-"

_numbers = count()


# -- reading --------------------------------------------------------------------------------------


def regular(info: os.stat_result) -> int:
    """The size of a regular file; other things are not values."""
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    number = errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.ESPIPE
    raise OSError(number, os.strerror(number))


class FileTag(NamedTuple):
    """A tag of a file: what changes with every write, and the content if that was read as well.

    Two writes within one tick of the clock may give the same inode and time, so the content has its say where both
    tags know it.
    """

    inode: int
    mtime: int
    size: int
    content: bytes | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileTag) or self[:3] != other[:3]:
            return False
        return None in (self.content, other.content) or self.content == other.content

    def __ne__(self, other: object) -> bool:
        return not self == other  # that of a tuple would compare the contents

    def __hash__(self) -> int:
        return hash(self[:3])

    def __repr__(self) -> str:
        return "-".join(f"{number:x}" for number in self[:3])


def read(fd: int, key: str, spans: Sequence[Span] | None) -> Value:
    """A whole value, or ranges of it."""
    info = os.fstat(fd)
    size = info.st_size if info.st_mode & _KIND == _REGULAR else regular(info)
    if spans is None:
        value = os.pread(fd, size + 1, 0)
        if len(value) != size:
            value = _read_rest(fd, value, size)
        return Value((value,), len(value), FileTag(info.st_ino, info.st_mtime_ns, size, value))
    return Value(
        [read_range(fd, key, *span) for span in spans], size, FileTag(info.st_ino, info.st_mtime_ns, size, None)
    )


def _read_rest(fd: int, value: bytes, size: int) -> bytes:
    """The value from its beginning on, of a file that may not have the size that it said."""
    parts, at = [value], len(value)
    while part := os.pread(fd, max(size + 1 - at, _GUESS), at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def resolved(path: str) -> str:
    """An absolute path without links, as `os.path.realpath` gives it, but by one system call where there are none."""
    if kernel.native is not None and kernel.native.has_no_links(os.fsencode(path)):
        return path
    return os.path.realpath(path)


def encloses(target: str, path: str) -> bool:
    """Whether a link at this path leads back to where it lies, in a circle."""
    return bool(target) and (os.path.realpath(os.path.dirname(path)) + "/").startswith(target.rstrip("/") + "/")


def read_range(fd: int, key: str, start: int, length: int | None) -> bytes:
    """Exactly these bytes; see `Store.read`."""
    begin, count = start, length
    if count is None or not (0 < count <= CHECKED and 0 <= begin <= _FAR):
        begin, count = resolve_span(key, start, length, regular(os.fstat(fd)))
    data = os.pread(fd, count, begin)
    while len(data) < count:
        more = os.pread(fd, count - len(data), begin + len(data))
        if not more:
            resolve_span(key, start, length, regular(os.fstat(fd)))
        data += more
    return data


# -- writing --------------------------------------------------------------------------------------


_made_in: dict[str, int] = {}
"""Directories in which this process made others, and which were not synchronised since, with a number for each time.
Those that hold only chunks are not among them."""


def in_folder(path: str, action: Callable[[str], T]) -> T:
    """Do it in the file's directory, made only if missing; again, because somebody may be removing it."""
    folder = path[: path.rindex("/") + 1]
    for _ in range(_TRIES):
        try:
            return action(folder)
        except FileNotFoundError:
            with suppress(FileNotFoundError, FileExistsError):
                _make_folders(folder)
    return action(folder)


def _make_folders(folder: str) -> None:
    if len(_made_in) > _MADE:
        _sync_everything()
    missing = folder.rstrip("/")
    while missing and not os.path.isdir(missing):
        missing = os.path.dirname(missing)
        _made_in[missing] = next(_numbers)
    os.makedirs(folder, exist_ok=True)


def _sync_everything() -> None:
    """Make all directories durable in one call, so that no more of them need to be remembered."""
    noted = _made_in.copy()
    os.sync()
    for path, number in noted.items():
        if _made_in.get(path) == number:  # else another was made in it meanwhile
            _made_in.pop(path, None)


def unsynchronised(folder: str) -> list[str]:
    """The directories above one in which this process made others, so that one may be lost with them."""
    found, above = [], folder.rstrip("/")
    while above not in ("", "/"):
        above = os.path.dirname(above)
        if above in _made_in:
            found.append(above)
    return found


def temporary_name() -> str:
    """How the names of this process's unfinished files begin; a `-` and something that tells them apart follows."""
    return f"{TEMPORARY}{owner(os.getpid())}"


def write(
    folder: str, path: str, parts: Sequence[Part], place: Place, *, sync: bool = False, held: FileLock | None = None
) -> bool:
    """Write a temporary file and put it into its place; whatever happens, it does not stay behind.

    With a lock that is `fresh`, its file serves and is renamed; if that fails, who holds the lock removes it.
    """
    if held is not None:
        _fill(held.fileno(), parts, sync)
        held.become(path)
        return True
    temporary = f"{folder}{temporary_name()}-{next(_numbers)}"
    fd = os.open(temporary, _WRITE, 0o666)
    try:
        try:
            _fill(fd, parts, sync)
        finally:
            os.close(fd)
        return place(temporary, path)
    except BaseException:
        unlink(temporary)
        raise


def _fill(fd: int, parts: Sequence[Part], sync: bool) -> None:
    if len(parts) == 1 and not callable(parts[0]):
        write_one(fd, parts[0])
    else:
        _write_parts(fd, parts)
    if sync:
        os.fsync(fd)


def write_one(fd: int, part: Buffer) -> None:
    """Append some bytes to a file."""
    written = os.write(fd, part)
    if written < memoryview(part).nbytes:
        rest = memoryview(part).cast("B")
        while written < len(rest):
            written += os.write(fd, rest[written:])


def _write_parts(fd: int, parts: Sequence[Part]) -> None:
    """Write buffers, in as few calls as the system allows, and what appends itself."""
    buffers: list[Buffer] = []
    for part in parts:
        if callable(part):
            _write_all(fd, buffers)
            part(fd)
            buffers = []
        else:
            buffers.append(part)
    _write_all(fd, buffers)


def _write_all(fd: int, parts: Sequence[Buffer]) -> None:
    """Write all parts, in as few calls as the system allows."""
    for first in range(0, len(parts), _AT_ONCE):
        _write_some(fd, parts[first : first + _AT_ONCE])


def _write_some(fd: int, parts: Sequence[Buffer]) -> None:
    written = os.writev(fd, parts)
    total = sum(memoryview(part).nbytes for part in parts)
    while written < total:
        written += os.write(fd, memoryview(b"".join(parts))[written:])


def rename(temporary: str, path: str) -> bool:
    """Put a file into its place, over what may be there."""
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


def unlink(path: str) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def sync_folder(path: str) -> None:
    """Make what a directory lists survive a power cut."""
    path = path.rstrip("/")
    made = _made_in.pop(path, None)  # before: what is made meanwhile is noted again
    try:
        fd = os.open(path or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError:
        if made is not None:
            _made_in[path] = made
        raise


class _Batch(threading.local):
    folders: set[str] | None = None
    """The directories to be synchronised at the end of what this thread works for."""


_batch = _Batch()


def sync_folders(folders: Sequence[str]) -> None:
    """Make directories durable, now or at the end of the batch that this thread works for."""
    if _batch.folders is not None:
        _batch.folders.update(folder.rstrip("/") for folder in folders)
        return
    for folder in folders:
        sync_folder(folder)


@contextmanager
def batch(base: str) -> Iterator[Joined]:
    """Around many writes below a directory: those below are made durable once each, at the end."""
    folders: set[str] = set()

    def joined(work: Work) -> Work:
        def within(task: Any) -> None:
            before, _batch.folders = _batch.folders, folders
            try:
                work(task)
            finally:
                _batch.folders = before

        return within

    try:
        yield joined
    except BaseException as error:
        try:
            _sync_all(folders, base)  # what was written is to last
        except OSError as exc:
            error.add_note(f"and what was written may not survive a power cut: {exc}")
        raise
    _sync_all(folders, base)


def _sync_all(folders: set[str], base: str) -> None:
    for folder in sorted(folders):
        try:
            sync_folder(folder)
        except OSError as exc:
            raise OSError(exc.errno, f"key {folder[len(base) :]!r}: {exc.strerror}", folder) from exc


# -- what dead writers left -----------------------------------------------------------------------


@cache
def owner(pid: int) -> str:
    """Who writes: the process, when it began, and where such numbers mean the same."""
    return f"{pid}.{_began(pid)}.{_space()}"


if hasattr(os, "register_at_fork"):  # a later process may have the number of one that is dead
    os.register_at_fork(after_in_child=owner.cache_clear)


@cache
def _space() -> str:
    """A name for this boot of this machine and its processes; those of other containers have numbers of their own."""
    parts = [os.uname().nodename]
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        parts.append(file.read())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return digest("\n".join(parts).encode())[:12]


def _began(pid: int) -> str:
    """When a process began, so that a later one with its number is told from it; empty if the system does not say."""
    return _status(pid)[1]


def _status(pid: int) -> tuple[str, str]:
    """The letter of a process's state, and when it began; both empty if the system does not say."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "", ""


def clean(folder: str, name: str) -> bool:
    """Remove a temporary file that is nobody's any more, as far as can be told from here."""
    rest = name.removeprefix(TEMPORARY)
    if rest.startswith(_LOCK):
        from zellige.stores.file_locks import remove_free_lock  # only for those who clean

        return remove_free_lock(folder + name)
    if not is_dead(rest.rpartition("-")[0]):
        return False
    try:
        os.unlink(folder + name)
    except OSError:  # somebody else was faster, or may do what we may not
        return False
    return True


def is_dead(writer: str) -> bool:
    """Whether a process, as `owner` names it, is known to have ended; False for one of another machine."""
    return is_running(writer) is False


def is_running(writer: str) -> bool | None:
    """Whether a process, as `owner` names it, has not ended, also if it is stopped; None if that cannot be told."""
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
    # A zombie has ended, and waits only for its parent to ask how.
    return state not in ("Z", "X") and since == began


def lock_name(key: str) -> str:
    """The file that is locked for a key, in the key's directory."""
    return _lock_of(key[key.rfind("/") + 1 :])


@lru_cache(4096)  # the chunks of a grid have few names, in many directories
def _lock_of(name: str) -> str:
    return f"{TEMPORARY}{_LOCK}{digest(os.fsencode(name))}"


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


def _remove_empty(folder: str) -> None:
    """Remove a directory; one that is gone already, a file, or holds something stays as it is."""
    try:
        os.rmdir(folder)
    except OSError as exc:
        if exc.errno not in MISSING | NOT_EMPTY:
            raise


def prune(top: str, owned: Callable[[str], bool], folder: str = "") -> None:
    """Remove the directories below one, and itself, that hold nothing and are owned; links stay."""
    for path, is_folder in _content(top + folder):
        name = path[len(top) :]
        if is_folder and owned(name):
            prune(top, owned, name)
    if owned(folder) and not os.path.islink((top + folder).rstrip("/")):
        _remove_empty(top + folder)


def remove_link(path: str) -> bool:
    """Remove a link; False if it is none."""
    if not os.path.islink(path):
        return False
    unlink(path)
    sync_folders([os.path.dirname(path)])
    return True


def unlinked(base: str, folder: str, below: str, known: dict[str, bool]) -> bool:
    """Whether a link led to a directory, further down than `below`; it is removed then. `known` are those seen."""
    if len(folder) <= len(below):
        return False
    if folder not in known:
        above = folder[: folder.rstrip("/").rfind("/") + 1]
        known[folder] = unlinked(base, above, below, known) or remove_link((base + folder).rstrip("/"))
    return known[folder]


def sync_those_left(folders: Iterable[str]) -> None:
    """Make directories durable, but those that are gone."""
    sync_folders([folder for folder in folders if os.path.isdir(folder)])


def _content(folder: str) -> Iterator[tuple[str, bool]]:
    """The paths in a directory, and whether each is a directory itself; nothing if it is gone."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError as exc:
        if exc.errno in MISSING:
            return
        raise
    yield from found
