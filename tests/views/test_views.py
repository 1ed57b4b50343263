"""Lazy views: selections of selections read and write what numpy does, and touch only what they must."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from counting_store import READS, WRITES, CountingStore
from zellige.errors import BoundsCheckError, BroadcastError, FieldNotFoundError, ReadOnlyError
from zellige.views import LazyArray, arrays_of, concat, lazy, stack

KINDS = (IndexError, ValueError, TypeError)
LAYOUTS: list[dict[str, Any]] = [{}, {"compressors": None}, {"order": "F"}, {"checksum": True}]


@st.composite
def arrays(draw: st.DrawFn, **limits: int) -> tuple[zellige.Array, np.ndarray]:
    """An array in memory and the same values in numpy."""
    model = ours.counted(draw(ours.shapes(**limits)), draw(st.sampled_from(["int32", "float64"])))
    chunks = draw(ours.grids(model.shape)).argument
    return zellige.create_array(data=model, chunks=chunks, **draw(st.sampled_from(LAYOUTS))), model


class SlicesOnly:
    """An array that is nobody's: it has a shape, a type, and ascending slices; and it remembers what was asked."""

    def __init__(self, model: np.ndarray) -> None:
        self._model, self.shape, self.dtype = model, model.shape, model.dtype
        self.asked: list[tuple[slice, ...]] = []

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        assert len(index) == len(self.shape)
        assert all(s.start >= 0 and s.step in (None, *range(1, 99)) for s in index)
        self.asked.append(index)
        return self._model[index]


SOURCES: dict[str, Callable[[np.ndarray, Any], Any]] = {
    "an array": lambda model, chunks: zellige.create_array(data=model, chunks=chunks),
    "a view": lambda model, chunks: lazy(zellige.create_array(data=model.T, chunks=1)).T,
    "numpy": lambda model, chunks: model.copy(),
    "slices only": lambda model, chunks: SlicesOnly(model.copy()),
}


# -- selections of selections ---------------------------------------------------------------------


def attempt(action: Callable[[], Any]) -> tuple[Any, type[Exception] | None]:
    """The result, or the kind of the error."""
    try:
        return action(), None
    except KINDS as error:
        return None, next(kind for kind in KINDS if isinstance(error, kind))


def orthogonal(model: np.ndarray, index: Any) -> np.ndarray:
    """`oindex` by numpy, one axis after the other, from the last."""
    items = index if isinstance(index, tuple) else (index,)
    at = next((k for k, item in enumerate(items) if item is Ellipsis), len(items))
    items = (*items[:at], *[slice(None)] * (model.ndim - len(items) + 1), *items[at + 1 :])
    for axis in reversed(range(model.ndim)):
        item = np.array(items[axis], np.intp) if isinstance(items[axis], list) else items[axis]
        model = model[(slice(None),) * axis + (item,)]
    return np.asarray(model)


@st.composite
def steps(draw: st.DrawFn, shape: tuple[int, ...], basic: bool = False) -> tuple[str, Any]:
    """One way to go from a view to the next, with its argument."""
    ways = ["basic"] if basic else ["basic", "mixed", "mixed", "orthogonal", "points"]
    way = draw(st.sampled_from([*ways, "transpose"]))
    if way == "transpose":
        return way, draw(st.permutations(range(len(shape))))
    return way, composing(draw(getattr(ours, way)(shape)))


def composing(index: Any) -> Any:
    """The same index; the three dots alone would read."""
    return (index,) if index is Ellipsis else index


def follow_view(view: LazyArray, way: str, argument: Any) -> LazyArray:
    if way == "transpose":
        return view.transpose(argument)
    return {"orthogonal": view.oindex, "points": view.vindex}.get(way, view)[argument]


def follow_numpy(model: np.ndarray, way: str, argument: Any) -> np.ndarray:
    if way == "transpose":
        return model.transpose(argument)
    return orthogonal(model, argument) if way == "orthogonal" else np.asarray(model[argument])


def compose(data: st.DataObject, view: LazyArray, positions: np.ndarray, basic: bool = False) -> Any:
    """A chain of 1 to 4 random steps from a view and from the positions of its elements; None where both fail."""
    for _ in range(data.draw(st.integers(1, 4))):
        way, argument = data.draw(steps(positions.shape, basic))
        expected, kind = attempt(lambda p=positions, w=way, a=argument: follow_numpy(p, w, a))
        found, error = attempt(lambda v=view, w=way, a=argument: follow_view(v, w, a))
        # numpy does not check index arrays against the bounds if the result is empty.
        assert error is kind or (kind is None and expected.size == 0 and error is IndexError)
        if error is not None:
            return None
        view, positions = found, expected
        assert isinstance(view, LazyArray)
        assert (view.shape, view.ndim, view.size) == (positions.shape, positions.ndim, positions.size)
    return view, positions


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    """The flat position of every element."""
    return np.arange(int(np.prod(shape, dtype=int))).reshape(shape)


