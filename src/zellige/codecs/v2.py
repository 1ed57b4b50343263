"""What only Zarr v2 has: filters of numcodecs between the chunk and its bytes (spec: 10).

Filters see the chunk in the type that the metadata declares, byte order included, and each sees what the one before
made of it. They are run by numcodecs itself, so that whatever they do is right. Unlike there, the number of bytes is
checked before each step, and compressors among the filters are ours, which stop at a limit.

At the end are the two ways between the formats: `v2_config` and `to_v3`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, overload

import numpy as np

from zellige import codecs
from zellige.codecs.base import (
    HEAD,
    ArrayBytesCodec,
    ArraySpec,
    BytesBytesCodec,
    Codec,
    LibraryCall,
    library,
    only_keys,
    variable_limit,
)
from zellige.codecs.blosc import SHUFFLES
from zellige.codecs.numcodecs import CLASSES, CoreCodec
from zellige.codecs.vlen import VLenCodec
from zellige.dtypes import from_numpy
from zellige.dtypes.v2 import CONVERSIONS, V2DataType, as_native, byte_orders, conversion, declared, filter_type
from zellige.errors import CodecError, MetadataError, UnknownCodecError
from zellige.metadata.groups import GroupMetadata
from zellige.metadata.json import Extension
from zellige.metadata.v2 import DIMENSIONS, FILTERS, ArrayV2Metadata, Step, bytes_codec, steps_of
from zellige.metadata.v3 import ArrayV3Metadata
from zellige.types import JSON, AnyArray, Buffer, Shape

_BYTE = np.dtype(np.uint8)
_LONGEST_NUMBER = 16

T = TypeVar("T")


class _Stage(NamedTuple):
    """What is known of an array between two filters."""

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class FiltersCodec(ArrayBytesCodec):
    """The filters of a chunk in Zarr v2, from its elements in their declared type to bytes."""

    dtype: JSON
    filters: tuple[dict[str, JSON], ...]
    declared: np.dtype[Any] = field(repr=False, compare=False)
    first: ArrayBytesCodec | None = field(repr=False, compare=False)
    """For elements of any kind."""
    steps: tuple[_Filter, ...] = field(repr=False, compare=False)

    name: ClassVar[str] = FILTERS

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from what `metadata.v2` says: the declared type and the filters, as the document has them."""
        dtype, filters = configuration["dtype"], tuple(configuration["filters"])
        objects = _OBJECTS.get(filters[0]["id"]) if filters else None
        first = None if objects is None else _made(0, objects, filters[0], declared(dtype))
        steps = [_made(i, _filter, item) for i, item in enumerate(filters) if i or first is None]
        return cls(dtype, filters, declared(dtype), first, tuple(steps))

    def configuration(self) -> dict[str, JSON]:
        """Return the declared type and the filters."""
        return {"dtype": self.dtype, "filters": list(self.filters)}

    def check(self, spec: ArraySpec) -> None:
        """Refuse a filter that does not suit what comes to it."""
        if self.first is not None:
            self.first.check(spec)
        self._stages(spec)

    def encoded_size(self, spec: ArraySpec) -> int | None:
        """Return how many bytes the filters make of a chunk, if that is always the same."""
        last = self._stages(spec)[-1]
        return None if last is None else last.nbytes

    def encoded_bound(self, spec: ArraySpec) -> int:
        """Return the most that the filters make of a chunk; a setting bounds objects, which may have any length."""
        return self._bounds(spec, None, len(self.steps))[-1]

    def is_variable(self, spec: ArraySpec) -> bool:
        """Return whether the elements are objects."""
        return self.first is not None

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """Return the bound of the filter for objects, or what others after it can make of that."""
        return self._bounds(spec, head, len(self.steps))[-1]

    def _bounds(self, spec: ArraySpec, head: Buffer | None, count: int) -> list[int]:
        """Return the most bytes before each of the first `count` steps, and after them, for bytes with this head."""
        stages = self._stages(spec)
        bounds = [self._objects_bound(spec, head, count) if stages[0] is None else stages[0].nbytes]
        for step, stage in zip(self.steps[:count], stages[1 : count + 1], strict=True):
            bounds.append(step.bound(bounds[-1]) if stage is None else stage.nbytes)
        return bounds

    def _objects_bound(self, spec: ArraySpec, head: Buffer | None, count: int) -> int:
        for step in reversed(self.steps[:count]):
            head = None if head is None else step.head(head, HEAD)
        return variable_limit() if head is None or self.first is None else self.first.bound_by_head(head, spec)

    def _stages(self, spec: ArraySpec) -> list[_Stage | None]:
        """Return what is known before each step, and at last of the bytes."""
        stages = [_Stage(spec.shape, self.declared) if self.first is None else None]
        for i, step in enumerate(self.steps, start=self.first is not None):
            try:
                stages.append(step.after(stages[-1]))
            except MetadataError as error:
                raise _at(error, i) from error
        return stages

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """Return the bytes that numcodecs would make of the chunk."""
        # A copy of objects, because numcodecs takes no array that is read-only.
        value: Any = np.array(chunk, self.declared, order="C", copy=True if self.declared.hasobject else None)
        if self.first is not None:
            with LibraryCall(self.first.name):
                value = self.first.encode(value, spec)
        for step, stage in zip(self.steps, self._stages(spec), strict=False):
            with LibraryCall(step.id), np.errstate(all="ignore"):
                value = step.encode(value, stage)
        return value if isinstance(value, bytes) else _as_buffer(value)

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """Return the chunk in native byte order."""
        value: Any = raw
        stages = self._stages(spec)
        for k, step in reversed([*enumerate(self.steps)]):
            _check_size(step.id, value, stages[k + 1])
            known = stages[k]
            most = self._bounds(spec, _as_buffer(value), k + 1)[k] if known is None else known.nbytes
            with LibraryCall(step.id), np.errstate(all="ignore"):
                value = step.decode(value, known, most)
        if self.first is not None:
            with LibraryCall(self.first.name):
                return self.first.decode(_as_buffer(value), spec).astype(spec.dtype.numpy, copy=False)
        _check_size(self.name, value, stages[0])
        if self.declared.hasobject:  # the labels of `categorize`
            with LibraryCall(self.name):
                return np.asarray(value.reshape(spec.shape).astype(spec.dtype.numpy))
        return as_native(np.ndarray(spec.shape, self.declared, _as_bytes(value)), spec.dtype.numpy)


