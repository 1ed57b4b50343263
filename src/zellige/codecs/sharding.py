"""`sharding_indexed`: a chunk that is a small array of its own (spec: sharding codec 1.0).

A shard holds inner chunks and an index of their offsets and lengths. Here is the format, and whole shards; how parts of
stored shards are read and replaced is in `zellige.io.shard`.

Inner chunks that do not divide a shard (zarr-specs pull request 370, "1.1") are rounded up in number, and the last ones
are clipped to the shard: their codecs see only the elements that lie in it. `uneven` finds them; whether they may be
written is for the array to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from zellige import codecs
from zellige.codecs.base import ArrayBytesCodec, ArraySpec, Codec, one_of, only_keys
from zellige.codecs.chain import BoundChain, CodecChain
from zellige.codecs.shard_index import EMPTY, IndexLayout, nested_chain
from zellige.dtypes.fill import equals_fill
from zellige.errors import CodecError, EncodeError, MetadataError, ShortReadError
from zellige.grid.grid import BoundedDimension, ChunkGrid, DimensionGrid, FixedDimension
from zellige.types import JSON, AnyArray, Buffer, Coords, Shape


@dataclass(frozen=True)
class ShardingCodec(ArrayBytesCodec):
    """Cut a chunk into inner chunks that can be read one by one."""

    chunk_shape: Shape
    codecs: tuple[Codec, ...] = ()
    index_codecs: tuple[Codec, ...] = ()
    index_location: Literal["start", "end"] = "end"

    name: ClassVar[str] = "sharding_indexed"

    def __post_init__(self) -> None:
        self._complete()
        shape: object = self.chunk_shape
        if not isinstance(shape, tuple) or not all(type(n) is int and 1 <= n < 2**63 for n in shape):
            raise MetadataError(
                f"codec {self.name!r}: chunk_shape must be integers >= 1 and < 2**63, found {shape!r}",
                field="configuration.chunk_shape",
            )
        for key, chain in (("codecs", self.codecs), ("index_codecs", self.index_codecs)):
            if not isinstance(chain, tuple) or not all(isinstance(codec, Codec) for codec in chain):
                raise MetadataError(
                    f"codec {self.name!r}: {key} must be a tuple of codecs, found {chain!r}",
                    field=f"configuration.{key}",
                )
        one_of(self.name, {"index_location": self.index_location}, "index_location", ("start", "end"))

    def _complete(self) -> None:
        """What users may write as lists, or leave out."""
        given: dict[str, Any] = {"chunk_shape": self.chunk_shape}
        given["codecs"] = self.codecs or (codecs.parse_codec("bytes"), codecs.parse_codec("zstd"))
        given["index_codecs"] = self.index_codecs or (codecs.parse_codec("bytes"), codecs.parse_codec("crc32c"))
        for key, value in given.items():
            object.__setattr__(self, key, tuple(value) if isinstance(value, list) else value)

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration."""
        only_keys(cls.name, configuration, "chunk_shape", "codecs", "index_codecs", "index_location")
        shape = configuration.get("chunk_shape")
        return cls(
            tuple(shape) if isinstance(shape, list | tuple) else shape,  # type: ignore[arg-type]
            _nested(configuration, "codecs"),
            _nested(configuration, "index_codecs"),
            configuration.get("index_location", "end"),
        )

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        return {
            "chunk_shape": list(self.chunk_shape),
            "codecs": [codec.to_json() for codec in self.codecs],
            "index_codecs": [codec.to_json() for codec in self.index_codecs],
            "index_location": self.index_location,
        }

    def check(self, spec: ArraySpec) -> None:
        """The inner shape has the rank of the shard, and both chains are valid."""
        self._plain(spec).inner  # noqa: B018  (made on first use, and so checked)

    def evolve(self, spec: ArraySpec) -> Self:
        """Complete the codecs of the inner chunks."""
        chain = nested_chain(self.codecs, spec.dtype, spec.fill, self.chunk_shape, "codecs")
        serializer = chain.serializer.evolve(chain.specs(self.chunk_shape)[-1])
        return replace(self, codecs=(*chain.filters, serializer, *chain.compressors))

    def encoded_size(self, spec: ArraySpec) -> None:
        """It depends on what is inside."""

    def encoded_bound(self, spec: ArraySpec) -> int:
        """Generous: all inner chunks at their longest, the index, and the gaps that other writers may leave."""
        shard = self._plain(spec)
        # Elements of any length have a bound for all together, which is that of a chunk.
        count = 1 if shard.inner.variable else prod(shard.counts)
        return 2 * (count * shard.inner.encoded_bound + shard.index.size) + 4096

    def is_variable(self, spec: ArraySpec) -> bool:
        """Whether the inner chunks are."""
        return self._plain(spec).inner.variable

    def shard(self, spec: ArraySpec, order: tuple[int, ...]) -> BoundShard:
        """The codec for shards of one shape."""
        plain = self._plain(spec)
        return plain if order == plain.order else BoundShard(self, spec, order, plain)

    def _plain(self, spec: ArraySpec) -> BoundShard:
        """The codec for shards of one shape, their axes in order.

        The last one is kept: a chain asks several times, and nested ones would ask twice as often at each level.
        """
        kept = self._kept.get("last")
        if kept is None or kept.spec is not spec:
            kept = self._kept["last"] = BoundShard(self, spec, tuple(range(len(spec.shape))))
        return kept

    @cached_property
    def _kept(self) -> dict[str, BoundShard]:
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.chunk_shape, self.codecs, self.index_codecs, self.index_location)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """The whole shard."""
        return b"".join(self._plain(spec).encode(chunk, keep_empty=False))

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """All elements of the shard."""
        return self._plain(spec).decode(raw)


