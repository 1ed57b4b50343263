"""Keys and their bytes from one store to another: `copy_store`, and the transfer that `copy` and `convert` use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypeAlias

from zellige.display.progress import Progress, ProgressLike, check_progress
from zellige.errors import ConflictError, MetadataError, NodeNotFoundError, UnsafeLinkError, ZelligeError
from zellige.metadata.groups import ARRAY_V2, GROUP_V2
from zellige.metadata.json import read_json
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node, remove
from zellige.nodes.consolidated import meaning
from zellige.nodes.remove import Chunks, Mark, Owners, Removal, Work
from zellige.stores import Store, StoreLike, abilities, finishing, locate, threads
from zellige.stores.abilities import Folders, Obstacle
from zellige.stores.base import DOCUMENTS
from zellige.stores.resolve import Place, place


class _File(Protocol):
    def write(self, text: str, /) -> object: ...


LogLike: TypeAlias = str | os.PathLike[str] | _File | Callable[[str], object] | None


class CopyError(ZelligeError, OSError):
    """A key is in the way, or what arrived is not what was sent; `key` says where."""

    key: str


class _Counts(NamedTuple):
    n_copied: int
    n_skipped: int
    n_bytes_copied: int


class Copied(_Counts):
    """What was copied: three numbers, as a tuple.

    `n_copied` and `n_skipped` are arrays and groups, or keys for `copy_store`. `n_bytes_copied` are bytes as they are
    stored, of chunks and documents; of arrays that were encoded anew, the bytes of their values; in a dry run 0.
    """

    left_out: tuple[str, ...] = ()
    """The keys of the source that belong to no node, and so were not copied."""

    def summary(self, *, dry_run: bool) -> str:
        """One line for people."""
        found = f"{self.n_copied:,} copied, {self.n_skipped:,} skipped"
        return f"dry run: {found}" if dry_run else f"all done: {found}, {self.n_bytes_copied:,} bytes copied"


def copy_store(
    source: StoreLike,
    dest: StoreLike,
    source_path: str = "",
    dest_path: str = "",
    excludes: str | Sequence[str] | None = None,
    includes: str | Sequence[str] | None = None,
    flags: int = 0,
    if_exists: Literal["raise", "replace", "skip"] = "raise",
    dry_run: bool = False,
    verify: bool = False,
    progress: ProgressLike = None,
    log: LogLike = None,
) -> Copied:
    """Copy the keys below one path to another, whatever they are; the metadata of nodes comes last.

    What listings leave out is never left out in silence: a symbolic link that leads out of a local store or nowhere
    raises `UnsafeLinkError`, a FIFO or the like raises `CopyError`, both before anything is written. `excludes` leaves
    them out.

    A source without any key raises `NodeNotFoundError`, and nothing is touched.

    A copy that was stopped is finished by the same call: all keys are copied again, and chunks that the source has no
    longer are removed. Until then there is a mark, and no metadata that would make others take it for whole.

    Parameters
    ----------
    source, dest
        A place each, as `store` elsewhere.
    source_path, dest_path
        The paths within them, below which the keys lie.
    excludes, includes
        A key in which one of the regular expressions `excludes` is found is left out, unless one of `includes` is found
        in it, too.
    flags
        Of the regular expressions, as for `re.compile`.
    if_exists
        For keys that are there already: `"raise"`; `"replace"`, of which metadata is removed first; `"skip"`. A node
        that is replaced by one of the source loses all its old chunks and metadata, as far as the regular expressions
        let their keys through. Nodes that the source does not have, and keys of no node, stay.
    dry_run, verify, progress, log
        See `copy`.

    >>> import zellige
    >>> store = zellige.MemoryStore()
    >>> zellige.group(store)["a"] = [1, 2, 3]
    >>> copied = copy_store(store, zellige.MemoryStore(), excludes="/c/", log=print)  # doctest: +ELLIPSIS
    copy a/zarr.json
    copy zarr.json
    all done: 2 copied, 0 skipped, ... bytes copied
    """
    check_options(if_exists, ("raise", "replace", "skip"), progress, log)
    here, path = locate(source, node.normalize_path(source_path), read_only=True)
    wanted = _filter(excludes, includes, flags)
    refuse_hidden(here, path, wanted)
    found = list(here.list(path and path + "/"))
    if not found:  # stores that are not there are listed like empty ones
        raise NodeNotFoundError(
            f"there is no array and no group at '/{path}' in {here!r}, and no other key; check source and source_path"
        )
    there, top = locate(dest, node.normalize_path(dest_path))
    there.check_writable()
    if not top:
        node.check_outer(there)
    keys = {moved(key, path, top): key for key in found if wanted(key)}
    if keys.pop(remove.mark_key(top), None) is not None and node.there(here, path) is None:
        remove.is_begun(here, path)  # which raises if it is a node that is being made
    _refuse_overlap(place(here, path), place(there, top), [node.relative(key, path) for key in keys.values()])
    work = Work("copy", {"from": repr(place(here, path)), "keys": repr((excludes, includes, flags))})
    earlier = remove.read_mark(there, top)
    resumed = earlier is not None and work.is_same(earlier.work)
    clears = earlier is not None and not resumed and node.there(there, top) is None
    if clears and if_exists != "replace":
        remove.is_begun(there, top)  # which raises if it is a node that is being made
    begun = earlier.nodes if earlier is not None and resumed else {}
    mode = "replace" if resumed and if_exists == "raise" else if_exists
    skipped = {key: keys.pop(key) for key in _existing(there, top, keys, mode, Owners(begun))}
    order = (sorted(batch) for batch in node.copy_order(keys, transactional=there.traits.transactional))
    keys = {key: keys[key] for batch in order for key in batch}
    known = _read_documents(here, keys)
    refuse_blocked(here, path, keys.values(), {keys[key]: raw for key, raw in known.items()})

    def may_go(key: str) -> bool:
        return key not in skipped and wanted(moved(key, top, path))

    with finishing(dest, there), open_log(log) as say, Progress(progress, len(keys), "copied") as report:
        for verb, pairs in (("skip", skipped), ("copy", keys)):
            for key, from_key in pairs.items():
                say(log_line(verb, from_key, key))
        if dry_run:
            copied = Copied(len(keys), len(skipped), 0)
        else:
            if clears:
                remove.clear(there, top, whole=False)
            _begin(there, top, work, keys, known, begun, may_go, replaces=mode == "replace")
            count, nbytes = transfer((here, path), (there, top), keys, report, known=known, verify=verify)
            remove.remove_mark(there, top)
            copied = Copied(count, len(skipped), nbytes)
        say(copied.summary(dry_run=dry_run))
    return copied


def _filter(
    excludes: str | Sequence[str] | None, includes: str | Sequence[str] | None, flags: int
) -> Callable[[str], bool]:
    """Whether a key is to be copied."""

    def searches(given: str | Sequence[str] | None) -> list[Callable[[str], object]]:
        return [re.compile(text, flags).search for text in ([given] if isinstance(given, str) else given or [])]

    out, back = searches(excludes), searches(includes)
    return lambda key: not any(found(key) for found in out) or any(found(key) for found in back)


def _refuse_overlap(source: Place, target: Place, names: Iterable[str]) -> None:
    """A key that is both read and written would be copied before or after the change, as it happens."""
    if source.owner == target.owner and (source.within(target) or target.within(source)):
        both = {source.path + name for name in names} & {target.path + name for name in names}
        if both:
            raise ValueError(f"{min(both)!r} would be both read and overwritten; copy to another path, or exclude it")


def _existing(there: Store, top: str, keys: Mapping[str, str], if_exists: str, begun: Owners) -> list[str]:
    """The keys that are there already, and stay; not those that an earlier call, which was stopped, has copied."""
    if if_exists == "replace":
        return []
    exists = threads.gather(there.exists, list(keys), there, large=True)
    found = [key for key, is_there in zip(keys, exists, strict=True) if is_there]
    found = [key for key in found if begun.owner(node.relative(key, top)) is None]
    if found and if_exists == "raise":
        key = min(found)
        raise CopyError(f"key {key!r} is in {there!r} already; pass if_exists='replace' or 'skip'", key=key)
    return sorted(found)


def _read_documents(here: Store, keys: Mapping[str, str]) -> dict[str, bytes]:
    """The main documents of the nodes that are copied, by their keys in the target."""
    mains = [key for key in keys if key.rpartition("/")[2] in (DOCUMENT, ARRAY_V2, GROUP_V2)]
    found = zip(mains, threads.gather(lambda key: here.get(keys[key]), mains, here, large=True), strict=True)
    return {key: raw for key, raw in found if raw is not None}


def _begin(
    there: Store,
    top: str,
    work: Work,
    keys: Collection[str],
    documents: Mapping[str, bytes],
    begun: Mapping[str, Iterable[Chunks]],
    may_go: Callable[[str], bool],
    *,
    replaces: bool,
) -> None:
    """Leave a mark, and remove what is replaced.

    Documents go first. Of a node that comes, or that an earlier call had `begun` to copy, so do chunks and documents
    that it has no longer, if they `may_go`: in the new node they would be read as its own.
    """
    if not keys and not begun:
        return
    nodes = {node.relative(key, top).rpartition("/")[0]: Chunks.of_document(key, raw) for key, raw in documents.items()}
    changed = {*(nodes if replaces else ()), *begun}
    if not changed:
        remove.write_mark(there, top, Mark(nodes, work=work))
        return
    before = Removal(there, top, nodes={**begun, **nodes})
    remove.write_mark(there, top, Mark({path: before.nodes[path] for path in {**nodes, **begun}}, work=work))

    def goes(key: str) -> bool:
        full = node.join(top, key)
        if full not in keys:
            return may_go(full)
        # In a transaction nobody sees a document before its chunks.
        return key.rpartition("/")[2] in DOCUMENTS and not there.traits.transactional

    before.remove_only(key for key in before.own if before.owner(key) in changed and goes(key))


# -- what listings leave out ----------------------------------------------------------------------


def refuse_hidden(store: Store, path: str, wanted: Callable[[str], bool] = lambda _: True) -> None:
    """Raise if listings leave out something below a path that is to be copied."""
    for key, what in abilities.obstacles(store, path and path + "/"):
        if what.is_hidden and wanted(key) and wanted(key + "/"):
            refuse_obstacle(store, key, what)


def refuse_blocked(store: Store, path: str, keys: Collection[str], documents: Mapping[str, bytes]) -> None:
    """Raise where a directory is in the place of a chunk or of metadata, or a file in that of a directory of chunks.

    The chunks there are not missing but unknown, and a copy would read as fill values. `documents` are the main ones of
    the nodes that are copied, by their keys; `keys` are all that is copied.
    """
    owners = Owners({key.rpartition("/")[0]: Chunks.of_document(key, raw) for key, raw in documents.items()})
    for key, what in abilities.obstacles(store, path and path + "/"):
        folder, _, name = key.rpartition("/")
        is_document = name in DOCUMENTS and not any(part.startswith(node.OWN) for part in folder.split("/"))
        if what is Obstacle.DIRECTORY and (is_document or owners.owner(key) is not None):
            refuse_obstacle(store, key, what)
    refuse_files(store, keys, owners)


def refuse_files(store: Store, keys: Iterable[str], owners: Owners) -> None:
    """Raise where a file is in the place of a directory of chunks: these are not missing but unknown."""
    for key in keys if store.ability(Folders) is not None else ():
        top, chunks = owners.nearest(key.rpartition("/")[0])
        if any(found.has_folder(node.relative(key, top)) for found in chunks):
            raise CopyError(
                f"key {key!r} in {store!r}: it is a file in the place of a directory of chunks; restore the "
                "directory, or remove the file; nothing was copied",
                key=key,
            )


def refuse_obstacle(store: Store, key: str, what: Obstacle) -> NoReturn:
    """Raise for something that a copy would have to leave out in silence."""
    error = CopyError if what in (Obstacle.DIRECTORY, Obstacle.SPECIAL) else UnsafeLinkError
    raise error(f"key {key!r} in {store!r} cannot be copied: it is {what}; {what.remedy}; nothing was copied", key=key)


# -- the transfer ---------------------------------------------------------------------------------


def moved(path: str, base: str, top: str) -> str:
    """A path, or key, below one path as that below another."""
    return node.join(top, node.relative(path, base))


_NONE: Mapping[str, bytes] = {}


def transfer(
    source: tuple[Store, str],
    target: tuple[Store, str],
    keys: Iterable[str],
    progress: Progress,
    *,
    content: Mapping[str, bytes] = _NONE,
    known: Mapping[str, bytes] = _NONE,
    verify: bool = False,
) -> tuple[int, int]:
    """Write keys of the target, several at a time, chunks before documents; returns how many, and how many bytes.

    `source` and `target` are paths in stores, below which a key has the same name. `known` are values that were read
    from the source already. `content` are more keys, with values that do not come from the source; they must be new.
    """
    (here, base), (there, top) = source, target

    def write(key: str) -> int | None:
        if key in content:
            raw: bytes | None = content[key]
            if not there.create(key, content[key]):
                node.check_free(there, key.rpartition("/")[0])
                raise ConflictError(f"key {key!r} in {there!r} was written by somebody else meanwhile")
        else:
            raw = known.get(key) or here.get(moved(key, top, base))
            if raw is not None:
                there.put(key, raw)
        if raw is not None and verify:
            _compare(there, key, raw)
        progress.advance(key)
        return None if raw is None else len(raw)

    sizes: list[int | None] = []
    for batch in node.copy_order([*keys, *content], transactional=there.traits.transactional):
        sizes += threads.gather(write, batch, threads.farther(here, there), large=True)
    written = [size for size in sizes if size is not None]
    return len(written), sum(written)


def _compare(store: Store, key: str, raw: bytes) -> None:
    """Read a key back, and remove it if it differs."""
    back = store.get(key)
    if back != raw and not _is_same_document(key, raw, back):
        store.delete([key])
        found = "nothing" if back is None else f"{len(back)} other bytes" if len(back) != len(raw) else "other bytes"
        raise CopyError(f"key {key!r} in {store!r}: {len(raw)} bytes were written, {found} read back", key=key)


def _is_same_document(key: str, raw: bytes, back: bytes | None) -> bool:
    """Whether the document of an array means what was written: icechunk spells the edges of chunks anew."""
    if key.rpartition("/")[2] != DOCUMENT or back is None:
        return False
    try:
        sent, found = read_json(raw), read_json(back)
    except MetadataError:
        return False
    return sent.get("node_type") == "array" and meaning({DOCUMENT: sent}) == meaning({DOCUMENT: found})


# -- options and log ------------------------------------------------------------------------------


def check_options(if_exists: str, modes: Sequence[str], progress: Any, log: Any) -> None:
    """Refuse arguments that have no meaning."""
    if if_exists not in modes:
        raise ValueError(f"if_exists={if_exists!r} must be one of {', '.join(map(repr, modes))}")
    check_progress(progress)
    if log is not None and not isinstance(log, str | os.PathLike) and not callable(log) and not hasattr(log, "write"):
        raise TypeError(f"log={log!r} must be a path, a file, a function that takes lines, or None")


def log_line(verb: str, source: str, target: str) -> str:
    """What happens to a key or a node."""
    return f"{verb} {source}" if source == target else f"{verb} {source} -> {target}"


@contextmanager
def open_log(log: LogLike) -> Iterator[Callable[[str], object]]:
    """A function that takes lines for a log."""
    if log is None or callable(log):
        yield log or node.nothing
        return
    with open(log, "w", encoding="utf-8") if isinstance(log, str | os.PathLike) else nullcontext(log) as file:
        flush = getattr(file, "flush", node.nothing)
        yield lambda text: (file.write(text + "\n"), flush())
