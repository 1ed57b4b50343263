"""Encoded values that mean what was given: xarray casts without a look, and what does not fit wraps around.

xarray encodes (`compat.encode_variable`). Here its result is compared with what the same encoding gives before the last
cast. A value may be rounded to the nearest packed number (`scale_factor`, `add_offset`) or float. It is a loss if

* a number for integers lies outside their range, or is infinite; a finite number for floats becomes infinite;
* a number for integers that are not packed has a fraction;
* a missing value (NaN, NaT) is stored as something that readers do not take for missing;
* a value that is not missing is stored as `_FillValue` or `missing_value`, which readers take for missing;
* text or bytes are cut, or missing, or no UTF-8 (`text`);
* a time is rounded, because a short type of floats does not hold it.

Data in memory is looked at before anything is written, blocks of dask as they are encoded.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pandas as pd

import xarray as xr
from zellige import errors
from zellige.xarray import compat, text

_CONVENTIONS = ("dtype", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar")
_PIECE = 1 << 20  # elements that are looked at together


def encode(
    variable: xr.Variable,
    name: str,
    zarr_format: Any,
    casting: Literal["same_value", "unsafe"] = "same_value",
    *,
    as_text: bool = False,
) -> Any:
    """A variable as it is stored; raises `LossyCastError` for values that would be read as others.

    Parameters
    ----------
    variable
        The values, and how they are to be encoded.
    name
        The name of the variable, for messages.
    zarr_format
        The Zarr format that it is written in, 2 or 3.
    casting
        "unsafe" lets values change, as xarray does.
    as_text
        Whether they join text that is stored already.
    """
    _check_types(variable, name)
    if variable.dtype.kind == "O" and not variable.size and compat.vlen_type(variable.dtype) is None:
        times = _no_times(variable, name, zarr_format)
        if times is not None:
            return times
    variable = text.without_missing(variable, name, casting, expected=as_text)
    in_memory = variable.chunks is None
    if in_memory and _keeps_values(variable):
        return _encoded(variable, name, zarr_format)  # what comes from a file is read when it is written
    # What comes from a file is read once.
    variable = variable.copy(deep=False).load() if in_memory else _without_masks(variable)
    if np.dtype(variable.encoding.get("dtype", variable.dtype)).kind not in "SU":
        text.check_encodable(variable, name)
    encoded = _encoded(variable, name, zarr_format)
    if encoded.dtype.kind in "SU" and casting != "unsafe":
        text.check_ends(variable, name)
    check = None if casting == "unsafe" else _check_for(variable, encoded, name, zarr_format)
    if check is None:
        return encoded
    if not in_memory:
        meta = np.empty((0,) * encoded.ndim, encoded.dtype)
        return encoded.copy(data=variable.data.map_blocks(check.block, dtype=encoded.dtype, meta=meta))
    for start, rows in _pieces(variable):
        check.compare(variable[rows].values, encoded[rows].values, start)
    return encoded


def _check_types(variable: xr.Variable, name: str) -> None:
    """Refuse types that cannot be stored, and encodings that name none."""
    if not isinstance(variable.dtype, np.dtype):
        is_category = isinstance(variable.dtype, pd.CategoricalDtype)
        remedy = "its labels with astype(str), or its codes" if is_category else "it as a type of numpy, or its parts"
        raise TypeError(
            f"variable {name!r} has the type {variable.dtype!s} of pandas, which Zarr has not; store {remedy}"
        )
    wanted = variable.encoding.get("dtype")
    try:
        np.dtype(wanted)
    except TypeError as error:
        raise TypeError(
            f"variable {name!r}: the encoding dtype={wanted!r} is no type of numpy; give one such as 'int16'"
        ) from error


def _no_times(variable: xr.Variable, name: str, zarr_format: Any) -> Any:
    """No rows of times of cftime, encoded as the first of them would be; None if they are no times.

    Objects of which there are none do not say what they are: their units do, or their index.
    """
    units, calendar = variable.encoding.get("units"), variable.encoding.get("calendar")
    is_time = isinstance(units, str) and " since " in units
    is_index = variable.ndim == 1 and isinstance(variable.to_index_variable().to_index(), xr.CFTimeIndex)
    if not is_time and not is_index:
        return None
    if not is_time or calendar is None:
        raise ValueError(
            f"variable {name!r} has no rows, and times of cftime without rows do not tell their units and calendar; "
            f"give both, such as encoding={{{name!r}: {{'units': 'hours since 2000-01-01', 'calendar': 'noleap'}}}}"
        )
    cftime = import_module("cftime")
    try:
        origin = cftime.num2date(0, units, calendar)
    except ValueError as error:
        raise ValueError(
            f"variable {name!r} cannot be encoded with {_conventions(variable)}: {error}; choose units and a calendar "
            "that fit"
        ) from error
    one = np.full((1,) * variable.ndim, origin, object)
    encoded = _encoded(xr.Variable(variable.dims, one, variable.attrs, variable.encoding), name, zarr_format)
    return xr.Variable(encoded.dims, np.empty(variable.shape, encoded.dtype), encoded.attrs, encoded.encoding)


def _keeps_values(variable: xr.Variable) -> bool:
    """Whether an encoding stores numbers as they are: in their own type, with nothing but NaN for missing ones."""
    given = _conventions(variable)
    same_type = np.dtype(given.pop("dtype", variable.dtype)) == variable.dtype
    fill = given.pop("_FillValue", np.nan)
    return variable.dtype.kind in "biufc" and same_type and not given and np.ndim(fill) == 0 and fill != fill


def _without_masks(variable: xr.Variable) -> xr.Variable:
    """Masked blocks of dask with NaN or NaT, as newer versions of xarray have them; integers have neither, and stay."""
    if not isinstance(getattr(variable.data, "_meta", None), np.ma.MaskedArray) or variable.dtype.kind not in "fcmM":
        return variable
    missing: Any = variable.dtype.type("NaT" if variable.dtype.kind in "mM" else np.nan)
    return variable.copy(deep=False, data=variable.data.map_blocks(np.ma.filled, missing, dtype=variable.dtype))


def _encoded(variable: xr.Variable, name: str, zarr_format: Any) -> Any:
    """What xarray makes of a variable, without the warnings about casts, which are looked at here."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        try:
            return compat.encode_variable(variable, name, zarr_format)
        except (ValueError, TypeError, OverflowError) as error:
            if repr(name) in str(error):
                raise
            fact = f"variable {name!r} cannot be encoded with {_conventions(variable)}: {error}"
            text = f"{fact}; choose a _FillValue, dtype, scale_factor, units or calendar that fit"
            if isinstance(error, OverflowError):
                raise errors.LossyCastError(text, index=(), fact=fact) from error
            raise (TypeError if isinstance(error, TypeError) else ValueError)(text) from error


