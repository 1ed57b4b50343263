"""What HDF5 and netCDF4 files hold, as parts for `convert`; needs h5py."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from zellige.errors import NodeNotFoundError
from zellige.tools.convert import NotRepresentableError, Part, Region, Source, Unsupported

_BOOKKEEPING = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"}
_BOOKKEEPING |= {"_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"}
"""Attributes by which HDF5 and netCDF4 keep dimensions; dimension names say the same."""
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 and netCDF4 files need h5py: pip install 'zellige[hdf5]'") from error
    return h5py


def read_file(file: str, path: str, unsupported: Unsupported, stack: ExitStack) -> Source:
    """What is in a file, which stays open as long as the stack."""
    opened = stack.enter_context(_h5py().File(file, "r"))
    return read_group(opened, path, unsupported)


def read_group(found: Any, path: str, unsupported: Unsupported) -> Source:
    """What is in a group of h5py, or a dataset alone."""
    h5py = _h5py()
    if path:
        if path not in found:
            raise NodeNotFoundError(f"there is no {path!r} in {found.file.filename!r}")
        found = found[path]
    return _Walk(h5py, unsupported).of(found)


@dataclass
class _Walk:
    """Goes through a file once, and collects what is to be converted."""

    h5py: Any
    unsupported: Unsupported
    source: Source = field(default_factory=Source)
    seen: dict[Any, str] = field(default_factory=dict)
    """The objects that were met, with their paths; one may have several names, even below itself."""

    def of(self, top: Any) -> Source:
        """What is there, groups before what is in them."""
        if isinstance(top, self.h5py.Dataset):
            self._dataset("", top)
        else:
            self._group("", top)
        return self.source

    def _group(self, path: str, group: Any) -> None:
        self.seen[self._identity(group)] = path or "/"
        self.source.parts.append(Part(path, dict(self._attributes(path, group))))
        for name in group:
            self._member(f"{path}/{name}" if path else name, group, name)

    def _member(self, path: str, group: Any, name: str) -> None:
        link = group.get(name, getlink=True)
        if not isinstance(link, self.h5py.HardLink):
            where = getattr(link, "filename", "") + getattr(link, "path", "")
            self.source.skipped[path] = f"a link to {where}, which Zarr has not"
            return
        found = group[name]
        earlier = self.seen.get(self._identity(found))
        if earlier is not None:
            self.source.skipped[path] = f"another name of {earlier}, which Zarr has not"
        elif isinstance(found, self.h5py.Group):
            self._group(path, found)
        elif isinstance(found, self.h5py.Dataset):
            self.seen[self._identity(found)] = path
            self._dataset(path, found)
        else:
            self.source.skipped[path] = "a named type, which Zarr has not"

    def _identity(self, found: Any) -> Any:
        info = self.h5py.h5o.get_info(found.id)
        return info.fileno, info.addr

    # -- datasets ---------------------------------------------------------------------------------

    def _dataset(self, path: str, dataset: Any) -> None:
        if _NO_VARIABLE in str(dataset.attrs.get("NAME", "")):
            return  # nothing but the name and length of a dimension
        try:
            self.source.parts.append(self._part(path, dataset))
        except NotRepresentableError as error:
            if self.unsupported == "raise":
                raise
            self.source.skipped[path or "/"] = str(error)

    def _part(self, path: str, dataset: Any) -> Part:
        if dataset.shape is None:
            raise self._refused(path, "has no values and no shape")
        attributes = dict(self._attributes(path, dataset))
        dtype, values = self._type(path, dataset)
        names, shape = self._names(dataset), self._shape(dataset)
        options = {"shape": shape, "dtype": dtype}
        if any(name is not None for name in names):
            options["dimension_names"] = names
        if dtype != "string":
            options["fill_value"] = self._fill(dataset, np.dtype(dtype), attributes)
        elif "_FillValue" in attributes:
            options["fill_value"] = attributes["_FillValue"]
        members = self.h5py.check_enum_dtype(dataset.dtype)
        if members:
            labels = sorted(members, key=members.__getitem__)
            attributes.setdefault("flag_values", [int(members[name]) for name in labels])
            attributes.setdefault("flag_meanings", " ".join(labels))
        if shape != dataset.shape:
            values = partial(
                _read_padded, values, dataset.shape, options.get("fill_value"), np.dtype(_in_memory(dtype))
            )
        return Part(path, attributes, options, dataset.chunks, values)

    def _shape(self, dataset: Any) -> tuple[int, ...]:
        """The shape as netCDF shows it: along a dimension without a limit, as long as the longest that has it.

        In the file such datasets are as long as they were written; what is missing reads as the fill value.
        """
        scales = [dataset] if dataset.is_scale and dataset.ndim == 1 else [_first_scale(axis) for axis in dataset.dims]
        return tuple(
            length if limit is not None or scale is None else max(length, self._length(scale))
            for length, limit, scale in zip(dataset.shape, dataset.maxshape, scales, strict=True)
        )

    def _length(self, scale: Any) -> int:
        """The length of the dimension that a scale stands for."""
        if scale.ndim != 1 or scale.maxshape != (None,):
            return 0
        users = scale.attrs.get("REFERENCE_LIST", ())
        return max([int(scale.shape[0]), *(int(scale.file[user[0]].shape[user[1]]) for user in users)])

    def _type(self, path: str, dataset: Any) -> tuple[Any, Any]:
        """The type of an array, and a function that reads regions as such."""
        dtype, h5py = dataset.dtype, self.h5py
        text = h5py.check_string_dtype(dtype)
        if text is not None and (text.length is None or text.encoding == "utf-8"):
            return "string", partial(_read, dataset.asstr())
        if h5py.check_ref_dtype(dtype) is not None:
            raise self._refused(path, "holds references to other places of its file")
        if h5py.check_vlen_dtype(dtype) is not None:
            raise self._refused(path, "holds lists of different lengths")
        if dtype.hasobject:
            raise self._refused(path, f"holds structs with elements of any length or references: {dtype}")
        plain = np.dtype(dtype.newbyteorder("="), metadata={}) if dtype.names is None else dtype
        return plain, partial(_read, dataset)

    def _refused(self, path: str, reason: str) -> NotRepresentableError:
        return NotRepresentableError(
            f"dataset '/{path}' {reason}, which Zarr cannot hold; unsupported='skip' leaves it out", path=path
        )

    def _fill(self, dataset: Any, dtype: np.dtype[Any], attributes: dict[str, Any]) -> Any:
        """The fill value; `_FillValue` stays among the attributes in the form in which xarray looks for it."""
        if "_FillValue" not in dataset.attrs:
            return dataset.fillvalue if dtype.kind != "V" else None
        value = np.asarray(dataset.attrs["_FillValue"]).reshape(-1)[0]
        if dtype.kind == "f":
            attributes["_FillValue"] = base64.b64encode(struct.pack("<d", float(value))).decode()
        elif dtype.kind == "S":
            attributes["_FillValue"] = base64.b64encode(bytes(value)).decode()
        return value

    def _names(self, dataset: Any) -> list[str | None]:
        """The names of the axes: of the scale at each, else its label; a scale of one axis is its own."""
        if dataset.is_scale and dataset.ndim == 1:
            return [_base(dataset.name)]
        names = []
        for dimension in dataset.dims:
            scales = [scale.name for scale in dimension.values()]
            names.append(_base(scales[0]) if scales else dimension.label or None)
        return names

    # -- attributes -------------------------------------------------------------------------------

    def _attributes(self, path: str, found: Any) -> Iterator[tuple[str, Any]]:
        """Attributes as JSON; those that have no such form are left out, and named."""
        for name in found.attrs:
            if name not in _BOOKKEEPING:
                try:
                    yield name, _json(self.h5py, found.attrs[name])
                except (TypeError, UnicodeDecodeError, OSError) as error:
                    self.source.skipped[f"attribute {name} of /{path}"] = str(error)


def _base(name: str | None) -> str | None:
    return name.rpartition("/")[2] if name else None


def _first_scale(dimension: Any) -> Any:
    return next(iter(dimension.values()), None)


def _in_memory(dtype: Any) -> Any:
    return object if isinstance(dtype, str) else dtype


def _read_padded(read: Any, shape: tuple[int, ...], fill: Any, dtype: np.dtype[Any], region: Region) -> Any:
    """A region that may go beyond the end of what is in the file, where the values are fill values."""
    values = np.zeros([part.stop - part.start for part in region], dtype)
    if fill is not None or dtype.hasobject:
        values[...] = "" if fill is None else fill
    there = tuple(slice(part.start, min(part.stop, n)) for part, n in zip(region, shape, strict=True))
    if all(part.start < part.stop for part in there):
        values[tuple(slice(0, part.stop - part.start) for part in there)] = read(there)
    return values


def _read(dataset: Any, region: Region) -> Any:
    return dataset[region]


def _json(h5py: Any, value: Any) -> Any:
    """The value of an attribute as JSON."""
    if isinstance(value, h5py.Empty):
        raise TypeError("it has no value")
    if isinstance(value, h5py.Reference):
        raise TypeError("it is a reference to another place of its file")
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype.kind in "SO":
        return [_json(h5py, one) for one in value.tolist()]
    if isinstance(value, np.ndarray) and value.shape == (1,):
        return _json(h5py, value[0])  # as netCDF4 stores numbers
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufU":
            raise TypeError(f"JSON has no {value.dtype}")
        return value.tolist()
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"JSON has no {type(value).__name__}")
