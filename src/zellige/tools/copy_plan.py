"""What a copy of nodes comes to: which keys go where, and what has to make way. Nothing here writes anything."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zellige.display.progress import ProgressLike
from zellige.errors import ContainsArrayError, ContainsGroupError, MetadataError, NotANodeError
from zellige.grid.grid import ChunkGrid
from zellige.metadata.groups import ARRAY_V2, ATTRIBUTES_V2, CONSOLIDATED_V2, GROUP_V2, Documents, GroupMetadata
from zellige.metadata.json import read_attributes, read_json, write_json
from zellige.metadata.v3 import DOCUMENT
from zellige.nodes import node
from zellige.nodes.array import Array
from zellige.nodes.consolidated import Consolidated
from zellige.nodes.create import from_array, modern_options
from zellige.nodes.group import Group
from zellige.nodes.remove import Chunks, Mark, Work, is_begun, mark_key, read_mark
from zellige.stores import Store, abilities, threads
from zellige.stores.abilities import Folders, Obstacle
from zellige.stores.base import DOCUMENTS
from zellige.stores.path import place
from zellige.tools.transfer import CopyError, LogLike, check, line, moved, refuse_obstacle
from zellige.types import JSON, Coords

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata, NodeMetadata

_MODES = ("raise", "replace", "skip", "skip_initialized")
_UNFIT = {"store", "path", "name", "shape", "data", "write_data", "overwrite", "mode", "storage_options"}
_BLOCK = "consolidated_metadata"
_parsers = {ATTRIBUTES_V2: read_attributes}


class Options(NamedTuple):
    """What `copy` and `copy_all` are told."""

    if_exists: str = "raise"
    shallow: bool = False
    without_attrs: bool = False
    dry_run: bool = False
    verify: bool = False
    progress: ProgressLike = None
    log: LogLike = None
    create: Mapping[str, Any] = {}

    def check(self) -> None:
        """Refuse what has no meaning."""
        check(self.if_exists, _MODES, self.progress, self.log)
        if unfit := sorted(self.create.keys() & _UNFIT):
            raise TypeError(f"{unfit[0]}= is no option of a copy; use the options for chunks, codecs and types")

    @property
    def altered(self) -> bool:
        """Whether documents below a group become others than those of the source."""
        return self.shallow or self.without_attrs or bool(self.create)


# -- what is there --------------------------------------------------------------------------------


class Found(NamedTuple):
    """A node of the source, with its documents as they are stored and as they read."""

    path: str
    raw: dict[str, bytes]
    documents: Documents
    metadata: NodeMetadata


class Survey:
    """What is stored below some paths of a store, from listings; documents are read when they are asked for."""

    def __init__(self, store: Store, tops: Sequence[str], first: int) -> None:
        self.store, self.tops, self.first = store, tops, first
        listed = threads.gather(lambda top: list(store.list(top and top + "/")), tops, store, large=True)
        self.keys = sorted(key for keys in listed for key in keys)
        self.names: dict[str, set[str]] = {}
        """The names of documents by the paths of their nodes."""
        for key in self.keys:
            path, _, name = key.rpartition("/")
            if name in (DOCUMENT, ARRAY_V2, GROUP_V2, ATTRIBUTES_V2, CONSOLIDATED_V2):
                self.names.setdefault(path, set()).add(name)
        self.consolidated: set[str] = set()
        """The groups that hold consolidated metadata, among those whose kind was asked for."""
        self._below: dict[str, list[str]] = {}
        for path in self.names:
            parent, _, name = path.rpartition("/")
            if name and not name.startswith(node.OWN):
                self._below.setdefault(parent, []).append(path)

    @cached_property
    def obstacles(self) -> dict[str, Obstacle]:
        """What lies in the place of keys and is no value, by its key, sorted; directories are among it."""
        return dict(sorted(found for top in self.tops for found in abilities.obstacles(self.store, top and top + "/")))

    @cached_property
    def _blocked(self) -> list[str]:
        return list(self.obstacles)

    def blocked(self, path: str, metadata: NodeMetadata) -> Iterator[tuple[str, str]]:
        """The keys of obstacles where something of a node belongs, each with what belongs there.

        For a group that is what its direct members need.
        """
        names, cut = Chunks.of(metadata), len(path and path + "/")
        for key in node.keys_below(self._blocked, path):
            what, rest = self.obstacles[key], key[cut:]
            if f"/{node.OWN}" in f"/{rest}":
                continue
            if not names:
                if what.is_hidden and rest.partition("/")[2] in DOCUMENTS:
                    yield key, "the document"
                elif what is Obstacle.OUTER_DIRECTORY and "/" not in rest:
                    yield key, "a node"
            elif any(found.has(rest) for found in names):
                yield key, "the chunk"
            elif what.is_hidden and any(found.has_folder(rest) for found in names):
                yield key, "a directory of chunks"

    def below(self, path: str) -> list[str]:
        """The paths directly below a group that may hold nodes."""
        return self._below.get(path, [])

    def under(self, path: str) -> list[str]:
        """All keys below a path."""
        return node.keys_below(self.keys, path)

    def chunks(self, path: str, metadata: ArrayMetadata) -> Iterator[tuple[Coords, str]]:
        """The chunks of an array that are stored and lie within its grid, with their keys."""
        grid, keys = ChunkGrid.from_metadata(metadata).grid_shape, metadata.chunk_key_encoding
        for key in self.under(path):
            coords = keys.decode_chunk_key(key[len(path and path + "/") :], len(grid))
            if coords is not None and all(map(operator.lt, coords, grid)):
                yield coords, key

    def own(self, path: str) -> list[str]:
        """The names of a node's own documents, the main one first; none if there is no node."""
        names = self.names.get(path, set())
        old = next((name for name in (ARRAY_V2, GROUP_V2) if name in names), None)
        if DOCUMENT in names and (self.first == 3 or old is None):
            return [DOCUMENT]
        return [] if old is None else [old, *({ATTRIBUTES_V2} & names)]

    def kind(self, path: str) -> Literal["array", "group"] | None:
        """What is at a path; a document that cannot be read counts as that of an array."""
        main = next(iter(self.own(path)), None)
        raw = self.store.get(node.join(path, DOCUMENT)) if main == DOCUMENT else None
        content: dict[str, Any] = {}
        if raw is not None:
            with suppress(MetadataError):
                content = read_json(raw)
        is_group = main == GROUP_V2 or content.get("node_type") == "group"
        if is_group and (_BLOCK in content or (main == GROUP_V2 and CONSOLIDATED_V2 in self.names[path])):
            self.consolidated.add(path)
        return None if main is None else "group" if is_group else "array"

    def load(self, paths: Sequence[str]) -> list[Found]:
        """The nodes at some paths; each document is read once, several at a time."""
        return [found for found in threads.gather(self._load, paths, self.store, large=True) if found is not None]

    def _load(self, path: str) -> Found | None:
        names = self.own(path)
        raw = {name: value for name in names if (value := self.store.get(node.join(path, name))) is not None}
        if not names or names[0] not in raw:
            return None
        try:
            documents = {name: _parsers.get(name, read_json)(value) for name, value in raw.items()}
            return Found(path, raw, documents, node.parse(documents))
        except MetadataError as error:
            message = f"cannot copy '/{path}' of {self.store!r}: {error}; copy_store copies keys as they are"
            raise type(error)(message, field=error.field) from error


