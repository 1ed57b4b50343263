"""Copying nodes: `copy` and `copy_all`; bytes as they are, within a store or between stores.

A copy is planned from a listing of each side, and whatever is refused is refused then, before the first write. Chunks
come first and documents last, those of the copied node itself at the very end: what is cut short is not a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from zellige.display.progress import Progress, ProgressLike
from zellige.dtypes.cast import as_value
from zellige.errors import ContainsArrayError, ContainsGroupError, NodeNameError, NodeNotFoundError
from zellige.metadata.groups import GroupMetadata
from zellige.nodes import hierarchy, node, remove
from zellige.nodes.array import Array
from zellige.nodes.create import copy_array
from zellige.nodes.group import Group
from zellige.stores import StoreLike, finishing, locate
from zellige.tools.copy_plan import Found, Options, Plan, Survey
from zellige.tools.transfer import Copied, CopyError, Courier, LogLike, copy_store, opened
from zellige.types import AnyArray

__all__ = ["Copied", "CopyError", "copy", "copy_all", "copy_store"]

IfExists: TypeAlias = Literal["raise", "replace", "skip", "skip_initialized"]


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

    Each key of the source is read once. Keys that belong to no node are not copied; the result names them. A
    symbolic link that hides chunks or a member, because it leads out of a local store or nowhere, raises
    `UnsafeLinkError` before anything is written. A copy that was stopped is no node; the same call finishes it,
    beginning anew.

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
    options.check()
    origin, root = _origin(source)
    group = _group(dest, root, options)
    if name is None and not root.path:
        raise NodeNameError(f"the source is the root of {origin.store!r}, which has no name; give name=", name="")
    target = group._new(root.path.rpartition("/")[2] if name is None else name)
    plan = Plan(origin, root.path, group, target, options)
    plan.add([root], depth=0)
    with finishing(dest, group.store):
        return _carry_out(plan)


def copy_all(source: Group | StoreLike, dest: Group | StoreLike, **options: Any) -> Copied:
    """Copy all members of a group into another. Options: see `copy`; with `shallow` only the arrays among them.

    >>> import zellige
    >>> source, dest = zellige.group(), zellige.group()
    >>> source["a"], source["b"] = [1, 2], [3, 4]
    >>> copy_all(source, dest)[:2], list(dest)
    ((2, 0), ['a', 'b'])
    """
    known = {name: options.pop(name) for name in Options._fields[:-1] if name in options}
    checked = Options(**known)._replace(create=options)
    checked.check()
    origin, root = _origin(source)
    if not isinstance(root.metadata, GroupMetadata):
        raise TypeError(f"'/{root.path}' in {origin.store!r} is an array, which has no members; use copy")
    group = _group(dest, root, checked)
    group._check_writable()
    plan = Plan(origin, root.path, group, group.path, checked)
    members = origin.load(origin.below(root.path))
    plan.claim(root)
    plan.add(members, depth=1)
    with finishing(dest, group.store):
        return _carry_out(plan)


def _origin(source: Array | Group | StoreLike) -> tuple[Survey, Found]:
    """What there is to copy from."""
    if isinstance(source, Array | Group):
        store, path, first = source.store, source.path, source.metadata.zarr_format
    else:
        (store, path), first = locate(source, read_only=True), 3
    origin = Survey(store, [path], first)
    for root in origin.load([path]):
        return origin, root
    raise NodeNotFoundError(f"there is no array and no group at '/{path}' in {store!r}{node.why_missing(store, path)}")


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


# -- carrying it out ------------------------------------------------------------------------------


def _carry_out(plan: Plan) -> Copied:
    """Do what is planned, unless it is a dry run."""
    options = plan.options
    total = len(plan.keys) + len(plan.content) + len(plan.encoded)
    with opened(options.log) as say, Progress(options.progress, total, "copied") as progress:
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
    store = plan.dest.store
    _make_groups(plan, plan.missing)
    _begin(plan)
    courier = Courier(
        (plan.origin.store, plan.base), (store, plan.top), plan.content, progress, verify=plan.options.verify
    )
    batches = node.copy_order([*plan.keys, *plan.content], transactional=store.traits.transactional)
    # As in `copy_order`: a transaction is never seen cut short, and there arrays come before their chunks.
    nbytes = 0 if store.traits.transactional else _encode_all(plan, progress)
    nbytes += sum(courier.carry_all(batch)[1] for batch in batches)
    nbytes += _encode_all(plan, progress) if store.traits.transactional else 0
    for path in plan.last:
        plan.made[path] = node.put_new(store, path, GroupMetadata(zarr_format=plan.dest.metadata.zarr_format))
    _follow(plan)
    for path in [*plan.tops, *filter(plan.has_mark, plan.finished)]:
        remove.remove_mark(store, path)
    return nbytes


def _encode_all(plan: Plan, progress: Progress) -> int:
    """Write the chunks of arrays that are encoded anew; returns their bytes."""
    for source, target in plan.encoded:
        _encode(source, target, verify=plan.options.verify)
        progress.advance(node.join(target.path, node.document_names(target.metadata)[0]))
    return sum(target.nbytes for _, target in plan.encoded)


def _note(plan: Plan, paths: Iterable[str]) -> None:
    """Follow changes in the consolidated metadata of the groups above."""
    for holder in plan.holders:
        holder.follow(*paths, below=True)


def _begin(plan: Plan) -> None:
    """Remove what is replaced, and what was left behind, and leave the marks of the new nodes."""
    store = plan.dest.store
    for path in plan.removed:
        with remove.removing(store, path, between=partial(_note, plan, [path])):
            if path in plan.tops:
                remove.write_mark(store, path, plan.mark(path))
    for path in plan.tops:
        if path not in plan.removed and not plan.has_mark(path):
            remove.create_mark(store, path, plan.mark(path))
    # Documents first, so that nothing looks like a node while its chunks go.
    for batch in reversed(node.copy_order(plan.remains)):
        store.delete(batch)


def _make_groups(plan: Plan, paths: Iterable[str]) -> None:
    metadata = GroupMetadata(zarr_format=plan.dest.metadata.zarr_format)
    for path in paths:
        with suppress(ContainsGroupError):  # made by somebody else meanwhile
            plan.made.update(hierarchy.create(plan.dest.store, {path: metadata}, overwrite=False))


def _follow(plan: Plan) -> None:
    """Change attributes of groups that were there, and consolidated metadata."""
    store = plan.dest.store
    for path, attributes in plan.merged.items():
        group = Group.open(store, path, plan.format_of(path), use_consolidated=False)
        group.attrs.update(attributes)
    _note(plan, [*plan.made, *plan.merged, *plan.finished])
    for path in plan.consolidated:
        Group.open(store, path, use_consolidated=False)._consolidate()


def _encode(source: Array, target: Array, *, verify: bool) -> None:
    """Write the values of one array into another that has no documents yet."""
    copy_array(target, source)
    for chunk in target.iter_chunks() if verify else ():
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
