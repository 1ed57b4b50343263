"""Indexing is numpy's: an equal result or an equal kind of error, whatever the grid. numpy is the oracle."""

from __future__ import annotations

import asyncio
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from counting_store import CountingStore
from zellige.errors import (
    BoundsCheckError,
    BroadcastError,
    LossyCastError,
    ReadOnlyError,
    VindexInvalidSelectionError,
)
from zellige.grid.grid import ChunkGrid
from zellige.io import select
from zellige.io.plan import parts as plan_parts
from zellige.io.plan import plan_for

KINDS = (IndexError, ValueError, TypeError)

# Raw chunks are read in parts, transposed ones through strides, compressed ones as a whole.
CHAINS: list[dict[str, Any]] = [
    {"compressors": None},
    {"compressors": None, "serializer": {"name": "bytes", "configuration": {"endian": "big"}}},
    {},
    {"compressors": None, "checksum": True},
]


@st.composite
def arrays(draw: st.DrawFn, **limits: int) -> tuple[zellige.Array, np.ndarray, ours.Grid]:
    """An array in memory, the same values in numpy, and its grid."""
    shape = draw(ours.shapes(**limits))
    grid = draw(ours.grids(shape))
    model = ours.counted(shape, draw(st.sampled_from(["int32", "int64", "float64"])))
    chain = dict(draw(st.sampled_from(CHAINS)))
    if draw(st.booleans()):
        order = draw(st.permutations(range(len(shape))))
        chain["filters"] = {"name": "transpose", "configuration": {"order": order}}
    array = zellige.create_array(data=model, chunks=grid.argument, order=draw(st.sampled_from("CCF")), **chain)
    return array, model, grid


def attempt(action: Callable[[], Any]) -> tuple[Any, type[Exception] | None]:
    """The result, or the kind of the error."""
    try:
        return action(), None
    except KINDS as error:
        return None, next(kind for kind in KINDS if isinstance(error, kind))


def check_equal(found: Any, expected: Any) -> None:
    """The same values, type, shape and scalar-ness."""
    assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


def check_read(read: Callable[[], Any], oracle: Callable[[], Any]) -> Any:
    """Both give the same, or fail alike; the result of the oracle, or None if it failed."""
    expected, kind = attempt(oracle)
    if kind is None and np.size(expected) == 0:
        # numpy does not check index arrays against the bounds if the result is empty.
        found, error = attempt(read)
        assert error in (None, IndexError)
        if error is None:
            check_equal(found, expected)
        return expected if error is None else None
    found, error = attempt(read)
    assert error == kind
    if kind is None:
        check_equal(found, expected)
    return expected


def check_write(array: zellige.Array, model: np.ndarray, write: Callable[[Any], None], oracle: Callable[[Any], None]):
    """After both have written, or failed alike, the whole arrays are the same."""
    kind = attempt(lambda: oracle(model))[1]
    assert attempt(lambda: write(array))[1] == kind
    assert np.array_equal(array[...], model)


@ours.examples(0.25)
@given(arrays(), st.data())
def test_basic_indexing_equals_numpy(case, data):
    array, model, _ = case
    index = data.draw(ours.basic(model.shape))
    expected = check_read(lambda: array[index], lambda: model[index])
    if expected is not None:
        value = data.draw(ours.values(np.shape(expected)))
        check_write(array, model, lambda a: a.__setitem__(index, value), lambda m: m.__setitem__(index, value))


@ours.examples(0.3)
@given(arrays(max_dims=4, max_side=6), st.data())
def test_mixed_indexing_equals_numpy(case, data):
    array, model, _ = case
    index = data.draw(ours.mixed(model.shape))
    expected = check_read(lambda: array[index], lambda: model[index])
    if expected is not None:
        value = np.asarray(data.draw(ours.values(np.shape(expected))))
        if _is_one_mask(index, model) and value.ndim > 1:
            value = value.ravel()  # numpy refuses leading ones here and nowhere else
        check_write(array, model, lambda a: a.__setitem__(index, value), lambda m: m.__setitem__(index, value))


