"""Settings: typed, with dotted keys; for a while by `with`, for a process by environment variables.

>>> with config.set({"threading.max_workers": 1}):
...     config.get("threading.max_workers")
1

`ZELLIGE_THREADING__MAX_WORKERS=4` in the environment sets the same key when zellige is first used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from zellige.errors import as_mapping, hint
from zellige.types import Casting, Durability


class _Setting(NamedTuple):
    default: Any
    accepts: Callable[[Any], bool]
    expected: str


def _one_of(*values: Any, default: Any) -> _Setting:
    kind = type(values[0])
    return _Setting(default, lambda v: isinstance(v, kind) and v in values, " or ".join(map(repr, values)))


def _bool(default: bool) -> _Setting:
    return _one_of(True, False, default=default)


def _int(default: int | None, low: int, high: int | None = None) -> _Setting:
    """Return a setting that is an integer within limits; booleans and floats are not integers."""
    expected = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    return _Setting(default, lambda v: type(v) is int and v >= low and (high is None or v <= high), expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positive(default: float | None) -> _Setting:
    return _Setting(default, lambda v: _is_number(v) and v > 0, "a number > 0")


def _not_negative(default: float) -> _Setting:
    return _Setting(default, lambda v: _is_number(v) and v >= 0, "a number >= 0")


def _or_none(setting: _Setting) -> _Setting:
    accepts, expected = setting.accepts, f"{setting.expected}, or None"
    return setting._replace(accepts=lambda v: v is None or accepts(v), expected=expected)


# The meaning of each key is in the docstring of `Config`.
_SETTINGS: dict[str, _Setting] = {
    "default_zarr_format": _one_of(2, 3, default=3),
    "json_indent": _or_none(_int(2, 0, 8)),
    "strict_json": _bool(False),
    "array.order": _one_of("C", "F", default="C"),
    "array.write_empty_chunks": _bool(False),
    "array.read_missing_chunks": _bool(True),
    "array.casting": _one_of("same_value", "unsafe", default="same_value"),
    "array.durability": _or_none(_one_of("process", "power", default=None)),
    "array.target_shard_size_bytes": _or_none(_int(None, 1)),
    "array.uneven_inner_chunks": _bool(False),
    "array.rectilinear_chunks": _Setting(
        True,
        lambda v: v is True,
        "True: chunks of any size are always on, and chunk_grid='regular' refuses uneven ones",
    ),
    "array.sharding_coalesce_max_gap_bytes": _or_none(_int(None, 0)),
    "array.sharding_coalesce_max_bytes": _int(16 << 20, 1),
    "array.allow_unsafe_pickle_decode": _Setting(
        False, lambda v: v is False, "False: to decode a pickle is to run the code in it, and none is decoded here"
    ),
    "async.concurrency": _int(10, 1),
    "async.timeout": _or_none(_positive(None)),
    "codecs.max_variable_chunk_bytes": _int(1 << 30, 1),
    "memory.keep_bytes": _int(256 << 20, 0),
    "threading.max_workers": _or_none(_int(None, 1)),
    "remote.concurrency": _int(64, 1),
    "remote.max_retries": _int(5, 0),
    "remote.timeout": _positive(120),
    "lease.timeout": _not_negative(300),
    "lease.wait": _not_negative(60),
}
_SECTIONS = dict.fromkeys(key.partition(".")[0] for key in _SETTINGS if "." in key)
_REQUIRED: Any = object()


def _check(key: str, value: Any) -> Any:
    setting = _SETTINGS.get(key)
    if setting is None:
        raise _unknown(key)
    if not setting.accepts(value):
        raise ValueError(f"setting {key} must be {setting.expected}; found {value!r}")
    return value


def _unknown(key: object, sections: Iterable[str] = ()) -> KeyError:
    return KeyError(f"there is no setting {key!r}; {hint(str(key), [*_SETTINGS, *sections])}")


class Config:
    """The settings of this process, for all of its threads.

    | key | default | what it does |
    |---|---|---|
    | `array.order` | `'C'` | the memory order of results |
    | `array.write_empty_chunks` | False | whether chunks that hold only the fill value are stored |
    | `array.read_missing_chunks` | True | whether a missing chunk reads as fill; False makes it an error |
    | `array.casting` | `'same_value'` | values that the array's type cannot hold are refused; `'unsafe'` changes them |
    | `array.durability` | None | what written chunks survive: `'process'`, `'power'`, or None for the store's own |
    | `array.uneven_inner_chunks` | False | whether inner chunks that do not divide their shard may be written |
    | `array.rectilinear_chunks` | True | always True: chunks of any size are always on |
    | `array.allow_unsafe_pickle_decode` | False | always False: a pickle can run any code |
    | `array.sharding_coalesce_max_gap_bytes` | None | inner chunks this close are read at once; None: the store's |
    | `array.sharding_coalesce_max_bytes` | 16 MiB | the most bytes that are read at once |
    | `array.target_shard_size_bytes` | None | the size of shards with `shards="auto"`; None: 64 MiB |
    | `async.concurrency` | 10 | how many operations of `zellige.aio` are in flight in an event loop |
    | `async.timeout` | None | the seconds that one of them may take |
    | `codecs.max_variable_chunk_bytes` | 1 GiB | the most bytes of a chunk of strings, or of others of any length |
    | `default_zarr_format` | 3 | the format of new nodes |
    | `json_indent` | 2 | the space before each field of a document; None: everything in one line |
    | `lease.timeout` | 300 | the seconds after which a lease that another machine holds and does not renew expires |
    | `lease.wait` | 60 | the seconds to wait for another writer that changes the same array or group |
    | `strict_json` | False | whether new attributes that are NaN or infinite, which JSON cannot say, are refused |
    | `memory.keep_bytes` | 256 MiB | how much memory of large results that were dropped is kept for the next; 0: none |
    | `threading.max_workers` | None | how many threads work on one operation; None: the CPUs of this process |
    | `remote.concurrency` | 64 | how many requests to a server are in flight |
    | `remote.max_retries` | 5 | how often a failed request is retried |
    | `remote.timeout` | 120 | the seconds that one request may take, with all of its retries |

    >>> config["array.order"], config.get("array")["order"], "array.order" in config
    ('C', 'C', True)
    >>> with config.set(array__order="F"), config.set({"array": {"write_empty_chunks": True}}):
    ...     config["array.order"], config["array.write_empty_chunks"]
    ('F', True)
    """

    def __init__(self) -> None:
        self._initial = {key: setting.default for key, setting in _SETTINGS.items()}
        self._initial |= _from_environment(os.environ)
        self._values = dict(self._initial)

    # -- asking -----------------------------------------------------------------------------------

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return a setting, or a section as a dict; for an unknown key the default, or raise KeyError.

        Parameters
        ----------
        key
            The dotted key of a setting, or the name of a section.
        default
            What is returned for an unknown key.

        >>> config.get("threading")
        {'max_workers': None}
        >>> config.get("codecs.zstd", "not here")
        'not here'
        """
        try:
            return self._values[key]
        except KeyError:
            if key in _SECTIONS:
                return self.to_dict()[key]
            if default is not _REQUIRED:
                return default
            raise _unknown(key, _SECTIONS) from None

    def __getitem__(self, key: str) -> Any:
        return self.get(key)

    def __contains__(self, key: object) -> bool:
        return key in _SETTINGS or key in _SECTIONS

    def __iter__(self) -> Iterator[str]:
        return iter(_SETTINGS)

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of all settings, each section as a dict of its own.

        >>> config.to_dict()["async"]
        {'concurrency': 10, 'timeout': None}
        """
        tree: dict[str, Any] = {}
        for key, value in self._values.items():
            section, _, name = key.rpartition(".")
            (tree.setdefault(section, {}) if section else tree)[name] = value
        return tree

    def pprint(self) -> None:
        """Print all settings, one on each line."""
        for key, value in self._values.items():
            print(f"{key} = {value!r}")

    def __repr__(self) -> str:
        return f"Config({self._values!r})"

    # -- changing ---------------------------------------------------------------------------------

    def set(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> AbstractContextManager[Config]:
        """Change settings at once; as `with config.set(…):` only until the end of the block.

        If one value is refused, nothing changes. The end of a block restores what it has set, and nothing else.

        Parameters
        ----------
        values
            Settings by their dotted keys, or in nested mappings.
        named
            Settings as keyword arguments, such as `array__order="F"`.

        >>> with config.set({"array.order": "F"}):
        ...     with config.set(array__order="C"):
        ...         inner = config["array.order"]
        ...     inner, config["array.order"]
        ('C', 'F')
        """
        dotted = {name.replace("__", "."): value for name, value in named.items()}
        new = {key: _check(key, value) for key, value in (*_flat(as_mapping(values or {}, "values")), *_flat(dotted))}
        before = {key: self._values[key] for key in new}
        self._values |= new
        return self._restoring(before)

    def update(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Change settings for good. Parameters: see `set`."""
        self.set(values, **named)

    def reset(self) -> None:
        """Set everything as it was when zellige was first used: to its default, or to what the environment says."""
        self._values |= self._initial

    @contextmanager
    def _restoring(self, before: dict[str, Any]) -> Iterator[Config]:
        try:
            yield self
        finally:
            self._values |= before