def chunk_chain(chain: CodecChain) -> CodecChain:
    """The codecs of the chunks that users see: those inside of shards, if shards are all that a chain makes."""
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
    """The first axis along which inner chunks do not divide every shard, also within other shards; None if they do."""
    shard = chain.shard(tuple(next(iter(dim.unique_edge_lengths)) for dim in dimensions))
    if not isinstance(shard, BoundShard):
        return None
    for axis, (size, dim) in enumerate(zip(shard.chunk_shape, dimensions, strict=True)):
        for edge in dim.unique_edge_lengths:
            if edge % size:
                return Uneven(axis, size, edge, gcd(*dim.unique_edge_lengths))
    within = uneven(shard.chain, [FixedDimension(n, n) for n in shard.inner.shape])
    return None if within is None else within._replace(axis=shard.order[within.axis])


def _nested(configuration: Mapping[str, JSON], key: str) -> tuple[Codec, ...]:
    """A chain inside the configuration; errors name the place in it."""
    items = configuration.get(key)
    field = f"configuration.{key}"
    if not isinstance(items, list) or not items:
        raise MetadataError(f"codec 'sharding_indexed': {key} must be a list of codecs, found {items!r}", field=field)
    found = []
    for i, item in enumerate(items):
        try:
            found.append(codecs.from_item(item))
        except MetadataError as error:
            raise type(error)(str(error), field=f"{field}[{i}].{error.field}") from error
    return tuple(found)


class BoundShard:
    """The codec for shards of one shape, type and fill value."""

    def __init__(
        self, codec: ShardingCodec, spec: ArraySpec, order: tuple[int, ...], plain: BoundShard | None = None
    ) -> None:
        """With `plain`, which has its axes in order, the codecs of the inner chunks are shared."""
        self._plain = plain
        self.shape, self.spec, self.order = spec.shape, spec, order
        if len(codec.chunk_shape) != len(spec.shape):
            raise MetadataError(
                f"codec 'sharding_indexed': chunk_shape {list(codec.chunk_shape)} is for {len(codec.chunk_shape)} "
                f"axes, the shard has {len(spec.shape)}",
                field="configuration.chunk_shape",
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
        if self._plain is not None:
            return self._plain.chain
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
        """All elements of a shard, its axes in the codec's order."""
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
        """One inner chunk; errors name it."""
        try:
            return self.chain.bound[shape].decode(raw)
        except CodecError as error:
            raise inner_error(error, coords) from error

    def encode(self, chunk: AnyArray, *, keep_empty: bool) -> list[Buffer]:
        """A whole shard, its axes in the array's order: the bytes of its inner chunks, and its index.

        With `keep_empty`, inner chunks of fill values are stored all the same.
        """
        chunk = chunk.transpose(self.order)
        parts: dict[int, Buffer] = {}
        for number, coords in enumerate(np.ndindex(*self.counts)):
            raw = self.encode_inner(chunk[self.grid.spec(coords).slices or ...], coords, keep_empty=keep_empty)
            if raw is not None:
                parts[number] = raw
        return self.join(parts)

    def encode_inner(self, chunk: AnyArray, coords: Coords, *, keep_empty: bool) -> Buffer | None:
        """The bytes of an inner chunk; None for one of fill values, which need not be stored."""
        if not keep_empty and equals_fill(chunk, self.spec.fill):
            return None
        inner = self.chain.bound[chunk.shape]
        try:
            if inner.shard is not None:
                return b"".join(inner.shard.encode(chunk, keep_empty=keep_empty))
            return inner.encode(np.ascontiguousarray(chunk))
        except EncodeError as error:
            raise inner_error(error, coords) from error

    def join(self, parts: Mapping[int, Any]) -> list[Any]:
        """Inner chunks by their numbers, in row-major order, with their index."""
        table = np.full((prod(self.counts), 2), EMPTY, np.uint64)
        numbers = sorted(parts)
        lengths = np.array([len(parts[number]) for number in numbers], np.uint64)
        ends = np.cumsum(lengths, dtype=np.uint64)
        begin = self.index.size if self.index.at_start else 0
        table[numbers, 0] = ends - lengths + np.uint64(begin)
        table[numbers, 1] = lengths
        index = self.index.encode(table)
        body = [parts[number] for number in numbers]
        return [index, *body] if self.index.at_start else [*body, index]


def inner_error(error: CodecError | ShortReadError, coords: Coords) -> CodecError:
    """The same error, naming the inner chunk; what is only unsupported here is not damaged."""
    kind = type(error) if isinstance(error, CodecError) else CodecError
    return kind(f"inner chunk {coords}: {error}", inner=coords)
