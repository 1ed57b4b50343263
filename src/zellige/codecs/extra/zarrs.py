"""`zarrs.squeeze` and `zarrs.vlen_v2`, experimental codecs of zarrs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from zellige.codecs.base import ArrayArrayCodec, ArraySpec
from zellige.codecs.vlen import VLenCodec
from zellige.types import AnyArray, Shape


@dataclass(frozen=True)
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


class VLenV2Codec(VLenCodec):
    """The layout of `vlen-utf8` and `vlen-bytes` under one name for both."""

    name: ClassVar[str] = "zarrs.vlen_v2"
    types: ClassVar[tuple[str, ...]] = ("string", "bytes")
