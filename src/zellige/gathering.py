"""Copying chunks out of a larger array, into one piece each: as one item for each row, as numpy copies it fastest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zellige.codecs.chain import BoundChain
from zellige.dtypes.fill import equals_fill, rows_of_fill
from zellige.plans import Row
from zellige.types import AnyArray

_LONG = 4 << 10  # bytes; longer rows are copied as fast element by element


def gather(chunk: AnyArray, data: AnyArray) -> None:
    """Copy data that lies in rows here and there."""
    row = data.shape[-1] * data.itemsize if data.ndim and data.strides[-1] == data.itemsize else 0
    if 0 < row <= _LONG and data.dtype == chunk.dtype:
        chunk, data = chunk.view(f"V{row}"), data.view(f"V{row}")
    chunk[...] = data


def gather_row(values: AnyArray, row: Row, bounds: Sequence[BoundChain], flat: memoryview) -> bool:
    """Copy chunks side by side, which fill the values, one after the other; tells whether one is of fill values."""
    first, width = bounds[0], len(row.numbers[-1])
    if len(set(bounds)) == 1:  # then by one call
        chunks: AnyArray = np.ndarray((len(bounds), *first.shape), first.dtype, flat)
        item = f"V{first.shape[-1] * first.dtype.itemsize}"
        lines = values.view(item).reshape(*first.shape[:-2], -1, first.shape[-2], width)
        chunks.view(item).reshape(-1, width, *first.shape[:-1])[...] = np.moveaxis(lines, (-3, -1), (0, 1))
        return bool(rows_of_fill(chunks, first.fill).any())
    at, empty = 0, False
    for request, bound in zip(row.wanted, bounds, strict=True):
        chunk: AnyArray = np.ndarray(bound.shape, bound.dtype, flat, at)
        gather(chunk, values[request[3]])
        empty = empty or equals_fill(chunk, bound.fill)
        at += bound.nbytes
    return empty
