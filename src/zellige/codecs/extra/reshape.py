"""Codecs that change the shape of a chunk and nothing else: `reshape` and `zarrs.squeeze`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, Self

from zellige.codecs.base import ArrayArrayCodec, ArraySpec, only_keys
from zellige.errors import MetadataError
from zellige.types import JSON, AnyArray, Shape

_MOST_AXES = 64
"""What numpy can hold."""


@dataclass(frozen=True, slots=True)
class ReshapeCodec(ArrayArrayCodec):
    """Gives the chunk another shape; the elements stay in C order.

    Each item of `shape` is a size, a tuple of input axes whose sizes are multiplied, or −1, at most once,
    for what remains. Axes suit chunks of different sizes: ((0, 1), 3) fits every chunk whose last axis has
    three elements. Input axes must not be out of order, nor be torn apart by other items.

    Not a view for partial reads: after `transpose`, reshaping must copy.
    """

    shape: tuple[int | tuple[int, ...], ...]

    name: ClassVar[str] = "reshape"

    def __post_init__(self) -> None:
        items: Any = self.shape
        if not isinstance(items, tuple) or not all(map(_is_item, items)) or items.count(-1) > 1:
            raise _bad(
                f"shape must hold positive sizes, lists of input axes, and -1 at most once, found {items!r}; "
                "an example is ((0, 1), 3, -1)"
            )
        if len(items) > _MOST_AXES:
            raise _bad(f"shape has {len(items)} axes, at most {_MOST_AXES} can be held")
        axes = [axis for item in items if isinstance(item, tuple) for axis in item]
        if any(a >= b for a, b in pairwise(axes)):
            raise _bad(f"input axes {axes} must increase; use 'transpose' to reorder axes")

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration."""
        only_keys(cls.name, configuration, "shape")
        shape = configuration.get("shape")
        if not isinstance(shape, list | tuple):
            raise _bad(f"shape must be a list, found {shape!r}")
        return cls(tuple(tuple(item) if isinstance(item, list) else item for item in shape))

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        return {"shape": [list(item) if isinstance(item, tuple) else item for item in self.shape]}

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The same type in the new shape."""
        return replace(spec, shape=self._encoded_shape(spec.shape))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The chunk in the new shape; a view if it is contiguous."""
        return chunk.reshape(self._encoded_shape(spec.shape))

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """The chunk in its own shape; a view if it is contiguous."""
        return chunk.reshape(spec.shape)

    def _encoded_shape(self, shape: Shape) -> Shape:
        sizes = [self._size(item, shape) for item in self.shape]
        total, known = prod(shape), prod(size for size in sizes if size != -1)
        if -1 in sizes and known and total % known == 0:
            sizes[sizes.index(-1)] = total // known
        if -1 in sizes or prod(sizes) != total:
            raise _bad(f"{self.configuration()['shape']} cannot hold the {total} elements of a chunk of shape {shape}")
        for position, item in enumerate(self.shape):
            if isinstance(item, tuple) and item:
                _check_in_place(position, item, sizes, shape)
        return tuple(sizes)

    def _size(self, item: int | tuple[int, ...], shape: Shape) -> int:
        if isinstance(item, int):
            return item
        if item and item[-1] >= len(shape):
            raise _bad(f"there is no axis {item[-1]} in a chunk of {len(shape)} axes")
        return prod(shape[axis] for axis in item)


def _check_in_place(position: int, axes: tuple[int, ...], sizes: list[int], shape: Shape) -> None:
    """Refuse an item whose elements are not those of its input axes.

    As many elements must come before and after it as before and after the axes.
    """
    before, after = prod(sizes[:position]), prod(sizes[position + 1 :])
    if before != prod(shape[: axes[0]]) or after != prod(shape[axes[-1] + 1 :]):
        raise _bad(
            f"item {position} stands for input axes {list(axes)} of a chunk of shape {shape}, but is not at their "
            f"place in {tuple(sizes)}"
        )


def _is_item(item: Any) -> bool:
    if isinstance(item, tuple):
        return all(type(axis) is int and axis >= 0 for axis in item)
    return type(item) is int and (item > 0 or item == -1)


def _bad(message: str) -> MetadataError:
    return MetadataError(f"codec 'reshape': {message}", field="configuration.shape")


@dataclass(frozen=True, slots=True)
class SqueezeCodec(ArrayArrayCodec):
    """Drops the axes of length 1; one is left if there is no other, as in zarrs."""

    name: ClassVar[str] = "zarrs.squeeze"
    is_view: ClassVar[bool] = True

    def resolve(self, spec: ArraySpec) -> ArraySpec:
        """The same type with fewer axes."""
        return replace(spec, shape=_squeezed(spec.shape))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """A view with fewer axes."""
        return chunk.reshape(_squeezed(spec.shape))

    def decode(self, chunk: AnyArray, spec: ArraySpec) -> AnyArray:
        """A view with all axes; numpy never copies to add or drop axes of length 1, whatever the strides."""
        return chunk.reshape(spec.shape)


def _squeezed(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1) or (1,)
