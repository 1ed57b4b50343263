"""`sharding_indexed`: a chunk that is a small array of its own (spec: sharding codec 1.0).

A shard holds inner chunks and an index of their offsets and lengths. Here is the format, and whole shards; how parts of
stored shards are read and replaced is in `zellige.io.shard`.

Inner chunks that do not divide a shard (zarr-specs pull request 370, "1.1") are rounded up in number, and the last ones
are clipped to the shard: their codecs see only the elements that lie in it. `uneven` finds them; whether they may be
written is for the array to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from zellige import codecs, dtypes
from zellige.codecs.base import ArrayBytesCodec, ArraySpec, Codec
from zellige.codecs.chain import BoundChain, CodecChain
from zellige.codecs.fields import REQUIRED, codecs_of, tuple_of
from zellige.dtypes.fill import equals_fill
from zellige.errors import CodecError, EncodeError, MetadataError, ShortReadError
from zellige.grid.grid import BoundedDimension, ChunkGrid, DimensionGrid, FixedDimension
from zellige.types import AnyArray, Buffer, Coords, Shape, Span

EMPTY = 2**64 - 1
"""The offset and the length of an inner chunk that is not stored."""


def _is_shape(sizes: tuple[Any, ...]) -> bool:
    return all(type(size) is int and 1 <= size < 2**63 for size in sizes)


@dataclass(frozen=True)
class ShardingCodec(ArrayBytesCodec):
    """Cut a chunk into inner chunks that can be read one by one.

    Left out or empty, `codecs` are `bytes` and `zstd`, and `index_codecs` are `bytes` and `crc32c`.
    """

    chunk_shape: Annotated[Shape, tuple_of("integers >= 1 and < 2**63", _is_shape)]
    codecs: Annotated[tuple[Codec, ...], codecs_of(Codec), REQUIRED] = ()
    index_codecs: Annotated[tuple[Codec, ...], codecs_of(Codec), REQUIRED] = ()
    index_location: Literal["start", "end"] = "end"

    name: ClassVar[str] = "sharding_indexed"

    def __post_init__(self) -> None:
        given = {
            "chunk_shape": self.chunk_shape,
            "codecs": self.codecs or codecs.parse_codecs(["bytes", "zstd"]),
            "index_codecs": self.index_codecs or codecs.parse_codecs(["bytes", "crc32c"]),
        }
        for key, value in given.items():
            object.__setattr__(self, key, tuple(value) if isinstance(value, list) else value)
        super().__post_init__()

    def check(self, spec: ArraySpec) -> None:
        """Refuse an inner shape of another rank than the shard, and chains that are not valid."""
        self._plain(spec).inner  # noqa: B018  (made on first use, and so checked)

    def evolve(self, spec: ArraySpec) -> Self:
        """Complete the codecs of the inner chunks."""
        chain = nested_chain(self.codecs, spec.dtype, spec.fill, self.chunk_shape, "codecs")
        serializer = chain.serializer.evolve(chain.specs(self.chunk_shape)[-1])
        return replace(self, codecs=(*chain.filters, serializer, *chain.compressors))

    def encoded_bound(self, spec: ArraySpec) -> int:
        """Return a generous bound: all inner chunks at their longest, the index, and gaps that other writers leave."""
        shard = self._plain(spec)
        # Elements of any length have a bound for all together, which is that of a chunk.
        count = 1 if shard.inner.variable else prod(shard.counts)
        return 2 * (count * shard.inner.encoded_bound + shard.index.size) + 4096

    def is_variable(self, spec: ArraySpec) -> bool:
        """Return whether the inner chunks are."""
        return self._plain(spec).inner.variable

    def shard(self, spec: ArraySpec, order: tuple[int, ...]) -> BoundShard:
        """Return the codec for shards of one shape."""
        plain = self._plain(spec)
        if order == plain.order:
            return plain
        turned = copy(plain)  # with the codecs of the inner chunks, which `check` has made
        turned.order = order
        return turned

    def _plain(self, spec: ArraySpec) -> BoundShard:
        """Return the codec for shards of one shape, their axes in order.

        The last one is kept: a chain needs it several times, and nested chains twice as often at each level.
        """
        kept: BoundShard | None = self.__dict__.get("_kept")
        if kept is None or kept.spec is not spec:
            kept = self.__dict__["_kept"] = BoundShard(self, spec)
        return kept

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.chunk_shape, self.codecs, self.index_codecs, self.index_location)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """Return the whole shard."""
        return b"".join(self._plain(spec).encode(chunk, keep_empty=False))

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return all elements of the shard."""
        return self._plain(spec).decode(raw)


