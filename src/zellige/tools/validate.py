"""`validate`: what is wrong with a tree of nodes; it reads, and changes nothing.

Every key below a path is accounted for: it is a document of a node, a chunk of an array, something that zellige keeps
for itself, or it is stray. What can be read of each document, shard index and chunk is read.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from zellige.display.progress import Progress, ProgressLike
from zellige.errors import (
    BadArchiveError,
    CodecError,
    CorruptChunkError,
    MetadataError,
    NodeNotFoundError,
    ShortReadError,
)
from zellige.metadata.groups import (
    ARRAY_V2,
    ATTRIBUTES_V2,
    CONSOLIDATED_V2,
    GROUP_V2,
    Documents,
    Entries,
    GroupMetadata,
    consolidated_entries,
)
from zellige.metadata.json import UNFINISHED, UNFINISHED_WORDS
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import lease, node, remove
from zellige.nodes.array import Array
from zellige.nodes.consolidated import bare, conflict, differences, stored_entries
from zellige.nodes.record import Record, is_committed
from zellige.nodes.remove import ChunkNames, Owners
from zellige.stores import Store, StoreLike, locate, threads
from zellige.stores.abilities import Obstacle
from zellige.stores.base import DOCUMENTS
from zellige.tools.scan import Scan, is_reserved, parsed
from zellige.types import Coords

if TYPE_CHECKING:
    from zellige.nodes.node import NodeMetadata

_Error: TypeAlias = Literal["document", "index", "chunk", "consolidated", "dataset"]
_Warning: TypeAlias = Literal["outside", "leftover", "stray", "nested"]
_Note: TypeAlias = Literal["missing", "lengths"]
Kind: TypeAlias = _Error | _Warning | _Note
Level: TypeAlias = Literal["error", "warning", "note"]

_KINDS: dict[Level, Any] = {"error": _Error, "warning": _Warning, "note": _Note}
LEVELS: dict[Kind, Level] = {kind: level for level, kinds in _KINDS.items() for kind in get_args(kinds)}

QUARANTINE = f"{node.OWN}_quarantine"
"""Below the node that was repaired: damaged values that were put aside."""

_STOPPED = "an operation on this node was stopped, or is under way"
_UNREADABLE = "its bytes cannot be put aside, so repair leaves it, or removes it with drop=True (--drop)"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or worth knowing."""

    kind: Kind
    path: str
    """The path of the node that it belongs to, or is below."""
    key: str
    """The key in the store; of missing chunks, where they would be."""
    message: str
    coords: Coords | None = None
    """The coordinates of a chunk."""

    @property
    def level(self) -> Level:
        """How bad it is: an error loses data, a warning does not, a note is as it may be."""
        return LEVELS[self.kind]

    def __str__(self) -> str:
        return f"{self.level}: {self.kind} {self.key or '/' + self.path}: {self.message}"


@dataclass(frozen=True)
class Report:
    """What `validate` has found."""

    findings: tuple[Finding, ...]
    arrays: int
    groups: int
    chunks: int
    """Chunks that are stored within the grids."""
    deep: bool
    """Whether all of them were decoded."""

    @property
    def ok(self) -> bool:
        """Whether there is neither an error nor a warning."""
        return all(found.level == "note" for found in self.findings)

    def summary(self) -> str:
        """One line for people."""
        counts = Counter(found.level for found in self.findings)
        seen = [_counted(self.groups, "group"), _counted(self.arrays, "array"), _counted(self.chunks, "chunk")]
        found = [_counted(counts[level], level) for level in ("error", "warning")]
        return f"{', '.join(seen)} {'decoded' if self.deep else 'looked at'}: {', '.join(found)}"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), self.summary()])


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' * (count != 1)}"


