"""Damaged shards: an error that names the place, whichever way they are read, and nothing written over them.

A shard is read in three ways: as a whole, its inner chunks one by one; as a whole, small inner chunks in
batches; and in parts, by ranges of bytes.
"""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import strategies as ours
import zellige
from zellige.errors import CorruptChunkError, UnsupportedCodecError
from zellige.stores import LocalStore, MemoryStore, Store

EMPTY = 2**64 - 1
MiB = 1 << 20


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, **({"configuration": configuration} if configuration else {})}


LITTLE, BIG, CRC = codec("bytes", endian="little"), codec("bytes", endian="big"), codec("crc32c")
ZSTD = codec("zstd", level=1, checksum=True)

WAYS = {  # inner codecs that are decoded one by one, and such that are decoded in batches
    "one by one": {"plain": [BIG], "zstd": [BIG, ZSTD], "crc32c": [BIG, CRC]},
    "in batches": {"plain": [LITTLE], "zstd": [LITTLE, ZSTD], "crc32c": [LITTLE, CRC]},
}
ways = pytest.mark.parametrize("way", WAYS)
locations = pytest.mark.parametrize("location", ["start", "end"])

DATA = ours.counted((4, 6), "int16", start=300)
SPEC = {"shape": (4, 6), "chunks": (4, 6), "dtype": "int16"}
INNER = (2, 3)  # so that there are four of them, of 12 bytes


def sharding(chunk_shape: Any, codecs: list[Any], index: list[Any], location: str = "end") -> dict[str, Any]:
    options = {"chunk_shape": list(chunk_shape), "codecs": codecs, "index_codecs": index, "index_location": location}
    return codec("sharding_indexed", **options)


class Shard(NamedTuple):
    """An array of one shard in a store, and the bytes of that shard."""

    array: zellige.Array
    raw: bytes
    checksum: bool
    location: str

    @property
    def index_size(self) -> int:
        return 64 + 4 * self.checksum

    @property
    def index_at(self) -> int:
        return 0 if self.location == "start" else len(self.raw) - self.index_size

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(struct.iter_unpack("<QQ", self.raw[self.index_at : self.index_at + 64]))

    def with_entries(self, entries: list[tuple[int, int]]) -> bytes:
        index = b"".join(struct.pack("<QQ", *entry) for entry in entries)
        index += struct.pack("<I", google_crc32c.value(index)) if self.checksum else b""
        return self.raw[: self.index_at] + index + self.raw[self.index_at + self.index_size :]

    def put(self, raw: bytes) -> zellige.Array:
        """A handle that remembers nothing on an array with this shard."""
        self.array.store.put("c/0/0", raw)
        return zellige.open_array(self.array.store)


def shard(
    way: str = "in batches", inner: str = "plain", location: str = "end", checksum: bool = True, store: Any = None
) -> Shard:
    index = [LITTLE, *([CRC] if checksum else [])]
    serializer = sharding(INNER, WAYS[way][inner], index, location)
    array = zellige.create_array(store or MemoryStore(), **SPEC, serializer=serializer, compressors=None)
    array[...] = DATA
    return Shard(array, array.store.get("c/0/0"), checksum, location)


def number_of(place: tuple[int, int]) -> int:
    """The inner chunk that holds an element."""
    return place[0] // 2 * 2 + place[1] // 3


