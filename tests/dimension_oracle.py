"""Dimensions with a naive oracle: an explicit list of edges."""

from __future__ import annotations

from itertools import accumulate
from math import ceil

from hypothesis import strategies as st

from zellige import FixedDimension, VaryingDimension


class Oracle:
    """A dimension as plain lists: the declared edges, and the extent."""

    def __init__(self, edges, extent):
        self.edges, self.extent = list(edges), extent
        self.begins = [0, *accumulate(self.edges)][:-1]
        self.owner = [k for k, edge in enumerate(self.edges) for _ in range(edge)][:extent]
        self.data = [max(0, min(e, extent - b)) for e, b in zip(self.edges, self.begins, strict=True)]
        self.nchunks = sum(size > 0 for size in self.data)


@st.composite
def fixed(draw):
    size, extent = draw(st.integers(1, 12)), draw(st.integers(0, 40))
    return FixedDimension(size, extent), Oracle([size] * ceil(extent / size), extent)


@st.composite
def varying(draw):
    edges = draw(st.lists(st.sampled_from([1, 2, 3, 8]), min_size=1, max_size=10))
    extent = draw(st.integers(0, sum(edges)))
    return VaryingDimension(edges, extent), Oracle(edges, extent)


dimensions = fixed() | varying()
