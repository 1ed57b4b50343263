"""The three kinds of codecs. Codecs never see stores: they turn chunks into bytes and back.

A codec object is a frozen value that holds a configuration. What depends on the chunk (its shape, its
type, its fill value) comes as an `ArraySpec`, so that one codec serves every chunk shape of an array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import accumulate
from math import prod
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from zellige import scratch
from zellige.config import config
from zellige.dtypes import DataType
from zellige.errors import MetadataError
from zellige.types import JSON, AnyArray, Buffer, Old, Part, Shape, Span

T = TypeVar("T")

HEAD = 4096
"""How many decoded bytes are looked at before memory is taken for all that may follow."""
EXPANSION = 1 << 15
"""No compressor here makes more bytes out of one: zstd writes a run of 128 KiB as four."""


def variable_limit() -> int:
    """The most bytes of a chunk whose elements have any length, before its compressors."""
    limit: int = config.get("codecs.max_variable_chunk_bytes")
    return limit


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """What a codec knows about the chunk in front of it."""

    shape: Shape
    dtype: DataType
    fill: AnyArray
    """The fill value, 0-d. It passes through array-to-array codecs like any other value."""


class Codec(ABC):
    """Any codec: made from a configuration, written back as one."""

    name: ClassVar[str]

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration; raises `MetadataError` for anything unexpected.

        As it stands here, for codecs that have nothing to configure.
        """
        only_keys(cls.name, configuration)
        return cls()

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document, every value explicit."""
        return {}

    def to_json(self) -> dict[str, JSON]:
        """The object for a document, with an explicit configuration, which all readers accept."""
        return {"name": self.name, "configuration": self.configuration()}

    def to_dict(self) -> dict[str, JSON]:
        """`to_json` by the name that it has in zarr-python."""
        return self.to_json()

    @classmethod
    def from_dict(cls, data: Mapping[str, JSON]) -> Self:
        """The codec of an object in a document, as `to_dict` gives it."""
        if data.get("name") != cls.name:
            raise MetadataError(f"codec {cls.name!r} expected, found {data.get('name')!r}", field="name")
        return cls.from_configuration(data.get("configuration", {}))


class ArrayArrayCodec(Codec):
    """Turns a chunk into another array."""

    is_view: ClassVar[bool] = False
    """Whether decoding always gives a view, so that a part of a chunk can be read by itself."""

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """For a codec that only reorders axes: axis i of the encoded chunk is axis `permutation[i]` of the chunk."""
        return None

    @abstractmethod
    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """What the next codec sees; raises `MetadataError` if the chunk does not suit this codec."""

    @abstractmethod
    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The encoded array, of the shape and type that `resolve(spec)` says."""

    @abstractmethod
    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The chunk as it was before `encode`; a view where possible."""


class Reader(Protocol):
    """Access to the bytes of one shard, or of one that lies within another."""

    @property
    def merging(self) -> tuple[int, int]:
        """Ranges no further apart than the first are better read as one, of at most the second, in bytes."""

    def whole(self) -> Buffer | None:
        """All of it, or None if there is no such shard."""

    def ranges(self, spans: Sequence[Span]) -> Sequence[Buffer] | None:
        """Some ranges, or None if there is no such shard."""

    def index(self, span: Span, parse: Callable[[Buffer], T]) -> T | None:
        """What `parse` makes of the bytes that hold the index, maybe remembered; None if there is no such shard."""

    def within(self, start: int, length: int) -> Reader:
        """A range of it as a shard of its own."""


Runner: TypeAlias = Callable[[Callable[[Any], None], Any, int], None]
"""Does some work for all requests of a plan, each of about so many bytes, maybe on threads."""


class Shard(Protocol):
    """Chunks of one shape that hold inner chunks, of which parts can be read and written.

    With `keep_empty`, inner chunks of fill values are stored all the same.
    """

    is_even: bool
    """Whether all inner chunks have one shape."""

    @property
    def chunk_shape(self) -> Shape:
        """The shape of the inner chunks, in the array's order of axes."""

    def read(self, reader: Reader, inside: Sequence[Any], plan: Any, out: AnyArray, run: Runner) -> bool:
        """Fill the work array with what a request of a plan picks; False if there is no such shard."""

    def update(
        self, old: Old | None, inside: Sequence[Any], plan: Any, value: AnyArray, run: Runner, *, keep_empty: bool
    ) -> Sequence[Part] | None:
        """The shard after writing what a request picks, in parts; None if nothing but fill values is left."""

    def encode(self, chunk: AnyArray, run: Runner, *, keep_empty: bool) -> Sequence[Buffer]:
        """A whole shard, in parts."""


