"""The `packbits` codec against strings of bits: golden bytes, every type and span, padding, errors."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zellige.codecs import packbits as packbits_module
from zellige.codecs.base import ArraySpec
from zellige.codecs.packbits import PackbitsCodec
from zellige.dtypes import from_json
from zellige.errors import CodecError, MetadataError, UnknownDataTypeError

# name, bits of a component, whether the sign is extended
CORE = [
    ("bool", 1, False),
    *((f"int{n}", n, True) for n in (8, 16, 32, 64)),
    *((f"uint{n}", n, False) for n in (8, 16, 32, 64)),
    *((f"float{n}", n, False) for n in (16, 32, 64)),
    ("complex64", 32, False),
    ("complex128", 64, False),
]
FOREIGN = [
    ("int2", 2, True),
    ("uint2", 2, False),
    ("int4", 4, True),
    ("uint4", 4, False),
    ("float4_e2m1fn", 4, False),
    ("float6_e2m3fn", 6, False),
    ("float6_e3m2fn", 6, False),
    ("float8_e4m3", 8, False),
    ("bfloat16", 16, False),
]
PADDINGS = ["none", "first_byte", "last_byte"]
FLAGS = np.array([int(c) for c in "1011000011"], bool)


def spec_of(name, shape):
    try:
        dtype = from_json(name)
    except UnknownDataTypeError:  # a type of ml_dtypes that the table does not hold
        ml_dtypes = pytest.importorskip("ml_dtypes")
        dtype = replace(from_json("int8"), name=name, numpy=np.dtype(getattr(ml_dtypes, name)))
    return ArraySpec(shape, dtype, np.zeros((), dtype.numpy))


def spec_like(array):
    return spec_of(array.dtype.name, array.shape)


# -- the oracle: a string of bits, the lowest first -----------------------------------------------


def components(array):
    """The bit patterns of all components as integers."""
    size = array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
    raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return [int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)]


def packed_by_hand(array, first, last, padding):
    """The bytes that the text of the format asks for."""
    text = "".join("".join(str(pattern >> bit & 1) for bit in range(first, last + 1)) for pattern in components(array))
    missing = -len(text) % 8
    text += "0" * missing
    body = bytes(int(text[i : i + 8][::-1], 2) for i in range(0, len(text), 8))
    return {"none": body, "first_byte": bytes([missing]) + body, "last_byte": body + bytes([missing])}[padding]


def kept_by_hand(array, bits, signed, first, last):
    """The patterns that come back: zeros below, zeros or the sign above."""
    found = []
    for pattern in components(array):
        pattern &= (1 << last + 1) - (1 << first)
        if signed and pattern >> last & 1:
            pattern |= (1 << bits) - (1 << last)
        found.append(pattern)
    return found


@st.composite
def cases(draw):
    name, bits, signed = draw(st.sampled_from(CORE + FOREIGN if find_spec("ml_dtypes") else CORE))
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    spec = spec_of(name, shape)
    dtype, count = spec.dtype.numpy, int(np.prod(shape))
    raw = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    octets = np.frombuffer(raw, np.uint8)
    if bits < 8:
        octets = octets & ((1 << bits) - 1)
    array = np.frombuffer(octets.tobytes(), dtype).reshape(shape)
    first = draw(st.none() | st.integers(0, bits - 1))
    last = draw(st.none() | st.integers(first or 0, bits - 1))
    return array, spec, bits, signed, PackbitsCodec(draw(st.sampled_from(PADDINGS)), first, last)


@settings(deadline=None, max_examples=400)
@given(cases())
def test_packing_is_a_string_of_bits(case):
    array, spec, bits, signed, codec = case
    first, last = codec.first_bit or 0, bits - 1 if codec.last_bit is None else codec.last_bit
    codec.check(spec)
    raw = codec.encode(array, spec)
    assert bytes(raw) == packed_by_hand(array, first, last, codec.padding_encoding)
    assert codec.encoded_size(spec) == len(raw)
    decoded = codec.decode(raw, spec)
    assert decoded.shape == array.shape
    assert decoded.dtype == array.dtype.newbyteorder("<")
    assert components(decoded) == kept_by_hand(array, bits, signed, first, last)


@settings(deadline=None, max_examples=50)
@given(cases())
def test_layout_and_byte_order_of_the_chunk_do_not_matter(case):
    array, spec, _, _, codec = case
    raw = codec.encode(array, spec)
    assert codec.encode(np.asfortranarray(array).reshape(array.shape), spec) == raw
    if spec.dtype.numpy.itemsize > 1:
        assert codec.encode(array.astype(array.dtype.newbyteorder(">")), spec) == raw
    decoded = codec.decode(memoryview(b"x" + raw)[1:], spec)
    np.testing.assert_array_equal(components(decoded), components(codec.decode(bytearray(raw), spec)))


@pytest.mark.parametrize("slab", [8, 16])
@pytest.mark.parametrize(("name", "span"), [("bool", (None, None)), ("int16", (1, 11)), ("complex64", (5, 27))])
def test_long_chunks_are_packed_slab_by_slab(monkeypatch, slab, name, span):
    """The same bytes, whatever the size of a slab."""
    raw = np.random.default_rng(0).integers(0, 256, 61 * 16, np.uint8)
    array = (raw[:61] % 2).astype(bool) if name == "bool" else raw.view(name)[:61]
    codec, spec = PackbitsCodec("none", *span), spec_like(array)
    whole = codec.encode(array, spec)
    monkeypatch.setattr(packbits_module, "_SLAB", slab)
    assert codec.encode(array, spec) == whole
    again = components(codec.decode(whole, spec))
    monkeypatch.undo()
    assert again == components(codec.decode(whole, spec))


# -- golden bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("padding", "stored"), [("none", "0d03"), ("first_byte", "060d03"), ("last_byte", "0d0306")])
def test_golden_flags(padding, stored):
    codec, spec = PackbitsCodec(padding), spec_like(FLAGS)
    assert codec.encode(FLAGS, spec).hex() == stored
    np.testing.assert_array_equal(codec.decode(bytes.fromhex(stored), spec), FLAGS)


def test_golden_twelve_bits():
    array = np.array([0x123, 0xABC, 0xFFF], np.uint16)
    codec, spec = PackbitsCodec(last_bit=11), spec_like(array)
    assert codec.encode(array, spec).hex() == "23c1abff0f"
    np.testing.assert_array_equal(codec.decode(bytes.fromhex("23c1abff0f"), spec), array)


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64"])
def test_the_sign_is_extended_over_the_whole_component(name):
    array = np.array([-1, -5, 3, 0, 15, -16], name)
    codec, spec = PackbitsCodec(last_bit=4), spec_like(array)
    np.testing.assert_array_equal(codec.decode(codec.encode(array, spec), spec), array)


def test_times_are_signed_integers():
    times = np.array(["1970-01-01T00:00:05", "1969-12-31T23:59:58"], "M8[s]")
    spec = spec_of("int64", (2,))
    spec = replace(spec, dtype=replace(spec.dtype, name="numpy.datetime64", numpy=times.dtype))
    codec = PackbitsCodec(last_bit=3)
    codec.check(spec)
    assert codec.encode(times, spec).hex() == "e5"
    np.testing.assert_array_equal(codec.decode(bytes.fromhex("e5"), spec), times)


# -- whole components -----------------------------------------------------------------------------


def test_whole_components_are_the_plain_bytes():
    array = np.array([[1, 2], [3, -4]], np.int16)
    codec, spec = PackbitsCodec(), spec_like(array)
    assert codec.encode(array, spec) == array.astype("<i2").tobytes()
    assert codec.layout(spec) == np.dtype("<i2")
    assert PackbitsCodec(first_bit=0, last_bit=15).layout(spec) == np.dtype("<i2")
    assert PackbitsCodec("first_byte").layout(spec) is None
    assert PackbitsCodec(last_bit=14).layout(spec) is None
    assert PackbitsCodec().layout(spec_like(FLAGS)) is None
    raw = codec.encode(array, spec)
    assert np.shares_memory(codec.decode(raw, spec), np.frombuffer(raw, np.uint8))


@pytest.mark.parametrize("padding", ["first_byte", "last_byte"])
def test_the_padding_of_whole_components_is_written_and_may_be_missing(padding):
    """The text has the byte always; zarrs leaves it out here, and the length tells."""
    array = np.array([1, -2], np.int16)
    codec, spec = PackbitsCodec(padding), spec_like(array)
    assert codec.encode(array, spec).hex() == {"first_byte": "000100feff", "last_byte": "0100feff00"}[padding]
    np.testing.assert_array_equal(codec.decode(bytes.fromhex("0100feff"), spec), array)
    with pytest.raises(CodecError):
        PackbitsCodec(padding, last_bit=7).decode(b"\1\2", spec)  # the same span of bytes, but not whole components


# -- damaged bytes --------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", PADDINGS)
def test_a_wrong_length_raises(padding):
    codec, spec = PackbitsCodec(padding), spec_like(FLAGS)
    raw = codec.encode(FLAGS, spec)
    for damaged in (b"", raw[:-1], raw + b"\0"):
        with pytest.raises(CodecError, match="bytes expected"):
            codec.decode(damaged, spec)


@pytest.mark.parametrize(("padding", "stored"), [("first_byte", "050d03"), ("last_byte", "0d03ff")])
def test_a_wrong_padding_byte_raises(padding, stored):
    with pytest.raises(CodecError, match="6 bits of padding expected"):
        PackbitsCodec(padding).decode(bytes.fromhex(stored), spec_like(FLAGS))


def test_bits_of_the_padding_are_ignored():
    np.testing.assert_array_equal(PackbitsCodec().decode(bytes.fromhex("0dff"), spec_like(FLAGS)), FLAGS)


# -- configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "codec", [PackbitsCodec(), PackbitsCodec("first_byte"), PackbitsCodec("last_byte", 1, 5), PackbitsCodec(last_bit=0)]
)
def test_configurations_come_back(codec):
    assert PackbitsCodec.from_configuration(codec.configuration()) == codec


def test_null_means_the_default():
    assert PackbitsCodec.from_configuration({"first_bit": None, "last_bit": None}) == PackbitsCodec()
    assert PackbitsCodec.from_configuration({}) == PackbitsCodec()


@pytest.mark.parametrize(
    ("configuration", "field"),
    [
        ({"padding_encoding": "start_byte"}, "padding_encoding"),
        ({"padding_encoding": None}, "padding_encoding"),
        ({"start_bit": 1}, "start_bit"),
        ({"first_bit": -1}, "first_bit"),
        ({"first_bit": 1.0}, "first_bit"),
        ({"first_bit": True}, "first_bit"),
        ({"last_bit": 64}, "last_bit"),
        ({"last_bit": "7"}, "last_bit"),
        ({"first_bit": 3, "last_bit": 2}, "last_bit"),
    ],
)
def test_bad_configurations_name_their_field(configuration, field):
    with pytest.raises(MetadataError) as caught:
        PackbitsCodec.from_configuration(configuration)
    assert caught.value.field == f"configuration.{field}"


@pytest.mark.parametrize(
    ("codec", "name", "field"),
    [
        (PackbitsCodec(), "r16", "configuration"),
        (PackbitsCodec(last_bit=1), "bool", "configuration.last_bit"),
        (PackbitsCodec(last_bit=16), "int16", "configuration.last_bit"),
        (PackbitsCodec(first_bit=8), "uint8", "configuration.first_bit"),
        (PackbitsCodec(last_bit=32), "complex64", "configuration.last_bit"),
    ],
)
def test_types_that_do_not_suit_are_refused(codec, name, field):
    with pytest.raises(MetadataError) as caught:
        codec.check(spec_of(name, (2,)))
    assert caught.value.field == field