def _made(i: int, make: Callable[..., T], *arguments: Any) -> T:
    """Make a filter; whatever is wrong with its configuration is an error of the metadata."""
    try:
        return make(*arguments)
    except (ImportError, MemoryError):
        raise
    except MetadataError as error:
        raise _at(error, i) from error
    except Exception as error:
        place = f"configuration.filters[{i}]"
        raise MetadataError(f"{place}: {type(error).__name__}: {error}", field=place) from error


def _at(error: MetadataError, i: int) -> MetadataError:
    """Return the same error with the filter's place."""
    place = f"configuration.filters[{i}]"
    rest = error.field.removeprefix("configuration")
    return type(error)(f"{place}: {error}", field=place + rest if rest.startswith(".") else place)


def _as_bytes(value: Any) -> AnyArray:
    """Return what a filter made, as bytes in the order of its memory."""
    array = value if isinstance(value, np.ndarray) else np.frombuffer(value, np.uint8)
    if array.dtype.hasobject:
        raise CodecError("a filter made objects, where there should be bytes")
    return np.ascontiguousarray(array.reshape(-1, order="A")).view(np.uint8)


def _as_buffer(value: Any) -> memoryview:
    return _as_bytes(value).data


def _check_size(name: str, value: Any, stage: _Stage | None) -> None:
    if stage is None:
        return
    found = value.nbytes if isinstance(value, np.ndarray | memoryview) else len(value)
    objects = isinstance(value, np.ndarray) and value.dtype.hasobject
    if found != stage.nbytes or objects != stage.dtype.hasobject:
        raise CodecError(f"{name}: {stage.nbytes} bytes expected, {found} found")


