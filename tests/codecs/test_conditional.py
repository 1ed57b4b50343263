"""The `conditional` codec: what the header says, what is left out, damage, configurations."""

from __future__ import annotations

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zellige.codecs.arrays import BytesCodec
from zellige.codecs.blosc import BloscCodec
from zellige.codecs.conditional import ConditionalCodec
from zellige.codecs.crc32c import Crc32cCodec
from zellige.codecs.gzip import GzipCodec
from zellige.codecs.zstd import ZstdCodec
from zellige.errors import CodecError, MetadataError, UnknownCodecError

ONE_TO_FOUR = bytes([1, 2, 3, 4])
STEPS = np.repeat(np.arange(8), 32).astype("<i2").tobytes()
NOISE = np.random.default_rng(0).bytes(100)
CHECKSUM = ConditionalCodec((Crc32cCodec(),))

CODECS = [
    CHECKSUM,
    ConditionalCodec((GzipCodec(5),)),
    ConditionalCodec((ZstdCodec(1, False), Crc32cCodec())),
    ConditionalCodec((Crc32cCodec(), ZstdCodec(3), GzipCodec(1), BloscCodec("lz4", 5, "shuffle", 2))),
    ConditionalCodec((GzipCodec(1),), header_bits=24),
    ConditionalCodec((*(Crc32cCodec(),) * 9, GzipCodec(5))),
    ConditionalCodec((ConditionalCodec((GzipCodec(5),)), Crc32cCodec())),
]


def outcome(codec, raw, size):
    """The content, or None if the codec refuses; any other exception is a failure."""
    try:
        found = bytes(codec.decode(raw, size))
    except CodecError:
        return None
    assert len(found) <= size
    return found if len(found) == size else None  # a chain expects so many, and refuses fewer


# -- golden bytes ---------------------------------------------------------------------------------


def test_golden_bytes():
    assert CHECKSUM.encode(ONE_TO_FOUR).hex() == "0101020304f48c3029"
    assert bytes(CHECKSUM.decode(bytes.fromhex("0101020304f48c3029"), 4)) == ONE_TO_FOUR
    assert bytes(CHECKSUM.decode(bytes.fromhex("0001020304"), 4)) == ONE_TO_FOUR


