"""Hypothesis strategies that tests share: shapes, grids, types and selections, each with a naive oracle."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("ZELLIGE_EXAMPLES", "1000"))
"""About how many grid and selection pairs the indexing tests try altogether."""


def examples(share: float) -> settings:
    """Settings for a property that tries this share of all examples."""
    checks = list(HealthCheck)
    return settings(max_examples=max(5, round(EXAMPLES * share)), deadline=None, suppress_health_check=checks)


# -- shapes, types and values ---------------------------------------------------------------------

CORE_DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
CORE_DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]

dtypes = st.sampled_from(CORE_DTYPES)


def shapes(min_dims: int = 0, max_dims: int = 3, max_side: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes with 0-d ones and, now and then, an axis of length zero."""
    side = st.integers(0, max_side) | st.integers(1, max_side)
    return st.lists(side, min_size=min_dims, max_size=max_dims).map(tuple)


def counted(shape: tuple[int, ...], dtype: Any = "int32", start: int = 1) -> np.ndarray:
    """Values that tell their position: no two equal as long as the type can tell them apart."""
    numbers = np.arange(start, start + prod(shape)).reshape(shape)
    if np.dtype(dtype).kind == "b":
        return numbers * 7 % 5 < 2
    return numbers.astype(dtype)


# -- grids ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """What is given as `chunks=`, and the declared edges of each axis as a naive list."""

    argument: Any
    edges: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]

    @property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """The part of every chunk that lies inside the array, for each axis."""
        return tuple(clipped(edges, extent) for edges, extent in zip(self.edges, self.shape, strict=True))

    @property
    def slices(self) -> dict[tuple[int, ...], tuple[slice, ...]]:
        """The region of every chunk, by its coordinates."""
        return regions(self.sizes)


def clipped(edges: tuple[int, ...], extent: int) -> tuple[int, ...]:
    """The lengths of the parts of the edges that lie within the extent."""
    sizes, start = [], 0
    for edge in edges:
        if start < extent:
            sizes.append(min(edge, extent - start))
        start += edge
    return tuple(sizes)


def regions(sizes: Any) -> dict[tuple[int, ...], tuple[slice, ...]]:
    """The region of every chunk by its coordinates, from data sizes along each axis."""
    axes = []
    for axis in sizes:
        starts = [sum(axis[:k]) for k in range(len(axis))]
        axes.append([(k, slice(start, start + size)) for k, (start, size) in enumerate(zip(starts, axis, strict=True))])
    return {tuple(k for k, _ in parts): tuple(s for _, s in parts) for parts in product(*axes)}