def check_equal(found: Any, expected: np.ndarray) -> None:
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


@ours.examples(0.15)
@given(arrays(max_dims=4, max_side=6), st.data())
def test_chains_of_selections_read_what_numpy_reads(case, data):
    array, model = case
    composed = compose(data, lazy(array), numbered(model.shape))
    if composed is not None:
        view, positions = composed
        expected = model.ravel()[positions]
        check_equal(view[...], expected)
        check_equal(np.asarray(view), expected)
        check_equal(view.result(), expected)
        view[...][...] = 0  # the result is the caller's own
        check_equal(array[...], model)


@ours.examples(0.06)
@given(st.sampled_from(sorted(SOURCES)), arrays(), st.data())
def test_every_kind_of_source_reads_the_same(kind, case, data):
    _, model = case
    source = SOURCES[kind](model, data.draw(ours.grids(model.shape)).argument)
    composed = compose(data, lazy(source), numbered(model.shape))
    if composed is not None:
        view, positions = composed
        check_equal(view[...], model.ravel()[positions])
        view[...][...] = 0
        check_equal(np.asarray(lazy(source)), model)


def assigned(model: np.ndarray, positions: np.ndarray, value: Any) -> np.ndarray:
    """The model after values were put to some positions, one by one in C order; ValueError if they do not fit."""
    values = np.empty(positions.shape, model.dtype)
    values[...] = value
    flat = model.copy().ravel()
    for position, element in zip(positions.ravel().tolist(), values.ravel().tolist(), strict=True):
        flat[position] = element
    return flat.reshape(model.shape)


@ours.examples(0.12)
@given(arrays(max_dims=3, max_side=6), st.sampled_from(["an array", "numpy"]), st.data())
def test_writing_through_a_view_puts_values_to_its_positions(case, kind, data):
    array, model = case
    source = array if kind == "an array" else model.copy()
    composed = compose(data, lazy(source), numbered(model.shape))
    if composed is None:
        return
    view, positions = composed
    index = data.draw(ours.mixed(positions.shape))
    picked, refused = attempt(lambda: np.asarray(positions[index]))
    if refused or attempt(lambda: view[composing(index)])[1]:
        index, picked = ..., positions
    value = data.draw(ours.values(picked.shape))
    expected, wrong = attempt(lambda: assigned(model, picked, value))
    assert attempt(lambda: view.__setitem__(index, value))[1] is wrong
    check_equal(np.asarray(source[...]), model if wrong else expected)


@ours.examples(0.04)
@given(arrays(max_dims=4, max_side=6), st.data())
def test_writing_through_slices_of_slices_is_writing_to_views_of_numpy(case, data):
    array, model = case
    view, target = lazy(array), model
    for _ in range(data.draw(st.integers(1, 3))):
        index = composing(data.draw(ours.basic(target.shape)))
        found, kind = attempt(lambda i=index, t=target: t[i])
        composed, error = attempt(lambda i=index, v=view: v[i])
        assert error is kind
        if not isinstance(found, np.ndarray):
            break  # an error, or a scalar of numpy, which is no view
        view, target = composed, found
    value = data.draw(ours.values(target.shape))
    wrong = attempt(lambda: target.__setitem__(..., value))[1]
    assert attempt(lambda: view.__setitem__(..., value))[1] is wrong
    check_equal(array[...], model)


@ours.examples(0.03)
@given(arrays(max_dims=3, max_side=5), st.sampled_from(["orthogonal", "points"]), st.data())
def test_the_other_ways_write_too(case, way, data):
    array, model = case
    positions = numbered(model.shape)[::-1] if model.ndim else numbered(())
    view = lazy(array)[::-1] if model.ndim else lazy(array)
    index = data.draw(getattr(ours, way)(model.shape))
    indexer = view.oindex if way == "orthogonal" else view.vindex
    picked, kind = attempt(lambda: follow_numpy(positions, way, index))
    if kind is None and not attempt(lambda: indexer[index])[1]:
        value = data.draw(ours.values(picked.shape))
        expected, wrong = attempt(lambda: assigned(model, picked, value))
        assert attempt(lambda: indexer.__setitem__(index, value))[1] is wrong
        check_equal(array[...], model if wrong else expected)


