"""Fields of structs in an index, for reading and for writing; numpy is the oracle."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zellige
from zellige.errors import BroadcastError, FieldNotFoundError, LossyCastError

DTYPE = np.dtype(
    [("x", "i2"), ("y", "f4"), ("t", "U3"), ("p", [("u", "u1"), ("v", ml_dtypes.bfloat16)]), ("d", "M8[s]")]
)
LAYOUTS = {
    "regular": {"chunks": (2, 3)},
    "rectilinear": {"chunks": ([1, 2, 1], [4, 2])},
    "sharded": {"chunks": (1, 2), "shards": (2, 4)},
    "raw, big-endian": {
        "chunks": (3, 4),
        "compressors": None,
        "serializer": {"name": "bytes", "configuration": {"endian": "big"}},
    },
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def model_of(shape=(4, 6)):
    model = np.zeros(shape, DTYPE)
    numbers = np.arange(model.size).reshape(shape)
    model["x"], model["y"], model["t"] = numbers, numbers / 4, numbers.astype("U3")
    model["p"]["u"], model["p"]["v"], model["d"] = numbers, numbers / 2, numbers * 1000
    return model


def same(found, expected):
    return (
        found.dtype == expected.dtype and np.shape(found) == np.shape(expected) and found.tolist() == expected.tolist()
    )


# -- reading --------------------------------------------------------------------------------------

FIELDS = ["x", "p", "d", ["x", "y"], ["t", "x"], ["p"]]
INDICES = [np.s_[:], np.s_[1:3, ::2], np.s_[::-1], np.s_[2, 3], np.s_[..., 1], np.s_[[0, 3], [5, 5]], np.s_[None, 2]]


@each_layout
@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_a_field_alone(field, layout):
    model = model_of()
    array = zellige.create_array(data=model, **layout)
    assert same(array[field], model[field])
    assert same(array.get_basic_selection(fields=field), model[field])


@each_layout
@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_a_field_anywhere_in_the_index(field, index, layout):
    model = model_of()
    array = zellige.create_array(data=model, **layout)
    expected = model[index][field]
    items = index if isinstance(index, tuple) else (index,)
    for place in range(len(items) + 1):
        assert same(array[(*items[:place], field, *items[place:])], expected)
    assert same(array.get_basic_selection(index, fields=field), expected)


def test_the_other_ways_to_index():
    model = model_of()
    array = zellige.create_array(data=model, chunks=(2, 3))
    mask = model["x"] % 5 == 0
    assert same(array.oindex[[3, 0], [1, 2], "x"], model[np.ix_([3, 0], [1, 2])]["x"])
    assert same(array.vindex["y", [3, 0], [1, 2]], model[[3, 0], [1, 2]]["y"])
    assert same(array.vindex[mask, ["x", "d"]], model[mask][["x", "d"]])
    assert same(array.blocks[1, 0, "x"], model[2:4, :3]["x"])
    assert same(array.get_mask_selection(mask, fields="x"), model[mask]["x"])
    assert same(array.get_orthogonal_selection(np.s_[1, :], fields=["x"]), model[1][["x"]])
    assert same(array.get_coordinate_selection(([1], [2]), fields="x"), model[[1], [2]]["x"])
    assert same(array.get_block_selection(0, fields="x"), model[:2]["x"])
    assert same(array["x", 1, "y"], model[1][["x", "y"]])  # several names are several fields


def test_a_field_has_memory_of_its_own():
    array = zellige.create_array(data=model_of(), chunks=(2, 3))
    assert array["x"].base is None
    assert array["x"].flags.c_contiguous
    assert array.with_config({"order": "F"})["x"].flags.f_contiguous


def test_into_an_array_that_is_there():
    model = model_of()
    array = zellige.create_array(data=model, chunks=(2, 3))
    out = np.zeros((2, 6), "f8")
    assert array.get_basic_selection(np.s_[1:3], out=out, fields="x") is out
    assert np.array_equal(out, model["x"][1:3])
    with pytest.raises(BroadcastError):
        array.get_basic_selection(np.s_[1:3], out=np.zeros(3), fields="x")
    with pytest.raises(TypeError, match="out must be a numpy array"):
        array.get_basic_selection(np.s_[1:3], out=[0.0], fields="x")


def test_fields_are_read_into_another_type_by_the_rule_of_writing():
    array = zellige.create_array(data=np.array([(1, 2.5), (300, 7.0)], [("n", "i4"), ("x", "f8")]))
    out = np.zeros(2, "uint8")
    with pytest.raises(LossyCastError, match=r"cannot read into out: int32 value 300 at \(1,\)"):
        array.get_basic_selection(out=out, fields="n")
    with pytest.raises(LossyCastError, match=r"float64 value 2\.5 at \(0,\)"):
        array.get_basic_selection(out=out, fields="x")
    assert out.tolist() == [0, 0]
    assert array.get_basic_selection(slice(1, None), out=out[:1], fields="x").tolist() == [7]
    both = np.zeros(2, [("n", "f4"), ("x", "f4")])
    assert array.get_basic_selection(out=both, fields=["n", "x"]).tolist() == [(1, 2.5), (300, 7.0)]
    single = np.zeros((), "i2")
    assert array.get_basic_selection(1, out=single, fields="n") is single
    assert single == 300


# -- writing --------------------------------------------------------------------------------------

WRITES = [
    ("x", np.s_[:], 7),
    ("x", np.s_[1:3, ::2], np.arange(6).reshape(2, 3)),
    ("x", np.s_[2, 3], np.int64(5)),
    ("y", np.s_[:], np.linspace(0, 1, 6)),
    ("y", np.s_[::-1, 1], [1, 2, 3, 4]),
    ("t", np.s_[0], "é"),
    ("t", np.s_[:, 2], ["a", "bc", "def", ""]),
    ("d", np.s_[1:, 1:], np.datetime64("2020-01-01")),
    ("p", np.s_[1], (3, 1.5)),
    ("p", np.s_[1, :2], np.array([(1, 2), (3, 4)], [("u", "u1"), ("v", "f4")])),
    (["x", "y"], np.s_[:], (1, 2.5)),
    (["y", "x"], np.s_[1, :2], [(1.5, 2), (3.5, 4)]),
    (["d", "x"], np.s_[3:, -1], np.array([(5, 6)], "M8[s],i4")),
    ("x", np.s_[[0, 3, 0], [1, 2, 1]], [10, 20, 30]),
]


@each_layout
@pytest.mark.parametrize(("field", "index", "value"), WRITES, ids=str)
def test_writing_a_field_leaves_the_others(field, index, value, layout):
    model = model_of()
    array = zellige.create_array(data=model, **layout)
    model[field][index] = value
    items = index if isinstance(index, tuple) else (index,)
    array[(*items, field)] = value
    assert same(array[...], model)
    again = zellige.create_array(data=model_of(), **layout)
    again.set_basic_selection(index, value, fields=field)
    assert same(again[...], model)


@each_layout
def test_writing_fields_of_chunks_that_are_missing(layout):
    array = zellige.create_array(shape=(4, 6), dtype=DTYPE, fill_value=model_of()[1, 1], **layout)
    model = np.full((4, 6), model_of()[1, 1], DTYPE)
    array["x"] = model["x"]  # what is there already
    assert array.nchunks_initialized == 0
    array[0, 0, "x"] = model[0, 0]["x"] = 99
    assert array._chunks.count(array.grid) == 1
    assert same(array[...], model)


def test_the_other_ways_to_write():
    model = model_of()
    array = zellige.create_array(data=model, chunks=(2, 3))
    mask = model["x"] % 5 == 0
    array.oindex[[3, 0], [1, 2], "x"] = 1
    model["x"][np.ix_([3, 0], [1, 2])] = 1
    array.vindex[[1, 1], [0, 5], "y"] = [2, 3]
    model["y"][[1, 1], [0, 5]] = [2, 3]
    array.blocks[1, 1, "t"] = "q"
    model["t"][2:4, 3:] = "q"
    array.set_mask_selection(mask, 4, fields="x")
    model["x"][mask] = 4
    array.set_orthogonal_selection(0, 5, fields="y")
    model["y"][0] = 5
    array.set_coordinate_selection(([1], [1]), 6, fields="x")
    model["x"][1, 1] = 6
    array.set_block_selection((0, 0), 7, fields="x")
    model["x"][:2, :3] = 7
    assert same(array[...], model)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_fields_are_what_numpy_makes_of_them(data):
    model = model_of()
    array = zellige.create_array(data=model, **data.draw(st.sampled_from(list(LAYOUTS.values()))))
    for _ in range(3):
        field = data.draw(st.sampled_from(["x", "y", ["x", "y"], ["y", "d"]]))
        slices = st.tuples(*(st.slices(n) for n in model.shape))
        index, source = data.draw(slices), data.draw(slices)
        value = model[index][field].copy()
        value = np.broadcast_to(value.flat[0], value.shape) if value.size else value
        model[field][index] = value
        array[(field, *index)] = value
        assert same(array[(*source, field)], model[source][field])
    assert same(array[...], model)


def test_threads_that_write_different_fields_lose_nothing():
    array = zellige.create_array(shape=(4, 6), dtype=[("x", "i4"), ("y", "i4")], chunks=4)

    def write(field):
        for value in range(1, 21):
            array[field] = value

    threads = [threading.Thread(target=write, args=(field,)) for field in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert array[...].tolist() == [[(20, 20)] * 6] * 4


# -- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["q", ["x", "q"], (0, "q"), ("q", ...)], ids=str)
def test_fields_that_are_not_there(index):
    array = zellige.create_array(data=model_of(), chunks=2)
    for kind in (FieldNotFoundError, KeyError, IndexError, ValueError):
        with pytest.raises(kind, match="no field of name 'q'; the fields are 'x', 'y'"):
            array[index]
        with pytest.raises(kind):
            array[index] = 1


def test_a_field_twice_is_refused_as_by_numpy():
    array = zellige.create_array(data=model_of(), chunks=2)
    with pytest.raises(ValueError, match="'x' is named twice"):
        array[["x", "x"]]
    with pytest.raises(ValueError, match="'x' is named twice"):
        array["x", 0, "x"]


def test_arrays_without_fields():
    array = zellige.create_array(data=np.arange(3))
    for index in ("x", ["x"], (0, "x")):
        with pytest.raises(IndexError):
            array[index]
        with pytest.raises(IndexError):
            array[index] = 1
    with pytest.raises(FieldNotFoundError):
        array.get_basic_selection(fields="x")
    with pytest.raises(FieldNotFoundError):
        array.set_basic_selection(0, 1, fields=["x"])


@pytest.mark.parametrize(
    ("index", "value"),
    [("x", "text"), ("x", [1, 2]), ("t", 5), ("t", "four"), ("d", 1.5), (["x", "y"], (1, 2, 3)), ("p", "ab")],
    ids=str,
)
def test_values_that_are_refused_before_anything_is_written(index, value):
    array = zellige.create_array(shape=(4, 6), dtype=DTYPE, chunks=2)
    with pytest.raises((TypeError, ValueError)):
        array[index] = value
    assert array.nchunks_initialized == 0
