"""The table of cases: names, what they do, on which layout, and their goals.

A goal is the least ratio, the peer's time over ours, against every peer of the same run, and so against the best:

* whole arrays are read 1.3 times as fast (1.1 times where inflating gzip, or zstd in chunks of 4 MiB, is nearly all of
  the work), and written at least as fast;
* an array is opened, and an uncompressed element read, 2.5 times as fast as by TensorStore, zarrs and zarr-python, and
  in no more than 1.25 times the time of zarrista;
* rectilinear grids are read at 0.95 of the speed of regular ones, and nothing else is below 0.95.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from itertools import product
from typing import Any

from bench import works
from bench.layouts import Grid, Layout, Members, Stored
from bench.libraries import OURS, PEERS
from bench.works import Site, Work

REGULAR = "regular"
"""Stands among the peers for our own regular array, next to a rectilinear one."""

# Chunks of 2 * n**3 bytes, in cubes that give each size enough of them.
SIZES = {"4M": (512, 128), "512K": (512, 64), "64K": (256, 32), "8K": (128, 16)}
SHARDS = {"64K": (256, 32), "8K": (256, 16)}
SHARD = 128  # 4 MiB


BOXES_ONLY = "zarrista"
"""The peer that has neither steps, nor arrays of indices, nor results in F order."""
INDEXING = tuple(peer for peer in PEERS if peer != BOXES_ONLY)

LEAST = 0.95
"""The goal wherever there is no higher one: not slower, but for what two runs differ by."""
READ, READ_DECODING, WRITE = 1.3, 1.1, 1.0


def _goals(least: float = LEAST) -> dict[str, float]:
    return dict.fromkeys(PEERS, least)


LATENCY = _goals(2.5) | {"zarrista": 0.8}


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    about: str
    stored: Stored | None
    work: Callable[[Site], Work] | None = None
    """The work that is timed."""
    once: Callable[[Site], float] | None = None
    """Instead of it, a measurement that is its own: of memory, in a new process, or of an import."""
    more: tuple[tuple[str, Stored, Callable[[Site], Work]], ...] = ()
    """Works of the same process that are timed in turns with it: as whose their figures count, on what, which."""
    bulk: Callable[[int], int] | None = None
    """The bytes that are moved at some scale, where a rate says more than a time."""
    unit: str = "s"
    peers: tuple[str, ...] = PEERS
    goals: dict[str, float] = field(default_factory=_goals)
    """The least ratio against each peer."""
    limit: float | None = None
    """What our own figure may be at most, in seconds or bytes."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Who takes part, each in a process of its own."""
        return (OURS, *(peer for peer in self.peers if peer != REGULAR))

    @property
    def needs(self) -> tuple[Stored, ...]:
        """What must be there."""
        return tuple(s for s in (self.stored, *(stored for _, stored, _ in self.more)) if s is not None)


def _cube(stored: Layout) -> Callable[[int], int]:
    return lambda scale: 2 * stored.length(scale) ** 3 * stored.blocks


def _layouts() -> Iterator[tuple[str, str, Layout]]:
    """Every codec and size of chunk that is read and written whole: name, words, layout."""
    for codec, sizes in (("raw", SIZES), ("zstd", SIZES), ("blosc", ("4M", "512K", "64K"))):
        for size in sizes:
            yield f"{codec}_{size}", f"{codec}, {size} chunks", Layout(*SIZES[size], codec)
    yield "gzip_512K", "gzip, 512K chunks", Layout(256, 64, "gzip")  # smaller, since zlib takes its time
    for codec, size in product(("raw", "zstd"), SHARDS):
        layout = Layout(*SHARDS[size], codec, SHARD)
        yield f"shard_{codec}_{size}", f"{codec}, {size} chunks in 4M shards", layout


def _least_read(name: str) -> float:
    """The goal for reading a layout whole."""
    return READ_DECODING if name in {"gzip_512K", "zstd_4M"} else READ


def _whole() -> Iterator[Case]:
    """Reading and writing all of an array, and reading one with uneven chunks."""
    for name, words, layout in _layouts():
        work, least = partial(works.read, layout=layout), _goals(_least_read(name))
        yield Case(f"read_{name}", f"read: {words}", layout, work, bulk=_cube(layout), goals=least)
    for name, words, layout in _layouts():
        work, least = partial(works.write, layout=layout), _goals(WRITE)
        yield Case(f"write_{name}", f"overwrite: {words}", layout, work, bulk=_cube(layout), goals=least)
    for name, words, layout in _layouts():
        # Where files happen to lie in memory makes reads up to a fifth slower, so there are two of each, written in
        # an order that favours neither, and the better one counts.
        fields = vars(layout) | {"writer": OURS}
        (_, rect), *others = (
            (OURS if uneven else REGULAR, Layout(**fields | {"uneven": uneven, "copy": copy}))
            for uneven, copy in ((True, 0), (False, 0), (False, 1), (True, 1))
        )
        yield Case(
            f"rect_{name}",
            f"read, rectilinear: {words}",
            rect,
            partial(works.read, layout=rect),
            more=tuple((whose, array, partial(works.read, layout=array)) for whose, array in others),
            bulk=_cube(rect),
            peers=(REGULAR,),
            goals={REGULAR: LEAST},
        )


CODECS = ("raw", "zstd")
LARGE = {codec: Layout(512, 64, codec) for codec in CODECS}
MEDIUM = {codec: Layout(256, 64, codec) for codec in CODECS}
SHARDED = {codec: Layout(256, 32, codec, SHARD) for codec in CODECS}


