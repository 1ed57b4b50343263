"""Of a zstd chunk without a checksum only the blocks up to the last element that is wanted are decoded."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import zellige
from zellige import kernel
from zellige.codecs import native
from zellige.codecs.zstd import ZstdCodec

BLOCK = 128 << 10

pytestmark = pytest.mark.skipif(native.zstd() is None, reason="this build of numcodecs does not show libzstd")


@pytest.fixture(autouse=True)
def plain_path(monkeypatch):
    """The kernel decodes whole chunks."""
    monkeypatch.setattr(kernel, "native", None)


def noise(size: int, most: int = 9) -> bytes:
    return np.random.default_rng(size).integers(0, most, size, np.uint8).tobytes()


def mixed(size: int) -> bytes:
    """Blocks that are compressed, stored as they are, and runs."""
    parts = [noise(size // 3), noise(size // 3, 256), bytes(size)]
    return b"".join(parts)[:size]


def start(raw: bytes, size: int, wanted: int) -> bytes | None:
    """What is found, while the encoded bytes stay as they were."""
    mine = bytearray(raw)
    found = ZstdCodec(1, False).decode_start(memoryview(mine), size, wanted)
    assert mine == raw
    return None if found is None else bytes(found)


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from([noise, mixed, bytes]),
    st.integers(BLOCK, 9 * BLOCK),
    st.integers(-5, 22),
    st.floats(0, 1),
)
def test_the_start_of_a_value_is_as_in_all_of_it(make, size, level, share):
    value, wanted = make(size), max(1, int(share * size))
    found = start(bytes(ZstdCodec(level, False).encode(value)), size, wanted)
    assert found is None or (len(found) >= wanted and value.startswith(found))


@pytest.mark.parametrize("level", [1, 3, 9])
@pytest.mark.parametrize("make", [noise, mixed])
def test_no_more_blocks_than_needed(level, make):
    value = make(8 * BLOCK)
    raw = bytes(ZstdCodec(level, False).encode(value))
    for blocks in range(1, 8):
        found = start(raw, len(value), blocks * BLOCK - 5)
        assert found is not None
        assert len(found) < len(value)
        assert value.startswith(found)
    assert len(start(raw, len(value), 1) or b"") <= BLOCK
    assert start(raw, len(value), 7 * BLOCK + 1) is None  # that takes all of them


def other_frames() -> dict[str, bytes]:
    value = noise(4 * BLOCK)
    whole = bytes(ZstdCodec(1, False).encode(value))
    unsized = zstandard.ZstdCompressor(level=1, write_checksum=False, write_content_size=False).compress(value)
    return {
        "checksum": bytes(ZstdCodec(1, True).encode(value)),
        "no size": unsized,
        "another size": bytes(ZstdCodec(1, False).encode(value + b"x")),
        "several frames": bytes(ZstdCodec(1, False).encode(value[:BLOCK])) + whole,
        "another frame behind": whole + bytes(ZstdCodec(1, False).encode(b"x")),
        "skippable first": bytes.fromhex("502a4d1800000000") + whole,
        "nothing": b"",
        "a magic number": whole[:4],
        "a header": whole[:7],
        "a cut header of a block": whole[:11],
        "no frame": b"x" * 1000,
    }


@pytest.mark.parametrize("kind", list(other_frames()))
def test_other_bytes_are_left_to_those_who_look_closer(kind):
    assert start(other_frames()[kind], 4 * BLOCK, 10) is None


def test_bytes_that_cannot_be_changed_are_decoded_whole():
    value = noise(4 * BLOCK)
    raw = bytes(ZstdCodec(1, False).encode(value))
    assert start(raw, len(value), 10) is not None
    assert ZstdCodec(1, False).decode_start(raw, len(value), 10) is None
    assert ZstdCodec(1, False).decode_start(memoryview(raw), len(value), 10) is None


def test_damaged_bytes_give_no_more_than_there_is():
    value = noise(4 * BLOCK)
    raw, chosen = bytes(ZstdCodec(1, False).encode(value)), np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(raw)
        changed[int(chosen.integers(len(raw) if chosen.random() < 0.5 else 40))] ^= int(chosen.integers(1, 256))
        found = start(bytes(changed), len(value), 2 * BLOCK)
        assert found is None or 2 * BLOCK <= len(found) <= len(value)


# -- arrays ---------------------------------------------------------------------------------------

VALUES = np.random.default_rng(3).integers(0, 999, (96, 70, 80)).astype("int16")
CODEC = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


@pytest.fixture(scope="module")
def array(tmp_path_factory: pytest.TempPathFactory) -> zellige.Array:
    place = tmp_path_factory.mktemp("start") / "a"
    array = zellige.create_array(place, shape=VALUES.shape, chunks=[[40, 56], 70, 80], dtype="int16", compressors=CODEC)
    array[...] = VALUES
    return array


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_reading_parts_equals_numpy(array, data):
    def picks(n: int) -> st.SearchStrategy[list[int]]:
        return st.lists(st.integers(-n, n - 1), min_size=1, max_size=12)

    n = VALUES.shape
    index = data.draw(
        st.one_of(
            st.tuples(*(st.integers(-k, k - 1) for k in n)),
            st.tuples(st.slices(n[0]), st.slices(n[1]), st.slices(n[2])),
        )
    )
    if all(not isinstance(pick, slice) or pick.step is None or pick.step > 0 for pick in index):
        np.testing.assert_array_equal(array[index], VALUES[index])
    mesh = tuple(data.draw(picks(k)) for k in n)
    np.testing.assert_array_equal(array.oindex[mesh], VALUES[np.ix_(*mesh)])
    count = data.draw(st.integers(1, 10))
    points = tuple(data.draw(st.lists(st.integers(0, k - 1), min_size=count, max_size=count)) for k in n)
    np.testing.assert_array_equal(array.vindex[points], VALUES[points])


@pytest.mark.parametrize(("plane", "most"), [(0, 2), (20, 3), (39, 4), (40, 2), (95, 5)])
def test_only_the_blocks_up_to_an_element_are_decoded(array, monkeypatch, plane, most):
    decoded: list[int] = []
    decompress = native.Zstd.decompress

    def counted(self: native.Zstd, raw: object, out: memoryview) -> int:
        decoded.append(decompress(self, raw, out))  # type: ignore[arg-type]
        return decoded[-1]

    monkeypatch.setattr(native.Zstd, "decompress", counted)
    assert array[plane, 1, 2] == VALUES[plane, 1, 2]
    assert 0 < sum(decoded) <= most * BLOCK


def test_a_value_of_another_size_is_an_error_also_for_its_beginning(tmp_path):
    array = zellige.create_array(
        tmp_path / "a", shape=(64, 64, 64), chunks=(64, 64, 64), dtype="int16", compressors=CODEC
    )
    array[...] = 1
    longer = bytes(ZstdCodec(1, False).encode(np.ones(64**3 + 1, "<i2").tobytes()))
    array.store.put("c/0/0/0", longer)
    with pytest.raises(zellige.errors.CorruptChunkError):
        array[0, 0, 0]
