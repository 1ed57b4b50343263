"""JSON documents, read with suspicion and written so that every reader accepts them.

What comes from outside is hostile until checked. The functions here check one JSON value each and raise
a `MetadataError` whose `field` is the path of that value, e.g. `chunk_grid.configuration.chunk_shape[1]`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

from zellige.errors import MetadataError
from zellige.settings import config
from zellige.types import JSON, not_finite

M = TypeVar("M")

_MOST = 2**63 - 1


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


def parse(raw: bytes | memoryview) -> dict[str, JSON]:
    """The object that a document holds."""
    return as_object(_parse(raw), "")


def parse_attributes(raw: bytes | memoryview) -> dict[str, JSON]:
    """The object that a document of attributes holds, in which keys may be repeated."""
    return as_attributes(_parse(raw))


def _parse(raw: bytes | memoryview) -> JSON:
    try:
        text = bytes(raw).decode("utf-8-sig")  # a byte order mark is met in the wild, and harmless
        return _decoder.decode(text)
    except UnicodeDecodeError as error:
        raise MetadataError(f"the document is not UTF-8: {error}", field="") from error
    except RecursionError as error:
        raise MetadataError("the document is nested too deeply", field="") from error
    except ValueError as error:
        raise MetadataError(f"the document is not valid JSON: {error}", field="") from error


def dump(document: Mapping[str, JSON], before: Mapping[str, JSON] | None = None) -> bytes:
    """The bytes of a document that is to be stored: one line for each field.

    The setting `json_indent` is the space before each field; None puts everything into one line. NaN and infinities in
    attributes are written as NaN, Infinity and -Infinity, as Python's json and zarr-python do. These tokens are not
    part of JSON; the setting `strict_json` refuses them, unless there are some in the document that is replaced.
    """
    if config.get("strict_json") and not not_finite(before, ""):
        for name, value in document.items():
            _check_finite(value, name)
    return encode(document)


def encode(document: Mapping[str, JSON]) -> bytes:
    """The bytes of a document, whether JSON has all of its numbers or not."""
    indent = config.get("json_indent")
    fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in document.items()]
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


def copied(value: Any) -> Any:
    """A copy of a JSON value that shares nothing that can change; several times as fast as `deepcopy`."""
    if isinstance(value, dict):
        made = {name: item if type(item) in _SCALARS else copied(item) for name, item in value.items()}
        if isinstance(value, _Repeated):
            made = _Repeated(made)
            made.key = value.key
        return made
    return [copied(item) for item in value] if isinstance(value, list) else value


_SCALARS = frozenset({str, int, float, bool, type(None)})


def comparable(value: JSON) -> JSON:
    """A JSON value of which two are equal if they say the same: NaN equals NaN."""
    try:
        return _comparable(value)
    except RecursionError as error:
        raise MetadataError("the document is nested too deeply", field="") from error


def _comparable(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return _NAN if isinstance(value, float) and math.isnan(value) else value


_NAN = object()


# -- checking one value ---------------------------------------------------------------------------


def fail(field: str, expected: str, found: JSON) -> NoReturn:
    """Raise with the field's path, what was expected, and what is there."""
    raise MetadataError(f"{field or 'the document'} must be {expected}, found {_shown(found)}", field=field)


def _shown(found: JSON) -> str:
    try:
        shown = repr(found)
    except RecursionError:  # the parser came through with the last bit of the stack
        return f"a {type(found).__name__} that is nested too deeply"
    return shown if len(shown) <= 80 else shown[:77] + "…"


def as_object(value: JSON, field: str) -> dict[str, JSON]:
    """A JSON object without repeated keys."""
    if not isinstance(value, dict):
        fail(field, "an object", value)
    if isinstance(value, _Repeated):
        path = f"{field}.{value.key}".lstrip(".")
        raise MetadataError(f"{path} occurs twice", field=path)
    return value


def as_list(value: JSON, field: str) -> list[JSON]:
    """A JSON array."""
    if not isinstance(value, list):
        fail(field, "an array", value)
    return value


