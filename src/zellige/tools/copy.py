"""Copying nodes and keys: `copy`, `copy_all` and `copy_store`; bytes as they are, within a store or between stores.

A copy of nodes is planned from a listing of each side, and whatever is refused is refused then, before the first write.
Chunks come first and documents last, those of the copied node itself at the very end: what is cut short is not a node.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from zellige.display.progress import Progress, ProgressLike, check_progress
from zellige.dtypes.cast import as_value
from zellige.errors import (
    ConflictError,
    ContainsArrayError,
    ContainsGroupError,
    CopyError,
    MetadataError,
    NodeNameError,
    NodeNotFoundError,
    NotANodeError,
)
from zellige.grid.grid import ChunkGrid
from zellige.metadata.groups import ARRAY_V2, ATTRIBUTES_V2, CONSOLIDATED_V2, GROUP_V2, Documents, GroupMetadata
from zellige.metadata.json import read_json, write_json
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import hierarchy, node, remove
from zellige.nodes.array import Array
from zellige.nodes.consolidated import Consolidated, holder_of, meaning
from zellige.nodes.create import copy_array, from_array, modern_options
from zellige.nodes.group import Group, member_path
from zellige.nodes.remove import ChunkNames, Mark, Owners, Removal, Work, mark_key
from zellige.stores import Store, StoreLike, finishing, locate, threads
from zellige.stores.abilities import Obstacle
from zellige.stores.base import DOCUMENTS
from zellige.stores.resolve import Place, place
from zellige.tools.scan import Found, Scan
from zellige.types import AnyArray

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata

__all__ = ["Copied", "CopyError", "copy", "copy_all", "copy_store"]

IfExists: TypeAlias = Literal["raise", "replace", "skip", "skip_initialized"]
_Action: TypeAlias = Literal["copy", "follow", "merge", "replace", "skip", "finish"]
"""What becomes of a node: `follow` is one whose group is new, `finish` one that an earlier call has copied."""

_UNFIT = {"store", "path", "name", "shape", "data", "write_data", "overwrite", "mode", "storage_options"}
_BLOCK = "consolidated_metadata"
_NONE: Mapping[str, bytes] = {}


class _File(Protocol):
    def write(self, text: str, /) -> object: ...


LogLike: TypeAlias = str | os.PathLike[str] | _File | Callable[[str], object] | None


class Copied(NamedTuple("_Counts", [("n_copied", int), ("n_skipped", int), ("n_bytes_copied", int)])):
    """What was copied: three numbers, as a tuple.

    `n_copied` and `n_skipped` are arrays and groups, or keys for `copy_store`. `n_bytes_copied` are bytes as they are
    stored, of chunks and documents; of arrays that were encoded anew, the bytes of their values; in a dry run 0.
    """

    left_out: tuple[str, ...] = ()
    """The keys of the source that belong to no node, and so were not copied."""

    def summary(self, *, dry_run: bool) -> str:
        """Return one line for people.

        Parameters
        ----------
        dry_run
            Whether nothing was written.
        """
        found = f"{self.n_copied:,} copied, {self.n_skipped:,} skipped"
        return f"dry run: {found}" if dry_run else f"all done: {found}, {self.n_bytes_copied:,} bytes copied"


def copy(
    source: Array | Group | StoreLike,
    dest: Group | StoreLike,
    name: str | None = None,
    *,
    shallow: bool = False,
    without_attrs: bool = False,
    if_exists: IfExists = "raise",
    dry_run: bool = False,
    verify: bool = False,
    progress: ProgressLike = None,
    log: LogLike = None,
    **create: Any,
) -> Copied:
    """Copy an array, or a group with everything below it, into a group; the bytes of chunks stay as they are.

    Each key of the source is read once. Keys that belong to no node are not copied; the result names them. A
    symbolic link that hides chunks or a member, because it leads out of a local store or nowhere, raises
    `UnsafeLinkError` before anything is written. A copy that was stopped is no node; the same call finishes it,
    beginning anew.

    Parameters
    ----------
    source, dest
        An array or a group, and a group; or a place, as `store` elsewhere. A group that is not there is created.
    name
        What the copy is called, or its path below the group; by default what the source is called.
    shallow
        Of a group copy itself and its arrays, but not the groups in it.
    without_attrs
        Leave out the attributes.
    if_exists
        For a node in the way of an array, or an array in the way of a group: `"raise"`; `"replace"` removes it first;
        `"skip"` leaves it; `"skip_initialized"` leaves an array with chunks enough (all that the source has, or if it
        is cut otherwise all of its grid), and replaces another array. A group merges into a group that is there.
        Keys without a node are in the way, too; all but `"raise"` remove those that a copy of the same source has, and
        refuse others.
    dry_run
        Change nothing, and tell how much would be copied and skipped.
    verify
        Read every value back from the target and compare; one that differs is removed and raises a `CopyError`.
    progress
        Called as `progress(done, total, key)` after each key that was written, from any thread but one at a time:
        `done` counts them from 1 to `total`, `key` is the one in the target. An array that is encoded anew counts as
        one key. What it raises stops the copy. True shows a line on stderr if that is a terminal.
    log
        A path, a file or a function that takes lines: one for each node, and a summary.
    create
        Options of `from_array`, such as `chunks` or `compressors`: the arrays are encoded anew with them, in the Zarr
        format of the group. Without such options every node keeps its format.

    >>> import zellige
    >>> root = zellige.group()
    >>> _ = root.create_array("2024/t", data=range(59), chunks=[[31, 28]], attributes={"unit": "K"})
    >>> backup = zellige.group()
    >>> copied = copy(root["2024"], backup, log=print)  # doctest: +ELLIPSIS
    copy /2024
    copy /2024/t (59,) int64
    all done: 2 copied, 0 skipped, ... bytes copied
    >>> copy(root["2024/t"], backup, "uniform", chunks=20)[:2]
    (1, 0)
    >>> backup["2024/t"].write_chunk_sizes, backup["uniform"].write_chunk_sizes
    (((31, 28),), ((20, 20, 19),))
    """
    options = Options(if_exists, shallow, without_attrs, dry_run, verify, progress, log, create)
    origin, root = _origin(source)
    group = _group(dest, root, options)
    if name is None and not root.path:
        raise NodeNameError(f"the source is the root of {origin.store!r}, which has no name; give name=", name="")
    plan = Plan(
        origin, root.path, group, member_path(group, root.path.rpartition("/")[2] if name is None else name), options
    )
    plan.add([root], depth=0)
    return _carry_out(plan, dest)


def copy_all(source: Group | StoreLike, dest: Group | StoreLike, **options: Any) -> Copied:
    """Copy all members of a group into another.

    Parameters
    ----------
    source, dest
        Two groups; or a place, as `store` elsewhere.
    options
        As for `copy`, but for `name`; with `shallow` only the arrays among the members are copied.

    >>> import zellige
    >>> source, dest = zellige.group(), zellige.group()
    >>> source["a"], source["b"] = [1, 2], [3, 4]
    >>> copy_all(source, dest)[:2], list(dest)
    ((2, 0), ['a', 'b'])
    """
    known = {one.name: options.pop(one.name) for one in fields(Options)[:-1] if one.name in options}
    checked = Options(**known, create=options)
    origin, root = _origin(source)
    if not isinstance(root.metadata, GroupMetadata):
        raise TypeError(f"'/{root.path}' in {origin.store!r} is an array, which has no members; use copy")
    group = _group(dest, root, checked)
    node.check_writable(group)
    plan = Plan(origin, root.path, group, group.path, checked)
    members = origin.load(origin.children(root.path))
    plan.include(root)
    plan.add(members, depth=1)
    return _carry_out(plan, dest)


@dataclass(frozen=True)
class Options:
    """The options of `copy` and `copy_all`; those without a meaning are refused."""

    if_exists: IfExists = "raise"
    shallow: bool = False
    without_attrs: bool = False
    dry_run: bool = False
    verify: bool = False
    progress: ProgressLike = None
    log: LogLike = None
    create: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options(self.if_exists, ("raise", "replace", "skip", "skip_initialized"), self.progress, self.log)
        if unfit := sorted(self.create.keys() & _UNFIT):
            raise TypeError(f"{unfit[0]}= is no option of a copy; use the options for chunks, codecs and types")

    @property
    def altered(self) -> bool:
        """Whether documents below a group become others than those of the source."""
        return self.shallow or self.without_attrs or bool(self.create)


def _origin(source: Array | Group | StoreLike) -> tuple[Scan, Found]:
    """What there is to copy from."""
    if isinstance(source, Array | Group):
        store, path, first = source.store, source.path, source.metadata.zarr_format
    else:
        (store, path), first = locate(source, read_only=True), 3
    origin = Scan(store, [path], first)
    if not (found := origin.load([path])):
        why = node.why_missing(store, path)
        raise NodeNotFoundError(f"there is no array and no group at '/{path}' in {store!r}{why}")
    return origin, found[0]


def _group(dest: Group | StoreLike, root: Found, options: Options) -> Group:
    """The group to copy into; it may have to be created, of the format of what comes into it."""
    if isinstance(dest, Group):
        return dest
    if isinstance(dest, Array):
        raise TypeError(f"dest is the array {dest.name!r} of {dest.store!r}; copy into a group")
    store, path = locate(dest)
    form: Literal[2, 3] = options.create.get("zarr_format") or root.metadata.zarr_format
    documents = node.load(store, path, first=form, consolidated=True)
    if documents is None:
        return Group(store, path, GroupMetadata(zarr_format=form))
    if not node.is_group(documents):
        raise ContainsArrayError(f"'/{path}' in {store!r} is an array; copy into a group")
    return Group.from_documents(store, path, documents)


# -- what is to be done ---------------------------------------------------------------------------


class Plan:
    """What is to be copied where, from below the path `base` of the source to below the path `top` of the target."""

    def __init__(self, origin: Scan, base: str, dest: Group, top: str, options: Options) -> None:
        self.origin, self.base, self.dest, self.top, self.options = origin, base, dest, top, options
        self.work = Work(
            "copy",
            {
                "from": repr(place(origin.store, base)),
                "options": repr(sorted(options.create.items())),
                "shallow": options.shallow,
                "without_attrs": options.without_attrs,
            },
        )
        form = options.create.get("zarr_format") or dest.metadata.zarr_format
        self.create = modern_options({**options.create, "zarr_format": form}) if options.create else {}
        self.missing = [path for path in node.parents(top) if not node.check_parent(dest.store, path)]
        """Groups above that have to be made."""
        self.into = top == dest.path
        """Whether nodes come directly into the group at `top`, and not in its place."""
        self.into_new = self.into and not node.check_parent(dest.store, top)
        """Whether that group has to be made; it comes when all of its members are there."""
        self.tops: list[str] = []
        """The new nodes that lie in groups which are there; each has a mark until all of them are whole."""
        self.same: set[str] = set()
        """The paths with the mark of an earlier call with the same arguments."""
        self.finished: list[str] = []
        """Nodes of the target that such a call has copied."""
        self.made: list[str] = []
        """The new nodes, groups before what is in them."""
        self.keys: list[str] = []
        """Keys of the target that get what the source has for them."""
        self.content: dict[str, bytes] = {}
        """Keys of the target that get these documents."""
        self.encoded: list[tuple[Array, Array]] = []
        """Arrays to be encoded anew, and what they become."""
        self.removed: list[str] = []
        """Nodes of the target that are replaced."""
        self.remains: list[str] = []
        """Keys of the target without a node, as a copy leaves them that was cut short."""
        self.merged: dict[str, dict[str, Any]] = {}
        """Groups of the target with the attributes that they get."""
        self.consolidated: list[str] = []
        """Groups of the target whose consolidated metadata has to be made anew."""
        self.holders = [] if (holder := holder_of(dest)) is None else [holder]
        """Consolidated metadata of the target that has to follow."""
        self.lines: list[tuple[list[str], str]] = []
        self.counts: Counter[str] = Counter()
        self._arrays: dict[str, ArrayMetadata] = {}
        self._free: list[str] = []  # where there is no node yet, but there may be keys
        self._claimed: set[str] = set()

    def to(self, path: str) -> str:
        """Where a path, or key, of the source goes."""
        return moved(path, self.base, self.top)

    def left_out(self) -> tuple[str, ...]:
        """The keys of the source that belong to none of its nodes."""
        hidden = [key for key, what in self.origin.obstacles.items() if what.is_hidden]
        return tuple(key for key in sorted([*self.origin.keys, *hidden]) if key not in self._claimed)

    def include(self, found: Found) -> None:
        """The documents of a node are not left out; raises if something hides its chunks, or members of a group."""
        origin = self.origin
        for key, _ in origin.blocked(found.path, found.metadata):
            if origin.obstacles[key] is not Obstacle.UNREADABLE:  # reading says why
                origin.refuse(key)
        origin.refuse_files(origin.under(found.path), Owners({found.path: ChunkNames.of(found.metadata)}))
        more = [CONSOLIDATED_V2] if origin.has_zmetadata(found.path) else []
        self._claimed.update(node.join(found.path, name) for name in [*found.documents, *more])

    def add(self, level: list[Found], depth: int) -> None:
        """Plan for nodes and everything below them; the depth of the copied node itself is 0."""
        self._look(level)
        new: set[str] = set()
        while level:
            paths = [found.path for found in level]
            kinds = threads.gather(lambda path: self._there.kind(self.to(path)), paths, self._there.store, large=True)
            below: list[str] = []
            for found, kind in zip(level, kinds, strict=True):
                if self.options.shallow and depth and isinstance(found.metadata, GroupMetadata):
                    self._claimed.update(self.origin.under(found.path))
                    continue
                action: _Action = "follow" if found.path.rpartition("/")[0] in new else self._action(found, kind)
                below += self._take(found, action)
                if action not in ("merge", "skip", "finish"):
                    new.add(found.path)
            level, depth = self.origin.load(below), depth + 1
        self._find_remains()
        self.tops = [self.top] if self.into_new else [*self._free, *self.removed]

    def _look(self, level: list[Found]) -> None:
        """See what is where the nodes go; they must not go into themselves."""
        targets = [self.to(found.path) for found in level]
        for found, target in zip(level, targets, strict=True):
            if place(self.dest.store, target).within(place(self.origin.store, found.path)):
                raise ValueError(
                    f"cannot copy '/{found.path}' to '/{target}', which is the same place or lies below it; copy to "
                    "another place"
                )
        if len(targets) > 1:  # one request lists those that are there at all
            listed = set(self.dest.store.list_dir(self.top and self.top + "/")[1])
            targets = [target for target in targets if target + "/" in listed]
        self._there = Scan(self.dest.store, targets, self.dest.metadata.zarr_format)
        marked = self._there.places(node.UNFINISHED) + [self.top] * self.into
        marks = threads.gather(partial(remove.read_mark, self.dest.store), marked, self.dest.store)
        for path, mark in zip(marked, marks, strict=True):
            if mark is not None and self.work.is_same(mark.work):
                self.same.add(path)
        if self.into and not self.into_new and self.top in self.same:
            self.finished.append(self.top)

    def _action(self, found: Found, kind: str | None) -> _Action:
        """What becomes of a node, and of what is where it goes."""
        metadata, target, mode = found.metadata, self.to(found.path), self.options.if_exists
        if kind is None or (self.into_new and self.top in self.same):
            return "copy"
        if target in self.same and mode != "replace":
            return "finish"
        if isinstance(metadata, GroupMetadata):
            if kind == "group":
                return "merge"
        elif mode == "skip_initialized" and kind == "array":
            return "skip" if self._is_complete(found.path, metadata, target) else "replace"
        if mode == "skip" or mode == "replace":
            return mode
        if self.same:
            return "finish"  # it was not there before the earlier call, which would have raised as well
        error, what = (ContainsArrayError, "an array") if kind == "array" else (ContainsGroupError, "a group")
        raise error(
            f"there is {what} at '/{target}' in {self.dest.store!r} already; copy under another name, or pass "
            "if_exists='replace' or 'skip'"
        )

    def _is_complete(self, path: str, metadata: ArrayMetadata, target: str) -> bool:
        """Whether an array that is there has all chunks of the source, or of its grid if that is another one."""
        there: Any = node.parse(node.load(self.dest.store, target, first=self.dest.metadata.zarr_format) or {})
        grid, stored = ChunkGrid.from_metadata(there), {coords for coords, _ in self._there.chunks(target, there)}
        if grid != ChunkGrid.from_metadata(metadata):
            return len(stored) == grid.get_nchunks()
        return stored >= {coords for coords, _ in self.origin.chunks(path, metadata)}

    def _take(self, found: Found, action: _Action) -> list[str]:
        """Plan for one node; returns the paths to look at below it."""
        path, target, metadata = found.path, self.to(found.path), found.metadata
        skipped = action in ("skip", "finish")
        verb = "skip" if skipped else "copy"
        what = "" if isinstance(metadata, GroupMetadata) else f" {metadata.shape} {metadata.data_type.name}"
        self.counts[verb] += 1
        self.lines.append((path.split("/"), log_line(verb, "/" + path, "/" + target) + what))
        if skipped:
            self._claimed.update(self.origin.under(path))
            self.finished += [target] if action == "finish" else []
            return []
        self.include(found)
        if action == "merge":
            if metadata.attributes and not self.options.without_attrs:
                self.merged[target] = metadata.attributes
            if target in self._there.consolidated:
                self.holders.append(Consolidated(self.dest.store, target, self.format_of(target), None))
            return self.origin.children(path)
        node.check_names(target)
        if action == "copy":
            self._free.append(target)
        elif action == "replace":
            self._remove(target)
        if isinstance(metadata, GroupMetadata):
            self._add_group(found, metadata, target)
            return self.origin.children(path)
        self._add_array(found, metadata, target)
        return []

    def format_of(self, target: str) -> Literal[2, 3]:
        """The Zarr format of a node that is there."""
        return 3 if self._there.own(target) == [DOCUMENT] else 2

    def _remove(self, target: str) -> None:
        old, new = place(self.origin.store, self.base), place(self.dest.store, target)
        if old.within(new) or new.within(old):
            raise ValueError(f"'/{target}' cannot be replaced: the source of the copy holds it, or lies below it")
        self.removed.append(target)

    def _find_remains(self) -> None:
        """Keys without a node are in the way, unless a copy of the same that was cut short could have left them."""
        written = {*self.keys, *self.content}
        for target in list(self._free):
            marks = {mark_key(target), mark_key(self.top)}
            remains = [key for key in self._there.under(target) if key not in marks]
            if target in self.same or self.top in self.same:
                # Documents go first; chunks are written again, whatever the source has by now.
                self.remains += [key for key in remains if key not in written or key in self.content]
                continue
            if mark_key(target) in self._there.under(target) and (
                self.options.if_exists == "replace" or remove.is_begun(self.dest.store, target)
            ):
                self._free.remove(target)
                self._remove(target)
                continue
            strange = set(remains)
            if remains and self.options.if_exists != "raise":
                strange -= written
                for path, metadata in self._arrays.items():
                    if node.is_below(path, target):
                        strange.difference_update(key for _, key in self._there.chunks(path, metadata))
            if strange:
                raise NotANodeError(
                    f"'/{target}' in {self.dest.store!r} holds keys but no Zarr node, such as {min(strange)!r}; copy "
                    "under another name, or if a copy was cut short there pass if_exists='replace'"
                )
            self.remains += remains

    # -- what goes there --------------------------------------------------------------------------

    def _add_group(self, found: Found, metadata: GroupMetadata, target: str) -> None:
        form = self.create.get("zarr_format", metadata.zarr_format)
        documents = self._kept(found.documents)
        if form != metadata.zarr_format:
            documents = GroupMetadata({} if self.options.without_attrs else metadata.attributes, form).to_documents()
        self._add_documents(target, documents, found)
        apart = self.origin.has_zmetadata(found.path)
        if self.options.altered and (apart or metadata.consolidated is not None):
            self.consolidated.append(target)
        elif apart:
            self.keys.append(node.join(target, CONSOLIDATED_V2))

    def _add_array(self, found: Found, metadata: ArrayMetadata, target: str) -> None:
        chunks = [key for _, key in self.origin.chunks(found.path, metadata)]
        self._claimed.update(chunks)
        if not self.create:
            self._arrays[target] = metadata
            self.keys += map(self.to, chunks)
            self._add_documents(target, self._kept(found.documents), found)
            return
        source = Array.from_documents(self.origin.store, found.path, found.documents)
        bare: dict[str, Any] = {"attributes": {}} if self.options.without_attrs else {}
        # Made in memory first, so that options which do not fit are refused before the first write.
        made = from_array(data=source, write_data=False, **{**bare, **self.create})
        self._arrays[target] = made.metadata
        self.encoded.append((source, Array(self.dest.store, target, made.metadata, made.config)))
        self._add_documents(target, made.metadata.to_documents(), found)

    def _kept(self, documents: Documents) -> Documents:
        """Documents without what is not to be copied."""
        if DOCUMENT not in documents:
            return {k: v for k, v in documents.items() if k != ATTRIBUTES_V2 or not self.options.without_attrs}
        unwanted = {"attributes"} if self.options.without_attrs else set()
        unwanted |= {_BLOCK} if self.options.altered else set()
        return {DOCUMENT: {k: v for k, v in documents[DOCUMENT].items() if k not in unwanted}}

    def _add_documents(self, target: str, documents: Documents, found: Found) -> None:
        """Documents of a new node, with the bytes of the source where they are the same."""
        form = 3 if DOCUMENT in documents else 2
        for holder in self.holders:
            if holder.zarr_format != form and node.is_below(target, holder.path):
                raise ValueError(
                    f"'/{target}' would have Zarr format {form}, which the consolidated metadata of '/{holder.path}' "
                    f"cannot hold; pass zarr_format={holder.zarr_format}, which encodes arrays anew"
                )
        for name, content in documents.items():
            same = found.documents.get(name) == content
            self.content[node.join(target, name)] = found.raw[name] if same else write_json(content)
        self.made.append(target)

    def mark(self, top: str) -> Mark:
        """The mark of one of the new nodes."""
        made = [path for path in dict.fromkeys([top, *self.made]) if node.is_below(path, top)]
        nodes = {path: ChunkNames.of(self._arrays[path]) if path in self._arrays else [] for path in made}
        return Mark({node.relative(path, top): chunks for path, chunks in nodes.items()}, work=self.work)


# -- carrying it out ------------------------------------------------------------------------------


def _carry_out(plan: Plan, dest: Group | StoreLike) -> Copied:
    """Do what is planned, unless it is a dry run; `dest` is the target as the user gave it."""
    options = plan.options
    total = len(plan.keys) + len(plan.content) + len(plan.encoded)
    report = Progress(options.progress, total, "copied")
    with finishing(dest, plan.dest.store), open_log(options.log) as say, report as progress:
        for _, text in sorted(plan.lines):
            say(text)
        left_out = plan.left_out()
        for key in left_out:
            say(f"leave out {key}")
        nbytes = 0 if options.dry_run else _copy(plan, progress)
        copied = Copied(plan.counts["copy"], plan.counts["skip"], nbytes)
        copied.left_out = left_out
        say(copied.summary(dry_run=options.dry_run))
    return copied


def _copy(plan: Plan, progress: Progress) -> int:
    """Write everything, in the order that keeps what is cut short from looking like a node; returns the bytes."""
    store, form, verify = plan.dest.store, plan.dest.metadata.zarr_format, plan.options.verify
    if plan.missing:
        hierarchy.put_groups(store, hierarchy.missing_parents(store, plan.top), form)
    _begin(plan)
    source, target = (plan.origin.store, plan.base), (store, plan.top)
    # As in `copy_order`: a transaction is never seen cut short, and there arrays come before their chunks.
    nbytes = 0 if store.traits.transactional else _encode_all(plan, progress)
    nbytes += transfer(source, target, plan.keys, progress, content=plan.content, verify=verify)[1]
    nbytes += _encode_all(plan, progress) if store.traits.transactional else 0
    if plan.into_new:
        node.put_new(store, plan.top, GroupMetadata(zarr_format=form))
    _follow(plan)
    for path in [*plan.tops, *(path for path in plan.finished if path in plan.same)]:
        remove.remove_mark(store, path)
    return nbytes


def _begin(plan: Plan) -> None:
    """Remove what is replaced, and what was left behind, and leave the marks of the new nodes."""
    store = plan.dest.store
    for path in plan.removed:
        with remove.removing(store, path, between=partial(_note, plan, path)):
            if path in plan.tops:
                remove.write_mark(store, path, plan.mark(path))
    for path in plan.tops:
        if path not in plan.removed and path not in plan.same:
            remove.create_mark(store, path, plan.mark(path))
    # Documents first, so that nothing looks like a node while its chunks go.
    for batch in reversed(node.copy_order(plan.remains)):
        store.delete(batch)


def _note(plan: Plan, *paths: str) -> None:
    """Follow changes in the consolidated metadata of the groups above."""
    for holder in plan.holders:
        holder.follow(*paths, below=True)


def _follow(plan: Plan) -> None:
    """Change attributes of groups that were there, and consolidated metadata."""
    store = plan.dest.store
    for path, attributes in plan.merged.items():
        group = Group.open(store, path, plan.format_of(path), use_consolidated=False)
        group.attrs.update(attributes)
    above = [plan.top] if plan.into_new else []
    _note(plan, *plan.missing, *above, *plan.made, *plan.merged, *plan.finished)
    for path in plan.consolidated:
        Group.open(store, path, use_consolidated=False)._consolidate()


def _encode_all(plan: Plan, progress: Progress) -> int:
    """Write the chunks of arrays that are encoded anew; returns their bytes."""
    for source, target in plan.encoded:
        copy_array(target, source)
        if plan.options.verify:
            _verify(source, target)
        progress.advance(node.join(target.path, node.document_names(target.metadata)[0]))
    return sum(target.nbytes for _, target in plan.encoded)


def _verify(source: Array, target: Array) -> None:
    """Compare the values of two arrays; a chunk that differs is removed."""
    for chunk in target.iter_chunks():
        sent = as_value(source[chunk.slices], target.dtype).astype(target.dtype, copy=False)
        if not _equal(sent, np.asarray(target[chunk.slices])):
            target.store.delete([chunk.key])
            raise CopyError(
                f"key {chunk.key!r} in {target.store!r}: other values were read back than written; are the codecs "
                "lossy?",
                key=chunk.key,
            )


def _equal(sent: AnyArray, found: AnyArray) -> bool:
    if sent.dtype.hasobject or sent.dtype.kind == "T":
        return all(map(np.array_equal, sent.ravel(), found.ravel()))
    return sent.tobytes() == found.tobytes()


# -- keys, whatever they are ----------------------------------------------------------------------


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
    origin = Scan(here, [path], 3)
    origin.refuse_hidden(wanted)
    if not origin.keys:  # stores that are not there are listed like empty ones
        raise NodeNotFoundError(
            f"there is no array and no group at '/{path}' in {here!r}, and no other key; check source and source_path"
        )
    there, top = locate(dest, node.normalize_path(dest_path))
    there.check_writable()
    if not top:
        node.check_outer(there)
    keys = {moved(key, path, top): key for key in origin.keys if wanted(key)}
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
    nodes = {node.relative(key, top).rpartition("/")[0]: ChunkNames.of_document(key, raw) for key, raw in known.items()}
    owners = Owners({node.join(path, below): chunks for below, chunks in nodes.items()})
    origin.refuse_blocked(keys.values(), owners)

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
            _replace_keys(there, top, work, keys, nodes, begun, may_go, replaces=mode == "replace")
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


def _replace_keys(
    there: Store,
    top: str,
    work: Work,
    keys: Collection[str],
    nodes: Mapping[str, Iterable[ChunkNames]],
    begun: Mapping[str, Iterable[ChunkNames]],
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


# -- the transfer ---------------------------------------------------------------------------------


def moved(path: str, base: str, top: str) -> str:
    """A path, or key, below one path as that below another."""
    return node.join(top, node.relative(path, base))


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
                raise ConflictError(f"key {key!r} in {there!r} was written by another writer meanwhile")
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
