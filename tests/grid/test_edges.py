"""`Edges` is a tuple of integers in every respect but its size."""

from __future__ import annotations

import copy
import json
import pickle
import tracemalloc
from bisect import bisect_right
from itertools import accumulate, groupby

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zellige import VaryingDimension
from zellige.errors import ChunkShapeError
from zellige.grid import edges as runs
from zellige.grid.edges import Computed, Edges, InnerEdges, LazyTuple, as_tuple, compress_rle, expand_rle

MOST = 2**63 - 1
TRILLION = 10**12
START = (0,)

# Few distinct lengths, so that runs of several chunks are common.
lengths = st.lists(st.sampled_from([1, 2, 3, 7, 10]), max_size=25)
some_lengths = lengths.filter(bool)
positions = st.integers(-30, 30)
ends = st.none() | positions


@st.composite
def entries(draw):
    """What a user may write, with lengths and runs mixed, and the list that it stands for."""
    written, meant = [], []
    for size, count in draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=8)):
        kind = draw(st.sampled_from([list, tuple, np.array, "bare"]))
        written += [size] * count if kind == "bare" else [kind([size, count])]
        meant += [size] * count
    return written, meant


def outcome(action):
    """The result of an action, or the kind of error that it raises."""
    try:
        return action()
    except (IndexError, ValueError, TypeError) as error:
        return type(error)


# -- a sequence like a tuple ----------------------------------------------------------------------


@settings(deadline=None)
@given(lengths)
def test_items_are_those_of_the_list(sizes):
    edges = Edges.of(sizes)
    assert len(edges) == len(sizes)
    assert list(edges) == sizes
    assert list(reversed(edges)) == sizes[::-1]
    assert edges.total == sum(sizes)
    assert bool(edges) == bool(sizes)
    assert all(type(item) is int for item in edges)


@settings(deadline=None)
@given(lengths, positions)
def test_one_item_or_the_same_error(sizes, at):
    edges = Edges.of(sizes)
    assert outcome(lambda: edges[at]) == outcome(lambda: sizes[at])
    assert outcome(lambda: edges[np.int64(at)]) == outcome(lambda: sizes[at])


@pytest.mark.parametrize("at", [1.0, "0", None])
def test_positions_are_integers(at):
    with pytest.raises(TypeError):
        Edges.of([1, 2])[at]


@settings(deadline=None)
@given(lengths, ends, ends, st.none() | st.integers(-5, 5))
def test_slices_are_those_of_the_tuple(sizes, start, stop, step):
    edges, cut = Edges.of(sizes), slice(start, stop, step)
    found = outcome(lambda: edges[cut])
    assert found == outcome(lambda: tuple(sizes)[cut])
    assert found is ValueError or type(found) is tuple
    if step != 0:
        part = edges.part(range(len(sizes))[cut])
        assert (type(part), part, part.total) == (Edges, tuple(sizes[cut]), sum(sizes[cut]))


@settings(deadline=None)
@given(lengths, st.integers(0, 12), ends, ends)
def test_search(sizes, size, start, stop):
    edges = Edges.of(sizes)
    assert (size in edges) == (size in sizes)
    assert edges.count(size) == sizes.count(size)
    assert outcome(lambda: edges.index(size)) == outcome(lambda: sizes.index(size))
    bounds = [0 if start is None else start] + ([] if stop is None else [stop])
    assert outcome(lambda: edges.index(size, *bounds)) == outcome(lambda: sizes.index(size, *bounds))


@pytest.mark.parametrize("other", ["a", None, 1.5, (1, 2)])
def test_search_for_what_cannot_be_there(other):
    edges = Edges.of([1, 2])
    assert other not in edges
    assert edges.count(other) == 0
    with pytest.raises(ValueError, match="no edge"):
        edges.index(other)


@settings(deadline=None)
@given(lengths, lengths)
def test_equality_both_ways_and_hash(a, b):
    edges = Edges.of(a)
    for other in (Edges.of(b), tuple(b)):
        assert (edges == other) is (a == b)
        assert (other == edges) is (a == b)
        assert (edges != other) is (a != b)
    assert hash(edges) == hash(tuple(a))
    assert {tuple(a): "found"}[edges] == "found"


@pytest.mark.parametrize("other", [None, 3, "12", {1, 2}, [1, 2], object()])
def test_equal_to_no_other_kind(other):
    edges = Edges.of([1, 2])
    assert (edges == other) is False
    assert (other == edges) is False


