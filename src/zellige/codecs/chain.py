"""The codec chain of an array: checked once, bound once for each chunk shape.

Encoding runs from left to right: array-to-array codecs, the one array-to-bytes codec, bytes-to-bytes
codecs. Binding works out what every codec sees for a shape, and how many bytes each step may produce:
decoding never yields more than the grid expects, whatever the bytes say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zellige import codecs
from zellige.codecs.base import HEAD, ArrayArrayCodec, ArrayBytesCodec, ArraySpec, BytesBytesCodec, Codec
from zellige.dtypes import DataType
from zellige.dtypes.base import check_elements
from zellige.errors import CodecError, EncodeError, MetadataError, UnsupportedCodecError
from zellige.types import JSON, AnyArray, Buffer, Indices, Shape

if TYPE_CHECKING:
    from zellige.codecs.sharding import BoundShard

SEEK = 8 << 10
"""Where a store says nothing else, a range of its own costs about as much as reading so many bytes more."""

_KEEP_SHAPES = 1024
_FEW = 4 << 20  # bytes of elements of any length that are decoded without looking first


class CodecChain:
    """The codecs of an array in order, for its data type and fill value."""

    __slots__ = ("filters", "serializer", "compressors", "dtype", "fill", "bound", "program")

    program: bytes | None
    """The chain in the kernel's terms, made on first use; see `zellige.kernel.program`."""

    def __init__(self, chain: Sequence[Codec], dtype: DataType, fill: AnyArray, shape: Shape) -> None:
        """Check the chain against one chunk shape of the array, and so against its rank and type."""
        self.filters, self.serializer, compressors = _by_kind(chain)
        self.dtype, self.fill = dtype, fill
        self.bound = _Bound(self)
        itemsize = self.specs(shape)[-1].dtype.item_size or 1
        self.compressors = tuple(codec.evolve(itemsize) for codec in compressors)
        self.bound[shape]

    @classmethod
    def from_json(
        cls, items: Sequence[tuple[str, dict[str, JSON]]], dtype: DataType, fill: AnyArray, shape: Shape
    ) -> CodecChain:
        """Return the chain that metadata declares; errors name the place in `codecs`."""
        chain = []
        for i, (name, configuration) in enumerate(items):
            try:
                chain.append(codecs.from_json(name, configuration))
            except MetadataError as error:
                raise _at(error, i) from error
        return cls(chain, dtype, fill, shape)

    def shard(self, shape: Shape) -> BoundShard | None:
        """Return how inner chunks lie in chunks of this shape, if these are shards, also behind other codecs."""
        return self.bound[shape].holds

    def specs(self, shape: Shape) -> list[ArraySpec]:
        """Return what each array-to-array codec sees, and at last the array-to-bytes codec."""
        return resolved(ArraySpec(shape, self.dtype, self.fill), self.filters)

    def __iter__(self) -> Any:
        return iter((*self.filters, self.serializer, *self.compressors))


def resolved(spec: ArraySpec, filters: Sequence[Codec]) -> list[ArraySpec]:
    """Return what each array-to-array codec sees, and at last the codec after them; other codecs are passed over."""
    specs = [spec]
    for position, codec in enumerate(filters):
        if not isinstance(codec, ArrayArrayCodec):
            continue
        try:
            specs.append(codec.resolve(specs[-1]))
        except MetadataError as error:
            raise _at(error, position) from error
    return specs


class _Bound(dict[Shape, "BoundChain"]):
    """The chain for each chunk shape, bound on first use."""

    def __init__(self, chain: CodecChain) -> None:
        self._chain = chain

    def __missing__(self, shape: Shape) -> BoundChain:
        if len(self) >= _KEEP_SHAPES:
            self.clear()
        bound = self[shape] = BoundChain(self._chain, shape)
        return bound


def _at(error: MetadataError, position: int) -> MetadataError:
    """Return the same error with the codec's place in the metadata."""
    field = f"codecs[{position}].{error.field}"
    return type(error)(f"{field}: {error}", field=field)


def _by_kind(
    chain: Sequence[Codec],
) -> tuple[tuple[ArrayArrayCodec, ...], ArrayBytesCodec, tuple[BytesBytesCodec, ...]]:
    filters = [c for c in chain if isinstance(c, ArrayArrayCodec)]
    serializers = [c for c in chain if isinstance(c, ArrayBytesCodec)]
    compressors = [c for c in chain if isinstance(c, BytesBytesCodec)]
    names = [c.name for c in chain]
    if len(serializers) != 1:
        raise MetadataError(
            f"codecs {names} must hold exactly one array-to-bytes codec, such as 'bytes', found {len(serializers)}",
            field="codecs",
        )
    if [*filters, *serializers, *compressors] != list(chain):
        raise MetadataError(
            f"codecs {names} are out of order: array-to-array codecs come first, then the array-to-bytes codec, "
            "then bytes-to-bytes codecs",
            field="codecs",
        )
    return tuple(filters), serializers[0], tuple(compressors)


