"""The three kinds of codecs. Codecs never see stores: they turn chunks into bytes and back.

A codec object is a frozen value that holds a configuration. What depends on the chunk (its shape, its
type, its fill value) comes as an `ArraySpec`, so that one codec serves every chunk shape of an array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np

from zellige import scratch
from zellige.dtypes import DataType
from zellige.errors import MetadataError
from zellige.types import JSON, AnyArray, Buffer, Shape


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
    @abstractmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration; raises `MetadataError` for anything unexpected."""

    @abstractmethod
    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document, every value explicit."""

    def to_json(self) -> dict[str, JSON]:
        """The object for a document's `codecs`; always with a configuration, which all readers accept.

        An empty configuration is left out: no reader needs it.
        """
        configuration = self.configuration()
        return {"name": self.name, **({"configuration": configuration} if configuration else {})}


class ArrayArrayCodec(Codec):
    """Turns a chunk into another array."""

    is_view: ClassVar[bool] = False
    """Whether decoding always gives a view, so that a part of a chunk can be read by itself."""

    @abstractmethod
    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """What the next codec sees; raises `MetadataError` if the chunk does not suit this codec."""

    @abstractmethod
    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The encoded array, of the shape and type that `resolve(spec)` says."""

    @abstractmethod
    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The chunk as it was before `encode`; a view where possible."""


class ArrayBytesCodec(Codec):
    """Turns a chunk into bytes; every chain has exactly one."""

    @abstractmethod
    def check(self, spec: ArraySpec) -> None:
        """Raise `MetadataError` if the chunk does not suit this codec."""

    @abstractmethod
    def encoded_size(self, spec: ArraySpec) -> int | None:
        """The exact number of bytes, or None if it depends on the values."""

    def layout(self, spec: ArraySpec) -> np.dtype[Any] | None:
        """The stored type, if the bytes are the elements in C order and nothing else."""
        return None

    @abstractmethod
    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """The chunk as bytes."""

    @abstractmethod
    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """The chunk; may be a read-only view of `raw`. Raises `CodecError` if the bytes are not right."""


class BytesBytesCodec(Codec):
    """Turns bytes into other bytes: compressors and checksums."""

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

    def decode_into(self, raw: Buffer, out: memoryview) -> None:
        """Fill `out` exactly; raises `CodecError` if the decoded bytes are not as long as `out`."""
        from zellige.errors import CodecError

        decoded = self.decode(raw, len(out))
        if len(decoded) != len(out):
            raise CodecError(f"{self.name}: {len(out)} bytes expected, {len(decoded)} found")
        out[:] = decoded


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
