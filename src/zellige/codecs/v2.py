"""What only Zarr v2 has: filters of numcodecs between the chunk and its bytes (spec: 10).

Filters see the chunk in the type that the document declares, byte order included, and each sees what the one before
made of it. They are run by numcodecs itself, so that whatever they do is right. Other than there, every step knows
how many bytes it must get before it is run, and compressors among the filters are ours, which stop in time.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from zellige import codecs
from zellige.codecs.base import HEAD, ArrayBytesCodec, ArraySpec, BytesBytesCodec, Codec, library, variable_limit
from zellige.codecs.numcodecs import CLASSES
from zellige.codecs.v2_objects import OBJECT_FILTERS, ObjectFilter
from zellige.codecs.zstd import ZstdCodec
from zellige.dtypes import from_numpy
from zellige.dtypes.v2 import as_native, declared, filter_type
from zellige.errors import CodecError, MetadataError, UnknownCodecError, ZelligeError
from zellige.types import JSON, AnyArray, Buffer, InternalName, Shape

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


class _Step(ABC):
    """A filter after the chunk has become an array of bytes, or of something else."""

    id: str

    @abstractmethod
    def after(self, stage: _Stage | None) -> _Stage | None:
        """What it makes of an array; None if that depends on the values. Raises `MetadataError` if it cannot."""

    @abstractmethod
    def encode(self, value: Any, stage: _Stage | None) -> Any:
        """What follows from an array or bytes."""

    @abstractmethod
    def decode(self, value: Any, stage: _Stage | None, most: int) -> Any:
        """What there was before `encode`; `stage` is what is known of it, `most` how many bytes it can have."""

    def bound(self, nbytes: int) -> int:
        """The most that it can make of so many bytes."""
        return 4 * nbytes + (1 << 20)

    def head(self, raw: Buffer, most: int) -> Buffer | None:
        """As of codecs from bytes to bytes; None for all others."""
        return None


@dataclass(frozen=True, slots=True)
class FiltersCodec(ArrayBytesCodec):
    """The filters of a chunk in Zarr v2, from its elements in their declared type to bytes."""

    dtype: JSON
    filters: tuple[dict[str, JSON], ...]
    declared: np.dtype[Any] = field(repr=False, compare=False)
    first: ObjectFilter | None = field(repr=False, compare=False)
    """For elements of any kind."""
    steps: tuple[_Step, ...] = field(repr=False, compare=False)

    name: ClassVar[str] = InternalName("zarr2.filters")

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from what `metadata.v2` says: the declared type and the filters, as the document has them."""
        dtype, filters = configuration["dtype"], tuple(configuration["filters"])
        objects = OBJECT_FILTERS.get(filters[0]["id"]) if filters else None
        first = None if objects is None else _made(0, objects, filters[0])
        steps = [_made(i, _step, item) for i, item in enumerate(filters) if i or first is None]
        return cls(dtype, filters, declared(dtype), first, tuple(steps))

    def configuration(self) -> dict[str, JSON]:
        """The declared type and the filters."""
        return {"dtype": self.dtype, "filters": list(self.filters)}

    def check(self, spec: ArraySpec) -> None:
        """Every filter suits what comes to it."""
        if self.first is not None:
            self.first.check(spec)
        self._stages(spec)

    def encoded_size(self, spec: ArraySpec) -> int | None:
        """As many as the filters make of a chunk, if that is always the same."""
        last = self._stages(spec)[-1]
        return None if last is None else last.nbytes

    def encoded_bound(self, spec: ArraySpec) -> int:
        """What the filters can make of a chunk; objects may have any length, but readers must know when to stop."""
        return self._bounds(spec, None, len(self.steps))[-1]

    def is_variable(self, spec: ArraySpec) -> bool:
        """Whether the elements are objects."""
        return self.first is not None

    def bound_by_head(self, head: Buffer, spec: ArraySpec) -> int:
        """As the filter for objects says, and others after it can make of that."""
        return self._bounds(spec, head, len(self.steps))[-1]

    def _bounds(self, spec: ArraySpec, head: Buffer | None, count: int) -> list[int]:
        """The most bytes before each of the first so many steps, and after them, where the bytes begin like this."""
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
        """What is known before each step, and at last of the bytes."""
        stages = [_Stage(spec.shape, self.declared) if self.first is None else None]
        for i, step in enumerate(self.steps, start=self.first is not None):
            try:
                stages.append(step.after(stages[-1]))
            except MetadataError as error:
                raise _at(error, i) from error
        return stages

    def encode(self, chunk: AnyArray, spec: ArraySpec) -> Buffer:
        """The bytes that numcodecs would make of the chunk."""
        # A copy of objects, because numcodecs takes no array that is read-only.
        value: Any = np.array(chunk, self.declared, order="C", copy=True if self.declared.hasobject else None)
        if self.first is not None:
            value = _run(self.first.id, self.first.encode, value, spec)
        for step, stage in zip(self.steps, self._stages(spec), strict=False):
            value = _run(step.id, step.encode, value, stage)
        return value if isinstance(value, bytes) else _as_buffer(value)

    def decode(self, raw: Buffer, spec: ArraySpec) -> AnyArray:
        """The chunk in native byte order."""
        value: Any = raw
        stages = self._stages(spec)
        for k in reversed(range(len(self.steps))):
            _check_size(self.steps[k].id, value, stages[k + 1])
            known = stages[k]
            most = self._bounds(spec, _as_buffer(value), k + 1)[k] if known is None else known.nbytes
            value = _run(self.steps[k].id, self.steps[k].decode, value, known, most)
        if self.first is not None:
            found: AnyArray = _run(self.first.id, self.first.decode, _as_buffer(value), spec, self.declared)
            return found.astype(spec.dtype.numpy, copy=False)
        _check_size(self.name, value, stages[0])
        if self.declared.hasobject:
            return _run(self.name, _texts, value, spec)  # type: ignore[no-any-return]
        return as_native(np.ndarray(spec.shape, self.declared, _as_bytes(value)), spec.dtype.numpy)


