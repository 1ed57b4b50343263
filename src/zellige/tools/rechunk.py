"""`rechunk`: the values of an array in another grid, in bounded memory, and resumable after a crash.

`group_chunks` cuts the array into boxes that are each read and written once; `_Job` carries them.
"""

from __future__ import annotations

import json
import pickle
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import prod
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from uuid import uuid4

import numpy as np

from zellige.display.progress import Progress, ProgressLike, check_progress
from zellige.errors import BroadcastError, ConflictError
from zellige.metadata.json import UNFINISHED
from zellige.nodes import hierarchy, node, remove
from zellige.nodes.array import Array, update_metadata
from zellige.nodes.create import create_array, from_array
from zellige.nodes.lease import Lease
from zellige.nodes.remove import WORK, ChunkNames, Mark, Work
from zellige.settings import config
from zellige.stores import (
    LocalStore,
    MemoryStore,
    Store,
    StoreLike,
    StorePath,
    abilities,
    locate,
    opened,
    reopened,
    threads,
)
from zellige.stores.base import digest
from zellige.stores.resolve import place
from zellige.types import JSON, Indices, Shape

if TYPE_CHECKING:
    from zellige.nodes.node import ArrayMetadata

_OBJECT = 64  # bytes that an element of variable length is taken to have in memory


def rechunk(
    src: Array | StoreLike,
    dst: Array | StoreLike,
    chunks: Any = None,
    shards: Any = None,
    *,
    name: str | None = None,
    max_memory: int | str = "1 GiB",
    progress: ProgressLike = None,
    client: Any = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **create: Any,
) -> Array:
    """Write the values of an array with other chunks, and return the new array.

    While the call is at work, another one with the same target waits for it, or gets a `ConflictError`.

    Each source chunk is decoded as seldom as the memory allows; where that would be often, the values go through an
    intermediate array in the target's store, which is removed at the end.

    If the call is interrupted or killed, the same call goes on where it was: finished chunks are not written again.
    Until then the new array has no metadata, so that nobody takes it for whole; an array that is filled says so when it
    is opened. In a transaction (icechunk, zip) a kill leaves nothing to go on from; there, the intermediate array is a
    folder of temporary files.

    Parameters
    ----------
    src
        The array, or the place of one.
    dst
        Where the new array goes; or an array of the same shape, which is filled.
    chunks, shards
        The new grid, as for `create_array`; without chunks those of the source.
    name
        The path of the new array within `dst`.
    max_memory
        The bytes that may be used at a time, by each process of a cluster; as text with a unit, such as `"500 MB"`.
        Values of variable length are taken to have 64 bytes each.
    progress
        Called as `progress(done, total, region)` after each part; True shows a line on a terminal.
    client
        A `dask.distributed.Client` whose workers do it; they must reach both places. A session of icechunk is written
        by forks of it, which are merged. However the call ends, it waits for the boxes in flight.
    overwrite
        Replace an array that is there.
    storage_options
        How to reach the server of the target, and of the source if it is a place; see `zellige.open`.
    create
        Other options of `from_array`, such as `compressors`. Attributes, names and codecs are kept unless given.

    >>> import zellige
    >>> rows = zellige.create_array(data=[[1, 2, 3], [4, 5, 6]], chunks=(1, 3))
    >>> zellige.rechunk(rows, zellige.MemoryStore(), chunks=(2, [1, 2]))
    <zellige.Array / (2, 3) int64, rectilinear chunks 2 × [1, 2]>
    """
    check_progress(progress)
    memory = bytes_of(max_memory)
    if isinstance(src, Array):
        source = src
    else:
        source = Array.open(*locate(src, read_only=True, storage_options=storage_options))
    layout = {"chunks": chunks, "shards": shards}
    options = {**{key: value for key, value in layout.items() if value is not None}, **create}
    goal: AbstractContextManager[tuple[Store, str]]
    if isinstance(dst, Array):
        if options or name is not None:
            raise TypeError("dst is an array, which has its chunks and codecs; leave chunks=, name= and the like out")
        if source.shape != dst.shape:
            raise BroadcastError(f"dst has the shape {dst.shape}, the source {source.shape}; resize it first")
        goal = nullcontext((dst.store, dst.path))
    else:
        goal = opened(dst, node.new_path(name), storage_options=storage_options)
    with goal as (store, path):
        # Made in memory first: what is refused is refused before anything is written or removed.
        model = dst if isinstance(dst, Array) else from_array(data=source, write_data=False, **options)
        _check_places(source, store, path, client)
        by_middle = client is None or not store.traits.transactional  # temporary files are not seen by all workers
        _plan(source, model, memory, by_middle=by_middle)
        written = store if client is None else abilities.fork(store)
        fresh = model is not dst
        target = Array(written, path, model.metadata, model.config) if fresh else _at(model, written)
        checkpoint = _Checkpoint.begin(source, target, memory, fresh=fresh, overwrite=overwrite)
        if checkpoint is not None:
            with checkpoint.held(), _intermediate(target) as folder:
                _Job.of(source, target, checkpoint, folder, by_middle=by_middle).run(progress, client)
                checkpoint.finish(target)
            if written is not store:
                abilities.merge(store, [written])
    if isinstance(dst, Array):
        return dst
    found = reopened(dst, store, storage_options)
    return Array.open(found, path) if checkpoint is None or found is not store else _at(target, store)


