"""Filters of Zarr v2 for objects: `vlen-array`, `json2` and `msgpack2`, as numcodecs has them (spec: 10.3).

numcodecs allocates what the bytes ask for, and takes lists among the elements for further axes; so what was written
is checked here before it is believed, and put together here.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from zellige.codecs.base import ArraySpec, library, only_keys, variable_limit
from zellige.codecs.vlen import VLenBytesCodec, VLenUTF8Codec, bound_by_lengths
from zellige.dtypes.v2 import filter_type
from zellige.errors import CodecError, MetadataError
from zellige.types import JSON, AnyArray, Buffer, Shape

_WORD = 4  # bytes of a number
_ENCODINGS = ("utf-8", "ascii", "latin-1", "utf-16", "utf-32")  # numcodecs would take a compressor for one, too
_MAX_INDENT = 16


class ObjectFilter(ABC):
    """A filter from an array to bytes, which is the first of its chunk."""

    id: str

    def check(self, spec: ArraySpec) -> None:  # noqa: B027
        """Raise `MetadataError` if the chunk does not suit this filter."""

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """No honest encoding that begins like this is longer; raises `CodecError` if none does begin so."""
        return variable_limit()

    @abstractmethod
    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """The chunk, of the declared type, as bytes."""

    @abstractmethod
    def decode(self, raw: Buffer, spec: ArraySpec, declared: np.dtype[Any]) -> AnyArray:
        """The chunk; raises `CodecError` unless the bytes are exactly one of this shape and type."""


class VLen(ObjectFilter):
    """`vlen-utf8` and `vlen-bytes`, with other filters after them."""

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        self.id = configuration["id"]
        kind = VLenUTF8Codec if self.id == "vlen-utf8" else VLenBytesCodec
        self._codec = kind.from_configuration({key: value for key, value in configuration.items() if key != "id"})

    def check(self, spec: ArraySpec) -> None:
        """The type suits the codec."""
        self._codec.check(spec)

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """As the codec of Zarr v3."""
        return self._codec.bound_by_head(head, spec)

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """As the codec of Zarr v3."""
        return self._codec.encode(chunk, spec)

    def decode(self, raw: Buffer, spec: ArraySpec, declared: np.dtype[Any]) -> AnyArray:
        """As the codec of Zarr v3."""
        return self._codec.decode(raw, spec)


class VLenArray(ObjectFilter):
    """Arrays of one axis, each after its length in bytes; None is an empty one."""

    id = "vlen-array"

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        only_keys(self.id, configuration, "id", "dtype")
        self._dtype = filter_type(configuration["dtype"], "configuration.dtype")

    def _coder(self) -> Any:
        return library(self.id, "numcodecs.vlen", "numcodecs").VLenArray(self._dtype)

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """What the lengths come to, if all of them are there."""
        return bound_by_lengths(self.id, head, prod(spec.shape))

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """The number of elements, then each with its length."""
        raw: Buffer = self._coder().encode(np.array(chunk, object, order="C").reshape(-1))
        return raw

    def decode(self, raw: Buffer, spec: ArraySpec, declared: np.dtype[Any]) -> AnyArray:
        """The arrays, in native byte order."""
        expected, found = prod(spec.shape), int.from_bytes(raw[:_WORD], "little")
        if len(raw) < _WORD * (1 + expected) or found != expected:  # before memory is taken
            raise CodecError(f"{self.id}: {expected} elements expected, {found} found in {len(raw)} bytes")
        items = self._coder().decode(raw).tolist()
        used = _WORD * (1 + expected) + sum(item.nbytes for item in items)
        if used != len(raw):
            raise CodecError(f"{self.id}: {used} bytes expected, {len(raw)} found")
        native = self._dtype.newbyteorder("=")
        arrays = (item.astype(native, copy=False) for item in items)
        return np.fromiter(arrays, object, expected).reshape(spec.shape)


class _Listed(ObjectFilter):
    """A list of the elements, then the type, then the shape."""

    def _rebuilt(self, items: Any, shape: Shape, dtype: np.dtype[Any]) -> AnyArray:
        """The chunk that was written as such a list."""
        if not isinstance(items, list) or len(items) < 2:
            raise CodecError(f"{self.id}: the bytes are no list of elements, a type and a shape")
        *elements, name, size = items
        if (name.decode() if isinstance(name, bytes) else name) != dtype.str or size != list(shape):
            raise CodecError(f"{self.id}: {dtype.str} {list(shape)} expected, {name!r} {size!r} found")
        level: list[Any] = elements if not shape else [elements]
        for length in shape:
            if not all(isinstance(row, list) and len(row) == length for row in level):
                raise CodecError(f"{self.id}: the elements do not have the shape {list(shape)}")
            level = [item for row in level for item in row]
        # Lists and arrays among the elements are elements like any other.
        found = np.fromiter(level, object, len(level)) if dtype.hasobject else np.array(level, dtype)
        if found.shape != (prod(shape),):
            raise CodecError(f"{self.id}: {prod(shape)} elements expected, {found.shape} found")
        return found.reshape(shape)


class Json2(_Listed):
    """JSON."""

    id = "json2"
    _TAIL = re.compile(r'"([^"\\]{1,40})"\s*,\s*\[([0-9,\s]{0,4000})\]\s*\]\s*\Z')

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        options = {key: value for key, value in configuration.items() if key != "id"}
        self._encoding = str(options.get("encoding", "utf-8")).lower()
        indent = options.get("indent")
        if self._encoding not in _ENCODINGS:
            known = ", ".join(_ENCODINGS)
            raise MetadataError(f"codec {self.id!r}: encoding must be one of {known}", field="configuration.encoding")
        if indent is not None and (type(indent) is not int or not 0 <= indent <= _MAX_INDENT):
            raise MetadataError(
                f"codec {self.id!r}: indent must be null or an integer from 0 to {_MAX_INDENT}, found {indent!r}",
                field="configuration.indent",
            )
        self._strict = bool(options.get("strict", True))
        self._codec = library(self.id, "numcodecs.json", "numcodecs").JSON(**options)

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """Any length, if it can be a list."""
        text = bytes(head).decode(self._encoding, "ignore").lstrip()
        if text and text[0] != "[":
            raise CodecError(f"{self.id}: the bytes do not begin with a list")
        return variable_limit()

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """One list."""
        raw: Buffer = self._codec.encode(chunk)
        return raw

    def decode(self, raw: Buffer, spec: ArraySpec, declared: np.dtype[Any]) -> AnyArray:
        """The elements; the end of the text is looked at before all of it is read."""
        text = bytes(raw).decode(self._encoding)
        end = self._TAIL.search(text, max(0, len(text) - 8192))
        if (
            end is None
            or end[1] != declared.str
            or [int(n) for n in end[2].split(",") if n.strip()] != list(spec.shape)
        ):
            raise CodecError(f"{self.id}: the bytes do not end with {declared.str} and {list(spec.shape)}")
        return self._rebuilt(json.loads(text, strict=self._strict), spec.shape, declared)


class MsgPack2(_Listed):
    """MessagePack."""

    id = "msgpack2"

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        only_keys(self.id, configuration, "id", "raw", "use_single_float", "use_bin_type")
        library(self.id, "msgpack", "msgpack")  # which numcodecs does not need for anything else
        options = {key: bool(value) for key, value in configuration.items() if key != "id"}
        self._raw = options.get("raw", False)
        self._codec = library(self.id, "numcodecs.msgpacks", "msgpack").MsgPack(**options)

    def check(self, spec: ArraySpec) -> None:
        """There are axes; otherwise numcodecs cannot write the chunk."""
        if not spec.shape:
            raise MetadataError(f"codec {self.id!r} needs at least one axis", field="name")

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """Any length, if it can be a list."""
        if len(head) and head[0] >> 4 != 9 and head[0] not in (0xDC, 0xDD):
            raise CodecError(f"{self.id}: the bytes do not begin with a list")
        return variable_limit()

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """One list."""
        raw: Buffer = self._codec.encode(chunk)
        return raw

    def decode(self, raw: Buffer, spec: ArraySpec, declared: np.dtype[Any]) -> AnyArray:
        """The elements; the end of the bytes is looked at before all of them are read."""
        msgpack = library(self.id, "msgpack", "msgpack")
        end = msgpack.packb(declared.str) + msgpack.packb(list(spec.shape))
        if bytes(raw[-len(end) :]) != end:
            raise CodecError(f"{self.id}: the bytes do not end with {declared.str} and {list(spec.shape)}")
        return self._rebuilt(msgpack.unpackb(raw, raw=self._raw), spec.shape, declared)


OBJECT_FILTERS: dict[str, type[ObjectFilter]] = {
    "vlen-utf8": VLen,
    "vlen-bytes": VLen,
    "vlen-array": VLenArray,
    "json2": Json2,
    "msgpack2": MsgPack2,
}
"""By their ids."""