CHAINS: dict[str, Callable[[Any], Any]] = {
    "positions of axes that stand apart": lambda x: x[:, [0, 1, 1], :, [1, 0, 2]],
    "positions of axes that stand apart, and an integer": lambda x: x[:, [0, 1, 1]][:, :, 3, [1, 0, 2]],
    "a product and points": lambda x: x[[2, 0], :, [3, 1]][..., [2, 0]],
    "positions over two axes, transposed": lambda x: x[[[0, 1, 2], [2, 1, 0]]].T,
    "positions of positions": lambda x: x[[[0, 1, 2], [2, 1, 0]]].T[..., [2, 1], [1, 0]],
    "slices of positions": lambda x: x[[[0, 1, 2], [2, 1, 0]], :, [[3], [0]]][::-1, 1:].T[:, 1],
    "single positions of positions": lambda x: x[:, [0, 1, 0], [3, 2, 1]][:, 1],
    "axes in a circle": lambda x: x[0].transpose(1, 2, 0),
    "four axes in a circle": lambda x: x.transpose(3, 0, 1, 2)[..., ::-1],
    "new axes among others": lambda x: x[:, None, 1:, 0, None].T[..., None, ::-1],
    "elements that repeat": lambda x: x[None][[0, 0, 0], 1:].T[2],
    "elements that repeat, and positions that do": lambda x: x[:, None][[1, 1], [0, 0], 0].T,
}


@pytest.mark.parametrize("kind", ["an array", "numpy"])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_chains_one_by_one(chain, kind):
    model = ours.counted((3, 2, 4, 3))
    source = SOURCES[kind](model, [[1, 2], 1, 3, [2, 1]])
    view, positions = chain(lazy(source)), chain(numbered(model.shape))
    check_equal(view[...], model.ravel()[positions])
    check_equal(concat([view, view], 1)[:, 1:][...], np.concatenate([model.ravel()[positions]] * 2, 1)[:, 1:])
    value = -ours.counted(positions.shape)
    view[...] = value
    check_equal(source[...], assigned(model, positions, value))


# -- several arrays as one ------------------------------------------------------------------------


@st.composite
def pieces(draw: st.DrawFn, axis: int | None, shape: tuple[int, ...]) -> tuple[list[Any], list[np.ndarray]]:
    """Arrays of every kind and their values; the length along an axis differs."""
    sources, models = [], []
    for number in range(draw(st.integers(1, 4))):
        own = list(shape)
        if axis is not None:
            own[axis] = draw(st.integers(0, 5))
        dtype = draw(st.sampled_from(["int32", "int32", "int16", "float64"]))
        model = ours.counted(tuple(own), dtype, start=1000 * number)
        sources.append(SOURCES[draw(st.sampled_from(sorted(SOURCES)))](model, draw(ours.grids(model.shape)).argument))
        models.append(model)
    return sources, models