def chunk_chain(chain: CodecChain) -> CodecChain:
    """Return the codecs of the chunks that users see: those inside of shards, if shards are all that a chain makes."""
    shard = chain.serializer
    if not isinstance(shard, ShardingCodec) or chain.filters or chain.compressors:
        return chain
    return CodecChain(shard.codecs, chain.dtype, chain.fill, shard.chunk_shape)


class Uneven(NamedTuple):
    """An axis along which inner chunks do not divide a shard."""

    axis: int
    size: int
    """Of the inner chunks."""
    edge: int
    """Of the shard."""
    common: int
    """What divides all shards along the axis."""


def uneven(chain: CodecChain, dimensions: Sequence[DimensionGrid]) -> Uneven | None:
    """Return the first axis along which inner chunks, also of nested shards, do not divide every shard."""
    shard = chain.shard(tuple(next(iter(dim.unique_edge_lengths)) for dim in dimensions))
    if shard is None:
        return None
    for axis, (size, dim) in enumerate(zip(shard.chunk_shape, dimensions, strict=True)):
        for edge in dim.unique_edge_lengths:
            if edge % size:
                return Uneven(axis, size, edge, gcd(*dim.unique_edge_lengths))
    within = uneven(shard.chain, [FixedDimension(n, n) for n in shard.inner.shape])
    return None if within is None else within._replace(axis=shard.order[within.axis])


class BoundShard:
    """The codec for shards of one shape, type and fill value."""

    def __init__(self, codec: ShardingCodec, spec: ArraySpec) -> None:
        self.shape, self.spec = spec.shape, spec
        self.order = tuple(range(len(spec.shape)))
        """The axes of the array, as they come here."""
        if len(codec.chunk_shape) != len(spec.shape):
            raise codec._refused(
                f"chunk_shape {list(codec.chunk_shape)} is for {len(codec.chunk_shape)} axes, "
                f"the shard has {len(spec.shape)}",
                "configuration.chunk_shape",
            )
        self.grid = ChunkGrid(tuple(map(BoundedDimension, codec.chunk_shape, spec.shape)))
        self.counts = self.grid.grid_shape
        self.is_even = not any(extent % size for size, extent in zip(codec.chunk_shape, spec.shape, strict=True))
        """Whether all inner chunks have one shape."""
        self._codec = codec
        self.index = IndexLayout(codec.index_codecs, self.counts, at_start=codec.index_location == "start")

    @cached_property
    def chain(self) -> CodecChain:
        """The codecs of the inner chunks, made on first use."""
        largest = tuple(map(min, self._codec.chunk_shape, self.shape))
        return nested_chain(self._codec.codecs, self.spec.dtype, self.spec.fill, largest, "codecs")

    @cached_property
    def inner(self) -> BoundChain:
        """The chain for the largest inner chunks: all, unless they do not divide the shard."""
        return self.chain.bound[tuple(map(min, self._codec.chunk_shape, self.shape))]

    @property
    def chunk_shape(self) -> Shape:
        """The shape of the inner chunks, in the array's order of axes."""
        return tuple(self._codec.chunk_shape[self.order.index(axis)] for axis in range(len(self.order)))

    # -- whole shards -----------------------------------------------------------------------------

    def decode(self, raw: Buffer) -> AnyArray:
        """Return all elements of a shard, its axes in the codec's order."""
        index, view = self.index.of(raw), memoryview(raw)
        out = np.empty(self.shape, self.spec.dtype.numpy)
        for number, coords in enumerate(np.ndindex(*self.counts)):
            region, span = self.grid.spec(coords).slices, index.span(number)
            if span is None:
                out[region] = self.spec.fill
            else:
                out[region] = self.decode_inner(view[span[0] : span[0] + span[1]], coords, out[region].shape)
        return out

    def decode_inner(self, raw: Buffer, coords: Coords, shape: Shape) -> AnyArray:
        """Return one inner chunk; errors name it."""
        try:
            return self.chain.bound[shape].decode(raw)
        except CodecError as error:
            raise inner_error(error, coords) from error

    def encode(self, chunk: AnyArray, *, keep_empty: bool) -> list[Buffer]:
        """Return a whole shard, its axes in the array's order: the bytes of its inner chunks, and its index.

        With `keep_empty`, inner chunks of fill values are stored all the same.
        """
        chunk = chunk.transpose(self.order)
        stored: dict[int, Buffer] = {}
        for number, coords in enumerate(np.ndindex(*self.counts)):
            raw = self.encode_inner(chunk[self.grid.spec(coords).slices or ...], coords, keep_empty=keep_empty)
            if raw is not None:
                stored[number] = raw
        return self.join(stored)

    def encode_inner(self, chunk: AnyArray, coords: Coords, *, keep_empty: bool) -> Buffer | None:
        """Return the bytes of an inner chunk; None for one of fill values, which need not be stored."""
        if not keep_empty and equals_fill(chunk, self.spec.fill):
            return None
        inner = self.chain.bound[chunk.shape]
        try:
            if inner.shard is not None:
                return b"".join(inner.shard.encode(chunk, keep_empty=keep_empty))
            return inner.encode(np.ascontiguousarray(chunk))
        except EncodeError as error:
            raise inner_error(error, coords) from error

    def join(self, stored: Mapping[int, Any]) -> list[Any]:
        """Return the parts of a shard: inner chunks, given by their numbers, in row-major order, and their index."""
        table = np.full((prod(self.counts), 2), EMPTY, np.uint64)
        numbers = sorted(stored)
        body = [stored[number] for number in numbers]
        lengths = np.array([*map(len, body)], np.uint64)
        begin = np.uint64(self.index.size if self.index.at_start else 0)
        table[numbers, 0] = begin + np.cumsum(lengths, dtype=np.uint64) - lengths
        table[numbers, 1] = lengths
        index = self.index.encode(table)
        return [index, *body] if self.index.at_start else [*body, index]