class BoundChain:
    """A chain bound to one chunk shape."""

    def __init__(self, chain: CodecChain, shape: Shape) -> None:
        self.shape, self.dtype, self.fill = shape, chain.dtype.numpy, chain.fill
        *before, spec = chain.specs(shape)
        self._filters = list(zip(chain.filters, before, strict=True))
        self._serializer, self._spec = chain.serializer, spec
        try:
            chain.serializer.check(spec)
        except MetadataError as error:
            raise _at(error, len(chain.filters)) from error
        self.nbytes = prod(shape) * self.dtype.itemsize
        self.variable = chain.serializer.is_variable(spec)
        """Whether elements have any length, so that nothing is known of the bytes before they are looked at."""
        size = chain.serializer.encoded_size(spec)
        bound = chain.serializer.encoded_bound(spec) if size is None else size
        self._steps, self.encoded_bound, exact = decoding_steps(chain.compressors, bound, exact=size is not None)
        self.encoded_size = self.encoded_bound if exact else None
        order = permutation(chain.filters, len(shape))
        shard = chain.serializer.shard(spec, tuple(range(len(spec.shape))) if order is None else order)
        if order is None and shard is not None and not shard.is_even:
            raise MetadataError(
                f"inner chunks {shard.chunk_shape} do not divide shards {spec.shape}, as they must behind codecs that "
                "do more than reorder axes",
                field="codecs",
            )
        self.holds = None if order is None else shard
        """How inner chunks lie in these chunks, if they are shards, also behind other codecs."""
        self.shard = None if self._steps else self.holds
        """The same, unless a compressor around the shards prevents reading parts of them."""
        stored = chain.serializer.layout(spec)
        self._direct = stored is not None and not chain.filters and stored == self.dtype and stored.kind != "b"
        """Whether the bytes before the compressors are those of the chunk in memory."""
        self.strides = None if stored is None or self._steps else self._stored_strides(stored)

    def _stored_strides(self, stored: np.dtype[Any]) -> tuple[int, ...] | None:
        """Return the strides of a decoded chunk within its bytes, if decoding only makes views."""
        if not all(codec.is_view for codec, _ in self._filters) or self.nbytes >= 2**63:
            return None
        shape = self._spec.shape
        steps = [stored.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
        view = np.lib.stride_tricks.as_strided(np.empty(0, f"V{stored.itemsize}"), shape, steps)
        for codec, spec in reversed(self._filters):
            view = codec.decode(view, spec)
        return view.strides

    # -- whole chunks -----------------------------------------------------------------------------

    def encode(self, chunk: AnyArray) -> Buffer:
        """Return the bytes of a chunk of this shape and the array's type; `EncodeError` if a codec refuses it."""
        try:
            if self._direct and chunk.flags.c_contiguous:
                raw: Buffer = _as_bytes(chunk)
            else:
                for codec, spec in self._filters:
                    chunk = codec.encode(chunk, spec)
                raw = self._serializer.encode(chunk, self._spec)
            for step, _, _ in reversed(self._steps):
                raw = step.encode(raw)
        except (EncodeError, UnsupportedCodecError):
            raise
        except CodecError as error:
            raise EncodeError(str(error)) from error
        return raw

    def decode(self, raw: Buffer) -> AnyArray:
        """Return the chunk; it may be a read-only view of `raw`."""
        if self.variable:
            raw = self._unpacked(raw)
        else:
            for codec, limit, exact in self._steps:
                raw = codec.decode(raw, limit)
                if exact and len(raw) != limit:
                    raise CodecError(f"{codec.name}: {limit} bytes expected, {len(raw)} found")
        if self._direct and len(raw) == self.nbytes:
            return np.ndarray(self.shape, self.dtype, raw)  # what the serializer would do, for every chunk
        chunk = self._serializer.decode(raw, self._spec)
        for array_codec, spec in reversed(self._filters):
            chunk = array_codec.decode(chunk, spec)
        return chunk

    def _unpacked(self, raw: Buffer) -> Buffer:
        """Return the bytes of elements of any length: if they are more than a few, after a look at how they begin."""
        if not self._steps:
            return raw
        try:
            return self._run(raw, _FEW)
        except CodecError:
            pass  # too many, or damaged, which shows below
        head: Buffer | None = raw
        for codec, _, _ in self._steps:
            head = None if head is None else codec.head(head, HEAD)
        if head is None:
            return self._run(raw, self._serializer.encoded_bound(self._spec))
        return self._run(raw, self._serializer.bound_by_head(head, self._spec))

    def _run(self, raw: Buffer, most: int) -> Buffer:
        """Return the bytes before the compressors, at most so many."""
        compressors = [codec for codec, _, _ in reversed(self._steps)]
        for codec, limit, _ in decoding_steps(compressors, most, exact=False)[0]:
            raw = codec.decode(raw, limit)
        return raw

    # -- parts of uncompressed chunks -------------------------------------------------------------

    def part(self, inside: tuple[slice | Indices, ...], order: tuple[int, ...] | None, gap: int = SEEK) -> Part | None:
        """Return how to read only some bytes, if that pays: of each element, from first to last, or of some planes.

        `order` permutes the axes before `inside` picks from them. A range of its own costs about as much as reading
        `gap` bytes more.
        """
        if self.strides is None:
            return None
        strides = self.strides if order is None else tuple(self.strides[axis] for axis in order)
        stored = self._serializer.layout(self._spec)
        assert stored is not None
        found = self._points(inside, strides, stored, gap) or self._box(inside, strides, stored)
        return found or (self._planes(inside, strides, stored, gap) if order is None else None)

    def _points(
        self, inside: tuple[slice | Indices, ...], strides: tuple[int, ...], stored: np.dtype[Any], gap: int
    ) -> Part | None:
        """Return a range for each element that arrays pick, or for several that lie close to each other."""
        picks = [pick for pick in inside if isinstance(pick, np.ndarray)]
        if not picks or len(picks) != len(inside) or np.broadcast(*picks).size * gap > self.nbytes:
            return None
        offsets = np.asarray(sum(pick * stride for pick, stride in zip(picks, strides, strict=True)))
        wanted, size = offsets.ravel().tolist(), stored.itemsize
        spans: list[tuple[int, int]] = []
        places: dict[int, int] = {}  # of elements, when the ranges lie one after the other
        total = 0
        for offset in sorted(set(wanted)):
            start, length = spans[-1] if spans else (0, 0)
            if spans and offset - start - length <= gap:
                spans[-1] = start, offset + size - start
            else:
                spans.append((offset, size))
                start, length = offset, 0
            total += spans[-1][1] - length
            places[offset] = total // size - 1
        index = np.array([places[offset] for offset in wanted], np.intp).reshape(offsets.shape)
        return Part(spans, (total // size,), (size,), (index,), stored)

    def _box(self, inside: tuple[slice | Indices, ...], strides: tuple[int, ...], stored: np.dtype[Any]) -> Part | None:
        """Return one range, from the first to the last element that is picked."""
        start, last = 0, 0
        shape, steps, rest = [], [], []
        for pick, stride in zip(inside, strides, strict=True):
            if isinstance(pick, slice):
                box = range(pick.start, pick.stop, pick.step or 1)
            else:
                box = range(int(pick.min()), int(pick.max()) + 1)
            count = len(box)
            start += box.start * stride
            last += (count - 1) * box.step * stride
            if 2 * (last + self.dtype.itemsize) > self.nbytes:
                return None
            shape.append(count)
            steps.append(box.step * stride)
            rest.append(slice(None) if isinstance(pick, slice) else pick - box.start)
        return Part([(start, last + self.dtype.itemsize)], tuple(shape), tuple(steps), tuple(rest), stored)

    def _planes(
        self, inside: tuple[slice | Indices, ...], strides: tuple[int, ...], stored: np.dtype[Any], gap: int
    ) -> Part | None:
        """Return a range for each plane that an array picks along the first axis."""
        picked, plane = inside[0] if inside else None, strides[0] if strides else 0
        if not isinstance(picked, np.ndarray) or plane * self.shape[0] != self.nbytes:
            return None
        if 2 * picked.size * (plane + gap) > self.nbytes:
            return None
        spans = [(at * plane, plane) for at in picked.ravel().tolist()]
        places = np.arange(len(spans)).reshape(picked.shape)
        return Part(spans, (len(spans), *self.shape[1:]), strides, (places, *inside[1:]), stored)


class Part(NamedTuple):
    """Some elements of an uncompressed chunk: ranges of its bytes one after the other, seen through strides."""

    spans: list[tuple[int, int]]
    shape: Shape
    strides: tuple[int, ...]
    inside: tuple[Any, ...]
    dtype: np.dtype[Any]

    def decode(self, found: Sequence[Buffer]) -> AnyArray:
        """Return the picked elements, from the bytes of the ranges."""
        whole = found[0] if len(found) == 1 else b"".join(found)
        picked: AnyArray = np.ndarray(self.shape, self.dtype, whole, strides=self.strides)[self.inside]
        check_elements(picked)
        return picked


def _as_bytes(array: AnyArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def permutation(filters: Sequence[ArrayArrayCodec], rank: int) -> tuple[int, ...] | None:
    """Return the permutation that filters amount to if they only reorder axes; None if another is among them."""
    order = tuple(range(rank))
    for codec in filters:
        step = codec.permutation
        if step is None:
            return None
        order = tuple(order[axis] for axis in step)
    return order


def decoding_steps(
    compressors: Iterable[BytesBytesCodec], bound: int, *, exact: bool
) -> tuple[list[tuple[BytesBytesCodec, int, bool]], int, bool]:
    """Return the bytes-to-bytes codecs in decoding order, with the most that each may produce, and whether exactly.

    `bound` is the most of the last one. Also the most bytes at last, and whether their number is always the same.
    """
    steps: list[tuple[BytesBytesCodec, int, bool]] = []
    for codec in compressors:
        steps.append((codec, bound, exact))
        after = codec.encoded_size(bound) if exact else None
        exact, bound = after is not None, after if after is not None else codec.encoded_bound(bound)
    return steps[::-1], bound, exact