# -- what is to be done ---------------------------------------------------------------------------


class Plan:
    """What is to be copied where, from below the path `base` of the source to below the path `top` of the target."""

    def __init__(self, origin: Survey, base: str, dest: Group, top: str, options: Options) -> None:
        self.origin, self.base, self.dest, self.top, self.options = origin, base, dest, top, options
        asked: dict[str, JSON] = {
            "from": repr(place(origin.store, base)),
            "options": repr(sorted(options.create.items())),
        }
        asked |= {"shallow": options.shallow, "without_attrs": options.without_attrs}
        self.work = Work("copy", asked)
        form = options.create.get("zarr_format") or dest.metadata.zarr_format
        self.create = modern_options({**options.create, "zarr_format": form}) if options.create else {}
        self.missing = _missing_groups(dest.store, top if top == dest.path else top.rpartition("/")[0])
        """Groups above that have to be made."""
        self.last: list[str] = []
        """The group that is copied into, if it has to be made; it comes when all of its members are there."""
        self.tops: list[str] = []
        """The new nodes that lie in groups which are there; each has a mark until all of them are whole."""
        self.finished: list[str] = []
        """Nodes of the target that an earlier call has copied that was asked for the same."""
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
        self.holders = [] if dest._holder is None else [dest._holder]
        """Consolidated metadata of the target that has to follow."""
        self.made: dict[str, Documents | None] = {}
        self.lines: list[tuple[list[str], str]] = []
        self.counts = {"copy": 0, "skip": 0}
        self._arrays: dict[str, ArrayMetadata] = {}
        self._free: list[str] = []  # where there is no node yet, but there may be keys
        self._same: set[str] = set()  # where an earlier call has left its mark that was asked for the same
        self._claimed: set[str] = set()

    def to(self, path: str) -> str:
        """Where a path, or key, of the source goes."""
        return moved(path, self.base, self.top)

    def left_out(self) -> tuple[str, ...]:
        """The keys of the source that belong to none of its nodes."""
        hidden = [key for key, what in self.origin.obstacles.items() if what.is_hidden]
        return tuple(key for key in sorted([*self.origin.keys, *hidden]) if key not in self._claimed)

    def claim(self, found: Found) -> None:
        """The documents of a node are not left out; raises if something hides its chunks, or members of a group."""
        for key, _ in self.origin.blocked(found.path, found.metadata):
            if (what := self.origin.obstacles[key]) is not Obstacle.UNREADABLE:  # reading says why
                refuse_obstacle(self.origin.store, key, what)
        if self.origin.store.ability(Folders) is not None:
            self._refuse_files(found)
        more = [CONSOLIDATED_V2] if GROUP_V2 in found.documents else []
        self._claimed.update(node.join(found.path, name) for name in [*found.documents, *more])

    def _refuse_files(self, found: Found) -> None:
        """Raise if a file is in the place of a directory of chunks, which are then not missing but unknown."""
        cut = len(found.path and found.path + "/")
        for chunks in Chunks.of(found.metadata):
            for key in self.origin.under(found.path):
                if chunks.has_folder(key[cut:]):
                    what = (
                        "it is a file in the place of a directory of chunks; restore the directory, or remove the file"
                    )
                    raise CopyError(f"key {key!r} in {self.origin.store!r}: {what}; nothing was copied", key=key)

    def add(self, level: list[Found], depth: int) -> None:
        """Plan for nodes and everything below them; the depth of the one that was asked for is 0."""
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
                action = "follow" if found.path.rpartition("/")[0] in new else self._action(found, kind)
                below += self._take(found, action)
                if action not in ("merge", "skip", "finish"):
                    new.add(found.path)
            level, depth = self.origin.load(below), depth + 1
        self._find_remains()
        if self.top != self.dest.path or self.top not in self.missing:
            self.tops += [*self._free, *self.removed]
            return
        # The group itself is made, and is there when all of its members are.
        self.missing.remove(self.top)
        self.tops.append(self.top)
        self.last.append(self.top)

    def _look(self, level: list[Found]) -> None:
        """See what is where the nodes go; they must not go into themselves."""
        targets = [self.to(found.path) for found in level]
        for found, target in zip(level, targets, strict=True):
            if place(self.dest.store, target).within(place(self.origin.store, found.path)):
                raise ValueError(
                    f"cannot copy '/{found.path}' to '/{target}', which is the same place or lies below it; copy to "
                    "another place"
                )
        if len(targets) > 1:  # one request tells which of them are there at all
            listed = set(self.dest.store.list_dir(self.top and self.top + "/")[1])
            targets = [target for target in targets if target + "/" in listed]
        self._there = Survey(self.dest.store, targets, self.dest.metadata.zarr_format)
        marks = [key.rpartition("/")[0] for key in self._there.keys if f"/{key}".endswith(f"/{node.UNFINISHED}")]
        if self.top == self.dest.path:
            marks.append(self.top)
        for path, mark in zip(
            marks, threads.gather(partial(read_mark, self.dest.store), marks, self.dest.store), strict=True
        ):
            if mark is not None and self.work.is_same(mark.work):
                self._same.add(path)
        if self.top in self._same and self.top == self.dest.path and self.top not in self.missing:
            self.finished.append(self.top)

    def _action(self, found: Found, kind: str | None) -> str:
        """What becomes of a node, and of what is where it goes."""
        metadata, target, mode = found.metadata, self.to(found.path), self.options.if_exists
        if kind is None or self.top in self._same & {*self.missing}:
            return "copy"
        if target in self._same and mode != "replace":
            return "finish"
        if isinstance(metadata, GroupMetadata):
            if kind == "group":
                return "merge"
        elif mode == "skip_initialized" and kind == "array":
            mode = "skip" if self._is_complete(found.path, metadata, target) else "replace"
        if mode in ("skip", "replace"):
            return mode
        if self._same:
            return "finish"  # the earlier call was told to raise as well, so that it was not there then
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

    def _take(self, found: Found, action: str) -> list[str]:
        """Plan for one node; returns the paths to look at below it."""
        target, metadata = self.to(found.path), found.metadata
        skipped = action in ("skip", "finish")
        self._say("skip" if skipped else "copy", found)
        if skipped:
            self._claimed.update(self.origin.under(found.path))
            self.finished += [target] if action == "finish" else []
            return []
        self.claim(found)
        if action == "merge":
            self._merge(found, target)
            return self.origin.below(found.path)
        node.check_names(target)
        if action == "copy":
            self._free.append(target)
        elif action == "replace":
            self._remove(target)
        if isinstance(metadata, GroupMetadata):
            self._add_group(found, metadata, target)
            return self.origin.below(found.path)
        self._add_array(found, metadata, target)
        return []

    def _say(self, verb: str, found: Found) -> None:
        metadata = found.metadata
        what = "" if isinstance(metadata, GroupMetadata) else f" {metadata.shape} {metadata.data_type.name}"
        self.counts[verb] += 1
        self.lines.append((found.path.split("/"), line(verb, "/" + found.path, "/" + self.to(found.path)) + what))

    def _merge(self, found: Found, target: str) -> None:
        if found.metadata.attributes and not self.options.without_attrs:
            self.merged[target] = found.metadata.attributes
        if target in self._there.consolidated:
            self.holders.append(Consolidated(self.dest.store, target, self.format_of(target), None))

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
            if target in self._same or self.top in self._same:
                # Documents go first; chunks are written again, whatever the source has by now.
                self.remains += [key for key in remains if key not in written or key in self.content]
                continue
            if mark_key(target) in self._there.under(target) and self._make_way(target):
                continue
            strange = set(remains)
            if remains and self.options.if_exists != "raise":
                strange -= written
                for path, metadata in self._arrays.items():
                    if f"{path}/".startswith(f"{target}/"):
                        strange.difference_update(key for _, key in self._there.chunks(path, metadata))
            if strange:
                raise NotANodeError(
                    f"'/{target}' in {self.dest.store!r} holds keys but no Zarr node, such as {min(strange)!r}; copy "
                    "under another name, or if a copy was cut short there pass if_exists='replace'"
                )
            self.remains += remains

    def _make_way(self, target: str) -> bool:
        """Whether what is unfinished at a place is removed; raises if it is to stay."""
        if self.options.if_exists != "replace" and not is_begun(self.dest.store, target):
            return False
        self._free.remove(target)
        self._remove(target)
        return True

    # -- what goes there --------------------------------------------------------------------------

    def _add_group(self, found: Found, metadata: GroupMetadata, target: str) -> None:
        form = self.create.get("zarr_format", metadata.zarr_format)
        if form != metadata.zarr_format:
            attributes = {} if self.options.without_attrs else metadata.attributes
            self._add_documents(target, GroupMetadata(attributes, form).to_documents(), found)
        else:
            self._add_documents(target, self._kept(found.documents), found)
        apart = GROUP_V2 in found.documents and CONSOLIDATED_V2 in self.origin.names[found.path]
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
        self._check_format(target, 3 if DOCUMENT in documents else 2)
        for name, content in documents.items():
            same = found.documents.get(name) == content
            self.content[node.join(target, name)] = found.raw[name] if same else write_json(content)
        self.made[target] = {
            name: {k: v for k, v in content.items() if k != _BLOCK} for name, content in documents.items()
        }

    def mark(self, top: str) -> Mark:
        """The mark of one of the new nodes."""
        cut = len(top and top + "/")
        made = [top, *(path for path in self.made if node.is_below(path, top))]
        groups: dict[str, list[Chunks]] = {path[cut:]: [] for path in made}
        arrays = {path[cut:]: Chunks.of(found) for path, found in self._arrays.items() if node.is_below(path, top)}
        return Mark({**groups, **arrays}, work=self.work)

    def has_mark(self, top: str) -> bool:
        """Whether an earlier call has left its mark at a node."""
        return top in self._same

    def _check_format(self, target: str, form: int) -> None:
        for holder in self.holders:
            if holder.zarr_format != form and f"{target}/".startswith(holder.path and holder.path + "/"):
                raise ValueError(
                    f"'/{target}' would have Zarr format {form}, which the consolidated metadata of '/{holder.path}' "
                    f"cannot hold; pass zarr_format={holder.zarr_format}, which encodes arrays anew"
                )


def _missing_groups(store: Store, path: str) -> list[str]:
    """The groups that are not there, of those at a path and above it; none of them may be an array."""
    parts = path.split("/") if path else []
    above = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
    return [group for group in above if not node.check_parent(store, group)]
