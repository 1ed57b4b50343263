"""Golden vectors of spec 12, end to end: what is stored, byte by byte, and what is read from those bytes."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest

import zellige

A = np.array([[1, 2, 3], [4, 5, -6]], np.int16)
STEPS = np.repeat(np.arange(8), 32).astype(np.int16)
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
PLAIN = {"name": "bytes", "configuration": {}}
DEFAULT = {"name": "default", "configuration": {"separator": "/"}}
LZ4 = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}


def codec(name, **configuration):
    return {"name": name, "configuration": configuration}


@dataclass
class Case:
    """An array in one chunk, and the hex of that chunk."""

    data: np.ndarray
    hex: str
    serializer: dict = field(default_factory=lambda: LITTLE)
    filters: list = field(default_factory=list)
    compressors: list = field(default_factory=list)
    encoding: dict = field(default_factory=lambda: DEFAULT)
    key: str = ""
    written: bool = True  # or only read, because writers differ

    def __post_init__(self):
        self.data = np.asarray(self.data)
        self.key = self.key or "/".join(["c", *["0"] * self.data.ndim])

    @property
    def raw(self):
        return bytes.fromhex(self.hex)

    @property
    def document(self):
        """The document, written by hand as spec 3.1 demands."""
        zero = {"b": False, "c": [0.0, 0.0], "f": 0.0}.get(self.data.dtype.kind, 0)
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.data.shape),
            "data_type": self.data.dtype.name,
            "chunk_grid": codec("regular", chunk_shape=list(self.data.shape)),
            "chunk_key_encoding": self.encoding,
            "fill_value": zero,
            "codecs": [*self.filters, self.serializer, *self.compressors],
        }


A_LITTLE = "01000200030004000500faff"
COMPLEX = np.array([complex(1, 2), complex(-0.0, np.inf)], np.complex64)

CASES = {
    "bytes little": Case(A, A_LITTLE),
    "bytes big": Case(A, "00010002000300040005fffa", BIG),
    "transpose": Case(A, "01000400020005000300faff", filters=[codec("transpose", order=[1, 0])]),
    "transpose of three axes": Case(
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        "0004080c10140105090d111502060a0e121603070b0f1317",
        PLAIN,
        filters=[codec("transpose", order=[2, 0, 1])],
    ),
    "crc32c": Case(A, A_LITTLE + "fa453115", compressors=[{"name": "crc32c", "configuration": {}}]),
    "gzip": Case(
        A,
        "1f8b0800000000000403" + "010c00f3ff" + A_LITTLE + "400914050c000000",
        compressors=[codec("gzip", level=0)],
        written=False,
    ),
    "zstd": Case(A, "28b52ffd200c610000" + A_LITTLE, compressors=[codec("zstd", level=0, checksum=False)]),
    "zstd with a checksum": Case(
        A, "28b52ffd240c610000" + A_LITTLE + "ada90f4d", compressors=[codec("zstd", level=3, checksum=True)]
    ),
    "zstd without content size": Case(
        np.array([1, 2, 3, 4], np.uint8),
        "28b52ffd000021000001020304",
        PLAIN,
        compressors=[codec("zstd", level=0, checksum=False)],
        written=False,
    ),
    "blosc, copied": Case(
        A, "020133020c0000000c0000001c000000" + A_LITTLE, compressors=[{"name": "blosc", "configuration": LZ4}]
    ),
    "blosc, two splits": Case(
        STEPS,
        "02012102000200000002000055000000"
        "14000000"
        "2e000000"
        "1f0001000c1f0101000c1f0201000c1f0301000c1f0401000c1f0501000c1f0601000c1f07010007500707070707"
        "0b000000"
        "1f000100e7500000000000",
        compressors=[{"name": "blosc", "configuration": LZ4}],
    ),
    "bool": Case(np.array([True, False, True, True, False]), "0100010100", PLAIN),
    "complex little": Case(COMPLEX, "0000803f00000040000000800000807f"),
    "complex big": Case(COMPLEX, "3f80000040000000800000007f800000", BIG),
    "float16": Case(np.array([1, -2.5, np.nan], np.float16), "003c00c1007e"),
    "scalar": Case(np.array(7, np.int32), "07000000", key="c"),
    "scalar with v2 keys": Case(np.array(7, np.int32), "07000000", encoding=codec("v2", separator="."), key="0"),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def create(case):
    store = zellige.MemoryStore()
    zellige.create_array(
        store,
        data=case.data,
        chunks=case.data.shape,
        filters=case.filters,
        serializer=case.serializer,
        compressors=case.compressors,
        chunk_key_encoding=case.encoding,
    )
    return store


def opened(document, chunks):
    """An array from a document and the hex of its chunks."""
    values = {key: bytes.fromhex(text) for key, text in chunks.items()}
    return zellige.open(zellige.MemoryStore({"zarr.json": json.dumps(document).encode(), **values}), mode="r")


@each_case
def test_stored_bytes(case):
    store = create(case)
    assert sorted(store.list()) == sorted([case.key, "zarr.json"])
    if case.written:
        assert store.get(case.key).hex() == case.hex
    elif case.compressors[0]["name"] == "gzip":
        assert gzip.decompress(store.get(case.key)).hex() == A_LITTLE


@each_case
def test_stored_documents(case):
    assert json.loads(create(case).get("zarr.json")) == case.document


@each_case
def test_reading(case):
    array = opened(case.document, {case.key: case.hex})
    found = array[...]
    assert found.dtype == array.dtype == case.data.dtype
    assert found.shape == case.data.shape
    assert found.tobytes() == case.data.tobytes()  # to the bit: -0.0, NaN
    for index in np.ndindex(case.data.shape):
        assert np.asarray(array[index]).tobytes() == case.data[index].tobytes()


@each_case
def test_reading_a_part(case):
    array = opened(case.document, {case.key: case.hex})
    for cut in (np.s_[..., ::-1], np.s_[..., 1:], np.s_[-1:]) if case.data.ndim else ():
        assert array[cut].tobytes() == case.data[cut].tobytes()


@each_case
def test_changing_one_element_changes_its_bytes_only(case):
    store = zellige.MemoryStore({"zarr.json": json.dumps(case.document).encode(), case.key: case.raw})
    array = zellige.open(store)
    last = (-1,) * case.data.ndim
    array[last] = 0
    expected = case.data.copy()
    expected[last] = 0
    assert zellige.open(store)[...].tobytes() == expected.tobytes()
    array[last] = case.data[last]
    if case.written:
        assert store.get(case.key).hex() == case.hex


def test_border_chunks_are_padded_with_the_fill_value():
    store = zellige.MemoryStore()
    options = {"fill_value": 9, "compressors": None}
    zellige.create_array(store, data=np.array([1, 2, 3], np.uint8), chunks=2, **options)
    assert {key: store.get(key).hex() for key in store.list() if key != "zarr.json"} == {"c/0": "0102", "c/1": "0309"}
    document = json.loads(store.get("zarr.json"))
    assert opened(document, {"c/0": "0102", "c/1": "0309"})[:].tolist() == [1, 2, 3]
    assert opened(document, {"c/0": "0102", "c/1": "03ff"})[:].tolist() == [1, 2, 3]  # what lies outside is ignored
    assert opened(document, {"c/0": "0102"})[:].tolist() == [1, 2, 9]


# -- rectilinear ----------------------------------------------------------------------------------

RECTILINEAR = json.loads(
    '{"shape":[6,7],"data_type":"int16","chunk_grid":{"name":"rectilinear","configuration":{"kind":"inline",'
    '"chunk_shapes":[[1,2,3],[[3,2],1]]}},"chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},'
    '"fill_value":-1,"codecs":[{"name":"bytes","configuration":{"endian":"little"}}],"attributes":{},"zarr_format":3,'
    '"node_type":"array","storage_transformers":[]}'
)
FIVE = {
    "c/0/0": "000001000200",
    "c/0/2": "0600",
    "c/1/2": "0d001400",
    "c/2/1": "180019001a001f0020002100260027002800",
    "c/2/2": "1b0022002900",
}
COUNTED = np.arange(42, dtype=np.int16).reshape(6, 7)
ROWS, COLUMNS = [(0, 1), (1, 3), (3, 6)], [(0, 3), (3, 6), (6, 7)]


def nine_chunks():
    """The five chunks that the specification gives, the others cut out by hand."""
    cut = {
        f"c/{i}/{j}": COUNTED[slice(*rows), slice(*columns)].astype("<i2").tobytes().hex()
        for (i, rows), (j, columns) in product(enumerate(ROWS), enumerate(COLUMNS))
    }
    return {**cut, **FIVE}


@pytest.mark.parametrize("chunks", [[[1, 2, 3], [[3, 2], 1]], ((1, 2, 3), (3, 3, 1))])
def test_rectilinear_chunks_as_they_are_stored(chunks):
    store = zellige.MemoryStore()
    zellige.create_array(store, data=COUNTED, chunks=chunks, fill_value=-1, compressors=None)
    assert {key: store.get(key).hex() for key in FIVE} == FIVE
    assert {key: store.get(key).hex() for key in store.list() if key != "zarr.json"} == nine_chunks()
    # Empty optional fields are left out.
    expected = {k: v for k, v in RECTILINEAR.items() if k not in ("attributes", "storage_transformers")}
    assert json.loads(store.get("zarr.json")) == expected


def test_the_rectilinear_document():
    array = opened(RECTILINEAR, nine_chunks())
    assert array.write_chunk_sizes == ((1, 2, 3), (3, 3, 1))
    assert array[...].tolist() == COUNTED.tolist()
    assert array[4, 5] == 33
    assert [chunk.key for chunk in array.iter_chunks((4, 5))] == ["c/2/1"]
    assert array[::2, ::-3].tolist() == COUNTED[::2, ::-3].tolist()
    holes = opened(RECTILINEAR, FIVE)[...]
    stored = np.zeros((6, 7), bool)
    for key in FIVE:
        i, j = map(int, key.split("/")[1:])
        stored[slice(*ROWS[i]), slice(*COLUMNS[j])] = True
    assert np.array_equal(holes, np.where(stored, COUNTED, -1))


def test_edges_beyond_the_array():
    store = zellige.MemoryStore()
    data = np.array([1, 2, 3, 4], np.uint8)
    zellige.create_array(store, data=data, chunks=[[1, 2, 3, 5]], fill_value=9, compressors=None)
    expected = {"c/0": "01", "c/1": "0203", "c/2": "040909"}  # no c/3
    assert {key: store.get(key).hex() for key in store.list() if key != "zarr.json"} == expected
    document = json.loads(store.get("zarr.json"))
    assert document["chunk_grid"] == codec("rectilinear", kind="inline", chunk_shapes=[[1, 2, 3, 5]])
    array = opened(document, expected)
    assert array[:].tolist() == [1, 2, 3, 4]
    assert array.cdata_shape == (3,)
    assert opened(document, {**expected, "c/3": "00"})[:].tolist() == [1, 2, 3, 4]  # outside the grid: ignored
