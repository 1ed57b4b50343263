"""`repair` and `vacuum`: mending what `validate` finds, as far as it can be mended without the lost bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Literal, TypeAlias

from zellige.display.progress import ProgressLike
from zellige.errors import BadArchiveError, NodeNotFoundError
from zellige.metadata.json import UNFINISHED, write_json
from zellige.nodes import commit, node, remove, resize
from zellige.nodes.consolidated import follow_changes
from zellige.nodes.group import Group
from zellige.stores import LocalStore, Store, StoreLike, opened
from zellige.tools.validate import LEVELS, QUARANTINE, Finding, Inspection, Kind

Done: TypeAlias = Literal["put aside", "removed", "mended", "left"]


@dataclass(frozen=True)
class Repaired:
    """What `repair` has done, or would do in a dry run."""

    actions: tuple[tuple[Done, Finding], ...]
    dry_run: bool
    notes: tuple[Finding, ...] = ()
    """What there is to know, and nothing to do about."""

    @property
    def left(self) -> tuple[Finding, ...]:
        """What could not be mended: each needs a person."""
        return tuple(finding for done, finding in self.actions if done == "left")

    def __str__(self) -> str:
        would = "would be " if self.dry_run else ""
        lines = [f"{'left' if done == 'left' else would + done}: {finding}" for done, finding in self.actions]
        return "\n".join([*(lines or ["nothing to repair"]), *map(str, self.notes)])


def repair(
    store: StoreLike,
    path: str = "",
    *,
    dry_run: bool = True,
    deep: bool = True,
    drop: bool = False,
    stray: bool = False,
    shrink: bool = False,
    progress: ProgressLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Repaired:
    """Mend what `validate` finds at a path and below it; by default only say what would be done.

    Damaged chunks, and chunks beyond the end of an array, are put aside below `__zellige_quarantine`. What a killed
    writer left is removed. A change of several arrays that was stopped is finished if it was committed, and undone
    otherwise. What a `rechunk`, `copy` or `convert` has left that was stopped stays, since the same call can finish it.

    Metadata that is damaged, or missing above keys that are there, is restored from consolidated metadata, and what was
    damaged is put aside. The same is done with metadata that says that an array is shorter, or stored otherwise, if
    chunks can be read by the consolidated metadata only; if the chunks do not tell which of the two is right, both are
    left. A group without metadata gets that of an empty group, but not at the path itself, which may be a directory of
    several stores. Other metadata that cannot be read is left, since nothing tells what it said. Consolidated metadata
    that differs is made anew, and the old is put aside; it is left where nothing else knows a node whose keys are
    there, or whose metadata is blocked by what is no value.

    Chunks that were never written are no damage: the result has them among its `notes`.

    Parameters
    ----------
    store, path
        Where the node is.
    dry_run
        Whether only to say what would be done.
    deep
        Whether to decode every chunk to find damage.
    drop
        Whether to remove damaged chunks, and those beyond the end, instead of putting them aside. Damaged chunks read
        as the fill value from then on, either way. Damaged values of a zip file whose bytes cannot be read are left
        unless this is given.
    stray
        Whether to put aside, or remove, keys that belong to no node; otherwise they are left, and named.
    shrink
        Whether to make arrays of a dataset that disagree about the length of a dimension all as long as the shortest
        one. What the longer ones hold beyond that is lost. Otherwise they are left, and named.
    progress
        Whether to show a progress bar, or a function to be called; see `zellige.progress`.
    storage_options
        How to reach a server; see `zellige.open`.

    >>> import zellige
    >>> a = zellige.create_array(data=range(4), chunks=2)
    >>> a.store.put("c/1", b"nonsense")
    >>> print(zellige.repair(a.store))  # doctest: +ELLIPSIS
    would be put aside: error: chunk c/1: ...
    >>> _ = zellige.repair(a.store, dry_run=False)
    >>> a[:]
    array([0, 1, 0, 0])
    """
    with opened(store, node.normalize_path(path), storage_options=storage_options) as (where, top):
        mending = _Mending(where, top, dry_run=dry_run, drop=drop, stray=stray, shrink=shrink)
        return mending.mend(deep=deep, progress=progress)


def vacuum(
    store: StoreLike,
    path: str = "",
    *,
    dry_run: bool = False,
    quarantine: bool = False,
    unfinished: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Repaired:
    """Remove what is of no use: chunks beyond the end of arrays, and what killed writers left. No chunk is read.

    Parameters
    ----------
    store, path
        The place, and the path of the node within it.
    dry_run
        Change nothing, and tell what would be removed.
    quarantine
        Remove what `repair` has put aside, too.
    unfinished
        Remove what a `rechunk`, `copy` or `convert` has left that was stopped, too. The same call could still finish
        it. Nobody may be at work there: what is under way looks the same.
    storage_options
        How to reach a server; see `zellige.open`.

    >>> import zellige
    >>> a = zellige.create_array(data=range(4), chunks=2)
    >>> a.store.put("c/7", b"old")
    >>> print(vacuum(a.store))
    removed: warning: outside c/7: chunk (7,) lies beyond the end of the array
    """
    with opened(store, node.normalize_path(path), storage_options=storage_options) as (where, top):
        mending = _Mending(where, top, dry_run=dry_run, drop=True, unfinished=unfinished, only=("outside", "leftover"))
        done = mending.mend(deep=False)
        if quarantine and not dry_run:
            where.delete_prefix(node.join(top, QUARANTINE) + "/")
        return done


@dataclass
class _Mending:
    """Carries out what is to be done about findings of some kinds."""

    store: Store
    top: str
    dry_run: bool
    drop: bool
    stray: bool = False
    shrink: bool = False
    unfinished: bool = False
    only: Collection[Kind] = tuple(LEVELS)
    _changed: set[str] = field(default_factory=set)
    """The keys and paths of what was mended already: several findings may be about the same."""

    def mend(self, *, deep: bool, progress: ProgressLike = None) -> Repaired:
        """Do it, or say what would be done."""
        inspection, settled = self._settle()
        if inspection is None:
            return Repaired(tuple(settled), self.dry_run)
        self.inspection = inspection
        report = inspection.report(deep=deep, progress=progress)
        if not self.dry_run:
            self.store.check_writable()
            if isinstance(self.store, LocalStore):
                self.store.clean()
        asked = [one for one in report.findings if one.kind in self.only]
        found, notes = ([one for one in asked if (one.level == "note") == is_note] for is_note in (False, True))
        # Documents first: what else is mended may need them.
        done = {one: self._act(one) for one in sorted(found, key=lambda one: one.kind != "document")}
        return Repaired((*settled, *((done[one], one) for one in found)), self.dry_run, tuple(notes))

    def _act(self, found: Finding) -> Done:
        ways: dict[Kind, Callable[[Finding], Done]] = {
            "chunk": self._set_aside,
            "index": self._set_aside,
            "stray": self._set_aside,
            "outside": self._set_aside,
            "leftover": self._finish,
            "consolidated": self._consolidate,
            "document": self._restore,
            "dataset": self._shrink,
        }
        return ways[found.kind](found) if found.kind in ways else "left"

    def _settle(self) -> tuple[Inspection | None, list[tuple[Done, Finding]]]:
        """Finish or undo changes of several arrays that were stopped, before anything else is looked at.

        Returns what is there then, None if nothing is, and what was done.
        """
        inspection = Inspection(self.store, self.top)
        if self.dry_run or not inspection.records:
            return inspection, []
        self.store.check_writable()
        findings = inspection.report(deep=False).findings
        leftovers = {found.key: found for found in findings if found.kind == "leftover"}
        done: list[tuple[Done, Finding]] = [
            ("mended", leftovers[node.join(path, node.RECORD)])
            for path in inspection.records
            if commit.owner_of(self.store, path) is None
        ]
        try:
            return Inspection(self.store, self.top), done
        except NodeNotFoundError:
            return None, done

    def _set_aside(self, found: Finding) -> Done:
        if found.key in self.inspection.obstacles:
            return "left"  # it is no value, and what is below it may be
        if found.path in self.inspection.disputed:
            return "left"  # by the consolidated metadata it may be a good chunk
        if found.kind == "stray":
            below_broken = any(node.is_below(found.key, path) for path in self.inspection.broken)
            if below_broken or not self.stray:
                return "left"  # below a node that cannot be read it may be one of its chunks
        if not self.drop and not self._put_aside(found.key):
            return "left"
        if not self.dry_run:
            self.store.delete([found.key])
        return "removed" if self.drop else "put aside"

    def _put_aside(self, key: str) -> bool:
        """Keep a value below the quarantine, beside what was put aside from the same place before.

        False if its bytes cannot be read, because it is a damaged entry of a zip file.
        """
        try:
            raw = self.store.get(key)
        except BadArchiveError:
            return False
        place = node.join(self.top, f"{QUARANTINE}/{node.relative(key, self.top)}")
        names = chain([place], (f"{place}.{number}" for number in count(1)))
        while raw is not None and not self.dry_run and not self.store.create(name := next(names), raw):
            if self.store.get(name) == raw:
                break
        return True

    def _restore(self, found: Finding) -> Done:
        """Write the documents of a node that are known from elsewhere, and put the damaged ones aside."""
        lost = self.inspection.lost.get(found.path)
        if lost is None:
            return "left"
        if not self.dry_run and found.path not in self._changed:
            self._changed.add(found.path)
            for key in (node.join(lost.path, name) for name in lost.damaged):
                self._put_aside(key)
                self.store.delete([key])
            for name in lost.written:
                self.store.put(node.join(lost.path, name), write_json(lost.whole[name]))
        return "mended"

    def _finish(self, found: Finding) -> Done:
        """Undo what a killed writer had begun; what the same call can finish is left, unless it is to go."""
        if found.key == node.join(found.path, node.RECORD):
            return "mended" if self.dry_run else "left"  # what is still there is under way
        if found.key == remove.mark_key(found.path):
            return self._finish_mark(found.path)
        array = self.inspection.arrays.get(found.path)
        if not found.key.endswith(node.PENDING) or array is None:
            return "left"
        if not self.dry_run:
            with resize.shape_lease(array) as held:
                held.recover()
        return "mended"

    def _shrink(self, found: Finding) -> Done:
        """Make the arrays of a group as long as the shortest one, along every dimension; all of them, or none."""
        disputed = any(path.rpartition("/")[0] == found.path for path in self.inspection.disputed)
        if disputed or not self.shrink:
            return "left"
        longer = [
            (dim, min(lengths), node.join(found.path, name))
            for dim, lengths in self.inspection.disagreements(found.path).items()
            for length, names in lengths.items()
            if length > min(lengths)
            for name in names
        ]
        changed = {path: self.inspection.arrays[path] for _, _, path in longer}
        if any(array.metadata.chunk_grid.bounded for array in changed.values()):
            return "left"  # they keep their shape
        if self.dry_run:
            return "mended"
        for dim, length, path in longer:
            array = changed[path]
            names_there = array.dimension_names or ()
            array.resize([length if k == dim else n for k, n in zip(names_there, array.shape, strict=True)])
        follow_changes(self.store, found.path, {p: a.metadata.to_documents() for p, a in changed.items()}, {})
        return "mended"

    def _finish_mark(self, path: str) -> Done:
        """Remove a mark whose node is whole, and what is left of a removal, or with `unfinished` of a creation."""
        mark, array = self.inspection.marks[path], self.inspection.arrays.get(path)
        if self.inspection.scan.own(path):
            if array is not None and UNFINISHED in array.metadata.extra:
                return "left"
            if not self.dry_run:
                self.store.delete_prefix(node.join(path, remove.WORK) + "/")
                remove.remove_mark(self.store, path)
            return "removed"
        if mark.work is not None and not self.unfinished:
            return "left"
        if not self.dry_run:
            remove.clear(self.store, path, whole=False)
        return "removed"

    def _consolidate(self, found: Finding) -> Done:
        """Make consolidated metadata anew; the old is kept.

        It is left where it is the only place that still knows a node, and where it hides that arrays of a dataset
        disagree: by the new one the dataset would not open any more.
        """
        torn = (one.path for one in self.inspection.lengths() if one.kind == "dataset")
        hides = any(node.is_below(path, found.path) for path in torn)
        if found.path in self.inspection.last_copies or (hides and not self.shrink):
            return "left"
        if not self.dry_run and found.key not in self._changed:
            self._changed.add(found.key)
            if not self._put_aside(found.key):
                self.store.delete([found.key])
            Group.open(self.store, found.path, use_consolidated=False)._consolidate()
        return "mended"