def _is_one_mask(index: Any, model: np.ndarray) -> bool:
    items = index if isinstance(index, tuple) else (index,)
    items = tuple(item for item in items if item is not Ellipsis)
    return len(items) == 1 and np.asarray(items[0]).dtype == bool


class Ix:
    """`oindex` by numpy: the product of the positions along each axis."""

    def __init__(self, index: Any, model: np.ndarray) -> None:
        items = index if isinstance(index, tuple) else (index,)
        if any(item is Ellipsis for item in items):
            at = next(k for k, item in enumerate(items) if item is Ellipsis)
            items = (*items[:at], *[slice(None)] * (model.ndim - len(items) + 1), *items[at + 1 :])
        items += (slice(None),) * (model.ndim - len(items))
        self.dropped = tuple(k for k, item in enumerate(items) if isinstance(item, int | np.integer))
        found = [np.atleast_1d(np.arange(n)[_as_numpy(item)]) for item, n in zip(items, model.shape, strict=True)]
        self.mesh = np.ix_(*found)
        self.shape = tuple(len(at) for k, at in enumerate(found) if k not in self.dropped)

    def get(self, model: np.ndarray) -> Any:
        found = model[self.mesh].squeeze(self.dropped)
        return found if self.shape else found[()]

    def set(self, model: np.ndarray, value: Any) -> None:
        whole = np.empty(self.shape, model.dtype)
        whole[...] = value
        model[self.mesh] = whole.reshape(model[self.mesh].shape)


def _as_numpy(item: Any) -> Any:
    return np.array(item, np.intp) if isinstance(item, list) else item


@ours.examples(0.15)
@given(arrays(), st.data())
def test_orthogonal_indexing_equals_ix(case, data):
    array, model, _ = case
    index = data.draw(ours.orthogonal(model.shape))
    expected = check_read(lambda: array.oindex[index], lambda: Ix(index, model).get(model))
    if expected is not None:
        value = data.draw(ours.values(np.shape(expected)))
        ix = Ix(index, model)
        check_write(array, model, lambda a: a.oindex.__setitem__(index, value), lambda m: ix.set(m, value))


@ours.examples(0.1)
@given(arrays(), st.data())
def test_points_equal_numpy(case, data):
    array, model, _ = case
    index = data.draw(ours.points(model.shape))
    expected = check_read(lambda: array.vindex[index], lambda: model[index])
    if expected is not None:
        value = data.draw(ours.values(np.shape(expected)))
        if isinstance(index, np.ndarray) and index.dtype == bool:
            value = np.ravel(value)
        check_write(array, model, lambda a: a.vindex.__setitem__(index, value), lambda m: m.__setitem__(index, value))


@ours.examples(0.1)
@given(arrays(), st.data())
def test_blocks_are_the_regions_of_the_grid(case, data):
    array, model, grid = case
    index = data.draw(ours.blocks(array.cdata_shape))
    region = attempt(lambda: block_region(index, grid.sizes))
    if region[1]:
        assert attempt(lambda: array.blocks[index])[1] == region[1]
        return
    check_equal(array.blocks[index], model[region[0]])
    value = data.draw(ours.values(np.shape(model[region[0]])))
    check_write(array, model, lambda a: a.blocks.__setitem__(index, value), lambda m: m.__setitem__(region[0], value))


