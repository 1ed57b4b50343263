"""`reshape` and `zarrs.squeeze`: golden bytes, the laws of the format, views, errors."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zellige.codecs.arrays import BytesCodec, ReshapeCodec, SqueezeCodec, TransposeCodec
from zellige.codecs.base import ArraySpec
from zellige.dtypes import from_json
from zellige.errors import MetadataError

SHAPES = st.lists(st.integers(1, 4), max_size=5).map(tuple)


def spec_of(shape, name="int32"):
    dtype = from_json(name)
    return ArraySpec(shape, dtype, dtype.cast_fill(7))


def counted(shape):
    return np.arange(prod(shape), dtype=np.int32).reshape(shape)


# -- golden bytes ---------------------------------------------------------------------------------


def test_golden_reshape_then_transpose():
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    chain, specs = [ReshapeCodec((3, -1)), TransposeCodec((1, 0))], [spec_of((2, 3), "uint8")]
    encoded = array
    for codec in chain:
        specs.append(codec.resolve(specs[-1]))
        encoded = codec.encode(encoded, specs[-2])
    raw = BytesCodec().encode(encoded, specs[-1])
    assert raw.hex() == "000204010305"
    decoded = BytesCodec().decode(raw, specs[-1])
    for codec, spec in zip(reversed(chain), reversed(specs[:-1]), strict=True):
        decoded = codec.decode(decoded, spec)
    np.testing.assert_array_equal(decoded, array)


@pytest.mark.parametrize(
    ("items", "shape", "encoded"),
    [
        (((0, 1), (2,), 3), (100, 50, 64, 3), (5000, 64, 3)),
        (((0, 1), (2,), -1), (5, 4, 4, 3), (20, 4, 3)),
        (((0, 1, 2), 3), (5, 4, 4, 3), (80, 3)),
        (((0,), -1, (2, 3)), (5, 4, 4, 3), (5, 4, 12)),
        (((0,), -1, (3,)), (5, 4, 4, 3), (5, 16, 3)),
        ((-1, 2, 2, (3,)), (5, 4, 4, 3), (20, 2, 2, 3)),
        (((0, 1), 10, (3, 4)), (2, 3, 10, 4, 5), (6, 10, 20)),
        ((-1,), (), (1,)),
        ((), (), ()),
        ((), (1, 1), ()),
        (((),), (1,), (1,)),
        (((0,), ()), (4,), (4, 1)),
        ((1, (0,), 1), (4,), (1, 4, 1)),
    ],
)
def test_encoded_shapes(items, shape, encoded):
    codec, spec = ReshapeCodec(items), spec_of(shape)
    found = codec.resolve(spec)
    assert found.shape == encoded
    assert (found.dtype, found.fill) == (spec.dtype, spec.fill)


# -- laws -----------------------------------------------------------------------------------------


@st.composite
def reshapes(draw):
    """A chunk shape, and a codec that groups its axes, with sizes or -1 for some groups."""
    shape = draw(SHAPES)
    cuts = sorted(draw(st.sets(st.integers(1, max(len(shape) - 1, 1))))) if len(shape) > 1 else []
    groups = [tuple(range(a, b)) for a, b in zip([0, *cuts], [*cuts, len(shape)], strict=True)] if shape else []
    items = [prod(shape[a] for a in group) if draw(st.booleans()) else group for group in groups]
    if items and draw(st.booleans()):
        items[draw(st.integers(0, len(items) - 1))] = -1
    return shape, ReshapeCodec(tuple(items))


@settings(deadline=None)
@given(reshapes(), st.data())
def test_the_order_of_elements_stays(case, data):
    shape, codec = case
    spec, array = spec_of(shape), counted(shape)
    order = data.draw(st.permutations(range(len(shape))))
    strided = array.transpose(order).copy().transpose(np.argsort(order).astype(int))
    encoded = codec.encode(strided, spec)
    assert encoded.shape == codec.resolve(spec).shape
    np.testing.assert_array_equal(encoded.ravel(), array.ravel())
    np.testing.assert_array_equal(codec.decode(encoded, spec), array)


def fits_by_the_text(items, shape):
    """The encoded shape by the words of the format, trying every size for -1; None if it must be refused."""
    axes = [axis for item in items if isinstance(item, tuple) for axis in item]
    if axes != sorted(set(axes)) or any(axis >= len(shape) for axis in axes):
        return None
    choices = []
    for item in items:
        size = prod(shape[a] for a in item) if isinstance(item, tuple) else item
        choices.append(range(1, prod(shape) + 1) if size == -1 else [size])
    for sizes in product(*choices):
        if prod(sizes) == prod(shape):
            break
    else:
        return None
    for i, item in enumerate(items):
        if isinstance(item, tuple) and item:
            before, after = prod(shape[: item[0]]), prod(shape[item[-1] + 1 :])
            if prod(sizes[:i]) != before or prod(sizes[i + 1 :]) != after:
                return None
    return sizes


@settings(deadline=None, max_examples=500)
@given(
    st.lists(st.integers(1, 4) | st.just(-1) | st.lists(st.integers(0, 3), max_size=2).map(tuple), max_size=3).filter(
        lambda items: items.count(-1) <= 1
    ),
    st.lists(st.integers(1, 3), max_size=3).map(tuple),
)
def test_what_the_text_refuses_is_refused(items, shape):
    expected = fits_by_the_text(items, shape)
    if expected is None:
        with pytest.raises(MetadataError) as caught:
            ReshapeCodec(tuple(items)).resolve(spec_of(shape))
        assert caught.value.field == "configuration.shape"
    else:
        assert ReshapeCodec(tuple(items)).resolve(spec_of(shape)).shape == expected


def test_contiguous_chunks_are_not_copied():
    codec, spec, array = ReshapeCodec(((0, 1), -1)), spec_of((2, 3, 4)), counted((2, 3, 4))
    encoded = codec.encode(array, spec)
    assert np.shares_memory(encoded, array)
    assert np.shares_memory(codec.decode(encoded, spec), array)


def test_reshape_is_no_view_as_it_must_copy_after_transpose():
    """A chain that reads parts of chunks relies on views, whatever the strides."""
    transposed = counted((3, 2)).T
    assert not np.shares_memory(ReshapeCodec((2, 3)).decode(transposed, spec_of((6,))), transposed)
    assert not ReshapeCodec.is_view


# -- squeeze --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "encoded"),
    [((4, 1, 3, 1, 2, 1), (4, 3, 2)), ((2, 3), (2, 3)), ((1, 1), (1,)), ((1,), (1,)), ((), (1,))],
)
def test_squeezed_shapes(shape, encoded):
    spec = spec_of(shape)
    found = SqueezeCodec().resolve(spec)
    assert found.shape == encoded
    assert (found.dtype, found.fill) == (spec.dtype, spec.fill)
    array = counted(shape)
    squeezed = SqueezeCodec().encode(array, spec)
    assert squeezed.shape == encoded
    np.testing.assert_array_equal(SqueezeCodec().decode(squeezed, spec), array)


@settings(deadline=None)
@given(SHAPES, st.data())
def test_squeeze_is_a_view_whatever_the_strides(shape, data):
    assert SqueezeCodec.is_view
    codec, spec = SqueezeCodec(), spec_of(shape)
    encoded = codec.resolve(spec).shape
    order = data.draw(st.permutations(range(len(encoded))))
    steps = tuple(data.draw(st.sampled_from([1, 2, -1])) for _ in encoded)
    base = np.arange(prod(encoded) * 2 ** len(encoded), dtype=np.int32)
    strided = base.reshape([2 * encoded[axis] for axis in order]).transpose(np.argsort(order).astype(int))
    strided = strided[tuple(slice(None, None, step) for step in steps)]
    strided = strided[tuple(slice(size) for size in encoded)]
    decoded = codec.decode(strided, spec)
    assert decoded.shape == shape
    assert np.shares_memory(decoded, base)
    np.testing.assert_array_equal(decoded.ravel(), strided.ravel())


# -- configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [(3, -1), ((0, 1), 10, (3, 4)), (), ((),)])
def test_configurations_come_back(items):
    codec = ReshapeCodec(items)
    assert ReshapeCodec.from_configuration(codec.configuration()) == codec
    assert all(not isinstance(item, tuple) for item in codec.configuration()["shape"])


def test_squeeze_has_no_configuration():
    assert SqueezeCodec.from_configuration({}) == SqueezeCodec()
    assert SqueezeCodec().to_json() == {"name": "zarrs.squeeze", "configuration": {}}
    with pytest.raises(MetadataError) as caught:
        SqueezeCodec.from_configuration({"axes": [0]})
    assert caught.value.field == "configuration.axes"


@pytest.mark.parametrize(
    ("configuration", "field"),
    [
        ({}, "shape"),
        ({"shape": 3}, "shape"),
        ({"shape": [0]}, "shape"),
        ({"shape": [-2]}, "shape"),
        ({"shape": [True]}, "shape"),
        ({"shape": [1.0]}, "shape"),
        ({"shape": ["3"]}, "shape"),
        ({"shape": [-1, -1]}, "shape"),
        ({"shape": [[-1]]}, "shape"),
        ({"shape": [[0.0]]}, "shape"),
        ({"shape": [[[0]]]}, "shape"),
        ({"shape": [[1], [0]]}, "shape"),
        ({"shape": [[1, 0], 10, [3, 4]]}, "shape"),
        ({"shape": [[3, 4], 10, [0, 1]]}, "shape"),
        ({"shape": [[0], [0]]}, "shape"),
        ({"shape": [1] * 65}, "shape"),
        ({"shape": [3], "order": "C"}, "order"),
    ],
)
def test_bad_configurations_name_their_field(configuration, field):
    with pytest.raises(MetadataError) as caught:
        ReshapeCodec.from_configuration(configuration)
    assert caught.value.field == f"configuration.{field}"


@pytest.mark.parametrize(
    ("items", "shape", "words"),
    [
        ((5,), (2, 3), "6 elements"),
        ((4, -1), (2, 3), "6 elements"),
        (((2,), -1), (2, 3), "no axis 2"),
        ((3, (0,)), (2, 3), "not at their place"),
        ((2, 2, 2, (2,), -1), (5, 4, 4, 3), "240 elements"),
        (((0, 2), -1), (2, 3, 2), "not at their place"),
    ],
)
def test_chunks_that_do_not_suit_are_refused(items, shape, words):
    with pytest.raises(MetadataError, match=words) as caught:
        ReshapeCodec(items).resolve(spec_of(shape))
    assert caught.value.field == "configuration.shape"