def test_runs_do_not_show_in_equality():
    assert Edges.of([2, 2, 2, 1]) == Edges.of([[2, 1], [2, 2], 1]) == Edges.of(np.array([2, 2, 2, 1]))
    assert Edges.of([2, 4]) != Edges.of([4, 2])
    assert Edges.of([3, 3]) != Edges.of([2, 4])  # the same sum, the same number


@settings(deadline=None)
@given(lengths)
def test_copies_are_equal(sizes):
    edges = Edges.of(sizes)
    for twin in (pickle.loads(pickle.dumps(edges)), copy.copy(edges), copy.deepcopy(edges), Edges.of(edges)):
        assert isinstance(twin, Edges)
        assert twin == tuple(sizes)
        assert hash(twin) == hash(edges)


@settings(deadline=None)
@given(lengths, lengths)
def test_edges_are_joined_as_runs(a, b):
    joined = Edges.of(a).joined(Edges.of(b).runs)
    assert joined == tuple(a + b)
    assert [*joined.runs] == [(size, len([*same])) for size, same in groupby(a + b)]


# -- every kind of lazy tuple ---------------------------------------------------------------------


def _kinds(sizes: list[int], inner: int) -> list[tuple[LazyTuple, tuple[int, ...]]]:
    """Every kind of sequence that is not expanded, with the tuple that it stands for."""
    edges = Edges.of(sizes)
    cut = [min(inner, size - start) for size in sizes for start in range(0, size, inner)]
    computed = Computed(edges.end, range(len(sizes)))
    return [
        (edges, tuple(sizes)),
        (InnerEdges(edges, inner), tuple(cut)),
        (computed, tuple(accumulate(sizes))),
        (computed.part(range(len(sizes))[::-2]), tuple(accumulate(sizes))[::-2]),
        (edges + START + START, (*sizes, 0, 0)),
        (START + edges, (0, *sizes)),
        (START + InnerEdges(edges, inner) + computed, (0, *cut, *accumulate(sizes))),
    ]


@settings(deadline=None)
@given(lengths, st.integers(1, 4), ends, ends, st.none() | st.integers(-3, 3).filter(bool), lengths, st.booleans())
def test_whatever_a_tuple_does(sizes, inner, start, stop, step, others, expanded):
    with pytest.MonkeyPatch.context() as patch:
        if not expanded:
            patch.setattr(runs, "EXPANDED", -1)
        for lazy, model in _kinds(sizes, inner):
            other, cut = tuple(others), slice(start, stop, step)
            assert (len(lazy), tuple(lazy), lazy[0:], bool(lazy)) == (len(model), model, model, bool(model))
            assert [*reversed(lazy)] == [*reversed(model)]
            assert [lazy[k] for k in range(-len(model), len(model))] == [*model, *model]
            assert lazy == model
            assert model == lazy
            assert hash(lazy) == hash(model)
            assert pickle.loads(pickle.dumps(lazy)) == model
            assert lazy[cut] == model[cut]
            assert isinstance(lazy[cut], tuple if expanded else LazyTuple)
            assert lazy + other == model + other
            assert other + lazy == other + model
            assert lazy + lazy == model + model
            for one, two in ((lazy, other), (lazy, Edges.of(others)), (other, lazy), (lazy, model[:-1]), (lazy, lazy)):
                left, right = tuple(one), tuple(two)
                assert (one < two, one <= two, one > two, one >= two, one == two, one != two) == (
                    (left < right, left <= right, left > right, left >= right, left == right, left != right)
                )
            assert lazy.count(2) == model.count(2)
            assert (2 in lazy) == (2 in model)
            assert outcome(lambda lazy=lazy: lazy.index(2)) == outcome(lambda model=model: model.index(2))
            if isinstance(lazy, LazyTuple):
                assert json.loads(json.dumps(lazy, default=list)) == [*model]
                counted = [(value, len([*same])) for value, same in groupby(model)]
                assert lazy.to_rle() == [value if count == 1 else [value, count] for value, count in counted]


@pytest.mark.parametrize("other", [3, None, "ab", [1, 2]])
def test_what_a_tuple_refuses_is_a_type_error(other):
    edges = Edges.of([1, 2])
    for action in (
        lambda: edges + other,
        lambda: other + edges,
        lambda: edges < other,
        lambda: other >= edges,
    ):
        with pytest.raises(TypeError):
            action()


