"""Settings: typed, with dotted keys; for a while by `with`, for a process by environment variables.

>>> with config.set({"threading.max_workers": 1}):
...     config.get("threading.max_workers")
1

`ZELLIGE_THREADING__MAX_WORKERS=4` in the environment sets the same key when zellige is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

_DEFAULTS: dict[str, Any] = {
    "threading.max_workers": None,  # None: the CPUs that this process may use
    "array.order": "C",
    "array.write_empty_chunks": False,
    "array.read_missing_chunks": True,
}

_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "threading.max_workers": (lambda v: v is None or (type(v) is int and v >= 1), "an integer >= 1, or None"),
    "array.order": (lambda v: v in ("C", "F"), "'C' or 'F'"),
    "array.write_empty_chunks": (lambda v: isinstance(v, bool), "True or False"),
    "array.read_missing_chunks": (lambda v: isinstance(v, bool), "True or False"),
}


def _check(key: str, value: Any) -> Any:
    if key not in _CHECKS:
        raise KeyError(f"there is no setting {key!r}; known: {', '.join(_CHECKS)}")
    accepts, expected = _CHECKS[key]
    if not accepts(value):
        raise ValueError(f"setting {key} must be {expected}, found {value!r}")
    return value


class Config:
    """The settings of this process."""

    def __init__(self) -> None:
        self._values = {**_DEFAULTS, **_from_environment(os.environ)}

    def get(self, key: str) -> Any:
        """The value of a setting."""
        try:
            return self._values[key]
        except KeyError:
            raise KeyError(f"there is no setting {key!r}; known: {', '.join(_CHECKS)}") from None

    def set(self, values: Mapping[str, Any]) -> AbstractContextManager[Config]:
        """Change settings at once; as `with config.set(…):` only until the end of the block."""
        before = dict(self._values)
        self._values |= {key: _check(key, value) for key, value in values.items()}
        return self._restoring({key: before[key] for key in values})

    @contextmanager
    def _restoring(self, before: dict[str, Any]) -> Iterator[Config]:
        try:
            yield self
        finally:
            self._values |= before

    def __repr__(self) -> str:
        return f"Config({self._values!r})"


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Settings spelt `ZELLIGE_A__B`; values are Python literals or plain words."""
    found = {}
    for key in _DEFAULTS:
        text = environment.get("ZELLIGE_" + key.upper().replace(".", "__"))
        if text is not None:
            words = {"none": None, "true": True, "false": False}
            value = words.get(text.lower(), int(text) if text.lstrip("-").isdigit() else text)
            found[key] = _check(key, value)
    return found


config = Config()


@dataclass(frozen=True, slots=True)
class ArrayConfig:
    """What one handle of an array does; not part of the stored array."""

    order: Literal["C", "F"] = "C"
    """The memory order of results."""
    write_empty_chunks: bool = False
    """Whether chunks that hold only the fill value are stored."""
    read_missing_chunks: bool = True
    """Whether a missing chunk reads as fill; False makes it an error."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | ArrayConfig | None = None) -> ArrayConfig:
        """The process's settings, changed by what is given for one array."""
        return cls(**{name: config.get(f"array.{name}") for name in cls.__slots__}).changed(given)

    def changed(self, given: Mapping[str, Any] | ArrayConfig | None) -> ArrayConfig:
        """These settings with some of them changed; an `ArrayConfig` changes all."""
        if isinstance(given, ArrayConfig):
            return given
        for name, value in (given or {}).items():
            _check(f"array.{name}", value)
        return replace(self, **(given or {}))
