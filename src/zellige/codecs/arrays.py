"""From chunks to plain bytes: `transpose` and `bytes` (spec: Codecs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, ClassVar, Literal, Self

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArrayBytesCodec, ArraySpec, one_of, only_keys
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray, Buffer


@dataclass(frozen=True, slots=True)
class TransposeCodec(ArrayArrayCodec):
    """Axis i of the encoded chunk is axis `order[i]` of the chunk."""

    order: tuple[int, ...]

    name: ClassVar[str] = "transpose"
    is_view: ClassVar[bool] = True

    def __post_init__(self) -> None:
        order: Any = self.order
        if isinstance(order, list):
            order = tuple(order)
            object.__setattr__(self, "order", order)
        integers = isinstance(order, tuple) and all(type(axis) is int for axis in order)
        if not integers or sorted(self.order) != list(range(len(self.order))):
            raise MetadataError(
                f"codec 'transpose': order must name each axis once, as (1, 0) for two axes, found {order!r}",
                field="configuration.order",
            )

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration."""
        only_keys(cls.name, configuration, "order")
        order = configuration.get("order")
        return cls(tuple(order) if isinstance(order, list | tuple) else order)  # type: ignore[arg-type]

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        return {"order": list(self.order)}

    @property
    def permutation(self) -> tuple[int, ...]:
        """The order."""
        return self.order

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The same type, with the axes in order."""
        if len(self.order) != len(spec.shape):
            raise MetadataError(
                f"codec 'transpose': order {list(self.order)} is for {len(self.order)} axes, "
                f"the chunk has {len(spec.shape)}",
                field="configuration.order",
            )
        return replace(spec, shape=tuple(spec.shape[axis] for axis in self.order))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """A view with the axes in order."""
        return chunk.transpose(self.order)

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """A view with the axes back in their places."""
        return chunk.transpose(_inverse(self.order))


@cache
def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


@dataclass(frozen=True, slots=True)
class BytesCodec(ArrayBytesCodec):
    """The elements in C order, without any header.

    `endian` may be None for types whose elements have no byte order, as `uint8`.
    """

    endian: Literal["little", "big"] | None = "little"

    name: ClassVar[str] = "bytes"

    def __post_init__(self) -> None:
        if self.endian is not None:
            one_of(self.name, {"endian": self.endian}, "endian", ("little", "big"))

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration."""
        only_keys(cls.name, configuration, "endian")
        if "endian" not in configuration:
            return cls(None)
        return cls(one_of(cls.name, configuration, "endian", ("little", "big")))

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document; empty if no byte order was given."""
        return {} if self.endian is None else {"endian": self.endian}

    def check(self, spec: ArraySpec) -> None:
        """Elements have one size, and those of several bytes a byte order."""
        if spec.dtype.codec != self.name:
            raise MetadataError(
                f"codec 'bytes': elements of {spec.dtype.name} have any length; use {spec.dtype.codec!r}", field="name"
            )
        if spec.dtype.endian and self.endian is None:
            raise MetadataError(
                f"codec 'bytes': {spec.dtype.name} needs a byte order; give endian 'little' or 'big'",
                field="configuration.endian",
            )

    def encoded_size(self, spec: ArraySpec) -> int:
        """The elements times their size."""
        return prod(spec.shape) * spec.dtype.numpy.itemsize

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> memoryview:
        """The bytes; a view of the chunk if it is in C order and in the wanted byte order already."""
        layout, storage = self.layout(spec), spec.dtype.storage
        if layout is None and storage is not None:
            return memoryview(storage.encode(chunk, spec.dtype.numpy, self.endian))  # type: ignore[arg-type]
        ordered = np.asarray(chunk, layout, order="C")
        return memoryview(ordered.reshape(-1).view(np.uint8))  # type: ignore[arg-type]

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """A view of `raw`, in the stored byte order."""
        dtype = spec.dtype.numpy  # as in `encoded_size` and `layout`: called for every chunk
        expected = prod(spec.shape) * dtype.itemsize
        if len(raw) != expected:
            raise CodecError(f"bytes: {expected} bytes expected, {len(raw)} found")
        if spec.dtype.storage is not None:
            return spec.dtype.storage.decode(raw, spec.shape, dtype, self.endian)
        if self.endian and spec.dtype.endian:
            dtype = dtype.newbyteorder(self.endian)
        if dtype.kind == "b" and expected and np.frombuffer(raw, np.uint8).max() > 1:
            raise CodecError("bytes: a bool must be stored as 00 or 01")
        return np.ndarray(spec.shape, dtype, raw)

    def layout(self, spec: ArraySpec) -> np.dtype[Any] | None:
        """The type in the stored byte order; None if the bytes are not simply that."""
        dtype, storage = spec.dtype.numpy, spec.dtype.storage
        if storage is not None:
            return dtype if storage.is_plain(self.endian) else None
        return dtype.newbyteorder(self.endian) if spec.dtype.endian and self.endian else dtype