@ours.examples(0.1)
@given(ours.shapes(min_dims=1, max_side=5), st.data())
def test_concat_is_numpys_concatenate(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sources, models = data.draw(pieces(axis, shape))
    whole = np.concatenate(models, axis)
    view = concat(sources, axis)
    check_equal(view[...], whole)
    composed = compose(data, view, numbered(whole.shape))
    if composed is not None:
        check_equal(composed[0][...], whole.ravel()[composed[1]])


@ours.examples(0.05)
@given(ours.shapes(max_side=5), st.data())
def test_stack_is_numpys_stack(shape, data):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    sources, models = data.draw(pieces(None, shape))
    whole = np.stack(models, axis)
    view = stack(sources, axis)
    check_equal(view[...], whole)
    composed = compose(data, view, numbered(whole.shape))
    if composed is not None:
        check_equal(composed[0][...], whole.ravel()[composed[1]])


@ours.examples(0.03)
@given(st.data())
def test_views_of_joined_views_of_joined_views(data):
    sources, models = data.draw(pieces(1, (3, 0)))
    inner, expected = concat(sources, 1)[::-1], np.concatenate(models, 1)[::-1]
    outer, whole = stack([inner, inner[[2, 0, 0]]], 2), np.stack([expected, expected[[2, 0, 0]]], 2)
    composed = compose(data, outer, numbered(whole.shape))
    if composed is not None:
        check_equal(composed[0][...], whole.ravel()[composed[1]])


def test_joining_names_what_does_not_fit():
    a, b, c = zellige.zeros((2, 3)), np.zeros((5, 3)), np.zeros((2, 4))
    with pytest.raises(BroadcastError, match=r"array 2 has shape \(2, 4\), expected \(any, 3\) as in array 0"):
        concat([a, b, c])
    with pytest.raises(BroadcastError, match=r"array 1 has shape \(5, 3\), expected \(2, any\)"):
        concat([a, b], axis=-1)
    with pytest.raises(BroadcastError, match=r"array 1 has shape \(2, 4\), expected \(2, 3\)"):
        stack([a, c])
    with pytest.raises(BroadcastError, match=r"array 1 has shape \(2,\)"):
        concat([a, np.zeros(2)])
    for join in concat, stack:
        with pytest.raises(ValueError, match="at least one"):
            join([])
        with pytest.raises(TypeError, match=r"array 1: a view needs an array .* found list"):
            join([a, [[0.0] * 3] * 2])
        for axis in (3, -4):
            with pytest.raises(ValueError, match="out of bounds"):
                join([a, a], axis)
    with pytest.raises(ValueError, match="use stack"):
        concat([np.zeros(())])


TEXT = np.dtypes.StringDType()
PAIR = np.dtype([("x", "i4"), ("y", "f8")])


@pytest.mark.parametrize(
    ("one", "other"), [("U3", "U4"), (TEXT, "U3"), (PAIR, [("x", "i4")]), ("S2", "i4"), (TEXT, "f8"), ("M8[s]", "f4")]
)
def test_types_that_have_nothing_in_common_are_not_joined(one, other):
    arrays = [np.zeros(2, one), np.zeros(2, one), np.zeros(2, other)]
    with pytest.raises(TypeError, match=r"array 2 has type .* no common type .* of array 0; convert"):
        concat(arrays)


@pytest.mark.parametrize("dtype", ["U3", TEXT, PAIR, "M8[s]", "bool", ">i4"], ids=str)
def test_equal_types_stay_as_they_are(dtype):
    model = np.arange(6).astype("U3" if dtype == TEXT else "i8").astype(dtype)
    array = zellige.create_array(data=model, chunks=[[1, 3, 2]])
    view = concat([array, array[1:3], lazy(array)[::-1]])
    assert view.dtype == array.dtype
    expected = np.concatenate([model, model[1:3], model[::-1]])
    assert view[...].tolist() == expected.tolist()
    assert view[[9, 0, 7]][...].tolist() == expected[[9, 0, 7]].tolist()
    assert [row.item() for row in view] == expected.tolist()


def test_joined_arrays_are_for_reading():
    a = zellige.zeros(3)
    for view in (concat([a, a]), stack([a, a])[0]):
        with pytest.raises(ReadOnlyError, match="write to the arrays themselves, or to a copy"):
            view[0] = 1
    assert not a[...].any()


# -- work -----------------------------------------------------------------------------------------


def counted_array(shape: tuple[int, ...], chunks: Any) -> tuple[zellige.Array, CountingStore]:
    store = CountingStore()
    array = zellige.create_array(store, data=ours.counted(shape), chunks=chunks)
    store.reset()
    return array, store


def test_composing_makes_no_request():
    array, store = counted_array((20, 6), [[3, 7, 10], 2])
    view = lazy(array)[1:18, ::-1]
    view = view[::2, None][[3, 0, 0]].oindex[[1, 0], :, [2, 5]].T
    view.vindex[[0], [0], [0]], view[view.shape[0] - 1], iter(view), view.chunks, repr(view), len(view), view.nbytes
    stack([concat([view, view]), concat([view, view])]).read_chunk_sizes
    with pytest.raises(IndexError):
        view[99]
    assert store.made() == []


def test_reading_touches_only_the_chunks_that_are_hit():
    array, store = counted_array((30, 8), [[5, 7, 3, 15], 4])
    expected = ours.counted((30, 8))
    cases = [
        (lazy(array)[10:20][2:4], {"c/2/0", "c/2/1"}, expected[12:14]),
        (lazy(array)[::-1, :4][0], {"c/3/0"}, expected[29, :4]),
        (lazy(array)[[29, 0, 1]][1:], {"c/0/0", "c/0/1"}, expected[[0, 1]]),
        (lazy(array)[[29, 0, 13], [0, 1, 5]][::2], {"c/3/0", "c/2/1"}, expected[[29, 13], [0, 5]]),
        (lazy(array).oindex[[0, 13], [5]].T, {"c/0/1", "c/2/1"}, expected[np.ix_([0, 13], [5])].T),
        (lazy(array)[5:5], set(), expected[5:5]),
        (lazy(array)[None][[0, 0]][:, 3, 3], {"c/0/0"}, expected[[3, 3], 3]),
    ]
    for view, keys, values in cases:
        store.reset()
        check_equal(view[...], values)
        assert set(store.keys(*READS)) == keys
        assert len(store.keys(*READS)) == len(keys)


def test_writing_touches_only_the_chunks_that_are_hit_and_nothing_if_the_value_does_not_fit():
    array, store = counted_array((30, 8), [[5, 7, 3, 15], 4])
    view = lazy(array)[10:20, ::-1]
    for index, value, kind in (slice(3), [1, 2], ValueError), (slice(3), "a", ValueError), (99, 1, IndexError):
        with pytest.raises(kind):
            view[index] = value
    with pytest.raises(TypeError):
        view[...] = 1j * np.ones((10, 8))
    assert store.made() == []
    view[2:4, :4] = 0  # rows 12 and 13, columns 7 to 4
    assert store.keys(*WRITES) == ["c/2/1"]


def test_joined_arrays_touch_only_those_that_are_hit():
    made = [counted_array((4, 6), chunks) for chunks in (2, [[1, 3], 6], [4, [1, 5]])]
    arrays, stores = zip(*made, strict=True)
    whole = np.concatenate([ours.counted((4, 6))] * 3)
    cases: list[tuple[Any, list[set[str]]]] = [
        (np.s_[5:8, 0], [set(), {"c/1/0"}, set()]),
        (np.s_[11], [set(), set(), {"c/0/0", "c/0/1"}]),
        (np.s_[::-7, 5], [set(), {"c/0/0"}, {"c/0/1"}]),
        (np.s_[[11, 0, 11, 3]], [{"c/0/0", "c/0/1", "c/0/2", "c/1/0", "c/1/1", "c/1/2"}, set(), {"c/0/0", "c/0/1"}]),
        (np.s_[[[1], [2]], [0, 1]], [{"c/0/0", "c/1/0"}, set(), set()]),
        (np.s_[4:4], [set(), set(), set()]),
    ]
    for index, expected in cases:
        for store in stores:
            store.reset()
        check_equal(concat(arrays)[index][...], whole[index])
        assert [set(store.keys(*READS)) for store in stores] == expected
        assert all(len(store.keys(*READS)) == len(keys) for store, keys in zip(stores, expected, strict=True))


def test_ten_thousand_arrays_are_looked_up_and_not_walked_over():
    asked: list[int] = []

    class Piece(SlicesOnly):
        def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
            asked.append(int(self._model[0]))
            return super().__getitem__(index)

    view = concat([Piece(np.array([k, -k])) for k in range(10_000)])
    assert view.shape == (20_000,)
    assert view[[19_999, 3, 10_000]][...].tolist() == [-9999, -1, 5000]
    assert view[2467].item() == -1233
    assert view[8000:8004][...].tolist() == [4000, -4000, 4001, -4001]
    assert sorted(asked) == [1, 1233, 4000, 4001, 5000, 9999]


def test_extents_are_arithmetic():
    array = zellige.zeros((10**12, 10**12), chunks=[[[1, 10**12]], 10**6], dtype="int8")
    view = lazy(array)[::-1, 5:][::3, ::7]
    assert view.shape == (333333333334, 142857142857)
    picked = view[10**11 : 10**11 + 2, [0, 10**9]]
    picked[...] = [[1, 2], [3, 4]]
    first = 10**12 - 1 - 3 * 10**11
    assert array[first - 3 : first + 1 : 3, 5 + 7 * 10**9].tolist() == [4, 2]
    assert array[first, 5] == 1
    assert picked[1, ::-1][...].tolist() == [4, 3]


def test_pieces_are_read_straight_into_their_place(monkeypatch):
    array = zellige.create_array(data=ours.counted((4, 3)), chunks=2)
    read = type(array).get_basic_selection
    outs = []

    def watched(self, selection=..., *, out=None, fields=None):
        outs.append(out)
        return read(self, selection, out=out, fields=fields)

    monkeypatch.setattr(type(array), "get_basic_selection", watched)
    found = concat([array, array], 1)[::-1, 1:5][...]
    check_equal(found, np.concatenate([ours.counted((4, 3))] * 2, 1)[::-1, 1:5])
    assert len(outs) == 2
    assert all(out is not None and np.shares_memory(out, found) for out in outs)


def test_each_kind_of_selection_is_one_read_of_its_kind(monkeypatch):
    array = zellige.create_array(data=ours.counted((4, 3)), chunks=2)
    asked: list[str] = []
    for name in ("get_basic_selection", "get_orthogonal_selection"):
        read = getattr(type(array), name)
        monkeypatch.setattr(type(array), name, lambda *given, n=name, r=read, **o: asked.append(n) or r(*given, **o))
    view, model = lazy(array), ours.counted((4, 3))
    for part, expected, kind in [
        (view[::-1][1:, 0], model[::-1][1:, 0], "get_basic_selection"),
        (view[[3, 0]][:, [1, 2]], model[[3, 0]][:, [1, 2]], "get_orthogonal_selection"),
        (view[[[3], [0]], [1, 2]].T, model[[3, 0]][:, [1, 2]].T, "get_orthogonal_selection"),
        (view[[3, 0], [1, 2]], model[[3, 0], [1, 2]], "get_basic_selection"),
    ]:
        asked.clear()
        check_equal(part[...], expected)
        assert asked == [kind]


# -- chunk sizes ----------------------------------------------------------------------------------


@ours.examples(0.04)
@given(arrays(min_dims=1, max_dims=2, max_side=30), st.data())
def test_chunk_sizes_are_how_many_elements_of_each_chunk_are_picked(case, data):
    array, _ = case
    view = lazy(array)
    numbers = [np.repeat(np.arange(len(sizes)), tuple(sizes)) for sizes in array.read_chunk_sizes]
    for _ in range(data.draw(st.integers(0, 3))):
        index = tuple(data.draw(ours.slices(len(axis))) for axis in numbers)
        view, numbers = view[index], [axis[part] for axis, part in zip(numbers, index, strict=True)]
    expected = tuple(tuple(len(list(same)) for _, same in groupby(axis)) or (0,) for axis in numbers)
    assert view.read_chunk_sizes == expected
    assert view.chunks == expected
    assert all(type(sizes) is tuple for sizes in view.chunks)
    assert view.T.chunks == expected[::-1]


@ours.examples(0.03)
@given(arrays(max_side=6), st.data())
def test_chunk_sizes_sum_up_and_a_copy_has_them(case, data):
    array, model = case
    composed = compose(data, concat([array, array]) if model.ndim else lazy(array), _twice(model))
    if composed is not None:
        view, positions = composed
        assert tuple(map(sum, view.chunks)) == positions.shape
        copy = zellige.from_array(data=view)
        check_equal(copy[...], view[...])
        assert tuple(tuple(sizes) or (0,) for sizes in copy.read_chunk_sizes) == view.chunks


def _twice(model: np.ndarray) -> np.ndarray:
    return numbered((2 * model.shape[0], *model.shape[1:])) if model.ndim else numbered(())


def test_chunk_sizes_of_inner_chunks_that_do_not_divide_their_shards():
    allowed = {"uneven_inner_chunks": True}
    array = zellige.create_array(data=np.arange(25), chunks=4, shards=[[10, 7, 8]], config=allowed)
    assert lazy(array)[3:12].chunks == ((1, 4, 2, 2),)
    assert concat([array, array]).chunks == (array.read_chunk_sizes[0] * 2,)
    many = zellige.zeros(10**12, chunks=3, shards=10, dtype="int8", config=allowed)
    assert (len(many.read_chunk_sizes[0]), many.read_chunk_sizes[0][-5:]) == (4 * 10**11, (1, 3, 3, 3, 1))
    assert many.cdata_shape == (4 * 10**11,)
    assert lazy(many)[5:].chunks[0][:2] == (5, 10)  # shards, because their inner chunks are too many to list


def test_chunk_sizes_of_joined_arrays():
    a, b = zellige.zeros((5, 6), chunks=[[2, 3], 4]), zellige.zeros((4, 6), chunks=[3, [1, 5]])
    assert concat([a, b]).chunks == ((2, 3, 3, 1), (4, 2))
    assert concat([a, b])[1:7, ::2].chunks == ((1, 3, 2), (2, 1))
    assert concat([a[:0], lazy(a)[1:], b]).chunks == ((1, 3, 3, 1), (6,))
    assert stack([a, a, a], -1).chunks == ((2, 3), (4, 2), (1, 1, 1))
    assert stack([a, a, a])[[0, 2]].chunks == ((2,), (2, 3), (4, 2))


def test_chunk_sizes_that_others_declare():
    class Chunked(SlicesOnly):
        chunks: Any = None

    source = Chunked(np.zeros((5, 6)))
    for declared, expected in [
        (None, ((5,), (6,))),
        ((2, 4), ((2, 2, 1), (4, 2))),
        (((2, 0, 3), (6,)), ((2, 3), (6,))),
        (((float("nan"),), (6,)), ((5,), (6,))),
        ((5,), ((5,), (6,))),
    ]:
        source.chunks = declared
        assert lazy(source).chunks == expected


def test_chunk_sizes_are_never_expanded_beyond_reason():
    array = zellige.zeros((10**12, 10**12), chunks=[[[1, 10**12]], 10], dtype="int8")
    rows, columns = lazy(array)[1:-1, 5:-5].chunks
    assert (len(rows), rows[0]) == (10**12 - 2, 1)
    assert (len(columns), columns[0], columns[1], columns[-1]) == (10**11, 5, 10, 5)
    rows, columns = lazy(array)[::-3, ::4].chunks
    assert (len(rows), rows.total) == (333333333334, 333333333334)
    assert columns.total == 250000000000
    twice = concat([array, array]).chunks[0]
    assert twice.total == 2 * 10**12


# -- being an array -------------------------------------------------------------------------------


def small(dtype: Any = "int32") -> tuple[zellige.Array, np.ndarray]:
    model = ours.counted((4, 6), dtype)
    return zellige.create_array(data=model, chunks=[[1, 3], 4]), model


def test_what_a_view_says_of_itself():
    array, _ = small()
    view = lazy(array)[1:, None, ::2]
    assert (view.shape, view.ndim, view.size, view.nbytes, len(view)) == ((3, 1, 3), 3, 9, 36, 3)
    assert view.dtype == np.dtype("int32")
    assert view.base is array
    assert view.lazy is view
    assert lazy(view) is view
    assert repr(view) == f"<zellige.LazyArray (3, 1, 3) int32 of {array!r}>"
    assert repr(concat([view, view])) == "<zellige.LazyArray (6, 1, 3) int32 of <2 arrays along axis 0>>"
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)
    with pytest.raises(TypeError, match="found int"):
        lazy(3)


