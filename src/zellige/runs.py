"""Edge lengths as runs: a sequence of any length in memory and time that follow the number of runs.

`Edges` behaves like a tuple of integers and never expands itself: a run of 10**12 equal edges takes the
place of one. Element i lies in chunk k; both directions are a binary search over the runs.

>>> edges = Edges.of([31, 28, [31, 10**12]])
>>> len(edges), edges[1], edges.offset(10**6), edges.chunk_of(59)
(1000000000002, 28, 30999997, 2)
>>> edges.to_rle()
[31, 28, [31, 1000000000000]]
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from zellige.errors import ChunkShapeError
from zellige.types import JSON, Indices

_MOST = 2**63 - 1  # offsets are held as int64
_MANY = 10_000  # runs, and elements that are looked up in them; both fit into the caches below this
_FEWER = 8  # times as many runs as elements make a table of them too long
_BACK = 2  # runs to go back from the last one of a bucket

EdgeEntries = Iterable[Any]
"""Edge lengths, `[length, count]` runs, or both mixed."""


class Edges(Sequence[int]):
    """An immutable sequence of positive edge lengths, kept as runs; equal to a tuple of the same items."""

    __slots__ = ("_starts", "_firsts", "starts", "firsts")

    def __init__(self, starts: Indices, firsts: Indices) -> None:
        # Run r begins at element starts[r] with chunk firsts[r]; both end with the totals. Sizes and
        # counts are differences of these, so nothing is kept twice.
        self._starts, self._firsts = starts, firsts
        # Views for single look-ups: plain integers come out, and bisect is quick on them.
        self.starts, self.firsts = memoryview(starts), memoryview(firsts)  # type: ignore[arg-type]

    # -- making -----------------------------------------------------------------------------------

    @classmethod
    def of(cls, entries: EdgeEntries) -> Edges:
        """Edges from lengths and `[length, count]` runs; refuses anything but positive integers."""
        if isinstance(entries, Edges):
            return entries
        if isinstance(entries, np.ndarray):
            return cls._of_array(entries)
        entries = list(entries)
        if set(map(type, entries)) == {int} and min(entries) >= -_MOST and max(entries) <= _MOST:
            return cls._of_array(np.array(entries, np.int64))
        return cls.of_runs(_as_run(entry) for entry in entries)

    @classmethod
    def of_runs(cls, runs: Iterable[tuple[int, int]]) -> Edges:
        """Edges from (length, count) pairs; neighbours of equal length become one run."""
        starts, firsts = [0], [0]
        last = None
        for size, count in runs:
            if size == last:  # go on with the run before
                del starts[-1]
                count += firsts.pop() - firsts[-1]
            start = starts[-1] + size * count
            if start > _MOST:
                raise ChunkShapeError(f"the edges sum to {start}, more than the {_MOST} that an axis can hold")
            starts.append(start)
            firsts.append(firsts[-1] + count)
            last = size
        return cls(np.array(starts, np.int64), np.array(firsts, np.int64))

    @classmethod
    def _of_array(cls, sizes: npt.NDArray[Any]) -> Edges:
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
            raise ChunkShapeError(f"edges as an array must be 1-d integers, found shape {sizes.shape} of {sizes.dtype}")
        if sizes.size and (lowest := int(sizes.min())) < 1:
            raise ChunkShapeError(f"edge {int(sizes.argmin())} is {lowest}; every edge must be at least 1")
        firsts = np.flatnonzero(np.concatenate(([True], sizes[1:] != sizes[:-1], [True]))[: sizes.size + 1])
        if sizes.size == 0:
            firsts = np.zeros(1, np.int64)
        counts, sizes = np.diff(firsts), sizes[firsts[:-1]]
        if float(np.dot(sizes.astype(np.float64), counts)) > _MOST / 2:  # near the limit: count exactly
            return cls.of_runs(zip(sizes.tolist(), counts.tolist(), strict=True))
        starts = np.concatenate(([0], np.cumsum(sizes.astype(np.int64) * counts)))
        return cls(starts.astype(np.int64, copy=False), firsts.astype(np.int64, copy=False))

    # -- looking up -------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """The sum of all edges."""
        return self.starts[-1]

    @property
    def runs(self) -> Iterator[tuple[int, int]]:
        """The runs as (length, count)."""
        for r in range(len(self.starts) - 1):
            count = self.firsts[r + 1] - self.firsts[r]
            yield (self.starts[r + 1] - self.starts[r]) // count, count

    def _run(self, chunk: int) -> tuple[int, int, int]:
        """First chunk, start and edge length of the run that holds a chunk."""
        firsts, starts = self.firsts, self.starts
        r = bisect_right(firsts, chunk) - 1
        return firsts[r], starts[r], (starts[r + 1] - starts[r]) // (firsts[r + 1] - firsts[r])

    def offset(self, chunk: int) -> int:
        """The first element of a chunk, 0 <= chunk < len."""
        first, start, size = self._run(chunk)
        return start + (chunk - first) * size

    def chunk_of(self, index: int) -> int:
        """The chunk that holds an element, 0 <= index < total."""
        return self.locate(index)[0]

    def locate(self, index: int) -> tuple[int, int, int]:
        """The chunk that holds an element, where it begins, and its length."""
        firsts, starts = self.firsts, self.starts
        r = bisect_right(starts, index) - 1
        start, first = starts[r], firsts[r]
        size = (starts[r + 1] - start) // (firsts[r + 1] - first)
        inside = (index - start) // size
        return first + inside, start + inside * size, size

    def chunks_of(self, indices: Indices) -> Indices:
        """`chunk_of` for an array of elements."""
        indices = indices.astype(np.int64, casting="same_kind", copy=False)
        if indices.size > _MANY < len(self.starts) and not _is_sorted(indices):
            r = self._runs_of(indices.ravel()).reshape(indices.shape)
        else:
            r = self._starts.searchsorted(indices, "right") - 1
        if len(self) == len(self.starts) - 1:  # every run is one chunk
            return r
        chunks = self._firsts[r]
        many = (self._firsts[r + 1] - chunks > 1).nonzero()
        r = r[many]
        sizes = (self._starts[r + 1] - self._starts[r]) // (self._firsts[r + 1] - self._firsts[r])
        chunks[many] += (indices[many] - self._starts[r]) // sizes
        return chunks

    def _runs_of(self, indices: Indices) -> Indices:
        """The runs of many elements in any order, where every step of a binary search would miss the caches."""
        if indices.size < len(self.starts) // _FEWER:
            return self._runs_in_order(indices)
        # A table of the last run that begins in each bucket; buckets are about as long as runs.
        shift = max(0, (self.total // len(self.starts)).bit_length() - 1)
        last = np.bincount(self._starts[:-1] >> shift, minlength=(self.total >> shift) + 1).cumsum() - 1
        runs: Indices = last[indices >> shift]
        late = np.flatnonzero(self._starts[runs] > indices)
        for _ in range(_BACK):
            runs[late] -= 1
            late = late[self._starts[runs[late]] > indices[late]]
        if late.size:  # in buckets of many runs
            runs[late] = self._runs_in_order(indices[late])
        return runs

    def _runs_in_order(self, indices: Indices) -> Indices:
        """The same by looking them up in ascending order, so that few steps miss the caches."""
        order, ordered = _sorted(indices)
        runs = np.empty(indices.size, np.intp)
        runs[order] = self._starts.searchsorted(ordered, "right") - 1
        return runs

    def unique(self) -> Iterator[int]:
        """The distinct lengths, in order of appearance."""
        return iter(dict.fromkeys(size for size, _ in self.runs))

    # -- changing ---------------------------------------------------------------------------------

    def clipped(self, extent: int) -> Edges:
        """The lengths of the parts that lie within the first `extent` elements."""
        if extent >= self.total:
            return self
        return self[: self.chunk_of(extent - 1)].followed_by(extent) if extent else self[:0]

    def followed_by(self, extent: int) -> Edges:
        """These edges and one more that reaches up to `extent`."""
        return Edges.of_runs(chain(self.runs, [(extent - self.total, 1)]))

    def __add__(self, other: Edges) -> Edges:
        if not isinstance(other, Edges):
            return NotImplemented
        return Edges.of_runs(chain(self.runs, other.runs))

    def to_rle(self) -> list[int | list[int]]:
        """The form for documents: `[length, count]` for two and more, the bare length for one."""
        return [size if count == 1 else [size, count] for size, count in self.runs]

    # -- being a sequence -------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.firsts[-1]

    @overload
    def __getitem__(self, item: int) -> int: ...
    @overload
    def __getitem__(self, item: slice) -> Edges: ...
    def __getitem__(self, item: int | slice) -> int | Edges:
        if isinstance(item, slice):
            return self._slice(range(*item.indices(len(self))))
        return self._run(_position(item, len(self)))[2]

    def _slice(self, chunks: range) -> Edges:
        if not chunks:
            return Edges.of_runs(())
        ascending = chunks if chunks.step > 0 else chunks[::-1]
        step = min(ascending.step, len(self))  # a longer step picks one chunk too, and fits into int64
        # How many of the picked chunks lie before each run, and so how many lie in it.
        before = np.clip(-((ascending.start - self._firsts) // step), 0, len(ascending))
        counts = np.diff(before)
        kept = counts.nonzero()[0][:: 1 if chunks.step > 0 else -1]
        sizes = np.diff(self._starts)[kept] // np.diff(self._firsts)[kept]
        return Edges.of_runs(zip(sizes.tolist(), counts[kept].tolist(), strict=True))

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(repeat(size, count) for size, count in self.runs)

    def __contains__(self, size: object) -> bool:
        return any(size == s for s in self.unique())

    def count(self, size: Any) -> int:
        """How many edges have this length."""
        return sum(count for s, count in self.runs if s == size)

    def index(self, size: Any, start: int = 0, stop: int | None = None) -> int:
        """The first chunk of this length, between `start` and `stop`."""
        chunks = range(len(self))[start:stop]
        for (s, count), first in zip(self.runs, self.firsts, strict=False):
            chunk = max(first, chunks.start)
            if s == size and chunk < min(first + count, chunks.stop):
                return chunk
        raise ValueError(f"there is no edge {size!r} here")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Edges):
            return np.array_equal(self._starts, other._starts) and np.array_equal(self._firsts, other._firsts)
        return _same_items(self, other)

    def __hash__(self) -> int:
        return hash(tuple(self))  # equal to a tuple, so hashed like one

    def __repr__(self) -> str:
        return _short_repr(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Edges, (self._starts, self._firsts)


class Cumulative(Sequence[int]):
    """The running sums of `Edges`, computed on demand."""

    __slots__ = ("_edges",)

    def __init__(self, edges: Edges) -> None:
        self._edges = edges

    def __len__(self) -> int:
        return len(self._edges)

    @overload
    def __getitem__(self, item: int) -> int: ...
    @overload
    def __getitem__(self, item: slice) -> tuple[int, ...]: ...
    def __getitem__(self, item: int | slice) -> int | tuple[int, ...]:
        if isinstance(item, slice):
            return tuple(self[k] for k in range(*item.indices(len(self))))
        chunk = _position(item, len(self))
        return self._edges.offset(chunk) + self._edges[chunk]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Cumulative):
            return self._edges == other._edges
        return _same_items(self, other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return _short_repr(self)


def _is_sorted(values: Indices) -> bool:
    return values.ndim == 1 and bool((values[1:] >= values[:-1]).all())


def _sorted(values: Indices) -> tuple[Indices, Indices]:
    """The order that sorts the values, and the sorted values."""
    bits = values.size.bit_length()
    if int(values.min()) >= 0 and int(values.max()).bit_length() + bits < 63:
        # Value and position in one integer: sorting these is far quicker than argsort.
        packed = np.sort((values << bits) | np.arange(values.size))
        return packed & ((1 << bits) - 1), packed >> bits
    order = np.argsort(values)
    return order, values[order]


def _position(item: Any, length: int) -> int:
    position = operator.index(item)
    if not -length <= position < length:
        raise IndexError(f"position {position} is out of range for {length} chunks")
    return position % length


def _same_items(items: Sequence[int], other: object) -> bool:
    if not isinstance(other, tuple | list):
        return False
    return len(items) == len(other) and all(a == b for a, b in zip(items, other, strict=True))


def _short_repr(items: Sequence[int]) -> str:
    if len(items) <= 12:
        return repr(tuple(items))
    head = ", ".join(map(str, islice(items, 6)))
    return f"({head}, … {len(items) - 7} more …, {items[-1]})"


def _as_run(entry: Any) -> tuple[int, int]:
    """One entry as (length, count)."""
    if (isinstance(entry, np.ndarray) and entry.ndim) or (
        isinstance(entry, Sequence) and not isinstance(entry, str | bytes)
    ):
        if len(entry) != 2:
            raise ChunkShapeError(f"a run is a pair [length, count], found {list(entry)!r}")
        return positive_integer(entry[0], "the length of a run"), positive_integer(entry[1], "the count of a run")
    return positive_integer(entry, "an edge"), 1


def positive_integer(value: Any, what: str) -> int:
    """The value as an int >= 1 that an axis can hold; booleans, floats and strings are not integers."""
    if isinstance(value, bool | np.bool | np.ndarray) or not hasattr(value, "__index__"):
        raise ChunkShapeError(f"{what} must be an integer, found {value!r}")
    number = operator.index(value)
    if not 1 <= number <= _MOST:
        bound = f"at least 1, found {_shown(number)}" if number < 1 else f"at most {_MOST}, found {_shown(number)}"
        raise ChunkShapeError(f"{what} must be {bound}")
    return number


def _shown(number: int) -> str:
    """A number for a message; Python does not print one of more than 4300 digits."""
    return str(number) if number.bit_length() < 1000 else f"one of {number.bit_length()} bits"


def compress_rle(sizes: EdgeEntries) -> list[int | list[int]]:
    """Edge lengths in the run-length form of documents.

    >>> compress_rle([10, 10, 10, 5])
    [[10, 3], 5]
    """
    return Edges.of(sizes).to_rle()


def expand_rle(entries: Sequence[JSON]) -> Edges:
    """The edge lengths that a run-length form stands for, as a sequence that is never expanded.

    >>> expand_rle([[10, 3], 5])
    (10, 10, 10, 5)
    """
    return Edges.of(entries)
