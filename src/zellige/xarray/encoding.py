"""How variables are stored: values encoded so that they mean what was given, then chunks, codecs and fill values.

xarray casts values without a look, and what does not fit wraps around. Here what it encodes (`compat.encode_variable`)
is compared with what the same encoding gives before the last cast. A value may be rounded to the nearest packed number
(`scale_factor`, `add_offset`) or float. It is a loss if

* a number for integers lies outside their range, or is infinite; a finite number for floats becomes infinite;
* a number for integers that are not packed has a fraction;
* a missing value (NaN, NaT) is stored as something that readers do not take for missing;
* a value that is not missing is stored as `_FillValue` or `missing_value`, which readers take for missing;
* text or bytes are cut, or missing (Zarr has no missing text, which xarray stores as "", "nan" or "None"), or no UTF-8;
* a time is rounded, because a short type of floats does not hold it.

Data in memory is looked at before anything is written, blocks of dask as they are encoded.
"""

from __future__ import annotations

import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

import xarray as xr
from zellige import Array, MemoryStore, create_array, create_hierarchy, errors
from zellige.xarray import compat
from zellige.xarray.calendar import Cut, Ends

Casting: TypeAlias = Literal["same_value", "unsafe"]
Index: TypeAlias = tuple[int, ...]

CONVENTIONS = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "dtype", "_Unsigned")
"""What says how values are stored, and what stored ones mean; those that are added later must agree."""
_BATCH = 1 << 20  # elements that are looked at together


def encode(
    variable: xr.Variable, name: str, zarr_format: Any, casting: Casting = "same_value", *, as_text: bool = False
) -> Any:
    """Return a variable as it is stored; raise `LossyCastError` for values that would be read as others.

    With `casting="unsafe"` values change, as in xarray. `as_text` says that they join text that is stored already.
    """
    _check_types(variable, name)
    if variable.dtype.kind == "O" and not variable.size and compat.vlen_type(variable.dtype) is None:
        times = _no_times(variable, name, zarr_format)
        if times is not None:
            return times
    variable = _without_missing_text(variable, name, casting, expected=as_text)
    in_memory = variable.chunks is None
    if in_memory and _keeps_values(variable):
        return _encoded(variable, name, zarr_format)  # what comes from a file is read when it is written
    # What comes from a file is read once.
    variable = variable.copy(deep=False).load() if in_memory else _without_masks(variable)
    if np.dtype(variable.encoding.get("dtype", variable.dtype)).kind not in "SU":
        _check_utf8(variable, name)
    encoded = _encoded(variable, name, zarr_format)
    if casting == "unsafe":
        return encoded
    if encoded.dtype.kind in "SU":
        check_ends(variable, name)
    check = _check_for(variable, encoded, name, zarr_format)
    if check is None:
        return encoded
    if not in_memory:
        meta = np.empty((0,) * encoded.ndim, encoded.dtype)
        return encoded.copy(data=variable.data.map_blocks(check.block, dtype=encoded.dtype, meta=meta))
    for start, rows in _batches(variable):
        check.compare(variable[rows].values, encoded[rows].values, start)
    return encoded


