"""What all `numcodecs.*` codecs share: configurations as fields, and type names as numcodecs spells them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Self

import numpy as np

from zellige.codecs.base import Codec, integer, library, one_of, only_keys
from zellige.dtypes import DataType, parse_dtype
from zellige.errors import MetadataError
from zellige.types import JSON, AnyArray, Buffer


@dataclass(frozen=True, slots=True)
class NumcodecsCodec(Codec):
    """A codec whose configuration is its fields: those of numcodecs without `id`, with the same defaults.

    None stands for a key that is not there. Fields that begin with an underscore are not written.
    """

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration, in which numcodecs lets every key with a default be missing."""
        known = [field for field in fields(cls) if not field.name.startswith("_")]
        only_keys(cls.name, configuration, *(field.name for field in known))
        for field in known:
            if field.default is MISSING and field.name not in configuration:
                raise MetadataError(f"codec {cls.name!r}: {field.name} is missing", field=f"configuration.{field.name}")
        return cls(**configuration)

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if not field.name.startswith("_")}
        return {key: value for key, value in values.items() if value is not None}

    def to_json(self) -> dict[str, JSON]:
        """The object for a document; zarr-python needs a configuration even if it is empty."""
        return {"name": self.name, "configuration": self.configuration()}

    @property
    def codec_id(self) -> str:
        """The name in numcodecs."""
        return self.name.removeprefix("numcodecs.")

    def get_config(self) -> dict[str, JSON]:
        """The configuration as numcodecs has it."""
        return {"id": self.codec_id, **self.configuration()}

    # -- checking fields --------------------------------------------------------------------------

    def _bad(self, key: str, expected: str) -> MetadataError:
        return MetadataError(
            f"codec {self.name!r}: {key} must be {expected}, found {getattr(self, key)!r}",
            field=f"configuration.{key}",
        )

    def _integer(self, key: str, low: int, high: int) -> None:
        integer(self.name, {key: getattr(self, key)}, key, low, high)

    def _number(self, key: str) -> None:
        value = getattr(self, key)
        if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
            raise self._bad(key, "a finite number")

    def _one_of(self, key: str, *choices: str | bool) -> None:
        one_of(self.name, {key: getattr(self, key)}, key, choices)

    def _type(self, key: str, kinds: str) -> None:
        number_type(self.name, key, getattr(self, key), kinds)


# -- types ----------------------------------------------------------------------------------------

KINDS: dict[str, str] = {"f": "a float", "iufc": "a number", "biufc": "a bool or a number"}
"""The kinds of numpy types that a codec takes, and how to say it."""

# numpy also takes expressions as "(2,3)i4", and warns of some letters.
_SPELLING = re.compile(r"[<>|=]?(\?|[biufc][0-9]{0,2}|[a-z]{3,10}[0-9]{0,3})")


def number_type(codec: str, key: str, value: JSON, kinds: str) -> DataType:
    """The type that a configuration names, as "<f4" or "float32"; in memory its byte order does not matter."""
    if not isinstance(value, str) or not _SPELLING.fullmatch(value):
        raise _not_a_type(codec, key, value, kinds)
    return _named_type(codec, key, value, kinds)


@lru_cache(256)
def _named_type(codec: str, key: str, value: str, kinds: str) -> DataType:
    try:
        found = parse_dtype(value)
    except MetadataError as error:
        raise _not_a_type(codec, key, value, kinds) from error
    if found.numpy.kind not in kinds:
        raise _not_a_type(codec, key, value, kinds)
    return found


def _not_a_type(codec: str, key: str, value: JSON, kinds: str) -> MetadataError:
    return MetadataError(
        f"codec {codec!r}: {key} must name {KINDS[kinds]} type, as '<f4', found {value!r}",
        field=f"configuration.{key}",
    )


def unsuitable(codec: str, needs: str, found: object) -> MetadataError:
    """The error for a chunk that does not suit a codec, whatever its configuration."""
    return MetadataError(f"codec {codec!r} needs {needs}, the chunk has {found}", field="name")


# -- libraries ------------------------------------------------------------------------------------


def numcodecs(codec: str, module: str) -> Any:
    """A module of numcodecs, imported on first use."""
    return library(codec, f"numcodecs.{module}", "numcodecs")


@cache
def standard(module: str) -> Any:
    """A module of the standard library, imported on first use."""
    return import_module(module)


def as_array(raw: Buffer) -> AnyArray:
    """The bytes as numcodecs takes them."""
    return np.frombuffer(raw, np.uint8)