def _parts() -> Iterator[Case]:
    """Reading and writing parts of arrays, and in other orders."""
    for codec in CODECS:
        large, medium, words = LARGE[codec], MEDIUM[codec], f"{codec}, 512K chunks"
        turned = Layout(512, 64, codec, transposed=True)
        for aligned in (True, False):
            name = "aligned" if aligned else "unaligned"
            work = partial(works.read_region, layout=large, aligned=aligned)
            yield Case(f"region_{name}_{codec}", f"box of many chunks, {name}: {words}", large, work)
        for step, index in ((2, (slice(None, None, 2),) * 3), (7, (slice(None, None, 7),))):
            work = partial(works.read, layout=large, index=index)
            text = "[::2, ::2, ::2]" if step == 2 else "[::7]"
            yield Case(f"strided_{step}_{codec}", f"{text}: {words}", large, work, peers=INDEXING)
        whole: dict[str, Any] = {"bulk": _cube(large), "goals": _goals(READ)}  # both are as large
        work = partial(works.read, layout=turned)
        yield Case(f"transposed_{codec}", f"read, chunks transposed: {words}", turned, work, **whole)
        work = partial(works.read, layout=large, order="F")
        yield Case(f"order_f_{codec}", f"read in F order: {words}", large, work, peers=INDEXING, **whole)
        work = partial(works.write_region, layout=medium)
        yield Case(f"write_part_{codec}", f"write a box, unaligned: {words}", medium, work)


def _small() -> Iterator[Case]:
    """Opening, and reading little."""
    medium = MEDIUM["raw"]
    work = partial(works.open_array, layout=medium)
    yield Case("open", "open an array", medium, work, goals=LATENCY)
    for name, layout in (("raw", medium), ("zstd", MEDIUM["zstd"]), ("shard", SHARDED["zstd"])):
        words = "zstd shard of 64K chunks" if name == "shard" else f"{name}, 512K chunks"
        work = partial(works.read_elements, layout=layout)
        yield Case(
            f"scalar_{name}", f"one element: {words}", layout, work, goals=LATENCY if name == "raw" else _goals()
        )
        chunk = "shard_inner" if name == "shard" else f"chunk_{name}"
        work = partial(works.read_boxes, layout=layout)
        yield Case(chunk, f"one chunk: {words}", layout, work)
    for codec in CODECS:
        work = partial(works.write_boxes, layout=SHARDED[codec])
        words = f"replace one 64K chunk of a {codec} shard"
        yield Case(f"shard_update_{codec}", words, SHARDED[codec], work)
    for kind, count, codec in product(("points", "oindex"), (1_000, 100_000), CODECS):
        function = works.read_points if kind == "points" else works.read_planes
        work = partial(function, layout=MEDIUM[codec], count=count)
        words = f"{'vindex' if kind == 'points' else 'oindex'}, {count:,} points: {codec}, 512K chunks"
        yield Case(f"{kind}_{count}_{codec}", words, MEDIUM[codec], work, peers=INDEXING)


def _others() -> Iterator[Case]:
    """Groups, imports, grids of very many chunks, memory."""
    zarr_only = ("zarr",)
    for consolidated in (False, True):
        members = Members(1_000, consolidated)
        yield Case(
            "group_consolidated" if consolidated else "group_1000",
            f"list a group, open its 1,000 arrays{', consolidated' if consolidated else ''}",
            members,
            partial(works.open_members, members=members),
            peers=tuple(peer for peer in PEERS if not (consolidated and peer == "tensorstore")),
        )
    yield Case("import", "import, over numpy", None, once=works.import_time, limit=0.010)
    once = partial(works.first_open, layout=MEDIUM["raw"])
    yield Case("first_open", "import and open, over numpy", MEDIUM["raw"], once=once)
    runs, edges = Grid(10_000_000, runs=True), Grid(10_000_000, runs=False)
    for name, words, grid in (("rect_open_10M", "3 runs", runs), ("rect_open_10M_edges", "all different", edges)):
        work = partial(works.open_grid, grid=grid, count=1_000)
        words = f"open a grid of 10^7 chunks, {words}; 1,000 look-ups"
        yield Case(name, words, grid, work, peers=zarr_only)
    work = partial(works.look_up, grid=edges, count=10_000_000)
    words = "10^7 look-ups in a grid of 10^7 chunks, all different"
    yield Case("rect_look_up_10M", words, edges, work, peers=zarr_only)
    for name, layout in (
        ("zstd_4M", Layout(512, 128, "zstd", blocks=4)),
        ("shard_zstd_64K", Layout(512, 32, "zstd", SHARD, blocks=4)),
    ):
        words = "zstd, 4M chunks" if name == "zstd_4M" else "zstd, 64K chunks in 4M shards"
        more: dict[str, Any] = {"unit": "B", "goals": {}, "limit": 64 * 2**20}
        once = partial(works.memory_read, layout=layout)
        yield Case(f"memory_read_{name}", f"peak over a 1 GiB result: {words}", layout, once=once, **more)
        once = partial(works.memory_write, layout=layout)
        yield Case(f"memory_write_{name}", f"peak of writing 1 GiB: {words}", layout, once=once, **more)


CASES = {case.name: case for case in (*_whole(), *_parts(), *_small(), *_others())}


def select(patterns: Sequence[str]) -> list[Case]:
    """The cases whose names match any of the patterns; a pattern that matches none is an error."""
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in CASES):
            raise SystemExit(f"there is no case {pattern!r}; --list shows the names")
    return [case for case in CASES.values() if any(fnmatch(case.name, pattern) for pattern in patterns)]