def block_region(index: Any, sizes: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
    """The elements that some chunks hold, from the naive list of their sizes."""
    items = index if isinstance(index, tuple) else (index,)
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items = (*items[:at], *[slice(None)] * (len(sizes) - len(items) + 1), *items[at + 1 :])
    region: list[Any] = []
    for item, axis in zip(items, sizes, strict=False):
        chunks = range(len(axis))[item]  # IndexError as in a list
        chunks = range(chunks, chunks + 1) if isinstance(chunks, int) else chunks
        region.append(slice(sum(axis[: chunks.start]), sum(axis[: chunks.stop])) if len(chunks) else slice(0, 0))
    return tuple(region)


@ours.examples(0.1)
@given(arrays(), st.sampled_from(["basic", "mixed", "orthogonal", "points"]), st.data())
def test_reading_into_an_array_equals_numpy(case, way, data):
    array, model, _ = case
    index = data.draw(getattr(ours, way)(model.shape))
    read = {
        "basic": array.get_basic_selection,
        "mixed": array.get_basic_selection,
        "orthogonal": array.get_orthogonal_selection,
        "points": array.get_coordinate_selection,
    }[way]
    expected, error = attempt(lambda: read(index))
    if error is not None:
        return
    shape = np.shape(expected)
    out = data.draw(st.sampled_from(outputs(shape, model.dtype)))
    assert read(index, out=out) is out
    assert np.array_equal(out, expected)
    wrong = np.full((*shape, 2), -1)
    with pytest.raises(BroadcastError, match="out has shape"):
        read(index, out=wrong)
    assert (wrong == -1).all()


def outputs(shape: tuple[int, ...], dtype: Any) -> list[np.ndarray]:
    """Arrays of a shape in every layout: C, Fortran, strided, backwards, of another type."""
    every_other = np.full(tuple(2 * n for n in shape), -1, dtype)[(slice(None, None, 2),) * len(shape)]
    backwards = np.full(shape, -1, dtype)[(slice(None, None, -1),) * len(shape)]
    plain = np.full(shape, -1, dtype)
    # Indexing with an empty tuple turns 0-d views into scalars.
    views = [every_other, backwards] if shape else []
    return [plain, plain.copy(order="F"), plain.astype("float64"), *views]


@pytest.mark.parametrize(
    "index", [np.s_[[[0, 1], [2, 0]]], np.s_[:, [[3, 1]], [[2], [0]]], np.s_[::-1, [[0, 3], [1, 1]]]]
)
def test_reading_into_arrays_that_no_view_can_reshape(index):
    array, model = small(CUBE, 2)
    for out in outputs(model[index].shape, model.dtype):
        assert array.get_basic_selection(index, out=out) is out
        assert np.array_equal(out, model[index])


WAYS_TO_READ: dict[str, Callable[[zellige.Array, Any], Any]] = {
    "basic": lambda a, out: a.get_basic_selection(slice(None), out=out),
    "orthogonal": lambda a, out: a.get_orthogonal_selection([0, 1, 2], out=out),
    "points": lambda a, out: a.get_coordinate_selection([0, 1, 2], out=out),
    "mask": lambda a, out: a.get_mask_selection([True] * 3, out=out),
    "blocks": lambda a, out: a.get_block_selection(slice(None), out=out),
    "async": lambda a, out: asyncio.run(a.async_array.get_basic_selection(slice(None), out=out)),
}
UNFIT: dict[str, tuple[Any, Any]] = {
    "a fraction": ([1.0, 300.7, 2.0], "uint8"),
    "a negative number": (np.array([0, -1, 3], "int16"), "uint8"),
    "NaN": ([1.0, np.nan, 2.0], "int32"),
    "a number out of range": ([1, 1000, 2], "int8"),
    "an infinity": ([1.0, 1e300, 2.0], "float32"),
    "bfloat16 as its bits": (np.array([1.0, 1.5, 2.0], ml_dtypes.bfloat16), "uint16"),
    "a small float": ([1.0, 1e6, 2.0], ml_dtypes.float8_e4m3fn),
    "a time between days": (np.array(["2020-01-01T00", "2020-01-01T05", "2020-01-02T00"], "M8[h]"), "M8[D]"),
    "a time out of range": (np.array(["2000", "3000", "2001"], "M8[s]"), "M8[ns]"),
    "text": (np.array(["a", "été", "b"]), "<U2"),
    "a struct": (np.array([(1, 2.0), (300, 2.0), (3, 4.0)], "i4,f8"), "u1,f4"),
}


@pytest.mark.parametrize("way", WAYS_TO_READ)
@pytest.mark.parametrize("case", UNFIT)
def test_values_that_do_not_fit_out_are_refused_before_they_land(case, way):
    given, dtype = UNFIT[case]
    given = np.asarray(given)
    array = zellige.create_array(data=given, chunks=[[1, 2]])
    out = np.zeros(3, dtype)
    with pytest.raises(LossyCastError, match=r"cannot read into out: .* at ") as caught:
        WAYS_TO_READ[way](array, out)
    assert caught.value.index == (1,)
    assert f"pass an array of {array.dtype}" in str(caught.value)
    assert "casting" in str(caught.value)
    assert out.tolist() == np.zeros(3, dtype).tolist()
    changed = array.with_config({"casting": "unsafe"})
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")  # what the caller asked for is no reason to warn
        assert WAYS_TO_READ[way](changed, out) is out
    with np.errstate(all="ignore"):
        assert np.array_equal(out[0::2], given.astype(dtype)[0::2])


FIT: dict[str, tuple[Any, Any]] = {
    "whole floats": ([1.0, 200.0, 2.0], "uint8"),
    "integers in range": (np.array([1, 2, 3], "int64"), "int8"),
    "more precise floats": (np.array([1.5, np.nan, -np.inf], "float32"), "float64"),
    "less precise floats": ([0.1, np.nan, -np.inf], "float32"),
    "the other byte order": ([0.1, np.nan, -np.inf], ">f8"),
    "complex": ([0.1, np.nan, -np.inf], "complex64"),
    "bfloat16": (np.array([1.0, 1.5, 2.0], ml_dtypes.bfloat16), "float32"),
    "to bfloat16": ([1.0, 1.5, 2.0], ml_dtypes.bfloat16),
    "times": (np.array(["2000", "NaT", "2001"], "M8[D]"), "M8[s]"),
    "longer text": (np.array(["a", "été", "b"]), "<U9"),
    "strings": (np.array(["a", "été", "b"], np.dtypes.StringDType()), "<U3"),
    "objects": (np.array(["a", "été", "b"], np.dtypes.StringDType()), object),
    "numbers as objects": ([1, 2, 3], object),
    "a struct": (np.array([(1, 2.0), (200, 2.0), (3, 4.0)], "i4,f8"), "u1,f4"),
}


@pytest.mark.parametrize("way", WAYS_TO_READ)
@pytest.mark.parametrize("case", FIT)
def test_values_that_fit_out_are_read_as_they_are(case, way):
    given, dtype = FIT[case]
    given = np.asarray(given)
    array = zellige.create_array(data=given, chunks=[[1, 2]])
    out = np.zeros(3, dtype)
    assert WAYS_TO_READ[way](array, out) is out
    assert out.dtype == np.dtype(dtype)
    assert list(map(str, out.tolist())) == list(map(str, given.astype(dtype).tolist()))


@pytest.mark.parametrize("way", WAYS_TO_READ)
@pytest.mark.parametrize(
    ("data", "dtype"), [([1, 2, 3], "<U5"), ([1j, 2, 3], "float64"), (np.array([1, 2, 3], "M8[s]"), "int64")]
)
def test_kinds_that_do_not_go_together_are_refused_before_anything_is_read(data, dtype, way):
    store = CountingStore()
    array = zellige.create_array(store, data=np.asarray(data), chunks=2)
    store.reset()
    with pytest.raises(TypeError, match="cannot read into out: "):
        WAYS_TO_READ[way](array, np.zeros(3, dtype))
    assert store.made() == []


@pytest.mark.parametrize("way", WAYS_TO_READ)
def test_what_cannot_be_out_is_refused_before_anything_is_read(way):
    store = CountingStore()
    array = zellige.create_array(store, data=np.arange(3.0), chunks=2)
    store.reset()
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    for out, kind, words in (
        (read_only, ReadOnlyError, r"out is read-only.*np\.empty\(\(3,\), 'float64'\)"),
        (np.frombuffer(bytes(24)), ReadOnlyError, "out is read-only"),
        ([0.0, 0.0, 0.0], TypeError, r"out must be a numpy array of shape \(3,\), found list"),
        (bytearray(24), TypeError, "found bytearray"),
        (array, TypeError, "found Array"),
        (np.float64(1), TypeError, "found float64"),
        (np.zeros(4), BroadcastError, r"out has shape \(4,\), the selection has shape \(3,\)"),
        (np.zeros((3, 1), "uint8"), BroadcastError, r"out has shape \(3, 1\)"),
        (np.zeros(()), BroadcastError, r"out has shape \(\)"),
    ):
        with pytest.raises(kind, match=words):
            WAYS_TO_READ[way](array, out)
    assert store.made() == []
    assert read_only.tolist() == [0, 0, 0]


def test_out_may_be_of_another_class(tmp_path):
    array = zellige.create_array(data=np.arange(6.0).reshape(2, 3), chunks=(1, 2))
    mapped = np.memmap(tmp_path / "out", "float64", "w+", shape=(2, 3))
    assert array.get_basic_selection(out=mapped) is mapped
    assert np.fromfile(tmp_path / "out").tolist() == [0, 1, 2, 3, 4, 5]
    masked = np.ma.array(np.zeros((2, 3)), mask=[[1, 0, 0], [0, 0, 1]])
    assert array.get_basic_selection(out=masked) is masked
    assert masked.tolist() == [[0, 1, 2], [3, 4, 5]]  # numpy takes masks away where it assigns


# -- oddities of numpy, one by one ----------------------------------------------------------------


def small(shape: tuple[int, ...], chunks: Any) -> tuple[zellige.Array, np.ndarray]:
    model = ours.counted(shape)
    return zellige.create_array(data=model, chunks=chunks), model


CUBE = (3, 4, 5)
ODD_INDICES = {
    "arrays apart: their axes come first": (0, slice(None), [1, 2]),
    "arrays together: their axes stay in place": (slice(None), [0, 1], [1, 2]),
    "an integer among arrays counts as one": (slice(None), 0, [1, 2]),
    "a zero-length ellipsis sets arrays apart": ([0, 1], slice(None), Ellipsis, [1, 2]),
    "a zero-length ellipsis between neighbours": ([0, 1], Ellipsis, [1, 2], [0, 3]),
    "a new axis sets arrays apart": ([0, 1], None, [1, 2]),
    "a new axis before and after": (None, [0, 1], [1, 2], None),
    "negative steps": (slice(None, None, -1), slice(3, None, -2), slice(-1, -5, -3)),
    "a negative step and an array": (slice(None, None, -1), [2, 0], slice(None, None, -2)),
    "a step longer than the axis": (slice(None, None, 10), slice(3, None, -10)),
    "a step longer than 64 bits": (slice(None, None, 2**63), slice(3, None, -(2**70))),
    "an n-d index array": (np.array([[0, 1], [2, 0]]),),
    "broadcast index arrays": (np.array([[0], [2]]), np.array([1, 3, 3])),
    "a mask of two axes": (np.arange(12).reshape(3, 4) % 5 == 0, slice(1, 3)),
    "a mask and an array": (np.array([True, False, True]), slice(None), [1, 2]),
    "an empty list": ([],),
    "a mask of nothing": (np.zeros(CUBE, bool),),
    "a 0-d integer array": (np.array(2), slice(None), np.array(1)),
    "unsigned positions": (np.array([2, 0], "uint8"), np.array([1, 1], "uint64")),
    "a range": (range(2),),
    "a tuple inside": ((0, 2), slice(None)),
    "nothing at all": (),
    "slices past both ends": (slice(-99, 99), slice(7, 99), slice(99, None, -1)),
    "True: a new axis of length one": (True,),
    "False: a new axis of length zero": (False,),
    "a 0-d mask": (np.array(True), slice(None), np.False_),
    "True before an integer": (True, 0),
    "True after an ellipsis": (..., True),
    "True apart from an integer": (0, slice(None), True),
    "False and an integer": (slice(None), False, 0),
    "True and index arrays": (True, [0, 1], slice(None), [2, 3]),
    "True between index arrays": ([0, 1], True, [2, 3]),
    "False and an array of one": (False, [2]),
    "True and a mask": (np.arange(12).reshape(3, 4) % 5 == 0, True),
    "several of them": (True, slice(1, 3), False, True),
}


@pytest.mark.parametrize("chunks", [(2, 3, 2), [[1, 2], [1, 1, 2], [4, 4]], -1])
@pytest.mark.parametrize("index", ODD_INDICES.values(), ids=ODD_INDICES.keys())
def test_oddities_of_numpy(index, chunks):
    array, model = small(CUBE, chunks)
    check_equal(array[index], model[index])
    value = -ours.counted(np.shape(model[index]))
    array[index] = value
    model[index] = value
    assert np.array_equal(array[...], model)


def test_a_tuple_of_another_class_is_a_tuple():
    array, model = small(CUBE, 2)
    place = namedtuple("place", "x y z")(1, 2, 3)
    check_equal(array[place], model[place])
    array[place] = -1
    model[place] = -1
    assert np.array_equal(array[...], model)


@pytest.mark.parametrize("compressors", [None, "zstd", "gzip", "blosc"])
def test_arrays_without_axes(compressors):
    model = np.array(3.5)
    array = zellige.create_array(data=model, compressors=compressors)
    check_equal(array[()], model[()])
    check_equal(array[...], model[...])
    check_equal(array[None], model[None])
    out = np.zeros(())
    assert array.get_basic_selection((), out=out) == 3.5
    assert out == 3.5
    for index, value in ((), 1.5), (..., -2.0), (None, [4.0]), (True, [5.0]):
        array[index] = value
        assert array[()] == np.squeeze(value)
    array[False] = 9.0
    model[()] = 5.0
    for mask in (True, False, np.array(True), (False, None), (..., True)):
        check_equal(array[mask], model[mask])
    check_equal(array.get_mask_selection(True), model[True])
    check_equal(array.vindex[np.array(False)], model[np.array(False)])
    check_equal(array.oindex[()], array[()])
    check_equal(array.vindex[()], array[()])
    check_equal(array.blocks[()], array[()])
    for index in (0, slice(None), [0], (0, 0), np.ones(1, bool)):
        assert attempt(lambda i=index: array[i])[1] is attempt(lambda i=index: model[i])[1] is IndexError


ONE_ELEMENT = {
    "an integer": (lambda a, value: a.__setitem__((2, 1), value), np.s_[2, 1]),
    "get and set": (lambda a, value: a.set_basic_selection((-1, 0), value), np.s_[-1, 0]),
    "numpy's integers": (lambda a, value: a.__setitem__((np.int64(0), np.array(1)), value), np.s_[0, 1]),
    "orthogonal": (lambda a, value: a.oindex.__setitem__((1, 1), value), np.s_[1, 1]),
    "points": (lambda a, value: a.vindex.__setitem__((2, 0), value), np.s_[2, 0]),
    "a view": (lambda a, value: a.lazy[1:].__setitem__((1, 1), value), np.s_[2, 1]),
}
ONE_VALUE: dict[str, tuple[Any, Any]] = {
    "float64": ("float64", 4.5),
    "int8": ("int8", -7),
    "string": ("string", "été"),
    "<U4": ("<U4", "été"),
    "datetime64": ("M8[s]", np.datetime64("2020-02-03", "s")),
    "struct": ([("a", "i4"), ("b", "f8")], (3, 1.5)),
}


@pytest.mark.parametrize("layout", [{"chunks": 2}, {"chunks": [[1, 2], 2]}, {"chunks": 1, "shards": 2}], ids=str)
@pytest.mark.parametrize("kind", ONE_VALUE)
@pytest.mark.parametrize("way", ONE_ELEMENT)
def test_an_array_of_one_value_goes_into_one_element(way, kind, layout):
    # numpy drops leading axes of length one from `x[i, j, ...] = value`, and in some versions from `x[i, j] = value`.
    dtype, value = ONE_VALUE[kind]
    write, place = ONE_ELEMENT[way]
    array = zellige.create_array(shape=(3, 2), dtype=dtype, **layout)
    model = np.zeros(array.shape, array.dtype)
    model[(*place, ...)] = one = np.array([value], model.dtype)
    for rank in range(4):
        array[...] = np.zeros_like(model)
        write(array, one.reshape((1,) * rank))
        assert np.array_equal(array[...], model)
    write(array, [value])
    assert np.array_equal(array[...], model)
    many = np.array([value, value], model.dtype)
    for wrong in (many, many[:0], many.reshape(1, 2), many.reshape(2, 1)):
        with pytest.raises(BroadcastError, match="could not broadcast a value of shape"):
            write(array, wrong)
    assert np.array_equal(array[...], model)


def test_an_array_of_one_value_goes_into_an_array_without_axes():
    array = zellige.create_array(shape=(), dtype="float64")
    for number, index in enumerate([(), ..., (..., None)]):
        for value in (np.array([number + 0.5]), [number + 1.5], np.array([[number + 2.5]])):
            array[index] = value
            assert array[()] == np.squeeze(value)


def test_the_last_of_duplicates_wins():
    array, model = small((10,), [[1, 2, 3, 4]])
    for target in (array, model):
        target[[3, 3, 9, 3, 9]] = [1, 2, 3, 4, 5]
    assert np.array_equal(array[...], model)
    assert array[3] == 4
    assert array[9] == 5
    array.vindex[[3, 0, 3]] = [7, 8, 9]
    array.oindex[[9, 1, 9]] = [7, 8, 9]
    assert array[[0, 1, 3, 9]].tolist() == [8, 8, 9, 9]


ERRORS = {
    "too many": (0, 0, 0, 0),
    "an integer past the end": (3,),
    "an integer before the start": (-4,),
    "a position past the end": ([0, 3],),
    "a position before the start": (np.array([-4]),),
    "two ellipses": (..., ...),
    "a mask of another length": (np.ones(4, bool),),
    "a mask of another shape": (np.ones((3, 5), bool),),
    "a mask with too many axes": (np.ones((3, 4, 5, 1), bool),),
    "arrays that do not broadcast": ([0, 1], [0, 1, 2]),
    "a float": (1.0,),
    "floats": (np.array([0.0, 1.0]),),
    "a word": ("x",),
    "a slice of step zero": (slice(None, None, 0),),
    "a slice of floats": (slice(0.5, 2),),
    "ragged lists": ([[0, 1], [2]],),
}


@pytest.mark.parametrize("index", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_of_numpys_kind(index):
    array, model = small(CUBE, 2)
    kind = attempt(lambda: model[index])[1]
    assert kind is not None
    assert attempt(lambda: array[index])[1] is kind
    assert attempt(lambda: array.__setitem__(index, 0))[1] is kind
    assert np.array_equal(array[...], model)


def test_errors_name_what_is_wrong():
    array, _ = small(CUBE, 2)
    with pytest.raises(BoundsCheckError, match="index 9 is out of bounds for axis 1 with size 4"):
        array[0, 9]
    with pytest.raises(BoundsCheckError, match="index -8 is out of bounds for axis 2 with size 5"):
        array[..., [0, -8]]
    with pytest.raises(BoundsCheckError, match=r"index arrays of shapes .* do not broadcast"):
        array[False, [0, 1]]
    with pytest.raises(BoundsCheckError, match=r"oindex takes 1-d masks and lists, found shape \(\)"):
        array.oindex[True]
    for index in (slice("a", None), (0, slice(None, "b", 2)), (slice(None), 1, slice(0.5, None))):
        with pytest.raises(TypeError, match=r"axis \d: a slice goes from integer to integer, found slice\("):
            array[index]
    with pytest.raises(BroadcastError, match=r"shape \(2,\) to the selection's shape \(3, 4, 5\)"):
        array[...] = [1, 2]


def test_the_other_ways_refuse_what_they_do_not_mean():
    array, _ = small(CUBE, 2)
    for index in [(None, 0), (..., ...), (0, 0, 0, 0), ([[0]],), (np.ones((3, 4), bool),)]:
        with pytest.raises(BoundsCheckError):
            array.oindex[index]
    for index in [(0, 1), (slice(None), 0, 0), (np.ones(3, bool), 0, 0), (..., 0), (None, 0, 0)]:
        with pytest.raises(VindexInvalidSelectionError):
            array.vindex[index]
    for index in [(None,), ([0],), (slice(None, None, 2),), (0, 0, 0, 0), (..., ...), (2,), (1.5,)]:
        with pytest.raises(BoundsCheckError):
            array.blocks[index]


def test_an_empty_mask_selection_and_its_named_methods():
    array, model = small(CUBE, 2)
    mask = model % 3 == 0
    check_equal(array.get_mask_selection(mask), model[mask])
    check_equal(array.get_mask_selection(mask.tolist()), model[mask])
    array.set_mask_selection(mask, 0)
    model[mask] = 0
    check_equal(array.get_mask_selection(model < 0), model[model < 0])
    array.set_coordinate_selection(([0], [1], [2]), 7)
    array.set_orthogonal_selection((0, [1, 3], slice(2)), [[1, 2], [3, 4]])
    array.set_block_selection((1, 1, 2), -9)
    array.set_basic_selection((slice(1), 2, 4), 5)
    model[0, 1, 2] = 7
    model[0, [1, 3], :2] = [[1, 2], [3, 4]]
    model[2:, 2:, 4:] = -9
    model[:1, 2, 4] = 5
    check_equal(array.get_basic_selection(), model)
    check_equal(array.get_block_selection((0, 1)), model[:2, 2:])
    with pytest.raises(IndexError):
        array.get_mask_selection(mask[0])


# -- plans ----------------------------------------------------------------------------------------


def test_points_in_a_grid_too_large_to_number():
    # More chunks than an integer counts: the points are told apart by the chunks that occur.
    grid = ChunkGrid.from_sizes((2**40, 2**40), [[[1, 2**40]], 1])
    index = ([5, 2**39, 5, 7], [2**39, 1, 2**39, 1])
    found = {copy.coords: copy.outside[0] for copy in plan_for(select.points(index, grid.shape), grid).copies()}
    assert set(found) == set(zip(*index, strict=True))
    assert sorted(np.arange(4)[found[5, 2**39]].tolist()) == [0, 2]


def test_a_plan_may_be_cut_into_parts():
    _, model = small(CUBE, 2)
    grid = ChunkGrid.from_sizes(CUBE, [2, [1, 3], 2])
    for index in [(...,), ([0, 2], slice(None), [1, 1]), (slice(None, None, -2),)]:
        plan = plan_for(select.basic(index, model.shape), grid)
        coords = [copy.coords for copy in plan.copies()]
        assert len(coords) == len(set(coords)) == len(plan)
        assert [plan.copy(number).coords for number in range(len(plan))] == coords
        for most in range(1, len(plan) + 1):
            parts = [*plan_parts(plan, most)]
            assert sorted(copy.coords for part in parts for copy in part.copies()) == sorted(coords)
            assert max(map(len, parts)) <= most
