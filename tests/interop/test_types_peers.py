"""Types beyond the core: zarr-python and TensorStore read what we wrote and write what we read, to the bit.

zarr-python 3.1 runs in this process. Structs by their present name need 3.4, which has its own interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import zellige

ROOT = Path(__file__).parents[2]
PEER = os.environ.get("ZELLIGE_PEER_PYTHON") or str(ROOT / ".venv-peer" / "bin" / "python")
STRING = np.dtypes.StringDType()
STRUCT = np.dtype([("a", "i2"), ("b", "u1"), ("c", "f4"), ("t", "U2"), ("d", "M8[s]"), ("s", "S3")])
STRUCTS = np.array([(k, k, -k / 2, f"é{k}", k * 86400, f"s{k}") for k in range(7)], STRUCT)

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr-python warns of every type without a specification


def same(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype.hasobject or expected.dtype.hasobject:
        return found.tolist() == expected.tolist()
    if found.dtype.name.startswith("int"):  # TensorStore sets the bits above small integers, which mean nothing
        return found.dtype == expected.dtype and (found == expected).all()
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


# -- zarr-python ----------------------------------------------------------------------------------

BLOBS = np.empty(5, object)
BLOBS[:] = [b"a", b"\0\xff", b"", b"\0", b"x" * 50]
# the data, the type for zarr-python, the type for us
ZARR = {
    "string": (np.array(["a", "bcd", "", "日本" * 20, "a\0b"], STRING), "string", "string"),
    "bytes": (BLOBS, "variable_length_bytes", "bytes"),
    "U2": (np.array(["h", "é", "", "xy", "日本"]), "<U2", "U2"),
    "S3": (np.array([b"ab", b"c", b"", b"xyz", b"\xff"]), "S3", "S3"),
    "raw_bytes": (
        np.array([b"abc", b"\0\0\0", b"xyz", b"1\0\0"], "V3"),
        "V3",
        {"name": "raw_bytes", "configuration": {"length_bytes": 3}},
    ),
    "M8[s]": (np.array(["1970-01-02", "NaT", "2020", "1900"], "M8[s]"), "M8[s]", "M8[s]"),
    "M8[10us]": (np.array([1, -1, 2**62], "M8[10us]"), "M8[10us]", "M8[10us]"),
    "m8[3D]": (np.array([1, "NaT", -4], "m8[3D]"), "m8[3D]", "m8[3D]"),
    "structured": (STRUCTS, STRUCT, STRUCT),
}
# What zarr-python 3.1 cannot read of ours, or change in place once we have written the document anew.
ZARR_LIMITS = {
    "structured": "zarr-python 3.1 knows structs only as 'structured', which has no specification and is not written",
    "r24": "zarr-python does not know the core types r<N>",
    "bfloat16": "zarr-python has no types of ml_dtypes",
}
# It keeps bound shards by their fill value, and numpy's void scalars have no hash.
SHARD_LIMITS = dict.fromkeys(["raw_bytes", "structured"], "zarr-python cannot use shards of void types")
each_zarr = pytest.mark.parametrize("name", ZARR)


@pytest.fixture
def zarr():
    return pytest.importorskip("zarr", minversion="3.1", reason="the peer zarr-python is missing: pip install zarr")


@each_zarr
@pytest.mark.parametrize("sharded", [False, True], ids=["chunks", "shards"])
def test_arrays_of_zarr_python(zarr, name, sharded, tmp_path):
    if sharded and name in SHARD_LIMITS:
        pytest.skip(SHARD_LIMITS[name])
    data, theirs, _ = ZARR[name]
    shards = {"chunks": (1,), "shards": (4,)} if sharded else {"chunks": (3,)}
    peer = zarr.create_array(tmp_path, shape=data.shape, dtype=theirs, **shards)
    peer[:] = data
    ours = zellige.open(tmp_path, mode="r+")
    assert same(ours[:], data)
    assert same(np.asarray(ours.fill_value), np.asarray(peer.fill_value)) or np.isnat(ours.fill_value)
    ours[1] = data[0]
    ours.attrs["touched"] = True  # the document anew
    expected = np.concatenate([data[:1], data[:1], data[2:]])
    assert same(zellige.open(tmp_path)[:], expected)
    if name not in ZARR_LIMITS:
        assert same(zarr.open_array(tmp_path, mode="r")[:], expected)


@each_zarr
@pytest.mark.parametrize("sharded", [False, True], ids=["chunks", "shards"])
def test_zarr_python_reads_ours(zarr, name, sharded, tmp_path):
    for limits in (ZARR_LIMITS, SHARD_LIMITS if sharded else {}):
        if name in limits:
            pytest.skip(limits[name])
    data, _, dtype = ZARR[name]
    shards = {"chunks": (1,), "shards": (4,)} if sharded else {"chunks": (3,)}
    ours = zellige.create_array(tmp_path, data=data, dtype=dtype, fill_value=data[-1, ...], **shards)
    peer = zarr.open_array(tmp_path, mode="r+")
    assert same(peer[:], data)
    fill, wanted = peer.fill_value, ours.fill_value
    assert fill == wanted or (np.isnat(fill) and np.isnat(wanted))
    peer.resize((len(data) + 2,))
    peer[:2] = data[-2:]  # it cannot write bytes to a single element
    ours.refresh()
    assert same(ours[:], np.concatenate([data[-2:], data[2:], data[[-1, -1]]]))


@pytest.mark.parametrize("dtype", ["r24", "bfloat16"])
def test_limits_of_zarr_python(zarr, dtype, tmp_path):
    zellige.create_array(tmp_path, shape=3, dtype=dtype)
    with pytest.raises(ValueError, match="No Zarr data type"):  # or the reason in the table is gone
        zarr.open_array(tmp_path, mode="r")


# -- zarr-python 3.4: structs ---------------------------------------------------------------------

SCRIPT = """
import json, sys, numpy as np, zarr
root, endian = sys.argv[1:]
data = np.load(root + "/data.npy")
codec = zarr.codecs.BytesCodec(endian=endian)
zarr.create_array(root + "/theirs", data=data, chunks=(3,), serializer=codec)
np.save(root + "/read.npy", zarr.open_array(root + "/ours", mode="r")[:])
fill = zarr.open_array(root + "/ours", mode="r").fill_value
print(json.dumps({"version": zarr.__version__, "fill": repr(fill.item())}))
"""


@pytest.mark.skipif(not os.access(PEER, os.X_OK), reason="zarr-python 3.4 or newer is missing; `make peer` makes it")
@pytest.mark.parametrize("endian", ["little", "big"])
def test_structs_with_zarr_python_of_today(endian, tmp_path):
    codec = {"name": "bytes", "configuration": {"endian": endian}}
    fill = STRUCTS[3]
    zellige.create_array(tmp_path / "ours", data=STRUCTS, chunks=3, serializer=codec, fill_value=fill)
    np.save(tmp_path / "data.npy", STRUCTS)
    command = [PEER, "-W", "ignore", "-c", SCRIPT, str(tmp_path), endian]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["fill"] == repr(fill.item())
    assert same(np.load(tmp_path / "read.npy"), STRUCTS)
    theirs = zellige.open(tmp_path / "theirs")
    assert same(theirs[:], STRUCTS)
    assert theirs.metadata.to_dict()["data_type"]["name"] == "struct"
    assert same(theirs["t"], STRUCTS["t"])


# -- TensorStore ----------------------------------------------------------------------------------

FLOATS = [1.0, 1.5, -1.0, 0.0, 2.0, 0.5, -4.0]
TENSORSTORE = {
    "bfloat16": FLOATS,
    "int2": [1, -1, -2, 0, 1, 1, -1],
    "int4": [1, -1, -8, 7, 0, 3, -4],
    "float4_e2m1fn": FLOATS,
    "float8_e3m4": FLOATS,
    "float8_e4m3b11fnuz": FLOATS,
    "float8_e4m3fn": FLOATS,
    "float8_e4m3fnuz": FLOATS,
    "float8_e5m2": FLOATS,
    "float8_e5m2fnuz": FLOATS,
    "float8_e8m0fnu": [1.0, 2.0, 0.5, 2.0**-120, 2.0**120, 4.0, 8.0],
}
TENSORSTORE_LIMITS = dict.fromkeys(
    ["uint2", "uint4", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3", "complex_float16", "complex_bfloat16"],
    "TensorStore does not have this registered type",
)
TENSORSTORE_LIMITS |= dict.fromkeys(
    ["string", "bytes", "U2", "S2", "M8[s]", "m8[s]"], "TensorStore has no such type in Zarr v3"
)
FILL_LIMITS = {"float8_e8m0fnu": "TensorStore reads the fill value 2.0 as 2**-63, and writes 2**-127 as 0.0"}
each_tensorstore = pytest.mark.parametrize("name", TENSORSTORE)


@pytest.fixture
def ts():
    return pytest.importorskip("tensorstore", reason="the peer TensorStore is missing: pip install tensorstore")


def at(path):
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}


def codec_of(name, endian):
    return {"name": "bytes", "configuration": {"endian": endian} if name == "bfloat16" else {}}


@each_tensorstore
@pytest.mark.parametrize("endian", ["little", "big"])
def test_tensorstore_reads_ours(ts, name, endian, tmp_path):
    data = np.array(TENSORSTORE[name]).astype(getattr(ml_dtypes, name))
    serializer = codec_of(name, endian)
    ours = zellige.create_array(
        tmp_path, data=data, dtype=name, chunks=4, fill_value=data[1], serializer=serializer, compressors="gzip"
    )
    theirs = ts.open(at(tmp_path)).result()
    assert same(theirs.read().result(), data)
    if name not in FILL_LIMITS:
        assert same(theirs.fill_value, np.asarray(ours.fill_value))
    theirs[2:5].write(data[:3]).result()
    assert same(ours[:], np.concatenate([data[:2], data[:3], data[5:]]))


@each_tensorstore
@pytest.mark.parametrize("endian", ["little", "big"])
def test_arrays_of_tensorstore(ts, name, endian, tmp_path):
    data = np.array(TENSORSTORE[name]).astype(getattr(ml_dtypes, name))
    metadata = {
        "shape": [7],
        "data_type": name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "codecs": [codec_of(name, endian)],
    }
    theirs = ts.open({**at(tmp_path), "metadata": metadata, "create": True}).result()
    theirs[:6].write(data[:6]).result()
    ours = zellige.open(tmp_path)
    assert ours.dtype == data.dtype
    assert same(ours[:6], data[:6])
    assert same(np.asarray(ours.fill_value), np.zeros((), data.dtype))  # bits of 0, also where that is no zero
    ours.append(data[:2])
    theirs = ts.open(at(tmp_path)).result()
    assert same(theirs.read().result(), np.concatenate([data[:6], np.zeros(1, data.dtype), data[:2]]))


@pytest.mark.parametrize("dtype", TENSORSTORE_LIMITS)
def test_limits_of_tensorstore(ts, dtype, tmp_path):
    zellige.create_array(tmp_path, shape=3, dtype=dtype)
    with pytest.raises(ValueError, match="data_type"):  # or the reason in the table is gone
        ts.open(at(tmp_path)).result()


@pytest.mark.parametrize("pattern", ["NaN", "0x7f81", "0xffff", "-Infinity", -0.0])
def test_fill_values_of_bfloat16_are_kept_by_both(ts, pattern, tmp_path):
    array = zellige.create_array(tmp_path, shape=3, dtype="bfloat16", fill_value=pattern)
    theirs = ts.open(at(tmp_path)).result()
    assert same(theirs.fill_value, array.metadata.fill_value)
    assert same(theirs.read().result(), array[:])
