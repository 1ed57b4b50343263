"""Values that an array's type cannot hold are refused before anything is written, unless the caller says otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from zellige.errors import LossyCastError

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