_CARRYING = "an array is being rechunked into this place by the process that is named"


def _at(array: Array, store: Store) -> Array:
    """The same array in another view of its store."""
    return array if store is array.store else Array(store, array.path, array.metadata, array.config)


@contextmanager
def _intermediate(target: Array) -> Iterator[tuple[Store, str]]:
    """Where an intermediate array goes: below the target, but not within a transaction, which may refuse such keys."""
    if not target.store.traits.transactional:
        yield target.store, node.join(target.path, WORK + "/middle")
        return
    with TemporaryDirectory(prefix="zellige-rechunk-") as folder:
        yield LocalStore(folder), ""


def _check_places(source: Array, store: Store, path: str, client: Any) -> None:
    """Refuse a source that would be overwritten, and stores that workers cannot reach."""
    if source.store_path.is_within(StorePath(store, path)):
        raise ValueError(
            f"src is the array {source.name!r} of {source.store!r}, which is dst, '/{path}' of {store!r}, or lies "
            "below it, and would be overwritten before it is read; write to another place"
        )
    for used in (source.store, store):
        if client is not None and isinstance(used, MemoryStore):
            raise ValueError(
                f"{used!r} is in the memory of this process, where no worker reaches it; use another store"
            )


_UNITS = {"": 1, "b": 1} | {
    letter + rest: base**power
    for power, letter in enumerate("kmgt", 1)
    for rest, base in (("b", 1000), ("ib", 1024), ("", 1024))
}


