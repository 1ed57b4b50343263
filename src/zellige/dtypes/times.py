"""Points in time and spans of it: `numpy.datetime64` and `numpy.timedelta64`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zellige.dtypes.base import FIELD, DataType, integer, only_keys
from zellige.dtypes.cast import limits
from zellige.errors import fail
from zellige.types import JSON, AnyArray

_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic")
_MICRO = {"μs": "us", "µs": "us"}  # with the Greek letter and with the sign
_NAMES = {"M": "numpy.datetime64", "m": "numpy.timedelta64"}
_LOW, _HIGH = limits(np.dtype(np.int64))
_NAT = "NaT"


class Time(DataType):
    """Counts of a unit, or of some of them; the least integer stands for no time at all."""

    __slots__ = ()

    def default(self) -> AnyArray:
        """What was never written is no time at all, rather than the year 1970."""
        return np.array(_LOW).view(self.numpy)

    def _expected(self) -> str:
        return (
            f'an integer of 64 bits, "{_NAT}", or {"a date or a time" if self.numpy.kind == "M" else "a span of time"}'
        )

    def _read(self, value: JSON) -> AnyArray | None:
        count = _LOW if value == _NAT else value
        return np.array(count).view(self.numpy) if type(count) is int and _LOW <= count <= _HIGH else None

    def write_fill(self, fill: AnyArray) -> JSON:
        """The count, or "NaT"."""
        return _NAT if np.isnat(fill) else int(fill.view(np.int64))

    def _cast(self, value: Any) -> AnyArray | None:
        """A user's value by the rules for elements, but spans of time have no text, and no times are bytes."""
        is_text = isinstance(value, str | bytes) and (self.numpy.kind == "m" or value == _NAT or type(value) is bytes)
        return self._read(value) if is_text else self._element(value, self.numpy)


def from_json(name: str, configuration: Mapping[str, JSON]) -> DataType:
    """The type with a `unit` and a `scale_factor`, as 10 and `us` for steps of 10 microseconds."""
    only_keys(name, configuration, "unit", "scale_factor")
    given = configuration["unit"]
    unit = _MICRO.get(given, given) if isinstance(given, str) else None
    if unit not in _UNITS:
        fail(f"{FIELD}.unit", f"one of {', '.join(_UNITS)}", given)
    return _time("M" if name == _NAMES["M"] else "m", unit, integer(configuration, "scale_factor", 1, 2**31 - 1))


def from_numpy(dtype: np.dtype[Any]) -> DataType:
    """The data type of numpy's `datetime64` and `timedelta64`."""
    return _time(dtype.kind, *np.datetime_data(dtype))


def _time(kind: str, unit: str, scale: int) -> DataType:
    numpy = np.dtype(f"{kind}8" if unit == "generic" else f"{kind}8[{scale}{unit}]")
    return Time.of(_NAMES[kind], numpy, {"unit": unit, "scale_factor": scale})