def test_a_view_tells_which_arrays_hold_its_elements():
    (a, model), (b, _) = small(), small()
    assert [id(array) for array in arrays_of(lazy(a)[0])] == [id(a)]
    nested = stack([concat([a, lazy(b)[1:]])[::2], concat([model, b])[:4]])
    assert [id(array) for array in arrays_of(nested)] == [id(a), id(b), id(model), id(b)]


def test_only_the_dots_alone_read():
    view = lazy(small()[0])
    assert isinstance(view[...], np.ndarray)
    for index in [(...,), (), slice(None), (0, 0), (0, ...), None]:
        assert isinstance(view[index], LazyArray)
    assert isinstance(view[0, 0][...], np.ndarray)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(view, copy=False)
    check_equal(np.asarray(view, "float32"), small()[1].astype("float32"))


def test_indices_belong_to_the_caller():
    array, model = small()
    index = np.array([3, 0])
    view = lazy(array)[index]
    index[...] = 1
    check_equal(view[...], model[[3, 0]])


def test_rows_are_views():
    array, model = small()
    rows = list(lazy(array)[:, ::2])
    assert all(isinstance(row, LazyArray) for row in rows)
    assert [row[...].tolist() for row in rows] == model[:, ::2].tolist()
    with pytest.raises(TypeError, match="iteration over a 0-d view"):
        iter(lazy(array)[0, 0])
    with pytest.raises(TypeError, match="0-d"):
        len(lazy(array)[0, 0])
    assert 6 in lazy(array)
    assert 99 not in lazy(array)


