"""What the cases do: each function opens what it needs and returns the work to be timed, for any library."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.layouts import Grid, Layout, Members, Stored, source
from bench.libraries import Library, Numpy

ALL = ...


def positions(scale: int) -> int:
    """Small reads go to as many places in turn, so that no library answers twice from what it has at hand."""
    return max(8, 64 // scale)


class Work(NamedTuple):
    """One piece of work of one library."""

    run: Callable[[], object]
    """What is timed."""
    answer: Callable[[], object]
    """The work once more, not timed: values that must be equal for all libraries."""
    times: int = 1
    """How many operations one run is."""
    written: str = ""
    """Where the work has written an array."""


class Site(NamedTuple):
    """Where a library works."""

    library: Library
    folder: str
    scale: int

    def path(self, stored: Stored) -> str:
        """What all libraries read."""
        return f"{self.folder}/{stored.name}"

    def copy_path(self, layout: Layout) -> str:
        """What this library alone writes."""
        return f"{self.folder}/of-{self.library.name}-{layout.name}"

    def open(self, layout: Layout, order: str = "C") -> Any:
        """Open an array to read it."""
        if isinstance(self.library, Numpy):
            return self.values(layout)
        return self.library.open(self.path(layout), "r", order)

    def open_copy(self, layout: Layout, *, empty: bool = False) -> Any:
        """Open an array of this library's own, with the same values or as if never written."""
        if isinstance(self.library, Numpy):
            return self.values(layout)
        place = self.copy_path(layout)
        shutil.rmtree(place, ignore_errors=True)
        if empty:
            os.mkdir(place)
            shutil.copy(f"{self.path(layout)}/zarr.json", place)
        else:
            shutil.copytree(self.path(layout), place)
        return self.library.open(place, "r+")

    def values(self, layout: Layout) -> np.ndarray:
        """All values of an array, in memory."""
        n = layout.length(self.scale)
        block = source(self.folder, (n, n, n))
        if layout.blocks == 1:
            return block
        values = np.empty(layout.shape(self.scale), block.dtype)
        values.reshape(layout.blocks, n, n, n)[:] = block
        return values


# -- indices --------------------------------------------------------------------------------------


