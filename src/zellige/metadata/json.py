"""Checked JSON: metadata read with suspicion, and written so that every reader accepts it.

What comes from outside is hostile until checked. A check gets a value and the path of its field, and gives the value
back, or raises a `MetadataError` whose `field` is that path, e.g. `chunk_grid.configuration.chunk_shape[1]`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from zellige.errors import MetadataError, fail
from zellige.settings import config
from zellige.types import JSON, NOT_GIVEN, not_finite

T = TypeVar("T")

Check: TypeAlias = Callable[[JSON, str], T]
"""Gives back a value that is found at a path, or raises `MetadataError`."""

_MOST = 2**63 - 1


# -- reading and writing --------------------------------------------------------------------------


class _Repeated(dict[str, JSON]):
    """An object in which a key occurs twice: tolerated in attributes, refused in structure."""

    key: str


def _pairs(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = _Repeated(found)
    counts = Counter(name for name, _ in pairs)
    repeated.key = next(name for name, count in counts.items() if count > 1)
    return repeated


_decoder = json.JSONDecoder(object_pairs_hook=_pairs)


def read_json(raw: bytes | memoryview) -> dict[str, JSON]:
    """Return the object that stored metadata holds."""
    return as_object(_read(raw), "")


def read_attributes(raw: bytes | memoryview) -> dict[str, JSON]:
    """Return the object that stored attributes hold, in which keys may be repeated."""
    return as_attributes(_read(raw))


def _read(raw: bytes | memoryview) -> JSON:
    try:
        text = bytes(raw).decode("utf-8-sig")  # a byte order mark is met in the wild, and harmless
        return _decoder.decode(text)
    except UnicodeDecodeError as error:
        raise MetadataError(f"the metadata is not UTF-8: {error}", field="") from error
    except RecursionError as error:
        raise MetadataError("the metadata is nested too deeply", field="") from error
    except ValueError as error:
        raise MetadataError(f"the metadata is not valid JSON: {error}", field="") from error


def write_json(content: Mapping[str, JSON], before: Mapping[str, JSON] | None = None) -> bytes:
    """Return the bytes of metadata that is to be stored: one line for each field.

    The setting `json_indent` is the space before each field; None puts everything into one line. NaN and infinities in
    attributes are written as NaN, Infinity and -Infinity, as Python's json and zarr-python do. These tokens are not
    part of JSON; the setting `strict_json` refuses them, unless there are some in the metadata that is replaced.
    """
    if config.get("strict_json") and not not_finite(before, ""):
        for name, value in content.items():
            _check_finite(value, name)
    return encode(content)


def encode(content: Mapping[str, JSON]) -> bytes:
    """Return the bytes of metadata, whether JSON has all of its numbers or not."""
    indent = config.get("json_indent")
    fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()]
    if indent is None:
        return ("{" + ", ".join(fields) + "}").encode()
    lines = ",\n".join(" " * indent + line for line in fields)
    return f"{{\n{lines}\n}}\n".encode()


def _check_finite(value: JSON, field: str) -> None:
    """Refuse numbers that JSON does not have."""
    if found := not_finite(value, field):
        place, number = found
        raise MetadataError(
            f"{place} is {number}, which JSON has no number for, and the setting strict_json is on; use a finite "
            "number, text or None, or turn the setting off",
            field=place,
        )


# -- values that are there ------------------------------------------------------------------------

_SCALARS = frozenset({str, int, float, bool, type(None)})
_NAN = object()


def copied(value: Any) -> Any:
    """Return a copy of a JSON value that shares nothing that can change; several times as fast as `deepcopy`."""
    if isinstance(value, dict):
        made = {name: item if type(item) in _SCALARS else copied(item) for name, item in value.items()}
        if isinstance(value, _Repeated):
            made = _Repeated(made)
            made.key = value.key
        return made
    return [copied(item) for item in value] if isinstance(value, list) else value


def comparable(value: JSON) -> JSON:
    """Return a JSON value of which two are equal if they say the same: NaN equals NaN."""
    try:
        return _comparable(value)
    except RecursionError as error:
        raise MetadataError("the metadata is nested too deeply", field="") from error


def _comparable(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return _NAN if isinstance(value, float) and math.isnan(value) else value


# -- checks ---------------------------------------------------------------------------------------


def as_object(value: JSON, field: str) -> dict[str, JSON]:
    """Return a JSON object without repeated keys."""
    if not isinstance(value, dict):
        fail(field, "an object", value)
    if isinstance(value, _Repeated):
        path = f"{field}.{value.key}".lstrip(".")
        raise MetadataError(f"{path} occurs twice", field=path)
    return value


def as_list(value: JSON, field: str) -> list[JSON]:
    """Return a JSON array."""
    if not isinstance(value, list):
        fail(field, "an array", value)
    return value


def as_integer(value: JSON, field: str) -> int:
    """Return a JSON integer of at least 0; booleans and 4.0 are not integers."""
    if type(value) is not int or not 0 <= value <= _MOST:
        fail(field, "an integer >= 0", value)
    return value


def as_name(value: JSON, field: str) -> str:
    """Return a string that is not empty."""
    if not isinstance(value, str) or not value:
        fail(field, "a name", value)
    return value


def one_of(*choices: Any) -> Check[Any]:
    """Return the check that a value is one of a few; True is not 1."""

    def check(value: JSON, field: str) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            *first, last = map(repr, choices)
            fail(field, f"{', '.join(first)} or {last}" if first else last, value)
        return value

    return check


def without_repeats(value: JSON, field: str) -> JSON:
    """Return a value whose objects are checked elsewhere, but not for repeated keys."""
    rest = [(value, field)]
    while rest:  # no recursion, however deep it is nested
        part, path = rest.pop()
        if isinstance(part, dict):
            rest += [(item, f"{path}.{name}") for name, item in as_object(part, path).items()]
        elif isinstance(part, list):
            rest += [(item, f"{path}[{i}]") for i, item in enumerate(part) if isinstance(item, dict | list)]
    return value


class Fields:
    """A JSON object whose fields are taken one by one, each with its check; what is left over is not known."""

    def __init__(self, value: JSON, path: str = "") -> None:
        self._left = dict(as_object(value, path))
        self._path = path
        self._taken: list[str] = []

    def take(self, name: str, check: Check[T], default: Any = NOT_GIVEN) -> T:
        """Return a field, checked. Without a default, it must be there."""
        path = f"{self._path}.{name}".lstrip(".")
        self._taken.append(name)
        if name in self._left:
            return check(self._left.pop(name), path)
        if default is NOT_GIVEN:
            raise MetadataError(f"{path} is missing", field=path)
        found: T = default
        return found

    def only(self, *more: str) -> None:
        """Refuse fields other than those that were taken, and some more."""
        known = [*self._taken, *more]
        if unknown := sorted(self._left.keys() - set(known)):
            path = f"{self._path}.{unknown[0]}"
            raise MetadataError(f"{path} is not known; known: {', '.join(known) or 'none'}", field=path)

    def rest(self) -> dict[str, JSON]:
        """Return the fields that were not taken."""
        return self._left

    def ignorable(self) -> dict[str, JSON]:
        """Return the fields that were not taken; refuses those that a reader must understand."""
        for name, value in self._left.items():
            if name != UNFINISHED and (not isinstance(value, dict) or value.get("must_understand") is not False):
                raise MetadataError(
                    f"{name} is not known here and not marked as ignorable by an object with must_understand false",
                    field=name,
                )
        return self._left


UNFINISHED = "zellige_unfinished"
"""The field of an array that is being filled by an operation of ours; others must not take it for whole."""
UNFINISHED_WORDS = "is not finished: a rechunk that fills it was stopped, or is under way; run the same rechunk again"


class Extension(NamedTuple):
    """A name with a configuration: how metadata refers to codecs, grids and key encodings."""

    name: str
    configuration: dict[str, JSON]

    def to_json(self) -> dict[str, JSON]:
        """Return the object form with an explicit configuration, which all readers accept."""
        return {"name": self.name, "configuration": self.configuration}


def as_extension(value: JSON, field: str, *, ignorable: bool = False) -> Extension:
    """Return an extension object or its bare name; `must_understand: false` only where the format permits it."""
    if isinstance(value, str):
        return Extension(as_name(value, field), {})
    fields = Fields(value, field)
    fields.take("must_understand", one_of(True, False) if ignorable else one_of(True), True)
    configuration = fields.take("configuration", as_object, {})
    fields.only("name")
    return Extension(fields.take("name", as_name), configuration)


# -- attributes -----------------------------------------------------------------------------------


def as_attributes(value: JSON, field: str = "attributes") -> dict[str, JSON]:
    """Return the attributes of a node, in which keys may even be repeated."""
    if value is None:  # written by some; the format says absent
        return {}
    return value if isinstance(value, dict) else as_object(value, field)


def new_attributes(value: Any) -> dict[str, JSON]:
    """Return the attributes that a user gives for a new node: a mapping, or None."""
    if value is not None and not isinstance(value, Mapping):
        fail("attributes", "a dict", value)
    found: dict[str, JSON] = plain(value or {})
    return found


def plain(value: Any, field: str = "attributes") -> JSON:
    """Return a user's value as JSON: numpy scalars and arrays become numbers and lists, tuples lists.

    NaN and infinities stay numbers, unless the setting `strict_json` refuses them.
    """
    try:
        found = _plain(value, field)
    except RecursionError as error:
        raise MetadataError(f"{field} is nested too deeply, or in a circle", field=field) from error
    if config.get("strict_json"):
        _check_finite(found, field)
    return found


def _plain(value: Any, field: str) -> JSON:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # without what numpy and enumerations add
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            fail(field, "a dict with string keys", odd[0])
        return {key: _plain(item, f"{field}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{field}[{i}]") for i, item in enumerate(value)]
    if hasattr(value, "tolist"):  # numpy scalars and arrays, without importing numpy here
        found = value.tolist()
        if type(found) is type(value):  # a type of numpy that Python has not, such as longdouble
            fail(field, "a number of a type that JSON has, such as float(…)", value)
        if getattr(value, "mask", False) is not False and value.mask.any():
            fail(field, "values of which none is masked; fill them first: x.filled(…)", value)
        return _plain(found, field)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return fail(field, "a string, number, boolean, None, list or dict", value)
