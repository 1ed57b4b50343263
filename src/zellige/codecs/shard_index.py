"""The index of a shard: where its inner chunks lie, checked before anything is read by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from zellige import dtypes
from zellige.codecs.base import Codec
from zellige.codecs.chain import CodecChain
from zellige.errors import CodecError, MetadataError
from zellige.types import AnyArray, Buffer, Coords, Shape, Span

EMPTY = 2**64 - 1
"""The offset and the length of an inner chunk that is not stored."""


class ShardIndex:
    """Where each inner chunk lies: (offset, length) in row-major order, both 2**64 - 1 for an empty one."""

    __slots__ = ("table", "entries")

    def __init__(self, table: npt.NDArray[np.uint64]) -> None:
        self.table = table.reshape(-1, 2)
        flat = np.ascontiguousarray(table, np.uint64).reshape(-1)
        # Numpy may name the byte order in the type, which a memoryview does not index; a view has the plain type.
        self.entries = memoryview(flat.view(np.uint64))  # type: ignore[arg-type]

    def span(self, number: int) -> tuple[int, int] | None:
        """Offset and length of an inner chunk, or None if it is empty."""
        offset = self.entries[2 * number]
        return None if offset == EMPTY else (offset, self.entries[2 * number + 1])


class IndexLayout:
    """How the index of shards with so many inner chunks along each axis is stored."""

    def __init__(self, codecs: Sequence[Codec], counts: Shape, *, at_start: bool) -> None:
        self.counts, self.at_start = counts, at_start
        uint64 = dtypes.from_json("uint64")
        shape = (*counts, 2)
        self._bound = nested_chain(codecs, uint64, uint64.cast_fill(EMPTY), shape, "index_codecs").bound[shape]
        size = self._bound.encoded_size
        if size is None:
            raise MetadataError(
                "codec 'sharding_indexed': index_codecs must have a fixed size, so no compressor",
                field="configuration.index_codecs",
            )
        self.size: int = size

    def encode(self, table: npt.NDArray[np.uint64]) -> Buffer:
        """The bytes of an index."""
        return self._bound.encode(table.reshape(*self.counts, 2))

    @property
    def span(self) -> Span:
        """The bytes that hold the index."""
        return (0, self.size) if self.at_start else (-self.size, None)

    def parse(self, raw: Buffer, total: int | None = None) -> ShardIndex:
        """Check an index: whole entries, inside the shard, no two over one another."""
        try:
            table = self._bound.decode(raw)
        except CodecError as error:
            raise CodecError(f"the shard's index: {error}") from error
        index = ShardIndex(np.array(table, np.uint64))
        self._check(index.table, total)
        return index

    def _check(self, table: npt.NDArray[np.uint64], total: int | None) -> None:
        empty = table == EMPTY
        if (halves := empty[:, 0] != empty[:, 1]).any():
            raise self.bad_entry(int(halves.argmax()), "has an offset without a length, or the reverse")
        used = np.flatnonzero(~empty[:, 0])
        starts, lengths = table[used, 0], table[used, 1]
        # Floats first, since sums of hostile numbers may wrap around.
        limit = float(total if total is not None else 2**62)
        if (far := starts.astype(float) + lengths.astype(float) > limit).any():
            raise self.bad_entry(int(used[far.argmax()]), f"reaches beyond the end of the shard, {total} bytes")
        if self.at_start and (low := (starts < self.size) & (lengths > 0)).any():
            raise self.bad_entry(int(used[low.argmax()]), "lies over the index")
        order = np.argsort(starts, kind="stable")
        over = starts[order][1:] < (starts + lengths)[order][:-1]
        if over.any():
            raise self.bad_entry(int(used[order[1:][over.argmax()]]), "lies over another inner chunk")

    def bad_entry(self, number: int, what: str) -> CodecError:
        """The error for an inner chunk that the index places wrongly."""
        coords = self.coords(number)
        return CodecError(f"the shard's index: inner chunk {coords} {what}", inner=coords)

    def of(self, raw: Buffer) -> ShardIndex:
        """The index of a whole shard."""
        start, end = self.place(len(raw))
        return self.parse(raw[start : start + self.size], end)

    def place(self, total: int) -> tuple[int, int]:
        """Where the index of a shard of so many bytes starts, and where its inner chunks end."""
        if total < self.size:
            raise CodecError(f"the shard has {total} bytes, its index alone needs {self.size}")
        return (0, total) if self.at_start else (total - self.size, total - self.size)

    def number(self, coords: Coords) -> int:
        """The position of an inner chunk in the index."""
        number = 0
        for k, count in zip(coords, self.counts, strict=True):
            number = number * count + k
        return number

    def coords(self, number: int) -> Coords:
        """The inverse of `number`."""
        return tuple(int(k) for k in np.unravel_index(number, self.counts))


def nested_chain(chain: Sequence[Codec], dtype: Any, fill: AnyArray, shape: Shape, key: str) -> CodecChain:
    """A chain inside the configuration of a shard; errors name its place there."""
    try:
        return CodecChain(chain, dtype, fill, shape)
    except MetadataError as error:
        field = error.field.removeprefix("codecs")
        raise type(error)(f"codec 'sharding_indexed': {error}", field=f"configuration.{key}{field}") from error
