"""Text and bytes as they are stored: what is missing, or would be read as something else, is refused.

Zarr has no missing text. xarray stores it as "" in a new array, and as the words "nan" and "None" in one that is there.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

import xarray as xr
from zellige import errors
from zellige.xarray import compat

_PIECE = 1 << 20  # elements that are looked at together


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether a type says of itself that it holds text or bytes; plain objects do not."""
    return dtype.kind in "SUT" or compat.vlen_type(dtype) is not None


def without_missing(
    variable: xr.Variable, name: str, casting: Literal["same_value", "unsafe"], *, expected: bool
) -> xr.Variable:
    """A variable without missing text, which is refused, or stored as "" where values may change.

    A `_FillValue` takes its place, too. Blocks of dask are looked at as they are computed.

    Parameters
    ----------
    variable
        The values, and how they are to be encoded.
    name
        The name of the variable, for messages.
    casting
        "unsafe" lets values change.
    expected
        Whether text is stored there already, so that objects of which all are missing are missing text.
    """
    dtype = variable.dtype
    if dtype.kind not in "OT" or (dtype.kind == "T" and not hasattr(dtype, "na_object")):
        return variable
    known = expected or is_text(dtype)
    missing = _Missing(name, variable.encoding.get("_FillValue"), casting, known)
    if variable.chunks is not None:
        if is_text(dtype):
            meta = np.empty((0,) * variable.ndim, dtype)
            return variable.copy(deep=False, data=variable.data.map_blocks(missing.block, dtype=dtype, meta=meta))
        if compat.holds_cftime(variable):
            return variable
        warnings.warn(
            f"variable {name!r} has blocks of dask with objects, all of which are computed now to learn their type; "
            "convert it with astype() to write it block by block",
            xr.SerializationWarning,
            stacklevel=2,
        )
    variable = variable.copy(deep=False).load()
    if not variable.size:
        return variable
    found = missing.checked(variable.values, (0,) * variable.ndim)
    return variable if found is variable.values else variable.copy(deep=False, data=found)


@dataclass(frozen=True)
class _Missing:
    """What becomes of missing text."""

    name: str
    fill: Any
    """The `_FillValue`, or None."""
    casting: str
    known: bool
    """Whether the values are known to be text, also if all are missing."""

    def block(self, values: Any, block_info: Any = None) -> Any:
        """A block of dask without missing text."""
        return self.checked(values, tuple(first for first, _ in block_info[0]["array-location"]))

    def checked(self, values: Any, start: tuple[int, ...]) -> Any:
        """Values without missing text; `start` is where they begin."""
        objects = np.asarray(values, object)
        missing = np.asarray(pd.isnull(objects))
        present = objects[~missing]
        if not (present.size or self.known) or (present.size and not isinstance(present.flat[0], str | bytes)):
            return values  # no text
        if isinstance(self.fill, str | bytes) and self.casting != "unsafe":
            self._check_fill(objects, start)
        if not missing.any():
            return values
        fill = self.fill
        if not isinstance(fill, str | bytes):
            fill = b"" if present.size and isinstance(present.flat[0], bytes) else ""
            if self.casting != "unsafe":
                self._refuse(objects, missing, start, fill)
        filled = np.array(values)
        filled[missing] = fill
        return filled

    def _check_fill(self, objects: Any, start: tuple[int, ...]) -> None:
        """Refuse text that readers take for missing; what is empty is missing to most of them."""
        taken = np.asarray(objects == self.fill) if self.fill else np.zeros(objects.shape, bool)
        if taken.any():
            index = _first(taken, start)
            fact = f"variable {self.name!r}: {self.fill!r} at {index} is its _FillValue, and would be read as missing"
            remedy = "choose another _FillValue in encoding, or make the value missing"
            raise errors.LossyCastError(f"{fact}; {remedy}, or pass casting='unsafe'", index=index, fact=fact)

    def _refuse(self, objects: Any, missing: Any, start: tuple[int, ...], fill: Any) -> None:
        index = _first(missing, start)
        found = objects[np.unravel_index(int(missing.argmax()), missing.shape)]
        fact = f"variable {self.name!r}: the text at {index} is missing ({found}), and Zarr has no missing text"
        remedy = f"fill it, for instance with ds[{self.name!r}].fillna({fill!r}), or pass casting='unsafe'"
        raise errors.LossyCastError(f"{fact}; {remedy}, which stores {fill!r}", index=index, fact=fact)


