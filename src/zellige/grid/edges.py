"""Edge lengths as runs: a sequence of any length in memory and time that follow the number of runs.

`Edges` behaves like a tuple of integers and never expands itself: a run of 10**12 equal edges takes the
place of one. Element i lies in chunk k; both directions are a binary search over the runs.

>>> edges = Edges.of([31, 28, [31, 10**12]])
>>> len(edges), edges[1], edges.offset(10**6), edges.chunk_of(59)
(1000000000002, 28, 30999997, 2)
>>> edges.to_rle()
[31, 28, [31, 1000000000000]]

What users get, such as `Array.write_chunk_sizes`, goes through `as_tuple`: a plain tuple of up to `EXPANDED` entries,
and beyond that a `LazyTuple`, which behaves like one.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import total_ordering
from itertools import accumulate, chain, groupby, islice, repeat
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from zellige.errors import ChunkShapeError
from zellige.types import JSON, Indices

_MOST = 2**63 - 1  # offsets are held as int64
_MANY = 10_000  # runs, and elements that are looked up in them; both fit into the caches below this
_FEWER = 8  # times as many runs as elements make a table of them too long
_BACK = 2  # runs to go back from the last one of a bucket
_HASHED = 1 << 27  # entries whose tuple, a gigabyte, is made for the sake of a hash
_NO_RUN = (0, 0)

EXPANDED = 1_000_000
"""The most entries that users get as a plain tuple."""

EdgeEntries = Iterable[Any]
"""Edge lengths, `[length, count]` runs, or both mixed."""


@total_ordering
class LazyTuple(Sequence[int]):
    """Integers computed on access, in a sequence that behaves like a tuple of them.

    It compares, orders and hashes like the tuple, joins with tuples by `+` on either side, and its slices of up to a
    million entries are tuples. `json.dumps(sizes, default=list)` writes all of them, `to_rle` is their short form.

    >>> import json
    >>> sizes = as_tuple(Edges.of([[5, 10**12], 3]))
    >>> sizes[:2], sizes > (5, 4), (0,) + sizes[-2:], len((0,) + sizes)
    ((5, 5), True, (0, 5, 3), 1000000000002)
    >>> json.dumps({"sizes": sizes}, default=lambda sizes: sizes.to_rle())
    '{"sizes": [[5, 1000000000000], 3]}'
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _at(self, position: int) -> int:
        """Return the entry at a position, 0 <= position < len."""

    @property
    @abstractmethod
    def runs(self) -> Iterator[tuple[int, int]]:
        """The entries as (value, count), where neighbours may have equal values."""

    def part(self, positions: range) -> LazyTuple:
        """Return the entries at these `positions`, which are from 0 to the length."""
        return Computed(self._at, positions)

    def to_tuple(self) -> tuple[int, ...]:
        """Return all entries as a tuple, however many they are."""
        return tuple(self)

    def to_rle(self) -> list[int | list[int]]:
        """Return the run-length form of documents: `[value, count]` for two or more equal ones, else the bare value."""
        same = groupby(self.runs, operator.itemgetter(0))
        counted = ((value, sum(count for _, count in runs)) for value, runs in same)
        return [value if count == 1 else [value, count] for value, count in counted]

    @overload
    def __getitem__(self, item: int) -> int: ...
    @overload
    def __getitem__(self, item: slice) -> Sizes: ...
    def __getitem__(self, item: int | slice) -> int | Sizes:
        if isinstance(item, slice):
            return as_tuple(self.part(range(*item.indices(len(self)))))
        return self._at(_position(item, len(self)))

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(repeat(value, count) for value, count in self.runs)

    def count(self, value: Any) -> int:
        """Return how many entries have this `value`."""
        return sum(count for found, count in self.runs if found == value)

    def __add__(self, other: Sizes) -> Sizes:
        return as_tuple(_Joined((self, other))) if isinstance(other, tuple | LazyTuple) else NotImplemented

    def __radd__(self, other: tuple[int, ...]) -> Sizes:
        return as_tuple(_Joined((other, self))) if isinstance(other, tuple) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | LazyTuple):
            return NotImplemented
        return len(self) == len(other) and _first_difference(self, other) is None

    def __lt__(self, other: Sizes) -> bool:
        if not isinstance(other, tuple | LazyTuple):
            return NotImplemented
        mine, theirs = _first_difference(self, other) or (len(self), len(other))
        return mine < theirs

    def __hash__(self) -> int:
        if len(self) > _HASHED:
            raise TypeError(f"{len(self)} entries are too many to hash like a tuple; hash tuple(sizes.runs)")
        return hash(self.to_tuple())  # equal to a tuple, so hashed like one

    def __repr__(self) -> str:
        if len(self) <= 12:
            return repr(self.to_tuple())
        head = ", ".join(map(str, islice(self, 6)))
        return f"({head}, … {len(self) - 7} more …, {self[-1]})"


