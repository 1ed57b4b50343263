"""The kernel: the same values as numpy and as the plain path, whatever is stored, and nothing trusted."""

from __future__ import annotations

import gzip
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from zellige import kernel
from zellige.io import plan, read, select
from zellige.kernel.program import inner_shape, program_of

if kernel.native is None:
    pytest.skip("the kernel was not built, or is off: there is no C compiler here", allow_module_level=True)

CHAINS: dict[str, Any] = {
    "raw": None,
    "zstd": {"name": "zstd", "configuration": {"level": 1, "checksum": True}},
    "zstd without checksum": {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
    "gzip": {"name": "gzip", "configuration": {"level": 1}},
    "gzip by zlib": {"name": "gzip", "configuration": {"level": 6}},
    "blosc": "blosc",
    "blosc lz4 bits": {
        "name": "blosc",
        "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle", "typesize": 4, "blocksize": 0},
    },
    "zlib": {"name": "numcodecs.zlib", "configuration": {"level": 1}},
    "lz4": {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}},
    "crc32c": {"name": "crc32c"},
    "fletcher32": {"name": "numcodecs.fletcher32", "configuration": {}},
    "shuffle and zstd": [
        {"name": "numcodecs.shuffle", "configuration": {}},
        {"name": "zstd", "configuration": {"level": 1}},
    ],
    "crc32c, zstd, crc32c": [{"name": "crc32c"}, {"name": "zstd", "configuration": {"level": 1}}, {"name": "crc32c"}],
}


def chunks_read_by_the_plain_path(monkeypatch) -> list[Any]:
    """What the kernel leaves to the plain path from now on."""
    seen: list[Any] = []
    plain = read.read_chunk

    def watched(chunks: Any, out: Any, copy: Any) -> None:
        seen.append(copy.coords)
        plain(chunks, out, copy)

    monkeypatch.setattr(read, "read_chunk", watched)
    return seen


def big(dtype: str) -> Any:
    """How elements are stored: from the highest byte on, if the type says so."""
    return {"name": "bytes", "configuration": {"endian": "big"}} if dtype[0] == ">" else "auto"


def without_kernel(array: zellige.Array) -> zellige.Array:
    """The same array, read by the plain path."""
    other = zellige.open_array(array.store, path=array.path)
    other._chunks._files = None
    return other


# -- the same values --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [None, [1, 0]], ids=["C", "transposed"])
@pytest.mark.parametrize("dtype", ["int16", ">f8", "bool", "complex64", ">c16", "datetime64[s]", "S3", "uint8"])
@pytest.mark.parametrize("chain", CHAINS)
def test_the_kernel_reads_every_chain_and_type_without_help(tmp_path, monkeypatch, chain, dtype, order):
    values = (np.arange(70 * 33).reshape(70, 33) % 251).astype(dtype)
    filters = None if order is None else [{"name": "transpose", "configuration": {"order": order}}]
    made = {"chunks": [[1, 40, 29], 8], "compressors": CHAINS[chain], "filters": filters, "serializer": big(dtype)}
    zellige.create_array(tmp_path / "a", data=values, **made)
    left = chunks_read_by_the_plain_path(monkeypatch)
    found = zellige.open_array(tmp_path / "a")
    for index in (..., (3, 4), (slice(3, 60, 7), slice(2, 30)), ([3, 69, 1, 1], slice(None)), ([3, 69], [32, 0])):
        np.testing.assert_array_equal(found[index], values[index])
    assert left == []


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("chain", CHAINS)
def test_the_kernel_reads_shards_without_help(tmp_path, monkeypatch, chain, location):
    values = np.arange(70 * 33, dtype="int32").reshape(70, 33)
    values[10:30] = 0  # inner chunks that are not stored
    inner = zellige.create_array({}, shape=8, chunks=8, dtype="int32", compressors=CHAINS[chain])
    codecs = (inner.serializer, *inner.compressors)
    shard = zellige.codecs.ShardingCodec((4, 8), codecs, index_location=location)
    zellige.create_array(tmp_path / "a", data=values, chunks=[[16, 32, 32], 24], serializer=shard, compressors=None)
    left = chunks_read_by_the_plain_path(monkeypatch)
    found = zellige.open_array(tmp_path / "a")
    for index in (..., (69, 4), (slice(3, 60, 7), slice(2, 30)), ([3, 69, 1, 1], slice(None)), ([3, 69], [32, 0])):
        np.testing.assert_array_equal(found[index], values[index])
    assert left == []