def test_up_to_a_million_are_a_tuple():
    assert type(as_tuple(Edges.of([[2, 10**6]]))) is tuple
    assert isinstance(as_tuple(Edges.of([[2, 10**6 + 1]])), LazyTuple)
    assert type(expand_rle([[2, 10**6]])) is list
    dimension = VaryingDimension([[2, 10**6 + 1]], 7)
    for many in (dimension.edges, dimension.cumulative):
        assert len(many) == 10**6 + 1
        assert isinstance(many, LazyTuple)
        assert type(many[1:]) is tuple
    assert dimension.cumulative[-1] == 2 * 10**6 + 2


def test_a_trillion_entries_are_compared_joined_and_shown_without_being_expanded():
    many = Edges.of([3, [7, TRILLION]])
    twin = Edges.of([3, [7, TRILLION], 9])
    inner = InnerEdges(Edges.of([[7, TRILLION], 5]), 2)
    offsets = START + many
    assert many < twin
    assert many + Edges.of([9]) == twin
    assert START + many != START + twin
    assert twin > (3, 7, 6)
    assert (len(offsets), offsets[0], offsets[1], offsets[-1]) == (TRILLION + 2, 0, 3, 7)
    assert offsets[:4] == (0, 3, 7, 7)
    assert (len(inner), inner[3], inner[4], inner[-1], inner[-4]) == (4 * TRILLION + 3, 1, 2, 1, 1)
    assert inner[4 * TRILLION - 4 : 4 * TRILLION + 3] == (2, 2, 2, 1, 2, 2, 1)
    assert inner < many
    for lazy in (many, offsets, inner, many[1:]):
        assert len(repr(lazy)) < 100
        assert pickle.loads(pickle.dumps(lazy))[-1] == lazy[-1]
        with pytest.raises(TypeError, match=r"entries are too many to hash like a tuple; hash tuple\(sizes\.runs\)"):
            hash(lazy)


def test_repr_is_that_of_the_tuple_while_it_is_short():
    assert repr(Edges.of([])) == "()"
    assert repr(Edges.of([4])) == "(4,)"
    assert repr(Edges.of([1, 2, 2])) == "(1, 2, 2)"
    long = repr(Edges.of([5, [7, TRILLION], 9]))
    assert len(long) < 100
    assert long.startswith("(5, 7, 7")
    assert long.endswith("9)")


# -- geometry -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(some_lengths)
def test_every_element_and_chunk_against_the_list(sizes):
    edges = Edges.of(sizes)
    begins = [0, *accumulate(sizes)][:-1]
    owner = [chunk for chunk, size in enumerate(sizes) for _ in range(size)]
    assert [edges.offset(chunk) for chunk in range(len(sizes))] == begins
    assert [edges.chunk_of(i) for i in range(len(owner))] == owner
    assert [edges.locate(i) for i in range(len(owner))] == [(c, begins[c], sizes[c]) for c in owner]
    indices = np.arange(len(owner)).reshape(1, -1)
    found = edges.chunks_of(indices)
    assert found.shape == indices.shape
    assert found.tolist() == [owner]
    assert list(edges.unique()) == list(dict.fromkeys(sizes))


uneven_lengths = st.lists(st.sampled_from([1, 2, 3, 7, 10, 100, 1000]), min_size=1, max_size=60)


@settings(deadline=None)
@given(
    uneven_lengths,
    st.lists(st.integers(0, MOST), min_size=1, max_size=50),
    st.sampled_from(["int64", "uint64", "int32"]),
    st.sampled_from([0, 1, 8]),
)
@example([1, 2] * 20 + [1000], [3, 2, 1, 0, 1059, 59, 61], "int64", 8)  # all but one of the runs in the first bucket
def test_many_elements_in_any_order(sizes, picks, dtype, fewer):
    """By the table, by looking them up in order, and by the latter for what the former leaves."""
    edges = Edges.of(sizes)
    indices = np.array([pick % sum(sizes) for pick in picks], dtype).reshape(-1, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_MANY", 0)
        patch.setattr(runs, "_FEWER", fewer or 1e-9)
        found = edges.chunks_of(indices)
    starts = [0, *accumulate(sizes)]
    assert found.shape == indices.shape
    assert found.ravel().tolist() == [bisect_right(starts, index) - 1 for index in indices.ravel().tolist()]


def test_many_look_ups_take_memory_for_runs_and_elements_however_long_the_runs_are():
    sizes = np.arange(20_000) % 5 + 1
    for longest in (1, 10**6, 10**15):
        sizes[123] = longest
        edges = Edges.of(sizes)
        indices = np.random.default_rng(0).integers(0, edges.total, 50_000)
        indices[:25_000] = np.random.default_rng(1).integers(0, 300, 25_000)  # where runs are short
        tracemalloc.start()
        found = edges.chunks_of(indices)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (found == np.cumsum(sizes).searchsorted(indices, "right")).all()
        assert peak < 5 * (sizes.nbytes + indices.nbytes)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([4, 10**6, 2**48]))