def validate(
    store: Array | StoreLike,
    path: str = "",
    *,
    deep: bool = False,
    progress: ProgressLike = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Check the node at a path, and everything below it; nothing is changed.

    Metadata is read and checked, consolidated metadata is compared with it, every key must belong to something, shard
    indexes are read, and chunks whose size is known must have it. Nodes that no reader lists are reported: those below
    a path without metadata of a group, inside of an array, or behind a link out of a local store.

    Parameters
    ----------
    store, path
        An array, or the place, and the path of the node within it.
    deep
        Whether to decode every chunk.
    progress
        Whether to show a progress bar, or a function to be called; see `zellige.progress`.
    storage_options
        How to reach a server; see `zellige.open`.

    >>> import zellige
    >>> root = zellige.group()
    >>> _ = root.create_array("t", data=range(59), chunks=[[31, 28]])
    >>> zellige.validate(root.store, deep=True).summary()
    '1 group, 1 array, 2 chunks decoded: 0 errors, 0 warnings'
    >>> root.store.put("t/c/1", b"nonsense")
    >>> [found.key for found in zellige.validate(root.store, deep=True).findings]
    ['t/c/1']
    """
    if isinstance(store, Array):
        where, top = store.store, node.join(store.path, path)
    else:
        where, top = locate(store, node.normalize_path(path), read_only=True, storage_options=storage_options)
    return Inspection(where, top).report(deep=deep, progress=progress)


class Inspection:
    """The nodes below a path, read once, and what is wrong with them."""

    def __init__(self, store: Store, top: str) -> None:
        self.store, self.top = store, top
        self.scan = Scan(store, [top], 3)
        self.obstacles = self.scan.obstacles
        self.arrays: dict[str, Array] = {}
        self.groups: dict[str, GroupMetadata] = {}
        self.stored: dict[str, list[tuple[Coords, str]]] = {}
        """The chunks of each array that lie within its grid."""
        self._claimed: set[str] = set()
        self._broken: list[Finding] = []
        self.last_copies: set[str] = set()
        """The groups whose consolidated metadata knows nodes that have keys, and cannot be read or restored."""
        self.lost: dict[str, Lost] = {}
        """The nodes that `repair` can give back their documents, by path."""
        self.disputed: set[str] = set()
        """The arrays whose documents contradict consolidated metadata, and nothing tells which of them is right."""
        self._refused: dict[str, Documents] = {}
        """Documents of arrays that can be parsed, but not used, such as those with a codec that is not known."""
        for place in sorted(self.scan.names):
            self._load(place)
        self.records = self.scan.places(node.RECORD)
        """The groups with a change of several arrays that is under way, or was stopped."""
        marked = self.scan.places(node.UNFINISHED)
        self.marks = {path: mark for path in marked if (mark := remove.read_mark(store, path)) is not None}
        """What is unfinished, by path: nodes that are being made, moved or removed."""
        self._changing = {*self.marks, *self.records}
        self._find_lost()
        self._broken += self._blocked_documents()
        if not (self.arrays or self.groups or self._broken or self.records or self.marks):
            raise NodeNotFoundError(f"there is no array and no group at or below '/{top}' in {store!r}")

    @property
    def broken(self) -> list[str]:
        """The paths of the nodes whose documents cannot be read."""
        return [found.path for found in self._broken if found.path not in self.lost]

    def report(self, *, deep: bool, progress: ProgressLike = None) -> Report:
        """All findings, in the order of their keys."""
        found = [*self._broken, *self._hidden_nodes(), *self._nested()]
        found += [*self._consolidated(), *self._leftovers(), *self.lengths()]
        for path, array in self.arrays.items():
            found += self._chunk_keys(path, array)
        found += self._stray()
        found += self._chunks(deep=deep, progress=progress)
        found.sort(key=lambda one: (one.key, one.kind))
        return Report(tuple(found), len(self.arrays), len(self.groups), sum(map(len, self.stored.values())), deep)

    # -- documents --------------------------------------------------------------------------------

    def _load(self, path: str) -> None:
        """Read the documents of a node."""
        names = self.scan.own(path)
        keys = [node.join(path, name) for name in names]
        if not names or is_reserved(path):
            return  # attributes or consolidated metadata without a node, which are stray
        if not self.obstacles.keys().isdisjoint(keys):
            self._claimed.update(keys)
            return
        # Those of the other format as well, which a migration leaves beside the new one.
        self._claimed.update(node.join(path, name) for name in self.scan.names[path])
        documents, damaged = read_documents(self.store, path, names)
        self._broken += [Finding("document", path, node.join(path, name), what) for name, what in damaged.items()]
        try:
            if not damaged:
                self._take(path, documents)
        except MetadataError as error:
            self._broken.append(Finding("document", path, keys[0], str(error)))

    def _take(self, path: str, documents: Documents) -> None:
        metadata = node.parse(documents)
        if isinstance(metadata, GroupMetadata):
            self.groups[path] = metadata
        else:
            self._refused[path] = documents
            self.arrays[path] = Array.from_documents(self.store, path, documents)
            del self._refused[path]

    def _find_lost(self) -> None:
        """Find out which documents can be restored, and which groups have none; both are nodes from here on."""
        self._held = held_entries(self.scan, self.groups)
        for lost in find_lost(self.scan, self._held, self._is_settled):
            with suppress(MetadataError):  # by an entry that is no node either
                self._take(lost.path, lost.whole)
                self._note_lost(lost, "the metadata is missing")
        self._find_disputes()
        for path in self._groups_without_document():
            below = [found.zarr_format for place, found in self._nodes() if node.is_below(place, path)]
            documents = GroupMetadata(zarr_format=2 if below and set(below) == {2} else 3).to_documents()
            lost = Lost(path, documents, (), tuple(documents), "repair makes one of an empty group")
            missing = "there are nodes below, but no metadata of a group here, so that they are not listed"
            if path == self.top:  # it may be a directory of several stores
                remedy = "if they belong together, make one with zellige.open_group(…, mode='a')"
                key = node.join(path, lost.written[-1])
                self._broken.append(Finding("document", path, key, f"{missing}; {remedy}"))
                continue
            self._take(path, documents)
            self._note_lost(lost, missing)

    def _find_disputes(self) -> None:
        """Find out which documents contradict consolidated metadata, by which the chunks can be read."""
        arrays = self.arrays.items() if self._held else ()
        known = {path: array.metadata.to_documents() for path, array in arrays} | self._refused
        left = {*self.lost, *self.scan.places(node.PENDING)}
        documents = {path: found for path, found in known.items() if path not in left and not self._is_changing(path)}
        disputes = list(find_disputes(self.scan, self._held, documents))
        self.disputed = {found.path for found in disputes if found.right == "unclear"}
        settled: set[str] = set()
        for found in sorted(disputes, key=lambda found: found.right == "unclear"):
            right = self._right_by_others(found) if found.right == "unclear" else found.right
            settled |= {found.path} if right != "unclear" else set()
            contradicts = f"it contradicts the consolidated metadata of '/{found.holder}' ({found.why})"
            if right == "entry":
                self._take(found.path, found.lost.whole)
                by_chunks, by_others = (
                    "chunks can be read by that one only",
                    "the other arrays are as long as that one says",
                )
                self._note_lost(found.lost, f"{contradicts}, and {by_chunks if found.right == right else by_others}")
            elif right == "unclear":
                self.last_copies.add(found.holder)
                message = (
                    f"{contradicts}, and nothing stored tells which of them is right, so that repair leaves both; call "
                    "zellige.consolidate_metadata if this is right, or else put the other one in its place"
                )
                key = node.join(found.path, self.scan.own(found.path)[0])
                self._broken.append(Finding("document", found.path, key, message))
        self.disputed -= settled

    def _right_by_others(self, found: Dispute) -> Right:
        """Whether the other arrays of a group are as long as a document says, or as an entry does.

        The chunks of an array tell nothing if it ends within the same chunk by both, as coordinates often do.
        """
        parent = found.path.rpartition("/")[0]
        others = [
            array
            for path, array in self.arrays.items()
            if path.rpartition("/")[0] == parent and path not in self.disputed
        ]
        right = set[Right]()
        for dim, (mine, theirs) in found.lengths.items():
            pairs = (pair for array in others for pair in zip(array.dimension_names or (), array.shape, strict=False))
            lengths = {length for name, length in pairs if name == dim}
            right.add("entry" if lengths == {theirs} else "document" if lengths == {mine} else "unclear")
        return right.pop() if len(right) == 1 else "unclear"

    def _is_changing(self, path: str) -> bool:
        """Whether a change of a node, or of one above it, is not finished."""
        return not self._changing.isdisjoint([*node.parents(path), path])

    def _note_lost(self, lost: Lost, missing: str) -> None:
        path = lost.path
        self.lost[path] = lost
        self._claimed.update(node.join(path, name) for name in self.scan.names.get(path, ()))
        damaged = [found for found in self._broken if found.path == path]
        for found in damaged:
            self._broken[self._broken.index(found)] = replace(found, message=f"{found.message}; {lost.remedy}")
        if not damaged:
            key = node.join(path, lost.written[-1])
            self._broken.append(Finding("document", path, key, f"{missing}; {lost.remedy}"))

    def _nodes(self) -> list[tuple[str, NodeMetadata]]:
        found = [(path, array.metadata) for path, array in self.arrays.items()]
        return [*found, *self.groups.items()]

    def _groups_without_document(self) -> list[str]:
        """The paths that have nodes below, and no documents; not within arrays, which hold no nodes."""
        places = {*self.arrays, *self.groups, *(found.path for found in self._broken)}
        above = {path for place in places for path in node.parents(place) if node.is_below(path, self.top)}
        return sorted(
            path
            for path in above - places
            if not self._is_settled(path) and self.arrays.keys().isdisjoint(node.parents(path))
        )

    def _is_settled(self, path: str) -> bool:
        """Whether there is nothing to restore at a path: it is whole, blocked, or a change of it is not finished."""
        if path in self.arrays or path in self.groups or is_reserved(path):
            return True
        return self._is_blocked(path) or self._is_changing(path)

    def _is_blocked(self, path: str) -> bool:
        """Whether something that is no value is in the place of a document, or hides the node."""
        hidden = (self.obstacles[above].is_hidden for above in [*node.parents(path), path] if above in self.obstacles)
        return any(node.join(path, name) in self.obstacles for name in DOCUMENTS) or any(hidden)

    def _blocked_documents(self) -> Iterator[Finding]:
        """What lies in the place of documents and is none."""
        for key, what in self.obstacles.items():
            path, _, name = key.rpartition("/")
            if name in DOCUMENTS and not is_reserved(path):
                self._claimed.add(key)
                message = f"{what} is in the place of the metadata; {what.remedy}"
                holders = (
                    holder
                    for holder, entries in self._held
                    if node.is_below(path, holder) and node.relative(path, holder) in entries
                )
                if (holder := next(holders, None)) is not None:
                    message += f"; the consolidated metadata of '/{holder}' has it, and repair writes it then"
                yield Finding("document", path, key, message)

    def _hidden_nodes(self) -> Iterator[Finding]:
        """Links out of the store that lie where members of groups do; what they lead to may be nodes."""
        for key, what in self.obstacles.items():
            hides = what is Obstacle.OUTER_DIRECTORY and not key.rpartition("/")[2].startswith(node.OWN)
            if hides and self.arrays.keys().isdisjoint(node.parents(key)):
                self._claimed.add(key)
                message = f"{what}; what it leads to is neither listed nor copied; {what.remedy}"
                yield Finding("document", key, key, message)

    def _nested(self) -> Iterator[Finding]:
        """Nodes that lie inside of arrays."""
        for path, metadata in self._nodes():
            outer = next((above for above in node.parents(path) if above in self.arrays), None)
            if outer is not None:
                message = (
                    f"a node inside of the array '/{outer}', where no reader lists it; copy it to a place of its own "
                    "(copy_store), and remove it here"
                )
                yield Finding("nested", path, node.join(path, node.document_names(metadata)[0]), message)

    def _consolidated(self) -> Iterator[Finding]:
        """What consolidated metadata says otherwise than the documents."""
        for path, metadata in self.groups.items():
            key = node.join(path, node.document_names(metadata)[0])
            try:
                held = metadata.consolidated
                if metadata.zarr_format == 2 and CONSOLIDATED_V2 in self.scan.names.get(path, ()):
                    key = node.join(path, CONSOLIDATED_V2)
                    held = stored_entries(self.store, path, 2)
            except DAMAGE as error:
                yield Finding("consolidated", path, key, str(error))
                continue
            if held is not None:
                found, inner = dict(self._below(path, metadata.zarr_format)), {**held}
                inner.pop("", None)
                # What lies below a group that cannot be read is not listed, and so not consolidated either.
                broken = {node.relative(place, path) for place in self.broken if node.is_below(place, path)}
                for entry in [*found, *inner]:
                    if not broken.isdisjoint(node.parents(entry)):
                        found.pop(entry, None)
                        inner.pop(entry, None)
                places = [node.join(path, entry) for entry in inner if entry not in found]
                kept = (self.scan.under(place) and not self._is_settled(place) for place in places)
                if any(kept) or any(map(self._is_blocked, places)) or not set(places).isdisjoint(self.broken):
                    self.last_copies.add(path)
                for sentence in differences(inner, found):
                    yield Finding("consolidated", path, key, sentence)

    def _below(self, path: str, zarr_format: int) -> Iterator[tuple[str, Documents]]:
        """The documents of the nodes below a group, as consolidated metadata holds them: those of its own format."""
        for place, metadata in self._nodes():
            if place == path or not node.is_below(place, path):
                continue
            documents: Documents | None = None
            if metadata.zarr_format == zarr_format:
                documents = metadata.to_documents()
            elif zarr_format == 2:  # a migration that was cut short has left it beside that of format 3
                with suppress(*DAMAGE):
                    documents = node.load(self.store, place, zarr_format=2)
            if documents is not None:
                yield node.relative(place, path), bare(documents)

    # -- keys -------------------------------------------------------------------------------------

    def _leftovers(self) -> Iterator[Finding]:
        """What zellige keeps for itself while it works, and leaves when it is killed."""
        # What lies where a node is being made, or removed, belongs to it.
        unfinished = {
            node.join(path, below): list(chunks)
            for path, mark in self.marks.items()
            if not self.scan.own(path)
            for below, chunks in mark.nodes.items()
        }
        owners = Owners(unfinished)
        self._claimed.update(key for key in self.scan.keys if owners.owner(key) is not None)
        seen: set[str] = set()
        for key in self.scan.keys:
            head, mark, tail = f"/{key}".partition(f"/{node.OWN}")
            if not mark:
                continue
            self._claimed.add(key)
            name = node.OWN + tail.partition("/")[0]
            path = head[1:]
            if (found := node.join(path, name)) not in seen and name != QUARANTINE:
                seen.add(found)
                if name == remove.WORK and path in self.marks:
                    continue  # which the mark beside it says
                yield Finding("leftover", path, found, self._leftover_message(path, found))

    def _leftover_message(self, path: str, key: str) -> str:
        """What is to be known about something that zellige keeps for itself."""
        if path in self.records and key == node.join(path, node.RECORD):
            return self._change_message(path, key)
        mark = self.marks.get(path) if key == remove.mark_key(path) else None
        if mark is None or mark.work is None:
            return _STOPPED
        if path in self.arrays and UNFINISHED in self.arrays[path].metadata.extra:
            return f"the array {UNFINISHED_WORDS}"
        if self.scan.own(path):
            return f"a {mark.work.name} was finished here but for this mark"
        return remove.words(mark.work)

    def _change_message(self, path: str, key: str) -> str:
        """What is to be known about a change of several arrays."""
        raw = self.store.get(key)
        if raw is None:
            return _STOPPED
        try:
            found = lease.read(raw)
            record = Record.from_json(found.content, key)
        except MetadataError as error:
            return str(error)
        for place in filter(None, record.created):
            self._claimed.update(self.scan.under(node.join(path, place)))
        what = f"a change of {_counted(len(record.grown) + len(record.created), 'node')} at once"
        if (owner := found.live_owner) is not None:
            return f"{what} is under way, by {owner}"
        if is_committed(self.store, record):
            return f"{what} was committed and not finished; repair, or the next write, finishes it"
        return f"{what} was stopped before its commit; repair, or the next write, removes what it left"

    def lengths(self) -> Iterator[Finding]:
        """Arrays of one group that disagree about the length of a dimension.

        Where the dimension has a coordinate, they are a dataset that cannot be opened. Elsewhere, as in the levels of
        an image pyramid, that may be meant.
        """
        for path in self.groups:
            if any(node.is_below(path, group) for group in self.records):
                continue  # finishing or undoing the change brings them into line
            for dim, lengths in self.disagreements(path).items():
                each = "; ".join(f"{length}: {', '.join(names)}" for length, names in sorted(lengths.items()))
                message = f"arrays disagree about the length of dimension {dim!r} ({each})"
                kind: Kind = "lengths"
                if node.join(path, dim) in self.arrays:
                    kind = "dataset"
                    message += f"; shrink=True (--shrink) cuts all to the shortest one, and removes {_removed(lengths)}"
                yield Finding(kind, path, path, message)

    def disagreements(self, path: str) -> dict[str, dict[int, list[str]]]:
        """The dimensions of the arrays of a group that have several lengths: the names of the arrays by length."""
        found: dict[str, dict[int, list[str]]] = {}
        for place, array in self.arrays.items():
            parent, _, name = place.rpartition("/")
            if parent == path and name:
                for dim, length in zip(array.dimension_names or (), array.shape, strict=False):
                    if dim is not None and name not in found.setdefault(dim, {}).setdefault(length, []):
                        found[dim][length].append(name)
        return {dim: lengths for dim, lengths in found.items() if len(lengths) > 1}

    def _chunk_keys(self, path: str, array: Array) -> Iterator[Finding]:
        """Chunks beyond the end of an array, and chunks that are not stored."""
        rank, keys = array.ndim, array._chunks.keys
        here = self.stored[path] = []
        for key in self.scan.under(path):
            if key in self._claimed:
                continue
            below = node.relative(key, path)
            coords = keys.decode_chunk_key(below, rank)
            if coords is None:
                if ChunkNames(keys, rank).has_folder(below):
                    self._claimed.add(key)
                    message = "a file is in the place of a directory of chunks; restore the directory"
                    yield Finding("chunk", path, key, message)
                continue
            self._claimed.add(key)
            if all(map(operator.lt, coords, array.grid.grid_shape)):
                here.append((coords, key))
            else:
                yield Finding("outside", path, key, f"chunk {coords} lies beyond the end of the array", coords)
        blocked = 0
        for key, place in self.scan.blocked(path, array.metadata):
            coords = keys.decode_chunk_key(node.relative(key, path), rank)
            blocked += coords is not None
            self._claimed.add(key)
            message = f"{self.obstacles[key]} is in the place of {place}; {self.obstacles[key].remedy}"
            yield Finding("chunk", path, key, message, coords)
        total = prod(array.grid.grid_shape)
        if 0 < len(here) < total - blocked:
            stored = {coords for coords, _ in here}
            first = next(coords for coords in array.grid.all_chunk_coords() if coords not in stored)
            message = f"{total - len(here):,} of {total:,} chunks are not stored, and read as the fill value"
            yield Finding("missing", path, array._chunks.key(first), f"{message}; the first is {first}", first)

    def _stray(self) -> Iterator[Finding]:
        hidden = {key: f"{what}, which" for key, what in self.obstacles.items() if what.is_hidden}
        for key in [*self.scan.keys, *hidden]:
            if key not in self._claimed and not is_reserved(key):
                path = next((above for above in reversed(node.parents(key)) if above in self.scan.names), self.top)
                yield Finding("stray", path, key, f"{hidden.get(key, '')} belongs to no node".strip())

    # -- chunks -----------------------------------------------------------------------------------

    def _chunks(self, *, deep: bool, progress: ProgressLike) -> list[Finding]:
        """What is wrong with the chunks, several at a time."""
        found: list[Finding] = []
        tasks = [
            (path, coords, key)
            for path, chunks in self.stored.items()
            for coords, key in chunks
            if key not in self.obstacles
        ]
        with Progress(progress, len(tasks), "checked", "chunks") as report:

            def look(task: tuple[str, Coords, str]) -> None:
                found.extend(self._chunk(*task, deep=deep))
                report.advance(task[2])

            threads.run(look, tasks, len(tasks), threads.crew(None, len(tasks) << 20))
        return found

    def _chunk(self, path: str, coords: Coords, key: str, *, deep: bool) -> Iterator[Finding]:
        array = self.arrays[path]
        spec = array.grid.spec(coords)
        bound = array._chunks.chain.bound[spec.codec_shape]
        finding = partial(Finding, path=path, key=key, coords=coords)
        shard: Any = bound.shard
        try:
            if shard is not None:
                size = self.store.size(key)
                raw = None if size is None else self.store.get_range(key, *shard.index.span)
                if raw is not None and size is not None:
                    shard.index.parse(raw, size if shard.index.at_start else size - shard.index.size)
            elif bound.encoded_size is not None and (size := self.store.size(key)) not in (None, bound.encoded_size):
                yield finding(kind="chunk", message=f"has {size} bytes, {bound.encoded_size} are expected")
                return
            if deep:
                array[spec.slices]
        except BadArchiveError as error:
            yield finding(kind="chunk", message=f"{error}; {_UNREADABLE}")
        except CorruptChunkError as error:
            yield finding(kind="chunk", message=str(error.__cause__ or error))
        except (CodecError, ShortReadError) as error:
            yield finding(kind="index", message=str(error))


def _removed(lengths: Mapping[int, list[str]]) -> str:
    """What is removed if all arrays become as long as the shortest one."""
    least = min(lengths)
    cut = ", ".join(
        f"{name} {length} -> {least}" for length in sorted(lengths) if length > least for name in lengths[length]
    )
    return f"what the others have beyond it: {cut}" if least else f"all that the others have: {cut}"


DAMAGE = (MetadataError, BadArchiveError)
"""What reading a damaged document raises; the latter in a zip file."""

Right: TypeAlias = Literal["document", "entry", "unclear"]
"""Which of a document and an entry of consolidated metadata the stored chunks agree with."""

Held: TypeAlias = Sequence[tuple[str, Entries]]
"""Consolidated metadata, with the paths of the groups that hold it: those furthest down first."""

_SAMPLE = 4  # chunks that are decoded to find out which document is right, of each kind


@dataclass(frozen=True)
class Lost:
    """A node with documents that are damaged or missing, and what they are to become."""

    path: str
    whole: Documents
    """The documents of the node, once it is mended."""
    damaged: tuple[str, ...]
    """The names of documents that cannot be read, or are wrong."""
    written: tuple[str, ...]
    """The names of documents that are to be written, the main one last."""
    remedy: str
    """What `repair` does about it."""


def read_documents(store: Store, path: str, names: list[str]) -> tuple[Documents, dict[str, str]]:
    """The documents of a node that can be read, and of the others what is wrong with each."""
    good: Documents = {}
    damaged: dict[str, str] = {}
    for name in names:
        try:
            raw = node.read_document(store, path, name) or b""
            content = parsed(name, raw)
            if name in (DOCUMENT, ARRAY_V2, GROUP_V2):
                node.parse({name: content})
            good[name] = content
        except DAMAGE as error:
            damaged[name] = str(error)
    return good, damaged


def held_entries(scan: Scan, groups: Mapping[str, GroupMetadata]) -> Held:
    """The consolidated metadata that can be read.

    That of format 2 is read also where the group's own document is lost, but not where that of format 3 counts.
    """
    found = {path: metadata.consolidated for path, metadata in groups.items() if metadata.consolidated is not None}
    for path, names in scan.names.items():
        if CONSOLIDATED_V2 in names and path not in found and not is_reserved(path):
            with suppress(*DAMAGE):
                raw = node.read_document(scan.store, path, CONSOLIDATED_V2) or b""
                found[path] = consolidated_entries(parsed(CONSOLIDATED_V2, raw))
    return sorted(found.items(), key=lambda item: (-item[0].count("/") - bool(item[0]), item[0]))


def find_lost(scan: Scan, held: Held, whole: Callable[[str], bool]) -> Iterator[Lost]:
    """What nodes are to become whose documents are damaged or missing and which consolidated metadata knows.

    Without its document and without a key below it, a node was removed, and the consolidated metadata lags behind.
    `whole` says of a path whether nothing is to be restored there; it is called again before each that is found.
    """
    for holder, path, entry in _entries(held):
        if not whole(path) and scan.under(path):
            names, of_format = scan.names.get(path, set()), {DOCUMENT} if DOCUMENT in entry else {*entry, ATTRIBUTES_V2}
            good, damaged = read_documents(scan.store, path, sorted(of_format & names))
            result = {**entry, **good}
            result = {name: result[name] for name in sorted(result, key=lambda name: name == ATTRIBUTES_V2)}
            written = sorted((name for name in entry if name not in good), key=lambda name: name != ATTRIBUTES_V2)
            remedy = _remedy(holder)
            if DOCUMENT in names - of_format:  # of both formats, this one counts
                readable, unreadable = read_documents(scan.store, path, [DOCUMENT])
                if readable:
                    continue
                damaged |= unreadable
                remedy = remedy if written else "repair puts it aside, and the metadata of Zarr format 2 counts again"
            yield Lost(path, result, tuple(damaged), tuple(written), remedy)


def _entries(held: Held) -> Iterator[tuple[str, str, Documents]]:
    """The entries of consolidated metadata, each with the paths of the group that holds it and of its node."""
    for holder, entries in held:
        for relative, entry in sorted(entries.items()):
            yield holder, node.join(holder, relative), entry


def _remedy(holder: str) -> str:
    return f"repair restores it from the consolidated metadata of '/{holder}'"


# -- documents that contradict consolidated metadata ----------------------------------------------


@dataclass(frozen=True)
class Dispute:
    """An array whose document contradicts an entry of consolidated metadata, which may be the one that is right."""

    path: str
    holder: str
    """The path of the group that holds the entry."""
    why: str
    right: Right
    """Which of them the chunks of the array agree with."""
    lost: Lost
    """What the node is to become, if the entry is right."""
    lengths: Mapping[str, tuple[int, int]]
    """The dimensions that are shorter by the document, with their lengths by it and by the entry.

    Empty if they differ in anything else, or an axis that is shorter has no name.
    """


def find_disputes(scan: Scan, held: Held, documents: Mapping[str, Documents]) -> Iterator[Dispute]:
    """The arrays whose documents may be wrong: the chunks agree with consolidated metadata, or with neither alone.

    `documents` are those of arrays, by path, which can be parsed; by some of them no array can be opened. An array that
    another program has changed, and whose chunks are what its document says, is none.
    """
    seen: set[str] = set()
    for holder, path, entry in _entries(held):
        found = documents.get(path)
        why = None if found is None or path in seen else conflict(entry, found)
        if found is None or why is None:
            continue
        own, other = _array(scan.store, path, found), _array(scan.store, path, entry)
        right = "document" if other is None else _right(scan, own, other)
        if other is None or right == "document" or (own is None and right == "unclear"):
            continue  # without an array by either, the document is damaged and reported as such
        seen.add(path)
        main = DOCUMENT if DOCUMENT in entry else ARRAY_V2
        lost = Lost(path, {**entry, **found, main: entry[main]}, (main,), (main,), _remedy(holder))
        yield Dispute(path, holder, why, right, lost, {} if own is None else _lengths(own, other, main))


def _lengths(own: Array, other: Array, main: str) -> dict[str, tuple[int, int]]:
    """The dimensions along which two states of an array differ, if nothing else that matters does."""
    documents, entry = own.metadata.to_documents(), other.metadata.to_documents()
    sizes = {name: value for name, value in documents[main].items() if name in ("shape", "chunk_grid")}
    if own.ndim != other.ndim or conflict({**entry, main: {**entry[main], **sizes}}, documents) is not None:
        return {}
    names = own.dimension_names or (None,) * own.ndim
    shorter = [(dim, pair) for dim, *pair in zip(names, own.shape, other.shape, strict=True) if pair[0] != pair[1]]
    found = {dim: (pair[0], pair[1]) for dim, pair in shorter if dim is not None}
    return found if len(found) == len(shorter) else {}


def _array(store: Store, path: str, documents: Documents) -> Array | None:
    """The array that documents describe; None if they do not."""
    with suppress(MetadataError):
        if not node.is_group(documents):
            return Array.from_documents(store, path, documents)
    return None


def _right(scan: Scan, own: Array | None, other: Array) -> Right:
    """Whether stored chunks can be read by the document of an array only, or by an entry only."""
    of_own, of_other = ({} if array is None else _chunks(scan, array) for array in (own, other))
    both = [key for key in of_own if key in of_other]
    shared_own, shared_other = _readable(own, of_own, both), _readable(other, of_other, both)
    by_own = (shared_own - shared_other) | _readable(own, of_own, (key for key in of_own if key not in of_other))
    by_other = (shared_other - shared_own) | _readable(other, of_other, (key for key in of_other if key not in of_own))
    if by_own or by_other:
        return "unclear" if by_own and by_other else "entry" if by_other else "document"
    if not (of_own or of_other):
        return "document"  # there is nothing that could be lost
    # Whoever makes an array shorter removes the chunks beyond its end, and may leave the last one as it is.
    is_cut = own is not None and own.grid.grid_shape != other.grid.grid_shape and own.ndim == other.ndim
    return "document" if is_cut else "unclear"


def _chunks(scan: Scan, array: Array) -> dict[str, Coords]:
    return {key: coords for coords, key in scan.chunks(array.path, array.metadata)}


def _readable(array: Array | None, chunks: Mapping[str, Coords], keys: Iterable[str]) -> set[str]:
    """Those of some keys, among a few that are tried, whose chunks an array can read."""
    good = set[str]()
    if array is None:
        return good
    found = list(keys)
    for key in found[:: max(1, len(found) // _SAMPLE)][:_SAMPLE]:
        with suppress(CodecError, ShortReadError, BadArchiveError, OSError):
            array[array.grid.spec(chunks[key]).slices]
            good.add(key)
    return good