def rearranged(raw: bytes, count: int, order: list[int], gap: int) -> bytes:
    """A shard with its inner chunks in another order, and bytes between them that belong to none."""
    index = np.frombuffer(raw[-16 * count - 4 : -4], "<u8").reshape(count, 2).copy()
    body = b"x" * gap
    for number in order:
        offset, length = map(int, index[number])
        if offset != 2**64 - 1:
            index[number, 0] = len(body)
            body += raw[offset : offset + length] + b"x" * gap
    table = index.tobytes()
    return body + table + struct.pack("<I", kernel.native.crc32c(table))


@pytest.mark.parametrize("gap", [0, 3])
def test_the_kernel_reads_shards_whose_inner_chunks_lie_in_any_order(tmp_path, monkeypatch, gap):
    """As zarr-python stores them, and as writers that replace inner chunks leave them."""
    values = np.arange(48 * 32, dtype="int32").reshape(48, 32)
    values[8:16] = 0  # inner chunks that are not stored
    zellige.create_array(tmp_path / "a", data=values, chunks=(4, 8), shards=(24, 16))
    for number, path in enumerate(path for path in (tmp_path / "a" / "c").rglob("*") if path.is_file()):
        order = random.Random(number).sample(range(12), 12)
        path.write_bytes(rearranged(path.read_bytes(), 12, order, gap))
    left = chunks_read_by_the_plain_path(monkeypatch)
    found = zellige.open_array(tmp_path / "a")
    assert found._prepare().read((30, 20)) == values[30, 20]
    for index in (..., (47, 4), (slice(3, 40, 7), slice(2, 30)), ([3, 47, 1, 1], slice(None)), ([3, 40], [31, 0])):
        np.testing.assert_array_equal(found[index], values[index])
    assert left == []


def test_inner_chunks_that_lie_over_another_in_any_order_are_refused(tmp_path):
    values = np.arange(12 * 10, dtype="int32").reshape(12, 10)
    made = {"compressors": None, "chunks": (1, 10), "shards": (12, 10)}
    zellige.create_array(tmp_path / "a", data=values, **made)
    path = tmp_path / "a" / "c" / "0" / "0"
    raw = path.read_bytes()
    for number in range(10):
        order = random.Random(number).sample(range(12), 12)
        path.write_bytes(rearranged(raw, 12, order, 0))
        np.testing.assert_array_equal(zellige.open_array(tmp_path / "a")[...], values)
        changed = bytearray(rearranged(raw, 12, order, 0))
        at = len(changed) - 4 - 16 * 12 + 16 * order[5]  # the offset of one in the middle
        changed[at : at + 8] = struct.pack("<q", struct.unpack("<q", changed[at : at + 8])[0] - 4)
        table = bytes(changed[-4 - 16 * 12 : -4])
        changed[-4:] = struct.pack("<I", kernel.native.crc32c(table))
        path.write_bytes(changed)
        with pytest.raises(zellige.errors.CorruptChunkError, match="lies over another inner chunk"):
            zellige.open_array(tmp_path / "a")[...]