def _first(found: Any, start: tuple[int, ...]) -> tuple[int, ...]:
    """Where the first element is, in the variable whose part begins at `start`."""
    at = np.unravel_index(int(np.asarray(found).argmax()), np.shape(found))
    return tuple(int(k) + first for k, first in zip(at, start, strict=True))


# -- what a stored type holds ---------------------------------------------------------------------


def check_encodable(variable: xr.Variable, name: str) -> None:
    """Refuse text in memory that UTF-8 has not, such as file names with bytes that are no UTF-8."""
    if variable.dtype.kind != "O" or variable.chunks is not None:
        return
    flat = np.ravel(variable.values)
    for start in range(0, flat.size, _PIECE):
        items = [item for item in flat[start : start + _PIECE].tolist() if isinstance(item, str)]
        try:
            "".join(items).encode()
        except UnicodeEncodeError:
            _refuse_surrogates(variable, name)


def _refuse_surrogates(variable: xr.Variable, name: str) -> None:
    for index, item in np.ndenumerate(variable.values):
        try:
            _ = item.encode() if isinstance(item, str) else b""
        except UnicodeEncodeError as error:
            fact = f"variable {name!r}: {item[:80]!r} at {index} cannot be stored as UTF-8: {error.reason}"
            remedy = "replace what is no text, or store text of a fixed length, with astype(str)"
            raise errors.LossyCastError(f"{fact}; {remedy}", index=index, fact=fact) from error


def check_ends(variable: xr.Variable, name: str) -> None:
    """Refuse elements in memory that end in NUL, for a type of a fixed length: it fills up with NULs itself."""
    if variable.dtype.kind not in "OT" or variable.chunks is not None:
        return
    for index, item in np.ndenumerate(variable.values):
        if isinstance(item, str | bytes) and item[-1:] in ("\0", b"\0"):
            fact = f"variable {name!r}: {item[-80:]!r} at {index} ends in NUL, which text of a fixed length loses"
            remedy = "store the bytes as numbers (uint8), or text as objects, or pass casting='unsafe'"
            raise errors.LossyCastError(f"{fact}; {remedy}", index=index, fact=fact)


def as_fixed(variable: xr.Variable, name: str, stored: np.dtype[Any]) -> xr.Variable:
    """Text or bytes in memory as those of a fixed length that are stored; raises for the first that is too long."""
    values = variable.values
    most = stored.itemsize // (4 if stored.kind == "U" else 1)
    if compat.is_string(variable.dtype) and stored.kind == "U":
        variable = variable.astype(str)
    if variable.dtype.kind != stored.kind:
        return variable  # which is refused elsewhere
    long = np.asarray(np.strings.str_len(variable.values)) > most
    if not long.any():
        return variable.astype(stored)
    index = _first(long, (0,) * variable.ndim)
    found, kind = values[index], stored.kind
    fact = (
        f"variable {name!r} has the type {variable.dtype} and values that do not fit the stored one, {stored}: "
        f"{found[:80]!r} at {index} has a length of {len(found)}, the stored type holds {most}"
    )
    longest = variable.dtype.itemsize // (4 if kind == "U" else 1)
    remedy = f"write the dataset anew with encoding={{{name!r}: {{'dtype': '{kind}{longest}'}}}}, or shorten it"
    raise errors.LossyCastError(f"{fact}; {remedy}", index=index, fact=fact)


# -- fill values ----------------------------------------------------------------------------------


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
