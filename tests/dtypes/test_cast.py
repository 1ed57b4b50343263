"""Values that an array's type cannot hold are refused before anything is written, unless the caller says otherwise."""

from __future__ import annotations

import asyncio
import datetime
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import dask.array as da
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
import zellige.dask
from counting_store import CountingStore, contents
from zellige.dtypes.cast import as_value
from zellige.errors import LossyCastError, MaskedValueError, MetadataError

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NUMBERS = ["bool", *INTEGERS, "float16", "float32", "float64"]


def kept(value: np.ndarray, dtype: str) -> bool:
    """Whether each number is the same afterwards; a float may be rounded, but not become infinite."""
    if dtype.startswith("float"):
        with np.errstate(all="ignore"):
            return bool((np.isfinite(value.astype(dtype)) | ~np.isfinite(value)).all())
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    items = value.ravel().tolist()
    return all(np.isfinite(item) and item == int(item) and low <= int(item) <= high for item in items)


@ours.examples(1 / 4)
@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_a_value_is_written_as_it_is_or_refused(data, given_type, dtype):
    if given_type.startswith("float"):
        numbers = st.floats(width=int(given_type[5:])) | st.integers(-300, 300).map(float)
    elif given_type == "bool":
        numbers = st.booleans()
    else:
        bounds = np.iinfo(given_type)
        near = [
            n for n in (0, 1, 127, 128, 255, 256, -1, -128, -129, 2**31, 2**63 - 1) if bounds.min <= n <= bounds.max
        ]
        numbers = st.sampled_from(near) | st.integers(int(bounds.min), int(bounds.max))
    value = np.array(data.draw(st.lists(numbers, min_size=1, max_size=4)), given_type)
    array = zellige.create_array(shape=value.shape, dtype=dtype, chunks=2, fill_value=1)
    if kept(value, dtype):
        with np.errstate(all="ignore"):
            expected = value.astype(dtype)
        array[...] = value
        assert np.array_equal(array[...], expected, equal_nan=dtype.startswith("float"))
    else:
        with pytest.raises(LossyCastError, match="pass casting='unsafe'"):
            array[...] = value
        assert array.nchunks_initialized == 0


@pytest.mark.parametrize("value", [300, -1, 1.5, np.nan, np.inf, [0, 1, 300], np.float32(256), np.array([[0], [-1]])])
def test_nothing_is_written_when_one_value_does_not_fit(value):
    array = zellige.create_array(shape=(2, 3), dtype="uint8", chunks=1)
    array[...] = 7
    with pytest.raises(LossyCastError) as caught:
        array[...] = value
    assert np.asarray(value)[caught.value.index] in (300, -1, 1.5, np.inf, 256) or np.isnan(
        np.asarray(value)[caught.value.index]
    )
    assert isinstance(caught.value, ValueError)
    assert array[...].tolist() == [[7] * 3] * 2


def test_the_caller_may_let_values_change():
    array = zellige.create_array(shape=(3,), dtype="uint8")
    value = np.array([300, -1, 5])
    array.set_basic_selection(..., value, casting="unsafe")
    assert array[...].tolist() == [44, 255, 5]
    array.set_orthogonal_selection([0], [257], casting="unsafe")
    array.set_coordinate_selection([1], [258], casting="unsafe")
    assert array[:2].tolist() == [1, 2]
    loose = zellige.open_array(array.store, config={"casting": "unsafe"})
    loose[...] = value
    assert loose[...].tolist() == [44, 255, 5]
    with zellige.config.set({"array.casting": "unsafe"}):
        zellige.open_array(array.store)[...] = value + 1
    assert array[...].tolist() == [45, 0, 6]
    with pytest.raises(LossyCastError):
        array[...] = value
    with pytest.raises(LossyCastError):
        loose.set_basic_selection(..., value, casting="same_value")
    with pytest.raises(ValueError, match="must be 'same_value' or 'unsafe'"):
        array.set_basic_selection(..., value, casting="safe")


def test_appended_values_are_checked_before_anything_is_written():
    array = zellige.create_array(shape=(3,), dtype="int8", chunks=2)
    keys = sorted(array.store.list())
    with pytest.raises(LossyCastError):
        array.append([1, 2, 128])
    assert array.shape == (3,)
    assert sorted(array.store.list()) == keys