def bytes_of(size: int | str) -> int:
    """A number of bytes, given as a number or as text.

    >>> bytes_of(512), bytes_of("1.5 GiB"), bytes_of("500MB")
    (512, 1610612736, 500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(size).lower())
    if found is None or isinstance(size, bool) or not (count := int(float(found[1]) * _UNITS.get(found[2], 0))):
        raise ValueError(f"{size!r} must be a number of bytes above 0, or text such as '500 MB' or '2 GiB'")
    return count


# -- what is left when it is killed ---------------------------------------------------------------


@dataclass(frozen=True)
class _Checkpoint:
    """What is kept beside the target until all of it is written: which boxes are done, and for which memory."""

    store: Store
    path: str
    memory: int
    """The memory for which the boxes were made."""
    fresh: bool
    """Whether the target is made by this call, so that a chunk that is there is finished."""
    done: frozenset[str] | None = None
    """The boxes that an earlier call has finished; None if there was none."""
    lease: Lease | None = None
    """Keeps other calls with the same target out; None in a transaction."""

    @property
    def prefix(self) -> str:
        """How the keys begin of what is kept."""
        return node.join(self.path, WORK) + "/"

    @classmethod
    def begin(cls, source: Array, target: Array, memory: int, *, fresh: bool, overwrite: bool) -> _Checkpoint | None:
        """Begin a checkpoint, or go on with the one of an earlier call; None if that call had done everything."""
        store, path = target.store, target.path
        store.check_writable()
        asked = {"from": repr(place(source.store, source.path)), "fresh": fresh}
        work = Work("rechunk", asked | {"source": _described(source), "target": _described(target)}, {"memory": memory})
        earlier = remove.read_mark(store, path)
        # Two calls that replace the same array must not remove what the other one writes.
        with store.lock(node.join(path, node.UNFINISHED)) if overwrite else nullcontext():
            if fresh:
                left = hierarchy.begin(store, path, work, {"": target.metadata}, overwrite=overwrite)
            else:
                left = _begin_filling(target, work, earlier, overwrite=overwrite)
            lease = _lease(target, work, fresh=fresh) if left != "mark" else None
        checkpoint = cls(store, path, memory, fresh, lease=lease)
        if left == "mark":
            checkpoint._remove()
            return None
        # What is killed in a transaction leaves nothing, and icechunk takes no chunk before its array.
        if store.traits.transactional:
            if fresh:
                node.put_new(store, path, target.metadata)
            return checkpoint
        if left == "nothing":
            return checkpoint
        kept = None if earlier is None or earlier.work is None else earlier.work.state.get("memory")
        if type(kept) is int and memory >= kept:
            keys = [key.removeprefix(checkpoint.prefix + "done/") for key in store.list(checkpoint.prefix + "done/")]
            return replace(checkpoint, memory=kept, done=frozenset(keys))
        for part in ("done/", "middle/"):  # boxes of another size
            store.delete_prefix(checkpoint.prefix + part)
        remove.write_mark(store, path, Mark({"": ChunkNames.of(target.metadata)}, work=work))
        return replace(checkpoint, done=frozenset())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Give the lease back at the end of the block; after an error the same call goes on."""
        try:
            yield
        finally:
            if self.lease is not None:
                with suppress(Exception):  # the first error is the one to raise
                    self.lease.release()

    def finish(self, target: Array) -> None:
        """All is written: from now on the target can be opened as a whole array."""
        if self.store.traits.transactional:
            return
        if self.lease is not None:
            self.lease.confirm()
        if self.fresh:
            node.put_new(self.store, self.path, target.metadata)
        else:
            update_metadata(target, partial(_flagged, unfinished=False))
        self._remove()

    def _remove(self) -> None:
        self.store.delete_prefix(self.prefix)
        remove.remove_mark(self.store, self.path)


def _lease(target: Array, work: Work, *, fresh: bool) -> Lease | None:
    """Take the right to fill a target; `ConflictError` if another call with the same arguments does, or has done it."""
    store, path = target.store, target.path
    if store.traits.transactional:
        return None
    lease = Lease(store, node.join(path, f"{WORK}/lease"), _CARRYING)
    lease.take("this place")
    found = remove.read_mark(store, path)
    if found is not None and work.is_same(found.work) and not (fresh and node.there(store, path)):
        return lease
    lease.release()
    raise ConflictError(
        f"another process has finished the same rechunk into '/{path}' of {store!r} meanwhile; nothing was written. "
        "Open the array that is there, or call rechunk again with overwrite=True to replace it"
    )


def _begin_filling(target: Array, work: Work, earlier: Mark | None, *, overwrite: bool) -> hierarchy.Left:
    """Begin to fill an array that is there; its document says so until that is done."""
    if target.store.traits.transactional:
        return "nothing"
    resumed = earlier is not None and work.is_same(earlier.work)
    if not resumed:
        filling = earlier is not None and earlier.work is not None and earlier.work.asked.get("fresh") is False
        if filling and not overwrite:
            raise ConflictError(
                f"array {target.name!r} of {target.store!r} was being filled by another rechunk; repeat that one with "
                "the same arguments to finish it, or pass overwrite=True to start anew"
            )
        target.store.delete_prefix(node.join(target.path, WORK) + "/")
        remove.write_mark(target.store, target.path, Mark({"": ChunkNames.of(target.metadata)}, work=work))
    update_metadata(target, partial(_flagged, unfinished=True))
    return "parts" if resumed else "nothing"