Sizes: TypeAlias = tuple[int, ...] | LazyTuple
"""Chunk sizes as users get them."""


def as_tuple(items: LazyTuple) -> Sizes:
    """Return a plain tuple, unless it would have more than `EXPANDED` entries."""
    return items.to_tuple() if len(items) <= EXPANDED else items


class Computed(LazyTuple):
    """What a function gives for each of some positions."""

    __slots__ = ("_item", "_positions")

    def __init__(self, item: Callable[[int], int], positions: range) -> None:
        self._item, self._positions = item, positions

    def __len__(self) -> int:
        return len(self._positions)

    def _at(self, position: int) -> int:
        return self._item(self._positions[position])

    def part(self, positions: range) -> LazyTuple:
        """Return the entries at some positions."""
        if not positions:
            return Computed(self._item, range(0))
        first, last = self._positions[positions[0]], self._positions[positions[-1]]
        step = self._positions.step * positions.step
        return Computed(self._item, range(first, last + (1 if step > 0 else -1), step))

    @property
    def runs(self) -> Iterator[tuple[int, int]]:
        """The entries one by one."""
        return zip(map(self._item, self._positions), repeat(1))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Computed) and (self._item, self._positions) == (other._item, other._positions):
            return True
        return super().__eq__(other)

    __hash__ = LazyTuple.__hash__


class _Joined(LazyTuple):
    """Sequences one after another."""

    __slots__ = ("_parts", "_ends")

    def __init__(self, parts: Sequence[Sizes]) -> None:
        nested = (part._parts if isinstance(part, _Joined) else (part,) for part in parts)
        self._parts: tuple[Sizes, ...] = tuple(chain.from_iterable(nested))
        self._ends = [*accumulate(map(len, self._parts))]

    def __len__(self) -> int:
        return self._ends[-1]

    def _at(self, position: int) -> int:
        number = bisect_right(self._ends, position)
        return self._parts[number][position - self._ends[number]]  # counted from the end of the part

    @property
    def runs(self) -> Iterator[tuple[int, int]]:
        """The runs of all parts."""
        return chain.from_iterable(map(_runs_of, self._parts))