class ArrayBytesCodec(Codec):
    """Turns a chunk into bytes; every chain has exactly one."""

    @abstractmethod
    def check(self, spec: ArraySpec) -> None:
        """Raise `MetadataError` if the chunk does not suit this codec."""

    @abstractmethod
    def encoded_size(self, spec: ArraySpec) -> int | None:
        """The exact number of bytes, or None if it depends on the values."""

    def evolve(self, spec: ArraySpec) -> Self:
        """Complete what depends on the element size, when an array is created."""
        return self

    def encoded_bound(self, spec: ArraySpec) -> int:
        """No honest encoding is longer than this."""
        size = self.encoded_size(spec)
        return size if size is not None else 4 * prod(spec.shape) * spec.dtype.numpy.itemsize + (1 << 20)

    def is_variable(self, spec: ArraySpec) -> bool:
        """Whether elements have any length, so that only a setting bounds the bytes."""
        return False

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """No honest encoding that begins like this is longer; raises `CodecError` if none does begin so."""
        return self.encoded_bound(spec)

    def layout(self, spec: ArraySpec) -> np.dtype[Any] | None:
        """The stored type, if the bytes are the elements in C order and nothing else."""
        return None

    def shard(self, spec: ArraySpec, order: tuple[int, ...]) -> Shard | None:
        """For codecs that store inner chunks: access to parts of a chunk, whose axes come in this order here."""
        return None

    @abstractmethod
    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """The chunk as bytes."""

    @abstractmethod
    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """The chunk; may be a read-only view of `raw`. Raises `CodecError` if the bytes are not right."""


