"""`chunks={"time": "month"}`: calendar periods, frequencies and labels turned into the ends of chunks.

A period is one chunk, declared at its full length: the chunk of a month that is not over has room for the days to come,
which appends fill. How many elements are to come follows from the step of the times.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

import xarray as xr
from zellige import errors

WORDS = ("year", "quarter", "month", "week", "day", "hour", "minute")
_ALIASES = {"YS": "year", "YE": "year", "QS": "quarter", "QE": "quarter", "MS": "month", "ME": "month"}
_ALIASES |= {"D": "day", "h": "hour", "min": "minute"}

_MONTH = timedelta(days=27)  # times that lie closer together are no monthly ones
_TAIL = 400  # stored times that tell the step: more than a year of days


@dataclass(frozen=True)
class Ends:
    """Where the chunks of an axis end, counted from its beginning; the last may lie beyond the axis."""

    ends: tuple[int, ...]

    def after(self, reach: int) -> list[int]:
        """The sizes of the chunks after a position: the first is what is left of the chunk around it."""
        return [b - a for a, b in pairwise([reach, *(end for end in self.ends if end > reach)])]


Cut: TypeAlias = int | str | list[int] | Ends
"""How an axis is cut: a size, "auto", the edges of its new region, or the ends of chunks by a rule."""


@dataclass(frozen=True)
class Rule:
    """A calendar period, or a frequency of pandas, for each chunk."""

    period: str
    step: str | None = None
    """The step of the times, as a frequency; None where the times tell."""

    @classmethod
    def parse(cls, entry: Any) -> Rule | None:
        """The rule that an entry of `chunks=` is: a word, or a word and a step; None if it is none."""
        if isinstance(entry, str):
            return cls(entry)
        if isinstance(entry, list | tuple) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
            return cls(*entry)
        return None

    def to_json(self) -> Any:
        """The rule as an attribute."""
        return self.period if self.step is None else [self.period, self.step]


def resolve_chunks(
    ds: xr.Dataset, chunks: Any, stored: Mapping[Any, pd.Index] | None = None, rules: Mapping[Any, Rule] | None = None
) -> tuple[dict[Any, Cut], dict[Any, Rule]]:
    """What `chunks=` says about each dimension, and the calendar rules among it.

    An entry is a size, -1 for the whole dimension, edges, which may reach beyond its end, the name of a coordinate
    whose equal consecutive labels go into one chunk (also `"time.season"` and the like), one of the words `year`,
    `quarter`, `month`, `week`, `day`, `hour` and `minute`, or a frequency of pandas such as `"10D"`. A word or a
    frequency may come with the step of the times: `("month", "6h")`.

    `chunks` has an entry for each dimension, or is one for all. `stored` are coordinates that are stored already, by
    dimension, if the dataset is appended to them; `rules` are those that they were written with, for dimensions that
    `chunks` does not name.

    >>> import pandas as pd
    >>> time = pd.date_range("2024-01-01", "2024-03-20")
    >>> ds = xr.Dataset(coords={"time": time})
    >>> resolve_chunks(ds, {"time": "month"})[0]
    {'time': Ends(ends=(31, 60, 91))}
    """
    given = chunks if isinstance(chunks, Mapping) else {} if chunks is None else dict.fromkeys(ds.sizes, chunks)
    cuts: dict[Any, Cut] = {}
    found: dict[Any, Rule] = {}
    for dim, entry in given.items():
        rule = Rule.parse(entry)
        if entry is None:
            continue
        if rule is None or rule.period == "auto":
            cuts[dim] = "auto" if rule is not None else _sizes(dim, ds.sizes[dim], entry)
        elif rule.period in ds.coords or "." in rule.period:
            cuts[dim] = _by_labels(ds, dim, rule.period)
        else:
            found[dim] = rule
            cuts[dim] = _by_rule(ds, dim, rule, (stored or {}).get(dim))
    for dim, rule in (rules or {}).items():
        if dim in ds.sizes and dim not in given:
            try:
                cuts[dim] = _by_rule(ds, dim, rule, (stored or {}).get(dim))
                found[dim] = rule
            except ValueError as error:
                warnings.warn(
                    f"{error}. The dataset was written by {rule.period!r}, but these values cannot be: their blocks "
                    "become chunks",
                    errors.ZelligeWarning,
                    stacklevel=2,
                )
    return cuts, found


def _sizes(dim: Any, length: int, entry: Any) -> int | list[int]:
    if _is_size(entry) or (isinstance(entry, int | np.integer) and entry == -1):
        return max(1, length) if entry == -1 else int(entry)
    edges = list(entry) if isinstance(entry, Iterable) else []
    if not edges or not all(map(_is_size, edges)):
        raise ValueError(
            f"chunks: {dim!r} must be a size, edges (a list of sizes), all above 0, -1 for the whole dimension, a "
            f"period such as 'month', or the name of a coordinate, found {entry!r}"
        )
    if sum(edges) < length:
        raise ValueError(
            f"chunks: the edges of {dim!r} sum to {sum(edges)}, its length is {length}; they may reach beyond its end, "
            "but not end before it"
        )
    return edges


def _is_size(entry: Any) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool) and int(entry) > 0


def _by_labels(ds: xr.Dataset, dim: Any, name: str) -> list[int]:
    labels = ds[name]
    if labels.dims != (dim,):
        raise ValueError(f"chunks: {name!r} has the dimensions {labels.dims}; labels of {dim!r} have that one only")
    return _runs(labels.values) if ds.sizes[dim] else [1]


def _runs(labels: Any) -> list[int]:
    """The lengths of runs of equal labels."""
    ends = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    return [int(n) for n in np.diff(np.concatenate([[0], ends, [len(labels)]]))]


# -- calendar rules -------------------------------------------------------------------------------


def _by_rule(ds: xr.Dataset, dim: Any, rule: Rule, stored: pd.Index | None) -> Cut:
    if dim not in ds.indexes:
        raise ValueError(f"chunks: {rule.period!r} needs values along {dim!r}, which has no coordinate of its own")
    index = ds.indexes[dim] if stored is None or not len(stored) else _joined(stored, ds.indexes[dim])
    if not len(index):
        return 1  # nothing is cut yet; the rule is kept for what is appended
    if not index.is_monotonic_increasing:
        raise ValueError(f"chunks: {rule.period!r} needs times that ascend along {dim!r}")
    try:
        return _ends(index, rule)
    except (TypeError, ValueError, AttributeError) as error:
        known = ", ".join(map(repr, [*WORDS, *(name for name, c in ds.coords.items() if c.dims == (dim,))]))
        raise ValueError(
            f"chunks: {rule.period!r} does not cut {dim!r}: {error}; use a frequency of pandas for times, or one of "
            f"{known}"
        ) from error


def _joined(first: Any, second: Any) -> Any:
    """Two indexes as one; times of the standard calendar may be those of cftime in one of them."""
    if isinstance(first, xr.CFTimeIndex) and isinstance(second, xr.CFTimeIndex):
        return xr.CFTimeIndex([*first, *second])  # which pandas would make an index of objects
    first, second = (
        index.to_datetimeindex(time_unit="ns") if isinstance(index, xr.CFTimeIndex) else index
        for index in (first, second)
    )
    return first.append(second)


def _ends(index: Any, rule: Rule) -> Ends:
    period = _ALIASES.get(rule.period, rule.period)
    step = _parse_step(rule.step) if rule.step is not None else _step(index[-_TAIL:])
    if period not in WORDS:
        _check_forward(period)
    counts = _counts(index, period)
    counts[-1] += 0 if step is None else _more(index, period, step)
    return Ends(tuple(int(end) for end in np.cumsum(counts)))


def _counts(index: Any, period: str) -> list[int]:
    """How many times lie in each period, a word or a frequency of pandas, without the periods that have none."""
    if period in WORDS:
        return _runs(_labels(index, period))
    ones = xr.DataArray(np.ones(len(index), np.int64), {"time": index}, ("time",))
    counts = ones.resample(time=period).count().values
    return [int(count) for count in np.nan_to_num(counts) if count > 0]


def _more(index: Any, period: str, step: _Step) -> int:
    """How many times are still to come in the last period."""
    ends = index[[0, -1]].unique()  # where a period begins may depend on the first time
    known = len(_counts(ends, period))

    def is_over(count: int) -> bool:
        later = _joined(ends, type(index)([step.after(index[-1], count)]))
        return len(_counts(later, period)) > known

    most = 1
    while not is_over(most):
        most *= 2
    return bisect_left(range(1, most), True, key=is_over)


_PARTS = {"month": 12, "day": 31, "hour": 60, "minute": 60}
"""What the periods below a year are called, and a factor that keeps them apart."""


def _labels(index: Any, word: str) -> Any:
    """A number for each time, equal for the times of one period."""
    if not hasattr(index, "year"):
        raise TypeError(f"it has values of type {index.dtype}, which are no times")
    if word == "week":
        return _weeks(index)
    found = np.asarray(index.year, np.int64)
    if word == "quarter":
        return found * 4 + (np.asarray(index.month) - 1) // 3
    for part in () if word == "year" else _PARTS:
        found = found * _PARTS[part] + np.asarray(getattr(index, part))
        if part == word:
            break
    return found


def _weeks(index: Any) -> Any:
    """The weeks of times, which begin on Mondays, counted without a gap."""
    if isinstance(index, pd.DatetimeIndex):
        return (index.values.astype("M8[D]").astype(np.int64) + 3) // 7  # 1970 began on a Thursday
    return np.array([time.toordinal() - time.dayofwk for time in index])


# -- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """The distance of one time to the next: a duration, or a number of months."""

    duration: Any = None
    months: int = 0

    def after(self, time: Any, count: int) -> Any:
        """The time so many steps after another one."""
        if not self.months:
            return time + count * self.duration
        year, month = divmod(time.year * 12 + time.month - 1 + count * self.months, 12)
        return time.replace(day=1, year=year, month=month + 1)


def _parse_step(text: str) -> _Step:
    """The step that a user gives, as a frequency of pandas."""
    offset = _check_forward(text)
    start = pd.Timestamp("2001-01-01") + 0 * offset
    later = (
        start + 12 * offset
    )  # one step of 31 or 90 days leads from the first of January to the first of a month, too
    months = (later.year - start.year) * 12 + later.month - start.month
    if months and later.day == start.day:
        return _Step(months=months // 12)
    return _Step((start + offset - start).to_pytimedelta())


def _check_forward(text: str) -> Any:
    """A frequency of pandas; raises if it does not lead forward in time."""
    offset = pd.tseries.frequencies.to_offset(text)
    if offset.n <= 0:
        raise ValueError(f"the frequency {text!r} is not above 0")
    return offset


def _step(index: Any) -> _Step | None:
    """The step of times, which may have gaps; None if they are irregular.

    One time alone does not tell. It is taken for that of daily values if it is a midnight, of hourly ones if it is a
    full hour, and of values for every minute otherwise.
    """
    if len(index) == 1:
        time = index[0]
        day, hour = time.hour == time.minute == time.second == 0, time.minute == time.second == 0
        return _Step(timedelta(days=1) if day else timedelta(hours=1) if hour else timedelta(minutes=1))
    differences = [later - earlier for earlier, later in pairwise(index) if later != earlier]
    if not differences:
        return None
    months = np.diff(_labels(index, "month"))
    if min(differences) >= _MONTH and len(set(months)) == 1 and months[0]:
        return _Step(months=int(months[0]))
    smallest = min(differences)
    return _Step(smallest) if all(not difference % smallest for difference in differences) else None


# -- units of stored times ------------------------------------------------------------------------

_UNITS = {
    unit: timedelta(**{unit: 1}) for unit in ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
}
_UNITS |= {"nanoseconds": timedelta(0)}
"""The units of xarray, the coarsest first."""


def fine_enough(units: str, step: str | None) -> str:
    """Units in which later times are whole numbers, too: with the origin of those given, and not coarser than they.

    Without a known step that is seconds.

    >>> fine_enough("days since 2024-01-01", "90min"), fine_enough("hours", None)
    ('minutes since 2024-01-01', 'seconds')
    """
    unit, since, origin = units.partition(" since ")
    if unit not in _UNITS:
        return units
    duration = timedelta(seconds=1) if step is None else _parse_step(step).duration or timedelta(days=1)
    needed = next(name for name, length in _UNITS.items() if not length or not duration % length)
    order = list(_UNITS)
    return f"{order[max(order.index(unit), order.index(needed))]}{since}{origin}"
