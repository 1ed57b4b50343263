"""From chunks to plain bytes: the axes (`transpose`, `reshape`, `zarrs.squeeze`), and `bytes` (spec: Codecs)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import prod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from zellige.codecs.base import ArrayArrayCodec, ArrayBytesCodec, ArraySpec
from zellige.codecs.fields import Absent, as_tuples, tuple_of
from zellige.dtypes.base import check_elements
from zellige.errors import CodecError
from zellige.types import AnyArray, Buffer, Shape


def _is_order(axes: tuple[Any, ...]) -> bool:
    return all(type(axis) is int for axis in axes) and sorted(axes) == list(range(len(axes)))


@dataclass(frozen=True)
class TransposeCodec(ArrayArrayCodec):
    """Axis i of the encoded chunk is axis `order[i]` of the chunk."""

    order: Annotated[tuple[int, ...], tuple_of("each axis once, as (1, 0) for two axes", _is_order)]

    name: ClassVar[str] = "transpose"
    is_view: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", as_tuples(self.order))
        super().__post_init__()

    @property
    def permutation(self) -> tuple[int, ...]:
        """The order."""
        return self.order

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return the same type, with the axes in order."""
        if len(self.order) != len(spec.shape):
            raise self._refused(
                f"order {list(self.order)} is for {len(self.order)} axes, the chunk has {len(spec.shape)}",
                "configuration.order",
            )
        return replace(spec, shape=tuple(spec.shape[axis] for axis in self.order))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return a view with the axes in order."""
        return chunk.transpose(self.order)

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return a view with the axes back in their places."""
        return chunk.transpose(_inverse(self.order))


@cache
def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


# -- other shapes for the same elements ------------------------------------------------------------

_MOST_AXES = 64  # that numpy can hold
_EXPECTED = f"at most {_MOST_AXES} positive sizes, lists of input axes, and -1 at most once, as ((0, 1), 3, -1)"


def _are_items(items: tuple[Any, ...]) -> bool:
    return all(map(_is_item, items)) and items.count(-1) <= 1 and len(items) <= _MOST_AXES


def _is_item(item: Any) -> bool:
    if isinstance(item, tuple):
        return all(type(axis) is int and axis >= 0 for axis in item)
    return type(item) is int and (item > 0 or item == -1)


class _Reshaping(ArrayArrayCodec):
    """Gives the chunk a shape that follows from its own."""

    @abstractmethod
    def _encoded_shape(self, shape: Shape) -> Shape: ...

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """Return the same type in the new shape."""
        return replace(spec, shape=self._encoded_shape(spec.shape))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the chunk in the new shape; a view if it is contiguous, or if only axes of length 1 differ."""
        return chunk.reshape(self._encoded_shape(spec.shape))

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """Return the chunk in its own shape; a view if it is contiguous, or if only axes of length 1 differ."""
        return chunk.reshape(spec.shape)


@dataclass(frozen=True)
class SqueezeCodec(_Reshaping):
    """Drops the axes of length 1; one is left if there is no other, as in zarrs."""

    name: ClassVar[str] = "zarrs.squeeze"
    is_view: ClassVar[bool] = True

    def _encoded_shape(self, shape: Shape) -> Shape:
        return tuple(size for size in shape if size != 1) or (1,)


@dataclass(frozen=True)
class ReshapeCodec(_Reshaping):
    """Gives the chunk another shape; the elements stay in C order.

    Each item of `shape` is a size, a tuple of input axes whose sizes are multiplied, or −1, at most once,
    for what remains. Axes suit chunks of different sizes: ((0, 1), 3) fits every chunk whose last axis has
    three elements. Input axes must not be out of order, nor be torn apart by other items.

    Not a view for partial reads: after `transpose`, reshaping must copy.
    """

    shape: Annotated[tuple[int | tuple[int, ...], ...], tuple_of(_EXPECTED, _are_items)]

    name: ClassVar[str] = "reshape"

    def __post_init__(self) -> None:
        super().__post_init__()
        axes = [axis for item in self.shape if isinstance(item, tuple) for axis in item]
        if any(a >= b for a, b in pairwise(axes)):
            raise self._wrong("shape", f"input axes {axes} must increase; use 'transpose' to reorder axes")

    def _encoded_shape(self, shape: Shape) -> Shape:
        sizes = [self._size(item, shape) for item in self.shape]
        total, known = prod(shape), prod(size for size in sizes if size != -1)
        if -1 in sizes and known and total % known == 0:
            sizes[sizes.index(-1)] = total // known
        if -1 in sizes or prod(sizes) != total:
            stated = self.configuration()["shape"]
            raise self._wrong("shape", f"{stated} cannot hold the {total} elements of a chunk of shape {shape}")
        for position, item in enumerate(self.shape):
            if isinstance(item, tuple) and item:
                self._check_place(position, item, sizes, shape)
        return tuple(sizes)

    def _size(self, item: int | tuple[int, ...], shape: Shape) -> int:
        if isinstance(item, int):
            return item
        if item and item[-1] >= len(shape):
            raise self._wrong("shape", f"there is no axis {item[-1]} in a chunk of {len(shape)} axes")
        return prod(shape[axis] for axis in item)

    def _check_place(self, position: int, axes: tuple[int, ...], sizes: list[int], shape: Shape) -> None:
        """Refuse an item unless as many elements come before and after it as before and after its input axes."""
        before, after = prod(sizes[:position]), prod(sizes[position + 1 :])
        if before != prod(shape[: axes[0]]) or after != prod(shape[axes[-1] + 1 :]):
            raise self._wrong(
                "shape",
                f"item {position} stands for input axes {list(axes)} of a chunk of shape {shape}, but is not at their "
                f"place in {tuple(sizes)}",
            )


# -- elements to bytes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class BytesCodec(ArrayBytesCodec):
    """The elements in C order, without any header.

    `endian` may be None for types whose elements have no byte order, as `uint8`.
    """

    endian: Annotated[Literal["little", "big"] | None, Absent(None)] = "little"

    name: ClassVar[str] = "bytes"

    def check(self, spec: ArraySpec) -> None:
        """Refuse elements of any length, and those of several bytes without a byte order."""
        if spec.dtype.codec != self.name:
            raise self._refused(f"elements of {spec.dtype.name} have any length; use {spec.dtype.codec!r}", "name")
        if spec.dtype.endian and self.endian is None:
            raise self._wrong("endian", f"{spec.dtype.name} needs a byte order; give endian 'little' or 'big'")

    def encoded_size(self, spec: ArraySpec) -> int:
        """Return the elements times their size."""
        return prod(spec.shape) * spec.dtype.numpy.itemsize

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> memoryview:
        """Return the bytes; a view of the chunk if it is in C order and in the wanted byte order already."""
        layout, storage = self.layout(spec), spec.dtype.storage
        if layout is None and storage is not None:
            return storage.encode(chunk, spec.dtype.numpy, self.endian).data
        ordered = np.asarray(chunk, layout, order="C")
        return ordered.reshape(-1).view(np.uint8).data

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return a view of `raw`, in the stored byte order."""
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
        """Return the type in the stored byte order; None if the bytes are not simply that."""
        dtype, storage = spec.dtype.numpy, spec.dtype.storage
        if storage is not None:
            return dtype if storage.is_plain(self.endian) else None
        return dtype.newbyteorder(self.endian) if spec.dtype.endian and self.endian else dtype