@st.composite
def stored(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """An array, and how it is stored."""
    shape = tuple(draw(st.lists(st.integers(1, 12), max_size=3)))
    dtype = draw(st.sampled_from([*ours.CORE_DTYPES, ">i2", ">f4", ">c8", "datetime64[ms]"]))
    values = ours.counted(shape, "int64").astype(dtype)
    made: dict[str, Any] = {"compressors": draw(st.sampled_from([*CHAINS.values()])), "serializer": big(dtype)}
    if shape and draw(st.booleans()):
        inner = tuple(draw(st.integers(1, 4)) for _ in shape)
        made |= {"chunks": inner, "shards": tuple(n * draw(st.integers(1, 4)) for n in inner)}
    else:
        made["chunks"] = draw(ours.grids(shape)).argument
        made["order"] = draw(st.sampled_from("CF"))
    return values, made


@given(stored(), st.data())
@ours.examples(0.25)
def test_kernel_plain_path_and_numpy_agree(case, data):
    values, made = case
    with tempfile.TemporaryDirectory() as folder:
        try:
            array = zellige.create_array(f"{folder}/a", data=values, **made)
        except (ValueError, NotImplementedError):  # a codec that does not take this type
            return
        plain = without_kernel(array)
        fancy = data.draw(ours.mixed(values.shape))
        try:
            expected, _ = values[fancy], plain[fancy]
        except IndexError:  # numpy lets some pass where nothing is picked
            return
        for index, wanted in ((..., values), (fancy, expected)):
            array._reader = False  # tables, not what test_reader is about
            found, slow = array[index], plain[index]
            assert found.dtype == slow.dtype
            assert found.tobytes() == wanted.astype(found.dtype).tobytes() == slow.tobytes()


def test_missing_chunks_are_filled_or_named(tmp_path):
    array = zellige.create_array(tmp_path / "a", shape=(6, 9), chunks=(2, 3), dtype="int16", fill_value=-7)
    array[2:4, 3:6] = 5
    expected = np.full((6, 9), -7, "int16")
    expected[2:4, 3:6] = 5
    np.testing.assert_array_equal(zellige.open_array(tmp_path / "a")[...], expected)
    strict = array.with_config({"read_missing_chunks": False})
    np.testing.assert_array_equal(strict[2:4, 3:6], expected[2:4, 3:6])
    with pytest.raises(zellige.errors.ChunkNotFoundError, match=r"chunk \(0, 0\)"):
        strict[...]


@pytest.mark.parametrize("at", range(3))
def test_a_damaged_chunk_is_named_and_the_others_are_read(tmp_path, at):
    values = np.arange(30, dtype="int32")
    array = zellige.create_array(tmp_path / "a", data=values, chunks=10)
    file = tmp_path / f"a/c/{at}"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(zellige.errors.CorruptChunkError) as found:
        array[...]
    assert found.value.coords == (at,)
    good = [k for k in range(30) if k // 10 != at]
    np.testing.assert_array_equal(array[good], values[good])


@pytest.mark.parametrize("change", [b"", b"\0", None], ids=["cut", "longer", "empty"])
def test_an_uncompressed_chunk_of_another_length_is_damage_also_for_one_element(tmp_path, change):
    array = zellige.create_array(tmp_path / "a", data=np.arange(10_000, dtype="int64"), chunks=10_000, compressors=None)
    file = tmp_path / "a/c/0"
    raw = file.read_bytes()
    file.write_bytes(b"" if change is None else raw + change if change else raw[:-8])
    with pytest.raises(zellige.errors.CorruptChunkError):
        array[0]


def test_links_are_left_to_the_plain_path_which_knows_where_they_may_lead(tmp_path):
    array = zellige.create_array(tmp_path / "s/a", data=np.arange(4), chunks=2)
    outside = tmp_path / "outside"
    os.rename(tmp_path / "s/a/c", outside)
    (tmp_path / "s/a/c").symlink_to(outside)
    with pytest.raises(zellige.errors.UnsafeLinkError):
        zellige.open_array(tmp_path / "s/a")[...]
    followed = zellige.open_array(zellige.LocalStore(tmp_path / "s/a", links="anywhere"))
    np.testing.assert_array_equal(followed[...], array.dtype.type([0, 1, 2, 3]))


# -- work is counted ----------------------------------------------------------------------------------


def python_calls(action: Any) -> int:
    """How many Python functions an action calls, after it was done once."""
    action()
    count = 0

    def watch(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_ten_thousand_chunks_take_as_many_calls_as_one_once_they_are_planned(tmp_path):
    calls = []
    for side in (1, 100):
        path = tmp_path / str(side)
        array = zellige.create_array(path, data=np.zeros((2 * side, 2 * side), "u1") + 1, chunks=(2, 2))
        wanted = plan.plan_for(select.basic(..., array.shape), array.grid)
        out = np.empty(array.shape, "u1")
        calls.append(python_calls(lambda array=array, wanted=wanted, out=out: read.read(array._chunks, wanted, out)))
        assert out.all()
    assert calls[0] == calls[1]


# -- several threads, processes, interrupts -----------------------------------------------------------


def test_many_threads_read_at_once(tmp_path):
    values = np.arange(200 * 100, dtype="int32").reshape(200, 100)
    array = zellige.create_array(tmp_path / "a", data=values, chunks=(7, 9))
    wrong: list[int] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(30):
            low = chance.randrange(190)
            if not np.array_equal(array[low : low + 50, 3:], values[low : low + 50, 3:]):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(k,)) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


FORKS = """
import os, sys, threading, warnings
import numpy as np, zellige
warnings.simplefilter("ignore")
array = zellige.open_array(sys.argv[1])
array[...]  # what is imported on first use is there
stop = threading.Event()
def read():
    while not stop.is_set():
        assert array[...].sum() == 8 * 10**6
with zellige.config.set({"threading.max_workers": 4}):
    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads: thread.start()
    for _ in range(20):
        child = os.fork()
        if not child:
            os._exit(0 if array[...].sum() == 8 * 10**6 else 3)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads: thread.join()
print("fine")
"""


@pytest.mark.skipif("ZELLIGE_SANITIZED" in os.environ, reason="AddressSanitizer may hang in a forked child")
@pytest.mark.parametrize("layout", [{"chunks": 50}, {"chunks": 10, "shards": 100}], ids=["chunks", "shards"])
def test_forks_while_calls_run(tmp_path, layout):
    zellige.create_array(tmp_path / "a", data=np.full((200, 200, 200), 1, "u1"), **layout)
    ran = subprocess.run([sys.executable, "-c", FORKS, tmp_path / "a"], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("fine\n", 0), ran.stderr


INTERRUPTED = """
import signal, sys
import numpy as np, zellige
array = zellige.open_array(sys.argv[1])
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.5)  # again: one that comes while memory is freed is lost
try:
    while True:
        array[...]
except KeyboardInterrupt:
    signal.setitimer(signal.ITIMER_REAL, 0)
assert (array[...] == 1).all()
print("fine")
"""


def test_an_interrupt_stops_a_read_and_leaves_everything_usable(tmp_path):
    zellige.create_array(tmp_path / "a", data=np.ones((300, 300, 100)), chunks=10, shards=100)
    for _ in range(3):
        ran = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, tmp_path / "a"], capture_output=True, text=True, check=False
        )
        assert (ran.stdout, ran.returncode) == ("fine\n", 0), ran.stderr


# -- nothing is trusted -------------------------------------------------------------------------------


class Call:
    """The arguments of a call that reads an array, and what it gives."""

    def __init__(self, folder: Path, **made: Any) -> None:
        self.values = np.arange(16 * 12, dtype="int32").reshape(16, 12) + 1
        self.array = zellige.create_array(folder / "a", data=self.values, **made)
        chunks = self.array._chunks
        wanted = plan.plan_for(select.basic((slice(1, 15), [0, 11, 5]), self.array.shape), self.array.grid)
        self.expected = self.values[1:15, [0, 11, 5]]
        inner = inner_shape(chunks.chain)
        self.table = plan.table(wanted) if inner is None else plan.shard_table(wanted, inner)
        self.code = program_of(chunks.chain)
        self.prepared = chunks.files
        self.count = len(wanted)

    def run(self, table: Any, code: bytes) -> int | None:
        """How many items were left; None if the arguments were refused."""
        guard = np.full((16, 5), -1, "int32")
        work = guard[1:15, 1:4]
        try:
            given = (self.prepared.base, self.prepared.pieces, False, table, code, work, bytearray(1 << 16), True, 2)
            left = kernel.native.read_files(*given)
        except (ValueError, TypeError, BufferError):
            left = None
        outside = guard.copy()
        outside[1:15, 1:4] = -1
        assert (outside == -1).all(), "bytes beside the work array were written"
        self.found = work
        return left


HOSTILE = [0, 1, -1, 2, 13, 17, 1 << 31, 1 << 46, 1 << 62, 2**63 - 1, -(2**63)]
LAYOUTS = {
    "raw": {"chunks": (5, 4), "compressors": None},
    "zstd": {"chunks": (5, 4), "compressors": "zstd"},
    "shards": {"chunks": (2, 2), "shards": (8, 6), "compressors": "zstd"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_number_of_a_table_is_checked(tmp_path, layout):
    call = Call(tmp_path, **LAYOUTS[layout])
    assert call.run(call.table, call.code) == 0
    np.testing.assert_array_equal(call.found, call.expected)
    refused = 0
    for axis, (rows, axes, positions, places) in enumerate(call.table):
        for which, numbers in ((0, rows), (2, positions), (3, places)):
            for at in range(0 if numbers is None else len(numbers)):
                for value in HOSTILE:
                    changed = array("q", numbers)
                    changed[at] = value
                    entry = [rows, axes, positions, places]
                    entry[which] = changed
                    table = (*call.table[:axis], tuple(entry), *call.table[axis + 1 :])
                    refused += call.run(table, call.code) is None
    assert refused > 100


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_number_of_a_program_is_checked(tmp_path, layout):
    call = Call(tmp_path, **LAYOUTS[layout])
    for at in range(0, len(call.code) - 4, 8):
        for value in HOSTILE:
            call.run(call.table, call.code[:at] + struct.pack("=q", value) + call.code[at + 8 :])
    for end in range(len(call.code)):
        assert call.run(call.table, call.code[:end]) is None
    assert call.run(call.table, call.code + b"\0") is None


def test_every_entry_of_an_index_is_checked(tmp_path):
    call = Call(tmp_path, **LAYOUTS["shards"])
    file = tmp_path / "a/c/0/0"
    raw = file.read_bytes()
    index = len(raw) - 16 * 12 - 4
    for at in range(index, len(raw) - 4, 8):
        for value in HOSTILE:
            body = bytearray(raw[:-4])
            body[at : at + 8] = struct.pack("=q", value)
            sum_ = kernel.native.crc32c(bytes(body[index:]))
            file.write_bytes(bytes(body) + struct.pack("<I", sum_))
            left = call.run(call.table, call.code)
            assert left or np.array_equal(call.found, call.expected) or value == -1


@pytest.mark.parametrize("chain", CHAINS)
def test_damaged_bytes_never_give_another_value_where_a_checksum_tells(tmp_path, chain):
    values = np.arange(3000, dtype="int32") % 77
    array = zellige.create_array(tmp_path / "a", data=values, chunks=3000, compressors=CHAINS[chain])
    file, chance = tmp_path / "a/c/0", random.Random(4)
    raw = file.read_bytes()
    tells = any(word in chain for word in ("crc32c", "fletcher", "gzip", "zlib")) or chain == "zstd"
    for _ in range(150):
        broken = bytearray(raw)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        broken = broken[: chance.choice([len(broken), chance.randrange(len(broken))])]
        file.write_bytes(broken)
        try:
            found = array[...]
        except zellige.errors.CorruptChunkError:
            continue
        assert not tells or np.array_equal(found, values)


def unsized(value: bytes, checksum: bool = True) -> bytes:
    """A frame that does not say how long its content is."""
    parameters = zstandard.ZstdCompressionParameters(write_content_size=False, write_checksum=checksum)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(value)


def frame(value: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(value)


SKIPPED = struct.pack("<II", 0x184D2A50, 3) + b"xyz"
CONTENT = (np.arange(3000, dtype="int32") % 77).tobytes()
OTHERS: dict[str, tuple[str, bytes]] = {
    "without size": ("zstd", unsized(CONTENT)),
    "without size and checksum": ("zstd", unsized(CONTENT, False)),
    "two frames": ("zstd", frame(CONTENT[:99]) + frame(CONTENT[99:])),
    "two frames, one without size": ("zstd", frame(CONTENT[:99]) + unsized(CONTENT[99:])),
    "skippable first": ("zstd", SKIPPED + frame(CONTENT)),
    "skippable last": ("zstd", frame(CONTENT) + SKIPPED),
    "an empty frame first": ("zstd", frame(b"") + frame(CONTENT)),
    "two members": ("gzip", gzip.compress(CONTENT[:99]) + gzip.compress(CONTENT[99:])),
    "an empty member last": ("gzip", gzip.compress(CONTENT) + gzip.compress(b"")),
    "stored blocks": ("gzip", gzip.compress(CONTENT, 0)),
    "stored, of zlib": ("zlib", zlib.compress(CONTENT, 0)),
}
CHANGES: dict[str, Any] = {
    "as it is": lambda raw: raw,
    "cut": lambda raw: raw[:-1],
    "cut in the middle": lambda raw: raw[: len(raw) // 2],
    "empty": lambda _: b"",
    "one byte": lambda raw: raw[:1],
    "a zero at the end": lambda raw: raw + b"\0",
    "junk at the end": lambda raw: raw + b"junk" * 9,
    "twice": lambda raw: raw + raw,
    "zeros": lambda raw: bytes(len(raw)),
}


def outcome(array: zellige.Array) -> bytes | str:
    try:
        return bytes(array[...].tobytes())
    except zellige.errors.CorruptChunkError as error:
        return str(error)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [*OTHERS, *CHAINS])
def test_bytes_of_other_writers_and_changed_ones_are_what_they_are_to_the_plain_path(tmp_path, kind, change):
    values = np.frombuffer(CONTENT, "int32")
    compressors = CHAINS[OTHERS[kind][0] if kind in OTHERS else kind]
    array = zellige.create_array(tmp_path / "a", data=values, chunks=3000, compressors=compressors)
    file = tmp_path / "a/c/0"
    file.write_bytes(CHANGES[change](OTHERS[kind][1] if kind in OTHERS else file.read_bytes()))
    expected = outcome(without_kernel(array))
    assert outcome(array) == expected
    assert change != "as it is" or expected == CONTENT


@pytest.mark.parametrize("kind", ["zstd", "two frames", "without size"])
def test_chunks_of_other_writers_are_read_by_the_kernel(tmp_path, monkeypatch, kind):
    array = zellige.create_array(tmp_path / "a", data=np.frombuffer(CONTENT, "int32"), chunks=3000)
    if kind in OTHERS:
        (tmp_path / "a/c/0").write_bytes(OTHERS[kind][1])
    left = chunks_read_by_the_plain_path(monkeypatch)
    assert array[...].tobytes() == CONTENT
    assert left == []


# -- with and without ---------------------------------------------------------------------------------

WORKS = "import zellige; print(zellige.kernel.info()['works'], zellige.array([1, 2], chunks=1)[...].tolist())"


@pytest.mark.parametrize(("setting", "works"), [("off", False), ("0", False), ("", True)])
def test_the_kernel_can_be_turned_off(setting, works):
    environment = {**os.environ, "ZELLIGE_KERNEL": setting}
    ran = subprocess.run([sys.executable, "-c", WORKS], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{works} [1, 2]\n"


def test_a_kernel_that_is_required_and_missing_is_named_with_the_remedy():
    code = "import sys; sys.modules['zellige.kernel._native'] = None\n" + WORKS
    environment = {**os.environ, "ZELLIGE_KERNEL": "", "ZELLIGE_REQUIRE_KERNEL": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "ZELLIGE_REQUIRE_KERNEL=1, but the kernel was not built" in ran.stderr
    assert "unset the variable" in ran.stderr
    environment["ZELLIGE_REQUIRE_KERNEL"] = ""
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "False [1, 2]\n"


def test_the_checksum_is_that_of_others():
    import google_crc32c

    for size in (0, 1, 7, 8, 9, 100, 4097):
        value = os.urandom(size)
        assert kernel.native.crc32c(value) == google_crc32c.value(value)