def test_broadcast_and_reversed_values_are_looked_at_in_their_own_order():
    value = np.zeros((400, 300))
    value[399, 7] = 0.5
    for form in (value, np.asfortranarray(value), value[::-1, ::-1], value.T, np.broadcast_to(value, (2, 400, 300))):
        with pytest.raises(LossyCastError) as caught:
            as_value(form, np.dtype("int8"))
        assert form[caught.value.index] == 0.5


# -- parts, objects, times, text ------------------------------------------------------------------


def refused(dtype: Any, value: Any) -> bool:
    """Whether the value is refused as lossy, with its place, and nothing written."""
    array = zellige.create_array(shape=np.shape(value), dtype=dtype)
    try:
        array[...] = value
    except LossyCastError as error:
        return array.nchunks_initialized == 0 and len(error.index) == array.ndim
    return False


PAIR = [("a", "u1"), ("b", "f4")]
DAY = datetime.date(3000, 1, 1)
NOON = datetime.datetime(2020, 1, 1, 12)
LOSSY: dict[str, tuple[Any, Any]] = {
    "float16 that is infinite": ("uint16", np.array([np.inf], "float16")),
    "float16 that is negative": ("uint64", np.array([-1], "float16")),
    "imaginary part beside NaN": ("complex64", np.array([complex(np.nan, 1e300)])),
    "imaginary part beside infinity": ("complex64", np.array([complex(np.inf, 1e300)])),
    "real part": ("complex64", np.array([1e300 + 0j])),
    "real number for complex ones": ("complex64", np.array([1e300])),
    "integer for half": ("float16", np.array([70000])),
    "integer in a struct": (PAIR, np.array([(300, 1)], [("a", "i4"), ("b", "f4")])),
    "float in a struct": (PAIR, np.array([(3, 1e300)], [("a", "u1"), ("b", "f8")])),
    "tuple": (PAIR, np.array([(300, 1.0)], "O,O")),
    "number for all fields": (PAIR, np.array([300])),
    "object that is a large integer": ("uint8", np.array([300], object)),
    "object that is a fraction": ("int8", np.array([1.5], object)),
    "object that is NaN": ("int8", np.array([np.nan], object)),
    "fraction": ("int8", np.array([Fraction(1, 2)])),
    "decimal": ("int8", np.array([Decimal("NaN")])),
    "decimal that is infinite": ("int8", np.array([Decimal("Infinity")])),
    "integer beyond all floats": ("float64", np.array([10**400])),
    "integer beyond some floats": ("float16", np.array([10**6], object)),
    "two that is no boolean": ("bool", np.array([2], object)),
    "Python integer that numpy has no type for": ("int64", [2**70]),
    "number as text": ("uint8", ["300"]),
    "float as text": ("float32", np.array(["1e300"])),
    "integer that numpy would round": ("int32", [2**53 + 1, 1.0]),
    "date too far for nanoseconds": ("M8[ns]", np.array(["3000-01-01"], "M8[s]")),
    "span too long for nanoseconds": ("m8[ns]", np.array([2**40], "m8[s]")),
    "time of day": ("M8[D]", np.array(["2020-01-01T12"], "M8[h]")),
    "part of a second": ("m8[s]", np.array([1500], "m8[ms]")),
    "year as days": ("m8[D]", np.array([1], "m8[Y]")),
    "count of units": ("M8[s]", np.array([2**63], "u8")),
    "large count of units": ("M8[s]", [2**63]),
    "date as text": ("M8[ns]", np.array(["3000-01-01", "2020-01-01T00:00:00.000000001"])),
    "time of day as text": ("M8[D]", ["2020-01-01T12:00"]),
    "part of a second as text": ("M8[s]", np.array(["2020-01-01T12:00:00.5"], np.dtypes.StringDType())),
    "date of Python": ("M8[ns]", [DAY]),
    "time of Python": ("M8[D]", [DAY, NOON, 5, None]),
    "span of Python": ("m8[h]", [datetime.timedelta(minutes=90)]),
    "text": ("U3", ["abc", "abcd"]),
    "text of numpy": ("U3", np.array(["abcd"])),
    "text of any length": ("U3", np.array(["abcd"], np.dtypes.StringDType())),
    "bytes": ("S3", [b"abcd"]),
    "bytes of numpy": ("S3", np.array([b"abcd"])),
    "raw bytes": ("V3", np.array([b"abcd"], "V4")),
    "raw bytes of Python": ("V3", [b"abcd"]),
}