def test_arithmetic_is_numpys():
    array, model = small()
    view, part = lazy(array)[1:, ::-1], model[1:, ::-1]
    check_equal(view == 8, part == 8)
    check_equal(view != part, part != part)
    check_equal(view + 1, part + 1)
    check_equal(2.5 * view, 2.5 * part)
    check_equal(part - view, part - part)
    check_equal(view // view, part // part)
    check_equal(-view, -part)
    check_equal(np.add.outer(view[0], view[0, :2]), np.add.outer(part[0], part[0, :2]))
    check_equal(np.where(view > 9, view, 0), np.where(part > 9, part, 0))
    check_equal(np.add(part, 1, where=view > 9, out=np.zeros_like(part)), np.where(part > 9, part + 1, 0))
    check_equal(view.astype("float32"), part.astype("float32"))
    assert np.sum(view) == np.sum(part)
    assert np.mean(view) == np.mean(part)
    assert view[0, 0] == part[0, 0]
    with pytest.raises(TypeError):
        np.add.at(view, 0, 1)


def test_arithmetic_in_place_writes_through():
    array, model = small()
    view = same = lazy(array)[1:, ::2]
    view += 1
    assert view is same
    model[1:, ::2] += 1
    check_equal(array[...], model)
    view[[0, 2]] *= 10
    model[1:, ::2][[0, 2]] *= 10
    check_equal(array[...], model)
    quotient = np.zeros((3, 3), "int32")
    found = np.divmod(view, 3, out=(quotient, view))
    check_equal(quotient, model[1:, ::2] // 3)
    assert found[0] is quotient
    assert found[1] is view
    model[1:, ::2] %= 3
    check_equal(array[...], model)
    with pytest.raises(TypeError, match="same_kind"):
        view += 1.5
    check_equal(array[...], model)


def test_one_element_is_a_value():
    array, model = small()
    one = lazy(array)[2:3, 1]
    assert (int(one), float(one), complex(one), one.item(), bool(one)) == (14, 14.0, 14 + 0j, 14, True)
    assert range(20)[one[0]] == 14
    assert np.arange(20)[one[0]] == 14
    check_equal(lazy(array)[lazy(array)[0, 0]][...], model[1])
    assert type(one.item()) is int
    assert lazy(zellige.create_array(data=["ab"], dtype=TEXT))[0].item() == "ab"
    many = lazy(array)[0]
    for act, kind in [(int, TypeError), (float, TypeError), (complex, TypeError), (bool, ValueError)]:
        with pytest.raises(kind, match="one element"):
            act(many)
    with pytest.raises(ValueError, match="this one has 0"):
        many[:0].item()
    with pytest.raises(TypeError):
        range(3)[lazy(zellige.ones(1))]


def test_transposing():
    array, model = small()
    view = lazy(array)[:, :, None]
    check_equal(view.T[...], model[:, :, None].T)
    check_equal(np.transpose(view, (1, -1, 0))[...], model[:, :, None].transpose(1, 2, 0))
    check_equal(view.transpose(1, 0, 2)[...], model[:, :, None].transpose(1, 0, 2))
    for axes in [(0, 1), (0, 0, 1), (0, 1, 3)]:
        with pytest.raises(ValueError, match=r"axes|axis"):
            view.transpose(axes)


def test_views_pickle():
    array, model = small()
    view = lazy(array)[1:, [5, 0]][..., None]
    again = pickle.loads(pickle.dumps(view))
    assert (again.shape, again.dtype) == (view.shape, view.dtype)
    check_equal(again[...], model[1:, [5, 0], None])
    joined = pickle.loads(pickle.dumps(concat([view, view])))
    check_equal(joined[...], np.concatenate([model[1:, [5, 0], None]] * 2))
    assert joined.chunks == concat([view, view]).chunks


def test_reading_only():
    store = zellige.MemoryStore()
    zellige.create_array(store, data=np.arange(4))
    view = lazy(zellige.open_array(store, mode="r"))
    frozen = np.arange(4)
    frozen.setflags(write=False)
    for target, remedy in [(view, "r\\+"), (lazy(frozen), "a copy"), (lazy(SlicesOnly(frozen)), "the array itself")]:
        for part in target[1:], target[None, :0], target[None][:0]:
            with pytest.raises(ReadOnlyError, match=remedy):
                part[...] = 0
        with pytest.raises(IndexError):
            target[9] = 0
    check_equal(view[...], np.arange(4))


def test_a_source_that_grows_and_one_that_shrinks():
    array, model = small()
    view, first = lazy(array)[::-1], lazy(array)[0]
    array.resize((9, 6))
    check_equal(view[...], model[::-1])
    view[0] = -1
    assert array[3].tolist() == [-1] * 6
    array.resize((2, 6))
    for act in (lambda: view[...], partial(view.__setitem__, ..., 0), lambda: first[...], lambda: view.chunks):
        with pytest.raises(BoundsCheckError, match=r"had shape \(4, 6\) when the view was made, now \(2, 6\)"):
            act()


def test_fields_of_structs():
    dtype = np.dtype([("x", "i4"), ("y", "f8"), ("p", [("u", "i2"), ("v", "i2")])])
    model = np.zeros((4, 3), dtype)
    model["x"], model["p"]["v"] = ours.counted((4, 3)), -ours.counted((4, 3))
    array = zellige.create_array(data=model, chunks=[[1, 3], 2])
    view = lazy(array)
    for found, expected in [
        (view["x"], model["x"]),
        (view[1:, "x"][::-1], model["x"][1:][::-1]),
        (view[["x", "y"]][[3, 0]], model[["x", "y"]][[3, 0]]),
        (view[["x", "y"]]["x"], model["x"]),
        (view["p"][0]["v"], model["p"][0]["v"]),
        (concat([view, array])[2:6]["p"], np.concatenate([model] * 2)[2:6]["p"]),
        (concat([view["x"], view[0:1, :, "x"]]), np.concatenate([model["x"], model["x"][:1]])),
    ]:
        assert isinstance(found, LazyArray)
        assert found.dtype == expected.dtype
        check_equal(found[...], expected)
    view[1:]["x"] = 7
    model["x"][1:] = 7
    view[["y", "x"]]["x"][2] = 8
    model["x"][2] = 8
    view[["x", "p"]][0, 0] = (3, (4, 5))
    model[["x", "p"]][0, 0] = (3, (4, 5))
    assert (view == model).all()
    assert not (view != model).any()
    with pytest.raises(ValueError, match="field 'v' lies inside field 'p'"):
        view["p"]["v"] = 1
    with pytest.raises(FieldNotFoundError):
        view["z"]
    with pytest.raises(IndexError):
        view["x"]["y"]
    memory = lazy(model.copy())
    memory["x"][0] = 9
    assert memory["x"][0, 0].item() == 9


def test_values_that_are_views_are_read_before_anything_is_written():
    array, model = small()
    view = lazy(array)
    view[1:] = view[:-1]
    model[1:] = model[:-1].copy()
    check_equal(array[...], model)


ERRORS = [
    99,
    (0, 0, 0),
    (..., ...),
    "x",
    1.0,
    np.ones(4, bool),
    ([0, 1], [0, 1, 2]),
    (False, [0, 1]),
    (slice(None, None, 0),),
]


@pytest.mark.parametrize("index", ERRORS, ids=str)
def test_errors_come_at_once(index):
    array, model = small()
    view, part = lazy(array)[1:, ::2], model[1:, ::2][:, :2]
    view = view[:, :2]
    kind = attempt(lambda: part[index])[1]
    assert kind is not None
    assert attempt(lambda: view[index])[1] is kind
    assert attempt(lambda: view.__setitem__(index, 0))[1] is kind
    check_equal(array[...], model)