class BytesBytesCodec(Codec):
    """Turns bytes into other bytes: compressors and checksums."""

    decode_work: ClassVar[int] = 1
    encode_work: ClassVar[int] = 1
    """About how long it takes without the interpreter, as a multiple of copying the bytes: threads pay from some on."""
    can_start: ClassVar[bool] = False
    """Whether `decode_start` ever does anything."""

    def evolve(self, itemsize: int) -> Self:
        """Complete what depends on the element size, when a chain is made."""
        return self

    def encoded_size(self, nbytes: int) -> int | None:
        """The exact length after encoding `nbytes`, or None if it depends on the bytes."""
        return None

    @abstractmethod
    def encoded_bound(self, nbytes: int) -> int:
        """No honest encoding of `nbytes` is longer than this."""

    @abstractmethod
    def encode(self, raw: Buffer) -> Buffer:
        """The encoded bytes."""

    @abstractmethod
    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """The decoded bytes, which may be a view of `raw` or of this thread's scratch.

        Raises `CodecError` for damaged bytes, bytes left over, or more than `limit` bytes of output,
        and never allocates much more than `limit`.
        """

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """At most about `most` decoded bytes, of what may be only the beginning of an encoding.

        None if that takes all of it. Raises `CodecError` if no encoding begins like this.
        """
        return None

    def decode_start(self, raw: Buffer, size: int, wanted: int) -> Buffer | None:
        """At least the first `wanted` bytes of a value of `size`; None if that takes about as much as all of them.

        `raw` may be changed meanwhile, if it can be written to.
        """
        return None

    def decode_into(self, raw: Buffer, out: memoryview) -> None:
        """Fill `out` exactly; raises `CodecError` if the decoded bytes are not as long as `out`."""
        from zellige.errors import CodecError

        decoded = self.decode(raw, len(out))
        if len(decoded) != len(out):
            raise CodecError(f"{self.name}: {len(out)} bytes expected, {len(decoded)} found")
        out[:] = decoded

    # Many small values at once: codecs that can do them in one call of their library override these.

    def room(self, nbytes: int, count: int = 1) -> int:
        """How much memory `encode_many` is to be given for so many values that have so many bytes in all."""
        return 0

    def encode_many(self, flat: memoryview, sizes: Sequence[int], into: memoryview) -> list[Buffer]:
        """Values that lie one after the other, encoded; the results may lie in `into`, and depend on nothing else."""
        parts = map(self.encode, consecutive(flat, sizes))
        return [part if isinstance(part, bytes) else bytes(part) for part in parts]

    def decode_many(self, raws: Sequence[Buffer], sizes: Sequence[int]) -> Buffer:
        """Decode values of known sizes, one after the other; the result is valid until this thread decodes again."""
        every = scratch.buffer("many", sum(sizes))
        for raw, part in zip(raws, consecutive(every, sizes), strict=True):
            self.decode_into(raw, part)
        return every

    def decode_rows(self, raw: Buffer, spans: npt.NDArray[np.uint64], rows: memoryview) -> None:
        """Decode the values at some (offset, length) of `raw`, all equally long, one after the other into `rows`."""
        view, size = memoryview(raw), len(rows) // len(spans)
        for k, (start, length) in enumerate(spans.tolist()):
            self.decode_into(view[start : start + length], rows[k * size : (k + 1) * size])


def consecutive(flat: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    """Pieces of these sizes that lie one after the other."""
    return [flat[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]


# -- working --------------------------------------------------------------------------------------


def scratch_for(raw: Buffer, slot: str, nbytes: int) -> memoryview:
    """A buffer of this thread to decode `raw` into, which never is the one that holds `raw`.

    The same codec twice in a chain would otherwise overwrite what it reads.
    """
    found = scratch.buffer(slot, nbytes)
    if isinstance(raw, memoryview) and raw.obj is found.obj:
        return scratch.buffer(slot + "'", nbytes)
    return found


@cache
def library(codec: str, module: str, package: str) -> Any:
    """The module that does a codec's work, imported on first use."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"codec {codec!r} needs {package}: pip install {package}") from error


# -- checking configurations ----------------------------------------------------------------------


def only_keys(name: str, configuration: Mapping[str, JSON], *known: str) -> None:
    """Refuse keys that the codec's schema does not have."""
    if unknown := configuration.keys() - set(known):
        raise MetadataError(
            f"codec {name!r}: unknown configuration {sorted(unknown)}; known: {', '.join(known) or 'none'}",
            field=f"configuration.{min(unknown)}",
        )


def integer(name: str, configuration: Mapping[str, JSON], key: str, low: int, high: int) -> int:
    """A required integer within limits; booleans and floats are not integers."""
    value = configuration.get(key)
    if type(value) is not int or not low <= value <= high:
        found = repr(value) if key in configuration else "nothing"
        raise MetadataError(
            f"codec {name!r}: {key} must be an integer from {low} to {high}, found {found}",
            field=f"configuration.{key}",
        )
    return value


def one_of(name: str, configuration: Mapping[str, JSON], key: str, choices: tuple[Any, ...]) -> Any:
    """A required value out of a few."""
    value = configuration.get(key)
    if value not in choices or isinstance(value, bool) != any(isinstance(c, bool) for c in choices):
        found = repr(value) if key in configuration else "nothing"
        raise MetadataError(
            f"codec {name!r}: {key} must be one of {', '.join(map(repr, choices))}, found {found}",
            field=f"configuration.{key}",
        )
    return value