def _texts(value: AnyArray, spec: ArraySpec) -> AnyArray:
    """The labels of `categorize`."""
    return value.reshape(spec.shape).astype(spec.dtype.numpy)


def _made(i: int, make: Callable[[Mapping[str, JSON]], T], configuration: Mapping[str, JSON]) -> T:
    """A filter; whatever is wrong with its configuration is an error of the document."""
    try:
        return make(configuration)
    except (ImportError, MemoryError):
        raise
    except MetadataError as error:
        raise _at(error, i) from error
    except Exception as error:
        place = f"configuration.filters[{i}]"
        raise MetadataError(f"{place}: {type(error).__name__}: {error}", field=place) from error


def _at(error: MetadataError, i: int) -> MetadataError:
    """The same error with the filter's place."""
    place = f"configuration.filters[{i}]"
    rest = error.field.removeprefix("configuration")
    return type(error)(f"{place}: {error}", field=place + rest if rest.startswith(".") else place)


def _run(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a filter makes of a chunk; whatever goes wrong there is an error of the chunk."""
    try:
        with np.errstate(all="ignore"):
            return function(*arguments)
    except (ImportError, MemoryError, ZelligeError):
        raise
    except Exception as error:
        raise CodecError(f"{name}: {type(error).__name__}: {error}") from error


def _as_bytes(value: Any) -> AnyArray:
    """What a filter made, as bytes in the order of its memory."""
    array = value if isinstance(value, np.ndarray) else np.frombuffer(value, np.uint8)
    if array.dtype.hasobject:
        raise CodecError("a filter made objects, where there should be bytes")
    return np.ascontiguousarray(array.reshape(-1, order="A")).view(np.uint8)


def _as_buffer(value: Any) -> memoryview:
    return memoryview(_as_bytes(value))  # type: ignore[arg-type]


def _check_size(name: str, value: Any, stage: _Stage | None) -> None:
    if stage is None:
        return
    found = value.nbytes if isinstance(value, np.ndarray | memoryview) else len(value)
    objects = isinstance(value, np.ndarray) and value.dtype.hasobject
    if found != stage.nbytes or objects != stage.dtype.hasobject:
        raise CodecError(f"{name}: {stage.nbytes} bytes expected, {found} found")


# -- steps ----------------------------------------------------------------------------------------


class _Conversion(_Step):
    """A filter of numcodecs from one array to another, both of a known type."""

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        self.id = configuration["id"]
        if self.id in _CHECKED:
            codecs.from_json(f"numcodecs.{self.id}", _options(configuration))
        before, after = _TYPES[self.id]
        encoded = configuration.get(after)
        self._before = filter_type(configuration.get(before), f"configuration.{before}")
        self._after = _BYTE if self.id == "categorize" else self._before
        if encoded is not None:
            self._after = filter_type(encoded, f"configuration.{after}")
        for key, dtype in ((before, self._before), (after, self._after)):
            if dtype.kind == "O" and (key, self.id) != (before, "categorize"):
                raise MetadataError(f"filter {self.id!r} cannot handle objects", field=f"configuration.{key}")
        if self.id == "delta" and not {self._before.kind, self._after.kind} <= set(_SUMMED):
            raise MetadataError(f"filter 'delta' is for numbers, not for {self._before}", field="configuration.dtype")
        self._codec = _numcodecs(configuration)

    def after(self, stage: _Stage | None) -> _Stage | None:
        """As many elements of the other type."""
        if stage is None:
            if self._before.itemsize > _LONGEST_NUMBER:  # or some bytes could ask for any amount of memory
                raise MetadataError(f"filter {self.id!r} cannot follow filters that make any number of bytes", field="")
            return None
        if self.id == "categorize" and self._before != stage.dtype:
            raise MetadataError(
                f"filter 'categorize' is for {self._before.str}, the chunk has {stage.dtype.str}",
                field="configuration.dtype",
            )
        count, rest = divmod(stage.nbytes, self._before.itemsize)
        if rest:
            raise MetadataError(
                f"filter {self.id!r}: {stage.nbytes} bytes are no whole number of {self._before.str}",
                field=f"configuration.{_TYPES[self.id][0]}",
            )
        keeps = self.id in ("astype", "quantize") and self._before.itemsize == stage.dtype.itemsize
        return _Stage(stage.shape if keeps else (count,), self._after)

    def encode(self, value: Any, stage: _Stage | None) -> Any:
        encoded = self._codec.encode(value)
        narrow = self._after.itemsize < self._before.itemsize and self._after.kind in "iu"
        if self.id == "delta" and narrow and _as_bytes(self._codec.decode(encoded)).data != _as_bytes(value).data:
            raise CodecError(f"there are differences that {self._after} cannot hold; give a wider astype")
        return encoded

    def decode(self, value: Any, stage: _Stage | None, most: int) -> Any:
        return self._codec.decode(value)


_TYPES = {
    "delta": ("dtype", "astype"),
    "fixedscaleoffset": ("dtype", "astype"),
    "quantize": ("dtype", "astype"),
    "astype": ("decode_dtype", "encode_dtype"),
    "categorize": ("dtype", "astype"),
}
"""Where a filter says the type of what it gets, and of what it makes."""
_CHECKED = ("fixedscaleoffset", "quantize")
"""Their parameters are checked by the codecs that Zarr v3 has of them."""
_SUMMED = "biufcmM"
"""Kinds of elements that have differences."""


class _BitRound(_Step):
    """Floats with fewer bits; decoding changes nothing."""

    id = "bitround"

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        codecs.from_json("numcodecs.bitround", _options(configuration))
        self._codec = _numcodecs(configuration)

    def after(self, stage: _Stage | None) -> _Stage | None:
        """The same."""
        return stage

    def encode(self, value: Any, stage: _Stage | None) -> Any:
        return self._codec.encode(value)

    def decode(self, value: Any, stage: _Stage | None, most: int) -> Any:
        return value


class _PackBits(_Step):
    """Bools as bits, after a byte that counts those of the padding."""

    id = "packbits"

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        codecs.from_json("numcodecs.packbits", _options(configuration))
        self._codec = _numcodecs(configuration)

    def after(self, stage: _Stage | None) -> _Stage | None:
        """A byte for eight."""
        return None if stage is None else _Stage((1 + -(-stage.nbytes // 8),), _BYTE)

    def encode(self, value: Any, stage: _Stage | None) -> Any:
        return self._codec.encode(value)

    def decode(self, value: Any, stage: _Stage | None, most: int) -> Any:
        return self._codec.decode(value)


class _Bytes(_Step):
    """A codec from bytes to bytes that is followed by one that is not: ours, which knows when to stop."""

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        self.id = configuration["id"]
        options = {"elementsize": 4} if self.id == "shuffle" else {}  # by default
        codec = codecs.from_json(f"numcodecs.{self.id}", options | _options(configuration))
        assert isinstance(codec, BytesBytesCodec)
        self._codec = codec

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


class _Numbers(_Step):
    """A compressor of numbers that other filters have made: ours, which checks the bytes."""

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        self.id = configuration["id"]
        codec = codecs.from_json(f"numcodecs.{self.id}", _options(configuration))
        assert isinstance(codec, ArrayBytesCodec)
        self._codec = codec

    def after(self, stage: _Stage | None) -> None:
        """Bytes; how many depends on the numbers."""
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


class _Foreign(_Step):
    """A codec that numcodecs knows and we do not."""

    def __init__(self, configuration: Mapping[str, JSON]) -> None:
        self.id = configuration["id"]
        self._codec = _numcodecs(configuration)

    def after(self, stage: _Stage | None) -> None:
        """Nobody knows."""

    def encode(self, value: Any, stage: _Stage | None) -> Any:
        return self._codec.encode(value)

    def decode(self, value: Any, stage: _Stage | None, most: int) -> Any:
        return self._codec.decode(value)


_KINDS: dict[str, Callable[[Mapping[str, JSON]], _Step]] = {"bitround": _BitRound, "packbits": _PackBits}
_KINDS |= dict.fromkeys(_TYPES, _Conversion)


def _step(configuration: Mapping[str, JSON]) -> _Step:
    name = configuration["id"]
    if name in _KINDS:
        return _KINDS[name](configuration)
    ours = CLASSES.get(f"numcodecs.{name}")
    if ours is None:
        return _Foreign(configuration)
    return (_Bytes if issubclass(ours, BytesBytesCodec) else _Numbers)(configuration)


def _options(configuration: Mapping[str, JSON]) -> dict[str, JSON]:
    return {key: value for key, value in configuration.items() if key != "id"}


def _numcodecs(configuration: Mapping[str, JSON]) -> Any:
    """The codec that numcodecs has for a configuration."""
    name = configuration["id"]
    registry = library(name, "numcodecs.registry", "numcodecs")
    if name == "msgpack2":
        library(name, "msgpack", "msgpack")
    if name not in registry.codec_registry and name not in registry.entries:
        hint = "install the package that registers it with numcodecs"
        raise UnknownCodecError(f"codec {name!r} is not known; {hint}", field="id")
    return registry.get_codec(dict(configuration))


# -- what users give ------------------------------------------------------------------------------

_NEEDED = {"astype": "decode_dtype", "fixedscaleoffset": "dtype", "quantize": "dtype"}
"""What numcodecs needs to know, and a chain finds out by itself."""


def v2_config(value: Any) -> dict[str, JSON]:
    """What users give for a filter or the compressor of a v2 array, as its document has it.

    >>> v2_config("gzip"), v2_config({"id": "delta", "dtype": "<i4"})
    ({'id': 'gzip', 'level': 5}, {'id': 'delta', 'dtype': '<i4'})
    """
    if isinstance(value, Codec):
        found = _of_codec(value)
    elif isinstance(value, str):
        found = _of_name(value)
    elif isinstance(value, Mapping):
        found = dict(value) if "id" in value else _of_codec(codecs.parse_codec(value))
    elif hasattr(value, "get_config") and not isinstance(value, type):
        found = value.get_config()
    else:
        raise MetadataError(f"{value!r} is no codec of Zarr v2; {_HINT}", field="codecs")
    return _as_json(found)


_HINT = "give one of numcodecs, its configuration as {'id': …}, or its name"


def _of_codec(codec: Codec) -> dict[str, JSON]:
    """One of our codecs, if Zarr v2 has it."""
    name, options = codec.name, codec.configuration()
    if name.startswith("numcodecs."):
        name = name.removeprefix("numcodecs.")
        if (key := _NEEDED.get(name)) and key not in options:
            raise MetadataError(f"Zarr v2 needs the {key} of {name!r}", field=f"configuration.{key}")
    elif name == "blosc":
        shuffle = ("noshuffle", "shuffle", "bitshuffle").index(options["shuffle"])
        options = {**options, "shuffle": shuffle}
        del options["typesize"]  # that of the elements, always
    elif name not in ("zstd", "gzip", "crc32c", "vlen-utf8", "vlen-bytes"):
        raise MetadataError(f"Zarr v2 does not know the codec {name!r}; {_HINT}", field="codecs")
    return {"id": name, **options}


def _of_name(name: str) -> dict[str, JSON]:
    name = name.removeprefix("numcodecs.")
    if name == "zstd":
        return _of_codec(ZstdCodec(checksum=False))
    if name in ("blosc", "gzip", "crc32c", "vlen-utf8", "vlen-bytes"):
        return _of_codec(codecs.parse_codec(name))
    if f"numcodecs.{name}" in CLASSES:
        return _of_codec(codecs.parse_codec(f"numcodecs.{name}"))
    try:
        found: dict[str, JSON] = _numcodecs({"id": name}).get_config()
    except TypeError as error:
        raise MetadataError(f"codec {name!r} needs a configuration: {error}", field="codecs") from error
    return found


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