@pytest.mark.parametrize(("dtype", "value"), LOSSY.values(), ids=LOSSY)
def test_parts_objects_times_and_text_are_looked_at_too(dtype, value):
    assert refused(dtype, value)


@pytest.mark.parametrize(
    "bad",
    [((256, 0), [1, 2], "ab"), ((1, 1e39), [1, 2], "ab"), ((1, 0), [1, 2**15], "ab"), ((1, 0), [1, 2], "abc")],
)
def test_fields_in_fields_and_elements_of_sub_arrays_are_looked_at(bad, tmp_path):
    fields = [["x", [["a", "|u1"], ["b", "<f4"]]], ["y", "<i2", [2]], ["z", "<U2"]]
    document = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": fields, "compressor": None}
    text = json.dumps({**document, "fill_value": None, "order": "C", "filters": None})
    (tmp_path / ".zarray").write_text(text)
    array = zellige.open_array(tmp_path, mode="r+")
    good = ((255, 1e38), [1, -2], "ab")
    with pytest.raises(LossyCastError, match=r"^field '[xyz]'") as caught:
        array[...] = [good, bad]
    assert caught.value.index == (1,)
    assert array.nchunks_initialized == 0
    array[...] = [good]
    assert np.array_equal(array[...], np.array([good, good], array.dtype))


FITTING: dict[str, tuple[Any, Any, Any]] = {
    "object": ("uint8", np.array([255, 3.0, True], object), [255, 3, 1]),
    "large objects": ("uint64", np.array([2**64 - 1, 1.0], object), [2**64 - 1, 1]),
    "large list": ("int64", [2**53 + 1, 1.0], [2**53 + 1, 1]),
    "fractions": ("float64", np.array([Fraction(1, 2), Decimal("0.25")]), [0.5, 0.25]),
    "whole fractions": ("int8", np.array([Fraction(4, 2), Decimal(7)]), [2, 7]),
    "numbers as text": ("uint8", np.array(["1", "255"], object), [1, 255]),
    "floats as text": ("float16", ["0.5"], [0.5]),
    "rounded": ("float32", np.array([0.1, 1e-300, -1e300 * 0]), [np.float32(0.1), 0, 0]),
    "seconds": ("M8[ns]", np.array(["2020-01-01", "NaT"], "M8[s]"), np.array(["2020-01-01", "NaT"], "M8[ns]").tolist()),
    "text": (
        "M8[D]",
        ["2020-01-01", "1970-01-03T00:00:00.000"],
        [datetime.date(2020, 1, 1), datetime.date(1970, 1, 3)],
    ),
    "dates and counts": (
        "M8[D]",
        [datetime.date(2020, 1, 1), 2, None],
        [datetime.date(2020, 1, 1), datetime.date(1970, 1, 3), None],
    ),
    "spans": (
        "m8[m]",
        [datetime.timedelta(hours=2), 3, np.timedelta64(1, "D")],
        [datetime.timedelta(minutes=k) for k in (120, 3, 1440)],
    ),
    "other byte order": ("M8[s]", np.array(["2020-01-01"], ">M8[D]"), [datetime.datetime(2020, 1, 1)]),
    "padded": ("S3", [b"ab\0\0"], [b"ab"]),
    "raw": ("V3", [b"a\0b", b"x"], [b"a\0b", b"x\0\0"]),
    "structs by position": (PAIR, np.array([(3, 0.5)], "i8,f8"), [(3, 0.5)]),
    "one value for all fields": (PAIR, [7], [(7, 7.0)]),
    "tuples": (PAIR, [(255, 1), (0, 2.5)], [(255, 1.0), (0, 2.5)]),
}


@pytest.mark.parametrize(("dtype", "value", "expected"), FITTING.values(), ids=FITTING)
def test_values_that_fit_are_written_as_they_are(dtype, value, expected):
    array = zellige.create_array(shape=(len(expected),), dtype=dtype)
    array[...] = value
    assert array[...].tolist() == expected


@pytest.mark.parametrize(
    ("dtype", "value", "at"),
    [
        ("int32", "x", ""),
        ("int32", "7.5", ""),
        ("float64", np.array([["1", "2"], ["3", "x"]]), r" at \(1, 1\)"),
        ("float32", np.array([b"1", b"x"]), r" at \(1,\)"),
        ("complex64", ["1", "x"], r" at \(1,\)"),
    ],
)
def test_text_that_spells_no_number_is_named_with_its_place(dtype, value, at):
    array = zellige.create_array(shape=np.shape(value), dtype=dtype)
    found = np.asarray(value).ravel()[-1].item()
    with pytest.raises(ValueError, match=rf"an array of {dtype} takes numbers, and text only .* found {found!r}{at}$"):
        array[...] = value
    assert array.nchunks_initialized == 0


