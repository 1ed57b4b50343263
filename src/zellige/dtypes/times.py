"""Points in time and spans of it: `numpy.datetime64` and `numpy.timedelta64`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import numpy as np

from zellige.dtypes.base import FIELD, DataType, integer, only_keys
from zellige.dtypes.fill import FillForm, bad, shown
from zellige.errors import MetadataError
from zellige.types import JSON, AnyArray

_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic")
_MICRO = {"μs": "us", "µs": "us"}  # with the Greek letter and with the sign
_LETTERS = {"numpy.datetime64": "M8", "numpy.timedelta64": "m8"}
_NAMES = {"M": "numpy.datetime64", "m": "numpy.timedelta64"}
_LIMITS = np.iinfo(np.int64)
_NAT = "NaT"


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """The type with a `unit` and a `scale_factor`, as 10 and `us` for steps of 10 microseconds."""
    only_keys(name, configuration, "unit", "scale_factor")
    given = configuration["unit"]
    unit = _MICRO.get(given, given) if isinstance(given, str) else None
    if unit not in _UNITS:
        raise MetadataError(
            f"{FIELD}.unit must be one of {', '.join(_UNITS)}, found {shown(given)}", field=f"{FIELD}.unit"
        )
    return _make(name, unit, integer(configuration, "scale_factor", 1, 2**31 - 1))


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of numpy's `datetime64` and `timedelta64`."""
    unit, scale = np.datetime_data(dtype)
    return _make(_NAMES[dtype.kind], unit, scale)


def _make(name: str, unit: str, scale: int) -> DataType:
    numpy = np.dtype(_LETTERS[name] if unit == "generic" else f"{_LETTERS[name]}[{scale}{unit}]")
    return DataType(name, numpy, _FORM, True, {"unit": unit, "scale_factor": scale})


# -- fill values ----------------------------------------------------------------------------------


def _read(value: JSON, dtype: np.dtype[Any]) -> AnyArray:
    if value == _NAT:
        value = _LIMITS.min
    if type(value) is not int or not _LIMITS.min <= value <= _LIMITS.max:
        raise bad(value, dtype, f'an integer of 64 bits or "{_NAT}"')
    return np.array(value, np.int64).view(dtype)


def _write(fill: AnyArray) -> JSON:
    return _NAT if np.isnat(fill) else int(fill.view(np.int64))


def _cast(value: Any, dtype: np.dtype[Any]) -> AnyArray:
    """A count of units, a time of numpy or Python, or the text of a date; none that would be rounded."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
        return _read(int(value), dtype)
    if isinstance(value, str) and value == _NAT:
        return _read(value, dtype)
    kinds = str | date | np.datetime64 if dtype.kind == "M" else timedelta | np.timedelta64
    known = isinstance(value, kinds) or (isinstance(value, np.ndarray) and value.dtype.kind == dtype.kind)
    if not known:
        raise bad(value, dtype, "a date or a time" if dtype.kind == "M" else "a span of time")
    try:
        source = np.asarray(value if isinstance(value, np.ndarray) else dtype.type(value))
        fill: AnyArray = source.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise MetadataError(f"fill_value {shown(value)} does not fit {dtype}: {error}", field="fill_value") from error
    if not (np.isnat(source) | (fill == source)).all():
        raise bad(value, dtype, "a whole number of its units")
    return fill


def _nat(dtype: np.dtype[Any]) -> AnyArray:
    """What was never written is no time at all, rather than the year 1970."""
    return _read(_NAT, dtype)


_FORM = FillForm(_read, _write, _cast, _nat)
