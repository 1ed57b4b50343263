"""`chunks={"time": "month"}`: words, frequencies and labels turned into edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

_WORDS = {"year": "YS", "quarter": "QS", "month": "MS", "day": "D", "hour": "h", "minute": "min"}


def resolve_chunks(ds: xr.Dataset, chunks: Any) -> dict[Any, int | list[int]]:
    """What `chunks=` says about each dimension: a size, or edges.

    An entry is a size, -1 for the whole dimension, edges, the name of a coordinate whose equal consecutive labels
    go into one chunk (also `"time.season"` and the like), one of the words `year`, `quarter`, `month`, `day`,
    `hour` and `minute`, or a frequency of pandas such as `"10D"`.

    >>> import pandas as pd
    >>> time = pd.date_range("2024-01-01", "2024-03-31")
    >>> ds = xr.Dataset(coords={"time": time, "week": ("time", time.isocalendar().week)})
    >>> resolve_chunks(ds, {"time": "month"})
    {'time': [31, 29, 31]}
    >>> resolve_chunks(ds, {"time": "week"})["time"] == [7] * 13
    True
    """
    if chunks is None:
        return {}
    given = chunks if isinstance(chunks, Mapping) else dict.fromkeys(ds.sizes, chunks)
    if unknown := [dim for dim in given if dim not in ds.sizes]:
        raise ValueError(f"chunks: there is no dimension {unknown[0]!r}; known: {', '.join(map(repr, ds.sizes))}")
    return {dim: _resolve(ds, dim, entry) for dim, entry in given.items() if entry is not None}


def _resolve(ds: xr.Dataset, dim: Any, entry: Any) -> Any:
    length = ds.sizes[dim]
    if isinstance(entry, str):
        return entry if entry == "auto" else _edges(ds, dim, entry)
    if isinstance(entry, int | np.integer):
        return max(1, length) if entry == -1 else int(entry)
    edges = [int(size) for size in entry]
    if sum(edges) != length:
        raise ValueError(f"chunks: the edges of {dim!r} sum to {sum(edges)}, its length is {length}")
    return edges


def _edges(ds: xr.Dataset, dim: Any, word: str) -> list[int]:
    if ds.sizes[dim] == 0:
        return [1]
    if word in ds.coords or "." in word:
        labels = ds[word]
        if labels.dims != (dim,):
            raise ValueError(f"chunks: {word!r} has the dimensions {labels.dims}; labels of {dim!r} have that one only")
        return _runs(labels.values)
    if dim not in ds.indexes:
        raise ValueError(f"chunks: {word!r} needs values along {dim!r}, which has no coordinate of its own")
    index = ds.indexes[dim]
    if not index.is_monotonic_increasing:
        raise ValueError(f"chunks: {word!r} needs times that ascend along {dim!r}")
    ones = xr.DataArray(np.ones(len(index), np.int64), {dim: index}, (dim,))
    try:
        counts = ones.resample({dim: _WORDS.get(word, word)}).count().values
    except (TypeError, ValueError) as error:
        known = ", ".join(map(repr, [*_WORDS, *(name for name, c in ds.coords.items() if c.dims == (dim,))]))
        raise ValueError(
            f"chunks: {word!r} does not cut {dim!r}: {error}; use a frequency of pandas for times, or one of {known}"
        ) from error
    return [int(count) for count in np.nan_to_num(counts) if count > 0]


def _runs(labels: Any) -> list[int]:
    """The lengths of runs of equal labels."""
    ends = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    return [int(n) for n in np.diff(np.concatenate([[0], ends, [len(labels)]]))]