@pytest.mark.parametrize(
    ("codec", "raw", "header"),
    [
        (ConditionalCodec((GzipCodec(5),)), STEPS, "01"),
        (ConditionalCodec((GzipCodec(5),)), NOISE, "00"),
        (ConditionalCodec((GzipCodec(5),), header_bits=24), STEPS, "010000"),
        (ConditionalCodec((GzipCodec(5), Crc32cCodec())), NOISE, "02"),
        (ConditionalCodec((*(Crc32cCodec(),) * 8, GzipCodec(5))), NOISE, "ff00"),
        (ConditionalCodec((*(Crc32cCodec(),) * 8, GzipCodec(5))), STEPS, "ff01"),
    ],
)
def test_compressors_are_applied_where_they_help_and_checksums_always(codec, raw, header):
    assert codec.encode(raw)[: len(header) // 2].hex() == header


def test_a_compressor_that_does_not_help_costs_only_the_header():
    assert ConditionalCodec((GzipCodec(5), ZstdCodec())).encode(NOISE) == b"\0" + NOISE


# -- laws -----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=100), st.integers(1, 20))
def test_any_bytes_round_trip(codec, raw, repeats):
    raw *= repeats
    encoded = codec.encode(memoryview(raw))
    assert len(encoded) <= codec.encoded_bound(len(raw))
    assert codec.encoded_size(len(raw)) is None
    assert bytes(codec.decode(memoryview(encoded), len(raw))) == raw
    assert not raw or outcome(codec, encoded, len(raw) - 1) is None


@settings(deadline=None)
@given(st.integers(0, 15), st.binary(max_size=50))
def test_every_choice_of_codecs_is_read(bits, raw):
    codecs = (ZstdCodec(), Crc32cCodec(), GzipCodec(1), BloscCodec("lz4", 5, "shuffle", 2))
    encoded = raw
    for i, codec in enumerate(codecs):
        encoded = codec.encode(encoded) if bits >> i & 1 else encoded
    assert bytes(ConditionalCodec(codecs).decode(bytes([bits]) + encoded, len(raw))) == raw


def test_the_element_size_reaches_the_codecs_inside():
    codec = ConditionalCodec((BloscCodec("lz4"),))
    assert codec.evolve(2).codecs[0].typesize == 2
    assert codec.evolve(2).encode(STEPS)[4] == 2


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_truncations_and_flips(codec):
    encoded = codec.encode(STEPS)
    checked = any(isinstance(c, Crc32cCodec) for c in codec.codecs)
    size = (codec.header_bits or 8 * -(-len(codec.codecs) // 8)) // 8
    for length in range(len(encoded)):
        assert outcome(codec, encoded[:length], len(STEPS)) is None
    for position in range(len(encoded)):
        for mask in (1, 2, 128, 255):
            damaged = bytearray(encoded)
            damaged[position] ^= mask
            found = outcome(codec, bytes(damaged), len(STEPS))
            if checked and position >= size:
                assert found in (None, STEPS), "some bits of gzip headers mean nothing"


@pytest.mark.parametrize("header", ["02", "80", "ff", "04"])
def test_reserved_bits_must_be_zero(header):
    with pytest.raises(CodecError, match="more than the 1 codecs"):
        CHECKSUM.decode(bytes.fromhex(header) + ONE_TO_FOUR, 4)


def test_reserved_bytes_must_be_zero():
    codec = ConditionalCodec((Crc32cCodec(),), header_bits=16)
    assert bytes(codec.decode(b"\0\0" + ONE_TO_FOUR, 4)) == ONE_TO_FOUR
    for header in (b"\0\1", b"\0\x80"):
        with pytest.raises(CodecError):
            codec.decode(header + ONE_TO_FOUR, 4)


@pytest.mark.parametrize("raw", [b"", b"\0"])
def test_a_header_that_is_cut_raises(raw):
    with pytest.raises(CodecError, match="at least 2 bytes"):
        ConditionalCodec((Crc32cCodec(),), header_bits=16).decode(raw, 4)


def test_more_than_the_limit_raises_without_any_codec():
    with pytest.raises(CodecError, match="at most 3 bytes"):
        CHECKSUM.decode(b"\0" + ONE_TO_FOUR, 3)


@pytest.mark.parametrize("stage", [0, 1])
def test_a_bomb_raises_at_every_stage(stage):
    bomb = zlib.compress(bytes(64 << 20), 9, wbits=31)
    raw = bytes([1 << stage]) + bomb
    codec = ConditionalCodec((GzipCodec(1), GzipCodec(1)))
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            codec.decode(raw, 1024)
        with pytest.raises(CodecError):
            codec.decode(b"\3" + zlib.compress(bomb, 9, wbits=31), 1024)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


# -- configurations -------------------------------------------------------------------------------

GZIP = {"name": "gzip", "configuration": {"level": 5}}


@pytest.mark.parametrize(
    "configuration",
    [
        {"codecs": [GZIP]},
        {"codecs": [GZIP, {"name": "crc32c", "configuration": {}}], "header_bits": 16},
        {"codecs": [{"name": "conditional", "configuration": {"codecs": [GZIP]}}]},
    ],
)
def test_configurations_are_written_as_they_were_read(configuration):
    codec = ConditionalCodec.from_configuration(configuration)
    assert codec.configuration() == configuration
    assert codec.to_json() == {"name": "conditional", "configuration": configuration}
    assert hash(codec) == hash(ConditionalCodec.from_configuration(configuration))


def test_names_alone_are_codecs_too():
    assert ConditionalCodec.from_configuration({"codecs": ["crc32c"]}) == CHECKSUM
    assert ConditionalCodec.from_configuration({"codecs": [{"name": "crc32c", "must_understand": True}]}) == CHECKSUM


@pytest.mark.parametrize(
    ("configuration", "field"),
    [
        ({}, "codecs"),
        ({"codecs": []}, "codecs"),
        ({"codecs": None}, "codecs"),
        ({"codecs": {"name": "gzip"}}, "codecs"),
        ({"codecs": [1]}, "codecs[0].name"),
        ({"codecs": [GZIP, {"configuration": {}}]}, "codecs[1].name"),
        ({"codecs": [{"name": "bytes"}]}, "codecs"),
        ({"codecs": [GZIP, {"name": "gzip", "configuration": {"level": 10}}]}, "codecs[1].configuration.level"),
        ({"codecs": [{"name": "gzip", "configuration": 5}]}, "codecs[0].configuration"),
        ({"codecs": [GZIP | {"level": 5}]}, "codecs[0].level"),
        ({"codecs": [{"name": "unheard-of"}]}, "codecs[0].name"),
        *(({"codecs": [GZIP], "header_bits": bits}, "header_bits") for bits in (0, 4, 12, -8, True, 8.0, "8", 2**20)),
        ({"codecs": [GZIP] * 9, "header_bits": 8}, "header_bits"),
        ({"codecs": [GZIP], "bits": 8}, "bits"),
    ],
)
def test_bad_configurations_name_the_key(configuration, field):
    with pytest.raises(MetadataError) as caught:
        ConditionalCodec.from_configuration(configuration)
    assert caught.value.field == f"configuration.{field}"


def test_unknown_codecs_keep_their_error():
    with pytest.raises(UnknownCodecError):
        ConditionalCodec.from_configuration({"codecs": ["unheard-of"]})


def test_nesting_without_end_is_a_metadata_error():
    configuration = {"codecs": [GZIP]}
    for _ in range(400):
        configuration = {"codecs": [{"name": "conditional", "configuration": configuration}]}
    with pytest.raises(MetadataError, match="nested too deeply"):
        ConditionalCodec.from_configuration(configuration)


@pytest.mark.parametrize("codecs", [(), [GzipCodec(1)], (BytesCodec(),), None])
def test_bad_arguments_name_the_key(codecs):
    with pytest.raises(MetadataError) as caught:
        ConditionalCodec(codecs)
    assert caught.value.field == "configuration.codecs"