def _options(configuration: Mapping[str, JSON]) -> dict[str, JSON]:
    return {key: value for key, value in configuration.items() if key != "id"}


def _ours(name: str, configuration: Mapping[str, JSON], kind: type[T]) -> T:
    codec = codecs.from_json(name, _options(configuration))
    assert isinstance(codec, kind)
    return codec


# -- filters --------------------------------------------------------------------------------------

_CHECKED = ("fixedscaleoffset", "quantize", "bitround", "packbits")
"""Filters whose parameters are checked by the codecs that Zarr v3 has of them."""


class _Filter:
    """A filter after the chunk has become an array of bytes, or of something else, as numcodecs runs it."""

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        self.id: str = configuration["id"]
        if self.id in _CHECKED:
            codecs.from_json(f"numcodecs.{self.id}", _options(configuration))
        self._types = _types_of(configuration) if self.id in CONVERSIONS else None
        self._codec = _numcodecs(configuration)

    def after(self, stage: _Stage | None) -> _Stage | None:
        """Return what it makes of an array; None if that depends on the values. Raises `MetadataError` if it cannot."""
        if self.id == "bitround":
            return stage
        if self.id == "packbits":
            return None if stage is None else _Stage((1 + -(-stage.nbytes // 8),), _BYTE)
        if self._types is None:
            return None
        before, after = self._types
        if stage is None:
            if before.itemsize > _LONGEST_NUMBER:  # or some bytes could ask for any amount of memory
                raise MetadataError(f"filter {self.id!r} cannot follow filters that make any number of bytes", field="")
            return None
        key = f"configuration.{CONVERSIONS[self.id][0]}"
        if self.id == "categorize" and before != stage.dtype:
            message = f"filter 'categorize' is for {before.str}, the chunk has {stage.dtype.str}"
            raise MetadataError(message, field=key)
        count, rest = divmod(stage.nbytes, before.itemsize)
        if rest:
            message = f"filter {self.id!r}: {stage.nbytes} bytes are no whole number of {before.str}"
            raise MetadataError(message, field=key)
        keeps = self.id in ("astype", "quantize") and before.itemsize == stage.dtype.itemsize
        return _Stage(stage.shape if keeps else (count,), after)

    def bound(self, nbytes: int) -> int:
        """Return the most that it can make of so many bytes."""
        return 4 * nbytes + (1 << 20)

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """See `BytesBytesCodec.head`; None for a filter that is none."""
        return None

    def encode(self, value: Any, stage: _Stage | None) -> Any:
        """Return what follows from an array or bytes."""
        encoded = self._codec.encode(value)
        if self.id == "delta" and self._types is not None:
            before, after = self._types
            narrow = after.itemsize < before.itemsize and after.kind in "iu"
            if narrow and _as_bytes(self._codec.decode(encoded)).data != _as_bytes(value).data:
                raise CodecError(f"there are differences that {after} cannot hold; give a wider astype")
        return encoded

    def decode(self, value: Any, stage: _Stage | None, most: int) -> Any:
        """Return what there was before `encode`; `stage` is what is known of it, `most` how many bytes it can have."""
        return value if self.id == "bitround" else self._codec.decode(value)


def _types_of(configuration: Mapping[str, JSON]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the types that a filter goes between, if it can."""
    name, keys = configuration["id"], CONVERSIONS[configuration["id"]]
    decoded, encoded = conversion(name, configuration, "configuration")
    for key, dtype in zip(keys, (decoded, encoded), strict=True):
        if dtype.kind == "O" and (key, name) != (keys[0], "categorize"):
            raise MetadataError(f"filter {name!r} cannot handle objects", field=f"configuration.{key}")
    if name == "delta" and not {decoded.kind, encoded.kind} <= set("biufcmM"):
        raise MetadataError(f"filter 'delta' is for numbers, not for {decoded}", field="configuration.dtype")
    return decoded, encoded


class _Bytes(_Filter):
    """A codec from bytes to bytes that is followed by one that is not: ours, which knows when to stop."""

    _codec: BytesBytesCodec

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        self.id = configuration["id"]
        options = {"elementsize": 4} if self.id == "shuffle" else {}  # by default
        self._codec = _ours(f"numcodecs.{self.id}", options | {**configuration}, BytesBytesCodec)

    def after(self, stage: _Stage | None) -> _Stage | None:
        size = None if stage is None else self._codec.encoded_size(stage.nbytes)
        return None if size is None else _Stage((size,), _BYTE)

    def encode(self, value: Any, stage: _Stage | None) -> Any:
        return self._codec.evolve(getattr(value, "itemsize", 1)).encode(_as_buffer(value))

    def decode(self, value: Any, stage: _Stage | None, most: int) -> Any:
        return self._codec.decode(_as_buffer(value), most)

    def bound(self, nbytes: int) -> int:
        return self._codec.encoded_bound(nbytes)

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        return self._codec.head(raw, most)


class _Numbers(_Filter):
    """A compressor of numbers that other filters have made: ours, which checks the bytes."""

    _codec: ArrayBytesCodec

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        self.id = configuration["id"]
        self._codec = _ours(f"numcodecs.{self.id}", configuration, ArrayBytesCodec)

    def after(self, stage: _Stage | None) -> None:
        self._codec.check(self._spec(stage))

    def _spec(self, stage: _Stage | None) -> ArraySpec:
        if stage is None or not stage.dtype.isnative:
            raise MetadataError(f"filter {self.id!r} needs numbers in native byte order", field="name")
        dtype = from_numpy(stage.dtype)
        return ArraySpec(stage.shape, dtype, dtype.zero)

    def encode(self, value: Any, stage: _Stage | None) -> Any:
        spec = self._spec(stage)
        return self._codec.encode(value.view(spec.dtype.numpy).reshape(spec.shape), spec)

    def decode(self, value: Any, stage: _Stage | None, most: int) -> Any:
        return self._codec.decode(_as_buffer(value), self._spec(stage))


def _filter(configuration: Mapping[str, JSON]) -> _Filter:
    ours = CLASSES.get(f"numcodecs.{configuration['id']}", Codec)
    if issubclass(ours, BytesBytesCodec):
        return _Bytes(configuration)
    return (_Numbers if issubclass(ours, ArrayBytesCodec) else _Filter)(configuration)


def _numcodecs(configuration: Mapping[str, JSON]) -> Any:
    """Return the codec that numcodecs has for a configuration."""
    name = configuration["id"]
    registry = library(name, "numcodecs.registry", "numcodecs")
    if name == "msgpack2":
        library(name, "msgpack", "msgpack")
    if name not in registry.codec_registry and name not in registry.entries:
        hint = "install the package that registers it with numcodecs"
        raise UnknownCodecError(f"codec {name!r} is not known; {hint}", field="id")
    return registry.get_codec(dict(configuration))


# -- filters for objects --------------------------------------------------------------------------

_ENCODINGS = ("utf-8", "ascii", "latin-1", "utf-16", "utf-32")  # numcodecs would take a compressor for one, too
_MAX_INDENT = 16


class _VLenArray(VLenCodec):
    """Arrays of one axis, each after its length in bytes; None is an empty one."""

    name = "vlen-array"
    types = ("object",)

    def __init__(self, configuration: Mapping[str, JSON], _: np.dtype[Any]) -> None:
        only_keys(self.name, configuration, "id", "dtype")
        self._dtype = filter_type(configuration["dtype"], "configuration.dtype")

    def _coder(self, spec: ArraySpec) -> Any:
        return library(self.name, "numcodecs.vlen", "numcodecs").VLenArray(self._dtype)

    def _content_size(self, items: list[AnyArray]) -> int:
        return sum(item.nbytes for item in items)

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        items, native = super().decode(raw, spec), self._dtype.newbyteorder("=")
        arrays = (item.astype(native, copy=False) for item in items.reshape(-1).tolist())
        return np.fromiter(arrays, object, items.size).reshape(spec.shape)


class _Listed(ArrayBytesCodec):
    """A list of the elements, then the type, then the shape.

    numcodecs takes lists among the elements for further axes; so what was written is checked here before it is
    believed, and put together here.
    """

    _codec: Any

    def __init__(self, declared: np.dtype[Any]) -> None:
        self._declared = declared

    def encoded_bound(self, spec: ArraySpec) -> int:
        return variable_limit()

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        raw: Buffer = self._codec.encode(chunk)
        return raw

    @abstractmethod
    def _begins(self, head: bytes) -> bool:
        """Return whether a list can begin like this."""

    @abstractmethod
    def _loaded(self, raw: bytes) -> Any: ...

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        if len(head) and not self._begins(bytes(head)):
            raise CodecError(f"{self.name}: the bytes do not begin with a list")
        return variable_limit()

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        shape, dtype, items = spec.shape, self._declared, self._loaded(bytes(raw))
        if not isinstance(items, list) or len(items) < 2:
            raise CodecError(f"{self.name}: the bytes are no list of elements, a type and a shape")
        *elements, name, size = items
        if (name.decode() if isinstance(name, bytes) else name) != dtype.str or size != list(shape):
            raise CodecError(f"{self.name}: {dtype.str} {list(shape)} expected, {name!r} {size!r} found")
        level: list[Any] = elements if not shape else [elements]
        for length in shape:
            if not all(isinstance(row, list) and len(row) == length for row in level):
                raise CodecError(f"{self.name}: the elements do not have the shape {list(shape)}")
            level = [item for row in level for item in row]
        # Lists and arrays among the elements are elements like any other.
        found = np.fromiter(level, object, len(level)) if dtype.hasobject else np.array(level, dtype)
        if found.shape != (prod(shape),):
            raise CodecError(f"{self.name}: {prod(shape)} elements expected, {found.shape} found")
        return found.reshape(shape)


class _Json2(_Listed):
    name = "json2"

    def __init__(self, configuration: Mapping[str, JSON], declared: np.dtype[Any]) -> None:
        super().__init__(declared)
        options = _options(configuration)
        self._encoding = str(options.get("encoding", "utf-8")).lower()
        indent = options.get("indent")
        if self._encoding not in _ENCODINGS:
            raise self._must_be("encoding", f"one of {', '.join(_ENCODINGS)}", repr(self._encoding))
        if indent is not None and (type(indent) is not int or not 0 <= indent <= _MAX_INDENT):
            raise self._must_be("indent", f"null or an integer from 0 to {_MAX_INDENT}", repr(indent))
        self._strict = bool(options.get("strict", True))
        self._codec = library(self.name, "numcodecs.json", "numcodecs").JSON(**options)

    def _begins(self, head: bytes) -> bool:
        text = head.decode(self._encoding, "ignore").lstrip()
        return not text or text[0] == "["

    def _loaded(self, raw: bytes) -> Any:
        return json.loads(raw.decode(self._encoding), strict=self._strict)


class _MsgPack2(_Listed):
    name = "msgpack2"

    def __init__(self, configuration: Mapping[str, JSON], declared: np.dtype[Any]) -> None:
        super().__init__(declared)
        only_keys(self.name, configuration, "id", "raw", "use_single_float", "use_bin_type")
        self._msgpack = library(self.name, "msgpack", "msgpack")
        options = {key: bool(value) for key, value in _options(configuration).items()}
        self._raw = options.get("raw", False)
        self._codec = library(self.name, "numcodecs.msgpacks", "msgpack").MsgPack(**options)

    def check(self, spec: ArraySpec) -> None:
        if not spec.shape:  # numcodecs cannot write the chunk
            raise MetadataError(f"codec {self.name!r} needs at least one axis", field="name")

    def _begins(self, head: bytes) -> bool:
        return head[0] >> 4 == 9 or head[0] in (0xDC, 0xDD)

    def _loaded(self, raw: bytes) -> Any:
        return self._msgpack.unpackb(raw, raw=self._raw)


def _variable(configuration: Mapping[str, JSON], _: np.dtype[Any]) -> ArrayBytesCodec:
    """Return `vlen-utf8` or `vlen-bytes` of Zarr v3, with other filters after them."""
    return _ours(configuration["id"], configuration, ArrayBytesCodec)


_OBJECTS: dict[str, Callable[[Mapping[str, JSON], np.dtype[Any]], ArrayBytesCodec]] = {
    "vlen-utf8": _variable,
    "vlen-bytes": _variable,
    "vlen-array": _VLenArray,
    "json2": _Json2,
    "msgpack2": _MsgPack2,
}


# -- what users give ------------------------------------------------------------------------------

_SHARED = ("blosc", "zstd", "gzip", "crc32c", "vlen-utf8", "vlen-bytes")
"""Codecs that Zarr v2 and v3 have by the same name."""
_NEEDED = {"astype": "decode_dtype", "fixedscaleoffset": "dtype", "quantize": "dtype"}
"""What numcodecs needs in a configuration, and a chain derives from the chunk."""
_HINT = "give one of numcodecs, its configuration as {'id': …}, or its name"


def v2_config(value: Any) -> dict[str, JSON]:
    """Read what users give for a filter or the compressor of a v2 array; return it as its metadata has it.

    >>> v2_config("gzip"), v2_config({"id": "delta", "dtype": "<i4"})
    ({'id': 'gzip', 'level': 5}, {'id': 'delta', 'dtype': '<i4'})
    """
    if isinstance(value, Codec):
        found = _of_codec(value)
    elif isinstance(value, str):
        found = _of_name(value.removeprefix("numcodecs."))
    elif isinstance(value, Mapping):
        found = dict(value) if "id" in value else _of_codec(codecs.parse_codec(value))
    elif hasattr(value, "get_config") and not isinstance(value, type):
        found = value.get_config()
    else:
        raise MetadataError(f"{value!r} is no codec of Zarr v2; {_HINT}", field="codecs")
    return _as_json(found)


def _of_codec(codec: Codec) -> dict[str, JSON]:
    """Return one of our codecs, if Zarr v2 has it."""
    name, options = codec.name, codec.configuration()
    if name.startswith("numcodecs."):
        name = name.removeprefix("numcodecs.")
        if (key := _NEEDED.get(name)) and key not in options:
            raise MetadataError(f"Zarr v2 needs the {key} of {name!r}", field=f"configuration.{key}")
    elif name not in _SHARED:
        raise MetadataError(f"Zarr v2 does not know the codec {name!r}; {_HINT}", field="codecs")
    elif name == "blosc":
        options |= {"shuffle": SHUFFLES.index(options["shuffle"])}
        del options["typesize"]  # that of the elements, always
    return {"id": name, **options}


def _of_name(name: str) -> dict[str, JSON]:
    if name in _SHARED:
        found = _of_codec(codecs.parse_codec(name))
        return found | {"checksum": False} if name == "zstd" else found
    if f"numcodecs.{name}" in CLASSES:
        return _of_codec(codecs.parse_codec(f"numcodecs.{name}"))
    try:
        config: dict[str, JSON] = _numcodecs({"id": name}).get_config()
    except TypeError as error:
        raise MetadataError(f"codec {name!r} needs a configuration: {error}", field="codecs") from error
    return config


def _as_json(found: dict[str, JSON]) -> dict[str, JSON]:
    if not isinstance(found.get("id"), str):
        raise MetadataError(f"the configuration of a codec of Zarr v2 has an id, found {found!r}", field="codecs")
    try:
        plain: dict[str, JSON] = json.loads(json.dumps(found, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise MetadataError(f"codec {found['id']!r} has no form in JSON: {error}", field="codecs") from error
    if plain["id"] == "zstd" and plain.get("checksum") is False:
        del plain["checksum"]  # the default, and TensorStore does not know the word
    return plain


# -- from Zarr v2 to v3 (spec: 10.4) ---------------------------------------------------------------


class NotConvertibleError(MetadataError):
    """Zarr v3 cannot say what metadata of Zarr v2 says; `field` is the part of it that it cannot."""


@overload
def to_v3(metadata: ArrayV2Metadata) -> ArrayV3Metadata: ...
@overload
def to_v3(metadata: GroupMetadata) -> GroupMetadata: ...
def to_v3(metadata: ArrayV2Metadata | GroupMetadata) -> ArrayV3Metadata | GroupMetadata:
    """Return the metadata of Zarr v3 for the same node; raises `NotConvertibleError` if there is none.

    The names of axes that xarray keeps among the attributes become `dimension_names`, where it looks for them in
    Zarr v3. Fields that Zarr v2 does not define are left out, and so is the consolidated metadata of a group.

    A chunk of Zarr v2 goes through one list: filters and a compressor, each of which takes whatever bytes or elements
    it gets for what it likes. A chain of Zarr v3 is stricter: codecs from arrays to arrays, one from an array to bytes,
    codecs from bytes to bytes, and every array has the type that the codec before has made. What does not fit is
    refused.

    >>> document = {"zarr_format": 2, "shape": [9], "chunks": [4], "dtype": ">i2", "fill_value": None, "order": "C"}
    >>> found = to_v3(ArrayV2Metadata.from_documents({".zarray": document | {"compressor": {"id": "zlib"}}}))
    >>> [codec.to_json() for codec in found.codecs]  # doctest: +NORMALIZE_WHITESPACE
    [{'name': 'bytes', 'configuration': {'endian': 'big'}},
     {'name': 'numcodecs.zlib', 'configuration': {}}]
    >>> to_v3(GroupMetadata({"title": "tides"}, zarr_format=2)).to_dict()
    {'zarr_format': 3, 'node_type': 'group', 'attributes': {'title': 'tides'}}
    """
    if isinstance(metadata, GroupMetadata):
        return GroupMetadata(dict(metadata.attributes), 3)
    _check_type(metadata)
    names = metadata.dimension_names
    attributes = {key: value for key, value in metadata.attributes.items() if names is None or key != DIMENSIONS}
    return ArrayV3Metadata(
        shape=metadata.shape,
        data_type=metadata.data_type,
        chunk_grid=metadata.chunk_grid,
        chunk_key_encoding=metadata.chunk_key_encoding,
        fill_value=metadata.fill_value,
        codecs=tuple(_codecs(metadata)),
        attributes=attributes,
        dimension_names=names or None,
    )


def _check_type(metadata: ArrayV2Metadata) -> None:
    if not isinstance(metadata.data_type, V2DataType):
        return
    if metadata.data_type.numpy.hasobject:
        codec = metadata.filters[0]["id"] if metadata.filters else None
        raise _refused("dtype", f"of objects Zarr v3 has strings and bytes only, not what {codec!r} is for")
    raise _refused("dtype", "Zarr v3 has no structs with fields that are arrays")


def _refused(place: str, reason: str) -> NotConvertibleError:
    return NotConvertibleError(f"{place}: {reason}", field=place)


def _codecs(metadata: ArrayV2Metadata) -> list[Extension]:
    """Return the same chain, by the names that Zarr v3 has for its codecs."""
    found: list[Extension] = []
    for codec in metadata.codecs:
        if codec.name == FILTERS:
            found += _filtered(metadata, codec.configuration["filters"])
        else:
            found.append(_renamed(codec, metadata.data_type.item_size or 1))
    return found


def _renamed(codec: Extension, itemsize: int) -> Extension:
    """Return a codec by its name in Zarr v3, that of the specification if it is there.

    Where blosc sees elements of another size than `itemsize`, that of the array's, its configuration says so.
    """
    name, given = codec.name.removeprefix("numcodecs."), _given(codec.configuration)
    if name == "crc32c" and given.get("location", "end") == "end":
        return Extension("crc32c", {})
    kind: type[Codec] = CLASSES.get(codec.name, Codec)
    if not issubclass(kind, CoreCodec):
        return Extension(codec.name, given)
    try:
        core = kind.from_configuration(given).evolve(itemsize).core()
    except MetadataError as error:
        raise _refused(error.field.replace("configuration", name, 1), str(error)) from error
    return Extension(core.name, core.configuration())


def _given(configuration: dict[str, JSON]) -> dict[str, JSON]:
    """Return a configuration without the nulls by which numcodecs says that something is not given."""
    return {key: value for key, value in configuration.items() if value is not None}


# -- filters to codecs ----------------------------------------------------------------------------


def _filtered(metadata: ArrayV2Metadata, items: list[dict[str, JSON]]) -> list[Extension]:
    """Return the codecs for filters before those from bytes to bytes."""
    filters = steps_of(metadata.filters, metadata.compressor)[: len(items)]
    stored = declared(metadata.dtype)
    found: list[Extension] = []
    for i, step in enumerate(filters):
        codec = Extension(f"numcodecs.{step.id}", _given(step.configuration))
        if issubclass(CLASSES.get(codec.name, Codec), ArrayBytesCodec) and i == len(filters) - 1:
            if not stored.isnative:
                raise _refused(step.place, f"{step.id!r} in Zarr v3 knows no byte order, the elements are {stored.str}")
            return [*found, codec]
        stored = _after(step, stored, filters[i + 1 :])
        found.append(codec)
    orders = byte_orders(stored)
    if len(orders) > 1:
        raise _refused("dtype", "fields have different byte orders, and Zarr v3 has one for all of them")
    return [*found, bytes_codec(orders)]


def _after(step: Step, stored: np.dtype[Any], others: list[Step]) -> np.dtype[Any]:
    """Return the type that a filter makes of elements of another, byte order included."""
    if step.id in CONVERSIONS and step.id != "categorize":
        return _converted(step, stored)
    if step.id == "bitround":
        return stored
    if step.id == "packbits":
        if stored.kind != "b":
            raise _refused(step.place, f"'packbits' in Zarr v3 takes bools only, the elements are {stored.str}")
        return np.dtype(np.uint8)
    if others:
        reason = f"{step.id!r} does not make an array, so {others[0].id!r} cannot follow it in Zarr v3"
        raise _refused(step.place, reason)
    raise _refused(step.place, f"Zarr v3 has no codec for {step.id!r}")


def _converted(step: Step, stored: np.dtype[Any]) -> np.dtype[Any]:
    decoded, encoded = conversion(step.id, step.configuration, step.place)
    if decoded != stored:
        # numcodecs would look at the bytes as if they were of that type.
        reason = f"{step.id!r} is for {decoded.str}, the elements are {stored.str}, and Zarr v3 does not reinterpret"
        raise _refused(f"{step.place}.{CONVERSIONS[step.id][0]}", reason)
    for dtype in (decoded, encoded):
        if dtype.kind not in "biufc":
            raise _refused(step.place, f"{step.id!r} in Zarr v3 is for numbers, not for {dtype.str}")
    if step.id == "delta" and _sums_otherwise(decoded, encoded):
        raise _refused(step.place, f"'delta' in Zarr v3 does not sum {encoded.str} by way of floats to {decoded.str}")
    return encoded


def _sums_otherwise(decoded: np.dtype[Any], encoded: np.dtype[Any]) -> bool:
    """Return whether numcodecs sums differences to integers by way of floats, which are rounded and never wrap."""
    if decoded.kind not in "iu":
        return False
    return encoded.kind not in "iu" or (encoded.itemsize == 8 and np.result_type(decoded, encoded).kind == "f")
