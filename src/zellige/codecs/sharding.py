"""`sharding_indexed`: a chunk that is a small array of its own (spec: sharding codec 1.0).

A shard holds inner chunks and an index of their offsets and lengths. Reading a part plans on the inner grid
with the same code as any array, and fetches byte ranges through a `Reader`; nested shards are recursion.
Writing a part re-encodes the inner chunks that change and copies the bytes of the others.

Inner chunks that do not divide a shard (zarr-specs pull request 370, "1.1") are rounded up in number, and the last ones
are clipped to the shard: their codecs see only the elements that lie in it. `uneven` finds them; whether they may be
written is for the array to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import gcd, prod
from types import EllipsisType
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from zellige import codecs, plans, scratch
from zellige.codecs.base import ArrayBytesCodec, ArraySpec, Codec, Reader, Runner, one_of, only_keys
from zellige.codecs.chain import BoundChain, CodecChain
from zellige.codecs.shard_index import EMPTY, IndexLayout, ShardIndex, nested_chain
from zellige.dtypes.fill import equals_fill, rows_of_fill
from zellige.errors import CodecError, EncodeError, MetadataError, ShortReadError
from zellige.grid import BoundedDimension, ChunkGrid, DimensionGrid, FixedDimension
from zellige.plans import Axis, Plan, Request
from zellige.types import JSON, AnyArray, Buffer, Coords, Kept, Old, Part, Shape

_SLAB = 1 << 20
_AREA = 16 << 20  # bytes; larger shards are encoded into just the memory that they need


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
        return b"".join(self._plain(spec).encode(chunk, _inline, keep_empty=False))

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

    # -- reading ----------------------------------------------------------------------------------

    def decode(self, raw: Buffer) -> AnyArray:
        """All elements of a shard."""
        out = np.empty(self.shape, self.spec.dtype.numpy)
        self._decode_all(raw, None, out, _inline)
        return out

    def _whole_plan(self) -> Plan:
        return plans.plan_axes([range(n) for n in self.shape], (), self.grid.axes)

    def read(self, reader: Reader, inside: Sequence[Any], plan: Plan, out: AnyArray, run: Runner) -> bool:
        """Fill the work array with what a request of a plan picks; False if there is no such shard."""
        axes, points, out = self._in_order(inside, plan, out)
        everything = all(isinstance(at, range) and at == range(n) for at, n in zip(axes, self.shape, strict=True))
        part = None if everything else plans.plan_axes(axes, points, self.grid.axes)
        if part is None or len(part) == prod(self.counts):
            raw = reader.whole()
            if raw is None:
                return False
            self._decode_all(raw, part, out, run)
            return True
        index = reader.index(self.index.span, self.index.parse)
        if index is None:
            return False
        return self._read_plan(reader, index, part, out, run)

    def _in_order(
        self, inside: Sequence[Any], plan: Plan, work: AnyArray
    ) -> tuple[list[Axis], tuple[int, ...], AnyArray]:
        """What a request of a plan picks, and the work array, in the shard's order of axes."""
        axes, points = plans.picked_axes(inside, plan)
        others = [axis for axis in range(len(axes)) if axis not in points]
        lead = (0,) if points else ()
        places = [len(lead) + others.index(axis) for axis in self.order if axis not in points]
        points = tuple(map(self.order.index, points))
        return [axes[axis] for axis in self.order], points, work.transpose((*lead, *places))

    def _decode_all(self, raw: Buffer, part: Plan | None, out: AnyArray, run: Runner) -> None:
        """Decode inner chunks out of a whole shard, for a part of their elements or for all."""
        index, view = self.index.of(raw), memoryview(raw)
        if part is None and self._in_slabs(out):
            slabs = list(self._slabs())
            run(partial(self._decode_slab, view, index, out), plans.Tasks(slabs), self._slab_bytes)
            return
        plan = self._whole_plan() if part is None else part

        def decode_one(request: Request) -> None:
            span = index.span(self.index.number(request[0]))
            self._scatter(None if span is None else view[span[0] : span[0] + span[1]], request, plan, out)

        run(decode_one, plan, self.inner.decode_work)

    def _in_slabs(self, values: AnyArray) -> bool:
        """Whether small inner chunks are done together."""
        return self.is_even and self.inner.takes_rows and values.dtype == self.inner.dtype

    def _slabs(self) -> Iterator[tuple[int, int, tuple[slice | EllipsisType, ...], Shape]]:
        """Inner chunks in groups with consecutive numbers, of about `_SLAB` bytes: small ones are done together.

        Each is (first number, how many, the region of the shard, the counts along its last axes).
        """
        counts, sizes = self.counts, self.inner.shape
        if not counts:
            yield 0, 1, (...,), ()
            return
        axis = len(counts) - 1
        while axis > 0 and prod(counts[axis:]) * self.inner.nbytes <= _SLAB:
            axis -= 1
        rest = counts[axis + 1 :]
        step = max(1, _SLAB // (prod(rest) * self.inner.nbytes))
        whole = [slice(None)] * len(rest)
        for lead in np.ndindex(*counts[:axis]):
            region = [slice(k * size, (k + 1) * size) for k, size in zip(lead, sizes, strict=False)]
            for k in range(0, counts[axis], step):
                many = min(step, counts[axis] - k)
                row = slice(k * sizes[axis], (k + many) * sizes[axis])
                number = self.index.number((*lead, k, *[0] * len(rest)))
                yield number, many * prod(rest), (*region, row, *whole), (many, *rest)

    @property
    def _slab_bytes(self) -> int:
        return max(_SLAB, self.inner.nbytes)

    def _as_rows(self, region: AnyArray, counts: Shape) -> AnyArray:
        """A region of a shard seen as its inner chunks: their counts, then their shape."""
        sizes = self.inner.shape
        lead = len(sizes) - len(counts)
        split = [n for count, size in zip(counts, sizes[lead:], strict=True) for n in (count, size)]
        order = [lead + 2 * k for k in range(len(counts))]
        order += [*range(lead), *(k + 1 for k in order)]
        return region.reshape((*sizes[:lead], *split)).transpose(order)

    def _decode_slab(self, view: memoryview, index: ShardIndex, out: AnyArray, slab: Any) -> None:
        first, many, region, counts = slab
        spans = index.table[first : first + many]
        used = np.flatnonzero(spans[:, 0] != EMPTY)
        target = self._as_rows(out[region], counts)
        if not len(used):
            target[...] = self.spec.fill
            return
        try:
            rows = self.inner.decode_rows(view, spans[used], self._rows("rows", len(used)))
        except CodecError:
            self._blame(view, spans[used], first + used)
            raise
        if len(used) < many:
            some, rows = rows, self._rows("all rows", many)
            rows[...] = self.spec.fill
            rows[used] = some
        plans.copy_rows(target, rows.reshape(target.shape))

    def _rows(self, slot: str, many: int) -> AnyArray:
        """Inner chunks one after the other, in this thread's scratch."""
        raw = scratch.buffer(slot, many * self.inner.nbytes)
        return np.ndarray((many, *self.inner.shape), self.inner.dtype, raw)

    def _blame(self, view: memoryview, spans: npt.NDArray[np.uint64], numbers: npt.NDArray[np.intp]) -> None:
        """Decode inner chunks one by one, to name the one that is damaged."""
        for (start, length), number in zip(spans.tolist(), numbers.tolist(), strict=True):
            try:
                self.inner.decode(view[start : start + length])
            except CodecError as error:
                raise self._inner_error(error, self.index.coords(number)) from error

    def _read_plan(self, reader: Reader, index: ShardIndex, plan: Plan, out: AnyArray, run: Runner) -> bool:
        """Fetch the ranges of the inner chunks that are hit, close ones together, and decode them."""
        wanted: list[tuple[int, int, Request]] = []
        checked = False
        for request in plan.requests():
            span = index.span(self.index.number(request[0]))
            if span is None:
                self._scatter(None, request, plan, out)
            elif self.inner.shard is not None and not request[4]:
                if not self._read_nested(reader.within(*span), request, plan, out, run):
                    return False
                checked = True
            else:
                wanted.append((*span, request))
        groups = list(_merged(wanted, *reader.merging))
        try:
            # Without any range too: a remembered index may call empty what has been written since.
            parts = [] if checked and not groups else reader.ranges([(start, length) for start, length, _ in groups])
        except ShortReadError as error:
            _, _, last = max(wanted, key=lambda entry: entry[0] + entry[1])
            raise self.index.bad_entry(
                self.index.number(last[0]), f"reaches beyond the end of the shard: {error}"
            ) from error
        if parts is None:
            return False
        tasks = [
            (memoryview(part)[offset - start : offset - start + length], request)
            for part, (start, _, members) in zip(parts, groups, strict=True)
            for offset, length, request in members
        ]
        run(lambda task: self._scatter(task[0], task[1], plan, out), plans.Tasks(tasks), self.inner.decode_work)
        return True

    def _read_nested(self, reader: Reader, request: Request, plan: Plan, out: AnyArray, run: Runner) -> bool:
        """Read a part of an inner chunk that is a shard itself; False if the outer one is gone by now."""
        coords, shape, inside, outside, _ = request
        shard = self.chain.bound[shape].shard
        assert shard is not None
        target = plans.Target(out, outside)
        try:
            found = shard.read(reader, inside, plan, target.array, run)
        except (CodecError, ShortReadError) as error:
            raise self._inner_error(error, coords) from error
        target.write_back()
        return found

    def _scatter(self, raw: Buffer | None, request: Request, plan: Plan, out: AnyArray) -> None:
        """Decode one inner chunk into its place."""
        coords, shape, inside, outside, whole = request
        if raw is None:
            out[outside] = self.spec.fill
            return
        inner = self.chain.bound[shape]
        try:
            if whole and inner.decode_into(raw, out[outside]):
                return
            chunk = inner.decode(raw)
        except CodecError as error:
            raise self._inner_error(error, coords) from error
        out[outside] = (chunk if plan.order is None else chunk.transpose(plan.order))[inside]

    def _inner_error(self, error: CodecError | ShortReadError, coords: Coords) -> CodecError:
        # What is only unsupported here is not damaged.
        kind = type(error) if isinstance(error, CodecError) else CodecError
        return kind(f"inner chunk {coords}: {error}", inner=coords)

    # -- writing ----------------------------------------------------------------------------------

    def encode(self, chunk: AnyArray, run: Runner, *, keep_empty: bool) -> list[Buffer]:
        """A whole shard: the bytes of its inner chunks, and its index."""
        chunk = chunk.transpose(self.order)
        parts: dict[int, Buffer] = {}
        if self._in_slabs(chunk):
            slabs = list(self._slabs())
            # In memory of this thread, which is warm; the bytes are stored before it encodes another shard.
            room = prod(self.counts) * self.inner.room
            area = scratch.buffer("shard", room) if room <= _AREA else None
            run(partial(self._encode_slab, chunk, parts, area, keep_empty), plans.Tasks(slabs), self._slab_bytes)
            return self._join(parts)

        def encode_one(request: Request) -> None:
            coords, _, _, outside, _ = request
            raw = self._encode_inner(chunk[outside], coords, keep_empty)
            if raw is not None:
                parts[self.index.number(coords)] = raw

        run(encode_one, self._whole_plan(), self.inner.encode_work)
        return self._join(parts)

    def _encode_slab(
        self, chunk: AnyArray, parts: dict[int, Buffer], area: memoryview | None, keep_empty: bool, slab: Any
    ) -> None:
        first, many, region, counts = slab
        source = self._as_rows(chunk[region], counts)
        rows, into = self._places(first, many, area)
        plans.copy_rows(rows.reshape(source.shape), source)
        kept = np.arange(many) if keep_empty else np.flatnonzero(~rows_of_fill(rows, self.spec.fill))
        if not len(kept):
            return
        try:
            raws = self.inner.encode_rows(rows if len(kept) == many else rows[kept], into)
        except EncodeError:
            for k in kept.tolist():  # one by one, to name the one that is refused
                self._encode_inner(rows[k], self.index.coords(first + k), keep_empty=True)
            raise
        if area is None and not self.inner.is_plain:
            raws = [*map(bytes, raws)]
        parts.update(zip((first + kept).tolist(), raws, strict=True))

    def _places(self, first: int, many: int, area: memoryview | None) -> tuple[AnyArray, memoryview]:
        """Where to put inner chunks, and their bytes: the same place, if nothing encodes them."""
        inner = self.inner
        if area is not None:
            into = area[first * inner.room : (first + many) * inner.room]
        elif inner.is_plain:
            into = np.empty(many * inner.room, np.uint8).data
        else:
            into = scratch.buffer("slab", many * inner.room)
        place = into if inner.is_plain else scratch.buffer("rows", many * inner.nbytes)
        return np.ndarray((many, *inner.shape), inner.dtype, place), into

    def _encode_inner(self, chunk: AnyArray, coords: Coords, keep_empty: bool) -> Buffer | None:
        """The bytes of an inner chunk, which outlive the thread's scratch; None for one of fill values."""
        if not keep_empty and equals_fill(chunk, self.spec.fill):
            return None
        inner = self.chain.bound[chunk.shape]
        try:
            if inner.shard is not None:
                return b"".join(inner.shard.encode(chunk, _inline, keep_empty=keep_empty))
            raw = inner.encode(np.ascontiguousarray(chunk))
        except EncodeError as error:
            raise self._inner_error(error, coords) from error
        return raw if isinstance(raw, bytes) else bytes(raw)

    def update(
        self,
        old: Old | None,
        inside: Sequence[Any],
        plan: Plan,
        value: AnyArray,
        run: Runner,
        *,
        keep_empty: bool,
    ) -> list[Part] | None:
        """The shard after writing what a request picks; None if nothing but fill values is left."""
        axes, points, value = self._in_order(inside, plan, value)
        plan = plans.plan_axes(axes, points, self.grid.axes)
        parts: dict[int, Part] = {} if old is None else dict(self._parts(old))

        def change_one(request: Request) -> None:
            coords, shape, inside, outside, whole = request
            number = self.index.number(coords)
            if whole:
                chunk = np.asarray(value[outside], self.spec.dtype.numpy)
            else:
                chunk = self._writable(old, parts.get(number), coords, shape)
                (chunk if plan.order is None else chunk.transpose(plan.order))[inside] = value[outside]
            raw = self._encode_inner(chunk, coords, keep_empty)
            if raw is None:
                parts.pop(number, None)
            else:
                parts[number] = raw

        run(change_one, plan, self.inner.nbytes)
        return [*_joined(self._join(parts))] if parts or keep_empty else None

    def _parts(self, old: Old) -> Iterator[tuple[int, Kept]]:
        """Where the bytes of each inner chunk that is stored are."""
        start, end = self.index.place(old.size)
        index = self.index.parse(old.read(start, self.index.size), end)
        for number in range(prod(self.counts)):
            span = index.span(number)
            if span is not None:
                yield number, Kept(*span)

    def _writable(self, old: Old | None, part: Part | None, coords: Coords, shape: Shape) -> AnyArray:
        chunk = np.empty(shape, self.spec.dtype.numpy)
        if isinstance(part, Kept):
            assert old is not None
            part = old.read(part.start, part.length)
        try:
            chunk[...] = self.spec.fill if part is None else self.chain.bound[shape].decode(part)
        except CodecError as error:
            raise self._inner_error(error, coords) from error
        return chunk

    def _join(self, parts: Mapping[int, Any]) -> list[Any]:
        """Inner chunks in row-major order with their index."""
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


def _joined(parts: Iterable[Part]) -> Iterator[Part]:
    """The same parts, where those that are kept and follow each other are one."""
    last: Kept | None = None
    for part in parts:
        if isinstance(part, Kept) and last is not None and part.start == last.start + last.length:
            last = Kept(last.start, last.length + part.length)
            continue
        if last is not None:
            yield last
        last = part if isinstance(part, Kept) else None
        if last is None:
            yield part
    if last is not None:
        yield last


def _merged(
    wanted: list[tuple[int, int, Request]], gap: int, most: int
) -> Iterator[tuple[int, int, list[tuple[int, int, Request]]]]:
    """Ranges no further apart than the gap as one of at most so many bytes: (start, length, members)."""
    members: list[tuple[int, int, Request]] = []
    start = end = 0
    for offset, length, request in sorted(wanted, key=lambda entry: entry[0]):
        if members and (offset - end > gap or offset + length - start > most):
            yield start, end - start, members
            members = []
        if not members:
            start = offset
        members.append((offset, length, request))
        end = max(offset + length, end) if len(members) > 1 else offset + length
    if members:
        yield start, end - start, members


def _inline(work: Callable[[Any], None], tasks: Any, nbytes: int) -> None:
    for task in tasks.requests():
        work(task)
