"""`DataType`: a data type as documents name it, as numpy holds it, and as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zellige.dtypes.cast import unmasked
from zellige.dtypes.fill import FillForm, shown
from zellige.dtypes.storage import Storage
from zellige.errors import MaskedValueError, MetadataError
from zellige.types import JSON, AnyArray


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type as documents name it and as numpy holds it in memory."""

    name: str
    numpy: np.dtype[Any]
    form: FillForm = field(repr=False, compare=False)
    endian: bool
    """Whether elements have components of more than one byte, so that the byte order matters."""
    configuration: dict[str, JSON] | None = field(default=None, hash=False)
    codec: str = "bytes"
    """The array-to-bytes codec that it needs; `bytes` for elements of one size."""
    storage: Storage | None = field(default=None, repr=False, compare=False)
    """What else there is to know about the bytes of elements that are not simply numpy's memory."""

    def to_json(self) -> JSON:
        """The form for documents: parameterless types are plain strings, which every reader knows."""
        return self.name if self.configuration is None else {"name": self.name, "configuration": self.configuration}

    def to_native_dtype(self) -> np.dtype[Any]:
        """The numpy type, in the byte order of this machine."""
        return self.numpy

    @property
    def item_size(self) -> int | None:
        """The bytes of one element; None if elements have any length."""
        return self.numpy.itemsize if self.codec == "bytes" else None

    @property
    def label(self) -> str:
        """The type for people: its name, or numpy's text for one with parameters."""
        return self.name if self.configuration is None else str(self.numpy)

    @property
    def zero(self) -> AnyArray:
        """The zero of the type, as `numpy.zeros` has it; the empty string or bytes."""
        return self.form.default(self.numpy) if self.numpy.hasobject else np.zeros((), self.numpy)

    def read_fill(self, value: JSON) -> AnyArray:
        """A JSON fill value as a 0-d array, to the bit."""
        fill = self.form.read(value, self.numpy)
        fill.flags.writeable = False
        return fill

    def write_fill(self, fill: AnyArray) -> JSON:
        """The JSON form of a fill value."""
        return self.form.write(fill)

    def cast_fill(self, value: Any) -> AnyArray:
        """A user's fill value as a 0-d array; refuses a value that the type cannot hold."""
        try:
            value = unmasked(value) if isinstance(value, np.ndarray | list | tuple) else value
        except MaskedValueError as error:
            raise MetadataError("fill_value is masked; give a value, or leave it out", field="fill_value") from error
        if value is None:
            fill = self.form.default(self.numpy)
        elif isinstance(value, np.ndarray | np.generic) and value.dtype == self.numpy and self.numpy.kind != "O":
            fill = np.array(value, self.numpy)
        else:
            fill = self.form.cast(value, self.numpy)
        if fill.ndim:
            raise MetadataError(f"fill_value must be one value, not an array of shape {fill.shape}", field="fill_value")
        fill.flags.writeable = False
        return fill


# -- checking configurations ----------------------------------------------------------------------

FIELD = "data_type.configuration"


def only_keys(name: str, configuration: Mapping[str, JSON], *known: str) -> None:
    """Refuse keys that the type's schema does not have, and demand those that it has."""
    if unknown := sorted(configuration.keys() - set(known)):
        takes = f"takes {', '.join(known)}" if known else "takes none"
        raise MetadataError(f"{FIELD}: {name!r} {takes}, found {unknown[0]!r}", field=_path(unknown[0], known))
    for key in known:
        if key not in configuration:
            raise MetadataError(f"{FIELD}.{key} is missing; {name!r} needs it", field=f"{FIELD}.{key}")


def _path(key: str, known: tuple[str, ...]) -> str:
    return f"{FIELD}.{key}" if known else FIELD


def integer(configuration: Mapping[str, JSON], key: str, low: int, high: int) -> int:
    """An integer within limits; booleans and floats are not integers."""
    value = configuration[key]
    if type(value) is not int or not low <= value <= high:
        raise MetadataError(
            f"{FIELD}.{key} must be an integer from {low} to {high}, found {shown(value)}", field=f"{FIELD}.{key}"
        )
    return value
