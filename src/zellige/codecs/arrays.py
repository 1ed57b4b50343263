"""From chunks to plain bytes: `transpose` and `bytes` (spec: Codecs)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArrayBytesCodec, ArraySpec
from zellige.codecs.fields import Absent, as_tuple, tuple_of
from zellige.dtypes.base import check_elements
from zellige.errors import CodecError
from zellige.types import AnyArray, Buffer


def _is_order(axes: tuple[Any, ...]) -> bool:
    return all(type(axis) is int for axis in axes) and sorted(axes) == list(range(len(axes)))


@dataclass(frozen=True)
class TransposeCodec(ArrayArrayCodec):
    """Axis i of the encoded chunk is axis `order[i]` of the chunk."""

    order: Annotated[tuple[int, ...], tuple_of("each axis once, as (1, 0) for two axes", _is_order)]

    name: ClassVar[str] = "transpose"
    is_view: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", as_tuple(self.order))
        super().__post_init__()

    @property
    def permutation(self) -> tuple[int, ...]:
        """The order."""
        return self.order

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The same type, with the axes in order."""
        if len(self.order) != len(spec.shape):
            raise self._refused(
                f"order {list(self.order)} is for {len(self.order)} axes, the chunk has {len(spec.shape)}",
                "configuration.order",
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


@dataclass(frozen=True)
class BytesCodec(ArrayBytesCodec):
    """The elements in C order, without any header.

    `endian` may be None for types whose elements have no byte order, as `uint8`.
    """

    endian: Annotated[Literal["little", "big"] | None, Absent(None)] = "little"

    name: ClassVar[str] = "bytes"

    def check(self, spec: ArraySpec) -> None:
        """Elements have one size, and those of several bytes a byte order."""
        if spec.dtype.codec != self.name:
            raise self._refused(f"elements of {spec.dtype.name} have any length; use {spec.dtype.codec!r}", "name")
        if spec.dtype.endian and self.endian is None:
            raise self._wrong("endian", f"{spec.dtype.name} needs a byte order; give endian 'little' or 'big'")

    def encoded_size(self, spec: ArraySpec) -> int:
        """The elements times their size."""
        return prod(spec.shape) * spec.dtype.numpy.itemsize

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> memoryview:
        """The bytes; a view of the chunk if it is in C order and in the wanted byte order already."""
        layout, storage = self.layout(spec), spec.dtype.storage
        if layout is None and storage is not None:
            return storage.encode(chunk, spec.dtype.numpy, self.endian).data
        ordered = np.asarray(chunk, layout, order="C")
        return ordered.reshape(-1).view(np.uint8).data

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
        elements: AnyArray = np.ndarray(spec.shape, dtype, raw)
        if dtype.kind == "b":
            check_elements(elements)
        return elements

    def layout(self, spec: ArraySpec) -> np.dtype[Any] | None:
        """The type in the stored byte order; None if the bytes are not simply that."""
        dtype, storage = spec.dtype.numpy, spec.dtype.storage
        if storage is not None:
            return dtype if storage.is_plain(self.endian) else None
        return dtype.newbyteorder(self.endian) if spec.dtype.endian and self.endian else dtype