def test_parts_may_be_cut_and_wrapped_if_that_is_wished():
    cut: list[tuple[Any, Any, Any]] = [
        ("U3", ["abcd"], ["abc"]),
        ("S3", [b"abcd"], [b"abc"]),
        ("V3", [b"abcd"], [b"abc"]),
        (PAIR, [(300, 1e300)], [(44, np.inf)]),
        ("M8[D]", [NOON], [NOON.date()]),
        ("uint8", np.array([300, -1], object), [44, 255]),
        ("int4", [9], [-7]),
    ]
    for dtype, value, expected in cut:
        array = zellige.create_array(shape=(len(expected),), dtype=dtype, config={"casting": "unsafe"})
        array[...] = value
        assert array[...].tolist() == expected


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float64", np.array(["2020"], "M8[D]")),
        ("float64", [object()]),
        ("int8", np.array([1j], object)),
        ("int8", [None]),
        ("V3", [1]),
        (PAIR, np.array([(1, 2, 3)], "i1,i1,i1")),
        ("M8[s]", [1.5]),
        ("S3", ["abc"]),
    ],
)
def test_other_kinds_of_values_are_refused(dtype, value):
    array = zellige.create_array(shape=(1,), dtype=dtype)
    with pytest.raises(TypeError):
        array[...] = value
    assert array.nchunks_initialized == 0


# -- small numbers --------------------------------------------------------------------------------

SMALL = """
    bfloat16 float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn
    float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu int2 uint2 int4 uint4
"""


def all_of(dtype: np.dtype[Any]) -> np.ndarray:
    """Every value of a type of at most two bytes, by its codes."""
    if dtype.name.endswith(("int2", "int4")):
        return np.arange(-8, 16).astype("int8").astype(dtype)
    return np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)


def as_doubles(values: np.ndarray) -> np.ndarray:
    """Numbers as float64, without the warning that some NaN ask for."""
    with np.errstate(invalid="ignore"):
        return values.astype(float)


