"""Values in a zip archive."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Hashable, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Literal, Self, TypeAlias, get_args

from zellige.errors import ConflictError, ZelligeWarning
from zellige.stores import files
from zellige.stores.archive import (
    Document,
    Draft,
    Entry,
    FileSource,
    Place,
    Source,
    check_name,
    open_source,
    read_directory,
)
from zellige.stores.base import (
    ABSENT,
    DOCUMENTS,
    TEMPORARY,
    Listing,
    Missing,
    Store,
    Tag,
    Traits,
    Value,
    check_key,
    check_keys,
    check_prefix,
    parts_of,
)
from zellige.stores.locks import FileLock
from zellige.types import Buffer, Durability, Encoded, Span

Mode: TypeAlias = Literal["r", "r+", "a", "w", "x"]


class ZipStore(Store):
    """The entries of a zip archive: a path, a file object, or `(store, key)` for an archive that is a value elsewhere.

    `mode` is as in `zellige.open`, by default "r", or "a" with `read_only=False`; only a path can be written to.

    **Writing is a transaction.** Chunks go to a draft beside the archive, uncompressed, documents stay in memory, and
    `close` puts the new archive into the place of the old one. Leaving a `with` block by an exception, a kill, or
    forgetting to close keeps the old archive as it was; the latter warns. No entry is ever there twice. Changing an
    archive copies what stays. One process writes; if another replaced the archive meanwhile, `close` raises
    `ConflictError`.

    `path` is the folder of the archive that is the root of the store. By default that is the archive's own root,
    except when nothing lies there but one folder (and others that begin with `__`) which holds the documents of a
    node: then it is that folder, and keys that begin with its name mean the same (`x.zarr/t` and `t`), unless the
    folder holds something of its own name. `path=""` always means the archive's own root.

    In an archive in which a name is there twice, as zarr-python writes it whenever a document or a chunk changes, the
    last one counts, and changing the archive drops the others. `duplicates="error"` refuses such an archive.
    """

    def __init__(
        self,
        source: Place,
        mode: Mode | None = None,
        *,
        read_only: bool | None = None,
        path: str | None = None,
        duplicates: Literal["error", "last"] = "last",
    ) -> None:
        refuses, self._mode = _modes(mode, read_only)
        self._source = os.path.realpath(source) if isinstance(source, str | os.PathLike) else source
        self._path = None if path is None else path.strip("/")
        if self._path:
            check_key(self._path)
        if duplicates not in ("error", "last"):
            raise ValueError(f"duplicates={duplicates!r} must be 'error' or 'last'")
        self._duplicates = duplicates
        self._open(refuses)

    def _open(self, read_only: bool) -> None:
        self._owner = True
        self._archive = _Archive(self._source, self._mode, self._duplicates)
        found = _root_of(self._archive.entries) if self._path is None else self._path
        self._prefix = found and found + "/"
        # Where the root was chosen here, others mean the archive's own.
        named = self._path is None and not any(name.startswith(self._prefix * 2) for name in self._archive.entries)
        self._alias = self._prefix if named else ""
        base = self._source[0].traits if isinstance(self._source, tuple) else Traits()
        self.traits = Traits(
            read_only=read_only, concurrency=base.concurrency, coalesce_gap=base.coalesce_gap, transactional=True
        )

    # -- reading ----------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        """Return the name in the archive of a key, or of a prefix."""
        return key if self._alias and key.startswith(self._alias) else self._prefix + key

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read a whole value, or ranges of it; see `Store.read`."""
        found = self._archive.entries.get(self._name(check_key(key)))
        return None if found is None else found.read(key, spans)

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, or one level of them."""
        top = self._name(check_prefix(prefix))
        cut = len(top) - len(prefix)
        if recursive:
            return Listing([name[cut:] for name in tuple(self._archive.entries) if name.startswith(top)])
        names, folders = self._archive.folders().get(top, ((), ()))
        return Listing([name[cut:] for name in names], [folder[cut:] for folder in folders])

    # -- writing ----------------------------------------------------------------------------------

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing, maybe on a condition; parts are not joined in memory."""
        self.check_writable()
        return self._archive.write(self._name(check_key(key)), parts_of(value), if_tag)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys; nothing happens for those that are not there."""
        self.check_writable()
        for key in check_keys(keys):
            self._archive.delete(self._name(key))

    def check_writable(self) -> None:
        """Raise if the store refuses to write, or its archive is closed."""
        super().check_writable()
        self._archive.check_writer()

    def close(self) -> None:
        """Put what was written into the place of the old archive; a read-only view of it does nothing."""
        if self._owner:
            self._archive.close(keep=True)

    def discard(self) -> None:
        """Close, and keep the archive as it was before it was opened."""
        if self._owner:
            self._archive.close(keep=False)

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.close()
        else:
            self.discard()

    # -- views ------------------------------------------------------------------------------------

    @property
    def identity(self) -> Hashable:
        """The archive as it was opened, or this transaction."""
        return ("zip", self._archive.identity, self._prefix)

    def name(self, key: str) -> Hashable:
        """Return one name for a key, whichever way it is spelt."""
        return super().name(self._name(check_key(key))[len(self._prefix) :])

    def with_durability(self, durability: Durability) -> Self:
        """Return the store itself: closing makes all that was written survive a power cut."""
        return self

    def as_read_only(self) -> Self:
        """Return the same archive through a store that refuses to write."""
        view = super().as_read_only()
        view._owner = False
        return view

    def __getstate__(self) -> dict[str, Any]:
        if self._mode != "r":
            raise TypeError(
                f"{self!r} is open for writing and cannot be pickled, since one process writes an archive; close it "
                "and pickle one that is opened with mode='r'"
            )
        if not isinstance(self._source, str | tuple):
            raise TypeError(f"{self!r} reads a file object and cannot be pickled; open the archive by its path")
        return {"_source": self._source, "_path": self._path, "_duplicates": self._duplicates}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _mode="r")
        self._open(read_only=True)

    def __repr__(self) -> str:
        path = f", path={self._prefix[:-1]!r}" if self._prefix else ""
        mode = ", read_only=True" if self.read_only else f", mode={self._mode!r}"
        return f"{type(self).__name__}({self._source!r}{path}{mode})"


def _modes(mode: str | None, read_only: bool | None) -> tuple[bool, str]:
    """Whether a store refuses to write, and how its archive is opened."""
    if mode is None:
        mode = "a" if read_only is False else "r"
    if mode not in get_args(Mode):
        raise ValueError(f"mode={mode!r} must be one of {', '.join(map(repr, get_args(Mode)))}")
    if read_only is None:
        read_only = mode == "r"
    if (read_only and mode in "wx") or (not read_only and mode == "r"):
        raise ValueError(f"mode={mode!r} contradicts read_only={read_only}; leave one of them out")
    return read_only, "r" if read_only else mode


def _root_of(names: dict[str, Any]) -> str:
    """Return the one folder that is a node, where there is nothing beside it; see `ZipStore`."""
    tops = {name[: name.find("/") + 1] for name in names if not name.startswith("__")}
    if len(tops) != 1:
        return ""
    (top,) = tops
    return top[:-1] if any(top + name in names for name in DOCUMENTS) else ""


class _Archive:
    """An open archive, shared by a store and its read-only views: values by their names, and the draft of the next."""

    def __init__(self, source: Place, mode: str, duplicates: str) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._writers, self._closed = 0, False
        self._mode, self._changed = mode, mode in "wx"
        self._folders: dict[str, tuple[list[str], set[str]]] | None = None
        self._entries: dict[str, Entry | Document] | None = {}
        self._base: Source | None = None
        self._draft: Draft | None = None
        self.identity: Hashable = id(self)
        if mode == "r":
            self._base = open_source(source)
            self.identity = self._base.identity
        else:
            self._start_draft(source)
        if self._base is not None:
            try:
                self.entries.update(read_directory(self._base, last=duplicates == "last"))
            except BaseException:
                self.close(keep=False)
                raise

    def _start_draft(self, path: Place) -> None:
        if not isinstance(path, str):
            raise ValueError(
                f"mode={self._mode!r}: only an archive that is given by its path can be written; use mode='r'"
            )
        if self._mode == "x" and os.path.lexists(path):
            raise FileExistsError(f"{path!r} is there already; use mode='w' to replace it, or 'a' to change it")
        if self._mode in ("r+", "a"):
            try:
                self._base = FileSource(path)
            except FileNotFoundError:
                if self._mode == "r+":
                    raise
                self._changed = True
        folder = os.path.dirname(path) + "/"
        with suppress(OSError):  # the drafts of writers that are dead
            for name in [name for name in os.listdir(folder) if name.startswith(TEMPORARY)]:
                files.clean(folder, name)
        self._draft = Draft(path)
        # Not the archive itself, which would then never be collected.
        self._forgotten = weakref.finalize(self, _forget, self._draft)

    @property
    def entries(self) -> dict[str, Entry | Document]:
        """The values by their names; raises if the archive is closed."""
        if self._entries is None:
            raise ValueError("the archive is closed; open it again")
        return self._entries

    def check_writer(self) -> Draft:
        """Return the draft; raise where nothing can be written any more."""
        if self._draft is None or self._closed:
            raise ValueError("the archive is closed; open it again")
        if self._draft.pid != os.getpid():
            raise ValueError(
                f"the archive {self._draft.target!r} is written by the process that opened it, not by a fork"
            )
        return self._draft

    def write(self, name: str, parts: Sequence[Buffer], if_tag: Tag | Missing | None) -> bool:
        """Store a value, maybe on a condition; closing waits for it."""
        check_name(name)
        with self._idle:
            draft = self.check_writer()
            self._writers += 1
        try:
            if not self._allows(name, if_tag):
                return False
            is_document = name[name.rfind("/") + 1 :] in DOCUMENTS
            new = Document(b"".join(map(memoryview, parts))) if is_document else draft.add(name, parts)
            with self._lock:
                if not self._allows(name, if_tag):
                    draft.forget(new)
                    return False
                self._put(draft, name, new)
            return True
        finally:
            with self._idle:
                self._writers -= 1
                self._idle.notify_all()

    def _allows(self, name: str, if_tag: Tag | Missing | None) -> bool:
        found = self.entries.get(name)
        return if_tag is None or if_tag == (ABSENT if found is None else found.version)

    def delete(self, name: str) -> None:
        """Remove a value; nothing happens if there is none."""
        with self._lock:
            draft = self.check_writer()
            if name in self.entries:
                self._put(draft, name, None)

    def _put(self, draft: Draft, name: str, new: Entry | Document | None) -> None:
        """Put a value into the place of another, under the lock."""
        old = self.entries.get(name)
        if new is None:
            del self.entries[name]
        else:
            self.entries[name] = new
        if old is None or new is None:
            self._folders = None
        draft.forget(old)
        self._changed = draft.changed = True

    def folders(self) -> dict[str, tuple[list[str], set[str]]]:
        """Return the names in each folder, and the folders; worked out once until names come or go."""
        with self._lock if self._draft is not None else nullcontext():
            if self._folders is None:
                self._folders = _by_folder(self.entries)
            return self._folders

    # -- the end ----------------------------------------------------------------------------------

    def close(self, *, keep: bool) -> None:
        """Close it, with what was written or without."""
        draft, done = self._draft, True
        if draft is not None and draft.pid == os.getpid():
            with self._idle:
                done, self._closed = self._closed, True
                self._idle.wait_for(lambda: not self._writers)
        try:
            if draft is not None and keep and self._changed and not done:
                self._commit(draft)
        finally:
            self._entries = self._folders = self._base = None
            if draft is not None:
                self._forgotten.detach()
                draft.remove()

    def _commit(self, draft: Draft) -> None:
        """Complete the draft, anew if it holds what is no longer wanted, and put it into its place."""
        with self._lock:
            final = Draft(draft.target) if draft.dead else draft
            try:
                values = [found for found in self.entries.values() if isinstance(found, Entry)]
                kept = [found if found.source is final else final.copy(found) for found in values]
                # Documents last, beside the directory: those who read from afar get both at once.
                documents = {name: found for name, found in self.entries.items() if isinstance(found, Document)}
                kept += [final.add(name, [documents[name].value]) for name in sorted(documents)]
                self._place(final, kept)
            finally:
                final.remove()

    def _place(self, final: Draft, entries: Sequence[Entry]) -> None:
        if self._mode == "x":
            if not final.finish(entries, files.link):
                raise FileExistsError(f"{final.target!r} was made by somebody else meanwhile; nothing was written")
            return
        with FileLock.taken(final.folder + files.lock_name(final.target)) as lock:
            try:
                if self._mode in ("r+", "a") and not self._is_as_opened(final.target):
                    raise ConflictError(f"{final.target!r} was replaced meanwhile; nothing was written, open it again")
                final.finish(entries, files.rename)
            finally:
                lock.remove()

    def _is_as_opened(self, path: str) -> bool:
        """Whether the archive is still the one that was opened, or still missing."""
        if isinstance(self._base, FileSource):
            return self._base.is_at(path)
        return not os.path.exists(path)


def _by_folder(names: Iterable[str]) -> dict[str, tuple[list[str], set[str]]]:
    """Return the names in each folder, and the folders in it."""
    found: dict[str, tuple[list[str], set[str]]] = {}
    for name in names:
        found.setdefault(_folder_of(name), ([], set()))[0].append(name)
    for folder in tuple(found):
        while folder:
            above = _folder_of(folder)
            folders = found.setdefault(above, ([], set()))[1]
            if folder in folders:
                break
            folders.add(folder)
            folder = above
    return found


def _folder_of(name: str) -> str:
    return name[: name.rfind("/", 0, -1) + 1]


def _forget(draft: Draft) -> None:
    """Remove the draft of a store that was forgotten, or open when the interpreter ended; warn of what is lost."""
    if draft.changed and draft.pid == os.getpid():
        warnings.warn(
            f"the archive {draft.target!r} was written to and was not closed, so that it stays as it was; use "
            "`with zellige.open(…) as node` or `with ZipStore(…) as store`, or call node.store.close()",
            ZelligeWarning,
            stacklevel=2,
        )
    draft.remove()