COORDS = ["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]
PLACES = list(np.ndindex(DATA.shape))
FIRST = [(0, 0), (0, 3), (2, 0), (2, 3)]
"""An element of each inner chunk."""


def check_reads(array: zellige.Array, bad: set[int], *, sound: bool = True) -> list[str]:
    """Whole reads and reads of these inner chunks fail, others give their values if the index is `sound`."""
    messages = []
    for index in [..., np.s_[:, ::2], *(FIRST[k] for k in sorted(bad))]:
        with pytest.raises(CorruptChunkError) as caught:
            array[index]
        assert (caught.value.coords, caught.value.key) == ((0, 0), "c/0/0")
        messages.append(str(caught.value))
    for k in {0, 1, 2, 3} - bad if sound else ():
        rows, columns = k // 2 * 2, k % 2 * 3
        region = np.s_[rows : rows + 2, columns : columns + 3]
        assert np.array_equal(array[region], DATA[region])
    return messages


# -- cut off --------------------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("inner", ["plain", "zstd", "crc32c"])
@pytest.mark.parametrize("kind", [MemoryStore, LocalStore])
def test_cut_off_at_every_length_with_the_index_at_the_end(tmp_path, way, inner, kind):
    given = shard(way, inner, store=kind(tmp_path) if kind is LocalStore else None)
    for length in range(len(given.raw)):
        check_reads(given.put(given.raw[:length]), {0, 1, 2, 3})


@ways
@pytest.mark.parametrize("inner", ["plain", "zstd", "crc32c"])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("kind", [MemoryStore, LocalStore])
def test_cut_off_at_every_length_with_the_index_at_the_start(tmp_path, way, inner, checksum, kind):
    given = shard(way, inner, "start", checksum, kind(tmp_path) if kind is LocalStore else None)
    for length in range(len(given.raw)):
        bad = {k for k, (offset, size) in enumerate(given.entries) if offset + size > length}
        messages = check_reads(given.put(given.raw[:length]), bad if length >= given.index_size else {0, 1, 2, 3})
        if length >= given.index_size:
            assert any(COORDS[k] in messages[0] for k in bad)
            assert all(COORDS[k] in message for k, message in zip(sorted(bad), messages[2:], strict=True))


@pytest.mark.parametrize("extra", [1, 16, 68, 5000])
def test_bytes_too_many(extra):
    # A gap at the end of the data is legal, so only the index can be wrong.
    given = shard(location="start")
    assert np.array_equal(given.put(given.raw + b"\xee" * extra)[...], DATA)
    given = shard(location="end")
    check_reads(given.put(given.raw + b"\xee" * extra), {0, 1, 2, 3})


# -- a damaged index ------------------------------------------------------------------------------


@ways
@locations
def test_every_bit_of_an_index_with_a_checksum(way, location):
    given = shard(way, "plain", location)
    for bit in range(8 * given.index_size):
        raw = bytearray(given.raw)
        raw[given.index_at + bit // 8] ^= 1 << bit % 8
        messages = check_reads(given.put(bytes(raw)), {0, 1, 2, 3}, sound=False)
        assert all("index" in message and "crc32c" in message for message in messages)


class Entry(NamedTuple):
    """What takes the place of an entry of the index; offsets count from the first inner chunk."""

    number: int
    offset: int
    length: int
    alone: bool = True
    """Whether the others can be read by ranges all the same, because the end of the shard is not known then."""


ENTRIES = {
    "an offset alone": Entry(1, 12, EMPTY, alone=False),
    "a length alone": Entry(2, EMPTY, 12, alone=False),
    "over the one before": Entry(1, 11, 12, alone=False),
    "over the one after": Entry(1, 13, 12, alone=False),
    "the same place": Entry(3, 24, 12, alone=False),
    "inside another": Entry(1, 2, 4, alone=False),
    "around another": Entry(2, 0, 48, alone=False),
    "one byte beyond": Entry(3, 200, 12),
    "a long way beyond": Entry(3, 2**40, 12),
    "as long as can be": Entry(3, 36, 2**62 - 2**10),
    "a length of 2**63": Entry(3, 36, 2**63),
    "a length of 2**64 - 2": Entry(3, 36, EMPTY - 1),
    "an offset of 2**63": Entry(0, 2**63, 12),
    "an offset of 2**63 - 1": Entry(0, 2**63 - 1, 12),
    "an offset of 2**64 - 2": Entry(0, EMPTY - 1, 12),
    "a sum that wraps around": Entry(0, EMPTY - 11, 12),
    "both 2**64 - 2": Entry(2, EMPTY - 1, EMPTY - 1),
}


def damaged(given: Shard, name: str) -> bytes:
    entry, entries = ENTRIES[name], given.entries
    begin = given.index_size if given.location == "start" else 0
    offset = entry.offset + begin if entry.offset < 2**40 else entry.offset
    entries[entry.number] = (offset, entry.length)
    return given.with_entries(entries)


@ways
@locations
@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("checksum", [False, True])
def test_entries_that_cannot_be_right(way, location, name, checksum):
    given, entry = shard(way, "plain", location, checksum), ENTRIES[name]
    array = given.put(damaged(given, name))
    tracemalloc.start()
    try:
        messages = check_reads(array, {entry.number}, sound=entry.alone and entry.offset + entry.length < 2**62)
        assert tracemalloc.get_traced_memory()[1] < MiB
    finally:
        tracemalloc.stop()
    culprits = {COORDS[entry.number]} if entry.alone else set(COORDS)  # of two that overlap, either
    if "alone" in name:
        culprits = {COORDS[entry.number]}
    for message in messages:
        assert any(f"inner chunk {coords}" in message for coords in culprits)


@pytest.mark.parametrize(
    "name", ["one byte beyond", "as long as can be", "an offset of 2**63 - 1", "a long way beyond"]
)
@locations
def test_entries_beyond_the_end_of_a_file(tmp_path, name, location):
    given = shard("in batches", "plain", location, False, LocalStore(tmp_path))
    messages = check_reads(given.put(damaged(given, name)), {ENTRIES[name].number}, sound=False)
    assert all(f"inner chunk {COORDS[ENTRIES[name].number]}" in message for message in messages)


@ways
@pytest.mark.parametrize("at", [0, 16, 63])
def test_an_entry_over_the_index_at_the_start(way, at):
    given = shard(way, "plain", "start", False)
    messages = check_reads(given.put(given.with_entries([(at, 12), *given.entries[1:]])), {0}, sound=False)
    assert all("inner chunk (0, 0) lies over the index" in message for message in messages)


@ways
def test_an_entry_over_the_index_at_the_end(way):
    # Only noticed where the end of the data is known; by ranges, the size of the shard is not.
    given = shard(way, "plain", "end", False)
    array = given.put(given.with_entries([*given.entries[:3], (40, 12)]))
    with pytest.raises(CorruptChunkError, match=r"inner chunk \(1, 1\) reaches beyond the end"):
        array[...]


@ways
@locations
@pytest.mark.parametrize("length", [0, 11])
def test_an_entry_that_is_too_short(way, location, length):
    given = shard(way, "plain", location, False)
    entries = given.entries
    entries[2] = (entries[2][0], length)
    messages = check_reads(given.put(given.with_entries(entries)), {2})
    assert all("inner chunk (1, 0)" in message for message in messages)


@pytest.mark.parametrize("index", [..., (2, 0)], ids=["whole", "range"])
def test_the_error_has_the_inner_coordinates(index):
    given = shard("in batches", "crc32c")
    raw = bytearray(given.raw)
    raw[given.entries[2][0]] ^= 1
    with pytest.raises(CorruptChunkError) as caught:
        given.put(bytes(raw))[index]
    assert caught.value.inner == (1, 0)


# -- damaged inner chunks -------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("inner", ["zstd", "crc32c"])
def test_every_bit_of_an_inner_chunk_with_a_checksum(way, inner):
    given = shard(way, inner)
    start, length = given.entries[2]
    harmless = {8 * 4 + 4, 8 * 4 + 5} if inner == "zstd" else set()  # of the frame's header: not used, and one segment
    for bit in range(8 * length):
        raw = bytearray(given.raw)
        raw[start + bit // 8] ^= 1 << bit % 8
        array = given.put(bytes(raw))
        if bit in harmless:
            assert np.array_equal(array[...], DATA)
            assert array[FIRST[2]] == DATA[FIRST[2]]
        else:
            assert all("inner chunk (1, 0)" in message for message in check_reads(array, {2}))


@ways
@pytest.mark.parametrize("inner", ["zstd", "crc32c"])
def test_the_first_of_several_damaged_inner_chunks_is_named(way, inner):
    given = shard(way, inner)
    raw = bytearray(given.raw)
    for k in (1, 3):
        raw[given.entries[k][0] + 2] ^= 0x10
    messages = check_reads(given.put(bytes(raw)), {1, 3})
    assert "inner chunk (0, 1)" in messages[0]
    assert "inner chunk (1, 1)" in messages[3]


def test_an_inner_chunk_that_needs_a_missing_codec_is_not_called_damaged():
    blosc = codec("blosc", cname="lz4", clevel=5, shuffle="noshuffle", typesize=2, blocksize=0)
    serializer = sharding((2, 500), [LITTLE, blosc], [LITTLE])
    options = {"serializer": serializer, "compressors": None}
    array = zellige.create_array(data=np.ones((4, 1000), "int16"), chunks=(4, 1000), **options)
    raw = bytearray(array.store.get("c/0/0"))
    raw[2] = raw[2] & 0x1F | 2 << 5  # the number of snappy
    array.store.put("c/0/0", raw)
    for index in (..., (0, 0)):
        with pytest.raises(UnsupportedCodecError, match=r"inner chunk \(0, 0\).*snappy") as caught:
            array[index]
        assert not isinstance(caught.value, CorruptChunkError)
    assert array[3, 999] == 1


def test_changing_an_inner_chunk_that_needs_a_missing_codec(monkeypatch):
    given = shard("in batches", "crc32c")

    def unsupported(*_: object) -> None:
        raise UnsupportedCodecError("not installed")

    monkeypatch.setattr("zellige.codecs.crc32c.Crc32cCodec.decode", unsupported)
    serializer = sharding(INNER, WAYS["in batches"]["crc32c"], [LITTLE])
    array = zellige.create_array(data=DATA, chunks=(4, 6), serializer=serializer, compressors=None)
    assert given.raw[:48] == array.store.get("c/0/0")[:48]
    with pytest.raises(UnsupportedCodecError):
        array[0, 0] = 1


# -- shards in shards -----------------------------------------------------------------------------


def nested(location: str, checksum: bool = False) -> tuple[zellige.Array, bytes]:
    """Two inner shards of two inner chunks of 4 bytes; each inner shard has 8 + 32 bytes."""
    index = [LITTLE, *([CRC] if checksum else [])]
    serializer = sharding((4,), [sharding((2,), [LITTLE], index, location)], [LITTLE])
    options = {"serializer": serializer, "compressors": None}
    array = zellige.create_array(data=ours.counted((8,), "int16"), chunks=(8,), **options)
    return array, array.store.get("c/0")


@locations
@pytest.mark.parametrize(
    ("offset", "length"), [(40, 4), (38, 4), (4, 37), (0, 2**63), (2**62, 4), (2**64 - 2, 4), (0, 2**64 - 1)]
)
def test_an_inner_shard_whose_entries_leave_it(location, offset, length):
    # The bytes there are those of its neighbour, so the store alone would not notice.
    array, raw = nested(location)
    at = 16 if location == "start" else 24
    damaged = raw[:at] + struct.pack("<QQ", offset, length) + raw[at + 16 :]
    array.store.put("c/0", damaged)
    for index in (..., np.s_[:5], 2, np.s_[1:3]):
        with pytest.raises(CorruptChunkError, match=r"inner chunk \(0,\).*inner chunk \(1,\)"):
            zellige.open_array(array.store)[index]
    assert zellige.open_array(array.store)[5] == 6


@locations
@pytest.mark.parametrize("length", [0, 1, 31])
def test_an_inner_shard_shorter_than_its_index(location, length):
    array, raw = nested(location)
    damaged = raw[:80] + struct.pack("<QQ", 0, length) + raw[96:]
    array.store.put("c/0", damaged)
    for index in (..., 0, 2, np.s_[1:7]):
        with pytest.raises(CorruptChunkError, match=r"inner chunk \(0,\)"):
            zellige.open_array(array.store)[index]
    assert zellige.open_array(array.store)[5] == 6


@locations
def test_every_bit_of_the_index_of_an_inner_shard(location):
    array, raw = nested(location, checksum=True)
    begin = 44 if location == "start" else 52
    for bit in range(8 * 36):
        damaged = bytearray(raw)
        damaged[begin + bit // 8] ^= 1 << bit % 8
        array.store.put("c/0", damaged)
        for index in (..., np.s_[3:5]):
            with pytest.raises(CorruptChunkError, match=r"inner chunk \(1,\).*index.*crc32c"):
                array[index]
        assert array[:4].tolist() == [1, 2, 3, 4]


# -- writing over damage --------------------------------------------------------------------------


def outcome(action: Any) -> type[BaseException] | None:
    try:
        action()
    except CorruptChunkError:
        return CorruptChunkError
    return None


DAMAGE = {  # bytes, and the inner chunks that cannot be read
    "cut off": (lambda given: given.raw[:-1], {0, 1, 2, 3}),
    "empty": (lambda given: b"", {0, 1, 2, 3}),
    "index": (lambda given: given.raw[:-9] + b"\xff" + given.raw[-8:], {0, 1, 2, 3}),
    "inner chunk": (lambda given: given.raw[:30] + bytes([given.raw[30] ^ 1]) + given.raw[31:], {1}),
}


@ways
@pytest.mark.parametrize("name", DAMAGE)
def test_a_part_is_not_written_over_damage_and_a_whole_shard_repairs_it(way, name):
    given = shard(way, "crc32c")
    make, bad = DAMAGE[name]
    raw = make(given)
    for k in range(4):
        array = given.put(raw)
        failed = outcome(lambda array=array, k=k: array.__setitem__(FIRST[k], -1))
        assert (failed is CorruptChunkError) == (k in bad)
        if failed:
            assert given.array.store.get("c/0/0") == raw
        else:
            assert array[FIRST[k]] == -1
    array = given.put(raw)
    assert outcome(lambda: array.__setitem__(np.s_[1:3, :], 0)) is CorruptChunkError
    assert given.array.store.get("c/0/0") == raw
    array[...] = DATA
    assert given.array.store.get("c/0/0") == given.raw
    assert np.array_equal(array[...], DATA)


def test_a_whole_inner_chunk_repairs_its_damage():
    given = shard("in batches", "crc32c")
    array = given.put(DAMAGE["inner chunk"][0](given))
    array[:2, 3:] = DATA[:2, 3:]
    assert given.array.store.get("c/0/0") == given.raw


# -- any bytes ------------------------------------------------------------------------------------


def outcome_of(store: Store, index: Any) -> np.ndarray | None:
    try:
        return zellige.open_array(store)[index]
    except CorruptChunkError:
        return None


@ours.examples(0.08)
@given(st.data(), st.sampled_from(["start", "end"]), st.sampled_from(["one by one", "in batches", "nested"]))
def test_any_bytes_give_values_or_an_error(data, location, way):
    if way == "nested":
        array, raw = nested(location)
        key, indexes = "c/0", [..., 3, np.s_[1:7]]
    else:
        given = shard(way, data.draw(st.sampled_from(["plain", "zstd"])), location, False)
        array, raw, key, indexes = given.array, given.raw, "c/0/0", [..., (3, 2), np.s_[1:3, 1:]]
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 8))
        bits = data.draw(st.binary(min_size=1, max_size=8) | st.integers(0, 120).map(lambda n: struct.pack("<Q", n)))
        changed[at : at + len(bits)] = bits
    array.store.put(key, changed[: data.draw(st.just(len(changed)) | st.integers(0, len(changed)))])
    model = np.empty(array.shape, array.dtype)
    for index in indexes:
        found = outcome_of(array.store, index)
        assert found is None or found.shape == model[index].shape


@given(st.binary(max_size=200))
@example(b"\xff" * 64)
def test_arbitrary_bytes_are_no_surprise(raw):
    given = shard("in batches", "plain", "end", False)
    given.array.store.put("c/0/0", raw)
    found = outcome_of(given.array.store, ...)
    if raw == b"\xff" * 64:
        assert np.array_equal(found, np.zeros((4, 6)))
    elif len(raw) < 64:
        assert found is None