def test_many_random_elements_of_a_large_table(seed, largest):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest, 12_000)
    if largest > 4:
        sizes[1:][sizes[1:] == sizes[:-1]] += 1  # every run is one chunk
    edges = Edges.of(sizes)
    sums = [*accumulate(sizes.tolist())]
    indices = rng.integers(0, sums[-1], (101, 101))
    found = edges.chunks_of(indices)
    assert found.shape == indices.shape
    assert found.ravel().tolist() == [bisect_right(sums, i) for i in indices.ravel().tolist()]


def test_no_elements():
    assert Edges.of([3, [2, 5]]).chunks_of(np.array([], np.intp)).shape == (0,)


@settings(deadline=None)
@given(lengths, st.integers(0, 60))
def test_clipping_keeps_what_lies_before_the_end(sizes, extent):
    begins = [0, *accumulate(sizes)][:-1]
    inside = [min(size, extent - begin) for size, begin in zip(sizes, begins, strict=True) if begin < extent]
    assert Edges.of(sizes).clipped(extent) == tuple(inside)


# -- run-length form ------------------------------------------------------------------------------


@settings(deadline=None)
@given(entries())
def test_lengths_and_runs_may_be_mixed(pair):
    written, meant = pair
    assert Edges.of(written) == tuple(meant)
    assert Edges.of(iter(written)) == tuple(meant)
    assert Edges.of(meant).total == sum(meant)


@settings(deadline=None)
@given(
    lengths,
    st.sampled_from([list, tuple, iter, np.array, lambda s: np.array(s, np.uint8), lambda s: [*map(np.int16, s)]]),
)
def test_every_kind_of_sequence(sizes, kind):
    if sizes or kind is not np.array:  # numpy makes floats of nothing
        assert Edges.of(kind(sizes)) == tuple(sizes)


@settings(deadline=None)
@given(lengths)
@example([10, 10, 10, 5])
def test_compressing_and_expanding(sizes):
    packed = compress_rle(sizes)
    assert expand_rle(packed) == sizes
    assert packed == [
        size if count == 1 else [size, count] for size, count in ((size, len([*same])) for size, same in groupby(sizes))
    ]
    assert compress_rle(packed) == packed  # entries may be runs already
    assert all(type(n) is int for entry in packed for n in (entry if isinstance(entry, list) else [entry]))


def test_the_examples_of_the_extension():
    # Seed 002: five ways to write edges for an axis of length 6; seed 004: compress and expand.
    written = [[[2, 3]], [[1, 6]], [1, [2, 1], 3], [[1, 3], 3], [6]]
    assert [expand_rle(axis) for axis in written] == [[2, 2, 2], [1] * 6, [1, 2, 3], [1, 1, 1, 3], [6]]
    assert compress_rle([10, 10, 10, 5]) == [[10, 3], 5]
    assert expand_rle([[10, 3], 5]) == [10, 10, 10, 5]