def _check_types(variable: xr.Variable, name: str) -> None:
    """Refuse types that cannot be stored, and encodings that name none."""
    if not isinstance(variable.dtype, np.dtype):
        is_category = isinstance(variable.dtype, pd.CategoricalDtype)
        remedy = "its labels with astype(str), or its codes" if is_category else "it as a type of numpy, or its parts"
        raise TypeError(
            f"variable {name!r} has the type {variable.dtype!s} of pandas, which Zarr does not have; store {remedy}"
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
            remedy = "choose a _FillValue, dtype, scale_factor, units or calendar that fit"
            if isinstance(error, OverflowError):
                raise _lossy(fact, remedy, ()) from error
            raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{fact}; {remedy}") from error


def _conventions(variable: xr.Variable) -> dict[str, Any]:
    """The parts of an encoding that change values."""
    return {key: variable.encoding[key] for key in CONVENTIONS if variable.encoding.get(key) is not None}


def _batches(variable: xr.Variable) -> Iterator[tuple[Index, Any]]:
    """Where each batch begins, and an index of it: rows along the first axis."""
    if not variable.size or not variable.ndim:
        yield (0,) * variable.ndim, ...
        return
    count = max(1, _BATCH * variable.shape[0] // variable.size)
    for start in range(0, variable.shape[0], count):
        yield (start, *[0] * (variable.ndim - 1)), slice(start, start + count)


def _lossy(fact: str, remedy: str, index: Index) -> errors.LossyCastError:
    return errors.LossyCastError(f"{fact}; {remedy}", index=index, fact=fact)


def _first(found: Any, start: Index = ()) -> Index:
    """Where the first element is, in the variable in which the elements begin at `start`."""
    at = np.unravel_index(int(np.asarray(found).argmax()), np.shape(found))
    return tuple(int(k) + first for k, first in zip(at, start or (0,) * len(at), strict=True))


def _start(block_info: Any) -> Index:
    """Where a block of dask begins in its array."""
    return tuple(first for first, _ in block_info[0]["array-location"])


# -- text and bytes -------------------------------------------------------------------------------


def _is_text(dtype: np.dtype[Any]) -> bool:
    """Whether a type says of itself that it holds text or bytes; plain objects do not."""
    return dtype.kind in "SUT" or compat.vlen_type(dtype) is not None


def _without_missing_text(variable: xr.Variable, name: str, casting: Casting, *, expected: bool) -> xr.Variable:
    """A variable without missing text, which is refused, or stored as "" where values may change.

    A `_FillValue` takes its place, too. Blocks of dask are looked at as they are computed. `expected` is whether text
    is stored there already, so that objects of which all are missing are missing text.
    """
    dtype = variable.dtype
    if dtype.kind not in "OT" or (dtype.kind == "T" and not hasattr(dtype, "na_object")):
        return variable
    known, given = expected or _is_text(dtype), variable.encoding.get("_FillValue")
    fill = partial(_fill_text, name=name, fill=given, casting=casting, known=known)
    if variable.chunks is not None:
        if _is_text(dtype):
            meta = np.empty((0,) * variable.ndim, dtype)
            return variable.copy(deep=False, data=variable.data.map_blocks(fill, dtype=dtype, meta=meta))
        if compat.holds_cftime(variable):
            return variable
        warnings.warn(
            f"variable {name!r} has blocks of dask with objects, all of which are computed now to learn their type; "
            "convert it with astype() to write it block by block",
            xr.SerializationWarning,
            stacklevel=2,
        )
    variable = variable.copy(deep=False).load()
    found = fill(variable.values) if variable.size else variable.values
    return variable if found is variable.values else variable.copy(deep=False, data=found)


def _fill_text(values: Any, *, name: str, fill: Any, casting: str, known: bool, block_info: Any = None) -> Any:
    """Values, or a block of dask, with a `_FillValue` in the place of missing text; "" where values may change.

    `known` is whether they are known to be text, also if all are missing.
    """
    objects = np.asarray(values, object)
    missing = np.asarray(pd.isnull(objects))
    present = objects[~missing]
    if not (present.size or known) or (present.size and not isinstance(present.flat[0], str | bytes)):
        return values  # no text
    has_fill, refuses = isinstance(fill, str | bytes), casting != "unsafe"
    if has_fill and fill and refuses:  # what is empty is missing to most readers
        taken = np.asarray(objects == fill)
        if taken.any():
            index = _first(taken, _start(block_info) if block_info else ())
            fact = f"variable {name!r}: {fill!r} at {index} is its _FillValue, and would be read as missing"
            remedy = "choose another _FillValue in encoding, or make the value missing, or pass casting='unsafe'"
            raise _lossy(fact, remedy, index)
    if not missing.any():
        return values
    if not has_fill:
        fill = b"" if present.size and isinstance(present.flat[0], bytes) else ""
        if refuses:
            found, index = objects[_first(missing)], _first(missing, _start(block_info) if block_info else ())
            fact = f"variable {name!r}: the text at {index} is missing ({found}), and Zarr has no missing text"
            remedy = f"fill it, for instance with ds[{name!r}].fillna({fill!r}), or pass casting='unsafe'"
            raise _lossy(fact, f"{remedy}, which stores {fill!r}", index)
    filled = np.array(values)
    filled[missing] = fill
    return filled


def _find(variable: xr.Variable, is_bad: Callable[[Any], bool], kinds: str) -> tuple[Index, Any] | None:
    """The first object in memory that is bad: where, and what; None for other kinds of types and blocks of dask."""
    if variable.dtype.kind not in kinds or variable.chunks is not None:
        return None
    values = variable.values
    items = zip(product(*map(range, values.shape)), values.flat, strict=True)
    return next((found for found in items if is_bad(found[1])), None)


def _check_utf8(variable: xr.Variable, name: str) -> None:
    """Refuse text in memory that UTF-8 has not, such as file names with bytes that are no UTF-8."""
    if (found := _find(variable, _is_no_utf8, "O")) is not None:
        index, item = found
        fact = f"variable {name!r}: {item[:80]!r} at {index} cannot be stored as UTF-8: surrogates not allowed"
        raise _lossy(fact, "replace what is no text, or store text of a fixed length, with astype(str)", index)


def _is_no_utf8(item: Any) -> bool:
    return isinstance(item, str) and not item.isascii() and item.encode(errors="ignore").decode() != item


def check_ends(variable: xr.Variable, name: str) -> None:
    """Refuse elements in memory that end in NUL, for a type of a fixed length: it fills up with NULs itself."""
    if (found := _find(variable, _ends_in_nul, "OT")) is not None:
        index, item = found
        fact = f"variable {name!r}: {item[-80:]!r} at {index} ends in NUL, which text of a fixed length loses"
        remedy = "store the bytes as numbers (uint8), or text as objects, or pass casting='unsafe'"
        raise _lossy(fact, remedy, index)


def _ends_in_nul(item: Any) -> bool:
    return isinstance(item, str | bytes) and item[-1:] in ("\0", b"\0")


def as_fixed(variable: xr.Variable, name: str, stored: np.dtype[Any]) -> xr.Variable:
    """Text or bytes in memory as those of a fixed length that are stored; raises for the first that is too long."""
    values = variable.values
    if compat.is_string(variable.dtype) and stored.kind == "U":
        variable = variable.astype(str)
    if variable.dtype.kind != stored.kind:
        return variable  # which is refused elsewhere
    most = _length(stored)
    long = np.asarray(np.strings.str_len(variable.values)) > most
    if not long.any():
        return variable.astype(stored)
    index = _first(long)
    fact = (
        f"variable {name!r} has the type {variable.dtype} and values that do not fit the stored one, {stored}: "
        f"{values[index][:80]!r} at {index} has a length of {len(values[index])}, the stored type holds {most}"
    )
    wanted = {name: {"dtype": f"{stored.kind}{_length(variable.dtype)}"}}
    raise _lossy(fact, f"write the dataset anew with encoding={wanted}, or shorten it", index)


def _length(dtype: np.dtype[Any]) -> int:
    """How many characters or bytes a type of a fixed length holds."""
    return dtype.itemsize // (4 if dtype.kind == "U" else 1)


def check_fill(variable: xr.Variable, name: str, zarr_format: Any, *, explicit: bool) -> xr.Variable:
    """A variable without a `_FillValue` of text, which xarray does not read from Zarr format 3.

    One that the user gives is refused; one that came with the variable from another format is dropped.
    """
    if zarr_format == 2 or variable.dtype.kind not in "OUT":
        return variable
    for source in (variable.attrs, variable.encoding):
        fill = source.get("_FillValue")
        if not isinstance(fill, str):
            continue
        if explicit or source is variable.attrs:
            raise ValueError(
                f"variable {name!r}: text in Zarr format 3 has no _FillValue that xarray reads, found {fill!r}; fill "
                f"what is missing with ds[{name!r}].fillna({fill!r}) instead, or pass zarr_format=2"
            )
        variable = variable.copy(deep=False)
        variable.encoding = {key: value for key, value in variable.encoding.items() if key != "_FillValue"}
    return variable


# -- what readers find ----------------------------------------------------------------------------


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


def _plain_units(units: Any) -> Any:
    """Return units of times without a reference at midnight spelled out, which xarray leaves out for blocks of dask."""
    return re.sub(r"[ T]0?0:00(:00(\.0*)?)?$", "", units) if isinstance(units, str) else units


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
        start = _start(block_info)
        units = encoded.attrs.get("units")
        if _plain_units(units) != _plain_units(self.attributes.get("units")):
            fact = f"variable {self.name!r}: times in the block at {start} need the units {units!r}"
            remedy = f"they are stored in {self.attributes.get('units')!r}, choose other units in encoding"
            raise _lossy(fact, f"{remedy}, or a dtype of floats", start)
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

    def compare(self, given: Any, stored: Any, start: Index) -> None:
        """Raise for the first value that readers would take for another one; `start` is where the values begin."""
        with np.errstate(all="ignore"):
            if self.is_sound(given, stored):
                return
            lost = np.asarray(self.lost(given, stored))
        if not lost.any():
            return
        at, index = _first(lost), _first(lost, start)
        what, remedy = self.reason(given[at], stored[at], index)
        raise _lossy(f"variable {self.name!r}: {what}", f"{remedy}, or pass casting='unsafe'", index)

    def is_sound(self, given: Any, stored: Any) -> bool:
        """Whether a quick look shows that nothing is lost."""
        return False

    @abstractmethod
    def lost(self, given: Any, stored: Any) -> Any:
        """Where values are not what they were."""

    @abstractmethod
    def reason(self, given: Any, stored: Any, index: Index) -> tuple[str, str]:
        """What is wrong with a value, and what to do about it."""


class _Text(_Check):
    """Text and bytes of a fixed length."""

    def lost(self, given: Any, stored: Any) -> Any:
        """Where elements are longer than the type."""
        lengths = [len(item) if isinstance(item, str | bytes) else 0 for item in np.ravel(given).tolist()]
        return (np.array(lengths, np.int64) > _length(self.dtype)).reshape(np.shape(given))

    def reason(self, given: Any, stored: Any, index: Index) -> tuple[str, str]:
        """It is too long."""
        longest = _length(self.dtype)
        what = f"{str(given)[:80]!r} at {index} is longer than its encoding, {self.dtype}, which holds {longest}"
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
        """Whether stored numbers mean themselves, so that rounding is a loss: integers that are not packed."""
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

    def reason(self, given: Any, stored: Any, index: Index) -> tuple[str, str]:
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

    def reason(self, given: Any, stored: Any, index: Index) -> tuple[str, str]:
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


# -- metadata of new arrays ------------------------------------------------------------------------

_CODECS = {"compressors", "compressor", "filters", "serializer"}
_LAYOUT = {"chunks", "shards"}
_OTHERS = {"fill_value", "chunk_key_encoding", "write_empty_chunks"}
_NO_MEANING = {"source", "original_shape", "preferred_chunks", "cache_metadata", "overwrite"}


def array_metadata(
    variable: xr.Variable,
    name: str,
    cuts: Mapping[Any, Cut],
    *,
    explicit: bool,
    zarr_format: Any,
    growing: Collection[Any],
) -> Any:
    """The metadata of a new array for an encoded variable; everything about it is checked here.

    Chunks are, in this order, what an explicit encoding says, what `cuts` says about a dimension, the blocks of
    dask, and what the variable was read from. Encodings that come with a variable but do not fit it are dropped. The
    coordinate of a dimension that is `growing` gets room for what is appended.
    """
    encoding = {key: value for key, value in variable.encoding.items() if key not in _NO_MEANING}
    encoding.pop("_FillValue", None)
    unknown = encoding.keys() - _CODECS - _LAYOUT - _OTHERS
    if unknown and explicit:
        known = ", ".join(sorted(_CODECS | _LAYOUT | _OTHERS))
        raise ValueError(f"variable {name!r}: unknown encoding {sorted(unknown)}; beside those of CF there are {known}")
    attributes, fill = _attributes_and_fill(variable, name, zarr_format)
    common = {
        "shape": variable.shape,
        "dtype": str if compat.is_string(variable.dtype) else variable.dtype,
        "attributes": attributes,
        "dimension_names": [str(dim) for dim in variable.dims],
        "fill_value": fill,
        "zarr_format": zarr_format,
    }
    if explicit:
        layout = {key: encoding[key] for key in _LAYOUT if encoding.get(key) is not None}
        layout = layout or _layout(variable, name, cuts, {}, growing)
        if encoding.get("chunk_key_encoding") is not None:
            layout["chunk_key_encoding"] = encoding["chunk_key_encoding"]
        return _metadata(name, common | layout | _codecs(encoding, zarr_format))
    layout = _layout(variable, name, cuts, encoding, growing)
    try:
        return _metadata(name, common | layout | _codecs(encoding, zarr_format))
    except (ValueError, TypeError):  # of a codec for other data, or of another library
        return _metadata(name, common | _layout(variable, name, cuts, {}, growing))


def _metadata(name: str, options: Mapping[str, Any]) -> Any:
    """What a new array with these options would be; made in memory, where nothing is written."""
    try:
        array = create_array(**options)
    except errors.ZelligeError as error:
        error.args = (f"variable {name!r}: {error}",)
        raise
    _check_memory(name, array)
    return array.metadata


def _check_memory(name: str, array: Array) -> None:
    """Refuse chunks that no process of this machine can hold, and so never write."""
    largest, needed = _largest(array)
    if needed > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise errors.ChunkShapeError(
            f"variable {name!r}: a chunk of {tuple(largest)} elements of {array.dtype} takes {needed / 2**30:.4g} GiB, "
            "more than the memory of this machine; a chunk is stored with its full size, also where it reaches beyond "
            "the end: choose smaller chunks, or -1 for the whole dimension",
            axis=None,
        )


def _largest(array: Array) -> tuple[list[int], int]:
    """The shape of the largest chunk, and its bytes."""
    largest = [max(dimension.unique_edge_lengths, default=1) for dimension in array.grid.dimensions]
    return largest, prod(largest) * array.dtype.itemsize


def _attributes_and_fill(variable: xr.Variable, name: str, zarr_format: Any) -> tuple[dict[str, Any], Any]:
    """As xarray's own engine does: the array's fill value masks in format 2, the attribute in format 3.

    None in format 2 says that nothing is missing.
    """
    attributes = dict(variable.attrs)
    if zarr_format == 2:
        fill = attributes.pop("_FillValue", None)
    else:
        fill = variable.encoding.get("fill_value")
        if fill is None and variable.dtype.kind == "f":
            fill = np.nan
        missing = attributes.pop("_FillValue", None)
        if missing is not None:
            attributes["_FillValue"] = compat.FillValueCoder.encode(missing, variable.dtype)
    return encoded_attributes(attributes, f"variable {name!r}"), fill


def encoded_attributes(attributes: Mapping[Any, Any], owner: str) -> dict[str, Any]:
    """Attributes as they are stored; raises if names that are no text become those of others."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        if str(key) in found:
            raise ValueError(
                f"{owner}: more than one attribute would have the name {str(key)!r}, since names are stored as text; "
                "rename one of them"
            )
        found[str(key)] = compat.encode_attribute(value)
    return found


# -- codecs ---------------------------------------------------------------------------------------


def _codecs(encoding: Mapping[str, Any], zarr_format: Any) -> dict[str, Any]:
    given = {key: encoding[key] for key in _CODECS if key in encoding}
    found = {key: [*codecs] if isinstance(codecs, tuple) else codecs for key, codecs in given.items()}
    if zarr_format == 2:
        found.pop("serializer", None)
        if isinstance(filters := found.get("filters"), list):
            # Strings bring this one themselves.
            found["filters"] = [f for f in filters if getattr(f, "codec_id", None) != "vlen-utf8"] or None
    return found


_PLAIN = {"bytes", "transpose", "sharding_indexed", "zstd", "gzip", "blosc", "crc32c"}
_PLAIN |= {f"numcodecs.{name}" for name in ("zstd", "blosc", "gzip", "zlib", "lz4", "shuffle")}
"""Codecs that take every value, and whose libraries are there."""
_LARGE = 1 << 30  # bytes of a chunk; some compressors take no more than twice as many


def try_codecs(path: str, metadata: Any, values: Any, config: Mapping[str, Any] | None) -> None:
    """Encode values as a new array would, and forget the result; raises if a codec refuses them, or its library lacks.

    For values that are not at hand, None, one chunk of zeros tells about the library only. Codecs that take every value
    are not tried.
    """
    store = MemoryStore()
    array: Any = dict(create_hierarchy(store=store, nodes={path: metadata}))[path]
    if _is_plain(metadata.codecs) and _largest(array)[1] < _LARGE:
        return
    array = array if config is None else array.with_config(config)
    try:
        if values is None:
            _try_zeros(array)
            return
        values = np.asarray(values)
        start = 0
        for size in array.write_chunk_sizes[0] if array.ndim else (1,):
            rows = slice(start, start + size) if array.ndim else ...
            array[rows] = values[rows]
            start += size
            store.delete_prefix(f"{path}/")  # so that only a row of chunks is in memory
    except ImportError as error:
        raise ImportError(f"variable {path!r}: {error}") from error


def _try_zeros(array: Any) -> None:
    first = tuple(slice(0, sizes[0]) for sizes in array.write_chunk_sizes if sizes)
    if array.size and len(first) == array.ndim:
        try:
            array.with_config({"write_empty_chunks": True})[first] = np.zeros((), array.dtype)
        except errors.EncodeError:  # of zeros, which may not be among the values
            return


def _is_plain(codecs: Any) -> bool:
    """Whether all codecs, also those within shards, take every value."""
    for codec in codecs:
        name, configuration = (codec["name"], codec) if isinstance(codec, dict) else (codec.name, codec.configuration)
        if name not in _PLAIN or not _is_plain(configuration.get("codecs", ())):
            return False
    return True


# -- chunks ---------------------------------------------------------------------------------------


_INDEX = 8192  # elements of a chunk of a coordinate that grows: it is read whole, so that chunks should be few


def _layout(
    variable: xr.Variable, name: str, cuts: Mapping[Any, Cut], encoding: Mapping[str, Any], growing: Collection[Any]
) -> dict[str, Any]:
    """`chunks=` and `shards=` of a new array."""
    former, blocks = _former_chunks(variable, encoding), _blocks_of(variable, name)
    is_index = variable.dims == (name,)
    if is_index and name in growing and blocks is None:
        return {"chunks": [max(_INDEX, variable.size)]}
    found = blocks if blocks is not None else former
    kept = {} if found is None else dict(zip(variable.dims, found, strict=True))
    asked = {} if is_index else cuts  # an index is read whole, so it is not cut
    cut = [asked.get(dim, kept.get(dim, "auto")) for dim in variable.dims]
    cut = [one.after(0) if isinstance(one, Ends) else one for one in cut]
    shards = encoding.get("shards")
    if shards is not None and former is not None:
        if cut == former:
            return {"chunks": cut, "shards": shards}
        if cut == list(shards):
            return {"chunks": former, "shards": shards}
    return {"chunks": cut}


def _former_chunks(variable: xr.Variable, encoding: Mapping[str, Any]) -> list[Any] | None:
    """The chunks that a variable was read from, if they fit what it is now."""
    found = encoding.get("chunks")
    if isinstance(found, int):
        found = (found,) * variable.ndim
    if not isinstance(found, list | tuple) or len(found) != variable.ndim:
        return None
    for size, length in zip(found, variable.shape, strict=True):
        fits = size > 0 if isinstance(size, int) else isinstance(size, list | tuple) and sum(size) == length
        if not fits:
            return None
    return [size if isinstance(size, int) else list(size) for size in found]


def _blocks_of(variable: xr.Variable, name: str) -> list[Any] | None:
    """The blocks of dask along each axis, as sizes where they are equal but for a shorter last one."""
    if variable.chunks is None:
        return None
    from zellige.dask import edges_of

    if any(np.isnan(size) for axis in variable.chunks for size in axis):
        raise ValueError(f"variable {name!r} has dask chunks of unknown size; call compute_chunk_sizes() first")
    return list(edges_of(variable.chunks))
