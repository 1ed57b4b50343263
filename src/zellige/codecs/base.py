"""The three kinds of codecs. Codecs never see stores: they turn chunks into bytes and back.

Another codec derives from one of the kinds, as a frozen dataclass, and says how to encode and decode.

A codec object is a frozen value that holds a configuration. What depends on the chunk (its shape, its
type, its fill value) comes as an `ArraySpec`, so that one codec serves every chunk shape of an array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from zellige.codecs.fields import as_json, fields_of
from zellige.dtypes import DataType
from zellige.errors import CodecError, MetadataError, ZelligeError
from zellige.settings import config
from zellige.types import JSON, AnyArray, Buffer, Shape

if TYPE_CHECKING:
    from zellige.codecs.sharding import BoundShard

HEAD = 4096
"""How many decoded bytes are looked at before memory is taken for all that may follow."""
EXPANSION = 1 << 15
"""No compressor here makes more bytes out of one: zstd writes a run of 128 KiB as four."""


def variable_limit() -> int:
    """Return the most bytes of a chunk whose elements have any length, before its compressors."""
    limit: int = config.get("codecs.max_variable_chunk_bytes")
    return limit


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """What a codec knows about the chunk in front of it."""

    shape: Shape
    dtype: DataType
    fill: AnyArray
    """The fill value, 0-d. It passes through array-to-array codecs like any other value."""

    def refilled(self, fill: AnyArray, dtype: DataType | None = None) -> ArraySpec:
        """Return the same shape with an encoded fill value, which becomes read-only, and maybe another type."""
        fill.flags.writeable = False
        return ArraySpec(self.shape, dtype or self.dtype, fill)


class Codec(ABC):
    """Any codec: made from a configuration, written back as one.

    Its configuration is what it has as fields of a dataclass, as their annotations state (`zellige.codecs.fields`).
    """

    name: ClassVar[str]
    null_is_absent: ClassVar[bool] = False
    """Whether metadata may say null for a field that is left out."""

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.key)
            if not (value is None and field.optional) and not field.rule.accepts(value):
                raise self._must_be(field.key, field.rule.expected, repr(value))

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from the configuration in metadata; raises `MetadataError` for anything unexpected.

        Parameters
        ----------
        configuration
            The object that metadata has under `configuration`.

        """
        only_keys(cls.name, configuration, *(field.key for field in fields_of(cls)))
        values = {}
        for field in fields_of(cls):
            key, rule = field.key, field.rule
            if key not in configuration and field.absent is MISSING:
                raise cls._must_be(key, rule.expected, "nothing")
            value = rule.read(configuration[key], f"configuration.{key}") if key in configuration else field.absent
            if value is None and key in configuration and field.optional and not cls.null_is_absent:
                raise cls._must_be(key, rule.expected, "null; leave it out instead")
            values[key] = value
        return cls(**values)

    def configuration(self) -> dict[str, JSON]:
        """Return the configuration for metadata, every value explicit."""
        values = ((field.key, getattr(self, field.key)) for field in fields_of(type(self)))
        return {key: as_json(value) for key, value in values if value is not None}

    def to_json(self) -> dict[str, JSON]:
        """Return the object for metadata, with an explicit configuration, which all readers accept."""
        return {"name": self.name, "configuration": self.configuration()}

    def to_dict(self) -> dict[str, JSON]:
        """Return `to_json()`, by the name that it has in zarr-python."""
        return self.to_json()

    @classmethod
    def from_dict(cls, data: Mapping[str, JSON]) -> Self:
        """Return the codec of an object in metadata.

        Parameters
        ----------
        data
            The name and the configuration, as `to_dict` gives them.

        """
        if data.get("name") != cls.name:
            raise MetadataError(f"codec {cls.name!r} expected, found {data.get('name')!r}", field="name")
        return cls.from_configuration(data.get("configuration", {}))

    @classmethod
    def _refused(cls, message: str, field: str = "configuration") -> MetadataError:
        """Return the error for a configuration, or for a chunk that does not suit it."""
        return MetadataError(f"codec {cls.name!r}: {message}", field=field)

    @classmethod
    def _must_be(cls, key: str, expected: str, found: object) -> MetadataError:
        return cls._wrong(key, f"{key} must be {expected}, found {found}")

    @classmethod
    def _wrong(cls, key: str, message: str) -> MetadataError:
        """Return the error for one field of a configuration."""
        return cls._refused(message, f"configuration.{key}")