def _flagged(metadata: ArrayMetadata, *, unfinished: bool) -> ArrayMetadata:
    """Metadata with, or without, the field that says that not all values are there."""
    extra = {name: value for name, value in metadata.extra.items() if name != UNFINISHED}
    flag: dict[str, JSON] = {UNFINISHED: {"by": "rechunk", "must_understand": True}} if unfinished else {}
    return replace(metadata, extra=extra | flag)


# -- carrying boxes -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """All that a worker needs in order to carry one box."""

    source: Array
    target: Array
    middle: Array | None
    plan: RechunkPlan
    checkpoint: _Checkpoint
    limits: _Limits

    @classmethod
    def of(
        cls, source: Array, target: Array, checkpoint: _Checkpoint, folder: tuple[Store, str], *, by_middle: bool
    ) -> _Job:
        """The job that fills a target."""
        plan, limits = _plan(source, target, checkpoint.memory, by_middle=by_middle)
        middle = None
        if plan.middle is not None:
            # Its document is never stored, since it follows from the plan.
            edges = [np.diff(ends, prepend=0) for ends in plan.middle.ends]
            dtype, fill = source.metadata.data_type, source.metadata.fill_value
            model = create_array(shape=source.shape, dtype=dtype, chunks=edges, fill_value=fill, zarr_format=3)
            middle = Array(*folder, model.metadata, model.config)
        return cls(source, target, middle, plan, checkpoint, limits)

    def run(self, progress: ProgressLike, client: Any) -> None:
        """Carry all boxes that are not done."""
        with Progress(progress, sum(map(len, self.plan.stages)), "rechunked", "boxes") as report:
            for stage, boxes in enumerate(self.plan.stages):
                left = [k for k in range(len(boxes)) if f"{stage}.{k}" not in (self.checkpoint.done or ())]
                for _ in range(len(boxes) - len(left)):
                    report.advance("done before")
                carried = (self.carry(stage, k) for k in left) if client is None else self._carried(client, stage, left)
                for region in carried:
                    report.advance(region)

    def _carried(self, client: Any, stage: int, left: list[int]) -> Iterator[str]:
        """Boxes carried by the workers of a cluster, as they finish."""
        from distributed import as_completed

        # The job goes to the workers once, by a task that can be repeated if the one that has it is lost; then the
        # tasks are small, however many edges and boxes there are.
        done = None if self.checkpoint.done is None else frozenset[str]()
        source = _at(self.source, abilities.fork(self.source.store))
        job = pickle.dumps(replace(self, source=source, checkpoint=replace(self.checkpoint, done=done)))
        held = client.submit(pickle.loads, job, pure=False, key=f"rechunk-job-{uuid4().hex}")
        futures = client.map(_carry_there, left, stage=stage, job=held, pure=False, key=f"rechunk-{stage}")
        try:
            finished = as_completed(futures, loop=client.loop, with_results=True)
            for future, (region, fork) in finished:
                future.release()  # else its box is carried once more if the process that has this result is lost
                if fork is not None:
                    abilities.merge(self.target.store, [fork])
                yield region
        finally:
            client.cancel([held, *futures])
            client.run(_settle, on_error="ignore")  # those that are lost carry nothing

    def carry(self, stage: int, number: int) -> str:
        """Carry one box, and say which region it was."""
        region = self.plan.stages[stage][number]
        here, there = self.source, self.target
        if self.middle is not None:
            here, there = (here, self.middle) if stage == 0 else (self.middle, there)
        here, there = (_at(array, array.store.with_concurrency(self.limits.requests)) for array in (here, there))
        # The memory of one box is given back before the next one, which has another size, is read.
        with config.set({"threading.max_workers": self.limits.workers, "memory.keep_bytes": 0}):
            if self.checkpoint.done is None or not (self.checkpoint.fresh or (stage == 0 and self.middle is not None)):
                there[region] = here[region]
            else:
                self._carry_rest(here, there, region)
        if not self.checkpoint.store.traits.transactional:
            self.checkpoint.store.put(f"{self.checkpoint.prefix}done/{stage}.{number}", b"")
        return "[" + ", ".join(f"{part.start}:{part.stop}" for part in region) + "]"

    def _carry_rest(self, here: Array, there: Array, region: tuple[slice, ...]) -> None:
        """Carry the chunks of a box that are not there yet."""
        chunks = list(there.iter_chunks(region))
        exists = threads.gather(there.store.exists, [chunk.key for chunk in chunks], there.store)
        if not any(exists):
            there[region] = here[region]
            return
        for chunk, found in zip(chunks, exists, strict=True):
            if not found:
                there[chunk.slices] = here[chunk.slices]


