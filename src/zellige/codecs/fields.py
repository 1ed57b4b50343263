"""Codecs by declaration: the annotations of its fields state what the configuration of a codec may hold.

    level: Annotated[int, integer(0, 9), REQUIRED] = 5

Arguments and documents are checked by these statements, and JSON in both directions and the tables of parameters in
docs/format/codecs follow from them. The default is for callers, and for documents that leave the field out unless the
annotation says otherwise: `REQUIRED`, or `Absent(value)`. A `Literal` or `bool` needs no rule.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from zellige import codecs
from zellige.codecs.base import Codec, only_keys
from zellige.errors import MetadataError
from zellige.types import JSON

_MOST = sys.float_info.max


class Rule:
    """What the values of a field must be."""

    def __init__(
        self,
        expected: str,
        accepts: Callable[[Any], bool],
        read: Callable[[JSON, str], Any] = lambda value, field: value,
    ) -> None:
        """`expected` follows "must be" in errors; `read` takes the value of a document, and its place there."""
        self.expected, self.accepts, self.read = expected, accepts, read


REQUIRED = object()
"""Documents must have the field, whatever its default."""


class Absent:
    """What a document means that leaves the field out, if that is not the default."""

    def __init__(self, value: Any) -> None:
        self.value = value


def integer(low: int, high: int) -> Rule:
    """An integer from `low` to `high`; booleans and floats are none."""
    return Rule(f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def number(expected: str = "a finite number", low: float = -_MOST, high: float = _MOST) -> Rule:
    """A finite number from `low` to `high`, which `expected` says in words."""
    return Rule(expected, lambda value: type(value) in (int, float) and low <= value <= high)


def one_of(*choices: Any) -> Rule:
    """One of a few words or numbers; True is no number."""
    kinds = tuple({type(choice) for choice in choices})
    return Rule(
        f"one of {', '.join(map(repr, choices))}",
        lambda value: isinstance(value, kinds) and value in choices and type(value) is not bool,
    )


def tuple_of(expected: str, accepts: Callable[[tuple[Any, ...]], bool]) -> Rule:
    """A tuple of which all is accepted; a list in documents."""
    return Rule(expected, lambda value: isinstance(value, tuple) and accepts(value), lambda value, _: as_tuple(value))


def as_tuple(value: Any) -> Any:
    """A list as a tuple, and those in it too."""
    if not isinstance(value, list | tuple):
        return value
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def codecs_of(kind: type[Codec], words: str = "codecs") -> Rule:
    """Codecs of a kind, at least one."""
    return Rule(
        f"a list of {words}, at least one",
        lambda value: isinstance(value, tuple) and bool(value) and all(isinstance(codec, kind) for codec in value),
        _read_codecs,
    )


def _read_codecs(items: JSON, field: str) -> tuple[Codec, ...]:
    if not isinstance(items, list) or not items:
        raise MetadataError(f"{field} must be a list of codecs, at least one, found {items!r}", field=field)
    return tuple(_read_codec(item, f"{field}[{i}]") for i, item in enumerate(items))


def _read_codec(item: JSON, field: str) -> Codec:
    try:
        return codecs.from_item(item)
    except MetadataError as error:
        raise type(error)(str(error), field=f"{field}.{error.field}") from error
    except RecursionError as error:
        raise MetadataError("codecs are nested too deeply", field=field) from error


class Field:
    """One field of a codec, as its annotation states it."""

    def __init__(self, key: str, rule: Rule, optional: bool, absent: Any) -> None:
        self.key, self.rule = key, rule
        self.optional = optional
        """Whether None stands for a field that is left out."""
        self.absent = absent
        """What a document means that leaves the field out; `MISSING` if it must not."""


@cache
def fields_of(kind: type) -> tuple[Field, ...]:
    """The fields that a class of codecs writes into documents; those that begin with an underscore are its own."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_field(field.name, hints[field.name], field.default) for field in fields(kind) if field.name[0] != "_")


def _field(key: str, hint: Any, default: Any) -> Field:
    hint, *notes = get_args(hint) if get_origin(hint) is Annotated else [hint]
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] if type(None) in get_args(hint) else [hint]
    rule = next((note for note in notes if isinstance(note, Rule)), None)
    if rule is None and get_origin(kinds[0]) is Literal:
        rule = one_of(*get_args(kinds[0]))
    elif rule is None and kinds[0] is bool:
        rule = Rule("true or false", lambda value: type(value) is bool)
    elif rule is None:
        rule = Rule("anything", lambda value: True)
    absent = next((note.value for note in notes if isinstance(note, Absent)), MISSING if REQUIRED in notes else default)
    return Field(key, rule, kinds != [hint], absent)


class Declared(Codec):
    """A codec whose configuration is its fields."""

    null_is_absent: ClassVar[bool] = False
    """Whether documents may say null for a field that is left out."""

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.key)
            if not (value is None and field.optional) and not field.rule.accepts(value):
                raise self._must_be(field.key, field.rule.expected, repr(value))

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, JSON]) -> Self:
        """Build from a document's configuration; raises `MetadataError` for anything unexpected."""
        only_keys(cls.name, configuration, *(field.key for field in fields_of(cls)))
        values = {}
        for field in fields_of(cls):
            key, rule = field.key, field.rule
            if key not in configuration and field.absent is MISSING:
                raise cls._must_be(key, rule.expected, "nothing")
            value = rule.read(configuration[key], f"configuration.{key}") if key in configuration else field.absent
            if value is None and key in configuration and field.optional and not cls.null_is_absent:
                raise cls._must_be(key, rule.expected, "null; leave it out instead")
            values[key] = value
        return cls(**values)

    def configuration(self) -> dict[str, JSON]:
        """The configuration for a document, every value explicit."""
        values = ((field.key, getattr(self, field.key)) for field in fields_of(type(self)))
        return {key: _as_json(value) for key, value in values if value is not None}

    @classmethod
    def _refused(cls, message: str, field: str = "configuration") -> MetadataError:
        """The error for a configuration, or for a chunk that does not suit it."""
        return MetadataError(f"codec {cls.name!r}: {message}", field=field)

    @classmethod
    def _must_be(cls, key: str, expected: str, found: object) -> MetadataError:
        return cls._refused(f"{key} must be {expected}, found {found}", f"configuration.{key}")


def _as_json(value: Any) -> JSON:
    if isinstance(value, Codec):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, tuple | list) else value