class InnerEdges(LazyTuple):
    """The edges that come from cutting each of some edges into pieces of one size, whose last may be shorter.

    >>> InnerEdges(Edges.of([[5, 2], 4]), 2)
    (2, 2, 1, 2, 2, 1, 2, 2)
    """

    __slots__ = ("_outer", "_size", "_edges", "_firsts")

    def __init__(self, outer: Edges, size: int) -> None:
        self._outer, self._size = outer, size
        self._edges = [edge for edge, _ in outer.runs]
        pieces = (-(-edge // size) * count for edge, count in outer.runs)
        self._firsts = [0, *accumulate(pieces)]  # how many there are before each run of the outer edges

    def __len__(self) -> int:
        return self._firsts[-1]

    def _at(self, position: int) -> int:
        run = bisect_right(self._firsts, position) - 1
        edge = self._edges[run]
        before = (position - self._firsts[run]) % -(-edge // self._size)
        return min(self._size, edge - before * self._size)

    @property
    def runs(self) -> Iterator[tuple[int, int]]:
        """Those of each edge, or of many edges together where the pieces fit."""
        for edge, count in self._outer.runs:
            whole, rest = divmod(edge, self._size)
            if not rest:
                yield self._size, whole * count
                continue
            pieces = [(self._size, whole), (rest, 1)] if whole else [(rest, 1)]
            yield from chain.from_iterable(repeat(pieces, count))

    def count(self, value: Any) -> int:
        """Return how many edges have this length."""
        cut = ((*divmod(edge, self._size), count) for edge, count in self._outer.runs)
        return sum((whole * (value == self._size) + (0 < rest == value)) * count for whole, rest, count in cut)


class Edges(LazyTuple):
    """An immutable sequence of positive edge lengths, kept as runs; equal to a tuple of the same items."""

    __slots__ = ("_starts", "_firsts", "starts", "firsts")

    def __init__(self, starts: Indices, firsts: Indices) -> None:
        # Run r begins at element starts[r] with chunk firsts[r]; both end with the totals. Sizes and
        # counts are differences of these, so nothing is kept twice.
        self._starts, self._firsts = starts, firsts
        # Views for single look-ups: plain integers come out, and bisect is quick on them.
        self.starts, self.firsts = starts.data, firsts.data

    # -- making -----------------------------------------------------------------------------------

    @classmethod
    def of(cls, entries: EdgeEntries) -> Edges:
        """Make edges from lengths and `[length, count]` runs; refuses anything but positive integers."""
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
        """Make edges from (length, count) pairs; neighbours of equal length become one run."""
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
        counts = np.diff(self._firsts)
        return zip((np.diff(self._starts) // counts).tolist(), counts.tolist(), strict=True)

    def _run(self, chunk: int) -> tuple[int, int, int]:
        """Return first chunk, start and edge length of the run that holds a chunk."""
        firsts, starts = self.firsts, self.starts
        r = bisect_right(firsts, chunk) - 1
        return firsts[r], starts[r], (starts[r + 1] - starts[r]) // (firsts[r + 1] - firsts[r])

    def bounds(self, chunk: int) -> tuple[int, int]:
        """Return the first element of a chunk and its length, 0 <= chunk < len."""
        first, start, size = self._run(chunk)
        return start + (chunk - first) * size, size

    def offset(self, chunk: int) -> int:
        """Return the first element of a chunk, 0 <= chunk < len."""
        return self.bounds(chunk)[0]

    def end(self, chunk: int) -> int:
        """Return the first element behind a chunk, 0 <= chunk < len."""
        return sum(self.bounds(chunk))

    def chunk_of(self, index: int) -> int:
        """Return the chunk that holds an element, 0 <= index < total."""
        return self.locate(index)[0]

    def locate(self, index: int) -> tuple[int, int, int]:
        """Return the chunk that holds an element, where it begins, and its length."""
        firsts, starts = self.firsts, self.starts
        r = bisect_right(starts, index) - 1
        start, first = starts[r], firsts[r]
        size = (starts[r + 1] - start) // (firsts[r + 1] - first)
        inside = (index - start) // size
        return first + inside, start + inside * size, size

    def chunks_of(self, indices: Indices) -> Indices:
        """Return `chunk_of` for an array of elements."""
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
        """Return the runs of many elements in any order, where every step of a binary search would miss the caches."""
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
        """Return the same by looking them up in ascending order, so that few steps miss the caches."""
        order = np.argsort(indices)
        runs = np.empty(indices.size, np.intp)
        runs[order] = self._starts.searchsorted(indices[order], "right") - 1
        return runs

    def unique(self) -> Iterator[int]:
        """Return the distinct lengths, in order of appearance."""
        return iter(dict.fromkeys(size for size, _ in self.runs))

    # -- changing ---------------------------------------------------------------------------------

    def clipped(self, extent: int) -> Edges:
        """Return the lengths of the parts that lie within the first `extent` elements."""
        if extent >= self.total:
            return self
        whole = self.part(range(self.chunk_of(extent - 1) if extent else 0))
        return whole.joined([(extent - whole.total, 1)] if extent > whole.total else [])

    def joined(self, runs: Iterable[tuple[int, int]]) -> Edges:
        """Return these edges and then some runs."""
        return Edges.of_runs(chain(self.runs, runs))

    # -- being a sequence -------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.firsts[-1]

    def _at(self, position: int) -> int:
        return self._run(position)[2]

    def part(self, positions: range) -> Edges:
        """Return the edges of some chunks, as edges."""
        chunks = positions
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

    def __contains__(self, size: object) -> bool:
        return any(size == found for found in self.unique())

    def index(self, size: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the first chunk of this length, between `start` and `stop`."""
        chunks = range(len(self))[start:stop]
        for (s, count), first in zip(self.runs, self.firsts, strict=False):
            chunk = max(first, chunks.start)
            if s == size and chunk < min(first + count, chunks.stop):
                return chunk
        raise ValueError(f"there is no edge {size!r} here")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Edges):
            return np.array_equal(self._starts, other._starts) and np.array_equal(self._firsts, other._firsts)
        return super().__eq__(other)

    __hash__ = LazyTuple.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return Edges, (self._starts, self._firsts)


def _runs_of(items: Sequence[int]) -> Iterable[tuple[int, int]]:
    return items.runs if isinstance(items, LazyTuple) else zip(items, repeat(1))


def _first_difference(a: Sequence[int], b: Sequence[int]) -> tuple[int, int] | None:
    """Return the first entries that differ, found run by run; None if there are none as far as both reach."""
    left, right = iter(_runs_of(a)), iter(_runs_of(b))
    (x, many), (y, more) = next(left, _NO_RUN), next(right, _NO_RUN)
    while many and more:
        if x != y:
            return x, y
        both = min(many, more)
        x, many = (x, many - both) if many > both else next(left, _NO_RUN)
        y, more = (y, more - both) if more > both else next(right, _NO_RUN)
    return None


def _is_sorted(values: Indices) -> bool:
    return values.ndim == 1 and bool((values[1:] >= values[:-1]).all())


def _position(item: Any, length: int) -> int:
    position = operator.index(item)
    if not -length <= position < length:
        raise IndexError(f"position {position} is out of range for {length} chunks")
    return position % length


def _as_run(entry: Any) -> tuple[int, int]:
    """Return one entry as (length, count)."""
    if (isinstance(entry, np.ndarray) and entry.ndim) or (
        isinstance(entry, Sequence) and not isinstance(entry, str | bytes)
    ):
        if len(entry) != 2:
            raise ChunkShapeError(f"a run is a pair [length, count], found {list(entry)!r}")
        return positive_integer(entry[0], "the length of a run"), positive_integer(entry[1], "the count of a run")
    return positive_integer(entry, "an edge"), 1


def positive_integer(value: Any, what: str) -> int:
    """Return the value as an int >= 1 that an axis can hold; booleans, floats and strings are not integers."""
    if isinstance(value, bool | np.bool | np.ndarray) or not hasattr(value, "__index__"):
        raise ChunkShapeError(f"{what} must be an integer, found {value!r}")
    number = operator.index(value)
    if not 1 <= number <= _MOST:
        bound = f"at least 1, found {_shown(number)}" if number < 1 else f"at most {_MOST}, found {_shown(number)}"
        raise ChunkShapeError(f"{what} must be {bound}")
    return number


def _shown(number: int) -> str:
    """Return a number for a message; Python does not print one of more than 4300 digits."""
    return str(number) if number.bit_length() < 1000 else f"one of {number.bit_length()} bits"


def compress_rle(sizes: EdgeEntries) -> list[int | list[int]]:
    """Return edge lengths in the run-length form of documents.

    >>> compress_rle([10, 10, 10, 5])
    [[10, 3], 5]
    """
    return Edges.of(sizes).to_rle()


def expand_rle(entries: Sequence[JSON]) -> list[int] | LazyTuple:
    """Return the edge lengths that a run-length form stands for; more than a million are never expanded.

    >>> expand_rle([[10, 3], 5])
    [10, 10, 10, 5]
    """
    found = as_tuple(Edges.of(entries))
    return [*found] if isinstance(found, tuple) else found
