"""Codecs by declaration: the annotations of its fields state what the configuration of a codec may hold.

    level: Annotated[int, integer(0, 9), REQUIRED] = 5

Arguments and metadata are checked by these statements, and JSON in both directions and the tables of parameters in
docs/format/codecs follow from them. The default is for callers, and for metadata that leaves the field out unless the
annotation says otherwise: `REQUIRED`, or `Absent(value)`. A `Literal` or `bool` needs no rule.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from zellige.errors import MetadataError
from zellige.types import JSON

_MOST = sys.float_info.max


class Rule(NamedTuple):
    """What the values of a field must be."""

    expected: str
    """In words that follow "must be"."""
    accepts: Callable[[Any], bool]
    read: Callable[[JSON, str], Any] = lambda value, field: value
    """What becomes of the value in metadata, given with its place there."""


REQUIRED = object()
"""Metadata must have the field, whatever its default."""


class Absent(NamedTuple):
    """What metadata means that leaves the field out, if that is not the default."""

    value: Any


def integer(low: int, high: int) -> Rule:
    """Accept an integer from `low` to `high`; booleans and floats are none."""
    return Rule(f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def number(expected: str = "a finite number", low: float = -_MOST, high: float = _MOST) -> Rule:
    """Accept a finite number from `low` to `high`, which `expected` says in words."""
    return Rule(expected, lambda value: type(value) in (int, float) and low <= value <= high)


def one_of(*choices: Any) -> Rule:
    """Accept one of a few words or numbers; True is no number."""
    kinds = tuple({type(choice) for choice in choices})
    return Rule(
        f"one of {', '.join(map(repr, choices))}",
        lambda value: isinstance(value, kinds) and value in choices and type(value) is not bool,
    )


def tuple_of(expected: str, accepts: Callable[[tuple[Any, ...]], bool]) -> Rule:
    """Accept a tuple all of which is accepted; a list in metadata."""
    return Rule(expected, lambda value: isinstance(value, tuple) and accepts(value), lambda value, _: as_tuples(value))


def as_tuples(value: Any) -> Any:
    """Return a list as a tuple, and those in it too."""
    if not isinstance(value, list | tuple):
        return value
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def codecs_of(kind: type, words: str = "codecs") -> Rule:
    """Accept codecs of a kind, at least one."""
    return Rule(
        f"a list of {words}, at least one",
        lambda value: isinstance(value, tuple) and bool(value) and all(isinstance(codec, kind) for codec in value),
        _read_codecs,
    )


def _read_codecs(items: JSON, field: str) -> tuple[Any, ...]:
    from zellige.codecs import from_item  # which has all codecs, and so these statements

    if not isinstance(items, list) or not items:
        raise MetadataError(f"{field} must be a list of codecs, at least one, found {items!r}", field=field)
    found = []
    for i, item in enumerate(items):
        try:
            found.append(from_item(item))
        except MetadataError as error:
            raise type(error)(str(error), field=f"{field}[{i}].{error.field}") from error
        except RecursionError as error:
            raise MetadataError("codecs are nested too deeply", field=f"{field}[{i}]") from error
    return tuple(found)


class Field(NamedTuple):
    """One field of a codec, as its annotation states it."""

    key: str
    rule: Rule
    optional: bool
    """Whether None stands for a field that is left out."""
    absent: Any
    """What metadata means that leaves the field out; `MISSING` if it must not."""


@cache
def fields_of(kind: type) -> tuple[Field, ...]:
    """Return the fields that a class of codecs writes into metadata: all that do not begin with an underscore."""
    if not is_dataclass(kind):
        return ()
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


def as_json(value: Any) -> JSON:
    """Return the value of a field for metadata."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, tuple | list) else value


Endian = StrEnum("Endian", ["little", "big"])
"""The byte orders of `BytesCodec`."""
BloscShuffle = StrEnum("BloscShuffle", ["noshuffle", "shuffle", "bitshuffle"])
"""What `BloscCodec` does before it compresses."""
BloscCname = StrEnum("BloscCname", ["lz4", "lz4hc", "blosclz", "zstd", "snappy", "zlib"])
"""The compressors of `BloscCodec`."""
ShardingCodecIndexLocation = StrEnum("ShardingCodecIndexLocation", ["start", "end"])
"""Where the index of a shard is."""
SubchunkWriteOrder = StrEnum("SubchunkWriteOrder", ["lexicographic"])
"""In which order inner chunks lie in a shard; here always in that of their coordinates."""
