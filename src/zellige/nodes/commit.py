"""One change of several arrays: readers see all of it or nothing, also after a crash and beside other writers.

The commit protocol, and where its steps are:

1. `change` takes the lease of the group, the key `RECORD` in it. A second writer waits, or gets a `ConflictError`
   before it has written anything. What a dead writer left is finished or undone first (`settle`).
2. `Change.grow` and `create` store in the lease what is going to be done. Then chunks are written where no reader
   looks: beyond the end of arrays that grow, and below arrays that have no metadata yet.
3. `Change.commit` stores the commit record in the lease: the new shape of every array that grows, and the metadata of
   every node that is created. Where there is consolidated metadata, replacing that is the commit (the *switch*), so
   that all readers, of other libraries too, see the same moment. Elsewhere the record itself is. Either is one
   conditional write.
4. `finish` updates the metadata of the arrays, then the group's own and other consolidated metadata. The lease is
   released, and the record goes with it.

A writer that dies before the commit leaves everything as it was, and the next one removes what it left. After that the
change is committed: the next writer finishes step 4, and a reader that meets the record applies it to what it reads.
An owner that was only slow, and has lost its lease to another machine, can do neither: its chunks are refused by a
`FencedStore`, and its commit because the document that it would replace was changed by the one that took over.
A store that is a transaction, such as a zip file or an icechunk session, shows nothing before its own commit: there the
metadata changes at once, and no lease is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from zellige.dtypes.cast import as_value
from zellige.errors import ArrayNotFoundError, ConflictError, ContainsArrayError, StaleMetadataError
from zellige.grid.edges import EdgeEntries
from zellige.metadata.groups import ARRAY_V2, ATTRIBUTES_V2, CONSOLIDATED_V2, Documents, Entries, GroupMetadata
from zellige.metadata.json import new_attributes
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import hierarchy, lease, node, remove, resize
from zellige.nodes.array import Array, open_array_or, update_metadata
from zellige.nodes.consolidated import (
    Consolidated,
    bare,
    change_entries,
    compare,
    follow_changes,
    holder_of,
    holds_some,
    refuse_lost,
    stored_entries,
    warn_of_growth,
)
from zellige.nodes.lease import Lease, Owner
from zellige.nodes.record import Growth, Record, is_committed
from zellige.settings import ArrayConfig, config
from zellige.stores import LocalStore, Store, StoreLike, finishing, locate
from zellige.stores.base import ChangedError, retried
from zellige.stores.threads import gather
from zellige.stores.wrappers import FencedStore

if TYPE_CHECKING:
    from zellige.nodes.group import Group
    from zellige.nodes.node import ArrayMetadata, NodeMetadata

_ABOUT = "several arrays of this group are changed at once; the next write by zellige, or repair, finishes or undoes it"


# -- changing -------------------------------------------------------------------------------------


class Change:
    """A change of several nodes below a group, which readers see as a whole; made by `zellige.change`.

    Left as a context manager it is committed, or given up after an exception. It can be pickled, so that the tasks of a
    cluster write to its arrays and one of them commits it.
    """

    def __init__(self, store: Store, path: str, zarr_format: Literal[2, 3], *, consolidate: bool) -> None:
        self.store, self.path, self.zarr_format = store, path, zarr_format
        self._lease = None if store.traits.transactional else Lease(store, node.join(path, node.RECORD), _ABOUT)
        self._record = Record(path, consolidate=consolidate)
        self._targets: dict[str, Array] = {}
        """The arrays that are created or grow, as they will be."""
        self._groups: dict[str, Group | None] = {}
        """The groups that are there, by their paths below this one."""
        self._compared: set[str] = set()
        """The arrays that were compared with consolidated metadata."""
        self._unseen: dict[str, str] = {}
        """Those that are longer than it says, and how much."""
        self._done = False
        self._place_is_new = isinstance(store, LocalStore) and not os.path.lexists(store.root)
        """Whether there is no directory yet, so that the lease makes it."""
        self._opened: AbstractContextManager[object] = nullcontext()
        """The store, if it was opened for this: it is closed at the end of the block."""

    def _take(self, below: list[str]) -> None:
        """Take the lease of the group, and make sure that no lease above or below overlaps.

        What dead writers left is finished or undone.
        """
        if self._lease is None:
            return
        backoff = lease.Backoff(self.store, f"the arrays of group {'/' + self.path!r}")
        while (held := self._attempt(self._lease, below)) is not None:
            backoff.pause(*held)

    def _attempt(self, own: Lease, below: list[str]) -> tuple[str, Owner] | None:
        """Take the lease, or return the key and the owner of one that is in the way."""
        if (owner := own.attempt()) is not None:
            return own.key, owner
        try:
            settle(self.store, own)
            for place in [*node.parents(self.path), *below]:
                if (owner := owner_of(self.store, place)) is not None:
                    own.release()
                    return node.join(place, node.RECORD), owner
        except BaseException:
            own.abandon()
            raise
        return None

    # -- what is there ----------------------------------------------------------------------------

    def group(self, below: str = "") -> Group | None:
        """Return the group at a path below, as its own metadata says; None if there is none."""
        from zellige.nodes.group import Group

        if below not in self._groups:
            path = node.join(self.path, below)
            documents = node.load(self.store, path, expect="group")
            there = documents is not None and node.is_group(documents)
            found = Group.from_documents(self.store, path, documents or {}, use_consolidated=False) if there else None
            self._groups[below] = found
        return self._groups[below]

    def arrays(self, below: str = "", *, complete: bool = False) -> dict[str, Array]:
        """Return the arrays directly below a group by name; no other writer changes their shapes until the end.

        Parameters
        ----------
        below
            The path of the group, below that of the change.
        complete
            Whether to refuse arrays whose metadata is lost.
        """
        paths = node.children(self.store, node.join(self.path, below))
        found = list(zip(paths, gather(self._settled, paths, self.store), strict=True))
        if self._lease is not None:
            self._lease.check()  # without it, arrays of different states may have been read
        if complete:
            refuse_lost(self.store, [path for path, array in found if array is None])
        return {path.rpartition("/")[2]: array for path, array in found if array is not None}

    def _settled(self, path: str) -> Array | None:
        """Return the array at a path, once no other writer changes its shape; None if there is no array.

        A writer that does holds the lock of its metadata, and then looks for the lease of the group. So it is enough to
        have held that lock once since the lease was taken.
        """
        if self._lease is None:
            found = open_array_or(self.store, path, likely=self.zarr_format)
            return found if isinstance(found, Array) else None
        name = DOCUMENT if self.zarr_format == 3 else ARRAY_V2
        with self.store.lock(node.join(path, name)):
            found = open_array_or(self.store, path, likely=self.zarr_format)
            if not isinstance(found, Array):
                return None
            changing = self.store.exists(node.join(path, node.PENDING))
        if changing:
            with resize.shape_lease(found, inside=True) as held:
                held.recover()
            return Array(self.store, path, held.metadata, found.config)
        return found

    def compare(self, arrays: Mapping[str, Array]) -> None:
        """Refuse arrays whose metadata contradicts consolidated metadata: `StaleMetadataError`.

        Parameters
        ----------
        arrays
            What `arrays` returned, by paths below the group.
        """
        new = {node.join(self.path, path): array for path, array in arrays.items() if path not in self._compared}
        for place in sorted({above for path in new for above in node.parents(path)}):
            if (holder := self._consolidated(place)) is not None:
                below = {path: array.metadata for path, array in new.items() if node.is_below(path, place)}
                try:
                    self._unseen |= compare(holder, below)
                except StaleMetadataError:
                    if self._lease is not None:
                        self._lease.confirm()  # without it, documents of an older state were read
                    raise
        self._compared.update(arrays)

    def _consolidated(self, place: str) -> Consolidated | None:
        """Return the consolidated metadata of a group above an array; in format 3 this group's own was read with it."""
        group = self.group(node.relative(place, self.path)) if node.is_below(place, self.path) else None
        if group is not None and self.zarr_format == 3:
            return holder_of(group)
        return Consolidated(self.store, place, self.zarr_format)

    # -- what changes -----------------------------------------------------------------------------

    def grow(
        self,
        arrays: Mapping[str, tuple[Array, int, int, int | EdgeEntries | None]],
        *,
        filled: bool = False,
    ) -> dict[str, Array]:
        """Make arrays longer; returns them with their new shapes, to be written to.

        Those that are longer already than consolidated metadata says are named by a `StaleMetadataWarning`.

        Parameters
        ----------
        arrays
            By paths below the group: an array that `arrays` returned, by how many elements it grows, along which axis,
            and how the new region is cut, as in `Array.append`.
        filled
            Whether every new element will be written before the commit, so that nothing that may lie beyond the end of
            the arrays needs to be cleared.
        """
        if not arrays:
            return {}
        self._check_open(arrays)
        self.compare({path: array for path, (array, *_) in arrays.items()})
        if unseen := [self._unseen[array.path] for array, *_ in arrays.values() if array.path in self._unseen]:
            warn_of_growth(self.store, unseen, stacklevel=2)
        grids = {path: resize.grown(a, a.metadata, more, axis, cut) for path, (a, more, axis, cut) in arrays.items()}
        made: dict[str, Array] = {}
        for path, (array, *_) in arrays.items():
            longer = array.metadata.resized(grids[path])
            made[path] = Array(self.store, array.path, longer, array.config)
            self._record.grown[array.path] = Growth.of(array.metadata, longer)
        self._announce()
        for path, (array, *_) in arrays.items():
            before = array.grid
            if self.store.traits.transactional:  # not visible yet, and some take no chunk outside the shape
                _replace_metadata(array, made[path].metadata)
            if not filled:
                resize.clear_uncovered(array._chunks, before, grids[path])
        self._targets |= made
        return made

    def _check_open(self, paths: Iterable[str]) -> None:
        """Refuse to change anything after the end, and to change a node twice."""
        if self._done:
            raise ValueError(f"the change of group '/{self.path}' is over; begin another one with zellige.change")
        known = {*self._record.grown, *self._record.created}
        twice = [path for path in paths if node.join(self.path, path) in known]
        if twice:
            raise ValueError(f"{twice[0]!r} is part of this change already; append to it, or create it, all at once")

    def create(self, nodes: Mapping[str, NodeMetadata], *, overwrite: bool = False) -> dict[str, Array | Group]:
        """Create arrays and groups; returns them, arrays to be written to.

        Parameters
        ----------
        nodes
            Their metadata by paths below the group; the empty path is the group itself.
        overwrite
            Whether to remove the group that is there, with everything below it. That is done at once, before the new
            nodes are there, and is not undone.
        """
        from zellige.nodes.group import Group

        self._check_open(nodes)
        for path in filter(None, nodes):
            node.check_names(path)
        nodes = self._with_groups(nodes)
        formats = {metadata.zarr_format for metadata in nodes.values()} | (set() if overwrite else {self.zarr_format})
        if len(formats) > 1:
            raise ValueError(f"the nodes below a group have one Zarr format; found {sorted(formats)}")
        places = {path: node.join(self.path, path) for path in nodes}
        made = {
            path: Group(self.store, places[path], metadata)
            if isinstance(metadata, GroupMetadata)
            else Array(self.store, places[path], metadata, ArrayConfig.of())
            for path, metadata in nodes.items()
        }
        hierarchy.missing_parents(self.store, self.path)  # raises if one of them is an array
        if overwrite:
            self._remove(nodes)
        else:
            gather(lambda path: self._make_room(places[path], nodes[path]), list(nodes), self.store)
        self._record.created |= {places[path]: metadata.to_documents() for path, metadata in nodes.items()}
        if nodes:
            self._announce()
        if self.store.traits.transactional:
            _create_all(self.store, self._record.created)
        self._targets |= {path: found for path, found in made.items() if isinstance(found, Array)}
        return made

    def _with_groups(self, nodes: Mapping[str, NodeMetadata]) -> dict[str, NodeMetadata]:
        """Return the same with the groups between that are missing; raises if an array is in their place."""
        created = {node.relative(place, self.path): found for place, found in self._record.created.items()}
        above = {place for path in nodes for place in node.parents(path) if place}
        arrays = {path for path, metadata in nodes.items() if not isinstance(metadata, GroupMetadata)}
        arrays |= {path for path, documents in created.items() if not node.is_group(documents)}
        if above & arrays:
            raise ContainsArrayError(f"{min(above & arrays)!r} is created as an array, which holds no other nodes")
        above -= {*nodes, *created}
        missing = [path for path in sorted(above) if not node.check_parent(self.store, node.join(self.path, path))]
        if nodes and "" not in nodes and "" not in created and self.group() is None:
            missing = ["", *missing]
        group = GroupMetadata(zarr_format=self.zarr_format)
        return {**dict.fromkeys(missing, group), **nodes}

    def _make_room(self, path: str, metadata: NodeMetadata) -> None:
        """Check that nothing is in the way of a new node; what is left of one that was being removed goes."""
        own = "" if self._lease is None else self._lease.id
        if hierarchy.has_remains(self.store, path, metadata, own):
            remove.clear(self.store, path, whole=False, kept=(node.RECORD,))

    def _remove(self, new: Mapping[str, NodeMetadata]) -> None:
        """Remove the group with everything below it, in whose place others come."""
        kept = (node.RECORD,)

        def forget() -> None:
            for above in node.parents(self.path):
                for zarr_format in (3, 2):
                    if holds_some(self.store, above, zarr_format):
                        Consolidated(self.store, above, zarr_format).follow(self.path)

        if hierarchy.is_occupied(self.store, self.path, kept):
            with remove.replacing(self.store, self.path, new, between=forget, kept=kept):
                pass

    def append(self, path: str, data: Any, axis: int = 0, *, chunks: int | EdgeEntries | None = None) -> None:
        """Add data at the end of an array, as `Array.append` does; readers see it when the change is committed.

        Parameters
        ----------
        path
            The path of the array below the group.
        data
            What is added.
        axis
            The axis along which it is added.
        chunks
            How the new region is cut.
        """
        array = self._settled(node.join(self.path, path))
        if array is None:
            remove.remove_directory(self.store, node.join(self.path, path))  # which locking it has made
            raise ArrayNotFoundError(f"there is no array {path!r} below '/{self.path}' in {self.store!r}")
        value = as_value(data, array.dtype, array.config.casting)
        axis = resize.axis_number(array, axis)
        resize.check_appended(value.shape, array.shape, axis)
        self.grow({path: (array, value.shape[axis], axis, chunks)}, filled=True)
        self.write(path, value)

    def create_array(self, path: str, **options: Any) -> Array:
        """Create an array; readers see it, and what is written to it, when the change is committed.

        Parameters
        ----------
        path
            The path of the array below the group.
        options
            The keywords of `zellige.create_array`: `shape`, `dtype`, `data`, `chunks` and so on.
        """
        from zellige.nodes.create import PLACE, new_array

        given = {"zarr_format": self.zarr_format, **options}
        for name in PLACE & given.keys():
            del given[name]  # which this change decides
        model, data = new_array(self.store, node.join(self.path, path), **given)
        made = self.create({path: model.metadata})[path]
        assert isinstance(made, Array)
        if data is not None:
            self.write(path, data)
        return made

    def write(self, path: str, value: Any, settings: Mapping[str, Any] | None = None) -> None:
        """Write all elements of an array that is created, or all new ones of an array that grows.

        Parameters
        ----------
        path
            The path of the array below the group, which was given to `create` or `grow`.
        value
            The elements.
        settings
            Settings of the array for this write, such as `{"write_empty_chunks": True}`.
        """
        if self._lease is not None:
            self._lease.check()
        array = self.fenced(self._targets[path])
        if settings is not None:
            array = array.with_config(settings)
        growth = self._record.grown.get(array.path)
        before: Any = [0] * array.ndim if growth is None else growth.before["shape"]
        if growth is not None and before == list(array.shape):
            return  # nothing is appended
        region = tuple(slice(old if old < new else 0, None) for old, new in zip(before, array.shape, strict=True))
        resize.write_to_end(array, array.grid, region, as_value(value, array.dtype, array.config.casting))

    def fenced(self, array: Array) -> Array:
        """Return an array of this change for others to write to: in object stores, until another writer takes over.

        Parameters
        ----------
        array
            What `create` or `grow` returned.
        """
        if self._lease is None or not self.store.traits.optimistic:
            return array
        settings = array.config
        if self._lease.succeeded:
            # What a dead writer is still sending must find something everywhere, so that its condition fails.
            settings = settings.changed({"write_empty_chunks": True})
        return Array(FencedStore(self.store, self._lease.check), array.path, array.metadata, settings)

    def set_attributes(self, attributes: Mapping[str, Any], below: str = "") -> None:
        """Set attributes of a group that is there; others stay.

        Parameters
        ----------
        attributes
            The attributes to set.
        below
            The path of the group, below that of the change.
        """
        known = self._record.attributes.setdefault(node.join(self.path, below), {})
        known.update(new_attributes(attributes))

    def _announce(self) -> None:
        """Store what is going to be done, before the first chunk is written."""
        if self._lease is not None:
            self._lease.write(self._record.to_json())

    # -- the end ----------------------------------------------------------------------------------

    @property
    def guard(self) -> Callable[[], None] | None:
        """What other processes call before they write; it raises `ConflictError` if another writer has taken over."""
        return None if self._lease is None else self._lease.confirm

    def commit(self, then: Callable[[], object] | None = None) -> None:
        """Show the change to readers; raises `ConflictError`, and shows nothing, if another writer has taken over.

        Parameters
        ----------
        then
            Called when readers see the change, and before another writer is let in.
        """
        try:
            self._show()
        except BaseException:
            self.abort()  # what is stored decides: the answer may have been lost
            raise
        self._done = True
        try:
            finish(self.store, self._record)
        except BaseException:
            if self._lease is not None:
                self._lease.abandon()  # it is committed, and the next writer finishes it
            raise
        try:
            if then is not None:
                then()
        finally:
            if self._lease is not None:
                self._lease.release()
                if self._record.is_empty:
                    self._leave_no_directory()

    def _show(self) -> None:
        """Do the one write that makes the change visible."""
        record = self._record
        record.switch = None if self._lease is None else self._find_switch()
        record.committed = record.switch is None
        if self._lease is None or record.is_empty:
            return
        self._lease.write(record.to_json())
        if record.switch is not None and not self._switch(record.switch):
            record.switch, record.committed = None, True  # the consolidated metadata was removed meanwhile
            self._lease.write(record.to_json())

    def _find_switch(self) -> str | None:
        """Return the topmost group whose consolidated metadata shows all arrays as they are; None if there is none."""
        record = self._record
        for top in [*node.parents(self.path), self.path] if record.grown or record.created else ():
            entries = stored_entries(self.store, top, self.zarr_format) or {}
            held = {place: entries.get(node.relative(place, top), {}) for place in record.grown}
            if entries and all(growth.applied(held[place]) is not None for place, growth in record.grown.items()):
                return top
        return None

    def _switch(self, top: str) -> bool:
        """Show the change in the consolidated metadata of a group; False if it has none any more."""
        assert self._lease is not None
        held, record = self._lease, self._record

        def change(entries: Entries) -> None:
            held.confirm()  # after the read: a takeover changes the document, so that the replacement fails
            for place, growth in record.grown.items():
                relative = node.relative(place, top)
                found = growth.applied(entries.get(relative, {}))
                if found is None:
                    raise ConflictError(
                        f"array {node.relative(place, self.path)!r} of group '/{self.path}' in {self.store!r} was "
                        "resized or replaced by another program while it grew. Nothing was changed; write it again"
                    )
                entries[relative] = found
            for place, documents in record.created.items():
                entries[node.relative(place, top)] = bare(documents)

        attributes = record.attributes.get(top, {}) if top == self.path else {}
        return change_entries(self.store, top, self.zarr_format, change, attributes)[1] is not None

    def abort(self) -> None:
        """Give the change up: remove what was written; nothing happens after a commit."""
        if self._done:
            return
        self._done = True
        if self._lease is None:
            _undo(self.store, self._record)
            return
        try:
            content = self._lease.stored()
            if content is None:
                return  # another process has taken over, and removes it
            # What is stored decides: the answer to the commit may have been lost.
            settle(self.store, self._lease, content)
        except BaseException:
            self._lease.abandon()
            raise
        self._lease.release()
        self._leave_no_directory()

    def _leave_no_directory(self) -> None:
        """Remove the directory that the lease was in, if it was made for that and nothing else has come there."""
        if self.path and self.group() is None:
            remove.remove_directory(self.store, self.path)
        if self._place_is_new and isinstance(self.store, LocalStore):
            with suppress(OSError):  # it is not empty
                os.rmdir(self.store.root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with self._opened:
                self.commit()
            return
        try:
            self.abort()
        finally:
            self._opened.__exit__(kind, error, trace)


def change(
    store: StoreLike,
    path: str = "",
    *,
    below: Iterable[str] = (),
    zarr_format: Literal[2, 3] | None = None,
    consolidate: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Change:
    """Begin a change of several arrays below a group, which readers see as a whole or not at all.

    Only one writer at a time changes a group. Another one is waited for, for as long as the setting `lease.wait` says;
    then a `ConflictError` is raised before anything is written. What a dead writer left is finished or undone first.

    Parameters
    ----------
    store
        Where the group is: a path, a URL, a store, as everywhere.
    path
        The path of the group in the store. There need not be one yet: it is created with the first node in it. Until
        the end there is a key `__zellige_commit` at the place, which keeps others out; of a change that creates nothing
        nothing is left.
    below
        The paths, below the group, of other groups whose arrays change as well.
    zarr_format
        The Zarr format of a group that is created; the setting `default_zarr_format` by default.
    consolidate
        Whether to consolidate the metadata of the store where it was not consolidated before. Consolidated metadata
        that is there follows the change in any case.
    storage_options
        How to reach a server; see `zellige.open`.

    Returns
    -------
    Change
        Left as a context manager it is committed, or given up after an exception. A zip file that was given by its path
        is complete then, or as it was.

    Examples
    --------
    >>> import numpy as np
    >>> import zellige
    >>> root = zellige.create_group()
    >>> for name in "tu":
    ...     _ = root.create_array(name, data=np.arange(59), chunks=[[31, 28]])
    >>> with zellige.change(root.store) as change:
    ...     change.append("t", np.zeros(31), chunks=[31])
    ...     change.append("u", np.ones(31), chunks=[31])
    ...     before = [array.shape for array in root.array_values()]
    >>> before, [array.shape for array in root.array_values()]
    ([(59,), (59,)], [(90,), (90,)])
    """
    where, top = locate(store, node.normalize_path(path), storage_options=storage_options)
    where.check_writable()
    begun = Change(where, top, zarr_format or config.get("default_zarr_format"), consolidate=consolidate)
    begun._take([node.join(top, place) for place in below if place])
    try:
        if (found := begun.group()) is not None:
            begun.zarr_format = found.metadata.zarr_format
    except BaseException:
        begun.abort()
        raise
    begun._opened = finishing(store, where)
    return begun


# -- recovering -----------------------------------------------------------------------------------


def owner_of(store: Store, path: str) -> Owner | None:
    """Return the live owner of the lease of a group; what a dead one left is finished or undone."""
    key = node.join(path, node.RECORD)
    if store.traits.transactional or store.get(key) is None:
        return None
    own = Lease(store, key, _ABOUT)
    owner = own.attempt()
    if owner is None:
        try:
            settle(store, own)
        except BaseException:
            own.abandon()
            raise
        own.release()
    return owner


def owner_above(store: Store, path: str, own: str = "") -> Owner | None:
    """Return the live owner of the lease of a group above a node; `own` is the caller's id."""
    if store.traits.transactional:
        return None
    found = gather(partial(owner_of, store), node.parents(path), store)
    return next((owner for owner in found if owner is not None and owner.id != own), None)


def settle(store: Store, held: Lease, content: Mapping[str, Any] | None = None) -> None:
    """Finish what a dead owner had committed, or undo what it had not; `held` is its lease, taken over.

    `content` is what the lease says, if that is not what was found when it was taken.
    """
    left = held.left if content is None else content
    if not left:
        return
    record = Record.from_json(left, held.key)
    if record.switch is not None and store.traits.optimistic and content is None:
        _touch(store, record.switch)
    if is_committed(store, record):
        finish(store, record)
    else:
        _undo(store, record)
    held.write({})
    held.left = None


def _touch(store: Store, path: str) -> None:
    """Change the bytes of consolidated metadata, but not what it says: replacing what was read before fails then."""

    def touch(key: str) -> None:
        found = store.read(key)
        if found is None:
            return
        text = found.whole.rstrip(b"\n")
        if not store.replace(key, text + b"\n" * (1 + (len(found.whole) - len(text)) % 8), found.tag):
            raise ChangedError

    for key in (node.join(path, DOCUMENT), node.join(path, CONSOLIDATED_V2)):
        retried(store, [key], partial(touch, key))


def finish(store: Store, record: Record) -> None:
    """Bring all metadata into line with a record that is committed; may be repeated."""
    path, grown = record.path, list(record.grown)
    written = gather(lambda place: _grow(store, place, record.grown[place]), grown, store, flushed=True)
    longer = dict(zip(grown, written, strict=True))
    below = {place: documents for place, documents in record.created.items() if place != path}
    _create_all(store, below)
    changed: Entries = {place: found for place, found in {**longer, **below}.items() if found}
    if (new := record.created.get(path)) is not None:
        group = GroupMetadata.from_documents(new)
        if record.consolidate and not path:
            group = group.with_consolidated(dict(changed))
        node.put_documents(store, path, group.to_documents())
        hierarchy.put_groups(store, hierarchy.missing_parents(store, path), group.zarr_format)
        changed[path] = new

    def is_newer(place: str, held: Documents) -> bool:
        return place in record.grown and record.grown[place].is_behind(held)

    holds = follow_changes(store, path, changed, record.attributes, is_newer)
    if record.consolidate and not holds:
        _consolidate(store, path)
    if replaced := [node.relative(place, path) for place, found in longer.items() if found is None]:
        raise ConflictError(
            f"arrays {replaced} of group '/{path}' in {store!r} were resized or replaced by another program while they "
            "grew; the others have grown. Look at the group with zellige.validate"
        )


def _consolidate(store: Store, path: str) -> None:
    """Consolidate the metadata of the whole store, or of the group if there is none at the root."""
    from zellige.nodes.group import Group

    root = node.load(store, "", expect="group")
    Group.open(store, path if root is None else "", use_consolidated=False)._consolidate()


def _grow(store: Store, path: str, growth: Growth) -> Documents | None:
    """Update the metadata of an array; returns it, nothing if it was removed, None if another program changed it."""
    names = [DOCUMENT] if "chunk_grid" in growth.after else [ARRAY_V2, ATTRIBUTES_V2]

    def rewrite(documents: Documents) -> tuple[Documents, Documents | None]:
        longer = growth.applied(documents)
        return longer or documents, longer

    try:
        longer = node.update(store, path, names, rewrite)
    except ConflictError:
        if store.exists(node.join(path, names[0])):
            raise
        return {}
    if longer is None and growth.is_behind(node.load(store, path) or {}):
        return {}  # another writer has finished this change already, and grown the array further
    return longer


def _create_all(store: Store, created: Mapping[str, Documents]) -> None:
    """Store the metadata of new nodes, from the depth upwards; what is there already stays."""
    for batch in reversed(node.levels(created)):
        gather(lambda place: node.put_documents(store, place, created[place]), batch, store, flushed=True)


def _undo(store: Store, record: Record) -> None:
    """Remove what was written for a change that is not committed; may be repeated."""
    gather(lambda place: _shorten(store, place, record.grown[place]), list(record.grown), store)
    for batch in reversed(node.levels(record.created)):
        gather(lambda place: _uncreate(store, place, record.created[place]), batch, store)


def _shorten(store: Store, path: str, growth: Growth) -> None:
    """Remove what lies beyond the end of an array; in a transaction, where it has grown already, shrink it."""
    found = node.load(store, path)
    if found is None:
        return
    back = Growth(growth.after, growth.before).applied(found)
    grown = growth.applied(found)
    if back is None or grown is None:
        return  # another program has changed it
    array = Array.from_documents(store, path, back)
    if store.traits.transactional:
        resize.trim(array._chunks, array.grid)
        _replace_metadata(array, array.metadata)
    else:
        resize.clear_uncovered(array._chunks, array.grid, Array.from_documents(store, path, grown).grid)


def _replace_metadata(array: Array, metadata: ArrayMetadata) -> None:
    """Change the metadata of an array at once, in a transaction."""
    update_metadata(array, lambda _: metadata)


def _uncreate(store: Store, path: str, documents: Documents) -> None:
    """Remove the chunks of an array that was not created; in a transaction, where it was, the array."""
    if store.traits.transactional:
        remove.clear(store, path)
        return
    metadata = node.parse(documents)
    if not isinstance(metadata, GroupMetadata) and node.load(store, path) is None:
        remove.remove_chunks(store, path, metadata)
