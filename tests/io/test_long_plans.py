"""Plans over axes with more chunks than memory holds: the same projections, one at a time."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

import zellige
from zellige import FixedDimension, VaryingDimension
from zellige.io import plan


@st.composite
def dimensions_with_ranges(draw):
    if draw(st.booleans()):
        extent = draw(st.integers(1, 40))
        dim = FixedDimension(draw(st.integers(1, 12)), extent)
    else:
        edges = draw(st.lists(st.integers(1, 6), min_size=1, max_size=12))
        dim = VaryingDimension(edges, draw(st.integers(1, sum(edges))))
    start = draw(st.integers(0, dim.extent - 1))
    return dim, range(start, draw(st.integers(start + 1, dim.extent)))


@given(dimensions_with_ranges())
def test_a_long_range_projects_like_a_short_one(case):
    dim, at = case
    expected = plan._project_range(at, dim)
    found = plan._LongRange(at, dim)
    assert list(found) == expected
    assert len(found) == len(expected)
    assert found[:2] == expected[:2]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=4))
def test_the_lazy_product_is_the_product(axes):
    lists = [list(range(size)) for size, _ in axes]
    mixed = [items if plain else tuple(items) for items, (_, plain) in zip(lists, axes, strict=True)]
    expected = [()]
    for items in lists:
        expected = [(*head, item) for head in expected for item in items]
    assert list(plan._product(mixed)) == expected


def test_the_chunks_of_an_endless_grid_come_one_by_one():
    a = zellige.zeros((10**12, 10**12), chunks=([[1, 10**12]], 1), dtype="int8")
    assert [chunk.key for chunk in islice(a.iter_chunks(), 3)] == ["c/0/0", "c/0/1", "c/0/2"]
    assert [chunk.key for chunk in islice(a.iter_chunks((slice(5, None), slice(7, 9))), 3)] == [
        "c/5/7",
        "c/5/8",
        "c/6/7",
    ]