def test_a_trillion_chunks_take_no_memory():
    tracemalloc.start()
    try:
        edges = expand_rle([3, [7, TRILLION], 2, [7, TRILLION]])
        assert len(edges) == 2 * TRILLION + 2
        assert edges.total == 5 + 14 * TRILLION
        assert edges[TRILLION] == 7
        assert edges[TRILLION + 1] == 2
        assert edges[-1] == 7
        assert edges.offset(TRILLION) == 3 + 7 * (TRILLION - 1)
        assert edges.chunk_of(3 + 7 * (TRILLION - 1)) == TRILLION
        assert edges.chunks_of(np.array([2, 3, 9, 10])).tolist() == [0, 1, 1, 2]
        assert edges.count(7) == 2 * TRILLION
        assert 5 not in edges
        assert edges.index(2) == TRILLION + 1
        assert edges.index(7, TRILLION + 1) == TRILLION + 2
        chunks = range(len(edges))
        assert [*edges.part(chunks[1 : TRILLION + 2]).runs] == [(7, TRILLION), (2, 1)]
        # The 2 is at an odd position: two runs of 7 become one without it.
        assert [*edges.part(chunks[::2]).runs] == [(3, 1), (7, TRILLION)]
        assert [*edges.part(chunks[::-2]).runs] == [(7, TRILLION // 2), (2, 1), (7, TRILLION // 2)]
        assert edges[:: 10**30] == (3,)
        assert edges[:: -(10**30)] == (7,)
        assert [*edges.part(chunks[:2:-1]).runs] == [(7, TRILLION), (2, 1), (7, TRILLION - 2)]
        assert [*edges.clipped(3 + 7 * 10 + 1).runs] == [(3, 1), (7, 10), (1, 1)]
        assert len(edges.joined(edges.runs)) == len(edges + edges) == 4 * TRILLION + 4
        assert edges == expand_rle(compress_rle(edges))
        assert edges != edges[:-1]
        assert edges != (7,)
        assert pickle.loads(pickle.dumps(edges)) == edges
        assert Computed(edges.end, chunks)[-1] == edges.total
        assert compress_rle(edges) == [3, [7, TRILLION], 2, [7, TRILLION]]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


# -- what is refused ------------------------------------------------------------------------------

REFUSED = [
    ([True], "integer.*True"),
    ([1, True], "integer.*True"),
    ([np.bool(True)], "integer"),
    ([2.0], r"integer.*2\.0"),
    ([np.float64(2)], "integer"),
    (["2"], "integer.*'2'"),
    (["[2, 3]"], "integer"),
    ("23", "integer.*'2'"),
    ([b"23"], "integer"),
    ([None], "integer.*None"),
    ([{}], "integer"),
    ([0], "at least 1"),
    ([3, 0, 3], "at least 1"),
    ([-1], "at least 1"),
    ([1, -(2**70)], "at least 1"),
    ([[1]], r"pair.*\[1\]"),
    ([[1, 2, 3]], "pair"),
    ([[]], "pair"),
    ([[0, 2]], "length of a run.*at least 1"),
    ([[2, 0]], "count of a run.*at least 1"),
    ([[2, -1]], "count of a run.*at least 1"),
    ([[True, 2]], "length of a run.*integer"),
    ([[2, True]], "count of a run.*integer"),
    ([[2, 1.0]], "count of a run.*integer"),
    ([["2", 1]], "length of a run.*integer"),
    ([[[1, 2], 3]], "length of a run.*integer"),
    ([np.array(3)], "integer"),
    (np.array([1.0, 2.0]), "1-d integers.*float64"),
    (np.array([True]), "1-d integers.*bool"),
    (np.array([[1, 2]]), "1-d integers"),
    (np.array(3), "1-d integers"),
    (np.array([2, 0]), "edge 1 is 0"),
    (np.array([2, -3]), "edge 1 is -3"),
    ([2**63], str(MOST)),
    ([MOST, 1], str(MOST)),
    ([[1, 2**63]], str(MOST)),
    ([[2**32, 2**32]], str(MOST)),
    ([[10**4000, 10**4000]], str(MOST)),
    ([10**5000], str(MOST)),
    ([[1, 10**5000]], str(MOST)),
    ([1, 2**62, 2, 2**62], str(MOST)),
    (np.array([2**63], np.uint64), str(MOST)),
    (np.array([2**62, 2**62]), str(MOST)),
    (np.full(1000, 2**60), str(MOST)),
]


@pytest.mark.parametrize(("bad", "message"), REFUSED)
def test_refused(bad, message):
    with pytest.raises(ChunkShapeError, match=message):
        Edges.of(bad)


def test_up_to_the_limit():
    for edges in (Edges.of([MOST]), Edges.of([[1, MOST]]), Edges.of([MOST - 1, 1]), Edges.of(np.array([MOST - 1, 1]))):
        assert edges.total == MOST
        assert edges.chunk_of(MOST - 1) == len(edges) - 1
        assert edges.offset(len(edges) - 1) + edges[-1] == MOST
        assert edges.chunks_of(np.array([0, MOST - 1])).tolist() == [0, len(edges) - 1]