def fits(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Whether each number has its like among all values of a type, or may be rounded to one."""
    known = as_doubles(all_of(dtype))
    exact = np.isin(values, known) | (np.isnan(values) & np.isnan(known).any())
    if "int" in dtype.name:
        return exact
    below, greatest = np.unique(known[np.isfinite(known)])[-2:]
    end = greatest + (greatest - below) / 2
    rounded = np.abs(values) < end  # half way is rounded to the even code
    if np.flatnonzero(known == greatest)[0] % 2 == 0:
        rounded |= np.abs(values) == end
    return exact | (np.isfinite(values) & rounded & ((values > 0) | (known < 0).any()))


@pytest.mark.parametrize("name", SMALL.split())
def test_small_types_take_what_they_can_hold(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    sources = [np.dtype(getattr(ml_dtypes, other)) for other in SMALL.split()]
    for source in [*sources, *map(np.dtype, ("int8", "uint8", "float16"))]:
        values = all_of(source)
        good = fits(as_doubles(values), dtype)
        assert as_value(values[good], dtype).dtype == dtype
        bad = values[~good]
        for k in range(0, len(bad), len(bad) // 8 + 1):
            with pytest.raises(LossyCastError):
                as_value(bad[k : k + 1], dtype)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("bfloat16", 1e39), ("float8_e4m3fn", 1e10), ("float8_e5m2", 1e10), ("int4", 100), ("uint4", -1), ("int2", 2)],
)
def test_arrays_of_small_types_refuse_what_does_not_fit(dtype, value):
    assert refused(dtype, np.array([value]))
    assert refused(dtype, [value])
    array = zellige.create_array(shape=(2,), dtype=dtype)
    array[...] = np.array([0, 1])
    assert array[...].astype("int8").tolist() == [0, 1]
    array.set_basic_selection(..., np.array([value, value]), casting="unsafe")
    assert array.nchunks_initialized == 1


@pytest.mark.parametrize("name", ["complex_float16", "complex_bfloat16"])
def test_small_complex_numbers_are_looked_at_part_by_part(name):
    assert refused(name, np.array([complex(np.nan, 1e39)]))
    array = zellige.create_array(shape=(2,), dtype=name)
    array[...] = np.array([1 + 2j, 3])
    assert array[...].astype(complex).tolist() == [1 + 2j, 3]
    with pytest.raises(TypeError, match=r"write \.real"):
        zellige.create_array(shape=(2,), dtype="float32")[...] = array[...]


def test_no_warning_and_no_loss_for_floats_that_fit_integers():
    for dtype in INTEGERS:
        for given_type in ("float16", "float32", "float64"):
            array = zellige.create_array(shape=(3,), dtype=dtype)
            array[...] = np.array([0, -0.0, 100], given_type)
            assert array[...].tolist() == [0, 0, 100]


# -- masks ----------------------------------------------------------------------------------------

SPOILT = np.ma.array([[1, 2, -9999], [4, 5, 6]], mask=[[0, 0, 1], [0, 0, 0]])
CLEAN = np.ma.array([[1, 2, 3], [4, 5, 6]], mask=False)
STRUCT = np.dtype([("a", "i4"), ("b", "f8")])
FIELDS = np.ma.array([(1, 2.5), (3, -9999.0)], mask=[(0, 0), (0, 1)], dtype=STRUCT)

WAYS_TO_WRITE: dict[str, Any] = {
    "brackets": lambda a, x: a.__setitem__(slice(None), x),
    "basic": lambda a, x: a.set_basic_selection(slice(None), x),
    "orthogonal": lambda a, x: a.oindex.__setitem__(([0, 1], slice(None)), x),
    "points": lambda a, x: a.vindex.__setitem__(([[0], [1]], [[0, 1, 2]]), x),
    "mask": lambda a, x: a.set_mask_selection(np.ones((2, 3), bool), x.ravel()),
    "blocks": lambda a, x: a.blocks.__setitem__((0, 0), x),
    "unsafe": lambda a, x: a.set_basic_selection(slice(None), x, casting="unsafe"),
    "append": lambda a, x: a.append(x),
    "a view": lambda a, x: a.lazy.__setitem__(slice(None), x),
    "a list": lambda a, x: a.__setitem__(slice(None), list(x)),
    "nested lists": lambda a, x: a.__setitem__(slice(None), [[x[0, 0], x[0, 1], x[0, 2]], x[1]]),
    "dask": lambda a, x: a.__setitem__(slice(None), da.from_array(x, chunks=1)),
    "blocks of dask": lambda a, x: zellige.dask.store(da.from_array(x, chunks=(2, 3)), a),
    "a joined view": lambda a, x: a.__setitem__(slice(None), zellige.concat([x[:1], x[1:]])),
    "a view of numpy": lambda a, x: a.__setitem__(slice(None), zellige.views.lazy(x)),
    "async": lambda a, x: asyncio.run(a.async_array.setitem(slice(None), x)),
}


@pytest.mark.parametrize("dtype", ["int64", "int16", "float32", "float64"])
@pytest.mark.parametrize("way", WAYS_TO_WRITE)
def test_masked_elements_are_refused_before_anything_is_written(way, dtype):
    store = CountingStore()
    array = zellige.create_array(store, shape=(2, 3), chunks=(2, 3), dtype=dtype, fill_value=-1)
    before = contents(store)
    with pytest.raises(MaskedValueError, match=r"x\.filled\(a\.fill_value\)"):
        WAYS_TO_WRITE[way](array, SPOILT)
    assert contents(store) == before
    WAYS_TO_WRITE[way](array, CLEAN)
    assert array[-2:].tolist() == [[1, 2, 3], [4, 5, 6]]
    WAYS_TO_WRITE[way](array, SPOILT.filled(array.fill_value))
    assert array[-2:].tolist() == [[1, 2, -1], [4, 5, 6]]


def test_the_error_says_how_many_elements_are_masked_and_where():
    array = zellige.zeros((2, 3))
    with pytest.raises(MaskedValueError, match=r"1 of 6 elements are masked, the first at \(0, 2\)") as caught:
        array[...] = SPOILT
    assert caught.value.index == (0, 2)
    for value in (np.ma.masked, SPOILT[0, 2], [np.ma.masked], [1.0, np.ma.masked, 2.0]):
        with pytest.raises(MaskedValueError):
            array[0, ...] = value
    assert (array[...] == 0).all()


WAYS_TO_CREATE: dict[str, Any] = {
    "create_array": lambda store, x: zellige.create_array(store, data=x),
    "another type": lambda store, x: zellige.create_array(store, data=x, dtype="float32"),
    "format 2": lambda store, x: zellige.create_array(store, data=x, zarr_format=2),
    "array": lambda store, x: zellige.array(x, store=store),
    "from_array": lambda store, x: zellige.from_array(store, data=x),
    "save": zellige.save,
    "save_array": zellige.save_array,
    "a group": lambda store, x: zellige.group(store, overwrite=False).create_array("a", data=x),
    "overwrite": lambda store, x: zellige.create_array(store, data=x, overwrite=True),
}


@pytest.mark.parametrize("way", WAYS_TO_CREATE)
def test_arrays_are_not_created_of_masked_data(way):
    store = zellige.MemoryStore()
    if way == "a group":
        zellige.group(store)
    before = contents(store)
    with pytest.raises(MaskedValueError, match="masked"):
        WAYS_TO_CREATE[way](store, SPOILT)
    assert contents(store) == before
    WAYS_TO_CREATE[way](store, CLEAN)
    found = zellige.open_array(store, path="a" if way == "a group" else "")
    assert found[...].tolist() == CLEAN.tolist()


def test_masked_data_keeps_what_it_would_have_overwritten():
    store = zellige.MemoryStore()
    zellige.save(store, [1, 2, 3])
    with pytest.raises(MaskedValueError):
        zellige.save(store, SPOILT)
    assert zellige.load(store).tolist() == [1, 2, 3]


def test_masked_fields_are_refused():
    array = zellige.zeros(2, dtype=STRUCT)
    for write in (
        lambda: array.__setitem__(slice(None), FIELDS),
        lambda: array.__setitem__(slice(None), list(FIELDS)),
        lambda: array.__setitem__(1, FIELDS[1]),
        lambda: array.__setitem__((slice(None), "b"), FIELDS["b"]),
        lambda: array.append(FIELDS),
    ):
        with pytest.raises(MaskedValueError):
            write()
    assert array[:].tolist() == [(0, 0.0), (0, 0.0)]
    array[:, "a"] = FIELDS["a"]
    array[0] = FIELDS[0]
    assert array[:].tolist() == [(1, 2.5), (3, 0.0)]


@pytest.mark.parametrize("fill", [np.ma.masked, np.ma.array(3, mask=True), {"a": 1, "b": np.ma.masked}], ids=repr)
def test_a_masked_fill_value_is_refused(fill):
    dtype = STRUCT if isinstance(fill, dict) else "float64"
    with pytest.raises(MetadataError, match="fill_value is masked"):
        zellige.create_array(shape=3, dtype=dtype, fill_value=fill)
    assert zellige.full(3, np.ma.array(3.0), dtype="float64")[0] == 3


@pytest.mark.parametrize("small", [True, False])
def test_variables_of_netcdf4_are_stored_as_they_are_or_refused(small, tmp_path, monkeypatch):
    netCDF4 = pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    if not small:
        monkeypatch.setattr("zellige.nodes.create._AT_ONCE", 0)
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 3)
        spoilt = file.createVariable("spoilt", "i4", ("x",), fill_value=-9999)
        spoilt[:] = np.ma.array([1, 2, 3], mask=[0, 1, 0])
        clean = file.createVariable("clean", "i4", ("x",), fill_value=-9999)
        clean[:] = [4, 5, 6]
        array = zellige.full(3, -9999, dtype="i4")
        with pytest.raises(MaskedValueError, match=r"the first at \(1,\)"):
            array[:] = spoilt[:]
        for write in (lambda v: array.__setitem__(slice(None), v), lambda v: zellige.array(v, chunks=2)):
            with pytest.raises(MaskedValueError):
                write(spoilt)
            write(clean)
        with pytest.raises(MaskedValueError):
            zellige.array(zellige.concat([clean, spoilt]))
        assert array[:].tolist() == [4, 5, 6]
        assert zellige.array(zellige.concat([clean, clean]))[:].tolist() == [4, 5, 6, 4, 5, 6]
        assert zellige.views.lazy(spoilt)[1:][...].mask.tolist() == [True, False]
        array[:] = spoilt[:].filled(array.fill_value)
        assert array[:].tolist() == [1, -9999, 3]