def repeated(size: int, extent: int) -> tuple[int, ...]:
    """The edges of a regular axis."""
    return (size,) * -(-extent // size)


@st.composite
def edge_lists(draw: st.DrawFn, extent: int) -> tuple[int, ...]:
    """Edges that cover an extent, exactly or with slack, and perhaps some more beyond it."""
    edges: list[int] = []
    while sum(edges) < extent or not edges:
        edges.append(draw(st.integers(1, max(1, extent))))
    if draw(st.booleans()) and sum(edges) > extent:  # fit exactly
        edges[-1] -= sum(edges) - max(1, extent)
    if draw(st.integers(0, 3)) == 0:  # lie wholly beyond the end
        edges += draw(st.lists(st.integers(1, 4), max_size=3))
    return tuple(edges)


def as_runs(edges: tuple[int, ...]) -> list[Any]:
    """The same edges with `[length, count]` for neighbours of equal length."""
    runs: list[Any] = []
    for edge in edges:
        if runs and runs[-1][0] == edge:
            runs[-1][1] += 1
        else:
            runs.append([edge, 1])
    return runs


@st.composite
def axis_chunks(draw: st.DrawFn, extent: int) -> tuple[Any, tuple[int, ...]]:
    """One entry of `chunks=`, and the edges that it stands for."""
    kind = draw(st.sampled_from(["size", "whole", "edges", "edges", "runs"]))
    if kind == "size":
        size = draw(st.integers(1, extent + 2))
        return draw(st.sampled_from([size, np.int64(size)])), repeated(size, extent)
    if kind == "whole":
        return draw(st.sampled_from([-1, None])), repeated(max(1, extent), extent)
    edges = draw(edge_lists(extent))
    if kind == "runs":
        return as_runs(edges), edges
    return draw(st.sampled_from([list, tuple, np.array]))(edges), edges


@st.composite
def grids(draw: st.DrawFn, shape: tuple[int, ...]) -> Grid:
    """`chunks=` arguments of every form: regular, rectilinear, mixed, overflowing, as runs."""
    if shape and draw(st.integers(0, 4)) == 0:
        size = draw(st.integers(1, max(shape) + 1))
        return Grid(size, tuple(repeated(size, n) for n in shape), shape)
    axes = [draw(axis_chunks(n)) for n in shape]
    argument = [entry for entry, _ in axes]
    return Grid(draw(st.sampled_from([list, tuple]))(argument), tuple(edges for _, edges in axes), shape)


# -- selections -----------------------------------------------------------------------------------


def integers(extent: int, stray: bool = True) -> st.SearchStrategy[Any]:
    """Positions from both ends; now and then one that lies outside."""
    inside = st.integers(-extent, extent - 1) if extent else st.just(0)
    near = st.integers(-extent - 2, extent + 1)
    number = st.integers(0, 19).flatmap(lambda k: near if k == 0 else inside) if stray else inside
    return number | number.map(np.int64)


def slices(extent: int) -> st.SearchStrategy[slice]:
    """Slices of any sign and step, also wholly outside."""
    bound = st.none() | st.integers(-extent - 2, extent + 2)
    step = st.none() | st.sampled_from([1, 2, 3, 7, -1, -1, -2, -5])
    return st.builds(slice, bound, bound, step)


def masks(shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    """Boolean arrays."""
    size = prod(shape)
    return st.lists(st.booleans(), min_size=size, max_size=size).map(lambda bits: np.array(bits, bool).reshape(shape))


@st.composite
def index_arrays(draw: st.DrawFn, extent: int, shape: tuple[int, ...]) -> Any:
    """Positions in any order, with repetitions, as an array of any integer type or as lists."""
    count = prod(shape)
    picked = draw(st.lists(integers(extent, stray=False), min_size=count, max_size=count))
    if picked and draw(st.integers(0, 29)) == 0:
        picked[0] = extent
    array = np.array(picked, np.int64).reshape(shape)
    form = draw(st.sampled_from(["int64", "int8", "uint16", "list"]))
    if form == "list":
        return array.tolist()
    return array if form == "uint16" and (array < 0).any() else array.astype(form)


def with_extras(draw: st.DrawFn, items: list[Any], *, newaxis: bool) -> tuple[Any, ...]:
    """The items, some of the last ones left out, with `...` and new axes somewhere."""
    items = items[: draw(st.integers(0, len(items)))] if draw(st.booleans()) else items
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    for _ in range(draw(st.sampled_from([0, 0, 1, 2])) if newaxis else 0):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items)


def unwrapped(draw: st.DrawFn, items: tuple[Any, ...]) -> Any:
    """A single item now and then without its tuple."""
    return items[0] if len(items) == 1 and draw(st.booleans()) else items


@st.composite
def basic(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Integers, slices, `...` and new axes."""
    items = [draw(integers(n) | slices(n) | slices(n)) for n in shape]
    return unwrapped(draw, with_extras(draw, items, newaxis=True))


@st.composite
def mixed(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Everything that numpy accepts: index arrays and masks of one or several axes among the basic ones."""
    common = draw(st.sampled_from([(3,), (2, 3), (1,), (4,), (0,), (2, 1, 2)]))
    items: list[Any] = []
    axis = 0
    while axis < len(shape):
        kind = draw(st.sampled_from(["basic", "basic", "array", "array", "mask"]))
        width = draw(st.integers(1, len(shape) - axis)) if kind == "mask" else 1
        if kind == "mask":
            items.append(draw(masks(shape[axis : axis + width])))
        elif kind == "array":
            ones = draw(st.lists(st.booleans(), min_size=len(common), max_size=len(common)))
            own = tuple(1 if one else n for one, n in zip(ones, common, strict=True))
            items.append(draw(index_arrays(shape[axis], own[draw(st.integers(0, len(own) - 1)) :])))
        else:
            items.append(draw(integers(shape[axis]) | slices(shape[axis])))
        axis += width
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):  # masks without axes
        items.insert(draw(st.integers(0, len(items))), draw(st.sampled_from([True, False, np.True_, np.array(False)])))
    return unwrapped(draw, with_extras(draw, items, newaxis=True))


@st.composite
def orthogonal(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """For each axis an integer, a slice, a mask or positions."""
    items = []
    for n in shape:
        positions = st.integers(0, 5).flatmap(lambda count, n=n: index_arrays(n, (count,)))
        items.append(draw(integers(n) | slices(n) | masks((n,)) | positions))
    return unwrapped(draw, with_extras(draw, items, newaxis=False))


@st.composite
def points(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """One integer array for each axis that broadcast together, or a mask of the whole shape."""
    if shape and draw(st.integers(0, 3)) == 0:
        return draw(masks(shape))
    common = draw(st.sampled_from([(3,), (2, 3), (1,), (0,), (5,)]))
    own = [draw(st.sampled_from([common, (1,) * len(common), (common[-1],)])) for _ in shape]
    items = [draw(integers(n) | index_arrays(n, s)) for n, s in zip(shape, own, strict=True)]
    return unwrapped(draw, tuple(items))


@st.composite
def blocks(draw: st.DrawFn, grid_shape: tuple[int, ...]) -> Any:
    """Integers and slices of step one that count chunks."""
    bounds = [st.none() | st.integers(-n - 1, n + 1) for n in grid_shape]
    items = [
        draw(integers(n) | st.builds(slice, bound, bound, st.sampled_from([None, 1])))
        for n, bound in zip(grid_shape, bounds, strict=True)
    ]
    return unwrapped(draw, with_extras(draw, items, newaxis=False))


# -- values ---------------------------------------------------------------------------------------


@st.composite
def values(draw: st.DrawFn, shape: tuple[int, ...], dtype: Any = "int32") -> Any:
    """Something to assign to a selection of this shape: it broadcasts, or now and then it does not."""
    kinds = ["same", "same", "scalar"]
    if shape:  # whether numpy puts `[1]` into a single element, and what it raises, depends on its version
        kinds += ["ones", "fewer", "leading", "wrong"]
    kind = draw(st.sampled_from(kinds))
    if kind == "scalar":
        return draw(st.sampled_from([1, True, np.int16(-5), np.float64(3.0)]))
    if kind == "ones":
        shape = tuple(draw(st.sampled_from([1, n])) for n in shape)
    elif kind == "fewer":
        shape = shape[draw(st.integers(0, len(shape))) :]
    elif kind == "leading":
        shape = (1,) * draw(st.integers(1, 2)) + shape
    elif kind == "wrong":
        shape = (*shape[:-1], shape[-1] + 2)
    value = -counted(shape).astype(np.int64)
    # numpy takes leading ones from arrays only, not from lists.
    lists = [value.tolist()] if kind != "leading" else []
    return draw(st.sampled_from([value, value.astype(dtype), value.copy(order="F"), *lists]))