class ArrayArrayCodec(Codec):
    """Turns a chunk into another array.

    `spec` is what is known of the chunk before `encode`: its shape, its type, and its fill value.
    """

    is_view: ClassVar[bool] = False
    """Whether decoding always gives a view, so that a part of a chunk can be read by itself."""

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """For a codec that only reorders axes: axis i of the encoded chunk is axis `permutation[i]` of the chunk."""
        return None

    @abstractmethod
    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return what the next codec sees; raises `MetadataError` if the chunk does not suit this codec.

        Parameters
        ----------
        spec
            What this codec sees.

        """

    @abstractmethod
    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the encoded array, of the shape and type that `resolve(spec)` says.

        Parameters
        ----------
        chunk
            An array of the shape and type of `spec`.
        spec
            What is known of the chunk.

        """

    @abstractmethod
    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the chunk as it was before `encode`; a view where possible.

        Parameters
        ----------
        chunk
            An array of the shape and type that `resolve(spec)` says.
        spec
            What is known of the chunk before `encode`.

        """


class ArrayBytesCodec(Codec):
    """Turns a chunk into bytes; every chain has exactly one.

    In all methods, `spec` is what is known of the chunk: its shape, its type, and its fill value; `head` is the
    beginning of an encoding; `order` names, for each axis that the codec sees, the axis of the array.
    """

    def check(self, spec: ArraySpec) -> None:
        """Raise `MetadataError` if the chunk does not suit this codec."""

    def encoded_size(self, spec: ArraySpec) -> int | None:
        """Return the exact number of bytes, or None if it depends on the values."""
        return None

    def evolve(self, spec: ArraySpec) -> Self:
        """Complete what depends on the element size, when an array is created."""
        return self

    def encoded_bound(self, spec: ArraySpec) -> int:
        """Return a length that no honest encoding exceeds."""
        size = self.encoded_size(spec)
        return size if size is not None else 4 * prod(spec.shape) * spec.dtype.numpy.itemsize + (1 << 20)

    def is_variable(self, spec: ArraySpec) -> bool:
        """Return whether elements have any length, so that only a setting bounds the bytes."""
        return False

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """Return a length that no honest encoding that begins like this exceeds; `CodecError` if none begins so."""
        return self.encoded_bound(spec)

    def layout(self, spec: ArraySpec) -> np.dtype[Any] | None:
        """Return the stored type, if the bytes are the elements in C order and nothing else."""
        return None

    def shard(self, spec: ArraySpec, order: tuple[int, ...]) -> BoundShard | None:
        """Return access to parts of a chunk, whose axes come in this order here; None unless there are inner chunks."""
        return None

    @abstractmethod
    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """Return the chunk as bytes.

        Parameters
        ----------
        chunk
            An array of the shape and type of `spec`, in any layout.
        spec
            What is known of the chunk.

        """

    @abstractmethod
    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return the chunk; may be a read-only view of `raw`. Raises `CodecError` if the bytes are not right.

        Parameters
        ----------
        raw
            The bytes, at most `encoded_bound(spec)` of them. Whatever they say is checked first.
        spec
            What is known of the chunk.

        """


class BytesBytesCodec(Codec):
    """Turns bytes into other bytes: compressors and checksums.

    In all methods, `itemsize` is the size of an element in bytes, `nbytes` the length before `encode`, and `most` how
    many decoded bytes are enough.
    """

    overhead: ClassVar[int | None] = None
    """How many bytes encoding adds, if that is always the same number."""

    def evolve(self, itemsize: int) -> Self:
        """Complete what depends on the element size, when a chain is made."""
        return self

    def encoded_size(self, nbytes: int) -> int | None:
        """Return the exact length after encoding `nbytes`, or None if it depends on the bytes."""
        return None if self.overhead is None else nbytes + self.overhead

    def encoded_bound(self, nbytes: int) -> int:
        """Return a length that no honest encoding exceeds; generous, since other writers may cut it into pieces."""
        return 2 * nbytes + 4096 if self.overhead is None else nbytes + self.overhead

    @abstractmethod
    def encode(self, raw: Buffer) -> Buffer:
        """Return the encoded bytes.

        Parameters
        ----------
        raw
            Bytes of any length.

        """

    @abstractmethod
    def decode(self, raw: Buffer, limit: int) -> Buffer:
        """Return the decoded bytes, which may be a view of `raw`.

        Raises `CodecError` for damaged bytes, bytes left over, or more than `limit` bytes of output,
        and never allocates much more than `limit`.

        Parameters
        ----------
        raw
            The encoded bytes.
        limit
            The most bytes that there can be before `encode`.

        """

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """Return at most about `most` decoded bytes of `raw`, which may be only the beginning of an encoding.

        None if that takes all of it. Raises `CodecError` if no encoding begins like this.
        """
        return None


# -- libraries ------------------------------------------------------------------------------------


@cache
def library(codec: str, module: str, package: str) -> Any:
    """Return the module that does a codec's work, imported on first use."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"codec {codec!r} needs {package}: pip install {package}") from error
    except ImportError as error:
        raise ImportError(f"codec {codec!r} needs {package}, which is there but cannot be loaded: {error}") from error


class LibraryCall:
    """A context in which a library works on a chunk: whatever it raises is a `CodecError` that begins with `words`."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ImportError | MemoryError | ZelligeError):
            raise CodecError(f"{self._words}: {type(error).__name__}: {error}") from error


# -- checking configurations ----------------------------------------------------------------------


def only_keys(name: str, configuration: Mapping[str, JSON], *known: str) -> None:
    """Refuse keys that the codec's schema does not have."""
    if unknown := configuration.keys() - set(known):
        raise MetadataError(
            f"codec {name!r}: unknown configuration {sorted(unknown)}; known: {', '.join(known) or 'none'}",
            field=f"configuration.{min(unknown)}",
        )