def region(layout: Layout, scale: int, *, aligned: bool) -> tuple[slice, ...]:
    """A box of all but two chunks along each axis, which begins at a chunk or in the middle of one."""
    n = layout.length(scale)
    length = max(layout.chunk, n - 2 * layout.chunk)
    start = min(n - length, layout.chunk if aligned else layout.chunk // 2 + 1)
    return (slice(start, start + length),) * 3


def elements(layout: Layout, scale: int) -> list[tuple[int, ...]]:
    """Random single elements."""
    places = np.random.default_rng(1).integers(0, layout.length(scale), (positions(scale), 3))
    return [tuple(place) for place in places.tolist()]


def boxes(layout: Layout, scale: int) -> list[tuple[slice, ...]]:
    """Random single chunks, of a sharded array inner chunks."""
    size, n = layout.chunk, layout.length(scale) // layout.chunk
    places = np.random.default_rng(2).integers(0, n, (positions(scale), 3))
    return [tuple(slice(k * size, (k + 1) * size) for k in place) for place in places.tolist()]


def points(layout: Layout, scale: int, count: int) -> tuple[np.ndarray, ...]:
    """Random points, as one array of indices for each axis."""
    return tuple(np.random.default_rng(3).integers(0, layout.length(scale), (3, count)))


def planes(layout: Layout, scale: int, count: int) -> tuple[np.ndarray, ...]:
    """Random ascending indices along each axis; about `count` points where they cross."""
    n = layout.length(scale)
    each = min(n, round(count ** (1 / 3)))
    random = np.random.default_rng(4)
    return tuple(np.sort(random.choice(n, each, replace=False)) for _ in range(3))


# -- reading and writing --------------------------------------------------------------------------


def read(site: Site, layout: Layout, index: Any = ALL, order: str = "C") -> Work:
    """Read a box, or everything."""
    get = site.library.getter(site.open(layout, order))

    def answer() -> Any:
        values = get(index)
        if order == "F" and not (values.flags.f_contiguous or isinstance(site.library, Numpy)):
            raise ValueError("the result is not in F order")
        return values

    return Work(lambda: get(index), answer)


def read_region(site: Site, layout: Layout, *, aligned: bool) -> Work:
    """Read a box that crosses chunks."""
    return read(site, layout, region(layout, site.scale, aligned=aligned))


def _each(get: Callable[[Any], Any], places: Iterable[Any]) -> Callable[[], None]:
    def run() -> None:
        for place in places:
            get(place)

    return run


def read_elements(site: Site, layout: Layout) -> Work:
    """Read single elements, one after the other."""
    get, places = site.library.getter(site.open(layout)), elements(layout, site.scale)
    return Work(_each(get, places), lambda: np.array([get(place) for place in places]), len(places))


def read_boxes(site: Site, layout: Layout) -> Work:
    """Read single chunks, one after the other."""
    get, places = site.library.getter(site.open(layout)), boxes(layout, site.scale)
    return Work(_each(get, places), lambda: np.array([get(place) for place in places]), len(places))


def read_points(site: Site, layout: Layout, count: int) -> Work:
    """Read many points with vindex."""
    get, index = site.library.pointwise(site.open(layout)), points(layout, site.scale, count)
    return Work(lambda: get(index), lambda: get(index))


def read_planes(site: Site, layout: Layout, count: int) -> Work:
    """Read many points with oindex."""
    get, index = site.library.orthogonal(site.open(layout)), planes(layout, site.scale, count)
    return Work(lambda: get(index), lambda: get(index))


def _written(site: Site, layout: Layout, array: Any, run: Callable[[], object], times: int = 1) -> Work:
    def answer() -> object:
        run()
        return site.library.getter(array)(ALL)

    return Work(run, answer, times, "" if isinstance(site.library, Numpy) else site.copy_path(layout))


def write(site: Site, layout: Layout) -> Work:
    """Write everything over what is there."""
    array, values = site.open_copy(layout), site.values(layout)
    put = site.library.setter(array)
    return _written(site, layout, array, lambda: put(ALL, values))


def write_region(site: Site, layout: Layout) -> Work:
    """Write a box that begins and ends inside chunks."""
    array, index = site.open_copy(layout), region(layout, site.scale, aligned=False)
    put, values = site.library.setter(array), site.values(layout)[index] + np.int16(1)
    return _written(site, layout, array, lambda: put(index, values))


def write_boxes(site: Site, layout: Layout) -> Work:
    """Write single chunks, of a sharded array inner chunks, one after the other."""
    array, places = site.open_copy(layout), boxes(layout, site.scale)
    put, value = site.library.setter(array), site.values(layout)[places[0]] + np.int16(1)
    return _written(site, layout, array, _each(lambda place: put(place, value), places), len(places))


# -- opening --------------------------------------------------------------------------------------


def open_array(site: Site, layout: Layout) -> Work:
    """Open an array and ask for its shape."""

    def run() -> tuple[int, ...]:
        return tuple(site.open(layout).shape)

    return Work(run, run)


def open_members(site: Site, members: Members) -> Work:
    """List a group and open all its arrays."""

    def run() -> int:
        return len(site.library.members(site.path(members)))

    return Work(run, run)


def _extent(site: Site, grid: Grid) -> tuple[int, np.ndarray]:
    """The extent of a grid's axis, and where its chunks end."""
    sizes = np.array(grid.edges(site.scale))
    ends = np.cumsum(np.repeat(*sizes.T) if grid.runs else sizes)
    return int(ends[-1]), ends


def open_grid(site: Site, grid: Grid, count: int) -> Work:
    """Open an array of very many chunks and find the chunks of some elements, one by one."""
    extent, ends = _extent(site, grid)
    indices = np.random.default_rng(5).integers(0, extent, count).tolist()

    def run() -> list[int]:
        find = site.library.axis(site.library.open(site.path(grid))).index_to_chunk
        return [find(index) for index in indices]

    if isinstance(site.library, Numpy):
        return Work(lambda: None, lambda: np.searchsorted(ends, indices, "right"))
    return Work(run, lambda: np.array(run()))


def look_up(site: Site, grid: Grid, count: int) -> Work:
    """Find the chunks of very many elements in an open array."""
    extent, ends = _extent(site, grid)
    indices = np.random.default_rng(6).integers(0, extent, count // site.scale**3)
    if isinstance(site.library, Numpy):
        return Work(lambda: None, lambda: np.searchsorted(ends, indices, "right"))
    find = site.library.axis(site.library.open(site.path(grid))).indices_to_chunks
    return Work(lambda: find(indices), lambda: np.asarray(find(indices), "int64"))


# -- once in a process: these return what they measure --------------------------------------------


def import_time(site: Site) -> float:
    """Seconds that an import takes in a new process that has imported numpy."""
    return _in_new_process(site, f"import {site.library.imports}")


def first_open(site: Site, layout: Layout) -> float:
    """Seconds until an array is open in a new process that has imported numpy: the import, and what it puts off."""
    path = f"{site.folder}/{layout.name}"
    return _in_new_process(site, site.library.script_to_open(path))


def _in_new_process(site: Site, code: str) -> float:
    code = f"import numpy, time; start = time.perf_counter(); {code}; print(time.perf_counter() - start)"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = f"{site.folder}/pycache"  # as after a first import

    def run() -> float:
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    return min(run(), run())


def _peak() -> int:
    """The most memory that this process ever had, in bytes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _grown(run: Callable[[], object]) -> int:
    """How much more memory than before some work needs at most, in bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # from here on, the peak is counted anew
    except OSError:
        pass
    before = _peak()
    kept = run()
    after = _peak()
    del kept
    return after - before


def memory_read(site: Site, layout: Layout) -> float:
    """Bytes at the peak of a large read, over those of its result."""
    get = site.library.getter(site.open(layout))
    get((slice(0, layout.chunk),) * 3)  # imports what is imported on first use
    return _grown(lambda: get(ALL)) - 2 * float(np.prod(layout.shape(site.scale)))


def memory_write(site: Site, layout: Layout) -> float:
    """Bytes at the peak of a large write, over those before it, which hold the values."""
    array, values = site.open_copy(layout, empty=True), site.values(layout)
    put, corner = site.library.setter(array), (slice(0, layout.outer),) * 3
    put(corner, values[corner])
    return _grown(lambda: put(ALL, values))