def _flat(values: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings with dotted keys, out of mappings that are nested or not."""
    for name, value in values.items():
        if name in _SECTIONS and not section and isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        else:
            yield f"{section}{name}", value


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return settings spelt `ZELLIGE_A__B`; values are numbers, None, True and False in any case, or plain words."""
    found = {}
    for key in _SETTINGS:
        variable = "ZELLIGE_" + key.upper().replace(".", "__")
        if variable in environment:
            try:
                found[key] = _check(key, _parsed(environment[variable].strip()))
            except ValueError as error:
                raise ValueError(f"environment variable {variable}: {error}") from None
    return found


_WORDS = {"none": None, "true": True, "false": False}


def _parsed(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


config = Config()
"""The settings of this process."""


@dataclass(frozen=True, slots=True)
class ArrayConfig:
    """What one handle of an array does; not part of the stored array."""

    order: Literal["C", "F"] = "C"
    """The memory order of results."""
    write_empty_chunks: bool = False
    """Whether chunks that hold only the fill value are stored."""
    read_missing_chunks: bool = True
    """Whether a missing chunk reads as fill; False makes it an error."""
    casting: Casting = "same_value"
    """Whether values that the type cannot hold are refused, or changed as numpy's `astype` does."""
    durability: Durability | None = None
    """What written chunks survive; None leaves it to the store."""
    sharding_coalesce_max_gap_bytes: int | None = None
    """Inner chunks of a shard no further apart are read together; None leaves it to the store."""
    sharding_coalesce_max_bytes: int = 16 << 20
    """The most bytes that are read together."""
    uneven_inner_chunks: bool = False
    """Whether inner chunks that do not divide their shard may be written; they are read always."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | ArrayConfig | None = None) -> ArrayConfig:
        """Return the process's settings, changed by what is given for one array."""
        if isinstance(given, ArrayConfig):
            return given
        of_process = _array_config(_array_values(config._values))
        return of_process.changed(given) if given else of_process

    def changed(self, given: Mapping[str, Any] | ArrayConfig | None) -> ArrayConfig:
        """Return these settings with those `given` changed, by name; a given `ArrayConfig` changes all."""
        if isinstance(given, ArrayConfig):
            return given
        if not given:
            return self
        checked = {name: _check(f"array.{name}", value) for name, value in as_mapping(given, "config").items()}
        own = {name: checked.pop(name) for name in self.__slots__ if name in checked}
        if checked:
            raise KeyError(f"array.{min(checked)} is a setting of the process, not of one array; use config.set")
        return replace(self, **own)


_array_values = itemgetter(*[f"array.{name}" for name in ArrayConfig.__slots__])


@cache
def _array_config(values: tuple[Any, ...]) -> ArrayConfig:
    """Return the same object for the same settings, since it never changes."""
    return ArrayConfig(*values)


progress_sink: ContextVar[bool | Callable[[int, int, str], object] | None] = ContextVar("progress", default=None)
"""Where operations of this thread report their progress, as `zellige.progress` sets it; None for nowhere."""