def _conventions(variable: xr.Variable) -> dict[str, Any]:
    """The parts of an encoding that change values."""
    return {key: variable.encoding[key] for key in _CONVENTIONS if variable.encoding.get(key) is not None}


def _pieces(variable: xr.Variable) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Where each piece begins, and an index of it: rows along the first axis."""
    if not variable.size or not variable.ndim:
        yield (0,) * variable.ndim, ...
        return
    count = max(1, _PIECE * variable.shape[0] // variable.size)
    for start in range(0, variable.shape[0], count):
        yield (start, *[0] * (variable.ndim - 1)), slice(start, start + count)


def _check_for(variable: xr.Variable, encoded: xr.Variable, name: str, zarr_format: Any) -> _Check | None:
    """What to look at; None if the encoding changes no value."""
    given, stored = variable.dtype, encoded.dtype
    encoding = _conventions(variable)
    if not isinstance(given, np.dtype) or not encoding:
        return None
    is_time = given.kind in "mM" or (given.kind == "O" and ("units" in encoding or "calendar" in encoded.attrs))
    if is_time:
        encoding |= {key: encoded.attrs[key] for key in ("units", "calendar") if key in encoded.attrs}
    found = [encoded.attrs[key] for key in ("_FillValue", "missing_value") if key in encoding and key in encoded.attrs]
    fills = tuple(fill for one in found for fill in np.ravel(one).tolist() if not pd.isnull(fill))
    facts = (name, stored, dict(variable.attrs), dict(encoded.attrs), encoding, fills, zarr_format)
    if stored.kind in "SU":
        return _Text(*facts) if "dtype" in encoding and given != stored else None
    if stored.kind not in "biufc" or given.kind not in "biufcmMO":
        return None
    if is_time:
        return _Times(*facts) if "dtype" in encoding or fills else None
    held = given.kind != "O" and np.can_cast(given, stored, "safe")
    return None if held and not fills and not _is_packed(encoding) else _Numbers(*facts)


def _is_packed(encoding: Mapping[str, Any]) -> bool:
    return "scale_factor" in encoding or "add_offset" in encoding


@dataclass(frozen=True)
class _Check(ABC):
    """How one variable is encoded, and what its stored values mean to readers."""

    name: str
    dtype: np.dtype[Any]
    """The type of what is stored."""
    given_attributes: dict[Any, Any]
    attributes: dict[Any, Any]
    """Those that readers find."""
    encoding: dict[str, Any]
    fills: tuple[Any, ...]
    """Stored numbers that readers take for missing."""
    zarr_format: Any

    def block(self, given: Any, block_info: Any = None) -> Any:
        """A block of dask, encoded and compared."""
        variable = xr.Variable([f"axis_{k}" for k in range(given.ndim)], given)  # without a mask
        encoded = self.encoded(variable.values, self.encoding)
        start = tuple(first for first, _ in block_info[0]["array-location"])
        units = encoded.attrs.get("units")
        if units != self.attributes.get("units"):
            fact = f"variable {self.name!r}: times in the block at {start} need the units {units!r}"
            remedy = f"they are stored in {self.attributes.get('units')!r}, choose other units in encoding"
            raise errors.LossyCastError(f"{fact}; {remedy}, or a dtype of floats", index=start, fact=fact)
        self.compare(variable.values, encoded.values, start)
        return encoded.values

    def encoded(self, given: Any, encoding: dict[str, Any]) -> xr.Variable:
        """Values as an encoding stores them, without the warnings that xarray has given before."""
        dims = [f"axis_{k}" for k in range(given.ndim)]
        variable = xr.Variable(dims, given, self.given_attributes, dict(encoding))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: xr.Variable = compat.encode_variable(variable, self.name, self.zarr_format)
            return found

    def compare(self, given: Any, stored: Any, start: tuple[int, ...]) -> None:
        """Raise for the first value that readers would take for another one; `start` is where the values begin."""
        with np.errstate(all="ignore"):
            if self.is_sound(given, stored):
                return
            lost = np.asarray(self.lost(given, stored))
        if not lost.any():
            return
        at = tuple(int(k) for k in np.unravel_index(int(lost.argmax()), lost.shape))
        index = tuple(k + first for k, first in zip(at, start, strict=True))
        what, remedy = self.reason(given[at], stored[at], index)
        fact = f"variable {self.name!r}: {what}"
        raise errors.LossyCastError(f"{fact}; {remedy}, or pass casting='unsafe'", index=index, fact=fact)

    def is_sound(self, given: Any, stored: Any) -> bool:
        """Whether a quick look shows that nothing is lost."""
        return False

    @abstractmethod
    def lost(self, given: Any, stored: Any) -> Any:
        """Where values are not what they were."""

    @abstractmethod
    def reason(self, given: Any, stored: Any, index: tuple[int, ...]) -> tuple[str, str]:
        """What is wrong with a value, and what to do about it."""


class _Text(_Check):
    """Text and bytes of a fixed length."""

    @property
    def _longest(self) -> int:
        return self.dtype.itemsize // (4 if self.dtype.kind == "U" else 1)

    def lost(self, given: Any, stored: Any) -> Any:
        """Where elements are longer than the type."""
        lengths = [len(item) if isinstance(item, str | bytes) else 0 for item in np.ravel(given).tolist()]
        return (np.array(lengths, np.int64) > self._longest).reshape(np.shape(given))

    def reason(self, given: Any, stored: Any, index: tuple[int, ...]) -> tuple[str, str]:
        """It is too long."""
        what = f"{str(given)[:80]!r} at {index} is longer than its encoding, {self.dtype}, which holds {self._longest}"
        return what, "choose a longer dtype in encoding"


class _Numbers(_Check):
    """Numbers, packed or not."""

    def is_sound(self, given: Any, stored: Any) -> bool:
        """Whether the same are missing, and the least and the greatest fit: then so does what lies between them."""
        if given.dtype.kind not in "biufmM" or not given.size or (pd.isnull(given) != self.hidden(stored)).any():
            return False
        if given.dtype.kind == "f" and self._is_exact:
            return False  # any of them may have a fraction
        ends = np.array([np.fmin.reduce(given, axis=None), np.fmax.reduce(given, axis=None)])
        if pd.isnull(ends).any():
            return True  # nothing is there
        return not self._differ(self.wide(ends), self.read(self.encoded(ends, self.encoding).values)).any()

    def lost(self, given: Any, stored: Any) -> Any:
        """Where numbers are not what they were, but for rounding."""
        missing, hidden = np.asarray(pd.isnull(given)), self.hidden(stored)
        return np.where(missing, ~hidden, hidden | self._differ(self.wide(given), self.read(stored)))

    def wide(self, given: Any) -> Any:
        """The numbers that are stored, before they are rounded and cast."""
        if _is_packed(self.encoding):
            return self.encoded(given, self._wider("float64")).values
        return given.astype(np.float64) if given.dtype.kind == "O" else given

    def _wider(self, dtype: str) -> dict[str, Any]:
        return {**{key: value for key, value in self.encoding.items() if key != "_Unsigned"}, "dtype": dtype}

    @property
    def _is_exact(self) -> bool:
        """Whether stored numbers mean themselves, so that nobody asked for rounding: integers that are not packed."""
        return self.dtype.kind in "biu" and not _is_packed(self.encoding)

    def _differ(self, wide: Any, read: Any) -> Any:
        if wide.dtype.kind == "c" and read.dtype.kind != "c":
            return (wide.imag != 0) | self._differ(wide.real, read)
        if read.dtype.kind in "fc":
            return np.where(np.isfinite(wide), ~np.isfinite(read), wide != read)
        return wide != read if self._is_exact or wide.dtype.kind in "biu" else ~(np.abs(wide - read) <= 0.5)

    def read(self, stored: Any) -> Any:
        """Stored numbers as readers take them: `_Unsigned` says that integers have the other sign."""
        sign = {"true": "u", "false": "i"}.get(str(self.attributes.get("_Unsigned")))
        if sign is None or stored.dtype.kind not in "iu":
            return stored
        return stored.view(f"{sign}{stored.dtype.itemsize}")

    def hidden(self, stored: Any) -> Any:
        """Where readers find a missing value."""
        is_float = stored.dtype.kind in "fc"
        found = np.isnan(stored) if is_float else np.zeros(np.shape(stored), bool)
        for fill in self.fills:
            found = found | (stored == (self.dtype.type(fill) if is_float else fill))
        return found

    def reason(self, given: Any, stored: Any, index: tuple[int, ...]) -> tuple[str, str]:
        """Whether it is missing, taken for missing, or does not fit."""
        if pd.isnull(given):
            what = f"the value at {index} is missing ({given}), and {self.dtype} would store it as {stored}"
            return what, "give a _FillValue in encoding, or fill what is missing"
        if self.hidden(np.asarray(stored)):
            what = f"value {given} at {index} would be stored as {stored}, its _FillValue, and be read as missing"
            return what, "choose another _FillValue in encoding, or make the value missing"
        if self._is_exact and self._is_fraction(given):
            what = f"value {given} at {index} has a fraction, and {self.dtype} would store it as {stored}"
            return what, "round the values, or choose a dtype of floats, or a scale_factor, in encoding"
        return f"value {given} at {index} does not fit {self._described()}", self._remedy

    def _is_fraction(self, given: Any) -> bool:
        """Whether a number is in the range of the type, but between two numbers of it."""
        low, high = self._ends()
        return isinstance(given, float | np.floating) and bool(low <= given <= high) and not float(given).is_integer()

    _remedy = "choose another dtype, scale_factor or add_offset in encoding"

    def _described(self) -> str:
        parts = [f"{key}={self.encoding[key]}" for key in ("scale_factor", "add_offset") if key in self.encoding]
        scale, offset = self.encoding.get("scale_factor", 1), self.encoding.get("add_offset", 0)
        low, high = sorted(float(end * scale + offset) for end in self._ends())
        return f"{self.dtype}{' with ' * bool(parts)}{' and '.join(parts)}, which holds {low:.10g} to {high:.10g}"

    def _ends(self) -> tuple[float, float]:
        """The least and the greatest number that readers may find."""
        kind = self.read(np.empty(0, self.dtype)).dtype
        if kind.kind == "b":
            return 0.0, 1.0
        info: Any = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
        return float(info.min), float(info.max)


class _Times(_Numbers):
    """Dates and spans of time, stored as numbers of units."""

    def wide(self, given: Any) -> Any:
        """The numbers of units in a wide type."""
        return self.encoded(given, self._wider("int64" if self.dtype.kind in "iu" else "float64")).values

    def hidden(self, stored: Any) -> Any:
        """Where readers find a missing value; xarray takes the least integer of 64 bits for one."""
        found = super().hidden(stored)
        return found | (stored == np.iinfo(np.int64).min) if self.dtype == np.int64 else found

    @property
    def _is_short(self) -> bool:
        """Whether numbers of units are floats that do not hold most times."""
        return self.dtype.kind == "f" and self.dtype.itemsize < np.dtype(np.float64).itemsize

    def is_sound(self, given: Any, stored: Any) -> bool:
        """Whether a quick look tells: any time may be rounded in a short type of floats."""
        return not self._is_short and super().is_sound(given, stored)

    def _differ(self, wide: Any, read: Any) -> Any:
        if not self._is_short:
            return super()._differ(wide, read)
        # A few units in the last place of the wide type, in which the times were divided by their unit.
        return ~(np.abs(wide - read.astype(np.float64)) <= 4 * np.spacing(np.abs(wide)))

    def reason(self, given: Any, stored: Any, index: tuple[int, ...]) -> tuple[str, str]:
        """Whether it is missing, taken for missing, rounded, or does not fit."""
        found = super().reason(given, stored, index)
        if not self._is_short or pd.isnull(given) or self.hidden(np.asarray(stored)) or not np.isfinite(stored):
            return found
        units = self.encoding.get("units")
        what = f"time {given} at {index} is no number of {self.dtype} in {units!r}, which would store it as {stored}"
        return what, "choose the dtype int64 or float64, or other units, in encoding"

    _remedy = "choose another dtype or units in encoding"

    def _described(self) -> str:
        low, high = self._ends()
        return f"{self.dtype} in {self.encoding.get('units')!r}, which holds {low:.10g} to {high:.10g}"
