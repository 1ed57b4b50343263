"""Every data type, in every layout of chunks, through random legal chains of codecs: what goes in comes out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zellige

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
SMALL = [
    *("int2", "int4", "uint2", "uint4", "bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"),
    *("float8_e5m2fnuz", "float8_e8m0fnu"),
]
RECORD = np.dtype([("a", "<i2"), ("b", "<f4"), ("c", [("x", "u1"), ("y", "<c8")])])
OTHERS = [
    *("bool", "complex64", "complex128", "r24", np.dtype("U3"), np.dtype("S4"), "string", "bytes"),
    *(np.dtype("M8[ns]"), np.dtype("M8[10us]"), np.dtype("m8[s]"), RECORD),
]
TYPES = [*NUMBERS, *FLOATS, *SMALL, *OTHERS]

SHAPE = (7, 10)
LAYOUTS = {
    "plain": {"chunks": (3, 4)},
    "rectilinear": {"chunks": ([2, 4, 1], [[3, 3], 4])},
    "sharded": {"chunks": (2, 3), "shards": (4, 6)},
    "rectilinear sharded": {"chunks": (2, 3), "shards": ([2, 4, 2], [9, 3])},
}

COMPRESSORS = [
    {"name": "zstd", "configuration": {"level": 3, "checksum": True}},
    {"name": "gzip", "configuration": {"level": 4}},
    {
        "name": "blosc",
        "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0},
    },
    {"name": "crc32c"},
    {"name": "conditional", "configuration": {"codecs": [{"name": "gzip", "configuration": {"level": 1}}]}},
    *({"name": f"numcodecs.{name}", "configuration": {}} for name in ("zlib", "bz2", "lz4", "crc32", "adler32")),
]
TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}
RESHAPE = {"name": "reshape", "configuration": {"shape": [[0, 1]]}}
FILTERS = [[], [TRANSPOSE], [RESHAPE], [TRANSPOSE, RESHAPE], [TRANSPOSE, TRANSPOSE]]


def values(dtype, seed):
    """Values of a type: any bits where every bit pattern is a value, else a choice of values."""
    rng = np.random.default_rng(seed)
    if dtype == "string":
        words = ["", "a", "é", "日本語", "long " * 20]
        return np.array([words[k] for k in rng.integers(0, 5, 70)], np.dtypes.StringDType()).reshape(SHAPE)
    if dtype == "bytes":
        data = np.empty(70, object)
        data[:] = [bytes(rng.integers(0, 256, n, np.uint8)) for n in rng.integers(0, 9, 70)]
        return data.reshape(SHAPE)
    memory = zellige.zeros((), dtype=dtype).dtype
    if memory.kind in "US":
        return np.array(["", "x", "yz"], memory)[rng.integers(0, 3, SHAPE)]
    if dtype in ("bool", *SMALL):
        low = 1 if dtype == "float8_e8m0fnu" else 0
        return rng.integers(low, 2, SHAPE).astype(memory)
    return np.frombuffer(rng.bytes(70 * memory.itemsize), memory).reshape(SHAPE)


@st.composite
def chains(draw, dtype):
    """A legal chain for a type, as arguments of `create_array`."""
    chain = {"filters": draw(st.sampled_from(FILTERS))}
    chain["compressors"] = draw(st.lists(st.sampled_from(COMPRESSORS), max_size=3))
    if dtype in ("string", "bytes"):
        return chain
    serializers = [{"name": "bytes", "configuration": {"endian": order}} for order in ("little", "big")]
    if dtype in (*NUMBERS, *FLOATS, "bool"):
        serializers.append({"name": "packbits", "configuration": {}})
    return {**chain, "serializer": draw(st.sampled_from(serializers))}


def bits(array):
    return array.tolist() if array.dtype.kind in "OT" else array.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@settings(max_examples=2, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_what_goes_in_comes_out(dtype, layout, data):
    expected = values(dtype, data.draw(st.integers(0, 2**32)))
    chain = data.draw(chains(dtype))
    a = zellige.create_array(shape=SHAPE, dtype=dtype, **LAYOUTS[layout], **chain)
    a[...] = expected
    again = zellige.open(a.store, mode="r")
    assert again.dtype == a.dtype
    assert bits(again[...]) == bits(expected)
    assert bits(again[1:6:2, ::-3]) == bits(expected[1:6:2, ::-3].copy())
    a[2:5, 3:9] = expected[:3, :6]
    changed = expected.copy()
    changed[2:5, 3:9] = expected[:3, :6]
    assert bits(again[...]) == bits(changed)