def inner_error(error: CodecError | ShortReadError, coords: Coords) -> CodecError:
    """Return the same error, naming the inner chunk; what is only unsupported here is not damaged."""
    kind = type(error) if isinstance(error, CodecError) else CodecError
    return kind(f"inner chunk {coords}: {error}", inner=coords)


# -- the index ------------------------------------------------------------------------------------


class ShardIndex:
    """Where each inner chunk lies: (offset, length) in row-major order, both 2**64 - 1 for an empty one."""

    __slots__ = ("table", "entries")

    def __init__(self, table: npt.NDArray[np.uint64]) -> None:
        # Numpy may name the byte order in the type, which a memoryview does not index; a view has the plain type.
        self.table = np.array(table, np.uint64, order="C").view(np.uint64).reshape(-1, 2)
        self.entries = self.table.reshape(-1).data

    def span(self, number: int) -> tuple[int, int] | None:
        """Return offset and length of an inner chunk, or None if it is empty."""
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
            raise ShardingCodec._wrong("index_codecs", "index_codecs must have a fixed size, so no compressor")
        self.size: int = size

    def encode(self, table: npt.NDArray[np.uint64]) -> Buffer:
        """Return the bytes of an index."""
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
        index = ShardIndex(table)
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
        """Return the error for an inner chunk that the index places wrongly."""
        coords = tuple(int(k) for k in np.unravel_index(number, self.counts))
        return CodecError(f"the shard's index: inner chunk {coords} {what}", inner=coords)

    def of(self, raw: Buffer) -> ShardIndex:
        """Return the index of a whole shard."""
        start, end = self.place(len(raw))
        return self.parse(raw[start : start + self.size], end)

    def place(self, total: int) -> tuple[int, int]:
        """Return where the index of a shard of so many bytes starts, and where its inner chunks end."""
        if total < self.size:
            raise CodecError(f"the shard has {total} bytes, its index alone needs {self.size}")
        return (0, total) if self.at_start else (total - self.size, total - self.size)

    def number(self, coords: Coords) -> int:
        """Return the position of an inner chunk in the index."""
        number = 0
        for k, count in zip(coords, self.counts, strict=True):
            number = number * count + k
        return number


def nested_chain(chain: Sequence[Codec], dtype: Any, fill: AnyArray, shape: Shape, key: str) -> CodecChain:
    """Return a chain inside the configuration of a shard; errors name its place there."""
    try:
        return CodecChain(chain, dtype, fill, shape)
    except MetadataError as error:
        field = error.field.removeprefix("codecs")
        raise type(error)(f"codec 'sharding_indexed': {error}", field=f"configuration.{key}{field}") from error