_one_box = threading.Lock()
"""Held while a process of a cluster carries a box: several threads of it would need more memory."""


async def _settle() -> None:
    """Wait for the box that this process carries: one more time, or although another failed."""
    import asyncio  # is there already in the processes of a cluster

    def wait() -> None:
        with _one_box:
            pass

    await asyncio.to_thread(wait)


def _carry_there(number: int, stage: int, job: _Job) -> tuple[str, Store | None]:
    """Carry a box in a process of a cluster; returns its region, and what others have to merge to see what it wrote."""
    with _one_box:
        fork = abilities.fork(job.target.store)
        region = replace(job, target=_at(job.target, fork)).carry(stage, number)
        return region, None if fork is job.target.store else fork


class _Limits(NamedTuple):
    """How much may go on at once, so that the memory suffices."""

    workers: int
    """Threads that encode and decode."""
    requests: int
    """Threads that wait for a store, where there are any; each has one chunk as bytes."""


def _plan(source: Array, target: Array, memory: int, *, by_middle: bool) -> tuple[RechunkPlan, _Limits]:
    """The boxes, and how many threads there may be: fewer need less memory, and leave more for the boxes."""
    read, written = Boxes.of(source.read_chunk_sizes), Boxes.of(target.write_chunk_sizes)
    size = max(_itemsize(source.dtype), _itemsize(target.dtype))
    wanted = max(store.traits.concurrency or 0 for store in (source.store, target.store))

    def needed(workers: int, plan: RechunkPlan | None) -> tuple[_Limits, int]:
        """The threads, and the bytes beside the box: each keeps what it read and wrote last, as bytes and as values."""
        middle = 0 if plan is None or plan.middle is None else plan.middle.largest  # is read, and written
        largest = [size * max(boxes.largest, middle) for boxes in (read, written)]
        # What is waited for has a quarter of the memory.
        limits = _Limits(workers, max(workers, min(wanted, memory // 4 // max(*largest, 1))))
        return limits, workers * 2 * sum(largest) + (limits.requests - workers) * max(largest)

    for way in (True, False) if by_middle else (False,):
        for workers in range(threads.workers(), 0, -1):
            most = (memory - needed(workers, None)[1]) // size
            for _ in range(8):
                plan = make_plan(read, written, most, by_middle=way)
                limits, held = needed(workers, plan)
                if plan.largest * size + held <= memory:
                    return plan, limits
                most = most * 3 // 4  # chunks of an intermediate array are smaller if boxes are
    raise ValueError(
        f"max_memory of {memory:,} bytes is too little for the chunks of source and target; give at least "
        f"{size * (written.largest + 2 * (read.largest + written.largest)):,}"
    )


def _described(array: Array) -> str:
    """A digest of the documents of an array, whether it is being filled or not."""
    metadata = _flagged(array.metadata, unfinished=False)
    return digest(json.dumps(metadata.to_documents(), sort_keys=True).encode())


def _itemsize(dtype: np.dtype[Any]) -> int:
    return _OBJECT if dtype.hasobject or dtype.kind == "T" else dtype.itemsize


Ends: TypeAlias = Indices
"""Where chunks, or boxes, end along an axis; the last entry is the length of the axis."""

_DIRECT = 3
"""Decoding each source chunk so often takes about as long as an intermediate array, which is written and read once."""


def ends_of(sizes: Sequence[int]) -> Ends:
    """Where chunks of these sizes end."""
    return np.fromiter(accumulate(sizes), np.intp, len(sizes))


@dataclass(frozen=True)
class Boxes:
    """An array cut into boxes: where they end along each axis."""

    ends: tuple[Ends, ...]

    @classmethod
    def of(cls, sizes: Iterable[Sequence[int]]) -> Boxes:
        """Boxes of these sizes along each axis, such as chunks."""
        return cls(tuple(map(ends_of, sizes)))

    @property
    def shape(self) -> Shape:
        """The number of boxes along each axis."""
        return tuple(map(len, self.ends))

    def __len__(self) -> int:
        return prod(self.shape)

    def __getitem__(self, number: int) -> tuple[slice, ...]:
        """The region of a box; they are counted in C order."""
        place = np.unravel_index(number, self.shape) if self.ends else ()
        return tuple(
            slice(int(ends[k - 1]) if k else 0, int(ends[k])) for ends, k in zip(self.ends, place, strict=True)
        )

    def __iter__(self) -> Iterator[tuple[slice, ...]]:
        return (self[number] for number in range(len(self)))

    @property
    def largest(self) -> int:
        """The elements of the largest box."""
        return prod(int(np.diff(ends, prepend=0).max(initial=0)) for ends in self.ends)

    def split_by(self, other: Boxes) -> Boxes:
        """The parts in which these boxes and the others overlap."""
        return Boxes(tuple(map(np.union1d, self.ends, other.ends)))


def group_chunks(chunks: Boxes, other: Boxes, most: int) -> Boxes:
    """Boxes of whole chunks with at most so many elements, where few cut through one of the others.

    A single chunk may be larger; then it is a box of its own. All axes are whole at first, and the one is halved whose
    halving costs least, until the boxes fit.
    """
    lengths = [int(ends[-1]) if len(ends) else 0 for ends in chunks.ends]
    boxes = Boxes(tuple(map(_cut, chunks.ends, other.ends, lengths)))
    while boxes.largest > most:
        smaller = []
        for axis, length in enumerate(lengths):
            if len(boxes.ends[axis]) == len(chunks.ends[axis]):
                continue  # every chunk is a box of its own
            ends = _cut(chunks.ends[axis], other.ends[axis], length // 2)
            halved = Boxes((*boxes.ends[:axis], ends, *boxes.ends[axis + 1 :]))
            # Of two that cost the same, the first axis: boxes then are long where the values lie side by side.
            smaller.append((len(halved.split_by(other)), axis, halved))
        if not smaller:
            break
        _, axis, boxes = min(smaller, key=lambda found: found[:2])
        lengths[axis] //= 2
    return boxes


def _cut(chunks: Ends, other: Ends, length: int) -> Ends:
    """Where to cut an axis into runs of whole chunks of at most such a length, or of a single chunk that is longer.

    A place where the other grid is cut as well is preferred, if the run does not become less than half as long.
    """
    common = np.intersect1d(chunks, other)
    ends: list[int] = []
    start = 0
    while len(chunks) and start < chunks[-1]:
        first = int(np.searchsorted(chunks, start, "right"))
        best = int(chunks[max(first, int(np.searchsorted(chunks, start + length, "right")) - 1)])
        shared = int(common[int(np.searchsorted(common, best, "right")) - 1]) if best >= common[0] else start
        start = shared if 2 * (shared - start) >= best - start else best
        ends.append(start)
    return np.array(ends, np.intp)


@dataclass(frozen=True)
class RechunkPlan:
    """Boxes to be carried, all of one stage before the next.

    One stage has boxes of the target. Two have boxes of the source that go into an intermediate array, and boxes of the
    target that come out of it.
    """

    stages: tuple[Boxes, ...]

    @property
    def middle(self) -> Boxes | None:
        """The chunks of the intermediate array, if there is one."""
        return self.stages[0].split_by(self.stages[1]) if len(self.stages) == 2 else None

    @property
    def largest(self) -> int:
        """The elements of the largest box."""
        return max(boxes.largest for boxes in self.stages)


def make_plan(source: Boxes, target: Boxes, most: int, *, by_middle: bool = True) -> RechunkPlan:
    """The plan that decodes source chunks seldom, with boxes of at most so many elements.

    `by_middle` says whether there is a place for an intermediate array.
    """
    direct = group_chunks(target, source, most)
    if by_middle and len(direct.split_by(source)) > _DIRECT * len(source):
        into = group_chunks(source, target, most)
        # Small chunks cost more to store than they save: then those of the source are rather decoded more often.
        if len(into.split_by(direct)) <= len(direct.split_by(source)):
            return RechunkPlan((into, direct))
    return RechunkPlan((direct,))