def as_integer(value: JSON, field: str, low: int) -> int:
    """A JSON integer of at least `low`; booleans and 4.0 are not integers."""
    if type(value) is not int or not low <= value <= _MOST:
        fail(field, f"an integer >= {low}", value)
    return value


def require(document: Mapping[str, JSON], key: str, field: str) -> JSON:
    """A key that must be there."""
    if key not in document:
        path = f"{field}.{key}".lstrip(".")
        raise MetadataError(f"{path} is missing", field=path)
    return document[key]


def only(document: Mapping[str, JSON], field: str, *known: str) -> None:
    """Refuse keys that the schema does not have."""
    if unknown := sorted(document.keys() - set(known)):
        path = f"{field}.{unknown[0]}"
        raise MetadataError(f"{path} is not known; known: {', '.join(known) or 'none'}", field=path)


class Extension(NamedTuple):
    """A name with a configuration: how documents refer to codecs, grids and key encodings."""

    name: str
    configuration: dict[str, JSON]

    def to_json(self) -> dict[str, JSON]:
        """The object form with an explicit configuration, which all readers accept."""
        return {"name": self.name, "configuration": self.configuration}


def as_extension(value: JSON, field: str, *, ignorable: bool) -> Extension:
    """An extension object or its bare name; `must_understand: false` only where the format permits it."""
    if isinstance(value, str):
        return Extension(_name(value, field), {})
    found = as_object(value, field)
    only(found, field, "name", "configuration", "must_understand")
    understand = found.get("must_understand", True)
    if type(understand) is not bool or (not understand and not ignorable):
        fail(f"{field}.must_understand", "true" if not ignorable else "true or false", understand)
    name = _name(require(found, "name", field), f"{field}.name")
    return Extension(name, as_object(found.get("configuration", {}), f"{field}.configuration"))


def _name(value: JSON, field: str) -> str:
    if not isinstance(value, str) or not value:
        fail(field, "a name", value)
    return value


UNFINISHED = "zellige_unfinished"
"""The field of an array that is being filled by an operation of ours; others must not take it for whole."""
UNFINISHED_WORDS = "is not finished: a rechunk that fills it was stopped, or is under way; run the same rechunk again"


def ignorable(document: Mapping[str, JSON], known: Collection[str]) -> dict[str, JSON]:
    """The fields that are not known here; refuses those that the document does not let a reader ignore."""
    extra = {name: value for name, value in document.items() if name not in known}
    for name, value in extra.items():
        if name != UNFINISHED and (not isinstance(value, dict) or value.get("must_understand") is not False):
            raise MetadataError(
                f"{name} is not known here and not marked as ignorable by an object with must_understand false",
                field=name,
            )
    return extra


# -- attributes -----------------------------------------------------------------------------------


def as_attributes(value: JSON) -> dict[str, JSON]:
    """The attributes of a node, in which keys may even be repeated."""
    if value is None:  # written by some; the format says absent
        return {}
    return value if isinstance(value, dict) else as_object(value, "attributes")


def with_attributes(metadata: M, attributes: dict[str, JSON]) -> M:
    """The same metadata with other attributes, in a quarter of the time that `dataclasses.replace` takes."""
    made = object.__new__(type(metadata))
    made.__dict__.update(metadata.__dict__, attributes=attributes)
    return made


def new_attributes(value: Any) -> dict[str, JSON]:
    """The attributes that a user gives for a new node: a mapping, or None."""
    if value is not None and not isinstance(value, Mapping):
        fail("attributes", "a dict", value)
    return plain(value or {})  # type: ignore[no-any-return]


def plain(value: Any, field: str = "attributes") -> JSON:
    """A user's value as JSON: numpy scalars and arrays become numbers and lists, tuples lists.

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
        return {_attribute_name(k, field): _plain(v, f"{field}.{k}") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{field}[{i}]") for i, v in enumerate(value)]
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


def _attribute_name(key: Any, field: str) -> str:
    if not isinstance(key, str):
        fail(field, "a dict with string keys", key)
    return key
